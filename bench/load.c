// Over 600 lines: slots, connections and ends of requests share the state of one run.
#include "load.h"

#include "arrival.h"
#include "clock.h"
#include "event_stream.h"
#include "log.h"
#include "reply.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

// A closed loop would ask a server that is gone thousands of times a second: it pauses after a refused
// connection.
#define REST_NS 100000000

enum { AHEAD = 256, AHEAD_PER_TURN = 8, BODY_MAX = 64 << 20, SHOW_MS = 500 };

const char *error_name(enum error_kind kind) {
    static const char *const names[ERROR_KINDS] = {
        [ERROR_NONE] = "none",       [ERROR_CONNECT] = "connect",         [ERROR_CLOSED] = "closed",
        [ERROR_TIMEOUT] = "timeout", [ERROR_PROTOCOL] = "protocol",       [ERROR_JSON] = "json",
        [ERROR_STATUS] = "status",   [ERROR_STREAM] = "stream",           [ERROR_UNFINISHED] = "unfinished",
        [ERROR_EMPTY] = "empty",     [ERROR_INTERRUPTED] = "interrupted",
    };
    return names[kind];
}

// A conversation in progress: one request at a time.
struct conversation {
    struct load *load;
    struct conversation *next; // in the queue of those that wait for a slot, or of prepared ones
    struct item item;
    uint32_t index, turn, ideal;
    struct history history;
    struct request_record *rec;
    struct buf request, user, completion, body;
    struct reply reply;
    struct event_stream events;
    int status;
    bool is_stream, prepared;
    int64_t due; // of the next turn
};

struct conversation_queue {
    struct conversation *head, **tail;
    size_t num;
};

struct load {
    struct run *run;
    const struct options *o;
    const struct prompt_maker *maker;
    const struct dataset *data;
    struct client *client;
    struct load_plan plan;
    struct arrival arrival;
    struct prefix_ideal *ideal;
    int64_t start; // CLOCK_MONOTONIC
    int64_t next_arrival;
    bool has_next;
    size_t num_items, taken, made; // conversations begun; conversations made ahead
    struct conversation_queue ahead, waiting;
    struct conversation **think; // a heap by due
    size_t num_think, cap_think;
    size_t active, running; // conversations that hold a slot; requests on the wire
    int64_t slot_free;      // when a slot was last freed
    int64_t rest_until;     // a closed loop begins nothing before
    struct progress progress;
    uv_timer_t show_timer;
    uv_poll_t alarm;
    uv_prepare_t prepare;
    uv_idle_t busy;
    int alarm_fd, open_handles;
    bool stopping, ended, sending;
    const volatile bool *stop;
    void (*show)(const struct progress *p, void *context);
    void *show_context;
};

static int64_t now_of(const struct load *l) { return clock_now_ns() - l->start; }

static void queue_push(struct conversation_queue *q, struct conversation *f) {
    if (!q->head)
        q->tail = &q->head;
    f->next = NULL;
    *q->tail = f;
    q->tail = &f->next;
    q->num++;
}

static struct conversation *queue_pop(struct conversation_queue *q) {
    struct conversation *f = q->head;
    if (f) {
        q->head = f->next;
        q->num--;
    }
    return f;
}

// ---- conversations ----

static struct conversation *conversation_make(struct load *l) {
    struct conversation *f = calloc(1, sizeof *f);
    CHECK(f);
    f->load = l;
    f->index = (uint32_t)l->made;
    f->item = dataset_item(l->data, l->made++);
    if (l->plan.warm && f->item.turns[0].text) { // a text of the run must not be in the server's cache
        struct turn *t = &f->item.turns[0];
        t->segments = calloc(1, sizeof *t->segments);
        CHECK(t->segments);
        t->input = (uint32_t)(strlen(t->text) / 5 + 1);
        t->segments[0] = (struct segment){f->index, t->input};
        t->num_segments = 1;
        t->text = NULL;
    }
    if (l->plan.warm)
        f->item.num_turns = 1;
    f->ideal = prefix_ideal_add(l->ideal, &f->item.turns[0]);
    return f;
}

static void conversation_prepare(struct conversation *f) {
    struct load *l = f->load;
    bool goes_on = f->turn + 1 < f->item.num_turns;
    buf_clear(&f->user);
    prompt_request(l->o, l->maker, &f->item.turns[f->turn], &f->history, &f->request,
                   goes_on ? &f->user : NULL);
    f->prepared = true;
}

