// Measures the CUDA backend against the limits of the device it runs on, and writes one report: OUT.json and
// OUT.md.
//
//   bench_cuda OUT [--tiny] [--only kernels|steps]
//
// Limits first, in the same run: read bandwidth (stream.cu) and the rate of a large bf16 product (cuBLASLt).
// Then every kernel that matters: replayed from a graph of several launches, over so many copies of all that
// it reads and writes that they are four times the cache of the device, so that neither launching nor the
// cache flatters it. All numbers are random: zeros would flatter arithmetic. Then whole steps of random
// weights. --tiny: sizes for the emulator, to see that it runs; its numbers mean nothing.
//
// Over 600 lines: every kernel has its own bytes and operations to count, and all write into one report.
#include "backend_cuda.h"
#include "fixture.h"
#include "ops.h"
#include "request.h"
#include "stream.h"

#include <math.h>
#include <time.h>

static struct rt *rt;
static bool tiny;
static double bandwidth, matrix_rate; // bytes/s, flop/s
static FILE *json, *md;
static const char *separator = ""; // between objects of a JSON list

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must_wait(void) {
    struct err err = {0};
    rt_mark(rt, 0);
    if (rt_wait(rt, 0, &err) != STATUS_OK) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
}

// What device() gave since the last release().
static void *kept[65536];
static int num_kept;

static void *device(size_t bytes) {
    void *p = num_kept < 65536 ? rt_alloc(rt, bytes) : NULL;
    if (!p) {
        fprintf(stderr, "no device memory for %zu MiB\n", bytes >> 20);
        exit(1);
    }
    return kept[num_kept++] = p;
}

static void *filled(size_t bytes, enum stream_kind kind) {
    static uint32_t seed;
    void *p = device((bytes + 15) / 16 * 16);
    stream_fill_random(rt, p, (bytes + 15) / 16 * 16, kind, ++seed);
    return p;
}

static void release(void) {
    must_wait();
    while (num_kept > 0)
        rt_free(rt, kept[--num_kept]);
}

enum { LAUNCHES = 16, MAX_COPIES = 512 };
static size_t cache;   // bytes
static int num_copies; // of what the kernel at hand works on

// Sets num_copies for a kernel that moves `bytes`.
static void set_copies(double bytes) {
    double n = 4.0 * (double)cache / bytes + 1;
    num_copies = tiny ? 2 : n > MAX_COPIES ? MAX_COPIES : (int)n;
}

// Seconds of one launch: the least of several replays of a graph in which each copy is launched, and LAUNCHES
// at least. fn launches over copy i.
static double time_kernel(void (*fn)(void *arg, int i), void *arg) {
    int launches = tiny ? 2 : num_copies > LAUNCHES ? num_copies : LAUNCHES, rounds = tiny ? 1 : 20;
    fn(arg, 0); // asks for shared memory, which a recording cannot
    must_wait();
    rt_capture_begin(rt);
    for (int i = 0; i < launches; i++)
        fn(arg, i % num_copies);
    struct rt_graph *g = rt_capture_end(rt);
    double best = INFINITY;
    for (int r = 0; g && r < rounds + 2; r++) { // two to warm up
        double start = now();
        rt_graph_launch(rt, g);
        must_wait();
        if (r >= 2 || tiny)
            best = fmin(best, now() - start);
    }
    rt_graph_free(rt, g);
    return best / launches;
}

static void section(const char *name, const char *columns, const char *rule) {
    fprintf(md, "\n## %s\n\n%s\n%s\n", name, columns, rule);
}

// One row of a table, and one object of "kernels".
static void row(const char *kernel, const char *shape, double seconds, double amount, double limit,
                const char *unit) {
    double rate = amount / seconds;
    fprintf(md, "| %s | %s | %.1f | %.1f %s | %.0f %% |\n", kernel, shape, seconds * 1e6,
            rate / (unit[0] == 'T' ? 1e12 : 1e9), unit, 100 * rate / limit);
    fprintf(json,
            "%s\n    {\"kernel\": \"%s\", \"shape\": \"%s\", \"us\": %.3f, \"rate\": %.6g, \"share\": %.4f}",
            separator, kernel, shape, seconds * 1e6, rate, rate / limit);
    separator = ",";
    fflush(md);
}

// ---- limits

struct stream {
    char *p, *out;
    size_t bytes;
};

static void stream_once(void *arg, int i) {
    struct stream *s = arg;
    (void)i;
    stream_read_all(rt, s->p, s->bytes, s->out);
}

// Seconds of one product of cuBLASLt, which is not recorded: as the backend uses it.
static double time_library(const struct rt_gemm *g) {
    double best = INFINITY;
    if (!rt_matmul(rt, g))
        return best;
    must_wait();
    for (int i = 0; i < 5; i++) {
        double start = now();
        for (int k = 0; k < 4; k++)
            rt_matmul(rt, g);
        must_wait();
        best = fmin(best, (now() - start) / 4);
    }
    return best;
}

static void measure_limits(void) {
    struct stream s = {.bytes = tiny ? 1 << 16 : (size_t)4 << 30};
    num_copies = 1;
    s.p = filled(s.bytes, STREAM_BITS);
    s.out = device(stream_out_bytes());
    bandwidth = (double)s.bytes / time_kernel(stream_once, &s);
    release();
    int n = tiny ? 16 : 8192;
    struct rt_gemm g = {.m = n, .n = n, .k = n, .ldx = n, .ldw = n, .ldy = n};
    size_t all = (size_t)n * (size_t)n;
    g.x = filled(all * 2, STREAM_BF16);
    g.w = filled(all * 2, STREAM_BF16);
    g.y = device(all * 4);
    matrix_rate = 2.0 * n * n * n / time_library(&g);
    release();
    fprintf(md,
            "\nRead bandwidth: %.0f GB/s (%zu MiB). bf16 products of cuBLASLt (%d cubed, random numbers): "
            "%.1f TFLOP/s.\n",
            bandwidth / 1e9, s.bytes >> 20, n, matrix_rate / 1e12);
    fprintf(json, "  \"bandwidth\": %.6g,\n  \"matrix_rate\": %.6g,\n", bandwidth, matrix_rate);
}

