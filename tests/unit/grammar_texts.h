// Grammars of a language against texts that they take and that they do not.
#pragma once

#include "harness.h"

#include "grammar/front.h"
#include "grammar/matcher.h"

typedef expr front_end(struct grammar_builder *b, const char *text, size_t len, struct err *err);

static inline struct grammar *read_grammar(front_end *front, const char *source, size_t len,
                                           struct err *err) {
    struct grammar_builder *b = gb_new();
    assert_non_null(b);
    gb_json_style(b, &(struct json_style){.max_blanks = 4});
    expr root = front(b, source, len, err);
    if (root != EXPR_NONE)
        return grammar_finish(b, root, err);
    gb_free(b);
    assert_true(err->code != STATUS_OK && err->msg[0]);
    return NULL;
}

// A case: a grammar, texts that it takes, texts that it does not; each list ends with NULL.
struct grammar_case {
    const char *source;
    const char *taken[12], *refused[12];
};

static inline void check_text(struct grammar *g, const char *source, const char *text, size_t len,
                              bool takes) {
    if (grammar_takes(g, text, len) != takes)
        fail_msg("%s\n'%.*s' is %s", source, (int)len, text, takes ? "refused" : "taken");
}

static inline void check_cases(front_end *front, const struct grammar_case *cases, size_t num) {
    for (size_t i = 0; i < num; i++) {
        struct err err = {0};
        struct grammar *g = read_grammar(front, cases[i].source, strlen(cases[i].source), &err);
        if (!g)
            fail_msg("%s\n%s", cases[i].source, err.msg);
        for (int j = 0; cases[i].taken[j]; j++)
            check_text(g, cases[i].source, cases[i].taken[j], strlen(cases[i].taken[j]), true);
        for (int j = 0; cases[i].refused[j]; j++)
            check_text(g, cases[i].source, cases[i].refused[j], strlen(cases[i].refused[j]), false);
        grammar_free(g);
    }
}

struct refusal {
    const char *source;
    enum status code;
    const char *says; // part of the message
};

static inline void check_refusals(front_end *front, const struct refusal *cases, size_t num) {
    for (size_t i = 0; i < num; i++) {
        struct err err = {0};
        struct grammar *g = read_grammar(front, cases[i].source, strlen(cases[i].source), &err);
        if (g || err.code != cases[i].code || !strstr(err.msg, cases[i].says))
            fail_msg("%s\nexpected \"%s\", not \"%s\"", cases[i].source, cases[i].says, g ? "" : err.msg);
    }
}
