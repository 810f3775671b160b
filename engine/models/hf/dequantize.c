// See quantized.h: what the bytes of quantised matrices mean. Facts: compressed-tensors 0.20 (pack_quantized, nvfp4, mxfp4),
// GPTQModel 7.7 (BaseQuantLinear.dequantize_weight), AutoAWQ 0.2.9 (packing_utils).
#include "quantized.h"

#include "half.h"

#include <stdlib.h>
#include <string.h>

enum { Q4_BYTES = 18, Q8_BYTES = 34, BLOCK = 32, MX_BYTES = 17, FP8_BYTES = 36 };

struct grid_band { // the part of a grid that has some rows
    unsigned char *bytes;
    uint64_t first, units, step; // step: bytes from an element of a row to the next; 0: they lie together
};

struct hf_band {
    const struct hf_quant *q;
    struct grid_band numbers, parts[HF_NUM_PARTS];
    float global;
    uint32_t *group;             // of each column
    float *row, *scales, *zeros; // of one row
};

static const char *read_grid(const struct hf_files *d, const struct hf_grid *g, const struct hf_source *s,
                             uint64_t first, uint64_t num, struct grid_band *b, uint64_t *stopped) {
    b->first = first / g->rows;
    b->units = (first + num - 1) / g->rows - b->first + 1;
    uint64_t bytes = b->units * g->unit, lines = g->across ? g->lines : 1;
    uint64_t stride = g->across ? s->tensor->bytes / g->lines : bytes;
    b->step = g->across ? bytes : 0;
    *stopped = s->address;
    if (!(b->bytes = malloc((size_t)(lines * bytes))))
        return "out of memory";
    return hf_files_read_lines(d, s->address + b->first * g->unit, stride, lines, bytes, b->bytes, stopped);
}

// Where the elements of a row begin.
static const unsigned char *row_bytes(const struct grid_band *b, const struct hf_grid *g, uint64_t row) {
    return b->bytes + (row / g->rows - b->first) * g->unit;
}

static uint32_t read_word(const unsigned char *p) {
    uint32_t w;
    memcpy(&w, p, 4);
    return w;
}

static float read_float(const unsigned char *p, enum st_type type) {
    uint16_t h;
    float f;
    if (type == ST_F8_E4M3)
        return e4m3_to_float(*p);
    if (type == ST_F32)
        return memcpy(&f, p, 4), f;
    memcpy(&h, p, 2);
    return type == ST_F16 ? half_to_float(h) : bf16_to_float(h);
}

static const char *read_groups(struct hf_band *b, const unsigned char *order) {
    const struct hf_quant *q = b->q;
    bool blocks = q->dtype == DTYPE_Q4_0 || q->dtype == DTYPE_Q8_0;
    for (int64_t i = 0; i < q->cols; i++) {
        uint32_t in_order = (uint32_t)(i / q->block_cols);
        b->group[i] = order ? read_word(order + 4 * i) : in_order;
        if (b->group[i] >= (uint64_t)q->num_scales)
            return "a column's g_idx is no group";
        if (blocks && b->group[i] != in_order)
            return "g_idx is not in order, and desc_act is not true";
    }
    return NULL;
}

static const char *read_parts(const struct hf_files *d, struct hf_band *b, int which, uint64_t first,
                              uint64_t num, uint64_t *stopped) {
    const struct hf_quant *q = b->q;
    const char *why = NULL;
    for (int i = 0; i < HF_NUM_PARTS && !why; i++)
        if (q->parts[i])
            why = read_grid(d, &q->grids[i], q->parts[i][which], first, num, &b->parts[i], stopped);
    if (!why && (why = read_groups(b, b->parts[HF_ORDER].bytes)))
        *stopped = q->parts[HF_ORDER] ? q->parts[HF_ORDER][which]->address : 0;
    if (!why && q->parts[HF_GLOBAL])
        b->global = read_float(b->parts[HF_GLOBAL].bytes, ST_F32);
    return why;
}

