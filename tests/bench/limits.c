// Reads: a buffer much larger than the caches, on huge pages, touched first by the thread that reads it, with
// the widest loads there are. How many streams a thread should read at once, and whether it should prefetch,
// depends on the machine: all combinations run, the best counts. Arithmetic: independent accumulators in
// registers.
//
// Measured on two shared cores of an AMD EPYC (bench_kernels): docs/performance.
#include "limits.h"

#include "amx_tiles.h"
#include "clock.h"
#include "kernels.h"
#include "memory.h"
#include "pool.h"
#include "tensor.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { LINE = 64, ACCUMULATORS = 12, MAX_STREAMS = 8, PREFETCH_AHEAD = 2048, ROUNDS = 4, TILE_STEPS = 16 };
static const size_t page = (size_t)2 << 20;
static long iterations = 2000000; // of ACCUMULATORS instructions: about 5 ms

// For tests, which want numbers of the right form alone.
static bool brief(void) { return getenv("BENCH_LIMITS_BRIEF") != NULL; }

// ---- reading

// Reads `bytes` (a multiple of streams * 4 lines) as that many streams side by side.
typedef void read_fn(const char *data, size_t bytes, int streams, bool prefetch);

static void read_words(const char *data, size_t bytes, int streams, bool prefetch) {
    uint64_t sum[8] = {0}, word;
    size_t part = bytes / (size_t)streams;
    (void)prefetch;
    for (size_t at = 0; at < part; at += LINE)
        for (int s = 0; s < streams; s++)
            for (size_t i = 0; i < 8; i++) {
                memcpy(&word, data + (size_t)s * part + at + i * 8, sizeof word);
                sum[i] ^= word;
            }
    for (int i = 0; i < 8; i++)
        __asm__ volatile("" : : "r"(sum[i]));
}

#if defined(__x86_64__)
#define READ(name, isa, vector, zero, load, xor, width)                                                      \
    __attribute__((target(isa))) static void name(const char *data, size_t bytes, int streams,               \
                                                  bool prefetch) {                                           \
        vector sum[4];                                                                                       \
        for (int i = 0; i < 4; i++)                                                                          \
            sum[i] = zero();                                                                                 \
        size_t part = bytes / (size_t)streams;                                                               \
        for (size_t at = 0; at < part; at += 4 * LINE)                                                       \
            for (int s = 0; s < streams; s++) {                                                              \
                const char *p = data + (size_t)s * part + at;                                                \
                if (prefetch)                                                                                \
                    for (int i = 0; i < 4; i++)                                                              \
                        _mm_prefetch(p + PREFETCH_AHEAD + i * LINE, _MM_HINT_T0);                            \
                for (int i = 0; i < 4 * LINE / width; i++)                                                   \
                    sum[i % 4] = xor(sum[i % 4], load((const void *)(p + i * width)));                       \
            }                                                                                                \
        for (int i = 0; i < 4; i++)                                                                          \
            __asm__ volatile("" : : "v"(sum[i]));                                                            \
    }

READ(read_avx512, "avx512f", __m512i, _mm512_setzero_si512, _mm512_load_si512, _mm512_xor_si512, 64)
READ(read_avx2, "avx2", __m256i, _mm256_setzero_si256, _mm256_load_si256, _mm256_xor_si256, 32)
#endif

struct read_task {
    read_fn *read;
    char *data;
    size_t share; // bytes of one thread
    int streams;
    bool prefetch;
};

static void touch_share(void *ctx, int thread, int num_threads) {
    struct read_task *r = ctx;
    (void)num_threads;
    memset(r->data + r->share * (size_t)thread, thread + 1, r->share);
}

static void read_share(void *ctx, int thread, int num_threads) {
    struct read_task *r = ctx;
    (void)num_threads;
    r->read(r->data + r->share * (size_t)thread, r->share, r->streams, r->prefetch);
}

struct limits_meter {
    struct pool *pool;
    struct region region;
    struct read_task read;
    struct limits best;
};

static void alloc_read(struct limits_meter *m) {
    size_t bytes = (size_t)(brief() ? 16 : 1024) << 20, n = (size_t)pool_size(m->pool), unit = page * n;
    while (bytes > memory_available() / 2 && bytes > ((size_t)64 << 20))
        bytes /= 2;
    bytes = (bytes + unit - 1) / unit * unit;
    m->region = region_alloc(bytes + page); // prefetches run past the end
    if (!m->region.data) {
        fprintf(stderr, "no memory for the read test\n");
        exit(1);
    }
    m->read = (struct read_task){.read = read_words, .data = m->region.data, .share = bytes / n};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        m->read.read = read_avx512;
    else if (__builtin_cpu_supports("avx2"))
        m->read.read = read_avx2;
#endif
    m->best.read_bytes = bytes;
    pool_run(m->pool, touch_share, &m->read, true);
}

