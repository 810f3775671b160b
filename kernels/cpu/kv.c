// Writing keys and values, and copying pages of them. kv.h says where they lie.
#include "kv.h"

#include "log.h"

size_t cpu_kv_bytes(const struct device *dev, int num_blocks) {
    size_t scales = dev->kv_dtype == DTYPE_I8 ? kv_page_scales(dev) * sizeof(float) : 0;
    return (size_t)num_blocks * (kv_page_bytes(dev) + scales);
}

size_t cpu_kv_region(const struct device *dev, int num_blocks) { return cpu_kv_bytes(dev, num_blocks) + 64; }

static void convert_vector(const struct device *dev, void *dst, float *scale, const float *src, int n) {
    switch (dev->kv_dtype) {
    case DTYPE_F32: memcpy(dst, src, (size_t)n * sizeof(float)); break;
    case DTYPE_F16: dev->kernels->to_f16(dst, src, n); break;
    case DTYPE_BF16: dev->kernels->to_bf16(dst, src, n); break;
    default: dev->kernels->to_i8(dst, scale, src, n); break;
    }
}

void cpu_kv_write(struct device *dev, const struct layer *layer, int64_t slot, const float *key,
                  const float *value) {
    int64_t page = slot / dev->block_size;
    int token = (int)(slot % dev->block_size), d = layer->attn.head_dim;
    size_t size = kv_elem_bytes(dev);
    float row[MAX_HEAD_DIM], scale = 0; // d in kv_dtype
    CHECK(page < dev->limits.num_blocks);
    for (int which = 0; which < (int)kv_vectors(dev); which++)
        for (int h = 0; h < layer->attn.kv_heads; h++) {
            const float *src = (which ? value : key) + h * d;
            char *dst = kv_half(dev, layer, page, which) + kv_offset(dev, d, h, token) * size;
            convert_vector(dev, row, &scale, src, d);
            kv_scatter(dev, dst, (size_t)d, which, token % ATTN_TILE, (const char *)row, size);
            if (dev->kv_dtype == DTYPE_I8)
                kv_scales(dev, layer, page, which)[h * dev->block_size + token] = scale;
        }
}

static void *page_in(const struct device *dev, int tier, int32_t page) {
    return tier == KV_HOST ? (char *)dev->host_kv.data + (size_t)page * cpu_kv_bytes(dev, 1)
                           : kv_page(dev, page);
}

static void *page_scales_in(const struct device *dev, int tier, int32_t page) {
    return tier == KV_HOST ? (char *)page_in(dev, tier, page) + kv_page_bytes(dev)
                           : (char *)kv_page_scale(dev, page);
}

// At once: host and device are one, and every step before has been computed.
void cpu_kv_copy(struct device *dev, const struct kv_move *moves, int num_moves) {
    for (const struct kv_move *v = moves; v < moves + num_moves; v++) {
        CHECK(backend_can_move(&dev->limits, v));
        if (v->from == v->to && v->from_tier == v->to_tier)
            continue;
        memcpy(page_in(dev, v->to_tier, v->to), page_in(dev, v->from_tier, v->from), kv_page_bytes(dev));
        if (dev->kv_dtype == DTYPE_I8)
            memcpy(page_scales_in(dev, v->to_tier, v->to), page_scales_in(dev, v->from_tier, v->from),
                   kv_page_scales(dev) * sizeof(float));
    }
}

void *cpu_kv_host_page(struct device *dev, int32_t page) {
    CHECK(page >= 0 && page < dev->limits.num_host_pages);
    return page_in(dev, KV_HOST, page);
}

// A group of states, or of fewer layers than a page has places for, leaves the end of a page and of its scales.
void cpu_kv_host_clear(struct device *dev, int32_t page, int group) {
    const struct model_config *m = &dev->model;
    const size_t half = kv_half_elems(dev) * kv_elem_bytes(dev), end = kv_page_bytes(dev);
    const size_t scales =
        dev->kv_dtype == DTYPE_I8 ? kv_page_scales(dev) / (size_t)m->kv_layers : 0; // of a place
    char *at = cpu_kv_host_page(dev, page);
    size_t places = 0;
    for (int i = 0; i < m->num_layers && m->groups[group].kind != KV_STATE; i++) {
        const struct attn_spec *a = model_attn(m, i);
        const bool own = a && m->layers[i].kv_group == group;
        const size_t behind = own ? (size_t)(m->layers[i].kv_layer + attn_kv_places(a)) : 0;
        places = behind > places ? behind : places;
    }
    const size_t used = m->groups[group].kind == KV_STATE ? (size_t)m->groups[group].num_layers *
                                                                (size_t)model_state_size(m) * sizeof(float)
                                                          : places * kv_vectors(dev) * half;
    memset(at + used, 0, end - used);
    memset(at + end + places * scales * sizeof(float), 0,
           ((size_t)m->kv_layers - places) * scales * sizeof(float));
}
