// Random small models, and steps over them, for tests that compare backends. Over 600 lines: what steps
// of a random model need, from its weights to its pages, for tests of every backend.
#pragma once

#include "backend.h"
#include "half.h"
#include "inspect.h"
#include "quants.h"
#include "ref_ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef FIXTURE_INSPECT
#define FIXTURE_INSPECT NULL // what inspects the backends that are neither ref nor cpu
#endif

struct shape {
    int layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
    int window;
    bool qk_norm, bias, interleaved;
};

static uint64_t random_state = 88172645463325252u;

static inline uint32_t random_u32(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 20);
}

// Uniform in (-1, 1)
static inline float random_float(void) { return (float)(random_u32() & 0xffffffu) / 8388608.0f - 1; }

static inline void *must_calloc(size_t n, size_t size) {
    void *p = calloc(n ? n : 1, size);
    if (!p)
        abort();
    return p;
}

// The scales of one block whose other bits are random, for values up to about `scale`.
static inline void random_scales(char *block, enum dtype dtype, float scale) {
    static const float largest[DTYPE_COUNT] = {
        [DTYPE_Q8_0] = 127,        [DTYPE_Q4_0] = 8,   [DTYPE_Q4_K] = 63 * 15, [DTYPE_Q5_K] = 63 * 31,
        [DTYPE_Q6_K] = 127 * 32,   [DTYPE_Q4_1] = 15,  [DTYPE_Q5_0] = 16,      [DTYPE_Q5_1] = 31,
        [DTYPE_IQ4_NL] = 127,      [DTYPE_MXFP4] = 12, [DTYPE_Q3_K] = 32 * 4,  [DTYPE_Q2_K] = 15 * 3,
        [DTYPE_IQ4_XS] = 32 * 127, [DTYPE_FP8] = 448};
    bool wide = dtype == DTYPE_Q4_K || dtype == DTYPE_Q5_K, one = dtype == DTYPE_Q4_1 || dtype == DTYPE_Q5_1;
    float d = scale / largest[dtype] * (1 + random_float() / 2);
    float min = scale * (random_float() + 1) / (wide ? 63 * 4 : one ? -2 : 15 * 2); // Q4_1 and Q5_1 add it
    bool turned = random_u32() % 2; // the mean of all blocks is about 0
    uint16_t bits[2] = {float_to_half(turned ? -d : d), float_to_half(turned ? -min : min)};
    if (dtype == DTYPE_FP8) { // of four bits, so that no product is rounded
        d = ldexpf(rintf(ldexpf(d, 3 - ilogbf(d))), ilogbf(d) - 3);
        memcpy(block, &(float){turned ? -d : d}, sizeof d);
        for (int i = 4; i < 36; i++)
            block[i] = (char)(block[i] ^ ((block[i] & 127) == 127)); // no NaN
    } else if (dtype == DTYPE_MXFP4)
        block[0] = (char)(128 + (int)floorf(log2f(d)));
    else
        memcpy(block + quants_scale_offset(dtype), bits, quants_has_minimum(dtype) ? 4 : 2);
}

static bool fixture_blank; // weights are zeros in pages that nobody writes to: where only their sizes matter

// A random matrix as a file holds it; the caller frees data. Large ones repeat themselves, to be made fast: after
// a prime number of blocks, so that no two rows are alike.
static inline struct tensor random_tensor(enum dtype dtype, int rows, int cols, float scale) {
    size_t row_bytes = dtype_row_bytes(dtype, cols), all = (size_t)rows * row_bytes;
    int block = dtype_block(dtype), bytes = (int)dtype_row_bytes(dtype, block);
    size_t period = (block > 1 ? 131071 : 4194301) * (size_t)bytes;
    char *data = must_calloc(1, all);
    if (fixture_blank)
        return (struct tensor){data, dtype, 2, {rows, cols}};
    for (int r = 0; r < rows && (size_t)r * row_bytes < period; r++) {
        char *row = data + (size_t)r * row_bytes;
        if (block > 1) { // any bits are numbers; only the f16 scales are chosen
            for (size_t i = 0; i < row_bytes; i++)
                row[i] = (char)random_u32();
            for (int b = 0; b < cols / block; b++) {
                random_scales(row + b * bytes, dtype, scale);
                if (dtype == DTYPE_FP8)
                    memcpy(row + b * bytes, row + b / 4 * 4 * bytes, sizeof(float));
            }
        } else {
            for (int c = 0; c < cols; c++)
                ref_store(row + dtype_row_bytes(dtype, c), dtype, random_float() * scale);
        }
    }
    for (size_t at = period; at < all; at += period)
        memcpy(data + at, data, all - at < period ? all - at : period);
    return (struct tensor){data, dtype, 2, {rows, cols}};
}

