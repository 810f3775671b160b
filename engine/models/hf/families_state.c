// Families of models with recurrent layers. See families.h. Names are those of transformers 4.57 and of the files on huggingface.co.
#include "families_shared.h"

// ---- tensors

#define MAMBA                                                                                                \
    {"mamba.in_proj", .ours = "ssm_in", .factor = FACTOR_SSM_IN},                                            \
        {"mamba.conv1d", .ours = "ssm_conv1d", .form = FORM_FLAT},                                           \
        {"mamba.A_log", .ours = "ssm_a", .end = "", .form = FORM_COLUMN, .decay = true},                     \
        {"mamba.D", .ours = "ssm_d", .end = "", .form = FORM_COLUMN},                                        \
        {"mamba.dt_bias", .ours = "ssm_dt", .end = ".bias"},                                                 \
        {"mamba.norm", .ours = "ssm_norm", .form = FORM_GROUPS}, {                                           \
        "mamba.out_proj", .ours = "ssm_out", .factor = FACTOR_SSM_OUT                                        \
    }
static const struct hf_name granite_hybrid_names[] = {
    MAMBA,
    {"shared_mlp.input_linear", .ours = "ffn_gate", .rows = ROWS_FIRST_HALF},
    {"shared_mlp.input_linear", .ours = "ffn_up", .rows = ROWS_SECOND_HALF},
    {"shared_mlp.output_linear", .ours = "ffn_down"},
    END,
};
static const struct hf_name granite_hybrid_moe_names[] = {
    MAMBA,
    {"block_sparse_moe.router.layer", .ours = "ffn_gate_inp"},
    {"block_sparse_moe.input_linear", .ours = "ffn_gate_exps", .rows = ROWS_FIRST_HALF},
    {"block_sparse_moe.input_linear", .ours = "ffn_up_exps", .rows = ROWS_SECOND_HALF},
    {"block_sparse_moe.output_linear", .ours = "ffn_down_exps"},
    {"shared_mlp.input_linear", .ours = "ffn_gate_shexp", .rows = ROWS_FIRST_HALF},
    {"shared_mlp.input_linear", .ours = "ffn_up_shexp", .rows = ROWS_SECOND_HALF},
    {"shared_mlp.output_linear", .ours = "ffn_down_shexp"},
    END,
};
static const struct hf_name falcon_h1_names[] = {
    MAMBA,
    {"self_attn.q_proj", .ours = "attn_q", .factor = FACTOR_ATTN_IN},
    {"self_attn.k_proj", .ours = "attn_k", .factor = FACTOR_KEY},
    {"self_attn.v_proj", .ours = "attn_v", .factor = FACTOR_ATTN_IN},
    {"self_attn.o_proj", .ours = "attn_output", .factor = FACTOR_ATTN_OUT},
    {"pre_ff_layernorm", .ours = "ffn_norm", .end = ""},
    {"feed_forward.gate_proj", .ours = "ffn_gate", .factor = FACTOR_GATE},
    {"feed_forward.up_proj", .ours = "ffn_up"},
    {"feed_forward.down_proj", .ours = "ffn_down", .factor = FACTOR_DOWN},
    END,
};
static const struct hf_name falcon_h1_whole[] = {
    {"model.embed_tokens", .ours = "token_embd", .factor = FACTOR_EMBED},
    {"model.final_layernorm", .ours = "output_norm"},
    {"lm_head", .ours = "output", .factor = FACTOR_HEAD},
    END,
};
#define LFM2                                                                                                 \
    {"operator_norm", .ours = "attn_norm"}, {"ffn_norm", .ours = "ffn_norm"},                                \
        {"self_attn.out_proj", .ours = "attn_output"}, {"self_attn.q_layernorm", .ours = "attn_q_norm"},     \
        {"self_attn.k_layernorm", .ours = "attn_k_norm"}, {"feed_forward.w1", .ours = "ffn_gate"},           \
        {"feed_forward.w3", .ours = "ffn_up"}, {"feed_forward.w2", .ours = "ffn_down"},                      \
        {"conv.in_proj", .ours = "shortconv.in_proj"},                                                       \
        {"conv.conv", .ours = "shortconv.conv", .form = FORM_FLAT}, {                                        \
        "conv.out_proj", .ours = "shortconv.out_proj"                                                        \
    }
