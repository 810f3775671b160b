// What the rows of field_table.c mean for a body.
#include "field_table.h"

#include "fields.h"
#include "messages.h"
#include "rewrite.h"

#include <stdio.h>
#include <string.h>

bool fields_refuse(const json_t *root, unsigned where, struct api_error *e) {
    for (size_t i = 0; i < num_field_rules; i++) {
        const struct field_rule *rule = &field_rules[i];
        bool here = rule->fate == FIELD_REFUSED && (rule->where & where);
        const json_t *v = here ? field_get(root, rule->name) : NULL;
        if (v && !field_rule_has(rule, v))
            return api_fail(e, 400, "unsupported_parameter", rule->name,
                            "'%s' is not supported by this version of the server.", rule->name);
    }
    return true;
}

bool tool_is_hosted(const char *type) {
    static const char *const types[] = {"web_search",
                                        "web_search_preview",
                                        "web_search_2025_08_26",
                                        "image_generation",
                                        "file_search",
                                        "code_interpreter",
                                        "mcp",
                                        "computer",
                                        "computer_use_preview",
                                        "local_shell",
                                        "shell",
                                        "apply_patch",
                                        "tool_search"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(type, types[i]) == 0)
            return true;
    return false;
}

bool anthropic_tool_is_hosted(const char *type) {
    static const char *const begins[] = {"web_search_", "web_fetch_", "code_execution_",
                                         "advisor_",    "computer_",  "tool_search_tool_"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(type, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}

// ---- names that have no effect

bool ignored_add(char *list, const char *in, const char *name) {
    char one[MAX_IGNORED_NAME + 1];
    size_t used = strlen(list), len = (size_t)snprintf(one, sizeof one, "%s%s", in, *name ? name : "?");
    if (len >= sizeof one)
        len = sizeof one - 1;
    for (size_t i = 0; i < len; i++)
        if (one[i] <= ' ' || one[i] >= 0x7f || one[i] == ',')
            one[i] = '?';
    for (const char *at = list; (at = strstr(at, one)); at += len)
        if ((at == list || at[-1] == ' ') && (at[len] == ',' || !at[len]))
            return true;
    if (used >= 3 && strcmp(list + used - 3, "...") == 0)
        return false;
    // Always room for what says that more would follow.
    bool fits = used + len + sizeof ", " + sizeof ", ..." <= IGNORED_SIZE;
    snprintf(list + used, IGNORED_SIZE - used, "%s%s", used ? ", " : "", fits ? one : "...");
    return fits;
}

void ignored_merge(char *list, const char *other) {
    char name[MAX_IGNORED_NAME + 1];
    for (size_t n; *other && strcmp(other, "...") != 0; other += n + strspn(other + n, ", ")) {
        n = strcspn(other, ",");
        snprintf(name, sizeof name, "%.*s", (int)n, other);
        ignored_add(list, "", name);
    }
}

// Whether nothing of a variable of the template's is lost.
static bool is_rendered(const struct served_model *m, const char *name, const json_t *value) {
    return chat_template_uses(m, name) || (json_is_array(value) && json_array_size(value) == 0);
}

// Adds the name of an effort of reasoning that the template has no variable for.
static bool add_effort(char *list, const struct served_model *m, const json_t *effort, const char *name) {
    const char *word = json_name(effort);
    return !word || strcmp(word, "none") == 0 || chat_effort_variable(m) || ignored_add(list, "", name);
}

// Adds the names in object that have no effect. False: the list is full.
static bool add_ignored(char *list, const json_t *object, unsigned where, const char *in,
                        const struct served_model *m) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        if (json_is_null(value))
            continue;
        const struct field_rule *rule = field_rule_find(key, where);
        bool given = where == OPENAI_MESSAGE
                         ? chat_template_names(m, key) // to the template
                         : rule && rule->fate == FIELD_TEMPLATE && is_rendered(m, key, value);
        if (!given && (!rule || (rule->fate == FIELD_TEMPLATE && !rule->values)) &&
            !ignored_add(list, in, key))
            return false;
    }
    return true;
}

