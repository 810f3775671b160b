// Steps on the emulated runtime beside their rows: CUDA graphs, asynchronous steps, pages that a
// window gave back or that are copied, hidden states, masks that come late.
// Over 600 lines: graphs, groups, entries and hidden states share the steps that are built here.
#include "harness.h"

#include "backend_cuda.h"
#define FIXTURE_INSPECT &inspect_cuda
#include "fixture.h"
#include "rt.h"

static const struct attn_spec LATENT = {
    .heads = 2, .kv_lora = 512, .q_lora = 24, .nope_dim = 8, .rope_dim = 64, .v_dim = 8};

// ---- CUDA graphs

// Without logits: else there are no graphs.
static struct instance *open_graphs_as(const struct fixture *f, int flags, int tokens, int context,
                                       int seqs) {
    struct setup s = {&backend_cuda, NULL, 1, 16, DTYPE_F16};
    struct instance *in = instance_open_as(f, s, INSTANCE_NO_LOGITS | flags, tokens, context, seqs);
    assert_non_null(in);
    return in;
}
static struct instance *open_graphs(const struct fixture *f, int tokens, int context, int seqs) {
    return open_graphs_as(f, 0, tokens, context, seqs);
}

// Greedy decoding of `seqs` sequences, each step's tokens fed on the device (ids -1-r) or by the host.
static int decode(struct instance *in, int seqs, int steps, bool on_device, int32_t *ids, float *logprobs) {
    int replayed = 0;
    struct piece pieces[8];
    struct step_out out;
    for (int t = 0; t < steps; t++) {
        for (int s = 0; s < seqs; s++)
            pieces[s] = (struct piece){s, t == 0 ? 0 : 4 + s + t - 1, t == 0 ? 4 + s : 1, false};
        struct batch *b = batch_make(in, pieces, seqs);
        for (int s = 0; t > 0 && s < seqs; s++)
            b->ids[s] = on_device ? -1 - s : ids[(t - 1) * seqs + s];
        for (int s = 0; s < seqs; s++) { // some sample, some have entries
            b->rows[s].temperature = s == 1 ? 0.8f : 0;
            b->rows[s].seed = 99;
            b->rows[s].index = t;
            b->rows[s].top_k = s == 1 ? 20 : 0;
        }
        static struct logit_entry entries[2] = {{5, 1, 0.5f}, {5, 1.2f, -0.1f}};
        b->step.entries = entries;
        b->step.num_entries = 2;
        if (seqs > 2 && t >= 6) {
            b->rows[2].entry_start = 0;
            b->rows[2].entry_end = 2;
        }
        replayed += forward(in, &b->step);
        assert_int_equal(in->ops->sync(in->dev, &out, NULL), STATUS_OK);
        for (int s = 0; s < seqs; s++) {
            assert_int_equal(out.failed[s], 0);
            ids[t * seqs + s] = out.ids[s];
            logprobs[t * seqs + s] = out.logprob[s];
        }
        free(b);
    }
    return replayed;
}

TEST(test_graphs) {
    enum { STEPS = 14, SEQS = 3 };
    static const struct shape shapes[] = {
        {2, 64, 2, 1, 64, 44, 97, 0, false, false, false}, // fast attention
        {2, 64, 4, 2, 16, 44, 97, 9, false, false, true},  // general attention, a window
        {4, 64, 2, 1, 64, 44, 97, 9, false, false, false}, // several specs and groups
    };
    for (int i = 0; i < 4; i++) {
        struct model_config latent = fixture_latent_config(&LATENT, 2);
        struct fixture *f = i == 3   ? fixture_of(&latent, DTYPE_BF16)
                            : i == 2 ? fixture_make_mixed(&shapes[i], DTYPE_BF16)
                                     : fixture_make(&shapes[i], DTYPE_BF16);
        int32_t plain[STEPS * SEQS], ids[STEPS * SEQS];
        float plain_logprobs[STEPS * SEQS], logprobs[STEPS * SEQS];
        setenv("QUIRE_CUDA_GRAPHS", "0", 1);
        struct instance *in = open_graphs(f, 64, 64, SEQS);
        assert_int_equal(decode(in, SEQS, STEPS, false, plain, plain_logprobs), 0);
        instance_close(in);
        unsetenv("QUIRE_CUDA_GRAPHS");
        for (int on_device = 0; on_device < 2; on_device++) {
            in = open_graphs(f, 64, 64, SEQS);
            int replayed = decode(in, SEQS, STEPS, on_device, ids, logprobs);
            instance_close(in);
            assert_true(replayed >= 6);
            // Padded to 4 rows, captured, replayed: the same bits.
            assert_memory_equal(ids, plain, sizeof ids);
            assert_memory_equal(logprobs, plain_logprobs, sizeof logprobs);
        }
        fixture_free(f);
    }
}

