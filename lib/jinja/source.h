// Shared by lexer and parser: the memory of a template, and the exit where reading it fails.
#pragma once

#include "arena.h"

#include <setjmp.h>

struct jinja_source {
    struct chat_arena *arena;
    struct err *err;
    enum status status;
    jmp_buf env; // where source_fail() goes
    struct token *tokens;
    size_t num_tokens, cap_tokens;
};

void *source_alloc(struct jinja_source *s, size_t n); // zeroed
// line 0: of the template as a whole.
_Noreturn void source_fail(struct jinja_source *s, enum status status, uint32_t line, uint32_t column,
                           const char *fmt, ...) __attribute__((format(printf, 5, 6)));
