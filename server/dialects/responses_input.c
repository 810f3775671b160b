// Items of /v1/responses, in the words of a chat.
#include "api/rewrite.h"
#include "responses.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

// ---- items

struct item_reader {
    json_t *messages;
    json_t *assistant; // the last message, where it is the model's turn and goes on; else NULL
    json_t *names;     // call_id: the function's name
};

static bool add_text(json_t *object, const char *key, const char *text, size_t len) {
    return json_object_set_new(object, key, json_text(text, len)) == 0;
}

static bool add_string(json_t *object, const char *key, const json_t *v) {
    return add_text(object, key, json_string_value(v), json_string_length(v));
}

// The model's turn; a new one where `fresh` or where none goes on. NULL: out of memory.
static json_t *assistant_turn(struct item_reader *rd, bool fresh) {
    if (rd->assistant && !fresh)
        return rd->assistant;
    rd->assistant = json_pack("{s:s}", "role", "assistant");
    return json_array_append_new(rd->messages, rd->assistant) == 0 ? rd->assistant : NULL;
}

static bool has_member(const json_t *message, const char *key) {
    return json_object_get(message, key) != NULL;
}

// Parts of a content as those of a chat. NULL: e says why not.
static json_t *read_parts(const json_t *parts, const char *param, struct api_error *e) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        const char *type = json_name(field_get(part, "type"));
        bool refusal = type && strcmp(type, "refusal") == 0;
        const json_t *text = field_get(part, refusal ? "refusal" : "text");
        char where[96];
        snprintf(where, sizeof where, "%s[%zu]", param, i);
        if (!json_is_object(part) || !type)
            api_fail(e, 400, "invalid_type", where, "A part of '%.40s' must be an object with a 'type'.",
                     strchr(param, '.') + 1);
        else if (!refusal && strcmp(type, "input_text") != 0 && strcmp(type, "output_text") != 0 &&
                 strcmp(type, "text") != 0)
            api_fail(e, 400, "unsupported_parameter", where,
                     "Parts of type '%.40s' are not supported: this model reads text.", type);
        else if (!json_is_string(text))
            api_fail(e, 400, "invalid_type", where, "The text of a part must be a string.");
        json_t *one = e->status ? NULL : json_pack("{s:s}", "type", refusal ? "refusal" : "text");
        if (!one || !add_string(one, refusal ? "refusal" : "text", text) ||
            json_array_append(list, one) != 0) {
            json_decref(list);
            list = NULL;
        }
        json_decref(one);
    }
    if (!list)
        api_fail_memory(e); // unless there is another reason
    return list;
}

// The text of an item, a string or parts, as a chat has it. NULL: e says why not.
static json_t *read_text(const json_t *item, const char *key, size_t i, struct api_error *e) {
    const json_t *v = field_get(item, key);
    char param[48];
    snprintf(param, sizeof param, "input[%zu].%s", i, key);
    if (json_is_string(v))
        return json_incref((json_t *)(uintptr_t)v);
    if (json_is_array(v))
        return read_parts(v, param, e);
    api_fail(e, 400, v ? "invalid_type" : "missing_required_parameter", param,
             "'%s' must be a string or a list of parts.", key);
    return NULL;
}

static bool set_new(json_t *object, const char *key, json_t *v, struct api_error *e) {
    return v && (json_object_set_new(object, key, v) == 0 || api_fail_memory(e));
}

static bool read_message(struct item_reader *rd, const json_t *item, size_t i, struct api_error *e) {
    const char *role = json_name(field_get(item, "role"));
    char param[48];
    snprintf(param, sizeof param, "input[%zu].role", i);
    if (!role)
        return api_fail(e, 400, "missing_required_parameter", param,
                        "A message needs 'role': user, assistant, system or developer.");
    bool model = strcmp(role, "assistant") == 0;
    if (!model && strcmp(role, "user") != 0 && strcmp(role, "system") != 0 && strcmp(role, "developer") != 0)
        return api_fail(e, 400, NULL, param, "'role' must be user, assistant, system or developer.");
    json_t *content = read_text(item, "content", i, e), *message;
    if (model) {
        bool over = has_member(rd->assistant, "content") || has_member(rd->assistant, "tool_calls");
        message = assistant_turn(rd, over);
    } else {
        rd->assistant = NULL;
        message = json_pack("{s:s}", "role", role);
        if (json_array_append_new(rd->messages, message) != 0)
            message = NULL;
    }
    if (!message) {
        json_decref(content);
        return api_fail_memory(e);
    }
    return set_new(message, "content", content, e);
}

