// Speculative decoding: with a drafter a request gets the tokens and the bits of log-probabilities that it gets without,
// whether its drafts are right, wrong or both, whatever it asks for and however its steps are cut.
#include "driver.h"

enum { REQUESTS = 12, OUTPUT = 40, MAX_PROMPT = 48 };

// ---- a drafter that knows what comes

enum guess { RIGHT, WRONG, MIXED };

struct oracle {
    enum guess guess;
    int num_prompt;
    const struct got *got; // without drafts
};

static int oracle_propose(void *state, const token_id *tokens, int n, token_id *drafts, int max) {
    const struct oracle *o = state;
    int at = n - o->num_prompt, num = o->got->num - at;
    assert_memory_equal(tokens + o->num_prompt, o->got->tokens, (size_t)at * sizeof *tokens);
    num = num < max ? num : max;
    if (o->guess == MIXED) // of any length
        num = n % 3 == 0 ? num / 2 : num;
    for (int i = 0; i < num; i++) {
        bool wrong = o->guess == WRONG || (o->guess == MIXED && (n + i) * 7 % 5 == 0);
        drafts[i] = wrong ? (o->got->tokens[at + i] + 1 + i) % 500 : o->got->tokens[at + i];
    }
    return num;
}

static struct drafter *oracle_new(enum guess guess, int num_prompt, const struct got *got) {
    struct drafter *d = malloc(sizeof *d);
    struct oracle *o = malloc(sizeof *o);
    *o = (struct oracle){guess, num_prompt, got};
    *d = (struct drafter){o, oracle_propose, free};
    return d;
}

// ---- a grammar that allows a third of the tokens, other ones at each position, and refuses what it does not allow

struct thirds {
    int position, most; // the furthest that it was asked about
};

static bool thirds_accept(void *state, token_id token) {
    struct thirds *t = state;
    if ((token + t->position) % 3 != 0)
        return false;
    t->position++;
    return true;
}

static enum mask_result thirds_mask(void *state, uint32_t *bits, int vocab, int64_t *work) {
    (void)work;
    const struct thirds *t = state;
    memset(bits, 0, ((size_t)vocab + 31) / 32 * sizeof *bits);
    for (int v = 0; v < vocab; v++)
        if ((v + t->position) % 3 == 0)
            bits[v / 32] |= 1u << v % 32;
    return MASK_DONE;
}

static void thirds_rollback(void *state, int n) {
    struct thirds *t = state;
    t->position -= n;
    assert_true(t->position >= 0);
}

static struct token_filter *thirds_new(void) {
    struct token_filter *f = malloc(sizeof *f);
    *f = (struct token_filter){
        calloc(1, sizeof(struct thirds)), thirds_accept, thirds_mask, thirds_rollback, free, NULL};
    return f;
}

// ---- the requests

static struct got plain[REQUESTS], got[REQUESTS];
static token_id stops[REQUESTS][2]; // tokens that come in the output
static int num_stops;

// Request i, of all that a request can ask for; without its drafter.
static struct request_params params_of(int i) {
    static token_id prompts[REQUESTS][MAX_PROMPT];
    static const struct logit_bias bias[] = {{300, 2.0f}, {310, -4.0f}};
    static uint32_t allowed[16];
    for (int w = 0; w < 16; w++)
        allowed[w] = 0xefffffff;
    struct request_params p = {
        .prompt = prompts[i], .num_prompt = 1 + i * 23 % MAX_PROMPT, .max_output = OUTPUT};
    for (int j = 0; j < p.num_prompt; j++) // some share their first tokens
        prompts[i][j] = j == 0 ? 1 : 259 + (i / 3 * 41 + j * 7) % 250;
    p.sampling = i % 2 ? (struct sampling_params){.temperature = 1, .top_p = 0.95f, .seed = 10 + (uint64_t)i}
                       : (struct sampling_params){0};
    switch (i % 6) {
    case 1:
        p.sampling.repetition_penalty = 1.3f;
        p.sampling.typical_p = 0.9f;
        p.sampling.xtc_probability = 0.5f;
        p.sampling.xtc_threshold = 0.1f;
        p.sampling.mirostat_tau = i == 1 ? 3.0f : 0; // no drafts are taken then
        p.sampling.mirostat_eta = 0.1f;
        break;
    case 2:
        p.sampling.frequency_penalty = 0.4f;
        p.sampling.presence_penalty = 0.3f;
        break;
    case 3: p.filter = thirds_new(); break;
    case 4: // a token that comes, but not before it may
        p.stop = stops[i];
        p.num_stop = num_stops;
        p.min_output = 9;
        break;
    case 5:
        p.bias = bias;
        p.num_bias = 2;
        p.sampling.presence_penalty = 0.2f;
        p.sampling.prompt_logprobs = true;
        p.filter = i == 5 ? thirds_new() : NULL;
        break;
    default: { // bytes and words that end in their like
        static const token_id bad[] = {1, 268, 2, 261, 378, 0};
        static const uint32_t breakers[16] = {[432 / 32] = 1u << 432 % 32};
        p.history = (struct token_history_params){.dry_multiplier = 1.5f,
                                                  .dry_base = 1.75f,
                                                  .dry_allowed_length = 1,
                                                  .dry_last_n = i % 4 ? 40 : -1,
                                                  .no_repeat_ngram = i % 4 ? 4 : 0,
                                                  .dry_breakers = breakers};
        p.bad_words = bad;
        p.allowed = i % 4 ? NULL : allowed;
        p.num_mask_words = 16;
    }
    }
    return p;
}

