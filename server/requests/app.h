// The state of a serving process; owned by serve.c, used by the loop thread only.
#pragma once

#include "api/api_error.h"
#include "api/completion_request.h"
#include "http/auth.h"
#include "http/http.h"
#include "observe/metrics.h"
#include "observe/watchdog.h"
#include "process/config.h"
#include "process/manager.h"
#include "service.h"
#include "work_pool.h"

struct engine_request;
struct exchange;
struct past_requests;
struct otlp;

enum app_state {
    APP_LOADING,  // listening; the model loads in the pool: 503 loading_model
    APP_READY,    // serving
    APP_DRAINING, // SIGTERM: what runs may end; 503 shutting_down
    APP_DEAD,     // the device failed: 503 engine_unavailable, then exit 70
};

// Keys and the certificate that are being read again (keys.h).
struct key_files {
    uv_work_t work;
    struct app *app;
    // The pool's while busy
    struct auth auth, admin;
    struct tls_pair *pair;
    struct err err, tls_err;
    bool busy, again;
};

struct app {
    const struct config *config;
    uv_loop_t loop;
    struct work_pool pool;
    struct http http;
    struct auth auth, admin; // admin: of routes that change the server
    struct metrics metrics;
    enum app_state state;
    bool has_tenants; // each key's caller has prefixes and responses of its own: there are several, or may be
    bool loopback;    // bound to the loopback: Host is checked where no key is
    int exit_code;

    struct engine *engine; // NULL while loading
    struct service *service;
    struct served_model model;
    struct loras *loras;
    struct response_store *store;         // NULL: no response is kept
    struct sampling_params sampling;      // model.sampling
    struct sampling_params chat_sampling; // a person's, by the page and `quire chat`
    bool drafts_ngrams;                   // --speculative-method
    struct str_list names;
    char fingerprint[64];
    int64_t created; // s, of the process; for /v1/models

    // exchanges
    uint64_t next_id, seed_counter;
    struct engine_request **table; // by id, chained; (table_size)
    size_t table_size;
    struct past_requests *past;     // past_requests.h
    struct otlp *otlp;              // where spans go; NULL: nowhere
    struct exchange *exchanges;     // all, newest first
    int num_exchanges, num_streams; // all; those with requests at the engine
    int num_background;             // of these
    int num_watchers;               // that are told of each turn of the engine
    size_t kept;                    // bytes of responses that are not written yet, of all exchanges
    struct exchange *flush_list;    // those with something to write after the events of this turn
    char ignored[IGNORED_SIZE];     // fields ignored since the last line that logged them
    int64_t ignored_logged;         // ns

    // serve.c
    uv_async_t events;
    uv_timer_t tick;
    uv_prepare_t turn;
    struct watchdog watchdog;
    struct manager_pulse pulse;
    _Atomic uint64_t turns; // of the loop; the watchdog looks
    uv_signal_t sigterm, sigint, sigusr1, sighup;
    bool had_terminal; // the server ends with it
    struct key_files key_files;
    uv_work_t load;
    struct err load_err;
    int64_t drain_deadline; // ns
    bool loading, stopping;
};

// The reason for which the processes that share the model have ended; "" while they work, and where there is one.
const char *app_group_error(const struct app *app);
void app_stats(struct app *app, struct service_stats *stats); // zeros while loading
// The key that a request presents; NULL: none. Borrowed from the head.
const char *app_key(const struct http_head *head);
// Names the sender of a request: a hash of its key, or zeros where there can be one key at most, also of a later start that
// has the same responses.
void app_tenant(const struct app *app, const struct http_head *head, uint8_t out[SHA256_BYTES]);
// The client of the pool: the key where there are several, else the address.
struct work_client app_client(const struct app *app, const struct http_request *request);
// Each key is a tenant, where there are several or a file may bring more: its prefixes are its own, and its cache_salt
// divides them further. Replaces the salt of `len` bytes by a hash of both, because --record writes it; for free(). False:
// out of memory.
bool app_salt(const struct app *app, const struct http_head *head, char **salt, size_t *len);
// " key=NAME" for a line of the log where the presented key has a name, else "".
struct key_note {
    char text[80];
} app_key_note(const struct app *app, const struct http_head *head);
bool app_is_admin(const struct app *app, const struct http_head *head); // it presents an admin key
// Whether the model gives completions, or vectors, or those of a reranker; otherwise e says what it gives (400).
bool app_gives(const struct app *app, bool vectors, bool scores, struct api_error *e);
// Whether the engine can take work now; otherwise e says why not (503).
bool app_accepts(struct app *app, struct api_error *e);
