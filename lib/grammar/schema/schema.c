// schema_to_expr(), see front.h.
#include "schema_state.h"

#include "../expr.h"

#include <stdlib.h>

static void schema_free(struct schema *s) {
    for (struct form *f = s->all_forms; f; f = f->owned_next)
        if (f->owned)
            dfa_free((struct dfa *)f->text);
    for (int i = 0; i < s->num_cache; i++)
        dfa_free(s->cache[i].dfa);
    for (struct owned_dfa *o = s->owned; o; o = o->next)
        dfa_free(o->dfa);
    schema_free_memory(s);
}

expr schema_to_expr(struct grammar_builder *b, const char *text, size_t len, struct err *err) {
    struct err local = {0};
    struct schema s = {.b = b,
                       .err = err ? err : &local,
                       .queue = -1,
                       .queue_end = -1,
                       .expand = goal_expand,
                       .write = goal_write,
                       .write_tagged = goal_write_tagged,
                       .as_written = b->style.as_written};
    expr root = EXPR_NONE;
    if (schema_read(&s, text, len)) {
        atom a = schema_atom(&s, s.doc.values, false);
        goal g = s.failed ? -1 : schema_goal(&s, &a, 1);
        enum json_members written = gb_tags(b)                              ? MEMBERS_TAGS
                                    : b->literals && b->literals->arguments ? MEMBERS_ARGUMENTS
                                                                            : MEMBERS_JSON;
        root = g >= 0 && (b->literals || gb_tags(b)) ? goal_write_call(&s, g, written) : goal_expr(&s, g);
        if (!goals_write(&s))
            root = EXPR_NONE;
    }
    if (root == EXPR_NONE && s.err->code == STATUS_OK)
        gb_failed(b, s.err);
    schema_free(&s);
    return root;
}
