// The tables of inner loops: those of vectors equal plain C bit for bit, on ordinary and on hostile numbers,
// and plain C equals double arithmetic within what f32 allows. Over 600 lines: a case for each loop.
#include "harness.h"

#include "fixture.h"
#include "float_env.h"
#include "kernels.h"
#include "pack.h"
#include "plain.h"
#include "quants.h"
#include "variants.h"

enum { NUM_VARIANTS = sizeof variants / sizeof *variants };
// Products have tables more, the last ones not of BF16 (test_amx).
static const char *const product_variants[] = {"avx512-fma", "amx", "amx-emulated"};
enum {
    NUM_PRODUCTS = NUM_VARIANTS + sizeof product_variants / sizeof *product_variants,
    FIRST_AMX = NUM_VARIANTS + 1,
    ATTN_D = 80
};
static const char *product_variant(int v) {
    return v < NUM_VARIANTS ? variants[v] : product_variants[v - NUM_VARIANTS];
}
static const enum dtype types[] = {DTYPE_F32,   DTYPE_F16,  DTYPE_BF16, DTYPE_Q8_0,  DTYPE_Q4_0, DTYPE_Q4_K,
                                   DTYPE_Q5_K,  DTYPE_Q6_K, DTYPE_Q4_1, DTYPE_Q5_0,  DTYPE_Q5_1, DTYPE_IQ4_NL,
                                   DTYPE_MXFP4, DTYPE_Q3_K, DTYPE_Q2_K, DTYPE_IQ4_XS};
enum { NUM_TYPES = sizeof types / sizeof *types };

// Any bit pattern, among them NaN, infinities and subnormals. NaNs are made one NaN: which of two operands'
// NaN comes out of an instruction is not defined by C.
static float any_float(void) {
    uint32_t u = random_u32() ^ random_u32() << 13;
    if (random_u32() % 16 == 0)
        u &= 0x807fffffu; // subnormal
    if (random_u32() % 64 == 0)
        u |= 0x7f800000u;
    float f = bits_float(u);
    return isnan(f) ? NAN : f;
}

static const struct cpu_kernels *variant(int v) {
    const struct cpu_kernels *k = cpu_kernels_find(variants[v]);
    if (!k)
        printf("  not here: %s\n", variants[v]);
    return k;
}

TEST(test_halves) {
    for (uint32_t h = 0; h < 65536; h++) {
        float f = half_to_float((uint16_t)h);
        bool nan = (h & 0x7c00u) == 0x7c00u && (h & 0x3ffu);
        assert_int_equal(float_to_half(f), nan ? h | 0x200u : h);
        if (!nan && (h & 0x7c00u) != 0x7c00u) { // its value, and the midpoint to the next rounds to even
            int e = (int)(h >> 10 & 31);
            double value = ldexp(e ? 1024 + (int)(h & 0x3ff) : (int)(h & 0x3ff), (e ? e : 1) - 25);
            assert_true((double)fabsf(f) == value);
            double next = value + ldexp(1, (e ? e : 1) - 25);
            float middle = (float)((value + next) / 2);
            uint32_t even = (h & 0x7fffu) % 2 == 0 ? (h & 0x7fffu) : (h & 0x7fffu) + 1;
            assert_int_equal(float_to_half(middle), even);
            assert_int_equal(float_to_half(nextafterf(middle, 0)), h & 0x7fffu);
            assert_int_equal(float_to_half(nextafterf(middle, INFINITY)), (h & 0x7fffu) + 1);
        }
        float b = bf16_to_float((uint16_t)h);
        if (!isnan(b))
            assert_int_equal(float_to_bf16(b), h);
    }
    assert_int_equal(float_to_bf16(bits_float(0x3f808000u)), 0x3f80); // ties to even
    assert_int_equal(float_to_bf16(bits_float(0x3f818000u)), 0x3f82);
    assert_true(isnan(bf16_to_float(float_to_bf16(bits_float(0x7fffffffu)))));
}

// Bytes of one packed block of 16 rows
static size_t packed_bytes(enum dtype t) {
    switch (t) {
    case DTYPE_Q8_0: return 544;
    case DTYPE_Q4_0:
    case DTYPE_IQ4_NL: return 288;
    case DTYPE_Q4_1: return 320;
    case DTYPE_Q5_0: return 352;
    case DTYPE_Q5_1: return 384;
    case DTYPE_MXFP4: return 272;
    case DTYPE_Q2_K: return 1344;
    case DTYPE_Q3_K: return 1824;
    case DTYPE_Q4_K: return 2368;
    case DTYPE_Q5_K: return 2880;
    case DTYPE_Q6_K: return 3360;
    case DTYPE_IQ4_XS: return 2208;
    default: return t == DTYPE_F16 ? 32 : 64;
    }
}

// The scales of packed block b, so that numbers are of about the same size
static void set_scales(enum dtype t, char *w, int b, float size) {
    char *block = w + (size_t)b * packed_bytes(t);
    for (int i = 0; i < 16 && t == DTYPE_MXFP4; i++)
        block[i] = (char)(118 + random_u32() % 8);
    for (int i = 0; i < (quants_has_minimum(t) ? 32 : 16) && t != DTYPE_MXFP4; i++) {
        uint16_t h = float_to_half(random_float() * size);
        memcpy(block + (t == DTYPE_Q6_K ? offsetof(struct weight_q6k, d) : 0) + 2 * i, &h, 2);
    }
}

