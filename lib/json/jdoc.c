// See jdoc.h.
#include "jdoc.h"

#include "hash.h"
#include "utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

struct jdoc_reader {
    struct jdoc *j;
    size_t at;
    struct err *err;
};

enum status jdoc_bad(const struct jdoc *j, struct err *err, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    enum status status = err_set_named(err, STATUS_FORMAT, j->name, fmt, ap);
    va_end(ap);
    return status;
}

static bool jdoc_expected(struct jdoc_reader *r, const char *what) {
    const struct jdoc *j = r->j;
    if (r->at >= j->len)
        jdoc_bad(j, r->err, "the text ends at byte %zu, expected %s", j->len, what);
    else
        jdoc_bad(j, r->err, "byte %zu is 0x%02x, expected %s", r->at, (unsigned char)j->text[r->at], what);
    return false;
}

static void skip_space(struct jdoc_reader *r) {
    const char *text = r->j->text;
    while (r->at < r->j->len && (text[r->at] == ' ' || (text[r->at] >= '\t' && text[r->at] <= '\r' &&
                                                        text[r->at] != '\v' && text[r->at] != '\f')))
        r->at++;
}

// Index of a new value; SIZE_MAX: out of memory.
static size_t add_value(struct jdoc_reader *r, enum jdoc_type type, size_t at, size_t len) {
    struct jdoc *j = r->j;
    if (j->num == j->cap) {
        size_t cap = j->cap + j->cap / 2 + 256;
        struct jdoc_value *v = realloc(j->values, cap * sizeof *v);
        if (!v) {
            err_set(r->err, STATUS_NOMEM, "%s: out of memory for %zu values", j->name, cap);
            return SIZE_MAX;
        }
        j->values = v;
        j->cap = cap;
    }
    j->values[j->num] = (struct jdoc_value){(uint32_t)at, (uint32_t)len, (uint32_t)j->num + 1, (uint8_t)type};
    return j->num++;
}

static int hex4(const char *p) {
    int v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        v = v * 16 + digit;
    }
    return v;
}

// The character of an escape of four digits, of two of them where it is a pair of surrogates. -1: neither.
static int32_t take_escape(struct jdoc_reader *r) {
    const struct jdoc *j = r->j;
    const char *p = j->text + r->at;
    size_t left = j->len - r->at;
    int32_t high = left >= 6 ? hex4(p + 2) : -1;
    r->at += 6;
    if (high < 0xd800 || high > 0xdfff)
        return high;
    int32_t low = high < 0xdc00 && left >= 12 && p[6] == '\\' && p[7] == 'u' ? hex4(p + 8) : -1;
    r->at += 6;
    return low < 0xdc00 || low > 0xdfff ? -1 : 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}

// One escape at r->at, decoded to out; bytes of it, 0: no JSON escape.
static size_t decode_escape(struct jdoc_reader *r, char out[4]) {
    static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    size_t begin = r->at;
    char c = r->at + 1 < r->j->len ? r->j->text[r->at + 1] : 0;
    const char *name = c ? strchr(names, c) : NULL;
    if (name) {
        *out = meant[name - names];
        r->at += 2;
        return 1;
    }
    int32_t cp = c == 'u' ? take_escape(r) : -1;
    if (cp >= 0)
        return utf8_encode(out, (uint32_t)cp);
    r->at = begin;
    return 0;
}

static bool read_string(struct jdoc_reader *r) {
    struct jdoc *j = r->j;
    size_t first = ++r->at, end = first; // decoded text never is longer
    while (r->at < j->len && j->text[r->at] != '"') {
        int n = utf8_len((const unsigned char *)j->text + r->at, j->len - r->at);
        if (j->text[r->at] == '\\') {
            char c[4];
            size_t bytes = decode_escape(r, c);
            if (bytes == 0)
                return jdoc_expected(r, "an escape of JSON");
            memcpy(j->text + end, c, bytes);
            end += bytes;
        } else if (n == 0 || (unsigned char)j->text[r->at] < 0x20) {
            return jdoc_expected(r, "UTF-8 without control characters in a string");
        } else {
            memmove(j->text + end, j->text + r->at, (size_t)n);
            end += (size_t)n;
            r->at += (size_t)n;
        }
    }
    if (r->at >= j->len)
        return jdoc_expected(r, "the end of a string");
    r->at++;
    return add_value(r, JDOC_STRING, first, end - first) != SIZE_MAX;
}

