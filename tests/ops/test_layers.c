// Layers and steps that differ: attention specs, KV groups, pages that a window has given back, hidden
// states, copies of pages, masks that are computed meanwhile. ref against cpu by tolerance, cpu by memcmp.
#include "axes_case.h"
#include "compare.h"
#include "device.h"
#include "embeds_case.h"
#include "rope.h"
#include "variants.h"

static const struct backend_ops *const backends[] = {&backend_ref, &backend_cpu};
static const int block_sizes[] = {16, 32, 48, 64, 80, 128};
enum { NUM_BLOCK_SIZES = sizeof block_sizes / sizeof *block_sizes };
enum { NEXT = 7 }; // combination: some, which have every kind

static const struct shape mixed = {4, 64, 4, 2, 16, 96, 131, 33, true, true, true};

// Layers that differ, over two groups: phases against the reference, then whole steps.
TEST(test_mixed_layers) {
    static const struct piece first[] = {{0, 0, 17, true}, {1, 0, 70, false}, {2, 0, 1, true}};
    static const struct piece second[] = {{2, 1, 1, true}, {1, 70, 1, true}, {0, 17, 5, true}};
    struct fixture *f = fixture_make_mixed(&mixed, DTYPE_F32);
    for (int k = 0; k < NUM_KV_TYPES * NUM_BLOCK_SIZES; k += NEXT) {
        enum dtype kv = kv_types[k % NUM_KV_TYPES];
        struct setup cpu = {&backend_cpu, variants[k % NUM_VARIANTS], 1 + k % 3,
                            block_sizes[k / NUM_KV_TYPES], kv};
        struct setup plain = {&backend_ref, NULL, 1, cpu.block_size, kv};
        struct instance *in = instance_open(f, cpu, 96, 80, 3);
        if (!in)
            continue;
        struct instance *ref = instance_open(f, plain, 96, 80, 3);
        compare_phases(ref, in, first, 3, tolerance(DTYPE_F32, kv), attention_tolerance(kv));
        compare_phases(ref, in, second, 3, tolerance(DTYPE_F32, kv), attention_tolerance(kv));
        instance_close(ref);
        instance_close(in);
    }
    for (int k = 0; k < NUM_KV_TYPES; k++) {
        struct setup plain = {&backend_ref, NULL, 1, 16, kv_types[k]},
                     base = {&backend_cpu, "scalar", 1, 16, kv_types[k]};
        struct trace want = run_chunked(f, plain, 75, 75, 0), expected = run_chunked(f, base, 75, 75, 0);
        double limit = kv_types[k] == DTYPE_BF16 || kv_types[k] == DTYPE_I8 ? 2e-2 : 1e-3;
        assert_true(distance(expected.logits, want.logits, want.num_logits) < limit);
        for (int v = 0; v < NUM_VARIANTS; v++)
            for (int b = 0; b < NUM_BLOCK_SIZES; b++) {
                static const int chunks[] = {1, 75, 16, 37, 3, 20};
                struct setup s = {&backend_cpu, variants[v], 1 + b % 3, block_sizes[b], kv_types[k]};
                struct trace t = {0};
                if (!SLOW || (v + b + k) % 4 == 0)
                    t = run_chunked(f, s, 75, chunks[(b + v) % 6], b * 3 % 8);
                if (t.logits)
                    trace_equal(&expected, &t);
                trace_free(&t);
            }
        trace_free(&want);
        trace_free(&expected);
    }
    fixture_free(f);
}

// Layers that keep more than others take several places of a page: the bits of whole steps, and the reference.
TEST(test_places) {
    struct model_config m = fixture_config(&mixed);
    fixture_mix_places(&m);
    struct fixture *f = fixture_of(&m, DTYPE_F32);
    for (int k = 0; k < NUM_KV_TYPES; k++) {
        struct setup plain = {&backend_ref, NULL, 1, 16, kv_types[k]},
                     base = {&backend_cpu, "scalar", 1, 16, kv_types[k]};
        struct trace want = run_chunked(f, plain, 75, 75, 0), expected = run_chunked(f, base, 75, 75, 0);
        double limit = kv_types[k] == DTYPE_BF16 || kv_types[k] == DTYPE_I8 ? 2e-2 : 1e-3;
        assert_true(distance(expected.logits, want.logits, want.num_logits) < limit);
        for (int i = 0; i < NUM_VARIANTS * NUM_BLOCK_SIZES; i += SLOW ? 5 : harness_whole() ? 1 : 3) {
            static const int chunks[] = {1, 75, 16, 37, 3, 20};
            struct setup s = {&backend_cpu, variants[i % NUM_VARIANTS], 1 + i % 3,
                              block_sizes[i % NUM_BLOCK_SIZES], kv_types[k]};
            struct trace t = run_chunked(f, s, 75, chunks[i / 2 % 6], i * 3 % 8);
            if (t.logits)
                trace_equal(&expected, &t);
            trace_free(&t);
        }
        trace_free(&want);
        trace_free(&expected);
    }
    fixture_free(f);
}

