// GEMMs of every layout, against kernels/ref with activations rounded as the kernel gets them; and
// that a token's bits do not depend on its batch.
#include "device.h"

static const enum dtype types[] = {DTYPE_F32,    DTYPE_BF16, DTYPE_F16,    DTYPE_Q8_0,  DTYPE_Q4_0,
                                   DTYPE_Q4_K,   DTYPE_Q5_K, DTYPE_Q6_K,   DTYPE_MXFP4, DTYPE_Q4_1,
                                   DTYPE_Q5_0,   DTYPE_Q5_1, DTYPE_IQ4_NL, DTYPE_Q2_K,  DTYPE_Q3_K,
                                   DTYPE_IQ4_XS, DTYPE_FP8};
enum { MX_K = 64, MX_BYTES = 17, FP8_K = 256, FP8_BYTES = 36 };
enum { NUM_TYPES = sizeof types / sizeof types[0] };

// The types that tests iterate over: all, or those that gemm_wgmma.cu multiplies, by that.
static struct {
    int first, end;
    bool wgmma;
} under_test = {0, NUM_TYPES, false};

// The buffers of blocks that share tiles, for at most max_blocks of them.
static struct cuda_parts make_parts(int max_blocks) {
    return (struct cuda_parts){.sums = poisoned(sizeof(float) * CUDA_PART * (size_t)max_blocks),
                               .arrived = device_alloc(sizeof(uint32_t) * (size_t)(max_blocks + 1)),
                               .max_blocks = max_blocks,
                               .shared_max = max_blocks % 3 == 0 ? 99 << 10 : 227 << 10,
                               .wgmma = under_test.wgmma};
}

static void free_parts(struct cuda_parts *p) {
    rt_free(rt, p->sums);
    rt_free(rt, p->arrived);
}

static void reference(float *y, const struct tensor *t, const float *x, int m, const float *bias) {
    struct ref_matrix w = {t->data, t->dtype, (int)t->shape[0], (int)t->shape[1], bias};
    for (int i = 0; i < m; i++)
        ref_matvec(y + i * w.rows, x + i * w.cols, &w);
}

static void check(enum dtype type, int n, int k, int m, int order) {
    struct tensor t = random_tensor(type, n, k, 1 / sqrtf((float)k));
    struct cuda_matrix w = matrix_alloc(type, n, k);
    rt_test_order(order);
    matrix_pack(&w, &t, 0, 0);
    struct act_rows in = make_act_rows(w.layout, m, k, w.cols);
    float *want = random_floats((size_t)(m * n), 1), *bias = random_floats((size_t)n, 1);
    int ldy = n + 2;
    float *y = poisoned(sizeof(float) * (size_t)(m * ldy)),
          *d_bias = to_device(bias, sizeof *bias * (size_t)n);
    struct cuda_gemm a = {.w = w,
                          .parts = make_parts(order * 2),
                          .x = in.x,
                          .scale = in.scale,
                          .m = m,
                          .ldx = in.ld,
                          .epilogue = EPILOGUE_STORE,
                          .y = y,
                          .ldy = ldy,
                          .n = n,
                          .bias = d_bias};
    cuda_gemm(rt, &a);
    reference(want, &t, in.values, m, bias);
    float *got = to_host(y, sizeof(float) * (size_t)(m * ldy));
    for (int i = 0; i < m; i++) {
        double far = distance(got + i * ldy, want + i * n, (size_t)n);
        if (!(far < product_bound(2e-6)))
            fail_msg("%s (%d, %d) times %d, token %d: %g", dtype_name(type), n, k, m, i, far);
        assert_true(isnan(got[i * ldy + n]) && isnan(got[i * ldy + n + 1])); // nothing past the row
    }
    // added to what is there
    a.epilogue = EPILOGUE_ADD;
    a.bias = NULL;
    cuda_gemm(rt, &a);
    float *twice = to_host(y, sizeof(float) * (size_t)(m * ldy));
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            assert_true(fabsf(twice[i * ldy + j] - (2 * got[i * ldy + j] - bias[j])) <
                        (float)product_bound(1e-5));
    free(got), free(twice), free(want), free(bias);
    free((void *)(uintptr_t)t.data);
    free_act_rows(&in);
    free_parts(&a.parts);
    matrix_free(&w);
    rt_free(rt, y), rt_free(rt, d_bias);
}

