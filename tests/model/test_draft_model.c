// A draft model: with one a request gets the tokens and the bits of log-probabilities that it gets without, whether the
// draft model agrees always (the same file), at times (its weights with noise) or never; its pages come back; and which
// files may draft.
#include "driver.h"
#include "models/model_file.h"
#include "service.h"
#include "text.h"

#include <unistd.h>

enum { REQUESTS = 16, OUTPUT = 48, MAX_PROMPT = 90 };

static const char *model(void) {
    static char copy[4096];
    const char *path = test_data("models/stories260K/stories260K.gguf");
    if (!path)
        skip();
    snprintf(copy, sizeof copy, "%s", path);
    return copy;
}

// ---- files that draft

// Writes the model with each weight w as w + noise * u * w, u from -1 to 1: from 2 on nothing is left of it.
static const char *write_noisy(double noise) {
    static char paths[4][64];
    static int num;
    char *path = paths[num++];
    struct err err = {0};
    struct model_file *f = model_file_open(model(), &err);
    assert_non_null(f);
    unsigned char *bytes = malloc(f->size);
    uint64_t stopped, random = 88172645463325252u;
    assert_null(f->ops->read(f, 0, f->size, bytes, &stopped));
    for (uint64_t i = 0; i < f->num_tensors; i++)
        for (uint64_t at = f->tensors[i].offset, end = at + f->tensors[i].bytes; at < end; at += 4) {
            float w;
            assert_int_equal(f->tensors[i].view.dtype, DTYPE_F32);
            memcpy(&w, bytes + at, sizeof w);
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            w += (float)(noise * ((double)(random >> 11) / 0x1p52 - 1)) * w;
            memcpy(bytes + at, &w, sizeof w);
        }
    strcpy(path, "/tmp/quire-draft-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, bytes, f->size) == (ssize_t)f->size);
    close(fd);
    free(bytes);
    model_file_close(f);
    return path;
}

// ---- a service

struct run {
    const char *what;
    int blocks, max_running, depth, stages, ranks;
    bool choose; // as many drafts as pay, not all
};

static struct engine *engine;
static struct service *service;

static void open_all(const struct run *run, const char *draft) {
    struct err err = {0};
    struct engine_config c = {.path = model(),
                              .device = "cpu",
                              .num_threads = 2,
                              .block_size = 16,
                              .num_kv_blocks = run->blocks,
                              .max_model_len = 256,
                              .max_num_seqs = run->max_running,
                              .max_num_batched_tokens = 64,
                              .depth = run->depth,
                              .pipeline_parallel_size = run->stages,
                              .tensor_parallel_size = run->ranks,
                              .prefix_caching = true,
                              .draft_path = draft};
    log_set_level(LOG_ERROR);
    engine = engine_open(&c, &err);
    if (!engine)
        fail_msg("%s", err.msg);
    assert_true(!draft == !engine_draft(engine));
    const struct engine_info *info = engine_info(engine);
    struct service_config sc = {.all_drafts = !run->choose,
                                .sched = {.max_running = run->max_running,
                                          .max_step_tokens = 64,
                                          .max_waiting = 64,
                                          .max_waiting_tokens = 1 << 20,
                                          .max_model_len = info->max_model_len,
                                          .depth = info->depth,
                                          .async = info->async},
                                .max_chunk = 32};
    service = service_open(engine, &sc, &err);
    if (!service)
        fail_msg("%s", err.msg);
}

static void close_all(void) {
    service_close(service);
    struct engine *draft = engine_draft(engine);
    assert_true(!draft || engine_kv(draft)->num_free == engine_info(engine)->num_blocks);
    assert_int_equal(draft ? kv_check(engine_kv(draft), NULL, 0) : 0, 0);
    engine_close(engine);
}

struct output {
    int num;
    bool finished;
    enum finish_reason finish;
    token_id tokens[OUTPUT];
    float logprob[OUTPUT];
};
static struct output plain[REQUESTS], got[REQUESTS];

// Request i. plain_only: nothing but prompt, temperature and seed, of which a draft model has all.
static struct request *make(uint64_t id, int i, bool plain_only) {
    token_id prompt[MAX_PROMPT];
    static const struct logit_bias bias[] = {{300, 2.0f}, {310, -4.0f}};
    static const char *stop = "was";
    static const size_t stop_len = 3;
    struct detok_params d = {
        .tokenizer = engine_tokenizer(engine), .stops = &stop, .stop_lens = &stop_len, .num_stops = 1};
    struct request_params p = {.id = id,
                               .prompt = prompt,
                               .num_prompt = 3 + i * 37 % (MAX_PROMPT - 3),
                               .max_output = OUTPUT - i % 5,
                               .draft = engine_draft(engine) != NULL && i % 8 != 7, // the others go on beside
                               .sampling = {.temperature = (float)(i % 3) * 0.5f,
                                            .top_p = i % 2 ? 0.95f : 1,
                                            .seed = 10 + (uint64_t)i,
                                            .repetition_penalty = 1,
                                            .logprobs = 1}};
    for (int j = 0; j < p.num_prompt; j++) // some share their first tokens
        prompt[j] = j == 0 ? 1 : 259 + (i / 4 * 41 + j * 7) % 250;
    switch (plain_only ? 0 : i % 7) {
    case 1: p.filter = driver_filter(); break;
    case 2: p.matcher = stop_matcher_new(&d); break;
    case 3:
        p.sampling.repetition_penalty = 1.3f;
        p.sampling.presence_penalty = 0.2f;
        break;
    case 4:
        p.bias = bias;
        p.num_bias = 2;
        p.min_output = 5;
        break;
    case 5:
        p.salt = "tenant";
        p.num_salt = 6;
        p.sampling.prompt_logprobs = true;
        break;
    case 6: p.sampling.mirostat_tau = i == 6 ? 3.0f : 0; break;
    default: break;
    }
    struct request *r = request_new(&p, 16);
    assert_non_null(r);
    return r;
}

// One round of all requests; some are cancelled, and what they got before is compared, too.
static void run_round(struct output *out, uint64_t *id, bool plain_only, bool cancels) {
    static struct service_event events[64];
    struct err err = {0};
    uint64_t base = *id;
    int left = REQUESTS;
    memset(out, 0, REQUESTS * sizeof *out);
    for (int i = 0; i < REQUESTS; i++, ++*id)
        assert_int_equal(service_submit(service, make(*id, i, plain_only), &err), STATUS_OK);
    while (left > 0) {
        service_wait(service, 2000000000);
        for (int n; (n = service_take(service, events, 64)) > 0;)
            for (int i = 0; i < n; i++) {
                const struct service_event *e = &events[i];
                struct output *o = &out[e->id - base];
                assert_false(o->finished);
                if (e->kind == EVENT_TOKEN) {
                    o->tokens[o->num] = e->token;
                    o->logprob[o->num++] = e->logprob;
                } else if (e->kind == EVENT_FINISH) {
                    o->finished = true;
                    o->finish = e->finish;
                    left--;
                }
                if (cancels && o->num == 20 && (e->id - base) % 3 == 0)
                    service_cancel(service, e->id, FINISH_CANCELLED);
            }
    }
}

static void check_same(const char *what, bool cancels) {
    for (int i = 0; i < REQUESTS; i++) {
        size_t num = (size_t)got[i].num;
        bool cancelled = cancels && got[i].finish == FINISH_CANCELLED;
        if (cancelled ? got[i].num > plain[i].num : got[i].num != plain[i].num)
            fail_msg("%s: request %d has %d tokens, not %d", what, i, got[i].num, plain[i].num);
        assert_true(cancelled || got[i].finish == plain[i].finish);
        if (memcmp(got[i].tokens, plain[i].tokens, num * sizeof(token_id)) != 0)
            fail_msg("%s: request %d has other tokens", what, i);
        if (memcmp(got[i].logprob, plain[i].logprob, num * sizeof(float)) != 0)
            fail_msg("%s: request %d has other bits", what, i);
    }
}

static struct service_stats stats_of_idle(void) {
    struct service_stats stats;
    do
        service_stats(service, &stats);
    while (stats.busy);
    return stats;
}

static const struct run usual = {"together", 200, 40, 0, 0, 0, false};

TEST(test_the_same_bits) {
    static const struct run runs[] = {
        {"together", 200, 40, 0, 0, 0, false}, {"few", 200, 2, 0, 0, 0, false},
        {"preempted", 24, 16, 0, 0, 0, false}, {"asynchronous", 60, 8, 2, 0, 0, false},
        {"stages", 60, 8, 0, 2, 0, false},     {"ranks", 200, 32, 0, 0, 2, false},
        {"what pays", 24, 4, 0, 0, 0, true}};
    static const char *const names[] = {"always", "at times", "never"};
    const char *const drafts[] = {model(), write_noisy(0.3), write_noisy(30)};
    uint64_t id = 1;
    open_all(&usual, NULL);
    run_round(plain, &id, false, false);
    close_all();
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++)
        for (int d = 0; d < 3; d++) {
            if (r > 0 && d != (int)r % 3)
                continue;
            char what[80];
            snprintf(what, sizeof what, "%s, agrees %s", runs[r].what, names[d]);
            id = 1;
            open_all(&runs[r], drafts[d]);
            for (int round = SLOW; round < 3; round++) { // the second finds the prompts in both caches
                run_round(got, &id, false, round == 2);
                check_same(what, round == 2);
            }
            struct service_stats s = stats_of_idle();
            printf("  %s: %llu drafts, %llu right, %llu preemptions\n", what,
                   (unsigned long long)s.draft_tokens, (unsigned long long)s.accepted,
                   (unsigned long long)s.preemptions);
            if (!runs[r].choose) {
                double right = (double)s.accepted / (double)s.draft_tokens;
                assert_true(s.draft_tokens > 200);
                assert_true(d == 0 ? right > 0.3 : d == 1 ? right > 0.03 : right < 0.03);
            }
            assert_true(runs[r].blocks != 24 || runs[r].max_running < 16 || s.preemptions > 0);
            close_all();
        }
    unlink(drafts[1]);
    unlink(drafts[2]);
}

