#include "rewrite.h"

#include "messages.h"

#include <string.h>

static int add_bytes(const char *text, size_t len, void *to) {
    buf_add(to, text, len);
    return 0;
}

void rewrite_json(struct buf *b, const json_t *v) {
    b->failed |= json_dump_callback(v, add_bytes, b, JSON_COMPACT | JSON_ENCODE_ANY) != 0;
}

bool rewrite_set(json_t *object, const char *key, json_t *value, struct api_error *e) {
    return json_object_set_new(object, key, value) == 0 || api_fail_memory(e);
}

bool rewrite_append(json_t *list, json_t *value, struct api_error *e) {
    return json_array_append_new(list, value) == 0 || api_fail_memory(e);
}

bool rewrite_copy(json_t *chat, const char *to, const json_t *root, const char *from, struct api_error *e) {
    json_t *v = json_object_get(root, from);
    return !v || json_is_null(v) || rewrite_set(chat, to, json_incref(v), e);
}

const char *rewrite_reasoning_member(const struct served_model *m) {
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    for (size_t i = 0; m->chat && i < sizeof names / sizeof *names; i++)
        if (chat_template_names(m, names[i]))
            return names[i];
    return NULL;
}

bool rewrite_can_reason(const struct served_model *m) {
    const struct output_format *f = m->format;
    return chat_thinking_variable(m) || (f && f->harmony) ||
           (f && f->think_close && m->template_source && strstr(m->template_source, f->think_close));
}

bool rewrite_thinking(json_t *chat, const struct served_model *m, bool on, struct api_error *e) {
    const char *variable = chat_thinking_variable(m);
    return !variable || rewrite_set(chat, variable, json_boolean(on), e);
}
