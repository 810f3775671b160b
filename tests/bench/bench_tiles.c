// Speed of one core's GEMM tiles alone, without threads or phases: GOP/s and GB/s of packed weights for
// 1 to 256 tokens, with 1 MB of weights (they stay in the cache) and with 200 MB (they come from memory). Time
// is the thread's own, so other work on the machine disturbs little; the best of 6 passes.
//
//   bench_tiles [variant [type …]]
#include "kernels.h"

#include "float_env.h"
#include "memory.h"
#include "pack.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { K = 2048, PASSES = 6, MAX_TOKENS = 256 };

#define X(type, packed) DTYPE_##type,
static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, QUANTISED_MAP(X)};
#undef X
enum { NUM_TYPES = sizeof types / sizeof types[0] };

static double thread_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// Seconds of one pass of `tokens` over all panels.
static double pass(const struct cpu_kernels *k, enum dtype dtype, const char *w, int panels, const char *x,
                   int tokens) {
    static float y[TILE_PANELS * MANY_TOKENS * LANES];
    bool unpacks = k->to_pairs && dtype_block(dtype) > 1 && tokens >= LEAST_TOKENS;
    int block = dtype_sum_block(dtype), blocks = K / block,
        most = unpacks ? MANY_TOKENS : k->tile_tokens[dtype], tiles = (tokens + most - 1) / most;
    size_t panel = (size_t)blocks * pack_block_bytes(dtype);
    size_t x_bytes = block < 32 ? 4 : (size_t)block / 32 * sizeof(struct act_q8);
    size_t ldx = (((size_t)blocks * x_bytes + 63) / 64 | 1) * 64;
    size_t ld_pairs = ((K * sizeof(uint16_t) + 63) / 64 | 1) * 64;
    struct prefetch_plan prefetch = prefetch_plan(panel, blocks, tiles);
    double start = thread_seconds();
    for (int g = 0; g + 1 < panels; g += 2)
        for (int i = 0; i < tiles; i++) {
            const char *first = w + (size_t)g * panel;
            int t = tokens * i / tiles, n = tokens * (i + 1) / tiles - t;
            k->gemm[dtype](
                &(struct gemm_tile){.w = {first, first + panel},
                                    .x = x + (size_t)t * ldx,
                                    .ldx = ldx,
                                    .pairs = unpacks ? x + (size_t)t * ld_pairs : NULL, // zeros, too
                                    .ld_pairs = ld_pairs,
                                    .num_tokens = n,
                                    .bounds = (const int[]){0, blocks},
                                    .num_segments = 1,
                                    .y = y,
                                    .ldy = LANES,
                                    .next_panel = (size_t)n * LANES,
                                    .prefetch = prefetch_of_tile(&prefetch, first, n, i)});
        }
    return thread_seconds() - start;
}

static void run(const struct cpu_kernels *k, enum dtype dtype, size_t bytes) {
    size_t panel = (size_t)(K / dtype_sum_block(dtype)) * pack_block_bytes(dtype);
    int panels = (int)(bytes / panel) / 2 * 2;
    struct region w = region_alloc((size_t)panels * panel),
                  x = region_alloc((size_t)MAX_TOKENS * (K * 4 + 128));
    if (!w.data || !x.data)
        exit(1);
    memset(w.data, 0, w.bytes);
    memset(x.data, 0, x.bytes);
    printf("  %-6s", dtype_name(dtype));
    for (int tokens = 1; tokens <= MAX_TOKENS; tokens *= 2) {
        double best = INFINITY;
        for (int i = 0; i < PASSES; i++)
            best = fmin(best, pass(k, dtype, w.data, panels, x.data, tokens));
        printf("  %4.0f (%3.0f)", 2.0 * panels * LANES * K * tokens / best * 1e-9,
               (double)panels * (double)panel / best * 1e-9);
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
        printf("%s, one core, %zu MB of weights, K = %d: GOP/s (GB/s) at 1, 2, 4 … 256 tokens\n", k->name,
               megabytes, K);
        for (int t = 0; t < NUM_TYPES; t++) {
            bool asked = argc <= 2;
            for (int j = 2; j < argc; j++)
                asked |= strcmp(argv[j], dtype_name(types[t])) == 0;
            if (asked)
                run(k, types[t], megabytes * 1000000);
        }
    }
    return 0;
}
