// See architectures.h. docs/architecture.md says which files a new one touches.
#include "architectures.h"

#include <stdio.h>
#include <string.h>

#define AT(member) offsetof(struct hparams, member)

static const struct hparam_key gguf_keys[NUM_HPARAMS] = {
    [H_EXPERTS] = {"expert_count", HPARAM_INT, .field = AT(expert.experts), .max = 1024},
    [H_LAYERS] = {"block_count", HPARAM_INT, true, .field = AT(layers), .min = 1, .max = MODEL_MAX_LAYERS},
    [H_CONTEXT] = {"context_length", HPARAM_INT, true, .field = AT(context), .min = 1, .max = 1 << 24},
    [H_HIDDEN] = {"embedding_length", HPARAM_INT, true, .field = AT(hidden), .min = 1, .max = 1 << 20},
    [H_FFN] = {"feed_forward_length", HPARAM_INT, false, true, AT(ffn.hidden), 1, 1 << 24},
    [H_HEADS] = {"attention.head_count", HPARAM_INT, true, true, AT(attn.heads), 1, 1 << 14},
    [H_KV_HEADS] = {"attention.head_count_kv", HPARAM_INT, false, true, AT(attn.kv_heads), 1,
                    .bound = AT(attn.heads)},
    [H_KEY_DIM] = {"attention.key_length", HPARAM_INT, .field = AT(attn.head_dim), .min = 2, .max = 1 << 12},
    [H_VALUE_DIM] = {"attention.value_length", HPARAM_INT, .field = AT(value_dim), .min = 1, .max = 1 << 12},
    [H_NORM_EPS] = {"attention.layer_norm_rms_epsilon", HPARAM_FLOAT, true, .field = AT(norm_eps), .max = 1},
    [H_LAYER_NORM_EPS] = {"attention.layer_norm_epsilon", HPARAM_FLOAT, .of_some = true,
                          .field = AT(norm_eps), .max = 1},
    [H_ATTN_SCALE] = {"attention.scale", HPARAM_FLOAT, .field = AT(attn.scale), .max = 1e6},
    [H_EMBED_SCALE] = {"embedding_scale", HPARAM_FLOAT, .of_some = true, .field = AT(embed_scale),
                       .max = 1e6},
    [H_RESIDUAL_SCALE] = {"residual_scale", HPARAM_FLOAT, .of_some = true, .field = AT(residual_scale),
                          .max = 1e6},
    [H_LOGIT_SCALE] = {"logit_scale", HPARAM_FLOAT, .of_some = true, .field = AT(logit_scale), .max = 1e6},
    [H_ATTN_SOFTCAP] = {"attn_logit_softcapping", HPARAM_FLOAT, .field = AT(attn.softcap), .max = 1e6,
                        .of_some = true},
    [H_ATTN_TEMP] = {"attention.temperature_scale", HPARAM_FLOAT, .field = AT(attn.temp_scale), .max = 1e3,
                     .of_some = true},
    [H_ATTN_TEMP_STEP] = {"attention.temperature_length", HPARAM_INT, .field = AT(attn.temp_step), .min = 1,
                          .max = 1 << 24, .of_some = true},
    [H_LOGIT_SOFTCAP] = {"final_logit_softcapping", HPARAM_FLOAT, .field = AT(logit_softcap), .max = 1e6,
                         .of_some = true},
    [H_WINDOW] = {"attention.sliding_window", HPARAM_INT, false, true, AT(attn.window), 0, INT32_MAX},
    [H_WINDOW_PATTERN] = {"attention.sliding_window_pattern", HPARAM_OTHER},
    [H_PARALLEL] = {"use_parallel_residual", HPARAM_OTHER, .of_some = true},
    [H_VOCAB] = {"vocab_size", HPARAM_INT, .field = AT(vocab), .max = INT32_MAX},
    [H_POOLING] = {"pooling_type", HPARAM_INT, .field = AT(pooling), .max = POOLING_LAST},
    [H_ROPE_BASE] = {"rope.freq_base", HPARAM_FLOAT, .field = AT(rope.theta), .max = 1e12},
    [H_ROPE_WINDOW_BASE] = {"rope.freq_base_swa", HPARAM_FLOAT, .field = AT(window_theta), .max = 1e12,
                            .of_some = true},
    [H_ROPE_DIM] = {"rope.dimension_count", HPARAM_INT, .field = AT(rope.dim), .min = 2,
                    .bound = AT(attn.head_dim)},
    [H_ROPE_ATTN_FACTOR] = {"rope.scaling.attn_factor", HPARAM_FLOAT, .field = AT(rope.attn_factor),
                            .max = 1e6},
    [H_ROPE_TYPE] = {"rope.scaling.type", HPARAM_OTHER},
    [H_ROPE_FACTOR] = {"rope.scaling.factor", HPARAM_FLOAT, .field = AT(rope.factor), .max = 1e6},
    [H_ROPE_OLD_FACTOR] = {"rope.scale_linear", HPARAM_FLOAT, .field = AT(rope.factor), .max = 1e6},
    [H_ROPE_CONTEXT] = {"rope.scaling.original_context_length", HPARAM_INT,
                        .field = AT(rope.original_context), .min = 1, .max = 1 << 24},
    [H_ROPE_LOW_FREQ] = {"rope.scaling.low_freq_factor", HPARAM_FLOAT, .field = AT(rope.low_freq),
                         .max = 1e6},
    [H_ROPE_HIGH_FREQ] = {"rope.scaling.high_freq_factor", HPARAM_FLOAT, .field = AT(rope.high_freq),
                          .max = 1e6},
    [H_ROPE_BETA_FAST] = {"rope.scaling.yarn_beta_fast", HPARAM_FLOAT, .field = AT(rope.beta_fast),
                          .max = 1e6},
    [H_ROPE_BETA_SLOW] = {"rope.scaling.yarn_beta_slow", HPARAM_FLOAT, .field = AT(rope.beta_slow),
                          .max = 1e6},
    [H_ROPE_FINETUNED] = {"rope.scaling.finetuned", HPARAM_OTHER, .of_some = true},
    [H_SHORT_CONV] = {"shortconv.l_cache", HPARAM_INT, .of_some = true, .field = AT(mix.taps), .min = 2,
                      .max = MIX_MAX_TAPS},
    [H_SSM_CONV] = {"ssm.conv_kernel", HPARAM_INT, .of_some = true, .field = AT(mix.taps), .min = 2,
                    .max = MIX_MAX_TAPS},
    [H_SSM_INNER] = {"ssm.inner_size", HPARAM_INT, .of_some = true, .field = AT(mix_inner), .min = 1,
                     .max = 1 << 20},
    [H_SSM_STATE] = {"ssm.state_size", HPARAM_INT, .of_some = true, .field = AT(mix.key_dim), .min = 1,
                     .max = 1 << 12},
    [H_SSM_HEADS] = {"ssm.time_step_rank", HPARAM_INT, .of_some = true, .field = AT(mix.heads), .min = 1,
                     .bound = AT(mix_inner)},
    [H_SSM_GROUPS] = {"ssm.group_count", HPARAM_INT, .of_some = true, .field = AT(mix.groups), .min = 1,
                      .bound = AT(mix.heads)},
    [H_TOP_K] = {"expert_used_count", HPARAM_INT, true, .field = AT(expert.top_k), .min = 1,
                 .bound = AT(expert.experts), .of_some = true},
    [H_EXPERT_FFN] = {"expert_feed_forward_length", HPARAM_INT, .field = AT(expert.hidden), .min = 1,
                      .max = 1 << 24, .of_some = true},
    [H_SHARED_EXPERTS] = {"expert_shared_count", HPARAM_INT, .field = AT(shared_experts), .max = 1024,
                          .of_some = true},
    [H_SHARED_FFN] = {"expert_shared_feed_forward_length", HPARAM_INT, .field = AT(expert.shared_hidden),
                      .max = 1 << 24, .of_some = true},
    [H_EXPERT_SCALE] = {"expert_weights_scale", HPARAM_FLOAT, .field = AT(expert.scale), .max = 1e6,
                        .of_some = true},
    [H_EXPERT_NORM] = {"expert_weights_norm", HPARAM_OTHER, .of_some = true},
    [H_EXPERT_GATING] = {"expert_gating_func", HPARAM_INT, .field = AT(gating), .max = 3, .of_some = true},
    [H_EXPERT_GROUPS] = {"expert_group_count", HPARAM_INT, .field = AT(expert.groups),
                         .bound = AT(expert.experts), .of_some = true},
    [H_EXPERT_TOP_GROUPS] = {"expert_group_used_count", HPARAM_INT, .field = AT(expert.top_groups),
                             .bound = AT(expert.groups), .of_some = true},
    [H_DENSE_LAYERS] = {"leading_dense_block_count", HPARAM_INT, .field = AT(dense_layers),
                        .bound = AT(layers), .of_some = true},
    [H_EXPERT_STEP] = {"interleave_moe_layer_step", HPARAM_INT, .field = AT(expert_step),
                       .max = MODEL_MAX_LAYERS, .of_some = true},
    [H_NEXTN] = {"nextn_predict_layers", HPARAM_INT, .field = AT(nextn), .max = MODEL_MAX_LAYERS,
                 .of_some = true},
    [H_ATTN_INTERVAL] = {"full_attention_interval", HPARAM_INT, .of_some = true, .field = AT(attn_interval),
                         .min = 1, .max = MODEL_MAX_LAYERS},
    [H_RECURRENT_LAYERS] = {"attention.recurrent_layers", HPARAM_OTHER, .of_some = true},
    // Of positions of images; those of text are equal, and rotate as if there were one
    [H_ROPE_SECTIONS] = {"rope.dimension_sections", HPARAM_OTHER, .of_some = true},
    [H_ROPE_YARN_LOG] = {"rope.scaling.yarn_log_multiplier", HPARAM_FLOAT, .of_some = true,
                         .field = AT(yarn_log), .max = 100},
    [H_LATENT_KEY_DIM] = {"attention.key_length_mla", HPARAM_INT, .of_some = true,
                          .field = AT(latent_key_dim), .min = 2, .max = 1 << 12},
    [H_LATENT_VALUE_DIM] = {"attention.value_length_mla", HPARAM_INT, .of_some = true,
                            .field = AT(latent_value_dim), .min = 1, .max = 1 << 12},
    [H_KV_LORA] = {"attention.kv_lora_rank", HPARAM_INT, .of_some = true, .field = AT(attn.kv_lora), .min = 1,
                   .max = 1 << 12},
    [H_Q_LORA] = {"attention.q_lora_rank", HPARAM_INT, .of_some = true, .field = AT(attn.q_lora),
                  .max = 1 << 16},
};

