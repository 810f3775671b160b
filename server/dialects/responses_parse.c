// /v1/responses: items in, a response out. A body is put into the words of a chat and read as one.
#include "api/field_rows.h"
#include "api/rewrite.h"
#include "api/structured.h"
#include "responses.h"

#include "api/messages.h"
#include "response_store.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { MAX_METADATA = 16, MAX_METADATA_KEY = 64, MAX_METADATA_VALUE = 512 };

// Names in objects of a body: of input[]; of input[].content[] and input[].output[]; of reasoning and of text.
enum { ITEM = 1, ITEM_PART = 2, OPTION = 4 };
// clang-format off
static const struct field_rule item_rules[] = {
    READ("type", ITEM | ITEM_PART),
    READ("role", ITEM),
    READ("content", ITEM),
    READ("summary", ITEM),
    READ("call_id", ITEM),
    READ("name", ITEM),
    READ("arguments", ITEM),
    READ("input", ITEM),
    READ("namespace", ITEM),
    READ("output", ITEM),
    READ("action", ITEM),
    READ("encrypted_content", ITEM),
    READ("operation", ITEM),
    HARMLESS("caller", ITEM, LABEL),
    HARMLESS("created_by", ITEM, LABEL),
    HARMLESS("id", ITEM, LABEL),
    HARMLESS("status", ITEM, LABEL),
    HARMLESS("phase", ITEM, LABEL),
    READ("text", ITEM_PART),
    READ("refusal", ITEM_PART),
    HARMLESS("annotations", ITEM_PART, LABEL),
    HARMLESS("logprobs", ITEM_PART, LABEL),
    HARMLESS("prompt_cache_breakpoint", ITEM_PART, CACHE),
    READ("effort", OPTION),
    READ("summary", OPTION),
    READ("generate_summary", OPTION),
    READ("context", OPTION),
    READ("mode", OPTION),
    READ("format", OPTION),
    READ("verbosity", OPTION),
    {0},
};
// clang-format on

// Wishes that are not granted.
static bool add_wishes(char *list, const struct served_model *m, const json_t *root) {
    const char *verbosity = json_name(json_object_get(json_object_get(root, "text"), "verbosity"));
    const json_t *tools = json_object_get(root, "tools");
    bool room = fields_add_tools(list, m, root);
    for (size_t i = 0; i < json_array_size(tools) && room; i++) {
        const char *type = json_name(json_object_get(json_array_get(tools, i), "type"));
        room = !type || !responses_tool_is_hosted(type) || ignored_add(list, "tools.", type);
    }
    if (room && responses_grammar_is_loose(m, root))
        room = ignored_add(list, "tools.", "format");
    if (room && verbosity && strcmp(verbosity, "medium") != 0)
        room = ignored_add(list, "", "text.verbosity");
    if (room && json_is_true(json_object_get(root, "store")) && !m->store)
        room = ignored_add(list, "", "store");
    return room;
}

// Those of the items of the input, with what else is within objects.
static void find_ignored_inside(char *list, const struct served_model *m, const json_t *root) {
    static const char *const in[] = {"content", "output"};
    const json_t *items = json_object_get(root, "input"), *reasoning = json_object_get(root, "reasoning");
    fields_inside_options(list, m, root);
    bool room = fields_add_ignored(list, m, reasoning, item_rules, OPTION, "reasoning.") &&
                fields_add_effort(list, m, json_object_get(reasoning, "effort"), "reasoning.effort") &&
                add_wishes(list, m, root) &&
                fields_add_ignored(list, m, json_object_get(root, "text"), item_rules, OPTION, "text.");
    for (size_t i = 0; i < json_array_size(items) && room; i++) {
        const json_t *item = json_array_get(items, i);
        const char *type = json_name(json_object_get(item, "type"));
        bool sealed = type && strcmp(type, "reasoning") == 0 && field_get(item, "encrypted_content");
        room = fields_add_ignored(list, m, item, item_rules, ITEM, "input[].") &&
               (!sealed || ignored_add(list, "input[].", "encrypted_content"));
        for (size_t n = 0; n < sizeof in / sizeof *in && room; n++) {
            const json_t *parts = json_object_get(item, in[n]);
            char where[24];
            snprintf(where, sizeof where, "input[].%s[].", in[n]);
            for (size_t k = 0; k < json_array_size(parts) && room; k++)
                room = fields_add_ignored(list, m, json_array_get(parts, k), item_rules, ITEM_PART, where);
        }
    }
}

