// Requests of the Messages API, rewritten as chat completions, whose reader does the rest: blocks become parts, calls
// and messages of role `tool`. Consecutive messages of one role are one.
#include "anthropic.h"

#include "api/field_rows.h"
#include "api/messages.h"
#include "api/rewrite.h"
#include "api/structured.h"
#include "openai.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

// ---- names

// Places: a body; messages[]; messages[].content[] and system[]; tools[].
enum { ANTHROPIC = 1, TURN = 2, BLOCK = 4, TOOL = 8 };
// clang-format off
static const struct field_rule rules[] = {
    READ("model", ANTHROPIC),
    READ("messages", ANTHROPIC),
    READ("system", ANTHROPIC),
    READ("max_tokens", ANTHROPIC),
    READ("temperature", ANTHROPIC),
    READ("top_p", ANTHROPIC),
    READ("top_k", ANTHROPIC),
    READ("stream", ANTHROPIC),
    READ("tools", ANTHROPIC),
    READ("tool_choice", ANTHROPIC),
    READ("thinking", ANTHROPIC),
    READ("output_config", ANTHROPIC),
    READ("output_format", ANTHROPIC),
    READ("context_management", ANTHROPIC),
    ALIAS("stop_sequences", ANTHROPIC, "stop", NULL),
    REFUSED("compaction", ANTHROPIC, EMPTY),
    HARMLESS("metadata", ANTHROPIC, LABEL),
    HARMLESS("service_tier", ANTHROPIC, ROUTE),
    HARMLESS("inference_geo", ANTHROPIC, ROUTE),
    HARMLESS("speed", ANTHROPIC, CACHE),
    READ("cache_control", ANTHROPIC | BLOCK | TOOL),
    READ("role", TURN),
    READ("content", TURN),
    READ("type", BLOCK),
    READ("text", BLOCK),
    READ("thinking", BLOCK),
    READ("data", BLOCK),
    READ("id", BLOCK),
    READ("name", BLOCK),
    READ("input", BLOCK),
    READ("tool_use_id", BLOCK),
    READ("content", BLOCK),
    READ("is_error", BLOCK),
    READ("tool_name", BLOCK),
    READ("tool", BLOCK),
    READ("tool_changes", BLOCK),
    HARMLESS("encrypted_content", BLOCK, LABEL),
    HARMLESS("signature", BLOCK, LABEL),
    HARMLESS("citations", BLOCK, LABEL),
    HARMLESS("caller", BLOCK, LABEL),
    READ("type", TOOL),
    READ("name", TOOL),
    READ("description", TOOL),
    READ("input_schema", TOOL),
    READ("strict", TOOL),
    READ("defer_loading", TOOL),
    READ("allowed_callers", TOOL),
    HARMLESS("eager_input_streaming", TOOL, CHUNK),
    HARMLESS("max_characters", TOOL, CHUNK),
    HARMLESS("input_examples", TOOL, LABEL),
    {0},
};
// clang-format on

// `high` is the default effort.
static bool add_wishes(char *list, const struct served_model *m, const json_t *root) {
    const json_t *config = json_object_get(root, "output_config"),
                 *effort = json_object_get(config, "effort");
    const char *kind = json_name(json_object_get(json_object_get(root, "thinking"), "type")),
               *word = json_name(effort);
    bool asks = kind && strcmp(kind, "enabled") == 0 && !rewrite_can_reason(m);
    return ((word && strcmp(word, "high") == 0) ||
            fields_add_effort(list, m, effort, "output_config.effort")) &&
           (!asks || ignored_add(list, "", "thinking")) &&
           (!field_get(config, "task_budget") || ignored_add(list, "output_config.", "task_budget"));
}

// Blocks of what ran on Anthropic's servers: their results are encrypted, or in the words of the model behind them.
static bool is_hosted_block(const char *type) {
    static const char *const others[] = {"server_tool_use", "mcp_tool_use", "mcp_tool_listing", "fallback"};
    static const char result[] = "_tool_result";
    size_t len = strlen(type), n = sizeof result - 1;
    bool hosted = len > n && strcmp(type + len - n, result) == 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        hosted |= strcmp(type, others[i]) == 0;
    return hosted;
}

