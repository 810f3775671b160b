// Phases of the CPU backend against the reference by tolerance, and against each other by memcmp: instruction
// sets, threads, block sizes, batches, chunks. Rules of kernels/README.md. Over 600 lines: one fixture's cases.
#include "compare.h"
#include "plain.h"
#include "rope.h"

static const struct shape shapes[] = {
    {2, 64, 8, 4, 8, 172, 512, 0, false, false, true},   // stories260K
    {2, 96, 2, 2, 48, 160, 203, 33, true, true, false},  // odd sizes, no grouping, biases, QK norm, window
    {1, 128, 7, 1, 64, 96, 100, 0, true, false, false},  // group of 7, QK norm
    {1, 64, 8, 1, 128, 64, 77, 40, false, false, false}, // group of 8, window
    {1, 33, 4, 1, 16, 51, 65, 0, false, false, true},    // group of 4; no size is a multiple of 16
    {1, 256, 8, 2, 32, 768, 70, 0, false, false, false}, // whole blocks of 256; fewer of them than segments
};
enum { NUM_SHAPES = sizeof shapes / sizeof *shapes };

static const enum dtype weight_types[] = {
    DTYPE_F32,  DTYPE_F16,  DTYPE_BF16, DTYPE_Q8_0,   DTYPE_Q4_0,  DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K,
    DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1, DTYPE_IQ4_NL, DTYPE_MXFP4, DTYPE_Q3_K, DTYPE_Q2_K, DTYPE_IQ4_XS};
enum { NUM_TYPES = sizeof weight_types / sizeof *weight_types };

// Types with blocks of 256 have one shape of their own; the others need not take its time.
static bool fits(const struct shape *s, enum dtype t) {
    return dtype_block(t) > 32 ? s->hidden % 256 == 0 : s->hidden < 256;
}

TEST(test_phases) {
    static const struct piece first[] = {{0, 0, 17, true}, {1, 0, 70, false}, {2, 0, 1, true}};
    static const struct piece second[] = {{2, 1, 1, true}, {1, 70, 1, true}, {0, 17, 5, true}};
    for (int i = 0; i < NUM_SHAPES; i++)
        for (int w = 0; w < NUM_TYPES; w++) {
            if (!fits(&shapes[i], weight_types[w]))
                continue;
            struct fixture *f = fixture_make(&shapes[i], weight_types[w]);
            for (int v = 0; v < NUM_VARIANTS; v++) {
                // Two variants, or one: test_same_bits has the bits of the others.
                int turn = (v + i + w) % NUM_VARIANTS;
                if (turn > 1 - SLOW)
                    continue;
                enum dtype kv = kv_types[(i + w + v) % NUM_KV_TYPES];
                struct setup cpu = {&backend_cpu, variants[v], 2, v == 1 ? 32 : 16, kv};
                struct setup plain = {&backend_ref, NULL, 1, cpu.block_size, kv};
                struct instance *in = instance_open(f, cpu, 96, 80, 3);
                if (!in)
                    continue;
                struct instance *ref = instance_open(f, plain, 96, 80, 3);
                compare_phases(ref, in, first, 3, tolerance(weight_types[w], kv), attention_tolerance(kv));
                compare_phases(ref, in, second, 3, tolerance(weight_types[w], kv), attention_tolerance(kv));
                instance_close(ref);
                instance_close(in);
            }
            fixture_free(f);
        }
}