static const struct openai_api api = {.names = {field_rules, OPENAI_RESPONSES, find_ignored_inside}};

// ---- fields of its own

static bool check_text(const json_t *root, const char *name, struct api_error *e) {
    const json_t *v = field_get(root, name);
    return !v || json_is_string(v) || api_fail(e, 400, "invalid_type", name, "'%s' must be a string.", name);
}

static bool check_object(const json_t *v, const char *name, struct api_error *e) {
    return !v || json_is_object(v) || api_fail(e, 400, "invalid_type", name, "'%s' must be an object.", name);
}

static bool check_metadata(const json_t *v, struct api_error *e) {
    const char *key;
    json_t *value;
    if (!check_object(v, "metadata", e))
        return false;
    if (json_object_size(v) > MAX_METADATA)
        return api_fail(e, 400, "out_of_range", "metadata", "At most %d members are allowed.", MAX_METADATA);
    json_object_foreach(
        (json_t *)(uintptr_t)v, key,
        value) if (!json_is_string(value) || strlen(key) > MAX_METADATA_KEY ||
                   json_string_length(value) >
                       MAX_METADATA_VALUE) return api_fail(e, 400, NULL, "metadata",
                                                           "Names of at most %d bytes and strings of at most "
                                                           "%d are allowed.",
                                                           MAX_METADATA_KEY, MAX_METADATA_VALUE);
    return true;
}

// Refuses a member of an object whose value is neither null nor one of the words, "a b c".
static bool check_word(const json_t *object, const char *in, const char *name, const char *words,
                       struct api_error *e) {
    const json_t *v = field_get(object, name);
    const char *word = json_name(v);
    size_t len = word ? strlen(word) : 0;
    char param[48];
    snprintf(param, sizeof param, "%s.%s", in, name);
    for (const char *at = words; len && (at = strstr(at, word)); at += len)
        if ((at == words || at[-1] == ' ') && (at[len] == ' ' || !at[len]))
            return true;
    return !v || api_fail(e, 400, word ? "unsupported_parameter" : "invalid_type", param,
                          "'%s' must be one of: %s.", param, words);
}

// text.format as response_format, whose json_schema has an object of its own.
static bool read_format(json_t *chat, const json_t *text, struct api_error *e) {
    const json_t *format = field_get(text, "format"), *schema = field_get(format, "schema");
    const char *type = json_name(field_get(format, "type"));
    if (!check_object(text, "text", e) || !check_word(text, "text", "verbosity", "low medium high", e))
        return false;
    if (!format || (type && strcmp(type, "text") == 0))
        return true;
    if (type && strcmp(type, "json_object") == 0)
        return rewrite_set(chat, "response_format", json_pack("{s:s}", "type", type), e);
    if (!type || strcmp(type, "json_schema") != 0)
        return api_fail(e, 400, type ? "unsupported_parameter" : "invalid_type", "text.format",
                        "'text.format' must be of type text, json_object or json_schema.");
    if (!schema)
        return api_fail(e, 400, "missing_required_parameter", "text.format.schema",
                        "'text.format' needs 'schema'.");
    return rewrite_set(chat, "response_format",
                       json_pack("{s:s, s:{s:O}}", "type", type, "json_schema", "schema", schema), e);
}

static bool read_reasoning(json_t *chat, const json_t *reasoning, struct api_error *e) {
    static const char summaries[] = "auto concise detailed";
    if (!check_object(reasoning, "reasoning", e) ||
        !check_word(reasoning, "reasoning", "effort", "none minimal low medium high xhigh max", e) ||
        !check_word(reasoning, "reasoning", "summary", summaries, e) ||
        !check_word(reasoning, "reasoning", "generate_summary", summaries, e) ||
        !check_word(reasoning, "reasoning", "context", "auto", e) ||
        !check_word(reasoning, "reasoning", "mode", "standard", e))
        return false;
    return rewrite_copy(chat, "reasoning_effort", reasoning, "effort", e);
}

