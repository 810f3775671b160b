// A byte that chooses the language, a grammar in it: an answer within the budgets; what is accepted can be walked.
#include "grammar/front.h"
#include "grammar/matcher.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const texts[] = {"", "a", "ab 1", "{\"a\": [1, true]}", "\xc3\xa9(("};
    if (size < 1 || size > 4096)
        return 0;
    struct err err = {0};
    struct grammar_builder *b = gb_new();
    if (!b)
        abort();
    const char *source = (const char *)data + 1;
    expr e = data[0] & 1 ? lark_to_expr(b, source, size - 1, &err) : gbnf_to_expr(b, source, size - 1, &err);
    struct grammar *g = NULL;
    if (e == EXPR_NONE)
        gb_free(b);
    else
        g = grammar_finish(b, e, &err);
    if (!g && (!err.code || !err.msg[0] || !utf8_valid((unsigned char *)err.msg, strlen(err.msg))))
        abort();
    for (size_t i = 0; g && i < sizeof texts / sizeof *texts; i++)
        grammar_takes(g, texts[i], strlen(texts[i]));
    grammar_free(g);
    return 0;
}
