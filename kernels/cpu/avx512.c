// AVX-512 F, BW, VL, DQ, VNNI and BF16: compiled with those options whatever the rest is compiled for.
#include "vec_avx512.h"

#define CPU_KERNELS cpu_kernels_avx512
#define CPU_KERNELS_NAME "avx512"
#define CPU_CONSTANT_TILES 1
#include "body.h"
