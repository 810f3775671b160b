// How a tensor is made of those in the files as it is read: rows in another order, elements in F32, several stacked.
#pragma once

#include "quantized.h"

struct hf_recipe {
    uint64_t start, bytes;            // addresses of what is made, behind those of the files
    const struct hf_source **sources; // (num) alike, one after the other
    int num;
    const void *memory; // in place of sources
    enum hf_rows rows;
    int64_t matrix_rows;               // as made, of each matrix in a source
    uint64_t row_bytes, out_row_bytes; // of a row in the file, and made
    int64_t out_rows;                  // of each source
    uint64_t source_rows;              // of each matrix in a source
    enum st_type type;                 // of elements in the file
    bool widens;                       // elements become F32
    bool decays;                       // and -exp() of what they were
    bool turned;                       // a line of the file is a column of a matrix
    float plus, times;                 // more by this; times that, NAN: hf_config.state_factors
    struct hf_quant quant;             // of a quantised matrix
};

static inline bool hf_recipe_changes_elements(const struct hf_recipe *p) {
    return p->widens || p->decays || p->plus != 0 || p->times != 1 || p->rows == COLUMNS_VALUES;
}

// Rows that rows of a tensor become.
int64_t hf_recipe_rows(const struct hf_config *c, enum hf_rows rows, int64_t rows_in);
// Copies bytes [at, at + bytes) of what a recipe makes. NULL, or why, at the address *stopped. Any thread.
const char *hf_recipe_read(const struct hf_files *d, const struct hf_config *c, const struct hf_recipe *p,
                           uint64_t at, uint64_t bytes, char *dst, uint64_t *stopped);
// The address from which the byte `at` of it comes; 0 of what is in memory.
uint64_t hf_recipe_origin(const struct hf_config *c, const struct hf_recipe *p, uint64_t at);
