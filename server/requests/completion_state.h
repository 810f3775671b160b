// The inside of a completion; completion*.c only.
#pragma once

#include "exchange.h"

// A token whose text is not out yet: its log-probability waits with it.
struct pending_token {
    struct service_event event;
    size_t bytes;
    int64_t offset;
};

struct choice {
    struct completion *completion;
    struct engine_request *engine; // of exchange.requests, by the same index
    struct detok *detok;
    struct output_parser *output; // reads what the detok gives; NULL: it is text
    int num_reasoning;            // tokens
    struct detok *echo; // of the prompt, which is part of the text; NULL: not asked for, or all of it is out
    int num_echoed;     // prompt tokens given to it
    struct buf text;    // certain and not yet written
    struct logprob_lists lists;
    struct buf prompt_logprobs; // as the dialect prints them
    struct buf token_ids;       // of the tokens not yet written: 1,2,3
    struct pending_token *pending;
    int num_pending, cap_pending;
    size_t released_bytes;    // of text that came out beyond those of the tokens let go
    int64_t chars;            // characters of all tokens so far: the next text_offset
    unsigned char partial[4]; // (num_partial) the last one's bytes, where more may belong to it
    size_t num_partial;
    token_id stop_token; // of stop_token_ids, which ended it, where it is complete; -1: none did
    bool strip;          // the prompt is BOS alone: the first token's leading space is no text
    bool echo_begun;     // the echo has text: a leading space is one
    bool begun;          // a piece of it is written
    bool has_new_line;   // its text, but for what is held back
    bool in_indent;      // its text so far ends with a new line and `indent` blanks
    int indent;
    bool limited;      // n_indent or max_predict_ms has ended it
    bool finish_sent;  // the piece with the finish reason is written
    bool has_new_text; // text holds that of a token of this turn
};

struct completion {
    struct exchange exchange; // first
    const struct dialect *dialect;
    struct completion_request request;
    struct response response;
    uint64_t seed;
    struct choice *choices;    // (exchange.num_requests)
    bool begun;                // the chunks that announce the choices are written
    enum response_stage stage; // at which it is kept
    struct usage usage;        // of one that has ended
};

// begin() of completions: submits the requests of all choices, or none.
bool completion_submit(struct exchange *x, struct api_error *e);

// ---- responses that are kept (completion_keep.c)

bool completion_is_kept(const struct completion *c);
bool completion_waits(const struct completion *c); // the next two do, for a disk: in the pool
// Keeps a response whose stream has all pieces, or the whole one of `body`, which then says so.
void completion_keep(struct exchange *x);
void completion_keep_whole(struct completion *c, struct buf *body);

// ---- in the background (completion_background.c)

// Lets one go on without its client, whose request gets the response as it is now, or its events.
bool completion_detach(struct completion *c, struct api_error *e);
// Keeps the response of one that has ended or failed, and after that shows its last events.
void completion_end_background(struct completion *c);
void completion_end_made(struct exchange *x); // the same of one whose whole response is kept

// ---- the text of a choice (completion_text.c)

// Adds a prompt token of which the engine gave a log-probability to the echo.
void choice_echo(struct choice *ch, const struct service_event *ev);
// Ends the echo, before what was generated.
void choice_echo_end(struct choice *ch);
// Adds a generated token; a stop token gives no text. True: it ended the text, by a stop string or the one call.
bool choice_add_token(struct choice *ch, const struct service_event *ev, bool is_stop);
// Ends the text: gives what the detokenizer and the pending log-probabilities kept back.
void choice_end_text(struct choice *ch);
// Bytes of text that may be written: with log-probabilities, that of the tokens let go, so that both go
// together.
size_t choice_sendable(const struct choice *ch);
bool choice_failed(const struct choice *ch); // out of memory
size_t choice_kept(const struct choice *ch); // bytes of its response that are not written yet
void choice_free(struct choice *ch);         // all that it owns
