// The operations of a device: the seam between the model code and CPU, CUDA, or the reference.
//
// The operations are the phases of a transformer layer: coarse enough that a backend can fuse, fine enough
// that engine/forward.c reads like the paper. Phases return void, are ordered after one another, never
// allocate and never fail by themselves: a wrong shape is a CHECK, a device failure is sticky and comes back
// from sync().
//
// One thread per device: every call on a device comes from the thread that owns it (the engine thread for
// rank 0). A module exports one symbol, BACKEND_ENTRY, imports nothing from the binary, and is never
// unloaded.
//
// Numerics (kernels/README.md has the rules by number): the value of every output element is a fixed sequence
// of operations given by the model and the sequence's own positions, never by batch, chunk, threads or
// instruction set.
#pragma once

#include "comm.h"
#include "kv_group.h"
#include "model.h"
#include "sampling.h"
#include "status.h"
#include "tensor.h"
#include "weight_table.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BACKEND_ABI 31 // raise on any change to this file, model.h or weights.def

struct device; // the backend's own

struct backend_host { // functions of the binary that loads a module, for the module
    void (*log)(int level, const char *text);
};

struct device_config {
    // The model that this device computes; outlives the device. With ranks it is the rank's part: its heads, its kv
    // heads, the most rows of gate that any layer of a spec has; vocab is whole.
    const struct model_config *model;
    int num_threads; // CPU: kernel threads, the calling one included; 0: cpus_here()
    // CPU: the name of a table of kernels/cpu/; "auto": the fastest; NULL: the fastest of those that give all machines' bits
    const char *variant;
    enum dtype kv_dtype; // F32, F16, BF16, I8 or F8_E4M3 (rules 17 and 18 of kernels/README.md)
    bool kv_either;      // CPU: in place of F16 BF16 will do, and is taken where attention of it is faster
    int block_size;      // B, tokens; the CPU backend takes multiples of 16
    bool exact;          // CUDA: prefill, too, gives the same bits whatever the chunks and batch
    // CUDA: in steps of more than 64 rows those that decode, too, take the fastest kernels, whose bits depend on the batch;
    // not with exact.
    bool no_batch_invariant;
    int rank, world;   // tensor parallelism; 0 of 1; world divides 8
    struct comm *comm; // of these ranks, outlives the device; NULL when world == 1
    bool processes;    // each of them is a process of its own; else all are threads of this one
    bool apart;        // they are on several machines
    // Pipeline parallelism: this device has the layers of one stage, which `model` counts from 0. Only the
    // first has the embedding, only the last the final norm and the head. num_stages 0 or 1: it has all.
    int stage, num_stages;
    int ordinal; // CUDA: number of this machine's device; ranks that share layers have neighbours, in their order
};

static inline bool device_has_head(const struct device_config *c) { return c->stage + 1 >= c->num_stages; }

// ---- weights

struct weight_desc {
    enum weight_role role;
    int layer; // of the device's own model; -1 outside the layers
    // Host memory, valid during the call only. Parts may differ in dtype; data NULL: absent.
    struct tensor part[3];
    struct tensor bias[3]; // F32 vectors, or data NULL
    // Of a weight that ranks share (enum weight_cut), what part[0] holds: rows, columns or matrices from `start` of
    // `total`. total 0: all of it.
    int64_t start, total;
};

// The rows of the head that a rank holds, [begin, end): whole groups of 32 tokens, so that masks are cut
// between words and sums of sampling between groups. Every rank has some where world <= ceil(vocab / 32).
static inline void backend_vocab_rows(int vocab, int rank, int world, int *begin, int *end) {
    int64_t groups = ((int64_t)vocab + 31) / 32, first = groups * rank / world * 32,
            last = groups * (rank + 1) / world * 32;
    *begin = (int)first;
    *end = (int)(last < vocab ? last : vocab);
}

// The first expert of segment i of 8; a rank holds the experts of 8 / world segments.
static inline int backend_expert_bound(int experts, int i) { return (int)((int64_t)experts * i / 8); }

// The ranks of a stage hand over n values of the residual stream. Rank r transfers values [r * part, r * part +
// count); part is a multiple of 4.
static inline size_t backend_resid_part(size_t n, int world) {
    return ((n + (size_t)world - 1) / (size_t)world + 3) / 4 * 4;
}
static inline size_t backend_resid_count(size_t n, int rank, int world) {
    size_t part = backend_resid_part(n, world), before = (size_t)rank * part;
    return n < before ? 0 : n - before < part ? n - before : part;
}

