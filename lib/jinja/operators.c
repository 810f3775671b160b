// Python's rules, in 64 bits: what does not fit is an error.
#include "operators.h"

#include "builtin.h"
#include "format.h"
#include "op.h"
#include "repr.h"
#include "str_ops.h"

#include <math.h>
#include <string.h>

_Noreturn static void too_large(struct jinja *j) { jinja_fail(j, STATUS_INVALID, "an integer over 64 bits"); }

// ---- attributes and items

static struct value loop_attr(struct jinja *j, struct value v, const struct str *name) {
    const struct jinja_loop *l = v.loop;
    int64_t at = (int64_t)l->at, len = (int64_t)l->items->len;
    if (str_is(name, "index"))
        return value_of_int(at + 1);
    if (str_is(name, "index0"))
        return value_of_int(at);
    if (str_is(name, "revindex"))
        return value_of_int(len - at);
    if (str_is(name, "revindex0"))
        return value_of_int(len - at - 1);
    if (str_is(name, "first"))
        return value_of_bool(at == 0);
    if (str_is(name, "last"))
        return value_of_bool(at == len - 1);
    if (str_is(name, "length"))
        return value_of_int(len);
    if (str_is(name, "depth"))
        return value_of_int(1);
    if (str_is(name, "depth0"))
        return value_of_int(0);
    if (str_is(name, "previtem") || str_is(name, "nextitem")) {
        bool previous = name->p[0] == 'p';
        if (previous ? at > 0 : at + 1 < len)
            return l->items->v[previous ? at - 1 : at + 1];
        struct value u = value_undefined(j, NULL, value_null());
        u.u->message = previous ? "there is no previous item" : "there is no next item";
        return u;
    }
    return (struct value){.kind = V_ABSENT};
}

// A method of Python's type that the object has under this name; V_ABSENT: none.
static struct value method_of(struct jinja *j, struct value v, const struct str *name) {
    const struct builtin *fn = builtin_method(j->lib, v.kind, name->p, name->len);
    if (!fn)
        return (struct value){.kind = V_ABSENT};
    if (!fn->fn) {
        struct marked b = {0};
        struct value u = value_undefined(j, NULL, value_null());
        marked_puts(j, &b, "access to attribute '");
        marked_puts(j, &b, fn->name);
        marked_puts(j, &b, "' of '");
        marked_puts(j, &b, value_type(v));
        marked_puts(j, &b, "' object is unsafe.");
        marked_put(j, &b, "", 1, false);
        u.u->message = b.p;
        return u;
    }
    struct method *m = jinja_alloc(j, sizeof *m);
    *m = (struct method){.self = v, .fn = fn};
    return (struct value){.kind = V_METHOD, .method = m};
}

static struct value missing_member(struct jinja *j, struct value of, struct value name) {
    if (of.kind == V_UNDEFINED)
        jinja_fail_undefined(j, of);
    return value_undefined(j, value_type(of), name);
}

// v.name: a method first, then a member, as in Jinja.
struct value jinja_attr(struct jinja *j, struct value v, const struct str *name) {
    struct value r = method_of(j, v, name);
    if (r.kind != V_ABSENT)
        return r;
    if (v.kind == V_DICT || v.kind == V_NAMESPACE) {
        jinja_bytes(j, name->len);
        const struct value *member = dict_get_text(j->a, v.d, name->p, name->len);
        if (member)
            return *member;
    }
    if (v.kind == V_LOOP && (r = loop_attr(j, v, name)).kind != V_ABSENT)
        return r;
    if (v.kind == V_CYCLER && str_is(name, "current"))
        return v.cycler->items->v[v.cycler->at];
    if (v.kind == V_MACRO && str_is(name, "name"))
        return value_of_str(str_part(j, v.macro->name, 0, v.macro->name->len));
    return missing_member(j, v, value_of_str(str_part(j, name, 0, name->len)));
}

static size_t code_point_at(struct jinja *j, const struct str *s, size_t index) {
    size_t at = 0;
    jinja_bytes(j, s->len);
    while (at < s->len && index--) {
        size_t n;
        utf8_decode(s->p + at, &n);
        at += n;
    }
    return at;
}

