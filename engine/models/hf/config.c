// See config.h. What a key means is as in transformers 4.57 (configuration_*.py, modeling_rope_utils.py). Over
// 600 lines: the reading of every key, each with its refusals.
#include "config.h"

#include "models/architectures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct config_reader {
    const struct jdoc *j;
    const struct jdoc_value *root, *text; // text: the language model's, root where the model is nothing else
    struct jdoc defaults;                 // of the family
    struct hf_keys *keys;
    struct hf_config *c;
    struct err *err;
};

struct found { // a value, in config.json or the defaults; v NULL: absent
    const struct jdoc *j;
    const struct jdoc_value *v;
};

static struct found find_key(const struct config_reader *r, const char *key) {
    struct found f = {r->j, jdoc_get(r->j, r->text, key)};
    if (!f.v && r->defaults.num)
        f = (struct found){&r->defaults, jdoc_get(&r->defaults, r->defaults.values, key)};
    return f;
}

static bool refuse_value(const struct config_reader *r, const char *key, struct found f,
                         const char *expected) {
    struct text_view s = jdoc_text(f.j, f.v);
    bool shown = f.v->type == JDOC_NUMBER || f.v->type == JDOC_STRING;
    jdoc_bad(r->j, r->err, "key %.64s at byte %u is %s%.*s, expected %s", key, f.v->at,
             shown ? "" : jdoc_type_name(f.v), shown ? (int)(s.len < 64 ? s.len : 64) : 0, s.data, expected);
    return false;
}

// Into *v, which stays where the key is absent.
static bool take_number(const struct config_reader *r, const char *key, struct found f, double *v) {
    double d = f.v ? jdoc_number(f.j, f.v) : 0;
    if (f.v && !isfinite(d))
        return refuse_value(r, key, f, "a finite number");
    if (f.v)
        *v = d;
    return true;
}

static bool read_number(const struct config_reader *r, const char *key, double *v) {
    return take_number(r, key, find_key(r, key), v);
}

static bool read_size(const struct config_reader *r, const char *key, bool required, int64_t *v) {
    struct found f = find_key(r, key);
    if (!f.v && required) {
        jdoc_bad(r->j, r->err, "key %s is missing", key);
        return false;
    }
    if (f.v && (!jdoc_integer(f.j, f.v, v) || *v < 0 || *v > INT32_MAX))
        return refuse_value(r, key, f, "an integer from 0 to 2^31");
    return true;
}

static bool read_flag(const struct config_reader *r, const char *key, bool *v) {
    struct found f = find_key(r, key);
    if (f.v && f.v->type != JDOC_TRUE && f.v->type != JDOC_FALSE)
        return refuse_value(r, key, f, "true or false");
    if (f.v)
        *v = f.v->type == JDOC_TRUE;
    return true;
}

static const char *our_key(const struct config_reader *r, const char *suffix) {
    return hf_text(r->keys, "%s.%s", r->c->family->arch, suffix);
}

static void add_float(const struct config_reader *r, const char *suffix, double v, const char *label) {
    hf_float(r->keys, our_key(r, suffix), v, label);
}

static void add_int(const struct config_reader *r, const char *suffix, int64_t v, const char *label) {
    hf_int(r->keys, our_key(r, suffix), v, label);
}

// ---- which family, and keys that none knows

static bool read_family(struct config_reader *r) {
    const struct jdoc_value *type = jdoc_get(r->j, r->text, "model_type");
    if (!type || type->type != JDOC_STRING) {
        jdoc_bad(r->j, r->err, "key model_type is %s, expected a string", jdoc_type_name(type));
        return false;
    }
    r->c->family = hf_family_find(jdoc_text(r->j, type));
    if (!r->c->family) {
        char known[320] = "";
        for (int i = 0; hf_family_at(i); i++)
            snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
                     hf_family_at(i)->model_type);
        jdoc_bad(r->j, r->err, "model_type '%.*s' is not supported yet; supported: %s",
                 (int)(type->len < 48 ? type->len : 48), r->j->text + type->at, known);
        return false;
    }
    const char *defaults = r->c->family->defaults;
    char *copy = defaults ? malloc(strlen(defaults) + 1) : NULL;
    if (!copy)
        return !defaults || err_set(r->err, STATUS_NOMEM, "out of memory for config.json") == STATUS_OK;
    strcpy(copy, defaults);
    return jdoc_parse(&r->defaults, "defaults", copy, strlen(defaults), r->err) == STATUS_OK;
}

