// Shared by the parts of the CPU backend: weights as packed, the device, its scratch.
#pragma once

#include "backend.h"
#include "kernels.h"
#include "memory.h"
#include "pack.h"
#include "pool.h"
#include "rope.h"
#include "rope_table.h"

#include <stdint.h>

enum { MAX_EXPERTS = 1024 };

// One matrix, in panels of 16 (layouts in kernels/README.md).
struct weight_part {
    enum dtype dtype;
    int rows, cols;
    int num_panels;     // ceil(rows / 16)
    int block;          // k per block: 1, 2 (BF16), 32 or 256
    int num_blocks;     // ceil(cols / block)
    size_t panel_bytes; // of one panel
    char *data;         // (num_groups) panels
};

struct weight {
    struct weight *next; // all weights of the device
    enum weight_role role;
    int num_parts;
    int num_panels; // over all parts
    struct weight_part part[3];
    float *bias[3];  // (rows of the part), of all experts, or NULL
    int num_experts; // this rank's, or heads, each with matrices of the parts' shape; 0: parts are one matrix
    // Bounds in blocks of the part of K that each segment of a row-parallel matrix takes, this rank's own
    int segments[NUM_SEGMENTS + 1], num_segments;
    int all_cols;  // K of all ranks
    float *vector; // the first part of a weight_is_plain(); bias[0] beside it
    void *table;   // WEIGHT_EMBED of a model with a head of its own: rows as in the file
    struct region region;
};

// GEMMs that cut K into pieces: the panels and tokens whose sums wait at a time, and how many sums wait of each
enum {
    PIECE_UNIT = 256, // k
    PIECE_TOKENS = 512,
    PIECE_PAIRS = 8,
    PIECE_LEVELS = 3,
    PIECE_SUMS = PIECE_LEVELS * PIECE_PAIRS * PIECE_TOKENS * TILE_PANELS * LANES
};

// Memory for rows of activations in each form, activation_stride() apart.
struct act_rows {
    char *floats, *bf16, *q8, *pairs;
};

// Rows [begin, end) of a grouped GEMM, which one of the device's experts multiplies.
struct expert_rows {
    int expert, begin, end;
};

// Which experts the rows of a layer go to. Rows come in chunks, in each of which those of an expert lie together: these
// are its slots.
struct routing {
    float *logits, *gates;      // (T, E); (T) of the shared expert
    int32_t *experts;           // (T, top_k) ascending
    float *weights;             // (T, top_k)
    int32_t *slot;              // (T, top_k) of the row's chunk; -1: another rank's
    int32_t *rows;              // (T * top_k) the row of each slot of a chunk, from row * top_k on
    float *scales;              // (T * top_k) what each slot's row is multiplied by, with weigh_input
    struct expert_rows *groups; // (chunks, E)
    int *num_groups;            // (chunks)
    float *out;                 // (slots of a chunk, D)
};

// The rows of a GEMM in the forms that the dtypes of its weights need.
struct gemm_input {
    const void *data[DTYPE_COUNT]; // by weight dtype
    size_t stride[DTYPE_COUNT];    // bytes from row to row
    const char *pairs;             // of quantised types, for tiles that unpack them; NULL: none
    size_t pairs_stride;
    int num_rows;
};

struct lora_adapter;
struct lora_group;
struct lora_rows { // of a step, those that have an adapter (lora.c)
    int32_t *rows; // (T) the row of each slot: those of an adapter together
    struct lora_group *groups;
    int num_groups;
    int32_t *next;      // (adapters) scratch
    struct act_rows x;  // (slots of a chunk)
    float *low;         // (slots of a chunk, 3, rank) A x
    uint16_t *low_bf16; // the same, rounded
};

struct cpu_result { // step_out points to these
    int32_t *ids, *rank, *top_ids;
    float *logprob, *share, *top_logprobs, *logits, *hidden;
    uint8_t *failed;
    int num_rows;
    struct expert_counts experts;
};

struct attn_scratch { // of one thread
    float *out;       // (queries, d)
    float *max, *sum; // (queries)
    float *chunk_out; // (queries + 8, d rounded up to 16)
    char *keys;       // 16 tiles, widened from I8
    char *values;
    float *q; // (queries / 8, d, 8); of pairs of bf16 where keys are BF16 or I8
};

