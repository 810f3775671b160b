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
    default: return rows_in;
    }
}

// The place of an element of the values of recurrent layers, heads of `size`, in the folder.
static uint64_t value_place(const struct hf_config *c, uint64_t i, uint64_t size) {
    uint64_t groups = (uint64_t)c->state_groups, each = (uint64_t)c->state_heads / groups, head = i / size;
    return (head % groups * each + head / groups) * size + i % size;
}

// The row of the source that becomes row r.
static uint64_t source_row(const struct hf_config *c, const struct hf_recipe *p, uint64_t r) {
    uint64_t d = (uint64_t)c->head_dim, head = r / d, i = r % d, group = (uint64_t)(c->heads / c->kv_heads);
    uint64_t matrix = (uint64_t)p->matrix_rows, keys = 2 * (uint64_t)(c->state_groups * c->state_rows);
    switch (p->rows) {
    case ROWS_SAME:
    case COLUMNS_VALUES: return r;
    case ROWS_EVEN: return 2 * r;
    case ROWS_ODD: return 2 * r + 1;
    case ROWS_FIRST_HALF: return r / matrix * 2 * matrix + r % matrix;
    case ROWS_SECOND_HALF: return r / matrix * 2 * matrix + matrix + r % matrix;
    case ROWS_VALUES: return value_place(c, r, (uint64_t)c->state_columns);
    case ROWS_HEADS: return value_place(c, r, 1);
    case ROWS_KEYS_VALUES: return r < keys ? r : keys + value_place(c, r - keys, (uint64_t)c->state_columns);
    default: break;
    }
    if (p->rows != ROWS_GROUPED_V && c->family->adjacent)
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

// The same of a quantised source, by its number.
static const char *read_quantized(const struct hf_files *d, const struct hf_config *c,
                                  const struct hf_recipe *p, uint64_t which, uint64_t at, uint64_t bytes,
                                  char *dst, uint64_t *stopped) {
    const char *why = NULL;
    for (uint64_t n; bytes > 0 && !why; at += n, dst += n, bytes -= n) {
        uint64_t row = source_row(c, p, at / p->out_row_bytes), skip = at % p->out_row_bytes;
        n = p->out_row_bytes - skip < bytes ? p->out_row_bytes - skip : bytes;
        why = hf_quantized_row(d, &p->quant, p->sources[which], p->quant.scales[which], row, skip, n, dst,
                               stopped);
    }
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
        why = p->quant.scheme == HF_PLAIN
                  ? read_source(d, c, p, p->sources[at / each], at % each, n, dst, stopped)
                  : read_quantized(d, c, p, at / each, at % each, n, dst, stopped);
    }
    return why;
}

uint64_t hf_recipe_origin(const struct hf_config *c, const struct hf_recipe *p, uint64_t at) {
    if (p->memory)
        return 0;
    uint64_t each = p->out_row_bytes * (uint64_t)p->out_rows, skip = at % p->out_row_bytes;
    uint64_t row = source_row(c, p, at % each / p->out_row_bytes);
    return p->sources[at / each]->address + row * p->row_bytes + skip * p->row_bytes / p->out_row_bytes;
}