// v[key]: a member first, then a method.
struct value jinja_item(struct jinja *j, struct value v, struct value key) {
    if (v.kind == V_DICT) {
        const struct value *member = dict_get(j, v.d, key);
        if (member)
            return *member;
    } else if ((v.kind == V_LIST || v.kind == V_TUPLE || v.kind == V_STRING) && is_integer(key)) {
        int64_t len = (int64_t)(v.kind == V_STRING ? str_count(j, v.s) : v.l->len), i = as_int(key);
        if (i < 0)
            i += len;
        if (i >= 0 && i < len && v.kind != V_STRING)
            return v.l->v[i];
        if (i >= 0 && i < len) {
            size_t at = code_point_at(j, v.s, (size_t)i), n;
            utf8_decode(v.s->p + at, &n);
            return value_of_str(str_part(j, v.s, at, at + n));
        }
    }
    if (v.kind == V_UNDEFINED)
        jinja_fail_undefined(j, v);
    if (key.kind == V_STRING && v.kind != V_DICT)
        return jinja_attr(j, v, key.s);
    if (key.kind == V_STRING) {
        struct value r = method_of(j, v, key.s);
        if (r.kind != V_ABSENT)
            return r;
    }
    return missing_member(j, v, key);
}

static int64_t slice_bound(struct jinja *j, struct value v, int64_t len, int64_t lowest, int64_t highest,
                           int64_t absent) {
    if (v.kind == V_NULL)
        return absent;
    if (v.kind == V_UNDEFINED)
        jinja_fail_undefined(j, v);
    if (!is_integer(v))
        jinja_fail(j, STATUS_INVALID, "slice indices must be integers or None");
    int64_t i = as_int(v);
    if (i < 0)
        i = i < -len ? lowest : i + len;
    return i < lowest ? lowest : i > highest ? highest : i;
}

struct value jinja_slice(struct jinja *j, struct value v, struct value from, struct value to,
                         struct value step) {
    if (v.kind == V_UNDEFINED)
        jinja_fail_undefined(j, v);
    if (v.kind != V_STRING && v.kind != V_LIST && v.kind != V_TUPLE)
        jinja_fail(j, STATUS_INVALID, "'%s' object is not subscriptable", value_type(v));
    int64_t len = (int64_t)(v.kind == V_STRING ? str_count(j, v.s) : v.l->len);
    slice_bound(j, step, 0, 0, 0, 0); // its type
    int64_t by = step.kind == V_NULL ? 1 : as_int(step);
    if (by == 0)
        jinja_fail(j, STATUS_INVALID, "slice step cannot be zero");
    int64_t lo = by > 0 ? 0 : -1, hi = by > 0 ? len : len - 1;
    int64_t i = slice_bound(j, from, len, lo, hi, by > 0 ? lo : hi);
    int64_t end = slice_bound(j, to, len, lo, hi, by > 0 ? hi : lo);
    if (by > len + 1)
        by = len + 1; // one step leaves either way
    if (by < -len - 1)
        by = -len - 1;
    if (v.kind == V_STRING && by == 1) {
        size_t a = code_point_at(j, v.s, (size_t)i), b = i < end ? code_point_at(j, v.s, (size_t)end) : a;
        return value_of_str(str_part(j, v.s, a, b));
    }
    const struct list *l = value_items(j, v);
    struct list *part = list_new(j);
    struct marked b = {0};
    for (; by > 0 ? i < end : i > end; i += by) {
        if (v.kind == V_STRING)
            marked_put_str(j, &b, l->v[i].s);
        else
            list_add(j, part, l->v[i]);
    }
    return v.kind == V_STRING ? value_of_str(marked_str(j, &b)) : value_of_list(v.kind, part);
}

// ---- arithmetic

static struct value int_power(struct jinja *j, int64_t base, int64_t exponent) {
    int64_t r = 1;
    for (;;) {
        if ((exponent & 1) && __builtin_mul_overflow(r, base, &r))
            too_large(j);
        exponent >>= 1;
        if (!exponent)
            return value_of_int(r);
        if (__builtin_mul_overflow(base, base, &base)) // the highest bit of the exponent is still to come
            too_large(j);
    }
}

static struct value int_arithmetic(struct jinja *j, int op, int64_t a, int64_t b) {
    int64_t r = 0;
    switch (op) {
    case '+':
        if (__builtin_add_overflow(a, b, &r))
            too_large(j);
        return value_of_int(r);
    case '-':
        if (__builtin_sub_overflow(a, b, &r))
            too_large(j);
        return value_of_int(r);
    case '*':
        if (__builtin_mul_overflow(a, b, &r))
            too_large(j);
        return value_of_int(r);
    case OP_POW: return int_power(j, a, b);
    default: break;
    }
    if (b == 0)
        jinja_fail(j, STATUS_INVALID, "integer division or modulo by zero");
    if (op == '%')
        return value_of_int(b == -1 ? 0 : (r = a % b) != 0 && (r < 0) != (b < 0) ? r + b : r);
    if (b == -1 && a == INT64_MIN)
        too_large(j);
    return value_of_int(a / b - (a % b != 0 && (a < 0) != (b < 0)));
}

