// The keywords that speak of one type: see schema_assert.h.
#include "schema_assert.h"

static const struct node_list *node_list_of(struct say *p, const struct jdoc_value *node, bool value) {
    struct node_list *l = schema_alloc(p->s, sizeof *l);
    if (l)
        *l = (struct node_list){node, value, NULL};
    return l;
}

// ---- lists of values

// `list` is an array of values, or one value where `single`.
static const struct jdoc_value *first_value(struct say *p, const struct jdoc_value *list, bool single) {
    return single ? list : jdoc_first(&p->s->doc, list);
}
static const struct jdoc_value *next_value(struct say *p, const struct jdoc_value *list, bool single,
                                           const struct jdoc_value *v) {
    return single ? NULL : jdoc_after(&p->s->doc, list, v, false);
}

// Which values of this type are there: bit 0 false, bit 1 true of booleans; otherwise 1 for any.
static unsigned values_of_type(struct say *p, const struct jdoc_value *list, bool single) {
    unsigned found = 0;
    for (const struct jdoc_value *v = first_value(p, list, single); v; v = next_value(p, list, single, v))
        if (schema_type(v) == p->type)
            found |= p->type == TYPE_BOOLEAN && v->type == JDOC_TRUE ? 2 : 1;
    return found;
}

bool say_values(struct say *p, const struct jdoc_value *list, bool single, bool negated) {
    unsigned found = values_of_type(p, list, single);
    if (!found) {
        if (negated)
            p->holds = true;
        else
            p->c->dead = true;
        return true;
    }
    if (p->type == TYPE_NULL || (p->type == TYPE_BOOLEAN && found == 3))
        return true; // all of the type; a negation has no alternative here
    struct fact f = {
        .kind = p->type == TYPE_BOOLEAN ? FACT_BOOLEAN : FACT_ONE_OF, .node = list, .negated = negated};
    if (p->type == TYPE_BOOLEAN) {
        f.min = (found == 2) != negated;
        f.negated = false;
    }
    if (p->type < TYPE_ARRAY)
        return negated ? SAY_OR(p, f) : say_add(p, f);
    struct schema_choice *choice = negated ? NULL : choice_begin(p->s, p->origin);
    int n = 0;
    struct fact *facts = schema_alloc(p->s, (single ? 1 : list->len) * sizeof *facts);
    for (const struct jdoc_value *v = facts ? first_value(p, list, single) : NULL; v;
         v = next_value(p, list, single, v)) {
        if (schema_type(v) != p->type)
            continue;
        facts[n] = (struct fact){.kind = FACT_ATOM, .atom = value_atom(p->s, v, negated)};
        if (!negated && (!choice || !choice_add(p->s, choice, &facts[n], 1)))
            return false;
        n++;
    }
    if (!facts)
        return false;
    if (negated)
        return or_facts(p, facts, n);
    clause_choose(p->c, choice);
    return true;
}

// That the value is this one.
bool say_value(struct say *p, const struct jdoc_value *v) {
    int64_t at = 0;
    if (p->type < TYPE_ARRAY || schema_type(v) != p->type)
        return say_values(p, v, true, false);
    if (!say_add(p, fact_count(v->len, v->len)))
        return false;
    if (p->type == TYPE_ARRAY) {
        EACH_ELEMENT(p, e, v)
        if (!say_add(p, (struct fact){.kind = FACT_ITEM, .min = at++, .atom = value_atom(p->s, e, false)}))
            return false;
        return true;
    }
    EACH_MEMBER(p, k, v)
    if (!say_add(p,
                 (struct fact){.kind = FACT_PROPERTY, .node = k, .atom = value_atom(p->s, k + 1, false)}) ||
        !say_add(p, fact_required(k)))
        return false;
    const struct node_list *l = node_list_of(p, v, true);
    return l && say_add(p, (struct fact){.kind = FACT_OTHERS, .nodes = l, .atom = ATOM_NEVER});
}

