// What a step gave, on its way from the ranks of the last stage to rank 0: a message in place of memory that
// they may not share.
#pragma once

#include "backend.h"

#include <stdbool.h>

// The most bytes of a message within the limits. Its size follows from the step alone, so that both sides
// know it.
size_t answers_most_bytes(const struct step_limits *limits, int vocab);
size_t answers_bytes(const struct step *step, int vocab, bool keep_logits);
// Writes a message of answers_bytes(); out->logits where logits are kept.
void answers_write(void *message, const struct step_out *out, const struct step *step, int vocab);

// The arrays of a step_out, owned.
struct answers {
    int32_t *ids, *top_ids;
    float *logprob, *top_logprobs, *logits; // logits NULL: not kept
    uint8_t *failed;
    int vocab;
};

enum status answers_init(struct answers *a, const struct step_limits *limits, int vocab); // STATUS_NOMEM
void answers_destroy(struct answers *a);                                                  // zeroed is allowed
// Takes a message apart. *out points into a.
void answers_read(struct answers *a, const void *message, const struct step *step, struct step_out *out);