// ---- products

static void gemm_once(void *arg, int i) { cuda_gemm(rt, &((struct cuda_gemm *)arg)[i]); }
static void dequant_once(void *arg, int i) { cuda_dequant(rt, &((struct cuda_dequant *)arg)[i]); }

static enum stream_kind kind_of(enum cuda_form form) {
    return form == FORM_F32 ? STREAM_F32 : form == FORM_F16 ? STREAM_F16 : STREAM_BF16;
}

static void bench_gemm(enum cuda_format f, const char *name, int n, int k) {
    enum stream_kind kind = f == FORMAT_F32    ? STREAM_F32
                            : f == FORMAT_BF16 ? STREAM_BF16
                            : f == FORMAT_F16  ? STREAM_F16
                                               : STREAM_BITS;
    size_t bytes[3], all;
    char shape[64];
    cuda_matrix_bytes(f, n, k, bytes);
    all = bytes[0] + bytes[1] + bytes[2];
    set_copies((double)all);
    struct cuda_gemm *a = must_calloc((size_t)num_copies, sizeof *a);
    struct cuda_dequant *d = must_calloc((size_t)num_copies, sizeof *d);
    for (int i = 0; i < num_copies; i++) // the scales are f16, or bytes of any value
        a[i].w = (struct cuda_matrix){f,
                                      n,
                                      k,
                                      filled(bytes[0], kind),
                                      filled(bytes[1] + 16, STREAM_F16),
                                      filled(bytes[2] + 16, STREAM_F16)};
    static const int tokens[] = {1, 16, 64};
    enum cuda_form form = cuda_form_of(f);
    for (int t = 0; t < 3; t++) {
        int m = tiny && tokens[t] > 16 ? 16 : tokens[t];
        const void *x = filled((size_t)(m * k) * 4, kind_of(form));
        const float *scale = filled((size_t)m * 4, STREAM_F32);
        float *y = device((size_t)(m * n) * 4);
        for (int i = 0; i < num_copies; i++)
            a[i] = (struct cuda_gemm){
                .w = a[i].w, .x = x, .scale = scale, .m = m, .ldx = k, .y = y, .ldy = n, .n = n};
        snprintf(shape, sizeof shape, "%s (%d, %d) x %d", name, n, k, m);
        row("gemm", shape, time_kernel(gemm_once, a), (double)all, bandwidth, "GB/s");
    }
    if (f > FORMAT_F16) { // what a long prompt adds to cuBLASLt's product
        uint16_t *out = device((size_t)n * (size_t)k * 2);
        for (int i = 0; i < num_copies; i++)
            d[i] = (struct cuda_dequant){a[i].w, out};
        snprintf(shape, sizeof shape, "%s (%d, %d)", name, n, k);
        row("dequantise", shape, time_kernel(dequant_once, d), (double)all + 2.0 * n * k, bandwidth, "GB/s");
    }
    release();
    free(a), free(d);
}

static void bench_library(int m, int n, int k) {
    struct rt_gemm g = {.m = m, .n = n, .k = k, .ldx = k, .ldw = k, .ldy = n};
    g.x = filled((size_t)m * (size_t)k * 2, STREAM_BF16);
    g.w = filled((size_t)n * (size_t)k * 2, STREAM_BF16);
    g.y = device((size_t)m * (size_t)n * 4);
    char shape[64];
    snprintf(shape, sizeof shape, "bf16 (%d, %d) x %d", n, k, m);
    row("cuBLASLt", shape, time_library(&g), 2.0 * m * n * k, matrix_rate, "TFLOP/s");
    release();
}

// ---- attention

static void decode_once(void *arg, int i) { cuda_decode(rt, &((struct cuda_decode *)arg)[i]); }
static void prefill_once(void *arg, int i) { cuda_prefill(rt, &((struct cuda_prefill *)arg)[i]); }

static enum stream_kind kv_kind(enum dtype t) {
    return t == DTYPE_F32    ? STREAM_F32
           : t == DTYPE_F16  ? STREAM_F16
           : t == DTYPE_BF16 ? STREAM_BF16
                             : STREAM_BITS;
}

static void *upload(const void *host, size_t bytes) {
    void *p = device(bytes);
    rt_upload_now(rt, p, host, bytes);
    return p;
}

// Sequences of equal length, each with blocks of its own.
static struct cuda_kv make_cache(enum dtype dtype, int kv_heads, int d, int seqs, int context,
                                 struct cuda_blocks *blocks) {
    int per = (context + 15) / 16;
    size_t vectors = (size_t)seqs * (size_t)per * 16u * (size_t)kv_heads,
           all = vectors * dtype_row_bytes(dtype, d), scales = dtype == DTYPE_I8 ? vectors * 4 : 0;
    int32_t *start = must_calloc((size_t)seqs + 1, 4), *ids = must_calloc((size_t)(seqs * per), 4);
    for (int s = 0; s <= seqs; s++)
        start[s] = s * per;
    for (int i = 0; i < seqs * per; i++)
        ids[i] = (int32_t)((long long)i * 7919 % (seqs * per)); // scattered
    *blocks =
        (struct cuda_blocks){upload(start, (size_t)(seqs + 1) * 4), upload(ids, (size_t)(seqs * per) * 4)};
    free(start), free(ids);
    return (struct cuda_kv){filled(all, kv_kind(dtype)), filled(all, kv_kind(dtype)), dtype, 16, kv_heads, d,
                            filled(scales, STREAM_F32),  filled(scales, STREAM_F32)};
}

