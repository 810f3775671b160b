// A plan as a step: the pages and slots of every kind of group, copies of pages, which a device makes before anything
// else, and what the sampled rows come to. Penalties and masks are tested with whole models.
#include "harness.h"

#include "batch.h"
#include "forward.h"

#include <math.h>

enum { BS = 16, LEN = 192, WINDOW = 20, VOCAB = 40 };

static struct request *make_request(int num_prompt) {
    token_id prompt[LEN];
    for (int i = 0; i < num_prompt; i++)
        prompt[i] = i % VOCAB;
    struct request_params p = {.prompt = prompt,
                               .num_prompt = num_prompt,
                               .max_output = 1,
                               .sampling = {.repetition_penalty = 1, .logprobs = -1}};
    struct request *r = request_new(&p, BS);
    assert_non_null(r);
    return r;
}

static void assert_pages(const struct step_group *g, int i, const block_id *ids, int n) {
    assert_int_equal(g->block_start[i + 1] - g->block_start[i], n);
    assert_memory_equal(g->block_ids + g->block_start[i], ids, (size_t)n * sizeof *ids);
}

TEST(test_groups) {
    const struct kv_config config = {
        .num_blocks = 60,
        .block_size = BS,
        .num_groups = 3,
        .groups = {{.kind = KV_FULL}, {.kind = KV_WINDOW, .window = WINDOW}, {.kind = KV_STATE}},
        .max_ahead = LEN,
        .share = true};
    const struct step_limits limits = {.max_tokens = 64,
                                       .max_seqs = 4,
                                       .max_rows = 64,
                                       .max_context = LEN,
                                       .num_blocks = 60,
                                       .has_types = true};
    struct kv_cache kv;
    struct batch b;
    assert_int_equal(kv_init(&kv, &config), STATUS_OK);
    assert_int_equal(batch_init(&b, &limits, VOCAB, &config), STATUS_OK);
    struct request *r1 = make_request(LEN - 1), *r2 = make_request(5);
    r2->second_text = 3;
    assert_true(kv_grow(&kv, &r2->seq, 5));
    assert_true(kv_grow(&kv, &r1->seq, 160));
    kv_trim(&kv, &r1->seq, 160); // gives back eight blocks of the window
    assert_true(kv_grow(&kv, &r1->seq, LEN - 1));
    struct plan_item items[] = {{.req = r1, .first = 160, .num_new = 31, .first_logit = 31},
                                {.req = r2, .first = 0, .num_new = 5, .first_logit = 5}};
    struct kv_move moves[] = {{.from = 7, .to = 9}, {.from = 8, .to = 10}};
    struct plan plan = {
        .id = 1, .items = items, .num_items = 2, .num_tokens = 36, .moves = moves, .num_moves = 2};
    batch_fill(&b, &plan, &kv, NULL, NULL);
    const struct step *step = &b.step;
    assert_true(step->num_groups == 3 && step->num_tokens == 36 && step->num_seqs == 2);
    assert_int_equal(step->num_moves, 2);
    assert_memory_equal(step->moves, moves, sizeof moves);
    const struct block_table *t1 = r1->seq.tables, *t2 = r2->seq.tables;
    block_id window[LEN / BS] = {0}; // page 0 in place of what was given back
    assert_true(t1[1].first == 8 && t1[1].ids[7] == KV_NONE);
    memcpy(window + 8, t1[1].ids + 8, 4 * sizeof *window);
    assert_pages(&step->groups[0], 0, t1[0].ids, 12);
    assert_pages(&step->groups[0], 1, t2[0].ids, 1);
    assert_pages(&step->groups[1], 0, window, 12);
    assert_pages(&step->groups[1], 1, t2[1].ids, 1);
    assert_pages(&step->groups[2], 0, &t1[2].live, 1);
    assert_pages(&step->groups[2], 1, &t2[2].live, 1);
    for (int row = 0; row < 36; row++) {
        int position = row < 31 ? 160 + row : row - 31;
        assert_int_equal(step->positions[row], position);
        assert_int_equal(step->ids[row], position % VOCAB);
        assert_int_equal(step->types[row], row >= 31 && position >= 3);
        for (int g = 0; g < 2; g++)
            assert_int_equal(step->groups[g].slots[row],
                             kv_slot(&kv, row < 31 ? &r1->seq : &r2->seq, g, position));
        assert_int_equal(step->groups[2].slots[row], -1); // states have none
    }
    request_free(r1);
    request_free(r2);
    batch_destroy(&b);
    kv_destroy(&kv);
}

