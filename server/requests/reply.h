// Whole responses: JSON, or an error in the form of the request's API.
#pragma once

#include "api/api_error.h"
#include "http/http.h"

void reply_error(struct http_request *request, const struct api_error *error);
void reply_json(struct http_request *request, struct buf *b); // 200; frees b

// reply_error() of a new error: status, code, param, format, arguments.
#define REPLY_ERROR(request, status, code, param, ...)                                                       \
    do {                                                                                                     \
        struct api_error error_ = {0};                                                                       \
        api_fail(&error_, status, code, param, __VA_ARGS__);                                                 \
        reply_error(request, &error_);                                                                       \
    } while (0)
