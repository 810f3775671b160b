// A tokenizer as filters see it.
#include "tokenizer.h"

#include <limits.h>
#include <string.h>

static const char *token_bytes(const void *state, token_id token, bool named, size_t *len) {
    return tokenizer_bytes(state, token, named, len);
}

static bool is_end(const void *state, token_id token) { return tokenizer_is_end(state, token); }
static bool is_control(const void *state, token_id token) { return tokenizer_is_special(state, token); }

static int encode(const void *state, const char *text, size_t len, bool named, token_id *ids, int max) {
    struct token_buf b = {0};
    unsigned flags = TOKENIZE_CONTINUES | (named ? TOKENIZE_PARSE_SPECIAL : 0);
    int n = tokenizer_encode(state, text, len, flags, &b) == STATUS_OK && b.len <= INT_MAX ? (int)b.len : -1;
    int written = n < max ? n : max;
    if (written > 0)
        memcpy(ids, b.ids, (size_t)written * sizeof *ids);
    token_buf_free(&b);
    return n;
}

struct vocabulary tokenizer_vocabulary(const struct tokenizer *t) {
    return (struct vocabulary){t, tokenizer_vocab(t), token_bytes, is_end, is_control, encode};
}
