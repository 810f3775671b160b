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
    bool scored;      // tokens must have scores; and texts get a space in front
    // Where the file does not say: ids, -1: none, and which a text gets.
    token_id bos, eos, unk;
    bool add_bos, add_eos;
    const char *begins,
        *ends; // keys of the tokens that a text always gets; NULL: those of bos and eos, if the file says so
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

// Reads an id from its key: preset where the key is absent, -1 where the file says that there is none. One beyond the
// vocabulary fails where strict, else there is none. false: l->err is set, as by the next (tokenizer_id.c).
bool load_id(struct vocab_loader *l, const char *key, bool strict, token_id *id);
// Finds the tokens of t->fim, once tokens and settings are there; they become control tokens (tokenizer_fim.c).
bool load_fim(struct vocab_loader *l);

extern const struct tokenizer_kind tokenizer_spm, tokenizer_bpe, tokenizer_clip, tokenizer_listed,
    tokenizer_gemma4, tokenizer_wordpiece, tokenizer_wordpiece_json, tokenizer_unigram,
    tokenizer_unigram_json, tokenizer_none;

static inline bool same(struct text_view s, const char *text) {
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}
