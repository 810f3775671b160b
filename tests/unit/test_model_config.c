// Hyperparameters and tensors: what is read, what is refused and by which words.
#include "harness.h"

#include "model_fixture.h"

#include <math.h>

static void read_ok(const struct change *c, struct model_config *config) {
    struct err err = {0};
    unsigned char *file;
    struct model_file *g = parse(c, &file);
    if (model_config_read(g, config, &err) || weights_check(config, g, &err))
        fail_msg("%s", err.msg);
    config->ropes[0].freq_factors = NULL; // gone with g
    model_file_close(g);
    free(file);
}

static void refused(const struct change *c, const char *word) {
    struct err err = {0};
    struct model_config config;
    unsigned char *file;
    struct model_file *g = parse(c, &file);
    enum status st = model_config_read(g, &config, &err);
    if (st == STATUS_OK)
        st = weights_check(&config, g, &err);
    if (st != STATUS_FORMAT || !strstr(err.msg, word) || !strstr(err.msg, "test.gguf"))
        fail_msg("expected '%s', got status %d '%s'", word, (int)st, err.msg);
    model_file_close(g);
    free(file);
}

TEST(test_good) {
    struct model_config c;
    read_ok(&(struct change){0}, &c);
    assert_string_equal(c.arch, "llama");
    assert_true(c.num_layers == L && c.hidden == D && c.attn[0].heads == H && c.attn[0].kv_heads == K &&
                c.attn[0].head_dim == HD);
    assert_true(c.ffn[0].hidden == F && c.vocab == V && c.max_context == 128 && c.tied &&
                !c.attn[0].qk_norm && c.attn[0].window == 0);
    assert_true(c.norm_eps == 1e-5f && c.attn[0].scale == 0.25f && c.logit_scale == 1);
    assert_true(c.ropes[0].theta == 10000 && c.ropes[0].dim == HD && c.ropes[0].interleaved &&
                c.ropes[0].scaling == ROPE_NONE);
    assert_true(c.ropes[0].attn_factor == 1 && c.ropes[0].factor == 1 && !c.ropes[0].freq_factors);
    read_ok(&(struct change){.untied = 1, .keys = {{"general.name", 8, 0, "a\x1b[31m\xff é"}}}, &c);
    assert_false(c.tied);
    assert_string_equal(c.name, "a?[31m? é");
    read_ok(&(struct change){.keys = {{"llama.attention.head_count_kv", 9, L, NULL}}}, &c);
    assert_int_equal(c.attn[0].kv_heads, K);
    read_ok(&(struct change){.keys = {{"llama.attention.key_length", 4, HD, NULL},
                                      {"llama.attention.value_length", 4, HD, NULL},
                                      {"llama.attention.scale", 6, 0.5, NULL},
                                      {"llama.rope.freq_base", 6, 500000, NULL},
                                      {"llama.rope.dimension_count", 4, 8, NULL},
                                      {"llama.vocab_size", 4, V, NULL},
                                      {"llama.expert_count", 4, 0, NULL},
                                      {"llama.pooling_type", 4, 0, NULL},
                                      {"llama.attention.sliding_window", 4, 0, NULL},
                                      {"llama.attention.causal", 7, 1, NULL},
                                      {"llama.attention.unheard_of", 4, 0, NULL},
                                      {"llama.expert_shared_count", 4, 1, NULL},
                                      {"llama.tensor_data_layout", 8, 0, "Meta AI original pth"},
                                      {"general.type", 8, 0, "model"}}},
            &c);
    assert_true(c.attn[0].scale == 0.5f && c.ropes[0].theta == 500000 && c.ropes[0].dim == 8);
    read_ok(&(struct change){.keys = {{"llama.attention.scale", 6, 0, NULL}}}, &c);
    assert_true(c.attn[0].scale == 0.25f); // 0: the usual one
    read_ok(&(struct change){.keys = {{"llama.attention.scale", 6, 1.2e-38, NULL}}}, &c);
    assert_true(c.attn[0].scale == 1.2e-38f);
}

