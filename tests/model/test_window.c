// Models with sliding windows over 32k tokens: pages outside the window are free at every step, so a pool of little
// more than the window serves any context. Results have the bits of the same engine that keeps every page, and the hashes
// below, which an engine without windows of pages gave.
#include "driver.h"
#include "random_model.h"

enum { WINDOW = 512, LONG = 32800, OUTPUT = 48, MAX_LEN = LONG + OUTPUT };

static char path[] = "/tmp/quire-window-XXXXXX";
static token_id prompt[MAX_LEN];

static void write_model(const char *arch, int layers, int window, int full_every) {
    static const struct random_model m = {.name = "window", .matrices = {DTYPE_F32}, .num_types = 1};
    random_shape = (struct random_shape){64, 16, MAX_LEN, window, full_every, arch, false};
    strcpy(path + sizeof path - 7, "XXXXXX");
    random_state = 88172645463325252u;
    random_layers = layers;
    random_model_write_sized(&m, 4, 2, 128, path);
    for (int i = 0; i < MAX_LEN; i++)
        prompt[i] = (token_id)(3 + (random_u32() >> 8) % (RANDOM_VOCAB - 3));
}

// FNV-1a of all that a request got.
static uint64_t hash_got(const struct got *g) {
    const struct {
        const void *at;
        size_t size;
    } parts[] = {{g->tokens, sizeof g->tokens[0]},
                 {g->logprob, sizeof g->logprob[0]},
                 {g->top_ids, sizeof g->top_ids[0]},
                 {g->top, sizeof g->top[0]}};
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
        for (size_t i = 0; i < (size_t)g->num * parts[p].size; i++)
            h = (h ^ ((const unsigned char *)parts[p].at)[i]) * 0x100000001b3u;
    return h;
}

static const char *const kv_dtypes[] = {"f32", "f16", "int8"};
enum { NUM_KV_DTYPES = sizeof kv_dtypes / sizeof *kv_dtypes };

static const uint64_t hashes_before[NUM_KV_DTYPES] = {0x0ed18c06a3be80a6u, 0x6455fcb09a0e2ff1u,
                                                      0x6215b7bb7f40a090u};

enum { MAX_REQUESTS = 8 };

static struct got results[MAX_REQUESTS], kept[MAX_REQUESTS];
static struct request *requests[MAX_REQUESTS]; // of got[i], until it has ended

// As an engine without windows would: no page is given back before the request ends.
static void keep_every_page(struct kv_cache *kv) {
    for (int g = 0; g < kv->config.num_groups; g++)
        kv->config.groups[g].kind = KV_FULL;
    kv->has_window = false;
}

// Checks the pages of a running request: in a window group those that the window sees and its steps in flight write.
// Returns how many it holds.
static int check_pages(const struct kv_cache *kv, const struct request *r) {
    int size = kv->config.block_size, all = 0, in_flight = r->num_computed - r->num_resolved;
    for (int g = 0; g < kv->config.num_groups; g++) {
        const struct block_table *t = &r->seq.tables[g];
        int num = 0, window = kv->config.groups[g].window;
        for (int i = 0; i < r->seq.len; i++)
            num += t->ids[i] != KV_NONE;
        if (kv->config.groups[g].kind == KV_FULL)
            assert_int_equal(num, r->seq.len);
        else
            assert_true((num - 2) * size < window + KV_TILE + in_flight);
        all += num;
    }
    return all;
}

// Runs what was submitted to the end, and looks at the pages after every step. Returns the most that were in tables.
static int run_checked(struct driver *d, struct got *got, int num) {
    const struct kv_cache *kv = engine_kv(d->engine);
    const struct kv_seq *seqs[MAX_REQUESTS];
    int most = 0;
    memset(got, 0, (size_t)num * sizeof *got);
    while (driver_step(d, got)) {
        int num_seqs = 0, held = 0;
        for (int i = 0; i < num; i++) {
            if (got[i].finish != FINISH_NONE)
                continue;
            seqs[num_seqs++] = &requests[i]->seq;
            held += check_pages(kv, requests[i]);
        }
        assert_int_equal(kv_check(kv, seqs, num_seqs), 0);
        if (num == 1)
            assert_int_equal(held, kv->config.num_blocks - kv->num_free);
        most = held > most ? held : most;
    }
    assert_true(sched_idle(d->sched));
    assert_int_equal(kv->num_free, kv->config.num_blocks);
    return most;
}

