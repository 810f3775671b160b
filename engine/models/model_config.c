// See model_config.h. What an architecture's keys are called and which values they may have: architectures.c.
// Over 600 lines: the reading of every key, each with its refusals.
#include "model_config.h"

#include "architectures.h"
#include "kv_layers.h"
#include "utf8.h"

#include <math.h>
#include <string.h>

struct reader {
    const struct model_file *f;
    const struct arch *arch;
    struct hparams h;
    bool no_rope;                     // of all layers
    bool recurrent[MODEL_MAX_LAYERS]; // the layer has a state in place of keys and values
    struct err *err;
    char key[160];
};

static const char *arch_key(struct reader *r, const char *suffix) {
    snprintf(r->key, sizeof r->key, "%s.%s", r->arch->name, suffix);
    return r->key;
}

static const char *key_of(struct reader *r, enum hparam id) { return arch_key(r, r->arch->keys[id].suffix); }

static const struct meta *find_hparam(struct reader *r, enum hparam id) {
    return meta_find(r->f, key_of(r, id));
}

// An array of one integer for each layer.
static bool read_layers(struct reader *r, const char *key, struct meta_array *a) {
    if (meta_array(r->f, key, true, META_I32, a, r->err))
        return false;
    if (a->count != (uint64_t)r->h.layers)
        model_file_bad(r->f, r->err, "key %s has %llu elements, expected one for each of %d layers", key,
                       (unsigned long long)a->count, r->h.layers);
    return a->count == (uint64_t)r->h.layers;
}

// All equal.
static bool read_per_layer(struct reader *r, const char *key, int64_t min, int64_t max, int64_t *v) {
    struct meta_array a;
    if (!read_layers(r, key, &a))
        return false;
    for (int i = 0; i < r->h.layers; i++) {
        *v = meta_array_int(&a, (uint64_t)i);
        if (*v < min || *v > max || *v != meta_array_int(&a, 0)) {
            model_file_bad(r->f, r->err,
                           "key %s is %lld for layer %d: expected %lld to %lld, the same for every layer",
                           key, (long long)*v, i, (long long)min, (long long)max);
            return false;
        }
    }
    return true;
}

static bool read_int(struct reader *r, const struct hparam_key *k, const char *key, int *value) {
    const struct meta *m = meta_find(r->f, key);
    int64_t v = *value, min = (int64_t)k->min, max = (int64_t)k->max;
    if (k->bound)
        max = *(const int *)((const char *)&r->h + k->bound);
    if (m && m->type == META_ARRAY && k->per_layer) {
        if (!read_per_layer(r, key, min, max, &v))
            return false;
    } else if (meta_int(r->f, key, k->required, min, max, &v, r->err)) {
        return false;
    }
    *value = (int)v;
    return true;
}

static bool read_float(struct reader *r, const struct hparam_key *k, const char *key, float *value) {
    double v = (double)*value;
    if (meta_float(r->f, key, k->required, &v, r->err))
        return false;
    if (!meta_find(r->f, key))
        return true;
    if (v <= k->min || v > k->max) {
        model_file_bad(r->f, r->err, "key %s is %g, expected above %g and at most %g", key, v, k->min,
                       k->max);
        return false;
    }
    *value = (float)v;
    return true;
}

static bool has_bit(uint64_t set, enum hparam id) { return set >> id & 1; }

// Into its field, which keeps what it holds where the key is absent and not required, or not for this architecture.
static bool read_hparam(struct reader *r, enum hparam id) {
    struct hparam_key k = r->arch->keys[id];
    char *field = (char *)&r->h + k.field;
    k.required |= has_bit(r->arch->must, id);
    if (k.of_some && !has_bit(r->arch->may | r->arch->must, id))
        return true;
    return k.type == HPARAM_INT ? read_int(r, &k, key_of(r, id), (int *)(void *)field)
                                : read_float(r, &k, key_of(r, id), (float *)(void *)field);
}

// Whether a key is there and holds another number than 0, which stands for the default.
static bool is_given(struct reader *r, enum hparam id) {
    const struct meta *m = find_hparam(r, id);
    char text[32];
    return m && strcmp(meta_text(m, text, sizeof text), "0") != 0;
}

// Whether the key holds one of the values that change nothing.
static bool is_harmless(const struct meta *m, enum key_values values) {
    char text[64];
    meta_text(m, text, sizeof text);
    switch (values) {
    case VALUE_ANY: return true;
    case VALUE_ZERO: return !strcmp(text, "0") || !strcmp(text, "false");
    case VALUE_ONE: return !strcmp(text, "1");
    case VALUE_TRUE: return !strcmp(text, "true");
    }
    return false;
}

static bool is_suspect(const struct arch *a, const char *name, size_t len) {
    for (int k = 0; k < a->num_suspects; k++) {
        size_t n = strlen(a->suspects[k].part);
        for (size_t i = 0; i + n <= len && (i == 0 || a->suspects[k].anywhere); i++)
            if (memcmp(name + i, a->suspects[k].part, n) == 0)
                return true;
    }
    return false;
}

static bool is_named(const char *suffix, const char *name, size_t len) {
    return strlen(suffix) == len && memcmp(suffix, name, len) == 0;
}

// Whether a key, which begins with the architecture's name, says nothing that Quire does not compute.
static bool is_known(const struct arch *a, const struct meta *m, const char *name, size_t len) {
    for (int i = 0; i < NUM_HPARAMS; i++)
        if (is_named(a->keys[i].suffix, name, len) && (!a->keys[i].of_some || has_bit(a->may | a->must, i)))
            return true;
    for (int i = 0; i < a->num_fixed; i++)
        if (is_named(a->fixed[i].suffix, name, len))
            return is_harmless(m, a->fixed[i].values);
    return !is_suspect(a, name, len) || is_harmless(m, VALUE_ZERO); // what is 0 or false is not there
}

