// Several devices that share a model: how ranks find each other, add up, gather, and fail together.
//
// Each rank is a thread with a device of its own, all in one process, whose devices read each other's memory.
// The comm that the engine gives carries pointers at the first step and the news of a failure; a step itself
// asks nothing of the host. A rank that fails sets the word `stop` of all, which kernels that wait for it
// look at.
#include "device.h"

#include "log.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_SECONDS = 60 }; // for a step in which others take part

enum status cuda_group_open(struct device *dev, const struct device_config *config, struct err *err) {
    struct group *g = &dev->group;
    g->rank = config->world > 1 ? config->rank : 0;
    g->world = config->world > 1 ? config->world : 1;
    g->begin[1] = dev->model.vocab;
    if (g->world == 1)
        return STATUS_OK;
    g->comm = config->comm;
    for (int r = 0, end; r < g->world; r++) {
        backend_vocab_rows(dev->model.vocab, r, g->world, &g->begin[r], &end);
        g->begin[r + 1] = end;
        if (r != g->rank && rt_reach(dev->rt, config->ordinal - g->rank + r, err) != STATUS_OK)
            return STATUS_DEVICE;
    }
    if (!(g->stop[g->rank] = rt_alloc_host(dev->rt, sizeof(uint32_t))))
        return err_set(err, STATUS_NOMEM,
                       "out of host memory for a flag of 4 bytes that the device can read");
    return STATUS_OK;
}

void cuda_group_close(struct device *dev) {
    struct group *g = &dev->group;
    rt_nccl_close(g->nccl);
    rt_free_host(dev->rt, g->stop[g->rank]);
}

void cuda_group_carve(struct device *dev, struct carver *c) {
    struct group *g = &dev->group;
    size_t few = CUDA_HEAD_ROWS * (size_t)g->world * CUDA_FEW, meets = CUDA_MEET_BLOCKS;
    g->flags = cuda_carve(c, meets * COMM_MAX_SUM, sizeof *g->flags);
    g->meet.turns = cuda_carve(c, meets, sizeof *g->meet.turns);
    g->part = cuda_carve(c, (size_t)dev->max_tokens * (size_t)dev->model.hidden, sizeof *g->part);
    g->few = cuda_carve(c, CUDA_HEAD_ROWS, sizeof *g->few);
    g->few_logits = cuda_carve(c, few, sizeof *g->few_logits);
    g->few_max = cuda_carve(c, few / CUDA_GROUP, sizeof *g->few_max);
    g->few_ids = cuda_carve(c, few, sizeof *g->few_ids);
}

// ---- failing together

static void fail(struct device *dev, const char *why) {
    char text[200];
    snprintf(text, sizeof text, "rank %d of %d: %s", dev->group.rank, dev->group.world, why);
    rt_fail(dev->rt, text);
}

void cuda_group_check(struct device *dev) {
    struct group *g = &dev->group;
    if (g->world == 1)
        return;
    struct err err = {0};
    const char *why = g->comm->ops->error(g->comm);
    uint32_t stop = __atomic_load_n(g->stop[g->rank], __ATOMIC_ACQUIRE);
    if (why[0])
        fail(dev, why);
    else if (stop)
        fail(dev, stop == 2 ? "it has waited 60 s for another" : "another has failed");
    if (!rt_failed(dev->rt))
        return;
    if (!why[0]) {
        rt_wait(dev->rt, 0, &err);
        g->comm->ops->abort(g->comm, err.msg);
    }
    for (int r = 0; r < g->world; r++)
        if (g->stop[r])
            __atomic_store_n(g->stop[r], 1, __ATOMIC_RELEASE);
    if (g->nccl)
        rt_nccl_abort(g->nccl);
}

enum status cuda_group_wait(struct device *dev, int slot, struct err *err) {
    struct timespec start, now, pause = {0, 20000};
    clock_gettime(CLOCK_MONOTONIC, &start);
    while (!rt_done(dev->rt, slot)) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - start.tv_sec > WAIT_SECONDS)
            fail(dev, "a step has taken more than 60 s");
        cuda_group_check(dev);
        if (now.tv_sec - start.tv_sec > 0) // a long step: nobody spins for it
            nanosleep(&pause, NULL);
    }
    cuda_group_check(dev);
    return rt_wait(dev->rt, slot, err);
}

// ---- finding each other

struct card { // what a rank tells the others of itself
    long process;
    uint32_t *stop, *flags;
    float *part, *logits, *max;
    struct cuda_few *few;
};

