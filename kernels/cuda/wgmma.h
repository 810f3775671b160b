// The intrinsics of wgmma, beside those of intrinsics.h, in the same two implementations: PTX for
// sm_90a, which alone has them, and the emulator (emu/wgmma.cpp). For nvcc they are there where sm_90a is one of
// the architectures that the build compiles a file for, and it says so (QUIRE_SM90A). For the others a kernel that
// has them is empty (KD_WGMMA_CODE): a device that loads all kernels at once finds one, which is never launched.
//
// A warpgroup is four warps from a multiple of four on; every lane of all four reaches each of these
// intrinsics.
//
// A wgmma: d (64, N) += A (64, 16) B (16, N), or = with !add, in f32. Warp w of the four has rows 16 w to
// 16 w + 15 of d, spread over its lanes as kd_mma_bf16() spreads its sums, eight columns in each d[i]. It is
// asynchronous: between the intrinsic and the wait for its group no thread reads or writes d, A or B.
#pragma once

#include "intrinsics.h"

#if !defined(__CUDACC__) || defined(QUIRE_SM90A)
#define KD_WGMMA
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define KD_WGMMA_CODE
#endif

// Where an operand lies in shared memory, in rows of 128 bytes (64 elements), eight of which are a pattern of
// 1,024 bytes that begins at a multiple of 1,024; piece c (16 bytes) of row r lies at place c ^ r % 8 of it.
//
// kd_along_k(): a row is 64 values of k of one row (or, of B, column) of the operand; `stride` bytes further
// lie the next eight of them. 16 values of k are 32 bytes: the next 16 begin 32 bytes further in the same
// pattern.
// kd_across_k(): a row is one k of 64 rows (columns) of the operand; `stride` bytes further lie the next
// eight of k, `lead` bytes further the next 64 rows (columns).
// kd_narrow_along_k(): as kd_along_k(), but rows are 64 bytes, a pattern 512, and piece c of row r lies at
// place c ^ r / 2 % 4.
//
// Bits 0 to 13: address / 16; 16 to 29: lead / 16; 32 to 45: stride / 16; 62 and 63: rows of 128 (1) or 64
// bytes (2). (PTX ISA, "Matrix descriptor format"; lead means nothing along k.)
enum { KD_NARROW_ROW = 64, KD_PATTERN_ALIGN = 1024 };
KD_FN uint64_t kd_along_k(const void *p, uint32_t stride) {
    return (uint64_t)1 << 62 | (uint64_t)(stride >> 4) << 32 | (uint64_t)1 << 16 | kd_shared_address(p) >> 4;
}
KD_FN uint64_t kd_across_k(const void *p, uint32_t lead, uint32_t stride) {
    return (uint64_t)1 << 62 | (uint64_t)(stride >> 4) << 32 | (uint64_t)(lead >> 4) << 16 |
           kd_shared_address(p) >> 4;
}
KD_FN uint64_t kd_narrow_along_k(const void *p, uint32_t stride) {
    return (uint64_t)2 << 62 | (uint64_t)(stride >> 4) << 32 | (uint64_t)1 << 16 | kd_shared_address(p) >> 4;
}
// Where the first pattern in a shared array can begin.
KD_FN unsigned char *kd_aligned(unsigned char *shared) {
    return shared + (-kd_shared_address(shared) & (KD_PATTERN_ALIGN - 1));
}
// The operand that begins `bytes` further.
KD_FN uint64_t kd_further(uint64_t descriptor, uint32_t bytes) { return descriptor + (bytes >> 4); }

#endif

#if defined(__CUDACC__) && defined(KD_WGMMA)

// Makes this thread's finished stores and copies to shared memory visible to wgmma (those of other threads: after a
// barrier behind it).
KD_FN void kd_shared_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Between what touched registers of a wgmma last and the first wgmma that has them.
KD_FN void kd_wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
KD_FN void kd_wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most KEEP groups are in flight.
template <int KEEP> KD_FN void kd_wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(KEEP) : "memory");
}
// Keeps the compiler from moving what touches registers of a wgmma across this place: after what touches
// them and before kd_wgmma_fence(), and after the wait.
template <int N> KD_FN void kd_wgmma_hold(float (&d)[N][4]) {
#pragma unroll
    for (int i = 0; i < N; i++)
        for (int e = 0; e < 4; e++)
            asm volatile("" : "+f"(d[i][e])::"memory");
}
template <int N> KD_FN void kd_wgmma_hold(uint32_t (&a)[N][4]) {
#pragma unroll
    for (int i = 0; i < N; i++)
        for (int e = 0; e < 4; e++)
            asm volatile("" : "+r"(a[i][e])::"memory");
}

