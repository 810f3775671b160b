// See quantized.h: which tensors belong to a matrix, and whether they fit. dequantize.c decodes them.
#include "quantized.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 32, MX_BYTES = 17, NV_BLOCK = 16, FP8_COLS = 128 }; // FP8_COLS: with one scale
#define NAME(s) (int)((s).len < 96 ? (s).len : 96), (s).data       // for %.*s

// ---- names

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
    static const char *const ends[] = {".weight_scale_inv",    ".weight_scale",        ".weight_scale_2",
                                       ".weight_global_scale", ".weight_zero_point",   ".weight_g_idx",
                                       ".weight_shape",        ".input_global_scale",  ".input_scale",
                                       ".input_zero_point",    ".activation_scale_inv"};
    static const char *const gptq[] = {".qzeros", ".scales", ".g_idx"};
    // of activations, and of keys and values in a cache of FP8
    static const char *const cached[] = {".k_scale",      ".v_scale",           ".kv_scale",
                                         ".q_scale",      ".k_zero_point",      ".v_zero_point",
                                         ".output_scale", ".output_zero_point", ".prob_output_scale"};
    struct text_view base = name;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++, base = name)
        if (take_end(&base, ends[i]))
            return find_part(shards, base, ".weight") || find_part(shards, base, ".weight_packed");
    for (size_t i = 0; i < sizeof gptq / sizeof *gptq; i++, base = name)
        if (take_end(&base, gptq[i]))
            return find_part(shards, base, ".qweight");
    for (size_t i = 0; i < sizeof cached / sizeof *cached; i++)
        if (take_end(&base, cached[i]))
            return true;
    return take_end(&base, "_scales") && find_part(shards, base, "_blocks");
}

struct text_view hf_quantized_stem(struct text_view name) {
    if (!take_end(&name, ".qweight"))
        take_end(&name, "_packed");
    return name;
}

// ---- one matrix

struct quant_maker {
    const struct hf_shards *shards;
    const struct hf_quantization *config;
    struct hf_keys *keys;
    const struct hf_source *const *sources;
    int num;
    struct hf_quant *q;
    struct text_view stem; // of the first
    const char *end;       // behind it
};

static struct hf_grid lines(int64_t rows, uint64_t bytes) {
    return (struct hf_grid){.rows = (uint64_t)rows, .unit = bytes};
}

static struct hf_grid across(int64_t num, int64_t rows, uint64_t bytes) {
    return (struct hf_grid){true, (uint64_t)rows, bytes, (uint64_t)num};
}

// The tensors of all sources that have `end` behind their stem. NULL: the first has none. false: another has none or one of
// another shape, or no memory.
static bool find_parts(struct quant_maker *m, const char *end, enum hf_part_kind kind) {
    if (!find_part(m->shards, m->stem, end))
        return true;
    const struct hf_source **parts = hf_alloc(m->keys, (size_t)m->num * sizeof *parts);
    for (int i = 0; parts && i < m->num; i++) {
        struct text_view stem = m->sources[i]->tensor->name;
        take_end(&stem, m->end);
        const struct st_tensor *first = i ? parts[0]->tensor : NULL, *s;
        if (!(parts[i] = find_part(m->shards, stem, end)))
            return false;
        s = parts[i]->tensor;
        if (first && (s->type != first->type || s->ndim != first->ndim ||
                      memcmp(s->shape, first->shape, sizeof s->shape) != 0))
            return false;
    }
    m->q->parts[kind] = parts;
    m->q->types[kind] = parts ? parts[0]->tensor->type : ST_TYPE_COUNT;
    return parts != NULL;
}

static const struct st_tensor *part_of(const struct quant_maker *m, enum hf_part_kind kind) {
    return m->q->parts[kind] ? m->q->parts[kind][0]->tensor : NULL;
}

static bool has_shape(const struct st_tensor *s, enum st_type type, int ndim, int64_t rows, int64_t cols) {
    return s && s->type == type && s->ndim == ndim && s->shape[0] == rows &&
           (ndim < 2 || s->shape[1] == cols);
}

