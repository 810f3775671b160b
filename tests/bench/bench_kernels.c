// Speed of the CPU kernels: each dense phase of the backend by itself, in steps of a Llama-3.2-1B shape (6 of
// its layers), for each type of weights. A Markdown table: of one layer ms, GB/s of weights in the file's
// form, GOP/s, and the share of the roofline, which is the time that reading or calculating would take,
// whichever is longer, at the rates measured just before and just after the type with the same threads, the
// higher of both (limits.h). For 1, 16 and 32 rows, which are sequences that decode at contexts of 512, and
// for a prompt of 512: the best of 8 steps, of 3 prompts. The head is the vocabulary's 128,256 rows, once a
// step, and greedy sampling; of a prompt it has one row.
//
// First, what a phase that does nothing costs.
//
//   bench_kernels [threads [variant [type …]]]      threads 0: all CPUs; types as Q8_0: all
#include "backend.h"
#include "inspect.h"
#include "kernels.h"

#include "clock.h"
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

enum { HIDDEN = 2048, FFN = 8192, VOCAB = 128256, LAYERS = 6, CONTEXT = 512, MAX_SEQS = 32, BLOCK = 16 };

enum phase { QKV, ATTN_OUT, FFN_IN, DOWN, HEAD, NUM_PHASES };
static const struct {
    const char *name;
    int rows, cols, count; // of all matrices together; how often in a step
} phases[NUM_PHASES] = {{"qkv", 2048 + 512 + 512, HIDDEN, LAYERS},
                        {"attention out", HIDDEN, 2048, LAYERS},
                        {"ffn_in", 2 * FFN, HIDDEN, LAYERS},
                        {"down", HIDDEN, FFN, LAYERS},
                        {"head", VOCAB, HIDDEN, 1}};

struct bench {
    struct device *dev;
    struct layer layers[LAYERS];
    struct model model; // the head and its norm
};

static void open_bench(struct bench *b, enum dtype dtype, int threads, const char *variant) {
    static struct model_config m = {.num_layers = LAYERS,
                                    .hidden = HIDDEN,
                                    .vocab = VOCAB,
                                    .norm_eps = 1e-5f,
                                    .logit_scale = 1,
                                    .num_attn = 1,
                                    .num_ffn = 1,
                                    .num_ropes = 1,
                                    .num_groups = 1,
                                    .kv_layers = LAYERS};
    m.attn[0] = (struct attn_spec){.heads = 32, .kv_heads = 8, .head_dim = 64, .scale = 0.125f};
    m.ffn[0].hidden = FFN;
    for (int i = 0; i < LAYERS; i++)
        m.layers[i].kv_layer = (uint16_t)i;
    m.ropes[0] =
        (struct rope_config){.theta = 500000, .dim = 64, .interleaved = true, .factor = 1, .attn_factor = 1};
    struct device_config config = {.model = &m,
                                   .num_threads = threads,
                                   .variant = variant,
                                   .kv_dtype = DTYPE_F16,
                                   .block_size = BLOCK,
                                   .world = 1};
    struct step_limits limits = {.max_tokens = CONTEXT,
                                 .max_seqs = MAX_SEQS,
                                 .max_rows = MAX_SEQS,
                                 .max_context = CONTEXT,
                                 .num_blocks = CONTEXT / BLOCK * MAX_SEQS};
    struct weight_desc norm_desc = {.role = WEIGHT_ATTN_NORM};
    struct err err = {0};
    float ones[HIDDEN];
    for (int i = 0; i < HIDDEN; i++)
        ones[i] = 1;
    norm_desc.part[0] = (struct tensor){ones, DTYPE_F32, 1, {HIDDEN}};
    if (!(b->dev = backend_cpu.open(NULL, &config, &err))) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
    struct weight *norm = backend_cpu.weight_load(b->dev, &norm_desc, &err);
    for (int i = 0; i < LAYERS; i++) {
        struct layer *l = &b->layers[i];
        *l = (struct layer){.index = i,
                            .attn = m.attn[0],
                            .ffn = m.ffn[0],
                            .kv_layer = i,
                            .attn_norm = norm,
                            .ffn_norm = norm};
        l->qkv = load(b->dev, WEIGHT_QKV, dtype, 3, (int[]){2048, 512, 512}, HIDDEN);
        l->attn_out = load(b->dev, WEIGHT_ATTN_OUT, dtype, 1, (int[]){HIDDEN}, 2048);
        l->gate_up = load(b->dev, WEIGHT_GATE_UP, dtype, 2, (int[]){FFN, FFN}, HIDDEN);
        l->down = load(b->dev, WEIGHT_DOWN, dtype, 1, (int[]){HIDDEN}, FFN);
    }
    b->model = (struct model){.config = m, .out_norm = norm};
    b->model.head = load(b->dev, WEIGHT_HEAD, dtype, 1, (int[]){VOCAB}, HIDDEN);
    if (backend_cpu.reserve(b->dev, &limits, &err) != STATUS_OK) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
}

