// The other side of `quire chat`: an engine in this process, or a running server. One answer at a time, one thread.
#pragma once

#include "process/config.h"

#include <jansson.h>
#include <signal.h>

enum talk_part { TALK_CONTENT, TALK_REASONING, TALK_CALL, TALK_ARGUMENTS };

struct talk_sink { // takes an answer as it comes: whole characters of UTF-8
    void (*take)(void *arg, enum talk_part part, const char *text, size_t len);
    void *arg;
};

struct talk_result {
    char finish[32];                // stop, length, …; cancelled where *stop was set
    int64_t prompt, cached, output; // tokens; -1: not known
    double first_ms, ms;            // to the first text, to the end
};

struct talk {
    // Owned, the command's to change: temperature, top_k, … as fields of a request. Those that are not there are the server's.
    json_t *sampling;
    // Answers messages, a list of OpenAI's. STATUS_CANCELLED: *stop was set; what came is an answer all the same. Else err
    // says in a sentence why there is none, or no more.
    enum status (*answer)(struct talk *t, const json_t *messages, const struct talk_sink *sink,
                          const volatile sig_atomic_t *stop, struct talk_result *out, struct err *err);
    // How many tokens their prompt has, and the most there may be (0: not known).
    enum status (*count)(struct talk *t, const json_t *messages, int64_t *tokens, int64_t *most,
                         struct err *err);
    void (*close)(struct talk *t); // frees t
};

// `sampling` is that of the model, or of the server where it tells it. NULL after one line on stderr; *rc is the exit code.
struct talk *talk_open_local(const struct config *c, int *rc);
struct talk *talk_open_url(const struct config *c, const char *url, int *rc);
