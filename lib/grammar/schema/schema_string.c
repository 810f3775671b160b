// Forms of strings: lengths, automata of patterns and formats, lists of values.
#include "schema_explore.h"
#include "schema_format.h"
#include "schema_state.h"

#include "utf8.h"

#include <stdlib.h>

// ---- automata that are kept

static const struct dfa *cache_find(struct schema *s, enum cached_kind kind, const void *name, size_t len) {
    for (int i = 0; i < s->num_cache; i++)
        if (s->cache[i].len == len && s->cache[i].kind == kind && memcmp(s->cache[i].name, name, len) == 0)
            return s->cache[i].dfa;
    return NULL;
}

// Takes d over.
static const struct dfa *cache_add(struct schema *s, enum cached_kind kind, const void *name, size_t len,
                                   struct dfa *d) {
    if (s->num_cache == s->cap_cache) {
        int cap = s->cap_cache ? 2 * s->cap_cache : 32;
        struct cached_dfa *more = schema_alloc(s, (size_t)cap * sizeof *more);
        if (!more) {
            dfa_free(d);
            return NULL;
        }
        if (s->num_cache)
            memcpy(more, s->cache, (size_t)s->num_cache * sizeof *more);
        s->cache = more;
        s->cap_cache = cap;
    }
    s->cache[s->num_cache++] = (struct cached_dfa){kind, name, len, d};
    return d;
}

const struct dfa *schema_regex(struct schema *s, const struct jdoc_value *pattern) {
    struct text_view t = jdoc_text(&s->doc, pattern);
    struct err err = {0};
    const struct dfa *kept = cache_find(s, DFA_PATTERN, t.data, t.len);
    if (kept)
        return kept;
    struct dfa *d = dfa_regex(t.data, t.len, false, &err);
    if (!d) {
        schema_fail(s, pattern, err.code, "%s", err.msg);
        return NULL;
    }
    return schema_count(s, d) ? cache_add(s, DFA_PATTERN, t.data, t.len, d) : (dfa_free(d), NULL);
}

static struct dfa *bounded(struct schema *s, const struct dfa *d, int min, int max, struct err *err);

const struct dfa *schema_format(struct schema *s, const struct jdoc_value *format, bool *annotation) {
    const struct string_format *f = string_formats;
    struct err err = {0};
    while (f->name && !jdoc_is(&s->doc, format, f->name))
        f++;
    *annotation = f->name == NULL;
    if (!f->name)
        return NULL;
    if (!f->parts[0]) {
        schema_fail(s, format, STATUS_INVALID, "the format \"%s\" is not supported", f->name);
        return NULL;
    }
    const struct dfa *kept = cache_find(s, DFA_FORMAT, f->name, strlen(f->name));
    if (kept)
        return kept;
    size_t len = 0;
    for (int i = 0; i < 3 && f->parts[i]; i++)
        len += strlen(f->parts[i]);
    char *regex = schema_alloc(s, len + 1);
    if (!regex)
        return NULL;
    for (int i = 0; i < 3 && f->parts[i]; i++)
        strcat(regex, f->parts[i]);
    struct dfa *d = dfa_regex(regex, len, true, &err);
    if (d && f->max > 0) {
        struct dfa *all = d;
        d = bounded(s, all, 0, f->max, &err);
        dfa_free(all);
    }
    if (!d) {
        schema_fail(s, format, err.code, "%s", err.msg);
        return NULL;
    }
    return cache_add(s, DFA_FORMAT, f->name, strlen(f->name), d);
}

// ---- automata of facts

struct string_rules {
    int min, max;        // -1: no end
    const struct dfa *d; // NULL: all
    bool owned;
};

static void rules_set(struct string_rules *r, const struct dfa *d, bool owned) {
    if (r->owned)
        dfa_free((struct dfa *)r->d);
    r->d = d;
    r->owned = owned;
}

// d stays as long as the schema.
static bool rules_and(struct schema *s, struct string_rules *r, const struct dfa *d, bool negated,
                      const struct jdoc_value *node) {
    struct err err = {0};
    if (!negated && !r->d) {
        rules_set(r, d, false);
        return true;
    }
    struct dfa *other = negated ? dfa_complement(d, &err) : NULL, *both = NULL;
    const struct dfa *second = negated ? other : d;
    if (!schema_count(s, d) || (r->d && !schema_count(s, r->d))) {
        dfa_free(other);
        return false;
    }
    if (second && !r->d) {
        rules_set(r, other, true);
        return true;
    }
    if (second)
        both = dfa_intersect(r->d, second, &err);
    dfa_free(other);
    if (!both)
        return schema_fail(s, node, err.code, "%s", err.msg);
    rules_set(r, both, true);
    return schema_count(s, both);
}

