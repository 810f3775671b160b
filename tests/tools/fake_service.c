// A stand-in for engine, service and tokenizer, so that the server can be tested alone, under sanitizers and
// without a model. Tokens 0..255 are bytes, 256 is BOS, 257 is EOS. Output token i of a request is 'a' +
// (seed + i) % 26 unless the prompt (after BOS) begins with a word that says otherwise:
//   "utf8"   the bytes of "é€😀", again and again      "slow"  50 ms a token
//   "error"  FINISH_ERROR after two tokens             "eos"   EOS as the fourth token
//   "stuck"  no token ever                             "fail"  FINISH_ERROR at once
// The context is 4,096 tokens. FAKE_STEP_US is the time of a step (1,000), FAKE_QUEUE the room (1,024
// requests), FAKE_EXPECTED_MS what a step should take (0: not known).
#include "clock.h"
#include "drafter.h"
#include "engine_view.h"
#include "jinja/chat.h"
#include "prompt_view.h"
#include "request.h"
#include "service.h"
#include "text.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BOS = 256, EOS = 257, VOCAB = 258, CONTEXT = 4096 };

// ---- tokenizer

struct tokenizer {
    char bytes[256];
};
static struct tokenizer the_tokenizer;

void token_buf_free(struct token_buf *b) {
    free(b->ids);
    *b = (struct token_buf){0};
}

struct tokenizer *tokenizer_open(const char *path, struct err *err) {
    (void)path;
    (void)err;
    for (int i = 0; i < 256; i++)
        the_tokenizer.bytes[i] = (char)i;
    return &the_tokenizer;
}
void tokenizer_free(struct tokenizer *t) { (void)t; }

enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, unsigned flags,
                             struct token_buf *out) {
    (void)t;
    token_id *ids = realloc(out->ids, (out->len + len + 1) * sizeof *ids);
    if (!ids)
        return STATUS_NOMEM;
    out->ids = ids;
    out->cap = out->len + len + 1;
    if (flags & TOKENIZE_ADD_SPECIAL)
        ids[out->len++] = BOS;
    for (size_t i = 0; i < len; i++)
        ids[out->len++] = (unsigned char)text[i];
    return STATUS_OK;
}

enum status tokenizer_encode_pair(const struct tokenizer *t, const char *a, size_t a_len, const char *b,
                                  size_t b_len, unsigned flags, struct token_buf *out, size_t *second) {
    enum status status = tokenizer_encode(t, a, a_len, flags, out);
    *second = out->len;
    return status ? status : tokenizer_encode(t, b, b_len, 0, out);
}

int tokenizer_vocab(const struct tokenizer *t) { return t ? VOCAB : 0; }
static struct fim_tokens fake_fim; // prefix 0: the model has none
const struct fim_tokens *tokenizer_fim(const struct tokenizer *t) {
    return t && fake_fim.prefix ? &fake_fim : NULL;
}
token_id tokenizer_bos(const struct tokenizer *t) { return t ? BOS : -1; }
token_id tokenizer_eos(const struct tokenizer *t) { return t ? EOS : -1; }
bool tokenizer_adds_bos(const struct tokenizer *t) { return t != NULL; }
bool tokenizer_is_special(const struct tokenizer *t, token_id id) {
    (void)t;
    (void)id;
    return false;
}
bool tokenizer_is_end(const struct tokenizer *t, token_id id) { return t && id == EOS; }
int tokenizer_ends(const struct tokenizer *t, token_id *ids, int max) {
    if (!t || max < 1)
        return 0;
    ids[0] = EOS;
    return 1;
}
const char *tokenizer_bytes(const struct tokenizer *t, token_id id, bool special, size_t *len) {
    if (id >= 0 && id < 256) {
        *len = 1;
        return &t->bytes[id];
    }
    const char *name = id == BOS ? "<s>" : id == EOS ? "</s>" : "";
    *len = special ? strlen(name) : 0;
    return name;
}
const char *tokenizer_name(const struct tokenizer *t, token_id id, size_t *len) {
    return tokenizer_bytes(t, id, true, len);
}
size_t tokenizer_max_bytes(const struct tokenizer *t) {
    (void)t;
    return 4; // "</s>"
}
const char *tokenizer_chat_template(const struct tokenizer *t, size_t *len) {
    (void)t;
    *len = 0;
    return NULL;
}
const char *tokenizer_tool_template(const struct tokenizer *t, size_t *len) {
    return tokenizer_chat_template(t, len);
}

