// Seeds of choices: pure arithmetic.
#pragma once

#include <stdint.h>

// The next output of the generator of this name in state x.
static inline uint64_t splitmix64(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

// The seed of choice j: the seed itself for 0. Else its hash comes before j is added, so that the choices of seeds
// that follow each other are not the same.
static inline uint64_t choice_seed(uint64_t seed, int j) {
    return j == 0 ? seed : splitmix64(splitmix64(seed) + (uint64_t)j);
}