// Gives FP8 one scale for each `rows` rows and `cols` columns, of the first of them.
static inline void level_scales(const struct tensor *t, size_t rows, size_t cols) {
    size_t block = dtype_row_bytes(DTYPE_FP8, 32), row = dtype_row_bytes(DTYPE_FP8, t->shape[1]);
    char *data = (char *)(uintptr_t)t->data;
    for (size_t at = 0; at < (size_t)t->shape[0] * row; at += block)
        memcpy(data + at,
               data + at / row / rows * rows * row + at % row / block * 32 / cols * cols / 32 * block,
               sizeof(float));
}

// The maximum of each `group` logits of rows, as the product that gives logits leaves them: NaN where one is.
// (rows, ceil(vocab / group)); the caller frees it.
static inline float *group_maxima(const float *logits, int rows, int vocab, int ld, int group) {
    int num = (vocab + group - 1) / group;
    float *max = must_calloc((size_t)rows * (size_t)num, sizeof *max);
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vocab; v++) {
            float x = logits[(size_t)r * (size_t)ld + (size_t)v],
                  *m = &max[(size_t)r * (size_t)num + (size_t)(v / group)];
            *m = v % group == 0 || isnan(x) || x > *m ? x : *m; // what is NaN stays
        }
    return max;
}

struct fixture {
    struct model_config config;
    int num_weights;
    struct weight_desc weights[256];
};

static inline void fixture_add(struct fixture *f, enum weight_role role, int layer, enum dtype dtype, int n,
                               const int *rows, int cols, bool bias) {
    struct weight_desc *w = &f->weights[f->num_weights++];
    memset(w, 0, sizeof *w);
    w->role = role;
    w->layer = layer;
    bool norm = strstr(weight_info(role)->name, "norm") || role == WEIGHT_STREAM_SCALE;
    for (int i = 0; i < n; i++) {
        bool vector = weight_shape_of(&f->config, role, layer, i).ndim == 1;
        int num_biases = vector ? cols : rows[i];
        float scale = role == WEIGHT_SINKS ? 8 : 1.7f / sqrtf((float)cols);
        w->part[i] = random_tensor(dtype, rows[i], cols, scale);
        if (vector)
            w->part[i].ndim = 1, w->part[i].shape[0] = cols;
        for (int c = 0; norm && c < rows[i] * cols; c++)
            ((float *)(uintptr_t)w->part[i].data)[c] = 1 + 0.3f * random_float();
        if (bias) {
            w->bias[i] = random_tensor(DTYPE_F32, 1, num_biases, 0.5f);
            w->bias[i].ndim = 1;
            w->bias[i].shape[0] = num_biases;
        }
    }
}

// Layers in turns: the shape's own attention over the pages of group 0; full attention with another rotary
// embedding, of half the head, over those of group 1; the first again; full attention of twice as many heads
// without positions, over group 1. Every other feed-forward part is wider.
static inline void fixture_mix(struct model_config *m) {
    struct attn_spec *a = m->attn;
    m->num_attn = 3, m->num_ffn = 2, m->num_ropes = 2, m->num_groups = 2;
    a[1] = a[2] = a[0];
    a[1].index = 1, a[1].window = 0, a[1].rope = 1;
    a[2].index = 2, a[2].window = 0, a[2].rope = -1, a[2].heads *= 2, a[2].scale *= 0.75f;
    m->ropes[1] = m->ropes[0];
    m->ropes[1].theta = 500, m->ropes[1].dim = a->head_dim / 4 * 2;
    m->ropes[1].interleaved = !m->ropes[0].interleaved;
    m->ffn[1] = (struct ffn_spec){.index = 1, .hidden = m->ffn[0].hidden + 32};
    m->groups[1] = (struct kv_group_spec){.kind = KV_FULL};
    m->groups[0].num_layers = 0;
    for (int i = 0; i < m->num_layers; i++) {
        struct layer_spec *l = &m->layers[i];
        *l = (struct layer_spec){.attn = (uint8_t)(i % 4 == 1   ? 1
                                                   : i % 4 == 3 ? 2
                                                                : 0),
                                 .ffn = (uint8_t)(i / 2 % 2),
                                 .kv_group = (uint8_t)(i % 2),
                                 .kv_layer = (uint16_t)(i / 2)};
        m->groups[i % 2].num_layers++;
    }
    m->kv_layers = (m->num_layers + 1) / 2;
}

