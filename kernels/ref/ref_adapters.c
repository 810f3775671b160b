// See ref_adapters.h.
#include "ref_adapters.h"

#include <stdlib.h>
#include <string.h>

struct ref_lora_pair {
    struct ref_matrix a, b; // a.cols 0: none
    float scale;
};

struct ref_adapter {
    struct ref_lora_pair *pairs; // (L, ADAPTER_TARGETS)
};

bool ref_adapters_open(struct ref_adapters *a, int num_layers, const struct step_limits *l, size_t width) {
    a->num_slots = l->max_adapters;
    a->num_layers = num_layers;
    a->slots = calloc((size_t)l->max_adapters + 1, sizeof *a->slots);
    a->of_row = calloc((size_t)l->max_tokens, sizeof *a->of_row);
    a->low = calloc((size_t)l->max_adapter_rank + 1, sizeof *a->low);
    a->change = calloc(width, sizeof *a->change);
    return a->slots && a->of_row && a->low && a->change;
}

void ref_adapters_close(struct ref_adapters *a) {
    for (int i = 0; a->slots && i < a->num_slots; i++)
        ref_adapters_unload(a, i);
    free(a->slots), free(a->of_row), free(a->low), free(a->change);
}

static bool copy_matrix(struct ref_matrix *m, const struct tensor *t) {
    float *data = malloc((size_t)t->shape[0] * (size_t)t->shape[1] * sizeof *data);
    if (data)
        *m = ref_decode(data,
                        &(struct ref_matrix){t->data, t->dtype, (int)t->shape[0], (int)t->shape[1], NULL});
    return data;
}

enum status ref_adapters_load(struct ref_adapters *a, int slot, const struct adapter_desc *desc,
                              struct err *err) {
    struct ref_adapter *to = &a->slots[slot];
    int n = a->num_layers * ADAPTER_TARGETS;
    bool ok = (to->pairs = calloc((size_t)n, sizeof *to->pairs)) != NULL;
    for (int i = 0; ok && i < n; i++) {
        const struct adapter_matrix *m = &desc->matrices[i];
        to->pairs[i].scale = m->scale;
        ok = !m->a.data || (copy_matrix(&to->pairs[i].a, &m->a) && copy_matrix(&to->pairs[i].b, &m->b));
    }
    if (ok)
        return STATUS_OK;
    ref_adapters_unload(a, slot);
    return err_set(err, STATUS_NOMEM, "no memory for an adapter");
}

void ref_adapters_unload(struct ref_adapters *a, int slot) {
    struct ref_adapter *of = &a->slots[slot];
    for (int i = 0; of->pairs && i < a->num_layers * ADAPTER_TARGETS; i++) {
        free((void *)(uintptr_t)of->pairs[i].a.data);
        free((void *)(uintptr_t)of->pairs[i].b.data);
    }
    free(of->pairs);
    of->pairs = NULL;
}

void ref_adapters_begin(struct ref_adapters *a, const struct step *step) {
    for (int t = 0; t < step->num_tokens; t++)
        a->of_row[t] = -1;
    for (int s = 0; step->adapters && s < step->num_seqs; s++)
        for (int t = step->query_start[s]; t < step->query_start[s + 1]; t++)
            a->of_row[t] = step->adapters[s];
}

void ref_adapters_add(struct ref_adapters *a, float *y, const float *x, int layer, enum adapter_target target,
                      int t) {
    if (a->of_row[t] < 0)
        return;
    const struct ref_lora_pair *p = &a->slots[a->of_row[t]].pairs[layer * ADAPTER_TARGETS + (int)target];
    if (p->a.cols == 0)
        return;
    ref_matvec(a->low, x, &p->a);
    ref_matvec(a->change, a->low, &p->b);
    for (int i = 0; i < p->b.rows; i++)
        y[i] += p->scale * a->change[i];
}
