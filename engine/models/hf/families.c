// See families.h. Names are those of transformers 4.57 and of the files on huggingface.co. Over 600 lines: tables.
#include "families.h"

#include <string.h>

// ---- tensors

#define END                                                                                                  \
    { .theirs = NULL }
static const struct hf_name internlm2_whole[] = {
    {"model.tok_embeddings", .ours = "token_embd"},
    {"output", .ours = "output"},
    END,
};
static const struct hf_name internlm2_names[] = {
    {"attention_norm", .ours = "attn_norm"},
    {"ffn_norm", .ours = "ffn_norm"},
    {"attention.wqkv", .ours = "attn_q", .rows = ROWS_GROUPED_Q},
    {"attention.wqkv", .ours = "attn_k", .rows = ROWS_GROUPED_K},
    {"attention.wqkv", .ours = "attn_v", .rows = ROWS_GROUPED_V},
    {"attention.wo", .ours = "attn_output"},
    {"feed_forward.w1", .ours = "ffn_gate"},
    {"feed_forward.w3", .ours = "ffn_up"},
    {"feed_forward.w2", .ours = "ffn_down"},
    END,
};
static const struct hf_name seed_oss_names[] = {
    {"post_attention_layernorm", .ours = "post_attention_norm"},
    END,
};
static const struct hf_name hunyuan_names[] = {
    {"self_attn.query_layernorm", .ours = "attn_q_norm"},
    {"self_attn.key_layernorm", .ours = "attn_k_norm"},
    END,
};
static const struct hf_name post_norm_names[] = {
    // Gemma 2 and 3, OLMo, EXAONE
    {"post_attention_layernorm", .ours = "post_attention_norm"},
    {"pre_feedforward_layernorm", .ours = "ffn_norm"},
    {"post_feedforward_layernorm", .ours = "post_ffw_norm"},
    END,
};
static const struct hf_name expert_names[] = {
    // Qwen
    {"mlp.gate", .ours = "ffn_gate_inp"},
    {"mlp.experts.#.gate_proj", .ours = "ffn_gate_exps"},
    {"mlp.experts.#.up_proj", .ours = "ffn_up_exps"},
    {"mlp.experts.#.down_proj", .ours = "ffn_down_exps"},
    END,
};
static const struct hf_name mixtral_names[] = {
    {"block_sparse_moe.gate", .ours = "ffn_gate_inp"},
    {"block_sparse_moe.experts.#.w1", .ours = "ffn_gate_exps"},
    {"block_sparse_moe.experts.#.w3", .ours = "ffn_up_exps"},
    {"block_sparse_moe.experts.#.w2", .ours = "ffn_down_exps"},
    END,
};
static const struct hf_name glm4_names[] = {
    {"post_self_attn_layernorm", .ours = "post_attention_norm"},
    {"post_mlp_layernorm", .ours = "post_ffw_norm"},
    END,
};

static const struct hf_name gpt_oss_names[] = {
    {"post_attention_layernorm", .ours = "post_attention_norm"},
    {"self_attn.sinks", .ours = "attn_sinks"},
    {"mlp.router", .ours = "ffn_gate_inp"},
    {"mlp.experts.gate_up_proj_blocks", .ours = "ffn_gate_exps", .rows = ROWS_EVEN},
    {"mlp.experts.gate_up_proj_blocks", .ours = "ffn_up_exps", .rows = ROWS_ODD},
    {"mlp.experts.down_proj_blocks", .ours = "ffn_down_exps"},
    {"mlp.experts.gate_up_proj_bias", .ours = "ffn_gate_exps", .rows = ROWS_EVEN},
    {"mlp.experts.gate_up_proj_bias", .ours = "ffn_up_exps", .rows = ROWS_ODD},
    {"mlp.experts.down_proj_bias", .ours = "ffn_down_exps"},
    END,
};
#define EXPERTS                                                                                              \
    {"mlp.experts.#.gate_proj", .ours = "ffn_gate_exps"}, {"mlp.experts.#.up_proj", .ours = "ffn_up_exps"},  \
    {                                                                                                        \
        "mlp.experts.#.down_proj", .ours = "ffn_down_exps"                                                   \
    }
