// Sampling a token from one row of logits: kernels/README.md, rules 12 to 16. The oracle is ref_sample().
#pragma once

#include "backend.h"
#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sampler; // scratch for one thread

struct sample {
    int32_t id;
    bool failed;
    float logprob;       // where num_logprobs >= 0
    int32_t rank;        // where num_logprobs >= 0; else 0
    float share;         // where least_share > 0 and the temperature is; else 0
    int32_t *top_ids;    // (num_logprobs) the caller's
    float *top_logprobs; // (num_logprobs) the caller's
};

// Logits that a row holds: vocab rounded up to 16; those past vocab are -infinity.
static inline int sampler_row_size(int vocab) { return (vocab + LANES - 1) / LANES * LANES; }

enum { SAMPLER_MAX_TOPK = 64 };

// How many of the best tokens of a row, after entries and mask, decide the sample: at most SAMPLER_MAX_TOPK.
// 0: all may matter, or log-probabilities are wanted, or the row has a target.
int sampler_local_k(const struct logits_row *row);

struct sampler *sampler_open(int vocab); // NULL: out of memory
void sampler_close(struct sampler *s);   // NULL is allowed

// logits (sampler_row_size(vocab)), left as they are. mask may be NULL. Never allocates. Subnormal numbers
// must be flushed (pool_run), or be absent.
void sampler_row(struct sampler *s, const struct cpu_kernels *kernels, const float *logits,
                 const struct logits_row *row, const struct logit_entry *entries, const uint32_t *mask,
                 struct sample *out);

// The best k tokens of a part of the vocabulary after entries and mask, for a row that a few decide. s is for
// as many tokens as the part has: [begin, begin + n), begin a multiple of 32; logits (sampler_row_size(n))
// are theirs; row, entries and mask speak of all tokens. best and ids (k): by ascending id. Returns how many
// there are (those that cannot be sampled are left out), or -1 where a logit is NaN or +infinity (rule 13).
int sampler_local_topk(struct sampler *s, const struct cpu_kernels *kernels, const float *logits, int begin,
                       const struct logits_row *row, const struct logit_entry *entries, const uint32_t *mask,
                       int k, float *best, int32_t *ids);

#ifdef __cplusplus
}
#endif