static void conversation_free(struct conversation *f) {
    item_free(&f->item);
    history_free(&f->history);
    buf_free(&f->request);
    buf_free(&f->user);
    buf_free(&f->completion);
    buf_free(&f->body);
    event_stream_free(&f->events);
    free(f);
}

static void prepare_ahead(struct load *l, size_t at_most) {
    for (size_t i = 0; i < at_most && l->ahead.num < AHEAD && l->made < l->num_items; i++) {
        struct conversation *f = conversation_make(l);
        conversation_prepare(f);
        queue_push(&l->ahead, f);
    }
}

static struct request_record *record_new(struct load *l) {
    struct run *r = l->run;
    if (r->num == r->cap) {
        r->cap = r->cap ? r->cap * 2 : 256;
        r->records = realloc(r->records, r->cap * sizeof *r->records);
        CHECK(r->records);
    }
    struct request_record *rec = calloc(1, sizeof *rec);
    CHECK(rec);
    rec->index = (uint32_t)r->num;
    r->records[r->num++] = rec;
    return rec;
}

static void begin_turn(struct conversation *f, int64_t intended) {
    struct load *l = f->load;
    const struct turn *t = &f->item.turns[f->turn];
    struct request_record *rec = f->rec = record_new(l);
    rec->conversation = f->index;
    rec->turn = f->turn;
    rec->intended = intended;
    rec->want_input = t->input;
    rec->want_output = t->output;
    rec->ideal_cached = f->ideal;
}

// Takes the next conversation, which was meant to begin at `intended`.
static struct conversation *take_conversation(struct load *l, int64_t intended) {
    if (!l->ahead.num)
        prepare_ahead(l, 1);
    struct conversation *f = queue_pop(&l->ahead);
    l->taken++;
    begin_turn(f, intended);
    return f;
}

// ---- responses ----

struct event_context {
    struct conversation *f;
    int64_t now;
};

static void add_chunk(struct request_record *rec, int64_t now) {
    if (rec->num_chunks == rec->max_chunks) {
        rec->max_chunks = rec->max_chunks ? rec->max_chunks * 2 : 32;
        rec->at = realloc(rec->at, rec->max_chunks * sizeof *rec->at);
        CHECK(rec->at);
    }
    rec->at[rec->num_chunks++] = now;
}

static void on_event(void *context, bool is_error, const char *data, size_t len) {
    struct event_context *e = context;
    struct conversation *f = e->f;
    struct request_record *rec = f->rec;
    bool goes_on = f->turn + 1 < f->item.num_turns;
    reply_read(&f->reply, data, len, goes_on ? &f->completion : NULL);
    if (is_error && !f->reply.error[0])
        snprintf(f->reply.error, sizeof f->reply.error, "an error event");
    if (f->reply.done)
        return;
    if (f->reply.has_text) {
        if (!rec->first)
            rec->first = e->now;
        add_chunk(rec, e->now);
        f->load->progress.chunks++;
    }
    if (f->reply.has_choice)
        rec->last = e->now;
}

static void on_head(void *context, int status, bool event_stream) {
    struct conversation *f = context;
    f->status = status;
    f->is_stream = status == 200 && event_stream;
}

static bool on_body(void *context, const char *data, size_t len, int64_t now) {
    struct conversation *f = context;
    if (f->is_stream) {
        struct event_context e = {f, now - f->load->start};
        event_stream_feed(&f->events, data, len, on_event, &e);
        return !f->events.failed;
    }
    if (f->body.len + len > BODY_MAX)
        return false;
    buf_add(&f->body, data, len);
    return true;
}

// The kind of a request's error, ERROR_NONE without one. The message stays empty if the kind says all.
static enum error_kind find_error(struct conversation *f, char *message) {
    struct request_record *rec = f->rec;
    if (f->status != 200) {
        reply_error(f->body.data ? f->body.data : "", f->body.len, message, RECORD_MESSAGE);
        return ERROR_STATUS;
    }
    if (!f->is_stream) {
        bool goes_on = f->turn + 1 < f->item.num_turns;
        if (f->body.failed)
            return ERROR_JSON;
        reply_read(&f->reply, f->body.data ? f->body.data : "", f->body.len, goes_on ? &f->completion : NULL);
        rec->last = rec->end;
    }
    if (f->reply.error[0]) {
        snprintf(message, RECORD_MESSAGE, "%s", f->reply.error);
        return f->is_stream ? ERROR_STREAM : ERROR_JSON;
    }
    if (f->reply.bad || f->events.failed) {
        snprintf(message, RECORD_MESSAGE, "%s", "not JSON of the API");
        return ERROR_JSON;
    }
    if (f->is_stream && !f->reply.done && !f->reply.finished)
        return ERROR_UNFINISHED;
    if (!f->reply.has_text && !rec->first && !f->reply.output)
        return ERROR_EMPTY;
    return ERROR_NONE;
}