struct device {
    struct model_config model;
    const struct cpu_kernels *kernels;
    struct pool *pool;
    enum dtype kv_dtype;
    int block_size;                              // a multiple of 16
    int kv_size, kv_heads;                       // of a place of a page: model_kv_size(), model_kv_heads()
    int max_q, max_group, max_kv, max_kv_heads;  // the most of any layer: H*d, H/K, K*d, K
    int max_head_dim;                            // d
    int max_heads_in, max_heads_out, max_q_lora; // H*(n+r), H*v or H*d, U
    int max_ffn;                                 // F, or S of layers with experts
    int max_slot;                                // F of experts
    int max_experts, max_top_k;
    int max_latent;   // at most D
    bool any_shared;  // a layer with experts has one that all rows go to
    bool any_weighed; // one multiplies what goes into them
    int max_mix;      // heads*P of recurrent layers
    bool has_head;    // the last stage, or the only one
    struct weight *weights;
    struct weight *embed; // the table; of a tied model it is packed, and the head
    size_t weight_bytes;
    unsigned dtypes; // of loaded matrices, a bit each
    unsigned expert_dtypes;
    struct comm *comm; // NULL: one rank
    int rank, world;
    struct err failure; // of a collective: the device is dead

    struct step_limits limits;
    struct lora_adapter **adapters; // (max_adapters)
    struct region arena;            // everything below
    struct lora_rows lora;
    float *resid, *q, *h;
    float *mtp;         // (T, 2D) of an MTP layer: what MTP_PROJ takes
    float *key, *value; // (T, K*d) of this step
    float *gate;        // (T, H*d) of the attention output, where layers have one
    float *q_latent;    // (T, U)
    char *by_head;      // (threads) cpu_latent_scratch() bytes
    // Recurrent layers: (T) rows q, k, v; (T) rows of the output gate and two values for each head; (T, heads*P)
    float *mix_in, *mix_gate, *mixed;
    float *units[2];                 // (N) what makes q and k of length 1 / sqrt(N) and 1
    float *latent;                   // (T, latent) what experts take, then the sum of what they give
    float *gate_up[2];               // (T, F) where they are not multiplied at once
    float *altup, *laurel;           // (N, T, D), of which the first is only predicted; (T, D)
    float *low, *stream_coefs;       // (T, R); (T, N)
    float *gate_sums, *gate_mean;    // (T) of sparse gates
    float *merged;                   // (N, head rows, D)
    float *layer_embed, *layer_rows; // (T, L*P) what layers take of each token; (threads, L*P)
    struct act_rows rows;            // (T)
    struct act_rows slots;           // (slots of a chunk), of experts
    float *piece_sums;               // (threads, PIECE_SUMS), where tiles of AMX take K in pieces
    struct routing routing;
    float *logits;  // (own head rows, padded V)
    int head_rows;  // rows that the head computes at a time
    float *partial; // (T, D) what this rank adds to the residual stream; of a shared expert as many more
    float *
        before; // (T, D) with parallel blocks and early routers: the residual stream without attention's part
    struct head_ranks *head;   // with ranks: scratch of head.c
    struct attn_scratch *attn; // (threads)
    float *attn_partials;      // partials of decode's chunks over long contexts
    struct sampler **samplers; // (threads)
    struct region kv;          // kv.h
    struct region host_kv;     // pages, each with its scales behind it
    struct rope_table ropes[MODEL_MAX_ROPES];
    struct cpu_result result[2]; // of steps with odd and even number
    uint64_t num_begun, num_synced;
};

// Bytes from one row of activations to the next: an odd number of cache lines, so that the same column of the
// rows of a tile does not fall into the same sets of the cache. With rows of a power of two GEMMs took
// twice as long.
static inline size_t activation_stride(size_t bytes) { return ((bytes + 63) / 64 | 1) * 64; }