// Bytes of the key or the value of one token and kv head in the cache: d elements, with I8 and a scale.
static inline size_t backend_kv_vector_bytes(enum dtype kv_dtype, int head_dim) {
    return dtype_row_bytes(kv_dtype, head_dim) + (kv_dtype == DTYPE_I8 ? sizeof(float) : 0);
}

// Bytes of the keys, or the values, of one token in a place of a page.
static inline size_t backend_kv_place_bytes(const struct model_config *m, enum dtype kv_dtype) {
    return dtype_row_bytes(kv_dtype, model_kv_size(m)) +
           (kv_dtype == DTYPE_I8 ? (size_t)model_kv_heads(m) * sizeof(float) : 0);
}

// ---- adapters

// The matrices W of a layer that an adapter changes (LoRA: Hu et al., 2021): rows of sequences that have it get
// W x + scale * B(A x). GATE and UP, or UP alone without a gate, and DOWN of layers without experts.
enum adapter_target {
    ADAPTER_Q,
    ADAPTER_K,
    ADAPTER_V,
    ADAPTER_OUT,
    ADAPTER_GATE,
    ADAPTER_UP,
    ADAPTER_DOWN,
    ADAPTER_TARGETS
};

// The shape of the matrix.
static inline struct weight_shape adapter_target_shape(const struct model_config *m, int layer,
                                                       enum adapter_target target) {
    static const struct {
        enum weight_role role;
        int part;
    } weights[ADAPTER_TARGETS] = {{WEIGHT_QKV, 0},      {WEIGHT_QKV, 1},     {WEIGHT_QKV, 2},
                                  {WEIGHT_ATTN_OUT, 0}, {WEIGHT_GATE_UP, 0}, {WEIGHT_GATE_UP, 0},
                                  {WEIGHT_DOWN, 0}};
    return weight_shape_of(m, weights[target].role, layer, weights[target].part);
}

struct adapter_matrix {
    struct tensor a; // (r, columns of W), F32, F16 or BF16; data NULL: W stays as it is
    struct tensor b; // (rows of W, r), likewise
    float scale;
};

struct adapter_desc {
    // (L, ADAPTER_TARGETS) of the device's own layers. Of what ranks share, a of OUT and DOWN has this rank's columns of
    // W, b of the others its rows. With columns that are no multiple of 16 in all, a of OUT and DOWN is F32.
    const struct adapter_matrix *matrices;
};

// ---- one step

// The most a step may hold; a device sizes its buffers by it once.
struct step_limits {
    int max_tokens;   // T
    int max_seqs;     // S, and the most rows that sample
    int max_rows;     // R
    int max_context;  // tokens of one sequence
    int num_blocks;   // of the KV cache
    bool keep_logits; // step_out.logits is filled (tests, `perplexity`)
    bool keep_hidden; // step_out.hidden is filled
    int max_adapters; // slots for them; 0: none
    int max_adapter_rank;
    bool has_types;     // tokens have types
    int num_host_pages; // of a pool in host memory, which steps reach by moves alone; 0: none
    int embed_size;     // D where rows may bring embeddings of their own (step.embeds); 0: none do
    bool has_axes;      // rows may have rope_positions; only where model_has_axes()
};

// Whether the pages of a move are in their pools, and one of them in the device's.
static inline bool backend_can_move(const struct step_limits *l, const struct kv_move *v) {
    int from = v->from_tier == KV_HOST ? l->num_host_pages : v->from_tier == KV_DEVICE ? l->num_blocks : 0;
    int to = v->to_tier == KV_HOST ? l->num_host_pages : v->to_tier == KV_DEVICE ? l->num_blocks : 0;
    return v->from >= 0 && v->from < from && v->to >= 0 && v->to < to &&
           (v->from_tier == KV_DEVICE || v->to_tier == KV_DEVICE);
}

// How to sample from one logits row. 88 bytes, no padding.
struct logits_row {
    int32_t row;       // row of the step, 0..T)
    int32_t target;    // >= 0: the log-probability of this token instead of a sample
    float temperature; // 0: greedy, ties to the lower id
    float top_p, min_p;
    int32_t top_k;        // 0: off
    int32_t num_logprobs; // -1: none; else the token's and this many of the best, of the unadjusted logits
    int32_t index;        // output position: the sample is a function of Philox4x32-10(seed, index)
    uint64_t seed;
    int32_t entry_start, entry_end; // into step.entries
    // 0: the alternatives are the best tokens. Else num_logprobs: those of the entries behind entry_end, which adjust
    // nothing.
    int32_t num_wanted;
    // The chain of kernels/README.md, rule 15; 0: off.
    float typical_p, top_n_sigma, xtc_probability, xtc_threshold;
    float least_share;                     // Mirostat: least probability of a token
    float dyn_low, dyn_high, dyn_exponent; // temperatures at no and at full entropy; dyn_high > 0: on
    // 1: instead of log-probabilities, probabilities of what the samplers leave: the token's, and the best ones' with id -1
    // and 0 behind the last. Only where target < 0 and num_wanted is 0.
    int32_t post_sampling;
};
static inline bool logits_row_has_chain(const struct logits_row *r) {
    return r->typical_p > 0 || r->top_n_sigma > 0 || r->xtc_probability > 0 || r->least_share > 0 ||
           r->dyn_high > 0;
}