static void bench_decode(enum dtype dtype, int kv_heads, int group, int d, int seqs, int context) {
    int H = kv_heads * group, chunks = (context + CUDA_CHUNK - 1) / CUDA_CHUNK;
    int32_t n = seqs * chunks, *first = must_calloc((size_t)seqs + 1, 4);
    struct cuda_item *items = must_calloc((size_t)n, sizeof *items);
    for (int i = 0; i < n; i++)
        items[i] = (struct cuda_item){i / chunks, i / chunks, i % chunks * CUDA_CHUNK,
                                      i % chunks == chunks - 1 ? context : (i % chunks + 1) * CUDA_CHUNK};
    for (int s = 0; s <= seqs; s++)
        first[s] = s * chunks;
    double bytes = 2.0 * (double)backend_kv_vector_bytes(dtype, d) * kv_heads * seqs * context;
    set_copies(bytes);
    struct cuda_decode *a = must_calloc((size_t)num_copies, sizeof *a);
    for (int i = 0; i < num_copies; i++) {
        struct cuda_blocks blocks;
        struct cuda_kv kv = make_cache(dtype, kv_heads, d, seqs, context, &blocks);
        a[i] = (struct cuda_decode){.q = filled((size_t)(seqs * H * d) * 2, kv_kind(cuda_query_dtype(dtype))),
                                    .kv = kv,
                                    .blocks = blocks,
                                    .items = upload(items, (size_t)n * sizeof *items),
                                    .num_items = upload(&n, 4),
                                    .first_item = upload(first, (size_t)(seqs + 1) * 4),
                                    .max_items = n,
                                    .rows = seqs,
                                    .group = group,
                                    .scale = 0.1f,
                                    .partial = device((size_t)n * (size_t)(H * (d + 2)) * 4),
                                    .out = device((size_t)(seqs * H * d) * 2),
                                    .form = FORM_BF16,
                                    .ldout = H * d};
    }
    char shape[64];
    snprintf(shape, sizeof shape, "%s, K %d G %d d %d, %d x %d tokens", dtype_name(dtype), kv_heads, group, d,
             seqs, context);
    row("decode + merge", shape, time_kernel(decode_once, a), bytes, bandwidth, "GB/s");
    release();
    free(items), free(first), free(a);
}

static void bench_prefill(enum dtype dtype, int kv_heads, int group, int d, int tokens) {
    int H = kv_heads * group;
    int32_t n = (tokens * group + 63) / 64;
    struct cuda_tile *tiles = must_calloc((size_t)n, sizeof *tiles);
    for (int i = 0; i < n; i++) // the heaviest first
        tiles[i] = (struct cuda_tile){0, 0, (n - 1 - i) * 64, tokens * group, 0};
    size_t queries = (size_t)(tokens * H * d) * 2;
    set_copies(2.0 * (double)queries + 2.0 * (double)backend_kv_vector_bytes(dtype, d) * kv_heads * tokens);
    struct cuda_prefill *a = must_calloc((size_t)num_copies, sizeof *a);
    for (int i = 0; i < num_copies; i++) {
        struct cuda_blocks blocks;
        struct cuda_kv kv = make_cache(dtype, kv_heads, d, 1, tokens, &blocks);
        a[i] = (struct cuda_prefill){.q = filled(queries, kv_kind(cuda_query_dtype(dtype))),
                                     .kv = kv,
                                     .blocks = blocks,
                                     .tiles = upload(tiles, (size_t)n * sizeof *tiles),
                                     .num_tiles = upload(&n, 4),
                                     .max_tiles = n,
                                     .group = group,
                                     .scale = 0.1f,
                                     .out = device(queries),
                                     .form = FORM_BF16,
                                     .ldout = H * d};
    }
    char shape[64];
    snprintf(shape, sizeof shape, "%s, K %d G %d d %d, %d tokens", dtype_name(dtype), kv_heads, group, d,
             tokens);
    double flop = 2.0 * tokens * tokens * H * d; // two products, half of the square
    row("prefill attention", shape, time_kernel(prefill_once, a), flop, matrix_rate, "TFLOP/s");
    release();
    free(tiles), free(a);
}

// ---- sums of ranks, with one: what the kernel and its two meetings cost beside the bytes that it moves

static void sum_once(void *arg, int i) { cuda_sum(rt, &((struct cuda_sum *)arg)[i]); }

static void bench_sum(int rows, int n) {
    size_t bytes = (size_t)rows * (size_t)n * sizeof(float);
    set_copies(3.0 * (double)bytes);
    struct cuda_sum *a = must_calloc((size_t)num_copies, sizeof *a);
    uint32_t *stop = rt_alloc_host(rt, sizeof *stop);
    for (int i = 0; i < num_copies; i++)
        a[i] =
            (struct cuda_sum){.group = {.world = 1,
                                        .flags = {device(sizeof(uint32_t) * CUDA_MEET_BLOCKS * COMM_MAX_SUM)},
                                        .turns = device(sizeof(uint32_t) * CUDA_MEET_BLOCKS),
                                        .stop = stop},
                              .part = {filled(bytes, STREAM_F32)},
                              .resid = filled(bytes, STREAM_F32),
                              .rows = rows,
                              .n = n};
    char shape[64];
    snprintf(shape, sizeof shape, "1 rank, %d x %d", rows, n);
    row("sum of ranks", shape, time_kernel(sum_once, a), 3.0 * (double)bytes, bandwidth, "GB/s");
    release();
    rt_free_host(rt, stop);
    free(a);
}

struct nccl_sum {
    struct rt_nccl *nccl;
    float *x;
    size_t n;
};

static void bench_nccl(int rows, int n) {
    struct err err = {0};
    unsigned char id[RT_NCCL_ID];
    struct nccl_sum s = {.n = (size_t)rows * (size_t)n};
    if (!rt_nccl_id(rt, id, &err) || !(s.nccl = rt_nccl_open(rt, id, 0, 1, &err))) {
        fprintf(md, "\nNo sums by NCCL: %s\n", err.msg);
        return;
    }
    s.x = filled(s.n * sizeof(float), STREAM_F32);
    double best = INFINITY;
    for (int i = 0; i < 10; i++) { // outside of a graph, as it is used
        must_wait();
        double start = now();
        rt_nccl_sum(s.nccl, s.x, s.n);
        must_wait();
        best = fmin(best, now() - start);
    }
    char shape[64];
    snprintf(shape, sizeof shape, "1 rank, %d x %d", rows, n);
    row("sum by NCCL", shape, best, (double)(s.n * sizeof(float)), bandwidth, "GB/s");
    rt_nccl_close(s.nccl);
    release();
}

// ---- sampling

static void sample_once(void *arg, int i) { cuda_sample(rt, &((struct cuda_sample *)arg)[i]); }