static void find_ignored_blocks(char *list, const struct served_model *m, const json_t *root) {
    const json_t *system = json_object_get(root, "system"), *tools = json_object_get(root, "tools"),
                 *messages = json_object_get(root, "messages");
    const json_t *effort = json_object_get(json_object_get(root, "output_config"), "effort");
    effort = effort && strcmp(json_name(effort) ? json_name(effort) : "", "high") == 0
                 ? NULL
                 : effort; // the default
    const char *kind = json_name(json_object_get(json_object_get(root, "thinking"), "type"));
    bool room =
        add_ignored(list, root, ANTHROPIC_BODY, "", m) && add_effort(list, m, effort, "output_config.effort");
    if (room && kind && strcmp(kind, "enabled") == 0 && !rewrite_can_reason(m))
        room = ignored_add(list, "", "thinking");
    for (size_t i = 0; i < json_array_size(system) && room; i++)
        room = add_ignored(list, json_array_get(system, i), ANTHROPIC_BLOCK, "system[].", m);
    if (room && field_get(json_object_get(root, "output_config"), "task_budget"))
        room = ignored_add(list, "output_config.", "task_budget");
    for (size_t i = 0; i < json_array_size(tools) && room; i++) {
        const json_t *tool = json_array_get(tools, i);
        const char *type = json_name(json_object_get(tool, "type"));
        room = type && anthropic_tool_is_hosted(type)
                   ? ignored_add(list, "tools.", type)
                   : add_ignored(list, tool, ANTHROPIC_TOOL, "tools[].", m);
    }
    for (size_t i = 0; i < json_array_size(messages) && room; i++) {
        const json_t *message = json_array_get(messages, i), *blocks = json_object_get(message, "content");
        room = add_ignored(list, message, ANTHROPIC_MESSAGE, "messages[].", m);
        for (size_t k = 0; k < json_array_size(blocks) && room; k++)
            room = add_ignored(list, json_array_get(blocks, k), ANTHROPIC_BLOCK, "messages[].content[].", m);
    }
}

// Adds a context longer than the server's, and a penalty of the last tokens alone: ours counts all.
static bool add_limits(char *list, const struct served_model *m, const json_t *options) {
    const json_t *context = json_object_get(options, "num_ctx"),
                 *last = json_object_get(options, "repeat_last_n"),
                 *penalty = json_object_get(options, "repeat_penalty");
    return (json_integer_value(context) <= m->max_model_len || ignored_add(list, "options.", "num_ctx")) &&
           (json_integer_value(last) <= 0 || !json_is_number(penalty) || json_number_value(penalty) == 1 ||
            ignored_add(list, "options.", "repeat_last_n"));
}

static void find_ignored_options(char *list, const struct served_model *m, const json_t *root,
                                 unsigned where) {
    const json_t *messages = where & OLLAMA_CHAT ? json_object_get(root, "messages") : NULL,
                 *options = where & OLLAMA_EMBED ? NULL : json_object_get(root, "options");
    bool room = add_ignored(list, root, where, "", m) &&
                add_effort(list, m, json_object_get(root, "think"), "think") &&
                add_ignored(list, options, OLLAMA_OPTIONS, "options.", m) && add_limits(list, m, options);
    for (size_t i = 0; i < json_array_size(messages) && room; i++)
        room = add_ignored(list, json_array_get(messages, i), OLLAMA_MESSAGE, "messages[].", m);
}

