// Result codes shared by every module. Zero is success; a function that can fail returns one.
#pragma once

#include <stdarg.h>
#include <stdio.h>

#define STATUS_MAP(X)                                                                                        \
    X(OK, "ok")                                                                                              \
    X(NOMEM, "out of host memory")                                                                           \
    X(INVALID, "invalid argument")                                                                           \
    X(LIMIT, "a configured limit was reached")                                                               \
    X(IO, "input/output error")                                                                              \
    X(FORMAT, "malformed or unsupported file")                                                               \
    X(DEVICE, "device error")                                                                                \
    X(CANCELLED, "cancelled")                                                                                \
    X(STOPPING, "the service is stopping")

#define X(name, text) STATUS_##name,
enum status { STATUS_MAP(X) STATUS_COUNT };
#undef X

// Why a call failed, in a sentence for a person. The caller owns it and starts it zeroed. `err` may be
// NULL where a function takes one: then only the code comes back.
struct err {
    enum status code;
    char msg[400];
};

// A constant string for any value of enum status; never NULL. Any thread.
static inline const char *status_str(enum status s) {
    switch (s) {
#define X(name, text)                                                                                        \
    case STATUS_##name: return text;
        STATUS_MAP(X)
#undef X
    case STATUS_COUNT: break;
    }
    return "unknown status";
}

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
