#include "messages.h"

#include "field_table.h"
#include "jinja/chat.h"
#include "log.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

// ---- messages

static void set_member(struct chat_arena *a, struct chat_value *dict, const char *key, struct chat_value *v) {
    chat_dict_set(a, dict, key, strlen(key), v);
}

static struct chat_value *name_of(struct chat_arena *a, const struct tokenizer *t, token_id id) {
    size_t len = 0;
    const char *name = id >= 0 ? tokenizer_name(t, id, &len) : "";
    return chat_string(a, name, len, false);
}

// A line each, as vLLM and llama-server have it.
static bool read_parts(struct buf *text, const json_t *parts, const char *param, struct api_error *e) {
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i), *content = field_get(part, "text");
        const char *type = json_name(field_get(part, "type"));
        char where[80];
        snprintf(where, sizeof where, "%s[%zu]", param, i);
        if (!json_is_object(part) || !type)
            return api_fail(e, 400, "invalid_type", where,
                            "A part of 'content' must be an object with a 'type'.");
        if (strcmp(type, "refusal") == 0)
            content = field_get(part, "refusal");
        else if (strcmp(type, "text") != 0)
            return api_fail(e, 400, "unsupported_parameter", where,
                            "Parts of type '%.40s' are not supported: this model reads text.", type);
        if (!json_is_string(content))
            return api_fail(e, 400, "invalid_type", where, "The text of a part must be a string.");
        if (i > 0)
            buf_char(text, '\n');
        buf_add(text, json_string_value(content), json_string_length(content));
    }
    return true;
}

static bool read_content(struct buf *text, const json_t *message, const char *role, size_t i,
                         struct api_error *e) {
    const json_t *v = field_get(message, "content");
    char param[48];
    snprintf(param, sizeof param, "messages[%zu].content", i);
    if (!v)
        return strcmp(role, "assistant") == 0 || api_fail(e, 400, "missing_required_parameter", param,
                                                          "A message of role '%s' needs 'content'.", role);
    if (json_is_array(v))
        return read_parts(text, v, param, e);
    if (!json_is_string(v))
        return api_fail(e, 400, "invalid_type", param, "'content' must be a string or a list of parts.");
    buf_add(text, json_string_value(v), json_string_length(v));
    return true;
}

// ---- members that only some templates know

// `call`: within a call of a tool, outside its arguments.
static struct chat_value *value_of(struct chat_arena *a, const json_t *v, bool call);

// The arguments of a call are JSON in a string; templates are written for the object in it.
static struct chat_value *arguments_of(struct chat_arena *a, const json_t *v) {
    const char *text = json_string_value(v);
    size_t len = json_string_length(v);
    json_t *object =
        text && json_depth_ok(text, len, MAX_JSON_DEPTH) ? json_loadb(text, len, JSON_ALLOW_NUL, NULL) : NULL;
    bool broken = !json_is_object(object) && !json_is_object(v);
    if (broken) // empty, null, or cut by a limit: the conversation goes on
        log_msg(LOG_WARN,
                "event=arguments bytes=%zu a call of before has arguments that are no object: taken as {}",
                len);
    struct chat_value *value =
        broken ? chat_dict(a) : value_of(a, json_is_object(object) ? object : v, false);
    json_decref(object);
    return value;
}

// Reasoning of before has several names: a template that knows one gets what came by another.
static void add_reasoning(const struct served_model *m, struct chat_arena *a, struct chat_value *dict,
                          const json_t *message) {
    static const char *const names[] = {"reasoning_content", "reasoning", "thinking"};
    const json_t *given = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *v = json_object_get(message, names[i]);
        given = !given && json_is_string(v) ? v : given;
    }
    for (size_t i = 0; given && i < sizeof names / sizeof *names; i++)
        if (!field_get(message, names[i]) && chat_template_names(m, names[i]))
            set_member(a, dict, names[i], value_of(a, given, false));
}

