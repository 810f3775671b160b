// Files as llama.cpp has them, of architectures whose layers lack parts or have others than most: what their keys and
// tensors give, and what is refused.
#include "family_files.h"

#define SHARED(hidden)                                                                                       \
    {MOE, "ffn_gate_shexp.weight", hidden, D}, {MOE, "ffn_up_shexp.weight", hidden, D}, {                    \
        MOE, "ffn_down_shexp.weight", D, hidden                                                              \
    }
#define ATTENTION                                                                                            \
    {ALL, "attn_norm.weight", 0, D}, FAMILY_QKV(ALL), { ALL, "attn_output.weight", D, H *HD }

static const struct family bailingmoe = {
    "bailingmoe",
    "output_norm.weight",
    {FAMILY_ROUTER,
     {"expert_shared_count", 2},
     {"expert_weights_scale", 1.5},
     {"leading_dense_block_count", 0},
     {"rope.dimension_count", HD},
     {"vocab_size", V}},
    {K, K, K, K},
    0,
    {0},
    {ATTENTION,
     {ALL, "ffn_norm.weight", 0, D},
     {ALL, "ffn_gate_inp.weight", E, D},
     FAMILY_EXPERTS(ALL, 12),
     SHARED(24)},
};
// Queries, keys and values are one tensor; the last layer predicts further tokens.
static const struct family bailingmoe2 = {
    "bailingmoe2",
    "output_norm.weight",
    {FAMILY_ROUTER,
     {"expert_shared_count", 1},
     {"expert_shared_feed_forward_length", 12},
     {"expert_gating_func", 2},
     {"expert_group_count", 4},
     {"expert_group_used_count", 2},
     {"expert_weights_scale", 2.5},
     {"leading_dense_block_count", 1},
     {"nextn_predict_layers", 1},
     {"rope.dimension_count", 2}},
    {K, K, K, K},
    1,
    {0},
    {{ALL, "attn_norm.weight", 0, D},
     {ALL, "attn_qkv.weight", (H + 2 * K) * HD, D},
     FAMILY_QK_NORMS(ALL),
     {ALL, "attn_output.weight", D, H *HD},
     {ALL, "ffn_norm.weight", 0, D},
     FAMILY_FFN(DENSE),
     {MOE, "ffn_gate_inp.weight", E, D},
     {MOE, "exp_probs_b.bias", 0, E},
     FAMILY_EXPERTS(MOE, 12),
     SHARED(12)},
};
// No key says how many layers are dense.
static const struct family hy_v3 = {
    "hy_v3",
    "output_norm.weight",
    {FAMILY_ROUTER, {"expert_shared_feed_forward_length", 12}, {"expert_weights_scale", 2.5}},
    {K, K, K, K},
    2,
    {0},
    {ATTENTION,
     FAMILY_QK_NORMS(ALL),
     {ALL, "ffn_norm.weight", 0, D},
     FAMILY_FFN(DENSE),
     {MOE, "ffn_gate_inp.weight", E, D},
     {MOE, "exp_probs_b", 0, E},
     FAMILY_EXPERTS(MOE, 12),
     SHARED(12)},
};
static const struct family cohere2moe = {
    "cohere2moe",
    "output_norm.weight",
    {FAMILY_ROUTER,
     {"expert_shared_count", 2},
     {"expert_shared_feed_forward_length", 24},
     {"leading_dense_block_count", 1},
     {"attention.sliding_window", 8},
     {"attention.sliding_window_pattern", 2},
     {"logit_scale", 0.25}},
    {K, K, K, K},
    1,
    {0},
    {ATTENTION, FAMILY_FFN(DENSE), {MOE, "ffn_gate_inp.weight", E, D}, FAMILY_EXPERTS(MOE, 12), SHARED(24)},
};
static const struct family smallthinker = {
    "smallthinker",
    "output_norm.weight",
    {FAMILY_ROUTER, {"expert_gating_func", 2}, {"attention.sliding_window", 8}},
    {K, K, K, K},
    0,
    {0},
    {ATTENTION, {ALL, "ffn_norm.weight", 0, D}, {ALL, "ffn_gate_inp.weight", E, D}, FAMILY_EXPERTS(ALL, 12)},
};
// Both parts; a feed-forward of another size; attention of one key; nothing.
static const struct family deci = {
    "deci",
    "output_norm.weight",
    {{"rope.dimension_count", HD}, {"attention.key_length", HD}, {"attention.value_length", HD}},
    {K, 0, K, 0},
    0,
    {F, F, 0, 0},
    {{ATTN, "attn_norm.weight", 0, D},
     FAMILY_QKV(ATTN),
     {ATTN, "attn_output.weight", D, H *HD},
     {FFN, "ffn_norm.weight", 0, D},
     FAMILY_FFN(FFN)},
};
static const struct family apertus = {
    "apertus",
    "output_norm.weight",
    {{0}},
    {K, K, K, K},
    0,
    {0},
    {ATTENTION,
     FAMILY_QK_NORMS(ALL),
     {ALL, "ffn_norm.weight", 0, D},
     {ALL, "ffn_up.weight", F, D},
     {ALL, "ffn_down.weight", D, F}},
};

