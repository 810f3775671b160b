// Drafters without a model: what followed before, against a search of every position; and how many drafts a step
// verifies, on a machine whose times are known.
#include "draft_length.h"
#include "drafter.h"

#include "harness.h"

#include <math.h>

// ---- prompt lookup

// The definition: the longest match of at least min tokens, among equals the latest. Its drafts; 0: there is none.
static int find(const token_id *tokens, int n, int min, token_id *drafts, int max) {
    int best = min - 1, at = -1;
    for (int end = n - 2; end >= 0; end--) {
        int len = 0;
        while (len < 32 && len <= end && tokens[end - len] == tokens[n - 1 - len])
            len++;
        if (len > best) {
            best = len;
            at = end;
        }
    }
    for (int i = 0; at >= 0 && i < max; i++)
        drafts[i] = at + 1 + i < n ? tokens[at + 1 + i] : drafts[at + 1 + i - n];
    return at >= 0 ? max : 0;
}

static uint32_t random_next(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

// Texts of few words and of many, that grow one token or several between two questions.
TEST(test_lookup_is_the_search) {
    enum { MOST = 3000 };
    static token_id tokens[MOST];
    uint64_t seed = 7;
    int found = 0, asked = 0;
    for (int words = 3; words <= 3000; words *= 10)
        for (int min = 1; min <= 4; min++) {
            struct drafter *d = ngram_drafter(min);
            assert_non_null(d);
            // Chains no longer than the index walks: long ones may hide an older, longer match.
            int most = words * 30 < MOST ? words * 30 : MOST;
            for (int n = 0; n < most; n++) {
                tokens[n] = n > 40 && random_next(&seed) % 8
                                ? tokens[n - 40]
                                : (token_id)(random_next(&seed) % (uint32_t)words);
                if (n > 200 && random_next(&seed) % 4)
                    continue;
                token_id got[MAX_DRAFTS], want[MAX_DRAFTS];
                int num = d->propose(d->state, tokens, n + 1, got, MAX_DRAFTS);
                assert_int_equal(num, find(tokens, n + 1, min, want, MAX_DRAFTS));
                assert_memory_equal(got, want, (size_t)num * sizeof *got);
                found += num > 0;
                asked++;
            }
            drafter_free(d);
        }
    assert_true(found > 500 && found < asked);
}

TEST(test_a_text_that_repeats_itself) {
    const token_id tokens[] = {9, 1, 2, 1, 2, 1};
    struct drafter *d = ngram_drafter(2);
    token_id got[5];
    assert_int_equal(d->propose(d->state, tokens, 6, got, 5), 5);
    const token_id want[] = {2, 1, 2, 1, 2};
    assert_memory_equal(got, want, sizeof want);
    assert_int_equal(d->propose(d->state, tokens, 2, got, 5), 0); // shorter than what was indexed
    drafter_free(d);
}

TEST(test_a_prediction) {
    const token_id predicted[] = {5, 6, 7, 8, 9}, tokens[] = {1, 2, 6, 7, 3, 7, 8};
    struct drafter *d = predicted_drafter(2, predicted, 5);
    token_id got[3];
    assert_int_equal(d->propose(d->state, tokens, 3, got, 3), 0); // 2 6 stands nowhere
    assert_int_equal(d->propose(d->state, tokens, 4, got, 3), 3);
    const token_id want[] = {8, 9, 1}; // behind it comes the prompt
    assert_memory_equal(got, want, sizeof want);
    assert_int_equal(d->propose(d->state, tokens, 7, got, 1), 1);
    assert_int_equal(got[0], 9);
    drafter_free(d);
}

static int one_token(void *state, const token_id *tokens, int n, token_id *drafts, int max) {
    (void)tokens;
    (void)max;
    drafts[0] = n;
    return n < *(int *)state;
}

TEST(test_either) {
    int until = 5;
    struct drafter *first = malloc(sizeof *first);
    *first = (struct drafter){&until, one_token, NULL};
    struct drafter *d = either_drafter(first, ngram_drafter(1));
    const token_id tokens[] = {4, 8, 4, 8, 4, 8};
    token_id got[2] = {-1, -1};
    assert_int_equal(d->propose(d->state, tokens, 4, got, 2), 1);
    assert_int_equal(got[0], 4);
    assert_int_equal(d->propose(d->state, tokens, 6, got, 2), 2); // the first one has nothing to say
    assert_int_equal(got[0], 4);
    assert_int_equal(got[1], 8);
    drafter_free(d);
}

// ---- how many

enum { US = 1000 };

// A machine that reads weights for 10 ms, computes a row in `row` us, and has to do both at once.
static int64_t machine(int rows, int row) {
    return rows * row > 10000 ? (int64_t)rows * row * US : 10000 * US;
}

struct load {
    int requests, row; // us
    double right;      // of drafts, how many
    int model; // us of a draft model's step of a token, and 1 / 20 of it for each further one; 0: there is none
    int prompt; // tokens that it has to compute before it drafts for a request; < 0: no more than so many, as MTP layers
};

// A run of steps that are not alike.
struct course {
    int slow_from, slow_to, slow; // steps, and the draft model's before them, that take so many times as long
    int right_from;               // no draft is right before this step
    int count_from;               // steps before it do not count
};
static const struct course steady = {.slow = 1};

struct ran {
    double tokens, ns, drafts;
    int read; // tokens that the draft model computed
};

// Makes what was chosen, as the service does. behind: of each request. Returns what it takes.
static int64_t draft(const struct load *l, struct draft_length *d, struct draft_offer *offers, int *behind,
                     int *read, int slow) {
    int64_t sum = 0;
    int room = 64;
    for (int depth = 0, tokens = 1; tokens > 0 && l->model > 0; depth++) {
        tokens = 0;
        for (int i = 0; i < l->requests; i++) {
            int n = depth > 0 ? 1 : behind[i] < room ? behind[i] : room;
            if (offers[i].take <= depth)
                continue;
            tokens += n;
            room -= depth > 0 ? 0 : n;
            if (depth == 0 && (behind[i] -= n) > 0)
                offers[i].take = 0;
        }
        int64_t ns = (int64_t)l->model * (19 + tokens) * US / 20 * slow;
        if (tokens > 0)
            draft_length_drafted(d, tokens, ns);
        sum += tokens > 0 ? ns : 0;
        *read += tokens;
    }
    return sum;
}

// Steps whose drafts are right by chance; the tokens they make, and the time they take. A request has 200 tokens of
// output, then another one takes its place.
static struct ran run(const struct load *l, const struct course *c, int steps, bool drafts) {
    struct draft_length d = {.reads_prompts = l->prompt > 0};
    struct request *r = calloc((size_t)l->requests, sizeof *r);
    struct draft_offer *offers = calloc((size_t)l->requests, sizeof *offers);
    struct ran ran = {0};
    uint64_t seed = 11;
    int *behind = calloc((size_t)l->requests, sizeof *behind);
    for (int step = 0; step < steps; step++) {
        int rows = l->requests, made = 0, slow = step >= c->slow_from && step < c->slow_to ? c->slow : 1;
        if (step == c->count_from)
            ran = (struct ran){0};
        for (int i = 0; i < l->requests; i++) {
            if (l->model > 0 && r[i].num_tokens % 200 == 0) {
                r[i] = (struct request){0};
                behind[i] = l->prompt > 0 ? l->prompt : 0;
            }
            behind[i]++; // the last token
            if (l->prompt < 0 && behind[i] > -l->prompt)
                behind[i] = -l->prompt;
            offers[i] = (struct draft_offer){
                .req = &r[i], .num = drafts ? MAX_DRAFTS : 0, .behind = l->model > 0 ? behind[i] : 0};
        }
        draft_length_choose(&d, l->requests, 0, offers, l->requests);
        int64_t model_ns = draft(l, &d, offers, behind, &ran.read, slow);
        for (int i = 0; i < l->requests; i++)
            rows += offers[i].take;
        int64_t ns = machine(rows, l->row) * slow;
        ns += (int64_t)(random_next(&seed) % 1000) * ns / 20000; // 5 % of noise
        draft_length_measured(&d, rows, ns);
        for (int i = 0; i < l->requests; i++) {
            int right = 0;
            while (right < offers[i].take && step >= c->right_from &&
                   random_next(&seed) % 1000 < l->right * 1000)
                right++;
            if (offers[i].take > 0)
                draft_length_verified(&d, &r[i].draft_rate, offers[i].take, right);
            r[i].num_tokens += 1;
            behind[i] += offers[i].take > 0 ? right == offers[i].take : 0; // its last draft was not computed
            made += 1 + right;
            ran.tokens += 1 + right;
            ran.drafts += offers[i].take;
        }
        draft_length_weigh(&d, rows, 0, made, ns);
        ran.ns += (double)(ns + model_ns);
    }
    free(behind);
    free(offers);
    free(r);
    return ran;
}

static double gain(const struct load *l, double *drafts) {
    struct ran with = run(l, &steady, 3000, true), without = run(l, &steady, 3000, false);
    *drafts = with.drafts / 3000 / l->requests;
    return with.tokens / with.ns / (without.tokens / without.ns);
}

// Alone a machine that memory bounds verifies drafts for nothing: as many as it computes meanwhile.
TEST(test_drafts_pay_where_rows_are_free) {
    double drafts;
    double got = gain(&(struct load){.requests = 1, .row = 1000, .right = 0.9},
                      &drafts); // up to 10 rows: the 8 drafts, (1 - 0.9^9) / 0.1 tokens
    printf("  one request, 0.9 right: %.2f times, %.1f drafts\n", got, drafts);
    assert_true(got > 5.7 && drafts > 7.5);
    got = gain(&(struct load){.requests = 1, .row = 2500, .right = 0.9},
               &drafts); // 4 rows: 3.44 tokens, and no row is free beyond them
    printf("  four rows are free: %.2f times, %.1f drafts\n", got, drafts);
    assert_true(got > 3.1 && drafts < 4.5);
}

// A draft model that takes a tenth of the model's time, and is right nine times of ten.
TEST(test_a_draft_model_pays) {
    double drafts, got = gain(&(struct load){1, 1000, 0.9, 1000, 100}, &drafts); // 6.1 tokens in 18 ms
    printf("  a draft model: %.2f times, %.1f drafts\n", got, drafts);
    assert_true(got > 2.6 && drafts > 3.5);
}

TEST(test_drafts_never_lose) {
    const struct load loads[] = {
        {32, 1000, 0.9, 0, 0},   {32, 1000, 0, 0, 0},       {16, 700, 0.5, 0, 0},
        {8, 1000, 0.1, 0, 0},    {1, 1000, 0.02, 0, 0},     {1, 11000, 0.5, 0, 0},
        {64, 10, 0, 0, 0},       {32, 1000, 0.9, 1000, 50}, {32, 1000, 0, 1000, 50},
        {16, 700, 0.5, 500, 50}, {8, 1000, 0.1, 2000, 50},  {1, 1000, 0.02, 2000, 500},
        {1, 1000, 0, 500, 2000}, {1, 1000, 0.5, 9000, 50},  {64, 10, 0, 100, 50},
    };
    bool lost = false;
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
        double drafts, got = gain(&loads[i], &drafts);
        printf("  %d requests, %d us a row, a model of %d us, %.2f right: %.3f times, %.2f drafts\n",
               loads[i].requests, loads[i].row, loads[i].model, loads[i].right, got, drafts);
        lost |= got < 0.99;
    }
    assert_false(lost);
}

