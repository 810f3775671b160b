// The intrinsics of intrinsics.h and wgmma.h, on the emulator and on a device alike; and that the emulator
// sees what it claims to see. Over 600 lines: a kernel per intrinsic, and a list of all misuse.
#include "common.cuh"
#include "half.h"
#include "wgmma.h"

#undef QUIRE_HAVE_CMOCKA // a kernel cannot be cmocka's
#include "harness.h"

#ifndef __CUDACC__
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#endif

static struct rt *rt;

struct args {
    const float *in;
    float *out;
    uint16_t *halves;
    int *ints;
    int n;
};

static float *device_floats(int n) { return (float *)rt_alloc(rt, sizeof(float) * (size_t)n); }

static void download(void *host, const void *device, size_t bytes) {
    struct err err = {};
    rt_mark(rt, 0);
    if (rt_wait(rt, 0, &err) != STATUS_OK)
        fail_msg("%s", err.msg);
    rt_download_now(rt, host, device, bytes);
}

// ---- mma: D = A B with A (16, 16) and B (16, 8) of small integers, exact in every type

template <bool HALF> __global__ void multiply(struct args a) {
    kd_grid_wait();
    int lane = kd_lane(), g = lane / 4, t = lane % 4 * 2;
    float c[4] = {0.5f, 0.5f, 0.5f, 0.5f};
    uint32_t x[4], b[2];
    for (int r = 0; r < 4; r++) {
        const float *p = a.in + (g + 8 * (r & 1)) * 16 + t + 8 * (r >> 1);
        x[r] = HALF ? kd_pack_half(p[0], p[1]) : kd_pack_bf16(p[0], p[1]);
    }
    for (int r = 0; r < 2; r++) {
        const float *p = a.in + 256 + (t + 8 * r) * 8 + g;
        b[r] = HALF ? kd_pack_half(p[0], p[8]) : kd_pack_bf16(p[0], p[8]);
    }
    if (HALF)
        kd_mma_half(c, x, b);
    else
        kd_mma_bf16(c, x, b);
    for (int r = 0; r < 2; r++)
        for (int e = 0; e < 2; e++)
            a.out[(g + 8 * r) * 8 + t + e] = c[2 * r + e];
}

TEST(test_mma) {
    float in[256 + 128], got[128];
    for (int i = 0; i < 384; i++)
        in[i] = (float)((i * 37 + i / 7) % 17 - 8);
    float *d_in = device_floats(384), *d_out = device_floats(128);
    rt_upload_now(rt, d_in, in, sizeof in);
    for (int half = 0; half < 2; half++) {
        struct args a = {d_in, d_out, NULL, NULL, 0};
        rt_launch(rt, half ? multiply<true> : multiply<false>, rt_grid_of(1, 1, 32, 0), a);
        download(got, d_out, sizeof got);
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 8; j++) {
                float want = 0.5f;
                for (int k = 0; k < 16; k++)
                    want += in[i * 16 + k] * in[256 + k * 8 + j];
                assert_true(got[i * 8 + j] == want);
            }
    }
    rt_free(rt, d_in), rt_free(rt, d_out);
}

// ---- kd_count: the last block to arrive sees what all others have left, at each launch anew

enum { COUNTED = 40 };

__global__ void count_blocks(struct args a) { // halves: a number of each block; out: the last one's sums
    KD_SHARED(uint32_t, before);
    kd_grid_wait();
    if (threadIdx.x < 16)
        a.halves[blockIdx.x * 16 + threadIdx.x] = (uint16_t)(blockIdx.x + threadIdx.x + 1);
    __syncthreads();
    if (threadIdx.x == 0)
        *before = kd_count((uint32_t *)a.ints, COUNTED - 1);
    __syncthreads();
    if (*before != COUNTED - 1 || threadIdx.x >= 16)
        return;
    float sum = 0;
    for (int i = 0; i < COUNTED; i++)
        sum += (float)a.halves[i * 16 + (int)threadIdx.x];
    a.out[threadIdx.x] = sum;
}

TEST(test_count) {
    struct args a = {NULL, device_floats(16), (uint16_t *)rt_alloc(rt, COUNTED * 16 * sizeof(uint16_t)),
                     (int *)rt_alloc(rt, sizeof(int)), 0};
    for (int launch = 0; launch < 3; launch++) {
        float zero[16] = {}, got[16];
        uint16_t none[COUNTED * 16] = {};
        int arrived;
        rt_upload_now(rt, a.out, zero, sizeof zero);
        rt_upload_now(rt, a.halves, none, sizeof none);
        rt_test_order(launch);
        rt_launch(rt, count_blocks, rt_grid_of(COUNTED, 1, 64, 16), a);
        download(got, a.out, sizeof got);
        download(&arrived, a.ints, sizeof arrived);
        for (int i = 0; i < 16; i++)
            assert_true(got[i] == (float)(COUNTED * (COUNTED + 1) / 2 + i * COUNTED));
        assert_int_equal(arrived, 0);
    }
    rt_test_order(0);
    rt_free(rt, a.out), rt_free(rt, a.halves), rt_free(rt, a.ints);
}