// Seconds since *t, which becomes now.
static double lap(double *t) {
    double then = *t;
    *t = clock_now_s();
    return *t - then;
}

// One step as the engine does it, but for the embedding. seconds: of all calls of each phase. Attention runs,
// so that caches and inputs are those of a step, and is left out.
static void run_step(struct bench *b, const struct step *step, double seconds[NUM_PHASES]) {
    struct step_out out;
    struct err err = {0};
    backend_cpu.step_begin(b->dev, step);
    double t = clock_now_s();
    for (int p = 0; p < NUM_PHASES; p++)
        seconds[p] = 0;
    for (int i = 0; i < LAYERS; i++) {
        const struct layer *l = &b->layers[i];
        backend_cpu.qkv(b->dev, l, step);
        seconds[QKV] += lap(&t);
        if (step->num_decode < step->num_seqs)
            backend_cpu.attn_prefill(b->dev, l, step);
        else
            backend_cpu.attn_decode(b->dev, l, step);
        lap(&t);
        backend_cpu.attn_out(b->dev, l, step);
        seconds[ATTN_OUT] += lap(&t);
        backend_cpu.ffn_in(b->dev, l, step);
        seconds[FFN_IN] += lap(&t);
        backend_cpu.ffn_out(b->dev, l, step);
        seconds[DOWN] += lap(&t);
    }
    backend_cpu.head(b->dev, &b->model, step);
    seconds[HEAD] += lap(&t);
    backend_cpu.step_end(b->dev);
    backend_cpu.sync(b->dev, &out, &err);
}

// rows: sequences that decode, each at the end of its context; 0: a prompt of CONTEXT tokens, whose last row
// samples.
static void measure(struct bench *b, int rows, double best[NUM_PHASES]) {
    static int32_t ids[CONTEXT], positions[CONTEXT], start[MAX_SEQS + 1], context[MAX_SEQS],
        block_start[MAX_SEQS + 1], blocks[MAX_SEQS * CONTEXT / BLOCK];
    static int64_t slots[CONTEXT];
    static struct logits_row heads[MAX_SEQS];
    int tokens = rows ? rows : CONTEXT, seqs = rows ? rows : 1, per_seq = CONTEXT / BLOCK;
    for (int t = 0; t < tokens; t++) {
        positions[t] = rows ? CONTEXT - 1 : t;
        slots[t] = (rows ? (int64_t)t * CONTEXT : 0) + positions[t];
    }
    for (int i = 0; i < seqs * per_seq; i++)
        blocks[i] = i;
    for (int s = 0; s < seqs; s++) {
        start[s] = s;
        block_start[s] = s * per_seq;
        context[s] = CONTEXT;
        heads[s] =
            (struct logits_row){.row = rows ? s : tokens - 1, .target = -1, .top_p = 1, .num_logprobs = -1};
    }
    start[seqs] = tokens;
    block_start[seqs] = seqs * per_seq;
    struct step step = {.num_tokens = tokens,
                        .num_seqs = seqs,
                        .num_decode = rows,
                        .num_rows = seqs,
                        .num_groups = 1,
                        .max_query_len = rows ? 1 : tokens,
                        .max_context_len = CONTEXT,
                        .ids = ids,
                        .positions = positions,
                        .groups[0].slots = slots,
                        .query_start = start,
                        .context_len = context,
                        .groups[0].block_start = block_start,
                        .groups[0].block_ids = blocks,
                        .rows = heads};
    struct activations act;
    inspect_cpu.view(b->dev, &act);
    for (int i = 0; i < tokens * HIDDEN; i++)
        ((float *)act.resid)[i] = (float)(bench_random() & 0xffffu) / 65536.0f - 0.5f;
    for (int p = 0; p < NUM_PHASES; p++)
        best[p] = INFINITY;
    for (int round = 0; round < (rows ? 8 : 3); round++) {
        double seconds[NUM_PHASES];
        run_step(b, &step, seconds);
        for (int p = 0; p < NUM_PHASES; p++)
            best[p] = fmin(best[p], seconds[p]);
    }
}

