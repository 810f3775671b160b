// GEMMs, cuBLASLt's too, attention and sampling of the CUDA backend, each kernel against the device's limits. See
// bench_cuda.c.
#include "bench_cuda.h"
#include "fixture.h"

static const char kernel_columns[] = "| kernel | shape | µs | rate | of roofline |";

// ---- GEMMs

static void gemm_once(void *arg, int i) { cuda_gemm(rt, &((struct cuda_gemm *)arg)[i]); }
static void dequant_once(void *arg, int i) { cuda_dequant(rt, &((struct cuda_dequant *)arg)[i]); }
static void quantise_once(void *arg, int i) { cuda_quantise(rt, &((struct cuda_quantise *)arg)[i]); }

static enum stream_kind kind_of(enum act_dtype act_dtype) {
    return act_dtype == ACT_DTYPE_F32 ? STREAM_F32 : act_dtype == ACT_DTYPE_F16 ? STREAM_F16 : STREAM_BF16;
}

// As the backend has them.
static struct cuda_parts gemm_parts(void) {
    struct rt_info info;
    rt_describe(rt, &info);
    int blocks = 2 * info.num_sms;
    return (struct cuda_parts){.sums = device((size_t)blocks * CUDA_PART * sizeof(float)),
                               .arrived = device((size_t)blocks * sizeof(uint32_t)),
                               .max_blocks = blocks,
                               .shared_max = info.shared_max};
}

static size_t matrix_bytes(enum weight_layout f, int n, int k) {
    size_t bytes[3];
    cuda_matrix_bytes(f, n, k, bytes);
    return bytes[0] + bytes[1] + bytes[2];
}

// Random numbers; the scales are f16, or bytes of any value.
static struct cuda_matrix random_matrix(enum weight_layout f, int n, int k) {
    enum stream_kind kind = f == LAYOUT_F32    ? STREAM_F32
                            : f == LAYOUT_BF16 ? STREAM_BF16
                            : f == LAYOUT_F16  ? STREAM_F16
                                               : STREAM_BITS;
    size_t bytes[3];
    cuda_matrix_bytes(f, n, k, bytes);
    return (struct cuda_matrix){.layout = f,
                                .rows = n,
                                .cols = k,
                                .data = filled(bytes[0], kind),
                                .scales = filled(bytes[1] + 16, STREAM_F16),
                                .supers = filled(bytes[2] + 16, STREAM_F16)};
}

// Rows of activations. On the emulator a few, for both kernels.
static const int all_tokens[] = {1, 8, 16, 32, 64, 128, 256}, tiny_tokens[] = {1, 20};

static int num_tokens(void) { return tiny ? 2 : 7; }

static int tokens_at(int t) { return tiny ? tiny_tokens[t] : all_tokens[t]; }

// Measures GEMM for all numbers of rows, or only one.
static void bench_gemm(enum weight_layout f, const char *name, int n, int k, int only) {
    size_t all = matrix_bytes(f, n, k);
    char shape[64];
    set_copies((double)all);
    struct cuda_gemm *a = must_calloc((size_t)num_copies, sizeof *a);
    struct cuda_dequant *d = must_calloc((size_t)num_copies, sizeof *d);
    for (int i = 0; i < num_copies; i++)
        a[i].w = random_matrix(f, n, k);
    enum act_dtype act_dtype = cuda_act_dtype_of(f);
    for (int t = 0; t < (only ? 1 : num_tokens()); t++) {
        int m = only ? only : tokens_at(t);
        const void *x = filled((size_t)(m * k) * 4, kind_of(act_dtype));
        const float *scale = filled((size_t)m * 4, STREAM_F32);
        float *y = device((size_t)(m * n) * 4);
        struct cuda_parts parts = gemm_parts();
        for (int i = 0; i < num_copies; i++)
            a[i] = (struct cuda_gemm){.w = a[i].w,
                                      .parts = parts,
                                      .x = x,
                                      .scale = scale,
                                      .m = m,
                                      .ldx = k,
                                      .y = y,
                                      .ldy = n,
                                      .n = n};
        snprintf(shape, sizeof shape, "%s (%d, %d) x %d", name, n, k, m);
        row("gemm", shape, time_kernel(gemm_once, a), (double)all, bandwidth, "GB/s");
        for (int i = 0; i < num_copies; i++)
            a[i].parts.wgmma = true;
        if ((f == LAYOUT_BF16 || f == LAYOUT_F16) && cuda_has_wgmma(rt))
            row("gemm, wgmma", shape, time_kernel(gemm_once, a), (double)all, bandwidth, "GB/s");
    }
    if (f > LAYOUT_F16 && !only) { // what a long prompt adds to cuBLASLt's GEMM
        uint16_t *out = device((size_t)n * (size_t)k * 2);
        for (int i = 0; i < num_copies; i++)
            d[i] = (struct cuda_dequant){a[i].w, out, NULL};
        snprintf(shape, sizeof shape, "%s (%d, %d)", name, n, k);
        row("dequantise", shape, time_kernel(dequant_once, d), (double)all + 2.0 * n * k, bandwidth, "GB/s");
    }
    release();
    free(a), free(d);
}

