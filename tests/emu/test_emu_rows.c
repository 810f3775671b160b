// Embedding, norm, SwiGLU, and what follows the QKV GEMM, against kernels/ref. Over 600 lines: each kernel beside its reference.
#include "device.h"

enum { SCHEDULES = 4 };

TEST(test_embed) {
    static const enum dtype types[] = {DTYPE_F32,    DTYPE_F16,  DTYPE_BF16,   DTYPE_Q8_0,  DTYPE_Q4_0,
                                       DTYPE_Q4_K,   DTYPE_Q5_K, DTYPE_Q6_K,   DTYPE_MXFP4, DTYPE_Q4_1,
                                       DTYPE_Q5_0,   DTYPE_Q5_1, DTYPE_IQ4_NL, DTYPE_Q2_K,  DTYPE_Q3_K,
                                       DTYPE_IQ4_XS, DTYPE_FP8};
    enum { V = 37, ROWS = 5, POSITIONS = 9 };
    float *added = random_floats(POSITIONS * 256, 1),
          *d_added = to_device(added, POSITIONS * 256 * sizeof *added);
    int32_t types_of[ROWS] = {0, 1, 1, 0, 1}, positions[ROWS] = {8, 0, 3, 3, 1};
    int32_t *d_types_of = to_device(types_of, sizeof types_of),
            *d_positions = to_device(positions, sizeof positions);
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        int D = dtype_block(types[t]) > 1 ? 256 : 100;
        struct tensor table = random_tensor(types[t], V, D, 1);
        struct ref_matrix ref = {table.data, types[t], V, D, NULL};
        int32_t ids[ROWS] = {0, 36, -1 - 2, 7, -1 - 0}, sampled[3] = {11, -1, 20};
        void *d_table = to_device(table.data, V * dtype_row_bytes(types[t], D)),
             *d_ids = to_device(ids, sizeof ids), *d_sampled = to_device(sampled, sizeof sampled),
             *y = poisoned(sizeof(float) * (size_t)(ROWS * D));
        float factor = t % 2 ? 1 : 0.75f;
        bool placed = t % 3 > 0, typed = t % 3 == 2; // with NULL every row is of type 0
        struct cuda_embed a = {.ids = d_ids,
                               .sampled = d_sampled,
                               .table = d_table,
                               .dtype = types[t],
                               .resid = y,
                               .factor = factor,
                               .rows = ROWS,
                               .hidden = D,
                               .vocab = V,
                               .type_table = placed ? d_added : NULL,
                               .position_table = placed ? d_added : NULL,
                               .types = typed ? d_types_of : NULL,
                               .positions = d_positions};
        rt_test_order((int)t % SCHEDULES);
        cuda_embed(rt, &a);
        float *got = to_host(y, sizeof(float) * (size_t)(ROWS * D));
        for (int r = 0; r < ROWS; r++) {
            int id = ids[r] < 0 ? sampled[-1 - ids[r]] : ids[r];
            for (int i = 0; i < D; i++) {
                float want = ref_element(&ref, id, i) * factor;
                if (placed)
                    want = want + added[typed ? types_of[r] * D + i : i] + added[positions[r] * D + i];
                // A difference of two products.
                if (fabsf(got[r * D + i] - want) > 1e-6f * (fabsf(want) + 0.01f))
                    fail_msg("%s row %d column %d: %g, not %g", dtype_name(types[t]), r, i,
                             (double)got[r * D + i], (double)want);
            }
        }
        free(got);
        free((void *)(uintptr_t)table.data);
        rt_free(rt, d_table), rt_free(rt, d_ids), rt_free(rt, d_sampled), rt_free(rt, y);
    }
    free(added);
    rt_free(rt, d_added), rt_free(rt, d_types_of), rt_free(rt, d_positions);
    rt_test_order(0);
}

enum { NO_NORM, RMS, LAYER, LAYER_BIAS };

