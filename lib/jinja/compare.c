#include "compare.h"

#include "op.h"
#include "repr.h"

#include <math.h>
#include <string.h>

int value_order(struct jinja *j, struct value a, struct value b, const char *op, int depth) {
    jinja_steps(j, 1);
    if (depth > JINJA_MAX_VALUE_DEPTH)
        jinja_fail(j, STATUS_LIMIT, "values nested over %d deep", JINJA_MAX_VALUE_DEPTH);
    if (is_integer(a) && is_integer(b))
        return as_int(a) < as_int(b) ? -1 : as_int(a) > as_int(b);
    if (is_number(a) && is_number(b)) {
        double x = as_float(a), y = as_float(b);
        return isnan(x) || isnan(y) ? 2 : x < y ? -1 : x > y;
    }
    if (a.kind == V_STRING && b.kind == V_STRING) { // the order of UTF-8 bytes is that of code points
        size_t n = a.s->len < b.s->len ? a.s->len : b.s->len;
        jinja_bytes(j, n);
        int c = n ? memcmp(a.s->p, b.s->p, n) : 0;
        return c ? (c < 0 ? -1 : 1) : a.s->len < b.s->len ? -1 : a.s->len > b.s->len;
    }
    if (a.kind == b.kind && (a.kind == V_LIST || a.kind == V_TUPLE)) {
        for (size_t i = 0; i < a.l->len && i < b.l->len; i++)
            if (!value_equal(j, a.l->v[i], b.l->v[i], depth + 1))
                return value_order(j, a.l->v[i], b.l->v[i], op, depth + 1);
        return a.l->len < b.l->len ? -1 : a.l->len > b.l->len;
    }
    if (a.kind == V_UNDEFINED || b.kind == V_UNDEFINED)
        jinja_fail_undefined(j, a.kind == V_UNDEFINED ? a : b);
    jinja_fail(j, STATUS_INVALID, "'%s' not supported between instances of '%s' and '%s'", op, value_type(a),
               value_type(b));
}

bool value_contains(struct jinja *j, struct value where, struct value what) {
    if (where.kind == V_STRING) {
        if (what.kind == V_UNDEFINED)
            jinja_fail_undefined(j, what);
        if (what.kind != V_STRING)
            jinja_fail(j, STATUS_INVALID, "'in <string>' requires string as left operand, not %s",
                       value_type(what));
        jinja_bytes(j, where.s->len);
        return str_find(where.s, 0, what.s) != SIZE_MAX;
    }
    if (where.kind == V_DICT)
        return dict_get(j, where.d, what) != NULL;
    const struct list *l = value_items(j, where);
    for (size_t i = 0; i < l->len; i++)
        if (value_equal(j, l->v[i], what, 0))
            return true;
    return false;
}

bool value_compare(struct jinja *j, int op, struct value a, struct value b) {
    switch (op) {
    case OP_EQ: return value_equal(j, a, b, 0);
    case OP_NE: return !value_equal(j, a, b, 0);
    case OP_IN: return value_contains(j, b, a);
    case OP_NOT_IN: return !value_contains(j, b, a);
    case '<': return value_order(j, a, b, "<", 0) == -1;
    case '>': return value_order(j, a, b, ">", 0) == 1;
    case OP_LE: {
        int c = value_order(j, a, b, "<=", 0);
        return c == -1 || c == 0;
    }
    default: {
        int c = value_order(j, a, b, ">=", 0);
        return c == 1 || c == 0;
    }
    }
}

// A stable merge sort, because qsort() is neither stable nor can it fail.
struct list *value_sorted(struct jinja *j, const struct list *keys, const struct list *items, bool reverse) {
    size_t n = items->len;
    size_t *a = jinja_alloc(j, (n + 1) * sizeof *a), *b = jinja_alloc(j, (n + 1) * sizeof *b);
    for (size_t i = 0; i < n; i++)
        a[i] = i;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t lo = 0; lo < n; lo += 2 * width) {
            size_t mid = lo + width < n ? lo + width : n, hi = lo + 2 * width < n ? lo + 2 * width : n;
            for (size_t i = lo, k = mid, o = lo; o < hi; o++) {
                bool left = k >= hi;
                if (!left && i < mid) {
                    int c = value_order(j, keys->v[a[k]], keys->v[a[i]], "<", 0);
                    left = reverse ? c != 1 : c != -1;
                }
                b[o] = left ? a[i++] : a[k++];
            }
        }
        size_t *t = a;
        a = b;
        b = t;
    }
    struct list *l = list_new(j);
    for (size_t i = 0; i < n; i++)
        list_add(j, l, items->v[a[i]]);
    return l;
}