// edits: of each row, as penalties make them, and a mask of half of the tokens.
static void bench_sample(const char *name, float temperature, int top_k, float top_p, float spread,
                         int edits) {
    int rows = tiny ? 2 : 64, V = tiny ? 500 : 151936, ld = (V + 15) / 16 * 16, groups = ld / 16,
        n = rows * edits;
    struct head_row *heads = must_calloc((size_t)rows, sizeof *heads);
    struct cuda_draw *draws = must_calloc((size_t)rows, sizeof *draws);
    struct logit_edit *edit = must_calloc((size_t)n + 1, sizeof *edit);
    int32_t *rounds = must_calloc((size_t)rows + 1, sizeof *rounds);
    float *logits = must_calloc((size_t)(rows * ld), sizeof *logits);
    for (int r = 0; r < rows; r++) {
        heads[r] = (struct head_row){.row = r,
                                     .target = -1,
                                     .temperature = temperature,
                                     .top_p = top_p,
                                     .top_k = top_k,
                                     .num_logprobs = -1,
                                     .index = r,
                                     .seed = 7};
        draws[r] = (struct cuda_draw){.mask = -1, .edited = -1, .low = -INFINITY, .bits = (uint64_t)r << 57};
        rounds[r] = r * edits;
        if (edits > 0)
            draws[r].round_start = r, draws[r].round_end = r + 1, draws[r].edited = r, draws[r].mask = 0;
        for (int i = 0; i < edits; i++)
            edit[r * edits + i] = (struct logit_edit){.div = 1, .token = i * (V / edits), .add = -0.5f};
    }
    rounds[rows] = n;
    for (int i = 0; i < rows * ld; i++)
        logits[i] = (random_float() + random_float() + random_float()) * spread;
    set_copies((double)rows * V * 4);
    struct cuda_sample *a = must_calloc((size_t)num_copies, sizeof *a);
    for (int i = 0; i < num_copies; i++) {
        a[i] = (struct cuda_sample){.rows = upload(heads, (size_t)rows * sizeof *heads),
                                    .draws = upload(draws, (size_t)rows * sizeof *draws),
                                    .edits = upload(edit, (size_t)(n + 1) * sizeof *edit),
                                    .rounds = upload(rounds, ((size_t)rows + 1) * sizeof *rounds),
                                    .mask_bits = filled((size_t)(V + 31) / 32 * 4, STREAM_BITS),
                                    .logits = upload(logits, (size_t)(rows * ld) * 4),
                                    .max = device((size_t)(rows * groups) * 4),
                                    .edited = device((size_t)(rows * ld) * 4),
                                    .edited_max = device((size_t)(rows * groups) * 4),
                                    .sums = device((size_t)(rows * groups) * 8),
                                    .num_rows = rows,
                                    .num_edited = edits > 0 ? rows : 0,
                                    .vocab = V,
                                    .ld = ld,
                                    .ldmax = groups,
                                    .ids = device((size_t)rows * 4),
                                    .top_ids = device((size_t)rows * 80),
                                    .logprob = device((size_t)rows * 4),
                                    .top_logprobs = device((size_t)rows * 80),
                                    .failed = device((size_t)rows)};
        cuda_group_max(rt, a[i].logits, a[i].max, rows, V, ld, groups, 1);
    }
    char shape[64];
    snprintf(shape, sizeof shape, "%s, %d x %d", name, rows, V);
    row("sample", shape, time_kernel(sample_once, a), (double)rows * V * 4, bandwidth, "GB/s");
    release();
    free(heads), free(draws), free(logits), free(edit), free(rounds), free(a);
}

// ---- what lies between the products

static void norm_once(void *arg, int i) { cuda_norm(rt, &((struct cuda_norm *)arg)[i]); }
static void swiglu_once(void *arg, int i) { cuda_swiglu(rt, &((struct cuda_swiglu *)arg)[i]); }
static void embed_once(void *arg, int i) { cuda_embed(rt, &((struct cuda_embed *)arg)[i]); }
static void qkv_once(void *arg, int i) { cuda_qkv(rt, &((struct cuda_qkv *)arg)[i]); }

static void bench_norm(int rows, int n) {
    double bytes = (double)rows * n * 6;
    set_copies(bytes);
    struct cuda_norm *a = must_calloc((size_t)num_copies, sizeof *a);
    for (int i = 0; i < num_copies; i++)
        a[i] = (struct cuda_norm){.x = filled((size_t)(rows * n) * 4, STREAM_F32),
                                  .weight = filled((size_t)n * 4, STREAM_F32),
                                  .out = device((size_t)(rows * n) * 2),
                                  .form = FORM_BF16,
                                  .rows = rows,
                                  .n = n,
                                  .ldx = n,
                                  .ldout = n,
                                  .eps = 1e-5f};
    char shape[64];
    snprintf(shape, sizeof shape, "%d x %d", rows, n);
    row("norm", shape, time_kernel(norm_once, a), bytes, bandwidth, "GB/s");
    release();
    free(a);
}

static void bench_swiglu(int rows, int n) {
    double bytes = (double)rows * n * 10;
    set_copies(bytes);
    struct cuda_swiglu *a = must_calloc((size_t)num_copies, sizeof *a);
    for (int i = 0; i < num_copies; i++)
        a[i] = (struct cuda_swiglu){.x = filled((size_t)(rows * n) * 8, STREAM_F32),
                                    .out = device((size_t)(rows * n) * 2),
                                    .form = FORM_BF16,
                                    .rows = rows,
                                    .n = n,
                                    .ldx = 2 * n,
                                    .ldout = n,
                                    .interleaved = true};
    char shape[64];
    snprintf(shape, sizeof shape, "%d x %d", rows, n);
    row("SwiGLU", shape, time_kernel(swiglu_once, a), bytes, bandwidth, "GB/s");
    release();
    free(a);
}

