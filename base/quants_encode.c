// Rows of f32 to quantised blocks: a search for the scales that lose least, README.md says how. Sums over a
// block go by eight lanes and a tree, so that a compiler may use whatever vectors it has and the bits stay
// the same; nothing is contracted (-ffp-contract=off).
#include "quants.h"

#include "half.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { LANES = 8, BLOCK = 256, MAX_SUB = 32 };

// Adding and subtracting it rounds |x| < 2^22 to the nearest whole number, ties to even.
static const float magic = 12582912.0f;
// A block whose values are all below is zero: half of the smallest scale.
static const float smallest = 0x1p-25f;

// Sizes are known where they are called, so that loops become vectors.
#define ALWAYS_INLINE __attribute__((always_inline)) static inline

static float sum_lanes(const float v[LANES]) {
    return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}

// x as f16, cut to the largest.
static uint16_t nearest_half(float x) {
    float cut = x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x;
    return float_to_half(cut);
}

// The next f16 that is no smaller: scales in steps of it then reach as far as they should.
static uint16_t next_half(float x) {
    uint16_t h = nearest_half(x);
    return fabsf(half_to_float(h)) < fabsf(x) && (h & 0x7fffu) < 0x7bffu ? (uint16_t)(h + 1u) : h;
}

static int whole(float x, int low, int high) { // nearest
    float t = x > (float)low ? x : (float)low;
    t = t < (float)high ? t : (float)high;
    return (int)((t + magic) - magic);
}

// q[i] = (x[i] + offset) * inverse to the nearest whole number within [low, high]; n is a multiple of LANES
ALWAYS_INLINE void round_all(float *q, const float *x, int n, float offset, float inverse, float low,
                             float high) {
    for (int i = 0; i < n; i++) {
        float t = ((x[i] + offset) * inverse + magic) - magic; // values too large to round are cut below
        t = t > low ? t : low;
        q[i] = t < high ? t : high;
    }
}

// Sum of w * (x - (scale * q - min))^2
ALWAYS_INLINE float lost(const float *x, const float *w, const float *q, int n, float scale, float min) {
    float acc[LANES] = {0};
    for (int i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float e = x[i + l] - (scale * q[i + l] - min);
            acc[l] += w[i + l] * (e * e);
        }
    return sum_lanes(acc);
}

// w = the weights of the errors of x: large values count more (base/README.md).
static void weigh(float *w, const float *x, int n) {
    float acc[LANES] = {0};
    for (int i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++)
            acc[l] += x[i + l] * x[i + l];
    float rms = sqrtf(sum_lanes(acc) / (float)n);
    for (int i = 0; i < n; i++)
        w[i] = rms + fabsf(x[i]);
}

// x (n) cut to what can matter; whether anything but zeros is left.
static bool take_row(float *y, const float *x, int n) {
    const float limit = 0x1p30f; // far beyond every format, and its cube times 256 is finite
    float most = 0;
    for (int i = 0; i < n; i++) {
        y[i] = x[i] > limit ? limit : x[i] < -limit ? -limit : x[i];
        most = fabsf(y[i]) > most ? fabsf(y[i]) : most;
    }
    return most >= smallest;
}

static float furthest(const float *x, int n) { // from zero, with its sign
    float m = 0;
    for (int i = 0; i < n; i++)
        m = fabsf(x[i]) > fabsf(m) ? x[i] : m;
    return m;
}

// ---- symmetric: x = scale * q, low <= q <= high

// The best scale for given q. *gain: by how much it lowers the sum of w x^2.
ALWAYS_INLINE float fit_scale(const float *x, const float *w, const float *q, int n, double *gain) {
    float xq[LANES] = {0}, qq[LANES] = {0};
    for (int i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float t = w[i + l] * q[i + l];
            xq[l] += t * x[i + l];
            qq[l] += t * q[i + l];
        }
    double a = (double)sum_lanes(xq), b = (double)sum_lanes(qq);
    *gain = a > 0 || a < 0 ? a * a / b : 0;
    return b > 0 ? (float)(a / b) : 0;
}