static const struct fixed_key gguf_fixed[] = {
    {"attention.causal", VALUE_TRUE},
    {"rope.scaling.finetuned", VALUE_ANY},
    {"rope.scaling.yarn_ext_factor", VALUE_ONE},
    {"rope.scaling.yarn_attn_factor", VALUE_ONE},
    {"logit_scale", VALUE_ONE},
    {"residual_scale", VALUE_ONE},
    {"embedding_scale", VALUE_ONE},
};

static const struct suspect gguf_suspects[] = {
    {false, "attention."},   {false, "rope."},        {false, "expert"},       {false, "ssm."},
    {false, "wkv."},         {false, "shortconv."},   {false, "classifier."},  {true, "moe"},
    {true, "_scale"},        {true, "_multiplier"},   {true, "softcapping"},   {true, "window"},
    {true, "activation"},    {true, "hidden_act"},    {true, "pooling"},       {true, "residual"},
    {true, "_norm"},         {true, "nextn_predict"}, {true, "every_n_layer"}, {true, "deepstack"},
    {true, "leading_dense"},
};

#define IN_MODEL(member) offsetof(struct model, member)
#define IN_LAYER(member) offsetof(struct layer, member)
static const struct weight_slot gguf_slots[] = {
    // in the order in which they are loaded: the model's own first
    {WEIGHT_EMBED, SLOT_MODEL, IN_MODEL(embed), .part = {{"token_embd", "VD"}}},
    {WEIGHT_HEAD, SLOT_MODEL, IN_MODEL(head), .part = {{"output", "VD"}}},
    {WEIGHT_NORM, SLOT_MODEL, IN_MODEL(out_norm), .part = {{"output_norm", "D"}}, .unless = TRAIT_SHORT_CONV},
    {WEIGHT_NORM, SLOT_MODEL, IN_MODEL(out_norm), .part = {{"token_embd_norm", "D"}},
     .when = TRAIT_SHORT_CONV},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(attn_norm), .part = {{"attn_norm", "D"}},
     .unless = TRAIT_NO_PRE_NORMS},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(attn_post_norm), .part = {{"post_attention_norm", "D"}},
     .when = TRAIT_POST_NORMS},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(ffn_post_norm), .part = {{"post_ffw_norm", "D"}},
     .when = TRAIT_POST_NORMS},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(q_norm), .part = {{"attn_q_norm", "Q"}}, .when = TRAIT_WHOLE_QK_NORM,
     .of = OF_ATTN},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(k_norm), .part = {{"attn_k_norm", "K"}}, .when = TRAIT_WHOLE_QK_NORM,
     .of = OF_ATTN},
    {WEIGHT_QKV, SLOT_LAYER, IN_LAYER(qkv), .part = {{"attn_q", "QD"}, {"attn_k", "KD"}, {"attn_v", "KD"}},
     .fused = "attn_qkv", .unless = TRAIT_ATTN_GATE | TRAIT_LATENT, .of = OF_ATTN},
    {WEIGHT_QKV, SLOT_LAYER, IN_LAYER(qkv),
     .part = {{"attn_q", "QD", .rows = "QQ", .each = 'd'}, {"attn_k", "KD"}, {"attn_v", "KD"}},
     .when = TRAIT_ATTN_GATE, .of = OF_ATTN},
    {WEIGHT_ATTN_GATE, SLOT_LAYER, IN_LAYER(attn_gate),
     .part = {{"attn_q", "QD", .rows = "QQ", .at = 1, .each = 'd'}}, .when = TRAIT_ATTN_GATE, .of = OF_ATTN},
    {WEIGHT_LATENT, SLOT_LAYER, IN_LAYER(latent), .part = {{"attn_kv_a_mqa", "AD"}}, .when = TRAIT_LATENT},
    {WEIGHT_LATENT_QDOWN, SLOT_LAYER, IN_LAYER(latent_qdown), .part = {{"attn_q_a", "UD"}},
     .when = TRAIT_LATENT, .of = OF_Q_LATENT},
    {WEIGHT_LATENT_Q, SLOT_LAYER, IN_LAYER(latent_q), .part = {{"attn_q", "PD"}}, .when = TRAIT_LATENT,
     .of = OF_NO_Q_LATENT},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(latent_norm), .part = {{"attn_kv_a_norm", "C"}}, .when = TRAIT_LATENT},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(latent_qnorm), .part = {{"attn_q_a_norm", "U"}}, .when = TRAIT_LATENT,
     .of = OF_Q_LATENT},
    {WEIGHT_LATENT_Q, SLOT_LAYER, IN_LAYER(latent_q), .part = {{"attn_q_b", "PU"}}, .when = TRAIT_LATENT,
     .of = OF_Q_LATENT},
    {WEIGHT_LATENT_KEY, SLOT_LAYER, IN_LAYER(latent_key), .part = {{"attn_k_b", "HCN"}}, .fused = "attn_kv_b",
     .fused_shape = "BC", .when = TRAIT_LATENT},
    {WEIGHT_LATENT_VALUE, SLOT_LAYER, IN_LAYER(latent_value), .part = {{"attn_v_b", "HWC"}},
     .fused = "attn_kv_b", .fused_shape = "BC", .when = TRAIT_LATENT},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(q_norm), .part = {{"attn_q_norm", "d"}}, .when = TRAIT_QK_NORM,
     .of = OF_QK_NORM},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(k_norm), .part = {{"attn_k_norm", "d"}}, .when = TRAIT_QK_NORM,
     .of = OF_QK_NORM},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(q_norm), .part = {{"attn_q_norm", "Hd"}}, .when = TRAIT_EACH_QK_NORM,
     .of = OF_ATTN},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(k_norm), .part = {{"attn_k_norm", "kd"}}, .when = TRAIT_EACH_QK_NORM,
     .of = OF_ATTN},
    {WEIGHT_SINKS, SLOT_LAYER, IN_LAYER(sinks), .part = {{"attn_sinks", "H"}}, .when = TRAIT_SINKS,
     .of = OF_ATTN},
    {WEIGHT_ATTN_OUT, SLOT_LAYER, IN_LAYER(attn_out), .part = {{"attn_output", "DO"}}, .of = OF_ATTN},
    {WEIGHT_MIX_IN, SLOT_LAYER, IN_LAYER(mix_in),
     .part = {{"shortconv.in_proj", "vD", .rows = "vvv"},
              {"shortconv.in_proj", "vD", .rows = "vvv", .at = 1},
              {"shortconv.in_proj", "vD", .rows = "vvv", .at = 2}},
     .when = TRAIT_SHORT_CONV, .of = OF_MIX},
    {WEIGHT_MIX_IN, SLOT_LAYER, IN_LAYER(mix_in),
     .part = {{"attn_qkv", "nD", .rows = "nnv"},
              {"attn_qkv", "nD", .rows = "nnv", .at = 1},
              {"attn_qkv", "vD", .rows = "nnv", .at = 2}},
     .when = TRAIT_DELTA, .of = OF_MIX},
    {WEIGHT_MIX_GATE, SLOT_LAYER, IN_LAYER(mix_gate),
     .part = {{"attn_gate", "vD"}, {"ssm_beta", "hD"}, {"ssm_alpha", "hD"}}, .when = TRAIT_DELTA,
     .unless = TRAIT_BETA_ALPHA, .of = OF_MIX},
    {WEIGHT_MIX_GATE, SLOT_LAYER, IN_LAYER(mix_gate),
     .part = {{"attn_gate", "vD"},
              {"ssm_ba", "hD", .rows = "hh", .each = 'r'},
              {"ssm_ba", "hD", .rows = "hh", .at = 1, .each = 'r'}},
     .when = TRAIT_BETA_ALPHA, .of = OF_MIX},
    {WEIGHT_MIX_CONV, SLOT_LAYER, IN_LAYER(mix_conv),
     .part = {{"ssm_conv1d", "nt", .rows = "nnv"},
              {"ssm_conv1d", "nt", .rows = "nnv", .at = 1},
              {"ssm_conv1d", "vt", .rows = "nnv", .at = 2}},
     .when = TRAIT_DELTA, .of = OF_MIX},
    {WEIGHT_MIX_HEADS, SLOT_LAYER, IN_LAYER(mix_heads),
     .part = {{"ssm_a", "h", .end = ""}, {"ssm_dt", "h", .end = ".bias"}}, .when = TRAIT_DELTA, .of = OF_MIX},
    {WEIGHT_MIX_NORM, SLOT_LAYER, IN_LAYER(mix_norm), .part = {{"ssm_norm", "p"}}, .when = TRAIT_DELTA,
     .of = OF_MIX},
    {WEIGHT_MIX_OUT, SLOT_LAYER, IN_LAYER(mix_out), .part = {{"ssm_out", "Dv"}}, .when = TRAIT_DELTA,
     .of = OF_MIX},
    // z, x, B, C, dt
    {WEIGHT_MIX_IN, SLOT_LAYER, IN_LAYER(mix_in),
     .part = {{"ssm_in", "nD", .rows = "vvnnh", .at = 3},
              {"ssm_in", "nD", .rows = "vvnnh", .at = 2},
              {"ssm_in", "vD", .rows = "vvnnh", .at = 1}},
     .when = TRAIT_SSM, .of = OF_MIX},
    {WEIGHT_MIX_GATE, SLOT_LAYER, IN_LAYER(mix_gate),
     .part = {{"ssm_in", "vD", .rows = "vvnnh"}, {"ssm_in", "hD", .rows = "vvnnh", .at = 4}},
     .when = TRAIT_SSM, .of = OF_MIX},
    {WEIGHT_MIX_CONV, SLOT_LAYER, IN_LAYER(mix_conv),
     .part = {{"ssm_conv1d", "nt", .rows = "vnn", .at = 2},
              {"ssm_conv1d", "nt", .rows = "vnn", .at = 1},
              {"ssm_conv1d", "vt", .rows = "vnn"}},
     .when = TRAIT_SSM, .of = OF_MIX},
    {WEIGHT_MIX_HEADS, SLOT_LAYER, IN_LAYER(mix_heads),
     .part = {{"ssm_a", "h1", .end = ""}, {"ssm_dt", "h", .end = ".bias"}, {"ssm_d", "h1", .end = ""}},
     .when = TRAIT_SSM, .of = OF_MIX},
    {WEIGHT_MIX_NORM, SLOT_LAYER, IN_LAYER(mix_norm), .part = {{"ssm_norm", "gm"}}, .when = TRAIT_SSM,
     .of = OF_MIX},
    {WEIGHT_MIX_OUT, SLOT_LAYER, IN_LAYER(mix_out), .part = {{"ssm_out", "Dv"}}, .when = TRAIT_SSM,
     .of = OF_MIX},
    {WEIGHT_MIX_CONV, SLOT_LAYER, IN_LAYER(mix_conv), .part = {{"shortconv.conv", "vt"}},
     .when = TRAIT_SHORT_CONV, .of = OF_MIX},
    {WEIGHT_MIX_OUT, SLOT_LAYER, IN_LAYER(mix_out), .part = {{"shortconv.out_proj", "Dv"}},
     .when = TRAIT_SHORT_CONV, .of = OF_MIX},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(ffn_norm), .part = {{"ffn_norm", "D"}},
     .unless = TRAIT_FFN_NORM_NAME | TRAIT_NO_PRE_NORMS | TRAIT_BARE_FFN_NORM},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(ffn_norm), .part = {{"ffn_norm", "D", .end = ""}},
     .when = TRAIT_BARE_FFN_NORM},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(ffn_norm), .part = {{"post_attention_norm", "D"}},
     .when = TRAIT_FFN_NORM_NAME},
    {WEIGHT_GATE_UP, SLOT_LAYER, IN_LAYER(gate_up), .part = {{"ffn_gate", "FD"}, {"ffn_up", "FD"}},
     .unless = TRAIT_FUSED_FFN | TRAIT_NO_GATE, .of = OF_DENSE},
    {WEIGHT_GATE_UP, SLOT_LAYER, IN_LAYER(gate_up), .part = {{"ffn_up", "FD"}}, .when = TRAIT_NO_GATE,
     .of = OF_DENSE},
    {WEIGHT_GATE_UP, SLOT_LAYER, IN_LAYER(gate_up), .part = {{"ffn_gate", "FD"}, {"ffn_up", "FD"}},
     .fused = "ffn_up", .when = TRAIT_FUSED_FFN, .of = OF_DENSE},
    {WEIGHT_DOWN, SLOT_LAYER, IN_LAYER(down), .part = {{"ffn_down", "DF"}}, .of = OF_DENSE},
    {WEIGHT_ROUTER, SLOT_LAYER, IN_LAYER(router), .part = {{"ffn_gate_inp", "ED"}}, .of = OF_EXPERTS},
    {WEIGHT_SELECT_BIAS, SLOT_LAYER, IN_LAYER(select_bias), .part = {{"exp_probs_b", "E", ".bias"}},
     .of = OF_SELECT_BIAS},
    {WEIGHT_SHARED_GATE, SLOT_LAYER, IN_LAYER(shared_gate), .part = {{"ffn_gate_inp_shexp", "D"}},
     .of = OF_SHARED_GATE},
    {WEIGHT_GATE_UP, SLOT_LAYER, IN_LAYER(gate_up),
     .part = {{"ffn_gate_shexp", "SD"}, {"ffn_up_shexp", "SD"}}, .of = OF_SHARED},
    {WEIGHT_DOWN, SLOT_LAYER, IN_LAYER(down), .part = {{"ffn_down_shexp", "DS"}}, .of = OF_SHARED},
    {WEIGHT_EXPERT_GATE_UP, SLOT_LAYER, IN_LAYER(expert_gate_up),
     .part = {{"ffn_gate_exps", "EFD"}, {"ffn_up_exps", "EFD"}}, .of = OF_EXPERTS},
    {WEIGHT_EXPERT_DOWN, SLOT_LAYER, IN_LAYER(expert_down), .part = {{"ffn_down_exps", "EDF"}},
     .of = OF_EXPERTS},
};

