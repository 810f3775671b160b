// config.json, whose keys are absent, null or have a value, as transformers takes each (configuration_*.py).
#include "folder_fixture.h"

#include "models/hf/config.h"

#include <math.h>

#define C(type, more) "{\"model_type\": \"" type "\", " SIZES more "}"

static enum status read_config(const char *text, struct hf_keys *keys, struct err *err) {
    struct jdoc j;
    struct hf_config c;
    char *copy = malloc(strlen(text) + 1);
    assert_non_null(copy);
    enum status st = jdoc_parse(&j, "config.json", strcpy(copy, text), strlen(text), err);
    st = st ? st : hf_config_read(&j, NULL, NULL, keys, &c, err);
    jdoc_free(&j);
    return st;
}

static double number(const struct meta *m) {
    char text[32];
    const char *said = meta_text(m, text, sizeof text);
    return strcmp(said, "true") == 0 ? 1 : strcmp(said, "false") == 0 ? 0 : strtod(said, NULL);
}

// Null of a key without which nothing is computed, and keys whose absence means what Quire does not compute.
TEST(test_refused) {
    static const struct {
        const char *config, *word;
    } cases[] = {
        {C("llama", ", \"rope_theta\": null"),
         "key rope_theta at byte 226 is null, expected a finite number"},
        {C("gemma2", ", \"query_pre_attn_scalar\": null"), "query_pre_attn_scalar at byte"},
        {C("gemma3_text", ", \"rope_local_base_freq\": null"), "rope_local_base_freq at byte"},
        {C("gemma3_text", ", \"sliding_window\": null"), "sliding_window at byte"},
        {C("gemma3_text", ", \"sliding_window_pattern\": null"), "sliding_window_pattern at byte"},
        {C("granite", ", \"logits_scaling\": null"), "logits_scaling at byte"},
        {C("stablelm", ", \"layer_norm_eps\": null"), "layer_norm_eps at byte"},
        {C("roberta", ", \"pad_token_id\": null"), "pad_token_id at byte"},
        {C("falcon", ", \"alibi\": true"), "key alibi at byte"},
        {C("falcon", ", \"parallel_attn\": false"), "key parallel_attn at byte"},
        {C("bailing_moe", ", \"norm_head\": true"), "key norm_head at byte"},
        {C("bailing_moe_v2", ", \"norm_topk_prob\": false"), "norm_topk_prob at byte"},
        {C("cohere2_moe", ", \"num_shared_experts\": 1, \"shared_expert_combination_strategy\": \"sum\""),
         "is sum, expected average"},
        {C("smallthinker", ", \"moe_enable_early_router\": false"), "moe_enable_early_router at byte"},
        {C("nemotron-nas", ", \"block_configs\": [{\"attention\": {\"n_heads_in_group\": 1}, \"ffn\": "
                           "{\"ffn_mult\": 1, \"replace_with_linear\": true}}]"),
         "key replace_with_linear of block_configs at byte"},
        {C("nemotron-nas", ", \"block_configs\": [{\"attention\": {\"n_heads_in_group\": null}, \"ffn\": "
                           "{\"no_op\": true}}]"),
         "a number that divides num_attention_heads, or no_op"},
        {C("nemotron-nas",
           ", \"block_configs\": [{\"attention\": {\"no_op\": true}, \"ffn\": {\"ffn_mult\": null}}]"),
         "expected a positive number, or no_op"},
        {C("llama4_text", ", \"attention_chunk_size\": null"), "attention_chunk_size at byte"},
        {C("llama4_text", ", \"num_local_experts\": 2, \"use_qk_norm\": null"), "use_qk_norm at byte"},
        {C("glm4_moe", ", \"routed_scaling_factor\": null"), "routed_scaling_factor at byte"},
        {C("llama", ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, \"rope_theta\": null}"),
         "rope_theta at byte"},
        {C("falcon_h1", ", \"mamba_n_heads\": 1, \"mamba_n_groups\": 1, \"mamba_d_state\": 8, "
                        "\"time_step_limit\": [0.1, {\"__float__\": \"Infinity\"}]"),
         "time_step_limit at byte"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hf_keys keys = {0};
        struct err err = {0};
        if (read_config(cases[i].config, &keys, &err) == STATUS_OK || !strstr(err.msg, cases[i].word))
            fail_msg("%s: expected '%s', got '%s'", cases[i].config, cases[i].word, err.msg);
        hf_keys_free(&keys);
    }
}

// For null no default of the family is taken: it is off, false, or follows from other keys.
TEST(test_read) {
    static const struct {
        const char *config, *key;
        double value; // NAN: the key is not there
    } cases[] = {
        {C("gemma2", ""), "gemma2.final_logit_softcapping", 30},
        {C("gemma2", ", \"final_logit_softcapping\": null"), "gemma2.final_logit_softcapping", 0},
        {C("gemma2", ", \"final_logit_softcapping\": null"), "gemma2.attn_logit_softcapping", 50},
        {C("gemma2", ", \"attn_logit_softcapping\": null"), "gemma2.attn_logit_softcapping", 0},
        {C("gemma3n_text", ", \"final_logit_softcapping\": null"), "gemma3n.final_logit_softcapping", 0},
        {C("falcon", ", \"num_kv_heads\": 2"), "falcon.attention.head_count_kv", 1},
        {C("falcon", ", \"num_kv_heads\": 2, \"new_decoder_architecture\": true"),
         "falcon.attention.head_count_kv", 2},
        {C("olmo", ", \"clip_qkv\": null"), "olmo.attention.clamp_kqv", 0},
        {C("qwen3", ", \"head_dim\": null"), "qwen3.attention.key_length", 4},
        {C("mistral", ""), "llama.attention.sliding_window", 4096},
        {C("mistral", ", \"sliding_window\": null"), "llama.attention.sliding_window", NAN},
        {C("exaone4", ", \"sliding_window\": null"), "exaone4.attention.sliding_window", NAN},
        {C("qwen2", ", \"sliding_window\": 8, \"max_window_layers\": 0"), "qwen2.attention.sliding_window",
         NAN},
        {C("qwen2", ", \"sliding_window\": 8, \"max_window_layers\": 0, \"use_sliding_window\": true"),
         "qwen2.attention.sliding_window", 8},
        {C("gpt_neox", ""), "gptneox.use_parallel_residual", 1},
        {C("gpt_neox", ", \"use_parallel_residual\": null"), "gptneox.use_parallel_residual", 0},
        {C("phi", ", \"partial_rotary_factor\": null"), "phi2.rope.dimension_count", NAN},
        {C("mixtral", ""), "llama.rope.freq_base", 1e6},
        // what transformers takes where config.json is silent
        {C("cohere", ""), "command-r.rope.freq_base", 5e5},
        {C("gpt_oss", ""), "gpt-oss.rope.scaling.factor", 32},
        {C("ministral3", ""), "mistral3.rope.scaling.factor", 16},
        {C("ministral3", ", \"rope_parameters\": {\"rope_theta\": 50}"), "mistral3.rope.scaling.factor", NAN},
        {C("qwen3_moe", ""), "qwen3moe.expert_weights_norm", 0},
        {C("qwen3_moe", ", \"mlp_only_layers\": null"), "quire.expert_layers", NAN},
        {C("deepseek_v2",
           ", \"n_group\": 4, \"qk_nope_head_dim\": 4, \"qk_rope_head_dim\": 4, \"v_head_dim\": 4"),
         "deepseek2.expert_group_count", NAN},
        {C("qwen3_moe", ", \"num_local_experts\": 7"), "qwen3moe.expert_count", 7},
        {C("bailing_moe", ", \"num_experts\": 7"), "bailingmoe.expert_count", 7},
        // as inclusionAI/Ling-mini-2.0 has it, and tencent/Hy3-preview
        {C("bailing_moe",
           ", \"architectures\": [\"BailingMoeV2ForCausalLM\"], \"score_function\": \"sigmoid\", "
           "\"n_group\": 4, \"norm_head\": false, \"router_dtype\": \"fp32\", "
           "\"partial_rotary_factor\": 0.5, \"rotary_dim\": 64"),
         "bailingmoe2.rope.dimension_count", 64},
        {C("apertus",
           ", \"qk_norm\": true, \"post_norm\": false, \"mlp_bias\": false, \"hidden_act\": \"xielu\""),
         "apertus.rope.scaling.factor", 8},
        {C("hy_v3", ", \"route_norm\": true, \"qk_norm\": true, \"moe_router_use_sigmoid\": true, "
                    "\"moe_router_enable_expert_bias\": true, \"expert_hidden_dim\": 1536"),
         "hy_v3.leading_dense_block_count", 1},
        // as MiniMaxAI/MiniMax-M2, Qwen/Qwen2.5-VL-7B-Instruct and HuggingFaceTB/SmolVLM-Instruct have it
        {C("minimax_m2", ", \"rotary_dim\": 64, \"shared_moe_mode\": \"sigmoid\""),
         "minimax-m2.rope.dimension_count", 64},
        {C("minimax_m2", ""), "minimax-m2.rope.dimension_count", NAN},
        {C("qwen2_5_vl", ", \"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": [1, 1, 2]}"),
         "qwen2vl.rope.freq_base", 1e6},
        {C("llama",
           ", \"_flash_attn_2_enabled\": true, \"rope_interleaved\": false, \"qk_layer_norms\": false"),
         "llama.rope.freq_base", 1e4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hf_keys keys = {0};
        struct err err = {0};
        double v = NAN;
        if (read_config(cases[i].config, &keys, &err) != STATUS_OK)
            fail_msg("%s: %s", cases[i].config, err.msg);
        for (size_t k = 0; k < keys.num; k++)
            if (strcmp(keys.items[k].key.data, cases[i].key) == 0)
                v = number(&keys.items[k]);
        if (isnan(cases[i].value) ? !isnan(v) : v != cases[i].value)
            fail_msg("%s: %s is %g, expected %g", cases[i].config, cases[i].key, v, cases[i].value);
        hf_keys_free(&keys);
    }
}

int main(void) { return run_all_tests(NULL, NULL); }
