// The whole backend on the emulated runtime: steps of random models against kernels/ref, through every path
// that the host takes (fast and general attention, GEMMs of cuBLASLt, layouts of several parts, `--exact`), and what
// happens when the device fails or is too small.
//
// Over 600 lines: the paths of one host, over the same small models.
#include "beside_ref.h"

#include "../../kernels/cuda/device.h"
#include "log.h"
#include "ops.h"
#include "request.h"

#include <pthread.h>

TEST(test_types) {
    // every type of weight; head size 8 goes through the general attention, 64 through the fast one
    static const enum dtype types[] = {DTYPE_F32,    DTYPE_F16,  DTYPE_BF16,   DTYPE_Q8_0,  DTYPE_Q4_0,
                                       DTYPE_Q4_K,   DTYPE_Q5_K, DTYPE_Q6_K,   DTYPE_MXFP4, DTYPE_Q4_1,
                                       DTYPE_Q5_0,   DTYPE_Q5_1, DTYPE_IQ4_NL, DTYPE_Q2_K,  DTYPE_Q3_K,
                                       DTYPE_IQ4_XS, DTYPE_FP8};
    for (int i = 0; i < (int)(sizeof types / sizeof types[0]); i++) {
        bool big = dtype_block(types[i]) == 256; // rows of whole blocks
        int wide = big ? 256 : 64;
        struct shape s = {2,   wide, big ? 4 : 8, big ? 2 : 4, big ? 64 : 8, big ? 256 : 96,
                          211, 0,    i % 2,       i % 3 == 0,  i % 2 == 0};
        struct fixture *f = fixture_make(&s, types[i]);
        check_fixture(f, 16, types[i] == DTYPE_F32 ? DTYPE_F32 : DTYPE_F16,
                      types[i] == DTYPE_F32 ? 2e-5 : 2e-2, dtype_name(types[i]));
        fixture_free(f);
    }
}