// Same bits: every variant, thread count, block size, chunk length and batch.
TEST(test_same_bits) {
    static const int threads[] = {1, 2, 8}, blocks[] = {64, 48, 16, 32, 80}, chunks[] = {75, 1, 3, 16, 37};
    for (int i = 0; i < NUM_SHAPES; i++)
        for (int w = 0; w < NUM_TYPES; w++) {
            if (!fits(&shapes[i], weight_types[w]))
                continue;
            struct fixture *f = fixture_make(&shapes[i], weight_types[w]);
            enum dtype kv = kv_types[(i + w) % NUM_KV_TYPES];
            struct setup base = {&backend_cpu, "scalar", 1, 16, kv};
            struct trace expected = run_chunked(f, base, 75, 75, 0);
            for (int v = 0; v < NUM_VARIANTS; v++)
                for (int c = 0; c < 5; c++) {
                    if (v == 0 && c < 4) // slow, and the base of the others
                        continue;
                    // A half or a quarter of them for each type, the next for the next.
                    if (!harness_whole() && (c + v + i + w) % (SLOW ? 4 : 2))
                        continue;
                    struct setup s = {&backend_cpu, variants[v], threads[c % 3], blocks[(c + v) % 5], kv};
                    struct trace t = run_chunked(f, s, 75, chunks[c], c == 0 ? 0 : c == 1 ? 32 : c);
                    if (t.logits)
                        trace_equal(&expected, &t);
                    trace_free(&t);
                }
            trace_free(&expected);
            fixture_free(f);
        }
}

// Contexts over several chunks of 256: prefill, decode, window, and the reference.
TEST(test_long_context) {
    struct shape s = shapes[2];
    for (int k = 0; k < 2 * NUM_KV_TYPES; k += SLOW ? 3 : 1) {
        enum dtype kv = kv_types[k / 2];
        s.window = k % 2 * 301; // an odd one: it begins within a pair of tokens
        struct model_config m = fixture_config(&s);
        m.attn[0].sinks = k % 2;
        m.attn[0].chunked = k % 4 == 3;
        struct fixture *f = fixture_of(&m, DTYPE_F32);
        struct trace expected = {0};
        for (int v = 0; v < NUM_VARIANTS; v++)
            for (int c = 0; c < 3; c++) {
                if (SLOW && c != (v ? (v + k) % 3 : 0)) // one for each variant, another for the next cache
                    continue;
                if (v == 0 && c == 1 + k % 2) // slow
                    continue;
                struct setup setup = {&backend_cpu, variants[v], 2, c == 1 ? 48 : 16, kv};
                struct instance *in = instance_open(f, setup, 700, 704, 1);
                if (!in)
                    continue;
                struct trace t = trace_open(in);
                poison_kv(in);
                int step = c == 0 ? 660 : c == 1 ? 300 : 259;
                for (int p = 0; p < 660; p += step)
                    run_pieces(in, &(struct piece){0, p, 660 - p < step ? 660 - p : step, false}, 1);
                for (int p = 660; p < 664; p++) {
                    struct step_out out = run_pieces(in, &(struct piece){0, p, 1, true}, 1);
                    trace_add(&t, &out, in, 0);
                }
                trace_kv(&t, in, 0, 0, 664);
                instance_close(in);
                if (!expected.logits) {
                    expected = t;
                    continue;
                }
                trace_equal(&expected, &t);
                trace_free(&t);
            }
        struct setup plain = {&backend_ref, NULL, 1, 16, kv};
        struct instance *ref = instance_open(f, plain, 700, 704, 1);
        run_pieces(ref, &(struct piece){0, 0, 660, false}, 1);
        struct step_out out = run_pieces(ref, &(struct piece){0, 660, 4, true}, 1);
        assert_true(distance(expected.logits, out.logits, expected.num_logits) <
                    (kv == DTYPE_BF16 || kv == DTYPE_I8 ? 1e-2 : 1e-3));
        instance_close(ref);
        trace_free(&expected);
        fixture_free(f);
    }
}

