#include "latent.h"

#include "convert.h"
#include "log.h"
#include "quants.h"

#include <string.h>

struct tensor latent_fused(const struct attn_spec *a) {
    return (struct tensor){.ndim = 2, .shape = {(int64_t)a->heads * (a->nope_dim + a->v_dim), a->kv_lora}};
}

static void copy_values(const struct attn_spec *a, struct tensor *t, char *dst) {
    size_t row = dtype_row_bytes(t->dtype, a->kv_lora), head = (size_t)(a->nope_dim + a->v_dim) * row;
    const char *src = (const char *)t->data + (size_t)a->nope_dim * row;
    for (int h = 0; h < a->heads; h++)
        memcpy(dst + (size_t)(h * a->v_dim) * row, src + (size_t)h * head, (size_t)a->v_dim * row);
    *t = (struct tensor){dst, t->dtype, 3, {a->heads, a->v_dim, a->kv_lora}};
}

// One row (C) of keys becomes column i of (C, n).
static void write_column(const struct attn_spec *a, enum dtype dtype, char *dst, int i, const char *row) {
    size_t size = dtype_row_bytes(dtype, 1);
    for (int c = 0; c < a->kv_lora; c++)
        memcpy(dst + ((size_t)c * (size_t)a->nope_dim + (size_t)i) * size, row + (size_t)c * size, size);
}

static void convert(float *dst, enum dtype to, const char *src, enum dtype from, int n) {
    if (to == DTYPE_F32)
        quants_decode(dst, src, from, n);
    else
        convert_floats(dst, to, src, from, (uint64_t)n);
}

static void transpose_keys(const struct attn_spec *a, struct tensor *t, char *dst) {
    float floats[1 << 12];
    enum dtype to = t->dtype == DTYPE_FP8 ? DTYPE_BF16 : dtype_block(t->dtype) > 1 ? DTYPE_F32 : t->dtype;
    size_t row = dtype_row_bytes(t->dtype, a->kv_lora),
           matrix = (size_t)a->kv_lora * (size_t)a->nope_dim * dtype_row_bytes(to, 1);
    CHECK((size_t)a->kv_lora <= sizeof floats / sizeof *floats);
    for (int h = 0; h < a->heads; h++)
        for (int i = 0; i < a->nope_dim; i++) {
            const char *src = (const char *)t->data + (size_t)(h * (a->nope_dim + a->v_dim) + i) * row;
            if (to != t->dtype)
                convert(floats, to, src, t->dtype, a->kv_lora);
            write_column(a, to, dst + (size_t)h * matrix, i, to != t->dtype ? (const char *)floats : src);
        }
    *t = (struct tensor){dst, to, 3, {a->heads, a->kv_lora, a->nope_dim}};
}

void latent_split(const struct attn_spec *a, enum weight_role role, struct tensor *t, void *dst) {
    if (role == WEIGHT_LATENT_KEY)
        transpose_keys(a, t, dst);
    else
        copy_values(a, t, dst);
}
