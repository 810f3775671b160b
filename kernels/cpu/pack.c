// See pack.h. The formats are ggml's; ref/ops.c says what one element of a file is. Here blocks are taken
// apart four numbers at a time, as 32-bit words: in a strip the four numbers 4j .. 4j+3 of a row are one
// word, too.
#include "pack.h"

#include "half.h"
#include "kernels.h"
#include "log.h"

#include <string.h>

static uint32_t load32(const void *p) {
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

static void store32(void *p, uint32_t word) { memcpy(p, &word, sizeof word); }

// The lower and the upper halves of four bytes
static uint32_t low4(uint32_t word) { return word & 0x0f0f0f0fu; }
static uint32_t high4(uint32_t word) { return word >> 4 & 0x0f0f0f0fu; }

int pack_block(enum dtype dtype) { return dtype == DTYPE_BF16 ? 2 : dtype_block(dtype); }

size_t pack_block_bytes(enum dtype dtype) {
    switch (dtype) {
    case DTYPE_F32:
    case DTYPE_BF16: return LANES * 4;
    case DTYPE_F16: return LANES * 2;
    case DTYPE_Q8_0: return sizeof(struct weight_q8);
    case DTYPE_Q4_0: return sizeof(struct weight_q4);
    case DTYPE_Q4_K: return sizeof(struct weight_q4k);
    case DTYPE_Q5_K: return sizeof(struct weight_q5k);
    case DTYPE_Q6_K: return sizeof(struct weight_q6k);
    default: CHECK(!"a type that is not computed with"); return 0;
    }
}

// ---- one block of one row; r is its lane

static void put_q8(struct weight_q8 *w, const uint8_t *p, int r) {
    memcpy(&w->d[r], p, 2);
    for (int j = 0; j < 8; j++)
        store32(&w->q[j][4 * r], load32(p + 2 + 4 * j) ^ 0x80808080u);
}

static void put_q4(struct weight_q4 *w, const uint8_t *p, int r) { // halves are where they were
    memcpy(&w->d[r], p, 2);
    for (int j = 0; j < 4; j++)
        store32(&w->q[j][4 * r], load32(p + 2 + 4 * j));
}

// 12 bytes: 8 scales and 8 minima of 6 bits. Bytes 0..3 and 4..7 hold the first four of each, and in their
// upper two bits those of the last four; bytes 8..11 the lower four bits of these.
static void put_scales(struct weight_q4k *w, const uint8_t *p, int r) {
    for (int i = 0; i < 4; i++) {
        w->scale[i][r] = p[i] & 63;
        w->min[i][r] = p[4 + i] & 63;
        w->scale[4 + i][r] = (uint8_t)((p[8 + i] & 15) | p[i] >> 6 << 4);
        w->min[4 + i][r] = (uint8_t)(p[8 + i] >> 4 | p[4 + i] >> 6 << 4);
    }
}

// Of both K formats: f16 d, f16 minimum, scales, [fifth bits], then 4 times 32 bytes whose lower halves are
// one 32 and whose upper halves are the next.
static void put_q4k(struct weight_q4k *w, const uint8_t *p, const uint8_t *nibbles, int r) {
    memcpy(&w->d[r], p, 2);
    memcpy(&w->minus_min[r], p + 2, 2);
    w->minus_min[r] ^= 0x8000u;
    put_scales(w, p + 4, r);
    for (int s = 0; s < 8; s += 2)
        for (int j = 0; j < 4; j++) {
            uint32_t first = load32(nibbles + 16 * s + 4 * j), second = load32(nibbles + 16 * s + 16 + 4 * j);
            store32(&w->q[s][j][4 * r], low4(first) | low4(second) << 4);
            store32(&w->q[s + 1][j][4 * r], high4(first) | high4(second) << 4);
        }
}

static void put_q5k(struct weight_q5k *w, const uint8_t *p, int r) {
    put_q4k(&w->low, p, p + 48, r);
    for (int s = 0; s < 8; s++) { // bit s of byte i is the fifth of number i of these 32
        uint32_t bits = 0;
        for (int j = 0; j < 8; j++)
            bits |= (load32(p + 16 + 4 * j) >> s & 0x01010101u) << j;
        store32(&w->high[s][4 * r], bits);
    }
}

// 128 bytes of lower halves, 64 of upper two bits, 16 signed scales, f16 d. Each half of 128 numbers has its
// bytes in two runs of 32 for the lower halves, whose own halves are 64 numbers apart, and one for the upper
// bits of four numbers.
static void put_q6k(struct weight_q6k *w, const uint8_t *p, int r) {
    memcpy(&w->d[r], p + 208, 2);
    for (int s = 0; s < 16; s++)
        w->scale[s][r] = (int8_t)p[192 + s];
    for (int s = 0; s < 8; s++) {
        const uint8_t *low = p + s / 4 * 64 + s % 2 * 32, *high = p + 128 + s / 4 * 32;
        int shift = s % 4 * 2;
        for (int j = 0; j < 4; j++) {
            uint32_t first = load32(low + 4 * j), second = load32(low + 16 + 4 * j);
            store32(&w->q[s][j][4 * r],
                    s % 4 < 2 ? low4(first) | low4(second) << 4 : high4(first) | high4(second) << 4);
        }
        for (int half = 0; half < 2; half++) {
            uint32_t bits = 0;
            for (int j = 0; j < 4; j++)
                bits |= (load32(high + 16 * half + 4 * j) >> shift & 0x03030303u) << 2 * j;
            store32(&w->high[s][half][4 * r], bits);
        }
    }
}

// ---- strips

// Columns [0, cols) of up to 16 rows of 32-bit or 16-bit numbers, 16 columns at a time so that lines stay in
// the cache.
static void put_words(char *dst, const char *src, size_t row_bytes, size_t size, int rows, int cols) {
    for (int k0 = 0; k0 < cols; k0 += 16)
        for (int r = 0; r < rows; r++)
            for (int k = k0; k < k0 + 16 && k < cols; k++)
                memcpy(dst + ((size_t)k * LANES + (size_t)r) * size,
                       src + (size_t)r * row_bytes + (size_t)k * size, size);
}

static void put_block(void *dst, const uint8_t *p, enum dtype dtype, int r) {
    switch (dtype) {
    case DTYPE_Q8_0: put_q8(dst, p, r); break;
    case DTYPE_Q4_0: put_q4(dst, p, r); break;
    case DTYPE_Q4_K: put_q4k(dst, p, p + 16, r); break;
    case DTYPE_Q5_K: put_q5k(dst, p, r); break;
    default: put_q6k(dst, p, r); break;
    }
}

void pack_strip(void *dst, const void *src, enum dtype dtype, int rows, int cols, int row) {
    size_t row_bytes = dtype_row_bytes(dtype, cols), bytes = pack_block_bytes(dtype);
    int left = rows - row < LANES ? rows - row : LANES,
        blocks = (cols + pack_block(dtype) - 1) / pack_block(dtype);
    const char *first = (const char *)src + (size_t)row * row_bytes;
    if (left < LANES || cols % pack_block(dtype))
        memset(dst, 0, bytes * (size_t)blocks);
    if (dtype == DTYPE_F32 || dtype == DTYPE_F16) {
        put_words(dst, first, row_bytes, dtype == DTYPE_F32 ? 4 : 2, left, cols);
    } else if (dtype == DTYPE_BF16) {
        put_words(dst, first, row_bytes, 4, left, cols / 2); // pairs
        for (int r = 0; r < left && cols % 2; r++)
            memcpy((char *)dst + ((size_t)(cols / 2) * LANES + (size_t)r) * 4,
                   first + (size_t)r * row_bytes + row_bytes - 2, 2);
    } else {
        size_t file_bytes = dtype_row_bytes(dtype, dtype_block(dtype));
        for (int b = 0; b < blocks; b++)
            for (int r = 0; r < left; r++)
                put_block((char *)dst + (size_t)b * bytes,
                          (const uint8_t *)first + (size_t)r * row_bytes + (size_t)b * file_bytes, dtype, r);
    }
}

// ---- and back

// Number k of 32 in planes of halves
static int nibble(const uint8_t (*q)[64], int k, int lane) {
    int byte = q[k % 16 / 4][4 * lane + k % 4];
    return k < 16 ? byte & 15 : byte >> 4;
}

// Numbers [0, 32) of part s of a block. Products are exact: 11, 8 and 6 bits at most.
static void read_32(float *y, const void *block, enum dtype dtype, int s, int lane) {
    const struct weight_q8 *q8 = block;
    const struct weight_q4 *q4 = block;
    const struct weight_q4k *q4k = block;
    const struct weight_q5k *q5k = block;
    const struct weight_q6k *q6k = block;
    for (int k = 0; k < 32; k++)
        switch (dtype) {
        case DTYPE_Q8_0:
            y[k] = half_to_float(q8->d[lane]) * (float)(q8->q[k / 4][4 * lane + k % 4] - 128);
            break;
        case DTYPE_Q4_0: y[k] = half_to_float(q4->d[lane]) * (float)(nibble(q4->q, k, lane) - 8); break;
        case DTYPE_Q6_K: {
            int q = nibble(q6k->q[s], k, lane) |
                    (q6k->high[s][k / 16][4 * lane + k % 4] >> k % 16 / 4 * 2 & 3) << 4;
            y[k] = half_to_float(q6k->d[lane]) * (float)q6k->scale[2 * s + k / 16][lane] * (float)(q - 32);
            break;
        }
        default: {
            int q = nibble(q4k->q[s], k, lane);
            if (dtype == DTYPE_Q5_K)
                q |= (q5k->high[s][4 * lane + k % 4] >> k / 4 & 1) << 4;
            y[k] = half_to_float(q4k->d[lane]) * (float)q4k->scale[s][lane] * (float)q +
                   half_to_float(q4k->minus_min[lane]) * (float)q4k->min[s][lane];
            break;
        }
        }
}

void pack_read_row(float *y, const void *strip, enum dtype dtype, int cols, int lane) {
    const char *p = strip;
    uint16_t h;
    if (DTYPES_QUANTISED & 1u << dtype) {
        int per = dtype_block(dtype) / 32;
        for (int i = 0; i < cols / 32; i++)
            read_32(y + 32 * i, p + (size_t)(i / per) * pack_block_bytes(dtype), dtype, i % per, lane);
        return;
    }
    for (int k = 0; k < cols; k++)
        switch (dtype) {
        case DTYPE_F16:
            memcpy(&h, p + ((size_t)k * LANES + (size_t)lane) * 2, sizeof h);
            y[k] = half_to_float(h);
            break;
        case DTYPE_BF16:
            memcpy(&h, p + ((size_t)(k / 2) * LANES + (size_t)lane) * 4 + (size_t)(k % 2) * 2, sizeof h);
            y[k] = bf16_to_float(h);
            break;
        default: memcpy(&y[k], p + ((size_t)k * LANES + (size_t)lane) * 4, 4); break;
        }
}