// The same, but layers of group 1 keep twice as much as those of group 0: by heads, or by their size.
static inline void fixture_mix_places(struct model_config *m) {
    fixture_mix(m);
    m->attn[1].kv_heads *= 2;
    m->attn[2].head_dim *= 2;
    m->attn[1].kv_places = m->attn[2].kv_places = 2;
    for (int i = 1; i < m->num_layers; i += 2)
        m->layers[i].kv_layer *= 2;
    m->kv_layers = m->num_layers / 2 * 2;
}

// Layers 2 and 3 take the keys of layers 0 and 1. For that attn[2] is what attn[1] is, and shares; attn[3] is of layer 2.
static inline void fixture_share(struct model_config *m) {
    m->num_attn = 4;
    m->attn[2] = m->attn[1], m->attn[3] = m->attn[0];
    m->attn[2].index = 2, m->attn[3].index = 3;
    m->attn[2].shares_kv = m->attn[3].shares_kv = true;
    m->layers[2].attn = 3;
    m->layers[2].kv_layer = m->layers[0].kv_layer, m->layers[3].kv_layer = m->layers[1].kv_layer;
}

static inline struct model_config fixture_config(const struct shape *s) {
    struct model_config m = {.num_layers = s->layers,
                             .hidden = s->hidden,
                             .vocab = s->vocab,
                             .max_context = 4096,
                             .norm_eps = 1e-5f,
                             .logit_scale = 1,
                             .num_attn = 1,
                             .num_ffn = 1,
                             .num_ropes = 1,
                             .num_groups = 1,
                             .kv_layers = s->layers};
    m.attn[0] = (struct attn_spec){.heads = s->heads,
                                   .kv_heads = s->kv_heads,
                                   .head_dim = s->head_dim,
                                   .window = s->window,
                                   .scale = 1.0f / sqrtf((float)s->head_dim),
                                   .qk_norm = s->qk_norm,
                                   .qkv_bias = s->bias,
                                   .out_bias = s->bias};
    m.ffn[0] = (struct ffn_spec){.hidden = s->ffn};
    m.ropes[0] = (struct rope_config){
        .theta = 10000, .dim = s->head_dim, .interleaved = s->interleaved, .factor = 1, .attn_factor = 1};
    m.groups[0] = (struct kv_group_spec){
        .kind = s->window > 0 ? KV_WINDOW : KV_FULL, .window = s->window, .num_layers = s->layers};
    for (int i = 0; i < s->layers; i++)
        m.layers[i].kv_layer = (uint16_t)i;
    return m;
}

// A layer attends by latents, of which the cache keeps one vector a token.
static inline struct model_config fixture_latent_config(const struct attn_spec *a, int layers) {
    struct shape s = {layers,    64,    a->heads, 1,   a->kv_lora + a->rope_dim, 48, 97,
                      a->window, false, false,    true};
    struct model_config m = fixture_config(&s);
    m.attn[0] = *a;
    m.attn[0].kind = ATTN_LATENT;
    m.attn[0].kv_heads = 1;
    m.attn[0].head_dim = s.head_dim;
    m.attn[0].scale = 1 / sqrtf((float)(a->nope_dim + a->rope_dim));
    m.ropes[0].dim = a->rope_dim;
    m.ropes[0].interleaved = a->heads % 2;
    return m;
}

// Quantised types need rows of whole blocks.
static inline enum dtype fixture_dtype(enum dtype dtype, int cols) {
    return cols % dtype_block(dtype) == 0 ? dtype : DTYPE_F16;
}

static inline bool fixture_has_post_norms(const struct model_config *m) {
    return m->post_norms || m->block == BLOCK_SUM_NORM;
}

// Makes parts of the last weight stacks of matrices, of as many rows each.
static inline void fixture_stack(struct fixture *f, int experts) {
    struct weight_desc *w = &f->weights[f->num_weights - 1];
    for (int i = 0; i < 3 && w->part[i].data; i++) {
        struct tensor *t = &w->part[i], *bias = &w->bias[i];
        int64_t rows = t->shape[0] / experts;
        *t = (struct tensor){t->data, t->dtype, 3, {experts, rows, t->shape[1]}};
        if (bias->data)
            *bias = (struct tensor){bias->data, bias->dtype, 2, {experts, rows}};
    }
}