static void bench_embed(int rows, int hidden) {
    int vocab = tiny ? 64 : 4096;
    double bytes = (double)rows * hidden * 6;
    int32_t *ids = must_calloc((size_t)rows, sizeof *ids);
    for (int i = 0; i < rows; i++)
        ids[i] = (int32_t)(random_u32() % (unsigned)vocab);
    set_copies(bytes);
    struct cuda_embed *a = must_calloc((size_t)num_copies, sizeof *a);
    const void *table = filled((size_t)vocab * (size_t)hidden * 2, STREAM_BF16);
    for (int i = 0; i < num_copies; i++)
        a[i] = (struct cuda_embed){.ids = upload(ids, (size_t)rows * sizeof *ids),
                                   .table = table,
                                   .dtype = DTYPE_BF16,
                                   .resid = device((size_t)(rows * hidden) * 4),
                                   .rows = rows,
                                   .hidden = hidden,
                                   .vocab = vocab};
    char shape[64];
    snprintf(shape, sizeof shape, "bf16, %d x %d", rows, hidden);
    row("embed", shape, time_kernel(embed_once, a), bytes, bandwidth, "GB/s");
    release();
    free(ids), free(a);
}

// Bias, norm of heads where `norm`, rotation, keys and values to the cache.
static void bench_qkv(enum dtype dtype, int kv_heads, int group, int d, int rows, bool norm) {
    int H = kv_heads * group, all = (H + 2 * kv_heads) * d;
    double bytes =
        (double)rows * (all * 4.0 + H * d * 2.0 + 2.0 * (double)backend_kv_vector_bytes(dtype, d) * kv_heads);
    int32_t *positions = must_calloc((size_t)rows, sizeof *positions);
    int64_t *slots = must_calloc((size_t)rows, sizeof *slots);
    for (int i = 0; i < rows; i++)
        positions[i] = i, slots[i] = i;
    set_copies(bytes);
    struct cuda_qkv *a = must_calloc((size_t)num_copies, sizeof *a);
    for (int i = 0; i < num_copies; i++) {
        struct cuda_blocks blocks;
        a[i] = (struct cuda_qkv){.x = filled((size_t)(rows * all) * 4, STREAM_F32),
                                 .ldx = all,
                                 .rows = rows,
                                 .num_heads = H,
                                 .bias = filled((size_t)all * 4, STREAM_F32),
                                 .q_norm = norm ? filled((size_t)d * 4, STREAM_F32) : NULL,
                                 .k_norm = norm ? filled((size_t)d * 4, STREAM_F32) : NULL,
                                 .rope_cos = filled((size_t)(rows * d) * 2, STREAM_F32),
                                 .rope_sin = filled((size_t)(rows * d) * 2, STREAM_F32),
                                 .rope_pairs = d / 2,
                                 .eps = 1e-6f,
                                 .positions = upload(positions, (size_t)rows * sizeof *positions),
                                 .slots = upload(slots, (size_t)rows * sizeof *slots),
                                 .q = device((size_t)(rows * H * d) * 2),
                                 .kv = make_cache(dtype, kv_heads, d, 1, rows, &blocks)};
    }
    char shape[64];
    snprintf(shape, sizeof shape, "%s, K %d G %d d %d%s, %d rows", dtype_name(dtype), kv_heads, group, d,
             norm ? ", norm" : "", rows);
    row("bias, RoPE, KV write", shape, time_kernel(qkv_once, a), bytes, bandwidth, "GB/s");
    release();
    free(positions), free(slots), free(a);
}

// ---- whole steps

struct model_shape {
    const char *name;
    int layers, hidden, heads, kv_heads, d, ffn, vocab;
};

// A matrix of random bits that are numbers: a pattern of 1 MiB, again and again.
static struct tensor fill(enum dtype type, int rows, int cols, char *buffer) {
    size_t bytes = (size_t)rows * dtype_row_bytes(type, cols);
    struct tensor some = random_tensor(type, 64, 4096, 0.02f);
    size_t have = 64 * dtype_row_bytes(type, 4096);
    for (size_t at = 0; at < bytes; at += have)
        memcpy(buffer + at, some.data, bytes - at < have ? bytes - at : have);
    free((void *)(uintptr_t)some.data);
    return (struct tensor){buffer, type, 2, {rows, cols}};
}

static const struct weight *load(struct device *dev, enum weight_role role, int layer, enum dtype type, int n,
                                 const int *rows, int cols, char *buffer) {
    struct weight_desc w = {.role = role, .layer = layer};
    struct err err = {0};
    for (int i = 0; i < n; i++) {
        w.part[i] = fill(type, rows[i], cols, buffer);
        buffer += (size_t)rows[i] * dtype_row_bytes(type, cols);
    }
    if (role == WEIGHT_NORM)
        w.part[0].ndim = 1, w.part[0].shape[0] = cols;
    const struct weight *loaded = backend_cuda.weight_load(dev, &w, &err);
    if (!loaded)
        fprintf(stderr, "%s\n", err.msg);
    return loaded;
}

