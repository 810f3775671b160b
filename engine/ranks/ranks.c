#include "ranks.h"

#include "comm_threads.h"
#include "cpus.h"
#include "forward.h"
#include "log.h"
#include "models/weights.h"
#include "plan.h"
#include "process_group.h"
#include "result_message.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// How long a rank waits for another within a step: of its stage, at most the time of one phase; of another
// stage, the time of all stages before.
enum { DEADLINE_MS = 60000, STAGES_DEADLINE_MS = 600000 };

struct rank {
    struct ranks *all;
    int id, stage;
    struct model model; // config is the rank's own part
    struct device *dev;
    struct comm *group;    // the ranks of its stage; NULL: it is alone there
    struct comm *world;    // all ranks; NULL: one stage
    float *in, *out[2];    // part of the residual stream from the stage before; to the next, used in turn
    void *message[2];      // results to rank 0, used in turn; of the first rank of the last stage
    uint64_t num_run;      // steps
    uint64_t begun, ended; // steps, by its thread, under lock
    pthread_t thread;
    bool started;
};

struct ranks {
    const struct backend_ops *ops;
    struct model_config whole;
    struct shard_blocks blocks;
    int tensor, stages, world;
    struct processes *processes; // NULL: all ranks are here
    struct ranks *lender;        // or NULL
    int first, here;             // ranks of this process: rank[i] has id first + i
    struct result_shape shape;   // of results; whole, not a rank's part
    // Communicators of the ranks that are threads here; group i is of stage i. NULL: one rank, or one stage, or ranks
    // elsewhere.
    struct comm_threads *groups[COMM_MAX_WORLD], *everyone;

    // With stages, of rank 0: the result message of the last stage, unpacked
    void *message;
    struct results results[2]; // used in turn

    // Between rank 0 and the others, under lock. Step i is at i modulo their number.
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    const struct step *steps[PLAN_MAX_DEPTH];
    int running[PLAN_MAX_DEPTH]; // ranks other than the first here that have not done it
    uint64_t launched, synced;   // steps
    // Threads launch a step at once and wait for its end when ranks_sync() does: else they would not see the next step
    // meanwhile, which their devices could take. Where devices compute within the launch, and with stages, a step ends
    // where it began.
    bool runs_ahead;
    uint64_t collected; // steps whose end ranks_sync() has asked for
    bool stop;
    struct err failure;       // of a rank other than the first here
    struct err first_failure; // of the first here, in a worker process
    struct rank rank[COMM_MAX_WORLD];
};

static struct shard shard_of(const struct ranks *r, int rank) {
    return (struct shard){.whole = &r->whole,
                          .blocks = r->blocks,
                          .rank = rank % r->tensor,
                          .world = r->tensor,
                          .stage = rank / r->tensor,
                          .num_stages = r->stages};
}

static bool is_last_stage(const struct rank *k) { return k->stage == k->all->stages - 1; }

// The first rank of the last stage sends the results to rank 0.
static bool sends_results(const struct rank *k) {
    return k->all->stages > 1 && k->id == (k->all->stages - 1) * k->all->tensor;
}

// The threads of one rank: total divided, the first ranks get what is left over.
static int threads_of_rank(const struct ranks *r, int total, int rank) {
    int n = total > 0 ? total : cpus_here();
    if (total <= 0 && r->processes) // other processes compute on the same CPUs
        n /= processes_on_cpus(r->processes);
    int each = n / r->here + (rank < n % r->here);
    return each > 0 ? each : 1;
}

// The communicators: one of all ranks where there are stages, and one for each stage that ranks share.
static bool open_thread_comms(struct ranks *r, struct err *err) {
    if (r->stages > 1 && !(r->everyone = comm_threads_open(r->world, STAGES_DEADLINE_MS, err)))
        return false;
    for (int i = 0; i < r->here; i++)
        r->rank[i].world = r->stages > 1 ? comm_threads_rank(r->everyone, i) : NULL;
    return true;
}