// It samples by the request's own random numbers, so where it is the same model every draft is right at any temperature,
// and steps are as few as drafts allow.
TEST(test_the_same_model_is_always_right) {
    uint64_t id = 1;
    open_all(&usual, model());
    run_round(got, &id, true, false);
    struct service_stats s = stats_of_idle();
    assert_true(s.draft_tokens > 200);
    assert_int_equal(s.accepted, s.draft_tokens);
    const struct kv_cache *kv = engine_kv(engine_draft(engine));
    assert_true(kv->num_cached[0] > 0); // nobody runs; the prompts stay for those who come with the same
    assert_int_equal(kv->num_active[0], 0);
    close_all();
}

// ---- memory

TEST(test_the_budget_is_of_both) {
    struct err err = {0};
    struct engine_config c = {.path = model(),
                              .device = "cpu",
                              .num_threads = 1,
                              .block_size = 16,
                              .kv_cache_bytes = 4 << 20,
                              .max_num_seqs = 4,
                              .max_model_len = 256};
    struct engine *alone = engine_open(&c, &err);
    c.draft_path = c.path;
    struct engine *both = engine_open(&c, &err);
    assert_true(alone && both);
    int blocks = engine_info(alone)->num_blocks;
    assert_int_equal(engine_info(both)->num_blocks, blocks / 2); // the draft's pages are as large
    assert_int_equal(engine_info(engine_draft(both))->num_blocks, blocks / 2);
    assert_true(engine_info(both)->kv_bytes <= 4 << 20);
    engine_close(alone);
    engine_close(both);
}

// ---- who may draft

static void refuse(struct engine_config c, const char *draft, const char *why) {
    struct err err = {0};
    c.path = model();
    c.device = c.device ? c.device : "cpu";
    c.num_threads = 1;
    c.num_kv_blocks = 8;
    c.max_num_seqs = 1;
    c.draft_path = draft;
    assert_null(engine_open(&c, &err));
    assert_true(err.code == STATUS_INVALID || err.code == STATUS_IO);
    if (!strstr(err.msg, why))
        fail_msg("%s", err.msg);
}

TEST(test_refusals) {
    refuse((struct engine_config){0}, "models/quire-tiny.gguf", "another tokenizer");
    refuse((struct engine_config){0}, "/nowhere.gguf", "/nowhere.gguf");
    refuse((struct engine_config){.device = "ref"}, model(), "for the CPU, not for device 'ref'");
}

int main(void) { return run_all_tests(NULL, NULL); }
