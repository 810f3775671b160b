// Tools of the Messages API as functions of a chat: the client's own, and those whose schema Anthropic publishes and the client
// runs. Tools that Anthropic's servers run are left out, and told.
#include "anthropic.h"

#include "api/rewrite.h"
#include "openai.h"

#include <stdio.h>
#include <string.h>

// By how their types begin; the date behind says which model knows them (Anthropic's tool reference).
static const struct typed_tool {
    const char *type, *description;
    const char *strings, *integers,
        *commands; // names of members, and the values of `command`, with blanks between
    const char *required[2];
} typed_tools[] = {
    {"bash_", "Runs `command` in a persistent bash session; `restart` true begins a new one.",
     .strings = "command restart"},
    {"text_editor_",
     "Views and edits files: `view` shows a file (lines from and to `view_range`) or a folder; `create` "
     "writes `file_text`; "
     "`str_replace` replaces `old_str`, which must occur once; `insert` puts `insert_text` behind "
     "`insert_line`.",
     .strings = "path file_text old_str new_str insert_text", .integers = "insert_line",
     .commands = "view create str_replace insert", .required = {"command", "path"}},
    {"memory_",
     "Keeps files below /memories between conversations: `view` shows a file or the folder; `create` writes "
     "`file_text`; "
     "`str_replace` replaces `old_str`; `insert` puts `insert_text` at `insert_line`; `delete` removes "
     "`path`; `rename` moves "
     "`old_path` to `new_path`.",
     .strings = "path file_text old_str new_str insert_text old_path new_path", .integers = "insert_line",
     .commands = "view create str_replace insert delete rename", .required = {"command"}},
};

// Adds a member of a type to `properties` for each of the names.
static void add_properties(json_t *properties, const char *names, const char *type) {
    for (size_t n; names && *names; names += n + (names[n] == ' ')) {
        char name[24];
        n = strcspn(names, " ");
        snprintf(name, sizeof name, "%.*s", (int)n, names);
        bool flag = strcmp(name, "restart") == 0;
        json_object_set_new(properties, name, json_pack("{s:s}", "type", flag ? "boolean" : type));
    }
}

// The schema of a tool's input. NULL: no memory.
static json_t *schema_of(const struct typed_tool *t) {
    json_t *properties = json_object(), *commands = json_array(), *required = json_array(),
           *words = json_object();
    const char *key;
    json_t *v;
    add_properties(words, t->commands, "string");
    json_object_foreach(words, key, v) { json_array_append_new(commands, json_string(key)); }
    if (t->commands)
        json_object_set_new(properties, "command",
                            json_pack("{s:s, s:O}", "type", "string", "enum", commands));
    add_properties(properties, t->strings, "string");
    add_properties(properties, t->integers, "integer");
    if (t->integers)
        json_object_set_new(properties, "view_range",
                            json_pack("{s:s, s:{s:s}}", "type", "array", "items", "type", "integer"));
    for (size_t i = 0; i < 2 && t->required[i]; i++)
        json_array_append_new(required, json_string(t->required[i]));
    json_decref(words);
    json_decref(commands);
    return json_pack("{s:s, s:o, s:o}", "type", "object", "properties", properties, "required", required);
}

