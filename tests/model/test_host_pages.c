// Pages that leave for host memory and come back between steps: the bits of tokens and log-probabilities stay, with ranks and
// stages, each of which moves its part. No plan has such moves: they are put into plans here.
#include "driver.h"
#include "random_model.h"
#include "ranks/ranks.h"

enum { PROMPT = 40, OUTPUT = 12, HOST_PAGES = 2 };

enum status __real_ranks_reserve(struct ranks *r, const struct step_limits *limits, struct err *err);
enum status __wrap_ranks_reserve(struct ranks *r, const struct step_limits *limits, struct err *err);
enum status __wrap_ranks_reserve(struct ranks *r, const struct step_limits *limits, struct err *err) {
    struct step_limits with = *limits;
    with.num_host_pages = HOST_PAGES;
    return __real_ranks_reserve(r, &with, err);
}

static bool come_back; // else pages keep what another one holds

// A plan before whose step each page of its first request goes to the host, is written over, and comes back.
static const struct plan *with_moves(struct driver *d, const struct plan *plan) {
    static struct {
        struct plan plan;
        struct kv_move moves[32];
    } steps[PLAN_MAX_DEPTH];
    const struct kv_cache *kv = engine_kv(d->engine);
    const struct plan_item *item = &plan->items[0];
    struct kv_move *moves = steps[plan->id % PLAN_MAX_DEPTH].moves;
    struct plan *copy = &steps[plan->id % PLAN_MAX_DEPTH].plan;
    int n = 0;
    *copy = *plan;
    assert_int_equal(plan->num_moves, 0);
    for (int i = 0; i * kv->config.block_size < item->first && n + 3 <= 32; i++) {
        int32_t page = item->req->seq.tables[0].ids[i], host = i % HOST_PAGES;
        moves[n++] = (struct kv_move){.from = page, .to = host, .to_tier = KV_HOST};
        moves[n++] = (struct kv_move){.from = kv->free_tail, .to = page};
        if (come_back)
            moves[n++] = (struct kv_move){.from = host, .from_tier = KV_HOST, .to = page};
    }
    copy->moves = moves;
    copy->num_moves = n;
    return copy;
}

static void run(const struct driver_config *c, bool moves, bool back, struct got *got) {
    struct driver d;
    token_id prompt[PROMPT];
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = 3 + 256 + (i * 13 + i * i) % 250;
    memset(got, 0, sizeof *got);
    driver_open(&d, c);
    d.alter = moves ? with_moves : NULL;
    come_back = back;
    driver_add(&d, prompt, PROMPT, OUTPUT, (struct sampling_params){0});
    driver_run(&d, got);
    assert_int_equal(got->num, OUTPUT);
    driver_close(&d);
}

static void test_round_trip(void **state) {
    (void)state;
    static const struct driver_config cases[] = {{.device = "ref"},
                                                 {.kv_dtype = "int8"},
                                                 {.ranks = 2, .threads = 2},
                                                 {.ranks = 2, .stages = 2, .threads = 2}};
    char path[] = "/tmp/quire-pages-XXXXXX";
    random_shape.hidden = 128, random_shape.head_dim = 16;
    random_model_write_sized(&(struct random_model){.matrices = {DTYPE_F32}, .num_types = 1}, 8, 2, 256,
                             path);
    struct got *got = must_calloc(3, sizeof *got);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct driver_config c = cases[i];
        c.path = path, c.max_running = 12, c.max_step_tokens = 16, c.num_blocks = 24, c.max_model_len = 112;
        run(&c, false, false, &got[0]);
        run(&c, true, true, &got[1]);
        run(&c, true, false, &got[2]);
        assert_same(&got[0], &got[1], "there and back");
        assert_true(memcmp(got[0].top, got[2].top, sizeof got[0].top) != 0);
    }
    free(got);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
