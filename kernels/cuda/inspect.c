// What tests and benchmarks see of the device (kernels/inspect.h). Not in the module.
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
    int B = dev->block_size, K = dev->kv_heads;
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

static void copy_page(struct device *dev, int32_t block, char *canonical, bool export) {
    size_t row = dtype_row_bytes(dev->kv_dtype, dev->head_dim),
           vectors = (size_t)(dev->block_size * dev->kv_heads),
           first = (size_t)block * vectors * (size_t)dev->work_config.page_scale;
    char *host = malloc(vectors * (row > sizeof(float) ? row : sizeof(float)));
    if (!host) {
        rt_fail(dev->rt, "out of host memory for a page");
        return;
    }
    int of_layer = attn_kv_vectors(&dev->model.attn[0]);
    for (int i = 0; i < of_layer * dev->model.kv_layers; i++) {
        struct cuda_kv kv = cuda_kv_of(dev, i / of_layer);
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
