// See config_reader.h.
#include "config_reader.h"

#include <string.h>

static const char *arch_key(struct config_reader *r, const char *suffix) {
    snprintf(r->key, sizeof r->key, "%s.%s", r->arch->name, suffix);
    return r->key;
}

const char *config_key(struct config_reader *r, enum hparam id) { return arch_key(r, arch_keys[id].suffix); }

const struct meta *config_find(struct config_reader *r, enum hparam id) {
    return meta_find(r->f, config_key(r, id));
}

bool config_layers(struct config_reader *r, const char *key, struct meta_array *a) {
    if (meta_array(r->f, key, true, META_I32, a, r->err))
        return false;
    if (a->count != (uint64_t)r->h.layers)
        model_file_bad(r->f, r->err, "key %s has %llu elements, expected one for each of %d layers", key,
                       (unsigned long long)a->count, r->h.layers);
    return a->count == (uint64_t)r->h.layers;
}

bool config_flags(struct config_reader *r, const char *key, bool *each, bool *found) {
    struct meta_array a;
    *found = meta_find(r->f, key) != NULL;
    if (!*found)
        return true;
    if (meta_array(r->f, key, true, META_BOOL, &a, r->err))
        return *found = false;
    if (a.count != (uint64_t)r->h.layers) {
        model_file_bad(r->f, r->err, "key %s has %llu elements, expected one for each of %d layers", key,
                       (unsigned long long)a.count, r->h.layers);
        return *found = false;
    }
    for (int i = 0; i < r->h.layers; i++)
        each[i] = meta_array_int(&a, (uint64_t)i) != 0;
    return true;
}