static const struct extra_tensor gguf_extras[] = {
    {false, "rope_freqs.weight"}, // read by config_rope.c
    {false, "rope_factors_short.weight"},
    {false, "rope_factors_long.weight"},
    {false, "rope.freqs"},
    {true, "attn_rot_embd"},
};

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))
#define GGUF_TABLES                                                                                          \
    .keys = gguf_keys, .fixed = gguf_fixed, .num_fixed = COUNT(gguf_fixed), .suspects = gguf_suspects,       \
    .num_suspects = COUNT(gguf_suspects), .slots = gguf_slots, .num_slots = COUNT(gguf_slots),               \
    .freq_factors = "rope_freqs.weight", .short_factors = "rope_factors_short.weight",                       \
    .long_factors = "rope_factors_long.weight", .extras = gguf_extras, .num_extras = COUNT(gguf_extras)

#define HAS(hparam) (UINT64_C(1) << (hparam))
_Static_assert(NUM_HPARAMS <= 64, "a bit for each");
#define EXPERTS                                                                                              \
    (HAS(H_TOP_K) | HAS(H_EXPERT_FFN) | HAS(H_EXPERT_SCALE) | HAS(H_EXPERT_NORM) | HAS(H_EXPERT_GATING))
#define SSM (HAS(H_SSM_CONV) | HAS(H_SSM_INNER) | HAS(H_SSM_STATE) | HAS(H_SSM_HEADS) | HAS(H_SSM_GROUPS))
#define EXPERT_GROUPS (HAS(H_EXPERT_GROUPS) | HAS(H_EXPERT_TOP_GROUPS))
#define SCALES (HAS(H_EMBED_SCALE) | HAS(H_RESIDUAL_SCALE) | HAS(H_LOGIT_SCALE))
static const struct arch_experts
    chosen = {.gating = GATING_SOFTMAX_CHOSEN},
    chosen_biased = {.gating = GATING_SOFTMAX_CHOSEN, .biases = true}, plain = {.gating = GATING_SOFTMAX},
    with_gate = {.gating = GATING_SOFTMAX, .shared_gate = true},
    renormalised = {.gating = GATING_SOFTMAX, .renormalise = true},
    renormalised_biased = {.gating = GATING_SOFTMAX, .renormalise = true, .select_bias = true},
    renormalised_gate = {.gating = GATING_SOFTMAX, .renormalise = true, .shared_gate = true},
    sigmoid = {.gating = GATING_SIGMOID, .select_bias = true},
    sigmoid_renormalised = {.gating = GATING_SIGMOID, .renormalise = true, .select_bias = true},
    deepseek = {.gating = GATING_SOFTMAX, .select_bias = true, .bias_is_sigmoid = true},
    weighed = {.gating = GATING_SIGMOID, .shared = 1, .weigh_input = true};