// Keys of experts mean nothing to a model that has none.
static bool is_of_experts(const char *name, size_t len) { return len > 6 && memcmp(name, "expert", 6) == 0; }

// Refuses keys that would change the mathematics in a way we do not know.
static bool check_keys(struct reader *r) {
    size_t prefix = strlen(r->arch->name) + 1;
    bool experts = is_given(r, H_EXPERTS);
    for (size_t i = 0; i < r->f->num_meta; i++) {
        const struct meta *m = &r->f->meta[i];
        char text[64];
        if (m->key.len <= prefix || memcmp(m->key.data, arch_key(r, ""), prefix) != 0)
            continue;
        const char *name = m->key.data + prefix;
        size_t len = m->key.len - prefix;
        if (is_known(r->arch, m, name, len) || (!experts && is_of_experts(name, len)))
            continue;
        model_file_bad(r->f, r->err,
                       "key %.*s is %s: Quire does not know how to compute that for architecture %s",
                       (int)(m->key.len < 128 ? m->key.len : 128), m->key.data,
                       meta_text(m, text, sizeof text), r->arch->name);
        return false;
    }
    return true;
}

// A tensor that divides each frequency into *factors, which stays as it is where there is none.
static bool read_factors(struct reader *r, const char *name, const float **factors) {
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

// Llama 3's scaling, worked out by whoever made the file, or LongRoPE's.
static bool read_freq_factors(struct reader *r) {
    struct rope_config *rope = &r->h.rope;
    const char *const names[2] = {r->arch->short_factors, r->arch->long_factors};
    if (!read_factors(r, r->arch->freq_factors, &rope->freq_factors))
        return false;
    bool others = rope->freq_factors || rope->scaling != ROPE_NONE, has[2];
    for (int i = 0; i < 2; i++)
        has[i] = model_file_find(r->f, names[i]) != NULL;
    if (has[0] != has[1] || (has[0] && others)) {
        model_file_bad(r->f, r->err, "tensor %s is there, and %s", names[!has[0]],
                       has[0] == has[1] ? "another scaling of RoPE" : "the other one of LongRoPE is not");
        return false;
    }
    return !has[0] || (read_hparam(r, H_ROPE_CONTEXT) && read_factors(r, names[0], &rope->freq_factors) &&
                       read_factors(r, names[1], &rope->long_factors));
}

// What the scaling of this kind needs beside the factor.
static bool read_scaling(struct reader *r) {
    struct rope_config *rope = &r->h.rope;
    bool llama3 = rope->scaling == ROPE_LLAMA3, yarn = rope->scaling == ROPE_YARN;
    if (llama3 && !find_hparam(r, H_ROPE_CONTEXT)) {
        model_file_bad(r->f, r->err, "key %s is missing", key_of(r, H_ROPE_CONTEXT));
        return false;
    }
    if ((llama3 || yarn) && !read_hparam(r, H_ROPE_CONTEXT))
        return false;
    if (yarn && (!read_hparam(r, H_ROPE_BETA_FAST) || !read_hparam(r, H_ROPE_BETA_SLOW)))
        return false;
    if (yarn && (rope->theta <= 1 || rope->factor < 1)) {
        model_file_bad(r->f, r->err, "yarn with base %g and factor %g: expected above 1 and at least 1",
                       (double)rope->theta, (double)rope->factor);
        return false;
    }
    if (yarn && is_given(r, H_ROPE_YARN_LOG) && !read_hparam(r, H_ROPE_YARN_LOG))
        return false;
    float mscale = r->h.yarn_log * logf(rope->factor) + 1.0f;
    if (r->h.yarn_log > 0) // DeepSeek: the same temperature, of the whole score
        r->h.attn.scale *= mscale * mscale;
    else if (yarn) // Peng et al., section 3.4: the temperature of attention, folded into cos and sin
        rope->attn_factor *= 0.1f * logf(rope->factor) + 1.0f;
    for (enum hparam id = H_ROPE_LOW_FREQ; id <= H_ROPE_HIGH_FREQ && !llama3; id++)
        if (find_hparam(r, id)) {
            model_file_bad(r->f, r->err,
                           "key %s is there, which means something to scaling of type llama3 only", r->key);
            return false;
        }
    if (llama3 && (!read_hparam(r, H_ROPE_LOW_FREQ) || !read_hparam(r, H_ROPE_HIGH_FREQ)))
        return false;
    if (llama3 && rope->low_freq >= rope->high_freq) {
        model_file_bad(r->f, r->err, "key %s is %g, expected above low_freq_factor, %g",
                       key_of(r, H_ROPE_HIGH_FREQ), (double)rope->high_freq, (double)rope->low_freq);
        return false;
    }
    if (llama3 && model_file_find(r->f, r->arch->freq_factors)) {
        model_file_bad(
            r->f, r->err,
            "key %s is 'llama3' and tensor %s is there, which may be the same scaling again; expected "
            "one of them",
            key_of(r, H_ROPE_TYPE), r->arch->freq_factors);
        return false;
    }
    return true;
}

static bool find_scaling(struct reader *r, struct text_view type, enum rope_scaling *scaling) {
    static const char *const names[] = {
        [ROPE_NONE] = "none", [ROPE_LINEAR] = "linear", [ROPE_YARN] = "yarn", [ROPE_LLAMA3] = "llama3"};
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
        if (is_named(names[k], type.data, type.len)) {
            *scaling = (enum rope_scaling)k;
            return true;
        }
    if (is_named("longrope", type.data, type.len) && model_file_find(r->f, r->arch->long_factors)) {
        *scaling = ROPE_NONE; // its tensors say the rest
        return true;
    }
    model_file_bad(r->f, r->err,
                   "key %s is '%.*s', which is not supported; supported: none, linear, yarn, llama3",
                   key_of(r, H_ROPE_TYPE), (int)type.len, type.data);
    return false;
}

static bool read_rope(struct reader *r) {
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
        .attn_factor = 1,
    };
    bool rotates = true;
    if (has_bit(r->arch->may, H_ROPE_FINETUNED) &&
        meta_bool(r->f, key_of(r, H_ROPE_FINETUNED), &rotates, r->err))
        return false;
    r->no_rope = !rotates;
    if (!read_hparam(r, H_ROPE_BASE))
        return false;
    r->h.window_theta = r->arch->window_theta > 0 ? r->arch->window_theta : rope->theta;
    if (!read_hparam(r, H_ROPE_WINDOW_BASE) || !read_hparam(r, H_ROPE_DIM) ||
        !read_hparam(r, H_ROPE_ATTN_FACTOR))
        return false;
    if (rope->dim % 2) {
        model_file_bad(r->f, r->err, "key %s is %d, expected an even number", key_of(r, H_ROPE_DIM),
                       rope->dim);
        return false;
    }
    if (meta_str(r->f, key_of(r, H_ROPE_TYPE), false, 64, &type, r->err))
        return false;
    enum hparam factor = find_hparam(r, H_ROPE_FACTOR) ? H_ROPE_FACTOR : H_ROPE_OLD_FACTOR;
    bool given = is_given(r, factor);
    if (given && !read_hparam(r, factor))
        return false;
    if (type.len == 0)
        rope->scaling = given && rope->factor != 1 ? ROPE_LINEAR : ROPE_NONE;
    else if (!find_scaling(r, type, &rope->scaling))
        return false;
    // llama.cpp writes factors of frequencies instead of these keys.
    if (rope->scaling == ROPE_LLAMA3 && !given) {
        model_file_bad(r->f, r->err, "key %s is missing, which scaling of type llama3 needs",
                       key_of(r, H_ROPE_FACTOR));
        return false;
    }
    if (rope->scaling == ROPE_NONE)
        rope->factor = 1;
    return read_scaling(r) && read_freq_factors(r);
}

