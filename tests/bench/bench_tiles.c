// Speed of one core's matrix product alone, without threads or phases: GMAC/s and GB/s of packed weights for
// 1 to 64 tokens, with 1 MB of weights (they stay in the cache) and with 200 MB (they come from memory). Time
// is the thread's own, so other work on the machine disturbs little; the best of 6 passes.
//
//   bench_tiles [variant]
#include "kernels.h"

#include "float_env.h"
#include "memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { K = 2048, PASSES = 6, MAX_TOKENS = 64 };

static const struct format {
    enum dtype dtype;
    size_t block_bytes, activation_bytes; // of a block of a strip, of a token
    int k;
} formats[] = {
    {DTYPE_F32, 64, 4, 1},
    {DTYPE_F16, 32, 4, 1},
    {DTYPE_BF16, 64, 4, 2},
    {DTYPE_Q8_0, sizeof(struct weight_q8), sizeof(struct act_q8), 32},
    {DTYPE_Q4_0, sizeof(struct weight_q4), sizeof(struct act_q8), 32},
    {DTYPE_Q4_K, sizeof(struct weight_q4k), 8 * sizeof(struct act_q8), 256},
    {DTYPE_Q5_K, sizeof(struct weight_q5k), 8 * sizeof(struct act_q8), 256},
    {DTYPE_Q6_K, sizeof(struct weight_q6k), 8 * sizeof(struct act_q8), 256},
};
enum { NUM_FORMATS = sizeof formats / sizeof formats[0] };

static double thread_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// Seconds of one pass of `tokens` over all strips.
static double pass(const struct cpu_kernels *k, const struct format *f, const char *w, int strips,
                   const char *x, int tokens) {
    static float y[TILE_GROUPS * MAX_TILE_TOKENS * LANES];
    int blocks = K / f->k, most = k->tile_tokens[f->dtype], tiles = (tokens + most - 1) / most;
    size_t strip = (size_t)blocks * f->block_bytes;
    size_t ldx = (((size_t)blocks * f->activation_bytes + 63) / 64 | 1) * 64;
    double start = thread_seconds();
    for (int g = 0; g + 1 < strips; g += 2)
        for (int i = 0; i < tiles; i++) {
            const void *pair[] = {w + (size_t)g * strip, w + (size_t)(g + 1) * strip};
            int t = tokens * i / tiles, n = tokens * (i + 1) / tiles - t;
            k->gemm[f->dtype](pair, x + (size_t)t * ldx, ldx, 0, blocks, y, n,
                              ahead_share(pair[0], strip, blocks, n, i, tiles));
        }
    return thread_seconds() - start;
}

static void run(const struct cpu_kernels *k, const struct format *f, size_t bytes) {
    size_t strip = (size_t)(K / f->k) * f->block_bytes;
    int strips = (int)(bytes / strip) / 2 * 2;
    struct region w = region_alloc((size_t)strips * strip),
                  x = region_alloc((size_t)MAX_TOKENS * (K * 4 + 128));
    if (!w.data || !x.data)
        exit(1);
    memset(w.data, 0, w.bytes);
    memset(x.data, 0, x.bytes);
    printf("  %-5s", dtype_name(f->dtype));
    for (int tokens = 1; tokens <= MAX_TOKENS; tokens *= 2) {
        double best = INFINITY;
        for (int i = 0; i < PASSES; i++)
            best = fmin(best, pass(k, f, w.data, strips, x.data, tokens));
        printf("  %4.0f (%3.0f)", (double)strips * LANES * K * tokens / best * 1e-9,
               (double)strips * (double)strip / best * 1e-9);
        fflush(stdout);
    }
    putchar('\n');
    region_free(&w);
    region_free(&x);
}

int main(int argc, char **argv) {
    const struct cpu_kernels *k = cpu_kernels_find(argc > 1 ? argv[1] : "auto");
    if (!k) {
        fprintf(stderr, "this machine has no variant '%s'\n", argv[1]);
        return 2;
    }
    float_env_enter();
    for (int i = 0; i < 2; i++) {
        size_t megabytes = i ? 200 : 1;
        printf("%s, one core, %zu MB of weights, K = %d: GMAC/s (GB/s) at 1, 2, 4 … 64 tokens\n", k->name,
               megabytes, K);
        for (int f = 0; f < NUM_FORMATS; f++)
            run(k, &formats[f], megabytes * 1000000);
    }
    return 0;
}