bool say_not_value(struct say *p, const struct jdoc_value *v) {
    int64_t at = 0;
    if (p->type < TYPE_ARRAY || schema_type(v) != p->type)
        return say_values(p, v, true, true);
    if (p->type == TYPE_ARRAY) {
        if ((v->len > 0 && !SAY_OR(p, fact_count(0, (int64_t)v->len - 1))) ||
            !SAY_OR(p, fact_count((int64_t)v->len + 1, -1)))
            return false;
        EACH_ELEMENT(p, e, v) {
            struct fact item = {.kind = FACT_ITEM, .min = at++, .atom = value_atom(p->s, e, true)};
            if (!SAY_OR(p, fact_count(at, -1), item))
                return false;
        }
        return true;
    }
    EACH_MEMBER(p, k, v)
    if (!SAY_OR(p, (struct fact){.kind = FACT_PROPERTY, .node = k, .atom = value_atom(p->s, k + 1, true)}))
        return false;
    const struct node_list *l = node_list_of(p, v, true);
    return l &&
           SAY_OR(p, (struct fact){.kind = FACT_EXISTS, .within = FACT_OTHERS, .nodes = l, .atom = ATOM_ANY});
}

// ---- numbers and strings

bool say_scalar(struct say *p, struct fact f, bool negated) {
    f.negated = f.negated != negated;
    return negated ? SAY_OR(p, f) : say_add(p, f);
}

static bool say_bound(struct say *p, const struct jdoc_value *v, bool least, bool exclusive, bool negated) {
    if (!v)
        return true;
    struct fact f = {.kind = least ? FACT_AT_LEAST : FACT_AT_MOST, .node = v, .min = exclusive};
    if (!negated)
        return say_add(p, f);
    f.kind = least ? FACT_AT_MOST : FACT_AT_LEAST;
    f.min = !exclusive;
    return SAY_OR(p, f);
}

bool say_number(struct say *p, bool negated) {
    const struct jdoc_value **of = p->k.of;
    const struct jdoc_value *least = of[KEYWORD_EXCLUSIVE_MINIMUM], *most = of[KEYWORD_EXCLUSIVE_MAXIMUM];
    bool least_flag = least && least->type != JDOC_NUMBER, most_flag = most && most->type != JDOC_NUMBER;
    if (of[KEYWORD_MULTIPLE_OF] &&
        !say_scalar(p, (struct fact){.kind = FACT_MULTIPLE, .node = of[KEYWORD_MULTIPLE_OF]}, negated))
        return false;
    if (of[KEYWORD_FORMAT] && !negated && number_format_known(p->s, of[KEYWORD_FORMAT]) &&
        !say_add(p, (struct fact){.kind = FACT_FORMAT, .node = of[KEYWORD_FORMAT]}))
        return false;
    return say_bound(p, of[KEYWORD_MINIMUM], true, least_flag && least->type == JDOC_TRUE, negated) &&
           say_bound(p, of[KEYWORD_MAXIMUM], false, most_flag && most->type == JDOC_TRUE, negated) &&
           say_bound(p, least_flag ? NULL : least, true, true, negated) &&
           say_bound(p, most_flag ? NULL : most, false, true, negated);
}

// min <= length <= max, of texts, lists, objects.
static bool say_count(struct say *p, enum keyword min, enum keyword max, bool negated) {
    int64_t least = keyword_count(p->s, &p->k, min, 0), most = keyword_count(p->s, &p->k, max, -1);
    struct fact between = fact_count(least, most), more = fact_count(most + 1, -1);
    between.node = p->k.of[min];
    more.node = p->k.of[max];
    if (!negated)
        return (least == 0 && most < 0) || say_add(p, between);
    return (least == 0 || SAY_OR(p, fact_count(0, least - 1))) && (most < 0 || SAY_OR(p, more));
}

bool say_string(struct say *p, bool negated) {
    const struct jdoc_value *pattern = p->k.of[KEYWORD_PATTERN], *format = p->k.of[KEYWORD_FORMAT];
    bool annotation = false;
    if (!say_count(p, KEYWORD_MIN_LENGTH, KEYWORD_MAX_LENGTH, negated))
        return false;
    if (pattern && !say_scalar(p, (struct fact){.kind = FACT_PATTERN, .node = pattern}, negated))
        return false;
    if (!format || (!schema_format(p->s, format, &annotation) && !annotation))
        return !format;
    return annotation || say_scalar(p, (struct fact){.kind = FACT_FORMAT, .node = format}, negated);
}

// ---- arrays

// Item i, if there is one; of a negation: it is there, and is not so.
static bool say_item(struct say *p, int64_t i, const struct jdoc_value *schema, bool negated) {
    struct fact f = {.kind = FACT_ITEM, .min = i, .atom = schema_atom(p->s, schema, negated)};
    if (!negated)
        return f.atom == ATOM_ANY || say_add(p, f);
    return f.atom == ATOM_NEVER || SAY_OR(p, fact_count(i + 1, -1), f);
}

