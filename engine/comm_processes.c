// See comm_processes.h. A message begins with a frame, which has a header (who is in what, of how many bytes)
// and the first bytes; what is longer follows without a copy, in pieces, or as one where it is posted. Every
// wait asks the transport again and again, at first at once, later with pauses. Messages between two ranks
// and collectives have tags of their own, so that neither is taken for the other.
#include "comm_processes.h"

#include "log.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    FIRST = 32 << 10,        // bytes of a message that go with its header
    PIECE = 1 << 20,         // bytes of each further message
    WINDOW = 4,              // of those under way at a time
    SLOTS = COMM_MAX_POSTED, // messages to one rank whose sending is not over
    TAG_BITS = 6,            // of a tag: each of both ranks
};

// Pauses. A decode step waits for some ten microseconds, an idle rank for hours.
#define SPIN_NS 20000
#define YIELD_NS 500000
#define NAP_NS 50000
#define LONG_NAP_NS 1000000
#define LONG_AFTER_NS 20000000
#define SLICE_NS 50000000 // of a deadline: a process that was stopped and goes on has lost one

enum operation { NOTHING, ALL_REDUCE, ALL_GATHER, BROADCAST, BARRIER, MAIL };
static const char *const names[] = {"nothing", "all_reduce", "all_gather", "broadcast", "barrier", "send"};
enum { NUM_OPERATIONS = sizeof names / sizeof names[0] };

struct header {
    uint32_t operation, rank;
    uint64_t bytes;  // of the whole message
    int64_t sent_ns; // monotonic
    uint64_t zero;   // to a multiple of 32
};

struct frame {
    struct header header;
    unsigned char data[FIRST];
};

struct outgoing {
    struct frame *frame;
    struct transport_request request, rest;
};

struct incoming {
    struct frame *frame;
    struct transport_request request;
};

struct member {
    struct comm comm;
    struct member *next; // of those that are abandoned
    struct comm_processes_config config;
    int64_t delay_ns, deadline_ns;
    struct outgoing out[COMM_MAX_WORLD][SLOTS];
    uint64_t num_out[COMM_MAX_WORLD]; // messages begun; message i is in slot i modulo SLOTS
    struct incoming in[COMM_MAX_WORLD];
    float *scratch; // (WINDOW, PIECE bytes) pieces of others' numbers
    struct transport_request sends[WINDOW], recvs[WINDOW];
};

static struct member *member_of(struct comm *c) { return (struct member *)(void *)c; }

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void nap(int64_t ns) { nanosleep(&(struct timespec){.tv_nsec = ns % 1000000000}, NULL); }

static enum status end(struct member *m, const char *why) {
    ending_set(m->config.ending, why);
    return STATUS_DEVICE;
}

static enum status end_with(struct member *m, const struct err *err, int other) {
    char why[300];
    snprintf(why, sizeof why, "rank %d cannot reach rank %d: %.220s", m->comm.rank, other, err->msg);
    return end(m, why);
}

// Waits until a message is done; other is for the sentence.
static enum status await(struct member *m, struct transport_request *r, int other) {
    struct transport *t = m->config.transport;
    struct err err = {0};
    int64_t start = now_ns(), last = start, waited = 0;
    while (r->active) {
        bool done;
        if (ending_reached(m->config.ending))
            return STATUS_DEVICE;
        if (t->ops->test(t, r, &done, &err) != STATUS_OK)
            return end_with(m, &err, other);
        if (done)
            break;
        int64_t now = now_ns();
        waited += now - last < SLICE_NS ? now - last : SLICE_NS;
        last = now;
        if (m->deadline_ns > 0 && waited > m->deadline_ns) {
            char why[128];
            snprintf(why, sizeof why, "rank %d has waited %g s for rank %d", m->comm.rank,
                     (double)m->deadline_ns / 1e9, other);
            return end(m, why);
        }
        if (waited > YIELD_NS)
            nap(waited > LONG_AFTER_NS ? LONG_NAP_NS : NAP_NS);
        else if (waited > SPIN_NS)
            sched_yield();
    }
    return ending_reached(m->config.ending) ? STATUS_DEVICE : STATUS_OK;
}

