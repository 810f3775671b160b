// Words that tables of several kinds of families share.
#pragma once

#include "family.h"

#define END                                                                                                  \
    { .theirs = NULL }
#define GRANITE                                                                                              \
    {"embedding_multiplier", "embedding_scale", HF_FLOAT},                                                   \
        {"residual_multiplier", "residual_scale", HF_FLOAT}, {"logits_scaling", "logit_scale", HF_FLOAT}, {  \
        "attention_multiplier", "attention.scale", HF_FLOAT                                                  \
    }
#define TIED "\"tie_word_embeddings\": true"
#define NO_WINDOW "\"use_sliding_window\": false"
#define GRANITE_DEFAULTS                                                                                     \
    "\"embedding_multiplier\": 1, \"residual_multiplier\": 1, \"logits_scaling\": 1, "                       \
    "\"attention_multiplier\": 1"
#define GELU "gelu_pytorch_tanh"
// Which layers have experts: config_each.c
#define EXPERT_LAYERS                                                                                        \
    {"decoder_sparse_step", NULL, HF_INT}, {"mlp_only_layers", NULL, HF_INT}, {                              \
        "mlp_layer_types", NULL, HF_INT                                                                      \
    }
#define SELECT_BIAS .ours = "exp_probs_b", .end = ".bias", .form = FORM_FLAT
// A layer of experts, and half of the MTP layer.
#define NEMOTRON_H_EXPERTS                                                                                   \
    {"mixer.gate", .ours = "ffn_gate_inp"}, {"mixer.gate.e_score_correction_bias", SELECT_BIAS},             \
        {"mixer.experts.#.up_proj", .ours = "ffn_up_exps"},                                                  \
        {"mixer.experts.#.down_proj", .ours = "ffn_down_exps"},                                              \
        {"mixer.fc1_latent_proj", .ours = "ffn_latent_down"},                                                \
        {"mixer.fc2_latent_proj", .ours = "ffn_latent_up"},                                                  \
        {"mixer.shared_experts.up_proj", .ours = "ffn_up_shexp"}, {                                          \
        "mixer.shared_experts.down_proj", .ours = "ffn_down_shexp"                                           \
    }

// Each ends with one without a model_type.
extern const struct hf_family hf_dense_families[], hf_expert_families[], hf_state_families[],
    hf_encoder_families[];
