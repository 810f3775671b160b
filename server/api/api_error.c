#include "api_error.h"

#include <stdarg.h>
#include <stdio.h>

bool api_fail(struct api_error *e, int status, const char *code, const char *param, const char *fmt, ...) {
    if (e->status)
        return false;
    e->status = status;
    e->code = code;
    e->type = status == 501   ? "not_supported_error"
              : status == 429 ? "rate_limit_error"
              : status >= 500 ? "server_error"
                              : "invalid_request_error";
    snprintf(e->param, sizeof e->param, "%s", param ? param : "");
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->message, sizeof e->message, fmt, ap);
    va_end(ap);
    return false;
}

bool api_fail_context(struct api_error *e, const char *param, const char *what, size_t tokens, size_t bytes,
                      int n_ctx) {
    if (e->status)
        return false;
    e->n_prompt_tokens = tokens;
    e->n_ctx = n_ctx;
    return api_fail(e, 400, "context_length_exceeded", param,
                    "This model's maximum context length is %d tokens; %s %zu%s.", n_ctx, what,
                    tokens ? tokens : bytes,
                    tokens == (size_t)n_ctx ? ", which leaves no room for a completion"
                    : tokens                ? ", which exceeds the available context size"
                                            : " bytes, which exceeds the available context size");
}

bool api_fail_memory(struct api_error *e) {
    if (!e->status)
        e->retry_after = 5;
    return api_fail(e, 503, "overloaded", NULL, "The server is out of memory.");
}

bool api_check_encoded(struct api_error *e, const char *param, enum status status) {
    if (status == STATUS_INVALID)
        return api_fail(e, 400, NULL, param, "This model has no vocabulary: send a prompt of token ids.");
    return status == STATUS_OK || api_fail_memory(e);
}