// Each architecture: which tensors it has, and how pairs are turned.
TEST(test_architectures) {
    struct model_config c;
    read_ok(&(struct change){.arch = "qwen2"}, &c);
    assert_string_equal(c.arch, "qwen2");
    assert_true(c.attn[0].qkv_bias && !c.attn[0].out_bias && !c.attn[0].qk_norm && !c.ropes[0].interleaved &&
                c.ropes[0].theta == 10000);
    read_ok(&(struct change){.arch = "qwen3", .keys = {{"qwen3.rope.freq_base", 6, 1e6, NULL}}}, &c);
    assert_true(!c.attn[0].qkv_bias && !c.attn[0].out_bias && c.attn[0].qk_norm && !c.ropes[0].interleaved &&
                c.ropes[0].theta == 1e6f);
    read_ok(&(struct change){.biases = 1}, &c);
    assert_true(c.attn[0].qkv_bias && !c.attn[0].out_bias && !c.attn[0].qk_norm && c.ropes[0].interleaved);
    read_ok(&(struct change){.out_bias = 1}, &c);
    assert_true(!c.attn[0].qkv_bias && c.attn[0].out_bias);

    static const char *const needed[] = {"blk.0.attn_q.bias", "blk.1.attn_k.bias", "blk.0.attn_v.bias"};
    for (int i = 0; i < 3; i++) {
        refused(&(struct change){.arch = "qwen2", .drop = needed[i]}, needed[i]);
        refused(&(struct change){.biases = 1, .drop = needed[i]}, needed[i]);
        refused(&(struct change){.biases = 1, .tensor = needed[i], .cols = 8}, "has shape (8), expected");
        refused(&(struct change){.biases = 1, .tensor = needed[i], .type = 1}, "has type F16, expected F32");
    }
    refused(&(struct change){.arch = "qwen3", .drop = "blk.1.attn_q_norm.weight"},
            "attn_q_norm.weight is mi");
    refused(&(struct change){.arch = "qwen3", .drop = "blk.0.attn_k_norm.weight"},
            "attn_k_norm.weight is mi");
    refused(&(struct change){.arch = "qwen3", .tensor = "blk.0.attn_k_norm.weight", .cols = 2 * HD},
            "has shape (32), expected (16)");
    refused(&(struct change){.arch = "internlm2", .biases = 1},
            "attn_q.bias is not part of architecture internlm2");
    refused(&(struct change){.arch = "qwen2", .out_bias = 1}, "attn_output.bias is not part");
    refused(&(struct change){.extra = "blk.1.attn_output.bias", .cols = D}, "attn_output.bias is not part");
    refused(&(struct change){.arch = "internlm2", .extra = "blk.0.ffn_up.bias", .cols = F},
            "; a bias is in every layer or in none");
    read_ok(&(struct change){.arch = "granite",
                             .keys = {{"granite.embedding_scale", 6, 12, NULL},
                                      {"granite.residual_scale", 6, 0.25, NULL},
                                      {"granite.logit_scale", 6, 8, NULL},
                                      {"granite.rope.scaling.finetuned", 7, 1, NULL}}},
            &c);
    assert_true(c.embed_scale == 12 && c.residual_scale == 0.25f && c.logit_scale == 0.125f &&
                c.attn[0].rope == 0);
    read_ok(&(struct change){.arch = "granite",
                             .keys = {{"granite.logit_scale", 6, 8, NULL},
                                      {"granite.rope.scaling.finetuned", 7, 0, NULL}}},
            &c);
    assert_true(c.embed_scale == 1 && c.residual_scale == 1 && c.attn[0].rope == -1);
    refused(&(struct change){.arch = "granite"}, "key granite.logit_scale is missing");
    refused(&(struct change){.arch = "minicpm", .keys = {{"minicpm.logit_scale", 6, 8, NULL}}},
            "key minicpm.embedding_scale is missing");
    refused(&(struct change){.arch = "granite",
                             .keys = {{"granite.logit_scale", 6, 8, NULL},
                                      {"granite.residual_scale", 6, 0, NULL}}},
            "granite.residual_scale is 0, expected above 0");
    refused(&(struct change){.arch = "smollm3", .keys = {{"smollm3.residual_scale", 6, 2, NULL}}},
            "smollm3.residual_scale is 2: Quire does not know");
    read_ok(&(struct change){.arch = "mistral3",
                             .keys = {{"mistral3.attention.temperature_scale", 6, 0.1, NULL},
                                      {"mistral3.rope.scaling.original_context_length", 4, 32, NULL}}},
            &c);
    assert_true(c.attn[0].temp_scale == 0.1f && c.attn[0].temp_step == 32 && c.ropes[0].attn_factor == 1);
    refused(&(struct change){.arch = "mistral3",
                             .keys = {{"mistral3.attention.temperature_scale", 6, -0.1, NULL}}},
            "mistral3.attention.temperature_scale is -0.1, expected above 0");
    refused(&(struct change){.arch = "mistral3",
                             .keys = {{"mistral3.attention.temperature_scale", 6, 0.1, NULL},
                                      {"mistral3.rope.scaling.original_context_length", 4, 0, NULL}}},
            "original_context_length");
    refused(&(struct change){.extra = "blk.0.attn_qkv.weight", .cols = D}, "attn_qkv.weight is not part of");
    refused(&(struct change){.drop = "blk.0.ffn_gate.weight"}, "blk.0.ffn_gate.weight is missing");
    refused(&(struct change){.arch = "phi3", .drop = "blk.1.ffn_gate.weight"},
            "blk.1.ffn_up.weight has shape (96, 64), expected (192, 64)");
    refused(&(struct change){.drop = "blk.0.attn_q.weight", .extra = "blk.0.attn_qkv.weight", .cols = D},
            "blk.0.attn_qkv.weight has shape (64), expected (128, 64)");
    refused(&(struct change){.extra = "rope_factors_long.weight", .cols = HD / 2},
            "tensor rope_factors_long.weight is there, and the other one of LongRoPE is not");
    refused(&(struct change){.arch = "gemma2"}, "key gemma2.attn_logit_softcapping is missing");
    refused(&(struct change){.arch = "gemma3"}, "post_attention_norm.weight is missing");
    refused(&(struct change){.arch = "olmo", .keys = {{"olmo.attention.layer_norm_epsilon", 6, 1e-5, NULL}}},
            "output_norm.weight is not part of architecture olmo");
    refused(&(struct change){.arch = "olmo",
                             .keys = {{"olmo.attention.layer_norm_epsilon", 6, 1e-5, NULL},
                                      {"olmo.attention.clamp_kqv", 6, -8, NULL}}},
            "key olmo.attention.clamp_kqv is -8, expected above 0");
    refused(&(struct change){.keys = {{"llama.attention.clamp_kqv", 6, 8, NULL}}},
            "key llama.attention.clamp_kqv is 8: Quire does not know");
    refused(&(struct change){.arch = "olmo2"}, "post_attention_norm.weight is missing");
    refused(&(struct change){.keys = {{"llama.rope.freq_base_swa", 6, 1e4, NULL}}},
            "llama.rope.freq_base_swa is 10000: Quire does not know");
    refused(&(struct change){.arch = "seed_oss"}, "blk.0.post_attention_norm.weight is missing");
    refused(&(struct change){.arch = "qwen2", .keys = {{"qwen2.expert_count", 4, 8, NULL}}},
            "key qwen2.expert_count is 8: experts are not supported yet in architecture qwen2");
    refused(&(struct change){.arch = "phi2"}, "key phi2.attention.layer_norm_epsilon is missing");
    refused(&(struct change){.arch = "phi2", .keys = {{"phi2.attention.layer_norm_epsilon", 6, 1e-5, NULL}}},
            "blk.0.ffn_norm.weight is not part of architecture phi2");
    refused(&(struct change){.arch = "command-r",
                             .drop = "blk.0.ffn_norm.weight",
                             .keys = {{"command-r.attention.layer_norm_epsilon", 6, 1e-5, NULL}}},
            "blk.1.ffn_norm.weight is not part of architecture command-r");
    refused(&(struct change){.arch = "stablelm",
                             .drop = "blk.0.ffn_norm.weight",
                             .keys = {{"stablelm.attention.layer_norm_epsilon", 6, 1e-5, NULL}}},
            "blk.1.ffn_norm.weight is not part of architecture stablelm");
    refused(&(struct change){.arch = "stablelm",
                             .extra = "blk.1.attn_q_norm.weight",
                             .cols = HD,
                             .keys = {{"stablelm.attention.layer_norm_epsilon", 6, 1e-5, NULL}}},
            "blk.1.attn_q_norm.weight is not part of architecture stablelm");
    refused(&(struct change){.arch = "stablelm",
                             .extra = "blk.0.attn_q_norm.weight",
                             .cols = HD,
                             .keys = {{"stablelm.attention.layer_norm_epsilon", 6, 1e-5, NULL}}},
            "blk.0.attn_q_norm.weight has shape (16), expected (4, 16)");
    refused(&(struct change){.arch = "nemotron",
                             .extra = "output_norm.bias",
                             .cols = D,
                             .keys = {{"nemotron.attention.layer_norm_epsilon", 6, 1e-5, NULL}}},
            "blk.0.attn_norm.bias is missing");
    refused(&(struct change){.arch = "nemotron",
                             .extra = "blk.1.ffn_up.bias",
                             .cols = F,
                             .keys = {{"nemotron.attention.layer_norm_epsilon", 6, 1e-5, NULL}}},
            "is not part of architecture nemotron");
    refused(&(struct change){.arch = "gptneox",
                             .keys = {{"gptneox.attention.layer_norm_epsilon", 6, 1e-5, NULL}}},
            "key gptneox.use_parallel_residual is missing");
    refused(&(struct change){.arch = "gptneox",
                             .keys = {{"gptneox.attention.layer_norm_epsilon", 6, 1e-5, NULL},
                                      {"gptneox.use_parallel_residual", 4, 1, NULL}}},
            "gptneox.use_parallel_residual");
    refused(&(struct change){.arch = "cohere2",
                             .keys = {{"cohere2.attention.layer_norm_epsilon", 6, 1e-5, NULL},
                                      {"cohere2.logit_scale", 6, 0, NULL}}},
            "cohere2.logit_scale is 0, expected above 0");
    refused(&(struct change){.extra = "output.bias", .cols = V},
            "output.bias is not part of architecture llama");
    refused(&(struct change){.arch = "gpt-oss"}, "key gpt-oss.attention.sliding_window is missing");
    refused(&(struct change){.arch = "llama4", .keys = {{"llama4.attention.sliding_window", 4, 0, NULL}}},
            "llama4.attention.sliding_window is 0: architecture llama4 without chunks");
    refused(&(struct change){.arch = "llama4",
                             .keys = {{"llama4.expert_count", 4, 16, NULL},
                                      {"llama4.expert_used_count", 4, 1, NULL}}},
            "key llama4.expert_feed_forward_length is missing");
    read_ok(&(struct change){.arch = "llama4"}, &c);
    assert_true(c.attn[0].chunked && c.attn[0].window == 8192 && c.attn[0].qk_norm == QK_NORM_UNIT &&
                c.attn[0].temp_scale == 0 && c.groups[0].chunked);
    struct change sinks = {.arch = "gpt-oss",
                           .biases = 1,
                           .out_bias = 1,
                           .keys = {{"gpt-oss.attention.sliding_window", 4, 128, NULL}}};
    refused(&sinks, "blk.0.attn_sinks.weight is missing, expected with shape (4)");
    sinks.extra = "blk.0.attn_sinks.weight", sinks.cols = 3;
    refused(&sinks, "blk.0.attn_sinks.weight has shape (3), expected (4)");
    sinks.keys[1] = (struct key){"gpt-oss.expert_count", 4, 8, NULL};
    sinks.keys[2] = (struct key){"gpt-oss.expert_used_count", 4, 2, NULL};
    refused(&sinks, "key gpt-oss.expert_feed_forward_length is missing");
    refused(&(struct change){.extra = "blk.1.attn_sinks.weight", .cols = H},
            "attn_sinks.weight is not part of architecture llama");
    static const char *const others[] = {"mpt", "rwkv7", "dbrx"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        char word[96];
        snprintf(word, sizeof word,
                 "architecture '%s' is not supported yet; supported: llama, qwen2, qwen2vl, qwen3vl, qwen3",
                 others[i]);
        refused(&(struct change){.arch = others[i]}, word);
    }
    refused(&(struct change){.arch = "kimi-linear"},
            "'kimi-linear' is not supported yet: Kimi delta attention is not computed; supported");
    refused(&(struct change){.arch = "mamba"},
            "'mamba' is not supported yet: Mamba 1's scan is not computed; supported");
}