TEST(test_shapes) {
    for (int i = 0; i < NUM_TYPES; i++) {
        // 352: not whole steps of 64, nor 128 columns with a scale of FP8.
        int k = dtype_block(types[i]) == 256 ? 512 : dtype_block(types[i]) == 32 ? 352 : 172;
        check(types[i], 16, k, 1, 0);
        check(types[i], 37, k, 9, 1);
        check(types[i], 20, dtype_block(types[i]) > 1 ? 256 : 7, 21, 2);
        check(types[i], 48, 1280, 5, 3);
        check(types[i], 16, 256, 33, 0);
        check(types[i], 32, 5120, 2, 2); // segments longer than a ring
        check(types[i], 150, 768, 18, 1);
        check(types[i], 150, 256, 70, 2);
    }
}

// The same token alone and at every place of every batch size: equal bits.
TEST(test_batch_invariance) {
    enum { N = 24, MAX = 130 };
    static const int few[] = {2, 8, 9, 40, 17, 64}, more[] = {2, 33, 9, 64, 65, MAX};
    const int *sizes = under_test.wgmma ? more : few, most = sizes[5];
    for (int i = under_test.first; i < under_test.end; i++) {
        int k = dtype_block(types[i]) == 256 ? 512 : 320;
        struct tensor t = random_tensor(types[i], N, k, 0.1f);
        struct cuda_matrix w = matrix_alloc(types[i], N, k);
        matrix_pack(&w, &t, 0, 0);
        struct act_rows in = make_act_rows(w.layout, most, k, w.cols);
        float *y = poisoned(sizeof(float) * MAX * N);
        struct cuda_parts none = {.wgmma = under_test.wgmma};
        struct cuda_gemm a = {.w = w,
                              .parts = none,
                              .x = in.x,
                              .scale = in.scale,
                              .m = most,
                              .ldx = in.ld,
                              .y = y,
                              .ldy = N,
                              .n = N};
        cuda_gemm(rt, &a);
        float *all = to_host(y, sizeof(float) * (size_t)(most * N));
        for (int s = 0; s < 10; s++) {
            a.m = sizes[s % 6];
            // one block has all of K, or 2, 4, 8 share it
            a.parts = make_parts(under_test.wgmma ? 4 * s : s + s / 6);
            rt_test_order(s % 3);
            cuda_gemm(rt, &a);
            free_parts(&a.parts);
            a.parts = none;
            float *some = to_host(y, sizeof(float) * (size_t)(a.m * N));
            assert_memory_equal(some, all, sizeof(float) * (size_t)(a.m * N));
            free(some);
        }
        a.m = 1;
        for (int m = 3; m < most; m += most / 3) { // alone
            a.x = (char *)in.x + (size_t)(m * in.ld) * (cuda_act_dtype_of(w.layout) == ACT_DTYPE_F32 ? 4 : 2);
            a.scale = in.scale ? in.scale + m : NULL;
            cuda_gemm(rt, &a);
            float *one = to_host(y, sizeof(float) * N);
            assert_memory_equal(one, all + m * N, sizeof(float) * N);
            free(one);
        }
        free(all);
        free((void *)(uintptr_t)t.data);
        free_act_rows(&in);
        matrix_free(&w);
        rt_free(rt, y);
    }
}

// One kernel with more and with less shared memory, by turns, and by two of a device: as of a model and its draft model.
TEST(test_shared_memory) {
    enum { N = 24, K = 320, M = 20 };
    static const int max_blocks[] = {4, 1, 4, 1}; // a block keeps fewer sums where more share a tile
    struct err err = {0};
    struct rt *both[] = {rt, rt_open(0, &err)};
    assert_non_null(both[1]);
    struct tensor t = random_tensor(DTYPE_BF16, N, K, 0.1f);
    struct cuda_matrix w = matrix_alloc(DTYPE_BF16, N, K);
    matrix_pack(&w, &t, 0, 0);
    struct act_rows in = make_act_rows(w.layout, M, K, w.cols);
    float *y = poisoned(sizeof(float) * M * N);
    for (int i = 0; i < 8; i++) {
        struct cuda_gemm a = {.w = w, .x = in.x, .m = M, .ldx = in.ld, .y = y, .ldy = N, .n = N};
        struct rt *by = both[i / 2 % 2];
        a.parts = make_parts(max_blocks[i % 4]);
        cuda_gemm(by, &a);
        rt_mark(by, 0);
        if (rt_wait(by, 0, &err) != STATUS_OK)
            fail_msg("launch %d: %s", i, err.msg);
        free_parts(&a.parts);
    }
    free((void *)(uintptr_t)t.data);
    free_act_rows(&in);
    matrix_free(&w);
    rt_free(rt, y);
    rt_close(both[1]);
}

