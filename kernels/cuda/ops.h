// The kernels of the CUDA backend, one launcher each. Pointers are device memory, 16-byte aligned, rows too;
// every launcher only queues. No launcher needs a device's data on the host, so that a CUDA graph can
// replay it over other contents. Sums of one output element are in an order that depends on its own row alone
// (README, rule 3).
//
// The tests in tests/emu compare each with kernels/ref. Over 600 lines: one struct of arguments for each kernel, which
// host and kernels read in one place.
#pragma once

#include "backend.h"
#include "rt.h"
#include "tune.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __CUDACC__
#define CUDA_BOTH static inline __host__ __device__ // on host and device
#else
#define CUDA_BOTH static inline
#endif

enum { CUDA_GROUP = 16 };   // logits per group maximum
enum { CUDA_SLICE = 4096 }; // logits that one block adjusts; a multiple of CUDA_GROUP

// How activations are held for a GEMM.
enum act_dtype {
    ACT_DTYPE_F32,
    ACT_DTYPE_BF16,
    ACT_DTYPE_F16, // times 2^14 .. 2^15 over the largest of the row; the factor back is in `scale`
};

// ---- the upload of a step

// Arrays that kernels find at fixed places come in one upload of changing layout. It begins with these.
struct cuda_part {
    void *to;      // device memory, 16-byte aligned
    uint32_t from; // byte of the upload, a multiple of 16
    uint32_t num;  // of 16 bytes each
};
struct cuda_scatter {
    const void *upload;
    int num_parts;
};
void cuda_scatter(struct rt *rt, const struct cuda_scatter *a);

// ---- rows

struct cuda_embed {
    const int32_t *ids;     // (rows); -1-r: sampled[r]
    const int32_t *sampled; // of the step before
    const void *table;      // (vocab, hidden) rows as in a file
    enum dtype dtype;
    float *resid; // (rows, hidden)
    float factor;
    int rows, hidden, vocab;
    // Rows of these are added, (types, hidden) and (positions, hidden), or NULL.
    const float *type_table, *position_table;
    const int32_t *types, *positions; // (rows); types NULL: all are 0
};
void cuda_embed(struct rt *rt, const struct cuda_embed *a);

// Rows that bring embeddings of their own, in place of those that cuda_embed() gave them.
struct cuda_embed_own {
    struct cuda_embed all;
    const int32_t *embed_rows; // (num) of `all`
    const float *embeds;       // (num, hidden)
    int num;
};
void cuda_embed_own(struct rt *rt, const struct cuda_embed_own *a);

// The embedding of a token for each layer, by pieces of n: x = (norm(x * factor) + row * own_factor) * sqrt(0.5).
struct cuda_embed_layers {
    const int32_t *ids, *sampled; // as in struct cuda_embed
    const void *table;            // (vocab, layers * n) rows as in a file; tokens behind them take the first
    enum dtype dtype;
    const float *norm, *norm_bias; // (n), bias or NULL
    enum norm_kind kind;
    float *x; // (rows, layers * n), changed
    float factor, own_factor, eps;
    int rows, layers, n, vocab;
};
void cuda_embed_layers(struct rt *rt, const struct cuda_embed_layers *a);

// resid = (resid + factor * norm(x + bias)) * scale; of_sum: resid = norm(resid + factor * (x + bias)). bias, norm
// and scale may be NULL.
struct cuda_add {
    float *x;                 // (rows, n), changed
    const float *bias, *norm; // (n)
    float *resid;             // (rows, n)
    float factor, eps;        // eps: of the norm
    int rows, n;
    enum norm_kind kind;
    const float *norm_bias; // (n) or NULL
    const float *scale;     // (1) or NULL
    int copies;             // resid is so many, `stride` elements apart; 0 counts as 1
    size_t stride;
    bool of_sum; // then scale is NULL, copies 0
};
void cuda_add(struct rt *rt, const struct cuda_add *a);

// out = v / sqrt(mean(v^2) + eps) * weight + bias, v being x or, with NORM_LAYER, x - mean(x); or x where weight is NULL;
// as act_dtype. Leaves columns [n, ldout) alone.
struct cuda_norm {
    const float *x;    // (rows, ldx)
    const int32_t *of; // (rows) which row of x, `of_stride` apart; < 0: none, out becomes 0. NULL: in order
    int of_stride;
    const float *weight; // (n)
    const float *bias;   // (n) or NULL
    enum norm_kind kind;
    void *out;    // (rows, ldout); F32 may be x itself
    float *scale; // (rows), ACT_DTYPE_F16
    enum act_dtype act_dtype;
    int rows, n, ldx, ldout;
    float eps;
};
void cuda_norm(struct rt *rt, const struct cuda_norm *a);

// By what sums of cuBLASLt are to be multiplied.
struct cuda_scales {
    const float *row, *column; // (rows), (columns), or NULL: 1
};