// Reads what a response includes besides. Output of hosted tools is accepted and never there.
static bool read_include(json_t *chat, const json_t *root, struct api_error *e) {
    static const char *const known[] = {"message.output_text.logprobs",
                                        "reasoning.encrypted_content",
                                        "file_search_call.results",
                                        "web_search_call.results",
                                        "web_search_call.action.sources",
                                        "message.input_image.image_url",
                                        "computer_call_output.output.image_url",
                                        "code_interpreter_call.outputs"};
    const json_t *list = field_get(root, "include");
    bool logprobs = false;
    if (list && !json_is_array(list))
        return api_fail(e, 400, "invalid_type", "include", "'include' must be a list of strings.");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_name(json_array_get(list, i));
        size_t k = 0;
        while (k < sizeof known / sizeof *known && !(name && strcmp(name, known[k]) == 0))
            k++;
        char param[32];
        snprintf(param, sizeof param, "include[%zu]", i);
        if (k == sizeof known / sizeof *known)
            return api_fail(e, 400, name ? "unsupported_parameter" : "invalid_type", param,
                            "'%.60s' cannot be included.", name ? name : "");
        logprobs |= k == 0;
    }
    return !logprobs || json_object_set_new(chat, "logprobs", json_true()) == 0 || api_fail_memory(e);
}

// Whether the response is kept: where the server keeps any, and the body does not say otherwise.
static bool check_store(const struct served_model *m, const json_t *root, bool *keep, struct api_error *e) {
    const json_t *v = field_get(root, "store");
    *keep = m->store && !json_is_false(v);
    if (v && !json_is_boolean(v))
        return api_fail(e, 400, "invalid_type", "store", "'store' must be true or false.");
    return true;
}

// Whether the response goes on without its client, who then asks for it by its id.
static bool check_background(const struct served_model *m, const json_t *root, bool kept, bool *background,
                             struct api_error *e) {
    const json_t *v = field_get(root, "background");
    *background = json_is_true(v);
    if (v && !json_is_boolean(v))
        return api_fail(e, 400, "invalid_type", "background", "'background' must be true or false.");
    return !*background || kept ||
           api_fail(e, 400, "unsupported_parameter", "background", "'background' needs %s.",
                    m->store ? "'store'" : "a server with --store");
}

// ---- bodies

// Adds what led to an earlier response, and its output, to the items.
static bool read_previous(json_t *items, const struct served_model *m, const uint8_t *tenant,
                          const json_t *root, struct api_error *e) {
    static const char name[] = "previous_response_id";
    const json_t *v = field_get(root, name);
    const char *id = json_name(v);
    struct buf body = {0}, before = {0};
    if (!id)
        return !v || api_fail(e, 400, "invalid_type", name, "'%s' must be a string, without NUL.", name);
    if (!m->store)
        return api_fail(e, 400, "unsupported_parameter", name, "'%s' needs a server with --store.", name);
    if (!response_store_get(m->store, tenant, id, &body, &before, NULL)) {
        buf_free(&body);
        buf_free(&before);
        return api_fail(e, 400, "previous_response_not_found", name, "There is no response '%.120s'.", id);
    }
    json_t *list = json_loadb(before.data, before.len, JSON_ALLOW_NUL, NULL);
    json_t *response = json_loadb(body.data, body.len, JSON_ALLOW_NUL, NULL);
    const char *status = json_string_value(json_object_get(response, "status"));
    bool ended = !status || strcmp(status, "queued") != 0;
    bool ok = ended && json_array_extend(items, list) == 0 &&
              json_array_extend(items, json_object_get(response, "output")) == 0;
    json_decref(list);
    json_decref(response);
    buf_free(&body);
    buf_free(&before);
    return ok || (ended ? api_fail_memory(e)
                        : api_fail(e, 400, NULL, name, "The response '%.120s' is still being made.", id));
}

