// The kernels of the CUDA backend, one launcher each. Pointers are device memory, 16-byte aligned, rows too;
// every launcher only queues. No launcher needs a device's data on the host, so that a recorded graph can
// replay it over other contents. Sums of one output element are in an order that depends on its own row alone
// (README, rule 3).
//
// The tests in tests/emu compare each with kernels/ref.
#pragma once

#include "backend.h"
#include "rt.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __CUDACC__
#define CUDA_BOTH static inline __host__ __device__ // on host and device
#else
#define CUDA_BOTH static inline
#endif

enum { CUDA_TOKENS = 64 };  // rows of prompts that the skinny product takes; above, cuBLASLt
enum { CUDA_CHUNK = 256 };  // tokens of one item of decode attention; at absolute positions
enum { CUDA_GROUP = 16 };   // logits per group maximum
enum { CUDA_SLICE = 4096 }; // logits that one block edits; a multiple of CUDA_GROUP

// How activations are held for a product.
enum cuda_form {
    FORM_F32,
    FORM_BF16,
    FORM_F16, // times 2^14 .. 2^15 over the largest of the row; the factor back is in `scale`
};

// ---- the upload of a step

// Arrays that kernels find at fixed places come in one upload of changing layout, which begins with these
// parts.
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
    const int32_t *ids;   // (rows); -1-r: drawn[r]
    const int32_t *drawn; // of the step before
    const void *table;    // (vocab, hidden) rows as in a file
    enum dtype dtype;
    float *resid; // (rows, hidden)
    int rows, hidden, vocab;
};
void cuda_embed(struct rt *rt, const struct cuda_embed *a);

// out = form(x / sqrt(mean(x^2) + eps) * weight), or form(x) where weight is NULL. Columns [n, ldout) are
// left alone.
struct cuda_norm {
    const float *x;    // (rows, ldx)
    const int32_t *of; // (rows) which row of x, `of_stride` apart; < 0: none, out becomes 0. NULL: in order
    int of_stride;
    const float *weight; // (n)
    void *out;           // (rows, ldout)
    float *scale;        // (rows), FORM_F16
    enum cuda_form form;
    int rows, n, ldx, ldout;
    float eps;
};
void cuda_norm(struct rt *rt, const struct cuda_norm *a);

// Gate and up as rows of one product: out = silu(gate) * up. See struct cuda_gemm for the order of columns.
struct cuda_swiglu {
    const float *x; // (rows, ldx)
    void *out;      // (rows, ldout) FORM_F32 or FORM_BF16
    enum cuda_form form;
    int rows, n, ldx, ldout;
    bool interleaved; // 8 gates, 8 ups, ...; else all gates from column 0, all ups from column `up`
    int up;
};
void cuda_swiglu(struct rt *rt, const struct cuda_swiglu *a);

// What a library's product leaves to do: y = or += x * scale + bias.
struct cuda_finish {
    const float *x;     // (rows, ldx)
    const float *scale; // (rows) or NULL
    const float *bias;  // (n) or NULL
    float *y;           // (rows, ldy)
    int rows, n, ldx, ldy;
    bool add;
};
void cuda_finish(struct rt *rt, const struct cuda_finish *a);

// ---- matrices

enum cuda_format {
    FORMAT_F32,  // row-major
    FORMAT_BF16, // row-major
    FORMAT_F16,  // row-major
    FORMAT_Q8_0, // int8, f16 scale per 32
    FORMAT_Q4_0, // nibble - 8, f16 scale per 32
    FORMAT_Q4_K, // nibble; 6-bit scale and minimum per 32, two f16 per 256
    FORMAT_Q5_K, // byte; as Q4_K
    FORMAT_Q6_K, // int8; 8-bit scale per 16, f16 per 256
    FORMAT_COUNT
};

