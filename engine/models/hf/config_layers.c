// See reader.h: what differs between layers, and the states of recurrent ones.
#include "reader.h"

#include "models/architectures.h"

#include <math.h>
#include <string.h>

// ---- windows

// A bool for each layer: whether it has the window.
static bool read_layer_types(const struct hf_reader *r, struct hf_found types, const char *kind, bool *any) {
    int64_t layers = r->c->layers, i = 0;
    if (types.v->type != JDOC_ARRAY || types.v->len != layers)
        return hf_refuse_value(r, "layer_types", types, "an array with an element for each layer");
    unsigned char *windowed = hf_alloc(r->keys, (size_t)layers);
    JDOC_EACH(types.j, e, types.v) {
        bool window = jdoc_is(types.j, e, kind);
        if (!window && !jdoc_is(types.j, e, "full_attention"))
            return hf_refuse_value(r, "layer_types", (struct hf_found){.j = types.j, .v = e},
                                   kind[0] == 'c' ? "full_attention or chunked_attention"
                                                  : "full_attention or sliding_attention");
        if (windowed)
            windowed[i++] = window;
        *any |= window;
    }
    if (*any && windowed)
        hf_array(r->keys, hf_our_key(r, "attention.sliding_window_pattern"), META_BOOL, (uint64_t)layers,
                 windowed, "layer_types");
    return true;
}

// n: of n layers the last has no window. EXAONE also writes it as "LLLG".
static bool read_pattern(const struct hf_reader *r, const char *key) {
    struct hf_found f = hf_find_key(r, key);
    int64_t n;
    if ((!f.v && !f.null) || !hf_key_find(r->c->family, view_of(key)))
        return true;
    if (jdoc_is(f.j, f.v, "LLLG"))
        n = 4;
    else if (!jdoc_integer(f.j, f.v, &n) || n < 1 || n > INT32_MAX)
        return hf_refuse_value(r, key, f, "a positive integer");
    hf_add_int(r, "attention.sliding_window_pattern", n, f.key ? f.key : key);
    return true;
}

// Llama 4: chunks, where the file does not say it in three of four layers.
static bool read_chunks(const struct hf_reader *r) {
    struct hf_found types = hf_find_key(r, "layer_types");
    int64_t size = -1;
    bool any = false;
    if (!hf_read_size(r, "attention_chunk_size", false, &size))
        return false;
    if (size >= 0)
        hf_add_int(r, "attention.sliding_window", size, "attention_chunk_size");
    return !types.v || read_layer_types(r, types, "chunked_attention", &any);
}

static bool read_window(const struct hf_reader *r) {
    int64_t window = 0, first = 0;
    bool used = true, any = false;
    struct hf_found types = hf_find_key(r, "layer_types"), limit = hf_find_key(r, "max_window_layers"),
                    size = hf_find_key(r, "sliding_window");
    const struct arch *a = arch_find(r->c->family->arch, strlen(r->c->family->arch));
    if (hf_key_find(r->c->family, view_of("attention_chunk_size")))
        return read_chunks(r);
    if (!hf_read_flag(r, "use_sliding_window", &used) || !hf_read_size(r, "sliding_window", false, &window) ||
        !hf_read_size(r, "max_window_layers", false, &first))
        return false;
    if (size.null && a->window_rope && jdoc_get(&r->defaults, r->defaults.values, "sliding_window"))
        return hf_refuse_value(r, "sliding_window", size, "a window: some layers rotate by it");
    window = used && !(limit.v && !types.v && first >= r->c->layers) ? window : 0;
    if (types.v && !read_layer_types(r, types, "sliding_attention", &any))
        return false;
    if (any && window == 0) {
        jdoc_bad(r->j, r->err,
                 "layer_types has sliding_attention, and sliding_window is no positive integer");
        return false;
    }
    if (window == 0 || (types.v && !any))
        return true;
    hf_add_int(r, "attention.sliding_window", window, size.key ? size.key : "sliding_window");
    if (types.v)
        return true;
    if (limit.v) { // Qwen: the first layers have none
        unsigned char *windowed = hf_alloc(r->keys, (size_t)r->c->layers);
        for (int64_t i = 0; windowed && i < r->c->layers; i++)
            windowed[i] = i >= first;
        hf_array(r->keys, hf_our_key(r, "attention.sliding_window_pattern"), META_BOOL,
                 (uint64_t)r->c->layers, windowed, "max_window_layers");
        return true;
    }
    return read_pattern(r, "sliding_window_pattern") && read_pattern(r, "_sliding_window_pattern");
}