static void print(enum dtype dtype, int rows, const double best[NUM_PHASES], const struct limits *limit) {
    const char *with;
    double rate = limits_arithmetic(limit, dtype_name(dtype), &with);
    for (int p = 0; p < NUM_PHASES; p++) {
        int tokens = rows ? rows : p == HEAD ? 1 : CONTEXT;
        double t = best[p] / phases[p].count,
               bytes = (double)dtype_row_bytes(dtype, phases[p].cols) * phases[p].rows,
               ops = 2.0 * phases[p].rows * phases[p].cols * tokens,
               least = fmax(bytes / limit->read, rate > 0 ? ops / rate : 0);
        printf("| %s | %s%d | %s | %.3f | %.1f | %.0f | %.0f %% |\n", dtype_name(dtype),
               rows ? "" : "prompt of ", rows ? rows : CONTEXT, phases[p].name, t * 1e3, bytes / t * 1e-9,
               ops / t * 1e-9, 100 * least / t);
    }
}

static void run(enum dtype dtype, int threads, const char *variant, struct limits_meter *meter) {
    enum { NUM = 4 };
    static const int rows[NUM] = {1, 16, 32, 0};
    struct bench b;
    double best[NUM][NUM_PHASES];
    open_bench(&b, dtype, threads, variant);
    struct limits before = limits_now(meter);
    for (int i = 0; i < NUM; i++)
        measure(&b, rows[i], best[i]);
    struct limits after = limits_now(meter), limit = limits_larger(&before, &after);
    for (int i = 0; i < NUM; i++)
        print(dtype, rows[i], best[i], &limit);
    fflush(stdout);
    backend_cpu.close(b.dev);
}

static void nothing(void *ctx, int thread, int num_threads) { (void)ctx, (void)thread, (void)num_threads; }

// The cost of beginning and ending a phase on all threads: the best of some rounds.
static void barrier(int threads) {
    enum { ROUNDS = 20, CALLS = 2000 };
    struct pool *pool = pool_open(threads);
    double best = 1e30;
    if (!pool)
        exit(1);
    for (int round = 0; round < ROUNDS; round++) {
        double t = clock_now_s();
        for (int i = 0; i < CALLS; i++)
            pool_run(pool, nothing, NULL, true);
        best = fmin(best, clock_now_s() - t);
    }
    printf("a phase of nothing with %d threads: %.2f us\n", pool_size(pool), best / CALLS * 1e6);
    pool_close(pool);
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 0, asked = 0;
    const char *variant = argc > 2 ? argv[2] : "auto";
#define X(type, packed) DTYPE_##type,
    static const enum dtype dtypes[] = {QUANTISED_MAP(X) DTYPE_BF16, DTYPE_F16, DTYPE_F32};
#undef X
    enum { NUM = sizeof dtypes / sizeof *dtypes };
    bool wanted[NUM];
    for (int i = 0; i < NUM; i++) {
        wanted[i] = argc <= 3;
        for (int j = 3; j < argc; j++)
            wanted[i] |= strcmp(argv[j], dtype_name(dtypes[i])) == 0;
        asked += wanted[i];
    }
    const struct cpu_kernels *kernels = cpu_kernels_find(variant);
    if (!kernels || (argc > 3 && asked != argc - 3)) {
        fprintf(stderr, "this machine has no variant '%s', or a type is unknown or named twice\n", variant);
        return 2;
    }
    barrier(threads);
    fflush(stdout);
    struct limits_meter *meter = limits_open(threads);
    printf("\n| %s, type | rows | phase | ms | GB/s | GOP/s | of roofline |\n", kernels->name);
    printf("|---|---|---|--:|--:|--:|--:|\n");
    for (int i = 0; i < NUM; i++)
        if (wanted[i])
            run(dtypes[i], threads, variant, meter);
    const struct limits *best = limits_best(meter);
    printf(
        "\nLimits with %d threads, the best of the run: read %.1f GB/s; %s %.0f, %s %.0f, %s %.0f GOP/s.\n",
        best->threads, best->read * 1e-9, best->int8_with, best->int8 * 1e-9, best->bf16_with,
        best->bf16 * 1e-9, best->f32_with, best->f32 * 1e-9);
    limits_close(meter);
    return 0;
}
