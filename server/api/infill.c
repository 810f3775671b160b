// The form of prompts is llama-server's format_prompt_infill(), but that BOS comes first where there are extra texts, too:
//
//   [REPO] myproject [FILE] name of an extra text, it … [FILE] filename [PREFIX] prefix, prompt [SUFFIX] suffix [MIDDLE]
//
// Without a token for files, a line parts extra texts. Texts of clients hold no control tokens; `prompt` may.
#include "infill.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static bool add_ids(struct token_buf *out, const token_id *ids, size_t n, struct api_error *e) {
    if (n > out->cap - out->len) {
        size_t cap = out->len + n > 2 * out->cap ? out->len + n : 2 * out->cap;
        token_id *grown = realloc(out->ids, cap * sizeof *grown);
        if (!grown)
            return api_fail_memory(e);
        out->ids = grown;
        out->cap = cap;
    }
    if (n)
        memcpy(out->ids + out->len, ids, n * sizeof *ids);
    out->len += n;
    return true;
}

static bool add_token(struct token_buf *out, token_id id, struct api_error *e) {
    return id < 0 || add_ids(out, &id, 1, e);
}

static bool add_text(struct token_buf *out, const struct served_model *m, const char *text, size_t len,
                     unsigned flags, const char *param, struct api_error *e) {
    if (text_is_hopeless(m, len))
        return api_fail_context(e, param, "the text has", 0, len, m->max_model_len);
    return api_check_encoded(e, param, tokenizer_encode(m->tokenizer, text, len, flags, out));
}

static bool add_string(struct token_buf *out, const struct served_model *m, const json_t *v, unsigned flags,
                       const char *param, struct api_error *e) {
    return !v || add_text(out, m, json_string_value(v), json_string_length(v), flags, param, e);
}

// A token and the line behind it.
static bool add_line(struct token_buf *out, const struct served_model *m, token_id id, const char *name,
                     size_t len, struct api_error *e) {
    struct buf line = {0};
    buf_add(&line, name, len);
    buf_char(&line, '\n');
    bool ok = line.failed
                  ? api_fail_memory(e)
                  : add_token(out, id, e) && add_text(out, m, line.data, line.len, 0, "input_extra", e);
    buf_free(&line);
    return ok;
}

static bool add_extra(struct token_buf *out, const struct served_model *m, const struct fim_tokens *fim,
                      const json_t *list, struct api_error *e) {
    static const char mark[] = "\n\n--- snippet ---\n\n", of_repo[] = "myproject", of_file[] = "filename";
    if (fim->repo >= 0 && !add_line(out, m, fim->repo, of_repo, sizeof of_repo - 1, e))
        return false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *chunk = json_array_get(list, i), *name = field_get(chunk, "filename"),
                     *text = field_get(chunk, "text");
        char param[40];
        snprintf(param, sizeof param, "input_extra[%zu]", i);
        if (!json_is_string(text) || (name && !json_is_string(name)))
            return api_fail(e, 400, "invalid_type", param,
                            "'%s' must be {\"filename\": string, \"text\": string}.", param);
        const char *file = name ? json_string_value(name) : "tmp";
        bool ok = fim->file >= 0
                      ? add_line(out, m, fim->file, file, name ? json_string_length(name) : strlen(file), e)
                      : add_text(out, m, mark, sizeof mark - 1, 0, param, e);
        if (!ok || !add_string(out, m, text, 0, param, e))
            return false;
    }
    return fim->file < 0 || add_line(out, m, fim->file, of_file, sizeof of_file - 1, e);
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

// Leaves out what the context has no room for beside an output: of the extra texts and the prefix the beginning, of the
// suffix, which keeps a quarter, the end. `others`: tokens that stay.
static void cut(struct token_buf *extra, struct token_buf *prefix, struct token_buf *suffix, size_t others,
                const struct completion_request *r, const struct served_model *m) {
    size_t room = (size_t)m->max_model_len;
    others += least((size_t)r->max_tokens, room / 4);
    room = room > others ? room - others : 0;
    size_t before = least(prefix->len, room - least(suffix->len, room / 4)),
           behind = least(suffix->len, room - before), extras = least(extra->len, room - before - behind);
    struct token_buf *const from[] = {extra, prefix};
    const size_t keep[] = {extras, before};
    for (int i = 0; i < 2; i++) {
        if (keep[i])
            memmove(from[i]->ids, from[i]->ids + from[i]->len - keep[i], keep[i] * sizeof *from[i]->ids);
        from[i]->len = keep[i];
    }
    suffix->len = behind;
}

