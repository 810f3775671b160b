// The table of inner loops that each instruction set fills (scalar.c, avx2.c, avxvnni.c, avx512.c from
// body.h; avx512fma.c fills GEMMs only, amx.c GEMMs, the conversions for them, and attention). Every entry gives the
// same bits in every table, but for pairs of bf16 in "amx": kernels/README.md, "Numerics".
#pragma once

#include "half.h"
#include "model.h"
#include "tensor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// A vector operation. Inline in every build, those for sanitizers, too: gcc 12 puts no vzeroupper behind calls that return
// vectors, and with it missing Intel takes 180 ns each time that AVX's and SSE's instructions follow each other (Emerald
// Rapids), in all code from then on.
#define VEC_INLINE static inline __attribute__((always_inline))

// A GEMM tile is TILE_PANELS panels of LANES rows, times at most MAX_TILE_TOKENS tokens; without AMX at most
// REGISTER_TOKENS, whose sums vector registers hold. With AMX it is MANY_TOKENS where weights are quantised and the tile
// unpacks them (gemm_tile's pairs); from LEAST_TOKENS on that is faster.
enum {
    LANES = 16,
    TILE_PANELS = 2,
    REGISTER_TOKENS = 8,
    MAX_TILE_TOKENS = 32,
    LEAST_TOKENS = 48,
    MANY_TOKENS = 256
};
enum { NUM_SEGMENTS = 8 }; // of K, in row-parallel matrices (README rule 3), over all ranks
enum { ATTN_QUERIES = 8, ATTN_TILE = 16, ATTN_STEP = 64, ATTN_CHUNK = 256, MAX_HEAD_DIM = 1024 };
enum {
    CHUNK_TILES = ATTN_CHUNK / ATTN_TILE,
    STEP_TILES = ATTN_STEP / ATTN_TILE,
    CHUNK_STEPS = ATTN_CHUNK / ATTN_STEP
};

// One 32-element block of quantised activations: q times d (rule 4). 56 bytes.
struct act_q8 {
    float d;
    float s;            // d * the sum of q
    int32_t minus8;     // -8 times the sum of q,
    int32_t minus128;   // -128 times,
    int32_t minus32[2]; // -32 times that of the first and of the last 16
    int8_t q[32];       // -127..127
};

// 16 rows x 32 k of Q8_0 weights: byte [j][4*r + i] is q(row r, k 4*j + i) + 128. 544 bytes.
struct weight_q8 {
    uint16_t d[16]; // f16 scales
    uint8_t q[8][64];
};

// The same with four bits a number: the low nibbles of byte [j][4*r + i] are k 4*j + i, the high ones
// k 16 + 4*j + i. 288 bytes.
struct weight_q4 {
    uint16_t d[16];
    uint8_t q[4][64];
};

// 16 rows x 256 k of Q4_K: 8 times 32 k as in weight_q4. 2368 bytes.
struct weight_q4k {
    uint16_t d[16], minus_min[16]; // f16
    uint8_t scale[8][16], min[8][16];
    uint8_t q[8][4][64];
};

// Q5_K: bit j of byte [s][4*r + i] is the fifth bit of k 32*s + 4*j + i. 2880 bytes.
struct weight_q5k {
    struct weight_q4k low;
    uint8_t high[8][64];
};

// 16 rows x 256 k of Q6_K: bits 2*j and 2*j + 1 of byte high[s][h][4*r + i] are the upper two of
// k 32*s + 16*h + 4*j + i. 3360 bytes.
struct weight_q6k {
    uint8_t q[8][4][64];
    uint8_t high[8][2][64];
    int8_t scale[16][16]; // of 16 k each
    uint16_t d[16];       // f16
};

// Q4_1 (320 bytes) and Q5_1 (384), which has the fifth bit of k 4*j + i as bit j of byte high[4*r + i].
struct weight_q41 {
    uint16_t d[16], min[16]; // f16
    uint8_t q[4][64];
};
struct weight_q51 {
    struct weight_q41 low;
    uint8_t high[64];
};

// Q5_0: with such a plane, too. 352 bytes.
struct weight_q5 {
    struct weight_q4 low;
    uint8_t high[64];
};

// IQ4_NL has weight_q4, its nibbles being indices into a table. MXFP4 has another table and scales 2^(e -
// 128); 272 bytes.
struct weight_mxfp4 {
    uint8_t e[16];
    uint8_t q[4][64];
};

// 16 rows x 256 k of IQ4_XS: 8 times 32 k as in IQ4_NL. 2208 bytes.
struct weight_iq4xs {
    uint16_t d[16];
    int8_t scale[8][16];
    uint8_t q[8][4][64];
};