// All items, those of an earlier response first; the caller frees them. NULL: e says why there are none.
static json_t *read_items(const struct served_model *m, const uint8_t *tenant, json_t *root, size_t *first,
                          struct api_error *e) {
    json_t *input = json_object_get(root, "input"), *items = json_array();
    bool ok = (items || api_fail_memory(e)) && read_previous(items, m, tenant, root, e);
    *first = json_array_size(items);
    if (!input || json_is_null(input))
        ok = api_fail(e, 400, "missing_required_parameter", "input", "'input' is missing.");
    else if (!json_is_string(input) && json_array_size(input) == 0)
        ok = api_fail(e, 400, "invalid_type", "input",
                      "'input' must be a string, or a list of at least one item.");
    else if (json_is_array(input) ? json_array_extend(items, input) != 0
                                  : json_array_append_new(items, json_pack("{s:s, s:O}", "role", "user",
                                                                           "content", input)) != 0)
        ok = api_fail_memory(e);
    if (ok)
        return items;
    json_decref(items);
    return NULL;
}

static bool is_instruction(const json_t *message) {
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0);
}

// Makes the instructions and the developer's messages behind them one: most templates take one system message, and first.
static bool join_instructions(json_t *messages, struct api_error *e) {
    json_t *first = json_array_get(messages, 0), *content = json_object_get(first, "content"), *parts;
    while (is_instruction(first) && is_instruction(json_array_get(messages, 1))) {
        if (json_is_string(content)) {
            parts = json_pack("[{s:s, s:O}]", "type", "text", "text", content);
            if (json_object_set_new(first, "content", parts) != 0)
                return api_fail_memory(e);
            content = parts;
        }
        json_t *more = json_object_get(json_array_get(messages, 1), "content");
        if (json_is_array(more)
                ? json_array_extend(content, more) != 0
                : json_array_append_new(content, json_pack("{s:s, s:O}", "type", "text", "text", more)) != 0)
            return api_fail_memory(e);
        json_array_remove(messages, 1);
    }
    return true;
}

// Instructions, then the items, as messages.
static bool read_messages(json_t *chat, const json_t *root, const json_t *items, size_t first,
                          struct api_error *e) {
    const json_t *instructions = field_get(root, "instructions");
    json_t *messages = json_array();
    if (json_object_set_new(chat, "messages", messages) != 0)
        return api_fail_memory(e);
    if (!check_text(root, "instructions", e))
        return false;
    if (json_string_length(instructions) > 0 &&
        json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "system", "content", instructions)) !=
            0)
        return api_fail_memory(e);
    return responses_read_items(messages, items, first, e) &&
           (json_string_length(instructions) == 0 || join_instructions(messages, e));
}

// The body as that of a chat; the caller frees it. NULL: e says why there is none.
static json_t *read_as_chat(const struct served_model *m, json_t *root, const json_t *items, size_t first,
                            json_t **foreign, struct api_error *e) {
    static const char *const own[] = {"input", "instructions",         "text",      "reasoning", "include",
                                      "store", "previous_response_id", "background"};
    json_t *chat = json_copy(root), *tools;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        json_object_del(chat, own[i]);
    for (const struct field_rule *rule = api.names.rules; rule->name; rule++) // these ask for nothing
        if (rule->fate == FIELD_REFUSED && (rule->where & api.names.where))
            json_object_del(chat, rule->name);
    bool ok = (chat || api_fail_memory(e)) && check_metadata(field_get(root, "metadata"), e) &&
              read_format(chat, field_get(root, "text"), e) && responses_read_choice(chat, e) &&
              read_include(chat, root, e) && read_reasoning(chat, field_get(root, "reasoning"), e) &&
              (tools = responses_read_tools(field_get(root, "tools"), m, foreign, e)) &&
              (json_object_set_new(chat, "tools", tools) == 0 || api_fail_memory(e)) &&
              read_messages(chat, root, items, first, e);
    if (ok)
        return chat;
    json_decref(chat);
    return NULL;
}