static int tag(const struct member *m, bool mail, int from, int to) {
    return (m->config.channel << 1 | mail) << (2 * TAG_BITS) | from << TAG_BITS | to;
}

static size_t first_bytes(size_t bytes) { return bytes < FIRST ? bytes : FIRST; }

static enum status send_piece(struct member *m, bool mail, const void *data, size_t bytes, int to,
                              struct transport_request *r) {
    struct transport *t = m->config.transport;
    struct err err = {0};
    if (t->ops->send(t, data, bytes, m->config.process[to], tag(m, mail, m->comm.rank, to), r, &err) !=
        STATUS_OK)
        return end_with(m, &err, to);
    return STATUS_OK;
}

static enum status recv_piece(struct member *m, bool mail, void *data, size_t bytes, int from,
                              struct transport_request *r) {
    struct transport *t = m->config.transport;
    struct err err = {0};
    if (t->ops->recv(t, data, bytes, m->config.process[from], tag(m, mail, from, m->comm.rank), r, &err) !=
        STATUS_OK)
        return end_with(m, &err, from);
    return STATUS_OK;
}

// Waits until the sending of all messages to that rank but the last `left` is over.
static enum status settle(struct member *m, int to, uint64_t left) {
    for (uint64_t i = 0; i < SLOTS; i++) { // the oldest first
        struct outgoing *o = &m->out[to][(m->num_out[to] + i) % SLOTS];
        if (i + left >= SLOTS)
            break;
        if (await(m, &o->request, to) != STATUS_OK || await(m, &o->rest, to) != STATUS_OK)
            return STATUS_DEVICE;
    }
    return STATUS_OK;
}

// Starts a message with its frame; the first bytes are copied. mail: of a pair of ranks.
static enum status send_frame(struct member *m, enum operation operation, const void *data, size_t bytes,
                              int to) {
    struct outgoing *o = &m->out[to][m->num_out[to] % SLOTS];
    if (settle(m, to, SLOTS - 1) != STATUS_OK)
        return STATUS_DEVICE;
    m->num_out[to]++;
    o->frame->header = (struct header){.operation = (uint32_t)operation,
                                       .rank = (uint32_t)m->comm.rank,
                                       .bytes = bytes,
                                       .sent_ns = m->delay_ns > 0 ? now_ns() : 0};
    if (bytes > 0)
        memcpy(o->frame->data, data, first_bytes(bytes));
    return send_piece(m, operation == MAIL, o->frame, sizeof o->frame->header + first_bytes(bytes), to,
                      &o->request);
}

static enum status expect_frame(struct member *m, enum operation operation, int from) {
    return recv_piece(m, operation == MAIL, m->in[from].frame, sizeof *m->in[from].frame, from,
                      &m->in[from].request);
}

static enum status await_frame(struct member *m, int from) {
    const struct header *h = &m->in[from].frame->header;
    if (await(m, &m->in[from].request, from) != STATUS_OK)
        return STATUS_DEVICE;
    for (int64_t left; m->delay_ns > 0 && (left = h->sent_ns + m->delay_ns - now_ns()) > 0;)
        nap(left);
    return STATUS_OK;
}

// Waits for the frame and checks that both ranks are in the same operation.
static enum status take_frame(struct member *m, enum operation operation, size_t bytes, int from) {
    const struct header *h = &m->in[from].frame->header;
    char why[200];
    if (await_frame(m, from) != STATUS_OK)
        return STATUS_DEVICE;
    if (h->operation == (uint32_t)operation && h->bytes == bytes)
        return STATUS_OK;
    if (operation == MAIL && h->operation == MAIL)
        snprintf(why, sizeof why, "rank %d expects %zu bytes of rank %d, which sends %llu", m->comm.rank,
                 bytes, from, (unsigned long long)h->bytes);
    else
        snprintf(why, sizeof why, "rank %d is in %s of %zu bytes, rank %d in %s of %llu", m->comm.rank,
                 operation == MAIL ? "recv" : names[operation], bytes, from,
                 h->operation < NUM_OPERATIONS ? names[h->operation] : "an unknown operation",
                 (unsigned long long)h->bytes);
    return end(m, why);
}