// Edits of the context that keep all of it are what happens anyway.
static bool add_edits(char *list, const json_t *management) {
    const json_t *edits = json_object_get(management, "edits");
    for (size_t i = 0; i < json_array_size(edits); i++) {
        const char *keep = json_name(json_object_get(json_array_get(edits, i), "keep"));
        if (!keep || strcmp(keep, "all") != 0)
            return ignored_add(list, "", "context_management");
    }
    return true;
}

static void find_ignored_inside(char *list, const struct served_model *m, const json_t *root) {
    const json_t *system = json_object_get(root, "system"), *tools = json_object_get(root, "tools"),
                 *messages = json_object_get(root, "messages");
    bool room = add_wishes(list, m, root) && fields_add_tools(list, m, root) &&
                add_edits(list, json_object_get(root, "context_management"));
    for (size_t i = 0; i < json_array_size(system) && room; i++)
        room = fields_add_ignored(list, m, json_array_get(system, i), rules, BLOCK, "system[].");
    for (size_t i = 0; i < json_array_size(tools) && room; i++) {
        const json_t *tool = json_array_get(tools, i);
        const char *type = json_name(json_object_get(tool, "type"));
        room = type && anthropic_tool_is_hosted(type)
                   ? ignored_add(list, "tools.", type)
                   : fields_add_ignored(list, m, tool, rules, TOOL, "tools[].");
    }
    for (size_t i = 0; i < json_array_size(messages) && room; i++) {
        const json_t *message = json_array_get(messages, i), *blocks = json_object_get(message, "content");
        room = fields_add_ignored(list, m, message, rules, TURN, "messages[].");
        for (size_t k = 0; k < json_array_size(blocks) && room; k++) {
            const json_t *block = json_array_get(blocks, k);
            const char *type = json_name(json_object_get(block, "type"));
            room = type && is_hosted_block(type)
                       ? ignored_add(list, "messages[].content[].", type)
                       : fields_add_ignored(list, m, block, rules, BLOCK, "messages[].content[].");
        }
    }
}

static const struct openai_api api = {.names = {rules, ANTHROPIC, find_ignored_inside}};

// ---- blocks

// A block of a content: what it is, and where it stands.
struct content_block {
    const json_t *value;
    const char *type;
    char where[128];
};

static bool fail_kind(const struct content_block *b, struct api_error *e) {
    return api_fail(
        e, 400, "unsupported_parameter", b->where,
        "Blocks of type '%.60s' are not supported here: the model reads text and calls of its tools.",
        b->type);
}

// A member of a block that must be a string.
static const json_t *text_of(const struct content_block *b, const char *name, struct api_error *e) {
    const json_t *v = field_get(b->value, name);
    if (!json_is_string(v))
        api_fail(e, 400, v ? "invalid_type" : "missing_required_parameter", b->where,
                 "A block of type '%.60s' needs '%s', a string.", b->type, name);
    return json_is_string(v) ? v : NULL;
}

static json_t *text_part(const json_t *text) {
    return json_pack("{s:s,s:O}", "type", "text", "text", (json_t *)(uintptr_t)text);
}

static bool add_text(json_t *parts, const struct content_block *b, struct api_error *e) {
    const json_t *text = text_of(b, "text", e);
    return text && rewrite_append(parts, text_part(text), e);
}

typedef bool block_fn(void *to, const struct content_block *b, struct api_error *e);

