// Random small models, and steps over them, for tests that compare backends.
#pragma once

#include "backend.h"
#include "half.h"
#include "quants.h"
#include "ref.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
        [DTYPE_Q8_0] = 127,       [DTYPE_Q4_0] = 8,   [DTYPE_Q4_K] = 63 * 15, [DTYPE_Q5_K] = 63 * 31,
        [DTYPE_Q6_K] = 127 * 32,  [DTYPE_Q4_1] = 15,  [DTYPE_Q5_0] = 16,      [DTYPE_Q5_1] = 31,
        [DTYPE_IQ4_NL] = 127,     [DTYPE_MXFP4] = 12, [DTYPE_Q3_K] = 32 * 4,  [DTYPE_Q2_K] = 15 * 3,
        [DTYPE_IQ4_XS] = 32 * 127};
    bool wide = dtype == DTYPE_Q4_K || dtype == DTYPE_Q5_K, one = dtype == DTYPE_Q4_1 || dtype == DTYPE_Q5_1;
    float d = scale / largest[dtype] * (1 + random_float() / 2);
    float min = scale * (random_float() + 1) / (wide ? 63 * 4 : one ? -2 : 15 * 2); // Q4_1 and Q5_1 add it
    bool turned = random_u32() % 2; // the mean of all blocks is about 0
    uint16_t bits[2] = {float_to_half(turned ? -d : d), float_to_half(turned ? -min : min)};
    if (dtype == DTYPE_MXFP4)
        block[0] = (char)(128 + (int)floorf(log2f(d)));
    else
        memcpy(block + quants_scale_offset(dtype), bits, quants_has_minimum(dtype) ? 4 : 2);
}

// A random matrix as a file holds it; the caller frees data.
static inline struct tensor random_tensor(enum dtype dtype, int rows, int cols, float scale) {
    size_t row_bytes = dtype_row_bytes(dtype, cols);
    char *data = must_calloc((size_t)rows, row_bytes);
    for (int r = 0; r < rows; r++) {
        char *row = data + (size_t)r * row_bytes;
        int block = dtype_block(dtype), bytes = (int)dtype_row_bytes(dtype, block);
        if (block > 1) { // any bits are numbers; only the f16 scales are chosen
            for (size_t i = 0; i < row_bytes; i++)
                row[i] = (char)random_u32();
            for (int b = 0; b < cols / block; b++)
                random_scales(row + b * bytes, dtype, scale);
        } else {
            for (int c = 0; c < cols; c++)
                ref_store(row + dtype_row_bytes(dtype, c), dtype, random_float() * scale);
        }
    }
    return (struct tensor){data, dtype, 2, {rows, cols}};
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
    for (int i = 0; i < n; i++) {
        w->part[i] = random_tensor(dtype, rows[i], cols, 1.7f / sqrtf((float)cols));
        if (role == WEIGHT_NORM) {
            w->part[i].ndim = 1;
            w->part[i].shape[0] = cols;
            for (int c = 0; c < cols; c++)
                ((float *)(uintptr_t)w->part[i].data)[c] = 1 + 0.3f * random_float();
        }
        if (bias) {
            w->bias[i] = random_tensor(DTYPE_F32, 1, rows[i], 0.5f);
            w->bias[i].ndim = 1;
            w->bias[i].shape[0] = rows[i];
        }
    }
}

