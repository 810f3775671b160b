// A running server: /v1/chat/completions, streamed.
#include "buf.h"
#include "http/client.h"
#include "process/console.h"
#include "talk.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SILENCE_MS = 120000, PROPS_MS = 3000, MAX_ANSWER = 64 << 20, MAX_LINE = 1 << 20 };

struct url_talk {
    struct talk talk; // first
    const struct config *config;
    struct client_url url;
    char chat[1200], count[1200]; // paths
};

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static const char *key_of(const struct config *c) { return c->api_keys.len ? c->api_keys.items[0] : NULL; }

// The server's own sentence, or its bytes.
static enum status refused(int http, const char *body, size_t len, struct err *err) {
    json_t *root = json_loadb(body, len, 0, NULL);
    const char *message = json_string_value(json_object_get(json_object_get(root, "error"), "message"));
    enum status status =
        message
            ? err_set(err, STATUS_INVALID, "%s%s", message, http == 401 ? " (--api-key, QUIRE_API_KEY)" : "")
            : err_set(err, STATUS_INVALID, "status %d: %.*s", http, len < 300 ? (int)len : 300, body);
    json_decref(root);
    return status;
}

// Asks, by GET where there is no body, and reads all of the response into out, or gives each line of a good one to line() where that is not NULL.
static enum status ask(struct url_talk *t, const char *path, const json_t *body,
                       const volatile sig_atomic_t *stop,
                       bool (*line)(void *arg, const char *text, size_t len, struct err *err), void *arg,
                       struct buf *out, struct err *err) {
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    struct http_client c;
    if (body && !text)
        return err_set(err, STATUS_NOMEM, "out of memory");
    const struct client_request request = {.method = body ? "POST" : "GET",
                                           .path = path,
                                           .key = key_of(t->config),
                                           .body = text,
                                           .len = text ? strlen(text) : 0,
                                           .timeout_ms = body ? SILENCE_MS : PROPS_MS,
                                           .stop = stop};
    enum status status = client_open(&c, &t->url, &request, err);
    bool whole = status == STATUS_OK && (!line || c.status != 200);
    char chunk[8192];
    size_t got = 1, total = 0;
    while (status == STATUS_OK && (status = client_read(&c, chunk, sizeof chunk, &got, err)) == STATUS_OK &&
           got) {
        buf_add(out, chunk, got);
        total += got;
        if (out->failed || total > MAX_ANSWER || (!whole && out->len > MAX_LINE)) {
            status = err_set(err, STATUS_LIMIT, "the response is too long");
            break;
        }
        const char *end;
        size_t done = 0;
        while (!whole && status == STATUS_OK && (end = memchr(out->data + done, '\n', out->len - done))) {
            size_t n = (size_t)(end - out->data) - done;
            if (!line(arg, out->data + done, n, err))
                status = err->code;
            done += n + 1;
        }
        memmove(out->data, out->data + done, out->len - done);
        out->len -= done;
    }
    if (status == STATUS_OK && c.status != 200)
        status = refused(c.status, out->data ? out->data : "", out->len, err);
    client_close(&c); // which may be closed
    free(text);
    return status;
}

struct url_answer {
    const struct talk_sink *sink;
    struct talk_result *out;
    double began;
    bool done;
};

static void give(struct url_answer *a, enum talk_part part, const json_t *text) {
    const char *s = json_string_value(text);
    if (!s || !*s)
        return;
    if (a->out->first_ms == 0)
        a->out->first_ms = now_ms() - a->began;
    a->sink->take(a->sink->arg, part, s, json_string_length(text));
}

static void take_usage(struct talk_result *out, const json_t *usage) {
    if (!json_is_object(usage))
        return;
    out->prompt = json_integer_value(json_object_get(usage, "prompt_tokens"));
    out->output = json_integer_value(json_object_get(usage, "completion_tokens"));
    out->cached =
        json_integer_value(json_object_get(json_object_get(usage, "prompt_tokens_details"), "cached_tokens"));
}

// A line of the stream of events.
static bool take_line(void *arg, const char *text, size_t len, struct err *err) {
    struct url_answer *a = arg;
    if (len < 5 || memcmp(text, "data:", 5) != 0)
        return true;
    text += 5;
    len -= 5;
    while (len && (*text == ' ' || text[len - 1] == '\r')) {
        text += *text == ' ';
        len--;
    }
    if (len == 6 && memcmp(text, "[DONE]", 6) == 0) {
        a->done = true;
        return true;
    }
    json_t *event = json_loadb(text, len, 0, NULL);
    const json_t *error = json_object_get(event, "error");
    const json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
    const json_t *delta = json_object_get(choice, "delta");
    bool ok = event && !error;
    if (!event)
        err_set(err, STATUS_FORMAT, "the stream has an event that is not JSON");
    else if (error)
        refused(200, text, len, err);
    const json_t *thought = json_object_get(delta, "reasoning_content");
    give(a, TALK_REASONING, thought ? thought : json_object_get(delta, "reasoning"));
    give(a, TALK_CONTENT, json_object_get(delta, "content"));
    size_t i;
    json_t *call;
    json_array_foreach(json_object_get(delta, "tool_calls"), i, call) {
        const json_t *function = json_object_get(call, "function");
        give(a, TALK_CALL, json_object_get(function, "name"));
        give(a, TALK_ARGUMENTS, json_object_get(function, "arguments"));
    }
    const char *finish = json_string_value(json_object_get(choice, "finish_reason"));
    if (finish)
        snprintf(a->out->finish, sizeof a->out->finish, "%s", finish);
    take_usage(a->out, json_object_get(event, "usage"));
    json_decref(event);
    return ok;
}

