#include "answers.h"

#include "log.h"
#include "request.h"

#include <stdlib.h>
#include <string.h>

// The message: ids (R), logprob (R), for each row that wants some its num_logprobs ids and as many
// log-probabilities, logits (R, V) where kept, failed (R).

static size_t num_tops(const struct head_row *row) {
    CHECK(row->num_logprobs <= MAX_TOP_LOGPROBS);
    return row->num_logprobs > 0 ? (size_t)row->num_logprobs : 0;
}

size_t answers_most_bytes(const struct step_limits *l, int vocab) {
    size_t row = 2 * 4 + 1 + 2 * 4 * MAX_TOP_LOGPROBS + (l->keep_logits ? 4 * (size_t)vocab : 0);
    return row * (size_t)l->max_rows;
}

size_t answers_bytes(const struct step *step, int vocab, bool keep_logits) {
    size_t row = 2 * 4 + 1 + (keep_logits ? 4 * (size_t)vocab : 0), bytes = row * (size_t)step->num_rows;
    for (int r = 0; r < step->num_rows; r++)
        bytes += 2 * 4 * num_tops(&step->rows[r]);
    return bytes;
}

static void put(char **at, const void *data, size_t bytes) {
    memcpy(*at, data, bytes);
    *at += bytes;
}

static void get(const char **at, void *data, size_t bytes) {
    memcpy(data, *at, bytes);
    *at += bytes;
}

void answers_write(void *message, const struct step_out *out, const struct step *step, int vocab) {
    size_t R = (size_t)step->num_rows;
    char *at = message;
    if (R == 0)
        return;
    put(&at, out->ids, R * 4);
    put(&at, out->logprob, R * 4);
    for (size_t r = 0; r < R; r++) {
        size_t n = num_tops(&step->rows[r]), first = r * (size_t)out->max_top;
        if (n == 0)
            continue;
        put(&at, out->top_ids + first, n * 4);
        put(&at, out->top_logprobs + first, n * 4);
    }
    if (out->logits)
        put(&at, out->logits, R * (size_t)vocab * 4);
    put(&at, out->failed, R);
}

enum status answers_init(struct answers *a, const struct step_limits *l, int vocab) {
    size_t R = (size_t)l->max_rows;
    *a = (struct answers){.vocab = vocab};
    a->ids = calloc(R, sizeof *a->ids);
    a->logprob = calloc(R, sizeof *a->logprob);
    a->top_ids = calloc(R * MAX_TOP_LOGPROBS, sizeof *a->top_ids);
    a->top_logprobs = calloc(R * MAX_TOP_LOGPROBS, sizeof *a->top_logprobs);
    a->failed = calloc(R, 1);
    if (l->keep_logits)
        a->logits = calloc(R * (size_t)vocab, sizeof *a->logits);
    if (a->ids && a->logprob && a->top_ids && a->top_logprobs && a->failed && (a->logits || !l->keep_logits))
        return STATUS_OK;
    answers_destroy(a);
    return STATUS_NOMEM;
}

void answers_destroy(struct answers *a) {
    free(a->ids);
    free(a->logprob);
    free(a->top_ids);
    free(a->top_logprobs);
    free(a->logits);
    free(a->failed);
    *a = (struct answers){0};
}

void answers_read(struct answers *a, const void *message, const struct step *step, struct step_out *out) {
    size_t R = (size_t)step->num_rows;
    const char *at = message;
    *out = (struct step_out){a->ids,    a->logprob, a->top_ids,      a->top_logprobs,
                             a->failed, a->logits,  MAX_TOP_LOGPROBS};
    if (R == 0)
        return;
    get(&at, a->ids, R * 4);
    get(&at, a->logprob, R * 4);
    for (size_t r = 0; r < R; r++) {
        size_t n = num_tops(&step->rows[r]), first = r * MAX_TOP_LOGPROBS;
        if (n == 0)
            continue;
        get(&at, a->top_ids + first, n * 4);
        get(&at, a->top_logprobs + first, n * 4);
    }
    if (a->logits)
        get(&at, a->logits, R * (size_t)a->vocab * 4);
    get(&at, a->failed, R);
}
