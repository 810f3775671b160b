// See weights.h. Which tensors there are: arch_slots.c; their shapes: weights.def. Over 600 lines: checks and loading find
// tensors in the same way.
#include "weights.h"

#include "architectures.h"
#include "convert.h"
#include "latent.h"
#include "log.h"
#include "tensor_read.h"

#include <stdlib.h>
#include <string.h>

static const struct arch *arch_of(const struct model_config *c) {
    const struct arch *a = arch_find(c->arch, strlen(c->arch));
    CHECK(a);
    return a;
}

static bool slot_in_layer(const struct model_config *c, const struct weight_slot *s, int layer) {
    const struct attn_spec *a = model_attn(c, layer);
    bool qdown = a && a->q_lora > 0, experts = model_ffn(c, layer)->experts > 0, in = true;
    switch (s->in) {
    case LAYERS_ALL: break;
    case LAYERS_LATER: in = layer + c->mtp_layer > 0; break;
    case LAYERS_QDOWN: in = qdown; break;
    case LAYERS_NO_QDOWN: in = !qdown; break;
    case LAYERS_EXPERTS: in = experts; break;
    case LAYERS_DENSE: in = !experts; break;
    }
    if (s->role == WEIGHT_ATTN_NORM && arch_of(c)->traits & TRAIT_PARTS_MISSING)
        in &= a != NULL;
    return in && weight_shape_of(c, s->role, layer, 0).ndim > 0;
}

// Goes on to the next layer that has a weight of the slot; from -1 to the first. false: there is none.
static bool slot_next(const struct model_config *c, const struct weight_slot *s, int *layer) {
    int end = !arch_has_slot(arch_of(c), s) ? 0 : weight_in_layers(s->role) ? c->num_layers : 1;
    do
        ++*layer;
    while (*layer < end && !slot_in_layer(c, s, *layer));
    return *layer < end;
}

// The layer's slot of a role, or NULL.
static const struct weight_slot *layer_slot(const struct model_config *c, enum weight_role role, int layer) {
    const struct arch *a = arch_of(c);
    for (int i = 0; i < num_arch_slots; i++)
        if (arch_slots[i].role == role && arch_has_slot(a, &arch_slots[i]) &&
            slot_in_layer(c, &arch_slots[i], layer))
            return &arch_slots[i];
    return NULL;
}

static bool has_part(const struct model_config *c, const struct weight_slot *s, int part, int layer) {
    return part < 3 && s->part[part].name && weight_shape_of(c, s->role, layer, part).ndim > 0;
}

// The name in the MTP layer's file of what it has of its own beside a layer; NULL: the role is none of these.
static const char *mtp_name(const struct model_config *c, enum weight_role role) {
    switch (role) {
    case WEIGHT_EMBED: return c->mtp_embed ? MTP_EMBED : NULL;
    case WEIGHT_HEAD: return c->mtp_head ? MTP_HEAD : NULL;
    case WEIGHT_OUT_NORM: return c->mtp_norm ? MTP_NORM : NULL;
    case WEIGHT_FFN_NORM: return arch_of(c)->traits & TRAIT_ONE_PART ? "ffn_norm" : NULL; // it has both parts
    case WEIGHT_MTP_PROJ: return c->mtp_hidden_first ? MTP_HIDDEN_PROJ : MTP_PROJ;
    case WEIGHT_MTP_EMBED_NORM:
    case WEIGHT_MTP_HIDDEN_NORM: return arch_slot(arch_of(c), role)->part[0].name;
    default: return NULL;
    }
}