static json_t *request_body(const struct url_talk *t, const json_t *messages) {
    const struct config *c = t->config;
    json_t *body = json_pack("{s:O,s:b,s:{s:b}}", "messages", messages, "stream", 1, "stream_options",
                             "include_usage", 1);
    json_object_update(body, t->talk.sampling);
    if (c->answer_tokens)
        json_object_set_new(body, "max_tokens", json_integer(c->answer_tokens));
    if (c->has_seed)
        json_object_set_new(body, "seed", json_integer((json_int_t)c->seed));
    return body;
}

static enum status url_answer(struct talk *talk, const json_t *messages, const struct talk_sink *sink,
                              const volatile sig_atomic_t *stop, struct talk_result *out, struct err *err) {
    struct url_talk *t = (struct url_talk *)talk;
    struct url_answer a = {.sink = sink, .out = out, .began = now_ms()};
    struct buf b = {0};
    json_t *body = request_body(t, messages);
    *out = (struct talk_result){.prompt = -1, .cached = -1, .output = -1};
    enum status status = ask(t, t->chat, body, stop, take_line, &a, &b, err);
    json_decref(body);
    buf_free(&b);
    out->ms = now_ms() - a.began;
    if (status == STATUS_CANCELLED)
        snprintf(out->finish, sizeof out->finish, "cancelled");
    else if (status == STATUS_OK && !a.done)
        status = err_set(err, STATUS_IO, "the stream breaks off");
    return status;
}

static enum status url_count(struct talk *talk, const json_t *messages, int64_t *tokens, int64_t *most,
                             struct err *err) {
    static const volatile sig_atomic_t never = 0;
    struct url_talk *t = (struct url_talk *)talk;
    struct buf b = {0};
    json_t *body = json_pack("{s:O}", "messages", messages), *root = NULL;
    enum status status = ask(t, t->count, body, &never, NULL, NULL, &b, err);
    if (status == STATUS_OK && !(root = json_loadb(b.data, b.len, 0, NULL)))
        status = err_set(err, STATUS_FORMAT, "the response is not JSON");
    *tokens = json_integer_value(json_object_get(root, "input_tokens"));
    *most = 0;
    json_decref(root);
    json_decref(body);
    buf_free(&b);
    return status;
}

static void url_close(struct talk *talk) {
    json_decref(talk->sampling);
    free(talk);
}

// The server's settings for a person's chats. Empty: it does not tell, as others; a fault will be told of the first message.
static json_t *chat_sampling(struct url_talk *t, const char *base) {
    static const volatile sig_atomic_t never = 0;
    char path[1200];
    struct buf b = {0};
    struct err err = {0};
    snprintf(path, sizeof path, "%s/props", base);
    enum status status = ask(t, path, NULL, &never, NULL, NULL, &b, &err);
    json_t *root = status == STATUS_OK ? json_loadb(b.data ? b.data : "", b.len, 0, NULL) : NULL;
    json_t *found = json_incref(json_object_get(root, "chat_sampling"));
    json_decref(root);
    buf_free(&b);
    if (json_is_object(found))
        return found;
    json_decref(found);
    return json_object();
}

struct talk *talk_open_url(const struct config *c, const char *url, int *rc) {
    struct url_talk *t = calloc(1, sizeof *t);
    *rc = t ? EXIT_USAGE : EXIT_ENGINE;
    if (!t || !client_parse_url(url, &t->url)) {
        complain(t ? "expected [http://]HOST:PORT[/PATH], found '%.200s'%s" : "out of memory", url,
                 client_url_hint(url));
        free(t);
        return NULL;
    }
    t->talk = (struct talk){NULL, url_answer, url_count, url_close};
    t->config = c;
    char *base = t->url.path;
    for (size_t n = strlen(base); n && base[n - 1] == '/'; n--)
        base[n - 1] = '\0';
    size_t n = strlen(base);
    if (n >= 3 && strcmp(base + n - 3, "/v1") == 0) // the base URL of OpenAI's clients
        base[n - 3] = '\0';
    snprintf(t->chat, sizeof t->chat, "%s/v1/chat/completions", base);
    snprintf(t->count, sizeof t->count, "%s/v1/chat/completions/input_tokens", base);
    t->talk.sampling = chat_sampling(t, base);
    *rc = 0;
    return &t->talk;
}