// ---- copies to shared memory, ldmatrix: element (row, column) of each 8 x 8 matrix, plain and transposed

__global__ void matrices(struct args a) {
    KD_SHARED(uint16_t, tile); // (32, 8)
    kd_grid_wait();
    int lane = kd_lane();
    for (int i = 0; i < 8 && lane % 2; i += 2)
        kd_copy4(tile + lane * 8 + i, a.halves + lane * 8 + i, lane != 5);
    if (lane % 2 == 0)
        kd_copy16(tile + lane * 8, a.halves + lane * 8, lane != 6);
    kd_copy_commit();
    kd_copy_wait<0>();
    __syncthreads();
    uint32_t r[4];
    kd_ldmatrix4(r, tile + lane * 8);
    for (int m = 0; m < 4; m++)
        a.ints[lane * 4 + m] = (int)r[m];
    kd_ldmatrix4_trans(r, tile + lane * 8);
    for (int m = 0; m < 4; m++)
        a.ints[128 + lane * 4 + m] = (int)r[m];
}

TEST(test_ldmatrix) {
    uint16_t in[256];
    int got[256];
    for (int i = 0; i < 256; i++)
        in[i] = (uint16_t)(1000 + i);
    uint16_t *d_in = (uint16_t *)rt_alloc(rt, sizeof in);
    int *d_out = (int *)rt_alloc(rt, sizeof got);
    rt_upload_now(rt, d_in, in, sizeof in);
    struct args a = {NULL, NULL, d_in, d_out, 0};
    rt_launch(rt, matrices, rt_grid_of(1, 1, 32, 512), a);
    download(got, d_out, sizeof got);
    for (int i = 0; i < 8; i++)
        in[5 * 8 + i] = in[6 * 8 + i] = 0; // rows that were not to be copied
    for (int lane = 0; lane < 32; lane++)
        for (int m = 0; m < 4; m++) {
            int i = lane / 4, j = lane % 4 * 2;
            assert_int_equal(got[lane * 4 + m], in[m * 64 + i * 8 + j] | in[m * 64 + i * 8 + j + 1] << 16);
            assert_int_equal(got[128 + lane * 4 + m],
                             in[m * 64 + j * 8 + i] | in[m * 64 + (j + 1) * 8 + i] << 16);
        }
    rt_free(rt, d_in), rt_free(rt, d_out);
}

// ---- conversions, arithmetic, shuffles

__global__ void arithmetic(struct args a) {
    kd_grid_wait();
    int i = (int)(blockIdx.x * 32 + threadIdx.x);
    float x = a.in[i];
    float *o = a.out + i * 14;
    o[0] = kd_half_to_float(kd_float_to_half(x));
    o[1] = kd_bf16_to_float(kd_float_to_bf16(x));
    uint32_t p = kd_pack_half(x, -x), b = kd_pack_bf16(x, -x);
    o[2] = kd_half_to_float((uint16_t)p) + kd_half_to_float((uint16_t)(p >> 16));
    o[3] = kd_bf16_to_float((uint16_t)b) + kd_bf16_to_float((uint16_t)(b >> 16));
    o[4] = kd_fma(x, x, -1);
    o[5] = kd_exp2(-fabsf(x));
    o[6] = kd_warp_sum((float)threadIdx.x);
    o[7] = kd_warp_max((float)(threadIdx.x ^ 13));
    o[8] = kd_bf16_to_float((uint16_t)kd_fma_bf16x2(0x43004307u, 0x3f803f80u, 0xc300c300u));
    o[9] = kd_rsqrt(fabsf(x) + 1);
    uint32_t small = kd_fma_bf16x2(0x80400003u, 0x7f007f00u, 0); // subnormal
    o[10] = kd_bf16_to_float((uint16_t)small);
    o[11] = kd_bf16_to_float((uint16_t)(small >> 16));
    o[12] = (float)(kd_pick_bytes(0x33221100u, 0x77665544u, 0x12345fa0u) >>
                    8); // a number's upper bits are not looked at
    o[13] = kd_reciprocal(fabsf(x) + 1);
}

