// Decodes blocks to values. kernels/ref/ref_ops.c says on its own what one element is; this file takes whole blocks.
#include "quants.h"

#include "half.h"

#include <string.h>

const int8_t quants_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
const int8_t quants_mxfp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// One block: value k = d * scale[k / per_scale] * q[k] - d_min * min[k / per_scale].
struct block {
    float d, d_min;
    int scale[16], min[16]; // scale 1 and min 0 where the format has none
    int per_scale;          // 16 or 32
    int8_t q[256];          // (dtype_block)
};

static float load_half(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return half_to_float(h);
}

// 16 bytes: values 0..15 in the low nibbles, 16..31 in the high ones.
static void unpack_nibbles(int8_t *q, const uint8_t *p) {
    for (int i = 0; i < 16; i++) {
        q[i] = (int8_t)(p[i] & 15);
        q[16 + i] = (int8_t)(p[i] >> 4);
    }
}

// Bit i of 4 bytes is the fifth of number i.
static void unpack_fifths(int8_t *q, const uint8_t *p) {
    for (int i = 0; i < 32; i++)
        q[i] = (int8_t)(q[i] | (p[i / 8] >> i % 8 & 1) << 4);
}

// Two bits a value: byte 32 a + i holds values 128 a + i, + 32, + 64 and + 96.
static void unpack_twos(int8_t *q, const uint8_t *p) {
    for (int i = 0; i < 256; i++)
        q[i] = (int8_t)(p[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3);
}

static void unpack(struct block *b, const uint8_t *p, enum dtype dtype) {
    const int8_t *table = NULL;
    int zero = 0, n = dtype_block(dtype);
    memset(b, 0, sizeof *b);
    b->scale[0] = 1;
    b->per_scale = 32;
    b->d = load_half(p);
    switch (dtype) {
    case DTYPE_Q8_0: memcpy(b->q, p + 2, 32); break;
    case DTYPE_Q4_0:
        zero = 8;
        unpack_nibbles(b->q, p + 2);
        break;
    case DTYPE_Q5_0:
        zero = 16;
        unpack_nibbles(b->q, p + 6);
        unpack_fifths(b->q, p + 2);
        break;
    case DTYPE_Q4_1:
    case DTYPE_Q5_1:
        b->d_min = -load_half(p + 2);
        b->min[0] = 1;
        unpack_nibbles(b->q, p + (dtype == DTYPE_Q4_1 ? 4 : 8));
        if (dtype == DTYPE_Q5_1)
            unpack_fifths(b->q, p + 4);
        break;
    case DTYPE_IQ4_NL:
        table = quants_iq4;
        unpack_nibbles(b->q, p + 2);
        break;
    case DTYPE_MXFP4:
        table = quants_mxfp4;
        b->d = e8m0_to_half_float(p[0]);
        unpack_nibbles(b->q, p + 1);
        break;
    case DTYPE_Q2_K:
        b->per_scale = 16;
        b->d = load_half(p + 80);
        b->d_min = load_half(p + 82);
        for (int i = 0; i < 16; i++) {
            b->scale[i] = p[i] & 15;
            b->min[i] = p[i] >> 4;
        }
        unpack_twos(b->q, p + 16);
        break;
    case DTYPE_Q3_K:
        zero = 4;
        b->per_scale = 16;
        b->d = load_half(p + 108);
        for (int i = 0; i < 16; i++)
            b->scale[i] = quants_q3k_scale(p + 96, i);
        unpack_twos(b->q, p + 32);
        for (int i = 0; i < 256; i++)
            b->q[i] = (int8_t)(b->q[i] | (p[i % 32] >> i / 32 & 1) << 2);
        break;
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
        b->d_min = load_half(p + 2);
        for (int i = 0; i < 8; i++) {
            b->scale[i] = quants_q4k_scale(p + 4, i);
            b->min[i] = quants_q4k_min(p + 4, i);
        }
        for (int group = 0; group < 4; group++)
            for (int i = 0; i < 32; i++) {
                uint8_t byte = p[(dtype == DTYPE_Q4_K ? 16 : 48) + group * 32 + i];
                uint8_t high = (uint8_t)(dtype == DTYPE_Q4_K ? 0 : p[16 + i] >> 2 * group & 3);
                b->q[group * 64 + i] = (int8_t)((byte & 15) | (high & 1) << 4);
                b->q[group * 64 + 32 + i] = (int8_t)(byte >> 4 | (high >> 1) << 4);
            }
        break;
    case DTYPE_Q6_K:
        zero = 32;
        b->per_scale = 16;
        b->d = load_half(p + 208);
        for (int i = 0; i < 16; i++) {
            int8_t scale = (int8_t)p[192 + i];
            b->scale[i] = (int)scale;
        }
        for (int half = 0; half < 2; half++)
            for (int i = 0; i < 32; i++) {
                const uint8_t *low = p + half * 64 + i;
                uint8_t high = p[128 + half * 32 + i];
                int8_t *q = b->q + half * 128 + i;
                q[0] = (int8_t)((low[0] & 15) | (high & 3) << 4);
                q[32] = (int8_t)((low[32] & 15) | (high >> 2 & 3) << 4);
                q[64] = (int8_t)(low[0] >> 4 | (high >> 4 & 3) << 4);
                q[96] = (int8_t)(low[32] >> 4 | (high >> 6) << 4);
            }
        break;
    case DTYPE_IQ4_XS:
        table = quants_iq4;
        for (int i = 0; i < 8; i++) {
            b->scale[i] = quants_iq4xs_scale(p + 2, i);
            unpack_nibbles(b->q + 32 * i, p + 8 + 16 * i);
        }
        break;
    default: break;
    }
    for (int k = 0; k < n; k++)
        b->q[k] = table ? table[b->q[k]] : (int8_t)(b->q[k] - zero);
}

uint16_t quants_fp8(const void *row, int64_t k) {
    const uint8_t *block = (const uint8_t *)row + dtype_row_bytes(DTYPE_FP8, k);
    float scale;
    memcpy(&scale, block, sizeof scale);
    return float_to_bf16(e4m3_to_float(block[sizeof scale + (size_t)(k % 32)]) * scale);
}

void quants_decode(float *y, const void *src, enum dtype dtype, int64_t n) {
    int block = dtype_block(dtype);
    const uint8_t *p = src;
    struct block b;
    for (int64_t i = 0; dtype == DTYPE_FP8 && i < n; i++)
        y[i] = bf16_to_float(quants_fp8(src, i));
    if (dtype == DTYPE_FP8)
        return;
    for (int64_t i = 0; i < n; i += block, p += dtype_row_bytes(dtype, block)) {
        unpack(&b, p, dtype);
        for (int k = 0; k < block; k++) { // every product is exact: 11 + 8 + 5 bits at most
            int s = k / b.per_scale;
            y[i + k] = b.d * (float)b.scale[s] * (float)b.q[k] - b.d_min * (float)b.min[s];
        }
    }
}
