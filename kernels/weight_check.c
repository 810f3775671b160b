#include "weight_check.h"

#include <stdio.h>

// With ranks the model's sizes are this rank's, or the most that any has.
static bool shape_fits(const struct weight_desc *desc, const struct weight_shape *want, int part) {
    const struct tensor *t = &desc->part[part];
    bool uneven = want->cut == CUT_FFN || want->cut == CUT_EXPERTS || want->cut == CUT_VOCAB;
    if (want->ndim == 0 || t->ndim != want->ndim)
        return false;
    int64_t n = t->shape[want->axis];
    for (int i = 0; i < want->ndim; i++)
        if (t->shape[i] != want->size[i] &&
            (i != want->axis || desc->total == 0 || !uneven || n < 1 || n > want->size[i]))
            return false;
    return desc->total == 0 || (part > 0 && !uneven) || (desc->start >= 0 && desc->start <= desc->total - n);
}

// A value for each row of each matrix, or for each element of a vector.
static bool bias_fits(const struct tensor *bias, const struct tensor *t) {
    int ndim = t->ndim > 1 ? t->ndim - 1 : t->ndim;
    for (int i = 0; i < ndim && bias->ndim == ndim; i++)
        if (bias->shape[i] != t->shape[i])
            return false;
    return t->data && bias->ndim == ndim && bias->dtype == DTYPE_F32;
}

static bool type_fits(enum weight_role role, const struct tensor *t) {
    bool any = weight_info(role)->types == TYPES_ANY;
    return (t->dtype == DTYPE_F32 || (any && dtype_is_weight(t->dtype))) &&
           t->shape[t->ndim - 1] % dtype_block(t->dtype) == 0;
}

static const char *shape_text(int ndim, const int64_t *size, char *buf, size_t bytes) {
    size_t n = (size_t)snprintf(buf, bytes, "%s", ndim ? "" : "none");
    for (int i = 0; i < ndim && n < bytes; i++)
        n += (size_t)snprintf(buf + n, bytes - n, "%s%lld", i ? " x " : "", (long long)size[i]);
    return buf;
}

bool weight_check(const struct model_config *m, const struct weight_desc *desc, struct err *err) {
    const char *name = weight_info(desc->role)->name;
    char found[96], expected[96];
    if (weight_in_layers(desc->role) && (desc->layer < 0 || desc->layer >= m->num_layers)) {
        err_set(err, STATUS_INVALID, "weight %s: there is no layer %d, the model has %d", name, desc->layer,
                m->num_layers);
        return false;
    }
    for (int i = 0; i < 3; i++) {
        const struct tensor *t = &desc->part[i], *bias = &desc->bias[i];
        struct weight_shape want = weight_shape_of(m, desc->role, desc->layer, i);
        if (!t->data && want.ndim == 0 && !bias->data)
            continue;
        if (bias->data && (!want.bias || !bias_fits(bias, t))) {
            err_set(
                err, STATUS_INVALID,
                "weight %s of layer %d, part %d: expected no bias, or one of F32 with a value for each row",
                name, desc->layer, i);
            return false;
        }
        if (!t->data || !shape_fits(desc, &want, i) || !type_fits(desc->role, t)) {
            err_set(err, STATUS_INVALID, "weight %s of layer %d, part %d: expected %s, found %s %s", name,
                    desc->layer, i, shape_text(want.ndim, want.size, expected, sizeof expected),
                    shape_text(t->data ? t->ndim : 0, t->shape, found, sizeof found), dtype_name(t->dtype));
            return false;
        }
    }
    return true;
}
