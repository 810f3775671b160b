// Paged attention: decode, combine, prefill and the kernel for any shape, against softmax in double over
// ragged lengths, shuffled blocks, and NaN wherever no token of the sequence is. Where there is a window, the
// table names a page of NaN in place of each that lies wholly before what kv_first_kept() says. Over 600 lines: every kernel
// attends to the same sequences.
#include "device.h"

#include <sys/mman.h>

struct shape_of {
    int kv_heads, group, d, block_size, window;
    enum dtype dtype;
};

// How attention may differ from that of most models.
struct kind {
    bool sinks, chunked;
    float softcap;
    bool bidirectional;
};
static const struct kind plain;

enum { MAX_SEQS = 6 };

struct world {
    struct shape_of s;
    struct kind kind;
    int num_seqs, rows, num_blocks, query_start[MAX_SEQS + 1], context[MAX_SEQS];
    int32_t *start, *ids; // block tables
    char *keys, *values;  // as the cache holds them
    float *scales[2];     // of keys and values, with I8
    float *sinks;         // (H)
    float *q;             // rounded to the type of queries beside it
    double *want;         // (rows, H * d)
    // on the device
    struct cuda_kv kv;
    struct cuda_blocks blocks;
    void *d_q, *d_sinks, *out;
    int ldout;
};

static size_t place(const struct world *w, int seq, int pos, int h) {
    int block = w->ids[w->start[seq] + pos / w->s.block_size];
    return ((size_t)(block * w->s.kv_heads + h) * (size_t)w->s.block_size + (size_t)(pos % w->s.block_size)) *
           (size_t)w->s.d;
}

// Element i of what lies at a place of keys (which 0) or values (1).
static double fetch(const struct world *w, int which, size_t place, int i) {
    size_t size = dtype_row_bytes(w->s.dtype, 1), at = place + (size_t)i;
    const char *p = which ? w->values : w->keys;
    if (w->s.dtype == DTYPE_I8)
        return (double)((const int8_t *)p)[at] * (double)w->scales[which][place / (size_t)w->s.d];
    return (double)ref_fetch(p + at * size, w->s.dtype);
}

static void store(struct world *w, int which, size_t place, float scale) {
    size_t size = dtype_row_bytes(w->s.dtype, 1);
    char *p = (which ? w->values : w->keys) + place * size;
    float x[256];
    for (int i = 0; i < w->s.d; i++)
        x[i] = random_float() * scale;
    if (w->s.dtype == DTYPE_I8)
        ref_quantise((int8_t *)p, &w->scales[which][place / (size_t)w->s.d], x, w->s.d);
    for (int i = 0; w->s.dtype != DTYPE_I8 && i < w->s.d; i++)
        ref_store(p + (size_t)i * size, w->s.dtype, x[i]);
}

static void seen(const struct world *w, int seq, int pos, int *begin, int *end) {
    struct attn_spec a = {
        .window = w->s.window, .chunked = w->kind.chunked, .bidirectional = w->kind.bidirectional};
    attn_seen(&a, pos, w->context[seq], begin, end);
}

static void expect(struct world *w, int seq, int row, int pos) {
    int d = w->s.d, H = w->s.kv_heads * w->s.group;
    int begin, end;
    seen(w, seq, pos, &begin, &end);
    double *score = malloc(sizeof *score * (size_t)end);
    for (int head = 0; head < H; head++) {
        const float *q = w->q + (row * H + head) * d;
        double sink = w->kind.sinks ? (double)w->sinks[head] : -INFINITY;
        double max = sink, sum = 0, *o = w->want + (row * H + head) * d;
        for (int t = begin; t < end; t++) {
            size_t k = place(w, seq, t, head / w->s.group);
            score[t] = 0;
            for (int i = 0; i < d; i++)
                score[t] += (double)q[i] * fetch(w, 0, k, i);
            score[t] = ref_softcap(score[t] / sqrt(d), (double)w->kind.softcap);
            max = fmax(max, score[t]);
        }
        for (int t = begin; t < end; t++) {
            size_t v = place(w, seq, t, head / w->s.group);
            double p = exp(score[t] - max);
            sum += p;
            for (int i = 0; i < d; i++)
                o[i] += p * fetch(w, 1, v, i);
        }
        for (int i = 0; i < d; i++)
            o[i] /= sum + exp(sink - max);
    }
    free(score);
}