// The request is results[0] of run_checked().
static void add_alone(struct driver *d, const token_id *tokens, int num_prompt) {
    d->next_id = 1;
    requests[0] = driver_add(d, tokens, num_prompt, OUTPUT, (struct sampling_params){0});
}

// In a pool with exactly the pages that the window needs, which is a fiftieth of the context, with chunks of 16 and of 512
// tokens, and with two steps in flight.
TEST(test_long_context) {
    static const struct { int chunk, depth, pool; } ways[] = {{512, 1, 69}, {16, 1, 38}, {64, 2, 45}};
    write_model(NULL, 2, WINDOW, 0);
    for (int k = 0; k < NUM_KV_DTYPES; k++)
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            struct driver d;
            if (SLOW && (int)w != k - 1)
                continue;
            driver_open(&d, &(struct driver_config){.path = path,
                                                    .kv_dtype = kv_dtypes[k],
                                                    .max_running = 1,
                                                    .max_step_tokens = ways[w].chunk,
                                                    .depth = ways[w].depth,
                                                    .num_blocks = ways[w].pool});
            const struct kv_config *c = &engine_kv(d.engine)->config;
            assert_int_equal(engine_info(d.engine)->max_model_len, MAX_LEN);
            assert_int_equal(kv_pages(c, MAX_LEN), ways[w].pool);
            add_alone(&d, prompt, LONG);
            int most = run_checked(&d, results, 1);
            assert_true(most * c->block_size >= WINDOW && most <= ways[w].pool);
            assert_int_equal(results[0].num, OUTPUT);
            if (hash_got(results) != hashes_before[k])
                fail_msg("%s, chunks of %d: 0x%016llx", kv_dtypes[k], ways[w].chunk,
                         (unsigned long long)hash_got(results));
            driver_close(&d);
        }
    unlink(path);
}

// A hit needs the pages of the window before its end and no others: behind tokens that lie nowhere any more, and in
// the midst of them where the pool still has the pages.
TEST(test_prefix_hits) {
    enum { PART = 9000, FIRST = SLOW ? PART + 1000 : LONG };
    static token_id other[PART + 100];
    write_model(NULL, 2, WINDOW, 0);
    memcpy(other, prompt, sizeof other);
    for (int i = PART; i < PART + 100; i++)
        other[i] = prompt[i] ^ 1;
    for (int large = 0; large < 2; large++) {
        struct driver d;
        driver_open(&d,
                    &(struct driver_config){.path = path, .max_running = 1, .num_blocks = large ? 2200 : 69});
        const struct kv_cache *kv = engine_kv(d.engine);
        add_alone(&d, prompt, FIRST);
        run_checked(&d, kept, 1);
        add_alone(&d, prompt, FIRST);
        int most = run_checked(&d, results, 1);
        assert_same(kept, results, "a hit behind the window");
        assert_int_equal(results[0].num_cached, (FIRST - 1) / 16 * 16);
        assert_true(most * 16 < WINDOW + KV_TILE + 4 * 16);
        assert_true(large ? kv->num_evicted == 0 : kv->num_evicted > FIRST / 16 - 100);
        add_alone(&d, other, PART + 100);
        run_checked(&d, results, 1);
        assert_int_equal(results[0].num_cached, large ? PART / 16 * 16 : 0);
        driver_close(&d);
        if (!large) // every page was computed anew
            continue;
        driver_open(&d, &(struct driver_config){.path = path, .num_blocks = 2200, .no_cache = true});
        keep_every_page(engine_kv(d.engine));
        add_alone(&d, other, PART + 100);
        assert_int_equal(run_checked(&d, kept, 1), (PART + 100 + OUTPUT - 1 + 15) / 16);
        driver_close(&d);
        assert_same(kept, results, "a hit in the midst of an earlier prompt");
    }
    unlink(path);
}

