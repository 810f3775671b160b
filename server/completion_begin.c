// From a body to requests at the engine: parsed inline or in the pool, submitted all or none.
#include "completion.h"
#include "completion_state.h"
#include "dialects/field_table.h"
#include "job.h"
#include "log.h"
#include "reply.h"
#include "seed.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

static uint64_t pick_seed(struct app *app) {
    uint64_t seed;
    if (app->config->has_seed)
        return splitmix64(splitmix64(app->config->seed) + app->seed_counter++);
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
        seed = splitmix64((uint64_t)http_now());
    return seed;
}

static struct request *make_request(struct completion *c, struct choice *ch, uint64_t seed) {
    const struct completion_request *q = &c->request;
    const struct token_buf *prompt = &q->prompts[ch->index / q->n];
    int room = c->app->model.max_model_len - (int)prompt->len;
    struct request_params p = {
        .id = ch->id,
        .prompt = prompt->ids,
        .num_prompt = (int)prompt->len,
        .max_output = q->max_tokens < room ? q->max_tokens : room,
        .sampling = q->sampling,
        .stop = q->stop_ids,
        .num_stop = q->num_stop_ids,
        .bias = q->bias,
        .num_bias = q->num_bias,
        .logprob_ids = q->logprob_ids,
        .history = q->history,
        .allowed = q->allowed,
        .num_mask_words = (c->app->model.vocab + 31) / 32,
        .bad_words = q->bad_words,
        .priority = q->priority,
        .salt = q->salt,
        .num_salt = (int)q->salt_len,
    };
    if (c->dialect->vector) {
        p.max_output = 0;
        p.pooling = c->app->model.pooling;
        p.vector_size = c->app->model.vector_size;
        return request_new(&p, engine_info(c->app->engine)->block_size);
    }
    p.min_output = q->min_tokens < p.max_output ? q->min_tokens : p.max_output;
    // With a seed a prompt's choices do not depend on its place in the list; without one, equal prompts get
    // different seeds.
    p.sampling.seed = choice_seed(seed, q->has_seed ? ch->index % q->n : ch->index);
    struct detok_params d = {
        .tokenizer = c->app->model.tokenizer,
        .skip_special = q->skip_special,
        .strip_space = prompt->len == 1 && prompt->ids[0] == tokenizer_bos(c->app->model.tokenizer),
        .stops = (const char *const *)q->stops,
        .stop_lens = q->stop_lens,
        .num_stops = q->num_stops,
        .min_tokens = p.min_output,
        .keep_stop = q->include_stop,
    };
    ch->detok = detok_new(&d);
    if (q->num_stops)
        p.matcher = stop_matcher_new(&d);
    bool ok = ch->detok && (p.matcher || !q->num_stops);
    ch->strip = ch->detok && detok_strips_space(ch->detok);
    if (q->echo) { // stop strings are looked for in what is generated only
        d.strip_space = true;
        d.num_stops = 0;
        ch->echo = detok_new(&d);
        ok = ok && ch->echo;
    }
    struct request *r = ok ? request_new(&p, engine_info(c->app->engine)->block_size) : NULL;
    if (!r)
        stop_matcher_free(p.matcher);
    return r;
}

static int retry_after(struct app *app) {
    struct service_stats stats;
    app_stats(app, &stats);
    int seconds = 1 + stats.waiting / app->config->max_num_seqs;
    return seconds < 30 ? seconds : 30;
}

// Of many vectors so many are in the queue at once: a large body must not take all of it.
static int max_open(const struct completion *c) {
    return c->dialect->vector ? 2 * c->app->config->max_num_seqs : c->num_choices;
}

bool completion_submit(struct completion *c, struct api_error *e) {
    struct app *app = c->app;
    int most = app->config->max_num_seqs + app->config->max_num_queued_seqs;
    if (!c->dialect->vector && c->num_choices > most) // trying again would not help
        return api_fail(e, 400, "out_of_range", c->request.n > 1 ? "n" : "prompt",
                        "Prompts times 'n' is %d, and this server takes at most %d requests.", c->num_choices,
                        most);
    uint64_t seed = c->request.has_seed ? (uint64_t)c->request.seed : pick_seed(app);
    for (int i = c->num_submitted; i < c->num_choices && c->num_open < max_open(c); i++) {
        struct choice *ch = &c->choices[i];
        struct err err = {0};
        ch->completion = c;
        ch->index = i;
        ch->stop_token = -1;
        ch->id = ++app->next_id;
        choice_table_add(app, ch);
        struct request *r = make_request(c, ch, seed);
        enum status status = r ? service_submit(app->service, r, &err) : STATUS_NOMEM;
        if (status == STATUS_OK) {
            ch->submitted = true;
            c->num_submitted++;
            c->num_open++;
            continue;
        }
        request_free(r);
        choice_table_remove(app, ch);
        if (status == STATUS_LIMIT && c->dialect->vector && c->num_open > 0)
            return true; // the others when one of these has ended
        e->retry_after = retry_after(app);
        switch (status) {
        case STATUS_INVALID:
            e->retry_after = 0;
            return api_fail(e, 400, "context_length_exceeded", "prompt", "%s", err.msg);
        case STATUS_LIMIT: return api_fail(e, 503, "overloaded", NULL, "The queue is full; try again later.");
        case STATUS_STOPPING: return api_fail(e, 503, "shutting_down", NULL, "The server is shutting down.");
        case STATUS_DEVICE: return api_fail(e, 503, "engine_unavailable", NULL, "The engine has failed.");
        default: return api_fail_memory(e);
        }
    }
    return true;
}

