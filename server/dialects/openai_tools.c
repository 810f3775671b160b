// Tools of chat completions: which may be called, and calls as responses have them.
#include "openai.h"

#include "api/messages.h"
#include "http/auth.h"

#include <stdio.h>
#include <string.h>

enum { MAX_TOOLS = 1024, MAX_TOOL_NAME = 64 };

// ---- in

bool chat_check_function(const json_t *function, const char *param, struct api_error *e) {
    const json_t *parameters = field_get(function, "parameters");
    const char *name = json_string_value(field_get(function, "name"));
    size_t len = name ? json_string_length(field_get(function, "name")) : 0;
    if (len == 0 || len > MAX_TOOL_NAME ||
        strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-") != len)
        return api_fail(e, 400, name ? "out_of_range" : "missing_required_parameter", param,
                        "The name of a function must have from 1 to %d letters, digits and _.-",
                        MAX_TOOL_NAME);
    if (parameters && !json_is_object(parameters))
        return api_fail(e, 400, "invalid_type", param, "'parameters' must be an object: a JSON schema.");
    const json_t *strict = field_get(function, "strict"), *description = field_get(function, "description");
    if (strict && !json_is_boolean(strict))
        return api_fail(e, 400, "invalid_type", param, "'strict' must be true or false.");
    if (description && !json_is_string(description))
        return api_fail(e, 400, "invalid_type", param, "'description' must be a string.");
    return true;
}

static bool read_tool(const json_t *tool, size_t i, struct api_error *e) {
    const json_t *function = field_get(tool, "function");
    const char *type = json_name(field_get(tool, "type"));
    char param[64];
    snprintf(param, sizeof param, "tools[%zu]", i);
    if (!json_is_object(tool) || !type)
        return api_fail(e, 400, "invalid_type", param, "A tool must be an object with a 'type'.");
    if (strcmp(type, "function") != 0)
        return api_fail(e, 400, "unsupported_parameter", param,
                        "Tools of type '%.40s' are not supported, only functions.", type);
    snprintf(param, sizeof param, "tools[%zu].function", i);
    if (!json_is_object(function))
        return api_fail(e, 400, function ? "invalid_type" : "missing_required_parameter", param,
                        "A tool needs 'function', an object.");
    return chat_check_function(function, param, e);
}

// Refuses a second tool of one name: a call would not tell them apart. seen: the names so far.
static bool check_unique(json_t *seen, const json_t *tool, size_t i, struct api_error *e) {
    const char *name = json_name(field_get(field_get(tool, "function"), "name"));
    char param[32];
    snprintf(param, sizeof param, "tools[%zu]", i);
    if (json_object_get(seen, name))
        return api_fail(e, 400, "invalid_value", param, "There are two tools '%.64s'.", name);
    return json_object_set_new(seen, name, json_true()) == 0 || api_fail_memory(e);
}

static bool read_list(const json_t *tools, struct api_error *e) {
    json_t *seen = json_object();
    bool ok = seen || api_fail_memory(e);
    for (size_t i = 0; i < json_array_size(tools) && ok; i++)
        ok = read_tool(json_array_get(tools, i), i, e) && check_unique(seen, json_array_get(tools, i), i, e);
    json_decref(seen);
    return ok;
}

// The tool of a name, as the list has it. NULL: there is none.
static json_t *find_tool(const json_t *tools, const char *name) {
    for (size_t i = 0; name && i < json_array_size(tools); i++) {
        json_t *tool = json_array_get(tools, i);
        if (strcmp(json_string_value(field_get(field_get(tool, "function"), "name")), name) == 0)
            return tool;
    }
    return NULL;
}

static bool allow(struct completion_request *r, const json_t *tools, const json_t *choice,
                  struct api_error *e) {
    const char *name = json_name(field_get(field_get(choice, "function"), "name"));
    json_t *tool = find_tool(tools, name);
    if (!name)
        return api_fail(e, 400, "unsupported_parameter", "tool_choice",
                        "'tool_choice' must name functions as {\"type\": \"function\", \"function\": "
                        "{\"name\": …}}.");
    if (!tool)
        return api_fail(e, 400, "invalid_value", "tool_choice", "'tools' has no function '%.64s'.", name);
    if (!r->callable)
        r->callable = json_array();
    return json_array_append(r->callable, tool) == 0 || api_fail_memory(e);
}

// {"mode": "auto" or "required", "tools": [as in tool_choice]}: the model sees all tools and calls these alone.
static bool allow_some(struct completion_request *r, const json_t *tools, const json_t *some,
                       struct api_error *e) {
    const char *mode = json_name(field_get(some, "mode"));
    const json_t *list = field_get(some, "tools");
    if (!mode || (strcmp(mode, "auto") != 0 && strcmp(mode, "required") != 0))
        return api_fail(e, 400, "invalid_value", "tool_choice",
                        "The 'mode' of 'allowed_tools' must be \"auto\" or \"required\".");
    if (json_array_size(list) == 0)
        return api_fail(e, 400, "invalid_value", "tool_choice", "'allowed_tools' needs 'tools', a list.");
    if (json_array_size(list) > MAX_TOOLS)
        return api_fail(e, 400, "out_of_range", "tool_choice", "At most %d tools are allowed.", MAX_TOOLS);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!allow(r, tools, json_array_get(list, i), e))
            return false;
    r->must_call = strcmp(mode, "required") == 0;
    return true;
}

