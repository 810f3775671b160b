// An API is a file: a dialect reads the bodies of its requests and writes the events and bodies of its responses, which
// are completions, vectors or decisions. completion.c, vectors.c and decisions.c know no dialect by name; routes.c has one
// row for each.
//
// All functions are pure, but that parse() looks into the store of responses: no sockets, no engine, any thread.
#pragma once

#include "api_error.h"
#include "completion_request.h"
#include "decisions.h"
#include "http/sse.h"
#include "service.h"

struct usage {
    int64_t prompt, completion, cached; // tokens
    int64_t reasoning;                  // of completion; -1: nobody counts them
};

// llama-server's account of a response so far: the prompts', then all choices'.
struct timings {
    int64_t cached, computed, generated; // tokens
    int64_t decoded;                     // generated after the first of each choice, which the prompt gives
    double prompt_ms, generation_ms; // from the first step to the first token, and from there to the last one
    double total_ms;                 // since the request came
};

// Log-probabilities of a piece of text, as the dialect prints them: up to four lists, the insides of JSON
// arrays. Start it zeroed.
struct logprob_lists {
    struct buf tokens, values, tops, offsets;
    int count;
};
void logprobs_clear(struct logprob_lists *l);
void logprobs_free(struct logprob_lists *l);
bool logprobs_failed(const struct logprob_lists *l); // out of memory

// "stop", "length", "abort", "error": what OpenAI's APIs, logs and metrics call the end of a choice.
const char *finish_name(enum finish_reason why);

// How clients of an API send requests and see errors, whatever the response is.
struct api_form {
    void (*error)(struct buf *b, const struct api_error *e); // the body of a status that is an error
    int overloaded;        // the status in place of 503 `overloaded`; 0: 503
    bool any_type;         // they send JSON as any Content-Type, which then says nothing
    const char *id_header; // that has the request's id besides x-request-id; NULL: none
};

// ---- completions

enum response_stage {
    RESPONSE_QUEUED,
    RESPONSE_RUNNING,
    RESPONSE_ENDED,
    RESPONSE_FAILED,
    RESPONSE_CANCELLED
};

// Shared by all parts of one response.
struct response {
    const struct completion_request *request;
    const struct served_model *model;
    const char *id, *fingerprint; // borrowed; valid until the response ends
    int64_t created;              // s since 1970
    int num_choices;
    // As of a body, or of a piece that ends a choice; where the request asks for them, as of each piece.
    struct timings timings;
    struct buf head; // begin() fills it: what every chunk, or the body, begins with
    bool unkept;     // the request wanted it kept, and its file could not be written
    void *state;     // the dialect's own, between the calls below; end() frees it. NULL: none
};

// Text of one choice that goes out together: a chunk of a stream, or all of it in a body.
struct piece {
    int index; // of the choice
    const char *text;
    size_t len;
    int num_tokens, num_cached;           // of the choice so far, and of its prompt
    bool has_new_line;                    // the choice's text so far
    bool limited;                         // it ended by the request's n_indent or max_predict_ms
    struct output_parser *output;         // the text as parsed, in place of it; NULL: it is content
    const struct logprob_lists *logprobs; // of its tokens; NULL: not asked for
    const struct buf *prompt_logprobs;    // the inside of a JSON array; NULL: not asked for
    const struct buf *token_ids;          // of its tokens, the inside of a JSON array; NULL: not asked for
    const struct token_buf *prompt;       // where its ids are asked for, of a choice's first piece; else NULL
    enum finish_reason finish;            // FINISH_NONE: more pieces follow
    const char *stop;                     // (stop_len) the stop string that ended it; NULL: none did
    size_t stop_len;
    const token_id *stop_token; // of stop_token_ids, which ended it; NULL: none did
};

struct dialect {
    const char *id_prefix; // of response.id
    const struct api_form *form;
    bool is_lines; // a stream is lines of JSON, without pings, not server-sent events
    // Parses, checks and tokenises a body. False: e says why, and r needs no freeing.
    bool (*parse)(struct completion_request *r, const struct served_model *m, const char *body, size_t len,
                  struct api_error *e);
    bool content_logprobs; // log-probabilities are those of content, not of reasoning and calls
    void (*begin)(struct response *r);
    void (*end)(struct response *r);                 // after all other calls; NULL: there is no state
    size_t (*state_bytes)(const struct response *r); // that the state holds of the output; NULL: none
    // Adds one token: its alternatives as asked for; num_top -1: it has no log-probability. `offset` counts
    // the characters of the returned text before it.
    void (*logprob)(struct logprob_lists *l, const struct response *r, const struct service_event *ev,
                    int64_t offset);

    // Adds one token of the prompt, from the second on, to what becomes piece.prompt_logprobs.
    void (*prompt_logprob)(struct buf *b, const struct response *r, const struct service_event *ev);

    // ---- a streamed response: each call writes its events with sse_begin() and sse_end().
    // `usage`: so far, where the client wants it with every chunk; else NULL.
    // Once before all pieces; NULL: nothing announces them.
    void (*role)(struct sse_queue *out, const struct response *r, const struct usage *usage);
    void (*piece)(struct sse_queue *out, const struct response *r, const struct piece *p,
                  const struct usage *usage);
    void (*done)(struct sse_queue *out, const struct response *r, const struct usage *usage); // not NULL
    // In place of all that would follow, done() too. e NULL: it was cancelled, as one in the background can be.
    void (*fail)(struct sse_queue *out, const struct response *r, const struct api_error *e);

    // ---- a response in one body
    void (*whole)(struct buf *b, const struct response *r, const struct piece *pieces, // (num_choices)
                  const struct usage *usage);
    // The body at a stage, for who looks later. usage: where it has ended; e: where it has failed. NULL: none is kept.
    void (*snapshot)(struct buf *b, const struct response *r, enum response_stage stage,
                     const struct usage *usage, const struct api_error *e);
};

// ---- vectors

struct vector_response {
    const struct vector_request *request;
    const struct served_model *model;
    const char *id;
    int64_t created; // s since 1970
    // (base.num_prompts × model->vector_size) in the order of the inputs; write() may change them
    float *vectors;
    int64_t num_prompt; // tokens of all inputs
    double total_ms;    // since the request came
};

struct vector_dialect {
    const char *id_prefix; // of vector_response.id
    const struct api_form *form;
    bool scores; // it wants the vectors of a reranker, of one number each
    // Parses, checks and tokenises a body. False: e says why, and r needs no freeing.
    bool (*parse)(struct vector_request *r, const struct served_model *m, const char *body, size_t len,
                  struct api_error *e);
    void (*write)(struct buf *b, const struct vector_response *r);
};

// ---- decisions

struct decision_response {
    const struct decision_request *request; // weighed
    const char *id;
    int64_t created;    // s since 1970
    int64_t num_cached; // of request->num_input
};

struct decision_dialect {
    const char *id_prefix; // of decision_response.id
    const struct api_form *form;
    // Parses and checks a body. False: e says why, and r needs no freeing.
    bool (*parse)(struct decision_request *r, const struct served_model *m, const char *body, size_t len,
                  struct api_error *e);
    // Calls decisions_prepare().
    bool (*prepare)(struct decision_request *r, const struct served_model *m, struct api_error *e);
    void (*write)(struct buf *b, const struct decision_response *r);
};

// "2026-01-02T03:04:05Z", in quotes
void dialect_write_time(struct buf *b, int64_t when);
