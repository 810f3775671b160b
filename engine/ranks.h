// The devices of one model: one, or a few that share its layers. Rank 0 is the caller's thread, each other
// rank a thread that runs the same steps on its own device and its own part of the weights. For the rest of
// the engine they are one device.
//
// Thread: open, load, reserve and close from the main thread; launch and sync from the engine thread.
#pragma once

#include "gguf.h"
#include "shard.h"

struct ranks;

struct ranks_config {
    const struct backend_ops *ops;
    const struct backend_host *host;
    struct device_config
        device; // as of one device; num_threads are divided among the ranks, at least one each
    struct shard_blocks blocks; // of the file, for world > 1
    int world;                  // >= 1
};

// Opens world devices. NULL with err: what the device says, or shard_check().
struct ranks *ranks_open(const struct ranks_config *config, struct err *err);
// Loads every rank's part: weights_load(), read once for all. Logs rank, world and bytes of each where there
// are several.
enum status ranks_load(struct ranks *r, const struct gguf *g, enum dtype floats,
                       void (*progress)(void *, double), void *arg, struct err *err);
// Reserves on all, and starts the threads.
enum status ranks_reserve(struct ranks *r, const struct step_limits *limits, struct err *err);
void ranks_close(struct ranks *r); // NULL is allowed

// Weights and cache of all ranks; free memory as rank 0 sees it.
void ranks_info(struct ranks *r, struct device_info *info);
size_t ranks_kv_block_bytes(struct ranks *r);

// Runs one step on all ranks. The step's arrays must live until its ranks_sync().
void ranks_launch(struct ranks *r, const struct step *step);
// Results of the oldest step that has not been synced, when all ranks have done it. STATUS_DEVICE: a rank has
// failed, for good.
enum status ranks_sync(struct ranks *r, struct step_out *out, struct err *err);