// Gives each block of a content, which may be a string, to fn.
static bool each_block(const json_t *content, const char *where, block_fn *fn, void *to,
                       struct api_error *e) {
    if (json_is_string(content)) {
        json_t *one = text_part(content);
        struct content_block b = {.value = one, .type = "text"};
        snprintf(b.where, sizeof b.where, "%.120s", where);
        bool ok = one ? fn(to, &b, e) : api_fail_memory(e);
        json_decref(one);
        return ok;
    }
    if (!json_is_array(content))
        return api_fail(e, 400, content ? "invalid_type" : "missing_required_parameter", where,
                        "This must be a string or a list of blocks.");
    for (size_t i = 0; i < json_array_size(content); i++) {
        struct content_block b = {.value = json_array_get(content, i)};
        snprintf(b.where, sizeof b.where, "%.100s[%zu]", where, i);
        b.type = json_name(field_get(b.value, "type"));
        if (!b.type)
            return api_fail(e, 400, "invalid_type", b.where, "A block must be an object with a 'type'.");
        if (!fn(to, &b, e))
            return false;
    }
    return true;
}

// For contents that are text alone, into a list of parts.
static bool only_text(void *parts, const struct content_block *b, struct api_error *e) {
    return strcmp(b->type, "text") == 0 ? add_text(parts, b, e) : fail_kind(b, e);
}

// ---- messages

struct chat_rewrite {
    const struct served_model *model;
    json_t *messages;
    const char *role;   // of the message being read
    size_t begin;       // how many messages there were before it
    size_t first;       // how many there were before the conversation
    json_t *tools;      // those of the body, and of blocks that add some; NULL: none
    json_t *removed;    // {name: tool} of those that blocks have removed
    bool billing;       // a line was left out
    json_t *referenced; // {name: true} of the deferred tools that results refer to
};

// The message that a role's blocks go to: the last one where that is of the message being read, or of the same role and
// no call ends it.
static json_t *message_of(struct chat_rewrite *c, const char *role, struct api_error *e) {
    size_t n = json_array_size(c->messages);
    json_t *last = n ? json_array_get(c->messages, n - 1) : NULL;
    const char *its = json_string_value(json_object_get(last, "role"));
    bool same = its && strcmp(its, role) == 0 && strcmp(role, "tool") != 0;
    if (same && (n > c->begin || !json_object_get(last, "tool_calls")))
        return last;
    if (!rewrite_append(c->messages, json_pack("{s:s,s:[]}", "role", role, "content"), e))
        return NULL;
    return json_array_get(c->messages, n);
}

// A part of a tool's result: text, or the name of a tool that a search has found.
static bool add_result_part(void *to, const struct content_block *b, struct api_error *e) {
    struct chat_rewrite *c = to;
    json_t *parts = json_object_get(json_array_get(c->messages, json_array_size(c->messages) - 1), "content");
    if (strcmp(b->type, "tool_reference") != 0)
        return only_text(parts, b, e);
    const json_t *name = text_of(b, "tool_name", e);
    return name &&
           (json_object_set_new(c->referenced, json_string_value(name), json_true()) == 0 ||
            api_fail_memory(e)) &&
           rewrite_append(parts, text_part(name), e);
}

// Adds the result of a tool. The model learns in words that it failed: templates have no mark for that.
static bool add_result(struct chat_rewrite *c, const struct content_block *b, struct api_error *e) {
    const json_t *id = text_of(b, "tool_use_id", e), *content = field_get(b->value, "content"),
                 *failed = field_get(b->value, "is_error");
    json_t *message = id ? message_of(c, "tool", e) : NULL, *parts = json_object_get(message, "content");
    if (!message || !rewrite_set(message, "tool_call_id", json_incref((json_t *)(uintptr_t)id), e))
        return false;
    if (failed && !json_is_boolean(failed))
        return api_fail(e, 400, "invalid_type", b->where, "'is_error' must be true or false.");
    if (json_is_true(failed) &&
        !rewrite_append(parts, json_pack("{s:s,s:s}", "type", "text", "text", "Error:"), e))
        return false;
    char where[100];
    snprintf(where, sizeof where, "%.80s.content", b->where);
    return !content || each_block(content, where, add_result_part, c, e);
}

