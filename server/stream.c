// One client's answer from its first token to its last. Over 600 lines: the states of a stream are read best
// in one place.
#include "answer.h"

#include "log.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
    OUT_BOUND = 256 * 1024,       // bytes not yet taken; beyond them text gathers unwritten
    KEPT_BOUND = 8 * 1024 * 1024, // of such text and log-probabilities of one choice
    STALL_SECONDS = 30,
    PING_SECONDS = 15,
    BATCH = 64,
};
#define SECOND 1000000000LL

// ---- ids

static struct choice **bucket(struct app *app, uint64_t id) {
    return &app->table[id & (app->table_size - 1)];
}

static struct choice *table_find(struct app *app, uint64_t id) {
    struct choice *c = *bucket(app, id);
    while (c && c->id != id)
        c = c->next;
    return c;
}

void table_add(struct app *app, struct choice *c) {
    struct choice **b = bucket(app, c->id);
    c->next = *b;
    *b = c;
}

void table_remove(struct app *app, struct choice *c) {
    if (!c->id)
        return;
    struct choice **b = bucket(app, c->id);
    while (*b && *b != c)
        b = &(*b)->next;
    CHECK(*b == c);
    *b = c->next;
    c->id = 0;
}

static void mark_dirty(struct stream *s) {
    if (s->is_dirty)
        return;
    s->is_dirty = true;
    s->next_dirty = s->app->dirty;
    s->app->dirty = s;
}

// ---- end

static double ms(int64_t from, int64_t to) { return from && to > from ? (double)(to - from) / 1e6 : 0; }

static void log_request(struct stream *s, int status, const char *finish) {
    if (s->logged)
        return;
    s->logged = true;
    int64_t output = 0, cached = 0;
    for (int i = 0; i < s->num_choices; i++) {
        output += s->choices[i].num_tokens;
        if (i % s->req.n == 0)
            cached += s->choices[i].num_cached;
    }
    const struct choice *c = s->num_choices ? &s->choices[0] : NULL;
    int64_t arrived = s->call->arrived;
    double tpot = c && c->num_tokens > 1 ? ms(c->first, c->last) / (c->num_tokens - 1) : 0;
    log_msg(
        LOG_INFO,
        "request id=%s prompt=%lld cached=%lld output=%lld finish=%s queue_ms=%.1f ttft_ms=%.1f tpot_ms=%.2f "
        "e2e_ms=%.1f status=%d",
        s->call->request_id, (long long)s->num_prompt, (long long)cached, (long long)output, finish,
        ms(s->timing.time_submitted, s->timing.time_scheduled), c ? ms(arrived, c->first) : 0.0, tpot,
        ms(arrived, http_now()), status);
}

// Lets go of what the engine still does for this answer; its later events find no id.
static void abandon(struct stream *s) {
    for (int i = 0; i < s->num_choices; i++) {
        struct choice *c = &s->choices[i];
        if (!c->submitted || c->finished)
            continue;
        c->finished = true;
        if (!c->complete) { // a choice that a stop string ended has been cancelled, and is no abort
            service_cancel(s->app->service, c->id, FINISH_CANCELLED);
            s->app->metrics.finished[FINISH_CANCELLED]++;
        } else {
            s->app->metrics.finished[c->finish]++;
        }
        table_remove(s->app, c);
    }
    s->num_open = 0;
}

void stream_free(struct stream *s) {
    struct app *app = s->app;
    if (s->is_dirty) {
        struct stream **d = &app->dirty;
        while (*d != s)
            d = &(*d)->next_dirty;
        *d = s->next_dirty;
    }
    *(s->prev ? &s->prev->next : &app->streams) = s->next;
    if (s->next)
        s->next->prev = s->prev;
    app->num_streams--;
    for (int i = 0; i < s->num_choices; i++) {
        struct choice *c = &s->choices[i];
        detok_free(c->detok);
        detok_free(c->echo);
        buf_free(&c->text);
        logprobs_free(&c->lists);
        free(c->held);
    }
    free(s->choices);
    buf_free(&s->head);
    buf_free(&s->body);
    completion_free(&s->req);
    free(s);
}

void stream_done(struct app *app, struct http_call *call) {
    struct stream *s = call->user;
    if (!s)
        return;
    call->user = NULL;
    if (s->state != STREAM_ENDED) {
        app->metrics.disconnects++;
        abandon(s);
        log_request(s, call->streaming ? 200 : 499, "abort");
    }
    s->call = NULL;
    if (s->state != STREAM_PARSING) {
        stream_free(s);
        return;
    }
    s->state = STREAM_ENDED; // after_parse() frees it, at once if the pool has not begun
    uv_cancel((uv_req_t *)&s->work);
}

