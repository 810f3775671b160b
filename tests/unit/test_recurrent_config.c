// Files of models with recurrent layers: what their keys and tensors give, and values that are refused.
#include "family_files.h"
#include "quantize.h"

#include <unistd.h>

static const struct family lfm2 = {
    "lfm2",
    "token_embd_norm.weight",
    {{"shortconv.l_cache", 3}},
    {0, K, 0, K},
    0,
    {0},
    {{ALL, "attn_norm.weight", 0, D},
     FAMILY_QKV(ATTN),
     FAMILY_QK_NORMS(ATTN),
     {ATTN, "attn_output.weight", D, H *HD},
     {MIX, "shortconv.in_proj.weight", 3 * D, D},
     {MIX, "shortconv.conv.weight", D, 3},
     {MIX, "shortconv.out_proj.weight", D, D},
     {ALL, "ffn_norm.weight", 0, D},
     FAMILY_FFN(ALL)},
};

static const struct family qwen35 = {
    "qwen35",
    "output_norm.weight",
    {FAMILY_STATES, {"full_attention_interval", 2}},
    {0},
    0,
    {0},
    {{ALL, "attn_norm.weight", 0, D},
     {ATTN, "attn_q.weight", 2 * H *HD, D},
     {ATTN, "attn_k.weight", K *HD, D},
     {ATTN, "attn_v.weight", K *HD, D},
     FAMILY_QK_NORMS(ATTN),
     {ATTN, "attn_output.weight", D, H *HD},
     {MIX, "attn_qkv.weight", 48, D},
     {MIX, "attn_gate.weight", 32, D},
     {MIX, "ssm_beta.weight", 2, D},
     {MIX, "ssm_alpha.weight", 2, D},
     {MIX, "ssm_conv1d.weight", 48, 4},
     {MIX, "ssm_a", 0, 2},
     {MIX, "ssm_dt.bias", 0, 2},
     {MIX, "ssm_norm.weight", 0, 16},
     {MIX, "ssm_out.weight", D, 32},
     {ALL, "post_attention_norm.weight", 0, D},
     FAMILY_FFN(ALL)},
};

static const struct family granite = {
    "granitehybrid",
    "output_norm.weight",
    {FAMILY_STATES, {"logit_scale", 2.5}},
    {0, K, 0, K},
    0,
    {0},
    {{ALL, "attn_norm.weight", 0, D},
     FAMILY_QKV(ATTN),
     {ATTN, "attn_output.weight", D, H *HD},
     FAMILY_MAMBA2(MIX),
     {ALL, "ffn_norm.weight", 0, D},
     FAMILY_FFN(ALL)},
};

// Nothing but recurrent layers
static const struct family mamba2 = {
    "mamba2",
    "output_norm.weight",
    {FAMILY_STATES},
    {0},
    0,
    {0},
    {{ALL, "attn_norm.weight", 0, D}, FAMILY_MAMBA2(ALL)},
};

TEST(test_mamba2) {
    struct model_config c;
    read_ok(&mamba2, &(struct change){.key = "attention.head_count", .value = 0}, &c);
    assert_true(c.num_mix == 1 && c.mix[0].kind == MIX_SSM && c.ffn[0].hidden == 0 && c.num_attn == 1);
    for (int l = 0; l < L; l++)
        assert_true(!model_attn(&c, l) && model_mix(&c, l) && c.layers[l].state_layer == l);
    // One page has all that a sequence keeps
    assert_true(c.kv_layers == 0 && c.state_layers == L && c.num_groups == 1 && c.groups[0].kind == KV_STATE);
    static const struct refusal cases[] = {
        {{.no_key = "ssm.inner_size"}, "key mamba2.ssm.inner_size is missing"},
        {{.no_tensor = "blk.3.ssm_out.weight"}, "tensor blk.3.ssm_out.weight is missing"},
        {{.extra = "blk.0.attn_q.weight"}, "tensor blk.0.attn_q.weight is not part of architecture mamba2"},
        {{.extra = "blk.0.ffn_norm.weight"},
         "tensor blk.0.ffn_norm.weight is not part of architecture mamba2"},
        {{.key = "expert_count", .value = 2}, "experts are not supported yet in architecture mamba2"},
    };
    expect_refused(&mamba2, cases, sizeof cases / sizeof *cases);
}

