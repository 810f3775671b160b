// Constants that a measurement on a device may change, with the reasons for their values: arithmetic and ptxas, as
// none was measured. All architectures share a value that names none. `bits`: another value gives rows other bits.
#pragma once

// ---- GEMM

enum {
    // k-steps in a warp's ring (gemm.cu), all but one of them in flight. 8 warps of 544 to 1,024 bytes a step: 21 to 41 KB a block.
    // An H200 needs 29 KB an SM (4.8 TB/s for 800 ns, by 132). Seven would leave two blocks of BF16 on an SM of sm_89 no room.
    CUDA_GEMM_RING = 6,
    // k-steps in a block's ring (gemm_staged.cu). BF16 has 12 KB a step, and up to 64 KB of sums wait beside: two blocks share sm_90's
    // 227 KB.
    CUDA_STAGED_RING = 4,
    // The most of gemm_wgmma.cu (sm_90a): what 227 KB leave beside sums that wait gives 4 to 6.
    CUDA_WGMMA_RING = 6,
    // bits. Prompt rows of a step that our GEMMs take; cuBLASLt takes more, which reads quantised weights as bf16.
    CUDA_TOKENS = 64,
    // Rows of one launch: blocks that share weights are neighbours, and all rows of x stay in the cache.
    CUDA_SKINNY_ROWS = 4 * CUDA_TOKENS,
};

// ---- attention

enum {
    // bits. Tokens of a KV split. 16 sequences of 2,048 tokens and 8 heads give 1,024 blocks, nearly eight an SM.
    CUDA_SPLIT = 256,
    // Pages of 16 tokens in a warp's ring: of heads of 128 8 KB each, so that a block has 64 KB.
    CUDA_DECODE_RING = 2,
    // Rows of a prompt's tile, and bits: tokens of the cache. A warp's 16 rows fill an mma, and two blocks share an SM.
    CUDA_TILE = 64,
    CUDA_PREFILL_TOKENS = 32,
    // The same with wgmma (sm_90a): two warpgroups of 64 rows; what they read and two tiles ahead take 160 of 227 KB.
    CUDA_WIDE_TILE = 128,
    CUDA_WIDE_TOKENS = 128,
    // bits. Tokens of a tile of latents: two stages of 36 KB beside 18 KB of queries: all that sm_89 has.
    CUDA_LATENT_TOKENS = 32,
};
// Warps of a block of decode. Heads of 256 have rings twice as large: sm_89 has 99 KB for a block.
#define CUDA_DECODE_WARPS(head_dim) ((head_dim) == 256 ? 2 : 4)

// ---- steps

enum {
    // Sequences that a CUDA graph may have, and buckets that are kept; QUIRE_CUDA_GRAPHS may say fewer. One row more costs little:
    // beyond 256 the host is ahead without a graph.
    CUDA_GRAPH_ROWS = 256,
    CUDA_MAX_GRAPHS = 64,
};

// ---- ranks

enum {
    // The most blocks of a kernel with a cross-GPU barrier: all must run at once, beside nothing else.
    CUDA_BARRIER_BLOCKS = 32,
    // Bytes that two shots must save. One shot reads the parts of world - 1 others, two move 2 / world of that, but wait at the second
    // barrier until what they have written is there, and go over their own memory once more: predicted 2.5 us, in which NVLink
    // (450 GB/s) carries so much. So from 0.75 MB on for 4 ranks, and from 0.21 MB for 8: 7 rows of 8,192. Of two ranks never.
    CUDA_TWO_SHOTS = 1125000,
};