static void check_norm(int rows, int n, enum act_dtype act_dtype, int norm, float size, int order) {
    // Rows at multiples of 16 bytes, or not.
    int ldx = order % 2 ? n + 3 : (n + 3) / 4 * 4, ldout = (n + 31) / 32 * 32;
    float *x = random_floats((size_t)(rows * ldx), size), *w = random_floats((size_t)n, 1),
          *b = random_floats((size_t)n, 1), want[9004];
    // rows of another array: 12 words apart, as a step's logits rows; one is padding
    int32_t of[8 * 12];
    for (int i = 0; i < 8; i++)
        of[i * 12] = i == 2 ? -1 : rows - 1 - i % rows;
    float *d_x = to_device(x, sizeof *x * (size_t)(rows * ldx)), *d_w = to_device(w, sizeof *w * (size_t)n),
          *d_b = to_device(b, sizeof *b * (size_t)n);
    int32_t *d_of = to_device(of, sizeof of);
    for (int gather = 0; gather < 2; gather++) {
        int num = gather ? 8 : rows;
        void *out = poisoned((size_t)(num * ldout) * (act_dtype == ACT_DTYPE_F32 ? 4 : 2));
        float *scale = poisoned(sizeof(float) * (size_t)num);
        rt_test_order(order);
        struct cuda_norm a = {.x = d_x,
                              .of = gather ? d_of : NULL,
                              .of_stride = 12,
                              .weight = norm ? d_w : NULL,
                              .bias = norm == LAYER_BIAS ? d_b : NULL,
                              .kind = norm >= LAYER ? NORM_LAYER : NORM_RMS,
                              .out = out,
                              .scale = scale,
                              .act_dtype = act_dtype,
                              .rows = num,
                              .n = n,
                              .ldx = ldx,
                              .ldout = ldout,
                              .eps = 1e-5f};
        cuda_norm(rt, &a);
        float *got = download_act(out, (size_t)(num * ldout), act_dtype),
              *s = to_host(scale, sizeof(float) * (size_t)num);
        for (int r = 0; r < num; r++) {
            int from = gather ? of[r * 12] : r;
            const float *row = x + (from < 0 ? 0 : from) * ldx;
            if (norm >= LAYER)
                ref_layernorm(want, row, w, norm == LAYER_BIAS ? b : NULL, n, 1e-5f);
            else if (norm == RMS)
                ref_rmsnorm(want, row, w, n, 1e-5f);
            else
                memcpy(want, row, sizeof *row * (size_t)n);
            float largest = 0;
            for (int i = 0; i < n; i++) {
                want[i] = from < 0 ? 0 : want[i];
                largest = fmaxf(largest, fabsf(want[i]));
            }
            float factor = act_dtype == ACT_DTYPE_F16 ? s[r] : 1;
            // The largest is stored within [2^14, 2^15], nothing overflows.
            if (act_dtype == ACT_DTYPE_F16 && largest > 0)
                assert_true(largest / factor >= 16384 * 0.999f && largest / factor <= 32768 * 1.001f);
            double bound = act_dtype == ACT_DTYPE_F32    ? 1e-6
                           : act_dtype == ACT_DTYPE_BF16 ? 4e-3
                                                         : 5e-4,
                   far = 0, of_norm = 0;
            for (int i = 0; i < n; i++) {
                double d = (double)got[r * ldout + i] * (double)factor - (double)want[i];
                far += d * d;
                of_norm += (double)want[i] * (double)want[i];
            }
            if (!(sqrt(far) <= bound * sqrt(of_norm)))
                fail_msg("norm %d of %d, act_dtype %d, row %d: %g", norm, n, (int)act_dtype, r,
                         sqrt(far / of_norm));
            for (int i = n; i < ldout; i++)
                assert_true(isnan(got[r * ldout + i])); // left alone
        }
        free(got), free(s);
        rt_free(rt, out), rt_free(rt, scale);
    }
    free(x), free(w), free(b);
    rt_free(rt, d_x), rt_free(rt, d_w), rt_free(rt, d_b), rt_free(rt, d_of);
}

TEST(test_norm) {
    static const int sizes[] = {1, 31, 64, 172, 500, 9000, 9001}; // the last two: more than registers hold
    for (int act_dtype = 0; act_dtype < 3; act_dtype++)
        for (int i = 0; i < 7; i++)
            for (int norm = NO_NORM; norm <= LAYER_BIAS; norm++)
                check_norm(3, sizes[i], (enum act_dtype)act_dtype, norm, i == 3 ? 1e6f : 2,
                           (i + act_dtype) % SCHEDULES);
    // A NaN stays one: f16 must not hide it.
    float x[64], scale[1];
    for (int i = 0; i < 64; i++)
        x[i] = i == 40 ? NAN : 1;
    void *d_x = to_device(x, sizeof x), *out = poisoned(64 * 2), *d_scale = poisoned(4);
    struct cuda_norm a = {.x = d_x,
                          .out = out,
                          .scale = d_scale,
                          .act_dtype = ACT_DTYPE_F16,
                          .rows = 1,
                          .n = 64,
                          .ldx = 64,
                          .ldout = 64};
    cuda_norm(rt, &a);
    float *got = download_act(out, 64, ACT_DTYPE_F16);
    assert_true(isnan(got[40]));
    (void)scale;
    free(got);
    rt_free(rt, d_x), rt_free(rt, out), rt_free(rt, d_scale);
}

