// Files of models with experts and with latent attention: what their keys and tensors give, and values that are refused.
#include "family_files.h"

static const struct family qwen3moe = {
    "qwen3moe",
    "output_norm.weight",
    {FAMILY_ROUTER},
    {K, K, K, K},
    0,
    {0},
    {{ALL, "attn_norm.weight", 0, D},
     FAMILY_QKV(ALL),
     FAMILY_QK_NORMS(ALL),
     {ALL, "attn_output.weight", D, H *HD},
     {ALL, "ffn_norm.weight", 0, D},
     {ALL, "ffn_gate_inp.weight", E, D},
     FAMILY_EXPERTS(ALL, 12)},
};

static const struct family gpt_oss = {
    "gpt-oss",
    "output_norm.weight",
    {FAMILY_ROUTER, {"attention.sliding_window", 8}},
    {K, K, K, K},
    0,
    {0},
    {{ALL, "attn_norm.weight", 0, D},
     FAMILY_QKV(ALL),
     {ALL, "attn_q.bias", 0, H *HD},
     {ALL, "attn_k.bias", 0, K *HD},
     {ALL, "attn_v.bias", 0, K *HD},
     {ALL, "attn_sinks.weight", 0, H},
     {ALL, "attn_output.weight", D, H *HD},
     {ALL, "attn_output.bias", 0, D},
     {ALL, "post_attention_norm.weight", 0, D},
     {ALL, "ffn_gate_inp.weight", E, D},
     {ALL, "ffn_gate_inp.bias", 0, E},
     FAMILY_EXPERTS(ALL, 12),
     {ALL | STACK, "ffn_gate_exps.bias", 0, 12},
     {ALL | STACK, "ffn_up_exps.bias", 0, 12},
     {ALL | STACK, "ffn_down_exps.bias", 0, D}},
};

// Gate and up of an expert are one matrix; a dense feed-forward stands beside them.
static const struct family gemma4 = {
    "gemma4",
    "output_norm.weight",
    {FAMILY_ROUTER,
     {"attention.key_length", HD},
     {"attention.sliding_window", 8},
     {"attention.sliding_window_pattern", 2}},
    {K, K, K, K},
    0,
    {0},
    {{ALL, "attn_norm.weight", 0, D},
     FAMILY_QKV(ALL),
     FAMILY_QK_NORMS(ALL),
     {ALL, "attn_output.weight", D, H *HD},
     {ALL, "post_attention_norm.weight", 0, D},
     {ALL, "ffn_norm.weight", 0, D},
     FAMILY_FFN(ALL),
     {ALL, "post_ffw_norm.weight", 0, D},
     {ALL, "post_ffw_norm_1.weight", 0, D},
     {ALL, "pre_ffw_norm_2.weight", 0, D},
     {ALL, "post_ffw_norm_2.weight", 0, D},
     {ALL, "ffn_gate_inp.weight", E, D},
     {ALL, "ffn_gate_inp.scale", 0, D},
     {ALL, "ffn_down_exps.scale", 0, E},
     {ALL | STACK, "ffn_gate_up_exps.weight", 24, D},
     {ALL | STACK, "ffn_down_exps.weight", D, 12}},
};

// Latents of 12, rotated keys of 6; queries from latents of 10. Heads of 8 + 6, their values of 5.
static const struct family deepseek2 = {
    "deepseek2",
    "output_norm.weight",
    {{"attention.kv_lora_rank", 12},
     {"attention.q_lora_rank", 10},
     {"attention.key_length", 18},
     {"attention.value_length", 12},
     {"attention.key_length_mla", 14},
     {"attention.value_length_mla", 5},
     {"rope.dimension_count", 6},
     {"expert_count", E},
     {"expert_used_count", 3},
     {"expert_feed_forward_length", 20},
     {"expert_shared_count", 2},
     {"expert_group_count", 4},
     {"expert_group_used_count", 2},
     {"expert_weights_scale", 2.5},
     {"leading_dense_block_count", 1}},
    {K, K, K, K},
    1,
    {0},
    {{ALL, "attn_norm.weight", 0, D},
     {ALL, "attn_kv_a_mqa.weight", 18, D},
     {ALL, "attn_kv_a_norm.weight", 0, 12},
     {ALL, "attn_q_a.weight", 10, D},
     {ALL, "attn_q_a_norm.weight", 0, 10},
     {ALL, "attn_q_b.weight", H * 14, 10},
     {ALL | HEADED, "attn_k_b.weight", 12, 8},
     {ALL | HEADED, "attn_v_b.weight", 5, 12},
     {ALL, "attn_output.weight", D, H * 5},
     {ALL, "ffn_norm.weight", 0, D},
     FAMILY_FFN(DENSE),
     {MOE, "ffn_gate_inp.weight", E, D},
     {MOE, "exp_probs_b.bias", 0, E},
     {MOE, "ffn_gate_shexp.weight", 40, D},
     {MOE, "ffn_up_shexp.weight", 40, D},
     {MOE, "ffn_down_shexp.weight", D, 40},
     FAMILY_EXPERTS(MOE, 20)},
};

