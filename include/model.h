// The blueprint of a model: its configuration, and its weights, whose shapes weights.def has.
//
// Letters used for shapes everywhere: T rows (tokens) of a step, S sequences, D hidden size, H query heads,
// K key/value heads, d head size, F feed-forward size, V vocabulary, B block size, L layers, R logits rows, E experts.
#pragma once

#include "kv_group.h"
#include "pooling.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weight; // a matrix or vector in a backend's own layout; made by backend_ops.weight_load

enum {
    MODEL_MAX_LAYERS = 1024,
    MODEL_MAX_SPECS = 8,
    MODEL_MAX_FFNS = 32,
    MODEL_MAX_ROPES = 4,
    MODEL_NO_HEAD_DIM = 2, // head_dim of the one spec of a model without attention
    ALTUP_STREAMS = 4
};

// The axes of a row's rotation: time, height and width in an image or a video; equal in text.
enum { ROPE_AXES = 3 };

// How the pairs of a head share the axes (M-RoPE: Qwen2-VL, 2024): size[a] rotate by axis a, dim / 2 in all. Sizes of 0: the
// rotation knows one axis.
struct rope_sections {
    int size[ROPE_AXES];
    // Pairs take the axes in turns, those of height and width until they have their sizes, and all others that of time
    // (Qwen3-VL, 2025); else the sections lie one behind the other.
    bool in_turns;
};

enum rope_scaling { ROPE_NONE, ROPE_LINEAR, ROPE_YARN, ROPE_LLAMA3 };

struct rope_config {
    float theta;                // base frequency, 10000 by default
    int dim;                    // rotated leading dimensions of a head; even, <= d
    bool interleaved;           // pairs (2i, 2i+1), as GGUF stores `llama`; else (i, i + dim/2)
    enum rope_scaling scaling;  // which formula stretches the context
    float factor;               // LINEAR, YARN, LLAMA3: context is stretched by this
    int original_context;       // YARN, LLAMA3: context the model was trained on
    float low_freq, high_freq;  // LLAMA3: 1, 4
    float beta_fast, beta_slow; // YARN: 32, 1
    bool fine_ramp;             // YARN: its ramp begins and ends between pairs, else at whole ones
    float attn_factor;          // cos and sin are multiplied by it; 1: none (0 counts as 1)
    const float *freq_factors;  // (dim/2) divides each frequency, or NULL; owned by the model file
    // in place of freq_factors if more than original_context is served (LongRoPE), or NULL
    const float *long_factors;
    struct rope_sections sections;
};

enum qk_norm { // norms of q and k, of the model's kind
    QK_NORM_NONE,
    QK_NORM_HEADS,   // of each head, before RoPE
    QK_NORM_ROTATED, // of each head, after it
    QK_NORM_WHOLE,   // of all heads of q, and of k, as one vector, before RoPE
    QK_NORM_EACH,    // of each head by weights of its own, before RoPE
    QK_NORM_UNIT,    // of each head, after RoPE, without weights; RMSNorm
};

enum attn_kind {
    ATTN_GROUPED, // every kv head has a key and a value, which H / K query heads share
    ATTN_LATENT,  // all heads share one latent vector (DeepSeek-V2, 2024): K is 1
};

