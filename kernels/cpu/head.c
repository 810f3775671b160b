// The head: logits of the logits rows, and sampling.
//
// Each rank computes the logits of its own slice of the vocabulary for all rows. Each row is then sampled by
// one rank, to which the others send their logits; or, where a few tokens decide the row (greedy, top-k) and
// no log-probabilities are wanted, their local top-k after entries and mask, which together hold the top-k of
// the whole vocabulary. In the end all ranks have the results of all rows.
#include "device.h"
#include "log.h"
#include "sampler.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct row_result { // of one row, between ranks
    int32_t id, failed, rank;
    float logprob, share, top_logprobs[MAX_TOP_LOGPROBS];
    int32_t top_ids[MAX_TOP_LOGPROBS];
};

// The top-k of one row among a rank's tokens, ids ascending; as a message num, then k logits and k ids. num
// -1: a logit is not finite.
struct topk {
    int32_t num;
    float logits[SAMPLER_MAX_TOPK];
    int32_t ids[SAMPLER_MAX_TOPK];
};

struct head_ranks {
    int begin[COMM_MAX_SUM], end[COMM_MAX_SUM]; // tokens of each rank
    int stride, least;                          // tokens of a row of `slice`; of the rank that has the fewest
    struct sampler **own;                       // (threads) for the tokens of this rank
    struct sampler **merging;                   // (threads) for the top-k of all ranks
    float *slice;                               // (head_rows, stride) logits of this rank's tokens
    char *out, *in;                             // (head_rows, stride) floats
    size_t *start;                              // (head_rows + 1) where the message of a row begins in `out`
    struct topk *topk;                          // (own rows, world)
    struct row_result *mine, *all;              // (own rows), (world, own rows)
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

// ---- lifecycle

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
        h->merging[i] = sampler_open(dev->world * SAMPLER_MAX_TOPK);
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

void cpu_head_arena(struct device *dev, struct cpu_arena *c) {
    size_t rows = (size_t)dev->head_rows, own = (size_t)num_own(dev), world = (size_t)dev->world;
    struct head_ranks *h = dev->head;
    dev->logits =
        arena_take(c, (h ? own : rows) * (size_t)sampler_row_size(dev->model.vocab), sizeof *dev->logits);
    if (!h)
        return;
    h->slice = arena_take(c, rows * (size_t)h->stride, sizeof *h->slice);
    h->out = arena_take(c, rows * (size_t)h->stride, sizeof *h->slice);
    h->in = arena_take(c, own * (size_t)h->stride, sizeof *h->slice);
    h->start = arena_take(c, rows + 1, sizeof *h->start);
    h->topk = arena_take(c, own * world, sizeof *h->topk);
    h->mine = arena_take(c, own, sizeof *h->mine);
    h->all = arena_take(c, own * world, sizeof *h->all);
}

// ---- one rank

// Rows [first, first + num_rows) of the step.
struct head_job {
    struct device *dev;
    const struct step *step;
    struct cpu_result *out;
    const float *bias; // of this rank's tokens, or NULL
    int first, num_rows;
    _Atomic int next;
};

// Logits as the model means them; past n they are -infinity, up to whole groups.
static void scale_row(const struct device *dev, const float *bias, float *logits, int n) {
    float scale = dev->model.logit_scale;
    for (int v = n; v < sampler_row_size(n); v++)
        logits[v] = -INFINITY;
    for (int v = 0; bias && v < n; v++)
        logits[v] += bias[v];
    for (int v = 0; scale != 1 && scale != 0 && v < n; v++)
        logits[v] *= scale;
    if (dev->model.logit_softcap > 0)
        dev->kernels->softcap(logits, n, dev->model.logit_softcap);
}

static void sample_row(const struct head_job *job, struct sampler *sampler, int r, const float *logits) {
    struct cpu_result *out = job->out;
    size_t vocab = (size_t)job->dev->model.vocab;
    if (out->logits)
        memcpy(out->logits + (size_t)r * vocab, logits, vocab * sizeof *logits);
    struct sample s = {.top_ids = out->top_ids + (size_t)r * MAX_TOP_LOGPROBS,
                       .top_logprobs = out->top_logprobs + (size_t)r * MAX_TOP_LOGPROBS};
    sampler_row(sampler, job->dev->kernels, logits, &job->step->rows[r], job->step->entries,
                job->step->masks ? job->step->masks[r] : NULL, &s);
    out->ids[r] = s.id;
    out->logprob[r] = s.logprob;
    out->rank[r] = s.rank;
    out->share[r] = s.share;
    out->failed[r] = s.failed;
}

static void sample_worker(void *ctx, int thread, int num_threads) {
    (void)num_threads;
    struct head_job *job = ctx;
    struct device *dev = job->dev;
    int vocab = dev->model.vocab, i;
    while ((i = atomic_fetch_add(&job->next, 1)) < job->num_rows) {
        float *logits = dev->logits + (size_t)i * (size_t)sampler_row_size(vocab);
        scale_row(dev, job->bias, logits, vocab);
        sample_row(job, dev->samplers[thread], job->first + i, logits);
    }
}

// ---- ranks

// How many of each rank's best tokens decide the row, where they are a smaller message than its logits; 0:
// the logits are needed.
static int local_k(const struct device *dev, const struct logits_row *row) {
    int k = sampler_local_k(row);
    bool smaller = (size_t)(1 + 2 * k) < (size_t)dev->head->least;
    return smaller && !dev->limits.keep_logits ? k : 0;
}

// Bytes of what `rank` says of the row.
static size_t message_bytes(const struct device *dev, const struct logits_row *row, int rank) {
    int k = local_k(dev, row), n = dev->head->end[rank] - dev->head->begin[rank];
    return sizeof(float) * (size_t)(k > 0 ? 1 + 2 * k : n);
}

static struct topk *topk_at(const struct device *dev, int own, int rank) {
    return &dev->head->topk[(size_t)own * (size_t)dev->world + (size_t)rank];
}

static void topk_write(char *dst, const struct topk *topk, int k) {
    memcpy(dst, &topk->num, sizeof topk->num);
    memcpy(dst + 4, topk->logits, (size_t)k * 4);
    memcpy(dst + 4 + (size_t)k * 4, topk->ids, (size_t)k * 4);
}

static void topk_read(struct topk *topk, const char *src, int k) {
    memcpy(&topk->num, src, sizeof topk->num);
    memcpy(topk->logits, src + 4, (size_t)k * 4);
    memcpy(topk->ids, src + 4 + (size_t)k * 4, (size_t)k * 4);
}

// Puts logits of a rank's tokens into the row that this rank samples.
static void place_logits(struct device *dev, int own, int rank, const void *logits) {
    const struct head_ranks *h = dev->head;
    float *row = dev->logits + (size_t)own * (size_t)sampler_row_size(dev->model.vocab);
    memcpy(row + h->begin[rank], logits, (size_t)(h->end[rank] - h->begin[rank]) * sizeof *row);
}

// Writes this rank's results of each row where they are needed: a message, or this rank's own place.
static void export_worker(void *ctx, int thread, int num_threads) {
    (void)num_threads;
    struct head_job *job = ctx;
    struct device *dev = job->dev;
    struct head_ranks *h = dev->head;
    int own0, own1, i, num = h->end[dev->rank] - h->begin[dev->rank];
    own_rows(dev, job->num_rows, dev->rank, &own0, &own1);
    while ((i = atomic_fetch_add(&job->next, 1)) < job->num_rows) {
        const struct logits_row *row = &job->step->rows[job->first + i];
        float *logits = h->slice + (size_t)i * (size_t)h->stride;
        bool mine = i >= own0 && i < own1;
        int k = local_k(dev, row);
        struct topk topk;
        scale_row(dev, job->bias, logits, num);
        if (k == 0 && mine) {
            place_logits(dev, i - own0, dev->rank, logits);
        } else if (k == 0) {
            memcpy(h->out + h->start[i], logits, (size_t)num * sizeof *logits);
        } else {
            const uint32_t *mask = job->step->masks ? job->step->masks[job->first + i] : NULL;
            memset(&topk, 0, sizeof topk);
            topk.num = sampler_local_topk(h->own[thread], dev->kernels, logits, h->begin[dev->rank], row,
                                          job->step->entries, mask, k, topk.logits, topk.ids);
            if (mine)
                *topk_at(dev, i - own0, dev->rank) = topk;
            else
                topk_write(h->out + h->start[i], &topk, k);
        }
    }
}

// Rows [own0, own1) as rank `from` knows them, out of its message.
static void import_rows(struct head_job *job, int from, int own0, int own1) {
    struct device *dev = job->dev;
    const char *message = dev->head->in;
    for (int i = own0; i < own1; i++) {
        const struct logits_row *row = &job->step->rows[job->first + i];
        int k = local_k(dev, row);
        if (k > 0)
            topk_read(topk_at(dev, i - own0, from), message, k);
        else
            place_logits(dev, i - own0, from, message);
        message += message_bytes(dev, row, from);
    }
}

// Every pair of ranks exchanges messages about the rows that the other samples, the lower rank first.
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
            ok = device_comm_ok(dev, c->ops->send(c, h->out + h->start[begin], out, other));
        if (ok && in > 0)
            ok = device_comm_ok(dev, c->ops->recv(c, h->in, in, other));
        if (ok && out > 0 && dev->rank > other)
            ok = device_comm_ok(dev, c->ops->send(c, h->out + h->start[begin], out, other));
        if (!ok)
            return false;
        import_rows(job, other, own0, own1);
    }
    return true;
}