// act(gate) * up, and act(up)
TEST(test_activations) {
    enum { F = 44, MAX = 35 };
    for (int i = under_test.first; i < under_test.end; i++)
        for (int c = 0; c < 4; c++) {
            int k = 256, act_dtype = c / 2, gated = c % 2, M = act_dtype == i % 2 ? 11 : MAX;
            enum act act = (enum act)((i + c) % (gated ? NUM_ACTS : ACT_CLAMPED));
            bool biased = (i + c / 2) % 2;
            float *bias = random_floats(2 * F, 1);
            struct tensor gate = random_tensor(types[i], F, k, 0.3f),
                          up = random_tensor(types[i], F, k, 0.3f);
            struct cuda_matrix w = matrix_alloc(types[i], (F + 7) / 8 * (gated ? 16 : 8), k);
            matrix_pack(&w, &gate, 0, gated ? 1 : 0);
            if (gated)
                matrix_pack(&w, &up, 0, 2);
            struct act_rows in = make_act_rows(w.layout, M, k, w.cols);
            int ld = F + 4;
            void *d_bias = to_device(bias, 2 * F * sizeof *bias);
            void *h = poisoned((size_t)(M * ld * 4));
            struct cuda_gemm a = {.w = w,
                                  .parts = {.wgmma = under_test.wgmma},
                                  .x = in.x,
                                  .scale = in.scale,
                                  .m = M,
                                  .ldx = in.ld,
                                  .epilogue = gated ? EPILOGUE_GATED : EPILOGUE_ACT,
                                  .h = h,
                                  .ldy = ld,
                                  .n = F,
                                  .bias = biased ? d_bias : NULL,
                                  .act = act,
                                  .act_dtype = (enum act_dtype)act_dtype};
            rt_test_order(i % 3);
            cuda_gemm(rt, &a);
            float *got = download_act(h, (size_t)(M * ld), (enum act_dtype)act_dtype), g[F * MAX], u[F * MAX],
                  want[F];
            reference(g, &gate, in.values, M, biased ? bias : NULL);
            reference(u, &up, in.values, M, biased ? bias + F : NULL);
            for (int m = 0; m < M; m++) {
                ref_act(want, act, g + m * F, gated ? u + m * F : NULL, F);
                if (!(distance(got + m * ld, want, F) <
                      (act_dtype == ACT_DTYPE_F32 ? product_bound(5e-6) : 4e-3)))
                    fail_msg("%s, activation %d, gate %d, bias %d: %g", dtype_name(types[i]), act, gated,
                             biased, distance(got + m * ld, want, F));
                assert_true(isnan(got[m * ld + F]));
            }
            free(got), free(bias);
            free((void *)(uintptr_t)gate.data), free((void *)(uintptr_t)up.data);
            free_act_rows(&in);
            matrix_free(&w);
            rt_free(rt, h), rt_free(rt, d_bias);
        }
}