static double measure_read(struct limits_meter *m) {
    struct read_task *r = &m->read;
    double best = 0;
    for (r->streams = 1; r->streams <= MAX_STREAMS; r->streams *= 2)
        for (int prefetch = 0; prefetch < 2; prefetch++) {
            r->prefetch = prefetch;
            double t = clock_now_s();
            pool_run(m->pool, read_share, r, true);
            best = fmax(best, (double)m->best.read_bytes / (clock_now_s() - t));
        }
    return best;
}

// ---- arithmetic

#if defined(__x86_64__)
// The operands are opaque to the compiler, and so are the sums before and after the loop: nothing can be left
// out, and no two sums are known to be equal.
#define LOOP(name, isa, vector, zero, operand, step)                                                         \
    __attribute__((target(isa))) static void name(void *ctx, int thread, int num_threads) {                  \
        (void)ctx, (void)thread, (void)num_threads;                                                          \
        vector acc[ACCUMULATORS];                                                                            \
        operand a, b;                                                                                        \
        memset(&a, 0, sizeof a);                                                                             \
        memset(&b, 0, sizeof b);                                                                             \
        _Pragma("GCC unroll 16") for (int i = 0; i < ACCUMULATORS; i++) {                                    \
            acc[i] = zero();                                                                                 \
            __asm__ volatile("" : "+v"(acc[i]));                                                             \
        }                                                                                                    \
        for (long n = 0; n < iterations; n++) {                                                              \
            __asm__ volatile("" : "+v"(a), "+v"(b));                                                         \
            _Pragma("GCC unroll 16") for (int i = 0; i < ACCUMULATORS; i++) acc[i] = step;                   \
        }                                                                                                    \
        _Pragma("GCC unroll 16") for (int i = 0; i < ACCUMULATORS;                                           \
                                      i++) __asm__ volatile("" : : "v"(acc[i]));                             \
    }

LOOP(loop_vpdpbusd, "avx512f,avx512vnni", __m512i, _mm512_setzero_si512, __m512i,
     _mm512_dpbusd_epi32(acc[i], a, b))
LOOP(loop_vdpbf16ps, "avx512f,avx512bf16", __m512, _mm512_setzero_ps, __m512bh,
     _mm512_dpbf16_ps(acc[i], a, b))
LOOP(loop_vfmadd_zmm, "avx512f", __m512, _mm512_setzero_ps, __m512, _mm512_fmadd_ps(a, b, acc[i]))
LOOP(loop_vfmadd_ymm, "avx2,fma", __m256, _mm256_setzero_ps, __m256, _mm256_fmadd_ps(a, b, acc[i]))
LOOP(loop_vpmaddubsw, "avx2", __m256i, _mm256_setzero_si256, __m256i,
     _mm256_add_epi32(acc[i], _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), b)))

// As many products of whole tiles as the other loops have steps
static void loop_tdpbf16ps(void *ctx, int thread, int num_threads) {
    static const struct tile_config whole = {1, 0, {0}, {64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16}};
    (void)ctx, (void)thread, (void)num_threads;
    struct tile_config before; // what the thread's kernels take for set
    TILE_CONFIGURED(&before);
    TILE_CONFIGURE(&whole);
    for (long n = 0; n < iterations * ACCUMULATORS / TILE_STEPS; n += 4) {
        TILE_DOT_BF16(0, 4, 5);
        TILE_DOT_BF16(1, 4, 5);
        TILE_DOT_BF16(2, 4, 5);
        TILE_DOT_BF16(3, 4, 5);
    }
    TILE_CONFIGURE(&before);
}
#endif

#if defined(__x86_64__)
// macs: of one accumulator's step.
static double measure_loop(struct pool *pool, pool_fn *loop, int macs) {
    double best = 0, ops = 2.0 * macs * ACCUMULATORS * (double)iterations * pool_size(pool);
    for (int i = 0; i < ROUNDS; i++) {
        double t = clock_now_s();
        pool_run(pool, loop, NULL, true);
        best = fmax(best, ops / (clock_now_s() - t));
    }
    return best;
}

