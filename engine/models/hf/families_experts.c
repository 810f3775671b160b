// Families of models with experts or latent attention. See families.h. Names are those of transformers 4.57 and of the files on huggingface.co.
#include "families_shared.h"

// ---- tensors

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
static const struct hf_name qwen3_vl_moe_names[] = {
    {"mlp.gate", .ours = "ffn_gate_inp"},
    {"mlp.experts.gate_up_proj", .ours = "ffn_gate_exps", .rows = ROWS_FIRST_HALF, .turned = true,
     .either = true},
    {"mlp.experts.gate_up_proj", .ours = "ffn_up_exps", .rows = ROWS_SECOND_HALF, .turned = true,
     .either = true},
    {"mlp.experts.down_proj", .ours = "ffn_down_exps", .turned = true, .either = true},
    END,
};
static const struct hf_name minimax_names[] = {
    {"block_sparse_moe.gate", .ours = "ffn_gate_inp"},
    {"block_sparse_moe.e_score_correction_bias", SELECT_BIAS},
    {"block_sparse_moe.experts.#.w1", .ours = "ffn_gate_exps"},
    {"block_sparse_moe.experts.#.w3", .ours = "ffn_up_exps"},
    {"block_sparse_moe.experts.#.w2", .ours = "ffn_down_exps"},
    END,
};
static const struct hf_name gpt_oss_names[] = {
    {"post_attention_layernorm", .ours = "post_attention_norm"},
    {"self_attn.sinks", .ours = "attn_sinks"},
    {"mlp.router", .ours = "ffn_gate_inp"},
    {"mlp.experts.gate_up_proj_blocks", .ours = "ffn_gate_exps", .rows = ROWS_EVEN},
    {"mlp.experts.gate_up_proj_blocks", .ours = "ffn_up_exps", .rows = ROWS_ODD},
    {"mlp.experts.down_proj_blocks", .ours = "ffn_down_exps"},
    {"mlp.experts.gate_up_proj", .ours = "ffn_gate_exps", .rows = ROWS_EVEN, .turned = true},
    {"mlp.experts.gate_up_proj", .ours = "ffn_up_exps", .rows = ROWS_ODD, .turned = true},
    {"mlp.experts.down_proj", .ours = "ffn_down_exps", .turned = true},
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
// Attention by latents
#define LATENTS                                                                                              \
    {"self_attn.q_proj", .ours = "attn_q"}, {"self_attn.q_a_proj", .ours = "attn_q_a"},                      \
        {"self_attn.q_a_layernorm", .ours = "attn_q_a_norm"}, {"self_attn.q_b_proj", .ours = "attn_q_b"},    \
        {"self_attn.kv_a_proj_with_mqa", .ours = "attn_kv_a_mqa"},                                           \
        {"self_attn.kv_a_layernorm", .ours = "attn_kv_a_norm"}, {                                            \
        "self_attn.kv_b_proj", .ours = "attn_kv_b"                                                           \
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
static const struct hf_name dots1_names[] = {
    {"mlp.gate", .ours = "ffn_gate_inp"},
    {"mlp.gate.e_score_correction_bias", SELECT_BIAS},
    EXPERTS,
    SHARED_EXPERTS,
    END,
};
static const struct hf_name exaone_moe_names[] = {
    {"mlp.gate", .ours = "ffn_gate_inp"},
    {"mlp.e_score_correction_bias", SELECT_BIAS},
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
static const struct hf_name llama4_names[] = {
    {"feed_forward.gate_proj", .ours = "ffn_gate"},
    {"feed_forward.up_proj", .ours = "ffn_up"},
    {"feed_forward.down_proj", .ours = "ffn_down"},
    {"feed_forward.router", .ours = "ffn_gate_inp"},
    {"feed_forward.experts.gate_up_proj", .ours = "ffn_gate_exps", .rows = ROWS_FIRST_HALF, .turned = true},
    {"feed_forward.experts.gate_up_proj", .ours = "ffn_up_exps", .rows = ROWS_SECOND_HALF, .turned = true},
    {"feed_forward.experts.down_proj", .ours = "ffn_down_exps", .turned = true},
    {"feed_forward.experts.#.gate_proj", .ours = "ffn_gate_exps"}, // of quantised ones
    {"feed_forward.experts.#.up_proj", .ours = "ffn_up_exps"},
    {"feed_forward.experts.#.down_proj", .ours = "ffn_down_exps"},
    {"feed_forward.shared_expert.gate_proj", .ours = "ffn_gate_shexp"},
    {"feed_forward.shared_expert.up_proj", .ours = "ffn_up_shexp"},
    {"feed_forward.shared_expert.down_proj", .ours = "ffn_down_shexp"},
    END,
};
static const struct hf_name deepseek_names[] = {
    LATENTS,
    {"mlp.gate", .ours = "ffn_gate_inp"},
    {"mlp.gate.e_score_correction_bias", SELECT_BIAS},
    EXPERTS,
    SHARED_EXPERTS,
    END,
};
static const struct hf_name afmoe_names[] = {
    {"post_attention_layernorm", .ours = "post_attention_norm"},
    {"pre_mlp_layernorm", .ours = "ffn_norm"},
    {"post_mlp_layernorm", .ours = "post_ffw_norm"},
    {"self_attn.gate_proj", .ours = "attn_gate"},
    {"mlp.router.gate", .ours = "ffn_gate_inp"},
    {"mlp.expert_bias", SELECT_BIAS},
    EXPERTS,
    SHARED_EXPERTS,
    END,
};
static const struct hf_name mistral4_names[] = {
    LATENTS,
    {"mlp.gate", .ours = "ffn_gate_inp"},
    {"mlp.experts.gate_up_proj", .ours = "ffn_gate_exps", .rows = ROWS_FIRST_HALF},
    {"mlp.experts.gate_up_proj", .ours = "ffn_up_exps", .rows = ROWS_SECOND_HALF},
    {"mlp.experts.down_proj", .ours = "ffn_down_exps"},
    EXPERTS,
    SHARED_EXPERTS,
    END,
};
static const struct hf_name bailing_names[] = {
    {"attention.query_key_value", .ours = "attn_qkv", .rows = ROWS_QKV},
    {"attention.query_layernorm", .ours = "attn_q_norm"},
    {"attention.key_layernorm", .ours = "attn_k_norm"},
    {"attention.dense", .ours = "attn_output"},
    {"mlp.gate", .ours = "ffn_gate_inp"},
    {"mlp.gate.expert_bias", SELECT_BIAS},
    EXPERTS,
    SHARED_EXPERTS,
    END,
};
static const struct hf_name bailing_whole[] = {
    {"model.word_embeddings", .ours = "token_embd"},
    END,
};
#define HY3_BIAS .ours = "exp_probs_b", .end = "", .form = FORM_FLAT
static const struct hf_name hy3_names[] = {
    {"mlp.router.gate", .ours = "ffn_gate_inp"},
    {"mlp.gate", .ours = "ffn_gate_inp"},
    {"mlp.expert_bias", HY3_BIAS},
    {"mlp.e_score_correction_bias", HY3_BIAS},
    EXPERTS,
    SHARED_EXPERTS,
    {"mlp.shared_mlp.gate_proj", .ours = "ffn_gate_shexp"},
    {"mlp.shared_mlp.up_proj", .ours = "ffn_up_shexp"},
    {"mlp.shared_mlp.down_proj", .ours = "ffn_down_shexp"},
    END,
};
static const struct hf_name cohere2_moe_names[] = {
    {"mlp.gate", .ours = "ffn_gate_inp"},
    EXPERTS,
    SHARED_EXPERTS,
    END,
};
static const struct hf_name smallthinker_names[] = {
    {"block_sparse_moe.primary_router", .ours = "ffn_gate_inp"},
    {"block_sparse_moe.experts.#.gate", .ours = "ffn_gate_exps"},
    {"block_sparse_moe.experts.#.up", .ours = "ffn_up_exps"},
    {"block_sparse_moe.experts.#.down", .ours = "ffn_down_exps"},
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

// ---- keys

static const struct hf_key qwen3_moe_keys[] = {
    {"num_experts", "expert_count", HF_INT},
    {"num_experts_per_tok", "expert_used_count", HF_INT},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_INT},
    {"norm_topk_prob", "expert_weights_norm", HF_BOOL},
    EXPERT_LAYERS,
    {NULL, NULL, HF_INT},
};
static const struct hf_alias qwen3_moe_aliases[] = {
    {"num_experts", "num_local_experts"}, // as transformers 5 writes it
    {NULL, NULL},
};
static const struct hf_key mixtral_keys[] = {
    {"num_local_experts", "expert_count", HF_INT},
    {"num_experts_per_tok", "expert_used_count", HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key minimax_keys[] = {
    {"num_local_experts", "expert_count", HF_INT},
    {"num_experts_per_tok", "expert_used_count", HF_INT},
    {"intermediate_size", "expert_feed_forward_length", HF_INT},
    {"scoring_func", "sigmoid", HF_ONLY},
    {"use_qk_norm", "true", HF_ONLY},
    {"qk_norm_type", "per_layer", HF_ONLY},
    {"use_routing_bias", NULL, HF_INT}, // the tensors say it
    {"router_jitter_noise", NULL, HF_INT},
    {"rotary_dim", NULL, HF_INT},
    {"partial_rotary_factor", NULL, HF_FLOAT},
    {"shared_intermediate_size", "0", HF_ONLY},
    {"shared_moe_mode", NULL, HF_INT},
    {"attn_type_list", NULL, HF_INT}, // 1: all attend
    {"layernorm_full_attention_beta", "1", HF_ONLY},
    {"layernorm_linear_attention_beta", NULL, HF_INT},
    {"layernorm_mlp_beta", "1", HF_ONLY},
    {"num_mtp_modules", NULL, HF_INT},
    {"mtp_transformer_layers", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key exaone_moe_keys[] = {
    {"num_experts", "expert_count", HF_INT},
    {"num_experts_per_tok", "expert_used_count", HF_INT},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_INT},
    {"num_shared_experts", "expert_shared_count", HF_INT},
    {"first_k_dense_replace", "leading_dense_block_count", HF_INT},
    {"mlp_layer_types", NULL, HF_INT},
    {"is_moe_layer", NULL, HF_INT}, // the same in old files
    {"n_group", "expert_group_count", HF_INT},
    {"topk_group", "expert_group_used_count", HF_INT},
    {"routed_scaling_factor", "expert_weights_scale", HF_FLOAT},
    {"norm_topk_prob", "expert_weights_norm", HF_BOOL},
    {"scoring_func", "sigmoid", HF_ONLY},
    {"sliding_window_pattern", NULL, HF_INT},
    {"num_nextn_predict_layers", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key phimoe_keys[] = {
    {"num_local_experts", "expert_count", HF_INT},
    {"num_experts_per_tok", "expert_used_count", HF_INT},
    {"router_jitter_noise", "0.01", HF_ONLY},
    {"input_jitter_noise", NULL, HF_INT}, // of training
    {"lm_head_bias", NULL, HF_INT},       // the tensors say it
    {NULL, NULL, HF_INT},
};
static const struct hf_key gpt_oss_keys[] = {
    {"intermediate_size", "expert_feed_forward_length", HF_INT},
    {"num_local_experts", "expert_count", HF_INT},
    {"num_experts_per_tok", "expert_used_count", HF_INT},
    {"experts_per_token", NULL, HF_INT}, // the same again
    {"swiglu_limit", "7.0", HF_ONLY},
    {"swiglu_alpha", "1.702", HF_ONLY},
    {NULL, NULL, HF_INT},
};
static const struct hf_key qwen2_moe_keys[] = {
    {"num_experts", "expert_count", HF_INT},
    {"num_experts_per_tok", "expert_used_count", HF_INT},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_INT},
    {"shared_expert_intermediate_size", "expert_shared_feed_forward_length", HF_INT},
    {"norm_topk_prob", "expert_weights_norm", HF_BOOL},
    EXPERT_LAYERS,
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
    {"mlp_layer_types", NULL, HF_INT},
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
static const struct hf_key llama4_keys[] = {
    {"intermediate_size", "expert_feed_forward_length", HF_INT},
    {"intermediate_size_mlp", "feed_forward_length", HF_INT},
    {"num_local_experts", "expert_count", HF_INT},
    {"num_experts_per_tok", "expert_used_count", HF_INT},
    {"interleave_moe_layer_step", "interleave_moe_layer_step", HF_INT},
    {"no_rope_layer_interval", NULL, HF_INT},
    // read one by one
    {"moe_layers", NULL, HF_INT},
    {"use_qk_norm", NULL, HF_INT},
    {"attention_chunk_size", NULL, HF_INT},
    {"no_rope_layers", NULL, HF_INT},
    {"attn_temperature_tuning", NULL, HF_INT},
    {"attn_scale", NULL, HF_INT},
    {"floor_scale", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
#define DEEPSEEK                                                                                             \
    {"kv_lora_rank", "attention.kv_lora_rank", HF_INT}, {"q_lora_rank", "attention.q_lora_rank", HF_INT},    \
        {"qk_nope_head_dim", NULL, HF_INT}, {"qk_rope_head_dim", NULL, HF_INT},                              \
        {"v_head_dim", NULL, HF_INT}, {"qk_head_dim", NULL, HF_INT}, {"rope_interleave", "true", HF_ONLY},   \
        {"aux_loss_alpha", NULL, HF_INT}, {"n_routed_experts", "expert_count", HF_INT},                      \
        {"num_experts_per_tok", "expert_used_count", HF_INT},                                                \
        {"moe_intermediate_size", "expert_feed_forward_length", HF_INT},                                     \
        {"n_shared_experts", "expert_shared_count", HF_INT},                                                 \
        {"first_k_dense_replace", "leading_dense_block_count", HF_INT}, {"mlp_layer_types", NULL, HF_INT},   \
        {"n_group", "expert_group_count", HF_INT}, {"topk_group", "expert_group_used_count", HF_INT},        \
        {"routed_scaling_factor", "expert_weights_scale", HF_FLOAT},                                         \
        {"norm_topk_prob", "expert_weights_norm", HF_BOOL}, {"moe_layer_freq", "1", HF_ONLY},                \
        {"num_nextn_predict_layers", NULL, HF_INT}, {                                                        \
        "partial_rotary_factor", "1.0", HF_ONLY                                                              \
    }
static const struct hf_key deepseek2_keys[] = {
    DEEPSEEK,
    {"scoring_func", "softmax", HF_ONLY},
    {"topk_method", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key deepseek3_keys[] = {
    DEEPSEEK,
    {"scoring_func", "sigmoid", HF_ONLY},
    {"topk_method", "noaux_tc", HF_ONLY},
    {NULL, NULL, HF_INT},
};
static const struct hf_key mistral4_keys[] = {
    DEEPSEEK,
    {NULL, NULL, HF_INT},
};
static const struct hf_key afmoe_keys[] = {
    {"num_experts", "expert_count", HF_INT},
    {"num_experts_per_tok", "expert_used_count", HF_INT},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_INT},
    {"num_shared_experts", "expert_shared_count", HF_INT},
    {"num_dense_layers", "leading_dense_block_count", HF_INT},
    {"route_scale", "expert_weights_scale", HF_FLOAT},
    {"route_norm", "true", HF_ONLY},
    {"score_func", "sigmoid", HF_ONLY},
    {"n_group", "1", HF_ONLY},
    {"topk_group", "1", HF_ONLY},
    {"num_expert_groups", "1", HF_ONLY},
    {"num_limited_groups", "1", HF_ONLY},
    {"global_attn_every_n_layers", NULL, HF_INT}, // layer_types says it
    {"mup_enabled", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
#define BAILING                                                                                              \
    {"num_experts", "expert_count", HF_INT}, {"num_experts_per_tok", "expert_used_count", HF_INT},           \
        {"moe_intermediate_size", "expert_feed_forward_length", HF_INT},                                     \
        {"num_shared_experts", "expert_shared_count", HF_INT},                                               \
        {"first_k_dense_replace", "leading_dense_block_count", HF_INT}, {"use_bias", NULL, HF_INT},          \
        {"use_qkv_bias", NULL, HF_INT}, {                                                                    \
        "use_rmsnorm", "true", HF_ONLY                                                                       \
    }
static const struct hf_key bailing_keys[] = {
    BAILING,
    {"norm_topk_prob", "expert_weights_norm", HF_BOOL},
    {"score_function", "softmax", HF_ONLY},
    {NULL, NULL, HF_INT},
};
static const struct hf_key bailing2_keys[] = {
    BAILING,
    {"n_group", "expert_group_count", HF_INT},
    {"topk_group", "expert_group_used_count", HF_INT},
    {"routed_scaling_factor", "expert_weights_scale", HF_FLOAT},
    {"norm_topk_prob", "true", HF_ONLY},
    {"score_function", "sigmoid", HF_ONLY},
    {"moe_shared_expert_intermediate_size", NULL, HF_INT}, // the size of an expert, says its code
    {"moe_router_enable_expert_bias", NULL, HF_INT},       // the tensors say it
    {"use_qk_norm", "true", HF_ONLY},
    {"rotary_dim", NULL, HF_INT},
    {"partial_rotary_factor", NULL, HF_FLOAT},
    {"num_nextn_predict_layers", NULL, HF_INT},
    {"mtp_loss_scaling_factor", NULL, HF_FLOAT}, // of training
    {NULL, NULL, HF_INT},
};
static const struct hf_key hy3_keys[] = {
    {"num_experts", "expert_count", HF_INT},
    {"num_experts_per_tok", "expert_used_count", HF_INT},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_INT},
    {"expert_hidden_dim", NULL, HF_INT}, // the same again
    {"num_shared_experts", "expert_shared_count", HF_INT},
    {"first_k_dense_replace", "leading_dense_block_count", HF_INT},
    {"mlp_layer_types", NULL, HF_INT},
    {"router_scaling_factor", "expert_weights_scale", HF_FLOAT},
    {"route_norm", "true", HF_ONLY},
    {"qk_norm", "true", HF_ONLY},
    {"moe_router_use_sigmoid", "true", HF_ONLY},
    {"moe_router_enable_expert_bias", NULL, HF_INT},
    {"enable_moe_fp32_combine", NULL, HF_INT},
    {"enable_attention_fp32_softmax", NULL, HF_INT},
    {"num_nextn_predict_layers", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_alias hy3_aliases[] = {
    {"num_experts", "num_local_experts"}, // as transformers 5 writes it
    {NULL, NULL},
};
static const struct hf_key cohere2_moe_keys[] = {
    {"num_experts", "expert_count", HF_INT},
    {"num_experts_per_tok", "expert_used_count", HF_INT},
    {"norm_topk_prob", "expert_weights_norm", HF_BOOL},
    {"first_k_dense_replace", "leading_dense_block_count", HF_INT},
    {"mlp_layer_types", NULL, HF_INT},
    {"logit_scale", "logit_scale", HF_FLOAT},
    {"prefix_dense_sliding_window_pattern", "1", HF_ONLY},
    {"sliding_window_pattern", NULL, HF_INT},
    {"num_nextn_predict_layers", NULL, HF_INT},
    // read one by one
    {"intermediate_size", NULL, HF_INT},
    {"prefix_dense_intermediate_size", NULL, HF_INT},
    {"num_shared_experts", NULL, HF_INT},
    {"shared_expert_combination_strategy", NULL, HF_INT},
    {"expert_selection_fn", NULL, HF_INT},
    {"layer_norm_eps", NULL, HF_FLOAT},
    {"rms_norm_eps", NULL, HF_FLOAT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key smallthinker_keys[] = {
    {"moe_num_primary_experts", "expert_count", HF_INT},
    {"moe_num_active_primary_experts", "expert_used_count", HF_INT},
    {"moe_ffn_hidden_size", "expert_feed_forward_length", HF_INT},
    {"moe_enable_early_router", "true", HF_ONLY},
    {"norm_topk_prob", "true", HF_ONLY},
    {"moe_layer_layout", NULL, HF_INT}, // all, says its code
    {"moe_secondary_expert_size", NULL, HF_INT},
    // read one by one
    {"moe_primary_router_apply_softmax", NULL, HF_INT},
    {"rope_layout", NULL, HF_INT},
    {"sliding_window_layout", NULL, HF_INT},
    {"sliding_window_size", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key minicpm3_keys[] = {
    {"kv_lora_rank", "attention.kv_lora_rank", HF_INT},
    {"q_lora_rank", "attention.q_lora_rank", HF_INT},
    {"qk_nope_head_dim", NULL, HF_INT},
    {"qk_rope_head_dim", NULL, HF_INT},
    {"qk_head_dim", NULL, HF_INT}, // the sum of both
    {"mlp_bias", "false", HF_ONLY},
    {"scale_emb", "12", HF_ONLY},
    {"scale_depth", "1.4", HF_ONLY},
    {"dim_model_base", "256", HF_ONLY},
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
static const struct hf_key granite_moe_keys[] = {
    GRANITE,
    {"num_local_experts", "expert_count", HF_INT},
    {"num_experts_per_tok", "expert_used_count", HF_INT},
    {"shared_intermediate_size", "expert_shared_feed_forward_length", HF_INT},
    {NULL, NULL, HF_INT},
};

// ---- families

#define DEEPSEEK3                                                                                            \
    "{\"norm_topk_prob\": true, \"routed_scaling_factor\": 2.5, \"n_group\": 8, \"topk_group\": 4}"
#define BAILING2                                                                                             \
    .names = bailing_names, .whole = bailing_whole, .keys = bailing2_keys,                                   \
    .defaults = "{\"rope_theta\": 600000, \"head_dim\": 128, \"num_shared_experts\": 1, \"n_group\": 8, "    \
                "\"topk_group\": 4, \"first_k_dense_replace\": 1, " NO_WINDOW "}"
static const struct hf_family bailing2 = {"bailing_moe", "bailingmoe2", BAILING2}; // Ling 2.0's first files
const struct hf_family hf_expert_families[] = {
    {"bailing_moe", "bailingmoe", .adjacent = true, .names = bailing_names, .whole = bailing_whole,
     .keys = bailing_keys, .code = "BailingMoeV2ForCausalLM", .of_code = &bailing2,
     .defaults = "{\"norm_topk_prob\": true, " NO_WINDOW "}"},
    {"bailing_moe_v2", "bailingmoe2", BAILING2},
    {"hy_v3", "hy_v3", .names = hy3_names, .keys = hy3_keys, .aliases = hy3_aliases,
     .defaults = "{\"rope_theta\": 11158840, \"head_dim\": 128, \"num_shared_experts\": 1, "
                 "\"first_k_dense_replace\": 1, \"router_scaling_factor\": 2.826}"},
    {"cohere2_moe", "cohere2moe", .names = cohere2_moe_names, .keys = cohere2_moe_keys,
     .defaults =
         "{" TIED ", \"layer_norm_eps\": 1e-5, \"logit_scale\": 0.0625, \"sliding_window\": 4096, "
         "\"head_dim\": 128, \"num_experts\": 8, \"num_experts_per_tok\": 2, \"norm_topk_prob\": true}"},
    {"smallthinker", "smallthinker", .act = "relu", .names = smallthinker_names, .keys = smallthinker_keys,
     .defaults = "{" TIED ", \"rope_theta\": 1000000, \"head_dim\": 128}"},
    {"qwen3_moe", "qwen3moe", .names = expert_names, .keys = qwen3_moe_keys, .aliases = qwen3_moe_aliases,
     .defaults = "{\"norm_topk_prob\": false, " NO_WINDOW "}"},
    {"qwen3_vl_moe_text", "qwen3vlmoe", .names = qwen3_vl_moe_names, .keys = qwen3_moe_keys,
     .aliases = qwen3_moe_aliases, .defaults = "{\"norm_topk_prob\": true, \"rope_theta\": 500000}"},
    {"glm4v_moe_text", "glm4moe", .names = glm4_moe_names, .keys = sigmoid_keys,
     .defaults = "{\"norm_topk_prob\": true}"},
    {"Glm4vMoe_text", "glm4moe", .names = glm4_moe_names, .keys = sigmoid_keys, // transformers 4.57
     .defaults = "{\"norm_topk_prob\": true}"},
    {"minimax_m2", "minimax-m2", .names = minimax_names, .keys = minimax_keys,
     .defaults = "{\"rope_theta\": 5000000, \"head_dim\": 128}"},
    {"afmoe", "afmoe", .names = afmoe_names, .keys = afmoe_keys,
     .defaults = "{\"sliding_window\": 1024, \"head_dim\": 128, \"num_dense_layers\": 1}"},
    {"mistral4", "mistral4", .names = mistral4_names, .keys = mistral4_keys,
     .defaults = "{\"norm_topk_prob\": true, \"q_lora_rank\": 1024, \"kv_lora_rank\": 256}"},
    {"exaone_moe", "exaone-moe", .names = exaone_moe_names, .keys = exaone_moe_keys,
     .defaults = "{\"sliding_window\": 4096, \"norm_topk_prob\": true, \"routed_scaling_factor\": 2.5}"},
    {"mixtral", "llama", .adjacent = true, .names = mixtral_names, .keys = mixtral_keys,
     .defaults = "{\"rope_theta\": 1000000}"},
    {"phimoe", "phimoe", .names = mixtral_names, .keys = phimoe_keys,
     .defaults = "{\"rope_theta\": 1000000, \"num_key_value_heads\": 8, \"num_local_experts\": 16,"
                 "\"num_experts_per_tok\": 2}"},
    {"gpt_oss", "gpt-oss", .names = gpt_oss_names, .keys = gpt_oss_keys,
     .defaults = "{\"rope_theta\": 150000, \"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 32,"
                 "\"beta_fast\": 32, \"beta_slow\": 1, \"truncate\": false,"
                 "\"original_max_position_embeddings\": 4096}}"},
    {"qwen2_moe", "qwen2moe", .names = qwen2_moe_names, .keys = qwen2_moe_keys,
     .defaults = "{" NO_WINDOW "}"},
    {"olmoe", "olmoe", .names = expert_names, .keys = olmoe_keys,
     .defaults = "{\"num_experts\": 64, \"num_experts_per_tok\": 8}"},
    {"glm4_moe", "glm4moe", .names = glm4_moe_names, .keys = sigmoid_keys,
     .defaults = "{\"partial_rotary_factor\": 0.5, \"norm_topk_prob\": true}"},
    {"dots1", "dots1", .names = dots1_names, .keys = sigmoid_keys, .defaults = "{\"norm_topk_prob\": false}"},
    {"ernie4_5_moe", "ernie4_5-moe", .names = ernie_moe_names, .keys = ernie_moe_keys,
     .defaults =
         "{" TIED ", \"rope_theta\": 500000, \"moe_num_shared_experts\": 2, \"moe_layer_start_index\": 1}"},
    {"hunyuan_v1_moe", "hunyuan-moe", .names = hunyuan_moe_names, .keys = hunyuan_moe_keys},
    {"granitemoe", "granitemoe", .adjacent = true, .names = granite_moe_names, .keys = granite_moe_keys,
     .defaults = "{" GRANITE_DEFAULTS "}"},
    {"granitemoeshared", "granitemoe", .adjacent = true, .names = granite_moe_names, .keys = granite_moe_keys,
     .defaults = "{" GRANITE_DEFAULTS "}"},
    {"llama4_text", "llama4", .names = llama4_names, .keys = llama4_keys,
     .defaults = "{\"rope_theta\": 500000, \"attention_chunk_size\": 8192, \"head_dim\": 128, "
                 "\"num_local_experts\": 16, \"num_experts_per_tok\": 1,"
                 "\"interleave_moe_layer_step\": 1}"},
    {"deepseek_v2", "deepseek2", .names = deepseek_names, .keys = deepseek2_keys,
     .defaults = "{\"norm_topk_prob\": false, \"topk_method\": \"greedy\"}"},
    {"deepseek_v3", "deepseek2", .names = deepseek_names, .keys = deepseek3_keys, .defaults = DEEPSEEK3},
    {"kimi_k2", "deepseek2", .names = deepseek_names, .keys = deepseek3_keys, .defaults = DEEPSEEK3},
    {"glm4_moe_lite", "deepseek2", .names = deepseek_names, .keys = deepseek3_keys,
     .defaults = "{\"norm_topk_prob\": true, \"routed_scaling_factor\": 1.8}"},
    {"minicpm3", "minicpm3", .names = deepseek_names, .keys = minicpm3_keys, .defaults = "{" TIED "}"},
    {.model_type = NULL},
};
