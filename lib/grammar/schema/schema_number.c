// Forms of numbers: automata over decimals that keep one small state for each constraint.
//
// A constrained number accepts decimals without exponents: a bound refuses 1e2.
#include "schema_decimal.h"
#include "schema_explore.h"
#include "schema_state.h"

#include <stdlib.h>

enum { MAX_CONSTRAINTS = 12, MAX_DIVISOR = 50000 };

// ---- the automaton of constraints

struct number_constraint {
    enum fact_kind kind;
    bool negated, exclusive;
    struct decimal d; // bound, value
    int64_t divisor;  // of the number times 10^scale
    int scale;
};
struct number_rules {
    int num;
    bool whole;    // some rule asks for integers
    bool fraction; // digits behind a point are taken at all
    struct number_constraint list[MAX_CONSTRAINTS];
};

enum { BEGIN, MINUS, ZERO, INTEGER, POINT, FRACTION };
enum { CLASS_MINUS = 10, CLASS_POINT, CLASS_OTHER, NUM_CLASSES };
// c of a comparison: position * 4 + 0 the same so far, 1 less, 2 more (in size). Of a divisor: position * 2^32 +
// remainder, or -1: no multiple.
struct number_state {
    int64_t c[MAX_CONSTRAINTS];
    int32_t phase;
    uint8_t negative, broken; // broken: a digit behind the point is not 0
    uint8_t unused[2];
};

static void compare_digit(const struct decimal *d, int64_t *c, bool in_fraction, int digit) {
    int64_t at = *c / 4, verdict = *c % 4;
    int own = in_fraction ? (at < d->num_frac ? d->digits[d->num_int + at] : 0)
                          : (at < d->num_int ? d->digits[at] : 0);
    if (verdict == 0 && own != digit)
        verdict = digit < own ? 1 : 2;
    if (in_fraction) { // positions matter only while all is the same
        at = verdict != 0 ? 0 : at < d->num_frac ? at + 1 : at;
    } else {
        at++;
        if (at > d->num_int) { // longer
            at = d->num_int + 1;
            verdict = 2;
        }
    }
    *c = at * 4 + verdict;
}

// At the point, or the end: fewer digits are less.
static int64_t compare_integer_end(const struct decimal *d, int64_t c) {
    return c / 4 < d->num_int ? 1 : c % 4;
}

static void divide_digit(const struct number_constraint *r, int64_t *c, bool in_fraction, int digit) {
    if (*c < 0)
        return;
    int64_t at = *c >> 32, rest = *c & 0xffffffff;
    if (in_fraction && at >= r->scale) {
        if (digit != 0)
            *c = -1;
        return;
    }
    *c = (at + in_fraction) << 32 | (rest * 10 + digit) % r->divisor;
}

static bool number_step(const void *arg, const void *state, int class, void *next) {
    const struct number_rules *r = arg;
    const struct number_state *from = state;
    struct number_state *to = next;
    *to = *from;
    if (class == CLASS_MINUS) {
        to->phase = MINUS;
        to->negative = 1;
        return from->phase == BEGIN;
    }
    if (class == CLASS_POINT) {
        to->phase = POINT;
        for (int i = 0; i < r->num; i++)
            if (r->list[i].kind != FACT_MULTIPLE && r->list[i].kind != FACT_INTEGER)
                to->c[i] = compare_integer_end(&r->list[i].d, from->c[i]);
        return r->fraction && (from->phase == ZERO || from->phase == INTEGER);
    }
    if (class == CLASS_OTHER || from->phase == ZERO)
        return false;
    bool in_fraction = from->phase == POINT || from->phase == FRACTION;
    to->phase = in_fraction ? FRACTION : class == 0 && from->phase != INTEGER ? ZERO : INTEGER;
    for (int i = 0; i < r->num; i++) {
        if (r->list[i].kind == FACT_MULTIPLE)
            divide_digit(&r->list[i], &to->c[i], in_fraction, class);
        else if (r->list[i].kind != FACT_INTEGER)
            compare_digit(&r->list[i].d, &to->c[i], in_fraction, class);
    }
    if (in_fraction && class != 0 && r->whole)
        to->broken = 1;
    return true;
}

// The whole number, compared with d: -1, 0, 1.
static int number_verdict(const struct decimal *d, const struct number_state *s) {
    int64_t verdict, at = s->c[0] / 4;
    bool zero = d->num_int == 1 && d->num_frac == 0 && d->digits[0] == 0;
    if (s->phase == FRACTION)
        verdict = s->c[0] % 4 == 0 && at < d->num_frac ? 1 : s->c[0] % 4;
    else {
        verdict = compare_integer_end(d, s->c[0]);
        if (verdict == 0 && d->num_frac > 0)
            verdict = 1;
    }
    if (zero)
        return verdict == 0 ? 0 : s->negative ? -1 : 1;
    if (d->negative != s->negative) // which may be -0: still on that side of d
        return s->negative ? -1 : 1;
    int size = verdict == 0 ? 0 : verdict == 1 ? -1 : 1;
    return s->negative ? -size : size;
}