static bool is_emulated(const struct instance *in) {
    struct device_info info;
    in->ops->info(in->dev, &info);
    return strncmp(info.name, "cuda emulated", 13) == 0;
}

static struct fixture *make_two_gemms(enum dtype dtype) {
    struct shape s = {1, 64, 2, 1, 64, 64, 97, 0, false, false, false};
    struct fixture *f = fixture_make(&s, dtype);
    for (int i = 0; i < f->num_weights; i++) {
        struct tensor *part = f->weights[i].part;
        if (f->weights[i].role == WEIGHT_GATE_UP) { // two GEMMs, side by side in memory of their own
            free((void *)(uintptr_t)part[1].data);
            part[1] = random_tensor(DTYPE_BF16, 64, 64, 0.2f);
        }
        for (int p = 0; p < 3 && part[p].dtype == DTYPE_FP8 && part[p].data; p++)
            level_scales(&part[p], 1, 64); // so that cuBLASLt takes it as it is
    }
    return f;
}

// Steps of so many sequences give the same without graphs and with: replays of all but two, or of none where
// the emulator forgets products. The mean log-probability.
static double check_padding(const struct fixture *f, int seqs, int flags) {
    enum { SEQS = 70, STEPS = 5 };
    float logprobs[2][STEPS * SEQS] = {{0}};
    int32_t ids[2][STEPS * SEQS] = {{0}};
    for (int graphs = 0; graphs < 2; graphs++) {
        int replayed = 0;
        setenv("QUIRE_CUDA_GRAPHS", graphs ? "64" : "0", 1);
        struct instance *in = open_graphs_as(f, flags, seqs, 64, seqs);
        bool emulated = is_emulated(in);
        for (int t = 0; t < STEPS; t++) {
            struct piece pieces[SEQS];
            struct step_out out;
            for (int q = 0; q < seqs; q++)
                pieces[q] = (struct piece){q, t, 1, false};
            struct batch *b = batch_make(in, pieces, seqs);
            replayed += forward(in, &b->step);
            assert_int_equal(in->ops->sync(in->dev, &out, NULL), STATUS_OK);
            memcpy(logprobs[graphs] + t * seqs, out.logprob, (size_t)seqs * sizeof(float));
            memcpy(ids[graphs] + t * seqs, out.ids, (size_t)seqs * sizeof(int32_t));
            free(b);
        }
        assert_int_equal(replayed,
                         graphs && !(emulated && getenv("QUIRE_EMULATED_PRODUCTS")) ? STEPS - 2 : 0);
        instance_close(in);
    }
    unsetenv("QUIRE_CUDA_GRAPHS");
    assert_memory_equal(ids[0], ids[1], sizeof ids[0]);
    assert_memory_equal(logprobs[0], logprobs[1], sizeof logprobs[0]);
    double sum = 0;
    for (int i = 0; i < STEPS * seqs; i++)
        sum += (double)logprobs[0][i];
    return sum / (STEPS * seqs);
}

// A graph may be padded beyond the most rows that a step may have: nothing may be too small for it.
TEST(test_padding_beyond_limits) {
    struct fixture *f = make_two_gemms(DTYPE_F16);
    check_padding(f, 5, 0);
    check_padding(f, 70, 0); // to 96, sampled in one launch
    fixture_free(f);
}

// Products of cuBLASLt are captured as they ran in the step before. Where more sizes come than it remembers, no step is
// captured.
TEST(test_products_in_graphs) {
    static const enum dtype types[] = {DTYPE_BF16, DTYPE_FP8};
    for (int i = 0; i < 2; i++) {
        struct fixture *f = make_two_gemms(types[i]);
        double without = check_padding(f, 70, 0), with = check_padding(f, 70, INSTANCE_DEPENDENT);
        if (with == without || fabs(with - without) > 0.01)
            fail_msg("%s: %g, %g", dtype_name(types[i]), with, without);
        setenv("QUIRE_EMULATED_PRODUCTS", "2", 1);
        if (i == 0)
            check_padding(f, 70, INSTANCE_DEPENDENT);
        unsetenv("QUIRE_EMULATED_PRODUCTS");
        fixture_free(f);
    }
}

