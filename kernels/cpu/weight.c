// Repacking of weights into groups of 16 rows, at load.
#include "device.h"
#include "half.h"
#include "log.h"
#include "pack.h"
#include "quants.h"

#include <stdlib.h>
#include <string.h>

static size_t align64(size_t n) { return (n + 63) / 64 * 64; }

struct pack {
    struct weight *w;
    const struct weight_desc *desc;
};

static void pack_share(void *ctx, int thread, int num_threads) {
    struct pack *job = ctx;
    for (int i = 0; i < job->w->num_parts; i++) {
        const struct weight_part *p = &job->w->part[i];
        int begin, end;
        pool_share(p->num_groups, thread, num_threads, &begin, &end);
        for (int g = begin; g < end; g++) {
            pack_strip(p->data + (size_t)g * p->strip_bytes, job->desc->part[i].data, p->dtype, p->rows,
                       p->cols, g * LANES);
        }
    }
}

static struct weight_part part_shape(enum dtype dtype, int rows, int cols) {
    struct weight_part p = {.dtype = dtype, .rows = rows, .cols = cols};
    p.num_groups = (rows + LANES - 1) / LANES;
    p.block = pack_block(dtype);
    p.num_blocks = (cols + p.block - 1) / p.block;
    p.strip_bytes = (size_t)p.num_blocks * pack_block_bytes(dtype);
    return p;
}

// What the role asks of part i: rows and columns, or 0 rows where the role has no such part.
static void expected_shape(const struct device *dev, enum weight_role role, int i, int *rows, int *cols) {
    const struct model_config *m = &dev->model;
    int q = device_q_size(dev), kv = device_kv_size(dev);
    static const int num_parts[] = {
        [WEIGHT_EMBED] = 1,   [WEIGHT_NORM] = 1, [WEIGHT_QKV] = 3, [WEIGHT_ATTN_OUT] = 1,
        [WEIGHT_GATE_UP] = 2, [WEIGHT_DOWN] = 1, [WEIGHT_HEAD] = 1};
    *rows = *cols = 0;
    if ((unsigned)role >= sizeof num_parts / sizeof *num_parts || i >= num_parts[role])
        return;
    switch (role) {
    case WEIGHT_EMBED:
    case WEIGHT_HEAD: *rows = m->vocab, *cols = m->hidden; break;
    case WEIGHT_NORM: *rows = 1, *cols = m->hidden; break;
    case WEIGHT_QKV: *rows = i == 0 ? q : kv, *cols = m->hidden; break;
    case WEIGHT_ATTN_OUT: *rows = m->hidden, *cols = q; break;
    case WEIGHT_GATE_UP: *rows = m->ffn, *cols = m->hidden; break;
    case WEIGHT_DOWN: *rows = m->hidden, *cols = m->ffn; break;
    }
}

static bool shape_ok(const struct device *dev, const struct weight_desc *desc, struct err *err) {
    for (int i = 0; i < 3; i++) {
        const struct tensor *t = &desc->part[i];
        int rows, cols;
        expected_shape(dev, desc->role, i, &rows, &cols);
        const struct tensor *bias = &desc->bias[i];
        if (bias->data && ((desc->role != WEIGHT_QKV && desc->role != WEIGHT_ATTN_OUT) || bias->ndim != 1 ||
                           bias->shape[0] != rows || bias->dtype != DTYPE_F32)) {
            err_set(err, STATUS_INVALID,
                    "weight role %d of layer %d, part %d: only q, k, v and the attention output may have a "
                    "bias, F32, a number for each of the %d rows",
                    (int)desc->role, desc->layer, i, rows);
            return false;
        }
        if (!t->data && rows == 0)
            continue;
        int64_t have_rows = t->data && t->ndim == 2 ? t->shape[0] : 1;
        int64_t have_cols = !t->data ? 0 : t->ndim == 2 ? t->shape[1] : t->shape[0];
        bool norm = desc->role == WEIGHT_NORM;
        bool head_norm = norm && have_rows == 1 && have_cols == dev->model.head_dim;
        unsigned types = 1u << DTYPE_F32;
        if (!norm)
            types |= 1u << DTYPE_F16 | 1u << DTYPE_BF16 | DTYPES_QUANTISED;
        bool type = types & 1u << t->dtype && have_cols % dtype_block(t->dtype) == 0;
        if (((have_rows != rows || have_cols != cols) && !head_norm) || !type || t->ndim > 2) {
            err_set(err, STATUS_INVALID,
                    "weight role %d of layer %d, part %d: expected %d x %d, found %lld x %lld %s",
                    (int)desc->role, desc->layer, i, rows, cols, (long long)have_rows, (long long)have_cols,
                    dtype_name(t->dtype));
            return false;
        }
    }
    return true;
}