// ---- recurrent layers

// Which layers are recurrent: by a list of kinds, of those that attend, or of how often one attends.
static bool read_recurrent(const struct hf_reader *r, const char *kind, unsigned char *recurrent, bool *any) {
    struct hf_found types = hf_find_key(r, "layer_types"), attending = hf_find_key(r, "full_attn_idxs");
    int64_t layers = r->c->layers, i = 0, interval = 4;
    if (!types.v && attending.v && attending.v->type == JDOC_ARRAY) {
        memset(recurrent, 1, (size_t)layers);
        JDOC_EACH(attending.j, e, attending.v) {
            if (!jdoc_integer(attending.j, e, &i) || i < 0 || i >= layers)
                return hf_refuse_value(r, "full_attn_idxs", (struct hf_found){.j = attending.j, .v = e},
                                       "a layer");
            recurrent[i] = 0;
        }
        *any = memchr(recurrent, 1, (size_t)layers) != NULL;
        return true;
    }
    if (!types.v) {
        if (!hf_read_size(r, "full_attention_interval", false, &interval))
            return false;
        for (; i < layers; i++)
            *any |= recurrent[i] = interval > 0 && i % interval != interval - 1;
        return true;
    }
    if (types.v->type != JDOC_ARRAY || types.v->len != layers)
        return hf_refuse_value(r, "layer_types", types, "an array with an element for each layer");
    JDOC_EACH(types.j, e, types.v) {
        recurrent[i] = jdoc_is(types.j, e, kind) || jdoc_is(types.j, e, "linear_attention");
        if (!recurrent[i] && !jdoc_is(types.j, e, "full_attention") && !jdoc_is(types.j, e, "attention"))
            return hf_refuse_value(r, "layer_types", (struct hf_found){.j = types.j, .v = e}, kind);
        *any |= recurrent[i++];
    }
    return true;
}

// Nemotron-H: each layer is one part. A list of words, or a text of letters: M recurrent, * attention, - a feed-forward, E
// experts. No key of num_hidden_layers counts beside the list.
static struct hf_found find_parts(const struct hf_reader *r) {
    struct hf_found f = hf_find_key(r, "hybrid_override_pattern"), list = hf_find_key(r, "layers_block_type");
    list.key = "layers_block_type";
    f.key = "hybrid_override_pattern";
    return list.v && list.v->type == JDOC_ARRAY ? list : f;
}

