// Shared by the host parts of the CUDA backend. Calls between files point one way:
// backend.c -> phases.c, step.c, memory.c, weight.c -> experts.c, latent.c, mix.c, streams.c, peers.c, kv.c, multiply.c, lora.c,
// work.c.
#pragma once

#include "arena.h"
#include "ops.h"
#include "work.h"

#include <pthread.h>

// A rank's state of the other ranks (peers.c). Only where there are several.
struct peers {
    struct comm *comm;
    int rank, world;
    bool processes;               // each rank is one; else they are threads of this one
    bool shares;                  // a GPU with another process
    bool apart;                   // some do not read others' memory: NCCL alone adds, of prompts and decodes
    bool joined;                  // all know each other
    uint32_t *stop[COMM_MAX_SUM]; // of each rank, in host memory; NULL: in another process
    char *opened[COMM_MAX_SUM];   // arenas of other processes, as they lie here, or NULL
    pthread_t watcher;            // of processes
    bool watched, closing;
    int begin[COMM_MAX_SUM + 1]; // tokens of the head that ranks hold
    size_t two_shots;            // bytes that they must save, as in cuda_two_shots()
    struct rt_nccl *nccl;        // or NULL
    // On the device:
    struct cuda_peers barrier;
    uint32_t *flags;
    float *part;                // (T, D) this rank's part of a row-parallel GEMM
    float *parts[COMM_MAX_SUM]; // of each rank
    uint16_t *brief;            // (T, D) of what NCCL adds in bf16; NULL with --exact
    float *logits[COMM_MAX_SUM], *max[COMM_MAX_SUM];
    struct cuda_topk *topks[COMM_MAX_SUM];
};

struct weight {
    struct weight *next; // all weights of the device
    enum weight_role role;
    // Parts of one type that follow each other are one matrix. Matrix i gives columns [column[i], + rows[i]).
    int num_matrices;
    struct cuda_matrix matrix[3];
    int rows[3], column[3];
    bool interleaved;              // gate and up in one matrix: 8 gates, 8 ups
    int num_experts;               // experts with matrices one below the other; 0: it has none
    struct cuda_segments segments; // of a row-parallel matrix that ranks share, with `--exact`
    float *bias;                   // of all columns, or NULL
    void *table;                   // EMBED: rows as in the file; NORM, SINKS: F32
    enum dtype dtype;              // of table
};

// Activations in the dtypes that the weights of a role need; NULL where none does. Rows of `ld` elements, of
// which those past the data stay zero.
struct activation {
    int n, ld;
    void *data[3]; // by enum act_dtype
    float *scale;  // of ACT_DTYPE_F16
};

// The CUDA graph of a bucket of steps: they launch the same kernels with the same arguments.
struct graph {
    int num_tokens, max_splits[MODEL_MAX_SPECS]; // by attn_spec
    bool has_axes, has_lora;                     // its rows have rope_positions; some have adapters
    int num_seen, num_forgot; // steps that had it, and rt_matmul_forgot() at the last of them
    uint64_t last_step;       // that had it, counted by num_begun
    struct rt_graph *graph;
};

// Layers with experts. Slots are those of struct cuda_expert_group.
struct experts {
    int max_experts, max_top_k, max_hidden, max_shared; // of any spec; 0: no layer has any
    float *logits, *gates;                              // (T, E), (T)
    int32_t *ids;                                       // (T, k)
    float *weights;                                     // (T, k)
    int32_t *slots;                                     // (T * k)
    struct cuda_expert_group *groups;
    int32_t *num_groups;
    struct activation h; // (T * k, F) activated gates and ups of slots
    float *out, *shared; // (T * k, D), (T, D) what experts and the shared one give
    bool counted;        // a layer of this step has begun dev->counts
};

// Layers with latent attention. Heads multiply as experts do, up to CUDA_LATENT_ROWS rows at a time: slot
// row * H + head, in groups of the same head.
enum { CUDA_LATENT_ROWS = 256, CUDA_LATENT_LISTS = 3 };
struct latent {
    float *vector, *down, *heads; // (T, C+r), (T, U), (T, H, n+r): latents with a key, of queries; queries
    float *made;                  // (rows, H, C or v) what the heads' matrices give
    struct activation q;          // (T, U) latents of queries, normalised
    struct activation key;        // (rows * H, n) queries
    struct activation out;        // (T * H, C) attention
    // Lists for groups of 8, 16 and 32 slots. Groups of the first rows come first: num_groups[i] groups are i + 1 a
    // head.
    struct {
        int32_t *slots, *num_groups;
        struct cuda_expert_group *groups;
    } lists[CUDA_LATENT_LISTS];
};