TEST(test_experts) {
    struct model_config c;
    read_ok(&qwen3moe, &(struct change){0}, &c);
    assert_true(c.num_ffn == 1 && c.ffn[0].experts == E && c.ffn[0].top_k == 2 && c.ffn[0].hidden == 12 &&
                c.ffn[0].gating == GATING_SOFTMAX && c.ffn[0].renormalise && c.ffn[0].shared_hidden == 0);
    // No layer is without experts; 0 is the default of a scale, and no gating of any kind.
    read_ok(&qwen3moe, &(struct change){.no_key = "feed_forward_length"}, &c);
    read_ok(&qwen3moe, &(struct change){.key = "expert_weights_scale", .value = 0}, &c);
    assert_true(model_scale(c.ffn[0].scale) == 1);
    read_ok(&qwen3moe, &(struct change){.key = "expert_gating_func", .value = 2}, &c);
    assert_true(c.ffn[0].gating == GATING_SIGMOID);
    read_ok(&qwen3moe, &(struct change){.tensor = "blk.1.ffn_gate_inp.weight", .type = 1}, &c);
    static const struct refusal cases[] = {
        {{.key = "expert_used_count", .value = 9}, "key qwen3moe.expert_used_count is 9"},
        {{.key = "expert_used_count", .value = 0}, "key qwen3moe.expert_used_count is 0"},
        {{.no_key = "expert_used_count"}, "key qwen3moe.expert_used_count is missing"},
        {{.no_key = "expert_feed_forward_length"}, "key qwen3moe.expert_feed_forward_length is missing"},
        {{.key = "expert_feed_forward_length", .value = 0}, "key qwen3moe.expert_feed_forward_length is 0"},
        {{.key = "expert_feed_forward_length", .value = 13},
         "tensor blk.0.ffn_gate_exps.weight has shape (8, 12, 16), expected (8, 13, 16)"},
        {{.key = "expert_count", .value = 9},
         "tensor blk.0.ffn_gate_inp.weight has shape (8, 16), expected (9, 16)"},
        {{.key = "expert_count", .value = 1025}, "key qwen3moe.expert_count is 1025"},
        {{.key = "expert_gating_func", .value = 4}, "key qwen3moe.expert_gating_func is 4"},
        {{.key = "expert_weights_scale", .value = -1.5},
         "key qwen3moe.expert_weights_scale is -1.5, expected above 0"},
        {{.key = "expert_shared_count", .value = 1},
         "key qwen3moe.expert_shared_count is 1: Quire does not know"},
        {{.key = "expert_group_count", .value = 2},
         "key qwen3moe.expert_group_count is 2: Quire does not know"},
        {{.no_tensor = "blk.0.ffn_gate_inp.weight"},
         "tensor blk.0.ffn_gate_inp.weight is missing, expected with shape (8, 16)"},
        {{.no_tensor = "blk.3.ffn_up_exps.weight"},
         "tensor blk.3.ffn_up_exps.weight is missing, expected with shape (8, 12, 16)"},
        {{.tensor = "blk.2.ffn_down_exps.weight", .stack = 7},
         "tensor blk.2.ffn_down_exps.weight has shape (7, 16, 12), expected (8, 16, 12)"},
        {{.tensor = "blk.2.ffn_down_exps.weight", .rows = 15},
         "tensor blk.2.ffn_down_exps.weight has shape (8, 15, 12), expected (8, 16, 12)"},
        {{.extra = "blk.1.ffn_gate.weight"},
         "tensor blk.1.ffn_gate.weight is not part of architecture qwen3moe"},
        {{.extra = "blk.1.ffn_gate_inp_shexp.weight"},
         "tensor blk.1.ffn_gate_inp_shexp.weight is not part of architecture qwen3moe"},
        {{.extra = "blk.0.ffn_gate_inp.bias"},
         "tensor blk.0.ffn_gate_inp.bias is not part of architecture qwen3moe"},
        {{.key = "expert_feed_forward_length", .value = 1 << 24}, "2 of 8 experts of 16777216 are too large"},
    };
    expect_refused(&qwen3moe, cases, sizeof cases / sizeof *cases);
}