// Adds a layer's experts, beside gate, up and down of the shared one.
static inline void fixture_add_experts(struct fixture *f, const struct ffn_spec *s, int layer,
                                       enum dtype dtype, int D) {
    int E = s->experts, F = s->hidden, in = E * F, out = E * D, one = 1;
    fixture_add(f, WEIGHT_ROUTER, layer, DTYPE_F32, 1, &E, D, s->router_bias);
    if (s->select_bias)
        fixture_add(f, WEIGHT_SELECT_BIAS, layer, DTYPE_F32, 1, &one, E, false);
    if (s->expert_scale)
        fixture_add(f, WEIGHT_EXPERT_SCALE, layer, DTYPE_F32, 1, &one, E, false);
    if (s->shared_gate)
        fixture_add(f, WEIGHT_SHARED_GATE, layer, DTYPE_F32, 1, &one, D, false);
    fixture_add(f, WEIGHT_EXPERT_GATE_UP, layer, fixture_dtype(dtype, D), s->no_gate ? 1 : 2, (int[]){in, in},
                D, s->expert_bias);
    fixture_stack(f, E);
    fixture_add(f, WEIGHT_EXPERT_DOWN, layer, fixture_dtype(dtype, F), 1, &out, F, s->expert_bias);
    fixture_stack(f, E);
}

// Adds latent attention, in place of q, k, v and the norms of heads.
static inline void fixture_add_latent(struct fixture *f, const struct attn_spec *a, int layer,
                                      enum dtype dtype, int D) {
    int vector = a->head_dim, U = a->q_lora, q = a->heads * (a->nope_dim + a->rope_dim), in = U > 0 ? U : D,
        key = a->heads * a->kv_lora, value = a->heads * a->v_dim, one = 1;
    fixture_add(f, WEIGHT_LATENT, layer, fixture_dtype(dtype, D), 1, &vector, D, false);
    fixture_add(f, WEIGHT_LATENT_NORM, layer, DTYPE_F32, 1, &one, a->kv_lora, false);
    if (U > 0) {
        fixture_add(f, WEIGHT_LATENT_QDOWN, layer, fixture_dtype(dtype, D), 1, &U, D, false);
        fixture_add(f, WEIGHT_LATENT_QNORM, layer, DTYPE_F32, 1, &one, U, false);
    }
    fixture_add(f, WEIGHT_LATENT_Q, layer, fixture_dtype(dtype, in), 1, &q, in, false);
    fixture_add(f, WEIGHT_LATENT_KEY, layer, fixture_dtype(dtype, a->nope_dim), 1, &key, a->nope_dim, false);
    fixture_stack(f, a->heads);
    fixture_add(f, WEIGHT_LATENT_VALUE, layer, fixture_dtype(dtype, a->kv_lora), 1, &value, a->kv_lora,
                false);
    fixture_stack(f, a->heads);
}

// Adds a layer's weights of models with embeddings of layers, factors of layers and AltUp.
static inline void fixture_add_layer_out(struct fixture *f, int layer, enum dtype dtype) {
    const struct model_config *m = &f->config;
    int D = m->hidden, P = m->layer_embed, N = m->altup_streams, R = m->laurel_rank, all = N * N, one = 1;
    enum dtype of_d = fixture_dtype(dtype, D);
    if (P > 0) {
        fixture_add(f, WEIGHT_EMBED_GATE, layer, of_d, 1, &P, D, false);
        fixture_add(f, WEIGHT_EMBED_OUT, layer, fixture_dtype(dtype, P), 1, &D, P, false);
        fixture_add(f, WEIGHT_EMBED_OUT_NORM, layer, DTYPE_F32, 1, &one, D, m->norm_bias);
    }
    if (m->layer_scale)
        fixture_add(f, WEIGHT_LAYER_SCALE, layer, DTYPE_F32, 1, &one, 1, false);
    if (N == 0)
        return;
    fixture_add(f, WEIGHT_STREAM_NORM, layer, DTYPE_F32, 1, &one, D, false);
    fixture_add(f, WEIGHT_STREAM_ROUTER, layer, DTYPE_F32, 1, &N, D, false);
    float *router = (float *)(uintptr_t)f->weights[f->num_weights - 1].part[0].data;
    for (int i = 0; i < N * D; i++)
        router[i] *= (float)D; // its product is divided by that
    fixture_add(f, WEIGHT_STREAM_PREDICT, layer, DTYPE_F32, 1, &all, N, false);
    fixture_add(f, WEIGHT_STREAM_CORRECT, layer, DTYPE_F32, 1, &N, N, false);
    fixture_add(f, WEIGHT_STREAM_SCALE, layer, DTYPE_F32, 1, &one, D, false);
    fixture_add(f, WEIGHT_LAUREL_LEFT, layer, of_d, 1, &R, D, false);
    fixture_add(f, WEIGHT_LAUREL_RIGHT, layer, fixture_dtype(dtype, R), 1, &D, R, false);
    fixture_add(f, WEIGHT_LAUREL_NORM, layer, DTYPE_F32, 1, &one, D, m->norm_bias);
}

