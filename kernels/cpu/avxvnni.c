// AVX2, FMA, F16C and AVX-VNNI, which CPUs without AVX-512 have, too: compiled with those options
// whatever the rest is compiled for.
#define CPU_AVXVNNI 1
#include "vec_avx2.h"

#define CPU_KERNELS cpu_kernels_avxvnni
#define CPU_KERNELS_NAME "avxvnni"
#define CPU_CONSTANT_TILES 1
#include "body.h"
