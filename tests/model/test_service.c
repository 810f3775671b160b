// The service with a real model: many requests from another thread, cancels at random, the same bits as
// alone, the record replayed, no allocation inside a step.
// Over 600 lines: every case runs the same service, with the same requests and counters.
#include "driver.h"
#include "service.h"
#include "text.h"

#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

// ---- counting allocations of every thread

static atomic_long num_allocations;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
enum { COUNTS_ALLOCATIONS = 0 };
#else
enum { COUNTS_ALLOCATIONS = 1 };
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);
void *malloc(size_t n) {
    num_allocations++;
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size) {
    num_allocations++;
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n) {
    num_allocations++;
    return __libc_realloc(p, n);
}
void *aligned_alloc(size_t align, size_t n) {
    num_allocations++;
    return __libc_memalign(align, n);
}
int posix_memalign(void **p, size_t align, size_t n) {
    num_allocations++;
    *p = __libc_memalign(align, n);
    return *p ? 0 : ENOMEM;
}
#endif

static void count_allocations(int num_stages) {
    if (!COUNTS_ALLOCATIONS) {
        printf("  skipped: a sanitizer owns malloc\n");
        skip();
    }
    struct driver d;
    static struct got got[24];
    memset(got, 0, sizeof got);
    driver_open(&d, &(struct driver_config){.path = stories_model(),
                                            .num_blocks = 22,
                                            .max_model_len = 256,
                                            .max_running = 8,
                                            .threads = 2,
                                            .stages = num_stages});
    for (int i = 0; i < 24; i++) {
        token_id t[64];
        for (int j = 0; j < 64; j++)
            t[j] = 259 + (i % 5 * 17 + j * 3) % 250;
        driver_add(&d, t, 5 + i * 2, 40,
                   (struct sampling_params){.temperature = 1,
                                            .top_k = 20,
                                            .top_p = 0.9f,
                                            .seed = (uint64_t)i,
                                            .frequency_penalty = 0.5f});
    }
    // No thread runs now but this one and the kernels'.
    long before = num_allocations;
    int steps = 0;
    while (driver_step(&d, got))
        steps++;
    assert_int_equal(num_allocations - before, 0);
    void *volatile counted = aligned_alloc(64, 64); // or the compiler would leave both out
    free(counted);
    assert_int_equal(num_allocations - before, 1); // the counter counts
    assert_true(steps > 40);
    assert_true(driver_stats(&d).preemptions > 0 && driver_stats(&d).prefix_hits > 0);
    driver_close(&d);
}

TEST(test_no_allocation_in_a_step) {
    count_allocations(1);
    count_allocations(2);
}

// ---- the service

struct setup {
    struct engine *engine;
    struct service *service;
};

// Stages and plans in flight of the services opened; 0: as the engine picks.
static int stages, depth;
static const char *device = "cpu";
// The pace they keep; 1 ns: the least that prompts may get, which follows every measurement.
static int64_t target_itl_ns;

static struct setup open_service(int blocks, const char *record) {
    struct err err = {0};
    struct engine_config c = {.path = stories_model(),
                              .device = device,
                              .num_threads = 2,
                              .block_size = 16,
                              .num_kv_blocks = blocks,
                              .max_model_len = 256,
                              .max_num_seqs = 16,
                              .max_num_batched_tokens = 64,
                              .pipeline_parallel_size = stages,
                              .depth = depth,
                              .prefix_caching = true};
    struct setup s;
    log_set_level(LOG_ERROR);
    s.engine = engine_open(&c, &err);
    if (!s.engine)
        fail_msg("%s", err.msg);
    struct service_config sc = {.all_drafts = true,
                                .sched = {.max_running = 16,
                                          .max_step_tokens = 64,
                                          .max_waiting = 64,
                                          .max_waiting_tokens = 1 << 20,
                                          .max_model_len = engine_info(s.engine)->max_model_len,
                                          .depth = engine_info(s.engine)->depth,
                                          .async = engine_info(s.engine)->async},
                                .max_chunk = 32,
                                .target_itl_ns = target_itl_ns,
                                .record = record};
    s.service = service_open(s.engine, &sc, &err);
    if (!s.service)
        fail_msg("%s", err.msg);
    return s;
}

