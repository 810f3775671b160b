// Comparisons for this folder's tests of whole models: phases of two backends by tolerance, and traces of steps
// bit by bit.
#pragma once

#include "fixture.h"
#include "harness.h"
#include "variants.h"

// The last is the second, but for one instruction.
enum { NUM_VARIANTS = sizeof variants / sizeof *variants - SLOW };

static const enum dtype kv_types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_I8};
enum { NUM_KV_TYPES = sizeof kv_types / sizeof *kv_types };

// The tolerance of attention against double, with the same keys and values: queries and weights are rounded to bf16
// or not.
static inline double attention_tolerance(enum dtype kv) {
    return kv == DTYPE_BF16 || kv == DTYPE_I8 ? 4e-3 : 2e-6;
}

static inline double tolerance(enum dtype weights, enum dtype kv) {
    double t = 2e-6; // one phase or a few, f32 sums against double
    t = kv == DTYPE_F16 ? 1e-4 : kv == DTYPE_BF16 || kv == DTYPE_I8 ? 1e-3 : t;
    double w = weights == DTYPE_BF16 ? 8e-3 : dtype_block(weights) > 1 ? 1.5e-2 : 0; // rounded activations
    return t + w;
}

static inline void poison(void *p, size_t n) { memset(p, 0xff, n * sizeof(float)); } // NaN

// One step, phase by phase: every phase of `in` starts from the reference's input.
static inline void compare_phases(struct instance *ref, struct instance *in, const struct piece *pieces,
                                  int n, double limit, double attention_limit) {
    struct batch *a = batch_make(ref, pieces, n), *b = batch_make(in, pieces, n);
    const struct step *s = &a->step;
    const struct model_config *m = &ref->model.config;
    size_t T = (size_t)s->num_tokens, D = T * (size_t)m->hidden;
    ref->ops->step_begin(ref->dev, s);
    in->ops->step_begin(in->dev, &b->step);
    poison(in->act.resid, D);
    ref->ops->embed(ref->dev, &ref->model, s);
    in->ops->embed(in->dev, &in->model, &b->step);
    assert_memory_equal(ref->act.resid, in->act.resid, D * 4);
    for (int i = 0; i < m->num_layers; i++) {
        const struct layer *rl = &ref->layers[i], *il = &in->layers[i];
        size_t Q = T * (size_t)(rl->attn.heads * rl->attn.head_dim), F = T * (size_t)rl->ffn.hidden;
        memcpy(in->act.resid, ref->act.resid, D * 4);
        poison(in->act.q, Q);
        ref->ops->qkv(ref->dev, rl, s);
        in->ops->qkv(in->dev, il, &b->step);
        assert_true(distance(in->act.q, ref->act.q, Q) < limit);
        size_t bytes = ref->ops->kv_block_bytes(ref->dev);
        assert_int_equal(bytes, in->ops->kv_block_bytes(in->dev));
        char *block = must_calloc(1, bytes);
        for (int j = 0; j < ref->limits.num_blocks; j++) { // the same keys and values for both
            ref->inspect->kv_export(ref->dev, j, block);
            in->inspect->kv_import(in->dev, j, block);
        }
        free(block);
        memcpy(in->act.q, ref->act.q, Q * 4);
        poison(in->act.h, Q);
        for (int which = 0; which < 2; which++) {
            struct instance *x = which ? in : ref;
            if (s->num_decode > 0)
                x->ops->attn_decode(x->dev, &x->layers[i], which ? &b->step : s);
            if (s->num_decode < s->num_seqs)
                x->ops->attn_prefill(x->dev, &x->layers[i], which ? &b->step : s);
        }
        assert_true(distance(in->act.h, ref->act.h, Q) < attention_limit);
        memcpy(in->act.h, ref->act.h, Q * 4);
        ref->ops->attn_out(ref->dev, rl, s);
        in->ops->attn_out(in->dev, il, &b->step);
        assert_true(distance(in->act.resid, ref->act.resid, D) < limit);
        memcpy(in->act.resid, ref->act.resid, D * 4);
        poison(in->act.h, F);
        ref->ops->ffn_in(ref->dev, rl, s);
        in->ops->ffn_in(in->dev, il, &b->step);
        assert_true(distance(in->act.h, ref->act.h, F) < 2 * limit);
        memcpy(in->act.h, ref->act.h, F * 4);
        ref->ops->ffn_out(ref->dev, rl, s);
        in->ops->ffn_out(in->dev, il, &b->step);
        assert_true(distance(in->act.resid, ref->act.resid, D) < limit);
    }
    memcpy(in->act.resid, ref->act.resid, D * 4);
    ref->ops->head(ref->dev, &ref->model, s);
    in->ops->head(in->dev, &in->model, &b->step);
    ref->ops->step_end(ref->dev);
    in->ops->step_end(in->dev);
    struct step_out x, y;
    assert_int_equal(ref->ops->sync(ref->dev, &x, NULL), STATUS_OK);
    assert_int_equal(in->ops->sync(in->dev, &y, NULL), STATUS_OK);
    assert_true(distance(y.logits, x.logits, (size_t)s->num_rows * (size_t)m->vocab) < limit);
    for (int r = 0; r < s->num_rows; r++) {
        assert_int_equal(y.failed[r], 0);
        assert_true(fabsf(x.logprob[r] - y.logprob[r]) < 0.05f || x.ids[r] != y.ids[r]);
    }
    free(a);
    free(b);
}