static inline struct fixture *fixture_make(const struct shape *s, enum dtype dtype) {
    struct fixture *f = must_calloc(1, sizeof *f);
    struct model_config *m = &f->config;
    *m = (struct model_config){.num_layers = s->layers,
                               .hidden = s->hidden,
                               .num_heads = s->heads,
                               .num_kv_heads = s->kv_heads,
                               .head_dim = s->head_dim,
                               .ffn = s->ffn,
                               .vocab = s->vocab,
                               .max_context = 4096,
                               .norm_eps = 1e-5f,
                               .attn_scale = 1.0f / sqrtf((float)s->head_dim),
                               .window = s->window,
                               .logit_scale = 1,
                               .qk_norm = s->qk_norm,
                               .qkv_bias = s->bias,
                               .out_bias = s->bias};
    m->rope = (struct rope_config){
        .theta = 10000, .dim = s->head_dim, .interleaved = s->interleaved, .factor = 1, .attn_factor = 1};
    int D = s->hidden, q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    // quantised types need rows of whole blocks
    int block = dtype_block(dtype);
    enum dtype of_d = D % block == 0 ? dtype : DTYPE_F16;
    enum dtype of_q = q % block == 0 ? dtype : DTYPE_F16;
    enum dtype of_f = s->ffn % block == 0 ? dtype : DTYPE_F16;
    fixture_add(f, WEIGHT_EMBED, -1, of_d, 1, &s->vocab, D, false);
    int one = 1;
    for (int l = 0; l < s->layers; l++) {
        fixture_add(f, WEIGHT_NORM, l, DTYPE_F32, 1, &one, D, false);
        fixture_add(f, WEIGHT_QKV, l, of_d, 3, (int[]){q, kv, kv}, D, s->bias);
        if (s->qk_norm) {
            fixture_add(f, WEIGHT_NORM, l, DTYPE_F32, 1, &one, s->head_dim, false);
            fixture_add(f, WEIGHT_NORM, l, DTYPE_F32, 1, &one, s->head_dim, false);
        }
        fixture_add(f, WEIGHT_ATTN_OUT, l, of_q, 1, &D, q, s->bias);
        fixture_add(f, WEIGHT_NORM, l, DTYPE_F32, 1, &one, D, false);
        fixture_add(f, WEIGHT_GATE_UP, l, of_d, 2, (int[]){s->ffn, s->ffn}, D, false);
        fixture_add(f, WEIGHT_DOWN, l, of_f, 1, &D, s->ffn, false);
    }
    fixture_add(f, WEIGHT_NORM, -1, DTYPE_F32, 1, &one, D, false);
    fixture_add(f, WEIGHT_HEAD, -1, of_d, 1, &s->vocab, D, false);
    return f;
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
    struct device *dev;
    struct model model;
    struct layer layers[8];
    struct workspace ws;
    struct step_limits limits;
    int block_size;
    uint64_t seq;
};

struct setup {
    const struct backend_ops *ops;
    const char *variant;
    int threads, block_size;
    enum dtype kv_dtype;
};

enum { INSTANCE_EXACT = 1, INSTANCE_NO_LOGITS = 2 };

