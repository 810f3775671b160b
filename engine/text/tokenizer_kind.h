// A kind of vocabulary: how its tokens are read from a file, and how text becomes ids.
#pragma once

#include "models/model_file.h"
#include "tokenizer_internal.h"

#include <string.h>

struct vocab_loader {
    const struct model_file *f;
    struct tokenizer *t;
    struct err *err;
    struct meta_array names, scores, types, strips;
};

struct tokenizer_kind {
    const char *name; // of the key tokenizer.ggml.model
    bool byte_level;  // tokens are spelled in the alphabet of bytes; a pre-tokenizer cuts words
    bool scored;      // tokens have scores, and special ones SentencePiece's ids where the file does not say
    // Writes the bytes that a token of this name adds to a text to dst, which has room for the name; returns
    // how many. NULL: tokens are numbers alone, which load() counts.
    size_t (*token_bytes)(struct text_view name, char *dst);
    // Marks the pieces and makes the tables, once tokens and settings are there. false: l->err is set.
    bool (*load)(struct vocab_loader *l);
    // Appends the ids of a stretch of text without special tokens. first: nothing came before it.
    // STATUS_NOMEM, STATUS_INVALID: texts have no ids.
    enum status (*encode)(const struct tokenizer *t, const char *text, size_t len, bool first,
                          struct token_buf *out);
};

extern const struct tokenizer_kind tokenizer_spm, tokenizer_bpe, tokenizer_listed, tokenizer_none;

static inline bool same(struct text_view s, const char *text) {
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}