static void measure_arithmetic(struct pool *pool, struct limits *out) {
    bool avx512 = __builtin_cpu_supports("avx512f"), avx2 = __builtin_cpu_supports("avx2");
    if (avx512 && __builtin_cpu_supports("avx512vnni")) {
        out->int8 = measure_loop(pool, loop_vpdpbusd, 64);
        out->int8_with = "vpdpbusd zmm";
    } else if (avx2) {
        out->int8 = measure_loop(pool, loop_vpmaddubsw, 32);
        out->int8_with = "vpmaddubsw ymm";
    }
    if (avx512 && __builtin_cpu_supports("avx512bf16")) {
        out->bf16 = measure_loop(pool, loop_vdpbf16ps, 32);
        out->bf16_with = "vdpbf16ps zmm";
    }
    if (cpu_kernels_find("amx")) { // asks the kernel for leave, too
        out->bf16 = measure_loop(pool, loop_tdpbf16ps, 16 * 16 * 32 / TILE_STEPS);
        out->bf16_with = "tdpbf16ps";
    }
    if (avx512) {
        out->f32 = measure_loop(pool, loop_vfmadd_zmm, 16);
        out->f32_with = "vfmadd zmm";
        if (out->bf16 < out->f32) { // bf16 by fma (kernels/cpu/avx512fma.c)
            out->bf16 = out->f32;
            out->bf16_with = out->f32_with;
        }
    } else if (avx2 && __builtin_cpu_supports("fma")) {
        out->f32 = measure_loop(pool, loop_vfmadd_ymm, 8);
        out->f32_with = "vfmadd ymm";
    }
}
#else
static void measure_arithmetic(struct pool *pool, struct limits *out) { (void)pool, (void)out; }
#endif

struct limits_meter *limits_open(int threads) {
    struct limits_meter *m = calloc(1, sizeof *m);
    if (!m || !(m->pool = pool_open(threads))) {
        fprintf(stderr, "no threads\n");
        exit(1);
    }
    m->best = (struct limits){.int8_with = "none", .bf16_with = "none", .f32_with = "none"};
    m->best.threads = pool_size(m->pool);
    if (brief())
        iterations = 20000;
    alloc_read(m);
    return m;
}

struct limits limits_now(struct limits_meter *m) {
    struct limits now = m->best;
    now.read = measure_read(m);
    measure_arithmetic(m->pool, &now);
    m->best = limits_larger(&now, &m->best);
    return now;
}

const struct limits *limits_best(const struct limits_meter *m) { return &m->best; }

struct limits limits_larger(const struct limits *a, const struct limits *b) {
    struct limits larger = *a;
    larger.read = fmax(a->read, b->read);
    larger.int8 = fmax(a->int8, b->int8);
    larger.bf16 = fmax(a->bf16, b->bf16);
    larger.f32 = fmax(a->f32, b->f32);
    return larger;
}

void limits_close(struct limits_meter *m) {
    pool_close(m->pool);
    region_free(&m->region);
    free(m);
}

void limits_measure(int threads, int passes, struct limits *out) {
    struct limits_meter *m = limits_open(threads);
    for (int i = 0; i < passes; i++)
        limits_now(m);
    *out = m->best;
    limits_close(m);
}

void limits_print_json(const struct limits *l) {
    printf("{\"threads\":%d,\"read_gb_s\":%.3f,\"read_buffer_bytes\":%zu,\"int8_gop_s\":%.1f,\"int8_with\":"
           "\"%s\","
           "\"bf16_gop_s\":%.1f,\"bf16_with\":\"%s\",\"f32_gop_s\":%.1f,\"f32_with\":\"%s\"}",
           l->threads, l->read * 1e-9, l->read_bytes, l->int8 * 1e-9, l->int8_with, l->bf16 * 1e-9,
           l->bf16_with, l->f32 * 1e-9, l->f32_with);
}

double limits_arithmetic(const struct limits *l, const char *dtype, const char **with) {
    bool quantised = false, bf16 = strcmp(dtype, "BF16") == 0 || strcmp(dtype, "FP8") == 0;
    for (int t = 0; t < DTYPE_COUNT; t++)
        quantised |= strcmp(dtype, dtype_name((enum dtype)t)) == 0 && dtype_block((enum dtype)t) > 1;
    if (quantised && !bf16 && l->int8 > 0) {
        *with = l->int8_with;
        return l->int8;
    }
    if (bf16 && l->bf16 > 0) {
        *with = l->bf16_with;
        return l->bf16;
    }
    *with = l->f32_with;
    return l->f32;
}

uint32_t bench_random(void) {
    static uint64_t x = 88172645463325252u;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return (uint32_t)(x >> 20);
}
