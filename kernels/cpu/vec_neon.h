// 16 lanes in four registers of NEON, which every ARM64 CPU has. Same meaning as vec_scalar.h, lane by
// lane. With CPU_DOTPROD four products of bytes are one instruction; with CPU_I8MM, too, where one factor is
// unsigned, and products of bf16 need no widening: BFMLALT and BFMLALB are the two fma of rule 2, each with one
// rounding and by FPCR, which BFDOT is not.
#pragma once

#include "kernels.h"

#include <arm_neon.h>
#include <string.h>

struct v16 {
    float32x4_t a, b, c, d; // lanes 0..3, 4..7, 8..11, 12..15
};
enum { ROWS = 4, TILE_FLOAT = 8 }; // tokens of a tile
enum { ATTN_SUMS = 4 };            // of attention in registers
enum { VECTOR_REGISTERS = 32 };
#define TILE_VECTORS(n) ((n) <= 2 ? 8 : 2)                // of a tile of n tokens
enum { TILE_VECTORS_FEW = 4, TILE_VECTORS_FEW_BF16 = 4 }; // of few; quantised weights, BF16
#if CPU_DOTPROD
#define TILE_QUANTISED(type) 6
#define LANE_DOTS 1
#else
#define TILE_QUANTISED(type) 4
#define NARROW_SUMS 1
#endif
struct rows {
    float32x4_t v;
};
struct dots {
    int32x4_t v;
};
struct quads {
    uint8x16_t v;
};

#define V16_OP(name, op)                                                                                     \
    static inline struct v16 v16_##name(struct v16 x, struct v16 y) {                                        \
        return (struct v16){op(x.a, y.a), op(x.b, y.b), op(x.c, y.c), op(x.d, y.d)};                         \
    }
// Not FMAX and FMIN, which let a NaN through in either argument
static inline float32x4_t f32x4_max(float32x4_t x, float32x4_t y) { return vbslq_f32(vcgtq_f32(x, y), x, y); }
static inline float32x4_t f32x4_min(float32x4_t x, float32x4_t y) { return vbslq_f32(vcltq_f32(x, y), x, y); }
V16_OP(add, vaddq_f32)
V16_OP(sub, vsubq_f32)
V16_OP(mul, vmulq_f32)
V16_OP(div, vdivq_f32)
V16_OP(max, f32x4_max)
V16_OP(min, f32x4_min)
#undef V16_OP

