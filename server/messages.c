#include "messages.h"

#include "chat.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEMPLATE = 1 << 20 };

// ---- the template

static enum status read_file(struct buf *b, const char *path, struct err *err) {
    FILE *f = fopen(path, "rbe");
    if (!f)
        return err_set(err, STATUS_IO, "%s: %s", path, strerror(errno));
    char chunk[16384];
    size_t n;
    while (b->len <= MAX_TEMPLATE && (n = fread(chunk, 1, sizeof chunk, f)) > 0)
        buf_add(b, chunk, n);
    bool bad = ferror(f) || b->failed;
    fclose(f);
    return bad ? err_set(err, STATUS_IO, "%s: cannot be read", path) : STATUS_OK;
}

static bool find_controls(struct openai_model *m) {
    int vocab = tokenizer_vocab(m->tokenizer);
    for (token_id id = 0; id < vocab; id++)
        m->num_controls += tokenizer_is_special(m->tokenizer, id);
    if (!(m->controls = calloc((size_t)m->num_controls + 1, sizeof *m->controls)))
        return false;
    for (token_id id = 0, n = 0; id < vocab; id++)
        if (tokenizer_is_special(m->tokenizer, id))
            m->controls[n++] = id;
    return true;
}

enum status chat_open(struct openai_model *m, const char *path, struct err *err) {
    struct buf file = {0};
    size_t len;
    const char *source = tokenizer_chat_template(m->tokenizer, &len);
    if (path && read_file(&file, path, err) != STATUS_OK) {
        buf_free(&file);
        return err->code;
    }
    if (path) {
        source = file.data ? file.data : "";
        len = file.len;
    }
    snprintf(m->chat_problem, sizeof m->chat_problem, "This model has no chat template.");
    if (source && find_controls(m)) {
        struct err why = {0};
        m->chat = chat_template_new(source, len, &why);
        m->knows_developer = memmem(source, len, "developer", 9) != NULL;
        if (!m->chat && path)
            err_set(err, why.code, "%s: %s", path, why.msg);
        else if (!m->chat)
            snprintf(m->chat_problem, sizeof m->chat_problem,
                     "The model's chat template cannot be used: %.200s", why.msg);
    }
    buf_free(&file);
    return err->code;
}

void chat_close(struct openai_model *m) {
    chat_template_free(m->chat);
    free(m->controls);
    m->chat = NULL;
    m->controls = NULL;
}

// ---- messages

static void set(struct chat_arena *a, struct chat_value *dict, const char *key, struct chat_value *v) {
    chat_dict_set(a, dict, key, strlen(key), v);
}

static struct chat_value *name_of(struct chat_arena *a, const struct tokenizer *t, token_id id) {
    size_t len = 0;
    const char *name = id >= 0 ? tokenizer_name(t, id, &len) : "";
    return chat_string(a, name, len, false);
}

// Text parts are joined as they are.
static bool read_parts(struct buf *text, const json_t *parts, const char *param, struct api_error *e) {
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i), *words = field_get(part, "text");
        const char *type = json_string_value(field_get(part, "type"));
        char where[80];
        snprintf(where, sizeof where, "%s[%zu]", param, i);
        if (!json_is_object(part) || !type)
            return api_fail(e, 400, "invalid_type", where,
                            "A part of 'content' must be an object with a 'type'.");
        if (strcmp(type, "refusal") == 0)
            words = field_get(part, "refusal");
        else if (strcmp(type, "text") != 0)
            return api_fail(e, 400, "unsupported_parameter", where,
                            "Parts of type '%.40s' are not supported: this model reads text.", type);
        if (!json_is_string(words))
            return api_fail(e, 400, "invalid_type", where, "The text of a part must be a string.");
        buf_add(text, json_string_value(words), json_string_length(words));
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

static bool add_message(const struct openai_model *m, struct chat_arena *a, struct chat_value *list,
                        const json_t *message, size_t i, struct api_error *e) {
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    static const char *const refused[] = {"tool_calls", "function_call", "audio"};
    static const char *const words[] = {"name", "tool_call_id"};
    char param[48];
    snprintf(param, sizeof param, "messages[%zu]", i);
    if (!json_is_object(message))
        return api_fail(e, 400, "invalid_type", param, "A message must be an object.");
    const char *given = json_string_value(field_get(message, "role")), *role = NULL;
    for (size_t k = 0; given && k < sizeof roles / sizeof roles[0]; k++)
        if (strcmp(given, roles[k]) == 0)
            role = roles[k];
    snprintf(param, sizeof param, "messages[%zu].role", i);
    if (!role)
        return api_fail(e, 400, given ? NULL : "missing_required_parameter", param,
                        "'role' must be system, developer, user, assistant or tool.");
    for (size_t k = 0; k < sizeof refused / sizeof refused[0]; k++) {
        const json_t *v = field_get(message, refused[k]);
        snprintf(param, sizeof param, "messages[%zu].%s", i, refused[k]);
        if (v && !(json_is_array(v) && json_array_size(v) == 0))
            return api_fail(e, 400, "unsupported_parameter", param,
                            "'%s' is not supported by this version of the server.", refused[k]);
    }
    struct chat_value *dict = chat_dict(a);
    struct buf text = {0};
    const char *shown = strcmp(role, "developer") == 0 && !m->knows_developer ? "system" : role;
    set(a, dict, "role", chat_string(a, shown, strlen(shown), false));
    bool ok = read_content(&text, message, role, i, e);
    if (ok && text.failed)
        ok = api_fail(e, 503, "overloaded", NULL, "The server is out of memory.");
    set(a, dict, "content", chat_string(a, text.data ? text.data : "", text.len, true));
    buf_free(&text);
    for (size_t k = 0; ok && k < sizeof words / sizeof words[0]; k++) {
        const json_t *v = field_get(message, words[k]);
        snprintf(param, sizeof param, "messages[%zu].%s", i, words[k]);
        if (v && !json_is_string(v))
            ok = api_fail(e, 400, "invalid_type", param, "'%s' must be a string.", words[k]);
        else if (v)
            set(a, dict, words[k], chat_string(a, json_string_value(v), json_string_length(v), true));
    }
    chat_list_add(a, list, dict);
    return ok;
}

