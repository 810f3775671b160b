// Result codes shared by every module. Zero is success; a function that can fail returns one.
#pragma once

#include <stdarg.h>
#include <stdio.h>

enum status {
    STATUS_OK,
    STATUS_NOMEM,     // out of host memory
    STATUS_INVALID,   // an argument
    STATUS_LIMIT,     // a configured limit was reached
    STATUS_IO,        // input or output
    STATUS_FORMAT,    // malformed or unsupported file
    STATUS_DEVICE,    // missing, or failed
    STATUS_CANCELLED, // the caller asked for it
    STATUS_STOPPING,  // the service
};

// Why a call failed, in a sentence for a person. The caller owns it and starts it zeroed. `err` may be
// NULL where a function takes one: then only the code comes back.
struct err {
    enum status code;
    char msg[880];
};

// Fills err (where not NULL) and returns code, so that `return err_set(...)` reads well. The first error
// wins: a message that is already there is kept, because it is closer to the cause.
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static inline enum status
err_set(struct err *err, enum status code, const char *fmt, ...) {
    if (!err || err->code != STATUS_OK)
        return code;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    err->code = code;
    return code;
}

// The same of a sentence about something with a name, which is written before it.
#if defined(__GNUC__)
__attribute__((format(printf, 4, 0)))
#endif
static inline enum status
err_set_named(struct err *err, enum status code, const char *name, const char *fmt, va_list ap) {
    char text[sizeof err->msg];
    vsnprintf(text, sizeof text, fmt, ap);
    return err_set(err, code, "%s: %s", name, text);
}