// The activation after the GEMM of a feed-forward: out = act(gate) * up, or act(x). See struct cuda_gemm for the
// order of columns.
struct cuda_act {
    const void *x; // (rows, ldx) f32, or bf16
    bool bf16;
    struct cuda_scales scales; // columns: (ldx)
    const float *bias;         // (2 n) or (n) as in struct cuda_gemm, or NULL
    enum act act;
    bool gated;
    void *out; // (rows, ldout) ACT_DTYPE_F32 or ACT_DTYPE_BF16
    enum act_dtype act_dtype;
    int rows, n, ldx, ldout;
    bool interleaved; // 8 gates, 8 ups, ...; else all gates from column 0, all ups from column `up`
    int up;
    const float *ups; // (rows, ld_ups) in their place, or NULL
    int ld_ups;
};
void cuda_act(struct rt *rt, const struct cuda_act *a);

// x = x * sigmoid(gate).
struct cuda_gate {
    float *x;          // (rows, ldx), changed
    const float *gate; // (rows, n)
    int rows, n, ldx;
};
void cuda_gate(struct rt *rt, const struct cuda_gate *a);

// The epilogue after a GEMM of cuBLASLt, or a sum by NCCL: y = or += x * scales + bias.
struct cuda_finish {
    const void *x; // (rows, ldx) f32, or bf16
    bool bf16;
    struct cuda_scales scales;
    const float *bias; // (n) or NULL
    float *y;          // (rows, ldy)
    int rows, n, ldx, ldy;
    bool add;
};
void cuda_finish(struct rt *rt, const struct cuda_finish *a);

// Streams beside resid (kernels/README.md, rule 23): what a layer has predicted of resid, then the others.
struct cuda_streams {
    float *resid;   // (rows, n)
    float *streams; // (ALTUP_STREAMS, rows, n), `stride` elements apart
    size_t stride;
    const float *norm, *router; // (n), (N, n) with N = ALTUP_STREAMS
    const float *coefs;         // (N * N or N, N)
    const float *scale;         // correct: (n) of out
    float *out;                 // correct: (rows, n) resid * scale; merge: the mean
    const int32_t *of;          // merge: as in struct cuda_norm, of resid; what is < 0 gives anything finite
    int of_stride;
    float eps;
    int rows, n;
};
// Makes all but the first as long as resid.
void cuda_altup_embed(struct rt *rt, const struct cuda_streams *a);
void cuda_altup_predict(struct rt *rt, const struct cuda_streams *a);
void cuda_altup_correct(struct rt *rt, const struct cuda_streams *a);
// streams: the others alone, of rows of out.
void cuda_altup_merge(struct rt *rt, const struct cuda_streams *a);

// resid = (resid + (norm(predicted) by in_norm + norm(laurel))) * sqrt(0.5)
struct cuda_laurel {
    float *resid;                    // (rows, n)
    const float *predicted, *laurel; // (rows, n)
    const float *in_norm, *norm;     // (n)
    float eps;
    int rows, n;
};
void cuda_laurel(struct rt *rt, const struct cuda_laurel *a);

// Gates become how far they lie above their row's mean and so many of its standard deviations, or 0.
struct cuda_cut {
    float *x; // (rows, ldx) as in struct cuda_act
    float deviations;
    int rows, n, ldx;
    bool interleaved;
};
void cuda_cut(struct rt *rt, const struct cuda_cut *a);

// ---- matrices

enum weight_layout {
    LAYOUT_F32,    // row-major
    LAYOUT_BF16,   // row-major
    LAYOUT_F16,    // row-major
    LAYOUT_Q8_0,   // int8, f16 scale per 32
    LAYOUT_Q4_0,   // nibble - 8, f16 scale per 32
    LAYOUT_Q4_K,   // nibble; 6-bit scale and minimum per 32, two f16 per 256
    LAYOUT_Q5_K,   // byte; as Q4_K
    LAYOUT_Q6_K,   // int8; 8-bit scale per 16, f16 per 256
    LAYOUT_MXFP4,  // nibble of a 4-bit float; 8 bits of a scale's exponent per 32
    LAYOUT_Q2_K,   // nibble - 8; 8-bit scale and minimum per 16, two f16 per 256
    LAYOUT_IQ4,    // nibble of IQ4's table; f32 scale per 32
    LAYOUT_Q5_1,   // as Q5_K, and multiplied by its kernels, but two f16 per 32
    LAYOUT_FP8,    // E4M3, f32 scale per 128
    LAYOUT_FP8_32, // as FP8, and multiplied by its kernels, but a scale per 32
    LAYOUT_COUNT
};

CUDA_BOTH bool cuda_layout_has_nibbles(enum weight_layout f) {
    return f == LAYOUT_Q4_0 || f == LAYOUT_Q4_K || f == LAYOUT_MXFP4 || f == LAYOUT_Q2_K || f == LAYOUT_IQ4;
}

