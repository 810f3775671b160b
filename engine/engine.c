// Opens a model on its devices, sizes what steps need, and runs them. Over 600 lines: opening and running share the state.
#include "engine.h"

#include "adapters.h"
#include "backend_load.h"
#include "batch.h"
#include "clock.h"
#include "draft.h"
#include "engine_store.h"
#include "log.h"
#include "mask_worker.h"
#include "minmax.h"
#include "models/model_config.h"
#include "models/model_file.h"
#include "models/model_hash.h"
#include "models/mtp.h"
#include "models/weights.h"
#include "pooler.h"
#include "ranks/process_group.h"
#include "ranks/ranks.h"
#include "ranks/workers.h"
#include "settings.h"
#include "text/tokenizer_load.h"
#include "warm_up.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

// Tables and queues are sized for this length if the user names none: a file may claim any context, and a table per
// position must not take gigabytes for the claim.
enum { DEFAULT_MAX_LEN = 131072 };

// Recurrent state: tokens between two snapshots of a sequence. Each is as large as a block's keys and values, and saves
// the next turn of a dialogue from computing at most so many tokens again.
enum { SNAPSHOT_TOKENS = 256 };

// A step in flight.
struct engine_step {
    struct batch batch;
    const struct plan *plan; // NULL: free
    struct step_times times;
    struct mask_worker *masks; // the engine's
};

struct engine {
    struct ranks *ranks;     // the devices
    struct model_file *file; // the tokenizer and rope factors point into it
    struct tokenizer *tokenizer;
    struct model_config model;
    struct pool_head head;
    struct adapters adapters;
    struct kv_cache kv;
    struct kv_store *store; // or NULL
    // The ring of steps in flight: plan id modulo num_steps, which is info.depth, but at least 2, as the
    // results of two stay valid.
    struct engine_step steps[PLAN_MAX_DEPTH];
    int num_steps, num_in_flight;
    uint64_t oldest; // plan id of the oldest in flight
    struct mask_worker masks;
    struct processes *processes; // borrowed; NULL: this one alone
    int64_t all_block_bytes;     // of one block of the cache, on all ranks
    struct workers workers;      // with processes
    struct engine *draft;        // or NULL
    struct engine *mtp_of;       // this is the MTP layer of its model, or NULL
    bool open;                   // followers run
    struct engine_info info;
};

static void host_log(int level, const char *text) { log_msg((enum log_level)level, "%s", text); }
static const struct backend_host host = {.log = host_log};

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

// The most that a step may hold.
static struct step_limits step_limits(const struct engine *e, const struct engine_config *c) {
    return (struct step_limits){
        .max_tokens = c->max_num_batched_tokens,
        .max_seqs = min_int(plan_max_samples(c->max_num_seqs), c->max_num_batched_tokens),
        .max_rows = c->max_num_batched_tokens,
        .max_context = e->info.max_model_len,
        .num_blocks = e->info.num_blocks,
        .num_host_pages = e->info.num_host_pages,
        .keep_logits = c->keep_logits,
        .keep_hidden = e->model.pooling != POOLING_NONE || e->mtp_of || (e->draft && e->draft->mtp_of),
        .max_adapters = c->max_loras,
        .max_adapter_rank = c->max_lora_rank,
        .has_types = e->model.token_types > 1,
        .embed_size = e->info.embed_size,
        .has_axes = e->info.has_axes,
    };
}

// Bytes that the cache may take where the user names none.
static uint64_t cache_room(const struct device_info *memory, double utilization, size_t workspace) {
    if (memory->memory_total == 0)
        return memory->memory_free / 4;
    double share = utilization > 0 ? utilization : 0.9;
    uint64_t used = memory->memory_total - memory->memory_free;
    uint64_t may = (uint64_t)((double)memory->memory_total * share);
    uint64_t room = may > used + workspace ? may - used - workspace : 0;
    log_msg(LOG_INFO,
            "device memory: %llu MiB, %llu in use, weights %llu, workspace of a step %llu; "
            "--gpu-memory-utilization %.2f leaves %llu for the KV cache",
            (unsigned long long)(memory->memory_total >> 20), (unsigned long long)(used >> 20),
            (unsigned long long)(memory->weight_bytes >> 20), (unsigned long long)(workspace >> 20), share,
            (unsigned long long)(room >> 20));
    return room;
}