// The top-k of all ranks as one small row: in the order of ids, so that ties go to the lower id here, too.
static void sample_topk(const struct head_job *job, struct sampler *sampler, int own, int r) {
    struct device *dev = job->dev;
    struct logits_row row = job->step->rows[r];
    float logits[COMM_MAX_SUM * SAMPLER_MAX_TOPK];
    int32_t ids[COMM_MAX_SUM * SAMPLER_MAX_TOPK];
    int n = 0;
    bool failed = false;
    for (int rank = 0; rank < dev->world; rank++) {
        const struct topk *topk = topk_at(dev, own, rank);
        failed |= topk->num < 0;
        for (int i = 0; i < topk->num; i++, n++) {
            logits[n] = topk->logits[i];
            ids[n] = topk->ids[i];
        }
    }
    for (int i = n; i < dev->world * SAMPLER_MAX_TOPK; i++)
        logits[i] = -INFINITY;
    row.entry_start = row.entry_end = 0; // done, and so is the mask
    struct sample s = {.failed = true};
    if (!failed)
        sampler_row(sampler, dev->kernels, logits, &row, NULL, NULL, &s);
    job->out->ids[r] = s.failed ? 0 : ids[s.id];
    job->out->logprob[r] = 0;
    job->out->rank[r] = 0;
    job->out->share[r] = 0;
    job->out->failed[r] = s.failed;
}