static bool add_call(json_t *message, const struct content_block *b, struct api_error *e) {
    const json_t *id = text_of(b, "id", e), *name = id ? text_of(b, "name", e) : NULL,
                 *input = field_get(b->value, "input");
    json_t *calls = json_object_get(message, "tool_calls");
    if (!name)
        return false;
    if (!json_is_object(input))
        return api_fail(e, 400, "invalid_type", b->where, "A tool_use block needs 'input', an object.");
    if (!calls && (!rewrite_set(message, "tool_calls", json_array(), e) ||
                   !(calls = json_object_get(message, "tool_calls"))))
        return false;
    return rewrite_append(calls,
                          json_pack("{s:O,s:s,s:{s:O,s:O}}", "id", id, "type", "function", "function", "name",
                                    name, "arguments", input),
                          e);
}

static bool add_thinking(const struct chat_rewrite *c, json_t *message, const struct content_block *b,
                         struct api_error *e) {
    const json_t *text = text_of(b, "thinking", e);
    const char *name = rewrite_reasoning_member(c->model);
    if (!text || !name)
        return text != NULL;
    const json_t *old = json_object_get(message, name);
    struct buf all = {0};
    if (old) {
        buf_add(&all, json_string_value(old), json_string_length(old));
        buf_char(&all, '\n');
    }
    buf_add(&all, json_string_value(text), json_string_length(text));
    bool ok = all.failed ? api_fail_memory(e) : rewrite_set(message, name, json_text(all.data, all.len), e);
    buf_free(&all);
    return ok;
}

// Takes the tool of a name out of the list.
static void remove_tool(struct chat_rewrite *c, const char *name) {
    for (size_t i = 0; i < json_array_size(c->tools); i++) {
        const json_t *tool = json_array_get(c->tools, i);
        const char *its = json_name(field_get(tool, "name"));
        if (!its || strcmp(its, name) != 0)
            continue;
        json_object_set(c->removed, name, (json_t *)(uintptr_t)tool);
        json_array_remove(c->tools, i--);
    }
}

// tool_addition and tool_removal: the model sees the tools that there are at the end.
static bool change_tools(struct chat_rewrite *c, const json_t *block, const char *where,
                         struct api_error *e) {
    const char *kind = json_name(field_get(block, "type"));
    const json_t *tool = field_get(block, "tool"), *definition = field_get(tool, "definition");
    const char *type = json_name(field_get(tool, "type")),
               *name = json_name(field_get(definition ? definition : tool, "name"));
    bool adds = kind && strcmp(kind, "tool_addition") == 0;
    if (!type || !kind || (!adds && strcmp(kind, "tool_removal") != 0))
        return api_fail(e, 400, "invalid_type", where,
                        "A change of tools needs 'tool', an object with a 'type'.");
    if (strncmp(type, "mcp_", 4) == 0) // Anthropic's servers run it
        return true;
    if (!name)
        return api_fail(e, 400, "missing_required_parameter", where,
                        "A change of tools needs the tool's 'name'.");
    json_t *again = json_object_get(c->removed, name);
    if (definition || !adds)
        remove_tool(c, name);
    if (!adds) {
        json_object_del(c->referenced, name);
        return true;
    }
    if (c->tools && !json_is_array(c->tools)) // refused later
        return true;
    if (!c->tools && !(c->tools = json_array()))
        return api_fail_memory(e);
    if ((definition && json_array_append(c->tools, (json_t *)(uintptr_t)definition) != 0) ||
        (!definition && again && json_array_append(c->tools, again) != 0) ||
        json_object_set(c->referenced, name, json_true()) != 0)
        return api_fail_memory(e);
    json_object_del(c->removed, name);
    return true;
}