// How many blocks of the cache the memory of every rank has room for: all of it, or where `pick` what they
// may take of it by default. Ranks without memory of their own share the host's.
static int64_t find_room(struct engine *e, const struct engine_config *c, bool pick) {
    const struct step_limits limits = step_limits(e, c);
    double utilization = c->gpu_memory_utilization;
    int64_t room = INT64_MAX;
    struct device_info memory = {0}, info;
    size_t bytes, shared = 0;
    for (int i = 0; i < ranks_here(e->ranks); i++) {
        ranks_info_of(e->ranks, i, &info, &bytes);
        if (info.memory_total > 0) {
            size_t workspace = ranks_workspace_of(e->ranks, i, &limits);
            uint64_t free_bytes = pick ? cache_room(&info, utilization, workspace) : info.memory_free;
            room = min64(room, (int64_t)(free_bytes / bytes));
        } else {
            memory = info;
            shared += bytes;
        }
    }
    if (e->draft) // it runs on the host, as the other ranks then do
        shared += ranks_kv_block_bytes(e->draft->ranks);
    if (e->processes) // those of one machine share its memory
        memory.memory_free /= (size_t)processes_on_host(e->processes);
    if (shared > 0) {
        uint64_t free_bytes = pick ? cache_room(&memory, utilization, 0) : memory.memory_free;
        room = min64(room, (int64_t)(free_bytes / shared));
    }
    return room;
}

// ---- several processes

// A failure of one process is one of all. Alone, st and err are the result.
static enum status check_all(const struct engine *e, enum status st, struct err *err) {
    return e->processes ? processes_check_status(e->processes, err) : st;
}

// With stages each has a plan to work on, and a request is not planned again before its token is back: it
// would wait in the first stage for what the last one has not sampled.
static void choose_depth(struct engine *e, const struct engine_config *c) {
    struct device_info device;
    ranks_info(e->ranks, &device);
    bool async = device.async, stages = c->pipeline_parallel_size > 1;
    int depth = stages ? c->pipeline_parallel_size : async ? 2 : 1;
    if (c->depth > 0)
        depth = c->depth;
    depth = depth < PLAN_MAX_DEPTH ? depth : PLAN_MAX_DEPTH; // there may be more stages
    if (!stages && depth > 2)                                // a device keeps the results of two steps
        depth = 2;
    if (stages) // results wait in a stage until they are collected
        depth = min_int(depth, 2 * c->pipeline_parallel_size);
    e->info.depth = depth;
    e->info.async = !stages && depth > 1;
    e->num_steps = depth > 2 ? depth : 2;
}

// The bookkeeping of a cache of num_blocks pages, without its key.
static struct kv_config cache_config(const struct engine *e, const struct engine_config *c, int num_blocks) {
    struct kv_config kv = {
        .num_blocks = num_blocks,
        .block_size = c->block_size,
        .num_groups = e->model.num_groups,
        .max_ahead = (int)min64((int64_t)e->info.depth * c->max_num_batched_tokens, INT32_MAX),
        .snapshot_tokens = SNAPSHOT_TOKENS,
        .share = c->prefix_caching,
    };
    memcpy(kv.groups, e->model.groups, sizeof kv.groups);
    return kv;
}

// Decides how many blocks the cache has and how long a request may be. Without a wish of the user: enough for
// every sequence at full length, but at most a quarter of what memory is free, or on a device with memory of
// its own what --gpu-memory-utilization leaves beside the weights and what a step works in. A request that is longer than the whole
// cache could never run, so the length is lowered to the cache.
static enum status choose_blocks(struct engine *e, const struct engine_config *c, int64_t *num_blocks,
                                 struct err *err) {
    struct engine_info *info = &e->info;
    const struct kv_config kv = cache_config(e, c, 0);
    int64_t wanted = kv_pages(&kv, info->max_model_len) * c->max_num_seqs, blocks;
    struct device_info memory;
    ranks_info(e->ranks, &memory);
    if (c->num_kv_blocks > 0) {
        blocks = c->num_kv_blocks;
    } else if (c->kv_cache_bytes > 0) {
        blocks = c->kv_cache_bytes / e->all_block_bytes;
    } else {
        blocks = min64(wanted, find_room(e, c, true));
    }
    if (blocks > find_room(e, c, false))
        return err_set(
            err, STATUS_INVALID,
            "a KV cache of %lld blocks of %lld bytes is more than the %lld MiB of free memory; lower "
            "--num-kv-blocks or --kv-cache-memory",
            (long long)blocks, (long long)e->all_block_bytes, (long long)(memory.memory_free >> 20));
    if (blocks < 1)
        return err_set(err, STATUS_INVALID,
                       "the KV cache has no room for one block of %d tokens (%lld bytes); raise %s",
                       c->block_size, (long long)e->all_block_bytes,
                       memory.memory_total > 0 ? "--gpu-memory-utilization or lower --max-num-batched-tokens"
                                               : "--kv-cache-memory");
    *num_blocks = min64(blocks, INT32_MAX / (c->block_size > 4 ? c->block_size : 4));
    return STATUS_OK;
}