// The bucket not used for longest gives way to another; bits are those of launches kernel by kernel.
TEST(test_more_buckets) {
    enum { BUCKETS = 4, KEPT = 2, VISITS = 15 };
    static const int sizes[BUCKETS] = {1, 2, 4, 8};
    static const int visits[VISITS] = {0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 2, 3, 0};
    static const bool replays[VISITS] = {0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 1, 1, 0};
    struct shape s = {1, 64, 2, 1, 64, 44, 97, 0, false, false, false};
    struct fixture *f = fixture_make(&s, DTYPE_BF16);
    float want[BUCKETS][8];
    for (int kept = 0; kept <= KEPT; kept += KEPT) {
        char number[16];
        snprintf(number, sizeof number, "%d", kept);
        setenv("QUIRE_CUDA_GRAPHS", number, 1);
        struct instance *in = open_graphs(f, 8, 64, 8);
        for (int v = 0; v < VISITS; v++) {
            int bucket = visits[v];
            struct piece pieces[8];
            struct step_out out;
            for (int q = 0; q < sizes[bucket]; q++)
                pieces[q] = (struct piece){q, 0, 1, false};
            struct batch *b = batch_make(in, pieces, sizes[bucket]);
            assert_int_equal(forward(in, &b->step), kept > 0 && replays[v]);
            assert_int_equal(in->ops->sync(in->dev, &out, NULL), STATUS_OK);
            if (kept == 0 && (v == 0 || bucket != visits[v - 1]))
                memcpy(want[bucket], out.logprob, sizeof(float) * (size_t)sizes[bucket]);
            assert_memory_equal(want[bucket], out.logprob, sizeof(float) * (size_t)sizes[bucket]);
            free(b);
        }
        instance_close(in);
    }
    unsetenv("QUIRE_CUDA_GRAPHS");
    fixture_free(f);
}

// Buckets of graphs count each spec's splits: with a window a sequence has one split or two, without it more
// and more.
TEST(test_graphs_of_specs) {
    enum { FIRST = 500, STEPS = 24, MANY = 40 };
    struct shape s = {2, 64, 1, 1, 64, 32, 61, 30, false, false, false};
    struct fixture *f = fixture_make_mixed(&s, DTYPE_BF16);
    float logprobs[2][STEPS * MANY];
    for (int graphs = 0; graphs < 2; graphs++) {
        int replayed = 0;
        setenv("QUIRE_CUDA_GRAPHS", graphs ? "64" : "0", 1);
        struct instance *in = open_graphs(f, 64, FIRST + STEPS + 1, MANY);
        size_t bytes = in->ops->kv_block_bytes(in->dev);
        unsigned char *page = must_calloc(1, bytes);
        for (int b = 0; b < in->limits.num_blocks; b++) { // f16 below 2, the same in both runs
            for (size_t k = 0; k < bytes; k++)
                page[k] = (unsigned char)(k % 2 ? (k * 7 + (size_t)b) & 0x3b : k * 31 + (size_t)b);
            in->inspect->kv_import(in->dev, b, page);
        }
        free(page);
        for (int t = 0; t < STEPS; t++) {
            struct piece pieces[MANY];
            struct step_out out;
            for (int q = 0; q < MANY; q++) // the last of them cross the border of the second split one by one
                pieces[q] = (struct piece){q, q < MANY / 2 ? FIRST + t : t, 1, false};
            struct batch *b = batch_make(in, pieces, MANY);
            replayed += forward(in, &b->step);
            assert_int_equal(in->ops->sync(in->dev, &out, NULL), STATUS_OK);
            memcpy(logprobs[graphs] + t * MANY, out.logprob, MANY * sizeof(float));
            free(b);
        }
        assert_true(graphs ? replayed > STEPS / 2 : replayed == 0);
        instance_close(in);
    }
    unsetenv("QUIRE_CUDA_GRAPHS");
    assert_memory_equal(logprobs[0], logprobs[1], sizeof logprobs[0]);
    fixture_free(f);
}

