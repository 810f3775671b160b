// See quants.h. The formats are ggml's; ref/ops.c says what one element is, this file takes whole blocks.
#include "quants.h"

#include "half.h"
#include "kernels.h"

#include <string.h>

// One block of one row: value = d * scale * (q - zero) - d_min * min, scale per `per_scale` elements, min per
// 32.
struct block {
    uint16_t d, d_min;
    int scale[16], min[8]; // 1 and 0 where the format has none
    int zero, per_scale;
    uint8_t q[256];
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
            b->q[i] = p[2 + i] ^ 0x80u;
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

size_t cpu_quant_bytes(enum dtype dtype) {
    switch (dtype) {
    case DTYPE_Q8_0: return sizeof(struct weight_q8);
    case DTYPE_Q4_0: return sizeof(struct weight_q4);
    case DTYPE_Q4_K: return sizeof(struct weight_q4k);
    case DTYPE_Q5_K: return sizeof(struct weight_q5k);
    case DTYPE_Q6_K: return sizeof(struct weight_q6k);
    default: return 0;
    }
}

// Lower four bits of 32 numbers of row r: k in 0..15 in the low halves of the bytes, 16..31 in the high ones.
static void put_nibbles(uint8_t dst[4][64], const uint8_t q[32], int r) {
    for (int k = 0; k < 16; k++)
        dst[k / 4][4 * r + k % 4] = (uint8_t)((q[k] & 15) | (q[16 + k] & 15) << 4);
}

static void put_row(void *dst, const struct block *b, enum dtype dtype, int r) {
    struct weight_q8 *q8 = dst;
    struct weight_q4 *q4 = dst;
    struct weight_q4k *q4k = dst;
    struct weight_q5k *q5k = dst;
    struct weight_q6k *q6k = dst;
    switch (dtype) {
    case DTYPE_Q8_0:
        q8->d[r] = b->d;
        for (int k = 0; k < 32; k++)
            q8->q[k / 4][4 * r + k % 4] = b->q[k];
        break;
    case DTYPE_Q4_0:
        q4->d[r] = b->d;
        put_nibbles(q4->q, b->q, r);
        break;
    case DTYPE_Q4_K:
    case DTYPE_Q5_K: // begins with a weight_q4k
        q4k->d[r] = b->d;
        q4k->minus_min[r] = b->d_min ^ 0x8000u;
        for (int s = 0; s < 8; s++) {
            q4k->scale[s][r] = (uint8_t)b->scale[s];
            q4k->min[s][r] = (uint8_t)b->min[s];
            put_nibbles(q4k->q[s], b->q + 32 * s, r);
            for (int k = 0; k < 32 && dtype == DTYPE_Q5_K; k++)
                q5k->high[s][4 * r + k % 4] |= (uint8_t)((b->q[32 * s + k] >> 4) << k / 4);
        }
        break;
    default: // Q6_K
        q6k->d[r] = b->d;
        for (int s = 0; s < 16; s++)
            q6k->scale[s][r] = (int8_t)b->scale[s];
        for (int s = 0; s < 8; s++) {
            put_nibbles(q6k->q[s], b->q + 32 * s, r);
            for (int k = 0; k < 32; k++)
                q6k->high[s][k / 16][4 * r + k % 4] |= (uint8_t)((b->q[32 * s + k] >> 4) << 2 * (k % 16 / 4));
        }
        break;
    }
}

void cpu_quant_pack(void *dst, const void *src, enum dtype dtype, int rows, int num_blocks, int row) {
    size_t bytes = cpu_quant_bytes(dtype), file_bytes = dtype_row_bytes(dtype, dtype_block(dtype));
    struct block b;
    memset(dst, 0, bytes * (size_t)num_blocks); // a scale of zero: whatever the numbers
    for (int r = 0; r < LANES && row + r < rows; r++)
        for (int i = 0; i < num_blocks; i++) {
            size_t at = (size_t)(row + r) * (size_t)num_blocks + (size_t)i;
            unpack(&b, (const uint8_t *)src + at * file_bytes, dtype);
            put_row((char *)dst + (size_t)i * bytes, &b, dtype, r);
        }
}

void cpu_dequantise(float *y, const void *src, enum dtype dtype, int n) {
    int block = dtype_block(dtype);
    const uint8_t *p = src;
    struct block b;
    for (int i = 0; i < n; i += block, p += dtype_row_bytes(dtype, block)) {
        unpack(&b, p, dtype);
        float d = half_to_float(b.d), d_min = half_to_float(b.d_min);
        for (int k = 0; k < block; k++) // every product is exact: 11 + 8 + 5 bits at most
            y[i + k] =
                d * (float)b.scale[k / b.per_scale] * (float)(b.q[k] - b.zero) - d_min * (float)b.min[k / 32];
    }
}