// Number k of a row in packed block b, from the comments in kernels.h
static double packed_value(enum dtype t, const char *w, int b, int lane, int k) {
    const void *at = w + (size_t)b * packed_bytes(t);
    const struct weight_q8 *q8 = at;
    const struct weight_q4 *q4 = at;
    const struct weight_q5 *q5 = at;
    const struct weight_q41 *q41 = at;
    const struct weight_q51 *q51 = at;
    const struct weight_mxfp4 *mxfp4 = at;
    const struct weight_q4k *q4k = at;
    const struct weight_q5k *q5k = at;
    const struct weight_q6k *q6k = at;
    const struct weight_q3k *q3k = at;
    const struct weight_q2k *q2k = at;
    const struct weight_iq4xs *iq4xs = at;
    int s = k / 32, half = k / 16 % 2, j = k % 16 / 4, byte = lane * 4 + k % 4, q;
    double d, min;
    switch (t) {
    case DTYPE_Q8_0: return (double)half_to_float(q8->d[lane]) * (q8->q[k / 4][byte] - 128);
    case DTYPE_Q4_0:
        return (double)half_to_float(q4->d[lane]) * ((half ? q4->q[j][byte] >> 4 : q4->q[j][byte] & 15) - 8);
    case DTYPE_IQ4_NL:
        return (double)half_to_float(q4->d[lane]) *
               quants_iq4[half ? q4->q[j][byte] >> 4 : q4->q[j][byte] & 15];
    case DTYPE_MXFP4:
        return ldexp(quants_mxfp4[half ? mxfp4->q[j][byte] >> 4 : mxfp4->q[j][byte] & 15],
                     mxfp4->e[lane] - 128);
    case DTYPE_Q5_0:
        q = half ? q5->low.q[j][byte] >> 4 : q5->low.q[j][byte] & 15;
        q += (q5->high[byte] >> (4 * half + j) & 1) * 16;
        return (double)half_to_float(q5->low.d[lane]) * (q - 16);
    case DTYPE_Q4_1:
    case DTYPE_Q5_1:
        q = half ? q41->q[j][byte] >> 4 : q41->q[j][byte] & 15;
        if (t == DTYPE_Q5_1)
            q += (q51->high[byte] >> (4 * half + j) & 1) * 16;
        return (double)half_to_float(q41->d[lane]) * q + (double)half_to_float(q41->min[lane]);
    case DTYPE_Q6_K:
        q = half ? q6k->q[s][j][byte] >> 4 : q6k->q[s][j][byte] & 15;
        q += (q6k->high[s][half][byte] >> 2 * j & 3) * 16;
        return (double)half_to_float(q6k->d[lane]) * q6k->scale[k / 16][lane] * (q - 32);
    case DTYPE_Q3_K:
        q = (q3k->q[s][half][byte] >> 2 * j & 3) + (q3k->high[s][byte] >> (4 * half + j) & 1) * 4;
        return (double)half_to_float(q3k->d[lane]) * q3k->scale[k / 16][lane] * (q - 4);
    case DTYPE_Q2_K:
        d = (double)half_to_float(q2k->d[lane]) * (q2k->scale[k / 16][lane] % 16);
        min = (double)half_to_float(q2k->minus_min[lane]) * (q2k->scale[k / 16][lane] / 16);
        return d * (q2k->q[s][half][byte] >> 2 * j & 3) + min;
    case DTYPE_IQ4_XS:
        q = half ? iq4xs->q[s][j][byte] >> 4 : iq4xs->q[s][j][byte] & 15;
        return (double)half_to_float(iq4xs->d[lane]) * iq4xs->scale[s][lane] * quants_iq4[q];
    default:
        q = half ? q4k->q[s][j][byte] >> 4 : q4k->q[s][j][byte] & 15;
        if (t == DTYPE_Q5_K)
            q += (q5k->high[s][byte] >> (4 * half + j) & 1) * 16;
        return (double)half_to_float(q4k->d[lane]) * q4k->scale[s][lane] * q +
               (double)half_to_float(q4k->minus_min[lane]) * q4k->min[s][lane];
    }
}

// Packed weights of one panel, random; and activations of n tokens.
static void random_gemm(enum dtype t, int blocks, int n, bool hostile, char *w, char *x) {
    if (dtype_block(t) > 1) {
        bool extreme = hostile && random_u32() % 2; // the largest sums
        for (size_t i = 0; i < (size_t)blocks * packed_bytes(t); i++)
            w[i] = (char)(hostile && random_u32() % 2 ? 255 * (random_u32() % 2) : random_u32());
        memset(w, extreme ? 0xff : w[0], extreme ? (size_t)blocks * packed_bytes(t) : 0);
        for (int b = 0; b < blocks && !(hostile && t == DTYPE_MXFP4); b++) // any exponent, where hostile
            set_scales(t, w, b, hostile ? 1e-6f : 0.01f);
        for (int i = 0; i < n * blocks * (dtype_block(t) / 32); i++) {
            struct act_q8 *a = (struct act_q8 *)(void *)x + i;
            int sum[2] = {0};
            for (int j = 0; j < 32; j++) {
                a->q[j] = (int8_t)(extreme   ? (i % 2 ? 127 : -127)
                                   : hostile ? (random_u32() % 2 ? 127 : -127)
                                             : (int)(random_u32() % 255) - 127);
                sum[j / 16] += a->q[j];
            }
            a->d = ldexpf(1 + fabsf(random_float()),
                          hostile ? (int)(random_u32() % 200) - 106 : -(int)(random_u32() % 8));
            if (hostile && random_u32() % 64 == 0)
                a->d = NAN;
            a->s = a->d * (float)(sum[0] + sum[1]);
            a->minus8 = -8 * (sum[0] + sum[1]);
            a->minus128 = -128 * (sum[0] + sum[1]);
            a->minus32[0] = -32 * sum[0];
            a->minus32[1] = -32 * sum[1];
        }
        return;
    }
    int per_block = t == DTYPE_BF16 ? 2 : 1;
    for (int i = 0; i < blocks * per_block * 16; i++) {
        float f = hostile ? any_float() : random_float();
        ref_store(w + dtype_row_bytes(t, i), t, f);
    }
    for (int i = 0; i < n * blocks * per_block; i++) {
        float f = hostile ? any_float() : random_float();
        ref_store(x + (t == DTYPE_BF16 ? i * 2 : i * 4), t == DTYPE_BF16 ? DTYPE_BF16 : DTYPE_F32, f);
    }
}

