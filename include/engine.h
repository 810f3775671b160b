// The engine: opens a model on a device, and executes the scheduler's plans.
//
// Ownership: engine_open() gives a whole engine or nothing; the kv_cache lives inside and is lent to the
// scheduler. Thread: open and close from the main thread before and after the engine thread; launch and
// collect from the engine thread only; info from any thread once open (it never changes). Where GPUs share layers, open sets
// CUDA_MODULE_LOADING to EAGER in the environment, if it is not set: meanwhile no thread may read that.
#pragma once

#include "adapter.h"
#include "backend.h"
#include "kv_cache.h"
#include "plan.h"
#include "processes.h"
#include "tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

struct engine;

// Whether the file's MTP layer drafts (engine_draft()): where it has one that this device takes, as must be, or not.
enum mtp_wish { MTP_NEVER, MTP_IF_THERE, MTP_ALWAYS };

struct engine_config {
    const char *path; // .gguf, or a Hugging Face folder
    // "auto" (CUDA where it works, else CPU with a warning), "cpu", "ref", "cuda"; NULL: auto, silent without
    // module or driver.
    const char *device;
    const char *variant; // of the CPU backend: backend.h
    int num_threads;     // 0 picks
    // "auto": as the file has them; else "float32", "float16", "bfloat16" (also "float", "half", "f32",
    // "f16", "bf16"): weights of these types are converted to it at load, rounded to nearest even; quantised
    // ones are left alone. NULL is auto. A value too large for float16 refuses the file.
    const char *dtype;
    // "auto", "f32", "f16", "bf16", "int8", "fp8" (or "fp8_e4m3"); auto: f32 for F32 weights (after dtype),
    // else f16
    const char *kv_dtype;
    int block_size;             // tokens, a multiple of 16; 0: what suits the model
    int max_model_len;          // 0: what the model was trained for
    int max_num_seqs;           // S; 0: 64, on a device with memory of its own 256
    int max_num_batched_tokens; // T; 0: 512, on such a device 2,048, of encoders as long a text as they take
    int64_t num_kv_blocks;      // 0: from kv_cache_bytes
    int64_t kv_cache_bytes;     // 0: for max_num_seqs * max_model_len, but at most a quarter of free memory
    double gpu_memory_utilization; // CUDA, in place of the quarter: share of its memory for all; 0: 0.9
    int tensor_parallel_size;      // ranks that share each layer: 1, 2, 4 or 8; 0: 1
    int pipeline_parallel_size;    // stages that have the layers one after another; 0: 1
    bool exact;                    // CUDA: prefill, too, gives the same bits whatever the chunks and batch
    bool no_batch_invariant;       // as in struct device_config; STATUS_INVALID with exact
    bool prefix_caching;
    // A directory in which pages of the prefix cache outlive the process (kv_store.h), and the most bytes that it may take;
    // NULL: none. In one process, of one rank.
    const char *kv_store;
    int64_t kv_store_bytes;
    // Plans that may be launched and not collected. 0: one for each stage; without stages two where the
    // device works while the host goes on, else one. Tests ask for more.
    int depth;
    int max_loras; // adapters at a time; 0: none
    int max_lora_rank;
    // Requests may bring embeddings of their prompts' spans (request_params.embeds); refused for models that look embeddings
    // up by id in each layer, too.
    bool prompt_embeds;
    const char *pooling; // "auto": as the file says; "none", "mean", "cls", "last", "rank"; NULL: auto
    bool keep_logits;    // step results carry logits (tests)
    // A smaller model with the same tokenizer, which drafts what this one verifies (engine_draft()); NULL: none. On CPUs,
    // in one process.
    const char *draft_path;
    enum mtp_wish mtp;           // without draft_path. On CPUs, in one process
    struct processes *processes; // the processes that share the model, borrowed; NULL: this one alone
    void (*progress)(void *arg, double fraction); // while weights load, or NULL; main thread
    void *progress_arg;
};

// How the model's author would sample, as the file says; -1: it does not say.
struct sampling_advice {
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k;
};

struct engine_info {
    struct model_config model;
    struct sampling_advice advice;
    char device[96], weights_dtype[16], kv_dtype[8];
    bool batch_dependent; // as in struct device_info
    uint64_t num_params, weight_bytes, file_bytes;
    uint64_t kv_bytes; // the draft model's, too
    int num_blocks, block_size, max_model_len, max_num_seqs, max_num_batched_tokens;
    int num_host_pages; // with a store: pages of host memory that a page passes through
    int embed_size;     // floats of an embedding that a request may bring; 0: it may bring none
    int mtp_size; // of an MTP layer: floats of the rows that requests bring (request_params.mtp_size); else 0
    int vector_size, vector_room; // with pooling: floats of a vector, and the most while it is made
    const char *rank_template;    // (rank_template_len) with {query} and {document}; NULL: the file has none
    size_t rank_template_len;
    int depth;     // for struct sched_config
    bool async;    // likewise, as embed_size
    bool has_axes; // spans may have grids; likewise
    double load_seconds;
};