// The same where ranks are in several processes, an equal number in each. Ranks of one process, too, exchange
// messages through the transport.
static bool open_process_comms(struct ranks *r, struct err *err) {
    int process[COMM_MAX_WORLD], count = processes_count(r->processes);
    for (int i = 0; i < r->world; i++)
        process[i] = i / (r->world / count);
    for (int i = 0; i < r->here; i++) {
        struct rank *k = &r->rank[i];
        if (r->stages > 1 &&
            !(k->world = processes_comm(r->processes, 0, k->id, r->world, process, STAGES_DEADLINE_MS, err)))
            return false;
        // Each rank of the stage is a process of its own; otherwise open_comms() makes a group of threads.
        if (r->tensor > 1 && r->here == 1 &&
            !(k->group = processes_comm(r->processes, 1 + k->stage, k->id % r->tensor, r->tensor,
                                        process + k->stage * r->tensor, DEADLINE_MS, err)))
            return false;
    }
    return true;
}

static bool open_comms(struct ranks *r, struct err *err) {
    if (r->processes ? !open_process_comms(r, err) : !open_thread_comms(r, err))
        return false;
    for (int i = 0; i < r->here && r->tensor > 1; i++) {
        struct rank *k = &r->rank[i];
        struct comm_threads **group = &r->groups[k->stage];
        if (k->group)
            continue;
        if (!*group && !(*group = comm_threads_open(r->tensor, DEADLINE_MS, err)))
            return false;
        k->group = comm_threads_rank(*group, k->id % r->tensor);
    }
    return true;
}

void ranks_list(int tensor, int stages, char *text) {
    size_t n = 0;
    for (int processes = 1; processes <= COMM_MAX_WORLD; processes++)
        if (stages % processes == 0 || processes == tensor * stages)
            n += (size_t)snprintf(text + n, RANKS_LIST - n, "%s%d", n ? ", " : "", processes);
}

// Whether ranks that share a layer are on several machines, each a process.
static bool ranks_apart(const struct ranks_config *c) {
    int processes = c->processes ? processes_count(c->processes) : 1, apart = 0;
    if (c->tensor > 1 && processes > c->stages)
        for (int i = 0; i < processes; i++) // rank i
            apart += !processes_share_machine(c->processes, i, i / c->tensor * c->tensor);
    return apart > 0;
}

struct ranks *ranks_open(const struct ranks_config *c, struct err *err) {
    if ((c->tensor > 1 && shard_check(c->device.model, &c->blocks, c->tensor, err) != STATUS_OK) ||
        shard_check_stages(c->device.model, c->tensor, c->stages, err) != STATUS_OK)
        return NULL;
    struct ranks *r = calloc(1, sizeof *r);
    if (!r) {
        err_set(err, STATUS_NOMEM, "out of memory");
        return NULL;
    }
    r->ops = c->ops;
    r->whole = *c->device.model;
    r->blocks = c->blocks;
    r->tensor = c->tensor;
    r->stages = c->stages;
    r->world = c->tensor * c->stages;
    r->processes = c->processes;
    r->lender = c->lender && c->lender->ops == c->ops && c->lender->world == 1 ? c->lender : NULL;
    r->here = r->processes ? r->world / processes_count(r->processes) : r->world;
    r->first = r->processes ? r->here * processes_index(r->processes) : 0;
    pthread_mutex_init(&r->lock, NULL); // cannot fail on Linux: no attributes
    pthread_cond_init(&r->work, NULL);
    pthread_cond_init(&r->done, NULL);
    for (int i = 0; i < r->here; i++) {
        r->rank[i].all = r;
        r->rank[i].id = r->first + i;
        r->rank[i].stage = r->rank[i].id / r->tensor;
    }
    if (!open_comms(r, err))
        goto fail;
    // Kernels that are loaded later could wait for kernels that wait for others. What is set stays.
    if (r->here > 1 && r->tensor > 1 && strcmp(c->ops->name, "cuda") == 0)
        setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    for (int i = 0; i < r->here; i++) {
        struct rank *k = &r->rank[i];
        struct device_config device = c->device;
        struct shard s = shard_of(r, k->id);
        shard_config(&s, &k->model.config);
        if (r->world > 1)
            device.num_threads = threads_of_rank(r, c->device.num_threads, i);
        device.model = &k->model.config;
        device.rank = s.rank;
        device.world = r->tensor;
        device.comm = k->group;
        device.processes = r->tensor > 1 && r->here == 1;
        device.apart = ranks_apart(c);
        device.stage = k->stage;
        device.num_stages = r->stages;
        device.ordinal = i + (r->processes ? r->here * processes_before(r->processes) : 0);
        if (!(k->dev = c->ops->open(c->host, &device, err)))
            goto fail;
    }
    return r;
fail:
    ranks_close(r);
    return NULL;
}

