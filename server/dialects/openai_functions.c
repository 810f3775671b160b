// Functions of chat completions, as they were called before tools: a body that has them is put into the words of tools.
#include "openai.h"

#include <stdio.h>
#include <string.h>

// A message in the words of tools, a new reference. A call gets an id, which the message of its function's output has, too.
static json_t *message_with_tools(json_t *message, size_t i, char id[32]) {
    const char *role = json_name(field_get(message, "role"));
    const json_t *call = field_get(message, "function_call");
    bool output = role && strcmp(role, "function") == 0;
    if (!output && !json_is_object(call))
        return json_incref(message);
    json_t *copy = json_copy(message);
    if (output) {
        json_object_set_new(copy, "role", json_string("tool"));
        json_object_set_new(copy, "tool_call_id", json_string(id));
        return copy;
    }
    snprintf(id, 32, "call_%zu", i);
    json_object_del(copy, "function_call");
    json_object_set_new(copy, "tool_calls",
                        json_pack("[{s:s, s:s, s:O}]", "id", id, "type", "function", "function", call));
    return copy;
}

static bool read_messages(json_t *root, struct api_error *e) {
    const json_t *messages = field_get(root, "messages");
    json_t *list = json_array();
    char id[32] = "call_0";
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < json_array_size(messages); i++)
        ok = json_array_append_new(list, message_with_tools(json_array_get(messages, i), i, id)) == 0;
    if (!ok || !json_is_array(messages)) {
        json_decref(list);
        return ok || api_fail_memory(e);
    }
    return json_object_set_new(root, "messages", list) == 0 || api_fail_memory(e);
}

bool chat_read_functions(json_t *root, bool *any, struct api_error *e) {
    json_t *functions = json_object_get(root, "functions"), *choice = json_object_get(root, "function_call"),
           *tools;
    *any = json_array_size(functions) > 0;
    if (functions && !json_is_null(functions) && !json_is_array(functions))
        return api_fail(e, 400, "invalid_type", "functions", "'functions' must be a list.");
    if (*any && json_array_size(field_get(root, "tools")) > 0)
        return api_fail(e, 400, NULL, "functions", "'functions' and 'tools' exclude each other.");
    if (choice && !json_is_null(choice) && !json_is_string(choice) &&
        !json_is_string(field_get(choice, "name")))
        return api_fail(e, 400, "invalid_type", "function_call",
                        "'function_call' must be \"none\", \"auto\" or an object that names a function.");
    if (!*any)
        return !json_is_object(choice) ||
               api_fail(e, 400, NULL, "function_call", "'function_call' needs 'functions'.");
    if (!(tools = json_array()))
        return api_fail_memory(e);
    bool ok = true;
    for (size_t i = 0; ok && i < json_array_size(functions); i++)
        ok = json_array_append_new(tools, json_pack("{s:s, s:O}", "type", "function", "function",
                                                    json_array_get(functions, i))) == 0;
    ok = json_object_set_new(root, "tools", tools) == 0 && ok;
    if (json_is_string(choice))
        ok = json_object_set(root, "tool_choice", choice) == 0 && ok;
    else if (json_is_object(choice))
        ok = json_object_set_new(root, "tool_choice",
                                 json_pack("{s:s, s:O}", "type", "function", "function", choice)) == 0 &&
             ok;
    return (ok || api_fail_memory(e)) && read_messages(root, e);
}

void chat_name_functions(struct api_error *e) {
    char rest[sizeof e->param];
    int index = 0, end = 0;
    if (sscanf(e->param, "tools[%d]%n", &index, &end) == 1 && end > 0)
        snprintf(rest, sizeof rest, "functions[%d]", index);
    else if (strcmp(e->param, "tools") == 0)
        snprintf(rest, sizeof rest, "functions");
    else if (strcmp(e->param, "tool_choice") == 0)
        snprintf(rest, sizeof rest, "function_call");
    else
        return;
    memcpy(e->param, rest, sizeof rest);
}