// Where 32 rows are no less than a machine can do, the draft model reads few requests to find that out: at most three.
TEST(test_no_prompt_is_read_for_nothing) {
    for (int prompt = 50; prompt <= 800; prompt *= 4)
        for (int right = 0; right <= 9; right += 9) {
            const struct load l = {32, 1000, right / 10.0, 1000, prompt};
            struct ran with = run(&l, &steady, 640, true), without = run(&l, &steady, 640, false);
            double got = with.tokens / with.ns / (without.tokens / without.ns);
            printf("  32 prompts of %d, 0.%d right: %.3f times, %d tokens read\n", prompt, right, got,
                   with.read);
            assert_true(with.read <= 3 * (prompt + 200) && got > 0.99);
        }
    double drafts, got = gain(&(struct load){16, 100, 0.9, 300, 200}, &drafts); // where they pay it reads all
    printf("  16 prompts of 200, rows for nothing, 0.9 right: %.2f times, %.2f drafts\n", got, drafts);
    assert_true(got > 1.9);
}

// ---- a layer that drafts, in 2 ms where a step takes 10

static double gain_after(const struct load *l, const struct course *c, int steps) {
    struct ran with = run(l, c, steps, true), without = run(l, c, steps, false);
    return with.tokens / with.ns / (without.tokens / without.ns);
}