// none, auto, required, some of the functions, or the one that is to be called. wanted: whether calls may be
// made at all.
static bool read_choice(struct completion_request *r, const json_t *v, const json_t *tools, bool *wanted,
                        struct api_error *e) {
    const char *word = json_name(v), *type = json_name(field_get(v, "type"));
    *wanted = !(word && strcmp(word, "none") == 0);
    if (!v || !*wanted || (word && strcmp(word, "auto") == 0))
        return true;
    if (!json_is_object(v) && !(word && strcmp(word, "required") == 0))
        return api_fail(
            e, 400, "invalid_type", "tool_choice",
            "'tool_choice' must be \"none\", \"auto\", \"required\" or an object that names functions.");
    if (json_array_size(tools) == 0)
        return api_fail(e, 400, NULL, "tool_choice", "'tool_choice' needs 'tools'.");
    if (type && strcmp(type, "allowed_tools") == 0)
        return allow_some(r, tools, field_get(v, "allowed_tools"), e);
    r->must_call = true;
    if (word)
        return true;
    r->one_call = true;
    return allow(r, tools, v, e);
}

bool chat_read_tools(struct completion_request *r, const struct served_model *m, const json_t *root,
                     struct api_error *e) {
    json_t *tools = json_object_get(root, "tools");
    bool any = json_array_size(tools) > 0, wanted;
    if (tools && !json_is_array(tools) && !json_is_null(tools) && !json_is_false(tools) &&
        !(json_is_object(tools) && json_object_size(tools) == 0))
        return api_fail(e, 400, "invalid_type", "tools", "'tools' must be a list.");
    if (json_array_size(tools) > MAX_TOOLS)
        return api_fail(e, 400, "out_of_range", "tools", "At most %d tools are allowed.", MAX_TOOLS);
    if (!read_list(tools, e) || !read_choice(r, field_get(root, "tool_choice"), tools, &wanted, e))
        return false;
    if (!any || !wanted)
        return true;
    bool known = chat_calls_tools(m);
    if (!known && m->tools_fallback == TOOLS_IGNORED && !r->must_call)
        return true;
    if (!known)
        return api_fail(e, 400, "unsupported_parameter", r->must_call ? "tool_choice" : "tools",
                        "The model's chat template does not know tools, or how it has them called is not "
                        "known: start the "
                        "server with --tool-call-parser, or with --tools-fallback generic.");
    r->tools = json_incref(tools);
    return true;
}

// ---- out

void chat_write_call_id(struct buf *b, const struct response *r, int index, const struct output_part *part,
                        const char *text) {
    chat_write_call_id_as(b, r, index, part, text, "call_");
}

void chat_write_call_id_as(struct buf *b, const struct response *r, int index, const struct output_part *part,
                           const char *text, const char *prefix) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789abcdefgh";
    char of[256], id[32];
    uint8_t hash[SHA256_BYTES];
    if (part->id_len) {
        json_quote(b, text + part->id, part->id_len);
        return;
    }
    int n = snprintf(of, sizeof of, "%s %lld %d %d", r->id, (long long)r->created, index, part->call);
    sha256(of, (size_t)n, hash);
    bool brief = r->request->format->short_ids;
    size_t len = brief ? 9 : 24, at = brief ? 0 : strlen(strcpy(id, prefix));
    for (size_t i = 0; i < len; i++)
        id[at + i] = letters[hash[i] % (sizeof letters - 1)];
    json_quote(b, id, at + len);
}

