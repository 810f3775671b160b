// No vocabulary: a model that reads and gives ids alone.
#include "tokenizer_kind.h"

#include <stdio.h>
#include <stdlib.h>

static bool load(struct vocab_loader *l) {
    char key[80];
    struct text_view arch = {"", 0};
    int64_t vocab = 0;
    if (meta_str(l->f, "general.architecture", true, 64, &arch, l->err))
        return false;
    snprintf(key, sizeof key, "%.*s.vocab_size", (int)arch.len, arch.data);
    if (meta_int(l->f, key, true, 1, 1 << 22, &vocab, l->err))
        return false;
    l->t->num_tokens = (int)vocab;
    l->t->bos = l->t->eos = l->t->unk = -1;
    l->t->tokens = calloc((size_t)vocab, sizeof *l->t->tokens);
    l->t->text = calloc(1, 1);
    if (!l->t->tokens || !l->t->text) {
        err_set(l->err, STATUS_NOMEM, "%s: out of memory for %d tokens", l->f->name, l->t->num_tokens);
        return false;
    }
    return true;
}

static enum status encode(const struct tokenizer *t, const char *text, size_t len, bool first,
                          struct token_buf *out) {
    (void)t, (void)text, (void)len, (void)first, (void)out;
    return STATUS_INVALID;
}

const struct tokenizer_kind tokenizer_none = {
    .name = "no_vocab", .bos = -1, .eos = -1, .unk = -1, .load = load, .encode = encode};
