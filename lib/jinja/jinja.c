// The state of a rendering: how it fails, its steps and its memory.
#include "jinja.h"

#include "utf8.h"

#include <stdarg.h>
#include <stdio.h>

_Noreturn void jinja_fail(struct jinja *j, enum status status, const char *fmt, ...) {
    char text[360];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    utf8_scrub(text);
    if (fmt[0] == '%' && fmt[1] == '.') // the template's own words
        err_set(j->err, status, "%s", text);
    else
        err_set(j->err, status, "chat template, line %u: %s", j->line, text);
    j->status = status;
    longjmp(j->env, 1);
}

void jinja_steps(struct jinja *j, size_t n) {
    if (n > (size_t)j->steps)
        jinja_fail(j, STATUS_LIMIT, "over %d steps", JINJA_MAX_STEPS);
    j->steps -= (int64_t)n;
}

void jinja_no_memory(struct jinja *j, size_t n) {
    if (n > j->a->limit || j->a->used > j->a->limit - n)
        jinja_fail(j, STATUS_LIMIT, "the chat template needs too much memory");
    jinja_fail(j, STATUS_NOMEM, "out of memory for the chat template");
}

void *jinja_alloc(struct jinja *j, size_t n) {
    void *p = arena_alloc(j->a, n);
    if (!p)
        jinja_no_memory(j, n);
    return p;
}
