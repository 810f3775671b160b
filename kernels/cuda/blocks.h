// The blocks of GGUF files and of FP8, element by element, for host (packing) and device (rows of an embedding table).
// Layouts: ggml-common.h and dequantize_row_* of ggml, https://github.com/ggml-org/ggml.
#pragma once

#include "tensor.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define QUANT_FN static __host__ __device__ inline
#else
#define QUANT_FN static inline
#endif

// One element as integers: value = d * scale * q - dmin * min, where d and dmin are f16 bits. Q4_1 and Q5_1: a min of 1 and
// the negative of the file's for dmin. MXFP4, IQ4: q is the nibble, of
// which quant_e2m1() or quant_iq4() makes a number; of MXFP4 scale is the exponent of f32 with which that is multiplied, or 0: zero. FP8: q
// is the byte of E4M3, scale the bits of an f32.
struct quant {
    int q, scale, min;
    uint16_t d, dmin;
};

QUANT_FN uint16_t quant_u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

// Twice what four bits stand for: sign, two of exponent, one of mantissa.
QUANT_FN int quant_e2m1(int q) {
    int m = q & 7, twice = m < 2 ? m : (2 + m % 2) << (m / 2 - 1);
    return q & 8 ? -twice : twice;
}

// 6-bit scale and minimum j (0..8) out of the 12 bytes of Q4_K and Q5_K.
QUANT_FN void quant_k4(const uint8_t *s, int j, int *scale, int *min) {
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        *min = (s[j + 4] >> 4) | (s[j] >> 6) << 4;
    }
}

// The value of a nibble of IQ4_NL and IQ4_XS, from a table of bytes.
QUANT_FN int quant_iq4(int q) {
    return (int8_t)((q < 8 ? 0xf6eaddcfbfad9881u : 0x7159453526190d01u) >> (q % 8 * 8));
}

// 6-bit scale j (0..16) out of the 12 bytes of Q3_K.
QUANT_FN int quant_k3(const uint8_t *s, int j) {
    return ((s[j % 8] >> (j / 8 * 4) & 15) | (s[8 + j % 4] >> (j / 4 * 2) & 3) << 4) - 32;
}

// Bytes of a row of n elements of a quantised type, 0 for others.
QUANT_FN size_t quant_row_bytes(enum dtype t, int n) {
    switch (t) {
    case DTYPE_Q8_0: return (size_t)(n / 32) * 34;
    case DTYPE_Q4_0:
    case DTYPE_IQ4_NL: return (size_t)(n / 32) * 18;
    case DTYPE_Q4_1: return (size_t)(n / 32) * 20;
    case DTYPE_Q5_0: return (size_t)(n / 32) * 22;
    case DTYPE_Q5_1: return (size_t)(n / 32) * 24;
    case DTYPE_Q2_K: return (size_t)(n / 256) * 84;
    case DTYPE_Q3_K: return (size_t)(n / 256) * 110;
    case DTYPE_IQ4_XS: return (size_t)(n / 256) * 136;
    case DTYPE_Q4_K: return (size_t)(n / 256) * 144;
    case DTYPE_Q5_K: return (size_t)(n / 256) * 176;
    case DTYPE_Q6_K: return (size_t)(n / 256) * 210;
    case DTYPE_MXFP4: return (size_t)(n / 32) * 17;
    case DTYPE_FP8: return (size_t)(n / 32) * 36;
    default: return 0;
    }
}