struct hf_band *hf_band_read(const struct hf_files *d, const struct hf_quant *q,
                             const struct hf_source *const *sources, int which, uint64_t first, uint64_t num,
                             const char **why, uint64_t *stopped) {
    struct hf_band *b = calloc(1, sizeof *b);
    *stopped = sources[which]->address;
    *why = "out of memory";
    if (!b)
        return NULL;
    b->q = q;
    b->row = malloc((size_t)(q->cols + 2 * q->num_scales) * sizeof *b->row);
    b->scales = b->row + q->cols;
    b->zeros = b->scales + q->num_scales;
    b->group = malloc((size_t)q->cols * sizeof *b->group);
    if (b->row && b->group)
        *why = read_grid(d, &q->grid, sources[which], first, num, &b->numbers, stopped);
    if (!*why)
        *why = read_parts(d, b, which, first, num, stopped);
    if (!*why)
        return b;
    hf_band_free(b);
    return NULL;
}

void hf_band_free(struct hf_band *b) {
    for (int i = 0; b && i < HF_NUM_PARTS; i++)
        free(b->parts[i].bytes);
    if (b) {
        free(b->numbers.bytes);
        free(b->row);
        free(b->group);
    }
    free(b);
}

// ---- a row

static const float fp4[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6, // E2M1
                              -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

// The bits of row `row` in a word that has eight: AWQ has the even ones first.
static unsigned awq_shift(uint64_t row) { return (unsigned)(4 * (row % 2 * 4 + row % 8 / 2)); }

static void read_numbers(struct hf_band *b, uint64_t row) {
    const struct hf_quant *q = b->q;
    const unsigned char *p = row_bytes(&b->numbers, &q->grid, row);
    const unsigned words = q->bits == 4 ? 3 : 2; // 2^words integers in each
    const uint64_t step = q->scheme == HF_WORDS ? 4 : b->numbers.step, last = (1u << words) - 1;
    const uint32_t mask = q->bits == 4 ? 15 : 255;
    for (uint64_t i = 0; i < (uint64_t)q->cols; i++)
        switch (q->scheme) {
        case HF_PLAIN: break;
        case HF_FP8: b->row[i] = e4m3_to_float(p[i]); break;
        case HF_INT8: b->row[i] = (float)(int8_t)p[i]; break;
        case HF_WORDS:
        case HF_WORDS_GPTQ:
            b->row[i] = (float)(read_word(p + (i >> words) * step) >> (i & last) * (uint64_t)q->bits & mask);
            break;
        case HF_WORDS_AWQ: b->row[i] = (float)(read_word(p + i * step) >> awq_shift(row) & mask); break;
        case HF_FP4: b->row[i] = fp4[p[i / 2] >> 4 * (i % 2) & 15]; break;
        }
}

// The zero point of group g of a row. NULL, or why it is none.
static const char *read_zero(const struct hf_band *b, uint64_t row, uint64_t g, float *zero) {
    const struct hf_quant *q = b->q;
    const struct grid_band *z = &b->parts[HF_ZEROS];
    bool words = q->scheme == HF_WORDS || q->scheme == HF_WORDS_GPTQ || q->scheme == HF_WORDS_AWQ;
    uint32_t middle = words ? 1u << (q->bits - 1) : 0, most = (1u << q->bits) - 1;
    *zero = (float)middle;
    if (!z->bytes)
        return NULL;
    const unsigned char *p = row_bytes(z, &q->grids[HF_ZEROS], row);
    if (q->scheme == HF_INT8)
        return *zero = (float)(int8_t)p[g], NULL;
    uint64_t per = 32 / (uint64_t)q->bits;
    unsigned shift = q->scheme == HF_WORDS_AWQ ? awq_shift(row) : (unsigned)(row % per) * (unsigned)q->bits;
    uint32_t v = read_word(p + g * (z->step ? z->step : 4)) >> shift & most;
    if (q->less_one && v == most)
        return "a zero point overflowed when it was stored, less one: programs differ in what it means";
    v += q->less_one;
    *zero = (float)v;
    return q->symmetric && v != middle ? "a zero point is not in the middle, and sym is true" : NULL;
}

static float scale_of(const struct hf_band *b, const unsigned char *p, uint64_t g) {
    const struct hf_quant *q = b->q;
    const struct grid_band *s = &b->parts[HF_SCALES];
    enum st_type type = q->types[HF_SCALES];
    float scale = read_float(p + g * (s->step ? s->step : st_type_bytes(type)), type);
    if (!q->parts[HF_GLOBAL])
        return scale;
    return q->divides ? scale / b->global : scale * b->global;
}

// Numbers less their zero points, and scales.
static const char *read_row(struct hf_band *b, uint64_t row) {
    const struct hf_quant *q = b->q;
    const unsigned char *scales = row_bytes(&b->parts[HF_SCALES], &q->grids[HF_SCALES], row);
    read_numbers(b, row);
    for (uint64_t g = 0; g < (uint64_t)q->num_scales; g++) {
        const char *why = read_zero(b, row, g, &b->zeros[g]);
        if (why)
            return why;
        b->scales[g] = scale_of(b, scales, g);
    }
    for (int64_t i = 0; i < q->cols; i++)
        b->row[i] -= b->zeros[b->group[i]];
    return NULL;
}

// Blocks of Q4_0 and Q8_0, of the values as they are.
static const char *write_blocks(const struct hf_band *b, unsigned char *out) {
    const struct hf_quant *q = b->q;
    bool four = q->dtype == DTYPE_Q4_0;
    for (int64_t at = 0; at < q->cols; at += BLOCK, out += four ? Q4_BYTES : Q8_BYTES) {
        float scale = b->scales[b->group[at]];
        uint16_t half = float_to_half(scale);
        if (half_to_float(half) != scale && scale == scale)
            return "a scale is no number of F16, in which blocks have theirs";
        memcpy(out, &half, 2);
        for (int i = 0; i < BLOCK / 2; i++) {
            int low = (int)b->row[at + i], high = (int)b->row[at + i + BLOCK / 2];
            if (four) {
                out[2 + i] = (unsigned char)((low + 8) | (high + 8) << 4);
                continue;
            }
            out[2 + i] = (unsigned char)low;
            out[2 + i + BLOCK / 2] = (unsigned char)high;
        }
    }
    return NULL;
}

static void write_floats(const struct hf_band *b, unsigned char *out) {
    const struct hf_quant *q = b->q;
    for (int64_t i = 0; i < q->cols; i++) {
        float v = b->row[i] * b->scales[b->group[i]];
        uint16_t h = q->dtype == DTYPE_F16 ? float_to_half(v) : float_to_bf16(v);
        memcpy(out + 2 * i, &h, 2);
    }
}

// MXFP4: elements 2i and 2i + 1 share a byte, ours i and i + 16. The exponent is the same.
static void write_mxfp4(const struct hf_band *b, uint64_t row, unsigned char *out) {
    const struct hf_quant *q = b->q;
    const unsigned char *raw = row_bytes(&b->numbers, &q->grid, row),
                        *scales = row_bytes(&b->parts[HF_SCALES], &q->grids[HF_SCALES], row);
    for (int64_t g = 0; g < q->num_scales; g++, raw += BLOCK / 2, out += MX_BYTES) {
        out[0] = scales[g];
        for (int i = 0; i < BLOCK / 2; i++) {
            int shift = 4 * (i % 2);
            out[1 + i] = (unsigned char)((raw[i / 2] >> shift & 15) | (raw[8 + i / 2] >> shift & 15) << 4);
        }
    }
}

// FP8: the bytes as they are, behind the scale of each block.
static void write_fp8(const struct hf_band *b, uint64_t row, unsigned char *out) {
    const struct hf_quant *q = b->q;
    const unsigned char *raw = row_bytes(&b->numbers, &q->grid, row),
                        *scales = row_bytes(&b->parts[HF_SCALES], &q->grids[HF_SCALES], row);
    for (int64_t at = 0; at < q->cols; at += BLOCK, raw += BLOCK, out += FP8_BYTES) {
        float scale = scale_of(b, scales, b->group[at]);
        memcpy(out, &scale, 4);
        memcpy(out + 4, raw, BLOCK);
    }
}

const char *hf_band_row(struct hf_band *b, uint64_t row, unsigned char *out) {
    const char *why = NULL;
    if (b->q->dtype == DTYPE_MXFP4)
        return write_mxfp4(b, row, out), NULL;
    if (b->q->dtype == DTYPE_FP8)
        return write_fp8(b, row, out), NULL;
    if ((why = read_row(b, row)))
        return why;
    if (b->q->dtype == DTYPE_Q4_0 || b->q->dtype == DTYPE_Q8_0)
        return write_blocks(b, out);
    write_floats(b, out);
    return NULL;
}