void chat_write_arguments(struct buf *b, const char *text, size_t len) {
    json_t *object =
        json_depth_ok(text, len, MAX_JSON_DEPTH) ? json_loadb(text, len, JSON_ALLOW_NUL, NULL) : NULL;
    if (json_is_object(object))
        buf_add(b, text, len);
    else
        buf_lit(b, "{}");
    json_decref(object);
}

void chat_write_part(struct buf *b, const struct response *r, int index, const struct output_part *part,
                     const char *text) {
    const char *bytes = text + part->begin;
    switch (part->kind) {
    case PART_CONTENT:
        buf_lit(b, "\"content\":");
        json_quote(b, bytes, part->len);
        break;
    case PART_REASONING: // DeepSeek's name and vLLM's
        buf_lit(b, "\"reasoning_content\":");
        json_quote(b, bytes, part->len);
        buf_lit(b, ",\"reasoning\":");
        json_quote(b, bytes, part->len);
        break;
    case PART_CALL:
        if (r->request->functions) {
            buf_lit(b, "\"function_call\":{\"name\":");
            json_quote(b, bytes, part->len);
            buf_lit(b, ",\"arguments\":\"\"}");
            break;
        }
        buf_fmt(b, "\"tool_calls\":[{\"index\":%d,\"id\":", part->call);
        chat_write_call_id(b, r, index, part, text);
        buf_lit(b, ",\"type\":\"function\",\"function\":{\"name\":");
        json_quote(b, bytes, part->len);
        buf_lit(b, ",\"arguments\":\"\"}}]");
        break;
    case PART_ARGUMENTS:
        if (r->request->functions) {
            buf_lit(b, "\"function_call\":{\"arguments\":");
            json_quote(b, bytes, part->len);
            buf_char(b, '}');
            break;
        }
        buf_fmt(b, "\"tool_calls\":[{\"index\":%d,\"function\":{\"arguments\":", part->call);
        json_quote(b, bytes, part->len);
        buf_lit(b, "}}]");
        break;
    }
}

// All text of a kind.
static void gather(struct buf *out, const struct piece *p, enum part_kind kind) {
    size_t num;
    const char *text;
    const struct output_part *parts = output_parts(p->output, &num, &text);
    buf_clear(out);
    for (size_t i = 0; i < num; i++)
        if (parts[i].kind == kind)
            buf_add(out, text + parts[i].begin, parts[i].len);
}

// A call's name and arguments.
static void write_function(struct buf *b, const struct output_part *parts, size_t i, size_t num,
                           const char *text) {
    buf_lit(b, "{\"name\":");
    json_quote(b, text + parts[i].begin, parts[i].len);
    buf_lit(b, ",\"arguments\":");
    bool has = i + 1 < num && parts[i + 1].kind == PART_ARGUMENTS;
    json_quote(b, has ? text + parts[i + 1].begin : "", has ? parts[i + 1].len : 0);
    buf_char(b, '}');
}

static void write_calls(struct buf *b, const struct response *r, const struct piece *p) {
    size_t num;
    const char *text;
    const struct output_part *parts = output_parts(p->output, &num, &text);
    bool functions = r->request->functions;
    for (size_t i = 0; i < num; i++) {
        if (parts[i].kind != PART_CALL)
            continue;
        if (functions) { // there is one
            buf_lit(b, ",\"function_call\":");
            write_function(b, parts, i, num, text);
            continue;
        }
        buf_str(b, parts[i].call ? "," : ",\"tool_calls\":[");
        buf_lit(b, "{\"id\":");
        chat_write_call_id(b, r, p->index, &parts[i], text);
        buf_lit(b, ",\"type\":\"function\",\"function\":");
        write_function(b, parts, i, num, text);
        buf_char(b, '}');
    }
    if (output_num_calls(p->output) > 0 && !functions)
        buf_char(b, ']');
}

void chat_write_output(struct buf *b, const struct response *r, const struct piece *p) {
    struct buf text = {0};
    gather(&text, p, PART_CONTENT);
    if (text.len || output_num_calls(p->output) == 0)
        json_quote(b, text.data, text.len);
    else
        buf_lit(b, "null");
    gather(&text, p, PART_REASONING);
    if (text.len && !r->request->hides_reasoning) {
        buf_lit(b, ",\"reasoning_content\":");
        json_quote(b, text.data, text.len);
        buf_lit(b, ",\"reasoning\":");
        json_quote(b, text.data, text.len);
    }
    b->failed |= text.failed;
    buf_free(&text);
    write_calls(b, r, p);
}
