// How a sequence becomes one vector: of an embedding model or a reranker, in place of logits. The numbers are GGUF's.
#pragma once

enum pooling {
    POOLING_NONE, // the model generates tokens
    POOLING_MEAN, // of the normalised hidden states of all tokens
    POOLING_CLS,  // that of the first token
    POOLING_LAST, // that of the last token
};