// Of a chunk the rows of its spans bring embeddings: of two spans, one of which it cuts; of the other item's none.
TEST(test_embeds) {
    enum { D = 3, ROWS = 12 };
    const struct kv_config config = {.num_blocks = 4, .block_size = BS, .num_groups = 1, .share = true};
    const struct step_limits limits = {.max_tokens = 32,
                                       .max_seqs = 4,
                                       .max_rows = 32,
                                       .max_context = LEN,
                                       .num_blocks = 4,
                                       .embed_size = D};
    const struct kv_span spans[] = {{.first = 2, .len = 3}, {.first = 6, .len = 4}, {.first = 11, .len = 5}};
    float embeds[ROWS * D];
    token_id prompt[20] = {0};
    for (int i = 0; i < ROWS * D; i++)
        embeds[i] = (float)i;
    struct request_params p = {.prompt = prompt,
                               .num_prompt = 20,
                               .max_output = 1,
                               .sampling = {.repetition_penalty = 1, .logprobs = -1},
                               .spans = spans,
                               .num_spans = 3,
                               .embeds = embeds,
                               .embed_size = D};
    struct kv_cache kv;
    struct batch b;
    assert_int_equal(kv_init(&kv, &config), STATUS_OK);
    assert_int_equal(batch_init(&b, &limits, VOCAB, &config), STATUS_OK);
    struct request *r1 = make_request(5), *r2 = request_new(&p, BS);
    assert_true(kv_grow(&kv, &r1->seq, 5) && kv_grow(&kv, &r2->seq, 20));
    struct plan_item items[] = {{.req = r1, .first = 0, .num_new = 5, .first_logit = 5},
                                {.req = r2, .first = 3, .num_new = 9, .first_logit = 9}};
    struct plan plan = {.id = 1, .items = items, .num_items = 2, .num_tokens = 14};
    static const int rows[] = {5, 6, 8, 9, 10, 11, 13}, from[] = {1, 2, 3, 4, 5, 6, 7};
    batch_fill(&b, &plan, &kv, NULL, NULL);
    assert_int_equal(b.step.num_embeds, 7);
    for (int e = 0; e < 7; e++) {
        assert_int_equal(b.step.embed_rows[e], rows[e]);
        assert_memory_equal(b.step.embeds + (ptrdiff_t)e * D, embeds + (ptrdiff_t)from[e] * D,
                            D * sizeof *embeds);
    }
    items[1].first = 16, items[1].num_new = 4, items[1].first_logit = 4; // behind them
    batch_fill(&b, &plan, &kv, NULL, NULL);
    assert_true(b.step.num_embeds == 0 && !b.step.embeds && !b.step.embed_rows);
    request_free(r1);
    request_free(r2);
    batch_destroy(&b);
    kv_destroy(&kv);
}

// Rows of a text and of a prompt with a grid, in chunks that begin within it and behind it.
TEST(test_axes) {
    const struct kv_config config = {.num_blocks = 4, .block_size = BS, .num_groups = 1, .share = true};
    struct step_limits limits = {.max_tokens = 32,
                                 .max_seqs = 4,
                                 .max_rows = 32,
                                 .max_context = LEN,
                                 .num_blocks = 4,
                                 .has_axes = true};
    const struct kv_span span = {.first = 2, .len = 6, .grid = {1, 2, 3}};
    token_id prompt[20] = {0};
    struct request_params p = {.prompt = prompt,
                               .num_prompt = 20,
                               .max_output = 1,
                               .sampling = {.repetition_penalty = 1, .logprobs = -1},
                               .spans = &span,
                               .num_spans = 1};
    static const int32_t turns[3][7] = {{0, 1, 2, 2, 2, 2, 5}, {0, 1, 2, 3, 3, 3, 5}, {0, 1, 4, 2, 3, 4, 5}};
    struct kv_cache kv;
    struct batch b;
    assert_int_equal(kv_init(&kv, &config), STATUS_OK);
    struct request *r1 = make_request(5), *r2 = request_new(&p, BS);
    assert_true(kv_grow(&kv, &r1->seq, 5) && kv_grow(&kv, &r2->seq, 20));
    struct plan_item items[] = {{.req = r1, .first = 0, .num_new = 2, .first_logit = 2},
                                {.req = r2, .first = 4, .num_new = 5, .first_logit = 5}};
    struct plan plan = {.id = 1, .items = items, .num_items = 2, .num_tokens = 7};
    for (int i = 0; i < 2; i++) { // with axes and without
        limits.has_axes = i == 0;
        assert_int_equal(batch_init(&b, &limits, VOCAB, &config), STATUS_OK);
        batch_fill(&b, &plan, &kv, NULL, NULL);
        assert_int_equal(b.step.positions[2], 4);
        if (i == 0)
            assert_memory_equal(b.step.rope_positions, turns, sizeof turns);
        else
            assert_null(b.step.rope_positions);
        items[1].first = 0, items[1].num_new = 3; // up to the grid's first row, which is where text would be
        batch_fill(&b, &plan, &kv, NULL, NULL);
        assert_null(b.step.rope_positions);
        items[1].first = 19, items[1].num_new = 1;
        batch_fill(&b, &plan, &kv, NULL, NULL);
        assert_true(i ? !b.step.rope_positions
                      : b.step.rope_positions[2] == 16 && b.step.rope_positions[8] == 16);
        items[1].first = 4, items[1].num_new = 5;
        batch_destroy(&b);
    }
    request_free(r1);
    request_free(r2);
    kv_destroy(&kv);
}

