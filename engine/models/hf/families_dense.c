// Families of dense models. See families.h. Names are those of transformers 4.57 and of the files on huggingface.co.
#include "families_shared.h"

// ---- tensors

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
static const struct hf_name apertus_names[] = {
    {"attention_layernorm", .ours = "attn_norm"},
    {"feedforward_layernorm", .ours = "ffn_norm"},
    {"mlp.act_fn.alpha_p", .ours = ""}, // read by folder.c
    {"mlp.act_fn.alpha_n", .ours = ""},
    {"mlp.act_fn.beta", .ours = ""},
    {"mlp.act_fn.eps", .ours = ""},
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
static const struct hf_name gemma4_names[] = {
    {"self_attn.q_proj", .ours = "attn_q"}, // of heads that differ from layer to layer
    {"self_attn.k_proj", .ours = "attn_k"},
    {"post_attention_layernorm", .ours = "post_attention_norm"},
    {"pre_feedforward_layernorm", .ours = "ffn_norm"},
    {"post_feedforward_layernorm", .ours = "post_ffw_norm"},
    {"per_layer_input_gate", .ours = "inp_gate"},
    {"per_layer_projection", .ours = "proj"},
    {"post_per_layer_input_norm", .ours = "post_norm"},
    {"layer_scalar", .ours = "layer_output_scale", .end = ".weight"},
    {"router.proj", .ours = "ffn_gate_inp"},
    {"router.scale", .ours = "ffn_gate_inp", .end = ".scale"},
    {"router.per_expert_scale", .ours = "ffn_down_exps", .end = ".scale"},
    {"experts.gate_up_proj", .ours = "ffn_gate_exps", .rows = ROWS_FIRST_HALF},
    {"experts.gate_up_proj", .ours = "ffn_up_exps", .rows = ROWS_SECOND_HALF},
    {"experts.down_proj", .ours = "ffn_down_exps"},
    {"pre_feedforward_layernorm_2", .ours = "pre_ffw_norm_2"},
    {"post_feedforward_layernorm_1", .ours = "post_ffw_norm_1"},
    {"post_feedforward_layernorm_2", .ours = "post_ffw_norm_2"},
    END,
};
static const struct hf_name gemma4_whole[] = {
    {"model.embed_tokens_per_layer", .ours = "per_layer_token_embd"},
    {"model.per_layer_model_projection", .ours = "per_layer_model_proj"},
    {"model.per_layer_projection_norm", .ours = "per_layer_proj_norm"},
    END,
};
static const struct hf_name gemma3n_names[] = {
    {"post_attention_layernorm", .ours = "post_attention_norm"},
    {"pre_feedforward_layernorm", .ours = "ffn_norm"},
    {"post_feedforward_layernorm", .ours = "post_ffw_norm"},
    {"per_layer_input_gate", .ours = "inp_gate"},
    {"per_layer_projection", .ours = "proj"},
    {"post_per_layer_input_norm", .ours = "post_norm"},
    {"altup.modality_router", .ours = "altup_router"},
    {"altup.router_norm", .ours = "altup_router_norm"},
    {"altup.prediction_coefs", .ours = "altup_predict_coef"},
    {"altup.correction_coefs", .ours = "altup_correct_coef"},
    {"altup.correct_output_scale", .ours = "altup_correct_scale", .end = ".weight"},
    {"laurel.linear_left", .ours = "laurel_l"},
    {"laurel.linear_right", .ours = "laurel_r"},
    {"laurel.post_laurel_norm", .ours = "laurel_post_norm"},
    END,
};
static const struct hf_name gemma3n_whole[] = {
    {"model.embed_tokens_per_layer", .ours = "per_layer_token_embd"},
    {"model.per_layer_model_projection", .ours = "per_layer_model_proj"},
    {"model.per_layer_projection_norm", .ours = "per_layer_proj_norm"},
    {"model.altup_projections.#", .ours = "altup_proj"},
    {"model.altup_unembed_projections.#", .ours = "altup_unembd_proj"},
    END,
};
static const struct hf_name gemma_embedding_whole[] = {
    {"dense_2", .ours = "dense_2"}, // of sentence-transformers' modules
    {"dense_3", .ours = "dense_3"},
    END,
};
static const struct hf_name glm4_names[] = {
    {"post_self_attn_layernorm", .ours = "post_attention_norm"},
    {"post_mlp_layernorm", .ours = "post_ffw_norm"},
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
static const struct hf_name falcon_names[] = {
    {"ln_attn", .ours = "attn_norm_2"},
    {"ln_mlp", .ours = "attn_norm"},
    {"self_attention.query_key_value", .ours = "attn_q", .rows = ROWS_GROUPED_Q},
    {"self_attention.query_key_value", .ours = "attn_k", .rows = ROWS_GROUPED_K},
    {"self_attention.query_key_value", .ours = "attn_v", .rows = ROWS_GROUPED_V},
    {"self_attention.dense", .ours = "attn_output"},
    {"mlp.dense_h_to_4h", .ours = "ffn_up"},
    {"mlp.dense_4h_to_h", .ours = "ffn_down"},
    {"self_attention.rotary_emb.inv_freq", .ours = ""}, // left behind by old versions
    END,
};
static const struct hf_name falcon_whole[] = {
    {"model.word_embeddings", .ours = "token_embd"},
    {"model.ln_f", .ours = "output_norm"},
    END,
};
static const struct hf_name gpt2_names[] = {
    {"ln_1", .ours = "attn_norm"},
    {"ln_2", .ours = "ffn_norm"},
    {"attn.c_attn", .ours = "attn_qkv", .turned = true},
    {"attn.c_proj", .ours = "attn_output", .turned = true},
    {"mlp.c_fc", .ours = "ffn_up", .turned = true},
    {"mlp.c_proj", .ours = "ffn_down", .turned = true},
    {"attn.bias", .ours = ""}, // masks
    {"attn.masked_bias", .ours = ""},
    END,
};
static const struct hf_name gpt2_whole[] = {
    {"model.wte", .ours = "token_embd"},
    {"model.wpe", .ours = "position_embd", .rows = ROWS_POSITIONS},
    {"model.ln_f", .ours = "output_norm"},
    END,
};
static const struct hf_name neox_whole[] = {
    {"model.embed_in", .ours = "token_embd"},
    {"model.final_layer_norm", .ours = "output_norm"},
    {"embed_out", .ours = "output"},
    END,
};

// ---- keys

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
static const struct hf_key bias_keys[] = {
    // the tensors say it
    {"mlp_bias", NULL, HF_INT},
    {"use_bias", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key smollm3_keys[] = {
    {"mlp_bias", NULL, HF_INT},
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
    {"rope_local_base_freq", NULL, HF_FLOAT},
    {"sliding_window_pattern", NULL, HF_INT},
    {"_sliding_window_pattern", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key gemma_embedding_keys[] = {
    {"query_pre_attn_scalar", NULL, HF_FLOAT},
    {"rope_local_base_freq", NULL, HF_FLOAT},
    {"_sliding_window_pattern", NULL, HF_INT},
    {"use_bidirectional_attention", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key gemma3n_keys[] = {
    {"final_logit_softcapping", "final_logit_softcapping", HF_FLOAT},
    {"rope_local_base_freq", NULL, HF_FLOAT},
    {"hidden_size_per_layer_input", "embedding_length_per_layer_input", HF_INT},
    {"num_kv_shared_layers", "attention.shared_kv_layers", HF_INT},
    {"altup_num_inputs", "altup.num_inputs", HF_INT},
    {"altup_active_idx", "altup.active_idx", HF_INT},
    {"altup_correct_scale", "true", HF_ONLY},
    {"activation_sparsity_pattern", NULL, HF_FLOAT}, // read_sparsity()
    // without effect: transformers clips in training alone (Gemma3nTextAltUp), so files are within the clip; the
    // others are of training, too, or said by tensors
    {"altup_coef_clip", NULL, HF_INT},
    {"altup_lr_multiplier", NULL, HF_INT},
    {"query_pre_attn_scalar", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key gemma4_keys[] = {
    {"final_logit_softcapping", "final_logit_softcapping", HF_FLOAT},
    {"hidden_size_per_layer_input", "embedding_length_per_layer_input", HF_INT},
    {"num_kv_shared_layers", "attention.shared_kv_layers", HF_INT},
    // read_differing(), read_sizes()
    {"enable_moe_block", NULL, HF_INT},
    {"num_experts", NULL, HF_INT},
    {"top_k_experts", NULL, HF_INT},
    {"moe_intermediate_size", NULL, HF_INT},
    {"intermediate_size", NULL, HF_INT},
    {"global_head_dim", NULL, HF_INT},
    {"num_global_key_value_heads", NULL, HF_INT},
    {"attention_k_eq_v", NULL, HF_INT},
    {"use_double_wide_mlp", NULL, HF_INT},
    {"use_bidirectional_attention", NULL, HF_INT},
    {"per_layer_config", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key internlm3_keys[] = {
    {"qkv_bias", NULL, HF_INT},
    {"bias", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
#define LAYER_NORM "attention.layer_norm_epsilon", HF_FLOAT
static const struct hf_key olmo_keys[] = {
    {"layer_norm_eps", LAYER_NORM}, // files do not say it
    {"clip_qkv", "attention.clamp_kqv", HF_FLOAT},
    {NULL, NULL, HF_INT},
};
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
static const struct hf_key gpt2_keys[] = {
    {"layer_norm_epsilon", LAYER_NORM},
    {"intermediate_size", NULL, HF_INT}, // read_sizes()
    {"scale_attn_weights", "true", HF_ONLY},
    {"scale_attn_by_inverse_layer_idx", "false", HF_ONLY},
    {"add_cross_attention", "false", HF_ONLY},
    {"reorder_and_upcast_attn", NULL, HF_INT},
    {"resid_pdrop", NULL, HF_INT},
    {"attn_pdrop", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key falcon_keys[] = {
    {"layer_norm_epsilon", LAYER_NORM},
    {"intermediate_size", NULL, HF_INT}, // read_sizes()
    {"num_kv_heads", NULL, HF_INT},
    {"new_decoder_architecture", NULL, HF_INT},
    {"multi_query", NULL, HF_INT},
    {"num_ln_in_parallel_attn", NULL, HF_INT}, // the tensors say it
    {"bias", NULL, HF_INT},
    {"parallel_attn", "true", HF_ONLY},
    {"alibi", "false", HF_ONLY},
    {NULL, NULL, HF_INT},
};
static const struct hf_alias falcon_aliases[] = {
    {"intermediate_size", "ffn_hidden_size"},
    {"hidden_act", "activation"},
    {NULL, NULL},
};
static const struct hf_alias gpt2_aliases[] = {
    {"num_hidden_layers", "n_layer"},
    {"hidden_size", "n_embd"},
    {"num_attention_heads", "n_head"},
    {"intermediate_size", "n_inner"},
    {"hidden_act", "activation_function"},
    {"max_position_embeddings", "n_positions"},
    {NULL, NULL},
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
static const struct hf_key apertus_keys[] = {
    {"qk_norm", "true", HF_ONLY},
    {"post_norm", "false", HF_ONLY},
    {NULL, NULL, HF_INT},
};
static const struct hf_key deci_keys[] = {
    // read by hf_read_blocks()
    {"block_configs", NULL, HF_INT},
    {"num_attention_heads", NULL, HF_INT},
    {"num_key_value_heads_per_layer", NULL, HF_INT},
    {"intermediate_size", NULL, HF_INT},
    {"mlp_bias", NULL, HF_INT}, // the tensors say it
    {NULL, NULL, HF_INT},
};
static const struct hf_key cohere_keys[] = {
    {"layer_norm_eps", LAYER_NORM},
    {"logit_scale", "logit_scale", HF_FLOAT},
    {"use_qk_norm", NULL, HF_INT},
    // as the code does in any case
    {"sliding_window_pattern", NULL, HF_INT},
    {"_sliding_window_pattern", NULL, HF_INT},
    {"use_gated_activation", "true", HF_ONLY},
    {"use_parallel_block", "true", HF_ONLY},
    {"use_parallel_embedding", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};

// ---- families

#define GEMMA3                                                                                               \
    .norms_less_one = true, .act = GELU, .names = post_norm_names,                                           \
    .defaults = "{" TIED ", \"head_dim\": 256, \"query_pre_attn_scalar\": 256, \"sliding_window\": 4096,"    \
                "\"rope_theta\": 1000000, \"rope_local_base_freq\": 10000, \"num_attention_heads\": 8,"      \
                "\"num_key_value_heads\": 4, \"vocab_size\": 262208, \"max_position_embeddings\": 131072,"   \
                "\"rms_norm_eps\": 1e-6}"
static const struct hf_family gemma_embedding = {
    "gemma3_text", "gemma-embedding", GEMMA3, .keys = gemma_embedding_keys, .whole = gemma_embedding_whole};
#define GEMMA4_ROPE                                                                                          \
    "{\"sliding_attention\": {\"rope_theta\": 10000}, \"full_attention\": {\"rope_type\": \"proportional\"," \
    "\"partial_rotary_factor\": 0.25, \"rope_theta\": 1000000}}"
// M-RoPE is RoPE where all positions are of text.
#define QWEN2_VL(type)                                                                                       \
    { type, "qwen2vl", .defaults = "{\"rope_theta\": 1000000, " NO_WINDOW "}" }
const struct hf_family hf_dense_families[] = {
    {"llama", "llama", .adjacent = true, .keys = bias_keys},
    {"mistral", "llama", .adjacent = true, .defaults = "{\"sliding_window\": 4096}"},
    {"ministral3", "mistral3", .adjacent = true,
     .defaults = "{\"rope_parameters\": {\"type\": \"yarn\", \"rope_theta\": 1000000, \"factor\": 16,"
                 "\"original_max_position_embeddings\": 16384, \"beta_fast\": 32, \"beta_slow\": 1,"
                 "\"mscale\": 1, \"mscale_all_dim\": 1, \"llama_4_scaling_beta\": 0.1}}"},
    {"ministral", "llama", .adjacent = true},
    {"qwen2", "qwen2", .defaults = "{" NO_WINDOW "}"},
    {"mimo", "qwen2", .defaults = "{" NO_WINDOW "}"}, // MiMo 7B: Qwen2 and a layer of speculation
    {"qwen3", "qwen3", .defaults = "{\"head_dim\": 128, " NO_WINDOW "}"},
    QWEN2_VL("qwen2_vl"),
    QWEN2_VL("qwen2_vl_text"),
    QWEN2_VL("qwen2_5_vl"),
    QWEN2_VL("qwen2_5_vl_text"),
    {"qwen3_vl_text", "qwen3vl", .defaults = "{\"head_dim\": 128, \"rope_theta\": 500000}"},
    {"arcee", "arcee", .adjacent = true, .act = "relu2", .keys = bias_keys},
    {"glm", "chatglm", .keys = partial_keys, .defaults = "{\"partial_rotary_factor\": 0.5}"},
    {"glm4v_text", "glm4", .names = glm4_names, .keys = partial_keys},
    {"granite", "granite", .adjacent = true, .keys = granite_keys, .defaults = "{" GRANITE_DEFAULTS "}"},
    {"minicpm", "minicpm", .adjacent = true, .keys = minicpm_keys,
     .defaults = "{" TIED ", \"scale_emb\": 1, \"scale_depth\": 1, \"dim_model_base\": 1}"},
    {"smollm3", "smollm3", .adjacent = true, .keys = smollm3_keys,
     .defaults = "{" TIED ", \"rope_theta\": 2000000, " NO_WINDOW "}"},
    {"internlm2", "internlm2", .adjacent = true, .names = internlm2_names, .whole = internlm2_whole},
    {"ernie4_5", "ernie4_5", .keys = bias_keys,
     .defaults = "{" TIED ", \"rope_theta\": 500000, \"head_dim\": 128}"},
    {"seed_oss", "seed_oss", .names = seed_oss_names, .keys = seed_oss_keys},
    {"hunyuan_v1_dense", "hunyuan-dense", .names = hunyuan_names, .keys = hunyuan_keys},
    {"phi3", "phi3", .keys = partial_keys},
    {"olmo", "olmo", .adjacent = true, .keys = olmo_keys, .defaults = "{\"layer_norm_eps\": 1e-5}"},
    {"olmo2", "olmo2", .names = post_norm_names},
    {"olmo3", "olmo2", .names = post_norm_names,
     .defaults = "{\"sliding_window\": 4096, \"rope_theta\": 500000}"},
    {"glm4", "glm4", .names = glm4_names, .keys = partial_keys,
     .defaults = "{\"partial_rotary_factor\": 0.5}"},
    {"exaone4", "exaone4", .names = post_norm_names, .keys = exaone4_keys,
     .defaults = "{\"sliding_window\": 4096}"},
    {"gemma", "gemma", .norms_less_one = true, .act = GELU,
     .defaults = "{" TIED ", \"head_dim\": 256, \"max_position_embeddings\": 8192, \"rms_norm_eps\": 1e-6}"},
    {"gemma2", "gemma2", .norms_less_one = true, .act = GELU, .names = post_norm_names, .keys = gemma2_keys,
     .defaults = "{" TIED ", \"head_dim\": 256, \"query_pre_attn_scalar\": 256, \"sliding_window\": 4096,"
                 "\"attn_logit_softcapping\": 50, \"final_logit_softcapping\": 30,"
                 "\"max_position_embeddings\": 8192, \"rms_norm_eps\": 1e-6}"},
    {"gemma3_text", "gemma3", GEMMA3, .keys = gemma3_keys, .of_both = &gemma_embedding},
    {"gemma3n_text", "gemma3n", .act = GELU, .names = gemma3n_names, .whole = gemma3n_whole,
     .keys = gemma3n_keys,
     .defaults = "{" TIED ", \"head_dim\": 256, \"sliding_window\": 512, \"rope_theta\": 1000000,"
                 "\"rope_local_base_freq\": 10000, \"hidden_size_per_layer_input\": 256,"
                 "\"num_kv_shared_layers\": 15, \"rms_norm_eps\": 1e-6, \"final_logit_softcapping\": 30}"},
    {"gemma4_text", "gemma4", .act = GELU, .names = gemma4_names, .whole = gemma4_whole, .keys = gemma4_keys,
     .defaults =
         "{" TIED ", \"head_dim\": 256, \"global_head_dim\": 512, \"sliding_window\": 512,"
         "\"hidden_size_per_layer_input\": 256, \"rms_norm_eps\": 1e-6, \"rope_parameters\": " GEMMA4_ROPE
         "}"},
    {"gemma4_unified_text", "gemma4", .act = GELU, .names = gemma4_names, .keys = gemma4_keys,
     .defaults = "{" TIED ", \"head_dim\": 256, \"global_head_dim\": 512, \"sliding_window\": 1024,"
                 "\"rms_norm_eps\": 1e-6, \"rope_parameters\": " GEMMA4_ROPE "}"},
    {"internlm3", "llama", .adjacent = true, .keys = internlm3_keys},
    {"starcoder2", "starcoder2", .act = GELU, .names = starcoder2_names, .keys = starcoder2_keys,
     .defaults = "{" TIED ", \"norm_epsilon\": 1e-5}"},
    {"stablelm", "stablelm", .names = stablelm_names, .keys = stablelm_keys,
     .defaults = "{\"layer_norm_eps\": 1e-5, \"partial_rotary_factor\": 0.25}"},
    {"phi", "phi2", .act = "gelu_new", .names = phi_names, .whole = phi_whole, .keys = phi_keys,
     .defaults = "{\"layer_norm_eps\": 1e-5, \"partial_rotary_factor\": 0.5}"},
    {"gpt2", "gpt2", .act = "gelu_new", .prefix = "transformer.", .layers = "h.", .names = gpt2_names,
     .whole = gpt2_whole, .keys = gpt2_keys, .aliases = gpt2_aliases, .four_times = true,
     .defaults = "{" TIED ", \"layer_norm_epsilon\": 1e-5}"},
    {"falcon", "falcon", .act = "gelu", .prefix = "transformer.", .layers = "h.", .names = falcon_names,
     .whole = falcon_whole, .keys = falcon_keys, .aliases = falcon_aliases, .four_times = true,
     .defaults = "{" TIED ", \"layer_norm_epsilon\": 1e-5, \"max_position_embeddings\": 2048}"},
    {"gpt_neox", "gptneox", .act = "gelu", .prefix = "gpt_neox.", .names = neox_names, .whole = neox_whole,
     .keys = neox_keys,
     .defaults = "{\"layer_norm_eps\": 1e-5, \"rotary_pct\": 0.25, \"use_parallel_residual\": true}"},
    {"nemotron", "nemotron", .norms_less_one = true, .act = "relu2", .keys = nemotron_keys,
     .defaults = "{\"norm_eps\": 1e-5, \"partial_rotary_factor\": 0.5}"},
    {"apertus", "apertus", .act = "xielu", .names = apertus_names, .keys = apertus_keys,
     .defaults =
         "{\"rope_theta\": 12000000, \"rope_parameters\": {\"rope_type\": \"llama3\", \"factor\": 8,"
         "\"low_freq_factor\": 1, \"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192}}"},
    {"nemotron-nas", "deci", .adjacent = true, .keys = deci_keys},
    {"deci", "deci", .adjacent = true, .keys = deci_keys},
    {"cohere", "command-r", .keys = cohere_keys,
     .defaults = "{" TIED ", \"layer_norm_eps\": 1e-5, \"logit_scale\": 0.0625, \"rope_theta\": 500000}"},
    {"cohere2", "cohere2", .keys = cohere_keys,
     .defaults = "{" TIED ", \"layer_norm_eps\": 1e-5, \"logit_scale\": 0.0625, \"sliding_window\": 4096}"},
    {.model_type = NULL},
};