static void count_tokens(struct conversation *f) {
    struct request_record *rec = f->rec;
    rec->has_usage = f->reply.has_usage;
    rec->has_cached = f->reply.has_cached;
    rec->cached = f->reply.cached;
    rec->input = f->reply.has_usage ? f->reply.input : rec->want_input;
    rec->output = f->reply.has_usage ? f->reply.output : rec->num_chunks;
    if (f->is_stream && !rec->first) // tokens without text: the first that was seen of it is its end
        rec->first = rec->last;
}

static void send_due(struct load *l);
static void think_push(struct load *l, struct conversation *f);

static void on_end(void *context, enum error_kind error, const char *why, int64_t now, bool connected) {
    struct conversation *f = context;
    struct load *l = f->load;
    struct request_record *rec = f->rec;
    rec->end = now - l->start;
    rec->status = f->status;
    rec->connected = connected;
    snprintf(rec->message, sizeof rec->message, "%s", why);
    rec->error = error != ERROR_NONE ? error : find_error(f, rec->message);
    count_tokens(f);
    l->running--;
    if (rec->error == ERROR_NONE)
        l->progress.completed++;
    else
        l->progress.failed++;
    if (rec->end > l->run->duration)
        l->run->duration = rec->end;
    bool goes_on = f->turn + 1 < f->item.num_turns;
    if (goes_on && rec->error == ERROR_NONE && !l->stopping) {
        history_add(&f->history, f->user.data ? f->user.data : "", f->user.len);
        history_add(&f->history, f->completion.data ? f->completion.data : "", f->completion.len);
        f->ideal = rec->input + rec->output;
        f->turn++;
        f->due = rec->end + (int64_t)(l->o->think_time * 1e9);
        conversation_prepare(f);
        think_push(l, f);
    } else {
        l->run->turns_skipped += f->item.num_turns - f->turn - 1;
        l->active--;
        l->slot_free = rec->end;
        if (rec->error == ERROR_CONNECT && l->plan.arrival == ARRIVAL_CLOSED)
            l->rest_until = rec->end + REST_NS;
        conversation_free(f);
    }
    send_due(l);
}

static const struct call_handlers handlers = {on_head, on_body, on_end};

static void send_request(struct conversation *f, int64_t ready) {
    struct load *l = f->load;
    struct request_record *rec = f->rec;
    buf_clear(&f->completion);
    buf_clear(&f->body);
    f->reply = (struct reply){0};
    f->status = 0;
    f->is_stream = false;
    event_stream_reset(&f->events);
    rec->ready = ready > rec->intended ? ready : rec->intended;
    l->running++;
    l->progress.sent++;
    if (l->running > l->run->peak)
        l->run->peak = l->running;
    rec->sent = now_of(l);
    client_send(l->client, &f->request, &handlers, f);
}

// ---- time ----

static void think_push(struct load *l, struct conversation *f) {
    if (l->num_think == l->cap_think) {
        l->cap_think = l->cap_think ? l->cap_think * 2 : 64;
        l->think = realloc(l->think, l->cap_think * sizeof *l->think);
        CHECK(l->think);
    }
    size_t i = l->num_think++;
    for (; i && l->think[(i - 1) / 2]->due > f->due; i = (i - 1) / 2)
        l->think[i] = l->think[(i - 1) / 2];
    l->think[i] = f;
}

static struct conversation *think_pop(struct load *l) {
    struct conversation *top = l->think[0], *last = l->think[--l->num_think];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= l->num_think)
            break;
        if (child + 1 < l->num_think && l->think[child + 1]->due < l->think[child]->due)
            child++;
        if (l->think[child]->due >= last->due)
            break;
        l->think[i] = l->think[child];
        i = child;
    }
    l->think[i] = last;
    return top;
}