// sum (n) = lower + upper, of which one is sum itself.
static void add(float *restrict sum, const float *restrict other, size_t n, bool other_is_lower) {
    if (other_is_lower)
        for (size_t i = 0; i < n; i++)
            sum[i] = other[i] + sum[i];
    else
        for (size_t i = 0; i < n; i++)
            sum[i] = sum[i] + other[i];
}

// What follows the frames of two messages at once: one out to `to`, one in from `from` (-1: none). With sum
// the numbers that come in are added to it, in place of what goes out.
struct flow {
    const char *out;
    char *in;
    float *sum;
    size_t bytes;
    int to, from;
};

static enum status start_piece(struct member *m, const struct flow *f, size_t i) {
    size_t at = FIRST + i * PIECE, n = f->bytes - at < PIECE ? f->bytes - at : PIECE;
    char *in = f->sum ? (char *)m->scratch + i % WINDOW * PIECE : f->in + at;
    if (f->from >= 0 && recv_piece(m, false, in, n, f->from, &m->recvs[i % WINDOW]) != STATUS_OK)
        return STATUS_DEVICE;
    return f->to >= 0 ? send_piece(m, false, f->out + at, n, f->to, &m->sends[i % WINDOW]) : STATUS_OK;
}

static enum status move_rest(struct member *m, const struct flow *f) {
    size_t pieces = f->bytes > FIRST ? (f->bytes - FIRST + PIECE - 1) / PIECE : 0;
    for (size_t i = 0; i < pieces && i < WINDOW; i++)
        if (start_piece(m, f, i) != STATUS_OK)
            return STATUS_DEVICE;
    for (size_t i = 0; i < pieces; i++) {
        size_t at = FIRST + i * PIECE, n = f->bytes - at < PIECE ? f->bytes - at : PIECE;
        if (await(m, &m->sends[i % WINDOW], f->to) != STATUS_OK ||
            await(m, &m->recvs[i % WINDOW], f->from) != STATUS_OK)
            return STATUS_DEVICE;
        if (f->sum)
            add(f->sum + at / sizeof(float), m->scratch + i % WINDOW * (PIECE / sizeof(float)),
                n / sizeof(float), f->from < m->comm.rank);
        if (i + WINDOW < pieces && start_piece(m, f, i + WINDOW) != STATUS_OK)
            return STATUS_DEVICE;
    }
    return STATUS_OK;
}

// ---- operations

// Recursive doubling: in round k each rank and the one whose number differs in bit k exchange the sums of 2^k
// neighbours and add them, the lower ranks' first.
static enum status processes_all_reduce(struct comm *c, float *x, size_t n) {
    struct member *m = member_of(c);
    size_t bytes = n * sizeof *x;
    CHECK((c->world & (c->world - 1)) == 0);
    for (int bit = 1; bit < c->world; bit *= 2) {
        int other = c->rank ^ bit;
        if (expect_frame(m, ALL_REDUCE, other) != STATUS_OK ||
            send_frame(m, ALL_REDUCE, x, bytes, other) != STATUS_OK ||
            take_frame(m, ALL_REDUCE, bytes, other) != STATUS_OK)
            return STATUS_DEVICE;
        // Of the first part a copy is under way, so that it may change now.
        add(x, (const float *)(const void *)m->in[other].frame->data, first_bytes(bytes) / sizeof *x,
            other < c->rank);
        struct flow f = {.out = (const char *)x, .sum = x, .bytes = bytes, .to = other, .from = other};
        if (move_rest(m, &f) != STATUS_OK)
            return STATUS_DEVICE;
    }
    return STATUS_OK;
}