TEST(test_logits) {
    enum { V = 75, MAX = 34, K = 256, GROUPS = (V + CUDA_GROUP - 1) / CUDA_GROUP };
    for (int i = 2 * under_test.first; i < 2 * under_test.end; i++) {
        int M = i % 2 == 0 ? 10 : MAX;
        struct tensor t = random_tensor(types[i / 2], V, K, 0.5f);
        struct cuda_matrix w = matrix_alloc(types[i / 2], V, K);
        matrix_pack(&w, &t, 0, 0);
        struct act_rows in = make_act_rows(w.layout, M, K, w.cols);
        float nan = NAN, cap = i % 2 ? 3 : 0, *bias = random_floats(V, 2);
        int ld = GROUPS * CUDA_GROUP;
        float *y = poisoned(sizeof(float) * (size_t)(M * ld)),
              *max = poisoned(sizeof(float) * (size_t)(M * GROUPS));
        if (w.layout == LAYOUT_F32) // one row is not finite
            rt_upload_now(rt, (float *)in.x + 4 * in.ld + 7, &nan, sizeof nan);
        struct cuda_gemm a = {.w = w,
                              .parts = {.wgmma = under_test.wgmma},
                              .x = in.x,
                              .scale = in.scale,
                              .m = M,
                              .ldx = in.ld,
                              .epilogue = EPILOGUE_LOGITS,
                              .y = y,
                              .ldy = ld,
                              .n = V,
                              .bias = i % 4 < 2 ? NULL : to_device(bias, sizeof *bias * V),
                              .max = max,
                              .ldmax = GROUPS,
                              .factor = 0.25f,
                              .softcap = cap};
        rt_test_order(i % 3);
        cuda_gemm(rt, &a);
        float *got = to_host(y, sizeof(float) * (size_t)(M * ld)),
              *got_max = to_host(max, sizeof(float) * (size_t)(M * GROUPS));
        float want[V * MAX];
        reference(want, &t, in.values, M, NULL);
        for (int m = 0; m < M; m++)
            for (int g = 0; g < GROUPS; g++) {
                float largest = -INFINITY;
                for (int v = g * CUDA_GROUP; v < (g + 1) * CUDA_GROUP && v < V; v++) {
                    if (w.layout == LAYOUT_F32 && m == 4)
                        largest = NAN;
                    else {
                        float is = (want[m * V + v] + (a.bias ? bias[v] : 0)) / 4;
                        assert_true(fabsf(got[m * ld + v] - (cap > 0 ? cap * tanhf(is / cap) : is)) <
                                    (float)product_bound(1e-5) * (1 + fabsf(want[m * V + v])));
                        largest = fmaxf(largest, got[m * ld + v]);
                    }
                }
                assert_true(isnan(largest) ? isnan(got_max[m * GROUPS + g])
                                           : got_max[m * GROUPS + g] == largest);
            }
        free(got), free(got_max), free(bias);
        free((void *)(uintptr_t)t.data);
        free_act_rows(&in);
        matrix_free(&w);
        rt_free(rt, y), rt_free(rt, max), rt_free(rt, (void *)(uintptr_t)a.bias);
    }
}

// All of that by the kernel of sm_90a, and shapes that are ragged for it: its steps, its tiles of 128 and 256 rows
// and of 32, 64 and 128 tokens.
TEST(test_wgmma) {
    if (!cuda_has_wgmma(rt))
        return;
    under_test.first = 1, under_test.end = 3, under_test.wgmma = true;
    for (int i = under_test.first; i < under_test.end; i++) {
        check(types[i], 37, 172, 9, 1);
        check(types[i], 20, 7, 21, 2);
        check(types[i], 300, 768, 18, 1);
        check(types[i], 16, 1280, 40, 0);
        check(types[i], 32, 5120, 2, 2); // segments longer than a ring
        check(types[i], 150, 352, 70, 4);
        check(types[i], 20, 256, 130, 1);
    }
    check(DTYPE_Q8_0, 37, 352, 40, 1); // keeps its kernel
    test_batch_invariance(state);
    test_activations(state);
    test_logits(state);
    under_test.first = 0, under_test.end = NUM_TYPES, under_test.wgmma = false;
}

// A quantised matrix as bf16: what cuBLASLt multiplies where rows are many.
TEST(test_dequant) {
    enum { N = 21, K = 512 };
    for (int i = 3; i < NUM_TYPES; i++) {
        struct tensor t = random_tensor(types[i], N, K, 1);
        struct ref_matrix ref = {t.data, types[i], N, K, NULL};
        struct cuda_matrix w = matrix_alloc(types[i], N, K);
        matrix_pack(&w, &t, 0, 0);
        for (int order = 0; order < 3; order++) {
            uint16_t *out = poisoned((size_t)(w.rows * w.cols) * 2);
            struct cuda_dequant a = {w, out, NULL};
            rt_test_order(order);
            cuda_dequant(rt, &a);
            uint16_t *got = to_host(out, (size_t)(w.rows * w.cols) * 2);
            for (int n = 0; n < w.rows; n++)
                for (int k = 0; k < w.cols; k++) {
                    float want = n < N ? ref_element(&ref, n, k) : 0, v = bf16_to_float(got[n * w.cols + k]);
                    if (!(fabsf(v - want) <= 0.004f * fabsf(want) + 1e-6f))
                        fail_msg("%s (%d, %d), order %d: %g, not %g", dtype_name(types[i]), n, k, order,
                                 (double)v, (double)want);
                }
            free(got);
            rt_free(rt, out);
        }
        free((void *)(uintptr_t)t.data);
        matrix_free(&w);
    }
    rt_test_order(0);
}