static inline struct fixture *fixture_of(const struct model_config *m, enum dtype dtype) {
    struct fixture *f = must_calloc(1, sizeof *f);
    f->config = *m;
    int D = m->hidden, one = 1;
    enum dtype of_d = fixture_dtype(dtype, D);
    bool post_norms = fixture_has_post_norms(m);
    fixture_add(f, WEIGHT_EMBED, -1, of_d, 1, &m->vocab, D, false);
    if (m->positions > 0)
        fixture_add(f, WEIGHT_POSITIONS, -1, DTYPE_F32, 1, &m->positions, D, false);
    if (m->token_types > 0)
        fixture_add(f, WEIGHT_TYPES, -1, DTYPE_F32, 1, &m->token_types, D, false);
    if (m->embed_norm)
        fixture_add(f, WEIGHT_EMBED_NORM, -1, DTYPE_F32, 1, &one, D, m->norm_bias);
    if (m->layer_embed > 0) {
        int P = m->layer_embed, all = m->num_layers * P;
        fixture_add(f, WEIGHT_LAYER_EMBED, -1, fixture_dtype(dtype, all), 1, &m->layer_vocab, all, false);
        fixture_add(f, WEIGHT_LAYER_EMBED_IN, -1, of_d, 1, &all, D, false);
        fixture_add(f, WEIGHT_LAYER_EMBED_NORM, -1, DTYPE_F32, 1, &one, P, false);
    }
    for (int i = 0; i < 2 * (m->altup_streams - 1); i++)
        fixture_add(f, i % 2 ? WEIGHT_STREAM_OUT : WEIGHT_STREAM_IN, -1, of_d, 1, &D, D, false);
    for (int l = 0; l < m->num_layers; l++) {
        const struct attn_spec *a = model_attn(&f->config, l);
        const struct ffn_spec *ffn = model_ffn(&f->config, l);
        int q = attn_out_size(a), kv = a->kv_heads * a->head_dim;
        int F = ffn->experts > 0 ? ffn->shared_hidden : ffn->hidden;
        bool each = a->qk_norm == QK_NORM_EACH, whole = a->qk_norm == QK_NORM_WHOLE;
        fixture_add(f, WEIGHT_ATTN_NORM, l, DTYPE_F32, 1, &one, D, m->norm_bias);
        if (a->kind == ATTN_LATENT)
            fixture_add_latent(f, a, l, dtype, D);
        else
            fixture_add(f, WEIGHT_QKV, l, of_d, a->shares_kv ? 1 : 3, (int[]){q, kv, kv}, D, a->qkv_bias);
        if (a->qk_norm != QK_NORM_NONE && a->qk_norm != QK_NORM_UNIT) {
            fixture_add(f, WEIGHT_Q_NORM, l, DTYPE_F32, 1, each ? &a->heads : &one, whole ? q : a->head_dim,
                        false);
            if (!a->shares_kv)
                fixture_add(f, WEIGHT_K_NORM, l, DTYPE_F32, 1, each ? &a->kv_heads : &one,
                            whole ? kv : a->head_dim, false);
        }
        if (a->sinks)
            fixture_add(f, WEIGHT_SINKS, l, DTYPE_F32, 1, &one, a->heads, false);
        if (a->gate)
            fixture_add(f, WEIGHT_ATTN_GATE, l, of_d, 1, &q, D, false);
        fixture_add(f, WEIGHT_ATTN_OUT, l, fixture_dtype(dtype, q), 1, &D, q, a->out_bias);
        if (post_norms)
            fixture_add(f, WEIGHT_ATTN_POST_NORM, l, DTYPE_F32, 1, &one, D, m->norm_bias);
        if (m->block != BLOCK_ONE_NORM)
            fixture_add(f, WEIGHT_FFN_NORM, l, DTYPE_F32, 1, &one, D, m->norm_bias);
        if (F > 0) {
            fixture_add(f, WEIGHT_GATE_UP, l, of_d, ffn->no_gate ? 1 : 2, (int[]){F, F}, D, ffn->in_bias);
            fixture_add(f, WEIGHT_DOWN, l, fixture_dtype(dtype, F), 1, &D, F, ffn->out_bias);
        }
        if (ffn->experts > 0)
            fixture_add_experts(f, ffn, l, dtype, D);
        for (int role = WEIGHT_ROUTER_NORM; ffn->own_norms && role <= WEIGHT_EXPERT_POST_NORM; role++)
            fixture_add(f, (enum weight_role)role, l, DTYPE_F32, 1, &one, D, m->norm_bias);
        if (post_norms)
            fixture_add(f, WEIGHT_FFN_POST_NORM, l, DTYPE_F32, 1, &one, D, m->norm_bias);
        fixture_add_layer_out(f, l, dtype);
    }
    fixture_add(f, WEIGHT_OUT_NORM, -1, DTYPE_F32, 1, &one, D, m->norm_bias);
    fixture_add(f, WEIGHT_HEAD, -1, of_d, 1, &m->vocab, D, m->head_bias);
    return f;
}

