// The order of operations itself, written a second time from the rules of kernels/README.md, one number after
// another: a kernel that is right but sums in another order fails here. The bits are a promise to users.
// Over 600 lines: every rule, each with the cases that tell it from its neighbours.
#include "harness.h"

#include "fixture.h"
#include "float_env.h"
#include "rope.h"

// Rule 6
static float plain_exp(float x) {
    if (x < -87.33f)
        return 0;
    if (x > 88.37f)
        return INFINITY;
    float t = fmaf(x, 1.44269504088896341f, 0x1.8p23f), n = t - 0x1.8p23f;
    float f = fmaf(n, 2.12194440e-4f, fmaf(n, -0.693359375f, x));
    static const float c[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                              4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
    float p = c[0];
    for (int i = 1; i < 6; i++)
        p = fmaf(p, f, c[i]);
    return (fmaf(p, f * f, f) + 1) * ldexpf(1, (int)n);
}

// Rule 6
static float plain_exp2(float x, bool short_one) {
    x = fmaxf(x, -127);
    float n = rintf(x), f = x - n;
    static const float c[] = {1.326482859e-3f, 9.671515785e-3f, 5.550733581e-2f,
                              2.402224243e-1f, 6.931470037e-1f, 1};
    static const float c3[] = {5.500895530e-2f, 2.422111034e-1f, 6.932829618e-1f, 1};
    const float *at = short_one ? c3 : c;
    float p = at[0];
    for (int i = 1; i < (short_one ? 4 : 6); i++)
        p = fmaf(p, f, at[i]);
    return ldexpf(p, (int)n) < 0x1p-126f ? 0 : ldexpf(p, (int)n);
}

// Rule 7: 16 lanes, then the tree 8, 4, 2, 1
static float plain_tree(const float lane[16]) {
    float a[16];
    memcpy(a, lane, sizeof a);
    for (int n = 8; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            a[i] += a[i + n];
    return a[0];
}

static void plain_rmsnorm(float *y, const float *x, const float *w, int n, float eps) {
    float lane[16] = {0};
    for (int i = 0; i < n; i++)
        lane[i % 16] = fmaf(x[i], x[i], lane[i % 16]);
    float scale = 1 / sqrtf(plain_tree(lane) / (float)n + eps);
    for (int i = 0; i < n; i++)
        y[i] = x[i] * scale * (w ? w[i] : 1);
}

static void plain_layernorm(float *y, const float *x, const float *w, const float *b, int n, float eps) {
    float sum[16] = {0}, squares[16] = {0};
    for (int i = 0; i < n; i++)
        sum[i % 16] += x[i];
    float mean = plain_tree(sum) / (float)n;
    for (int i = 0; i < n; i++)
        squares[i % 16] = fmaf(x[i] - mean, x[i] - mean, squares[i % 16]);
    float scale = 1 / sqrtf(plain_tree(squares) / (float)n + eps);
    for (int i = 0; i < n; i++)
        y[i] = (x[i] - mean) * scale * w[i];
    for (int i = 0; b && i < n; i++)
        y[i] += b[i];
}

static void plain_norm(const struct model_config *m, float *y, const float *x,
                       const struct weight_desc *norm) {
    int n = (int)norm->part[0].shape[0];
    if (m->norm == NORM_LAYER)
        plain_layernorm(y, x, norm->part[0].data, norm->bias[0].data, n, m->norm_eps);
    else
        plain_rmsnorm(y, x, norm->part[0].data, n, m->norm_eps);
}

// Rule 6
static float plain_act(enum act act, float x) {
    static const float c[] = {0.5307027145f, -0.7265760135f, 0.7107068705f, -0.142248368f, 0.127414796f};
    float t = 1 / fmaf(fabsf(x), 0.231641888f, 1), p = c[0];
    for (int i = 1; i < 5; i++)
        p = fmaf(p, t, c[i]);
    float tail = p * t * plain_exp(x * x * -0.5f), positive = fmaxf(x, 0);
    switch (act) {
    case ACT_SILU: return x / (1 + plain_exp(-x));
    case ACT_GELU: return x / (1 + plain_exp(-(x * fmaf(0.0713548162726f, x * x, 1.59576912161f))));
    case ACT_GELU_ERF: return x * (x < 0 ? tail : 1 - tail);
    default: return positive * positive;
    }
}

// Rule 11
static float plain_tanh(float x) { return 1 - 2 / (1 + plain_exp(x + x)); }

// Rule 4: block b of 32 k of a row of a quantised matrix as the file has it
struct plain_block {
    int w[32];
    float scale[2], offset[2]; // of each half; the offset is times the sum of the activations
    bool halves;               // Q6_K, Q3_K, Q2_K: sums of 16
    bool minimum;              // a second fma
};

static struct plain_block plain_block(const struct tensor *t, int n, int b) {
    static const int iq4[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    static const int fp4[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    struct plain_block r = {.halves =
                                t->dtype == DTYPE_Q6_K || t->dtype == DTYPE_Q3_K || t->dtype == DTYPE_Q2_K};
    int size = dtype_block(t->dtype), per = size / 32, s = b % per;
    const unsigned char *p = (const unsigned char *)t->data +
                             (size_t)n * dtype_row_bytes(t->dtype, t->shape[1]) +
                             dtype_row_bytes(t->dtype, (int64_t)(b / per) * size);
    float d = ref_fetch(p, DTYPE_F16), min;
    int scale, least;
    for (int i = 0; i < 32; i++)
        switch (t->dtype) {
        case DTYPE_Q8_0: r.w[i] = (signed char)p[2 + i]; break;
        case DTYPE_Q4_0: r.w[i] = (i < 16 ? p[2 + i] % 16 : p[2 + i - 16] / 16) - 8; break;
        case DTYPE_Q4_1: r.w[i] = i < 16 ? p[4 + i] % 16 : p[4 + i - 16] / 16; break;
        case DTYPE_Q5_0:
            r.w[i] = (i < 16 ? p[6 + i] % 16 : p[6 + i - 16] / 16) + (p[2 + i / 8] >> i % 8) % 2 * 16 - 16;
            break;
        case DTYPE_Q5_1:
            r.w[i] = (i < 16 ? p[8 + i] % 16 : p[8 + i - 16] / 16) + (p[4 + i / 8] >> i % 8) % 2 * 16;
            break;
        case DTYPE_IQ4_NL: r.w[i] = iq4[i < 16 ? p[2 + i] % 16 : p[2 + i - 16] / 16]; break;
        case DTYPE_MXFP4: r.w[i] = fp4[i < 16 ? p[1 + i] % 16 : p[1 + i - 16] / 16]; break;
        case DTYPE_IQ4_XS: r.w[i] = iq4[i < 16 ? p[8 + 16 * s + i] % 16 : p[8 + 16 * s + i - 16] / 16]; break;
        case DTYPE_Q4_K: r.w[i] = s % 2 ? p[16 + s / 2 * 32 + i] / 16 : p[16 + s / 2 * 32 + i] % 16; break;
        case DTYPE_Q5_K:
            r.w[i] = s % 2 ? p[48 + s / 2 * 32 + i] / 16 : p[48 + s / 2 * 32 + i] % 16;
            r.w[i] += (p[16 + i] >> s) % 2 * 16;
            break;
        case DTYPE_Q2_K: r.w[i] = (p[16 + s / 4 * 32 + i] >> s % 4 * 2) % 4; break;
        case DTYPE_Q3_K: r.w[i] = (p[32 + s / 4 * 32 + i] >> s % 4 * 2) % 4 + (p[i] >> s) % 2 * 4 - 4; break;
        default: // Q6_K: 32 s of 128: low halves of 64 bytes, then their high halves
            r.w[i] = p[s / 4 * 64 + s % 2 * 32 + i];
            r.w[i] = s % 4 < 2 ? r.w[i] % 16 : r.w[i] / 16;
            r.w[i] += (p[128 + s / 4 * 32 + i] >> s % 4 * 2) % 4 * 16 - 32;
            break;
        }
    r.scale[0] = d;
    switch (t->dtype) {
    case DTYPE_MXFP4: r.scale[0] = p[0] < 2 ? 0 : ldexpf(1, p[0] - 128); break;
    case DTYPE_Q4_1:
    case DTYPE_Q5_1:
        r.offset[0] = ref_fetch(p + 2, DTYPE_F16);
        r.minimum = true;
        break;
    case DTYPE_IQ4_XS:
        scale = (p[4 + s / 2] >> s % 2 * 4) % 16 + (p[2 + s / 4] >> s % 4 * 2) % 4 * 16;
        r.scale[0] = d * (float)(scale - 32);
        break;
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
        min = ref_fetch(p + 2, DTYPE_F16);
        scale = s < 4 ? p[4 + s] % 64 : p[8 + s] % 16 + p[s] / 64 * 16;
        least = s < 4 ? p[8 + s] % 64 : p[8 + s] / 16 + p[4 + s] / 64 * 16;
        r.scale[0] = d * (float)scale;
        r.offset[0] = -(min * (float)least);
        r.minimum = true;
        break;
    case DTYPE_Q6_K:
        d = ref_fetch(p + 208, DTYPE_F16);
        r.scale[0] = d * (float)(signed char)p[192 + 2 * s];
        r.scale[1] = d * (float)(signed char)p[193 + 2 * s];
        break;
    case DTYPE_Q3_K:
        d = ref_fetch(p + 108, DTYPE_F16);
        for (int h = 0; h < 2; h++) {
            int i = 2 * s + h;
            scale = i < 8 ? p[96 + i] % 16 : p[96 + i - 8] / 16;
            scale += (p[104 + i % 4] >> i / 4 * 2) % 4 * 16;
            r.scale[h] = d * (float)(scale - 32);
        }
        break;
    case DTYPE_Q2_K:
        d = ref_fetch(p + 80, DTYPE_F16);
        min = ref_fetch(p + 82, DTYPE_F16);
        for (int h = 0; h < 2; h++) {
            r.scale[h] = d * (float)(p[2 * s + h] % 16);
            r.offset[h] = -(min * (float)(p[2 * s + h] / 16));
        }
        r.minimum = true;
        break;
    default: break;
    }
    return r;
}

// Rules 1, 2, 4: elements [k0, k1) of the dot of x with row n of a matrix as the file has it
static float plain_dot(const struct tensor *w, int n, const float *x, int k0, int k1) {
    struct ref_matrix m = {w->data, w->dtype, (int)w->shape[0], (int)w->shape[1], NULL};
    float acc = 0;
    if (w->dtype == DTYPE_F32 || w->dtype == DTYPE_F16) {
        for (int k = k0; k < k1; k++)
            acc = fmaf(ref_element(&m, n, k), x[k], acc);
    } else if (w->dtype == DTYPE_BF16) {
        for (int k = k0; k < k1; k += 2) { // the odd one first
            if (k + 1 < m.cols)
                acc = fmaf(ref_element(&m, n, k + 1), bf16_to_float(float_to_bf16(x[k + 1])), acc);
            acc = fmaf(ref_element(&m, n, k), bf16_to_float(float_to_bf16(x[k])), acc);
        }
    } else {
        for (int k = k0; k < k1; k += 32) {
            struct plain_block block = plain_block(w, n, k / 32);
            float max = 0;
            for (int i = 0; i < 32; i++)
                max = fmaxf(max, fabsf(x[k + i]));
            float d = 0x1p-120f; // the smallest power of two that will do
            while (127 * d < max)
                d *= 2;
            int dot[2] = {0}, sum[2] = {0}, halves = block.halves ? 2 : 1;
            for (int i = 0; i < 32; i++) {
                int q = (int)nearbyintf(x[k + i] / d);
                dot[i / 16 % halves] += block.w[i] * q;
                sum[i / 16 % halves] += q;
            }
            for (int h = 0; h < halves; h++) {
                acc = fmaf((float)dot[h] * d, block.scale[h], acc);
                if (block.minimum)
                    acc = fmaf(block.offset[h], d * (float)sum[h], acc);
            }
        }
    }
    return acc;
}

// Rule 3
static float plain_segments(const struct tensor *w, int n, const float *x) {
    int block = w->dtype == DTYPE_BF16 ? 2 : dtype_block(w->dtype), cols = (int)w->shape[1];
    int blocks = (cols + block - 1) / block;
    float s[8];
    for (int i = 0; i < 8; i++) {
        int k1 = blocks * (i + 1) / 8 * block;
        s[i] = plain_dot(w, n, x, blocks * i / 8 * block, k1 < cols ? k1 : cols);
    }
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

// Rules 8 to 10 and 17: one query over tokens [begin, end). k, v (end, d), in pairs where queries are rounded
// to bf16; ks, vs (end) their scales
static void plain_attention(float *out, const float *q, const float *k, const float *v, const float *ks,
                            const float *vs, bool pairs, int begin, int end, int d, float scale, float cap,
                            const float *sink) {
    float all_max = -INFINITY, all_sum = 0, log2_scale = (cap > 0 ? cap : scale) * 1.44269504088896341f;
    memset(out, 0, (size_t)d * sizeof *out);
    for (int chunk = begin / 256 * 256; chunk < end; chunk += 256) {
        float max = -INFINITY, sum = 0, o[256] = {0};
        for (int step = chunk; step < chunk + 256 && step < end; step += 64) {
            int t0 = step > begin ? step : begin, t1 = step + 64 < end ? step + 64 : end;
            if (t0 >= t1)
                continue;
            float s[64], lane[16] = {0}, top = -INFINITY;
            for (int t = t0; t < t1; t++) {
                float acc = 0;
                for (int i = 0; i < d; i++) { // of a pair the odd one first
                    int j = pairs ? i ^ 1 : i;
                    acc = fmaf(k[t * d + j], pairs ? bf16_to_float(float_to_bf16(q[j])) : q[j], acc);
                }
                s[t - step] = cap > 0 ? plain_tanh(acc * ks[t] * (scale / cap)) : acc * ks[t];
                top = fmaxf(top, s[t - step]);
            }
            top = fmaxf(max, top * log2_scale);
            float rescale = plain_exp2(max - top, false);
            for (int t = t0; t < t1; t++) {
                s[t - step] = plain_exp2(s[t - step] * log2_scale - top, pairs);
                lane[t % 16] += s[t - step];
            }
            sum = fmaf(sum, rescale, plain_tree(lane));
            max = top;
            for (int i = 0; i < d; i++) {
                o[i] *= rescale;
                for (int t = pairs ? t0 / 2 * 2 : t0; t < (pairs ? (t1 + 1) / 2 * 2 : t1); t++) {
                    int j = pairs ? t ^ 1 : t;
                    bool in = j >= t0 && j < t1; // else it counts as zero
                    float p = in ? s[j - step] * vs[j] : 0;
                    o[i] = fmaf(in ? v[j * d + i] : 0, pairs ? bf16_to_float(float_to_bf16(p)) : p, o[i]);
                }
            }
        }
        float top = fmaxf(all_max, max), old = plain_exp2(all_max - top, false),
              new = plain_exp2(max - top, false);
        all_sum = fmaf(sum, new, all_sum * old);
        all_max = top;
        for (int i = 0; i < d; i++)
            out[i] = fmaf(o[i], new, out[i] * old);
    }
    if (sink) {
        float own = *sink * 1.44269504088896341f, top = fmaxf(all_max, own);
        float old = plain_exp2(all_max - top, false);
        all_sum = plain_exp2(own - top, false) + all_sum * old;
        for (int i = 0; i < d; i++)
            out[i] = 0 + out[i] * old;
    }
    for (int i = 0; i < d; i++)
        out[i] /= all_sum;
}

static void plain_rope(float *x, const struct rope_config *r, int position) {
    for (int i = 0; i < r->dim / 2; i++) {
        float c = (float)cos(position * rope_frequency(r, i)),
              s = (float)sin(position * rope_frequency(r, i));
        float *a = x + (r->interleaved ? 2 * i : i), *b = x + (r->interleaved ? 2 * i + 1 : i + r->dim / 2);
        float x0 = *a, x1 = *b;
        *a = x0 * c - x1 * s;
        *b = x0 * s + x1 * c;
    }
}

static void random_floats(float *x, int n) {
    for (int i = 0; i < n; i++)
        x[i] = random_float();
}

// Rule 11: bias, norm, rotation of n heads
static void plain_heads(const struct fixture *f, float *x, int n, const struct tensor *bias,
                        const struct tensor *norm, int position) {
    const struct model_config *m = &f->config;
    int d = m->attn[0].head_dim;
    for (int i = 0; bias->data && i < n * d; i++)
        x[i] += ((const float *)bias->data)[i];
    for (int i = 0; i < n; i++, x += d) {
        const float *w = norm ? (const float *)norm->data + (norm->ndim == 2 ? i * d : 0) : NULL;
        if (w && m->norm == NORM_LAYER)
            plain_layernorm(x, x, w, NULL, d, m->norm_eps);
        else if (w)
            plain_rmsnorm(x, x, w, d, m->norm_eps);
        plain_rope(x, &f->config.ropes[0], position);
        if (m->attn[0].qk_norm == QK_NORM_UNIT)
            plain_rmsnorm(x, x, NULL, d, m->norm_eps);
    }
}

// resid += what a row-parallel matrix gives
static void plain_add(const struct model_config *m, float *resid, const struct weight_desc *w,
                      const struct weight_desc *post_norm, const float *x) {
    int D = m->hidden;
    float sum[256] = {0}, scale = model_scale(m->residual_scale);
    const float *bias = w->bias[0].data;
    for (int i = 0; i < D; i++) {
        sum[i] = plain_segments(&w->part[0], i, x);
        if (!post_norm && scale == 1) {
            resid[i] += sum[i];
            resid[i] += bias ? bias[i] : 0;
        } else {
            sum[i] += bias ? bias[i] : 0;
        }
    }
    if (post_norm)
        plain_norm(m, sum, sum, post_norm);
    for (int i = 0; i < D && (post_norm || scale != 1); i++)
        resid[i] += scale * sum[i];
}

// change: what the model has beside that, or NULL
static void check_layer(enum dtype dtype, enum dtype kv, int window, bool qk_norm, bool bias,
                        void (*change)(struct model_config *)) {
    bool wide = dtype_block(dtype) == 256; // else sizes that are multiples of few things
    const struct shape shape =
        wide ? (struct shape){1, 256, 8, 2, 32, 2304, 64, window, qk_norm, bias, window == 0}
             : (struct shape){1, 96, 6, 2, 24, 160, 64, window, qk_norm, bias, window == 0};
    enum { ROWS = 3, START = 598, END = START + ROWS };
    const int D = shape.hidden, d = shape.head_dim, Q = shape.heads * d, KV = 2 * d, F = shape.ffn;
    struct model_config config = fixture_config(&shape);
    if (change)
        change(&config);
    struct fixture *f = fixture_of(&config, dtype);
    const struct model_config *m = &f->config;
    const struct ffn_spec *ffn = &m->ffn[0];
    struct instance *in = instance_open(f, (struct setup){&backend_cpu, "auto", 2, 16, kv}, 8, 608, 1);
    struct batch *b = batch_make(in, &(struct piece){0, START, ROWS, true}, 1);
    const struct layer *l = &in->layers[0];
    const struct weight_desc *w = &f->weights[1], *norm = w++, *qkv = w++, *q_head = qk_norm ? w++ : NULL,
                             *k_head = qk_norm ? w++ : NULL, *sinks = m->attn[0].sinks ? w++ : NULL,
                             *out = w++, *post = m->post_norms ? w++ : NULL,
                             *ffn_norm = m->block == BLOCK_ONE_NORM ? norm : w++, *gate_up = w++, *down = w++,
                             *ffn_post = m->post_norms ? w++ : NULL, *out_norm = w++, *lm_head = w;
    const struct tensor *q_norm = q_head ? &q_head->part[0] : NULL,
                        *k_norm = k_head ? &k_head->part[0] : NULL;
    uint64_t env = float_env_enter(); // the plain versions flush subnormals, too
    float resid[ROWS][D], before[ROWS][D], q[ROWS][Q], h[ROWS][Q], up[ROWS][F], keys[2][END * d],
        values[2][END * d];
    float key_scale[2][END], value_scale[2][END]; // 1 but for I8
    float x[256] = {0}, y[F];
    size_t bytes = in->ops->kv_block_bytes(in->dev), size = dtype_row_bytes(kv, 1);
    char *block = must_calloc(1, bytes);
    for (int i = 0; i < in->limits.num_blocks; i++) { // a past
        for (size_t j = 0; kv != DTYPE_I8 && j < bytes / size; j++)
            ref_store(block + j * size, kv, random_float() * 2);
        for (size_t j = 0; kv == DTYPE_I8 && j < bytes; j++)
            block[j] = (char)(random_u32() % 255 - 127);
        for (int j = 0; kv == DTYPE_I8 && j < 64; j++) // (2, B, K) scales
            memcpy(block + j / 32 * (16 * (KV + 8)) + 16 * KV + j % 32 * 4,
                   &(float){0.02f + 0.01f * random_float()}, 4);
        in->inspect->kv_import(in->dev, i, block);
    }
    random_floats(resid[0], ROWS * D);
    memcpy(in->act.resid, resid, sizeof resid);
    in->ops->step_begin(in->dev, &b->step);
    in->ops->qkv(in->dev, l, &b->step);
    for (int t = 0; t < ROWS; t++) {
        plain_norm(m, x, resid[t], norm);
        for (int i = 0; i < Q; i++)
            q[t][i] = plain_dot(&qkv->part[0], i, x, 0, D);
        plain_heads(f, q[t], Q / d, &qkv->bias[0], q_norm, START + t);
        for (int i = 0; i < Q && m->attn[0].temp_scale > 0; i++)
            q[t][i] *=
                (float)(1 + (double)m->attn[0].temp_scale * log(1 + (START + t + 1) / m->attn[0].temp_step));
    }
    assert_memory_equal(q, in->act.q, sizeof q);

    for (int t = 0; t < END; t++) { // (2, B, K, d) in each block
        if (t % 16 == 0)
            in->inspect->kv_export(in->dev, block_of(in, 0, t / 16), block);
        for (int which = 0; which < 2; which++)
            for (int i = 0; i < KV; i++) {
                const char *half = block + (size_t)which * bytes / 2;
                float *to = which ? values[i / d] : keys[i / d],
                      *scale = which ? value_scale[i / d] : key_scale[i / d];
                const char *at = half + (size_t)(t % 16 * KV + i) * size;
                to[t * d + i % d] = kv == DTYPE_I8 ? (float)*(const signed char *)at : ref_fetch(at, kv);
                scale[t] = 1;
                if (kv == DTYPE_I8)
                    memcpy(&scale[t], half + 16 * KV + (t % 16 * 2 + i / d) * 4, 4);
            }
    }
    for (int t = 0; t < ROWS; t++) { // what qkv wrote
        plain_norm(m, x, resid[t], norm);
        float key[KV];
        for (int i = 0; i < KV; i++)
            key[i] = plain_dot(&qkv->part[1], i, x, 0, D);
        plain_heads(f, key, KV / d, &qkv->bias[1], k_norm, START + t);
        float value[KV];
        for (int i = 0; i < KV; i++) {
            value[i] = plain_dot(&qkv->part[2], i, x, 0, D);
            if (bias)
                value[i] += ((const float *)qkv->bias[2].data)[i];
        }
        for (int i = 0; i < 2 * KV; i++) {
            int head = i % KV / d, at = (START + t) * d + i % d;
            const float *vector = (i < KV ? key : value) + head * d;
            float got = i < KV ? keys[head][at] : values[head][at];
            float scale = i < KV ? key_scale[head][START + t] : value_scale[head][START + t];
            if (kv == DTYPE_I8) { // rule 17
                float max = 0;
                for (int j = 0; j < d; j++)
                    max = fmaxf(max, fabsf(vector[j]));
                assert_true(scale == max / 127);
                assert_true(got == nearbyintf(vector[i % d] * (127 / max)));
            } else {
                char stored[4];
                ref_store(stored, kv, vector[i % d]);
                assert_true(got == ref_fetch(stored, kv));
            }
        }
    }
    in->ops->attn_prefill(in->dev, l, &b->step);
    for (int t = 0; t < ROWS; t++)
        for (int head = 0; head < shape.heads; head++) {
            int end = START + t + 1, begin = window > 0 && end > window ? end - window : 0;
            begin = m->attn[0].chunked ? (end - 1) / window * window : begin;
            int of = head / (shape.heads / 2);
            plain_attention(h[t] + head * d, q[t] + head * d, keys[of], values[of], key_scale[of],
                            value_scale[of], kv == DTYPE_BF16 || kv == DTYPE_I8, begin, end, d,
                            m->attn[0].scale, m->attn[0].softcap,
                            sinks ? (const float *)sinks->part[0].data + head : NULL);
        }
    assert_memory_equal(h, in->act.h, sizeof h);

    random_floats(h[0], ROWS * Q);
    memcpy(in->act.h, h, sizeof h);
    in->ops->attn_out(in->dev, l, &b->step);
    memcpy(before, resid, sizeof before);
    for (int t = 0; t < ROWS; t++)
        plain_add(m, resid[t], out, post, h[t]);
    assert_memory_equal(resid, in->act.resid, sizeof resid);

    in->ops->ffn_in(in->dev, l, &b->step);
    for (int t = 0; t < ROWS; t++) {
        plain_norm(m, x, m->block == BLOCK_SEQUENTIAL ? resid[t] : before[t], ffn_norm);
        for (int i = 0; i < F; i++) {
            float sum[2] = {0};
            for (int p = 0; p < (ffn->no_gate ? 1 : 2); p++) {
                sum[p] = plain_dot(&gate_up->part[p], i, x, 0, D);
                sum[p] += ffn->in_bias ? ((const float *)gate_up->bias[p].data)[i] : 0;
            }
            up[t][i] = plain_act(ffn->act, sum[0]);
            up[t][i] *= ffn->no_gate ? 1 : sum[1];
        }
    }
    assert_memory_equal(up, in->act.h, sizeof up);
    in->ops->ffn_out(in->dev, l, &b->step);
    for (int t = 0; t < ROWS; t++)
        plain_add(m, resid[t], down, ffn_post, up[t]);
    assert_memory_equal(resid, in->act.resid, sizeof resid);

    struct step_out result;
    in->ops->head(in->dev, &in->model, &b->step);
    in->ops->step_end(in->dev);
    in->ops->sync(in->dev, &result, NULL);
    for (int t = 0; t < ROWS; t++) {
        plain_norm(m, x, resid[t], out_norm);
        for (int i = 0; i < 64; i++) {
            y[i] = plain_dot(&lm_head->part[0], i, x, 0, D);
            y[i] += m->head_bias ? ((const float *)lm_head->bias[0].data)[i] : 0;
            y[i] *= model_scale(m->logit_scale);
            y[i] = m->logit_softcap > 0 ? m->logit_softcap * plain_tanh(y[i] / m->logit_softcap) : y[i];
        }
        assert_memory_equal(y, result.logits + t * 64, 64 * sizeof *y);
        // log-probability: groups of 16, then the binary tree of neighbours
        float group[4], max = y[0];
        for (int i = 0; i < 64; i++)
            max = fmaxf(max, y[i]);
        for (int g = 0; g < 4; g++) {
            float e[16];
            for (int i = 0; i < 16; i++)
                e[i] = plain_exp(y[g * 16 + i] - max);
            group[g] = plain_tree(e);
        }
        float total = (float)log((double)((group[0] + group[1]) + (group[2] + group[3])));
        assert_true(result.logprob[t] == max - max - total); // greedy: the best token
        assert_true(y[result.ids[t]] == max);
    }
    float_env_leave(env);
    free(block);
    free(b);
    instance_close(in);
    fixture_free(f);
}

static void like_gemma2(struct model_config *m) {
    m->post_norms = true;
    m->attn[0].softcap = 3, m->logit_softcap = 2;
    m->ffn[0].act = ACT_GELU;
    m->residual_scale = 0.7f, m->logit_scale = 1.3f;
}

static void like_phi2(struct model_config *m) {
    m->norm = NORM_LAYER, m->norm_bias = true, m->block = BLOCK_ONE_NORM;
    m->head_bias = true, m->logit_scale = 0.25f;
    m->ffn[0] = (struct ffn_spec){
        .hidden = m->ffn[0].hidden, .act = ACT_GELU_ERF, .no_gate = true, .in_bias = true, .out_bias = true};
}

static void like_cohere(struct model_config *m) {
    m->norm = NORM_LAYER, m->block = BLOCK_PARALLEL;
    m->attn[0].qk_norm = QK_NORM_EACH;
    m->ffn[0].in_bias = true;
}

static void like_nemotron(struct model_config *m) {
    m->norm = NORM_LAYER, m->norm_bias = true;
    m->ffn[0].act = ACT_RELU2, m->ffn[0].no_gate = true;
}

static void like_llama4(struct model_config *m) {
    m->attn[0].chunked = true;
    m->attn[0].qk_norm = QK_NORM_UNIT;
    m->attn[0].temp_scale = 0.3f, m->attn[0].temp_step = 600, m->attn[0].temp_offset = 1;
}

static void with_sinks(struct model_config *m) { m->attn[0].sinks = true; }

static void test_layer(void **state) {
    (void)state;
    check_layer(DTYPE_F32, DTYPE_F32, 0, false, false, NULL);
    check_layer(DTYPE_F16, DTYPE_F16, 0, false, false, NULL);
    check_layer(DTYPE_BF16, DTYPE_BF16, 300, false, false, NULL);
    check_layer(DTYPE_Q8_0, DTYPE_F16, 7, false, false, NULL);
    check_layer(DTYPE_F32, DTYPE_BF16, 0, true, false, NULL);
    check_layer(DTYPE_F32, DTYPE_I8, 0, true, false, NULL);
    check_layer(DTYPE_Q8_0, DTYPE_I8, 301, false, false, NULL);
    check_layer(DTYPE_F32, DTYPE_F32, 300, true, false, NULL);
    check_layer(DTYPE_F16, DTYPE_F32, 0, false, true, NULL);
    check_layer(DTYPE_Q8_0, DTYPE_F32, 7, true, true, NULL);
    check_layer(DTYPE_Q4_0, DTYPE_F32, 0, false, false, NULL);
    check_layer(DTYPE_Q4_K, DTYPE_F16, 0, false, false, NULL);
    check_layer(DTYPE_Q5_K, DTYPE_BF16, 0, false, false, NULL);
    check_layer(DTYPE_Q6_K, DTYPE_F16, 0, false, false, NULL);
    check_layer(DTYPE_Q5_0, DTYPE_F16, 0, false, true, NULL);
    check_layer(DTYPE_Q4_1, DTYPE_F32, 0, false, false, NULL);
    check_layer(DTYPE_Q5_1, DTYPE_F16, 7, false, false, NULL);
    check_layer(DTYPE_IQ4_NL, DTYPE_F32, 0, true, false, NULL);
    check_layer(DTYPE_MXFP4, DTYPE_F16, 0, false, false, NULL);
    check_layer(DTYPE_Q3_K, DTYPE_F16, 0, false, false, NULL);
    check_layer(DTYPE_Q2_K, DTYPE_F32, 0, false, false, NULL);
    check_layer(DTYPE_IQ4_XS, DTYPE_F16, 0, false, false, NULL);
    check_layer(DTYPE_F32, DTYPE_F32, 0, false, false, like_gemma2);
    check_layer(DTYPE_Q8_0, DTYPE_I8, 300, true, true, like_gemma2);
    check_layer(DTYPE_F32, DTYPE_F16, 0, false, true, like_phi2);
    check_layer(DTYPE_Q4_K, DTYPE_BF16, 0, false, true, like_phi2);
    check_layer(DTYPE_BF16, DTYPE_F32, 0, true, false, like_cohere);
    check_layer(DTYPE_Q6_K, DTYPE_F32, 7, false, false, like_nemotron);
    check_layer(DTYPE_F32, DTYPE_F16, 0, false, false, with_sinks);
    check_layer(DTYPE_MXFP4, DTYPE_I8, 128, false, true, with_sinks);
    check_layer(DTYPE_F32, DTYPE_BF16, 200, false, false, like_llama4);
    check_layer(DTYPE_Q8_0, DTYPE_F32, 599, false, false, like_llama4);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