// Whether cuBLASLt takes FP8 as E4M3: with a scale for each row, each 128 rows and 128 columns, or 128 columns of each row.
enum cuda_e4m3 { E4M3_NO, E4M3_ROWS, E4M3_BLOCKS, E4M3_GROUPS };

// A matrix in device memory. Rows padded to 16 and columns to a whole k-step with zeros. Plain layouts are
// row-major with `cols` elements a row. Quantised ones are tiles of 16 rows by 32 (bytes) or 64 (nibbles)
// columns in the order of the lanes that multiply them (README, "Layouts"); `scales` and `supers` beside
// them.
struct cuda_matrix {
    enum weight_layout layout;
    int rows, cols; // padded
    void *data, *scales, *supers;
    enum cuda_e4m3 e4m3;
};

// Copies (and for quantised types rearranges) a file's matrix into rows of w. Rows and columns that the file
// lacks keep the zeros of a fresh allocation.
struct cuda_pack {
    const void *raw; // (rows, cols) as in the file, in device memory
    enum dtype dtype;
    int rows, cols;
    struct cuda_matrix w;
    int row0;       // row of w that gets row 0
    int interleave; // 1: gates, 2: ups: row r goes to r / 8 * 16 + r % 8, ups 8 further
};
void cuda_pack(struct rt *rt, const struct cuda_pack *a);

// The layout of rows of a file's type: of FP8 by whether all of their 128 columns are whole, as the parts of ranks, which are
// alike, begin then, too. And columns of one k-step, to which a matrix is padded.
enum weight_layout cuda_layout_of(enum dtype t, int cols);
int cuda_layout_k_step(enum weight_layout f);
// Bytes of the three arrays of a matrix of padded size.
void cuda_matrix_bytes(enum weight_layout f, int rows, int cols, size_t bytes[3]);

enum cuda_epilogue {
    EPILOGUE_STORE, // y = result (+ bias)
    EPILOGUE_ADD,   // y += result (+ bias)
    EPILOGUE_GATED, // h = act(gate) * up; rows of the matrix alternate: 8 gates, 8 ups
    EPILOGUE_ACT,   // h = act(result + bias)
    // y = (result (+ bias)) * factor, capped, and the maximum of each 16 columns (NaN if one is NaN)
    EPILOGUE_LOGITS,
};

// Which of the 8 segments of a row-parallel matrix a rank holds, where the sums of ranks must be the tree of
// one (README, rule 13): segments [first, first + num) of a matrix of `cols` columns, padded. num 0: all 8
// are its own.
struct cuda_segments {
    int num, first, cols;
};

// Where blocks that share an output tile leave their sums, and what the device offers them. All 0: none do.
enum { CUDA_PART = 128 * 64 }; // elements that a block leaves at most; of gemm_wgmma.cu twice as many
struct cuda_parts {
    float *sums;       // (max_blocks, CUDA_PART)
    uint32_t *arrived; // (max_blocks) 0 between launches
    int max_blocks;    // of a launch whose blocks share tiles
    size_t shared_max; // shared memory of a block
    bool wgmma;        // gemm_wgmma.cu is to be taken where it has the layout
};
// Whether the device and this build have the kernels of sm_90a (*_wgmma.cu), and whether QUIRE_CUDA_WGMMA=1 asks for them, too.
bool cuda_has_wgmma(struct rt *rt);
bool cuda_takes_wgmma(struct rt *rt);

struct cuda_gemm {
    struct cuda_matrix w;
    struct cuda_segments segments;
    struct cuda_parts parts;
    const void *x;      // (m, ldx) in the layout's activation dtype; finite up to w.cols, where w is zero
    const float *scale; // (m) ACT_DTYPE_F16
    int m, ldx;
    enum cuda_epilogue epilogue;
    float *y;          // (m, ldy)
    int ldy, n;        // columns of y (GATED, ACT: of h) that exist
    const float *bias; // (n), GATED: (2 n) gates' and then ups', or NULL
    void *h;           // GATED, ACT: (m, ldy) ACT_DTYPE_F32 or ACT_DTYPE_BF16
    enum act act;      // not ACT_CLAMPED without a gate
    enum act_dtype act_dtype;
    float *max; // LOGITS: (m, ldmax)
    int ldmax;
    float factor, softcap; // LOGITS; softcap 0: none
};
void cuda_gemm(struct rt *rt, const struct cuda_gemm *a);

// The activation dtype that a layout is multiplied by.
static inline enum act_dtype cuda_act_dtype_of(enum weight_layout f) {
    return f == LAYOUT_F32 ? ACT_DTYPE_F32 : f == LAYOUT_F16 ? ACT_DTYPE_F16 : ACT_DTYPE_BF16;
}

// ---- adapters (kernels/README.md, rule 22)

enum { CUDA_LORA_ROWS = 8 }; // of a group