static struct value float_arithmetic(struct jinja *j, int op, double a, double b) {
    double r;
    switch (op) {
    case '+': return value_of_float(a + b);
    case '-': return value_of_float(a - b);
    case '*': return value_of_float(a * b);
    case OP_POW:
        if (a == 0 && b < 0)
            jinja_fail(j, STATUS_INVALID, "0.0 cannot be raised to a negative power");
        r = pow(a, b);
        if (isnan(r) && !isnan(a) && !isnan(b))
            jinja_fail(j, STATUS_INVALID, "complex numbers are not supported");
        if (isinf(r) && isfinite(a) && isfinite(b))
            jinja_fail(j, STATUS_INVALID, "a power too large");
        return value_of_float(r);
    default: break;
    }
    if (b == 0)
        jinja_fail(j, STATUS_INVALID, "float division by zero");
    if (op == '/')
        return value_of_float(a / b);
    r = fmod(a, b);
    if (r != 0 && (r < 0) != (b < 0))
        r += b;
    if (op == '%')
        return value_of_float(r == 0 ? copysign(0, b) : r);
    double q = (a - r) / b, floored = floor(q);
    return value_of_float(q - floored > 0.5 ? floored + 1 : floored);
}

static struct value repeat_value(struct jinja *j, struct value v, struct value times) {
    size_t n = as_int(times) > 0 ? (size_t)as_int(times) : 0, len = v.kind == V_STRING ? v.s->len : v.l->len;
    if (len && n > JINJA_MAX_MEMORY(j->a->input) / len)
        jinja_fail(j, STATUS_LIMIT, "the chat template needs too much memory");
    struct marked b = {0};
    struct list *l = list_new(j);
    if (v.kind == V_STRING && len && n)
        marked_reserve(j, &b, n * len);
    for (size_t i = 0; len && i < n; i++) {
        if (v.kind == V_STRING)
            marked_put_str(j, &b, v.s);
        for (size_t k = 0; v.kind != V_STRING && k < len; k++)
            list_add(j, l, v.l->v[k]);
    }
    return v.kind == V_STRING ? value_of_str(marked_str(j, &b)) : value_of_list(v.kind, l);
}

static struct value add_values(struct jinja *j, struct value a, struct value b) {
    if (a.kind == V_STRING) {
        bool safe = a.s->safe || b.s->safe;
        const struct str *x = safe && !a.s->safe ? text_escape(j, a.s) : a.s;
        const struct str *y = safe && !b.s->safe ? text_escape(j, b.s) : b.s;
        struct str *s = str_concat(j, x, y);
        s->safe = safe;
        return value_of_str(s);
    }
    struct list *l = list_new(j);
    for (size_t i = 0; i < a.l->len; i++)
        list_add(j, l, a.l->v[i]);
    for (size_t i = 0; i < b.l->len; i++)
        list_add(j, l, b.l->v[i]);
    return value_of_list(a.kind, l);
}

struct value jinja_binary(struct jinja *j, int op, struct value a, struct value b) {
    char name[3] = {(char)op, 0, 0};
    if (op == OP_FLOORDIV || op == OP_POW)
        name[0] = name[1] = op == OP_POW ? '*' : '/';
    if (is_integer(a) && is_integer(b)) {
        if (op == '/')
            return float_arithmetic(j, op, as_float(a), as_float(b));
        if (op == OP_POW && as_int(b) < 0)
            return float_arithmetic(j, op, as_float(a), as_float(b));
        return int_arithmetic(j, op, as_int(a), as_int(b));
    }
    if (is_number(a) && is_number(b))
        return float_arithmetic(j, op, as_float(a), as_float(b));
    if (op == '%' && a.kind == V_STRING)
        return text_percent(j, a.s, b);
    bool a_repeats = a.kind == V_STRING || a.kind == V_LIST || a.kind == V_TUPLE;
    bool b_repeats = b.kind == V_STRING || b.kind == V_LIST || b.kind == V_TUPLE;
    if (op == '+' && a.kind == b.kind && a_repeats)
        return add_values(j, a, b);
    if (op == '*' && a_repeats && is_integer(b))
        return repeat_value(j, a, b);
    if (op == '*' && b_repeats && is_integer(a))
        return repeat_value(j, b, a);
    if (a.kind == V_UNDEFINED || (b.kind == V_UNDEFINED && !a_repeats))
        jinja_fail_undefined(j, a.kind == V_UNDEFINED ? a : b);
    if (op == '+' && a.kind == V_STRING && b.kind != V_UNDEFINED)
        jinja_fail(j, STATUS_INVALID, "can only concatenate str (not \"%s\") to str", value_type(b));
    if (b.kind == V_UNDEFINED)
        jinja_fail_undefined(j, b);
    jinja_fail(j, STATUS_INVALID, "unsupported operand type(s) for %s: '%s' and '%s'", name, value_type(a),
               value_type(b));
}