// The scale that loses least, of those near to where the furthest number is at either end of the range, each
// followed by one turn of rounding and fitting. 0: nothing above `smallest`.
ALWAYS_INLINE float search_scale(const float *x, const float *w, int n, int low, int high) {
    float q[MAX_SUB], far = furthest(x, n), best = 0;
    double most = 0, gain;
    if (fabsf(far) < smallest)
        return 0;
    for (int end = 0; end < 2; end++)
        for (int step = -10; step <= 10; step++) {
            float inverse = ((float)(end ? high : low) + 0.1f * (float)step) / far;
            for (int turn = 0; turn < 2; turn++) {
                round_all(q, x, n, 0, inverse, (float)low, (float)high);
                float scale = fit_scale(x, w, q, n, &gain);
                if (gain > most) {
                    most = gain;
                    best = scale;
                }
                if (!(fabsf(scale) >= 0x1p-60f))
                    break;
                inverse = 1 / scale;
            }
        }
    return best;
}

// The error with this very scale; q gets the values.
ALWAYS_INLINE float try_scale(float *q, const float *x, const float *w, int n, float scale, int low,
                              int high) {
    round_all(q, x, n, 0, scale != 0 ? 1 / scale : 0, (float)low, (float)high);
    return lost(x, w, q, n, scale, 0);
}

// The scale among those given and the next larger of each (the steps of small f16 are wide) that loses least;
// q gets its values.
static uint16_t choose_half(float q[32], const float *x, const float *w, const float *scales, int num,
                            int low, int high) {
    uint16_t best = 0;
    float least = INFINITY, t[32];
    for (int i = 0; i < 2 * num; i++) {
        uint16_t h = nearest_half(scales[i / 2]);
        if (i % 2)
            h = (uint16_t)(h + ((h & 0x7fffu) < 0x7bffu));
        float e = try_scale(t, x, w, 32, half_to_float(h), low, high);
        if (e < least) {
            least = e;
            best = h;
            memcpy(q, t, sizeof t);
        }
    }
    return best;
}

static void encode_q8_0(uint8_t *dst, const float *x) {
    float y[32], w[32], q[32] = {0};
    memset(dst, 0, 34);
    if (!take_row(y, x, 32))
        return;
    weigh(w, y, 32);
    uint16_t h = choose_half(q, y, w, &(float){fabsf(furthest(y, 32)) / 127}, 1, -127, 127);
    memcpy(dst, &h, 2);
    for (int i = 0; i < 32; i++)
        dst[2 + i] = (uint8_t)(int8_t)q[i];
}

// Packs the low four bits of 32 values from 0 to 31 into nibbles of 16 bytes
static void pack_nibbles(uint8_t *dst, const float q[32]) {
    for (int i = 0; i < 16; i++)
        dst[i] = (uint8_t)(((int)q[i] & 15) | ((int)q[16 + i] & 15) << 4);
}

// and their fifth bits in 4
static void put_fifths(uint8_t *dst, const float q[32]) {
    for (int i = 0; i < 32; i++)
        dst[i / 8] = (uint8_t)(dst[i / 8] | (int)q[i] >> 4 << i % 8);
}

static void encode_q45_0(uint8_t *dst, const float *x, enum dtype dtype) {
    int zero = dtype == DTYPE_Q4_0 ? 8 : 16;
    float y[32], w[32], q[32] = {0};
    uint16_t h = 0;
    memset(dst, 0, dtype_row_bytes(dtype, 32));
    if (take_row(y, x, 32)) {
        weigh(w, y, 32);
        float far = furthest(y, 32) / (float)-zero, search;
        search = dtype == DTYPE_Q4_0 ? search_scale(y, w, 32, -8, 7) : search_scale(y, w, 32, -16, 15);
        h = choose_half(q, y, w, (float[2]){search, far}, 2, -zero, zero - 1);
    }
    for (int i = 0; i < 32; i++)
        q[i] += (float)zero;
    memcpy(dst, &h, 2);
    pack_nibbles(dst + (dtype == DTYPE_Q4_0 ? 2 : 6), q);
    if (dtype == DTYPE_Q5_0)
        put_fifths(dst + 2, q);
}

