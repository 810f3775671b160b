// Measures the cost of sampling a token on the CPU: ms a row for 1 row (one thread) and for 32 (all threads, which
// take rows one by one as the head does), of a vocabulary of Qwen's size. A Markdown table; medians of 41 samples of
// all rows, each at another place of the sequence. The product that makes the logits is bench_kernels' phase "head".
//
// Two kinds of rows. In "peaked" ones the probability of the n-th best token falls as n to the power of -1.5: a
// few dozen hold 90 % together. In "flat" ones the logits lie evenly between -1 and 1, as random weights give
// them: 90 % of the probability takes most of the vocabulary, which is the worst there is for top-p.
//
//   bench_sampler [threads [variant [vocabulary]]]      threads 0: all CPUs
#include "clock.h"
#include "kernels.h"
#include "limits.h"
#include "pool.h"
#include "sampler.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 32, ROUNDS = 41, VOCAB = 151936 };

static const struct {
    const char *name;
    float temperature, top_p;
    int top_k;
    uint32_t forbid; // of a mask: one token in so many, or all but one in so many; 0: no mask
    bool sparse;
} kinds[] = {{"greedy", 0, 1, 0, 0, false},
             {"temperature 1", 1, 1, 0, 0, false},
             {"top-k 40", 1, 1, 40, 0, false},
             {"top-p 0.9", 1, 0.9f, 0, 0, false},
             {"top-k 40, top-p 0.9", 1, 0.9f, 40, 0, false},
             {"greedy, all but 1 in 40 allowed", 0, 1, 0, 40, false},
             {"greedy, 1 in 10000 allowed", 0, 1, 0, 10000, true},
             {"temperature 1, all but 1 in 40 allowed", 1, 1, 0, 40, false},
             {"temperature 1, 1 in 10000 allowed", 1, 1, 0, 10000, true}};

struct job {
    const struct cpu_kernels *kernels;
    struct sampler **samplers; // (threads)
    const float *logits;       // (ROWS, stride)
    size_t stride;
    struct logits_row row;
    const uint32_t *mask; // or NULL
    int num_rows;
    _Atomic int next;
};

static void fail(const char *why) {
    fprintf(stderr, "bench_sampler: %s\n", why);
    exit(1);
}

static void sample_worker(void *ctx, int thread, int num_threads) {
    struct job *job = ctx;
    (void)num_threads;
    for (int i; (i = atomic_fetch_add(&job->next, 1)) < job->num_rows;) {
        struct logits_row row = job->row;
        struct sample out = {0};
        row.seed = (uint64_t)i;
        sampler_row(job->samplers[thread], job->kernels, job->logits + (size_t)i * job->stride, &row, NULL,
                    job->mask, &out);
        if (out.failed)
            fail("a row is not finite");
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Median of ms a row
static double measure(struct pool *pool, struct job *job, int num_rows) {
    double ms[ROUNDS];
    job->num_rows = num_rows;
    for (int i = -1; i < ROUNDS; i++) { // the first one warms up
        job->row.index = i + 1;
        atomic_store(&job->next, 0);
        double t = clock_now_s();
        pool_run(pool, sample_worker, job, num_rows > 1);
        if (i >= 0)
            ms[i] = (clock_now_s() - t) * 1e3 / num_rows;
    }
    qsort(ms, ROUNDS, sizeof *ms, ascending);
    return ms[ROUNDS / 2];
}

static void fill(float *logits, int vocab, size_t stride, bool peaked) {
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < (int)stride; i++) {
            double u = ((double)bench_random() + 0.5) / 4294967296.0;
            double l = i >= vocab ? -INFINITY : peaked ? -1.5 * log(u) : 2 * u - 1;
            logits[(size_t)r * stride + (size_t)i] = (float)l;
        }
}

static void fill_mask(uint32_t *mask, int vocab, uint32_t n, bool sparse) {
    for (int i = 0; i < vocab; i++)
        if ((bench_random() % n == 0) == sparse)
            mask[i / 32] |= 1u << (i % 32);
        else
            mask[i / 32] &= ~(1u << (i % 32));
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 0, vocab = argc > 3 ? atoi(argv[3]) : VOCAB;
    struct job job = {.kernels = cpu_kernels_find(argc > 2 ? argv[2] : "auto")};
    struct pool *pool = pool_open(threads);
    if (!job.kernels || vocab < 1)
        fail("this machine has no such variant, or the vocabulary is empty");
    job.stride = (size_t)sampler_row_size(vocab);
    float *logits = malloc(ROWS * job.stride * sizeof *logits);
    uint32_t *mask = calloc(((size_t)vocab + 31) / 32, sizeof *mask);
    if (!pool || !logits || !mask || !(job.samplers = calloc((size_t)pool_size(pool), sizeof *job.samplers)))
        fail("no memory");
    for (int i = 0; i < pool_size(pool); i++)
        if (!(job.samplers[i] = sampler_open(vocab)))
            fail("no memory");
    job.logits = logits;
    printf("%s, %d threads, %d logits\n\n", job.kernels->name, pool_size(pool), vocab);
    printf("| logits | sampling | 1 row, ms | %d rows, ms a row |\n|---|---|--:|--:|\n", ROWS);
    for (int peaked = 1; peaked >= 0; peaked--) {
        fill(logits, vocab, job.stride, peaked);
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
            job.row = (struct logits_row){.target = -1,
                                          .temperature = kinds[i].temperature,
                                          .top_p = kinds[i].top_p,
                                          .top_k = kinds[i].top_k,
                                          .num_logprobs = -1};
            if (kinds[i].forbid)
                fill_mask(mask, vocab, kinds[i].forbid, kinds[i].sparse);
            job.mask = kinds[i].forbid ? mask : NULL;
            double one = measure(pool, &job, 1), all = measure(pool, &job, ROWS);
            printf("| %s | %s | %.3f | %.3f |\n", peaked ? "peaked" : "flat", kinds[i].name, one, all);
            fflush(stdout);
        }
    }
    for (int i = 0; i < pool_size(pool); i++)
        sampler_close(job.samplers[i]);
    free(job.samplers);
    free(logits);
    free(mask);
    pool_close(pool);
    return 0;
}