// The sum of a layer's output and the residual stream: with and without a bias, a norm, a factor.
TEST(test_add) {
    static const int sizes[] = {1, 31, 172, 500};
    enum { ROWS = 3 };
    for (int c = 0; c < 4 * 32; c++) {
        int n = sizes[c / 32];
        bool biased = c & 1, normed = c & 2, layer = c & 8, of_sum = c & 16;
        float factor = c & 4 ? 0.22f : 1, sum[512], normal[512];
        size_t count = (size_t)(ROWS * n);
        float *x = random_floats(count, 2), *resid = random_floats(count, 2),
              *bias = random_floats((size_t)n, 1), *weight = random_floats((size_t)n, 1);
        float *d_x = to_device(x, sizeof *x * count), *d_resid = to_device(resid, sizeof *x * count),
              *d_bias = to_device(bias, sizeof *x * (size_t)n),
              *d_weight = to_device(weight, sizeof *x * (size_t)n);
        struct cuda_add a = {.x = d_x,
                             .bias = biased ? d_bias : NULL,
                             .norm = normed ? d_weight : NULL,
                             .resid = d_resid,
                             .factor = factor,
                             .eps = 1e-5f,
                             .rows = ROWS,
                             .n = n,
                             .kind = layer ? NORM_LAYER : NORM_RMS,
                             .norm_bias = normed && layer && biased ? d_bias : NULL,
                             .of_sum = of_sum};
        rt_test_order(c % SCHEDULES);
        cuda_add(rt, &a);
        float *got = to_host(d_resid, sizeof *x * count);
        for (int r = 0; r < ROWS; r++) {
            for (int i = 0; i < n; i++)
                sum[i] = x[r * n + i] + (biased ? bias[i] : 0);
            for (int i = 0; of_sum && i < n; i++)
                sum[i] = resid[r * n + i] + factor * sum[i];
            if (layer)
                ref_layernorm(normal, sum, weight, biased ? bias : NULL, n, 1e-5f);
            else
                ref_rmsnorm(normal, sum, weight, n, 1e-5f);
            for (int i = 0; i < n; i++)
                resid[r * n + i] = of_sum ? (normed ? normal : sum)[i]
                                          : resid[r * n + i] + factor * (normed ? normal : sum)[i];
        }
        if (!(distance(got, resid, count) < 1e-6))
            fail_msg("%d columns, bias %d, norm %d, factor %g, of the sum %d: %g", n, biased, normed,
                     (double)factor, of_sum, distance(got, resid, count));
        free(x), free(resid), free(bias), free(weight), free(got);
        rt_free(rt, d_x), rt_free(rt, d_resid), rt_free(rt, d_bias), rt_free(rt, d_weight);
    }
    rt_test_order(0);
}

// The activation after a GEMM. kind 0: gates and ups in turns, 1: apart, 2: ups alone.
static void check_act(enum act act, int n, int kind, enum act_dtype act_dtype, bool biased, double bound) {
    enum { ROWS = 3 };
    int half = (n + 7) / 8 * 8, ldx = kind == 2 ? half : 2 * half;
    float *x = random_floats((size_t)(ROWS * ldx), 9), *bias = random_floats((size_t)(2 * n), 1), gate[256],
          up[256], want[256];
    void *d_x = to_device(x, sizeof *x * (size_t)(ROWS * ldx)),
         *d_bias = to_device(bias, sizeof *bias * (size_t)(2 * n)),
         *out = poisoned((size_t)(ROWS * half * 4)), *row = NULL, *column = NULL;
    if (biased) { // what cuBLASLt may leave to do
        float *s = random_floats((size_t)(ROWS + ldx), 1);
        row = to_device(s, sizeof *s * ROWS), column = to_device(s + ROWS, sizeof *s * (size_t)ldx);
        for (int i = 0; i < ROWS * ldx; i++)
            x[i] *= s[i / ldx] * s[ROWS + i % ldx];
        free(s);
    } else { // or what it rounds
        for (int i = 0; i < ROWS * ldx; i++)
            x[i] = round_bf16(x[i]);
        rt_free(rt, d_x);
        d_x = upload_act(x, (size_t)(ROWS * ldx), ACT_DTYPE_BF16);
    }
    cuda_act(rt, &(struct cuda_act){.x = d_x,
                                    .bf16 = !biased,
                                    .scales = {row, column},
                                    .bias = biased ? d_bias : NULL,
                                    .act = act,
                                    .gated = kind < 2,
                                    .out = out,
                                    .act_dtype = act_dtype,
                                    .rows = ROWS,
                                    .n = n,
                                    .ldx = ldx,
                                    .ldout = half,
                                    .interleaved = kind == 0,
                                    .up = half});
    float *got = download_act(out, (size_t)(ROWS * half), act_dtype);
    for (int r = 0; r < ROWS; r++) {
        for (int k = 0; k < n; k++) {
            gate[k] = x[r * ldx + (kind == 0 ? k / 8 * 16 + k % 8 : k)] + (biased ? bias[k] : 0);
            if (kind < 2)
                up[k] =
                    x[r * ldx + (kind == 0 ? k / 8 * 16 + 8 + k % 8 : half + k)] + (biased ? bias[n + k] : 0);
        }
        ref_act(want, act, gate, kind < 2 ? up : NULL, n);
        if (!(distance(got + r * half, want, (size_t)n) < bound))
            fail_msg("activation %d, %d columns, kind %d, bias %d: %g", act, n, kind, biased,
                     distance(got + r * half, want, (size_t)n));
    }
    free(x), free(bias), free(got);
    rt_free(rt, d_x), rt_free(rt, d_bias), rt_free(rt, out), rt_free(rt, row), rt_free(rt, column);
}