enum status text_encode(const struct tokenizer *t, const struct chat_segment *segments, size_t n,
                        struct token_buf *out) {
    enum status status = STATUS_OK;
    for (size_t i = 0; i < n && status == STATUS_OK; i++)
        status = tokenizer_encode(t, segments[i].text, segments[i].len, 0, out);
    return status;
}

// ---- detok: enough of it

struct detok {
    struct detok_params p;
    char *stops[DETOK_MAX_STOPS];
    char kept[8192], out[8192];
    size_t num_kept;
    int hit;
};

struct detok *detok_new(const struct detok_params *p) {
    struct detok *d = calloc(1, sizeof *d);
    if (!d)
        return NULL;
    d->p = *p;
    d->hit = -1;
    for (int i = 0; i < p->num_stops; i++) {
        d->stops[i] = malloc(p->stop_lens[i] + 1);
        if (d->stops[i])
            memcpy(d->stops[i], p->stops[i], p->stop_lens[i]);
    }
    d->p.stop_lens = NULL;
    size_t *lens = malloc(sizeof(size_t) * (size_t)(p->num_stops + 1));
    if (lens && p->num_stops)
        memcpy(lens, p->stop_lens, sizeof(size_t) * (size_t)p->num_stops);
    d->p.stop_lens = lens;
    return d;
}

void detok_free(struct detok *d) {
    if (!d)
        return;
    for (int i = 0; i < d->p.num_stops; i++)
        free(d->stops[i]);
    free((void *)(uintptr_t)d->p.stop_lens);
    free(d);
}

static size_t give(struct detok *d, size_t n) {
    memcpy(d->out, d->kept, n);
    memmove(d->kept, d->kept + n, d->num_kept - n);
    d->num_kept -= n;
    return n;
}

bool detok_push(struct detok *d, token_id id, const char **text, size_t *len) {
    size_t n;
    const char *bytes = tokenizer_bytes(d->p.tokenizer, id, !d->p.skip_special, &n);
    *text = d->out;
    *len = 0;
    if (d->hit >= 0)
        return true;
    memcpy(d->kept + d->num_kept, bytes, n);
    d->num_kept += n;
    for (size_t at = 0; at < d->num_kept; at++)
        for (int i = 0; i < d->p.num_stops; i++)
            if (at + d->p.stop_lens[i] <= d->num_kept &&
                memcmp(d->kept + at, d->stops[i], d->p.stop_lens[i]) == 0) {
                d->hit = i;
                *len = give(d, at);
                return true;
            }
    size_t safe = d->num_kept;
    for (size_t at = 0; at < d->num_kept && safe == d->num_kept; at++)
        for (int i = 0; i < d->p.num_stops; i++) {
            size_t tail = d->num_kept - at;
            if (tail < d->p.stop_lens[i] && memcmp(d->kept + at, d->stops[i], tail) == 0)
                safe = at;
        }
    size_t back = 0; // an unfinished UTF-8 sequence stays
    while (back < safe && back < 3 && ((unsigned char)d->kept[safe - 1 - back] & 0xc0) == 0x80)
        back++;
    if (back < safe) {
        unsigned char lead = (unsigned char)d->kept[safe - 1 - back];
        size_t need = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
        if (need > back + 1)
            safe -= back + 1;
    }
    *len = give(d, safe);
    return false;
}

