// /v1/responses/compact: a conversation becomes the user's messages and a summary that the model writes.
#include "responses.h"

#include <string.h>

static const char mark[] = "quire-summary:", // of ours
    wish[] = "Summarise this conversation, so that you can go on from the summary alone: what I want, what "
             "has been done "
             "and found "
             "out, what is left to do, with all names, paths and values that matter. Write nothing but the "
             "summary.",
                  preface[] = "A summary of our conversation so far, which you wrote:\n\n";

static bool is_users(const json_t *item) {
    const char *role = json_name(field_get(item, "role")), *type = json_name(field_get(item, "type"));
    return role && strcmp(role, "user") == 0 && (!type || strcmp(type, "message") == 0);
}

json_t *responses_users(const json_t *items) {
    json_t *users = json_array();
    for (size_t i = 0; i < json_array_size(items); i++) {
        const json_t *item = json_array_get(items, i), *content = field_get(item, "content");
        if (!is_users(item))
            continue;
        json_t *parts = json_is_string(content)
                            ? json_pack("[{s:s, s:O}]", "type", "input_text", "text", content)
                            : json_incref((json_t *)(uintptr_t)content);
        json_array_append_new(users,
                              json_pack("{s:o, s:s, s:s, s:s, s:o}", "id", json_sprintf("msg_%zu", i), "type",
                                        "message", "status", "completed", "role", "user", "content", parts));
    }
    return users;
}

bool responses_ask_summary(json_t *root, json_t *items, struct api_error *e) {
    static const char *const others[] = {"tools", "tool_choice",    "parallel_tool_calls",
                                         "text",  "include",        "stream",
                                         "store", "stream_options", "background"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        json_object_del(root, others[i]);
    return json_array_append_new(items, json_pack("{s:s, s:s}", "role", "user", "content", wish)) == 0 ||
           api_fail_memory(e);
}

json_t *responses_summary(const json_t *item) {
    const char *text = json_string_value(field_get(item, "encrypted_content"));
    if (!text || strncmp(text, mark, strlen(mark)) != 0)
        return NULL;
    return json_sprintf("%s%s", preface, text + strlen(mark));
}

void responses_compaction_begin(struct response *r) {
    buf_lit(&r->head, "{\"id\":");
    json_quote(&r->head, r->id, strlen(r->id));
    buf_lit(&r->head, ",\"object\":\"response.compaction\",\"created_at\":");
    buf_int(&r->head, r->created);
}

// The text of the output, without reasoning.
static void add_summary(struct buf *out, const struct piece *p) {
    size_t num = 0;
    const char *text;
    const struct output_part *parts = p->output ? output_parts(p->output, &num, &text) : NULL;
    if (!parts)
        buf_add(out, p->text, p->len);
    for (size_t i = 0; i < num; i++)
        if (parts[i].kind == PART_CONTENT)
            buf_add(out, text + parts[i].begin, parts[i].len);
}

void responses_compaction(struct buf *b, const struct response *r, const struct piece *pieces,
                          const struct usage *usage) {
    const struct buf *users = &r->request->items;
    struct buf summary = {0};
    buf_lit(&summary, "quire-summary:");
    add_summary(&summary, &pieces[0]);
    buf_add(b, r->head.data, r->head.len);
    buf_lit(b, ",\"output\":");
    buf_add(b, users->data, users->len - 1); // but the bracket
    buf_str(b, users->len > 2 ? ",{\"id\":\"cmp_" : "{\"id\":\"cmp_");
    buf_str(b, r->id + strlen(RESPONSES_PREFIX));
    buf_lit(b, "\",\"type\":\"compaction\",\"encrypted_content\":");
    json_quote(b, summary.data, summary.len);
    buf_lit(b, "}]");
    responses_write_usage(b, usage);
    buf_char(b, '}');
    b->failed |= summary.failed;
    buf_free(&summary);
}
