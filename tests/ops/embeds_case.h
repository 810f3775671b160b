// Rows that bring embeddings of their own (step.embeds): what a backend makes of them.
#pragma once

#include "fixture.h"
#include "harness.h"
#include "ref_ops.h"

// Some rows of each step bring the embeddings of their tokens, over ids of other tokens: the bits are those of the tokens.
// Other embeddings give others.
static inline void check_embeds(struct setup s, const struct model_config *m, enum dtype dtype) {
    struct fixture *f = fixture_of(m, dtype);
    const int D = m->hidden, V = m->vocab;
    const struct ref_matrix table = {f->weights[0].part[0].data, f->weights[0].part[0].dtype, V, D, NULL};
    struct instance *in = instance_load(f, s, 0);
    assert_int_equal(f->weights[0].role, WEIGHT_EMBED);
    if (!in) {
        fixture_free(f);
        return;
    }
    instance_reserve(in, (struct step_limits){.max_tokens = 64,
                                              .max_seqs = 3,
                                              .max_rows = 64,
                                              .max_context = 64,
                                              .num_blocks = 3 * ((64 + s.block_size - 1) / s.block_size),
                                              .keep_logits = true,
                                              .has_types = m->token_types > 1,
                                              .embed_size = D});
    float *want = must_calloc((size_t)(64 * V), sizeof *want), *embeds = must_calloc((size_t)(64 * D), 4);
    for (int i = 0; i < FIXTURE_MIXES; i++) {
        size_t bytes = 0;
        for (int which = 0; which < 3; which++) { // other embeddings, ids, the embeddings of these
            struct batch *b = batch_make(in, fixture_mixes[i].pieces, fixture_mixes[i].n);
            struct step_out out;
            int32_t rows[64];
            for (int t = 0; which != 1 && t < b->step.num_tokens; t++) {
                if ((t + i) % 3 == 1 && i < 4) // of the last step all
                    continue;
                float *row = embeds + b->step.num_embeds * D;
                for (int d = 0; d < D; d++)
                    row[d] = ref_element(&table, b->ids[t], d) + (which ? 0 : 0.25f * (float)(d % 3));
                rows[b->step.num_embeds++] = t;
                b->ids[t] = (b->ids[t] + 1 + t) % V;
            }
            b->step.embed_rows = b->step.num_embeds > 0 ? rows : NULL;
            b->step.embeds = b->step.num_embeds > 0 ? embeds : NULL;
            forward(in, &b->step);
            assert_int_equal(in->ops->sync(in->dev, &out, NULL), STATUS_OK);
            bytes = (size_t)b->step.num_rows * (size_t)V * sizeof *want;
            if (which == 1)
                assert_true(memcmp(want, out.logits, bytes) != 0);
            if (which == 2 && memcmp(want, out.logits, bytes) != 0)
                fail_msg("%s: step %d: embeddings of %s are not their tokens'",
                         s.variant ? s.variant : s.ops->name, i, dtype_name(dtype));
            memcpy(want, out.logits, bytes);
            free(b);
        }
    }
    free(want), free(embeds);
    instance_close(in);
    fixture_free(f);
}

// Scaled embeddings; and ones with positions, types and a norm.
static inline void check_embeds_of_all(struct setup s) {
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_K};
    const struct shape shape = {
        .layers = 2, .hidden = 256, .heads = 4, .kv_heads = 2, .head_dim = 64, .ffn = 96, .vocab = 131};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct model_config m = fixture_config(&shape);
        m.embed_scale = 1.7f;
        check_embeds(s, &m, types[i]);
        m = fixture_config(&shape);
        m.positions = 64, m.token_types = 2, m.embed_norm = true, m.norm = NORM_LAYER, m.norm_bias = true;
        check_embeds(s, &m, types[i]);
    }
}