// Recurrent layers.
struct mix {
    float *in, *convolved; // (T, q + k + v), or (T, 3 * heads) of a short convolution
    float *gate, *y;       // (T, values + 2 * heads), (T, values)
    struct activation out; // (T, values)
};

// Buffers of a token's own embeddings for each layer (Gemma 3n).
struct own {
    float *embed;        // (T, L*P)
    float *gate;         // (T, P rounded up to 8)
    struct activation h; // (T, P)
};

struct cuda_altup {
    float *rows;           // (ALTUP_STREAMS, T, D)
    float *laurel;         // (T, D)
    float *made, *merged;  // (ALTUP_STREAMS - 1, head_rows, D), (head_rows, D)
    struct activation low; // (T, R)
};

struct cuda_result { // in host memory: what step_out points to
    int32_t *ids, *rank, *top_ids;
    float *logprob, *share, *top_logprobs, *logits, *hidden;
    struct expert_counts *counts;
    uint8_t *failed;
    int num_rows;
};

// Parts of weights go through two buffers in turn, so that the engine reads on while the device copies and packs.
struct loading {
    char *host[2]; // (size) that copies run from; NULL: they run from what the engine has read
    char *raw[2];  // (size) in device memory; rt_mark(i) stands behind what read host[i] and raw[i] last
    size_t size;   // as large as a piece so far
    size_t target; // bytes of a piece, at most, where so many are enough for 8 rows
    int next;      // buffer
};

struct device {
    struct rt *rt;
    struct rt_info info;
    const struct backend_host *host;
    struct model_config model;
    int max_q, max_ffn; // the widest queries and hidden layer of any spec, experts apart
    struct experts experts;
    struct latent latent;
    struct mix mix;
    struct own own;
    struct cuda_altup altup;
    enum dtype kv_dtype;
    int block_size;
    bool exact, w8a8;           // w8a8: cuBLASLt multiplies FP8 by activations as E4M3
    bool batch_dependent;       // `--no-batch-invariant`: cuBLASLt takes rows that decode, too
    bool fast[MODEL_MAX_SPECS]; // attention of the spec goes through the kernels with splits and tiles
    struct weight *weights;
    struct loading loading;
    size_t weight_bytes;
    void **adapters;  // (limits.max_adapters) each in device memory (lora.c), or NULL; any thread sets it
    unsigned layouts; // of loaded matrices, a bit each
    // That the weights of hidden, attention, FFN, experts' and recurrent inputs need, a bit each; then of latent.q, key and out;
    // of own.h; of altup.low.
    unsigned act_dtypes[10];
    size_t largest_quantised; // elements of the largest matrix that cuBLASLt must get as bf16
    int widest_e4m3;          // columns of a matrix that it may get as E4M3; 0: there is none

    struct step_limits limits;
    int max_tokens, max_rows;            // of the limits, and not less than a graph's padded rows
    bool cublas;                         // it is there, and steps may have rows for it
    int head_rows;                       // logits rows that are sampled at a time
    struct activation hidden, attn, ffn; // normalised rows; attention output; activated gates and ups
    struct activation last;              // normalised logits rows
    float *added; // (T, D) what is changed before it is added to resid, or with it; NULL: nothing is
    float *resid, *qkv, *wide; // (T, D), (T, q + 2 kv), (T, widest result of cuBLASLt)
    float *last_hidden;        // (head_rows, D), with keep_hidden
    float *low;                // (T, 3, rank) A x of adapters
    float *gate;               // (T, q) of the attention output; NULL where no layer has one
    float *whole_norms;        // (T, 2, 2), with QK_NORM_WHOLE: as in struct cuda_qkv
    void *q;                   // (T, H, d) in cuda_query_dtype()
    struct cuda_parts parts;   // of GEMMs
    uint16_t *dequantised;
    uint8_t *quantised;     // (T, widest_e4m3) rows of activations as E4M3
    float *quantised_scale; // (T), or for each 128 columns (., T)
    struct {
        float *cos, *sin;
    } ropes[MODEL_MAX_ROPES];             // (max_context, dim / 2) each
    float *temperatures[MODEL_MAX_SPECS]; // (max_context) each, of specs with temp_scale
    float *partial, *stats;               // of KV splits, and how many of a row's have arrived
    uint32_t *arrived;
    int max_splits;                                       // that `partial` holds
    float *logits, *max, *adjusted, *adjusted_max, *sums; // (head_rows, ...)
    uint64_t *sample_parts;                               // likewise, or NULL
    struct cuda_topk *topk;                               // (head_rows)
    char *keys;                                           // the cache (kv.c)
    float *scales;                                        // of an I8 cache, or NULL
    bool copies_marked;                                   // kv_copied() waits for slot 2
    char *host_pages;          // of limits.num_host_pages, each as cuda_kv_block_bytes() counts it, or NULL
    void *arena;               // all of the above but the cache
    int logits_ld, num_maxima; // padded logits of a row, and the maxima of their groups

