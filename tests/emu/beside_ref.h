// Steps of a random model on CUDA's backend beside kernels/ref.
#pragma once

#include "harness.h"

#include "backend_cuda.h"
#define FIXTURE_INSPECT &inspect_cuda
#include "fixture.h"
#include "rt.h"

static inline struct instance *open_instance(const struct fixture *f, const struct backend_ops *ops,
                                             int block_size, enum dtype kv, int tokens, int context,
                                             int seqs) {
    return instance_open(f, (struct setup){ops, NULL, 1, block_size, kv}, tokens, context, seqs);
}

// How far results of a step may be apart, and that they sample the same where that leaves it clear. Failed rows agree.
static inline void compare(const struct instance *in, const struct step_out *got, const struct step_out *want,
                           int rows, double bound, const char *what) {
    int V = in->model.config.vocab;
    for (int r = 0; r < rows; r++) {
        const float *a = got->logits + (size_t)r * (size_t)V, *b = want->logits + (size_t)r * (size_t)V;
        double far = distance(a, b, (size_t)V);
        if (!(far < bound))
            fail_msg("%s: row %d of %d is %g apart", what, r, rows, far);
        float first = -INFINITY, second = -INFINITY;
        for (int v = 0; v < V; v++) {
            second = b[v] > first ? first : fmaxf(second, b[v]);
            first = fmaxf(first, b[v]);
        }
        assert_int_equal(got->failed[r], want->failed[r]);
        if (first - second > fmax(0.1, 4 * bound))
            assert_int_equal(got->ids[r], want->ids[r]);
    }
}

static inline int num_rows(const struct some_pieces *p) {
    int n = 0;
    for (int i = 0; i < p->n; i++)
        n += p->pieces[i].rows ? p->pieces[i].count : 1;
    return n;
}

// How far two blocks in canonical order are apart.
static inline void cache_distance(const struct instance *in, const char *a, const char *b, enum dtype kv,
                                  double *far, double *norm) {
    const struct model_config *m = &in->model.config;
    int d = m->attn[0].head_dim, vectors = in->block_size * m->attn[0].kv_heads;
    size_t row = dtype_row_bytes(kv, d);
    for (int half = 0; half < attn_kv_vectors(&m->attn[0]) * m->kv_layers; half++) {
        for (int v = 0; v < vectors; v++) {
            float scale[2] = {1, 1};
            for (int i = 0; i < 2 && kv == DTYPE_I8; i++)
                memcpy(&scale[i], (i ? b : a) + (size_t)vectors * row + (size_t)v * sizeof(float),
                       sizeof(float));
            for (int i = 0; i < d; i++) {
                size_t at = (size_t)v * row + dtype_row_bytes(kv, i);
                double x = kv == DTYPE_I8 ? (double)((const int8_t *)a)[at] : (double)ref_fetch(a + at, kv);
                double y = kv == DTYPE_I8 ? (double)((const int8_t *)b)[at] : (double)ref_fetch(b + at, kv);
                x *= (double)scale[0], y *= (double)scale[1];
                *far += (x - y) * (x - y);
                *norm += y * y;
            }
        }
        a += (size_t)vectors * backend_kv_vector_bytes(kv, d);
        b += (size_t)vectors * backend_kv_vector_bytes(kv, d);
    }
}

// Else blocks are in the device's own order.
static inline bool layers_are_alike(const struct model_config *m) {
    for (int i = 1; i < m->num_attn; i++)
        if (m->attn[i].kv_heads != m->attn[0].kv_heads || m->attn[i].head_dim != m->attn[0].head_dim)
            return false;
    return true;
}

static inline void check_fixture(const struct fixture *f, int block_size, enum dtype kv, double bound,
                                 const char *what) {
    struct instance *ref = open_instance(f, &backend_ref, block_size, kv, 64, 64, 3);
    struct instance *cuda = open_instance(f, &backend_cuda, block_size, kv, 64, 64, 3);
    assert_non_null(cuda);
    for (int i = 0; i < FIXTURE_MIXES; i++) {
        rt_test_order(i % 3);
        struct step_out want = run_pieces(ref, fixture_mixes[i].pieces, fixture_mixes[i].n);
        struct step_out got = run_pieces(cuda, fixture_mixes[i].pieces, fixture_mixes[i].n);
        compare(cuda, &got, &want, num_rows(&fixture_mixes[i]), bound, what);
    }
    // what the cache holds, in the canonical order, and back
    size_t bytes = cuda->ops->kv_block_bytes(cuda->dev), of_ref = ref->ops->kv_block_bytes(ref->dev);
    assert_true(bytes == of_ref || (bytes > of_ref && kv == DTYPE_I8 && !layers_are_alike(&f->config)));
    char *a = must_calloc(1, bytes), *b = must_calloc(1, bytes);
    int32_t block = block_of(cuda, 0, 0);
    cuda->inspect->kv_export(cuda->dev, block, a);
    ref->inspect->kv_export(ref->dev, block, b);
    double far = 0, norm = 0;
    if (layers_are_alike(&f->config)) {
        cache_distance(cuda, a, b, kv, &far, &norm);
        assert_true(norm > 0 && sqrt(far / norm) < (dtype_row_bytes(kv, 1) > 1 ? 2e-2 : 6e-2));
    }
    cuda->inspect->kv_import(cuda->dev, block, b);
    cuda->inspect->kv_export(cuda->dev, block, a);
    assert_memory_equal(a, b, bytes);
    free(a), free(b);
    instance_close(ref);
    instance_close(cuda);
}

// Logits (n, 97) of a prompt, so many tokens a step.
static inline float *prompt_logits(const struct fixture *f, enum dtype kv, int n, int cut) {
    struct setup setup = {&backend_cuda, NULL, 1, 16, kv};
    struct instance *in = instance_open_as(f, setup, INSTANCE_EXACT, n, n, 1);
    float *logits = must_calloc((size_t)n * 97, sizeof *logits);
    for (int at = 0; at < n; at += cut) {
        int count = n - at < cut ? n - at : cut;
        struct piece p = {0, at, count, true};
        struct step_out out = run_pieces(in, &p, 1);
        memcpy(logits + at * 97, out.logits, (size_t)count * 97 * sizeof *logits);
    }
    instance_close(in);
    return logits;
}