// A matrix's A (rank, cols) and B (rows, padded rank), row-major, `a` and `b` bytes from where the adapter begins. Columns
// are padded with zeros to a multiple of 8. rank 0: the matrix stays as it is.
struct cuda_lora_matrix {
    uint64_t a, b;
    enum dtype a_dtype, b_dtype; // F32, F16, BF16
    int rank, cols, rows;
    float scale;
};

// Rows of a step that have one adapter.
struct cuda_lora_group {
    const struct cuda_lora_matrix *adapter; // (L, ADAPTER_TARGETS), with which it begins; NULL: no rows
    int32_t rows[CUDA_LORA_ROWS];           // -1: none
};

// y += scale * B(A x) of targets [first, first + num_targets) of a layer, for rows of the groups. A x is summed by threads
// (element / 8 mod 128), then as a tree in a warp, then over warps; B t by ascending elements of t.
struct cuda_lora {
    const struct cuda_lora_group *groups;
    int num_groups, first, num_targets; // first: of all (L, ADAPTER_TARGETS)
    const void *x;                      // (., ldx), zero or finite up to a multiple of 8
    enum act_dtype act_dtype;
    const float *scale; // ACT_DTYPE_F16
    int ldx;
    float *low; // (., 3, ld_low) A x
    int ld_low; // a multiple of 8
    float *y;   // (., ldy)
    int ldy, widest;
    int column[3];    // where the targets begin in y
    bool interleaved; // there: 8 of one, 8 of the other
};
void cuda_lora(struct rt *rt, const struct cuda_lora *a);

// ---- experts (kernels/README.md, rule 20)

// Experts of each row, ids ascending, and their weights, from the router's logits.
struct cuda_route {
    const float *logits;          // (rows, num_experts)
    const float *bias;            // (num_experts) of logits, or NULL
    const float *select_bias;     // (num_experts) or NULL
    const float *factors;         // (num_experts) of an expert's weight, or NULL
    const int32_t *seq_of;        // (rows); -1: a padding row, whose experts become -1
    int32_t *experts;             // (rows, top_k)
    float *weights;               // (rows, top_k)
    int rows, num_experts, top_k; // num_experts <= CUDA_MAX_EXPERTS
    int num_groups, top_groups;   // as ffn_spec.groups
    enum gating gating;
    bool renormalise;
    float scale, logit_scale, near; // as ffn_spec.scale, .router_scale and .near
};
enum { CUDA_MAX_EXPERTS = 1024 };
void cuda_route(struct rt *rt, const struct cuda_route *a);

// A slot is an expert of a row: row * top_k + place. Slots of one expert are multiplied in groups.
struct cuda_expert_group {
    int32_t expert;
    int32_t begin, num; // of `slots`
};

struct cuda_group_slots {
    const int32_t *experts; // (num) of slots; -1: none
    int num, num_experts, group_rows;
    int first_own, num_own; // of the experts that this rank has: those of groups, which count from the first
    int32_t *slots;         // (num) by expert; those of an expert in any order
    struct cuda_expert_group *groups; // of up to group_rows slots each
    int32_t *num_groups;
    struct expert_counts *counts; // of the step and all ranks, added to or begun; NULL: not counted
    bool begins;
};
void cuda_group_slots(struct rt *rt, const struct cuda_group_slots *a);
// How many slots a group should have: 8, 16 or 32.
int cuda_group_rows(int rows, int top_k, int num_experts);
// The most groups that there can be.
int cuda_max_groups(int num_slots, int num_experts, int group_rows);

// A GEMM of every slot with its expert's matrix: row `slot` of y or h of row slot / per_row of x. EPILOGUE_STORE or
// EPILOGUE_GATED.
struct cuda_expert_gemm {
    // w: the experts' matrices, one below the other, each of whole tiles; bias has a row of each; m means nothing
    struct cuda_gemm gemm;
    const int32_t *slots;
    const struct cuda_expert_group *groups;
    const int32_t *num_groups; // on the device, <= max_groups
    int max_groups, group_rows, num_experts, per_row;
    const float *input_weights; // (slots) factors of the dots, or NULL
};
void cuda_expert_gemm(struct rt *rt, const struct cuda_expert_gemm *a);

// y = or += the weighted sum of what a row's experts give, 8 segments of experts as a tree, + the shared expert's. Of
// ranks each has its segments of the tree.
struct cuda_combine {
    const float *x;         // (rows * top_k, n) by slot; without experts (rows, n), their sum of all ranks
    const int32_t *experts; // (rows, top_k) or NULL
    const float *weights;   // (rows, top_k) or NULL: 1
    const float *shared;    // (rows, n) or NULL
    const float *gate;      // (rows) shared is multiplied by its sigmoid; or NULL
    const float *bias;      // (n) then added to shared; or NULL
    float *y;               // (rows, n)
    bool add;
    int rows, n, top_k, num_experts;
    int first_segment, num_segments; // 1, 2, 4 or 8 of them
};
void cuda_combine(struct rt *rt, const struct cuda_combine *a);