// q[i] = the number of IQ4's table that is nearest to x[i] * inverse
ALWAYS_INLINE void round_iq4(float q[32], const float *x, float inverse) {
    for (int i = 0; i < 32; i++) {
        float t = x[i] * inverse, nearest = (float)quants_iq4[0];
        for (int k = 1; k < 16; k++)
            nearest = t > 0.5f * (float)(quants_iq4[k - 1] + quants_iq4[k]) ? (float)quants_iq4[k] : nearest;
        q[i] = nearest;
    }
}

// As search_scale() and choose_half() do it, with the values of a table.
static void encode_iq4_nl(uint8_t *dst, const float *x) {
    float y[32], w[32], q[32], best[32] = {0}, least = INFINITY;
    uint16_t d = 0;
    memset(dst, 0, 18);
    memset(dst + 2, 0x88, 16);
    if (!take_row(y, x, 32))
        return;
    weigh(w, y, 32);
    float far = furthest(y, 32), scales[2] = {0, far / -127};
    double most = 0, gain;
    for (int end = 0; end < 2; end++)
        for (int step = -10; step <= 10; step++) {
            float inverse = ((end ? 113.0f : -127.0f) + 2.0f * (float)step) / far;
            for (int turn = 0; turn < 2; turn++) {
                round_iq4(q, y, inverse);
                float scale = fit_scale(y, w, q, 32, &gain);
                if (gain > most) {
                    most = gain;
                    scales[0] = scale;
                }
                if (!(fabsf(scale) >= 0x1p-60f))
                    break;
                inverse = 1 / scale;
            }
        }
    for (int i = 0; i < 4; i++) {
        uint16_t h = nearest_half(scales[i / 2]);
        h = (uint16_t)(h + (i % 2 && (h & 0x7fffu) < 0x7bffu));
        float scale = half_to_float(h);
        round_iq4(q, y, scale != 0 ? 1 / scale : 0);
        float e = lost(y, w, q, 32, scale, 0);
        if (e < least) {
            least = e;
            d = h;
            memcpy(best, q, sizeof best);
        }
    }
    for (int i = 0; i < 32; i++) { // the number's place in the table
        int code = 0;
        while (code < 15 && (float)quants_iq4[code] < best[i])
            code++;
        q[i] = (float)code;
    }
    memcpy(dst, &d, 2);
    pack_nibbles(dst + 2, q);
}

struct q6 {
    uint16_t d;
    int scale[16];
    float q[BLOCK];
    double error;
};

// Scales near to those in t under its d, and the values.
static void settle_q6(struct q6 *t, const float *x, const float *w) {
    float d = half_to_float(t->d), q[16];
    t->error = 0;
    for (int s = 0; s < 16; s++) {
        int centre = t->scale[s], best = 0;
        float least = INFINITY;
        for (int k = -1; k <= 1; k++) {
            int scale = centre + k;
            if (scale < -128 || scale > 127)
                continue;
            float e = try_scale(q, x + 16 * s, w + 16 * s, 16, d * (float)scale, -32, 31);
            if (e < least) {
                least = e;
                best = scale;
                memcpy(t->q + 16 * s, q, sizeof q);
            }
        }
        t->scale[s] = best;
        t->error += (double)least;
    }
}