TEST(test_attention_paths) {
    static const struct {
        struct shape s;
        int block_size;
        enum dtype kv;
    } cases[] = {
        {{2, 64, 2, 1, 64, 44, 97, 0, true, true, false}, 16, DTYPE_BF16},    // decode_small, 2 heads
        {{1, 128, 1, 1, 128, 52, 97, 0, false, false, true}, 32, DTYPE_F16},  // decode_small, 1 head
        {{2, 96, 6, 1, 64, 40, 97, 0, false, true, false}, 16, DTYPE_F16},    // decode_large
        {{2, 64, 4, 1, 128, 48, 97, 21, true, false, false}, 16, DTYPE_BF16}, // a window
        {{2, 60, 3, 3, 20, 44, 97, 13, false, true, false}, 5, DTYPE_F32},    // nothing fits
        {{2, 64, 2, 1, 64, 44, 97, 0, true, true, false}, 16, DTYPE_I8},
        {{2, 96, 6, 1, 64, 40, 97, 0, false, true, false}, 16, DTYPE_F8_E4M3},
        {{1, 128, 4, 1, 128, 52, 97, 21, false, false, true}, 32, DTYPE_I8},
        {{2, 60, 3, 3, 20, 44, 97, 13, false, true, false}, 5, DTYPE_I8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture *f = fixture_make(&cases[i].s, DTYPE_BF16);
        check_fixture(f, cases[i].block_size, cases[i].kv, cases[i].kv == DTYPE_F8_E4M3 ? 6e-2 : 3e-2,
                      "attention");
        fixture_free(f);
    }
}

// Parts of one weight in different types, as Q4_K_M has them: no GEMM fuses gate and up.
TEST(test_mixed_types) {
    struct shape s = {1, 256, 4, 2, 64, 256, 131, 0, false, true, false};
    struct fixture *f = fixture_make(&s, DTYPE_Q4_K);
    for (int i = 0; i < f->num_weights; i++) {
        struct weight_desc *w = &f->weights[i];
        int last = w->role == WEIGHT_QKV ? 2 : w->role == WEIGHT_GATE_UP ? 1 : -1;
        if (last < 0)
            continue;
        enum dtype type = w->role == WEIGHT_QKV ? DTYPE_Q6_K : DTYPE_F16;
        int rows = (int)w->part[last].shape[0];
        free((void *)(uintptr_t)w->part[last].data);
        w->part[last] = random_tensor(type, rows, 256, 0.1f);
    }
    check_fixture(f, 16, DTYPE_F16, 2e-2, "mixed");
    fixture_free(f);
}

// More than 64 rows: GEMMs of cuBLASLt, with quantised weights as bf16.
TEST(test_many_rows) {
    static const enum dtype types[] = {DTYPE_BF16, DTYPE_F16, DTYPE_Q8_0, DTYPE_Q4_K, DTYPE_F32, DTYPE_FP8};
    for (int i = 0; i < 6; i++) {
        struct shape s = {1, 256, 4, 2, 64, 256, 67, 0, false, true, false};
        struct fixture *f = fixture_make(&s, types[i]);
        struct instance *ref = open_instance(f, &backend_ref, 16, DTYPE_F16, 100, 128, 2);
        struct instance *cuda = open_instance(f, &backend_cuda, 16, DTYPE_F16, 100, 128, 2);
        struct piece pieces[] = {{0, 0, 70, false}, {1, 0, 25, true}};
        struct step_out want = run_pieces(ref, pieces, 2), got = run_pieces(cuda, pieces, 2);
        double bound = types[i] == DTYPE_FP8 ? 0.12 : 2e-2; // that as E4M3 (test_w8a8)
        compare(cuda, &got, &want, 26, bound, dtype_name(types[i]));
        setenv("QUIRE_EMULATED_NO_LIBRARY", "1", 1); // one that has no algorithm for these sizes
        uint16_t *dequantised = cuda->dev->dequantised, mark = 0xabcd;
        bool quantised = types[i] == DTYPE_Q8_0 || types[i] == DTYPE_Q4_K || types[i] == DTYPE_FP8;
        if (quantised)
            rt_upload_now(cuda->dev->rt, dequantised, &mark, sizeof mark);
        got = run_pieces(cuda, pieces, 2);
        compare(cuda, &got, &want, 26, 2e-2, dtype_name(types[i]));
        if (quantised && cuda->dev->info.emulated) // then nothing is dequantised for it
            rt_download_now(cuda->dev->rt, &mark, dequantised, sizeof mark);
        assert_int_equal(mark, 0xabcd);
        unsetenv("QUIRE_EMULATED_NO_LIBRARY");
        instance_close(ref);
        instance_close(cuda);
        fixture_free(f);
    }
}

// Rows behind those of a step: numbers of a step before.
static void poison_quantised(struct device *dev) {
    size_t rows = (size_t)(dev->max_tokens + CUBLAS_ROWS - 1) / CUBLAS_ROWS * CUBLAS_ROWS,
           n = dev->quantised ? rows * (size_t)dev->widest_e4m3 : 0;
    char *bytes = must_calloc(1, n + 1);
    memset(bytes, 0x38, n);
    rt_upload_now(dev->rt, dev->quantised, bytes, n);
    rt_upload_now(dev->rt, dev->quantised_scale, bytes, dev->quantised ? rows * sizeof(float) : 0);
    free(bytes);
}

// FP8 with a scale for a row, 128 columns of it or 128 rows and columns: as E4M3, with activations quantised to it, unless
// asked not to, and near the same. Of groups of columns only where the device can.
TEST(test_w8a8) {
    static const enum cuda_e4m3 kinds[] = {E4M3_ROWS, E4M3_ROWS, E4M3_GROUPS, E4M3_BLOCKS};
    for (int i = 0; i < 4; i++) {
        bool apart = i % 2, grouped = kinds[i] != E4M3_ROWS; // apart: gate and up are two GEMMs
        enum dtype kv = apart ? DTYPE_F16 : DTYPE_BF16;      // q, k and v of cuBLASLt are bf16, or not
        // 160: so many that cuBLASLt adds to resid itself
        int ffn = grouped ? 384 : 288, tokens = kinds[i] == E4M3_BLOCKS ? 160 : 101;
        struct shape s = {1, 256, 4, 2, 64, ffn, 67, 0, true, apart, false};
        struct fixture *f = fixture_make(&s, DTYPE_FP8);
        for (int w = 0; w < f->num_weights; w++)
            for (int p = 0; p < 3 && f->weights[w].part[p].dtype == DTYPE_FP8; p++)
                if (f->weights[w].part[p].data)
                    level_scales(&f->weights[w].part[p], kinds[i] == E4M3_BLOCKS ? 128 : 1,
                                 grouped ? 128 : 1024);
        for (int w = 0; apart && w < f->num_weights; w++)
            if (f->weights[w].role == WEIGHT_GATE_UP) {
                free((void *)(uintptr_t)f->weights[w].part[1].data);
                f->weights[w].part[1] = random_tensor(DTYPE_BF16, ffn, 256, 0.1f);
            }
        struct instance *ref = open_instance(f, &backend_ref, 16, kv, tokens, 128, 2), *cuda[3];
        struct piece pieces[2][2] = {{{0, 0, 5, false}, {1, 0, 25, true}},
                                     {{0, 5, 1, false}, {1, 25, 90, true}}};
        struct step_out want, got[3];
        for (int c = 0; c < 3; c++) {
            setenv("QUIRE_CUDA_W8A8", c == 1 ? "0" : "1", 1);
            if (c == 2)
                setenv("QUIRE_EMULATED_CAPABILITY", grouped ? "89" : "80", 1);
            cuda[c] = open_instance(f, &backend_cuda, 16, kv, tokens, 128, 2);
            run_pieces(cuda[c], pieces[0], 2);
            poison_quantised(cuda[c]->dev);
            got[c] = run_pieces(cuda[c], pieces[1], 2);
        }
        unsetenv("QUIRE_CUDA_W8A8"), unsetenv("QUIRE_EMULATED_CAPABILITY");
        run_pieces(ref, pieces[0], 2);
        want = run_pieces(ref, pieces[1], 2);
        compare(cuda[0], &got[0], &want, 91, 0.12, "w8a8");
        compare(cuda[1], &got[1], &want, 91, 3e-2, "w8a8, not asked for");
        assert_memory_equal(got[0].logits, got[1].logits, 67 * sizeof(float)); // a row that decodes
        const struct rt_info *info = &cuda[0]->dev->info;
        bool there = grouped ? info->group_scales : info->major * 10 + info->minor >= 89;
        for (const struct weight *w = cuda[0]->dev->weights; w; w = w->next)
            if (w->role == WEIGHT_QKV || w->role == WEIGHT_DOWN)
                assert_int_equal(w->matrix[0].e4m3, there ? kinds[i] : E4M3_NO);
        if (info->emulated)
            assert_memory_equal(got[2].logits, got[1].logits, 91 * 67 * sizeof(float));
        float first[2][512]; // q, k and v of the row that decodes, which lie behind resid
        for (int c = 0; c < 2; c++)
            rt_download_now(cuda[c]->dev->rt, first[c], cuda[c]->dev->qkv, sizeof first[c]);
        assert_memory_equal(first[0], first[1], sizeof first[0]);
        double far = distance(got[0].logits + 67, got[1].logits + 67, (size_t)90 * 67);
        bool none = far == 0; // a device may have no algorithm of this shape
        assert_true(there ? far > 5e-3 || (none && !info->emulated) : none);
        if (there && none)
            printf("  %s: cuBLASLt has no algorithm for E4M3\n", grouped ? "groups" : "rows");
        instance_close(cuda[0]), instance_close(cuda[1]), instance_close(cuda[2]), instance_close(ref);
        fixture_free(f);
    }
}

static char logged[400];
static void keep_log(int level, const char *text) {
    assert_int_equal(level, LOG_WARN);
    snprintf(logged, sizeof logged, "%s", text);
}
static struct device *open_logged(const struct backend_host *none, const struct device_config *config,
                                  struct err *err) {
    static const struct backend_host host = {keep_log};
    (void)none;
    return backend_cuda.open(&host, config, err);
}

// Without cuBLASLt: a line says so where steps are long enough for it, and no memory is set aside.
TEST(test_no_library) {
    struct backend_ops ops = backend_cuda;
    ops.open = open_logged;
    struct shape s = {1, 256, 4, 2, 64, 256, 67, 0, false, true, false};
    struct fixture *f = fixture_make(&s, DTYPE_Q4_K);
    struct instance *with = open_instance(f, &ops, 16, DTYPE_F16, 100, 128, 2);
    struct piece pieces[] = {{0, 0, 70, false}, {1, 0, 25, true}};
    struct step_out want = run_pieces(with, pieces, 2);
    struct device_info before, after;
    assert_string_equal(logged, "");
    with->ops->info(with->dev, &before);
    setenv("QUIRE_EMULATED_NO_LIBRARY", "1", 1);
    instance_close(open_instance(f, &ops, 16, DTYPE_F16, CUDA_TOKENS, 128, 2));
    assert_string_equal(logged, "");
    struct instance *without = open_instance(f, &ops, 16, DTYPE_F16, 100, 128, 2);
    without->ops->info(without->dev, &after);
    struct step_out got = run_pieces(without, pieces, 2);
    compare(without, &got, &want, 26, 2e-2, "without");
    if (with->dev->info.emulated) {
        assert_string_equal(logged,
                            "long prompts go without cuBLASLt, slower: the emulator has been given none");
        assert_true(after.memory_free > before.memory_free);
    }
    unsetenv("QUIRE_EMULATED_NO_LIBRARY");
    instance_close(without);
    instance_close(with);
    fixture_free(f);
}

static struct device *open_staged(const struct backend_host *host, const struct device_config *config,
                                  struct err *err) {
    struct device *dev = backend_cuda.open(host, config, err);
    if (dev)
        dev->loading.target = 1; // a group of rows at a time
    return dev;
}

// Weights that come in many pieces are those that come in one: rows that are packed one behind the other, with a last
// piece of fewer rows, and gates between ups.
TEST(test_pieces) {
    static const enum dtype types[] = {DTYPE_BF16, DTYPE_Q8_0};
    struct backend_ops ops = backend_cuda;
    ops.open = open_staged;
    struct shape s = {2, 64, 4, 2, 64, 96, 211, 0, false, true, true};
    for (int i = 0; i < 2; i++) {
        struct fixture *f = fixture_make(&s, types[i]);
        struct instance *whole = open_instance(f, &backend_cuda, 16, DTYPE_F16, 64, 64, 3);
        struct instance *staged = open_instance(f, &ops, 16, DTYPE_F16, 64, 64, 3);
        assert_true(whole && staged && staged->dev->loading.size == 0); // nothing is kept for steps
        struct piece piece = {0, 0, 20, true};
        struct step_out want = run_pieces(whole, &piece, 1);
        struct step_out got = run_pieces(staged, &piece, 1);
        assert_memory_equal(got.logits, want.logits, 20 * 211 * sizeof(float));
        instance_close(staged), instance_close(whole);
        fixture_free(f);
    }
}

// The logits of a row that decodes do not depend on the rest of the step: alone, beside a prompt that goes through cuBLASLt,
// beside one that does not, and among more decodes than one GEMM takes, they have the same bits.
TEST(test_company) {
    enum { MANY = 70, AT = 5, TOGETHER = 24, V = 97, SPLIT = 5 };
    static const enum dtype types[] = {DTYPE_BF16, DTYPE_F16, DTYPE_Q8_0, DTYPE_Q4_K, DTYPE_F32, DTYPE_Q8_0};
    static struct piece companies[4][MANY];
    static const int counts[4] = {1, 3, 3, MANY};
    for (int s = 0; s < MANY; s++)
        companies[3][s] = (struct piece){s, AT, 1, false};
    companies[0][0] = companies[3][0];
    for (int c = 1; c < 3; c++) {
        companies[c][0] = companies[3][0], companies[c][1] = companies[3][1];
        companies[c][2] = (struct piece){2, 0, c == 1 ? 110 : 64, false};
    }
    for (int i = 0; i < 6; i += 1 + SLOW) {
        struct shape s = {1, 256, 4, 2, 64, 256, V, 0, false, i % 2 == 0, false};
        struct fixture *f = fixture_make(&s, types[i]);
        for (int w = 0; i == SPLIT && w < f->num_weights; w++)
            if (f->weights[w].role == WEIGHT_GATE_UP) { // gate and up are two GEMMs
                free((void *)(uintptr_t)f->weights[w].part[1].data);
                f->weights[w].part[1] = random_tensor(DTYPE_BF16, 256, 256, 0.1f);
            }
        struct instance *in = open_instance(f, &backend_cuda, 16, DTYPE_F16, 128, 128, MANY);
        float alone[2][V], prompt[V], longer[V];
        for (int seq = 0; seq < MANY; seq += TOGETHER) {
            struct piece prompts[TOGETHER];
            int n = MANY - seq < TOGETHER ? MANY - seq : TOGETHER;
            for (int j = 0; j < n; j++)
                prompts[j] = (struct piece){seq + j, 0, AT, false};
            run_pieces(in, prompts, n);
        }
        for (int c = 0; c < 4; c++) {
            struct step_out out = run_pieces(in, companies[c], counts[c]);
            if (c == 0) {
                memcpy(alone[0], out.logits, sizeof alone[0]);
                out = run_pieces(in, &companies[3][1], 1);
                memcpy(alone[1], out.logits, sizeof alone[1]);
                out = run_pieces(in, &companies[2][2], 1);
                memcpy(prompt, out.logits, sizeof prompt);
                out = run_pieces(in, &companies[1][2], 1);
                memcpy(longer, out.logits, sizeof longer);
            } else if (memcmp(alone, out.logits, sizeof alone) != 0) {
                fail_msg("%s: the bits of a row that decodes depend on its company %d", dtype_name(types[i]),
                         c);
            } else if (c == 2 && memcmp(prompt, out.logits + (size_t)2 * V, sizeof prompt) != 0) {
                fail_msg("%s: a short prompt has other bits beside decodes", dtype_name(types[i]));
            }
            for (int v = 0; c == 1 && v < V; v++)
                assert_true(fabsf(longer[v] - out.logits[2 * V + v]) < 1e-2f);
        }
        instance_close(in);
        fixture_free(f);
    }
}

// With no_batch_invariant cuBLASLt takes rows that decode, too, where a step has more than 64 rows: of weights that it reads
// as bf16 only beside a long prompt. Rows of smaller steps keep their bits.
TEST(test_batch_dependent) {
    enum { MANY = 65, V = 97, KINDS = 4, STEPS = 4 };
    static const enum dtype types[KINDS] = {DTYPE_BF16, DTYPE_F16, DTYPE_FP8, DTYPE_Q8_0};
    static const struct {
        int decodes, prompt;
        bool changes[KINDS]; // rows that decode
    } steps[STEPS] = {{64, 0, {0}}, {MANY, 0, {1, 1, 1, 0}}, {40, 25, {1, 1, 1, 0}}, {30, 65, {1, 1, 1, 1}}};
    for (int i = 0; i < KINDS; i++) {
        struct shape s = {1, 256, 2, 1, 64, 128, V, 0, false, true, false};
        struct fixture *f = fixture_make(&s, types[i]);
        for (int w = 0; w < f->num_weights; w++)
            for (int p = 0; p < 3 && f->weights[w].part[p].dtype == DTYPE_FP8; p++)
                if (f->weights[w].part[p].data)
                    level_scales(&f->weights[w].part[p], 1, 1024);
        struct setup setup = {&backend_cuda, NULL, 1, 16, DTYPE_F16};
        struct instance *in[2];
        static float logits[2][(MANY + 1) * V];
        for (int c = 0; c < 2; c++)
            in[c] = instance_open_as(f, setup, c ? INSTANCE_DEPENDENT : 0, 128, 128, MANY + 1);
        for (int t = 0; t < STEPS; t++) {
            struct piece pieces[MANY + 1];
            int n = steps[t].decodes;
            for (int q = 0; q < n; q++)
                pieces[q] = (struct piece){q, 0, 1, false};
            if (steps[t].prompt > 0)
                pieces[n++] = (struct piece){MANY, 0, steps[t].prompt, false};
            for (int c = 0; c < 2; c++)
                memcpy(logits[c], run_pieces(in[c], pieces, n).logits, (size_t)(n * V) * sizeof(float));
            size_t decodes = (size_t)(steps[t].decodes * V);
            double far = distance(logits[1], logits[0], decodes), bound = types[i] == DTYPE_FP8 ? 0.12 : 2e-2;
            bool library = in[1]->dev->cublas, changes = far > 0;
            if (changes != (library && steps[t].changes[i]) || !(far < bound))
                fail_msg("%s: step %d is %g apart", dtype_name(types[i]), t, far);
        }
        struct device_info with, without;
        in[1]->ops->info(in[1]->dev, &with), in[0]->ops->info(in[0]->dev, &without);
        assert_true(with.batch_dependent == in[1]->dev->cublas && !without.batch_dependent);
        assert_true(with.batch_dependent == (with.numerics != without.numerics) &&
                    with.batch_dependent == (strstr(with.name, ", not batch-invariant") != NULL));
        instance_close(in[0]), instance_close(in[1]);
        fixture_free(f);
    }
}

// More KV splits of decode attention than one launch holds: launches by rows, each with the bits that it has
// alone.
TEST(test_launches) {
    enum { SEQS = 160, CONTEXT = 26 * 256 + 40, V = 61, B = 32, BLOCKS = (CONTEXT + B - 1) / B };
    struct shape s = {1, 64, 1, 1, 64, 32, V, 0, false, false, false};
    struct fixture *f = fixture_make(&s, DTYPE_BF16);
    struct setup setup = {&backend_cuda, NULL, 1, B, DTYPE_F8_E4M3};
    struct instance *in = instance_open(f, setup, SEQS, CONTEXT, SEQS);
    size_t bytes = in->ops->kv_block_bytes(in->dev);
    unsigned char *block = must_calloc(1, bytes);
    for (int i = 0; i < BLOCKS; i++) { // all sequences share the first one's blocks but the last
        for (size_t k = 0; k < bytes; k++)
            block[k] = (unsigned char)(random_u32() & 0xbf); // numbers below 2
        in->inspect->kv_import(in->dev, block_of(in, 0, i), block);
    }
    static struct piece pieces[SEQS];
    for (int q = 0; q < SEQS; q++) // 160 x 27 splits are more than 4,096
        pieces[q] = (struct piece){q, CONTEXT - 1, 1, false};
    struct step_out out;
    float *all = must_calloc(SEQS, V * sizeof *all);
    for (int one = 0; one < 4; one++) { // all together, then some alone
        static const int which[4] = {0, 0, SEQS / 2, SEQS - 1};
        struct batch *b = one == 0 ? batch_make(in, pieces, SEQS) : batch_make(in, &pieces[which[one]], 1);
        for (int q = 0; q < b->step.num_seqs; q++)
            for (int i = 0; i + 1 < BLOCKS; i++)
                b->groups[0].block_ids[b->groups[0].block_start[q] + i] = block_of(in, 0, i);
        forward(in, &b->step);
        assert_int_equal(in->ops->sync(in->dev, &out, NULL), STATUS_OK);
        if (one == 0)
            memcpy(all, out.logits, SEQS * V * sizeof *all);
        else if (memcmp(all + which[one] * V, out.logits, V * sizeof *all) != 0)
            fail_msg("row %d has other bits among %d", which[one], SEQS);
        for (int v = 0; v < V; v++)
            assert_true(isfinite(out.logits[v]));
        free(b);
    }
    assert_true(memcmp(all, all + V, V * sizeof *all) != 0); // the rows differ
    free(all), free(block);
    instance_close(in);
    fixture_free(f);
}

// ---- --exact

// A prompt's logits have the same bits however it is cut, and decoded rows those of prefilled ones.

TEST(test_exact) {
    static const struct {
        enum dtype type;
        struct shape s;
        int cuts[4]; // until 0; more than 64 rows would go through cuBLASLt, quantised weights as bf16
    } cases[] = {
        {DTYPE_BF16, {2, 64, 4, 2, 64, 44, 97, 0, true, true, false}, {37, 16, 1}},
        {DTYPE_Q8_0, {1, 64, 4, 2, 64, 64, 97, 0, false, true, false}, {66, 29, 1}},
        {DTYPE_Q4_K, {1, 256, 4, 2, 64, 256, 97, 0, true, false, false}, {71, 13}},
    };
    enum { N = 90 };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i += 1 + SLOW) {
        struct fixture *f = fixture_make(&cases[i].s, cases[i].type);
        float *first = prompt_logits(f, DTYPE_BF16, N, N);
        for (int c = 0; cases[i].cuts[c] > 0 && (c == 0 || i == 0 || !SLOW); c++) {
            float *logits = prompt_logits(f, DTYPE_BF16, N, cases[i].cuts[c]);
            if (memcmp(first, logits, N * 97 * sizeof *logits) != 0)
                fail_msg("%s: a prompt has other bits in chunks of %d", dtype_name(cases[i].type),
                         cases[i].cuts[c]);
            free(logits);
        }
        free(first);
        fixture_free(f);
    }
}