// Whatever is slow at first, soon it drafts as if nothing had been.
TEST(test_a_slow_start_is_forgotten) {
    const struct load l = {1, 1000, 0.9, 2000, -32};
    struct course c = {.slow = 1, .count_from = 40};
    double want = gain_after(&l, &c, 100);
    printf("  nothing slow: %.2f times\n", want);
    assert_true(want > 1.8);
    c.slow = 50; // pages that were not in memory
    for (c.slow_from = 0; c.slow_from < 12; c.slow_from++)
        for (c.slow_to = c.slow_from + 1; c.slow_to <= c.slow_from + 2; c.slow_to++) {
            double got = gain_after(&l, &c, 100);
            if (got < 0.9 * want)
                fail_msg("steps %d to %d slow: %.2f times", c.slow_from, c.slow_to, got);
        }
    c.slow_from = 0;
    c.slow = 5; // a neighbour
    want = gain_after(&l, &(struct course){.slow = 1, .count_from = 40}, 200);
    for (c.slow_to = 3; c.slow_to <= 30; c.slow_to += 9) {
        double got = gain_after(&l, &c, 200);
        printf("  %d steps slow: %.2f times\n", c.slow_to, got);
        assert_true(got > 0.9 * want);
    }
}

// Drafts that are hardly ever right cost few steps' worth of time, however long it goes on, and whatever was slow at first.
TEST(test_bad_drafts_lose_little) {
    for (int i = 0; i < 24; i++)
        for (int steps = 300; steps <= 30000; steps *= 10) {
            int slow = i / 2, requests = i % 2 ? 32 : 1;
            const struct load l = {requests, 100, slow % 3 * 0.05, 2000, -32};
            const struct course c = {slow, slow + 2 + slow % 4 * 2, slow > 0 ? 50 : 1, 0,
                                     slow + 2 + slow % 4 * 2};
            struct ran with = run(&l, &c, steps, true), without = run(&l, &c, steps, false);
            double lost = (with.ns / with.tokens * without.tokens / without.ns - 1) * (steps - c.slow_to);
            if (slow < 3)
                printf("  %d requests, 0.%02d right: of %d steps %.1f lost\n", requests, slow * 5, steps,
                       lost);
            if (lost > 6 + 0.004 * steps)
                fail_msg("%d requests, step %d slow: of %d steps %.1f lost", requests, slow, steps, lost);
        }
}

