// Shared by decode and prefill attention: 16-bit types, online softmax in base 2, places of keys and values.
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

// Which vector, in the order of the cache, is the key (or value) of token `pos` of head h; its element 0.
KD_FN size_t kv_vector(const struct cuda_kv &kv, const struct cuda_blocks &b, int seq, int pos, int h) {
    int block = b.ids[b.start[seq] + pos / kv.block_size];
    return ((size_t)block * (size_t)kv.num_heads + (size_t)h) * (size_t)kv.block_size +
           (size_t)(pos % kv.block_size);
}
KD_FN size_t kv_place(const struct cuda_kv &kv, const struct cuda_blocks &b, int seq, int pos, int h) {
    return kv_vector(kv, b, seq, pos, h) * (size_t)kv.head_dim;
}

// A cache of 8 bits: E4M3 with HALF (exact in f16), else integers with scales (exact in bf16), which
// multiply scores and weights in f32.
template <bool HALF> KD_FN float from8(uint8_t b) {
    return HALF ? kd_half_to_float((uint16_t)kd_e4m3_to_half2(b)) : (float)(int8_t)b;
}
template <bool HALF> KD_FN uint32_t widen8(uint32_t two) { // two elements as two of 16 bits
    return HALF ? kd_e4m3_to_half2(two)
                : kd_pack_bf16((float)(int8_t)(two & 0xff), (float)(int8_t)(two >> 8 & 0xff));
}
// Rows of HD bytes to rows of HD 16-bit elements, whose 16-byte pieces are xored by row for ldmatrix.
template <int HD, bool HALF>
KD_FN void widen_rows(unsigned char *to, const unsigned char *from, int rows, int thread, int num_threads) {
    for (int i = thread; i < rows * (HD / 16); i += num_threads) {
        int r = i / (HD / 16), c = i % (HD / 16) * 2;
        uint4 b = *(const uint4 *)(const void *)(from + i * 16), low, high;
        low.x = widen8<HALF>(b.x), low.y = widen8<HALF>(b.x >> 16);
        low.z = widen8<HALF>(b.y), low.w = widen8<HALF>(b.y >> 16);
        high.x = widen8<HALF>(b.z), high.y = widen8<HALF>(b.z >> 16);
        high.z = widen8<HALF>(b.w), high.w = widen8<HALF>(b.w >> 16);
        *(uint4 *)(void *)(to + r * HD * 2 + ((c ^ (r & 7)) << 4)) = low;
        *(uint4 *)(void *)(to + r * HD * 2 + (((c + 1) ^ (r & 7)) << 4)) = high;
    }
}

// The rescale factor of online softmax: exp2(a - b), where a may be -infinity, and b too where nothing has
// been seen yet: then 0.
KD_FN float rescale(float a, float b) { return b == -INFINITY ? 0 : kd_exp2(a - b); }

static constexpr float LOG2_E = 1.4426950408889634f;

// kv_first_seen(), on the device.
KD_FN int first_seen(int position, int window, bool chunked) {
    int before = chunked && window > 0 ? position % window : window - 1;
    return window > 0 && position > before ? position - before : 0;
}

// attn_seen(), on the device: tokens [begin, end). context: the sequence's tokens where rows see those after them, too; else 0.
struct seen_tokens {
    int begin, end;
};
KD_FN struct seen_tokens seen_from(int position, int context, int window, bool chunked) {
    int half = window > 0 ? window / 2 : context;
    if (context == 0)
        return {first_seen(position, window, chunked), position + 1};
    return {position > half ? position - half : 0, context - position > half ? position + half + 1 : context};
}

// Soft caps by tanh, which is 1 or -1 of an infinity. A score in base 2 is cap_scores(dot(q, k) * score_factor()).
KD_FN float score_factor(float scale, float softcap) { return (softcap > 0 ? softcap : scale) * LOG2_E; }
KD_FN float cap_score(float x) { return 1 - 2 * kd_reciprocal(1 + kd_exp2(x * (2 * LOG2_E))); }
template <int N> KD_FN void cap_scores(float (&s)[N][4], float scale, float softcap) {
    if (softcap > 0) {
#pragma unroll
        for (int n = 0; n < N; n++)
            for (int e = 0; e < 4; e++)
                s[n][e] = cap_score(s[n][e] * scale);
    }
}

// The term of a head's sink in the sum of its probabilities, relative to `max`; without sinks 0. If it overflows f32,
// the head's output is 0.
KD_FN float sink_part(const float *sinks, int head, float max) {
    return sinks ? rescale(sinks[head] * LOG2_E, max) : 0;
}
