#include "result_message.h"

#include "log.h"

#include <stdlib.h>
#include <string.h>

// The message: what experts did, ids (R), logprob (R), rank (R), share (R), for each row that wants some its num_logprobs ids and as many
// log-probabilities, logits (R, V) where kept, hidden (R, D) where kept, failed (R).

static size_t num_top(const struct logits_row *row) {
    CHECK(row->num_logprobs <= MAX_TOP_LOGPROBS);
    return row->num_logprobs > 0 ? (size_t)row->num_logprobs : 0;
}

// The bytes of a row without its top tokens.
static size_t row_bytes(const struct result_shape *s) {
    return 4 * 4 + 1 + (s->keep_logits ? 4 * (size_t)s->vocab : 0) +
           (s->keep_hidden ? 4 * (size_t)s->hidden : 0);
}

size_t result_message_max_bytes(const struct result_shape *s, const struct step_limits *l) {
    return sizeof(struct expert_counts) + (row_bytes(s) + 2 * 4 * MAX_TOP_LOGPROBS) * (size_t)l->max_rows;
}

size_t result_message_bytes(const struct result_shape *s, const struct step *step) {
    size_t bytes = sizeof(struct expert_counts) + row_bytes(s) * (size_t)step->num_rows;
    for (int r = 0; r < step->num_rows; r++)
        bytes += 2 * 4 * num_top(&step->rows[r]);
    return bytes;
}

static void append_bytes(char **at, const void *data, size_t bytes) {
    memcpy(*at, data, bytes);
    *at += bytes;
}

static void take_bytes(const char **at, void *data, size_t bytes) {
    memcpy(data, *at, bytes);
    *at += bytes;
}

void result_message_write(const struct result_shape *s, void *message, const struct step_out *out,
                          const struct step *step) {
    size_t R = (size_t)step->num_rows;
    char *at = message;
    append_bytes(&at, &out->experts, sizeof out->experts);
    if (R == 0)
        return;
    append_bytes(&at, out->ids, R * 4);
    append_bytes(&at, out->logprob, R * 4);
    append_bytes(&at, out->rank, R * 4);
    append_bytes(&at, out->share, R * 4);
    for (size_t r = 0; r < R; r++) {
        size_t n = num_top(&step->rows[r]), first = r * (size_t)out->max_top;
        if (n == 0)
            continue;
        append_bytes(&at, out->top_ids + first, n * 4);
        append_bytes(&at, out->top_logprobs + first, n * 4);
    }
    if (s->keep_logits)
        append_bytes(&at, out->logits, R * (size_t)s->vocab * 4);
    if (s->keep_hidden)
        append_bytes(&at, out->hidden, R * (size_t)s->hidden * 4);
    append_bytes(&at, out->failed, R);
}

enum status results_init(struct results *r, const struct result_shape *s, const struct step_limits *l) {
    size_t R = (size_t)l->max_rows;
    *r = (struct results){0};
    r->ids = calloc(R, sizeof *r->ids);
    r->logprob = calloc(R, sizeof *r->logprob);
    r->rank = calloc(R, sizeof *r->rank);
    r->share = calloc(R, sizeof *r->share);
    r->top_ids = calloc(R * MAX_TOP_LOGPROBS, sizeof *r->top_ids);
    r->top_logprobs = calloc(R * MAX_TOP_LOGPROBS, sizeof *r->top_logprobs);
    r->failed = calloc(R, 1);
    if (s->keep_logits)
        r->logits = calloc(R * (size_t)s->vocab, sizeof *r->logits);
    if (s->keep_hidden)
        r->hidden = calloc(R * (size_t)s->hidden, sizeof *r->hidden);
    if (r->ids && r->logprob && r->rank && r->share && r->top_ids && r->top_logprobs && r->failed &&
        (r->logits || !s->keep_logits) && (r->hidden || !s->keep_hidden))
        return STATUS_OK;
    results_destroy(r);
    return STATUS_NOMEM;
}

void results_destroy(struct results *r) {
    free(r->ids);
    free(r->logprob);
    free(r->rank);
    free(r->share);
    free(r->top_ids);
    free(r->top_logprobs);
    free(r->logits);
    free(r->hidden);
    free(r->failed);
    *r = (struct results){0};
}

void result_message_read(const struct result_shape *s, struct results *r, const void *message,
                         const struct step *step, struct step_out *out) {
    size_t R = (size_t)step->num_rows;
    const char *at = message;
    *out = (struct step_out){.ids = r->ids,
                             .logprob = r->logprob,
                             .rank = r->rank,
                             .share = r->share,
                             .top_ids = r->top_ids,
                             .top_logprobs = r->top_logprobs,
                             .failed = r->failed,
                             .logits = r->logits,
                             .hidden = r->hidden,
                             .max_top = MAX_TOP_LOGPROBS};
    take_bytes(&at, &out->experts, sizeof out->experts);
    if (R == 0)
        return;
    take_bytes(&at, r->ids, R * 4);
    take_bytes(&at, r->logprob, R * 4);
    take_bytes(&at, r->rank, R * 4);
    take_bytes(&at, r->share, R * 4);
    for (size_t i = 0; i < R; i++) {
        size_t n = num_top(&step->rows[i]), first = i * MAX_TOP_LOGPROBS;
        if (n == 0)
            continue;
        take_bytes(&at, r->top_ids + first, n * 4);
        take_bytes(&at, r->top_logprobs + first, n * 4);
    }
    if (s->keep_logits)
        take_bytes(&at, r->logits, R * (size_t)s->vocab * 4);
    if (s->keep_hidden)
        take_bytes(&at, r->hidden, R * (size_t)s->hidden * 4);
    take_bytes(&at, r->failed, R);
}