// Reads a body but for whether it leaves room for an output; `compacts`: that is a summary of the items. *r needs freeing, also
// on failure.
static bool read_body(struct completion_request *r, const struct served_model *m, json_t *root, bool compacts,
                      struct api_error *e) {
    uint8_t tenant[SHA256_BYTES];
    size_t first = 0;
    bool keep = false, background = false;
    memcpy(tenant, r->base.tenant, sizeof tenant);
    *r = openai_defaults(m);
    if (!root || !fields_refuse(root, &api.names, e) || !check_store(m, root, &keep, e) ||
        (!compacts && !check_background(m, root, keep, &background, e)))
        return false;
    json_t *items = read_items(m, tenant, root, &first, e), *users = compacts ? responses_users(items) : NULL;
    if (items && compacts && !responses_ask_summary(root, items, e)) {
        json_decref(items);
        items = NULL;
    }
    json_t *foreign = NULL, *chat = items ? read_as_chat(m, root, items, first, &foreign, e) : NULL;
    bool ok = chat && openai_chat_read(r, m, chat, foreign, e);
    structured_name(r, "text.format");
    memcpy(r->base.tenant, tenant, sizeof tenant);
    json_decref(foreign);
    r->background = background;
    if (ok)
        responses_repeat(&r->repeated, r, root);
    if (ok && (keep || compacts))
        rewrite_json(&r->items, compacts ? users : items);
    json_decref(users);
    json_decref(items);
    if (!ok && chat && strncmp(e->param, "messages", strlen("messages")) == 0)
        snprintf(e->param, sizeof e->param, "input");
    json_decref(chat);
    return ok && (!(r->repeated.failed || r->items.failed) || api_fail_memory(e));
}

static bool parse_body(struct completion_request *r, const struct served_model *m, const char *body,
                       size_t len, struct api_error *e) {
    json_t *root = body_load(body, len, e);
    bool ok = read_body(r, m, root, false, e) &&
              openai_check_room(m, r->max_tokens, r->base.prompts[0].len, "input", e);
    return openai_parse_end(r, m, root, &api, ok, e);
}

static bool parse_compaction(struct completion_request *r, const struct served_model *m, const char *body,
                             size_t len, struct api_error *e) {
    json_t *root = body_load(body, len, e);
    bool ok = read_body(r, m, root, true, e) &&
              openai_check_room(m, r->max_tokens, r->base.prompts[0].len, "input", e);
    return openai_parse_end(r, m, root, &api, ok, e);
}

bool responses_count(const struct served_model *m, const char *body, size_t len, struct buf *out,
                     char *ignored, struct api_error *e) {
    struct completion_request r = {0};
    json_t *root = body_load(body, len, e);
    bool ok = field_get(root, "previous_response_id") // a job does not know its owner
                  ? api_fail(e, 400, "unsupported_parameter", "previous_response_id", "Send the whole input.")
                  : read_body(&r, m, root, false, e);
    ok = openai_parse_end(&r, m, root, &api, ok, e);
    memcpy(ignored, r.base.ignored, IGNORED_SIZE);
    if (ok) {
        openai_write_count(out, r.base.prompts[0].len);
        completion_request_free(&r);
    }
    return e->status == 0;
}

const struct dialect openai_responses = {
    .id_prefix = RESPONSES_PREFIX,
    .form = &openai_form,
    .parse = parse_body,
    .content_logprobs = true,
    .begin = responses_begin,
    .end = responses_end,
    .state_bytes = responses_state_bytes,
    .logprob = openai_chat_logprob,
    .prompt_logprob = openai_prompt_logprob,
    .role = responses_created,
    .piece = responses_piece,
    .done = responses_done,
    .fail = responses_fail,
    .whole = responses_whole,
    .snapshot = responses_snapshot,
};

const struct dialect openai_compaction = {
    .id_prefix = RESPONSES_PREFIX,
    .form = &openai_form,
    .parse = parse_compaction,
    .content_logprobs = true,
    .begin = responses_compaction_begin,
    .logprob = openai_chat_logprob,
    .prompt_logprob = openai_prompt_logprob,
    .done = openai_done,
    .fail = openai_fail,
    .whole = responses_compaction,
};
