// 16 lanes in two ymm. Same meaning as vec_scalar.h, lane by lane. With CPU_AVXVNNI four products of bytes
// are one instruction.
#pragma once

#include "kernels.h"

#include <immintrin.h>
#include <string.h>

struct v16 {
    __m256 a, b; // lanes 0..7, 8..15
};
enum { ROWS = 8, TILE_FLOAT = 8 }; // tokens of a tile
enum { ATTN_SUMS = 8 };            // of attention in registers
enum { VECTOR_REGISTERS = 16 };
#define TILE_VECTORS(n) ((n) <= 2 ? 4 : (n) <= 4 ? 2 : 1)               // of a tile of n tokens
enum { TILE_VECTORS_FEW = 2, TILE_VECTORS_FEW_BF16 = TILE_VECTORS(1) }; // of few; quantised weights, BF16
#if CPU_AVXVNNI
#define TILE_QUANTISED(type) ((type) == DTYPE_Q5_0 ? 6 : 4)
#else
#define TILE_QUANTISED(type) ((type) == DTYPE_Q4_0 || (type) == DTYPE_Q2_K ? 4 : 6)
#define NARROW_SUMS 1
#endif
struct rows {
    __m256 v;
};
struct dots {
    __m256i v;
};
struct quads {
    __m256i v;
};

