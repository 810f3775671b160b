// Spans of a prompt, which are no tokens: what the prefix cache takes for them, which chunks they allow (S17), what their
// rows rotate by, and a record of them.
#include "scheduler_bench.h"

#include "service.h"

#include <unistd.h>

enum { PROMPT = 40 };

static const struct kv_hash one = {1, 2}, two = {1, 3}, far = {5, 2};

// A prompt of `id` whose ids under spans are `placeholder`.
static struct request_params with_spans(uint64_t id, const struct kv_span *spans, int n,
                                        token_id placeholder) {
    static token_id prompt[PROMPT];
    struct request_params p = params_of(7, PROMPT, 3);
    memcpy(prompt, p.prompt, sizeof prompt);
    for (int s = 0; s < n; s++)
        for (int i = spans[s].first; i < spans[s].first + spans[s].len; i++)
            prompt[i] = placeholder;
    p.id = id;
    p.prompt = prompt;
    p.spans = spans;
    p.num_spans = n;
    return p;
}

// How many tokens of the second prompt hit, after the first one ran in a cache of its own.
static int hit_after(const struct kv_span *first, int num_first, token_id placeholder,
                     const struct kv_span *second, int num_second, token_id other) {
    struct bench b;
    struct bench_config c = config_of(1, 64, 64);
    c.sched.has_axes = true;
    bench_init(&b, 30, c);
    int cached = 0;
    for (int i = 0; i < 2; i++) {
        struct request_params p =
            with_spans(1, i ? second : first, i ? num_second : num_first, i ? other : placeholder);
        struct request *r = add_params(&b, &p);
        while (!sched_idle(b.s))
            assert_non_null(step(&b, 5));
        cached = r->num_cached;
        request_free(r);
    }
    bench_end(&b);
    return cached;
}

#define SPAN(first_, len_, hash_)                                                                            \
    (const struct kv_span[1]) {                                                                              \
        { .first = first_, .len = len_, .hash = hash_ }                                                      \
    }

#define GRID(first_, t_, h_, w_)                                                                             \
    (const struct kv_span[1]) {                                                                              \
        {                                                                                                    \
            .first = first_, .len = t_ * h_ * w_, .hash = one, .grid = { t_, h_, w_ }                        \
        }                                                                                                    \
    }

TEST(test_hits) {
    // Blocks have 4 tokens. Equal spans share whatever their ids; others share what lies before them.
    assert_int_equal(hit_after(SPAN(10, 6, one), 1, 3, SPAN(10, 6, one), 1, 9), 36);
    assert_int_equal(hit_after(SPAN(10, 6, one), 1, 3, SPAN(10, 6, two), 1, 3), 8);
    assert_int_equal(hit_after(SPAN(10, 6, one), 1, 3, SPAN(10, 6, far), 1, 3), 8);
    assert_int_equal(hit_after(SPAN(10, 6, one), 1, 3, NULL, 0, 3), 8);
    assert_int_equal(hit_after(NULL, 0, 3, SPAN(10, 6, one), 1, 3), 8);
    // One row is enough, whichever part of the hash it is called by.
    assert_int_equal(hit_after(SPAN(10, 1, one), 1, 3, SPAN(10, 1, two), 1, 3), 8);
    assert_int_equal(hit_after(SPAN(0, 1, one), 1, 3, SPAN(0, 1, two), 1, 3), 0);
    assert_int_equal(hit_after(SPAN(39, 1, one), 1, 3, SPAN(39, 1, two), 1, 3), 36); // no whole block has it
    // The same content elsewhere, or more of it, is something else: from the block on where the span begins.
    assert_int_equal(hit_after(SPAN(10, 6, one), 1, 3, SPAN(11, 6, one), 1, 3), 8);
    assert_int_equal(hit_after(SPAN(10, 6, one), 1, 3, SPAN(10, 7, one), 1, 3), 8);
    assert_int_equal(hit_after(SPAN(8, 8, one), 1, 3, SPAN(8, 8, one), 1, 4), 36);
    // So is the same content in another grid, or in none.
    assert_int_equal(hit_after(GRID(10, 2, 2, 3), 1, 3, GRID(10, 2, 2, 3), 1, 9), 36);
    assert_int_equal(hit_after(GRID(10, 2, 2, 3), 1, 3, GRID(10, 2, 3, 2), 1, 3), 8);
    assert_int_equal(hit_after(GRID(10, 2, 2, 3), 1, 3, GRID(10, 3, 2, 2), 1, 3), 8);
    assert_int_equal(hit_after(GRID(10, 1, 4, 3), 1, 3, GRID(10, 1, 3, 4), 1, 3), 8);
    assert_int_equal(hit_after(GRID(10, 2, 2, 3), 1, 3, SPAN(10, 12, one), 1, 3), 8);
    // Two spans in one block, in this order.
    const struct kv_span ab[] = {{.first = 4, .len = 2, .hash = one}, {.first = 6, .len = 2, .hash = two}};
    const struct kv_span ba[] = {{.first = 4, .len = 2, .hash = two}, {.first = 6, .len = 2, .hash = one}};
    assert_int_equal(hit_after(ab, 2, 3, ab, 2, 4), 36);
    assert_int_equal(hit_after(ab, 2, 3, ba, 2, 3), 4);
}