static inline int attn_q_size(const struct attn_spec *a) { return a->heads * a->head_dim; }
// y = x normalised as the model does, by weights of the norm from `first` on
static inline void device_norm(const struct device *d, float *y, const float *x, const struct weight *norm,
                               int first, int n) {
    if (d->model.norm == NORM_LAYER)
        d->kernels->layernorm(y, x, norm->vector + first, norm->bias[0], n, d->model.norm_eps);
    else
        d->kernels->rmsnorm(y, x, norm->vector + first, n, d->model.norm_eps);
}
// Rows that the feed-forward part normalises.
static inline const float *device_ffn_input(const struct device *d) {
    return block_is_parallel(d->model.block) ? d->before : d->resid;
}
// Elements of what attention gives a head.
static inline int attn_value_dim(const struct attn_spec *a) {
    return a->kind == ATTN_LATENT ? a->kv_lora : a->head_dim;
}

// weight.c
struct weight *cpu_weight_load(struct device *dev, const struct weight_desc *desc, struct err *err);
void cpu_weight_borrow(struct device *dev, const struct weight *w);
void cpu_weight_free(struct weight *w);
struct weight_part cpu_part_shape(enum dtype dtype, int rows, int cols); // without data
// Element-exact row of an embedding table.
void cpu_embedding_row(float *y, const struct weight *w, int row);

// gemm.c
// Brings rows of x into the forms that w's dtypes need; normalised by norm first where not NULL. rows: which,
// or NULL for the first num_rows.
struct gemm_input cpu_gemm_input(struct device *dev, const float *x, int num_rows,
                                 const struct logits_row *rows, const struct weight *w,
                                 const struct weight *norm);
// The same of the rows of experts; rows: which rows of x, ldx floats apart, or NULL for the first ones. scales: what they
// are multiplied by, or NULL.
struct gemm_input cpu_gemm_slots(struct device *dev, const float *x, size_t ldx, int num_slots,
                                 const int32_t *rows, const float *scales, const struct weight *w);
// y[part] (rows, ldy[part]) = activations times each part
void cpu_matmul(struct device *dev, float *const y[3], const int ldy[3], const struct gemm_input *x,
                const struct weight *w);
// y += activations times w, as 8 segments of K
void cpu_matmul_add(struct device *dev, float *y, int ldy, const struct gemm_input *x,
                    const struct weight *w);
// y = activations times w, as the segments of K that this rank has: its part of the tree
void cpu_matmul_part(struct device *dev, float *y, int ldy, const struct gemm_input *x,
                     const struct weight *w);
// y = act(activations times gate) * (activations times up), or of one part act(activations times it); biases
// before act
void cpu_matmul_act(struct device *dev, float *y, int ldy, const struct gemm_input *x, const struct weight *w,
                    enum act act);

// The same of experts: each group of rows by its own
void cpu_matmul_experts(struct device *dev, float *y, int ldy, const struct gemm_input *x,
                        const struct weight *w, const struct expert_rows *groups, int num_groups);
void cpu_matmul_experts_gated(struct device *dev, float *y, int ldy, const struct gemm_input *x,
                              const struct weight *w, enum act act, const struct expert_rows *groups,
                              int num_groups);

// experts.c
void cpu_experts_arena(struct device *dev, struct cpu_arena *a);
// The two halves of the feed-forward part of a layer with experts. The second leaves in dev->partial the rank's sum of
// each row, (T, D), and behind it the shared expert's, (T, D), which the caller adds.
void cpu_experts_in(struct device *dev, const struct layer *layer, int num_tokens);
void cpu_experts_out(struct device *dev, const struct layer *layer, int num_tokens);
// With ffn_spec.latent that sum is in dev->latent; brings it back to dev->partial when it is that of all ranks.
void cpu_experts_back(struct device *dev, const struct layer *layer, int num_tokens);