// How a layer attends. Layers that attend alike share one spec.
struct attn_spec {
    int index; // its place in model_config.attn: a backend keeps one table or work list per spec
    enum attn_kind kind;
    int heads;          // H
    int kv_heads;       // K, divides H
    int head_dim;       // d, of what the cache keeps; ATTN_LATENT: kv_lora + rope_dim
    int kv_places;      // places of a page that the layer's keys take, and its values; 0 counts as 1
    int window;         // tokens that a query sees, its own included; 0: all before it
    bool chunked;       // it sees those of its chunk instead, which begins at a multiple of `window`
    bool bidirectional; // it sees those after it, too: all, or window / 2 on either side
    float scale;        // of the products of queries and keys, usually 1 / sqrt(d)
    float softcap;      // scores become softcap * tanh(score / softcap) after scaling; 0: stay
    float clip;         // queries, keys and values are cut to [-clip, clip] after their bias; 0: stay
    // A query at position p is multiplied by 1 + temp_scale * ln(1 + (p + temp_offset) / temp_step), the quotient rounded
    // down, last of all; temp_scale 0: stays
    float temp_scale;
    int temp_step, temp_offset;
    int rope; // index into model_config.ropes; -1: positions do not rotate
    enum qk_norm qk_norm;
    bool qkv_bias; // q, k and v are matrix and bias
    bool out_bias; // and so is the attention output
    // it has no keys and values of its own: it reads those of the last layer before it that has, with the same window
    bool shares_kv;
    bool tied_values; // values are keys before their norm, of one matrix
    bool v_norm;      // values are normalised as QK_NORM_UNIT does it
    bool gate;        // the output of attention is multiplied by sigmoid of a projection of the layer's input
    bool sinks;       // each head has a logit more in its softmax, which takes a part and gives no value
    // ATTN_LATENT: a cached vector is the latent, normalised, then one key of rope_dim that is rotated. The latent is
    // also the value.
    int kv_lora;            // C, of the latent
    int q_lora;             // U, of the latent that queries come from; 0: they come from the residual stream
    int nope_dim, rope_dim; // n, r: of a query, not rotated and then rotated
    int v_dim;              // v, of a head's value
};

// Columns of the attention output's matrix.
static inline int attn_out_size(const struct attn_spec *a) {
    return a->heads * (a->kind == ATTN_LATENT ? a->v_dim : a->head_dim);
}

// Vectors of head_dim that the cache keeps of a token and kv head: key and value, which may be one.
static inline int attn_kv_vectors(const struct attn_spec *a) { return a->kind == ATTN_LATENT ? 1 : 2; }

// Elements of the keys, or the values, of a token.
static inline int attn_kv_size(const struct attn_spec *a) { return a->kv_heads * a->head_dim; }
static inline int attn_kv_places(const struct attn_spec *a) { return a->kv_places > 1 ? a->kv_places : 1; }

static inline float attn_clipped(const struct attn_spec *a, float x) { // a NaN stays one
    return a->clip <= 0 ? x : x > a->clip ? a->clip : x < -a->clip ? -a->clip : x;
}

// The tokens that the query at `position` sees, [*begin, *end), of a sequence that has `context` of them.
static inline void attn_seen(const struct attn_spec *a, int position, int context, int *begin, int *end) {
    int half = a->window > 0 ? a->window / 2 : context;
    *begin = a->bidirectional ? (position > half ? position - half : 0)
                              : kv_first_seen(position, a->window, a->chunked);
    *end = !a->bidirectional ? position + 1 : context - position > half ? position + half + 1 : context;
}

enum act {
    ACT_SILU,
    ACT_GELU,     // approximated by tanh
    ACT_GELU_ERF, // exact
    ACT_RELU2,    // max(x, 0)^2
    ACT_RELU,
    ACT_CLAMPED, // g * sigmoid(1.702 g) * (u + 1), gate at most 7, up within [-7, 7]
    NUM_ACTS,
    ACT_XIELU = NUM_ACTS, // by parameters of the layer, without a gate: a pass of its own
};

// ACT_XIELU (Huang and Schlag, 2024): above 0 positive * x^2 + beta * x, else negative * (e^min(x, eps) - 1 - x) + beta * x
struct xielu {
    float positive, negative, beta, eps;
};

enum gating {              // how scores come of the router's logits (kernels/README.md, rule 20)
    GATING_SOFTMAX,        // of all experts
    GATING_SOFTMAX_CHOSEN, // of those that are chosen, by their logits
    GATING_SIGMOID,
    GATING_IN_TURN, // of each chosen one among those left that are near it (SparseMixer, 2024)
};

