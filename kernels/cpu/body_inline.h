// Attributes and pragmas for the loops of body*.h and amx.c.
#pragma once

#include <stdint.h>
#include <string.h>

// The counts of tokens and queries of a tile are constants in the vector tables, so that its sums stay in
// registers and not in an array: 5 times faster at 8 tokens. Plain C has nothing to gain. The many copies take most of a
// build's time, and with a sanitizer minutes: QUIRE_CONSTANT_TILES of CMake.
#if CPU_CONSTANT_TILES && !defined(QUIRE_VARIABLE_TILES)
#define INLINE static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))
// Values read from memory before this are read again after it.
#define FORGET() __asm__ volatile("" ::: "memory")
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif
#else
#define INLINE static inline
#define NOINLINE
#define FORGET() (void)0
#define UNROLL
#endif

// Two bf16 that lie beside each other
INLINE uint32_t pair_at(const void *p) {
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}