TEST(test_lfm2) {
    struct model_config c;
    read_ok(&lfm2, &(struct change){0}, &c);
    assert_true(c.num_mix == 1 && c.num_attn == 1 && c.attn[0].kv_heads == K && c.attn[0].qk_norm);
    assert_true(c.mix[0].kind == MIX_CONV && c.mix[0].heads == D && c.mix[0].taps == 3 &&
                !c.mix[0].conv_bias);
    for (int l = 0; l < L; l++) {
        assert_true((model_attn(&c, l) != NULL) == (l % 2 == 1) &&
                    (model_mix(&c, l) != NULL) == (l % 2 == 0));
        assert_true(l % 2 ? c.layers[l].kv_layer == l / 2 : c.layers[l].state_layer == l / 2);
    }
    assert_true(c.num_groups == 2 && c.groups[0].kind == KV_FULL && c.groups[1].kind == KV_STATE);
    assert_true(c.kv_layers == 2 && c.state_layers == 2 && model_state_size(&c) == 2 * D);
    // As many heads everywhere: no layer is recurrent, and none of their tensors may be there.
    read_ok(&lfm2, &(struct change){.kv_heads = {K, K, K, K}}, &c);
    assert_true(c.num_mix == 0 && c.num_groups == 1);

    static const struct refusal cases[] = {
        {{.no_key = "shortconv.l_cache"}, "key lfm2.shortconv.l_cache is missing"},
        {{.key = "shortconv.l_cache", .value = 1}, "key lfm2.shortconv.l_cache is 1"},
        {{.key = "shortconv.l_cache", .value = 17}, "key lfm2.shortconv.l_cache is 17"},
        {{.key = "shortconv.l_cache", .value = 4},
         "tensor blk.0.shortconv.conv.weight has shape (16, 3), expected (16, 4)"},
        {{.kv_heads = {0, K, 1, K}},
         "head_count_kv is 1 for layer 2: expected 0, or 1 to 4, the same for every layer with attention"},
        {{.kv_heads = {0, -1, 0, -1}}, "head_count_kv is -1 for layer 1"},
        {{.kv_heads = {0, 5, 0, 5}}, "head_count_kv is 5 for layer 1"},
        {{.kv_heads = {0, 3, 0, 3}}, "4 query heads are no multiple of 3"},
        {{.num_layers = 3}, "has 3 elements, expected one for each of 4 layers"},
        {{.no_tensor = "blk.2.shortconv.in_proj.weight"},
         "tensor blk.2.shortconv.in_proj.weight is missing, expected with shape (48, 16)"},
        {{.tensor = "blk.0.shortconv.in_proj.weight", .rows = 2 * D},
         "tensor blk.0.shortconv.in_proj.weight has shape (32, 16), expected (48, 16)"},
        {{.tensor = "blk.0.shortconv.conv.weight", .type = 1},
         "tensor blk.0.shortconv.conv.weight has type F16, expected F32"},
        {{.extra = "blk.0.attn_q.weight"}, "tensor blk.0.attn_q.weight is not part of architecture lfm2"},
        {{.extra = "blk.1.shortconv.conv.weight"},
         "tensor blk.1.shortconv.conv.weight is not part of architecture lfm2"},
        {{.extra = "output_norm.weight"}, "tensor output_norm.weight is not part of architecture lfm2"},
        {{.key = "ssm.state_size", .value = 16},
         "key lfm2.ssm.state_size is 16: Quire does not know how to compute that"},
        {{.key = "shortconv.more", .value = 1},
         "key lfm2.shortconv.more is 1: Quire does not know how to compute that"},
    };
    expect_refused(&lfm2, cases, sizeof cases / sizeof *cases);
    struct family none = lfm2;
    for (int l = 0; l < L; l++)
        none.kv_heads[l] = 0;
    expect_refused(&none, &(struct refusal){{0}, "is 0 for every layer: expected a layer with attention"}, 1);
}