static bool same_floats(const float *a, const float *b, int n) {
    for (int i = 0; i < n; i++)
        if (float_bits(a[i]) != float_bits(b[i]) && !(isnan(a[i]) && isnan(b[i])))
            return false;
    return true;
}

// A tile, in pieces of as many tokens as the table takes: whole where it unpacks weights.
static void multiply(const struct cpu_kernels *k, enum dtype t, const struct gemm_tile *tile) {
    if (k->to_pairs && dtype_block(t) > 1 && tile->num_tokens > REGISTER_TOKENS) {
        struct gemm_tile whole = *tile;
        size_t blocks = tile->ldx / sizeof(struct act_q8), bytes = (blocks * 64 + 63) / 64 * 64;
        char *pairs = aligned_alloc(64, bytes * (size_t)tile->num_tokens);
        for (int i = 0; i < tile->num_tokens; i++)
            k->to_pairs((uint16_t *)(void *)(pairs + (size_t)i * bytes),
                        (const struct act_q8 *)(const void *)((const char *)tile->x + (size_t)i * tile->ldx),
                        (int)blocks * 32);
        whole.pairs = pairs;
        whole.ld_pairs = bytes;
        k->gemm[t](&whole);
        free(pairs);
        return;
    }
    int most = k->tile_tokens[t] > REGISTER_TOKENS ? k->tile_tokens[t] : REGISTER_TOKENS;
    struct gemm_tile piece = *tile;
    for (int left = tile->num_tokens; left > 0; left -= most) {
        piece.num_tokens = left < most ? left : most;
        k->gemm[t](&piece);
        piece.x = (const char *)piece.x + (size_t)most * piece.ldx;
        piece.y += (size_t)most * piece.ldy;
    }
}

// Segments of blocks [b0, b1), some of which may be empty
static int random_segments(int bounds[NUM_SEGMENTS + 1], int b0, int b1) {
    int num = 1 << random_u32() % 4;
    bounds[0] = b0;
    for (int i = 1; i < num; i++)
        bounds[i] = bounds[i - 1] + (int)(random_u32() % (unsigned)(b1 - bounds[i - 1] + 1) / 2);
    bounds[num] = b1;
    return num;
}

TEST(test_gemm) {
    enum { BLOCKS = 37, LARGE = 6, N = MANY_TOKENS, Y = 2 * N * 16 }; // LARGE: of 256
    static char panels[2][BLOCKS * 1088], x[N * 8 * LARGE * sizeof(struct act_q8)];
    _Static_assert(sizeof x >= N * BLOCKS * sizeof(struct act_q8), "blocks of 32 fit, too");
    _Static_assert(sizeof panels[0] >= LARGE * sizeof(struct weight_q6k), "the largest blocks fit, too");
    static float y[NUM_PRODUCTS][Y], alone[2 * 16];
    for (int i = 0; i < NUM_PRODUCTS; i++)
        if (!cpu_kernels_find(product_variant(i)))
            printf("  not here: %s\n", product_variant(i));
    for (int round = 0; round < 40; round++)
        for (int i = 0; i < NUM_TYPES; i++) {
            enum dtype t = types[i];
            bool hostile = round % 2, add = round % 5 == 4;
            int blocks = 1 + (int)(random_u32() % (dtype_block(t) > 32 ? LARGE : BLOCKS)), b0 = blocks / 3,
                n = 1 +
                    (int)(random_u32() % (round % 4 < 2 ? round % 8 ? MAX_TILE_TOKENS : N : REGISTER_TOKENS));
            int block = dtype_block(t), bounds[NUM_SEGMENTS + 1];
            int segments = round % 3 ? random_segments(bounds, b0, blocks) : 1;
            if (segments == 1)
                bounds[0] = b0, bounds[1] = blocks;
            size_t ldx = (size_t)blocks * (block > 1 ? (size_t)block / 32 * sizeof(struct act_q8) : 4);
            random_gemm(t, blocks, n, hostile, panels[1], x);
            random_gemm(t, blocks, n, hostile, panels[0], x);
            uint64_t env = float_env_enter();
            for (int v = 0; v < NUM_PRODUCTS; v++) {
                const struct cpu_kernels *k = cpu_kernels_find(product_variant(v));
                if (!k || (v >= FIRST_AMX && t == DTYPE_BF16))
                    continue;
                for (int j = 0; j < Y; j++)
                    y[v][j] = j < 2 * n * 16 && add ? 0.25f : NAN;
                struct gemm_tile tile = {.w = {panels[0], panels[1]},
                                         .x = x,
                                         .ldx = ldx,
                                         .num_tokens = n,
                                         .bounds = bounds,
                                         .num_segments = segments,
                                         .y = y[v],
                                         .ldy = 16,
                                         .next_panel = (size_t)n * 16,
                                         .add = add,
                                         .prefetch = {(uintptr_t)panels[0], 64, 0, 0}};
                multiply(k, t, &tile);
                // A token alone is the same token, and a panel beside another the same panel.
                for (int r = 0; r < n; r++) {
                    struct gemm_tile one = tile;
                    one.w[0] = panels[1];
                    one.w[1] = panels[0];
                    one.x = x + (size_t)r * ldx;
                    one.num_tokens = 1;
                    one.y = alone;
                    one.next_panel = 16;
                    one.prefetch = (struct prefetch){0};
                    for (int j = 0; j < 32; j++)
                        alone[j] = 0.25f;
                    k->gemm[t](&one);
                    assert_true(same_floats(alone + 16, y[v] + r * 16, 16));
                    assert_true(same_floats(alone, y[v] + (n + r) * 16, 16));
                }
                assert_true(same_floats(y[0], y[v], 2 * n * 16));
                if (!hostile) // without NaN, to the bit
                    assert_memory_equal(y[0], y[v], (size_t)n * 128);
                for (int j = 2 * n * 16; j < Y; j++) // nothing past the end
                    assert_true(isnan(y[v][j]));
            }
            float_env_leave(env);
            for (int r = 0; r < 2 * n && !hostile; r++)
                for (int lane = 0; lane < 16; lane++) { // against double
                    const char *w = panels[r / n], *one = x + (size_t)(r % n) * ldx;
                    double sum = add ? 0.25 : 0, size = 0;
                    for (int b = b0; b < blocks; b++) {
                        double dot = 0;
                        if (block > 1) {
                            const struct act_q8 *a =
                                (const struct act_q8 *)(const void *)one + b * (block / 32);
                            for (int j = 0; j < block; j++) {
                                double v = packed_value(t, w, b, lane, j) * a[j / 32].q[j % 32];
                                dot += v * (double)a[j / 32].d;
                                size += fabs(v * (double)a[j / 32].d);
                            }
                        } else {
                            int pair = t == DTYPE_BF16 ? 2 : 1;
                            for (int j = 0; j < pair; j++) {
                                int at = (b * 16 + lane) * pair + j;
                                double a =
                                    (double)ref_fetch(one + (size_t)(b * pair + j) * (pair == 2 ? 2 : 4),
                                                      pair == 2 ? DTYPE_BF16 : DTYPE_F32);
                                dot += (double)ref_fetch(w + dtype_row_bytes(t, at), t) * a;
                            }
                        }
                        sum += dot;
                        size += fabs(dot);
                    }
                    assert_true(fabs((double)y[0][r * 16 + lane] - sum) <= 4e-6 * size + 1e-6);
                }
        }
}