TEST(test_activations) {
    static const int sizes[] = {8, 12, 172};
    for (int i = 0; i < 3; i++)
        for (int act = 0; act < NUM_ACTS; act++)
            for (int kind = 0; kind < (act == ACT_CLAMPED ? 2 : 3); kind++) {
                rt_test_order((2 * i + act) % SCHEDULES);
                check_act((enum act)act, sizes[i], kind, ACT_DTYPE_F32, (i + kind) % 2, 1e-6);
                check_act((enum act)act, sizes[i], kind, ACT_DTYPE_BF16, (i + act) % 2, 4e-3);
            }
    rt_test_order(0);
}

TEST(test_gate) {
    static const int sizes[] = {8, 15, 600};
    for (int i = 0; i < 3; i++) {
        enum { ROWS = 3 };
        int n = sizes[i], ldx = n + 4;
        float *x = random_floats((size_t)(ROWS * ldx), 4), *gate = random_floats((size_t)(ROWS * n), 8);
        struct cuda_gate a = {to_device(x, sizeof *x * (size_t)(ROWS * ldx)),
                              to_device(gate, sizeof *gate * (size_t)(ROWS * n)), ROWS, n, ldx};
        rt_test_order(i);
        cuda_gate(rt, &a);
        float *got = to_host(a.x, sizeof *got * (size_t)(ROWS * ldx));
        for (int r = 0; r < ROWS; r++)
            for (int k = 0; k < ldx; k++) {
                double v = (double)x[r * ldx + k],
                       want = k < n ? v / (1 + exp(-(double)gate[r * n + k])) : v; // nothing past the row
                assert_true(fabs((double)got[r * ldx + k] - want) <= 1e-6 * fabs(want));
            }
        free(x), free(gate), free(got);
        rt_free(rt, a.x), rt_free(rt, (void *)(uintptr_t)a.gate);
    }
    rt_test_order(0);
}

static void norm_in_place(float *x, const float *weight, int n, enum norm_kind kind) {
    if (kind == NORM_LAYER)
        ref_layernorm(x, x, weight, NULL, n, 1e-5f);
    else
        ref_rmsnorm(x, x, weight, n, 1e-5f);
}