static const struct hf_name lfm2_names[] = {
    LFM2,
    END,
};
static const struct hf_name lfm2_moe_names[] = {
    LFM2,
    {"feed_forward.gate", .ours = "ffn_gate_inp"},
    {"feed_forward.expert_bias", .ours = "exp_probs_b", .end = ".bias"},
    {"feed_forward.experts.#.w1", .ours = "ffn_gate_exps"},
    {"feed_forward.experts.#.w3", .ours = "ffn_up_exps"},
    {"feed_forward.experts.#.w2", .ours = "ffn_down_exps"},
    END,
};
static const struct hf_name lfm2_whole[] = {
    {"model.embedding_norm", .ours = "token_embd_norm"},
    END,
};
#define GATED                                                                                                \
    {"post_attention_layernorm", .ours = "post_attention_norm"}, {"self_attn.q_proj", .ours = "attn_q"}, {   \
        "linear_attn.norm", .ours = "ssm_norm", .unlike_norms = true                                         \
    } // q: and gates
#define DELTA                                                                                                \
    GATED, {"linear_attn.in_proj_qkv", .ours = "attn_qkv", .rows = ROWS_KEYS_VALUES},                        \
        {"linear_attn.in_proj_z", .ours = "attn_gate", .rows = ROWS_VALUES},                                 \
        {"linear_attn.in_proj_b", .ours = "ssm_beta", .rows = ROWS_HEADS},                                   \
        {"linear_attn.in_proj_a", .ours = "ssm_alpha", .rows = ROWS_HEADS},                                  \
        {"linear_attn.conv1d", .ours = "ssm_conv1d", .rows = ROWS_KEYS_VALUES, .form = FORM_FLAT},           \
        {"linear_attn.A_log", .ours = "ssm_a", .rows = ROWS_HEADS, .end = "", .decay = true},                \
        {"linear_attn.dt_bias", .ours = "ssm_dt", .rows = ROWS_HEADS, .end = ".bias"}, {                     \
        "linear_attn.out_proj", .ours = "ssm_out", .rows = COLUMNS_VALUES                                    \
    }
#define SHARED_EXPERT                                                                                        \
    {"mlp.gate", .ours = "ffn_gate_inp"},                                                                    \
        {"mlp.shared_expert_gate", .ours = "ffn_gate_inp_shexp", .form = FORM_FLAT},                         \
        {"mlp.shared_expert.gate_proj", .ours = "ffn_gate_shexp"},                                           \
        {"mlp.shared_expert.up_proj", .ours = "ffn_up_shexp"},                                               \
        {"mlp.shared_expert.down_proj", .ours = "ffn_down_shexp"},                                           \
        {"mlp.experts.#.gate_proj", .ours = "ffn_gate_exps"},                                                \
        {"mlp.experts.#.up_proj", .ours = "ffn_up_exps"}, {                                                  \
        "mlp.experts.#.down_proj", .ours = "ffn_down_exps"                                                   \
    }
