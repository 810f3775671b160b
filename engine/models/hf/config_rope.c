// See reader.h: the rotation of positions and its scalings, as in modeling_rope_utils.py of transformers 4.57.
#include "reader.h"

#include "models/architectures.h"

#include <math.h>
#include <string.h>

struct rope_reader {
    const struct hf_reader *r;
    const struct jdoc *j;          // of dict: config.json, or the family's defaults
    const struct jdoc_value *dict; // of scaling; NULL: none
    double theta, factor, original;
};

static struct hf_found find_rope(const struct rope_reader *p, const char *key) {
    return hf_found_in(p->j, p->dict, key);
}

static bool read_rope_number(const struct rope_reader *p, const char *key, double *v) {
    return hf_take_number(p->r, key, find_rope(p, key), v);
}

// Adds a factor of the scaling under our name, where it is there.
static bool copy_rope(const struct rope_reader *p, const char *theirs, const char *ours) {
    double v = NAN;
    if (!read_rope_number(p, theirs, &v))
        return false;
    if (!isnan(v))
        hf_add_float(p->r, ours, v, theirs);
    return true;
}

static const struct arch *arch_of(const struct hf_config *c) {
    return arch_find(c->family->arch, strlen(c->family->arch));
}

// Whether the architecture's ramp of YaRN is not cut at whole pairs.
static bool has_fine_ramp(const struct hf_config *c) { return arch_of(c)->fine_ramp; }

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
                                        "short_mscale", // PhiMoE's, which are equal
                                        "long_mscale",
                                        "partial_rotary_factor",
                                        "mrope_section",
                                        "mrope_interleaved",
                                        "max_position_embeddings", // said again
                                        "finetuned"};
    const struct jdoc *j = p->j;
    JDOC_EACH_KEY(j, key, p->dict) {
        bool found = hf_is_neutral(j, key + 1) && !jdoc_is(j, key, "truncate");
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
    hf_str(p->r->keys, hf_our_key(p->r, "rope.scaling.type"), view_of(type), "rope_type");
    if (p->factor > 0)
        hf_add_float(p->r, "rope.scaling.factor", p->factor, "factor");
    hf_add_int(p->r, "rope.scaling.original_context_length", (int64_t)p->original,
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
    if (isnan(attention))
        attention =
            mscale != 0 && all != 0 ? yarn_mscale(p->factor, mscale) / yarn_mscale(p->factor, all) : implied;
    if (c->rope_dim) { // DeepSeek: scores get the part of mscale_all_dim
        if (all != 0)
            hf_add_float(p->r, "rope.scaling.yarn_log_multiplier", 0.1 * all, "mscale_all_dim");
        implied = all != 0 ? 1 : implied;
    }
    if (attention != implied) // ours multiplies what the factor implies
        hf_add_float(p->r, "rope.scaling.attn_factor", attention / implied, "attention_factor");
    add_scaling(p, "yarn");
    if (p->factor * p->original > (double)c->context) // Qwen's files keep the context before scaling
        c->context = (int64_t)fmin(p->factor * p->original, INT32_MAX);
    return true;
}

static const float *read_factors(const struct rope_reader *p, const char *key, int64_t *count) {
    struct hf_found f = find_rope(p, key);
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
            hf_refuse_value(p->r, key, (struct hf_found){.j = f.j, .v = e}, "a finite number");
            return NULL;
        }
        v[(*count)++] = (float)d;
    }
    return v;
}

// PhiMoE says its factor of attention. llama.cpp's converter writes Phi 3's formula for it, so a GGUF file made by that has
// another one than the folder.
static bool read_longrope(const struct rope_reader *p) {
    struct hf_config *c = p->r->c;
    double attention = NAN, factor = p->factor > 0 ? p->factor : (double)c->context / p->original;
    double far = NAN;
    int64_t count;
    bool own = hf_key_find(c->family, view_of("router_jitter_noise"));
    if (!read_rope_number(p, own ? "short_mscale" : "attention_factor", &attention) ||
        !read_rope_number(p, "long_mscale", &far) ||
        !(c->short_factors = read_factors(p, "short_factor", &c->num_factors)) ||
        !(c->long_factors = read_factors(p, "long_factor", &count)))
        return false;
    if (count != c->num_factors) {
        jdoc_bad(p->r->j, p->r->err, "short_factor has %lld numbers and long_factor %lld, expected as many",
                 (long long)c->num_factors, (long long)count);
        return false;
    }
    if (own && far != attention) {
        jdoc_bad(p->r->j, p->r->err, "short_mscale is %g and long_mscale %g, expected the same", attention,
                 far);
        return false;
    }
    if (isnan(attention))
        attention = factor <= 1 ? 1 : sqrt(1 + log(factor) / log(p->original));
    if (attention != 1)
        hf_add_float(p->r, "rope.scaling.attn_factor", attention, "attention_factor");
    hf_add_int(p->r, "rope.scaling.original_context_length", (int64_t)p->original,
               "original_max_position_embeddings");
    return true;
}