// Rule 2 on AMX: K in steps of 16 pairs, from the beginning of each segment.
static float step_sum(const uint16_t *w, const uint16_t *x, int pairs) { // w: of a lane, 32 apart
    float even = 0, odd = 0;
    for (int i = 0; i < pairs; i++) {
        even = fmaf(bf16_to_float(w[32 * i]), bf16_to_float(x[2 * i]), even);
        odd = fmaf(bf16_to_float(w[32 * i + 1]), bf16_to_float(x[2 * i + 1]), odd);
    }
    return even + odd;
}

static float segment_sum(const uint16_t *w, const uint16_t *x, int begin, int end) {
    float sum = 0;
    for (int pair = begin; pair < end; pair += 16)
        sum += step_sum(w + 32 * pair, x + 2 * pair, end - pair < 16 ? end - pair : 16);
    return sum;
}

// Every number of tokens takes this way, so a row's bits do not depend on those beside it.
TEST(test_amx) {
    enum { PAIRS = 150, N = MAX_TILE_TOKENS, Y = 2 * N * 16 };
    static uint16_t panels[2][PAIRS * 32], x[N * PAIRS * 2];
    static float y[Y];
    static const char *const both[] = {"amx", "amx-emulated"};
    assert_true(strcmp(cpu_kernels_find(NULL)->name, "amx") != 0); // whose bits are its own
    if (cpu_kernels_find("amx"))
        assert_string_equal(cpu_kernels_find("auto")->name, "amx");
    for (int round = 0; round < 2 * 2 * N; round++) {
        const struct cpu_kernels *k = cpu_kernels_find(both[round % 2]);
        if (!k)
            continue;
        int n = 1 + round / 2 % N, pairs = 1 + (int)(random_u32() % PAIRS), bounds[NUM_SEGMENTS + 1];
        bool add = random_u32() % 2;
        int segments = random_segments(bounds, (int)(random_u32() % (unsigned)pairs), pairs);
        uint64_t env = float_env_enter();
        for (int g = 0; g < 2; g++)
            random_gemm(DTYPE_BF16, pairs, n, false, (char *)panels[g], (char *)x);
        for (int j = 0; j < Y; j++)
            y[j] = j < 2 * n * 16 && add ? 0.25f : NAN;
        k->gemm[DTYPE_BF16](&(struct gemm_tile){.w = {panels[0], panels[1]},
                                                .x = x,
                                                .ldx = (size_t)pairs * 4,
                                                .num_tokens = n,
                                                .bounds = bounds,
                                                .num_segments = segments,
                                                .y = y,
                                                .ldy = 16,
                                                .next_panel = (size_t)n * 16,
                                                .add = add,
                                                .prefetch = {(uintptr_t)panels[0], 64, 0, 0}});
        for (int j = 0; j < 2 * n * 16; j++) {
            const uint16_t *w = panels[j / (n * 16)] + j % 16 * 2, *row = x + j / 16 % n * pairs * 2;
            float s[NUM_SEGMENTS];
            for (int i = 0; i < segments; i++)
                s[i] = segment_sum(w, row, bounds[i], bounds[i + 1]);
            for (int i = 1; i < segments; i *= 2) // neighbours, and neighbours of these
                for (int m = 0; m < segments; m += 2 * i)
                    s[m] += s[m + i];
            float want = add ? 0.25f + s[0] : s[0];
            assert_int_equal(float_bits(y[j]), float_bits(want));
        }
        float_env_leave(env);
        for (int j = 2 * n * 16; j < Y; j++)
            assert_true(isnan(y[j]));
    }
}

