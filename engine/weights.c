// See weights.h. To add a tensor or an architecture: rows in `slots`.
#include "weights.h"

#include "convert.h"
#include "log.h"
#include "tensor_read.h"

#include <stdlib.h>
#include <string.h>

// One weight of the model: up to three tensors that a backend loads as one, and their biases where the model
// has them: "<name>.bias", as many numbers as rows.
enum kind { MODEL, LAYER, QK_NORM }; // once; "blk.N.<name>"; the same where the model has a norm of q and k
static const struct slot {
    enum weight_role role;
    enum kind kind;
    size_t field; // in struct layer, or in struct model
    struct {
        const char *name, *shape; // of "<name>.weight"; letters as in model.h; Q is H*d and K is K*d
    } part[3];
} slots[] = {
    {WEIGHT_EMBED, MODEL, offsetof(struct model, embed), {{"token_embd", "VD"}}},
    {WEIGHT_HEAD, MODEL, offsetof(struct model, head), {{"output", "VD"}}},
    {WEIGHT_NORM, MODEL, offsetof(struct model, out_norm), {{"output_norm", "D"}}},
    {WEIGHT_NORM, LAYER, offsetof(struct layer, attn_norm), {{"attn_norm", "D"}}},
    {WEIGHT_QKV, LAYER, offsetof(struct layer, qkv), {{"attn_q", "QD"}, {"attn_k", "KD"}, {"attn_v", "KD"}}},
    {WEIGHT_NORM, QK_NORM, offsetof(struct layer, q_norm), {{"attn_q_norm", "d"}}},
    {WEIGHT_NORM, QK_NORM, offsetof(struct layer, k_norm), {{"attn_k_norm", "d"}}},
    {WEIGHT_ATTN_OUT, LAYER, offsetof(struct layer, attn_out), {{"attn_output", "DQ"}}},
    {WEIGHT_NORM, LAYER, offsetof(struct layer, ffn_norm), {{"ffn_norm", "D"}}},
    {WEIGHT_GATE_UP, LAYER, offsetof(struct layer, gate_up), {{"ffn_gate", "FD"}, {"ffn_up", "FD"}}},
    {WEIGHT_DOWN, LAYER, offsetof(struct layer, down), {{"ffn_down", "DF"}}},
};
enum { NUM_SLOTS = sizeof slots / sizeof slots[0] };

// What a file may have beside those: read by model_config.c, or left behind by old converters (tables we
// compute).
static const struct {
    bool per_layer;
    const char *name;
} extras[] = {{false, "rope_freqs.weight"}, {false, "rope.freqs"}, {true, "attn_rot_embd"}};

// How many weights of the model the slot stands for.
static int slot_count(const struct model_config *c, const struct slot *s) {
    return s->kind == MODEL ? 1 : s->kind == QK_NORM && !c->qk_norm ? 0 : c->num_layers;
}

static bool has_bias(const struct model_config *c, const struct slot *s) {
    return (s->role == WEIGHT_QKV && c->qkv_bias) || (s->role == WEIGHT_ATTN_OUT && c->out_bias);
}

static int64_t letter_size(const struct model_config *c, char letter) {
    switch (letter) {
    case 'V': return c->vocab;
    case 'D': return c->hidden;
    case 'F': return c->ffn;
    case 'd': return c->head_dim;
    case 'Q': return (int64_t)c->num_heads * c->head_dim;
    case 'K': return (int64_t)c->num_kv_heads * c->head_dim;
    }
    return 0;
}

static const char *part_name(const struct model_config *c, const struct slot *s, int part, bool bias,
                             int layer, char *buf, size_t size) {
    const char *name = s->role == WEIGHT_HEAD && c->tied ? "token_embd" : s->part[part].name;
    const char *end = bias ? "bias" : "weight";
    if (s->kind == MODEL)
        snprintf(buf, size, "%s.%s", name, end);
    else
        snprintf(buf, size, "blk.%d.%s.%s", layer, name, end);
    return buf;
}

