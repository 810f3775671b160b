// Any bytes as a JSON Schema: an answer within the budgets, with a reason in UTF-8 where it is refused. What is accepted
// takes JSON alone: where a text is walked byte by byte and may end, it is a JSON text.
#include "grammar/front.h"
#include "grammar/matcher.h"
#include "utf8.h"
#include "json/jdoc.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Walks the grammar, the way at each byte chosen by a hash of the schema and what came before.
static void walk(struct grammar *g, uint32_t seed) {
    enum { MOST = 200 };
    struct matcher *m = matcher_new(g);
    char text[MOST + 1];
    size_t len = 0;
    if (!m)
        abort();
    int32_t state = matcher_start(m);
    while (state >= 0 && len < MOST) {
        if (matcher_may_end(m, state) && len > 0) {
            struct jdoc j;
            char *copy = malloc(len + 1);
            if (!copy)
                abort();
            memcpy(copy, text, len);
            if (utf8_valid((unsigned char *)text, len) &&
                jdoc_parse(&j, "text", copy, len, NULL) != STATUS_OK && !memchr(text, '\\', len) &&
                !memchr(text, '{', len)) // lone surrogates, equal keys
                abort();
            if (utf8_valid((unsigned char *)text, len))
                jdoc_free(&j);
            else
                free(copy);
        }
        int32_t next = MATCHER_DEAD;
        seed = seed * 1664525 + 1013904223;
        for (unsigned i = 0; i < 256 && next == MATCHER_DEAD; i++) {
            unsigned char byte = (unsigned char)((seed >> 24) + i * 37);
            next = matcher_step(m, state, byte);
            text[len] = (char)byte;
        }
        state = next;
        len++;
    }
    matcher_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct err err = {0};
    struct grammar_builder *b = gb_new();
    uint32_t seed = (uint32_t)size;
    if (!b)
        abort();
    gb_json_style(
        b, &(struct json_style){.order = size % 2 ? JSON_ORDER_ANY : JSON_ORDER_SCHEMA, .as_written = true});
    expr e = schema_to_expr(b, (const char *)data, size, &err);
    struct grammar *g = e == EXPR_NONE ? NULL : grammar_finish(b, e, &err);
    if (e == EXPR_NONE)
        gb_free(b);
    if (!g && (!err.code || !err.msg[0] || !utf8_valid((unsigned char *)err.msg, strlen(err.msg))))
        abort();
    for (size_t i = 0; i < size; i++)
        seed = seed * 31 + data[i];
    for (uint32_t i = 0; g && i < 4; i++)
        walk(g, seed + i);
    grammar_free(g);
    return 0;
}