// A summary of all before it, which it stands for; none where the compaction failed.
static bool take_summary(struct chat_rewrite *c, const struct content_block *b, struct api_error *e) {
    const json_t *changes = field_get(b->value, "tool_changes"), *summary = field_get(b->value, "content");
    for (size_t i = 0; i < json_array_size(changes); i++)
        if (!change_tools(c, json_array_get(changes, i), b->where, e))
            return false;
    if (!summary)
        return true;
    if (!text_of(b, "content", e))
        return false;
    while (json_array_size(c->messages) > c->first)
        json_array_remove(c->messages, json_array_size(c->messages) - 1);
    json_t *text = json_sprintf("A summary of our conversation so far:\n\n%s", json_string_value(summary));
    c->begin = c->first + 1;
    return rewrite_append(
        c->messages,
        json_pack("{s:s,s:[{s:s,s:o}]}", "role", "user", "content", "type", "text", "text", text), e);
}

static bool add_block(void *to, const struct content_block *b, struct api_error *e) {
    struct chat_rewrite *c = to;
    bool user = strcmp(c->role, "user") == 0, assistant = strcmp(c->role, "assistant") == 0;
    if (assistant && is_hosted_block(b->type))
        return true;
    if (assistant && strcmp(b->type, "compaction") == 0)
        return take_summary(c, b, e);
    if (!assistant && (strcmp(b->type, "tool_addition") == 0 || strcmp(b->type, "tool_removal") == 0))
        return change_tools(c, b->value, b->where, e);
    if (user && strcmp(b->type, "tool_result") == 0)
        return add_result(c, b, e);
    json_t *message = message_of(c, c->role, e);
    if (!message)
        return false;
    if (assistant && strcmp(b->type, "tool_use") == 0)
        return add_call(message, b, e);
    if (assistant && strcmp(b->type, "thinking") == 0)
        return add_thinking(c, message, b, e);
    if (assistant && strcmp(b->type, "redacted_thinking") == 0)
        return text_of(b, "data", e) != NULL; // only who made it can read it
    return only_text(json_object_get(message, "content"), b, e);
}

// Claude Code's system prompt begins with a line that is for its maker's accounting and changes with every request: a model
// learns nothing from it, and no prompt would share a prefix with the one before.
static bool add_system_block(void *to, const struct content_block *b, struct api_error *e) {
    static const char billing[] = "x-anthropic-billing-header:";
    struct chat_rewrite *c = to;
    const json_t *text = strcmp(b->type, "text") == 0 ? field_get(b->value, "text") : NULL;
    const char *words = json_string_value(text);
    if (!words || json_array_size(c->messages) > 0 || c->billing ||
        strncmp(words, billing, strlen(billing)) != 0)
        return add_block(c, b, e);
    c->billing = true;
    const char *line_end = strchr(words, '\n');
    size_t skipped = line_end ? (size_t)(line_end + 1 - words) : json_string_length(text);
    if (skipped == json_string_length(text))
        return true;
    json_t *rest = json_stringn(words + skipped, json_string_length(text) - skipped);
    struct content_block after = {.value = text_part(rest), .type = b->type};
    snprintf(after.where, sizeof after.where, "%s", b->where);
    bool ok = after.value ? add_block(c, &after, e) : api_fail_memory(e);
    json_decref((json_t *)(uintptr_t)after.value);
    json_decref(rest);
    return ok;
}

static bool rewrite_messages(struct chat_rewrite *c, const json_t *messages, struct api_error *e) {
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return api_fail(e, 400, messages ? "invalid_type" : "missing_required_parameter", "messages",
                        "'messages' must be a list of at least one message.");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        char where[48];
        c->role = json_name(field_get(message, "role"));
        c->begin = json_array_size(c->messages);
        snprintf(where, sizeof where, "messages[%zu].role", i);
        if (!c->role || (strcmp(c->role, "user") != 0 && strcmp(c->role, "assistant") != 0 &&
                         strcmp(c->role, "system") != 0))
            return api_fail(e, 400, "invalid_type", where, "'role' must be user, assistant or system.");
        snprintf(where, sizeof where, "messages[%zu].content", i);
        const json_t *content = field_get(message, "content");
        if (!each_block(content, where, add_block, c, e))
            return false;
        if (json_is_array(content) && json_array_size(content) == 0 && !message_of(c, c->role, e))
            return false; // it is a turn, too
    }
    return true;
}