static bool is_float(enum st_type type) { return type == ST_F32 || type == ST_BF16 || type == ST_F16; }

// Scales in lines of rows: how many there are in each direction. false: that fits no matrix of this shape.
static bool fit_scales(struct quant_maker *m, int64_t rows, int64_t cols) {
    struct hf_quant *q = m->q;
    const struct st_tensor *s = part_of(m, HF_SCALES);
    if (!s || s->ndim > 2 || !is_float(s->type))
        return false;
    int64_t down = s->ndim > 0 ? s->shape[0] : 1, num = s->ndim > 1 ? s->shape[1] : 1;
    if (down < 1 || num < 1)
        return false;
    int64_t block_rows = down == 1 ? rows : down == rows ? 1 : m->config->block_rows;
    q->num_scales = num;
    q->block_cols = num == 1 ? cols : cols % num == 0 && block_rows == 1 ? cols / num : m->config->block_cols;
    if (block_rows < 1 || q->block_cols < 1 || (rows - 1) / block_rows + 1 != down ||
        (cols - 1) / q->block_cols + 1 != num)
        return false;
    q->grids[HF_SCALES] = lines(block_rows, (uint64_t)num * st_type_bytes(s->type));
    return true;
}

// The type of s * (q - z): blocks where they hold it.
static enum dtype type_of_integers(const struct hf_quant *q, bool small, bool symmetric) {
    enum st_type scales = q->types[HF_SCALES];
    bool blocks =
        q->cols % BLOCK == 0 && q->block_cols % BLOCK == 0 && !q->parts[HF_ORDER] && scales != ST_F32;
    if (blocks && symmetric)
        return small ? DTYPE_Q4_0 : DTYPE_Q8_0;
    if (blocks && small)
        return DTYPE_Q8_0;
    return scales == ST_F16 ? DTYPE_F16 : DTYPE_BF16;
}

// FP8 and int8 as they are.
static bool make_bytes(struct quant_maker *m, const struct st_tensor *s) {
    struct hf_quant *q = m->q;
    int64_t rows = s->shape[0], cols = s->shape[1];
    q->scheme = s->type == ST_I8 ? HF_INT8 : HF_FP8;
    if (!find_parts(m, ".weight_scale_inv", HF_SCALES) ||
        (!q->parts[HF_SCALES] && !find_parts(m, ".weight_scale", HF_SCALES)) || !fit_scales(m, rows, cols) ||
        !find_parts(m, ".weight_zero_point", HF_ZEROS))
        return false;
    q->cols = cols;
    q->grid = lines(1, (uint64_t)cols);
    bool whole = cols % BLOCK == 0 && (q->block_cols == cols || q->block_cols % FP8_COLS == 0);
    q->dtype = q->scheme == HF_INT8 ? type_of_integers(q, false, !q->parts[HF_ZEROS])
               : whole              ? DTYPE_FP8
                                    : DTYPE_BF16;
    q->grids[HF_ZEROS] = lines((int64_t)q->grids[HF_SCALES].rows, (uint64_t)q->num_scales);
    const struct st_tensor *scales = part_of(m, HF_SCALES), *zeros = part_of(m, HF_ZEROS);
    return !zeros || (q->scheme == HF_INT8 && zeros->type == ST_I8 && zeros->ndim == scales->ndim &&
                      memcmp(zeros->shape, scales->shape, sizeof zeros->shape) == 0);
}