// A tied head is the embedding; the one norm of a parallel block is the one called attn_norm; tied values are keys.
static const char *part_name(const struct model_config *c, const struct weight_slot *s, int part, bool bias,
                             int layer, char name[TENSOR_NAME_BYTES]) {
    const char *own = c->mtp_layer > 0 ? mtp_name(c, s->role) : NULL;
    if (own) {
        snprintf(name, TENSOR_NAME_BYTES, "blk.%d.%s.weight", c->mtp_layer, own);
        return name;
    }
    if (s->role == WEIGHT_HEAD && c->tied)
        s = arch_slot(arch_of(c), WEIGHT_EMBED);
    bool two = arch_of(c)->traits & TRAIT_TWO_ATTN_NORMS;
    if ((s->role == WEIGHT_FFN_NORM || s->role == WEIGHT_ATTN_NORM) && c->block == BLOCK_ONE_NORM)
        s = arch_slot(arch_of(c), two ? WEIGHT_FFN_NORM : WEIGHT_ATTN_NORM);
    if (s->role == WEIGHT_QKV && part == 2 && model_attn(c, layer)->tied_values)
        part = 1;
    return arch_tensor_name(s, part, bias, layer + c->mtp_layer, name);
}

static void shape_text(const struct tensor *t, char *buf, size_t size) {
    size_t n = 0;
    buf[0] = 0;
    for (int i = 0; i < t->ndim && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
}

// Whether the weight is no tensor, but 1 for each element.
static bool is_ones(const struct model_config *c, const struct weight_slot *s) {
    bool norm = s->role == WEIGHT_ATTN_NORM || s->role == WEIGHT_FFN_NORM || s->role == WEIGHT_OUT_NORM;
    return norm && arch_of(c)->traits & TRAIT_BARE_NORMS;
}

// Whether the file has all parts of the layer's weight as one tensor.
static bool is_fused(const struct model_config *c, const struct model_file *f, const struct weight_slot *s,
                     int layer) {
    char name[TENSOR_NAME_BYTES];
    return s->fused && !model_file_find(f, part_name(c, s, 0, false, layer, name)) &&
           model_file_find(f, part_name(c, s, FUSED_PART, false, layer, name));
}

// Which dimension of a part counts its rows: the last but one of a matrix.
static int row_dim(const struct weight_shape *s) { return s->ndim > 1 ? s->ndim - 2 : 0; }

// Where the rows of a part are in its tensor, which has `turns` times as many as are counted here.
struct rows_in {
    int64_t before, rows, all, turns;
};

static bool is_listed(const struct weight_slot *s, int part) {
    for (int i = 0; s->rows && i < s->rows->num; i++)
        if (s->rows->of[i].role == s->role && s->rows->of[i].part == part)
            return true;
    return false;
}

// fused: in the tensor that has all parts; part FUSED_PART: of which only `all` counts.
static struct rows_in find_rows(const struct model_config *c, const struct weight_slot *s, int part,
                                bool fused, int layer) {
    struct tensor_rows list = {{{s->role, part}}, 1, TURNS_NONE};
    if (is_listed(s, part))
        list = *s->rows;
    else if (fused)
        list = (struct tensor_rows){{{s->role, 0}, {s->role, 1}, {s->role, 2}}, 3, TURNS_NONE};
    struct rows_in r = {.turns = list.turns == TURNS_OF_HEADS    ? model_attn(c, layer)->heads
                                 : list.turns == TURNS_OF_GROUPS ? model_mix(c, layer)->groups
                                                                 : 1};
    for (int i = 0; i < list.num; i++) {
        struct weight_shape shape = weight_shape_of(c, list.of[i].role, layer, list.of[i].part);
        int64_t rows = shape.ndim > 0 ? shape.size[row_dim(&shape)] / r.turns : 0;
        if (list.of[i].role == s->role && list.of[i].part == part)
            r.before = r.all, r.rows = rows;
        r.all += rows;
    }
    return r;
}

// The shape that the file's tensor must have.
static struct tensor want_tensor(const struct model_config *c, const struct weight_slot *s, int part,
                                 bool bias, int layer) {
    bool fused = part == FUSED_PART;
    struct weight_shape shape = weight_shape_of(c, s->role, layer, fused ? 0 : part);
    struct rows_in rows = find_rows(c, s, part, fused, layer);
    struct tensor want = {.ndim = shape.ndim - (bias && shape.ndim > 1)};
    if (fused && s->split)
        return latent_fused(model_attn(c, layer));
    shape.size[row_dim(&shape)] = rows.all * rows.turns;
    if (s->stacked)
        want.ndim++, want.shape[0] = c->altup_streams - 1;
    for (int i = 0; i < shape.ndim && i + s->stacked < want.ndim; i++)
        want.shape[i + s->stacked] = shape.size[i];
    if (!fused && s->part[part].column)
        want.shape[want.ndim++] = 1;
    return want;
}

static enum status check_part(const struct model_config *c, const struct model_file *f,
                              const struct weight_slot *s, int part, bool bias, int layer, struct err *err) {
    char ours[TENSOR_NAME_BYTES], found[96], expected[96], label[MODEL_LABEL_BYTES];
    part_name(c, s, part, bias, layer, ours);
    const struct model_tensor *t = model_file_find(f, ours);
    const char *name = model_file_label(f, ours, label);
    struct tensor want = want_tensor(c, s, part, bias, layer);
    shape_text(&want, expected, sizeof expected);
    if (!t)
        return model_file_bad(f, err, "tensor %s is missing, expected with shape (%s)", name, expected);
    if (t->view.ndim != want.ndim || memcmp(t->view.shape, want.shape, sizeof want.shape) != 0) {
        shape_text(&t->view, found, sizeof found);
        return model_file_bad(f, err, "tensor %s has shape (%s), expected (%s)", name, found, expected);
    }
    enum weight_types types = weight_info(s->role)->types;
    if ((bias || types == TYPES_F32) && t->view.dtype != DTYPE_F32)
        return model_file_bad(f, err, "tensor %s has type %s, expected F32", name, t->type_name);
    if (types == TYPES_FLOATS && (t->view.dtype == DTYPE_COUNT || !dtype_is_float(t->view.dtype)))
        return model_file_bad(f, err, "tensor %s has type %s, expected F32, F16 or BF16", name, t->type_name);
    if (!dtype_is_weight(t->view.dtype)) {
        char known[160] = "";
        for (int d = 0; d < DTYPE_COUNT; d++)
            if (dtype_is_weight((enum dtype)d))
                snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", *known ? ", " : "",
                         dtype_name((enum dtype)d));
        return model_file_bad(f, err, "tensor %s has type %s, which is not supported yet; supported: %s",
                              name, t->type_name, known);
    }
    return STATUS_OK;
}