// The caller's times of a step, monotonic ns: the engine keeps them while the step is in flight.
struct step_times {
    int64_t began, launched; // when planning began; when it ended
    int64_t expected;        // how long the step should take
};

// Results of one plan. Arrays belong to the engine and are valid until the next but one launch.
struct step_result {
    const struct plan *plan;    // the plan they belong to
    struct step_times times;    // as engine_launch() took them
    struct outcome outcome;     // for sched_update()
    const struct step_out *out; // log-probabilities; logits where kept
    const int32_t *first_row;   // (num_items + 1) logits rows of each item
    int64_t masks_ns;           // that its masks took, beside the step; 0: it has none
};

// Copies what it keeps of config, but for processes. STATUS_INVALID, STATUS_DEVICE: usage, device or sizes.
// STATUS_FORMAT, STATUS_IO: the model file. STATUS_NOMEM. err says what, where, expected and found. NULL: nothing is left
// open. The opening thread is the engine's until a service has one.
struct engine *engine_open(const struct engine_config *config, struct err *err);
void engine_close(struct engine *e);

// These belong to the engine and live as long as it does. The kv_cache is the engine thread's.
const struct engine_info *engine_info(const struct engine *e);
const struct tokenizer *engine_tokenizer(const struct engine *e);
struct kv_cache *engine_kv(struct engine *e);
// NULL: config names none. The engine thread's.
struct kv_store *engine_store(struct engine *e);
// With a store, copies pages between the device and its pages in host memory: after the steps launched before, and before the
// next one. Engine thread.
void engine_kv_copy(struct engine *e, const struct kv_move *moves, int num_moves);
// Whether these copies have ended, without waiting. Until then no others are asked for. Engine thread.
bool engine_kv_copied(struct engine *e);
// The bytes of a page in host memory. Engine thread; when copies from and to it have ended any.
void *engine_host_page(struct engine *e, int32_t page);
// Zeroes those bytes of it that no layer of the group writes: they are of whoever had the page before. Engine thread.
void engine_host_clear(struct engine *e, int32_t page, int group);
// The engine of draft_path or of the MTP layer, NULL: none. Its cache has as many pages of as many tokens as this one's, within the same
// budget, so that it holds what this one holds. The engine thread's, as the kv_cache; it may be launched while no step
// of this one is collected.
struct engine *engine_draft(struct engine *e);

// Reads an adapter, a PEFT folder or a GGUF file, and gives it to the devices. Any thread, while steps run. All references
// are gone before engine_close(). NULL with err: STATUS_LIMIT: there are max_loras; STATUS_FORMAT, STATUS_IO: the file;
// STATUS_NOMEM.
struct adapter *engine_adapter_open(struct engine *e, const char *path, struct err *err);

// Runs steps before the first request, so that it waits neither for kernels to load nor for CUDA graphs: some seconds at
// most, of process 0. Nothing on CPUs. STATUS_DEVICE as engine_collect().
enum status engine_warm_up(struct engine *e, struct err *err);

// Steps in flight: plans that were launched and not collected. The engine has the one ring of them; with each
// it keeps the plan, its batch and its times.
int engine_in_flight(const struct engine *e);
// Starts a plan: fills a batch, uploads it once, runs the model. At most info's depth may be in flight, with
// consecutive ids. times: NULL: none. No allocation.
void engine_launch(struct engine *e, const struct plan *plan, const struct step_times *times);
// Waits for the oldest step in flight. STATUS_DEVICE: the device is dead, for good; result says nothing.
enum status engine_collect(struct engine *e, struct step_result *result, struct err *err);

// A mask that is not there when its step needs it is late: its item gives ITEM_LATE, and the engine goes on with the mask
// beside later steps. A request whose late mask is there, each once; NULL: none. Engine thread.
struct request *engine_take_ready(struct engine *e);
// Sets the function that a thread of the engine calls when there is one more. Before the first launch.
void engine_notify_masks(struct engine *e, void (*notify)(void *arg), void *arg);
// Asks nothing more of the request's filter: before it is freed. No step in flight names it. Engine thread.
void engine_forget(struct engine *e, const struct request *r);

// With several processes all open the engine together, with equal configurations and equal files; what one
// refuses all refuse. Process 0 launches and collects; the others call engine_follow(), which runs its steps
// until process 0 closes its engine: STATUS_OK, or the group ends: STATUS_DEVICE.
enum status engine_follow(struct engine *e, struct err *err);
// STATUS_DEVICE: other processes are lost, so that no step can succeed any more. Any thread.
enum status engine_alive(struct engine *e, struct err *err);
// Longest an idle caller may sleep before polling engine_alive() again, in ns; -1: no limit. Any thread.
int64_t engine_watch_ns(const struct engine *e);

// Describes a model file line by line (`quire inspect`): architecture, tensors, tokenizer, template, the
// memory it would take. Loads no weights. `line` is called on the calling thread with text without a newline.
enum status model_inspect(const char *path, void (*line)(void *arg, const char *text), void *arg,
                          struct err *err);

#ifdef __cplusplus
}
#endif