// Whether a value says that what its key is about is off, or changes nothing.
static bool is_neutral(const struct jdoc *j, const struct jdoc_value *v) {
    double d = jdoc_number(j, v);
    return v->type == JDOC_NULL || v->type == JDOC_FALSE || d == 0 || d == 1 ||
           (v->type >= JDOC_STRING && v->len == 0);
}

// Whether a value is the one that there must be.
static bool is_only(const struct jdoc *j, const struct jdoc_value *v, const char *only) {
    struct text_view s = jdoc_text(j, v);
    if (v->type == JDOC_NUMBER)
        return s.len == strlen(only) && memcmp(s.data, only, s.len) == 0;
    return strcmp(only, v->type == JDOC_TRUE                   ? "true"
                        : v->type == JDOC_FALSE                ? "false"
                        : v->type == JDOC_ARRAY && v->len == 0 ? "[]"
                                                               : "") == 0;
}

static bool check_keys(const struct config_reader *r) {
    JDOC_EACH_KEY(r->j, key, r->text) {
        struct text_view name = jdoc_text(r->j, key);
        const struct hf_key *known = hf_key_find(r->c->family, name);
        if (known && known->type == HF_ONLY && !is_only(r->j, key + 1, known->ours))
            return refuse_value(r, known->theirs, (struct found){r->j, key + 1}, known->ours);
        if (known || is_neutral(r->j, key + 1) || !hf_key_is_suspect(name))
            continue;
        jdoc_bad(r->j, r->err,
                 "key %.*s at byte %u: Quire does not know how to compute that for model_type %s",
                 (int)(name.len < 96 ? name.len : 96), name.data, key->at, r->c->family->model_type);
        return false;
    }
    return true;
}

static bool check_activation(const struct config_reader *r) {
    const char *expected = r->c->family->act ? r->c->family->act : "silu", *key = "hidden_activation";
    struct found f = find_key(r, key);
    if (!f.v)
        f = find_key(r, key = "hidden_act");
    // Gemma's first files say gelu and mean its approximation.
    bool gemma = strcmp(r->c->family->model_type, "gemma") == 0;
    if (!f.v || jdoc_is(f.j, f.v, expected) || (gemma && jdoc_is(f.j, f.v, "gelu")))
        return true;
    return refuse_value(r, key, f, expected);
}

// Which methods are read: the tensors say the rest (quantized.h).
static bool check_quantization(const struct config_reader *r) {
    static const char *const formats[] = {"float-quantized", "int-quantized", "naive-quantized",
                                          "pack-quantized", "dense"};
    const struct jdoc_value *q = jdoc_get(r->j, r->root, "quantization_config");
    const struct jdoc_value *method = jdoc_get(r->j, q, "quant_method"),
                            *format = jdoc_get(r->j, q, "format"),
                            *size = jdoc_get(r->j, q, "weight_block_size"),
                            *sparse = jdoc_get(r->j, q, "sparsity_config"),
                            *transforms = jdoc_get(r->j, q, "transform_config");
    if (!q)
        return true;
    bool known = jdoc_is(r->j, method, "fp8") || jdoc_is(r->j, method, "mxfp4"),
         compressed = jdoc_is(r->j, method, "compressed-tensors");
    for (size_t i = 0; compressed && i < sizeof formats / sizeof *formats; i++)
        known |= jdoc_is(r->j, format, formats[i]);
    sparse = jdoc_get(r->j, sparse, "format");
    known &= (!sparse || jdoc_is(r->j, sparse, "dense")) && (!transforms || transforms->len == 0);
    const struct jdoc_value *rows = jdoc_first(r->j, size);
    if (rows && size->len == 2)
        known &= jdoc_integer(r->j, rows, &r->c->block_rows) &&
                 jdoc_integer(r->j, rows + 1, &r->c->block_cols) && r->c->block_rows > 0 &&
                 r->c->block_cols > 0;
    if (known)
        return true;
    bool text = method && method->type == JDOC_STRING;
    jdoc_bad(r->j, r->err,
             "quantization_config at byte %u: quant_method %.*s is not supported yet, or not in this format; "
             "supported: "
             "fp8, mxfp4, compressed-tensors of 8 bits or packed 4 bits",
             q->at, text ? (int)(method->len < 48 ? method->len : 48) : 1,
             text ? r->j->text + method->at : "?");
    return false;
}

