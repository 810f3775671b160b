// 16 lanes in one zmm. Same meaning as vec_scalar.h, lane by lane.
#pragma once

#include "kernels.h"

#include <immintrin.h>
#include <string.h>

struct v16 {
    __m512 v;
};
enum { ROWS = 16, TILE_FLOAT = 8 }; // tokens of a tile
#define TILE_QUANTISED(type) 6
enum { ATTN_SUMS = 16 }; // of attention in registers
enum { VECTOR_REGISTERS = 32, S8_PLUS_128 = 1 };
#define TILE_VECTORS(n) 2 // of a tile of n tokens
// Vectors of a tile of few tokens, of quantised weights and of BF16. F16 and F32 would wait for their sums more than
// for memory.
enum { TILE_VECTORS_FEW = 1, TILE_VECTORS_FEW_BF16 = 1 };
struct rows {
    __m512 v;
};
struct dots {
    __m512i v;
};
struct quads {
    __m512i v;
};

VEC_INLINE struct v16 v16_set1(float x) { return (struct v16){_mm512_set1_ps(x)}; }
VEC_INLINE struct v16 v16_load(const float *p) { return (struct v16){_mm512_loadu_ps(p)}; }
VEC_INLINE void v16_store(float *p, struct v16 a) { _mm512_storeu_ps(p, a.v); }
VEC_INLINE struct v16 v16_load_f16(const uint16_t *p) {
    return (struct v16){_mm512_cvtph_ps(_mm256_loadu_si256((const void *)p))};
}
VEC_INLINE struct v16 v16_load_bf16(const uint16_t *p) {
    __m512i u = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p));
    return (struct v16){_mm512_castsi512_ps(_mm512_slli_epi32(u, 16))};
}
VEC_INLINE void v16_store_f16(uint16_t *p, struct v16 a) {
    _mm256_storeu_si256((void *)p, _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
// In integers, because vcvtneps2bf16 flushes denormals
VEC_INLINE void v16_store_bf16(uint16_t *p, struct v16 a) {
    __m512i u = _mm512_castps_si512(a.v), high = _mm512_srli_epi32(u, 16);
    __m512i lsb = _mm512_and_si512(high, _mm512_set1_epi32(1));
    __m512i r = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), lsb), 16);
    __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
    r = _mm512_mask_or_epi32(r, nan, high, _mm512_set1_epi32(0x40));
    _mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16(r));
}
VEC_INLINE struct v16 v16_add(struct v16 a, struct v16 b) { return (struct v16){_mm512_add_ps(a.v, b.v)}; }
VEC_INLINE struct v16 v16_sub(struct v16 a, struct v16 b) { return (struct v16){_mm512_sub_ps(a.v, b.v)}; }
VEC_INLINE struct v16 v16_mul(struct v16 a, struct v16 b) { return (struct v16){_mm512_mul_ps(a.v, b.v)}; }
VEC_INLINE struct v16 v16_div(struct v16 a, struct v16 b) { return (struct v16){_mm512_div_ps(a.v, b.v)}; }
VEC_INLINE struct v16 v16_fma(struct v16 a, struct v16 b, struct v16 c) {
    return (struct v16){_mm512_fmadd_ps(a.v, b.v, c.v)};
}
VEC_INLINE struct v16 v16_max(struct v16 a, struct v16 b) { return (struct v16){_mm512_max_ps(a.v, b.v)}; }
VEC_INLINE struct v16 v16_min(struct v16 a, struct v16 b) { return (struct v16){_mm512_min_ps(a.v, b.v)}; }
VEC_INLINE struct v16 v16_if_less(struct v16 a, struct v16 b, struct v16 yes, struct v16 no) {
    return (struct v16){_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
}
// The lowest n lanes, where n may be any number.
VEC_INLINE unsigned lanes_below(int n) { return n <= 0 ? 0 : n >= 16 ? 0xffffu : (1u << n) - 1; }
VEC_INLINE struct v16 v16_keep(struct v16 a, int begin, int end, struct v16 b) {
    return (struct v16){_mm512_mask_blend_ps((__mmask16)(lanes_below(end) & ~lanes_below(begin)), b.v, a.v)};
}
VEC_INLINE struct v16 v16_select(unsigned bits, struct v16 a, struct v16 b) {
    return (struct v16){_mm512_mask_blend_ps((__mmask16)bits, b.v, a.v)};
}
VEC_INLINE bool v16_all_less(struct v16 a, struct v16 b) {
    return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ) == 0xffff;
}
VEC_INLINE struct v16 v16_power(struct v16 a) {
    __m512i n = _mm512_slli_epi32(_mm512_castps_si512(a.v), 23);
    return (struct v16){_mm512_castsi512_ps(_mm512_add_epi32(n, _mm512_set1_epi32(0x3f800000)))};
}
VEC_INLINE struct v16 v16_round(struct v16 a) {
    return (struct v16){_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
VEC_INLINE struct v16 v16_times_power(struct v16 a, struct v16 n) {
    return (struct v16){_mm512_scalef_ps(a.v, n.v)};
}
VEC_INLINE __m256 v16_high(struct v16 a) {
    return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a.v), 1));
}
VEC_INLINE float v16_sum(struct v16 a) {
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a.v), v16_high(a));
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
VEC_INLINE float v16_largest(struct v16 a) {
    __m256 b = _mm256_max_ps(_mm512_castps512_ps256(a.v), v16_high(a));
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}
// Reduces eight vectors at once: each step puts halves of two or of four beside each other, so fewer remain.
#define EIGHT(name, op)                                                                                      \
    static inline struct v16 name(const struct v16 *x) {                                                     \
        __m512 a[4], b[2];                                                                                   \
        for (int i = 0; i < 4; i++)                                                                          \
            a[i] = op(_mm512_shuffle_f32x4(x[2 * i].v, x[2 * i + 1].v, 0x44),                                \
                      _mm512_shuffle_f32x4(x[2 * i].v, x[2 * i + 1].v, 0xee));                               \
        for (int i = 0; i < 2; i++)                                                                          \
            b[i] = op(_mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0x88),                                    \
                      _mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0xdd));                                   \
        __m512 c = op(_mm512_shuffle_ps(b[0], b[1], 0x44), _mm512_shuffle_ps(b[0], b[1], 0xee));             \
        c = op(c, _mm512_shuffle_ps(c, c, 0xb1));                                                            \
        return (struct v16){_mm512_maskz_permutexvar_ps(                                                     \
            0xff, _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 0, 0, 0, 0, 0, 0, 0, 0), c)};                 \
    }