// Integers of compressed-tensors, in words of 32 bits.
static bool make_words(struct quant_maker *m, const struct st_tensor *s) {
    struct hf_quant *q = m->q;
    int64_t per = m->config->bits ? 32 / m->config->bits : 8, rows = s->shape[0], cols = per * s->shape[1];
    q->scheme = HF_WORDS;
    q->bits = (int)(32 / per);
    if (!find_parts(m, ".weight_scale", HF_SCALES) || !fit_scales(m, rows, cols) ||
        !find_parts(m, ".weight_zero_point", HF_ZEROS) || !find_parts(m, ".weight_g_idx", HF_ORDER))
        return false;
    q->cols = cols;
    q->grid = lines(1, (uint64_t)cols / (uint64_t)per * 4);
    q->grids[HF_ZEROS] = lines(per, (uint64_t)q->num_scales * 4);
    q->grids[HF_ORDER] = lines(rows, (uint64_t)cols * 4);
    q->dtype = type_of_integers(q, q->bits == 4, !q->parts[HF_ZEROS]);
    return (!q->parts[HF_ZEROS] ||
            has_shape(part_of(m, HF_ZEROS), ST_I32, 2, (rows - 1) / per + 1, q->num_scales)) &&
           (!q->parts[HF_ORDER] || has_shape(part_of(m, HF_ORDER), ST_I32, 1, cols, 0));
}

// GPTQ and AWQ: a line for columns, rows across.
static bool make_turned(struct quant_maker *m, const struct st_tensor *s) {
    struct hf_quant *q = m->q;
    bool gptq = m->config->method == HF_GPTQ;
    int64_t per = 32 / m->config->bits, cols = gptq ? per * s->shape[0] : s->shape[0],
            rows = gptq ? s->shape[1] : per * s->shape[1], group = m->config->group ? m->config->group : cols,
            groups = (cols - 1) / group + 1;
    q->scheme = gptq ? HF_WORDS_GPTQ : HF_WORDS_AWQ;
    q->bits = (int)m->config->bits;
    q->symmetric = m->config->symmetric;
    q->less_one = m->config->less_one;
    q->num_scales = groups;
    q->block_cols = group;
    q->cols = cols;
    if (!find_parts(m, ".scales", HF_SCALES) || !find_parts(m, ".qzeros", HF_ZEROS) ||
        !find_parts(m, ".g_idx", HF_ORDER))
        return false;
    const struct st_tensor *scales = part_of(m, HF_SCALES);
    if (!scales || !is_float(scales->type) || !has_shape(scales, scales->type, 2, groups, rows) ||
        !has_shape(part_of(m, HF_ZEROS), ST_I32, 2, groups, rows / per) || rows % per ||
        (part_of(m, HF_ORDER) && !has_shape(part_of(m, HF_ORDER), ST_I32, 1, cols, 0)))
        return false;
    q->grid = across(s->shape[0], gptq ? 1 : per, 4);
    q->grids[HF_SCALES] = across(groups, 1, st_type_bytes(scales->type));
    q->grids[HF_ZEROS] = across(groups, per, 4);
    q->grids[HF_ORDER] = lines(rows, (uint64_t)cols * 4);
    // An order that is said to be none is compared with that, as it is read.
    const struct hf_source **order = q->parts[HF_ORDER];
    if (!m->config->ordered)
        q->parts[HF_ORDER] = NULL;
    q->dtype = type_of_integers(q, q->bits == 4, q->symmetric);
    q->parts[HF_ORDER] = order;
    return true;
}