static void shape_text(const struct tensor *t, char *buf, size_t size) {
    size_t n = 0;
    buf[0] = 0;
    for (int i = 0; i < t->ndim && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
}

static enum status check_part(const struct model_config *c, const struct gguf *g, const struct slot *s,
                              int part, bool bias, int layer, struct err *err) {
    char name[64], found[96], expected[96];
    part_name(c, s, part, bias, layer, name, sizeof name);
    const struct gguf_info *t = gguf_find_tensor(g, name);
    struct tensor want = {.ndim = bias ? 1 : (int)strlen(s->part[part].shape)};
    for (int i = 0; i < want.ndim; i++)
        want.shape[i] = letter_size(c, s->part[part].shape[i]);
    shape_text(&want, expected, sizeof expected);
    if (!t)
        return gguf_bad(g, err, "tensor %s is missing, expected with shape (%s)", name, expected);
    if (t->view.ndim != want.ndim || memcmp(t->view.shape, want.shape, sizeof want.shape) != 0) {
        shape_text(&t->view, found, sizeof found);
        return gguf_bad(g, err, "tensor %s has shape (%s), expected (%s)", name, found, expected);
    }
    if ((bias || s->role == WEIGHT_NORM) && t->view.dtype != DTYPE_F32)
        return gguf_bad(g, err, "tensor %s has type %s, expected F32", name, t->type_name);
    if (!dtype_is_weight(t->view.dtype)) {
        char known[160] = "";
        for (int d = 0; d < DTYPE_COUNT; d++)
            if (dtype_is_weight((enum dtype)d))
                snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", *known ? ", " : "",
                         dtype_name((enum dtype)d));
        return gguf_bad(g, err, "tensor %s has type %s, which is not supported yet; supported: %s", name,
                        t->type_name, known);
    }
    return STATUS_OK;
}

static bool is_name(const char *p, size_t len, const char *name, const char *end) {
    size_t n = strlen(name);
    return n + strlen(end) == len && memcmp(p, name, n) == 0 && memcmp(p + n, end, len - n) == 0;
}

// Whether the architecture has a tensor of this name.
static bool expected_name(const struct model_config *c, struct gguf_str name) {
    char want[64];
    const char *rest = name.data;
    size_t len = name.len;
    bool per_layer = false;
    if (len > 4 && memcmp(rest, "blk.", 4) == 0) {
        size_t i = 4;
        int layer = 0;
        while (i < len && rest[i] >= '0' && rest[i] <= '9' && layer < MODEL_MAX_LAYERS)
            layer = layer * 10 + (rest[i++] - '0');
        snprintf(want, sizeof want, "blk.%d.", layer); // and no leading zeros
        if (layer >= c->num_layers || strlen(want) >= len || memcmp(want, rest, strlen(want)) != 0)
            return false;
        per_layer = true;
        rest += strlen(want);
        len -= strlen(want);
    }
    for (size_t i = 0; i < NUM_SLOTS; i++)
        for (int p = 0; p < 3 && slots[i].part[p].name; p++)
            if ((slots[i].kind != MODEL) == per_layer && slot_count(c, &slots[i]) > 0 &&
                (is_name(rest, len, slots[i].part[p].name, ".weight") ||
                 (has_bias(c, &slots[i]) && is_name(rest, len, slots[i].part[p].name, ".bias"))))
                return true;
    for (size_t i = 0; i < sizeof extras / sizeof extras[0]; i++)
        if (extras[i].per_layer == per_layer && is_name(rest, len, extras[i].name, ""))
            return true;
    return false;
}