// A page that no sequence writes: NaN, also in the scales of int8.
static void poison_page(struct instance *in, int32_t page) {
    size_t bytes = in->ops->kv_block_bytes(in->dev);
    char *nan = must_calloc(1, bytes);
    memset(nan, 0xff, bytes);
    in->inspect->kv_import(in->dev, page, nan);
    free(nan);
}

// Names page 0 for the pages of sequence i of a batch, at `position`, that a window has given back.
static void give_back(const struct instance *in, struct batch *b, int i, int position) {
    for (int g = 0; g < b->step.num_groups; g++) {
        int kept = kv_first_kept(position, in->model.config.groups[g].window, false) / in->block_size;
        int32_t *ids = b->groups[g].block_ids + b->groups[g].block_start[i];
        memset(ids, 0, (size_t)kept * sizeof *ids);
    }
}

// Moves of what sequence `from` keeps at `position` to the pages of another. Returns how many.
static int add_moves(const struct instance *in, struct kv_move *moves, int from, int to, int position) {
    int n = 0, B = in->block_size;
    for (int g = 0; g < in->model.config.num_groups; g++)
        for (int i = kv_first_kept(position, in->model.config.groups[g].window, false) / B; i * B < position;
             i++)
            moves[n++] = (struct kv_move){.from = block_in(in, g, from, i), .to = block_in(in, g, to, i)};
    return n;
}

// A graph holds nothing of a step's pages: replays find the tables, slots and copies of their own step. With
// `pages` the windows give theirs back, and every third step sequence 0 moves to other pages.
TEST(test_graphs_of_pages) {
    enum { FIRST = 100, STEPS = 18, SEQS = 3 };
    struct shape s = {4, 64, 2, 1, 64, 44, 97, 20, true, false, false};
    struct fixture *f = fixture_make_mixed(&s, DTYPE_BF16);
    float logprobs[2][STEPS * SEQS];
    for (int pages = 0; pages < 2; pages++) {
        setenv("QUIRE_CUDA_GRAPHS", pages ? "64" : "0", 1);
        struct setup setup = {&backend_cuda, NULL, 1, 16, DTYPE_F16};
        struct instance *in = instance_open_as(f, setup, INSTANCE_NO_LOGITS | INSTANCE_SPARE_BLOCK, FIRST,
                                               FIRST + STEPS + SEQS, SEQS + 1);
        int home = 0, replayed = 0; // home: whose pages sequence 0 has
        poison_page(in, 0);
        for (int q = 0; q < SEQS; q++)
            run_pieces(in, &(struct piece){q, 0, FIRST - 20 * q, false}, 1);
        for (int t = 0; t < STEPS; t++) {
            struct kv_move moves[64];
            struct piece pieces[SEQS];
            struct step_out out;
            int num_moves = 0;
            if (pages && t % 3 == 2) {
                num_moves = add_moves(in, moves, home, SEQS - home, FIRST + t);
                home = SEQS - home;
            }
            for (int q = 0; q < SEQS; q++)
                pieces[q] = (struct piece){q ? q : home, FIRST - 20 * q + t, 1, false};
            struct batch *b = batch_make(in, pieces, SEQS);
            for (int q = 0; q < SEQS; q++) {
                b->ids[q] = token_at(in, q, pieces[q].start);
                if (pages)
                    give_back(in, b, q, pieces[q].start);
            }
            b->step.moves = moves;
            b->step.num_moves = num_moves;
            replayed += forward(in, &b->step);
            assert_int_equal(in->ops->sync(in->dev, &out, NULL), STATUS_OK);
            for (int q = 0; q < SEQS; q++)
                assert_int_equal(out.failed[q], 0);
            memcpy(logprobs[pages] + t * SEQS, out.logprob, SEQS * sizeof(float));
            free(b);
        }
        assert_int_equal(replayed, pages ? STEPS - 2 : 0);
        instance_close(in);
    }
    unsetenv("QUIRE_CUDA_GRAPHS");
    assert_memory_equal(logprobs[0], logprobs[1], sizeof logprobs[0]);
    fixture_free(f);
}

// ---- pages: those that a window gave back, and copies

struct window_case {
    struct shape s;
    bool mixed;
    int flags;
    enum dtype kv;
    const char *wgmma;
    int n; // tokens
};

