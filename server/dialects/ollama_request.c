// Requests of Ollama's API, rewritten as those of OpenAI's: options become fields. A request without a prompt, by which
// clients load a model, becomes one for no output.
#include "ollama.h"

#include "api/field_rows.h"
#include "api/infill.h"
#include "api/messages.h"
#include "api/rewrite.h"
#include "api/structured.h"
#include "openai.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

// ---- names

// Places: the bodies of /api/chat, of /api/generate, of both; those for vectors; options; messages[].
enum {
    OLLAMA_CHAT = 1,
    OLLAMA_GENERATE = 2,
    OLLAMA = OLLAMA_CHAT | OLLAMA_GENERATE,
    VECTOR = 4,
    OPTIONS = 8,
    OLLAMA_MESSAGE = 16,
};
// clang-format off
static const struct field_rule rules[] = {
    READ("model", OLLAMA | VECTOR),
    READ("stream", OLLAMA),
    READ("options", OLLAMA),
    READ("format", OLLAMA),
    READ("think", OLLAMA),
    READ("logprobs", OLLAMA),
    READ("top_logprobs", OLLAMA),
    READ("messages", OLLAMA_CHAT),
    READ("tools", OLLAMA_CHAT),
    READ("prompt", OLLAMA_GENERATE),
    READ("suffix", OLLAMA_GENERATE),
    READ("system", OLLAMA_GENERATE),
    READ("context", OLLAMA_GENERATE),
    READ("raw", OLLAMA_GENERATE),
    READ("input", VECTOR),
    READ("prompt", VECTOR),
    READ("truncate", VECTOR),
    READ("dimensions", VECTOR),
    REFUSED("images", OLLAMA_GENERATE, EMPTY),
    REFUSED("template", OLLAMA_GENERATE, EMPTY),
    REFUSED("truncate", OLLAMA, OFF ", true"),
    HARMLESS("shift", OLLAMA, SHIFT),
    HARMLESS("keep_alive", OLLAMA | VECTOR, LOAD),
    HARMLESS("options", VECTOR, SWITCH),
    READ("num_ctx", OPTIONS),
    READ("num_predict", OPTIONS),
    READ("temperature", OPTIONS),
    READ("top_k", OPTIONS),
    READ("top_p", OPTIONS),
    READ("min_p", OPTIONS),
    READ("typical_p", OPTIONS),
    READ("repeat_penalty", OPTIONS),
    READ("presence_penalty", OPTIONS),
    READ("frequency_penalty", OPTIONS),
    READ("mirostat", OPTIONS),
    READ("mirostat_tau", OPTIONS),
    READ("mirostat_eta", OPTIONS),
    READ("seed", OPTIONS),
    READ("stop", OPTIONS),
    READ("repeat_last_n", OPTIONS),
    REFUSED("tfs_z", OPTIONS, EMPTY ", 1"),
    REFUSED("penalize_newline", OPTIONS, EMPTY ", true"),
    HARMLESS("num_keep", OPTIONS, SHIFT),
    HARMLESS("numa", OPTIONS, LOAD),
    HARMLESS("num_batch", OPTIONS, LOAD),
    HARMLESS("num_gpu", OPTIONS, LOAD),
    HARMLESS("main_gpu", OPTIONS, LOAD),
    HARMLESS("low_vram", OPTIONS, LOAD),
    HARMLESS("f16_kv", OPTIONS, LOAD),
    HARMLESS("logits_all", OPTIONS, LOAD),
    HARMLESS("vocab_only", OPTIONS, LOAD),
    HARMLESS("use_mmap", OPTIONS, LOAD),
    HARMLESS("use_mlock", OPTIONS, LOAD),
    HARMLESS("embedding_only", OPTIONS, LOAD),
    HARMLESS("num_thread", OPTIONS, LOAD),
    READ("role", OLLAMA_MESSAGE),
    READ("content", OLLAMA_MESSAGE),
    READ("thinking", OLLAMA_MESSAGE),
    READ("images", OLLAMA_MESSAGE),
    READ("tool_calls", OLLAMA_MESSAGE),
    READ("tool_name", OLLAMA_MESSAGE),
    READ("tool_call_id", OLLAMA_MESSAGE),
    {0},
};
// clang-format on