#define KD_SUMS4(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define KD_SUMS16(i) KD_SUMS4(i), KD_SUMS4(i + 1), KD_SUMS4(i + 2), KD_SUMS4(i + 3)
#define KD_SUMS32 KD_SUMS16(0)
#define KD_SUMS64 KD_SUMS16(0), KD_SUMS16(4)
#define KD_SUMS128 KD_SUMS64, KD_SUMS16(8), KD_SUMS16(12)
#define KD_NAMES32 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define KD_NAMES64 KD_NAMES32 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define KD_NAMES128                                                                                          \
    KD_NAMES64 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,"   \
               "%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
// n columns; a, b, add, ...: how the operands behind the sums are called.
#define KD_WGMMA_TEXT(n, type, a, b, add, transposed)                                                        \
    "{\n.reg .pred p;\nsetp.ne.b32 p, " add ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type     \
    "." type " {" KD_NAMES##n "}, " a ", " b ", p, 1, 1, " transposed ";\n}"
#define KD_WGMMA_MEMORY(n, type, a_name, b_name, add_name, ta, tb)                                           \
    asm volatile(KD_WGMMA_TEXT(n, type, a_name, b_name, add_name, ta ", " tb)                                \
                 : KD_SUMS##n                                                                                \
                 : "l"(a), "l"(b), "r"((int)add), "n"((int)ACROSS_A), "n"((int)ACROSS_B)                     \
                 : "memory")
#define KD_WGMMA_REGISTERS(n, type, a_name, b_name, add_name, tb)                                            \
    asm volatile(KD_WGMMA_TEXT(n, type, a_name, b_name, add_name, tb)                                        \
                 : KD_SUMS##n                                                                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add), "n"((int)ACROSS_B)     \
                 : "memory")

// A and B in shared memory; ACROSS_A, ACROSS_B: as kd_across_k() says, else as kd_along_k().
template <int N, bool HALF, bool ACROSS_A, bool ACROSS_B>
KD_FN void kd_wgmma(float (&d)[N / 8][4], uint64_t a, uint64_t b, bool add) {
    static_assert(N == 32 || N == 64 || N == 128, "more widths are more lines here");
    if constexpr (N == 32 && HALF)
        KD_WGMMA_MEMORY(32, "f16", "%16", "%17", "%18", "%19", "%20");
    else if constexpr (N == 32)
        KD_WGMMA_MEMORY(32, "bf16", "%16", "%17", "%18", "%19", "%20");
    else if constexpr (N == 64 && HALF)
        KD_WGMMA_MEMORY(64, "f16", "%32", "%33", "%34", "%35", "%36");
    else if constexpr (N == 64)
        KD_WGMMA_MEMORY(64, "bf16", "%32", "%33", "%34", "%35", "%36");
    else if constexpr (HALF)
        KD_WGMMA_MEMORY(128, "f16", "%64", "%65", "%66", "%67", "%68");
    else
        KD_WGMMA_MEMORY(128, "bf16", "%64", "%65", "%66", "%67", "%68");
}
// A in registers: this warp's 16 rows of it, as kd_mma_bf16() has them.
template <int N, bool HALF, bool ACROSS_B>
KD_FN void kd_wgmma(float (&d)[N / 8][4], const uint32_t (&a)[4], uint64_t b, bool add) {
    static_assert(N == 64 || N == 128, "more widths are more lines here");
    if constexpr (N == 64 && HALF)
        KD_WGMMA_REGISTERS(64, "f16", "{%32,%33,%34,%35}", "%36", "%37", "%38");
    else if constexpr (N == 64)
        KD_WGMMA_REGISTERS(64, "bf16", "{%32,%33,%34,%35}", "%36", "%37", "%38");
    else if constexpr (HALF)
        KD_WGMMA_REGISTERS(128, "f16", "{%64,%65,%66,%67}", "%68", "%69", "%70");
    else
        KD_WGMMA_REGISTERS(128, "bf16", "{%64,%65,%66,%67}", "%68", "%69", "%70");
}

#elif defined(KD_WGMMA)

KD_FN void kd_shared_fence() { emu::shared_fence(); }
KD_FN void kd_wgmma_fence() { emu::wgmma_fence(); }
KD_FN void kd_wgmma_commit() { emu::wgmma_commit(); }
template <int KEEP> KD_FN void kd_wgmma_wait() { emu::wgmma_wait(KEEP); }
template <int N> KD_FN void kd_wgmma_hold(float (&)[N][4]) {}
template <int N> KD_FN void kd_wgmma_hold(uint32_t (&)[N][4]) {}
template <int N, bool HALF, bool ACROSS_A, bool ACROSS_B>
KD_FN void kd_wgmma(float (&d)[N / 8][4], uint64_t a, uint64_t b, bool add) {
    emu::wgmma({&d[0][0], nullptr, N, a, b, ACROSS_A, ACROSS_B, add, HALF ? half_to_float : bf16_to_float});
}
template <int N, bool HALF, bool ACROSS_B>
KD_FN void kd_wgmma(float (&d)[N / 8][4], const uint32_t (&a)[4], uint64_t b, bool add) {
    emu::wgmma({&d[0][0], a, N, 0, b, false, ACROSS_B, add, HALF ? half_to_float : bf16_to_float});
}

#endif
