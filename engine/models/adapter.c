// See adapter.h.
#include "adapter.h"

#include "architectures.h"
#include "convert.h"
#include "gguf.h"
#include "hf/peft.h"
#include "tensor_read.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct lora_pair { // the file's matrices for a target
    const struct model_tensor *a, *b;
    int64_t before; // rows of b that belong to parts before this one
};

struct reader {
    const struct model_config *model;
    struct model_file *file;
    bool peft;
    double alpha;            // of GGUF; 0: scale is 1
    struct lora_pair *pairs; // (L, ADAPTER_TARGETS)
    struct adapter_file *out;
};

#define LABEL(t) (int)model_tensor_label(t).len, model_tensor_label(t).data // for %.*s

static size_t num_pairs(const struct model_config *m) { return (size_t)m->num_layers * ADAPTER_TARGETS; }

// ---- what a target is like

static int64_t target_rows(const struct model_config *m, int layer, enum adapter_target t) {
    return adapter_target_shape(m, layer, t).size[0];
}
static int64_t target_columns(const struct model_config *m, int layer, enum adapter_target t) {
    return adapter_target_shape(m, layer, t).size[1];
}

// The first of the targets that a weight's parts are; ADAPTER_TARGETS: it takes no adapter.
static enum adapter_target first_target(const struct model_config *m, const struct tensor_place *at) {
    const struct attn_spec *a = model_attn(m, at->layer);
    const struct ffn_spec *f = model_ffn(m, at->layer);
    bool dense = f->hidden > 0 && f->experts == 0;
    switch (at->slot->role) {
    case WEIGHT_QKV: return a && a->kind == ATTN_GROUPED && !a->gate ? ADAPTER_Q : ADAPTER_TARGETS;
    case WEIGHT_ATTN_OUT: return a ? ADAPTER_OUT : ADAPTER_TARGETS;
    case WEIGHT_GATE_UP: return !dense ? ADAPTER_TARGETS : f->no_gate ? ADAPTER_UP : ADAPTER_GATE;
    case WEIGHT_DOWN: return dense ? ADAPTER_DOWN : ADAPTER_TARGETS;
    default: return ADAPTER_TARGETS;
    }
}

// Whether the layer computes the target of its own tensor.
static bool has_target(const struct model_config *m, int layer, enum adapter_target t) {
    const struct attn_spec *a = model_attn(m, layer);
    bool keys = t == ADAPTER_K || t == ADAPTER_V;
    return !keys || (!a->shares_kv && !a->tied_values);
}

// ---- which tensors there are

// The rows of lora_b. They tell whether a name means gate and up together or up alone.
static int64_t rows_of_b(const struct reader *r, const char *name, size_t len) {
    char b[TENSOR_NAME_BYTES];
    snprintf(b, sizeof b, "%.*s.lora_b", (int)len, name);
    const struct model_tensor *t = model_file_find(r->file, b);
    return t && t->view.ndim == 2 ? t->view.shape[0] : 0;
}

// The layer and targets [*first, *end) of a tensor whose name is without ".lora_a".
static bool find_targets(const struct reader *r, const char *name, size_t len, int *layer, int *first,
                         int *end) {
    const struct arch *arch = arch_find(r->model->arch, strlen(r->model->arch));
    struct tensor_place at;
    if (!arch || !arch_find_tensor(arch, name, len, &at) || !at.slot || at.bias || at.layer < 0 ||
        at.layer >= r->model->num_layers)
        return false;
    enum adapter_target target = first_target(r->model, &at);
    if (target == ADAPTER_TARGETS)
        return false;
    bool whole = at.part == FUSED_PART ||
                 (at.fused && rows_of_b(r, name, len) > model_ffn(r->model, at.layer)->hidden);
    *layer = at.layer;
    *first = (int)target + (whole ? 0 : at.part);
    *end = !whole ? *first + 1 : target == ADAPTER_Q ? ADAPTER_V + 1 : ADAPTER_UP + 1;
    for (int t = *first; t < *end; t++)
        if (!has_target(r->model, *layer, (enum adapter_target)t))
            return false;
    return true;
}

static enum status check_tensor(const struct reader *r, const struct model_tensor *t, bool b, int64_t fixed,
                                int max_rank, struct err *err) {
    const struct tensor *v = &t->view;
    int of_rank = b ? 1 : 0;
    if (v->ndim != 2 || v->shape[1 - of_rank] != fixed)
        return model_file_bad(r->file, err,
                              "tensor %.*s has %d dimensions, the %s of %lld; expected 2, of %lld", LABEL(t),
                              v->ndim, b ? "first" : "second",
                              (long long)(v->ndim == 2 ? v->shape[1 - of_rank] : 0), (long long)fixed);
    if (v->shape[of_rank] < 1 || v->shape[of_rank] > max_rank)
        return model_file_bad(r->file, err, "tensor %.*s has rank %lld, expected 1 to %d (--max-lora-rank)",
                              LABEL(t), (long long)v->shape[of_rank], max_rank);
    if (v->dtype == DTYPE_COUNT || !dtype_is_float(v->dtype))
        return model_file_bad(r->file, err, "tensor %.*s has type %s, expected F32, F16 or BF16", LABEL(t),
                              t->type_name);
    return STATUS_OK;
}