// A context longer than the server's, and a penalty of the last tokens alone: ours counts all.
static void find_ignored_options(char *list, const struct served_model *m, const json_t *root) {
    const json_t *options = json_object_get(root, "options"),
                 *penalty = json_object_get(options, "repeat_penalty");
    fields_add_effort(list, m, json_object_get(root, "think"), "think");
    fields_add_ignored(list, m, options, rules, OPTIONS, "options.");
    if (json_integer_value(json_object_get(options, "num_ctx")) > m->max_model_len)
        ignored_add(list, "options.", "num_ctx");
    if (json_integer_value(json_object_get(options, "repeat_last_n")) > 0 && json_is_number(penalty) &&
        json_number_value(penalty) != 1)
        ignored_add(list, "options.", "repeat_last_n");
}

static void find_ignored_inside(char *list, const struct served_model *m, const json_t *root) {
    const json_t *messages = json_object_get(root, "messages");
    bool room = true;
    find_ignored_options(list, m, root);
    fields_add_tools(list, m, root);
    for (size_t i = 0; i < json_array_size(messages) && room; i++)
        room = fields_add_ignored(list, m, json_array_get(messages, i), rules, OLLAMA_MESSAGE, "messages[].");
}

static const struct openai_api chat_api = {.names = {rules, OLLAMA_CHAT, find_ignored_inside}},
                               generate_api = {.names = {rules, OLLAMA_GENERATE, find_ignored_options}};
static const struct field_names vector_names = {rules, VECTOR, NULL}, option_names = {rules, OPTIONS, NULL};

static const char *const options[] = {"num_predict",
                                      "temperature",
                                      "top_k",
                                      "top_p",
                                      "min_p",
                                      "typical_p",
                                      "repeat_penalty",
                                      "presence_penalty",
                                      "frequency_penalty",
                                      "mirostat",
                                      "mirostat_tau",
                                      "mirostat_eta",
                                      "seed",
                                      "stop"};
enum { NUM_OPTIONS = sizeof options / sizeof *options };

// ---- the model

const char *ollama_model(const struct served_model *m, const json_t *root, struct api_error *e) {
    static const char tag[] = ":latest";
    const json_t *v = field_get(root, "model");
    const char *given = json_string_value(v);
    size_t len = json_string_length(v), base = len > sizeof tag - 1 ? len - (sizeof tag - 1) : 0;
    for (size_t i = 0; given && i < m->num_names; i++)
        if (base && strcmp(given + base, tag) == 0 && strlen(m->names[i]) == base &&
            memcmp(m->names[i], given, base) == 0)
            return m->names[i];
    return field_model(m, root, NULL, e);
}

// ---- options

// Clients ask for a context of their own liking: a longer one than the server's is the server's, and told.
static bool check_integer(const json_t *given, const char *name, json_int_t least, struct api_error *e) {
    const json_t *v = field_get(given, name);
    char param[48];
    snprintf(param, sizeof param, "options.%s", name);
    if (!v || (json_is_integer(v) && json_integer_value(v) >= least))
        return true;
    return api_fail(e, 400, json_is_integer(v) ? "out_of_range" : "invalid_type", param,
                    "'%s' must be an integer of at least %lld.", name, (long long)least);
}

static void name_option(struct api_error *e) {
    char name[sizeof e->param];
    snprintf(name, sizeof name, "options.%.100s", e->param);
    snprintf(e->param, sizeof e->param, "%s", name);
}