// A hit compares names, so that a broken hash does not serve what is another span, and no name is a token's id.
TEST(test_names) {
    block_id ids[KV_MAX_GROUPS * 4];
    token_id tokens[16], names[16], others[16];
    struct kv_seq seq;
    const struct kv_span spans[] = {
        {.first = 2, .len = 5, .hash = {0x1122334455667788u, 0x99aabbccddeeff00u}},
        {.first = 7, .len = 1, .hash = one}};
    kv_seq_init(&seq, ids, 4);
    seq.spans = spans;
    seq.num_spans = 2;
    for (int i = 0; i < 16; i++)
        tokens[i] = i;
    kv_seq_names(&seq, tokens, 0, 16, names);
    for (int i = 0; i < 16; i++)
        assert_true(i < 2 || i > 7 ? names[i] == i : names[i] < 0);
    assert_int_equal((uint32_t)names[2] | 0x80000000u, 0x55667788u | 0x80000000u);
    assert_int_equal((uint32_t)names[3], 0x11223344u | 0x80000000u);
    assert_int_equal((uint32_t)names[5], 0x99aabbccu | 0x80000000u);
    assert_int_equal(names[6], names[2]);
    kv_seq_names(&seq, tokens, 5, 4, others); // from within a span
    assert_memory_equal(others, names + 5, 4 * sizeof *names);
    struct kv_cache kv;
    struct kv_config config = pages(4, BS);
    assert_int_equal(kv_init(&kv, &config), STATUS_OK);
    struct kv_hash root = kv_root(&kv, NULL, 0);
    assert_true(kv_grow(&kv, &seq, 8));
    kv_publish(&kv, &seq, root, tokens, 8);
    assert_true(kv_find(&kv, seq.hash, 0, names + 4) != KV_NONE);
    assert_int_equal(kv_find(&kv, seq.hash, 0, tokens + 4), KV_NONE);
    // No block, and no salt, has the hash of a span.
    struct kv_hash span = kv_span_chain(&kv, root, &spans[1], 3, 0, 1);
    kv.config.key[0] = ~kv.config.key[0];
    const uint64_t words[] = {root.lo, root.hi, one.lo, one.hi, 3 | (uint64_t)1 << 32, (uint64_t)1 << 32, 0};
    struct kv_hash same = kv_root(&kv, words, sizeof words);
    assert_memory_equal(&span, &same, sizeof span);
    kv.config.key[0] = ~kv.config.key[0];
    kv_release(&kv, &seq);
    kv_destroy(&kv);
}

// As get_rope_index() of Qwen2VLModel in transformers 4.57.6 has them, of two images and a video; in whatever pieces they are
// asked for, of the request's output, too.
TEST(test_rope_positions) {
    enum { ALL = PROMPT + 3 };
    static const struct kv_span spans[] = {{.first = 3, .len = 6, .grid = {1, 2, 3}},
                                           {.first = 12, .len = 8, .grid = {1, 4, 2}},
                                           {.first = 22, .len = 12, .grid = {3, 2, 2}}};
    static const int32_t want[3][ALL] = {
        {0,  1,  2,  3,  3,  3,  3,  3,  3,  6,  7,  8,  9,  9,  9,  9,  9,  9,  9,  9,  13, 14,
         15, 15, 15, 15, 16, 16, 16, 16, 17, 17, 17, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26},
        {0,  1,  2,  3,  3,  3,  4,  4,  4,  6,  7,  8,  9,  9,  10, 10, 11, 11, 12, 12, 13, 14,
         15, 15, 16, 16, 15, 15, 16, 16, 15, 15, 16, 16, 18, 19, 20, 21, 22, 23, 24, 25, 26},
        {0,  1,  2,  3,  4,  5,  3,  4,  5,  6,  7,  8,  9,  10, 9,  10, 9,  10, 9,  10, 13, 14,
         15, 16, 15, 16, 15, 16, 15, 16, 15, 16, 15, 16, 18, 19, 20, 21, 22, 23, 24, 25, 26}};
    struct kv_seq seq = {.spans = spans, .num_spans = 3};
    int32_t got[3][ALL];
    for (int first = 0; first < ALL; first++)
        for (int n = 1; n <= ALL - first; n++) {
            bool differ = kv_seq_rope_positions(&seq, first, n, &got[0][0], ALL);
            for (int a = 0; a < 3; a++)
                assert_memory_equal(got[a], want[a] + first, (size_t)n * sizeof got[0][0]);
            assert_int_equal(differ, first + n > 4);
        }
    const struct kv_span plain = {.first = 3, .len = 6}; // goes on as text does
    seq.spans = &plain, seq.num_spans = 1;
    assert_true(!kv_seq_rope_positions(&seq, 1, 20, &got[0][0], ALL));
    for (int i = 0; i < 3 * 20; i++)
        assert_int_equal(got[i / 20][i % 20], 1 + i % 20);
}