TEST(test_qwen35) {
    struct model_config c;
    read_ok(&qwen35, &(struct change){0}, &c);
    const struct mix_spec *m = &c.mix[0];
    assert_true(m->kind == MIX_DELTA && m->heads == 2 && m->groups == 1 && m->key_dim == 8 &&
                m->head_dim == 16);
    assert_true(m->taps == 4 && m->tiled && c.attn[0].gate && model_state_size(&c) == 3 * 48 + 2 * 16 * 8);
    assert_true(!model_attn(&c, 0) && !model_mix(&c, 1) && model_attn(&c, 3) && c.state_layers == 2);
    // The last layer is one that predicts a token further, which nobody asks for.
    read_ok(&qwen35, &(struct change){.key = "nextn_predict_layers", .value = 1}, &c);
    assert_true(c.num_layers == 3 && c.state_layers == 2 && c.groups[0].num_layers == 1);
    static const struct refusal cases[] = {
        {{.no_key = "ssm.inner_size"}, "key qwen35.ssm.inner_size is missing"},
        {{.key = "ssm.inner_size", .value = 33},
         "key qwen35.ssm.inner_size is 33, expected a multiple of 2 heads"},
        {{.key = "ssm.time_step_rank", .value = 64}, "key qwen35.ssm.time_step_rank is 64"},
        {{.key = "ssm.group_count", .value = 3}, "key qwen35.ssm.group_count is 3"},
        {{.key = "ssm.state_size", .value = 5000}, "key qwen35.ssm.state_size is 5000"},
        {{.key = "rope.dimension_sections", .value = 2}, "key qwen35.rope.dimension_sections at byte"},
        {{.key = "full_attention_interval", .value = 0}, "key qwen35.full_attention_interval is 0"},
        {{.key = "full_attention_interval", .value = 5}, "all 4 layers are recurrent"},
        {{.recurrent = 2}, "all 4 layers are recurrent"},
        {{.recurrent = 1, .num_layers = 3},
         "recurrent_layers has 3 elements, expected one for each of 4 layers"},
        {{.recurrent = 1}, "tensor blk.0.attn_q.weight is missing"},
        {{.key = "ssm.dt_b_c_rms", .value = 1}, "key qwen35.ssm.dt_b_c_rms is 1: Quire does not know"},
        {{.no_tensor = "blk.0.ssm_a"}, "tensor blk.0.ssm_a is missing, expected with shape (2)"},
        {{.tensor = "blk.1.attn_q.weight", .rows = H * HD},
         "tensor blk.1.attn_q.weight has shape (16, 16), expected (32, 16)"},
        {{.tensor = "blk.0.attn_qkv.weight", .rows = 47},
         "tensor blk.0.attn_qkv.weight has shape (47, 16), expected (48, 16)"},
        {{.extra = "blk.1.ssm_dt.bias"}, "tensor blk.1.ssm_dt.bias is not part of architecture qwen35"},
    };
    expect_refused(&qwen35, cases, sizeof cases / sizeof *cases);
    struct family large = qwen35; // 2^24 elements of q in a row
    large.keys[1].value = 65536, large.keys[2].value = large.keys[3].value = large.keys[4].value = 4096;
    expect_refused(&large, &(struct refusal){{0}, "of at most 4194304 elements together"}, 1);
}

TEST(test_granite) {
    struct model_config c;
    read_ok(&granite, &(struct change){0}, &c);
    const struct mix_spec *m = &c.mix[0];
    assert_true(m->kind == MIX_SSM && m->heads == 2 && m->head_dim == 16 && m->key_dim == 8 && !m->tiled);
    assert_true(m->conv_bias && m->norm && c.logit_scale == 0.4f && !model_attn(&c, 2) && model_attn(&c, 3));
    static const struct refusal cases[] = {
        {{.no_tensor = "blk.0.ssm_conv1d.bias"},
         "tensor blk.2.ssm_conv1d.bias is not part of architecture"}, // the first says that there are none
        {{.no_tensor = "blk.2.ssm_conv1d.bias"}, "tensor blk.2.ssm_conv1d.bias is missing"},
        {{.no_tensor = "blk.0.ssm_norm.weight"}, "tensor blk.2.ssm_norm.weight is not part of architecture"},
        {{.tensor = "blk.0.ssm_in.weight", .rows = 81},
         "tensor blk.0.ssm_in.weight has shape (81, 16), expected (82, 16)"},
        {{.tensor = "blk.2.ssm_d", .rows = 1}, "tensor blk.2.ssm_d has shape (1, 1), expected (2, 1)"},
        {{.key = "ssm.group_count", .value = 2}, "expected (98, 16)"},
    };
    expect_refused(&granite, cases, sizeof cases / sizeof *cases);
}

