// Latent attention over a paged cache: KV splits, whole rows, and the kernel for any shape, against softmax in double over
// ragged lengths, shuffled blocks, and NaN wherever no token of the sequence is.
#include "device.h"

enum { SEQS = 5, QUERIES = 2, ROWS = SEQS * QUERIES };
static const int contexts[SEQS] = {2, 17, 300, 256, 513};

struct shape_of {
    int heads, C, d, block_size, window;
    enum dtype dtype;
};

struct world {
    int heads, C, window;
    double *want; // (rows, H, C)
    struct cuda_attend_latent args;
};

// A cache of vectors, and the last queries of each sequence; all as the device holds them, in args.
static struct world *make_world(const struct shape_of *s) {
    struct world *w = must_calloc(1, sizeof *w);
    int H = s->heads, d = s->d, B = s->block_size, start[SEQS + 1] = {0}, ids[256], seq_of[ROWS],
        positions[ROWS];
    enum dtype of_q = cuda_query_dtype(s->dtype);
    size_t size = dtype_row_bytes(s->dtype, 1), q_size = dtype_row_bytes(of_q, 1);
    for (int i = 0; i < SEQS; i++)
        start[i + 1] = start[i] + (contexts[i] + B - 1) / B;
    int blocks = start[SEQS] + 1, vectors = blocks * B; // block 0 is nobody's
    for (int i = 0; i < blocks - 1; i++)
        ids[i] = 1 + (i * 7 + 3) % (blocks - 1);
    assert_true((blocks - 1) % 7 != 0);
    char *keys = malloc((size_t)(vectors * d) * size), *q = malloc((size_t)(ROWS * H * d) * q_size);
    float *scales = malloc((size_t)vectors * sizeof *scales), *x = must_calloc((size_t)d, sizeof *x);
    double *seen = must_calloc((size_t)(513 * d), sizeof *seen), *score = must_calloc(513, sizeof *score);
    memset(keys, 0xff, (size_t)(vectors * d) * size);
    memset(scales, 0xff, (size_t)vectors * sizeof *scales);
    w->want = must_calloc((size_t)(ROWS * H * s->C), sizeof *w->want);
    for (int i = 0; i < SEQS; i++) {
        for (int t = 0; t < contexts[i]; t++) {
            int at = ids[start[i] + t / B] * B + t % B;
            char *to = keys + (size_t)(at * d) * size;
            for (int k = 0; k < d; k++)
                x[k] = random_float();
            if (s->dtype == DTYPE_I8)
                ref_quantise((int8_t *)to, &scales[at], x, d);
            for (int k = 0; k < d; k++) {
                if (s->dtype != DTYPE_I8)
                    ref_store(to + (size_t)k * size, s->dtype, x[k]);
                seen[t * d + k] = s->dtype == DTYPE_I8 ? (double)(int8_t)to[k] * (double)scales[at]
                                                       : (double)ref_fetch(to + (size_t)k * size, s->dtype);
            }
        }
        for (int r = 0; r < QUERIES * H; r++) {
            int row = i * QUERIES + r / H, pos = contexts[i] - QUERIES + r / H;
            int begin = s->window > 0 && pos + 1 > s->window ? pos + 1 - s->window : 0;
            char *query = q + (size_t)((i * QUERIES * H + r) * d) * q_size;
            double max = -INFINITY, sum = 0, *o = w->want + (i * QUERIES * H + r) * s->C;
            seq_of[row] = i, positions[row] = pos;
            for (int k = 0; k < d; k++)
                ref_store(query + (size_t)k * q_size, of_q, random_float() * 2);
            for (int t = begin; t <= pos; t++) {
                score[t] = 0;
                for (int k = 0; k < d; k++)
                    score[t] += (double)ref_fetch(query + (size_t)k * q_size, of_q) * seen[t * d + k];
                score[t] *= 0.125;
                max = fmax(max, score[t]);
            }
            for (int t = begin; t <= pos; t++) {
                double p = exp(score[t] - max);
                sum += p;
                for (int k = 0; k < s->C; k++)
                    o[k] += p * seen[t * d + k];
            }
            for (int k = 0; k < s->C; k++)
                o[k] /= sum;
        }
    }
    int ld = s->C + 8;
    w->heads = H, w->C = s->C, w->window = s->window;
    w->args = (struct cuda_attend_latent){
        .q = to_device(q, (size_t)(ROWS * H * d) * q_size),
        .kv = {.keys = to_device(keys, (size_t)(vectors * d) * size),
               .dtype = s->dtype,
               .block_size = B,
               .num_heads = 1,
               .head_dim = d,
               .key_scales = to_device(scales, (size_t)vectors * sizeof *scales)},
        .blocks = {to_device(start, sizeof start), to_device(ids, sizeof(int32_t) * (size_t)(blocks - 1))},
        .seq_of = to_device(seq_of, sizeof seq_of),
        .positions = to_device(positions, sizeof positions),
        .rows = ROWS,
        .num_heads = H,
        .kv_lora = s->C,
        .window = s->window,
        .scale = 0.125f,
        .out = poisoned((size_t)(ROWS * H * ld) * sizeof(float)),
        .ldout = ld};
    free(keys), free(q), free(scales), free(x), free(seen), free(score);
    return w;
}