TEST(test_arithmetic) {
    enum { N = 4096 };
    static float in[N], got[N * 14];
    uint32_t s = 12345;
    for (int i = 0; i < N; i++) {
        s = s * 1664525u + 1013904223u;
        in[i] = ldexpf((float)(s >> 8) / 16777216.0f - 0.5f, (int)(s % 17) - 6);
    }
    float *d_in = device_floats(N), *d_out = device_floats(N * 14);
    rt_upload_now(rt, d_in, in, sizeof in);
    struct args a = {d_in, d_out, NULL, NULL, 0};
    rt_launch(rt, arithmetic, rt_grid_of(N / 32, 1, 32, 0), a);
    download(got, d_out, sizeof got);
    for (int i = 0; i < N; i++) {
        const float *o = got + i * 14;
        float x = in[i];
        assert_true(o[0] == half_to_float(float_to_half(x)));
        assert_true(o[1] == bf16_to_float(float_to_bf16(x)));
        assert_true(o[2] == 0 && o[3] == 0);
        assert_true(o[4] == fmaf(x, x, -1));
        assert_true(fabsf(o[5] - exp2f(-fabsf(x))) <= 4e-7f * o[5] + 0x1p-125f); // subnormals become 0
        assert_true(o[6] == 31 * 16 && o[7] == 31);
        assert_true(o[8] == 7);
        assert_true(o[12] == 0x557722);
        assert_true(o[10] == 3 * 0x1p-6f && o[11] == -1);
        assert_true(fabsf(o[9] - 1 / sqrtf(fabsf(x) + 1)) <= 1.2e-7f);
        assert_true(fabsf(o[13] - 1 / (fabsf(x) + 1)) <= 1.2e-7f);
    }
    rt_free(rt, d_in), rt_free(rt, d_out);
}

// ---- E4M3: every value, and every float near one

__global__ void eight_bits(struct args a) { // in: floats; out: what becomes of them, and all 256 values
    kd_grid_wait();
    int i = (int)(blockIdx.x * 32 + threadIdx.x);
    a.out[i] = (float)kd_float_to_e4m3(a.in[i]);
    a.out[a.n + 512 + i] = (float)kd_pack_e4m3(a.in[i], -a.in[i]);
    if (i < 256) {
        uint32_t two = kd_e4m3_to_half2((uint32_t)i | (uint32_t)(255 - i) << 8);
        a.out[a.n + 2 * i] = kd_half_to_float((uint16_t)two);
        a.out[a.n + 2 * i + 1] = kd_half_to_float((uint16_t)(two >> 16));
    }
}

static void same(float got, float want) {
    assert_true((isnan(got) && isnan(want)) || (got == want && signbit(got) == signbit(want)));
}

TEST(test_e4m3) {
    enum { N = 4096 };
    float in[N], got[2 * N + 512], *d_in = (float *)rt_alloc(rt, sizeof in),
                                   *d_out = (float *)rt_alloc(rt, sizeof got);
    // the nearest of all finite values, ties to the even one
    int n = 0;
    for (int i = 0; i < 126; i++) { // a value, what is between it and the next, and their neighbours
        float low = e4m3_to_float((uint8_t)i), high = e4m3_to_float((uint8_t)(i + 1)), tie = (low + high) / 2;
        const float near[] = {low, nextafterf(tie, 0), tie, nextafterf(tie, 1000), nextafterf(high, 0)};
        for (int k = 0; k < 5; k++) {
            in[n++] = near[k];
            in[n++] = -near[k];
        }
    }
    const float far[] = {448, 463.9f, 464, 465, 1e30f, INFINITY, -INFINITY, NAN, 1e-30f, -1e-30f};
    for (int k = 0; k < 10; k++)
        in[n++] = far[k];
    while (n < N)
        in[n++] = 0;
    rt_upload_now(rt, d_in, in, sizeof in);
    struct args a = {d_in, d_out, NULL, NULL, N};
    rt_launch(rt, eight_bits, rt_grid_of(N / 32, 1, 32, 0), a);
    download(got, d_out, sizeof got);
    for (int i = 0; i < N; i++) {
        int best = 0;
        float x = in[i];
        for (int v = 0; v <= 126; v++) {
            double d = fabs((double)fabsf(x) - (double)e4m3_to_float((uint8_t)v)),
                   least = fabs((double)fabsf(x) - (double)e4m3_to_float((uint8_t)best));
            best = d < least || (d == least && v % 2 == 0) ? v : best;
        }
        if (fabsf(x) > 448)
            best = 126;
        int want = x != x ? 127 : best | (signbit(x) ? 128 : 0);
        assert_true(((int)got[i] & (x != x ? 127 : 255)) == want);
        assert_true(((int)got[N + 512 + i] & (x != x ? 127 * 257 : 65535)) ==
                    (x != x ? 127 * 257 : want | (want ^ 128) << 8));
        assert_true((float_to_e4m3(x) & (x != x ? 127 : 255)) == want);
    }
    for (int i = 0; i < 256; i++) {
        same(got[N + 2 * i], e4m3_to_float((uint8_t)i));
        same(got[N + 2 * i + 1], e4m3_to_float((uint8_t)(255 - i)));
    }
    rt_free(rt, d_in), rt_free(rt, d_out);
}

#ifdef KD_WGMMA
// ---- wgmma