// FP8 whose rows have one scale each, times activations quantised to it, by cuBLASLt.
TEST(test_w8a8) {
    enum { N = 48, MOST = 544, M = 64, ROWS = 5, LDX = 576 };
    for (int c = 0; c < 2; c++) {
        int K = c ? MOST : 512; // 544: not whole scales of 128 columns
        struct tensor t = random_tensor(DTYPE_FP8, N - 7, K, 1);
        struct cuda_matrix w = matrix_alloc(DTYPE_FP8, N, K);
        w.e4m3 = E4M3_ROWS;
        level_scales(&t, 1, (size_t)K);
        matrix_pack(&w, &t, 0, 0);
        float *x = random_floats(ROWS * LDX, 1), *factor = poisoned(sizeof(float) * M);
        for (int k = 0; k < LDX; k++) {
            x[k] = round_bf16(x[k] * 1e-3f); // and one that is much larger
            x[LDX + k] = round_bf16(k == 5 ? -3e4f : x[LDX + k]);
            x[2 * LDX + k] = k < 3 ? round_bf16(1e-36f) : 0;
            x[3 * LDX + k] = k == K - 1 ? (c ? NAN : INFINITY) : round_bf16(x[3 * LDX + k]);
            x[4 * LDX + k] = round_bf16(x[4 * LDX + k] * 1e30f);
        }
        x[LDX - 1] = x[5 * LDX - 1] = 1e36f; // behind the columns
        struct cuda_dequant d = {w, poisoned((size_t)(N * K)), poisoned(sizeof(float) * N)};
        struct cuda_quantise q = {.x = upload_act(x, ROWS * LDX, ACT_DTYPE_BF16),
                                  .out = device_alloc((size_t)(M * K)),
                                  .scale = factor,
                                  .rows = ROWS,
                                  .n = K,
                                  .ldx = LDX};
        rt_test_order(c + 1);
        cuda_dequant(rt, &d);
        cuda_quantise(rt, &q);
        float *y = poisoned(sizeof(float) * M * N);
        struct rt_gemm g = {.x = q.out,
                            .w = d.out,
                            .y = y,
                            .m = M,
                            .n = N,
                            .k = K,
                            .ldx = K,
                            .ldw = K,
                            .ldy = N,
                            .type = RT_E4M3};
        if (rt_matmul(rt, &g)) { // a device may have no algorithm
            cuda_finish(
                rt,
                &(struct cuda_finish){
                    .x = y, .scales = {factor, d.scale}, .y = y, .rows = ROWS, .n = N, .ldx = N, .ldy = N});
            float *got = to_host(y, sizeof(float) * M * N);
            for (int m = 0; m < ROWS; m++) {
                float largest = 0, want[N];
                for (int k = 0; k < K; k++)
                    largest = fmaxf(largest, fabsf(x[m * LDX + k]));
                for (int n = 0; n < N; n++) {
                    const uint8_t *row = (const uint8_t *)t.data + n * K / 32 * FP8_BYTES;
                    double sum = 0;
                    for (int k = 0; n < N - 7 && k < K; k++)
                        sum += (double)e4m3_to_float(float_to_e4m3(x[m * LDX + k] * (448 / largest))) *
                               (double)e4m3_to_float(row[k / 32 * FP8_BYTES + 4 + k % 32]);
                    want[n] = n < N - 7
                                  ? (float)(sum * (double)largest / 448 * (double)ref_fetch(row, DTYPE_F32))
                                  : 0;
                }
                if (m == 2) // too small for a scale
                    memset(want, 0, sizeof want);
                for (int n = 0; m == 3 && n < N; n++)
                    assert_true(isnan(got[m * N + n]));
                if (m != 3 && !(distance(got + m * N, want, N) < product_bound(2e-4)))
                    fail_msg("%d columns, row %d: %g", K, m, distance(got + m * N, want, N));
            }
            free(got);
        }
        free(x), free((void *)(uintptr_t)t.data);
        matrix_free(&w);
        rt_free(rt, d.out), rt_free(rt, d.scale), rt_free(rt, (void *)(uintptr_t)q.x), rt_free(rt, q.out);
        rt_free(rt, factor), rt_free(rt, y);
    }
    rt_test_order(0);
}

