// How byte-level vocabularies cut words, by name (tokenizer.ggml.pre).
#pragma once

#include <stdbool.h>

enum { PRE_MAX_PATTERNS = 6 };

struct pre_kind {
    const char *names; // with spaces between
    bool nfc;          // texts are brought into normalisation form C before
    // Where the file does not say:
    bool ignore_merges; // a word that is a token is taken whole
    bool add_bos;
    const char *patterns[PRE_MAX_PATTERNS]; // each cuts what the ones before it left
    // Before them: runs of digits, which are cut into threes from the right. NULL: none.
    const char *digits;
    bool joined; // a run that is no multiple of three begins in the word before it
};

extern const struct pre_kind pre_kinds[];
extern const int num_pre_kinds;