static inline struct fixture *fixture_make(const struct shape *s, enum dtype dtype) {
    struct model_config m = fixture_config(s);
    return fixture_of(&m, dtype);
}

static inline struct fixture *fixture_make_mixed(const struct shape *s, enum dtype dtype) {
    struct model_config m = fixture_config(s);
    fixture_mix(&m);
    return fixture_of(&m, dtype);
}

static inline void fixture_free(struct fixture *f) {
    for (int i = 0; i < f->num_weights; i++)
        for (int j = 0; j < 3; j++) {
            free((void *)(uintptr_t)f->weights[i].part[j].data);
            free((void *)(uintptr_t)f->weights[i].bias[j].data);
        }
    free(f);
}

// A model on a device.
struct instance {
    const struct backend_ops *ops;
    const struct backend_inspect *inspect; // or NULL
    struct device *dev;
    struct model model;
    struct layer layers[8];
    struct activations act; // the device's, with inspect
    struct step_limits limits;
    int block_size;
    int first_block; // 1: block 0 is nobody's
    uint64_t seq;
};

struct setup {
    const struct backend_ops *ops;
    const char *variant;
    int threads, block_size;
    enum dtype kv_dtype;
};

enum {
    INSTANCE_EXACT = 1,
    INSTANCE_NO_LOGITS = 2,
    INSTANCE_HIDDEN = 4,
    INSTANCE_SPARE_BLOCK = 8,
    INSTANCE_DEPENDENT = 16, // on the batch, in steps of more than 64 rows
};

// Without memory for steps yet. NULL with a message where the machine lacks the variant.
static inline struct instance *instance_load(const struct fixture *f, struct setup s, int flags) {
    struct instance *in = must_calloc(1, sizeof *in);
    struct err err = {0};
    struct device_config config = {.model = &f->config,
                                   .num_threads = s.threads,
                                   .variant = s.variant,
                                   .kv_dtype = s.kv_dtype,
                                   .block_size = s.block_size,
                                   .exact = flags & INSTANCE_EXACT,
                                   .no_batch_invariant = flags & INSTANCE_DEPENDENT,
                                   .world = 1};
    in->ops = s.ops;
    in->inspect = s.ops == &backend_ref   ? &inspect_ref
                  : s.ops == &backend_cpu ? &inspect_cpu
                                          : FIXTURE_INSPECT;
    in->block_size = s.block_size;
    in->dev = s.ops->open(NULL, &config, &err);
    if (!in->dev) {
        printf("  not here: %s\n", err.msg);
        free(in);
        return NULL;
    }
    in->model.config = f->config;
    in->model.layers = in->layers;
    for (int l = 0; l < f->config.num_layers; l++) {
        struct layer *layer = &in->layers[l];
        const struct layer_spec *spec = &f->config.layers[l];
        layer->index = l;
        layer->attn = f->config.attn[spec->attn];
        layer->ffn = f->config.ffn[spec->ffn];
        layer->kv_group = spec->kv_group;
        layer->kv_layer = spec->kv_layer;
    }
    for (int i = 0; i < f->num_weights; i++) {
        const struct weight_desc *w = &f->weights[i];
        int index = 0; // of those outside the layers that are several
        for (int j = 0; j < i && w->layer < 0; j++)
            index += f->weights[j].role == w->role;
        const struct weight **at = weight_at(&in->model, w->role, w->layer, index);
        if (!(*at = s.ops->weight_load(in->dev, w, &err))) {
            printf("weight %d: %s\n", i, err.msg);
            abort();
        }
        if (w->role == WEIGHT_ATTN_NORM && f->config.block == BLOCK_ONE_NORM)
            in->layers[w->layer].ffn_norm = *at;
    }
    in->first_block = flags & INSTANCE_SPARE_BLOCK ? 1 : 0;
    return in;
}