// Bias, norms, rotation, temperatures, and where keys and values land, for one shape.
static void check_qkv(int H, int K, int d, int block_size, enum dtype dtype, enum qk_norm norm,
                      enum norm_kind kind, bool bias, bool interleaved, int order) {
    enum { ROWS = 5, BLOCKS = 7 };
    int all = (H + 2 * K) * d, ldx = order % 2 ? all + 5 : all + 4, pairs = d / 2 - (d > 16 ? 3 : 0),
        positions = 40;
    const struct rope_sections sections = {{pairs - 2 * (pairs / 3), pairs / 3, pairs / 3}, order % 2 == 0};
    bool axes = d != 20; // else one
    struct rope_config rope = {.theta = 10000,
                               .dim = 2 * pairs,
                               .interleaved = interleaved,
                               .factor = 1,
                               .attn_factor = 1,
                               .sections = sections};
    float *x = random_floats((size_t)(ROWS * ldx), 1), *b = random_floats((size_t)ldx, 1),
          *qn = random_floats((size_t)(H * d), 2), *kn = random_floats((size_t)(K * d), 2);
    const float clip = order % 3 == 1 ? 0.5f : 0;
    bool v_norm = order % 2, weights = norm != QK_NORM_NONE && norm != QK_NORM_UNIT;
    float *c = malloc(sizeof *c * (size_t)(positions * pairs)),
          *s = malloc(sizeof *s * (size_t)(positions * pairs));
    for (int p = 0; p < positions; p++)
        for (int i = 0; i < pairs; i++) {
            double angle = p * pow(10000, -2.0 * i / (2 * pairs));
            c[p * pairs + i] = (float)cos(angle);
            s[p * pairs + i] = (float)sin(angle);
        }
    int32_t pos[ROWS] = {0, 39, 7, 21, 3}, turns[ROPE_AXES][ROWS];
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < ROPE_AXES; i++)
            turns[i][r] = axes ? pos[r] / (i + 1) : pos[r];
    float temperatures[40];
    for (int p = 0; p < positions; p++)
        temperatures[p] = 1 + (float)(p / 5) / 8;
    int64_t slots[ROWS] = {3 * block_size + 1, 0, -1, 6 * block_size + block_size - 1, 2 * block_size};
    enum dtype q_dtype = cuda_query_dtype(dtype);
    size_t size = dtype_row_bytes(dtype, 1), kv_bytes = (size_t)(BLOCKS * K * block_size * d) * size,
           q_size = dtype_row_bytes(q_dtype, 1), scale_bytes = (size_t)(BLOCKS * K * block_size) * 4;
    char *d_keys = poisoned(kv_bytes), *d_values = poisoned(kv_bytes),
         *q = poisoned((size_t)(ROWS * H * d) * q_size);
    float *d_scales[2] = {poisoned(scale_bytes), poisoned(scale_bytes)};
    // The last rows may be what cuBLASLt leaves.
    int num_bf16 = dtype == DTYPE_F32 || dtype == DTYPE_F16 ? 0 : 3;
    float *left = random_floats((size_t)(ROWS + ldx), 1),
          *places = must_calloc((size_t)(ROWS * ldx), sizeof *x);
    memcpy(places, x, sizeof *x * (size_t)(ROWS * ldx));
    for (int r = ROWS - num_bf16; r < ROWS; r++)
        for (int i = 0; i < ldx; i++) {
            uint16_t *at = (uint16_t *)(void *)(places + r * ldx) + i;
            *at = float_to_bf16(x[r * ldx + i]);
            x[r * ldx + i] = bf16_to_float(*at) * left[r] * left[ROWS + i];
        }
    struct cuda_qkv a = {
        .x = to_device(places, sizeof *x * (size_t)(ROWS * ldx)),
        .num_bf16 = num_bf16,
        .scales = {to_device(left + ROWS - num_bf16, sizeof *x * (size_t)num_bf16),
                   to_device(left + ROWS, sizeof *x * (size_t)ldx)},
        .ldx = ldx,
        .rows = ROWS,
        .num_heads = H,
        .bias = bias ? to_device(b, sizeof *b * (size_t)ldx) : NULL,
        .qk_norm = norm,
        .kind = kind,
        .q_norm = weights ? to_device(qn, sizeof *qn * (size_t)(H * d)) : NULL,
        .k_norm = weights ? to_device(kn, sizeof *kn * (size_t)(K * d)) : NULL,
        .whole = poisoned(ROWS * 4 * sizeof(float)),
        .v_norm = v_norm,
        .clip = clip,
        .temperatures = order % 3 ? to_device(temperatures, sizeof temperatures) : NULL,
        .rope_cos = to_device(c, sizeof *c * (size_t)(positions * pairs)),
        .rope_sin = to_device(s, sizeof *s * (size_t)(positions * pairs)),
        .rope_pairs = pairs,
        .rope_interleaved = interleaved,
        .eps = 1e-5f,
        .positions = to_device(pos, sizeof pos),
        .rope_positions = axes ? to_device(turns, sizeof turns) : NULL,
        .sections = sections,
        .slots = to_device(slots, sizeof slots),
        .q = q,
        .kv = {d_keys, d_values, dtype, block_size, K, d, d_scales[0], d_scales[1]},
    };
    rt_test_order(order);
    cuda_qkv(rt, &a);
    char *got_q = to_host(q, (size_t)(ROWS * H * d) * q_size), *keys = to_host(d_keys, kv_bytes),
         *values = to_host(d_values, kv_bytes);
    float *scales[2] = {to_host(d_scales[0], scale_bytes), to_host(d_scales[1], scale_bytes)};
    bool *written = calloc((size_t)(BLOCKS * K * block_size), 1);
    static const double bounds[DTYPE_COUNT] = {
        [DTYPE_F32] = 1e-5, [DTYPE_F16] = 1e-3, [DTYPE_BF16] = 8e-3, [DTYPE_F8_E4M3] = 0.0626};
    for (int r = 0; r < ROWS; r++) {
        float *heads = x + r * ldx;
        for (int i = 0; i < all && bias; i++)
            heads[i] += b[i];
        for (int i = 0; i < all && clip > 0; i++)
            heads[i] = fminf(fmaxf(heads[i], -clip), clip);
        if (norm == QK_NORM_WHOLE) {
            norm_in_place(heads, qn, H * d, kind);
            norm_in_place(heads + H * d, kn, K * d, kind);
        }
        for (int h = 0; h < H + 2 * K; h++) {
            float want[256];
            const float *w = (h < H ? qn : kn) + (norm == QK_NORM_EACH ? (h < H ? h : h - H) * d : 0);
            memcpy(want, heads + h * d, sizeof *want * (size_t)d);
            if ((norm == QK_NORM_HEADS || norm == QK_NORM_EACH) && h < H + K)
                norm_in_place(want, w, d, kind);
            if (h < H + K)
                ref_rope(want, &rope, (int32_t[]){turns[0][r], turns[1][r], turns[2][r]});
            if (norm == QK_NORM_ROTATED && h < H + K)
                norm_in_place(want, w, d, kind);
            if (h < H + K ? norm == QK_NORM_UNIT : v_norm)
                norm_in_place(want, NULL, d, NORM_RMS);
            for (int i = 0; i < d && h < H && a.temperatures; i++)
                want[i] *= temperatures[pos[r]];
            if (dtype == DTYPE_I8 && h < H + K)
                ref_hadamard(want, d, h < H ? 1.0 / (d & -d) : 1);
            const char *at = got_q + (size_t)((r * H + h) * d) * q_size;
            enum dtype type = q_dtype;
            float scale = 1, best = 0;
            if (h >= H) {
                if (slots[r] < 0)
                    continue;
                int head = h < H + K ? h - H : h - H - K;
                int place =
                    ((int)(slots[r] / block_size) * K + head) * block_size + (int)(slots[r] % block_size);
                at = (h < H + K ? keys : values) + (size_t)(place * d) * size;
                written[place] = true;
                type = dtype;
                scale = dtype == DTYPE_I8 ? scales[h >= H + K][place] : 1;
            }
            for (int i = 0; i < d; i++)
                best = fmaxf(best, fabsf(want[i]));
            if (type == DTYPE_I8) // rule 17
                assert_true(fabsf(scale - best / 127) <= 1e-5f * scale);
            for (int i = 0; i < d; i++) {
                double is = type == DTYPE_I8
                                ? (double)((const int8_t *)at)[i] * (double)scale
                                : (double)ref_fetch(at + (size_t)i * dtype_row_bytes(type, 1), type);
                double far = type == DTYPE_I8 ? 0.502 * (double)scale // half a step
                                              : bounds[type] * (1 + fabs((double)want[i]));
                if (!(fabs(is - (double)want[i]) <= far))
                    fail_msg("%s: row %d head %d column %d: %g, not %g", dtype_name(dtype), r, h, i, is,
                             (double)want[i]);
            }
        }
    }
    for (int p = 0; p < BLOCKS * K * block_size; p++)
        for (size_t i = 0; !written[p] && i < (size_t)d * size; i++) // nothing else was touched
            assert_true(keys[(size_t)(p * d) * size + i] == -1 && values[(size_t)(p * d) * size + i] == -1 &&
                        isnan(scales[0][p]) && isnan(scales[1][p]));
    free(x), free(b), free(qn), free(kn), free(c), free(s), free(got_q), free(keys), free(values),
        free(written), free(left), free(places);
    rt_free(rt, (void *)(uintptr_t)a.x), rt_free(rt, (void *)(uintptr_t)a.bias);
    rt_free(rt, (void *)(uintptr_t)a.scales.row), rt_free(rt, (void *)(uintptr_t)a.scales.column);
    rt_free(rt, (void *)(uintptr_t)a.q_norm), rt_free(rt, (void *)(uintptr_t)a.k_norm);
    rt_free(rt, a.whole), rt_free(rt, (void *)(uintptr_t)a.temperatures);
    rt_free(rt, (void *)(uintptr_t)a.rope_cos), rt_free(rt, (void *)(uintptr_t)a.rope_sin);
    rt_free(rt, (void *)(uintptr_t)a.positions), rt_free(rt, (void *)(uintptr_t)a.slots);
    rt_free(rt, (void *)(uintptr_t)a.rope_positions);
    rt_free(rt, q), rt_free(rt, d_keys), rt_free(rt, d_values);
    free(scales[0]), free(scales[1]), rt_free(rt, d_scales[0]), rt_free(rt, d_scales[1]);
}