// Gemma 4: pairs behind a part of the head, of whose whole size frequencies are made, stay as they are.
static bool read_proportional(const struct rope_reader *p) {
    struct hf_config *c = p->r->c;
    double part = 1;
    if (!read_rope_number(p, "partial_rotary_factor", &part))
        return false;
    float *v = hf_alloc(p->r->keys, (size_t)c->head_dim / 2 * sizeof *v);
    c->num_factors = c->head_dim / 2;
    for (int64_t i = 0; v && i < c->num_factors; i++)
        v[i] = i < (int64_t)(part * (double)c->head_dim / 2) ? 1 : 1e30f; // as llama.cpp writes it
    c->freq_factors = v;
    return true;
}

static bool read_rope_type(struct rope_reader *p) {
    const struct hf_reader *r = p->r;
    const char *key = "rope_type";
    struct hf_found type = find_rope(p, key);
    double alpha = 0, d = (double)r->c->head_dim;
    if (!type.v)
        type = find_rope(p, key = "type");
    if (!type.v || jdoc_is(p->j, type.v, "default") || jdoc_is(p->j, type.v, "mrope"))
        return true;
    if (jdoc_is(p->j, type.v, "dynamic")) {
        // Without alpha: as it is until the context it was trained for, beyond which we do not go.
        if (!read_rope_number(p, "alpha", &alpha))
            return false;
        p->theta *= alpha > 0 && d > 2 ? pow(alpha, d / (d - 2)) : 1;
        return true;
    }
    if (jdoc_is(p->j, type.v, "longrope") || jdoc_is(p->j, type.v, "su"))
        return read_longrope(p);
    if (jdoc_is(p->j, type.v, "yarn")) {
        p->factor = p->factor > 0 ? p->factor : (double)r->c->context / p->original;
        return read_yarn(p);
    }
    if (p->factor == 0 && (jdoc_is(p->j, type.v, "llama3") || jdoc_is(p->j, type.v, "linear"))) {
        jdoc_bad(r->j, r->err, "key factor of the scaling of RoPE is missing");
        return false;
    }
    if (jdoc_is(p->j, type.v, "llama3")) {
        add_scaling(p, "llama3");
        return copy_rope(p, "low_freq_factor", "rope.scaling.low_freq_factor") &&
               copy_rope(p, "high_freq_factor", "rope.scaling.high_freq_factor");
    }
    if (jdoc_is(p->j, type.v, "linear")) {
        add_scaling(p, "linear");
        return true;
    }
    if (r->c->window_dim > 0 && jdoc_is(p->j, type.v, "proportional"))
        return read_proportional(p);
    return hf_refuse_value(r, key, type, "default, linear, dynamic, yarn, llama3 or longrope");
}

// The sections of the three axes; of text they are equal, so that architectures which know one do without. transformers takes
// mrope_interleaved from the architecture.
static bool read_sections(const struct rope_reader *p) {
    struct hf_found f = find_rope(p, "mrope_section"), turns = find_rope(p, "mrope_interleaved");
    const struct arch *arch = arch_of(p->r->c);
    if (!f.v || !arch_knows_key(arch, H_ROPE_SECTIONS))
        return true;
    if (turns.v && (turns.v->type == JDOC_TRUE) != arch->axes_in_turns)
        return hf_refuse_value(p->r, "mrope_interleaved", turns, arch->axes_in_turns ? "true" : "false");
    int32_t *sizes = hf_alloc(p->r->keys, (ROPE_AXES + 1) * sizeof *sizes);
    int64_t v = 0;
    int n = 0;
    if (f.v->type != JDOC_ARRAY || f.v->len != ROPE_AXES)
        return hf_refuse_value(p->r, "mrope_section", f, "three numbers");
    JDOC_EACH(f.j, e, f.v) {
        if (!jdoc_integer(f.j, e, &v) || v < 0 || v > INT32_MAX)
            return hf_refuse_value(p->r, "mrope_section", (struct hf_found){.j = f.j, .v = e}, "a size");
        if (sizes)
            sizes[n++] = (int32_t)v;
    }
    if (sizes)
        sizes[ROPE_AXES] = 0;
    hf_array(p->r->keys, hf_our_key(p->r, "rope.dimension_sections"), META_I32, ROPE_AXES + 1, sizes,
             "mrope_section");
    return true;
}

