// Source to tokens.
#pragma once

#include "op.h"
#include "source.h"

enum token_kind {
    T_EOF,
    T_DATA,
    T_VAR_BEGIN,
    T_VAR_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_STRING,
    T_INT,
    T_FLOAT,
    T_OP
};

struct token {
    enum token_kind kind;
    int op;                // op.h
    uint32_t line, column; // from 1
    const char *p;         // data, name, string after its escapes
    size_t len;
    int64_t i;
    double f;
};

void jinja_lex(struct jinja_source *s, const char *source, size_t len); // to s->tokens, the last T_EOF