TEST(test_window) {
    struct model_config c;
    read_ok(&(struct change){.keys = {{"llama.attention.sliding_window", 4, 32, NULL}}}, &c);
    assert_int_equal(c.attn[0].window, 32);
    read_ok(&(struct change){.keys = {{"llama.attention.sliding_window", 9, L, NULL}}}, &c);
    assert_int_equal(c.attn[0].window, K); // an array of the same for every layer
    refused(&(struct change){.keys = {{"llama.attention.sliding_window", 99, 0, NULL}}},
            "the same for every");
    refused(&(struct change){.keys = {{"llama.attention.sliding_window", 4, 4294967295.0, NULL}}},
            "llama.attention.sliding_window");
    refused(&(struct change){.keys = {{"llama.attention.sliding_window_pattern", 4, 6, NULL}}},
            "llama.attention.sliding_window_pattern");
    read_ok(&(struct change){.arch = "qwen2", .keys = {{"qwen2.attention.sliding_window", 4, 128, NULL}}},
            &c);
    assert_int_equal(c.attn[0].window, 0); // as long as the context: none
    refused(&(struct change){.arch = "qwen2", .keys = {{"qwen2.attention.sliding_window", 4, 127, NULL}}},
            "nothing says for which layers");
    refused(&(struct change){.arch = "qwen3", .keys = {{"qwen3.attention.sliding_window", 4, 64, NULL}}},
            "nothing says for which layers");
}

