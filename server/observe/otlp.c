#include "otlp.h"

#include "clock.h"
#include "http/client.h"
#include "log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { QUEUE = 2048, BATCH = 256, GATHER_MS = 1000, SEND_MS = 10000, CLOSE_MS = 3000 };
enum { MIN_PAUSE_MS = 1000, MAX_PAUSE_MS = 32000 }; // after a send that failed: doubled for each one in a row
#define MS 1000000LL

struct otlp {
    struct client_url url;
    pthread_mutex_t lock;
    pthread_cond_t changed; // for both sides
    // (QUEUE) ring. The sender reads the first `num` unlocked, the other thread writes behind them.
    struct span *queue;
    int head, num;
    struct otlp_counts counts;
    bool closing, ended;
    pthread_t thread;
    int pause_ms; // the sender's; 0: the last send succeeded
};

// ---- the sender

static void wait_ms(struct otlp *o, int64_t until) {
    struct timespec t = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    pthread_cond_timedwait(&o->changed, &o->lock, &t);
}

enum export_outcome { SENT, REFUSED, FAILED };

static enum export_outcome send_batch(struct otlp *o, int first, int num, struct err *err) {
    const struct span *spans[BATCH];
    struct buf body = {0};
    struct http_client client;
    for (int i = 0; i < num; i++)
        spans[i] = &o->queue[(first + i) % QUEUE];
    spans_write(&body, spans, num);
    if (body.failed) {
        buf_free(&body);
        err_set(err, STATUS_NOMEM, "out of memory");
        return FAILED;
    }
    const struct client_request request = {
        .method = "POST", .body = body.data, .len = body.len, .timeout_ms = SEND_MS, .total_ms = SEND_MS};
    enum export_outcome outcome = FAILED;
    if (client_open(&client, &o->url, &request, err) == STATUS_OK) {
        int status = client.status;
        client_close(&client);
        bool again = status == 429 || (status >= 502 && status <= 504); // as OTLP has it
        outcome = status >= 200 && status < 300 ? SENT : again ? FAILED : REFUSED;
        if (outcome != SENT)
            err_set(err, STATUS_IO, "%s port %s: status %d", o->url.host, o->url.port, status);
    }
    buf_free(&body);
    return outcome;
}

// Locked.
static void count_outcome(struct otlp *o, enum export_outcome outcome, int num, const struct err *err) {
    if (outcome == FAILED) {
        if (!o->pause_ms)
            log_msg(LOG_WARN, "traces=failing why=\"%s\"", err->msg);
        o->pause_ms = !o->pause_ms                 ? MIN_PAUSE_MS
                      : o->pause_ms < MAX_PAUSE_MS ? 2 * o->pause_ms
                                                   : MAX_PAUSE_MS;
        return;
    }
    if (outcome == REFUSED && o->counts.refused == 0)
        log_msg(LOG_WARN, "traces=refused why=\"%s\"", err->msg);
    if (o->pause_ms)
        log_msg(LOG_INFO, "traces=recovered dropped=%llu", (unsigned long long)o->counts.dropped);
    o->pause_ms = 0;
    *(outcome == SENT ? &o->counts.sent : &o->counts.refused) += (uint64_t)num;
    o->head = (o->head + num) % QUEUE;
    o->num -= num;
}

static void *send_spans(void *arg) {
    struct otlp *o = arg;
    pthread_mutex_lock(&o->lock);
    for (;;) {
        while (o->num == 0 && !o->closing)
            pthread_cond_wait(&o->changed, &o->lock);
        int64_t until = clock_now_ns() + (o->pause_ms ? o->pause_ms : GATHER_MS) * MS;
        while (!o->closing && clock_now_ns() < until && (o->num < BATCH || o->pause_ms))
            wait_ms(o, until);
        if (o->num == 0)
            break;
        struct err err = {0};
        int first = o->head, num = o->num < BATCH ? o->num : BATCH;
        pthread_mutex_unlock(&o->lock);
        enum export_outcome outcome = send_batch(o, first, num, &err);
        pthread_mutex_lock(&o->lock);
        count_outcome(o, outcome, num, &err);
        if (outcome == FAILED && o->closing)
            break;
    }
    o->ended = true;
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

// ---- the other side

static bool parse_url(struct client_url *out, const char *url) {
    *out = (struct client_url){.path = "/v1/traces"};
    return strncmp(url, "http://", 7) == 0 && client_parse_url(url, out); // an address alone is that of gRPC
}

bool otlp_url_ok(const char *url) {
    struct client_url parsed;
    return parse_url(&parsed, url);
}

static void free_all(struct otlp *o) {
    pthread_cond_destroy(&o->changed);
    pthread_mutex_destroy(&o->lock);
    free(o->queue);
    free(o);
}

struct otlp *otlp_open(const char *url) {
    struct otlp *o = calloc(1, sizeof *o);
    if (!o)
        return NULL;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&o->changed, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&o->lock, NULL);
    o->queue = calloc(QUEUE, sizeof *o->queue);
    if (o->queue && parse_url(&o->url, url) && pthread_create(&o->thread, NULL, send_spans, o) == 0)
        return o;
    free_all(o);
    return NULL;
}

void otlp_add(struct otlp *o, const struct span *span) {
    pthread_mutex_lock(&o->lock);
    if (o->num == QUEUE) {
        o->counts.dropped++;
    } else {
        o->queue[(o->head + o->num++) % QUEUE] = *span;
        if (o->num == 1 || o->num == BATCH)
            pthread_cond_signal(&o->changed);
    }
    pthread_mutex_unlock(&o->lock);
}

void otlp_counts(struct otlp *o, struct otlp_counts *out) {
    pthread_mutex_lock(&o->lock);
    *out = o->counts;
    pthread_mutex_unlock(&o->lock);
}

void otlp_close(struct otlp *o) {
    if (!o)
        return;
    int64_t until = clock_now_ns() + CLOSE_MS * MS;
    pthread_mutex_lock(&o->lock);
    o->closing = true;
    pthread_cond_broadcast(&o->changed);
    while (!o->ended && clock_now_ns() < until)
        wait_ms(o, until);
    bool ended = o->ended;
    int left = o->num;
    pthread_mutex_unlock(&o->lock);
    if (left)
        log_msg(LOG_WARN, "traces=lost spans=%d", left);
    if (!ended) { // it waits for the network; the process ends with it
        pthread_detach(o->thread);
        return;
    }
    pthread_join(o->thread, NULL);
    free_all(o);
}