// Logits (n, 97) of a prompt, 60 tokens a step, then token by token. With `given_back` pages wholly before the
// windows are named 0, a page of NaN; and where that of the first token that a query sees is, too, its row
// fails.
static float *window_logits(const struct fixture *f, const struct window_case *c, bool given_back) {
    enum { CUT = 60, DECODES = 5, V = 97 };
    struct setup setup = {&backend_cuda, NULL, 1, 16, c->kv};
    struct instance *in = instance_open_as(f, setup, c->flags | INSTANCE_SPARE_BLOCK, c->n, c->n, 1);
    float *logits = must_calloc((size_t)c->n * V, sizeof *logits);
    poison_page(in, 0);
    for (int at = 0, count; at < c->n; at += count) {
        count = at >= c->n - DECODES ? 1 : c->n - DECODES - at < CUT ? c->n - DECODES - at : CUT;
        struct batch *b = batch_make(in, &(struct piece){0, at, count, true}, 1);
        struct step_out out;
        if (given_back)
            give_back(in, b, 0, at);
        if (given_back && count < CUT) { // the last of the prompt, and what decodes
            int32_t *seen = &b->groups[0].block_ids[(at - c->s.window + 1) / 16], page = *seen;
            *seen = 0;
            forward(in, &b->step);
            assert_int_equal(in->ops->sync(in->dev, &out, NULL), STATUS_OK);
            assert_int_equal(out.failed[0], 1);
            *seen = page;
        }
        forward(in, &b->step);
        assert_int_equal(in->ops->sync(in->dev, &out, NULL), STATUS_OK);
        assert_int_equal(out.failed[0], 0);
        memcpy(logits + at * V, out.logits, (size_t)count * V * sizeof *logits);
        free(b);
    }
    instance_close(in);
    return logits;
}

TEST(test_window_pages) {
    static const struct window_case cases[] = {
        {{2, 64, 2, 1, 64, 44, 97, 40, true, true, false}, false, 0, DTYPE_F16, "0", 260},
        {{4, 64, 4, 1, 64, 44, 97, 33, false, false, false}, true, 0, DTYPE_I8, "0", 260},
        {{2, 64, 4, 1, 64, 44, 97, 70, false, false, false}, false, INSTANCE_EXACT, DTYPE_BF16, "1", 260},
        // The kernel for any shape.
        {{2, 64, 4, 2, 16, 44, 97, 20, false, true, false}, false, 0, DTYPE_F8_E4M3, "0", 260},
        // Three KV splits, and a first one of which little is seen.
        {{1, 64, 2, 1, 64, 44, 97, 350, false, false, false}, false, 0, DTYPE_I8, "0", 590},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct window_case *c = &cases[i];
        struct fixture *f =
            c->mixed ? fixture_make_mixed(&c->s, DTYPE_BF16) : fixture_make(&c->s, DTYPE_BF16);
        setenv("QUIRE_CUDA_WGMMA", c->wgmma, 1);
        float *kept = window_logits(f, c, false), *given_back = window_logits(f, c, true);
        unsetenv("QUIRE_CUDA_WGMMA");
        assert_memory_equal(kept, given_back, (size_t)c->n * 97 * sizeof *kept);
        free(kept), free(given_back);
        fixture_free(f);
    }
}