// And the same bits alone as beside others: decodes, prompts whole and in chunks, which together go through
// cuBLASLt in another mode. So have rows that decode.
TEST(test_exact_company) {
    enum { N = 80, CUT = 45, V = 97 };
    static const enum dtype types[] = {DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_K};
    static const struct some_pieces steps[] = {
        {2, {{1, 0, 20, false}, {2, 0, 33, false}}},
        {4, {{1, 20, 1, false}, {2, 33, 1, false}, {3, 0, 40, false}, {0, 0, CUT, true}}},
        {4, {{1, 21, 1, false}, {3, 40, 1, false}, {2, 34, 7, false}, {0, CUT, N - CUT, true}}},
        {4, {{1, 22, 1, false}, {0, N, 1, false}, {2, 41, 50, false}, {3, 41, 25, false}}},
    };
    static const int first[] = {-1, 3, 3, 1}; // row of sequence 0
    for (int i = SLOW; i < 3 - SLOW; i++) {
        int wide = types[i] == DTYPE_Q4_K ? 256 : 64;
        struct shape s = {1, wide, 4, 2, 64, wide, V, 0, false, i > 0, false};
        struct fixture *f = fixture_make(&s, types[i]);
        struct setup setup = {&backend_cuda, NULL, 1, 16, DTYPE_F16};
        struct instance *in = instance_open_as(f, setup, INSTANCE_EXACT, N, 128, 4);
        float *alone = must_calloc((N + 1) * V, sizeof *alone);
        struct step_out out = run_pieces(in, &(struct piece){0, 0, N, true}, 1);
        memcpy(alone, out.logits, (size_t)N * V * sizeof *alone);
        out = run_pieces(in, &(struct piece){0, N, 1, false}, 1);
        memcpy(alone + N * V, out.logits, V * sizeof *alone);
        instance_close(in);
        in = instance_open_as(f, setup, INSTANCE_EXACT, 128, 128, 4);
        for (int k = 0, at = 0; k < 4; k++) {
            out = run_pieces(in, steps[k].pieces, steps[k].n);
            int rows = k == 0 ? 0 : k == 1 ? CUT : k == 2 ? N - CUT : 1;
            if (rows > 0 && memcmp(alone + at * V, out.logits + (size_t)first[k] * V,
                                   (size_t)rows * V * sizeof *alone) != 0)
                fail_msg("%s: other bits beside others in step %d", dtype_name(types[i]), k);
            at += rows;
        }
        instance_close(in);
        free(alone);
        fixture_free(f);
    }
}