static const struct jdoc_value *first_text(const struct schema *s, const struct jdoc_value *list) {
    return list->type == JDOC_STRING ? list : jdoc_first(&s->doc, list);
}
static const struct jdoc_value *next_text(const struct schema *s, const struct jdoc_value *list,
                                          const struct jdoc_value *v) {
    return list->type == JDOC_STRING ? NULL : jdoc_after(&s->doc, list, v, false);
}

// The automaton of n texts, or numbers.
static struct dfa *texts_dfa(struct schema *s, const struct jdoc_value *const *list, int n) {
    struct err err = {0};
    const char **texts = schema_alloc(s, ((size_t)n + 1) * sizeof *texts);
    size_t *lens = schema_alloc(s, ((size_t)n + 1) * sizeof *lens);
    if (!texts || !lens || !schema_step(s, n))
        return NULL;
    for (int i = 0; i < n; i++) {
        struct text_view t = jdoc_text(&s->doc, list[i]);
        texts[i] = t.data;
        lens[i] = t.len;
        if (list[i]->type == JDOC_NUMBER && !(texts[i] = number_text(s, list[i], &lens[i])))
            return NULL;
    }
    struct dfa *d = dfa_literals(texts, lens, n, &err);
    if (!d)
        schema_fail(s, NULL, err.code, "%s", err.msg);
    return d;
}

const struct dfa *schema_list(struct schema *s, const struct jdoc_value *list, bool numbers) {
    const enum cached_kind kind = numbers ? DFA_NUMBERS : DFA_STRINGS;
    const struct dfa *kept = cache_find(s, kind, list, sizeof *list); // no two nodes are at the same byte
    bool one = list->type != JDOC_ARRAY;
    const struct jdoc_value **values =
        kept ? NULL : schema_alloc(s, ((one ? 1 : (size_t)list->len) + 1) * sizeof *values);
    int n = 0;
    for (const struct jdoc_value *e = one ? list : jdoc_first(&s->doc, list); values && e;
         e = one ? NULL : jdoc_after(&s->doc, list, e, false))
        if (e->type == (numbers ? JDOC_NUMBER : JDOC_STRING))
            values[n++] = e;
    struct dfa *d = values ? texts_dfa(s, values, n) : NULL;
    return d ? cache_add(s, kind, list, sizeof *list, d) : kept;
}

// No text of any of the lists that must not be.
static bool rules_without(struct schema *s, const struct clause *c, struct string_rules *r) {
    size_t most = 0;
    int n = 0;
    for (const struct fact_list *l = c->facts; l; l = l->next)
        if (l->fact.kind == FACT_ONE_OF)
            most += l->fact.node->type == JDOC_STRING ? 1 : l->fact.node->len;
    const struct jdoc_value **texts = schema_alloc(s, (most + 1) * sizeof *texts);
    for (const struct fact_list *l = texts ? c->facts : NULL; l; l = l->next)
        for (const struct jdoc_value *e = l->fact.kind == FACT_ONE_OF ? first_text(s, l->fact.node) : NULL; e;
             e = next_text(s, l->fact.node, e))
            if (e->type == JDOC_STRING)
                texts[n++] = e;
    struct dfa *d = n ? texts_dfa(s, texts, n) : NULL;
    bool ok = texts && (n == 0 || (d && rules_and(s, r, d, true, texts[0])));
    dfa_free(d);
    return ok;
}

static bool rules_read(struct schema *s, const struct clause *c, struct string_rules *r) {
    for (const struct fact_list *l = c->facts; l; l = l->next) {
        const struct fact *f = &l->fact;
        bool annotation = false;
        if (f->kind == FACT_COUNT) {
            r->min = r->min > f->min ? r->min : (int)f->min;
            if (f->max >= 0 && (r->max < 0 || f->max < r->max))
                r->max = (int)f->max;
        }
        if (f->kind != FACT_PATTERN && f->kind != FACT_FORMAT)
            continue;
        const struct dfa *d =
            f->kind == FACT_PATTERN ? schema_regex(s, f->node) : schema_format(s, f->node, &annotation);
        if (!annotation && !(d && rules_and(s, r, d, f->negated, f->node)))
            return false;
    }
    return true;
}

// ---- lengths

struct length_rules {
    const struct dfa *d;
    int min, max;                  // -1: no end
    const int *shortest, *longest; // (states of d) code points to an end; -1: no end of it
    uint8_t byte[256];             // of each class of the product, one byte
};
struct length_state {
    int32_t state, count; // count -1: the length is right whatever follows
};