static struct instance *open_model(const struct model_shape *s, enum dtype type, struct fixture *f,
                                   int tokens, int context, int seqs) {
    struct instance *in = must_calloc(1, sizeof *in);
    struct err err = {0};
    int q = s->heads * s->d, kv = s->kv_heads * s->d, one = 1;
    f->config = (struct model_config){.num_layers = s->layers,
                                      .hidden = s->hidden,
                                      .num_heads = s->heads,
                                      .num_kv_heads = s->kv_heads,
                                      .head_dim = s->d,
                                      .ffn = s->ffn,
                                      .vocab = s->vocab,
                                      .max_context = context,
                                      .norm_eps = 1e-5f,
                                      .attn_scale = 1 / sqrtf((float)s->d),
                                      .logit_scale = 1};
    f->config.rope = (struct rope_config){.theta = 500000, .dim = s->d, .factor = 1, .attn_factor = 1};
    struct device_config config = {.model = &f->config, .kv_dtype = DTYPE_BF16, .block_size = 16, .world = 1};
    in->ops = &backend_cuda;
    in->block_size = 16;
    in->dev = backend_cuda.open(NULL, &config, &err);
    struct layer *layers = must_calloc((size_t)s->layers, sizeof *layers);
    size_t largest = (size_t)s->vocab * (size_t)s->hidden, mlp = 2 * (size_t)s->ffn * (size_t)s->hidden;
    char *buffer = malloc((largest > mlp ? largest : mlp) * 4);
    if (!in->dev || !buffer)
        return NULL;
    // Embedding rows as bf16: a table is not what is measured.
    bool ok =
        (in->model.embed = load(in->dev, WEIGHT_EMBED, -1, DTYPE_BF16, 1, &s->vocab, s->hidden, buffer));
    for (int l = 0; ok && l < s->layers; l++) {
        layers[l].index = l;
        ok = (layers[l].attn_norm = load(in->dev, WEIGHT_NORM, l, DTYPE_F32, 1, &one, s->hidden, buffer)) &&
             (layers[l].qkv = load(in->dev, WEIGHT_QKV, l, type, 3, (int[]){q, kv, kv}, s->hidden, buffer)) &&
             (layers[l].attn_out = load(in->dev, WEIGHT_ATTN_OUT, l, type, 1, &s->hidden, q, buffer)) &&
             (layers[l].ffn_norm = load(in->dev, WEIGHT_NORM, l, DTYPE_F32, 1, &one, s->hidden, buffer)) &&
             (layers[l].gate_up =
                  load(in->dev, WEIGHT_GATE_UP, l, type, 2, (int[]){s->ffn, s->ffn}, s->hidden, buffer)) &&
             (layers[l].down = load(in->dev, WEIGHT_DOWN, l, type, 1, &s->hidden, s->ffn, buffer));
    }
    ok = ok && (in->model.out_norm = load(in->dev, WEIGHT_NORM, -1, DTYPE_F32, 1, &one, s->hidden, buffer)) &&
         (in->model.head = load(in->dev, WEIGHT_HEAD, -1, type, 1, &s->vocab, s->hidden, buffer));
    free(buffer);
    in->model.config = f->config;
    in->model.layers = layers;
    in->limits = (struct step_limits){.max_tokens = tokens,
                                      .max_seqs = seqs,
                                      .max_rows = tokens,
                                      .max_context = context,
                                      .num_blocks = seqs * ((context + 15) / 16)};
    if (!ok || in->ops->reserve(in->dev, &in->limits, &in->ws, &err) != STATUS_OK) {
        fprintf(stderr, "%s\n", err.msg);
        in->ops->close(in->dev);
        free(in), free(layers);
        return NULL;
    }
    return in;
}

static void close_model(struct instance *in) {
    in->ops->close(in->dev);
    free(in->model.layers);
    free(in);
}

static void run_step(struct instance *in, const struct step *step) {
    const struct backend_ops *ops = in->ops;
    if (ops->step_begin(in->dev, step))
        return;
    ops->embed(in->dev, in->ws.resid, in->model.embed, step);
    for (int i = 0; i < in->model.config.num_layers; i++) {
        const struct layer *layer = &in->model.layers[i];
        ops->qkv(in->dev, in->ws.q, in->ws.resid, layer, step);
        if (step->num_decode > 0)
            ops->attn_decode(in->dev, in->ws.h, in->ws.q, layer, step);
        if (step->num_decode < step->num_seqs)
            ops->attn_prefill(in->dev, in->ws.h, in->ws.q, layer, step);
        ops->proj_add(in->dev, in->ws.resid, in->ws.h, layer->attn_out, step);
        ops->mlp_in(in->dev, in->ws.h, in->ws.resid, layer, step);
        ops->proj_add(in->dev, in->ws.resid, in->ws.h, layer->down, step);
    }
    ops->head(in->dev, in->ws.resid, &in->model, step);
    ops->step_end(in->dev);
}

// Seconds of one step, the next queued before this one is read.
static double time_steps(struct instance *in, const struct piece *pieces, int n, int steps) {
    struct batch *a = batch_make(in, pieces, n), *b = batch_make(in, pieces, n);
    struct step_out out;
    struct err err = {0};
    for (int i = 0; i < n; i++)
        a->rows[i].num_logprobs = b->rows[i].num_logprobs = -1;
    double start = 0;
    for (int i = 0; i < steps + 4; i++) { // four to warm up and to record
        if (i == 4)
            start = now();
        run_step(in, i % 2 ? &b->step : &a->step);
        if (i > 0 && in->ops->sync(in->dev, &out, &err) != STATUS_OK)
            break;
    }
    if (err.code != STATUS_OK || in->ops->sync(in->dev, &out, &err) != STATUS_OK) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
    double seconds = (now() - start) / steps;
    free(a), free(b);
    return seconds;
}

static void step_row(const char *kind, const char *shape, double tokens, double seconds, double limit) {
    fprintf(md, "| %s | %s | %.3f | %.0f | %.0f %% |\n", kind, shape, seconds * 1e3, tokens / seconds,
            100 * limit / seconds);
    fprintf(json,
            "%s\n    {\"step\": \"%s\", \"shape\": \"%s\", \"ms\": %.4f, \"tokens_per_s\": %.1f, \"share\": "
            "%.4f}",
            separator, kind, shape, seconds * 1e3, tokens / seconds, limit / seconds);
    separator = ",";
    fflush(md);
}

