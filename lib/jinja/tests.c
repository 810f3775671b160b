#include "tests.h"

#include "compare.h"
#include "op.h"
#include "operators.h"
#include "repr.h"
#include "str_ops.h"

#include <string.h>

#define TEST(name, expression)                                                                               \
    static struct value test_##name(struct jinja *j, struct call *c) {                                       \
        (void)j;                                                                                             \
        struct value v = c->self;                                                                            \
        return value_of_bool(expression);                                                                    \
    }

static int64_t int_modulo(struct jinja *j, struct value v, struct value by) {
    return as_int(jinja_binary(j, '%', value_of_int(value_index(j, v)), value_of_int(value_index(j, by))));
}

static bool is_same(struct jinja *j, struct value a, struct value b) {
    if (a.kind != b.kind)
        return false;
    if (a.kind == V_LIST || a.kind == V_TUPLE || a.kind == V_DICT)
        return a.l == b.l;
    return value_equal(j, a, b, 0);
}

TEST(defined, v.kind != V_UNDEFINED)
TEST(undefined, v.kind == V_UNDEFINED)
TEST(none, v.kind == V_NULL)
TEST(true, v.kind == V_BOOL && v.b)
TEST(false, v.kind == V_BOOL && !v.b)
TEST(boolean, v.kind == V_BOOL)
TEST(integer, v.kind == V_INT)
TEST(float, v.kind == V_FLOAT)
TEST(number, is_number(v))
TEST(string, v.kind == V_STRING)
TEST(mapping, v.kind == V_DICT)
TEST(sequence,
     v.kind == V_LIST || v.kind == V_TUPLE || v.kind == V_STRING || v.kind == V_DICT || v.kind == V_UNDEFINED)
TEST(iterable,
     is_listlike(v) || v.kind == V_STRING || v.kind == V_DICT || v.kind == V_UNDEFINED || v.kind == V_LOOP)
TEST(callable, v.kind == V_MACRO || v.kind == V_FUNCTION || v.kind == V_METHOD || v.kind == V_JOINER ||
                   v.kind == V_LOOP || v.kind == V_UNDEFINED)
TEST(escaped, v.kind == V_STRING && v.s->safe)
TEST(odd, int_modulo(j, v, value_of_int(2)) == 1)
TEST(even, int_modulo(j, v, value_of_int(2)) == 0)
TEST(divisibleby, int_modulo(j, v, c->args[0]) == 0)
TEST(lower, text_one_case(j, value_str(j, v), false))
TEST(upper, text_one_case(j, value_str(j, v), true))
TEST(sameas, is_same(j, v, c->args[0]))
TEST(in, value_compare(j, OP_IN, v, c->args[0]))
TEST(eq, value_compare(j, OP_EQ, v, c->args[0]))
TEST(ne, value_compare(j, OP_NE, v, c->args[0]))
TEST(lt, value_compare(j, '<', v, c->args[0]))
TEST(le, value_compare(j, OP_LE, v, c->args[0]))
TEST(gt, value_compare(j, '>', v, c->args[0]))
TEST(ge, value_compare(j, OP_GE, v, c->args[0]))
TEST(filter, v.kind == V_STRING && builtin_find(j->lib->filters, v.s->p, v.s->len) != NULL)
TEST(test, v.kind == V_STRING && builtin_find(j->lib->tests, v.s->p, v.s->len) != NULL)

const struct builtin jinja_tests[] = {
    {"defined", test_defined, "", 0},    {"undefined", test_undefined, "", 0},
    {"none", test_none, "", 0},          {"true", test_true, "", 0},
    {"false", test_false, "", 0},        {"boolean", test_boolean, "", 0},
    {"integer", test_integer, "", 0},    {"float", test_float, "", 0},
    {"number", test_number, "", 0},      {"string", test_string, "", 0},
    {"mapping", test_mapping, "", 0},    {"sequence", test_sequence, "", 0},
    {"iterable", test_iterable, "", 0},  {"callable", test_callable, "", 0},
    {"escaped", test_escaped, "", 0},    {"odd", test_odd, "", 0},
    {"even", test_even, "", 0},          {"divisibleby", test_divisibleby, "num", 1},
    {"lower", test_lower, "", 0},        {"upper", test_upper, "", 0},
    {"sameas", test_sameas, "other", 1}, {"in", test_in, "seq", 1},
    {"eq", test_eq, "!other", 1},        {"equalto", test_eq, "!other", 1},
    {"==", test_eq, "!other", 1},        {"ne", test_ne, "!other", 1},
    {"!=", test_ne, "!other", 1},        {"lt", test_lt, "!other", 1},
    {"lessthan", test_lt, "!other", 1},  {"<", test_lt, "!other", 1},
    {"le", test_le, "!other", 1},        {"<=", test_le, "!other", 1},
    {"gt", test_gt, "!other", 1},        {"greaterthan", test_gt, "!other", 1},
    {">", test_gt, "!other", 1},         {"ge", test_ge, "!other", 1},
    {">=", test_ge, "!other", 1},        {"filter", test_filter, "", 0},
    {"test", test_test, "", 0},          {0},
};