// S17: chunks of 7 of a prompt with whole spans at 5..9, 20..36.
TEST(test_whole) {
    const struct kv_span spans[] = {{.first = 5, .len = 4, .hash = one, .whole = true},
                                    {.first = 12, .len = 6, .hash = two},
                                    {.first = 20, .len = 16, .hash = far, .whole = true}};
    struct bench b;
    struct bench_config c = config_of(2, 17, 17);
    bench_init(&b, 30, c);
    struct request_params p = with_spans(1, spans, 3, 3);
    struct request *r = add_params(&b, &p);
    // Alone: 17 tokens fit. A span that is not whole is cut; one that is whole is not begun.
    assert_item(step(&b, 5), 0, r, 0, 17);
    assert_item(step(&b, 5), 0, r, 17, 3);
    assert_item(step(&b, 5), 0, r, 20, 17);
    while (!sched_idle(b.s))
        step(&b, 5);
    request_free(r);
    // Beside a decode with a budget of 7: the second one is longer than that, and the room of a step is just enough.
    kv_destroy(&b.kv);
    sched_close(b.s);
    c.max_chunk = 7;
    bench_init(&b, 60, c);
    struct request *d = add(&b, 2, 3, 30);
    step(&b, 5);
    r = add_params(&b, &p);
    static const int ends[] = {5, 12, 19, 20, 36, 40};
    for (int i = 0, first = 0; i < 6; first = ends[i++]) {
        const struct plan *plan = step(&b, 5);
        assert_item(plan, 0, d, 3 + i, 1);
        assert_item(plan, 1, r, first, ends[i] - first);
    }
    drop(&b, r);
    p.salt = "s"; // a chunk that a span ends is as long as it may be
    p.num_salt = 1;
    r = add_params(&b, &p);
    assert_item(step_with(&b, 9, 5), 1, r, 0, 9);
    drop(&b, d);
    drop(&b, r);
    bench_end(&b);
}

// Nobody's drafts take the room that a whole span needs.
TEST(test_no_drafts_beside_whole) {
    const struct kv_span span = {.first = 4, .len = 16, .hash = one, .whole = true};
    struct bench b;
    bench_init(&b, 60, config_of(2, 17, 4));
    struct request_params q = params_of(2, 3, 30);
    q.drafter = calloc(1, sizeof *q.drafter);
    struct request *d = add_params(&b, &q);
    step(&b, 5);
    struct request_params p = with_spans(1, &span, 1, 3);
    struct request *r = add_params(&b, &p);
    assert_item(step(&b, 5), 1, r, 0, 4);
    const token_id drafts[] = {5, 5, 5};
    assert_int_equal(request_draft(d, drafts, 3), 3);
    const struct plan *plan = step(&b, 5);
    assert_item(plan, 0, d, 4, 1);
    assert_item(plan, 1, r, 4, 16);
    drop(&b, d);
    drop(&b, r);
    bench_end(&b);
}

