// unevaluatedProperties and unevaluatedItems: what no schema that holds for the same value has named. Which ones hold is
// known where a clause has been read to its end.
#include "schema_keywords.h"

// Whether what `o` evaluates counts for `of`.
static bool counts_for(const struct origin *o, const struct origin *of) {
    for (; o && o != of; o = o->parent)
        if (o->detached)
            return false;
    return o == of;
}

static bool say_unevaluated(struct schema *s, enum json_type type, struct clause *c,
                            const struct origin *own) {
    bool object = type == TYPE_OBJECT;
    struct keywords mine;
    if (!keywords_read(s, atom_node(s, own->atom), &mine))
        return false;
    const struct jdoc_value *schema =
        mine.of[object ? KEYWORD_UNEVALUATED_PROPERTIES : KEYWORD_UNEVALUATED_ITEMS];
    const struct node_list *nodes = NULL;
    int64_t from = 0;
    bool all = false;
    if (!schema)
        return true;
    for (const struct origin *o = c->read; o; o = o->next) {
        struct keywords k;
        if (atom_negated(o->atom) || atom_is_value(o->atom) || !counts_for(o, own))
            continue;
        if (!keywords_read(s, atom_node(s, o->atom), &k))
            return false;
        if (object) {
            struct node_list *l = schema_alloc(s, sizeof *l);
            if (!l)
                return false;
            *l = (struct node_list){k.self, false, nodes};
            nodes = l;
            all = all || k.of[KEYWORD_ADDITIONAL_PROPERTIES] ||
                  (o != own && k.of[KEYWORD_UNEVALUATED_PROPERTIES]);
            continue;
        }
        const struct jdoc_value *items = k.of[KEYWORD_ITEMS], *prefix = k.of[KEYWORD_PREFIX_ITEMS];
        bool list = items && items->type == JDOC_ARRAY;
        if (list)
            prefix = items;
        if (prefix && (int64_t)prefix->len > from)
            from = prefix->len;
        all = all || (items && !list) || (list && k.of[KEYWORD_ADDITIONAL_ITEMS]) ||
              (o != own && k.of[KEYWORD_UNEVALUATED_ITEMS]);
        if (k.of[KEYWORD_CONTAINS] && k.draft >= DRAFT_2020)
            return schema_fail(s, schema, STATUS_INVALID, "is not supported beside `contains`");
    }
    if (all)
        return true;
    return clause_add(s, c,
                      (struct fact){.kind = object ? FACT_OTHERS : FACT_ITEMS,
                                    .nodes = nodes,
                                    .min = from,
                                    .atom = schema_atom(s, schema, false)});
}

bool clause_say_unevaluated(struct schema *s, enum json_type type, struct clause *c) {
    for (const struct origin *o = c->read; o; o = o->next)
        if (!atom_negated(o->atom) && !atom_is_value(o->atom) && !say_unevaluated(s, type, c, o))
            return false;
    return true;
}
