// Random recurrent layers of each kind, and sequences of rows that go through one of them in steps, for tests that compare
// backends.
#pragma once

#include "fixture.h"
#include "harness.h"

enum { D = 48, TOKENS = 37, SEQS = 2 };

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
    struct weight_desc weights[8];
    int num_weights;
};

static inline void add(struct case_of *c, enum weight_role role, const int rows[3], int cols,
                       enum dtype dtype, float scale, float centre) {
    struct weight_desc *w = &c->weights[c->num_weights++];
    *w = (struct weight_desc){.role = role};
    for (int i = 0; i < 3 && rows[i]; i++) {
        w->part[i] = random_tensor(dtype, rows[i], cols, scale);
        if (weight_shape_of(&c->config, role, 0, i).ndim == 1)
            w->part[i].ndim = 1, w->part[i].shape[0] = rows[i] * cols;
        for (int k = 0; dtype == DTYPE_F32 && k < rows[i] * cols; k++)
            ((float *)(uintptr_t)w->part[i].data)[k] += centre;
        if (role == WEIGHT_MIX_CONV && c->config.mix[0].conv_bias) {
            w->bias[i] = random_tensor(DTYPE_F32, 1, rows[i], 0.5f);
            w->bias[i].ndim = 1, w->bias[i].shape[0] = rows[i];
        }
    }
}

static inline struct case_of *make_case(const struct mix_spec *m) {
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
    add(c, WEIGHT_ATTN_NORM, (int[3]){1}, D, DTYPE_F32, 0.3f, 1);
    add(c, WEIGHT_MIX_IN, (int[3]){conv ? v : n, conv ? v : n, v}, D, DTYPE_F16, 0.3f, 0);
    add(c, WEIGHT_MIX_CONV, (int[3]){conv ? v : n, conv ? 0 : n, v}, m->taps, DTYPE_F32, 0.7f, 0);
    add(c, WEIGHT_MIX_OUT, (int[3]){D}, v, DTYPE_F16, 0.2f, 0);
    if (conv)
        return c;
    add(c, WEIGHT_MIX_GATE, (int[3]){v, h, ssm ? 0 : h}, D, DTYPE_F16, 0.3f, 0);
    add(c, WEIGHT_MIX_HEADS, (int[3]){h, h, ssm ? h : 0}, 1, DTYPE_F32, 0.5f, 0);
    for (int i = 0; i < h; i++) // a is negative
        ((float *)(uintptr_t)c->weights[5].part[0].data)[i] -= 0.6f;
    if (!ssm || m->norm)
        add(c, WEIGHT_MIX_NORM, (int[3]){ssm ? m->groups : 1}, ssm ? v / m->groups : m->head_dim, DTYPE_F32,
            0.3f, 1);
    return c;
}

static inline void free_case(struct case_of *c) {
    for (int i = 0; i < c->num_weights; i++)
        for (int j = 0; j < 3; j++) {
            free((void *)(uintptr_t)c->weights[i].part[j].data);
            free((void *)(uintptr_t)c->weights[i].bias[j].data);
        }
    free(c);
}

static inline void load_case(const struct case_of *c, const struct backend_ops *ops, struct device *dev,
                             struct layer *layer) {
    struct err err = {0};
    struct model model = {.layers = layer};
    for (int i = 0; i < c->num_weights; i++)
        if (!(*weight_at(&model, c->weights[i].role, 0, 0) = ops->weight_load(dev, &c->weights[i], &err)))
            fail_msg("%s", err.msg);
}

// Sequences of TOKENS random rows through the layer, `chunk` tokens of each in a step, beside each other or one by one.
// The states of the first move to another page once. All of it twice, as pages hold others' states first. out: (SEQS,
// TOKENS, D). false: the machine lacks the variant.
static inline bool run(const struct case_of *c, const struct backend_ops *ops, const char *variant,
                       int threads, int chunk, bool together, float *out) {
    struct device_config config = {.model = &c->config,
                                   .num_threads = threads,
                                   .variant = variant,
                                   .kv_dtype = DTYPE_F32,
                                   .block_size = 16,
                                   .exact = true,
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
    load_case(c, ops, dev, &layer);
    assert_int_equal(ops->reserve(dev, &limits, &err), STATUS_OK);
    for (int first = 0, turn = 0, round = 0; first < TOKENS; turn++) {
        if (turn == 0) {
            random_state = 12345;
            for (int i = 0; i < SEQS * TOKENS * D; i++)
                out[i] = random_float();
        }
        int n = first + chunk < TOKENS ? chunk : TOKENS - first;
        for (int s0 = 0; s0 < SEQS; s0 += together ? SEQS : 1) {
            float rows[SEQS * TOKENS * D];
            int32_t positions[SEQS * TOKENS], start[SEQS + 1] = {0}, block_start[SEQS + 1] = {0}, ids[SEQS];
            int32_t tokens[SEQS * TOKENS] = {0}, context[SEQS];
            int64_t slots[SEQS * TOKENS];
            int seqs = together ? SEQS : 1;
            for (int s = 0; s < seqs; s++) {
                for (int t = 0; t < n; t++)
                    positions[start[s] + t] = first + t, slots[start[s] + t] = -1;
                memcpy(rows + start[s] * D, out + ((s0 + s) * TOKENS + first) * D,
                       (size_t)(n * D) * sizeof *rows);
                start[s + 1] = start[s] + n;
                context[s] = first + n;
                block_start[s + 1] = s + 1;
                ids[s] = s0 + s == 0 && turn > 0 ? pages[SEQS] : pages[s0 + s];
            }
            struct step step = {.num_tokens = seqs * n,
                                .num_seqs = seqs,
                                .num_groups = 1,
                                .ids = tokens,
                                .positions = positions,
                                .query_start = start,
                                .context_len = context,
                                .groups = {{slots, block_start, ids}}};
            struct step_out ignored;
            if (turn == 1 && s0 == 0)
                ops->kv_copy(dev, &(struct kv_move){.from = pages[0], .to = pages[SEQS]}, 1);
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
        if (first == TOKENS && round++ == 0) { // once more, in pages that hold states
            first = 0;
            turn = -1;
        }
    }
    ops->close(dev);
    return true;
}
