// See pack.h. The formats are ggml's; ref/ref_ops.c says what one element of a file is. Here blocks are taken
// apart an int8 quad at a time, as 32-bit words: in a panel, too, weights 4j .. 4j+3 of a row are one
// word, too.
#include "pack.h"

#include "half.h"
#include "kernels.h"
#include "log.h"
#include "quants.h"

#include <string.h>

static uint32_t load32(const void *p) {
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

static void store32(void *p, uint32_t word) { memcpy(p, &word, sizeof word); }

// The low and the high nibbles of four bytes
static uint32_t low4(uint32_t word) { return word & 0x0f0f0f0fu; }
static uint32_t high4(uint32_t word) { return word >> 4 & 0x0f0f0f0fu; }

enum dtype pack_dtype(enum dtype dtype) { return dtype == DTYPE_FP8 ? DTYPE_BF16 : dtype; }

size_t pack_block_bytes(enum dtype dtype) {
    switch (pack_dtype(dtype)) {
    case DTYPE_F32:
    case DTYPE_BF16: return LANES * 4;
    case DTYPE_F16: return LANES * 2;
#define X(type, packed)                                                                                      \
    case DTYPE_##type: return sizeof(packed);
        QUANTISED_MAP(X)
#undef X
    default: CHECK(!"a type that is not computed with"); return 0;
    }
}

// ---- one block of one row; r is its lane

static void pack_q8(struct weight_q8 *w, const uint8_t *p, int r) {
    memcpy(&w->d[r], p, 2);
    for (int j = 0; j < 8; j++)
        store32(&w->q[j][4 * r], load32(p + 2 + 4 * j) ^ 0x80808080u);
}

static void pack_nibbles(uint8_t (*q)[64], const uint8_t *p, int r) { // they are where they were
    for (int j = 0; j < 4; j++)
        store32(&q[j][4 * r], load32(p + 4 * j));
}

static void pack_q4(struct weight_q4 *w, const uint8_t *p, int r) {
    memcpy(&w->d[r], p, 2);
    pack_nibbles(w->q, p + 2, r);
}

static void pack_q41(struct weight_q41 *w, const uint8_t *p, const uint8_t *nibbles, int r) {
    memcpy(&w->d[r], p, 2);
    memcpy(&w->min[r], p + 2, 2);
    pack_nibbles(w->q, nibbles, r);
}

static void pack_mxfp4(struct weight_mxfp4 *w, const uint8_t *p, int r) {
    w->e[r] = p[0];
    pack_nibbles(w->q, p + 1, r);
}

// Packs 32 bits, of which bit k is the fifth bit of weight k. A multiplication spreads four of them over four bytes.
static void pack_fifth_bits(uint8_t *high, const uint8_t *p, int r) {
    uint32_t all = load32(p), bits = 0;
    for (int j = 0; j < 8; j++)
        bits |= ((all >> 4 * j & 15) * 0x00204081u & 0x01010101u) << j;
    store32(high + 4 * r, bits);
}

// Bit s of each of 32 bytes
static void pack_bit_plane(uint8_t *high, const uint8_t *p, int s, int r) {
    uint32_t bits = 0;
    for (int j = 0; j < 8; j++)
        bits |= (load32(p + 4 * j) >> s & 0x01010101u) << j;
    store32(high + 4 * r, bits);
}

// Two bits of each weight of the s-th of 8 times 32: of 32 bytes for every four of them.
static void pack_two_bit_planes(uint8_t (*q)[64], const uint8_t *p, int s, int r) {
    int shift = s % 4 * 2;
    for (int half = 0; half < 2; half++) {
        uint32_t bits = 0;
        for (int j = 0; j < 4; j++)
            bits |= (load32(p + s / 4 * 32 + 16 * half + 4 * j) >> shift & 0x03030303u) << 2 * j;
        store32(&q[half][4 * r], bits);
    }
}

// Q4_K and Q5_K blocks: f16 d, f16 minimum, scales, [fifth bits], then 4 times 32 bytes whose low nibbles are
// one 32 and whose high nibbles are the next.
static void pack_q4k(struct weight_q4k *w, const uint8_t *p, const uint8_t *nibbles, int r) {
    memcpy(&w->d[r], p, 2);
    memcpy(&w->minus_min[r], p + 2, 2);
    w->minus_min[r] ^= 0x8000u;
    for (int s = 0; s < 8; s++) {
        w->scale[s][r] = (uint8_t)quants_q4k_scale(p + 4, s);
        w->min[s][r] = (uint8_t)quants_q4k_min(p + 4, s);
    }
    for (int s = 0; s < 8; s += 2)
        for (int j = 0; j < 4; j++) {
            uint32_t first = load32(nibbles + 16 * s + 4 * j), second = load32(nibbles + 16 * s + 16 + 4 * j);
            store32(&w->q[s][j][4 * r], low4(first) | low4(second) << 4);
            store32(&w->q[s + 1][j][4 * r], high4(first) | high4(second) << 4);
        }
}

static void pack_q5k(struct weight_q5k *w, const uint8_t *p, int r) {
    pack_q4k(&w->low, p, p + 48, r);
    for (int s = 0; s < 8; s++)
        pack_bit_plane(w->high[s], p + 16, s, r);
}

// 128 bytes of nibbles, 64 of upper two bits, 16 signed scales, f16 d. Each half of 128 weights has its
// nibbles in two runs of 32 bytes, whose low and high nibbles are 64 weights apart, and one run for the upper
// bits of four weights.
static void pack_q6k(struct weight_q6k *w, const uint8_t *p, int r) {
    memcpy(&w->d[r], p + 208, 2);
    for (int s = 0; s < 16; s++)
        w->scale[s][r] = (int8_t)p[192 + s];
    for (int s = 0; s < 8; s++) {
        const uint8_t *low = p + s / 4 * 64 + s % 2 * 32;
        for (int j = 0; j < 4; j++) {
            uint32_t first = load32(low + 4 * j), second = load32(low + 16 + 4 * j);
            store32(&w->q[s][j][4 * r],
                    s % 4 < 2 ? low4(first) | low4(second) << 4 : high4(first) | high4(second) << 4);
        }
        pack_two_bit_planes(w->high[s], p + 128, s, r);
    }
}

// 32 bytes of third bits, 64 of lower two bits, 12 of scales plus 32, f16 d
static void pack_q3k(struct weight_q3k *w, const uint8_t *p, int r) {
    memcpy(&w->d[r], p + 108, 2);
    for (int i = 0; i < 16; i++)
        w->scale[i][r] = (int8_t)quants_q3k_scale(p + 96, i);
    for (int s = 0; s < 8; s++) {
        pack_two_bit_planes(w->q[s], p + 32, s, r);
        pack_bit_plane(w->high[s], p, s, r);
    }
}

// 16 bytes of scales and minima, 64 of weights, f16 d, f16 minimum
static void pack_q2k(struct weight_q2k *w, const uint8_t *p, int r) {
    memcpy(&w->d[r], p + 80, 2);
    memcpy(&w->minus_min[r], p + 82, 2);
    w->minus_min[r] = (uint16_t)(w->minus_min[r] ^ 0x8000u);
    for (int i = 0; i < 16; i++)
        w->scale[i][r] = p[i];
    for (int s = 0; s < 8; s++)
        pack_two_bit_planes(w->q[s], p + 16, s, r);
}

// f16 d, 16 bits and 4 bytes of scales plus 32, then 8 blocks as of IQ4_NL
static void pack_iq4xs(struct weight_iq4xs *w, const uint8_t *p, int r) {
    memcpy(&w->d[r], p, 2);
    for (int s = 0; s < 8; s++) {
        w->scale[s][r] = (int8_t)quants_iq4xs_scale(p + 2, s);
        pack_nibbles(w->q[s], p + 8 + 16 * s, r);
    }
}

// ---- panels

// Columns [0, cols) of up to 16 rows of 32-bit or 16-bit elements, 16 columns at a time so that lines stay in
// the cache.
static void pack_words(char *dst, const char *src, size_t row_bytes, size_t size, int rows, int cols) {
    for (int k0 = 0; k0 < cols; k0 += 16)
        for (int r = 0; r < rows; r++)
            for (int k = k0; k < k0 + 16 && k < cols; k++)
                memcpy(dst + ((size_t)k * LANES + (size_t)r) * size,
                       src + (size_t)r * row_bytes + (size_t)k * size, size);
}

static void pack_one_block(void *dst, const uint8_t *p, enum dtype dtype, int r) {
    struct weight_q5 *q5 = dst;
    struct weight_q51 *q51 = dst;
    switch (dtype) {
    case DTYPE_Q8_0: pack_q8(dst, p, r); break;
    case DTYPE_Q5_0:
        memcpy(&q5->low.d[r], p, 2);
        pack_nibbles(q5->low.q, p + 6, r);
        pack_fifth_bits(q5->high, p + 2, r);
        break;
    case DTYPE_Q4_1: pack_q41(dst, p, p + 4, r); break;
    case DTYPE_Q5_1:
        pack_q41(&q51->low, p, p + 8, r);
        pack_fifth_bits(q51->high, p + 4, r);
        break;
    case DTYPE_MXFP4: pack_mxfp4(dst, p, r); break;
    case DTYPE_Q4_K: pack_q4k(dst, p, p + 16, r); break;
    case DTYPE_Q5_K: pack_q5k(dst, p, r); break;
    case DTYPE_Q6_K: pack_q6k(dst, p, r); break;
    case DTYPE_Q3_K: pack_q3k(dst, p, r); break;
    case DTYPE_Q2_K: pack_q2k(dst, p, r); break;
    case DTYPE_IQ4_XS: pack_iq4xs(dst, p, r); break;
    default: pack_q4(dst, p, r); break; // Q4_0, IQ4_NL
    }
}

void pack_panel(void *dst, const void *src, enum dtype dtype, int rows, int cols, int row) {
    size_t row_bytes = dtype_row_bytes(dtype, cols), bytes = pack_block_bytes(dtype);
    int left = rows - row < LANES ? rows - row : LANES,
        blocks = (cols + dtype_sum_block(dtype) - 1) / dtype_sum_block(dtype);
    const char *first = (const char *)src + (size_t)row * row_bytes;
    if (left < LANES || cols % dtype_sum_block(dtype))
        memset(dst, 0, bytes * (size_t)blocks);
    if (dtype == DTYPE_FP8) {
        for (int r = 0; r < left; r++)
            for (int k = 0; k < cols; k++) {
                uint16_t h = quants_fp8(first + (size_t)r * row_bytes, k);
                memcpy((char *)dst + ((size_t)(k / 2) * LANES + (size_t)r) * 4 + (size_t)(k % 2) * 2, &h, 2);
            }
    } else if (dtype == DTYPE_F32 || dtype == DTYPE_F16) {
        pack_words(dst, first, row_bytes, dtype == DTYPE_F32 ? 4 : 2, left, cols);
    } else if (dtype == DTYPE_BF16) {
        pack_words(dst, first, row_bytes, 4, left, cols / 2); // pairs
        for (int r = 0; r < left && cols % 2; r++)
            memcpy((char *)dst + ((size_t)(cols / 2) * LANES + (size_t)r) * 4,
                   first + (size_t)r * row_bytes + row_bytes - 2, 2);
    } else {
        size_t file_bytes = dtype_row_bytes(dtype, dtype_block(dtype));
        for (int b = 0; b < blocks; b++)
            for (int r = 0; r < left; r++)
                pack_one_block((char *)dst + (size_t)b * bytes,
                               (const uint8_t *)first + (size_t)r * row_bytes + (size_t)b * file_bytes, dtype,
                               r);
    }
}

// ---- and back

// Weight k of 32 in planes of nibbles, of two bits, of single bits
static int nibble(const uint8_t (*q)[64], int k, int lane) {
    int byte = q[k % 16 / 4][4 * lane + k % 4];
    return k < 16 ? byte & 15 : byte >> 4;
}

static int two_bits(const uint8_t (*q)[64], int k, int lane) {
    return q[k / 16][4 * lane + k % 4] >> k % 16 / 4 * 2 & 3;
}

static int one_bit(const uint8_t *high, int k, int lane) { return high[4 * lane + k % 4] >> k / 4 & 1; }

// Weights [0, 32) of part s of a block: scale * q + offset. Products are exact: 11, 8 and 6 bits at
// most.
static void read_32(float *y, const void *block, enum dtype dtype, int s, int lane) {
    const struct weight_q8 *q8 = block;
    const struct weight_q4 *q4 = block;
    const struct weight_q5 *q5 = block;
    const struct weight_q51 *q51 = block; // and Q4_1
    const struct weight_mxfp4 *mxfp4 = block;
    const struct weight_q5k *q5k = block; // and Q4_K
    const struct weight_q6k *q6k = block;
    const struct weight_q3k *q3k = block;
    const struct weight_q2k *q2k = block;
    const struct weight_iq4xs *iq4xs = block;
    for (int k = 0; k < 32; k++) {
        int per_16 = 2 * s + k / 16, q, scale = 1, min = 0;
        uint16_t d, offset = 0; // f16
        switch (dtype) {
        case DTYPE_Q8_0:
            d = q8->d[lane];
            q = q8->q[k / 4][4 * lane + k % 4] - 128;
            break;
        case DTYPE_Q5_0:
            d = q5->low.d[lane];
            q = (nibble(q5->low.q, k, lane) | one_bit(q5->high, k, lane) << 4) - 16;
            break;
        case DTYPE_Q4_1:
        case DTYPE_Q5_1:
            d = q51->low.d[lane];
            offset = q51->low.min[lane];
            min = 1;
            q = nibble(q51->low.q, k, lane);
            if (dtype == DTYPE_Q5_1)
                q |= one_bit(q51->high, k, lane) << 4;
            break;
        case DTYPE_IQ4_NL:
            d = q4->d[lane];
            q = quants_iq4[nibble(q4->q, k, lane)];
            break;
        case DTYPE_MXFP4:
            y[k] = e8m0_to_half_float(mxfp4->e[lane]) * (float)quants_mxfp4[nibble(mxfp4->q, k, lane)];
            continue;
        case DTYPE_Q4_K:
        case DTYPE_Q5_K:
            d = q5k->low.d[lane];
            offset = q5k->low.minus_min[lane];
            scale = q5k->low.scale[s][lane];
            min = q5k->low.min[s][lane];
            q = nibble(q5k->low.q[s], k, lane);
            if (dtype == DTYPE_Q5_K)
                q |= one_bit(q5k->high[s], k, lane) << 4;
            break;
        case DTYPE_Q6_K:
            d = q6k->d[lane];
            scale = q6k->scale[per_16][lane];
            q = (nibble(q6k->q[s], k, lane) | two_bits(q6k->high[s], k, lane) << 4) - 32;
            break;
        case DTYPE_Q3_K:
            d = q3k->d[lane];
            scale = q3k->scale[per_16][lane];
            q = (two_bits(q3k->q[s], k, lane) | one_bit(q3k->high[s], k, lane) << 2) - 4;
            break;
        case DTYPE_Q2_K:
            d = q2k->d[lane];
            offset = q2k->minus_min[lane];
            scale = q2k->scale[per_16][lane] & 15;
            min = q2k->scale[per_16][lane] >> 4;
            q = two_bits(q2k->q[s], k, lane);
            break;
        case DTYPE_IQ4_XS:
            d = iq4xs->d[lane];
            scale = iq4xs->scale[s][lane];
            q = quants_iq4[nibble(iq4xs->q[s], k, lane)];
            break;
        default: // Q4_0
            d = q4->d[lane];
            q = nibble(q4->q, k, lane) - 8;
            break;
        }
        y[k] = half_to_float(d) * (float)scale * (float)q;
        if (quants_has_minimum(dtype))
            y[k] += half_to_float(offset) * (float)min;
    }
}

void pack_read_row(float *y, const void *panel, enum dtype dtype, int cols, int lane) {
    const char *p = panel;
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