static bool rewrite_options(json_t *out, const json_t *given, struct api_error *e) {
    if (!given)
        return true;
    if (!json_is_object(given))
        return api_fail(e, 400, "invalid_type", "options", "'options' must be an object.");
    if (!fields_refuse(given, &option_names, e)) {
        name_option(e);
        return false;
    }
    if (!check_integer(given, "num_ctx", 1, e) || !check_integer(given, "repeat_last_n", -1, e))
        return false;
    for (int i = 0; i < NUM_OPTIONS; i++)
        if (!rewrite_copy(out, options[i], given, options[i], e))
            return false;
    const json_t *last_n = field_get(given, "repeat_last_n");
    if (last_n && json_integer_value(last_n) == 0) // a penalty of the last none
        json_object_del(out, "repeat_penalty");
    return true;
}

// ---- what chat and generate share

static bool rewrite_think(json_t *chat, const struct served_model *m, const json_t *think,
                          struct api_error *e) {
    const char *effort = json_name(think);
    if (!think)
        return true;
    if (!json_is_boolean(think) && !effort)
        return api_fail(e, 400, "invalid_type", "think",
                        "'think' must be true, false, \"low\", \"medium\" or \"high\".");
    if (effort)
        return rewrite_set(chat, "reasoning_effort", json_string(effort), e);
    if (json_is_true(think) && !rewrite_can_reason(m))
        return api_fail(e, 400, "unsupported_parameter", "think",
                        "This model does not reason: its chat template has no variable 'enable_thinking'.");
    return rewrite_thinking(chat, m, json_is_true(think), e);
}

static bool rewrite_format(json_t *out, const json_t *format, struct api_error *e) {
    const char *word = json_name(format);
    if (!format || (word && !*word))
        return true;
    if (word && strcmp(word, "json") == 0)
        return rewrite_set(out, "response_format", json_pack("{s:s}", "type", "json_object"), e);
    if (!json_is_object(format))
        return api_fail(e, 400, "invalid_type", "format", "'format' must be \"json\" or a JSON schema.");
    return rewrite_set(out, "response_format",
                       json_pack("{s:s,s:{s:s,s:O}}", "type", "json_schema", "json_schema", "name", "output",
                                 "schema", format),
                       e);
}

static bool rewrite_shared(json_t *out, const struct served_model *m, const json_t *root,
                           const struct openai_api *api, struct api_error *e) {
    const char *model = fields_refuse(root, &api->names, e) ? ollama_model(m, root, e) : NULL;
    const json_t *stream = json_object_get(root, "stream");
    return model && rewrite_set(out, "model", json_string(model), e) &&
           rewrite_set(out, "stream",
                       stream && !json_is_null(stream) ? json_incref((json_t *)stream) : json_true(), e) &&
           rewrite_options(out, field_get(root, "options"), e) &&
           rewrite_format(out, field_get(root, "format"), e);
}

// Names the field that OpenAI's reader refused as this API does.
static void name_param(struct api_error *e) {
    static const char *const names[][2] = {
        {"enable_thinking", "think"},          {"thinking", "think"},
        {"reasoning_effort", "think"},         {"response_format", "format"},
        {"max_tokens", "options.num_predict"}, {"repetition_penalty", "options.repeat_penalty"},
        {"continue_final_message", "messages"}};
    for (int i = 0; i < NUM_OPTIONS; i++) {
        size_t n = strlen(options[i]);
        if (strncmp(e->param, options[i], n) == 0 && (!e->param[n] || e->param[n] == '[')) {
            name_option(e);
            return;
        }
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(e->param, names[i][0]) == 0)
            snprintf(e->param, sizeof e->param, "%s", names[i][1]);
}