static enum status note_tensor(struct reader *r, const struct model_tensor *t, int max_rank,
                               struct err *err) {
    static const char end_a[] = ".lora_a", end_b[] = ".lora_b";
    size_t n = sizeof end_a - 1, len = t->name.len - n;
    bool longer = t->name.len > n, a = longer && memcmp(t->name.data + len, end_a, n) == 0;
    bool b = longer && !a && memcmp(t->name.data + len, end_b, n) == 0;
    int layer, first, end;
    if (!a && !b)
        return model_file_bad(r->file, err, "tensor %.*s is neither lora_a nor lora_b of a tensor", LABEL(t));
    if (!find_targets(r, t->name.data, len, &layer, &first, &end))
        return model_file_bad(r->file, err,
                              "tensor %.*s is for a part of the model that takes no adapter; attention and "
                              "feed-forward of layers without experts or recurrence do",
                              LABEL(t));
    int64_t rows = 0, columns = target_columns(r->model, layer, (enum adapter_target)first);
    for (int i = first; i < end; i++) {
        struct lora_pair *p = &r->pairs[(size_t)layer * ADAPTER_TARGETS + (size_t)i];
        const struct model_tensor **at = a ? &p->a : &p->b;
        if (*at)
            return model_file_bad(r->file, err, "tensors %.*s and %.*s are for the same matrix", LABEL(t),
                                  LABEL(*at));
        *at = t;
        if (b)
            p->before = rows;
        rows += target_rows(r->model, layer, (enum adapter_target)i);
    }
    return check_tensor(r, t, b, a ? columns : rows, max_rank, err);
}

// ---- reading