static void close_service(struct setup *s) {
    service_close(s->service);
    engine_close(s->engine);
}

enum { SHAPES = 24, LONG = 60 };
struct output {
    int num;
    token_id tokens[LONG];
    float logprob[LONG];
    bool finished;
    enum finish_reason finish;
};
static struct output alone[SHAPES]; // of the first storm, one step at a time, without drafts

// A drafter that knows what the shape gives alone, and errs now and then.
struct memory {
    int shape, num_prompt;
};

static int memory_propose(void *state, const token_id *tokens, int n, token_id *drafts, int max) {
    const struct memory *m = state;
    const struct output *o = &alone[m->shape];
    int at = n - m->num_prompt, num = 0;
    for (; num < max && at + num < o->num && (n + num) % 11 != 0; num++)
        drafts[num] = (n + num) % 7 ? o->tokens[at + num] : tokens[0];
    return num;
}

static struct drafter *memory_new(int shape, int num_prompt) {
    struct drafter *d = malloc(sizeof *d);
    struct memory *m = malloc(sizeof *m);
    *m = (struct memory){shape, num_prompt};
    *d = (struct drafter){m, memory_propose, free};
    return d;
}

static struct request *make(uint64_t id, int shape, int max_output) {
    token_id t[64];
    int n = 3 + shape % 40;
    for (int j = 0; j < n; j++)
        t[j] = 259 + (shape % 3 * 17 + j * 3) % 250;
    struct request_params p = {
        .id = id,
        .prompt = t,
        .num_prompt = n,
        .max_output = max_output,
        .drafter = shape < SHAPES && shape % 3 == 1 && alone[shape].finished ? memory_new(shape, n) : NULL,
        .sampling = {.temperature = shape % 2 ? 1.0f : 0,
                     .top_p = 1,
                     .seed = (uint64_t)shape,
                     .repetition_penalty = 1,
                     .logprobs = 2}};
    return request_new(&p, 16);
}

static int collect(struct service *s, struct output *out, uint64_t base) {
    static struct service_event events[64];
    int finished = 0, n;
    service_wait(s, 2000000000);
    while ((n = service_take(s, events, 64)) > 0)
        for (int i = 0; i < n; i++) {
            const struct service_event *e = &events[i];
            struct output *o = &out[e->id - base];
            assert_false(o->finished); // nothing comes after the last event
            if (e->kind == EVENT_TOKEN) {
                assert_int_equal(e->position, o->num);
                o->tokens[o->num] = e->token;
                o->logprob[o->num++] = e->logprob;
            } else if (e->kind == EVENT_FINISH) {
                o->finished = true;
                o->finish = e->finish;
                assert_int_equal(e->num_output, o->num);
                finished++;
            }
        }
    return finished;
}

