// NCCL on the emulator: ranks meet under a lock, the last to come adds, from the last rank to the first,
// which is not the order of our own sums. Only where QUIRE_EMULATED_NCCL is set: it is a library that may be
// absent.
#include "rt.h"

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <stdlib.h>
#include <string.h>
#include <string>

namespace {
struct rendezvous {
    int world = 0, arrived = 0, open = 0;
    unsigned long round = 0;
    bool ended = false;
    float *x[8] = {};
    size_t n[8] = {};
};
std::mutex lock;
std::condition_variable changed;
std::map<std::string, rendezvous> all_rendezvous;
int next_id = 1;
} // namespace

struct rt_nccl {
    struct rt *rt;
    std::string id;
    int rank;
};

extern "C" {

bool rt_nccl_id(struct rt *, unsigned char id[RT_NCCL_ID], struct err *err) {
    if (!getenv("QUIRE_EMULATED_NCCL")) {
        err_set(err, STATUS_DEVICE, "the emulator has been given none");
        return false;
    }
    std::lock_guard<std::mutex> guard(lock);
    memset(id, 0, RT_NCCL_ID);
    memcpy(id, &next_id, sizeof next_id);
    next_id++;
    return true;
}

struct rt_nccl *rt_nccl_open(struct rt *rt, const unsigned char id[RT_NCCL_ID], int rank, int world,
                             struct err *) {
    struct rt_nccl *n = new rt_nccl{rt, std::string((const char *)id, RT_NCCL_ID), rank};
    std::lock_guard<std::mutex> guard(lock);
    rendezvous &m = all_rendezvous[n->id];
    m.world = world;
    m.open++;
    return n;
}

void rt_nccl_sum(struct rt_nccl *nccl, float *x, size_t n) {
    if (rt_failed(nccl->rt))
        return;
    std::unique_lock<std::mutex> guard(lock);
    rendezvous &m = all_rendezvous[nccl->id];
    m.x[nccl->rank] = x;
    m.n[nccl->rank] = n;
    if (++m.arrived < m.world) {
        unsigned long round = m.round;
        bool came =
            changed.wait_for(guard, std::chrono::seconds(60), [&] { return m.round != round || m.ended; });
        if (!came || m.round == round)
            rt_fail(nccl->rt, "NCCL: another rank did not come");
        return;
    }
    for (int r = 0; r < m.world; r++)
        if (m.n[r] != n)
            rt_fail(nccl->rt, "NCCL: ranks sum different numbers of elements");
    for (size_t i = 0; i < n && !rt_failed(nccl->rt); i++) {
        float sum = m.x[m.world - 1][i];
        for (int r = m.world - 2; r >= 0; r--)
            sum += m.x[r][i];
        for (int r = 0; r < m.world; r++)
            m.x[r][i] = sum;
    }
    m.arrived = 0;
    m.round++;
    changed.notify_all();
}

void rt_nccl_abort(struct rt_nccl *nccl) {
    std::lock_guard<std::mutex> guard(lock);
    all_rendezvous[nccl->id].ended = true;
    changed.notify_all();
}

void rt_nccl_close(struct rt_nccl *nccl) {
    if (!nccl)
        return;
    {
        std::lock_guard<std::mutex> guard(lock);
        if (--all_rendezvous[nccl->id].open == 0)
            all_rendezvous.erase(nccl->id);
    }
    delete nccl;
}

} // extern "C"