static bool say_items_from(struct say *p, int64_t from, const struct jdoc_value *schema, bool negated) {
    struct fact f = {.kind = FACT_ITEMS, .min = from, .atom = schema_atom(p->s, schema, negated)};
    if (!negated)
        return f.atom == ATOM_ANY || say_add(p, f);
    if (f.atom == ATOM_NEVER)
        return true;
    if (f.atom == ATOM_ANY)
        return SAY_OR(p, fact_count(from + 1, -1));
    return SAY_OR(p, (struct fact){.kind = FACT_CONTAINS, .from = from, .min = 1, .max = -1, .atom = f.atom});
}

static bool say_contains(struct say *p, bool negated) {
    const struct jdoc_value *v = p->k.of[KEYWORD_CONTAINS];
    bool counts = p->k.draft >= DRAFT_2019;
    int64_t min = counts ? keyword_count(p->s, &p->k, KEYWORD_MIN_CONTAINS, 1) : 1;
    int64_t max = counts ? keyword_count(p->s, &p->k, KEYWORD_MAX_CONTAINS, -1) : -1;
    struct fact f = {.kind = FACT_CONTAINS, .min = min, .max = max};
    if (!v)
        return true;
    f.atom = schema_atom(p->s, v, false);
    if (!negated && max >= 0 && min > max) {
        p->c->dead = true;
        return true;
    }
    if (!negated)
        return (min == 0 && max < 0) || say_add(p, f);
    struct fact fewer = f, more = f;
    fewer.min = 0;
    fewer.max = min - 1;
    more.min = max + 1;
    more.max = -1;
    return (min == 0 || SAY_OR(p, fewer)) && (max < 0 || SAY_OR(p, more));
}

bool say_array(struct say *p, bool negated) {
    const struct jdoc_value **of = p->k.of, *items = of[KEYWORD_ITEMS], *prefix = of[KEYWORD_PREFIX_ITEMS],
                            *rest = items, *unique = of[KEYWORD_UNIQUE_ITEMS];
    int64_t i = 0;
    if (prefix && p->k.draft < DRAFT_2020 && items)
        prefix = NULL;
    if (items && items->type == JDOC_ARRAY) {
        prefix = items;
        rest = of[KEYWORD_ADDITIONAL_ITEMS];
    }
    if (!say_count(p, KEYWORD_MIN_ITEMS, KEYWORD_MAX_ITEMS, negated))
        return false;
    if (prefix)
        EACH_ELEMENT(p, e, prefix)
    if (!say_item(p, i++, e, negated))
        return false;
    if (rest && !say_items_from(p, i, rest, negated))
        return false;
    if (unique && unique->type == JDOC_TRUE) {
        if (negated)
            return schema_fail(p->s, unique, STATUS_INVALID, "is not supported within `not`");
        if (!say_add(p, (struct fact){.kind = FACT_UNIQUE, .node = unique}))
            return false;
    }
    return say_contains(p, negated);
}

// ---- objects

// Whether a list of names or the keys of an object have one; NULL has none.
static bool has_name(struct say *p, const struct jdoc_value *names, const struct jdoc_value *name) {
    bool object = names && names->type == JDOC_OBJECT;
    for (const struct jdoc_value *e = jdoc_first(&p->s->doc, names); e;
         e = jdoc_after(&p->s->doc, names, e, object))
        if (schema_same_text(p->s, e, name))
            return true;
    return false;
}

// That a member is not as its schema says: it is there and is not so; or if it has to be there, it may be absent, too.
static bool or_member(struct say *p, const struct jdoc_value *name, atom negation, bool required) {
    struct fact f = {.kind = FACT_PROPERTY, .node = name, .atom = negation};
    if (required)
        return SAY_OR(p, f);
    return negation == ATOM_NEVER || SAY_OR(p, fact_required(name), f);
}