static void sample_own_worker(void *ctx, int thread, int num_threads) {
    (void)num_threads;
    struct head_job *job = ctx;
    struct device *dev = job->dev;
    int own0, own1, i, vocab = dev->model.vocab, padded = sampler_row_size(vocab);
    own_rows(dev, job->num_rows, dev->rank, &own0, &own1);
    while ((i = atomic_fetch_add(&job->next, 1)) < own1 - own0) {
        int r = job->first + own0 + i;
        float *logits = dev->logits + (size_t)i * (size_t)padded;
        if (local_k(dev, &job->step->rows[r]) > 0) {
            sample_topk(job, dev->head->merging[thread], i, r);
            continue;
        }
        for (int v = vocab; v < padded; v++)
            logits[v] = -INFINITY;
        sample_row(job, dev->samplers[thread], r, logits);
    }
}

static void results_write(const struct head_job *job, struct row_result *results, int begin, int end) {
    const struct cpu_result *out = job->out;
    for (int i = begin; i < end; i++, results++) {
        size_t r = (size_t)(job->first + i);
        results->id = out->ids[r], results->failed = out->failed[r], results->logprob = out->logprob[r];
        results->rank = out->rank[r], results->share = out->share[r];
        memcpy(results->top_ids, out->top_ids + r * MAX_TOP_LOGPROBS, sizeof results->top_ids);
        memcpy(results->top_logprobs, out->top_logprobs + r * MAX_TOP_LOGPROBS, sizeof results->top_logprobs);
    }
}

static void results_read(const struct head_job *job, const struct row_result *results, int begin, int end) {
    struct cpu_result *out = job->out;
    for (int i = begin; i < end; i++, results++) {
        size_t r = (size_t)(job->first + i);
        out->ids[r] = results->id, out->failed[r] = results->failed != 0, out->logprob[r] = results->logprob;
        out->rank[r] = results->rank, out->share[r] = results->share;
        memcpy(out->top_ids + r * MAX_TOP_LOGPROBS, results->top_ids, sizeof results->top_ids);
        memcpy(out->top_logprobs + r * MAX_TOP_LOGPROBS, results->top_logprobs, sizeof results->top_logprobs);
    }
}