// Layers that differ in their sizes, and some that share keys and values.
TEST(test_differing) {
    struct change c = {.arch = "gemma4",
                       .keys = {{"gemma4.attention.sliding_window", 4, 64, NULL},
                                {"gemma4.attention.sliding_window_pattern", 97, L, NULL},
                                {"gemma4.attention.key_length", 4, 2 * HD, NULL},
                                {"gemma4.attention.key_length_swa", 4, HD, NULL}}};
    refused(&c, "blk.0.post_attention_norm.weight is missing");
    c.keys[4] = (struct key){"gemma4.attention.value_length_swa", 4, HD + 2, NULL};
    refused(&c, "heads of layers with a window have keys of 16, of which 16 rotate, and values of 18");
    c.keys[4] = (struct key){"gemma4.rope.dimension_count_swa", 4, HD - 1, NULL};
    refused(&c, "keys of 16, of which 15 rotate");
    c.keys[4] = (struct key){"gemma4.attention.shared_kv_layers", 4, 1, NULL};
    refused(&c, "shared_kv_layers is 1: layer 1 finds no layer before those");
    c.keys[4].number = L;
    refused(&c, "shared_kv_layers is 2: layer 0 finds no layer");
    refused(&(struct change){.arch = "gemma4", .keys = {c.keys[2]}},
            "key gemma4.attention.sliding_window is missing");
}