// With several processes, what the one with the least memory can.
static enum status size_cache(struct engine *e, const struct engine_config *c, struct err *err) {
    struct engine_info *info = &e->info;
    uint64_t per_block = ranks_kv_block_bytes(e->ranks);
    int64_t blocks = 0;
    if (e->draft)
        per_block += ranks_kv_block_bytes(e->draft->ranks);
    enum status st = e->processes ? processes_all_sum(e->processes, &per_block, err) : STATUS_OK;
    if (st != STATUS_OK)
        return st;
    e->all_block_bytes = (int64_t)per_block;
    choose_depth(e, c);
    st = check_all(e, choose_blocks(e, c, &blocks, err), err);
    if (st == STATUS_OK && e->processes)
        st = processes_all_min(e->processes, &blocks, err);
    if (st != STATUS_OK)
        return st;
    info->num_blocks = (int)blocks;
    if (c->kv_store)
        info->num_host_pages = store_host_pages(per_block);
    info->kv_bytes = (uint64_t)blocks * per_block;
    const struct kv_config kv = cache_config(e, c, info->num_blocks);
    int fits = kv_max_tokens(&kv, info->max_model_len);
    if (fits == 0)
        return err_set(err, STATUS_INVALID,
                       "a KV cache of %d blocks of %d tokens has no room for one sequence; it needs %d",
                       info->num_blocks, c->block_size, (int)kv_pages(&kv, 1));
    if (fits < info->max_model_len) {
        info->max_model_len = fits;
        log_msg(LOG_WARN, "max_model_len lowered to %d tokens: the KV cache has %d blocks of %d",
                info->max_model_len, info->num_blocks, c->block_size);
    }
    return STATUS_OK;
}

static enum status check_sizes(struct engine *e, struct engine_config *c, struct err *err) {
    struct engine_info *info = &e->info;
    // Keys lie in tiles of 16 tokens.
    if (c->block_size < 16 || c->block_size > 4096 || c->block_size % 16 != 0)
        return err_set(err, STATUS_INVALID, "--block-size %d is not a multiple of 16 from 16 to 4096",
                       c->block_size);
    if (c->max_model_len < 0 || c->max_model_len > e->model.max_context)
        return err_set(err, STATUS_INVALID,
                       "--max-model-len %d is more than the %d tokens the model was trained for",
                       c->max_model_len, e->model.max_context);
    info->max_model_len = c->max_model_len > 0 ? c->max_model_len : e->model.max_context;
    if (c->max_model_len == 0 && info->max_model_len > DEFAULT_MAX_LEN) {
        info->max_model_len = DEFAULT_MAX_LEN;
        log_msg(LOG_INFO, "max_model_len %d of the %d that the model allows; --max-model-len raises it",
                DEFAULT_MAX_LEN, e->model.max_context);
    }
    for (int i = 0; i < e->model.num_ropes; i++)
        if (e->model.ropes[i].long_factors && info->max_model_len > e->model.ropes[i].original_context)
            e->model.ropes[i].freq_factors = e->model.ropes[i].long_factors;
    info->block_size = c->block_size;
    return STATUS_OK;
}

// The size of a step, once it is known which device has taken the model.
static enum status choose_batch(struct engine *e, struct engine_config *c, struct err *err) {
    struct engine_info *info = &e->info;
    struct device_info device;
    ranks_info(e->ranks, &device);
    if (c->no_batch_invariant && !device.batch_dependent)
        log_msg(LOG_INFO, "--no-batch-invariant changes nothing here: no bits depend on the batch");
    settings_batch(c, device.memory_total > 0, model_is_bidirectional(&e->model), &info->max_model_len);
    if (c->max_num_seqs < 1 || c->max_num_batched_tokens < c->max_num_seqs)
        return err_set(
            err, STATUS_INVALID,
            "--max-num-batched-tokens (%d) must be at least --max-num-seqs (%d), and both positive",
            c->max_num_batched_tokens, c->max_num_seqs);
    info->max_num_seqs = c->max_num_seqs;
    info->max_num_batched_tokens = c->max_num_batched_tokens;
    // Stages in several processes send each other the residual stream of a step as one message.
    if (e->processes && c->pipeline_parallel_size > 1 &&
        (int64_t)c->max_num_batched_tokens * e->model.hidden > INT32_MAX / (int64_t)sizeof(float))
        return err_set(err, STATUS_INVALID,
                       "--max-num-batched-tokens %d of %d values are more than stages can send each other; "
                       "lower it to %d",
                       c->max_num_batched_tokens, e->model.hidden,
                       (int)(INT32_MAX / (int64_t)sizeof(float) / e->model.hidden));
    return STATUS_OK;
}