// Random keys and values in all blocks
static void random_kv(struct instance *in, enum dtype kv) {
    const struct model_config *m = &in->model.config;
    size_t bytes = in->ops->kv_block_bytes(in->dev), half = bytes / 2 / (size_t)m->kv_layers;
    size_t vectors = (size_t)(in->block_size * m->attn[0].kv_heads),
           numbers = vectors * (size_t)m->attn[0].head_dim;
    char *block = must_calloc(1, bytes);
    for (int b = 0; b < in->limits.num_blocks; b++) {
        for (size_t h = 0; h < bytes; h += half) {
            for (size_t i = 0; i < numbers; i++)
                if (kv == DTYPE_I8)
                    block[h + i] = (char)(random_u32() % 255 - 127);
                else
                    ref_store(block + h + dtype_row_bytes(kv, (int64_t)i), kv, random_float() * 2);
            for (size_t i = 0; kv == DTYPE_I8 && i < vectors; i++)
                memcpy(block + h + numbers + 4 * i, &(float){0.01f + 0.01f * random_float()}, 4);
        }
        in->inspect->kv_import(in->dev, b, block);
    }
    free(block);
}

// Decode over contexts that several threads share, two that have room beside each other and more that have
// not, beside short ones: the bits of one thread; and the reference.
TEST(test_split_decode) {
    enum { CONTEXT = 2640 };
    static const struct piece pieces[] = {{0, 2599, 1, true}, {1, 299, 1, true},  {2, 2630, 1, true},
                                          {3, 1024, 1, true}, {4, 1100, 1, true}, {5, 0, 1, true}};
    static const int threads[] = {1, 2, 8}, blocks[] = {16, 48, 32, 16};
    for (int k = 0; k < NUM_KV_TYPES; k++)
        for (int b = 0; b < 4; b++) {
            struct shape s = shapes[b == 1 ? 1 : 3];
            s.window = b >= 2 ? 1500 : 0;
            if (b == 3) // groups of 12: more than a tile of queries
                s.heads = 24, s.kv_heads = 2, s.head_dim = 32;
            struct model_config m = fixture_config(&s);
            m.attn[0].sinks = b >= 2;
            struct fixture *f = fixture_of(&m, DTYPE_F32);
            size_t Q = (size_t)(6 * s.heads * s.head_dim);
            float *q = must_calloc(Q, sizeof *q), *want = must_calloc(Q, sizeof *want);
            for (size_t i = 0; i < Q; i++)
                q[i] = random_float() * 2;
            uint64_t seed = random_state;
            bool first = true;
            for (int v = -1; v < NUM_VARIANTS; v++)
                for (int t = 0; t < (v < 0 ? 1 : 3); t++) {
                    if (SLOW && v >= 0 && t != (v ? (v + k) % 3 : 0))
                        continue;
                    struct setup setup = {v < 0 ? &backend_ref : &backend_cpu, v < 0 ? NULL : variants[v],
                                          threads[t], blocks[b], kv_types[k]};
                    struct instance *in = instance_open(f, setup, 8, CONTEXT, 6);
                    if (!in)
                        continue;
                    random_state = seed;
                    random_kv(in, kv_types[k]);
                    struct batch *batch = batch_make(in, pieces, 6);
                    assert_int_equal(batch->step.num_decode, 6);
                    in->ops->step_begin(in->dev, &batch->step);
                    memcpy(in->act.q, q, Q * sizeof *q);
                    poison(in->act.h, Q);
                    in->ops->attn_decode(in->dev, &in->layers[0], &batch->step);
                    if (v == 0 && t == 0) { // the reference came before
                        assert_true(distance(in->act.h, want, Q) < 2 * attention_tolerance(kv_types[k]));
                        first = true;
                    }
                    if (first)
                        memcpy(want, in->act.h, Q * sizeof *want);
                    else
                        assert_memory_equal(want, in->act.h, Q * sizeof *want);
                    first = false;
                    free(batch);
                    instance_close(in);
                }
            free(q);
            free(want);
            fixture_free(f);
        }
}