// ---- the prefill kernel of sm_90a

// Where it is asked for, whole steps are near those of the other one and do not have the same bits (its tiles
// of the cache are wider, so that it did run), however a prompt is cut.

TEST(test_wide_steps) {
    static const struct {
        struct shape s;
        enum dtype kv;
    } cases[] = {
        {{2, 64, 4, 2, 64, 44, 97, 0, true, true, false}, DTYPE_BF16},
        {{1, 128, 3, 1, 128, 52, 97, 140, false, false, true}, DTYPE_F16}, // with a window
    };
    struct err err = {0};
    struct cuda_kv kv = {.dtype = DTYPE_BF16, .block_size = 16, .num_heads = 1, .head_dim = 64};
    struct rt *rt = rt_open(0, &err);
    bool there = rt && cuda_has_wide_prefill(rt, &kv);
    rt_close(rt);
    enum { N = 150 };
    for (int i = SLOW; there && i < 2; i++) {
        struct fixture *f = fixture_make(&cases[i].s, DTYPE_BF16);
        float *narrow = prompt_logits(f, cases[i].kv, N, N);
        setenv("QUIRE_CUDA_WGMMA", "1", 1);
        float *wide = prompt_logits(f, cases[i].kv, N, N), *cut = prompt_logits(f, cases[i].kv, N, 61);
        check_fixture(f, 16, cases[i].kv, 3e-2, "wide prefill");
        unsetenv("QUIRE_CUDA_WGMMA");
        assert_true(memcmp(narrow, wide, N * 97 * sizeof *wide) != 0);
        assert_true(distance(wide, narrow, N * 97) < 2e-2);
        assert_memory_equal(wide, cut, N * 97 * sizeof *wide);
        free(narrow), free(wide), free(cut);
        fixture_free(f);
    }
}

