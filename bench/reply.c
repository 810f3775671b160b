#include "reply.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static uint32_t count(const json_t *object, const char *key) {
    json_int_t v = json_integer_value(json_object_get(object, key));
    return v > 0 && v <= UINT32_MAX ? (uint32_t)v : 0;
}

static void read_usage(struct reply *r, const json_t *usage) {
    if (!json_is_object(usage))
        return;
    r->has_usage = true;
    r->input = count(usage, "prompt_tokens");
    r->output = count(usage, "completion_tokens");
    const json_t *cached = json_object_get(json_object_get(usage, "prompt_tokens_details"), "cached_tokens");
    if (json_is_integer(cached)) {
        r->has_cached = true;
        r->cached = count(json_object_get(usage, "prompt_tokens_details"), "cached_tokens");
    }
}

static void read_error(const json_t *root, char *message, size_t size) {
    const json_t *error = json_object_get(root, "error"), *text = json_object_get(error, "message");
    if (!text)
        text = json_object_get(root, "message"); // older servers
    if (!text && json_is_string(error))
        text = error;
    if (!text)
        text = json_object_get(root, "detail");
    if (json_is_string(text))
        snprintf(message, size, "%s", json_string_value(text));
    else if (error && !json_is_null(error))
        snprintf(message, size, "an error without a message");
}

static void add_text(struct reply *r, const json_t *piece, struct buf *text) {
    const char *s = json_string_value(piece);
    if (!s || !*s)
        return;
    r->has_text = true;
    if (text)
        buf_str(text, s);
}

static void read_choice(struct reply *r, const json_t *choice, struct buf *text) {
    r->has_choice = true;
    add_text(r, json_object_get(choice, "text"), text);
    const json_t *message = json_object_get(choice, "delta");
    if (!message)
        message = json_object_get(choice, "message");
    add_text(r, json_object_get(message, "content"), text);
    add_text(r, json_object_get(message, "reasoning_content"), NULL);
    add_text(r, json_object_get(message, "reasoning"), NULL);
    if (json_array_size(json_object_get(message, "tool_calls")))
        r->has_text = true;
    const json_t *reason = json_object_get(choice, "finish_reason");
    if (reason && !json_is_null(reason))
        r->finished = true;
}

void reply_read(struct reply *r, const char *json, size_t len, struct buf *text) {
    r->has_text = r->has_choice = false;
    if (len == 6 && memcmp(json, "[DONE]", 6) == 0) {
        r->done = true;
        return;
    }
    json_t *root = json_loadb(json, len, JSON_ALLOW_NUL, NULL);
    if (!json_is_object(root)) {
        r->bad = true;
        json_decref(root);
        return;
    }
    const json_t *error = json_object_get(root, "error"), *choices = json_object_get(root, "choices");
    if ((error && !json_is_null(error)) || !json_is_array(choices))
        read_error(root, r->error, sizeof r->error);
    if (!r->error[0] && !json_is_array(choices))
        r->bad = true;
    size_t i;
    const json_t *choice;
    json_array_foreach(choices, i, choice) read_choice(r, choice, text);
    read_usage(r, json_object_get(root, "usage"));
    json_decref(root);
}

void reply_error(const char *body, size_t len, char *message, size_t size) {
    message[0] = 0;
    json_t *root = json_loadb(body, len, 0, NULL);
    if (root)
        read_error(root, message, size);
    json_decref(root);
    if (message[0])
        return;
    // No error of the API, perhaps a proxy's page: its beginning, without line breaks.
    size_t n = 0;
    for (size_t i = 0; i < len && n + 1 < size; i++) {
        unsigned char c = (unsigned char)body[i];
        if (c > ' ')
            message[n++] = c < 0x7f ? (char)c : '?';
        else if (n && message[n - 1] != ' ')
            message[n++] = ' ';
    }
    message[n] = 0;
}