enum status ranks_load(struct ranks *r, const struct model_file *f, enum dtype floats,
                       void (*progress)(void *, double), void *arg, struct err *err) {
    struct weights_target targets[COMM_MAX_WORLD];
    struct device_info info;
    char stage[64] = "";
    int begin, end;
    for (int i = 0; i < r->here; i++)
        targets[i] = (struct weights_target){.shard = shard_of(r, r->first + i),
                                             .model = &r->rank[i].model,
                                             .dev = r->rank[i].dev,
                                             .lender = r->lender ? &r->lender->rank[0].model : NULL};
    enum status st = weights_load(targets, r->here, f, floats, r->ops, progress, arg, err);
    for (int i = 0; i < r->here && r->world > 1 && st == STATUS_OK; i++) {
        r->ops->info(r->rank[i].dev, &info);
        shard_layers(&targets[i].shard, &begin, &end);
        if (r->stages > 1)
            snprintf(stage, sizeof stage, " stage=%d layers=%d-%d", r->rank[i].stage, begin, end - 1);
        log_msg(LOG_INFO, "rank=%d world=%d weight_bytes=%zu%s", r->first + i, r->world, info.weight_bytes,
                stage);
    }
    return st;
}

// ---- one step on one rank

// Aborts all communication of the rank, so that no rank waits for it, in its stage or in others.
static void abort_comms(struct rank *k, const char *why) {
    if (k->group)
        k->group->ops->abort(k->group, why);
    if (k->world)
        k->world->ops->abort(k->world, why);
}

// Bytes of the residual stream of `rows` rows that a rank hands over.
static size_t residual_bytes(const struct rank *k, int rows) {
    return backend_resid_part((size_t)rows * (size_t)k->all->whole.hidden, k->all->tensor) * sizeof(float);
}

// Receives the residual stream of the stage before, if there is one.
static bool receive_residual(struct rank *k, const struct step *step) {
    size_t bytes = residual_bytes(k, step->num_tokens);
    return k->stage == 0 || k->world->ops->recv(k->world, k->in, bytes, k->id - k->all->tensor) == STATUS_OK;
}

// Sends the residual stream to the next stage, or from the last stage the results to rank 0. The buffer is in
// flight while the next step fills the other one.
static bool send_output(struct rank *k, const struct step *step, const struct step_out *out, float *resid) {
    const struct ranks *r = k->all;
    void *message = k->message[k->num_run % 2];
    size_t bytes = residual_bytes(k, step->num_tokens);
    if (!is_last_stage(k))
        return k->world->ops->isend(k->world, resid, bytes, k->id + r->tensor) == STATUS_OK;
    if (!sends_results(k))
        return true;
    if (k->world->ops->wait_sent(k->world, 0, 1) != STATUS_OK)
        return false;
    result_message_write(&r->shape, message, out, step);
    bytes = result_message_bytes(&r->shape, step);
    return k->world->ops->isend(k->world, message, bytes, 0) == STATUS_OK;
}

// Runs one step on a rank of several stages, to the end. After a failure the rank runs no more.
static enum status run_stage(struct rank *k, const struct step *step, struct err *err) {
    const struct ranks *r = k->all;
    struct comm *world = k->world;
    struct step_out out;
    float *resid = k->out[k->num_run % 2];
    bool ok = receive_residual(k, step);
    if (ok && !is_last_stage(k)) // the next stage has received the step before last from this buffer
        ok = world->ops->wait_sent(world, k->id + r->tensor, 1) == STATUS_OK;
    if (ok) {
        model_forward(r->ops, k->dev, &k->model, step, k->stage > 0 ? k->in : NULL, resid);
        if (r->ops->sync(k->dev, &out, err) != STATUS_OK) {
            abort_comms(k, err->msg);
            return STATUS_DEVICE;
        }
        ok = send_output(k, step, &out, resid);
    }
    k->num_run++;
    if (ok)
        return STATUS_OK;
    abort_comms(k, world->ops->error(world));
    return err_set(err, STATUS_DEVICE, "rank %d of %d: %s", k->id, r->world, world->ops->error(world));
}