// All ranks get the results of all rows.
static bool results_gather(struct head_job *job) {
    struct device *dev = job->dev;
    struct comm *c = dev->comm;
    int n = job->num_rows, begin, end, most = dev->limits.keep_logits ? n : (n + dev->world - 1) / dev->world;
    own_rows(dev, n, dev->rank, &begin, &end);
    results_write(job, dev->head->mine, begin, end);
    size_t bytes = (size_t)most * sizeof(struct row_result);
    if (!device_comm_ok(dev, c->ops->all_gather(c, dev->head->all, dev->head->mine, bytes)))
        return false;
    for (int rank = 0; rank < dev->world; rank++) {
        own_rows(dev, n, rank, &begin, &end);
        if (rank != dev->rank)
            results_read(job, dev->head->all + (size_t)rank * (size_t)most, begin, end);
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
    pool_run(dev->pool, export_worker, job, parallel);
    if ((ok = exchange(job))) {
        atomic_store(&job->next, 0);
        pool_run(dev->pool, sample_own_worker, job, parallel);
        ok = results_gather(job);
    }
    for (int i = 0; !ok && i < job->num_rows; i++) { // a later step may take these ids
        job->out->ids[job->first + i] = 0;
        job->out->failed[job->first + i] = 1;
    }
}

// Copies the final norm's rows, the input of the GEMM
static void keep_hidden(const struct device *dev, const struct gemm_input *x, float *hidden) {
    size_t D = (size_t)dev->model.hidden, stride = x->stride[DTYPE_F32];
    for (size_t i = 0; i < (size_t)x->num_rows; i++)
        memcpy(hidden + i * D, (const char *)x->data[DTYPE_F32] + i * stride, D * sizeof *hidden);
}

struct hidden_job {
    struct device *dev;
    const struct weight *norm; // or NULL
    const struct logits_row *rows;
    const float *merged; // (rows) of streams; NULL: those of resid
    float *hidden;
};

static void hidden_worker(void *ctx, int thread, int num_threads) {
    const struct hidden_job *job = ctx;
    int D = job->dev->model.hidden;
    (void)num_threads;
    for (int begin, end; pool_take(job->dev->pool, thread, 1, &begin, &end);)
        for (int i = begin; i < end; i++) {
            const float *x = job->merged ? job->merged + (size_t)i * (size_t)D
                                         : job->dev->resid + (size_t)job->rows[i].row * (size_t)D;
            float *y = job->hidden + (size_t)i * (size_t)D;
            if (job->norm)
                device_norm(job->dev, y, x, job->norm, 0, D);
            else
                memcpy(y, x, (size_t)D * sizeof *x);
        }
}

void cpu_head(struct device *dev, const struct model *model, const struct step *step) {
    CHECK(dev->has_head);
    struct cpu_result *out = &dev->result[dev->num_begun & 1];
    out->num_rows = step->num_rows;
    for (int r = 0; r < step->num_rows; r++)
        CHECK(step->rows[r].row >= 0 && step->rows[r].row < step->num_tokens &&
              step->rows[r].num_logprobs <= MAX_TOP_LOGPROBS);
    for (int r = 0; r < step->num_rows; r += dev->head_rows) {
        int n = step->num_rows - r < dev->head_rows ? step->num_rows - r : dev->head_rows;
        bool parallel = n > 1 && (long long)n * dev->model.vocab > 1 << 12;
        const struct logits_row *rows = step->rows + r;
        const float *merged = dev->model.altup_streams > 0 ? cpu_altup_merge(dev, model, rows, n) : NULL;
        if (!model->head) {
            struct hidden_job job = {dev, model->out_norm, rows, merged,
                                     out->hidden + (size_t)r * (size_t)dev->model.hidden};
            pool_run_items(dev->pool, hidden_worker, &job, n, (long long)n * dev->model.hidden > 1 << 15);
            continue;
        }
        struct gemm_input x = cpu_gemm_input(dev, merged ? merged : dev->resid, n, merged ? NULL : rows,
                                             model->head, model->out_norm);
        float *y[3] = {dev->head ? dev->head->slice : dev->logits, NULL, NULL};
        int ldy[3] = {dev->head ? dev->head->stride : sampler_row_size(dev->model.vocab), 0, 0};
        if (out->hidden)
            keep_hidden(dev, &x, out->hidden + (size_t)r * (size_t)dev->model.hidden);
        cpu_matmul(dev, y, ldy, &x, model->head);
        if (r == 0 && step->masks && step->masks_wait) // others compute them meanwhile
            step->masks_wait(step->masks_arg);
        struct head_job job = {
            .dev = dev, .step = step, .out = out, .bias = model->head->bias[0], .first = r, .num_rows = n};
        if (dev->head) {
            head_ranks(&job, parallel);
            continue;
        }
        atomic_init(&job.next, 0);
        pool_run(dev->pool, sample_worker, &job, parallel);
    }
}