// Reading back gives the packed values: every element as the reference has it, rows past the matrix zero.
// Rule 5 at its edge, of fma(w, x, 0)
TEST(test_subnormals) {
#if defined(__aarch64__)
    const float lifted = 0;
#else
    const float lifted = 0x1p-126f;
#endif
    const struct {
        float w, x, y;
    } cases[] = {
        {0x1p-63f, 0x1p-63f, 0x1p-126f},         {0x1p-63f, -0x1.fffffep-64f, -0.0f},
        {0x1p-126f, 0x1.fffffep-1f, 0},          {0x1.fffffcp-127f, 0x1p+100f, 0},
        {0x1p+100f, 0x1.fffffcp-127f, 0},        {0x1.0008p-63f, 0x1.fffp-64f, lifted},
        {0x1.0008p-63f, -0x1.fffp-64f, -lifted},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int v = 0; v < NUM_VARIANTS; v++) {
            const struct cpu_kernels *k = cpu_kernels_find(variants[v]);
            float panel[16], y[32];
            if (!k)
                continue;
            for (int r = 0; r < 16; r++)
                panel[r] = cases[i].w;
            struct gemm_tile tile = {.w = {panel, panel},
                                     .x = &cases[i].x,
                                     .num_tokens = 1,
                                     .bounds = (const int[]){0, 1},
                                     .num_segments = 1,
                                     .y = y,
                                     .next_panel = 16,
                                     .prefetch = {0}};
            uint64_t env = float_env_enter();
            k->gemm[DTYPE_F32](&tile);
            float_env_leave(env);
            for (int r = 0; r < 32; r++)
                assert_int_equal(float_bits(y[r]), float_bits(cases[i].y));
        }
}

TEST(test_pack) {
    for (int i = 0; i < NUM_TYPES; i++)
        for (int round = 0; round < 20; round++) {
            enum dtype t = types[i];
            int block = dtype_block(t), rows = 1 + (int)(random_u32() % 40);
            int cols = (1 + (int)(random_u32() % (block > 32 ? 3 : 40))) * block;
            struct tensor w = random_tensor(t, rows, cols, 1);
            struct ref_matrix m = {w.data, t, rows, cols, NULL};
            size_t bytes =
                (size_t)((cols + dtype_sum_block(t) - 1) / dtype_sum_block(t)) * pack_block_bytes(t);
            char *panel = must_calloc(1, bytes);
            float *y = must_calloc((size_t)cols, sizeof *y);
            for (int row = 0; row < rows; row += LANES) {
                memset(panel, 0xff, bytes);
                pack_panel(panel, w.data, t, rows, cols, row);
                for (int lane = 0; lane < LANES; lane++) {
                    pack_read_row(y, panel, t, cols, lane);
                    for (int k = 0; k < cols; k++)
                        assert_true(y[k] == (row + lane < rows ? ref_element(&m, row + lane, k) : 0));
                }
            }
            free(panel);
            free(y);
            free((void *)(uintptr_t)w.data);
        }
}

TEST(test_vectors) {
    enum { N = 1056 };
    static float x[N], w[N], turned[2][N], y[NUM_VARIANTS][N], z[NUM_VARIANTS][N], z2[NUM_VARIANTS][N],
        gated[NUM_VARIANTS][N];
    static uint16_t h[NUM_VARIANTS][N], g[NUM_VARIANTS][N];
    static struct act_q8 q[NUM_VARIANTS][N / 32];
    float sums[NUM_VARIANTS][2];
    for (int round = 0; round < 200; round++) {
        bool hostile = round % 2;
        int n = 1 + (int)(random_u32() % (N - 32)), whole = (n + 31) / 32 * 32;
        for (int i = 0; i < N; i++) {
            x[i] = hostile ? any_float() : random_float() * 20;
            w[i] = random_float();
        }
        if (!hostile)
            x[0] = 127.25f; // between the most that d = 1 holds and what it rounds to
        uint64_t env = float_env_enter();
        for (int v = 0; v < NUM_VARIANTS; v++) {
            const struct cpu_kernels *k = cpu_kernels_find(variants[v]);
            if (!k)
                continue;
            memset(y[v], 0xff, sizeof y[v]);
            k->rmsnorm(y[v], x, w, n, 1e-5f);
            assert_true(same_floats(y[0], y[v], n));
            assert_true(n == N || isnan(y[v][n])); // nothing past the end
            const float *bias = round % 4 < 2 ? x : NULL;
            memset(z2[v], 0xff, sizeof z2[v]);
            k->layernorm(z2[v], x, w, bias, n, 1e-5f);
            assert_true(same_floats(z2[0], z2[v], n));
            assert_true(n == N || isnan(z2[v][n]));
            sums[v][0] = k->sum(x, n);
            sums[v][1] = k->squares(x, w[0], n);
            assert_true(same_floats(sums[0], sums[v], 2));
            memset(z[v], 0xff, sizeof z[v]);
            k->act[round % NUM_ACTS](z[v], 0, x, round / NUM_ACTS % 2 ? NULL : w, 0, 1, n);
            assert_true(same_floats(z[0], z[v], n));
            assert_true(isnan(z[v][n]));
            memset(gated[v], 0xff, sizeof gated[v]);
            memcpy(gated[v], w, (size_t)n * sizeof *w);
            k->gate(gated[v], x, n); // w * sigmoid(x)
            assert_true(same_floats(gated[0], gated[v], n));
            assert_true(n == N || isnan(gated[v][n]));
            for (int i = 0; i < n && !hostile; i++)
                assert_true(fabs((double)gated[v][i] - (double)w[i] / (1 + exp(-(double)x[i]))) < 1e-6);
            memset(h[v], 0xee, sizeof h[v]);
            k->to_bf16(h[v], x, n);
            assert_memory_equal(h[0], h[v], (size_t)N * 2);
            memset(g[v], 0xee, sizeof g[v]);
            k->to_f16(g[v], x, n);
            assert_memory_equal(g[0], g[v], (size_t)N * 2);
            memset(turned, 0xff, sizeof turned);
            for (int side = 0; side < 2; side++)
                memcpy(turned[side], x, (size_t)n * sizeof *x);
            k->hadamard(turned[0], n, 0.25f);
            plain_turn(turned[1], n, 0.25f);
            assert_true(same_floats(turned[0], turned[1], n));
            assert_true(n == N || isnan(turned[0][n]));
            k->to_q8(q[v], x, whole);
            for (int i = 0; i < whole / 32; i++) {
                assert_memory_equal(q[0][i].q, q[v][i].q, 32);
                assert_true(same_floats(&q[0][i].d, &q[v][i].d, 1));
                assert_true(same_floats(&q[0][i].s, &q[v][i].s, 1));
                assert_int_equal(q[0][i].minus8, q[v][i].minus8);
                assert_int_equal(q[0][i].minus128, q[v][i].minus128);
                assert_memory_equal(q[0][i].minus32, q[v][i].minus32, sizeof q[0][i].minus32);
            }
        }
        float_env_leave(env);
        if (hostile)
            continue;
        double all = 0, squares = 0;
        for (int i = 0; i < n; i++) {
            all += (double)x[i];
            squares += ((double)x[i] - (double)w[0]) * ((double)x[i] - (double)w[0]);
        }
        assert_true(fabs((double)sums[0][0] - all) < 1e-5 * (20 * n));
        assert_true(fabs((double)sums[0][1] - squares) < 1e-5 * squares);
        static float expected[N];
        cpu_kernels_find("scalar")->rmsnorm(y[0], x, w, n, 1e-5f);
        ref_rmsnorm(expected, x, w, n, 1e-5f);
        assert_true(distance(y[0], expected, (size_t)n) < 1e-6);
        ref_layernorm(expected, x, w, round % 4 < 2 ? x : NULL, n, 1e-5f);
        assert_true(n == 1 || distance(z2[0], expected, (size_t)n) < 1e-6);
        for (int a = 0; a < 2 * NUM_ACTS; a++) {
            const float *up = a % 2 ? w : NULL;
            cpu_kernels_find("scalar")->act[a / 2](y[0], 0, x, up, 0, 1, n);
            ref_act(expected, (enum act)(a / 2), x, up, n);
            assert_true(distance(y[0], expected, (size_t)n) < 1e-6);
        }
        for (int b = 0; b < whole / 32; b++) {
            const struct act_q8 *a = &q[0][b];
            float max = 0;
            int sum[2] = {0};
            for (int i = 0; i < 32; i++) { // the nearest step
                assert_true(fabsf(x[32 * b + i] - a->d * (float)a->q[i]) <= a->d * 0.50001f);
                max = fmaxf(max, fabsf(x[32 * b + i]));
                sum[i / 16] += a->q[i];
            }
            assert_true(a->d == max / 127); // no wider than needed
            assert_int_equal(a->minus8, -8 * (sum[0] + sum[1]));
            assert_int_equal(a->minus128, -128 * (sum[0] + sum[1]));
            assert_int_equal(a->minus32[0], -32 * sum[0]);
            assert_int_equal(a->minus32[1], -32 * sum[1]);
            assert_true(a->s == a->d * (float)(sum[0] + sum[1]));
        }
    }
}