struct run {
    const char *what;
    struct driver_config config;
};

static struct sched_stats run_all(const struct run *run, bool drafts, enum guess guess, struct got *out) {
    struct driver d;
    struct driver_config c = run->config;
    c.path = stories_model();
    driver_open(&d, &c);
    memset(out, 0, sizeof got);
    for (int i = 0; i < REQUESTS; i++) {
        struct request_params p = params_of(i);
        if (drafts && i % 4 != 3) // the others go on meanwhile
            p.drafter = oracle_new(guess, p.num_prompt, &plain[i]);
        driver_submit(&d, p);
        if (i % 4 == 3)
            driver_step(&d, out);
    }
    driver_run(&d, out);
    struct sched_stats stats = driver_stats(&d);
    driver_close(&d);
    return stats;
}

TEST(test_drafts) {
    static const struct run runs[] = {
        {"alone", {.max_running = 1}},
        {"together", {0}},
        {"few rows", {.max_running = 6, .max_step_tokens = 24}},
        {"chunks", {.max_step_tokens = 40, .max_chunk = 5, .block_size = 48}},
        {"preempted", {.num_blocks = 10, .max_model_len = 112}},
        {"asynchronous", {.depth = 2}},
        {"asynchronous, preempted", {.depth = 2, .num_blocks = 10, .max_model_len = 112}},
        {"stages", {.stages = 2, .threads = 2}},
        {"ranks", {.ranks = 2, .threads = 2, .no_cache = true}},
        {"scalar", {.variant = "scalar", .max_running = 4}},
    };
    run_all(&runs[1], false, RIGHT, plain);
    for (int i = 0; i < REQUESTS; i++)
        stops[i][0] = plain[i].tokens[20], stops[i][1] = plain[i].tokens[3];
    num_stops = 2;
    run_all(&runs[1], false, RIGHT, plain);
    assert_true(plain[4].finish == FINISH_STOP && plain[4].num >= 9 && plain[4].num < OUTPUT);
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++)
        for (int guess = RIGHT; guess <= MIXED; guess++) {
            static const char *const names[] = {"right", "wrong", "mixed"};
            char what[96];
            if (SLOW && guess != (int)r % 3)
                continue;
            struct sched_stats stats = run_all(&runs[r], true, (enum guess)guess, got);
            snprintf(what, sizeof what, "%s, %s drafts", runs[r].what, names[guess]);
            for (int i = 0; i < REQUESTS; i++) {
                assert_same(&plain[i], &got[i], what);
                assert_int_equal(plain[i].finish, got[i].finish);
                assert_int_equal(plain[i].num_scores, got[i].num_scores);
                assert_memory_equal(plain[i].scores, got[i].scores,
                                    (size_t)got[i].num_scores * sizeof(float));
            }
            printf("  %s: %llu drafts, %llu right\n", what, (unsigned long long)stats.drafts,
                   (unsigned long long)stats.accepted);
            assert_true(stats.drafts > 30);
            assert_true(guess != RIGHT || stats.accepted == stats.drafts);
            assert_true(guess != WRONG || stats.accepted == 0);
            assert_true(guess != MIXED || (stats.accepted > 10 && stats.accepted < stats.drafts));
            assert_true(!runs[r].config.num_blocks || stats.preemptions > 0);
        }
}

int main(void) { return run_all_tests(NULL, NULL); }