static bool take_digits(struct jdoc_reader *r) {
    size_t begin = r->at;
    while (r->at < r->j->len && r->j->text[r->at] >= '0' && r->j->text[r->at] <= '9')
        r->at++;
    return r->at > begin;
}

static bool take_word(struct jdoc_reader *r, const char *word) {
    size_t n = strlen(word);
    if (r->j->len - r->at < n || memcmp(r->j->text + r->at, word, n) != 0)
        return false;
    r->at += n;
    return true;
}

static bool read_number(struct jdoc_reader *r) {
    size_t begin = r->at;
    take_word(r, "-");
    if (!take_word(r, "Infinity") && !take_word(r, "NaN")) {
        if (!take_word(r, "0") && !take_digits(r))
            return jdoc_expected(r, "a value of JSON");
        if (take_word(r, ".") && !take_digits(r))
            return jdoc_expected(r, "a digit");
        if (take_word(r, "e") || take_word(r, "E")) {
            if (!take_word(r, "+"))
                take_word(r, "-");
            if (!take_digits(r))
                return jdoc_expected(r, "a digit");
        }
    }
    return add_value(r, JDOC_NUMBER, begin, r->at - begin) != SIZE_MAX;
}

// Whether two members of an object have the same key; says so. Keys are in a hash table of twice their number.
static bool has_twice(struct jdoc_reader *r, size_t object) {
    const struct jdoc *j = r->j;
    const struct jdoc_value *o = &j->values[object];
    size_t size = 4;
    uint64_t seed = hash_seed();
    while (size < 2 * (size_t)o->len)
        size *= 2;
    uint32_t *table = o->len > 1 ? calloc(size, sizeof *table) : NULL;
    if (o->len > 1 && !table) {
        err_set(r->err, STATUS_NOMEM, "%s: out of memory for an object", j->name);
        return true;
    }
    bool twice = false;
    for (const struct jdoc_value *k = o + 1; table && !twice && k < j->values + j->num;
         k = j->values + k[1].next) {
        size_t s = hash_bytes(seed, j->text + k->at, k->len) & (size - 1);
        for (; table[s] && !twice; s = (s + 1) & (size - 1)) {
            const struct jdoc_value *other = &j->values[table[s]];
            twice = other->len == k->len && memcmp(j->text + other->at, j->text + k->at, k->len) == 0;
        }
        table[s] = (uint32_t)(k - j->values);
        if (twice)
            jdoc_bad(j, r->err, "key %.*s at byte %u is there twice", (int)(k->len < 96 ? k->len : 96),
                     j->text + k->at, k->at);
    }
    free(table);
    return twice;
}

static bool read_value(struct jdoc_reader *r, int depth);

static bool read_members(struct jdoc_reader *r, bool object, int depth) {
    struct jdoc *j = r->j;
    char end = object ? '}' : ']';
    size_t self = add_value(r, object ? JDOC_OBJECT : JDOC_ARRAY, r->at, 0);
    uint32_t count = 0;
    if (self == SIZE_MAX)
        return false;
    if (depth >= JDOC_MAX_DEPTH) {
        jdoc_bad(j, r->err, "byte %zu is nested deeper than %d", r->at, JDOC_MAX_DEPTH);
        return false;
    }
    r->at++;
    skip_space(r);
    for (bool more = !(r->at < j->len && j->text[r->at] == end); more; count++) {
        if (object) {
            skip_space(r);
            if (r->at >= j->len || j->text[r->at] != '"')
                return jdoc_expected(r, "a key");
            if (!read_string(r))
                return false;
            skip_space(r);
            if (!take_word(r, ":"))
                return jdoc_expected(r, "a colon");
        }
        if (!read_value(r, depth + 1))
            return false;
        skip_space(r);
        more = take_word(r, ",");
    }
    if (r->at >= j->len || j->text[r->at] != end)
        return jdoc_expected(r,
                             object ? "a comma or the end of an object" : "a comma or the end of an array");
    r->at++;
    j->values[self].len = count;
    j->values[self].next = (uint32_t)j->num;
    return !object || !has_twice(r, self);
}

