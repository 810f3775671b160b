// A typed view of memory that someone else owns. Row-major, dense: the shape alone gives the strides.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// name, elements per block, bytes per block. FP8 has no number in GGUF: an f32 scale, then bytes of E4M3. It stands for their
// products, rounded to BF16. The blocks of 128 columns, from a multiple of 128 of the whole matrix on, have one scale.
#define DTYPE_MAP(X)                                                                                         \
    X(F32, 1, 4)                                                                                             \
    X(F16, 1, 2)                                                                                             \
    X(BF16, 1, 2)                                                                                            \
    X(I32, 1, 4)                                                                                             \
    X(Q8_0, 32, 34)                                                                                          \
    X(Q4_0, 32, 18)                                                                                          \
    X(Q4_K, 256, 144)                                                                                        \
    X(Q5_K, 256, 176)                                                                                        \
    X(Q6_K, 256, 210)                                                                                        \
    X(Q4_1, 32, 20)                                                                                          \
    X(Q5_0, 32, 22)                                                                                          \
    X(Q5_1, 32, 24)                                                                                          \
    X(IQ4_NL, 32, 18)                                                                                        \
    X(MXFP4, 32, 17)                                                                                         \
    X(Q3_K, 256, 110)                                                                                        \
    X(Q2_K, 256, 84)                                                                                         \
    X(IQ4_XS, 256, 136)                                                                                      \
    X(I8, 1, 1)                                                                                              \
    X(F8_E4M3, 1, 1)                                                                                         \
    X(FP8, 32, 36)

#define X(name, block, bytes) DTYPE_##name,
enum dtype { DTYPE_MAP(X) DTYPE_COUNT };
#undef X

enum { TENSOR_MAX_DIMS = 4 };

struct tensor {
    const void *data; // host memory unless a function says otherwise; NULL: no tensor
    enum dtype dtype;
    int ndim;
    int64_t shape[TENSOR_MAX_DIMS]; // outermost first; the last one is contiguous
};

static inline const char *dtype_name(enum dtype t) {
#define X(name, block, bytes) #name,
    static const char *const names[] = {DTYPE_MAP(X)};
#undef X
    return t < DTYPE_COUNT ? names[t] : "?";
}

// Whether weights can have the type. I32 is for ids; I8 for keys and values, which have their scales apart;
// F8_E4M3 for keys and values.
static inline bool dtype_is_weight(enum dtype t) {
    return t < DTYPE_COUNT && t != DTYPE_I32 && t != DTYPE_I8 && t != DTYPE_F8_E4M3;
}

// Elements that are stored together (1 for plain types, 32 or 256 for quantised ones).
static inline int dtype_block(enum dtype t) {
#define X(name, block, bytes) block,
    static const int blocks[] = {DTYPE_MAP(X)};
#undef X
    return blocks[t];
}

// Those whose products are added together, so that ranks may not part them: a block, or a pair of BF16, which FP8 may become.
static inline int dtype_sum_block(enum dtype t) {
    return t == DTYPE_BF16 || t == DTYPE_FP8 ? 2 : dtype_block(t);
}

// Bytes of one row of n elements; n is a multiple of dtype_block(t). The caller has bounded n.
static inline size_t dtype_row_bytes(enum dtype t, int64_t n) {
#define X(name, block, bytes) bytes,
    static const int sizes[] = {DTYPE_MAP(X)};
#undef X
    return (size_t)(n / dtype_block(t)) * (size_t)sizes[t];
}
