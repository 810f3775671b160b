// Two layers of the shapes of real models against the CPU backend, which computes with the same weights as f32:
// decodes of up to 256 sequences, a prompt of 2,048 tokens in chunks, and 32k tokens of context. And the first
// row's bits are the same in every batch. On the emulator the shapes are tiny; what matters of it here is
// that the program works on the day there is a device.
//
// QUIRE_RUN names one shape's test, so that several run side by side; QUIRE_THREADS: of the reference.
#include "clock.h"
#include "harness.h"

#include "backend_cuda.h"
#define FIXTURE_INSPECT &inspect_cuda
#include "fixture.h"
#include "quants.h"
#include "rt.h"

enum { BLOCK = 16, MAX_BATCH = 256 };

// How far logits may be from the reference's, of their norm: those of all rows of a model together, and of a
// single row. Activations rounded to bf16 are the half to two thirds of the first.
static const double bound_all = 1e-2, bound_row = 4e-2;

struct real_shape {
    const char *name;
    struct shape real, tiny;
};

// hidden, heads, kv heads, head size, feed-forward, vocabulary. 70B: of one of eight ranks, but for the sums.
// The vocabulary of 32B is cut: its head is 8B's, but for size.
static const struct real_shape llama_8b = {"8B",
                                           {2, 4096, 32, 8, 128, 14336, 128256, 0, false, false, false},
                                           {2, 256, 4, 1, 128, 512, 500, 0, false, false, false}},
                               llama_70b = {"70B/8",
                                            {2, 8192, 8, 1, 128, 3584, 16032, 0, false, false, false},
                                            {2, 512, 8, 1, 64, 256, 300, 0, false, false, false}},
                               qwen_32b = {"32B",
                                           {2, 5120, 64, 8, 128, 25600, 32768, 0, true, false, false},
                                           {2, 256, 8, 1, 64, 768, 300, 0, true, false, false}},
                               qwen_half = {"0.5B",
                                            {2, 896, 14, 2, 64, 4864, 151936, 0, false, true, false},
                                            {2, 224, 7, 1, 64, 608, 700, 0, false, true, false}};

struct sizes {
    int batches[4];
    int prompt, chunk, context;
};

static const struct sizes real_sizes = {{1, 16, 64, 256}, 2048, 512, 32768},
                          tiny_sizes = {{1, 3, 9, 18}, 96, 70, 600};

static bool emulated(void) {
    struct err err = {0};
    struct rt_info info;
    struct rt *rt = rt_open(0, &err);
    if (!rt)
        fail_msg("%s", err.msg);
    rt_describe(rt, &info);
    rt_close(rt);
    return info.emulated;
}

// The same weights as f32.
static struct fixture *as_floats(const struct fixture *f) {
    struct fixture *out = must_calloc(1, sizeof *out);
    *out = *f;
    for (int i = 0; i < f->num_weights; i++)
        for (int j = 0; j < 3; j++) {
            const struct tensor *from = &f->weights[i].part[j], *bias = &f->weights[i].bias[j];
            size_t n = 1, size = dtype_row_bytes(from->dtype, dtype_block(from->dtype)) /
                                 (size_t)dtype_block(from->dtype);
            if (bias->data) {
                size_t bytes = (size_t)bias->shape[0] * sizeof(float);
                out->weights[i].bias[j].data = memcpy(must_calloc(1, bytes), bias->data, bytes);
            }
            if (!from->data)
                continue;
            for (int d = 0; d < from->ndim; d++)
                n *= (size_t)from->shape[d];
            float *y = must_calloc(n, sizeof *y);
            if (dtype_block(from->dtype) > 1)
                quants_decode(y, from->data, from->dtype, (int64_t)n);
            else
                for (size_t k = 0; k < n; k++)
                    y[k] = ref_fetch((const char *)from->data + k * size, from->dtype);
            out->weights[i].part[j].data = y;
            out->weights[i].part[j].dtype = DTYPE_F32;
        }
    return out;
}

// Ready for batches of MAX_BATCH short sequences, or for one whose context is all blocks. The rope table and
// the split KV are those of the long context.
static struct instance *open_one(const struct fixture *f, const struct backend_ops *ops,
                                 const struct sizes *s) {
    const char *threads = getenv("QUIRE_THREADS");
    enum dtype kv = ops == &backend_cuda ? DTYPE_BF16 : DTYPE_F32;
    struct setup setup = {ops, NULL, threads ? atoi(threads) : 1, BLOCK, kv};
    struct instance *in = instance_load(f, setup, 0);
    assert_non_null(in);
    int most = s->batches[3] > s->chunk ? s->batches[3] : s->chunk;
    instance_reserve(in, (struct step_limits){.max_tokens = most,
                                              .max_seqs = s->batches[3],
                                              .max_rows = s->batches[3],
                                              .max_context = s->context,
                                              .num_blocks = (s->context + BLOCK - 1) / BLOCK,
                                              .keep_logits = true});
    return in;
}

