// A byte of flags, an expression, a NUL, a text: an answer within the budgets; the automaton has no dead ends, and says
// of the text what the grammar says.
#include "grammar/front.h"
#include "grammar/matcher.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_automaton(const struct dfa *d) {
    bool *ends = calloc((size_t)d->num_states + 1, sizeof *ends);
    if (!ends)
        abort();
    for (bool more = true; more;) {
        more = false;
        for (int s = d->num_states; s-- > 0;)
            for (int b = 0; b < 256 && !ends[s]; b++) {
                int32_t to = dfa_step(d, s, (unsigned char)b);
                if (to < DFA_DEAD || to >= d->num_states)
                    abort();
                more |= ends[s] = d->label[s] >= 0 || (to >= 0 && ends[to]);
            }
    }
    for (int s = 0; s < d->num_states; s++)
        if (!ends[s])
            abort();
    free(ends);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1 || size > 512)
        return 0;
    bool anchored = data[0] & 1;
    const char *pattern = (const char *)data + 1, *end = (const char *)data + size;
    const char *zero = memchr(pattern, 0, size - 1), *text = zero ? zero + 1 : end;
    size_t len = zero ? (size_t)(zero - pattern) : size - 1, text_len = (size_t)(end - text);
    struct err err = {0};
    struct dfa *d = dfa_regex(pattern, len, anchored, &err);
    if (!d) {
        if (!err.code || !err.msg[0] || !utf8_valid((unsigned char *)err.msg, strlen(err.msg)))
            abort();
        return 0;
    }
    bool takes = dfa_match(d, text, text_len) >= 0;
    if (takes && !utf8_valid((const unsigned char *)text, text_len))
        abort();
    if (d->num_states < 2000)
        check_automaton(d);
    struct grammar_builder *b = anchored ? gb_new() : NULL;
    expr e = b ? regex_to_expr(b, pattern, len, &err) : EXPR_NONE;
    struct grammar *g = e == EXPR_NONE ? NULL : grammar_finish(b, e, &err);
    if (e == EXPR_NONE)
        gb_free(b);
    if (g && grammar_takes(g, text, text_len) != takes)
        abort();
    if (b && !g && !err.code)
        abort();
    grammar_free(g);
    dfa_free(d);
    return 0;
}