static void storm(int rounds) {
    static struct output out[SHAPES];
    char record[] = "/tmp/quire-record-XXXXXX";
    int fd = mkstemp(record);
    assert_true(fd >= 0);
    close(fd);
    struct setup s = open_service(24, record); // far fewer than 16 requests of 100 tokens want
    bool several = engine_info(s.engine)->depth > 1;
    struct err err = {0};
    uint64_t id = 1;
    for (int i = 0; i < SHAPES && !alone[i].finished; i++, id++) {
        assert_int_equal(service_submit(s.service, make(id, i, LONG), &err), STATUS_OK);
        while (collect(s.service, alone + i, id) == 0)
            ;
        assert_int_equal(alone[i].finish, FINISH_LENGTH);
        assert_int_equal(alone[i].num, LONG);
    }
    uint64_t random = 88172645463325252u;
    for (int round = 0; round < rounds; round++) {
        uint64_t base = id;
        int finished = 0, cancelled = 0;
        memset(out, 0, sizeof out);
        for (int i = 0; i < SHAPES; i++, id++) {
            assert_int_equal(service_submit(s.service, make(id, i, LONG), &err), STATUS_OK);
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            if (random % 3 == 0) {
                usleep((useconds_t)(random >> 40) % 3000);
                service_cancel(s.service, base + (random >> 20) % (uint64_t)(i + 1), FINISH_CANCELLED);
                service_cancel(s.service, base + (random >> 20) % (uint64_t)(i + 1), FINISH_CANCELLED);
            }
        }
        while (finished < SHAPES)
            finished += collect(s.service, out, base);
        for (int i = 0; i < SHAPES; i++) {
            cancelled += out[i].finish == FINISH_CANCELLED;
            assert_true(out[i].finish == FINISH_CANCELLED ||
                        (out[i].finish == FINISH_LENGTH && out[i].num == LONG));
            assert_memory_equal(out[i].tokens, alone[i].tokens, (size_t)out[i].num * sizeof(token_id));
            assert_memory_equal(out[i].logprob, alone[i].logprob, (size_t)out[i].num * sizeof(float));
        }
        assert_true(cancelled < SHAPES);
    }
    struct service_stats stats;
    do
        service_stats(s.service, &stats);
    while (stats.busy);
    assert_int_equal(stats.free_blocks, stats.num_blocks);
    assert_int_equal(stats.running + stats.waiting, 0);
    assert_true(stats.preemptions > 0 && stats.prefix_hits > 0);
    close_service(&s);

    uint64_t plans = 0;
    if (service_replay(record, &plans, &err) != STATUS_OK)
        fail_msg("replay: %s", err.msg);
    assert_int_equal(plans, stats.steps);

    // the pace changed, and where it may not, it did not; steps that planned nothing while plans were in
    // flight are there, because they may have preempted somebody
    FILE *f = fopen(record, "r+");
    char line[1 << 16];
    int chunks = 0, empty = 0, drafts = 0;
    while (fgets(line, sizeof line, f)) {
        chunks += strncmp(line, "chunk ", 6) == 0;
        empty += strcmp(line, "plan 0 0\n") == 0;
        drafts += strncmp(line, "draft ", 6) == 0;
    }
    assert_true(target_itl_ns && !several ? chunks > 1 : chunks == 0);
    assert_true(several ? empty > 0 : empty == 0);
    assert_true(drafts > 20);
    rewind(f);

    // a record that was tampered with is noticed
    long at = 0;
    while (fgets(line, sizeof line, f) && strncmp(line, "plan 3 ", 7) != 0)
        at = ftell(f);
    fseek(f, at + 5, SEEK_SET);
    fputc('4', f);
    fclose(f);
    err = (struct err){0};
    assert_int_equal(service_replay(record, &plans, &err), STATUS_INVALID);
    unlink(record);
}

// One plan at a time; then several in flight, where requests run ahead of their tokens, and where they are
// dealt out among stages. All get the bits of the first.
TEST(test_storm) {
    static const int cases[][2] = {{0, 0}, {0, 2}, {2, 0}, {4, 0}, {2, 1}, {2, 4}, {5, 8}};
    const int rounds = SLOW ? 1 : 4;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        stages = cases[i][0], depth = cases[i][1];
        storm(i == 0 ? 3 * rounds : rounds);
    }
    stages = depth = 0;
    target_itl_ns = 1;
    storm(rounds);
    depth = 2; // no pace there
    storm(rounds);
    target_itl_ns = depth = 0;
}

