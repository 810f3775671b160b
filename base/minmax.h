// The lesser and the greater of two ints.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

static inline int min_int(int a, int b) { return a < b ? a : b; }
static inline int max_int(int a, int b) { return a > b ? a : b; }

#ifdef __cplusplus
}
#endif