// CUDA where a device works; else the CPU. Warns about the fallback if the user named `auto` or has both module and
// driver.
static void choose_device(struct engine *e, struct ranks_config *config, bool named) {
    struct err why = {0};
    if ((named || backend_cuda_at_hand()) && backend_find("cuda", &config->ops, &why) == STATUS_OK)
        e->ranks = ranks_open(config, &why);
    if (e->ranks)
        return;
    if (why.code != STATUS_OK)
        log_msg(LOG_WARN, "the model runs on the CPU, as CUDA does not work here: %s", why.msg);
    config->ops = &backend_cpu;
}

#define WAYS_OUT "; quire quantize makes a smaller one, --pipeline-parallel-size shares it among machines"

// Weights that cannot fit into the host's memory are refused before the kernel ends us for them. Of a file
// whose floats are converted it is not known here what they will take.
static enum status check_room(const struct engine *e, const struct ranks_config *config, enum dtype floats,
                              struct err *err) {
    struct device_info memory;
    ranks_info(e->ranks, &memory);
    uint64_t need = e->file->size, processes = 1, here = 1;
    if (config->ops != &backend_cpu || floats != DTYPE_COUNT || e->mtp_of) // of which the file is the most
        return STATUS_OK;
    if (e->processes) {
        processes = (uint64_t)processes_count(e->processes);
        here = (uint64_t)processes_on_host(e->processes);
    }
    need = need / processes * here;
    if (need <= memory.memory_free)
        return STATUS_OK;
    return err_set(err, STATUS_INVALID, "the model takes %llu MiB, and %llu MiB of memory are free" WAYS_OUT,
                   (unsigned long long)(need >> 20), (unsigned long long)(memory.memory_free >> 20));
}

// A limit of the process, as ulimit -v, may be below what is free.
static enum status load_into(const struct engine *e, const struct engine_config *c,
                             const struct ranks_config *config, enum dtype floats, struct err *err) {
    enum status st = ranks_load(e->ranks, e->file, floats, c->progress, c->progress_arg, err);
    struct err cause = *err;
    if (st != STATUS_NOMEM || config->ops != &backend_cpu)
        return st;
    *err = (struct err){0};
    return err_set(err, st, "the model has no room (%s)" WAYS_OUT, cause.msg);
}

// If the user named no device, a model that CUDA's does not take (experts with gate and up of unlike types) runs
// on the CPU.
static enum status load_weights(struct engine *e, const struct engine_config *c, struct ranks_config *config,
                                enum dtype floats, bool choose, struct err *err) {
    if (check_room(e, config, floats, err) != STATUS_OK)
        return err->code;
    enum status st = load_into(e, c, config, floats, err);
    if (st != STATUS_INVALID || !choose || config->ops == &backend_cpu || e->processes)
        return st; // of several processes another one may have taken its part
    log_msg(LOG_WARN, "the model runs on the CPU: %s", err->msg);
    *err = (struct err){0};
    ranks_close(e->ranks);
    config->ops = &backend_cpu;
    if (!(e->ranks = ranks_open(config, err)) || check_room(e, config, floats, err) != STATUS_OK)
        return err->code;
    return load_into(e, c, config, floats, err);
}

// Choices that opening has made before there is a device.
struct opening {
    struct ranks_config ranks;
    enum dtype floats, dtype;
    bool choose; // the device
    char model_hash[MODEL_HASH_BYTES];
};

// How many ranks share a layer, and in how many stages; what the processes of a launcher do not say, the
// flags do.
static enum status share_out(const struct engine_config *c, struct ranks_config *r, struct err *err) {
    int processes = c->processes ? processes_count(c->processes) : 1;
    r->stages = c->pipeline_parallel_size > 1 ? c->pipeline_parallel_size : 1;
    r->tensor = c->tensor_parallel_size;
    if (r->tensor < 1)
        r->tensor = processes % r->stages == 0 ? processes / r->stages : 1;
    int world = r->tensor * r->stages, each = world / processes;
    char possible[RANKS_LIST];
    ranks_list(r->tensor, r->stages, possible);
    if (world % processes != 0)
        return err_set(err, STATUS_INVALID,
                       "%d processes cannot have equal shares of %d ranks (--tensor-parallel-size %d, "
                       "--pipeline-parallel-size %d); possible numbers of processes: %s",
                       processes, world, r->tensor, r->stages, possible);
    if (each > 1 && each % r->tensor != 0)
        return err_set(
            err, STATUS_INVALID,
            "%d processes would have %d ranks each, but the %d ranks that share a layer must be in one "
            "process, or each in a process of its own; possible numbers of processes: %s",
            processes, each, r->tensor, possible);
    return STATUS_OK;
}