static bool say_properties(struct say *p, bool negated) {
    const struct jdoc_value **of = p->k.of;
    if (of[KEYWORD_PROPERTIES])
        EACH_MEMBER(p, k, of[KEYWORD_PROPERTIES]) {
            struct fact f = {.kind = FACT_PROPERTY, .node = k, .atom = schema_atom(p->s, k + 1, negated)};
            if (!(negated ? or_member(p, k, f.atom, has_name(p, of[KEYWORD_REQUIRED], k)) : say_add(p, f)))
                return false;
        }
    if (of[KEYWORD_PATTERN_PROPERTIES])
        EACH_MEMBER(p, k, of[KEYWORD_PATTERN_PROPERTIES]) {
            struct fact f = {.kind = negated ? FACT_EXISTS : FACT_MATCHING,
                             .within = FACT_MATCHING,
                             .node = k,
                             .atom = schema_atom(p->s, k + 1, negated)};
            if (!schema_regex(p->s, k) || (negated ? f.atom != ATOM_NEVER && !SAY_OR(p, f) : !say_add(p, f)))
                return false;
        }
    if (of[KEYWORD_ADDITIONAL_PROPERTIES]) {
        struct fact f = {.kind = negated ? FACT_EXISTS : FACT_OTHERS,
                         .within = FACT_OTHERS,
                         .nodes = node_list_of(p, p->k.self, false),
                         .atom = schema_atom(p->s, of[KEYWORD_ADDITIONAL_PROPERTIES], negated)};
        if (!f.nodes || (negated ? f.atom != ATOM_NEVER && !SAY_OR(p, f)
                                 : (f.atom != ATOM_ANY || !p->s->as_written) && !say_add(p, f)))
            return false;
    }
    if (of[KEYWORD_PROPERTY_NAMES]) {
        struct fact f = {.kind = negated ? FACT_EXISTS : FACT_NAMES,
                         .within = FACT_NAMES,
                         .atom = ATOM_ANY,
                         .name_atom = schema_atom(p->s, of[KEYWORD_PROPERTY_NAMES], negated)};
        if (negated ? f.name_atom != ATOM_NEVER && !SAY_OR(p, f) : f.name_atom != ATOM_ANY && !say_add(p, f))
            return false;
    }
    return true;
}

// If the member is there, the names of a list are, too.
static bool say_dependent_names(struct say *p, const struct jdoc_value *name, const struct jdoc_value *list,
                                bool negated) {
    struct fact *facts = schema_alloc(p->s, ((size_t)list->len + 1) * sizeof *facts),
                absent = fact_absent(name);
    int n = 1;
    if (!facts)
        return false;
    facts[0] = fact_required(name);
    EACH_ELEMENT(p, e, list) {
        if (negated && !SAY_OR(p, fact_required(name), fact_absent(e)))
            return false;
        facts[n++] = fact_required(e);
    }
    if (negated || n == 1)
        return true;
    struct schema_choice *choice = choice_begin(p->s, p->origin);
    if (!choice || !choice_add(p->s, choice, &absent, 1) || !choice_add(p->s, choice, facts, n))
        return false;
    clause_choose(p->c, choice);
    return true;
}

static bool say_dependent_schema(struct say *p, const struct jdoc_value *name,
                                 const struct jdoc_value *schema, bool negated) {
    struct fact then[] = {fact_required(name), fact_atom(p, schema, negated)}, absent = fact_absent(name);
    if (negated)
        return or_facts(p, then, 2);
    if (then[1].atom == ATOM_ANY)
        return !p->s->failed;
    struct schema_choice *choice = choice_begin(p->s, p->origin);
    if (!choice || !choice_add(p->s, choice, &absent, 1) || !choice_add(p->s, choice, then, 2))
        return false;
    clause_choose(p->c, choice);
    return true;
}

static bool say_dependencies(struct say *p, bool negated) {
    static const enum keyword all[] = {KEYWORD_DEPENDENCIES, KEYWORD_DEPENDENT_REQUIRED,
                                       KEYWORD_DEPENDENT_SCHEMAS};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (p->k.of[all[i]])
            EACH_MEMBER(p, k, p->k.of[all[i]])
    if (!(k[1].type == JDOC_ARRAY ? say_dependent_names(p, k, k + 1, negated)
                                  : say_dependent_schema(p, k, k + 1, negated)))
        return false;
    return true;
}

bool say_object(struct say *p, bool negated) {
    const struct jdoc_value *required = p->k.of[KEYWORD_REQUIRED];
    if (!say_properties(p, negated) || !say_count(p, KEYWORD_MIN_PROPERTIES, KEYWORD_MAX_PROPERTIES, negated))
        return false;
    if (required)
        EACH_ELEMENT(p, e, required) {
            if (negated && has_name(p, p->k.of[KEYWORD_PROPERTIES], e))
                continue; // said above
            if (!(negated ? SAY_OR(p, fact_absent(e)) : say_add(p, fact_required(e))))
                return false;
        }
    return say_dependencies(p, negated);
}
