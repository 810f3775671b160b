// The blueprint of a model: its configuration, and its weights with a shape on every pointer.
//
// Letters used for shapes everywhere: T rows (tokens) of a step, S sequences, D hidden size, H query heads,
// K key/value heads, d head size, F feed-forward size, V vocabulary, B block size, L layers, R head rows.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weight; // a matrix or vector in a backend's own layout; made by backend_ops.weight_load

enum { MODEL_MAX_LAYERS = 1024 };

enum rope_scaling { ROPE_NONE, ROPE_LINEAR, ROPE_YARN, ROPE_LLAMA3 };

struct rope_config {
    float theta;                // base frequency, 10000 by default
    int dim;                    // rotated leading dimensions of a head; even, <= d
    bool interleaved;           // pairs (2i, 2i+1), as GGUF stores `llama`; else (i, i + dim/2)
    enum rope_scaling scaling;  //
    float factor;               // LINEAR, YARN, LLAMA3: context is stretched by this
    int original_context;       // YARN, LLAMA3: context the model was trained on
    float low_freq, high_freq;  // LLAMA3: 1, 4
    float beta_fast, beta_slow; // YARN: 32, 1
    float attn_factor;          // cos and sin are multiplied by it; 1: none (0 counts as 1)
    const float *freq_factors;  // (dim/2) divides each frequency, or NULL; owned by the model file
};

struct model_config {
    char arch[32], name[128];
    int num_layers;   // L
    int hidden;       // D
    int num_heads;    // H
    int num_kv_heads; // K, divides H
    int head_dim;     // d
    int ffn;          // F
    int vocab;        // V
    int max_context;  // tokens the model was trained for
    float norm_eps;
    float attn_scale;  // usually 1 / sqrt(d)
    int window;        // sliding window in tokens, the query's own included; 0: full attention
    float logit_scale; // 1: none
    bool qk_norm;      // RMSNorm of each head's q and k before RoPE
    bool qkv_bias;     // q, k and v are matrix and bias
    bool out_bias;     // and so is the attention output
    bool tied;         // the head is the embedding table
    struct rope_config rope;
};

struct layer {
    int index;
    const struct weight *attn_norm; // (D)
    const struct weight *qkv;       // (H*d + 2*K*d, D) rows q, k, v; with biases where the model has them
    const struct weight *q_norm;    // (d) or NULL
    const struct weight *k_norm;    // (d) or NULL
    const struct weight *attn_out;  // (D, H*d) row-parallel: summed as 8 segments; perhaps with a bias
    const struct weight *ffn_norm;  // (D)
    const struct weight *gate_up;   // (2*F, D) gate and up
    const struct weight *down;      // (D, F) row-parallel: summed as 8 segments
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