// The feed-forward of a layer, or of each expert, whose results are summed by their weights:
//   h = act(gate(x)) * up(x); no_gate: act(up(x))
//   y = down(h)
struct ffn_spec {
    int index;  // its place in model_config.ffn
    int hidden; // F; of one expert where there are some; 0: the layer has none
    enum act act;
    bool no_gate;
    bool in_bias;  // gate and up are matrix and bias
    bool out_bias; // and so is down
    // Gates count as how far they lie above their mean plus this many of their standard deviations, or 0 (Gemma 3n, 2025)
    bool sparse;
    float deviations;
    int experts; // E; 0: none, and nothing below counts
    int top_k;   // experts of a row
    // over 1: only experts of the top_groups best groups: by their best with GATING_SOFTMAX, else by the sum of their
    // two best
    int groups;
    int top_groups;
    enum gating gating;
    bool renormalise;  // the weights of a row are divided by their sum
    float scale;       // then times this; 0 counts as 1
    bool weigh_input;  // a row is multiplied by the weight before it goes into the expert, not what comes out
    int shared_hidden; // S, of an expert for all rows, whose output is added; 0: none
    bool shared_gate;  // and is multiplied by sigmoid(shared_gate . x)
    float shared_scale; // and by this; 0 counts as 1
    bool early_router;  // the router takes the residual stream without attention's part, as it is
    int latent;         // elements of what experts take and give, between two matrices of the layer; 0: D
    bool router_bias, select_bias, expert_bias;
    bool sum_bias; // a bias is added to the sum of experts; of BLOCK_SUM_NORM
    // The shared expert, the router and the experts take the residual stream by a norm each, and what the first and the
    // last give has one before they are added.
    bool own_norms;
    float router_scale; // of the router's logits; 0 counts as 1
    float near;         // GATING_IN_TURN: logits this part of the largest, or of their own size, below it
    bool expert_scale;  // the weight of an expert is multiplied by a factor of its own, last of all
};

// Elements of what experts take and give, of D.
static inline int ffn_expert_dim(const struct ffn_spec *f, int hidden) {
    return f->latent ? f->latent : hidden;
}

enum norm_kind { NORM_RMS, NORM_LAYER }; // RMSNorm; LayerNorm, which subtracts the mean

enum block_kind {
    BLOCK_SEQUENTIAL, // feed-forward takes the residual stream with what attention has added
    BLOCK_PARALLEL,   // feed-forward takes what attention takes, each by its own norm; both are added
    BLOCK_ONE_NORM,   // the same, by one norm
    BLOCK_SUM_NORM,   // as SEQUENTIAL, but what is normalised is the residual stream after each sum (BERT)
};
static inline bool block_is_parallel(enum block_kind b) { return b == BLOCK_PARALLEL || b == BLOCK_ONE_NORM; }

// How a layer mixes tokens by a state of fixed size, in place of attention or beside it. Heads have a state (N, P) each:
// N elements of q and k, P of v. kernels/README.md, rule 19, says how it changes.
enum mix_kind {
    MIX_NONE,
    MIX_CONV,  // a gated short convolution alone: no state but its window (LFM2)
    MIX_DELTA, // gated delta rule (Qwen 3.5)
    MIX_SSM,   // Mamba 2, whose C, B and x are q, k and v
};

struct mix_spec {
    int index; // its place in model_config.mix
    enum mix_kind kind;
    int heads;      // MIX_CONV: channels
    int groups;     // that share q and k, divides heads; MIX_CONV: 0
    int key_dim;    // N; MIX_CONV: 0
    int head_dim;   // P; MIX_CONV: 1
    int taps;       // of the convolution of q, k and v over tokens, 2 to MIX_MAX_TAPS
    bool tiled;     // head h is of group h % groups, else of h / (heads / groups)
    bool conv_bias; // the convolution has a bias
    bool norm;      // MIX_SSM: of the output, over the heads of each group
};
enum { MIX_MAX_TAPS = 16 };