// ---- failure, which a device does not do on demand

static bool emulated(void) {
    struct err err = {0};
    struct rt *rt = rt_open(0, &err);
    struct rt_info info = {0};
    if (rt)
        rt_describe(rt, &info);
    rt_close(rt);
    return info.emulated;
}

TEST(test_too_small) {
    if (!emulated()) {
        skip();
        return;
    }
    struct shape s = {1, 64, 2, 1, 64, 44, 97, 0, false, false, false};
    struct fixture *f = fixture_make(&s, DTYPE_BF16);
    struct err err = {0};
    struct device_config config = {.model = &f->config, .kv_dtype = DTYPE_F16, .block_size = 16, .world = 1};
    setenv("QUIRE_EMULATED_MEMORY", "4000", 1);
    struct device *dev = backend_cuda.open(NULL, &config, &err);
    assert_non_null(dev);
    assert_null(backend_cuda.weight_load(dev, &f->weights[0], &err));
    assert_int_equal(err.code, STATUS_NOMEM);
    // how much, and which flag helps, wherever it ends
    assert_non_null(strstr(err.msg, "no device memory for a weight of 1 MiB: 0 of 0 MiB are free"));
    assert_non_null(strstr(err.msg, "--tensor-parallel-size"));
    backend_cuda.close(dev);
    // weights fit, the cache does not
    err = (struct err){0};
    setenv("QUIRE_EMULATED_MEMORY", "4000000", 1);
    dev = backend_cuda.open(NULL, &config, &err);
    for (int i = 0; i < f->num_weights; i++)
        assert_non_null(backend_cuda.weight_load(dev, &f->weights[i], &err));
    struct step_limits limits = {
        .max_tokens = 8, .max_seqs = 1, .max_rows = 8, .max_context = 64, .num_blocks = 1 << 20};
    assert_int_equal(backend_cuda.reserve(dev, &limits, &err), STATUS_NOMEM);
    assert_non_null(strstr(err.msg, "and a KV cache of 4096 MiB"));
    assert_non_null(strstr(err.msg, "--gpu-memory-utilization"));
    backend_cuda.close(dev);
    unsetenv("QUIRE_EMULATED_MEMORY");
    // all of it fits, what the host keeps for copies does not
    err = (struct err){0};
    dev = backend_cuda.open(NULL, &config, &err);
    setenv("QUIRE_EMULATED_HOST_MEMORY", "4000", 1); // weights are copied from where they are
    for (int i = 0; i < f->num_weights; i++)
        assert_non_null(backend_cuda.weight_load(dev, &f->weights[i], &err));
    limits.num_blocks = 4;
    assert_int_equal(backend_cuda.reserve(dev, &limits, &err), STATUS_NOMEM);
    unsetenv("QUIRE_EMULATED_HOST_MEMORY");
    assert_non_null(strstr(err.msg, "no host memory that the device can copy from for a workspace of 1 MiB"));
    assert_non_null(strstr(err.msg, "--max-num-batched-tokens"));
    backend_cuda.close(dev);
    fixture_free(f);
}

