// See comm_processes.h. A message begins with a frame: a header (rank, operation, bytes) and the first bytes.
// The rest follows without a copy, of a collective in pieces, of a message as one. Every wait polls the
// transport, at first without pauses, later with them. Messages between two ranks and collectives have tags
// of their own.
#include "comm_processes.h"

#include "clock.h"
#include "log.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    FIRST = 32 << 10,        // bytes of a message that go with its header
    PIECE = 1 << 20,         // bytes of each further message
    WINDOW = 4,              // pieces in flight
    SLOTS = COMM_MAX_ISENDS, // messages in flight to one rank
    TAG_BITS = 6,            // of a tag: each of both ranks
};

// Pauses. A decode step waits for some ten microseconds, an idle rank for hours.
#define SPIN_NS 20000
#define YIELD_NS 500000
#define NAP_NS 50000
#define LONG_NAP_NS 1000000
#define LONG_AFTER_NS 20000000
#define SLICE_NS 50000000 // of a deadline: a process that was stopped and goes on has lost one

enum process_operation { NOTHING, ALL_REDUCE, ALL_GATHER, BROADCAST, BARRIER, MESSAGE };
static const char *const operation_names[] = {"nothing",   "all_reduce", "all_gather",
                                              "broadcast", "barrier",    "send"};
enum { NUM_OPERATIONS = sizeof operation_names / sizeof operation_names[0] };

struct frame_header {
    uint32_t operation, rank;
    uint64_t bytes;   // of the whole message
    uint64_t zero[2]; // to a multiple of 32
};

struct comm_frame {
    struct frame_header header;
    unsigned char data[FIRST];
};

struct outgoing {
    struct comm_frame *frame;
    struct transport_request request, rest;
};

struct incoming {
    struct comm_frame *frame;
    struct transport_request request;
};

struct process_rank {
    struct comm comm;
    struct process_rank *next; // of those that are abandoned
    struct comm_processes_config config;
    int64_t deadline_ns;
    struct outgoing out[COMM_MAX_WORLD][SLOTS];
    uint64_t num_out[COMM_MAX_WORLD]; // messages begun; message i is in slot i modulo SLOTS
    struct incoming in[COMM_MAX_WORLD];
    float *scratch; // (WINDOW, PIECE bytes) pieces of other ranks' values
    struct transport_request sends[WINDOW], recvs[WINDOW];
};

static struct process_rank *process_rank_of(struct comm *c) { return (struct process_rank *)(void *)c; }

static void sleep_ns(int64_t ns) { nanosleep(&(struct timespec){.tv_nsec = ns % 1000000000}, NULL); }

static enum status rank_abort(struct process_rank *m, const char *why) {
    abort_state_set(m->config.abort, why);
    return STATUS_DEVICE;
}

static enum status abort_unreachable(struct process_rank *m, const struct err *err, int other) {
    char why[300];
    snprintf(why, sizeof why, "rank %d cannot reach rank %d: %.220s", m->comm.rank, other, err->msg);
    return rank_abort(m, why);
}

// Waits until a message is done; other is for the sentence.
static enum status wait_request(struct process_rank *m, struct transport_request *r, int other) {
    struct transport *t = m->config.transport;
    struct err err = {0};
    int64_t start = clock_now_ns(), last = start, waited = 0;
    while (r->active) {
        bool done;
        if (abort_state_is_set(m->config.abort))
            return STATUS_DEVICE;
        if (t->ops->test(t, r, &done, &err) != STATUS_OK)
            return abort_unreachable(m, &err, other);
        if (done)
            break;
        int64_t now = clock_now_ns();
        waited += now - last < SLICE_NS ? now - last : SLICE_NS;
        last = now;
        if (m->deadline_ns > 0 && waited > m->deadline_ns) {
            char why[128];
            snprintf(why, sizeof why, "rank %d has waited %g s for rank %d", m->comm.rank,
                     (double)m->deadline_ns / 1e9, other);
            return rank_abort(m, why);
        }
        if (waited > YIELD_NS)
            sleep_ns(waited > LONG_AFTER_NS ? LONG_NAP_NS : NAP_NS);
        else if (waited > SPIN_NS)
            sched_yield();
    }
    return abort_state_is_set(m->config.abort) ? STATUS_DEVICE : STATUS_OK;
}

