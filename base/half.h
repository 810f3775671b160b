// 16-bit floats in plain integer arithmetic: exact, the same on every machine, whatever the rounding or flush
// mode of the thread. Rounding is to nearest, ties to even, as the conversion instructions of x86 and ARM do.
#pragma once

#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float bits_float(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline float half_to_float(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exp = (h >> 10) & 31u, man = h & 0x3ffu;
    if (exp == 31)
        return bits_float(sign | 0x7f800000u | man << 13 | (man ? 0x400000u : 0));
    if (exp != 0)
        return bits_float(sign | (exp + 112) << 23 | man << 13);
    if (man == 0)
        return bits_float(sign);
    uint32_t e = 113; // a subnormal half is a normal float
    while (!(man & 0x400u)) {
        man <<= 1;
        e--;
    }
    return bits_float(sign | e << 23 | (man & 0x3ffu) << 13);
}

static inline uint16_t float_to_half(float f) {
    uint32_t u = float_bits(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (a >> 13 & 0x3ffu));
    if (a >= 0x47800000u) // 65536
        return (uint16_t)(sign | 0x7c00u);
    if (a >= 0x38800000u) { // a normal half; a carry out of the mantissa is what it should be
        uint32_t r = a - 0x38000000u;
        return (uint16_t)(sign | (r + 0xfffu + (r >> 13 & 1u)) >> 13);
    }
    uint32_t e = a >> 23;
    if (e < 102) // below half of the smallest subnormal
        return (uint16_t)sign;
    uint32_t shift = 126 - e, man = (a & 0x7fffffu) | 0x800000u;
    return (uint16_t)(sign | (man + (1u << (shift - 1)) - 1 + (man >> shift & 1u)) >> shift);
}

static inline float bf16_to_float(uint16_t h) { return bits_float((uint32_t)h << 16); }

static inline uint16_t float_to_bf16(float f) {
    uint32_t u = float_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40u); // stays NaN
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

// E4M3 of the OCP 8-bit floating point specification: largest 448, no infinity, NaN is 0x7f or 0xff. Larger
// values become the largest.
static inline float e4m3_to_float(uint8_t h) {
    uint32_t sign = (uint32_t)(h & 0x80u) << 24, exp = (h >> 3) & 15u, man = h & 7u;
    if ((h & 0x7fu) == 0x7fu)
        return bits_float(sign | 0x7fc00000u);
    if (exp != 0)
        return bits_float(sign | (exp + 120) << 23 | man << 20);
    float subnormal = (float)man * 0x1p-9f;
    return sign ? -subnormal : subnormal;
}

static inline uint8_t float_to_e4m3(float f) {
    uint32_t u = float_bits(f), sign = u >> 24 & 0x80u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return (uint8_t)(sign | 0x7fu);
    if (a >= 0x43e80000u) // 464, from where nearest even would be 480
        return (uint8_t)(sign | 0x7eu);
    if (a >= 0x3c800000u) { // 2^-6: a normal number; a carry out of the mantissa is what it should be
        uint32_t r = a - 0x3c000000u;
        return (uint8_t)(sign | (r + 0x7ffffu + (r >> 20 & 1u)) >> 20);
    }
    uint32_t e = a >> 23;
    if (e < 117) // below 2^-10, half of the smallest subnormal
        return (uint8_t)sign;
    uint32_t shift = 141 - e, man = (a & 0x7fffffu) | 0x800000u;
    return (uint8_t)(sign | (man + (1u << (shift - 1)) - 1 + (man >> shift & 1u)) >> shift);
}

// The scale of an MXFP4 block as ggml reads its byte: 2^(e - 128), half of what the byte alone says, because
// the values beside it are doubled to be whole. For e of 0 and 1 a subnormal number.
static inline float e8m0_to_half_float(uint8_t e) {
    return bits_float(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}