// A failed device says so at every sync, and nothing runs any more.
TEST(test_sticky_failure) {
    if (!emulated()) {
        skip();
        return;
    }
    struct shape s = {1, 64, 2, 1, 64, 44, 97, 0, false, false, false};
    struct fixture *f = fixture_make(&s, DTYPE_BF16);
    struct instance *in = open_instance(f, &backend_cuda, 16, DTYPE_F16, 8, 32, 1);
    struct piece p = {0, 0, 3, false};
    struct batch *b = batch_make(in, &p, 1);
    struct step_out out;
    struct err err = {0};
    forward(in, &b->step);
    assert_int_equal(in->ops->sync(in->dev, &out, &err), STATUS_OK);
    setenv("QUIRE_EMULATED_FAULT", "1", 1); // the next launch fails
    forward(in, &b->step);
    unsetenv("QUIRE_EMULATED_FAULT");
    assert_int_equal(in->ops->sync(in->dev, &out, &err), STATUS_DEVICE);
    assert_non_null(strstr(err.msg, "asked to fail"));
    for (int i = 0; i < 3; i++) {
        err = (struct err){0};
        forward(in, &b->step);
        assert_int_equal(in->ops->sync(in->dev, &out, &err), STATUS_DEVICE);
        assert_non_null(strstr(err.msg, "asked to fail"));
    }
    free(b);
    instance_close(in);
    fixture_free(f);
}