static struct chat_value *dict_of(struct chat_arena *a, const json_t *v, bool call) {
    struct chat_value *dict = chat_dict(a);
    const char *key;
    json_t *member;
    json_object_foreach((json_t *)v, key, member) {
        bool arguments = call && strcmp(key, "arguments") == 0;
        set_member(a, dict, key, arguments ? arguments_of(a, member) : value_of(a, member, call));
    }
    return dict;
}

static struct chat_value *list_of(struct chat_arena *a, const json_t *v, bool call) {
    struct chat_value *list = chat_list(a);
    for (size_t i = 0; i < json_array_size(v); i++)
        chat_list_add(a, list, value_of(a, json_array_get(v, i), call));
    return list;
}

static struct chat_value *value_of(struct chat_arena *a, const json_t *v, bool call) {
    switch (json_typeof(v)) {
    case JSON_OBJECT: return dict_of(a, v, call);
    case JSON_ARRAY: return list_of(a, v, call);
    case JSON_STRING: return chat_string(a, json_string_value(v), json_string_length(v), true);
    case JSON_INTEGER: return chat_int(a, json_integer_value(v));
    case JSON_REAL: return chat_float(a, json_real_value(v));
    case JSON_TRUE: return chat_bool(a, true);
    case JSON_FALSE: return chat_bool(a, false);
    case JSON_NULL: break;
    }
    return chat_null(a);
}

// Gives the template what it names, and refuses what would be missed.
static bool add_members(const struct served_model *m, struct chat_arena *a, struct chat_value *dict,
                        const json_t *message, size_t i, struct api_error *e) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)message, key, v) {
        const struct field_rule *rule = field_rule_find(field_rules, key, OPENAI_MESSAGE);
        char param[80];
        snprintf(param, sizeof param, "messages[%zu].%.40s", i, key);
        if (json_is_null(v) || (rule && rule->fate == FIELD_READ))
            continue;
        if (chat_template_names(m, key) && !(rule && rule->fate == FIELD_REFUSED))
            set_member(a, dict, key,
                       value_of(a, v, strcmp(key, "tool_calls") == 0 || strcmp(key, "function_call") == 0));
        else if (rule && rule->values && !field_rule_has(rule, v))
            return api_fail(e, 400, "unsupported_parameter", param,
                            rule->fate == FIELD_REFUSED
                                ? "'%s' is not supported by this version of the server."
                                : "The model's chat template does not know '%s'.",
                            key);
    }
    return true;
}

// ---- roles

// Roles that only some templates know (function, ipython, observation, a model's own), each with a message
// that says something.
enum { MAX_OTHER_ROLES = 4, MAX_LATE = 64 };
struct other_roles {
    struct {
        const char *role;
        size_t message; // its index
        struct chat_value *dict;
    } list[MAX_OTHER_ROLES];
    size_t num;
    // System messages amid a conversation, which agents send and some templates refuse.
    struct chat_value *late[MAX_LATE];
    size_t num_late;
    bool begun; // a message of another role has come
};

static bool is_usual_role(const char *role) {
    static const char *const usual[] = {"system", "developer", "user", "assistant", "tool"};
    for (size_t k = 0; k < sizeof usual / sizeof usual[0]; k++)
        if (strcmp(role, usual[k]) == 0)
            return true;
    return false;
}

static bool note_role(struct other_roles *others, const char *role, size_t i, struct chat_value *dict,
                      struct api_error *e) {
    char param[48];
    snprintf(param, sizeof param, "messages[%zu].role", i);
    for (size_t k = 0; k < others->num; k++)
        if (strcmp(role, others->list[k].role) == 0)
            return true;
    if (others->num == MAX_OTHER_ROLES)
        return api_fail(e, 400, "out_of_range", param, "At most %d roles besides the usual ones are allowed.",
                        MAX_OTHER_ROLES);
    others->list[others->num].role = role;
    others->list[others->num].message = i;
    others->list[others->num++].dict = dict;
    return true;
}