// Two warpgroups multiply the same A (64, 128) and B (128, N) of small integers, of which A lies in shared
// memory or in registers; the first 64 of k on top of 0.5, the others into sums of their own, in a second
// group.

enum { DEEP = 128, PRODUCT_ROWS = 64 };
enum place { IN_REGISTERS, ALONG_K, ACROSS_K, NARROW }; // of A; NARROW: of both, along k

#ifdef KD_WGMMA_CODE
// Element (row, column) of a matrix whose blocks of 32 columns have rows of 64 bytes.
KD_FN void put_narrow(unsigned char *m, int rows, int r, int c, uint16_t v) {
    *(uint16_t *)(void *)(m + c / 32 * rows * 64 + r * 64 + ((c % 32 / 8 ^ r / 2 % 4) << 4) + c % 8 * 2) = v;
}
// The same of 64 columns and 128 bytes.
KD_FN void put(unsigned char *m, int rows, int r, int c, uint16_t v) {
    *(uint16_t *)(void *)(m + c / 64 * rows * 128 + r * 128 + ((c % 64 / 8 ^ r % 8) << 4) + c % 8 * 2) = v;
}
#endif

template <int N, bool HALF, int A, bool ACROSS_B> __global__ void products(struct args a) {
#ifdef KD_WGMMA_CODE
    KD_SHARED(unsigned char, unaligned);
    kd_grid_wait();
    unsigned char *left = kd_aligned(unaligned), *right = left + PRODUCT_ROWS * DEEP * 2;
    const float *B = a.in + PRODUCT_ROWS * DEEP;
    for (int i = (int)threadIdx.x; i < PRODUCT_ROWS * DEEP && A != IN_REGISTERS; i += 256) {
        int r = i / DEEP, k = i % DEEP;
        uint16_t v = HALF ? kd_float_to_half(a.in[i]) : kd_float_to_bf16(a.in[i]);
        A == NARROW     ? put_narrow(left, PRODUCT_ROWS, r, k, v)
        : A == ACROSS_K ? put(left, DEEP, k, r, v)
                        : put(left, PRODUCT_ROWS, r, k, v);
    }
    for (int i = (int)threadIdx.x; i < DEEP * N; i += 256) {
        int k = i / N, c = i % N;
        uint16_t v = HALF ? kd_float_to_half(B[i]) : kd_float_to_bf16(B[i]);
        A == NARROW ? put_narrow(right, N, c, k, v)
        : ACROSS_B  ? put(right, DEEP, k, c, v)
                    : put(right, N, c, k, v);
    }
    kd_shared_fence();
    __syncthreads();
    int lane = kd_lane(), g = lane / 4, t = lane % 4 * 2, row = kd_warp() % 4 * 16;
    float d[2][N / 8][4];
    uint32_t x[DEEP / 16][4];
    for (int i = 0; i < N / 8; i++)
        for (int e = 0; e < 4; e++)
            d[0][i][e] = 0.5f, d[1][i][e] = 1000; // which is not added to
    for (int k = 0; k < DEEP / 16; k++)
        for (int r = 0; r < 4; r++) {
            const float *p = a.in + (row + g + 8 * (r & 1)) * DEEP + k * 16 + t + 8 * (r >> 1);
            x[k][r] = HALF ? kd_pack_half(p[0], p[1]) : kd_pack_bf16(p[0], p[1]);
        }
    uint64_t da = A == NARROW     ? kd_narrow_along_k(left, 512)
                  : A == ACROSS_K ? kd_across_k(left, 0, 1024)
                                  : kd_along_k(left, 1024),
             db = A == NARROW ? kd_narrow_along_k(right, 512)
                  : ACROSS_B  ? kd_across_k(right, DEEP * 128, 1024)
                              : kd_along_k(right, 1024);
    kd_wgmma_hold(d[0]);
    kd_wgmma_hold(d[1]);
    kd_wgmma_hold(x);
    kd_wgmma_fence();
#pragma unroll
    for (int k = 0; k < DEEP / 16; k++) {
        bool add = k != DEEP / 32;
        unsigned narrow = k % 2 * 32u, wide = k % 4 * 32u;
        uint64_t ka = kd_further(da, A == NARROW     ? k / 2 * PRODUCT_ROWS * 64u + narrow
                                     : A == ACROSS_K ? k * 2048u
                                                     : k / 4 * PRODUCT_ROWS * 128u + wide),
                 kb = kd_further(db, A == NARROW ? k / 2 * N * 64u + narrow
                                     : ACROSS_B  ? k * 2048u
                                                 : k / 4 * N * 128u + wide);
        if constexpr (A == IN_REGISTERS)
            kd_wgmma<N, HALF, ACROSS_B>(d[k / 4], x[k], kb, add);
        else
            kd_wgmma<N, HALF, A == ACROSS_K, ACROSS_B>(d[k / 4], ka, kb, add);
        if (k % 4 == 3)
            kd_wgmma_commit();
    }
    float *out = a.out + (size_t)(kd_warp() / 4) * PRODUCT_ROWS * N * 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (half == 0)
            kd_wgmma_wait<1>();
        else
            kd_wgmma_wait<0>();
        kd_wgmma_hold(d[half]);
        for (int i = 0; i < N / 8; i++)
            for (int e = 0; e < 4; e++)
                out[((row + g + 8 * (e / 2)) * N + i * 8 + t + e % 2) * 2 + half] = d[half][i][e];
    }
    kd_wgmma_hold(x);