// NULL with a message where the machine lacks the variant.
static inline struct instance *instance_open_as(const struct fixture *f, struct setup s, int flags,
                                                int max_tokens, int max_context, int num_seqs) {
    struct instance *in = must_calloc(1, sizeof *in);
    struct err err = {0};
    struct device_config config = {.model = &f->config,
                                   .num_threads = s.threads,
                                   .variant = s.variant,
                                   .kv_dtype = s.kv_dtype,
                                   .block_size = s.block_size,
                                   .exact = flags & INSTANCE_EXACT,
                                   .world = 1};
    in->ops = s.ops;
    in->block_size = s.block_size;
    in->dev = s.ops->open(NULL, &config, &err);
    if (!in->dev) {
        printf("  not here: %s\n", err.msg);
        free(in);
        return NULL;
    }
    in->model.config = f->config;
    in->model.layers = in->layers;
    const struct weight *w[256];
    for (int i = 0; i < f->num_weights; i++)
        if (!(w[i] = s.ops->weight_load(in->dev, &f->weights[i], &err))) {
            printf("weight %d: %s\n", i, err.msg);
            abort();
        }
    int n = 0;
    in->model.embed = w[n++];
    for (int l = 0; l < f->config.num_layers; l++) {
        struct layer *layer = &in->layers[l];
        layer->index = l;
        layer->attn_norm = w[n++];
        layer->qkv = w[n++];
        if (f->config.qk_norm) {
            layer->q_norm = w[n++];
            layer->k_norm = w[n++];
        }
        layer->attn_out = w[n++];
        layer->ffn_norm = w[n++];
        layer->gate_up = w[n++];
        layer->down = w[n++];
    }
    in->model.out_norm = w[n++];
    in->model.head = w[n++];
    in->limits =
        (struct step_limits){.max_tokens = max_tokens,
                             .max_seqs = num_seqs,
                             .max_rows = max_tokens,
                             .max_context = max_context,
                             .num_blocks = num_seqs * ((max_context + s.block_size - 1) / s.block_size),
                             .keep_logits = !(flags & INSTANCE_NO_LOGITS)};
    if (s.ops->reserve(in->dev, &in->limits, &in->ws, &err) != STATUS_OK) {
        printf("reserve: %s\n", err.msg);
        abort();
    }
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

// The block that holds tokens [i*B, (i+1)*B) of a sequence: scattered, but each its own.
static inline int32_t block_of(const struct instance *in, int seq, int i) {
    int per_seq = in->limits.num_blocks / in->limits.max_seqs;
    int n = seq * per_seq + i, all = in->limits.num_blocks;
    int stride = all % 7 ? 7 : all % 11 ? 11 : 1; // coprime to the number of blocks
    return (int32_t)((long long)n * stride % all);
}

// Some rows of one sequence.
struct piece {
    int seq;          // which sequence's blocks
    int start, count; // rows are tokens [start, start + count)
    bool rows;        // every row gets logits, not only the last
};

struct batch {
    struct step step;
    int32_t ids[8192], positions[8192], query_start[257], context_len[256], block_start[257],
        block_ids[65536];
    int64_t slots[8192];
    struct head_row rows[8192];
};

// The token at a position of a sequence.
static inline int32_t token_at(const struct instance *in, int seq, int position) {
    return (int32_t)((unsigned)(seq * 7919 + position * 104729 + 17) % (unsigned)in->model.config.vocab);
}

// Pieces that decode (one row) come first.
static inline struct batch *batch_make(struct instance *in, const struct piece *pieces, int n) {
    struct batch *b = must_calloc(1, sizeof *b);
    struct step *s = &b->step;
    int t = 0, r = 0, nb = 0;
    for (int i = 0; i < n; i++) {
        const struct piece *p = &pieces[i];
        b->query_start[i] = t;
        b->block_start[i] = nb;
        b->context_len[i] = p->start + p->count;
        if (p->count == 1 && s->num_decode == i)
            s->num_decode++;
        for (int j = 0; j * in->block_size < p->start + p->count; j++)
            b->block_ids[nb++] = block_of(in, p->seq, j);
        for (int j = 0; j < p->count; j++, t++) {
            int pos = p->start + j;
            b->ids[t] = token_at(in, p->seq, pos);
            b->positions[t] = pos;
            b->slots[t] =
                (int64_t)block_of(in, p->seq, pos / in->block_size) * in->block_size + pos % in->block_size;
            if (p->rows || j == p->count - 1)
                b->rows[r++] = (struct head_row){.row = t, .target = -1, .top_p = 1, .num_logprobs = 2};
        }
        s->max_query_len = p->count > s->max_query_len ? p->count : s->max_query_len;
        s->max_context_len = b->context_len[i] > s->max_context_len ? b->context_len[i] : s->max_context_len;
    }
    b->query_start[n] = t;
    b->block_start[n] = nb;
    s->num_tokens = t;
    s->num_seqs = n;
    s->num_rows = r;
    s->seq = ++in->seq;
    s->ids = b->ids, s->positions = b->positions, s->slots = b->slots, s->query_start = b->query_start;
    s->context_len = b->context_len, s->block_start = b->block_start, s->block_ids = b->block_ids,
    s->rows = b->rows;
    return b;
}

// As model_forward(). Returns whether a recorded step was replayed instead.
static inline bool forward(struct instance *in, const struct step *step) {
    const struct backend_ops *ops = in->ops;
    struct workspace *ws = &in->ws;
    if (ops->step_begin(in->dev, step))
        return true;
    ops->embed(in->dev, ws->resid, in->model.embed, step);
    for (int i = 0; i < in->model.config.num_layers; i++) {
        ops->qkv(in->dev, ws->q, ws->resid, &in->layers[i], step);
        if (step->num_decode > 0)
            ops->attn_decode(in->dev, ws->h, ws->q, &in->layers[i], step);
        if (step->num_decode < step->num_seqs)
            ops->attn_prefill(in->dev, ws->h, ws->q, &in->layers[i], step);
        ops->proj_add(in->dev, ws->resid, ws->h, in->layers[i].attn_out, step);
        ops->mlp_in(in->dev, ws->h, ws->resid, &in->layers[i], step);
        ops->proj_add(in->dev, ws->resid, ws->h, in->layers[i].down, step);
    }
    ops->head(in->dev, ws->resid, &in->model, step);
    ops->step_end(in->dev);
    return false;
}

// Runs pieces as one step; the results stay valid until the next step but one.
static inline struct step_out run_pieces(struct instance *in, const struct piece *pieces, int n) {
    struct batch *b = batch_make(in, pieces, n);
    struct step_out out;
    forward(in, &b->step);
    if (in->ops->sync(in->dev, &out, NULL) != STATUS_OK)
        abort();
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