static inline struct v16 v16_set1(float x) {
    float32x4_t v = vdupq_n_f32(x);
    return (struct v16){v, v, v, v};
}
static inline struct v16 v16_load(const float *p) {
    return (struct v16){vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
static inline void v16_store(float *p, struct v16 x) {
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
    vst1q_f32(p + 8, x.c);
    vst1q_f32(p + 12, x.d);
}
static inline float32x4_t f32x4_f16(const uint16_t *p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
static inline struct v16 v16_load_f16(const uint16_t *p) {
    return (struct v16){f32x4_f16(p), f32x4_f16(p + 4), f32x4_f16(p + 8), f32x4_f16(p + 12)};
}
static inline float32x4_t f32x4_bf16(const uint16_t *p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
static inline struct v16 v16_load_bf16(const uint16_t *p) {
    return (struct v16){f32x4_bf16(p), f32x4_bf16(p + 4), f32x4_bf16(p + 8), f32x4_bf16(p + 12)};
}
static inline void f32x4_store_f16(uint16_t *p, float32x4_t x) {
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x)));
}
static inline void v16_store_f16(uint16_t *p, struct v16 x) {
    f32x4_store_f16(p, x.a);
    f32x4_store_f16(p + 4, x.b);
    f32x4_store_f16(p + 8, x.c);
    f32x4_store_f16(p + 12, x.d);
}
// In integers: BFCVTN flushes subnormals.
static inline void f32x4_store_bf16(uint16_t *p, float32x4_t x) {
    uint32x4_t u = vreinterpretq_u32_f32(x), high = vshrq_n_u32(u, 16);
    uint32x4_t lsb = vandq_u32(high, vdupq_n_u32(1));
    uint32x4_t r = vshrq_n_u32(vaddq_u32(vaddq_u32(u, vdupq_n_u32(0x7fff)), lsb), 16);
    vst1_u16(p, vmovn_u32(vbslq_u32(vceqq_f32(x, x), r, vorrq_u32(high, vdupq_n_u32(0x40)))));
}
static inline void v16_store_bf16(uint16_t *p, struct v16 x) {
    f32x4_store_bf16(p, x.a);
    f32x4_store_bf16(p + 4, x.b);
    f32x4_store_bf16(p + 8, x.c);
    f32x4_store_bf16(p + 12, x.d);
}
static inline struct v16 v16_fma(struct v16 x, struct v16 y, struct v16 z) {
    return (struct v16){vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c),
                        vfmaq_f32(z.d, x.d, y.d)};
}
static inline struct v16 v16_if_less(struct v16 x, struct v16 y, struct v16 yes, struct v16 no) {
    return (struct v16){
        vbslq_f32(vcltq_f32(x.a, y.a), yes.a, no.a), vbslq_f32(vcltq_f32(x.b, y.b), yes.b, no.b),
        vbslq_f32(vcltq_f32(x.c, y.c), yes.c, no.c), vbslq_f32(vcltq_f32(x.d, y.d), yes.d, no.d)};
}
static const int32_t lane_numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static inline float32x4_t f32x4_keep(float32x4_t x, const int32_t *lanes, int begin, int end, float32x4_t y) {
    int32x4_t lane = vld1q_s32(lanes);
    uint32x4_t in = vandq_u32(vcgeq_s32(lane, vdupq_n_s32(begin)), vcltq_s32(lane, vdupq_n_s32(end)));
    return vbslq_f32(in, x, y);
}
static inline struct v16 v16_keep(struct v16 x, int begin, int end, struct v16 y) {
    return (struct v16){f32x4_keep(x.a, lane_numbers, begin, end, y.a),
                        f32x4_keep(x.b, lane_numbers + 4, begin, end, y.b),
                        f32x4_keep(x.c, lane_numbers + 8, begin, end, y.c),
                        f32x4_keep(x.d, lane_numbers + 12, begin, end, y.d)};
}
static inline float32x4_t f32x4_select(unsigned bits, float32x4_t x, float32x4_t y) {
    const uint32x4_t lane = {1, 2, 4, 8};
    return vbslq_f32(vtstq_u32(vdupq_n_u32(bits), lane), x, y);
}
static inline struct v16 v16_select(unsigned bits, struct v16 x, struct v16 y) {
    return (struct v16){f32x4_select(bits, x.a, y.a), f32x4_select(bits >> 4, x.b, y.b),
                        f32x4_select(bits >> 8, x.c, y.c), f32x4_select(bits >> 12, x.d, y.d)};
}
static inline bool v16_all_less(struct v16 x, struct v16 y) {
    uint32x4_t low = vandq_u32(vcltq_f32(x.a, y.a), vcltq_f32(x.b, y.b));
    uint32x4_t high = vandq_u32(vcltq_f32(x.c, y.c), vcltq_f32(x.d, y.d));
    return vminvq_u32(vandq_u32(low, high)) != 0;
}
static inline float32x4_t f32x4_power(float32x4_t x) {
    uint32x4_t n = vshlq_n_u32(vreinterpretq_u32_f32(x), 23);
    return vreinterpretq_f32_u32(vaddq_u32(n, vdupq_n_u32(0x3f800000)));
}
static inline struct v16 v16_power(struct v16 x) {
    return (struct v16){f32x4_power(x.a), f32x4_power(x.b), f32x4_power(x.c), f32x4_power(x.d)};
}
static inline struct v16 v16_round(struct v16 x) {
    return (struct v16){vrndnq_f32(x.a), vrndnq_f32(x.b), vrndnq_f32(x.c), vrndnq_f32(x.d)};
}
static inline struct v16 v16_times_power(struct v16 x, struct v16 n) {
    return v16_mul(x, v16_power(v16_add(n, v16_set1(0x1.8p23f)))); // v16_power() reads n from these bits
}
static inline float v16_sum(struct v16 x) {
    float32x4_t c = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
    return vpadds_f32(vadd_f32(vget_low_f32(c), vget_high_f32(c)));
}
// The same tree of four vectors: a register each, then two in one, then four
#define FOUR(name, op)                                                                                       \
    static inline float32x4_t name##_register(struct v16 x) { return op(op(x.a, x.c), op(x.b, x.d)); }       \
    static inline float32x4_t name##_two(struct v16 x, struct v16 y) {                                       \
        float64x2_t u = vreinterpretq_f64_f32(name##_register(x));                                           \
        float64x2_t v = vreinterpretq_f64_f32(name##_register(y));                                           \
        return op(vreinterpretq_f32_f64(vzip1q_f64(u, v)), vreinterpretq_f32_f64(vzip2q_f64(u, v)));         \
    }                                                                                                        \
    static inline float32x4_t name##_four(const struct v16 *x) {                                             \
        float32x4_t u = name##_two(x[0], x[1]), v = name##_two(x[2], x[3]);                                  \
        return op(vuzp1q_f32(u, v), vuzp2q_f32(u, v));                                                       \
    }                                                                                                        \
    static inline struct v16 v16_##name##s(const struct v16 *x) {                                            \
        float32x4_t zero = vdupq_n_f32(0);                                                                   \
        return (struct v16){name##_four(x), name##_four(x + 4), zero, zero};                                 \
    }
