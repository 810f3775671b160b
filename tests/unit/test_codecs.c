// quants_encode(): what it loses, against the plain rounding that needs no search; and rows that no model
// has. That decoding is right, test_quants shows by an oracle.
#include "harness.h"

#include "half.h"
#include "quants.h"

#include <math.h>
#include <stdbool.h>

enum { N = 256, ROWS = 400 };
static const enum dtype types[] = {DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_K, DTYPE_Q5_K,  DTYPE_Q6_K,
                                   DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1, DTYPE_IQ4_NL};
enum { NUM_TYPES = sizeof types / sizeof types[0] };

static uint64_t state_of_random = 1;

static uint32_t random_u32(void) { // splitmix64
    uint64_t z = state_of_random += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (uint32_t)((z ^ (z >> 31)) >> 32);
}

static float uniform(void) { return (float)(int32_t)random_u32() * 0x1p-31f; } // [-1, 1)

// Twelve uniform numbers: nearly normal, variance 1, and without libm.
static float normal(void) {
    float sum = 0;
    for (int i = 0; i < 12; i++)
        sum += uniform();
    return sum * 0.5f;
}

enum shape { NORMAL, UNIFORM, HEAVY, SHIFTED, MIXED, NUM_SHAPES };

static void fill(float *x, enum shape shape) {
    for (int i = 0; i < N; i++) {
        float g = normal();
        switch (shape) {
        case NORMAL: x[i] = g * 0.02f; break;
        case UNIFORM: x[i] = uniform() * 0.05f; break;
        case HEAVY: x[i] = g * g * g * 0.01f; break;
        case SHIFTED: x[i] = 0.03f + g * 0.01f; break;
        default: x[i] = g * (i / 32 % 2 ? 0.1f : 0.004f); break; // sub-blocks of different sizes
        }
    }
}

static void round_trip(float *y, const float *x, enum dtype t) {
    unsigned char bytes[N * 2];
    quants_encode(bytes, t, x, N);
    quants_decode(y, bytes, t, N);
}

static double squared(const float *x, const float *y) {
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    return sum;
}

// ---- plain rounding: the scale that just reaches the furthest number

static float half(float x) { return half_to_float(float_to_half(x)); }

static float near(float x, float d, float low, float high) {
    float q = d != 0 ? rintf(x / d) : 0;
    return q < low ? low : q > high ? high : q;
}

static float furthest(const float *x, int n) {
    float m = 0;
    for (int i = 0; i < n; i++)
        m = fabsf(x[i]) > fabsf(m) ? x[i] : m;
    return m;
}

static void plain_symmetric(float *y, const float *x, int n, float reach, float low, float high) {
    float d = half(furthest(x, n) / reach);
    for (int i = 0; i < n; i++)
        y[i] = d * near(x[i], d, low, high);
}

static void plain_q6_k(float *y, const float *x) {
    float reach[16], d;
    for (int s = 0; s < 16; s++)
        reach[s] = furthest(x + 16 * s, 16) / -32;
    d = half(furthest(reach, 16) / -128);
    for (int i = 0; i < N; i++) {
        float step = d * near(reach[i / 16], d, -128, 127);
        y[i] = step * near(x[i], step, -32, 31);
    }
}

static void plain_q45_k(float *y, const float *x, float top) {
    float low[8] = {0}, span[8] = {0};
    for (int i = 0; i < N; i++)
        low[i / 32] = fmaxf(low[i / 32], -x[i]);
    for (int i = 0; i < N; i++)
        span[i / 32] = fmaxf(span[i / 32], (x[i] + low[i / 32]) / top);
    float d = half(furthest(span, 8) / 63), d_min = half(furthest(low, 8) / 63);
    for (int i = 0; i < N; i++) {
        float step = d * near(span[i / 32], d, 0, 63), min = d_min * near(low[i / 32], d_min, 0, 63);
        y[i] = step * near(x[i] + min, step, 0, top) - min;
    }
}