static bool constraint_holds(const struct number_constraint *r, const struct number_state *s, int64_t c) {
    struct number_state own = {.c = {c}, .phase = s->phase, .negative = s->negative};
    if (r->kind == FACT_INTEGER)
        return !s->broken != r->negated;
    if (r->kind == FACT_MULTIPLE) {
        int64_t rest = c < 0 ? 1 : c & 0xffffffff;
        for (int64_t at = c < 0 ? 0 : c >> 32; rest != 0 && c >= 0 && at < r->scale; at++)
            rest = rest * 10 % r->divisor;
        return (rest == 0) != r->negated;
    }
    int verdict = number_verdict(&r->d, &own);
    if (r->kind == FACT_ONE_OF)
        return (verdict == 0) != r->negated;
    return verdict == 0 ? !r->exclusive : (r->kind == FACT_AT_LEAST) == (verdict > 0);
}

static int32_t number_label(const void *arg, const void *state) {
    const struct number_rules *r = arg;
    const struct number_state *s = state;
    if (s->phase != ZERO && s->phase != INTEGER && s->phase != FRACTION)
        return -1;
    for (int i = 0; i < r->num; i++)
        if (!constraint_holds(&r->list[i], s, s->c[i]))
            return -1;
    return 0;
}

static struct explore number_explore(const void *arg) {
    struct explore x = {.state_size = sizeof(struct number_state),
                        .num_classes = NUM_CLASSES,
                        .num_labels = 1,
                        .arg = arg,
                        .step = number_step,
                        .label = number_label};
    memset(x.class_of, CLASS_OTHER, sizeof x.class_of);
    for (int i = 0; i < 10; i++)
        x.class_of['0' + i] = (uint8_t)i;
    x.class_of['-'] = CLASS_MINUS;
    x.class_of['.'] = CLASS_POINT;
    return x;
}

static struct number_constraint *rules_add(struct schema *s, struct number_rules *r, const struct fact *f) {
    if (r->num == MAX_CONSTRAINTS) {
        schema_fail(s, f->node, STATUS_LIMIT, "more than %d constraints of one number", MAX_CONSTRAINTS);
        return NULL;
    }
    struct number_constraint *c = &r->list[r->num++];
    *c = (struct number_constraint){.kind = f->kind, .negated = f->negated};
    return c;
}

static bool rules_add_multiple(struct schema *s, struct number_rules *r, const struct fact *f) {
    struct number_constraint *c = rules_add(s, r, f);
    if (!c || !decimal_of(s, f->node, &c->d))
        return false;
    c->scale = c->d.num_frac;
    for (int i = 0; i < c->d.num_int + c->d.num_frac && c->divisor <= MAX_DIVISOR; i++)
        c->divisor = c->divisor * 10 + c->d.digits[i];
    if (c->d.negative || c->divisor == 0)
        return schema_fail(s, f->node, STATUS_INVALID, "expected a number above 0");
    if (c->divisor > MAX_DIVISOR)
        return schema_fail(s, f->node, STATUS_INVALID, "is not supported above %d", MAX_DIVISOR);
    return true;
}

// OpenAPI's formats of integers.
static const struct number_format {
    const char *name, *least, *most;
} number_formats[] = {{"int8", "-128", "127"},
                      {"uint8", "0", "255"},
                      {"int16", "-32768", "32767"},
                      {"uint16", "0", "65535"},
                      {"int32", "-2147483648", "2147483647"},
                      {"uint32", "0", "4294967295"},
                      {"int64", "-9223372036854775808", "9223372036854775807"},
                      {"uint64", "0", "18446744073709551615"}};

static const struct number_format *number_format(const struct schema *s, const struct jdoc_value *v) {
    for (size_t i = 0; i < sizeof number_formats / sizeof *number_formats; i++)
        if (jdoc_is(&s->doc, v, number_formats[i].name))
            return &number_formats[i];
    return NULL;
}

bool number_format_known(const struct schema *s, const struct jdoc_value *format) {
    return number_format(s, format) != NULL;
}

static void decimal_read(const char *text, struct decimal *d) {
    *d = (struct decimal){.negative = *text == '-'};
    for (text += d->negative; *text; text++)
        d->digits[d->num_int++] = (unsigned char)(*text - '0');
}

