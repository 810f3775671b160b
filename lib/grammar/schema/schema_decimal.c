#include "schema_decimal.h"

// false: too long, or no number of JSON.
static bool decimal_read(const char *p, size_t len, struct decimal *d) {
    int64_t exponent = 0, point = -1, n = 0;
    size_t i = 0;
    bool zero = true;
    unsigned char all[2 * MAX_DIGITS];
    *d = (struct decimal){.negative = len > 0 && p[0] == '-'};
    for (i = (size_t)d->negative; i < len && p[i] != 'e' && p[i] != 'E'; i++) {
        if (p[i] == '.') {
            point = n;
            continue;
        }
        if (p[i] < '0' || p[i] > '9' || n >= (int64_t)sizeof all)
            return false;
        all[n++] = (unsigned char)(p[i] - '0');
        zero = zero && p[i] == '0';
    }
    if (i < len) {
        bool minus = i + 1 < len && p[i + 1] == '-';
        for (i += i + 1 < len && (p[i + 1] == '-' || p[i + 1] == '+') ? 2 : 1; i < len; i++)
            exponent = exponent > 100000 ? exponent : exponent * 10 + (p[i] - '0');
        exponent = minus ? -exponent : exponent;
    }
    if (zero) {
        *d = (struct decimal){.num_int = 1};
        return true;
    }
    int64_t first = 0, last = n - 1;
    while (all[first] == 0)
        first++;
    while (all[last] == 0)
        last--;
    int64_t units = (point < 0 ? n : point) + exponent; // digits before the point, counted from all[0]
    int64_t num_int = units - first > 0 ? units - first : 1,
            num_frac = last + 1 - units > 0 ? last + 1 - units : 0;
    if (num_int > MAX_DIGITS || num_frac > MAX_DIGITS)
        return false;
    d->num_int = (int)num_int;
    d->num_frac = (int)num_frac;
    for (int64_t at = 0; at < num_int + num_frac; at++) {
        int64_t from = at + units - num_int;
        d->digits[at] = from < first || from > last ? 0 : all[from];
    }
    return true;
}

static size_t decimal_write(const struct decimal *d, char *out) {
    size_t n = 0;
    if (d->negative)
        out[n++] = '-';
    for (int i = 0; i < d->num_int + d->num_frac; i++) {
        if (i == d->num_int)
            out[n++] = '.';
        out[n++] = (char)('0' + d->digits[i]);
    }
    return n;
}

bool decimal_of(struct schema *s, const struct jdoc_value *v, struct decimal *d) {
    struct text_view t = jdoc_text(&s->doc, v);
    if (decimal_read(t.data, t.len, d))
        return true;
    return schema_fail(s, v, STATUS_INVALID, "expected a number of at most %d digits", MAX_DIGITS);
}

const char *number_text(struct schema *s, const struct jdoc_value *v, size_t *len) {
    struct decimal d;
    char *text = decimal_of(s, v, &d) ? schema_alloc(s, (size_t)(d.num_int + d.num_frac) + 2) : NULL;
    *len = text ? decimal_write(&d, text) : 0;
    return text;
}
