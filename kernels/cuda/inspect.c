// The device's state for tests and benchmarks (kernels/inspect.h). Not in the module.
#include "inspect.h"

#include "device.h"

#include <stdlib.h>
#include <string.h>

static void view_activations(struct device *dev, struct activations *view) {
    *view = (struct activations){dev->resid, dev->q, dev->attn.data[cuda_written_dtype(&dev->attn)]};
}

// A page's vectors of `row` bytes, (K, B) on the device and (B, K) in canonical order. Returns the bytes.
static size_t copy_vectors(struct device *dev, void *at, char *host, char *canonical, size_t row,
                           bool export) {
    int B = dev->block_size, K = dev->model.attn[0].kv_heads;
    size_t bytes = (size_t)(B * K) * row;
    if (export)
        rt_download_now(dev->rt, host, at, bytes);
    for (int h = 0; h < K; h++)
        for (int b = 0; b < B; b++) {
            char *ours = host + (size_t)(h * B + b) * row, *theirs = canonical + (size_t)(b * K + h) * row;
            memcpy(export ? theirs : ours, export ? ours : theirs, row);
        }
    if (!export)
        rt_upload_now(dev->rt, at, host, bytes);
    return bytes;
}

static size_t copy_bytes(struct device *dev, void *at, char *host, size_t bytes, bool export) {
    if (export)
        rt_download_now(dev->rt, host, at, bytes);
    else
        rt_upload_now(dev->rt, at, host, bytes);
    return bytes;
}

// Copies a page as it lies on the device, for layers that differ.
static void copy_whole(struct device *dev, int32_t block, char *host, bool export) {
    size_t bytes = (size_t)cuda_kv_page_arrays(dev) * cuda_kv_array_bytes(dev);
    host += copy_bytes(dev, dev->keys + (size_t)block * bytes, host, bytes, export);
    for (int i = 0; dev->scales && i < dev->model.num_attn; i++) {
        size_t n = cuda_kv_page_scales(dev, i);
        float *scales = cuda_kv_scales(dev, dev->model.attn[i].head_dim);
        if (n > 0)
            host += copy_bytes(dev, scales + (size_t)block * n, host, n * sizeof(float), export);
    }
}

static void copy_page(struct device *dev, int32_t block, char *canonical, bool export) {
    const struct model_config *m = &dev->model;
    const struct attn_spec *a = &m->attn[0];
    if (cuda_kv_whole_pages(dev) && m->state_layers == 0) {
        copy_whole(dev, block, canonical, export);
        return;
    }
    size_t row = dtype_row_bytes(dev->kv_dtype, a->head_dim),
           vectors = (size_t)(dev->block_size * a->kv_heads),
           first = (size_t)block * vectors * (size_t)cuda_kv_page_scale(dev, 0);
    char *host = malloc(vectors * (row > sizeof(float) ? row : sizeof(float)));
    if (!host) {
        rt_fail(dev->rt, "out of host memory for a page");
        return;
    }
    int of_layer = attn_kv_vectors(a);
    for (int i = 0; i < of_layer * m->kv_layers; i++) {
        struct cuda_kv kv = cuda_kv_of(dev, a, i / of_layer);
        char *at = (char *)(i % of_layer ? kv.values : kv.keys) + first * row;
        float *scales = i % of_layer ? kv.value_scales : kv.key_scales;
        canonical += copy_vectors(dev, at, host, canonical, row, export);
        if (scales)
            canonical += copy_vectors(dev, scales + first, host, canonical, sizeof(float), export);
    }
    free(host);
}

static void export_page(struct device *dev, int32_t block, void *dst) { copy_page(dev, block, dst, true); }

static void import_page(struct device *dev, int32_t block, const void *src) {
    copy_page(dev, block, (void *)(uintptr_t)src, false);
}

const struct backend_inspect inspect_cuda = {view_activations, export_page, import_page};