// Sets the size of a block where the configuration has none.
static enum status open_model(struct engine *e, struct engine_config *c, struct opening *o, struct err *err) {
    enum dtype kv_dtype = DTYPE_F32;
    bool kv_either = false;
    enum status st;
    if (c->exact && c->no_batch_invariant)
        return err_set(
            err, STATUS_INVALID,
            "--exact keeps a request's bits whatever the batch, --no-batch-invariant gives them up "
            "for speed: leave one out");
    if ((st = share_out(c, &o->ranks, err)) != STATUS_OK)
        return st;
    o->choose = !c->device || strcmp(c->device, "auto") == 0; // CUDA where there is a device, else CPU
    if ((!o->choose && (st = backend_find(c->device, &o->ranks.ops, err)) != STATUS_OK) ||
        (st = settings_dtype(c->dtype, &o->floats, err)) != STATUS_OK)
        return st;
    if (!(e->file = model_file_open(c->path, err)))
        return err->code;
    if (e->mtp_of)
        st = mtp_config(e->file, &e->mtp_of->model, &e->model, err);
    else
        st = model_config_read(e->file, &e->model, err);
    if (st != STATUS_OK || (st = settings_pooling(c->pooling, &e->model, err)) != STATUS_OK ||
        (st = settings_embeds(c->prompt_embeds, &e->model, &e->info.embed_size, err)) != STATUS_OK ||
        (st = weights_check(&e->model, e->file, err)) != STATUS_OK ||
        (st = pool_head_load(&e->head, &e->model, e->file, err)) != STATUS_OK)
        return st;
    e->info.has_axes = model_has_axes(&e->model) && !e->mtp_of;
    if (e->mtp_of) {
        e->info.mtp_size = e->info.embed_size = e->model.hidden;
        o->ranks.lender = e->mtp_of->ranks;
    } else if (!(e->tokenizer = tokenizer_load(e->file, err)))
        return err->code;
    o->dtype = weights_main_dtype(e->file, o->floats);
    if ((st = settings_kv_dtype(c->kv_dtype, o->dtype, &kv_dtype, &kv_either, err)) != STATUS_OK)
        return st;
    if (c->block_size == 0)
        c->block_size = settings_block_size(&e->model, kv_dtype);
    if ((st = check_sizes(e, c, err)) != STATUS_OK)
        return st;
    o->ranks.device = (struct device_config){
        .model = &e->model,
        .num_threads = c->num_threads,
        .variant = c->variant,
        .kv_dtype = kv_dtype,
        .kv_either = kv_either,
        .block_size = c->block_size,
        .exact = c->exact,
        .no_batch_invariant = c->no_batch_invariant,
    };
    weights_blocks(&e->model, e->file, o->floats, &o->ranks.blocks);
    if ((st = shard_check(&e->model, &o->ranks.blocks, o->ranks.tensor, err)) != STATUS_OK ||
        (st = shard_check_stages(&e->model, o->ranks.tensor, o->ranks.stages, err)) != STATUS_OK)
        return st;
    if (!e->processes)
        return STATUS_OK;
    double began = clock_now_s();
    st = model_hash_file(e->file, o->model_hash, err);
    log_msg(LOG_INFO, "process=%d model_hash=%s model_hash_ms=%.0f", processes_index(e->processes),
            o->model_hash, (clock_now_s() - began) * 1e3);
    return st;
}

// The devices and the file of all processes must be the same.
static enum status compare_model(const struct engine *e, const struct opening *o, struct err *err) {
    struct device_info device;
    CHECK(o->ranks.ops);
    ranks_info(e->ranks, &device);
    return settings_compare_model(
        e->processes,
        &(struct model_settings){o->ranks.ops->name, device.numerics, e->file->size, o->model_hash}, err);
}

static enum status open_ranks(struct engine *e, const struct engine_config *c, struct opening *o,
                              struct err *err) {
    struct err refused = {0};
    if (o->choose)
        choose_device(e, &o->ranks, c->device != NULL);
    CHECK(o->ranks.ops);
    if (e->ranks || (e->ranks = ranks_open(&o->ranks, &refused)))
        return STATUS_OK;
    if (refused.code == STATUS_FORMAT)
        return err_set(err, STATUS_FORMAT, "%s: %s", c->path, refused.msg);
    if (refused.code == STATUS_DEVICE)
        return err_set(err, STATUS_DEVICE, "device '%s': %s", o->ranks.ops->name, refused.msg);
    return err_set(err, refused.code, "%s", refused.msg);
}