// Moves are done in their order, between the steps around them: a sequence that goes on over copies of its
// pages has the bits that it has over its own, although the step before the moves is still in flight.
TEST(test_kv_copy) {
    enum { N = 37, V = 97 };
    static const struct {
        struct shape s;
        bool mixed; // two groups; without layers latent attention
        int block_size;
        enum dtype kv;
    } cases[] = {
        {{3, 64, 2, 1, 64, 44, V, 0, true, true, false}, false, 16, DTYPE_F16},
        {{2, 64, 4, 2, 64, 44, V, 0, false, false, false}, false, 16, DTYPE_I8},
        {{5, 64, 2, 1, 64, 44, V, 21, false, false, false}, true, 16, DTYPE_I8},
        {{2, 60, 3, 3, 20, 44, V, 0, false, true, false}, false, 5, DTYPE_I8}, // 300 bytes, not 16 by 16
        {{0}, false, 16, DTYPE_I8},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct model_config latent = fixture_latent_config(&LATENT, 2);
        struct fixture *f = cases[c].s.layers == 0 ? fixture_of(&latent, DTYPE_BF16)
                            : cases[c].mixed       ? fixture_make_mixed(&cases[c].s, DTYPE_BF16)
                                                   : fixture_make(&cases[c].s, DTYPE_BF16);
        struct setup setup = {&backend_cuda, NULL, 1, cases[c].block_size, cases[c].kv};
        struct instance *in = instance_open(f, setup, 64, 64, 3);
        float want[V];
        struct piece prompt = {0, 0, N, false}, next = {0, N, 1, false}, copy = {1, N, 1, false};
        run_pieces(in, &prompt, 1);
        memcpy(want, run_pieces(in, &next, 1).logits, sizeof want);
        size_t bytes = in->ops->kv_block_bytes(in->dev);
        char *a = must_calloc(1, bytes), *b = must_calloc(1, bytes);
        struct kv_move moves[64], whole[64];
        int n = 0, pages = add_moves(in, whole, 0, 1, N);
        for (int i = 0; i < pages;
             i++) { // by way of a third sequence's page and the host, which are written again
            poison_page(in, whole[i].to);
            moves[n++] = (struct kv_move){.from = whole[i].from, .to = block_of(in, 2, 0)};
            moves[n++] = (struct kv_move){.from = block_of(in, 2, 0), .to = i % 2, .to_tier = KV_HOST};
            moves[n++] = (struct kv_move){.from = i % 2, .from_tier = KV_HOST, .to = whole[i].to};
        }
        struct batch *first = batch_make(in, &prompt, 1), *second = batch_make(in, &copy, 1);
        struct step_out out;
        second->ids[0] = token_at(in, 0, N);
        second->step.moves = moves;
        second->step.num_moves = n;
        forward(in, &first->step);
        forward(in, &second->step);
        assert_int_equal(in->ops->sync(in->dev, &out, NULL), STATUS_OK);
        assert_int_equal(in->ops->sync(in->dev, &out, NULL), STATUS_OK);
        assert_memory_equal(out.logits, want, sizeof want);
        int each = (N + in->block_size - 1) / in->block_size; // pages of a group
        for (int i = 0; i < pages; i++)
            if (i % each != each - 1) { // the second step has written to the last
                in->inspect->kv_export(in->dev, whole[i].from, a);
                in->inspect->kv_export(in->dev, whole[i].to, b);
                assert_memory_equal(a, b, bytes);
            }
        free(a), free(b), free(first), free(second);
        instance_close(in);
        fixture_free(f);
    }
}

// ---- hidden states, and masks that are computed beside the step before

// Near the reference's, and what the head multiplies; those of a step stay while the next one runs.
TEST(test_hidden) {
    enum { ROWS = 89, D = 64, V = 97 };
    static const struct piece pieces[] = {{0, 0, 9, true}, {1, 0, 80, true}}; // more than are sampled at once
    static const struct piece more[] = {{0, 9, 1, true}, {1, 80, 3, true}};
    static const enum dtype types[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F32};
    struct shape s = {4, D, 2, 1, 64, 44, V, 21, false, false, false};
    for (int i = 0; i < 3; i++) {
        struct fixture *f = fixture_make_mixed(&s, types[i]);
        struct setup setup = {&backend_ref, NULL, 1, 16, DTYPE_F16};
        struct instance *ref = instance_open_as(f, setup, INSTANCE_HIDDEN, 100, 100, 2);
        setup.ops = &backend_cuda;
        struct instance *cuda = instance_open_as(f, setup, INSTANCE_HIDDEN, 100, 100, 2);
        struct step_out want = run_pieces(ref, pieces, 2), got;
        struct batch *first = batch_make(cuda, pieces, 2), *second = batch_make(cuda, more, 2);
        forward(cuda, &first->step);
        forward(cuda, &second->step);
        assert_int_equal(cuda->ops->sync(cuda->dev, &got, NULL), STATUS_OK);
        const struct tensor *head = &f->weights[f->num_weights - 1].part[0];
        struct ref_matrix m = {head->data, head->dtype, V, D, NULL};
        for (int r = 0; r < ROWS; r++) {
            double far = distance(got.hidden + r * D, want.hidden + r * D, D);
            float logits[V];
            if (!(far < 3e-2))
                fail_msg("hidden state %d is %g apart", r, far);
            ref_matvec(logits, got.hidden + r * D, &m);
            assert_true(distance(got.logits + r * V, logits, V) < 1e-2);
        }
        assert_int_equal(cuda->ops->sync(cuda->dev, &got, NULL), STATUS_OK);
        want = run_pieces(ref, more, 2);
        for (int r = 0; r < 4; r++)
            assert_true(distance(got.hidden + r * D, want.hidden + r * D, D) < 3e-2);
        free(first), free(second);
        instance_close(ref), instance_close(cuda);
        cuda = instance_open(f, setup, 16, 16, 1);
        assert_null(run_pieces(cuda, &pieces[0], 1).hidden);
        instance_close(cuda);
        fixture_free(f);
    }
}