// Files have keys and values of layers that share others', which are not read.
static bool is_left_behind(const struct model_config *c, const struct tensor_place *at, int layer) {
    const struct attn_spec *a = model_attn(c, layer);
    return at->layer >= 0 && a && a->shares_kv &&
           (at->slot->role == WEIGHT_K_NORM || (at->slot->role == WEIGHT_QKV && at->part > 0));
}

// Whether a model of this configuration has a tensor of this name. Those of layers behind the model's are nobody's
// business.
static bool is_expected(const struct model_config *c, const struct model_file *f, struct text_view name) {
    struct tensor_place at;
    bool known = arch_find_tensor(arch_of(c), name.data, name.len, &at);
    if (at.layer >= c->num_layers)
        return at.layer < c->num_layers + c->num_nextn;
    if (!known)
        return false;
    int layer = at.layer < 0 ? 0 : at.layer;
    if (!at.slot || is_left_behind(c, &at, layer))
        return true;
    if (!slot_in_layer(c, at.slot, layer) || is_ones(c, at.slot))
        return false;
    bool there = is_fused(c, f, at.slot, layer) ? at.fused : at.part != FUSED_PART;
    char own[TENSOR_NAME_BYTES]; // that of an absent weight is another's
    if (at.part != FUSED_PART)
        there &= !strncmp(part_name(c, at.slot, at.part, at.bias, layer, own), name.data, name.len);
    return there && (!at.bias || weight_shape_of(c, at.slot->role, layer, 0).bias);
}