// Rows behind a draft that is wrong say nothing, not even that they failed.
TEST(test_outcome) {
    const struct kv_config config = {.num_blocks = 4, .block_size = BS, .num_groups = 1, .share = true};
    const struct step_limits limits = {
        .max_tokens = 64, .max_seqs = 8, .max_rows = 64, .max_context = LEN, .num_blocks = 4};
    static const struct {
        int32_t ids[5]; // of the row of a prompt token, of a sample, and of three drafts: 5, 6, 7
        int failed_row; // -1: none
        int num;
        bool failed;
    } cases[] = {{{9, 5, 6, 7, 1}, -1, 4, false}, {{9, 4, 6, 7, 1}, -1, 1, false},
                 {{9, 5, 6, 8, 1}, -1, 3, false}, {{9, 5, 3, 7, 1}, 3, 2, false},
                 {{9, 5, 3, 7, 1}, 2, 2, true},   {{9, 5, 3, 7, 1}, 0, 2, true}};
    struct kv_cache kv;
    struct batch b;
    assert_int_equal(kv_init(&kv, &config), STATUS_OK);
    assert_int_equal(batch_init(&b, &limits, VOCAB, &config), STATUS_OK);
    struct request *r = make_request(9);
    for (int i = 0; i < 3; i++)
        r->tokens[9 - 3 + i] = 5 + i;
    assert_true(kv_grow(&kv, &r->seq, 9));
    struct plan_item item = {.req = r,
                             .first = 0,
                             .num_new = 9,
                             .num_drafts = 3,
                             .first_logit = 4,
                             .needs_token = true,
                             .wants_prompt_logprobs = true};
    struct plan plan = {.id = 1, .items = &item, .num_items = 1, .num_tokens = 9, .num_rows = 5};
    batch_fill(&b, &plan, &kv, NULL, NULL);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        uint8_t failed[5] = {0};
        if (cases[c].failed_row >= 0)
            failed[cases[c].failed_row] = 1;
        struct step_out out = {.ids = cases[c].ids, .failed = failed};
        struct outcome outcome;
        batch_outcome(&b, &plan, &out, &outcome);
        assert_int_equal(outcome.start[1] - outcome.start[0], cases[c].num);
        assert_memory_equal(outcome.tokens, cases[c].ids + 1, (size_t)cases[c].num * sizeof(token_id));
        assert_int_equal(outcome.failed[0] != 0, cases[c].failed);
    }

    // A sample that the mask and the bias together forbid, and one that they leave a token.
    uint32_t only[(VOCAB + 31) / 32] = {[0] = 1u << 3};
    struct logit_bias bias = {0};
    r->allowed = only;
    r->bias = &bias;
    r->num_bias = 1;
    for (int k = 0; k < 3; k++) { // forbidden; another one is; it is only less likely
        static const int32_t ids[5] = {0};
        uint8_t failed[5] = {0, 1, 0, 0, 0};
        struct step_out out = {.ids = ids, .failed = failed};
        struct outcome outcome;
        bias.token = k == 1 ? 4 : 3;
        bias.add = k == 2 ? -5 : -INFINITY;
        batch_fill(&b, &plan, &kv, NULL, NULL);
        batch_masks(&b);
        batch_outcome(&b, &plan, &out, &outcome);
        assert_int_equal(outcome.failed[0], k == 0 ? ITEM_FORBIDDEN : ITEM_NOT_FINITE);
    }
    r->allowed = NULL;
    r->bias = NULL;
    request_free(r);
    batch_destroy(&b);
    kv_destroy(&kv);
}

