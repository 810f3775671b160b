// The expressions of forms.
#include "schema_state.h"

#include <stdlib.h>

// An integer as the draft and the style have it.
static expr integer_expr(struct schema *s, bool fraction) {
    struct grammar_builder *b = s->b;
    expr digits = gb_json_integer(b);
    if (!fraction)
        return digits;
    expr zeros = gb_seq_of(b, gb_text(b, "."), gb_repeat(b, gb_text(b, "0"), 1, -1));
    return gb_seq_of(b, digits, gb_repeat(b, zeros, 0, 1));
}

// The form keeps its automaton: others may ask for it, and the builder has a copy.
static struct dfa *dfa_copy(struct schema *s, const struct dfa *d) {
    if (!d)
        return NULL;
    size_t arrows = (size_t)d->num_states * (size_t)d->num_classes, labels = (size_t)d->num_states;
    struct dfa *copy = malloc(sizeof *copy);
    if (copy) {
        *copy = *d;
        copy->next = malloc((arrows + 1) * sizeof *copy->next);
        copy->label = malloc((labels + 1) * sizeof *copy->label);
    }
    if (!copy || !copy->next || !copy->label) {
        dfa_free(copy);
        schema_fail(s, NULL, STATUS_NOMEM, "out of memory for an automaton");
        return NULL;
    }
    memcpy(copy->next, d->next, arrows * sizeof *copy->next);
    memcpy(copy->label, d->label, labels * sizeof *copy->label);
    return copy;
}

static expr dfa_expr(struct schema *s, const struct dfa *d, bool string) {
    struct dfa *copy = dfa_copy(s, d);
    return !copy ? EXPR_NONE : string ? gb_json_string_of(s->b, copy) : gb_dfa(s->b, copy);
}

static expr form_expr(struct schema *s, enum json_type type, struct form *f) {
    struct grammar_builder *b = s->b;
    switch (type) {
    case TYPE_NULL: return gb_json_word(b, LITERAL_NULL);
    case TYPE_BOOLEAN:
        return f->booleans == 1 ? gb_json_word(b, LITERAL_FALSE)
               : f->booleans == 2
                   ? gb_json_word(b, LITERAL_TRUE)
                   : gb_alt_of(b, gb_json_word(b, LITERAL_FALSE), gb_json_word(b, LITERAL_TRUE));
    case TYPE_NUMBER:
        return f->any             ? gb_json_number(b)
               : f->plain_integer ? integer_expr(s, f->fraction)
                                  : dfa_expr(s, f->text, false);
    case TYPE_STRING:
        if (!f->text && !f->num_texts)
            return gb_json_string(b, f->min, f->max);
        return dfa_expr(s, string_form_dfa(s, f), true);
    case TYPE_ARRAY: return f->any ? gb_json_array(b, NULL, 0, gb_json_any(b), 0, -1) : array_expr(s, f);
    default: return object_expr(s, f, MEMBERS_JSON);
    }
}

expr goal_write(struct schema *s, goal g) {
    int n = 0, any = 0;
    struct goal_type *types = s->goals[g].types;
    for (int t = 0; t < NUM_TYPES; t++) {
        for (struct form *f = types[t].forms; f; f = f->next)
            n++;
        any += types[t].forms && types[t].forms->any;
    }
    if (any == NUM_TYPES)
        return gb_json_any(s->b);
    expr *parts = schema_alloc(s, (size_t)(n + 1) * sizeof *parts);
    if (!parts)
        return EXPR_NONE;
    n = 0;
    for (int t = 0; t < NUM_TYPES; t++)
        for (struct form *f = types[t].forms; f && gb_failed(s->b, s->err) == STATUS_OK; f = f->next) {
            parts[n++] = form_expr(s, (enum json_type)t, f);
            types = s->goals[g].types;
        }
    return n == 1 ? parts[0] : gb_alt(s->b, parts, n);
}

// The forms of any goal. false: failed.
static bool forms_of(struct schema *s, goal g, enum json_type type, const struct form **forms) {
    static const struct form any = {.any = true, .max = -1, .booleans = 3};
    *forms = g == GOAL_ANY ? &any : NULL;
    return g == GOAL_ANY || g == GOAL_NEVER || goal_forms(s, g, type, forms);
}

expr goal_write_call(struct schema *s, goal g, enum json_members written) {
    const struct form *forms;
    if (!forms_of(s, g, TYPE_OBJECT, &forms))
        return EXPR_NONE;
    expr all = gb_never(s->b);
    for (const struct form *f = forms; f && !s->failed; f = f->next)
        all = gb_alt_of(s->b, all, object_expr(s, f, written));
    return all;
}

static expr tagged_text(struct schema *s, const struct form *f, unsigned types) {
    if (!f->text && !f->num_texts)
        return gb_tagged_text(s->b, NULL, f->min, f->max, types);
    struct dfa *own = dfa_copy(s, string_form_dfa(s, (struct form *)f));
    return own ? gb_tagged_text(s->b, own, 0, -1, types) : EXPR_NONE;
}

expr goal_write_tagged(struct schema *s, goal g, unsigned types) {
    struct grammar_builder *b = s->b;
    expr text = gb_never(b), value = gb_never(b);
    const struct form *forms;
    for (int t = 0; t < NUM_TYPES; t++) {
        if (!(types >> t & 1))
            continue;
        if (!forms_of(s, g, (enum json_type)t, &forms))
            return EXPR_NONE;
        for (const struct form *f = forms; f && gb_failed(b, s->err) == STATUS_OK && !s->failed; f = f->next)
            if (t == TYPE_STRING)
                text = gb_alt_of(b, text, tagged_text(s, f, types));
            else
                value = gb_alt_of(b, value, form_expr(s, (enum json_type)t, (struct form *)f));
    }
    const struct builder_tags *tags = gb_tags(b);
    return gb_alt_of(b, gb_seq_of(b, tags->of_text, text), gb_seq_of(b, tags->of_value, value));
}