// A last message of the assistant is gone on with, unless it says nothing.
static bool read_prefill(json_t *chat, json_t *messages, struct api_error *e) {
    size_t n = json_array_size(messages);
    const json_t *last = json_array_get(messages, n - 1);
    if (strcmp(json_string_value(json_object_get(last, "role")), "assistant") != 0)
        return true;
    if (n > 1 && json_object_size(last) == 2 && json_array_size(json_object_get(last, "content")) == 0)
        return json_array_remove(messages, n - 1) == 0;
    if (json_object_get(last, "tool_calls"))
        return api_fail(e, 400, NULL, "messages", "The last tool_use block has no tool_result block.");
    return rewrite_set(chat, "continue_final_message", json_true(), e);
}

// ---- reasoning

// That a model which never reasons is asked to is told.
static bool read_thinking(json_t *chat, const struct served_model *m, const json_t *thinking, bool *hides,
                          struct api_error *e) {
    const char *type = json_name(field_get(thinking, "type")),
               *display = json_name(field_get(thinking, "display"));
    const json_t *budget = field_get(thinking, "budget_tokens");
    if (!thinking)
        return true;
    bool disabled = type && strcmp(type, "disabled") == 0;
    if (!type || (!disabled && strcmp(type, "enabled") != 0 && strcmp(type, "adaptive") != 0))
        return api_fail(e, 400, "invalid_type", "thinking",
                        "'thinking' must be an object of type enabled, disabled or adaptive.");
    if (budget && (!json_is_integer(budget) || json_integer_value(budget) < 1))
        return api_fail(e, 400, "invalid_type", "thinking",
                        "'budget_tokens' must be an integer of at least 1.");
    *hides = display && strcmp(display, "omitted") == 0;
    return rewrite_thinking(chat, m, !disabled, e) &&
           (!budget || disabled ||
            rewrite_set(chat, "thinking_token_budget", json_integer(json_integer_value(budget)), e));
}

// `format`: output_format, which the format of output_config was called before.
static bool rewrite_output(json_t *chat, const struct served_model *m, const json_t *config,
                           const json_t *format, struct api_error *e) {
    const json_t *effort = field_get(config, "effort");
    format = field_get(config, "format") ? field_get(config, "format") : format;
    const char *word = json_name(effort);
    if (config && !json_is_object(config))
        return api_fail(e, 400, "invalid_type", "output_config", "'output_config' must be an object.");
    if (format && !json_is_object(field_get(format, "schema")))
        return api_fail(e, 400, "invalid_type", "output_config.format",
                        "'format' must be an object with a 'schema'.");
    if (format && !rewrite_set(chat, "response_format",
                               json_pack("{s:s,s:{s:s,s:O}}", "type", "json_schema", "json_schema", "name",
                                         "output", "schema", field_get(format, "schema")),
                               e))
        return false;
    if (effort && !word)
        return api_fail(e, 400, "invalid_type", "output_config", "'effort' must be a string.");
    // `high` is the default: it asks for no reasoning that `thinking` does not.
    if (!word || (strcmp(word, "high") == 0 && !chat_template_uses(m, "reasoning_effort")))
        return true;
    return rewrite_set(chat, "reasoning_effort", json_string(word), e);
}

// ---- the body