// ---- a device that notes what it is asked for, a letter each

static char calls[64];
static bool replays;

static void note(char c) {
    size_t n = strlen(calls);
    assert_true(n + 1 < sizeof calls);
    calls[n] = c;
}

static void note_copy(struct device *dev, const struct kv_move *moves, int num_moves) {
    (void)dev, (void)moves, (void)num_moves;
    note('c');
}
static bool note_begin(struct device *dev, const struct step *step) {
    (void)dev, (void)step;
    note('<');
    return replays;
}
static void note_end(struct device *dev) {
    (void)dev;
    note('>');
}
static void note_embed(struct device *dev, const struct model *model, const struct step *step) {
    (void)dev, (void)model, (void)step;
    note('e');
}
static void note_head(struct device *dev, const struct model *model, const struct step *step) {
    (void)dev, (void)model, (void)step;
    note('h');
}
static void note_import(struct device *dev, const float *src, const struct step *step) {
    (void)dev, (void)src, (void)step;
    note('i');
}
static void note_export(struct device *dev, float *dst, const struct step *step) {
    (void)dev, (void)dst, (void)step;
    note('x');
}
#define PHASE(name, letter)                                                                                  \
    static void name(struct device *dev, const struct layer *layer, const struct step *step) {               \
        (void)dev, (void)layer, (void)step;                                                                  \
        note(letter);                                                                                        \
    }
PHASE(note_qkv, 'q')
PHASE(note_decode, 'd')
PHASE(note_prefill, 'p')
PHASE(note_attn_out, 'o')
PHASE(note_mix, 'm')
PHASE(note_mix_out, 'n')
PHASE(note_ffn_in, 'f')
PHASE(note_ffn_out, 'g')

static void assert_calls(struct layer layers[2], const struct step *step, const float *in, float *out,
                         const char *expect) {
    static const struct backend_ops ops = {.kv_copy = note_copy,
                                           .step_begin = note_begin,
                                           .step_end = note_end,
                                           .embed = note_embed,
                                           .head = note_head,
                                           .resid_import = note_import,
                                           .resid_export = note_export,
                                           .qkv = note_qkv,
                                           .attn_decode = note_decode,
                                           .attn_prefill = note_prefill,
                                           .attn_out = note_attn_out,
                                           .mix = note_mix,
                                           .mix_out = note_mix_out,
                                           .ffn_in = note_ffn_in,
                                           .ffn_out = note_ffn_out};
    struct model model = {.config = {.num_layers = 2}, .layers = layers};
    memset(calls, 0, sizeof calls);
    model_forward(&ops, NULL, &model, step, in, out);
    assert_string_equal(calls, expect);
}

TEST(test_order) {
    struct layer layers[2] = {{.attn.heads = 1, .ffn.hidden = 1},
                              {.index = 1, .attn.heads = 1, .ffn.hidden = 1}};
    float stream[1];
    struct step step = {.num_seqs = 2, .num_decode = 1, .num_moves = 1};
    assert_calls(layers, &step, NULL, NULL, "c<eqdpofgqdpofgh>");
    step.num_moves = 0;
    assert_calls(layers, &step, stream, NULL, "<iqdpofgqdpofgh>");
    step.num_decode = 2;
    assert_calls(layers, &step, NULL, stream, "<eqdofgqdofgx>");
    step.num_decode = 0;
    assert_calls(layers, &step, stream, stream, "<iqpofgqpofgx>");
    layers[0].ffn.hidden = 0; // a layer may lack either
    assert_calls(layers, &step, stream, stream, "<iqpoqpofgx>");
    layers[0].ffn.hidden = 1;
    layers[0] = (struct layer){.mix.kind = MIX_CONV, .ffn.hidden = 1}; // in place of attention, and beside it
    layers[1].mix.kind = MIX_SSM;
    assert_calls(layers, &step, stream, stream, "<imnfgmqponfgx>");
    step.num_moves = 1;
    replays = true; // the graph has no copies
    assert_calls(layers, &step, NULL, NULL, "c<");
}

int main(void) { return run_all_tests(NULL, NULL); }
