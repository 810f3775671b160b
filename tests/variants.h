// The tables of inner loops that a processor of this kind may have (kernels/cpu/kernels.h).
#pragma once

#if defined(__aarch64__)
#define NARROW_VARIANT "neon"
#define WIDE_VARIANT "i8mm"
static const char *const variants[] = {"scalar", NARROW_VARIANT, WIDE_VARIANT, "dotprod"};
#else
#define NARROW_VARIANT "avx2"
#define WIDE_VARIANT "avx512"
static const char *const variants[] = {"scalar", NARROW_VARIANT, WIDE_VARIANT, "avxvnni"};
#endif