// A GEMM that ends as those of a step do: gate and up become their SwiGLU, an output is added to the
// residual stream, logits leave the maxima of their groups. As in bench_gemm() but for what is written.
static void bench_epilogue(enum cuda_epilogue epilogue, enum weight_layout f, const char *name, int n,
                           int k) {
    static const char *const kinds[] = {
        [EPILOGUE_ADD] = "gemm, sum", [EPILOGUE_GATED] = "gemm, SwiGLU", [EPILOGUE_LOGITS] = "gemm, logits"};
    bool gated = epilogue == EPILOGUE_GATED, logits = epilogue == EPILOGUE_LOGITS;
    int columns = gated ? n / 2 : n, groups = n / CUDA_GROUP;
    size_t all = matrix_bytes(f, n, k);
    char shape[64];
    set_copies((double)all);
    struct cuda_gemm *a = must_calloc((size_t)num_copies, sizeof *a);
    for (int i = 0; i < num_copies; i++)
        a[i].w = random_matrix(f, n, k);
    for (int t = 0; t < num_tokens(); t++) {
        int m = tokens_at(t);
        size_t out = (size_t)m * (size_t)columns,
               each = gated                      ? 2
                      : epilogue == EPILOGUE_ADD ? 8
                                                 : 4,
               maxima = logits ? (size_t)m * (size_t)groups * 4 : 0;
        const void *x = filled((size_t)(m * k) * 2, STREAM_BF16);
        float *y = gated ? NULL : device(out * 4), *max = logits ? device(maxima) : NULL;
        void *h = gated ? device(out * 2) : NULL;
        struct cuda_parts parts = gemm_parts();
        for (int i = 0; i < num_copies; i++)
            a[i] = (struct cuda_gemm){.w = a[i].w,
                                      .parts = parts,
                                      .x = x,
                                      .m = m,
                                      .ldx = k,
                                      .epilogue = epilogue,
                                      .y = y,
                                      .ldy = columns,
                                      .n = columns,
                                      .h = h,
                                      .act_dtype = ACT_DTYPE_BF16,
                                      .max = max,
                                      .ldmax = groups,
                                      .factor = 1};
        snprintf(shape, sizeof shape, "%s (%d, %d) x %d", name, n, k, m);
        row(kinds[epilogue], shape, time_kernel(gemm_once, a), (double)(all + out * each + maxima), bandwidth,
            "GB/s");
    }
    release();
    free(a);
}

static const char *const e4m3_names[] = {"bf16", "e4m3", "e4m3, blocks", "e4m3, groups"};