bool anthropic_tool_is_hosted(const char *type) {
    static const char *const begins[] = {"web_search_", "web_fetch_",        "code_execution_", "advisor_",
                                         "computer_",   "tool_search_tool_", "mcp_toolset"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(type, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}

static const struct typed_tool *find_typed(const char *type) {
    for (size_t i = 0; i < sizeof typed_tools / sizeof *typed_tools; i++)
        if (strncmp(type, typed_tools[i].type, strlen(typed_tools[i].type)) == 0)
            return &typed_tools[i];
    return NULL;
}

struct tool_reader {
    json_t *functions;
    const json_t *referenced; // names of deferred tools that a search of the client has found
    bool all;                 // no search can find any, so none is deferred
};

// Whether the tool stays out of the prompt until the client's search gives a reference to it.
static bool is_deferred(const struct tool_reader *rd, const json_t *tool) {
    const char *name = json_name(field_get(tool, "name"));
    return json_is_true(field_get(tool, "defer_loading")) && !rd->all &&
           !(name && json_object_get(rd->referenced, name));
}

static bool rewrite_tool(struct tool_reader *rd, const json_t *tool, const char *where, struct api_error *e) {
    const json_t *kind = field_get(tool, "type"), *callers = field_get(tool, "allowed_callers");
    const char *type = kind ? json_name(kind) : "custom";
    if (!json_is_object(tool) || !type)
        return api_fail(e, 400, "invalid_type", where, "A tool must be an object, its 'type' a string.");
    const struct typed_tool *typed = find_typed(type);
    if (anthropic_tool_is_hosted(type) || is_deferred(rd, tool))
        return true;
    if (!typed && strcmp(type, "custom") != 0)
        return api_fail(e, 400, "unsupported_parameter", where,
                        "Tools of type '%.60s' are not supported, only those with an 'input_schema'.", type);
    json_t *schema = typed ? schema_of(typed) : json_incref(json_object_get(tool, "input_schema"));
    bool ok =
        json_is_object(schema) ||
        api_fail(e, 400, schema && !json_is_null(schema) ? "invalid_type" : "missing_required_parameter",
                 where, "A tool needs 'input_schema', an object.");
    if (ok && callers &&
        (json_array_size(callers) != 1 || !json_name(json_array_get(callers, 0)) ||
         strcmp(json_name(json_array_get(callers, 0)), "direct") != 0))
        ok = api_fail(e, 400, "unsupported_parameter", where, "'allowed_callers' may only be [\"direct\"].");
    json_t *function =
        ok ? json_pack("{s:O, s:s*}", "parameters", schema, "description", typed ? typed->description : NULL)
           : NULL;
    static const char *const names[] = {"name", "description", "strict"};
    ok = ok && (function || api_fail_memory(e));
    for (size_t i = 0; i < sizeof names / sizeof *names && ok; i++)
        ok = rewrite_copy(function, names[i], tool, names[i], e);
    ok = ok &&
         rewrite_append(rd->functions, json_pack("{s:s,s:O}", "type", "function", "function", function), e);
    json_decref(function);
    json_decref(schema);
    return ok;
}

bool anthropic_rewrite_tools(json_t *chat, const json_t *tools, const json_t *referenced,
                             struct api_error *e) {
    if (!tools)
        return true;
    if (!json_is_array(tools))
        return api_fail(e, 400, "invalid_type", "tools", "'tools' must be a list.");
    struct tool_reader rd = {.functions = json_array(), .referenced = referenced};
    if (!rewrite_set(chat, "tools", rd.functions, e))
        return false;
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const char *type = json_name(field_get(json_array_get(tools, i), "type"));
        rd.all |= type && strncmp(type, "tool_search_tool_", strlen("tool_search_tool_")) == 0;
    }
    for (size_t i = 0; i < json_array_size(tools); i++) {
        char where[32];
        snprintf(where, sizeof where, "tools[%zu]", i);
        if (!rewrite_tool(&rd, json_array_get(tools, i), where, e))
            return false;
    }
    return true;
}

bool anthropic_rewrite_choice(json_t *chat, const json_t *choice, struct api_error *e) {
    const char *type = json_name(field_get(choice, "type"));
    const json_t *name = field_get(choice, "name"), *one = field_get(choice, "disable_parallel_tool_use");
    if (!choice)
        return true;
    if (one && !json_is_boolean(one))
        return api_fail(e, 400, "invalid_type", "tool_choice",
                        "'disable_parallel_tool_use' must be true or false.");
    if (json_is_true(one) && !rewrite_set(chat, "parallel_tool_calls", json_false(), e))
        return false;
    if (type && (strcmp(type, "auto") == 0 || strcmp(type, "none") == 0))
        return rewrite_set(chat, "tool_choice", json_string(type), e);
    if (type && strcmp(type, "any") == 0)
        return rewrite_set(chat, "tool_choice", json_string("required"), e);
    if (type && strcmp(type, "tool") == 0 && json_is_string(name))
        return rewrite_set(chat, "tool_choice",
                           json_pack("{s:s,s:{s:O}}", "type", "function", "function", "name", name), e);
    return api_fail(
        e, 400, "invalid_type", "tool_choice",
        "'tool_choice' must be {\"type\": \"auto\"}, \"none\", \"any\", or \"tool\" with a 'name'.");
}