static int message_tag(const struct process_rank *m, bool is_message, int from, int to) {
    return (m->config.channel << 1 | is_message) << (2 * TAG_BITS) | from << TAG_BITS | to;
}

static size_t first_bytes(size_t bytes) { return bytes < FIRST ? bytes : FIRST; }

static enum status send_piece(struct process_rank *m, bool is_message, const void *data, size_t bytes, int to,
                              struct transport_request *r) {
    struct transport *t = m->config.transport;
    struct err err = {0};
    if (t->ops->send(t, data, bytes, m->config.process[to], message_tag(m, is_message, m->comm.rank, to), r,
                     &err) != STATUS_OK)
        return abort_unreachable(m, &err, to);
    return STATUS_OK;
}

static enum status recv_piece(struct process_rank *m, bool is_message, void *data, size_t bytes, int from,
                              struct transport_request *r) {
    struct transport *t = m->config.transport;
    struct err err = {0};
    if (t->ops->recv(t, data, bytes, m->config.process[from], message_tag(m, is_message, from, m->comm.rank),
                     r, &err) != STATUS_OK)
        return abort_unreachable(m, &err, from);
    return STATUS_OK;
}

// Waits until all messages to that rank but the last `left` are sent.
static enum status wait_frames(struct process_rank *m, int to, uint64_t left) {
    for (uint64_t i = 0; i < SLOTS; i++) { // the oldest first
        struct outgoing *o = &m->out[to][(m->num_out[to] + i) % SLOTS];
        if (i + left >= SLOTS)
            break;
        if (wait_request(m, &o->request, to) != STATUS_OK || wait_request(m, &o->rest, to) != STATUS_OK)
            return STATUS_DEVICE;
    }
    return STATUS_OK;
}

// Starts a message with its frame; the first bytes are copied.
static enum status send_frame(struct process_rank *m, enum process_operation operation, const void *data,
                              size_t bytes, int to) {
    struct outgoing *o = &m->out[to][m->num_out[to] % SLOTS];
    if (wait_frames(m, to, SLOTS - 1) != STATUS_OK)
        return STATUS_DEVICE;
    m->num_out[to]++;
    o->frame->header = (struct frame_header){
        .operation = (uint32_t)operation, .rank = (uint32_t)m->comm.rank, .bytes = bytes};
    if (bytes > 0)
        memcpy(o->frame->data, data, first_bytes(bytes));
    return send_piece(m, operation == MESSAGE, o->frame, sizeof o->frame->header + first_bytes(bytes), to,
                      &o->request);
}

static enum status expect_frame(struct process_rank *m, enum process_operation operation, int from) {
    return recv_piece(m, operation == MESSAGE, m->in[from].frame, sizeof *m->in[from].frame, from,
                      &m->in[from].request);
}

// Waits for the frame and checks that both ranks are in the same operation.
static enum status take_frame(struct process_rank *m, enum process_operation operation, size_t bytes,
                              int from) {
    const struct frame_header *h = &m->in[from].frame->header;
    char why[200];
    if (wait_request(m, &m->in[from].request, from) != STATUS_OK)
        return STATUS_DEVICE;
    if (h->operation == (uint32_t)operation && h->bytes == bytes)
        return STATUS_OK;
    if (operation == MESSAGE && h->operation == MESSAGE)
        snprintf(why, sizeof why, "rank %d expects %zu bytes of rank %d, which sends %llu", m->comm.rank,
                 bytes, from, (unsigned long long)h->bytes);
    else
        snprintf(why, sizeof why, "rank %d is in %s of %zu bytes, rank %d in %s of %llu", m->comm.rank,
                 operation == MESSAGE ? "recv" : operation_names[operation], bytes, from,
                 h->operation < NUM_OPERATIONS ? operation_names[h->operation] : "an unknown operation",
                 (unsigned long long)h->bytes);
    return rank_abort(m, why);
}