// out (rows, cols) row-major bf16 = a quantised matrix, for cuBLASLt.
struct cuda_dequant {
    struct cuda_matrix w;
    void *out;
    float *scale; // then out is E4M3, of w.e4m3: (rows), or as in struct rt_gemm; or NULL
};
void cuda_dequant(struct rt *rt, const struct cuda_dequant *a);

// Activations as E4M3, for cuBLASLt: a scale is the largest of what has it / 448.
struct cuda_quantise {
    const uint16_t *x; // (rows, ldx) bf16
    uint8_t *out;      // (rows, n)
    float *scale;      // (rows), or of 128 columns each: (n / 128, ld_scale)
    int rows, n, ldx;  // n: a multiple of 8
    int ld_scale;      // 0: a row has one scale
};
void cuda_quantise(struct rt *rt, const struct cuda_quantise *a);

// ---- keys and values

// Layout of one layer: keys then values, each (num_blocks, K, B, d) in `dtype`.
struct cuda_kv {
    void *keys, *values;
    enum dtype dtype; // F32, F16, BF16, I8, F8_E4M3
    int block_size, num_heads, head_dim;
    float *key_scales, *value_scales; // I8: (num_blocks, K, B); else NULL
};

// How queries are held beside a cache, and what its elements become for tensor cores: exactly.
CUDA_BOTH enum dtype cuda_query_dtype(enum dtype kv) {
    return kv == DTYPE_I8 ? DTYPE_BF16 : kv == DTYPE_F8_E4M3 ? DTYPE_F16 : kv;
}

// Page `to` becomes a copy of page `from`, in `num` arrays of pages that lie `stride` bytes apart: all
// layers' keys and values, or their scales.
struct cuda_page_copy {
    char *pages; // the first array
    size_t stride, page_bytes;
    int num, from, to;
};
void cuda_page_copy(struct rt *rt, const struct cuda_page_copy *a);

// Bias, clip, norms and rotation in the order of qk_norm, temperature; keys and values to their slots.
struct cuda_qkv {
    const float *x; // (rows, ldx) q, k, v side by side
    // the last rows, which cuBLASLt leaves as bf16 in the first half of their place, without these scales
    int num_bf16;
    struct cuda_scales scales;
    int ldx, rows, num_heads;
    const float *bias; // (ldx) or NULL
    float clip;        // attn_spec.clip
    enum qk_norm qk_norm;
    enum norm_kind kind;          // but RMSNorm with QK_NORM_UNIT, and of values
    const float *q_norm, *k_norm; // as in struct layer, or NULL
    float *whole;                 // (rows, 2, 2) scratch with QK_NORM_WHOLE: mean and factor of q, and of k
    bool v_norm;                  // values as with QK_NORM_UNIT
    const float *rope_cos, *rope_sin; // (positions, rope_pairs)
    int rope_pairs;                   // 0: positions do not rotate
    bool rope_interleaved;
    const int32_t *rope_positions; // (ROPE_AXES, rows) by sections; NULL: positions
    struct rope_sections sections;
    float eps;
    const float *temperatures; // (positions) of queries, or NULL
    const int32_t *positions;  // (rows)
    const int64_t *slots;      // (rows); -1: written nowhere
    void *q;                   // (rows, H, d) in cuda_query_dtype(kv.dtype)
    struct cuda_kv kv;         // num_heads 0: queries alone
};
void cuda_qkv(struct rt *rt, const struct cuda_qkv *a);

// The inputs of latent attention (kernels/README.md, rule 21): normalises the latent, rotates keys and queries,
// writes the latent with its key to its slot and each query in one piece.
struct cuda_latent {
    const float *vector;              // (rows, C + r)
    const float *heads;               // (rows, H, n + r), of which r count
    const float *absorbed;            // (rows, H, C)
    const float *norm;                // (C)
    const float *rope_cos, *rope_sin; // (positions, r / 2); NULL: positions do not rotate
    bool rope_interleaved;
    float eps;
    const float *temperatures; // (positions) of queries, or NULL
    const int32_t *positions;  // (rows)
    const int64_t *slots;      // (rows); -1: written nowhere
    int rows, num_heads, kv_lora, nope_dim;
    void *q; // (rows, H, C + r) in cuda_query_dtype(kv.dtype)
    struct cuda_kv kv;
};
void cuda_latent(struct rt *rt, const struct cuda_latent *a);

// ---- attention

struct cuda_blocks { // block tables of the layer's KV group
    const int32_t *start, *ids;
};

// ---- recurrent layers (kernels/README.md, rule 19)

// Where the states of a layer lie, one page a sequence.
struct cuda_states {
    char *first; // in page 0
    size_t page_bytes;
    struct cuda_blocks blocks;
    const int32_t *seq_of;      // (rows) ascending; -1: padding
    const int32_t *positions;   // (rows)
    const int32_t *context_len; // of sequences, after the step
};

