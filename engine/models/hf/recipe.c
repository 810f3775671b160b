// See recipe.h.
#include "recipe.h"

#include "half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WHOLE = 1 << 20 }; // bytes of a tensor that is read whole to change the order of its rows

// Blocks of head_dim rows: of q and k, or of a group of both and v.
int64_t hf_recipe_rows(const struct hf_config *c, enum hf_rows rows, int64_t rows_in) {
    switch (rows) {
    case ROWS_GROUPED_Q: return c->heads * c->head_dim;
    case ROWS_GROUPED_K:
    case ROWS_GROUPED_V: return c->kv_heads * c->head_dim;
    case ROWS_EVEN:
    case ROWS_ODD:
    case ROWS_FIRST_HALF:
    case ROWS_SECOND_HALF: return rows_in / 2;
    case ROWS_MIXED_QKV: return 2 * c->state_groups * c->state_rows + c->state_heads * c->state_columns;
    case ROWS_MIXED_GATES: return c->state_heads * c->state_columns;
    case ROWS_POSITIONS: return rows_in - c->skipped_positions;
    default: return rows_in;
    }
}

// The place of an element of the values of recurrent layers, heads of `size`, in the folder.
static uint64_t value_place(const struct hf_config *c, uint64_t i, uint64_t size) {
    uint64_t groups = (uint64_t)c->state_groups, each = (uint64_t)c->state_heads / groups, head = i / size;
    return (head % groups * each + head / groups) * size + i % size;
}

// The row of a file whose groups have queries, keys, values and gates, each beside the others: of one of the four parts.
static uint64_t part_row(const struct hf_config *c, int part, uint64_t r) {
    uint64_t keys = (uint64_t)c->state_rows,
             values = (uint64_t)(c->state_heads / c->state_groups * c->state_columns);
    const uint64_t sizes[] = {keys, keys, values, values}, before[] = {0, keys, 2 * keys, 2 * keys + values};
    return r / sizes[part] * (2 * keys + 2 * values) + before[part] + r % sizes[part];
}

static uint64_t mixed_row(const struct hf_config *c, const struct hf_recipe *p, uint64_t keys, uint64_t r) {
    uint64_t matrix = (uint64_t)p->matrix_rows, first = r / matrix * p->source_rows;
    r %= matrix;
    if (p->rows == ROWS_MIXED_GATES)
        return first + part_row(c, 3, r);
    return first + (r < keys / 2 ? part_row(c, 0, r)
                    : r < keys   ? part_row(c, 1, r - keys / 2)
                                 : part_row(c, 2, r - keys));
}

// The row of the source that becomes row r.
static uint64_t source_row(const struct hf_config *c, const struct hf_recipe *p, uint64_t r) {
    uint64_t d = (uint64_t)c->head_dim, head = r / d, i = r % d, group = (uint64_t)(c->heads / c->kv_heads);
    uint64_t matrix = (uint64_t)p->matrix_rows, keys = 2 * (uint64_t)(c->state_groups * c->state_rows);
    switch (p->rows) {
    case ROWS_SAME:
    case COLUMNS_VALUES: return r;
    case ROWS_POSITIONS: return r + (uint64_t)c->skipped_positions;
    case ROWS_EVEN: return 2 * r;
    case ROWS_ODD: return 2 * r + 1;
    case ROWS_FIRST_HALF: return r / matrix * 2 * matrix + r % matrix;
    case ROWS_SECOND_HALF: return r / matrix * 2 * matrix + matrix + r % matrix;
    case ROWS_VALUES: return value_place(c, r, (uint64_t)c->state_columns);
    case ROWS_HEADS: return value_place(c, r, 1);
    case ROWS_MIXED_QKV:
    case ROWS_MIXED_GATES: return mixed_row(c, p, keys, r);
    case ROWS_KEYS_VALUES: return r < keys ? r : keys + value_place(c, r - keys, (uint64_t)c->state_columns);
    default: break;
    }
    bool value =
        p->rows == ROWS_GROUPED_V || (p->rows == ROWS_QKV && head >= (uint64_t)(c->heads + c->kv_heads));
    if (!value && c->family->adjacent)
        i = i / 2 + (i % 2 ? d / 2 : 0);
    if (p->rows == ROWS_GROUPED_Q)
        head = head / group * (group + 2) + head % group;
    else if (p->rows == ROWS_GROUPED_K)
        head = head * (group + 2) + group;
    else if (p->rows == ROWS_GROUPED_V)
        head = head * (group + 2) + group + 1;
    return head * d + i;
}

