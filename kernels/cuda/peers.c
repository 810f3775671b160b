// The other ranks of a model on several devices: how ranks find each other, add up, gather, and fail
// together.
//
// Each rank is a thread with a device of its own, or a process with one; the devices read each other's memory,
// or, where some cannot, NCCL carries everything. The comm that the engine gives carries pointers, and names of
// memory, at the first step and the news of a failure; a step itself asks nothing of the host. Kernels that wait
// for another rank look at a word `stop` of their own. A rank that fails sets that of all threads; in another
// process it is set by a thread that looks at the comm, as the rank's own may be waiting for such a kernel.
#include "device.h"

#include "log.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WATCH_NS = 20000000 };

static void *watch(void *arg) {
    struct peers *p = arg;
    struct timespec pause = {0, WATCH_NS};
    while (!__atomic_load_n(&p->closing, __ATOMIC_ACQUIRE)) {
        if (p->comm->ops->error(p->comm)[0])
            __atomic_store_n(p->stop[p->rank], 1, __ATOMIC_RELEASE);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

// Devices do not read each other's memory, and why: whether NCCL can do without.
static enum status check_apart(struct device *dev, const struct err *why, struct err *err) {
    if (rt_failed(dev->rt))
        return err_set(err, STATUS_DEVICE, "%s", why->msg);
    if (dev->exact)
        return err_set(err, STATUS_DEVICE,
                       "%.400s; NCCL adds without that, but in an order of its own: leave out --exact",
                       why->msg);
    if (rt_nccl_problem()[0])
        return err_set(err, STATUS_DEVICE, "%.400s; NCCL, which adds without that, is not there: %s",
                       why->msg, rt_nccl_problem());
    return STATUS_OK;
}

bool cuda_shares_device(const struct device_config *config) {
    const char *share = getenv("QUIRE_CUDA_SHARE_DEVICE");
    return config->processes && share && strcmp(share, "0") != 0;
}

enum status cuda_peers_open(struct device *dev, const struct device_config *config, struct err *err) {
    struct peers *p = &dev->peers;
    p->rank = config->world > 1 ? config->rank : 0;
    p->world = config->world > 1 ? config->world : 1;
    p->begin[1] = dev->model.vocab;
    if (p->world == 1)
        return STATUS_OK;
    p->comm = config->comm;
    p->processes = config->processes;
    p->shares = cuda_shares_device(config);
    const char *worth = getenv("QUIRE_CUDA_TWO_SHOTS"); // in bytes
    p->two_shots = worth ? strtoul(worth, NULL, 10) : CUDA_TWO_SHOTS;
    struct err why = {STATUS_OK, "GPUs that share a layer are on several machines"};
    p->apart = config->apart;
    for (int r = 0, end; r < p->world; r++) {
        backend_vocab_rows(dev->model.vocab, r, p->world, &p->begin[r], &end);
        p->begin[r + 1] = end;
        int ordinal = config->ordinal - p->rank + r;
        if (r != p->rank && !p->shares && !p->apart)
            p->apart = (p->processes ? rt_can_reach(dev->rt, ordinal, &why)
                                     : rt_reach(dev->rt, ordinal, &why)) != STATUS_OK;
    }
    if (p->apart && check_apart(dev, &why, err) != STATUS_OK)
        return STATUS_DEVICE;
    if (!(p->stop[p->rank] = rt_alloc_host(dev->rt, sizeof(uint32_t))))
        return err_set(err, STATUS_NOMEM,
                       "out of host memory for a flag of 4 bytes that the device can read");
    p->watched = p->processes && pthread_create(&p->watcher, NULL, watch, p) == 0;
    if (p->processes && !p->watched)
        return err_set(err, STATUS_NOMEM, "cannot start a thread that looks after other ranks");
    return STATUS_OK;
}

void cuda_peers_leave(struct device *dev) {
    struct peers *p = &dev->peers;
    if (!p->processes || !p->joined)
        return;
    rt_mark(dev->rt, 0);
    rt_wait(dev->rt, 0, NULL);
    for (int r = 0; r < p->world; r++)
        if (p->opened[r])
            rt_close_shared(dev->rt, p->opened[r]);
    p->comm->ops->barrier(p->comm); // does not wait if the group has failed
}

void cuda_peers_close(struct device *dev) {
    struct peers *p = &dev->peers;
    __atomic_store_n(&p->closing, true, __ATOMIC_RELEASE);
    if (p->watched)
        pthread_join(p->watcher, NULL);
    rt_nccl_close(p->nccl);
    rt_free_host(dev->rt, p->stop[p->rank]);
}

void cuda_peers_alloc(struct device *dev, struct cuda_arena *a) {
    struct peers *p = &dev->peers;
    size_t blocks = CUDA_BARRIER_BLOCKS;
    p->flags = arena_alloc(a, blocks * COMM_MAX_SUM, sizeof *p->flags);
    p->barrier.epochs = arena_alloc(a, blocks, sizeof *p->barrier.epochs);
    size_t all = (size_t)dev->max_tokens * (size_t)dev->model.hidden;
    p->part = arena_alloc(a, all, sizeof *p->part);
    if (!dev->exact)
        p->brief = arena_alloc(a, all, sizeof *p->brief);
}

// ---- failing together

static void fail_peers(struct device *dev, const char *why) {
    char text[200];
    snprintf(text, sizeof text, "rank %d of %d: %.160s", dev->peers.rank, dev->peers.world, why);
    rt_fail(dev->rt, text);
}

void cuda_peers_check(struct device *dev) {
    struct peers *p = &dev->peers;
    if (p->world == 1)
        return;
    struct err err = {0};
    const char *why = p->comm->ops->error(p->comm);
    uint32_t stop = __atomic_load_n(p->stop[p->rank], __ATOMIC_ACQUIRE);
    if (why[0])
        fail_peers(dev, why);
    else if (stop)
        fail_peers(dev, stop == 2 ? "it has waited 60 s for another" : "another has failed");
    if (!rt_failed(dev->rt))
        return;
    if (!why[0]) {
        rt_wait(dev->rt, 0, &err);
        p->comm->ops->abort(p->comm, err.msg);
    }
    for (int r = 0; r < p->world; r++)
        if (p->stop[r])
            __atomic_store_n(p->stop[r], 1, __ATOMIC_RELEASE);
    if (p->nccl)
        rt_nccl_abort(p->nccl);
}

enum status cuda_peers_wait(struct device *dev, int slot, struct err *err) {
    struct timespec start, now, pause = {0, 20000};
    clock_gettime(CLOCK_MONOTONIC, &start);
    while (!rt_done(dev->rt, slot)) { // a step may take as long as it does on one device
        clock_gettime(CLOCK_MONOTONIC, &now);
        cuda_peers_check(dev);
        if (now.tv_sec - start.tv_sec > 0) // a long step: sleep instead of spinning
            nanosleep(&pause, NULL);
    }
    cuda_peers_check(dev);
    return rt_wait(dev->rt, slot, err);
}

// ---- finding each other

struct peer_info {                                                          // sent by each rank to the others
    unsigned char uuid[sizeof((struct rt_info *)0)->uuid], name[RT_SHARED]; // of the device, and of the arena
    bool apart;
    size_t two_shots;
    uint32_t *stop;
    char *arena; // where the rest lies
    uint32_t *flags;
    float *part, *logits, *max;
    struct cuda_topk *topk;
};

// Opens another rank's arena; then its pointers are where that lies here.
static void open_arena(struct device *dev, int r, struct peer_info *other) {
    struct peers *p = &dev->peers;
    if (!p->shares && memcmp(other->uuid, dev->info.uuid, sizeof other->uuid) == 0)
        fail_peers(dev,
                   "another has the same GPU; processes of one machine must see the same in the same order");
    if (!(p->opened[r] = rt_open_shared(dev->rt, other->name)))
        return;
    ptrdiff_t shift = p->opened[r] - other->arena;
    other->flags = (uint32_t *)(void *)((char *)other->flags + shift);
    other->part = (float *)(void *)((char *)other->part + shift);
    other->logits = (float *)(void *)((char *)other->logits + shift);
    other->max = (float *)(void *)((char *)other->max + shift);
    other->topk = (struct cuda_topk *)(void *)((char *)other->topk + shift);
}

// Whether all ranks say so. False: or their comm has failed, which ends them.
static bool all_say(struct peers *p, bool mine) {
    int all[COMM_MAX_SUM], say = mine;
    if (p->comm->ops->all_gather(p->comm, all, &say, sizeof say) != STATUS_OK)
        return false;
    for (int r = 0; r < p->world; r++)
        mine &= all[r] != 0;
    return mine;
}

// Whether no rank has failed so far.
static bool go_on(void *peers) {
    struct peers *p = peers;
    return !p->comm->ops->error(p->comm)[0];
}

// The ranks' NCCL group; without it, long sums go the way of short ones, if there is one.
static void open_nccl(struct device *dev) {
    struct peers *p = &dev->peers;
    struct err err = {0};
    unsigned char ids[RT_NCCL_ID + 1] = {0}; // and whether there is one
    if (p->rank == 0)
        ids[RT_NCCL_ID] = rt_nccl_id(dev->rt, ids, &err);
    if (p->comm->ops->broadcast(p->comm, ids, sizeof ids, 0) != STATUS_OK)
        return;
    // A rank that does not come would be waited for until its failure is known: none begins unless all can.
    bool can = ids[RT_NCCL_ID] && !rt_failed(dev->rt) && !rt_nccl_problem()[0];
    if (!can && p->rank > 0)
        err_set(&err, STATUS_DEVICE, "%s", rt_nccl_problem());
    if (all_say(p, can))
        p->nccl = rt_nccl_open(dev->rt, ids, p->rank, p->world, go_on, p, &err);
    if (rt_failed(dev->rt))
        return; // cuda_peers_check() tells the others, who wait for this rank
    if (!all_say(p, p->nccl != NULL) && p->nccl) { // all or none
        rt_nccl_close(p->nccl);
        p->nccl = NULL;
    }
    if (p->comm->ops->error(p->comm)[0])
        return;
    const char *why = err.msg[0] ? err.msg : "a rank could not open it";
    char text[sizeof err.msg + 64];
    if (!p->nccl && p->apart) {
        snprintf(text, 140, "NCCL: %.120s", why);
        fail_peers(dev, text);
    } else if (!p->nccl && p->rank == 0 && dev->host) {
        snprintf(text, sizeof text, "long sums between devices go without NCCL: %s", why);
        dev->host->log(LOG_WARN, text);
    }
}

void cuda_peers_join(struct device *dev) {
    struct peers *p = &dev->peers;
    if (p->world == 1)
        return;
    cuda_peers_check(dev);
    if (p->joined || rt_failed(dev->rt))
        return;
    struct peer_info all[COMM_MAX_SUM], mine = {.apart = p->apart,
                                                .two_shots = p->two_shots,
                                                .stop = p->stop[p->rank],
                                                .arena = dev->arena,
                                                .flags = p->flags,
                                                .part = p->part,
                                                .logits = dev->logits,
                                                .max = dev->max,
                                                .topk = dev->topk};
    memcpy(mine.uuid, dev->info.uuid, sizeof mine.uuid);
    if (p->processes && !p->apart)
        rt_share(dev->rt, dev->arena, mine.name);
    rt_mark(dev->rt, 0);
    rt_wait(dev->rt, 0, NULL); // the flags are zero before others can set them
    if (p->comm->ops->all_gather(p->comm, all, &mine, sizeof mine) == STATUS_OK) {
        for (int r = 0; r < p->world; r++)
            p->apart |= all[r].apart;
        for (int r = 0; r < p->world; r++) {
            bool elsewhere = p->processes && r != p->rank;
            if (elsewhere && !p->apart)
                open_arena(dev, r, &all[r]);
            p->stop[r] = elsewhere ? NULL : all[r].stop;
            p->barrier.flags[r] = all[r].flags;
            p->parts[r] = all[r].part;
            p->logits[r] = all[r].logits;
            p->max[r] = all[r].max;
            p->topks[r] = all[r].topk;
        }
        p->two_shots = all[0].two_shots; // all do the same
        p->barrier.rank = p->rank;
        p->barrier.world = p->world;
        p->barrier.stop = p->stop[p->rank];
        if ((p->apart || (dev->limits.max_tokens > CUDA_TOKENS && !dev->exact)) && !rt_failed(dev->rt))
            open_nccl(dev);
        if (p->apart)
            dev->max_graphs = 0;
        p->joined = !p->apart || p->nccl;
    }
    cuda_peers_check(dev);
}

// ---- within a step

// The same of some rows, by NCCL. Outputs of bf16 GEMMs are added in bf16, too: half the bytes.
static void sum_by_nccl(struct device *dev, const struct weight *w, float *part, float *y, bool add,
                        const float *bias, int rows) {
    struct peers *p = &dev->peers;
    int D = dev->model.hidden;
    bool bf16 = cuda_act_dtype_of(w->matrix[0].layout) == ACT_DTYPE_BF16;
    void *sum = bf16 ? (void *)p->brief : part;
    if (bf16)
        cuda_norm(dev->rt, &(struct cuda_norm){.x = part,
                                               .out = sum,
                                               .act_dtype = ACT_DTYPE_BF16,
                                               .rows = rows,
                                               .n = D,
                                               .ldx = D,
                                               .ldout = D});
    rt_nccl_sum(p->nccl, sum, (size_t)rows * (size_t)D, bf16);
    cuda_finish(dev->rt, &(struct cuda_finish){.x = sum,
                                               .bf16 = bf16,
                                               .bias = bias,
                                               .y = y,
                                               .rows = rows,
                                               .n = D,
                                               .ldx = D,
                                               .ldy = D,
                                               .add = add});
}

void cuda_peers_sum(struct device *dev, const struct weight *w, float *y, bool add, const float *bias,
                    int rows) {
    struct peers *p = &dev->peers;
    // shot: rows that the kernel adds; like the skinny GEMM, it has all that decode.
    int D = dev->model.hidden, shot = rows;
    if (!p->joined)
        return; // it has failed
    if (p->apart)
        shot = 0;
    else if (p->nccl && rows - dev->work.num_decode > CUDA_TOKENS)
        shot = dev->work.num_decode;
    size_t at = (size_t)shot * (size_t)D;
    struct cuda_sum a = {.peers = p->barrier, .bias = bias, .y = y, .add = add, .rows = shot, .n = D};
    a.two_shots = cuda_two_shots(p->world, at * sizeof *y, p->two_shots);
    memcpy(a.part, p->parts, sizeof a.part);
    cuda_sum(dev->rt, &a);
    if (shot < rows)
        sum_by_nccl(dev, w, p->part + at, y + at, add, bias, rows - shot);
}

// Gathers rows by a sum: this rank has columns [begin, end) of each row and clears the rest, which the other ranks
// have.
static void gather_by_nccl(struct device *dev, float *x, int rows, int begin, int end, int ld) {
    cuda_clear(dev->rt, &(struct cuda_clear){x, ACT_DTYPE_F32, rows, 0, begin, ld});
    cuda_clear(dev->rt, &(struct cuda_clear){x, ACT_DTYPE_F32, rows, end, ld, ld});
    rt_nccl_sum(dev->peers.nccl, x, (size_t)rows * (size_t)ld, false);
}

void cuda_peers_share(struct device *dev, float *y, const float *part, size_t n) {
    struct peers *p = &dev->peers;
    size_t each = backend_resid_part(n, p->world), own = backend_resid_count(n, p->rank, p->world),
           begin = own > 0 ? (size_t)p->rank * each : n;
    if (!p->joined)
        return; // it has failed
    // No rank reads it any more: the last sum has waited for all.
    rt_upload(dev->rt, (p->apart ? y : p->part) + begin, part, own * sizeof *part);
    if (p->apart) {
        gather_by_nccl(dev, y, 1, (int)begin, (int)(begin + own), (int)n);
        return;
    }
    struct cuda_share a = {.peers = p->barrier, .y = y, .n = n, .each = each};
    memcpy(a.part, p->parts, sizeof a.part);
    cuda_share(dev->rt, &a);
}

void cuda_peers_gather(struct device *dev, struct cuda_sample *s, int n) {
    struct peers *p = &dev->peers;
    if (p->apart && p->joined) { // then it is as if there were one rank
        int begin = p->begin[p->rank], end = p->begin[p->rank + 1];
        gather_by_nccl(dev, s->logits, n, begin, end, s->ld);
        gather_by_nccl(dev, s->max, n, begin / CUDA_GROUP, (end + CUDA_GROUP - 1) / CUDA_GROUP, s->ldmax);
        return;
    }
    s->begin = p->begin[p->rank];
    s->end = p->begin[p->rank + 1];
    s->num_slices = CUDA_SAMPLE_SLICES / p->world;
    s->first_slice = p->rank * s->num_slices;
    if (!p->joined)
        return;
    if (s->max_topk > 0)
        cuda_local_topk(dev->rt, s);
    struct cuda_gather a = {.peers = p->barrier,
                            .rows = s->rows,
                            .num_rows = n,
                            .max_topk = s->max_topk,
                            .ld = s->ld,
                            .ldmax = s->ldmax};
    memcpy(a.begin, p->begin, sizeof a.begin);
    memcpy(a.logits, p->logits, sizeof a.logits);
    memcpy(a.max, p->max, sizeof a.max);
    memcpy(a.topk, p->topks, sizeof a.topk);
    cuda_gather(dev->rt, &a);
}