// Requests that outgrow the pool, some of them after their windows have moved on.
static void check_preempted(struct driver_config small, const char *what) {
    static const int prompts[MAX_REQUESTS] = {100, 1500, 90, 30, 700, 80, 110, 64};
    for (int keeps = 1; keeps >= 0; keeps--) {
        struct driver d;
        struct driver_config c = {.num_blocks = 2200, .no_cache = true};
        if (!keeps)
            c = small;
        c.path = path;
        driver_open(&d, &c);
        if (keeps)
            keep_every_page(engine_kv(d.engine));
        for (int i = 0; i < MAX_REQUESTS; i++)
            requests[i] = driver_add(&d, prompt + 1000 * i, prompts[i], 500, (struct sampling_params){0});
        run_checked(&d, keeps ? kept : results, MAX_REQUESTS);
        assert_true(keeps ? driver_stats(&d).preemptions == 0 : driver_stats(&d).preemptions > 2);
        driver_close(&d);
    }
    for (int i = 0; i < MAX_REQUESTS; i++)
        assert_same(&kept[i], &results[i], what);
}

TEST(test_preemption) {
    write_model(NULL, 2, WINDOW, 0);
    for (int depth = 1; depth <= 2; depth++) {
        struct driver_config c = {.max_running = 8, .max_step_tokens = 16, .depth = depth, .num_blocks = 60};
        c.no_cache = depth == 2;
        check_preempted(c, "preempted");
    }
    unlink(path);
}

// Every second layer has a window: two groups, of which one keeps all pages and the other its window's.
static void check_mixed_layers(const char *arch) {
    enum { MIXED_WINDOW = 100, MIXED_LONG = SLOW ? 3000 : 8000 };
    write_model(arch, 4, MIXED_WINDOW, 2);
    for (int way = 0; way < 4; way += way ? 1 + SLOW : 1) {
        static const int chunks[] = {512, 512, 16, 16};
        int blocks = (MIXED_LONG + OUTPUT - 1 + 15) / 16, most;
        struct driver d;
        struct driver_config c = {.path = path,
                                  .max_running = 1,
                                  .max_step_tokens = chunks[way],
                                  .depth = way == 3 ? 2 : 1,
                                  .max_model_len = MIXED_LONG + OUTPUT};
        c.num_blocks = 2 * blocks;
        if (way > 0) // what the window group holds beside all of the other
            c.num_blocks = blocks + (MIXED_WINDOW - 1 + KV_TILE - 1 + c.depth * c.max_step_tokens + 30) / 16;
        driver_open(&d, &c);
        struct kv_cache *kv = engine_kv(d.engine);
        assert_true(kv->config.num_groups == 2 && kv->config.groups[0].kind == KV_WINDOW &&
                    kv->config.groups[1].kind == KV_FULL);
        if (way == 0)
            keep_every_page(kv);
        add_alone(&d, prompt, MIXED_LONG);
        most = run_checked(&d, way ? results : kept, 1);
        assert_true(way ? most <= c.num_blocks && most < blocks + 40 : most == 2 * blocks);
        if (way > 0) {
            assert_same(kept, results, "layers with and without a window");
            add_alone(&d, prompt, MIXED_LONG); // what both groups still have, which is all of the prompt
            run_checked(&d, results, 1);
            assert_int_equal(results[0].num_cached, (MIXED_LONG - 1) / 16 * 16);
            assert_same(kept, results, "a hit of two groups");
        }
        driver_close(&d);
    }
    struct driver_config c = {
        .max_running = 8, .max_step_tokens = 16, .num_blocks = 150, .max_model_len = 2016};
    check_preempted(c, "preempted, two groups");
    unlink(path);
}

TEST(test_mixed_layers) { check_mixed_layers(NULL); }

TEST(test_chunks) { check_mixed_layers("llama4"); }

// Tables of so many sequences of such a length have more entries than an int counts: refused before memory is asked for.
TEST(test_too_long) {
    struct err err = {0};
    random_shape = (struct random_shape){64, 16, 1 << 24, WINDOW, 0, NULL, false};
    random_layers = 2;
    strcpy(path + sizeof path - 7, "XXXXXX");
    random_model_write_sized(&(struct random_model){.matrices = {DTYPE_F32}, .num_types = 1}, 4, 2, 128,
                             path);
    struct engine_config c = {.path = path,
                              .device = "cpu",
                              .num_threads = 1,
                              .block_size = 16,
                              .num_kv_blocks = 500,
                              .max_model_len = 1 << 24,
                              .max_num_seqs = 4096,
                              .max_num_batched_tokens = 4096};
    assert_null(engine_open(&c, &err));
    assert_int_equal(err.code, STATUS_INVALID);
    if (!strstr(err.msg, "lower --max-num-seqs or --max-model-len"))
        fail_msg("%s", err.msg);
    unlink(path);
}

int main(void) { return run_all_tests(NULL, NULL); }