static char part_letter(const struct hf_found *f, const struct jdoc_value *e) {
    static const char *const words[] = {"Mlinear_attention", "Mmamba", "*full_attention",
                                        "*attention",        "-mlp",   "Emoe"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (jdoc_is(f->j, e, words[i] + 1))
            return words[i][0];
    return '?';
}

int64_t hf_count_parts(const struct hf_reader *r, bool *experts) {
    if (!hf_key_find(r->c->family, view_of("hybrid_override_pattern")))
        return 0;
    struct hf_found f = find_parts(r);
    bool text = f.v && f.v->type == JDOC_STRING;
    *experts = text && memchr(f.j->text + f.v->at, 'E', f.v->len);
    if (f.v && f.v->type == JDOC_ARRAY)
        JDOC_EACH(f.j, e, f.v)
    *experts |= part_letter(&f, e) == 'E';
    return f.v && (text || f.v->type == JDOC_ARRAY) ? f.v->len : 0;
}

static bool read_parts(const struct hf_reader *r, unsigned char *recurrent, int32_t *heads) {
    struct hf_found f = find_parts(r);
    const char *key = f.key;
    int64_t dense = 0, expert = 0, layers = r->c->layers, n = 0;
    int32_t *ffn = hf_alloc(r->keys, 4 * (size_t)layers);
    char *parts = hf_alloc(r->keys, (size_t)layers);
    bool none;
    if (!ffn || !parts)
        return false;
    if (hf_count_parts(r, &none) != layers) {
        jdoc_bad(r->j, r->err, "key %s is %s, expected the kind of each layer", key, jdoc_type_name(f.v));
        return false;
    }
    if (f.v->type == JDOC_STRING)
        memcpy(parts, f.j->text + f.v->at, (size_t)layers);
    else
        JDOC_EACH(f.j, e, f.v)
    parts[n++] = part_letter(&f, e);
    if (!hf_read_size(r, "intermediate_size", false, &dense) ||
        !hf_read_size(r, "moe_intermediate_size", false, &expert))
        return false;
    const bool experts = hf_key_find(r->c->family, view_of("n_routed_experts"))->ours;
    for (int64_t i = 0; i < layers; i++) {
        if (!parts[i] || !strchr(experts ? "M*E" : "M*-", parts[i]))
            return hf_refuse_value(r, key, f,
                                   experts ? "recurrent layers, attention and experts"
                                           : "recurrent layers, attention and feed-forwards");
        recurrent[i] = parts[i] == 'M';
        heads[i] = parts[i] == '*' ? (int32_t)r->c->kv_heads : 0;
        ffn[i] = parts[i] == 'M' || parts[i] == '*' ? 0 : (int32_t)(experts ? expert : dense);
    }
    hf_array(r->keys, hf_our_key(r, "feed_forward_length"), META_I32, (uint64_t)layers, ffn, key);
    hf_array(r->keys, hf_our_key(r, "attention.head_count_kv"), META_I32, (uint64_t)layers, heads, key);
    return true;
}

// Steps of states are not cut: 0 and infinity, which transformers 5 writes as {"__float__": "Infinity"}.
static bool check_time_step(const struct hf_reader *r) {
    static const char key[] = "time_step_limit";
    struct hf_found f = hf_find_key(r, key);
    const struct jdoc_value *low = f.v && f.v->len == 2 ? jdoc_first(f.j, f.v) : NULL,
                            *high = low ? jdoc_after(f.j, f.v, low, false) : NULL,
                            *word = jdoc_get(f.j, high, "__float__");
    if (!f.v || (low && jdoc_number(f.j, low) == 0 &&
                 (jdoc_is(f.j, word, "Infinity") || isinf(jdoc_number(f.j, high)))))
        return true;
    return hf_refuse_value(r, key, f, "0 and Infinity");
}

static bool read_states(const struct hf_reader *r, enum mix_kind kind) {
    struct hf_config *c = r->c;
    const bool delta = kind == MIX_DELTA;
    int64_t expand = 2, inner = 0;
    if (!check_time_step(r))
        return false;
    const char *columns_key = delta ? "linear_value_head_dim" : "mamba_d_head";
    struct hf_found columns = hf_find_key(r, columns_key);
    bool automatic = !columns.v || jdoc_is(columns.j, columns.v, "auto");
    if (!hf_read_size(r, delta ? "linear_num_value_heads" : "mamba_n_heads", true, &c->state_heads) ||
        !hf_read_size(r, delta ? "linear_num_key_heads" : "mamba_n_groups", true, &c->state_groups) ||
        !hf_read_size(r, delta ? "linear_key_head_dim" : "mamba_d_state", true, &c->state_rows) ||
        !hf_read_size(r, "mamba_expand", false, &expand) || !hf_read_size(r, "mamba_d_ssm", false, &inner))
        return false;
    if (!automatic && !hf_read_size(r, columns_key, false, &c->state_columns))
        return false;
    inner = inner > 0 ? inner : expand * c->hidden;
    if (automatic && c->state_heads > 0)
        c->state_columns = inner / c->state_heads;
    if (c->state_heads < 1 || c->state_groups < 1 || c->state_columns < 1 ||
        c->state_heads % c->state_groups || c->state_heads > 1 << 20 || c->state_columns > 1 << 20) {
        jdoc_bad(r->j, r->err,
                 "recurrent layers have %lld heads of %lld in %lld groups, expected a multiple of these",
                 (long long)c->state_heads, (long long)c->state_columns, (long long)c->state_groups);
        return false;
    }
    hf_add_int(r, "ssm.inner_size", c->state_heads * c->state_columns, "heads of recurrent layers");
    return true;
}

static bool read_mix(struct hf_reader *r, const struct arch *a) {
    static const char *const kinds[] = {
        [MIX_CONV] = "conv", [MIX_DELTA] = "linear_attention", [MIX_SSM] = "mamba"};
    struct hf_config *c = r->c;
    unsigned char *recurrent = hf_alloc(r->keys, (size_t)c->layers);
    int32_t *heads = hf_alloc(r->keys, 4 * (size_t)c->layers);
    bool any = false;
    if (!recurrent || !heads)
        return false;
    if (a->mix_alone) { // as llama.cpp wants it said
        hf_add_int(r, "attention.head_count", 0, "model_type");
        hf_add_int(r, "feed_forward_length", 0, "model_type");
        return read_states(r, a->mix);
    }
    if (a->traits & TRAIT_ONE_PART)
        return read_parts(r, recurrent, heads) && read_states(r, a->mix);
    if (!a->mix_beside && !read_recurrent(r, kinds[a->mix], recurrent, &any))
        return false;
    for (int64_t i = 0; i < c->layers; i++)
        heads[i] = any && recurrent[i] ? 0 : (int32_t)c->kv_heads;
    if (a->mix == MIX_SSM && !a->mix_beside && !any)
        c->arch = c->family->of_experts ? "granite" : "granitemoe"; // Granite 4 without recurrent layers
    else if (a->mix != MIX_CONV && !read_states(r, a->mix))
        return false;
    if (a->mix == MIX_DELTA)
        hf_array(r->keys, hf_our_key(r, "attention.recurrent_layers"), META_BOOL, (uint64_t)c->layers,
                 recurrent, "layer_types");
    if (a->mix == MIX_DELTA || !any)
        hf_add_int(r, "attention.head_count_kv", c->kv_heads, "num_key_value_heads");
    else
        hf_array(r->keys, hf_our_key(r, "attention.head_count_kv"), META_I32, (uint64_t)c->layers, heads,
                 "layer_types");
    return true;
}

// ---- of single families

static bool has_key(const struct hf_reader *r, const char *key) {
    return hf_key_find(r->c->family, view_of(key)) != NULL;
}

static bool read_factors(const struct hf_reader *r, const char *key, int n, double *factors) {
    struct hf_found f = hf_find_key(r, key);
    int i = 0;
    if (!f.v)
        return true;
    if (f.v->type != JDOC_ARRAY || (int64_t)f.v->len != n)
        return hf_refuse_value(r, key, f, n == 2 ? "an array of 2 numbers" : "an array of 5 numbers");
    JDOC_EACH(f.j, e, f.v)
    if (!hf_take_number(r, key, (struct hf_found){.j = f.j, .v = e}, &factors[i++]))
        return false;
    return true;
}

// Falcon-H1 multiplies activations; the same numbers go into the weights, as in GGUF files.
static bool read_multipliers(const struct hf_reader *r) {
    static const struct {
        const char *key;
        enum hf_factor factor;
    } single[] = {{"embedding_multiplier", FACTOR_EMBED},
                  {"lm_head_multiplier", FACTOR_HEAD},
                  {"key_multiplier", FACTOR_KEY},
                  {"attention_in_multiplier", FACTOR_ATTN_IN},
                  {"attention_out_multiplier", FACTOR_ATTN_OUT},
                  {"ssm_in_multiplier", FACTOR_SSM_IN},
                  {"ssm_out_multiplier", FACTOR_SSM_OUT}};
    double v[NUM_FACTORS], parts[HF_STATE_PARTS] = {1, 1, 1, 1, 1}, mlp[2] = {1, 1};
    bool norm = false, before_gate = true;
    for (int i = 0; i < NUM_FACTORS; i++)
        v[i] = 1;
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        if (!hf_read_number(r, single[i].key, &v[single[i].factor]))
            return false;
    if (!read_factors(r, "mlp_multipliers", 2, mlp) ||
        !read_factors(r, "ssm_multipliers", HF_STATE_PARTS, parts) ||
        !hf_read_flag(r, "mamba_rms_norm", &norm) || !hf_read_flag(r, "mamba_norm_before_gate", &before_gate))
        return false;
    if (norm && before_gate)
        return hf_refuse_value(r, "mamba_norm_before_gate", hf_find_key(r, "mamba_rms_norm"), "false");
    v[FACTOR_GATE] = mlp[0];
    v[FACTOR_DOWN] = mlp[1];
    v[FACTOR_KEY] *= v[FACTOR_ATTN_IN];
    for (int i = 0; i < NUM_FACTORS; i++)
        r->c->factors[i] = (float)v[i];
    for (int i = 0; i < HF_STATE_PARTS; i++)
        r->c->state_factors[i] = (float)(parts[i] * v[FACTOR_SSM_IN]);
    return true;
}

// LFM2: the size is that of a feed-forward without gate, of which two thirds are meant, rounded up.
static bool read_lfm2_ffn(const struct hf_reader *r) {
    int64_t size = 0, multiple = 256;
    double factor = 1;
    bool adjusts = true;
    if (!hf_read_size(r, "intermediate_size", false, &size) ||
        !hf_read_size(r, "block_ff_dim", false, &size) ||
        !hf_read_size(r, "block_multiple_of", false, &multiple) ||
        !hf_read_number(r, "block_ffn_dim_multiplier", &factor) ||
        !hf_read_flag(r, "block_auto_adjust_ff_dim", &adjusts))
        return false;
    if (adjusts && multiple > 0 && factor > 0 && factor < 1000) {
        int64_t two_thirds = 2 * size / 3;
        size = (int64_t)(factor * (double)two_thirds);
        size = (size + multiple - 1) / multiple * multiple;
    }
    hf_add_int(r, "feed_forward_length", size, "intermediate_size");
    return true;
}

static bool read_hunyuan_experts(const struct hf_reader *r) {
    int64_t size = 0, shared = 1;
    if (!hf_read_size(r, "intermediate_size", true, &size) ||
        !hf_read_size(r, "moe_intermediate_size", false, &size) ||
        !hf_read_size(r, "num_shared_expert", false, &shared))
        return false;
    hf_add_int(r, "expert_feed_forward_length", size, "moe_intermediate_size");
    hf_add_int(r, "expert_shared_feed_forward_length", size * shared, "num_shared_expert");
    return true;
}

// Cohere 2 MoE: softmax is that of the chosen experts; norms are RMSNorm where rms_norm_eps says so.
static bool read_cohere_experts(const struct hf_reader *r) {
    static const char key[] = "expert_selection_fn", strategy[] = "shared_expert_combination_strategy";
    struct hf_found fn = hf_find_key(r, key), how = hf_find_key(r, strategy),
                    rms = hf_find_key(r, "rms_norm_eps");
    const char *eps_key = rms.v ? "rms_norm_eps" : "layer_norm_eps";
    int64_t size = 0, shared = 0, dense = 0;
    double eps = 1e-5;
    bool softmax = !fn.v || jdoc_is(fn.j, fn.v, "softmax");
    if (!softmax && !jdoc_is(fn.j, fn.v, "sigmoid"))
        return hf_refuse_value(r, key, fn, "softmax or sigmoid");
    if (!hf_read_size(r, "intermediate_size", true, &size) ||
        !hf_read_size(r, "num_shared_experts", false, &shared) ||
        !hf_read_size(r, "prefix_dense_intermediate_size", false, &dense) ||
        !hf_read_number(r, eps_key, &eps))
        return false;
    if (shared > 0 && how.v && !jdoc_is(how.j, how.v, "average"))
        return hf_refuse_value(r, strategy, how, "average");
    hf_add_float(r, rms.v ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon", eps,
                 eps_key);
    hf_add_int(r, "expert_gating_func", softmax ? 3 : 2, key);
    hf_add_int(r, "expert_feed_forward_length", size, "intermediate_size");
    hf_add_int(r, "expert_shared_feed_forward_length", size * shared, "num_shared_experts");
    hf_add_int(r, "feed_forward_length", dense > 0 ? dense : size, "prefix_dense_intermediate_size");
    return true;
}

static bool check_last_expert_layer(const struct hf_reader *r) {
    struct hf_found f = hf_find_key(r, "moe_layer_end_index");
    int64_t last = -1;
    return !f.v || (jdoc_integer(f.j, f.v, &last) && (last == -1 || last == r->c->layers - 1)) ||
           hf_refuse_value(r, "moe_layer_end_index", f, "-1 or the last layer");
}

// Llama 4: which layers have experts, whether heads have norms, and the temperature of scores.
static bool read_llama4(const struct hf_reader *r) {
    struct hf_found norm = hf_find_key(r, "use_qk_norm"), tuned = hf_find_key(r, "attn_temperature_tuning");
    int64_t experts = 16;
    double scale = 0.1, length = 8192;
    if (!hf_read_size(r, "num_local_experts", false, &experts) || !hf_read_number(r, "attn_scale", &scale) ||
        !hf_read_number(r, "floor_scale", &length))
        return false;
    if ((norm.v || norm.null) && (norm.v && norm.v->type == JDOC_TRUE) != (experts != 128))
        return hf_refuse_value(r, "use_qk_norm", norm, "true, or false with 128 experts");
    if (tuned.null || (tuned.v && hf_is_neutral(tuned.j, tuned.v) && jdoc_number(tuned.j, tuned.v) != 1))
        scale = 0;
    if (length < 1 || length > 1 << 24)
        return hf_refuse_value(r, "floor_scale", hf_find_key(r, "floor_scale"), "1 to 2^24");
    hf_add_float(r, "attention.temperature_scale", scale, "attn_scale");
    hf_add_int(r, "attention.temperature_length", (int64_t)length, "floor_scale");
    return true;
}

// Gemma 4's experts: other keys may say how many there are where enable_moe_block says that there are none.
static bool read_moe_block(const struct hf_reader *r) {
    static const char *const keys[][2] = {{"num_experts", "expert_count"},
                                          {"top_k_experts", "expert_used_count"},
                                          {"moe_intermediate_size", "expert_feed_forward_length"}};
    bool has = false;
    if (!hf_read_flag(r, "enable_moe_block", &has))
        return false;
    for (int i = 0; has && i < 3; i++) {
        int64_t n = 0;
        if (!hf_read_size(r, keys[i][0], true, &n))
            return false;
        hf_add_int(r, keys[i][1], n, keys[i][0]);
    }
    return true;
}

// Gemma 4: layers without a window may have other kv heads, those that share keys and values a wider feed-forward.
static bool read_differing(const struct hf_reader *r) {
    struct hf_config *c = r->c;
    struct hf_found types = hf_find_key(r, "layer_types"),
                    both = hf_find_key(r, "use_bidirectional_attention");
    int64_t ffn = 0, shared = 0, full_heads = c->kv_heads, i = 0;
    bool tied_values = false, wide = false;
    if (both.v && jdoc_is(both.j, both.v, "all"))
        return hf_refuse_value(r, "use_bidirectional_attention", both, "null or vision");
    if (!hf_read_size(r, "intermediate_size", true, &ffn) ||
        !hf_read_size(r, "num_kv_shared_layers", false, &shared) ||
        !hf_read_flag(r, "attention_k_eq_v", &tied_values) ||
        !hf_read_flag(r, "use_double_wide_mlp", &wide) ||
        (tied_values && !hf_read_size(r, "num_global_key_value_heads", false, &full_heads)))
        return false;
    full_heads = c->full_kv_heads ? c->full_kv_heads : full_heads;
    if (!types.v || ffn > INT32_MAX / 2) {
        jdoc_bad(r->j, r->err, types.v ? "key intermediate_size is too large" : "key layer_types is missing");
        return false;
    }
    if (types.v->type != JDOC_ARRAY || types.v->len != c->layers)
        return hf_refuse_value(r, "layer_types", types, "an array with an element for each layer");
    int32_t *heads = hf_alloc(r->keys, 4 * (size_t)c->layers),
            *sizes = hf_alloc(r->keys, 4 * (size_t)c->layers);
    JDOC_EACH(types.j, e, types.v) {
        bool twice = wide && i >= c->layers - shared;
        if (heads && sizes) {
            heads[i] = (int32_t)(jdoc_is(types.j, e, "full_attention") ? full_heads : c->kv_heads);
            sizes[i++] = (int32_t)(twice ? 2 * ffn : ffn);
        }
    }
    if (heads && sizes) {
        hf_array(r->keys, hf_our_key(r, "attention.head_count_kv"), META_I32, (uint64_t)c->layers, heads,
                 "num_key_value_heads");
        hf_array(r->keys, hf_our_key(r, "feed_forward_length"), META_I32, (uint64_t)c->layers, sizes,
                 "intermediate_size");
    }
    return read_moe_block(r) && read_window(r);
}

// How many deviations above the mean the part p of a normal distribution lies below.
static double normal_quantile(double p) {
    double low = -40, high = 40;
    for (int i = 0; i < 100; i++) {
        double middle = (low + high) / 2;
        *(erfc(-middle / sqrt(2)) / 2 < p ? &low : &high) = middle;
    }
    return low;
}

// Gemma 3n: which part of a layer's gates counts as 0.
static bool read_sparsity(const struct hf_reader *r) {
    static const char key[] = "activation_sparsity_pattern";
    struct hf_found f = hf_find_key(r, key);
    int64_t layers = r->c->layers, i = 0;
    float *cut = hf_alloc(r->keys, (size_t)layers * sizeof *cut);
    if (f.v && (f.v->type != JDOC_ARRAY || f.v->len != layers))
        return hf_refuse_value(r, key, f, "an array with an element for each layer");
    for (; cut && i < layers; i++)
        cut[i] = layers > 10 && i < 10 ? (float)normal_quantile((double)0.95f) : -INFINITY;
    i = 0;
    JDOC_EACH(f.j, e, f.v) {
        double p = jdoc_number(f.j, e);
        if (!(p >= 0 && p < 1))
            return hf_refuse_value(r, key, (struct hf_found){.j = f.j, .v = e}, "at least 0 and below 1");
        if (cut)
            cut[i++] = p > 0 ? (float)normal_quantile((double)(float)p) : -INFINITY;
    }
    if (cut)
        hf_array(r->keys, hf_our_key(r, "activation_sparsity_scale"), META_F32, (uint64_t)layers, cut, key);
    return true;
}

bool hf_read_layers(struct hf_reader *r) {
    struct hf_config *c = r->c;
    const struct arch *a = arch_find(c->family->arch, strlen(c->family->arch));
    int64_t nextn = 0;
    if (a->mix != MIX_NONE) {
        if (!read_mix(r, a))
            return false;
    } else if (c->window_dim > 0) {
        if (!read_differing(r))
            return false;
    } else {
        bool blocks = has_key(r, "block_configs");
        if (!blocks)
            hf_add_int(r, "attention.head_count_kv", c->kv_heads, "num_key_value_heads");
        if (!read_window(r) || !hf_read_rope_layers(r) || (blocks && !hf_read_blocks(r)))
            return false;
    }
    const struct hf_key *positions = hf_key_find(c->family, view_of("position_embedding_type"));
    if (positions && positions->type != HF_ONLY) { // Granite 4: nope, or absent
        struct hf_found f = hf_find_key(r, "position_embedding_type");
        bool rope = f.v && jdoc_is(f.j, f.v, "rope");
        if (f.v && !rope && !jdoc_is(f.j, f.v, "nope"))
            return hf_refuse_value(r, "position_embedding_type", f, "rope or nope");
        hf_bool(r->keys, hf_our_key(r, "rope.scaling.finetuned"), rope, "position_embedding_type");
    }
    if (has_key(r, "num_nextn_predict_layers") && !hf_read_size(r, "num_nextn_predict_layers", false, &nextn))
        return false;
    c->more_layers = nextn > 0;
    struct hf_found method = hf_find_key(r, "topk_method");
    c->ungrouped = has_key(r, "topk_method") && method.v && jdoc_is(method.j, method.v, "greedy");
    return hf_read_expert_layers(r) && (!has_key(r, "ssm_multipliers") || read_multipliers(r)) &&
           (!has_key(r, "full_attn_idxs") || read_lfm2_ffn(r)) &&
           (!has_key(r, "floor_scale") || read_llama4(r)) &&
           (!has_key(r, "rope_layout") || hf_read_layouts(r)) &&
           (!has_key(r, "expert_selection_fn") || read_cohere_experts(r)) &&
           (!has_key(r, "activation_sparsity_pattern") || read_sparsity(r)) &&
           (!has_key(r, "num_shared_expert") || read_hunyuan_experts(r)) &&
           (!has_key(r, "moe_layer_end_index") || check_last_expert_layer(r)) &&
           (!has_key(r, "moe_every_n_layers") || hf_read_size(r, "num_experts", false, &c->experts));
}