void stream_fail(struct stream *s, const struct api_error *e) {
    if (s->state == STREAM_ENDED)
        return;
    abandon(s);
    s->state = STREAM_ENDED;
    log_request(s, s->call->streaming ? 200 : e->status, "error");
    if (!s->call->streaming) {
        http_error(s->call, e);
        return;
    }
    struct buf *b = sse_begin(&s->call->out);
    buf_lit(b, "data: ");
    write_error(b, e);
    buf_lit(b, "\n\n");
    sse_end(&s->call->out);
    sse_done(&s->call->out);
    http_stream_end(s->call);
}

void stream_fail_memory(struct stream *s) {
    struct api_error e = {.retry_after = 5};
    api_fail(&e, 503, "overloaded", NULL, "The server is out of memory.");
    stream_fail(s, &e);
}

// ---- out

static struct usage usage_of(const struct stream *s) {
    struct usage u = {.prompt = s->num_prompt};
    for (int i = 0; i < s->num_choices; i++) {
        u.completion += s->choices[i].num_tokens;
        if (i % s->req.n ==
            0) // the other choices of a prompt share its blocks; that is no hit of the client's
            u.cached += s->choices[i].num_cached;
    }
    return u;
}

static void write_piece(const struct choice *c, struct buf *b, size_t n, const char *finish) {
    const struct completion *q = &c->stream->req;
    const struct logprob_lists *lists = q->logprobs >= 0 ? &c->lists : NULL;
    if (!q->chat)
        write_choice(b, c->index, c->text.data, n, lists, finish);
    else if (q->stream)
        write_delta(b, c->index, false, c->text.data, n, lists, finish);
    else
        write_message(b, c->index, c->text.data, n, lists, finish);
}

static void write_tail(struct stream *s, struct buf *b) {
    buf_char(b, ']');
    if (s->req.continuous_usage) {
        struct usage u = usage_of(s);
        buf_lit(b, ",\"usage\":");
        write_usage(b, &u);
    } else if (s->req.include_usage) {
        buf_lit(b, ",\"usage\":null");
    }
    buf_lit(b, "}\n\n");
}

// How much of the text may be written: with log-probabilities, that of the tokens let go, so that both go
// together.
static size_t sendable(const struct choice *c) {
    if (c->complete || c->num_held == 0)
        return c->text.len;
    size_t n = c->text.len - (c->credit < c->text.len ? c->credit : c->text.len);
    while (n > 0 && n < c->text.len && ((unsigned char)c->text.data[n] & 0xc0) == 0x80)
        n--; // never within a character
    return n;
}

// The first chunks of chat, in the order of the choices, which clients rely on: only they have the role.
static void write_roles(struct stream *s) {
    for (int i = 0; i < s->num_choices && s->req.chat; i++) {
        struct buf *b = sse_begin(&s->call->out);
        buf_add(b, s->head.data, s->head.len);
        write_delta(b, i, true, "", 0, NULL, NULL);
        write_tail(s, b);
        sse_end(&s->call->out);
    }
    s->begun = true;
}

// Writes the chunk that this choice owes, where the reader keeps up; otherwise its text goes on gathering and
// becomes one larger chunk later.
static void emit(struct choice *c) {
    struct stream *s = c->stream;
    struct http_call *call = s->call;
    size_t n = sendable(c);
    if (c->finish_sent || (n == 0 && !c->complete))
        return;
    if (sse_pending(&call->out) > OUT_BOUND) {
        call->want_drained = true;
        if (!s->over_since)
            s->over_since = http_now();
        return;
    }
    if (!call->streaming)
        http_stream(call);
    if (!s->begun)
        write_roles(s);
    struct buf *b = sse_begin(&call->out);
    buf_add(b, s->head.data, s->head.len);
    write_piece(c, b, n, c->complete ? finish_name(c->finish) : NULL);
    write_tail(s, b);
    sse_end(&call->out);
    c->finish_sent = c->complete;
    c->fresh = false;
    c->text.len -= n;
    if (c->text.len)
        memmove(c->text.data, c->text.data + n, c->text.len);
    logprobs_clear(&c->lists);
}