struct late_mask {
    uint32_t bits[4];
    int calls;
};

static void write_mask(void *arg) { // token 13 alone
    struct late_mask *m = arg;
    m->calls++;
    memset(m->bits, 0, sizeof m->bits);
    m->bits[0] = 1u << 13;
}

TEST(test_masks_wait) {
    struct shape s = {1, 64, 2, 1, 64, 44, 97, 0, false, false, false};
    struct fixture *f = fixture_make(&s, DTYPE_BF16);
    struct instance *in = open_graphs(f, 8, 64, 1);
    for (int t = 0; t < 6; t++) { // by launches, while a graph is captured, and replayed
        struct late_mask mask = {.bits = {~0u, ~0u, ~0u, ~0u}};
        const uint32_t *masks[] = {mask.bits};
        struct piece p = {0, t, 1, false};
        struct batch *b = batch_make(in, &p, 1);
        struct step_out out;
        b->step.masks = masks;
        b->step.masks_wait = write_mask;
        b->step.masks_arg = &mask;
        forward(in, &b->step);
        assert_int_equal(mask.calls, 1);
        memset(mask.bits, 0xff, sizeof mask.bits); // it has been read
        assert_int_equal(in->ops->sync(in->dev, &out, NULL), STATUS_OK);
        assert_int_equal(out.ids[0], 13);
        free(b);
    }
    instance_close(in);
    fixture_free(f);
}

// ---- memory

// reserve() takes as many bytes beside the cache as the device has announced.
TEST(test_workspace) {
    static const enum dtype kv[] = {DTYPE_F16, DTYPE_I8, DTYPE_I8};
    struct shape s = {2, 64, 2, 1, 64, 44, 97, 0, false, false, false};
    struct model_config latent = fixture_latent_config(&LATENT, 2);
    for (int i = 0; i < 3; i++) {
        struct fixture *f = i == 2 ? fixture_of(&latent, DTYPE_F16) : fixture_make(&s, DTYPE_BF16);
        struct instance *in = instance_load(f, (struct setup){&backend_cuda, NULL, 1, 16, kv[i]}, 0);
        struct device_info before, after;
        struct step_limits limits = {
            .max_tokens = 300, .max_seqs = 5, .max_rows = 300, .max_context = 200, .num_blocks = 65};
        size_t workspace = in->ops->workspace_bytes(in->dev, &limits);
        in->ops->info(in->dev, &before);
        instance_reserve(in, limits);
        in->ops->info(in->dev, &after);
        if (is_emulated(in)) // a device rounds each allocation up
            assert_int_equal(before.memory_free - after.memory_free,
                             workspace + 65 * in->ops->kv_block_bytes(in->dev));
        instance_close(in);
        fixture_free(f);
    }
}

