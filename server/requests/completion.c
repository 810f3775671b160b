// A completion from its first event to the end of its response.
#include "completion.h"

#include "completion_state.h"
#include "log.h"
#include "reply.h"

#include <stdlib.h>
#include <string.h>

enum {
    OUT_BOUND = 256 * 1024,       // bytes not yet taken; beyond them text gathers unwritten
    KEPT_BOUND = 8 * 1024 * 1024, // of such text and log-probabilities of one choice
    STALL_SECONDS = 30,
    PING_SECONDS = 15,
    IGNORED_SECONDS = 10, // between lines of the log about ignored fields
    KEPT_PART = 64, // of the memory of all responses: one that keeps less is not given up for the others
    EVENT_BATCH = 64,
};
#define SECOND 1000000000LL

static void mark_flush(struct completion *c) {
    if (c->needs_flush)
        return;
    c->needs_flush = true;
    c->next_flush = c->app->flush_list;
    c->app->flush_list = c;
}

// ---- end

static double ms_between(int64_t from, int64_t to) {
    return from && to > from ? (double)(to - from) / 1e6 : 0;
}

static struct usage usage_of(const struct completion *c) {
    struct usage u = {.prompt = c->num_prompt, .reasoning = c->request.reads_reasoning ? 0 : -1};
    for (int i = 0; i < c->num_choices; i++) {
        u.completion += c->choices[i].num_tokens;
        u.reasoning += c->choices[i].num_reasoning;
        // The other choices of a prompt share its blocks; that is no hit of the client's.
        if (i % c->request.n == 0)
            u.cached += c->choices[i].num_cached;
    }
    return u;
}

static void log_request(struct completion *c, int status, const char *finish) {
    if (c->logged)
        return;
    c->logged = true;
    const struct usage u = usage_of(c);
    const struct choice *ch = c->num_choices ? &c->choices[0] : NULL;
    int64_t arrived = c->http->arrived;
    double tpot = ch && ch->num_tokens > 1 ? ms_between(ch->first, ch->last) / (ch->num_tokens - 1) : 0;
    log_msg(
        LOG_INFO,
        "request id=%s prompt=%lld cached=%lld output=%lld finish=%s queue_ms=%.1f ttft_ms=%.1f tpot_ms=%.2f "
        "e2e_ms=%.1f status=%d",
        c->http->request_id, (long long)u.prompt, (long long)u.cached, (long long)u.completion, finish,
        ms_between(c->timing.time_submitted, c->timing.time_scheduled),
        ch ? ms_between(arrived, ch->first) : 0.0, tpot, ms_between(arrived, http_now()), status);
    if (c->app->otlp)
        completion_trace(c, &u, status, finish);
}

// Cancels what the engine still does for this completion; later events find no id.
static void cancel_open(struct completion *c) {
    for (int i = 0; i < c->num_choices; i++) {
        struct choice *ch = &c->choices[i];
        if (!ch->submitted || ch->finished)
            continue;
        ch->finished = true;
        if (!ch->complete) { // a choice that a stop string ended is no abort
            service_cancel(c->app->service, ch->id, FINISH_CANCELLED);
            c->app->metrics.finished[FINISH_CANCELLED]++;
        } else {
            c->app->metrics.finished[ch->finish]++;
        }
        choice_table_remove(c->app, ch);
    }
    c->num_open = 0;
}

void completion_free(struct completion *c) {
    struct app *app = c->app;
    if (c->needs_flush) {
        struct completion **p = &app->flush_list;
        while (*p != c)
            p = &(*p)->next_flush;
        *p = c->next_flush;
    }
    *(c->prev ? &c->prev->next : &app->completions) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    app->num_completions--;
    app->kept -= c->kept;
    for (int i = 0; i < c->num_choices; i++)
        choice_free(&c->choices[i]);
    free(c->choices);
    if (c->response.request && c->dialect->end)
        c->dialect->end(&c->response);
    buf_free(&c->response.head);
    buf_free(&c->body);
    completion_request_free(&c->request);
    free(c);
}