// Values of all heads, channels of the convolution, and elements of the state of a layer.
static inline int mix_values(const struct mix_spec *m) { return m->heads * m->head_dim; }
static inline int mix_channels(const struct mix_spec *m) {
    return mix_values(m) + 2 * m->groups * m->key_dim;
}
static inline int64_t mix_state_size(const struct mix_spec *m) {
    return (int64_t)(m->taps - 1) * mix_channels(m) + (int64_t)mix_values(m) * m->key_dim;
}

enum { MODEL_NO_SPEC = 255 };

struct layer_spec {
    uint8_t attn, ffn, mix; // into model_config.attn, .ffn and .mix; attn and mix MODEL_NO_SPEC: none
    uint8_t kv_group;       // its pages hold the layer's keys and values
    uint8_t state_group;    // its pages hold the layer's recurrent state
    uint16_t kv_layer;      // its first place in those pages, [0, kv_layers)
    uint16_t state_layer;   // [0, state_layers)
    struct xielu xielu;
};

struct model_config {
    char arch[32], name[128];
    int num_layers; // L
    int num_nextn; // layers behind those in the file, which predict further tokens: not loaded with the model
    // This is the MTP layer of another model (multi-token prediction: DeepSeek-V3, 2024), its only one, and the file's
    // layer of this number; 0: it is none. It takes the token behind each row of the other model's final norm, with that
    // row, and predicts the token behind that.
    int mtp_layer;
    bool mtp_embed, mtp_head,
        mtp_norm;          // it has an embedding, a head and a final norm of its own: else the other's
    bool mtp_hidden_first; // of MTP_PROJ's columns; else those of the embedding
    int hidden;            // D
    int vocab;             // V
    int max_context;       // tokens the model was trained for
    enum norm_kind norm;
    float norm_eps;
    enum block_kind block;
    // Factors of rows of the embedding, of what attention and feed-forward add to the residual stream, and of
    // logits; 1: none (0 counts as 1)
    float embed_scale, residual_scale, logit_scale;
    float logit_softcap; // as attn_spec.softcap, of logits
    bool post_norms;     // outputs of attention and feed-forward are normalised before they are added
    bool norm_bias;      // norms, but those of q and k, are weight and bias
    bool head_bias;      // and so is the head
    bool tied;           // the head is the embedding table
    // Tables whose rows are added to the scaled rows of the embedding; with embed_norm the sum has a norm of its own
    int positions;   // rows of a table of positions; 0: none
    int token_types; // rows of a table of types; 0: none
    bool embed_norm;
    int layer_embed;  // P, elements of the embedding that each layer has of its own (Gemma 3n, 2025); 0: none
    int layer_vocab;  // rows of its table, at most V; tokens behind them take the first
    bool layer_scale; // a layer ends with a factor of the residual stream
    // The residual stream is the first of as many, which layers predict and correct (AltUp, 2023): ALTUP_STREAMS,
    // with layer_embed and post_norms, or 0. R: rank of what is added beside attention (LAuReL, 2024).
    int altup_streams, laurel_rank;
    enum pooling pooling;      // other than NONE, never RANK: the head is not loaded, no token is sampled
    enum pooling rank_pooling; // of the classifier's input
    bool is_reranker;          // it has a classifier: a pair of texts gets a score
    bool raw_vectors;          // vectors are used as they are, not scaled to length 1

    int num_attn, num_ffn, num_mix, num_ropes, num_groups;
    int kv_layers;    // places of a page for keys and values of a layer: the most of any group
    int state_layers; // layers whose states a page has room for
    struct attn_spec attn[MODEL_MAX_SPECS]; // (num_attn) distinct
    struct ffn_spec ffn[MODEL_MAX_FFNS];    // (num_ffn) distinct
    struct mix_spec mix[MODEL_MAX_SPECS];   // (num_mix) distinct
    struct rope_config ropes[MODEL_MAX_ROPES];
    struct kv_group_spec groups[KV_MAX_GROUPS];
    struct layer_spec layers[MODEL_MAX_LAYERS]; // (L)
};

