// A completion: read, from its first event to the end of its response.
#include "completion.h"

#include "api/structured.h"
#include "background.h"
#include "completion_state.h"

#include <stdlib.h>
#include <string.h>

enum {
    KEPT_BOUND = 8 * 1024 * 1024, // of unwritten text and log-probabilities of one choice
};

static struct completion *completion_of(struct exchange *x) { return (struct completion *)x; }

// ---- out

static struct usage usage_of(const struct completion *c) {
    struct usage u = exchange_usage(&c->exchange);
    if (c->request.reads_reasoning)
        u.reasoning = 0;
    for (int i = 0; i < c->exchange.num_requests; i++)
        u.reasoning += c->choices[i].num_reasoning;
    return u;
}

static struct timings timings_of(const struct completion *c) {
    const struct usage u = usage_of(c);
    struct timings t = {.cached = u.cached, .computed = u.prompt - u.cached, .generated = u.completion};
    int64_t began = INT64_MAX, first = INT64_MAX, last = 0;
    for (int i = 0; i < c->exchange.num_requests; i++) {
        const struct engine_request *r = &c->exchange.requests[i];
        if (r->num_tokens == 0)
            continue;
        t.decoded += r->num_tokens - 1;
        began = r->engine_scheduled < began ? r->engine_scheduled : began;
        first = r->engine_first < first ? r->engine_first : first;
        last = r->engine_last > last ? r->engine_last : last;
    }
    t.total_ms = ms_between(c->exchange.http->arrived, http_now());
    t.prompt_ms = last ? ms_between(began, first) : 0;
    t.generation_ms = last ? ms_between(first, last) : 0;
    return t;
}

static struct piece piece_of(const struct choice *ch, size_t len) {
    const struct completion_request *r = &ch->completion->request;
    const struct engine_request *engine = ch->engine;
    struct piece p = {.index = engine->index,
                      .text = ch->text.data,
                      .len = len,
                      .num_tokens = engine->num_tokens,
                      .num_cached = engine->num_cached,
                      .has_new_line = ch->has_new_line,
                      .limited = ch->limited,
                      .output = ch->output,
                      .logprobs = r->logprobs >= 0 ? &ch->lists : NULL,
                      .prompt_logprobs = r->prompt_logprobs >= 0 ? &ch->prompt_logprobs : NULL,
                      .prompt = r->return_ids && !ch->begun ? &r->base.prompts[engine->index / r->n] : NULL,
                      .token_ids = r->return_ids ? &ch->token_ids : NULL,
                      .finish = engine->complete ? engine->finish : FINISH_NONE};
    int stop = detok_stop_index(ch->detok);
    if (stop >= 0) {
        p.stop = r->stops[stop];
        p.stop_len = r->stop_lens[stop];
    } else if (engine->complete && ch->stop_token >= 0) {
        p.stop_token = &ch->stop_token;
    }
    return p;
}

static void add_prediction(const struct exchange *x) {
    char ms[32];
    if (x->predicted_ns <= 0)
        return;
    snprintf(ms, sizeof ms, "%.3f",
             ms_between(x->http->arrived, x->submitted) + (double)x->predicted_ns / 1e6);
    http_header(x->http, "x-quire-predicted-ttft-ms", ms);
}

static void open_stream(struct completion *c) {
    struct http_request *http = c->exchange.http;
    if (http->streaming)
        return;
    add_prediction(&c->exchange);
    http_stream(http, c->dialect->is_lines ? "application/x-ndjson" : "text/event-stream; charset=utf-8");
}