bool anthropic_rewrite(json_t *chat, const struct served_model *m, const json_t *root,
                       struct anthropic_extras *extras, struct api_error *e) {
    static const char *const same[][2] = {
        {"model", "model"}, {"max_tokens", "max_tokens"}, {"temperature", "temperature"}, {"top_p", "top_p"},
        {"top_k", "top_k"}, {"stream", "stream"},         {"stop_sequences", "stop"}};
    struct chat_rewrite c = {.model = m,
                             .messages = json_array(),
                             .referenced = json_object(),
                             .removed = json_object(),
                             .role = "system"};
    const json_t *tools = field_get(root, "tools");
    c.tools = json_is_array(tools) ? json_copy((json_t *)(uintptr_t)tools)
                                   : json_incref((json_t *)(uintptr_t)tools);
    const json_t *system = field_get(root, "system");
    bool says_nothing = json_is_string(system) && json_string_length(system) == 0,
         ok = rewrite_set(chat, "messages", c.messages, e);
    for (size_t i = 0; i < sizeof same / sizeof *same && ok; i++)
        ok = rewrite_copy(chat, same[i][1], root, same[i][0], e);
    if (ok && system && !says_nothing)
        ok = each_block(system, "system", add_system_block, &c, e);
    if (ok && fields_wish_retention(root))
        ok = rewrite_set(chat, "prompt_cache_retention", json_string("24h"), e);
    extras->billing = c.billing;
    c.first = json_array_size(c.messages);
    ok = ok && rewrite_messages(&c, field_get(root, "messages"), e) && read_prefill(chat, c.messages, e) &&
         anthropic_rewrite_tools(chat, c.tools, c.referenced, e) &&
         anthropic_rewrite_choice(chat, field_get(root, "tool_choice"), e) &&
         read_thinking(chat, m, field_get(root, "thinking"), &extras->hides_reasoning, e) &&
         rewrite_output(chat, m, field_get(root, "output_config"), field_get(root, "output_format"), e);
    json_decref(c.referenced);
    json_decref(c.removed);
    json_decref(c.tools);
    return ok;
}

// Names the field that the chat's reader refused as this API does.
static void name_param(struct api_error *e) {
    static const char *const names[][2] = {{"enable_thinking", "thinking"},
                                           {"reasoning_effort", "output_config.effort"},
                                           {"response_format", "output_config.format"},
                                           {"continue_final_message", "messages"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(e->param, names[i][0]) == 0)
            snprintf(e->param, sizeof e->param, "%s", names[i][1]);
    char *function = strstr(e->param, "].function");
    if (function)
        function[1] = '\0';
}

// `counts`: only the prompt is wanted.
static bool read_body(struct completion_request *r, const struct served_model *m, const char *body,
                      size_t len, bool counts, struct api_error *e) {
    json_t *root = body_load(body, len, e), *chat = json_object();
    struct anthropic_extras extras = {0};
    *r = (struct completion_request){0};
    bool ok = root && (chat || api_fail_memory(e));
    if (ok && !counts && !field_get(root, "max_tokens"))
        ok = api_fail(e, 400, "missing_required_parameter", "max_tokens", "'max_tokens' is missing.");
    ok = ok && fields_refuse(root, &api.names, e) && anthropic_rewrite(chat, m, root, &extras, e) &&
         openai_chat_read(r, m, chat, NULL, e) &&
         (counts || openai_check_room(m, r->max_tokens, r->base.prompts[0].len, "messages", e));
    json_decref(chat);
    r->hides_reasoning = extras.hides_reasoning;
    r->continuous_usage = true; // the first event has the prompt's
    structured_name(r, "output_config.format");
    if (!ok)
        name_param(e);
    ok = openai_parse_end(r, m, root, &api, ok, e);
    if (extras.billing)
        ignored_add(r->base.ignored, "", "system[0]");
    return ok;
}

bool anthropic_parse(struct completion_request *r, const struct served_model *m, const char *body, size_t len,
                     struct api_error *e) {
    return read_body(r, m, body, len, false, e);
}

bool anthropic_count_response(const struct served_model *m, const char *body, size_t len, struct buf *out,
                              char *ignored, struct api_error *e) {
    struct completion_request r;
    bool ok = read_body(&r, m, body, len, true, e);
    memcpy(ignored, r.base.ignored, IGNORED_SIZE);
    if (ok) {
        buf_fmt(out, "{\"input_tokens\":%zu}", r.base.prompts[0].len);
        completion_request_free(&r);
    }
    return ok;
}
