// Kernels of blocks with more shared memory than the 48 KiB that each may have unasked: the device allows it a kernel before
// it launches it. One rule for the runtime and for the emulated one.
#pragma once

#include <stddef.h>

struct big_kernels { // of one rt
    const void *kernels[128];
    int num;
};

// Bytes that `kernel` must be allowed before it is launched with `bytes`; 0: nothing is to be asked. All that a block can have
// (`most`), once: launches of one kernel want different sizes, and a later wish takes the place of the one before, also that of
// another rt of the device (a draft model's).
static inline size_t big_kernels_wish(struct big_kernels *b, const void *kernel, size_t bytes, size_t most) {
    if (bytes <= (size_t)48 << 10)
        return 0;
    for (int i = 0; i < b->num; i++)
        if (b->kernels[i] == kernel)
            return 0;
    if (b->num < (int)(sizeof b->kernels / sizeof b->kernels[0])) // else it is asked each time
        b->kernels[b->num++] = kernel;
    return most;
}