// A string of an item that must be there, and is a name but for arguments and input. NULL: e says why not.
static const json_t *need_string(const json_t *item, const char *key, size_t i, struct api_error *e) {
    const json_t *v = field_get(item, key);
    char param[48];
    snprintf(param, sizeof param, "input[%zu].%s", i, key);
    bool text = strcmp(key, "arguments") == 0 || strcmp(key, "input") == 0;
    if (text ? json_is_string(v) : json_name(v) != NULL)
        return v;
    api_fail(e, 400, v ? "invalid_type" : "missing_required_parameter", param, "'%s' must be a string%s.",
             key, text ? "" : ", without NUL");
    return NULL;
}

// Whether a call has its member `key`, and a name where it is not typed.
static bool check_call(const json_t *item, const char *key, size_t i, struct api_error *e) {
    char param[48];
    snprintf(param, sizeof param, "input[%zu].%s", i, key);
    if (strcmp(key, "arguments") == 0 || strcmp(key, "input") == 0)
        return need_string(item, "name", i, e) && need_string(item, key, i, e);
    const json_t *v = field_get(item, key);
    return json_is_object(v) || api_fail(e, 400, v ? "invalid_type" : "missing_required_parameter", param,
                                         "'%s' must be an object.", key);
}

static bool read_call(struct item_reader *rd, const json_t *item, const char *key, size_t i,
                      struct api_error *e) {
    const json_t *id = need_string(item, "call_id", i, e), *name;
    json_t *call = id && check_call(item, key, i, e) ? responses_call(item, e) : NULL;
    if (!call)
        return false;
    json_t *turn = assistant_turn(rd, false), *calls = json_object_get(turn, "tool_calls");
    if (turn && !calls && json_object_set_new(turn, "tool_calls", json_array()) == 0)
        calls = json_object_get(turn, "tool_calls");
    name = json_object_get(json_object_get(call, "function"), "name");
    return (json_array_append_new(calls, call) == 0 &&
            json_object_set(rd->names, json_string_value(id), (json_t *)(uintptr_t)name) == 0) ||
           api_fail_memory(e);
}

// Reads the result of a tool; the name is for templates that want it.
static bool read_output(struct item_reader *rd, const json_t *item, const char *type, size_t i,
                        struct api_error *e) {
    bool shell = strcmp(type, "local_shell_call_output") == 0; // by its SDK `id`, by its guide `call_id`
    const json_t *id = need_string(item, shell && !field_get(item, "call_id") ? "id" : "call_id", i, e);
    if (!id)
        return false;
    json_t *message = json_pack("{s:s, s:O}", "role", "tool", "tool_call_id", id);
    json_t *name = json_object_get(rd->names, json_string_value(id));
    rd->assistant = NULL;
    if (json_array_append_new(rd->messages, message) != 0 ||
        (name && json_object_set(message, "name", name) != 0))
        return api_fail_memory(e);
    if (strcmp(type, "apply_patch_call_output") == 0 && !field_get(item, "output")) {
        const char *status = json_name(field_get(item, "status"));
        return set_new(message, "content", json_string(status ? status : "completed"), e);
    }
    return set_new(message, "content", read_text(item, "output", i, e), e);
}

// Adds the texts of a list of parts, a line each.
static void gather_texts(struct buf *out, const json_t *parts) {
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *text = field_get(json_array_get(parts, i), "text");
        if (json_string_length(text) && out->len)
            buf_char(out, '\n');
        buf_add(out, json_string_value(text), json_string_length(text));
    }
}

// Reasoning, in the names that templates have for it. One without its text says nothing to this model.
static bool read_reasoning(struct item_reader *rd, const json_t *item, struct api_error *e) {
    static const char *const names[] = {"reasoning_content", "reasoning", "thinking"};
    struct buf text = {0};
    gather_texts(&text, field_get(item, "content"));
    if (!text.len)
        gather_texts(&text, field_get(item, "summary"));
    bool ok = !text.failed;
    if (ok && text.len) {
        bool over = has_member(rd->assistant, "content") || has_member(rd->assistant, "tool_calls");
        json_t *turn = assistant_turn(rd, over);
        ok = turn != NULL;
        for (size_t k = 0; ok && k < sizeof names / sizeof *names; k++)
            ok = add_text(turn, names[k], text.data, text.len);
    }
    buf_free(&text);
    return ok || api_fail_memory(e);
}

// A summary stands where the conversation before it stood: the user tells the model.
static bool read_compaction(struct item_reader *rd, const json_t *item, size_t i, struct api_error *e) {
    char param[48];
    snprintf(param, sizeof param, "input[%zu].encrypted_content", i);
    json_t *summary = responses_summary(item);
    rd->assistant = NULL;
    if (!summary)
        return api_fail(
            e, 400, "invalid_value", param,
            "'encrypted_content' is not of this server's /v1/responses/compact: it cannot be read.");
    return json_array_append_new(rd->messages, json_pack("{s:s, s:o}", "role", "user", "content", summary)) ==
               0 ||
           api_fail_memory(e);
}

