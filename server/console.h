// What a command says to the person who started it.
#pragma once

// Exit codes: a bad model file, or an output that cannot be written; bad usage; a failed engine.
enum { EXIT_MODEL = 1, EXIT_USAGE = 2, EXIT_ENGINE = 70 };

// `quire: …` on stderr, one line. What is not printable UTF-8 goes out as \\xNN.
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
void complain(const char *fmt, ...);
// How much of the model is loaded, from 0 to 1: a bar on stderr where that is a terminal, nothing elsewhere.
void console_progress(void *arg, double fraction);
