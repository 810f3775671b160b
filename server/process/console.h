// Messages of a command to the person who started it.
#pragma once

#include <stddef.h>
#include <stdio.h>

// Exit codes: a bad model file, or an output that cannot be written; bad usage; a failed engine.
enum { EXIT_MODEL = 1, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_ENGINE = 70 };

// `quire: …` on stderr, one line. What is not printable UTF-8 goes out as \\xNN.
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
void complain(const char *fmt, ...);
// Writes text of a model or a server, in which a control character but a newline or a tab, or what is no UTF-8, becomes
// \\xNN, so that it moves no cursor and sets no title.
void console_text(FILE *out, const char *text, size_t len);
// The same in at most `columns` columns of a terminal; what goes beyond is left out.
void console_line(FILE *out, const char *text, size_t len, int columns);
// Shows on stderr how much of `what`, a literal, is done, from 0 to 1: a bar on a terminal; elsewhere a line for each
// tenth, once it has taken a second. One thread at a time.
void console_bar(const char *what, double fraction);
// How much of the model is loaded: console_bar() for engine_open().
void console_progress(void *arg, double fraction);
