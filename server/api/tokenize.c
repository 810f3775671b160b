#include "tokenize.h"

#include "field_table.h"
#include "generic_tools.h"

#include <string.h>

// ---- text to ids

struct tokenize {
    bool add_special_tokens, add_special, parse_special, return_token_strs, with_pieces,
        add_generation_prompt, continue_final;
};

#define AT(field) offsetof(struct tokenize, field)
static const struct field fields[] = {
    {"add_special_tokens", F_BOOL, 0, 0, false, AT(add_special_tokens)}, // vLLM
    {"return_token_strs", F_BOOL, 0, 0, false, AT(return_token_strs)},
    {"add_generation_prompt", F_BOOL, 0, 0, false, AT(add_generation_prompt)}, // with messages
    {"continue_final_message", F_BOOL, 0, 0, false, AT(continue_final)},
    {"add_special", F_BOOL, 0, 0, false, AT(add_special)}, // llama.cpp
    {"parse_special", F_BOOL, 0, 0, false, AT(parse_special)},
    {"with_pieces", F_BOOL, 0, 0, false, AT(with_pieces)},
};
enum { NUM_FIELDS = sizeof fields / sizeof fields[0] };
static const struct field_names tokenize_names = {field_rules, TOKENIZE_BODY, fields_inside_messages};
static const struct field_names detokenize_names = {field_rules, DETOKENIZE_BODY, NULL};

static const json_t *read_text(const json_t *root, const char **name, struct api_error *e) {
    const json_t *prompt = field_get(root, "prompt"), *content = field_get(root, "content");
    *name = prompt ? "prompt" : "content";
    if (prompt && content)
        api_fail(e, 400, NULL, "content", "Either 'prompt' or 'content' is needed, not both.");
    else if (!prompt && !content)
        api_fail(e, 400, "missing_required_parameter", "prompt", "'prompt' is missing.");
    else if (!json_is_string(prompt ? prompt : content))
        api_fail(e, 400, "invalid_type", *name, "'%s' must be a string.", *name);
    return e->status ? NULL : prompt ? prompt : content;
}

// llama.cpp's form of what a token is: text, or its bytes where they are no text.
static void write_piece(struct buf *b, const struct tokenizer *t, token_id id) {
    size_t len, bad;
    const char *s = tokenizer_bytes(t, id, true, &len);
    for (size_t i = 0; i < len;) {
        size_t n = utf8_sequence((const unsigned char *)s + i, len - i, &bad);
        if (!n) {
            for (i = 0; i < len; i++) {
                buf_char(b, i ? ',' : '[');
                buf_int(b, (unsigned char)s[i]);
            }
            buf_char(b, ']');
            return;
        }
        i += n;
    }
    json_quote(b, s, len);
}

static void write_tokens(struct buf *b, const struct served_model *m, const struct token_buf *ids,
                         const struct tokenize *q) {
    buf_lit(b, "{\"count\":");
    buf_int(b, (int64_t)ids->len);
    buf_lit(b, ",\"max_model_len\":");
    buf_int(b, m->max_model_len);
    buf_lit(b, ",\"tokens\":[");
    for (size_t i = 0; i < ids->len; i++) {
        if (i)
            buf_char(b, ',');
        if (q->with_pieces)
            buf_lit(b, "{\"id\":");
        buf_int(b, ids->ids[i]);
        if (q->with_pieces) {
            buf_lit(b, ",\"piece\":");
            write_piece(b, m->tokenizer, ids->ids[i]);
            buf_char(b, '}');
        }
    }
    buf_lit(b, "],\"token_strs\":");
    if (!q->return_token_strs) {
        buf_lit(b, "null}");
        return;
    }
    for (size_t i = 0; i < ids->len; i++) {
        size_t len;
        const char *name = tokenizer_name(m->tokenizer, ids->ids[i], &len);
        buf_char(b, i ? ',' : '[');
        json_quote(b, name, len);
    }
    buf_str(b, ids->len ? "]}" : "[]}");
}

static bool encode_text(const struct served_model *m, const json_t *root, struct tokenize *q,
                        struct token_buf *ids, struct api_error *e) {
    const char *name;
    const json_t *text = read_text(root, &name, e);
    // vLLM adds BOS unless told otherwise, llama.cpp only where it is told to. Either name says it.
    q->add_special = q->add_special_tokens = strcmp(name, "prompt") == 0;
    if (!text || !field_model(m, root, NULL, e) || !fields_read(q, fields, NUM_FIELDS, root, e))
        return false;
    size_t n = json_string_length(text);
    bool add = field_get(root, "add_special_tokens") ? q->add_special_tokens : q->add_special;
    unsigned flags = (add ? TOKENIZE_ADD_SPECIAL : 0u) | (q->parse_special ? TOKENIZE_PARSE_SPECIAL : 0u);
    if (text_is_hopeless(m, n))
        return api_fail_context(e, name, "the text has", 0, n, m->max_model_len);
    return api_check_encoded(e, name, tokenizer_encode(m->tokenizer, json_string_value(text), n, flags, ids));
}