// sum (n) = lower + upper, of which one is sum itself.
static void add_floats(float *restrict sum, const float *restrict other, size_t n, bool other_is_lower) {
    if (other_is_lower)
        for (size_t i = 0; i < n; i++)
            sum[i] = other[i] + sum[i];
    else
        for (size_t i = 0; i < n; i++)
            sum[i] = sum[i] + other[i];
}

// The rest of two messages at once: one out to `to`, one in from `from` (-1: none). With sum the incoming
// values are added to it, in place of the outgoing ones.
struct transfer {
    const char *out;
    char *in;
    float *sum;
    size_t bytes;
    int to, from;
};

static enum status start_piece(struct process_rank *m, const struct transfer *f, size_t i) {
    size_t at = FIRST + i * PIECE, n = f->bytes - at < PIECE ? f->bytes - at : PIECE;
    char *in = f->sum ? (char *)m->scratch + i % WINDOW * PIECE : f->in + at;
    if (f->from >= 0 && recv_piece(m, false, in, n, f->from, &m->recvs[i % WINDOW]) != STATUS_OK)
        return STATUS_DEVICE;
    return f->to >= 0 ? send_piece(m, false, f->out + at, n, f->to, &m->sends[i % WINDOW]) : STATUS_OK;
}

static enum status move_rest(struct process_rank *m, const struct transfer *f) {
    size_t pieces = f->bytes > FIRST ? (f->bytes - FIRST + PIECE - 1) / PIECE : 0;
    for (size_t i = 0; i < pieces && i < WINDOW; i++)
        if (start_piece(m, f, i) != STATUS_OK)
            return STATUS_DEVICE;
    for (size_t i = 0; i < pieces; i++) {
        size_t at = FIRST + i * PIECE, n = f->bytes - at < PIECE ? f->bytes - at : PIECE;
        if (wait_request(m, &m->sends[i % WINDOW], f->to) != STATUS_OK ||
            wait_request(m, &m->recvs[i % WINDOW], f->from) != STATUS_OK)
            return STATUS_DEVICE;
        if (f->sum)
            add_floats(f->sum + at / sizeof(float), m->scratch + i % WINDOW * (PIECE / sizeof(float)),
                       n / sizeof(float), f->from < m->comm.rank);
        if (i + WINDOW < pieces && start_piece(m, f, i + WINDOW) != STATUS_OK)
            return STATUS_DEVICE;
    }
    return STATUS_OK;
}

// ---- operations

// Recursive doubling: in round k each rank and the one whose number differs in bit k exchange the sums of 2^k
// neighbours and add them, the lower ranks' first.
static enum status process_all_reduce(struct comm *c, float *x, size_t n) {
    struct process_rank *m = process_rank_of(c);
    size_t bytes = n * sizeof *x;
    CHECK((c->world & (c->world - 1)) == 0);
    for (int bit = 1; bit < c->world; bit *= 2) {
        int other = c->rank ^ bit;
        if (expect_frame(m, ALL_REDUCE, other) != STATUS_OK ||
            send_frame(m, ALL_REDUCE, x, bytes, other) != STATUS_OK ||
            take_frame(m, ALL_REDUCE, bytes, other) != STATUS_OK)
            return STATUS_DEVICE;
        // A copy of the first part is in flight, so that it may change now.
        add_floats(x, (const float *)(const void *)m->in[other].frame->data, first_bytes(bytes) / sizeof *x,
                   other < c->rank);
        struct transfer f = {.out = (const char *)x, .sum = x, .bytes = bytes, .to = other, .from = other};
        if (move_rest(m, &f) != STATUS_OK)
            return STATUS_DEVICE;
    }
    return STATUS_OK;
}

