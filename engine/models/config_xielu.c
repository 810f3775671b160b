// See config_reader.h: parameters of the activation xIELU, as llama.cpp's files have them: before softplus.
#include "config_reader.h"

#include <math.h>

static double softplus(double x) { return x > 30 ? x : log1p(exp(x)); }

// A number of each layer, or of all.
static bool read_numbers(struct config_reader *r, const char *key, int layers, double *v) {
    const struct meta *m = meta_find(r->f, key);
    struct meta_array a;
    double all;
    if (!m || m->type != META_ARRAY) {
        if (meta_float(r->f, key, true, &all, r->err))
            return false;
        for (int i = 0; i < layers; i++)
            v[i] = all;
        return true;
    }
    if (meta_array(r->f, key, true, META_F32, &a, r->err))
        return false;
    for (int i = 0; i < layers && a.count == (uint64_t)layers; i++) {
        v[i] = (double)meta_array_float(&a, (uint64_t)i);
        if (!(fabs(v[i]) <= 1e6)) {
            model_file_bad(r->f, r->err, "key %s is %g for layer %d: expected -1e6 to 1e6", key, v[i], i);
            return false;
        }
    }
    if (a.count != (uint64_t)layers)
        model_file_bad(r->f, r->err, "key %s has %llu elements, expected one for each of %d layers", key,
                       (unsigned long long)a.count, layers);
    return a.count == (uint64_t)layers;
}

bool config_xielu(struct config_reader *r, struct model_config *c) {
    double p[MODEL_MAX_LAYERS], n[MODEL_MAX_LAYERS], beta[MODEL_MAX_LAYERS], eps[MODEL_MAX_LAYERS];
    if (r->arch->act != ACT_XIELU)
        return true;
    if (!read_numbers(r, "xielu.alpha_p", c->num_layers, p) ||
        !read_numbers(r, "xielu.alpha_n", c->num_layers, n) ||
        !read_numbers(r, "xielu.beta", c->num_layers, beta) ||
        !read_numbers(r, "xielu.eps", c->num_layers, eps))
        return false;
    for (int i = 0; i < c->num_layers; i++)
        c->layers[i].xielu = (struct xielu){(float)softplus(p[i]), (float)(beta[i] + softplus(n[i])),
                                            (float)beta[i], (float)eps[i]};
    return true;
}