void detok_finish(struct detok *d, const char **text, size_t *len) {
    *text = d->out;
    *len = d->hit >= 0 ? 0 : give(d, d->num_kept);
    for (size_t i = 0; i < *len; i++)
        if ((unsigned char)d->out[i] >= 0x80) { // whatever was unfinished
            memcpy(d->out + i, "\xef\xbf\xbd", 3);
            *len = i + 3;
            break;
        }
}
int detok_stop_index(const struct detok *d) { return d->hit; }
bool detok_strips_space(const struct detok *d) { return d->p.strip_space; }

// ---- engine

struct engine {
    struct engine_info info;
};

struct engine *engine_open(const struct engine_config *config, struct err *err) {
    if (strstr(config->path, "missing")) {
        err_set(err, STATUS_IO, "%s: No such file or directory", config->path);
        return NULL;
    }
    struct engine *e = calloc(1, sizeof *e);
    const char *gate = getenv("FAKE_LOAD_FD"); // loading ends when the other end of this pipe is closed
    char c;
    while (gate && read(atoi(gate), &c, 1) > 0)
        ;
    if (!e)
        return NULL;
    e->info = (struct engine_info){.model = {.arch = "fake", .name = "fake", .vocab = VOCAB},
                                   .device = "fake",
                                   .weights_dtype = "F32",
                                   .kv_dtype = "f32",
                                   .num_blocks = 256,
                                   .block_size = config->block_size,
                                   .max_num_seqs = config->max_num_seqs ? config->max_num_seqs : 64,
                                   .max_num_batched_tokens = 512,
                                   .max_model_len = config->max_model_len ? config->max_model_len : CONTEXT};
    tokenizer_open("", err);
    return e;
}
enum status engine_follow(struct engine *e, struct err *err) {
    (void)e;
    return err_set(err, STATUS_INVALID, "the fake engine follows nobody");
}

enum status engine_warm_up(struct engine *e, struct err *err) {
    (void)e, (void)err;
    return STATUS_OK;
}

void engine_close(struct engine *e) { free(e); }
struct engine *engine_draft(struct engine *e) {
    (void)e;
    return NULL;
}
struct adapter *engine_adapter_open(struct engine *e, const char *path, struct err *err) {
    (void)e;
    err_set(err, STATUS_INVALID, "%s: the fake engine has no adapters", path);
    return NULL;
}
const struct engine_info *engine_info(const struct engine *e) { return &e->info; }
const struct tokenizer *engine_tokenizer(const struct engine *e) { return e ? &the_tokenizer : NULL; }
enum status model_inspect(const char *path, void (*line)(void *arg, const char *text), void *arg,
                          struct err *err) {
    (void)err;
    line(arg, path);
    return STATUS_OK;
}

// ---- requests

struct request *request_new(const struct request_params *p, int block_size) {
    (void)block_size;
    struct request *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->id = p->id;
    r->num_prompt = p->num_prompt;
    r->num_tokens = p->num_prompt;
    r->max_tokens = p->num_prompt + p->max_output;
    r->sampling = p->sampling;
    r->num_stop = p->num_stop;
    r->stop = malloc(sizeof(token_id) * (size_t)(p->num_stop + 1));
    r->tokens = malloc(sizeof(token_id) * (size_t)(p->num_prompt + p->max_output + 1));
    if (!r->stop || !r->tokens) {
        request_free(r);
        return NULL;
    }
    memcpy(r->tokens, p->prompt, sizeof(token_id) * (size_t)p->num_prompt);
    if (p->num_stop)
        memcpy(r->stop, p->stop, sizeof(token_id) * (size_t)p->num_stop);
    r->matcher = p->matcher;
    r->drafter = p->drafter;
    return r;
}

void request_free(struct request *r) {
    if (!r)
        return;
    free(r->tokens);
    if (r->matcher)
        r->matcher->free(r->matcher->state);
    free(r->matcher);
    drafter_free(r->drafter);
    free(r->stop);
    free(r);
}

