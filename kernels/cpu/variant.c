// Which instruction sets this machine has.
#include "kernels.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

static bool has_avx2(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_F16C))
        return false;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avxvnni(void) {
    unsigned a, b, c, d;
    return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && a & 1u << 4;
}

static bool has_avx512(void) {
    unsigned a, b, c, d;
    if (!has_avx2() || !__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & 1u << 5)) // AVX512_BF16
        return false;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}
#elif defined(__aarch64__)
#include <sys/auxv.h>

static bool has_dotprod(void) { return getauxval(AT_HWCAP) & 1ul << 20; } // HWCAP_ASIMDDP

static bool has_i8mm(void) {
    unsigned long both = 1ul << 13 | 1ul << 14; // HWCAP2_I8MM, HWCAP2_BF16
    return has_dotprod() && (getauxval(AT_HWCAP2) & both) == both;
}
#endif

const struct cpu_kernels *cpu_kernels_find(const char *variant) {
    bool any = !variant || !*variant || strcmp(variant, "auto") == 0;
#if defined(__x86_64__)
    if ((any || strcmp(variant, "avx512") == 0) && has_avx512())
        return &cpu_kernels_avx512;
    if ((any || strcmp(variant, "avxvnni") == 0) && has_avxvnni())
        return &cpu_kernels_avxvnni;
    if ((any || strcmp(variant, "avx2") == 0) && has_avx2())
        return &cpu_kernels_avx2;
#elif defined(__aarch64__)
    if ((any || strcmp(variant, "i8mm") == 0) && has_i8mm())
        return &cpu_kernels_i8mm;
    if ((any || strcmp(variant, "dotprod") == 0) && has_dotprod())
        return &cpu_kernels_dotprod;
    if (any || strcmp(variant, "neon") == 0)
        return &cpu_kernels_neon;
#endif
    return any || strcmp(variant, "scalar") == 0 ? &cpu_kernels_scalar : NULL;
}
