// Logging and checks.
//
// A log line is `key=value` words on stderr, or a JSON object of them, at most LOG_MAX_LINE bytes, control characters
// escaped, written with one write(2) so that lines of two threads do not mix. Prompts, keys and generated text are
// never logged.
#pragma once

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };
enum { LOG_MAX_LINE = 4096 };

// Lines above this level are dropped. Start-up only, before other threads; default LOG_INFO.
void log_set_level(enum log_level level);

// json: lines are objects of time, level, msg (the words that are no `key=value`), and the keys. with_time: lines of text
// begin with `time=…`, UTC. Start-up only; default neither.
void log_set_format(bool json, bool with_time);

// Whether stderr is the journal, which has times of its own.
bool log_is_journal(void);

// From now on stderr is this file, appended to and made with mode 0640; false, and errno: it cannot be opened. path is
// kept. Start-up only; log_reopen() opens it anew, or does nothing without one: what had its name may have been moved.
bool log_open(const char *path);
bool log_reopen(void);

// One line whatever the level: as it is, or the msg of an object. Any thread.
void log_plain(const char *text);

// Writes one line: `level=info <text>`. Any thread. A write that fails or would block loses the line, which the next
// one that does not counts: logging never stops serving.
void log_msg(enum log_level level, const char *fmt, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

// Our own mistakes end the process, in release builds too: better no answer than another user's.
#define CHECK(cond) ((cond) ? (void)0 : check_failed(#cond, __FILE__, __LINE__))

#if defined(__GNUC__)
__attribute__((noreturn, cold))
#endif
void check_failed(const char *cond, const char *file, int line);

#ifdef __cplusplus
}
#endif