// Penalties and bias, applied in order before sampling: l = (l > 0 ? l / div : l * div) + add.
struct logit_entry {
    int32_t token;
    float div; // 1: none; > 0
    float add; // may be -infinity: forbidden
};

// The pages of one KV group in a step. A window group names page 0 where it has given a page back; phases read no page
// that lies wholly before kv_first_kept() of the sequence's first row. A state group has no slots (-1), and one page of
// each sequence, its state before and after the step; a sequence that begins at position 0 begins from the zero state.
struct step_group {
    const int64_t *slots; // (T) where keys and values go: block * B + offset; -1: padding, written nowhere
    const int32_t *block_start; // (S+1) into block_ids
    const int32_t *block_ids;   // (block_start[S]) entry i of a sequence: the page of tokens [i*B, (i+1)*B)
};

// One packed upload. All pointers are host pointers into `packed`; a device copies the whole of it once and
// adds its own base. Two steps may exist at a time. Sequences are in plan order: those of one row that decode
// come first.
struct step {
    const void *packed;
    size_t packed_bytes;
    int num_tokens; // T
    int num_seqs;   // S
    int num_decode; // sequences [0, num_decode) have one row each and go to attn_decode
    int num_rows;   // R
    int max_query_len, max_context_len;
    int num_entries, num_groups, num_moves;
    int num_embeds; // E, rows with embeddings of their own
    uint64_t seq;   // counts steps from 1

    const int32_t *ids;       // (T) token; -1-r: what logits row r of the step before samples
    const int32_t *positions; // (T) in the sequence
    // (ROPE_AXES, T) what the pairs of queries and keys rotate by, each by its axis (rope_config.sections), at most the
    // row's position; NULL: all are `positions`, whose bits equal ones have. All else goes by `positions`.
    const int32_t *rope_positions;
    const int32_t *types;      // (T) rows of the table of types; NULL: all are 0
    const int32_t *embed_rows; // (E) ascending, rows of the step; NULL: E is 0
    // (E, D) what those rows take in place of the embedding table's row of their ids, which may be any: as in the table,
    // before all else that embed() does. With the table's row of an id here a step gives the bits of that id.
    // Of an MTP layer E is T, and they are the other model's rows, beside the ids.
    const float *embeds;
    const int32_t *query_start; // (S+1) first row of each sequence
    const int32_t *context_len; // (S) tokens of the sequence up to and including its last row here
    const int32_t *adapters;    // (S) slot of each sequence's adapter; -1: none. NULL: no sequence has one
    struct step_group groups[KV_MAX_GROUPS]; // (num_groups)
    const struct kv_move *moves;             // (num_moves) before the phases, in this order
    const struct logits_row *rows;           // (R) ascending by row
    const struct logit_entry *entries;       // (num_entries), per logits row
    // (R) bit v set: token v allowed, (V+31)/32 words; NULL: no mask; or NULL for none. The bits may still be
    // computed when the step is launched: before it reads them a device calls masks_wait(masks_arg), where
    // that is not NULL.
    const uint32_t *const *masks;
    void (*masks_wait)(void *arg);
    void *masks_arg;
};

// Counters of the layers with experts in a step, summed over the device's layers; of the experts of all ranks.
struct expert_counts {
    uint64_t rows;    // that experts multiplied: tokens, each once for each of its experts
    uint64_t reads;   // experts that had any, so that their weights were read
    uint64_t busiest; // rows of the expert that had the most
};