static const struct hf_name qwen2_moe_names[] = {
    {"mlp.gate", .ours = "ffn_gate_inp"},
    EXPERTS,
    {"mlp.shared_expert_gate", .ours = "ffn_gate_inp_shexp", .form = FORM_FLAT},
    {"mlp.shared_expert.gate_proj", .ours = "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", .ours = "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", .ours = "ffn_down_shexp"},
    END,
};
#define SHARED_EXPERTS                                                                                       \
    {"mlp.shared_experts.gate_proj", .ours = "ffn_gate_shexp"},                                              \
        {"mlp.shared_experts.up_proj", .ours = "ffn_up_shexp"}, {                                            \
        "mlp.shared_experts.down_proj", .ours = "ffn_down_shexp"                                             \
    }
#define SELECT_BIAS .ours = "exp_probs_b", .end = ".bias", .form = FORM_FLAT
static const struct hf_name dots1_names[] = {
    {"mlp.gate", .ours = "ffn_gate_inp"},
    {"mlp.gate.e_score_correction_bias", SELECT_BIAS},
    EXPERTS,
    SHARED_EXPERTS,
    END,
};
static const struct hf_name glm4_moe_names[] = {
    {"post_attention_layernorm", .ours = "post_attention_norm"},
    {"mlp.gate", .ours = "ffn_gate_inp"},
    {"mlp.gate.e_score_correction_bias", SELECT_BIAS},
    EXPERTS,
    SHARED_EXPERTS,
    END,
};
static const struct hf_name ernie_moe_names[] = {
    {"mlp.gate", .ours = "ffn_gate_inp"},
    {"mlp.moe_statics.e_score_correction_bias", SELECT_BIAS},
    EXPERTS,
    SHARED_EXPERTS,
    END,
};
static const struct hf_name hunyuan_moe_names[] = {
    {"self_attn.query_layernorm", .ours = "attn_q_norm"},
    {"self_attn.key_layernorm", .ours = "attn_k_norm"},
    {"mlp.gate.wg", .ours = "ffn_gate_inp"},
    EXPERTS,
    {"mlp.shared_mlp.gate_proj", .ours = "ffn_gate_shexp"},
    {"mlp.shared_mlp.up_proj", .ours = "ffn_up_shexp"},
    {"mlp.shared_mlp.down_proj", .ours = "ffn_down_shexp"},
    END,
};
static const struct hf_name granite_moe_names[] = {
    {"block_sparse_moe.router.layer", .ours = "ffn_gate_inp"},
    {"block_sparse_moe.input_linear", .ours = "ffn_gate_exps", .rows = ROWS_FIRST_HALF},
    {"block_sparse_moe.input_linear", .ours = "ffn_up_exps", .rows = ROWS_SECOND_HALF},
    {"block_sparse_moe.output_linear", .ours = "ffn_down_exps"},
    {"shared_mlp.input_linear", .ours = "ffn_gate_shexp", .rows = ROWS_FIRST_HALF},
    {"shared_mlp.input_linear", .ours = "ffn_up_shexp", .rows = ROWS_SECOND_HALF},
    {"shared_mlp.output_linear", .ours = "ffn_down_shexp"},
    END,
};
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
static const struct hf_name lfm2_names[] = {
    {"operator_norm", .ours = "attn_norm"},
    {"ffn_norm", .ours = "ffn_norm"},
    {"self_attn.out_proj", .ours = "attn_output"},
    {"self_attn.q_layernorm", .ours = "attn_q_norm"},
    {"self_attn.k_layernorm", .ours = "attn_k_norm"},
    {"feed_forward.w1", .ours = "ffn_gate"},
    {"feed_forward.w3", .ours = "ffn_up"},
    {"feed_forward.w2", .ours = "ffn_down"},
    {"conv.in_proj", .ours = "shortconv.in_proj"},
    {"conv.conv", .ours = "shortconv.conv", .form = FORM_FLAT},
    {"conv.out_proj", .ours = "shortconv.out_proj"},
    END,
};
static const struct hf_name lfm2_whole[] = {
    {"model.embedding_norm", .ours = "token_embd_norm"},
    END,
};
static const struct hf_name qwen35_names[] = {
    {"post_attention_layernorm", .ours = "post_attention_norm"},
    {"self_attn.q_proj", .ours = "attn_q"}, // of queries and gates
    {"linear_attn.in_proj_qkv", .ours = "attn_qkv", .rows = ROWS_KEYS_VALUES},
    {"linear_attn.in_proj_z", .ours = "attn_gate", .rows = ROWS_VALUES},
    {"linear_attn.in_proj_b", .ours = "ssm_beta", .rows = ROWS_HEADS},
    {"linear_attn.in_proj_a", .ours = "ssm_alpha", .rows = ROWS_HEADS},
    {"linear_attn.conv1d", .ours = "ssm_conv1d", .rows = ROWS_KEYS_VALUES, .form = FORM_FLAT},
    {"linear_attn.A_log", .ours = "ssm_a", .rows = ROWS_HEADS, .end = "", .decay = true},
    {"linear_attn.dt_bias", .ours = "ssm_dt", .rows = ROWS_HEADS, .end = ".bias"},
    {"linear_attn.norm", .ours = "ssm_norm", .unlike_norms = true},
    {"linear_attn.out_proj", .ours = "ssm_out", .rows = COLUMNS_VALUES},
    END,
};
static const struct hf_name starcoder2_names[] = {
    {"mlp.c_fc", .ours = "ffn_up"},
    {"mlp.c_proj", .ours = "ffn_down"},
    END,
};
static const struct hf_name stablelm_names[] = {
    {"self_attn.q_layernorm.norms.#", .ours = "attn_q_norm"},
    {"self_attn.k_layernorm.norms.#", .ours = "attn_k_norm"},
    END,
};
static const struct hf_name phi_names[] = {
    {"self_attn.dense", .ours = "attn_output"},
    {"mlp.fc1", .ours = "ffn_up"},
    {"mlp.fc2", .ours = "ffn_down"},
    END,
};
static const struct hf_name phi_whole[] = {
    {"model.final_layernorm", .ours = "output_norm"},
    END,
};
static const struct hf_name neox_names[] = {
    {"attention.query_key_value", .ours = "attn_q", .rows = ROWS_GROUPED_Q}, // of one head each
    {"attention.query_key_value", .ours = "attn_k", .rows = ROWS_GROUPED_K},
    {"attention.query_key_value", .ours = "attn_v", .rows = ROWS_GROUPED_V},
    {"attention.dense", .ours = "attn_output"},
    {"mlp.dense_h_to_4h", .ours = "ffn_up"},
    {"mlp.dense_4h_to_h", .ours = "ffn_down"},
    {"attention.bias", .ours = ""}, // masks and frequencies that old versions left behind
    {"attention.masked_bias", .ours = ""},
    {"attention.rotary_emb.inv_freq", .ours = ""},
    END,
};
static const struct hf_name neox_whole[] = {
    {"model.embed_in", .ours = "token_embd"},
    {"model.final_layer_norm", .ours = "output_norm"},
    {"embed_out", .ours = "output"},
    END,
};

