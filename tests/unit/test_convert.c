// convert_floats() against the compiler's half-precision type, and against distances in double.
#include "harness.h"

#include "models/convert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// A stride that is odd and large meets every exponent with many fractions; the edges stand apart.
enum { STRIDE = 9973 };
static const uint32_t edges[] = {
    0,          0x80000000, 1,          0x007fffff, 0x00800000, 0x32ffffff, 0x33000000, 0x33000001,
    0x33800000, 0x337fffff, 0x387fbfff, 0x387fe000, 0x387ff000, 0x387fffff, 0x38800000, 0x477fe000,
    0x477fefff, 0x477ff000, 0x477fffff, 0x47800000, 0x7f7f7fff, 0x7f7f8000, 0x7f7fffff, 0x7f800000,
    0xff800000, 0x7fc00000, 0x7f800001, 0x3f801000, 0x3f803000, 0x3f808000, 0x3f818000, 0x3f808001,
};

static float bits_float(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static float bf16_float(uint16_t h) { return bits_float((uint32_t)h << 16); }

#ifdef __FLT16_MAX__
static uint16_t half_bits(float f) {
    __extension__ _Float16 h = (_Float16)f;
    uint16_t bits;
    memcpy(&bits, &h, sizeof bits);
    return bits;
}

static void check_f16(uint32_t bits) {
    float f = bits_float(bits);
    uint16_t got, want = half_bits(f);
    uint64_t bad = convert_floats(&got, DTYPE_F16, &f, DTYPE_F32, 1);
    if (isnan(f)) {
        assert_true((got & 0x7c00) == 0x7c00 && (got & 0x3ff) != 0);
        assert_int_equal(bad, 1);
        return;
    }
    if (got != want)
        fail_msg("%08x gave %04x, not %04x", bits, got, want);
    assert_int_equal(bad, isfinite(f) && (want & 0x7fff) == 0x7c00 ? 0 : 1);
}
#endif

TEST(to_f16) {
#ifdef __FLT16_MAX__
    for (uint64_t i = 0; i <= UINT32_MAX; i += STRIDE)
        check_f16((uint32_t)i);
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++)
        check_f16(edges[i]);
#else
    skip(); // this compiler has no half-precision type to compare with
#endif
}

TEST(from_f16) {
    for (uint32_t h = 0; h < 65536; h++) {
        uint16_t half = (uint16_t)h, back;
        uint32_t exponent = h >> 10 & 31, fraction = h & 0x3ff;
        float f;
        assert_int_equal(convert_floats(&f, DTYPE_F32, &half, DTYPE_F16, 1), 1);
        if (exponent == 31) {
            assert_true(fraction ? isnan(f) : isinf(f));
        } else {
            double want = exponent ? ldexp(1024 + fraction, (int)exponent - 25) : ldexp(fraction, -24);
            assert_true(f == (h & 0x8000 ? -want : want) && !signbit(f) == !(h & 0x8000));
        }
        convert_floats(&back, DTYPE_F16, &f, DTYPE_F32, 1);
        assert_true(back == half || isnan(f));
    }
}

// The nearer of the two neighbours, and of two equally near the even one.
static void check_bf16(uint32_t bits) {
    float f = bits_float(bits);
    uint16_t got, low = (uint16_t)(bits >> 16), high = (uint16_t)(low + 1);
    uint64_t bad = convert_floats(&got, DTYPE_BF16, &f, DTYPE_F32, 1);
    if (isnan(f)) {
        assert_true(isnan(bf16_float(got)));
        return;
    }
    // Above the largest bf16 the next would be 2^128.
    double above = (high & 0x7fff) == 0x7f80 ? copysign(ldexp(1, 128), f) : (double)bf16_float(high);
    double down = fabs((double)f - (double)bf16_float(low)), up = fabs(above - (double)f);
    uint16_t want = down < up || (down == up && low % 2 == 0) ? low : high;
    if (isinf(f))
        want = low;
    if (got != want)
        fail_msg("%08x gave %04x, not %04x", bits, got, want);
    assert_int_equal(bad, isfinite(f) && isinf(bf16_float(want)) ? 0 : 1);
}

TEST(to_bf16) {
    for (uint64_t i = 0; i <= UINT32_MAX; i += STRIDE)
        check_bf16((uint32_t)i);
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++)
        check_bf16(edges[i]);
}

TEST(between_halves) {
    const uint16_t wide[4] = {0x3f80, 0x4780, 0x3380, 0xc000}; // bf16: 1, 65536, 2^-24, -2
    uint16_t half[4], back[4];
    assert_int_equal(convert_floats(half, DTYPE_F16, wide, DTYPE_BF16, 4), 1); // the second does not fit
    assert_int_equal(half[0], 0x3c00);
    assert_int_equal(half[1], 0x7c00);
    assert_int_equal(half[2], 0x0001);
    assert_int_equal(half[3], 0xc000);
    assert_int_equal(convert_floats(back, DTYPE_BF16, half, DTYPE_F16, 4), 4); // an infinity is not new
    assert_int_equal(back[0], 0x3f80);
    assert_int_equal(back[2], 0x3380);
    assert_true(dtype_is_float(DTYPE_F32) && dtype_is_float(DTYPE_F16) && dtype_is_float(DTYPE_BF16));
    assert_true(dtype_is_float(DTYPE_FP8) && !dtype_is_float(DTYPE_Q8_0) && !dtype_is_float(DTYPE_I32));
}

int main(void) { return run_all_tests(NULL, NULL); }
