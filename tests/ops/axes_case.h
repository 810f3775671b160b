// Rows that rotate by positions of three axes (step.rope_positions): what a backend makes of them.
#pragma once

#include "fixture.h"
#include "harness.h"

enum axes { NO_AXES, EQUAL_AXES, OTHER_AXES };

// The logits of some steps, whose rows have no axes, such that are equal, or others.
static inline float *axes_logits(const struct fixture *f, struct setup s, enum axes how, size_t *n) {
    const int V = f->config.vocab;
    struct instance *in = instance_open(f, s, 64, 64, 3);
    *n = 0;
    if (!in)
        return NULL;
    float *logits = must_calloc((size_t)(FIXTURE_MIXES * 64 * V), sizeof *logits);
    for (int i = 0; i < FIXTURE_MIXES; i++) {
        struct batch *b = batch_make(in, fixture_mixes[i].pieces, fixture_mixes[i].n);
        struct step_out out;
        int32_t axes[ROPE_AXES][64];
        const int T = b->step.num_tokens;
        for (int t = 0; t < T; t++)
            for (int a = 0; a < ROPE_AXES; a++) // of axis a from &axes[0][0] + a * T on
                (&axes[0][0])[a * T + t] = how == OTHER_AXES ? b->positions[t] / (1 + a) : b->positions[t];
        b->step.rope_positions = how == NO_AXES ? NULL : &axes[0][0];
        forward(in, &b->step);
        assert_int_equal(in->ops->sync(in->dev, &out, NULL), STATUS_OK);
        size_t rows = (size_t)b->step.num_rows * (size_t)V;
        memcpy(logits + *n, out.logits, rows * sizeof *logits);
        *n += rows;
        free(b);
    }
    instance_close(in);
    return logits;
}

// Equal axes give the bits of none, others what kernels/ref has, within `bound`.
static inline void check_axes(struct setup s, const struct model_config *m, double bound) {
    struct fixture *f = fixture_of(m, DTYPE_F32);
    const struct setup ref = {&backend_ref, NULL, 1, s.block_size, s.kv_dtype};
    size_t n;
    float *none = axes_logits(f, s, NO_AXES, &n);
    if (none) {
        float *equal = axes_logits(f, s, EQUAL_AXES, &n), *other = axes_logits(f, s, OTHER_AXES, &n),
              *want = axes_logits(f, ref, OTHER_AXES, &n);
        assert_memory_equal(none, equal, n * sizeof *none);
        double far = distance(other, want, n);
        if (!(far <= bound) || distance(none, want, n) < 4 * bound)
            fail_msg("%s: %g apart, %g without axes", s.variant ? s.variant : s.ops->name, far,
                     distance(none, want, n));
        free(equal), free(other), free(want);
    }
    free(none);
    fixture_free(f);
}

// Sections and turns; halves and neighbours; a part of a head; layers with rotations of their own.
static inline void check_axes_of_all(struct setup s, double bound) {
    static const struct rope_sections sections[] = {
        {{8, 12, 12}, false}, {{12, 11, 9}, true}, {{20, 8, 4}, true}};
    struct shape shape = {
        .layers = 3, .hidden = 128, .heads = 4, .kv_heads = 2, .head_dim = 64, .ffn = 96, .vocab = 131};
    for (int i = 0; i < 6; i++) {
        shape.interleaved = i % 2;
        struct model_config m = fixture_config(&shape);
        m.attn[0].qk_norm = i == 1 ? QK_NORM_ROTATED : QK_NORM_NONE;
        m.ropes[0].sections = sections[i / 2];
        if (i == 3)
            fixture_mix(&m);
        if (i == 3)
            m.ropes[1].sections = (struct rope_sections){{6, 6, 4}, false}, m.ropes[1].dim = 32;
        if (i == 4)
            m.ropes[0].sections.size[0] = 4, m.ropes[0].dim = 32;
        assert_true(model_has_axes(&m));
        check_axes(s, &m, bound);
    }
}
