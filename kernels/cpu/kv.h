// Where keys and values lie in the pages of the cache.
//
// A page has its layers beside each other, (pages, kv_layers, 2, …): memory that is written for the first
// time comes in huge pages of 2 MB, and a new page of the cache then touches one of them, not one for each
// layer. Keys or values of one layer of a page lie in tiles of 16 tokens: keys (K, B/16, d, 16), values
// (K, B, d); of BF16 and I8 keys (K, B/16, d/2, 16, 2), values (K, B/16, 8, d, 2), so that the two elements
// that are multiplied at once lie beside each other. The scales of I8, (pages, kv_layers, 2, K, B), follow the
// elements of all pages. A layer that keeps more than another takes several of the kv_layers places, its keys before its
// values. Of latent attention a page has keys alone: attention transposes the values that it needs. A page
// of states has them (state_layers, state size) in f32; pages are as large as the larger of the two.
#pragma once

#include "device.h"

#include <string.h>

static inline bool kv_paired(const struct device *dev) {
    return dev->kv_dtype == DTYPE_BF16 || dev->kv_dtype == DTYPE_I8;
}

// Vectors kept of a token and kv head: key and value, or with latent attention a key alone
static inline size_t kv_vectors(const struct device *dev) {
    return (size_t)attn_kv_vectors(&dev->model.attn[0]);
}

static inline size_t kv_elem_bytes(const struct device *dev) { return dtype_row_bytes(dev->kv_dtype, 1); }

// Elements of the keys, or of the values, of one place of a page
static inline size_t kv_half_elems(const struct device *dev) {
    return (size_t)dev->block_size * (size_t)dev->kv_size;
}

// Bytes from page to page, without scales
static inline size_t kv_page_bytes(const struct device *dev) {
    size_t keys = kv_vectors(dev) * (size_t)dev->model.kv_layers * kv_half_elems(dev) * kv_elem_bytes(dev);
    size_t states = (size_t)dev->model.state_layers * (size_t)model_state_size(&dev->model) * sizeof(float);
    return states == 0 ? keys : ((keys > states ? keys : states) + 63) / 64 * 64;
}

// The recurrent state of a layer in a page
static inline float *kv_state(const struct device *dev, int state_layer, int64_t page) {
    return (float *)(void *)((char *)dev->kv.data + (size_t)page * kv_page_bytes(dev)) +
           (size_t)state_layer * (size_t)model_state_size(&dev->model);
}

// Halves of a page before the keys (which = 0) or values (1) of a layer
static inline size_t kv_half_index(const struct device *dev, const struct layer *layer, int which) {
    return (size_t)layer->kv_layer * kv_vectors(dev) + (size_t)(which * attn_kv_places(&layer->attn));
}

static inline char *kv_page(const struct device *dev, int64_t page) {
    return (char *)dev->kv.data + (size_t)page * kv_page_bytes(dev);
}
static inline char *kv_half(const struct device *dev, const struct layer *layer, int64_t page, int which) {
    return kv_page(dev, page) + kv_half_index(dev, layer, which) * kv_half_elems(dev) * kv_elem_bytes(dev);
}

// Floats that scales of a page take, of I8
static inline size_t kv_page_scales(const struct device *dev) {
    return kv_vectors(dev) * (size_t)dev->model.kv_layers * (size_t)(dev->kv_heads * dev->block_size);
}
static inline float *kv_page_scale(const struct device *dev, int64_t page) {
    size_t bytes = (size_t)dev->limits.num_blocks * kv_page_bytes(dev);
    return (float *)(void *)((char *)dev->kv.data + (bytes + 63) / 64 * 64) +
           (size_t)page * kv_page_scales(dev);
}
// Those of kv_half(), (K, B)
static inline float *kv_scales(const struct device *dev, const struct layer *layer, int64_t page, int which) {
    return kv_page_scale(dev, page) +
           kv_half_index(dev, layer, which) * (size_t)(dev->kv_heads * dev->block_size);
}

// The first element of the tile of a token, relative to kv_half(). d: of a head
static inline size_t kv_offset(const struct device *dev, int d, int head, int token) {
    size_t at = (size_t)head * (size_t)dev->block_size + (size_t)token;
    return at / ATTN_TILE * ATTN_TILE * (size_t)d;
}

// Element i of the key (which = 0) or value (1) of token o of a tile
static inline size_t kv_tile_index(const struct device *dev, size_t d, int which, size_t o, size_t i) {
    if (kv_paired(dev))
        return which ? o / 2 * 2 * d + 2 * i + o % 2 : (i / 2 * ATTN_TILE + o) * 2 + i % 2;
    return which ? o * d + i : i * ATTN_TILE + o;
}

// Copies src (d), elements of `size` bytes, into their places as token `token` of a tile.
static inline void kv_scatter(const struct device *dev, char *tile, size_t d, int which, int token,
                              const char *src, size_t size) {
    size_t o = (size_t)token;
    if (which && !kv_paired(dev)) {
        memcpy(tile + o * d * size, src, d * size);
        return;
    }
    size_t at = kv_tile_index(dev, d, which, o, 0), pair = kv_tile_index(dev, d, which, o, 2) - at,
           odd = kv_tile_index(dev, d, which, o, 1) - at;
    for (size_t i = 0; i < d; i++) {
        char *dst = tile + (at + i / 2 * pair + i % 2 * odd) * size;
        if (size == 1)
            *dst = src[i];
        else if (size == 2)
            memcpy(dst, src + i * 2, 2);
        else
            memcpy(dst, src + i * 4, 4);
    }
}

size_t cpu_kv_bytes(const struct device *dev, int num_blocks);  // without padding behind the last page
size_t cpu_kv_region(const struct device *dev, int num_blocks); // as they lie in memory
// Stores the key and the value (K, d) of one token; value is not read where keys are values.
void cpu_kv_write(struct device *dev, const struct layer *layer, int64_t slot, const float *key,
                  const float *value);
void cpu_kv_copy(struct device *dev, const struct kv_move *moves, int num_moves);
void *cpu_kv_host_page(struct device *dev, int32_t page);
void cpu_kv_host_clear(struct device *dev, int32_t page, int group);