// By what the elements of a row are multiplied.
static float row_factor(const struct hf_config *c, const struct hf_recipe *p, uint64_t row) {
    uint64_t values = (uint64_t)(c->state_heads * c->state_columns),
             keys = (uint64_t)(c->state_groups * c->state_rows);
    const uint64_t ends[] = {values, 2 * values, 2 * values + keys, 2 * values + 2 * keys, UINT64_MAX};
    int i = 0;
    if (!isnan(p->times))
        return p->times;
    while (row >= ends[i])
        i++;
    return c->state_factors[i];
}

static float read_element(const void *src, enum st_type type, uint64_t i) {
    float f;
    if (type == ST_F32)
        return memcpy(&f, (const char *)src + 4 * i, 4), f;
    uint16_t h;
    memcpy(&h, (const char *)src + 2 * i, 2);
    return type == ST_F16 ? half_to_float(h) : bf16_to_float(h);
}

// A row as it becomes; its elements are floats where they change.
static void make_row(const struct hf_config *c, const struct hf_recipe *p, uint64_t row, const char *src,
                     char *dst) {
    uint64_t n = p->row_bytes / st_type_bytes(p->type), size = st_type_bytes(p->type);
    float factor = row_factor(c, p, row);
    bool moves = p->rows == COLUMNS_VALUES, f32 = p->widens || p->type == ST_F32;
    bool same = !p->widens && !p->decays && p->plus == 0 && factor == 1;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t from = moves ? value_place(c, i, (uint64_t)c->state_columns) : i;
        if (same) {
            memcpy(dst + i * size, src + from * size, size);
            continue;
        }
        float f = read_element(src, p->type, from);
        f = p->decays ? (float)-exp((double)f) : f * factor + p->plus;
        uint16_t h = f32 ? 0 : p->type == ST_F16 ? float_to_half(f) : float_to_bf16(f);
        memcpy(dst + i * (f32 ? 4 : 2), f32 ? (const void *)&f : &h, f32 ? 4 : 2);
    }
}

// Bytes [at, at + bytes) of what one source becomes. Small ones are read at once, others row by row.
static const char *read_source(const struct hf_files *d, const struct hf_config *c, const struct hf_recipe *p,
                               const struct hf_source *s, uint64_t at, uint64_t bytes, char *dst,
                               uint64_t *stopped) {
    const char *why = NULL;
    bool small = s->tensor->bytes <= MAX_WHOLE, changes = hf_recipe_changes_elements(p);
    uint64_t held = small ? s->tensor->bytes : changes ? p->row_bytes : 0;
    char *raw = held ? malloc((size_t)(held + p->out_row_bytes)) : NULL, *made = raw + held;
    *stopped = s->address;
    if (held && !raw)
        return "out of memory";
    if (small)
        why = hf_files_read(d, s->address, held, raw, stopped);
    for (uint64_t n; bytes > 0 && !why; at += n, dst += n, bytes -= n) {
        uint64_t row = source_row(c, p, at / p->out_row_bytes), skip = at % p->out_row_bytes;
        uint64_t address = s->address + row * p->row_bytes;
        n = p->out_row_bytes - skip < bytes ? p->out_row_bytes - skip : bytes;
        if (!raw) {
            why = hf_files_read(d, address + skip, n, dst, stopped);
            continue;
        }
        if (!small && (why = hf_files_read(d, address, p->row_bytes, raw, stopped)))
            continue;
        const char *src = small ? raw + row * p->row_bytes : raw;
        if (changes) {
            make_row(c, p, row, src, made);
            src = made;
        }
        memcpy(dst, src + skip, n);
    }
    free(raw);
    return why;
}

// Rows [first, end) of what is made lie in rows [*low, *high] of the source, which one band holds; *end may become less.
static void find_band(const struct hf_config *c, const struct hf_recipe *p, uint64_t cols, uint64_t first,
                      uint64_t *end, uint64_t *low, uint64_t *high) {
    uint64_t most = HF_BAND_ELEMENTS / cols;
    most = most > HF_BAND_ROWS ? HF_BAND_ROWS : most;
    *low = *high = source_row(c, p, first);
    for (uint64_t r = first + 1; r < *end; r++) {
        uint64_t row = source_row(c, p, r), l = row < *low ? row : *low, h = row > *high ? row : *high;
        if (h - l >= most) {
            *end = r;
            return;
        }
        *low = l;
        *high = h;
    }
}