// Blocks beyond what a scale may be: zero below, and not a number above.
TEST(test_ends_of_scales) {
    static const float most[] = {0x1.8p-101f, 0x1p-100f, 0x1.8p99f, 0x1p100f, INFINITY, NAN};
    for (int v = 0; v < NUM_VARIANTS; v++) {
        const struct cpu_kernels *k = cpu_kernels_find(variants[v]);
        for (int i = 0; k && i < 6; i++) {
            float x[32] = {[3] = most[i]};
            struct act_q8 q;
            k->to_q8(&q, x, 32);
            assert_true((q.q[3] != 0) == (i == 1 || i == 2));
            assert_true((isnan(q.d) != 0) == (i >= 3) && (isnan(q.s) != 0) == (i >= 3));
        }
    }
}

// Activations of rows that lie apart are those of each row; nothing beside them is written.
TEST(test_act_rows) {
    enum { ROWS = 5, LDX = 48, LDY = 56 };
    float gate[ROWS * LDX], up[ROWS * LDX], want[ROWS * LDY], got[ROWS * LDY];
    uint64_t env = float_env_enter();
    for (int i = 0; i < ROWS * LDX; i++) {
        gate[i] = random_float() * 5;
        up[i] = random_float();
    }
    for (int v = 0; v < NUM_VARIANTS; v++) {
        const struct cpu_kernels *k = variant(v);
        for (int n = 1; k && n <= LDX; n++) {
            memset(want, 0xff, sizeof want);
            memset(got, 0xff, sizeof got);
            const float *factor = n % 2 ? up : NULL;
            for (int r = 0; r < ROWS; r++)
                k->act[n % NUM_ACTS](want + (size_t)r * LDY, 0, gate + (size_t)r * LDX,
                                     factor ? up + (size_t)r * LDX : NULL, 0, 1, n);
            k->act[n % NUM_ACTS](got, LDY, gate, factor, LDX, ROWS, n);
            assert_memory_equal(got, want, sizeof want);
        }
    }
    float_env_leave(env);
}

// exp: relative error against double over its whole range, and its ends.
TEST(test_exp) {
    double worst = 0;
    uint64_t env = float_env_enter();
    for (int v = 0; v < NUM_VARIANTS; v++) {
        const struct cpu_kernels *k = variant(v);
        for (int i = 0; k && i < 200000; i++) {
            float x[16], sum;
            for (int j = 0; j < 16; j++)
                x[j] = -INFINITY;
            x[i % 16] = -87.0f * (float)i / 200000;
            k->group_exp(&sum, x, 1, 0);
            worst = fmax(worst, fabs((double)sum / exp((double)x[i % 16]) - 1));
        }
        if (!k)
            continue;
        float ends[16] = {-INFINITY, -1e30f, -88, -INFINITY}, sums[2];
        for (int j = 3; j < 16; j++)
            ends[j] = -INFINITY;
        k->group_exp(sums, ends, 1, 0);
        assert_true(sums[0] == 0);
        ends[5] = NAN;
        k->group_exp(sums, ends, 1, 0);
        assert_true(isnan(sums[0]));
        ends[5] = 0;
        k->group_exp(sums, ends, 1, 0);
        assert_true(sums[0] == 1);
        float gate[2] = {-200, 200}, up[2] = {1, 1}, y[2];
        for (int a = 0; a < NUM_ACTS; a++) {
            k->act[a](y, 0, gate, up, 0, 1, 2);
            assert_true(y[0] == 0);
            assert_true(fabsf(y[1] - (a == ACT_RELU2 ? 40000 : a == ACT_CLAMPED ? 14 : 200)) < 1e-3f);
        }
    }
    float_env_leave(env);
    printf("  largest relative error %.2e\n", worst);
    assert_true(worst < 1.5e-7);
}