TEST(test_refusals) {
    struct setup s = open_service(24, NULL);
    struct err err = {0};
    token_id prompt[300] = {0};
    struct request_params p = {.id = 1,
                               .prompt = prompt,
                               .num_prompt = 300,
                               .max_output = 1,
                               .sampling = {.top_p = 1, .repetition_penalty = 1, .logprobs = -1}};
    struct request *r = request_new(&p, 16);
    assert_int_equal(service_submit(s.service, r, &err), STATUS_INVALID); // longer than the model allows
    request_free(r);
    int refused = 0;
    uint64_t id = 2;
    for (int i = 0; i < 200; i++, id++) {
        r = make(id, i, 60);
        err = (struct err){0};
        enum status status = service_submit(s.service, r, &err);
        if (status != STATUS_OK) {
            assert_int_equal(status, STATUS_LIMIT);
            request_free(r);
            refused++;
        }
    }
    assert_true(refused > 0);
    service_cancel(s.service, 123456789, FINISH_CANCELLED); // unknown: ignored
    close_service(&s);                                      // with work in every state
}

// A drafter that knows the whole output behind a prompt of three tokens.
struct known {
    const token_id *tokens;
    int num;
};

static int known_propose(void *state, const token_id *tokens, int n, token_id *drafts, int max) {
    const struct known *k = state;
    (void)tokens;
    int num = k->num - (n - 3) < max ? k->num - (n - 3) : max;
    memcpy(drafts, k->tokens + n - 3, (size_t)num * sizeof *drafts);
    return num;
}

static struct drafter *known_new(const token_id *tokens, int num) {
    struct drafter *d = malloc(sizeof *d);
    struct known *k = malloc(sizeof *k);
    *k = (struct known){tokens, num};
    *d = (struct drafter){k, known_propose, free};
    return d;
}

static bool even_accept(void *state, token_id token) {
    (*(int *)state)++;
    return token % 2 == 0;
}
static enum mask_result even_mask(void *state, uint32_t *bits, int vocab, int64_t *work) {
    (void)state;
    (void)work;
    for (int i = 0; i < (vocab + 31) / 32; i++)
        bits[i] = 0x55555555;
    return MASK_DONE;
}
static void even_free(void *state) { *(int *)state += 1000; }

static void filtered(void) {
    struct setup s = open_service(24, NULL);
    struct err err = {0};
    struct output out = {0};
    int calls = 0;
    struct token_filter *filter = calloc(1, sizeof *filter);
    *filter = (struct token_filter){&calls, even_accept, even_mask, NULL, even_free, NULL};
    token_id prompt[] = {1, 403, 407};
    static const token_id even[20] = {2};
    struct request_params p = {.id = 1,
                               .prompt = prompt,
                               .num_prompt = 3,
                               .max_output = 20,
                               .filter = filter,
                               .drafter = known_new(even, 20), // not asked: the filter takes nothing back
                               .sampling = {.top_p = 1, .repetition_penalty = 1, .logprobs = -1}};
    assert_int_equal(service_submit(s.service, request_new(&p, 16), &err), STATUS_OK);
    while (collect(s.service, &out, 1) == 0)
        ;
    close_service(&s);
    assert_int_equal(out.num, 20);
    for (int i = 0; i < out.num; i++)
        assert_int_equal(out.tokens[i] % 2, 0);
    assert_true(calls >= 1019 && calls <= 1020); // the last token needs no state; freed exactly once
}

TEST(test_filter) {
    filtered();
    depth = 2;
    filtered();
    stages = 2;
    filtered();
    stages = depth = 0;
}

// A filter that refuses the sixth token, though its mask allows all.
enum { REFUSED = 5 };
static bool refusing_accept(void *state, token_id token) {
    int *position = state;
    (void)token;
    if (*position == REFUSED)
        return false;
    ++*position;
    return true;
}
static enum mask_result refusing_mask(void *state, uint32_t *bits, int vocab, int64_t *work) {
    (void)state;
    (void)work;
    memset(bits, 0xff, ((size_t)vocab + 31) / 32 * sizeof *bits);
    return MASK_DONE;
}
static void refusing_rollback(void *state, int n) { *(int *)state -= n; }

