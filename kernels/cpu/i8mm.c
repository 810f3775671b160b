// The table for NEON with dot products of signed and unsigned bytes, and of bf16 (ARMv8.6): compiled with those
// options whatever the rest is compiled for.
#define CPU_DOTPROD 1
#define CPU_I8MM 1
#include "vec_neon.h"

#define CPU_KERNELS cpu_kernels_i8mm
#define CPU_KERNELS_NAME "i8mm"
#define CPU_CONSTANT_TILES 1
#include "body.h"