enum status weights_check(const struct model_config *c, const struct gguf *g, struct err *err) { // (14)
    for (size_t i = 0; i < NUM_SLOTS; i++)
        for (int layer = 0; layer < slot_count(c, &slots[i]); layer++)
            for (int p = 0; p < 3 && slots[i].part[p].name; p++)
                if (check_part(c, g, &slots[i], p, false, layer, err) ||
                    (has_bias(c, &slots[i]) && check_part(c, g, &slots[i], p, true, layer, err)))
                    return STATUS_FORMAT;
    for (size_t i = 0; i < gguf_num_tensors(g); i++) {
        struct gguf_str name = gguf_info_at(g, i)->name;
        bool bias = name.len > 5 && memcmp(name.data + name.len - 5, ".bias", 5) == 0;
        if (!expected_name(c, name))
            return gguf_bad(g, err, "tensor %.*s is not part of architecture %s with %d layers%s",
                            (int)name.len, name.data, c->arch, c->num_layers,
                            bias ? "; supported are biases of attention, in every layer" : "");
    }
    return STATUS_OK;
}

// ---- loading

struct loader {
    const struct model_config *whole;
    const struct weights_target *targets;
    int num_targets;
    const struct gguf *g;
    const struct backend_ops *ops;
    enum dtype floats; // what float matrices become; DTYPE_COUNT: nothing else
    unsigned char *buf, *converted;
    const struct gguf_info *first; // the tensor that buf begins with; NULL: none
    void *part;                    // columns of a matrix, where ranks share it; else NULL
    uint64_t done, total;          // bytes
};

static uint64_t padded(uint64_t bytes) {
    return (bytes + 63) / 64 * 64;
} // bytes are within a file: no overflow

static const struct gguf_info *find_part(const struct loader *l, const struct slot *s, int part, bool bias,
                                         int layer) {
    char name[64];
    return gguf_find_tensor(l->g, part_name(l->whole, s, part, bias, layer, name, sizeof name));
}

static uint64_t slot_bytes(const struct loader *l, const struct slot *s, int layer) {
    uint64_t bytes = 0;
    for (int p = 0; p < 3 && s->part[p].name; p++) {
        bytes += padded(find_part(l, s, p, false, layer)->bytes);
        if (has_bias(l->whole, s))
            bytes += padded(find_part(l, s, p, true, layer)->bytes);
    }
    return bytes;
}

// What a tensor of this type is loaded as.
static enum dtype loaded_dtype(enum dtype t, enum dtype floats) {
    return floats != DTYPE_COUNT && t != DTYPE_COUNT && dtype_is_float(t) ? floats : t;
}

static enum status convert_part(const struct loader *l, const struct gguf_info *t, struct tensor *part,
                                void *dst, struct err *err) {
    uint64_t bad = convert_floats(dst, l->floats, part->data, part->dtype, t->elements);
    if (bad < t->elements)
        return gguf_bad(
            l->g, err, "tensor %.*s: the value at byte %llu is too large for %s; use another --dtype",
            (int)t->name.len, t->name.data,
            (unsigned long long)(t->offset + bad * dtype_row_bytes(part->dtype, 1)), dtype_name(l->floats));
    part->dtype = l->floats;
    part->data = dst;
    return STATUS_OK;
}

// Reads a tensor to *at, and moves *at behind it. A tied head finds the embedding there.
static enum status read_part(struct loader *l, const struct gguf_info *t, unsigned char **at,
                             struct tensor *view, struct err *err) {
    enum status st;
    bool begins = *at == l->buf;
    if (!begins || t != l->first) {
        l->first = begins ? NULL : l->first;
        if ((st = tensor_read(l->g, t, *at, err)))
            return st;
        l->first = begins ? t : l->first;
    }
    *view = t->view;
    view->data = *at;
    *at += padded(t->bytes);
    return STATUS_OK;
}

// What the layer's down matrix is loaded as: it says where its gate and up are cut.
static enum dtype down_dtype(const struct loader *l, const struct slot *s, int layer) {
    if (s->role != WEIGHT_GATE_UP && s->role != WEIGHT_DOWN)
        return DTYPE_F32; // of no account
    for (size_t i = 0; i < NUM_SLOTS; i++)
        if (slots[i].role == WEIGHT_DOWN)
            return loaded_dtype(find_part(l, &slots[i], 0, false, layer)->view.dtype, l->floats);
    return DTYPE_F32;
}

