// Adapters: their memory, and where a phase adds what they give (kernels/README.md, rule 22). The upload of a step names the
// memory of each adapter, so that graphs outlive adapters.
#include "device.h"

#include "log.h"

#include <stdlib.h>
#include <string.h>

// ---- memory

void cuda_lora_alloc(struct device *dev, struct cuda_arena *a) {
    if (dev->limits.max_adapters > 0)
        dev->low =
            arena_alloc(a, (size_t)dev->max_tokens * 3 * (size_t)round_up(dev->limits.max_adapter_rank, 8),
                        sizeof(float));
}

void cuda_lora_close(struct device *dev) {
    for (int i = 0; dev->adapters && i < dev->limits.max_adapters; i++)
        cuda_adapter_free(dev, i);
    free(dev->adapters);
}

// Bytes of a matrix on the device, whose rows are padded to whole vectors of 8 elements.
static size_t padded_row(const struct tensor *t) {
    return (size_t)round_up((int)t->shape[1], 8) * dtype_row_bytes(t->dtype, 1);
}
static size_t padded_bytes(const struct tensor *t) { return (size_t)t->shape[0] * padded_row(t); }

static void copy_padded(char *to, const struct tensor *t) {
    size_t row = dtype_row_bytes(t->dtype, t->shape[1]);
    for (size_t r = 0; r < (size_t)t->shape[0]; r++)
        memcpy(to + r * padded_row(t), (const char *)t->data + r * row, row);
}

// The adapter as it lies on the device: cuda_lora_matrix of all targets, then A and B of each. Returns its bytes; image NULL: only
// counts.
static size_t lay_out(const struct adapter_matrix *from, size_t n, char *image) {
    size_t at = (n * sizeof(struct cuda_lora_matrix) + 15) / 16 * 16;
    for (size_t i = 0; i < n; i++) {
        const struct tensor *a = &from[i].a, *b = &from[i].b;
        if (!a->data)
            continue;
        size_t of_b = at + padded_bytes(a);
        if (image) {
            ((struct cuda_lora_matrix *)(void *)image)[i] =
                (struct cuda_lora_matrix){.a = at,
                                          .b = of_b,
                                          .a_dtype = a->dtype,
                                          .b_dtype = b->dtype,
                                          .rank = (int)a->shape[0],
                                          .cols = round_up((int)a->shape[1], 8),
                                          .rows = (int)b->shape[0],
                                          .scale = from[i].scale};
            copy_padded(image + at, a);
            copy_padded(image + of_b, b);
        }
        at = of_b + padded_bytes(b);
    }
    return at;
}

enum status cuda_adapter_load(struct device *dev, int slot, const struct adapter_desc *desc,
                              struct err *err) {
    CHECK(slot >= 0 && slot < dev->limits.max_adapters && !dev->adapters[slot]);
    size_t n = (size_t)dev->model.num_layers * ADAPTER_TARGETS, bytes = lay_out(desc->matrices, n, NULL);
    for (size_t i = 0; i < n; i++)
        CHECK(!desc->matrices[i].a.data || desc->matrices[i].a.shape[0] <= dev->limits.max_adapter_rank);
    char *image = calloc(1, bytes);
    if (!image)
        return err_set(err, STATUS_NOMEM, "no memory for an adapter of %zu MiB", bytes >> 20);
    lay_out(desc->matrices, n, image);
    enum status st = rt_load(dev->rt, &dev->adapters[slot], image, bytes, err);
    free(image);
    if (st == STATUS_NOMEM)
        return err_set(err, st, "no device memory for an adapter of %zu MiB; lower --gpu-memory-utilization",
                       bytes >> 20);
    return st;
}

void cuda_adapter_free(struct device *dev, int slot) {
    rt_unload(dev->rt, dev->adapters[slot]);
    dev->adapters[slot] = NULL;
}

// ---- in a step

void cuda_lora_add(struct device *dev, const struct layer *layer, enum adapter_target first,
                   const struct activation *x, struct cuda_lora a) {
    const struct step_work *w = &dev->work;
    if (w->num_lora == 0)
        return;
    a.groups = dev->inputs.lora;
    a.num_groups = dev->bucket ? work_lora_groups(&dev->work_config, w->num_tokens) : w->num_lora;
    a.first = layer->index * ADAPTER_TARGETS + (int)first;
    a.x = x->data[a.act_dtype];
    a.scale = a.act_dtype == ACT_DTYPE_F16 ? x->scale : NULL;
    a.ldx = x->ld;
    a.low = dev->low;
    a.ld_low = round_up(dev->limits.max_adapter_rank, 8);
    cuda_lora(dev->rt, &a);
}
