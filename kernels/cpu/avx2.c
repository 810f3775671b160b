// AVX2, FMA and F16C: compiled with those options whatever the rest is compiled for.
#include "vec_avx2.h"

#define CPU_KERNELS cpu_kernels_avx2
#define CPU_KERNELS_NAME "avx2"
#define CPU_CONSTANT_TILES 1
#include "body.h"