// The bits of rule 17 for hostile vectors: ties, zeros, the smallest that count, NaN, infinity.
// Of values: keys are turned before.
TEST(test_int8) {
    enum { D = 40, V = 2 * D, ROWS = 8 };
    float x[ROWS][3 * D], value_scales[ROWS], want_scale;
    int8_t want[D];
    int64_t slots[ROWS];
    int32_t positions[ROWS] = {0};
    for (int r = 0; r < ROWS; r++) {
        slots[r] = r;
        for (int i = 0; i < 3 * D; i++)
            x[r][i] = r == 0 ? (float)(i - V) + 0.5f : random_float() * 3;
        x[0][V + D - 1] = 127; // a scale of 1: halves are ties
        for (int i = V; i < V + D && r >= 1 && r <= 3; i++)
            x[r][i] *= r == 1 ? 0 : r == 2 ? 0x1p-103f : 0x1p-98f;
    }
    x[4][V + 3] = NAN, x[5][V + 5] = INFINITY, x[6][V + 7] = -1e30f, x[7][V] = 0x1p-126f;
    for (int order = 0; order < SCHEDULES; order++) {
        void *keys = poisoned(ROWS * D), *values = poisoned(ROWS * D);
        struct cuda_qkv a = {.x = to_device(x, sizeof x),
                             .ldx = 3 * D,
                             .rows = ROWS,
                             .num_heads = 1,
                             .positions = to_device(positions, sizeof positions),
                             .slots = to_device(slots, sizeof slots),
                             .q = poisoned(ROWS * D * 2),
                             .kv = {keys, values, DTYPE_I8, 8, 1, D, poisoned(sizeof value_scales),
                                    poisoned(sizeof value_scales)}};
        rt_test_order(order);
        cuda_qkv(rt, &a);
        int8_t *got = to_host(values, ROWS * D);
        float *scales = to_host(a.kv.value_scales, sizeof value_scales);
        for (int r = 0; r < ROWS; r++) {
            ref_quantise(want, &want_scale, x[r] + V, D);
            assert_memory_equal(got + r * D, want, D);
            if (isnan(want_scale))
                assert_true(isnan(scales[r]));
            else
                assert_memory_equal(&scales[r], &want_scale, sizeof want_scale);
        }
        free(got), free(scales);
        rt_free(rt, (void *)(uintptr_t)a.x), rt_free(rt, (void *)(uintptr_t)a.positions);
        rt_free(rt, (void *)(uintptr_t)a.slots), rt_free(rt, a.q), rt_free(rt, keys), rt_free(rt, values);
        rt_free(rt, a.kv.key_scales), rt_free(rt, a.kv.value_scales);
    }
    rt_test_order(0);
}

