#include "pool_head.h"

#include "convert.h"
#include "quants.h"
#include "tensor_read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// The values of a tensor in f32, the caller's to free. NULL with err.
static float *read_floats(const struct model_file *f, const struct model_tensor *t, struct err *err) {
    bool floats = dtype_is_weight(t->view.dtype) && dtype_is_float(t->view.dtype);
    void *raw = dtype_is_weight(t->view.dtype) ? aligned_alloc(64, (t->bytes + 63) / 64 * 64) : NULL;
    float *x = malloc(t->elements * sizeof *x);
    if (!dtype_is_weight(t->view.dtype))
        model_file_bad(f, err, "tensor %.*s has type %s, which is not supported yet", (int)t->name.len,
                       t->name.data, t->type_name);
    else if (!raw || !x)
        err_set(err, STATUS_NOMEM, "%s: out of memory for its classifier", f->name);
    else if (tensor_read(f, t, raw, err) == STATUS_OK) {
        if (floats)
            convert_floats(x, DTYPE_F32, raw, t->view.dtype, t->elements);
        else
            quants_decode(x, raw, t->view.dtype, (int64_t)t->elements);
        free(raw);
        return x;
    }
    free(raw);
    free(x);
    return NULL;
}

// A vector of n values, if the file has it. false: err.
static bool read_vector(const struct model_file *f, const char *name, int n, float **out, struct err *err) {
    const struct model_tensor *t = model_file_find(f, name);
    if (!t)
        return true;
    if (t->elements != (uint64_t)n) {
        model_file_bad(f, err, "tensor %s has %llu values, expected %d", name,
                       (unsigned long long)t->elements, n);
        return false;
    }
    return (*out = read_floats(f, t, err)) != NULL;
}

// Adds a stage of a matrix (rows, in) with whatever else the file has under that name. rows 0: as many as there are.
static bool add_stage(struct pool_head *head, const struct model_file *f, const char *name, int in, int rows,
                      enum pool_act act, struct err *err) {
    struct pool_stage *s = &head->stages[head->num_stages++];
    char full[64];
    snprintf(full, sizeof full, "%s.weight", name);
    const struct model_tensor *t = model_file_find(f, full);
    uint64_t n = t ? t->elements / (uint64_t)in : 0;
    if (!t || t->elements % (uint64_t)in || n < 1 || n > 1 << 16 || (rows > 0 && n != (uint64_t)rows) ||
        t->view.shape[t->view.ndim - 1] != in) {
        model_file_bad(f, err, t ? "tensor %s has another shape than (%d, %d)" : "tensor %s is missing", full,
                       rows, in);
        return false;
    }
    *s = (struct pool_stage){.in = in, .out = (int)n, .act = act};
    float *matrix = read_floats(f, t, err);
    if (!matrix || !(s->weight = malloc(t->elements * sizeof *matrix))) {
        free(matrix);
        return matrix ? !err_set(err, STATUS_NOMEM, "%s: out of memory for its classifier", f->name) : false;
    }
    for (size_t o = 0; o < (size_t)s->out; o++)
        for (size_t i = 0; i < (size_t)in; i++)
            s->weight[i * (size_t)s->out + o] = matrix[o * (size_t)in + i];
    free(matrix);
    snprintf(full, sizeof full, "%s.bias", name);
    if (!read_vector(f, full, s->out, &s->bias, err))
        return false;
    snprintf(full, sizeof full, "%s.norm.weight", name);
    return read_vector(f, full, s->out, &s->norm, err);
}

static bool read_classifier(struct pool_head *head, const struct model_config *c, const struct model_file *f,
                            struct err *err) {
    enum pool_act act = model_file_find(f, "cls.norm.weight") ? POOL_GELU : POOL_TANH; // ModernBERT's; BERT's
    if ((model_file_find(f, "cls.weight") && !add_stage(head, f, "cls", c->hidden, c->hidden, act, err)) ||
        !add_stage(head, f, "cls.output", c->hidden, 0, POOL_PLAIN, err))
        return false;
    int num = head->stages[head->num_stages - 1].out;
    head->margin = num == 2;
    if (num == 1 || (num == 2 && c->pooling == POOLING_LAST))
        return true;
    model_file_bad(f, err, "its classifier has %d labels: a reranker has one, or yes and no", num);
    return false;
}

enum status pool_head_load(struct pool_head *head, const struct model_config *c, const struct model_file *f,
                           struct err *err) {
    *head = (struct pool_head){.eps = c->norm_eps, .size = c->hidden, .room = c->hidden};
    bool dense = !c->is_reranker && c->pooling != POOLING_NONE && model_file_find(f, "dense_2.weight");
    bool ok = (!c->is_reranker || read_classifier(head, c, f, err)) &&
              (!dense || (add_stage(head, f, "dense_2", c->hidden, 0, POOL_PLAIN, err) &&
                          add_stage(head, f, "dense_3", head->stages[0].out, 0, POOL_PLAIN, err)));
    for (int i = 0; ok && i < head->num_stages; i++) {
        head->size = head->stages[i].out;
        head->room = head->size > head->room ? head->size : head->room;
    }
    head->size = head->margin ? 1 : head->size;
    if (ok && (head->scratch = malloc((size_t)head->room * sizeof *head->scratch)))
        return STATUS_OK;
    pool_head_free(head);
    return ok ? err_set(err, STATUS_NOMEM, "out of memory for a vector") : err->code;
}

void pool_head_free(struct pool_head *head) {
    for (int i = 0; i < head->num_stages; i++) {
        free(head->stages[i].weight);
        free(head->stages[i].bias);
        free(head->stages[i].norm);
    }
    free(head->scratch);
    *head = (struct pool_head){0};
}

static void normalise(float *x, const float *weight, int n, float eps) {
    double mean = 0, sum = 0;
    for (int i = 0; i < n; i++)
        mean += (double)x[i] / n;
    for (int i = 0; i < n; i++)
        sum += ((double)x[i] - mean) * ((double)x[i] - mean);
    for (int i = 0; i < n; i++)
        x[i] = (float)(((double)x[i] - mean) / sqrt(sum / n + (double)eps) * (double)weight[i]);
}

static float activate(enum pool_act act, float x) {
    switch (act) {
    case POOL_TANH: return (float)tanh((double)x);
    case POOL_GELU: return (float)(0.5 * (double)x * (1 + erf((double)x * sqrt(0.5))));
    default: return x;
    }
}

void pool_head_run(const struct pool_head *head, float *vector) {
    for (int k = 0; k < head->num_stages; k++) {
        const struct pool_stage *s = &head->stages[k];
        float *y = head->scratch;
        for (int o = 0; o < s->out; o++)
            y[o] = s->bias ? s->bias[o] : 0;
        for (int i = 0; i < s->in; i++)
            for (int o = 0; o < s->out; o++)
                y[o] += s->weight[(size_t)i * (size_t)s->out + (size_t)o] * vector[i];
        for (int o = 0; o < s->out; o++)
            y[o] = activate(s->act, y[o]);
        if (s->norm)
            normalise(y, s->norm, s->out, head->eps);
        memcpy(vector, y, (size_t)s->out * sizeof *y);
    }
    if (head->margin)
        vector[0] -= vector[1];
}
