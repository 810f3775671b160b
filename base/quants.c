// Blocks to numbers. kernels/ref/ops.c says on its own what one element is; this file takes whole blocks.
#include "quants.h"

#include "half.h"

#include <string.h>

// One block: value k = d * scale[k / per_scale] * (q[k] - zero) - d_min * min[k / 32].
struct block {
    uint16_t d, d_min;     // f16
    int scale[16], min[8]; // scale 1 and min 0 where the format has none
    int zero, per_scale;   // per_scale: 16 or 32
    uint8_t q[256];        // (dtype_block)
};

// 12 bytes: 8 scales and 8 minima of 6 bits. Bytes 0..3 and 4..7 hold the first four of each, and in their
// upper two bits those of the last four; bytes 8..11 the lower four bits of these.
static void unpack_scales(struct block *b, const uint8_t *p) {
    for (int i = 0; i < 4; i++) {
        b->scale[i] = p[i] & 63;
        b->min[i] = p[4 + i] & 63;
        b->scale[4 + i] = (p[8 + i] & 15) + (p[i] >> 6) * 16;
        b->min[4 + i] = (p[8 + i] >> 4) + (p[4 + i] >> 6) * 16;
    }
}

static void unpack(struct block *b, const uint8_t *p, enum dtype dtype) {
    memset(b, 0, sizeof *b);
    b->scale[0] = 1;
    b->per_scale = 32;
    memcpy(&b->d, p, 2);
    switch (dtype) {
    case DTYPE_Q8_0: // stored plus 128
        b->zero = 128;
        for (int i = 0; i < 32; i++)
            b->q[i] = (uint8_t)(p[2 + i] ^ 0x80u);
        break;
    case DTYPE_Q4_0:
        b->zero = 8;
        for (int i = 0; i < 16; i++) {
            b->q[i] = p[2 + i] & 15;
            b->q[16 + i] = p[2 + i] >> 4;
        }
        break;
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
        memcpy(&b->d_min, p + 2, 2);
        unpack_scales(b, p + 4);
        for (int group = 0; group < 4; group++)
            for (int i = 0; i < 32; i++) {
                uint8_t byte = p[(dtype == DTYPE_Q4_K ? 16 : 48) + group * 32 + i];
                uint8_t high = (uint8_t)(dtype == DTYPE_Q4_K ? 0 : p[16 + i] >> 2 * group & 3);
                b->q[group * 64 + i] = (uint8_t)((byte & 15) | (high & 1) << 4);
                b->q[group * 64 + 32 + i] = (uint8_t)(byte >> 4 | (high >> 1) << 4);
            }
        break;
    case DTYPE_Q6_K:
        b->zero = 32;
        b->per_scale = 16;
        memcpy(&b->d, p + 208, 2);
        for (int i = 0; i < 16; i++)
            b->scale[i] = (int8_t)p[192 + i];
        for (int half = 0; half < 2; half++)
            for (int i = 0; i < 32; i++) {
                const uint8_t *low = p + half * 64 + i;
                uint8_t high = p[128 + half * 32 + i], *q = b->q + half * 128 + i;
                q[0] = (uint8_t)((low[0] & 15) | (high & 3) << 4);
                q[32] = (uint8_t)((low[32] & 15) | (high >> 2 & 3) << 4);
                q[64] = (uint8_t)(low[0] >> 4 | (high >> 4 & 3) << 4);
                q[96] = (uint8_t)(low[32] >> 4 | (high >> 6) << 4);
            }
        break;
    default: break;
    }
}

void quants_decode(float *y, const void *src, enum dtype dtype, int64_t n) {
    int block = dtype_block(dtype);
    const uint8_t *p = src;
    struct block b;
    for (int64_t i = 0; i < n; i += block, p += dtype_row_bytes(dtype, block)) {
        unpack(&b, p, dtype);
        float d = half_to_float(b.d), d_min = half_to_float(b.d_min);
        for (int k = 0; k < block; k++) // every product is exact: 11 + 8 + 5 bits at most
            y[i + k] =
                d * (float)b.scale[k / b.per_scale] * (float)(b.q[k] - b.zero) - d_min * (float)b.min[k / 32];
    }
}