static inline void instance_reserve(struct instance *in, struct step_limits limits) {
    struct err err = {0};
    in->limits = limits;
    if (in->ops->reserve(in->dev, &in->limits, &err) != STATUS_OK) {
        printf("reserve: %s\n", err.msg);
        abort();
    }
    if (in->inspect)
        in->inspect->view(in->dev, &in->act);
}

static inline struct instance *instance_open_as(const struct fixture *f, struct setup s, int flags,
                                                int max_tokens, int max_context, int num_seqs) {
    struct instance *in = instance_load(f, s, flags);
    if (!in)
        return NULL;
    int blocks = f->config.num_groups * num_seqs * ((max_context + s.block_size - 1) / s.block_size);
    instance_reserve(in, (struct step_limits){.max_tokens = max_tokens,
                                              .max_seqs = num_seqs,
                                              .max_rows = max_tokens,
                                              .max_context = max_context,
                                              .num_blocks = in->first_block + blocks,
                                              .num_host_pages = 2,
                                              .keep_logits = !(flags & INSTANCE_NO_LOGITS),
                                              .keep_hidden = flags & INSTANCE_HIDDEN,
                                              .has_types = f->config.token_types > 1,
                                              .has_axes = model_has_axes(&f->config)});
    return in;
}

static inline struct instance *instance_open(const struct fixture *f, struct setup s, int max_tokens,
                                             int max_context, int num_seqs) {
    return instance_open_as(f, s, 0, max_tokens, max_context, num_seqs);
}

static inline void instance_close(struct instance *in) {
    if (in)
        in->ops->close(in->dev);
    free(in);
}

// The block of a group that holds tokens [i*B, (i+1)*B) of a sequence: scattered, but each its own.
static inline int32_t block_in(const struct instance *in, int group, int seq, int i) {
    int groups = in->model.config.num_groups, all = in->limits.num_blocks - in->first_block;
    int n = (group * in->limits.max_seqs + seq) * (all / (groups * in->limits.max_seqs)) + i;
    int stride = all % 7 ? 7 : all % 11 ? 11 : 1; // coprime to the number of blocks
    return (int32_t)((long long)n * stride % all) + in->first_block;
}

static inline int32_t block_of(const struct instance *in, int seq, int i) { return block_in(in, 0, seq, i); }

// Some rows of one sequence.
struct piece {
    int seq;          // which sequence's blocks
    int start, count; // rows are tokens [start, start + count)
    bool rows;        // every row gets logits, not only the last
};

struct some_pieces {
    int n;
    struct piece pieces[5];
};

// Steps that prefill in chunks, decode, and mix; positions follow on from each other.
static const struct some_pieces fixture_mixes[] = {
    {2, {{0, 0, 9, true}, {1, 0, 30, false}}},
    {3, {{0, 9, 1, false}, {1, 30, 5, true}, {2, 0, 17, false}}},
    {3, {{0, 10, 1, false}, {1, 35, 1, false}, {2, 17, 1, false}}},
    {3, {{0, 11, 1, false}, {1, 36, 1, false}, {2, 18, 14, true}}},
    {3, {{2, 32, 1, false}, {0, 12, 1, false}, {1, 37, 1, false}}},
};
enum { FIXTURE_MIXES = sizeof fixture_mixes / sizeof fixture_mixes[0] };

struct batch {
    struct step step;
    int32_t ids[8192], positions[8192], types[8192], query_start[257], context_len[256];
    struct batch_pages {
        int64_t slots[8192];
        int32_t block_start[257], block_ids[65536];
    } groups[2];
    struct logits_row rows[8192];
};

// The token at a position of a sequence.
static inline int32_t token_at(const struct instance *in, int seq, int position) {
    return (int32_t)((unsigned)(seq * 7919 + position * 104729 + 17) % (unsigned)in->model.config.vocab);
}