// A matrix in device memory. Rows padded to 16 and columns to a whole step with zeros. Plain formats are
// row-major with `cols` elements a row. Quantised ones are tiles of 16 rows by 32 (bytes) or 64 (nibbles)
// columns in the order of the lanes that multiply them (README, "Layouts"); `scales` and `supers` beside
// them.
struct cuda_matrix {
    enum cuda_format format;
    int rows, cols; // padded
    void *data, *scales, *supers;
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

// The format of a file's type; FORMAT_COUNT: none. And columns of one step, by which a matrix is padded.
enum cuda_format cuda_format_of(enum dtype t);
int cuda_format_step(enum cuda_format f);
// Bytes of the three arrays of a matrix of padded size.
void cuda_matrix_bytes(enum cuda_format f, int rows, int cols, size_t bytes[3]);

enum cuda_epilogue {
    EPILOGUE_STORE,  // y = result (+ bias)
    EPILOGUE_ADD,    // y += result (+ bias)
    EPILOGUE_SWIGLU, // h = silu(gate) * up; rows of the matrix alternate: 8 gates, 8 ups
    EPILOGUE_LOGITS, // y = result * factor, and the maximum of each 16 columns (NaN where one is NaN)
};

// Which of the 8 segments of a row-parallel matrix a rank holds, where the sums of ranks must be the tree of
// one (README, rule 13): segments [first, first + num) of a matrix of `cols` columns, padded. num 0: all 8
// are its own.
struct cuda_segments {
    int num, first, cols;
};

struct cuda_gemm {
    struct cuda_matrix w;
    struct cuda_segments segments;
    const void *x;      // (m, ldx) in the form of the format; columns up to w.cols are finite where w is zero
    const float *scale; // (m) FORM_F16
    int m, ldx;
    enum cuda_epilogue epilogue;
    float *y;          // (m, ldy)
    int ldy, n;        // columns of y (SWIGLU: of h) that exist
    const float *bias; // (n) or NULL
    void *h;           // SWIGLU: (m, ldy) FORM_F32 or FORM_BF16
    enum cuda_form form;
    float *max; // LOGITS: (m, ldmax)
    int ldmax;
    float factor; // LOGITS
};
void cuda_gemm(struct rt *rt, const struct cuda_gemm *a);

// What a format is multiplied by.
static inline enum cuda_form cuda_form_of(enum cuda_format f) {
    return f == FORMAT_F32 ? FORM_F32 : f == FORMAT_F16 ? FORM_F16 : FORM_BF16;
}

// out (rows, cols) row-major bf16 = a quantised matrix, for cuBLASLt.
struct cuda_dequant {
    struct cuda_matrix w;
    uint16_t *out;
};
void cuda_dequant(struct rt *rt, const struct cuda_dequant *a);

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

// Bias, norm of each head, rotation; keys and values to their slots.
struct cuda_qkv {
    const float *x; // (rows, ldx) q, k, v side by side
    int ldx, rows, num_heads;
    const float *bias;                // (ldx) or NULL
    const float *q_norm, *k_norm;     // (d) or NULL
    const float *rope_cos, *rope_sin; // (positions, rope_pairs)
    int rope_pairs;
    bool rope_interleaved;
    float eps;
    const int32_t *positions; // (rows)
    const int64_t *slots;     // (rows); -1: written nowhere
    void *q;                  // (rows, H, d) in cuda_query_dtype(kv.dtype)
    struct cuda_kv kv;
};
void cuda_qkv(struct rt *rt, const struct cuda_qkv *a);

// ---- attention

struct cuda_blocks { // block tables
    const int32_t *start, *ids;
};

// One piece of one sequence, within one chunk of absolute positions.
struct cuda_item {
    int32_t row;        // of q and out
    int32_t seq;        // block table
    int32_t begin, end; // tokens
};

struct cuda_decode {
    const void *q; // (rows, H, d)
    struct cuda_kv kv;
    struct cuda_blocks blocks;
    const struct cuda_item *items;
    const int32_t *num_items;  // on the device, <= max_items
    const int32_t *first_item; // (rows + 1)
    int item0, max_items;      // items [item0, item0 + max_items) of them, which belong to
    int row0, rows;            // rows [row0, row0 + rows)
    int group;                 // query heads per key head
    float scale;
    float *partial;      // (max_items, H, d + 2): output, maximum, sum
    void *out;           // (rows, ldout)
    enum cuda_form form; // FORM_F32 or FORM_BF16
    int ldout;
};
void cuda_decode(struct rt *rt, const struct cuda_decode *a);
// Whether the kernels have this shape; the others go through cuda_attend().
bool cuda_attention_fast(const struct cuda_kv *kv, int group);

// A tile of up to 64 or 128 rows (token, head of the group) of one sequence, as tile_rows of cuda_prefill
// says.
enum { CUDA_TILE = 64, CUDA_WIDE_TILE = 128 };
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
    const int32_t *num_tiles; // on the device, <= max_tiles
    int max_tiles, group, window;
    float scale;
    void *out;
    enum cuda_form form;
    int ldout;
    int tile_rows; // CUDA_TILE, or CUDA_WIDE_TILE where the device and the cache have that kernel
};
void cuda_prefill(struct rt *rt, const struct cuda_prefill *a);
// The kernel for tiles of 128 rows, for sm_90a (attn_wgmma.cu): whether the device and this build have it for
// such a cache, and the kernel, which cuda_prefill() takes where tile_rows says so.
bool cuda_has_wide_prefill(struct rt *rt, const struct cuda_kv *kv);
void cuda_prefill_wide(struct rt *rt, const struct cuda_prefill *a);
// The tile_rows to be taken: CUDA_WIDE_TILE where there is that kernel and QUIRE_CUDA_WGMMA=1 asks for it.
int cuda_prefill_rows(struct rt *rt, const struct cuda_kv *kv);

// Any head size, block size and KV type, one block per row and head: for small models and what the others
// lack.
struct cuda_attend {
    const void *q;
    struct cuda_kv kv;
    struct cuda_blocks blocks;
    const int32_t *seq_of;    // (rows) block table of a row; -1: none
    const int32_t *positions; // (rows)
    int row0, rows, group, window;
    float scale;
    void *out;
    enum cuda_form form;
    int ldout;
};
void cuda_attend(struct rt *rt, const struct cuda_attend *a);

// ---- ranks: devices that read each other's memory (README, rules 12 to 14)