// Writes the piece that this choice owes, where the reader keeps up; otherwise its text goes on gathering and
// becomes one larger piece later.
static void emit_piece(struct choice *ch) {
    struct completion *c = ch->completion;
    struct exchange *x = &c->exchange;
    struct http_request *http = x->http;
    bool complete = ch->engine->complete;
    size_t n = choice_sendable(ch);
    if (ch->finish_sent || (n == 0 && !complete))
        return;
    if (!x->background && exchange_is_behind(x))
        return;
    struct usage u, *usage = c->request.continuous_usage ? &u : NULL;
    if (usage)
        u = usage_of(c);
    open_stream(c);
    if (c->request.timings || complete)
        c->response.timings = timings_of(c);
    if (!c->begun && c->dialect->role)
        c->dialect->role(&http->out, &c->response, usage);
    c->begun = true;
    struct piece piece = piece_of(ch, n);
    c->dialect->piece(&http->out, &c->response, &piece, usage);
    ch->begun = true;
    ch->finish_sent = complete;
    ch->has_new_text = false;
    if (ch->output)
        output_clear(ch->output);
    else
        ch->text.len -= n;
    if (ch->text.len)
        memmove(ch->text.data, ch->text.data + n, ch->text.len);
    logprobs_clear(&ch->lists);
    buf_clear(&ch->token_ids);
}

static void finish_stream(struct exchange *x) {
    struct completion *c = completion_of(x);
    c->dialect->done(&x->http->out, &c->response, &c->usage);
    exchange_end_stream(x);
}

static void finish_background(struct completion *c) {
    struct exchange *x = &c->exchange;
    background_show(x->background);
    c->dialect->done(&x->http->out, &c->response, &c->usage);
    x->state = EXCHANGE_ENDED;
    exchange_log(x, 200, finish_name(x->requests[0].finish));
    completion_end_background(c);
}

static void end_stream(struct completion *c) {
    for (int i = 0; i < c->exchange.num_requests; i++)
        if (!c->choices[i].finish_sent)
            return;
    c->usage = usage_of(c);
    if (c->exchange.background)
        finish_background(c);
    else if (completion_is_kept(c)) // before the client hears that it is
        exchange_step(&c->exchange, completion_waits(c), completion_keep, finish_stream);
    else
        finish_stream(&c->exchange);
}

static bool write_whole(struct exchange *x, struct buf *out, struct api_error *e) {
    struct completion *c = completion_of(x);
    struct piece *pieces = calloc((size_t)x->num_requests, sizeof *pieces);
    if (!pieces)
        return api_fail_memory(e);
    for (int i = 0; i < x->num_requests; i++)
        pieces[i] = piece_of(&c->choices[i], c->choices[i].text.len);
    c->response.timings = timings_of(c);
    c->usage = usage_of(c);
    c->dialect->whole(out, &c->response, pieces, &c->usage);
    free(pieces);
    if (completion_is_kept(c))
        completion_keep_whole(c, out);
    if (!out->failed)
        add_prediction(x);
    return true;
}

// As exchange_keep().
static bool count_kept(struct completion *c) {
    size_t kept = c->dialect->state_bytes ? c->dialect->state_bytes(&c->response) : 0;
    kept += c->exchange.background ? sse_pending(&c->exchange.http->out) : 0;
    for (int i = 0; i < c->exchange.num_requests; i++)
        kept += choice_kept(&c->choices[i]);
    return exchange_keep(&c->exchange, kept);
}

static void write_stream(struct completion *c) {
    struct exchange *x = &c->exchange;
    bool over = exchange_stalls(x);
    for (int i = 0; i < x->num_requests; i++) {
        struct choice *ch = &c->choices[i];
        emit_piece(ch);
        // The reader did not take it in time.
        over |= choice_sendable(ch) + ch->text.len + ch->lists.tops.len > KEPT_BOUND;
    }
    if (over)
        exchange_give_up(x);
    if (over || !count_kept(c))
        return;
    if (x->num_open == 0) {
        end_stream(c);
    } else if (x->background) {
        background_show(x->background);
    } else if (exchange_is_silent(x) && !c->dialect->is_lines) {
        open_stream(c);
        sse_ping(&x->http->out);
    }
    if (!x->background)
        exchange_send(x);
}

static void flush_completion(struct exchange *x) {
    struct completion *c = completion_of(x);
    bool failed = c->response.head.failed || (x->background && x->http->out.bytes.failed);
    if (x->error.status && x->background) {
        completion_end_background(c);
        return;
    }
    if (x->error.status) {
        c->dialect->fail(&x->http->out, &c->response, &x->error);
        http_stream_end(x->http);
        return;
    }
    for (int i = 0; i < x->num_requests; i++)
        failed |= choice_failed(&c->choices[i]);
    if (failed) {
        struct api_error e = {0};
        api_fail_memory(&e);
        exchange_fail(x, &e);
    } else if (x->streams) {
        write_stream(c);
    } else {
        count_kept(c);
    }
}