static void add_key(struct family *f, const char *suffix, double value) {
    int i = 0;
    while (i + 1 < MAX_KEYS && f->keys[i].suffix)
        i++;
    f->keys[i].suffix = suffix;
    f->keys[i].value = value;
}

TEST(test_bailing) {
    struct model_config c;
    read_ok(&bailingmoe, &(struct change){0}, &c);
    assert_true(c.ffn[0].gating == GATING_SOFTMAX && !c.ffn[0].renormalise && c.ffn[0].shared_hidden == 24 &&
                c.attn[0].qk_norm == QK_NORM_NONE && c.ropes[0].interleaved);
    read_ok(&bailingmoe2, &(struct change){0}, &c);
    const struct ffn_spec *f = model_ffn(&c, 1);
    assert_true(c.num_layers == L - 1 && model_ffn(&c, 0)->experts == 0 && f->gating == GATING_SIGMOID &&
                f->groups == 4 && f->top_groups == 2 && f->scale == 2.5f && f->select_bias);
    assert_true(c.attn[0].qk_norm == QK_NORM_HEADS && c.ropes[0].dim == 2 && !c.ropes[0].interleaved);
    static const struct refusal cases[] = {
        {{.no_tensor = "blk.1.attn_q_norm.weight"}, "blk.1.attn_q_norm.weight is missing"},
        {{.tensor = "blk.2.attn_qkv.weight", .rows = H * HD}, "has shape (16, 16), expected (32, 16)"},
        {{.key = "expert_shared_feed_forward_length", .value = 24},
         "blk.1.ffn_gate_shexp.weight has shape (12, 16), expected (24, 16)"},
    };
    expect_refused(&bailingmoe2, cases, sizeof cases / sizeof *cases);
}

TEST(test_hunyuan3) {
    struct model_config c;
    read_ok(&hy_v3, &(struct change){0}, &c);
    assert_true(model_ffn(&c, 1)->experts == 0 && model_ffn(&c, 2)->experts == E &&
                model_ffn(&c, 2)->select_bias && model_ffn(&c, 2)->renormalise);
    static const struct refusal cases[] = {
        {{.no_tensor = "blk.2.exp_probs_b"}, "blk.3.exp_probs_b is not part of architecture hy_v3"},
        {{.no_tensor = "blk.3.exp_probs_b"}, "blk.3.exp_probs_b is missing"},
        {{.extra = "blk.3.exp_probs_b.bias"}, "blk.3.exp_probs_b.bias is not part of architecture hy_v3"},
        {{.key = "leading_dense_block_count", .value = 1}, "blk.1.ffn_gate_inp.weight is missing"},
    };
    expect_refused(&hy_v3, cases, sizeof cases / sizeof *cases);
}

// Half of what experts and the shared one give; LayerNorm, or RMSNorm by its key; a dense layer rotates in any case.
TEST(test_cohere2moe) {
    struct model_config c;
    read_ok(&cohere2moe, &(struct change){0}, &c);
    assert_true(c.norm == NORM_RMS && c.block == BLOCK_ONE_NORM && c.logit_scale == 0.25f);
    assert_true(model_ffn(&c, 1)->shared_scale == 0.5f && model_ffn(&c, 1)->scale == 0.5f &&
                model_ffn(&c, 1)->gating == GATING_SIGMOID);
    assert_true(model_attn(&c, 0)->window == 8 && model_attn(&c, 0)->rope == 0 &&
                model_attn(&c, 1)->window == 0 && model_attn(&c, 1)->rope == -1);
    read_ok(&cohere2moe, &(struct change){.key = "attention.sliding_window_pattern", .value = 1}, &c);
    assert_true(model_attn(&c, 0)->window == 0 && model_attn(&c, 0)->rope == 0 &&
                model_attn(&c, 1)->rope == -1);
    struct family layer_norm = cohere2moe;
    add_key(&layer_norm, "attention.layer_norm_epsilon", 1e-3);
    read_ok(&layer_norm, &(struct change){.no_key = "attention.layer_norm_rms_epsilon"}, &c);
    assert_true(c.norm == NORM_LAYER && c.norm_eps == 1e-3f);
    static const struct refusal cases[] = {
        {{.no_key = "attention.layer_norm_rms_epsilon"},
         "key cohere2moe.attention.layer_norm_epsilon is missing"},
        {{.no_key = "logit_scale"}, "key cohere2moe.logit_scale is missing"},
        {{.extra = "blk.1.ffn_norm.weight"}, "blk.1.ffn_norm.weight is not part of architecture cohere2moe"},
    };
    expect_refused(&cohere2moe, cases, sizeof cases / sizeof *cases);
}

TEST(test_smallthinker) {
    struct model_config c;
    read_ok(&smallthinker, &(struct change){0}, &c);
    const struct ffn_spec *f = &c.ffn[0];
    assert_true(f->early_router && f->renormalise && f->act == ACT_RELU && f->gating == GATING_SIGMOID &&
                model_keeps_before(&c));
    for (int l = 0; l < L; l++) // the first of four sees all and does not rotate
        assert_true(model_attn(&c, l)->window == (l ? 8 : 0) && model_attn(&c, l)->rope == (l ? 0 : -1));
    read_ok(&smallthinker, &(struct change){.no_key = "attention.sliding_window"}, &c);
    assert_true(c.num_attn == 1 && c.attn[0].window == 0 && c.attn[0].rope == 0);
}

