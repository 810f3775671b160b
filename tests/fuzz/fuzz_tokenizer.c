// Any text, any flags: the same ids word by word and through the heap, no special id unless asked for, and
// the bytes of the ids are the text.
#include "fuzz_vocab.h"
#include "text/tokenizer_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct tokenizer *t, *split;
    if (!t) {
        t = fuzz_vocab();
        split = fuzz_vocab();
        // "x▁" and "x▁a" forbid splitting at spaces; without them it is allowed, and must change nothing.
        split->splits_at_space = true;
        t->max_piece_len = split->max_piece_len = 12;
    }
    if (size == 0)
        return 0;
    unsigned flags = data[0];
    const char *text = (const char *)data + 1;
    size_t len = size - 1;
    struct token_buf a = {0}, b = {0};
    if (tokenizer_encode(t, text, len, flags, &a))
        abort();
    if (!memchr(text, 'x', len)) {
        if (tokenizer_encode(split, text, len, flags, &b))
            abort();
        if (a.len != b.len || (a.len && memcmp(a.ids, b.ids, a.len * sizeof *a.ids) != 0))
            abort();
    }
    if (!(flags & (TOKENIZE_ADD_SPECIAL | TOKENIZE_PARSE_SPECIAL)) && !memmem(text, len, "\xe2\x96\x81", 3)) {
        char *back = malloc(2 * len + 2);
        if (!back)
            abort();
        bool gap = true; // a dummy space comes first and after a token found before merging
        size_t at = 0;
        for (size_t i = 0; i < a.len; i++) {
            size_t l;
            const char *p = tokenizer_bytes(t, a.ids[i], false, &l);
            bool found = t->tokens[a.ids[i]].type == TOKEN_USER_DEFINED;
            if (tokenizer_is_special(t, a.ids[i]))
                abort();
            if (gap && !found && l > 0 && *p == ' ') {
                p++;
                l--;
            }
            gap = found;
            if (at + l > len || memcmp(text + at, p, l) != 0)
                abort();
            at += l;
        }
        if (at != len)
            abort();
        free(back);
    }
    token_buf_free(&a);
    token_buf_free(&b);
    return 0;
}
