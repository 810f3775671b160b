// Which instruction sets this machine has.
#include "kernels.h"

#include "clock.h"
#include "log.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <pthread.h>
#include <unistd.h>

#if defined(__linux__)
#include <sys/syscall.h>
#endif

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

// AMX-TILE and AMX-BF16, state of theirs that the kernel keeps, and its permission to use it, which holds for
// all threads from then on.
static bool has_amx(void) {
#if defined(__linux__)
    enum { REQ_XCOMP_PERM = 0x1023, XTILECFG = 17, XTILEDATA = 18 };
    unsigned a, b, c, d, low, high;
    if (!has_avx512() || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d >> 22 & 5) != 5)
        return false;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low >> XTILECFG & 3) == 3 && syscall(SYS_arch_prctl, REQ_XCOMP_PERM, XTILEDATA) == 0;
#else
    return false;
#endif
}

// Seconds of a GEMM of bf16
static double bf16_seconds(const struct cpu_kernels *k) {
    enum { PAIRS = 256 };
    static char w[PAIRS * 64], x[REGISTER_TOKENS * PAIRS * 4];
    static float y[REGISTER_TOKENS * TILE_PANELS * LANES];
    int64_t began = clock_now_ns();
    k->gemm[DTYPE_BF16](&(struct gemm_tile){.w = {w, w},
                                            .x = x,
                                            .ldx = PAIRS * 4,
                                            .num_tokens = REGISTER_TOKENS,
                                            .bounds = (const int[]){0, PAIRS},
                                            .num_segments = 1,
                                            .y = y,
                                            .ldy = TILE_PANELS * LANES,
                                            .next_panel = LANES});
    return 1e-9 * (double)(clock_now_ns() - began);
}

// Whether tiles give the sums of rule 2: an untested CPU must not give others.
static bool tiles_agree(const struct cpu_kernels *amx) {
    enum { STEP = 16, PAIRS = 40, TOKENS = 20 }; // two steps and a half; two groups of tokens
    static uint16_t w[TILE_PANELS][PAIRS][LANES][2], x[TOKENS][PAIRS][2];
    static float y[TOKENS][TILE_PANELS][LANES];
    uint16_t *any = &w[0][0][0][0];
    for (size_t i = 0; i < sizeof w / sizeof *any; i++)
        any[i] = (uint16_t)(0x3f80 + i * 37 % 128 + i % 3 * 0x100);
    any = &x[0][0][0];
    for (size_t i = 0; i < sizeof x / sizeof *any; i++)
        any[i] = (uint16_t)(0x3f80 + i * 53 % 128 + i % 2 * 0x8000);
    amx->gemm[DTYPE_BF16](&(struct gemm_tile){.w = {w[0], w[1]},
                                              .x = x,
                                              .ldx = sizeof x[0],
                                              .num_tokens = TOKENS,
                                              .bounds = (const int[]){0, PAIRS},
                                              .num_segments = 1,
                                              .y = y[0][0],
                                              .ldy = TILE_PANELS * LANES,
                                              .next_panel = LANES});
    for (int t = 0; t < TOKENS; t++)
        for (int lane = 0; lane < TILE_PANELS * LANES; lane++) {
            uint16_t(*row)[LANES][2] = w[lane / LANES];
            float sum = 0;
            for (int k = 0; k < PAIRS; k += STEP) {
                float even = 0, odd = 0;
                for (int i = k; i < k + STEP && i < PAIRS; i++) {
                    even = fmaf(bf16_to_float(row[i][lane % LANES][0]), bf16_to_float(x[t][i][0]), even);
                    odd = fmaf(bf16_to_float(row[i][lane % LANES][1]), bf16_to_float(x[t][i][1]), odd);
                }
                sum += even + odd;
            }
            if (float_bits(sum) != float_bits(y[t][lane / LANES][lane % LANES]))
                return false;
        }
    return true;
}

// Those that are AVX-512 with something else in places.
static struct {
    struct cpu_kernels fma, amx;
    bool has_fma, has_amx, prefers_fma;
} more;

static void fill_more(void) {
    more.has_fma = has_avx512();
    more.has_amx = has_amx();
    if (!more.has_fma)
        return;
    more.fma = cpu_kernels_avx512;
    cpu_kernels_fill_avx512fma(&more.fma);
    double best[2] = {1, 1};
    for (int i = 0; i < 16; i++) {
        double t = bf16_seconds(i % 2 ? &more.fma : &cpu_kernels_avx512);
        best[i % 2] = t < best[i % 2] ? t : best[i % 2];
    }
    more.prefers_fma = best[1] < 0.8 * best[0]; // it is twice as fast, or half
    more.amx = more.fma;
    cpu_kernels_fill_amx(&more.amx);
    if (more.has_amx && !tiles_agree(&more.amx)) {
        more.has_amx = false;
        log_msg(LOG_WARN, "msg=\"this CPU's AMX gives other sums than it should: not used\"");
    }
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
    bool automatic = variant && strcmp(variant, "auto") == 0, any = !variant || automatic;
#if defined(__x86_64__)
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_more);
    if ((automatic || (!any && strcmp(variant, "amx") == 0)) && more.has_amx)
        return &more.amx;
    if (any ? more.prefers_fma : strcmp(variant, "avx512-fma") == 0 && more.has_fma)
        return &more.fma;
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