// Whether a token sees those after it: a sequence is computed in one step, whole, and none of it for another.
static inline bool model_is_bidirectional(const struct model_config *c) { return c->attn[0].bidirectional; }

// Whether every layer that rotates has sections for the axes.
static inline bool model_has_axes(const struct model_config *c) {
    int rotate = 0, have = 0;
    for (int i = 0; i < c->num_attn; i++) {
        const struct attn_spec *a = &c->attn[i];
        rotate += a->rope >= 0;
        have += a->rope >= 0 && a->kind == ATTN_GROUPED && c->ropes[a->rope].sections.size[0] > 0;
    }
    return rotate > 0 && have == rotate;
}

static inline float model_scale(float scale) { return scale == 0 ? 1 : scale; }

// NULL: the layer has none.
static inline const struct attn_spec *model_attn(const struct model_config *c, int layer) {
    return c->layers[layer].attn < c->num_attn ? &c->attn[c->layers[layer].attn] : NULL;
}
static inline const struct mix_spec *model_mix(const struct model_config *c, int layer) {
    return c->layers[layer].mix < c->num_mix ? &c->mix[c->layers[layer].mix] : NULL;
}

// Elements of the keys, or the values, of a token in one place of a page, and how many heads they are of: the most of any
// spec. All layers take a place where all keep the same.
static inline int model_kv_size(const struct model_config *c) {
    int size = 0;
    for (int i = 0; i < c->num_attn; i++) {
        int places = attn_kv_places(&c->attn[i]), n = (attn_kv_size(&c->attn[i]) + places - 1) / places;
        size = n > size ? n : size;
    }
    return size;
}
static inline int model_kv_heads(const struct model_config *c) {
    int heads = 0;
    for (int i = 0; i < c->num_attn; i++) {
        int places = attn_kv_places(&c->attn[i]), n = (c->attn[i].kv_heads + places - 1) / places;
        heads = n > heads ? n : heads;
    }
    return heads;
}

static inline const struct ffn_spec *model_ffn(const struct model_config *c, int layer) {
    return &c->ffn[c->layers[layer].ffn];
}

// Whether a layer needs the residual stream without attention's part when that is added.
static inline bool model_keeps_before(const struct model_config *c) {
    bool early = block_is_parallel(c->block);
    for (int i = 0; i < c->num_ffn; i++)
        early |= c->ffn[i].early_router;
    return early;
}

// The most elements of a layer's state.
static inline int64_t model_state_size(const struct model_config *c) {
    int64_t size = 0;
    for (int i = 0; i < c->num_mix; i++)
        size = mix_state_size(&c->mix[i]) > size ? mix_state_size(&c->mix[i]) : size;
    return size;
}

struct layer {
    int index;
    struct attn_spec attn; // heads 0: none
    struct ffn_spec ffn;
    struct mix_spec mix;    // kind MIX_NONE: none
    int kv_group, kv_layer; // as in layer_spec
    int state_group, state_layer;
    struct xielu xielu;
    // The rows of weights.def; NULL: the layer lacks it. With BLOCK_ONE_NORM ffn_norm is as attn_norm.
#define LAYER_WEIGHT(role, field, ...) const struct weight *field;
#include "weights.def"
};

struct model {
    struct model_config config;
    struct layer *layers; // (L), owned
    // head: NULL with pooling
#define MODEL_WEIGHT(role, field, ...) const struct weight *field;
#define MODEL_WEIGHTS(role, field, count, ...) const struct weight *field[count];
#include "weights.def"
};

#ifdef __cplusplus
}
#endif
