// From a body to requests at the engine: parsed inline or in the pool, submitted all or none.
#include "answer.h"
#include "log.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

static uint64_t pick_seed(struct app *app) {
    uint64_t seed;
    if (app->config->has_seed)
        return splitmix64(app->config->seed + app->seed_counter++);
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
        seed = splitmix64((uint64_t)http_now());
    return seed;
}

static struct request *make_request(struct stream *s, struct choice *c, uint64_t seed) {
    const struct completion *q = &s->req;
    const struct token_buf *prompt = &q->prompts[c->index / q->n];
    int room = s->app->model.max_model_len - (int)prompt->len;
    struct request_params p = {
        .id = c->id,
        .prompt = prompt->ids,
        .num_prompt = (int)prompt->len,
        .max_output = q->max_tokens < room ? q->max_tokens : room,
        .sampling = q->sampling,
        .stop = q->stop_ids,
        .num_stop = q->num_stop_ids,
        .bias = q->bias,
        .num_bias = q->num_bias,
        .priority = q->priority,
        .salt = q->salt,
        .num_salt = (int)q->salt_len,
    };
    p.min_output = q->min_tokens < p.max_output ? q->min_tokens : p.max_output;
    // With a seed a prompt's answers do not depend on its place in the list; without, equal prompts are drawn
    // apart.
    p.sampling.seed = choice_seed(seed, q->has_seed ? c->index % q->n : c->index);
    struct detok_params d = {
        .tokenizer = s->app->model.tokenizer,
        .skip_special = q->skip_special,
        .strip_space = prompt->len == 1 && prompt->ids[0] == tokenizer_bos(s->app->model.tokenizer),
        .stops = (const char *const *)q->stops,
        .stop_lens = q->stop_lens,
        .num_stops = q->num_stops,
    };
    c->detok = detok_new(&d);
    c->strip = c->detok && detok_strips_space(c->detok);
    if (q->echo) { // stop strings are looked for in what is generated only
        d.strip_space = true;
        d.num_stops = 0;
        c->echo = detok_new(&d);
    }
    return c->detok && (c->echo || !q->echo) ? request_new(&p, engine_info(s->app->engine)->block_size)
                                             : NULL;
}

static int retry_after(struct app *app) {
    struct service_stats stats;
    app_stats(app, &stats);
    int seconds = 1 + stats.waiting / app->config->max_num_seqs;
    return seconds < 30 ? seconds : 30;
}

// All requests of the answer, or none.
static bool submit_all(struct stream *s, struct api_error *e) {
    struct app *app = s->app;
    int most = app->config->max_num_seqs + app->config->max_num_queued_seqs;
    if (s->num_choices > most) // trying again would not help
        return api_fail(e, 400, "out_of_range", s->req.n > 1 ? "n" : "prompt",
                        "Prompts times 'n' is %d, and this server takes at most %d requests.", s->num_choices,
                        most);
    uint64_t seed = s->req.has_seed ? (uint64_t)s->req.seed : pick_seed(app);
    for (int i = 0; i < s->num_choices; i++) {
        struct choice *c = &s->choices[i];
        struct err err = {0};
        c->stream = s;
        c->index = i;
        c->id = ++app->next_id;
        table_add(app, c);
        struct request *r = make_request(s, c, seed);
        enum status status = r ? service_submit(app->service, r, &err) : STATUS_NOMEM;
        if (status == STATUS_OK) {
            c->submitted = true;
            s->num_open++;
            continue;
        }
        request_free(r);
        table_remove(app, c);
        e->retry_after = retry_after(app);
        switch (status) {
        case STATUS_INVALID:
            e->retry_after = 0;
            return api_fail(e, 400, "context_length_exceeded", "prompt", "%s", err.msg);
        case STATUS_LIMIT: return api_fail(e, 503, "overloaded", NULL, "The queue is full; try again later.");
        case STATUS_STOPPING: return api_fail(e, 503, "shutting_down", NULL, "The server is shutting down.");
        case STATUS_DEVICE: return api_fail(e, 503, "engine_unavailable", NULL, "The engine has failed.");
        default: return api_fail(e, 503, "overloaded", NULL, "The server is out of memory.");
        }
    }
    return true;
}

