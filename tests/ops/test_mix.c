// Recurrent layers: rule 19 of kernels/README.md written a second time, operation by operation; the CPU backend against
// the reference; the same bits however tokens are cut, with any threads and instructions, and from a copied page.
#include "harness.h"

#include "fixture.h"
#include "float_env.h"
#include "kernels.h"
#include "variants.h"

#include <math.h>

enum { NUM_VARIANTS = 4, D = 48, TOKENS = 37, SEQS = 2, MAX_VALUES = 128 };

static const struct mix_spec mixes[] = {
    {.kind = MIX_CONV, .heads = 40, .head_dim = 1, .taps = 3},
    {.kind = MIX_CONV, .heads = 64, .head_dim = 1, .taps = 2},
    {.kind = MIX_DELTA, .heads = 4, .groups = 2, .key_dim = 20, .head_dim = 16, .taps = 4},
    {.kind = MIX_DELTA, .heads = 4, .groups = 2, .key_dim = 32, .head_dim = 32, .taps = 4, .tiled = true},
    {.kind = MIX_DELTA, .heads = 1, .groups = 1, .key_dim = 9, .head_dim = 112, .taps = 5},
    {.kind = MIX_SSM, .heads = 4, .groups = 1, .key_dim = 24, .head_dim = 16, .taps = 4, .conv_bias = true},
    {.kind = MIX_SSM, .heads = 6, .groups = 2, .key_dim = 16, .head_dim = 16, .taps = 4, .norm = true},
};
enum { NUM_MIXES = sizeof mixes / sizeof *mixes };

struct case_of { // one layer with its weights
    struct model_config config;
    struct weight_desc weights[8]; // in the order of fields()
    int num_weights;
};

static void add(struct case_of *c, enum weight_role role, const int rows[3], int cols, enum dtype dtype,
                float scale, float centre) {
    struct weight_desc *w = &c->weights[c->num_weights++];
    *w = (struct weight_desc){.role = role};
    for (int i = 0; i < 3 && rows[i]; i++) {
        w->part[i] = random_tensor(dtype, rows[i], cols, scale);
        for (int k = 0; dtype == DTYPE_F32 && k < rows[i] * cols; k++)
            ((float *)(uintptr_t)w->part[i].data)[k] += centre;
        if (role == WEIGHT_MIX_CONV && c->config.mix[0].conv_bias) {
            w->bias[i] = random_tensor(DTYPE_F32, 1, rows[i], 0.5f);
            w->bias[i].ndim = 1, w->bias[i].shape[0] = rows[i];
        }
    }
}

static struct case_of *make_case(const struct mix_spec *m) {
    struct case_of *c = must_calloc(1, sizeof *c);
    int n = m->groups * m->key_dim, v = mix_values(m), h = m->heads;
    bool conv = m->kind == MIX_CONV, ssm = m->kind == MIX_SSM;
    c->config = (struct model_config){.num_layers = 1,
                                      .hidden = D,
                                      .vocab = 64,
                                      .norm_eps = 1e-5f,
                                      .num_attn = 1,
                                      .num_ffn = 1,
                                      .num_mix = 1,
                                      .num_groups = 1,
                                      .kv_layers = 1,
                                      .state_layers = 1,
                                      .attn = {{.heads = 1, .kv_heads = 1, .head_dim = 16, .rope = -1}},
                                      .ffn = {{.hidden = 16}},
                                      .mix = {*m},
                                      .groups = {{.kind = KV_STATE, .num_layers = 1}},
                                      .layers = {{.attn = MODEL_NO_SPEC}}};
    add(c, WEIGHT_NORM, (int[3]){1}, D, DTYPE_F32, 0.3f, 1);
    c->weights[0].part[0].ndim = 1, c->weights[0].part[0].shape[0] = D;
    add(c, WEIGHT_MIX_IN, (int[3]){conv ? v : n, conv ? v : n, v}, D, DTYPE_F16, 0.3f, 0);
    add(c, WEIGHT_MIX_CONV, (int[3]){conv ? v : n, conv ? 0 : n, v}, m->taps, DTYPE_F32, 0.7f, 0);
    add(c, WEIGHT_MIX_OUT, (int[3]){D}, v, DTYPE_F16, 0.2f, 0);
    if (conv)
        return c;
    add(c, WEIGHT_MIX_GATE, (int[3]){v, h, ssm ? 0 : h}, D, DTYPE_F16, 0.3f, 0);
    add(c, WEIGHT_MIX_HEADS, (int[3]){h, h, ssm ? h : 0}, 1, DTYPE_F32, 0.5f, 0);
    for (int i = 0; i < h; i++) // a is negative
        ((float *)(uintptr_t)c->weights[5].part[0].data)[i] -= 0.6f;
    add(c, WEIGHT_MIX_NORM, (int[3]){ssm ? m->groups : 1}, ssm ? v / m->groups : m->head_dim, DTYPE_F32, 0.3f,
        1);
    return c;
}

