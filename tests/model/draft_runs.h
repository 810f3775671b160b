// Rounds of requests through a service, with and without what drafts: all that they get is the same. For test_draft_model and
// test_mtp.
#pragma once

#include "driver.h"
#include "models/model_file.h"
#include "service.h"
#include "text.h"

#include <unistd.h>

enum { REQUESTS = 16, OUTPUT = 48, MAX_PROMPT = 90 };

// The model of all that follows: with an MTP layer, or NULL: stories_model(), without.
static const char *mtp_model;
static const char *device = "cpu";

// Writes f's bytes, as they are now, to a new file, and frees both. Returns path.
static const char *save_changed(char path[32], struct model_file *f, unsigned char *bytes) {
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
    int chunk;   // of a prompt beside decodes; 0: 32
};

static struct engine *engine;
static struct service *service;

static void open_all(const struct run *run, const char *draft) {
    struct err err = {0};
    struct engine_config c = {.path = mtp_model ? mtp_model : stories_model(),
                              .device = device,
                              .num_threads = 2,
                              .mtp = mtp_model && draft ? MTP_ALWAYS : MTP_NEVER,
                              .block_size = 16,
                              .num_kv_blocks = run->blocks,
                              .max_model_len = 256,
                              .max_num_seqs = run->max_running,
                              .max_num_batched_tokens = 64,
                              .depth = run->depth,
                              .pipeline_parallel_size = run->stages,
                              .tensor_parallel_size = run->ranks,
                              .prefix_caching = true,
                              .draft_path = mtp_model ? NULL : draft};
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
                                .max_chunk = run->chunk ? run->chunk : 32};
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
    static const struct logit_bias bias[] = {{290, 2.0f}, {280, -4.0f}};
    int vocab = engine_info(engine)->model.vocab, first = vocab > 400 ? 259 : 5,
        kinds = vocab > 400 ? 250 : 290;
    static const char *stop = "was";
    static const size_t stop_len = 3;
    struct detok_params d = {
        .tokenizer = engine_tokenizer(engine), .stops = &stop, .stop_lens = &stop_len, .num_stops = 1};
    struct request_params p = {.id = id,
                               .prompt = prompt,
                               .num_prompt = 3 + i * 37 % (MAX_PROMPT - 3),
                               .max_output = OUTPUT - i % 5,
                               .draft = engine_draft(engine) != NULL && i % 8 != 7, // the others go on beside
                               .mtp_size =
                                   engine_draft(engine) ? engine_info(engine_draft(engine))->mtp_size : 0,
                               .sampling = {.temperature = (float)(i % 3) * 0.5f,
                                            .top_p = i % 2 ? 0.95f : 1,
                                            .seed = 10 + (uint64_t)i,
                                            .repetition_penalty = 1,
                                            .logprobs = 1}};
    for (int j = 0; j < p.num_prompt; j++) // some share their first tokens
        prompt[j] = j == 0 ? 1 : first + (i / 4 * 41 + j * 7) % kinds;
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

static const struct run usual = {"together", 200, 40, 0, 0, 0, false, 0};