// Gemma 3n: streams, of which there are four and the first is worked on, and sparse gates.
TEST(test_streams) {
    struct change c = {.arch = "gemma3n",
                       .keys = {{"gemma3n.attention.sliding_window", 4, 64, NULL},
                                {"gemma3n.attention.key_length", 4, HD, NULL},
                                {"gemma3n.embedding_length_per_layer_input", 4, 4, NULL}}};
    struct key *more = &c.keys[4];
    refused(&c, "key gemma3n.activation_sparsity_scale is missing");
    c.keys[3] = (struct key){"gemma3n.activation_sparsity_scale", 96, L, NULL};
    refused(&c, "tensor per_layer_token_embd.weight is missing");
    *more = (struct key){"gemma3n.altup.num_inputs", 4, 3, NULL};
    refused(&c, "key gemma3n.altup.num_inputs is 3");
    *more = (struct key){"gemma3n.altup.active_idx", 4, 1, NULL};
    refused(&c, "key gemma3n.altup.active_idx is 1");
    *more = (struct key){"gemma3n.altup.correct_scale", 7, 0, NULL};
    refused(&c, "key gemma3n.altup.correct_scale is false: Quire does not know how");
    *more = (struct key){"gemma3n.altup.correct_scale", 7, 1, NULL};
    refused(&c, "tensor per_layer_token_embd.weight is missing");
    *more = (struct key){"gemma3n.attention.shared_kv_layers", 6, 0.5, NULL};
    refused(&c, "shared_kv_layers is 0.5, expected a number of layers");
    more->number = L + 1;
    refused(&c, "shared_kv_layers is 3, expected a number of layers");
    more->number = L;
    refused(&c, "shared_kv_layers is 2: layer 0 finds no layer");
    c.keys[4] = (struct key){0};
    c.keys[3].number = L - 1;
    refused(&c, "activation_sparsity_scale has 1 elements, expected one for each of 2 layers");
    c.keys[3] = (struct key){"gemma3n.activation_sparsity_scale", 95, L, NULL};
    refused(&c, "activation_sparsity_scale is 101 for layer 1: expected -100 to 100, or -inf");
    c.keys[3] = (struct key){"gemma3n.activation_sparsity_scale", 96, L, NULL};
    c.keys[2].number = 0;
    refused(&c, "embedding_length_per_layer_input is 0, expected at least 1");
}

// llama.cpp's own saver writes every key: where images would add to a layer, -1 for none.
TEST(test_neutral_keys) {
    struct model_config c;
    read_ok(&(struct change){.arch = "qwen3", .keys = {{"qwen3.deepstack_mapping", 98, -1, NULL}}}, &c);
    refused(&(struct change){.arch = "qwen3", .keys = {{"qwen3.deepstack_mapping", 98, 0, NULL}}},
            "deepstack_mapping");
    refused(&(struct change){.arch = "qwen3", .keys = {{"qwen3.deepstack_mapping", 97, 1, NULL}}},
            "deepstack_mapping");
}

// A window on some of the layers: two specs, two groups of pages with as many layers each as a page has room for.
TEST(test_pattern) {
    static const struct key patterns[] = {{"qwen3.attention.sliding_window_pattern", 4, 2, NULL},
                                          {"qwen3.attention.sliding_window_pattern", 97, L, NULL}};
    struct model_config c;
    for (int i = 0; i < 2; i++) {
        read_ok(&(struct change){.arch = "qwen3",
                                 .keys = {{"qwen3.attention.sliding_window", 4, 64, NULL}, patterns[i]}},
                &c);
        assert_true(c.num_attn == 2 && c.attn[1].index == 1 && c.num_groups == 2 && c.kv_layers == 1);
        assert_true(model_attn(&c, 0)->window == 64 && model_attn(&c, 1)->window == 0);
        assert_true(model_attn(&c, 1)->qk_norm && model_attn(&c, 1)->heads == H);
        assert_true(c.groups[0].kind == KV_WINDOW && c.groups[0].window == 64 && c.groups[0].num_layers == 1);
        assert_true(c.groups[1].kind == KV_FULL && c.groups[1].num_layers == 1);
        assert_true(c.layers[1].kv_group == 1 && c.layers[1].kv_layer == 0);
    }
    // A window as long as the context is none, and of one layer none has it.
    static const int windows[] = {128, 64}, steps[] = {2, 1};
    for (int i = 0; i < 2; i++) {
        read_ok(&(struct change){.keys = {{"llama.attention.sliding_window", 4, windows[i], NULL},
                                          {"llama.attention.sliding_window_pattern", 4, steps[i], NULL}}},
                &c);
        assert_true(c.num_attn == 1 && c.num_groups == 1 && c.attn[0].window == 0);
    }
    read_ok(&(struct change){.keys = {{"llama.attention.sliding_window", 4, 64, NULL}}}, &c);
    assert_true(c.num_groups == 1 && c.groups[0].kind == KV_WINDOW && c.kv_layers == L);
    refused(&(struct change){.keys = {{"llama.attention.sliding_window", 4, 64, NULL},
                                      {"llama.attention.sliding_window_pattern", 97, L + 1, NULL}}},
            "llama.attention.sliding_window_pattern has 3 elements");
    refused(&(struct change){.keys = {{"llama.attention.sliding_window", 4, 64, NULL},
                                      {"llama.attention.sliding_window_pattern", 99, 0, NULL}}},
            "llama.attention.sliding_window_pattern is 2 for layer 0");
}