// Copies s with what is not UTF-8, or a control character, as '?': names go to logs and JSON.
static void copy_text(char *dst, size_t size, struct text_view s) {
    size_t n = 0;
    for (size_t i = 0; i < s.len;) {
        int len = utf8_len((const unsigned char *)s.data + i, s.len - i);
        size_t bytes = len ? (size_t)len : 1;
        if (n + bytes >= size)
            break;
        if (len == 0 || (unsigned char)s.data[i] < 0x20 || s.data[i] == 0x7f)
            dst[n++] = '?';
        else
            for (size_t k = 0; k < bytes; k++)
                dst[n++] = s.data[i + k];
        i += bytes;
    }
    dst[n] = 0;
}

static bool read_arch(struct reader *r, struct model_config *c) {
    const struct model_file *f = r->f;
    struct text_view s, type = {"", 0}, name = {"", 0};
    int64_t count = 0, no = 0;
    if (meta_int(f, "split.count", false, 0, 1024, &count, r->err) || // (11)
        meta_int(f, "split.no", false, 0, 1023, &no, r->err))
        return false;
    if (count > 0 && no >= count) {
        model_file_bad(f, r->err, "key split.no is %lld, expected less than split.count, %lld", (long long)no,
                       (long long)count);
        return false;
    }
    if (count > 1) {
        model_file_bad(
            f, r->err,
            "key split.count is %lld: models split into several files are not supported yet; merge them "
            "into one",
            (long long)count);
        return false;
    }
    if (meta_str(f, "general.type", false, 64, &type, r->err) ||
        meta_str(f, "general.architecture", true, 64, &s, r->err) ||
        meta_str(f, "general.name", false, SIZE_MAX, &name, r->err))
        return false;
    copy_text(c->arch, sizeof c->arch, s);
    copy_text(c->name, sizeof c->name, name);
    if (type.len && !(type.len == 5 && memcmp(type.data, "model", 5) == 0)) {
        model_file_bad(f, r->err, "key general.type is '%.*s', expected 'model'", (int)type.len, type.data);
        return false;
    }
    r->arch = arch_find(s.data, s.len);
    char supported[640] = "";
    for (int i = 0; arch_at(i); i++) {
        size_t n = strlen(supported);
        snprintf(supported + n, sizeof supported - n, "%s%s", i ? ", " : "", arch_at(i)->name);
    }
    if (!r->arch)
        model_file_bad(f, r->err, "architecture '%s' is not supported yet; supported: %s", c->arch,
                       supported);
    return r->arch != NULL;
}