// Every rank sends the same message to every other.
static enum status exchange_all(struct process_rank *m, enum process_operation operation, char *all,
                                const void *mine, size_t bytes) {
    int rank = m->comm.rank, world = m->comm.world;
    for (int s = 1; s < world; s++)
        if (expect_frame(m, operation, (rank + s) % world) != STATUS_OK)
            return STATUS_DEVICE;
    for (int s = 1; s < world; s++)
        if (send_frame(m, operation, mine, bytes, (rank + s) % world) != STATUS_OK)
            return STATUS_DEVICE;
    for (int s = 1; s < world; s++) {
        int to = (rank + s) % world, from = (rank + world - s) % world;
        struct transfer f = {
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

static enum status process_all_gather(struct comm *c, void *all, const void *mine, size_t bytes) {
    memcpy((char *)all + (size_t)c->rank * bytes, mine, bytes);
    return exchange_all(process_rank_of(c), ALL_GATHER, all, mine, bytes);
}

static enum status process_barrier(struct comm *c) {
    char nothing[1] = {0};
    return exchange_all(process_rank_of(c), BARRIER, nothing, nothing, 0);
}

static enum status process_broadcast(struct comm *c, void *data, size_t bytes, int root) {
    struct process_rank *m = process_rank_of(c);
    CHECK(root >= 0 && root < c->world);
    if (c->rank != root) {
        struct transfer f = {.in = data, .bytes = bytes, .to = -1, .from = root};
        if (expect_frame(m, BROADCAST, root) != STATUS_OK ||
            take_frame(m, BROADCAST, bytes, root) != STATUS_OK)
            return STATUS_DEVICE;
        memcpy(data, m->in[root].frame->data, first_bytes(bytes));
        return move_rest(m, &f);
    }
    for (int s = 1; s < c->world; s++) {
        struct transfer f = {.out = data, .bytes = bytes, .to = (root + s) % c->world, .from = -1};
        if (send_frame(m, BROADCAST, data, bytes, f.to) != STATUS_OK || move_rest(m, &f) != STATUS_OK)
            return STATUS_DEVICE;
    }
    return STATUS_OK;
}

enum status comm_processes_isend(struct comm *c, const void *data, size_t bytes, int to) {
    struct process_rank *m = process_rank_of(c);
    CHECK(to >= 0 && to < c->world && to != c->rank && bytes <= INT32_MAX);
    if (send_frame(m, MESSAGE, data, bytes, to) != STATUS_OK)
        return STATUS_DEVICE;
    struct outgoing *o = &m->out[to][(m->num_out[to] - 1) % SLOTS];
    return bytes > FIRST ? send_piece(m, true, (const char *)data + FIRST, bytes - FIRST, to, &o->rest)
                         : STATUS_OK;
}

enum status comm_processes_wait_sent(struct comm *c, int to, int left) {
    return wait_frames(process_rank_of(c), to, (uint64_t)left);
}

static enum status process_send(struct comm *c, const void *data, size_t bytes, int to) {
    enum status st = comm_processes_isend(c, data, bytes, to);
    return st == STATUS_OK ? comm_processes_wait_sent(c, to, 0) : st;
}

// After the frame of a message between two ranks.
static enum status recv_rest(struct process_rank *m, void *data, size_t bytes, int from) {
    struct transport_request rest = {0};
    memcpy(data, m->in[from].frame->data, first_bytes(bytes));
    if (bytes <= FIRST)
        return STATUS_OK;
    if (recv_piece(m, true, (char *)data + FIRST, bytes - FIRST, from, &rest) != STATUS_OK)
        return STATUS_DEVICE;
    enum status st = wait_request(m, &rest, from);
    if (rest.active)
        m->config.transport->ops->forget(m->config.transport, &rest);
    return st;
}

static enum status process_recv(struct comm *c, void *data, size_t bytes, int from) {
    struct process_rank *m = process_rank_of(c);
    CHECK(from >= 0 && from < c->world && from != c->rank);
    if (expect_frame(m, MESSAGE, from) != STATUS_OK || take_frame(m, MESSAGE, bytes, from) != STATUS_OK)
        return STATUS_DEVICE;
    return recv_rest(m, data, bytes, from);
}

enum status comm_processes_recv(struct comm *c, void *data, size_t max, size_t *bytes, int from) {
    struct process_rank *m = process_rank_of(c);
    char why[128];
    if (expect_frame(m, MESSAGE, from) != STATUS_OK ||
        wait_request(m, &m->in[from].request, from) != STATUS_OK)
        return STATUS_DEVICE;
    const struct frame_header *h = &m->in[from].frame->header;
    if (h->operation != MESSAGE || h->bytes > max) {
        snprintf(why, sizeof why, "rank %d sends rank %d %llu bytes, for which there is no room", from,
                 c->rank, (unsigned long long)h->bytes);
        return rank_abort(m, why);
    }
    *bytes = (size_t)h->bytes;
    return recv_rest(m, data, *bytes, from);
}

static void process_abort(struct comm *c, const char *why) { rank_abort(process_rank_of(c), why); }
static const char *process_error(struct comm *c) { return abort_state_why(process_rank_of(c)->config.abort); }

static const struct comm_ops ops = {
    .all_reduce = process_all_reduce,
    .all_gather = process_all_gather,
    .broadcast = process_broadcast,
    .send = process_send,
    .recv = process_recv,
    .isend = comm_processes_isend,
    .wait_sent = comm_processes_wait_sent,
    .barrier = process_barrier,
    .abort = process_abort,
    .error = process_error,
};

// ---- lifecycle

struct comm *comm_processes_open(const struct comm_processes_config *config, struct err *err) {
    struct process_rank *m = calloc(1, sizeof *m);
    CHECK(config->world >= 1 && config->world <= COMM_MAX_WORLD && config->channel > 0 &&
          config->channel < 256);
    if (!m)
        goto nomem;
    *m = (struct process_rank){.comm = {&ops, config->rank, config->world},
                               .config = *config,
                               .deadline_ns = (int64_t)config->deadline_ms * 1000000};
    if (!(m->scratch = malloc((size_t)WINDOW * PIECE)))
        goto nomem;
    for (int r = 0; r < config->world; r++) {
        if (r == config->rank)
            continue;
        if (!(m->in[r].frame = malloc(sizeof(struct comm_frame))))
            goto nomem;
        for (int s = 0; s < SLOTS; s++)
            if (!(m->out[r][s].frame = malloc(sizeof(struct comm_frame))))
                goto nomem;
    }
    return &m->comm;
nomem:
    comm_processes_close(m ? &m->comm : NULL);
    err_set(err, STATUS_NOMEM, "out of memory for messages between %d ranks", config->world);
    return NULL;
}

// True: the request is done, so that its memory may be freed.
static bool request_release(struct process_rank *m, struct transport_request *r) {
    struct transport *t = m->config.transport;
    bool done = !r->active;
    struct err err = {0};
    if (!done && t->ops->test(t, r, &done, &err) == STATUS_OK && !done)
        t->ops->forget(t, r); // after a failure, or no rank receives it
    return done;
}

// Comms with a message that was given up: the transport may write to it while the process lives.
static struct process_rank *_Atomic abandoned;

void comm_processes_close(struct comm *c) {
    if (!c)
        return;
    struct process_rank *m = process_rank_of(c);
    int left = 0;
    for (int i = 0; i < WINDOW; i++) {
        left += !request_release(m, &m->sends[i]);
        left += !request_release(m, &m->recvs[i]);
    }
    for (int r = 0; r < COMM_MAX_WORLD; r++) {
        left += !request_release(m, &m->in[r].request);
        for (int s = 0; s < SLOTS; s++) {
            left += !request_release(m, &m->out[r][s].request);
            left += !request_release(m, &m->out[r][s].rest);
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