// cuBLASLt's GEMM of bf16, or of E4M3 at what may be twice the rate. Of few rows its limit is reading the weights, as ours.
static void bench_library(enum cuda_e4m3 e4m3, int m, int n, int k) {
    size_t each = e4m3 ? 1 : 2, bytes = (size_t)n * (size_t)k * each;
    set_copies((double)bytes);
    struct rt_gemm *g = must_calloc((size_t)num_copies, sizeof *g);
    const void *x = filled((size_t)m * (size_t)k * each, STREAM_BF16);
    bool scaled = e4m3 > E4M3_ROWS;
    const float *x_scale = scaled ? filled((size_t)m * (size_t)k / 32, STREAM_F32) : NULL;
    float *y = device((size_t)m * (size_t)n * 4);
    for (int i = 0; i < num_copies; i++)
        g[i] = (struct rt_gemm){.x = x,
                                .w = filled(bytes, STREAM_BF16),
                                .y = y,
                                .m = m,
                                .n = n,
                                .k = k,
                                .ldx = k,
                                .ldw = k,
                                .ldy = n,
                                .type = e4m3 ? RT_E4M3 : RT_BF16,
                                .x_scale = x_scale,
                                .w_scale = scaled ? filled(bytes / 32, STREAM_F32) : NULL,
                                .w_blocks = e4m3 == E4M3_BLOCKS};
    char shape[64];
    snprintf(shape, sizeof shape, "%s (%d, %d) x %d", e4m3_names[e4m3], n, k, m);
    if (m <= 256)
        row("cuBLASLt", shape, time_library(g), (double)bytes, bandwidth, "GB/s");
    else
        row("cuBLASLt", shape, time_library(g), 2.0 * m * n * k, matrix_rate, "TFLOP/s");
    release();
    free(g);
}

// W8A8: what FP8 weights and activations become on their way to cuBLASLt.
static void bench_w8a8(enum cuda_e4m3 e4m3, int m, int n, int k) {
    size_t all = matrix_bytes(LAYOUT_FP8, n, k), bytes = (size_t)n * (size_t)k, rows = (size_t)m * (size_t)k;
    set_copies((double)all);
    struct cuda_dequant *d = must_calloc((size_t)num_copies, sizeof *d);
    struct cuda_quantise *q = must_calloc((size_t)num_copies, sizeof *q);
    for (int i = 0; i < num_copies; i++) {
        d[i] = (struct cuda_dequant){random_matrix(LAYOUT_FP8, n, k), device(bytes), device(bytes / 32)};
        d[i].w.e4m3 = e4m3;
        q[i] = (struct cuda_quantise){.x = filled(rows * 2, STREAM_BF16),
                                      .out = device(rows),
                                      .scale = device(rows / 32),
                                      .rows = m,
                                      .n = k,
                                      .ldx = k,
                                      .ld_scale = e4m3 > E4M3_ROWS ? m : 0};
    }
    char shape[64];
    snprintf(shape, sizeof shape, "%s (%d, %d)", e4m3_names[e4m3], n, k);
    row("unpack FP8", shape, time_kernel(dequant_once, d), (double)(all + bytes), bandwidth, "GB/s");
    snprintf(shape, sizeof shape, "%d x %d", m, k);
    row(e4m3 > E4M3_ROWS ? "quantise, groups" : "quantise", shape, time_kernel(quantise_once, q),
        3.0 * (double)rows, bandwidth, "GB/s");
    release();
    free(d), free(q);
}

static void finish_once(void *arg, int i) { cuda_finish(rt, &((struct cuda_finish *)arg)[i]); }