// Results of a step in host memory, the device's, valid from sync() until the next but one step.
struct step_out {
    const int32_t *ids; // (R) sampled token, or the row's target
    // (R) its log-probability under the unadjusted logits, or as post_sampling says; only where num_logprobs >= 0
    const float *logprob;
    // (R) its place among all tokens by these logits, from 1, ties to the lower id; as logprob
    const int32_t *rank;
    // (R) a sampled token's probability among the tokens that the samplers left; only of rows with least_share
    const float *share;
    const int32_t *top_ids; // (R, MAX_TOP_LOGPROBS) best first, ties to the lower id; or as wanted, or left
    const float *top_logprobs; // (R, MAX_TOP)
    const uint8_t *failed;     // (R) 1: the row's logits are not finite (or all are forbidden); ids is then 0
    const float *logits;       // (R, V) unadjusted, when step_limits.keep_logits; else NULL
    const float *hidden;       // (R, D) after the final norm, when step_limits.keep_hidden; else NULL
    int max_top;               // stride of the top arrays: MAX_TOP_LOGPROBS
    struct expert_counts experts; // 0 where the backend does not count them
};

struct device_info {
    char name[96];       // e.g. "cpu avx512, 2 threads"
    size_t memory_free;  // bytes the KV cache may be sized from
    size_t memory_total; // of a device with memory of its own; 0: it shares the host's
    size_t weight_bytes; // resident, as packed
    enum dtype kv_dtype; // of the cache
    uint64_t numerics;   // which of several kernels with other bits; devices that share a model agree
    // no_batch_invariant was asked for, and changes something here.
    bool batch_dependent;
    // A step returns before it is done, so that the next is worth launching meanwhile, with the ids that the
    // device has not sampled yet as -1-r.
    bool async;
};

// ---- operations

struct backend_ops {
    uint32_t abi;
    const char *name;

    // Lifecycle. open: NULL with err (STATUS_DEVICE: no such device; STATUS_INVALID: configuration).
    struct device *(*open)(const struct backend_host *host, const struct device_config *config,
                           struct err *err);
    void (*close)(struct device *dev); // frees every weight, too
    void (*info)(struct device *dev, struct device_info *info);

    // Copies and repacks (the engine has cut what ranks share); reads part data during the call only. NULL
    // with err: STATUS_NOMEM, STATUS_INVALID.
    struct weight *(*weight_load)(struct device *dev, const struct weight_desc *desc, struct err *err);
    // The device will also compute with a weight of another one of its kind, which outlives it. NULL: it cannot.
    void (*weight_borrow)(struct device *dev, const struct weight *w);
    // Bytes of one block over all layers, or of states if those need more.
    size_t (*kv_block_bytes)(struct device *dev);
    // Bytes of the device's own memory that reserve() takes beside the cache, once the weights are there; NULL where it
    // shares the host's.
    size_t (*workspace_bytes)(struct device *dev, const struct step_limits *limits);
    // All activations and the KV cache, once, after the weights.
    enum status (*reserve)(struct device *dev, const struct step_limits *limits, struct err *err);
    // NULL where the device has no adapters. Copies and repacks an adapter into a slot that is free. Any thread, also
    // while steps run that do not name the slot; steps that do are launched after it returns. STATUS_NOMEM.
    enum status (*adapter_load)(struct device *dev, int slot, const struct adapter_desc *desc,
                                struct err *err);
    // Frees a slot that no step in flight names. Any thread.
    void (*adapter_free)(struct device *dev, int slot);

