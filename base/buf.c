#include "buf.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_free(struct buf *b) {
    free(b->data);
    *b = (struct buf){0};
}

bool buf_reserve(struct buf *b, size_t more) {
    if (b->failed)
        return false;
    if (b->cap - b->len >= more)
        return true;
    size_t need, cap = b->cap ? b->cap : 128;
    if (__builtin_add_overflow(b->len, more, &need) || need > SIZE_MAX / 2) {
        b->failed = true;
        return false;
    }
    while (cap < need)
        cap *= 2;
    char *data = realloc(b->data, cap);
    if (!data) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->cap = cap;
    return true;
}

void buf_add(struct buf *b, const void *data, size_t len) {
    if (len == 0 || !buf_reserve(b, len))
        return;
    memcpy(b->data + b->len, data, len);
    b->len += len;
}

void buf_str(struct buf *b, const char *s) { buf_add(b, s, strlen(s)); }
void buf_char(struct buf *b, char c) { buf_add(b, &c, 1); }

void buf_int(struct buf *b, int64_t v) {
    char text[24], *p = text + sizeof text;
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    do {
        *--p = (char)('0' + u % 10);
        u /= 10;
    } while (u);
    if (v < 0)
        *--p = '-';
    buf_add(b, p, (size_t)(text + sizeof text - p));
}

void buf_fmt(struct buf *b, const char *fmt, ...) {
    char text[512];
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof text) {
        buf_add(b, text, (size_t)n);
    } else if (n >= 0 && buf_reserve(b, (size_t)n + 1)) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

void buf_base64(struct buf *b, const void *data, size_t len) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = data;
    if (!buf_reserve(b, (len + 2) / 3 * 4))
        return;
    for (size_t i = 0; i < len; i += 3) {
        size_t n = len - i < 3 ? len - i : 3;
        uint32_t bits =
            (uint32_t)p[i] << 16 | (uint32_t)(n > 1 ? p[i + 1] : 0) << 8 | (uint32_t)(n > 2 ? p[i + 2] : 0);
        for (size_t k = 0; k < 4; k++)
            b->data[b->len++] = k <= n ? digits[bits >> (18 - 6 * k) & 63] : '=';
    }
}

const char *buf_cstr(struct buf *b) {
    if (!buf_reserve(b, 1))
        return NULL;
    b->data[b->len] = '\0';
    return b->data;
}

// Table 3-7 of the Unicode standard: well-formed sequences, by the range of the second byte.
size_t utf8_sequence(const unsigned char *s, size_t len, size_t *bad) {
    *bad = 1;
    if (len == 0)
        return 0;
    unsigned char c = s[0];
    if (c < 0x80)
        return 1;
    size_t n;
    unsigned char lo = 0x80, hi = 0xbf;
    if (c >= 0xc2 && c <= 0xdf) {
        n = 2;
    } else if (c >= 0xe0 && c <= 0xef) {
        n = 3;
        if (c == 0xe0)
            lo = 0xa0;
        if (c == 0xed)
            hi = 0x9f; // surrogates
    } else if (c >= 0xf0 && c <= 0xf4) {
        n = 4;
        if (c == 0xf0)
            lo = 0x90;
        if (c == 0xf4)
            hi = 0x8f; // beyond U+10FFFF
    } else {
        return 0;
    }
    for (size_t i = 1; i < n; i++) {
        if (i >= len || s[i] < lo || s[i] > hi) {
            *bad = i;
            return 0;
        }
        lo = 0x80;
        hi = 0xbf;
    }
    return n;
}

void json_escape(struct buf *b, const char *text, size_t len) {
    static const char hex[] = "0123456789abcdef";
    const unsigned char *s = (const unsigned char *)text;
    size_t start = 0, i = 0;
    while (i < len) {
        unsigned char c = s[i];
        if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\') {
            i++;
            continue;
        }
        if (c >= 0x80) {
            size_t bad, n = utf8_sequence(s + i, len - i, &bad);
            if (n) {
                i += n;
                continue;
            }
            buf_add(b, s + start, i - start);
            buf_lit(b, "\xef\xbf\xbd");
            i += bad;
            start = i;
            continue;
        }
        buf_add(b, s + start, i - start);
        switch (c) {
        case '"': buf_lit(b, "\\\""); break;
        case '\\': buf_lit(b, "\\\\"); break;
        case '\n': buf_lit(b, "\\n"); break;
        case '\r': buf_lit(b, "\\r"); break;
        case '\t': buf_lit(b, "\\t"); break;
        default: {
            char u[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
            buf_add(b, u, sizeof u);
        }
        }
        start = ++i;
    }
    buf_add(b, s + start, len - start);
}

void json_quote(struct buf *b, const char *text, size_t len) {
    buf_char(b, '"');
    json_escape(b, text, len);
    buf_char(b, '"');
}

void json_float(struct buf *b, float v) {
    if (!isfinite(v)) {
        buf_lit(b, "-9999.0");
        return;
    }
    char text[40];
    int n = snprintf(text, sizeof text, "%.17g", (double)v);
    buf_add(b, text, (size_t)n);
}