#define LAYER_EPS HAS(H_LAYER_NORM_EPS)
#define NORM_LAYERS .norm = NORM_LAYER, .norm_bias = OPTIONAL
#define FFN_BIASES .ffn_bias = OPTIONAL
static const struct arch archs[] = {
    // Llama 1 to 3.2, Mistral, Mixtral
    {"llama", .rope_interleaved = true, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL,
     .window_every_layer = true, .experts = &chosen, .may = HAS(H_TOP_K), GGUF_TABLES},
    // Qwen2, Qwen2.5
    {"qwen2", .qkv_bias = ALWAYS, GGUF_TABLES},
    {"qwen3", .qk_norm = QK_NORM_HEADS, .traits = TRAIT_QK_NORM, GGUF_TABLES},
    // Granite 3 and 4 (dense, without recurrent layers)
    {"granite", .rope_interleaved = true, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL, .logits_divided = true,
     .may = SCALES | HAS(H_ROPE_FINETUNED), .must = HAS(H_LOGIT_SCALE), GGUF_TABLES},
    // MiniCPM 1 and 2, MiniCPM 4. Old files without the scales do not say what they mean.
    {"minicpm", .rope_interleaved = true, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL, .logits_divided = true,
     .must = SCALES, GGUF_TABLES},
    {"smollm3", .rope_interleaved = true, .qkv_bias = OPTIONAL, .no_rope_every = 4, GGUF_TABLES},
    // InternLM 2 and 2.5
    {"internlm2", .rope_interleaved = true, GGUF_TABLES},
    {"ernie4_5", .rope_interleaved = true, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL, GGUF_TABLES},
    {"seed_oss", .qkv_bias = OPTIONAL, .traits = TRAIT_FFN_NORM_NAME, GGUF_TABLES},
    {"hunyuan-dense", .qk_norm = QK_NORM_ROTATED, .traits = TRAIT_QK_NORM, GGUF_TABLES},
    // Phi 3, 3.5 and 4
    {"phi3", .traits = TRAIT_FUSED_FFN, .window_every_layer = true, GGUF_TABLES},
    {"olmo2", .qk_norm = QK_NORM_WHOLE, .traits = TRAIT_POST_NORMS | TRAIT_NO_PRE_NORMS | TRAIT_WHOLE_QK_NORM,
     .window_pattern = 4, .window_rope = true, .may = HAS(H_ROPE_WINDOW_BASE), GGUF_TABLES}, // and OLMo 3
    {"glm4", .rope_interleaved = true, .qkv_bias = OPTIONAL, .traits = TRAIT_POST_NORMS | TRAIT_FUSED_FFN,
     GGUF_TABLES},
    {"exaone4", .qk_norm = QK_NORM_HEADS, .traits = TRAIT_POST_NORMS | TRAIT_NO_PRE_NORMS | TRAIT_QK_NORM,
     .window_pattern = 4, .full_no_rope = true, GGUF_TABLES},
    {"starcoder2", NORM_LAYERS, FFN_BIASES, .traits = TRAIT_NO_GATE, .act = ACT_GELU, .qkv_bias = OPTIONAL,
     .out_bias = OPTIONAL, .window_every_layer = true, .must = LAYER_EPS, GGUF_TABLES},
    // StableLM 1 and 2; the 12B has parallel blocks
    {"stablelm", NORM_LAYERS, .qkv_bias = OPTIONAL, .qk_norm = QK_NORM_EACH, .traits = TRAIT_EACH_QK_NORM,
     .one_norm = OPTIONAL, .may = HAS(H_PARALLEL), .must = LAYER_EPS, GGUF_TABLES},
    // Phi 1, 1.5 and 2
    {"phi2", NORM_LAYERS, FFN_BIASES, .traits = TRAIT_NO_GATE, .act = ACT_GELU, .qkv_bias = OPTIONAL,
     .out_bias = OPTIONAL, .head_bias = OPTIONAL, .one_norm = ALWAYS, .must = LAYER_EPS, GGUF_TABLES},
    // Pythia, GPT-NeoX
    {"gptneox", NORM_LAYERS, FFN_BIASES, .traits = TRAIT_NO_GATE, .act = ACT_GELU_ERF, .qkv_bias = OPTIONAL,
     .out_bias = OPTIONAL, .must = LAYER_EPS | HAS(H_PARALLEL), GGUF_TABLES},
    // Nemotron 3 8B, Nemotron 4, Minitron
    {"nemotron", NORM_LAYERS, FFN_BIASES, .traits = TRAIT_NO_GATE, .act = ACT_RELU2, .qkv_bias = OPTIONAL,
     .out_bias = OPTIONAL, .must = LAYER_EPS, GGUF_TABLES},
    // Command R and R+
    {"command-r", .norm = NORM_LAYER, .one_norm = ALWAYS, .rope_interleaved = true, .qkv_bias = OPTIONAL,
     .qk_norm = QK_NORM_EACH, .traits = TRAIT_EACH_QK_NORM, .may = HAS(H_LOGIT_SCALE), .must = LAYER_EPS,
     GGUF_TABLES},
    // Command R7B, Command A
    {"cohere2", .norm = NORM_LAYER, .one_norm = ALWAYS, .rope_interleaved = true, .qkv_bias = OPTIONAL,
     .window_pattern = 4, .full_no_rope = true, .must = LAYER_EPS | HAS(H_LOGIT_SCALE) | HAS(H_WINDOW),
     GGUF_TABLES},
    {"gemma", .act = ACT_GELU, .embed_sqrt = true, GGUF_TABLES},
    {"gemma2", .act = ACT_GELU, .embed_sqrt = true, .traits = TRAIT_POST_NORMS, .window_pattern = 2,
     .wide_scale_layers = 46, .must = HAS(H_ATTN_SOFTCAP) | HAS(H_LOGIT_SOFTCAP) | HAS(H_WINDOW),
     GGUF_TABLES},
    {"gemma3", .act = ACT_GELU, .embed_sqrt = true, .qk_norm = QK_NORM_HEADS,
     .traits = TRAIT_POST_NORMS | TRAIT_QK_NORM, .window_pattern = 6, .window_rope = true,
     .window_theta = 10000, .wide_scale_layers = 62, .may = HAS(H_LOGIT_SOFTCAP) | HAS(H_ROPE_WINDOW_BASE),
     GGUF_TABLES},
    {"lfm2", .mix = MIX_CONV, .qk_norm = QK_NORM_HEADS, .traits = TRAIT_QK_NORM | TRAIT_SHORT_CONV,
     .must = HAS(H_SHORT_CONV), GGUF_TABLES}, // LFM2, LFM2.5
    {"lfm2moe", .mix = MIX_CONV, .qk_norm = QK_NORM_HEADS, .traits = TRAIT_QK_NORM | TRAIT_SHORT_CONV,
     .experts = &sigmoid_renormalised, .may = EXPERTS | HAS(H_DENSE_LAYERS),
     .must = HAS(H_SHORT_CONV) | HAS(H_EXPERT_FFN), GGUF_TABLES}, // LFM2 8B A1B
    // Granite 4 (hybrid)
    {"granitehybrid", .mix = MIX_SSM, .rope_interleaved = true, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL,
     .logits_divided = true, .traits = TRAIT_SSM, .experts = &chosen,
     .may = SCALES | HAS(H_ROPE_FINETUNED) | EXPERTS | HAS(H_SHARED_FFN), .must = HAS(H_LOGIT_SCALE) | SSM,
     GGUF_TABLES},
    {"falcon-h1", .mix = MIX_SSM, .mix_beside = true, .traits = TRAIT_SSM | TRAIT_BARE_FFN_NORM, .must = SSM,
     GGUF_TABLES},
    // Qwen 3.5 (dense)
    {"qwen35", .mix = MIX_DELTA, .mix_tiled = true, .qk_norm = QK_NORM_HEADS,
     .traits = TRAIT_QK_NORM | TRAIT_DELTA | TRAIT_ATTN_GATE | TRAIT_FFN_NORM_NAME, .must = SSM,
     .may = HAS(H_ATTN_INTERVAL) | HAS(H_RECURRENT_LAYERS) | HAS(H_ROPE_SECTIONS) | HAS(H_NEXTN),
     GGUF_TABLES},
    {"qwen35moe", .mix = MIX_DELTA, .mix_tiled = true, .qk_norm = QK_NORM_HEADS,
     .traits = TRAIT_QK_NORM | TRAIT_DELTA | TRAIT_ATTN_GATE | TRAIT_FFN_NORM_NAME,
     .experts = &renormalised_gate, .must = SSM | HAS(H_EXPERT_FFN) | HAS(H_SHARED_FFN),
     .may = HAS(H_ATTN_INTERVAL) | HAS(H_RECURRENT_LAYERS) | HAS(H_ROPE_SECTIONS) | HAS(H_NEXTN) | EXPERTS,
     GGUF_TABLES},
    // Qwen3 Next
    {"qwen3next", .mix = MIX_DELTA, .qk_norm = QK_NORM_HEADS,
     .traits = TRAIT_QK_NORM | TRAIT_DELTA | TRAIT_BETA_ALPHA | TRAIT_ATTN_GATE | TRAIT_FFN_NORM_NAME,
     .experts = &renormalised_gate, .must = SSM | HAS(H_EXPERT_FFN) | HAS(H_SHARED_FFN),
     .may = HAS(H_ATTN_INTERVAL) | HAS(H_RECURRENT_LAYERS) | HAS(H_NEXTN) | EXPERTS, GGUF_TABLES},
    // Mistral Small 3, Ministral 3
    {"mistral3", .rope_interleaved = true, .out_bias = OPTIONAL, .qkv_bias = OPTIONAL,
     .window_every_layer = true, .may = HAS(H_ATTN_TEMP) | HAS(H_ROPE_YARN_LOG), GGUF_TABLES},
    {"qwen3moe", .qk_norm = QK_NORM_HEADS, .traits = TRAIT_QK_NORM, .experts = &renormalised, .may = EXPERTS,
     .must = HAS(H_EXPERT_FFN), GGUF_TABLES},
    // DeepSeek V2, V3 and R1, Kimi K2, GLM 4.7 Flash
    {"deepseek2", .rope_interleaved = true, .traits = TRAIT_LATENT, .experts = &deepseek,
     .may = EXPERTS | EXPERT_GROUPS | HAS(H_SHARED_EXPERTS) | HAS(H_DENSE_LAYERS) | HAS(H_NEXTN) |
            HAS(H_ROPE_YARN_LOG) | HAS(H_LATENT_KEY_DIM) | HAS(H_LATENT_VALUE_DIM) | HAS(H_Q_LORA),
     .must = HAS(H_KV_LORA) | HAS(H_ROPE_DIM), GGUF_TABLES},
    // Qwen1.5 and Qwen2 MoE
    {"qwen2moe", .qkv_bias = ALWAYS, .experts = &with_gate, .may = EXPERTS | HAS(H_SHARED_FFN),
     .must = HAS(H_EXPERT_FFN) | HAS(H_SHARED_FFN), GGUF_TABLES},
    {"olmoe", .qk_norm = QK_NORM_WHOLE, .traits = TRAIT_WHOLE_QK_NORM, .experts = &plain, .may = EXPERTS,
     GGUF_TABLES},
    {"granitemoe", .rope_interleaved = true, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL,
     .logits_divided = true, .experts = &chosen,
     .may = SCALES | HAS(H_ROPE_FINETUNED) | EXPERTS | HAS(H_SHARED_FFN), .must = HAS(H_LOGIT_SCALE),
     GGUF_TABLES},
    // GLM 4.5 to 4.7; the smaller ones have no norms of heads
    {"glm4moe", .qkv_bias = OPTIONAL, .qk_norm = QK_NORM_HEADS, .qk_norm_optional = true,
     .traits = TRAIT_QK_NORM | TRAIT_FFN_NORM_NAME, .experts = &sigmoid,
     .may = EXPERTS | EXPERT_GROUPS | HAS(H_SHARED_EXPERTS) | HAS(H_DENSE_LAYERS) | HAS(H_NEXTN),
     .must = HAS(H_EXPERT_FFN), GGUF_TABLES},
    {"ernie4_5-moe", .rope_interleaved = true, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL,
     .experts = &renormalised_biased,
     .may = EXPERTS | HAS(H_SHARED_EXPERTS) | HAS(H_SHARED_FFN) | HAS(H_DENSE_LAYERS) | HAS(H_EXPERT_STEP),
     .must = HAS(H_EXPERT_FFN), GGUF_TABLES},
    {"hunyuan-moe", .qk_norm = QK_NORM_ROTATED, .traits = TRAIT_QK_NORM, .experts = &renormalised,
     .may = EXPERTS | HAS(H_SHARED_EXPERTS) | HAS(H_SHARED_FFN), .must = HAS(H_EXPERT_FFN), GGUF_TABLES},
    {"dots1", .qk_norm = QK_NORM_HEADS, .traits = TRAIT_QK_NORM, .experts = &sigmoid,
     .may = EXPERTS | EXPERT_GROUPS | HAS(H_SHARED_EXPERTS) | HAS(H_DENSE_LAYERS), .must = HAS(H_EXPERT_FFN),
     GGUF_TABLES},
    // Llama 4 Scout and Maverick, whose 128 experts go without norms
    {"llama4", .rope_interleaved = true, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL, .qk_norm = QK_NORM_UNIT,
     .no_norm_experts = 128, .chunk = 8192, .window_pattern = 4, .no_rope_every = 4, .still_temp = 0.1f,
     .still_step = 8192, .experts = &weighed,
     .may = EXPERTS | HAS(H_EXPERT_STEP) | HAS(H_ATTN_TEMP) | HAS(H_ATTN_TEMP_STEP),
     .must = HAS(H_EXPERT_FFN), GGUF_TABLES},
    // gpt-oss 20B and 120B
    {"gpt-oss", .act = ACT_CLAMPED, .qkv_bias = ALWAYS, .out_bias = ALWAYS, .fine_ramp = true,
     .traits = TRAIT_FFN_NORM_NAME | TRAIT_SINKS, .window_pattern = 2, .experts = &chosen_biased,
     .may = EXPERTS, .must = HAS(H_EXPERT_FFN) | HAS(H_WINDOW), GGUF_TABLES},
};