// A prompt of one token, of which nothing is generated.
static bool read_nothing(struct completion_request *r, const struct served_model *m, const json_t *root,
                         struct api_error *e) {
    (void)root;
    token_id bos = tokenizer_bos(m->tokenizer);
    if (!(r->base.prompts = calloc(1, sizeof *r->base.prompts)) ||
        !(r->base.prompts[0].ids = malloc(sizeof bos)))
        return api_fail_memory(e);
    r->base.num_prompts = 1;
    r->base.prompts[0].ids[0] = bos >= 0 ? bos : 0;
    r->base.prompts[0].len = r->base.prompts[0].cap = 1;
    r->max_tokens = 0;
    return true;
}

// ---- messages

// Calls have no ids here, and some templates want them: numbers, which the results get in the same order.
struct numbers {
    int calls, results;
};

static json_t *number(int n) {
    char text[16];
    snprintf(text, sizeof text, "%09d", n);
    return json_string(text);
}

static bool rewrite_calls(json_t *message, const json_t *calls, struct numbers *n, struct api_error *e) {
    json_t *list = json_array();
    if (!rewrite_set(message, "tool_calls", list, e))
        return false;
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *call = json_copy(json_array_get(calls, i));
        if (call && !json_is_object(call)) {
            json_decref(call);
            return api_fail(e, 400, "invalid_type", "messages", "A call of a tool must be an object.");
        }
        if (!rewrite_append(list, call, e) || !rewrite_set(call, "type", json_string("function"), e) ||
            (!field_get(call, "id") && !rewrite_set(call, "id", number(n->calls), e)))
            return false;
        n->calls++;
    }
    return true;
}

static bool rewrite_message(json_t *messages, const struct served_model *m, const json_t *given,
                            struct numbers *n, struct api_error *e) {
    static const char *const same[] = {"role", "content", "images", "tool_call_id"};
    json_t *message = json_object();
    const char *role = json_name(field_get(given, "role")), *member = rewrite_reasoning_member(m);
    const json_t *calls = field_get(given, "tool_calls");
    bool ok = rewrite_append(messages, message, e);
    for (size_t i = 0; ok && i < sizeof same / sizeof *same; i++)
        ok = rewrite_copy(message, same[i], given, same[i], e);
    ok = ok && (!member || rewrite_copy(message, member, given, "thinking", e)) &&
         rewrite_copy(message, "name", given, "tool_name", e) &&
         (!m->chat || !chat_template_names(m, "tool_name") ||
          rewrite_copy(message, "tool_name", given, "tool_name", e)) &&
         (!json_is_array(calls) || rewrite_calls(message, calls, n, e));
    if (ok && role && strcmp(role, "tool") == 0 && !field_get(given, "tool_call_id"))
        ok = rewrite_set(message, "tool_call_id", number(n->results++), e);
    return ok;
}

static bool rewrite_messages(json_t *chat, const struct served_model *m, const json_t *messages,
                             struct api_error *e) {
    struct numbers n = {0, 0};
    json_t *list = json_array();
    if (!rewrite_set(chat, "messages", list, e))
        return false;
    if (!json_is_array(messages))
        return api_fail(e, 400, "invalid_type", "messages", "'messages' must be a list.");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        char where[32];
        snprintf(where, sizeof where, "messages[%zu]", i);
        if (!json_is_object(json_array_get(messages, i)))
            return api_fail(e, 400, "invalid_type", where, "A message must be an object.");
        if (!rewrite_message(list, m, json_array_get(messages, i), &n, e))
            return false;
    }
    return true;
}

static bool read_log(json_t *chat, const json_t *root, struct api_error *e) {
    return rewrite_copy(chat, "logprobs", root, "logprobs", e) &&
           rewrite_copy(chat, "top_logprobs", root, "top_logprobs", e);
}

static bool read_chat(struct completion_request *r, const struct served_model *m, json_t *chat,
                      const char *param, struct api_error *e) {
    return openai_chat_read(r, m, chat, NULL, e) &&
           openai_check_room(m, r->max_tokens, r->base.prompts[0].len, param, e);
}