// Blocks that lie outside the window of every row are not read: their entries may name no block at all.
TEST(test_window_blocks) {
    struct shape s = shapes[3];
    static const int blocks[] = {16, 32, 48, 64};
    for (int backend = 0; backend < 2; backend++)
        for (int b = 0; b < 4; b++) {
            struct fixture *f = fixture_make(&s, DTYPE_F32);
            struct setup setup = {backend ? &backend_ref : &backend_cpu, NULL, 2, blocks[b], DTYPE_F32};
            struct instance *in = instance_open(f, setup, 800, 832, 2);
            run_pieces(in, &(struct piece){0, 0, 800, false}, 1);
            for (int count = 1; count <= 5; count += 4) { // decode, prefill
                struct batch *a = batch_make(in, &(struct piece){0, 800, count, true}, 1);
                struct step_out out;
                size_t n = (size_t)count * (size_t)s.vocab;
                float *logits = must_calloc(n, sizeof *logits);
                forward(in, &a->step);
                assert_int_equal(in->ops->sync(in->dev, &out, NULL), STATUS_OK);
                memcpy(logits, out.logits, n * sizeof *logits);
                int outside = (801 - s.window) / blocks[b]; // blocks below the first that any row sees
                assert_true(outside > 10);
                for (int i = 0; i < outside; i++)
                    a->groups[0].block_ids[i] = INT32_MIN / 2;
                forward(in, &a->step);
                assert_int_equal(in->ops->sync(in->dev, &out, NULL), STATUS_OK);
                assert_memory_equal(logits, out.logits, n * sizeof *logits);
                free(logits);
                free(a);
            }
            instance_close(in);
            fixture_free(f);
        }
}

TEST(test_export_import) {
    static const int blocks[] = {16, 32, 48, 64};
    for (int k = 0; k < NUM_KV_TYPES; k++)
        for (int b = 0; b < 4; b++) {
            struct fixture *f = fixture_make(&shapes[0], DTYPE_F32);
            struct setup s = {&backend_cpu, NULL, 1, blocks[b], kv_types[k]};
            struct instance *in = instance_open(f, s, 64, 96, 2);
            size_t bytes = in->ops->kv_block_bytes(in->dev);
            unsigned char *x = must_calloc(1, bytes), *y = must_calloc(1, bytes);
            for (int i = 0; i < 2; i++) {
                for (size_t j = 0; j < bytes; j++)
                    x[j] = (unsigned char)random_u32();
                in->inspect->kv_import(in->dev, i, x);
                in->inspect->kv_export(in->dev, i, y);
                assert_memory_equal(x, y, bytes);
            }
            // A sequence moved to other blocks goes on as it would have.
            run_pieces(in, &(struct piece){0, 0, 50, false}, 1);
            struct trace t = trace_open(in), u = trace_open(in);
            for (int i = 0; i * blocks[b] < 50; i++) {
                in->inspect->kv_export(in->dev, block_of(in, 0, i), x);
                in->inspect->kv_import(in->dev, block_of(in, 1, i), x);
            }
            for (int seq = 0; seq < 2; seq++) {
                struct batch *batch = batch_make(in, &(struct piece){seq, 50, 1, true}, 1);
                batch->ids[0] = 3;
                forward(in, &batch->step);
                struct step_out out;
                in->ops->sync(in->dev, &out, NULL);
                trace_add(seq ? &u : &t, &out, in, 0);
                free(batch);
            }
            trace_equal(&t, &u);
            trace_free(&t);
            trace_free(&u);
            free(x);
            free(y);
            instance_close(in);
            fixture_free(f);
        }
}

// Rule 17, written a second time, of the vector x (d): what an int8 cache must hold.
static void assert_int8(const int8_t *q, float scale, const float *x, int d) {
    float max = 0;
    for (int i = 0; i < d; i++)
        max = fmaxf(max, fabsf(x[i]));
    assert_true(fabsf(scale - max / 127) <= 1e-6f * scale);
    for (int i = 0; i < d; i++)
        assert_true(fabsf(q[i] - x[i] * (127 / max)) <= 0.5001f);
}