// Sequences of context[] tokens whose last queries[] are rows.
static struct world *make_world(struct shape_of s, struct kind kind, int n, const int *context,
                                const int *queries) {
    struct world *w = must_calloc(1, sizeof *w);
    w->s = s;
    w->kind = kind;
    w->num_seqs = n;
    w->num_blocks = 1; // block 0 belongs to nobody
    int tables = 0;
    for (int i = 0; i < n; i++) {
        w->context[i] = context[i];
        w->query_start[i + 1] = w->query_start[i] + queries[i];
        tables += (context[i] + s.block_size - 1) / s.block_size;
    }
    w->rows = w->query_start[n];
    w->num_blocks += tables;
    w->start = must_calloc((size_t)n + 1, sizeof *w->start);
    w->ids = must_calloc((size_t)tables, sizeof *w->ids);
    for (int i = 0; i < tables; i++)
        w->ids[i] = i + 1;
    for (int i = tables - 1; i > 0; i--) {
        int j = (int)(random_u32() % (unsigned)(i + 1));
        int32_t t = w->ids[i];
        w->ids[i] = w->ids[j];
        w->ids[j] = t;
    }
    for (int i = 0; i < n; i++)
        w->start[i + 1] = w->start[i] + (context[i] + s.block_size - 1) / s.block_size;
    int H = s.kv_heads * s.group, d = s.d;
    size_t size = dtype_row_bytes(s.dtype, 1), all = (size_t)(w->num_blocks * s.kv_heads * s.block_size * d);
    w->keys = malloc(all * size);
    w->values = malloc(all * size);
    memset(w->keys, 0xff, all * size);
    memset(w->values, 0xff, all * size);
    for (int which = 0; which < 2; which++) {
        w->scales[which] = malloc(all / (size_t)d * sizeof(float));
        memset(w->scales[which], 0xff, all / (size_t)d * sizeof(float));
    }
    for (int i = 0; i < n; i++)
        for (int t = 0; t < context[i]; t++)
            for (int h = 0; h < s.kv_heads; h++) {
                store(w, 0, place(w, i, t, h), 2);
                store(w, 1, place(w, i, t, h), 1);
            }
    size_t nq = (size_t)(w->rows * H * d), qsize = dtype_row_bytes(cuda_query_dtype(s.dtype), 1);
    char *q = malloc(nq * qsize);
    w->q = malloc(nq * sizeof *w->q);
    for (size_t i = 0; i < nq; i++) {
        ref_store(q + i * qsize, cuda_query_dtype(s.dtype), random_float() * 2);
        w->q[i] = ref_fetch(q + i * qsize, cuda_query_dtype(s.dtype));
    }
    w->sinks = must_calloc((size_t)H, sizeof *w->sinks);
    for (int i = 0; i < H; i++) // one leaves nothing of the values
        w->sinks[i] = H > 1 && i == 1 ? 200 : random_float() * 4;
    w->want = must_calloc(nq, sizeof *w->want);
    for (int i = 0; i < n; i++)
        for (int r = 0; r < queries[i]; r++)
            expect(w, i, w->query_start[i] + r, context[i] - queries[i] + r);
    for (int i = 0; i < n; i++) { // the group has given these pages back
        int first = kind.bidirectional ? 0 : kv_first_kept(context[i] - queries[i], s.window, kind.chunked);
        for (int b = 0; (b + 1) * s.block_size <= first; b++)
            w->ids[w->start[i] + b] = 0;
    }
    w->kv = (struct cuda_kv){to_device(w->keys, all * size),
                             to_device(w->values, all * size),
                             s.dtype,
                             s.block_size,
                             s.kv_heads,
                             d,
                             to_device(w->scales[0], all / (size_t)d * sizeof(float)),
                             to_device(w->scales[1], all / (size_t)d * sizeof(float))};
    w->blocks = (struct cuda_blocks){to_device(w->start, sizeof(int32_t) * (size_t)(n + 1)),
                                     to_device(w->ids, sizeof(int32_t) * (size_t)tables)};
    w->d_q = to_device(q, nq * qsize);
    w->d_sinks = kind.sinks ? to_device(w->sinks, (size_t)H * sizeof(float)) : NULL;
    w->ldout = H * d + 8;
    w->out = poisoned((size_t)(w->rows * w->ldout) * 4);
    free(q);
    return w;
}

