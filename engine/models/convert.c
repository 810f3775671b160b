#include "convert.h"

#include "half.h"
#include "quants.h"

bool dtype_is_float(enum dtype t) {
    return t == DTYPE_F32 || t == DTYPE_F16 || t == DTYPE_BF16 || t == DTYPE_FP8;
}

static float read_float(const void *src, enum dtype t, uint64_t i) {
    switch (t) {
    case DTYPE_F16: return half_to_float(((const uint16_t *)src)[i]);
    case DTYPE_BF16: return bf16_to_float(((const uint16_t *)src)[i]);
    case DTYPE_FP8: return bf16_to_float(quants_fp8(src, (int64_t)i));
    default: return ((const float *)src)[i];
    }
}

uint64_t convert_floats(void *dst, enum dtype to, const void *src, enum dtype from, uint64_t n) {
    uint64_t bad = n;
    for (uint64_t i = 0; i < n; i++) {
        float f = read_float(src, from, i);
        bool finite = (float_bits(f) & 0x7f800000) != 0x7f800000, kept = true;
        if (to == DTYPE_F32) {
            ((float *)dst)[i] = f;
        } else if (to == DTYPE_F16) {
            uint16_t h = float_to_half(f);
            ((uint16_t *)dst)[i] = h;
            kept = (h & 0x7c00) != 0x7c00;
        } else {
            uint16_t h = float_to_bf16(f);
            ((uint16_t *)dst)[i] = h;
            kept = (h & 0x7f80) != 0x7f80;
        }
        if (finite && !kept && bad == n)
            bad = i;
    }
    return bad;
}