// That drafts begin to be right is found out in a bounded time.
TEST(test_drafts_are_tried_again) {
    const struct load l = {1, 1000, 0.9, 2000, -32};
    for (int from = 100; from <= 10000; from *= 10) {
        const struct course c = {.slow = 1, .right_from = from, .count_from = from + 400};
        double got = gain_after(&l, &c, from + 800);
        printf("  right from step %d: %.2f times, from step %d\n", from, got, from + 400);
        assert_true(got > 1.7);
    }
}

// Rates are each request's own: the drafts go to the one that copies.
TEST(test_drafts_go_where_they_are_right) {
    struct draft_length d = {0};
    struct request r[2] = {{0}, {0}};
    for (int i = 0; i < 20; i++)
        for (int rows = 1; rows <= 20; rows++)
            draft_length_measured(&d, rows, machine(rows, 1000) + rows); // ten rows are free
    for (int i = 0; i < 30; i++) {
        draft_length_verified(&d, &r[0].draft_rate, 8, 8);
        draft_length_verified(&d, &r[1].draft_rate, 8, 0);
    }
    struct draft_offer offers[] = {{.req = &r[1], .num = 8}, {.req = &r[0], .num = 8}};
    draft_length_choose(&d, 2, 0, offers, 2);
    assert_int_equal(offers[1].take, 8);
    assert_int_equal(offers[0].take, 0);
    offers[1].num = 3; // no more than were offered
    draft_length_choose(&d, 2, 0, offers, 2);
    assert_int_equal(offers[1].take, 3);
}