static void free_case(struct case_of *c) {
    for (int i = 0; i < c->num_weights; i++)
        for (int j = 0; j < 3; j++) {
            free((void *)(uintptr_t)c->weights[i].part[j].data);
            free((void *)(uintptr_t)c->weights[i].bias[j].data);
        }
    free(c);
}

// Sequences of TOKENS random rows through the layer, `chunk` tokens of each in a step, beside each other or one by one.
// The states of the first move to another page once. out: (SEQS, TOKENS, D). false: the machine lacks the variant.
static bool run(const struct case_of *c, const struct backend_ops *ops, const char *variant, int threads,
                int chunk, bool together, float *out) {
    struct device_config config = {.model = &c->config,
                                   .num_threads = threads,
                                   .variant = variant,
                                   .kv_dtype = DTYPE_F32,
                                   .block_size = 16,
                                   .world = 1};
    struct step_limits limits = {
        .max_tokens = SEQS * TOKENS, .max_seqs = SEQS, .max_rows = 1, .max_context = TOKENS, .num_blocks = 5};
    static const int32_t pages[SEQS + 1] = {3, 1, 4};
    struct layer layer = {.mix = c->config.mix[0]};
    struct err err = {0};
    struct device *dev = ops->open(NULL, &config, &err);
    if (!dev) {
        assert_int_equal(err.code, STATUS_DEVICE);
        return false;
    }
    const struct weight **fields[] = {&layer.attn_norm, &layer.mix_in,    &layer.mix_conv, &layer.mix_out,
                                      &layer.mix_gate,  &layer.mix_heads, &layer.mix_norm};
    for (int i = 0; i < c->num_weights; i++)
        if (!(*fields[i] = ops->weight_load(dev, &c->weights[i], &err)))
            fail_msg("%s", err.msg);
    assert_int_equal(ops->reserve(dev, &limits, &err), STATUS_OK);
    random_state = 12345;
    for (int i = 0; i < SEQS * TOKENS * D; i++)
        out[i] = random_float();
    for (int first = 0, turn = 0; first < TOKENS; turn++) {
        int n = first + chunk < TOKENS ? chunk : TOKENS - first;
        for (int s0 = 0; s0 < SEQS; s0 += together ? SEQS : 1) {
            float rows[SEQS * TOKENS * D];
            int32_t positions[SEQS * TOKENS], start[SEQS + 1] = {0}, block_start[SEQS + 1] = {0}, ids[SEQS];
            int seqs = together ? SEQS : 1;
            for (int s = 0; s < seqs; s++) {
                for (int t = 0; t < n; t++)
                    positions[start[s] + t] = first + t;
                memcpy(rows + start[s] * D, out + ((s0 + s) * TOKENS + first) * D,
                       (size_t)(n * D) * sizeof *rows);
                start[s + 1] = start[s] + n;
                block_start[s + 1] = s + 1;
                ids[s] = s0 + s == 0 && turn > 0 ? pages[SEQS] : pages[s0 + s];
            }
            struct step step = {.num_tokens = seqs * n,
                                .num_seqs = seqs,
                                .num_groups = 1,
                                .positions = positions,
                                .query_start = start,
                                .groups = {{.block_start = block_start, .block_ids = ids}}};
            struct step_out ignored;
            if (turn == 1 && s0 == 0)
                ops->kv_copy(dev, &(struct kv_move){pages[0], pages[SEQS]}, 1);
            ops->step_begin(dev, &step);
            ops->resid_import(dev, rows, &step);
            ops->mix(dev, &layer, &step);
            ops->mix_out(dev, &layer, &step);
            ops->resid_export(dev, rows, &step);
            ops->step_end(dev);
            assert_int_equal(ops->sync(dev, &ignored, &err), STATUS_OK);
            for (int s = 0; s < seqs; s++)
                memcpy(out + ((s0 + s) * TOKENS + first) * D, rows + start[s] * D,
                       (size_t)(n * D) * sizeof *rows);
        }
        first += n;
    }
    ops->close(dev);
    return true;
}

