// What a client is told when something is wrong.
#pragma once

#include <stdbool.h>

// `type` and `code` are constants.
struct api_error {
    int status;              // HTTP; 0: no error
    const char *type, *code; // code NULL: null
    char param[160];         // dotted path; empty: null
    char message[400];
    int retry_after; // s; 0: none
};

// Fills e (the first error wins) and returns false.
#if defined(__GNUC__)
__attribute__((format(printf, 5, 6)))
#endif
bool api_fail(struct api_error *e, int status, const char *code, const char *param, const char *fmt, ...);
bool api_fail_memory(struct api_error *e); // 503 overloaded