static void log_unknown(struct app *app, const char *name) {
    for (int i = 0; i < app->num_unknown; i++)
        if (strcmp(app->unknown[i], name) == 0)
            return;
    if (app->num_unknown == (int)(sizeof app->unknown / sizeof app->unknown[0]))
        return;
    snprintf(app->unknown[app->num_unknown++], sizeof app->unknown[0], "%s", name);
    log_msg(LOG_INFO, "ignored_field=%s", name);
}

// The body is parsed: to the engine with it.
static void begin(struct stream *s) {
    struct app *app = s->app;
    struct api_error *e = &s->error;
    if (s->req.unknown[0])
        log_unknown(app, s->req.unknown);
    if (s->req.request_id[0] && !s->call->head.request_id)
        memcpy(s->call->request_id, s->req.request_id, sizeof s->req.request_id);
    snprintf(s->id, sizeof s->id, "%s-%s", s->chat ? "chatcmpl" : "cmpl",
             s->req.request_id[0] ? s->req.request_id : s->call->request_id);
    s->state = STREAM_RUNNING;
    s->created = (int64_t)time(NULL);
    s->last_write = http_now();
    for (size_t i = 0; i < s->req.num_prompts; i++)
        s->num_prompt += (int64_t)s->req.prompts[i].len;
    if (s->req.stream)
        buf_lit(&s->head, "data: ");
    write_head(&s->head, s->id,
               !s->chat        ? "text_completion"
               : s->req.stream ? "chat.completion.chunk"
                               : "chat.completion",
               s->created, s->req.model, app->fingerprint);
    s->num_choices = (int)s->req.num_prompts * s->req.n;
    s->choices = calloc((size_t)s->num_choices, sizeof *s->choices);
    if (!s->choices) {
        s->num_choices = 0;
        stream_fail_memory(s);
    } else if (!app_accepts(app, e) || !submit_all(s, e)) {
        stream_fail(s, e);
    }
}

static void parse_work(uv_work_t *work) { // pool: touches nothing but this stream and the immutable model
    struct stream *s = work->data;
    (s->chat ? chat_parse : completion_parse)(&s->req, &s->app->model, s->body.data, s->body.len, &s->error);
}

static void after_parse(uv_work_t *work, int status) {
    (void)status;
    struct stream *s = work->data;
    struct http *http = &s->app->http;
    http_free_body(http, &s->body);
    if (!s->call) {
        stream_free(s);
        return;
    }
    if (s->error.status) {
        s->state = STREAM_RUNNING;
        stream_fail(s, &s->error);
    } else {
        begin(s);
    }
    http_run(http);
}

static void start(struct app *app, struct http_call *call, bool chat) {
    struct stream *s = calloc(1, sizeof *s);
    struct api_error e = {.retry_after = 5};
    if (!s) {
        api_fail(&e, 503, "overloaded", NULL, "The server is out of memory.");
        http_error(call, &e);
        return;
    }
    s->app = app;
    s->chat = chat;
    s->call = call;
    s->next = app->streams;
    if (s->next)
        s->next->prev = s;
    app->streams = s;
    app->num_streams++;
    call->user = s;
    s->body = http_take_body(call);
    s->work.data = s;
    if (s->body.len > POOL_BODY && uv_queue_work(&app->loop, &s->work, parse_work, after_parse) == 0)
        return;
    parse_work(&s->work);
    after_parse(&s->work, 0);
}

void stream_start(struct app *app, struct http_call *call) { start(app, call, false); }
void stream_start_chat(struct app *app, struct http_call *call) { start(app, call, true); }
