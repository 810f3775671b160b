// The head: logits of the rows that draw or score, and sampling.
//
// With ranks each computes the logits of its own tokens for all rows. Rows are then dealt out: the rank that
// samples a row gets what the others know of it. That is their logits; or, where the best few tokens decide
// (greedy, top-k) and nobody asks for log-probabilities, their best few after edits and mask, which hold the
// best few of all. At the end all ranks have all answers.
#include "device.h"
#include "log.h"
#include "request.h"
#include "sampler.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct answer { // of one row, between ranks
    int32_t id, failed;
    float logprob, top_logprobs[MAX_TOP_LOGPROBS];
    int32_t top_ids[MAX_TOP_LOGPROBS];
};

// The best of one row among a rank's tokens, ids ascending, as a message: then num logits and num ids follow.
// num -1: a logit is not finite.
struct few {
    int32_t num;
    float logits[SAMPLER_FEW];
    int32_t ids[SAMPLER_FEW];
};

struct head_ranks {
    int begin[COMM_MAX_SUM], end[COMM_MAX_SUM]; // tokens of each rank
    int stride, least;                          // tokens of a row of `slice`; of the rank that has the fewest
    struct sampler **own;                       // (threads) for the tokens of this rank
    struct sampler **merging;                   // (threads) for the few of all ranks
    float *slice;                               // (head_rows, stride) logits of this rank's tokens
    char *out, *in;                             // (head_rows, stride) floats
    size_t *start;                              // (head_rows + 1) where the message of a row begins in `out`
    struct few *few;                            // (own rows, world)
    struct answer *mine, *all;                  // (own rows), (world, own rows)
};

static int num_own(const struct device *dev) { // most rows of head_rows that this rank samples
    return dev->limits.keep_logits ? dev->head_rows : (dev->head_rows + dev->world - 1) / dev->world;
}

// The rows of n that a rank samples. Kept logits are rank 0's.
static void own_rows(const struct device *dev, int n, int rank, int *begin, int *end) {
    bool kept = dev->limits.keep_logits;
    *begin = kept ? (rank ? n : 0) : n * rank / dev->world;
    *end = kept ? n : n * (rank + 1) / dev->world;
}

// ---- life

enum status cpu_head_open(struct device *dev) {
    if (dev->world == 1)
        return STATUS_OK;
    struct head_ranks *h = dev->head = calloc(1, sizeof *h);
    size_t threads = (size_t)pool_size(dev->pool);
    if (!h || !(h->own = calloc(threads, sizeof(struct sampler *))) ||
        !(h->merging = calloc(threads, sizeof(struct sampler *))))
        return STATUS_NOMEM;
    h->least = dev->model.vocab;
    for (int r = 0; r < dev->world; r++) {
        backend_vocab_rows(dev->model.vocab, r, dev->world, &h->begin[r], &h->end[r]);
        int n = h->end[r] - h->begin[r];
        h->least = n < h->least ? n : h->least;
        h->stride = sampler_row_size(n) > h->stride ? sampler_row_size(n) : h->stride;
    }
    for (size_t i = 0; i < threads; i++) {
        h->own[i] = sampler_open(h->end[dev->rank] - h->begin[dev->rank]);
        h->merging[i] = sampler_open(dev->world * SAMPLER_FEW);
        if (!h->own[i] || !h->merging[i])
            return STATUS_NOMEM;
    }
    return STATUS_OK;
}

void cpu_head_close(struct device *dev) {
    struct head_ranks *h = dev->head;
    if (!h)
        return;
    for (int i = 0; i < pool_size(dev->pool); i++) {
        if (h->own)
            sampler_close(h->own[i]);
        if (h->merging)
            sampler_close(h->merging[i]);
    }
    free(h->own);
    free(h->merging);
    free(h);
    dev->head = NULL;
}

void cpu_head_carve(struct device *dev, struct carver *c) {
    size_t rows = (size_t)dev->head_rows, own = (size_t)num_own(dev), world = (size_t)dev->world;
    struct head_ranks *h = dev->head;
    dev->logits =
        cpu_carve(c, (h ? own : rows) * (size_t)sampler_row_size(dev->model.vocab), sizeof *dev->logits);
    if (!h)
        return;
    h->slice = cpu_carve(c, rows * (size_t)h->stride, sizeof *h->slice);
    h->out = cpu_carve(c, rows * (size_t)h->stride, sizeof *h->slice);
    h->in = cpu_carve(c, own * (size_t)h->stride, sizeof *h->slice);
    h->start = cpu_carve(c, rows + 1, sizeof *h->start);
    h->few = cpu_carve(c, own * world, sizeof *h->few);
    h->mine = cpu_carve(c, own, sizeof *h->mine);
    h->all = cpu_carve(c, own * world, sizeof *h->all);
}