// Keys, turned, and values of one layer in an int8 cache are those of an f32 cache, rounded; in the canonical form.
TEST(test_int8_cache) {
    const struct shape *shape = &shapes[2];
    const int d = shape->head_dim, B = 5;
    struct fixture *f = fixture_make(shape, DTYPE_F32);
    struct setup s = {&backend_ref, "auto", 1, B, DTYPE_F32};
    struct instance *wide = instance_open(f, s, 8, 10, 1);
    s.kv_dtype = DTYPE_I8;
    struct instance *in = instance_open(f, s, 8, 10, 1);
    run_pieces(wide, &(struct piece){0, 0, 8, false}, 1);
    run_pieces(in, &(struct piece){0, 0, 8, false}, 1);
    size_t bytes = in->ops->kv_block_bytes(in->dev);
    assert_int_equal(bytes, 2 * B * (d + 4)); // one layer, one kv head
    float *x = must_calloc(1, wide->ops->kv_block_bytes(wide->dev));
    char *y = must_calloc(1, bytes);
    for (int i = 0; i < 8; i++) {
        wide->inspect->kv_export(wide->dev, block_of(wide, 0, i / B), x);
        in->inspect->kv_export(in->dev, block_of(in, 0, i / B), y);
        for (int which = 0; which < 2; which++) {
            const char *half = y + which * B * (d + 4);
            float scale;
            memcpy(&scale, half + B * d + i % B * 4, sizeof scale);
            if (which == 0)
                plain_turn(x + i % B * d, d, 1);
            assert_int8((const int8_t *)half + i % B * d, scale, x + (which * B + i % B) * d, d);
        }
    }
    free(x);
    free(y);
    instance_close(wide);
    instance_close(in);
    fixture_free(f);

    int8_t q[4];
    float scale;
    ref_quantise(q, &scale, (float[]){1, INFINITY, -2, 0}, 4);
    assert_true(isnan(scale) && q[0] == 0 && q[1] == 0);
    ref_quantise(q, &scale, (float[]){0x1p-101f, 0, -0x1p-101f, 0}, 4);
    assert_true(scale == 0 && q[0] == 0);
    ref_quantise(q, &scale, (float[]){127, 2.5f, -3.5f, -127}, 4); // ties to even
    assert_true(scale == 1 && q[0] == 127 && q[1] == 2 && q[2] == -4 && q[3] == -127);
}

// Asynchronous scheduling (ids below 0), padding slots, and results that stay valid while the next step runs.
TEST(test_steps) {
    const struct backend_ops *const backends[] = {&backend_ref, &backend_cpu};
    for (int i = 0; i < 2; i++) {
        struct fixture *f = fixture_make(&shapes[0], DTYPE_F32);
        struct instance *in =
            instance_open(f, (struct setup){backends[i], NULL, 2, 16, DTYPE_F32}, 64, 64, 2);
        poison_kv(in);
        struct piece two[] = {{0, 0, 5, false}, {1, 0, 4, false}};
        struct batch *a = batch_make(in, two, 2);
        forward(in, &a->step);
        struct piece next[] = {{0, 5, 1, true}, {1, 4, 1, true}};
        struct batch *b = batch_make(in, next, 2);
        b->ids[0] = -1;
        b->ids[1] = -2;
        forward(in, &b->step); // before the results of the first are known
        struct step_out first, second;
        assert_int_equal(in->ops->sync(in->dev, &first, NULL), STATUS_OK);
        int32_t sampled[2] = {first.ids[0], first.ids[1]};
        assert_int_equal(in->ops->sync(in->dev, &second, NULL), STATUS_OK);
        assert_memory_equal(sampled, first.ids, sizeof sampled);
        size_t n = 2 * (size_t)shapes[0].vocab;
        float *logits = must_calloc(n, 4);
        memcpy(logits, second.logits, n * 4);

        // The same with known ids, a padding row, and its slot -1 written nowhere.
        struct batch *c = batch_make(in, next, 2);
        c->ids[0] = sampled[0];
        c->ids[1] = sampled[1];
        c->ids[2] = 0;
        c->groups[0].slots[2] = -1;
        c->step.num_tokens = 3;
        forward(in, &c->step);
        assert_int_equal(in->ops->sync(in->dev, &second, NULL), STATUS_OK);
        assert_memory_equal(logits, second.logits, n * 4);
        free(logits);
        free(a);
        free(b);
        free(c);
        instance_close(in);
        fixture_free(f);
    }
}

