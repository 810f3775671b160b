// Tools of /v1/responses as functions of a chat, and back. A tool of a namespace is the function NAMESPACE__NAME; a custom one,
// which takes a text, a function of one string, held to the tool's grammar while it is sampled. Tools that OpenAI's servers
// run are left out, and told.
#include "api/rewrite.h"
#include "responses.h"

#include <stdio.h>
#include <string.h>

bool responses_tool_is_hosted(const char *type) {
    static const char *const types[] = {"web_search",
                                        "web_search_preview",
                                        "web_search_2025_08_26",
                                        "image_generation",
                                        "file_search",
                                        "code_interpreter",
                                        "mcp",
                                        "computer",
                                        "computer_use_preview",
                                        "shell",
                                        "tool_search"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(type, types[i]) == 0)
            return true;
    return false;
}

static bool has_type(const json_t *tool, const char *type) {
    const char *its = json_name(field_get(tool, "type"));
    return its && strcmp(its, type) == 0;
}

// ---- tools that the client knows by their type: the model sees a function of that name (OpenAI's types of items)

static const struct client_tool {
    const char *type, *item, *member; // the member of the item that the arguments are
    const char *description, *parameters;
} client_tools[] = {
    {"local_shell", "local_shell_call", "action",
     "Runs a command on the user's machine: the program and its arguments, without a shell unless it is one.",
     "{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},"
     "\"minItems\":1},\"working_directory\":{\"type\":\"string\"},\"timeout_ms\":{\"type\":\"integer\","
     "\"minimum\":1}},\"required\":[\"command\"],\"additionalProperties\":false}"},
    {"apply_patch", "apply_patch_call", "operation",
     "Creates, updates or deletes one file. `diff` has the lines of a new file, each behind a +, or the "
     "hunks of a "
     "unified diff of "
     "an old one, without line numbers; `delete_file` needs none.",
     "{\"type\":\"object\",\"properties\":{\"type\":{\"enum\":[\"create_file\",\"update_file\",\"delete_"
     "file\"]},"
     "\"path\":{\"type\":\"string\"},\"diff\":{\"type\":\"string\"}},\"required\":[\"type\",\"path\"],"
     "\"additionalProperties\":false}"},
};

static const struct client_tool *client_tool_of(const char *type) {
    for (size_t i = 0; type && i < sizeof client_tools / sizeof *client_tools; i++)
        if (strcmp(type, client_tools[i].type) == 0)
            return &client_tools[i];
    return NULL;
}

// Held to its parameters, so that an item can be made of a call.
static json_t *typed_function(const struct client_tool *t, bool loose) {
    return json_pack("{s:s, s:s, s:o, s:b}", "name", t->type, "description", t->description, "parameters",
                     json_loads(t->parameters, 0, NULL), "strict", !loose);
}

// ---- functions

struct flat_tools {
    json_t *functions, *foreign;
    bool loose; // the model does not mark its calls
};

// The function of a name within a namespace, or NULL. A new reference; NULL: no memory.
static json_t *flat_name(const json_t *name, const char *namespace) {
    return namespace ? json_sprintf("%s__%s", namespace, json_string_value(name))
                     : json_incref((json_t *)(uintptr_t)name);
}

static bool add_function(struct flat_tools *rd, json_t *function, const json_t *tool, const char *namespace,
                         const char *param, struct api_error *e) {
    const struct client_tool *typed = client_tool_of(json_name(field_get(tool, "type")));
    const json_t *name = field_get(typed ? function : tool, "name"), *format = NULL;
    bool custom = has_type(tool, "custom");
    if (!function || json_object_set_new(function, "name", flat_name(name, namespace)) != 0)
        return api_fail_memory(e);
    if (!chat_check_function(function, param, e))
        return false;
    if (custom)
        format = field_get(tool, "format");
    if (custom || typed || namespace) {
        json_t *known =
            json_pack("{s:O, s:s*, s:s*, s:O*, s:O*}", "name", name, "namespace", namespace, "item",
                      custom  ? "custom_tool_call"
                      : typed ? typed->item
                              : NULL,
                      "syntax", field_get(format, "syntax"), "definition", field_get(format, "definition"));
        if (json_object_set_new(rd->foreign, json_name(field_get(function, "name")), known) != 0)
            return api_fail_memory(e);
    }
    json_t *whole = json_pack("{s:s, s:O}", "type", "function", "function", function);
    return json_array_append_new(rd->functions, whole) == 0 || api_fail_memory(e);
}