static void plain_q45_1(float *y, const float *x, float top) {
    float low = x[0], high = x[0];
    for (int i = 1; i < 32; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    float min = half(low), d = half((high - min) / top);
    for (int i = 0; i < 32; i++)
        y[i] = d * near(x[i] - min, d, 0, top) + min;
}

static void plain_iq4_nl(float *y, const float *x) {
    float d = half(furthest(x, 32) / -127);
    for (int i = 0; i < 32; i++) {
        y[i] = d * (float)quants_iq4[0];
        for (int k = 1; k < 16; k++)
            if (fabsf(d * (float)quants_iq4[k] - x[i]) < fabsf(y[i] - x[i]))
                y[i] = d * (float)quants_iq4[k];
    }
}

static void plain(float *y, const float *x, enum dtype t) {
    for (int i = 0; i < N; i += 32)
        switch (t) {
        case DTYPE_Q8_0: plain_symmetric(y + i, x + i, 32, 127, -127, 127); break;
        case DTYPE_Q4_0: plain_symmetric(y + i, x + i, 32, -8, -8, 7); break;
        case DTYPE_Q5_0: plain_symmetric(y + i, x + i, 32, -16, -16, 15); break;
        case DTYPE_Q4_1: plain_q45_1(y + i, x + i, 15); break;
        case DTYPE_Q5_1: plain_q45_1(y + i, x + i, 31); break;
        case DTYPE_IQ4_NL: plain_iq4_nl(y + i, x + i); break;
        default: break;
        }
    if (t == DTYPE_Q4_K || t == DTYPE_Q5_K)
        plain_q45_k(y, x, t == DTYPE_Q4_K ? 15 : 31);
    if (t == DTYPE_Q6_K)
        plain_q6_k(y, x);
}

// The error of a matrix in every type and shape of numbers: below the plain one's by a tenth or more where
// the search has room (a Q4_0 block has one scale; Q8_0 has none to choose), and about as small as it should
// be.
TEST(test_error) {
    static const struct {
        float relative, of_plain; // root of the sum of squares: by the numbers' own, by plain rounding's
    } most[NUM_TYPES] = {{0.009f, 1.001f}, {0.11f, 0.985f}, {0.09f, 0.91f},
                         {0.047f, 0.91f},  {0.025f, 0.96f}, {0.11f, 0.985f},
                         {0.065f, 0.985f}, {0.05f, 0.985f}, {0.11f, 0.985f}};
    for (int t = 0; t < NUM_TYPES; t++)
        for (int shape = 0; shape < NUM_SHAPES; shape++) {
            double size = 0, ours = 0, theirs = 0;
            int worse = 0;
            for (int row = 0; row < ROWS; row++) {
                float x[N], y[N], z[N], zero[N] = {0};
                fill(x, (enum shape)shape);
                round_trip(y, x, types[t]);
                plain(z, x, types[t]);
                double a = squared(x, y), b = squared(x, z);
                size += squared(x, zero);
                ours += a;
                theirs += b;
                worse += a > b;
            }
            double relative = sqrt(ours / size), of_plain = sqrt(ours / theirs);
            static const char *const names[] = {"normal", "uniform", "heavy tails", "shifted", "mixed sizes"};
            printf("  %s, %s: %.2f %% of the numbers' size, %.3f of plain rounding's\n", dtype_name(types[t]),
                   names[shape], 100 * relative, of_plain);
            if (relative > (double)most[t].relative || of_plain > (double)most[t].of_plain)
                fail_msg("%s, shape %d: error %.5f, %.3f of plain rounding's", dtype_name(types[t]), shape,
                         relative, of_plain);
            assert_true(worse <= ROWS / 20); // the search weighs large numbers more: seldom it loses here
        }
}

// Rows that no model has come out finite, and as near as the type can be.
static float check_hostile(const float *x, enum dtype t, const char *what) {
    float y[N], worst = 0, far = fabsf(furthest(x, N));
    round_trip(y, x, t);
    for (int i = 0; i < N; i++) {
        if (!isfinite(y[i]))
            fail_msg("%s, %s: %g became %g", dtype_name(t), what, (double)x[i], (double)y[i]);
        worst = fmaxf(worst, fabsf(x[i] - y[i]));
    }
    if (worst > 2 * far)
        fail_msg("%s, %s: an error of %g", dtype_name(t), what, (double)worst);
    return worst;
}

TEST(test_hostile) {
    // The widest error of a number by the furthest one: half a step, and what the search cuts.
    // scales.
    static const float steps[NUM_TYPES] = {0.0045f, 0.15f, 0.1f, 0.05f, 0.03f, 0.1f, 0.07f, 0.05f, 0.2f};
    for (int t = 0; t < NUM_TYPES; t++) {
        float x[N] = {0}, limit = quants_limit(types[t]);
        assert_true(check_hostile(x, types[t], "zeros") == 0);
        static const float constants[] = {1, -1, 0.37f, -0.37f, 1e-3f, 65504, -65504, 3e4f};
        for (int c = 0; c < 8; c++) {
            for (int i = 0; i < N; i++)
                x[i] = constants[c];
            assert_true(check_hostile(x, types[t], "constants") <= steps[t] * fabsf(constants[c]));
        }
        for (int sign = -1; sign <= 1; sign += 2)
            for (int at = 0; at < N; at += 51) { // one outlier among zeros, and among small numbers
                memset(x, 0, sizeof x);
                x[at] = 1000.0f * (float)sign;
                assert_true(check_hostile(x, types[t], "an outlier") <= 1000 * steps[t]);
                for (int i = 0; i < N; i++)
                    x[i] += normal();
                check_hostile(x, types[t], "an outlier among others");
            }
        for (int i = 0; i < N; i++)
            x[i] = uniform() * 1e-39f;
        assert_true(check_hostile(x, types[t], "subnormals") <= 1e-39f);
        for (int e = -148; e <= 127; e++) { // every size: from all of it lost to all of it cut
            for (int i = 0; i < N; i++)
                x[i] = ldexpf(uniform(), e);
            float worst = check_hostile(x, types[t], "a size"), size = ldexpf(1, e);
            // below 2^-10 the scales are small f16, whose steps are wide
            float most = size > 0x1p-10f ? size * steps[t] : fmaxf(size * steps[t] * 2, 0x1p-24f * 16);
            if (size <= limit && worst > most)
                fail_msg("%s, numbers up to 2^%d: an error of %g", dtype_name(types[t]), e, (double)worst);
        }
        for (int i = 0; i < N; i++)
            x[i] = i % 2 ? limit : -limit;
        assert_true(check_hostile(x, types[t], "the limit") <= limit * steps[t]);
        for (int i = 0; i < N; i++)
            x[i] = i % 3 ? 3.4e38f : -3.4e38f;
        check_hostile(x, types[t], "the largest");
    }
}

// The same bytes from every compiler and every build: a hash of what random rows become. A better search
// changes it; then this table changes, and files made before differ.
TEST(test_bytes) {
    static const uint64_t want[NUM_TYPES] = {0x84cb02f34f7d9a0bu, 0x5e706aef53be99f9u, 0x015ae534ec588e50u,
                                             0x1ec980b0088006f3u, 0x67889d73d55ba157u, 0x0e109c9c90576721u,
                                             0x1df8a2a90f461ab5u, 0xc9ea586f244a99f2u, 0x95a186d10735a784u};
    for (int t = 0; t < NUM_TYPES; t++) {
        uint64_t hash = 0xcbf29ce484222325u; // FNV-1a
        state_of_random = 77;
        for (int row = 0; row < 40; row++) {
            float x[N];
            unsigned char bytes[2 * N], again[2 * N];
            size_t n = dtype_row_bytes(types[t], N);
            fill(x, (enum shape)(row % NUM_SHAPES));
            memset(bytes, 0xaa, sizeof bytes);
            memset(again, 0x55, sizeof again);
            quants_encode(bytes, types[t], x, N);
            quants_encode(again, types[t], x, N);
            assert_memory_equal(bytes, again, n);
            for (size_t i = 0; i < n; i++)
                hash = (hash ^ bytes[i]) * 0x100000001b3u;
        }
        if (hash != want[t])
            fail_msg("%s: hash 0x%016llx", dtype_name(types[t]), (unsigned long long)hash);
    }
}

int main(void) { return run_all_tests(NULL, NULL); }