// vLLM's chat form: the ids that the same messages give as a chat completion.
static bool encode_messages(const struct served_model *m, json_t *root, struct tokenize *q,
                            struct token_buf *ids, struct api_error *e) {
    if (!field_model(m, root, NULL, e) || !fields_read(q, fields, NUM_FIELDS, root, e))
        return false;
    if (field_get(root, "prompt") || field_get(root, "content"))
        return api_fail(e, 400, NULL, "messages", "Either 'messages' or a text is needed, not both.");
    if (q->add_special_tokens)
        return api_fail(e, 400, "unsupported_parameter", "add_special_tokens",
                        "With 'messages' the chat template says which special tokens there are.");
    return generic_tools_rewrite(root, m, e) &&
           chat_prompt(m, root, q->add_generation_prompt, q->continue_final, ids, NULL, e);
}

bool tokenize_response(const struct served_model *m, const char *body, size_t len, struct buf *out,
                       char *ignored, struct api_error *e) {
    json_t *root = body_load(body, len, e);
    struct tokenize q = {.parse_special = true, .add_generation_prompt = true};
    struct token_buf ids = {0};
    bool ok = root && fields_refuse(root, &tokenize_names, e) &&
              (field_get(root, "messages") ? encode_messages(m, root, &q, &ids, e)
                                           : encode_text(m, root, &q, &ids, e));
    if (fields_tell_ignored(ignored, m, root, &tokenize_names, ok, e))
        write_tokens(out, m, &ids, &q);
    token_buf_free(&ids);
    json_decref(root);
    return e->status == 0;
}

// ---- ids to text

static bool decode_ids(const struct served_model *m, const json_t *list, struct buf *text,
                       struct api_error *e) {
    size_t n = json_array_size(list), len;
    const char *piece;
    if (n > (size_t)m->max_model_len)
        return api_fail_context(e, "tokens", "'tokens' has", n, 0, m->max_model_len);
    // As a sequence: a control token is shown by its name, the dummy space of the beginning is not.
    const struct detok_params p = {.tokenizer = m->tokenizer, .strip_space = true};
    struct detok *d = detok_new(&p);
    if (!d)
        return api_fail_memory(e);
    for (size_t i = 0; i < n && !e->status; i++) {
        const json_t *id = json_array_get(list, i);
        char param[40];
        snprintf(param, sizeof param, "tokens[%zu]", i);
        if (!json_is_integer(id)) {
            api_fail(e, 400, "invalid_type", param, "A token id must be an integer.");
        } else if (json_integer_value(id) < 0 || json_integer_value(id) >= m->vocab) {
            api_fail(e, 400, "out_of_range", param, "The token id is out of vocabulary: 0 to %d.",
                     m->vocab - 1);
        } else {
            detok_push(d, (token_id)json_integer_value(id), &piece, &len);
            buf_add(text, piece, len);
        }
    }
    detok_finish(d, &piece, &len);
    buf_add(text, piece, len);
    detok_free(d);
    return e->status == 0;
}

static bool decode_body(const struct served_model *m, const json_t *root, struct buf *text,
                        struct api_error *e) {
    const json_t *list = field_get(root, "tokens");
    if (!list)
        return api_fail(e, 400, "missing_required_parameter", "tokens", "'tokens' is missing.");
    if (!json_is_array(list))
        return api_fail(e, 400, "invalid_type", "tokens", "'tokens' must be a list of token ids.");
    return field_model(m, root, NULL, e) && decode_ids(m, list, text, e);
}

bool detokenize_response(const struct served_model *m, const char *body, size_t len, struct buf *out,
                         char *ignored, struct api_error *e) {
    json_t *root = body_load(body, len, e);
    struct buf text = {0};
    bool ok = root && decode_body(m, root, &text, e);
    if (fields_tell_ignored(ignored, m, root, &detokenize_names, ok, e)) {
        out->failed |= text.failed;
        buf_lit(out, "{\"prompt\":"); // vLLM
        json_quote(out, text.data, text.len);
        buf_lit(out, ",\"content\":"); // llama.cpp
        json_quote(out, text.data, text.len);
        buf_char(out, '}');
    }
    buf_free(&text);
    json_decref(root);
    return e->status == 0;
}

// ---- what kind of tokenizer

static void write_special(struct buf *b, const struct tokenizer *t, token_id id) {
    size_t len;
    if (id < 0) {
        buf_lit(b, "null");
        return;
    }
    const char *name = tokenizer_name(t, id, &len);
    json_quote(b, name, len);
}

void write_template_info(struct buf *b, const struct served_model *m) {
    const struct tokenizer *t = m->tokenizer;
    buf_lit(b, "\"chat_template\":");
    if (m->template_source)
        json_quote(b, m->template_source, strlen(m->template_source));
    else
        buf_lit(b, "null");
    buf_lit(b, ",\"bos_token\":");
    write_special(b, t, tokenizer_bos(t));
    buf_lit(b, ",\"eos_token\":");
    write_special(b, t, tokenizer_eos(t));
}

void write_tokenizer_info(struct buf *b, const struct served_model *m) {
    const struct tokenizer *t = m->tokenizer;
    buf_char(b, '{');
    write_template_info(b, m);
    buf_lit(b, ",\"pad_token\":null,\"add_bos_token\":");
    buf_str(b, tokenizer_adds_bos(t) ? "true" : "false");
    buf_lit(b, ",\"vocab_size\":");
    buf_int(b, m->vocab);
    buf_lit(b, ",\"model_max_length\":");
    buf_int(b, m->max_model_len);
    buf_char(b, '}');
}
