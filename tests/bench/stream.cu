// Reads memory as fast as it goes: the limit that decode is measured against.
#include "common.cuh"
#include "stream.h"

enum { STREAM_THREADS = 256, STREAM_BLOCKS = 1056 }; // 8 blocks on each of 132 processors

struct stream_args {
    const uint4 *p;
    uint32_t *out;
    size_t n;
};

__global__ void __launch_bounds__(STREAM_THREADS) stream_read(struct stream_args a) {
    kd_grid_wait();
    uint32_t sum = 0;
    size_t step = (size_t)gridDim.x * STREAM_THREADS, i = (size_t)blockIdx.x * STREAM_THREADS + threadIdx.x;
    for (; i + 3 * step < a.n; i += 4 * step) {
        uint4 v[4];
        for (int k = 0; k < 4; k++)
            v[k] = kd_load_once(a.p + i + (size_t)k * step);
        for (int k = 0; k < 4; k++)
            sum += v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    for (; i < a.n; i += step) {
        uint4 v = kd_load_once(a.p + i);
        sum += v.x ^ v.y ^ v.z ^ v.w;
    }
    a.out[blockIdx.x * STREAM_THREADS + threadIdx.x] = sum; // so that the loads are not left out
}

extern "C" size_t stream_out_bytes(void) { return STREAM_BLOCKS * STREAM_THREADS * sizeof(uint32_t); }

extern "C" void stream_read_all(struct rt *rt, const void *p, size_t bytes, void *out) {
    struct stream_args a = {(const uint4 *)p, (uint32_t *)out, bytes / 16};
    int blocks = bytes < 1 << 24 ? 1 : STREAM_BLOCKS;
    rt_launch(rt, stream_read, rt_grid_of(blocks, 1, STREAM_THREADS, 0), a);
}