TEST(test_deci) {
    struct model_config c;
    read_ok(&deci, &(struct change){0}, &c);
    for (int l = 0; l < L; l++)
        assert_true((model_attn(&c, l) != NULL) == (l % 2 == 0) &&
                    model_ffn(&c, l)->hidden == (l < 2 ? F : 0));
    static const struct refusal cases[] = {
        {{.kv_heads = {K, K, K, 0}}, "layer 1 has none, and some for keys: a matrix in place of attention"},
        {{.no_tensor = "blk.0.attn_norm.weight"}, "blk.0.attn_norm.weight is missing"},
        {{.extra = "blk.1.attn_norm.weight"}, "blk.1.attn_norm.weight is not part of architecture deci"},
        {{.extra = "blk.2.ffn_norm.weight"}, "blk.2.ffn_norm.weight is not part of architecture deci"},
        {{.num_layers = 3}, "has 3 elements, expected one for each of 4 layers"},
    };
    expect_refused(&deci, cases, sizeof cases / sizeof *cases);
    struct family linear = deci;
    linear.kv_heads[1] = K; // its heads stay
    expect_refused(&linear,
                   &(struct refusal){{.kv_heads = {K, 0, K, 0}}, "layer 1 has heads, and none for keys"}, 1);
    struct family none = deci;
    memset(none.kv_heads, 0, sizeof none.kv_heads);
    expect_refused(&none, &(struct refusal){{0}, "head_count is 0 for every layer"}, 1);
}

// Parameters are those before softplus.
TEST(test_apertus) {
    struct model_config c;
    read_ok(&apertus, &(struct change){0}, &c);
    assert_true(c.ffn[0].act == ACT_XIELU && c.ffn[0].no_gate && c.num_ffn == 1);
    const struct xielu *x = &c.layers[1].xielu;
    assert_true(x->positive == 40 && x->beta == 40 && x->negative == 80 && x->eps == 40);
    assert_true(fabsf(c.layers[0].xielu.positive - 1.31326169f) < 1e-6f &&
                fabsf(c.layers[2].xielu.negative - (-2 + 0.126928011f)) < 1e-6f);
    static const struct refusal cases[] = {
        {{.numbers = 3}, "key xielu.alpha_n has 3 elements, expected one for each of 4 layers"},
        {{.extra = "blk.0.ffn_gate.weight"}, "blk.0.ffn_gate.weight is not part of architecture apertus"},
    };
    expect_refused(&apertus, cases, sizeof cases / sizeof *cases);
}

static const struct family latent = {
    "nemotron_h_moe",
    "output_norm.weight",
    {FAMILY_STATES, FAMILY_ROUTER, {"moe_latent_size", 6}, {"expert_shared_feed_forward_length", 20}},
    {0, K, 0, 0},
    0,
    {0, 0, 12, 0},
    {{ALL | FFN, "attn_norm.weight", 0, D},
     FAMILY_QKV(ATTN),
     {ATTN, "attn_output.weight", D, H *HD},
     FAMILY_MAMBA2(MIX),
     {FFN, "ffn_gate_inp.weight", E, D},
     {FFN, "exp_probs_b.bias", 0, E},
     {FFN, "ffn_latent_down.weight", 6, D},
     {FFN, "ffn_latent_up.weight", D, 6},
     {FFN | STACK, "ffn_up_exps.weight", 12, 6},
     {FFN | STACK, "ffn_down_exps.weight", 6, 12},
     {FFN, "ffn_up_shexp.weight", 20, D},
     {FFN, "ffn_down_shexp.weight", D, 20}},
};

TEST(test_latent_experts) {
    struct model_config c;
    read_ok(&latent, &(struct change){0}, &c);
    assert_true(model_ffn(&c, 2)->latent == 6);
    struct family next = latent; // a layer of speculation behind them, which has both parts
    next.kv_heads[3] = K, next.alone[3] = 12;
    add_key(&next, "nextn_predict_layers", 1);
    read_ok(&next, &(struct change){0}, &c);
    assert_true(c.num_layers == L - 1 && model_ffn(&c, 2)->latent == 6);
    static const struct refusal cases[] = {
        {{.no_tensor = "blk.2.ffn_latent_up.weight"}, "blk.2.ffn_latent_up.weight is missing"},
        {{.key = "moe_latent_size", .value = 8},
         "blk.2.ffn_up_exps.weight has shape (8, 12, 6), expected (8, 12, 8)"},
        {{.key = "moe_latent_size", .value = D + 1}, "key nemotron_h_moe.moe_latent_size is 17"},
        {{.no_key = "moe_latent_size"}, "expected (8, 12, 16)"},
    };
    expect_refused(&latent, cases, sizeof cases / sizeof *cases);
}

int main(void) { return run_all_tests(NULL, NULL); }