VEC_INLINE struct v16 v16_set1(float x) { return (struct v16){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
VEC_INLINE struct v16 v16_load(const float *p) {
    return (struct v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
VEC_INLINE void v16_store(float *p, struct v16 x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
VEC_INLINE __m128i load128(const void *p) { return _mm_loadu_si128(p); }
VEC_INLINE struct v16 v16_load_f16(const uint16_t *p) {
    return (struct v16){_mm256_cvtph_ps(load128(p)), _mm256_cvtph_ps(load128(p + 8))};
}
VEC_INLINE __m256 m256_bf16(const uint16_t *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p)), 16));
}
VEC_INLINE struct v16 v16_load_bf16(const uint16_t *p) {
    return (struct v16){m256_bf16(p), m256_bf16(p + 8)};
}
VEC_INLINE void v16_store_f16(uint16_t *p, struct v16 x) {
    _mm_storeu_si128((void *)p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128((void *)(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
// Rounded bf16 in the low half of each 32-bit lane
VEC_INLINE __m256i m256_round_bf16(__m256 x) {
    __m256i u = _mm256_castps_si256(x), high = _mm256_srli_epi32(u, 16);
    __m256i lsb = _mm256_and_si256(high, _mm256_set1_epi32(1));
    __m256i r = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), lsb), 16);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(r, _mm256_or_si256(high, _mm256_set1_epi32(0x40)), nan);
}
VEC_INLINE void v16_store_bf16(uint16_t *p, struct v16 x) {
    __m256i packed = _mm256_packus_epi32(m256_round_bf16(x.a), m256_round_bf16(x.b)); // quarters 0 2 1 3
    _mm256_storeu_si256((void *)p, _mm256_permute4x64_epi64(packed, 0xd8));
}
VEC_INLINE struct v16 v16_add(struct v16 x, struct v16 y) {
    return (struct v16){_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
VEC_INLINE struct v16 v16_sub(struct v16 x, struct v16 y) {
    return (struct v16){_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
VEC_INLINE struct v16 v16_mul(struct v16 x, struct v16 y) {
    return (struct v16){_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
VEC_INLINE struct v16 v16_div(struct v16 x, struct v16 y) {
    return (struct v16){_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
VEC_INLINE struct v16 v16_fma(struct v16 x, struct v16 y, struct v16 z) {
    return (struct v16){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
VEC_INLINE struct v16 v16_max(struct v16 x, struct v16 y) {
    return (struct v16){_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
VEC_INLINE struct v16 v16_min(struct v16 x, struct v16 y) {
    return (struct v16){_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}
VEC_INLINE struct v16 v16_if_less(struct v16 x, struct v16 y, struct v16 yes, struct v16 no) {
    return (struct v16){_mm256_blendv_ps(no.a, yes.a, _mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ)),
                        _mm256_blendv_ps(no.b, yes.b, _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ))};
}
VEC_INLINE __m256 m256_range(__m256i index, int begin, int end) {
    __m256i from = _mm256_cmpgt_epi32(index, _mm256_set1_epi32(begin - 1));
    return _mm256_castsi256_ps(_mm256_and_si256(from, _mm256_cmpgt_epi32(_mm256_set1_epi32(end), index)));
}
VEC_INLINE struct v16 v16_keep(struct v16 x, int begin, int end, struct v16 y) {
    __m256i low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
            high = _mm256_add_epi32(low, _mm256_set1_epi32(8));
    return (struct v16){_mm256_blendv_ps(y.a, x.a, m256_range(low, begin, end)),
                        _mm256_blendv_ps(y.b, x.b, m256_range(high, begin, end))};
}
VEC_INLINE __m256 m256_lanes(unsigned bits) {
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_castsi256_ps(
        _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)bits), lane), lane));
}
VEC_INLINE struct v16 v16_select(unsigned bits, struct v16 x, struct v16 y) {
    return (struct v16){_mm256_blendv_ps(y.a, x.a, m256_lanes(bits)),
                        _mm256_blendv_ps(y.b, x.b, m256_lanes(bits >> 8))};
}
VEC_INLINE bool v16_all_less(struct v16 x, struct v16 y) {
    return (_mm256_movemask_ps(_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ)) &
            _mm256_movemask_ps(_mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ))) == 0xff;
}
VEC_INLINE __m256 m256_power(__m256 x) {
    __m256i n = _mm256_slli_epi32(_mm256_castps_si256(x), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(n, _mm256_set1_epi32(0x3f800000)));
}
VEC_INLINE struct v16 v16_power(struct v16 x) { return (struct v16){m256_power(x.a), m256_power(x.b)}; }
VEC_INLINE struct v16 v16_round(struct v16 x) {
    enum { NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }; // a constant without optimising, too
    return (struct v16){_mm256_round_ps(x.a, NEAREST), _mm256_round_ps(x.b, NEAREST)};
}
VEC_INLINE struct v16 v16_times_power(struct v16 x, struct v16 n) {
    __m256 one = _mm256_set1_ps(0x1.8p23f); // m256_power() reads n from these bits
    return (struct v16){_mm256_mul_ps(x.a, m256_power(_mm256_add_ps(n.a, one))),
                        _mm256_mul_ps(x.b, m256_power(_mm256_add_ps(n.b, one)))};
}
VEC_INLINE float v16_sum(struct v16 x) {
    __m256 b = _mm256_add_ps(x.a, x.b);
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
VEC_INLINE float v16_largest(struct v16 x) {
    __m256 b = _mm256_max_ps(x.a, x.b);
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}
VEC_INLINE float v16_first(struct v16 x) { return _mm256_cvtss_f32(x.a); }
VEC_INLINE __m256i m256_abs_max(__m256 a, __m256 b) {
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    return _mm256_max_epu32(_mm256_and_si256(_mm256_castps_si256(a), mask),
                            _mm256_and_si256(_mm256_castps_si256(b), mask));
}
VEC_INLINE uint32_t v16_abs_bits(struct v16 x, struct v16 y) {
    __m256i u = _mm256_max_epu32(m256_abs_max(x.a, x.b), m256_abs_max(y.a, y.b));
    __m128i c = _mm_max_epu32(_mm256_castsi256_si128(u), _mm256_extracti128_si256(u, 1));
    c = _mm_max_epu32(c, _mm_shuffle_epi32(c, 0x4e));
    c = _mm_max_epu32(c, _mm_shuffle_epi32(c, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(c);
}
VEC_INLINE void v16_store_i8(int8_t *p, struct v16 x, struct v16 y, int sums[2]) {
    __m256i a = _mm256_packs_epi32(_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b));
    __m256i b = _mm256_packs_epi32(_mm256_cvtps_epi32(y.a), _mm256_cvtps_epi32(y.b));
    // Packing goes by 128 bits: fours of bytes lie as x 0, x 8, y 0, y 8, x 4, x 12, y 4, y 12.
    __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256((void *)p, _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order));
    const __m256i one = _mm256_set1_epi16(1);
    __m256i n = _mm256_hadd_epi32(_mm256_madd_epi16(a, one), _mm256_madd_epi16(b, one));
    __m128i c = _mm_add_epi32(_mm256_castsi256_si128(n), _mm256_extracti128_si256(n, 1));
    c = _mm_add_epi32(c, _mm_shuffle_epi32(c, 0xb1));
    sums[0] = _mm_cvtsi128_si32(c);
    sums[1] = _mm_extract_epi32(c, 2);
}
VEC_INLINE __m256i m256_sum_u32(__m256i n) {
    return _mm256_add_epi64(_mm256_and_si256(n, _mm256_set1_epi64x(0xffffffff)), _mm256_srli_epi64(n, 32));
}
VEC_INLINE uint64_t v16_store_u32(uint32_t *p, struct v16 x) {
    __m256i a = _mm256_cvttps_epi32(x.a), b = _mm256_cvttps_epi32(x.b);
    _mm256_storeu_si256((void *)p, a);
    _mm256_storeu_si256((void *)(p + 8), b);
    __m256i s = _mm256_add_epi64(m256_sum_u32(a), m256_sum_u32(b));
    __m128i c = _mm_add_epi64(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    return (uint64_t)_mm_cvtsi128_si64(_mm_add_epi64(c, _mm_unpackhi_epi64(c, c)));
}
struct pairs {
    __m256i a, b;
};
VEC_INLINE struct pairs pairs_load(const uint16_t *p) {
    return (struct pairs){_mm256_loadu_si256((const void *)p), _mm256_loadu_si256((const void *)(p + 16))};
}
VEC_INLINE __m256 m256_dot_pairs(__m256 acc, __m256i w, __m256 odd, __m256 even) {
    __m256 w_odd = _mm256_castsi256_ps(_mm256_and_si256(w, _mm256_set1_epi32((int)0xffff0000u)));
    acc = _mm256_fmadd_ps(w_odd, odd, acc);
    return _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_slli_epi32(w, 16)), even, acc);
}
VEC_INLINE struct v16 v16_dot_pairs(struct v16 acc, struct pairs w, uint32_t x) {
    __m256 odd = _mm256_castsi256_ps(_mm256_set1_epi32((int)(x & 0xffff0000u)));
    __m256 even = _mm256_castsi256_ps(_mm256_set1_epi32((int)(x << 16)));
    return (struct v16){m256_dot_pairs(acc.a, w.a, odd, even), m256_dot_pairs(acc.b, w.b, odd, even)};
}
VEC_INLINE void v16_store_probs(uint16_t *p, struct v16 x) { v16_store_bf16(p, x); }
// 8 pairs of integers below 128, which need no more than the upper half of an f32
VEC_INLINE __m256i m256_pairs_i8(const int8_t *p) {
    __m256i x = _mm256_cvtepi8_epi16(load128(p));
    __m256 odd = _mm256_cvtepi32_ps(_mm256_srai_epi32(x, 16));
    __m256 even = _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(x, 16), 16));
    return _mm256_or_si256(_mm256_castps_si256(odd), _mm256_srli_epi32(_mm256_castps_si256(even), 16));
}
VEC_INLINE struct pairs pairs_load_i8(const int8_t *p) {
    return (struct pairs){m256_pairs_i8(p), m256_pairs_i8(p + 16)};
}
VEC_INLINE void pairs_store(uint16_t *p, struct pairs x) {
    _mm256_storeu_si256((void *)p, x.a);
    _mm256_storeu_si256((void *)(p + 16), x.b);
}
VEC_INLINE struct rows rows_zero(void) { return (struct rows){_mm256_setzero_ps()}; }
VEC_INLINE struct rows rows_load(const float *p) { return (struct rows){_mm256_loadu_ps(p)}; }
VEC_INLINE struct rows rows_load_f16(const uint16_t *p) { return (struct rows){_mm256_cvtph_ps(load128(p))}; }
VEC_INLINE struct rows rows_load_i8(const int8_t *p) {
    return (struct rows){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p)))};
}
VEC_INLINE __m256i m256_load_u8(const uint8_t *p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p));
}
VEC_INLINE struct rows rows_load_u8(const uint8_t *p) {
    return (struct rows){_mm256_cvtepi32_ps(m256_load_u8(p))};
}
VEC_INLINE struct rows rows_load_low4(const uint8_t *p) {
    return (struct rows){_mm256_cvtepi32_ps(_mm256_and_si256(m256_load_u8(p), _mm256_set1_epi32(15)))};
}
VEC_INLINE struct rows rows_load_high4(const uint8_t *p) {
    return (struct rows){_mm256_cvtepi32_ps(_mm256_srli_epi32(m256_load_u8(p), 4))};
}
VEC_INLINE struct rows rows_load_e8m0(const uint8_t *p) {
    __m128i e = _mm_subs_epu8(_mm_loadl_epi64((const void *)p), _mm_set1_epi8(1));
    return (struct rows){_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu8_epi32(e), 23))};
}
VEC_INLINE void rows_store(float *p, struct rows a) { _mm256_storeu_ps(p, a.v); }
VEC_INLINE struct rows rows_add(struct rows a, struct rows b) {
    return (struct rows){_mm256_add_ps(a.v, b.v)};
}
VEC_INLINE struct rows rows_mul(struct rows a, struct rows b) {
    return (struct rows){_mm256_mul_ps(a.v, b.v)};
}
VEC_INLINE struct rows rows_mul1(struct rows a, float x) {
    return (struct rows){_mm256_mul_ps(a.v, _mm256_set1_ps(x))};
}
VEC_INLINE struct rows rows_fma(struct rows acc, struct rows w, struct rows x) {
    return (struct rows){_mm256_fmadd_ps(w.v, x.v, acc.v)};
}
VEC_INLINE struct rows rows_fma1(struct rows acc, struct rows w, float x) {
    return (struct rows){_mm256_fmadd_ps(w.v, _mm256_set1_ps(x), acc.v)};
}
VEC_INLINE struct rows rows_from_dots(struct dots a) { return (struct rows){_mm256_cvtepi32_ps(a.v)}; }
VEC_INLINE struct quads quads_load(const void *p) { return (struct quads){_mm256_loadu_si256(p)}; }
VEC_INLINE struct quads quads_low(struct quads x) {
    return (struct quads){_mm256_and_si256(x.v, _mm256_set1_epi8(15))};
}
VEC_INLINE struct quads quads_high(struct quads x) {
    return (struct quads){_mm256_and_si256(_mm256_srli_epi32(x.v, 4), _mm256_set1_epi8(15))};
}
VEC_INLINE struct quads quads_lookup(struct quads x, const uint8_t *table) {
    return (struct quads){_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load128(table)), x.v)};
}
VEC_INLINE struct quads quads_two(struct quads bits, int n) {
    return (struct quads){
        _mm256_and_si256(_mm256_srl_epi32(bits.v, _mm_cvtsi32_si128(n)), _mm256_set1_epi8(3))};
}
// Shifts of 32 bits: what crosses into the next byte is masked off.
VEC_INLINE struct quads quads_insert(struct quads x, struct quads bits, int n, int mask) {
    __m256i y = n < 0 ? _mm256_srl_epi32(bits.v, _mm_cvtsi32_si128(-n))
                      : _mm256_sll_epi32(bits.v, _mm_cvtsi32_si128(n));
    return (struct quads){_mm256_or_si256(x.v, _mm256_and_si256(y, _mm256_set1_epi8((char)mask)))};
}
// Makes gcc compute x here, into a register. Left to itself it adds all products of a block as a tree, spills
// them until then, and loads neighbouring values through general registers: 1.7 times as slow.
#define COMPLETE(x) __asm__("" : "+x"(x))
VEC_INLINE struct rows rows_dot_bf16(struct rows acc, struct quads w, uint32_t x) {
    __m256i both = _mm256_set1_epi32((int)x);
    COMPLETE(both);
    __m256 odd = _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32((int)0xffff0000u)));
    __m256 even = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
    __m256 w_odd = _mm256_castsi256_ps(_mm256_and_si256(w.v, _mm256_set1_epi32((int)0xffff0000u)));
    acc.v = _mm256_fmadd_ps(w_odd, odd, acc.v);
    acc.v = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_slli_epi32(w.v, 16)), even, acc.v);
    return acc;
}
VEC_INLINE struct dots dots_set1(int n) { return (struct dots){_mm256_set1_epi32(n)}; }
#if CPU_AVXVNNI
enum { S8_PLUS_128 = 1 };
VEC_INLINE struct dots dots_add_u7(struct dots acc, struct quads w, uint32_t x) {
    return (struct dots){_mm256_dpbusd_avx_epi32(acc.v, w.v, _mm256_set1_epi32((int)x))};
}
VEC_INLINE struct dots dots_add_s8(struct dots acc, struct quads w, uint32_t x) {
    return dots_add_u7(acc, w, x);
}
#else
// int16 sums of two int8 products each. They cannot saturate: w is below 128, and 2 * 127 * 127 < 2^15. More
// than two are added (narrow_add) only for types whose w is smaller (narrow_steps).
struct narrow {
    __m256i v;
};
VEC_INLINE struct narrow narrow_start(struct quads w, uint32_t x) {
    return (struct narrow){_mm256_maddubs_epi16(w.v, _mm256_set1_epi32((int)x))};
}
VEC_INLINE struct narrow narrow_add(struct narrow acc, struct quads w, uint32_t x) {
    acc.v = _mm256_add_epi16(acc.v, narrow_start(w, x).v);
    COMPLETE(acc.v);
    return acc;
}
VEC_INLINE struct dots dots_add_narrow(struct dots acc, struct narrow x) {
    return (struct dots){_mm256_add_epi32(acc.v, _mm256_madd_epi16(x.v, _mm256_set1_epi16(1)))};
}
VEC_INLINE struct dots dots_add_u7(struct dots acc, struct quads w, uint32_t x) {
    return dots_add_narrow(acc, narrow_start(w, x));
}
enum { S8_PLUS_128 = 0 };
// |w| times x with the sign of w: |w| is at most 128 and |x| at most 127, so nothing saturates here either.
VEC_INLINE struct dots dots_add_s8(struct dots acc, struct quads w, uint32_t x) {
    __m256i signed_w = _mm256_xor_si256(w.v, _mm256_set1_epi8((char)0x80));
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(signed_w),
                                         _mm256_sign_epi8(_mm256_set1_epi32((int)x), signed_w));
    acc.v = _mm256_add_epi32(acc.v, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    COMPLETE(acc.v);
    return acc;
}
#endif
