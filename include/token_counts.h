// How often each token occurs in a request, for penalties. Neither array is touched where no token is, so a large
// max_output costs address space only.
#pragma once

#include "kv_cache.h"

#ifdef __cplusplus
extern "C" {
#endif

struct token_count {
    token_id token;
    int32_t prompt, output; // occurrences
    float add;              // to its logit (token_history.h)
};

struct token_counts {
    struct token_count *list; // (num), room for max_tokens; NULL: nothing is counted
    int32_t *index;           // (cap, a power of two) 1 + place in the list, by open addressing; 0: free
    int num, cap;
};

// Counts the prompt. Allocates all that max_tokens (>= n) tokens need. False: out of memory; what there is,
// token_counts_free() frees.
bool token_counts_init(struct token_counts *c, int max_tokens, const token_id *prompt, int n);
void token_counts_free(struct token_counts *c);

// One occurrence more in the output; O(1). Nothing where nothing is counted.
void token_counts_add(struct token_counts *c, token_id token);
// The entry of a token that was counted.
struct token_count *token_counts_find(struct token_counts *c, token_id token);
// Takes back the last token_counts_add() that was not taken back, which was of this token.
void token_counts_take_back(struct token_counts *c, token_id token);

#ifdef __cplusplus
}
#endif