// All memory that steps need.
static enum status reserve_memory(struct engine *e, const struct engine_config *c, enum dtype floats,
                                  struct err *err) {
    const struct step_limits limits = step_limits(e, c);
    int64_t tables = (int64_t)limits.max_seqs * ((limits.max_context + c->block_size - 1) / c->block_size);
    if (tables > INT32_MAX || batch_max_entries(&limits, e->model.vocab) > INT32_MAX)
        return err_set(err, STATUS_INVALID,
                       "%d sequences of %d tokens are more than a step can name; lower --max-num-seqs or "
                       "--max-model-len",
                       limits.max_seqs, limits.max_context);
    uint64_t key[2];
    enum status st = ranks_reserve(e->ranks, &limits, err);
    if (st != STATUS_OK)
        return st;
    if (e->processes &&
        (st = workers_init(&e->workers, e->processes, &limits, &e->model, c->block_size, err)) != STATUS_OK)
        return st;
    if (getrandom(key, sizeof key, 0) != (ssize_t)sizeof key)
        return err_set(err, STATUS_IO, "no random bytes from the system for the prefix cache's key");
    if (e->store)
        kv_store_key(e->store, key);
    struct kv_config kv = cache_config(e, c, e->info.num_blocks);
    memcpy(kv.key, key, sizeof key);
    st = kv_init(&e->kv, &kv);
    if (st == STATUS_OK)
        st = adapters_init(&e->adapters, e->ranks, &e->kv, &e->model, e->file, floats, c);
    for (int i = 0; i < e->num_steps && st == STATUS_OK; i++)
        st = batch_init(&e->steps[i].batch, &limits, e->model.vocab, &kv);
    for (int i = 0; i < e->num_steps; i++)
        e->steps[i].masks = &e->masks;
    if (st == STATUS_OK && (!e->processes || processes_index(e->processes) == 0) &&
        mask_worker_open(&e->masks, e->model.vocab, err) != STATUS_OK)
        return err->code;
    if (st != STATUS_OK)
        return err_set(err, STATUS_NOMEM, "out of memory for a KV cache of %d blocks; lower --num-kv-blocks",
                       e->info.num_blocks);
    return STATUS_OK;
}

static enum status fill_info(struct engine *e, const struct opening *o, double start, struct err *err) {
    struct engine_info *info = &e->info;
    struct device_info device;
    ranks_info(e->ranks, &device);
    info->model = e->model;
    info->vector_size = e->head.size;
    info->vector_room = e->head.room;
    info->rank_template = model_config_rank_template(e->file, &info->rank_template_len);
    snprintf(info->device, sizeof info->device, "%s", device.name);
    snprintf(info->weights_dtype, sizeof info->weights_dtype, "%s", dtype_name(o->dtype));
    snprintf(info->kv_dtype, sizeof info->kv_dtype, "%s", dtype_name(device.kv_dtype));
    model_config_advice(e->file, &info->advice);
    info->num_params = weights_num_params(e->file);
    info->weight_bytes = device.weight_bytes;
    info->batch_dependent = device.batch_dependent;
    info->file_bytes = e->file->size;
    info->load_seconds = clock_now_s() - start;
    return e->processes ? processes_all_sum(e->processes, &info->weight_bytes, err) : STATUS_OK;
}

// Each step that may fail on one process alone ends with check_all(): so no process waits for another in vain.
static bool engine_load(struct engine *e, struct engine_config *c, struct opening *o, struct err *err) {
    return settings_compare_flags(c->processes, c, err) == STATUS_OK &&
           check_all(e, open_model(e, c, o, err), err) == STATUS_OK &&
           check_all(e, open_ranks(e, c, o, err), err) == STATUS_OK &&
           compare_model(e, o, err) == STATUS_OK &&
           check_all(e, load_weights(e, c, &o->ranks, o->floats, o->choose, err), err) == STATUS_OK &&
           check_all(e, choose_batch(e, c, err), err) == STATUS_OK &&
           check_all(e, adapters_check(c, o->ranks.ops, err), err) == STATUS_OK;
}