// silu of the convolution of x, or of gated x, b * x with b, c and x side by side, c times it. Windows become those after
// the step.
struct cuda_mix_conv {
    struct cuda_states states; // windows (taps - 1, channels)
    const float *x;            // (rows, ldx)
    const float *w, *bias;     // (channels, taps), (channels) or NULL
    void *y;                   // (rows, ldy) ACT_DTYPE_F32 or ACT_DTYPE_BF16
    enum act_dtype act_dtype;
    int rows, channels, taps, ldx, ldy;
    bool gated;
};
void cuda_mix_conv(struct rt *rt, const struct cuda_mix_conv *a);

// Makes q and k of each group as long as they shall be (delta), and dt and decay of each head.
struct cuda_mix_prepare {
    float *qk;             // (rows, ldx) q, then k
    float *gate;           // (rows, ld_gate) of each head dt, or beta and alpha; then dt and decay
    const float *a, *bias; // (heads)
    int rows, heads, groups, key_dim, ldx, ld_gate;
    bool delta;
};
void cuda_mix_prepare(struct rt *rt, const struct cuda_mix_prepare *a);

enum { CUDA_MIX_KEY = 256 }; // most rows of a head's state
struct cuda_mix_recur {
    struct cuda_states states; // (heads, key_dim, head_dim)
    const float *x;            // (rows, ldx) q, k, v
    const float *dt;           // (rows, ld_gate) dt, decay
    const float *d;            // (heads) of v, added to what comes out; or NULL
    float *y;                  // (rows, heads * head_dim)
    int rows, heads, groups, key_dim, head_dim, ldx, ld_gate;
    bool delta, tiled;
};
void cuda_mix_recur(struct rt *rt, const struct cuda_mix_recur *a);

// out = norm(y) * silu(gate), or gate_first norm(y * silu(gate)), by pieces of n values.
struct cuda_mix_finish {
    const float *y, *gate; // (rows, values), (rows, ld_gate)
    const float *norm;     // (n), gate_first (values); or NULL: no norm
    void *out;             // (rows, ldout) ACT_DTYPE_F32 or ACT_DTYPE_BF16
    enum act_dtype act_dtype;
    int rows, n, values, ld_gate, ldout;
    float eps;
    bool gate_first;
};
void cuda_mix_finish(struct rt *rt, const struct cuda_mix_finish *a);

// ---- attention

// A work item of decode: the part of a sequence that lies in one split, CUDA_SPLIT absolute positions.
struct cuda_split {
    int32_t row;        // of q and out
    int32_t seq;        // block table
    int32_t begin, end; // tokens
};

// Rows without a split keep their out.
struct cuda_decode {
    const void *q; // (rows, H, d)
    struct cuda_kv kv;
    struct cuda_blocks blocks;
    const struct cuda_split *splits;
    const int32_t *num_splits;  // on the device, <= max_splits
    const int32_t *first_split; // (rows + 1)
    int split0, max_splits;     // splits [split0, split0 + max_splits) of them: whole rows
    int group;                  // query heads per key head
    float scale, softcap;       // scores: scale * (q k), or with a soft cap softcap * tanh(scale * (q k))
    const float *sinks;         // (H), or NULL
    float *partial, *stats;     // (max_splits, H, d), (max_splits, H, 2): split-KV partials; maximum, sum
    uint32_t *arrived;          // (max_splits, H) 0 between launches
    void *out;                  // (rows, ldout)
    enum act_dtype act_dtype;   // ACT_DTYPE_F32 or ACT_DTYPE_BF16
    int ldout;
};
void cuda_decode(struct rt *rt, const struct cuda_decode *a);
// Whether the kernels have this shape; the others go through cuda_attend().
bool cuda_attention_fast(const struct cuda_kv *kv);

// A tile of up to 64 or 128 rows (token, head of the group) of one sequence, as tile_rows of cuda_prefill
// says.
struct cuda_tile {
    int32_t seq;
    int32_t row;      // first token row of the sequence in q
    int32_t first;    // packed row (token * group + head) of the tile's first
    int32_t num_rows; // packed rows of the sequence
    int32_t position; // of the sequence's first token row
};