TEST(test_qkv) {
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_I8, DTYPE_F8_E4M3};
    static const int shapes[][4] = {{4, 2, 8, 16}, {7, 1, 64, 16}, {3, 3, 20, 5}, {5, 5, 128, 32}};
    for (int i = 0; i < 4; i++)
        for (int t = 0; t < 5; t++)
            check_qkv(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3], types[t],
                      (enum qk_norm)((5 * i + t) % 6), t % 3 == 1 ? NORM_LAYER : NORM_RMS, t != 1,
                      (i + t) % 3 == 0, (i + t) % SCHEDULES);
}

// y = or += x * scales + bias, x f32 or bf16, between columns that are nobody's.
TEST(test_finish) {
    enum { ROWS = 3, N = 302, LDX = 308, LDY = 304 };
    for (int i = 0; i < 64; i++) {
        bool scaled = i & 1, biased = i & 2, add = i & 4, columns = i & 16, bf16 = i & 32;
        int odd = i / 8 % 2; // rows that are not at multiples of 16 bytes
        float *x = random_floats(ROWS * LDX, 3), *y = random_floats(ROWS * LDY, 2), *b = random_floats(N, 1),
              *s = random_floats(ROWS, 4), *of = random_floats(N, 1);
        for (int k = 0; bf16 && k < ROWS * LDX; k++)
            x[k] = round_bf16(x[k]);
        struct cuda_finish a = {.x = upload_act(x, ROWS * LDX, bf16 ? ACT_DTYPE_BF16 : ACT_DTYPE_F32),
                                .bf16 = bf16,
                                .scales = {scaled ? to_device(s, sizeof *s * ROWS) : NULL,
                                           columns ? to_device(of, sizeof *of * N) : NULL},
                                .bias = biased ? to_device(b, sizeof *b * N) : NULL,
                                .y = to_device(y, sizeof *y * ROWS * LDY),
                                .rows = ROWS,
                                .n = N,
                                .ldx = LDX - odd,
                                .ldy = LDY - odd,
                                .add = add};
        rt_test_order(i % SCHEDULES);
        cuda_finish(rt, &a);
        float *got = to_host(a.y, sizeof *y * ROWS * LDY);
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < a.ldy; c++) {
                double want = (double)x[r * a.ldx + c] * (scaled ? (double)s[r] : 1) *
                                  (columns ? (double)of[c % N] : 1) +
                              (biased ? (double)b[c % N] : 0) + (add ? (double)y[r * a.ldy + c] : 0);
                float is = got[r * a.ldy + c];
                if (c >= N ? is != y[r * a.ldy + c] : !(fabs((double)is - want) < 3e-6))
                    fail_msg("case %d, row %d, column %d: %g, not %g", i, r, c, (double)is, want);
            }
        free(x), free(y), free(b), free(s), free(of), free(got);
        rt_free(rt, (void *)(uintptr_t)a.x), rt_free(rt, (void *)(uintptr_t)a.scales.row);
        rt_free(rt, (void *)(uintptr_t)a.scales.column);
        rt_free(rt, (void *)(uintptr_t)a.bias), rt_free(rt, a.y);
    }
    rt_test_order(0);
}