const struct arch *arch_at(int i) { return i < COUNT(archs) ? &archs[i] : NULL; }

const struct arch *arch_find(const char *name, size_t len) {
    for (int i = 0; i < COUNT(archs); i++)
        if (strlen(archs[i].name) == len && memcmp(archs[i].name, name, len) == 0)
            return &archs[i];
    return NULL;
}

bool arch_has_slot(const struct arch *a, const struct weight_slot *s) {
    return (s->when == 0 || (a->traits & s->when)) && !(a->traits & s->unless);
}

const struct weight_slot *arch_slot_at(const struct arch *a, size_t field) {
    for (int i = 0; i < a->num_slots; i++)
        if (a->slots[i].kind == SLOT_LAYER && a->slots[i].field == field && arch_has_slot(a, &a->slots[i]))
            return &a->slots[i];
    return NULL;
}

const struct weight_slot *arch_slot(const struct arch *a, enum weight_role role) {
    for (int i = 0; i < a->num_slots; i++)
        if (a->slots[i].role == role && arch_has_slot(a, &a->slots[i]))
            return &a->slots[i];
    return NULL;
}

const char *arch_tensor_name(const struct weight_slot *s, int part, bool bias, int layer,
                             char buf[TENSOR_NAME_BYTES]) {
    const char *name = part == FUSED_PART ? s->fused : s->part[part].name;
    const char *own = part == FUSED_PART ? NULL : s->part[part].end, *end = own    ? own
                                                                            : bias ? ".bias"
                                                                                   : ".weight";
    if (s->kind == SLOT_MODEL)
        snprintf(buf, TENSOR_NAME_BYTES, "%s%s", name, end);
    else
        snprintf(buf, TENSOR_NAME_BYTES, "blk.%d.%s%s", layer, name, end);
    return buf;
}