// Scalings are said for all layers, or apart for those with a window, which do not scale. Those of config.json go before the
// family's, and rope_scaling is their name in transformers 4.
static bool find_dicts(const struct hf_reader *r, struct rope_reader *p, struct rope_reader *local) {
    static const char *const keys[] = {"rope_parameters", "rope_scaling"};
    struct hf_found f = {.j = r->j};
    const char *key = keys[0];
    for (int i = 0; i < 2 && !f.v; i++)
        f = hf_found_in(r->j, r->text, key = keys[i]);
    if (!f.v)
        f = hf_find_key(r, key = keys[0]);
    if (f.v && f.v->type != JDOC_OBJECT)
        return hf_refuse_value(r, key, f, "an object");
    p->j = local->j = f.j;
    p->dict = f.v;
    if (jdoc_find(f.j, f.v, "full_attention") || jdoc_find(f.j, f.v, "sliding_attention")) {
        local->dict = jdoc_get(f.j, f.v, "sliding_attention");
        p->dict = jdoc_get(f.j, f.v, "full_attention");
    }
    return true;
}

// Layers with a window, where they rotate by a base of their own.
static bool read_window_rope(struct rope_reader *p) {
    static const char key[] = "rope_local_base_freq";
    struct hf_found type = find_rope(p, "rope_type"), part = find_rope(p, "partial_rotary_factor"),
                    base = hf_find_key(p->r, key), own = find_rope(p, "rope_theta");
    p->theta = NAN;
    if (type.v && !jdoc_is(p->j, type.v, "default"))
        return hf_refuse_value(p->r, "rope_type", type, "default for layers with a window");
    if (part.v && jdoc_number(p->j, part.v) != 1)
        return hf_refuse_value(p->r, "partial_rotary_factor", part, "1 for layers with a window");
    if (!check_rope_keys(p) ||
        (hf_key_find(p->r->c->family, view_of(key)) && !hf_read_number(p->r, key, &p->theta)) ||
        !read_rope_number(p, "rope_theta", &p->theta))
        return false;
    if (p->theta <= 0)
        return hf_refuse_value(p->r, own.v ? "rope_theta" : key, own.v ? own : base, "a positive number");
    if (!isnan(p->theta))
        hf_add_float(p->r, "rope.freq_base_swa", p->theta,
                     own.v      ? "rope_theta of sliding_attention"
                     : base.key ? base.key
                                : key);
    return true;
}

bool hf_read_rope(struct hf_reader *r) {
    struct rope_reader p = {.r = r, .theta = 10000, .original = (double)r->c->context};
    struct rope_reader local = {.r = r};
    double part = NAN;
    if (!find_dicts(r, &p, &local))
        return false;
    if (!check_rope_keys(&p) || !hf_read_number(r, "rope_theta", &p.theta) ||
        !hf_read_number(r, "rotary_emb_base", &p.theta) || !hf_read_number(r, "rotary_pct", &part) ||
        !hf_read_number(r, "global_rope_theta", &p.theta) || !read_rope_number(&p, "rope_theta", &p.theta) ||
        !read_rope_number(&p, "factor", &p.factor) ||
        !hf_read_number(r, "original_max_position_embeddings", &p.original) ||
        !read_rope_number(&p, "original_max_position_embeddings", &p.original) ||
        !hf_read_number(r, "partial_rotary_factor", &part) ||
        !read_rope_number(&p, "partial_rotary_factor", &part))
        return false;
    if (isnan(part) &&
        hf_key_find(r->c->family, view_of("rotary_dim"))) { // MiniMax M2 says the size, not the part
        if (!hf_read_number(r, "rotary_dim", &part))
            return false;
        part /= (double)r->c->head_dim;
    }
    if (p.original < 1 || p.original > INT32_MAX || p.factor < 0) {
        jdoc_bad(r->j, r->err, "RoPE has factor %g and %g original positions, expected at least 0 and 1",
                 p.factor, p.original);
        return false;
    }
    if (!read_rope_type(&p) || !read_sections(&p))
        return false;
    if (!read_window_rope(&local))
        return false;
    hf_add_float(r, "rope.freq_base", p.theta, "rope_theta");
    hf_add_int(r, "context_length", r->c->context, "max_position_embeddings");
    if (r->c->rope_dim) {
        hf_add_int(r, "rope.dimension_count", r->c->rope_dim, "qk_rope_head_dim");
        return true;
    }
    if (!isnan(part) && part != 1 && !r->c->freq_factors) {
        if (r->c->family->adjacent) {
            jdoc_bad(r->j, r->err, "partial_rotary_factor is %g, expected 1 for model_type %s", part,
                     r->c->family->model_type);
            return false;
        }
        hf_add_int(r, "rope.dimension_count", (int64_t)((double)r->c->head_dim * part),
                   "partial_rotary_factor");
    }
    return true;
}