// 16 rows x 256 k of Q3_K: bits 2*j and 2*j + 1 of byte q[s][h][4*r + i] are the lower two of k 32*s + 16*h +
// 4*j + i; bit j of byte high[s][4*r + i] is the third of k 32*s + 4*j + i. 1824 bytes.
struct weight_q3k {
    uint16_t d[16];
    int8_t scale[16][16]; // of 16 k each
    uint8_t q[8][2][64];
    uint8_t high[8][64];
};

// Q2_K: weights as the lower two bits of Q3_K. 1344 bytes.
struct weight_q2k {
    uint16_t d[16], minus_min[16]; // f16
    uint8_t scale[16][16];         // of 16 k each: the scale in the lower half, the minimum in the upper one
    uint8_t q[8][2][64];
};

// The quantised types, and what 16 rows of a block of each are
#define QUANTISED_MAP(X)                                                                                     \
    X(Q8_0, struct weight_q8)                                                                                \
    X(Q4_0, struct weight_q4)                                                                                \
    X(Q4_K, struct weight_q4k)                                                                               \
    X(Q5_K, struct weight_q5k)                                                                               \
    X(Q6_K, struct weight_q6k)                                                                               \
    X(Q4_1, struct weight_q41)                                                                               \
    X(Q5_0, struct weight_q5)                                                                                \
    X(Q5_1, struct weight_q51)                                                                               \
    X(IQ4_NL, struct weight_q4)                                                                              \
    X(MXFP4, struct weight_mxfp4)                                                                            \
    X(Q3_K, struct weight_q3k)                                                                               \
    X(Q2_K, struct weight_q2k)                                                                               \
    X(IQ4_XS, struct weight_iq4xs)

enum { MAX_BLOCK_BYTES = sizeof(struct weight_q6k) };

// Prefetches of a tile while it is computed; they change no result.
struct prefetch {
    uintptr_t at; // the address for block 0: any, also past all weights
    size_t step;  // bytes for each block; 0: nothing
    // Tiles of up to FEW_TOKENS tokens: bytes from one panel to the other. Tiles that go through both panels at once
    // prefetch both, and from block `turn` on, where a panel ends, the next pair's.
    size_t gap;
    int turn;
    bool far; // of more tokens: into the L2 cache, not further; of floats in any case
};

// Tiles that follow each other on a pair of panels prefetch the next pair together, so that it comes from memory at
// an even rate while this one is worked on; of many tiles the first MAX_SHARES do. Fewer than L1_SHARES of them would
// prefetch more at once than the L1 cache can wait for, and stall, so they prefetch into L2. Tiles of few tokens are
// bound by memory: they prefetch SOON bytes ahead, and near the end of the pair the beginning of the next; tiles that
// go through both panels at once, in both. Types that unpack more slowly than Q8_0, and BF16, arrive faster SOON_MORE
// further ahead, for two tokens into L2.
enum { MAX_SHARES = 8, L1_SHARES = 6, FEW_TOKENS = 2, SOON = 4096, SOON_MORE = 4096 };

// Values for all num_tiles of them, divided once because divisions take long. panel: bytes
struct prefetch_plan {
    uint32_t panel, shares;
    uint32_t share, share_step; // bytes of the next pair for a tile, and for each of its blocks
    uint32_t few_step, turn;    // of tiles of few tokens
};
static inline struct prefetch_plan prefetch_plan(size_t panel_bytes, int blocks, int num_tiles) {
    uint32_t panel = (uint32_t)panel_bytes, n = (uint32_t)blocks; // 64 bits are divided more slowly
    uint32_t shares = (uint32_t)(num_tiles < MAX_SHARES ? num_tiles : MAX_SHARES), share = 2 * panel / shares;
    uint32_t step = panel / n, inside = panel > SOON ? panel - SOON : 0;
    return (struct prefetch_plan){panel, shares, share, share / n + 1, step, inside / step};
}

// The prefetch of the `tile`-th tile on the pair at w
static inline struct prefetch prefetch_of_tile(const struct prefetch_plan *p, const char *w, int num_tokens,
                                               int tile) {
    uintptr_t first = (uintptr_t)w;
    uint32_t t = (uint32_t)tile;
    if (num_tokens <= FEW_TOKENS)
        return (struct prefetch){first + SOON, p->few_step, p->panel, (int)p->turn, false};
    if (t >= p->shares)
        return (struct prefetch){first, 0, 0, 0, false};
    return (struct prefetch){first + 2 * (size_t)p->panel + (size_t)p->share * t, p->share_step, 0, 0,
                             p->shares < L1_SHARES};
}

