#include "setup.h"

#include "console.h"

#include <string.h>

int setup_engine_exit_code(enum status status) {
    switch (status) {
    case STATUS_INVALID:
    case STATUS_NOMEM:
    case STATUS_DEVICE: return EXIT_USAGE;
    default: return EXIT_MODEL;
    }
}

int setup_service_exit_code(enum status status) {
    return status == STATUS_IO || status == STATUS_INVALID || status == STATUS_NOMEM ? EXIT_USAGE
                                                                                     : EXIT_ENGINE;
}

int setup_encode_failed(enum status status) {
    complain("%s", status == STATUS_INVALID
                       ? "this model has no vocabulary: it reads token ids alone, through the API"
                       : "out of memory");
    return status == STATUS_INVALID ? EXIT_USAGE : EXIT_ENGINE;
}

// None where nothing can come.
static int setup_max_loras(const struct config *c) {
    int modules = (int)c->lora_modules.len;
    if (modules == 0 && !c->lora_root)
        return 0;
    return c->max_loras > modules ? c->max_loras : modules;
}

static const char *setup_draft_path(const struct config *c) {
    bool wanted = c->command == CMD_SERVE && strcmp(c->speculative_method, "none") != 0;
    return wanted ? c->speculative_model : NULL;
}

static enum mtp_wish setup_mtp(const struct config *c) {
    if (c->command != CMD_SERVE || c->speculative_model)
        return MTP_NEVER;
    return strcmp(c->speculative_method, "mtp") == 0    ? MTP_ALWAYS
           : strcmp(c->speculative_method, "auto") == 0 ? MTP_IF_THERE
                                                        : MTP_NEVER;
}

void setup_engine(const struct config *c, struct engine_config *out) {
    *out = (struct engine_config){
        .path = c->args.items[0],
        .device = c->device,
        .variant = c->variant,
        .num_threads = c->threads,
        .kv_dtype = c->kv_dtype,
        .dtype = c->dtype,
        .pooling = c->command == CMD_SERVE ? c->pooling : "none",
        .tensor_parallel_size = c->tensor_parallel_size,
        .pipeline_parallel_size = c->pipeline_parallel_size,
        .block_size = c->block_size,
        .max_model_len = c->max_model_len,
        .max_num_seqs = c->max_num_seqs,
        .max_num_batched_tokens = c->max_num_batched_tokens,
        .num_kv_blocks = c->num_kv_blocks,
        .kv_cache_bytes = c->kv_cache_memory,
        .gpu_memory_utilization = c->gpu_memory_utilization,
        .exact = c->exact,
        .no_batch_invariant = c->no_batch_invariant,
        .prefix_caching = c->prefix_caching,
        .kv_store = c->kv_store,
        .kv_store_bytes = c->kv_store_size,
        .draft_path = setup_draft_path(c),
        .mtp = setup_mtp(c),
        .processes = c->processes,
        .max_loras = setup_max_loras(c),
        .max_lora_rank = c->max_lora_rank,
        .progress = console_progress,
    };
}

// While others decode, a prompt gets a quarter of a step at most, so that running streams slow down little;
// the queue takes as many tokens as that many requests of 1,024, but always a few of the longest.
void setup_service(const struct config *c, const struct engine_info *info, struct service_config *out) {
    int most = info->max_num_batched_tokens, chunk = most / 4;
    int64_t waiting = (int64_t)c->max_num_queued_seqs * 1024, few = (int64_t)info->max_model_len * 4;
    *out = (struct service_config){
        .sched = {.policy = c->policy && strcmp(c->policy, "priority") == 0 ? SCHED_PRIORITY : SCHED_FCFS,
                  .max_running = info->max_num_seqs,
                  .max_step_tokens = most,
                  .max_waiting = c->max_num_queued_seqs,
                  .max_waiting_tokens = waiting > few ? waiting : few,
                  .max_model_len = info->max_model_len,
                  .whole = model_is_bidirectional(&info->model),
                  .depth = info->depth,
                  .async = info->async,
                  .embed_size = info->embed_size,
                  .has_axes = info->has_axes},
        .max_chunk = chunk > 64  ? chunk
                     : most < 64 ? most
                                 : 64,
        .target_itl_ns = (int64_t)(c->target_itl * 1e6),
        .kv_role = !c->kv_role || strcmp(c->kv_role, "both") == 0 ? KV_BOTH
                   : strcmp(c->kv_role, "producer") == 0          ? KV_PRODUCER
                                                                  : KV_CONSUMER,
        .kv_store_private = c->kv_store_private,
        .record = c->record,
        .trace = c->trace,
    };
}

// By default where drafts cost nothing but the rows of a step: no steps in flight that a request would have to wait for.
bool setup_drafts_ngrams(const struct config *c, const struct engine_info *info) {
    return strcmp(c->speculative_method, "ngram") == 0 ||
           (strcmp(c->speculative_method, "auto") == 0 && !c->speculative_model && !info->async);
}
