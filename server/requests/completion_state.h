// The inside of a completion; completion*.c only.
#pragma once

#include "api/dialect.h"
#include "app.h"

enum completion_state {
    COMPLETION_PARSING, // the body is in the pool
    COMPLETION_RUNNING, // requests are with the engine
    COMPLETION_ENDED,   // responded to, or failed
};

struct pending_token { // a token whose text is not out yet: its log-probability waits with it
    struct service_event event;
    size_t bytes;
    int64_t offset;
};

struct choice {
    uint64_t id;         // 0: not in the table
    struct choice *next; // in its bucket
    struct completion *completion;
    int index;
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
    int num_tokens, num_cached;
    enum finish_reason finish;
    token_id stop_token; // of stop_token_ids, which ended it, where it is complete; -1: none did
    bool submitted;
    bool strip;          // the prompt is BOS alone: the first token's leading space is no text
    bool echo_begun;     // the echo has text: a leading space is one
    bool begun;          // a piece of it is written
    bool has_new_line;   // its text, but for what is held back
    bool complete;       // no more text will come
    bool finished;       // EVENT_FINISH came, or nobody waits for it
    bool finish_sent;    // the piece with the finish reason is written
    bool has_new_text;   // text holds that of a token of this turn
    int64_t first, last; // ns when the first and the last token came here
    struct {
        int64_t scheduled, first,
            last; // ns of the first step, and when the engine had the first and the last token
    } engine;
};

struct completion {
    struct app *app;
    const struct dialect *dialect;
    struct http_request *http; // NULL: gone, while the pool works
    struct completion *prev, *next, *next_flush;
    bool needs_flush; // in app->flush_list
    enum completion_state state;
    struct completion_request request;
    struct response response;
    int64_t predicted_ns; // to the first token of choice 0; -1: not known
    int key;              // index of the client's key; -1: it has none
    struct work_client client;
    struct pool_work work;
    struct buf body;
    struct api_error error;
    char id[REQUEST_ID_SIZE + 12];
    struct choice *choices; // (num_choices)
    int num_choices, num_submitted;
    int num_open;       // submitted, and EVENT_FINISH has not come
    int64_t num_prompt; // tokens, each prompt once
    int64_t submitted;  // ns when the engine got the first choice; 0: never
    int64_t last_write, over_since;
    size_t kept;                 // its part of app->kept
    struct service_event timing; // EVENT_FINISH of choice 0
    bool logged;
    bool begun; // the chunks that announce the choices are written
};

struct choice *choice_table_find(struct app *app, uint64_t id); // NULL: none
void choice_table_add(struct app *app, struct choice *ch);
void choice_table_remove(struct app *app, struct choice *ch); // nothing, where it is not in the table
// Submits the requests of all choices, or none; of vectors those that may be in the queue now. False: e says why.
bool completion_submit(struct completion *c, struct api_error *e);
// Ends the response with an error: as the status where nothing has been sent, else in the stream.
void completion_fail(struct completion *c, const struct api_error *e);
void completion_fail_memory(struct completion *c);
// Its response is over: queues its span. `finish` is static.
void completion_trace(const struct completion *c, const struct usage *usage, int status, const char *finish);
void completion_free(struct completion *c); // out of all lists; http->user must not point to it any more

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
void choice_free(struct choice *ch);         // what it owns