// A request ends with the token that its filter refuses, an error; also where it is one of several that a step gave.
static void refused(void) {
    struct setup s = open_service(24, NULL);
    struct err err = {0};
    struct output plain = {0};
    token_id prompt[] = {1, 403, 407};
    struct request_params p = {.prompt = prompt,
                               .num_prompt = 3,
                               .max_output = 20,
                               .sampling = {.top_p = 1, .repetition_penalty = 1, .logprobs = -1}};
    for (p.id = 1; p.id <= 3; p.id++) {
        struct output out = {0};
        if (p.id > 1) {
            p.filter = malloc(sizeof *p.filter);
            *p.filter = (struct token_filter){
                calloc(1, sizeof(int)), refusing_accept, refusing_mask, refusing_rollback, free, NULL};
        }
        p.drafter = p.id == 3 ? known_new(plain.tokens, 20) : NULL;
        assert_int_equal(service_submit(s.service, request_new(&p, 16), &err), STATUS_OK);
        while (collect(s.service, &out, p.id) == 0)
            ;
        if (p.id == 1)
            plain = out;
        assert_int_equal(out.finish, p.id == 1 ? FINISH_LENGTH : FINISH_ERROR);
        assert_int_equal(out.num, p.id == 1 ? 20 : REFUSED + 1);
        assert_memory_equal(out.tokens, plain.tokens, (size_t)out.num * sizeof(token_id));
    }
    close_service(&s);
}

// A filter whose every mask is late until another request has so many tokens more: it allows even ones.
enum { AHEAD = 4 };
static atomic_int others, masks_asked;
struct late {
    int position;
    bool late, never;
};

static bool late_accept(void *state, token_id token) {
    ((struct late *)state)->position++;
    return token % 2 == 0;
}

static enum mask_result late_mask(void *state, uint32_t *bits, int vocab, int64_t *work) {
    struct late *l = state;
    masks_asked++;
    if (l->never || (l->late && others < AHEAD * (l->position + 1))) {
        *work = 0;
        memset(bits, 0, ((size_t)vocab + 31) / 32 * sizeof *bits);
        return MASK_MORE;
    }
    return even_mask(state, bits, vocab, work);
}

static struct request *late_request(uint64_t id, bool late, bool never) {
    struct request_params p = {
        .id = id,
        .prompt = (token_id[]){1, 403, 407},
        .num_prompt = 3,
        .max_output = 10,
        .sampling = {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .logprobs = 1}};
    struct late *l = malloc(sizeof *l);
    *l = (struct late){0, late, never};
    p.filter = malloc(sizeof *p.filter);
    *p.filter = (struct token_filter){l, late_accept, late_mask, NULL, free, NULL};
    return request_new(&p, 16);
}

