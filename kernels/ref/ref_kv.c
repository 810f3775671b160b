// See ref_kv.h.
#include "ref_kv.h"

#include "log.h"

#include <string.h>

// Bytes of the keys, or the values, of a place
static size_t kv_place_bytes(const struct device *dev) {
    return (size_t)dev->block_size * backend_kv_place_bytes(&dev->model, dev->kv_dtype);
}

size_t ref_kv_block_bytes(struct device *dev) {
    const struct model_config *m = &dev->model;
    size_t keys = (size_t)(attn_kv_vectors(&m->attn[0]) * m->kv_layers) * kv_place_bytes(dev);
    size_t states = (size_t)m->state_layers * (size_t)model_state_size(m) * sizeof(float);
    return states == 0 ? keys : (keys > states ? keys + 3 : states) / 4 * 4;
}

char *ref_kv_block(struct device *dev, int64_t block) {
    return dev->kv + (size_t)block * ref_kv_block_bytes(dev);
}

// Where the key (which = 0) or value (1) of a kv head of a slot is; *scale: where its scale is, with I8.
static char *kv_at(struct device *dev, const struct layer *layer, int which, int64_t slot, int head,
                   char **scale) {
    const struct attn_spec *a = &layer->attn;
    size_t row = dtype_row_bytes(dev->kv_dtype, a->head_dim);
    size_t all = (size_t)(dev->block_size * a->kv_heads);
    size_t vector = (size_t)(slot % dev->block_size * a->kv_heads + head);
    size_t index = (size_t)(layer->kv_layer * attn_kv_vectors(a) + which * attn_kv_places(a));
    char *half = ref_kv_block(dev, slot / dev->block_size) + index * kv_place_bytes(dev);
    *scale = half + all * row + vector * sizeof(float);
    return half + vector * row;
}

void ref_kv_store(struct device *dev, const struct layer *layer, int which, int64_t slot, const float *x) {
    int d = layer->attn.head_dim;
    char *scale;
    for (int h = 0; h < layer->attn.kv_heads; h++, x += d) {
        char *dst = kv_at(dev, layer, which, slot, h, &scale);
        if (dev->kv_dtype == DTYPE_I8) {
            float s;
            ref_quantise((int8_t *)dst, &s, x, d);
            memcpy(scale, &s, sizeof s);
        } else {
            for (int i = 0; i < d; i++)
                ref_store(dst + dtype_row_bytes(dev->kv_dtype, i), dev->kv_dtype, x[i]);
        }
    }
}

void ref_kv_fetch(struct device *dev, const struct layer *layer, int which, int64_t slot, int head,
                  float *x) {
    char *scale, *src = kv_at(dev, layer, which, slot, head, &scale);
    for (int i = 0; i < layer->attn.head_dim; i++)
        if (dev->kv_dtype == DTYPE_I8)
            x[i] = (float)((int8_t *)src)[i] * ref_fetch(scale, DTYPE_F32);
        else
            x[i] = ref_fetch(src + dtype_row_bytes(dev->kv_dtype, i), dev->kv_dtype);
}

static char *page_in(struct device *dev, int tier, int32_t page) {
    return (tier == KV_HOST ? dev->host_kv : dev->kv) + (size_t)page * ref_kv_block_bytes(dev);
}

void ref_kv_copy(struct device *dev, const struct kv_move *moves, int num_moves) {
    for (const struct kv_move *v = moves; v < moves + num_moves; v++) {
        CHECK(backend_can_move(&dev->limits, v));
        memmove(page_in(dev, v->to_tier, v->to), page_in(dev, v->from_tier, v->from),
                ref_kv_block_bytes(dev));
    }
}

void *ref_kv_host_page(struct device *dev, int32_t page) {
    CHECK(page >= 0 && page < dev->limits.num_host_pages);
    return page_in(dev, KV_HOST, page);
}

void ref_kv_export(struct device *dev, int32_t block, void *dst) {
    memcpy(dst, ref_kv_block(dev, block), ref_kv_block_bytes(dev));
}

void ref_kv_import(struct device *dev, int32_t block, const void *src) {
    memcpy(ref_kv_block(dev, block), src, ref_kv_block_bytes(dev));
}
