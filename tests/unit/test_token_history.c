// DRY, n-grams and bad words against their definitions, worked out pair by pair, over random sequences.
#include "harness.h"

#include "token_history.h"

#include <math.h>

enum { MAX_LEN = 60, VOCAB = 6 };

static uint64_t rng = 88172645463325252u;
static int rnd(int n) {
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (int)((uint32_t)(rng >> 32) % (uint32_t)n);
}

static bool breaks(const struct token_history_params *p, const token_id *tokens, int at) {
    if (p->dry_breakers && p->dry_breakers[0] >> tokens[at] & 1u)
        return true;
    for (const token_id *s = p->dry_sequences; s && *s > 0; s += 1 + *s) {
        bool same = at + 1 >= *s;
        for (int i = 0; same && i < *s; i++)
            same = tokens[at + 1 - *s + i] == s[1 + i];
        if (same)
            return true;
    }
    return false;
}

// Every earlier place whose tokens repeat the end of the text, token by token, back to a breaker or the window's edge.
static double penalty_of(const struct token_history_params *p, const token_id *tokens, int n, token_id next) {
    int begin = p->dry_last_n >= 0 && p->dry_last_n < n ? n - p->dry_last_n : 0;
    double worst = 0;
    for (int at = begin + 1; p->dry_multiplier > 0 && at < n; at++) {
        int len = 0;
        while (tokens[at] == next && at - 1 - len >= begin && tokens[at - 1 - len] == tokens[n - 1 - len] &&
               !breaks(p, tokens, n - 1 - len))
            len++;
        if (len > 0 && len >= p->dry_allowed_length)
            worst = fmax(worst,
                         (double)p->dry_multiplier * pow((double)p->dry_base, len - p->dry_allowed_length));
    }
    return worst;
}

static bool repeats_ngram(const token_id *tokens, int n, int size, token_id next) {
    for (int at = size - 1; size > 0 && at < n; at++) {
        bool same = tokens[at] == next;
        for (int i = 1; same && i < size; i++)
            same = tokens[at - i] == tokens[n - i];
        if (same)
            return true;
    }
    return false;
}

TEST(test_history) {
    int penalised = 0, forbidden = 0;
    for (int round = 0; round < 20000; round++) {
        token_id tokens[MAX_LEN];
        int32_t scratch[MAX_LEN];
        static const token_id sequences[] = {2, 1, 2, 3, 0, 1, 0, 0};
        const uint32_t breakers = 1u << rnd(VOCAB);
        int n = 1 + rnd(MAX_LEN), few = 1 + rnd(VOCAB), period = 1 + rnd(9);
        for (int i = 0; i < n; i++)
            tokens[i] = i >= period && rnd(8) ? tokens[i - period] : rnd(few);
        struct token_history_params p = {.dry_multiplier = rnd(4) ? 0.25f * (float)(1 + rnd(8)) : 0,
                                         .dry_base = 1 + 0.25f * (float)rnd(5),
                                         .dry_allowed_length = rnd(5),
                                         .dry_last_n = rnd(3) ? -1 : rnd(MAX_LEN),
                                         .no_repeat_ngram = rnd(3) ? 0 : 1 + rnd(6),
                                         .dry_breakers = rnd(2) ? &breakers : NULL,
                                         .dry_sequences = rnd(2) ? sequences : NULL};
        struct token_counts c;
        assert_true(token_counts_init(&c, n, tokens, n));
        token_history_adjust(&c, &p, tokens, n > 1 ? n - 1 : n, scratch);
        token_history_adjust(&c, &p, tokens, n, scratch); // it begins anew each time
        for (int i = 0; i < c.num; i++) {
            token_id next = c.list[i].token;
            double want = -penalty_of(&p, tokens, n, next);
            if (repeats_ngram(tokens, n, p.no_repeat_ngram, next))
                want = -INFINITY;
            if (c.list[i].add != (float)want)
                fail_msg("round %d, token %d of %d: %g, not %g", round, next, n, (double)c.list[i].add, want);
            penalised += want < 0;
            forbidden += isinf(want) != 0;
        }
        token_counts_free(&c);
    }
    printf("  %d penalties, %d of them infinite\n", penalised, forbidden);
    assert_true(penalised > 10000 && forbidden > 1000);
}

TEST(test_long) { // one token over and over: still linear, and the penalty is finite
    (void)state;
    enum { LONG = 131072 };
    static token_id tokens[LONG];
    static int32_t scratch[LONG];
    struct token_counts c;
    assert_true(token_counts_init(&c, LONG, tokens, LONG));
    struct token_history_params p = {.dry_multiplier = 1, .dry_base = 1.75f, .dry_last_n = -1};
    for (int i = 0; i < 20; i++)
        token_history_adjust(&c, &p, tokens, LONG, scratch);
    assert_true(c.num == 1 && c.list[0].add < -1e29f && isfinite(c.list[0].add));
    token_counts_free(&c);
}

TEST(test_bad_words) {
    static const token_id words[] = {1, 7, 2, 5, 6, 3, 5, 5, 9, 0}, output[] = {4, 5, 5};
    token_id out[3];
    assert_int_equal(token_history_banned(words, output, 0, out), 1); // one token: always
    assert_int_equal(out[0], 7);
    assert_int_equal(token_history_banned(words, output, 2, out), 2);
    assert_int_equal(out[1], 6);
    assert_int_equal(token_history_banned(words, output, 3, out), 3);
    assert_int_equal(out[2], 9);
    assert_int_equal(token_history_banned(words, output, 1, out), 1);
    assert_int_equal(token_history_banned(NULL, output, 3, out), 0);
}

int main(void) { return run_all_tests(NULL, NULL); }
