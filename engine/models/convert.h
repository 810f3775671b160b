// Numbers of one float type into those of another.
#pragma once

#include "tensor.h"

#include <stdbool.h>
#include <stdint.h>

// F32, F16 and BF16; FP8, which stands for BF16.
bool dtype_is_float(enum dtype t);

// n values of `from` into `to`, both float types, `to` not FP8, rounded to nearest even; src and dst do not overlap
// and are aligned to their types. The result is the index of the first finite number that becomes infinite, or n.
uint64_t convert_floats(void *dst, enum dtype to, const void *src, enum dtype from, uint64_t n);
