// Subnormal numbers count as zero while kernels run: vdpbf16ps always treats them so, hence every other path
// must (README rule 5). The calling thread gets its own mode back.
#pragma once

#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>

static inline uint64_t float_env_enter(void) {
    unsigned old = _mm_getcsr();
    _mm_setcsr(0x1f80u | 0x8040u); // round to nearest, exceptions masked, FTZ and DAZ
    return old;
}
static inline void float_env_leave(uint64_t old) { _mm_setcsr((unsigned)old); }

#elif defined(__aarch64__)

static inline uint64_t float_env_enter(void) {
    uint64_t old;
    __asm__ volatile("mrs %0, fpcr" : "=r"(old));
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)1 << 24)); // FZ
    return old;
}
static inline void float_env_leave(uint64_t old) { __asm__ volatile("msr fpcr, %0" : : "r"(old)); }

#else

static inline uint64_t float_env_enter(void) { return 0; }
static inline void float_env_leave(uint64_t old) { (void)old; }

#endif