// FP8 with a scale for 128 columns of each row, or for 128 rows, too: cuBLASLt gets them.
TEST(test_w8a8_groups) {
    enum { N = 272, K = 640, M = 64, ROWS = 21, LDX = 672, GROUPS = K / 128 };
    struct rt_info info;
    rt_describe(rt, &info);
    for (int c = 0; c < 2; c++) {
        struct tensor t = random_tensor(DTYPE_FP8, N, K, 1);
        struct cuda_matrix w = matrix_alloc(DTYPE_FP8, N, K);
        w.e4m3 = c ? E4M3_BLOCKS : E4M3_GROUPS;
        level_scales(&t, c ? 128 : 1, 128);
        float *x = random_floats(ROWS * LDX, 1), *want = must_calloc(N, sizeof *want), scale;
        for (int i = 0; i < N * K / 32; i++) { // far apart
            char *block = (char *)(uintptr_t)t.data + i * FP8_BYTES;
            memcpy(&scale, block, sizeof scale);
            int row = i / (K / 32) / (c ? 128 : 1), group = i % (K / 32) / 4;
            scale *= ldexpf(1, (row * 3 + group * 5) % 9 - 4);
            memcpy(block, &scale, sizeof scale);
        }
        matrix_pack(&w, &t, 0, 0);
        for (int i = 0; i < ROWS * LDX; i++)
            x[i] = round_bf16(i / LDX == 2 && i % LDX < 128 ? 1e-36f // too small for a scale
                              : i == 3 * LDX + K - 1        ? NAN
                                                     : ldexpf(x[i], i / LDX * 3 + i % LDX / 128 * 7 % 13));
        struct cuda_dequant d = {w, poisoned((size_t)(N * K)), poisoned(sizeof(float) * N * 2 * GROUPS)};
        struct cuda_quantise q = {.x = upload_act(x, ROWS * LDX, ACT_DTYPE_BF16),
                                  .out = device_alloc((size_t)(M * K)),
                                  .scale = poisoned(sizeof(float) * M * GROUPS),
                                  .rows = ROWS,
                                  .n = K,
                                  .ldx = LDX,
                                  .ld_scale = M};
        rt_test_order(c + 1);
        cuda_dequant(rt, &d);
        cuda_quantise(rt, &q);
        float *y = device_alloc(sizeof(float) * M * N);
        struct rt_gemm g = {.x = q.out,
                            .w = d.out,
                            .y = y,
                            .m = M,
                            .n = N,
                            .k = K,
                            .ldx = K,
                            .ldw = K,
                            .ldy = N,
                            .type = RT_E4M3,
                            .add = c,
                            .x_scale = q.scale,
                            .w_scale = d.scale,
                            .w_blocks = c};
        struct rt_gemm ragged = g, apart = g;
        ragged.m = M - 2;
        apart.w_scale++;
        assert_false(rt_can_matmul(rt, &ragged) || rt_can_matmul(rt, &apart));
        setenv("QUIRE_EMULATED_CAPABILITY", "89", 1);
        assert_false(info.emulated && rt_can_matmul(rt, &g));
        unsetenv("QUIRE_EMULATED_CAPABILITY");
        bool can = rt_matmul(rt, &g);
        assert_true(can || !info.emulated); // a device may have no algorithm
        float *got = to_host(y, sizeof(float) * M * N);
        for (int m = 0; can && m < ROWS; m++) {
            memset(want, 0, N * sizeof *want);
            for (int b = 0; b < GROUPS; b++) {
                float largest = 0;
                for (int k = b * 128; k < b * 128 + 128; k++)
                    largest = fmaxf(largest, fabsf(x[m * LDX + k]));
                for (int n = 0; largest > 1e-30f && n < N; n++) {
                    const uint8_t *row = (const uint8_t *)t.data + n * K / 32 * FP8_BYTES;
                    double sum = 0;
                    for (int k = b * 128; k < b * 128 + 128; k++)
                        sum += (double)e4m3_to_float(float_to_e4m3(x[m * LDX + k] * (448 / largest))) *
                               (double)e4m3_to_float(row[k / 32 * FP8_BYTES + 4 + k % 32]);
                    scale = ref_fetch(row + b * 4 * FP8_BYTES, DTYPE_F32);
                    want[n] += (float)(sum * (double)largest / 448 * (double)scale);
                }
            }
            for (int n = 0; m == 3 && n < N; n++)
                assert_true(isnan(got[m * N + n]));
            if (m != 3 && !(distance(got + m * N, want, N) < product_bound(2e-4)))
                fail_msg("%s, row %d: %g", c ? "blocks" : "groups", m, distance(got + m * N, want, N));
        }
        free(got), free(x), free(want), free((void *)(uintptr_t)t.data);
        matrix_free(&w);
        rt_free(rt, d.out), rt_free(rt, d.scale), rt_free(rt, (void *)(uintptr_t)q.x), rt_free(rt, q.out);
        rt_free(rt, q.scale), rt_free(rt, y);
    }
    rt_test_order(0);
}