// The number of heads for keys and values, and which layers have none: they are recurrent.
static bool read_kv_heads(struct reader *r) {
    const char *key = key_of(r, H_KV_HEADS);
    const struct meta *m = meta_find(r->f, key);
    struct meta_array a;
    int attending = 0;
    if (r->arch->mix == MIX_NONE || !m || m->type != META_ARRAY)
        return read_hparam(r, H_KV_HEADS);
    if (!read_layers(r, key, &a))
        return false;
    for (int i = 0; i < r->h.layers; i++) {
        int64_t v = meta_array_int(&a, (uint64_t)i);
        r->recurrent[i] = v == 0;
        if (v != 0 && attending++ == 0)
            r->h.attn.kv_heads = v < 0 || v > r->h.attn.heads ? 0 : (int)v;
        if (v != 0 && (r->h.attn.kv_heads == 0 || v != r->h.attn.kv_heads)) {
            model_file_bad(r->f, r->err,
                           "key %s is %lld for layer %d: expected 0, or 1 to %d, the same for every layer "
                           "with attention",
                           key, (long long)v, i, r->h.attn.heads);
            return false;
        }
    }
    if (attending == 0)
        model_file_bad(r->f, r->err, "key %s is 0 for every layer: expected a layer with attention", key);
    return attending > 0;
}

// Latent attention. Files since 2025 say key_length and value_length of what is cached, and those of heads apart.
static bool read_latent(struct reader *r) {
    struct attn_spec *a = &r->h.attn;
    struct hparams *h = &r->h;
    if (!read_hparam(r, H_KEY_DIM) || !read_hparam(r, H_KV_LORA) || !read_hparam(r, H_ROPE_DIM) ||
        !read_hparam(r, H_Q_LORA) || !read_hparam(r, H_LATENT_KEY_DIM) || !read_hparam(r, H_LATENT_VALUE_DIM))
        return false;
    h->value_dim = a->head_dim;
    if (!read_hparam(r, H_VALUE_DIM))
        return false;
    a->kind = ATTN_LATENT;
    a->rope_dim = h->rope.dim;
    bool apart = h->latent_key_dim > 0 && h->latent_value_dim > 0;
    if (apart && (a->head_dim != a->kv_lora + a->rope_dim || h->value_dim != a->kv_lora)) {
        model_file_bad(r->f, r->err, "keys of %d and values of %d are cached (key %s), expected %d and %d",
                       a->head_dim, h->value_dim, key_of(r, H_KEY_DIM), a->kv_lora + a->rope_dim, a->kv_lora);
        return false;
    }
    int key = apart ? h->latent_key_dim : a->head_dim;
    a->v_dim = apart ? h->latent_value_dim : h->value_dim;
    a->nope_dim = key - a->rope_dim;
    if (a->nope_dim < 1 || a->rope_dim % 2 != 0) {
        model_file_bad(r->f, r->err, "key %s is %d: expected an even number below the size of a key, %d",
                       key_of(r, H_ROPE_DIM), a->rope_dim, key);
        return false;
    }
    a->kv_heads = 1;
    a->head_dim = a->kv_lora + a->rope_dim;
    return true;
}

// No product of sizes overflows: at most 2^14 heads of 2^13 each.
static bool check_heads(struct reader *r) {
    const struct attn_spec *a = &r->h.attn;
    int largest = a->head_dim > a->nope_dim + a->v_dim ? a->head_dim : a->nope_dim + a->v_dim;
    if (a->heads * largest <= 1 << 22)
        return true;
    model_file_bad(r->f, r->err, "%d heads of %d are more than %d (key %s)", a->heads, largest, 1 << 22,
                   key_of(r, H_KEY_DIM));
    return false;
}

// Sizes of heads. Without a key_length the hidden size is divided among them.
static bool read_heads(struct reader *r) {
    struct attn_spec *a = &r->h.attn;
    if (!read_hparam(r, H_HEADS))
        return false;
    a->kv_heads = a->heads;
    if (!read_kv_heads(r) || !read_hparam(r, r->arch->norm == NORM_LAYER ? H_LAYER_NORM_EPS : H_NORM_EPS))
        return false;
    if (a->heads % a->kv_heads) {
        model_file_bad(r->f, r->err, "%d query heads are no multiple of %d key/value heads (key %s)",
                       a->heads, a->kv_heads, key_of(r, H_KV_HEADS));
        return false;
    }
    a->head_dim = r->h.hidden / a->heads;
    if (!find_hparam(r, H_KEY_DIM) && r->h.hidden % a->heads) {
        model_file_bad(r->f, r->err, "key %s is %d, expected a multiple of %d heads, or a key_length",
                       key_of(r, H_HIDDEN), r->h.hidden, a->heads);
        return false;
    }
    if (r->arch->traits & TRAIT_LATENT)
        return read_latent(r) && check_heads(r);
    if (!read_hparam(r, H_KEY_DIM))
        return false;
    r->h.value_dim = a->head_dim;
    if (!read_hparam(r, H_VALUE_DIM))
        return false;
    if (a->head_dim < 2 || r->h.value_dim != a->head_dim) {
        model_file_bad(r->f, r->err,
                       "heads have keys of %d and values of %d (key %s), expected the same, at least 2",
                       a->head_dim, r->h.value_dim, key_of(r, H_VALUE_DIM));
        return false;
    }
    return check_heads(r);
}

// 0 stands for the usual one, as in llama.cpp.
static bool read_attn_scale(struct reader *r) {
    struct attn_spec *a = &r->h.attn;
    bool wide = r->h.layers == r->arch->wide_scale_layers;
    int key = a->kind == ATTN_LATENT ? a->nope_dim + a->rope_dim : a->head_dim;
    a->scale = 1.0f / sqrtf((float)(wide ? r->h.hidden / a->heads : key));
    if (find_hparam(r, H_ATTN_SCALE) && !is_given(r, H_ATTN_SCALE))
        return true;
    if (!read_hparam(r, H_ATTN_SCALE))
        return false;
    // Kernels take it times log2 e, and subnormal numbers as 0 (kernels/README.md): all weights would be
    // equal.
    if (isnormal(a->scale) && isnormal(a->scale * 1.44269504f))
        return true;
    model_file_bad(r->f, r->err, "key %s is %g, which times log2 e is no normal number of 32 bits",
                   key_of(r, H_ATTN_SCALE), (double)a->scale);
    return false;
}

