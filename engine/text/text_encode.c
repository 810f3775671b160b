// Segments of a rendered conversation to ids.
#include "text.h"

#include "buf.h"
#include "jinja/chat.h"
#include "tokenizer_internal.h"

// The longest control token whose name text begins with; -1: none.
static token_id control_at(const struct tokenizer *t, const char *text, size_t len, size_t *match_len) {
    return find_special(t, text, len, TOKEN_SPECIAL, 0, match_len);
}

// Encodes the text between two control tokens; -1: there is none.
static enum status flush_text(const struct tokenizer *t, token_id before, token_id after, struct buf *text,
                              struct token_buf *out) {
    enum status status = text->failed ? STATUS_NOMEM : STATUS_OK;
    const char *p = text->data;
    size_t len = text->len;
    if (before >= 0 && len > 0 && (t->tokens[before].flags & TOKEN_RSTRIP)) {
        size_t n = space_at_start(p, len);
        p += n;
        len -= n;
    }
    if (after >= 0 && len > 0 && (t->tokens[after].flags & TOKEN_LSTRIP))
        len -= space_at_end(p, len);
    if (status == STATUS_OK && len > 0)
        status = tokenizer_encode(t, p, len, before >= 0 ? TOKENIZE_CONTINUES : 0, out);
    buf_clear(text);
    return status;
}

enum status text_encode(const struct tokenizer *t, const struct chat_segment *segments, size_t n,
                        struct token_buf *out) {
    struct buf text = {0}; // since the last control token
    size_t match_len;
    token_id last = -1; // control token
    enum status status = STATUS_OK;
    bool has_bos = n && !segments[0].content && segments[0].len &&
                   control_at(t, segments[0].text, segments[0].len, &match_len) == t->bos;
    if (tokenizer_adds_bos(t) && !has_bos)
        status = token_push(out, t->bos);
    for (size_t i = 0; i < n && status == STATUS_OK; i++) {
        const struct chat_segment *s = &segments[i];
        for (size_t at = 0; at < s->len && status == STATUS_OK;) {
            token_id id = s->content ? -1 : control_at(t, s->text + at, s->len - at, &match_len);
            if (id >= 0) {
                status = flush_text(t, last, id, &text, out);
                if (status == STATUS_OK)
                    status = token_push(out, id);
                last = id;
                at += match_len;
            } else {
                size_t step = s->content ? s->len : 1;
                buf_add(&text, s->text + at, step);
                at += step;
            }
        }
    }
    if (status == STATUS_OK)
        status = flush_text(t, last, -1, &text, out);
    buf_free(&text);
    return status;
}