// Parts of one weight in different formats, as in Q4_K_M files.
TEST(test_mixed) {
    static const enum dtype mix[] = {DTYPE_Q4_K, DTYPE_Q5_K,   DTYPE_Q6_K,   DTYPE_Q8_0, DTYPE_BF16,
                                     DTYPE_Q4_0, DTYPE_Q5_0,   DTYPE_Q2_K,   DTYPE_Q5_1, DTYPE_MXFP4,
                                     DTYPE_Q3_K, DTYPE_IQ4_NL, DTYPE_IQ4_XS, DTYPE_Q4_1};
    enum { NUM_MIX = sizeof mix / sizeof *mix };
    const struct shape *s = &shapes[NUM_SHAPES - 1];
    struct fixture *f = fixture_make(s, DTYPE_F32);
    for (int i = 0, n = 0; i < f->num_weights; i++)
        for (int j = 0; j < 3; j++) {
            struct tensor *t = &f->weights[i].part[j];
            if (!t->data || t->ndim == 1)
                continue;
            free((void *)(uintptr_t)t->data);
            *t = random_tensor(mix[n++ % NUM_MIX], (int)t->shape[0], (int)t->shape[1], 0.1f);
        }
    struct setup base = {&backend_cpu, "scalar", 1, 16, DTYPE_F16};
    struct trace expected = run_chunked(f, base, 40, 40, 0);
    for (int v = 0; v < NUM_VARIANTS; v++) {
        struct setup cpu = {&backend_cpu, variants[v], 3, 16, DTYPE_F16};
        struct trace t = run_chunked(f, cpu, 40, 7, 3);
        if (t.logits)
            trace_equal(&expected, &t);
        trace_free(&t);
        struct setup plain = {&backend_ref, NULL, 1, 16, DTYPE_F16};
        struct instance *in = instance_open(f, cpu, 64, 64, 1), *ref = instance_open(f, plain, 64, 64, 1);
        if (in)
            compare_phases(ref, in, &(struct piece){0, 0, 40, true}, 1, 2e-2, attention_tolerance(DTYPE_F16));
        instance_close(in);
        instance_close(ref);
    }
    trace_free(&expected);
    fixture_free(f);
}

// A row whose activations are not finite fails; its neighbours in the batch do not change by a bit.
TEST(test_bad_row) {
    for (int w = 0; w < NUM_TYPES; w++)
        for (int v = 0; v < NUM_VARIANTS; v++) {
            struct shape shape = dtype_block(weight_types[w]) > 32 ? shapes[NUM_SHAPES - 1] : shapes[0];
            shape.ffn = dtype_block(weight_types[w]) > 32 ? 256 : 160;
            struct fixture *f = fixture_make(&shape, weight_types[w]);
            struct instance *in =
                instance_open(f, (struct setup){&backend_cpu, variants[v], 1, 16, DTYPE_F32}, 32, 32, 3);
            if (in) {
                struct piece three[] = {{0, 0, 1, true}, {1, 0, 1, true}, {2, 0, 1, true}};
                struct trace a = trace_open(in), b = trace_open(in);
                struct step_out out = run_pieces(in, three, 3);
                trace_add(&a, &out, in, 0);
                trace_add(&a, &out, in, 2);
                struct batch *batch = batch_make(in, three, 3);
                const struct step *s = &batch->step;
                in->ops->step_begin(in->dev, s);
                in->ops->embed(in->dev, &in->model, s);
                ((float *)in->act.resid)[shape.hidden + 5] = v == 0 ? NAN : INFINITY;
                for (int l = 0; l < shape.layers; l++) {
                    in->ops->qkv(in->dev, &in->layers[l], s);
                    in->ops->attn_decode(in->dev, &in->layers[l], s);
                    in->ops->attn_out(in->dev, &in->layers[l], s);
                    in->ops->ffn_in(in->dev, &in->layers[l], s);
                    in->ops->ffn_out(in->dev, &in->layers[l], s);
                }
                in->ops->head(in->dev, &in->model, s);
                in->ops->step_end(in->dev);
                assert_int_equal(in->ops->sync(in->dev, &out, NULL), STATUS_OK);
                assert_int_equal(out.failed[1], 1);
                assert_int_equal(out.ids[1], 0);
                trace_add(&b, &out, in, 0);
                trace_add(&b, &out, in, 2);
                trace_equal(&a, &b);
                trace_free(&a);
                trace_free(&b);
                free(batch);
                instance_close(in);
            }
            fixture_free(f);
        }
}