#endif
}

static const float *product_in; // A, then room for the widest B
static float *product_out;

template <int N, bool HALF, int A, bool ACROSS_B> static void check_products(const float *in) {
    static float got[2 * PRODUCT_ROWS * 128 * 2];
    struct args a = {product_in, product_out, NULL, NULL, 0};
    for (int order = 0; order < 3; order++) {
        rt_test_order(order);
        rt_launch(rt, products<N, HALF, A, ACROSS_B>,
                  rt_grid_of(1, 1, 256, (PRODUCT_ROWS + N) * DEEP * 2 + 1024), a);
        download(got, product_out, sizeof(float) * 2 * PRODUCT_ROWS * N * 2);
        for (int w = 0; w < 2; w++)
            for (int i = 0; i < PRODUCT_ROWS; i++)
                for (int j = 0; j < N; j++)
                    for (int half = 0; half < 2; half++) {
                        float want = half == 0 ? 0.5f : 0;
                        for (int k = half * 64; k < half * 64 + 64; k++)
                            want += in[i * DEEP + k] * in[PRODUCT_ROWS * DEEP + k * N + j];
                        assert_true(got[((w * PRODUCT_ROWS + i) * N + j) * 2 + half] == want);
                    }
    }
    rt_test_order(0);
}

// Sums of the first 32 columns of B (DEEP, 128), which are the same for every N: gemm_wgmma.cu relies on it.
template <int N, bool HALF> static void same_sums(const float *in, float *first) {
    static float cut[PRODUCT_ROWS * DEEP + DEEP * N], got[2 * PRODUCT_ROWS * N * 2];
    for (int i = 0; i < PRODUCT_ROWS * DEEP + DEEP * N; i++) {
        int b = i - PRODUCT_ROWS * DEEP;
        cut[i] = b < 0 ? in[i] : in[PRODUCT_ROWS * DEEP + b / N * 128 + b % N];
    }
    rt_upload_now(rt, (float *)(uintptr_t)product_in, cut, sizeof cut);
    struct args a = {product_in, product_out, NULL, NULL, 0};
    rt_launch(rt, products<N, HALF, NARROW, false>,
              rt_grid_of(1, 1, 256, (PRODUCT_ROWS + N) * DEEP * 2 + 1024), a);
    download(got, product_out, sizeof got);
    for (int i = 0; i < PRODUCT_ROWS; i++)
        for (int j = 0; j < 32; j++)
            for (int half = 0; half < 2; half++) {
                float *at = &first[(i * 32 + j) * 2 + half], is = got[(i * N + j) * 2 + half];
                if (N == 32)
                    *at = is;
                else if (memcmp(at, &is, sizeof is) != 0)
                    fail_msg("a sum of wgmma is %a where N is 32, %a where it is %d", (double)*at, (double)is,
                             N);
            }
}

template <bool HALF> static void check_sums() {
    static float in[PRODUCT_ROWS * DEEP + DEEP * 128], first[PRODUCT_ROWS * 32 * 2];
    uint32_t u = 1;
    for (float &x : in) { // far apart, so that the order of sums shows
        u = u * 1664525u + 1013904223u;
        x = ldexpf((float)((int)(u >> 16 & 2047) - 1024), (int)(u >> 28) - 8);
    }
    same_sums<32, HALF>(in, first);
    same_sums<64, HALF>(in, first);
    same_sums<128, HALF>(in, first);
}

template <int N, bool HALF> static void check_width(const float *in) {
    check_products<N, HALF, NARROW, false>(in);
    check_products<N, HALF, IN_REGISTERS, false>(in);
    check_products<N, HALF, IN_REGISTERS, true>(in);
    check_products<N, HALF, ALONG_K, false>(in);
    check_products<N, HALF, ALONG_K, true>(in);
    check_products<N, HALF, ACROSS_K, false>(in);
    check_products<N, HALF, ACROSS_K, true>(in);
}

