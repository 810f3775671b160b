// A transport between threads, each of which stands for a process: messages lie in one list until somebody
// asks for them. A process can be cut off: then nothing of it arrives any more. Messages can be late: their receiver asks
// in vain some times.
#pragma once

#include "ranks/transport.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct fake_message {
    struct fake_message *next;
    int from, to, tag;
    size_t bytes;
    unsigned char data[];
};

struct fake_wait { // what a recv() asked for; its request's handle
    void *data;
    size_t bytes;
    int from, tag, asked;
};

struct fake_net {
    pthread_mutex_t lock;
    struct fake_message *first, **last;
    bool cut[16]; // nothing of this process arrives
    int late;     // questions in vain before each message
};

struct fake_transport {
    struct transport base;
    struct fake_net *net;
};

static inline struct fake_transport *fake_own(struct transport *t) {
    return (struct fake_transport *)(void *)t;
}

static inline enum status fake_send(struct transport *t, const void *data, size_t bytes, int to, int tag,
                                    struct transport_request *r, struct err *err) {
    (void)err;
    struct fake_net *net = fake_own(t)->net;
    struct fake_message *m = malloc(sizeof *m + bytes);
    *m = (struct fake_message){.from = t->process, .to = to, .tag = tag, .bytes = bytes};
    if (bytes > 0)
        memcpy(m->data, data, bytes);
    pthread_mutex_lock(&net->lock);
    if (net->cut[t->process]) {
        free(m);
    } else {
        *net->last = m;
        net->last = &m->next;
    }
    pthread_mutex_unlock(&net->lock);
    *r = (struct transport_request){.handle = 0, .active = true};
    return STATUS_OK;
}

static inline enum status fake_recv(struct transport *t, void *data, size_t bytes, int from, int tag,
                                    struct transport_request *r, struct err *err) {
    (void)t, (void)err;
    struct fake_wait *w = malloc(sizeof *w);
    *w = (struct fake_wait){data, bytes, from, tag, 0};
    *r = (struct transport_request){.handle = (uint64_t)(uintptr_t)w, .active = true};
    return STATUS_OK;
}

static inline enum status fake_test(struct transport *t, struct transport_request *r, bool *done,
                                    struct err *err) {
    struct fake_net *net = fake_own(t)->net;
    struct fake_wait *w = (struct fake_wait *)(uintptr_t)r->handle;
    enum status st = STATUS_OK;
    *done = w == NULL; // sending is over at once
    if (w && w->asked++ < net->late)
        return STATUS_OK;
    pthread_mutex_lock(&net->lock);
    for (struct fake_message **at = &net->first; w && *at; at = &(*at)->next) {
        struct fake_message *m = *at;
        if (m->from != w->from || m->to != t->process || m->tag != w->tag)
            continue;
        if (m->bytes > w->bytes)
            st = err_set(err, STATUS_DEVICE, "message truncated");
        else if (m->bytes > 0)
            memcpy(w->data, m->data, m->bytes);
        if (net->last == &m->next)
            net->last = at;
        *at = m->next;
        free(m);
        *done = true;
        break;
    }
    pthread_mutex_unlock(&net->lock);
    if (*done) {
        free(w);
        r->active = false;
    }
    return st;
}

static inline void fake_forget(struct transport *t, struct transport_request *r) {
    (void)t;
    free((void *)(uintptr_t)r->handle);
    r->active = false;
}

static inline void fake_close(struct transport *t, bool clean) { (void)t, (void)clean; }

static const struct transport_ops fake_ops = {
    .abi = TRANSPORT_ABI,
    .send = fake_send,
    .recv = fake_recv,
    .test = fake_test,
    .forget = fake_forget,
    .close = fake_close,
};

static inline void fake_net_init(struct fake_net *net) {
    *net = (struct fake_net){.first = NULL};
    net->last = &net->first;
    pthread_mutex_init(&net->lock, NULL);
}

static inline void fake_net_destroy(struct fake_net *net) {
    for (struct fake_message *m = net->first, *next; m; m = next) {
        next = m->next;
        free(m);
    }
    pthread_mutex_destroy(&net->lock);
}