static const struct family nemotron = {
    "nemotron_h",
    "output_norm.weight",
    {FAMILY_STATES},
    {0, K, 0, 0},
    0,
    {0, 0, F, 0},
    {{ALL | FFN, "attn_norm.weight", 0, D},
     FAMILY_QKV(ATTN),
     {ATTN, "attn_output.weight", D, H *HD},
     FAMILY_MAMBA2(MIX),
     {FFN, "ffn_up.weight", F, D},
     {FFN, "ffn_down.weight", D, F}},
};

// Layers that are one part: two recurrent ones, one that attends, a feed-forward.
TEST(test_nemotron) {
    struct model_config c;
    read_ok(&nemotron, &(struct change){0}, &c);
    for (int l = 0; l < L; l++) {
        assert_true((model_mix(&c, l) != NULL) == (l % 3 == 0) && (model_attn(&c, l) != NULL) == (l == 1));
        assert_int_equal(model_ffn(&c, l)->hidden, l == 2 ? F : 0);
    }
    assert_true(c.attn[0].rope == -1 && model_ffn(&c, 2)->act == ACT_RELU2 && model_ffn(&c, 2)->no_gate);
    static const struct refusal cases[] = {
        {{.alone = {0, F, F, 0}},
         "layer 1 attends (key nemotron_h.attention.head_count_kv) and is a feed-forward, expected one"},
        {{.alone = {0, 0, F, 8}},
         "feed_forward_length is 8 for layer 3: expected 0, or 1 to 16777216, the same for every layer with "
         "one"},
        {{.alone = {0, 0, -1, 0}}, "feed_forward_length is -1 for layer 2"},
        {{.kv_heads = {0, K, K, 0}}, "layer 2 attends"},
        {{.num_layers = 3}, "has 3 elements, expected one for each of 4 layers"},
        {{.no_tensor = "blk.2.ffn_up.weight"},
         "tensor blk.2.ffn_up.weight is missing, expected with shape (24, 16)"},
        {{.no_tensor = "blk.2.attn_norm.weight"}, "tensor blk.2.attn_norm.weight is missing"},
        {{.extra = "blk.2.ffn_norm.weight"},
         "tensor blk.2.ffn_norm.weight is not part of architecture nemotron_h"},
        {{.extra = "blk.2.ssm_a"}, "tensor blk.2.ssm_a is not part of architecture nemotron_h"},
        {{.extra = "blk.1.ffn_gate.weight"},
         "tensor blk.1.ffn_gate.weight is not part of architecture nemotron_h"},
        {{.key = "expert_count", .value = 4},
         "key nemotron_h.expert_count is 4: experts are not supported yet"},
    };
    expect_refused(&nemotron, cases, sizeof cases / sizeof *cases);
}

// Quantising leaves convolutions as they are, so that the file can be loaded.
TEST(test_quantised) {
    char in[] = "/tmp/quire-recurrent-XXXXXX", out[64];
    struct model_config config;
    struct err err = {0};
    struct quantize_result r;
    size_t size;
    unsigned char *file = write_file(&lfm2, &(struct change){0}, &size);
    int fd = mkstemp(in);
    assert_true(fd >= 0 && write(fd, file, size) == (ssize_t)size && close(fd) == 0);
    free(file);
    snprintf(out, sizeof out, "%s.gguf", in);
    if (quantize_file(&(struct quantize_config){.in = in, .out = out, .type = "bf16"}, &r, &err) != STATUS_OK)
        fail_msg("%s", err.msg);
    struct model_file *g = gguf_open(out, &err);
    assert_non_null(g);
    assert_int_equal(model_file_find(g, "blk.0.shortconv.in_proj.weight")->view.dtype, DTYPE_BF16);
    assert_int_equal(model_file_find(g, "blk.0.shortconv.conv.weight")->view.dtype, DTYPE_F32);
    if (model_config_read(g, &config, &err) || weights_check(&config, g, &err))
        fail_msg("%s", err.msg);
    model_file_close(g);
    unlink(in), unlink(out);
}

int main(void) { return run_all_tests(NULL, NULL); }