TEST(test_wgmma) {
    static float in[PRODUCT_ROWS * DEEP + DEEP * 128];
    struct rt_info info;
    rt_describe(rt, &info);
    if (info.major != 9 || info.minor != 0)
        return; // built for sm_90a, running elsewhere
    for (int i = 0; i < PRODUCT_ROWS * DEEP + DEEP * 128; i++)
        in[i] = (float)((i * 37 + i / 7 + i / 128 * 5) % 17 - 8);
    float *d_in = (float *)rt_alloc(rt, sizeof in);
    rt_upload_now(rt, d_in, in, sizeof in);
    product_in = d_in;
    product_out = device_floats(2 * PRODUCT_ROWS * 128 * 2);
    check_products<32, false, NARROW, false>(in);
    check_products<32, true, NARROW, false>(in);
    check_width<64, false>(in);
    check_width<64, true>(in);
    check_width<128, false>(in);
    check_width<128, true>(in);
    check_sums<false>();
    check_sums<true>();
    rt_free(rt, d_in), rt_free(rt, product_out);
}
#endif

#ifndef __CUDACC__
// ---- what the emulator must refuse

__global__ void divergent_barrier(struct args) {
    kd_grid_wait();
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
}
__global__ void missing_barrier(struct args) {
    kd_grid_wait();
    if (threadIdx.x == 3)
        __syncwarp();
}
__global__ void exited_lane(struct args a) {
    kd_grid_wait();
    if (threadIdx.x == 7)
        return;
    a.out[0] = kd_warp_sum(1);
}
__global__ void different_collectives(struct args a) {
    kd_grid_wait();
    if (threadIdx.x == 7)
        __syncwarp();
    else
        a.out[0] = __shfl_sync(ALL_LANES, 1.0f, 0);
}
__global__ void outside_mask(struct args a) {
    kd_grid_wait();
    if (threadIdx.x < 16)
        a.out[0] = __shfl_sync(0xffffu, 1.0f, 20);
}
__global__ void copies_left(struct args a) {
    KD_SHARED(float, s);
    kd_grid_wait();
    kd_copy16(s + threadIdx.x * 4, a.in, true);
    kd_copy_commit();
}
__global__ void misaligned_copy(struct args a) {
    KD_SHARED(float, s);
    kd_grid_wait();
    kd_copy16(s + threadIdx.x * 4 + 1, a.in, true);
    kd_copy_commit();
    kd_copy_wait<0>();
}
__global__ void past_shared(struct args) {
    KD_SHARED(float, s);
    kd_grid_wait();
    s[threadIdx.x + 32] = 1;
}
__global__ void no_wait(struct args) {}

// Misuse of wgmma, each in an otherwise sound kernel.
enum misuse {
    NONE,
    MEMORY_NOT_FENCED,
    COPY_NOT_FENCED,
    COPY_FENCED_BY_ANOTHER,
    MEMORY_WRITTEN_BEHIND_FENCE,
    MEMORY_WRITTEN_IN_FLIGHT,
    COPY_IN_FLIGHT,
    NOT_FENCED,
    NOT_FENCED_AGAIN,
    A_WRITTEN_BEHIND_FENCE,
    A_WRITTEN_IN_FLIGHT,
    SUMS_WRITTEN_IN_FLIGHT,
    NOT_COMMITTED,
    NOT_WAITED_FOR,
    WAITED_TOO_LITTLE,
    WARP_DOES_ANOTHER,
    LANE_DOES_ANOTHER,
    RESERVED_BITS,
    BASE_OFFSET,
    ODD_START,
    ODD_PATTERN,
    ODD_STRIDE,
    NO_STRIDE,
    OUTSIDE
};

template <int M> __global__ void misuse(struct args a) {
    KD_SHARED(unsigned char, unaligned);
    kd_grid_wait();
    unsigned char *m = kd_aligned(unaligned);
    int thread = (int)threadIdx.x;
    for (int i = thread; i < 64 * 128 / 16; i += (int)blockDim.x)
        ((uint4 *)(void *)m)[i] = uint4{0, 0, 0, 0};
    if (M != MEMORY_NOT_FENCED)
        kd_shared_fence();
    __syncthreads();
    if (M == COPY_NOT_FENCED || M == COPY_FENCED_BY_ANOTHER) {
        if (thread == 5)
            kd_copy16(m, a.in, true);
        kd_copy_commit();
        kd_copy_wait<0>();
        __syncthreads();
        if (M == COPY_FENCED_BY_ANOTHER && thread != 5)
            kd_shared_fence();
        __syncthreads();
    }
    if (M == MEMORY_WRITTEN_BEHIND_FENCE)
        m[thread] = 1;
    __syncthreads();
    float d[8][4] = {};
    uint32_t x[4] = {};
    uint64_t b = kd_along_k(m + (M == ODD_START     ? 16
                                 : M == ODD_PATTERN ? 128
                                                    : 0),
                            M == ODD_STRIDE  ? 512
                            : M == NO_STRIDE ? 0
                                             : 1024);
    b |= M == RESERVED_BITS ? (uint64_t)1 << 14 : M == BASE_OFFSET ? (uint64_t)1 << 49 : 0;
    if (M == OUTSIDE)
        b = kd_further(b, 64 * 128);
    if ((M == WARP_DOES_ANOTHER && kd_warp() == 2) || (M == LANE_DOES_ANOTHER && thread == 9))
        b = kd_further(b, 32);
    if (M != NOT_FENCED)
        kd_wgmma_fence();
    kd_wgmma<64, false, false>(d, x, b, true);
    if (M != NOT_COMMITTED)
        kd_wgmma_commit();
    if (M == A_WRITTEN_IN_FLIGHT)
        x[0] = 1;
    if (M == SUMS_WRITTEN_IN_FLIGHT)
        d[3][1] = 1;
    if (M == MEMORY_WRITTEN_IN_FLIGHT)
        m[thread] = 1;
    if (M == COPY_IN_FLIGHT)
        kd_copy16(m + thread * 16, a.in, true);
    kd_copy_commit();
    if (M != NOT_WAITED_FOR && M != WAITED_TOO_LITTLE)
        kd_wgmma_wait<0>();
    if (M == WAITED_TOO_LITTLE)
        kd_wgmma_wait<1>();
    kd_copy_wait<0>();
    x[1] = 0; // free again
    if (M != NOT_FENCED_AGAIN)
        kd_wgmma_fence();
    if (M == A_WRITTEN_BEHIND_FENCE)
        x[1] = 1;
    if (M != NOT_WAITED_FOR && M != WAITED_TOO_LITTLE && M != NOT_COMMITTED) {
        kd_wgmma<64, false, false>(d, x, b, true);
        kd_wgmma_commit();
        kd_wgmma_wait<0>();
    }
    if (thread < 32)
        a.out[thread] = d[0][0];
}