struct cuda_prefill {
    const void *q;
    struct cuda_kv kv;
    struct cuda_blocks blocks;
    const struct cuda_tile *tiles;
    const int32_t *num_tiles;   // on the device, <= max_tiles
    const int32_t *context_len; // (sequences) where rows see the tokens after them, too; else NULL
    int max_tiles, group, window;
    bool chunked;         // as attn_spec.chunked
    float scale, softcap; // as in struct cuda_decode
    const float *sinks;   // (H), or NULL
    void *out;
    enum act_dtype act_dtype;
    int ldout;
    int tile_rows; // CUDA_TILE, or CUDA_WIDE_TILE where the device and the cache have that kernel
};
void cuda_prefill(struct rt *rt, const struct cuda_prefill *a);
// The kernel for tiles of 128 rows, for sm_90a (attn_wgmma.cu): whether the device and this build have it for
// such a cache, and the kernel, which cuda_prefill() takes where tile_rows says so.
bool cuda_has_wide_prefill(struct rt *rt, const struct cuda_kv *kv);
void cuda_prefill_wide(struct rt *rt, const struct cuda_prefill *a);
// The tile_rows to be taken: CUDA_WIDE_TILE where there is that kernel and it is asked for.
int cuda_prefill_rows(struct rt *rt, const struct cuda_kv *kv);

// Any head size, block size and KV type, one block per row and head: for what the others lack.
struct cuda_attend {
    const void *q;
    struct cuda_kv kv;
    struct cuda_blocks blocks;
    const int32_t *seq_of;      // (rows) block table of a row; -1: none
    const int32_t *positions;   // (rows)
    const int32_t *context_len; // (sequences) where rows see the tokens after them, too; else NULL
    int row0, rows, group, window;
    bool chunked;
    float scale, softcap; // as in struct cuda_decode
    const float *sinks;   // (H), or NULL
    void *out;
    enum act_dtype act_dtype;
    int ldout;
};
void cuda_attend(struct rt *rt, const struct cuda_attend *a);

// Latent attention: values are the first kv_lora elements of keys.
struct cuda_attend_latent {
    const void *q; // (rows, H, C + r)
    struct cuda_kv kv;
    struct cuda_blocks blocks;
    const int32_t *seq_of, *positions; // as in struct cuda_attend
    int row0, rows, num_heads, kv_lora, window;
    float scale;
    void *out; // (rows * H, ldout)
    enum act_dtype act_dtype;
    int ldout;
    // As in struct cuda_decode, partials (max_splits, H, C): rows that have splits in place of [row0, row0 + rows). NULL: none.
    const struct cuda_split *splits;
    const int32_t *num_splits, *first_split;
    int split0, max_splits;
    float *partial, *stats;
    uint32_t *arrived;
};
// Any size, block size and KV type, one block per row and head. No splits.
void cuda_attend_latent(struct rt *rt, const struct cuda_attend_latent *a);
// On tensor cores (attn_latent.cu), for the shapes that cuda_latent_fast() says.
void cuda_attend_latent_fast(struct rt *rt, const struct cuda_attend_latent *a);
bool cuda_latent_fast(const struct cuda_kv *kv, int kv_lora);

// ---- ranks: devices that read each other's memory (README, rules 12 to 14)

// The barrier of a kernel with its twins on the other ranks. Every rank launches the same kernels, in the same order,
// with as many blocks.
struct cuda_peers {
    int rank, world;
    uint32_t *flags[COMM_MAX_SUM]; // of each rank, in its memory: (CUDA_BARRIER_BLOCKS, COMM_MAX_SUM)
    uint32_t *epochs; // (CUDA_BARRIER_BLOCKS) barriers that each block of this rank has passed, from zero
    uint32_t *stop;   // in host memory; other than 0: no block waits any more, and results mean nothing
};

// y = or += the sum of what all ranks have (+ bias), as the binary tree of neighbours. When it is done on a
// rank, no other touches this rank's part any more.
struct cuda_sum {
    struct cuda_peers peers;
    float *part[COMM_MAX_SUM]; // (rows, n) of each rank, by rank; two shots change it
    const float *bias;         // (n) or NULL
    float *y;                  // (rows, n)
    bool add;
    bool two_shots; // of 4 or 8 ranks, the same on all; the bits are those of one
    int rows, n;
};
// Whether two shots are faster: they save over `worth` bytes of reading (CUDA_TWO_SHOTS).
static inline bool cuda_two_shots(int world, size_t bytes, size_t worth) {
    return bytes * (size_t)((world - 1) * (world - 2)) > worth * (size_t)world;
}
void cuda_sum(struct rt *rt, const struct cuda_sum *a);

// y of what ranks hold of it: number i is that of rank i / each, at the same place of its part.
struct cuda_share {
    struct cuda_peers peers;
    const float *part[COMM_MAX_SUM]; // (n) of each rank
    float *y;                        // (n)
    size_t n, each;                  // each: a multiple of 4
};
void cuda_share(struct rt *rt, const struct cuda_share *a);

// Eight blocks go over a row, each over a slice of its groups; of ranks each has as many slices of its tokens.
enum { CUDA_SAMPLE_SLICES = COMM_MAX_SUM };
enum {
    CUDA_TOPK = 64,
    CUDA_TOPK_ROW = CUDA_SAMPLE_SLICES * CUDA_TOPK
}; // the most tokens of a slice's top-k; of all