// latent.c
// The first half of latent attention: latents into the cache, queries of all heads, absorbed, into dev->q.
void cpu_latent_in(struct device *dev, const struct layer *layer, const struct step *step);
// The second: values of all heads into dev->h, of what attention has left in dev->q.
void cpu_latent_out(struct device *dev, const struct layer *layer, int num_tokens);
size_t cpu_latent_scratch(const struct device *dev); // bytes of a thread
// Cosines and sines by which the pairs of a row rotate.
struct rope_turn {
    const float *cos, *sin; // (pairs)
    int pairs;
    bool interleaved;
    float own[2][MAX_HEAD_DIM / 2]; // where axes differ
};
static inline void rope_turn_set(struct rope_turn *r, const struct rope_table *t, const struct step *step,
                                 int row) {
    size_t at = (size_t)step->positions[row] * (size_t)t->pairs;
    r->pairs = t->pairs, r->interleaved = t->interleaved;
    r->cos = t->cos + at, r->sin = t->sin + at;
    if (!step->rope_positions)
        return;
    for (int i = 0; i < t->pairs; i++) {
        const int32_t *axis = step->rope_positions + rope_axis(&t->sections, i) * step->num_tokens;
        at = (size_t)axis[row] * (size_t)t->pairs + (size_t)i;
        r->own[0][i] = t->cos[at], r->own[1][i] = t->sin[at];
    }
    r->cos = r->own[0], r->sin = r->own[1];
}
// Rotates a head of the turn's dimensions.
static inline void rotate_head(float *x, const struct rope_turn *r) {
    for (int i = 0; i < r->pairs; i++) {
        float *a = x + (r->interleaved ? 2 * i : i), *b = r->interleaved ? a + 1 : a + r->pairs;
        float x0 = *a, x1 = *b;
        *a = x0 * r->cos[i] - x1 * r->sin[i];
        *b = x0 * r->sin[i] + x1 * r->cos[i];
    }
}

// Notes that a collective has failed: the device is dead, and later phases compute on whatever is there.
// false: it has, now or before.
static inline bool device_comm_ok(struct device *dev, enum status status) {
    if (status != STATUS_OK && dev->failure.code == STATUS_OK)
        err_set(&dev->failure, STATUS_DEVICE, "rank %d of %d: %s", dev->rank, dev->world,
                dev->comm->ops->error(dev->comm));
    return dev->failure.code == STATUS_OK;
}

// head.c
enum status cpu_head_open(struct device *dev); // after head_rows is known. STATUS_NOMEM
void cpu_head_close(struct device *dev);
void cpu_head_arena(struct device *dev, struct cpu_arena *a);
void cpu_head(struct device *dev, const struct model *model, const struct step *step);

// streams.c, of models with streams and of sparse gates (kernels/README.md, rule 23)
void cpu_altup_arena(struct device *dev, struct cpu_arena *a);
// Makes the others of the first, dev->resid.
void cpu_altup_embed(struct device *dev, const struct model *model, int num_tokens);
void cpu_layer_in(struct device *dev, const struct layer *layer, const struct step *step);
// Adds to dev->resid, behind attention, what cpu_layer_in() has made for it.
void cpu_laurel_add(struct device *dev, int num_tokens);
// Corrects all; what embed_gate takes goes to dev->partial.
void cpu_altup_correct(struct device *dev, const struct layer *layer, int num_tokens);
// Adds dev->partial, normalised, to all but the first.
void cpu_altup_add(struct device *dev, const struct layer *layer, int num_tokens);
// Their mean of n rows, at most head_rows: (n, D)
const float *cpu_altup_merge(struct device *dev, const struct model *model, const struct logits_row *rows,
                             int n);
// The gates that lie high enough among all of their row, in dev->gate_up[0] (T, F of the rank).
void cpu_sparse_gates(struct device *dev, const struct layer *layer, int num_tokens);

// mix.c
const char *cpu_mix_problem(const struct mix_spec *m); // why this backend cannot compute it, or NULL
void cpu_mix_arena(struct device *dev, struct cpu_arena *a);
void cpu_mix(struct device *dev, const struct layer *layer, const struct step *step); // into dev->mixed

// attention.c
// Split-KV partials that decode can keep; cpu_attn_partial_bytes() each.
size_t cpu_attn_partials(const struct device *dev);
size_t cpu_attn_partial_bytes(const struct device *dev);
// Returns the bytes; memory NULL: counts only.
size_t cpu_attn_scratch(struct device *dev, struct attn_scratch *s, char *memory);
// Attention of sequences [seq0, seq1) of the step: queries in dev->q, results in dev->h.
void cpu_attend(struct device *dev, const struct layer *layer, const struct step *step, int seq0, int seq1);
