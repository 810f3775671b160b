// What decode and prefill attention share: 16-bit types, online softmax in base 2, places of keys and values.
#pragma once

#include "common.cuh"

// HALF: f16, else bf16.
template <bool HALF> KD_FN uint32_t pack16(float low, float high) {
    return HALF ? kd_pack_half(low, high) : kd_pack_bf16(low, high);
}
template <bool HALF> KD_FN float from16(uint16_t h) {
    return HALF ? kd_half_to_float(h) : kd_bf16_to_float(h);
}
template <bool HALF> KD_FN void mma16(float c[4], const uint32_t a[4], const uint32_t b[2]) {
    if (HALF)
        kd_mma_half(c, a, b);
    else
        kd_mma_bf16(c, a, b);
}

// Element 0 of the key (or value) of token `pos` of head h.
KD_FN size_t kv_place(const struct cuda_kv &kv, const struct cuda_blocks &b, int seq, int pos, int h) {
    int block = b.ids[b.start[seq] + pos / kv.block_size];
    return (((size_t)block * (size_t)kv.num_heads + (size_t)h) * (size_t)kv.block_size +
            (size_t)(pos % kv.block_size)) *
           (size_t)kv.head_dim;
}

// exp2(a - b) where a may be -infinity, and b too where nothing has been seen yet: then 0.
KD_FN float fade(float a, float b) { return b == -INFINITY ? 0 : kd_exp2(a - b); }

static constexpr float LOG2_E = 1.4426950408889634f;
