// What the host parts of the CUDA backend share.
#pragma once

#include "ops.h"
#include "plan.h"

enum { CUDA_MAX_GRAPHS = 64 }; // kinds of recorded steps; QUIRE_CUDA_GRAPHS may say fewer

// What a rank knows of the others (group.c). Only where there are several.
struct group {
    struct comm *comm;
    int rank, world;
    bool joined;                  // all know each other
    uint32_t *stop[COMM_MAX_SUM]; // of each rank, in host memory
    int begin[COMM_MAX_SUM + 1];  // tokens of the head that ranks hold
    int most;                     // candidates of a row at most; 0: logits are always needed
    struct rt_nccl *nccl;         // or NULL
    // On the device:
    struct cuda_group meet;
    uint32_t *flags;
    float *part; // (T, D) this rank's part of a row-parallel product
    struct cuda_few *few;
    float *few_logits, *few_max;
    int32_t *few_ids;
    const float *parts[COMM_MAX_SUM]; // of each rank
    float *logits[COMM_MAX_SUM], *max[COMM_MAX_SUM];
    const struct cuda_few *fews[COMM_MAX_SUM];
};

struct weight {
    struct weight *next; // all weights of the device
    enum weight_role role;
    // Parts of one type that follow each other are one matrix. Matrix i gives columns [column[i], + rows[i]).
    int num_matrices;
    struct cuda_matrix matrix[3];
    int rows[3], column[3];
    bool interleaved;              // gate and up in one matrix: 8 gates, 8 ups
    struct cuda_segments segments; // of a row-parallel matrix that ranks share in exact mode
    float *bias;                   // of all columns, or NULL
    void *table;                   // EMBED: rows as in the file; NORM: F32
    enum dtype dtype;              // of table
};

// Activations in the forms that the weights of a role need; NULL where none does. Rows of `ld` elements, of
// which those past the data stay zero.
struct activation {
    int n, ld;
    void *data[3]; // by enum cuda_form
    float *scale;  // of FORM_F16
};

// A recorded step. Steps with the same key launch the same kernels with the same arguments.
struct graph {
    int num_tokens, max_items;
    bool edits;
    int num_seen;
    struct rt_graph *graph;
};

struct result { // in host memory: what step_out points to
    int32_t *ids, *top_ids;
    float *logprob, *top_logprobs, *logits;
    uint8_t *failed;
    int num_rows;
};

struct device {
    struct rt *rt;
    struct rt_info info;
    const struct backend_host *host;
    struct model_config model;
    enum dtype kv_dtype;
    int block_size;
    bool exact, fast; // fast: attention has kernels for this shape
    struct weight *weights;
    size_t weight_bytes;
    unsigned formats;         // of loaded matrices, a bit each
    unsigned forms[3];        // that the weights of hidden, attention and FFN inputs need, a bit each
    size_t largest_quantised; // elements of the largest matrix that a library must get as bf16

    struct step_limits limits;
    int max_tokens, max_rows; // of the limits, and not less than a recorded step may be padded to
    struct workspace ws;
    struct activation hidden, attn, ffn; // normalised rows; attention output; SwiGLU output
    struct activation last;              // normalised head rows
    float *resid, *qkv, *wide;           // (T, D), (T, q + 2 kv), (T, widest result of a library's product)
    void *q;                             // (T, H, d) in cuda_query_dtype()
    uint16_t *dequantised;
    float *rope_cos, *rope_sin;
    float *partial;
    int max_items;                                    // that `partial` holds
    float *logits, *max, *edited, *edited_max, *sums; // (CUDA_HEAD_ROWS, ...)
    char *keys, *values;                              // (L, num_blocks, K, B, d)
    float *key_scales, *value_scales;                 // (L, num_blocks, K, B) of an I8 cache, or NULL
    void *arena;                                      // all of the above but the cache
    int logits_ld, num_groups;

    struct plan_config plan_config;
    struct cuda_inputs inputs;
    struct group group;       // world 1: unused
    unsigned char *upload[2]; // host, by parity of the step
    void *staging;            // device
    size_t upload_bytes;
    uint32_t *seen, stamp;
    struct plan plan; // of the step that is being queued
    const struct step *step;
    int graph_items; // max_items of the graph being recorded, or 0
    struct graph *recording;
    struct graph graphs[CUDA_MAX_GRAPHS];
    int num_graphs, max_graphs;

    // Results, on the device and (two steps) on the host.
    int32_t *ids, *top_ids;
    float *logprob, *top_logprobs;
    uint8_t *failed;
    struct result result[2];
    uint64_t num_begun, num_synced;
};

static inline int device_q_size(const struct device *d) { return d->model.num_heads * d->model.head_dim; }
static inline int device_kv_size(const struct device *d) { return d->model.num_kv_heads * d->model.head_dim; }
static inline int round_up(int n, int to) { return (n + to - 1) / to * to; }

// backend.c
size_t cuda_kv_layer_bytes(const struct device *dev);   // keys or values of one layer
size_t cuda_kv_layer_vectors(const struct device *dev); // their number
size_t cuda_kv_block_bytes(struct device *dev);
struct cuda_kv cuda_layer_kv(const struct device *dev, int layer);

// memory.c
enum status cuda_reserve(struct device *dev, const struct step_limits *limits, struct workspace *ws,
                         struct err *err);

// weight.c
struct weight *cuda_weight_load(struct device *dev, const struct weight_desc *desc, struct err *err);
void cuda_weight_free(struct device *dev, struct weight *w);

// Hands out pieces of one arena; with base NULL it only counts.
struct carver {
    char *base;
    size_t used;
};
void *cuda_carve(struct carver *c, size_t n, size_t size);

// group.c. Where a rank has failed, all do: each finds out in step_begin(), step_end() or sync().
// STATUS_DEVICE with err: devices that cannot work together.
enum status cuda_group_open(struct device *dev, const struct device_config *config, struct err *err);
void cuda_group_close(struct device *dev);
void cuda_group_carve(struct device *dev, struct carver *c);
// At the beginning of each step; the first time the ranks make themselves known to each other.
void cuda_group_join(struct device *dev);
// Tells the others if this device has failed, and fails if the group has ended.
void cuda_group_check(struct device *dev);
// As rt_wait(), and ends when the group does.
enum status cuda_group_wait(struct device *dev, int slot, struct err *err);
// resid += sum of the parts (+ bias)
void cuda_group_add(struct device *dev, float *resid, const float *bias, int rows);
// What other ranks know of head rows [0, n) of s, which gets what is found.
void cuda_group_gather(struct device *dev, struct cuda_sample *s, int n);

// multiply.c
// y = x w^T into columns of y (m, ldy), bias apart.
void cuda_multiply(struct device *dev, const struct weight *w, const struct activation *x, int m, float *y,
                   int ldy);
// resid += x w^T (+ bias)
void cuda_multiply_add(struct device *dev, const struct weight *w, const struct activation *x, int m,
                       float *resid);
// h = silu(gate) * up, in every form that h has but F16, which is made from F32
void cuda_multiply_swiglu(struct device *dev, const struct weight *w, const struct activation *x, int m,
                          struct activation *h);
// Fills the F16 form of rows that lie there as F32.
void cuda_make_f16(struct device *dev, struct activation *x, int m);
// The form in which a kernel writes activations: F32 where any weight needs F32 or F16, else BF16.
enum cuda_form cuda_written_form(const struct activation *x);
// Where in `wide` the products of gate and up lie, in elements.
size_t cuda_both_offset(const struct device *dev);
// Where both are needed: BF16 from F32.
void cuda_make_bf16(struct device *dev, struct activation *x, int m);