static bool aborts(void (*kernel)(struct args), size_t shared, int threads = 64) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        freopen("/dev/null", "w", stderr);
        struct args a = {device_floats(512), device_floats(512), NULL, NULL, 0};
        rt_launch(rt, kernel, rt_grid_of(1, 1, threads, shared), a);
        rt_mark(rt, 0);
        rt_wait(rt, 0, NULL);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

TEST(test_refusals) {
    for (int order = 0; order < 4; order++) {
        rt_test_order(order);
        assert_true(aborts(divergent_barrier, 0));
        assert_true(aborts(missing_barrier, 0));
        assert_true(aborts(exited_lane, 0));
        assert_true(aborts(different_collectives, 0));
        assert_true(aborts(outside_mask, 0));
        assert_true(aborts(copies_left, 1024));
        assert_true(aborts(misaligned_copy, 2048));
        assert_true(aborts(past_shared, 128));
        assert_true(aborts(no_wait, 0));
        assert_false(aborts(multiply<false>, 0)); // and a sound kernel runs
    }
    rt_test_order(0);
}

template <int M> static void check_misuse() {
    for (int order = 0; order < 3; order++) {
        rt_test_order(order);
        if (aborts(misuse<M>, 64 * 128 + 1024, 128) != (M != NONE))
            fail_msg("misuse %d of products %s (schedule %d)", M,
                     M ? "is not seen" : "is seen in a sound kernel", order);
    }
    rt_test_order(0);
}

template <int... M> static void check_all(std::integer_sequence<int, M...>) { (check_misuse<M>(), ...); }

TEST(test_misuse) {
    check_all(std::make_integer_sequence<int, OUTSIDE + 1>());
    assert_true(aborts(misuse<NONE>, 64 * 128 + 1024, 64)); // half a warpgroup
}

// Sums of a wgmma are NaN before its group was waited for.
__global__ void early(struct args a) {
    KD_SHARED(unsigned char, unaligned);
    kd_grid_wait();
    unsigned char *m = kd_aligned(unaligned);
    for (int i = (int)threadIdx.x; i < 64 * 128 / 4; i += 128)
        ((uint32_t *)(void *)m)[i] = kd_pack_bf16(1, 1);
    kd_shared_fence();
    __syncthreads();
    float d[8][4] = {};
    uint32_t x[4], one = kd_pack_bf16(1, 1);
    x[0] = x[1] = x[2] = x[3] = one;
    kd_wgmma_fence();
    kd_wgmma<64, false, false>(d, x, kd_along_k(m, 1024), true);
    kd_wgmma_commit();
    a.out[threadIdx.x] = d[7][3];
    kd_wgmma_wait<0>();
    a.out[128 + threadIdx.x] = d[7][3];
}

TEST(test_early) {
    float got[256], *d_out = device_floats(256);
    struct args a = {NULL, d_out, NULL, NULL, 0};
    rt_launch(rt, early, rt_grid_of(1, 1, 128, 64 * 128 + 1024), a);
    download(got, d_out, sizeof got);
    for (int i = 0; i < 128; i++)
        assert_true(isnan(got[i]) && got[128 + i] == 16);
    rt_free(rt, d_out);
}

