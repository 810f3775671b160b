// Repacking of weights into panels of 16 rows, at load.
#include "device.h"
#include "half.h"
#include "log.h"
#include "pack.h"
#include "quants.h"
#include "weight_check.h"

#include <stdlib.h>
#include <string.h>

static size_t align64(size_t n) { return (n + 63) / 64 * 64; }

struct pack {
    struct weight *w;
    const struct weight_desc *desc;
};

static void pack_worker(void *ctx, int thread, int num_threads) {
    struct pack *job = ctx;
    for (int i = 0; i < job->w->num_parts; i++) {
        const struct weight_part *p = &job->w->part[i];
        int begin, end;
        int n = p->num_panels, experts = job->w->num_experts > 0 ? job->w->num_experts : 1;
        enum dtype dtype = job->desc->part[i].dtype; // in the file
        size_t expert_bytes = (size_t)p->rows * dtype_row_bytes(dtype, p->cols);
        pool_partition(n * experts, thread, num_threads, &begin, &end);
        for (int g = begin; g < end; g++)
            pack_panel(p->data + (size_t)g * p->panel_bytes,
                       (const char *)job->desc->part[i].data + (size_t)(g / n) * expert_bytes, dtype, p->rows,
                       p->cols, g % n * LANES);
    }
}

struct weight_part cpu_part_shape(enum dtype dtype, int rows, int cols) {
    struct weight_part p = {.dtype = dtype, .rows = rows, .cols = cols};
    p.num_panels = (rows + LANES - 1) / LANES;
    p.block = dtype_sum_block(dtype);
    p.num_blocks = (cols + p.block - 1) / p.block;
    p.panel_bytes = (size_t)p.num_blocks * pack_block_bytes(dtype);
    return p;
}

// The bounds of rule 3, of the segments that lie in this rank's columns.
static void cut_segments(struct weight *w, const struct device *dev, const struct weight_desc *desc) {
    const struct weight_part *p = &w->part[0];
    int64_t total = desc->total ? (desc->total + p->block - 1) / p->block : p->num_blocks;
    int64_t start = desc->start / p->block;
    w->all_cols = desc->total ? (int)desc->total : p->cols;
    w->num_segments = NUM_SEGMENTS / dev->world;
    for (int i = 0; i <= w->num_segments; i++)
        w->segments[i] = (int)(total * (dev->rank * w->num_segments + i) / NUM_SEGMENTS - start);
}

// The head of a tied model, of packed rows that are there already: all of them, or the rank's.
static struct weight *tied_head(struct device *dev, const struct weight_desc *desc, struct err *err) {
    if (desc->total == 0)
        return dev->embed;
    struct weight *w = calloc(1, sizeof *w);
    if (!w) {
        err_set(err, STATUS_NOMEM, "no memory for a weight");
        return NULL;
    }
    struct weight_part *p = &w->part[0];
    w->role = WEIGHT_HEAD;
    w->num_parts = 1;
    *p = dev->embed->part[0];
    p->data += (size_t)(desc->start / LANES) * p->panel_bytes;
    p->rows = (int)desc->part[0].shape[0];
    w->num_panels = p->num_panels = (p->rows + LANES - 1) / LANES;
    w->next = dev->weights;
    dev->weights = w;
    return w;
}

// Rows of all parts as (taps, rows), and their biases beside each other.
static void pack_conv(struct weight *w, const struct weight_desc *desc) {
    size_t rows = 0, at = 0, taps = (size_t)w->part[0].cols;
    for (int i = 0; i < w->num_parts; i++)
        rows += (size_t)w->part[i].rows;
    w->bias[0] = desc->bias[0].data ? w->vector + rows * taps : NULL;
    for (int i = 0; i < w->num_parts; at += (size_t)w->part[i++].rows) {
        const float *from = desc->part[i].data;
        size_t n = (size_t)w->part[i].rows;
        for (size_t k = 0; k < n * taps; k++)
            w->vector[k % taps * rows + at + k / taps] = from[k];
        if (w->bias[0])
            memcpy(w->bias[0] + at, desc->bias[i].data, n * sizeof(float));
    }
}

