// Speed of the CPU kernels: GEMM of each dtype as GB/s of packed weights and GOP/s, and as shares of the read
// bandwidth and the arithmetic rate measured in the same run with the same threads (limits.h); a decode step
// of a Llama-3.2-1B shape.
//
// First, what a phase that does nothing costs.
//
//   bench_kernels [threads] [variant]      threads 0: all processors
#include "device.h"

#include "half.h"
#include "limits.h"
#include "pool.h"
#include "quants.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tensor matrix(enum dtype dtype, int rows, int cols) {
    size_t row_bytes = dtype_row_bytes(dtype, cols), n = (size_t)rows * row_bytes;
    unsigned char *p = malloc(n);
    if (!p)
        exit(1);
    for (size_t i = 0; i + 4 <= n; i += 4) { // small finite numbers whatever the type
        uint32_t u = (bench_random() & 0x80ff80ffu) | (dtype == DTYPE_F16 ? 0x20002000u : 0x3c003c00u);
        memcpy(p + i, &u, 4);
    }
    size_t block = dtype_row_bytes(dtype, dtype_block(dtype));
    for (size_t i = 0; dtype_block(dtype) > 1 && i < n; i += block) {
        unsigned char *scale = p + i + quants_scale_offset(dtype);
        if (dtype == DTYPE_MXFP4)
            *scale = 118;
        for (int j = 0; j <= quants_has_minimum(dtype) && dtype != DTYPE_MXFP4; j++)
            memcpy(scale + 2 * j, &(uint16_t){0x0400}, 2);
    }
    return (struct tensor){p, dtype, 2, {rows, cols}};
}

static struct weight *load(struct device *dev, enum weight_role role, enum dtype dtype, int parts,
                           const int *rows, int cols) {
    struct weight_desc desc = {.role = role};
    for (int i = 0; i < parts; i++)
        desc.part[i] = matrix(dtype, rows[i], cols);
    struct err err = {0};
    struct weight *w = backend_cpu.weight_load(dev, &desc, &err);
    for (int i = 0; i < parts; i++)
        free((void *)(uintptr_t)desc.part[i].data);
    if (!w) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
    return w;
}

enum { LAYERS = 6, CONTEXT = 1024, MAX_TOKENS = 64 };