static void end_stream(struct stream *s) {
    struct http_call *call = s->call;
    for (int i = 0; i < s->num_choices; i++)
        if (!s->choices[i].finish_sent)
            return;
    if (s->req.include_usage) {
        struct usage u = usage_of(s);
        struct buf *b = sse_begin(&call->out);
        buf_add(b, s->head.data, s->head.len);
        buf_lit(b, "],\"usage\":");
        write_usage(b, &u);
        buf_lit(b, "}\n\n");
        sse_end(&call->out);
    }
    sse_done(&call->out);
    s->state = STREAM_ENDED;
    http_stream_end(call);
    log_request(s, 200, finish_name(s->choices[0].finish));
}

static void end_whole(struct stream *s) {
    struct buf b = {0};
    buf_add(&b, s->head.data, s->head.len);
    for (int i = 0; i < s->num_choices; i++) {
        struct choice *c = &s->choices[i];
        if (i)
            buf_char(&b, ',');
        write_piece(c, &b, c->text.len, finish_name(c->finish));
    }
    struct usage u = usage_of(s);
    buf_lit(&b, "],\"usage\":");
    write_usage(&b, &u);
    buf_char(&b, '}');
    if (b.failed) {
        buf_free(&b);
        stream_fail_memory(s);
        return;
    }
    s->state = STREAM_ENDED;
    http_reply(s->call, 200, "application/json", b.data, b.len);
    buf_free(&b);
    log_request(s, 200, finish_name(s->choices[0].finish));
}

// The reader stands still. Its socket takes nothing, so that it cannot be told.
static void give_up(struct stream *s) {
    s->app->metrics.stalled++;
    abandon(s);
    s->state = STREAM_ENDED;
    log_request(s, 200, "stalled");
    http_stream_break(s->call);
    http_kill(s->call);
}

// After the events of a turn, or when a reader has caught up.
static void flush(struct stream *s) {
    if (s->state != STREAM_RUNNING)
        return;
    bool failed = s->head.failed, over = false;
    for (int i = 0; i < s->num_choices; i++) {
        const struct choice *c = &s->choices[i];
        failed |= c->text.failed || c->lists.tokens.failed || c->lists.values.failed ||
                  c->lists.tops.failed || c->lists.offsets.failed;
    }
    if (failed) {
        stream_fail_memory(s);
        return;
    }
    if (!s->req.stream) {
        if (s->num_open == 0)
            end_whole(s);
        return;
    }
    for (int i = 0; i < s->num_choices; i++) {
        struct choice *c = &s->choices[i];
        emit(c);
        over |= c->text.len + c->lists.tops.len > KEPT_BOUND; // what the reader did not take in time
    }
    if (over) {
        give_up(s);
        return;
    }
    if (s->num_open == 0)
        end_stream(s);
    if (sse_pending(&s->call->out) > 0) {
        s->last_write = http_now();
        http_wake(s->call);
    }
}

void stream_drained(struct app *app, struct http_call *call) {
    (void)app;
    struct stream *s = call->user;
    if (!s)
        return;
    s->over_since = 0;
    flush(s);
}

// ---- events

static void release_held(struct choice *c, bool all) {
    struct stream *s = c->stream;
    int n = 0;
    while (n < c->num_held && (all || c->held[n].bytes <= c->credit)) {
        struct held_token *h = &c->held[n++];
        c->credit -= h->bytes < c->credit ? h->bytes : c->credit;
        if (s->req.chat)
            logprobs_add_chat(&c->lists, s->app->model.tokenizer, &h->event, s->req.logprobs);
        else
            logprobs_add(&c->lists, s->app->model.tokenizer, &h->event, s->req.logprobs, h->offset);
    }
    c->num_held -= n;
    if (n && c->num_held)
        memmove(c->held, c->held + n, (size_t)c->num_held * sizeof *c->held);
    if (c->num_held == 0)
        c->credit = 0; // U+FFFD is longer than the byte it stands for
}

// A character counts where it begins; of what is no UTF-8 each part that becomes one U+FFFD is a character.
static void count_byte(struct choice *c, unsigned char byte) {
    c->partial[c->num_partial++] = byte;
    if (c->num_partial > 1) {
        size_t bad, len = utf8_sequence(c->partial, c->num_partial, &bad);
        if (len == c->num_partial) {
            c->num_partial = 0;
            return;
        }
        if (bad == c->num_partial)
            return;
        c->partial[0] = byte;
        c->num_partial = 1;
    }
    c->chars++;
    c->num_partial = byte >= 0x80;
}