    struct work_config work_config;
    struct cuda_inputs inputs;
    struct peers peers;       // world 1: unused
    unsigned char *upload[2]; // host, by parity of the step
    void *staging;            // device
    size_t upload_bytes;
    struct { // embeddings that rows bring travel through these, values and then rows; with limits.embed_size
        float *host[2], *device;
    } own_embeds;
    uint32_t *seen, stamp;
    struct step_work work; // of the step that is being queued
    const struct step *step;
    // this step makes its launches, to be captured or, before that, to load their kernels; or NULL
    struct graph *bucket;
    bool capturing;
    struct graph graphs[CUDA_MAX_GRAPHS];
    int num_graphs, max_graphs;

    // Results, on the device and (two steps) on the host.
    int32_t *ids, *rank, *top_ids;
    float *logprob, *share, *top_logprobs;
    struct expert_counts *counts;
    uint8_t *failed;
    struct cuda_result result[2];
    uint64_t num_begun, num_synced;
};

static inline int round_up(int n, int to) { return (n + to - 1) / to * to; }
static inline int spec_q_size(const struct attn_spec *a) { return a->heads * a->head_dim; }
static inline bool device_is_latent(const struct device *d) { return d->model.attn[0].kind == ATTN_LATENT; }
// The columns of a spec in the output of the GEMM of q, k and v.
static inline int spec_qkv_size(const struct attn_spec *a) {
    return spec_q_size(a) + (a->shares_kv ? 0 : 2 * attn_kv_size(a));
}

// kv.c
bool cuda_kv_whole_pages(const struct device *dev);   // a page lies in one piece
size_t cuda_kv_array_bytes(const struct device *dev); // from keys or values of one of kv_layers to the next
int cuda_kv_page_arrays(const struct device *dev);    // places of a page, those of keys and those of values
int cuda_kv_page_scale(const struct device *dev, int group); // pieces of a page of a group, where it is one
// The scales of an I8 cache for heads of this size; how many of them a page has for a spec, 0: an earlier spec has
// the size.
float *cuda_kv_scales(const struct device *dev, int head_dim);
size_t cuda_kv_page_scales(const struct device *dev, int spec);
size_t cuda_kv_block_bytes(struct device *dev);
struct cuda_kv cuda_kv_of(const struct device *dev, const struct attn_spec *attn, int kv_layer);
void cuda_kv_copy(struct device *dev, const struct kv_move *moves, int num_moves);
void *cuda_kv_host_page(struct device *dev, int32_t page);
bool cuda_kv_copied(struct device *dev);

// memory.c
int cuda_tile_rows(const struct device *dev); // of prefill: those of the kernel that all specs have
size_t cuda_workspace_bytes(struct device *dev, const struct step_limits *limits);
enum status cuda_reserve(struct device *dev, const struct step_limits *limits, struct err *err);

// Whether cuBLASLt multiplies weights with a scale a row as E4M3; with info.group_scales those of groups, too.
static inline bool cuda_takes_w8a8(const struct device *dev) {
    return dev->w8a8 && !dev->exact && dev->info.major * 10 + dev->info.minor >= 89;
}