// Values that must not be, or the bounds: all but lists of values that may be.
static bool rules_read(struct schema *s, const struct clause *c, struct number_rules *r) {
    *r = (struct number_rules){.fraction = true};
    for (const struct fact_list *l = c->facts; l; l = l->next) {
        const struct fact *f = &l->fact;
        struct number_constraint *k;
        if (f->kind == FACT_AT_LEAST || f->kind == FACT_AT_MOST) {
            if (!(k = rules_add(s, r, f)) || !decimal_of(s, f->node, &k->d))
                return false;
            k->exclusive = f->min != 0;
        } else if (f->kind == FACT_MULTIPLE) {
            if (!rules_add_multiple(s, r, f))
                return false;
        } else if (f->kind == FACT_FORMAT) {
            const struct number_format *format = number_format(s, f->node);
            for (int i = 0; i < 2; i++) {
                const struct fact bound = {.kind = i ? FACT_AT_MOST : FACT_AT_LEAST, .node = f->node};
                if (!(k = rules_add(s, r, &bound)))
                    return false;
                decimal_read(i ? format->most : format->least, &k->d);
            }
        } else if (f->kind == FACT_INTEGER) {
            if (!rules_add(s, r, f))
                return false;
            r->whole = true;
            r->fraction = r->fraction && (f->negated || (s->as_written && f->min));
        } else if (f->kind == FACT_ONE_OF && f->negated) {
            const struct jdoc_value *one = f->node->type == JDOC_NUMBER ? f->node : NULL;
            if (one && (!(k = rules_add(s, r, f)) || !decimal_of(s, one, &k->d)))
                return false;
            for (const struct jdoc_value *e = one ? NULL : jdoc_first(&s->doc, f->node); e;
                 e = jdoc_after(&s->doc, f->node, e, false))
                if (e->type == JDOC_NUMBER && (!(k = rules_add(s, r, f)) || !decimal_of(s, e, &k->d)))
                    return false;
        }
    }
    return true;
}

static struct dfa *rules_dfa(struct schema *s, const struct number_rules *r) {
    struct err err = {0};
    struct number_state start = {.phase = BEGIN};
    struct explore x = number_explore(r);
    struct dfa *d = explore(&x, &start, &err);
    if (!d)
        schema_fail(s, NULL, err.code, "a number's constraints: %s", err.msg);
    if (d && !schema_count(s, d)) {
        dfa_free(d);
        return NULL;
    }
    return d;
}

// ---- lists of values

struct literal {
    const char *text;
    size_t len;
};
struct literals {
    const struct literal *list; // sorted
    int num;
    bool zeros; // any number of zeros behind the point, too
};
struct literal_state {
    int32_t first, end, at; // texts first to end begin so; `at` bytes of them are read
    int32_t zeros;          // 1: behind a point, 2: a zero, of a text that is complete
};

static int compare_literals(const void *a, const void *b) {
    const struct literal *x = a, *y = b;
    size_t n = x->len < y->len ? x->len : y->len;
    int c = memcmp(x->text, y->text, n);
    return c ? c : (x->len > y->len) - (x->len < y->len);
}

static bool literal_complete(const struct literals *l, const struct literal_state *s) {
    return s->first < s->end && l->list[s->first].len == (size_t)s->at;
}

static bool literal_step(const void *arg, const void *state, int class, void *next) {
    const struct literals *l = arg;
    const struct literal_state *from = state;
    struct literal_state *to = next;
    if (class == CLASS_OTHER)
        return false;
    char c = class == CLASS_MINUS ? '-' : class == CLASS_POINT ? '.' : (char)('0' + class);
    *to = *from;
    while (to->first < to->end &&
           ((size_t)from->at >= l->list[to->first].len || l->list[to->first].text[from->at] != c))
        to->first++;
    to->end = to->first;
    while (to->end < from->end && l->list[to->end].text[from->at] == c)
        to->end++;
    if (to->first == to->end)
        to->first = to->end = 0;
    to->at = to->first < to->end ? from->at + 1 : 0;
    to->zeros = 0;
    if (l->zeros) {
        bool complete = literal_complete(l, from),
             point = complete && memchr(l->list[from->first].text, '.', (size_t)from->at);
        if (complete && !point && class == CLASS_POINT)
            to->zeros = 1;
        if (class == 0 && (from->zeros || (complete && point)))
            to->zeros = 2;
    }
    return to->first < to->end || to->zeros;
}

static int32_t literal_label(const void *arg, const void *state) {
    const struct literal_state *s = state;
    return s->zeros == 2 || literal_complete(arg, s) ? 0 : -1;
}

struct candidates {
    struct literal *list;
    int num;
};

