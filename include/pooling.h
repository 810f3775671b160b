// How a sequence becomes one vector: of an embedding model or a reranker, in place of logits. The numbers are GGUF's.
#pragma once

enum pooling {
    POOLING_NONE, // the model generates tokens
    POOLING_MEAN, // of the normalised hidden states of all tokens
    POOLING_CLS,  // that of the first token
    POOLING_LAST, // that of the last token
    POOLING_RANK, // in files and flags alone: one of those, which then goes through the model's classifier
    NUM_POOLINGS,
};

// Its name in flags and responses.
static inline const char *pooling_name(enum pooling p) {
    static const char *const names[NUM_POOLINGS] = {"none", "mean", "cls", "last", "rank"};
    return names[p];
}
