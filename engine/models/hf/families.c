// See families.h. Names are those of transformers 4.57 and of the files on huggingface.co.
#include "families.h"

#include <stdio.h>
#include <string.h>

// ---- tensors

static const struct hf_name whole_names[] = {
    {"model.embed_tokens", "token_embd", ROWS_SAME},
    {"model.norm", "output_norm", ROWS_SAME},
    {"lm_head", "output", ROWS_SAME},
    {NULL, NULL, ROWS_SAME},
};

static const struct hf_name layer_names[] = {
    {"input_layernorm", "attn_norm", ROWS_SAME},
    {"post_attention_layernorm", "ffn_norm", ROWS_SAME},
    {"self_attn.q_proj", "attn_q", ROWS_Q},
    {"self_attn.k_proj", "attn_k", ROWS_K},
    {"self_attn.v_proj", "attn_v", ROWS_SAME},
    {"self_attn.qkv_proj", "attn_qkv", ROWS_SAME},
    {"self_attn.o_proj", "attn_output", ROWS_SAME},
    {"self_attn.q_norm", "attn_q_norm", ROWS_SAME},
    {"self_attn.k_norm", "attn_k_norm", ROWS_SAME},
    {"mlp.gate_proj", "ffn_gate", ROWS_SAME},
    {"mlp.up_proj", "ffn_up", ROWS_SAME},
    {"mlp.gate_up_proj", "ffn_up", ROWS_SAME},
    {"mlp.down_proj", "ffn_down", ROWS_SAME},
    {"self_attn.rotary_emb.inv_freq", "", ROWS_SAME}, // left behind by old versions; computed anew
    {NULL, NULL, ROWS_SAME},
};

static const struct hf_name internlm2_whole[] = {
    {"model.tok_embeddings", "token_embd", ROWS_SAME},
    {"output", "output", ROWS_SAME},
    {NULL, NULL, ROWS_SAME},
};
static const struct hf_name internlm2_names[] = {
    {"attention_norm", "attn_norm", ROWS_SAME},   {"ffn_norm", "ffn_norm", ROWS_SAME},
    {"attention.wqkv", "attn_q", ROWS_GROUPED_Q}, {"attention.wqkv", "attn_k", ROWS_GROUPED_K},
    {"attention.wqkv", "attn_v", ROWS_GROUPED_V}, {"attention.wo", "attn_output", ROWS_SAME},
    {"feed_forward.w1", "ffn_gate", ROWS_SAME},   {"feed_forward.w3", "ffn_up", ROWS_SAME},
    {"feed_forward.w2", "ffn_down", ROWS_SAME},   {NULL, NULL, ROWS_SAME},
};
static const struct hf_name seed_oss_names[] = {
    {"post_attention_layernorm", "post_attention_norm", ROWS_SAME},
    {NULL, NULL, ROWS_SAME},
};
static const struct hf_name hunyuan_names[] = {
    {"self_attn.query_layernorm", "attn_q_norm", ROWS_SAME},
    {"self_attn.key_layernorm", "attn_k_norm", ROWS_SAME},
    {NULL, NULL, ROWS_SAME},
};
static const struct hf_name post_norm_names[] = {
    // Gemma 2 and 3, OLMo, EXAONE
    {"post_attention_layernorm", "post_attention_norm", ROWS_SAME},
    {"pre_feedforward_layernorm", "ffn_norm", ROWS_SAME},
    {"post_feedforward_layernorm", "post_ffw_norm", ROWS_SAME},
    {NULL, NULL, ROWS_SAME},
};
static const struct hf_name expert_names[] = {
    // Qwen
    {"mlp.gate", "ffn_gate_inp", ROWS_SAME},
    {"mlp.experts.#.gate_proj", "ffn_gate_exps", ROWS_SAME},
    {"mlp.experts.#.up_proj", "ffn_up_exps", ROWS_SAME},
    {"mlp.experts.#.down_proj", "ffn_down_exps", ROWS_SAME},
    {NULL, NULL, ROWS_SAME},
};
static const struct hf_name mixtral_names[] = {
    {"block_sparse_moe.gate", "ffn_gate_inp", ROWS_SAME},
    {"block_sparse_moe.experts.#.w1", "ffn_gate_exps", ROWS_SAME},
    {"block_sparse_moe.experts.#.w3", "ffn_up_exps", ROWS_SAME},
    {"block_sparse_moe.experts.#.w2", "ffn_down_exps", ROWS_SAME},
    {NULL, NULL, ROWS_SAME},
};
static const struct hf_name glm4_names[] = {
    {"post_self_attn_layernorm", "post_attention_norm", ROWS_SAME},
    {"post_mlp_layernorm", "post_ffw_norm", ROWS_SAME},
    {NULL, NULL, ROWS_SAME},
};