bool ollama_parse_chat(struct completion_request *r, const struct served_model *m, const char *body,
                       size_t len, struct api_error *e) {
    json_t *root = body_load(body, len, e), *chat = json_object();
    const json_t *messages = field_get(root, "messages");
    bool loads = !messages || (json_is_array(messages) && json_array_size(messages) == 0);
    *r = (struct completion_request){0};
    bool ok = root && (chat || api_fail_memory(e)) && rewrite_shared(chat, m, root, &chat_api, e) &&
              rewrite_think(chat, m, field_get(root, "think"), e) && read_log(chat, root, e);
    if (ok && loads) {
        ok = openai_completions_read(r, m, json_incref(chat), read_nothing, 0, e);
    } else {
        ok = ok && rewrite_copy(chat, "tools", root, "tools", e) && rewrite_messages(chat, m, messages, e) &&
             read_chat(r, m, chat, "messages", e);
    }
    json_decref(chat);
    r->continuous_usage = true; // the last line has it
    structured_name(r, "format");
    if (!ok)
        name_param(e);
    return openai_parse_end(r, m, root, &chat_api, ok, e);
}

// ---- generate

// Tokens of an earlier prompt and its output come before the prompt, which then needs no BOS.
static bool prepend_context(struct completion_request *r, const struct served_model *m, const json_t *context,
                            struct api_error *e) {
    size_t n = json_array_size(context);
    struct token_buf *prompt = &r->base.prompts[0], all = {0};
    if (context && !json_is_array(context))
        return api_fail(e, 400, "invalid_type", "context", "'context' must be a list of token ids.");
    if (n == 0)
        return true;
    if (!(all.ids = malloc((n + prompt->len) * sizeof *all.ids)))
        return api_fail_memory(e);
    all.cap = n + prompt->len;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(context, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= m->vocab) {
            free(all.ids);
            return api_fail(e, 400, "out_of_range", "context", "A token id must be an integer from 0 to %d.",
                            m->vocab - 1);
        }
        all.ids[all.len++] = (token_id)json_integer_value(id);
    }
    size_t skip = prompt->len > 0 && prompt->ids[0] == tokenizer_bos(m->tokenizer);
    memcpy(all.ids + all.len, prompt->ids + skip, (prompt->len - skip) * sizeof *all.ids);
    all.len += prompt->len - skip;
    token_buf_free(prompt);
    *prompt = all;
    return true;
}

// As it is, or what is to stand before `suffix`.
static bool read_raw(struct completion_request *r, const struct served_model *m, const json_t *root,
                     struct api_error *e) {
    const json_t *suffix = field_get(root, "suffix");
    return openai_read_prompts(r, m, root, "prompt", 1, json_string_length(suffix) ? suffix : NULL, e);
}

static bool rewrite_prompt(json_t *chat, const json_t *root, struct api_error *e) {
    const json_t *system = field_get(root, "system"), *prompt = field_get(root, "prompt");
    json_t *messages = json_array();
    if (!rewrite_set(chat, "messages", messages, e))
        return false;
    if (system && !json_is_string(system))
        return api_fail(e, 400, "invalid_type", "system", "'system' must be a string.");
    if (json_string_length(system) > 0 &&
        !rewrite_append(messages, json_pack("{s:s,s:O}", "role", "system", "content", system), e))
        return false;
    return rewrite_append(messages, json_pack("{s:s,s:O}", "role", "user", "content", prompt), e);
}

