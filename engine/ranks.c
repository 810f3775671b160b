#include "ranks.h"

#include "comm_threads.h"
#include "forward.h"
#include "log.h"
#include "processors.h"
#include "weights.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// How long a rank waits for another within a step, which is at most the time of one phase.
enum { DEADLINE_MS = 60000 };

struct rank {
    struct ranks *all;
    struct model model; // config is the rank's own part
    struct device *dev;
    struct comm *comm; // NULL: one rank
    struct workspace ws;
    pthread_t thread;
    bool started;
};

struct ranks {
    const struct backend_ops *ops;
    struct model_config whole;
    struct shard_blocks blocks;
    int world;
    struct comm_threads *group; // NULL: one rank
    // For tests: this rank fails at this step (QUIRE_FAULT_RANK, QUIRE_FAULT_STEP). -1: none
    int fail_rank;
    uint64_t fail_at;

    // Between rank 0 and the others, under lock:
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    const struct step *step;
    uint64_t posted; // steps
    int running;     // ranks other than 0 that are still in the step posted last
    bool stop;
    struct err failure; // of a rank other than 0
    struct rank rank[COMM_MAX_WORLD];
};

static struct shard shard_of(const struct ranks *r, int rank) {
    return (struct shard){&r->whole, r->blocks, rank, r->world};
}

// The threads of one rank: total divided, the first ranks get what is left over.
static int share_threads(int total, int rank, int world) {
    int n = total > 0 ? total : processors_here();
    int each = n / world + (rank < n % world);
    return each > 0 ? each : 1;
}

struct ranks *ranks_open(const struct ranks_config *c, struct err *err) {
    if (c->world > 1 && shard_check(c->device.model, &c->blocks, c->world, err) != STATUS_OK)
        return NULL;
    struct ranks *r = calloc(1, sizeof *r);
    if (!r) {
        err_set(err, STATUS_NOMEM, "out of memory");
        return NULL;
    }
    const char *fail_rank = getenv("QUIRE_FAULT_RANK"), *fail_step = getenv("QUIRE_FAULT_STEP");
    r->ops = c->ops;
    r->whole = *c->device.model;
    r->blocks = c->blocks;
    r->world = c->world;
    r->fail_rank = fail_rank && fail_step ? atoi(fail_rank) : -1;
    r->fail_at = fail_step ? strtoull(fail_step, NULL, 10) : 0;
    pthread_mutex_init(&r->lock, NULL); // cannot fail on Linux: no attributes
    pthread_cond_init(&r->work, NULL);
    pthread_cond_init(&r->done, NULL);
    if (c->world > 1 && !(r->group = comm_threads_open(c->world, DEADLINE_MS, err)))
        goto fail;
    for (int i = 0; i < c->world; i++) {
        struct rank *k = &r->rank[i];
        struct device_config device = c->device;
        k->all = r;
        k->model.config = r->whole;
        if (c->world > 1) {
            struct shard s = shard_of(r, i);
            shard_config(&s, &k->model.config);
            k->comm = comm_threads_rank(r->group, i);
            device.num_threads = share_threads(c->device.num_threads, i, c->world);
        }
        device.model = &k->model.config;
        device.rank = i;
        device.world = c->world;
        device.comm = k->comm;
        if (!(k->dev = c->ops->open(c->host, &device, err)))
            goto fail;
    }
    return r;
fail:
    ranks_close(r);
    return NULL;
}

enum status ranks_load(struct ranks *r, const struct gguf *g, enum dtype floats,
                       void (*progress)(void *, double), void *arg, struct err *err) {
    struct weights_target targets[COMM_MAX_WORLD];
    struct device_info info;
    for (int i = 0; i < r->world; i++)
        targets[i] = (struct weights_target){shard_of(r, i), &r->rank[i].model, r->rank[i].dev};
    enum status st = weights_load_ranks(targets, r->world, g, floats, r->ops, progress, arg, err);
    for (int i = 0; i < r->world && r->world > 1 && st == STATUS_OK; i++) {
        r->ops->info(r->rank[i].dev, &info);
        log_msg(LOG_INFO, "rank=%d world=%d weight_bytes=%zu", i, r->world, info.weight_bytes);
    }
    return st;
}

