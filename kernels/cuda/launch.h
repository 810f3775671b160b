// Launching a kernel, which takes one struct by value: on a device by the runtime, in tests by the emulator.
#pragma once

#include "intrinsics.h"
#include "rt_stream.h"

struct rt_grid {
    dim3 grid;
    int threads;
    size_t shared; // bytes
};

#ifdef __CUDACC__

// Launches kernel with `args` (a copy of `bytes` is made). Overlaps the kernel before where the device can.
void rt_launch_raw(struct rt *rt, const void *kernel, const struct rt_grid *g, void *args);

template <class A> inline void rt_launch(struct rt *rt, void (*kernel)(A), const struct rt_grid &g, A args) {
    rt_launch_raw(rt, (const void *)kernel, &g, &args);
}

#else

#include <functional>

void rt_launch_emulated(struct rt *rt, const void *kernel, const struct rt_grid &g,
                        std::function<void()> body);

template <class A> inline void rt_launch(struct rt *rt, void (*kernel)(A), const struct rt_grid &g, A args) {
    rt_launch_emulated(rt, (const void *)kernel, g, [kernel, args] { kernel(args); });
}

#endif
