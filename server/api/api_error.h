// Errors that clients see.
#pragma once

#include "status.h"

#include <stdbool.h>
#include <stddef.h>

// `type` and `code` are constants.
struct api_error {
    int status;              // HTTP; 0: no error
    const char *type, *code; // code NULL: null
    char param[160];         // dotted path; empty: null
    char message[400];
    int retry_after;        // s; 0: none
    const char *request_id; // borrowed; NULL: not known
    // Where the context is exceeded, as llama-server has it; 0: not known.
    size_t n_prompt_tokens;
    int n_ctx;
};

// Fills e (the first error wins) and returns false.
#if defined(__GNUC__)
__attribute__((format(printf, 5, 6)))
#endif
bool api_fail(struct api_error *e, int status, const char *code, const char *param, const char *fmt, ...);
// 400 context_length_exceeded. `what` begins the clause: "the prompt has". Of `tokens` tokens; or of so many
// bytes that no tokenising makes them fit, where tokens is 0.
bool api_fail_context(struct api_error *e, const char *param, const char *what, size_t tokens, size_t bytes,
                      int n_ctx);
bool api_fail_memory(struct api_error *e); // 503 overloaded, to be tried again
// true where a text got its ids; else fails by what tokenizer_encode() or text_encode() gave.
bool api_check_encoded(struct api_error *e, const char *param, enum status status);
