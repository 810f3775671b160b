// The values of a block of each quantised type, from an oracle that is not ours:
// tests/tools/make_quants_golden.py made quants.golden with the Python package that writes these files. To
// the bit: every product in a block is exact in f32, and where a minimum is subtracted there is one rounding.
#include "fixture.h"
#include "float_env.h"
#include "harness.h"
#include "kernels.h"
#include "pack.h"
#include "quants.h"
#include "variants.h"

TEST(test_golden) {
    static char line[8192];
    int seen[DTYPE_COUNT] = {0};
    FILE *f = fopen(QUIRE_SOURCE_DIR "/tests/ops/quants.golden", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        unsigned char block[256];
        float want[256], got[256];
        static char panel[MAX_BLOCK_BYTES];
        enum dtype t = 0;
        while (t < DTYPE_COUNT && strncmp(dtype_name(t), line, strcspn(line, " ")) != 0)
            t++;
        assert_true(t < DTYPE_COUNT);
        int n = dtype_block(t), bytes = (int)dtype_row_bytes(t, n);
        const char *p = line + strlen(dtype_name(t)) + 1, *values = p + 2 * bytes + 1;
        assert_int_equal(strlen(values), 8 * n + 1);
        for (int i = 0; i < bytes; i++)
            assert_int_equal(sscanf(p + 2 * i, "%2hhx", &block[i]), 1);
        for (int i = 0; i < n; i++) {
            unsigned bits;
            assert_int_equal(sscanf(values + 8 * i, "%8x", &bits), 1);
            memcpy(&want[i], &bits, 4);
        }
        struct ref_matrix m = {block, t, 1, n, NULL};
        for (int i = 0; i < n; i++)
            got[i] = ref_element(&m, 0, i);
        assert_memory_equal(got, want, (size_t)n * 4);
        memset(got, 0xff, sizeof got);
        for (int i = 0; i < n && t == DTYPE_MXFP4 && block[0] < 2; i++)
            want[i] = copysignf(0, want[i]);
        // As in a step: a subnormal scale, which only MXFP4 has, counts as zero.
        uint64_t env = float_env_enter();
        pack_panel(panel, block, t, 1, n, 0);
        pack_read_row(got, panel, t, n, 0);
        float_env_leave(env);
        assert_memory_equal(got, want, (size_t)n * 4);
        memset(got, 0xff, sizeof got);
        env = float_env_enter();
        quants_decode(got, block, t, n);
        float_env_leave(env);
        assert_memory_equal(got, want, (size_t)n * 4);
        seen[t]++;
    }
    fclose(f);
    for (int t = 0; t < DTYPE_COUNT; t++)
        assert_int_equal(seen[t], dtype_block((enum dtype)t) > 1 && t != DTYPE_FP8 ? 7 : 0);
}

// In panels FP8 is what its products, rounded to BF16, are as BF16.
TEST(test_fp8) {
    enum { N = 21, K = 384, PAIRS = K / 2 };
    static char panels[2][PAIRS * LANES * 4];
    static uint16_t brain[N * K];
    struct tensor t = random_tensor(DTYPE_FP8, N, K, 1);
    struct ref_matrix m = {t.data, DTYPE_FP8, N, K, NULL};
    for (size_t i = 0; i < (size_t)N * K / 32; i++) // that are rounded
        memcpy((char *)(uintptr_t)t.data + i * 36, &(float){0.01f * random_float()}, 4);
    for (int i = 0; i < N * K; i++)
        brain[i] = float_to_bf16(ref_element(&m, i / K, i % K));
    assert_int_equal(pack_dtype(DTYPE_FP8), DTYPE_BF16);
    for (int row = 0; row < N; row += LANES) {
        memset(panels, 0xff, sizeof panels);
        pack_panel(panels[0], t.data, DTYPE_FP8, N, K, row);
        pack_panel(panels[1], brain, DTYPE_BF16, N, K, row);
        assert_memory_equal(panels[0], panels[1], sizeof panels[0]);
    }
    free((void *)(uintptr_t)t.data);
}