// After cuBLASLt's GEMM of F16 weights with a bias: the bias is added.
static void bench_finish(int rows, int n) {
    size_t all = (size_t)(rows * n) * 4;
    double bytes = 3.0 * (double)all + 4.0 * rows + 4.0 * n; // x, y read and written
    set_copies(bytes);
    struct cuda_finish *a = must_calloc((size_t)num_copies, sizeof *a);
    for (int i = 0; i < num_copies; i++)
        a[i] = (struct cuda_finish){.x = filled(all, STREAM_F32),
                                    .scales = {.row = filled((size_t)rows * 4, STREAM_F32)},
                                    .bias = filled((size_t)n * 4, STREAM_F32),
                                    .y = filled(all, STREAM_F32),
                                    .rows = rows,
                                    .n = n,
                                    .ldx = n,
                                    .ldy = n,
                                    .add = true};
    char shape[64];
    snprintf(shape, sizeof shape, "%d x %d", rows, n);
    row("bias, factor, sum", shape, time_kernel(finish_once, a), bytes, bandwidth, "GB/s");
    release();
    free(a);
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

// Sequences of equal length, each with blocks of its own.
static struct cuda_kv make_cache_of(int block_size, enum dtype dtype, int kv_heads, int d, int seqs,
                                    int context, struct cuda_blocks *blocks) {
    int per = (context + block_size - 1) / block_size;
    size_t vectors = (size_t)seqs * (size_t)per * (size_t)block_size * (size_t)kv_heads,
           all = vectors * dtype_row_bytes(dtype, d), scales = dtype == DTYPE_I8 ? vectors * 4 : 0;
    int32_t *start = must_calloc((size_t)seqs + 1, 4), *ids = must_calloc((size_t)(seqs * per), 4);
    for (int s = 0; s <= seqs; s++)
        start[s] = s * per;
    for (int i = 0; i < seqs * per; i++)
        ids[i] = (int32_t)((long long)i * 7919 % (seqs * per)); // scattered
    *blocks =
        (struct cuda_blocks){upload(start, (size_t)(seqs + 1) * 4), upload(ids, (size_t)(seqs * per) * 4)};
    free(start), free(ids);
    return (struct cuda_kv){
        filled(all, kv_kind(dtype)), filled(all, kv_kind(dtype)), dtype, block_size, kv_heads, d,
        filled(scales, STREAM_F32),  filled(scales, STREAM_F32)};
}

static struct cuda_kv make_cache(enum dtype dtype, int kv_heads, int d, int seqs, int context,
                                 struct cuda_blocks *blocks) {
    return make_cache_of(16, dtype, kv_heads, d, seqs, context, blocks);
}

static void bench_decode(enum dtype dtype, int kv_heads, int group, int d, int seqs, int context) {
    int H = kv_heads * group, chunks = (context + CUDA_SPLIT - 1) / CUDA_SPLIT;
    int32_t n = seqs * chunks, *first = must_calloc((size_t)seqs + 1, 4);
    struct cuda_split *splits = must_calloc((size_t)n, sizeof *splits);
    for (int i = 0; i < n; i++)
        splits[i] = (struct cuda_split){i / chunks, i / chunks, i % chunks * CUDA_SPLIT,
                                        i % chunks == chunks - 1 ? context : (i % chunks + 1) * CUDA_SPLIT};
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
                                    .splits = upload(splits, (size_t)n * sizeof *splits),
                                    .num_splits = upload(&n, 4),
                                    .first_split = upload(first, (size_t)(seqs + 1) * 4),
                                    .max_splits = n,
                                    .group = group,
                                    .scale = 0.1f,
                                    .partial = device((size_t)n * (size_t)(H * d) * 4),
                                    .stats = device((size_t)n * (size_t)H * 8),
                                    .arrived = device((size_t)n * (size_t)H * 4),
                                    .out = device((size_t)(seqs * H * d) * 2),
                                    .act_dtype = ACT_DTYPE_BF16,
                                    .ldout = H * d};
    }
    char shape[64];
    snprintf(shape, sizeof shape, "%s, K %d G %d d %d, %d x %d tokens", dtype_name(dtype), kv_heads, group, d,
             seqs, context);
    row("decode attention", shape, time_kernel(decode_once, a), bytes, bandwidth, "GB/s");
    release();
    free(splits), free(first), free(a);
}

