// An exchange: a request whose response is made after its body was read, and the response. All kinds have one life:
//
//     read -> begin -> answered, for each answer of the engine -> finish -> done
//
// exchange_life.c leads every exchange through it, and sends the response or the error; a kind says what is special.
// exchange_requests.c has the requests to the engine, exchange_log.c the line and the span of one that is over.
//
// Ownership: an exchange belongs to its HTTP request (http_request.user) until that is done, and is freed then; one that
// the pool or a query holds at that moment is freed when they give it back. Requests at the engine hold nothing: they are
// known by their ids, and events of an id that is no longer in the table are dropped. Thread: the loop, but for what a
// kind may be asked in the pool.
#pragma once

#include "api/dialect.h"
#include "app.h"

// Larger bodies are parsed and tokenised in the pool, so that no stream stalls.
enum { POOL_BODY = 64 * 1024 };

struct exchange;

// A request at the engine. Its number in exchange.requests is its index.
struct engine_request {
    uint64_t id;                 // 0: not there, or not any more
    struct engine_request *next; // in its bucket of the table
    struct exchange *exchange;
    int index;
    int num_tokens, num_cached;
    bool complete; // the response has all that it needs of it
    enum finish_reason finish;
    int64_t first, last; // ns when the first and the last token came here
    // ns of the first step, and when the engine had the first and the last token
    int64_t engine_scheduled, engine_first, engine_last;
};

// A function that returns false has set e; then the client gets that error. NULL stands for a function that does nothing.
struct exchange_kind {
    size_t size;      // of a struct that begins with struct exchange; comes zeroed
    bool submits;     // begin() submits requests: a line of the log and a span tell of it
    bool watches;     // flush() comes after each turn of the engine
    bool reads_files; // read() is for the pool, however small the body is
    // Parses the body, and sets what `set by read()` says below; in the pool where the body is large. Touches its exchange
    // and the immutable model only, as all that is done in the pool.
    bool (*read)(struct exchange *x, const char *body, size_t len, struct api_error *e);
    // Loop: asks the engine. Submits requests; or sets `query`; or does neither, and finish() comes at once.
    bool (*begin)(struct exchange *x, struct api_error *e);
    // Loop: an event of one of its requests, of which the one that ends it counts as good; it may take ev->vector and leave
    // NULL. r and ev are NULL: the query is answered.
    void (*answered)(struct exchange *x, struct engine_request *r, struct service_event *ev);
    // Loop, after the events of a turn: gives up what takes too much memory, and writes what is there of a stream, or
    // `error`, where that is set; of a stream also when the client has taken bytes, and once a second.
    void (*flush)(struct exchange *x);
    // Writes the JSON of a whole response, when nothing of the engine is awaited; in the pool where `large` is set.
    bool (*finish)(struct exchange *x, struct buf *out, struct api_error *e);
    // Loop: of one in the background, whose response nobody waits for, after finish().
    void (*made)(struct exchange *x);
    // Loop: frees what it owns, but not itself.
    void (*done)(struct exchange *x);
};

enum exchange_state {
    EXCHANGE_NEW,   // begin() has not been called
    EXCHANGE_OPEN,  // begin() was
    EXCHANGE_ENDED, // it has its response, or an error
};

struct exchange {
    const struct exchange_kind *kind;
    struct app *app;
    struct http_request *http;     // NULL: the client has left
    struct background *background; // it has that one's request in place of the client's; NULL: a client waits
    // set by read()
    const char *ignored;         // names of fields without an effect, `a, b`; NULL: none
    bool streams;                // flush() writes the response
    struct api_request *request; // in the kind's own struct, where it submits
    // More to do in the pool before begin(); NULL: nothing.
    bool (*prepare)(struct exchange *x, struct api_error *e);
    // set by begin()
    struct service_query *query;            // in the kind's own struct
    bool large;                             // finish() is for the pool
    bool must;                              // and its work is done here where the pool takes no more
    const struct sampling_params *sampling; // for the span, as the next; NULL: the model's
    int max_tokens;

    // Requests at the engine: exchange_requests.c's.
    struct engine_request *requests; // (num_requests)
    int num_requests, per_prompt, num_submitted;
    int num_open;                  // submitted, and EVENT_FINISH has not come
    char id[REQUEST_ID_SIZE + 12]; // the response's
    size_t id_prefix;              // bytes of it that are the dialect's
    int key;                       // index of the client's key; -1: it has none
    int64_t num_prompt;            // tokens, each prompt once
    int64_t submitted;             // ns when the engine got the first one; 0: never
    int64_t predicted_ns;          // to the first token of the first one; -1: not known
    struct service_event timing;   // EVENT_FINISH of the first one

