// cuBLASLt, loaded when the first device is opened: the module works without it, of the major version whose
// header it is built with. Both CUDA 12 and 13 have all that is used of it, but scales of groups, which 12.9 brings: by
// number, as an older header does not name them.
#pragma once

#include <cublasLt.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

enum {
    LT_GROUP_SCALES = 120900, // the version
    LT_W_SCALE_MODE = 31,     // CUBLASLT_MATMUL_DESC_A_SCALE_MODE
    LT_X_SCALE_MODE = 32,
    LT_GROUPS = 4, // CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
    LT_BLOCKS = 5,
};
#if CUBLAS_VERSION >= 120900
static_assert(LT_W_SCALE_MODE == (int)CUBLASLT_MATMUL_DESC_A_SCALE_MODE &&
                  LT_X_SCALE_MODE == (int)CUBLASLT_MATMUL_DESC_B_SCALE_MODE &&
                  LT_GROUPS == (int)CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F &&
                  LT_BLOCKS == (int)CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F,
              "as a newer header has them");
#endif

#define LT_TEXT(x) #x
#define LT_NAME(major) "libcublasLt.so." LT_TEXT(major)
#define LT_MAP(X)                                                                                            \
    X(Create)                                                                                                \
    X(Destroy)                                                                                               \
    X(GetStatusString)                                                                                       \
    X(GetVersion)                                                                                            \
    X(Matmul)                                                                                                \
    X(MatmulAlgoGetHeuristic)                                                                                \
    X(MatmulDescCreate)                                                                                      \
    X(MatmulDescDestroy)                                                                                     \
    X(MatmulDescSetAttribute)                                                                                \
    X(MatmulPreferenceCreate)                                                                                \
    X(MatmulPreferenceDestroy)                                                                               \
    X(MatmulPreferenceSetAttribute)                                                                          \
    X(MatrixLayoutCreate)                                                                                    \
    X(MatrixLayoutDestroy)

static struct {
#define X(name) decltype(&cublasLt##name) name;
    LT_MAP(X)
#undef X
    char problem[300]; // why it is not there; "": it is
} lt;
static pthread_once_t lt_once = PTHREAD_ONCE_INIT;

static void lt_load() {
    void *library = dlopen(LT_NAME(CUBLAS_VER_MAJOR), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(
            lt.problem, sizeof lt.problem,
            "%.190s; install libcublas of CUDA %d, or nvidia-cublas by pip, its folder in LD_LIBRARY_PATH",
            dlerror(), CUBLAS_VER_MAJOR);
        return;
    }
#define X(name)                                                                                              \
    lt.name = (decltype(lt.name))dlsym(library, "cublasLt" #name);                                           \
    if (!lt.name && !lt.problem[0])                                                                          \
        snprintf(lt.problem, sizeof lt.problem, LT_NAME(CUBLAS_VER_MAJOR) " has no cublasLt" #name);
    LT_MAP(X)
#undef X
}