static enum status check_slot(const struct model_config *c, const struct model_file *f,
                              const struct weight_slot *s, int layer, struct err *err) {
    bool fused = is_fused(c, f, s, layer);
    if (is_ones(c, s))
        return STATUS_OK;
    for (int p = fused ? FUSED_PART : 0; p < (fused ? 0 : 3) && (fused || has_part(c, s, p, layer)); p++)
        if (check_part(c, f, s, p, false, layer, err) ||
            (weight_shape_of(c, s->role, layer, 0).bias && check_part(c, f, s, p, true, layer, err)))
            return STATUS_FORMAT;
    return STATUS_OK;
}

enum status weights_check(const struct model_config *c, const struct model_file *f, struct err *err) { // (14)
    for (int i = 0; i < num_arch_slots; i++)
        for (int layer = -1; slot_next(c, &arch_slots[i], &layer);)
            if (check_slot(c, f, &arch_slots[i], layer, err))
                return STATUS_FORMAT;
    for (size_t i = 0; i < f->num_tensors && c->mtp_layer == 0; i++) { // else there are another model's, too
        struct text_view name = f->tensors[i].name, label = model_tensor_label(&f->tensors[i]);
        bool bias = name.len > 5 && memcmp(name.data + name.len - 5, ".bias", 5) == 0;
        if (!is_expected(c, f, name))
            return model_file_bad(f, err, "tensor %.*s is not part of architecture %s with %d layers%s",
                                  (int)label.len, label.data, c->arch, c->num_layers,
                                  bias ? "; a bias is in every layer or in none" : "");
    }
    return STATUS_OK;
}

// ---- loading

struct loader {
    const struct model_config *whole;
    const struct arch *arch; // of it
    const struct weights_target *targets;
    int num_targets;
    const struct model_file *f;
    const struct backend_ops *ops;
    enum dtype floats; // type that float matrices become; DTYPE_COUNT: their own
    unsigned char *buf, *converted;
    uint64_t first;       // offset of the tensor that buf begins with; UINT64_MAX: none
    void *part;           // columns of a matrix, where ranks share it; else NULL
    uint64_t done, total; // bytes
};

