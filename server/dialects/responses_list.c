// The items that led to a response, as a list with an id each.
#include "api/rewrite.h"
#include "responses.h"

#include "api/fields.h"

#include <stdio.h>
#include <string.h>

// Parts of a content that is one text.
static json_t *parts_of(const json_t *text, bool model) {
    return model ? json_pack("[{s:s, s:O, s:[], s:[]}]", "type", "output_text", "text", text, "annotations",
                             "logprobs")
                 : json_pack("[{s:s, s:O}]", "type", "input_text", "text", text);
}

static void set_absent(json_t *item, const char *key, json_t *v) {
    if (!field_get(item, key))
        json_object_set(item, key, v);
    json_decref(v);
}

// Gives an item the members that OpenAI's lists have, where the client left them out.
static void complete_item(json_t *item, const char *id, size_t i) {
    json_t *content = json_object_get(item, "content");
    const char *role = json_name(field_get(item, "role"));
    char own[REQUEST_ID_SIZE + 32];
    snprintf(own, sizeof own, "item_%s_%zu", id + strlen(RESPONSES_PREFIX), i);
    set_absent(item, "type", json_string("message"));
    set_absent(item, "id", json_string(own));
    set_absent(item, "status", json_string("completed"));
    if (role && json_is_string(content))
        json_object_set_new(item, "content", parts_of(content, strcmp(role, "assistant") == 0));
}

static const char *id_of(const json_t *item) {
    const char *id = json_name(json_object_get(item, "id"));
    return id ? id : "";
}

void responses_write_items(struct buf *b, const char *id, const struct buf *items, size_t limit,
                           bool newest_first, const char *after) {
    json_t *all = json_loadb(items->data, items->len, JSON_ALLOW_NUL, NULL), *page = json_array();
    size_t n = json_array_size(all), at = 0;
    for (size_t i = 0; i < n; i++)
        complete_item(json_array_get(all, i), id, i);
    for (size_t i = 0; after && i < n; i++) // unknown: from the beginning
        if (strcmp(id_of(json_array_get(all, newest_first ? n - 1 - i : i)), after) == 0)
            at = i + 1;
    size_t end = n - at < limit ? n : at + limit;
    for (size_t i = at; i < end; i++)
        json_array_append(page, json_array_get(all, newest_first ? n - 1 - i : i));
    size_t num = json_array_size(page);
    buf_lit(b, "{\"object\":\"list\",\"data\":");
    rewrite_json(b, page);
    buf_fmt(b, ",\"has_more\":%s", end < n ? "true" : "false");
    const char *const names[] = {"first_id", "last_id"};
    for (size_t k = 0; k < 2; k++) {
        const char *which = num ? id_of(json_array_get(page, k ? num - 1 : 0)) : "";
        buf_fmt(b, ",\"%s\":", names[k]);
        json_quote(b, which, strlen(which));
    }
    buf_char(b, '}');
    b->failed |= !all || num != end - at;
    json_decref(all);
    json_decref(page);
}