static void run(enum dtype dtype, int threads, const char *variant, const struct limits *limit) {
    struct model_config m = {.num_layers = LAYERS,
                             .hidden = 2048,
                             .num_heads = 32,
                             .num_kv_heads = 8,
                             .head_dim = 64,
                             .ffn = 8192,
                             .vocab = 32000,
                             .norm_eps = 1e-5f,
                             .attn_scale = 0.125f,
                             .logit_scale = 1};
    m.rope =
        (struct rope_config){.theta = 500000, .dim = 64, .interleaved = true, .factor = 1, .attn_factor = 1};
    struct device_config config = {.model = &m,
                                   .num_threads = threads,
                                   .variant = variant,
                                   .kv_dtype = DTYPE_F16,
                                   .block_size = 16,
                                   .world = 1};
    struct err err = {0};
    struct device *dev = backend_cpu.open(NULL, &config, &err);
    if (!dev) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
    struct weight_desc norm_desc = {.role = WEIGHT_NORM};
    float ones[2048];
    for (int i = 0; i < 2048; i++)
        ones[i] = 1;
    norm_desc.part[0] = (struct tensor){ones, DTYPE_F32, 1, {2048}};
    struct layer layers[LAYERS];
    for (int i = 0; i < LAYERS; i++) {
        struct weight *norm = backend_cpu.weight_load(dev, &norm_desc, &err);
        layers[i] = (struct layer){.index = i, .attn_norm = norm, .ffn_norm = norm};
        layers[i].qkv = load(dev, WEIGHT_QKV, dtype, 3, (int[]){2048, 512, 512}, 2048);
        layers[i].attn_out = load(dev, WEIGHT_ATTN_OUT, dtype, 1, (int[]){2048}, 2048);
        layers[i].gate_up = load(dev, WEIGHT_GATE_UP, dtype, 2, (int[]){8192, 8192}, 2048);
        layers[i].down = load(dev, WEIGHT_DOWN, dtype, 1, (int[]){2048}, 8192);
    }
    double bytes = (double)dev->weight_bytes;
    struct step_limits limits = {.max_tokens = MAX_TOKENS,
                                 .max_seqs = MAX_TOKENS,
                                 .max_rows = 1,
                                 .max_context = CONTEXT,
                                 .num_blocks = CONTEXT / 16 * MAX_TOKENS};
    struct workspace ws;
    if (backend_cpu.reserve(dev, &limits, &ws, &err) != STATUS_OK) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
    struct device_info info;
    backend_cpu.info(dev, &info);
    const char *with;
    double arithmetic = limits_arithmetic(limit, dtype_name(dtype), &with);
    printf("%s, %s, %.0f MB of weights; limits: read %.1f GB/s, %s %.0f GOP/s\n", info.name,
           dtype_name(dtype), bytes * 1e-6, limit->read * 1e-9, with, arithmetic * 1e-9);

    static int32_t ids[MAX_TOKENS], positions[MAX_TOKENS], start[MAX_TOKENS + 1], context[MAX_TOKENS],
        block_start[MAX_TOKENS + 1], blocks[MAX_TOKENS * CONTEXT / 16];
    static int64_t slots[MAX_TOKENS];
    static const int batches[] = {1, 2, 4, 8, 16, 32, 64, -64};
    double macs = 0;
    for (int i = 0; i < LAYERS; i++)
        macs += 2048.0 * 3072 + 2048.0 * 2048 + 3 * 2048.0 * 8192;
    for (int b = 0; b < (int)(sizeof batches / sizeof *batches); b++) {
        bool prefill = batches[b] < 0;
        int M = abs(batches[b]), seqs = prefill ? 1 : M, length = 512, per_seq = CONTEXT / 16;
        for (int t = 0; t < M; t++) {
            int seq = prefill ? 0 : t;
            positions[t] = prefill ? length - M + t : length - 1;
            slots[t] = (int64_t)seq * CONTEXT + positions[t];
        }
        for (int s = 0; s < seqs; s++) {
            start[s] = prefill ? 0 : s;
            block_start[s] = s * per_seq;
            context[s] = length;
            for (int i = 0; i < per_seq; i++)
                blocks[s * per_seq + i] = s * per_seq + i;
        }
        start[seqs] = M;
        block_start[seqs] = seqs * per_seq;
        struct step step = {.num_tokens = M,
                            .num_seqs = seqs,
                            .num_decode = prefill ? 0 : seqs,
                            .max_query_len = prefill ? M : 1,
                            .max_context_len = length,
                            .ids = ids,
                            .positions = positions,
                            .slots = slots,
                            .query_start = start,
                            .context_len = context,
                            .block_start = block_start,
                            .block_ids = blocks};
        for (int i = 0; i < M * 2048; i++)
            dev->resid[i] = (float)(bench_random() & 0xffffu) / 65536.0f - 0.5f;
        double best = 1e30, gemm = 1e30;
        for (int round = 0; round < 4; round++) {
            double t0 = bench_now(), attention = 0;
            for (int i = 0; i < LAYERS; i++) {
                backend_cpu.qkv(dev, ws.q, ws.resid, &layers[i], &step);
                double t1 = bench_now();
                if (prefill)
                    backend_cpu.attn_prefill(dev, ws.h, ws.q, &layers[i], &step);
                else
                    backend_cpu.attn_decode(dev, ws.h, ws.q, &layers[i], &step);
                attention += bench_now() - t1;
                backend_cpu.proj_add(dev, ws.resid, ws.h, layers[i].attn_out, &step);
                backend_cpu.mlp_in(dev, ws.h, ws.resid, &layers[i], &step);
                backend_cpu.proj_add(dev, ws.resid, ws.h, layers[i].down, &step);
            }
            double t = bench_now() - t0;
            best = fmin(best, t);
            gemm = fmin(gemm, t - attention);
        }
        double rate = 2 * macs * M / gemm;
        printf("  %s M=%-3d %7.2f ms a step  dense %7.2f ms  %6.1f GB/s = %3.0f %% of read  %7.1f GOP/s = "
               "%3.0f %%\n",
               prefill ? "prefill" : "decode ", M, best * 1e3, gemm * 1e3, bytes / gemm * 1e-9,
               100 * bytes / gemm / limit->read, rate * 1e-9, arithmetic > 0 ? 100 * rate / arithmetic : 0.0);
    }
    backend_cpu.close(dev);
}

static void nothing(void *ctx, int thread, int num_threads) { (void)ctx, (void)thread, (void)num_threads; }

// What it costs that all threads begin and end a phase together: the best of some rounds.
static void barrier(int threads) {
    enum { ROUNDS = 20, CALLS = 2000 };
    struct pool *pool = pool_open(threads);
    double best = 1e30;
    if (!pool)
        exit(1);
    for (int round = 0; round < ROUNDS; round++) {
        double t = bench_now();
        for (int i = 0; i < CALLS; i++)
            pool_run(pool, nothing, NULL, true);
        best = fmin(best, bench_now() - t);
    }
    printf("a phase of nothing with %d threads: %.2f us\n", pool_size(pool), best / CALLS * 1e6);
    pool_close(pool);
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 0;
    const char *variant = argc > 2 ? argv[2] : "auto";
#define X(type, packed) DTYPE_##type,
    static const enum dtype dtypes[] = {QUANTISED_MAP(X) DTYPE_BF16, DTYPE_F16, DTYPE_F32};
#undef X
    struct limits limit;
    barrier(threads);
    limits_measure(threads, LIMITS_PASSES, &limit);
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        run(dtypes[i], threads, variant, &limit);
    return 0;
}
