// The table of the CUDA backend: what the module gives, and, with the emulated runtime, what tests use.
#pragma once

#include "backend.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct backend_ops backend_cuda;

#ifdef __cplusplus
}
#endif
