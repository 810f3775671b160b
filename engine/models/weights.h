// The tensors of a model file, checked against the configuration and handed to a device.
#pragma once

#include "backend.h"
#include "model_file.h"
#include "shard.h"

// One rank of those that share the file's weights.
struct weights_target {
    struct shard shard;
    struct model *model; // its configuration, its own part of shard.whole, is there already and stays
    struct device *dev;
    // Of an MTP layer: the model that it predicts for, whole on a device of the same kind that outlives dev; or NULL.
    const struct model *lender;
};

// Gives each target's model its part of every weight that its stage holds; its layers count from 0. Every
// expected tensor is checked (name, exact shape, type) before the first is loaded, and one that the
// architecture does not have is refused. Then one weight after the other, of those that a target holds, is read
// once into a buffer of the largest one's size (of the model's own, then of the layers'), scanned for NaN and
// infinity, and given to the devices, which copy it. A tied head is loaded from the embedding under both roles,
// EMBED first; a backend may return the same weight for both. progress (or NULL) gets the fraction done.
//
// floats: F32, F16 or BF16: matrices of these types are converted to it on the way (norms stay F32);
// DTYPE_COUNT: each stays as it is.
//
// STATUS_FORMAT names tensor and byte, or the first value that F16 cannot hold; STATUS_IO: the file was cut
// meanwhile; STATUS_NOMEM. On failure no model has layers.
enum status weights_load(const struct weights_target *targets, int num_targets, const struct model_file *f,
                         enum dtype floats, const struct backend_ops *ops, void (*progress)(void *, double),
                         void *arg, struct err *err);
void weights_free(struct model *m); // m->layers; the weights themselves are the device's

// Only the check: what `inspect` asks.
enum status weights_check(const struct model_config *config, const struct model_file *f, struct err *err);

// The largest blocks of the matrices whose columns ranks share, as they will be loaded with `floats`. The
// file has passed weights_check().
void weights_blocks(const struct model_config *config, const struct model_file *f, enum dtype floats,
                    struct shard_blocks *blocks);

// The type that a layer's down matrix is loaded as with `floats`: ranks cut its gate and up at its blocks. F32: it
// has none.
enum dtype weights_down_dtype(const struct model_config *config, const struct model_file *f,
                              enum dtype floats, int layer);

uint64_t weights_num_params(const struct model_file *f); // elements of all tensors but rope_freqs
// The type that holds most bytes of the matrices in the file, as it will be loaded with `floats`;
// DTYPE_COUNT: one that we do not support, or no tensors.
enum dtype weights_main_dtype(const struct model_file *f, enum dtype floats);
