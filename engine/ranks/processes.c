// See processes.h and process_group.h.
//
// Threads: the heartbeat thread sends and receives heartbeats, the failure detector decides which process is
// lost; status checks and steps belong to the thread that opens the model, later to the engine thread; any
// thread may abort.
#include "processes.h"

#include "abort_state.h"
#include "build_id.h"
#include "comm_processes.h"
#include "log.h"
#include "module_find.h"
#include "process_group.h"
#include "transport.h"

#include <dlfcn.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MODULE "quire-mpi.so"

enum {
    TURN_MS = 50,         // of the heartbeat thread
    HEARTBEAT_TURNS = 10, // a heartbeat every 0.5 s
    SILENT_TURNS = 120,   // without one for 6 s a process is lost
    GOODBYE_TURNS = 5,    // that this process still sends an abort to the others before it leaves
    LAST_TURNS = 200,     // 10 s after an abort a process that is still here exits
    JOIN_MS = 60000,      // deadline of the handshake
    LEAVE_MS = 8000,      // of the goodbye
    MAX_COMMS = 32,
    CONTROL = 1, // channels: 0 is the heartbeat's, COMMS and more are processes_comm()'s
    COMMS = 2,
    EXIT_LOST = 70, // as the server's
    HOST_BYTES = 64,
    BOOT_BYTES = 40,
    VERSION_BYTES = 64,
    BUILD_ID_BYTES = 32,
    PROTOCOL_BYTES = 32,
};
_Static_assert(SILENT_TURNS *TURN_MS + HEARTBEAT_TURNS * TURN_MS < 10000,
               "a lost process is noticed within 10 s");

// The first message of every process, of this size in every version, so that versions can be compared.
struct handshake {
    char protocol[PROTOCOL_BYTES], version[VERSION_BYTES], host[HOST_BYTES];
    cpu_set_t cpus;
    char boot[BOOT_BYTES];  // of the kernel that runs it; "": not known
    uint64_t pid_namespace; // in which pid is its number; 0: not known
    int64_t pid;
    char build_id[BUILD_ID_BYTES];
    char zero[512 - PROTOCOL_BYTES - VERSION_BYTES - HOST_BYTES - BOOT_BYTES - BUILD_ID_BYTES -
              sizeof(cpu_set_t) - 2 * sizeof(uint64_t)];
};
_Static_assert(sizeof(struct handshake) == 512, "the same in every version");

enum heartbeat_kind { HEARTBEAT_ALIVE = 1, HEARTBEAT_ABORTED };

struct heartbeat {
    int32_t kind;
    char why[300];
};

struct peer { // another process, to the heartbeat
    struct heartbeat out, in;
    struct transport_request sending, receiving;
    _Atomic unsigned received; // heartbeats
    // The failure detector's:
    unsigned seen; // heartbeats
    int silent;    // turns
    int pidfd;     // of a process of this machine; -1: none
    int exited;    // turns since that process has exited
};

struct processes {
    struct transport *transport;
    struct abort_state abort;
    struct comm *control;
    struct comm *comms[MAX_COMMS];
    int num_comms;
    struct handshake handshake[PROCESSES_MAX];
    pthread_t heartbeat, detector;
    bool heartbeat_started, detector_started;
    _Atomic bool stop, detector_stop; // of the one and the other
    struct peer peers[PROCESSES_MAX];
};

int processes_index(const struct processes *p) { return p->transport->process; }
int processes_count(const struct processes *p) { return p->transport->num_processes; }
void processes_abort(struct processes *p, const char *why) { abort_state_set(&p->abort, why); }
const char *processes_error(struct processes *p) { return abort_state_why(&p->abort); }

// ---- the heartbeat

static int heartbeat_tag(int from, int to) { return from << 6 | to; }

static void peer_lost(struct processes *p, int other, const char *how) {
    char why[300];
    snprintf(why, sizeof why, "process %d (%.60s) %.200s", other, p->handshake[other].host, how);
    abort_state_set(&p->abort, why);
}

