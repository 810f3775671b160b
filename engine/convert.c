#include "convert.h"

#include <string.h>

bool dtype_is_float(enum dtype t) { return t == DTYPE_F32 || t == DTYPE_F16 || t == DTYPE_BF16; }

static float from_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t to_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

// Exact. A subnormal is its 10 bits times 2^-24.
static float from_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;
    if (exponent == 0)
        return (float)fraction * from_bits(103u << 23) * (sign ? -1.0f : 1.0f);
    return from_bits(sign | (exponent == 31 ? 255u : exponent + 112) << 23 | fraction << 13);
}

// Below 2^-14 results are subnormal: adding 0.5 puts the rounding where the last bit of f16 is (2^-24).
static uint16_t to_f16(float f) {
    uint32_t bits = to_bits(f), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 0x47800000) // 65536
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) // 2^-14
        return (uint16_t)(sign | (to_bits(from_bits(magnitude) + 0.5f) - to_bits(0.5f)));
    uint32_t even = magnitude >> 13 & 1;
    return (uint16_t)(sign | (magnitude - 0x38000000 + 0xfff + even) >> 13);
}

static uint16_t to_bf16(float f) {
    uint32_t bits = to_bits(f);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float read_float(const void *src, enum dtype t, uint64_t i) {
    switch (t) {
    case DTYPE_F16: return from_f16(((const uint16_t *)src)[i]);
    case DTYPE_BF16: return from_bits((uint32_t)((const uint16_t *)src)[i] << 16);
    default: return ((const float *)src)[i];
    }
}

uint64_t convert_floats(void *dst, enum dtype to, const void *src, enum dtype from, uint64_t n) {
    uint64_t bad = n;
    for (uint64_t i = 0; i < n; i++) {
        float f = read_float(src, from, i);
        bool finite = (to_bits(f) & 0x7f800000) != 0x7f800000, kept = true;
        if (to == DTYPE_F32) {
            ((float *)dst)[i] = f;
        } else if (to == DTYPE_F16) {
            uint16_t h = to_f16(f);
            ((uint16_t *)dst)[i] = h;
            kept = (h & 0x7c00) != 0x7c00;
        } else {
            uint16_t h = to_bf16(f);
            ((uint16_t *)dst)[i] = h;
            kept = (h & 0x7f80) != 0x7f80;
        }
        if (finite && !kept && bad == n)
            bad = i;
    }
    return bad;
}