static void test_layers(void **state) {
    (void)state;
    static const int chunks[] = {TOKENS, 1, 2, 16, 5};
    static float want[SEQS * TOKENS * D], got[SEQS * TOKENS * D], input[SEQS * TOKENS * D];
    random_state = 12345;
    for (int i = 0; i < SEQS * TOKENS * D; i++)
        input[i] = random_float();
    for (int i = 0; i < NUM_MIXES; i++) {
        struct case_of *c = make_case(&mixes[i]);
        assert_true(run(c, &backend_ref, NULL, 1, 7, true, want));
        assert_true(run(c, &backend_cpu, "scalar", 1, TOKENS, true, got));
        double difference = 0, size = 0; // of what the layer adds
        for (int k = 0; k < SEQS * TOKENS * D; k++) {
            difference += pow((double)(want[k] - got[k]), 2);
            size += pow((double)(want[k] - input[k]), 2);
        }
        if (!(size > 1 && sqrt(difference / size) < 1e-5))
            fail_msg("mixer %d is %g from the reference", i, sqrt(difference / size));
        memcpy(want, got, sizeof want);
        for (int v = 0; v < NUM_VARIANTS; v++)
            for (int k = 0; k < 5; k++) {
                if (run(c, &backend_cpu, variants[v], 1 + (k + v) % 3, chunks[k], (k + v) % 2, got) &&
                    memcmp(want, got, sizeof want) != 0)
                    fail_msg("mixer %d, %s, chunks of %d: other bits", i, variants[v], chunks[k]);
            }
        free_case(c);
    }
}

// Rule 6
static float plain_silu(float x) {
    float e;
    struct {
        float y[16], x[16], one[16];
    } s;
    for (int i = 0; i < 16; i++)
        s.x[i] = x, s.one[i] = 1;
    cpu_kernels_find("scalar")->act[ACT_SILU](s.y, 0, s.x, s.one, 0, 1, 1);
    e = s.y[0];
    return e;
}

// The convolution: oldest token first, from the bias.
static void plain_conv(float *y, const float *x, const float *in, const float *out, float *window, int T,
                       int n, int taps, const float *w, const float *bias) {
    for (int t = 0; t < T; t++)
        for (int c = 0; c < n; c++) {
            float sum = bias ? bias[c] : 0, now = in ? in[t * n + c] * x[t * n + c] : x[t * n + c];
            for (int j = 0; j < taps; j++)
                sum = fmaf(w[j * n + c], j < taps - 1 ? window[j * n + c] : now, sum);
            for (int j = 0; j + 2 < taps; j++)
                window[j * n + c] = window[(j + 1) * n + c];
            window[(taps - 2) * n + c] = now;
            y[t * n + c] = out ? out[t * n + c] * sum : plain_silu(sum);
        }
}

// The recurrence: rows of the state in ascending order.
static void plain_recur(float *y, float *s, const float *q, const float *k, const float *v,
                        const float *decay, const float *dt, int T, int N, int P, bool delta, float d) {
    for (int t = 0; t < T; t++)
        for (int j = 0; j < P; j++) {
            float seen = 0, out = 0, x = v[t * P + j];
            for (int i = 0; i < N; i++)
                seen = fmaf(s[i * P + j], k[t * N + i], seen);
            float change = (delta ? x - decay[t] * seen : x) * dt[t];
            for (int i = 0; i < N; i++) {
                s[i * P + j] = fmaf(k[t * N + i], change, s[i * P + j] * decay[t]);
                out = fmaf(s[i * P + j], q[t * N + i], out);
            }
            y[t * P + j] = delta ? out : fmaf(d, x, out);
        }
}