static void heartbeat_receive(struct processes *p, int other) {
    struct transport *t = p->transport;
    struct peer *peer = &p->peers[other];
    struct err err = {0};
    bool done = true;
    while (done) {
        if (!peer->receiving.active &&
            t->ops->recv(t, &peer->in, sizeof peer->in, other, heartbeat_tag(other, t->process),
                         &peer->receiving, &err) != STATUS_OK)
            break;
        if (t->ops->test(t, &peer->receiving, &done, &err) != STATUS_OK)
            break;
        if (!done)
            return;
        atomic_fetch_add(&peer->received, 1);
        peer->in.why[sizeof peer->in.why - 1] = 0;
        if (peer->in.kind == HEARTBEAT_ABORTED)
            abort_state_set(&p->abort, peer->in.why);
    }
    peer_lost(p, other, err.msg);
}

// Skips a heartbeat while the last one is still in flight: a process that does not read is found by its
// silence.
static void heartbeat_send(struct processes *p, int other, enum heartbeat_kind kind) {
    struct transport *t = p->transport;
    struct peer *peer = &p->peers[other];
    struct err err = {0};
    bool done = true;
    if (peer->sending.active && t->ops->test(t, &peer->sending, &done, &err) == STATUS_OK && !done)
        return;
    peer->out = (struct heartbeat){.kind = kind};
    if (kind == HEARTBEAT_ABORTED)
        snprintf(peer->out.why, sizeof peer->out.why, "%s", abort_state_why(&p->abort));
    if (err.code != STATUS_OK ||
        t->ops->send(t, &peer->out, sizeof peer->out, other, heartbeat_tag(t->process, other), &peer->sending,
                     &err) != STATUS_OK)
        peer_lost(p, other, err.msg);
}

// A machine is one kernel under one name: two machines may have one name, and a container with a name of its
// own has its own devices and memory. Where the kernel is not known the name decides.
bool processes_share_machine(const struct processes *p, int first, int second) {
    const struct handshake *a = &p->handshake[first], *b = &p->handshake[second];
    bool known = a->boot[0] && b->boot[0];
    return strcmp(a->host, b->host) == 0 && (!known || memcmp(a->boot, b->boot, sizeof a->boot) == 0);
}

static bool same_machine(const struct processes *p, int other) {
    return processes_share_machine(p, processes_index(p), other);
}

// The kernel reports at once when a process of the same machine has exited, however it did: mpirun leaves the
// others a second or two. It counts as lost a turn later, so that its last message can arrive.
static bool peer_exited(struct peer *peer) {
    struct pollfd fd = {.fd = peer->pidfd, .events = POLLIN};
    return peer->pidfd >= 0 && poll(&fd, 1, 0) == 1 && peer->exited++ > 0;
}

// Where the kernel has no such descriptors (before Linux 5.3), or does not give them, silence tells.
static void open_pidfds(struct processes *p) {
    const struct handshake *mine = &p->handshake[processes_index(p)];
    for (int i = 0; i < processes_count(p); i++) {
        const struct handshake *h = &p->handshake[i];
        bool near = same_machine(p, i) && h->boot[0] && mine->boot[0] && h->pid_namespace &&
                    h->pid_namespace == mine->pid_namespace && h->pid > 0 && h->pid != mine->pid;
#ifdef SYS_pidfd_open
        if (near)
            p->peers[i].pidfd = (int)syscall(SYS_pidfd_open, (pid_t)h->pid, 0);
#else
        (void)near;
#endif
    }
}

static void heartbeat_sleep(struct processes *p) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += TURN_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&p->abort.lock);
    pthread_cond_timedwait(&p->abort.changed, &p->abort.lock, &until);
    pthread_mutex_unlock(&p->abort.lock);
}

