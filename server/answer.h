// The inside of a stream; stream.c and stream_begin.c only.
#pragma once

#include "job.h"
#include "stream.h"

struct held_token { // a token whose text is not out yet: its log-probability waits with it
    struct service_event event;
    size_t bytes;
    int64_t offset;
};

struct choice {
    uint64_t id;         // 0: not in the table
    struct choice *next; // in its bucket
    struct stream *stream;
    int index;
    struct detok *detok;
    struct detok *echo; // of the prompt, which is part of the text; NULL: not asked for, or all of it is out
    int num_echoed;     // prompt tokens given to it
    struct buf text;    // certain and not yet written
    struct logprob_lists lists;
    struct held_token *held;
    int num_held, cap_held;
    size_t credit;            // bytes of text that came out beyond those of the tokens let go
    int64_t chars;            // characters of all tokens so far: the next text_offset
    unsigned char partial[4]; // (num_partial) the last one's bytes, where more may belong to it
    size_t num_partial;
    int num_tokens, num_cached;
    enum finish_reason finish;
    bool submitted;
    bool strip;          // the prompt is BOS alone: the first token's leading space is no text
    bool echo_begun;     // the echo has text: a leading space is one
    bool complete;       // no more text will come
    bool finished;       // EVENT_FINISH came, or nobody waits for it
    bool finish_sent;    // the chunk with finish_reason is written
    bool fresh;          // text holds that of a token of this turn
    int64_t first, last; // ns of the first and the last token
};

struct stream {
    struct app *app;
    struct http_call *call; // NULL: gone, while the pool works
    struct stream *prev, *next, *next_dirty;
    bool is_dirty;
    enum stream_state state;
    struct completion req;
    uv_work_t work;
    struct buf body;
    struct api_error error;
    char id[REQUEST_ID_SIZE + 12];
    int64_t created;
    struct choice *choices;    // (num_choices)
    int num_choices, num_open; // open: EVENT_FINISH has not come
    struct buf head;           // of every chunk
    int64_t num_prompt;        // tokens, each prompt once
    int64_t last_write, over_since;
    struct service_event timing; // EVENT_FINISH of choice 0
    bool logged, chat;
    bool begun; // the chunks that announce the choices are written
};

void table_add(struct app *app, struct choice *c);
void table_remove(struct app *app, struct choice *c); // nothing, where it is not in the table
// Ends the answer with an error: as the status where nothing has been sent, else in the stream.
void stream_fail(struct stream *s, const struct api_error *e);
void stream_fail_memory(struct stream *s);
void stream_free(struct stream *s); // out of all lists; the call must not point to it any more
