// How much ranks of a stage send each other for a sampled token: a few candidates where these decide, logits
// only where sampling needs them. (That the tokens are the same either way is test_ranks.c's.)
//
// The linker (--wrap) puts __wrap_comm_threads_rank() in the place of comm_threads_rank(): the engine's ranks then speak
// through a table that counts. Within a stage only the head sends from one rank to another; sums are
// collectives.
#include "driver.h"
#include "ranks/comm_threads.h"

#include <stdatomic.h>

enum { PROMPT = 20, OUTPUT = 12 };

static _Atomic size_t sent;
static const struct comm_ops *real;
static struct comm_ops counting;

static enum status counting_send(struct comm *c, const void *data, size_t bytes, int to) {
    atomic_fetch_add(&sent, bytes);
    return real->send(c, data, bytes, to);
}

struct comm *__real_comm_threads_rank(struct comm_threads *group, int rank);
struct comm *__wrap_comm_threads_rank(struct comm_threads *group, int rank);

struct comm *__wrap_comm_threads_rank(struct comm_threads *group, int rank) {
    struct comm *c = __real_comm_threads_rank(group, rank);
    if (c->ops != &counting) {
        real = c->ops;
        counting = *real;
        counting.send = counting_send;
        c->ops = &counting;
    }
    return c;
}

// Bytes for one request of OUTPUT tokens; *vocab: of the model.
static size_t bytes_sent(int ranks, bool logprobs, struct sampling_params sampling, int *vocab) {
    struct driver d;
    struct got got[1] = {{0}};
    token_id prompt[PROMPT];
    driver_open(&d,
                &(struct driver_config){.path = QUIRE_SOURCE_DIR "/models/quire-tiny.gguf", .ranks = ranks});
    *vocab = engine_info(d.engine)->model.vocab;
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = 3 + i * 37;
    d.no_logprobs = !logprobs;
    atomic_store(&sent, 0);
    driver_add(&d, prompt, PROMPT, OUTPUT, sampling);
    driver_run(&d, got);
    assert_int_equal(got->num, OUTPUT);
    driver_close(&d);
    return atomic_load(&sent);
}

// One row in each step: the first rank samples; each of the others sends it the size of its local top-k, the
// logits and the ids.
TEST(test_local_top_k) {
    static const int few[] = {1, 5, 64};
    int vocab;
    for (int ranks = 2; ranks <= 4; ranks *= 2)
        for (size_t i = 0; i < sizeof few / sizeof few[0]; i++) {
            struct sampling_params p = {.temperature = i > 0 ? 1.0f : 0, .top_k = i > 0 ? few[i] : 0};
            assert_int_equal(bytes_sent(ranks, false, p, &vocab),
                             OUTPUT * (ranks - 1) * (int)sizeof(float) * (1 + 2 * few[i]));
        }
}

// Where log-probabilities are asked for, or sampling is not bounded: the logits of all tokens but the first
// rank's.
TEST(test_logits) {
    static const struct {
        bool logprobs;
        struct sampling_params sampling;
    } cases[] = {
        {true, {.temperature = 0}}, {false, {.temperature = 1}}, {false, {.temperature = 1, .top_k = 65}}};
    for (int ranks = 2; ranks <= 4; ranks *= 2)
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            int vocab;
            size_t bytes = bytes_sent(ranks, cases[i].logprobs, cases[i].sampling, &vocab);
            int others = vocab - vocab / ranks; // give or take a group of 32 (test_shard.c has the cuts)
            assert_true(bytes % (OUTPUT * sizeof(float)) == 0);
            assert_in_range(bytes / (OUTPUT * sizeof(float)), others - 32, others + 32);
        }
}

int main(void) { return run_all_tests(NULL, NULL); }