bool infill_prompt(struct token_buf *out, const struct completion_request *r, const struct served_model *m,
                   const struct infill_texts *texts, struct api_error *e) {
    const struct fim_tokens *fim = tokenizer_fim(m->tokenizer);
    if (!fim)
        return api_fail(
            e, 400, "unsupported_parameter", texts->field,
            "This model does not fill in the middle: its vocabulary has no tokens for what stands "
            "before and behind it.");
    if (r->echo || r->truncate != INT_MAX)
        return api_fail(e, 400, NULL, texts->field, "'%s' excludes '%s'.", texts->field,
                        r->echo ? "echo" : "truncate_prompt_tokens");
    struct token_buf extra = {0}, prefix = {0}, prompt = {0}, suffix = {0};
    bool ok = add_extra(&extra, m, fim, texts->extra, e) &&
              add_string(&prefix, m, texts->prefix, 0, texts->cut ? "input_prefix" : "prompt", e) &&
              add_string(&prompt, m, texts->prompt, TOKENIZE_PARSE_SPECIAL, "prompt", e) &&
              add_string(&suffix, m, texts->suffix, 0, texts->field, e);
    if (ok && texts->cut)
        cut(&extra, &prefix, &suffix, prompt.len + 4, r, m); // and the tokens between them
    if (r->add_special && tokenizer_adds_bos(m->tokenizer))
        ok = ok && add_token(out, tokenizer_bos(m->tokenizer), e);
    ok = ok && add_ids(out, extra.ids, extra.len, e);
    for (int i = 0; i < 2; i++) {
        bool is_suffix = (i == 0) == fim->suffix_first;
        const struct token_buf *text = is_suffix ? &suffix : &prefix;
        ok = ok && add_token(out, is_suffix ? fim->suffix : fim->prefix, e) &&
             add_ids(out, text->ids, text->len, e) && add_ids(out, prompt.ids, is_suffix ? 0 : prompt.len, e);
    }
    ok = ok && add_token(out, fim->middle, e);
    token_buf_free(&extra);
    token_buf_free(&prefix);
    token_buf_free(&prompt);
    token_buf_free(&suffix);
    return ok;
}

bool infill_read(struct completion_request *r, const struct served_model *m, const json_t *root,
                 struct api_error *e) {
    const json_t *v = json_object_get(root, "prompt");
    const struct infill_texts texts = {.prefix = field_get(v, "input_prefix"),
                                       .suffix = field_get(v, "input_suffix"),
                                       .prompt = field_get(v, "prompt"),
                                       .extra = field_get(v, "input_extra"),
                                       .field = "input_suffix",
                                       .cut = true};
    for (int i = 0; i < 3; i++) {
        const char *name = (const char *const[]){"input_prefix", "input_suffix", "prompt"}[i];
        const json_t *text = field_get(v, name);
        if (!text && i < 2)
            return api_fail(e, 400, "missing_required_parameter", name, "'%s' is missing.", name);
        if (text && !json_is_string(text))
            return api_fail(e, 400, "invalid_type", name, "'%s' must be a string.", name);
    }
    if (texts.extra && !json_is_array(texts.extra))
        return api_fail(e, 400, "invalid_type", "input_extra", "'input_extra' must be a list.");
    if (!(r->base.prompts = calloc(1, sizeof *r->base.prompts)))
        return api_fail_memory(e);
    r->base.num_prompts = 1;
    return infill_prompt(&r->base.prompts[0], r, m, &texts, e);
}

bool infill_take(json_t *root, struct api_error *e) {
    static const char *const names[] = {"input_prefix", "input_suffix", "input_extra", "prompt"};
    json_t *texts = json_object();
    bool ok = texts;
    for (size_t i = 0; i < sizeof names / sizeof *names && ok; i++) {
        json_t *v = json_object_get(root, names[i]);
        ok = !v || json_object_set(texts, names[i], v) == 0;
        json_object_del(root, names[i]);
    }
    ok = ok && json_object_set(root, "prompt", texts) == 0;
    json_decref(texts);
    return ok || api_fail_memory(e);
}