static void bench_model(const struct model_shape *s, enum dtype type) {
    static const int batches[] = {1, 16, 64}, contexts[] = {512, 4096}, prompts[] = {512, 2048, 8192};
    int most = tiny ? 4 : 64, long_context = tiny ? 64 : 4096, chunk = tiny ? 16 : 2048;
    struct fixture f = {0};
    char shape[96];
    struct instance *in = open_model(s, type, &f, chunk, tiny ? 64 : 8192, 1);
    double matrix = (double)s->layers * ((double)s->hidden * (2.0 * s->heads + 2.0 * s->kv_heads) * s->d +
                                         3.0 * s->hidden * s->ffn);
    double head = (double)s->vocab * s->hidden, each = (double)dtype_row_bytes(type, 256) / 256;
    if (in) {
        for (int i = 0; i < 3; i++) { // a prompt in chunks, each a step
            int n = tiny ? 16 << i : prompts[i];
            double seconds = 0, attention = 0;
            for (int at = 0; at < n; at += chunk) {
                struct piece p = {0, at, n - at < chunk ? n - at : chunk, false};
                seconds += time_steps(in, &p, 1, tiny ? 1 : 4);
            }
            attention = 2.0 * n * n * s->heads * s->d * s->layers;
            snprintf(shape, sizeof shape, "%s %s, %d tokens", s->name, dtype_name(type), n);
            step_row("prefill", shape, n, seconds, (2 * matrix * n + attention) / matrix_rate);
        }
        close_model(in);
    } else {
        fprintf(md, "| prefill | %s %s | does not fit | | |\n", s->name, dtype_name(type));
    }
    for (int c = 0; c < 2; c++) {
        int context = tiny ? 32 << c : contexts[c];
        (void)long_context;
        in = open_model(s, type, &f, 64, context, most);
        for (int b = 0; b < 3; b++) {
            int n = tiny ? 1 << b : batches[b];
            struct piece pieces[64];
            snprintf(shape, sizeof shape, "%s %s, batch %d, context %d", s->name, dtype_name(type), n,
                     context);
            if (!in) {
                fprintf(md, "| decode | %s | does not fit | | |\n", shape);
                continue;
            }
            for (int i = 0; i < n; i++)
                pieces[i] = (struct piece){i, context - 1, 1, false};
            double seconds = time_steps(in, pieces, n, tiny ? 2 : 50);
            double bytes =
                (matrix + head) * each + 4.0 * s->layers * s->kv_heads * s->d * (double)n * context;
            step_row("decode", shape, n, seconds, bytes / bandwidth);
        }
        if (in)
            close_model(in);
    }
}

static void bench_kernels(void) {
    section("Kernels", "| kernel | shape | µs | rate | of the limit |", "|---|---|---|---|---|");
    int n = tiny ? 32 : 4096, k = tiny ? 256 : 4096;
    static const char *const formats[] = {"F32", "BF16", "F16", "Q8_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K"};
    for (int f = FORMAT_BF16; f < FORMAT_COUNT; f++) {
        bench_gemm((enum cuda_format)f, formats[f], n, k);
        if (!tiny && (f == FORMAT_BF16 || f == FORMAT_Q8_0 || f == FORMAT_Q4_K)) {
            bench_gemm((enum cuda_format)f, formats[f], 28672, 4096);
            bench_gemm((enum cuda_format)f, formats[f], 4096, 14336);
            bench_gemm((enum cuda_format)f, formats[f], 896, 4864);
        }
    }
    for (int c = 0; c < 2; c++)
        for (int b = 0; b < 3; b++) {
            static const int batches[] = {1, 16, 64}, contexts[] = {512, 4096};
            int seqs = tiny ? 1 + b : batches[b], context = tiny ? 40 << c : contexts[c];
            bench_decode(DTYPE_BF16, tiny ? 1 : 8, 4, 128, seqs, context);
            bench_decode(DTYPE_BF16, tiny ? 1 : 2, 7, 64, seqs, context);
            bench_decode(DTYPE_BF16, tiny ? 1 : 32, 1, 128, seqs, context);
            for (int fp8 = 0; fp8 < 2; fp8++) {
                bench_decode(fp8 ? DTYPE_F8_E4M3 : DTYPE_I8, tiny ? 1 : 8, 4, 128, seqs, context);
                bench_decode(fp8 ? DTYPE_F8_E4M3 : DTYPE_I8, tiny ? 1 : 32, 1, 128, seqs, context);
            }
        }
    for (int i = 0; i < 3; i++) {
        static const int prompts[] = {512, 2048, 8192};
        bench_prefill(DTYPE_BF16, tiny ? 1 : 8, 4, 128, tiny ? 20 << i : prompts[i]);
        bench_prefill(DTYPE_BF16, tiny ? 1 : 2, 7, 64, tiny ? 20 << i : prompts[i]);
        bench_prefill(DTYPE_I8, tiny ? 1 : 8, 4, 128, tiny ? 20 << i : prompts[i]);
        bench_prefill(DTYPE_F8_E4M3, tiny ? 1 : 8, 4, 128, tiny ? 20 << i : prompts[i]);
    }
    bench_sum(tiny ? 2 : 1, tiny ? 64 : 4096);
    bench_sum(tiny ? 3 : 64, tiny ? 64 : 4096);
    bench_nccl(tiny ? 2 : 512, tiny ? 64 : 4096);
    bench_sample("greedy", 0, 0, 1, 3, 0);
    bench_sample("temperature 1", 1, 0, 1, 3, 0);
    bench_sample("top-k 40", 0.8f, 40, 1, 3, 0);
    bench_sample("top-p 0.9", 1, 0, 0.9f, 3, 0);
    bench_sample("top-p 0.9, flat", 1, 0, 0.9f, 0.01f, 0);
    bench_sample("temperature 1, 256 edits and a mask", 1, 0, 1, 3, tiny ? 5 : 256);
    for (int i = 0; i < 3; i++) {
        static const int rows[] = {1, 64, 2048};
        int r = tiny ? 1 << i : rows[i];
        bench_embed(r, tiny ? 64 : 4096);
        bench_norm(r, tiny ? 64 : 4096);
        bench_qkv(DTYPE_BF16, tiny ? 1 : 8, 4, 128, r, false);
        bench_qkv(DTYPE_I8, tiny ? 1 : 8, 4, 128, r, true);
        bench_qkv(DTYPE_BF16, tiny ? 1 : 2, 7, 64, r, false);
        bench_swiglu(r, tiny ? 64 : 14336); // up to 64 rows the product has it inside
    }
    for (int i = 0; i < 2; i++) {
        int r = tiny ? 8 : i ? 2048 : 512, h = tiny ? 32 : 4096, f = tiny ? 64 : 14336;
        bench_library(r, tiny ? 48 : 6144, h);
        bench_library(r, h, h);
        bench_library(r, 2 * f, h);
        bench_library(r, h, f);
    }
    fprintf(
        md,
        "\nThe limit of prefill attention and of cuBLASLt is arithmetic at the rate above, that of all "
        "others "
        "moving their bytes at the bandwidth above; sampling 64 x 151936 is to take under 15 µs. decode + "
        "merge are two kernels, measured together.\n");
}