// Makes keys and values of all tokens outside [begin, end) NaN.
static void poison(float cache[2][ATTN_CHUNK * ATTN_D], float scales[2][ATTN_CHUNK], enum dtype t, int d,
                   int begin, int end) {
    for (int token = 0; token < ATTN_CHUNK; token++)
        for (int i = 0; i < 2 * d && (token < begin || token >= end); i++) {
            int which = i / d, k = i % d, o = token % ATTN_TILE;
            int at = which ? o * d + k : k * ATTN_TILE + o;
            if (t == DTYPE_BF16 || t == DTYPE_I8)
                at = which ? o / 2 * 2 * d + 2 * k + o % 2 : (k / 2 * ATTN_TILE + o) * 2 + k % 2;
            at += token / ATTN_TILE * ATTN_TILE * d;
            if (t == DTYPE_I8)
                scales[which][token] = NAN;
            else if (t == DTYPE_F32)
                cache[which][at] = NAN;
            else
                ((uint16_t *)cache[which])[at] = 0x7fff; // of f16 and of bf16
        }
}

// Queries of two chunks at once have the bits of each chunk by itself.
static void check_two(const struct cpu_kernels *k, struct attn_chunk c) {
    const int ld = (c.value_dim + LANES - 1) / LANES * LANES, num = c.num_queries;
    static float alone[2 * ATTN_QUERIES * ATTN_D], together[2 * ATTN_QUERIES * ATTN_D];
    struct attn_chunk one[2] = {c, c}, two[2];
    one[0].num_queries = ATTN_QUERIES;
    for (int i = 0; i < 2 * ATTN_QUERIES; i++) {
        struct attn_chunk *of = &one[i / ATTN_QUERIES];
        int begin = (int)(random_u32() % ATTN_CHUNK), size = (int)(random_u32() % ATTN_CHUNK);
        of->begin[i % ATTN_QUERIES] = i % 3 ? 0 : begin;
        of->end[i % ATTN_QUERIES] = i % 4                       ? ATTN_CHUNK
                                    : begin + size < ATTN_CHUNK ? begin + size
                                                                : ATTN_CHUNK;
        of->out = alone + (i / ATTN_QUERIES) * ATTN_QUERIES * ld;
    }
    memcpy(two, one, sizeof two);
    for (int u = 0; u < 2; u++) {
        two[u].out = together + u * ATTN_QUERIES * ld;
        k->attend(&one[u]);
    }
    k->attend_two(&two[0], &two[1]);
    for (int i = 0; i < ATTN_QUERIES + num; i++) {
        const struct attn_chunk *a = &one[i / ATTN_QUERIES], *b = &two[i / ATTN_QUERIES];
        int t = i % ATTN_QUERIES;
        if (a->begin[t] >= a->end[t])
            continue;
        assert_true(same_floats(&a->max[t], &b->max[t], 1));
        assert_true(same_floats(&a->sum[t], &b->sum[t], 1));
        assert_true(same_floats(a->out + t * ld, b->out + t * ld, c.value_dim));
    }
}

