#include "probe.h"

#include "log.h"
#include "reply.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

struct fetched {
    bool ended;
    int status;
    enum error_kind error;
    char why[RECORD_MESSAGE];
    struct buf body;
};

static void on_head(void *context, int status, bool event_stream) {
    (void)event_stream;
    ((struct fetched *)context)->status = status;
}

static bool on_body(void *context, const char *data, size_t len, int64_t now) {
    (void)now;
    struct fetched *f = context;
    if (f->body.len + len >= (16u << 20))
        return false;
    buf_add(&f->body, data, len);
    return true;
}

static void on_end(void *context, enum error_kind error, const char *why, int64_t now, bool connected) {
    (void)now;
    (void)connected;
    struct fetched *f = context;
    f->ended = true;
    f->error = error;
    snprintf(f->why, sizeof f->why, "%s", why);
}

struct asker {
    uv_loop_t *loop;
    struct client *client;
    const struct options *o;
    const volatile bool *stop;
};

// Sends and waits. Takes over the request.
static struct fetched fetch(const struct asker *who, struct buf *request) {
    static const struct call_handlers handlers = {on_head, on_body, on_end};
    struct fetched f = {0};
    client_send(who->client, request, &handlers, &f);
    while (!f.ended) {
        uv_run(who->loop, UV_RUN_ONCE); // at most until the client's next tick
        if (*who->stop && !f.ended)
            client_interrupt(who->client);
    }
    if (f.error == ERROR_NONE && f.status != 200)
        reply_error(f.body.data ? f.body.data : "", f.body.len, f.why, sizeof f.why);
    return f;
}

static json_t *fetch_json(const struct asker *who, const char *path, struct fetched *f) {
    const struct options *o = who->o;
    char whole[600];
    size_t before = strlen(o->path) - strlen(o->endpoint);
    snprintf(whole, sizeof whole, "%.*s%s", (int)before, o->path, path);
    struct buf request = {0};
    prompt_http(o, whole, NULL, &request);
    *f = fetch(who, &request);
    json_t *root =
        f->error == ERROR_NONE && f->status == 200 ? json_loadb(f->body.data, f->body.len, 0, NULL) : NULL;
    buf_free(&f->body);
    return root;
}

bool probe_model(uv_loop_t *loop, struct client *client, const struct options *o, const volatile bool *stop,
                 struct prompt_maker *m, int64_t *max_model_len, char *message, size_t size) {
    const struct asker who = {loop, client, o, stop};
    *m = (struct prompt_maker){.tokens_per_word = 1, .seed = (uint64_t)o->seed};
    *max_model_len = 0;
    if (o->model) {
        snprintf(m->model, sizeof m->model, "%s", o->model);
        return true;
    }
    struct fetched f;
    json_t *root = fetch_json(&who, "/v1/models", &f);
    const json_t *first = json_array_get(json_object_get(root, "data"), 0);
    const char *id = json_string_value(json_object_get(first, "id"));
    *max_model_len = json_integer_value(json_object_get(first, "max_model_len"));
    if (id)
        snprintf(m->model, sizeof m->model, "%s", id);
    else if (f.error != ERROR_NONE)
        snprintf(message, size, "http://%s:%s: %s", o->url_host, o->url_port, f.why);
    else if (f.status != 200)
        snprintf(message, size, "/v1/models answers %d %s: name the model by --model", f.status, f.why);
    else
        snprintf(message, size, "/v1/models lists no model: name it by --model");
    json_decref(root);
    return id != NULL;
}

// A request of one token for `t`. The prompt's tokens by usage; 0: the server did not take it or does not
// count. `*status` is the response's, 0 where there is none.
static uint32_t ask(const struct asker *who, const struct prompt_maker *m, struct turn *t, int *status,
                    char *why, size_t size) {
    const struct options *o = who->o;
    struct options plain = *o;
    plain.no_stream = true;
    struct history none = {0};
    struct buf request = {0};
    t->output = 1;
    prompt_request(&plain, m, t, &none, &request, NULL);
    struct fetched f = fetch(who, &request);
    struct reply r = {0};
    *status = f.error == ERROR_NONE ? f.status : 0;
    if (*status == 200)
        reply_read(&r, f.body.data ? f.body.data : "", f.body.len, NULL);
    else
        snprintf(why, size, "%s%.0d %s", f.status ? "HTTP " : "", f.status, f.why);
    buf_free(&f.body);
    return r.has_usage ? r.input : 0;
}

