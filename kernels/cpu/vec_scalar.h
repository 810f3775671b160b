// 16 lanes in plain C: the meaning of each vector operation. fmaf is one rounding, also where the machine has
// no such instruction.
#pragma once

#include "half.h"
#include "kernels.h"

#include <math.h>
#include <string.h>

struct v16 {
    float f[16];
};
// For GEMM a vector is ROWS rows of packed weights: a value of each, or 4 bytes of each.
enum { ROWS = 16, TILE_FLOAT = 8 }; // tokens of a tile
#define TILE_QUANTISED(type) 8
enum { ATTN_SUMS = 8 }; // of attention in registers
enum { VECTOR_REGISTERS = 32, S8_PLUS_128 = 0 };
#define TILE_VECTORS(n) 2                                               // of a tile of n tokens
enum { TILE_VECTORS_FEW = 2, TILE_VECTORS_FEW_BF16 = TILE_VECTORS(1) }; // of few; quantised weights, BF16
struct rows {
    float f[ROWS];
};
struct dots {
    int32_t i[ROWS];
};
struct quads {
    uint8_t b[4 * ROWS];
};

static inline struct v16 v16_set1(float x) {
    struct v16 r;
    for (int i = 0; i < 16; i++)
        r.f[i] = x;
    return r;
}
static inline struct v16 v16_load(const float *p) {
    struct v16 r;
    memcpy(r.f, p, sizeof r.f);
    return r;
}
static inline void v16_store(float *p, struct v16 a) { memcpy(p, a.f, sizeof a.f); }
static inline struct v16 v16_load_f16(const uint16_t *p) {
    struct v16 r;
    for (int i = 0; i < 16; i++)
        r.f[i] = half_to_float(p[i]);
    return r;
}
static inline struct v16 v16_load_bf16(const uint16_t *p) {
    struct v16 r;
    for (int i = 0; i < 16; i++)
        r.f[i] = bf16_to_float(p[i]);
    return r;
}
static inline void v16_store_f16(uint16_t *p, struct v16 a) {
    for (int i = 0; i < 16; i++)
        p[i] = float_to_half(a.f[i]);
}
static inline void v16_store_bf16(uint16_t *p, struct v16 a) {
    for (int i = 0; i < 16; i++)
        p[i] = float_to_bf16(a.f[i]);
}
static inline struct v16 v16_add(struct v16 a, struct v16 b) {
    for (int i = 0; i < 16; i++)
        a.f[i] += b.f[i];
    return a;
}
static inline struct v16 v16_sub(struct v16 a, struct v16 b) {
    for (int i = 0; i < 16; i++)
        a.f[i] -= b.f[i];
    return a;
}
static inline struct v16 v16_mul(struct v16 a, struct v16 b) {
    for (int i = 0; i < 16; i++)
        a.f[i] *= b.f[i];
    return a;
}
static inline struct v16 v16_div(struct v16 a, struct v16 b) {
    for (int i = 0; i < 16; i++)
        a.f[i] /= b.f[i];
    return a;
}
// a * b + c
static inline struct v16 v16_fma(struct v16 a, struct v16 b, struct v16 c) {
    for (int i = 0; i < 16; i++)
        c.f[i] = fmaf(a.f[i], b.f[i], c.f[i]);
    return c;
}
// a > b ? a : b, so that a NaN in b stays
static inline struct v16 v16_max(struct v16 a, struct v16 b) {
    for (int i = 0; i < 16; i++)
        b.f[i] = a.f[i] > b.f[i] ? a.f[i] : b.f[i];
    return b;
}
static inline struct v16 v16_min(struct v16 a, struct v16 b) {
    for (int i = 0; i < 16; i++)
        b.f[i] = a.f[i] < b.f[i] ? a.f[i] : b.f[i];
    return b;
}
// a < b ? yes : no
static inline struct v16 v16_if_less(struct v16 a, struct v16 b, struct v16 yes, struct v16 no) {
    for (int i = 0; i < 16; i++)
        no.f[i] = a.f[i] < b.f[i] ? yes.f[i] : no.f[i];
    return no;
}
// Lanes [begin, end) of a, the others of b.
static inline struct v16 v16_keep(struct v16 a, int begin, int end, struct v16 b) {
    for (int i = 0; i < 16; i++)
        b.f[i] = i >= begin && i < end ? a.f[i] : b.f[i];
    return b;
}
// Lanes of a whose bit is set, the others of b.
static inline struct v16 v16_select(unsigned bits, struct v16 a, struct v16 b) {
    for (int i = 0; i < 16; i++)
        b.f[i] = bits >> i & 1 ? a.f[i] : b.f[i];
    return b;
}
static inline bool v16_all_less(struct v16 a, struct v16 b) {
    for (int i = 0; i < 16; i++)
        if (!(a.f[i] < b.f[i]))
            return false;
    return true;
}
// 2^n where a's bits hold n in their low part (exp_v16)
static inline struct v16 v16_power(struct v16 a) {
    for (int i = 0; i < 16; i++)
        a.f[i] = bits_float((float_bits(a.f[i]) << 23) + 0x3f800000u);
    return a;
}
// To nearest even, of |a| below 2^22
static inline struct v16 v16_round(struct v16 a) {
    for (int i = 0; i < 16; i++)
        a.f[i] = (a.f[i] + 0x1.8p23f) - 0x1.8p23f;
    return a;
}
// a * 2^n, n integers from -127 to 127, a from 1/2 to 2, or NaN: 0 where that is below 2^-126
static inline struct v16 v16_times_power(struct v16 a, struct v16 n) {
    for (int i = 0; i < 16; i++)
        a.f[i] *= bits_float((float_bits(n.f[i] + 0x1.8p23f) << 23) + 0x3f800000u);
    return a;
}
static inline float v16_sum(struct v16 a) {
    for (int n = 8; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            a.f[i] += a.f[i + n];
    return a.f[0];
}
static inline float v16_largest(struct v16 a) {
    for (int n = 8; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            a.f[i] = a.f[i] > a.f[i + n] ? a.f[i] : a.f[i + n];
    return a.f[0];
}
static inline float v16_first(struct v16 a) { return a.f[0]; }
// Largest bit pattern of |a| and |b|: orders NaN above infinity above all numbers.
static inline uint32_t v16_abs_bits(struct v16 a, struct v16 b) {
    uint32_t max = 0;
    for (int i = 0; i < 32; i++) {
        uint32_t u = float_bits(i < 16 ? a.f[i] : b.f[i - 16]) & 0x7fffffffu;
        max = u > max ? u : max;
    }
    return max;
}
// Rounds |a|, |b| <= 127 to nearest even and stores bytes, those of b after those of a; the sums of both.
static inline void v16_store_i8(int8_t *p, struct v16 a, struct v16 b, int sums[2]) {
    sums[0] = sums[1] = 0;
    for (int i = 0; i < 32; i++) {
        int n = (int)(float_bits((i < 16 ? a.f[i] : b.f[i - 16]) + 0x1.8p23f) - 0x4b400000u);
        p[i] = (int8_t)n;
        sums[i / 16] += n;
    }
}
// Truncates 0 <= a <= 2^30 and stores; returns the sum.
static inline uint64_t v16_store_u32(uint32_t *p, struct v16 a) {
    uint64_t sum = 0;
    for (int i = 0; i < 16; i++) {
        p[i] = (uint32_t)a.f[i];
        sum += p[i];
    }
    return sum;
}
// Two bf16 for each lane
struct pairs {
    uint32_t u[16];
};
static inline struct pairs pairs_load(const uint16_t *p) {
    struct pairs r;
    memcpy(r.u, p, sizeof r.u);
    return r;
}
// acc + w(odd) x(odd), then + w(even) x(even), one rounding each; x: a pair of bf16
static inline struct v16 v16_dot_pairs(struct v16 acc, struct pairs w, uint32_t x) {
    float even = bits_float(x << 16), odd = bits_float(x & 0xffff0000u);
    for (int i = 0; i < 16; i++) {
        acc.f[i] = fmaf(bits_float(w.u[i] & 0xffff0000u), odd, acc.f[i]);
        acc.f[i] = fmaf(bits_float(w.u[i] << 16), even, acc.f[i]);
    }
    return acc;
}
// As v16_store_bf16, for factors of v16_dot_pairs: subnormals count as zero there, and may be stored as zero.
static inline void v16_store_probs(uint16_t *p, struct v16 a) { v16_store_bf16(p, a); }
// 32 integers as bf16, exactly
static inline struct pairs pairs_load_i8(const int8_t *p) {
    uint16_t y[32];
    for (int i = 0; i < 32; i++)
        y[i] = float_to_bf16((float)p[i]);
    return pairs_load(y);
}
static inline void pairs_store(uint16_t *p, struct pairs x) { memcpy(p, &x, 64); }

static inline struct rows rows_zero(void) { return (struct rows){{0}}; }
static inline struct rows rows_load(const float *p) {
    struct rows r;
    memcpy(r.f, p, sizeof r.f);
    return r;
}
static inline struct rows rows_load_f16(const uint16_t *p) {
    struct rows r;
    for (int i = 0; i < ROWS; i++)
        r.f[i] = half_to_float(p[i]);
    return r;
}
static inline struct rows rows_load_u8(const uint8_t *p) {
    struct rows r;
    for (int i = 0; i < ROWS; i++)
        r.f[i] = (float)p[i];
    return r;
}
static inline struct rows rows_load_i8(const int8_t *p) {
    struct rows r;
    for (int i = 0; i < ROWS; i++)
        r.f[i] = (float)p[i];
    return r;
}
// The lower and the upper half of each byte
static inline struct rows rows_load_low4(const uint8_t *p) {
    struct rows r;
    for (int i = 0; i < ROWS; i++)
        r.f[i] = (float)(p[i] & 15);
    return r;
}
static inline struct rows rows_load_high4(const uint8_t *p) {
    struct rows r;
    for (int i = 0; i < ROWS; i++)
        r.f[i] = (float)(p[i] >> 4);
    return r;
}
// 2^(e - 128), 0 for e below 2
static inline struct rows rows_load_e8m0(const uint8_t *p) {
    struct rows r;
    for (int i = 0; i < ROWS; i++)
        r.f[i] = bits_float((uint32_t)(p[i] > 0 ? p[i] - 1 : 0) << 23);
    return r;
}
static inline void rows_store(float *p, struct rows a) { memcpy(p, a.f, sizeof a.f); }
static inline struct rows rows_add(struct rows a, struct rows b) {
    for (int i = 0; i < ROWS; i++)
        a.f[i] += b.f[i];
    return a;
}
static inline struct rows rows_mul(struct rows a, struct rows b) {
    for (int i = 0; i < ROWS; i++)
        a.f[i] *= b.f[i];
    return a;
}
static inline struct rows rows_mul1(struct rows a, float x) {
    for (int i = 0; i < ROWS; i++)
        a.f[i] *= x;
    return a;
}
// acc + w * x, and acc + w * x for one x: one rounding
static inline struct rows rows_fma(struct rows acc, struct rows w, struct rows x) {
    for (int i = 0; i < ROWS; i++)
        acc.f[i] = fmaf(w.f[i], x.f[i], acc.f[i]);
    return acc;
}
static inline struct rows rows_fma1(struct rows acc, struct rows w, float x) {
    for (int i = 0; i < ROWS; i++)
        acc.f[i] = fmaf(w.f[i], x, acc.f[i]);
    return acc;
}
// Exact: a sum over 32 k is below 2^24.
static inline struct rows rows_from_dots(struct dots a) {
    struct rows r;
    for (int i = 0; i < ROWS; i++)
        r.f[i] = (float)a.i[i];
    return r;
}
static inline struct quads quads_load(const void *p) {
    struct quads r;
    memcpy(r.b, p, sizeof r.b);
    return r;
}
// The low and the high nibble of each byte
static inline struct quads quads_low(struct quads x) {
    for (int i = 0; i < 4 * ROWS; i++)
        x.b[i] &= 15;
    return x;
}
static inline struct quads quads_high(struct quads x) {
    for (int i = 0; i < 4 * ROWS; i++)
        x.b[i] >>= 4;
    return x;
}
// table[i] for each byte i, which is below 16
static inline struct quads quads_lookup(struct quads x, const uint8_t *table) {
    for (int i = 0; i < 4 * ROWS; i++)
        x.b[i] = table[x.b[i]];
    return x;
}
// bits >> n & 3 in each byte
static inline struct quads quads_two(struct quads bits, int n) {
    for (int i = 0; i < 4 * ROWS; i++)
        bits.b[i] = bits.b[i] >> n & 3;
    return bits;
}
// x | (bits << n & mask) in each byte; -5 <= n <= 4, below 0 to the right
static inline struct quads quads_insert(struct quads x, struct quads bits, int n, int mask) {
    for (int i = 0; i < 4 * ROWS; i++)
        x.b[i] |= (uint8_t)((n < 0 ? bits.b[i] >> -n : bits.b[i] << n) & mask);
    return x;
}
// acc + w(odd) x(odd), then + w(even) x(even); w: 2 bf16 of each row, x: a pair of bf16
static inline struct rows rows_dot_bf16(struct rows acc, struct quads w, uint32_t x) {
    float even = bits_float(x << 16), odd = bits_float(x & 0xffff0000u);
    for (int i = 0; i < ROWS; i++) {
        uint32_t u;
        memcpy(&u, w.b + 4 * i, sizeof u);
        acc.f[i] = fmaf(bits_float(u & 0xffff0000u), odd, acc.f[i]);
        acc.f[i] = fmaf(bits_float(u << 16), even, acc.f[i]);
    }
    return acc;
}
static inline struct dots dots_set1(int n) {
    struct dots r;
    for (int i = 0; i < ROWS; i++)
        r.i[i] = n;
    return r;
}
// acc + the sum of 4 unsigned bytes of each row, below 128, times 4 signed bytes x
static inline struct dots dots_add_u7(struct dots acc, struct quads w, uint32_t x) {
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < 4; j++)
            acc.i[i] += w.b[4 * i + j] * (int8_t)(x >> 8 * j);
    return acc;
}
// The same for signed bytes stored plus 128. With S8_PLUS_128 the stored bytes are summed, and the sum starts at
// minus128: what comes out is the same integer.
static inline struct dots dots_add_s8(struct dots acc, struct quads w, uint32_t x) {
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < 4; j++)
            acc.i[i] += (w.b[4 * i + j] - 128) * (int8_t)(x >> 8 * j);
    return acc;
}