#define V16_EIGHT 1
EIGHT(v16_sums, _mm512_add_ps)
EIGHT(v16_largests, _mm512_max_ps)
#undef EIGHT
VEC_INLINE float v16_first(struct v16 a) { return _mm512_cvtss_f32(a.v); }
VEC_INLINE uint32_t v16_abs_bits(struct v16 a, struct v16 b) {
    const __m512i mask = _mm512_set1_epi32(0x7fffffff);
    __m512i u = _mm512_and_si512(_mm512_castps_si512(a.v), mask);
    return _mm512_reduce_max_epu32(_mm512_max_epu32(u, _mm512_and_si512(_mm512_castps_si512(b.v), mask)));
}
VEC_INLINE void v16_store_i8(int8_t *p, struct v16 a, struct v16 b, int sums[2]) {
    __m256i q = _mm256_set_m128i(_mm512_cvtepi32_epi8(_mm512_cvtps_epi32(b.v)),
                                 _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a.v)));
    _mm256_storeu_si256((void *)p, q);
    __m256i n = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), q);
    n = _mm256_add_epi32(n, _mm256_shuffle_epi32(n, 0x4e));
    n = _mm256_add_epi32(n, _mm256_shuffle_epi32(n, 0xb1));
    sums[0] = _mm256_cvtsi256_si32(n);
    sums[1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(n, 1));
}
VEC_INLINE uint64_t v16_store_u32(uint32_t *p, struct v16 a) {
    __m512i n = _mm512_cvttps_epi32(a.v);
    _mm512_storeu_si512(p, n);
    __m512i even = _mm512_and_si512(n, _mm512_set1_epi64(0xffffffff)), odd = _mm512_srli_epi64(n, 32);
    return (uint64_t)_mm512_reduce_add_epi64(_mm512_add_epi64(even, odd));
}
struct pairs {
    __m512i v;
};
VEC_INLINE struct pairs pairs_load(const uint16_t *p) { return (struct pairs){_mm512_loadu_si512(p)}; }
VEC_INLINE struct v16 v16_dot_pairs(struct v16 acc, struct pairs w, uint32_t x) {
    return (struct v16){_mm512_dpbf16_ps(acc.v, (__m512bh)w.v, (__m512bh)_mm512_set1_epi32((int)x))};
}
VEC_INLINE void v16_store_probs(uint16_t *p, struct v16 a) {
    _mm256_storeu_si256((void *)p, (__m256i)_mm512_cvtneps_pbh(a.v));
}
VEC_INLINE __m512 m512_load_i8(const int8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p)));
}
VEC_INLINE struct pairs pairs_load_i8(const int8_t *p) {
    return (struct pairs){(__m512i)_mm512_cvtne2ps_pbh(m512_load_i8(p + 16), m512_load_i8(p))};
}
VEC_INLINE void pairs_store(uint16_t *p, struct pairs x) { _mm512_storeu_si512(p, x.v); }
VEC_INLINE struct rows rows_zero(void) { return (struct rows){_mm512_setzero_ps()}; }
VEC_INLINE struct rows rows_load(const float *p) { return (struct rows){_mm512_loadu_ps(p)}; }
VEC_INLINE struct rows rows_load_f16(const uint16_t *p) {
    return (struct rows){_mm512_cvtph_ps(_mm256_loadu_si256((const void *)p))};
}
VEC_INLINE __m512i m512_load_u8(const uint8_t *p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p));
}
VEC_INLINE struct rows rows_load_u8(const uint8_t *p) {
    return (struct rows){_mm512_cvtepi32_ps(m512_load_u8(p))};
}
VEC_INLINE struct rows rows_load_low4(const uint8_t *p) {
    return (struct rows){_mm512_cvtepi32_ps(_mm512_and_si512(m512_load_u8(p), _mm512_set1_epi32(15)))};
}
VEC_INLINE struct rows rows_load_high4(const uint8_t *p) {
    return (struct rows){_mm512_cvtepi32_ps(_mm512_srli_epi32(m512_load_u8(p), 4))};
}
VEC_INLINE struct rows rows_load_e8m0(const uint8_t *p) {
    __m128i e = _mm_subs_epu8(_mm_loadu_si128((const void *)p), _mm_set1_epi8(1));
    return (struct rows){_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu8_epi32(e), 23))};
}
VEC_INLINE struct rows rows_load_i8(const int8_t *p) {
    return (struct rows){_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p)))};
}
VEC_INLINE void rows_store(float *p, struct rows a) { _mm512_storeu_ps(p, a.v); }
VEC_INLINE struct rows rows_add(struct rows a, struct rows b) {
    return (struct rows){_mm512_add_ps(a.v, b.v)};
}
VEC_INLINE struct rows rows_mul(struct rows a, struct rows b) {
    return (struct rows){_mm512_mul_ps(a.v, b.v)};
}
VEC_INLINE struct rows rows_mul1(struct rows a, float x) {
    return (struct rows){_mm512_mul_ps(a.v, _mm512_set1_ps(x))};
}
VEC_INLINE struct rows rows_fma(struct rows acc, struct rows w, struct rows x) {
    return (struct rows){_mm512_fmadd_ps(w.v, x.v, acc.v)};
}
VEC_INLINE struct rows rows_fma1(struct rows acc, struct rows w, float x) {
    return (struct rows){_mm512_fmadd_ps(w.v, _mm512_set1_ps(x), acc.v)};
}
VEC_INLINE struct rows rows_from_dots(struct dots a) { return (struct rows){_mm512_cvtepi32_ps(a.v)}; }
VEC_INLINE struct quads quads_load(const void *p) { return (struct quads){_mm512_loadu_si512(p)}; }
VEC_INLINE struct quads quads_low(struct quads x) {
    return (struct quads){_mm512_and_si512(x.v, _mm512_set1_epi8(15))};
}
VEC_INLINE struct quads quads_high(struct quads x) {
    return (struct quads){_mm512_and_si512(_mm512_srli_epi32(x.v, 4), _mm512_set1_epi8(15))};
}
VEC_INLINE struct quads quads_lookup(struct quads x, const uint8_t *table) {
    __m128i bytes = _mm_loadu_si128((const void *)table);
    return (struct quads){_mm512_shuffle_epi8(_mm512_broadcast_i32x4(bytes), x.v)};
}
VEC_INLINE struct quads quads_two(struct quads bits, int n) {
    return (struct quads){
        _mm512_and_si512(_mm512_srl_epi32(bits.v, _mm_cvtsi32_si128(n)), _mm512_set1_epi8(3))};
}
// Shifts of 32 bits: what crosses into the next byte is masked off.
VEC_INLINE struct quads quads_insert(struct quads x, struct quads bits, int n, int mask) {
    __m512i y = n < 0 ? _mm512_srl_epi32(bits.v, _mm_cvtsi32_si128(-n))
                      : _mm512_sll_epi32(bits.v, _mm_cvtsi32_si128(n));
    return (struct quads){_mm512_ternarylogic_epi32(x.v, y, _mm512_set1_epi8((char)mask), 0xf8)};
}
VEC_INLINE struct rows rows_dot_bf16(struct rows acc, struct quads w, uint32_t x) {
    return (struct rows){_mm512_dpbf16_ps(acc.v, (__m512bh)w.v, (__m512bh)_mm512_set1_epi32((int)x))};
}
VEC_INLINE struct dots dots_set1(int n) { return (struct dots){_mm512_set1_epi32(n)}; }
VEC_INLINE struct dots dots_add_u7(struct dots acc, struct quads w, uint32_t x) {
    return (struct dots){_mm512_dpbusd_epi32(acc.v, w.v, _mm512_set1_epi32((int)x))};
}
VEC_INLINE struct dots dots_add_s8(struct dots acc, struct quads w, uint32_t x) {
    return dots_add_u7(acc, w, x);
}