// All rows at once give the bits that they give some at a time, where the processor has the instructions.
static void check_chunks(const struct fixture *f, struct setup cpu, int total, int chunk) {
    struct trace want = run_chunked(f, cpu, total, chunk, 0), got = run_chunked(f, cpu, total, total, 0);
    if (want.logits)
        trace_equal(&want, &got);
    trace_free(&want);
    trace_free(&got);
}

// Gate and up of unlike types, whose kernels take other numbers of tokens at a time: all rows at once give the
// bits that they give one by one.
TEST(test_unlike_factors) {
    static const struct shape s = {1, 256, 4, 2, 64, 256, 131, 0, false, false, false};
    static const enum dtype factors[][2] = {
        {DTYPE_BF16, DTYPE_Q8_0}, {DTYPE_Q8_0, DTYPE_BF16}, {DTYPE_Q4_K, DTYPE_F16}, {DTYPE_F32, DTYPE_Q6_K}};
    for (int i = 0; i < 4; i++) {
        struct fixture *f = fixture_make(&s, factors[i][0]);
        for (int k = 0; k < f->num_weights; k++) {
            struct tensor *up = &f->weights[k].part[1];
            if (f->weights[k].role != WEIGHT_GATE_UP)
                continue;
            free((void *)(uintptr_t)up->data);
            *up = random_tensor(factors[i][1], s.ffn, s.hidden, 0.1f);
        }
        for (int v = 0; v <= NUM_VARIANTS; v++) {
            struct setup cpu = {&backend_cpu, v < NUM_VARIANTS ? variants[v] : "amx", 1 + v % 2, 16,
                                DTYPE_F32};
            check_chunks(f, cpu, 150, 1);
        }
        fixture_free(f);
    }
}

// With many tokens AMX takes a long K in pieces, both if sums are one chain (hidden) and if they are a tree of four
// or eight (ffn). The bits are those of few tokens, whose K it takes as a whole.
TEST(test_pieces_of_k) {
    static const struct {
        int hidden, ffn;
        enum dtype dtype;
    } cases[] = {{1536, 256, DTYPE_Q8_0}, {1536, 256, DTYPE_Q4_K}, {1536, 256, DTYPE_Q6_K},
                 {1312, 96, DTYPE_BF16},  {96, 2816, DTYPE_Q4_1},  {96, 2816, DTYPE_BF16},
                 {64, 5632, DTYPE_Q8_0},  {64, 5632, DTYPE_BF16}};
    const char *variant = cpu_kernels_find("amx") ? "amx" : "amx-emulated";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct shape s = {1, cases[i].hidden, 2, 1, 24, cases[i].ffn, 131, 0, false, false, false};
        struct fixture *f = fixture_make(&s, cases[i].dtype);
        struct setup cpu = {&backend_cpu, variant, 2, 16, DTYPE_F32};
        check_chunks(f, cpu, 500, 32);
        fixture_free(f);
    }
}

// open() refuses layers that take places which pages lack, and specs with numbers out of range.
TEST(test_refused_layers) {
    for (int i = 0; i < 6; i++) {
        struct model_config m = fixture_config(&mixed);
        fixture_mix(&m);
        m.attn[1].kv_heads = i == 0 ? 3 : m.attn[1].kv_heads;
        m.attn[2].kv_places = i == 1 ? 2 : 0;
        m.attn[0].rope = i == 2 ? 2 : m.attn[0].rope;
        m.layers[3].attn = i == 3 ? 3 : m.layers[3].attn;
        m.layers[3].kv_layer = i == 4 ? 2 : m.layers[3].kv_layer;
        struct device_config c = {.model = &m, .num_threads = 1, .kv_dtype = DTYPE_F16, .block_size = 16};
        struct err err = {0};
        struct device *dev = backend_cpu.open(NULL, &c, &err);
        assert_int_equal(dev != NULL, i == 5);
        assert_int_equal(err.code, i == 5 ? STATUS_OK : STATUS_FORMAT);
        backend_cpu.close(dev);
    }
}

