#include "source.h"

#include "utf8.h"

#include <stdarg.h>
#include <stdio.h>

void *source_alloc(struct jinja_source *s, size_t n) {
    void *p = arena_alloc(s->arena, n);
    if (!p)
        source_fail(s, STATUS_NOMEM, 0, 0, "out of memory for the chat template");
    return p;
}

void source_fail(struct jinja_source *s, enum status status, uint32_t line, uint32_t column, const char *fmt,
                 ...) {
    char text[320];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    utf8_scrub(text);
    if (line)
        err_set(s->err, status, "chat template, line %u, column %u: %s", line, column, text);
    else
        err_set(s->err, status, "%s", text);
    s->status = status;
    longjmp(s->env, 1);
}