static void run(struct rank *k, const struct step *step) {
    const struct ranks *r = k->all;
    if (k->comm && k->comm->rank == r->fail_rank && step->seq >= r->fail_at)
        k->comm->ops->abort(k->comm, "failed, as QUIRE_FAULT_RANK asks");
    model_forward(r->ops, k->dev, &k->model, &k->ws, step);
}

static void *rank_main(void *arg) {
    struct rank *k = arg;
    struct ranks *r = k->all;
    struct step_out out;
    pthread_mutex_lock(&r->lock);
    for (uint64_t seen = 0;;) {
        while (r->posted == seen && !r->stop)
            pthread_cond_wait(&r->work, &r->lock);
        if (r->posted == seen)
            break;
        seen = r->posted;
        const struct step *step = r->step;
        struct err err = {0};
        pthread_mutex_unlock(&r->lock);
        run(k, step);
        enum status st = r->ops->sync(k->dev, &out, &err);
        pthread_mutex_lock(&r->lock);
        if (st != STATUS_OK)
            err_set(&r->failure, st, "%s", err.msg);
        if (--r->running == 0)
            pthread_cond_signal(&r->done);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

enum status ranks_reserve(struct ranks *r, const struct step_limits *limits, struct err *err) {
    for (int i = 0; i < r->world; i++) {
        struct rank *k = &r->rank[i];
        enum status st = r->ops->reserve(k->dev, limits, &k->ws, err);
        if (st != STATUS_OK)
            return st;
        if (i > 0 && pthread_create(&k->thread, NULL, rank_main, k) != 0)
            return err_set(err, STATUS_NOMEM, "cannot start the thread of rank %d", i);
        k->started = i > 0;
    }
    return STATUS_OK;
}

void ranks_close(struct ranks *r) {
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < r->world; i++)
        if (r->rank[i].started)
            pthread_join(r->rank[i].thread, NULL);
    for (int i = 0; i < r->world; i++) {
        weights_free(&r->rank[i].model);
        if (r->rank[i].dev)
            r->ops->close(r->rank[i].dev);
    }
    comm_threads_close(r->group);
    pthread_cond_destroy(&r->work);
    pthread_cond_destroy(&r->done);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

void ranks_info(struct ranks *r, struct device_info *info) {
    struct device_info one;
    r->ops->info(r->rank[0].dev, info);
    for (int i = 1; i < r->world; i++) {
        r->ops->info(r->rank[i].dev, &one);
        info->weight_bytes += one.weight_bytes;
    }
    if (r->world > 1) {
        memcpy(one.name, info->name, sizeof one.name);
        snprintf(info->name, sizeof info->name, "%d ranks of %.70s", r->world, one.name);
    }
}

size_t ranks_kv_block_bytes(struct ranks *r) {
    size_t bytes = 0;
    for (int i = 0; i < r->world; i++)
        bytes += r->ops->kv_block_bytes(r->rank[i].dev);
    return bytes;
}

void ranks_launch(struct ranks *r, const struct step *step) {
    if (r->world > 1) {
        pthread_mutex_lock(&r->lock);
        while (r->running > 0)
            pthread_cond_wait(&r->done, &r->lock);
        r->step = step;
        r->running = r->world - 1;
        r->posted++;
        pthread_cond_broadcast(&r->work);
        pthread_mutex_unlock(&r->lock);
    }
    run(&r->rank[0], step);
}

enum status ranks_sync(struct ranks *r, struct step_out *out, struct err *err) {
    enum status st = r->ops->sync(r->rank[0].dev, out, err);
    if (r->world > 1) {
        pthread_mutex_lock(&r->lock);
        while (r->running > 0)
            pthread_cond_wait(&r->done, &r->lock);
        if (st == STATUS_OK && r->failure.code != STATUS_OK)
            st = err_set(err, STATUS_DEVICE, "%s", r->failure.msg);
        pthread_mutex_unlock(&r->lock);
    }
    return st;
}