static void bench_prefill(enum dtype dtype, int kv_heads, int group, int d, int tokens, int tile_rows) {
    int H = kv_heads * group;
    int32_t n = (tokens * group + tile_rows - 1) / tile_rows;
    struct cuda_tile *tiles = must_calloc((size_t)n, sizeof *tiles);
    for (int i = 0; i < n; i++) // the heaviest first
        tiles[i] = (struct cuda_tile){0, 0, (n - 1 - i) * tile_rows, tokens * group, 0};
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
                                     .tile_rows = tile_rows,
                                     .group = group,
                                     .scale = 0.1f,
                                     .out = device(queries),
                                     .act_dtype = ACT_DTYPE_BF16,
                                     .ldout = H * d};
    }
    char shape[64];
    snprintf(shape, sizeof shape, "%s, K %d G %d d %d, %d tokens", dtype_name(dtype), kv_heads, group, d,
             tokens);
    double flop = 2.0 * tokens * tokens * H * d; // two GEMMs, half of the square
    row(tile_rows == CUDA_TILE ? "prefill attention" : "prefill attention, wgmma", shape,
        time_kernel(prefill_once, a), flop, matrix_rate, "TFLOP/s");
    release();
    free(tiles), free(a);
}

static void attend_once(void *arg, int i) { cuda_attend(rt, &((struct cuda_attend *)arg)[i]); }

// The kernel of shapes that have no other: one row of each of some sequences (rows 1), or a prompt of one.
static void bench_attend(enum dtype dtype, int block_size, int kv_heads, int group, int d, int seqs,
                         int context, bool prompt) {
    int H = kv_heads * group, rows = prompt ? context : seqs;
    enum dtype of_q = cuda_query_dtype(dtype);
    size_t queries = (size_t)(rows * H * d);
    int32_t *seq_of = must_calloc((size_t)rows, sizeof *seq_of),
            *positions = must_calloc((size_t)rows, sizeof *positions);
    for (int i = 0; i < rows; i++)
        seq_of[i] = prompt ? 0 : i, positions[i] = prompt ? i : context - 1;
    double cache = 2.0 * (double)backend_kv_vector_bytes(dtype, d) * kv_heads * seqs * context;
    set_copies(cache);
    struct cuda_attend *a = must_calloc((size_t)num_copies, sizeof *a);
    for (int i = 0; i < num_copies; i++) {
        struct cuda_blocks blocks;
        struct cuda_kv kv = make_cache_of(block_size, dtype, kv_heads, d, seqs, context, &blocks);
        a[i] = (struct cuda_attend){.q = filled(dtype_row_bytes(of_q, (int)queries), kv_kind(of_q)),
                                    .kv = kv,
                                    .blocks = blocks,
                                    .seq_of = upload(seq_of, (size_t)rows * sizeof *seq_of),
                                    .positions = upload(positions, (size_t)rows * sizeof *positions),
                                    .rows = rows,
                                    .group = group,
                                    .scale = 0.1f,
                                    .out = device(queries * 2),
                                    .act_dtype = ACT_DTYPE_BF16,
                                    .ldout = H * d};
    }
    char shape[96];
    snprintf(shape, sizeof shape, "%s, blocks of %d, K %d G %d d %d, %d x %d tokens", dtype_name(dtype),
             block_size, kv_heads, group, d, seqs, context);
    double seconds = time_kernel(attend_once, a);
    if (prompt)
        row("general prefill attention", shape, seconds, 2.0 * context * context * H * d, matrix_rate,
            "TFLOP/s");
    else
        row("general attention", shape, seconds, cache, bandwidth, "GB/s");
    release();
    free(seq_of), free(positions), free(a);
}

// ---- sampling

static void sample_once(void *arg, int i) { cuda_sample(rt, &((struct cuda_sample *)arg)[i]); }