// Gives back the pages of group 0 that lie wholly before what the window of the piece's first row keeps: they
// are page 0 from now on. Returns how many.
static int give_back(const struct instance *in, struct batch *b, int first_position) {
    int kept =
        kv_first_kept(first_position, in->model.config.attn[0].window, in->model.config.attn[0].chunked) /
        in->block_size;
    for (int i = 0; i < kept; i++)
        b->groups[0].block_ids[i] = 0;
    return kept;
}

// Page 0 shows where it is read: a row fails where that is named for the first token in its window.
static void fail_by_page_0(struct instance *in, struct batch *b, int position) {
    const struct attn_spec *a = &in->model.config.attn[0];
    int first = kv_first_seen(position, a->window, a->chunked), at = first / in->block_size;
    struct step_out out;
    if (first <= 0)
        return;
    int32_t page = b->groups[0].block_ids[at];
    b->groups[0].block_ids[at] = 0;
    forward(in, &b->step);
    assert_int_equal(in->ops->sync(in->dev, &out, NULL), STATUS_OK);
    assert_int_equal(out.failed[0], 1);
    b->groups[0].block_ids[at] = page;
}

// Pages that a window has given back are page 0, which holds NaN: nothing of it is in any result.
TEST(test_given_back_pages) {
    static const struct piece pieces[] = {{0, 400, 1, true},  {0, 447, 1, true},  {0, 400, 5, true},
                                          {0, 383, 70, true}, {0, 1500, 1, true}, {0, 1491, 9, true}};
    static const int windows[] = {40, 129, 1200}; // the last is split among threads where it decodes
    struct shape s = {2, 64, 8, 2, 32, 64, 77, 0, false, false, false};
    int given_back = 0;
    for (int k = 0; k < 3 * NUM_KV_TYPES * NUM_BLOCK_SIZES; k += NEXT) {
        s.window = windows[k % 3];
        struct model_config m = fixture_config(&s);
        m.attn[0].chunked = k % 4 == 1;
        if (k / 3 % 2)
            fixture_mix(&m);
        struct fixture *f = fixture_of(&m, DTYPE_F32);
        enum dtype kv = kv_types[k / 3 % NUM_KV_TYPES];
        int B = block_sizes[k / 3 / NUM_KV_TYPES];
        for (int v = -1; v < NUM_VARIANTS; v++) {
            struct setup setup = {v < 0 ? &backend_ref : &backend_cpu, v < 0 ? NULL : variants[v],
                                  1 + k % 2 * 2, B, kv};
            if ((v < 0 && k % 12) || (v == 0 && k % 4) || (SLOW && (k + v) % 3)) // those take their time
                continue;
            struct instance *in = instance_open_as(f, setup, INSTANCE_SPARE_BLOCK, 1600, 1600, 1);
            if (!in)
                continue;
            poison_kv(in); // page 0, too, which nobody writes
            run_pieces(in, &(struct piece){0, 0, 1510, false}, 1);
            for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
                struct batch *b = batch_make(in, &pieces[i], 1);
                struct step_out out;
                size_t n = (size_t)b->step.num_rows * (size_t)s.vocab;
                float *logits = must_calloc(n, sizeof *logits);
                forward(in, &b->step);
                assert_int_equal(in->ops->sync(in->dev, &out, NULL), STATUS_OK);
                memcpy(logits, out.logits, n * sizeof *logits);
                given_back += give_back(in, b, pieces[i].start);
                fail_by_page_0(in, b, pieces[i].start);
                forward(in, &b->step);
                assert_int_equal(in->ops->sync(in->dev, &out, NULL), STATUS_OK);
                assert_memory_equal(logits, out.logits, n * sizeof *logits);
                for (int r = 0; r < b->step.num_rows; r++)
                    assert_int_equal(out.failed[r], 0);
                free(logits);
                free(b);
            }
            instance_close(in);
        }
        fixture_free(f);
    }
    assert_true(given_back > (SLOW ? 100 : 1000));
}