// ---- segments to tokens

// The longest control token whose name begins text; -1: none.
static token_id control_at(const struct openai_model *m, const char *text, size_t len, size_t *match) {
    token_id best = -1;
    *match = 0;
    for (int i = 0; i < m->num_controls; i++) {
        size_t n;
        const char *name = tokenizer_name(m->tokenizer, m->controls[i], &n);
        if (n > *match && n <= len && name[0] == text[0] && memcmp(name, text, n) == 0) {
            best = m->controls[i];
            *match = n;
        }
    }
    return best;
}

static bool push(struct token_buf *out, token_id id) {
    if (out->len == out->cap) {
        size_t cap = out->cap ? 2 * out->cap : 64;
        token_id *grown = realloc(out->ids, cap * sizeof *grown);
        if (!grown)
            return false;
        out->ids = grown;
        out->cap = cap;
    }
    out->ids[out->len++] = id;
    return true;
}

static bool flush_run(const struct openai_model *m, struct buf *run, struct token_buf *out) {
    bool ok = !run->failed &&
              (run->len == 0 || tokenizer_encode(m->tokenizer, run->data, run->len, 0, out) == STATUS_OK);
    buf_clear(run);
    return ok;
}

// Control tokens are looked for in the template's own text only; what is between two of them is one text,
// whoever wrote it, so that benign messages give the tokens that they give everywhere.
static bool encode(const struct openai_model *m, const struct chat_segment *segments, size_t n,
                   struct token_buf *out) {
    struct buf run = {0};
    size_t match;
    token_id bos = tokenizer_bos(m->tokenizer);
    bool ok = true;
    if (tokenizer_adds_bos(m->tokenizer) &&
        !(n && !segments[0].content && control_at(m, segments[0].text, segments[0].len, &match) == bos))
        ok = push(out, bos);
    for (size_t i = 0; i < n && ok; i++) {
        const struct chat_segment *s = &segments[i];
        for (size_t at = 0; at < s->len && ok;) {
            token_id id = s->content ? -1 : control_at(m, s->text + at, s->len - at, &match);
            if (id >= 0) {
                ok = flush_run(m, &run, out) && push(out, id);
                at += match;
            } else {
                size_t step = s->content ? s->len : 1;
                buf_add(&run, s->text + at, step);
                at += step;
            }
        }
    }
    ok = ok && flush_run(m, &run, out);
    buf_free(&run);
    return ok;
}

static bool render(const struct openai_model *m, struct chat_arena *a, const struct chat_value *globals,
                   struct token_buf *out, struct api_error *e) {
    const struct chat_segment *segments;
    size_t n, bytes = 0;
    struct err err = {0};
    enum status status = chat_render(m->chat, a, globals, &segments, &n, &err);
    if (status == STATUS_NOMEM)
        return api_fail(e, 503, "overloaded", NULL, "The server is out of memory.");
    if (status != STATUS_OK)
        return api_fail(e, 400, "template_error", "messages",
                        "The chat template refuses these messages: %.300s", err.msg);
    for (size_t i = 0; i < n; i++)
        bytes += segments[i].len;
    if (bytes / m->max_token_bytes > (size_t)m->max_model_len)
        return api_fail(
            e, 400, "context_length_exceeded", "messages",
            "This model's maximum context length is %d tokens; the messages have %zu bytes, which is "
            "more.",
            m->max_model_len, bytes);
    return encode(m, segments, n, out) ||
           api_fail(e, 503, "overloaded", NULL, "The server is out of memory.");
}

bool chat_prompt(const struct openai_model *m, const json_t *root, bool add_generation_prompt,
                 struct token_buf *out, struct api_error *e) {
    const json_t *messages = field_get(root, "messages");
    if (!m->chat)
        return api_fail(e, 400, "no_chat_template", "messages", "%s", m->chat_problem);
    if (!messages)
        return api_fail(e, 400, "missing_required_parameter", "messages", "'messages' is missing.");
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return api_fail(e, 400, "invalid_type", "messages",
                        "'messages' must be a list of at least one message.");
    struct chat_arena *a = chat_arena_new();
    if (!a)
        return api_fail(e, 503, "overloaded", NULL, "The server is out of memory.");
    struct chat_value *list = chat_list(a), *globals = chat_dict(a);
    bool ok = true;
    for (size_t i = 0; i < json_array_size(messages) && ok; i++)
        ok = add_message(m, a, list, json_array_get(messages, i), i, e);
    set(a, globals, "messages", list);
    set(a, globals, "bos_token", name_of(a, m->tokenizer, tokenizer_bos(m->tokenizer)));
    set(a, globals, "eos_token", name_of(a, m->tokenizer, tokenizer_eos(m->tokenizer)));
    set(a, globals, "add_generation_prompt", chat_bool(a, add_generation_prompt));
    ok = ok && render(m, a, globals, out, e);
    chat_arena_free(a);
    return ok;
}