static bool read_value(struct jdoc_reader *r, int depth) {
    skip_space(r);
    char c = r->at < r->j->len ? r->j->text[r->at] : 0;
    size_t at = r->at;
    if (c == '{' || c == '[')
        return read_members(r, c == '{', depth);
    if (c == '"')
        return read_string(r);
    if (take_word(r, "null"))
        return add_value(r, JDOC_NULL, at, 0) != SIZE_MAX;
    if (take_word(r, "true"))
        return add_value(r, JDOC_TRUE, at, 0) != SIZE_MAX;
    if (take_word(r, "false"))
        return add_value(r, JDOC_FALSE, at, 0) != SIZE_MAX;
    return read_number(r);
}

enum status jdoc_parse(struct jdoc *j, const char *name, char *text, size_t len, struct err *err) {
    struct err local = {0};
    struct jdoc_reader r = {.j = j, .err = err ? err : &local};
    *j = (struct jdoc){.text = text, .len = len};
    snprintf(j->name, sizeof j->name, "%s", name);
    if (len >= UINT32_MAX / 2)
        return jdoc_bad(j, err, "%zu bytes are too long for JSON", len);
    text[len] = 0;
    if (!read_value(&r, 0))
        return r.err->code;
    skip_space(&r);
    if (r.at < len) {
        jdoc_expected(&r, "nothing behind the value");
        return r.err->code;
    }
    return STATUS_OK;
}

void jdoc_free(struct jdoc *j) {
    free(j->text);
    free(j->values);
    *j = (struct jdoc){0};
}

// ---- looking

const struct jdoc_value *jdoc_first(const struct jdoc *j, const struct jdoc_value *v) {
    (void)j;
    return v && (v->type == JDOC_ARRAY || v->type == JDOC_OBJECT) && v->len > 0 ? v + 1 : NULL;
}

const struct jdoc_value *jdoc_after(const struct jdoc *j, const struct jdoc_value *v,
                                    const struct jdoc_value *element, bool object) {
    const struct jdoc_value *next = j->values + (object ? element[1].next : element->next);
    return next < j->values + v->next ? next : NULL;
}

const struct jdoc_value *jdoc_find(const struct jdoc *j, const struct jdoc_value *v, const char *key) {
    if (!v || v->type != JDOC_OBJECT)
        return NULL;
    JDOC_EACH_KEY(j, k, v)
    if (jdoc_is(j, k, key))
        return k + 1;
    return NULL;
}

const struct jdoc_value *jdoc_get(const struct jdoc *j, const struct jdoc_value *v, const char *key) {
    const struct jdoc_value *found = jdoc_find(j, v, key);
    return found && found->type != JDOC_NULL ? found : NULL;
}

struct text_view jdoc_text(const struct jdoc *j, const struct jdoc_value *v) {
    return (struct text_view){j->text + v->at, v->len};
}

bool jdoc_is(const struct jdoc *j, const struct jdoc_value *v, const char *text) {
    return v && v->type == JDOC_STRING && v->len == strlen(text) &&
           memcmp(j->text + v->at, text, v->len) == 0;
}

double jdoc_number(const struct jdoc *j, const struct jdoc_value *v) {
    return v && v->type == JDOC_NUMBER ? strtod(j->text + v->at, NULL) : (double)NAN;
}

bool jdoc_integer(const struct jdoc *j, const struct jdoc_value *v, int64_t *i) {
    double d = jdoc_number(j, v);
    if (!(fabs(d) <= 0x1p53) || d != floor(d))
        return false;
    *i = (int64_t)d;
    return true;
}

const char *jdoc_type_name(const struct jdoc_value *v) {
    static const char *const names[] = {"null",     "false",    "true",     "a number",
                                        "a string", "an array", "an object"};
    return v ? names[v->type] : "absent";
}