static const struct hf_name qwen35_names[] = {
    DELTA,
    END,
};
static const struct hf_name qwen35_moe_names[] = {
    DELTA,
    SHARED_EXPERT,
    {"mlp.experts.gate_up_proj", .ours = "ffn_gate_exps", .rows = ROWS_FIRST_HALF},
    {"mlp.experts.gate_up_proj", .ours = "ffn_up_exps", .rows = ROWS_SECOND_HALF},
    {"mlp.experts.down_proj", .ours = "ffn_down_exps"},
    END,
};
static const struct hf_name qwen3_next_names[] = {
    GATED,
    SHARED_EXPERT,
    {"linear_attn.in_proj_qkvz", .ours = "attn_qkv", .rows = ROWS_MIXED_QKV},
    {"linear_attn.in_proj_qkvz", .ours = "attn_gate", .rows = ROWS_MIXED_GATES},
    {"linear_attn.in_proj_ba", .ours = "ssm_ba"},
    {"linear_attn.conv1d", .ours = "ssm_conv1d", .form = FORM_FLAT},
    {"linear_attn.A_log", .ours = "ssm_a", .end = "", .decay = true},
    {"linear_attn.dt_bias", .ours = "ssm_dt", .end = ".bias"},
    {"linear_attn.out_proj", .ours = "ssm_out"},
    END,
};

#define NEMOTRON_H                                                                                           \
    {"norm", .ours = "attn_norm"}, {"mixer.in_proj", .ours = "ssm_in"},                                      \
        {"mixer.conv1d", .ours = "ssm_conv1d", .form = FORM_FLAT},                                           \
        {"mixer.A_log", .ours = "ssm_a", .end = "", .form = FORM_COLUMN, .decay = true},                     \
        {"mixer.D", .ours = "ssm_d", .end = "", .form = FORM_COLUMN},                                        \
        {"mixer.dt_bias", .ours = "ssm_dt", .end = ".bias"},                                                 \
        {"mixer.norm", .ours = "ssm_norm", .form = FORM_GROUPS}, {"mixer.out_proj", .ours = "ssm_out"},      \
        {"mixer.q_proj", .ours = "attn_q"}, {"mixer.k_proj", .ours = "attn_k"},                              \
        {"mixer.v_proj", .ours = "attn_v"}, {                                                                \
        "mixer.o_proj", .ours = "attn_output"                                                                \
    }
static const struct hf_name nemotron_h_names[] = {
    NEMOTRON_H,
    {"mixer.up_proj", .ours = "ffn_up"},
    {"mixer.down_proj", .ours = "ffn_down"},
    END,
};
static const struct hf_name nemotron_h_moe_names[] = {
    NEMOTRON_H,
    NEMOTRON_H_EXPERTS,
    END,
};
static const struct hf_name nemotron_h_whole[] = {
    {"model.embeddings", .ours = "token_embd"},
    {"model.norm_f", .ours = "output_norm"},
    END,
};

// ---- keys

#define MAMBA_KEYS                                                                                           \
    {"mamba_d_conv", "ssm.conv_kernel", HF_INT}, {"mamba_d_state", "ssm.state_size", HF_INT},                \
        {"mamba_n_groups", "ssm.group_count", HF_INT}, {"mamba_n_heads", "ssm.time_step_rank", HF_INT},      \
        {"mamba_d_head", NULL, HF_INT}, {"mamba_expand", NULL, HF_INT}, {"mamba_chunk_size", NULL, HF_INT},  \
        {"mamba_conv_bias", NULL, HF_INT}, {"time_step_limit", NULL, HF_INT}, {                              \
        "mamba_proj_bias", "false", HF_ONLY                                                                  \
    }