// Factors of the embedding, the residual stream and the logits.
static bool read_scales(struct reader *r) {
    struct hparams *h = &r->h;
    h->embed_scale = r->arch->embed_sqrt ? sqrtf((float)h->hidden) : 1;
    h->residual_scale = h->logit_scale = 1;
    if (!read_hparam(r, H_ATTN_SOFTCAP) || !read_hparam(r, H_LOGIT_SOFTCAP) ||
        !read_hparam(r, H_EMBED_SCALE) || !read_hparam(r, H_RESIDUAL_SCALE) || !read_hparam(r, H_LOGIT_SCALE))
        return false;
    if (r->arch->logits_divided)
        h->logit_scale = 1 / h->logit_scale;
    return true;
}

// The first layer with experts; the number of layers where there is none.
static int first_expert_layer(const struct reader *r) {
    const struct hparams *h = &r->h;
    int i = h->dense_layers, step = h->expert_step;
    while (i < h->layers && step > 1 && (i + 1) % step != 0)
        i++;
    return h->expert.experts > 0 ? i : h->layers;
}

static bool has_experts(const struct reader *r, int layer) {
    int step = r->h.expert_step;
    return layer >= first_expert_layer(r) && !(step > 1 && (layer + 1) % step != 0);
}

// Whether the file has the tensor of a weight's first part in layer 0.
static bool has_tensor(const struct reader *r, const struct weight_slot *s) {
    char name[TENSOR_NAME_BYTES];
    return s && model_file_find(r->f, arch_tensor_name(s, 0, false, 0, name));
}

static bool read_block(struct reader *r, struct model_config *c) {
    bool parallel = false;
    if (has_bit(r->arch->must, H_PARALLEL)) {
        const struct meta *m = find_hparam(r, H_PARALLEL);
        if (!m) {
            model_file_bad(r->f, r->err, "key %s is missing", key_of(r, H_PARALLEL));
            return false;
        }
        if (meta_bool(r->f, key_of(r, H_PARALLEL), &parallel, r->err))
            return false;
    }
    bool one_norm = r->arch->one_norm == ALWAYS ||
                    (r->arch->one_norm == OPTIONAL &&
                     !has_tensor(r, arch_slot_at(r->arch, offsetof(struct layer, ffn_norm))));
    c->block = one_norm ? BLOCK_ONE_NORM : parallel ? BLOCK_PARALLEL : BLOCK_SEQUENTIAL;
    return true;
}

// Any of the biases asks for all of them: weights_check() names one that is missing.
static bool has_biases(const struct reader *r, enum presence presence, enum weight_role role) {
    const struct weight_slot *s = arch_slot(r->arch, role);
    char name[TENSOR_NAME_BYTES];
    bool there = false;
    int layer = 0;
    if (!s)
        return false; // latent attention has none
    while (layer + 1 < r->h.layers && r->recurrent[layer])
        layer++;
    for (int p = s->fused ? FUSED_PART : 0; p < 3 && (p < 0 || s->part[p].name); p++)
        there |= model_file_find(r->f, arch_tensor_name(s, p, true, layer, name)) != NULL;
    return presence == ALWAYS || (presence == OPTIONAL && there);
}

// Whether the sizes of the experts suit each other, and those of a row fit into what a layer may be at most.
static bool check_experts(struct reader *r) {
    const struct ffn_spec *e = &r->h.expert;
    int widest = e->hidden > r->h.hidden ? e->hidden : r->h.hidden;
    if ((int64_t)e->top_k * e->hidden + e->shared_hidden > 1 << 24 ||
        (int64_t)e->experts * widest > 1 << 27) {
        model_file_bad(r->f, r->err, "%d of %d experts of %d are too large (key %s)", e->top_k, e->experts,
                       e->hidden, key_of(r, H_EXPERTS));
        return false;
    }
    if (e->groups > 1 && (e->experts % e->groups != 0 || e->experts / e->groups < 2 || e->top_groups < 1 ||
                          e->top_k > e->experts / e->groups * e->top_groups)) {
        model_file_bad(r->f, r->err,
                       "%d experts in %d groups of which %d are used have no %d for a row (key %s)",
                       e->experts, e->groups, e->top_groups, e->top_k, key_of(r, H_EXPERT_TOP_GROUPS));
        return false;
    }
    if (first_expert_layer(r) < r->h.layers - r->h.nextn)
        return true;
    model_file_bad(r->f, r->err, "no layer has experts (key %s)", key_of(r, H_DENSE_LAYERS));
    return false;
}

