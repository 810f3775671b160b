// Turns into request bodies.
#pragma once

#include "buf.h"
#include "dataset.h"
#include "options.h"

#include <stdbool.h>
#include <stdint.h>

// How made-up tokens are written, found out before the run (probe.c).
struct prompt_maker {
    bool ids;                 // token ids; else words
    uint32_t first_id, ids_n; // ids are sampled from [first_id, first_id + ids_n)
    double tokens_per_word;   // words
    double overhead;          // tokens that the server adds to each prompt (words: chat template, BOS)
    bool calibrated;
    char model[256];
    uint64_t seed;
};

// The earlier messages of a conversation: pairs of text, {user, assistant}…
struct history {
    char **said; // [num], owned
    uint32_t num;
};
void history_add(struct history *h, const char *text, size_t len);
void history_free(struct history *h);

// The text of a made-up turn.
void prompt_words(const struct prompt_maker *m, const struct turn *t, bool first, struct buf *b);
// The whole HTTP request for a turn that follows `h`. *user: the user's text where the conversation goes on
// (NULL: not wanted).
void prompt_request(const struct options *o, const struct prompt_maker *m, const struct turn *t,
                    const struct history *h, struct buf *out, struct buf *user);
// The HTTP request around a body; GET where body is NULL.
void prompt_http(const struct options *o, const char *path, const struct buf *body, struct buf *out);