// Logits and all keys and values after some steps.
struct trace {
    float *logits;
    size_t num_logits;
    char *kv;
    size_t kv_bytes;
};

static inline struct trace trace_open(struct instance *in) {
    return (struct trace){must_calloc((size_t)8192 * (size_t)in->model.config.vocab, 4), 0, NULL, 0};
}

static inline void trace_add(struct trace *t, const struct step_out *out, const struct instance *in,
                             int row) {
    size_t V = (size_t)in->model.config.vocab;
    assert_int_equal(out->failed[row], 0);
    memcpy(t->logits + t->num_logits, out->logits + (size_t)row * V, V * 4);
    t->num_logits += V;
}

// Keys and values of tokens [0, n) of a sequence in the pages of a group, token by token: independent of the
// block size.
static inline void trace_kv(struct trace *t, struct instance *in, int group, int seq, int n) {
    const struct model_config *m = &in->model.config;
    for (int i = 0; i < m->num_attn; i++)
        if (attn_kv_places(&m->attn[i]) > 1) // in the device's own order
            return;
    size_t block_bytes = in->ops->kv_block_bytes(in->dev), rows = (size_t)m->kv_layers * 2;
    size_t half = block_bytes / rows, row = half / (size_t)in->block_size, B = (size_t)in->block_size;
    size_t vectors = (size_t)m->attn[0].kv_heads;                 // of a token
    size_t elems = vectors * (size_t)m->attn[0].head_dim;         //
    size_t scales = row == elems + 4 * vectors ? 4 * vectors : 0; // an int8 cache
    char *block = must_calloc(1, block_bytes);
    t->kv = realloc(t->kv, t->kv_bytes + (size_t)n * rows * row);
    assert_non_null(t->kv);
    for (int p = 0; p < n; p++) {
        if (p % in->block_size == 0)
            in->inspect->kv_export(in->dev, block_in(in, group, seq, p / in->block_size), block);
        for (size_t i = 0, o = (size_t)p % B; i < rows; i++, t->kv_bytes += row) {
            char *to = t->kv + t->kv_bytes, *from = block + i * half;
            memcpy(to, from + o * (row - scales), row - scales);
            memcpy(to + row - scales, from + B * (row - scales) + o * scales, scales);
        }
    }
    free(block);
}

static inline void trace_equal(struct trace *a, struct trace *b) {
    assert_int_equal(a->num_logits, b->num_logits);
    assert_int_equal(a->kv_bytes, b->kv_bytes);
    assert_memory_equal(a->logits, b->logits, a->num_logits * 4);
    if (a->kv_bytes)
        assert_memory_equal(a->kv, b->kv, a->kv_bytes);
}

static inline void trace_free(struct trace *t) {
    free(t->logits);
    free(t->kv);
}

// NaN everywhere: whatever is read without having been written shows.
static inline void poison_kv(struct instance *in) {
    size_t bytes = in->ops->kv_block_bytes(in->dev);
    char *block = must_calloc(1, bytes);
    memset(block, 0xff, bytes);
    for (int i = 0; i < in->limits.num_blocks; i++)
        in->inspect->kv_import(in->dev, i, block);
    free(block);
}

// Tokens [0, total) of sequence 0, `chunk` at a time, beside `mates` other sequences; logits of every row.
static inline struct trace run_chunked(const struct fixture *f, struct setup s, int total, int chunk,
                                       int mates) {
    int most = 3 * ((total + chunk - 1) / chunk); // tokens of a mate
    int context = mates == 0 || total > most ? total : most;
    struct instance *in = instance_open(f, s, 512, context, 1 + (mates < 32 ? mates : 32));
    struct trace t = {0};
    if (!in)
        return t;
    t = trace_open(in);
    poison_kv(in);
    for (int start = 0; start < total; start += chunk) {
        int count = total - start < chunk ? total - start : chunk, n = 0, before = 0;
        struct piece pieces[40];
        for (int i = 0; i < mates && i < 32; i += 2, before++) // decoding mates come first
            pieces[n++] = (struct piece){1 + i, start / chunk, 1, false};
        if (count == 1)
            pieces[n++] = (struct piece){0, start, 1, true};
        else
            pieces[n++] = (struct piece){0, start, count, true};
        for (int i = 1; i < mates && i < 32; i += 2)
            pieces[n++] = (struct piece){1 + i, 3 * (start / chunk), 3, false};
        struct step_out out = run_pieces(in, pieces, n);
        for (int i = 0; i < count; i++)
            trace_add(&t, &out, in, before + i);
    }
    for (int g = 0; g < in->model.config.num_groups; g++)
        trace_kv(&t, in, g, 0, total);
    instance_close(in);
    return t;
}
