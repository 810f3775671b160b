// The blueprint of a model: its configuration, and its weights with a shape on every pointer.
//
// Letters used for shapes everywhere: T rows (tokens) of a step, S sequences, D hidden size, H query heads,
// K key/value heads, d head size, F feed-forward size, V vocabulary, B block size, L layers, R logits rows.
#pragma once

#include "kv_group.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weight; // a matrix or vector in a backend's own layout; made by backend_ops.weight_load

enum { MODEL_MAX_LAYERS = 1024, MODEL_MAX_SPECS = 8, MODEL_MAX_ROPES = 4 };

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
    float attn_factor;          // cos and sin are multiplied by it; 1: none (0 counts as 1)
    const float *freq_factors;  // (dim/2) divides each frequency, or NULL; owned by the model file
    const float
        *long_factors; // in their place where more than original_context is served (LongRoPE), or NULL
};

enum qk_norm { // RMSNorm of q and k
    QK_NORM_NONE,
    QK_NORM_HEADS,   // of each head, before RoPE
    QK_NORM_ROTATED, // of each head, after it
    QK_NORM_WHOLE,   // of all heads of q, and of k, as one vector, before RoPE
};

// How a layer attends. Layers that attend alike share one spec.
struct attn_spec {
    int index;     // its place in model_config.attn: a backend keeps one table or work list per spec
    int heads;     // H
    int kv_heads;  // K, divides H
    int head_dim;  // d
    int window;    // tokens that a query sees, its own included; 0: all before it
    float scale;   // of the products of queries and keys, usually 1 / sqrt(d)
    float softcap; // scores become softcap * tanh(score / softcap) after scaling; 0: stay
    int rope;      // index into model_config.ropes; -1: positions do not rotate
    enum qk_norm qk_norm;
    bool qkv_bias; // q, k and v are matrix and bias
    bool out_bias; // and so is the attention output
};

enum act {
    ACT_SILU,
    ACT_GELU, // approximated by tanh
};

// What follows attention: act(gate) * up, down.
struct ffn_spec {
    int index;  // its place in model_config.ffn
    int hidden; // F
    enum act act;
};

struct layer_spec {
    uint8_t attn, ffn; // into model_config.attn and .ffn
    uint8_t kv_group;  // whose pages hold its keys and values
    uint16_t kv_layer; // its place in those pages, [0, kv_layers)
};

struct model_config {
    char arch[32], name[128];
    int num_layers;  // L
    int hidden;      // D
    int vocab;       // V
    int max_context; // tokens the model was trained for
    float norm_eps;
    // Factors of rows of the embedding, of what attention and feed-forward add to the residual stream, and of
    // logits; 1: none (0 counts as 1)
    float embed_scale, residual_scale, logit_scale;
    float logit_softcap; // as attn_spec.softcap, of logits
    bool post_norms;     // what attention and feed-forward give is normalised before it is added
    bool tied;           // the head is the embedding table

    int num_attn, num_ffn, num_ropes, num_groups;
    int kv_layers;                          // layers that a page has room for: the most of any group
    struct attn_spec attn[MODEL_MAX_SPECS]; // (num_attn) distinct
    struct ffn_spec ffn[MODEL_MAX_SPECS];   // (num_ffn) distinct
    struct rope_config ropes[MODEL_MAX_ROPES];
    struct kv_group_spec groups[KV_MAX_GROUPS];
    struct layer_spec layers[MODEL_MAX_LAYERS]; // (L)
};

static inline float model_scale(float scale) { return scale == 0 ? 1 : scale; }

static inline const struct attn_spec *model_attn(const struct model_config *c, int layer) {
    return &c->attn[c->layers[layer].attn];
}

static inline const struct ffn_spec *model_ffn(const struct model_config *c, int layer) {
    return &c->ffn[c->layers[layer].ffn];
}

struct layer {
    int index;
    struct attn_spec attn;
    struct ffn_spec ffn;
    int kv_group, kv_layer;         // as in layer_spec
    const struct weight *attn_norm; // (D) or NULL
    const struct weight *qkv;       // (H*d + 2*K*d, D) rows q, k, v; with biases where the spec has them
    const struct weight *q_norm;    // (d), (H*d) with QK_NORM_WHOLE, or NULL
    const struct weight *k_norm;    // (d), (K*d) with QK_NORM_WHOLE, or NULL
    const struct weight *attn_out;  // (D, H*d) row-parallel: summed as 8 segments; perhaps with a bias
    const struct weight *ffn_norm;  // (D) or NULL
    const struct weight *gate_up;   // (2*F, D) gate and up
    const struct weight *down;      // (D, F) row-parallel: summed as 8 segments
    const struct weight *attn_post_norm, *ffn_post_norm; // (D), with post_norms
};

struct model {
    struct model_config config;
    const struct weight *embed;    // (V, D)
    struct layer *layers;          // (L), owned
    const struct weight *out_norm; // (D)
    const struct weight *head;     // (V, D)
};

#ifdef __cplusplus
}
#endif