// entries: of each row, as penalties make them, and a mask of half of the tokens.
static void bench_sample(const char *name, float temperature, int top_k, float top_p, float spread,
                         int entries) {
    int rows = tiny ? 2 : 64, V = tiny ? 500 : 151936, ld = (V + 15) / 16 * 16, groups = ld / 16,
        n = rows * entries;
    struct logits_row *heads = must_calloc((size_t)rows, sizeof *heads);
    struct cuda_row_prep *prep = must_calloc((size_t)rows, sizeof *prep);
    struct logit_entry *entry = must_calloc((size_t)n + 1, sizeof *entry);
    int32_t *passes = must_calloc((size_t)rows + 1, sizeof *passes);
    float *logits = must_calloc((size_t)(rows * ld), sizeof *logits);
    for (int r = 0; r < rows; r++) {
        heads[r] = (struct logits_row){.row = r,
                                       .target = -1,
                                       .temperature = temperature,
                                       .top_p = top_p,
                                       .top_k = top_k,
                                       .num_logprobs = -1,
                                       .index = r,
                                       .seed = 7};
        prep[r] =
            (struct cuda_row_prep){.mask = -1, .adjusted = -1, .low = -INFINITY, .bits = (uint64_t)r << 57};
        passes[r] = r * entries;
        if (entries > 0)
            prep[r].pass_start = r, prep[r].pass_end = r + 1, prep[r].adjusted = r, prep[r].mask = 0;
        for (int i = 0; i < entries; i++)
            entry[r * entries + i] = (struct logit_entry){.div = 1, .token = i * (V / entries), .add = -0.5f};
    }
    passes[rows] = n;
    for (int i = 0; i < rows * ld; i++)
        logits[i] = (random_float() + random_float() + random_float()) * spread;
    float *max = group_maxima(logits, rows, V, ld, CUDA_GROUP);
    set_copies((double)rows * V * 4);
    struct cuda_sample *a = must_calloc((size_t)num_copies, sizeof *a);
    for (int i = 0; i < num_copies; i++) {
        a[i] = (struct cuda_sample){.rows = upload(heads, (size_t)rows * sizeof *heads),
                                    .prep = upload(prep, (size_t)rows * sizeof *prep),
                                    .entries = upload(entry, (size_t)(n + 1) * sizeof *entry),
                                    .passes = upload(passes, ((size_t)rows + 1) * sizeof *passes),
                                    .mask_bits = filled((size_t)(V + 31) / 32 * 4, STREAM_BITS),
                                    .logits = upload(logits, (size_t)(rows * ld) * 4),
                                    .max = upload(max, (size_t)(rows * groups) * sizeof *max),
                                    .adjusted = device((size_t)(rows * ld) * 4),
                                    .adjusted_max = device((size_t)(rows * groups) * 4),
                                    .sums = device((size_t)(rows * groups) * 8),
                                    .parts = device((size_t)rows * CUDA_SAMPLE_SLICES * CUDA_SAMPLE_PART * 8),
                                    .num_rows = rows,
                                    .num_adjusted = entries > 0 ? rows : 0,
                                    .vocab = V,
                                    .ld = ld,
                                    .ldmax = groups,
                                    .end = V,
                                    .num_slices = CUDA_SAMPLE_SLICES,
                                    .max_topk = CUDA_TOPK,
                                    .topk = device((size_t)rows * sizeof(struct cuda_topk)),
                                    .ids = device((size_t)rows * 4),
                                    .rank = device((size_t)rows * 4),
                                    .share = device((size_t)rows * 4),
                                    .top_ids = device((size_t)rows * 80),
                                    .logprob = device((size_t)rows * 4),
                                    .top_logprobs = device((size_t)rows * 80),
                                    .failed = device((size_t)rows)};
    }
    char shape[64];
    snprintf(shape, sizeof shape, "%s, %d x %d", name, rows, V);
    row("sample", shape, time_kernel(sample_once, a), (double)rows * V * 4, bandwidth, "GB/s");
    release();
    free(heads), free(prep), free(logits), free(max), free(entry), free(passes), free(a);
}