// All equal.
static bool read_per_layer(struct config_reader *r, const char *key, int64_t min, int64_t max, int64_t *v) {
    struct meta_array a;
    if (!config_layers(r, key, &a))
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

static bool read_int(struct config_reader *r, const struct hparam_key *k, const char *key, int *value) {
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

static bool read_float(struct config_reader *r, const struct hparam_key *k, const char *key, float *value) {
    double v = (double)*value;
    if (meta_float(r->f, key, k->required, &v, r->err))
        return false;
    if (!meta_find(r->f, key))
        return true;
    if ((v <= k->min && !(k->off && v == 0)) || v > k->max) {
        model_file_bad(r->f, r->err, "key %s is %g, expected above %g and at most %g", key, v, k->min,
                       k->max);
        return false;
    }
    *value = (float)v;
    return true;
}

bool config_read(struct config_reader *r, enum hparam id) {
    struct hparam_key k = arch_keys[id];
    char *field = (char *)&r->h + k.field;
    k.required |= arch_must_have(r->arch, id);
    if (!arch_knows_key(r->arch, id))
        return true;
    return k.type == HPARAM_INT ? read_int(r, &k, config_key(r, id), (int *)(void *)field)
                                : read_float(r, &k, config_key(r, id), (float *)(void *)field);
}

bool config_read_some(struct config_reader *r, enum hparam id, int *each, bool *lack) {
    const struct meta *m = config_find(r, id);
    struct hparam_key k = arch_keys[id];
    int *field = (int *)(void *)((char *)&r->h + k.field);
    int64_t max = k.bound ? *(const int *)((const char *)&r->h + k.bound) : (int64_t)k.max;
    struct meta_array a;
    if (!(r->arch->traits & TRAIT_PARTS_MISSING) || !m || m->type != META_ARRAY)
        return config_read_each(r, id, each);
    if (!config_layers(r, config_key(r, id), &a))
        return false;
    *field = 0;
    for (int i = 0; i < r->h.layers; i++) {
        int64_t v = meta_array_int(&a, (uint64_t)i);
        if (v < 0 || v > max) {
            model_file_bad(r->f, r->err, "key %s is %lld for layer %d: expected 0 to %lld", r->key,
                           (long long)v, i, (long long)max);
            return false;
        }
        each[i] = (int)v;
        lack[i] = v == 0;
        *field = each[i] > *field ? each[i] : *field;
    }
    return true;
}

bool config_read_each(struct config_reader *r, enum hparam id, int *each) {
    const struct meta *m = config_find(r, id);
    struct hparam_key k = arch_keys[id];
    int *field = (int *)(void *)((char *)&r->h + k.field);
    int64_t max = k.bound ? *(const int *)((const char *)&r->h + k.bound) : (int64_t)k.max;
    struct meta_array a;
    if (!(r->arch->traits & TRAIT_LAYERS_DIFFER) || !m || m->type != META_ARRAY)
        return config_read(r, id);
    if (!config_layers(r, config_key(r, id), &a))
        return false;
    *field = 0;
    for (int i = 0; i < r->h.layers; i++) {
        int64_t v = meta_array_int(&a, (uint64_t)i);
        if (v < 1 || v > max) {
            model_file_bad(r->f, r->err, "key %s is %lld for layer %d: expected 1 to %lld", r->key,
                           (long long)v, i, (long long)max);
            return false;
        }
        each[i] = (int)v;
        *field = each[i] > *field ? each[i] : *field;
    }
    return true;
}

bool config_given(struct config_reader *r, enum hparam id) {
    const struct meta *m = config_find(r, id);
    char text[32];
    return m && strcmp(meta_text(m, text, sizeof text), "0") != 0;
}

static bool is_all_of(const struct meta *m, int64_t value) {
    struct meta_array a = {.elem = m->elem, .count = m->count, .next = m->value};
    for (uint64_t i = 0; m->type == META_ARRAY && i < a.count; i++)
        if ((a.elem != META_I32 && a.elem != META_I64) || meta_array_int(&a, i) != value)
            return false;
    return m->type == META_ARRAY;
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
    case VALUE_NONE: return is_all_of(m, -1);
    }
    return false;
}

static bool is_suspect(const char *name, size_t len) {
    for (const struct arch_suspect *s = arch_suspects; s->part; s++) {
        size_t n = strlen(s->part);
        for (size_t i = 0; i + n <= len && (i == 0 || s->anywhere); i++)
            if (memcmp(name + i, s->part, n) == 0)
                return true;
    }
    return false;
}

bool config_is(const char *suffix, const char *name, size_t len) {
    return strlen(suffix) == len && memcmp(suffix, name, len) == 0;
}

// Whether a key, which begins with the architecture's name, says nothing that Quire does not compute.
static bool is_known(const struct arch *a, const struct meta *m, const char *name, size_t len) {
    for (int i = 0; i < NUM_HPARAMS; i++)
        if (config_is(arch_keys[i].suffix, name, len) && arch_knows_key(a, i))
            return true;
    for (const struct fixed_key *k = arch_fixed; k->suffix; k++)
        if (config_is(k->suffix, name, len))
            return is_harmless(m, k->values);
    return !is_suspect(name, len) || is_harmless(m, VALUE_ZERO); // a feature with value 0 or false is off
}

// Keys of experts mean nothing to a model that has none.
static bool is_of_experts(const char *name, size_t len) { return len > 6 && memcmp(name, "expert", 6) == 0; }

bool config_check_keys(struct config_reader *r) {
    size_t prefix = strlen(r->arch->name) + 1;
    bool experts = config_given(r, H_EXPERTS);
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

const struct model_tensor *config_tensor(const struct config_reader *r, enum weight_role role, int part,
                                         bool bias, int layer) {
    const struct weight_slot *s = arch_slot(r->arch, role);
    char name[TENSOR_NAME_BYTES];
    return s ? model_file_find(r->f, arch_tensor_name(s, part, bias, layer, name)) : NULL;
}

int config_rows(const struct config_reader *r, enum weight_role role, int64_t most) {
    const struct model_tensor *t = config_tensor(r, role, 0, false, 0);
    return t && t->view.ndim == 2 && t->view.shape[0] <= most ? (int)t->view.shape[0] : 0;
}

bool config_has_biases(const struct config_reader *r, enum presence presence, enum weight_role role) {
    const struct weight_slot *s = arch_slot(r->arch, role);
    bool there = false;
    int layer = 0;
    if (!s)
        return false; // latent attention has none
    while (layer + 1 < r->h.layers && (r->recurrent[layer] || r->no_attn[layer] || r->no_ffn[layer]))
        layer++;
    for (int p = s->fused ? FUSED_PART : 0; p < 3 && (p < 0 || s->part[p].name); p++)
        there |= config_tensor(r, role, p, true, layer) != NULL;
    return presence == ALWAYS || (presence == OPTIONAL && there);
}