static void *heartbeat_thread(void *arg) {
    struct processes *p = arg;
    struct transport *t = p->transport;
    int after = 0; // turns since the abort
    for (int turn = 0;; turn++) {
        bool aborted = abort_state_is_set(&p->abort);
        if (atomic_load(&p->stop) && (!aborted || after >= GOODBYE_TURNS))
            break;
        for (int other = 0; other < t->num_processes; other++) {
            if (other == t->process)
                continue;
            if (!aborted)
                heartbeat_receive(p, other);
            if (turn % HEARTBEAT_TURNS == 0 || (aborted && after < HEARTBEAT_TURNS))
                heartbeat_send(p, other, aborted ? HEARTBEAT_ABORTED : HEARTBEAT_ALIVE);
        }
        after += aborted;
        heartbeat_sleep(p);
    }
    return NULL;
}

// Finds lost processes. This thread never calls the transport: MPI may block those that do, Open MPI 4.1
// until mpirun has learned of a broken connection.
static void *failure_detector(void *arg) {
    struct processes *p = arg;
    int me = processes_index(p), after = 0; // turns since the abort
    char silence[64];
    snprintf(silence, sizeof silence, "has not been heard of for %g s", SILENT_TURNS * TURN_MS / 1e3);
    for (; !atomic_load(&p->detector_stop); heartbeat_sleep(p)) {
        bool aborted = abort_state_is_set(&p->abort);
        for (int other = 0; !aborted && other < processes_count(p); other++) {
            struct peer *peer = &p->peers[other];
            unsigned received = atomic_load(&peer->received);
            peer->silent = received == peer->seen ? peer->silent + 1 : 0;
            peer->seen = received;
            if (other != me && peer_exited(peer))
                peer_lost(p, other, "has ended");
            else if (other != me && peer->silent > SILENT_TURNS)
                peer_lost(p, other, silence);
        }
        after += aborted;
        if (after > LAST_TURNS) {
            log_msg(LOG_ERROR, "process=%d is still here 10 s after the group has ended: %s", me,
                    abort_state_why(&p->abort));
            _exit(EXIT_LOST);
        }
    }
    return NULL;
}

static void heartbeat_stop(struct processes *p) {
    struct transport *t = p->transport;
    atomic_store(&p->stop, true);
    if (p->heartbeat_started)
        pthread_join(p->heartbeat, NULL);
    atomic_store(&p->detector_stop, true); // until then it ends a process that hangs
    if (p->detector_started)
        pthread_join(p->detector, NULL);
    p->heartbeat_started = p->detector_started = false;
    for (int other = 0; other < t->num_processes; other++) {
        struct transport_request *requests[] = {&p->peers[other].sending, &p->peers[other].receiving};
        for (int i = 0; i < 2; i++)
            if (requests[i]->active)
                t->ops->forget(t, requests[i]);
        if (p->peers[other].pidfd >= 0)
            close(p->peers[other].pidfd);
        p->peers[other].pidfd = -1;
    }
}

// ---- joining

static enum status load_module(const struct launch *l, const struct transport_ops **ops, struct err *err) {
    char path[4096], dir[3500];
    if (!module_find(MODULE, "QUIRE_MPI_MODULE", "engine/ranks/mpi", path, sizeof path, dir, sizeof dir))
        return err_set(err, STATUS_DEVICE,
                       "%s has started several processes, but there is no " MODULE
                       " for them to speak with (in %.200s): it is built where CMake finds MPI",
                       l->launcher, dir[0] ? dir : path);
    // MPI loads modules of its own, which find its symbols only where they are global.
    void *module = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!module)
        return err_set(err, STATUS_DEVICE, "the module for MPI does not load: %.300s", dlerror());
    void *symbol = dlsym(module, TRANSPORT_ENTRY);
    transport_entry *entry;
    if (!symbol)
        return err_set(err, STATUS_DEVICE, "%.200s is no module of Quire: it has no symbol %s", path,
                       TRANSPORT_ENTRY);
    memcpy(&entry, &symbol, sizeof entry); // POSIX gives functions as data pointers, ISO C has no cast for it
    *ops = entry(TRANSPORT_ABI);
    if (!*ops || (*ops)->abi != TRANSPORT_ABI)
        return err_set(err, STATUS_DEVICE, "%.200s is of another version of Quire", path);
    return STATUS_OK;
}