static void free_world(struct world *w) {
    free(w->start), free(w->ids), free(w->keys), free(w->values), free(w->q), free(w->want);
    free(w->scales[0]), free(w->scales[1]), free(w->sinks);
    rt_free(rt, w->d_sinks);
    rt_free(rt, w->kv.key_scales), rt_free(rt, w->kv.value_scales);
    rt_free(rt, w->kv.keys), rt_free(rt, w->kv.values), rt_free(rt, w->d_q), rt_free(rt, w->out);
    rt_free(rt, (void *)(uintptr_t)w->blocks.start), rt_free(rt, (void *)(uintptr_t)w->blocks.ids);
    free(w);
}

static float *result(struct world *w, enum act_dtype act_dtype) {
    return download_act(w->out, (size_t)(w->rows * w->ldout), act_dtype);
}

// Poisons the output, so that the result of a run before cannot pass for this one's.
static void poison_out(struct world *w) {
    rt_free(rt, w->out);
    w->out = poisoned((size_t)(w->rows * w->ldout) * 4);
}

static void compare(struct world *w, const float *got, double bound, const char *what) {
    int n = w->s.kv_heads * w->s.group * w->s.d;
    for (int r = 0; r < w->rows; r++) {
        double far = 0, norm = 0;
        for (int i = 0; i < n; i++) {
            double e = (double)got[r * w->ldout + i] - w->want[r * n + i];
            far += e * e;
            norm += w->want[r * n + i] * w->want[r * n + i];
        }
        if (!(sqrt(far / norm) < bound))
            fail_msg("%s: K %d G %d d %d B %d window %d %s row %d: %g", what, w->s.kv_heads, w->s.group,
                     w->s.d, w->s.block_size, w->s.window, dtype_name(w->s.dtype), r, sqrt(far / norm));
        for (int i = n; i < w->ldout; i++)
            assert_true(isnan(got[r * w->ldout + i])); // nothing past the row
    }
}

static float scale_of(const struct world *w) {
    return 1 / sqrtf((float)w->s.d) / (w->kind.softcap > 0 ? w->kind.softcap : 1);
}
static const int32_t *context_of(const struct world *w) {
    return w->kind.bidirectional ? to_device(w->context, sizeof *w->context * (size_t)w->num_seqs) : NULL;
}

// Rows [0, rows) are one token of each sequence; spare splits and rows are as a graph pads them.
static float *run_decode(struct world *w, enum act_dtype act_dtype, int spare) {
    int32_t first[MAX_SEQS + 9] = {0}, n = 0;
    struct cuda_split splits[256];
    for (int i = 0; i < w->num_seqs; i++) {
        int begin, end;
        seen(w, i, w->context[i] - 1, &begin, &end);
        for (int c = begin / CUDA_SPLIT * CUDA_SPLIT; c < end; c += CUDA_SPLIT)
            splits[n++] =
                (struct cuda_split){i, i, c > begin ? c : begin, c + CUDA_SPLIT < end ? c + CUDA_SPLIT : end};
        first[i + 1] = n;
    }
    int H = w->s.kv_heads * w->s.group;
    poison_out(w);
    struct cuda_decode a = {
        .q = w->d_q,
        .kv = w->kv,
        .blocks = w->blocks,
        .splits = to_device(splits, sizeof splits[0] * (size_t)n), // reading a spare one would be seen
        .num_splits = to_device(&n, sizeof n),
        .first_split = to_device(first, sizeof first),
        .max_splits = n + spare,
        .group = w->s.group,
        .scale = scale_of(w),
        .softcap = w->kind.softcap,
        .sinks = w->d_sinks,
        .partial = poisoned(sizeof(float) * (size_t)(n * H * w->s.d)),
        .stats = poisoned(sizeof(float) * (size_t)(n * H * 2)),
        .arrived = rt_alloc(rt, sizeof(uint32_t) * (size_t)(n * H)),
        .out = w->out,
        .act_dtype = act_dtype,
        .ldout = w->ldout,
    };
    assert_true(cuda_attention_fast(&w->kv));
    cuda_decode(rt, &a);
    float *got = result(w, act_dtype);
    uint32_t *arrived = to_host(a.arrived, sizeof *arrived * (size_t)(n * H));
    for (int i = 0; i < n * H; i++)
        assert_int_equal(arrived[i], 0); // for the next launch
    free(arrived);
    rt_free(rt, a.stats), rt_free(rt, a.arrived);
    rt_free(rt, (void *)(uintptr_t)a.splits), rt_free(rt, (void *)(uintptr_t)a.num_splits);
    rt_free(rt, (void *)(uintptr_t)a.first_split), rt_free(rt, a.partial);
    return got;
}

