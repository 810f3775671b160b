// See reader.h: lists with a value for each layer: which of them have experts, which rotate, whose heads are others.
#include "reader.h"

#include <string.h>

static bool has_key(const struct hf_reader *r, const char *key) {
    return hf_key_find(r->c->family, view_of(key)) != NULL;
}

static bool add_flags(const struct hf_reader *r, const char *name, const unsigned char *flags,
                      const char *label) {
    if (flags)
        hf_array(r->keys, name, META_BOOL, (uint64_t)r->c->layers, flags, label);
    return flags != NULL;
}

// Marks the layers whose numbers a list has.
static bool mark(const struct hf_reader *r, const char *key, struct hf_found f, unsigned char *flags,
                 unsigned char value) {
    int64_t i;
    if (f.v && f.v->type != JDOC_ARRAY)
        return hf_refuse_value(r, key, f, "an array of layers");
    JDOC_EACH(f.j, e, f.v) {
        if (!jdoc_integer(f.j, e, &i) || i < 0 || i > INT32_MAX)
            return hf_refuse_value(r, key, (struct hf_found){.j = f.j, .v = e, .key = f.key}, "a layer");
        if (flags && i < r->c->layers)
            flags[i] = value;
    }
    return true;
}

// "sparse" has experts, "dense" has none.
static bool read_kinds(const struct hf_reader *r, const char *key, struct hf_found f, unsigned char *flags) {
    int64_t i = 0;
    if (f.v->type != JDOC_ARRAY || f.v->len != r->c->layers)
        return hf_refuse_value(r, key, f, "an array with an element for each layer");
    JDOC_EACH(f.j, e, f.v) {
        bool sparse = jdoc_is(f.j, e, "sparse");
        if (!sparse && !jdoc_is(f.j, e, "dense"))
            return hf_refuse_value(r, key, (struct hf_found){.j = f.j, .v = e}, "dense or sparse");
        if (flags)
            flags[i++] = sparse;
    }
    return true;
}

bool hf_read_expert_layers(const struct hf_reader *r) {
    static const char name[] = "quire.expert_layers";
    struct hf_found kinds = hf_find_key(r, "mlp_layer_types"), some = hf_find_key(r, "moe_layers"),
                    none = hf_find_key(r, "mlp_only_layers");
    int64_t layers = r->c->layers, step = 1;
    unsigned char *flags = hf_alloc(r->keys, (size_t)layers);
    if (kinds.v && has_key(r, "mlp_layer_types"))
        return read_kinds(r, "mlp_layer_types", kinds, flags) && add_flags(r, name, flags, "mlp_layer_types");
    if (some.v && has_key(r, "moe_layers")) {
        if (flags)
            memset(flags, 0, (size_t)layers);
        return mark(r, "moe_layers", some, flags, 1) && add_flags(r, name, flags, "moe_layers");
    }
    if (!has_key(r, "decoder_sparse_step"))
        return true;
    if (!hf_read_size(r, "decoder_sparse_step", false, &step))
        return false;
    if (step < 1)
        return hf_refuse_value(r, "decoder_sparse_step", hf_find_key(r, "decoder_sparse_step"),
                               "a positive integer");
    for (int64_t i = 0; flags && i < layers; i++)
        flags[i] = (i + 1) % step == 0;
    if (!mark(r, "mlp_only_layers", none, flags, 0))
        return false;
    if (!flags || !memchr(flags, 0, (size_t)layers))
        return flags != NULL;
    return add_flags(r, name, flags, step > 1 ? "decoder_sparse_step" : "mlp_only_layers");
}

// SmolLM3 and Llama 4: 1 for each layer that rotates, or how often one does not.
bool hf_read_rope_layers(const struct hf_reader *r) {
    struct hf_found f = hf_find_key(r, "no_rope_layers");
    int64_t layers = r->c->layers, i = 0, rotates, every = 4;
    if (!has_key(r, "no_rope_layers"))
        return true;
    unsigned char *flags = hf_alloc(r->keys, (size_t)layers);
    if (!hf_read_size(r, "no_rope_layer_interval", false, &every))
        return false;
    if (every < 1)
        return hf_refuse_value(r, "no_rope_layer_interval", hf_find_key(r, "no_rope_layer_interval"),
                               "a positive integer");
    for (; flags && i < layers; i++)
        flags[i] = (i + 1) % every != 0;
    if (f.v && f.v->type == JDOC_ARRAY && f.v->len == 0) // as if it were not there
        f.v = NULL;
    if (f.v && (f.v->type != JDOC_ARRAY || f.v->len != layers))
        return hf_refuse_value(r, "no_rope_layers", f, "an array with an element for each layer");
    i = 0;
    JDOC_EACH(f.j, e, f.v) {
        if (!jdoc_integer(f.j, e, &rotates) || rotates < 0 || rotates > 1)
            return hf_refuse_value(r, "no_rope_layers", (struct hf_found){.j = f.j, .v = e}, "0 or 1");
        if (flags)
            flags[i++] = rotates == 1;
    }
    return add_flags(r, "quire.rope_layers", flags, f.v ? "no_rope_layers" : "no_rope_layer_interval");
}

// Whether a layer attends without a window.
static bool is_full(const struct hf_reader *r, int64_t layer) {
    struct hf_found types = hf_find_key(r, "layer_types");
    JDOC_EACH(types.j, e, types.v)
    if (layer-- == 0)
        return jdoc_is(types.j, e, "full_attention");
    return false;
}

// Gemma 4 of transformers 5: sizes of single layers, the same for each without a window, and of no other.
bool hf_read_overrides(const struct hf_reader *r, int64_t *head_dim, int64_t *kv_heads) {
    static const char key[] = "per_layer_config", expected[] =
                                                      "the same head_dim and num_key_value_heads for "
                                                      "each layer with full_attention, and no other";
    struct hf_found f = hf_find_key(r, key);
    int64_t found[2] = {-1, -1}, num = 0, full = 0;
    if (!f.v)
        return true;
    if (f.v->type != JDOC_OBJECT)
        return hf_refuse_value(r, key, f, "an object");
    for (int64_t i = 0; i < r->c->layers; i++)
        full += is_full(r, i);
    JDOC_EACH_KEY(f.j, layer, f.v) {
        static const char *const names[] = {"head_dim", "num_key_value_heads"};
        struct text_view number = jdoc_text(f.j, layer);
        int64_t at = 0, values[2] = {-1, -1};
        for (size_t i = 0; i < number.len && at < 1 << 20; i++)
            at = number.data[i] >= '0' && number.data[i] <= '9' ? at * 10 + (number.data[i] - '0') : 1 << 20;
        JDOC_EACH_KEY(f.j, name, layer + 1) {
            int which = jdoc_is(f.j, name, names[0]) ? 0 : jdoc_is(f.j, name, names[1]) ? 1 : -1;
            if (which < 0 || !jdoc_integer(f.j, name + 1, &values[which]) || values[which] < 1)
                return hf_refuse_value(r, key, f, expected);
        }
        if (!is_full(r, at) || (num > 0 && (values[0] != found[0] || values[1] != found[1])))
            return hf_refuse_value(r, key, f, expected);
        memcpy(found, values, sizeof found);
        num++;
    }
    if (num > 0 && num != full)
        return hf_refuse_value(r, key, f, expected);
    *head_dim = found[0] > 0 ? found[0] : r->c->window_dim;
    *kv_heads = found[1] > 0 ? found[1] : r->c->kv_heads;
    return true;
}