// ---- events

static void on_prompt(struct choice *ch, const struct service_event *ev) {
    struct completion *c = ch->completion;
    if (ch->engine->complete)
        return;
    if (c->request.prompt_logprobs >= 0)
        c->dialect->prompt_logprob(&ch->prompt_logprobs, &c->response, ev);
    choice_echo(ch, ev);
}

static void on_token(struct choice *ch, const struct service_event *ev) {
    struct completion *c = ch->completion;
    struct engine_request *r = ch->engine;
    if (r->complete)
        return;
    choice_echo_end(ch);
    if (c->request.stream && ch->has_new_text)
        emit_piece(ch); // the token before came in the same turn: a piece each
    engine_request_token(r, ev);
    if (choice_add_token(ch, ev, ev->finish == FINISH_STOP)) {
        if (detok_stop_index(ch->detok) < 0) // else the engine ends the request, too
            service_cancel(c->exchange.app->service, r->id, FINISH_CANCELLED);
        r->complete = true;
        r->finish = FINISH_STOP;
    }
}

static void observe_longest(const struct exchange *x) {
    int most = 0;
    for (int i = 0; i < x->num_requests; i++)
        most = x->requests[i].num_tokens > most ? x->requests[i].num_tokens : most;
    metrics_observe(&x->app->metrics, M_MAX_GENERATION_TOKENS, most);
}

static void on_finish(struct choice *ch, const struct service_event *ev) {
    struct completion *c = ch->completion;
    if (c->exchange.num_open == 0)
        observe_longest(&c->exchange);
    if (ch->engine->complete)
        return;
    ch->stop_token = ev->token;
    for (int i = 0; i < c->request.num_own_ends; i++)
        if (c->request.stop_ids[i] == ev->token)
            ch->stop_token = -1;
    choice_end_text(ch);
    ch->engine->finish = ev->finish;
    ch->engine->complete = true;
}

static void take_answer(struct exchange *x, struct engine_request *r, struct service_event *ev) {
    struct choice *ch = &completion_of(x)->choices[r->index];
    switch (ev->kind) {
    case EVENT_PROMPT: on_prompt(ch, ev); break;
    case EVENT_TOKEN: on_token(ch, ev); break;
    case EVENT_FINISH: on_finish(ch, ev); break;
    }
}

// ---- its body

static bool compile_output(struct exchange *x, struct api_error *e) { // pool
    return structured_compile(&completion_of(x)->request, &x->app->model, e);
}

static bool read_body(struct exchange *x, const char *body, size_t len, struct api_error *e) {
    struct completion *c = completion_of(x);
    bool ok = c->dialect->parse(&c->request, &x->app->model, body, len, e);
    x->request = &c->request.base;
    x->ignored = c->request.base.ignored;
    x->streams = c->request.stream;
    x->prepare = c->request.structured ? compile_output : NULL;
    return ok;
}

static void free_completion(struct exchange *x) {
    struct completion *c = completion_of(x);
    for (int i = 0; c->choices && i < x->num_requests; i++)
        choice_free(&c->choices[i]);
    free(c->choices);
    if (c->response.request && c->dialect->end)
        c->dialect->end(&c->response);
    buf_free(&c->response.head);
    completion_request_free(&c->request);
}

void completion_start(struct app *app, struct http_request *request, const struct dialect *dialect) {
    static const struct exchange_kind kind = {.size = sizeof(struct completion),
                                              .submits = true,
                                              .read = read_body,
                                              .begin = completion_submit,
                                              .answered = take_answer,
                                              .flush = flush_completion,
                                              .finish = write_whole,
                                              .made = completion_end_made,
                                              .done = free_completion};
    struct completion *c = (struct completion *)exchange_new(app, request, &kind);
    if (!c)
        return;
    c->dialect = dialect;
    app_tenant(app, &request->head, c->request.base.tenant);
    exchange_run(&c->exchange);
}
