// Reads memory as fast as it goes: the limit that decode is measured against. And fills it for the benchmark.
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

struct fill_args {
    uint4 *p;
    size_t n;
    uint32_t seed;
    enum stream_kind kind;
};

// A word of random bits as one or two numbers of random sign and mantissa whose exponents are -4 to -1: |x|
// in [1/16, 1).
KD_FN uint32_t fill_word(uint32_t x, enum stream_kind kind) {
    uint32_t half = 0x83ff83ffu, e = x >> 10 & 3u, e2 = x >> 26 & 3u;
    if (kind == STREAM_F16)
        return (x & half) | (11u + e) << 10 | (11u + e2) << 26;
    if (kind == STREAM_BF16)
        return (x & 0x807f807fu) | (123u + e) << 7 | (123u + e2) << 23;
    return kind == STREAM_F32 ? (x & 0x807fffffu) | (123u + e2) << 23 : x;
}

__global__ void __launch_bounds__(STREAM_THREADS) stream_fill(struct fill_args a) {
    kd_grid_wait();
    size_t step = (size_t)gridDim.x * STREAM_THREADS;
    for (size_t i = (size_t)blockIdx.x * STREAM_THREADS + threadIdx.x; i < a.n; i += step) {
        uint32_t v[4];
        for (int k = 0; k < 4; k++) { // the last lines of MurmurHash3, public domain
            uint32_t x = (uint32_t)i * 4u + (uint32_t)k + a.seed * 0x9e3779b9u;
            x = (x ^ x >> 16) * 0x85ebca6bu;
            x = (x ^ x >> 13) * 0xc2b2ae35u;
            v[k] = fill_word(x ^ x >> 16, a.kind);
        }
        uint4 all = {v[0], v[1], v[2], v[3]};
        a.p[i] = all;
    }
}

extern "C" void stream_fill_random(struct rt *rt, void *p, size_t bytes, enum stream_kind kind,
                                   uint32_t seed) {
    struct fill_args a = {(uint4 *)p, bytes / 16, seed, kind};
    rt_launch(rt, stream_fill, rt_grid_of(bytes < 1 << 24 ? 1 : STREAM_BLOCKS, 1, STREAM_THREADS, 0), a);
}