TEST(test_biases) {
    struct model_config c;
    read_ok(&gpt_oss, &(struct change){0}, &c);
    assert_true(c.ffn[0].act == ACT_CLAMPED && c.ffn[0].router_bias && c.ffn[0].expert_bias &&
                c.ffn[0].gating == GATING_SOFTMAX_CHOSEN && c.attn[0].sinks && c.num_attn == 2);
    static const struct refusal cases[] = {
        {{.no_tensor = "blk.1.ffn_gate_inp.bias"},
         "tensor blk.1.ffn_gate_inp.bias is missing, expected with shape (8)"},
        {{.no_tensor = "blk.2.ffn_up_exps.bias"},
         "tensor blk.2.ffn_up_exps.bias is missing, expected with shape (8, 12)"},
        {{.tensor = "blk.0.ffn_down_exps.bias", .stack = 9},
         "tensor blk.0.ffn_down_exps.bias has shape (9, 16), expected (8, 16)"},
        {{.tensor = "blk.0.ffn_down_exps.bias", .type = 1},
         "tensor blk.0.ffn_down_exps.bias has type F16, expected F32"},
    };
    expect_refused(&gpt_oss, cases, sizeof cases / sizeof *cases);
}

TEST(test_beside) {
    struct model_config c;
    read_ok(&gemma4, &(struct change){0}, &c);
    assert_true(c.num_ffn == 1 && c.ffn[0].own_norms && c.ffn[0].expert_scale && c.ffn[0].hidden == 12 &&
                c.ffn[0].shared_hidden == F && c.ffn[0].router_scale == 0.25f);
    static const struct refusal cases[] = {
        {{.no_key = "feed_forward_length"}, "key gemma4.feed_forward_length is missing"},
        {{.no_tensor = "blk.1.ffn_gate_inp.scale"},
         "tensor blk.1.ffn_gate_inp.scale is missing, expected with shape (16)"},
        {{.no_tensor = "blk.2.ffn_down_exps.scale"},
         "tensor blk.2.ffn_down_exps.scale is missing, expected with shape (8)"},
        {{.no_tensor = "blk.3.ffn_down.weight"},
         "tensor blk.3.ffn_down.weight is missing, expected with shape (16, 24)"},
        {{.no_tensor = "blk.0.post_ffw_norm_1.weight"},
         "tensor blk.0.post_ffw_norm_1.weight is missing, expected with shape (16)"},
        {{.tensor = "blk.1.ffn_gate_up_exps.weight", .rows = 25},
         "tensor blk.1.ffn_gate_up_exps.weight has shape (8, 25, 16), expected (8, 24, 16)"},
        {{.tensor = "blk.1.ffn_down_exps.scale", .type = 1},
         "tensor blk.1.ffn_down_exps.scale has type F16, expected F32"},
        {{.extra = "blk.1.ffn_up_shexp.weight"},
         "tensor blk.1.ffn_up_shexp.weight is not part of architecture gemma4"},
    };
    expect_refused(&gemma4, cases, sizeof cases / sizeof *cases);
}

// Experts in turn are two.
TEST(test_in_turn) {
    struct family phimoe = qwen3moe;
    struct model_config c;
    phimoe.arch = "phimoe";
    phimoe.tensors[4].name = "attn_norm.bias", phimoe.tensors[4].cols = D;
    phimoe.tensors[5].name = "ffn_norm.bias", phimoe.tensors[5].cols = D;
    phimoe.keys[2].suffix = NULL;
    phimoe.tensors[9].rows = phimoe.tensors[10].rows = phimoe.tensors[11].cols = F;
    read_ok(&phimoe, &(struct change){.extra = "output_norm.bias"}, &c);
    assert_true(c.norm == NORM_LAYER && c.norm_bias && c.norm_eps > 0 && c.ffn[0].gating == GATING_IN_TURN &&
                c.ffn[0].near == 0.02f);
    expect_refused(&phimoe,
                   &(struct refusal){{.key = "expert_used_count", .value = 3},
                                     "key phimoe.expert_used_count is 3, expected 2"},
                   1);
}