static void encode_q6_k(uint8_t *dst, const float *x) {
    float y[BLOCK], w[BLOCK], scale[16];
    struct q6 best = {.error = INFINITY}, t = {.error = 0};
    memset(dst, 0, 210);
    if (!take_row(y, x, BLOCK)) { // 32 everywhere: the upper bits
        memset(dst + 128, 0xaa, 64);
        return;
    }
    weigh(w, y, BLOCK);
    for (int s = 0; s < 16; s++)
        scale[s] = search_scale(y + 16 * s, w + 16 * s, 16, -32, 31);
    t.d = next_half(furthest(scale, 16) / -128);
    float d = half_to_float(t.d);
    for (int s = 0; s < 16; s++)
        t.scale[s] = d != 0 ? whole(scale[s] / d, -128, 127) : 0;
    for (int turn = 0; turn < 3; turn++) {
        settle_q6(&t, y, w);
        if (!(t.error < best.error))
            break;
        best = t;
        double xa = 0, aa = 0; // the best d for these values
        for (int i = 0; i < BLOCK; i++) {
            int s = i / 16;
            double a = (double)t.scale[s] * (double)t.q[i];
            xa += (double)w[i] * a * (double)y[i];
            aa += (double)w[i] * a * a;
        }
        uint16_t h = aa > 0 ? nearest_half((float)(xa / aa)) : t.d;
        if (h == t.d)
            break;
        t.d = h;
    }
    memcpy(dst + 208, &best.d, 2);
    for (int s = 0; s < 16; s++)
        dst[192 + s] = (uint8_t)(int8_t)best.scale[s];
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < 32; i++) {
            int u[4];
            for (int k = 0; k < 4; k++)
                u[k] = (int)best.q[128 * half + 32 * k + i] + 32;
            dst[64 * half + i] = (uint8_t)((u[0] & 15) | (u[2] & 15) << 4);
            dst[64 * half + 32 + i] = (uint8_t)((u[1] & 15) | (u[3] & 15) << 4);
            dst[128 + 32 * half + i] =
                (uint8_t)(u[0] >> 4 | u[1] >> 4 << 2 | u[2] >> 4 << 4 | u[3] >> 4 << 6);
        }
}

// ---- with a minimum: x = scale * q - min, 0 <= q <= top, scale and min not negative

struct affine {
    float scale, min;
    double error; // less the sum of w x^2
};

// The best scale and minimum for given q; `below` allows a minimum of either sign.
static struct affine fit_affine(const float *x, const float *w, const float *q, bool below) {
    float acc[5][LANES] = {0};
    for (int i = 0; i < MAX_SUB; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float wi = w[i + l], wq = wi * q[i + l];
            acc[0][l] += wi;
            acc[1][l] += wq;
            acc[2][l] += wq * q[i + l];
            acc[3][l] += wi * x[i + l];
            acc[4][l] += wq * x[i + l];
        }
    double sw = (double)sum_lanes(acc[0]), sq = (double)sum_lanes(acc[1]), sqq = (double)sum_lanes(acc[2]);
    double sx = (double)sum_lanes(acc[3]), sxq = (double)sum_lanes(acc[4]);
    double det = sw * sqq - sq * sq, scale = 0, min;
    if (det > 1e-6 * sw * sqq)
        scale = (sw * sxq - sx * sq) / det;
    scale = scale > 0 ? scale : 0;
    min = (scale * sq - sx) / sw;
    if (!(min > 0) && !below) {
        min = 0;
        scale = sqq > 0 && sxq > 0 ? sxq / sqq : 0;
    }
    double error =
        scale * scale * sqq - 2 * scale * sxq + 2 * min * sx - 2 * scale * min * sq + min * min * sw;
    return (struct affine){(float)scale, (float)min, error};
}

static struct affine search_affine(const float *x, const float *w, int top, bool below) {
    struct affine best = {0, 0, 0}, fit;
    float q[MAX_SUB], low = below ? x[0] : 0, high = x[0], most = 0;
    for (int i = 0; i < MAX_SUB; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    }
    if (most < smallest)
        return best;
    float span = high - low;
    for (int step = -10; step <= 10; step++) {
        float offset = -low, inverse = span > 0 ? ((float)top + 0.1f * (float)step) / span : 0;
        for (int turn = 0; turn < 2; turn++) {
            round_all(q, x, MAX_SUB, offset, inverse, 0, (float)top);
            fit = fit_affine(x, w, q, below);
            if (fit.error < best.error)
                best = fit;
            if (!(fit.scale >= 0x1p-60f))
                break;
            inverse = 1 / fit.scale;
            offset = fit.min;
        }
    }
    return best;
}