static void free_world(struct world *w) {
    struct cuda_attend_latent *a = &w->args;
    const void *all[] = {a->q,          a->kv.keys, a->kv.key_scales, a->blocks.start,
                         a->blocks.ids, a->seq_of,  a->positions,     a->out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        rt_free(rt, (void *)(uintptr_t)all[i]);
    free(w->want);
    free(w);
}

static float *result(struct world *w) {
    struct cuda_attend_latent *a = &w->args;
    size_t n = (size_t)(ROWS * w->heads * a->ldout);
    float *got = download_act(a->out, n, a->act_dtype);
    rt_free(rt, a->out); // what a run left must not pass for the result of the next
    a->out = poisoned(n * sizeof(float));
    return got;
}

// Rows [0, ROWS) by `step`.
static void compare(const struct world *w, const float *got, int first, int step, double bound,
                    const char *what) {
    int ld = w->args.ldout;
    for (int row = first; row < ROWS; row += step)
        for (int i = row * w->heads; i < (row + 1) * w->heads; i++) {
            double far = 0, norm = 0;
            for (int k = 0; k < w->C; k++) {
                double want = w->want[i * w->C + k], e = (double)got[i * ld + k] - want;
                far += e * e, norm += want * want;
            }
            if (!(sqrt(far / norm) < bound))
                fail_msg("%s: H %d C %d %s row %d: %g", what, w->heads, w->C, dtype_name(w->args.kv.dtype),
                         row, sqrt(far / norm));
            for (int k = w->C; k < ld; k++)
                assert_true(isnan(got[i * ld + k])); // nothing past the row
        }
}

// The last row of each sequence in splits; of sequences [first, end) alone.
static float *run_splits(struct world *w, int first, int end, int spare) {
    struct cuda_attend_latent a = w->args;
    struct cuda_split splits[64];
    int32_t first_split[ROWS + 1] = {0}, n = 0;
    for (int row = 0; row < ROWS; row++) {
        int seq = row / QUERIES, last = contexts[seq],
            begin = w->window > 0 && last > w->window ? last - w->window : 0;
        bool in = row % QUERIES == QUERIES - 1 && seq >= first && seq < end;
        for (int c = begin / CUDA_SPLIT * CUDA_SPLIT; in && c < last; c += CUDA_SPLIT)
            splits[n++] = (struct cuda_split){row, seq, c > begin ? c : begin,
                                              c + CUDA_SPLIT < last ? c + CUDA_SPLIT : last};
        first_split[row + 1] = n;
    }
    size_t heads = (size_t)(n * w->heads);
    a.splits = to_device(splits, sizeof *splits * (size_t)n); // reading a spare one would be seen
    a.num_splits = to_device(&n, sizeof n);
    a.first_split = to_device(first_split, sizeof first_split);
    a.max_splits = n + spare;
    a.partial = poisoned(sizeof(float) * heads * (size_t)w->C);
    a.stats = poisoned(sizeof(float) * heads * 2);
    a.arrived = rt_alloc(rt, sizeof(uint32_t) * heads);
    cuda_attend_latent_fast(rt, &a);
    uint32_t *arrived = to_host(a.arrived, sizeof *arrived * heads);
    for (size_t i = 0; i < heads; i++)
        assert_int_equal(arrived[i], 0); // for the next launch
    free(arrived);
    rt_free(rt, (void *)(uintptr_t)a.splits), rt_free(rt, (void *)(uintptr_t)a.num_splits);
    rt_free(rt, (void *)(uintptr_t)a.first_split), rt_free(rt, a.partial);
    rt_free(rt, a.stats), rt_free(rt, a.arrived);
    return result(w);
}

static float *run_rows(struct world *w, bool fast) {
    fast ? cuda_attend_latent_fast(rt, &w->args) : cuda_attend_latent(rt, &w->args);
    return result(w);
}

TEST(test_fast) {
    static const struct shape_of shapes[] = {{3, 512, 576, 16, 0, DTYPE_BF16},
                                             {17, 512, 576, 32, 270, DTYPE_F16},
                                             {2, 512, 576, 16, 40, DTYPE_I8},
                                             {2, 512, 576, 48, 0, DTYPE_F8_E4M3}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct world *w = make_world(&shapes[i]);
        double bound = cuda_query_dtype(shapes[i].dtype) == DTYPE_F16 ? 1e-3 : 6e-3;
        assert_true(cuda_latent_fast(&w->args.kv, w->C));
        size_t row = sizeof(float) * (size_t)(w->heads * w->args.ldout);
        float *first[2] = {NULL};
        for (int order = 0; order < 3; order++) {
            rt_test_order(order);
            float *got[2] = {run_splits(w, 0, SEQS, order), run_rows(w, true)};
            compare(w, got[0], QUERIES - 1, QUERIES, bound, "splits");
            compare(w, got[1], 0, 1, bound, "rows");
            for (int k = 0; k < 2; k++) {
                if (first[k])
                    assert_memory_equal(first[k], got[k], row * ROWS);
                free(first[k]);
                first[k] = got[k];
            }
        }
        float *alone = run_splits(w, SEQS - 1, SEQS, 0); // the bits that it has in the batch
        assert_memory_equal(alone + (ROWS - 1) * w->heads * w->args.ldout,
                            first[0] + (ROWS - 1) * w->heads * w->args.ldout, row);
        free(alone);
        w->args.act_dtype = ACT_DTYPE_BF16;
        float *bf16[2] = {run_splits(w, 0, SEQS, 0), run_rows(w, true)};
        compare(w, bf16[0], QUERIES - 1, QUERIES, 8e-3, "splits, bf16 out");
        compare(w, bf16[1], 0, 1, 8e-3, "rows, bf16 out");
        for (int k = 0; k < 2; k++)
            free(first[k]), free(bf16[k]);
        free_world(w);
    }
}

TEST(test_any) {
    static const struct shape_of shapes[] = {{3, 20, 26, 5, 0, DTYPE_F32},
                                             {1, 36, 36, 16, 21, DTYPE_BF16},
                                             {2, 40, 45, 7, 0, DTYPE_I8},
                                             {2, 512, 576, 16, 0, DTYPE_F32}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct world *w = make_world(&shapes[i]);
        assert_false(cuda_latent_fast(&w->args.kv, w->C));
        float *first = NULL;
        for (int order = 0; order < 2; order++) {
            rt_test_order(order);
            float *got = run_rows(w, false);
            compare(w, got, 0, 1, 2e-5, "any");
            if (first)
                assert_memory_equal(first, got, sizeof *got * (size_t)(ROWS * w->heads * w->args.ldout));
            free(first);
            first = got;
        }
        free(first);
        free_world(w);
    }
}

int main(void) {
    device_open();
    return run_all_tests(NULL, NULL);
}