// Entries and masks that the upload has no room for come in pieces, and change what is sampled as those that fit do.
TEST(test_many_entries) {
    enum { ROWS = 70, V = 97, MOST = 4100, WORDS = (V + 31) / 32 };
    struct shape s = {1, 64, 2, 1, 64, 44, V, 0, false, false, false};
    struct fixture *f = fixture_make(&s, DTYPE_BF16);
    struct logit_entry *entries = must_calloc(ROWS * MOST, sizeof *entries);
    uint32_t bits[ROWS][WORDS];
    const uint32_t *masks[ROWS] = {NULL};
    struct logits_row rows[ROWS];
    int32_t ids[ROWS];
    float logprobs[ROWS];
    int num = 0, differ = 0;
    for (int r = 0; r < ROWS; r++) { // none, a few, about as many as fit
        int n = r % 3 == 0 ? 0 : r % 3 == 1 ? 50 : MOST - 30 - r;
        rows[r] = (struct logits_row){
            .row = r, .target = r == 5 ? 7 : -1, .temperature = (float)(r % 2), .top_p = 1, .seed = 9};
        rows[r].num_logprobs = rows[r].num_wanted = r % 4;
        rows[r].entry_start = num;
        for (int e = 0; e < n; e++)
            entries[num++] =
                (struct logit_entry){(int)(random_u32() % V), 1 + (float)e / MOST, e % 5 ? 0 : 0.1f};
        rows[r].entry_end = num;
        for (int e = 0; e < rows[r].num_wanted; e++)
            entries[num++] = (struct logit_entry){(r + e) % V, 1, 0};
        for (int w = 0; w < WORDS; w++)
            bits[r][w] = random_u32() | 1;
        masks[r] = r % 7 == 2 ? bits[r] : NULL;
    }
    for (int run = 0; run < 3;
         run++) { // without entries; all fit; they fit for one sequence, which has one row as a rule
        struct instance *in = open_graphs(f, 80, 100, run == 2 ? 1 : ROWS);
        struct piece p = {0, 0, ROWS, true};
        struct batch *b = batch_make(in, &p, 1);
        struct step_out out;
        memcpy(b->rows, rows, sizeof rows);
        for (int r = 0; run == 0 && r < ROWS; r++)
            b->rows[r].entry_end = b->rows[r].entry_start, b->rows[r].num_wanted = 0;
        b->step.entries = entries;
        b->step.num_entries = num;
        b->step.masks = run == 0 ? NULL : masks;
        struct rt_copies before = rt_test_copies(), after;
        forward(in, &b->step);
        after = rt_test_copies();
        if (before.up > 0) // emulated
            assert_true(run < 2 ? after.up - before.up == 1 : after.up - before.up > 20);
        assert_int_equal(in->ops->sync(in->dev, &out, NULL), STATUS_OK);
        for (int r = 0; r < ROWS; r++) {
            assert_int_equal(out.failed[r], 0);
            differ += run == 1 && out.ids[r] != ids[r];
            if (run == 2 && (out.ids[r] != ids[r] || out.logprob[r] != logprobs[r]))
                fail_msg("row %d: token %d, not %d", r, out.ids[r], ids[r]);
            ids[r] = out.ids[r];
            logprobs[r] = out.logprob[r];
        }
        free(b);
        instance_close(in);
    }
    assert_true(differ > ROWS / 4);
    free(entries);
    fixture_free(f);
}

// ---- two steps at a time

enum { ASYNC_STEPS = 12 };

// Greedy decoding with so many steps in flight, each fed on the device by the one before. Entries choose the token of some.
static void decode_ahead(struct instance *in, int depth, int32_t *ids) {
    struct batch *batches[ASYNC_STEPS];
    struct logit_entry chosen[ASYNC_STEPS];
    struct step_out out;
    for (int t = 0; t < ASYNC_STEPS + depth - 1; t++) {
        if (t < ASYNC_STEPS) {
            struct piece p = {0, t == 0 ? 0 : 4 + t - 1, t == 0 ? 4 : 1, false};
            struct rt_copies before = rt_test_copies(), after;
            struct batch *b = batches[t] = batch_make(in, &p, 1);
            b->ids[0] = t == 0 ? b->ids[0] : -1;
            b->rows[0].index = t;
            chosen[t] = (struct logit_entry){7 * t + 3, 1, 1000};
            b->step.entries = &chosen[t];
            b->step.num_entries = b->rows[0].entry_end = t % 4 > 1;
            forward(in, &b->step);
            after = rt_test_copies();
            if (before.up > 0) { // emulated: one copy up, at most three back
                assert_int_equal(after.up - before.up, 1);
                assert_in_range(after.down - before.down, 1, 3);
            }
        }
        int done = t - (depth - 1);
        if (done < 0)
            continue;
        assert_int_equal(in->ops->sync(in->dev, &out, NULL), STATUS_OK);
        ids[done] = out.ids[0];
        if (done % 4 > 1)
            assert_int_equal(ids[done], chosen[done].token);
        free(batches[done]);
    }
}

TEST(test_async) {
    struct shape s = {1, 64, 2, 1, 64, 44, 97, 0, false, false, false};
    struct fixture *f = fixture_make(&s, DTYPE_BF16);
    int32_t ids[2][ASYNC_STEPS];
    for (int depth = 1; depth <= 2;
         depth++) { // with two, a step is queued before the host has read the one before
        struct instance *in = open_graphs(f, 64, 64, 1);
        decode_ahead(in, depth, ids[depth - 1]);
        instance_close(in);
    }
    assert_memory_equal(ids[0], ids[1], sizeof ids[0]);
    fixture_free(f);
}

int main(void) { return run_all_tests(NULL, NULL); }