void completion_done(struct app *app, struct http_request *request) {
    struct completion *c = request->user;
    if (!c)
        return;
    request->user = NULL;
    if (c->state != COMPLETION_ENDED) {
        app->metrics.disconnects++;
        cancel_open(c);
        log_request(c, request->streaming ? 200 : 499, "abort");
    }
    c->http = NULL;
    if (c->state != COMPLETION_PARSING) {
        completion_free(c);
        return;
    }
    c->state = COMPLETION_ENDED; // after_parse() frees it, at once if the pool has not begun
    work_pool_cancel(&c->work);
}

void completion_fail(struct completion *c, const struct api_error *e) {
    if (c->state == COMPLETION_ENDED)
        return;
    cancel_open(c);
    c->state = COMPLETION_ENDED;
    log_request(c, c->http->streaming ? 200 : e->status, "error");
    if (!c->http->streaming) {
        reply_error(c->http, e);
        return;
    }
    c->dialect->fail(&c->http->out, &c->response, e);
    http_stream_end(c->http);
}

void completion_fail_memory(struct completion *c) {
    struct api_error e = {.retry_after = 5};
    api_fail_memory(&e);
    completion_fail(c, &e);
}

// Gives a reader up that stands still. Its socket takes nothing, so it gets no error.
static void give_up(struct completion *c) {
    c->app->metrics.stalled++;
    cancel_open(c);
    c->state = COMPLETION_ENDED;
    log_request(c, 200, "stalled");
    http_stream_break(c->http);
    http_kill(c->http);
}

// ---- out

static struct timings timings_of(const struct completion *c) {
    const struct usage u = usage_of(c);
    struct timings t = {.cached = u.cached, .computed = u.prompt - u.cached, .generated = u.completion};
    int64_t began = INT64_MAX, first = INT64_MAX, last = 0;
    for (int i = 0; i < c->num_choices; i++) {
        const struct choice *ch = &c->choices[i];
        if (ch->num_tokens == 0)
            continue;
        t.decoded += ch->num_tokens - 1;
        began = ch->engine.scheduled < began ? ch->engine.scheduled : began;
        first = ch->engine.first < first ? ch->engine.first : first;
        last = ch->engine.last > last ? ch->engine.last : last;
    }
    t.total_ms = ms_between(c->http->arrived, http_now());
    t.prompt_ms = last ? ms_between(began, first) : 0;
    t.generation_ms = last ? ms_between(first, last) : 0;
    return t;
}

static struct piece piece_of(const struct choice *ch, size_t len) {
    const struct completion_request *r = &ch->completion->request;
    struct piece p = {.index = ch->index,
                      .text = ch->text.data,
                      .len = len,
                      .num_tokens = (int)ch->num_tokens,
                      .num_cached = (int)ch->num_cached,
                      .has_new_line = ch->has_new_line,
                      .output = ch->output,
                      .logprobs = r->logprobs >= 0 ? &ch->lists : NULL,
                      .prompt_logprobs = r->prompt_logprobs >= 0 ? &ch->prompt_logprobs : NULL,
                      .prompt = r->return_ids && !ch->begun ? &r->prompts[ch->index / r->n] : NULL,
                      .token_ids = r->return_ids ? &ch->token_ids : NULL,
                      .finish = ch->complete ? ch->finish : FINISH_NONE};
    int stop = ch->detok ? detok_stop_index(ch->detok) : -1; // a vector has none
    if (stop >= 0) {
        p.stop = r->stops[stop];
        p.stop_len = r->stop_lens[stop];
    } else if (ch->complete && ch->stop_token >= 0) {
        p.stop_token = &ch->stop_token;
    }
    return p;
}

static void add_prediction(struct completion *c) {
    char ms[32];
    if (c->predicted_ns <= 0)
        return;
    snprintf(ms, sizeof ms, "%.3f",
             ms_between(c->http->arrived, c->submitted) + (double)c->predicted_ns / 1e6);
    http_header(c->http, "x-quire-predicted-ttft-ms", ms);
}

static void open_stream(struct completion *c) {
    add_prediction(c);
    http_stream(c->http, c->dialect->is_lines ? "application/x-ndjson" : "text/event-stream; charset=utf-8");
}