// ---- sizes

// Keys that mean what ours mean.
static bool read_plain(const struct config_reader *r) {
    const struct hf_key *k;
    for (int i = 0; (k = hf_key_at(r->c->family, i)); i++) {
        int64_t n = -1;
        double d = NAN;
        if (!k->ours || k->type == HF_ONLY)
            continue;
        if (k->type == HF_INT ? !read_size(r, k->theirs, false, &n) : !read_number(r, k->theirs, &d))
            return false;
        if (n >= 0)
            add_int(r, k->ours, n, k->theirs);
        if (!isnan(d))
            add_float(r, k->ours, d, k->theirs);
    }
    return true;
}

static bool read_sizes(const struct config_reader *r) {
    struct hf_config *c = r->c;
    int64_t ffn = 0;
    if (!read_size(r, "num_hidden_layers", true, &c->layers) ||
        !read_size(r, "hidden_size", true, &c->hidden) ||
        !read_size(r, "num_attention_heads", true, &c->heads) ||
        !read_size(r, "intermediate_size", true, &ffn) ||
        !read_size(r, "max_position_embeddings", true, &c->context) ||
        !read_size(r, "vocab_size", false, &c->vocab))
        return false;
    c->kv_heads = c->heads;
    if (!read_size(r, "num_key_value_heads", false, &c->kv_heads))
        return false;
    c->head_dim = c->heads ? c->hidden / c->heads : 0;
    if (!read_size(r, "head_dim", false, &c->head_dim))
        return false;
    if (c->heads < 1 || c->kv_heads < 1 || c->head_dim < 1 || c->layers < 1 || c->context < 1) {
        jdoc_bad(r->j, r->err,
                 "%lld layers, %lld heads of %lld, %lld of keys, %lld positions: expected at least 1",
                 (long long)c->layers, (long long)c->heads, (long long)c->head_dim, (long long)c->kv_heads,
                 (long long)c->context);
        return false;
    }
    add_int(r, "attention.key_length", c->head_dim, "head_dim");
    add_int(r, "attention.value_length", c->head_dim, "head_dim");
    return true;
}

// Factors that are worked out from several keys, each where its key is there.
static bool read_scales(const struct config_reader *r) {
    const struct hf_config *c = r->c;
    double query = 0, depth = 0, base = 0;
    if (hf_key_find(c->family, view_of("query_pre_attn_scalar")) &&
        !read_number(r, "query_pre_attn_scalar", &query))
        return false;
    if (hf_key_find(c->family, view_of("scale_depth")) &&
        (!read_number(r, "scale_depth", &depth) || !read_number(r, "dim_model_base", &base)))
        return false;
    if (query > 0)
        add_float(r, "attention.scale", (double)(1.0f / sqrtf((float)query)), "query_pre_attn_scalar");
    if (depth > 0)
        add_float(r, "residual_scale", depth / sqrt((double)c->layers), "scale_depth");
    if (base > 0)
        add_float(r, "logit_scale", (double)c->hidden / base, "dim_model_base");
    return true;
}

// ---- windows

// A bool for each layer: whether it has the window.
static bool read_layer_types(const struct config_reader *r, struct found types, bool *any) {
    int64_t layers = r->c->layers, i = 0;
    if (types.v->type != JDOC_ARRAY || types.v->len != layers)
        return refuse_value(r, "layer_types", types, "an array with an element for each layer");
    unsigned char *windowed = hf_alloc(r->keys, (size_t)layers);
    JDOC_EACH(types.j, e, types.v) {
        bool window = jdoc_is(types.j, e, "sliding_attention");
        if (!window && !jdoc_is(types.j, e, "full_attention"))
            return refuse_value(r, "layer_types", (struct found){types.j, e},
                                "full_attention or sliding_attention");
        if (windowed)
            windowed[i++] = window;
        *any |= window;
    }
    if (*any && windowed)
        hf_array(r->keys, our_key(r, "attention.sliding_window_pattern"), META_BOOL, (uint64_t)layers,
                 windowed, "layer_types");
    return true;
}