// The ranks' NCCL group; without it, long sums go the way of short ones.
static void open_nccl(struct device *dev) {
    struct group *g = &dev->group;
    struct err err = {0};
    unsigned char ids[RT_NCCL_ID + 1] = {0}; // and whether there is one
    int all[COMM_MAX_SUM], mine;
    if (g->rank == 0)
        ids[RT_NCCL_ID] = rt_nccl_id(dev->rt, ids, &err);
    if (g->comm->ops->broadcast(g->comm, ids, sizeof ids, 0) != STATUS_OK)
        return;
    if (ids[RT_NCCL_ID])
        g->nccl = rt_nccl_open(dev->rt, ids, g->rank, g->world, &err);
    mine = g->nccl != NULL;
    if (g->comm->ops->all_gather(g->comm, all, &mine, sizeof mine) != STATUS_OK)
        return;
    for (int r = 0; r < g->world; r++)
        if (!all[r] && g->nccl) { // all or none
            rt_nccl_close(g->nccl);
            g->nccl = NULL;
        }
    if (!g->nccl && g->rank == 0 && dev->host) {
        char text[500];
        snprintf(text, sizeof text, "long sums between devices go without NCCL: %s",
                 err.msg[0] ? err.msg : "a rank could not open it");
        dev->host->log(LOG_WARN, text);
    }
}

void cuda_group_join(struct device *dev) {
    struct group *g = &dev->group;
    if (g->world == 1)
        return;
    cuda_group_check(dev);
    if (g->joined || rt_failed(dev->rt))
        return;
    struct card all[COMM_MAX_SUM],
        mine = {(long)getpid(), g->stop[g->rank], g->flags, g->part, dev->logits, dev->max, g->few};
    if (g->comm->ops->all_gather(g->comm, all, &mine, sizeof mine) == STATUS_OK) {
        int least = dev->model.vocab;
        for (int r = 0; r < g->world; r++) {
            int n = g->begin[r + 1] - g->begin[r];
            least = n < least ? n : least;
            if (all[r].process != mine.process)
                fail(dev, "ranks on devices are threads of one process");
            g->stop[r] = all[r].stop;
            g->meet.flags[r] = all[r].flags;
            g->parts[r] = all[r].part;
            g->logits[r] = all[r].logits;
            g->max[r] = all[r].max;
            g->fews[r] = all[r].few;
        }
        g->meet.rank = g->rank;
        g->meet.world = g->world;
        g->meet.stop = g->stop[g->rank];
        g->most = dev->limits.keep_logits ? 0 : (least - 2) / 2; // 1 + 2 k numbers are less than its logits
        g->joined = true;
        if (dev->limits.max_tokens > CUDA_TOKENS && !dev->exact)
            open_nccl(dev);
    }
    cuda_group_check(dev);
}

// ---- within a step

void cuda_group_add(struct device *dev, float *resid, const float *bias, int rows) {
    struct group *g = &dev->group;
    int D = dev->model.hidden, shot = rows; // rows that the kernel adds; as products, it has all that decode
    if (!g->joined)
        return; // it has failed
    if (g->nccl && rows - dev->plan.num_decode > CUDA_TOKENS)
        shot = dev->plan.num_decode;
    struct cuda_sum a = {.group = g->meet, .bias = bias, .resid = resid, .rows = shot, .n = D};
    memcpy(a.part, g->parts, sizeof a.part);
    cuda_sum(dev->rt, &a);
    if (shot < rows) {
        size_t at = (size_t)shot * (size_t)D;
        rt_nccl_sum(g->nccl, g->part + at, (size_t)(rows - shot) * (size_t)D);
        cuda_finish(dev->rt, &(struct cuda_finish){.x = g->part + at,
                                                   .bias = bias,
                                                   .y = resid + at,
                                                   .rows = rows - shot,
                                                   .n = D,
                                                   .ldx = D,
                                                   .ldy = D,
                                                   .add = true});
    }
}

void cuda_group_gather(struct device *dev, struct cuda_sample *s, int n) {
    struct group *g = &dev->group;
    s->begin = g->begin[g->rank];
    s->end = g->begin[g->rank + 1];
    s->most = g->most;
    s->num_few = g->world * CUDA_FEW;
    s->few = g->few;
    s->few_logits = g->few_logits;
    s->few_max = g->few_max;
    s->few_ids = g->few_ids;
    if (!g->joined)
        return;
    if (g->most > 0)
        cuda_find_few(dev->rt, s);
    struct cuda_gather a = {.group = g->meet,
                            .rows = s->rows,
                            .num_rows = n,
                            .most = g->most,
                            .ld = s->ld,
                            .ldmax = s->ldmax,
                            .few_logits = g->few_logits,
                            .few_max = g->few_max,
                            .few_ids = g->few_ids};
    memcpy(a.begin, g->begin, sizeof a.begin);
    memcpy(a.logits, g->logits, sizeof a.logits);
    memcpy(a.max, g->max, sizeof a.max);
    memcpy(a.few, g->fews, sizeof a.few);
    cuda_gather(dev->rt, &a);
}