// A device that fails while a model loads says why: it gives no memory then, which is not what is wrong.
TEST(test_failure_at_load) {
    if (!emulated()) {
        skip();
        return;
    }
    struct shape s = {1, 64, 2, 1, 64, 44, 97, 0, false, false, false};
    struct fixture *f = fixture_make(&s, DTYPE_BF16);
    struct device_config config = {.model = &f->config, .kv_dtype = DTYPE_F16, .block_size = 16, .world = 1};
    struct step_limits limits = {
        .max_tokens = 8, .max_seqs = 1, .max_rows = 8, .max_context = 64, .num_blocks = 4};
    int matrix = 0;
    while (f->weights[matrix].role != WEIGHT_QKV)
        matrix++;
    struct err err = {0};
    struct device *dev = backend_cuda.open(NULL, &config, &err);
    assert_non_null(dev);
    setenv("QUIRE_EMULATED_FAULT", "1", 1); // the first launch, that of packing, fails
    assert_null(backend_cuda.weight_load(dev, &f->weights[matrix], &err));
    unsetenv("QUIRE_EMULATED_FAULT");
    assert_int_equal(err.code, STATUS_DEVICE);
    assert_non_null(strstr(err.msg, "asked to fail"));
    err = (struct err){0};
    assert_int_equal(backend_cuda.reserve(dev, &limits, &err), STATUS_DEVICE);
    assert_non_null(strstr(err.msg, "asked to fail"));
    backend_cuda.close(dev);
    fixture_free(f);
}

