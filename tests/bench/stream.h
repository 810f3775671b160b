#pragma once

#include "rt.h"

#ifdef __cplusplus
extern "C" {
#endif

// Reads bytes (a multiple of 16) of device memory; out has room for stream_out_bytes().
void stream_read_all(struct rt *rt, const void *p, size_t bytes, void *out);
size_t stream_out_bytes(void);
// Fills bytes (a multiple of 16) of device memory with random numbers of about normal size: all alike would
// flatter arithmetic, which draws less power on zeros. seed: others give other numbers.
enum stream_kind { STREAM_BITS, STREAM_F16, STREAM_BF16, STREAM_F32 };
void stream_fill_random(struct rt *rt, void *p, size_t bytes, enum stream_kind kind, uint32_t seed);

#ifdef __cplusplus
}
#endif
