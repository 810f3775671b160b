// See vocab_reader.h.
#include "vocab_reader.h"

bool hf_vocab_refuse(const struct vocab_reader *r, const struct jdoc_value *v, const char *what,
                     const char *expected) {
    bool shown = v && (v->type == JDOC_STRING || v->type == JDOC_NUMBER);
    jdoc_bad(r->j, r->err, "%s at byte %u is %s%.*s, expected %s", what, v ? v->at : 0,
             shown ? "" : jdoc_type_name(v), shown ? (int)(v->len < 160 ? v->len : 160) : 0,
             shown ? r->j->text + v->at : "", expected);
    return false;
}

bool hf_vocab_parts(const struct vocab_reader *r, const struct jdoc_value *v, const char *list,
                    bool (*fn)(const struct vocab_reader *r, const struct jdoc_value *part, void *arg),
                    void *arg) {
    if (!v || !is_type(r, v, "Sequence"))
        return !v || fn(r, v, arg);
    JDOC_EACH(r->j, e, get_of(r, v, list))
    if (!hf_vocab_parts(r, e, list, fn, arg))
        return false;
    return true;
}

bool strings_room(struct strings *s, struct hf_keys *keys, uint64_t count, uint64_t bytes) {
    *s = (struct strings){.data = hf_alloc(keys, (size_t)(8 * count + bytes))};
    s->at = s->data;
    return s->data != NULL;
}

void strings_add(struct strings *s, struct text_view a, const char *between, struct text_view b) {
    size_t middle = strlen(between);
    memcpy(s->at, &(uint64_t){a.len + middle + b.len}, 8);
    memcpy(s->at + 8, a.data, a.len);
    memcpy(s->at + 8 + a.len, between, middle);
    memcpy(s->at + 8 + a.len + middle, b.data, b.len);
    s->at += 8 + a.len + middle + b.len;
}

int64_t hf_vocab_find(const struct vocab_reader *r, struct text_view name) {
    for (int64_t i = 0; i < r->num; i++)
        if (r->names[i].data && r->names[i].len == name.len &&
            memcmp(r->names[i].data, name.data, name.len) == 0)
            return i;
    return -1;
}
