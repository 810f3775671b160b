// Any text, any flags, through each pre-tokenizer: no special id unless asked for, the bytes of the ids are
// the text (where it is not normalised), and the same ids whether words are remembered or merged each time.
#include "fuzz_vocab.h"
#include "text/tokenizer_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const pres[] = {"gpt-2", "deepseek-llm", "starcoder", "default", "llama-bpe", "qwen2"};
    enum { NUM_PRES = 6, IGNORES_MERGES = 4, NORMALISES = 5 };
    static struct tokenizer *vocabs[NUM_PRES], *merged[NUM_PRES];
    if (!vocabs[0])
        for (int i = 0; i < NUM_PRES; i++) {
            vocabs[i] = fuzz_vocab_bpe(pres[i]);
            merged[i] = fuzz_vocab_bpe(pres[i]);
            free(merged[i]->whole);
            merged[i]->whole = NULL;
        }
    if (size < 2)
        return 0;
    unsigned flags = data[0] & 3;
    int pre = data[1] % NUM_PRES;
    const struct tokenizer *t = vocabs[pre];
    const char *text = (const char *)data + 2;
    size_t len = size - 2, at = 0;
    struct token_buf a = {0}, b = {0};
    if (tokenizer_encode(t, text, len, flags, &a) || tokenizer_encode(merged[pre], text, len, flags, &b))
        abort();
    if (pre != IGNORES_MERGES &&
        (a.len != b.len || (a.len && memcmp(a.ids, b.ids, a.len * sizeof *a.ids) != 0)))
        abort();
    for (size_t i = 0; i < a.len && !(flags & TOKENIZE_ADD_SPECIAL); i++) {
        size_t l;
        const char *p = tokenizer_bytes(t, a.ids[i], true, &l);
        if (!(flags & TOKENIZE_PARSE_SPECIAL) && tokenizer_is_special(t, a.ids[i]))
            abort();
        if (pre != NORMALISES && (at + l > len || memcmp(text + at, p, l) != 0))
            abort();
        at += l;
    }
    if (!(flags & TOKENIZE_ADD_SPECIAL) && pre != NORMALISES && at != len)
        abort();
    token_buf_free(&a);
    token_buf_free(&b);
    return 0;
}