// Shared memory is no number before it is written; a copy is not there before its group was waited for.
__global__ void poison(struct args a) {
    KD_SHARED(float, s);
    kd_grid_wait();
    int i = (int)threadIdx.x;
    a.out[i] = s[i];
    __syncthreads();
    s[128 + i * 4] = 1; // old contents, which must not pass for the copy
    kd_copy16(s + i * 4, a.in, true);
    kd_copy_commit();
    kd_copy16(s + 128 + i * 4, a.in, true);
    kd_copy_commit();
    kd_copy_wait<1>();
    a.out[32 + i] = s[i * 4] + s[128 + i * 4];
    kd_copy_wait<0>();
    a.out[64 + i] = s[i * 4] + s[128 + i * 4];
}

TEST(test_poison) {
    float in[4] = {3, 3, 3, 3}, got[96], *d_in = device_floats(4), *d_out = device_floats(96);
    rt_upload_now(rt, d_in, in, sizeof in);
    struct args a = {d_in, d_out, NULL, NULL, 0};
    rt_launch(rt, poison, rt_grid_of(1, 1, 32, 1024), a);
    download(got, d_out, sizeof got);
    for (int i = 0; i < 32; i++)
        assert_true(isnan(got[i]) && isnan(got[32 + i]) && got[64 + i] == 6);
    rt_free(rt, d_in), rt_free(rt, d_out);
}

// A race between warps shows in one of the first two schedules.
__global__ void race(struct args a) {
    KD_SHARED(float, s);
    kd_grid_wait();
    s[threadIdx.x] = (float)threadIdx.x;
    a.out[threadIdx.x] = s[63 - threadIdx.x]; // no barrier
}

TEST(test_race) {
    float got[64], *d_out = device_floats(64);
    int wrong = 0;
    for (int order = 0; order < 2; order++) {
        rt_test_order(order);
        struct args a = {NULL, d_out, NULL, NULL, 0};
        rt_launch(rt, race, rt_grid_of(1, 1, 64, 256), a);
        download(got, d_out, sizeof got);
        for (int i = 0; i < 64; i++)
            wrong += got[i] != (float)(63 - i);
    }
    assert_true(wrong > 0);
    rt_test_order(0);
    rt_free(rt, d_out);
}

// A graph runs what was captured over what memory holds then.
__global__ void add_one(struct args a) {
    kd_grid_wait();
    a.out[threadIdx.x] += 1;
}
#else
__global__ void add_one(struct args a) {
    kd_grid_wait();
    a.out[threadIdx.x] += 1;
}
#endif

TEST(test_graph) {
    float got[32], *d_out = device_floats(32);
    struct args a = {NULL, d_out, NULL, NULL, 0};
    rt_launch(rt, add_one, rt_grid_of(1, 1, 32, 0), a); // loads it
    rt_capture_begin(rt);
    rt_launch(rt, add_one, rt_grid_of(1, 1, 32, 0), a);
    rt_launch(rt, add_one, rt_grid_of(1, 1, 32, 0), a);
    struct rt_graph *g = rt_capture_end(rt);
    assert_non_null(g);
    download(got, d_out, sizeof got);
    assert_true(got[3] == 1);
    for (int i = 0; i < 3; i++)
        rt_graph_launch(rt, g);
    download(got, d_out, sizeof got);
    assert_true(got[3] == 7 && got[31] == 7);
    rt_graph_free(rt, g);
    rt_free(rt, d_out);
}

// A launch that a device refuses fails with a message and does not run. Each on an rt of its own, as errors are kept.
TEST(test_refused_launches) {
    struct rt_info info;
    rt_describe(rt, &info);
    const size_t more = info.shared_max + 128;
    const struct rt_grid refused[] = {rt_grid_of(1, 65536, 32, 0),
                                      rt_grid_of(0, 1, 32, 0),
                                      rt_grid_of(1, 1, 1056, 0),
                                      rt_grid_of(1, 1, 32, more),
                                      {dim3(1, 1, 65536), 32, 0}};
    for (const struct rt_grid &g : refused) {
        struct err err = {};
        struct rt *own = rt_open(0, &err);
        assert_non_null(own);
        float *out = (float *)rt_alloc(own, 32 * sizeof *out);
        struct args a = {NULL, out, NULL, NULL, 0};
        rt_launch(own, add_one, g, a);
        rt_mark(own, 0);
        assert_int_equal(rt_wait(own, 0, &err), STATUS_DEVICE);
        if (!strstr(err.msg, "launching a kernel: invalid"))
            fail_msg("%s", err.msg);
        rt_free(own, out);
        rt_close(own);
    }
}

#ifdef main // it is one of several programs in one
extern "C" int main(void);
#endif
int main(void) {
    struct err err = {};
    if (!(rt = rt_open(0, &err))) {
        printf("no device: %s\n", err.msg);
        return 1;
    }
    int failed = run_all_tests(NULL, NULL);
    rt_close(rt);
    return failed;
}