// Where the user names one. A draft model's pages, which cost little, are in none.
static enum status open_store(struct engine *e, const struct engine_config *c, const struct opening *o,
                              struct err *err) {
    struct device_info device;
    if (!c->kv_store)
        return STATUS_OK;
    ranks_info(e->ranks, &device);
    const struct store_of what = {.config = c,
                                  .ops = o->ranks.ops,
                                  .device = &device,
                                  .file = e->file,
                                  .model = &e->model,
                                  .ranks = o->ranks.tensor * o->ranks.stages,
                                  .dtype = dtype_name(o->dtype),
                                  .page_bytes = ranks_kv_block_bytes(e->ranks)};
    return store_open(&what, &e->store, err);
}

static bool engine_reserve(struct engine *e, const struct engine_config *c, const struct opening *o,
                           double start, struct err *err) {
    return size_cache(e, c, err) == STATUS_OK && open_store(e, c, o, err) == STATUS_OK &&
           check_all(e, reserve_memory(e, c, o->floats, err), err) == STATUS_OK &&
           fill_info(e, o, start, err) == STATUS_OK;
}

// Opens what drafts, if anything does, up to its weights. Without an MTP layer that must draft: it is left out.
static enum status open_draft(struct engine *e, const struct engine_config *c, const struct backend_ops *ops,
                              struct engine_config *draft, struct opening *o, struct err *err) {
    bool mtp = !c->draft_path, must = mtp && c->mtp == MTP_ALWAYS;
    if (mtp && !must && (c->mtp == MTP_NEVER || e->model.num_nextn == 0))
        return STATUS_OK;
    if (!(e->draft = calloc(1, sizeof *e->draft)))
        return err_set(err, STATUS_NOMEM, "out of memory");
    e->draft->mtp_of = mtp ? e : NULL;
    enum status st = mtp ? draft_mtp_config(c, ops, draft, err) : draft_config(c, ops, draft, err);
    if (st == STATUS_OK)
        st = engine_load(e->draft, draft, o, err) ? STATUS_OK : err->code;
    if (st == STATUS_OK && !mtp)
        st = draft_check(draft, &e->draft->model, e->tokenizer, e->draft->tokenizer, err);
    if (st == STATUS_OK || !mtp || must)
        return st;
    log_msg(LOG_INFO, "the MTP layer is left out: %s", err->msg);
    *err = (struct err){0};
    engine_close(e->draft);
    e->draft = NULL;
    return STATUS_OK;
}

// Weights first, of both models: the cache, of both, gets of the memory what they leave.
struct engine *engine_open(const struct engine_config *wanted, struct err *err) {
    double start = clock_now_s();
    struct engine_config config = *wanted, *c = &config, draft;
    struct err local = {0};
    struct opening o = {.ranks = {.host = &host, .processes = c->processes}, .floats = DTYPE_COUNT},
                   draft_o = {.ranks = {.host = &host}, .floats = DTYPE_COUNT};
    struct engine *e = calloc(1, sizeof *e);
    if (!err)
        err = &local;
    if (!e) {
        err_set(err, STATUS_NOMEM, "out of memory");
        return NULL;
    }
    e->processes = c->processes;
    if (!engine_load(e, c, &o, err))
        goto fail;
    if (check_all(e, open_draft(e, c, o.ranks.ops, &draft, &draft_o, err), err) != STATUS_OK)
        goto fail;
    if (!engine_reserve(e, c, &o, start, err))
        goto fail;
    if (e->draft) {
        draft.num_kv_blocks = e->info.num_blocks;
        if (!engine_reserve(e->draft, &draft, &draft_o, start, err))
            goto fail;
    }
    e->open = true;
    return e;

fail:
    engine_close(e);
    return NULL;
}

void engine_close(struct engine *e) {
    if (!e)
        return;
    engine_close(e->draft);
    if (e->open && e->processes && processes_index(e->processes) == 0)
        workers_stop(&e->workers);
    adapters_destroy(&e->adapters);
    kv_store_close(e->store); // it reads and writes pages of the device
    ranks_close(e->ranks);    // before: steps that were not collected still read their batches
    mask_worker_close(&e->masks);
    for (int i = 0; i < PLAN_MAX_DEPTH; i++)
        batch_destroy(&e->steps[i].batch);
    kv_destroy(&e->kv);
    workers_destroy(&e->workers);
    pool_head_free(&e->head);
    tokenizer_free(e->tokenizer);
    model_file_close(e->file);
    free(e);
}

const struct engine_info *engine_info(const struct engine *e) { return &e->info; }
const struct tokenizer *engine_tokenizer(const struct engine *e) { return e->tokenizer; }
struct kv_cache *engine_kv(struct engine *e) {
    return &e->kv;
}
struct engine *engine_draft(struct engine *e) {
    return e->draft;
}
struct kv_store *engine_store(struct engine *e) {
    return e->store;
}