// weight.c
struct weight *cuda_weight_load(struct device *dev, const struct weight_desc *desc, struct err *err);
void cuda_loading_free(struct device *dev); // waits for what is on its way; the next load allocates anew
void cuda_weight_free(struct device *dev, struct weight *w);

// step.c
bool cuda_step_begin(struct device *dev, const struct step *step);
void cuda_step_end(struct device *dev);
enum status cuda_sync(struct device *dev, struct step_out *out, struct err *err);

// phases.c: as in backend.h
void cuda_phase_embed(struct device *dev, const struct model *model, const struct step *step);
void cuda_phase_qkv(struct device *dev, const struct layer *layer, const struct step *step);
void cuda_phase_attn_prefill(struct device *dev, const struct layer *layer, const struct step *step);
void cuda_phase_attn_decode(struct device *dev, const struct layer *layer, const struct step *step);
void cuda_phase_attn_out(struct device *dev, const struct layer *layer, const struct step *step);
void cuda_phase_mix(struct device *dev, const struct layer *layer, const struct step *step);
void cuda_phase_mix_out(struct device *dev, const struct layer *layer, const struct step *step);
void cuda_phase_ffn_in(struct device *dev, const struct layer *layer, const struct step *step);
void cuda_phase_ffn_out(struct device *dev, const struct layer *layer, const struct step *step);
void cuda_phase_layer_in(struct device *dev, const struct layer *layer, const struct step *step); // streams.c
void cuda_phase_layer_out(struct device *dev, const struct layer *layer, const struct step *step);
void cuda_phase_head(struct device *dev, const struct model *model, const struct step *step);
void cuda_phase_resid_export(struct device *dev, float *dst, const struct step *step);
void cuda_phase_resid_import(struct device *dev, const float *src, const struct step *step);
void *cuda_host_alloc(struct device *dev, size_t bytes);
void cuda_host_free(struct device *dev, void *p);

// peers.c. Where a rank has failed, all do: each finds out in step_begin(), step_end() or sync().
// Whether processes may have the same GPU (QUIRE_CUDA_SHARE_DEVICE), for tests where there are too few. Threads could not: what
// begins early of one rank's next kernel may leave no room for the kernel that it waits for.
bool cuda_shares_device(const struct device_config *config);
// STATUS_DEVICE with err: devices that cannot work together.
enum status cuda_peers_open(struct device *dev, const struct device_config *config, struct err *err);
void cuda_peers_close(struct device *dev);
// Before memory is freed that other processes have open. All ranks call it.
void cuda_peers_leave(struct device *dev);
void cuda_peers_alloc(struct device *dev, struct cuda_arena *a);
// At the beginning of each step; the first time the ranks make themselves known to each other.
void cuda_peers_join(struct device *dev);
// Tells the others if this device has failed, and fails if another has.
void cuda_peers_check(struct device *dev);
// As rt_wait(), and ends when another rank fails.
enum status cuda_peers_wait(struct device *dev, int slot, struct err *err);
// y = or += sum of the parts (+ bias), which are of w
void cuda_peers_sum(struct device *dev, const struct weight *w, float *y, bool add, const float *bias,
                    int rows);
// y (n) of the parts of all, of which this rank's comes from the host.
void cuda_peers_share(struct device *dev, float *y, const float *part, size_t n);
// Gathers the other ranks' results of logits rows [0, n) into s.
void cuda_peers_gather(struct device *dev, struct cuda_sample *s, int n);

// experts.c. Of a layer with experts: which experts each of the normalised rows takes; their gate and up; then
// resid, or `added` where there is one, + or = what they give, with own_norms without the shared one's.
void cuda_experts_open(struct device *dev);
void cuda_experts_alloc(struct device *dev, struct cuda_arena *a);
void cuda_experts_route(struct device *dev, const struct layer *layer);
void cuda_experts_in(struct device *dev, const struct layer *layer);
void cuda_experts_out(struct device *dev, const struct layer *layer);

// latent.c. Of layers with latent attention: of normalised rows the queries, absorbed, and what the cache keeps; attention
// of rows [row0, row0 + rows), or of those with splits; the values that the heads make of it.
void cuda_latent_alloc(struct device *dev, struct cuda_arena *a);
bool cuda_latent_fill(struct device *dev); // the lists; false: no host memory
void cuda_latent_in(struct device *dev, const struct layer *layer);
void cuda_latent_attend(struct device *dev, const struct layer *layer, int row0, int rows);
void cuda_latent_decode(struct device *dev, const struct layer *layer, const struct cuda_decode *of);
void cuda_latent_out(struct device *dev, const struct layer *layer);