// Whether prompts are written as token ids. Where --prompt-form says so, a server that fails (5xx) has not
// refused them: the run goes on, and shows what it does with them. `why` says what the server did, where it
// is true only if it failed.
static bool try_ids(const struct asker *who, struct prompt_maker *m, char *why, size_t size) {
    const struct options *o = who->o;
    int64_t vocab = o->vocab_size;
    if (!vocab) {
        struct fetched f;
        json_t *root = fetch_json(who, "/tokenizer_info", &f);
        vocab = json_integer_value(json_object_get(root, "vocab_size"));
        json_decref(root);
    }
    if (vocab < 2)
        vocab = 256;
    // The middle half: control tokens lie at the ends of vocabularies.
    m->first_id = (uint32_t)(vocab / 4);
    m->ids_n = (uint32_t)(vocab / 2 ? vocab / 2 : 1);
    m->ids = true;
    struct segment s = {0xfeed, 4};
    struct turn t = {.segments = &s, .num_segments = 1, .input = 4};
    int status;
    uint32_t counted = ask(who, m, &t, &status, why, size);
    if (status == 200) {
        m->ids = counted == 0 || counted == 4;
        if (!m->ids)
            snprintf(why, size, "it counts %u tokens for 4 ids", (unsigned)counted);
    } else {
        m->ids = o->prompt_form == PROMPT_IDS && status >= 500;
    }
    return m->ids;
}

static bool calibrate_words(const struct asker *who, struct prompt_maker *m, char *why, size_t size) {
    uint32_t counted[2], lengths[2] = {16, 112};
    m->tokens_per_word = 1;
    m->overhead = 0;
    for (int i = 0; i < 2; i++) {
        struct segment s = {0xfeed, lengths[i]};
        struct turn t = {.segments = &s, .num_segments = 1, .input = lengths[i]};
        int status;
        counted[i] = ask(who, m, &t, &status, why, size);
        if (status != 200)
            return i != 0; // the shorter one was taken: no calibration, but no error either
    }
    if (counted[0] == 0 || counted[1] <= counted[0])
        return true;
    m->tokens_per_word = (double)(counted[1] - counted[0]) / (lengths[1] - lengths[0]);
    m->overhead = (double)counted[0] - m->tokens_per_word * lengths[0];
    m->calibrated = true;
    return true;
}

bool probe_server(uv_loop_t *loop, struct client *client, const struct options *o, const volatile bool *stop,
                  bool made_up, struct prompt_maker *m, char *note, size_t note_size, char *message,
                  size_t size) {
    struct asker who = {loop, client, o, stop};
    char why[200] = "";
    if (!made_up) {
        snprintf(note, note_size, "texts of the file");
        return true;
    }
    bool may_ids = !o->chat && o->num_turns == 1 && o->prompt_form != PROMPT_WORDS;
    if (may_ids && try_ids(&who, m, why, sizeof why)) {
        snprintf(note, note_size, "token ids %u to %u, %s%s", (unsigned)m->first_id,
                 (unsigned)(m->first_id + m->ids_n - 1),
                 *why ? "as configured, though a first question found " : "exact lengths", why);
        return true;
    }
    if (o->prompt_form == PROMPT_IDS) {
        snprintf(message, size, "the server takes no token ids as a prompt: %s", why);
        return false;
    }
    if (!calibrate_words(&who, m, why, sizeof why)) {
        snprintf(message, size, "%s answers %s", o->path, why);
        return false;
    }
    if (m->calibrated)
        snprintf(
            note, note_size,
            "words, %.3f tokens each by the server's count, and %.1f around them; lengths are approximate",
            m->tokens_per_word, m->overhead);
    else
        snprintf(note, note_size,
                 "words, taken for one token each: the server does not count; lengths are approximate");
    return true;
}