TEST(test_groups) {
    struct model_config c;
    read_ok(&deepseek2, &(struct change){0}, &c);
    const struct ffn_spec *f = model_ffn(&c, 1);
    assert_true(c.num_ffn == 2 && model_ffn(&c, 0)->experts == 0 && model_ffn(&c, 0)->hidden == F);
    assert_true(f->experts == E && f->top_k == 3 && f->groups == 4 && f->top_groups == 2 &&
                f->scale == 2.5f && f->shared_hidden == 40 && f->select_bias && f->gating == GATING_SIGMOID &&
                !f->renormalise);
    static const struct refusal cases[] = {
        {{.no_key = "feed_forward_length"}, "key deepseek2.feed_forward_length is missing"},
        {{.key = "leading_dense_block_count", .value = 2},
         "tensor blk.1.ffn_gate.weight is missing, expected with shape (24, 16)"},
        {{.key = "leading_dense_block_count", .value = 4},
         "no layer has experts (key deepseek2.leading_dense_block_count)"},
        {{.key = "leading_dense_block_count", .value = 5}, "key deepseek2.leading_dense_block_count is 5"},
        {{.key = "nextn_predict_layers", .value = 3},
         "no layer has experts (key deepseek2.leading_dense_block_count)"},
        {{.key = "nextn_predict_layers", .value = 4},
         "key deepseek2.nextn_predict_layers is 4, expected less than 4 layers"},
        {{.key = "expert_group_count", .value = 3},
         "8 experts in 3 groups of which 2 are used have no 3 for a row"},
        {{.key = "expert_group_count", .value = 8},
         "8 experts in 8 groups of which 2 are used have no 3 for a row"},
        {{.key = "expert_group_count", .value = 9}, "key deepseek2.expert_group_count is 9"},
        {{.key = "expert_group_used_count", .value = 0},
         "8 experts in 4 groups of which 0 are used have no 3 for a row"},
        {{.key = "expert_group_used_count", .value = 1},
         "8 experts in 4 groups of which 1 are used have no 3 for a row"},
        {{.key = "expert_group_used_count", .value = 5}, "key deepseek2.expert_group_used_count is 5"},
        {{.key = "expert_shared_count", .value = 1},
         "tensor blk.1.ffn_gate_shexp.weight has shape (40, 16), expected (20, 16)"},
        {{.no_tensor = "blk.2.ffn_down_shexp.weight"},
         "tensor blk.2.ffn_down_shexp.weight is missing, expected with shape (16, 40)"},
        {{.no_tensor = "blk.2.exp_probs_b.bias"},
         "tensor blk.2.exp_probs_b.bias is missing, expected with shape (8)"},
        {{.no_tensor = "blk.1.exp_probs_b.bias"},
         "tensor blk.2.exp_probs_b.bias is not part of architecture deepseek2"}, // the first says that there are none
        {{.tensor = "blk.1.exp_probs_b.bias", .type = 1},
         "tensor blk.1.exp_probs_b.bias has type F16, expected F32"},
        {{.extra = "blk.0.exp_probs_b.bias"},
         "tensor blk.0.exp_probs_b.bias is not part of architecture deepseek2"},
    };
    expect_refused(&deepseek2, cases, sizeof cases / sizeof *cases);
    struct family alone = deepseek2; // groups of one expert, which have no second best
    alone.keys[11].value = 8, alone.keys[12].value = 4;
    expect_refused(
        &alone, &(struct refusal){{0}, "8 experts in 8 groups of which 4 are used have no 3 for a row"}, 1);
}

