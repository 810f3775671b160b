// Turns a request's own tokens into additions to the next logits: DRY, repeated n-grams, bad words. On the host, once
// for all backends.
#pragma once

#include "token_counts.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MAX_BAD_WORDS = 1024, MAX_BREAKERS = 128 }; // sequences

// Token sequences one behind the other: a length, so many ids, ..., a length of 0.
struct token_history_params {
    float dry_multiplier; // 0: no DRY
    float dry_base;       // >= 1
    // a repetition of so many tokens costs dry_multiplier, each further token dry_base times that
    int dry_allowed_length;
    int dry_last_n;      // tokens looked at; -1: all, 0: no DRY
    int no_repeat_ngram; // no sequence of so many tokens comes twice; 0: off
    // Repetitions do not reach back over a breaker: a token whose bit is set, or a sequence. NULL: none.
    const uint32_t *dry_breakers;
    const token_id *dry_sequences;
};

// Whether it looks at tokens at all.
static inline bool token_history_on(const struct token_history_params *p) {
    return (p->dry_multiplier > 0 && p->dry_last_n != 0) || p->no_repeat_ngram > 0;
}

// Sets `add` of every counted token to what p adds to its logit as the next after tokens[0..n), all of which are counted.
// scratch (n). O(n).
void token_history_adjust(struct token_counts *c, const struct token_history_params *p,
                          const token_id *tokens, int n, int32_t *scratch);

// Finds the sequences whose tokens but the last end the output: writes their last tokens, returns how many. out has
// room for one token per sequence.
int token_history_banned(const token_id *sequences, const token_id *output, int n, token_id *out);

#ifdef __cplusplus
}
#endif