// The identity of this process for others on the same machine: its pid, and the namespace of that pid.
static void fill_location(struct handshake *h) {
    struct stat st;
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    size_t n = f ? fread(h->boot, 1, sizeof h->boot - 1, f) : 0;
    if (f)
        fclose(f);
    h->boot[n] = 0;
    h->pid_namespace = stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
    h->pid = getpid();
}

// One version may be built from sources that differ, and sources that differ may give other bits.
static enum status check_handshakes(const struct processes *p, struct err *err) {
    const struct handshake *first = &p->handshake[0];
    for (int i = 1; i < processes_count(p); i++) {
        const struct handshake *h = &p->handshake[i];
        if (memcmp(h->protocol, first->protocol, PROTOCOL_BYTES) != 0 ||
            memcmp(h->version, first->version, VERSION_BYTES) != 0)
            return err_set(err, STATUS_INVALID,
                           "process %d (%.60s) is version %.60s, process 0 (%.60s) is %.60s", i, h->host,
                           h->version, first->host, first->version);
        if (memcmp(h->build_id, first->build_id, BUILD_ID_BYTES) != 0)
            return err_set(
                err, STATUS_INVALID,
                "process %d (%.60s) is built from sources %.31s, process 0 (%.60s) from %.31s: give both "
                "machines one build, or builds of the same sources (quire --version names them)",
                i, h->host, h->build_id, first->host, first->build_id);
    }
    return STATUS_OK;
}

static enum status exchange_handshakes(struct processes *p, struct err *err) {
    struct handshake mine = {.protocol = "quire processes 1"};
    snprintf(mine.version, sizeof mine.version, "%s", build_version);
    snprintf(mine.build_id, sizeof mine.build_id, "%s", build_id);
    gethostname(mine.host, sizeof mine.host - 1);
    sched_getaffinity(0, sizeof mine.cpus, &mine.cpus);
    fill_location(&mine);
    int me = processes_index(p);
    snprintf(p->handshake[me].host, sizeof p->handshake[me].host, "%s", mine.host);
    if (p->control->ops->all_gather(p->control, p->handshake, &mine, sizeof mine) != STATUS_OK)
        return err_set(err, STATUS_DEVICE, "%s", processes_error(p));
    return check_handshakes(p, err);
}

// Waits until the transport has all messages: closing would give up the rest, for which others wait. A
// failure aborts the group.
static bool wait_all_sent(struct processes *p, struct comm *c) {
    for (int i = 0; i < processes_count(p); i++)
        if (i != processes_index(p) && comm_processes_wait_sent(c, i, 0) != STATUS_OK)
            return false;
    return true;
}

// Joins over a transport, which the group then owns, on failure too.
static enum status join_transport(struct transport *t, struct processes **out, struct err *err) {
    struct processes *p = calloc(1, sizeof *p);
    struct comm_processes_config config = {.transport = t, .channel = CONTROL, .deadline_ms = JOIN_MS};
    config.rank = t->process;
    config.world = t->num_processes;
    for (int i = 0; i < t->num_processes && i < PROCESSES_MAX; i++)
        config.process[i] = i;
    if (!p || !abort_state_init(&p->abort)) {
        free(p);
        t->ops->close(t, false);
        return err_set(err, STATUS_NOMEM, "out of memory");
    }
    p->transport = t;
    for (int i = 0; i < PROCESSES_MAX; i++)
        p->peers[i].pidfd = -1;
    *out = p;
    config.abort = &p->abort;
    if (!(p->control = comm_processes_open(&config, err)))
        return err->code;
    enum status st = exchange_handshakes(p, err);
    // A failure has ended the group.
    if (st != STATUS_DEVICE && !wait_all_sent(p, p->control) && st == STATUS_OK)
        st = err_set(err, STATUS_DEVICE, "%s", processes_error(p));
    comm_processes_close(p->control); // the next one waits as long as the heartbeat lets it
    config.deadline_ms = 0;
    p->control = comm_processes_open(&config, st == STATUS_OK ? err : NULL);
    if (!p->control)
        return st != STATUS_OK ? st : err->code;
    open_pidfds(p);
    if (pthread_create(&p->heartbeat, NULL, heartbeat_thread, p) != 0)
        return err_set(err, STATUS_NOMEM, "cannot start the heartbeat");
    p->heartbeat_started = true;
    if (pthread_create(&p->detector, NULL, failure_detector, p) != 0)
        return err_set(err, STATUS_NOMEM, "cannot start the heartbeat");
    p->detector_started = true;
    return st;
}

