// How ranks share a model (Megatron: Shoeybi et al., 2019), for every backend: which rows and columns of
// which matrix, and which models cannot be shared so. engine/ranks/README.md has the table.
//
// Row-parallel matrices are cut where their sums are (kernels/README.md, rule 3): a rank holds 8 / world of
// the 8 segments of K, so that its sums are a whole part of the tree, and no bit moves. Hence 1, 2, 4 or 8
// ranks.
#pragma once

#include "backend.h"

// Block sizes of the types of a file's matrices: ranks cut between blocks.
struct shard_blocks {
    int attn; // largest block (dtype_sum_block()) of an attention output
    int down; // of a down matrix
    int mix;  // of the output of a recurrent layer
};

// One rank of a grid: `num_stages` stages, each a contiguous run of layers, of `world` ranks each, which
// share every one of those layers.
struct shard {
    const struct model_config *whole;
    struct shard_blocks blocks;
    int rank, world;
    int stage, num_stages; // num_stages 0 counts as 1
};

// Whether `world` ranks can share the model. STATUS_INVALID: why not, and which numbers of ranks can.
enum status shard_check(const struct model_config *whole, const struct shard_blocks *blocks, int world,
                        struct err *err);

// Whether `stages` stages of `world` ranks can share it. STATUS_INVALID: why not.
enum status shard_check_stages(const struct model_config *whole, int world, int stages, struct err *err);

// The layers of the rank's stage, [begin, end), at least one.
void shard_layers(const struct shard *s, int *begin, int *end);
// Whether the rank's stage holds a weight: of a layer, or with layer -1 the embedding, the head or the final
// norm.
bool shard_holds(const struct shard *s, enum weight_role role, int layer);

// The rank's own configuration: its layers, its heads and kv heads, the most feed-forward rows that a layer
// gives it. The vocabulary stays whole. Where embedding and head lie apart they are not tied. The shard must
// have passed shard_check() and shard_check_stages().
void shard_config(const struct shard *s, struct model_config *own);

// The rank's part of an adapter's matrix, in place of the whole one: rows of b are a view, columns of a are copied to
// scratch, which has room for it and lives as long as it is used. layer: of the whole model; down: as for shard_cut().
void shard_cut_adapter(const struct shard *s, int layer, enum adapter_target target, enum dtype down,
                       void *scratch, struct adapter_matrix *m);

// The rank's part of a weight. Rows are views of `whole`; columns are copied to scratch, which has room for
// the matrix and must live as long as `part` is used. down: the type of the same layer's down matrix, for
// GATE_UP and DOWN.
void shard_cut(const struct shard *s, const struct weight_desc *whole, enum dtype down, void *scratch,
               struct weight_desc *part);