// E2M1, two to a byte: MXFP4, or NVFP4 with scales of E4M3 and one of all. gpt-oss has those of several matrices as one, in
// blocks: dimensions one more.
static bool make_fp4(struct quant_maker *m, const struct st_tensor *s) {
    struct hf_quant *q = m->q;
    bool blocks = s->ndim == 4, twice = false;
    int n = blocks ? 3 : 1; // dimensions before those of columns
    int64_t rows = 1, bytes = blocks ? s->shape[2] * s->shape[3] : s->shape[1];
    for (int i = 0; i < n - blocks; i++)
        rows *= s->shape[i]; // of a tensor that has as many elements: no overflow
    q->scheme = HF_FP4;
    q->cols = 2 * bytes;
    q->grid = lines(1, (uint64_t)bytes);
    if (!find_parts(m, blocks ? "_scales" : ".weight_scale", HF_SCALES) || !part_of(m, HF_SCALES))
        return false;
    const struct st_tensor *e = part_of(m, HF_SCALES);
    bool mx = e->type == ST_U8 || e->type == ST_F8_E8M0;
    q->dtype = mx ? DTYPE_MXFP4 : DTYPE_BF16;
    q->block_cols = mx ? BLOCK : NV_BLOCK;
    q->num_scales = q->cols / q->block_cols;
    q->grids[HF_SCALES] = lines(1, (uint64_t)q->num_scales);
    q->grids[HF_GLOBAL] = lines(rows, 4);
    if (blocks)
        return mx && s->shape[3] == BLOCK / 2 && e->ndim == 3 &&
               memcmp(e->shape, s->shape, 3 * sizeof *s->shape) == 0;
    if (q->cols % q->block_cols || !has_shape(e, mx ? e->type : ST_F8_E4M3, 2, rows, q->num_scales))
        return false;
    if (mx)
        return true;
    q->divides = find_part(m->shards, m->stem, ".weight_global_scale") != NULL;
    twice = q->divides && find_part(m->shards, m->stem, ".weight_scale_2");
    if (twice || !find_parts(m, q->divides ? ".weight_global_scale" : ".weight_scale_2", HF_GLOBAL))
        return false;
    const struct st_tensor *g = part_of(m, HF_GLOBAL);
    return g && g->type == ST_F32 && g->bytes == 4;
}

bool hf_quantized_make(const struct hf_shards *shards, const struct hf_config *c, struct hf_keys *keys,
                       const struct hf_source *const *sources, int num, struct st_tensor *s,
                       struct hf_quant *q, const struct model_file *f, struct err *err) {
    struct quant_maker m = {shards, &c->quantization, keys, sources, num, q, s->name, ".weight"};
    bool turned = take_end(&m.stem, ".qweight"), packed = !turned && take_end(&m.stem, ".weight_packed"),
         blocks = s->ndim == 4 && s->type == ST_U8 && take_end(&m.stem, "_blocks"), ok = false;
    m.end = turned ? ".qweight" : packed ? ".weight_packed" : blocks ? "_blocks" : ".weight";
    *q = (struct hf_quant){.scheme = HF_PLAIN};
    if (!turned && !packed && !blocks)
        take_end(&m.stem, ".weight");
    bool small = s->type == ST_F8_E4M3 || s->type == ST_I8 || s->type == ST_U8;
    if (!turned && !packed && !blocks && (s->ndim != 2 || !small))
        return true;
    if (turned && c->quantization.method == HF_NO_METHOD)
        return model_file_bad(f, err, "tensor %.*s: config.json has no quantization_config of gptq or awq",
                              NAME(s->name)),
               false;
    if (blocks)
        ok = make_fp4(&m, s);
    else if (s->ndim == 2 && s->type == ST_I32 && (turned || packed))
        ok = turned ? make_turned(&m, s) : make_words(&m, s);
    else if (s->ndim == 2 && !turned && s->type == ST_U8)
        ok = make_fp4(&m, s);
    else if (s->ndim == 2 && !turned && !packed)
        ok = make_bytes(&m, s);
    if (keys->failed)
        return err_set(err, STATUS_NOMEM, "%s: out of memory for tensors", f->name), false;
    if (!ok)
        return model_file_bad(
                   f, err,
                   "tensor %.*s of type %s: its scales, zero points or order of columns are missing or do "
                   "not fit its shape and the quantisation that config.json says",
                   NAME(s->name), st_type_name(s->type)),
               false;
    if (turned)
        s->shape[0] = q->scheme == HF_WORDS_GPTQ ? s->shape[1] : s->shape[1] * 32 / q->bits;
    if (blocks)
        s->shape[--s->ndim] = 0;
    s->shape[s->ndim - 1] = q->cols;
    q->out_row_bytes = dtype_row_bytes(q->dtype, q->cols);
    return true;
}

uint64_t hf_quantized_origin(const struct hf_quant *q, const struct hf_source *s, uint64_t row) {
    return s->address + row / q->grid.rows * q->grid.unit;
}