// ---- one rank

// Rows [first, first + num_rows) of the step.
struct head_job {
    struct device *dev;
    const struct step *step;
    struct result *out;
    int first, num_rows;
    _Atomic int next;
};

// Logits as the model means them; past n they are -infinity, up to whole groups.
static void scale_row(const struct device *dev, float *logits, int n) {
    float scale = dev->model.logit_scale;
    for (int v = n; v < sampler_row_size(n); v++)
        logits[v] = -INFINITY;
    for (int v = 0; scale != 1 && scale != 0 && v < n; v++)
        logits[v] *= scale;
}

static void sample_row(const struct head_job *job, struct sampler *sampler, int r, const float *logits) {
    struct result *out = job->out;
    size_t vocab = (size_t)job->dev->model.vocab;
    if (out->logits)
        memcpy(out->logits + (size_t)r * vocab, logits, vocab * sizeof *logits);
    struct sample s = {.top_ids = out->top_ids + (size_t)r * MAX_TOP_LOGPROBS,
                       .top_logprobs = out->top_logprobs + (size_t)r * MAX_TOP_LOGPROBS};
    sampler_row(sampler, job->dev->kernels, logits, &job->step->rows[r], job->step->edits,
                job->step->masks ? job->step->masks[r] : NULL, &s);
    out->ids[r] = s.id;
    out->logprob[r] = s.logprob;
    out->failed[r] = s.failed;
}

static void sample_share(void *ctx, int thread, int num_threads) {
    (void)num_threads;
    struct head_job *job = ctx;
    struct device *dev = job->dev;
    int vocab = dev->model.vocab, i;
    while ((i = atomic_fetch_add(&job->next, 1)) < job->num_rows) {
        float *logits = dev->logits + (size_t)i * (size_t)sampler_row_size(vocab);
        scale_row(dev, logits, vocab);
        sample_row(job, dev->samplers[thread], job->first + i, logits);
    }
}

// ---- ranks

// How many of each rank's best tokens decide the row, where they are a smaller message than its logits; 0:
// the logits are needed.
static int num_few(const struct device *dev, const struct head_row *row) {
    int k = sampler_few(row);
    bool smaller = (size_t)(1 + 2 * k) < (size_t)dev->head->least;
    return smaller && !dev->limits.keep_logits ? k : 0;
}

// Bytes of what `rank` says of the row.
static size_t message_bytes(const struct device *dev, const struct head_row *row, int rank) {
    int k = num_few(dev, row), n = dev->head->end[rank] - dev->head->begin[rank];
    return sizeof(float) * (size_t)(k > 0 ? 1 + 2 * k : n);
}

static struct few *few_at(const struct device *dev, int own, int rank) {
    return &dev->head->few[(size_t)own * (size_t)dev->world + (size_t)rank];
}

static void few_write(char *dst, const struct few *few, int k) {
    memcpy(dst, &few->num, sizeof few->num);
    memcpy(dst + 4, few->logits, (size_t)k * 4);
    memcpy(dst + 4 + (size_t)k * 4, few->ids, (size_t)k * 4);
}

static void few_read(struct few *few, const char *src, int k) {
    memcpy(&few->num, src, sizeof few->num);
    memcpy(few->logits, src + 4, (size_t)k * 4);
    memcpy(few->ids, src + 4 + (size_t)k * 4, (size_t)k * 4);
}

// Puts logits of a rank's tokens into the row that this rank samples.
static void place_logits(struct device *dev, int own, int rank, const void *logits) {
    const struct head_ranks *h = dev->head;
    float *row = dev->logits + (size_t)own * (size_t)sampler_row_size(dev->model.vocab);
    memcpy(row + h->begin[rank], logits, (size_t)(h->end[rank] - h->begin[rank]) * sizeof *row);
}