// n: of n layers the last has no window. EXAONE also writes it as "LLLG".
static bool read_pattern(const struct config_reader *r, const char *key) {
    struct found f = find_key(r, key);
    int64_t n;
    if (!f.v || !hf_key_find(r->c->family, view_of(key)))
        return true;
    if (jdoc_is(f.j, f.v, "LLLG"))
        n = 4;
    else if (!jdoc_integer(f.j, f.v, &n) || n < 1 || n > INT32_MAX)
        return refuse_value(r, key, f, "a positive integer");
    add_int(r, "attention.sliding_window_pattern", n, key);
    return true;
}

static bool read_window(const struct config_reader *r) {
    int64_t window = 0, first = 0;
    bool used = true, any = false;
    struct found types = find_key(r, "layer_types"), limit = find_key(r, "max_window_layers");
    if (!read_flag(r, "use_sliding_window", &used) || !read_size(r, "sliding_window", false, &window) ||
        !read_size(r, "max_window_layers", false, &first))
        return false;
    window = used ? window : 0;
    if (types.v && !read_layer_types(r, types, &any))
        return false;
    if (any && window == 0) {
        jdoc_bad(r->j, r->err,
                 "layer_types has sliding_attention, and sliding_window is no positive integer");
        return false;
    }
    if (window == 0 || (types.v && !any))
        return true;
    add_int(r, "attention.sliding_window", window, "sliding_window");
    if (types.v)
        return true;
    if (limit.v) { // Qwen: the first layers have none
        unsigned char *windowed = hf_alloc(r->keys, (size_t)r->c->layers);
        for (int64_t i = 0; windowed && i < r->c->layers; i++)
            windowed[i] = i >= first;
        hf_array(r->keys, our_key(r, "attention.sliding_window_pattern"), META_BOOL, (uint64_t)r->c->layers,
                 windowed, "max_window_layers");
        return true;
    }
    return read_pattern(r, "sliding_window_pattern") && read_pattern(r, "_sliding_window_pattern");
}

// SmolLM3 lists the layers that rotate. Which these are, architectures.c says: each fourth does not.
static bool check_no_rope(const struct config_reader *r) {
    struct found f = find_key(r, "no_rope_layers");
    int64_t i = 0, rotates;
    if (!f.v || !hf_key_find(r->c->family, view_of("no_rope_layers")))
        return true;
    JDOC_EACH(f.j, e, f.v)
    if (!jdoc_integer(f.j, e, &rotates) || rotates != (i++ % 4 != 3))
        return refuse_value(r, "no_rope_layers", (struct found){f.j, e},
                            "0 for each fourth layer and 1 for the others");
    return f.v->type == JDOC_ARRAY || refuse_value(r, "no_rope_layers", f, "an array");
}

// ---- RoPE

struct rope_reader {
    const struct config_reader *r;
    const struct jdoc_value *dict; // of scaling; NULL: none
    double theta, factor, original;
};

static struct found find_rope(const struct rope_reader *p, const char *key) {
    return (struct found){p->r->j, jdoc_get(p->r->j, p->dict, key)};
}

static bool read_rope_number(const struct rope_reader *p, const char *key, double *v) {
    return take_number(p->r, key, find_rope(p, key), v);
}

// Adds a factor of the scaling under our name, where it is there.
static bool copy_rope(const struct rope_reader *p, const char *theirs, const char *ours) {
    double v = NAN;
    if (!read_rope_number(p, theirs, &v))
        return false;
    if (!isnan(v))
        add_float(p->r, ours, v, theirs);
    return true;
}

// Whether the architecture's ramp of YaRN is not cut at whole pairs.
static bool has_fine_ramp(const struct hf_config *c) {
    return arch_find(c->family->arch, strlen(c->family->arch))->fine_ramp;
}