static enum status begin_step(struct rank *k, const struct step *step, struct err *err) {
    const struct ranks *r = k->all;
    if (r->stages > 1)
        return run_stage(k, step, err);
    model_forward(r->ops, k->dev, &k->model, step, NULL, NULL);
    return STATUS_OK;
}

static enum status end_step(struct rank *k, struct err *err) {
    const struct ranks *r = k->all;
    struct step_out out;
    return r->stages > 1 ? STATUS_OK : r->ops->sync(k->dev, &out, err);
}

// Whether the thread of a rank has a step to end before it begins another one. Under lock.
static bool is_ending(const struct rank *k) {
    const struct ranks *r = k->all;
    if (k->ended == k->begun)
        return false;
    return !r->runs_ahead || (k->begun == r->launched && (r->stop || k->ended < r->collected));
}

static void *rank_main(void *arg) {
    struct rank *k = arg;
    struct ranks *r = k->all;
    pthread_mutex_lock(&r->lock);
    for (;;) {
        struct err err = {0};
        enum status st;
        if (is_ending(k)) {
            pthread_mutex_unlock(&r->lock);
            st = end_step(k, &err);
            pthread_mutex_lock(&r->lock);
            if (--r->running[k->ended++ % PLAN_MAX_DEPTH] == 0)
                pthread_cond_signal(&r->done);
        } else if (k->begun < r->launched) {
            const struct step *step = r->steps[k->begun++ % PLAN_MAX_DEPTH];
            pthread_mutex_unlock(&r->lock);
            st = begin_step(k, step, &err);
            pthread_mutex_lock(&r->lock);
        } else if (!r->stop) {
            pthread_cond_wait(&r->work, &r->lock);
            continue;
        } else {
            break;
        }
        if (st != STATUS_OK && r->failure.code == STATUS_OK)
            err_set(&r->failure, st, "%s", err.msg);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

// ---- all ranks

static void *alloc_residual(struct rank *k, size_t bytes) {
    const struct backend_ops *ops = k->all->ops;
    return ops->host_alloc ? ops->host_alloc(k->dev, bytes) : calloc(1, bytes);
}

static void free_residual(struct rank *k, float *p) {
    if (k->all->ops->host_free && k->dev)
        k->all->ops->host_free(k->dev, p);
    else
        free(p);
}

// Buffers for the residual streams of the neighbouring stages, and for result messages.
static enum status reserve_messages(struct rank *k, const struct step_limits *limits) {
    struct ranks *r = k->all;
    size_t resid = residual_bytes(k, limits->max_tokens);
    size_t message = result_message_max_bytes(&r->shape, limits);
    bool ok = true;
    if (r->stages == 1)
        return STATUS_OK;
    if (k->stage > 0)
        ok &= (k->in = alloc_residual(k, resid)) != NULL;
    for (int i = 0; i < 2; i++) {
        if (!is_last_stage(k))
            ok &= (k->out[i] = alloc_residual(k, resid)) != NULL;
        if (sends_results(k))
            ok &= (k->message[i] = malloc(message)) != NULL;
        if (k->id == 0)
            ok &= results_init(&r->results[i], &r->shape, limits) == STATUS_OK;
    }
    if (k->id == 0)
        ok &= (r->message = malloc(message)) != NULL;
    return ok ? STATUS_OK : STATUS_NOMEM;
}

enum status ranks_reserve(struct ranks *r, const struct step_limits *limits, struct err *err) {
    struct device_info device;
    r->ops->info(r->rank[0].dev, &device);
    r->runs_ahead = device.async && r->stages == 1;
    r->shape =
        (struct result_shape){r->whole.vocab, r->whole.hidden, limits->keep_logits, limits->keep_hidden};
    for (int i = 0; i < r->here; i++) {
        struct rank *k = &r->rank[i];
        enum status st = r->ops->reserve(k->dev, limits, err);
        if (st != STATUS_OK)
            return st;
        if (reserve_messages(k, limits) != STATUS_OK)
            return err_set(err, STATUS_NOMEM, "no memory for what rank %d sends", k->id);
        if (i > 0 && pthread_create(&k->thread, NULL, rank_main, k) != 0)
            return err_set(err, STATUS_NOMEM, "cannot start the thread of rank %d", k->id);
        k->started = i > 0;
    }
    return STATUS_OK;
}

// Loads an adapter into one rank: its layers, and its part of each matrix.
static enum status load_adapter(struct ranks *r, struct rank *k, int slot, const struct adapter_matrix *all,
                                const enum dtype *down, struct err *err) {
    struct shard s = shard_of(r, k->id);
    int begin, end;
    shard_layers(&s, &begin, &end);
    size_t n = (size_t)(end - begin) * ADAPTER_TARGETS, first = (size_t)begin * ADAPTER_TARGETS, bytes = 0;
    for (size_t i = first; i < first + n; i++)
        bytes += all[i].a.data
                     ? (size_t)all[i].a.shape[0] * dtype_row_bytes(all[i].a.dtype, all[i].a.shape[1])
                     : 0;
    struct adapter_matrix *own = malloc(n * sizeof *own);
    char *scratch = malloc(bytes + 1), *at = scratch;
    enum status st = own && scratch ? STATUS_OK : err_set(err, STATUS_NOMEM, "no memory for an adapter");
    for (size_t i = 0; i < n && st == STATUS_OK; i++) {
        own[i] = all[first + i];
        if (!own[i].a.data)
            continue;
        int layer = begin + (int)(i / ADAPTER_TARGETS);
        shard_cut_adapter(&s, layer, (enum adapter_target)(i % ADAPTER_TARGETS), down[layer], at, &own[i]);
        at += (size_t)own[i].a.shape[0] * dtype_row_bytes(own[i].a.dtype, own[i].a.shape[1]);
    }
    if (st == STATUS_OK)
        st = r->ops->adapter_load(k->dev, slot, &(struct adapter_desc){own}, err);
    free(own);
    free(scratch);
    return st;
}

enum status ranks_adapter_load(struct ranks *r, int slot, const struct adapter_matrix *matrices,
                               const enum dtype *down, struct err *err) {
    for (int i = 0; i < r->here; i++) {
        enum status st = load_adapter(r, &r->rank[i], slot, matrices, down, err);
        if (st == STATUS_OK)
            continue;
        while (i-- > 0)
            r->ops->adapter_free(r->rank[i].dev, slot);
        return st;
    }
    return STATUS_OK;
}

void ranks_adapter_free(struct ranks *r, int slot) {
    for (int i = 0; i < r->here; i++)
        r->ops->adapter_free(r->rank[i].dev, slot);
}

void ranks_close(struct ranks *r) {
    if (!r)
        return;
    struct comm *world = r->rank[0].world;
    if (world && r->synced < r->launched) // or the last stage waits for rank 0 to receive their results
        world->ops->abort(world, "closed with steps in flight");
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < r->here; i++)
        if (r->rank[i].started)
            pthread_join(r->rank[i].thread, NULL);
    for (int i = 0; i < r->here; i++) {
        struct rank *k = &r->rank[i];
        free_residual(k, k->in);
        for (int j = 0; j < 2; j++) {
            free_residual(k, k->out[j]);
            free(k->message[j]);
        }
        weights_free(&k->model);
        if (k->dev)
            r->ops->close(k->dev);
    }
    for (int i = 0; i < COMM_MAX_WORLD; i++)
        comm_threads_close(r->groups[i]);
    comm_threads_close(r->everyone);
    free(r->message);
    results_destroy(&r->results[0]);
    results_destroy(&r->results[1]);
    pthread_cond_destroy(&r->work);
    pthread_cond_destroy(&r->done);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

int ranks_here(const struct ranks *r) { return r->here; }

void ranks_info_of(struct ranks *r, int rank, struct device_info *info, size_t *kv_block_bytes) {
    r->ops->info(r->rank[rank].dev, info);
    *kv_block_bytes = r->ops->kv_block_bytes(r->rank[rank].dev);
}

void ranks_info(struct ranks *r, struct device_info *info) {
    struct device_info one;
    r->ops->info(r->rank[0].dev, info);
    for (int i = 1; i < r->here; i++) {
        r->ops->info(r->rank[i].dev, &one);
        info->weight_bytes += one.weight_bytes;
    }
    memcpy(one.name, info->name, sizeof one.name);
    if (r->stages > 1 && r->tensor > 1)
        snprintf(info->name, sizeof info->name, "%d stages of %d ranks of %.50s", r->stages, r->tensor,
                 one.name);
    else if (r->world > 1)
        snprintf(info->name, sizeof info->name, "%d %s of %.70s", r->world,
                 r->stages > 1 ? "stages" : "ranks", one.name);
}

size_t ranks_kv_block_bytes(struct ranks *r) {
    size_t bytes = 0;
    for (int i = 0; i < r->here; i++)
        bytes += r->ops->kv_block_bytes(r->rank[i].dev);
    return bytes;
}

size_t ranks_workspace_of(struct ranks *r, int rank, const struct step_limits *limits) {
    return r->ops->workspace_bytes ? r->ops->workspace_bytes(r->rank[rank].dev, limits) : 0;
}

void ranks_kv_copy(struct ranks *r, const struct kv_move *moves, int num_moves) {
    CHECK(r->world == 1);
    r->ops->kv_copy(r->rank[0].dev, moves, num_moves);
}

void *ranks_host_page(struct ranks *r, int32_t page) {
    CHECK(r->world == 1);
    return r->ops->kv_host_page(r->rank[0].dev, page);
}

void ranks_host_clear(struct ranks *r, int32_t page, int group) {
    if (r->ops->kv_host_clear)
        r->ops->kv_host_clear(r->rank[0].dev, page, group);
}

bool ranks_kv_copied(struct ranks *r) { return !r->ops->kv_copied || r->ops->kv_copied(r->rank[0].dev); }

void ranks_launch(struct ranks *r, const struct step *step) {
    struct rank *k = &r->rank[0];
    int at = (int)(r->launched % PLAN_MAX_DEPTH);
    CHECK(r->launched - r->synced < PLAN_MAX_DEPTH);
    if (r->here == 1) { // no other thread reads them
        r->steps[at] = step;
        r->launched++;
    } else {
        pthread_mutex_lock(&r->lock);
        r->steps[at] = step;
        r->running[at] = r->here - 1;
        r->launched++;
        pthread_cond_broadcast(&r->work);
        pthread_mutex_unlock(&r->lock);
    }
    if (r->stages > 1) {
        struct err err = {0}; // aborts the others, from which ranks_sync() learns of it
        if (run_stage(k, step, &err) != STATUS_OK && k->id > 0)
            err_set(&r->first_failure, err.code, "%s", err.msg);
    } else {
        model_forward(r->ops, k->dev, &k->model, step, NULL, NULL);
    }
}

// Rank 0: the results of the last stage.
static enum status receive_results(struct ranks *r, const struct step *step, struct step_out *out,
                                   struct err *err) {
    struct comm *world = r->rank[0].world;
    size_t bytes = result_message_bytes(&r->shape, step);
    if (world->ops->recv(world, r->message, bytes, (r->stages - 1) * r->tensor) != STATUS_OK)
        return err_set(err, STATUS_DEVICE, "rank 0 of %d: %s", r->world, world->ops->error(world));
    result_message_read(&r->shape, &r->results[r->synced % 2], r->message, step, out);
    return STATUS_OK;
}

enum status ranks_sync(struct ranks *r, struct step_out *out, struct err *err) {
    int at = (int)(r->synced % PLAN_MAX_DEPTH);
    CHECK(r->synced < r->launched);
    enum status st = STATUS_OK;
    if (r->runs_ahead && r->here > 1) {
        pthread_mutex_lock(&r->lock);
        r->collected++;
        pthread_cond_broadcast(&r->work);
        pthread_mutex_unlock(&r->lock);
    }
    if (r->stages == 1)
        st = r->ops->sync(r->rank[0].dev, out, err);
    else if (r->first == 0)
        st = receive_results(r, r->steps[at], out, err);
    else if (r->first_failure.code != STATUS_OK) // rank 0 alone receives results
        st = err_set(err, STATUS_DEVICE, "%s", r->first_failure.msg);
    if (r->here > 1) {
        pthread_mutex_lock(&r->lock);
        while (r->running[at] > 0)
            pthread_cond_wait(&r->done, &r->lock);
        if (st == STATUS_OK && r->failure.code != STATUS_OK)
            st = err_set(err, STATUS_DEVICE, "%s", r->failure.msg);
        pthread_mutex_unlock(&r->lock);
    }
    r->synced++;
    return st;
}
