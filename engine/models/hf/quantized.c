// See quantized.h.
#include "quantized.h"

#include "half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { Q4_ELEMENTS = 32, Q4_BYTES = 18, MX_ELEMENTS = 32, MX_BYTES = 17 };
#define NAME(s) (int)((s).len < 96 ? (s).len : 96), (s).data // for %.*s

static bool take_end(struct text_view *s, const char *end) {
    size_t n = strlen(end);
    if (s->len < n || memcmp(s->data + s->len - n, end, n) != 0)
        return false;
    s->len -= n;
    return true;
}

// The source called `base` with `end` behind it. NULL: there is none.
static const struct hf_source *find_part(const struct hf_shards *shards, struct text_view base,
                                         const char *end) {
    char name[512];
    int n = snprintf(name, sizeof name, "%.*s%s", (int)(base.len < 400 ? base.len : 400), base.data, end);
    return hf_shards_find(shards, (struct text_view){name, (size_t)n});
}

bool hf_quantized_is_part(const struct hf_shards *shards, struct text_view name) {
    static const char *const ends[] = {"weight_scale_inv", "weight_scale", "weight_shape", "input_scale"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (take_end(&name, ends[i]))
            return find_part(shards, name, "weight") || find_part(shards, name, "weight_packed");
    return take_end(&name, "_scales") && find_part(shards, name, "_blocks");
}

// How many scales there are in each direction; false: that fits no matrix of this shape.
static bool read_blocks(const struct st_tensor *s, int64_t rows, int64_t cols, const struct hf_config *c,
                        struct hf_quant *q) {
    int64_t down = s->ndim > 0 ? s->shape[0] : 1, across = s->ndim > 1 ? s->shape[1] : 1;
    if (s->ndim > 2 || (s->type != ST_F32 && s->type != ST_BF16 && s->type != ST_F16))
        return false;
    q->scale_cols = across;
    q->block_rows = down == 1 ? rows : down == rows ? 1 : c->block_rows;
    q->block_cols = across == 1                                ? cols
                    : cols % across == 0 && q->block_rows == 1 ? cols / across
                                                               : c->block_cols;
    return q->block_rows > 0 && q->block_cols > 0 && (rows + q->block_rows - 1) / q->block_rows == down &&
           (cols + q->block_cols - 1) / q->block_cols == across;
}

// MXFP4: blocks (…, rows, blocks of a row, 16) with scales of the same shape but for the last.
static bool make_mx(const struct hf_shards *shards, struct hf_keys *keys, const struct hf_source *source,
                    struct hf_quant *q, const struct model_file *f, struct err *err) {
    const struct st_tensor *s = source->tensor, *e;
    struct text_view base = s->name;
    take_end(&base, "_blocks");
    int n = s->ndim - 1;
    q->scales = hf_alloc(keys, sizeof *q->scales);
    if (!q->scales)
        return err_set(err, STATUS_NOMEM, "%s: out of memory for tensors", f->name), false;
    q->scales[0] = find_part(shards, base, "_scales");
    e = q->scales[0] ? q->scales[0]->tensor : NULL;
    if (!e || e->type != ST_U8 || e->ndim != n || memcmp(e->shape, s->shape, (size_t)n * sizeof *s->shape) ||
        s->shape[n] != MX_ELEMENTS / 2)
        return model_file_bad(f, err, "tensor %.*s: expected blocks of 16 bytes, and _scales that fit them",
                              NAME(s->name)),
               false;
    q->scheme = HF_MXFP4;
    q->dtype = DTYPE_MXFP4;
    q->scale_cols = s->shape[n - 1];
    q->block_rows = 1;
    q->cols = q->scale_cols * MX_ELEMENTS;
    q->row_bytes = (uint64_t)q->scale_cols * MX_ELEMENTS / 2;
    q->out_row_bytes = (uint64_t)q->scale_cols * MX_BYTES;
    return true;
}

bool hf_quantized_make(const struct hf_shards *shards, const struct hf_config *c, struct hf_keys *keys,
                       const struct hf_source *const *sources, int num, struct hf_quant *q,
                       const struct model_file *f, struct err *err) {
    const struct st_tensor *s = sources[0]->tensor;
    struct text_view base = s->name;
    bool packed = take_end(&base, "_packed") && s->type == ST_I32 && s->ndim == 2;
    *q = (struct hf_quant){.scheme = HF_PLAIN};
    if (s->type == ST_U8 && s->ndim == 4)
        return make_mx(shards, keys, sources[0], q, f, err);
    if (!packed && !(s->ndim == 2 && (s->type == ST_F8_E4M3 || s->type == ST_I8)))
        return true;
    int64_t cols = packed ? 8 * s->shape[1] : s->shape[1];
    q->scales = hf_alloc(keys, (size_t)num * sizeof *q->scales);
    if (!q->scales)
        return err_set(err, STATUS_NOMEM, "%s: out of memory for tensors", f->name), false;
    for (int i = 0; i < num; i++) {
        struct text_view name = sources[i]->tensor->name;
        take_end(&name, "_packed");
        q->scales[i] = find_part(shards, name, "_scale_inv");
        if (!q->scales[i])
            q->scales[i] = find_part(shards, name, "_scale");
        if (!q->scales[i] || !read_blocks(q->scales[i]->tensor, s->shape[0], cols, c, q) ||
            find_part(shards, name, "_zero_point") || find_part(shards, name, "_g_idx"))
            return model_file_bad(
                       f, err,
                       "tensor %.*s of type %s: expected scales (_scale or _scale_inv) that fit it, no "
                       "zero points and no order of columns",
                       NAME(name), st_type_name(s->type)),
                   false;
    }
    if (packed && (cols % Q4_ELEMENTS || q->block_cols % Q4_ELEMENTS || q->block_rows != 1))
        return model_file_bad(f, err,
                              "tensor %.*s has rows of %lld in groups of %lld, expected multiples of %d",
                              NAME(s->name), (long long)cols, (long long)q->block_cols, Q4_ELEMENTS),
               false;
    q->scheme = packed ? HF_INT4 : HF_SCALED;
    q->dtype = packed ? DTYPE_Q4_0 : DTYPE_BF16;
    q->cols = cols;
    q->row_bytes = s->bytes / (uint64_t)s->shape[0];
    q->out_row_bytes = dtype_row_bytes(q->dtype, cols);
    return true;
}

static float read_scale(const unsigned char *p, enum st_type type, uint64_t i) {
    uint16_t h;
    float f;
    if (type == ST_F32) {
        memcpy(&f, p + 4 * i, 4);
        return f;
    }
    memcpy(&h, p + 2 * i, 2);
    return type == ST_F16 ? half_to_float(h) : bf16_to_float(h);
}

// A row of int4: eight to a word, the first in its lowest bits, each 8 more than it means.
static const char *make_int4(const struct hf_quant *p, const unsigned char *raw, const unsigned char *scales,
                             enum st_type type, unsigned char *out) {
    uint64_t blocks = p->out_row_bytes / Q4_BYTES, span = (uint64_t)p->block_cols / Q4_ELEMENTS;
    for (uint64_t b = 0; b < blocks; b++, out += Q4_BYTES) {
        float scale = read_scale(scales, type, b / span);
        uint16_t half = float_to_half(scale);
        if (half_to_float(half) != scale)
            return "a scale is no number of F16, in which the blocks of Q4_0 have theirs";
        memcpy(out, &half, 2);
        for (uint64_t i = 0; i < Q4_ELEMENTS / 2; i++) {
            uint64_t low = b * Q4_ELEMENTS + i, high = low + Q4_ELEMENTS / 2;
            out[2 + i] = (unsigned char)((raw[low / 2] >> 4 * (low % 2) & 15) |
                                         (raw[high / 2] >> 4 * (high % 2) & 15) << 4);
        }
    }
    return NULL;
}

static void make_scaled(const struct hf_quant *p, const unsigned char *raw, const unsigned char *scales,
                        enum st_type type, enum st_type scale_type, unsigned char *out) {
    for (uint64_t i = 0; i < p->out_row_bytes / 2; i++) {
        float q = type == ST_I8 ? (float)(int8_t)raw[i] : e4m3_to_float(raw[i]);
        uint16_t h = float_to_bf16(q * read_scale(scales, scale_type, i / (uint64_t)p->block_cols));
        memcpy(out + 2 * i, &h, 2);
    }
}

// A row of MXFP4: elements 2i and 2i + 1 share a byte, ours i and i + 16. The exponent is the same.
static void make_mxfp4(const struct hf_quant *p, const unsigned char *raw, const unsigned char *scales,
                       unsigned char *out) {
    for (int64_t b = 0; b < p->scale_cols; b++, raw += MX_ELEMENTS / 2, out += MX_BYTES) {
        out[0] = scales[b];
        for (int i = 0; i < MX_ELEMENTS / 2; i++) {
            int shift = 4 * (i % 2);
            out[1 + i] = (unsigned char)((raw[i / 2] >> shift & 15) | (raw[8 + i / 2] >> shift & 15) << 4);
        }
    }
}

const char *hf_quantized_row(const struct hf_files *d, const struct hf_quant *q, const struct hf_source *s,
                             const struct hf_source *scale, uint64_t row, uint64_t skip, uint64_t bytes,
                             char *dst, uint64_t *stopped) {
    enum st_type type = scale->tensor->type;
    uint64_t scale_bytes = (uint64_t)q->scale_cols * st_type_bytes(type);
    uint64_t scales_at = scale->address + row / (uint64_t)q->block_rows * scale_bytes;
    unsigned char *raw = malloc((size_t)(q->row_bytes + scale_bytes + q->out_row_bytes));
    unsigned char *scales = raw + q->row_bytes, *out = scales + scale_bytes;
    *stopped = s->address + row * q->row_bytes;
    const char *why = raw ? hf_files_read(d, *stopped, q->row_bytes, raw, stopped) : "out of memory";
    if (!why)
        why = hf_files_read(d, scales_at, scale_bytes, scales, stopped);
    if (!why && q->scheme == HF_MXFP4)
        make_mxfp4(q, raw, scales, out);
    if (!why && q->scheme == HF_SCALED)
        make_scaled(q, raw, scales, s->tensor->type, type, out);
    if (!why && q->scheme == HF_INT4 && (why = make_int4(q, raw, scales, type, out)))
        *stopped = scales_at;
    if (!why)
        memcpy(dst, out + skip, bytes);
    free(raw);
    return why;
}