// The final norm's output of each logits row, of more rows than the head takes at a time; none where nobody
// asks.
TEST(test_hidden) {
    enum { ROWS = 150 };
    struct fixture *f = fixture_make_mixed(&mixed, DTYPE_F32);
    size_t n = ROWS * (size_t)mixed.hidden;
    float *want = must_calloc(n, sizeof *want);
    for (int v = -1; v < NUM_VARIANTS; v++) {
        struct setup s = {v < 0 ? &backend_ref : &backend_cpu, v < 0 ? NULL : variants[v], 1 + (v & 1), 16,
                          DTYPE_F32};
        struct instance *in = instance_open_as(f, s, INSTANCE_HIDDEN, ROWS, ROWS, 1);
        if (!in)
            continue;
        struct step_out out = run_pieces(in, &(struct piece){0, 0, ROWS, true}, 1);
        assert_non_null(out.hidden);
        if (v < 0)
            memcpy(want, out.hidden, n * sizeof *want);
        assert_true(distance(out.hidden, want, n) < 1e-4);
        if (v == 0)
            memcpy(want, out.hidden, n * sizeof *want);
        else
            assert_memory_equal(out.hidden, want, n * sizeof *want);
        // They are what the head multiplies.
        const struct tensor *head = &f->weights[f->num_weights - 1].part[0];
        struct ref_matrix m = {head->data, head->dtype, mixed.vocab, mixed.hidden, NULL};
        float logits[256];
        for (int r = 0; r < ROWS; r += 49) {
            ref_matvec(logits, out.hidden + (size_t)r * (size_t)mixed.hidden, &m);
            assert_true(distance(out.logits + r * mixed.vocab, logits, (size_t)mixed.vocab) < 1e-5);
        }
        instance_close(in);
        in = instance_open(f, s, 8, 16, 1);
        out = run_pieces(in, &(struct piece){0, 0, 3, true}, 1);
        assert_null(out.hidden);
        instance_close(in);
    }
    free(want);
    fixture_free(f);
}

// Pages are copied before the phases of the step that names them, in the order of the moves; a sequence goes
// on in the copies as in its own.
TEST(test_moves) {
    enum { TOKENS = 50 };
    struct fixture *f = fixture_make_mixed(&mixed, DTYPE_F32);
    for (int k = 0; k < 2 * NUM_KV_TYPES * NUM_BLOCK_SIZES; k += NEXT) {
        struct setup s = {backends[k % 2], NULL, 2, block_sizes[k / 2 / NUM_KV_TYPES],
                          kv_types[k / 2 % NUM_KV_TYPES]};
        struct instance *in = instance_open(f, s, 64, 96, 3);
        struct kv_move moves[3 * 2 * TOKENS];
        struct trace own = trace_open(in), copy = trace_open(in);
        int num_moves = 0;
        poison_kv(in);
        run_pieces(in, &(struct piece){0, 0, TOKENS, false}, 1);
        for (int g = 0; g < 2; g++)
            for (int i = 0; i * s.block_size < TOKENS;
                 i++) { // by way of the host and a third sequence's pages
                int third = block_in(in, g, 2, i);
                moves[num_moves++] =
                    (struct kv_move){.from = block_in(in, g, 0, i), .to = 1, .to_tier = KV_HOST};
                moves[num_moves++] = (struct kv_move){.from = 1, .from_tier = KV_HOST, .to = third};
                moves[num_moves++] = (struct kv_move){.from = third, .to = block_in(in, g, 1, i)};
            }
        for (int seq = 1; seq >= 0; seq--) {
            struct batch *b = batch_make(in, &(struct piece){seq, TOKENS, 1, true}, 1);
            struct step_out out;
            b->ids[0] = 3;
            b->step.moves = moves;
            b->step.num_moves = seq ? num_moves : 0;
            forward(in, &b->step);
            assert_int_equal(in->ops->sync(in->dev, &out, NULL), STATUS_OK);
            trace_add(seq ? &copy : &own, &out, in, 0);
            for (int g = 0; g < 2; g++)
                trace_kv(seq ? &copy : &own, in, g, seq, TOKENS + 1);
            free(b);
        }
        trace_equal(&own, &copy);
        trace_free(&own);
        trace_free(&copy);
        instance_close(in);
    }
    fixture_free(f);
}

TEST(test_embeds) {
    check_embeds_of_all((struct setup){&backend_ref, NULL, 1, 16, DTYPE_F32});
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++)
        check_embeds_of_all((struct setup){&backend_cpu, variants[v], 1 + (int)v % 3, 16, DTYPE_F16});
}

TEST(test_axes) {
    check_axes_of_all((struct setup){&backend_ref, NULL, 1, 16, DTYPE_F32}, 0);
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++)
        check_axes_of_all((struct setup){&backend_cpu, variants[v], 1 + (int)v % 3, 16, DTYPE_F32}, 1e-5);
}

struct late_masks {
    uint32_t bits[150][5]; // of 131 tokens; none is allowed until they are computed
    const uint32_t *rows[150];
    int num_rows, calls;
};