// A tile of a GEMM: the 16 rows of each of two panels, which may be the same one, times num_tokens tokens.
//   y[panel][token][0..16) = or += dot(w row, x token), summed over segments of K as rule 3 says
struct gemm_tile {
    const void *w[TILE_PANELS]; // whole panels
    const void *x;              // activations of token 0
    size_t ldx;                 // bytes from token to token
    const void *pairs;          // of quantised weights: what to_pairs made of x; NULL: nothing
    size_t ld_pairs;            // bytes from token to token
    int num_tokens;         // 1..tile_tokens of the type, or 1..REGISTER_TOKENS; 1..MANY_TOKENS with pairs
    const int *bounds;      // segment i is the k blocks [bounds[i], bounds[i + 1])
    int num_segments;       // 1, 2, 4 or 8
    float *y;               // of token 0 and panel 0
    size_t ldy, next_panel; // floats from token to token, and to the other panel
    bool add;               // to what is at y
    bool resume;            // of AMX, one segment: its sums begin with what is at y
    struct prefetch prefetch;
};

// By pointer, and no pair of words of it is copied as one right after it was written as two: the CPU would wait for
// all stores before, which was 4 to 6 % of a GEMM's time.
typedef void gemm_fn(const struct gemm_tile *tile);

// One chunk of up to 256 tokens of one kv head against up to 8 queries. Positions are relative to the chunk.
struct attn_chunk {
    // Tiles in kv_dtype. F32 and F16: keys (d, 16), values (16, d). BF16 and I8: pairs of dimensions
    // (d/2, 16, 2), pairs of tokens (8, d, 2). Values have value_dim for d.
    const void *keys[CHUNK_TILES];
    const void *values[CHUNK_TILES];
    // Prefetch addresses per step, in order, one tile's bytes each. The data is not read by this call.
    const void *prefetch[CHUNK_STEPS][2 * STEP_TILES];
    // With `scaled`, what keys and values are multiplied by, (16) of each tile
    const float *key_scale[CHUNK_TILES], *value_scale[CHUNK_TILES];
    bool scaled;
    enum dtype kv_dtype; // F32, F16, BF16 or I8
    int head_dim;        // d, at most MAX_HEAD_DIM
    int value_dim;       // of a value: d, or less
    float scale;         // of scores, times log2 e; above 0
    // Where inner is not 0, a score s is first tanh(s * inner), and scale is of that (rule 8).
    float inner;
    int num_queries;
    // (d, 8) f32; with keys of BF16 or I8 (d/2, 8, 2) bf16. Side by side, so that one register finds them
    // all.
    const float *q;
    int begin[ATTN_QUERIES], end[ATTN_QUERIES]; // tokens [begin, end) are attended; begin >= end: none
    // A call does steps [step0, step1) of the chunk's four. Step 0 starts from nothing, others go on with
    // max, sum and out of the step before.
    int step0, step1;
    // Results for each query that attends to something; max is of scores times log2 e
    float max[LANES], sum[LANES];
    float *out; // (num_queries, value_dim rounded up to 16), before the division by sum
};

// The convolution of some channels over tokens that follow each other in a sequence (rule 19).
struct mix_conv {
    float *y;                 // of token 0 and the first channel; may be x
    const float *x;           // as y
    const float *in_gate;     // multiplies x before, or NULL
    const float *out_gate;    // multiplies what comes out, or NULL: silu of it
    size_t ldx, ldy;          // floats from token to token: of x and the gates; of y
    int num_tokens, channels; // any number
    float *window;            // (taps - 1, ldw), oldest first
    bool begins;              // the sequence begins here: zeros in place of what is there
    size_t ldw;
    int taps;
    const float *w, *bias; // (taps, ldw), oldest first; (channels) or NULL
};

// The recurrence of some columns of a head's state (rule 19), 16 to MIX_COLUMNS of them.
enum { MIX_COLUMNS = 64 };
struct mix_recur {
    float *state; // (key_dim, ld_state), of the first column
    size_t ld_state;
    int key_dim, columns;     // columns: a multiple of 16
    const float *q, *k, *v;   // of token 0; v of the first column
    const float *decay, *dt;  // of token 0; dt: what v, or what it differs by, is multiplied by
    float *y;                 // of token 0 and the first column
    size_t ldx, ld_gate, ldy; // floats from token to token: of q, k and v; of decay and dt; of y
    int num_tokens;
    bool delta;
    float d; // MIX_SSM: y += d * v
};
// y = f(gate) * up, or f(gate) where up is NULL, of `rows` rows of n; from row to row it is ldy floats, of gate and up ldx
typedef void act_fn(float *y, size_t ldy, const float *gate, const float *up, size_t ldx, int rows, int n);

