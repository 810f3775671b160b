// The intrinsics that kernels may use beyond plain CUDA C++: one implementation in PTX for nvcc, one for the
// emulator (emu/emu.h), so that the same kernel runs as host C++. A new intrinsic is two implementations and
// a test (tests/emu/test_emu_intrinsics.cu). Those of sm_90a alone stand in wgmma.h.
//
// Raw asm, <cuda_fp16.h>, cooperative groups and static __shared__ stay out of kernels: 16-bit floats are
// uint16_t.
#pragma once

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__

#define KD_FN static __device__ __forceinline__
// The one shared array of a kernel, 128-byte aligned.
#define KD_SHARED(type, name)                                                                                \
    extern __shared__ __align__(128) unsigned char kd_shared_bytes[];                                        \
    type *name = (type *)kd_shared_bytes

KD_FN uint32_t kd_shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

// 16 bytes from global to shared memory, zeros where !ok; in place after kd_copy_wait() and a barrier.
KD_FN void kd_copy16(void *dst, const void *src, bool ok) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(kd_shared_address(dst)), "l"(src),
                 "r"(ok ? 16 : 0)
                 : "memory");
}
// The same of 4 bytes, which need no more alignment.
KD_FN void kd_copy4(void *dst, const void *src, bool ok) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(kd_shared_address(dst)), "l"(src),
                 "r"(ok ? 4 : 0)
                 : "memory");
}
KD_FN void kd_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most KEEP of this thread's groups are in flight.
template <int KEEP> KD_FN void kd_copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(KEEP) : "memory");
}

KD_FN void kd_ldmatrix4(uint32_t r[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(kd_shared_address(row))
                 : "memory");
}
KD_FN void kd_ldmatrix4_trans(uint32_t r[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(kd_shared_address(row))
                 : "memory");
}

