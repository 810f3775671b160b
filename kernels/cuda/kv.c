// Where keys and values lie: for each of kv_layers the keys of all pages, then the values; pages of every KV
// group come from the one pool. Of latent attention there are keys alone, which are the values, too. Where layers keep
// recurrent state, a page lies in one piece instead: kernels find keys and values of one layer by page ids times the pieces
// of a page (work.c), as if all pieces were pages.
#include "device.h"

#include "log.h"

size_t cuda_kv_array_vectors(const struct device *dev) {
    size_t pages = dev->model.state_layers > 0 ? 1 : (size_t)dev->limits.num_blocks;
    return pages * (size_t)(dev->block_size * dev->kv_heads);
}

size_t cuda_kv_array_bytes(const struct device *dev) {
    return cuda_kv_array_vectors(dev) * dtype_row_bytes(dev->kv_dtype, dev->head_dim);
}

int cuda_kv_page_arrays(const struct device *dev) {
    const struct model_config *m = &dev->model;
    size_t arrays = (size_t)(attn_kv_vectors(&m->attn[0]) * m->kv_layers);
    if (m->state_layers == 0)
        return (int)arrays;
    size_t bytes = (size_t)m->state_layers * (size_t)model_state_size(m) * sizeof(float);
    size_t one = (size_t)(dev->block_size * dev->kv_heads) * dtype_row_bytes(dev->kv_dtype, dev->head_dim);
    size_t states = (bytes + one - 1) / one;
    return round_up((int)(states > arrays ? states : arrays), 4); // so that states are aligned
}

size_t cuda_kv_block_bytes(struct device *dev) {
    return (size_t)cuda_kv_page_arrays(dev) * (size_t)(dev->block_size * dev->kv_heads) *
           backend_kv_vector_bytes(dev->kv_dtype, dev->head_dim);
}

struct cuda_kv cuda_kv_of(const struct device *dev, int kv_layer) {
    size_t at = (size_t)kv_layer * cuda_kv_array_bytes(dev),
           scales = (size_t)kv_layer * cuda_kv_array_vectors(dev);
    return (struct cuda_kv){
        .keys = dev->keys + at,
        .values = dev->values + at,
        .dtype = dev->kv_dtype,
        .block_size = dev->block_size,
        .num_heads = dev->kv_heads,
        .head_dim = dev->head_dim,
        .key_scales = dev->key_scales ? dev->key_scales + scales : NULL,
        .value_scales = dev->value_scales ? dev->value_scales + scales : NULL,
    };
}

// A launch per move, so that moves follow on each other. Values lie behind keys, so that both are one list of
// arrays, and so do their scales.
void cuda_kv_copy(struct device *dev, const struct kv_move *moves, int num_moves) {
    int blocks = dev->limits.num_blocks, arrays = cuda_kv_page_arrays(dev),
        scale = dev->model.state_layers > 0 ? arrays : 1;
    size_t vectors = (size_t)(dev->block_size * dev->kv_heads);
    for (int i = 0; i < num_moves; i++) {
        CHECK(moves[i].from >= 0 && moves[i].from < blocks && moves[i].to >= 0 && moves[i].to < blocks);
        struct cuda_page_copy a = {.pages = dev->keys,
                                   .stride = cuda_kv_array_bytes(dev),
                                   .page_bytes = vectors * dtype_row_bytes(dev->kv_dtype, dev->head_dim),
                                   .num = arrays,
                                   .from = moves[i].from * scale,
                                   .to = moves[i].to * scale};
        cuda_page_copy(dev->rt, &a);
        if (!dev->key_scales)
            continue;
        a.pages = (char *)dev->key_scales;
        a.stride = cuda_kv_array_vectors(dev) * sizeof(float);
        a.page_bytes = vectors * sizeof(float);
        cuda_page_copy(dev->rt, &a);
    }
}