// Adds one value of a list, if all other facts allow it.
static bool candidate_add(struct schema *s, const struct clause *c, const struct jdoc_value *list,
                          const struct dfa *rules, const struct jdoc_value *v, struct candidates *out) {
    size_t len;
    const char *text = schema_step(s, 1) ? number_text(s, v, &len) : NULL;
    for (const struct fact_list *l = text ? c->facts : NULL; l; l = l->next)
        if (l->fact.kind == FACT_ONE_OF && !l->fact.negated && l->fact.node != list) {
            const struct dfa *d = schema_list(s, l->fact.node, true);
            if (!d || dfa_match(d, text, len) < 0)
                return d != NULL;
        }
    if (!text)
        return false;
    if (rules && dfa_match(rules, text, len) < 0)
        return true;
    out->list[out->num++] = (struct literal){text, len};
    if (len == 1 && text[0] == '0' && s->as_written)
        out->list[out->num++] = (struct literal){"-0", 2};
    return true;
}

static bool form_list(struct schema *s, const struct clause *c, const struct jdoc_value *list,
                      const struct dfa *rules, bool fraction, struct form **forms) {
    struct candidates out = {.list = schema_alloc(s, (size_t)(2 * list->len + 4) * sizeof *out.list)};
    if (!out.list)
        return false;
    if (list->type == JDOC_NUMBER && !candidate_add(s, c, list, rules, list, &out))
        return false;
    if (list->type == JDOC_ARRAY)
        JDOC_EACH(&s->doc, e, list)
    if (e->type == JDOC_NUMBER && !candidate_add(s, c, list, rules, e, &out))
        return false;
    if (out.num == 0)
        return true;
    qsort(out.list, (size_t)out.num, sizeof *out.list, compare_literals);
    int n = 0;
    for (int i = 0; i < out.num; i++)
        if (n == 0 || compare_literals(&out.list[n - 1], &out.list[i]) != 0)
            out.list[n++] = out.list[i];
    struct literals l = {out.list, n, fraction && s->as_written};
    struct literal_state start = {0, n, 0, 0};
    struct explore x = number_explore(&l);
    struct err err = {0};
    x.state_size = sizeof start;
    x.step = literal_step;
    x.label = literal_label;
    struct form *f = form_add(s, forms);
    if (f)
        f->owned = true;
    if (f && !(f->text = explore(&x, &start, &err)))
        return schema_fail(s, list, err.code, "%s", err.msg);
    return f != NULL;
}

// Those of the numbers that have few digits, as gb_json_number() has them; all, where these have more. NULL: failed, and d
// is gone.
static struct dfa *shortened(struct schema *s, struct dfa *d) {
    enum { MOST_STATES = 1000 };
    static const char few[] = "-?[0-9]{1,16}(?:\\.[0-9]{1,16})?";
    struct err err = {0};
    if (s->as_written || d->num_states > MOST_STATES)
        return d;
    struct dfa *own = dfa_regex(few, sizeof few - 1, true, &err),
               *both = own ? dfa_intersect(d, own, &err) : NULL;
    dfa_free(own);
    if (both && dfa_is_empty(both)) {
        dfa_free(both);
        return d;
    }
    dfa_free(d);
    if (!both)
        schema_fail(s, NULL, err.code, "the digits of a number: %s", err.msg);
    else if (!schema_count(s, both)) {
        dfa_free(both);
        both = NULL;
    }
    return both;
}

bool form_number(struct schema *s, const struct clause *c, struct form **forms) {
    const struct jdoc_value *list = NULL; // the shortest list of values that may be
    bool integer = false, others = false, fraction = true;
    for (const struct fact_list *l = c->facts; l; l = l->next) {
        const struct fact *f = &l->fact;
        if (f->kind == FACT_ONE_OF && !f->negated && (!list || f->node->len < list->len))
            list = f->node;
        if (f->kind == FACT_INTEGER && !f->negated) {
            integer = true;
            fraction = fraction && f->min;
        } else {
            others = true;
        }
    }
    if (!others) {
        struct form *f = form_add(s, forms);
        if (!f)
            return false;
        f->any = !integer;
        f->plain_integer = integer;
        f->fraction = fraction && s->as_written;
        return true;
    }
    struct number_rules *r = schema_alloc(s, sizeof *r);
    if (!r || !rules_read(s, c, r))
        return false;
    struct dfa *d = list && r->num == 0 ? NULL : rules_dfa(s, r);
    if (!d && s->failed)
        return false;
    if (list) {
        bool ok = form_list(s, c, list, d, fraction, forms);
        dfa_free(d);
        return ok;
    }
    if (dfa_is_empty(d)) {
        dfa_free(d);
        return true;
    }
    struct form *f = (d = shortened(s, d)) ? form_add(s, forms) : NULL;
    if (!f) {
        dfa_free(d);
        return false;
    }
    f->text = d;
    f->owned = true;
    return true;
}