static enum status load_slot(struct loader *l, const struct slot *s, int layer, struct err *err) {
    struct weight_desc desc = {.role = s->role, .layer = s->kind == MODEL ? -1 : layer};
    unsigned char *at = l->buf, *converted = l->converted;
    enum status st;
    bool wanted = false;
    for (int i = 0; i < l->num_targets; i++)
        wanted |= shard_holds(&l->targets[i].shard, desc.role, desc.layer);
    if (!wanted)
        return STATUS_OK;
    for (int p = 0; p < 3 && s->part[p].name; p++) {
        const struct gguf_info *t = find_part(l, s, p, false, layer);
        if ((st = read_part(l, t, &at, &desc.part[p], err)))
            return st;
        if (has_bias(l->whole, s) &&
            (st = read_part(l, find_part(l, s, p, true, layer), &at, &desc.bias[p], err)))
            return st;
        if (s->role != WEIGHT_NORM && loaded_dtype(t->view.dtype, l->floats) != t->view.dtype) {
            if ((st = convert_part(l, t, &desc.part[p], converted, err)))
                return st;
            converted += padded(t->elements * dtype_row_bytes(l->floats, 1));
        }
    }
    for (int i = 0; i < l->num_targets; i++) {
        const struct weights_target *target = &l->targets[i];
        struct weight_desc part;
        int first, end;
        if (!shard_holds(&target->shard, desc.role, desc.layer))
            continue;
        shard_layers(&target->shard, &first, &end);
        shard_cut(&target->shard, &desc, down_dtype(l, s, layer), l->part, &part);
        const struct weight *w = l->ops->weight_load(target->dev, &part, err);
        if (!w) {
            struct gguf_str name = find_part(l, s, 0, false, layer)->name;
            return err_set(err, STATUS_NOMEM, "%s: the device did not take tensor %.*s", gguf_name(l->g),
                           (int)name.len, name.data);
        }
        struct model *m = target->model;
        char *owner = s->kind == MODEL ? (char *)m : (char *)&m->layers[layer - first];
        memcpy(owner + s->field, &w, sizeof w);
    }
    return STATUS_OK;
}

static void free_buffers(struct loader *l) {
    free(l->buf);
    free(l->converted);
    free(l->part);
    l->buf = l->converted = NULL;
    l->part = NULL, l->first = NULL;
}

// Buffers for the largest weight of the model's own, or else of the layers', which come after and are much
// smaller: so the largest is not held while most of the weights are. STATUS_NOMEM.
static enum status make_buffers(struct loader *l, bool of_layers) {
    uint64_t largest = 0;
    for (size_t i = 0; i < NUM_SLOTS; i++)
        for (int layer = 0; (slots[i].kind != MODEL) == of_layers && layer < slot_count(l->whole, &slots[i]);
             layer++) {
            uint64_t bytes = slot_bytes(l, &slots[i], layer);
            largest = bytes > largest ? bytes : largest;
        }
    uint64_t converted = 2 * largest; // 16 bits may become 32
    free_buffers(l);
    if (!(l->buf = aligned_alloc(64, padded(largest))))
        return STATUS_NOMEM;
    if (l->floats != DTYPE_COUNT && !(l->converted = aligned_alloc(64, padded(converted))))
        return STATUS_NOMEM;
    if (l->targets[0].shard.world > 1 &&
        !(l->part = aligned_alloc(64, padded(l->floats != DTYPE_COUNT ? converted : largest))))
        return STATUS_NOMEM;
    return STATUS_OK;
}

// Layers, and what there is to load. STATUS_NOMEM.
static enum status prepare(struct loader *l) {
    for (int i = 0; i < l->num_targets; i++) {
        struct model *m = l->targets[i].model;
        int first, end;
        shard_layers(&l->targets[i].shard, &first, &end);
        if (!(m->layers = calloc((size_t)(end - first), sizeof *m->layers)))
            return STATUS_NOMEM;
        for (int layer = 0; layer < end - first; layer++)
            m->layers[layer].index = layer;
    }
    for (size_t i = 0; i < NUM_SLOTS; i++)
        for (int layer = 0; layer < slot_count(l->whole, &slots[i]); layer++)
            l->total += slot_bytes(l, &slots[i], layer);
    return STATUS_OK;
}

