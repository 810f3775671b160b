// A module for processes.c without MPI: "processes" are threads of one program, each of which opens the
// transport once. A message is under way until its receiver takes it, as one that is too long for the
// library's own buffers, and process 1 takes each LATE_MS after it is first asked for it; one that its sender gives up
// before is gone, as MPI allows.
#include "clock.h"
#include "ranks/transport.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { WORLD = 2, LATE_MS = 300 }; // longer than a process that leaves waits for its own threads

struct message { // of a sender until it is taken or given up; then of the other one, or nobody's
    struct message *next;
    int from, to, tag;
    size_t bytes;
    bool taken;
    unsigned char data[];
};

struct waiting { // what a recv() asked for
    void *data;
    size_t bytes;
    int from, tag;
    int64_t since; // ns, of the first time that it was asked for; 0: not yet
};

struct handle {
    struct message *sent;    // or
    struct waiting *waiting; //
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct message *first, **last = &first;
static _Atomic int opened;

static struct handle *handle_of(const struct transport_request *r) {
    return (struct handle *)(uintptr_t)r->handle;
}

static enum status begin(struct transport_request *r, struct message *sent, struct waiting *waiting) {
    struct handle *h = malloc(sizeof *h);
    *h = (struct handle){sent, waiting};
    *r = (struct transport_request){.handle = (uintptr_t)h, .active = true};
    return STATUS_OK;
}

static void finish(struct transport_request *r) {
    free(handle_of(r)->waiting);
    free(handle_of(r));
    *r = (struct transport_request){0};
}

static enum status late_send(struct transport *t, const void *data, size_t bytes, int to, int tag,
                             struct transport_request *r, struct err *err) {
    (void)err;
    struct message *m = malloc(sizeof *m + bytes);
    *m = (struct message){.from = t->process, .to = to, .tag = tag, .bytes = bytes};
    memcpy(m->data, data, bytes);
    pthread_mutex_lock(&lock);
    *last = m;
    last = &m->next;
    pthread_mutex_unlock(&lock);
    return begin(r, m, NULL);
}

static enum status late_recv(struct transport *t, void *data, size_t bytes, int from, int tag,
                             struct transport_request *r, struct err *err) {
    (void)t, (void)err;
    struct waiting *w = malloc(sizeof *w);
    *w = (struct waiting){data, bytes, from, tag, 0};
    return begin(r, NULL, w);
}

static void take_out(struct message **at) {
    struct message *m = *at;
    *at = m->next;
    if (last == &m->next)
        last = at;
}

static bool take(struct transport *t, struct waiting *w) {
    w->since = w->since ? w->since : clock_now_ns();
    if (t->process == 1 && clock_now_ns() - w->since < LATE_MS * 1000000LL)
        return false;
    for (struct message **at = &first; *at; at = &(*at)->next) {
        struct message *m = *at;
        if (m->from != w->from || m->to != t->process || m->tag != w->tag || m->bytes > w->bytes)
            continue;
        memcpy(w->data, m->data, m->bytes);
        take_out(at);
        m->taken = true;
        return true;
    }
    return false;
}

static enum status late_test(struct transport *t, struct transport_request *r, bool *done, struct err *err) {
    (void)err;
    struct handle *h = handle_of(r);
    pthread_mutex_lock(&lock);
    *done = h->sent ? h->sent->taken : take(t, h->waiting);
    pthread_mutex_unlock(&lock);
    if (*done) {
        free(h->sent);
        finish(r);
    }
    return STATUS_OK;
}

static void late_forget(struct transport *t, struct transport_request *r) {
    (void)t;
    struct message *sent = handle_of(r)->sent;
    pthread_mutex_lock(&lock);
    for (struct message **at = &first; sent && *at; at = &(*at)->next)
        if (*at == sent) {
            take_out(at);
            break;
        }
    pthread_mutex_unlock(&lock);
    free(sent);
    finish(r);
}

static void late_close(struct transport *t, bool clean) {
    (void)clean;
    free(t);
}

static const struct transport_ops ops;

static struct transport *late_open(struct err *err) {
    (void)err;
    struct transport *t = malloc(sizeof *t);
    *t = (struct transport){&ops, atomic_fetch_add(&opened, 1) % WORLD, WORLD, "late"};
    return t;
}

static const struct transport_ops ops = {
    .abi = TRANSPORT_ABI,
    .open = late_open,
    .send = late_send,
    .recv = late_recv,
    .test = late_test,
    .forget = late_forget,
    .close = late_close,
};

__attribute__((visibility("default"))) const struct transport_ops *quire_transport_v1(uint32_t abi);

const struct transport_ops *quire_transport_v1(uint32_t abi) { return abi == TRANSPORT_ABI ? &ops : NULL; }