// bytes are within a file: no overflow.
static uint64_t padded(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

// A part's rows of a tensor: `runs` times as many that lie beside each other, `stride` bytes from one run to the next.
struct row_runs {
    struct model_tensor t; // its offset is that of the first run
    uint64_t runs, stride; // runs 0: no tensor has it, is_ones()
};

static struct row_runs find_ones(const struct model_config *c) {
    uint64_t n = (uint64_t)c->hidden;
    struct text_view name = {"of ones", 7};
    struct tensor view = {.dtype = DTYPE_F32, .ndim = 1, .shape = {c->hidden}};
    return (struct row_runs){{.name = name, .view = view, .elements = n, .bytes = n * sizeof(float)}, 0, 0};
}

// The tensor of a part, or those rows of the fused one that are the part's; all of one that is split (latent.h).
static struct row_runs find_part(const struct loader *l, const struct weight_slot *s, int part, bool bias,
                                 int layer) {
    char name[TENSOR_NAME_BYTES];
    if (is_ones(l->whole, s))
        return find_ones(l->whole);
    bool fused = is_fused(l->whole, l->f, s, layer);
    struct model_tensor t =
        *model_file_find(l->f, part_name(l->whole, s, fused ? FUSED_PART : part, bias, layer, name));
    struct weight_shape shape = weight_shape_of(l->whole, s->role, layer, part);
    struct rows_in in = find_rows(l->whole, s, part, fused, layer);
    int dim = row_dim(&shape);
    if (fused && s->split)
        return (struct row_runs){t, 1, t.bytes};
    if (s->stacked) {
        uint64_t n = (uint64_t)t.view.shape[0];
        t.bytes /= n;
        t.elements /= n;
        t.offset += t.bytes * (uint64_t)s->at;
        t.view =
            (struct tensor){.dtype = t.view.dtype, .ndim = 2, .shape = {t.view.shape[1], t.view.shape[2]}};
        return (struct row_runs){t, 1, t.bytes};
    }
    uint64_t outer = 1, rows = (uint64_t)in.rows, turn = (uint64_t)in.all;
    for (int i = 0; i < dim; i++)
        outer *= (uint64_t)t.view.shape[i];
    uint64_t runs = outer * (uint64_t)in.turns, row_bytes = t.bytes / (runs * turn);
    t.offset += (uint64_t)in.before * row_bytes;
    t.bytes = runs * rows * row_bytes;
    t.elements = t.elements / turn * rows;
    t.view.shape[dim] = (int64_t)rows * in.turns;
    if (s->part[part].column)
        t.view.ndim = 1, t.view.shape[1] = 0;
    return (struct row_runs){t, runs, turn * row_bytes};
}

static uint64_t slot_bytes(const struct loader *l, const struct weight_slot *s, int layer) {
    uint64_t bytes = 0;
    for (int p = 0; has_part(l->whole, s, p, layer); p++) {
        bytes += padded(find_part(l, s, p, false, layer).t.bytes);
        if (weight_shape_of(l->whole, s->role, layer, p).bias)
            bytes += padded(find_part(l, s, p, true, layer).t.bytes);
    }
    return bytes;
}

// The type that a tensor of this type is loaded as.
static enum dtype loaded_dtype(enum dtype t, enum dtype floats) {
    bool other = floats != DTYPE_COUNT && t != DTYPE_COUNT && dtype_is_float(t);
    return other && (t != DTYPE_FP8 || floats != DTYPE_BF16) ? floats : t;
}

// The same by its role: a router is F32, whatever others are; FP8 that ranks would cut inside a block is BF16.
static enum dtype slot_dtype(const struct loader *l, const struct weight_slot *s, const struct tensor *t) {
    bool any = weight_info(s->role)->types == TYPES_ANY;
    enum dtype to = any ? loaded_dtype(t->dtype, l->floats) : DTYPE_F32;
    bool across = weight_shape_of(l->whole, s->role, 0, 0).axis == 1;
    int64_t piece = (int64_t)dtype_block(DTYPE_FP8) * l->targets[0].shard.world;
    return to == DTYPE_FP8 && across && t->shape[t->ndim - 1] % piece ? DTYPE_BF16 : to;
}

static enum status convert_part(const struct loader *l, const struct row_runs *p, struct tensor *part,
                                enum dtype to, void *dst, struct err *err) {
    const struct model_tensor *t = &p->t;
    uint64_t n = 1;
    for (int i = 0; i < part->ndim; i++)
        n *= (uint64_t)part->shape[i];
    uint64_t bad = convert_floats(dst, to, part->data, part->dtype, n), run = t->bytes / p->runs;
    uint64_t block = (uint64_t)dtype_block(part->dtype),
             at = bad / block * dtype_row_bytes(part->dtype, dtype_block(part->dtype));
    if (bad < n)
        return model_file_bad(
            l->f, err, "tensor %.*s: the value at byte %llu is too large for %s; use another --dtype",
            (int)t->name.len, t->name.data, (unsigned long long)(t->offset + at / run * p->stride + at % run),
            dtype_name(to));
    part->dtype = to;
    part->data = dst;
    return STATUS_OK;
}

// Reads a part to *at, and moves *at behind it. A tied head finds the embedding there.
static enum status read_part(struct loader *l, const struct row_runs *p, unsigned char **at,
                             struct tensor *view, struct err *err) {
    enum status st = STATUS_OK;
    bool begins = *at == l->buf, there = begins && p->runs == 1 && p->t.offset == l->first;
    struct model_tensor run = p->t;
    run.bytes /= p->runs ? p->runs : 1;
    for (uint64_t i = 0; p->runs == 0 && i < run.elements; i++)
        memcpy(*at + i * sizeof(float), &(float){1}, sizeof(float));
    for (uint64_t i = 0; i < p->runs && !there && st == STATUS_OK; i++, run.offset += p->stride)
        st = tensor_read(l->f, &run, *at + i * run.bytes, err);
    if (begins)
        l->first = st == STATUS_OK && p->runs == 1 ? p->t.offset : UINT64_MAX;
    *view = p->t.view;
    view->data = *at;
    *at += padded(p->t.bytes);
    return st;
}

// The type that the layer's down matrix is loaded as: it says where its gate and up are cut.
static enum dtype down_dtype(const struct loader *l, const struct weight_slot *s, int layer) {
    if (s->role != WEIGHT_GATE_UP && s->role != WEIGHT_DOWN)
        return DTYPE_F32; // unused for other roles
    return weights_down_dtype(l->whole, l->f, l->floats, layer);
}

// Whether an MTP layer takes the weight of the model that it predicts for.
static bool is_borrowed(const struct loader *l, enum weight_role role) {
    bool shared = role == WEIGHT_EMBED ? !l->whole->mtp_embed : role == WEIGHT_HEAD && !l->whole->mtp_head;
    return shared && l->targets[0].lender && l->ops->weight_borrow;
}

static void borrow_weight(struct loader *l, enum weight_role role) {
    const struct weights_target *t = &l->targets[0];
    const struct weight *w = role == WEIGHT_EMBED ? t->lender->embed : t->lender->head;
    *weight_at(t->model, role, 0, 0) = w;
    l->ops->weight_borrow(t->dev, w);
}

static enum status load_slot(struct loader *l, const struct weight_slot *s, int layer, struct err *err) {
    bool in_layers = weight_in_layers(s->role);
    struct weight_desc desc = {.role = s->role, .layer = in_layers ? layer : -1};
    unsigned char *at = l->buf, *converted = l->converted;
    enum status st;
    bool wanted = false;
    if (s->role == WEIGHT_HEAD && l->whole->pooling != POOLING_NONE)
        return STATUS_OK;
    for (int i = 0; i < l->num_targets; i++)
        wanted |= shard_holds(&l->targets[i].shard, desc.role, desc.layer);
    if (!wanted)
        return STATUS_OK;
    if (is_borrowed(l, s->role)) {
        borrow_weight(l, s->role);
        return STATUS_OK;
    }
    for (int p = 0; has_part(l->whole, s, p, layer); p++) {
        struct row_runs rows = find_part(l, s, p, false, layer);
        const struct model_tensor *t = &rows.t;
        if ((st = read_part(l, &rows, &at, &desc.part[p], err)))
            return st;
        if (weight_shape_of(l->whole, s->role, layer, p).bias) {
            struct row_runs bias = find_part(l, s, p, true, layer);
            if ((st = read_part(l, &bias, &at, &desc.bias[p], err)))
                return st;
        }
        if (s->split && is_fused(l->whole, l->f, s, layer)) {
            latent_split(model_attn(l->whole, layer), s->role, &desc.part[p], converted);
            converted += padded(t->elements * sizeof(float));
        }
        // Keys of FP8 that were split are BF16.
        const struct tensor *from = t->view.dtype == DTYPE_FP8 ? &desc.part[p] : &t->view;
        enum dtype to = slot_dtype(l, s, from);
        if (to != from->dtype) {
            if ((st = convert_part(l, &rows, &desc.part[p], to, converted, err)))
                return st;
            converted += padded(t->elements * dtype_row_bytes(to, 1));
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
        part.layer = in_layers ? layer - first : -1;
        const struct weight *w = l->ops->weight_load(target->dev, &part, err);
        if (!w) {
            struct text_view name = find_part(l, s, 0, false, layer).t.name;
            return err_set(err, STATUS_NOMEM, "%s: the device did not take tensor %.*s", l->f->name,
                           (int)name.len, name.data);
        }
        *weight_at(target->model, s->role, layer - first, s->at) = w;
    }
    return STATUS_OK;
}

static void free_buffers(struct loader *l) {
    free(l->buf);
    free(l->converted);
    free(l->part);
    l->buf = l->converted = NULL;
    l->part = NULL, l->first = UINT64_MAX;
}

// Buffers for the largest weight of the model's own, or else of the layers', which come after and are much
// smaller: so the largest is not held while most of the weights are. STATUS_NOMEM.
static enum status make_buffers(struct loader *l, bool of_layers) {
    uint64_t largest = 0, split = 0;                        // bytes
    bool convert = l->floats != DTYPE_COUNT, widen = false; // widen: FP8
    for (int i = 0; i < num_arch_slots; i++)
        for (int layer = -1; weight_in_layers(arch_slots[i].role) == of_layers &&
                             slot_next(l->whole, &arch_slots[i], &layer);) {
            if (is_borrowed(l, arch_slots[i].role))
                continue;
            uint64_t bytes = slot_bytes(l, &arch_slots[i], layer);
            largest = bytes > largest ? bytes : largest;
            convert |= weight_info(arch_slots[i].role)->types == TYPES_FLOATS &&
                       find_part(l, &arch_slots[i], 0, false, layer).t.view.dtype != DTYPE_F32;
            for (int p = 0; has_part(l->whole, &arch_slots[i], p, layer); p++) {
                struct tensor t = find_part(l, &arch_slots[i], p, false, layer).t.view;
                widen |= t.dtype == DTYPE_FP8 && slot_dtype(l, &arch_slots[i], &t) != DTYPE_FP8;
            }
            if (arch_slots[i].split && is_fused(l->whole, l->f, &arch_slots[i], layer)) {
                uint64_t floats =
                    padded(find_part(l, &arch_slots[i], 0, false, layer).t.elements * sizeof(float));
                split = floats > split ? floats : split;
            }
        }
    uint64_t converted = (widen ? 4 : convert ? 2 : 0) * largest + split; // 16 bits may become 32
    free_buffers(l);
    if (!(l->buf = aligned_alloc(64, padded(largest))))
        return STATUS_NOMEM;
    if (converted > 0 && !(l->converted = aligned_alloc(64, padded(converted))))
        return STATUS_NOMEM;
    if (l->targets[0].shard.world > 1 &&
        !(l->part = aligned_alloc(64, padded(converted > largest ? converted : largest))))
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
        for (int layer = 0; layer < end - first; layer++) {
            const struct layer_spec *spec = &m->config.layers[layer];
            const struct attn_spec *attn = model_attn(&m->config, layer);
            const struct mix_spec *mix = model_mix(&m->config, layer);
            m->layers[layer] = (struct layer){.index = layer,
                                              .attn = attn ? *attn : (struct attn_spec){0},
                                              .ffn = m->config.ffn[spec->ffn],
                                              .mix = mix ? *mix : (struct mix_spec){0},
                                              .kv_group = spec->kv_group,
                                              .kv_layer = spec->kv_layer,
                                              .state_group = spec->state_group,
                                              .state_layer = spec->state_layer,
                                              .xielu = spec->xielu};
        }
    }
    for (int i = 0; i < num_arch_slots; i++)
        for (int layer = -1; slot_next(l->whole, &arch_slots[i], &layer);)
            l->total += slot_bytes(l, &arch_slots[i], layer);
    return STATUS_OK;
}

enum status weights_load(const struct weights_target *targets, int num_targets, const struct model_file *f,
                         enum dtype floats, const struct backend_ops *ops, void (*progress)(void *, double),
                         void *arg, struct err *err) {
    struct err local = {0};
    struct loader l = {.whole = targets[0].shard.whole,
                       .arch = arch_of(targets[0].shard.whole),
                       .targets = targets,
                       .num_targets = num_targets,
                       .f = f,
                       .ops = ops,
                       .floats = floats};
    if (!err)
        err = &local;
    if (weights_check(l.whole, f, err))
        return err->code;
    bool ok = prepare(&l) == STATUS_OK;
    for (int i = 0; ok && i < num_arch_slots; i++) {
        const struct weight_slot *s = &arch_slots[i];
        bool of_layers = weight_in_layers(s->role);
        if (i == 0 || of_layers != weight_in_layers(s[-1].role))
            ok = make_buffers(&l, of_layers) == STATUS_OK;
        for (int layer = -1; ok && err->code == STATUS_OK && slot_next(l.whole, s, &layer);) {
            if (load_slot(&l, s, layer, err) != STATUS_OK)
                break;
            l.done += slot_bytes(&l, s, layer);
            if (progress)
                progress(arg, (double)l.done / (double)l.total);
        }
    }
    free_buffers(&l);
    if (!ok)
        err_set(err, STATUS_NOMEM, "%s: out of memory for its largest weight", f->name);
    for (int i = 0; err->code != STATUS_OK && i < num_targets; i++)
        weights_free(targets[i].model);
    return err->code;
}

void weights_free(struct model *m) {
    free(m->layers);
    m->layers = NULL;
}

void weights_blocks(const struct model_config *c, const struct model_file *f, enum dtype floats,
                    struct shard_blocks *blocks) {
    struct loader l = {.whole = c, .arch = arch_of(c), .f = f};
    *blocks = (struct shard_blocks){1, 1, 1};
    for (int i = 0; i < num_arch_slots; i++) {
        const struct weight_slot *s = &arch_slots[i];
        int *block = s->role == WEIGHT_ATTN_OUT  ? &blocks->attn
                     : s->role == WEIGHT_MIX_OUT ? &blocks->mix
                     : s->role == WEIGHT_DOWN    ? &blocks->down
                                                 : NULL;
        for (int layer = -1; block && slot_next(c, s, &layer);) {
            int b = dtype_sum_block(loaded_dtype(find_part(&l, s, 0, false, layer).t.view.dtype, floats));
            *block = b > *block ? b : *block;
        }
    }
}

// Whether the tensor is no weight: a table of factors.
static bool is_table(const struct model_file *f, const struct model_tensor *t) {
    return t == model_file_find(f, ROPE_FACTORS) || t == model_file_find(f, ROPE_SHORT_FACTORS) ||
           t == model_file_find(f, ROPE_LONG_FACTORS);
}

enum dtype weights_down_dtype(const struct model_config *c, const struct model_file *f, enum dtype floats,
                              int layer) {
    struct loader l = {.whole = c, .arch = arch_of(c), .f = f};
    const struct weight_slot *down = layer_slot(c, WEIGHT_DOWN, layer);
    return down ? loaded_dtype(find_part(&l, down, 0, false, layer).t.view.dtype, floats) : DTYPE_F32;
}

uint64_t weights_num_params(const struct model_file *f) {
    uint64_t sum = 0;
    for (size_t i = 0; i < f->num_tensors; i++) {
        const struct model_tensor *t = &f->tensors[i];
        if (!is_table(f, t))
            sum += t->elements; // every element has a byte or part of one in the file: no overflow
    }
    return sum;
}

enum dtype weights_main_dtype(const struct model_file *f, enum dtype floats) {
    uint64_t bytes[DTYPE_COUNT + 1] = {0};
    int best = DTYPE_COUNT;
    for (size_t i = 0; i < f->num_tensors; i++) {
        const struct model_tensor *t = &f->tensors[i];
        if (t->view.ndim > 1)
            bytes[t->view.dtype] += t->bytes;
    }
    for (int i = 0; i <= DTYPE_COUNT; i++)
        if (bytes[i] > bytes[best])
            best = i;
    return loaded_dtype((enum dtype)best, floats);
}