static void compute_masks(void *arg) {
    struct late_masks *m = arg;
    m->calls++;
    for (int r = 0; r < m->num_rows; r++)
        m->bits[r][r % 131 / 32] = 1u << r % 131 % 32;
}

// Masks are computed while the step runs: a device waits for them once, before it reads the first.
TEST(test_late_masks) {
    struct fixture *f =
        fixture_make(&(struct shape){1, 64, 4, 2, 16, 96, 131, 0, false, false, false}, DTYPE_F32);
    for (int i = 0; i < 2; i++)
        for (int rows = 1; rows <= 150; rows += 149) {
            struct instance *in =
                instance_open(f, (struct setup){backends[i], NULL, 2, 16, DTYPE_F32}, 150, 160, 1);
            struct late_masks *m = must_calloc(1, sizeof *m);
            struct batch *b = batch_make(in, &(struct piece){0, 0, rows, true}, 1);
            struct step_out out;
            m->num_rows = rows;
            for (int r = 0; r < rows; r++)
                m->rows[r] = r % 3 == 2 ? NULL : m->bits[r];
            b->step.masks = m->rows;
            b->step.masks_wait = compute_masks;
            b->step.masks_arg = m;
            forward(in, &b->step);
            assert_int_equal(in->ops->sync(in->dev, &out, NULL), STATUS_OK);
            assert_int_equal(m->calls, 1);
            for (int r = 0; r < rows; r++) {
                assert_int_equal(out.failed[r], 0);
                assert_true(r % 3 == 2 || out.ids[r] == r % 131);
            }
            b->step.masks_wait = NULL; // they are there
            forward(in, &b->step);
            b->step.masks = NULL;
            b->step.masks_wait = compute_masks; // nothing to wait for
            forward(in, &b->step);
            assert_int_equal(in->ops->sync(in->dev, &out, NULL), STATUS_OK);
            assert_int_equal(out.ids[0], 0);
            assert_int_equal(in->ops->sync(in->dev, &out, NULL), STATUS_OK);
            assert_int_equal(m->calls, 1);
            free(m);
            free(b);
            instance_close(in);
        }
    fixture_free(f);
}

static void assert_rope(const struct rope_table *t, const struct rope_config *r) {
    for (int p = 0; p < t->filled; p++)
        for (int i = 0; i < t->pairs; i++) {
            double angle = p * rope_frequency(r, i);
            assert_true(t->cos[p * t->pairs + i] == (float)(cos(angle) * rope_magnitude(r)));
            assert_true(t->sin[p * t->pairs + i] == (float)(sin(angle) * rope_magnitude(r)));
        }
}

// Tables are filled as far as contexts have come, and no further than a little ahead.
TEST(test_rope_tables) {
    const struct rope_config r = {.theta = 500000, .dim = 64, .factor = 1, .attn_factor = 1.25f};
    struct pool *pool = pool_open(3);
    struct rope_table t;
    assert_true(rope_table_open(&t, &r, 131072));
    assert_int_equal(t.filled, 0);
    static const int contexts[] = {1, 700, 1024, 1025, 1500, 5000};
    for (int i = 0, before = 0; i < 6; i++, before = t.filled) {
        rope_table_fill(&t, pool, contexts[i]);
        assert_true(t.filled >= contexts[i] && t.filled <= contexts[i] + 1024);
        assert_true(t.filled >= before);
        assert_rope(&t, &r);
    }
    rope_table_close(&t);
    assert_true(rope_table_open(&t, &r, 100)); // not past the longest context
    rope_table_fill(&t, pool, 100);
    assert_int_equal(t.filled, 100);
    assert_rope(&t, &r);
    rope_table_close(&t);
    pool_close(pool);

    struct fixture *f = fixture_make_mixed(&mixed, DTYPE_F32);
    struct instance *in = instance_open(f, (struct setup){&backend_cpu, NULL, 2, 16, DTYPE_F32}, 8, 4096, 1);
    assert_int_equal(in->dev->ropes[0].filled + in->dev->ropes[1].filled, 0);
    run_pieces(in, &(struct piece){0, 0, 8, false}, 1);
    run_pieces(in, &(struct piece){0, 1100, 8, false}, 1);
    for (int i = 0; i < 2; i++) {
        assert_in_range(in->dev->ropes[i].filled, 1108, 3000);
        assert_rope(&in->dev->ropes[i], &f->config.ropes[i]);
    }
    instance_close(in);
    fixture_free(f);
}

int main(void) { return run_all_tests(NULL, NULL); }
