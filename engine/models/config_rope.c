// See config_reader.h: the rotation of positions and its scalings.
#include "config_reader.h"

#include <math.h>
#include <string.h>

// A tensor that divides each frequency into *factors, which stays as it is where there is none.
static bool read_factors(struct config_reader *r, const char *name, const float **factors) {
    const struct rope_config *rope = &r->h.rope;
    const struct model_tensor *t = model_file_find(r->f, name);
    if (!t)
        return true;
    if (t->view.dtype != DTYPE_F32 || t->view.ndim != 1 || t->view.shape[0] != rope->dim / 2) {
        model_file_bad(r->f, r->err, "tensor %s is %s with %lld elements, expected F32 with %d", name,
                       t->type_name, (long long)t->elements, rope->dim / 2);
        return false;
    }
    const float *f = model_file_keep(r->f, t, r->err);
    if (!f)
        return false;
    for (int i = 0; i < rope->dim / 2; i++)
        if (!isfinite(f[i]) || f[i] <= 0) {
            model_file_bad(r->f, r->err, "tensor %s holds %g at byte %llu, expected a finite number above 0",
                           name, (double)f[i], (unsigned long long)t->offset + 4 * (unsigned)i);
            return false;
        }
    *factors = f;
    return true;
}

// Reads factors of each frequency from tensors: Llama 3's scaling, computed when the file was made, or LongRoPE's.
static bool read_freq_factors(struct config_reader *r) {
    struct rope_config *rope = &r->h.rope;
    const char *const names[2] = {ROPE_SHORT_FACTORS, ROPE_LONG_FACTORS};
    if (!read_factors(r, ROPE_FACTORS, &rope->freq_factors))
        return false;
    bool others = rope->freq_factors || rope->scaling != ROPE_NONE, has[2];
    for (int i = 0; i < 2; i++)
        has[i] = model_file_find(r->f, names[i]) != NULL;
    if (has[0] != has[1] || (has[0] && others)) {
        model_file_bad(r->f, r->err, "tensor %s is there, and %s", names[!has[0]],
                       has[0] == has[1] ? "another scaling of RoPE" : "the other one of LongRoPE is not");
        return false;
    }
    return !has[0] || (config_read(r, H_ROPE_CONTEXT) && read_factors(r, names[0], &rope->freq_factors) &&
                       read_factors(r, names[1], &rope->long_factors));
}

// Pairs for time, height and width, and a fourth number, which llama.cpp keeps for more.
static bool read_sections(struct config_reader *r) {
    struct rope_config *rope = &r->h.rope;
    const char *key = config_key(r, H_ROPE_SECTIONS);
    struct meta_array a;
    int64_t sum = 0;
    if (!config_find(r, H_ROPE_SECTIONS))
        return true;
    if (meta_array(r->f, key, true, META_I32, &a, r->err))
        return false;
    bool ok = a.count == ROPE_AXES || (a.count == ROPE_AXES + 1 && meta_array_int(&a, ROPE_AXES) == 0);
    for (uint64_t i = 0; ok && i < ROPE_AXES; i++) {
        int64_t n = meta_array_int(&a, i);
        ok = n >= (i == 0) && n <= rope->dim;
        rope->sections.size[i] = (int)n;
        sum += n;
    }
    if (!ok || sum != rope->dim / 2) {
        model_file_bad(r->f, r->err, "key %s has other numbers than three that share the %d pairs of a head",
                       key, rope->dim / 2);
        return false;
    }
    rope->sections.in_turns = r->arch->axes_in_turns;
    return true;
}

// The temperature of queries. Where layers that do not rotate have it, positions count from 1.
static bool read_temperature(struct config_reader *r) {
    struct attn_spec *a = &r->h.attn;
    bool still = r->arch->still_temp > 0;
    a->temp_scale = r->arch->still_temp;
    a->temp_offset = still;
    if (config_given(r, H_ATTN_TEMP) && (!config_read(r, H_ATTN_TEMP) || !config_read(r, H_ROPE_CONTEXT)))
        return false;
    a->temp_step = still ? r->arch->still_step : r->h.rope.original_context;
    return config_read(r, H_ATTN_TEMP_STEP);
}

