#pragma once

#include "rt.h"

#ifdef __cplusplus
extern "C" {
#endif

// Reads bytes (a multiple of 16) of device memory; out has room for stream_out_bytes().
void stream_read_all(struct rt *rt, const void *p, size_t bytes, void *out);
size_t stream_out_bytes(void);

#ifdef __cplusplus
}
#endif