void bench_gemms(void) {
    section("GEMMs", kernel_columns);
    static const char *const layouts[] = {"F32",  "BF16",  "F16",  "Q8_0", "Q4_0", "Q4_K", "Q5_K",
                                          "Q6_K", "MXFP4", "Q2_K", "IQ4",  "Q5_1", "FP8",  "FP8_32"};
    static const int shapes[][2] = {{6144, 4096}, {28672, 4096}, {4096, 14336}, {896, 4864}};
    int n = tiny ? 32 : 4096, k = tiny ? 256 : 4096;
    for (int i = 0; i < 3; i++) { // what served models mostly have comes first
        static const enum weight_layout most[] = {LAYOUT_BF16, LAYOUT_Q8_0, LAYOUT_Q4_K};
        bench_gemm(most[i], layouts[most[i]], n, k, 0);
        for (int j = 0; !tiny && j < 4; j++)
            bench_gemm(most[i], layouts[most[i]], shapes[j][0], shapes[j][1], 0);
    }
    for (int t = 0; t < num_tokens(); t++) {
        bench_library(E4M3_NO, tokens_at(t), n, k);
        for (int j = 0; !tiny && j < 3; j++)
            bench_library(E4M3_NO, tokens_at(t), shapes[j][0], shapes[j][1]);
    }
    for (int f = LAYOUT_F32; f < LAYOUT_COUNT; f++)
        if (f != LAYOUT_BF16 && f != LAYOUT_Q8_0 && f != LAYOUT_Q4_K)
            bench_gemm((enum weight_layout)f, layouts[f], n, k, 0);
    for (int i = 0; i < 2; i++) {
        enum weight_layout f = i ? LAYOUT_Q4_K : LAYOUT_BF16;
        bench_epilogue(EPILOGUE_ADD, f, layouts[f], n, k);
        bench_epilogue(EPILOGUE_GATED, f, layouts[f], tiny ? 64 : 28672, k);
        bench_epilogue(EPILOGUE_LOGITS, f, layouts[f], tiny ? 64 : 128256, k);
    }
    for (int i = 0; i < 2; i++) {
        int r = tiny ? 300 : i ? 2048 : 512, h = tiny ? 32 : 4096, f = tiny ? 64 : 14336;
        bench_library(E4M3_NO, r, tiny ? 48 : 6144, h);
        bench_library(E4M3_NO, r, h, h);
        bench_library(E4M3_NO, r, 2 * f, h);
        bench_library(E4M3_NO, r, h, f);
        bench_finish(tiny ? 8 : r, h);
        for (int e4m3 = E4M3_ROWS; e4m3 <= E4M3_GROUPS; e4m3++) {
            bench_w8a8((enum cuda_e4m3)e4m3, r, 2 * f, tiny ? 256 : h);
            bench_library((enum cuda_e4m3)e4m3, r, 2 * f, tiny ? 256 : h);
        }
    }
    fprintf(md,
            "\nThe limit is reading the weights at the bandwidth above; of more than 256 rows of cuBLASLt, "
            "arithmetic at the rate above.\n");
}

