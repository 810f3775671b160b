// Names of the tensors in folders, and how each becomes one of ours.
#pragma once

#include "models/model_file.h"

enum hf_rows { // which rows of a tensor become ours, and in which order
    ROWS_SAME,
    // of heads whose halves rotate as pairs (i, i + d/2): with hf_family.adjacent rows become (2i, 2i + 1)
    ROWS_Q,
    ROWS_K,
    ROWS_QKV,       // of all queries, then of all keys, then of all values
    ROWS_GROUPED_Q, // groups of the query heads of one kv head, its key and its value: the queries of all groups
    ROWS_GROUPED_K, // the keys
    ROWS_GROUPED_V, // the values
    ROWS_EVEN,      // every second of a matrix, or of each of several: the first, third...
    ROWS_ODD,
    ROWS_FIRST_HALF, // of a matrix, or of each of several
    ROWS_SECOND_HALF,
    // Value heads of recurrent layers lie group by group; ours have the first head of each group, then the second.
    ROWS_VALUES,      // the rows of each head
    ROWS_HEADS,       // one row of each head
    ROWS_KEYS_VALUES, // those of values, behind those of queries and keys
    COLUMNS_VALUES,   // the columns of each head
    // The file interleaves, group by group of a recurrent layer, the rows of queries, keys, values and gates.
    ROWS_MIXED_QKV, // queries, keys and values of all groups
    ROWS_MIXED_GATES,
    ROWS_POSITIONS, // but the first, hf_config.skipped_positions
};

enum hf_form { // which shape ours has
    FORM_SAME,
    FORM_FLAT,    // without dimensions of 1
    FORM_COLUMN,  // a vector as a matrix of one column
    FORM_GROUPS,  // a vector as a matrix of a row for each group of recurrent layers
    FORM_EXPERTS, // rows of all experts as a matrix for each
};

enum hf_factor { // of Falcon-H1's configuration, by which weights are multiplied
    FACTOR_NONE,
    FACTOR_EMBED,
    FACTOR_HEAD,
    FACTOR_GATE,
    FACTOR_DOWN,
    FACTOR_ATTN_IN,
    FACTOR_KEY, // and by that of FACTOR_ATTN_IN
    FACTOR_ATTN_OUT,
    FACTOR_SSM_IN, // and by one of HF_STATE_PARTS, by its rows
    FACTOR_SSM_OUT,
    NUM_FACTORS,
};
enum { HF_STATE_PARTS = 5 }; // z, x, B, C, dt

struct hf_name { // a list ends with one without names
    // in a layer: behind "model.layers.N."; a '#' stands for a number: ours are stacked by it
    const char *theirs;
    const char *ours; // in a layer: behind "blk.N."; "": ignored
    enum hf_rows rows;
    enum hf_form form;
    enum hf_factor factor;
    const char *end;   // of ours; NULL: that of theirs, ".weight" or ".bias"
    bool decay;        // ours are -exp(theirs)
    bool unlike_norms; // stored as it is, whatever hf_family.norms_less_one says
    bool turned;       // a line for each column
    bool either;       // or not: where hidden_size is the size of a row, and of down the number of rows
};