// Samples the next arrival; none after the last item or the end of the time.
static void sample_arrival(struct load *l) {
    size_t i = l->taken;
    l->has_next = i < l->num_items && !l->stopping;
    if (!l->has_next)
        return;
    if (l->plan.arrival == ARRIVAL_TRACE) {
        if (!l->ahead.num)
            prepare_ahead(l, 1);
        l->next_arrival = l->ahead.head->item.at;
    } else {
        l->next_arrival = arrival_next(&l->arrival);
    }
    if (l->plan.duration > 0 && (double)l->next_arrival >= l->plan.duration * 1e9)
        l->has_next = false;
}

static bool more_closed(const struct load *l, int64_t now) {
    return l->plan.arrival == ARRIVAL_CLOSED && l->taken < l->num_items && !l->stopping &&
           (l->plan.duration <= 0 || (double)now < l->plan.duration * 1e9);
}

static bool has_slot(const struct load *l) {
    return l->plan.max_concurrency == 0 || l->active < (size_t)l->plan.max_concurrency;
}

static void set_alarm(struct load *l) {
    int64_t at = l->has_next ? l->next_arrival : INT64_MAX;
    if (l->num_think && l->think[0]->due < at)
        at = l->think[0]->due;
    int64_t now = now_of(l);
    if (l->rest_until > now && l->rest_until < at && more_closed(l, now))
        at = l->rest_until;
    struct itimerspec spec = {0}; // all zero: none
    if (at != INT64_MAX) {
        int64_t t = at + l->start;
        spec.it_value = (struct timespec){t / 1000000000, t % 1000000000};
    }
    timerfd_settime(l->alarm_fd, TFD_TIMER_ABSTIME, &spec, NULL);
}

static void send_due_once(struct load *l) {
    int64_t now = now_of(l);
    while (l->has_next && l->next_arrival <= now) {
        queue_push(&l->waiting, take_conversation(l, l->next_arrival));
        sample_arrival(l);
    }
    if (l->stopping)
        return;
    while (l->waiting.num && has_slot(l)) {
        l->active++;
        struct conversation *f = queue_pop(&l->waiting);
        // Where no limit holds it back a request is ready when it is due.
        send_request(f, l->plan.max_concurrency ? l->slot_free : 0);
    }
    while (has_slot(l) && now >= l->rest_until && more_closed(l, now)) {
        // The slot has been free since the response before, or since the start.
        int64_t since = l->slot_free > l->rest_until ? l->slot_free : l->rest_until;
        struct conversation *f = take_conversation(l, since);
        l->active++;
        send_request(f, since);
    }
    while (l->num_think && l->think[0]->due <= now) {
        struct conversation *f = think_pop(l);
        begin_turn(f, f->due);
        send_request(f, f->due);
    }
}

static void send_due(struct load *l) {
    if (l->sending)
        return;
    l->sending = true;
    send_due_once(l);
    l->sending = false;
    l->progress.waiting = l->waiting.num;
    l->progress.running = l->running;
    bool more = l->waiting.num || l->num_think || l->has_next || more_closed(l, now_of(l));
    if (l->running == 0 && (l->stopping || !more))
        l->ended = true;
    set_alarm(l);
}

static void on_alarm(uv_poll_t *p, int status, int events) {
    (void)status;
    (void)events;
    struct load *l = p->data;
    uint64_t count;
    if (read(l->alarm_fd, &count, sizeof count) < 0 || !l->ended)
        send_due(l);
}

// Bodies are written ahead of their time, a few in each turn of the loop, so that sending costs no more than
// a write.
static void on_prepare(uv_prepare_t *p) {
    struct load *l = p->data;
    prepare_ahead(l, AHEAD_PER_TURN);
    if (l->ahead.num >= AHEAD / 2 || l->made >= l->num_items)
        uv_idle_stop(&l->busy);
    if (*l->stop && !l->stopping) {
        l->stopping = l->run->interrupted = true;
        l->has_next = false;
        client_interrupt(l->client);
        send_due(l);
    }
}

static void on_idle(uv_idle_t *i) { (void)i; } // keeps the loop turning while bodies are to be written

static double part_done(const struct load *l, int64_t now) {
    size_t open = l->running + l->waiting.num + l->num_think;
    double items = l->taken > open ? (double)(l->taken - open) / (double)l->num_items : 0;
    double time = l->plan.duration > 0 ? (double)now / (l->plan.duration * 1e9) : 0;
    return fmin(fmax(items, time), 1);
}