static float *run_prefill(struct world *w, enum act_dtype act_dtype, int spare, int tile_rows) {
    int32_t n = 0;
    struct cuda_tile tiles[256];
    for (int i = 0; i < w->num_seqs; i++) {
        int rows = (w->query_start[i + 1] - w->query_start[i]) * w->s.group;
        for (int r = 0; r < rows; r += tile_rows)
            tiles[n++] = (struct cuda_tile){i, w->query_start[i], r, rows,
                                            w->context[i] - (w->query_start[i + 1] - w->query_start[i])};
    }
    poison_out(w);
    struct cuda_prefill a = {
        .q = w->d_q,
        .kv = w->kv,
        .blocks = w->blocks,
        .tiles = to_device(tiles, sizeof tiles[0] * (size_t)n),
        .num_tiles = to_device(&n, sizeof n),
        .context_len = context_of(w),
        .max_tiles = n + spare,
        .tile_rows = tile_rows,
        .group = w->s.group,
        .window = w->s.window,
        .chunked = w->kind.chunked,
        .scale = scale_of(w),
        .softcap = w->kind.softcap,
        .sinks = w->d_sinks,
        .out = w->out,
        .act_dtype = act_dtype,
        .ldout = w->ldout,
    };
    cuda_prefill(rt, &a);
    float *got = result(w, act_dtype);
    rt_free(rt, (void *)(uintptr_t)a.tiles), rt_free(rt, (void *)(uintptr_t)a.num_tiles);
    rt_free(rt, (void *)(uintptr_t)a.context_len);
    return got;
}

static float *run_any(struct world *w, enum act_dtype act_dtype) {
    int32_t seq_of[512], positions[512];
    for (int i = 0; i < w->num_seqs; i++)
        for (int r = w->query_start[i]; r < w->query_start[i + 1]; r++) {
            seq_of[r] = i;
            positions[r] = w->context[i] - (w->query_start[i + 1] - r);
        }
    poison_out(w);
    struct cuda_attend a = {.q = w->d_q,
                            .kv = w->kv,
                            .blocks = w->blocks,
                            .seq_of = to_device(seq_of, sizeof *seq_of * (size_t)w->rows),
                            .positions = to_device(positions, sizeof *positions * (size_t)w->rows),
                            .context_len = context_of(w),
                            .rows = w->rows,
                            .group = w->s.group,
                            .window = w->s.window,
                            .chunked = w->kind.chunked,
                            .scale = scale_of(w),
                            .softcap = w->kind.softcap,
                            .sinks = w->d_sinks,
                            .out = w->out,
                            .act_dtype = act_dtype,
                            .ldout = w->ldout};
    cuda_attend(rt, &a);
    float *got = result(w, act_dtype);
    rt_free(rt, (void *)(uintptr_t)a.seq_of), rt_free(rt, (void *)(uintptr_t)a.positions);
    rt_free(rt, (void *)(uintptr_t)a.context_len);
    return got;
}