// Reads the keys that this kind of scaling needs beside the factor.
static bool read_scaling(struct config_reader *r) {
    struct rope_config *rope = &r->h.rope;
    bool llama3 = rope->scaling == ROPE_LLAMA3, yarn = rope->scaling == ROPE_YARN;
    if (llama3 && !config_find(r, H_ROPE_CONTEXT)) {
        model_file_bad(r->f, r->err, "key %s is missing", config_key(r, H_ROPE_CONTEXT));
        return false;
    }
    if ((llama3 || yarn) && !config_read(r, H_ROPE_CONTEXT))
        return false;
    if (yarn && (!config_read(r, H_ROPE_BETA_FAST) || !config_read(r, H_ROPE_BETA_SLOW)))
        return false;
    if (yarn && (rope->theta <= 1 || rope->factor < 1)) {
        model_file_bad(r->f, r->err, "yarn with base %g and factor %g: expected above 1 and at least 1",
                       (double)rope->theta, (double)rope->factor);
        return false;
    }
    if (yarn && config_given(r, H_ROPE_YARN_LOG) && !config_read(r, H_ROPE_YARN_LOG))
        return false;
    // Peng et al., section 3.4: the temperature of attention, folded into cos and sin. A multiplier takes its part of it
    // from there; with DeepSeek, whose files have a tenth of it, all, which the scores get.
    bool latent = r->h.attn.kind == ATTN_LATENT;
    float whole = 0.1f * logf(rope->factor) + 1.0f;
    float mscale = (latent ? 1 : 0.1f) * r->h.yarn_log * logf(rope->factor) + 1.0f;
    if (latent && r->h.yarn_log > 0)
        r->h.attn.scale *= mscale * mscale;
    else if (yarn)
        rope->attn_factor *= whole / mscale;
    for (enum hparam id = H_ROPE_LOW_FREQ; id <= H_ROPE_HIGH_FREQ && !llama3; id++)
        if (config_find(r, id)) {
            model_file_bad(r->f, r->err,
                           "key %s is there, which means something to scaling of type llama3 only", r->key);
            return false;
        }
    if (llama3 && (!config_read(r, H_ROPE_LOW_FREQ) || !config_read(r, H_ROPE_HIGH_FREQ)))
        return false;
    if (llama3 && rope->low_freq >= rope->high_freq) {
        model_file_bad(r->f, r->err, "key %s is %g, expected above low_freq_factor, %g",
                       config_key(r, H_ROPE_HIGH_FREQ), (double)rope->high_freq, (double)rope->low_freq);
        return false;
    }
    if (llama3 && model_file_find(r->f, ROPE_FACTORS)) {
        model_file_bad(
            r->f, r->err,
            "key %s is 'llama3' and tensor %s is there, which may be the same scaling again; expected "
            "one of them",
            config_key(r, H_ROPE_TYPE), ROPE_FACTORS);
        return false;
    }
    return true;
}

static bool find_scaling(struct config_reader *r, struct text_view type, enum rope_scaling *scaling) {
    static const char *const names[] = {
        [ROPE_NONE] = "none", [ROPE_LINEAR] = "linear", [ROPE_YARN] = "yarn", [ROPE_LLAMA3] = "llama3"};
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
        if (config_is(names[k], type.data, type.len)) {
            *scaling = (enum rope_scaling)k;
            return true;
        }
    if (config_is("longrope", type.data, type.len) && model_file_find(r->f, ROPE_LONG_FACTORS)) {
        *scaling = ROPE_NONE; // its tensors say the rest
        return true;
    }
    model_file_bad(r->f, r->err,
                   "key %s is '%.*s', which is not supported; supported: none, linear, yarn, llama3",
                   config_key(r, H_ROPE_TYPE), (int)type.len, type.data);
    return false;
}

bool config_rope(struct config_reader *r) {
    struct rope_config *rope = &r->h.rope;
    struct text_view type = {"", 0};
    *rope = (struct rope_config){
        .theta = 10000,
        .dim = r->h.attn.head_dim,
        .interleaved = r->arch->rope_interleaved,
        .factor = 1,
        .original_context = r->h.context,
        .low_freq = 1,
        .high_freq = 4,
        .beta_fast = 32,
        .beta_slow = 1,
        .fine_ramp = r->arch->fine_ramp,
        .attn_factor = 1,
    };
    bool rotates = true;
    if (arch_may_have(r->arch, H_ROPE_FINETUNED) &&
        meta_bool(r->f, config_key(r, H_ROPE_FINETUNED), &rotates, r->err))
        return false;
    r->no_rope = !rotates;
    if (!config_read(r, H_ROPE_BASE))
        return false;
    r->h.window_theta = r->arch->window_theta > 0 ? r->arch->window_theta : rope->theta;
    if (!config_read(r, H_ROPE_WINDOW_BASE) || !config_read(r, H_ROPE_DIM) ||
        !config_read(r, H_ROPE_ATTN_FACTOR))
        return false;
    if (rope->dim % 2) {
        model_file_bad(r->f, r->err, "key %s is %d, expected an even number", config_key(r, H_ROPE_DIM),
                       rope->dim);
        return false;
    }
    if (!read_sections(r))
        return false;
    if (meta_str(r->f, config_key(r, H_ROPE_TYPE), false, 64, &type, r->err))
        return false;
    enum hparam factor = config_find(r, H_ROPE_FACTOR) ? H_ROPE_FACTOR : H_ROPE_OLD_FACTOR;
    bool given = config_given(r, factor);
    if (given && !config_read(r, factor))
        return false;
    if (type.len == 0)
        rope->scaling = given && rope->factor != 1 ? ROPE_LINEAR : ROPE_NONE;
    else if (!find_scaling(r, type, &rope->scaling))
        return false;
    // llama.cpp writes factors of frequencies instead of these keys.
    if (rope->scaling == ROPE_LLAMA3 && !given) {
        model_file_bad(r->f, r->err, "key %s is missing, which scaling of type llama3 needs",
                       config_key(r, H_ROPE_FACTOR));
        return false;
    }
    if (rope->scaling == ROPE_NONE)
        rope->factor = 1;
    return read_scaling(r) && read_temperature(r) && read_freq_factors(r);
}