    // One step: step_begin, phases, step_end, and later sync. step_begin true: the step ran as a CUDA graph:
    // skip the phases. After sync() that is not STATUS_OK the device is dead: every later sync() gives the
    // same.
    bool (*step_begin)(struct device *dev, const struct step *step);
    // The activations are the device's: the residual stream (T, D) in f32, queries, keys, values, and the
    // inputs of row-parallel matrices, in whatever type and layout its kernels like.
    //   resid = norm(row of the embedding * embed_scale + row of its position + row of its type)
    // each where the model has it. With layer_embed also, for each layer,
    //   e = (norm(P·resid / sqrt(D)) + row * sqrt(P)) / sqrt(2)
    // With AltUp also its other streams (kernels/README.md, rule 23). Of an MTP layer, if the device takes them
    //   resid = W · (norm(row of the embedding * embed_scale), norm(row of step.embeds))
    void (*embed)(struct device *dev, const struct model *model, const struct step *step);
    // Begins a layer of a model with AltUp (NULL: the device refuses such models), whose streams are x[0] = resid,
    // x[1], … (rule 23):
    //   x[i] += sum over j of c[i][j] * x[j]      the layer's prediction
    //   l = norm(B·A·norm(resid))                 LAuReL's term, for attn_out()
    void (*layer_in)(struct device *dev, const struct layer *layer, const struct step *step);
    // norm, QKV GEMM, bias, QK norm, RoPE (in the order of the layer's qk_norm), temperature; writes k and v, if the
    // layer has them, to the slots of its group. ATTN_LATENT: norm, GEMM, norms of the latents, queries absorbed,
    // RoPE; writes the latent with its key there.
    void (*qkv)(struct device *dev, const struct layer *layer, const struct step *step);
    void (*attn_prefill)(struct device *dev, const struct layer *layer, const struct step *step);
    void (*attn_decode)(struct device *dev, const struct layer *layer, const struct step *step);
    //   y = all_reduce(attention * sigmoid(gate) · Wᵀ)     8 K-segments, binary tree
    //   resid += residual_scale * post_norm(y + bias)      BLOCK_SUM_NORM: post_norm(resid + residual_scale * (y + bias))
    // each where the layer has it. ATTN_LATENT: attention is the values that the heads make of it.
    void (*attn_out)(struct device *dev, const struct layer *layer, const struct step *step);
    // Layers with a mix_spec have these (NULL: the device refuses such layers). mix(): norm, the input GEMMs,
    // convolution, recurrence, output gate; reads and writes the page of each sequence's state. It comes before qkv()
    // and mix_out() after attn_out(): if a layer has both, both start from the same residual stream. mix_out(): as
    // attn_out().
    void (*mix)(struct device *dev, const struct layer *layer, const struct step *step);
    void (*mix_out)(struct device *dev, const struct layer *layer, const struct step *step);
    // norm, gate and up GEMM, bias, activation; with experts also the routing, gate and up of those chosen. Parallel
    // blocks take the residual stream before attn_out().
    void (*ffn_in)(struct device *dev, const struct layer *layer, const struct step *step);
    // as attn_out(), with the down matrix; with ffn.own_norms it adds post_norm(norm(shared) + norm(experts))
    void (*ffn_out)(struct device *dev, const struct layer *layer, const struct step *step);
    // Ends a layer of a model with layer_embed or layer_scale (NULL: the device refuses such models):
    //   resid += norm(W · (act(G·resid) * e))     e: the layer's embedding of the token
    //   resid *= layer_scale
    // AltUp first corrects its streams; G takes resid * stream_scale, and the result is added to the other streams.
    void (*layer_out)(struct device *dev, const struct layer *layer, const struct step *step);
    // Final norm and logits of the logits rows, bias, entries, mask, sampling, log-probabilities. AltUp takes the
    // mean of its streams, each scaled to the first one's magnitude. With ranks each computes its rows of the head;
    // all get the same results. Without a head (pooling): hidden alone, of the logits rows.
    void (*head)(struct device *dev, const struct model *model, const struct step *step);
    // Stages: the residual stream of the step's rows, (T, D) f32, out of this device for the next stage's,
    // which takes it in place of embed(). A stage that is not the last exports it in place of head(). dst is
    // filled when sync() returns, and src is read until then. A rank exports and imports its backend_resid_part() alone,
    // for which both have room; import takes those of others from their devices.
    void (*resid_export)(struct device *dev, float *dst, const struct step *step);
    void (*resid_import)(struct device *dev, const float *src, const struct step *step);
    // Zeroed host memory that these copy from and to without staging. NULL: any does.
    void *(*host_alloc)(struct device *dev, size_t bytes);
    void (*host_free)(struct device *dev, void *p);
    void (*step_end)(struct device *dev);
    // Waits for the oldest step that has not been synced. out holds nothing of use where there is no head.
    enum status (*sync)(struct device *dev, struct step_out *out, struct err *err);

    // Copies pages in this order, within the device and between its pool and the host's, after the steps launched before
    // and before the next one. Asynchronous: returns at once where the device works beside the host.
    void (*kv_copy)(struct device *dev, const struct kv_move *moves, int num_moves);
    // A page of the host's pool, kv_block_bytes() of it, in the device's own layout. NULL as a function: the device keeps no store.
    void *(*kv_host_page)(struct device *dev, int32_t page);
    // Zeroes those bytes of it that layers of the group do not write. NULL: they stay as they are.
    void (*kv_host_clear)(struct device *dev, int32_t page, int group);
    // Whether kv_copy() outside of steps has ended well, without waiting. Until then there is no other. NULL: it ends at once.
    bool (*kv_copied)(struct device *dev);
};

// The one symbol a module exports. NULL: it does not speak this ABI, or finds no device.
typedef const struct backend_ops *backend_entry(uint32_t abi);
#define BACKEND_ENTRY "quire_backend_v1"

extern const struct backend_ops backend_cpu; // kernels/cpu: the default backend
extern const struct backend_ops backend_ref; // kernels/ref: slow, plain, the oracle of tests/ops

#ifdef __cplusplus
}
#endif
