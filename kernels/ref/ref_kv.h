// The cache: keys and values of a block in the canonical order of kv_export (inspect.h), and pages of recurrent state.
#pragma once

#include "ref_device.h"

// A block of the device's pool.
char *ref_kv_block(struct device *dev, int64_t block);

// Stores the keys (which = 0) or values (1) of a token in its slot.  x (K, d)
void ref_kv_store(struct device *dev, const struct layer *layer, int which, int64_t slot, const float *x);
// Reads that of one kv head back.  x (d)
void ref_kv_fetch(struct device *dev, const struct layer *layer, int which, int64_t slot, int head, float *x);

// As backend_ops has them.
size_t ref_kv_block_bytes(struct device *dev);
void ref_kv_copy(struct device *dev, const struct kv_move *moves, int num_moves);
void *ref_kv_host_page(struct device *dev, int32_t page);

// As backend_inspect has them.
void ref_kv_export(struct device *dev, int32_t block, void *dst);
void ref_kv_import(struct device *dev, int32_t block, const void *src);