// Q4_1 and Q5_1: f16 scale and minimum, of either sign and added
static void encode_q45_1(uint8_t *dst, const float *x, enum dtype dtype) {
    int top = dtype == DTYPE_Q4_1 ? 15 : 31;
    float y[32], w[32], q[32], best[32] = {0}, least = INFINITY, low, high;
    uint16_t d = 0, min = 0;
    memset(dst, 0, dtype_row_bytes(dtype, 32));
    if (!take_row(y, x, 32))
        return;
    weigh(w, y, 32);
    low = high = y[0];
    for (int i = 1; i < 32; i++) {
        low = y[i] < low ? y[i] : low;
        high = y[i] > high ? y[i] : high;
    }
    struct affine fit[2] = {search_affine(y, w, top, true), {(high - low) / (float)top, -low, 0}};
    for (int i = 0; i < 4; i++) { // both, and the next larger scale of each
        uint16_t h = nearest_half(fit[i / 2].scale), m = nearest_half(-fit[i / 2].min);
        h = (uint16_t)(h + (i % 2 && h < 0x7bffu));
        float scale = half_to_float(h), below = -half_to_float(m);
        round_all(q, y, 32, below, scale > 0 ? 1 / scale : 0, 0, (float)top);
        float e = lost(y, w, q, 32, scale, below);
        if (e < least) {
            least = e;
            d = h;
            min = m;
            memcpy(best, q, sizeof best);
        }
    }
    memcpy(dst, &d, 2);
    memcpy(dst + 2, &min, 2);
    pack_nibbles(dst + (dtype == DTYPE_Q4_1 ? 4 : 8), best);
    if (dtype == DTYPE_Q5_1)
        put_fifths(dst + 4, best);
}

struct q45 {
    uint16_t d, d_min;
    int scale[8], min[8];
    float q[BLOCK];
    double error;
};

// Scales and minima near to those in t under its d and d_min, and the values.
static void settle_q45(struct q45 *t, const float *x, const float *w, int top) {
    float d = half_to_float(t->d), d_min = half_to_float(t->d_min), q[MAX_SUB];
    t->error = 0;
    for (int s = 0; s < 8; s++) {
        int scale = t->scale[s], min = t->min[s];
        float least = INFINITY;
        for (int k = 0; k < 9; k++) {
            int a = scale + k / 3 - 1, b = min + k % 3 - 1;
            if (a < 0 || a > 63 || b < 0 || b > 63)
                continue;
            float step = d * (float)a, below = d_min * (float)b;
            round_all(q, x + 32 * s, MAX_SUB, below, step > 0 ? 1 / step : 0, 0, (float)top);
            float e = lost(x + 32 * s, w + 32 * s, q, MAX_SUB, step, below);
            if (e < least) {
                least = e;
                t->scale[s] = a;
                t->min[s] = b;
                memcpy(t->q + 32 * s, q, sizeof q);
            }
        }
        t->error += (double)least;
    }
}

// The best d and d_min for the values of t; false: they are what they were.
static bool refit_q45(struct q45 *t, const float *x, const float *w) {
    double aa = 0, ab = 0, bb = 0, xa = 0, xb = 0;
    for (int i = 0; i < BLOCK; i++) {
        int s = i / 32;
        double a = (double)t->scale[s] * (double)t->q[i], b = -(double)t->min[s], wi = (double)w[i];
        aa += wi * a * a;
        ab += wi * a * b;
        bb += wi * b * b;
        xa += wi * a * (double)x[i];
        xb += wi * b * (double)x[i];
    }
    double det = aa * bb - ab * ab, d = 0, d_min = 0;
    if (det > 1e-9 * aa * bb) {
        d = (bb * xa - ab * xb) / det;
        d_min = (aa * xb - ab * xa) / det;
    } else if (bb > 0) {
        d_min = xb / bb;
    } else if (aa > 0) {
        d = xa / aa;
    }
    uint16_t h = d > 0 ? nearest_half((float)d) : t->d, m = d_min > 0 ? nearest_half((float)d_min) : t->d_min;
    bool other = h != t->d || m != t->d_min;
    t->d = h;
    t->d_min = m;
    return other;
}