// Zeros in some columns, and nothing else touched.
TEST(test_clear) {
    enum { ROWS = 3, LD = 352 };
    static const int cases[][2] = {{0, 352}, {300, 352}, {5, 6}, {17, 17}, {96, 320}};
    for (int act_dtype = 0; act_dtype < 3; act_dtype++)
        for (int i = 0; i < 5; i++) {
            float *x = random_floats(ROWS * LD, 3);
            for (int k = 0; k < ROWS * LD; k++)
                x[k] = round_bf16(x[k]); // exact in every dtype
            struct cuda_clear a = {upload_act(x, ROWS * LD, (enum act_dtype)act_dtype),
                                   (enum act_dtype)act_dtype,
                                   ROWS,
                                   cases[i][0],
                                   cases[i][1],
                                   LD};
            rt_test_order(i % SCHEDULES);
            cuda_clear(rt, &a);
            float *got = download_act(a.x, ROWS * LD, (enum act_dtype)act_dtype);
            for (int k = 0; k < ROWS * LD; k++)
                if (got[k] != (k % LD >= a.begin && k % LD < a.end ? 0 : x[k]))
                    fail_msg("act_dtype %d, columns %d to %d: element %d is %g, was %g", act_dtype, a.begin,
                             a.end, k, (double)got[k], (double)x[k]);
            free(x), free(got);
            rt_free(rt, a.x);
        }
    rt_test_order(0);
}

// The parts of an upload to their places, and nothing behind them.
TEST(test_scatter) {
    enum { PARTS = 5, ALL = 9000 };
    // Parts in units of 16 bytes; one has more than a grid has threads.
    static const uint32_t sizes[PARTS] = {1, 0, 4500, 255, 3000};
    for (int order = 0; order < 3; order++) {
        uint32_t *host = must_calloc(4 * ALL, sizeof *host), at = PARTS; // parts, in units of 16 bytes
        struct cuda_part *parts = (struct cuda_part *)(void *)host;
        _Static_assert(sizeof(struct cuda_part) == 16, "a unit each");
        for (uint32_t i = 4 * PARTS; i < 4 * ALL; i++)
            host[i] = random_u32() & 0x7fffffff;
        for (int i = 0; i < PARTS; i++) {
            parts[i] = (struct cuda_part){poisoned(16 * sizes[i] + 16), 16 * (at + (uint32_t)i), sizes[i]};
            at += sizes[i];
        }
        void *upload = to_device(host, sizeof *host * 4 * ALL);
        rt_test_order(order);
        cuda_scatter(rt, &(struct cuda_scatter){upload, PARTS});
        for (int i = 0; i < PARTS; i++) {
            uint32_t *got = to_host(parts[i].to, 16 * sizes[i] + 16);
            assert_memory_equal(got, host + parts[i].from / 4, 16 * sizes[i]);
            for (uint32_t k = 0; k < 4; k++)
                assert_true(got[4 * sizes[i] + k] == 0xffffffffu);
            free(got);
            rt_free(rt, parts[i].to);
        }
        rt_free(rt, upload);
        free(host);
    }
    rt_test_order(0);
}

int main(void) {
    device_open();
    return run_all_tests(NULL, NULL);
}