enum status weights_load_ranks(const struct weights_target *targets, int num_targets, const struct gguf *g,
                               enum dtype floats, const struct backend_ops *ops,
                               void (*progress)(void *, double), void *arg, struct err *err) {
    struct err local = {0};
    struct loader l = {.whole = targets[0].shard.whole,
                       .targets = targets,
                       .num_targets = num_targets,
                       .g = g,
                       .ops = ops,
                       .floats = floats};
    if (!err)
        err = &local;
    if (weights_check(l.whole, g, err))
        return err->code;
    bool ok = prepare(&l) == STATUS_OK;
    for (size_t i = 0; ok && i < NUM_SLOTS; i++) {
        bool of_layers = slots[i].kind != MODEL;
        if (i == 0 || of_layers != (slots[i - 1].kind != MODEL))
            ok = make_buffers(&l, of_layers) == STATUS_OK;
        for (int layer = 0; ok && err->code == STATUS_OK && layer < slot_count(l.whole, &slots[i]); layer++) {
            if (load_slot(&l, &slots[i], layer, err) != STATUS_OK)
                break;
            l.done += slot_bytes(&l, &slots[i], layer);
            if (progress)
                progress(arg, (double)l.done / (double)l.total);
        }
    }
    free_buffers(&l);
    if (!ok)
        err_set(err, STATUS_NOMEM, "%s: out of memory for its largest weight", gguf_name(g));
    for (int i = 0; err->code != STATUS_OK && i < num_targets; i++)
        weights_free(targets[i].model);
    return err->code;
}

enum status weights_load(struct model *m, const struct gguf *g, enum dtype floats,
                         const struct backend_ops *ops, struct device *dev, void (*progress)(void *, double),
                         void *arg, struct err *err) {
    struct weights_target one = {{.whole = &m->config, .world = 1}, m, dev};
    return weights_load_ranks(&one, 1, g, floats, ops, progress, arg, err);
}

void weights_free(struct model *m) {
    free(m->layers);
    m->layers = NULL;
}

void weights_blocks(const struct model_config *c, const struct gguf *g, enum dtype floats,
                    struct shard_blocks *blocks) {
    struct loader l = {.whole = c, .g = g};
    *blocks = (struct shard_blocks){1, 1};
    for (size_t i = 0; i < NUM_SLOTS; i++)
        for (int layer = 0; layer < slot_count(c, &slots[i]); layer++) {
            int *largest = slots[i].role == WEIGHT_ATTN_OUT ? &blocks->attn : &blocks->down;
            if (slots[i].role != WEIGHT_ATTN_OUT && slots[i].role != WEIGHT_DOWN)
                continue;
            enum dtype t = find_part(&l, &slots[i], 0, false, layer)->view.dtype;
            int block = shard_block(loaded_dtype(t, floats));
            *largest = block > *largest ? block : *largest;
        }
}

uint64_t weights_num_params(const struct gguf *g) {
    uint64_t sum = 0;
    for (size_t i = 0; i < gguf_num_tensors(g); i++) {
        const struct gguf_info *t = gguf_info_at(g, i);
        if (t != gguf_find_tensor(g, "rope_freqs.weight"))
            sum += t->elements; // every element has a byte or part of one in the file: no overflow
    }
    return sum;
}

enum dtype weights_main_dtype(const struct gguf *g, enum dtype floats) {
    uint64_t bytes[DTYPE_COUNT + 1] = {0};
    int best = DTYPE_COUNT;
    for (size_t i = 0; i < gguf_num_tensors(g); i++) {
        const struct gguf_info *t = gguf_info_at(g, i);
        if (t->view.ndim > 1)
            bytes[t->view.dtype] += t->bytes;
    }
    for (int i = 0; i <= DTYPE_COUNT; i++)
        if (bytes[i] > bytes[best])
            best = i;
    return loaded_dtype((enum dtype)best, floats);
}