// A chunk of attention: the same bits everywhere, also where scores are far apart, infinite or no numbers, and whatever
// tokens hold that are not attended to. AMX's own bits are those of tiles in plain C.
TEST(test_attend) {
    enum { D = ATTN_D, MAX = ATTN_CHUNK * D, ALL = NUM_VARIANTS + 2 };
    static const enum dtype caches[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_I8};
    static float cache[2][MAX], scales[2][ATTN_CHUNK], q[ATTN_QUERIES * D], out[ALL][ATTN_QUERIES * D],
        again[ATTN_QUERIES * D];
    for (int round = 0; round < 600; round++) {
        enum dtype t = caches[round % 4];
        int kind = round / 4 % 3, d = 2 + 2 * (int)(random_u32() % (D / 2)); // tame, far apart, hostile
        bool pairs = t == DTYPE_BF16 || t == DTYPE_I8;
        struct attn_chunk c = {
            .kv_dtype = t, .head_dim = d, .value_dim = d, .scaled = t == DTYPE_I8, .step1 = CHUNK_STEPS};
        c.scale = kind == 1 ? 20 : 0.2f;
        c.num_queries = 1 + (int)(random_u32() % ATTN_QUERIES);
        c.q = q;
        for (int i = 0; i < ATTN_QUERIES * D; i++) {
            float x = kind == 2 && random_u32() % 256 == 0 ? any_float() : random_float();
            uint16_t two[2] = {float_to_bf16(x), float_to_bf16(random_float())};
            memcpy(&q[i], pairs ? (void *)two : (void *)&x, sizeof x);
        }
        for (int which = 0; which < 2; which++)
            for (int i = 0; i < MAX; i++) { // as many numbers of each type
                float x = kind == 2 && random_u32() % 2048 == 0 ? any_float() : random_float();
                if (t == DTYPE_F32)
                    cache[which][i] = x;
                else if (t == DTYPE_I8)
                    ((int8_t *)cache[which])[i] = (int8_t)(int)(random_u32() % 255) - 127;
                else
                    ((uint16_t *)cache[which])[i] = t == DTYPE_F16 ? float_to_half(x) : float_to_bf16(x);
            }
        for (int which = 0; which < 2; which++)
            for (int i = 0; i < ATTN_CHUNK; i++)
                scales[which][i] =
                    kind == 2 && random_u32() % 1024 == 0 ? any_float() : random_float() * 0.01f;
        size_t tile = (size_t)(ATTN_TILE * d) * dtype_row_bytes(t, 1);
        for (int i = 0; i < CHUNK_TILES; i++) {
            c.keys[i] = (char *)cache[0] + (size_t)i * tile;
            c.values[i] = (char *)cache[1] + (size_t)i * tile;
            c.key_scale[i] = scales[0] + i * ATTN_TILE;
            c.value_scale[i] = scales[1] + i * ATTN_TILE;
            c.prefetch[i / STEP_TILES][i % STEP_TILES] = c.keys[i];
            c.prefetch[i / STEP_TILES][STEP_TILES + i % STEP_TILES] = c.values[i];
        }
        int from = (int)(random_u32() % ATTN_CHUNK);
        for (int i = 0; i < c.num_queries; i++) { // of one window, or all
            c.begin[i] = round % 5 ? 0 : from / 2 + i;
            c.end[i] = round % 5 > 1 ? ATTN_CHUNK : from + i < ATTN_CHUNK ? from + i : ATTN_CHUNK;
        }
        struct attn_chunk result[ALL];
        const struct cpu_kernels *tables[ALL];
        uint64_t env = float_env_enter();
        for (int v = 0; v < ALL; v++) {
            const struct cpu_kernels *k = v < NUM_VARIANTS    ? cpu_kernels_find(variants[v])
                                          : v == NUM_VARIANTS ? cpu_kernels_find("amx-emulated")
                                                              : cpu_kernels_find("amx");
            int like = pairs && v >= NUM_VARIANTS ? NUM_VARIANTS : 0;
            if (!(tables[v] = k))
                continue;
            result[v] = c;
            result[v].out = out[v];
            memset(out[v], 0xff, sizeof out[v]);
            k->attend(&result[v]);
            for (int i = 0; i < c.num_queries; i++) {
                if (c.begin[i] >= c.end[i])
                    continue;
                // The largest weight is 1, but for rounding, whatever came before it.
                assert_true(kind == 2 ||
                            (result[v].sum[i] > 0.99f && result[v].sum[i] <= ATTN_CHUNK * 1.01f));
                int at = i * ((d + LANES - 1) / LANES * LANES);
                assert_true(same_floats(&result[like].max[i], &result[v].max[i], 1));
                assert_true(same_floats(&result[like].sum[i], &result[v].sum[i], 1));
                assert_true(same_floats(out[like] + at, out[v] + at, d));
            }
        }
        for (int v = NUM_VARIANTS; v < ALL; v++)
            if (tables[v] && pairs)
                check_two(tables[v], c);
        poison(cache, scales, t, d, c.begin[0], c.end[0]);
        for (int v = 0; v < ALL; v++)
            if (tables[v] && c.begin[0] < c.end[0]) {
                struct attn_chunk poisoned = c;
                poisoned.out = again;
                tables[v]->attend(&poisoned);
                assert_true(same_floats(&result[v].max[0], &poisoned.max[0], 1));
                assert_true(same_floats(&result[v].sum[0], &poisoned.sum[0], 1));
                assert_true(same_floats(out[v], again, d));
            }
        float_env_leave(env);
    }
}

// exp2 of attention, against double: a second token, x below the first one's score, has it as its weight.
TEST(test_exp2) {
    static const enum dtype caches[] = {DTYPE_F32, DTYPE_BF16};
    double worst[2] = {0};
    static float keys[2 * ATTN_TILE], values[2 * ATTN_TILE], q[2 * ATTN_QUERIES], out[LANES];
    uint64_t env = float_env_enter();
    for (int v = 0; v < NUM_VARIANTS; v++) {
        const struct cpu_kernels *k = variant(v);
        for (int i = 0; k && i < 2 * 20000; i++) {
            bool pairs = i % 2;
            float x = -130.0f * (float)(i / 2) / 20000, one = 1, prob = 0;
            if (pairs) { // as bf16: x has only 8 bits
                uint16_t two[2] = {float_to_bf16(x), 0}, ones[2] = {float_to_bf16(1), 0},
                         pair[2] = {0, ones[0]};
                x = bf16_to_float(two[0]);
                memcpy(&keys[1], two, sizeof two); // (1, 16, 2)
                memcpy(&q[0], ones, sizeof ones);
                memcpy(&values[0], pair, sizeof pair); // (8, 2, 2)
            } else {
                keys[1] = x; // (2, 16)
                q[0] = one;
                values[0] = 0, values[2] = one; // (16, 2)
            }
            struct attn_chunk c = {.kv_dtype = caches[i % 2],
                                   .head_dim = 2,
                                   .value_dim = 2,
                                   .scale = 1,
                                   .num_queries = 1,
                                   .q = q,
                                   .end = {2},
                                   .step1 = CHUNK_STEPS,
                                   .out = out};
            c.keys[0] = keys, c.values[0] = values;
            for (int j = 0; j < 2 * STEP_TILES; j++)
                c.prefetch[0][j] = keys;
            k->attend(&c);
            prob = out[0];
            double exact = exp2((double)x), bound = pairs ? 0x1p-8 + 1.1e-4 : 1.9e-7;
            if (x > -126 && prob > 0x1p-126f)
                worst[pairs] = fmax(worst[pairs], fabs((double)prob / exact - 1));
            assert_true(c.max[0] == 0);
            if (x < -126)
                assert_true(prob <= 0x1.01p-126f && (x > -127 || prob == 0));
            else
                assert_true(fabs((double)prob / exact - 1) <= bound || prob < 0x1.01p-126f);
            assert_true(fabs((double)c.sum[0] - 1 - exact) <= (pairs ? 1.1e-4 : 2.4e-7) * exact + 0x1p-23);
        }
    }
    float_env_leave(env);
    printf("  largest relative error of exp2: %.2e; of weights in bf16: %.2e\n", worst[0], worst[1]);
}

int main(void) { return run_all_tests(NULL, NULL); }
