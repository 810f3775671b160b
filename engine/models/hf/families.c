// See families.h.
#include "families.h"

#include "families_shared.h"

#include <string.h>

static const struct hf_key all_keys[] = {
    {"hidden_size", "embedding_length", HF_INT},
    {"intermediate_size", "feed_forward_length", HF_INT},
    {"num_attention_heads", "attention.head_count", HF_INT},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon", HF_FLOAT},
    {"vocab_size", "vocab_size", HF_INT},
    // read one by one
    {"num_hidden_layers", NULL, HF_INT},
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
    // without effect: the tensors show whether there are biases; the rest is for training or for other code
    {"quantization_config", NULL, HF_INT},
    {"attention_bias", NULL, HF_INT},
    {"attention_dropout", NULL, HF_INT},
    {"attention_probs_dropout_prob", NULL, HF_INT},
    {"output_attentions", NULL, HF_INT},
    {"attn_implementation", NULL, HF_INT},
    {"_attn_implementation", NULL, HF_INT},
    {"_flash_attn_2_enabled", NULL, HF_INT},
    {"_attn_implementation_autoset", NULL, HF_INT},
    {"output_router_logits", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static bool same_text(struct text_view s, const char *text) {
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

const struct hf_family *hf_family_at(int i) {
    static const struct hf_family *const kinds[] = {hf_dense_families, hf_expert_families, hf_state_families,
                                                    hf_encoder_families};
    for (int k = 0; k < COUNT(kinds); k++)
        for (const struct hf_family *f = kinds[k]; f->model_type; f++)
            if (i-- == 0)
                return f;
    return NULL;
}

const struct hf_family *hf_family_find(struct text_view model_type) {
    const struct hf_family *f;
    for (int i = 0; (f = hf_family_at(i)) && !same_text(model_type, f->model_type);)
        i++;
    return f;
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
    for (const struct hf_alias *a = f->aliases; a && a->key; a++)
        if (same_text(key, a->theirs))
            return hf_key_find(f, (struct text_view){a->key, strlen(a->key)});
    for (int i = 0; (k = hf_key_at(f, i)) && !same_text(key, k->theirs);)
        i++;
    return k;
}

bool hf_key_may_be_null(const char *key) {
    static const char *const keys[] = {
        // off
        "clip_qkv", "attn_logit_softcapping", "final_logit_softcapping", "sliding_window", "q_lora_rank",
        "n_group", "topk_group", "n_shared_experts", "num_nextn_predict_layers", "partial_rotary_factor",
        "alpha",
        // from others
        "head_dim", "num_key_value_heads", "num_kv_heads", "num_global_key_value_heads", "v_head_dim",
        "mamba_d_ssm", "moe_latent_size", "prefix_dense_intermediate_size", "moe_intermediate_size",
        "intermediate_size", "num_experts", "top_k_experts", "original_max_position_embeddings", "factor",
        "attention_factor", "mscale", "mscale_all_dim", "beta_fast", "beta_slow"};
    int i = 0;
    while (i < COUNT(keys) && strcmp(keys[i], key) != 0)
        i++;
    return i < COUNT(keys);
}

bool hf_key_is_suspect(struct text_view key) {
    static const char *const parts[] = {"rope",
                                        "rotary",
                                        "window",
                                        "softcap",
                                        "multiplier",
                                        "scal",
                                        "norm",
                                        "bias",
                                        "expert",
                                        "moe",
                                        "attn",
                                        "attention",
                                        "resid",
                                        "mup",
                                        "clip",
                                        "qk_",
                                        "logit",
                                        "alibi",
                                        "ssm",
                                        "mamba",
                                        "conv",
                                        "linear",
                                        "_act",
                                        "activation",
                                        "parallel",
                                        "layer_types",
                                        "sink",
                                        "nextn",
                                        "quant",
                                        "lora",
                                        "alpha",
                                        "temperature",
                                        "per_layer_config",
                                        "layer_type",
                                        "time_step_limit"};
    for (int i = 0; i < COUNT(parts); i++)
        for (size_t n = strlen(parts[i]), at = 0; at + n <= key.len; at++)
            if (memcmp(key.data + at, parts[i], n) == 0)
                return true;
    return false;
}