TEST(test_refused) {
    struct bench b;
    struct err err = {0}, other = {0}, axes = {0};
    struct bench_config c = config_of(3, 18, 18);
    struct kv_span span = {.first = 20, .len = 17, .hash = one, .whole = true};
    static const float rows[PROMPT * 2];
    bench_init(&b, 30, c);
    struct request_params p = with_spans(1, &span, 1, 3);
    struct request *r = request_new(&p, BS);
    assert_int_equal(sched_add(b.s, r), STATUS_INVALID);
    assert_int_equal(sched_takes_spans(&c.sched, r, &err), STATUS_INVALID);
    assert_true(strstr(err.msg, "17") && strstr(err.msg, "16"));
    request_free(r);
    span.len = 16;
    span.grid[0] = 1, span.grid[1] = 2, span.grid[2] = 8;
    r = request_new(&p, BS);
    assert_int_equal(sched_add(b.s, r), STATUS_INVALID); // the model rotates by one axis
    assert_int_equal(sched_takes_spans(&c.sched, r, &axes), STATUS_INVALID);
    assert_non_null(strstr(axes.msg, "1 by 2 by 8"));
    c.sched.has_axes = true;
    assert_int_equal(sched_takes_spans(&c.sched, r, NULL), STATUS_OK);
    request_free(r);
    memset(span.grid, 0, sizeof span.grid);
    r = request_new(&p, BS);
    assert_int_equal(sched_takes_spans(&c.sched, r, NULL), STATUS_OK);
    request_free(r);
    p.max_output = 0; // its last row would not be computed
    p.sampling.prompt_logprobs = true;
    span.first = PROMPT - span.len;
    r = request_new(&p, BS);
    assert_int_equal(sched_add(b.s, r), STATUS_INVALID);
    request_free(r);
    p.max_output = 1;
    p.embeds = rows;
    p.embed_size = 2;
    r = request_new(&p, BS);
    assert_int_equal(sched_add(b.s, r), STATUS_INVALID); // the model takes none
    c.sched.embed_size = 3;
    assert_int_equal(sched_takes_spans(&c.sched, r, &other), STATUS_INVALID);
    assert_true(strstr(other.msg, "2 values") && strstr(other.msg, "have 3"));
    c.sched.embed_size = 2;
    assert_int_equal(sched_takes_spans(&c.sched, r, NULL), STATUS_OK);
    request_free(r);
    bench_end(&b);
}

// The rows of a chunk, by spans.
TEST(test_embeds) {
    const struct kv_span spans[] = {{.first = 1, .len = 2, .hash = one}, {.first = 5, .len = 3, .hash = two}};
    const float rows[5][2] = {{1, 2}, {3, 4}, {5, 6}, {7, 8}, {9, 10}};
    struct request_params p = with_spans(1, spans, 2, 3);
    p.embeds = &rows[0][0];
    p.embed_size = 2;
    p.draft = true; // a draft model has other embeddings
    struct request *r = request_new(&p, BS);
    static const struct {
        int position, most, n, row;
    } cases[] = {{1, 9, 2, 0}, {1, 1, 1, 0}, {2, 9, 1, 1}, {5, 9, 3, 2}, {6, 1, 1, 3}, {7, 9, 1, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int n = cases[i].most;
        const float *e = request_embeds(r, cases[i].position, &n);
        assert_int_equal(n, cases[i].n);
        assert_true(e != &rows[cases[i].row][0]); // a copy
        assert_memory_equal(e, rows[cases[i].row], (size_t)n * sizeof rows[0]);
    }
    assert_null(r->draft);
    request_free(r);
    p.embeds = NULL;
    r = request_new(&p, BS);
    int n = 9;
    assert_null(request_embeds(r, 5, &n));
    assert_int_equal(n, 3);
    request_free(r);
}

// Equal prompts but for a span: first, another hash, as the first, another grid: hits of 0, 8, 12 and 8 tokens.
TEST(test_record) {
    static const char text[] =
        "quire-record 1\n"
        "config 0 4 32 32 64 20 4 1 1 2\n"
        "add 1 0 1 0 0 0 0 13 7 8 9 10 11 12 13 14 15 16 17 18 19 0 0 1 9 2 0 5 6 0 0 0\n"
        "plan 1 1 1 0 13 12 1\n"
        "outcome 1 1 12 0\n"
        "add 2 0 1 0 0 0 0 13 7 8 9 10 11 12 13 14 15 16 17 18 19 0 0 1 9 2 0 4 6 0 0 0\n"
        "plan 2 1 2 8 5 4 1\n"
        "outcome 2 1 12 0\n"
        "add 3 0 1 0 0 0 0 13 7 8 9 10 11 12 13 14 15 16 17 18 19 0 0 1 9 2 0 5 6 0 0 0\n"
        "plan 3 1 3 12 1 0 1\n"
        "outcome 3 1 12 0\n"
        "add 4 0 1 0 0 0 0 13 7 8 9 10 11 12 13 14 15 16 17 18 19 0 0 1 9 2 0 5 6 1 2 1\n"
        "plan 4 1 4 8 5 4 1\n"
        "outcome 4 1 12 0\n";
    char path[] = "/tmp/quire-spans-XXXXXX";
    struct err err = {0};
    uint64_t plans = 0;
    for (size_t cut = sizeof text - 1; cut > sizeof text - 60;
         cut--) { // a damaged one is refused, or shorter
        FILE *f = cut == sizeof text - 1 ? fdopen(mkstemp(path), "w") : fopen(path, "w");
        fwrite(text, 1, cut, f);
        fclose(f);
        enum status st = service_replay(path, &plans, &err);
        if (cut == sizeof text - 1 && st != STATUS_OK)
            fail_msg("%s", err.msg);
        assert_true(cut < sizeof text - 1 || plans == 4);
    }
    remove(path);
}

int main(void) { return run_all_tests(NULL, NULL); }
