#include "prompt.h"

#include "log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// Common short words, each mostly one token in large vocabularies.
static const char *const words[] = {
    "the",   "of",   "and",   "to",    "in",     "is",     "you",   "that",  "it",    "he",   "was",   "for",
    "on",    "are",  "as",    "with",  "his",    "they",   "at",    "be",    "this",  "have", "from",  "or",
    "one",   "had",  "by",    "word",  "but",    "not",    "what",  "all",   "were",  "we",   "when",  "your",
    "can",   "said", "there", "use",   "an",     "each",   "which", "she",   "do",    "how",  "their", "if",
    "will",  "up",   "other", "about", "out",    "many",   "then",  "them",  "these", "so",   "some",  "her",
    "would", "make", "like",  "him",   "into",   "time",   "has",   "look",  "two",   "more", "write", "go",
    "see",   "no",   "way",   "could", "people", "my",     "than",  "first", "water", "been", "call",  "who",
    "its",   "now",  "find",  "long",  "down",   "day",    "did",   "get",   "come",  "made", "may",   "part",
    "over",  "new",  "sound", "take",  "only",   "little", "work",  "know",  "place", "year", "live",  "me",
    "back",  "give", "most",  "very",  "after",  "thing",  "our",   "just",  "name",
};
enum { NUM_WORDS = sizeof words / sizeof words[0] };

void history_add(struct history *h, const char *text, size_t len) {
    char **said = realloc(h->said, (h->num + 1) * sizeof *said);
    CHECK(said);
    h->said = said;
    said[h->num] = malloc(len + 1);
    CHECK(said[h->num]);
    memcpy(said[h->num], text, len);
    said[h->num++][len] = 0;
}

void history_free(struct history *h) {
    for (uint32_t i = 0; i < h->num; i++)
        free(h->said[i]);
    free(h->said);
    *h = (struct history){0};
}

void prompt_words(const struct prompt_maker *m, const struct turn *t, bool first, struct buf *b) {
    double owed = first ? -m->overhead : 0; // tokens that segments so far should have given and did not
    bool any = false;
    for (uint32_t s = 0; s < t->num_segments; s++) {
        struct rng r = rng_seed(m->seed, t->segments[s].key);
        bool last = s + 1 == t->num_segments;
        // The overhead is taken from the last segment: the others are shared and must not depend on it.
        double want = (double)t->segments[s].tokens + (last ? owed : 0);
        int64_t n = (int64_t)round(want / m->tokens_per_word);
        if (n < 1 && last && !any)
            n = 1;
        for (int64_t i = 0; i < n; i++) {
            if (any)
                buf_char(b, ' ');
            any = true;
            buf_str(b, words[rng_below(&r, NUM_WORDS)]);
        }
    }
}

static void ids(const struct prompt_maker *m, const struct turn *t, struct buf *b) {
    buf_char(b, '[');
    bool any = false;
    for (uint32_t s = 0; s < t->num_segments; s++) {
        struct rng r = rng_seed(m->seed, t->segments[s].key);
        for (uint32_t i = 0; i < t->segments[s].tokens; i++) {
            if (any)
                buf_char(b, ',');
            any = true;
            buf_int(b, (int64_t)m->first_id + (int64_t)rng_below(&r, m->ids_n));
        }
    }
    buf_char(b, ']');
}

static void message(struct buf *b, const char *role, const char *text, size_t len) {
    buf_fmt(b, "{\"role\":\"%s\",\"content\":", role);
    json_quote(b, text, len);
    buf_char(b, '}');
}

static void body(const struct options *o, const struct prompt_maker *m, const struct turn *t,
                 const struct history *h, const struct buf *said, struct buf *b) {
    buf_lit(b, "{\"model\":");
    json_quote(b, m->model, strlen(m->model));
    if (o->chat) {
        buf_lit(b, ",\"messages\":[");
        for (uint32_t i = 0; i < h->num; i++) {
            message(b, i % 2 ? "assistant" : "user", h->said[i], strlen(h->said[i]));
            buf_char(b, ',');
        }
        message(b, "user", said->data, said->len);
        buf_char(b, ']');
    } else if (m->ids && !t->text) {
        buf_lit(b, ",\"prompt\":");
        ids(m, t, b);
    } else {
        struct buf all = {0};
        for (uint32_t i = 0; i < h->num; i++) {
            buf_str(&all, h->said[i]);
            if (i % 2) // after a completion, a new line begins the next turn
                buf_char(&all, '\n');
        }
        buf_add(&all, said->data, said->len);
        buf_lit(b, ",\"prompt\":");
        json_quote(b, all.data ? all.data : "", all.len);
        b->failed = b->failed || all.failed;
        buf_free(&all);
    }
    buf_fmt(b, ",\"max_tokens\":%u", (unsigned)t->output);
    if (o->no_stream)
        buf_lit(b, ",\"stream\":false");
    else
        buf_lit(b, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    if (o->ignore_eos)
        buf_lit(b, ",\"ignore_eos\":true");
    if (o->temperature >= 0)
        buf_fmt(b, ",\"temperature\":%g", o->temperature);
    if (o->top_p >= 0)
        buf_fmt(b, ",\"top_p\":%g", o->top_p);
    if (o->extra_body) { // checked to be an object: its inside
        const char *open = strchr(o->extra_body, '{'), *close = strrchr(o->extra_body, '}');
        if (open && close && strspn(open + 1, " \t\r\n") < (size_t)(close - open - 1)) {
            buf_char(b, ',');
            buf_add(b, open + 1, (size_t)(close - open - 1));
        }
    }
    buf_char(b, '}');
}

void prompt_http(const struct options *o, const char *path, const struct buf *content, struct buf *out) {
    bool six = strchr(o->url_host, ':') != NULL, own_host = false;
    for (size_t i = 0; i < o->num_headers; i++) // --header may name another: a request has only one
        own_host = own_host || strncasecmp(o->headers[i], "Host:", 5) == 0;
    buf_fmt(out, "%s %s HTTP/1.1\r\n", content ? "POST" : "GET", path);
    if (!own_host)
        buf_fmt(out, "Host: %s%s%s:%s\r\n", six ? "[" : "", o->url_host, six ? "]" : "", o->url_port);
    buf_lit(out, "User-Agent: quire-bench\r\nAccept: */*\r\n");
    if (o->api_key)
        buf_fmt(out, "Authorization: Bearer %s\r\n", o->api_key);
    for (size_t i = 0; i < o->num_headers; i++)
        buf_fmt(out, "%s\r\n", o->headers[i]);
    if (content)
        buf_fmt(out, "Content-Type: application/json\r\nContent-Length: %zu\r\n", content->len);
    buf_lit(out, "\r\n");
    if (content)
        buf_add(out, content->data, content->len);
}

void prompt_request(const struct options *o, const struct prompt_maker *m, const struct turn *t,
                    const struct history *h, struct buf *out, struct buf *user) {
    struct buf said = {0}, json = {0};
    if (t->text)
        buf_str(&said, t->text);
    else if (!m->ids || user)
        prompt_words(m, t, h->num == 0, &said);
    body(o, m, t, h, &said, &json);
    prompt_http(o, o->path, &json, out);
    if (user)
        buf_add(user, said.data, said.len);
    CHECK(!out->failed && !said.failed && !json.failed);
    buf_free(&said);
    buf_free(&json);
}