TEST(test_refusals) {
    struct fixture *f = fixture_make(&shapes[0], DTYPE_F32);
    struct device_config c = {.model = &f->config, .num_threads = 1, .kv_dtype = DTYPE_F32, .block_size = 16};
    struct err err = {0};
    c.variant = "sse9";
    assert_null(backend_cpu.open(NULL, &c, &err));
    assert_int_equal(err.code, STATUS_DEVICE);
    c.variant = "auto";
    c.kv_dtype = DTYPE_Q8_0;
    err = (struct err){0};
    assert_null(backend_cpu.open(NULL, &c, &err));
    assert_int_equal(err.code, STATUS_INVALID);
    c.kv_dtype = DTYPE_F16;
    for (int i = 0; i < 4; i++) {
        static const int sizes[] = {0, 8, 24, 1 << 17};
        c.block_size = sizes[i];
        err = (struct err){0};
        assert_null(backend_cpu.open(NULL, &c, &err));
        assert_int_equal(err.code, STATUS_INVALID);
        assert_non_null(strstr(err.msg, "multiple of 16"));
    }
    c.block_size = 16;
    struct model_config wide = f->config;
    wide.attn[0].head_dim = 2048; // a model that we cannot run is the file's fault, not the flags'
    c.model = &wide;
    err = (struct err){0};
    assert_null(backend_cpu.open(NULL, &c, &err));
    assert_int_equal(err.code, STATUS_FORMAT);
    c.model = &f->config;
    struct device *dev = backend_cpu.open(NULL, &c, NULL);
    assert_non_null(dev);
    struct weight_desc wrong = f->weights[2];
    wrong.part[1].shape[0]++;
    err = (struct err){0};
    assert_null(backend_cpu.weight_load(dev, &wrong, &err));
    assert_int_equal(err.code, STATUS_INVALID);
    for (int i = 0; i < 3; i++) { // biases: too short, of another type, of a weight that has none
        wrong = f->weights[i < 2 ? 2 : 0];
        wrong.bias[0] = random_tensor(i == 1 ? DTYPE_F16 : DTYPE_F32, 1, 64, 1);
        wrong.bias[0].ndim = 1;
        wrong.bias[0].shape[0] = i == 0 ? 63 : i == 1 ? 64 : 172;
        err = (struct err){0};
        assert_null(backend_cpu.weight_load(dev, &wrong, &err));
        assert_int_equal(err.code, STATUS_INVALID);
        assert_non_null(strstr(err.msg, "bias"));
        free((void *)(uintptr_t)wrong.bias[0].data);
    }
    struct device_info info;
    backend_cpu.info(dev, &info);
    assert_true(info.memory_free > 0);
    backend_cpu.close(dev);
    fixture_free(f);
}

