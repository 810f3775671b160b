// Philox4x32-10, a counter-based random generator: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2,
// 3", SC 2011. A draw is a pure function of (seed, index), so it knows nothing of batches or threads.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define PHILOX_FN static __host__ __device__ inline
#else
#define PHILOX_FN static inline
#endif

PHILOX_FN void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

// 64 uniform bits for output `index` of a choice with this seed (README rule 16).
PHILOX_FN uint64_t philox_bits(uint64_t seed, int32_t index) {
    uint32_t counter[4] = {(uint32_t)index, 0, 0, 0}, key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)},
             out[4];
    philox4x32(counter, key, out);
    return (uint64_t)out[0] << 32 | out[1];
}

// True with this probability, independent of philox_bits() of the same seed and index.
PHILOX_FN bool philox_chance(uint64_t seed, int32_t index, float probability) {
    uint32_t counter[4] = {(uint32_t)index, 0, 0, 0}, key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)},
             out[4];
    philox4x32(counter, key, out);
    return (double)out[2] < (double)probability * 4294967296.0;
}

// floor(draw * total / 2^64): a uniform draw below total.
PHILOX_FN uint64_t philox_below(uint64_t draw, uint64_t total) {
    uint64_t a1 = draw >> 32, a0 = draw & 0xffffffffu, b1 = total >> 32, b0 = total & 0xffffffffu;
    uint64_t mid = a1 * b0 + (a0 * b0 >> 32);
    return a1 * b1 + (mid >> 32) + ((a0 * b1 + (mid & 0xffffffffu)) >> 32);
}