// `text`: the token is part of it; `strip`: without its first space.
static void hold(struct choice *c, const struct service_event *ev, bool text, bool strip) {
    if (c->num_held == c->cap_held) {
        int cap = c->cap_held ? 2 * c->cap_held : 4;
        struct held_token *grown = realloc(c->held, (size_t)cap * sizeof *grown);
        if (!grown) {
            c->text.failed = true;
            return;
        }
        c->held = grown;
        c->cap_held = cap;
    }
    size_t len = 0;
    const char *bytes =
        tokenizer_bytes(c->stream->app->model.tokenizer, ev->token, !c->stream->req.skip_special, &len);
    if (!text) {
        len = 0;
    } else if (strip && len > 0 && bytes[0] == ' ') {
        bytes++; // the dummy space that the text does not have
        len--;
    }
    c->held[c->num_held++] = (struct held_token){.event = *ev, .bytes = len, .offset = c->chars};
    for (size_t i = 0; i < len; i++)
        count_byte(c, (unsigned char)bytes[i]);
}

// One token of the prompt, as the text and with log-probabilities as those of the answer.
static void echo_token(struct choice *c, const struct service_event *ev) {
    const char *text;
    size_t len;
    detok_push(c->echo, ev->token, &text, &len);
    buf_add(&c->text, text, len);
    if (c->stream->req.logprobs < 0)
        return;
    size_t num_bytes, spaces = 0, out = 0; // those before the first word
    const char *bytes =
        tokenizer_bytes(c->stream->app->model.tokenizer, ev->token, !c->stream->req.skip_special, &num_bytes);
    while (spaces < num_bytes && bytes[spaces] == ' ')
        spaces++;
    while (out < len && text[out] == ' ')
        out++;
    hold(c, ev, true, !c->echo_begun && out < spaces);
    c->echo_begun |= num_bytes > 0;
    c->credit += len;
    release_held(c, false);
}

// Echoes the prompt up to its token `end`; these are without scores.
static void echo_upto(struct choice *c, int end) {
    const struct token_buf *prompt = &c->stream->req.prompts[c->index / c->stream->req.n];
    for (; c->num_echoed < end && c->num_echoed < (int)prompt->len; c->num_echoed++) {
        const struct service_event ev = {.token = prompt->ids[c->num_echoed], .num_top = -1};
        echo_token(c, &ev);
    }
}

// The last of the prompt, before what was generated.
static void echo_end(struct choice *c) {
    const char *text;
    size_t len;
    if (!c->echo)
        return;
    echo_upto(c, INT_MAX);
    detok_finish(c->echo, &text, &len);
    buf_add(&c->text, text, len);
    release_held(c, true);
    detok_free(c->echo);
    c->echo = NULL;
    c->num_partial = 0; // what was unfinished is U+FFFD
    c->fresh = c->text.len > 0;
}

static void on_prompt(struct choice *c, const struct service_event *ev) {
    if (!c->echo || c->complete || c->stream->state != STREAM_RUNNING || ev->position < c->num_echoed)
        return;
    echo_upto(c, ev->position);
    echo_token(c, ev);
    c->num_echoed++;
    mark_dirty(c->stream);
}

static void on_token(struct choice *c, const struct service_event *ev, int64_t now) {
    struct stream *s = c->stream;
    struct metrics *m = &s->app->metrics;
    if (c->complete || s->state != STREAM_RUNNING)
        return;
    echo_end(c);
    if (s->req.stream && c->fresh)
        emit(c); // the token before came in the same turn: a chunk each
    if (c->num_tokens++ == 0) {
        c->first = now;
        metrics_observe(m, M_TTFT, (double)(now - s->call->arrived) / 1e9);
    } else {
        metrics_observe(m, M_INTER_TOKEN, (double)(now - c->last) / 1e9);
    }
    c->last = now;
    bool is_stop = false, hit = false;
    for (int i = 0; i < s->req.num_stop_ids; i++)
        is_stop |= s->req.stop_ids[i] == ev->token;
    const char *text = "";
    size_t len = 0;
    if (!is_stop) // the token that ends the output is no part of it
        hit = detok_push(c->detok, ev->token, &text, &len);
    buf_add(&c->text, text, len);
    if (s->req.logprobs >= 0) {
        hold(c, ev, !is_stop, c->strip && c->num_tokens == 1);
        c->credit += len;
        release_held(c, hit);
    }
    if (hit) {
        c->complete = true;
        c->finish = FINISH_STOP;
        service_cancel(s->app->service, c->id, FINISH_STOP);
    }
    c->fresh = c->text.len > 0;
    mark_dirty(s);
}