// Elements of a file's matrix (16, k) are what the first m columns of it times the unit matrix say, in any kernel.
static void check_elements(const struct tensor *t, int k,
                           float (*element)(const uint8_t *file, int row, int col)) {
    enum { N = 16 };
    struct cuda_matrix w = matrix_alloc(t->dtype, N, k);
    float *unit = must_calloc((size_t)(k * k), sizeof *unit), *y = poisoned(sizeof(float) * (size_t)(k * N));
    for (int i = 0; i < k; i++)
        unit[i * k + i] = 1;
    void *x = upload_act(unit, (size_t)(k * k), ACT_DTYPE_BF16);
    matrix_pack(&w, t, 0, 0);
    for (int m = 16; m <= k; m += k - 16) {
        struct cuda_gemm a = {.w = w, .x = x, .m = m, .ldx = k, .y = y, .ldy = N, .n = N};
        cuda_gemm(rt, &a);
        float *got = to_host(y, sizeof(float) * (size_t)(k * N));
        for (int i = 0; i < m; i++)
            for (int n = 0; n < N; n++)
                assert_true(got[i * N + n] == element(t->data, n, i));
        free(got);
    }
    free(unit);
    matrix_free(&w);
    rt_free(rt, x), rt_free(rt, y);
}

static float mxfp4_element(const uint8_t *file, int row, int col) {
    struct ref_matrix m = {file, DTYPE_MXFP4, 16, MX_K, NULL};
    return file[(row * MX_K + col) / 32 * MX_BYTES] < 2 ? 0 : ref_element(&m, row, col);
}

// Every 4-bit float of MXFP4 with the least and the largest exponents; of 0 and 1, which give subnormal numbers, zero.
TEST(test_exponents) {
    static const uint8_t exponents[] = {0, 1, 2, 3, 127, 128, 252};
    uint8_t file[16 * MX_K / 32 * MX_BYTES];
    for (int b = 0; b < 16 * MX_K / 32; b++) {
        file[b * MX_BYTES] = exponents[b % 7];
        for (int i = 0; i < 16; i++)
            file[b * MX_BYTES + 1 + i] = (uint8_t)(i | (i + b) % 16 << 4);
    }
    check_elements(&(struct tensor){file, DTYPE_MXFP4, 2, {16, MX_K}}, MX_K, mxfp4_element);
}

// Not rounded to bf16: scales multiply the sums.
static float fp8_element(const uint8_t *file, int row, int col) {
    const uint8_t *block = file + (row * FP8_K + col) / 32 * FP8_BYTES;
    return e4m3_to_float(block[4 + col % 32]) * ref_fetch(block, DTYPE_F32);
}

// Every number of E4M3, by scales of 24 bits.
TEST(test_codes) {
    uint8_t file[16 * FP8_K / 32 * FP8_BYTES];
    for (int b = 0; b < 16 * FP8_K / 32; b++) {
        uint8_t *block = &file[b * FP8_BYTES];
        float scale = random_float() * ldexpf(1, b / 4 - 16);
        memcpy(block, b % 4 ? block - FP8_BYTES : (const uint8_t *)&scale, 4);
        for (int i = 0; i < 32; i++)
            block[4 + i] = (uint8_t)((b * 32 + i) % 127 | (b * 32 + i) / 127 % 2 << 7);
    }
    check_elements(&(struct tensor){file, DTYPE_FP8, 2, {16, FP8_K}}, FP8_K, fp8_element);
}

int main(void) {
    device_open();
    return run_all_tests(NULL, NULL);
}