static const struct hf_key granite_hybrid_keys[] = {
    GRANITE,
    MAMBA_KEYS,
    {"intermediate_size", NULL, HF_INT}, // of experts
    {"shared_intermediate_size", "feed_forward_length", HF_INT},
    {"num_local_experts", "0", HF_ONLY},
    {"num_experts_per_tok", NULL, HF_INT},
    {"position_embedding_type", NULL, HF_INT},
    {"normalization_function", "rmsnorm", HF_ONLY},
    {NULL, NULL, HF_INT},
};
static const struct hf_key granite_hybrid_moe_keys[] = {
    GRANITE,
    MAMBA_KEYS,
    {"intermediate_size", "expert_feed_forward_length", HF_INT},
    {"shared_intermediate_size", "expert_shared_feed_forward_length", HF_INT},
    {"num_local_experts", "expert_count", HF_INT},
    {"num_experts_per_tok", "expert_used_count", HF_INT},
    {"position_embedding_type", NULL, HF_INT},
    {"normalization_function", "rmsnorm", HF_ONLY},
    {NULL, NULL, HF_INT},
};
static const struct hf_key falcon_h1_keys[] = {
    MAMBA_KEYS,
    {"mamba_d_ssm", NULL, HF_INT},
    {"mamba_rms_norm", NULL, HF_INT},
    {"mamba_norm_before_gate", NULL, HF_INT},
    {"projectors_bias", "false", HF_ONLY},
    {"mamba_use_mlp", "true", HF_ONLY},
    {"num_logits_to_keep", NULL, HF_INT},
    {"embedding_multiplier", NULL, HF_INT},
    {"lm_head_multiplier", NULL, HF_INT},
    {"mlp_multipliers", NULL, HF_INT},
    {"key_multiplier", NULL, HF_INT},
    {"attention_in_multiplier", NULL, HF_INT},
    {"attention_out_multiplier", NULL, HF_INT},
    {"ssm_in_multiplier", NULL, HF_INT},
    {"ssm_out_multiplier", NULL, HF_INT},
    {"ssm_multipliers", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key lfm2_keys[] = {
    {"norm_eps", "attention.layer_norm_rms_epsilon", HF_FLOAT},
    {"conv_L_cache", "shortconv.l_cache", HF_INT},
    {"conv_bias", "false", HF_ONLY},
    {"intermediate_size", NULL, HF_INT},
    {"full_attn_idxs", NULL, HF_INT},
    // said again by others, or of training
    {"block_norm_eps", NULL, HF_INT},
    {"block_mlp_init_scale", NULL, HF_INT},
    {"block_out_init_scale", NULL, HF_INT},
    {"block_ffn_dim_multiplier", NULL, HF_FLOAT},
    {"conv_dim", NULL, HF_INT},
    {"conv_dim_out", NULL, HF_INT},
    {"conv_use_xavier_init", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key lfm2_moe_keys[] = {
    {"norm_eps", "attention.layer_norm_rms_epsilon", HF_FLOAT},
    {"conv_L_cache", "shortconv.l_cache", HF_INT},
    {"conv_bias", "false", HF_ONLY},
    {"num_experts", "expert_count", HF_INT},
    {"num_experts_per_tok", "expert_used_count", HF_INT},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_INT},
    {"num_dense_layers", "leading_dense_block_count", HF_INT},
    {"routed_scaling_factor", "expert_weights_scale", HF_FLOAT},
    {"norm_topk_prob", "expert_weights_norm", HF_BOOL},
    {"use_expert_bias", NULL, HF_INT}, // the tensors say it
    {NULL, NULL, HF_INT},
};
#define LINEAR                                                                                               \
    {"linear_conv_kernel_dim", "ssm.conv_kernel", HF_INT},                                                   \
        {"linear_key_head_dim", "ssm.state_size", HF_INT},                                                   \
        {"linear_num_key_heads", "ssm.group_count", HF_INT},                                                 \
        {"linear_num_value_heads", "ssm.time_step_rank", HF_INT}, {"linear_value_head_dim", NULL, HF_INT},   \
        {"full_attention_interval", NULL, HF_INT}, {"attn_output_gate", "true", HF_ONLY},                    \
        {"mamba_ssm_dtype", NULL, HF_INT}, {                                                                 \
        "partial_rotary_factor", NULL, HF_FLOAT                                                              \
    }
static const struct hf_key qwen35_moe_keys[] = {
    LINEAR,
    {"num_experts", "expert_count", HF_INT},
    {"num_experts_per_tok", "expert_used_count", HF_INT},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_INT},
    {"shared_expert_intermediate_size", "expert_shared_feed_forward_length", HF_INT},
    {"norm_topk_prob", "expert_weights_norm", HF_BOOL},
    EXPERT_LAYERS,
    {NULL, NULL, HF_INT},
};
static const struct hf_key qwen35_keys[] = {
    LINEAR,
    {NULL, NULL, HF_INT},
};

#define NEMOTRON_H_KEYS                                                                                      \
    MAMBA_KEYS, {"intermediate_size", NULL, HF_INT}, {"hybrid_override_pattern", NULL, HF_INT},              \
        {"layers_block_type", NULL, HF_INT}, {"mtp_layers_block_type", NULL, HF_INT},                        \
        {"moe_shared_expert_overlap", NULL, HF_INT}, {"num_nextn_predict_layers", NULL, HF_INT},             \
        {"mamba_hidden_act", "silu", HF_ONLY}, {"mlp_hidden_act", "relu2", HF_ONLY},                         \
        {"use_conv_bias", NULL, HF_INT}, {"mlp_bias", NULL, HF_INT}, {"use_mamba_kernels", NULL, HF_INT},    \
        {"mamba_ssm_cache_dtype", NULL, HF_INT}, {"rescale_prenorm_residual", NULL, HF_INT},                 \
        {"residual_in_fp32", NULL, HF_INT}, {                                                                \
        "num_logits_to_keep", NULL, HF_INT                                                                   \
    }
static const struct hf_key nemotron_h_keys[] = {
    NEMOTRON_H_KEYS,
    // of experts, which there are none
    {"n_routed_experts", NULL, HF_INT},
    {"num_experts_per_tok", NULL, HF_INT},
    {"moe_intermediate_size", NULL, HF_INT},
    {"n_shared_experts", NULL, HF_INT},
    {"moe_latent_size", NULL, HF_INT},
    {"moe_shared_expert_intermediate_size", NULL, HF_INT},
    {"routed_scaling_factor", NULL, HF_INT},
    {"norm_topk_prob", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key nemotron_h_moe_keys[] = {
    NEMOTRON_H_KEYS,
    {"n_routed_experts", "expert_count", HF_INT},
    {"num_experts_per_tok", "expert_used_count", HF_INT},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_INT},
    {"moe_latent_size", "moe_latent_size", HF_INT},
    {"n_shared_experts", "expert_shared_count", HF_INT},
    {"moe_shared_expert_intermediate_size", "expert_shared_feed_forward_length", HF_INT},
    {"n_group", "expert_group_count", HF_INT},
    {"topk_group", "expert_group_used_count", HF_INT},
    {"routed_scaling_factor", "expert_weights_scale", HF_FLOAT},
    {"norm_topk_prob", "expert_weights_norm", HF_BOOL},
    {NULL, NULL, HF_INT},
};
static const struct hf_alias nemotron_h_aliases[] = {
    {"head_dim", "attention_head_dim"},  {"rms_norm_eps", "layer_norm_epsilon"},
    {"rms_norm_eps", "norm_eps"},        {"mamba_n_heads", "mamba_num_heads"},
    {"mamba_d_head", "mamba_head_dim"},  {"mamba_n_groups", "n_groups"},
    {"mamba_d_state", "ssm_state_size"}, {"mamba_d_conv", "conv_kernel"},
    {"mamba_expand", "expand"},          {NULL, NULL},
};

static const struct hf_key mamba2_keys[] = {
    MAMBA_KEYS,
    {"num_attention_heads", NULL, HF_INT}, // of defaults
    {"intermediate_size", NULL, HF_INT},
    {"use_bias", "false", HF_ONLY},
    {"rms_norm", "true", HF_ONLY},
    {"norm_before_gate", "false", HF_ONLY},
    {"use_conv_bias", NULL, HF_INT},
    {"rescale_prenorm_residual", NULL, HF_INT},
    {"residual_in_fp32", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_alias mamba2_aliases[] = {
    {"rms_norm_eps", "layer_norm_epsilon"},
    {"mamba_n_heads", "num_heads"},
    {"mamba_d_head", "head_dim"},
    {"mamba_n_groups", "n_groups"},
    {"mamba_d_state", "state_size"},
    {"mamba_d_conv", "conv_kernel"},
    {"mamba_expand", "expand"},
    {NULL, NULL},
};

// ---- families

static const struct hf_family granite_hybrid_moe = {"granitemoehybrid",
                                                    "granitehybrid",
                                                    .adjacent = true,
                                                    .names = granite_hybrid_moe_names,
                                                    .keys = granite_hybrid_moe_keys,
                                                    .defaults = "{" GRANITE_DEFAULTS "}"};
static const struct hf_family nemotron_h_moe = {"nemotron_h",
                                                "nemotron_h_moe",
                                                .prefix = "backbone.",
                                                .names = nemotron_h_moe_names,
                                                .whole = nemotron_h_whole,
                                                .keys = nemotron_h_moe_keys,
                                                .defaults = "{\"norm_topk_prob\": true}",
                                                .aliases = nemotron_h_aliases};
const struct hf_family hf_state_families[] = {
    {"granitemoehybrid", "granitehybrid", .adjacent = true, .names = granite_hybrid_names,
     .keys = granite_hybrid_keys, .defaults = "{" GRANITE_DEFAULTS "}", .of_experts = &granite_hybrid_moe},
    // A context of 2^20, as llama.cpp's converter has it: nothing bounds it
    {"mamba2", "mamba2", .prefix = "backbone.", .names = nemotron_h_names, .whole = nemotron_h_whole,
     .keys = mamba2_keys, .aliases = mamba2_aliases,
     .defaults =
         "{\"max_position_embeddings\": 1048576, \"num_attention_heads\": 1, \"intermediate_size\": 1, "
         "\"rms_norm_eps\": 1e-5, \"mamba_d_state\": 128, \"mamba_d_conv\": 4, \"mamba_n_groups\": 8, "
         "\"mamba_n_heads\": 128, \"mamba_d_head\": 64}"},
    {"falcon_h1", "falcon-h1", .names = falcon_h1_names, .whole = falcon_h1_whole, .keys = falcon_h1_keys,
     .defaults = "{\"rope_theta\": 100000}"},
    {"lfm2", "lfm2", .names = lfm2_names, .whole = lfm2_whole, .keys = lfm2_keys,
     .defaults = "{" TIED ", \"rope_theta\": 1000000, \"norm_eps\": 1e-5, \"conv_L_cache\": 3}"},
    {"qwen3_5_text", "qwen35", .norms_less_one = true, .names = qwen35_names, .keys = qwen35_keys,
     .defaults = "{\"head_dim\": 256, \"partial_rotary_factor\": 0.25}"},
    {"lfm2_moe", "lfm2moe", .names = lfm2_moe_names, .whole = lfm2_whole, .keys = lfm2_moe_keys,
     .defaults =
         "{" TIED
         ", \"rope_theta\": 1000000, \"norm_eps\": 1e-5, \"conv_L_cache\": 3, \"norm_topk_prob\": true}"},
    {"qwen3_5_moe_text", "qwen35moe", .norms_less_one = true, .names = qwen35_moe_names,
     .keys = qwen35_moe_keys, .defaults = "{\"head_dim\": 256, \"partial_rotary_factor\": 0.25}"},
    {"qwen3_next", "qwen3next", .norms_less_one = true, .names = qwen3_next_names, .keys = qwen35_moe_keys,
     .defaults = "{\"head_dim\": 256, \"partial_rotary_factor\": 0.25}"},
    {"nemotron_h", "nemotron_h", .prefix = "backbone.", .names = nemotron_h_names, .whole = nemotron_h_whole,
     .keys = nemotron_h_keys, .aliases = nemotron_h_aliases, .of_experts = &nemotron_h_moe},
    {.model_type = NULL},
};