// c (16, 8) += a (16, 16) b (16, 8), f32 sums.
KD_FN void kd_mma_bf16(float c[4], const uint32_t a[4], const uint32_t b[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
KD_FN void kd_mma_half(float c[4], const uint32_t a[4], const uint32_t b[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// 16 bytes that are read once: weights.
KD_FN uint4 kd_load_once(const void *p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

// Programmatic dependent launch: until kd_grid_wait() a kernel may touch only what no kernel of the step
// writes (weights). kd_grid_release() lets the next kernel start early.
KD_FN void kd_grid_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
KD_FN void kd_grid_release() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" :::);
#endif
}

// Counts a block that arrives, 0 again after `last`: returns how many came before it. The last of
// them may read, behind the next barrier, all that they wrote before a barrier in front of it.
KD_FN uint32_t kd_count(uint32_t *arrived, uint32_t last) {
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(arrived), "r"(last)
                 : "memory");
    return before;
}

// Flags between devices, in memory that all of them reach. Set: everything that this thread, or its block
// before a barrier, has written or read comes before. Wait: until the flag has reached value, in the
// arithmetic of 2^32; false where *stop became other than 0, or after FLAG_SECONDS, which sets *stop to 2.
enum { FLAG_SECONDS = 60 };
KD_FN void kd_flag_set(uint32_t *flag, uint32_t value) {
    asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
KD_FN uint32_t kd_flag_get(const uint32_t *flag) {
    uint32_t v;
    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(v) : "l"(flag) : "memory");
    return v;
}
KD_FN unsigned long long kd_nanoseconds() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}
KD_FN bool kd_flag_wait(const uint32_t *flag, uint32_t value, uint32_t *stop) {
    unsigned long long start = 0;
    for (uint32_t i = 1; (int32_t)(kd_flag_get(flag) - value) < 0; i++) {
        if (i % 1024 != 0) // stop lies in the host's memory, far away
            continue;
        unsigned long long now = kd_nanoseconds();
        start = start ? start : now;
        if (kd_flag_get(stop) != 0)
            return false;
        if (now - start > FLAG_SECONDS * 1000000000ull) {
            kd_flag_set(stop, 2);
            return false;
        }
    }
    return true;
}

KD_FN float kd_exp2(float x) { // within 2 ulp
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

KD_FN float kd_reciprocal(float x) { // within 1 ulp; no call, as a division may be
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

KD_FN float kd_half_to_float(uint16_t h) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}
KD_FN uint16_t kd_float_to_half(float f) {
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}
// Two E4M3 as two f16, exactly.
KD_FN uint32_t kd_e4m3_to_half2(uint32_t two) {
#if __CUDA_ARCH__ >= 890
    uint32_t r;
    asm("{\n.reg .b16 x;\ncvt.u16.u32 x, %1;\ncvt.rn.f16x2.e4m3x2 %0, x;\n}" : "=r"(r) : "r"(two & 0xffffu));
    return r;
#else // the bits moved to those of f16 are 2^-8 of the value, which f16's subnormals hold
    uint32_t spread = (two & 0xffu) | (two & 0xff00u) << 8, size = spread & 0x007f007fu, r;
    asm("mul.rn.f16x2 %0, %1, %2;"
        : "=r"(r)
        : "r"((spread & 0x00800080u) << 8 | size << 7), "r"(0x5c005c00u));
    if ((size & 0xffffu) == 0x7fu)
        r = (r & 0xffff0000u) | 0x7e00u;
    if (size >> 16 == 0x7fu)
        r = (r & 0xffffu) | 0x7e000000u;
    return r;
#endif
}
KD_FN uint32_t kd_pack_bf16(float low, float high) {
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
KD_FN uint32_t kd_pack_half(float low, float high) {
    uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
// a * b + c on two bf16 each, of which subnormal ones count as what they are.
KD_FN uint32_t kd_fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t r;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
// Byte i is that of the eight of b and a which bits 4 i to 4 i + 2 of `which` say, a's being the lower four.
KD_FN uint32_t kd_pick_bytes(uint32_t a, uint32_t b, uint32_t which) { return __byte_perm(a, b, which); }
KD_FN float kd_bits_float(uint32_t u) { return __uint_as_float(u); }
KD_FN uint32_t kd_float_bits(float f) { return __float_as_uint(f); }

// One rounding each, never contracted: where bits are a promise (kernels/README.md, rules 12 to 16).
KD_FN float kd_add(float a, float b) { return __fadd_rn(a, b); }
KD_FN float kd_mul(float a, float b) { return __fmul_rn(a, b); }
KD_FN float kd_fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
KD_FN float kd_div(float a, float b) { return __fdiv_rn(a, b); }
KD_FN float kd_rsqrt(float x) { return __frsqrt_rn(x); }
KD_FN double kd_mul_double(double a, double b) { return __dmul_rn(a, b); }

#else

#include "emu/emu.h"
#include "half.h"

#define KD_FN static inline
#define KD_SHARED(type, name) type *name = (type *)(void *)emu::ctx->shared

KD_FN uint32_t kd_shared_address(const void *p) { return emu::shared_address(p); }
KD_FN void kd_copy16(void *dst, const void *src, bool ok) { emu::copy_async(dst, src, 16, ok); }
KD_FN void kd_copy4(void *dst, const void *src, bool ok) { emu::copy_async(dst, src, 4, ok); }
KD_FN void kd_copy_commit() { emu::copy_commit(); }
template <int KEEP> KD_FN void kd_copy_wait() { emu::copy_wait(KEEP); }
KD_FN void kd_ldmatrix4(uint32_t r[4], const void *row) { emu::ldmatrix4(r, row, false); }
KD_FN void kd_ldmatrix4_trans(uint32_t r[4], const void *row) { emu::ldmatrix4(r, row, true); }
KD_FN void kd_mma_bf16(float c[4], const uint32_t a[4], const uint32_t b[2]) {
    emu::mma_m16n8k16(c, a, b, bf16_to_float);
}
KD_FN void kd_mma_half(float c[4], const uint32_t a[4], const uint32_t b[2]) {
    emu::mma_m16n8k16(c, a, b, half_to_float);
}
KD_FN uint4 kd_load_once(const void *p) {
    if ((uintptr_t)p % 16 != 0)
        emu::die("a 16-byte load is not aligned");
    return *(const uint4 *)p;
}
KD_FN void kd_grid_wait() { emu::ctx->current->waited = true; }
KD_FN void kd_grid_release() {}
KD_FN uint32_t kd_count(uint32_t *arrived, uint32_t last) { // blocks do not run at the same time
    uint32_t before = *arrived;
    *arrived = before >= last ? 0 : before + 1;
    return before;
}
KD_FN void kd_flag_set(uint32_t *flag, uint32_t value) { emu::flag_set(flag, value); }
KD_FN bool kd_flag_wait(const uint32_t *flag, uint32_t value, uint32_t *stop) {
    return emu::flag_wait(flag, value, stop);
}
KD_FN float kd_exp2(float x) { return exp2f(x); }
KD_FN float kd_reciprocal(float x) { return 1 / x; }
KD_FN float kd_half_to_float(uint16_t h) { return half_to_float(h); }
KD_FN uint16_t kd_float_to_half(float f) { return float_to_half(f); }
KD_FN uint32_t kd_e4m3_to_half2(uint32_t two) {
    return float_to_half(e4m3_to_float((uint8_t)two)) |
           (uint32_t)float_to_half(e4m3_to_float((uint8_t)(two >> 8))) << 16;
}
KD_FN uint32_t kd_pack_bf16(float low, float high) {
    return float_to_bf16(low) | (uint32_t)float_to_bf16(high) << 16;
}
KD_FN uint32_t kd_pack_half(float low, float high) {
    return float_to_half(low) | (uint32_t)float_to_half(high) << 16;
}
KD_FN double kd_widen_bf16(uint16_t h) { // a subnormal f32 would be zero
    return h & 0x7f80u ? (double)bf16_to_float(h) : (h & 0x8000u ? -0x1p-133 : 0x1p-133) * (h & 0x7fu);
}
KD_FN uint32_t kd_fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t r = 0;
    for (int i = 0; i < 32; i += 16) // the product of two bf16 is exact in double
        r |= (uint32_t)float_to_bf16(
                 (float)(kd_widen_bf16((uint16_t)(a >> i)) * kd_widen_bf16((uint16_t)(b >> i)) +
                         kd_widen_bf16((uint16_t)(c >> i))))
             << i;
    return r;
}
KD_FN uint32_t kd_pick_bytes(uint32_t a, uint32_t b, uint32_t which) {
    uint32_t r = 0;
    for (int i = 0; i < 4; i++)
        r |= (uint32_t)((a | (uint64_t)b << 32) >> (which >> (4 * i) & 7u) * 8 & 255u) << (8 * i);
    return r;
}
KD_FN float kd_bits_float(uint32_t u) { return bits_float(u); }
KD_FN uint32_t kd_float_bits(float f) { return float_bits(f); }
KD_FN float kd_add(float a, float b) { return a + b; }
KD_FN float kd_mul(float a, float b) { return a * b; }
KD_FN float kd_fma(float a, float b, float c) { return fmaf(a, b, c); }
KD_FN float kd_div(float a, float b) { return a / b; }
KD_FN float kd_rsqrt(float x) { return 1 / sqrtf(x); }
KD_FN double kd_mul_double(double a, double b) { return a * b; }

#endif

KD_FN float kd_bf16_to_float(uint16_t h) { return kd_bits_float((uint32_t)h << 16); }
KD_FN uint16_t kd_float_to_bf16(float f) { return (uint16_t)kd_pack_bf16(f, 0); }

// f32 as E4M3, as float_to_e4m3() of half.h.
KD_FN uint8_t kd_float_to_e4m3(float f) {
    uint32_t u = kd_float_bits(f), sign = u >> 24 & 0x80u, a = u & 0x7fffffffu, e = a >> 23;
    if (a > 0x7f800000u)
        return (uint8_t)(sign | 0x7fu);
    if (a >= 0x43e80000u)
        return (uint8_t)(sign | 0x7eu);
    if (a >= 0x3c800000u)
        return (uint8_t)(sign | (a - 0x3c000000u + 0x7ffffu + (a >> 20 & 1u)) >> 20);
    if (e < 117)
        return (uint8_t)sign;
    uint32_t shift = 141 - e, man = (a & 0x7fffffu) | 0x800000u;
    return (uint8_t)(sign | (man + (1u << (shift - 1)) - 1 + (man >> shift & 1u)) >> shift);
}

// Two of them.
KD_FN uint32_t kd_pack_e4m3(float low, float high) {
#if __CUDA_ARCH__ >= 890
    uint32_t r;
    asm("{\n.reg .b16 x;\ncvt.rn.satfinite.e4m3x2.f32 x, %1, %2;\ncvt.u32.u16 %0, x;\n}"
        : "=r"(r)
        : "f"(high), "f"(low));
    return r;
#else
    return kd_float_to_e4m3(low) | (uint32_t)kd_float_to_e4m3(high) << 8;
#endif
}

// Sums, maxima over the 32 lanes: the same in every lane, in a fixed tree.
KD_FN float kd_warp_sum(float v) {
    for (int bits = 16; bits > 0; bits >>= 1)
        v += __shfl_xor_sync(0xffffffffu, v, bits);
    return v;
}
KD_FN float kd_warp_max(float v) {
    for (int bits = 16; bits > 0; bits >>= 1)
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, bits));
    return v;
}