// Everybody's message to everybody else.
static enum status exchange(struct member *m, enum operation operation, char *all, const void *mine,
                            size_t bytes) {
    int rank = m->comm.rank, world = m->comm.world;
    for (int s = 1; s < world; s++)
        if (expect_frame(m, operation, (rank + s) % world) != STATUS_OK)
            return STATUS_DEVICE;
    for (int s = 1; s < world; s++)
        if (send_frame(m, operation, mine, bytes, (rank + s) % world) != STATUS_OK)
            return STATUS_DEVICE;
    for (int s = 1; s < world; s++) {
        int to = (rank + s) % world, from = (rank + world - s) % world;
        struct flow f = {
            .out = mine, .in = all + (size_t)from * bytes, .bytes = bytes, .to = to, .from = from};
        if (take_frame(m, operation, bytes, from) != STATUS_OK)
            return STATUS_DEVICE;
        if (bytes > 0)
            memcpy(f.in, m->in[from].frame->data, first_bytes(bytes));
        if (move_rest(m, &f) != STATUS_OK)
            return STATUS_DEVICE;
    }
    return STATUS_OK;
}

static enum status processes_all_gather(struct comm *c, void *all, const void *mine, size_t bytes) {
    memcpy((char *)all + (size_t)c->rank * bytes, mine, bytes);
    return exchange(member_of(c), ALL_GATHER, all, mine, bytes);
}

static enum status processes_barrier(struct comm *c) {
    char nothing[1] = {0};
    return exchange(member_of(c), BARRIER, nothing, nothing, 0);
}

static enum status processes_broadcast(struct comm *c, void *data, size_t bytes, int root) {
    struct member *m = member_of(c);
    CHECK(root >= 0 && root < c->world);
    if (c->rank != root) {
        struct flow f = {.in = data, .bytes = bytes, .to = -1, .from = root};
        if (expect_frame(m, BROADCAST, root) != STATUS_OK ||
            take_frame(m, BROADCAST, bytes, root) != STATUS_OK)
            return STATUS_DEVICE;
        memcpy(data, m->in[root].frame->data, first_bytes(bytes));
        return move_rest(m, &f);
    }
    for (int s = 1; s < c->world; s++) {
        struct flow f = {.out = data, .bytes = bytes, .to = (root + s) % c->world, .from = -1};
        if (send_frame(m, BROADCAST, data, bytes, f.to) != STATUS_OK || move_rest(m, &f) != STATUS_OK)
            return STATUS_DEVICE;
    }
    return STATUS_OK;
}

static enum status processes_post(struct comm *c, const void *data, size_t bytes, int to) {
    struct member *m = member_of(c);
    CHECK(to >= 0 && to < c->world && to != c->rank && bytes <= INT32_MAX);
    if (send_frame(m, MAIL, data, bytes, to) != STATUS_OK)
        return STATUS_DEVICE;
    struct outgoing *o = &m->out[to][(m->num_out[to] - 1) % SLOTS];
    return bytes > FIRST ? send_piece(m, true, (const char *)data + FIRST, bytes - FIRST, to, &o->rest)
                         : STATUS_OK;
}

static enum status processes_settle(struct comm *c, int to, int left) {
    return settle(member_of(c), to, (uint64_t)left);
}

static enum status processes_send(struct comm *c, const void *data, size_t bytes, int to) {
    enum status st = processes_post(c, data, bytes, to);
    return st == STATUS_OK ? processes_settle(c, to, 0) : st;
}

// After the frame of a message between two ranks.
static enum status take_mail(struct member *m, void *data, size_t bytes, int from) {
    struct transport_request rest = {0};
    memcpy(data, m->in[from].frame->data, first_bytes(bytes));
    if (bytes <= FIRST)
        return STATUS_OK;
    if (recv_piece(m, true, (char *)data + FIRST, bytes - FIRST, from, &rest) != STATUS_OK)
        return STATUS_DEVICE;
    enum status st = await(m, &rest, from);
    if (rest.active)
        m->config.transport->ops->forget(m->config.transport, &rest);
    return st;
}

static enum status processes_recv(struct comm *c, void *data, size_t bytes, int from) {
    struct member *m = member_of(c);
    CHECK(from >= 0 && from < c->world && from != c->rank);
    if (expect_frame(m, MAIL, from) != STATUS_OK || take_frame(m, MAIL, bytes, from) != STATUS_OK)
        return STATUS_DEVICE;
    return take_mail(m, data, bytes, from);
}

enum status comm_processes_post(struct comm *c, const void *data, size_t bytes, int to) {
    return processes_post(c, data, bytes, to);
}