// The feed-forward part of layers with experts. 0 stands for the architecture's own scale and gating.
static bool read_experts(struct reader *r) {
    const struct arch_experts *a = r->arch->experts;
    struct ffn_spec *e = &r->h.expert;
    char name[TENSOR_NAME_BYTES];
    if (!read_hparam(r, H_EXPERTS) || !read_hparam(r, H_NEXTN))
        return false;
    if (r->h.nextn >= r->h.layers) {
        model_file_bad(r->f, r->err, "key %s is %d, expected less than %d layers", key_of(r, H_NEXTN),
                       r->h.nextn, r->h.layers);
        return false;
    }
    if (e->experts == 0)
        return true;
    if (!a) {
        model_file_bad(r->f, r->err, "key %s is %d: experts are not supported yet in architecture %s",
                       key_of(r, H_EXPERTS), e->experts, r->arch->name);
        return false;
    }
    e->hidden = r->h.ffn.hidden;
    e->act = r->arch->act;
    e->gating = a->gating;
    e->renormalise = a->renormalise;
    e->router_bias = e->expert_bias = a->biases;
    e->shared_gate = a->shared_gate;
    if (!read_hparam(r, H_TOP_K) || !read_hparam(r, H_EXPERT_FFN) || !read_hparam(r, H_SHARED_EXPERTS) ||
        !read_hparam(r, H_SHARED_FFN) || (is_given(r, H_EXPERT_SCALE) && !read_hparam(r, H_EXPERT_SCALE)) ||
        !read_hparam(r, H_EXPERT_GATING) || !read_hparam(r, H_EXPERT_GROUPS) ||
        !read_hparam(r, H_EXPERT_TOP_GROUPS) || !read_hparam(r, H_DENSE_LAYERS) ||
        !read_hparam(r, H_EXPERT_STEP))
        return false;
    if (has_bit(r->arch->may, H_EXPERT_NORM) &&
        meta_bool(r->f, key_of(r, H_EXPERT_NORM), &e->renormalise, r->err))
        return false;
    static const enum gating gatings[] = {GATING_SOFTMAX, GATING_SIGMOID, GATING_SOFTMAX_CHOSEN};
    if (r->h.gating > 0)
        e->gating = gatings[r->h.gating - 1];
    int64_t shared = (int64_t)r->h.shared_experts * e->hidden;
    if (e->shared_hidden == 0)
        e->shared_hidden = shared < 1 << 24 ? (int)shared : (1 << 24) + 1;
    if (!check_experts(r))
        return false;
    const struct weight_slot *s = arch_slot(r->arch, WEIGHT_SELECT_BIAS);
    arch_tensor_name(s, 0, true, first_expert_layer(r), name);
    e->select_bias = a->select_bias && model_file_find(r->f, name);
    return true;
}

// Which layers have a window, from an array with a bool for each layer, or a number n: of n layers the last has none.
static bool read_pattern(struct reader *r, bool *windowed) {
    const char *key = key_of(r, H_WINDOW_PATTERN);
    const struct meta *m = meta_find(r->f, key);
    struct meta_array a;
    if (m->type != META_ARRAY) {
        int64_t n = 0;
        if (meta_int(r->f, key, true, 0, MODEL_MAX_LAYERS, &n, r->err))
            return false;
        for (int i = 0; i < r->h.layers; i++)
            windowed[i] = n == 0 || i % n != n - 1;
        return true;
    }
    if (meta_array(r->f, key, true, m->elem == META_BOOL ? META_BOOL : META_I32, &a, r->err))
        return false;
    if (a.count != (uint64_t)r->h.layers) {
        model_file_bad(r->f, r->err, "key %s has %llu elements, expected one for each of %d layers", key,
                       (unsigned long long)a.count, r->h.layers);
        return false;
    }
    for (int i = 0; i < r->h.layers; i++) {
        int64_t v = meta_array_int(&a, (uint64_t)i);
        if (v != 0 && v != 1) {
            model_file_bad(r->f, r->err, "key %s is %lld for layer %d: expected 0 or 1", key, (long long)v,
                           i);
            return false;
        }
        windowed[i] = v == 1;
    }
    return true;
}

// W, and which layers have it. Qwen's own configurations name them; in a file that is the pattern.
static bool read_window(struct reader *r, bool *windowed) {
    int *window = &r->h.attn.window;
    int every = r->arch->window_pattern;
    if (!read_hparam(r, H_WINDOW))
        return false;
    for (int i = 0; i < r->h.layers; i++)
        windowed[i] = *window > 0 && !(every && i % every == every - 1);
    if (find_hparam(r, H_WINDOW_PATTERN)) {
        if (!find_hparam(r, H_WINDOW)) {
            model_file_bad(r->f, r->err, "key %s is there, and no window for it",
                           key_of(r, H_WINDOW_PATTERN));
            return false;
        }
        if (*window >= r->h.context)
            *window = 0;
        return read_pattern(r, windowed);
    }
    if (r->arch->window_every_layer || *window == 0 || every)
        return true;
    if (*window < r->h.context) {
        model_file_bad(
            r->f, r->err,
            "key %s is %d, and nothing says for which layers of architecture %s; expected 0, or at "
            "least the context, %d",
            key_of(r, H_WINDOW), *window, r->arch->name, r->h.context);
        return false;
    }
    *window = 0;
    return true;
}