// ---- two runtimes at a time

// Opened here and used by another thread, as the server does. On a machine with two GPUs they are two
// devices: a launch must go to its own, whichever was taken last.

enum { PAIR = 2, PAIR_N = 300, PAIR_ROUNDS = 9 };

struct pair {
    struct rt *rt[PAIR];
    float *x[PAIR], *y[PAIR];
    bool ok;
};

static void *use_pair(void *arg) {
    struct pair *p = arg;
    float got[PAIR_N];
    p->ok = true;
    for (int round = 0; round < PAIR_ROUNDS; round++)
        for (int i = 0; i < PAIR; i++)
            cuda_finish(p->rt[i], &(struct cuda_finish){.x = p->x[i],
                                                        .y = p->y[i],
                                                        .rows = 1,
                                                        .n = PAIR_N,
                                                        .ldx = PAIR_N,
                                                        .ldy = PAIR_N,
                                                        .add = true});
    for (int i = 0; i < PAIR; i++) {
        void *more = rt_alloc(p->rt[i], 4096); // memory of the same device
        rt_mark(p->rt[i], 0);
        p->ok &= more != NULL && rt_wait(p->rt[i], 0, NULL) == STATUS_OK;
        rt_download_now(p->rt[i], got, p->y[i], sizeof got);
        rt_free(p->rt[i], more);
        for (int k = 0; k < PAIR_N; k++)
            p->ok &= got[k] == (float)((k + i) * PAIR_ROUNDS);
    }
    return NULL;
}

TEST(test_two_at_once) {
    struct pair p = {0};
    for (int i = 0; i < PAIR; i++) {
        struct err err = {0};
        float x[PAIR_N];
        p.rt[i] = i == 1 ? rt_open(1, &err) : NULL; // a second device, where there is one
        err = (struct err){0};
        if (!p.rt[i] && !(p.rt[i] = rt_open(0, &err)))
            fail_msg("%s", err.msg);
        for (int k = 0; k < PAIR_N; k++)
            x[k] = (float)(k + i);
        p.x[i] = rt_alloc(p.rt[i], sizeof x);
        p.y[i] = rt_alloc(p.rt[i], sizeof x);
        assert_true(p.x[i] && p.y[i]);
        rt_upload_now(p.rt[i], p.x[i], x, sizeof x);
    }
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, use_pair, &p), 0);
    pthread_join(thread, NULL);
    assert_true(p.ok);
    for (int i = 0; i < PAIR; i++) {
        rt_free(p.rt[i], p.x[i]);
        rt_free(p.rt[i], p.y[i]);
        rt_close(p.rt[i]);
    }
}

int main(void) { return run_all_tests(NULL, NULL); }