static bool read_item(struct item_reader *rd, const json_t *item, size_t i, struct api_error *e) {
    static const char *const outputs[] = {"function_call_output", "custom_tool_call_output",
                                          "local_shell_call_output", "apply_patch_call_output"};
    const json_t *v = field_get(item, "type");
    const char *type = v ? json_name(v) : "message";
    char param[32];
    snprintf(param, sizeof param, "input[%zu]", i);
    if (!json_is_object(item) || !type)
        return api_fail(e, 400, "invalid_type", param, "An item must be an object with a 'type'.");
    if (strcmp(type, "message") == 0)
        return read_message(rd, item, i, e);
    const char *member = responses_call_member(type);
    if (member)
        return read_call(rd, item, member, i, e);
    for (size_t k = 0; k < sizeof outputs / sizeof *outputs; k++)
        if (strcmp(type, outputs[k]) == 0)
            return read_output(rd, item, type, i, e);
    if (strcmp(type, "reasoning") == 0)
        return read_reasoning(rd, item, e);
    if (strcmp(type, "compaction") == 0)
        return read_compaction(rd, item, i, e);
    return api_fail(e, 400, "unsupported_parameter", param, "Items of type '%.40s' are not supported.", type);
}

bool responses_read_items(json_t *messages, const json_t *items, size_t first, struct api_error *e) {
    struct item_reader rd = {.messages = messages, .names = json_object()};
    bool ok = rd.names || api_fail_memory(e);
    for (size_t i = 0; ok && i < json_array_size(items); i++)
        ok = read_item(&rd, json_array_get(items, i), i - first, e);
    json_decref(rd.names);
    return ok;
}

// ---- what the response repeats

// ,"NAME":VALUE, or `without` where the body has none.
static void repeat_field(struct buf *b, const json_t *root, const char *name, const char *without) {
    const json_t *v = field_get(root, name);
    buf_fmt(b, ",\"%s\":", name);
    if (v)
        rewrite_json(b, v);
    else
        buf_str(b, without);
}

// Functions as OpenAI's responses have them, with all members that are required there.
static void repeat_tools(struct buf *b, const json_t *tools) {
    bool first = true;
    buf_lit(b, ",\"tools\":[");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        const char *type = json_name(field_get(tool, "type"));
        if (!type || responses_tool_is_hosted(type))
            continue;
        buf_str(b, first ? "" : ",");
        first = false;
        if (strcmp(type, "function") == 0) {
            buf_lit(b, "{\"type\":\"function\"");
            repeat_field(b, tool, "name", "null");
            repeat_field(b, tool, "description", "null");
            repeat_field(b, tool, "parameters", "null");
            repeat_field(b, tool, "strict", "false");
            buf_char(b, '}');
        } else {
            rewrite_json(b, tool);
        }
    }
    buf_char(b, ']');
}

void responses_repeat(struct buf *b, const struct completion_request *r, const json_t *root) {
    static const char *const labels[] = {"user", "safety_identifier", "prompt_cache_key"};
    const json_t *reasoning = field_get(root, "reasoning");
    repeat_field(b, root, "instructions", "null");
    buf_lit(b, ",\"max_output_tokens\":");
    if (r->max_tokens != INT_MAX)
        buf_int(b, r->max_tokens);
    else
        buf_lit(b, "null");
    if (json_is_integer(field_get(root, "max_tool_calls")))
        repeat_field(b, root, "max_tool_calls", "null");
    repeat_field(b, root, "metadata", "{}");
    buf_lit(b, ",\"model\":");
    json_quote(b, r->base.model, strlen(r->base.model));
    repeat_field(b, root, "parallel_tool_calls", "true");
    repeat_field(b, root, "previous_response_id", "null");
    buf_lit(b, ",\"reasoning\":{\"effort\":");
    const json_t *effort = field_get(reasoning, "effort"), *summary = field_get(reasoning, "summary");
    if (effort)
        rewrite_json(b, effort);
    else
        buf_lit(b, "null");
    buf_lit(b, ",\"summary\":");
    if (summary)
        rewrite_json(b, summary);
    else
        buf_lit(b, "null");
    buf_lit(b, "},\"service_tier\":\"default\",\"temperature\":");
    json_float(b, r->sampling.temperature);
    buf_lit(b, ",\"text\":{\"verbosity\":\"medium\"");
    repeat_field(b, field_get(root, "text"), "format", "{\"type\":\"text\"}");
    buf_char(b, '}');
    repeat_field(b, root, "tool_choice", "\"auto\"");
    repeat_tools(b, field_get(root, "tools"));
    buf_fmt(b, ",\"top_logprobs\":%d,\"top_p\":", r->logprobs > 0 ? r->logprobs : 0);
    json_float(b, r->sampling.top_p);
    buf_lit(b, ",\"truncation\":\"disabled\"");
    buf_str(b, r->background ? ",\"background\":true" : ",\"background\":false");
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++)
        if (json_is_string(field_get(root, labels[i])))
            repeat_field(b, root, labels[i], "null");
}