// mix.c. NULL: there are kernels for the layer.
const char *cuda_mix_problem(const struct mix_spec *m);
int cuda_mix_widest(const struct device *dev); // columns of what a matrix of any such layer gives
void cuda_mix_alloc(struct device *dev, struct cuda_arena *a);
// Computes the output matrix's input from the normalised rows.
void cuda_mix_rows(struct device *dev, const struct layer *layer);

// streams.c. NULL: there are kernels for the model's.
const char *cuda_altup_problem(const struct model_config *m);
void cuda_altup_alloc(struct device *dev, struct cuda_arena *a);
// Makes the others of resid; adds LAuReL to it; corrects all, and what embed_gate takes goes to `added`.
void cuda_altup_in(struct device *dev, const struct model *model);
void cuda_altup_attended(struct device *dev, const struct layer *layer);
void cuda_altup_out(struct device *dev, const struct layer *layer);
// Adds `added`, normalised, to all but resid.
void cuda_altup_add(struct device *dev, const struct layer *layer);
// (n, D) their mean, of logits rows
const float *cuda_altup_head(struct device *dev, const struct model *model, const struct logits_row *rows,
                             int n);

// lora.c. backend_ops
enum status cuda_adapter_load(struct device *dev, int slot, const struct adapter_desc *desc, struct err *err);
void cuda_adapter_free(struct device *dev, int slot);
void cuda_lora_alloc(struct device *dev, struct cuda_arena *a);
void cuda_lora_close(struct device *dev);
// a.y += what adapters give, from the target `first` on, for rows of x that have one. a says act_dtype and all of y.
void cuda_lora_add(struct device *dev, const struct layer *layer, enum adapter_target first,
                   const struct activation *x, struct cuda_lora a);

// multiply.c
enum { CUBLAS_ROWS = 64 }; // rows of cuBLASLt are a multiple, or up to the last that there is
// The dtypes in which a weight, or none, takes its input, a bit each.
unsigned cuda_dtypes_of(const struct weight *w);
struct cuda_norm cuda_norm_of(const struct device *dev, const float *from, const struct weight *norm,
                              int rows);
// Normalises rows of from (., D) in these dtypes; norm NULL: as they are. of: which rows, or NULL.
void cuda_normalise(struct device *dev, struct activation *x, const float *from, const struct weight *norm,
                    int rows, const struct logits_row *of, unsigned dtypes);
// The first n of dev->last times w, by our own GEMM whatever n is. g says the epilogue, and where it goes.
void cuda_multiply_last(struct device *dev, const struct weight *w, int n, struct cuda_gemm g);
// y = x w^T into columns of y (m, ldy), bias apart.
void cuda_multiply(struct device *dev, const struct weight *w, const struct activation *x, int m, float *y,
                   int ldy);
// The same of q, k and v into y, which a gets, with what is left to do.
void cuda_multiply_qkv(struct device *dev, const struct weight *w, const struct activation *x, float *y,
                       struct cuda_qkv *a);
// resid += x w^T (+ bias)
void cuda_multiply_add(struct device *dev, const struct weight *w, const struct activation *x, int m,
                       float *resid);
// h = act(gate) * up of a layer, or without a gate act(up), in every dtype that h has
void cuda_multiply_ffn(struct device *dev, const struct layer *layer, const struct activation *x, int m,
                       struct activation *h);
// Makes the other dtypes that x has of m rows that lie there in cuda_written_dtype().
void cuda_convert(struct device *dev, struct activation *x, int m);
// (rows, n) in these dtypes.
void cuda_activation_alloc(struct cuda_arena *a, struct activation *x, int rows, int n, unsigned dtypes);
// The dtype in which a kernel writes activations: F32 where any weight needs F32 or F16, else BF16.
enum act_dtype cuda_written_dtype(const struct activation *x);
// Where in `wide` the results of gate and up lie that are GEMMs of their own, in elements.
size_t cuda_both_offset(const struct device *dev);
