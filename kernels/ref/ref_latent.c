#include "ref_latent.h"

#include "rope.h"

#include <string.h>

static struct ref_matrix of_head(const struct ref_matrix *all, int head, int rows) {
    struct ref_matrix m = *all;
    m.rows = rows;
    m.data = (const char *)all->data + (size_t)(head * rows) * dtype_row_bytes(all->dtype, all->cols);
    return m;
}

void ref_latent_in(float *q, float *vector, const struct ref_latent *w, const struct attn_spec *a,
                   const struct rope_config *rope, const float *x, int position, float *scratch) {
    int C = a->kv_lora, n = a->nope_dim, d = n + a->rope_dim;
    const int32_t positions[ROPE_AXES] = {position, position, position};
    float *heads = scratch + a->q_lora, temperature = attn_temperature(a, position);
    ref_matvec(vector, x, w->in);
    ref_rmsnorm(vector, vector, w->norm, C, w->eps);
    if (w->q_down) {
        ref_matvec(scratch, x, w->q_down);
        ref_rmsnorm(scratch, scratch, w->q_norm, a->q_lora, w->eps);
    }
    ref_matvec(heads, w->q_down ? scratch : x, w->q);
    for (int h = 0; h < a->heads; h++, heads += d, q += a->head_dim) {
        struct ref_matrix key = of_head(w->key, h, C);
        ref_matvec(q, heads, &key);
        memcpy(q + C, heads + n, (size_t)a->rope_dim * sizeof *q);
        if (rope)
            ref_rope(q + C, rope, positions);
        for (int i = 0; i < a->head_dim; i++)
            q[i] *= temperature;
    }
    if (rope)
        ref_rope(vector + C, rope, positions);
}

void ref_latent_out(float *y, const struct ref_latent *w, const struct attn_spec *a, const float *out) {
    for (int h = 0; h < a->heads; h++) {
        struct ref_matrix value = of_head(w->value, h, a->v_dim);
        ref_matvec(y + h * a->v_dim, out + h * a->head_dim, &value);
    }
}
