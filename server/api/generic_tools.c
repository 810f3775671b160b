// The model writes calls as Hermes models do, between <tool_call> tags: most models have seen that.
#include "generic_tools.h"

#include "rewrite.h"

#include <string.h>

static void describe(struct buf *b, const json_t *tools) {
    static const char *const names[] = {"name", "description", "parameters"};
    buf_lit(b, "You can call these functions. Each line has one, with the JSON schema of its arguments:\n\n");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = field_get(json_array_get(tools, i), "function");
        json_t *shown = json_object();
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (field_get(function, names[k]))
                json_object_set(shown, names[k], (json_t *)(uintptr_t)field_get(function, names[k]));
        rewrite_json(b, shown);
        buf_char(b, '\n');
        json_decref(shown);
    }
    buf_lit(b, "\nTo call a function, write\n<tool_call>\n{\"name\": its name, \"arguments\": an "
               "object}\n</tool_call>\n"
               "once for each call, and nothing behind them. The results come between <tool_response> and "
               "</tool_response>. Where no function helps, answer in plain text.");
}

// The content of a message with a text before or behind it.
static json_t *with_text(const json_t *content, const struct buf *text, bool before) {
    json_t *part = json_pack("{s:s, s:o}", "type", "text", "text", json_text(text->data, text->len));
    if (json_is_array(content)) {
        json_t *parts = json_copy((json_t *)(uintptr_t)content);
        json_array_insert_new(parts, before ? 0 : json_array_size(parts), part);
        return parts;
    }
    json_decref(part);
    struct buf all = {0};
    size_t len = json_string_length(content);
    if (before)
        buf_add(&all, text->data, text->len);
    if (before && len)
        buf_lit(&all, "\n\n");
    buf_add(&all, json_string_value(content), len);
    if (!before && len)
        buf_char(&all, '\n');
    if (!before)
        buf_add(&all, text->data, text->len);
    json_t *v = all.failed ? NULL : json_text(all.data, all.len);
    buf_free(&all);
    return v;
}

// A copy of the model's message whose calls are text.
static json_t *said_calls(const json_t *message) {
    const json_t *calls = field_get(message, "tool_calls");
    struct buf text = {0};
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *function = field_get(json_array_get(calls, i), "function"),
                     *arguments = field_get(function, "arguments");
        buf_str(&text, i ? "\n<tool_call>\n{\"name\": " : "<tool_call>\n{\"name\": ");
        rewrite_json(&text, field_get(function, "name") ? field_get(function, "name") : json_null());
        buf_lit(&text, ", \"arguments\": ");
        if (json_string_length(arguments))
            buf_add(&text, json_string_value(arguments), json_string_length(arguments));
        else if (json_is_object(arguments))
            rewrite_json(&text, arguments);
        else
            buf_lit(&text, "{}");
        buf_lit(&text, "}\n</tool_call>");
    }
    json_t *copy = json_copy((json_t *)(uintptr_t)message);
    bool ok =
        copy && !text.failed &&
        json_object_set_new(copy, "content", with_text(field_get(message, "content"), &text, false)) == 0;
    json_object_del(copy, "tool_calls");
    buf_free(&text);
    if (ok)
        return copy;
    json_decref(copy);
    return NULL;
}

// The text of a tool's result, between its tags.
static void add_result(struct buf *text, const json_t *content) {
    buf_str(text, text->len ? "\n<tool_response>\n" : "<tool_response>\n");
    buf_add(text, json_string_value(content), json_string_length(content));
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *part = field_get(json_array_get(content, i), "text");
        buf_str(text, i ? "\n" : "");
        buf_add(text, json_string_value(part), json_string_length(part));
    }
    buf_lit(text, "\n</tool_response>");
}

static bool has_role(const json_t *message, const char *role) {
    const char *its = json_name(field_get(message, "role"));
    return its && strcmp(its, role) == 0;
}

