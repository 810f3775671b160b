// The results of a step as a message from the last stage to rank 0, which may be in another process.
#pragma once

#include "backend.h"

#include <stdbool.h>

struct result_shape {
    int vocab, hidden; // V, D
    bool keep_logits, keep_hidden;
};

// Bytes of the longest message within the limits, and of this step's: both sides know it from the step.
size_t result_message_max_bytes(const struct result_shape *shape, const struct step_limits *limits);
size_t result_message_bytes(const struct result_shape *shape, const struct step *step);
void result_message_write(const struct result_shape *shape, void *message, const struct step_out *out,
                          const struct step *step);

// The arrays of a step_out, owned.
struct results {
    int32_t *ids, *rank, *top_ids;
    float *logprob, *share, *top_logprobs, *logits, *hidden; // logits, hidden NULL: not kept
    uint8_t *failed;
};

// STATUS_NOMEM leaves nothing allocated.
enum status results_init(struct results *r, const struct result_shape *shape,
                         const struct step_limits *limits);
void results_destroy(struct results *r); // zeroed is allowed
// Unpacks a message into r; *out points into r.
void result_message_read(const struct result_shape *shape, struct results *r, const void *message,
                         const struct step *step, struct step_out *out);