static bool check_rope_keys(const struct rope_reader *p) {
    static const char *const known[] = {"rope_theta",
                                        "rope_type",
                                        "type",
                                        "factor",
                                        "low_freq_factor",
                                        "high_freq_factor",
                                        "beta_fast",
                                        "beta_slow",
                                        "original_max_position_embeddings",
                                        "attention_factor",
                                        "mscale",
                                        "mscale_all_dim",
                                        "llama_4_scaling_beta",
                                        "alpha",
                                        "long_factor",
                                        "short_factor",
                                        "partial_rotary_factor",
                                        "finetuned"};
    const struct jdoc *j = p->r->j;
    JDOC_EACH_KEY(j, key, p->dict) {
        bool found = is_neutral(j, key + 1) && !jdoc_is(j, key, "truncate");
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            found |= jdoc_is(j, key, known[i]);
        found |= jdoc_is(j, key, "truncate") && (key[1].type == JDOC_FALSE) == has_fine_ramp(p->r->c);
        if (!found) {
            jdoc_bad(j, p->r->err, "key %.*s of the scaling of RoPE, at byte %u, is not known",
                     (int)(key->len < 96 ? key->len : 96), j->text + key->at, key->at);
            return false;
        }
    }
    return true;
}

static void add_scaling(const struct rope_reader *p, const char *type) {
    hf_str(p->r->keys, our_key(p->r, "rope.scaling.type"), view_of(type), "rope_type");
    if (p->factor > 0)
        add_float(p->r, "rope.scaling.factor", p->factor, "factor");
    add_int(p->r, "rope.scaling.original_context_length", (int64_t)p->original,
            "original_max_position_embeddings");
}

