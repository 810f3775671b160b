// A seeded hash of bytes for the tables of the loaders. The seed is random per table, so that a file cannot
// be made whose names all fall into one slot. Not for anything that leaves the process.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>

static inline uint64_t hash_mix(uint64_t a, uint64_t b) {
    __extension__ typedef unsigned __int128 wide;
    wide m = (wide)a * b;
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

static inline uint64_t hash_bytes(uint64_t seed, const void *data, size_t n) {
    const unsigned char *p = (const unsigned char *)data;
    const uint64_t k0 = 0x9e3779b97f4a7c15u, k1 = 0xd1b54a32d192ed03u;
    uint64_t h = seed ^ (n * k0), w;
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&w, p, 8);
        h = hash_mix(h ^ w ^ k1, k0 ^ seed);
    }
    w = 0;
    for (size_t i = 0; i < n; i++)
        w |= (uint64_t)p[i] << (8 * i);
    return hash_mix(h ^ w ^ k1, k1 ^ (seed >> 7));
}

static inline uint64_t hash_seed(void) {
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed)
        seed = (uint64_t)(uintptr_t)&seed * 0x9e3779b97f4a7c15u; // early boot: the stack's address will do
    return seed | 1;
}
