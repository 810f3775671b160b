// The table for NEON alone, which every ARM64 CPU has.
#include "vec_neon.h"

#define CPU_KERNELS cpu_kernels_neon
#define CPU_KERNELS_NAME "neon"
#define CPU_CONSTANT_TILES 1
#include "body.h"
