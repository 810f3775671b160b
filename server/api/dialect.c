#include "dialect.h"

#include <time.h>

void logprobs_clear(struct logprob_lists *l) {
    buf_clear(&l->tokens);
    buf_clear(&l->values);
    buf_clear(&l->tops);
    buf_clear(&l->offsets);
    l->count = 0;
}

void logprobs_free(struct logprob_lists *l) {
    buf_free(&l->tokens);
    buf_free(&l->values);
    buf_free(&l->tops);
    buf_free(&l->offsets);
    l->count = 0;
}

bool logprobs_failed(const struct logprob_lists *l) {
    return l->tokens.failed || l->values.failed || l->tops.failed || l->offsets.failed;
}

const char *finish_name(enum finish_reason why) {
    switch (why) {
    case FINISH_STOP: return "stop";
    case FINISH_LENGTH: return "length";
    case FINISH_CANCELLED: return "abort"; // in logs and metrics only
    case FINISH_ERROR:
    case FINISH_FORBIDDEN:
    case FINISH_LIMIT: return "error";
    case FINISH_NONE: break;
    }
    return "none";
}

void dialect_write_time(struct buf *b, int64_t when) {
    time_t seconds = (time_t)when;
    struct tm tm;
    char text[32];
    gmtime_r(&seconds, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    buf_fmt(b, "\"%s\"", text);
}
