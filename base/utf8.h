// One UTF-8 sequence at a time (Unicode 15, table 3-7: no surrogates, no overlong forms, nothing above
// U+10FFFF).
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

// Whether a byte goes on with a sequence that began before it.
static inline bool utf8_continues(char c) { return ((unsigned char)c & 0xc0) == 0x80; }

// Length of the valid sequence at p, of which n bytes are there; 0: none, or cut off.
static inline int utf8_len(const unsigned char *p, size_t n) {
    unsigned char lo, hi;
    int len = n ? utf8_lead(p[0], &lo, &hi) : 0;
    if (len == 0 || (size_t)len > n)
        return 0;
    if (len > 1 && (p[1] < lo || p[1] > hi))
        return 0;
    for (int i = 2; i < len; i++)
        if (!utf8_continues((char)p[i]))
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

// The code point of the valid sequence at p, and its length.
static inline uint32_t utf8_decode(const char *p, size_t *len) {
    const unsigned char *u = (const unsigned char *)p;
    if (u[0] < 0x80) {
        *len = 1;
        return u[0];
    }
    if (u[0] < 0xe0) {
        *len = 2;
        return (uint32_t)(u[0] & 0x1f) << 6 | (u[1] & 0x3f);
    }
    if (u[0] < 0xf0) {
        *len = 3;
        return (uint32_t)(u[0] & 0x0f) << 12 | (uint32_t)(u[1] & 0x3f) << 6 | (u[2] & 0x3f);
    }
    *len = 4;
    return (uint32_t)(u[0] & 0x07) << 18 | (uint32_t)(u[1] & 0x3f) << 12 | (uint32_t)(u[2] & 0x3f) << 6 |
           (u[3] & 0x3f);
}

// Writes a code point; returns how many bytes.
static inline size_t utf8_encode(char out[4], uint32_t c) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

// Replaces each byte of a NUL-terminated text that is not UTF-8, such as what a cut left over, by '?'.
static inline void utf8_scrub(char *text) {
    for (size_t left = strlen(text); left > 0;) {
        int n = utf8_len((unsigned char *)text, left);
        if (n == 0)
            *text = '?';
        text += n ? n : 1;
        left -= n ? (size_t)n : 1;
    }
}