struct weight *cpu_weight_load(struct device *dev, const struct weight_desc *desc, struct err *err) {
    if (!shape_ok(dev, desc, err))
        return NULL;
    if (desc->role == WEIGHT_HEAD && dev->model.tied && dev->embed)
        return dev->embed; // the same numbers, packed already
    struct weight *w = calloc(1, sizeof *w);
    if (!w) {
        err_set(err, STATUS_NOMEM, "no memory for a weight");
        return NULL;
    }
    w->role = desc->role;
    // Kept row-major: norms, and a table that is nothing but a table.
    bool plain = desc->role == WEIGHT_NORM || (desc->role == WEIGHT_EMBED && !dev->model.tied);
    size_t bytes = 0, offset[3] = {0}, bias_offset[3] = {0};
    for (int i = 0; i < 3 && desc->part[i].data; i++, w->num_parts++) {
        const struct tensor *t = &desc->part[i];
        int rows = t->ndim == 2 ? (int)t->shape[0] : 1,
            cols = (int)(t->ndim == 2 ? t->shape[1] : t->shape[0]);
        struct weight_part *p = &w->part[i];
        *p = part_shape(t->dtype, rows, cols);
        w->num_groups += p->num_groups;
        offset[i] = bytes;
        bytes += align64(plain ? (size_t)rows * dtype_row_bytes(t->dtype, cols)
                               : (size_t)p->num_groups * p->strip_bytes);
        bias_offset[i] = bytes;
        if (desc->bias[i].data)
            bytes += align64((size_t)p->num_groups * LANES * sizeof(float));
    }
    w->region = region_alloc(bytes);
    if (!w->region.data) {
        free(w);
        err_set(err, STATUS_NOMEM, "no memory for a weight of %zu bytes", bytes);
        return NULL;
    }
    char *memory = w->region.data;
    for (int i = 0; i < w->num_parts; i++) {
        w->part[i].data = memory + offset[i];
        if (desc->bias[i].data) {
            w->bias[i] = (float *)(void *)(memory + bias_offset[i]);
            memcpy(w->bias[i], desc->bias[i].data, (size_t)w->part[i].rows * sizeof(float));
        }
        if (!plain)
            dev->dtypes |= 1u << w->part[i].dtype;
    }
    if (plain) {
        const struct weight_part *p = &w->part[0];
        memcpy(memory, desc->part[0].data, (size_t)p->rows * dtype_row_bytes(p->dtype, p->cols));
        if (desc->role == WEIGHT_NORM)
            w->vector = (float *)(void *)memory;
        else
            w->table = memory;
    } else {
        struct pack job = {w, desc};
        pool_run(dev->pool, pack_share, &job, true);
    }
    if (desc->role == WEIGHT_EMBED)
        dev->embed = w;
    dev->weight_bytes += bytes;
    w->next = dev->weights;
    dev->weights = w;
    return w;
}

void cpu_weight_free(struct weight *w) {
    region_free(&w->region);
    free(w);
}

void cpu_embedding_row(float *y, const struct weight *w, int row) {
    const struct weight_part *p = &w->part[0];
    CHECK(row >= 0 && row < p->rows);
    if (!w->table) {
        pack_read_row(y, p->data + (size_t)(row / LANES) * p->strip_bytes, p->dtype, p->cols, row % LANES);
        return;
    }
    const char *src = (const char *)w->table + (size_t)row * dtype_row_bytes(p->dtype, p->cols);
    if (DTYPES_QUANTISED & 1u << p->dtype) {
        quants_decode(y, src, p->dtype, p->cols);
        return;
    }
    if (p->dtype == DTYPE_F32) {
        memcpy(y, src, (size_t)p->cols * sizeof *y);
        return;
    }
    for (int i = 0; i < p->cols; i++) {
        uint16_t h;
        memcpy(&h, src + (size_t)i * 2, sizeof h);
        y[i] = p->dtype == DTYPE_BF16 ? bf16_to_float(h) : half_to_float(h);
    }
}