// The pages of a group that the pieces need.
static inline void batch_pages(struct batch *b, const struct instance *in, int group,
                               const struct piece *pieces, int n) {
    struct batch_pages *g = &b->groups[group];
    int t = 0, nb = 0, B = in->block_size;
    for (int i = 0; i < n; i++) {
        const struct piece *p = &pieces[i];
        g->block_start[i] = nb;
        for (int j = 0; j * B < p->start + p->count; j++)
            g->block_ids[nb++] = block_in(in, group, p->seq, j);
        for (int pos = p->start; pos < p->start + p->count; pos++)
            g->slots[t++] = (int64_t)block_in(in, group, p->seq, pos / B) * B + pos % B;
    }
    g->block_start[n] = nb;
    b->step.groups[group] = (struct step_group){g->slots, g->block_start, g->block_ids};
}

// Pieces that decode (one row) come first.
static inline struct batch *batch_make(struct instance *in, const struct piece *pieces, int n) {
    struct batch *b = must_calloc(1, sizeof *b);
    struct step *s = &b->step;
    int t = 0, r = 0;
    for (int i = 0; i < n; i++) {
        const struct piece *p = &pieces[i];
        b->query_start[i] = t;
        b->context_len[i] = p->start + p->count;
        if (p->count == 1 && s->num_decode == i)
            s->num_decode++;
        for (int j = 0; j < p->count; j++, t++) {
            int pos = p->start + j;
            b->ids[t] = token_at(in, p->seq, pos);
            b->positions[t] = pos;
            b->types[t] = in->limits.has_types ? b->ids[t] % in->model.config.token_types : 0;
            if (p->rows || j == p->count - 1)
                b->rows[r++] = (struct logits_row){.row = t, .target = -1, .top_p = 1, .num_logprobs = 2};
        }
        s->max_query_len = p->count > s->max_query_len ? p->count : s->max_query_len;
        s->max_context_len = b->context_len[i] > s->max_context_len ? b->context_len[i] : s->max_context_len;
    }
    b->query_start[n] = t;
    s->num_tokens = t;
    s->num_seqs = n;
    s->num_rows = r;
    s->num_groups = in->model.config.num_groups;
    s->seq = ++in->seq;
    s->ids = b->ids, s->positions = b->positions, s->query_start = b->query_start;
    s->context_len = b->context_len, s->rows = b->rows;
    s->types = in->limits.has_types ? b->types : NULL;
    for (int g = 0; g < s->num_groups; g++)
        batch_pages(b, in, g, pieces, n);
    return b;
}

// As model_forward(). Returns whether a CUDA graph ran instead.
static inline bool forward(struct instance *in, const struct step *step) {
    const struct backend_ops *ops = in->ops;
    if (step->num_moves > 0)
        ops->kv_copy(in->dev, step->moves, step->num_moves);
    if (ops->step_begin(in->dev, step))
        return true;
    ops->embed(in->dev, &in->model, step);
    for (int i = 0; i < in->model.config.num_layers; i++) {
        const struct layer *layer = &in->layers[i];
        if (in->model.config.altup_streams > 0)
            ops->layer_in(in->dev, layer, step);
        ops->qkv(in->dev, layer, step);
        if (step->num_decode > 0)
            ops->attn_decode(in->dev, layer, step);
        if (step->num_decode < step->num_seqs)
            ops->attn_prefill(in->dev, layer, step);
        ops->attn_out(in->dev, layer, step);
        ops->ffn_in(in->dev, layer, step);
        ops->ffn_out(in->dev, layer, step);
        if (in->model.config.layer_embed > 0 || in->model.config.layer_scale)
            ops->layer_out(in->dev, layer, step);
    }
    ops->head(in->dev, &in->model, step);
    ops->step_end(in->dev);
    return false;
}

// Runs pieces as one step; the results stay valid until the next step but one.
static inline struct step_out run_pieces(struct instance *in, const struct piece *pieces, int n) {
    struct batch *b = batch_make(in, pieces, n);
    struct step_out out;
    struct err err = {0};
    forward(in, &b->step);
    if (in->ops->sync(in->dev, &out, &err) != STATUS_OK) {
        printf("a step: %s\n", err.msg);
        abort();
    }
    free(b);
    return out;
}

// ||a - b|| / ||b||, infinity where a is not finite.
static inline double distance(const float *a, const float *b, size_t n) {
    double diff = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(a[i]))
            return INFINITY;
        diff += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return norm > 0 ? sqrt(diff / norm) : sqrt(diff);
}