struct cpu_kernels {
    const char *name;
    bool tiles; // AMX's: bf16 GEMMs, and attention over caches of bf16 and int8, sum in an order of their own
    gemm_fn *gemm[DTYPE_COUNT];   // by weight dtype; NULL where there is none
    int tile_tokens[DTYPE_COUNT]; // at which gemm is fastest; up to it and REGISTER_TOKENS it is right
    // y = x * (1 / sqrt(mean(x^2) + eps)) * w
    void (*rmsnorm)(float *y, const float *x, const float *w, int n, float eps); // w NULL: 1
    // y = (x - mean(x)) * (1 / sqrt(mean((x - mean)^2) + eps)) * w + b; b may be NULL
    void (*layernorm)(float *y, const float *x, const float *w, const float *b, int n, float eps);
    float (*sum)(const float *x, int n);                    // rule 7, as the next
    float (*squares)(const float *x, float less, int n);    // the sum of (x - less)^2
    void (*to_bf16)(uint16_t *y, const float *x, int n);    // rounds to nearest even
    void (*to_f16)(uint16_t *y, const float *x, int n);     // rounds to nearest even
    void (*to_q8)(struct act_q8 *y, const float *x, int n); // n is a multiple of 32
    // y = q * d of n values, exactly, as bf16; NULL: GEMMs of quantised types do not read it
    void (*to_pairs)(uint16_t *y, const struct act_q8 *x, int n);
    act_fn *act[NUM_ACTS];                                   // ACT_CLAMPED takes 0 for an absent up
    void (*exp)(float *y, const float *x, int n, float max); // y = exp(x - max)
    void (*gate)(float *y, const float *gate, int n);        // y = y * sigmoid(gate)
    void (*softcap)(float *x, int n, float cap);             // x = cap * tanh(x / cap)
    void (*attend)(struct attn_chunk *c);
    // Two at once with caches of BF16 and I8, faster and with the same bits: the same keys, values and steps, the first has 8
    // queries, and the second's out lies behind its. NULL: there is none
    void (*attend_two)(struct attn_chunk *first, struct attn_chunk *second);
    void (*mix_conv)(const struct mix_conv *c);
    void (*mix_recur)(const struct mix_recur *r);
    // Adds a chunk to what the chunks before it gave; max starts at -infinity, sum and out (d) at 0.
    void (*attend_combine)(float *max, float *sum, float *out, float chunk_max, float chunk_sum,
                           const float *chunk_out, int d);
    // Turns a head of n elements, and multiplies it by scale (rule 17).
    void (*hadamard)(float *x, int n, float scale);
    // q and scale of an int8 cache (rule 17); n is at most 1024
    void (*to_i8)(int8_t *q, float *scale, const float *x, int n);
    // y = x, exactly; n is a multiple of 32. Prefetches n bytes at `prefetch`.
    void (*widen_i8)(uint16_t *y, const int8_t *x, int n, const char *prefetch);
    // Largest of each group of 16; false when some logit is NaN or +infinity.
    bool (*group_max)(float *max, const float *logits, int num_groups);
    // y = the logits whose bit of the mask is set, -infinity for the others (y may be the logits); max: largest of
    // each group of y. false as above, of logits that are masked, too.
    bool (*group_mask)(float *max, float *y, const float *logits, const uint32_t *mask, int num_groups);
    // sums[g] = sum of exp(logit - max) over group g, as the tree 8, 4, 2, 1
    void (*group_exp)(float *sums, const float *logits, int num_groups, float max);
    // w = floor(2^30 exp((logit - max) / temperature)); returns the sum of all w. sums[g]: of group g. largest: of
    // each group, so that those of which nothing is left cost little; NULL: unknown
    uint64_t (*group_prob)(uint32_t *w, uint64_t *sums, const float *logits, const float *largest,
                           int num_groups, float max, float temperature);
};

extern const struct cpu_kernels cpu_kernels_scalar;
#if defined(__x86_64__)
extern const struct cpu_kernels cpu_kernels_avx2, cpu_kernels_avxvnni, cpu_kernels_avx512;
// Other tables are copies of AVX-512's into which these put GEMMs of their own: of bf16 with the same bits
// (avx512fma.c), or in an order of its own (amx.c). The last one is for tests.
void cpu_kernels_fill_avx512fma(struct cpu_kernels *k);
void cpu_kernels_fill_amx(struct cpu_kernels *k);
void cpu_kernels_fill_amx_emulated(struct cpu_kernels *k);
#elif defined(__aarch64__)
extern const struct cpu_kernels cpu_kernels_neon, cpu_kernels_dotprod, cpu_kernels_i8mm;
#endif

// The table of a variant, or NULL where the machine lacks it. "auto": the best that the machine has; NULL: the best of
// those that all give the same bits, which is all but "amx".
const struct cpu_kernels *cpu_kernels_find(const char *variant);

#ifdef __cplusplus
}
#endif