static void check_decode(struct shape_of s, struct kind kind) {
    static const int context[] = {1, 17, 300, 129, 256, 513}, one[] = {1, 1, 1, 1, 1, 1};
    struct world *w = make_world(s, kind, 6, context, one);
    float *first = NULL;
    for (int order = 0; order < 3; order++) {
        rt_test_order(order);
        float *got = run_decode(w, ACT_DTYPE_F32, order);
        compare(w, got, cuda_query_dtype(s.dtype) == DTYPE_F16 ? 5e-4 : 4e-3, "decode");
        if (first)
            assert_memory_equal(first, got, sizeof *got * (size_t)(w->rows * w->ldout));
        else
            first = got;
        if (first != got)
            free(got);
    }
    float *bf16 = run_decode(w, ACT_DTYPE_BF16, 0);
    compare(w, bf16, 6e-3, "decode, bf16 out");
    // alone, a sequence gets the bits it gets in the batch
    for (int i = 0; i < 6; i++) {
        struct world alone = *w;
        alone.out = NULL; // its own
        alone.num_seqs = alone.rows = 1;
        alone.context[0] = w->context[i];
        alone.blocks.start = w->blocks.start + i;
        alone.d_q = (char *)w->d_q + (size_t)(i * w->s.kv_heads * w->s.group * w->s.d) * 2;
        float *got = run_decode(&alone, ACT_DTYPE_F32, 0);
        assert_memory_equal(got, first + i * w->ldout, sizeof *got * (size_t)(w->ldout - 8));
        free(got);
        rt_free(rt, alone.out);
    }
    free(first), free(bf16);
    free_world(w);
}