// V: as many as tokens, and rows of the embedding. Without a vocabulary the key says it.
static bool read_vocab(struct reader *r, struct model_config *c) {
    enum { MAX_TOKENS = 1 << 22 };
    struct meta_array tokens = {0};
    struct text_view kind = {"", 0};
    char name[TENSOR_NAME_BYTES];
    if (meta_str(r->f, "tokenizer.ggml.model", false, 64, &kind, r->err))
        return false;
    bool none = kind.len == strlen("no_vocab") && memcmp(kind.data, "no_vocab", kind.len) == 0;
    if (!none && meta_array(r->f, "tokenizer.ggml.tokens", true, META_STRING, &tokens, r->err))
        return false;
    if (!none && (tokens.count < 1 || tokens.count > MAX_TOKENS)) {
        model_file_bad(r->f, r->err, "key tokenizer.ggml.tokens has %llu tokens, expected 1 to %d",
                       (unsigned long long)tokens.count, MAX_TOKENS);
        return false;
    }
    c->vocab = r->h.vocab = (int)tokens.count;
    if (!read_hparam(r, H_VOCAB))
        return false;
    if (none && (r->h.vocab < 1 || r->h.vocab > MAX_TOKENS)) {
        model_file_bad(r->f, r->err, "key %s is %d, expected 1 to %d where the file has no vocabulary",
                       key_of(r, H_VOCAB), r->h.vocab, MAX_TOKENS);
        return false;
    }
    c->vocab = none ? r->h.vocab : c->vocab;
    if (r->h.vocab != c->vocab) {
        model_file_bad(r->f, r->err, "key %s is %d, expected %d, the number of tokens", key_of(r, H_VOCAB),
                       r->h.vocab, c->vocab);
        return false;
    }
    arch_tensor_name(arch_slot(r->arch, WEIGHT_EMBED), 0, false, 0, name);
    const struct model_tensor *embed = model_file_find(r->f, name);
    if (embed && (embed->view.ndim != 2 || embed->view.shape[0] != c->vocab)) {
        model_file_bad(r->f, r->err, "tensor %s has %lld rows, expected %d, the number of tokens", name,
                       (long long)embed->view.shape[0], c->vocab);
        return false;
    }
    return true;
}

static uint8_t add_attn(struct model_config *c, const struct attn_spec *a) {
    int i = 0;
    while (i < c->num_attn && (c->attn[i].window != a->window || c->attn[i].rope != a->rope))
        i++;
    c->attn[i] = *a;
    c->attn[i].index = i;
    c->num_attn += i == c->num_attn;
    return (uint8_t)i;
}

static uint8_t add_ffn(struct model_config *c, const struct ffn_spec *ffn) {
    int i = 0;
    while (i < c->num_ffn && c->ffn[i].experts != ffn->experts)
        i++;
    c->ffn[i] = *ffn;
    c->ffn[i].index = i;
    c->num_ffn += i == c->num_ffn;
    return (uint8_t)i;
}

// Whether the layer rotates queries and keys.
static bool has_rope(const struct reader *r, int layer, bool windowed) {
    int every = r->arch->no_rope_every;
    bool still = r->arch->full_no_rope && find_hparam((struct reader *)(uintptr_t)r, H_WINDOW) && !windowed;
    return !r->no_rope && !still && !(every && layer % every == every - 1);
}

// Which layers are recurrent, where their number of heads for keys and values does not say it: a bool for each layer, or
// all but each n-th.
static bool read_recurrent(struct reader *r) {
    struct meta_array a;
    if (find_hparam(r, H_RECURRENT_LAYERS)) {
        const char *key = key_of(r, H_RECURRENT_LAYERS);
        if (meta_array(r->f, key, true, META_BOOL, &a, r->err))
            return false;
        if (a.count != (uint64_t)r->h.layers) {
            model_file_bad(r->f, r->err, "key %s has %llu elements, expected one for each of %d layers", key,
                           (unsigned long long)a.count, r->h.layers);
            return false;
        }
        for (int i = 0; i < r->h.layers; i++)
            r->recurrent[i] = meta_array_int(&a, (uint64_t)i) != 0;
        return true;
    }
    r->h.attn_interval = 4;
    if (!read_hparam(r, H_ATTN_INTERVAL))
        return false;
    for (int i = 0; i < r->h.layers; i++)
        r->recurrent[i] = i % r->h.attn_interval != r->h.attn_interval - 1;
    return true;
}

// Sizes of the states of heads: H_SSM_INNER values of all heads.
static bool read_states(struct reader *r) {
    struct mix_spec *m = &r->h.mix;
    if (!read_hparam(r, H_SSM_CONV) || !read_hparam(r, H_SSM_INNER) || !read_hparam(r, H_SSM_STATE) ||
        !read_hparam(r, H_SSM_HEADS) || !read_hparam(r, H_SSM_GROUPS))
        return false;
    if (r->h.mix_inner % m->heads || m->heads % m->groups || (int64_t)m->groups * m->key_dim > 1 << 22) {
        model_file_bad(r->f, r->err,
                       "key %s is %d, expected a multiple of %d heads, which are a multiple of %d groups, of "
                       "at most %d elements together",
                       key_of(r, H_SSM_INNER), r->h.mix_inner, m->heads, m->groups, 1 << 22);
        return false;
    }
    m->head_dim = r->h.mix_inner / m->heads;
    return true;
}

// The tensor of a part of the first recurrent layer, or NULL.
static const struct model_tensor *mix_tensor(const struct reader *r, enum weight_role role, bool bias) {
    char name[TENSOR_NAME_BYTES];
    int layer = 0;
    while (layer + 1 < r->h.layers && !r->recurrent[layer] && !r->arch->mix_beside)
        layer++;
    return model_file_find(r->f, arch_tensor_name(arch_slot(r->arch, role), 0, bias, layer, name));
}