// Blocks whose scales are at the ends of what f16 holds, negative, subnormal or zero, and whose numbers are
// all at one end or random.
static void hostile_blocks(char *p, enum dtype t, int count) {
    static const uint16_t scales[] = {0x7bff, 0xfbff, 0x3c00, 0xac66, 0x0001, 0x8003, 0x0000, 0x8000};
    static const unsigned char fills[] = {0x00, 0xff, 0x0f, 0xf0, 0x80, 0x7f};
    static const unsigned char exponents[] = {0, 1, 2, 90, 127, 128, 160, 190};
    int bytes = (int)dtype_row_bytes(t, dtype_block(t));
    for (; count > 0; count--, p += bytes) {
        unsigned fill = random_u32() % 8;
        for (int i = 0; i < bytes; i++)
            p[i] = (char)(fill < 6 ? fills[fill] : random_u32());
        if (t == DTYPE_MXFP4)
            p[0] = (char)exponents[random_u32() % 8];
        for (int i = 0; i <= quants_has_minimum(t) && t != DTYPE_MXFP4; i++)
            memcpy(p + quants_scale_offset(t) + 2 * i, &scales[random_u32() % 8], 2);
    }
}

// resid (T, D) = h (T, F) times the down matrix, and nothing else of the model
static void product(float *resid, struct instance *in, const float *h, int num_tokens) {
    size_t D = (size_t)in->model.config.hidden, F = (size_t)in->layers[0].ffn.hidden;
    struct batch *b = batch_make(in, &(struct piece){0, 0, num_tokens, false}, 1);
    struct step_out out;
    in->ops->step_begin(in->dev, &b->step);
    memcpy(in->act.h, h, (size_t)num_tokens * F * sizeof(float));
    memset(in->act.resid, 0, (size_t)num_tokens * D * sizeof(float));
    in->ops->ffn_out(in->dev, &in->layers[0], &b->step);
    memcpy(resid, in->act.resid, (size_t)num_tokens * D * sizeof(float));
    in->ops->step_end(in->dev);
    assert_int_equal(in->ops->sync(in->dev, &out, NULL), STATUS_OK);
    free(b);
}

// From the blocks of a file to sums: packing, decoding and both ends of every number. The activations are
// integers with a 127 in every 32, which quantise to themselves, so that nothing but the sums is
// rounded.
TEST(test_hostile) {
#define X(type, packed) DTYPE_##type,
    static const enum dtype types[] = {QUANTISED_MAP(X)};
#undef X
    enum { NUM_VARIANTS = sizeof variants / sizeof *variants };
    enum { T = 19, D = 80, F = 2304 }; // 9 blocks of 256: not a multiple of the 8 segments
    const struct shape shape = {1, D, 2, 1, 32, F, 64, 0, false, false, false};
    static float h[T * F], resid[NUM_VARIANTS][T * D], alone[D];
    for (int w = 0; w < (int)(sizeof types / sizeof *types); w++) {
        struct fixture *f = fixture_make(&shape, types[w]);
        struct tensor *down = &f->weights[6].part[0];
        assert_true(f->weights[6].role == WEIGHT_DOWN && down->dtype == types[w]);
        hostile_blocks((char *)(uintptr_t)down->data, types[w], D * F / dtype_block(types[w]));
        for (int i = 0; i < T * F; i++)
            h[i] = i % 32 == 7 ? 127 : (float)((int)(random_u32() % 255) - 127) * (float)(i / F % 3 > 0);
        for (int i = 0; i < F; i++)
            h[i] = 127; // the largest sums
        for (int v = 0; v < NUM_VARIANTS; v++) {
            struct instance *in =
                instance_open(f, (struct setup){&backend_cpu, variants[v], 1 + v, 16, DTYPE_F16}, T, T, 1);
            if (!in)
                continue;
            product(resid[v], in, h, T);
            assert_memory_equal(resid[v], resid[0], sizeof resid[0]);
            for (int t = 0; t < T; t++) {
                product(alone, in, h + t * F, 1);
                assert_memory_equal(alone, resid[0] + t * D, sizeof alone);
            }
            instance_close(in);
        }
        struct ref_matrix m = {down->data, types[w], D, F, NULL};
        for (int n = 0; n < D; n++) {
            static float row[F];
            for (int k = 0; k < F; k++)
                row[k] = ref_element(&m, n, k);
            for (int t = 0; t < T; t++) {
                double sum = 0, size = 0;
                for (int k = 0; k < F; k += 32) {
                    double most = 0, x = 0; // a block's numbers are summed before its minimum is taken off
                    for (int i = k; i < k + 32; i++) {
                        sum += (double)row[i] * (double)h[t * F + i];
                        most = fmax(most, fabs((double)row[i]));
                        x += fabs((double)h[t * F + i]);
                    }
                    size += most * x;
                }
                assert_true(fabs(sum - (double)resid[0][t * D + n]) <= 1e-6 * size);
            }
        }
        fixture_free(f);
    }
}

int main(void) { return run_all_tests(NULL, NULL); }