    // exchange_life.c's
    struct exchange *prev, *next, *next_flush;
    bool needs_flush; // in app->flush_list
    enum exchange_state state;
    bool held, in_pool; // by a query or the pool; by the pool
    bool logged;
    // Of a stream, ns: since when its reader takes too little, 0: it does not; when it last got something.
    int64_t over_since, last_write;
    size_t kept; // its part of app->kept
    struct work_client client;
    struct pool_work work;
    void (*step)(struct exchange *x); // the pool's, and then the loop's
    void (*next_step)(struct exchange *x);
    struct buf body, out;
    struct api_error error;
};

// ---- its life (exchange_life.c)

// An exchange of this kind with the body of the request. NULL: out of memory, and the client knows.
struct exchange *exchange_new(struct app *app, struct http_request *request,
                              const struct exchange_kind *kind);
void exchange_run(struct exchange *x); // begins its life; x may have ended
void exchange_start(struct app *app, struct http_request *request, const struct exchange_kind *kind); // both
// Asks its query of the engine once more; answered() and flush() follow. False: too many ask, or the engine is gone.
bool exchange_ask(struct exchange *x);
// Ends it with an error, unless it has ended: as the status where nothing has been sent, else in the stream.
void exchange_fail(struct exchange *x, const struct api_error *e);
void exchange_end_stream(struct exchange *x); // after the frames that are written
// Does `step` in the pool, where `pooled`, and then `next` on the loop; in between nothing else happens to it. A step that
// the pool does not take any more is done here.
void exchange_step(struct exchange *x, bool pooled, void (*step)(struct exchange *x),
                   void (*next)(struct exchange *x));
// Whether the reader of a stream has so much before it that nothing more is written; it is told of then (exchange_drained()).
bool exchange_is_behind(struct exchange *x);
// Whether it has been so for long.
bool exchange_stalls(const struct exchange *x);
// Whether nothing was written for so long that a ping is due.
bool exchange_is_silent(const struct exchange *x);
// Has what was written to the queue sent, if anything was.
void exchange_send(struct exchange *x);
// Gives a reader up that stands still. Its socket takes nothing, so it gets no error.
void exchange_give_up(struct exchange *x);
// Counts what is kept of the response, in bytes. False: all keep too much, and this one more than its part; it has ended.
bool exchange_keep(struct exchange *x, size_t bytes);

// The request is over, or its client has left. True: the exchange has a line of its own in the log.
bool exchange_done(struct http_request *request);
// The client has taken what was written; writes what was kept back.
void exchange_drained(struct http_request *request);
// Takes all events of the service and writes what they give. The caller then lets HTTP run.
void exchanges_take_events(struct app *app);
// Once a second: pings, stalled readers.
void exchanges_tick(struct app *app, int64_t now);
// Ends those that have requests at the engine with an error.
void exchanges_fail(struct app *app, int status, const char *code, const char *message);
// Frees those in the background that have ended, or all, once nothing runs any more.
void exchanges_reap(struct app *app, bool all);
void exchanges_free(struct app *app); // the table

// ---- its requests at the engine (exchange_requests.c)

// Makes room for num requests of x->request, `per_prompt` of each prompt, and names the response. False: out of memory.
bool exchange_make_requests(struct exchange *x, const char *id_prefix, size_t num, int per_prompt,
                            struct api_error *e);
// Makes the engine's request. NULL: out of memory.
typedef struct request *make_request_fn(struct exchange *x, const struct engine_request *r);
// Submits those that were not yet: until `most` are open, or one is and the queue is full; 0: all or none. False: e says
// why.
bool exchange_submit(struct exchange *x, int most, make_request_fn *make, struct api_error *e);
// The engine has a token, before the kind takes it; or the request has ended.
void engine_request_token(struct engine_request *r, const struct service_event *ev);
void engine_request_end(struct engine_request *r, const struct service_event *ev);
// Cancels what the engine still does; later events find no id.
void exchange_cancel(struct exchange *x);
struct engine_request *engine_request_find(const struct app *app, uint64_t id); // NULL: none
struct usage exchange_usage(const struct exchange *x);

// The client's names of a request at the engine.
struct exchange_label {
    const char *request_id, *adapter; // borrowed until the loop's turn ends; adapter: "" is none
    uint8_t tenant[SHA256_BYTES];     // as app_tenant() gives it
};
// False: no exchange has a request of this id.
bool exchange_label(const struct app *app, uint64_t id, struct exchange_label *out);
// Counts the requests that have not ended, those of the adapters too.
void exchange_census(const struct app *app, struct metrics_census *out, struct metrics_adapter *adapters,
                     int num_adapters);

// ---- its line in the log and its span (exchange_log.c)

double ms_between(int64_t from, int64_t to); // 0 where one of them never was
// Its response is over: writes its line, once, and its span. `finish` is static.
void exchange_log(struct exchange *x, int status, const char *finish);