static bool is_name(const char *p, size_t len, const char *name, const char *end) {
    size_t n = strlen(name);
    return n + strlen(end) == len && memcmp(p, name, n) == 0 && memcmp(p + n, end, len - n) == 0;
}

// The N of "blk.N.", and what follows it. false: it does not begin so, or N has leading zeros or is no layer of any
// model.
static bool take_layer(const char **name, size_t *len, int *layer) {
    char want[32];
    size_t n = 4;
    int number = 0;
    if (*len <= n || memcmp(*name, "blk.", n) != 0)
        return false;
    while (n < *len && (*name)[n] >= '0' && (*name)[n] <= '9' && number < MODEL_MAX_LAYERS)
        number = number * 10 + ((*name)[n++] - '0');
    n = (size_t)snprintf(want, sizeof want, "blk.%d.", number);
    if (number >= MODEL_MAX_LAYERS || n >= *len || memcmp(want, *name, n) != 0)
        return false;
    *layer = number;
    *name += n;
    *len -= n;
    return true;
}

bool arch_find_tensor(const struct arch *a, const char *name, size_t len, struct tensor_place *place) {
    *place = (struct tensor_place){.layer = -1};
    bool per_layer = take_layer(&name, &len, &place->layer);
    for (int i = 0; i < a->num_slots; i++) {
        const struct weight_slot *s = &a->slots[i];
        if (!arch_has_slot(a, s))
            continue;
        place->part = FUSED_PART;
        for (int p = FUSED_PART; p < 3 && (s->kind != SLOT_MODEL) == per_layer; p++) {
            const char *part = p == FUSED_PART ? s->fused : s->part[p].name;
            const char *end = p == FUSED_PART ? NULL : s->part[p].end;
            bool bias = part && !end && is_name(name, len, part, ".bias");
            if (!bias && !(part && is_name(name, len, part, end ? end : ".weight")))
                continue;
            place->slot = s;
            place->bias = bias;
            place->fused |= p == FUSED_PART;
            place->part = p;
        }
        if (place->slot)
            return true;
    }
    for (int i = 0; i < a->num_extras; i++)
        if (a->extras[i].per_layer == per_layer && is_name(name, len, a->extras[i].name, ""))
            return true;
    return false;
}