// What this rank knows of each row, written where it is needed: a message, or this rank's own place.
static void tell_share(void *ctx, int thread, int num_threads) {
    (void)num_threads;
    struct head_job *job = ctx;
    struct device *dev = job->dev;
    struct head_ranks *h = dev->head;
    int own0, own1, i, num = h->end[dev->rank] - h->begin[dev->rank];
    own_rows(dev, job->num_rows, dev->rank, &own0, &own1);
    while ((i = atomic_fetch_add(&job->next, 1)) < job->num_rows) {
        const struct head_row *row = &job->step->rows[job->first + i];
        float *logits = h->slice + (size_t)i * (size_t)h->stride;
        bool mine = i >= own0 && i < own1;
        int k = num_few(dev, row);
        struct few few;
        scale_row(dev, logits, num);
        if (k == 0 && mine) {
            place_logits(dev, i - own0, dev->rank, logits);
        } else if (k == 0) {
            memcpy(h->out + h->start[i], logits, (size_t)num * sizeof *logits);
        } else {
            const uint32_t *mask = job->step->masks ? job->step->masks[job->first + i] : NULL;
            memset(&few, 0, sizeof few);
            few.num = sampler_best_few(h->own[thread], dev->kernels, logits, h->begin[dev->rank], row,
                                       job->step->edits, mask, k, few.logits, few.ids);
            if (mine)
                *few_at(dev, i - own0, dev->rank) = few;
            else
                few_write(h->out + h->start[i], &few, k);
        }
    }
}

// Rows [own0, own1) as rank `from` knows them, out of its message.
static void hear(struct head_job *job, int from, int own0, int own1) {
    struct device *dev = job->dev;
    const char *message = dev->head->in;
    for (int i = own0; i < own1; i++) {
        const struct head_row *row = &job->step->rows[job->first + i];
        int k = num_few(dev, row);
        if (k > 0)
            few_read(few_at(dev, i - own0, from), message, k);
        else
            place_logits(dev, i - own0, from, message);
        message += message_bytes(dev, row, from);
    }
}

// Every pair of ranks tells each other about the rows that the other samples, the lower one first.
static bool exchange(struct head_job *job) {
    struct device *dev = job->dev;
    struct comm *c = dev->comm;
    struct head_ranks *h = dev->head;
    int own0, own1, n = job->num_rows;
    own_rows(dev, n, dev->rank, &own0, &own1);
    for (int s = 1; s < dev->world; s++) {
        int other = dev->rank ^ s, begin, end;
        own_rows(dev, n, other, &begin, &end);
        size_t out = h->start[end] - h->start[begin], in = 0;
        for (int i = own0; i < own1; i++)
            in += message_bytes(dev, &job->step->rows[job->first + i], other);
        bool ok = true;
        if (out > 0 && dev->rank < other)
            ok = cpu_comm_ok(dev, c->ops->send(c, h->out + h->start[begin], out, other));
        if (ok && in > 0)
            ok = cpu_comm_ok(dev, c->ops->recv(c, h->in, in, other));
        if (ok && out > 0 && dev->rank > other)
            ok = cpu_comm_ok(dev, c->ops->send(c, h->out + h->start[begin], out, other));
        if (!ok)
            return false;
        hear(job, other, own0, own1);
    }
    return true;
}

// The few of all ranks as one small row: in the order of ids, so that ties fall alike.
static void sample_few(const struct head_job *job, struct sampler *sampler, int own, int r) {
    struct device *dev = job->dev;
    struct head_row row = job->step->rows[r];
    float logits[COMM_MAX_SUM * SAMPLER_FEW];
    int32_t ids[COMM_MAX_SUM * SAMPLER_FEW];
    int n = 0;
    bool failed = false;
    for (int rank = 0; rank < dev->world; rank++) {
        const struct few *few = few_at(dev, own, rank);
        failed |= few->num < 0;
        for (int i = 0; i < few->num; i++, n++) {
            logits[n] = few->logits[i];
            ids[n] = few->ids[i];
        }
    }
    for (int i = n; i < dev->world * SAMPLER_FEW; i++)
        logits[i] = -INFINITY;
    row.edit_start = row.edit_end = 0; // done, and so is the mask
    struct sample s = {.failed = true};
    if (!failed)
        sampler_row(sampler, dev->kernels, logits, &row, NULL, NULL, &s);
    job->out->ids[r] = s.failed ? 0 : ids[s.id];
    job->out->logprob[r] = 0;
    job->out->failed[r] = s.failed;
}

static void sample_own_share(void *ctx, int thread, int num_threads) {
    (void)num_threads;
    struct head_job *job = ctx;
    struct device *dev = job->dev;
    int own0, own1, i, vocab = dev->model.vocab, padded = sampler_row_size(vocab);
    own_rows(dev, job->num_rows, dev->rank, &own0, &own1);
    while ((i = atomic_fetch_add(&job->next, 1)) < own1 - own0) {
        int r = job->first + own0 + i;
        float *logits = dev->logits + (size_t)i * (size_t)padded;
        if (num_few(dev, &job->step->rows[r]) > 0) {
            sample_few(job, dev->head->merging[thread], i, r);
            continue;
        }
        for (int v = vocab; v < padded; v++)
            logits[v] = -INFINITY;
        sample_row(job, dev->samplers[thread], r, logits);
    }
}