// What a response is asked for besides, and is not given.
static bool add_ignored_wishes(char *list, const json_t *root, const struct served_model *m) {
    const char *verbosity = json_name(json_object_get(json_object_get(root, "text"), "verbosity"));
    const json_t *tools = json_object_get(root, "tools");
    bool room = true;
    for (size_t i = 0; i < json_array_size(tools) && room; i++) {
        const char *type = json_name(json_object_get(json_array_get(tools, i), "type"));
        room = !type || !tool_is_hosted(type) || ignored_add(list, "tools.", type);
    }
    if (room && verbosity && strcmp(verbosity, "medium") != 0)
        room = ignored_add(list, "", "text.verbosity");
    if (room && json_is_true(json_object_get(root, "store")) && !m->store)
        room = ignored_add(list, "", "store");
    return room;
}

// Those of the items of a response's input, with what else is within objects.
static void add_ignored_items(char *list, const json_t *root, const struct served_model *m) {
    static const char *const in[] = {"content", "output"};
    const json_t *items = json_object_get(root, "input"), *reasoning = json_object_get(root, "reasoning");
    bool room = add_ignored(list, reasoning, RESPONSES_OPTION, "reasoning.", m) &&
                add_effort(list, m, json_object_get(reasoning, "effort"), "reasoning.effort") &&
                add_ignored_wishes(list, root, m) &&
                add_ignored(list, json_object_get(root, "text"), RESPONSES_OPTION, "text.", m);
    for (size_t i = 0; i < json_array_size(items) && room; i++) {
        const json_t *item = json_array_get(items, i);
        room = add_ignored(list, item, RESPONSES_ITEM, "input[].", m);
        for (size_t n = 0; n < sizeof in / sizeof *in && room; n++) {
            const json_t *parts = json_object_get(item, in[n]);
            char where[24];
            snprintf(where, sizeof where, "input[].%s[].", in[n]);
            for (size_t k = 0; k < json_array_size(parts) && room; k++)
                room = add_ignored(list, json_array_get(parts, k), RESPONSES_PART, where, m);
        }
    }
}

static void find_ignored(char *list, const struct served_model *m, const json_t *root, unsigned where) {
    if (where & ANTHROPIC_BODY) {
        find_ignored_blocks(list, m, root);
        return;
    }
    if (where & (OLLAMA_CHAT | OLLAMA_GENERATE | OLLAMA_EMBED)) {
        find_ignored_options(list, m, root, where);
        return;
    }
    bool chat = where & (OPENAI_CHAT | TEMPLATE_BODY), tokenize = where & TOKENIZE_BODY;
    const json_t *options = chat || (where & (OPENAI_COMPLETIONS | OPENAI_RESPONSES))
                                ? json_object_get(root, "stream_options")
                                : NULL;
    bool room = add_ignored(list, root, where, "", m) &&
                add_ignored(list, options, OPENAI_STREAM_OPTIONS, "stream_options.", m) &&
                (!chat || add_effort(list, m, json_object_get(root, "reasoning_effort"), "reasoning_effort"));
    if (room && (where & OPENAI_RESPONSES))
        add_ignored_items(list, root, m);
    const json_t *messages = chat || tokenize ? json_object_get(root, "messages") : NULL;
    for (size_t i = 0; i < json_array_size(messages) && room; i++) {
        const json_t *message = json_array_get(messages, i), *parts = json_object_get(message, "content");
        room = add_ignored(list, message, OPENAI_MESSAGE, "messages[].", m);
        for (size_t k = 0; k < json_array_size(parts) && room; k++)
            room = add_ignored(list, json_array_get(parts, k), OPENAI_PART, "messages[].content[].", m);
    }
}

bool fields_tell_ignored(char *list, const struct served_model *m, const json_t *root, unsigned where,
                         bool ok, struct api_error *e) {
    char name[MAX_IGNORED_NAME + 1];
    *list = '\0';
    find_ignored(list, m, root, where);
    if (!ok || !*list || !m->strict_fields)
        return ok;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(list, ","), list);
    return api_fail(e, 400, "unknown_parameter", name,
                    "'%s' has no effect, and this server refuses such fields (--strict-fields).", name);
}