static size_t padded(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Row-parallel matrices are cut into eighths, and BF16 is multiplied in pairs.
static enum dtype kept_dtype(const struct reader *r, size_t i, bool b) {
    int layer = (int)(i / ADAPTER_TARGETS);
    enum adapter_target t = (enum adapter_target)(i % ADAPTER_TARGETS);
    bool cut = !b && (t == ADAPTER_OUT || t == ADAPTER_DOWN) && target_columns(r->model, layer, t) % 16 != 0;
    return cut ? DTYPE_F32 : (b ? r->pairs[i].b : r->pairs[i].a)->view.dtype;
}

static struct tensor kept_shape(const struct reader *r, size_t i, bool b) {
    const struct model_tensor *a = r->pairs[i].a;
    struct tensor v = b ? r->pairs[i].b->view : a->view;
    v.dtype = kept_dtype(r, i, b);
    if (b)
        v.shape[0] =
            target_rows(r->model, (int)(i / ADAPTER_TARGETS), (enum adapter_target)(i % ADAPTER_TARGETS));
    return v;
}

static size_t tensor_bytes(const struct tensor *t) {
    return (size_t)t->shape[0] * dtype_row_bytes(t->dtype, t->shape[1]);
}

// Rows of each head from two halves into pairs.
static void pair_rows(char *rows, size_t row_bytes, int heads, int head_dim, char *scratch) {
    size_t half = (size_t)head_dim / 2;
    for (int h = 0; h < heads; h++, rows += 2 * half * row_bytes) {
        memcpy(scratch, rows, 2 * half * row_bytes);
        for (size_t i = 0; i < 2 * half; i++)
            memcpy(rows + i * row_bytes, scratch + (i / 2 + (i % 2 ? half : 0)) * row_bytes, row_bytes);
    }
}

// One matrix to dst, which has room for it; scratch for it in the file's type.
static enum status read_matrix(struct reader *r, size_t i, bool b, void *dst, char *scratch,
                               struct tensor *view, struct err *err) {
    const struct lora_pair *p = &r->pairs[i];
    const struct model_tensor *whole = b ? p->b : p->a;
    struct model_tensor t = *whole;
    *view = kept_shape(r, i, b);
    size_t row = dtype_row_bytes(t.view.dtype, t.view.shape[1]);
    t.offset += (uint64_t)(b ? p->before : 0) * row;
    t.view.shape[0] = view->shape[0];
    t.elements = (uint64_t)view->shape[0] * (uint64_t)view->shape[1];
    t.bytes = (uint64_t)view->shape[0] * row;
    bool widens = view->dtype != t.view.dtype;
    enum status st = tensor_read(r->file, &t, widens ? scratch : dst, err);
    if (st != STATUS_OK)
        return st;
    if (widens)
        convert_floats(dst, view->dtype, scratch, t.view.dtype, t.elements);
    const struct attn_spec *attn = model_attn(r->model, (int)(i / ADAPTER_TARGETS));
    if (b && r->peft && peft_has_halves(r->file, whole))
        pair_rows(dst, row, (int)(view->shape[0] / attn->head_dim), attn->head_dim, scratch);
    view->data = dst;
    return STATUS_OK;
}

static enum status read_all(struct reader *r, struct err *err) {
    struct adapter_file *out = r->out;
    size_t n = num_pairs(r->model), largest = 0;
    for (size_t i = 0; i < n; i++)
        for (int b = 0; b < 2 && r->pairs[i].a; b++) {
            struct tensor v = kept_shape(r, i, b);
            out->bytes += padded(tensor_bytes(&v));
            largest = tensor_bytes(&v) > largest ? tensor_bytes(&v) : largest;
        }
    char *scratch = malloc(largest), *at = out->memory = aligned_alloc(64, out->bytes);
    enum status st = scratch && at
                         ? STATUS_OK
                         : err_set(err, STATUS_NOMEM, "%s: out of memory for an adapter of %zu bytes",
                                   r->file->name, out->bytes);
    for (size_t i = 0; i < n && st == STATUS_OK; i++) {
        struct adapter_matrix *m = &out->matrices[i];
        if (!r->pairs[i].a)
            continue;
        for (int b = 0; b < 2 && st == STATUS_OK; b++) {
            struct tensor *v = b ? &m->b : &m->a;
            st = read_matrix(r, i, b, at, scratch, v, err);
            at += padded(tensor_bytes(v));
        }
        int64_t rank = m->a.shape[0];
        double scale = r->peft           ? peft_scale(r->file, r->pairs[i].a, rank)
                       : r->alpha == 0.0 ? 1
                                         : r->alpha / (double)rank;
        if (st == STATUS_OK && !(fabs(scale) <= FLT_MAX))
            st = model_file_bad(r->file, err, "tensor %.*s has the scale %g, which is no finite float",
                                LABEL(r->pairs[i].a), scale);
        m->scale = st == STATUS_OK ? (float)scale : 0;
        out->rank = rank > out->rank ? (int)rank : out->rank;
    }
    free(scratch);
    return st;
}

// ---- opening

static enum status expect(const struct model_file *f, const char *key, const char *value, struct err *err) {
    struct text_view found = {"", 0};
    enum status st = meta_str(f, key, true, 64, &found, err);
    if (st == STATUS_OK && (found.len != strlen(value) || memcmp(found.data, value, found.len) != 0))
        st = model_file_bad(f, err, "%s is '%.*s', expected '%s'", key, (int)found.len, found.data, value);
    return st;
}

static enum status open_file(struct reader *r, const char *path, struct err *err) {
    struct stat info;
    r->peft = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    r->file = r->peft ? peft_open(path, r->model->arch, err) : gguf_open(path, err);
    if (!r->file)
        return err->code;
    enum status st = STATUS_OK;
    if (r->peft)
        return STATUS_OK;
    if ((st = expect(r->file, "general.type", "adapter", err)) ||
        (st = expect(r->file, "adapter.type", "lora", err)) ||
        (st = expect(r->file, "general.architecture", r->model->arch, err)) ||
        (st = meta_float(r->file, "adapter.lora.alpha", true, &r->alpha, err)))
        return st;
    if (meta_find(r->file, "adapter.alora.invocation_tokens"))
        return model_file_bad(r->file, err, "adapter.alora.invocation_tokens is not supported yet");
    return STATUS_OK;
}

enum status adapter_file_read(struct adapter_file *a, const char *path, const struct model_config *model,
                              int max_rank, struct err *err) {
    struct err local = {0};
    struct reader r = {.model = model, .out = a};
    enum status st = STATUS_OK;
    err = err ? err : &local;
    *a = (struct adapter_file){.matrices = calloc(num_pairs(model), sizeof *a->matrices)};
    r.pairs = calloc(num_pairs(model), sizeof *r.pairs);
    if (!a->matrices || !r.pairs)
        st = err_set(err, STATUS_NOMEM, "out of memory for an adapter");
    if (st == STATUS_OK)
        st = open_file(&r, path, err);
    for (size_t i = 0; st == STATUS_OK && i < r.file->num_tensors; i++)
        st = note_tensor(&r, &r.file->tensors[i], max_rank, err);
    for (size_t i = 0; st == STATUS_OK && i < num_pairs(model); i++) {
        const struct lora_pair *p = &r.pairs[i];
        const struct model_tensor *one = p->a ? p->a : p->b;
        if (!p->a != !p->b)
            st = model_file_bad(
                r.file, err, "tensor %.*s has no counterpart; matrices come in pairs, A and B", LABEL(one));
        else if (p->a && p->a->view.shape[0] != p->b->view.shape[1])
            st = model_file_bad(r.file, err, "tensor %.*s has rank %lld, and its counterpart %lld",
                                LABEL(p->a), (long long)p->a->view.shape[0], (long long)p->b->view.shape[1]);
    }
    if (st == STATUS_OK && r.file->num_tensors == 0)
        st = model_file_bad(r.file, err, "the adapter has no tensors");
    if (st == STATUS_OK)
        st = read_all(&r, err);
    model_file_close(r.file);
    free(r.pairs);
    return st;
}

void adapter_file_free(struct adapter_file *a) {
    free(a->matrices);
    free(a->memory);
    *a = (struct adapter_file){0};
}