// The same random keys and values in every block of both, which the reference has as f32.
static void fill_caches(struct instance *cuda, struct instance *cpu) {
    size_t n = cuda->ops->kv_block_bytes(cuda->dev) / sizeof(uint16_t);
    assert_int_equal(n * sizeof(float), cpu->ops->kv_block_bytes(cpu->dev));
    uint16_t *page = must_calloc(n, sizeof *page);
    float *floats = must_calloc(n, sizeof *floats);
    for (int block = 0; block < cuda->limits.num_blocks; block++) {
        for (size_t i = 0; i < n; i++) {
            page[i] = float_to_bf16(2 * random_float());
            floats[i] = bf16_to_float(page[i]);
        }
        cuda->inspect->kv_import(cuda->dev, block, page);
        cpu->inspect->kv_import(cpu->dev, block, floats);
    }
    free(page), free(floats);
}

struct far {
    double square, norm, row; // of all rows: of the difference, of the reference; the farthest row
    int steps;
};

// Runs pieces on both. The logits of row 0 go to `first`.
static void step_both(struct instance *cuda, struct instance *cpu, const struct piece *pieces, int n,
                      const char *what, struct far *far, float *first) {
    size_t V = (size_t)cuda->model.config.vocab;
    float *zeros = must_calloc(V, sizeof *zeros);
    struct step_out want = run_pieces(cpu, pieces, n), got = run_pieces(cuda, pieces, n);
    far->steps++;
    for (int r = 0; r < n; r++) {
        const float *a = got.logits + (size_t)r * V, *b = want.logits + (size_t)r * V;
        double row = distance(a, b, V), norm = distance(b, zeros, V);
        if (!(row < bound_row) || got.failed[r])
            fail_msg(
                "%s: row %d of %d, of %d tokens after %d: %.3g of its norm from the reference, not below %g",
                what, r, n, pieces[r].count, pieces[r].start, row, bound_row);
        far->row = fmax(far->row, row);
        far->square += row * row * norm * norm;
        far->norm += norm * norm;
    }
    memcpy(first, got.logits, V * sizeof *first);
    free(zeros);
}

static void check(const struct real_shape *shape, enum dtype type) {
    bool tiny = emulated();
    const struct sizes *s = tiny ? &tiny_sizes : &real_sizes;
    double start = clock_now_s();
    struct model_config m = fixture_config(tiny ? &shape->tiny : &shape->real);
    m.max_context = s->context;
    m.ropes[0].theta = 500000;
    struct fixture *f = fixture_of(&m, type), *floats = as_floats(f);
    struct instance *cuda = open_one(f, &backend_cuda, s), *cpu = open_one(floats, &backend_cpu, s);
    fixture_free(f), fixture_free(floats);
    fill_caches(cuda, cpu);
    size_t V = (size_t)m.vocab;
    float *first = must_calloc(V, sizeof *first), *alone = must_calloc(V, sizeof *alone);
    struct far far = {0};
    char what[96];
    snprintf(what, sizeof what, "%s %s", shape->name, dtype_name(type));

    // Decodes: each sequence has a part of the pool, which is nearly full.
    int room = s->context / s->batches[3] / BLOCK * BLOCK;
    for (int b = 0; b < 4; b++) {
        static struct piece pieces[MAX_BATCH];
        for (int i = 0; i < s->batches[b]; i++)
            pieces[i] = (struct piece){i, room - 1 - i % (room / 2), 1, false};
        step_both(cuda, cpu, pieces, s->batches[b], what, &far, first);
        if (b == 0)
            memcpy(alone, first, V * sizeof *alone);
        else if (memcmp(alone, first, V * sizeof *alone) != 0)
            fail_msg("%s: row 0 of a batch of %d has not the bits that it has alone", what, s->batches[b]);
    }
    // A prompt in chunks, then the end of a long one: one token, and a chunk over the cache that it leaves.
    for (int at = 0; at < s->prompt; at += s->chunk) {
        int n = s->prompt - at < s->chunk ? s->prompt - at : s->chunk;
        step_both(cuda, cpu, &(struct piece){0, at, n, false}, 1, what, &far, first);
    }
    int last = s->context - s->chunk;
    step_both(cuda, cpu, &(struct piece){0, s->context - 1, 1, false}, 1, what, &far, first);
    step_both(cuda, cpu, &(struct piece){0, last, s->chunk - 1, false}, 1, what, &far, first);
    step_both(cuda, cpu, &(struct piece){0, s->context - 1, 1, false}, 1, what, &far, first);
    double all = sqrt(far.square / far.norm);
    printf("%s: %.4f of the norm from the reference, a row at most %.4f; %d steps, %.1f s\n", what, all,
           far.row, far.steps, clock_now_s() - start);
    if (!(all < bound_all))
        fail_msg("%s: %.3g of the norm from the reference, not below %g", what, all, bound_all);
    fflush(stdout);
    free(first), free(alone);
    instance_close(cuda);
    instance_close(cpu);
}

static void check_types(const struct real_shape *shape) {
    static const enum dtype types[] = {DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_K};
    for (int i = SLOW; i < 3 - SLOW; i++) {
        bool whole = shape->real.hidden % dtype_block(types[i]) == 0; // else files have Q4_0
        check(shape, whole ? types[i] : DTYPE_Q4_0);
    }
}

TEST(test_8b) { check_types(&llama_8b); }

TEST(test_70b) {
    if (SLOW)
        skip();
    check_types(&llama_70b);
}

TEST(test_32b) {
    if (SLOW)
        skip();
    check_types(&qwen_32b);
}

TEST(test_half_b) { check_types(&qwen_half); }

int main(void) { return run_all_tests(NULL, NULL); }