// ---- service

struct service {
    struct service_config config;
    pthread_t thread;
    pthread_mutex_t lock;
    struct request *list; // newest first
    struct service_event *events;
    size_t num_events, cap_events;
    struct service_stats stats;
    int num, room, step_us;
    bool stop;
};

static bool says(const struct request *r, const char *word) {
    size_t n = strlen(word), at = r->tokens[0] == BOS;
    if ((size_t)r->num_prompt < at + n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (r->tokens[at + i] != (unsigned char)word[i])
            return false;
    return true;
}

static void put(struct service *s, const struct service_event *ev) {
    if (s->num_events == s->cap_events) {
        s->cap_events = s->cap_events ? 2 * s->cap_events : 256;
        s->events = realloc(s->events, s->cap_events * sizeof *s->events);
        if (!s->events)
            abort();
    }
    s->events[s->num_events++] = *ev;
}

static void end(struct service *s, struct request *r, enum finish_reason why, token_id token) {
    struct service_event ev = {.id = r->id,
                               .kind = EVENT_FINISH,
                               .finish = why,
                               .token = token,
                               .num_prompt = r->num_prompt,
                               .num_cached = 0,
                               .num_output = r->num_tokens - r->num_prompt,
                               .time_submitted = r->time_submitted,
                               .time_scheduled = r->time_submitted + 1000,
                               .time_first_token = r->time_first_token,
                               .time_finished = clock_now_ns()};
    put(s, &ev);
}

// One step of one request; true: it has ended.
static bool step(struct service *s, struct request *r) {
    int i = r->num_tokens - r->num_prompt;
    if (r->finish != FINISH_NONE) {
        end(s, r, r->finish, -1);
        return true;
    }
    if (says(r, "stuck"))
        return false;
    if (says(r, "fail") || (says(r, "error") && i == 2)) {
        end(s, r, FINISH_ERROR, -1);
        return true;
    }
    if (says(r, "slow") && clock_now_ns() - r->time_scheduled < 50000000)
        return false;
    r->time_scheduled = clock_now_ns();
    if (r->num_tokens < r->max_tokens) {
        static const char utf8[] = "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80";
        token_id t = 'a' + (token_id)((r->sampling.seed + (uint64_t)i) % 26);
        if (says(r, "utf8"))
            t = (unsigned char)utf8[i % 9];
        if (says(r, "eos") && i == 3)
            t = EOS;
        struct service_event ev = {
            .id = r->id, .kind = EVENT_TOKEN, .token = t, .position = i, .num_top = -1};
        for (int k = 0; k < r->num_stop; k++)
            if (r->stop[k] == t)
                ev.finish = FINISH_STOP;
        if (r->sampling.logprobs >= 0) {
            ev.num_top = r->sampling.logprobs;
            ev.logprob = -0.1f;
            for (int k = 0; k < ev.num_top; k++) {
                ev.top_ids[k] = k == 0 ? t : (t + k) % 256;
                ev.top_logprobs[k] = -0.1f - (float)k;
            }
        }
        r->tokens[r->num_tokens++] = t;
        if (i == 0)
            r->time_first_token = clock_now_ns();
        s->stats.generation_tokens++;
        put(s, &ev);
        if (ev.finish == FINISH_STOP || (r->matcher && r->matcher->ends(r->matcher->state, t))) {
            end(s, r, FINISH_STOP, ev.finish == FINISH_STOP ? t : -1);
            return true;
        }
    }
    if (r->num_tokens < r->max_tokens)
        return false;
    end(s, r, FINISH_LENGTH, -1);
    return true;
}

static void *run(void *arg) {
    struct service *s = arg;
    for (;;) {
        usleep((useconds_t)s->step_us);
        pthread_mutex_lock(&s->lock);
        bool stop = s->stop;
        for (struct request **p = &s->list; *p;) {
            struct request *r = *p;
            if (stop)
                r->finish = FINISH_CANCELLED;
            if (!step(s, r)) {
                p = &r->next;
                continue;
            }
            *p = r->next;
            request_free(r);
            s->num--;
        }
        s->stats.running = s->num;
        s->stats.busy = s->num > 0;
        s->stats.last_progress = clock_now_ns();
        s->stats.steps++;
        bool some = s->num_events > 0;
        pthread_mutex_unlock(&s->lock);
        if (some && s->config.notify)
            s->config.notify(s->config.notify_arg);
        if (stop)
            return NULL;
    }
}

struct service *service_open(struct engine *engine, const struct service_config *config, struct err *err) {
    (void)err;
    struct service *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->config = *config;
    s->stats.num_blocks = s->stats.free_blocks = engine->info.num_blocks;
    const char *us = getenv("FAKE_STEP_US"), *room = getenv("FAKE_QUEUE"),
               *expected = getenv("FAKE_EXPECTED_MS");
    s->stats.expected_ns = expected ? atoll(expected) * 1000000 : 0;
    s->step_us = us ? atoi(us) : 1000;
    s->room = room ? atoi(room) : 1024;
    pthread_mutex_init(&s->lock, NULL);
    pthread_create(&s->thread, NULL, run, s);
    return s;
}

enum status service_submit(struct service *s, struct request *r, struct err *err) {
    pthread_mutex_lock(&s->lock);
    enum status status = STATUS_OK;
    if (s->num >= s->room) {
        status = err_set(err, STATUS_LIMIT, "the queue is full");
    } else {
        s->num++;
        r->time_submitted = clock_now_ns();
        r->next = s->list;
        s->list = r;
        s->stats.prompt_tokens += (uint64_t)r->num_prompt;
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

void service_cancel(struct service *s, uint64_t id, enum finish_reason why) {
    pthread_mutex_lock(&s->lock);
    for (struct request *r = s->list; r; r = r->next)
        if (r->id == id && r->finish == FINISH_NONE)
            r->finish = why;
    pthread_mutex_unlock(&s->lock);
}

int service_take(struct service *s, struct service_event *events, int max) {
    pthread_mutex_lock(&s->lock);
    size_t n = s->num_events < (size_t)max ? s->num_events : (size_t)max;
    if (n) {
        memcpy(events, s->events, n * sizeof *events);
        memmove(s->events, s->events + n, (s->num_events - n) * sizeof *events);
    }
    s->num_events -= n;
    pthread_mutex_unlock(&s->lock);
    return (int)n;
}

void service_stats(struct service *s, struct service_stats *out) {
    pthread_mutex_lock(&s->lock);
    *out = s->stats;
    pthread_mutex_unlock(&s->lock);
}

bool service_wait(struct service *s, int64_t timeout_ns) {
    for (int64_t end_at = clock_now_ns() + timeout_ns; clock_now_ns() < end_at; usleep(500)) {
        pthread_mutex_lock(&s->lock);
        bool some = s->num_events > 0;
        pthread_mutex_unlock(&s->lock);
        if (some)
            return true;
    }
    return false;
}

// It has no engine thread: nothing can be asked.
enum status service_ask(struct service *s, struct service_query *q) {
    (void)s;
    (void)q;
    return STATUS_LIMIT;
}

void service_answer(struct service *s) { (void)s; }

void engine_view_run(struct service_query *q, const struct service_inside *in) {
    (void)q;
    (void)in;
}

void prompt_view_run(struct service_query *q, const struct service_inside *in) {
    (void)q;
    (void)in;
}

void service_close(struct service *s) {
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_mutex_destroy(&s->lock);
    free(s->events);
    free(s);
}

enum status service_replay(const char *path, uint64_t *num_plans, struct err *err) {
    *num_plans = 0;
    return err_set(err, STATUS_INVALID, "the fake has no scheduler to replay '%s' into", path);
}
