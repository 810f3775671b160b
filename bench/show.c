#include "show.h"

#include "terminal.h"

#include <stdio.h>
#include <unistd.h>

static const char full[] = "####################";
enum { PLAIN_S = 10, WIDTH = sizeof full - 1 };

void show_begin(struct show *s, bool quiet) {
    *s = (struct show){.quiet = quiet, .terminal = terminal_draws(STDERR_FILENO)};
}

void show_progress(const struct progress *p, void *context) {
    struct show *s = context;
    double seconds = (double)(p->now - s->last) / 1e9;
    if (s->quiet || (!s->terminal && seconds < PLAIN_S))
        return;
    int bar = (int)(p->part * WIDTH);
    if (s->terminal)
        fprintf(stderr, "\r\033[K[%.*s%*s] ", bar, full, WIDTH - bar, "");
    fprintf(
        stderr,
        "%3.0f %% %5.0f s  %zu sent, %zu running, %zu waiting, %zu done, %zu failed; %.1f requests/s, %.0f "
        "chunks/s%s",
        p->part * 100, (double)p->now / 1e9, p->sent, p->running, p->waiting, p->completed, p->failed,
        (double)(p->completed - s->completed) / seconds, (double)(p->chunks - s->chunks) / seconds,
        s->terminal ? "" : "\n");
    fflush(stderr);
    s->last = p->now;
    s->completed = p->completed;
    s->chunks = p->chunks;
    s->shown = true;
}

void show_end(struct show *s) {
    if (s->terminal && s->shown)
        fputs("\r\033[K", stderr);
}