// NULL: e says why. A role is a word, such as no control token is.
static const char *read_role(const json_t *message, size_t i, struct api_error *e) {
    const char *role = json_name(field_get(message, "role"));
    size_t len = role ? strlen(role) : 0;
    char param[48];
    snprintf(param, sizeof param, "messages[%zu].role", i);
    if (len == 0 || len > 32 ||
        strspn(role, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") != len) {
        api_fail(e, 400, role ? NULL : "missing_required_parameter", param,
                 "'role' must be system, developer, user, assistant, tool, or a word that the chat template "
                 "knows.");
        return NULL;
    }
    return role;
}

static bool add_message(const struct served_model *m, struct chat_arena *a, struct chat_value *list,
                        const json_t *message, size_t i, struct other_roles *others, struct api_error *e) {
    static const char *const names[] = {"name", "tool_call_id"};
    char param[48];
    snprintf(param, sizeof param, "messages[%zu]", i);
    if (!json_is_object(message))
        return api_fail(e, 400, "invalid_type", param, "A message must be an object.");
    struct chat_value *dict = chat_dict(a);
    const char *role = read_role(message, i, e);
    if (!role)
        return false;
    struct buf text = {0};
    const char *shown =
        strcmp(role, "developer") == 0 && !chat_template_names(m, "developer") ? "system" : role;
    set_member(a, dict, "role", chat_string(a, shown, strlen(shown), false));
    if (strcmp(shown, "system") != 0)
        others->begun = true;
    else if (others->begun && others->num_late < MAX_LATE)
        others->late[others->num_late++] = dict;
    add_reasoning(m, a, dict, message);
    bool ok = add_members(m, a, dict, message, i, e) && read_content(&text, message, role, i, e);
    if (ok && text.failed)
        ok = api_fail_memory(e);
    if (ok && text.len && !is_usual_role(role))
        ok = note_role(others, role, i, dict, e);
    set_member(a, dict, "content", chat_string(a, text.data ? text.data : "", text.len, true));
    buf_free(&text);
    for (size_t k = 0; ok && k < sizeof names / sizeof names[0]; k++) {
        const json_t *v = field_get(message, names[k]);
        snprintf(param, sizeof param, "messages[%zu].%s", i, names[k]);
        if (!v && k == 1 && strcmp(role, "tool") == 0)
            ok = api_fail(e, 400, "missing_required_parameter", param,
                          "A message of role 'tool' needs '%s', the id of the call that it answers.",
                          names[k]);
        else if (v && !json_is_string(v))
            ok = api_fail(e, 400, "invalid_type", param, "'%s' must be a string.", names[k]);
        else if (v)
            set_member(a, dict, names[k], chat_string(a, json_string_value(v), json_string_length(v), true));
    }
    chat_list_add(a, list, dict);
    return ok;
}

// The segments of a prompt; they belong to the arena.
struct rendered_chat {
    struct chat_arena *arena;
    const struct chat_segment *segments; // (num)
    size_t num;
};

static enum status render_once(const struct served_model *m, const struct chat_value *globals,
                               struct rendered_chat *out, size_t *bytes, struct err *err) {
    enum status status = chat_render(m->chat, out->arena, globals, &out->segments, &out->num, err);
    *bytes = 0;
    for (size_t i = 0; status == STATUS_OK && i < out->num; i++)
        *bytes += out->segments[i].len;
    return status;
}

// Refuses a role whose messages the template leaves out: without their words its text is as long.
static bool check_roles(const struct served_model *m, const struct chat_value *globals, struct chat_arena *a,
                        size_t bytes, const struct other_roles *others, struct api_error *e) {
    for (size_t k = 0; k < others->num; k++) {
        struct rendered_chat without = {.arena = a};
        struct err err = {0};
        size_t fewer;
        set_member(a, others->list[k].dict, "content", chat_string(a, "", 0, true));
        enum status status = render_once(m, globals, &without, &fewer, &err);
        if (status == STATUS_NOMEM)
            return api_fail_memory(e);
        if (status != STATUS_OK) // it looks at them
            return true;
        char param[48];
        snprintf(param, sizeof param, "messages[%zu].role", others->list[k].message);
        if (fewer == bytes)
            return api_fail(e, 400, NULL, param, "The chat template leaves out messages of role '%s'.",
                            others->list[k].role);
        bytes = fewer;
    }
    return true;
}

static bool render_prompt(const struct served_model *m, const struct chat_value *globals,
                          const struct other_roles *others, struct rendered_chat *out, struct api_error *e) {
    size_t bytes;
    struct err err = {0};
    enum status status = render_once(m, globals, out, &bytes, &err);
    if (status == STATUS_INVALID &&
        others->num_late > 0) { // a template that has them first alone: they are the user's
        struct err again = {0};
        for (size_t i = 0; i < others->num_late; i++)
            set_member(out->arena, others->late[i], "role", chat_string(out->arena, "user", 4, false));
        status = render_once(m, globals, out, &bytes, &again);
    }
    if (status == STATUS_NOMEM)
        return api_fail_memory(e);
    if (status != STATUS_OK)
        return api_fail(e, 400, "template_error", "messages",
                        "The chat template refuses these messages: %.300s", err.msg);
    if (text_is_hopeless(m, bytes))
        return api_fail_context(e, "messages", "the messages have", 0, bytes, m->max_model_len);
    return check_roles(m, globals, out->arena, bytes, others, e);
}

// A variable that only some templates have. One that it lacks must ask for nothing.
static bool add_variable(const struct served_model *m, struct chat_arena *a, struct chat_value *globals,
                         const char *name, const json_t *v, const char *param, struct api_error *e) {
    static const char *const ours[] = {"messages", "tools", "bos_token", "eos_token",
                                       "add_generation_prompt"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (strcmp(name, ours[i]) == 0)
            return api_fail(e, 400, NULL, param, "'%s' is no variable that a request may set.", name);
    if (chat_template_uses(m, name))
        set_member(a, globals, name, value_of(a, v, false));
    else if (!json_is_null(v) && !json_is_false(v))
        return api_fail(e, 400, "unsupported_parameter", param,
                        "The model's chat template has no variable '%.60s'.", name);
    return true;
}

// One of OpenAI's words. A template that only switches reasoning gets a boolean, unless the request sets that itself; gpt-oss
// knows three. Where the template has neither it is told (field_rules.c).
static bool add_effort(const struct served_model *m, struct chat_arena *a, struct chat_value *globals,
                       const json_t *effort, const json_t *root, struct api_error *e) {
    static const char *const words[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    const char *word = json_name(effort), *variable = chat_effort_variable(m);
    size_t n = sizeof words / sizeof *words, k = 0;
    while (k < n && !(word && strcmp(word, words[k]) == 0))
        k++;
    if (!effort || json_is_null(effort))
        return true;
    if (k == n)
        return api_fail(e, 400, "invalid_value", "reasoning_effort",
                        "'reasoning_effort' must be none, minimal, low, medium, high, xhigh or max.");
    if (!variable)
        return true;
    if (strcmp(variable, "reasoning_effort") == 0) {
        const char *given = !(m->format && m->format->harmony) ? word : k < 3 ? "low" : k > 3 ? "high" : word;
        set_member(a, globals, variable, chat_string(a, given, strlen(given), false));
    } else if (!json_object_get(root, variable) &&
               !json_object_get(json_object_get(root, "chat_template_kwargs"), variable)) {
        set_member(a, globals, variable, chat_bool(a, k > 0));
    }
    return true;
}

static bool add_variables(const struct served_model *m, struct chat_arena *a, struct chat_value *globals,
                          const json_t *root, struct api_error *e) {
    static const char *const fields[] = {"enable_thinking", "thinking"};
    const json_t *all = field_get(root, "chat_template_kwargs");
    if (!add_effort(m, a, globals, json_object_get(root, "reasoning_effort"), root, e))
        return false;
    const char *key;
    json_t *v;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if ((v = json_object_get(root, fields[i])) &&
            !add_variable(m, a, globals, fields[i], v, fields[i], e))
            return false;
    if (all && !json_is_object(all))
        return api_fail(e, 400, "invalid_type", "chat_template_kwargs",
                        "'chat_template_kwargs' must be an object.");
    json_object_foreach((json_t *)all, key, v) {
        char param[80];
        snprintf(param, sizeof param, "chat_template_kwargs.%.50s", key);
        if (!add_variable(m, a, globals, key, v, param, e))
            return false;
    }
    return true;
}

// The caller frees out->arena, also on failure.
static bool render_messages(const struct served_model *m, const json_t *root, bool add_generation_prompt,
                            struct rendered_chat *out, struct api_error *e) {
    const json_t *messages = field_get(root, "messages");
    if (!m->chat)
        return api_fail(e, 400, "no_chat_template", "messages", "%s", m->chat_problem);
    if (!messages)
        return api_fail(e, 400, "missing_required_parameter", "messages", "'messages' is missing.");
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return api_fail(e, 400, "invalid_type", "messages",
                        "'messages' must be a list of at least one message.");
    const json_t *tools = field_get(root, "tools");
    if (tools && !json_is_array(tools) &&
        !field_rule_has(field_rule_find(field_rules, "tools", OPENAI_CHAT), tools))
        return api_fail(e, 400, "invalid_type", "tools", "'tools' must be a list.");
    struct chat_arena *a = out->arena = chat_arena_new();
    if (!a)
        return api_fail_memory(e);
    struct chat_value *list = chat_list(a), *globals = chat_dict(a);
    struct other_roles others = {0};
    bool ok = true;
    for (size_t i = 0; i < json_array_size(messages) && ok; i++)
        ok = add_message(m, a, list, json_array_get(messages, i), i, &others, e);
    set_member(a, globals, "messages", list);
    set_member(a, globals, "bos_token", name_of(a, m->tokenizer, tokenizer_bos(m->tokenizer)));
    set_member(a, globals, "eos_token", name_of(a, m->tokenizer, tokenizer_eos(m->tokenizer)));
    set_member(a, globals, "add_generation_prompt", chat_bool(a, add_generation_prompt));
    const char *choice = json_name(field_get(root, "tool_choice"));
    if (json_array_size(tools) > 0 && chat_template_uses(m, "tools") &&
        !(choice && strcmp(choice, "none") == 0))
        set_member(a, globals, "tools", list_of(a, tools, false));
    ok = ok && add_variables(m, a, globals, root, e);
    return ok && render_prompt(m, globals, &others, out, e);
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Drops the segments behind the text of `message`, the last one, which a template may have trimmed.
static bool cut_behind(struct rendered_chat *r, const json_t *message, struct api_error *e) {
    struct buf text = {0};
    bool ok = read_content(&text, message, "assistant", 0, e) && !text.failed;
    if (!ok) {
        buf_free(&text);
        return api_fail_memory(e);
    }
    size_t begin = 0, len = text.len;
    while (begin < len && is_space(text.data[begin]))
        begin++;
    while (len > begin && is_space(text.data[len - 1]))
        len--;
    while (r->num > 0 && !r->segments[r->num - 1].content)
        r->num--;
    const struct chat_segment *last = r->num > 0 ? &r->segments[r->num - 1] : NULL;
    size_t end = last ? last->len : 0;
    while (end > 0 && is_space(last->text[end - 1]))
        end--;
    if (len == begin || end < len - begin ||
        memcmp(last->text + end - (len - begin), text.data + begin, len - begin) != 0)
        ok = api_fail(
            e, 400, NULL, "continue_final_message",
            "There is no text to continue: the last message has none, or the chat template leaves it out.");
    buf_free(&text);
    return ok;
}

// The caller frees out->arena, also on failure.
static bool render_body(const struct served_model *m, const json_t *root, bool add_generation_prompt,
                        bool continue_final, struct rendered_chat *out, struct api_error *e) {
    const json_t *messages = json_object_get(root, "messages"), *tools = field_get(root, "tools");
    const char *choice = json_name(field_get(root, "tool_choice"));
    struct served_model with = *m;
    if (m->tool_chat && json_array_size(tools) > 0 && !(choice && strcmp(choice, "none") == 0)) {
        with.chat = m->tool_chat;
        with.template_source = m->tool_source;
        m = &with;
    }
    if (continue_final && json_is_true(field_get(root, "add_generation_prompt")))
        return api_fail(e, 400, NULL, "continue_final_message",
                        "'continue_final_message' and 'add_generation_prompt' exclude each other.");
    return render_messages(m, root, add_generation_prompt && !continue_final, out, e) &&
           (!continue_final || cut_behind(out, json_array_get(messages, json_array_size(messages) - 1), e));
}

// Whether the text ends with `mark`, but for blanks.
static bool ends_with(const struct rendered_chat *r, const char *mark) {
    const struct chat_segment *last = r->num ? &r->segments[r->num - 1] : NULL;
    size_t end = last ? last->len : 0, len = strlen(mark);
    while (end > 0 && is_space(last->text[end - 1]))
        end--;
    return end >= len && memcmp(last->text + end - len, mark, len) == 0;
}

bool chat_prompt(const struct served_model *m, const json_t *root, bool add_generation_prompt,
                 bool continue_final, struct token_buf *out, bool *thinking, struct api_error *e) {
    struct rendered_chat r = {0};
    bool ok = render_body(m, root, add_generation_prompt, continue_final, &r, e) &&
              api_check_encoded(e, "messages", text_encode(m->tokenizer, r.segments, r.num, out));
    if (ok && thinking)
        *thinking = m->format && m->format->think_open && ends_with(&r, m->format->think_open);
    chat_arena_free(r.arena);
    return ok;
}

static bool same_text(const struct rendered_chat *a, const struct rendered_chat *b) {
    size_t i = 0, k = 0, at = 0, to = 0; // segments, and bytes of them
    while (i < a->num && k < b->num) {
        size_t left = a->segments[i].len - at, right = b->segments[k].len - to,
               n = left < right ? left : right;
        if (n && memcmp(a->segments[i].text + at, b->segments[k].text + to, n) != 0)
            return false;
        at += n;
        to += n;
        if (n == left)
            i++, at = 0;
        if (n == right)
            k++, to = 0;
    }
    while (i < a->num && a->segments[i].len == at)
        i++, at = 0;
    while (k < b->num && b->segments[k].len == to)
        k++, to = 0;
    return i == a->num && k == b->num;
}

bool chat_thinks(const struct served_model *m, const json_t *root, bool add_generation_prompt,
                 bool continue_final, bool *thinks, struct api_error *e) {
    const struct output_format *f = m->format;
    const json_t *value = NULL;
    struct rendered_chat r = {0}, off = {0};
    *thinks = f && f->think_close && m->template_source &&
              (strstr(m->template_source, f->think_open) || strstr(m->template_source, f->think_close));
    if (!*thinks)
        return true;
    const char *name = chat_thinking_variable(m);
    if (name && !(value = field_get(root, name)))
        value = field_get(field_get(root, "chat_template_kwargs"), name);
    bool ok = render_body(m, root, add_generation_prompt, continue_final, &r, e);
    *thinks = ok && !ends_with(&r, f->think_close) && !json_is_false(value);
    if (*thinks && name && !value && !ends_with(&r, f->think_open)) { // off, unless it is said
        json_t *with = json_copy((json_t *)(uintptr_t)root);
        ok = with && json_object_set_new(with, name, json_false()) == 0;
        ok = ok ? render_body(m, with, add_generation_prompt, continue_final, &off, e) : api_fail_memory(e);
        *thinks = ok && !same_text(&r, &off);
        json_decref(with);
    }
    chat_arena_free(r.arena);
    chat_arena_free(off.arena);
    return ok;
}

bool chat_text(const struct served_model *m, const json_t *root, bool add_generation_prompt,
               bool continue_final, struct buf *out, struct api_error *e) {
    struct rendered_chat r = {0};
    bool ok = render_body(m, root, add_generation_prompt, continue_final, &r, e);
    for (size_t i = 0; ok && i < r.num; i++)
        buf_add(out, r.segments[i].text, r.segments[i].len);
    chat_arena_free(r.arena);
    return ok;
}