// The local top-k of a row's slices: the best tokens of each, ids ascending, and then -infinity. max: of each CUDA_GROUP
// of them; NaN where a logit of the slice is not finite.
struct cuda_topk {
    int32_t ids[CUDA_TOPK_ROW];
    float logits[CUDA_TOPK_ROW], max[CUDA_TOPK_ROW / CUDA_GROUP];
};

// Whether stages beyond top-k, top-p and min-p choose the row's token: logits_row_has_chain(), on the device, too.
CUDA_BOTH bool cuda_row_has_chain(const struct logits_row *row) {
    return row->typical_p > 0 || row->top_n_sigma > 0 || row->xtc_probability > 0 || row->least_share > 0 ||
           row->dyn_high > 0;
}

// The k of the local top-k from which a row is sampled; 0: the row needs its logits, as with a k over max_topk.
CUDA_BOTH int cuda_topk_of_row(const struct logits_row *row, int max_topk) {
    int k = row->temperature >= 5.42101086242752217e-20f ? row->top_k : 1; // 2^-64
    bool few = row->row >= 0 && row->target < 0 && row->num_logprobs < 0 && !cuda_row_has_chain(row);
    return few && k > 0 && k <= CUDA_TOPK && k <= max_topk ? k : 0;
}

// Brings together what ranks know of logits rows: logits of all tokens and their group maxima, or the local top-k of
// their slices.
struct cuda_gather {
    struct cuda_peers peers;
    const struct logits_row *rows;
    int num_rows, max_topk;
    int begin[COMM_MAX_SUM + 1];                     // tokens [begin[r], begin[r + 1]) are rank r's
    float *logits[COMM_MAX_SUM], *max[COMM_MAX_SUM]; // (num_rows, ld), (num_rows, ldmax) of each rank
    struct cuda_topk *topk[COMM_MAX_SUM];            // (num_rows) of each rank
    int ld, ldmax;
};
void cuda_gather(struct rt *rt, const struct cuda_gather *a);

// Zeroes columns [begin, end) of rows.
struct cuda_clear {
    void *x;
    enum act_dtype act_dtype;
    int rows, begin, end, ld;
};
void cuda_clear(struct rt *rt, const struct cuda_clear *a);

// ---- sampling (kernels/README.md, rules 12 to 16)

// Values that the host computes for a logits row.
struct cuda_row_prep {
    int32_t pass_start, pass_end; // of `passes`; none: no entries
    int32_t mask;                 // first word of `mask_bits`; -1: no mask
    int32_t adjusted;             // row of `adjusted`; -1: neither entries nor mask
    int32_t wanted;               // of `entries`: the first of the row's num_wanted
    double low;                   // min-p: logits below max + low are out; -infinity: off
    uint64_t bits;                // of Philox
    bool xtc;                     // this token has its turn
};

// Histograms that several blocks count of a row: masses of its tokens by the first bits of their logits, and in all.
enum { CUDA_SAMPLE_BINS = 2048, CUDA_SAMPLE_PART = CUDA_SAMPLE_BINS + 1 };
enum { CUDA_SAMPLE_VOCAB = 16384 }; // tokens from which on that is worth its memory

struct cuda_sample {
    const struct logits_row *rows; // (num_rows); .row < 0: none
    const struct cuda_row_prep *prep;
    const struct logit_entry *entries;
    const int32_t *passes;          // first entry of each pass; one more ends it; within a pass tokens differ
    const uint32_t *mask_bits;      // (masks, (V+31)/32)
    float *logits;                  // (num_rows, ld) unadjusted
    float *max;                     // (num_rows, ldmax) maxima of groups; ldmax >= V/16 rounded up
    float *adjusted, *adjusted_max; // (num_adjusted, ld), (num_adjusted, ldmax): after entries and mask
    float *sums;                    // (num_rows, 2 * ldmax) scratch
    uint64_t *parts;                // (num_rows, CUDA_SAMPLE_SLICES, CUDA_SAMPLE_PART) scratch, or NULL
    int num_rows, num_adjusted, vocab, ld, ldmax;
    int first;                             // of num_rows in the results
    int32_t *ids, *rank, *top_ids;         // (R), (R), (R, MAX_TOP_LOGPROBS)
    float *logprob, *share, *top_logprobs; // (R), (R), (R, MAX_TOP_LOGPROBS)
    uint8_t *failed;                       // (R)
    // This rank's tokens [begin, end), and the slices of them that have a local top-k; alone: all.
    int begin, end, first_slice, num_slices, max_topk;
    struct cuda_topk *topk; // (num_rows); of ranks as cuda_gather() left it
};
// With ranks, before cuda_gather(): adjusts this rank's tokens of the rows that a local top-k samples, and finds the
// top-k.
void cuda_local_topk(struct rt *rt, const struct cuda_sample *a);
void cuda_sample(struct rt *rt, const struct cuda_sample *a);

#ifdef __cplusplus
}
#endif