static void on_show(uv_timer_t *t) {
    struct load *l = t->data;
    l->progress.now = now_of(l);
    l->progress.part = part_done(l, l->progress.now);
    if (l->show)
        l->show(&l->progress, l->show_context);
    if (l->plan.duration > 0)
        send_due(l); // a closed loop may have run out of time
}

static double cpu_seconds(void) {
    struct rusage u;
    getrusage(RUSAGE_THREAD, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void drop_all(struct conversation_queue *q) {
    for (struct conversation *f; (f = queue_pop(q));)
        conversation_free(f);
}

static void open_handles(struct load *l, uv_loop_t *loop) {
    l->alarm_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    CHECK(l->alarm_fd >= 0);
    CHECK(uv_poll_init(loop, &l->alarm, l->alarm_fd) == 0);
    uv_timer_init(loop, &l->show_timer);
    uv_prepare_init(loop, &l->prepare);
    uv_idle_init(loop, &l->busy);
    l->alarm.data = l->show_timer.data = l->prepare.data = l->busy.data = l;
    uv_poll_start(&l->alarm, UV_READABLE, on_alarm);
    uv_timer_start(&l->show_timer, on_show, SHOW_MS, SHOW_MS);
    uv_prepare_start(&l->prepare, on_prepare);
    uv_idle_start(&l->busy, on_idle);
}

static void on_closed(uv_handle_t *h) { ((struct load *)h->data)->open_handles--; }

static void close_handles(struct load *l, uv_loop_t *loop) {
    uv_handle_t *handles[] = {(uv_handle_t *)&l->alarm, (uv_handle_t *)&l->show_timer,
                              (uv_handle_t *)&l->prepare, (uv_handle_t *)&l->busy};
    uv_poll_stop(&l->alarm);
    for (size_t i = 0; i < 4; i++, l->open_handles++)
        uv_close(handles[i], on_closed);
    while (l->open_handles)
        uv_run(loop, UV_RUN_NOWAIT);
    close(l->alarm_fd);
}

struct run *load_run(uv_loop_t *loop, struct client *client, const struct options *o,
                     const struct prompt_maker *maker, const struct dataset *d, struct load_plan plan,
                     const volatile bool *stop, void (*show)(const struct progress *p, void *context),
                     void *context) {
    struct prompt_maker warm_maker = *maker;
    warm_maker.seed = ~maker->seed;
    struct run *run = calloc(1, sizeof *run);
    struct load *l = calloc(1, sizeof *l);
    CHECK(run && l);
    run->plan = plan;
    *l = (struct load){
        .run = run, .o = o, .maker = plan.warm ? &warm_maker : maker, .data = d, .client = client};
    l->plan = plan;
    l->stop = stop;
    l->show = show;
    l->show_context = context;
    l->ideal = prefix_ideal_new();
    l->num_items = plan.num < dataset_size(d) ? plan.num : dataset_size(d);
    l->arrival = (struct arrival){plan.arrival, plan.rate, plan.burstiness, rng_seed(plan.seed, 1), 0};
    prepare_ahead(l, AHEAD);
    client_forget(client);
    open_handles(l, loop);
    double cpu = cpu_seconds();
    run->started_unix = (int64_t)time(NULL);
    l->start = run->started = clock_now_ns();
    if (plan.arrival != ARRIVAL_CLOSED)
        sample_arrival(l);
    send_due(l);
    while (!l->ended)
        uv_run(loop, UV_RUN_ONCE);
    run->cpu = cpu_seconds() - cpu;
    run->lag = *client_lag(client);
    run->connections = client_connections(client);
    run->retries = client_retries(client);
    run->not_sent = l->num_items == SIZE_MAX ? 0 : run->interrupted ? l->num_items - l->taken : 0;
    for (size_t i = 0; i < run->num; i++) // those that waited when it was interrupted
        if (!run->records[i]->sent && !run->records[i]->end)
            run->records[i]->error = ERROR_INTERRUPTED;
    close_handles(l, loop);
    drop_all(&l->ahead);
    drop_all(&l->waiting);
    for (size_t i = 0; i < l->num_think; i++)
        conversation_free(l->think[i]);
    free(l->think);
    prefix_ideal_free(l->ideal);
    free(l);
    return run;
}

void run_free(struct run *r) {
    if (!r)
        return;
    for (size_t i = 0; i < r->num; i++) {
        free(r->records[i]->at);
        free(r->records[i]);
    }
    free(r->records);
    free(r);
}