// Whether a byte begins a code point.
static bool begins(unsigned char byte) { return (byte & 0xc0) != 0x80; }

// Leaves the count out where every way to an end keeps to the bounds. false: none does.
static bool length_settle(const struct length_rules *r, struct length_state *s) {
    if (s->count < 0)
        return true;
    int shortest = r->shortest[s->state], longest = r->longest[s->state];
    if (r->max >= 0 && s->count + shortest > r->max)
        return false;
    if (longest >= 0 && s->count + longest < r->min)
        return false;
    if (s->count + shortest >= r->min && (r->max < 0 || (longest >= 0 && s->count + longest <= r->max)))
        s->count = -1;
    return true;
}

static bool length_step(const void *arg, const void *state, int class, void *next) {
    const struct length_rules *r = arg;
    const struct length_state *from = state;
    struct length_state *to = next;
    to->state = dfa_step(r->d, from->state, r->byte[class]);
    to->count = from->count < 0 ? -1 : from->count + begins(r->byte[class]);
    return to->state != DFA_DEAD && length_settle(r, to);
}

static int32_t length_label(const void *arg, const void *state) {
    const struct length_rules *r = arg;
    const struct length_state *s = state;
    return r->d->label[s->state] < 0 || (s->count >= 0 && s->count < r->min) ? -1 : 0;
}

// Code points from each state to an end: the fewest, and the most (-1: no end of it). dfa has no state without an end.
static bool count_ends(struct schema *s, const struct dfa *d, int *shortest, int *longest) {
    int n = d->num_states;
    bool one[256] = {false};
    for (int b = 0; b < 256; b++)
        one[d->class_of[b]] = begins((unsigned char)b);
    for (int i = 0; i < n; i++) {
        shortest[i] = d->label[i] >= 0 ? 0 : n + 1;
        longest[i] = -1;
    }
    for (bool again = true; again;) { // shortest: until nothing gets less
        again = false;
        for (int i = n - 1; i >= 0; i--)
            for (int c = 0; c < d->num_classes; c++) {
                int to = d->next[(size_t)i * (size_t)d->num_classes + (size_t)c];
                if (to != DFA_DEAD && shortest[to] + one[c] < shortest[i]) {
                    shortest[i] = shortest[to] + one[c];
                    again = true;
                }
            }
        if (!schema_step(s, (int64_t)n * d->num_classes / 64 + 1))
            return false;
    }
    for (bool again = true; again;) { // longest: of states whose ways out all are known
        again = false;
        for (int i = n - 1; i >= 0; i--) {
            int most = 0;
            for (int c = 0; longest[i] < 0 && c < d->num_classes && most >= 0; c++) {
                int to = d->next[(size_t)i * (size_t)d->num_classes + (size_t)c];
                if (to != DFA_DEAD)
                    most = longest[to] < 0 ? -1 : longest[to] + one[c] > most ? longest[to] + one[c] : most;
            }
            if (longest[i] < 0 && most >= 0) {
                longest[i] = most;
                again = true;
            }
        }
        if (!schema_step(s, (int64_t)n * d->num_classes / 64 + 1))
            return false;
    }
    return true;
}

// The texts of d of min to max code points.
static struct dfa *bounded(struct schema *s, const struct dfa *d, int min, int max, struct err *err) {
    struct length_rules r = {.d = d, .min = min, .max = max};
    int *shortest = schema_alloc(s, ((size_t)d->num_states + 1) * sizeof *shortest);
    int *longest = schema_alloc(s, ((size_t)d->num_states + 1) * sizeof *longest);
    struct explore x = {.state_size = sizeof(struct length_state),
                        .num_labels = 1,
                        .arg = &r,
                        .step = length_step,
                        .label = length_label};
    struct length_state start = {0, 0};
    if (!shortest || !longest || !count_ends(s, d, shortest, longest))
        return NULL;
    r.shortest = shortest;
    r.longest = longest;
    if (d->num_states == 0 || !length_settle(&r, &start))
        return dfa_literals(NULL, NULL, 0, err);
    // No class of d mixes bytes that begin a code point with others: d accepts only UTF-8, but bytes that lead nowhere.
    x.num_classes = d->num_classes;
    for (int b = 255; b >= 0; b--) {
        x.class_of[b] = d->class_of[b];
        r.byte[d->class_of[b]] = (uint8_t)b;
    }
    return explore(&x, &start, err);
}