#define V16_EIGHT 1
FOUR(sum, vaddq_f32)
FOUR(largest, f32x4_max)
#undef FOUR
static inline float v16_largest(struct v16 x) {
    float32x4_t c = largest_register(x);
    c = f32x4_max(c, vextq_f32(c, c, 2));
    return vgetq_lane_f32(f32x4_max(c, vextq_f32(c, c, 1)), 0);
}
static inline float v16_first(struct v16 x) { return vgetq_lane_f32(x.a, 0); }
static inline uint32x4_t u32x4_abs_max(float32x4_t x, float32x4_t y) {
    const uint32x4_t mask = vdupq_n_u32(0x7fffffff);
    return vmaxq_u32(vandq_u32(vreinterpretq_u32_f32(x), mask), vandq_u32(vreinterpretq_u32_f32(y), mask));
}
static inline uint32_t v16_abs_bits(struct v16 x, struct v16 y) {
    uint32x4_t low = vmaxq_u32(u32x4_abs_max(x.a, x.b), u32x4_abs_max(x.c, x.d));
    uint32x4_t high = vmaxq_u32(u32x4_abs_max(y.a, y.b), u32x4_abs_max(y.c, y.d));
    return vmaxvq_u32(vmaxq_u32(low, high));
}
static inline int16x8_t s16x8_round(float32x4_t x, float32x4_t y) {
    return vcombine_s16(vmovn_s32(vcvtnq_s32_f32(x)), vmovn_s32(vcvtnq_s32_f32(y)));
}
static inline int s8x16_store(int8_t *p, struct v16 x) {
    int8x16_t q = vcombine_s8(vmovn_s16(s16x8_round(x.a, x.b)), vmovn_s16(s16x8_round(x.c, x.d)));
    vst1q_s8(p, q);
    return vaddlvq_s8(q);
}
static inline void v16_store_i8(int8_t *p, struct v16 x, struct v16 y, int sums[2]) {
    sums[0] = s8x16_store(p, x);
    sums[1] = s8x16_store(p + 16, y);
}
static inline uint64_t v16_store_u32(uint32_t *p, struct v16 x) {
    uint32x4_t a = vcvtq_u32_f32(x.a), b = vcvtq_u32_f32(x.b), c = vcvtq_u32_f32(x.c), d = vcvtq_u32_f32(x.d);
    vst1q_u32(p, a);
    vst1q_u32(p + 4, b);
    vst1q_u32(p + 8, c);
    vst1q_u32(p + 12, d);
    uint64x2_t sum = vpadalq_u32(vpadalq_u32(vpaddlq_u32(a), b), c);
    return vaddvq_u64(vpadalq_u32(sum, d));
}
// acc + the products of 4 pairs of bf16 with one pair, the odd ones first
#if CPU_I8MM
static inline float32x4_t f32x4_dot_pairs(float32x4_t acc, uint32x4_t w, uint32_t x) {
    // not by lane: gcc 12 takes registers for it that the instruction has not
    bfloat16x8_t pairs = vreinterpretq_bf16_u32(w), one = vreinterpretq_bf16_u32(vdupq_n_u32(x));
    return vbfmlalbq_f32(vbfmlaltq_f32(acc, pairs, one), pairs, one);
}
#else
static inline float32x4_t f32x4_dot_pairs(float32x4_t acc, uint32x4_t w, uint32_t x) {
    uint32x2_t one = vdup_n_u32(x);
    float32x2_t odd = vreinterpret_f32_u32(vand_u32(one, vdup_n_u32(0xffff0000u)));
    float32x2_t even = vreinterpret_f32_u32(vshl_n_u32(one, 16));
    acc = vfmaq_lane_f32(acc, vreinterpretq_f32_u32(vandq_u32(w, vdupq_n_u32(0xffff0000u))), odd, 0);
    return vfmaq_lane_f32(acc, vreinterpretq_f32_u32(vshlq_n_u32(w, 16)), even, 0);
}
#endif
struct pairs {
    uint32x4_t a, b, c, d;
};
static inline uint32x4_t u32x4_load(const void *p) { return vreinterpretq_u32_u8(vld1q_u8(p)); }
static inline struct pairs pairs_load(const uint16_t *p) {
    return (struct pairs){u32x4_load(p), u32x4_load(p + 8), u32x4_load(p + 16), u32x4_load(p + 24)};
}
static inline struct v16 v16_dot_pairs(struct v16 acc, struct pairs w, uint32_t x) {
    return (struct v16){f32x4_dot_pairs(acc.a, w.a, x), f32x4_dot_pairs(acc.b, w.b, x),
                        f32x4_dot_pairs(acc.c, w.c, x), f32x4_dot_pairs(acc.d, w.d, x)};
}
static inline void v16_store_probs(uint16_t *p, struct v16 x) { v16_store_bf16(p, x); }
// 4 pairs of integers below 128, which need no more than the upper half of an f32
static inline uint32x4_t u32x4_pairs_i8(int16x8_t n) {
    int32x4_t x = vreinterpretq_s32_s16(n);
    float32x4_t odd = vcvtq_f32_s32(vshrq_n_s32(x, 16));
    float32x4_t even = vcvtq_f32_s32(vshrq_n_s32(vshlq_n_s32(x, 16), 16));
    return vsriq_n_u32(vreinterpretq_u32_f32(odd), vreinterpretq_u32_f32(even), 16);
}
static inline struct pairs pairs_load_i8(const int8_t *p) {
    int8x16_t low = vld1q_s8(p), high = vld1q_s8(p + 16);
    return (struct pairs){u32x4_pairs_i8(vmovl_s8(vget_low_s8(low))), u32x4_pairs_i8(vmovl_high_s8(low)),
                          u32x4_pairs_i8(vmovl_s8(vget_low_s8(high))), u32x4_pairs_i8(vmovl_high_s8(high))};
}
static inline void pairs_store(uint16_t *p, struct pairs x) {
    vst1q_u16(p, vreinterpretq_u16_u32(x.a));
    vst1q_u16(p + 8, vreinterpretq_u16_u32(x.b));
    vst1q_u16(p + 16, vreinterpretq_u16_u32(x.c));
    vst1q_u16(p + 24, vreinterpretq_u16_u32(x.d));
}
static inline struct rows rows_zero(void) { return (struct rows){vdupq_n_f32(0)}; }
static inline struct rows rows_load(const float *p) { return (struct rows){vld1q_f32(p)}; }
static inline struct rows rows_load_f16(const uint16_t *p) { return (struct rows){f32x4_f16(p)}; }
static inline uint8x8_t u8x8_load4(const void *p) {
    uint32_t u;
    memcpy(&u, p, sizeof u);
    return vreinterpret_u8_u32(vdup_n_u32(u));
}
static inline uint32x4_t u32x4_widen(uint8x8_t x) { return vmovl_u16(vget_low_u16(vmovl_u8(x))); }
static inline struct rows rows_load_i8(const int8_t *p) {
    int16x8_t x = vmovl_s8(vreinterpret_s8_u8(u8x8_load4(p)));
    return (struct rows){vcvtq_f32_s32(vmovl_s16(vget_low_s16(x)))};
}
static inline struct rows rows_load_u8(const uint8_t *p) {
    return (struct rows){vcvtq_f32_u32(u32x4_widen(u8x8_load4(p)))};
}
static inline struct rows rows_load_low4(const uint8_t *p) {
    return (struct rows){vcvtq_f32_u32(u32x4_widen(vand_u8(u8x8_load4(p), vdup_n_u8(15))))};
}
static inline struct rows rows_load_high4(const uint8_t *p) {
    return (struct rows){vcvtq_f32_u32(u32x4_widen(vshr_n_u8(u8x8_load4(p), 4)))};
}
static inline struct rows rows_load_e8m0(const uint8_t *p) {
    uint8x8_t e = vqsub_u8(u8x8_load4(p), vdup_n_u8(1));
    return (struct rows){vreinterpretq_f32_u32(vshlq_n_u32(u32x4_widen(e), 23))};
}
static inline void rows_store(float *p, struct rows x) { vst1q_f32(p, x.v); }
static inline struct rows rows_add(struct rows x, struct rows y) {
    return (struct rows){vaddq_f32(x.v, y.v)};
}
static inline struct rows rows_mul(struct rows x, struct rows y) {
    return (struct rows){vmulq_f32(x.v, y.v)};
}
static inline struct rows rows_mul1(struct rows x, float y) { return (struct rows){vmulq_n_f32(x.v, y)}; }
static inline struct rows rows_fma(struct rows acc, struct rows w, struct rows x) {
    return (struct rows){vfmaq_f32(acc.v, w.v, x.v)};
}
static inline struct rows rows_fma1(struct rows acc, struct rows w, float x) {
    return (struct rows){vfmaq_n_f32(acc.v, w.v, x)};
}
static inline struct rows rows_from_dots(struct dots a) { return (struct rows){vcvtq_f32_s32(a.v)}; }
static inline struct quads quads_load(const void *p) { return (struct quads){vld1q_u8(p)}; }
static inline struct quads quads_low(struct quads x) { return (struct quads){vandq_u8(x.v, vdupq_n_u8(15))}; }
static inline struct quads quads_high(struct quads x) { return (struct quads){vshrq_n_u8(x.v, 4)}; }
static inline struct quads quads_lookup(struct quads x, const uint8_t *table) {
    return (struct quads){vqtbl1q_u8(vld1q_u8(table), x.v)};
}
// By constants once it is inlined
static inline uint8x16_t u8x16_shift(uint8x16_t x, int n) {
    switch (n) {
    case 4: return vshlq_n_u8(x, 4);
    case 3: return vshlq_n_u8(x, 3);
    case 2: return vshlq_n_u8(x, 2);
    case 1: return vshlq_n_u8(x, 1);
    case -1: return vshrq_n_u8(x, 1);
    case -2: return vshrq_n_u8(x, 2);
    case -3: return vshrq_n_u8(x, 3);
    case -4: return vshrq_n_u8(x, 4);
    case -5: return vshrq_n_u8(x, 5);
    case -6: return vshrq_n_u8(x, 6);
    default: return x;
    }
}
static inline struct quads quads_two(struct quads bits, int n) {
    return (struct quads){vandq_u8(u8x16_shift(bits.v, -n), vdupq_n_u8(3))};
}
static inline struct quads quads_insert(struct quads x, struct quads bits, int n, int mask) {
    return (struct quads){vbslq_u8(vdupq_n_u8((uint8_t)mask), u8x16_shift(bits.v, n), x.v)};
}
static inline struct rows rows_dot_bf16(struct rows acc, struct quads w, uint32_t x) {
    return (struct rows){f32x4_dot_pairs(acc.v, vreinterpretq_u32_u8(w.v), x)};
}
static inline struct dots dots_set1(int n) { return (struct dots){vdupq_n_s32(n)}; }
static inline int8x16_t s8x16_signed(struct quads w) { // of bytes stored plus 128
    return vreinterpretq_s8_u8(veorq_u8(w.v, vdupq_n_u8(0x80)));
}
#if CPU_DOTPROD
// Activations of two steps
struct lanes {
    int8x8_t v;
};
static inline struct lanes lanes_load(const int8_t *p) { return (struct lanes){vld1_s8(p)}; }
static inline struct dots dots_lane_u7(struct dots acc, struct quads w, struct lanes x, const int lane) {
    int8x16_t s = vreinterpretq_s8_u8(w.v);
    return (struct dots){lane ? vdotq_lane_s32(acc.v, s, x.v, 1) : vdotq_lane_s32(acc.v, s, x.v, 0)};
}
#if CPU_I8MM
enum { S8_PLUS_128 = 1 };
static inline struct dots dots_lane_s8(struct dots acc, struct quads w, struct lanes x, const int lane) {
    return (struct dots){lane ? vusdotq_lane_s32(acc.v, w.v, x.v, 1) : vusdotq_lane_s32(acc.v, w.v, x.v, 0)};
}
#else
enum { S8_PLUS_128 = 0 };
static inline struct dots dots_lane_s8(struct dots acc, struct quads w, struct lanes x, const int lane) {
    return dots_lane_u7(acc, (struct quads){vreinterpretq_u8_s8(s8x16_signed(w))}, x, lane);
}
#endif
#else
// int16 sums of the products of each of 4 bytes; two of them together are what x86 has (narrow_steps).
struct narrow {
    int16x8_t low, high; // rows 0 and 1; 2 and 3
};
static inline int8x16_t s8x16_set4(uint32_t x) { return vreinterpretq_s8_u32(vdupq_n_u32(x)); }
static inline struct narrow s16_products(int8x16_t w, uint32_t x) {
    int8x16_t v = s8x16_set4(x);
    return (struct narrow){vmull_s8(vget_low_s8(w), vget_low_s8(v)), vmull_high_s8(w, v)};
}
static inline struct narrow narrow_start(struct quads w, uint32_t x) {
    return s16_products(vreinterpretq_s8_u8(w.v), x);
}
static inline struct narrow narrow_add(struct narrow acc, struct quads w, uint32_t x) {
    int8x16_t s = vreinterpretq_s8_u8(w.v), v = s8x16_set4(x);
    return (struct narrow){vmlal_s8(acc.low, vget_low_s8(s), vget_low_s8(v)), vmlal_high_s8(acc.high, s, v)};
}
// Two products of a weight from -128 to 127 and an activation up to 127 are above -2^15.
static inline struct dots dots_add_narrow(struct dots acc, struct narrow x) {
    return (struct dots){vpadalq_s16(acc.v, vpaddq_s16(x.low, x.high))};
}
static inline struct dots dots_add_u7(struct dots acc, struct quads w, uint32_t x) {
    return dots_add_narrow(acc, narrow_start(w, x));
}
enum { S8_PLUS_128 = 0 };
static inline struct dots dots_add_s8(struct dots acc, struct quads w, uint32_t x) {
    return dots_add_narrow(acc, s16_products(s8x16_signed(w), x));
}
#endif
