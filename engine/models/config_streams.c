// See config_reader.h: what Gemma 3n has beside Gemma 4.
#include "config_reader.h"

#include <math.h>

// By how many deviations a gate must lie above the mean of its row, for each layer; -infinity: all count.
static bool read_sparsity(struct config_reader *r) {
    const char *key = config_key(r, H_SPARSITY);
    struct meta_array a;
    if (meta_array(r->f, key, true, META_F32, &a, r->err))
        return false;
    if (a.count != (uint64_t)r->h.layers) {
        model_file_bad(r->f, r->err, "key %s has %llu elements, expected one for each of %d layers", key,
                       (unsigned long long)a.count, r->h.layers);
        return false;
    }
    for (int i = 0; i < r->h.layers; i++) {
        float v = meta_array_float(&a, (uint64_t)i);
        r->sparse[i] = v != -INFINITY;
        r->deviations[i] = r->sparse[i] ? v : 0;
        if (!r->sparse[i] || fabsf(v) <= 100)
            continue;
        model_file_bad(r->f, r->err, "key %s is %g for layer %d: expected -100 to 100, or -inf", key,
                       (double)v, i);
        return false;
    }
    return true;
}

bool config_streams(struct config_reader *r, struct model_config *c) {
    int rows = config_rows(r, WEIGHT_LAYER_EMBED, c->vocab);
    c->layer_vocab = rows ? rows : c->vocab; // weights_check() refuses a table that does not fit
    if (!(r->arch->traits & TRAIT_STREAMS))
        return true;
    r->h.altup_streams = ALTUP_STREAMS;
    if (!config_read(r, H_ALTUP_STREAMS) || !config_read(r, H_ALTUP_STREAM) || !read_sparsity(r))
        return false;
    if (r->h.layer_embed < 1) {
        model_file_bad(r->f, r->err, "key %s is 0, expected at least 1", config_key(r, H_LAYER_EMBED));
        return false;
    }
    rows = config_rows(r, WEIGHT_LAUREL_LEFT, 1 << 12);
    c->laurel_rank = rows ? rows : 64;
    c->altup_streams = r->h.altup_streams;
    return true;
}