// The measurements of steps and of drafts, fed one by one.
TEST(test_what_is_learned) {
    struct draft_length d = {0};
    struct request r = {0};
    draft_length_verified(&d, &r.draft_rate, 8, 1); // one right, one wrong; the six behind it say nothing
    assert_float_equal(r.draft_rate.right, 1, 1e-6);
    assert_float_equal(r.draft_rate.tried, 2, 1e-6);
    draft_length_verified(&d, &r.draft_rate, 4, 4);
    assert_float_equal(r.draft_rate.right, 4.9, 1e-5);
    assert_float_equal(r.draft_rate.tried, 5.8, 1e-5);
    for (int i = 0; i < 20; i++)
        draft_length_measured(&d, 5, 10 * US);
}

static int taken(const int *ms, int num_known, float right, float tried, bool computes_again, int again) {
    struct draft_length d = {.computes_again = computes_again};
    struct request r = {.draft_rate = {right, tried}};
    d.rate = r.draft_rate;
    for (int rows = 1; rows <= num_known; rows++)
        for (int i = 0; i < 3; i++)
            draft_length_measured(&d, rows, ms[rows - 1] * 1000 * US);
    struct draft_offer offer = {.req = &r, .num = MAX_DRAFTS, .again = 3 * again};
    draft_length_choose(&d, 1, again, &offer, 1);
    return offer.take;
}

TEST(test_a_choice) {
    const int ms[] = {10, 13, 16, 19, 22, 25, 28, 31, 34};
    // Half are right: 1.5 tokens in 13 ms are more than 1 in 10, and more than 1.75 in 16.
    assert_int_equal(taken(ms, 9, 5000, 10000, false, 0), 1);
    assert_int_equal(taken(ms, 9, 9500, 10000, false, 0), 8);
    assert_int_equal(taken(ms, 9, 2500, 10000, false, 0), 0);
    // Rows that were never tried cost what fewer did: 1.05 in 13 ms is less than 1 in 10, however many more come.
    assert_int_equal(taken(ms, 2, 500, 10000, false, 0), 0);
    assert_int_equal(taken(ms, 2, 5000, 10000, false, 0), 3); // and no more than as many again
    assert_int_equal(taken(ms, 0, 5000, 10000, false, 0), 0);
}

// Where good drafts before a wrong one are computed again, in rows of the next step.
TEST(test_a_choice_of_states) {
    const int ms[] = {10, 13, 16, 19, 22, 25, 28, 31, 34};
    assert_int_equal(taken(ms, 9, 5000, 10000, true, 0),
                     0); // 1.5 tokens in 13 ms and 1.5 more for what is wrong
    assert_int_equal(taken(ms, 9, 9900, 10000, true, 0), 8);
    const int free_rows[] = {10, 10, 10, 10, 10, 10, 10, 40, 40};
    assert_int_equal(taken(free_rows, 9, 9000, 10000, false, 0), 6);
    int alone = taken(free_rows, 9, 9000, 10000, true, 0), behind = taken(free_rows, 9, 9000, 10000, true, 3);
    assert_true(alone == 5 && behind == 1);
}

int main(void) { return run_all_tests(NULL, NULL); }