// What recurrent layers keep and how.
static bool read_mix(struct reader *r) {
    struct mix_spec *m = &r->h.mix;
    bool attends = false;
    m->kind = r->arch->mix;
    m->tiled = r->arch->mix_tiled;
    if (m->kind == MIX_NONE)
        return true;
    if (m->kind == MIX_CONV) {
        m->heads = r->h.hidden;
        m->head_dim = 1;
        return read_hparam(r, H_SHORT_CONV);
    }
    if (!read_states(r) || (m->kind == MIX_DELTA && !read_recurrent(r)))
        return false;
    if (m->kind == MIX_SSM) {
        m->conv_bias = mix_tensor(r, WEIGHT_MIX_CONV, true) != NULL;
        m->norm = mix_tensor(r, WEIGHT_MIX_NORM, false) != NULL;
    }
    for (int i = 0; i < r->h.layers; i++)
        attends |= !r->recurrent[i];
    if (!attends)
        model_file_bad(r->f, r->err, "all %d layers are recurrent (key %s): expected one with attention",
                       r->h.layers, key_of(r, H_ATTN_INTERVAL));
    return attends;
}

// Layers differ by their window and rotation, and share everything else.
static void make_specs(const struct reader *r, const bool *windowed, struct model_config *c) {
    c->ropes[0] = r->h.rope;
    c->num_ropes = 1;
    if (r->arch->window_rope) {
        c->num_ropes = 2;
        c->ropes[1] = (struct rope_config){.theta = r->h.window_theta,
                                           .dim = r->h.rope.dim,
                                           .interleaved = r->h.rope.interleaved,
                                           .factor = 1,
                                           .attn_factor = 1};
    }
    for (int i = 0; i < c->num_layers; i++) {
        struct attn_spec a = r->h.attn;
        a.window = windowed[i] ? a.window : 0;
        a.rope = !has_rope(r, i, windowed[i]) ? -1 : r->arch->window_rope && windowed[i];
        bool mix = r->recurrent[i] || r->arch->mix_beside;
        c->layers[i] = (struct layer_spec){.attn = r->recurrent[i] ? MODEL_NO_SPEC : add_attn(c, &a),
                                           .mix = mix ? 0 : MODEL_NO_SPEC,
                                           .ffn = add_ffn(c, has_experts(r, i) ? &r->h.expert : &r->h.ffn)};
        c->num_mix |= mix;
    }
    c->mix[0] = r->h.mix;
    kv_layers_group(c);
}

enum status model_config_read(const struct model_file *f, struct model_config *c, struct err *err) {
    struct err local = {0};
    struct reader r = {.f = f, .err = err ? err : &local};
    bool windowed[MODEL_MAX_LAYERS];
    char name[TENSOR_NAME_BYTES];
    *c = (struct model_config){0};
    // (12)
    if (!read_arch(&r, c) || !check_keys(&r) || !read_hparam(&r, H_LAYERS) || !read_hparam(&r, H_CONTEXT) ||
        !read_hparam(&r, H_HIDDEN) || !read_hparam(&r, H_FFN) || !read_experts(&r) || !read_heads(&r) ||
        !read_attn_scale(&r) || !read_scales(&r) || !read_mix(&r) || !read_window(&r, windowed) ||
        !read_rope(&r) || !read_block(&r, c) || !read_vocab(&r, c))
        return r.err->code;
    r.h.attn.qk_norm = r.arch->qk_norm;
    r.h.attn.gate = (r.arch->traits & TRAIT_ATTN_GATE) != 0;
    if ((r.arch->qk_norm == QK_NORM_EACH || r.arch->qk_norm_optional) &&
        !has_tensor(&r, arch_slot_at(r.arch, offsetof(struct layer, q_norm))))
        r.h.attn.qk_norm = QK_NORM_NONE;
    r.h.ffn.act = r.arch->act;
    r.h.ffn.no_gate = (r.arch->traits & TRAIT_NO_GATE) != 0;
    r.h.ffn.in_bias = has_biases(&r, r.arch->ffn_bias, WEIGHT_GATE_UP);
    r.h.ffn.out_bias = has_biases(&r, r.arch->ffn_bias, WEIGHT_DOWN);
    r.h.attn.qkv_bias = has_biases(&r, r.arch->qkv_bias, WEIGHT_QKV);
    r.h.attn.out_bias = has_biases(&r, r.arch->out_bias, WEIGHT_ATTN_OUT);
    c->num_layers = r.h.layers - r.h.nextn;
    c->num_nextn = r.h.nextn;
    c->hidden = r.h.hidden;
    c->max_context = r.h.context;
    c->norm = r.arch->norm;
    c->norm_eps = r.h.norm_eps;
    c->norm_bias = has_biases(&r, r.arch->norm_bias, WEIGHT_NORM);
    c->head_bias = has_biases(&r, r.arch->head_bias, WEIGHT_HEAD);
    c->embed_scale = r.h.embed_scale;
    c->residual_scale = r.h.residual_scale;
    c->logit_scale = r.h.logit_scale;
    c->logit_softcap = r.h.logit_softcap;
    c->post_norms = (r.arch->traits & TRAIT_POST_NORMS) != 0;
    c->tied = !model_file_find(f, arch_tensor_name(arch_slot(r.arch, WEIGHT_HEAD), 0, false, 0, name));
    make_specs(&r, windowed, c);
    return STATUS_OK;
}

void model_config_advice(const struct model_file *f, struct sampling_advice *a) {
    struct err ignored = {0};
    *a = (struct sampling_advice){-1, -1, -1, -1, -1};
    meta_float(f, "general.sampling.temp", false, &a->temperature, &ignored);
    meta_float(f, "general.sampling.top_p", false, &a->top_p, &ignored);
    meta_float(f, "general.sampling.min_p", false, &a->min_p, &ignored);
    meta_float(f, "general.sampling.penalty_repeat", false, &a->repetition_penalty, &ignored);
    meta_int(f, "general.sampling.top_k", false, 0, INT32_MAX, &a->top_k, &ignored);
}
