// See config_reader.h: sizes of heads, the scale of scores, windows.
#include "config_reader.h"

#include <math.h>
#include <string.h>

// DeciLM's linear attention: a matrix in place of heads.
static bool check_missing(struct config_reader *r, const bool *no_keys) {
    for (int i = 0; i < r->h.layers; i++)
        if (no_keys[i] != r->no_attn[i]) {
            model_file_bad(r->f, r->err,
                           "layer %d has %s: a matrix in place of attention is not supported yet (key %s)", i,
                           no_keys[i] ? "heads, and none for keys" : "none, and some for keys",
                           config_key(r, H_KV_HEADS));
            return false;
        }
    return true;
}

// The number of heads for keys and values, and which layers have none: they are recurrent.
static bool read_kv_heads(struct config_reader *r) {
    const char *key = config_key(r, H_KV_HEADS);
    const struct meta *m = meta_find(r->f, key);
    struct meta_array a;
    int attending = 0;
    bool one_part = r->arch->traits & TRAIT_ONE_PART; // nothing else says which part
    bool no_keys[MODEL_MAX_LAYERS] = {false};
    if (r->arch->traits & TRAIT_PARTS_MISSING) {
        bool listed = m && m->type == META_ARRAY;
        return config_read_some(r, H_KV_HEADS, r->kv_heads, no_keys) &&
               (!listed || check_missing(r, no_keys));
    }
    if (!one_part && (r->arch->mix == MIX_NONE || !m || m->type != META_ARRAY))
        return config_read_each(r, H_KV_HEADS, r->kv_heads);
    if (!config_layers(r, key, &a))
        return false;
    for (int i = 0; i < r->h.layers; i++) {
        int64_t v = meta_array_int(&a, (uint64_t)i);
        r->recurrent[i] = v == 0 && !r->ffn_alone[i];
        if (i >= r->h.layers - r->h.nextn) // of speculation: both parts
            continue;
        if (v != 0 && r->ffn_alone[i]) {
            model_file_bad(r->f, r->err, "layer %d attends (key %s) and is a feed-forward, expected one", i,
                           key);
            return false;
        }
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
static bool read_latent(struct config_reader *r) {
    struct attn_spec *a = &r->h.attn;
    struct hparams *h = &r->h;
    h->value_dim = a->head_dim;
    if (!config_read(r, H_KEY_DIM) || !config_read(r, H_KV_LORA) || !config_read(r, H_ROPE_DIM) ||
        !config_read(r, H_Q_LORA) || !config_read(r, H_LATENT_KEY_DIM) || !config_read(r, H_LATENT_VALUE_DIM))
        return false;
    if (!config_read(r, H_VALUE_DIM))
        return false;
    a->kind = ATTN_LATENT;
    a->rope_dim = h->rope.dim;
    bool apart = h->latent_key_dim > 0 && h->latent_value_dim > 0;
    if (apart && (a->head_dim != a->kv_lora + a->rope_dim || h->value_dim != a->kv_lora)) {
        model_file_bad(r->f, r->err, "keys of %d and values of %d are cached (key %s), expected %d and %d",
                       a->head_dim, h->value_dim, config_key(r, H_KEY_DIM), a->kv_lora + a->rope_dim,
                       a->kv_lora);
        return false;
    }
    int key = apart ? h->latent_key_dim : a->head_dim;
    a->v_dim = apart ? h->latent_value_dim : h->value_dim;
    a->nope_dim = key - a->rope_dim;
    if (a->nope_dim < 1 || a->rope_dim % 2 != 0) {
        model_file_bad(r->f, r->err, "key %s is %d: expected an even number below the size of a key, %d",
                       config_key(r, H_ROPE_DIM), a->rope_dim, key);
        return false;
    }
    a->kv_heads = 1;
    a->head_dim = a->kv_lora + a->rope_dim;
    return true;
}

// Reads the head sizes of layers with a window, where they differ from the others'.
static bool read_window_heads(struct config_reader *r) {
    struct hparams *h = &r->h;
    if (!config_read(r, H_WINDOW_KEY_DIM))
        return false;
    h->window_value_dim = h->window_rope_dim = h->window_key_dim;
    if (!config_read(r, H_WINDOW_VALUE_DIM) || (h->window_key_dim > 0 && !config_read(r, H_WINDOW_ROPE_DIM)))
        return false;
    if (h->window_value_dim == h->window_key_dim && h->window_rope_dim % 2 == 0)
        return true;
    model_file_bad(
        r->f, r->err,
        "heads of layers with a window have keys of %d, of which %d rotate, and values of %d (key %s), "
        "expected the same, and an even number",
        h->window_key_dim, h->window_rope_dim, h->window_value_dim, config_key(r, H_WINDOW_KEY_DIM));
    return false;
}

// No product of sizes overflows: at most 2^14 heads of 2^13 each.
static bool check_heads(struct config_reader *r) {
    const struct attn_spec *a = &r->h.attn;
    int largest = a->head_dim > a->nope_dim + a->v_dim ? a->head_dim : a->nope_dim + a->v_dim;
    largest = r->h.window_key_dim > largest ? r->h.window_key_dim : largest;
    if (a->heads * largest <= 1 << 22)
        return true;
    model_file_bad(r->f, r->err, "%d heads of %d are more than %d (key %s)", a->heads, largest, 1 << 22,
                   config_key(r, H_KEY_DIM));
    return false;
}

// Of a list some layers do not attend, and the others have as many heads.
static bool read_heads(struct config_reader *r) {
    int heads[MODEL_MAX_LAYERS] = {0};
    bool listed = (r->arch->traits & TRAIT_PARTS_MISSING) != 0;
    if (!listed)
        return config_read(r, H_HEADS);
    if (!config_read_some(r, H_HEADS, heads, r->no_attn))
        return false;
    for (int i = 0; i < r->h.layers; i++)
        if (heads[i] > 0 && heads[i] != r->h.attn.heads) {
            model_file_bad(r->f, r->err, "key %s is %d for layer %d: expected 0 or %d",
                           config_key(r, H_HEADS), heads[i], i, r->h.attn.heads);
            return false;
        }
    if (r->h.attn.heads > 0)
        return true;
    model_file_bad(r->f, r->err, "key %s is 0 for every layer: expected a layer with attention",
                   config_key(r, H_HEADS));
    return false;
}

// Of a model without attention, which keeps one spec all the same, that any number of ranks can share.
static bool read_no_heads(struct config_reader *r) {
    r->h.attn.heads = r->h.attn.kv_heads = 8;
    r->h.attn.head_dim = r->h.value_dim = MODEL_NO_HEAD_DIM;
    memset(r->recurrent, true, (size_t)r->h.layers);
    return config_read(r, H_NORM_EPS);
}

bool config_heads(struct config_reader *r) {
    struct attn_spec *a = &r->h.attn;
    if (r->arch->mix_alone)
        return read_no_heads(r);
    if (!read_heads(r))
        return false;
    a->kv_heads = a->heads;
    bool either = r->arch->norm == NORM_LAYER && arch_may_have(r->arch, H_LAYER_NORM_EPS);
    r->rms_norm = either && config_find(r, H_NORM_EPS);
    bool layer_norm = arch_must_have(r->arch, H_LAYER_NORM_EPS) || (either && !r->rms_norm);
    const char *missing =
        layer_norm && !config_find(r, H_LAYER_NORM_EPS) ? config_key(r, H_LAYER_NORM_EPS) : NULL;
    if (missing) {
        model_file_bad(r->f, r->err, "key %s is missing", missing);
        return false;
    }
    if (!read_kv_heads(r) || !config_read(r, layer_norm ? H_LAYER_NORM_EPS : H_NORM_EPS))
        return false;
    for (int i = 0; i < r->h.layers; i++) {
        int kv_heads = r->kv_heads[i] ? r->kv_heads[i] : a->kv_heads;
        if (a->heads % kv_heads == 0)
            continue;
        model_file_bad(r->f, r->err, "%d query heads are no multiple of %d key/value heads (key %s)",
                       a->heads, kv_heads, config_key(r, H_KV_HEADS));
        return false;
    }
    a->head_dim = r->h.hidden / a->heads;
    if (!config_find(r, H_KEY_DIM) && r->h.hidden % a->heads) {
        model_file_bad(r->f, r->err, "key %s is %d, expected a multiple of %d heads, or a key_length",
                       config_key(r, H_HIDDEN), r->h.hidden, a->heads);
        return false;
    }
    if (r->arch->traits & TRAIT_LATENT)
        return read_latent(r) && check_heads(r);
    if (!config_read(r, H_KEY_DIM))
        return false;
    r->h.value_dim = a->head_dim;
    if (!config_read(r, H_VALUE_DIM))
        return false;
    if (a->head_dim < 2 || r->h.value_dim != a->head_dim) {
        model_file_bad(r->f, r->err,
                       "heads have keys of %d and values of %d (key %s), expected the same, at least 2",
                       a->head_dim, r->h.value_dim, config_key(r, H_VALUE_DIM));
        return false;
    }
    return config_read(r, H_ATTN_CLIP) && read_window_heads(r) && check_heads(r);
}

// Published files of Gemma 3n have it as a float.
static bool read_shared_kv(struct config_reader *r) {
    const struct meta *m = config_find(r, H_SHARED_KV);
    const char *key = config_key(r, H_SHARED_KV);
    double v = 0;
    if (!(r->arch->traits & TRAIT_STREAMS) || !m || m->type != META_F32)
        return config_read(r, H_SHARED_KV);
    if (meta_float(r->f, key, true, &v, r->err))
        return false;
    r->h.shared_kv = v >= 0 && v <= r->h.layers ? (int)v : -1;
    if (r->h.shared_kv == v)
        return true;
    model_file_bad(r->f, r->err, "key %s is %g, expected a number of layers", key, v);
    return false;
}

bool config_shared_kv(struct config_reader *r, const bool *windowed) {
    if (!read_shared_kv(r))
        return false;
    int first = r->h.layers - r->h.shared_kv;
    for (int i = first > 0 ? first : 0; i < r->h.layers; i++) {
        int from = first - 1;
        while (from >= 0 && windowed[from] != windowed[i])
            from--;
        if (from >= 0 && r->kv_heads[from] == r->kv_heads[i])
            continue;
        model_file_bad(r->f, r->err,
                       "key %s is %d: layer %d finds no layer before those with keys and values like its own",
                       config_key(r, H_SHARED_KV), r->h.shared_kv, i);
        return false;
    }
    return true;
}

bool config_attn_scale(struct config_reader *r) {
    struct attn_spec *a = &r->h.attn;
    bool wide = r->h.layers == r->arch->wide_scale_layers;
    int key = a->kind == ATTN_LATENT ? a->nope_dim + a->rope_dim : a->head_dim;
    a->scale = r->arch->attn_scale > 0 ? r->arch->attn_scale
                                       : 1.0f / sqrtf((float)(wide ? r->h.hidden / a->heads : key));
    if (config_find(r, H_ATTN_SCALE) && !config_given(r, H_ATTN_SCALE))
        return true;
    if (!config_read(r, H_ATTN_SCALE))
        return false;
    // Kernels take it times log2 e, and subnormal numbers as 0 (kernels/README.md): all weights would be
    // equal.
    if (isnormal(a->scale) && isnormal(a->scale * 1.44269504f))
        return true;
    model_file_bad(r->f, r->err, "key %s is %g, which times log2 e is no normal number of 32 bits",
                   config_key(r, H_ATTN_SCALE), (double)a->scale);
    return false;
}

// Which layers have a window, from an array with a bool for each layer, or a number n: of n layers the last has none.
static bool read_pattern(struct config_reader *r, bool *windowed) {
    const char *key = config_key(r, H_WINDOW_PATTERN);
    const struct meta *m = meta_find(r->f, key);
    struct meta_array a;
    if (m->type != META_ARRAY) {
        int64_t n = 0;
        if (meta_int(r->f, key, true, 0, MODEL_MAX_LAYERS, &n, r->err))
            return false;
        for (int i = 0; i < r->h.layers; i++)
            windowed[i] = n == 0 || i % n != (r->arch->full_first ? 0 : n - 1);
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

bool config_window(struct config_reader *r, bool *windowed) {
    int *window = &r->h.attn.window;
    int every = r->arch->window_pattern, full = r->arch->full_first ? 0 : every - 1;
    *window = r->arch->chunk;
    r->h.attn.chunked = r->arch->chunk > 0;
    if (!config_read(r, H_WINDOW))
        return false;
    if (r->arch->chunk && *window == 0) {
        model_file_bad(r->f, r->err, "key %s is 0: architecture %s without chunks is not supported yet",
                       config_key(r, H_WINDOW), r->arch->name);
        return false;
    }
    for (int i = 0; i < r->h.layers; i++)
        windowed[i] = *window > 0 && !(every && i % every == full);
    if (config_find(r, H_WINDOW_PATTERN)) {
        if (!config_find(r, H_WINDOW)) {
            model_file_bad(r->f, r->err, "key %s is there, and no window for it",
                           config_key(r, H_WINDOW_PATTERN));
            return false;
        }
        if (*window >= r->h.context && !r->h.attn.bidirectional)
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
            config_key(r, H_WINDOW), *window, r->arch->name, r->h.context);
        return false;
    }
    *window = 0;
    return true;
}