TEST(test_decode) {
    static const struct shape_of shapes[] = {
        {2, 1, 64, 16, 0, DTYPE_BF16},      {2, 1, 128, 32, 0, DTYPE_F16},
        {1, 2, 128, 16, 0, DTYPE_BF16},     {2, 2, 64, 16, 40, DTYPE_F16},
        {2, 4, 128, 16, 0, DTYPE_BF16},     {1, 7, 64, 48, 0, DTYPE_BF16},
        {1, 8, 128, 16, 300, DTYPE_F16},    {1, 3, 64, 16, 17, DTYPE_F16},
        {1, 20, 64, 16, 0, DTYPE_BF16},     {2, 1, 64, 16, 0, DTYPE_I8},
        {1, 2, 128, 32, 40, DTYPE_I8},      {2, 4, 128, 16, 0, DTYPE_I8},
        {1, 7, 64, 48, 17, DTYPE_I8},       {2, 1, 128, 16, 0, DTYPE_F8_E4M3},
        {1, 2, 64, 32, 40, DTYPE_F8_E4M3},  {1, 8, 128, 48, 300, DTYPE_F8_E4M3},
        {2, 3, 64, 16, 0, DTYPE_F8_E4M3},   {2, 1, 256, 16, 0, DTYPE_BF16},
        {1, 2, 256, 32, 40, DTYPE_F16},     {1, 4, 256, 16, 300, DTYPE_BF16},
        {1, 18, 256, 16, 0, DTYPE_F16},     {1, 2, 256, 16, 17, DTYPE_I8},
        {1, 8, 256, 48, 0, DTYPE_I8},       {1, 1, 256, 16, 0, DTYPE_F8_E4M3},
        {1, 3, 256, 16, 40, DTYPE_F8_E4M3},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check_decode(shapes[i], plain);
}

enum { PREFILL_SEQS = 5 };

// context[0] tokens of the first sequence are rows, all of them.
static void check_prefill(struct shape_of s, struct kind kind, int tile_rows, const int *context,
                          const int *queries) {
    struct world *w = make_world(s, kind, PREFILL_SEQS, context, queries);
    float *first = NULL;
    for (int order = 0; order < 3; order++) {
        rt_test_order(order);
        float *got = run_prefill(w, ACT_DTYPE_F32, order, tile_rows);
        compare(w, got, cuda_query_dtype(s.dtype) == DTYPE_F16 ? 1e-3 : 6e-3, "prefill");
        if (first)
            assert_memory_equal(first, got, sizeof *got * (size_t)(w->rows * w->ldout));
        else
            first = got;
        if (first != got)
            free(got);
    }
    float *bf16 = run_prefill(w, ACT_DTYPE_BF16, 0, tile_rows);
    compare(w, bf16, 8e-3, "prefill, bf16 out");
    free(bf16);
    // the last rows of the first sequence as a chunk of their own: equal bits
    int row = s.kv_heads * s.group * s.d;
    for (int cut = 1; cut < context[0]; cut += context[0] / 3) {
        struct world chunk = *w;
        chunk.out = NULL; // its own
        chunk.num_seqs = 1;
        chunk.rows = context[0] - cut;
        chunk.query_start[1] = context[0] - cut;
        chunk.d_q = (char *)w->d_q + (size_t)(cut * row) * 2;
        float *got = run_prefill(&chunk, ACT_DTYPE_F32, 0, tile_rows);
        for (int r = 0; r < context[0] - cut; r++)
            assert_memory_equal(got + r * w->ldout, first + (cut + r) * w->ldout, sizeof *got * (size_t)row);
        free(got);
        rt_free(rt, chunk.out);
    }
    free(first);
    free_world(w);
}

TEST(test_prefill) {
    static const struct shape_of shapes[] = {
        {2, 4, 128, 16, 0, DTYPE_BF16},    {1, 1, 64, 32, 0, DTYPE_F16},
        {1, 7, 64, 16, 50, DTYPE_BF16},    {2, 3, 128, 48, 33, DTYPE_F16},
        {2, 4, 128, 16, 0, DTYPE_I8},      {1, 3, 64, 48, 37, DTYPE_I8},
        {1, 1, 128, 32, 0, DTYPE_F8_E4M3}, {1, 7, 64, 16, 50, DTYPE_F8_E4M3},
        {1, 2, 256, 16, 33, DTYPE_BF16},   {1, 1, 256, 48, 0, DTYPE_F16},
        {1, 3, 256, 16, 50, DTYPE_I8},     {1, 1, 256, 32, 0, DTYPE_F8_E4M3},
    };
    static const int context[] = {70, 130, 40, 1, 33}, queries[] = {70, 20, 1, 1, 17};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check_prefill(shapes[i], plain, CUDA_TILE, context, queries);
}

// The kernel of sm_90a, whose tiles of the cache have 128 tokens. Where the device does not have it, and only
// there, the backend must not take it.
TEST(test_wide_prefill) {
    static const struct shape_of shapes[] = {
        {2, 4, 128, 16, 0, DTYPE_BF16}, {1, 1, 64, 32, 0, DTYPE_F16},    {1, 7, 64, 16, 50, DTYPE_BF16},
        {2, 3, 128, 48, 33, DTYPE_F16}, {1, 2, 128, 32, 0, DTYPE_F16},   {1, 3, 64, 16, 0, DTYPE_BF16},
        {1, 1, 128, 16, 0, DTYPE_BF16}, {1, 2, 64, 144, 130, DTYPE_F16}, {1, 1, 128, 16, 200, DTYPE_BF16},
    };
    static const struct shape_of others[] = {{1, 2, 128, 16, 0, DTYPE_I8}, {1, 2, 128, 16, 0, DTYPE_F8_E4M3}};
    // one tile of the cache, two and a part of a third, exactly two, one token more than one
    static const int contexts[2][PREFILL_SEQS] = {{70, 300, 256, 1, 129}, {290, 128, 127, 40, 513}},
                     queries[2][PREFILL_SEQS] = {{70, 20, 1, 1, 30}, {290, 128, 1, 3, 2}};
    struct cuda_kv kv = {.dtype = shapes[0].dtype, .block_size = 16, .num_heads = 1, .head_dim = 128};
    struct rt_info info;
    rt_describe(rt, &info);
    unsetenv("QUIRE_CUDA_WGMMA");
    assert_int_equal(cuda_prefill_rows(rt, &kv), CUDA_TILE); // off until somebody asks
    setenv("QUIRE_CUDA_WGMMA", "1", 1);
    bool there = cuda_has_wide_prefill(rt, &kv);
    assert_int_equal(cuda_prefill_rows(rt, &kv), there ? CUDA_WIDE_TILE : CUDA_TILE);
    for (int i = 0; i < 2; i++) {
        kv.dtype = others[i].dtype;
        assert_int_equal(cuda_prefill_rows(rt, &kv), CUDA_TILE);
    }
    setenv("QUIRE_CUDA_WGMMA", "0", 1);
    kv.dtype = DTYPE_BF16;
    assert_int_equal(cuda_prefill_rows(rt, &kv), CUDA_TILE);
    unsetenv("QUIRE_CUDA_WGMMA");
    if (info.emulated || (info.major == 9 && info.minor == 0))
        assert_true(there);
    else
        assert_false(there);
    for (size_t i = 0; there && i < sizeof shapes / sizeof shapes[0]; i++)
        check_prefill(shapes[i], plain, CUDA_WIDE_TILE, contexts[i % 2], queries[i % 2]);
}

static void check_any(struct shape_of s, struct kind kind) {
    static const int context[] = {40, 30, 3, 1}, queries[] = {11, 1, 3, 1};
    struct world *w = make_world(s, kind, 4, context, queries);
    float *first = NULL;
    for (int order = 0; order < 3; order++) {
        rt_test_order(order);
        float *got = run_any(w, ACT_DTYPE_F32);
        compare(w, got, 1e-5, "any");
        if (first)
            assert_memory_equal(first, got, sizeof *got * (size_t)(w->rows * w->ldout));
        else
            first = got;
        if (first != got)
            free(got);
    }
    float *bf16 = run_any(w, ACT_DTYPE_BF16);
    compare(w, bf16, 4e-3, "any, bf16 out");
    free(first), free(bf16);
    free_world(w);
}

TEST(test_any) {
    static const struct shape_of shapes[] = {
        {2, 2, 8, 16, 0, DTYPE_F32},       {1, 3, 20, 5, 0, DTYPE_F16}, {2, 1, 96, 16, 21, DTYPE_BF16},
        {1, 1, 256, 16, 0, DTYPE_F32},     {1, 5, 64, 7, 3, DTYPE_F32}, {2, 3, 20, 5, 0, DTYPE_I8},
        {1, 2, 96, 16, 21, DTYPE_F8_E4M3},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check_any(shapes[i], plain);
}

TEST(test_kinds) {
    static const struct {
        struct shape_of s;
        struct kind kind;
    } cases[] = {
        {{2, 2, 64, 16, 0, DTYPE_BF16}, {true, false, 0, false}},
        {{1, 8, 128, 16, 300, DTYPE_F16}, {true, false, 0, false}},
        {{1, 4, 64, 16, 48, DTYPE_F16}, {true, true, 0, false}},
        {{1, 1, 64, 16, 120, DTYPE_BF16}, {false, true, 0, false}},
        {{1, 2, 256, 16, 48, DTYPE_F16}, {true, true, 1.5f, false}},
        {{1, 4, 256, 16, 100, DTYPE_I8}, {false, false, 2, false}},
        {{1, 2, 128, 16, 0, DTYPE_I8}, {false, false, 1.5f, false}},
        {{1, 3, 128, 16, 40, DTYPE_BF16}, {true, false, 2, false}},
        {{1, 2, 64, 16, 0, DTYPE_F16}, {false, false, 1, true}},
        {{1, 1, 128, 16, 90, DTYPE_BF16}, {true, false, 0, true}},
        {{1, 1, 256, 16, 0, DTYPE_F16}, {false, false, 0, true}},
        {{2, 3, 20, 5, 7, DTYPE_I8}, {true, false, 1.5f, false}},
        {{1, 2, 64, 16, 16, DTYPE_F32}, {false, true, 2, false}},
        {{1, 2, 20, 5, 0, DTYPE_F16}, {false, false, 0, true}},
        {{2, 1, 8, 16, 9, DTYPE_F32}, {true, false, 0, true}},
    };
    static const int context[PREFILL_SEQS] = {70, 300, 40, 1, 129},
                     queries[PREFILL_SEQS] = {70, 20, 1, 1, 30};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct shape_of s = cases[i].s;
        struct cuda_kv kv = {.dtype = s.dtype, .block_size = s.block_size, .head_dim = s.d};
        if (cuda_attention_fast(&kv)) { // the others are for cuda_attend() alone
            check_decode(s, cases[i].kind);
            check_prefill(s, cases[i].kind, CUDA_TILE, context, queries);
        }
        if (cuda_has_wide_prefill(rt, &kv))
            check_prefill(s, cases[i].kind, CUDA_WIDE_TILE, context, queries);
        check_any(s, cases[i].kind);
    }
}

// ---- a cache of more than 2^32 elements

// Nothing that counts its elements fits an int. On the emulator its pages exist where they are touched.

// NULL: the device has too little memory.
static char *large_alloc(size_t bytes) {
    struct rt_info info;
    rt_describe(rt, &info);
    if (!info.emulated)
        return rt_alloc(rt, bytes);
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

static void large_free(char *p, size_t bytes) {
    struct rt_info info;
    rt_describe(rt, &info);
    if (!info.emulated)
        rt_free(rt, p);
    else if (p)
        munmap(p, bytes);
}

TEST(test_far_blocks) {
    static const struct shape_of shapes[] = {
        {2, 1, 128, 16, 0, DTYPE_BF16}, // decode_small
        {2, 4, 64, 32, 0, DTYPE_F16},   // decode_large
        {1, 3, 20, 5, 0, DTYPE_F16},    // the kernel for any shape
        {2, 1, 64, 16, 0, DTYPE_F8_E4M3},
    };
    static const int context[] = {33, 17, 300}, one[] = {1, 1, 1};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct world *w = make_world(shapes[i], plain, 3, context, one);
        bool fast = cuda_attention_fast(&w->kv), wide = cuda_has_wide_prefill(rt, &w->kv);
        size_t row = dtype_row_bytes(w->s.dtype, w->s.d),
               block = (size_t)(w->s.kv_heads * w->s.block_size) * row, used = (size_t)w->num_blocks * block;
        int far = (int)(((size_t)1 << 32) * (row / (size_t)w->s.d) / block + 3);
        size_t bytes = (size_t)far * block + used;
        float *near[4] = {fast ? run_decode(w, ACT_DTYPE_F32, 0) : NULL,
                          fast ? run_prefill(w, ACT_DTYPE_F32, 0, CUDA_TILE) : NULL,
                          run_any(w, ACT_DTYPE_F32),
                          wide ? run_prefill(w, ACT_DTYPE_F32, 0, CUDA_WIDE_TILE) : NULL};
        char *keys = large_alloc(bytes), *values = keys ? large_alloc(bytes) : NULL;
        if (!values) {
            printf("no room for two caches of %zu MiB: blocks far away are not checked\n", bytes >> 20);
        } else {
            rt_upload_now(rt, keys + (size_t)far * block, w->keys, used);
            rt_upload_now(rt, values + (size_t)far * block, w->values, used);
            int n = w->start[w->num_seqs];
            for (int b = 0; b < n; b++)
                w->ids[b] += far;
            struct world moved = *w;
            moved.out = NULL; // its own
            moved.kv.keys = keys, moved.kv.values = values;
            moved.blocks.ids = to_device(w->ids, sizeof *w->ids * (size_t)n);
            float *got[4] = {fast ? run_decode(&moved, ACT_DTYPE_F32, 0) : NULL,
                             fast ? run_prefill(&moved, ACT_DTYPE_F32, 0, CUDA_TILE) : NULL,
                             run_any(&moved, ACT_DTYPE_F32),
                             wide ? run_prefill(&moved, ACT_DTYPE_F32, 0, CUDA_WIDE_TILE) : NULL};
            for (int k = 0; k < 4; free(got[k++]))
                if (got[k])
                    assert_memory_equal(got[k], near[k], sizeof *got[k] * (size_t)(w->rows * w->ldout));
            rt_free(rt, moved.out), rt_free(rt, (void *)(uintptr_t)moved.blocks.ids);
        }
        large_free(keys, bytes), large_free(values, bytes);
        for (int k = 0; k < 4; k++)
            free(near[k]);
        free_world(w);
    }
}

int main(void) {
    device_open();
    return run_all_tests(NULL, NULL);
}