static bool read_generate(struct completion_request *r, const struct served_model *m, json_t *out,
                          const json_t *root, struct api_error *e) {
    const json_t *prompt = field_get(root, "prompt"), *raw = field_get(root, "raw"),
                 *suffix = field_get(root, "suffix");
    if (prompt && !json_is_string(prompt))
        return api_fail(e, 400, "invalid_type", "prompt", "'prompt' must be a string.");
    if (raw && !json_is_boolean(raw))
        return api_fail(e, 400, "invalid_type", "raw", "'raw' must be true or false.");
    if (suffix && !json_is_string(suffix))
        return api_fail(e, 400, "invalid_type", "suffix", "'suffix' must be a string.");
    if (json_string_length(prompt) + json_string_length(suffix) == 0)
        return openai_completions_read(r, m, json_incref(out), read_nothing, 0, e);
    if (!json_is_true(raw) && json_string_length(suffix) == 0)
        return rewrite_think(out, m, field_get(root, "think"), e) && read_log(out, root, e) &&
               rewrite_prompt(out, root, e) && openai_chat_read(r, m, out, NULL, e) &&
               prepend_context(r, m, field_get(root, "context"), e) &&
               openai_check_room(m, r->max_tokens, r->base.prompts[0].len, "prompt", e);
    static const char *const others[] = {"context", "system", "think", "logprobs"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const json_t *v = field_get(root, others[i]);
        if (json_is_true(v) || json_array_size(v) + json_string_length(v) > 0)
            return api_fail(e, 400, NULL, others[i], "'%s' has no effect with 'raw' or 'suffix'.", others[i]);
    }
    return rewrite_set(out, "prompt", prompt ? json_incref((json_t *)(uintptr_t)prompt) : json_string(""),
                       e) &&
           rewrite_copy(out, "suffix", root, "suffix", e) &&
           openai_completions_read(r, m, json_incref(out), read_raw, INT_MAX, e);
}

bool ollama_parse_generate(struct completion_request *r, const struct served_model *m, const char *body,
                           size_t len, struct api_error *e) {
    json_t *root = body_load(body, len, e), *out = json_object();
    *r = (struct completion_request){0};
    bool ok = root && (out || api_fail_memory(e)) && rewrite_shared(out, m, root, &generate_api, e) &&
              read_generate(r, m, out, root, e);
    json_decref(out);
    r->continuous_usage = true;
    structured_name(r, "format");
    r->return_ids = !json_is_true(field_get(root, "raw")); // they are the next request's context
    if (!ok)
        name_param(e);
    return openai_parse_end(r, m, root, &generate_api, ok, e);
}

// ---- vectors

// `name`: of the texts. Those that are too long are cut, unless `truncate` is false.
static bool parse_vectors(struct vector_request *r, const struct served_model *m, const char *body,
                          size_t len, const char *name, struct api_error *e) {
    json_t *root = body_load(body, len, e), *out = json_object();
    const json_t *cuts = field_get(root, "truncate");
    const char *model = NULL;
    *r = (struct vector_request){0};
    bool ok = root && (out || api_fail_memory(e)) && fields_refuse(root, &vector_names, e) &&
              (model = ollama_model(m, root, e)) && rewrite_set(out, "model", json_string(model), e) &&
              rewrite_copy(out, "input", root, name, e) &&
              rewrite_copy(out, "dimensions", root, "dimensions", e);
    if (ok && cuts && !json_is_boolean(cuts))
        ok = api_fail(e, 400, "invalid_type", "truncate", "'truncate' must be true or false.");
    ok = ok && (json_is_false(cuts) || rewrite_set(out, "truncate_prompt_tokens", json_integer(-1), e)) &&
         openai_embeddings_read(r, m, json_incref(out), e);
    json_decref(out);
    if (!ok && strncmp(e->param, "input", 5) == 0)
        snprintf(e->param, sizeof e->param, "%s", name);
    return vectors_parse_end(r, m, root, &vector_names, ok, e);
}

bool ollama_parse_embed(struct vector_request *r, const struct served_model *m, const char *body, size_t len,
                        struct api_error *e) {
    return parse_vectors(r, m, body, len, "input", e);
}

bool ollama_parse_embeddings(struct vector_request *r, const struct served_model *m, const char *body,
                             size_t len, struct api_error *e) {
    bool ok = parse_vectors(r, m, body, len, "prompt", e);
    r->normalize = false; // as the model gives it
    return ok;
}