TEST(test_rope) {
    struct model_config c;
    read_ok(&(struct change){.keys = {{"llama.rope.scaling.type", 8, 0, "none"},
                                      {"llama.rope.scaling.factor", 6, 4, NULL}}},
            &c);
    assert_true(c.ropes[0].scaling == ROPE_NONE && c.ropes[0].factor == 1);
    read_ok(&(struct change){.keys = {{"llama.rope.scaling.type", 8, 0, "linear"},
                                      {"llama.rope.scaling.factor", 6, 4, NULL}}},
            &c);
    assert_true(c.ropes[0].scaling == ROPE_LINEAR && c.ropes[0].factor == 4 && c.ropes[0].attn_factor == 1);
    read_ok(&(struct change){.keys = {{"llama.rope.scale_linear", 6, 2, NULL}}}, &c);
    assert_true(c.ropes[0].scaling == ROPE_LINEAR && c.ropes[0].factor == 2);
    read_ok(&(struct change){.keys = {{"llama.rope.scaling.type", 8, 0, "yarn"},
                                      {"llama.rope.scaling.factor", 6, 4, NULL},
                                      {"llama.rope.scaling.original_context_length", 4, 32, NULL},
                                      {"llama.rope.scaling.finetuned", 7, 1, NULL}}},
            &c);
    assert_true(c.ropes[0].scaling == ROPE_YARN && c.ropes[0].factor == 4 &&
                c.ropes[0].original_context == 32);
    assert_true(c.ropes[0].beta_fast == 32 && c.ropes[0].beta_slow == 1);
    assert_true(fabsf(c.ropes[0].attn_factor - (0.1f * logf(4) + 1)) < 1e-6f);
    read_ok(&(struct change){.keys = {{"llama.rope.scaling.factor", 6, 0.5, NULL}}}, &c);
    assert_true(c.ropes[0].scaling == ROPE_LINEAR && c.ropes[0].factor == 0.5f); // no type means linear
    read_ok(&(struct change){.keys = {{"llama.rope.scaling.attn_factor", 6, 1.5, NULL}}}, &c);
    assert_true(c.ropes[0].scaling == ROPE_NONE && c.ropes[0].attn_factor == 1.5f);
    struct change three = {.keys = {{"llama.rope.scaling.type", 8, 0, "llama3"},
                                    {"llama.rope.scaling.factor", 6, 8, NULL},
                                    {"llama.rope.scaling.original_context_length", 4, 32, NULL},
                                    {"llama.rope.scaling.low_freq_factor", 6, 2, NULL},
                                    {"llama.rope.scaling.high_freq_factor", 6, 3, NULL}}};
    read_ok(&three, &c);
    assert_true(c.ropes[0].scaling == ROPE_LLAMA3 && c.ropes[0].factor == 8 &&
                c.ropes[0].original_context == 32);
    assert_true(c.ropes[0].low_freq == 2 && c.ropes[0].high_freq == 3 && c.ropes[0].attn_factor == 1);
    three.extra = "rope_freqs.weight", three.cols = HD / 2, three.factor = 8;
    refused(&three, "expected one of them");
    three.extra = NULL, three.keys[3].number = 3;
    refused(&three, "high_freq_factor is 3, expected above low_freq_factor, 3");
    three.keys[0].text = "yarn";
    refused(&three, "low_freq_factor is there");
    three.keys[0].text = "llama3", three.keys[3] = (struct key){0};
    read_ok(&three, &c);
    assert_true(c.ropes[0].low_freq == 1 && c.ropes[0].high_freq == 4);
    three.keys[2] = (struct key){0};
    refused(&three, "original_context_length");
    three.keys[1] = (struct key){0};
    refused(&three, "llama.rope.scaling.factor is missing");
    struct err err = {0};
    unsigned char *file;
    struct model_file *g =
        parse(&(struct change){.extra = "rope_freqs.weight", .cols = HD / 2, .factor = 8}, &file);
    if (model_config_read(g, &c, &err) || weights_check(&c, g, &err))
        fail_msg("%s", err.msg);
    assert_true(c.ropes[0].freq_factors && c.ropes[0].freq_factors[0] == 8 &&
                c.ropes[0].freq_factors[HD / 2 - 1] == 8);
    assert_int_equal(weights_num_params(g),
                     2 * (2 * D + (H + 2 * K) * HD * D + D * H * HD + 3 * F * D) + V * D + D);
    model_file_close(g);
    free(file);
    refused(&(struct change){.extra = "rope_freqs.weight", .cols = HD / 2, .factor = 0}, "rope_freqs.weight");
    refused(&(struct change){.extra = "rope_freqs.weight", .cols = HD / 2, .factor = NAN},
            "rope_freqs.weight");
    refused(&(struct change){.extra = "rope_freqs.weight", .cols = HD, .factor = 1}, "rope_freqs.weight");
    refused(&(struct change){.keys = {{"llama.rope.scaling.type", 8, 0, "longrope"}}}, "'longrope'");
    refused(&(struct change){.keys = {{"llama.rope.scaling.type", 8, 0, "linear"},
                                      {"llama.rope.scaling.factor", 6, -1, NULL}}},
            "llama.rope.scaling.factor");
    refused(&(struct change){.keys = {{"llama.rope.freq_base", 6, 0, NULL}}}, "llama.rope.freq_base");
    refused(&(struct change){.keys = {{"llama.rope.freq_base", 6, INFINITY, NULL}}}, "llama.rope.freq_base");
    refused(&(struct change){.keys = {{"llama.rope.dimension_count", 4, 7, NULL}}},
            "llama.rope.dimension_count");
    refused(&(struct change){.keys = {{"llama.rope.dimension_count", 4, 18, NULL}}},
            "llama.rope.dimension_count");
    refused(&(struct change){.keys = {{"llama.rope.scaling.yarn_ext_factor", 6, 2, NULL}}},
            "yarn_ext_factor");
    refused(&(struct change){.keys = {{"llama.rope.scaling.short_factor", 6, 2, NULL}}}, "short_factor");
}