static const struct hf_name gpt_oss_names[] = {
    {"post_attention_layernorm", "post_attention_norm", ROWS_SAME},
    {"self_attn.sinks", "attn_sinks", ROWS_SAME},
    {"mlp.router", "ffn_gate_inp", ROWS_SAME},
    {"mlp.experts.gate_up_proj_blocks", "ffn_gate_exps", ROWS_EVEN},
    {"mlp.experts.gate_up_proj_blocks", "ffn_up_exps", ROWS_ODD},
    {"mlp.experts.down_proj_blocks", "ffn_down_exps", ROWS_SAME},
    {"mlp.experts.gate_up_proj_bias", "ffn_gate_exps", ROWS_EVEN},
    {"mlp.experts.gate_up_proj_bias", "ffn_up_exps", ROWS_ODD},
    {"mlp.experts.down_proj_bias", "ffn_down_exps", ROWS_SAME},
    {NULL, NULL, ROWS_SAME},
};

// ---- keys

static const struct hf_key all_keys[] = {
    {"num_hidden_layers", "block_count", HF_INT},
    {"hidden_size", "embedding_length", HF_INT},
    {"intermediate_size", "feed_forward_length", HF_INT},
    {"num_attention_heads", "attention.head_count", HF_INT},
    {"num_key_value_heads", "attention.head_count_kv", HF_INT},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon", HF_FLOAT},
    {"vocab_size", "vocab_size", HF_INT},
    // read by config.c
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

// ---- families

#define TIED "\"tie_word_embeddings\": true"
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
    {"granite", "granite", .adjacent = true, .keys = granite_keys,
     .defaults = "{\"embedding_multiplier\": 1, \"residual_multiplier\": 1, \"logits_scaling\": 1,"
                 "\"attention_multiplier\": 1}"},
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

// ---- places

static bool take_prefix(struct text_view *s, const char *prefix) {
    size_t n = strlen(prefix);
    if (s->len < n || memcmp(s->data, prefix, n) != 0)
        return false;
    s->data += n;
    s->len -= n;
    return true;
}

// A number of at most six digits, without leading zeros.
static bool take_number(struct text_view *s, int *number) {
    size_t n = 0;
    for (*number = 0; n < s->len && n < 6 && s->data[n] >= '0' && s->data[n] <= '9'; n++)
        *number = *number * 10 + (s->data[n] - '0');
    if (n == 0 || (n > 1 && s->data[0] == '0'))
        return false;
    s->data += n;
    s->len -= n;
    return true;
}

// Whether a name is the pattern's, with the number that stands for its '#'.
static bool match_name(struct text_view s, const char *pattern, int *number) {
    *number = 0;
    for (; *pattern; pattern++) {
        if (*pattern == '#' ? !take_number(&s, number) : !take_prefix(&s, (char[]){*pattern, 0}))
            return false;
    }
    return s.len == 0;
}

static bool find_places(const struct hf_name *names, struct text_view s, struct hf_place *place,
                        void (*fn)(void *arg, const struct hf_place *place), void *arg) {
    bool found = false;
    for (; names && names->theirs; names++) {
        if (!match_name(s, names->theirs, &place->number))
            continue;
        struct hf_place own = *place;
        own.name = names;
        own.bias |=
            strlen(names->theirs) > 5 && strcmp(names->theirs + strlen(names->theirs) - 5, "_bias") == 0;
        fn(arg, &own);
        found = true;
    }
    return found;
}

bool hf_places(const struct hf_family *f, struct text_view tensor,
               void (*fn)(void *arg, const struct hf_place *place), void *arg) {
    static const char *const ends[] = {".weight", ".bias"};
    // Models that also see have a language model within; its tensors are named as if it were alone.
    static const char *const seeing[] = {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
                                         "model.multi_modal_projector."};
    static const struct hf_name ignored = {"", "", ROWS_SAME};
    struct hf_place place = {.layer = -1};
    for (int i = 0; i < COUNT(seeing); i++)
        if (take_prefix(&tensor, seeing[i])) {
            place.name = &ignored;
            fn(arg, &place);
            return true;
        }
    char plain[256]; // with "model." where a wrapper's name stood
    struct text_view rest = tensor;
    if (take_prefix(&rest, "model.language_model.") && rest.len < sizeof plain - 8) {
        tensor = (struct text_view){
            plain, (size_t)snprintf(plain, sizeof plain, "model.%.*s", (int)rest.len, rest.data)};
    } else {
        take_prefix(&tensor, "language_model.");
    }
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(ends[i]);
        if (tensor.len > n && memcmp(tensor.data + tensor.len - n, ends[i], n) == 0) {
            tensor.len -= n;
            place.bias = i == 1;
            break;
        }
    }
    if (take_prefix(&tensor, "model.layers.")) {
        if (!take_number(&tensor, &place.layer) || !take_prefix(&tensor, "."))
            return false;
        return find_places(f->names, tensor, &place, fn, arg) ||
               find_places(layer_names, tensor, &place, fn, arg);
    }
    return find_places(f->whole, tensor, &place, fn, arg) ||
           find_places(whole_names, tensor, &place, fn, arg);
}