static void fill(float *x, int n) {
    for (int i = 0; i < n; i++)
        x[i] = random_float() * 2;
}

static void test_rule(void **state) {
    (void)state;
    enum { T = 6, N = 23, P = 64 };
    static float x[T * P], in[T * P], out[T * P], window[15 * P], w[16 * P], bias[P], y[2][T * P],
        win[2][15 * P];
    static float q[T * N], k[T * N], decay[T], dt[T], s[N * P], st[2][N * P];
    for (int round = 0; round < 60; round++) {
        int taps = 2 + round % 7, n = 1 + round % P, columns = 16 * (1 + round % 4);
        fill(x, T * P), fill(in, T * P), fill(out, T * P), fill(window, 15 * P), fill(w, 16 * P),
            fill(bias, P);
        fill(q, T * N), fill(k, T * N), fill(decay, T), fill(dt, T), fill(s, N * P);
        bool gated = round % 2, delta = round / 2 % 2;
        for (int v = 0; v < NUM_VARIANTS; v++) {
            const struct cpu_kernels *kernels = cpu_kernels_find(variants[v]);
            if (!kernels)
                continue;
            uint64_t env = float_env_enter();
            memcpy(win[0], window, sizeof window), memcpy(win[1], window, sizeof window);
            memcpy(st[0], s, sizeof s), memcpy(st[1], s, sizeof s);
            plain_conv(y[0], x, gated ? in : NULL, gated ? out : NULL, win[0], T, n, taps, w,
                       round % 3 ? bias : NULL);
            kernels->mix_conv(&(struct mix_conv){.y = y[1],
                                                 .x = x,
                                                 .in_gate = gated ? in : NULL,
                                                 .out_gate = gated ? out : NULL,
                                                 .ldx = (size_t)n,
                                                 .ldy = (size_t)n,
                                                 .num_tokens = T,
                                                 .channels = n,
                                                 .window = win[1],
                                                 .ldw = (size_t)n,
                                                 .taps = taps,
                                                 .w = w,
                                                 .bias = round % 3 ? bias : NULL});
            assert_memory_equal(y[0], y[1], (size_t)(T * n) * sizeof(float));
            assert_memory_equal(win[0], win[1], (size_t)((taps - 1) * n) * sizeof(float));
            plain_recur(y[0], st[0], q, k, x, decay, dt, T, N, columns, delta, 0.7f);
            // q and k in one row with v, as the layer has them
            static float rows[T * (2 * N + P)], gates[T * 2];
            size_t ld = (size_t)(2 * N + columns);
            for (int t = 0; t < T; t++) {
                memcpy(rows + (size_t)t * ld, q + t * N, N * sizeof(float));
                memcpy(rows + (size_t)t * ld + N, k + t * N, N * sizeof(float));
                memcpy(rows + (size_t)t * ld + 2 * N, x + t * columns, (size_t)columns * sizeof(float));
                gates[2 * t] = dt[t], gates[2 * t + 1] = decay[t];
            }
            kernels->mix_recur(&(struct mix_recur){.state = st[1],
                                                   .ld_state = (size_t)columns,
                                                   .key_dim = N,
                                                   .columns = columns,
                                                   .q = rows,
                                                   .k = rows + N,
                                                   .v = rows + 2 * N,
                                                   .dt = gates,
                                                   .decay = gates + 1,
                                                   .y = y[1],
                                                   .ldx = ld,
                                                   .ld_gate = 2,
                                                   .ldy = (size_t)columns,
                                                   .num_tokens = T,
                                                   .delta = delta,
                                                   .d = 0.7f});
            float_env_leave(env);
            assert_memory_equal(y[0], y[1], (size_t)(T * columns) * sizeof(float));
            assert_memory_equal(st[0], st[1], (size_t)(N * columns) * sizeof(float));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rule), cmocka_unit_test(test_layers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