// (11) (12)
TEST(test_bad_keys) {
    static const char *const required[] = {"general.architecture",
                                           "llama.block_count",
                                           "llama.context_length",
                                           "llama.embedding_length",
                                           "llama.feed_forward_length",
                                           "llama.attention.head_count",
                                           "llama.attention.layer_norm_rms_epsilon",
                                           "tokenizer.ggml.tokens"};
    for (size_t i = 0; i < sizeof required / sizeof required[0]; i++)
        refused(&(struct change){.drop = required[i]}, required[i]);
    static const struct {
        struct key key;
        const char *word;
    } cases[] = {
        {{"general.architecture", 8, 0, "mpt"}, "architecture 'mpt'"},
        {{"general.architecture", 4, 1, NULL}, "general.architecture"},
        {{"general.type", 8, 0, "adapter"}, "'adapter'"},
        {{"split.count", 4, 3, NULL}, "split.count"},
        {{"split.count", 4, 1025, NULL}, "split.count"},
        {{"split.no", 4, 1024, NULL}, "split.no"},
        {{"llama.expert_count", 4, 8, NULL}, "key llama.expert_used_count is missing"},
        {{"llama.expert_count", 4, 1025, NULL}, "llama.expert_count"},
        {{"llama.block_count", 4, 0, NULL}, "llama.block_count"},
        {{"llama.block_count", 4, 1025, NULL}, "llama.block_count"},
        {{"llama.block_count", 8, 0, "2"}, "llama.block_count"},
        {{"llama.block_count", 6, 2, NULL}, "llama.block_count"},
        {{"llama.block_count", 4, 3, NULL}, "blk.2."},
        {{"llama.block_count", 4, 1, NULL}, "blk.1."},
        {{"llama.context_length", 4, 0, NULL}, "llama.context_length"},
        {{"llama.context_length", 4, (1 << 24) + 1, NULL}, "llama.context_length"},
        {{"llama.embedding_length", 4, 0, NULL}, "llama.embedding_length"},
        {{"llama.embedding_length", 4, 65, NULL}, "llama.embedding_length"},
        {{"llama.embedding_length", 4, 4294967295.0, NULL}, "llama.embedding_length"},
        {{"llama.feed_forward_length", 4, 0, NULL}, "llama.feed_forward_length"},
        {{"llama.feed_forward_length", 9, 3, NULL}, "llama.feed_forward_length"},
        {{"llama.attention.head_count", 4, 0, NULL}, "llama.attention.head_count"},
        {{"llama.attention.head_count_kv", 4, 0, NULL}, "llama.attention.head_count_kv"},
        {{"llama.attention.head_count_kv", 4, 3, NULL}, "llama.attention.head_count_kv"},
        {{"llama.attention.head_count_kv", 4, 8, NULL}, "llama.attention.head_count_kv"},
        {{"llama.attention.head_count_kv", 99, 0, NULL}, "the same for every layer"},
        {{"llama.attention.key_length", 4, 0, NULL}, "llama.attention.key_length"},
        {{"llama.attention.key_length", 4, 1 << 20, NULL}, "llama.attention.key_length"},
        {{"llama.attention.value_length", 4, 8, NULL}, "llama.attention.value_length"},
        {{"llama.attention.layer_norm_rms_epsilon", 6, 0, NULL}, "layer_norm_rms_epsilon"},
        {{"llama.attention.layer_norm_rms_epsilon", 6, NAN, NULL}, "layer_norm_rms_epsilon"},
        {{"llama.attention.layer_norm_rms_epsilon", 6, INFINITY, NULL}, "layer_norm_rms_epsilon"},
        {{"llama.attention.layer_norm_rms_epsilon", 6, -1, NULL}, "layer_norm_rms_epsilon"},
        {{"llama.attention.scale", 6, NAN, NULL}, "llama.attention.scale"},
        {{"llama.attention.scale", 6, -1, NULL}, "llama.attention.scale"},
        {{"llama.attention.scale", 6, 1e-40, NULL}, "llama.attention.scale is 9.99995e-41"}, // subnormal
        {{"llama.attention.scale", 6, 1.1e-38, NULL}, "llama.attention.scale"}, // only times log2 e it is not
        {{"llama.attention.scale", 6, 1e30, NULL}, "llama.attention.scale"},
        {{"llama.attention.clamp_kqv", 6, 8, NULL}, "llama.attention.clamp_kqv"},
        {{"llama.attention.max_alibi_bias", 6, 8, NULL}, "llama.attention.max_alibi_bias"},
        {{"llama.attn_logit_softcapping", 6, 50, NULL}, "llama.attn_logit_softcapping"},
        {{"llama.attention.layer_norm_epsilon", 6, 1e-5, NULL}, "llama.attention.layer_norm_epsilon"},
        {{"llama.attention.value_residual_mix_lora_rank", 4, 4, NULL}, "value_residual_mix"},
        {{"llama.attention.temperature_scale", 6, 0.1, NULL}, "temperature_scale"},
        {{"llama.rope.dimension_sections", 9, 3, NULL}, "llama.rope.dimension_sections"},
        {{"llama.rope.freq_base_swa", 6, 10000, NULL}, "llama.rope.freq_base_swa"},
        {{"llama.rope.scaling.attn_factor", 6, 0, NULL}, "llama.rope.scaling.attn_factor"},
        {{"llama.rope.scaling.yarn_log_multiplier", 6, 0.1, NULL}, "yarn_log_multiplier"},
        {{"llama.rope.scaling.low_freq_factor", 6, 1, NULL}, "low_freq_factor"},
        {{"llama.interleave_moe_layer_step", 4, 2, NULL}, "llama.interleave_moe_layer_step"},
        {{"llama.leading_dense_block_count", 4, 1, NULL}, "llama.leading_dense_block_count"},
        {{"llama.pooling_type", 4, 5, NULL}, "llama.pooling_type"},
        {{"llama.residual_scale", 6, 0.2, NULL}, "llama.residual_scale"},
        {{"llama.residual_multiplier", 6, 0.2, NULL}, "llama.residual_multiplier"},
        {{"llama.hidden_activation", 8, 0, "gelu"}, "llama.hidden_activation"},
        {{"llama.use_parallel_residual", 7, 1, NULL}, "llama.use_parallel_residual"},
        {{"llama.swin_norm", 7, 1, NULL}, "llama.swin_norm"},
        {{"llama.attention.unheard_of", 4, 1, NULL}, "llama.attention.unheard_of"},
        {{"llama.final_logit_softcapping", 6, 30, NULL}, "final_logit_softcapping"},
        {{"llama.logit_scale", 6, 0.5, NULL}, "llama.logit_scale"},
        {{"llama.embedding_scale", 6, 12, NULL}, "llama.embedding_scale"},
        {{"llama.vocab_size", 4, V + 1, NULL}, "llama.vocab_size"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refused(&(struct change){.keys = {cases[i].key}}, cases[i].word);
    refused(&(struct change){.keys = {{"llama.attention.causal", 7, 0, NULL},
                                      {"llama.attention.sliding_window", 4, 4, NULL}}},
            "llama.attention.causal");
    refused(&(struct change){.keys = {{"split.count", 4, 1, NULL}, {"split.no", 4, 1, NULL}}}, "split.no");
    refused(&(struct change){.tokens = V + 1}, "token_embd.weight");
    refused(&(struct change){.keys = {{"tokenizer.ggml.model", 8, 0, "no_vocab"}}},
            "vocab_size is 0, expected 1 to");
    refused(&(struct change){.keys = {{"tokenizer.ggml.model", 8, 0, "no_vocab"},
                                      {"llama.vocab_size", 4, V + 1, NULL}}},
            "token_embd.weight");
}

// (14)
TEST(test_bad_tensors) {
    static const char *const names[] = {
        "token_embd.weight",     "output_norm.weight",  "blk.0.attn_norm.weight",   "blk.0.attn_q.weight",
        "blk.1.attn_k.weight",   "blk.0.attn_v.weight", "blk.1.attn_output.weight", "blk.0.ffn_norm.weight",
        "blk.1.ffn_gate.weight", "blk.0.ffn_up.weight", "blk.1.ffn_down.weight"};
    char word[96];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(word, sizeof word, "tensor %s is missing", names[i]);
        refused(&(struct change){.drop = names[i]}, word);
        snprintf(word, sizeof word, "tensor %s has ", names[i]);
        refused(&(struct change){.tensor = names[i], .cols = 32}, word);
        refused(&(struct change){.tensor = names[i], .type = 26}, "has type I32");
    }
    refused(&(struct change){.tensor = "blk.0.attn_q.weight", .rows = K * HD},
            "has shape (32, 64), expected (64, 64)");
    refused(&(struct change){.tensor = "blk.0.ffn_gate.weight", .type = 12, .cols = 256, .rows = 24},
            "ffn_gate");
    refused(&(struct change){.tensor = "output_norm.weight", .type = 1}, "expected F32");
    refused(&(struct change){.untied = 1, .tensor = "output.weight", .rows = V + 1}, "output.weight");
    refused(&(struct change){.extra = "blk.0.attn_q.bias", .cols = D}, "tensor blk.0.attn_k.bias is missing");
    refused(&(struct change){.extra = "blk.0.ffn_gate_inp.weight", .cols = D}, "ffn_gate_inp");
    refused(&(struct change){.extra = "blk.0.attn_q_norm.weight", .cols = D}, "attn_q_norm");
    refused(&(struct change){.extra = "blk.00.attn_q.weight", .cols = D}, "blk.00.");
    refused(&(struct change){.extra = "attn_norm.weight", .cols = D}, "attn_norm.weight");
}

int main(void) { return run_all_tests(NULL, NULL); }
