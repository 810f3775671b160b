// GEMM of bf16 by f32 fma, for CPUs whose vdpbf16ps takes longer than the two fma of rule 2 that it computes:
// Intel's. Compiled as avx512.c is, whose table has everything else; the bits are the same.
#include "vec_avx512.h"

#define CPU_CONSTANT_TILES 1
#include "body_inline.h"
#include "quants.h"

#include "body_gemm.h"

enum { WIDE_PAIRS = 128 }; // of activations, as f32 in the L1 cache

// The activations of a tile's tokens, each half of a pair by itself.
struct wide {
    _Alignas(64) float even[REGISTER_TOKENS][WIDE_PAIRS], odd[REGISTER_TOKENS][WIDE_PAIRS];
};

INLINE __m512 upper_halves(__m512i pairs) {
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000u)));
}
INLINE __m512 lower_halves(__m512i pairs) { return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)); }

INLINE void widen(struct wide *x, const struct tile_args *a, int pair, int count, const int n) {
    for (int t = 0; t < n; t++)
        for (int i = 0; i < count; i += 16) {
            const char *from = (const char *)token(a, t) + 4 * (size_t)(pair + i);
            __m512i pairs = _mm512_maskz_loadu_epi32((__mmask16)lanes_below(count - i), from);
            _mm512_store_ps(x->even[t] + i, lower_halves(pairs));
            _mm512_store_ps(x->odd[t] + i, upper_halves(pairs));
        }
}

INLINE void tile_bf16_fma(struct sums *s, const struct tile_args *a, const int nv, const int n) {
    struct wide x;
    sums_start(s, nv, n);
    for (int b = a->b0; b < a->b1; b += WIDE_PAIRS) {
        int count = a->b1 - b < WIDE_PAIRS ? a->b1 - b : WIDE_PAIRS;
        widen(&x, a, b, count, n);
        for (int i = 0; i < count; i++) {
            struct rows odd[MAX_VECTORS], even[MAX_VECTORS];
            prefetch_weights(a, b + i, 0, 1, nv, n, false, true);
            UNROLL for (int v = 0; v < nv; v++) {
                __m512i pairs = _mm512_loadu_si512(a->w[v] + (size_t)(b + i) * LANES * 4);
                odd[v].v = upper_halves(pairs);
                even[v].v = lower_halves(pairs);
            }
            UNROLL for (int t = 0; t < n; t++) UNROLL for (int v = 0; v < nv; v++) {
                s->acc[v][t] = rows_fma1(s->acc[v][t], odd[v], x.odd[t][i]);
                s->acc[v][t] = rows_fma1(s->acc[v][t], even[v], x.even[t][i]);
            }
        }
    }
}

static void gemm_bf16_fma(const struct gemm_tile *job) {
    if (job->num_tokens <= FEW_TOKENS) // bound by memory
        cpu_kernels_avx512.gemm[DTYPE_BF16](job);
    else
        any_tile(tile_bf16_fma, job, TILE_VECTORS(1));
}

void cpu_kernels_fill_avx512fma(struct cpu_kernels *k) {
    k->name = "avx512-fma";
    k->gemm[DTYPE_BF16] = gemm_bf16_fma;
}
