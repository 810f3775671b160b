// The rules of names, applied to a body.
#include "field_table.h"

#include "messages.h"
#include "sampling_fields.h"

#include <stdio.h>
#include <string.h>

bool fields_refuse(const json_t *root, const struct field_names *names, struct api_error *e) {
    for (const struct field_rule *rule = names->rules; rule->name; rule++) {
        bool here = rule->fate == FIELD_REFUSED && (rule->where & names->where);
        const json_t *v = here ? field_get(root, rule->name) : NULL;
        if (v && !field_rule_has(rule, v))
            return api_fail(e, 400, "unsupported_parameter", rule->name,
                            "'%s' is not supported by this version of the server.", rule->name);
    }
    return true;
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

bool fields_add_ignored(char *list, const struct served_model *m, const json_t *object,
                        const struct field_rule *rules, unsigned where, const char *in) {
    bool message = rules == field_rules && where == OPENAI_MESSAGE;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        if (json_is_null(value))
            continue;
        const struct field_rule *rule = field_rule_find(rules, key, where);
        bool given = message ? chat_template_names(m, key) // to the template
                             : rule && rule->fate == FIELD_TEMPLATE && is_rendered(m, key, value);
        if (!given && (!rule || (rule->fate == FIELD_TEMPLATE && !rule->values)) &&
            !ignored_add(list, in, key))
            return false;
    }
    return true;
}

bool fields_add_effort(char *list, const struct served_model *m, const json_t *effort, const char *name) {
    const char *word = json_name(effort);
    return !word || strcmp(word, "none") == 0 || chat_effort_variable(m) || ignored_add(list, "", name);
}

bool fields_add_tools(char *list, const struct served_model *m, const json_t *root) {
    bool left_out = m->tools_fallback == TOOLS_IGNORED && !chat_calls_tools(m);
    return !left_out || json_array_size(json_object_get(root, "tools")) == 0 ||
           ignored_add(list, "", "tools");
}

void fields_inside_options(char *list, const struct served_model *m, const json_t *root) {
    if (fields_add_ignored(list, m, json_object_get(root, "stream_options"), field_rules,
                           OPENAI_STREAM_OPTIONS, "stream_options.") &&
        !sampling_knows_stages(json_object_get(root, "samplers")))
        ignored_add(list, "", "samplers");
}

void fields_inside_messages(char *list, const struct served_model *m, const json_t *root) {
    const json_t *messages = json_object_get(root, "messages");
    bool room = true;
    for (size_t i = 0; i < json_array_size(messages) && room; i++) {
        const json_t *message = json_array_get(messages, i), *parts = json_object_get(message, "content");
        room = fields_add_ignored(list, m, message, field_rules, OPENAI_MESSAGE, "messages[].");
        for (size_t k = 0; k < json_array_size(parts) && room; k++)
            room = fields_add_ignored(list, m, json_array_get(parts, k), field_rules, OPENAI_PART,
                                      "messages[].content[].");
    }
}

void fields_inside_chat(char *list, const struct served_model *m, const json_t *root) {
    fields_add_effort(list, m, json_object_get(root, "reasoning_effort"), "reasoning_effort");
    fields_add_tools(list, m, root);
    fields_inside_options(list, m, root);
    fields_inside_messages(list, m, root);
}

bool fields_tell_ignored(char *list, const struct served_model *m, const json_t *root,
                         const struct field_names *names, bool ok, struct api_error *e) {
    char name[MAX_IGNORED_NAME + 1];
    *list = '\0';
    if (fields_add_ignored(list, m, root, names->rules, names->where, "") && names->inside)
        names->inside(list, m, root);
    if (!ok || !*list || !m->strict_fields)
        return ok;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(list, ","), list);
    return api_fail(e, 400, "unknown_parameter", name,
                    "'%s' has no effect, and this server refuses such fields (--strict-fields).", name);
}