static bool rules_length(struct schema *s, struct string_rules *r) {
    struct err err = {0};
    struct dfa *d = bounded(s, r->d, r->min, r->max, &err);
    if (!d)
        return s->failed ? false : schema_fail(s, NULL, err.code, "minLength, maxLength: %s", err.msg);
    rules_set(r, d, true);
    return schema_count(s, d);
}

// ---- forms

// Whether a text of a list is as all other facts say.
static bool value_fits(struct schema *s, const struct clause *c, const struct jdoc_value *list,
                       const struct jdoc_value *v) {
    struct text_view t = jdoc_text(&s->doc, v);
    int64_t length = 0;
    for (size_t i = 0; i < t.len; i++)
        length += begins((unsigned char)t.data[i]);
    for (const struct fact_list *l = c->facts; l; l = l->next) {
        const struct fact *f = &l->fact;
        bool annotation = false, fits;
        if (f->kind == FACT_ONE_OF && f->node == list && !f->negated)
            continue;
        if (f->kind == FACT_COUNT) {
            fits = length >= f->min && (f->max < 0 || length <= f->max);
        } else {
            const struct dfa *d = f->kind == FACT_ONE_OF    ? schema_list(s, f->node, false)
                                  : f->kind == FACT_PATTERN ? schema_regex(s, f->node)
                                                            : schema_format(s, f->node, &annotation);
            fits = annotation || (d && (dfa_match(d, t.data, t.len) >= 0) != f->negated);
        }
        if (!fits)
            return false;
    }
    return schema_step(s, 1);
}

static bool form_texts(struct schema *s, const struct clause *c, const struct jdoc_value *list,
                       struct form **forms) {
    size_t most = list->type == JDOC_STRING ? 1 : list->len;
    const struct jdoc_value **texts = schema_alloc(s, (most + 1) * sizeof *texts);
    int n = 0;
    for (const struct jdoc_value *e = texts ? first_text(s, list) : NULL; e; e = next_text(s, list, e))
        if (e->type == JDOC_STRING && value_fits(s, c, list, e))
            texts[n++] = e;
    if (!texts || s->failed)
        return false;
    struct form *f = n ? form_add(s, forms) : NULL;
    if (f) {
        f->texts = texts;
        f->num_texts = n;
    }
    return n == 0 || f;
}

bool form_string(struct schema *s, const struct clause *c, struct form **forms) {
    struct string_rules r = {0, -1, NULL, false};
    const struct jdoc_value *list = NULL;
    for (const struct fact_list *l = c->facts; l; l = l->next)
        if (l->fact.kind == FACT_ONE_OF && !l->fact.negated && (!list || l->fact.node->type == JDOC_STRING))
            list = l->fact.node;
    if (list)
        return form_texts(s, c, list, forms);
    bool ok = rules_read(s, c, &r) && rules_without(s, c, &r);
    if (ok && r.d && (r.min > 0 || r.max >= 0))
        ok = rules_length(s, &r);
    bool empty = (r.max >= 0 && r.min > r.max) || (r.d && dfa_is_empty(r.d));
    struct form *f = ok && !empty ? form_add(s, forms) : NULL;
    if (!f) {
        rules_set(&r, NULL, false);
        return ok && empty;
    }
    f->any = !r.d && r.min == 0 && r.max < 0;
    f->min = r.min;
    f->max = r.max;
    f->text = r.d;
    f->owned = r.owned;
    return true;
}

const struct dfa *string_form_dfa(struct schema *s, struct form *f) {
    struct err err = {0};
    struct dfa *d = NULL;
    if (f->text)
        return f->text;
    if (f->num_texts > 0) {
        d = texts_dfa(s, f->texts, f->num_texts);
    } else if (!(d = dfa_length(f->min, f->max, &err))) {
        schema_fail(s, NULL, err.code, "minLength, maxLength: %s", err.msg);
    }
    f->text = d;
    f->owned = true;
    return d;
}

struct dfa *string_goal_dfa(struct schema *s, goal g, bool *any) {
    const struct form *forms;
    struct err err = {0};
    *any = false;
    if (!goal_forms(s, g, TYPE_STRING, &forms))
        return NULL;
    for (const struct form *f = forms; f; f = f->next)
        *any = *any || f->any;
    struct dfa *all = *any ? NULL : dfa_literals(NULL, NULL, 0, &err);
    for (struct form *f = s->goals[g].types[TYPE_STRING].forms; all && f; f = f->next) {
        const struct dfa *own = string_form_dfa(s, f);
        struct dfa *sum = own ? dfa_union(all, own, &err) : NULL;
        dfa_free(all);
        all = sum;
    }
    if (!all && !*any && !s->failed)
        schema_fail(s, NULL, err.code, "names: %s", err.msg);
    return all;
}
