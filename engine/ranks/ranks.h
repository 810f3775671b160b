// The devices of one model: one, or a grid of ranks. A stage has some of the layers, and the ranks of a stage
// share each of them; rank = stage * (ranks of a stage) + place in the stage. Rank 0 is the caller's thread,
// each other rank a thread that runs the same steps on its own device and its own part of the weights. For
// the rest of the engine they are one device.
//
// Ranks exchange only messages and sums, through struct comm, and do the same whether another rank is a
// thread of this process or is in another one.
//
// Thread: open, load, reserve and close from the main thread; launch and sync from the engine thread.
#pragma once

#include "models/model_file.h"
#include "models/shard.h"
#include "processes.h"

struct ranks;

struct ranks_config {
    const struct backend_ops *ops;
    const struct backend_host *host;
    // As of one device; num_threads are divided among the ranks, at least one each.
    struct device_config device;
    struct shard_blocks blocks;  // of the file, for tensor > 1
    int tensor, stages;          // ranks that share a layer, stages; >= 1 each
    struct processes *processes; // they hold the ranks, in equal shares; NULL: this one alone
    struct ranks
        *lender; // of an MTP layer: those of the model that it predicts for, which outlive it; or NULL
};

// Numbers of processes that can have equal shares of tensor x stages ranks, for a sentence: each has whole
// stages, or one rank. text: RANKS_LIST bytes.
enum { RANKS_LIST = 64 };
void ranks_list(int tensor, int stages, char *text);

// Opens a device for each rank. NULL with err: what the device says, shard_check() or shard_check_stages().
struct ranks *ranks_open(const struct ranks_config *config, struct err *err);
// Loads every rank's part: weights_load(), read once for all. Logs rank, world and bytes of each where there
// are several.
enum status ranks_load(struct ranks *r, const struct model_file *f, enum dtype floats,
                       void (*progress)(void *, double), void *arg, struct err *err);
// Reserves on all, and starts the threads.
enum status ranks_reserve(struct ranks *r, const struct step_limits *limits, struct err *err);
// Loads an adapter, of the whole model, into a free slot of all ranks, and frees it. down: (L) the types of the layers'
// down matrices. Any thread, as backend_ops.adapter_load and .adapter_free.
enum status ranks_adapter_load(struct ranks *r, int slot, const struct adapter_matrix *matrices,
                               const enum dtype *down, struct err *err);
void ranks_adapter_free(struct ranks *r, int slot);
// Steps that were launched and not synced end, or are given up. NULL is allowed.
void ranks_close(struct ranks *r);

// Name, and weights of all ranks; free memory as rank 0 sees it.
void ranks_info(struct ranks *r, struct device_info *info);
int ranks_here(const struct ranks *r); // how many are in this process
// One rank of this process, counted from its first: its device, and the bytes of a block of its part of the
// cache.
void ranks_info_of(struct ranks *r, int rank, struct device_info *info, size_t *kv_block_bytes);
size_t ranks_kv_block_bytes(struct ranks *r); // of all ranks together
// Bytes that ranks_reserve() takes of the device's memory beside the cache; 0: the device has no memory of its own.
size_t ranks_workspace_of(struct ranks *r, int rank, const struct step_limits *limits);

// Of one rank alone: as backend_ops.kv_copy, .kv_host_page and .kv_copied. Engine thread.
void ranks_kv_copy(struct ranks *r, const struct kv_move *moves, int num_moves);
void *ranks_host_page(struct ranks *r, int32_t page);
bool ranks_kv_copied(struct ranks *r);
void ranks_host_clear(struct ranks *r, int32_t page, int group);

// Runs one step on all ranks. With stages it returns when rank 0 has done its part, and others are at theirs
// while the next step is launched. At most PLAN_MAX_DEPTH may be launched and not synced. The step's arrays
// must live until its ranks_sync().
void ranks_launch(struct ranks *r, const struct step *step);
// Results of the oldest step that has not been synced, when all ranks have done it; valid until the next but
// one call. STATUS_DEVICE: a rank has failed, for good.
enum status ranks_sync(struct ranks *r, struct step_out *out, struct err *err);