// Each of several keys is a tenant: its prefixes are its own, and its cache_salt divides them further. What
// names them is a hash, because --record writes it.
static bool salt_by_key(struct completion *c) {
    struct completion_request *q = &c->request;
    const struct app *app = c->app;
    if (app->auth.num_keys < 2 || app->config->share_prefixes)
        return true;
    uint8_t both[SHA256_BYTES + MAX_SALT];
    const char *key = app_key(&c->http->head); // routes_head() has checked it
    sha256(key, strlen(key), both);
    if (q->salt_len)
        memcpy(both + SHA256_BYTES, q->salt, q->salt_len);
    free(q->salt);
    if (!(q->salt = malloc(SHA256_BYTES)))
        return false;
    sha256(both, SHA256_BYTES + q->salt_len, (uint8_t *)q->salt);
    q->salt_len = SHA256_BYTES;
    return true;
}

// The body is parsed: gives it to the engine.
static void begin_completion(struct completion *c) {
    struct app *app = c->app;
    struct api_error *e = &c->error;
    ignored_merge(app->ignored, c->request.ignored); // of good requests: a bad one's names may be anything
    if (c->request.request_id[0] && !c->http->head.request_id)
        memcpy(c->http->request_id, c->request.request_id, sizeof c->request.request_id);
    snprintf(c->id, sizeof c->id, "%s%s", c->dialect->id_prefix,
             c->request.request_id[0] ? c->request.request_id : c->http->request_id);
    c->state = COMPLETION_RUNNING;
    c->last_write = http_now();
    for (size_t i = 0; i < c->request.num_prompts; i++)
        c->num_prompt += (int64_t)c->request.prompts[i].len;
    c->num_choices = (int)c->request.num_prompts * c->request.n;
    c->response = (struct response){.request = &c->request,
                                    .model = &app->model,
                                    .id = c->id,
                                    .fingerprint = app->fingerprint,
                                    .created = (int64_t)time(NULL),
                                    .num_choices = c->num_choices};
    c->dialect->begin(&c->response);
    c->choices = calloc((size_t)c->num_choices, sizeof *c->choices);
    if (!c->choices || !salt_by_key(c)) {
        c->num_choices = 0;
        completion_fail_memory(c);
    } else if (!app_accepts(app, e) || !completion_submit(c, e)) {
        completion_fail(c, e);
    }
}

static void parse_work(uv_work_t *work) { // pool: touches nothing but this completion and the immutable model
    struct completion *c = work->data;
    c->dialect->parse(&c->request, &c->app->model, c->body.data, c->body.len, &c->error);
}

static void after_parse(uv_work_t *work, int status) {
    (void)status;
    struct completion *c = work->data;
    struct http *http = &c->app->http;
    http_free_body(http, &c->body);
    if (!c->http) {
        completion_free(c);
        return;
    }
    if (*c->request.ignored)
        http_header(c->http, "x-quire-ignored", c->request.ignored);
    if (c->error.status) {
        c->state = COMPLETION_RUNNING;
        completion_fail(c, &c->error);
    } else {
        begin_completion(c);
    }
    http_run(http);
}

// Whether the model gives what the dialect asks for; otherwise the request has its response.
static bool check_kind(const struct app *app, struct http_request *request) {
    bool vectors = app->model.pooling != POOLING_NONE;
    if ((request->dialect->vector != NULL) == vectors)
        return true;
    REPLY_ERROR(request, 400, "unsupported_model", "model", "%s",
                vectors ? "This model gives embeddings, not completions: POST /v1/embeddings."
                        : "This model gives completions. For embeddings start the server with an embedding "
                          "model, or with --pooling last, mean or cls.");
    return false;
}

void completion_start(struct app *app, struct http_request *request) {
    if (!check_kind(app, request))
        return;
    struct completion *c = calloc(1, sizeof *c);
    struct api_error e = {.retry_after = 5};
    if (!c) {
        api_fail_memory(&e);
        reply_error(request, &e);
        return;
    }
    c->app = app;
    c->dialect = request->dialect;
    c->http = request;
    c->next = app->completions;
    if (c->next)
        c->next->prev = c;
    app->completions = c;
    app->num_completions++;
    request->user = c;
    c->body = http_take_body(request);
    c->work.data = c;
    if ((c->body.len > POOL_BODY || http_turn_over(&app->http)) &&
        uv_queue_work(&app->loop, &c->work, parse_work, after_parse) == 0)
        return;
    parse_work(&c->work);
    after_parse(&c->work, 0);
}