// Writes the piece that this choice owes, where the reader keeps up; otherwise its text goes on gathering and
// becomes one larger piece later.
static void emit_piece(struct choice *ch) {
    struct completion *c = ch->completion;
    struct http_request *http = c->http;
    size_t n = choice_sendable(ch);
    if (ch->finish_sent || (n == 0 && !ch->complete))
        return;
    if (sse_pending(&http->out) > OUT_BOUND) {
        http->want_drained = true;
        if (!c->over_since)
            c->over_since = http_now();
        return;
    }
    struct usage u, *usage = c->request.continuous_usage ? &u : NULL;
    if (usage)
        u = usage_of(c);
    if (!http->streaming)
        open_stream(c);
    if (c->request.timings || ch->complete)
        c->response.timings = timings_of(c);
    if (!c->begun && c->dialect->role)
        c->dialect->role(&http->out, &c->response, usage);
    c->begun = true;
    struct piece piece = piece_of(ch, n);
    c->dialect->piece(&http->out, &c->response, &piece, usage);
    ch->begun = true;
    ch->finish_sent = ch->complete;
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

static void end_stream(struct completion *c) {
    for (int i = 0; i < c->num_choices; i++)
        if (!c->choices[i].finish_sent)
            return;
    struct usage u = usage_of(c);
    c->dialect->done(&c->http->out, &c->response, &u);
    c->state = COMPLETION_ENDED;
    http_stream_end(c->http);
    log_request(c, 200, finish_name(c->choices[0].finish));
}

static void end_whole(struct completion *c) {
    struct buf b = {0};
    struct usage u = usage_of(c);
    struct piece *pieces = calloc((size_t)c->num_choices, sizeof *pieces);
    b.failed = !pieces;
    for (int i = 0; pieces && i < c->num_choices; i++)
        pieces[i] = piece_of(&c->choices[i], c->choices[i].text.len);
    c->response.timings = timings_of(c);
    if (pieces)
        c->dialect->whole(&b, &c->response, pieces, &u);
    free(pieces);
    if (b.failed) {
        completion_fail_memory(c);
    } else {
        c->state = COMPLETION_ENDED;
        add_prediction(c);
        http_reply(c->http, 200, "application/json", b.data, b.len);
        log_request(c, 200, finish_name(c->choices[0].finish));
    }
    buf_free(&b);
}

// Counts what is kept of the response. False: all keep too much, and this one more than its part.
static bool count_kept(struct completion *c) {
    struct app *app = c->app;
    size_t now = c->dialect->state_bytes ? c->dialect->state_bytes(&c->response) : 0,
           max = (size_t)app->config->max_response_memory;
    for (int i = 0; i < c->num_choices; i++)
        now += choice_kept(&c->choices[i]);
    app->kept += now - c->kept;
    c->kept = now;
    return app->kept <= max || now <= max / KEPT_PART;
}

// After the events of a turn, or when a reader has caught up.
static void flush_completion(struct completion *c) {
    if (c->state != COMPLETION_RUNNING)
        return;
    bool failed = c->response.head.failed, over = false;
    for (int i = 0; i < c->num_choices; i++)
        failed |= choice_failed(&c->choices[i]);
    if (failed) {
        completion_fail_memory(c);
        return;
    }
    if (!c->request.stream) {
        struct api_error e = {.retry_after = 5};
        if (!count_kept(c)) {
            api_fail(&e, 503, "overloaded", NULL,
                     "The responses being made take too much memory: stream this one.");
            completion_fail(c, &e);
        } else if (c->num_open == 0) {
            end_whole(c);
        }
        return;
    }
    for (int i = 0; i < c->num_choices; i++) {
        struct choice *ch = &c->choices[i];
        emit_piece(ch);
        over |= choice_sendable(ch) + ch->text.len + ch->lists.tops.len >
                KEPT_BOUND; // what the reader did not take in time
    }
    if (over || !count_kept(c)) {
        give_up(c);
        return;
    }
    if (c->num_open == 0)
        end_stream(c);
    if (sse_pending(&c->http->out) > 0) {
        c->last_write = http_now();
        http_wake(c->http);
    }
}

void completion_drained(struct app *app, struct http_request *request) {
    (void)app;
    struct completion *c = request->user;
    if (!c)
        return;
    c->over_since = 0;
    flush_completion(c);
}

// ---- events

static void on_prompt(struct choice *ch, const struct service_event *ev) {
    struct completion *c = ch->completion;
    if (ch->complete || c->state != COMPLETION_RUNNING)
        return;
    if (c->request.prompt_logprobs >= 0)
        c->dialect->prompt_logprob(&ch->prompt_logprobs, &c->response, ev);
    choice_echo(ch, ev);
    mark_flush(c);
}

static void on_token(struct choice *ch, const struct service_event *ev, int64_t now) {
    struct completion *c = ch->completion;
    struct metrics *m = &c->app->metrics;
    if (ch->complete || c->state != COMPLETION_RUNNING)
        return;
    choice_echo_end(ch);
    if (c->request.stream && ch->has_new_text)
        emit_piece(ch); // the token before came in the same turn: a piece each
    if (ch->num_tokens++ == 0) {
        ch->first = now;
        metrics_observe(m, M_TTFT, (double)(now - c->http->arrived) / 1e9);
    } else {
        metrics_observe(m, M_INTER_TOKEN, (double)(now - ch->last) / 1e9);
    }
    ch->last = now;
    if (ch->index == 0)
        c->predicted_ns = ev->predicted_ns;
    ch->num_cached = ev->num_cached;
    ch->engine.scheduled = ev->time_scheduled;
    ch->engine.first = ev->time_first_token;
    ch->engine.last = ev->time_finished;
    if (choice_add_token(ch, ev, ev->finish == FINISH_STOP)) {
        if (detok_stop_index(ch->detok) < 0) // else the engine ends the request, too
            service_cancel(c->app->service, ch->id, FINISH_CANCELLED);
        ch->complete = true;
        ch->finish = FINISH_STOP;
    }
    mark_flush(c);
}

static void observe_finish(struct app *app, const struct choice *ch, const struct service_event *ev,
                           int64_t now) {
    struct metrics *m = &app->metrics;
    const struct completion *c = ch->completion;
    metrics_observe(m, M_E2E, (double)(now - c->http->arrived) / 1e9);
    if (ev->time_scheduled) {
        metrics_observe(m, M_QUEUE, (double)(ev->time_scheduled - ev->time_submitted) / 1e9);
        metrics_observe(m, M_INFERENCE, (double)(ev->time_finished - ev->time_scheduled) / 1e9);
    }
    if (ev->time_first_token) {
        metrics_observe(m, M_PREFILL, (double)(ev->time_first_token - ev->time_scheduled) / 1e9);
        metrics_observe(m, M_DECODE, (double)(ev->time_finished - ev->time_first_token) / 1e9);
    }
    if (ch->num_tokens > 1)
        metrics_observe(m, M_PER_TOKEN, (double)(ch->last - ch->first) / 1e9 / (ch->num_tokens - 1));
    metrics_observe(m, M_PROMPT_TOKENS, ev->num_prompt);
    metrics_observe(m, M_PREFILL_TOKENS, ev->num_prompt - ch->num_cached);
    metrics_observe(m, M_GENERATION_TOKENS, ch->num_tokens);
    if (ch->index % c->request.n == 0) { // once for each prompt, however many choices it has
        metrics_observe(m, M_PARAM_N, c->request.n);
        metrics_observe(m, M_PARAM_MAX_TOKENS, c->request.max_tokens);
    }
    m->finished[ch->finish]++;
}

static void observe_longest(const struct completion *c) {
    int most = 0;
    for (int i = 0; i < c->num_choices; i++)
        most = c->choices[i].num_tokens > most ? c->choices[i].num_tokens : most;
    metrics_observe(&c->app->metrics, M_MAX_GENERATION_TOKENS, most);
}

static void on_finish(struct choice *ch, const struct service_event *ev, int64_t now) {
    struct completion *c = ch->completion;
    struct app *app = c->app;
    choice_table_remove(app, ch);
    ch->finished = true;
    ch->num_cached = ev->num_cached > 0 ? ev->num_cached : 0;
    if (--c->num_open == 0 && !c->dialect->vector)
        observe_longest(c);
    if (ch->index == 0) {
        c->timing = *ev;
        c->predicted_ns = ev->predicted_ns;
    }
    if (!ch->complete && ev->finish >= FINISH_CANCELLED) {
        struct api_error e = {0};
        struct service_stats stats;
        app_stats(app, &stats);
        app->metrics.finished[ev->finish == FINISH_CANCELLED ? FINISH_CANCELLED : FINISH_ERROR]++;
        if (stats.dead)
            api_fail(&e, 503, "engine_unavailable", NULL, "The engine has failed; the server is restarting.");
        else if (ev->finish == FINISH_CANCELLED)
            api_fail(&e, 503, "shutting_down", NULL, "The server is shutting down.");
        else if (ev->finish == FINISH_FORBIDDEN)
            api_fail(
                &e, 400, "no_token_allowed", NULL,
                "The request leaves no token that may come next: its constraint, lists, bans and minimum "
                "forbid all of them.");
        else if (ev->finish == FINISH_LIMIT)
            api_fail(&e, 400, "no_token_allowed", NULL,
                     "The request's grammar, schema or regular expression takes too much work here: what it "
                     "allows "
                     "next can be read in too many ways. Fewer nested repetitions help.");
        else
            api_fail(&e, 500, "internal_error", NULL, "The engine failed this request.");
        e.retry_after = e.status == 503 ? 5 : 0;
        completion_fail(c, &e);
        return;
    }
    if (c->dialect->vector) {
        struct api_error e = {0};
        c->dialect->vector(&ch->text, &c->response, ev->vector);
        ch->finish = ev->finish;
        ch->complete = true;
        if (c->num_submitted < c->num_choices && !completion_submit(c, &e)) {
            completion_fail(c, &e);
            return;
        }
    }
    if (!ch->complete) {
        ch->stop_token = ev->token;
        for (int i = 0; i < c->request.num_own_ends; i++)
            if (c->request.stop_ids[i] == ev->token)
                ch->stop_token = -1;
        choice_end_text(ch);
        ch->finish = ev->finish;
        ch->complete = true;
    }
    observe_finish(app, ch, ev, now);
    mark_flush(c);
}

void completions_take_events(struct app *app) {
    struct service_event events[EVENT_BATCH];
    int n;
    while (app->service && (n = service_take(app->service, events, EVENT_BATCH)) > 0) {
        int64_t now = http_now();
        for (int i = 0; i < n; i++) {
            struct choice *ch = choice_table_find(app, events[i].id); // NULL: cancelled, and gone
            if (ch && events[i].kind == EVENT_TOKEN)
                on_token(ch, &events[i], now);
            else if (ch && events[i].kind == EVENT_FINISH)
                on_finish(ch, &events[i], now);
            else if (ch)
                on_prompt(ch, &events[i]);
            free(events[i].vector);
        }
    }
    while (app->flush_list) {
        struct completion *c = app->flush_list;
        app->flush_list = c->next_flush;
        c->needs_flush = false;
        flush_completion(c);
    }
}

// ---- all

static void log_ignored(struct app *app) {
    if (*app->ignored)
        log_msg(LOG_INFO, "ignored_fields=\"%s\"", app->ignored);
    *app->ignored = '\0';
}

void completions_tick(struct app *app, int64_t now) {
    if (*app->ignored && now - app->ignored_logged > IGNORED_SECONDS * SECOND) {
        app->ignored_logged = now;
        log_ignored(app);
    }
    for (struct completion *c = app->completions; c; c = c->next) {
        if (c->state != COMPLETION_RUNNING || !c->request.stream)
            continue;
        if (c->over_since && now - c->over_since > STALL_SECONDS * SECOND) {
            give_up(c);
        } else if (now - c->last_write > PING_SECONDS * SECOND && sse_pending(&c->http->out) == 0 &&
                   !c->dialect->is_lines) {
            c->last_write = now;
            if (!c->http->streaming)
                open_stream(c);
            sse_ping(&c->http->out);
            http_wake(c->http);
        }
    }
}

void completions_fail(struct app *app, int status, const char *code, const char *message) {
    for (struct completion *c = app->completions; c; c = c->next) {
        struct api_error e = {.retry_after = 5};
        api_fail(&e, status, code, NULL, "%s", message);
        if (c->state == COMPLETION_RUNNING)
            completion_fail(c, &e);
    }
}

void completions_free(struct app *app) {
    log_ignored(app);
    free(app->table);
    app->table = NULL;
}
