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

// ---- DeciLM

static bool is_off(const struct jdoc *j, const struct jdoc_value *v) {
    return v->type == JDOC_NULL || v->type == JDOC_FALSE || jdoc_number(j, v) == 0;
}

// Whether a part of a block says nothing else than `known`.
static bool check_block_keys(const struct hf_reader *r, const struct jdoc *j, const struct jdoc_value *part,
                             const char *const known[4]) {
    JDOC_EACH_KEY(j, name, part) {
        bool found = is_off(j, name + 1);
        for (int i = 0; i < 4 && known[i]; i++)
            found |= jdoc_is(j, name, known[i]);
        if (found)
            continue;
        struct text_view s = jdoc_text(j, name);
        const char *key = hf_text(r->keys, "%.*s of block_configs", (int)(s.len < 40 ? s.len : 40), s.data);
        return key && hf_refuse_value(r, key, (struct hf_found){.j = j, .v = name + 1}, "null, false or 0");
    }
    return true;
}

// The size of a feed-forward without gate times a factor, of which two thirds are meant, rounded up.
static int64_t ffn_size(double factor, int64_t hidden) {
    int64_t size = (int64_t)(2 * factor * (double)hidden / 3);
    return (size + 255) / 256 * 256;
}

static bool read_block(const struct hf_reader *r, const struct jdoc *j, const struct jdoc_value *block,
                       int32_t sizes[3]) {
    static const char *const in_attn[4] = {"n_heads_in_group", "no_op"}, *const in_ffn[4] = {
                                                                             "ffn_mult", "intermediate_size",
                                                                             "no_op"};
    const struct jdoc_value *attn = jdoc_get(j, block, "attention"), *ffn = jdoc_get(j, block, "ffn"),
                            *no_attn = jdoc_get(j, attn, "no_op"), *no_ffn = jdoc_get(j, ffn, "no_op");
    int64_t group = 0, size = 0, heads = r->c->heads;
    double factor = jdoc_number(j, jdoc_get(j, ffn, "ffn_mult"));
    if (!attn || !ffn || attn->type != JDOC_OBJECT || ffn->type != JDOC_OBJECT)
        return hf_refuse_value(r, "block_configs", (struct hf_found){.j = j, .v = block},
                               "attention and ffn for each layer");
    if (!check_block_keys(r, j, attn, in_attn) || !check_block_keys(r, j, ffn, in_ffn))
        return false;
    bool attends = !no_attn || no_attn->type != JDOC_TRUE, feeds = !no_ffn || no_ffn->type != JDOC_TRUE;
    bool given = jdoc_integer(j, jdoc_get(j, ffn, "intermediate_size"), &size);
    if (attends &&
        (!jdoc_integer(j, jdoc_get(j, attn, "n_heads_in_group"), &group) || group < 1 || heads % group))
        return hf_refuse_value(r, "n_heads_in_group of block_configs", (struct hf_found){.j = j, .v = attn},
                               "a number that divides num_attention_heads, or no_op");
    if (feeds && !given && factor > 0 && factor < 1000)
        size = ffn_size(factor, r->c->hidden);
    if (feeds && (size < 1 || size > INT32_MAX))
        return hf_refuse_value(r, "ffn_mult of block_configs", (struct hf_found){.j = j, .v = ffn},
                               "a positive number, or no_op");
    sizes[0] = attends ? (int32_t)heads : 0;
    sizes[1] = attends ? (int32_t)(heads / group) : 0;
    sizes[2] = feeds ? (int32_t)size : 0;
    return true;
}

bool hf_read_blocks(struct hf_reader *r) {
    static const char *const names[3] = {"attention.head_count", "attention.head_count_kv",
                                         "feed_forward_length"};
    struct hf_config *c = r->c;
    struct hf_found blocks = hf_find_key(r, "block_configs"),
                    each = hf_find_key(r, "num_key_value_heads_per_layer");
    const char *key = blocks.v ? "block_configs" : "num_key_value_heads_per_layer";
    struct hf_found list = blocks.v ? blocks : each;
    int32_t *sizes[3], own[3] = {(int32_t)c->heads, (int32_t)c->kv_heads, 0};
    int64_t ffn = 0, kv, n = 0;
    for (int k = 0; k < 3; k++)
        if (!(sizes[k] = hf_alloc(r->keys, (size_t)c->layers * sizeof **sizes)))
            return true; // keys->failed
    if (!blocks.v && !hf_read_size(r, "intermediate_size", true, &ffn))
        return false;
    own[2] = (int32_t)ffn;
    if (list.v && (list.v->type != JDOC_ARRAY || list.v->len != c->layers))
        return hf_refuse_value(r, key, list, "an array with an element for each layer");
    for (int64_t i = 0; i < c->layers && !list.v; i++)
        for (int k = 0; k < 3; k++)
            sizes[k][i] = own[k];
    JDOC_EACH(list.j, e, list.v) {
        if (blocks.v && !read_block(r, list.j, e, own))
            return false;
        if (!blocks.v && (!jdoc_integer(list.j, e, &kv) || kv < 1 || kv > c->heads))
            return hf_refuse_value(r, key, (struct hf_found){.j = list.j, .v = e},
                                   "1 to num_attention_heads");
        own[1] = blocks.v ? own[1] : (int32_t)kv;
        for (int k = 0; k < 3; k++)
            sizes[k][n] = own[k];
        n++;
    }
    c->kv_heads_differ = true;
    for (int k = 0; k < 3; k++)
        hf_array(r->keys, hf_our_key(r, names[k]), META_I32, (uint64_t)c->layers, sizes[k], key);
    return true;
}

// ---- SmallThinker

// 0 or 1 for each layer; `all` where there is no list.
static unsigned char *read_layout(const struct hf_reader *r, const char *key, unsigned char all) {
    struct hf_found f = hf_find_key(r, key);
    unsigned char *flags = hf_alloc(r->keys, (size_t)r->c->layers);
    int64_t v, i = 0;
    if (flags)
        memset(flags, all, (size_t)r->c->layers);
    if (f.v && (f.v->type != JDOC_ARRAY || f.v->len != r->c->layers)) {
        hf_refuse_value(r, key, f, "an array with an element for each layer");
        return NULL;
    }
    JDOC_EACH(f.j, e, f.v) {
        if (!jdoc_integer(f.j, e, &v) || v < 0 || v > 1) {
            hf_refuse_value(r, key, (struct hf_found){.j = f.j, .v = e}, "0 or 1");
            return NULL;
        }
        if (flags)
            flags[i++] = v == 1;
    }
    return flags;
}

bool hf_read_layouts(const struct hf_reader *r) {
    unsigned char *rotate = read_layout(r, "rope_layout", 1),
                  *windowed = read_layout(r, "sliding_window_layout", 0);
    int64_t window = 4096;
    bool softmax = false;
    if (!rotate || !windowed)
        return r->keys->failed;
    if (!hf_read_size(r, "sliding_window_size", false, &window) ||
        !hf_read_flag(r, "moe_primary_router_apply_softmax", &softmax))
        return false;
    add_flags(r, "quire.rope_layers", rotate, "rope_layout");
    if (memchr(windowed, 1, (size_t)r->c->layers)) {
        hf_add_int(r, "attention.sliding_window", window, "sliding_window_size");
        add_flags(r, hf_our_key(r, "attention.sliding_window_pattern"), windowed, "sliding_window_layout");
    }
    hf_add_int(r, "expert_gating_func", softmax ? 1 : 2, "moe_primary_router_apply_softmax");
    return true;
}