// ---- keys

static const struct hf_key all_keys[] = {
    {"num_hidden_layers", "block_count", HF_INT},
    {"hidden_size", "embedding_length", HF_INT},
    {"intermediate_size", "feed_forward_length", HF_INT},
    {"num_attention_heads", "attention.head_count", HF_INT},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon", HF_FLOAT},
    {"vocab_size", "vocab_size", HF_INT},
    // read one by one
    {"num_key_value_heads", NULL, HF_INT},
    {"max_position_embeddings", NULL, HF_INT},
    {"head_dim", NULL, HF_INT},
    {"hidden_act", NULL, HF_INT},
    {"hidden_activation", NULL, HF_INT},
    {"rope_theta", NULL, HF_INT},
    {"rope_scaling", NULL, HF_INT},
    {"rope_parameters", NULL, HF_INT},
    {"original_max_position_embeddings", NULL, HF_INT},
    {"sliding_window", NULL, HF_INT},
    {"use_sliding_window", NULL, HF_INT},
    {"max_window_layers", NULL, HF_INT},
    {"layer_types", NULL, HF_INT},
    // of no account: the tensors say whether there are biases; the rest is for training or for other code
    {"quantization_config", NULL, HF_INT},
    {"attention_bias", NULL, HF_INT},
    {"attention_dropout", NULL, HF_INT},
    {"attention_probs_dropout_prob", NULL, HF_INT},
    {"output_attentions", NULL, HF_INT},
    {"attn_implementation", NULL, HF_INT},
    {"_attn_implementation", NULL, HF_INT},
    {"_attn_implementation_autoset", NULL, HF_INT},
    {"output_router_logits", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};

static const struct hf_key granite_keys[] = {
    {"embedding_multiplier", "embedding_scale", HF_FLOAT},
    {"residual_multiplier", "residual_scale", HF_FLOAT},
    {"logits_scaling", "logit_scale", HF_FLOAT},
    {"attention_multiplier", "attention.scale", HF_FLOAT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key minicpm_keys[] = {
    {"scale_emb", "embedding_scale", HF_FLOAT},
    {"scale_depth", NULL, HF_FLOAT},
    {"dim_model_base", NULL, HF_FLOAT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key smollm3_keys[] = {
    {"no_rope_layers", NULL, HF_INT},
    {"no_rope_layer_interval", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key seed_oss_keys[] = {
    {"attention_out_bias", NULL, HF_INT},
    {"residual_dropout", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key hunyuan_keys[] = {
    // their files say what the code does in any case
    {"attention_head_dim", NULL, HF_INT}, {"use_qk_norm", NULL, HF_INT}, {"use_rotary_pos_emb", NULL, HF_INT},
    {"norm_type", NULL, HF_INT},          {NULL, NULL, HF_INT},
};
static const struct hf_key qwen3_moe_keys[] = {
    {"num_experts", "expert_count", HF_INT},
    {"num_experts_per_tok", "expert_used_count", HF_INT},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_INT},
    {"norm_topk_prob", "true", HF_ONLY},
    {"decoder_sparse_step", "1", HF_ONLY},
    {"mlp_only_layers", "[]", HF_ONLY},
    {NULL, NULL, HF_INT},
};
static const struct hf_key mixtral_keys[] = {
    {"num_local_experts", "expert_count", HF_INT},
    {"num_experts_per_tok", "expert_used_count", HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key gpt_oss_keys[] = {
    {"intermediate_size", "expert_feed_forward_length", HF_INT},
    {"num_local_experts", "expert_count", HF_INT},
    {"num_experts_per_tok", "expert_used_count", HF_INT},
    {"experts_per_token", NULL, HF_INT}, // the same again
    {"swiglu_limit", "7.0", HF_ONLY},
    {NULL, NULL, HF_INT},
};
static const struct hf_key partial_keys[] = {
    // Phi 3, GLM 4
    {"partial_rotary_factor", NULL, HF_FLOAT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key exaone4_keys[] = {
    {"sliding_window_pattern", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key gemma2_keys[] = {
    {"query_pre_attn_scalar", NULL, HF_FLOAT},
    {"attn_logit_softcapping", "attn_logit_softcapping", HF_FLOAT},
    {"final_logit_softcapping", "final_logit_softcapping", HF_FLOAT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key gemma3_keys[] = {
    {"query_pre_attn_scalar", NULL, HF_FLOAT},
    {"final_logit_softcapping", "final_logit_softcapping", HF_FLOAT},
    {"rope_local_base_freq", "rope.freq_base_swa", HF_FLOAT},
    {"sliding_window_pattern", NULL, HF_INT},
    {"_sliding_window_pattern", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key internlm3_keys[] = {
    {"qkv_bias", NULL, HF_INT},
    {"bias", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key qwen2_moe_keys[] = {
    {"num_experts", "expert_count", HF_INT},
    {"num_experts_per_tok", "expert_used_count", HF_INT},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_INT},
    {"shared_expert_intermediate_size", "expert_shared_feed_forward_length", HF_INT},
    {"norm_topk_prob", "expert_weights_norm", HF_BOOL},
    {"decoder_sparse_step", "1", HF_ONLY},
    {"mlp_only_layers", "[]", HF_ONLY},
    {"qkv_bias", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key olmoe_keys[] = {
    {"num_experts", "expert_count", HF_INT},
    {"num_experts_per_tok", "expert_used_count", HF_INT},
    {"norm_topk_prob", "expert_weights_norm", HF_BOOL},
    {NULL, NULL, HF_INT},
};
static const struct hf_key sigmoid_keys[] = {
    // dots.llm1, GLM 4.5
    {"n_routed_experts", "expert_count", HF_INT},
    {"num_experts_per_tok", "expert_used_count", HF_INT},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_INT},
    {"n_shared_experts", "expert_shared_count", HF_INT},
    {"first_k_dense_replace", "leading_dense_block_count", HF_INT},
    {"n_group", "expert_group_count", HF_INT},
    {"topk_group", "expert_group_used_count", HF_INT},
    {"routed_scaling_factor", "expert_weights_scale", HF_FLOAT},
    {"norm_topk_prob", "expert_weights_norm", HF_BOOL},
    {"scoring_func", "sigmoid", HF_ONLY},
    {"topk_method", "noaux_tc", HF_ONLY},
    {"moe_layer_freq", "1", HF_ONLY},
    {"use_qk_norm", NULL, HF_INT}, // the tensors say it
    {"partial_rotary_factor", NULL, HF_FLOAT},
    {"num_nextn_predict_layers", NULL, HF_INT}, // behind the model's own; skipped
    {NULL, NULL, HF_INT},
};
static const struct hf_key ernie_moe_keys[] = {
    {"moe_num_experts", "expert_count", HF_INT},
    {"moe_k", "expert_used_count", HF_INT},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_INT},
    {"moe_num_shared_experts", "expert_shared_count", HF_INT},
    {"moe_layer_start_index", "leading_dense_block_count", HF_INT},
    {"moe_layer_interval", "interleave_moe_layer_step", HF_INT},
    {"moe_layer_end_index", NULL, HF_INT},
    {"moe_norm_min", NULL, HF_INT},
    {"moe_use_aux_free", NULL, HF_INT},
    {"moe_capacity", NULL, HF_INT},
    {"moe_gate", NULL, HF_INT},
    {"num_nextn_predict_layers", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key hunyuan_moe_keys[] = {
    {"num_experts", "expert_count", HF_INT}, {"moe_topk", "expert_used_count", HF_INT},
    {"moe_intermediate_size", NULL, HF_INT}, {"num_shared_expert", NULL, HF_INT},
    {"norm_topk_prob", "true", HF_ONLY},     {"use_mixed_mlp_moe", "true", HF_ONLY},
    {"moe_drop_tokens", NULL, HF_INT},       {"moe_random_routing_dropped_token", NULL, HF_INT},
    {"attention_head_dim", NULL, HF_INT},    {"use_qk_norm", NULL, HF_INT},
    {"use_rotary_pos_emb", NULL, HF_INT},    {"norm_type", NULL, HF_INT},
    {"group_limited_greedy", NULL, HF_INT},  {NULL, NULL, HF_INT},
};
#define GRANITE                                                                                              \
    {"embedding_multiplier", "embedding_scale", HF_FLOAT},                                                   \
        {"residual_multiplier", "residual_scale", HF_FLOAT}, {"logits_scaling", "logit_scale", HF_FLOAT}, {  \
        "attention_multiplier", "attention.scale", HF_FLOAT                                                  \
    }
static const struct hf_key granite_moe_keys[] = {
    GRANITE,
    {"num_local_experts", "expert_count", HF_INT},
    {"num_experts_per_tok", "expert_used_count", HF_INT},
    {"shared_intermediate_size", "expert_shared_feed_forward_length", HF_INT},
    {NULL, NULL, HF_INT},
};
#define MAMBA_KEYS                                                                                           \
    {"mamba_d_conv", "ssm.conv_kernel", HF_INT}, {"mamba_d_state", "ssm.state_size", HF_INT},                \
        {"mamba_n_groups", "ssm.group_count", HF_INT}, {"mamba_n_heads", "ssm.time_step_rank", HF_INT},      \
        {"mamba_d_head", NULL, HF_INT}, {"mamba_expand", NULL, HF_INT}, {"mamba_chunk_size", NULL, HF_INT},  \
        {"mamba_conv_bias", NULL, HF_INT}, {                                                                 \
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
    {"conv_dim", NULL, HF_INT},
    {"conv_dim_out", NULL, HF_INT},
    {"conv_use_xavier_init", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key qwen35_keys[] = {
    {"linear_conv_kernel_dim", "ssm.conv_kernel", HF_INT},
    {"linear_key_head_dim", "ssm.state_size", HF_INT},
    {"linear_num_key_heads", "ssm.group_count", HF_INT},
    {"linear_num_value_heads", "ssm.time_step_rank", HF_INT},
    {"linear_value_head_dim", NULL, HF_INT},
    {"full_attention_interval", NULL, HF_INT},
    {"attn_output_gate", "true", HF_ONLY},
    {"mamba_ssm_dtype", NULL, HF_INT},
    {"partial_rotary_factor", NULL, HF_FLOAT},
    {NULL, NULL, HF_INT},
};
#define LAYER_NORM "attention.layer_norm_epsilon", HF_FLOAT
static const struct hf_key starcoder2_keys[] = {
    {"norm_epsilon", LAYER_NORM}, {"norm_type", "layer_norm", HF_ONLY}, {"mlp_type", "default", HF_ONLY},
    {"use_bias", NULL, HF_INT},   {"residual_dropout", NULL, HF_INT},   {NULL, NULL, HF_INT},
};
static const struct hf_key stablelm_keys[] = {
    {"layer_norm_eps", LAYER_NORM},
    {"norm_eps", LAYER_NORM},
    {"use_qkv_bias", NULL, HF_INT},
    {"qk_layernorm", NULL, HF_INT},
    {"use_parallel_residual", NULL, HF_INT},
    {"partial_rotary_factor", NULL, HF_FLOAT},
    {"rope_pct", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key phi_keys[] = {
    {"layer_norm_eps", LAYER_NORM},
    {"resid_pdrop", NULL, HF_INT},
    {"partial_rotary_factor", NULL, HF_FLOAT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key neox_keys[] = {
    {"layer_norm_eps", LAYER_NORM},
    {"use_parallel_residual", "use_parallel_residual", HF_BOOL},
    {"rotary_pct", NULL, HF_FLOAT},
    {"rotary_emb_base", NULL, HF_FLOAT},
    {"partial_rotary_factor", NULL, HF_FLOAT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key nemotron_keys[] = {
    {"norm_eps", LAYER_NORM},
    {"mlp_bias", NULL, HF_INT},
    {"partial_rotary_factor", NULL, HF_FLOAT},
    {"rope_percent", NULL, HF_INT}, // said again
    {"partial_rotary_percent", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key cohere_keys[] = {
    {"layer_norm_eps", LAYER_NORM},
    {"logit_scale", "logit_scale", HF_FLOAT},
    {"use_qk_norm", NULL, HF_INT},
    // what the code does in any case
    {"sliding_window_pattern", NULL, HF_INT},
    {"_sliding_window_pattern", NULL, HF_INT},
    {"use_gated_activation", "true", HF_ONLY},
    {"use_parallel_block", "true", HF_ONLY},
    {"use_parallel_embedding", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};

// ---- families

#define TIED "\"tie_word_embeddings\": true"
#define GRANITE_DEFAULTS                                                                                     \
    "\"embedding_multiplier\": 1, \"residual_multiplier\": 1, \"logits_scaling\": 1, "                       \
    "\"attention_multiplier\": 1"
#define GELU "gelu_pytorch_tanh"
static const struct hf_family families[] = {
    {"llama", "llama", .adjacent = true},
    {"mistral", "llama", .adjacent = true},
    {"ministral3", "mistral3", .adjacent = true},
    {"qwen2", "qwen2", .adjacent = false},
    {"qwen3", "qwen3", .defaults = "{\"head_dim\": 128}"},
    {"qwen3_moe", "qwen3moe", .names = expert_names, .keys = qwen3_moe_keys},
    {"mixtral", "llama", .adjacent = true, .names = mixtral_names, .keys = mixtral_keys},
    {"gpt_oss", "gpt-oss", .names = gpt_oss_names, .keys = gpt_oss_keys},
    {"granite", "granite", .adjacent = true, .keys = granite_keys, .defaults = "{" GRANITE_DEFAULTS "}"},
    {"minicpm", "minicpm", .adjacent = true, .keys = minicpm_keys,
     .defaults = "{" TIED ", \"scale_emb\": 1, \"scale_depth\": 1, \"dim_model_base\": 1}"},
    {"smollm3", "smollm3", .adjacent = true, .keys = smollm3_keys,
     .defaults = "{" TIED ", \"rope_theta\": 2000000}"},
    {"internlm2", "internlm2", .adjacent = true, .names = internlm2_names, .whole = internlm2_whole},
    {"ernie4_5", "ernie4_5", .defaults = "{" TIED ", \"rope_theta\": 500000, \"head_dim\": 128}"},
    {"seed_oss", "seed_oss", .names = seed_oss_names, .keys = seed_oss_keys},
    {"hunyuan_v1_dense", "hunyuan-dense", .names = hunyuan_names, .keys = hunyuan_keys},
    {"phi3", "phi3", .keys = partial_keys},
    {"olmo2", "olmo2", .names = post_norm_names},
    {"olmo3", "olmo2", .names = post_norm_names, .defaults = "{\"sliding_window\": 4096}"},
    {"glm4", "glm4", .names = glm4_names, .keys = partial_keys,
     .defaults = "{\"partial_rotary_factor\": 0.5}"},
    {"exaone4", "exaone4", .names = post_norm_names, .keys = exaone4_keys},
    {"gemma", "gemma", .norms_less_one = true, .act = GELU, .defaults = "{" TIED ", \"head_dim\": 256}"},
    {"gemma2", "gemma2", .norms_less_one = true, .act = GELU, .names = post_norm_names, .keys = gemma2_keys,
     .defaults = "{" TIED ", \"head_dim\": 256, \"query_pre_attn_scalar\": 256, \"sliding_window\": 4096,"
                 "\"attn_logit_softcapping\": 50, \"final_logit_softcapping\": 30}"},
    {"gemma3_text", "gemma3", .norms_less_one = true, .act = GELU, .names = post_norm_names,
     .keys = gemma3_keys,
     .defaults = "{" TIED ", \"head_dim\": 256, \"query_pre_attn_scalar\": 256, \"sliding_window\": 4096,"
                 "\"rope_theta\": 1000000, \"rope_local_base_freq\": 10000, \"num_attention_heads\": 8,"
                 "\"num_key_value_heads\": 4, \"vocab_size\": 262208, \"max_position_embeddings\": 131072,"
                 "\"rms_norm_eps\": 1e-6}"},
    {"internlm3", "llama", .adjacent = true, .keys = internlm3_keys},
    {"qwen2_moe", "qwen2moe", .names = qwen2_moe_names, .keys = qwen2_moe_keys},
    {"olmoe", "olmoe", .names = expert_names, .keys = olmoe_keys,
     .defaults = "{\"num_experts\": 64, \"num_experts_per_tok\": 8}"},
    {"glm4_moe", "glm4moe", .names = glm4_moe_names, .keys = sigmoid_keys,
     .defaults = "{\"partial_rotary_factor\": 0.5}"},
    {"dots1", "dots1", .names = dots1_names, .keys = sigmoid_keys, .defaults = "{\"norm_topk_prob\": false}"},
    {"ernie4_5_moe", "ernie4_5-moe", .names = ernie_moe_names, .keys = ernie_moe_keys,
     .defaults =
         "{" TIED ", \"rope_theta\": 500000, \"moe_num_shared_experts\": 2, \"moe_layer_start_index\": 1}"},
    {"hunyuan_v1_moe", "hunyuan-moe", .names = hunyuan_moe_names, .keys = hunyuan_moe_keys},
    {"granitemoe", "granitemoe", .adjacent = true, .names = granite_moe_names, .keys = granite_moe_keys,
     .defaults = "{" GRANITE_DEFAULTS "}"},
    {"granitemoeshared", "granitemoe", .adjacent = true, .names = granite_moe_names, .keys = granite_moe_keys,
     .defaults = "{" GRANITE_DEFAULTS "}"},
    {"granitemoehybrid", "granitehybrid", .adjacent = true, .names = granite_hybrid_names,
     .keys = granite_hybrid_keys, .defaults = "{" GRANITE_DEFAULTS "}"},
    {"falcon_h1", "falcon-h1", .names = falcon_h1_names, .whole = falcon_h1_whole, .keys = falcon_h1_keys,
     .defaults = "{\"rope_theta\": 100000}"},
    {"lfm2", "lfm2", .names = lfm2_names, .whole = lfm2_whole, .keys = lfm2_keys,
     .defaults = "{" TIED ", \"rope_theta\": 1000000, \"norm_eps\": 1e-5, \"conv_L_cache\": 3}"},
    {"qwen3_5_text", "qwen35", .norms_less_one = true, .names = qwen35_names, .keys = qwen35_keys,
     .defaults = "{\"head_dim\": 256, \"partial_rotary_factor\": 0.25}"},
    {"starcoder2", "starcoder2", .act = GELU, .names = starcoder2_names, .keys = starcoder2_keys,
     .defaults = "{" TIED ", \"norm_epsilon\": 1e-5}"},
    {"stablelm", "stablelm", .names = stablelm_names, .keys = stablelm_keys,
     .defaults = "{\"layer_norm_eps\": 1e-5, \"partial_rotary_factor\": 0.25}"},
    {"phi", "phi2", .act = "gelu_new", .names = phi_names, .whole = phi_whole, .keys = phi_keys,
     .defaults = "{\"layer_norm_eps\": 1e-5, \"partial_rotary_factor\": 0.5}"},
    {"gpt_neox", "gptneox", .act = "gelu", .prefix = "gpt_neox.", .names = neox_names, .whole = neox_whole,
     .keys = neox_keys,
     .defaults = "{\"layer_norm_eps\": 1e-5, \"rotary_pct\": 0.25, \"use_parallel_residual\": true}"},
    {"nemotron", "nemotron", .norms_less_one = true, .act = "relu2", .keys = nemotron_keys,
     .defaults = "{\"norm_eps\": 1e-5, \"partial_rotary_factor\": 0.5}"},
    {"cohere", "command-r", .keys = cohere_keys,
     .defaults = "{" TIED ", \"layer_norm_eps\": 1e-5, \"logit_scale\": 0.0625}"},
    {"cohere2", "cohere2", .keys = cohere_keys,
     .defaults = "{" TIED ", \"layer_norm_eps\": 1e-5, \"logit_scale\": 0.0625, \"sliding_window\": 4096}"},
};

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static bool same_text(struct text_view s, const char *text) {
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

const struct hf_family *hf_family_at(int i) { return i < COUNT(families) ? &families[i] : NULL; }

const struct hf_family *hf_family_find(struct text_view model_type) {
    for (int i = 0; i < COUNT(families); i++)
        if (same_text(model_type, families[i].model_type))
            return &families[i];
    return NULL;
}

const struct hf_key *hf_key_at(const struct hf_family *f, int i) {
    const struct hf_key *own = f->keys;
    while (own && own->theirs && i > 0) {
        own++;
        i--;
    }
    if (own && own->theirs)
        return own;
    return i < COUNT(all_keys) - 1 ? &all_keys[i] : NULL;
}

const struct hf_key *hf_key_find(const struct hf_family *f, struct text_view key) {
    const struct hf_key *k = NULL;
    for (int i = 0; (k = hf_key_at(f, i)) && !same_text(key, k->theirs);)
        i++;
    return k;
}

bool hf_key_is_suspect(struct text_view key) {
    static const char *const parts[] = {
        "rope",     "rotary",      "window", "softcap",   "multiplier", "scal",   "norm",  "bias",
        "expert",   "moe",         "attn",   "attention", "resid",      "mup",    "clip",  "qk_",
        "logit",    "alibi",       "ssm",    "mamba",     "conv",       "linear", "_act",  "activation",
        "parallel", "layer_types", "sink",   "nextn",     "quant",      "lora",   "alpha", "temperature"};
    for (int i = 0; i < COUNT(parts); i++)
        for (size_t n = strlen(parts[i]), at = 0; at + n <= key.len; at++)
            if (memcmp(key.data + at, parts[i], n) == 0)
                return true;
    return false;
}