static void encode_q45_k(uint8_t *dst, const float *x, enum dtype dtype) {
    int top = dtype == DTYPE_Q4_K ? 15 : 31;
    float y[BLOCK], w[BLOCK], most = 0, deepest = 0;
    struct affine fit[8];
    struct q45 best = {.error = INFINITY}, t = {.error = 0};
    memset(dst, 0, dtype_row_bytes(dtype, BLOCK));
    if (!take_row(y, x, BLOCK))
        return;
    weigh(w, y, BLOCK);
    for (int s = 0; s < 8; s++) {
        fit[s] = search_affine(y + 32 * s, w + 32 * s, top, false);
        most = fit[s].scale > most ? fit[s].scale : most;
        deepest = fit[s].min > deepest ? fit[s].min : deepest;
    }
    t.d = next_half(most / 63);
    t.d_min = next_half(deepest / 63);
    for (int s = 0; s < 8; s++) {
        t.scale[s] = most > 0 ? whole(fit[s].scale / half_to_float(t.d), 0, 63) : 0;
        t.min[s] = deepest > 0 ? whole(fit[s].min / half_to_float(t.d_min), 0, 63) : 0;
    }
    for (int turn = 0; turn < 3; turn++) {
        settle_q45(&t, y, w, top);
        if (!(t.error < best.error))
            break;
        best = t;
        if (!refit_q45(&t, y, w))
            break;
    }
    memcpy(dst, &best.d, 2);
    memcpy(dst + 2, &best.d_min, 2);
    for (int i = 0; i < 4; i++) {
        const int *s = best.scale + i, *m = best.min + i;
        dst[4 + i] = (uint8_t)(s[0] | s[4] >> 4 << 6);
        dst[8 + i] = (uint8_t)(m[0] | m[4] >> 4 << 6);
        dst[12 + i] = (uint8_t)((s[4] & 15) | (m[4] & 15) << 4);
    }
    uint8_t *high = dst + 16, *low = dtype == DTYPE_Q4_K ? high : high + 32;
    for (int s = 0; s < 8; s++)
        for (int i = 0; i < 32; i++) {
            int q = (int)best.q[32 * s + i];
            low[s / 2 * 32 + i] |= (uint8_t)((q & 15) << s % 2 * 4);
            if (dtype == DTYPE_Q5_K)
                high[i] |= (uint8_t)(q >> 4 << s);
        }
}

void quants_encode(void *dst, enum dtype dtype, const float *x, int64_t n) {
    int block = dtype_block(dtype);
    uint8_t *p = dst;
    for (int64_t i = 0; i < n; i += block, p += dtype_row_bytes(dtype, block)) {
        switch (dtype) {
        case DTYPE_Q8_0: encode_q8_0(p, x + i); break;
        case DTYPE_Q4_0:
        case DTYPE_Q5_0: encode_q45_0(p, x + i, dtype); break;
        case DTYPE_Q4_1:
        case DTYPE_Q5_1: encode_q45_1(p, x + i, dtype); break;
        case DTYPE_IQ4_NL: encode_iq4_nl(p, x + i); break;
        case DTYPE_Q6_K: encode_q6_k(p, x + i); break;
        default: encode_q45_k(p, x + i, dtype); break;
        }
    }
}

// The largest f16, the largest scale of a sub-block, the shorter side of the values.
float quants_limit(enum dtype dtype) {
    switch (dtype) {
    case DTYPE_Q8_0: return 65504.0f * 127;
    case DTYPE_Q4_0: return 65504.0f * 7;
    case DTYPE_Q5_0: return 65504.0f * 15;
    case DTYPE_Q4_1:
    case DTYPE_Q5_1: return 65504.0f; // the minimum's
    case DTYPE_IQ4_NL: return 65504.0f * 113;
    case DTYPE_Q4_K:
    case DTYPE_Q5_K: return 65504.0f * 63; // the minimum's
    case DTYPE_Q6_K: return 65504.0f * 127 * 31;
    default: return INFINITY;
    }
}