// Steps go on without a row whose mask is late; what it gets is what it gets in time. One that leaves is asked no more.
static void late_masks(void) {
    char record[] = "/tmp/quire-record-XXXXXX";
    int fd = mkstemp(record);
    assert_true(fd >= 0);
    close(fd);
    struct setup s = open_service(24, record);
    struct err err = {0};
    struct output in_time = {0}, out[3] = {{0}};
    assert_int_equal(service_submit(s.service, late_request(1, false, false), &err), STATUS_OK);
    while (collect(s.service, &in_time, 1) == 0)
        ;
    assert_true(in_time.finish == FINISH_LENGTH && in_time.num == 10);
    others = 0;
    assert_int_equal(service_submit(s.service, late_request(2, true, false), &err), STATUS_OK);
    assert_int_equal(service_submit(s.service, make(3, 2, LONG), &err), STATUS_OK);
    assert_int_equal(service_submit(s.service, late_request(4, false, true), &err), STATUS_OK);
    for (int finished = 0; finished < 2; others = out[1].num) {
        finished += collect(s.service, out, 2);
        assert_true(out[0].num * AHEAD <= out[1].num);
    }
    assert_true(out[0].finish == FINISH_LENGTH && out[0].num == in_time.num);
    assert_memory_equal(out[0].tokens, in_time.tokens, sizeof in_time.tokens);
    assert_memory_equal(out[0].logprob, in_time.logprob, sizeof in_time.logprob);
    assert_true(out[1].finish == FINISH_LENGTH && out[1].num == LONG);
    assert_true(!out[2].finished && out[2].num == 0);
    service_cancel(s.service, 4, FINISH_CANCELLED); // nothing else is left to wake the engine
    while (!out[2].finished)
        collect(s.service, out, 2);
    assert_int_equal(out[2].finish, FINISH_CANCELLED);
    int asked = masks_asked;
    usleep(2000);
    assert_int_equal(masks_asked, asked);
    close_service(&s);
    uint64_t plans;
    if (service_replay(record, &plans, &err) != STATUS_OK)
        fail_msg("%s", err.msg);
    assert_true(plans >= LONG);
    unlink(record);
}

TEST(test_late_masks) {
    late_masks();
    depth = 2;
    late_masks();
    stages = 2;
    late_masks();
    stages = depth = 0;
}

TEST(test_refusing_filter) {
    refused();
    depth = 2;
    refused();
    depth = 0;
}

// A stop string ends a request with the step that completes it, a stop token with its id; the record says so, too.
static void stopped(void) {
    enum { MOST = 20, LAST = 8 };
    char record[] = "/tmp/quire-stopped-XXXXXX";
    int fd = mkstemp(record);
    assert_true(fd >= 0);
    close(fd);
    struct setup s = open_service(24, record);
    struct err err = {0};
    token_id prompt[] = {1, 403, 407};
    struct request_params p = {.prompt = prompt,
                               .num_prompt = 3,
                               .max_output = MOST,
                               .sampling = {.top_p = 1, .repetition_penalty = 1, .logprobs = -1}};
    token_id tokens[MOST];
    struct service_event events[64];
    const char *stop = NULL;
    size_t stop_len = 0;
    uint64_t steps = 0;
    // To the end, to a stop string, to a stop token; and to both inside what drafts made a step give at once.
    for (int turn = 0; turn < 5; turn++) {
        bool by_text = turn == 1 || turn == 3, by_token = turn == 2 || turn == 4, drafts = turn > 2;
        struct detok_params d = {
            .tokenizer = engine_tokenizer(s.engine), .stops = &stop, .stop_lens = &stop_len, .num_stops = 1};
        p.id = (uint64_t)turn + 1;
        p.matcher = by_text ? stop_matcher_new(&d) : NULL;
        p.drafter = drafts ? known_new(tokens, MOST) : NULL;
        p.stop = &tokens[LAST];
        p.num_stop = by_token;
        assert_int_equal(service_submit(s.service, request_new(&p, 16), &err), STATUS_OK);
        int num = 0, num_stop = 0;
        struct service_event end = {0};
        while (end.finish == FINISH_NONE) {
            int n = service_take(s.service, events, 64);
            for (int i = 0; i < n; i++) {
                if (events[i].kind == EVENT_FINISH) {
                    end = events[i];
                    continue;
                }
                num_stop += events[i].finish == FINISH_STOP;
                if (turn == 0)
                    tokens[num] = events[i].token;
                assert_int_equal(events[i].token, tokens[num++]);
            }
        }
        assert_int_equal(end.finish, turn ? FINISH_STOP : FINISH_LENGTH);
        assert_int_equal(end.num_output, num);
        assert_int_equal(num_stop, by_token);
        assert_int_equal(end.token, by_token ? tokens[LAST] : -1);
        assert_true(turn == 0 ? num == MOST : num <= LAST + 1);
        if (by_text)
            assert_int_equal(num, LAST + 1);
        struct service_stats stats;
        do
            service_stats(s.service, &stats);
        while (stats.busy);
        if (depth <= 1) // among several steps in flight one may have begun
            assert_true(drafts ? stats.steps - steps < (uint64_t)num : stats.steps - steps == (uint64_t)num);
        steps = stats.steps;
        stop = tokenizer_bytes(engine_tokenizer(s.engine), tokens[LAST], false, &stop_len);
        for (int i = 0; turn == 0 && i < LAST; i++) { // nothing before it has this text
            size_t len;
            const char *text = tokenizer_bytes(engine_tokenizer(s.engine), tokens[i], false, &len);
            assert_null(memmem(text, len, stop, stop_len));
        }
    }
    close_service(&s);
    uint64_t plans = 0;
    if (service_replay(record, &plans, &err) != STATUS_OK)
        fail_msg("replay: %s", err.msg);
    assert_int_equal(plans, steps);
    unlink(record);
}