static double yarn_mscale(double factor, double mscale) {
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static bool read_yarn(struct rope_reader *p) {
    double attention = NAN, mscale = 0, all = 0, implied = yarn_mscale(p->factor, 1);
    struct hf_config *c = p->r->c;
    if (!read_rope_number(p, "attention_factor", &attention) || !read_rope_number(p, "mscale", &mscale) ||
        !read_rope_number(p, "mscale_all_dim", &all) ||
        !copy_rope(p, "beta_fast", "rope.scaling.yarn_beta_fast") ||
        !copy_rope(p, "beta_slow", "rope.scaling.yarn_beta_slow") ||
        !copy_rope(p, "llama_4_scaling_beta", "attention.temperature_scale"))
        return false;
    if (has_fine_ramp(c) && !find_rope(p, "truncate").v) {
        jdoc_bad(p->r->j, p->r->err, "key truncate of the scaling of RoPE is missing, expected false");
        return false;
    }
    if (isnan(attention) && mscale != 0 && all != 0)
        attention = yarn_mscale(p->factor, mscale) / yarn_mscale(p->factor, all);
    if (!isnan(attention) && attention != implied) // ours multiplies what the factor implies
        add_float(p->r, "rope.scaling.attn_factor", attention / implied, "attention_factor");
    add_scaling(p, "yarn");
    if (p->factor * p->original > (double)c->context) // Qwen's files keep the context before scaling
        c->context = (int64_t)fmin(p->factor * p->original, INT32_MAX);
    return true;
}

static const float *read_factors(const struct rope_reader *p, const char *key, int64_t *count) {
    struct found f = find_rope(p, key);
    float *v = f.v && f.v->type == JDOC_ARRAY && f.v->len ? hf_alloc(p->r->keys, f.v->len * sizeof *v) : NULL;
    *count = 0;
    if (!v) {
        jdoc_bad(p->r->j, p->r->err, "key %s of the scaling of RoPE is %s, expected an array of numbers", key,
                 jdoc_type_name(f.v));
        return NULL;
    }
    JDOC_EACH(f.j, e, f.v) {
        double d = jdoc_number(f.j, e);
        if (!isfinite(d)) {
            refuse_value(p->r, key, (struct found){f.j, e}, "a finite number");
            return NULL;
        }
        v[(*count)++] = (float)d;
    }
    return v;
}

static bool read_longrope(const struct rope_reader *p) {
    struct hf_config *c = p->r->c;
    double attention = NAN, factor = p->factor > 0 ? p->factor : (double)c->context / p->original;
    int64_t count;
    if (!read_rope_number(p, "attention_factor", &attention) ||
        !(c->short_factors = read_factors(p, "short_factor", &c->num_factors)) ||
        !(c->long_factors = read_factors(p, "long_factor", &count)))
        return false;
    if (count != c->num_factors) {
        jdoc_bad(p->r->j, p->r->err, "short_factor has %lld numbers and long_factor %lld, expected as many",
                 (long long)c->num_factors, (long long)count);
        return false;
    }
    if (isnan(attention))
        attention = factor <= 1 ? 1 : sqrt(1 + log(factor) / log(p->original));
    if (attention != 1)
        add_float(p->r, "rope.scaling.attn_factor", attention, "attention_factor");
    add_int(p->r, "rope.scaling.original_context_length", (int64_t)p->original,
            "original_max_position_embeddings");
    return true;
}

static bool read_rope_type(struct rope_reader *p) {
    const struct config_reader *r = p->r;
    const char *key = "rope_type";
    struct found type = find_rope(p, key);
    double alpha = 0, d = (double)r->c->head_dim;
    if (!type.v)
        type = find_rope(p, key = "type");
    if (!type.v || jdoc_is(r->j, type.v, "default"))
        return true;
    if (jdoc_is(r->j, type.v, "dynamic")) {
        // Without alpha: as it is until the context it was trained for, beyond which we do not go.
        if (!read_rope_number(p, "alpha", &alpha))
            return false;
        p->theta *= alpha > 0 && d > 2 ? pow(alpha, d / (d - 2)) : 1;
        return true;
    }
    if (jdoc_is(r->j, type.v, "longrope") || jdoc_is(r->j, type.v, "su"))
        return read_longrope(p);
    if (jdoc_is(r->j, type.v, "yarn"))
        return read_yarn(p);
    if (jdoc_is(r->j, type.v, "llama3")) {
        add_scaling(p, "llama3");
        return copy_rope(p, "low_freq_factor", "rope.scaling.low_freq_factor") &&
               copy_rope(p, "high_freq_factor", "rope.scaling.high_freq_factor");
    }
    if (jdoc_is(r->j, type.v, "linear")) {
        add_scaling(p, "linear");
        return true;
    }
    return refuse_value(r, key, type, "default, linear, dynamic, yarn, llama3 or longrope");
}

static bool read_rope(struct config_reader *r) {
    struct found f = find_key(r, "rope_parameters"), window = {r->j, NULL};
    struct rope_reader p = {.r = r, .theta = 10000, .original = (double)r->c->context};
    double part = NAN;
    if (!f.v)
        f = find_key(r, "rope_scaling");
    if (f.v && f.v->type != JDOC_OBJECT)
        return refuse_value(r, "rope_scaling", f, "an object");
    if (jdoc_get(r->j, f.v, "full_attention")) { // one for each type of layer
        window.v = jdoc_get(r->j, f.v, "sliding_attention");
        f.v = jdoc_get(r->j, f.v, "full_attention");
    }
    p.dict = f.v;
    if (!check_rope_keys(&p) || !read_number(r, "rope_theta", &p.theta) ||
        !read_rope_number(&p, "rope_theta", &p.theta) || !read_rope_number(&p, "factor", &p.factor) ||
        !read_number(r, "original_max_position_embeddings", &p.original) ||
        !read_rope_number(&p, "original_max_position_embeddings", &p.original) ||
        !read_number(r, "partial_rotary_factor", &part) ||
        !read_rope_number(&p, "partial_rotary_factor", &part))
        return false;
    if (p.original < 1 || p.original > INT32_MAX || p.factor < 0) {
        jdoc_bad(r->j, r->err, "RoPE has factor %g and %g original positions, expected at least 0 and 1",
                 p.factor, p.original);
        return false;
    }
    if (!read_rope_type(&p))
        return false;
    struct rope_reader local = {.r = r, .dict = window.v};
    struct found type = find_rope(&local, "rope_type");
    if (type.v && !jdoc_is(r->j, type.v, "default"))
        return refuse_value(r, "rope_type", type, "default for layers with a window");
    if (window.v && (!read_rope_number(&local, "rope_theta", &local.theta) || local.theta <= 0))
        return refuse_value(r, "sliding_attention", window, "an object with rope_theta");
    if (window.v)
        add_float(r, "rope.freq_base_swa", local.theta, "rope_theta of sliding_attention");
    add_float(r, "rope.freq_base", p.theta, "rope_theta");
    add_int(r, "context_length", r->c->context, "max_position_embeddings");
    if (!isnan(part) && part != 1) {
        if (r->c->family->adjacent) {
            jdoc_bad(r->j, r->err, "partial_rotary_factor is %g, expected 1 for model_type %s", part,
                     r->c->family->model_type);
            return false;
        }
        add_int(r, "rope.dimension_count", (int64_t)((double)r->c->head_dim * part), "partial_rotary_factor");
    }
    return true;
}

// ---- how to generate

static void read_eos(const struct jdoc *j, const struct jdoc_value *v, struct hf_config *c) {
    int64_t id;
    if (jdoc_integer(j, v, &id) && id >= 0 && c->num_eos < HF_MAX_EOS)
        c->eos[c->num_eos++] = id;
    if (v && v->type == JDOC_ARRAY)
        JDOC_EACH(j, e, v)
    if (jdoc_integer(j, e, &id) && id >= 0 && c->num_eos < HF_MAX_EOS)
        c->eos[c->num_eos++] = id;
}

static void read_generation(struct config_reader *r, const struct jdoc *g) {
    static const char *const names[][2] = {{"temperature", "general.sampling.temp"},
                                           {"top_p", "general.sampling.top_p"},
                                           {"min_p", "general.sampling.min_p"},
                                           {"repetition_penalty", "general.sampling.penalty_repeat"}};
    const struct jdoc_value *root = g ? g->values : NULL;
    int64_t top_k;
    if (g)
        read_eos(g, jdoc_get(g, root, "eos_token_id"), r->c);
    if (r->c->num_eos == 0)
        read_eos(r->j, jdoc_get(r->j, r->text, "eos_token_id"), r->c);
    if (r->c->num_eos == 0)
        read_eos(r->j, jdoc_get(r->j, r->root, "eos_token_id"), r->c);
    for (size_t i = 0; g && i < sizeof names / sizeof *names; i++) {
        double v = jdoc_number(g, jdoc_get(g, root, names[i][0]));
        if (isfinite(v))
            hf_float(r->keys, names[i][1], v, names[i][0]);
    }
    if (g && jdoc_integer(g, jdoc_get(g, root, "top_k"), &top_k) && top_k >= 0)
        hf_int(r->keys, "general.sampling.top_k", top_k, "top_k");
}

static bool read_all(struct config_reader *r, const struct jdoc *generation) {
    const struct jdoc_value *root = r->root;
    if (root->type != JDOC_OBJECT) {
        jdoc_bad(r->j, r->err, "the text is %s, expected an object", jdoc_type_name(root));
        return false;
    }
    const struct jdoc_value *text = jdoc_get(r->j, root, "text_config");
    r->text = text ? text : root;
    if (!read_family(r))
        return false;
    hf_str(r->keys, "general.architecture", view_of(r->c->family->arch), "model_type");
    if (!check_quantization(r) || !check_keys(r) || !check_activation(r) || !read_sizes(r) ||
        !read_scales(r) || !read_window(r) || !check_no_rope(r) || !read_rope(r))
        return false;
    struct found tied = {r->j, jdoc_get(r->j, r->text, "tie_word_embeddings")};
    if (!tied.v)
        tied.v = jdoc_get(r->j, root, "tie_word_embeddings");
    if (!tied.v)
        tied = find_key(r, "tie_word_embeddings");
    r->c->tied = tied.v && tied.v->type == JDOC_TRUE;
    if (!read_plain(r))
        return false;
    read_generation(r, generation);
    return true;
}

enum status hf_config_read(const struct jdoc *config, const struct jdoc *generation, struct hf_keys *keys,
                           struct hf_config *c, struct err *err) {
    struct err local = {0};
    struct config_reader r = {
        .j = config, .root = config->values, .keys = keys, .c = c, .err = err ? err : &local};
    *c = (struct hf_config){.family = NULL};
    bool ok = read_all(&r, generation);
    jdoc_free(&r.defaults);
    if (ok && keys->failed)
        return err_set(r.err, STATUS_NOMEM, "%s: out of memory", config->name);
    return ok ? STATUS_OK : r.err->code;
}
