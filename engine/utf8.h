// One UTF-8 sequence at a time (Unicode 15, table 3-7: no surrogates, no overlong forms, nothing above
// U+10FFFF).
#pragma once

#include <stdbool.h>
#include <stddef.h>

// Bytes of the sequence that a lead byte starts, and the range of the byte after it; 0: no lead byte.
static inline int utf8_lead(unsigned char c, unsigned char *lo, unsigned char *hi) {
    *lo = 0x80;
    *hi = 0xbf;
    if (c < 0x80)
        return 1;
    if (c < 0xc2 || c > 0xf4)
        return 0;
    if (c < 0xe0)
        return 2;
    if (c < 0xf0) {
        if (c == 0xe0)
            *lo = 0xa0;
        if (c == 0xed)
            *hi = 0x9f;
        return 3;
    }
    if (c == 0xf0)
        *lo = 0x90;
    if (c == 0xf4)
        *hi = 0x8f;
    return 4;
}

// Length of the valid sequence at p, of which n bytes are there; 0: none, or cut off.
static inline int utf8_len(const unsigned char *p, size_t n) {
    unsigned char lo, hi;
    int len = n ? utf8_lead(p[0], &lo, &hi) : 0;
    if (len == 0 || (size_t)len > n)
        return 0;
    if (len > 1 && (p[1] < lo || p[1] > hi))
        return 0;
    for (int i = 2; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return len;
}

static inline bool utf8_valid(const unsigned char *p, size_t n) {
    for (size_t i = 0; i < n;) {
        int len = utf8_len(p + i, n - i);
        if (len == 0)
            return false;
        i += (size_t)len;
    }
    return true;
}