TEST(test_stopped) {
    stopped();
    depth = 2;
    stopped();
    depth = 0;
}

// A device that fails ends every request with an error, once, and refuses new ones; nothing hangs, nothing
// aborts.
static void failing(void) {
    setenv("QUIRE_CUDA_MODULE", FAULT_BACKEND, 1);
    setenv("FAULT_STEP", "12", 1);
    device = "cuda";
    struct setup s = open_service(24, NULL);
    device = "cpu";
    unsetenv("QUIRE_CUDA_MODULE");
    unsetenv("FAULT_STEP");
    static struct output out[SHAPES];
    struct err err = {0};
    int finished = 0, submitted = 0;
    memset(out, 0, sizeof out);
    for (int i = 0; i < SHAPES; i++) {
        struct request *r = make((uint64_t)i + 1, i, LONG);
        if (i > 0 && i % 3 == 0)
            service_cancel(s.service, (uint64_t)i, FINISH_CANCELLED); // some of them in flight at the end
        enum status status = service_submit(s.service, r, &err);
        if (status != STATUS_OK) {
            assert_int_equal(status, STATUS_DEVICE);
            request_free(r);
            break;
        }
        submitted++;
    }
    while (finished < submitted)
        finished += collect(s.service, out, 1);
    for (int i = 0; i < submitted; i++)
        assert_true(out[i].finish == FINISH_ERROR || (i % 3 == 2 && out[i].finish == FINISH_CANCELLED));
    struct service_stats stats;
    service_stats(s.service, &stats);
    assert_true(stats.dead);
    struct request *r = make(1000, 1, 1);
    err = (struct err){0};
    assert_int_equal(service_submit(s.service, r, &err), STATUS_DEVICE);
    request_free(r);
    close_service(&s);
}

TEST(test_device_failure) {
    static const int cases[][2] = {{0, 0}, {0, 2}, {2, 0}, {4, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        stages = cases[i][0], depth = cases[i][1];
        failing();
    }
    stages = depth = 0;
}

// Closed with plans in flight and requests in every state; nothing is lost, whatever the depth.
TEST(test_close_in_flight) {
    static const int cases[][2] = {{0, 2}, {2, 0}, {4, 0}};
    struct err err = {0};
    for (int round = 0; round < 12; round++) {
        stages = cases[round % 3][0], depth = cases[round % 3][1];
        struct setup s = open_service(24, NULL);
        for (int i = 0; i < 30; i++)
            assert_int_equal(service_submit(s.service, make((uint64_t)i + 1, i, LONG), &err), STATUS_OK);
        usleep((useconds_t)round * 1500);
        for (int i = 0; i < 30; i += 4)
            service_cancel(s.service, (uint64_t)i + 1, FINISH_CANCELLED);
        close_service(&s);
    }
    stages = depth = 0;
}

int main(void) { return run_all_tests(NULL, NULL); }
