// The table for NEON with ARMv8.2's dot products of bytes: compiled with that option whatever the rest is compiled
// for.
#define CPU_DOTPROD 1
#include "vec_neon.h"

#define CPU_KERNELS cpu_kernels_dotprod
#define CPU_KERNELS_NAME "dotprod"
#define CPU_CONSTANT_TILES 1
#include "body.h"
