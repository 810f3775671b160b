// NCCL on the emulator: ranks, threads or processes, meet in memory that they share, and each adds what lies
// there from the last rank to the first, which is not the order of our own sums. Only where
// QUIRE_EMULATED_NCCL is set: it is a library that may be absent.
#include "half.h"
#include "rt_stream.h"

#include <algorithm>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

namespace {
enum { RANKS = 8, PIECE = 1 << 14, SECONDS = 60, LOOK_NS = 5000000 };

struct rendezvous {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int arrived;
    unsigned long round;
    bool ended;
    size_t bytes[RANKS]; // that each sums
    float x[RANKS][PIECE];
};

void *map(int file) {
    void *p = mmap(nullptr, sizeof(rendezvous), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return p == MAP_FAILED ? nullptr : p;
}
} // namespace

struct rt_nccl {
    struct rt *rt;
    rendezvous *at;
    int rank, world;
};

// Waits for all ranks: 60 s, or as long as go_on() says. False: one did not come.
static bool meet(rendezvous *m, int world, bool (*go_on)(void *) = nullptr, void *arg = nullptr) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += SECONDS;
    pthread_mutex_lock(&m->lock);
    unsigned long round = m->round;
    if (++m->arrived == world) {
        m->arrived = 0;
        m->round++;
        pthread_cond_broadcast(&m->changed);
    }
    while (m->round == round && !m->ended) {
        if (go_on) {
            clock_gettime(CLOCK_MONOTONIC, &until);
            until.tv_nsec += LOOK_NS;
            until.tv_sec += until.tv_nsec / 1000000000;
            until.tv_nsec %= 1000000000;
        }
        if (pthread_cond_timedwait(&m->changed, &m->lock, &until) != 0 && !(go_on && go_on(arg)))
            break;
    }
    bool all = m->round != round;
    pthread_mutex_unlock(&m->lock);
    return all;
}

extern "C" {

const char *rt_nccl_problem() {
    return getenv("QUIRE_EMULATED_NCCL") ? "" : "the emulator has been given none";
}

// The id is the path of a file without a name.
bool rt_nccl_id(struct rt *, unsigned char id[RT_NCCL_ID], struct err *err) {
    if (rt_nccl_problem()[0]) {
        err_set(err, STATUS_DEVICE, "%s", rt_nccl_problem());
        return false;
    }
    int file = memfd_create("quire-nccl", MFD_CLOEXEC);
    void *p = file >= 0 && ftruncate(file, sizeof(rendezvous)) == 0 ? map(file) : nullptr;
    if (!p) {
        err_set(err, STATUS_DEVICE, "no memory to meet in");
        return false;
    }
    rendezvous *m = (rendezvous *)p;
    pthread_mutexattr_t lock;
    pthread_condattr_t changed;
    pthread_mutexattr_init(&lock);
    pthread_mutexattr_setpshared(&lock, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&m->lock, &lock);
    pthread_condattr_init(&changed);
    pthread_condattr_setpshared(&changed, PTHREAD_PROCESS_SHARED);
    pthread_condattr_setclock(&changed, CLOCK_MONOTONIC);
    pthread_cond_init(&m->changed, &changed);
    munmap(p, sizeof(rendezvous));
    memset(id, 0, RT_NCCL_ID);
    snprintf((char *)id, RT_NCCL_ID, "/proc/%d/fd/%d", (int)getpid(), file);
    return true;
}

struct rt_nccl *rt_nccl_open(struct rt *rt, const unsigned char id[RT_NCCL_ID], int rank, int world,
                             bool (*go_on)(void *), void *arg, struct err *err) {
    const char *fails = getenv("QUIRE_EMULATED_NCCL_FAILS"); // for tests: in this rank, before it has come
    if (rt_nccl_problem()[0]) {
        err_set(err, STATUS_DEVICE, "%s", rt_nccl_problem());
        return nullptr;
    }
    if (fails && atoi(fails) == rank) {
        rt_fail(rt, "NCCL: it was asked to fail");
        return nullptr;
    }
    int file = open((const char *)id, O_RDWR | O_CLOEXEC), first = -1;
    void *p = file >= 0 ? map(file) : nullptr;
    if (file >= 0)
        close(file);
    bool all = p && meet((rendezvous *)p, world, go_on, arg);
    if (rank == 0 && sscanf((const char *)id, "/proc/%*d/fd/%d", &first) == 1) // it has made the file
        close(first);
    rt_stream(rt);
    if (all)
        return new rt_nccl{rt, (rendezvous *)p, rank, world};
    if (p)
        munmap(p, sizeof(rendezvous));
    err_set(err, STATUS_DEVICE, "another rank did not come");
    return nullptr;
}

void rt_nccl_sum(struct rt_nccl *nccl, void *x, size_t n, bool bf16) {
    rendezvous *m = nccl->at;
    float *f = (float *)x;
    uint16_t *h = (uint16_t *)x;
    for (size_t at = 0; at < n && !rt_failed(nccl->rt); at += PIECE) {
        size_t piece = std::min(n - at, (size_t)PIECE);
        m->bytes[nccl->rank] = n * (bf16 ? 2 : 4);
        for (size_t i = 0; i < piece; i++)
            m->x[nccl->rank][i] = bf16 ? bf16_to_float(h[at + i]) : f[at + i];
        if (!meet(m, nccl->world))
            return rt_fail(nccl->rt, "NCCL: another rank did not come");
        for (int r = 0; r < nccl->world; r++)
            if (m->bytes[r] != m->bytes[nccl->rank])
                return rt_fail(nccl->rt, "NCCL: ranks sum different numbers of bytes");
        for (size_t i = 0; i < piece; i++) {
            float sum = m->x[nccl->world - 1][i];
            for (int r = nccl->world - 2; r >= 0; r--) {
                sum += m->x[r][i];
                sum = bf16 ? bf16_to_float(float_to_bf16(sum)) : sum; // as the real one does
            }
            if (bf16)
                h[at + i] = float_to_bf16(sum);
            else
                f[at + i] = sum;
        }
        if (!meet(m, nccl->world)) // before a rank writes the next piece
            return rt_fail(nccl->rt, "NCCL: another rank did not come");
    }
}

void rt_nccl_abort(struct rt_nccl *nccl) {
    pthread_mutex_lock(&nccl->at->lock);
    nccl->at->ended = true;
    pthread_cond_broadcast(&nccl->at->changed);
    pthread_mutex_unlock(&nccl->at->lock);
}

void rt_nccl_close(struct rt_nccl *nccl) {
    if (!nccl)
        return;
    munmap(nccl->at, sizeof(rendezvous));
    delete nccl;
}

} // extern "C"