void bench_attention(void) {
    section("Attention", kernel_columns);
    int K = tiny ? 1 : 8, H = tiny ? 1 : 32;
    for (int c = 0; c < (tiny ? 2 : 3); c++)
        for (int b = 0; b < (tiny ? 3 : 4); b++) {
            static const int batches[] = {1, 16, 64, 256}, contexts[] = {512, 4096, 32768};
            int seqs = tiny ? 1 + b : batches[b], context = tiny ? 40 << c : contexts[c];
            if (!tiny && seqs * context > 1 << 20) // 4 GB of 8 kv heads
                continue;
            bench_decode(DTYPE_BF16, K, 4, 128, seqs, context);
            if (context == 32768 || seqs == 256)
                continue;
            bench_decode(DTYPE_BF16, tiny ? 1 : 2, 7, 64, seqs, context);
            bench_decode(DTYPE_BF16, H, 1, 128, seqs, context);
            bench_decode(DTYPE_BF16, K, 1, 256, seqs, context);
            bench_decode(DTYPE_BF16, K, 2, 256, seqs, context);
            bench_decode(DTYPE_BF16, tiny ? 1 : 2, 8, 256, seqs, context);
            for (int fp8 = 0; fp8 < 2; fp8++) {
                bench_decode(fp8 ? DTYPE_F8_E4M3 : DTYPE_I8, K, 4, 128, seqs, context);
                bench_decode(fp8 ? DTYPE_F8_E4M3 : DTYPE_I8, H, 1, 128, seqs, context);
            }
        }
    for (int i = 0; i < (tiny ? 3 : 4); i++) {
        static const int prompts[] = {512, 2048, 8192, 32768};
        int tokens = tiny ? 20 << i : prompts[i];
        for (int rows = CUDA_TILE; rows <= (cuda_has_wgmma(rt) ? CUDA_WIDE_TILE : CUDA_TILE);
             rows += CUDA_TILE) {
            bench_prefill(DTYPE_BF16, K, 4, 128, tokens, rows);
            bench_prefill(DTYPE_BF16, tiny ? 1 : 2, 7, 64, tokens, rows);
        }
        bench_prefill(DTYPE_BF16, K, 2, 256, tokens, CUDA_TILE);
        if (tokens == 32768)
            continue;
        bench_prefill(DTYPE_I8, K, 4, 128, tokens, CUDA_TILE);
        bench_prefill(DTYPE_F8_E4M3, K, 4, 128, tokens, CUDA_TILE);
    }
    for (int i = 0; i < 4; i++) { // what sends a model there: its cache, its heads, its blocks
        static const struct {
            enum dtype dtype;
            int block_size, d;
        } ways[] = {{DTYPE_F32, 16, 128}, {DTYPE_BF16, 16, 80}, {DTYPE_BF16, 8, 128}, {DTYPE_I8, 8, 128}};
        int block = ways[i].block_size, d = ways[i].d;
        bench_attend(ways[i].dtype, block, K, 4, d, 1, tiny ? 20 : 512, false);
        bench_attend(ways[i].dtype, block, K, 4, d, tiny ? 2 : 16, tiny ? 20 : 512, false);
        bench_attend(ways[i].dtype, block, K, 4, d, 1, tiny ? 20 : 512, true);
    }
    fprintf(
        md,
        "\nThe limit of prefill attention is arithmetic at the rate above, that of all others moving their "
        "bytes at the bandwidth above.\n");
}

void bench_sampling(void) {
    section("Sampling", kernel_columns);
    bench_sample("greedy", 0, 0, 1, 3, 0);
    bench_sample("temperature 1", 1, 0, 1, 3, 0);
    bench_sample("top-k 40", 0.8f, 40, 1, 3, 0);
    bench_sample("top-p 0.9", 1, 0, 0.9f, 3, 0);
    bench_sample("top-p 0.9, flat", 1, 0, 0.9f, 0.01f, 0);
    bench_sample("temperature 1, 256 entries and a mask", 1, 0, 1, 3, tiny ? 5 : 256);
    fprintf(
        md,
        "\nThe limit is reading the logits at the bandwidth above; 64 x 151936 are to take under 15 µs.\n");
}

// Launches each kernel for a profiler once, over data that no cache holds.
void bench_profile(void) {
    section("Launched once, for a profiler", kernel_columns);
    int n = tiny ? 64 : 28672, k = tiny ? 256 : 4096, K = tiny ? 1 : 8;
    bench_gemm(LAYOUT_BF16, "BF16", n, k, 1);
    bench_gemm(LAYOUT_Q4_K, "Q4_K", n, k, 1);
    bench_gemm(LAYOUT_BF16, "BF16", n, k, tiny ? 20 : 64);
    bench_gemm(LAYOUT_Q4_K, "Q4_K", n, k, tiny ? 20 : 256);
    bench_decode(DTYPE_BF16, K, 4, 128, tiny ? 2 : 64, tiny ? 40 : 4096);
    bench_prefill(DTYPE_BF16, K, 4, 128, tiny ? 20 : 8192, CUDA_TILE);
    if (cuda_has_wgmma(rt))
        bench_prefill(DTYPE_BF16, K, 4, 128, tiny ? 20 : 8192, CUDA_WIDE_TILE);
    bench_sample("top-p 0.9", 1, 0, 0.9f, 3, 0);
}
