// See recipe.h.
#include "recipe.h"

#include "half.h"

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
    case ROWS_ODD: return rows_in / 2;
    default: return rows_in;
    }
}

// The row of the source that becomes row r.
static uint64_t source_row(const struct hf_config *c, enum hf_rows rows, uint64_t r) {
    if (rows == ROWS_EVEN || rows == ROWS_ODD)
        return 2 * r + (rows == ROWS_ODD);
    uint64_t d = (uint64_t)c->head_dim, head = r / d, i = r % d, group = (uint64_t)(c->heads / c->kv_heads);
    bool pairs = rows != ROWS_SAME && rows != ROWS_GROUPED_V && c->family->adjacent;
    if (pairs)
        i = i / 2 + (i % 2 ? d / 2 : 0);
    if (rows == ROWS_GROUPED_Q)
        head = head / group * (group + 2) + head % group;
    else if (rows == ROWS_GROUPED_K)
        head = head * (group + 2) + group;
    else if (rows == ROWS_GROUPED_V)
        head = head * (group + 2) + group + 1;
    return head * d + i;
}

static void widen(const void *src, enum st_type type, float plus, float *dst, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        float f;
        if (type == ST_F32)
            memcpy(&f, (const char *)src + 4 * i, 4);
        else if (type == ST_F16)
            f = half_to_float(((const uint16_t *)src)[i]);
        else
            f = bf16_to_float(((const uint16_t *)src)[i]);
        dst[i] = f + plus;
    }
}

// A whole source in its own order, with elements as they become; from malloc. NULL: why.
static char *read_whole(const struct hf_files *d, const struct hf_recipe *p, const struct hf_source *s,
                        const char **why, uint64_t *stopped) {
    uint64_t elements = s->tensor->bytes / st_type_bytes(s->tensor->type);
    char *raw = malloc((size_t)s->tensor->bytes), *made = raw;
    *stopped = s->address;
    *why = raw ? hf_files_read(d, s->address, s->tensor->bytes, raw, stopped) : "out of memory";
    if (!*why && hf_recipe_changes_elements(p)) {
        made = malloc(4 * (size_t)elements);
        if (made)
            widen(raw, s->tensor->type, p->plus, (float *)(void *)made, elements);
        else
            *why = "out of memory";
        free(raw);
    }
    if (*why) {
        free(made);
        return NULL;
    }
    return made;
}

// Bytes [at, at + bytes) of what one source becomes.
static const char *read_source(const struct hf_files *d, const struct hf_config *c, const struct hf_recipe *p,
                               const struct hf_source *s, uint64_t at, uint64_t bytes, char *dst,
                               uint64_t *stopped) {
    const char *why = NULL;
    bool small = hf_recipe_changes_elements(p) || s->tensor->bytes <= MAX_WHOLE;
    char *whole = small ? read_whole(d, p, s, &why, stopped) : NULL;
    for (uint64_t n; bytes > 0 && !why; at += n, dst += n, bytes -= n) {
        uint64_t row = source_row(c, p->rows, at / p->out_row_bytes), skip = at % p->out_row_bytes;
        n = p->out_row_bytes - skip < bytes ? p->out_row_bytes - skip : bytes;
        if (whole)
            memcpy(dst, whole + row * p->out_row_bytes + skip, n);
        else
            why = hf_files_read(d, s->address + row * p->row_bytes + skip, n, dst, stopped);
    }
    free(whole);
    return why;
}

// The same of a quantised source, by its number.
static const char *read_quantized(const struct hf_files *d, const struct hf_config *c,
                                  const struct hf_recipe *p, uint64_t which, uint64_t at, uint64_t bytes,
                                  char *dst, uint64_t *stopped) {
    const char *why = NULL;
    for (uint64_t n; bytes > 0 && !why; at += n, dst += n, bytes -= n) {
        uint64_t row = source_row(c, p->rows, at / p->out_row_bytes), skip = at % p->out_row_bytes;
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
    uint64_t row = source_row(c, p->rows, at % each / p->out_row_bytes);
    return p->sources[at / each]->address + row * p->row_bytes + skip * p->row_bytes / p->out_row_bytes;
}