struct weight *cpu_weight_load(struct device *dev, const struct weight_desc *desc, struct err *err) {
    if (!weight_check(&dev->model, desc, err))
        return NULL;
    if (desc->role == WEIGHT_HEAD && dev->model.tied && dev->embed)
        return tied_head(dev, desc, err);
    struct weight *w = calloc(1, sizeof *w);
    if (!w) {
        err_set(err, STATUS_NOMEM, "no memory for a weight");
        return NULL;
    }
    w->role = desc->role;
    // Kept row-major: norms, and a table that is nothing but a table.
    bool vectors = weight_is_plain(desc->role), plain = vectors || desc->role == WEIGHT_LAYER_EMBED ||
                                                        (desc->role == WEIGHT_EMBED && !dev->model.tied);
    size_t bytes = 0, offset[3] = {0}, bias_offset[3] = {0};
    for (int i = 0; i < 3 && desc->part[i].data; i++, w->num_parts++) {
        const struct tensor *t = &desc->part[i];
        int rows = t->ndim >= 2 ? (int)t->shape[t->ndim - 2] : 1, cols = (int)t->shape[t->ndim - 1];
        struct weight_part *p = &w->part[i];
        *p = cpu_part_shape(plain ? t->dtype : pack_dtype(t->dtype), rows, cols);
        w->num_panels += p->num_panels;
        w->num_experts = t->ndim == 3 ? (int)t->shape[0] : 0;
        size_t experts = w->num_experts > 0 ? (size_t)w->num_experts : 1;
        offset[i] = bytes;
        bytes += align64(plain ? (size_t)rows * dtype_row_bytes(t->dtype, cols)
                               : experts * (size_t)p->num_panels * p->panel_bytes);
        bias_offset[i] = bytes;
        if (desc->bias[i].data)
            bytes += align64(experts * (size_t)(t->ndim == 1 ? cols : rows) * sizeof(float));
    }
    if (weight_shape_of(&dev->model, desc->role, desc->layer, 0).axis == 1)
        cut_segments(w, dev, desc);
    w->region = region_alloc(bytes);
    if (!w->region.data) {
        free(w);
        err_set(err, STATUS_NOMEM, "no memory for a weight of %zu bytes", bytes);
        return NULL;
    }
    char *memory = w->region.data;
    for (int i = 0; i < w->num_parts; i++) {
        w->part[i].data = memory + offset[i];
        if (desc->bias[i].data && desc->role != WEIGHT_MIX_CONV) {
            w->bias[i] = (float *)(void *)(memory + bias_offset[i]);
            size_t experts = w->num_experts > 0 ? (size_t)w->num_experts : 1;
            size_t n = desc->part[i].ndim == 1 ? (size_t)w->part[i].cols : (size_t)w->part[i].rows;
            memcpy(w->bias[i], desc->bias[i].data, experts * n * sizeof(float));
        }
        if (w->num_experts > 0)
            dev->expert_dtypes |= 1u << w->part[i].dtype;
        else if (!plain)
            dev->dtypes |= 1u << w->part[i].dtype;
    }
    w->vector = vectors ? (float *)(void *)memory : NULL;
    w->table = plain && !vectors ? memory : NULL;
    for (int i = 0; plain && i < w->num_parts; i++)
        memcpy(w->part[i].data, desc->part[i].data,
               (size_t)w->part[i].rows * dtype_row_bytes(w->part[i].dtype, w->part[i].cols));
    if (desc->role == WEIGHT_MIX_CONV)
        pack_conv(w, desc);
    if (!plain) {
        struct pack job = {w, desc};
        pool_run(dev->pool, pack_worker, &job, true);
    }
    if (desc->role == WEIGHT_EMBED)
        dev->embed = w;
    dev->weight_bytes += bytes;
    w->next = dev->weights;
    dev->weights = w;
    return w;
}

// The rows that it multiplies need its types.
void cpu_weight_borrow(struct device *dev, const struct weight *w) {
    for (int i = 0; i < w->num_parts && !w->table; i++)
        dev->dtypes |= 1u << w->part[i].dtype;
}

void cpu_weight_free(struct weight *w) {
    region_free(&w->region);
    free(w);
}

void cpu_embedding_row(float *y, const struct weight *w, int row) {
    const struct weight_part *p = &w->part[0];
    CHECK(row >= 0 && row < p->rows);
    if (!w->table) {
        pack_read_row(y, p->data + (size_t)(row / LANES) * p->panel_bytes, p->dtype, p->cols, row % LANES);
        return;
    }
    const char *src = (const char *)w->table + (size_t)row * dtype_row_bytes(p->dtype, p->cols);
    if (dtype_block(p->dtype) > 1) {
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