// A function of one string. Its grammar is told to the model, too.
static json_t *custom_function(const json_t *tool, bool loose, const char *param, struct api_error *e) {
    const json_t *format = field_get(tool, "format"), *definition = field_get(format, "definition"),
                 *description = field_get(tool, "description");
    const char *syntax = json_name(field_get(format, "syntax")), *says = json_string_value(description);
    bool grammar = has_type(format, "grammar"), regex = grammar && syntax && strcmp(syntax, "regex") == 0;
    if (format && !grammar && !has_type(format, "text")) {
        api_fail(e, 400, "unsupported_parameter", param,
                 "The 'format' of a tool must be of type text or grammar.");
        return NULL;
    }
    if (grammar && (!json_is_string(definition) || !(regex || (syntax && strcmp(syntax, "lark") == 0)))) {
        api_fail(e, 400, "invalid_type", param,
                 "A grammar needs 'syntax', lark or regex, and 'definition', a string.");
        return NULL;
    }
    json_t *input = json_pack("{s:s}", "type", "string"),
           *function = json_pack("{s:{s:s, s:{s:O}, s:[s], s:b}, s:b}", "parameters", "type", "object",
                                 "properties", "input", input, "required", "input", "additionalProperties", 0,
                                 "strict", grammar && !loose);
    if (regex)
        json_object_set_new(input, "pattern", json_sprintf("^(?:%s)$", json_string_value(definition)));
    else if (grammar)
        json_object_set_new(input, "description",
                            json_sprintf("Follows this Lark grammar:\n%s", json_string_value(definition)));
    if (says)
        json_object_set(function, "description", (json_t *)(uintptr_t)description);
    json_decref(input);
    return function;
}

// The members of a function beside its type.
static json_t *plain_function(const json_t *tool) {
    json_t *function = json_object(), *v;
    const char *key;
    json_object_foreach((json_t *)(uintptr_t)tool, key, v) {
        if (strcmp(key, "type") != 0 && !json_is_null(v))
            json_object_set(function, key, v);
    }
    return function;
}

static bool read_tool(struct flat_tools *rd, const json_t *tool, const char *namespace, const char *param,
                      struct api_error *e);

static bool read_namespace(struct flat_tools *rd, const json_t *tool, const char *param,
                           struct api_error *e) {
    const json_t *tools = field_get(tool, "tools");
    const char *name = json_name(field_get(tool, "name"));
    if (!name || !json_is_array(tools))
        return api_fail(e, 400, "invalid_type", param, "A namespace needs 'name', and 'tools', a list.");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        char where[64];
        snprintf(where, sizeof where, "%s.tools[%zu]", param, i);
        if (!read_tool(rd, json_array_get(tools, i), name, where, e))
            return false;
    }
    return true;
}

static bool read_tool(struct flat_tools *rd, const json_t *tool, const char *namespace, const char *param,
                      struct api_error *e) {
    const char *type = json_name(field_get(tool, "type"));
    if (!json_is_object(tool) || !type)
        return api_fail(e, 400, "invalid_type", param, "A tool must be an object with a 'type'.");
    if (responses_tool_is_hosted(type))
        return true;
    if (strcmp(type, "namespace") == 0 && !namespace)
        return read_namespace(rd, tool, param, e);
    const struct client_tool *typed = client_tool_of(type);
    bool custom = strcmp(type, "custom") == 0;
    if (!custom && !typed && strcmp(type, "function") != 0)
        return api_fail(e, 400, "unsupported_parameter", param, "Tools of type '%.40s' are not supported.",
                        type);
    if (!typed && !json_name(field_get(tool, "name")))
        return api_fail(e, 400, "missing_required_parameter", param, "A tool needs 'name', a string.");
    json_t *function = custom  ? custom_function(tool, rd->loose, param, e)
                       : typed ? typed_function(typed, rd->loose)
                               : plain_function(tool);
    bool ok = !e->status && add_function(rd, function, tool, namespace, param, e);
    json_decref(function);
    return ok;
}

json_t *responses_read_tools(const json_t *tools, const struct served_model *m, json_t **foreign,
                             struct api_error *e) {
    struct flat_tools rd = {json_array(), json_object(), m->format && m->format->bare};
    bool ok = !tools || json_is_array(tools) ||
              api_fail(e, 400, "invalid_type", "tools", "'tools' must be a list.");
    for (size_t i = 0; ok && i < json_array_size(tools); i++) {
        char param[32];
        snprintf(param, sizeof param, "tools[%zu]", i);
        ok = read_tool(&rd, json_array_get(tools, i), NULL, param, e);
    }
    *foreign = rd.foreign;
    if (ok && rd.functions && rd.foreign)
        return rd.functions;
    json_decref(rd.functions);
    api_fail_memory(e); // unless there is another reason
    return NULL;
}

static bool any_grammar(const json_t *tools) {
    bool any = false;
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        any |= has_type(field_get(tool, "format"), "grammar") || any_grammar(field_get(tool, "tools"));
    }
    return any;
}

bool responses_grammar_is_loose(const struct served_model *m, const json_t *root) {
    const json_t *choice = field_get(root, "tool_choice");
    const char *word = json_name(choice);
    bool forced = json_is_object(choice) || (word && strcmp(word, "auto") != 0);
    return m->format && m->format->bare && !forced && any_grammar(field_get(root, "tools"));
}

// ---- the choice