TEST(test_latent) {
    struct model_config c;
    read_ok(&deepseek2, &(struct change){0}, &c);
    const struct attn_spec *a = &c.attn[0];
    assert_true(a->kind == ATTN_LATENT && a->heads == H && a->kv_heads == 1 && a->head_dim == 18);
    assert_true(a->kv_lora == 12 && a->q_lora == 10 && a->nope_dim == 8 && a->rope_dim == 6 && a->v_dim == 5);
    assert_true(a->scale == 1 / sqrtf(14) && c.ropes[0].dim == 6);
    static const struct refusal cases[] = {
        {{.no_key = "attention.kv_lora_rank"}, "key deepseek2.attention.kv_lora_rank is missing"},
        {{.key = "attention.kv_lora_rank", .value = 0}, "key deepseek2.attention.kv_lora_rank is 0"},
        {{.key = "attention.kv_lora_rank", .value = 13},
         "keys of 18 and values of 12 are cached (key deepseek2.attention.key_length), expected 19 and 13"},
        {{.key = "attention.key_length", .value = 20}, "keys of 20 and values of 12 are cached"},
        {{.key = "attention.value_length", .value = 13}, "keys of 18 and values of 13 are cached"},
        {{.key = "attention.key_length_mla", .value = 6},
         "rope.dimension_count is 6: expected an even number below the size of a key, 6"},
        {{.key = "attention.key_length_mla", .value = 16},
         "tensor blk.0.attn_q_b.weight has shape (56, 10), expected (64, 10)"},
        {{.key = "attention.value_length_mla", .value = 6},
         "tensor blk.0.attn_v_b.weight has shape (4, 5, 12), expected (4, 6, 12)"},
        {{.no_key = "rope.dimension_count"}, "key deepseek2.rope.dimension_count is missing"},
        {{.key = "rope.dimension_count", .value = 5}, "keys of 18 and values of 12 are cached"},
        {{.key = "attention.q_lora_rank", .value = 9},
         "tensor blk.0.attn_q_a.weight has shape (10, 16), expected (9, 16)"},
        {{.no_key = "attention.q_lora_rank"},
         "tensor blk.0.attn_q.weight is missing, expected with shape (56, 16)"},
        {{.no_tensor = "blk.3.attn_kv_a_norm.weight"},
         "tensor blk.3.attn_kv_a_norm.weight is missing, expected with shape (12)"},
        {{.no_tensor = "blk.0.attn_v_b.weight"},
         "tensor blk.0.attn_v_b.weight is missing, expected with shape (4, 5, 12)"},
        {{.tensor = "blk.1.attn_k_b.weight", .stack = 3},
         "tensor blk.1.attn_k_b.weight has shape (3, 12, 8), expected (4, 12, 8)"},
        {{.tensor = "blk.1.attn_k_b.weight", .rows = 11},
         "tensor blk.1.attn_k_b.weight has shape (4, 11, 8), expected (4, 12, 8)"},
        {{.extra = "blk.0.attn_kv_b.weight"},
         "tensor blk.0.attn_kv_b.weight is not part of architecture deepseek2"},
        {{.extra = "blk.0.attn_k.weight"},
         "tensor blk.0.attn_k.weight is not part of architecture deepseek2"},
        {{.extra = "blk.0.attn_output.bias"},
         "tensor blk.0.attn_output.bias is not part of architecture deepseek2"},
        {{.key = "attention.indexer.top_k", .value = 4},
         "key deepseek2.attention.indexer.top_k is 4: Quire does not know"},
        {{.key = "attn_logit_softcapping", .value = 30},
         "key deepseek2.attn_logit_softcapping is 30: Quire does not know"},
        {{.key = "attention.sliding_window", .value = 16},
         "key deepseek2.attention.sliding_window is 16, and nothing says for which layers"},
        {{.key = "attention.head_count", .value = 3}, "3 query heads are no multiple of 2"},
    };
    expect_refused(&deepseek2, cases, sizeof cases / sizeof *cases);
}

// Files of before 2025: sizes of a head alone, and one matrix for keys and values.
TEST(test_old_latent) {
    struct model_config c;
    struct family old = deepseek2;
    old.keys[2].value = 14, old.keys[3].value = 5;
    for (int i = 4; i < MAX_KEYS - 2; i++)
        old.keys[i] = old.keys[i + 2];
    old.keys[MAX_KEYS - 2].suffix = NULL;
    old.tensors[6].of = ALL, old.tensors[6].name = "attn_kv_b.weight";
    old.tensors[6].rows = H * (8 + 5), old.tensors[6].cols = 12;
    old.tensors[7] = old.tensors[8]; // there twice, or not at all
    old.tensors[7].of = 0;
    read_ok(&old, &(struct change){0}, &c);
    assert_true(c.attn[0].nope_dim == 8 && c.attn[0].v_dim == 5 && c.attn[0].head_dim == 18);
    static const struct refusal cases[] = {
        {{.tensor = "blk.0.attn_kv_b.weight", .rows = H * 8 + 5},
         "tensor blk.0.attn_kv_b.weight has shape (37, 12), expected (52, 12)"},
        {{.key = "rope.dimension_count", .value = 14},
         "rope.dimension_count is 14: expected an even number below the size of a key, 14"},
        {{.key = "rope.dimension_count", .value = 7}, "rope.dimension_count is 7: expected an even number"},
        {{.key = "attention.value_length", .value = 4},
         "tensor blk.0.attn_kv_b.weight has shape (52, 12), expected (48, 12)"},
    };
    expect_refused(&old, cases, sizeof cases / sizeof *cases);
}

int main(void) { return run_all_tests(NULL, NULL); }
