// See tokenizer_prepare.h.
#include "tokenizer_prepare.h"

bool load_normalizer(struct vocab_loader *l) {
    static const char key[] = "tokenizer.quire.normalizer";
    struct text_view words[PRE_MAX_WORDS];
    struct tokenizer *t = l->t;
    int n = pretokenizer_words(l->f, key, words, l->err);
    if (n == 0 && !meta_find(l->f, key) && t->pre && pretokenizer_wants_nfc(t->pre))
        words[n++] = view("NFC");
    return n == 0 || (n > 0 && (t->normalizer = normalizer_open(l->f, words, n, l->err)) != NULL);
}

bool load_preparation(struct vocab_loader *l) {
    struct text_view words[PRE_MAX_WORDS];
    struct tokenizer *t = l->t;
    if (!load_normalizer(l))
        return false;
    if (t->pre)
        return true;
    int n = pretokenizer_words(l->f, "tokenizer.quire.cuts", words, l->err);
    return n >= 0 && (t->pre = pretokenizer_of(l->f, words, n, l->err)) != NULL;
}
