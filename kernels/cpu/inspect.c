// The device's state for tests and benchmarks (inspect.h).
#include "inspect.h"

#include "kv.h"
#include "log.h"

static void cpu_view(struct device *dev, struct activations *view) {
    *view = (struct activations){dev->resid, dev->q, dev->h};
}

// In the cache's own order: elements, then scales.
static void copy_raw(struct device *dev, int32_t page, char *p, bool export) {
    size_t bytes = kv_page_bytes(dev), scales = cpu_kv_bytes(dev, 1) - bytes;
    memcpy(export ? p : kv_page(dev, page), export ? kv_page(dev, page) : p, bytes);
    if (scales > 0)
        memcpy(export ? p + bytes : (void *)kv_page_scale(dev, page),
               export ? (void *)kv_page_scale(dev, page) : p + bytes, scales);
}

// A call of memcpy for each element would be a third of a test's time.
static void copy_element(char *to, const char *from, size_t size) {
    switch (size) {
    case 1: *to = *from; return;
    case 2: memcpy(to, from, 2); return;
    default: memcpy(to, from, 4); return;
    }
}

// Copies the bytes of a page between the canonical order and the cache.
static void copy_canonical(struct device *dev, int32_t page, char *canonical, bool export) {
    struct layer layer = {.attn = dev->model.attn[0]};
    size_t size = kv_elem_bytes(dev), d = (size_t)layer.attn.head_dim;
    char *p = canonical; // (kv_layers, 2, B, K, d), with I8 (B, K) scales after each (B, K, d)
    CHECK(page >= 0 && page < dev->limits.num_blocks && (size == 1 || size == 2 || size == 4));
    for (int i = 0; i < dev->model.num_attn; i++) {
        const struct attn_spec *a = &dev->model.attn[i];
        if (a->kv_heads == layer.attn.kv_heads && a->head_dim == layer.attn.head_dim)
            continue;
        copy_raw(dev, page, canonical, export);
        return;
    }
    int vectors = (int)kv_vectors(dev);
    for (int i = 0; i < vectors * dev->model.kv_layers; i++) {
        int which = i % vectors;
        layer.kv_layer = i / vectors;
        char *base = kv_half(dev, &layer, page, which);
        for (int o = 0; o < dev->block_size; o++)
            for (int h = 0; h < dev->kv_heads; h++)
                for (size_t j = 0; j < d; j++, p += size) {
                    size_t in = kv_tile_index(dev, d, which, (size_t)o % ATTN_TILE, j);
                    char *at = base + (kv_offset(dev, (int)d, h, o) + in) * size;
                    copy_element(export ? p : at, export ? at : p, size);
                }
        float *scales = dev->kv_dtype == DTYPE_I8 ? kv_scales(dev, &layer, page, which) : NULL;
        for (int o = 0; scales && o < dev->block_size; o++)
            for (int h = 0; h < dev->kv_heads; h++, p += sizeof(float)) {
                void *at = &scales[h * dev->block_size + o];
                memcpy(export ? (void *)p : at, export ? at : (void *)p, sizeof(float));
            }
    }
}

static void cpu_kv_export(struct device *dev, int32_t block, void *dst) {
    copy_canonical(dev, block, dst, true);
}

static void cpu_kv_import(struct device *dev, int32_t block, const void *src) {
    copy_canonical(dev, block, (void *)(uintptr_t)src, false);
}

const struct backend_inspect inspect_cpu = {cpu_view, cpu_kv_export, cpu_kv_import};
