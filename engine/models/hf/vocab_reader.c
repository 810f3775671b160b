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

static int digit_of(char c) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

bool hf_base64(struct text_view text, unsigned char *out, size_t *n) {
    uint32_t bits = 0;
    int num = 0;
    *n = 0;
    while (text.len > 0 && text.data[text.len - 1] == '=')
        text.len--;
    for (size_t i = 0; i < text.len; i++) {
        int digit = digit_of(text.data[i]);
        if (digit < 0)
            return false;
        bits = bits << 6 | (uint32_t)digit;
        num += 6;
        if (num >= 8)
            out[(*n)++] = (unsigned char)(bits >> (num -= 8));
    }
    return true;
}

// ---- vocabularies that are no JSON

// The lists of added tokens: {"id": {"content": text, …}} as transformers writes it today, else {"text": id}.
static const struct jdoc_value *added_list(const struct vocab_reader *r, const struct jdoc **doc) {
    const struct jdoc_value *list =
        r->config ? jdoc_get(r->config, r->config->values, "added_tokens_decoder") : NULL;
    *doc = list ? r->config : r->added;
    return list ? list : r->added ? r->added->values : NULL;
}

static bool added_id(const struct jdoc *c, bool by_id, const struct jdoc_value *key, int64_t *id) {
    struct text_view text = jdoc_text(c, key);
    if (!by_id)
        return jdoc_integer(c, key + 1, id) && *id >= 0 && *id < VOCAB_MAX_TOKENS;
    *id = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] < '0' || text.data[i] > '9' || *id >= VOCAB_MAX_TOKENS)
            return false;
        *id = 10 * *id + text.data[i] - '0';
    }
    return text.len > 0 && *id < VOCAB_MAX_TOKENS;
}

// A token that special_tokens_map.json names anywhere is a special one.
static bool is_named(const struct vocab_reader *r, struct text_view name) {
    const struct jdoc *c = r->special_map;
    for (size_t i = 0; c && i < c->num; i++)
        if (c->values[i].type == JDOC_STRING && c->values[i].len == name.len &&
            memcmp(c->text + c->values[i].at, name.data, name.len) == 0)
            return true;
    return false;
}

bool hf_vocab_rows(struct vocab_reader *r, int64_t rows) {
    r->num = rows > 0 && rows <= VOCAB_MAX_TOKENS ? rows : r->num;
    r->names = hf_alloc(r->keys, (size_t)r->num * sizeof *r->names);
    r->types = hf_alloc(r->keys, (size_t)r->num * sizeof *r->types);
    r->strips = hf_alloc(r->keys, (size_t)r->num);
    if (!r->names || !r->types || !r->strips)
        return false;
    memset(r->names, 0, (size_t)r->num * sizeof *r->names);
    memset(r->strips, 0, (size_t)r->num);
    for (int64_t i = 0; i < r->num; i++)
        r->types[i] = TYPE_UNUSED;
    return true;
}

bool hf_vocab_room(struct vocab_reader *r, int64_t num, int64_t more, int64_t rows) {
    const struct jdoc *c = NULL;
    const struct jdoc_value *list = added_list(r, &c);
    if (rows > 0 && num > rows) {
        jdoc_bad(r->j, r->err, "there are %lld tokens, and config.json has vocab_size %lld", (long long)num,
                 (long long)rows);
        return false;
    }
    r->num = num + more;
    JDOC_EACH_KEY(c, key, list) {
        int64_t id;
        if (!added_id(c, c == r->config, key, &id)) {
            jdoc_bad(c, r->err, "an added token at byte %u has no id from 0 to 2^22", key->at);
            return false;
        }
        r->num = id >= r->num ? id + 1 : r->num;
    }
    return hf_vocab_rows(r, rows);
}

bool hf_vocab_added(struct vocab_reader *r) {
    const struct jdoc *c = NULL;
    const struct jdoc_value *list = added_list(r, &c);
    JDOC_EACH_KEY(c, key, list) {
        bool by_id = c == r->config;
        const struct jdoc_value *e = key + 1, *content = by_id ? jdoc_get(c, e, "content") : key;
        int64_t id;
        if (!added_id(c, by_id, key, &id) || !content || content->type != JDOC_STRING || content->len == 0) {
            jdoc_bad(c, r->err, "an added token at byte %u has no text", key->at);
            return false;
        }
        if (id >= r->num) // has no row, and is text
            continue;
        struct text_view name = jdoc_text(c, content), *old = &r->names[id];
        bool added = !old->data || old->len != name.len || memcmp(old->data, name.data, name.len) != 0;
        bool special = is_true(jdoc_get(c, e, "special")) || is_named(r, name);
        *old = name;
        if (added || (r->types[id] != TYPE_UNKNOWN && r->types[id] != TYPE_CONTROL))
            r->types[id] = special ? TYPE_CONTROL : TYPE_USER_DEFINED;
        r->strips[id] =
            (unsigned char)(is_true(jdoc_get(c, e, "lstrip")) | is_true(jdoc_get(c, e, "rstrip")) << 1 |
                            is_true(jdoc_get(c, e, "single_word")) << 2 | added << 4);
        r->any_strips |= r->strips[id] != 0;
    }
    return true;
}