// Element k of a row.
QUANT_FN struct quant quant_element(enum dtype t, const uint8_t *row, int k) {
    struct quant e = {0, 1, 0, 0, 0};
    const uint8_t *b;
    int i;
    switch (t) {
    case DTYPE_Q8_0:
        b = row + (long long)(k / 32) * 34;
        e.d = quant_u16(b);
        e.q = (int8_t)b[2 + k % 32];
        break;
    case DTYPE_Q4_0:
        b = row + (long long)(k / 32) * 18;
        e.d = quant_u16(b);
        e.q = ((k % 32 < 16 ? b[2 + k % 16] : b[2 + k % 16] >> 4) & 15) - 8;
        break;
    case DTYPE_IQ4_NL:
        b = row + (long long)(k / 32) * 18;
        e.d = quant_u16(b);
        e.q = b[2 + k % 16] >> (k % 32 / 16 * 4) & 15;
        break;
    case DTYPE_Q5_0:
        b = row + (long long)(k / 32) * 22;
        e.d = quant_u16(b);
        e.q = ((b[6 + k % 16] >> (k % 32 / 16 * 4) & 15) | (b[2 + k % 32 / 8] >> (k % 8) & 1) << 4) - 16;
        break;
    case DTYPE_Q4_1:
    case DTYPE_Q5_1:
        b = row + (long long)(k / 32) * (t == DTYPE_Q4_1 ? 20 : 24);
        e.d = quant_u16(b);
        e.dmin = quant_u16(b + 2) ^ 0x8000;
        e.min = 1;
        e.q = b[(t == DTYPE_Q4_1 ? 4 : 8) + k % 16] >> (k % 32 / 16 * 4) & 15;
        if (t == DTYPE_Q5_1)
            e.q |= (b[4 + k % 32 / 8] >> (k % 8) & 1) << 4;
        break;
    case DTYPE_Q2_K:
        b = row + (long long)(k / 256) * 84;
        i = k % 256;
        e.d = quant_u16(b + 80);
        e.dmin = quant_u16(b + 82);
        e.scale = b[i / 16] & 15;
        e.min = b[i / 16] >> 4;
        e.q = b[16 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
        break;
    case DTYPE_Q3_K:
        b = row + (long long)(k / 256) * 110;
        i = k % 256;
        e.d = quant_u16(b + 108);
        e.scale = quant_k3(b + 96, i / 16);
        e.q = ((b[32 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) | (b[i % 32] >> (i / 32) & 1) << 2) -
              4;
        break;
    case DTYPE_IQ4_XS:
        b = row + (long long)(k / 256) * 136;
        i = k % 256 / 32; // which 32
        e.d = quant_u16(b);
        e.scale = ((b[4 + i / 2] >> (i % 2 * 4) & 15) | (b[2 + i / 4] >> (i % 4 * 2) & 3) << 4) - 32;
        e.q = b[8 + i * 16 + k % 16] >> (k % 32 / 16 * 4) & 15;
        break;
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
        b = row + (long long)(k / 256) * (t == DTYPE_Q4_K ? 144 : 176);
        i = k % 256;
        e.d = quant_u16(b);
        e.dmin = quant_u16(b + 2);
        quant_k4(b + 4, i / 32, &e.scale, &e.min);
        e.q = b[(t == DTYPE_Q4_K ? 16 : 48) + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
        if (t == DTYPE_Q5_K)
            e.q |= (b[16 + i % 32] >> (i / 32) & 1) << 4;
        break;
    case DTYPE_Q6_K:
        b = row + (long long)(k / 256) * 210;
        i = k % 256;
        e.d = quant_u16(b + 208);
        e.scale = (int8_t)b[192 + i / 16];
        e.q = (b[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15) |
              (b[128 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) << 4;
        e.q -= 32;
        break;
    case DTYPE_MXFP4: // 2^(e - 128); subnormals are zero
        b = row + (long long)(k / 32) * 17;
        e.scale = b[0] > 0 ? b[0] - 1 : 0;
        e.q = b[1 + k % 16] >> (k % 32 / 16 * 4) & 15;
        break;
    case DTYPE_FP8:
        b = row + (long long)(k / 32) * 36;
        e.scale = (int)(quant_u16(b) | (uint32_t)quant_u16(b + 2) << 16);
        e.q = b[4 + k % 32];
        break;
    default: break;
    }
    return e;
}