// A tool has its name beside its type: as chat completions have it. NULL: no memory.
static json_t *chat_choice(const json_t *tool) {
    const json_t *name = field_get(tool, "name");
    const struct client_tool *typed = client_tool_of(json_name(field_get(tool, "type")));
    if (typed)
        return json_pack("{s:s, s:{s:s}}", "type", "function", "function", "name", typed->type);
    if (!json_name(name) || !(has_type(tool, "function") || has_type(tool, "custom")))
        return json_deep_copy(tool);
    return json_pack("{s:s, s:{s:o}}", "type", "function", "function", "name",
                     flat_name(name, json_name(field_get(tool, "namespace"))));
}

bool responses_read_choice(json_t *chat, struct api_error *e) {
    const json_t *v = field_get(chat, "tool_choice"), *list = field_get(v, "tools");
    if (has_type(v, "function") || has_type(v, "custom") || client_tool_of(json_name(field_get(v, "type"))))
        return rewrite_set(chat, "tool_choice", chat_choice(v), e);
    if (!has_type(v, "allowed_tools"))
        return true;
    json_t *some = json_array();
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *tool = json_array_get(list, i);
        const char *type = json_name(field_get(tool, "type"));
        if (!type || !responses_tool_is_hosted(type))
            json_array_append_new(some, chat_choice(tool));
    }
    return rewrite_set(chat, "tool_choice",
                       json_pack("{s:s, s:{s:O*, s:o}}", "type", "allowed_tools", "allowed_tools", "mode",
                                 field_get(v, "mode"), "tools", some),
                       e);
}

// ---- calls

static const struct client_tool *client_tool_of_item(const char *item) {
    for (size_t i = 0; item && i < sizeof client_tools / sizeof *client_tools; i++)
        if (strcmp(item, client_tools[i].item) == 0)
            return &client_tools[i];
    return NULL;
}

const char *responses_call_member(const char *type) {
    const struct client_tool *typed = client_tool_of_item(type);
    return typed                                   ? typed->member
           : strcmp(type, "custom_tool_call") == 0 ? "input"
           : strcmp(type, "function_call") == 0    ? "arguments"
                                                   : NULL;
}

json_t *responses_call(const json_t *item, struct api_error *e) {
    const char *type = json_name(field_get(item, "type")), *member = responses_call_member(type);
    const struct client_tool *typed = client_tool_of_item(type);
    const json_t *id = field_get(item, "call_id"), *value = field_get(item, member);
    json_t *name = typed ? json_string(typed->type)
                         : flat_name(field_get(item, "name"), json_name(field_get(item, "namespace"))),
           *arguments;
    if (typed) {
        arguments = json_copy((json_t *)(uintptr_t)value);
        if (has_type(value, "exec")) // of all shells' calls
            json_object_del(arguments, "type");
        if (json_object_size(field_get(value, "env")) == 0)
            json_object_del(arguments, "env");
    } else {
        arguments = strcmp(member, "input") == 0 ? json_pack("{s:O}", "input", value)
                                                 : json_incref((json_t *)(uintptr_t)value);
    }
    json_t *call = json_pack("{s:O, s:s, s:{s:o, s:o}}", "id", id, "type", "function", "function", "name",
                             name, "arguments", arguments);
    if (!call)
        api_fail_memory(e);
    return call;
}

void responses_write_typed(struct buf *b, const char *item, const struct buf *arguments) {
    const struct client_tool *typed = client_tool_of_item(item);
    json_t *object = json_loadb(arguments->data ? arguments->data : "", arguments->len, JSON_ALLOW_NUL, NULL),
           *whole;
    const json_t *command = field_get(object, "command");
    if (strcmp(typed->member, "action") == 0) {
        whole = json_pack("{s:s, s:o, s:{}}", "type", "exec", "command",
                          json_is_array(command) ? json_incref((json_t *)(uintptr_t)command) : json_array(),
                          "env");
        json_object_del(object, "command");
    } else {
        const char *kind = json_name(field_get(object, "type"));
        whole = json_pack("{s:s, s:s}", "type", "update_file", "path", "");
        if (!kind || strcmp(kind, "delete_file") != 0)
            json_object_set_new(whole, "diff", json_string(""));
        else
            json_object_del(object, "diff");
    }
    if (object)
        json_object_update(whole, object);
    buf_fmt(b, ",\"%s\":", typed->member);
    rewrite_json(b, whole);
    json_decref(whole);
    json_decref(object);
}

void responses_custom_input(struct buf *arguments) {
    enum { MAX_CUT = 12 }; // bytes of an escape, or of a pair of them, that has not ended
    json_t *object = json_loadb(arguments->data ? arguments->data : "", arguments->len, JSON_ALLOW_NUL, NULL);
    for (size_t cut = 0; !object && cut < 2 * MAX_CUT && cut / 2 < arguments->len; cut++) {
        struct buf ended = {0};
        buf_add(&ended, arguments->data, arguments->len - cut / 2);
        buf_str(&ended, cut % 2 ? "}" : "\"}");
        object = json_loadb(ended.data ? ended.data : "", ended.len, JSON_ALLOW_NUL, NULL);
        buf_free(&ended);
    }
    const json_t *input = json_object_get(object, "input");
    if (json_is_string(input)) {
        buf_clear(arguments);
        buf_add(arguments, json_string_value(input), json_string_length(input));
    }
    json_decref(object);
}