static void observe_finish(struct app *app, const struct choice *c, const struct service_event *ev,
                           int64_t now) {
    struct metrics *m = &app->metrics;
    const struct stream *s = c->stream;
    metrics_observe(m, M_E2E, (double)(now - s->call->arrived) / 1e9);
    if (ev->time_scheduled) {
        metrics_observe(m, M_QUEUE, (double)(ev->time_scheduled - ev->time_submitted) / 1e9);
        metrics_observe(m, M_INFERENCE, (double)(ev->time_finished - ev->time_scheduled) / 1e9);
    }
    if (ev->time_first_token) {
        metrics_observe(m, M_PREFILL, (double)(ev->time_first_token - ev->time_scheduled) / 1e9);
        metrics_observe(m, M_DECODE, (double)(ev->time_finished - ev->time_first_token) / 1e9);
    }
    if (c->num_tokens > 1)
        metrics_observe(m, M_PER_TOKEN, (double)(c->last - c->first) / 1e9 / (c->num_tokens - 1));
    metrics_observe(m, M_PROMPT_TOKENS, ev->num_prompt);
    metrics_observe(m, M_GENERATION_TOKENS, c->num_tokens);
    if (c->index % s->req.n == 0) { // once for each prompt, however many choices it has
        metrics_observe(m, M_PARAM_N, s->req.n);
        metrics_observe(m, M_PARAM_MAX_TOKENS, s->req.max_tokens);
    }
    m->finished[c->finish]++;
}

static void on_finish(struct choice *c, const struct service_event *ev, int64_t now) {
    struct stream *s = c->stream;
    struct app *app = s->app;
    table_remove(app, c);
    c->finished = true;
    c->num_cached = ev->num_cached > 0 ? ev->num_cached : 0;
    s->num_open--;
    if (c->index == 0)
        s->timing = *ev;
    if (!c->complete && (ev->finish == FINISH_ERROR || ev->finish == FINISH_CANCELLED)) {
        struct api_error e = {0};
        struct service_stats stats;
        app_stats(app, &stats);
        app->metrics.finished[ev->finish]++;
        if (stats.dead)
            api_fail(&e, 503, "engine_unavailable", NULL, "The engine has failed; the server is restarting.");
        else if (ev->finish == FINISH_CANCELLED)
            api_fail(&e, 503, "shutting_down", NULL, "The server is shutting down.");
        else
            api_fail(&e, 500, "internal_error", NULL, "The engine failed this request.");
        e.retry_after = e.status == 503 ? 5 : 0;
        stream_fail(s, &e);
        return;
    }
    if (!c->complete) {
        echo_end(c);
        const char *text;
        size_t len;
        detok_finish(c->detok, &text, &len);
        buf_add(&c->text, text, len);
        c->finish = ev->finish;
        c->complete = true;
        release_held(c, true);
    }
    observe_finish(app, c, ev, now);
    mark_dirty(s);
}

void streams_take_events(struct app *app) {
    struct service_event events[BATCH];
    int n;
    while (app->service && (n = service_take(app->service, events, BATCH)) > 0) {
        int64_t now = http_now();
        for (int i = 0; i < n; i++) {
            struct choice *c = table_find(app, events[i].id);
            if (!c)
                continue; // cancelled, and gone
            if (events[i].kind == EVENT_TOKEN)
                on_token(c, &events[i], now);
            else if (events[i].kind == EVENT_FINISH)
                on_finish(c, &events[i], now);
            else
                on_prompt(c, &events[i]);
        }
    }
    while (app->dirty) {
        struct stream *s = app->dirty;
        app->dirty = s->next_dirty;
        s->is_dirty = false;
        flush(s);
    }
}

// ---- all

void streams_tick(struct app *app, int64_t now) {
    for (struct stream *s = app->streams; s; s = s->next) {
        if (s->state != STREAM_RUNNING || !s->req.stream)
            continue;
        if (s->over_since && now - s->over_since > STALL_SECONDS * SECOND) {
            give_up(s);
        } else if (now - s->last_write > PING_SECONDS * SECOND && sse_pending(&s->call->out) == 0) {
            s->last_write = now;
            if (!s->call->streaming)
                http_stream(s->call);
            sse_ping(&s->call->out);
            http_wake(s->call);
        }
    }
}

void streams_fail(struct app *app, int status, const char *code, const char *message) {
    for (struct stream *s = app->streams; s; s = s->next) {
        struct api_error e = {.retry_after = 5};
        api_fail(&e, status, code, NULL, "%s", message);
        if (s->state == STREAM_RUNNING)
            stream_fail(s, &e);
    }
}

void streams_free(struct app *app) {
    free(app->table);
    app->table = NULL;
}
