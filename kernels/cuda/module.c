// The one symbol of the module.
#include "backend_cuda.h"

__attribute__((visibility("default"))) backend_entry quire_backend_v1;

const struct backend_ops *quire_backend_v1(uint32_t abi) { return abi == BACKEND_ABI ? &backend_cuda : NULL; }