// What recorded steps and overlapping kernels gain where launches weigh most: one sequence.
static void bench_gains(const struct model_shape *s, enum dtype type) {
    static const struct {
        const char *name, *overlap, *graphs;
    } ways[] = {
        {"as served", "1", "1"}, {"no overlap", "0", "1"}, {"no graphs", "1", "0"}, {"neither", "0", "0"}};
    int context = tiny ? 32 : 512;
    double matrix = (double)s->layers * ((double)s->hidden * (2.0 * s->heads + 2.0 * s->kv_heads) * s->d +
                                         3.0 * s->hidden * s->ffn),
           each = (double)dtype_row_bytes(type, 256) / 256,
           bytes = (matrix + (double)s->vocab * s->hidden) * each +
                   4.0 * s->layers * s->kv_heads * s->d * context;
    for (int i = 0; i < 4; i++) {
        struct fixture f = {0};
        struct piece p = {0, context - 1, 1, false};
        char shape[96];
        setenv("QUIRE_CUDA_OVERLAP", ways[i].overlap, 1); // read when a device is opened
        setenv("QUIRE_CUDA_GRAPHS", ways[i].graphs, 1);
        struct instance *in = open_model(s, type, &f, 64, context, 1);
        snprintf(shape, sizeof shape, "%s %s, batch 1, context %d: %s", s->name, dtype_name(type), context,
                 ways[i].name);
        if (in) {
            step_row("decode", shape, 1, time_steps(in, &p, 1, tiny ? 2 : 100), bytes / bandwidth);
            close_model(in);
        } else {
            fprintf(md, "| decode | %s | does not fit | | |\n", shape);
        }
    }
    unsetenv("QUIRE_CUDA_OVERLAP");
    unsetenv("QUIRE_CUDA_GRAPHS");
}

static void bench_steps(void) {
    section("Steps of random weights", "| step | shape | ms | tokens/s | of the limit |",
            "|---|---|---|---|---|");
    static const struct model_shape shapes[] = {{"Llama-3-8B", 32, 4096, 32, 8, 128, 14336, 128256},
                                                {"Qwen2.5-0.5B", 24, 896, 14, 2, 64, 4864, 151936}},
                                    small = {"tiny", 1, 256, 4, 2, 64, 256, 500};
    static const enum dtype types[] = {DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_K};
    for (int s = 0; s < (tiny ? 1 : 2); s++)
        for (int i = 0; i < 3; i++) {
            const struct model_shape *m = tiny ? &small : &shapes[s];
            bool whole = m->hidden % 256 == 0 && m->ffn % 256 == 0;
            bench_model(m, types[i] == DTYPE_Q4_K && !whole ? DTYPE_Q4_0
                                                            : types[i]); // Q4_K wants rows of whole blocks
        }
    for (int m = 0; m < (tiny ? 1 : 2); m++) {
        bench_gains(tiny ? &small : &shapes[m], DTYPE_BF16);
        bench_gains(tiny ? &small : &shapes[m], DTYPE_Q4_0);
    }
    fprintf(
        md,
        "\n`no overlap`: no kernel begins before the one before it has ended (QUIRE_CUDA_OVERLAP=0), so that "
        "what a "
        "product loads ahead of its input gains nothing either; `no graphs`: every kernel is launched by "
        "itself "
        "(QUIRE_CUDA_GRAPHS=0).\n"
        "\nQwen2.5-0.5B stands in Q4_0, not in Q4_K: a row of Q4_K is whole blocks of 256 weights, and its "
        "rows of 896 "
        "are none, so no file has it so (files called Q4_K_M fall back to Q5_0 there, which this backend "
        "refuses). "
        "Its biases are left out, and the head is a matrix of its own, where its files use the embedding's.\n"
        "\nGoals, of the limit: decode of 8B in bf16 and Q8_0 85, 80, 75 %% at batch 1, 16, 64, in 4 bits "
        "80, 77, 70 "
        "%%; of 0.5B 55 %% at batch 1; prefill 60 %%.\n");
    fprintf(
        md,
        "\nThe limit of a decode step is reading its weights and its cache at the bandwidth above, that of "
        "a prompt its arithmetic at the rate above.\n");
}

int main(int argc, char **argv) {
    struct err err = {0};
    struct rt_info info;
    char path[4096], day[32];
    const char *only = "";
    if (argc < 2 || !(rt = rt_open(0, &err))) {
        fprintf(stderr, "%s\n", argc < 2 ? "usage: bench_cuda OUT [--tiny] [--only kernels|steps]" : err.msg);
        return 2;
    }
    for (int i = 2; i < argc; i++) {
        tiny |= strcmp(argv[i], "--tiny") == 0;
        if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
            only = argv[++i];
    }
    snprintf(path, sizeof path, "%s.json", argv[1]);
    json = fopen(path, "w");
    snprintf(path, sizeof path, "%s.md", argv[1]);
    md = fopen(path, "w");
    if (!json || !md) {
        fprintf(stderr, "cannot write %s\n", path);
        return 1;
    }
    time_t t = time(NULL);
    strftime(day, sizeof day, "%Y-%m-%d", gmtime(&t));
    rt_describe(rt, &info);
    cache = info.cache;
    fprintf(md, "## Limits%s%s\n\n", only[0] ? ", measured with the " : "", only);
    fprintf(md, "%s, compute capability %d.%d, %d processors, %zu MiB of memory, %s.\n", info.name,
            info.major, info.minor, info.num_processors, info.total >> 20, day);
    fprintf(json,
            "{\n  \"device\": \"%s\",\n  \"date\": \"%s\",\n  \"emulated\": %s,\n  \"capability\": "
            "\"%d.%d\",\n",
            info.name, day, info.emulated ? "true" : "false", info.major, info.minor);
    measure_limits();
    fprintf(json, "  \"kernels\": [");
    if (strcmp(only, "steps") != 0)
        bench_kernels();
    fprintf(json, "\n  ],\n  \"steps\": [");
    separator = "";
    if (strcmp(only, "kernels") != 0)
        bench_steps();
    fprintf(json, "\n  ]\n}\n");
    must_wait();
    rt_close(rt);
    return fclose(json) != 0 || fclose(md) != 0;
}