enum status processes_join(const struct launch *l, struct processes **p, struct err *err) {
    const struct transport_ops *ops = NULL;
    *p = NULL;
    if (load_module(l, &ops, err) != STATUS_OK)
        return err->code;
    CHECK(ops);
    struct transport *t = ops->open(err);
    if (!t)
        return err->code;
    if (t->num_processes < 2 || t->num_processes > PROCESSES_MAX) {
        if (t->num_processes > PROCESSES_MAX)
            err_set(err, STATUS_INVALID, "%s has started %d processes; a model has at most %d", l->launcher,
                    t->num_processes, PROCESSES_MAX);
        else if (l->num_processes > 1)
            err_set(err, STATUS_DEVICE,
                    "%s has started %d processes, but %s knows of one: they cannot find each other (with "
                    "srun, --mpi=pmix or --mpi=pmi2, as MPI was built)",
                    l->launcher, l->num_processes, t->library);
        t->ops->close(t, true);
        return err->code;
    }
    log_msg(LOG_INFO, "process=%d processes=%d launcher=%s transport=\"%s\"", t->process, t->num_processes,
            l->launcher, t->library);
    return join_transport(t, p, err);
}

bool processes_leave(struct processes *p) {
    if (!p)
        return true;
    struct transport *t = p->transport;
    struct comm *last = NULL;
    bool clean = p->control && !abort_state_is_set(&p->abort);
    if (clean) {
        struct comm_processes_config config = {.transport = t,
                                               .abort = &p->abort,
                                               .channel = COMMS + MAX_COMMS,
                                               .rank = t->process,
                                               .world = t->num_processes,
                                               .deadline_ms = LEAVE_MS};
        for (int i = 0; i < t->num_processes; i++)
            config.process[i] = i;
        clean = (last = comm_processes_open(&config, NULL)) && last->ops->barrier(last) == STATUS_OK &&
                wait_all_sent(p, last);
    }
    heartbeat_stop(p);
    comm_processes_close(last);
    for (int i = 0; i < p->num_comms; i++)
        comm_processes_close(p->comms[i]);
    comm_processes_close(p->control);
    if (clean)
        alarm(LEAVE_MS / 1000); // MPI_Finalize() has no deadline
    t->ops->close(t, clean);
    alarm(0);
    abort_state_destroy(&p->abort);
    free(p);
    return clean;
}

// ---- status checks

static enum status gather_control(struct processes *p, void *all, const void *mine, size_t bytes,
                                  struct err *err) {
    if (p->control->ops->all_gather(p->control, all, mine, bytes) == STATUS_OK)
        return STATUS_OK;
    return err_set(err, STATUS_DEVICE, "%s", processes_error(p));
}

enum status processes_check_status(struct processes *p, struct err *err) {
    struct err all[PROCESSES_MAX], mine = *err;
    enum status st = gather_control(p, all, &mine, sizeof mine, err);
    for (int i = 0; st == STATUS_OK && i < processes_count(p); i++) {
        if (all[i].code == STATUS_OK)
            continue;
        if (i == processes_index(p))
            return err->code;
        *err = (struct err){0};
        return err_set(err, all[i].code, "process %d (%.60s): %.300s", i, p->handshake[i].host, all[i].msg);
    }
    return st;
}