enum status comm_processes_settle(struct comm *c, int to, int left) { return processes_settle(c, to, left); }

enum status comm_processes_recv(struct comm *c, void *data, size_t max, size_t *bytes, int from) {
    struct member *m = member_of(c);
    char why[128];
    if (expect_frame(m, MAIL, from) != STATUS_OK || await_frame(m, from) != STATUS_OK)
        return STATUS_DEVICE;
    const struct header *h = &m->in[from].frame->header;
    if (h->operation != MAIL || h->bytes > max) {
        snprintf(why, sizeof why, "rank %d sends rank %d %llu bytes, for which there is no room", from,
                 c->rank, (unsigned long long)h->bytes);
        return end(m, why);
    }
    *bytes = (size_t)h->bytes;
    return take_mail(m, data, *bytes, from);
}

static void processes_abort(struct comm *c, const char *why) { end(member_of(c), why); }
static const char *processes_error(struct comm *c) { return ending_why(member_of(c)->config.ending); }

static const struct comm_ops ops = {
    .all_reduce = processes_all_reduce,
    .all_gather = processes_all_gather,
    .broadcast = processes_broadcast,
    .send = processes_send,
    .recv = processes_recv,
    .post = processes_post,
    .settle = processes_settle,
    .barrier = processes_barrier,
    .abort = processes_abort,
    .error = processes_error,
};

// ---- life

struct comm *comm_processes_open(const struct comm_processes_config *config, struct err *err) {
    struct member *m = calloc(1, sizeof *m);
    const char *delay = getenv("QUIRE_COMM_DELAY_US");
    CHECK(config->world >= 1 && config->world <= COMM_MAX_WORLD && config->channel > 0 &&
          config->channel < 256);
    if (!m)
        goto nomem;
    *m = (struct member){.comm = {&ops, config->rank, config->world},
                         .config = *config,
                         .delay_ns = delay ? (int64_t)(strtod(delay, NULL) * 1e3) : 0,
                         .deadline_ns = (int64_t)config->deadline_ms * 1000000};
    if (!(m->scratch = malloc((size_t)WINDOW * PIECE)))
        goto nomem;
    for (int r = 0; r < config->world; r++) {
        if (r == config->rank)
            continue;
        if (!(m->in[r].frame = malloc(sizeof(struct frame))))
            goto nomem;
        for (int s = 0; s < SLOTS; s++)
            if (!(m->out[r][s].frame = malloc(sizeof(struct frame))))
                goto nomem;
    }
    return &m->comm;
nomem:
    comm_processes_close(m ? &m->comm : NULL);
    err_set(err, STATUS_NOMEM, "out of memory for messages between %d ranks", config->world);
    return NULL;
}

// True: the request is over, so that its memory may go.
static bool put_away(struct member *m, struct transport_request *r) {
    struct transport *t = m->config.transport;
    bool done = !r->active;
    struct err err = {0};
    if (!done && t->ops->test(t, r, &done, &err) == STATUS_OK && !done)
        t->ops->forget(t, r); // after a failure, or nobody wants it
    return done;
}

// Those with a message that was given up: it may still be written to while the process lives.
static struct member *_Atomic abandoned;

void comm_processes_close(struct comm *c) {
    if (!c)
        return;
    struct member *m = member_of(c);
    int left = 0;
    for (int i = 0; i < WINDOW; i++) {
        left += !put_away(m, &m->sends[i]);
        left += !put_away(m, &m->recvs[i]);
    }
    for (int r = 0; r < COMM_MAX_WORLD; r++) {
        left += !put_away(m, &m->in[r].request);
        for (int s = 0; s < SLOTS; s++) {
            left += !put_away(m, &m->out[r][s].request);
            left += !put_away(m, &m->out[r][s].rest);
        }
    }
    if (left > 0) {
        m->next = atomic_exchange(&abandoned, m);
        return;
    }
    for (int r = 0; r < COMM_MAX_WORLD; r++) {
        free(m->in[r].frame);
        for (int s = 0; s < SLOTS; s++)
            free(m->out[r][s].frame);
    }
    free(m->scratch);
    free(m);
}