static void write_answers(const struct head_job *job, struct answer *answers, int begin, int end) {
    const struct result *out = job->out;
    for (int i = begin; i < end; i++, answers++) {
        size_t r = (size_t)(job->first + i);
        answers->id = out->ids[r], answers->failed = out->failed[r], answers->logprob = out->logprob[r];
        memcpy(answers->top_ids, out->top_ids + r * MAX_TOP_LOGPROBS, sizeof answers->top_ids);
        memcpy(answers->top_logprobs, out->top_logprobs + r * MAX_TOP_LOGPROBS, sizeof answers->top_logprobs);
    }
}

static void read_answers(const struct head_job *job, const struct answer *answers, int begin, int end) {
    struct result *out = job->out;
    for (int i = begin; i < end; i++, answers++) {
        size_t r = (size_t)(job->first + i);
        out->ids[r] = answers->id, out->failed[r] = answers->failed != 0, out->logprob[r] = answers->logprob;
        memcpy(out->top_ids + r * MAX_TOP_LOGPROBS, answers->top_ids, sizeof answers->top_ids);
        memcpy(out->top_logprobs + r * MAX_TOP_LOGPROBS, answers->top_logprobs, sizeof answers->top_logprobs);
    }
}

// All ranks get the answers of all rows.
static bool share_answers(struct head_job *job) {
    struct device *dev = job->dev;
    struct comm *c = dev->comm;
    int n = job->num_rows, begin, end, most = dev->limits.keep_logits ? n : (n + dev->world - 1) / dev->world;
    own_rows(dev, n, dev->rank, &begin, &end);
    write_answers(job, dev->head->mine, begin, end);
    size_t bytes = (size_t)most * sizeof(struct answer);
    if (!cpu_comm_ok(dev, c->ops->all_gather(c, dev->head->all, dev->head->mine, bytes)))
        return false;
    for (int rank = 0; rank < dev->world; rank++) {
        own_rows(dev, n, rank, &begin, &end);
        if (rank != dev->rank)
            read_answers(job, dev->head->all + (size_t)rank * (size_t)most, begin, end);
    }
    return true;
}

static void head_ranks(struct head_job *job, bool parallel) {
    struct device *dev = job->dev;
    struct head_ranks *h = dev->head;
    bool ok = true;
    h->start[0] = 0;
    for (int i = 0; i < job->num_rows; i++)
        h->start[i + 1] = h->start[i] + message_bytes(dev, &job->step->rows[job->first + i], dev->rank);
    atomic_init(&job->next, 0);
    pool_run(dev->pool, tell_share, job, parallel);
    if ((ok = exchange(job))) {
        atomic_store(&job->next, 0);
        pool_run(dev->pool, sample_own_share, job, parallel);
        ok = share_answers(job);
    }
    for (int i = 0; !ok && i < job->num_rows; i++) { // a later step may take these ids
        job->out->ids[job->first + i] = 0;
        job->out->failed[job->first + i] = 1;
    }
}

void cpu_head(struct device *dev, const void *resid, const struct model *model, const struct step *step) {
    CHECK(dev->has_head);
    struct result *out = &dev->result[dev->num_begun & 1];
    out->num_rows = step->num_rows;
    for (int r = 0; r < step->num_rows; r++)
        CHECK(step->rows[r].row >= 0 && step->rows[r].row < step->num_tokens &&
              step->rows[r].num_logprobs <= MAX_TOP_LOGPROBS);
    for (int r = 0; r < step->num_rows; r += dev->head_rows) {
        int n = step->num_rows - r < dev->head_rows ? step->num_rows - r : dev->head_rows;
        bool parallel = n > 1 && (long long)n * dev->model.vocab > 1 << 12;
        struct activations x = cpu_activations(dev, resid, n, step->rows + r, model->head, model->out_norm);
        float *y[3] = {dev->head ? dev->head->slice : dev->logits, NULL, NULL};
        int ldy[3] = {dev->head ? dev->head->stride : sampler_row_size(dev->model.vocab), 0, 0};
        cpu_matmul(dev, y, ldy, &x, model->head);
        struct head_job job = {.dev = dev, .step = step, .out = out, .first = r, .num_rows = n};
        if (dev->head) {
            head_ranks(&job, parallel);
            continue;
        }
        atomic_init(&job.next, 0);
        pool_run(dev->pool, sample_share, &job, parallel);
    }
}