// The same of a source whose lines are columns.
static const char *read_turned(const struct hf_files *d, const struct hf_config *c, const struct hf_recipe *p,
                               const struct hf_source *s, uint64_t at, uint64_t bytes, char *dst,
                               uint64_t *stopped) {
    const uint64_t size = st_type_bytes(p->type), cols = p->row_bytes / size, row_bytes = p->out_row_bytes;
    const uint64_t rows = p->source_rows, matrix = rows * p->row_bytes, made = (uint64_t)p->matrix_rows;
    const char *why = NULL;
    char *row_made = malloc((size_t)row_bytes);
    while (row_made && bytes > 0 && !why) {
        uint64_t row = at / row_bytes, end = (at + bytes - 1) / row_bytes + 1, low, high, n;
        uint64_t last = (row / made + 1) * made; // of this matrix
        end = end < last ? end : last;
        find_band(c, p, cols, row, &end, &low, &high);
        uint64_t width = (high - low + 1) * size;
        char *band = malloc((size_t)(width * cols));
        why = band ? hf_files_read_lines(d, s->address + low / rows * matrix + low % rows * size, rows * size,
                                         cols, width, band, stopped)
                   : "out of memory";
        for (; row < end && !why; row++, at += n, dst += n, bytes -= n) {
            uint64_t skip = at % row_bytes, from = (source_row(c, p, row) - low) * size;
            n = row_bytes - skip < bytes ? row_bytes - skip : bytes;
            for (uint64_t i = 0; i < cols; i++)
                memcpy(row_made + i * size, band + i * width + from, size);
            memcpy(dst, row_made + skip, n);
        }
        free(band);
    }
    free(row_made);
    return row_made ? why : "out of memory";
}

// The same of a quantised source, by its number.
static const char *read_quantized(const struct hf_files *d, const struct hf_config *c,
                                  const struct hf_recipe *p, uint64_t which, uint64_t at, uint64_t bytes,
                                  char *dst, uint64_t *stopped) {
    const char *why = NULL;
    const uint64_t size = p->out_row_bytes;
    unsigned char *made = malloc((size_t)size);
    if (!made)
        return "out of memory";
    while (bytes > 0 && !why) {
        uint64_t row = at / size, end = (at + bytes - 1) / size + 1, low, high, n;
        find_band(c, p, (uint64_t)p->quant.cols, row, &end, &low, &high);
        struct hf_band *band =
            hf_band_read(d, &p->quant, p->sources, (int)which, low, high - low + 1, &why, stopped);
        for (; row < end && !why; row++, at += n, dst += n, bytes -= n) {
            uint64_t skip = at % size, source = source_row(c, p, row);
            n = size - skip < bytes ? size - skip : bytes;
            *stopped = hf_quantized_origin(&p->quant, p->sources[which], source);
            if (!(why = hf_band_row(band, source, made)))
                memcpy(dst, made + skip, n);
        }
        hf_band_free(band);
    }
    free(made);
    return why;
}

const char *hf_recipe_read(const struct hf_files *d, const struct hf_config *c, const struct hf_recipe *p,
                           uint64_t at, uint64_t bytes, char *dst, uint64_t *stopped) {
    if (p->memory) {
        memcpy(dst, (const char *)p->memory + at, bytes);
        return NULL;
    }
    uint64_t each = p->out_row_bytes * (uint64_t)p->out_rows;
    const char *why = NULL;
    for (uint64_t n; bytes > 0 && !why; at += n, dst += n, bytes -= n) {
        n = each - at % each < bytes ? each - at % each : bytes;
        why = p->quant.scheme != HF_PLAIN ? read_quantized(d, c, p, at / each, at % each, n, dst, stopped)
                                          : (p->turned ? read_turned : read_source)(
                                                d, c, p, p->sources[at / each], at % each, n, dst, stopped);
    }
    return why;
}

uint64_t hf_recipe_origin(const struct hf_config *c, const struct hf_recipe *p, uint64_t at) {
    if (p->memory)
        return 0;
    uint64_t each = p->out_row_bytes * (uint64_t)p->out_rows, skip = at % p->out_row_bytes;
    uint64_t row = source_row(c, p, at % each / p->out_row_bytes);
    if (p->quant.scheme != HF_PLAIN)
        return hf_quantized_origin(&p->quant, p->sources[at / each], row);
    if (p->turned)
        return p->sources[at / each]->address;
    return p->sources[at / each]->address + row * p->row_bytes + skip * p->row_bytes / p->out_row_bytes;
}
