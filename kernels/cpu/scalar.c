// Plain C: the canonical order, the oracle of the others by memcmp, and the fallback of every machine.
#include "vec_scalar.h"

#define CPU_KERNELS cpu_kernels_scalar
#define CPU_KERNELS_NAME "scalar"
#define CPU_CONSTANT_TILES 0
#include "body.h"