enum { CUDA_MEET_BLOCKS = 32 }; // blocks of a kernel in which ranks meet
enum { CUDA_FEW = 64 };         // candidates of a row, at most

// What a kernel needs to meet those of the other ranks. Every rank launches the same ones, in the same order,
// with as many blocks.
struct cuda_group {
    int rank, world;
    uint32_t *flags[COMM_MAX_SUM]; // of each rank, in its memory: (CUDA_MEET_BLOCKS, COMM_MAX_SUM)
    uint32_t *turns;               // (CUDA_MEET_BLOCKS) how often each block has met; this rank's, from zero
    uint32_t *stop; // in host memory; other than 0: nobody waits any more, and results mean nothing
};

// resid += the sum of what all ranks have (+ bias), as the binary tree of neighbours. When it is done on a
// rank, no other reads this rank's part any more.
struct cuda_sum {
    struct cuda_group group;
    const float *part[COMM_MAX_SUM]; // (rows, n) of each rank, by rank
    const float *bias;               // (n) or NULL
    float *resid;                    // (rows, n)
    int rows, n;
};
void cuda_sum(struct rt *rt, const struct cuda_sum *a);

// The best of a row among a rank's tokens, ids ascending. num -1: a logit is not finite.
struct cuda_few {
    int32_t num;
    int32_t ids[CUDA_FEW];
    float logits[CUDA_FEW];
};

// How many of the best tokens of a row decide it, as sampler_few() of kernels/cpu says; 0: its logits are
// needed. most: where more are no smaller message than the logits.
CUDA_BOTH int cuda_few_of_row(const struct head_row *row, int most) {
    int k = row->temperature >= 5.42101086242752217e-20f ? row->top_k : 1; // 2^-64
    bool few = row->row >= 0 && row->target < 0 && row->num_logprobs < 0;
    return few && k > 0 && k <= CUDA_FEW && k <= most ? k : 0;
}

// Brings together what ranks know of head rows: logits of all tokens and their group maxima, or of rows that
// a few tokens decide, the candidates of all ranks as one small row of world * CUDA_FEW.
struct cuda_gather {
    struct cuda_group group;
    const struct head_row *rows;
    int num_rows, most;
    int begin[COMM_MAX_SUM + 1];                     // tokens [begin[r], begin[r + 1]) are rank r's
    float *logits[COMM_MAX_SUM], *max[COMM_MAX_SUM]; // (num_rows, ld), (num_rows, ldmax) of each rank
    const struct cuda_few *few[COMM_MAX_SUM];        // (num_rows) of each rank
    int ld, ldmax;
    float *few_logits, *few_max; // (num_rows, world * CUDA_FEW), a maximum for each CUDA_GROUP of them
    int32_t *few_ids;            // (num_rows, world * CUDA_FEW)
};
void cuda_gather(struct rt *rt, const struct cuda_gather *a);

// Zeroes columns [begin, end) of rows.
struct cuda_clear {
    void *x;
    enum cuda_form form;
    int rows, begin, end, ld;
};
void cuda_clear(struct rt *rt, const struct cuda_clear *a);

// ---- sampling (kernels/README.md, rules 12 to 16)

// What the host adds to a head_row.
struct cuda_draw {
    int32_t round_start, round_end; // of `rounds`; none: no edits
    int32_t mask;                   // first word of `mask_bits`; -1: no mask
    int32_t edited;                 // row of `edited`; -1: neither edits nor mask
    double low;                     // min-p: logits below max + low are out; -infinity: off
    uint64_t bits;                  // the draw
};

struct cuda_sample {
    const struct head_row *rows; // (num_rows); .row < 0: none
    const struct cuda_draw *draws;
    const struct logit_edit *edits;
    const int32_t *rounds;      // first edit of each round; one more ends it; within a round tokens differ
    const uint32_t *mask_bits;  // (masks, (V+31)/32)
    float *logits;              // (num_rows, ld) unedited
    float *max;                 // (num_rows, ldmax) maxima of groups; ldmax >= V/16 rounded up
    float *edited, *edited_max; // (edited rows, ld), (edited rows, ldmax)
    float *sums;                // (num_rows, 2 * ldmax) scratch
    int num_rows, num_edited, vocab, ld, ldmax;
    int first;                     // of num_rows in the results
    int32_t *ids, *top_ids;        // (R), (R, MAX_TOP_LOGPROBS)
    float *logprob, *top_logprobs; // (R), (R, MAX_TOP_LOGPROBS)
    uint8_t *failed;               // (R)
    // With ranks: this one's tokens [begin, end), and what cuda_gather() made of the rows that a few decide.
    // few NULL: one rank.
    int begin, end, most, num_few; // num_few: world * CUDA_FEW
    struct cuda_few *few;          // (num_rows)
    const float *few_logits, *few_max;
    const int32_t *few_ids;
};
// Edits this rank's tokens of the rows that a few decide, and finds those few.
void cuda_find_few(struct rt *rt, const struct cuda_sample *a);
void cuda_sample(struct rt *rt, const struct cuda_sample *a);

#ifdef __cplusplus
}
#endif