void engine_kv_copy(struct engine *e, const struct kv_move *moves, int num_moves) {
    ranks_kv_copy(e->ranks, moves, num_moves);
}

bool engine_kv_copied(struct engine *e) { return ranks_kv_copied(e->ranks); }

void engine_host_clear(struct engine *e, int32_t page, int group) { ranks_host_clear(e->ranks, page, group); }

void *engine_host_page(struct engine *e, int32_t page) { return ranks_host_page(e->ranks, page); }

struct adapter *engine_adapter_open(struct engine *e, const char *path, struct err *err) {
    return adapters_open(&e->adapters, path, err);
}

enum status engine_warm_up(struct engine *e, struct err *err) {
    CHECK(e->num_in_flight == 0);
    return warm_up_run(&(struct warm_up){.ranks = e->ranks,
                                         .workers = e->processes ? &e->workers : NULL,
                                         .model = &e->model,
                                         .limits = e->steps[0].batch.limits,
                                         .block_size = e->info.block_size,
                                         .max_seqs = e->info.max_num_seqs},
                       err);
}

int engine_in_flight(const struct engine *e) { return e->num_in_flight; }

static struct engine_step *find_step(struct engine *e, uint64_t plan_id) {
    return &e->steps[plan_id % (uint64_t)e->num_steps];
}

// A device calls this before it reads the masks of a step.
static void wait_for_masks(void *arg) {
    const struct engine_step *step = arg;
    mask_worker_wait(step->masks, step->batch.ticket);
}

void engine_launch(struct engine *e, const struct plan *plan, const struct step_times *times) {
    struct engine_step *now = find_step(e, plan->id), *prev = find_step(e, plan->id - 1);
    if (e->num_in_flight == 0)
        e->oldest = plan->id;
    CHECK(!now->plan && plan->id == e->oldest + (uint64_t)e->num_in_flight);
    e->num_in_flight++;
    now->plan = plan;
    now->times = times ? *times : (struct step_times){0};
    batch_fill(&now->batch, plan, &e->kv, prev->plan ? &prev->batch : NULL, prev->plan);
    now->batch.ticket = 0;
    if (now->batch.num_masks > 0) {
        mask_worker_post(&e->masks, &now->batch);
        now->batch.step.masks_wait = wait_for_masks;
        now->batch.step.masks_arg = now;
    }
    if (e->processes)
        workers_send_step(&e->workers, &now->batch.step);
    ranks_launch(e->ranks, &now->batch.step);
}

void engine_notify_masks(struct engine *e, void (*notify)(void *arg), void *arg) {
    e->masks.notify = notify;
    e->masks.notify_arg = arg;
}

struct request *engine_take_ready(struct engine *e) {
    return mask_worker_take_ready(&e->masks);
}
void engine_forget(struct engine *e, const struct request *r) {
    if (r->filter)
        mask_worker_forget(&e->masks, r);
}

enum status engine_follow(struct engine *e, struct err *err) {
    CHECK(e->processes && processes_index(e->processes) > 0);
    return worker_loop(&e->workers, e->ranks, err);
}

enum status engine_alive(struct engine *e, struct err *err) {
    const char *why = e->processes ? processes_error(e->processes) : "";
    return *why ? err_set(err, STATUS_DEVICE, "%s", why) : STATUS_OK;
}

int64_t engine_watch_ns(const struct engine *e) { return e->processes ? 250000000 : -1; }

enum status engine_collect(struct engine *e, struct step_result *result, struct err *err) {
    static const struct step_result nothing;
    struct engine_step *step = find_step(e, e->oldest);
    struct step_out out;
    CHECK(e->num_in_flight > 0 && step->plan);
    *result = nothing;
    enum status status = ranks_sync(e->ranks, &out, err);
    // A device that failed may not have waited. The caller must not free a request while its filter is being asked.
    if (e->masks.posted > 0)
        mask_worker_wait(&e->masks, status == STATUS_OK ? step->batch.ticket : e->masks.posted);
    if (status == STATUS_OK) {
        step->batch.out = out;
        result->plan = step->plan;
        result->times = step->times;
        batch_outcome(&step->batch, step->plan, &out, &result->outcome);
        pooling_collect(step->plan, step->batch.first_row, &out, e->model.hidden, &e->head,
                        step->batch.failed);
        result->out = &step->batch.out;
        result->masks_ns = step->batch.ticket ? step->batch.masks_ns : 0;
        result->first_row = step->batch.first_row;
    }
    step->plan = NULL;
    e->oldest++;
    e->num_in_flight--;
    return status;
}