enum status processes_check_settings(struct processes *p, const struct setting *settings, int num,
                                     struct err *err) {
    struct setting mine[MAX_SETTINGS];
    struct setting *first = malloc((size_t)processes_count(p) * MAX_SETTINGS * sizeof *first); // of all
    CHECK(num <= MAX_SETTINGS);
    memset(mine, 0, sizeof mine);
    for (int i = 0; i < num; i++)
        memcpy(mine[i].value, settings[i].value, sizeof mine[i].value);
    if (!first) {
        processes_abort(p, "out of memory");
        return err_set(err, STATUS_NOMEM, "out of memory");
    }
    enum status st = gather_control(p, first, mine, sizeof mine, err);
    for (int i = 1; st == STATUS_OK && i < processes_count(p); i++) {
        const struct setting *theirs = first + (size_t)i * MAX_SETTINGS;
        for (int s = 0; st == STATUS_OK && s < num; s++)
            if (memcmp(theirs[s].value, first[s].value, sizeof first[s].value) != 0)
                st = err_set(err, STATUS_INVALID,
                             "process %d (%.60s) has %s %.70s, process 0 (%.60s) has %.70s", i,
                             p->handshake[i].host, settings[s].name, theirs[s].value, p->handshake[0].host,
                             first[s].value);
    }
    free(first);
    return st;
}

enum status processes_all_min(struct processes *p, int64_t *value, struct err *err) {
    int64_t all[PROCESSES_MAX], mine = *value;
    enum status st = gather_control(p, all, &mine, sizeof mine, err);
    for (int i = 0; st == STATUS_OK && i < processes_count(p); i++)
        *value = all[i] < *value ? all[i] : *value;
    return st;
}

enum status processes_all_sum(struct processes *p, uint64_t *value, struct err *err) {
    uint64_t all[PROCESSES_MAX], mine = *value;
    enum status st = gather_control(p, all, &mine, sizeof mine, err);
    *value = 0;
    for (int i = 0; st == STATUS_OK && i < processes_count(p); i++)
        *value += all[i];
    return st;
}

int processes_on_host(const struct processes *p) {
    int n = 0;
    for (int i = 0; i < processes_count(p); i++)
        n += same_machine(p, i);
    return n;
}

int processes_before(const struct processes *p) {
    int n = 0;
    for (int i = 0; i < processes_index(p); i++)
        n += same_machine(p, i);
    return n;
}

int processes_on_cpus(const struct processes *p) {
    const struct handshake *mine = &p->handshake[processes_index(p)];
    int n = 0;
    for (int i = 0; i < processes_count(p); i++)
        n += same_machine(p, i) && CPU_EQUAL(&p->handshake[i].cpus, &mine->cpus);
    return n;
}

struct comm *processes_comm(struct processes *p, int number, int rank, int world, const int *process,
                            int deadline_ms, struct err *err) {
    struct comm_processes_config config = {.transport = p->transport,
                                           .abort = &p->abort,
                                           .channel = COMMS + number,
                                           .rank = rank,
                                           .world = world,
                                           .deadline_ms = deadline_ms};
    CHECK(p->num_comms < MAX_COMMS && number >= 0 && number < MAX_COMMS && world <= COMM_MAX_WORLD);
    memcpy(config.process, process, (size_t)world * sizeof *process);
    struct comm *c = comm_processes_open(&config, err);
    if (c)
        p->comms[p->num_comms++] = c;
    return c;
}

// ---- steps

enum status processes_wait_sent(struct processes *p) {
    for (int i = 1; i < processes_count(p); i++)
        if (comm_processes_wait_sent(p->control, i, MAX_STEPS_AHEAD - 1) != STATUS_OK)
            return STATUS_DEVICE;
    return STATUS_OK;
}

enum status processes_send_step(struct processes *p, const void *data, size_t bytes) {
    for (int i = 1; i < processes_count(p); i++)
        if (comm_processes_isend(p->control, data, bytes, i) != STATUS_OK)
            return STATUS_DEVICE;
    return STATUS_OK;
}

enum status processes_receive_step(struct processes *p, void *data, size_t max, size_t *bytes) {
    return comm_processes_recv(p->control, data, max, bytes, 0);
}