// Where BF16 will do in place of F16 it is taken on AMX alone, and never in place of what was asked for.
TEST(test_either_cache) {
    static const char *const all[] = {"scalar", "avx512", "amx"};
    const struct shape shape = {1, 64, 2, 2, 32, 64, 64, .window = 0};
    struct fixture *f = fixture_make(&shape, DTYPE_F32);
    for (int i = 0; i < 12; i++) {
        bool amx = i / 4 == 2, either = i % 2, f16 = i / 2 % 2;
        struct err err = {0};
        struct device_info info;
        struct device_config config = {.model = &f->config,
                                       .num_threads = 1,
                                       .variant = all[i / 4],
                                       .kv_dtype = f16 ? DTYPE_F16 : DTYPE_F32,
                                       .kv_either = either,
                                       .block_size = 16,
                                       .world = 1};
        struct device *dev = backend_cpu.open(NULL, &config, &err);
        if (!dev) {
            assert_int_equal(err.code, STATUS_DEVICE); // a machine without
            continue;
        }
        backend_cpu.info(dev, &info);
        assert_int_equal(info.kv_dtype, amx && either && f16 ? DTYPE_BF16 : config.kv_dtype);
        backend_cpu.close(dev);
    }
    fixture_free(f);
}

TEST(test_rope) {
    struct rope_config r = {.theta = 10000, .dim = 64};
    assert_true(fabs(rope_frequency(&r, 0) - 1) < 1e-15);
    assert_true(fabs(rope_frequency(&r, 16) - 0.01) < 1e-15);
    float factors[32];
    for (int i = 0; i < 32; i++)
        factors[i] = (float)(1 + i);
    r.freq_factors = factors;
    assert_true(fabs(rope_frequency(&r, 16) - 0.01 / 17) < 1e-15);
    r.freq_factors = NULL;
    assert_true(rope_magnitude(&r) == 1);
    r.attn_factor = 1.5f; // a file may ask for it without YaRN
    assert_true(rope_magnitude(&r) == 1.5);
    r.scaling = ROPE_LINEAR;
    r.factor = 4;
    assert_true(fabs(rope_frequency(&r, 16) - 0.0025) < 1e-15);
    // Llama 3.2: theta 500000, factor 32, 1 and 4 turns in 8192 tokens
    r = (struct rope_config){.theta = 500000, .dim = 64, .scaling = ROPE_LLAMA3, .factor = 32};
    r.original_context = 8192, r.low_freq = 1, r.high_freq = 4;
    assert_true(fabs(rope_frequency(&r, 0) - 1) < 1e-15);
    double slow = pow(500000, -60.0 / 64);
    assert_true(fabs(rope_frequency(&r, 30) - slow / 32) < 1e-18);
    double mid = pow(500000, -32.0 / 64), turns = 8192 * mid / 6.283185307179586, smooth = (turns - 1) / 3;
    assert_true(turns > 1 && turns < 4);
    assert_true(fabs(rope_frequency(&r, 16) - mid * ((1 - smooth) / 32 + smooth)) < 1e-15);
    // YaRN as in Qwen2.5: theta 1e6, d 128, factor 4 of 32768: pairs up to 23 keep, from 40 on are divided
    r = (struct rope_config){
        .theta = 1e6f, .dim = 128, .scaling = ROPE_YARN, .factor = 4, .attn_factor = 1.1386f};
    r.original_context = 32768, r.beta_fast = 32, r.beta_slow = 1;
    assert_true(fabs(rope_frequency(&r, 23) / pow(1e6, -46.0 / 128) - 1) < 1e-12);
    assert_true(fabs(rope_frequency(&r, 40) / pow(1e6, -80.0 / 128) - 0.25) < 1e-12);
    double part = rope_frequency(&r, 32) / pow(1e6, -64.0 / 128);
    assert_true(fabs(part - (0.25 * 9 / 17 + 8.0 / 17)) < 1e-9);
    assert_true(fabs(rope_magnitude(&r) - 1.1386) < 1e-6);
}

int main(void) { return run_all_tests(NULL, NULL); }