// Appends results, which the user tells: with what the user says behind them (NULL: nothing) they are one message.
static bool append_results(json_t *list, struct buf *results, const json_t *user) {
    bool ok = !results->failed;
    if (user) {
        json_t *copy = json_copy((json_t *)(uintptr_t)user);
        ok =
            ok && copy &&
            json_object_set_new(copy, "content", with_text(field_get(user, "content"), results, true)) == 0 &&
            json_array_append(list, copy) == 0;
        json_decref(copy);
    } else {
        json_t *content = ok ? json_text(results->data, results->len) : NULL;
        ok = content &&
             json_array_append_new(list, json_pack("{s:s, s:o}", "role", "user", "content", content)) == 0;
    }
    buf_clear(results);
    return ok;
}

static bool rewrite_history(json_t *list, const json_t *messages) {
    struct buf results = {0};
    bool ok = true;
    for (size_t i = 0; i < json_array_size(messages) && ok; i++) {
        json_t *message = json_array_get(messages, i);
        bool result = has_role(message, "tool"), user = has_role(message, "user");
        if (result)
            add_result(&results, field_get(message, "content"));
        else if (results.len)
            ok = append_results(list, &results, user ? message : NULL);
        else if (user)
            ok = json_array_append(list, message) == 0;
        if (!result && !user)
            ok = ok && (json_array_size(field_get(message, "tool_calls")) > 0
                            ? json_array_append_new(list, said_calls(message))
                            : json_array_append(list, message)) == 0;
    }
    ok = ok && (!results.len || append_results(list, &results, NULL));
    buf_free(&results);
    return ok;
}

// Some templates refuse a system message, or leave it out.
static bool shows_system(const struct served_model *m) {
    struct buf text = {0};
    struct api_error e = {0};
    json_t *probe = json_pack("{s:[{s:s, s:s}, {s:s, s:s}]}", "messages", "role", "system", "content",
                              "qUiRe", "role", "user", "content", "a");
    bool shown =
        probe && chat_text(m, probe, true, false, &text, &e) && buf_cstr(&text) && strstr(text.data, "qUiRe");
    json_decref(probe);
    buf_free(&text);
    return shown;
}

// Puts the description before what the first system message says, a new one where there is none; or before the user's
// first words.
static bool add_description(json_t *list, const struct served_model *m, const struct buf *text) {
    bool system = shows_system(m);
    size_t at = 0;
    while (at < json_array_size(list) && !has_role(json_array_get(list, at), system ? "system" : "user"))
        at++;
    json_t *message = json_array_get(list, at), *content = NULL;
    if (!message || (system && at > 0))
        return (content = json_text(text->data, text->len)) &&
               json_array_insert_new(
                   list, 0,
                   json_pack("{s:s, s:o}", "role", system ? "system" : "user", "content", content)) == 0;
    message = json_copy(message);
    bool ok = message && json_object_set_new(message, "content",
                                             with_text(field_get(message, "content"), text, true)) == 0;
    return ok && json_array_set_new(list, at, message) == 0;
}

bool generic_tools_rewrite(json_t *root, const struct served_model *m, struct api_error *e) {
    const json_t *messages = field_get(root, "messages"), *tools = field_get(root, "tools");
    const char *choice = json_name(field_get(root, "tool_choice"));
    if (!m->generic_tools || !json_is_array(messages))
        return true;
    json_t *list = json_array();
    struct buf text = {0};
    bool ok = list && (chat_template_names(m, "tool_calls")
                           ? json_array_extend(list, (json_t *)(uintptr_t)messages) == 0
                           : rewrite_history(list, messages));
    if (ok && json_array_size(tools) > 0 && !(choice && strcmp(choice, "none") == 0)) {
        describe(&text, tools);
        ok = !text.failed && add_description(list, m, &text);
    }
    buf_free(&text);
    ok = ok && json_object_set(root, "messages", list) == 0;
    json_decref(list);
    json_object_del(root, "tools");
    return ok || api_fail_memory(e);
}
