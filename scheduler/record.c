#include "record.h"

#include "append_log.h"
#include "id_map.h"
#include "service.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct record {
    struct append_log log;
    int max_chunk; // of the last plan
};

struct record *record_open(const char *path, const struct sched_config *c, int max_chunk,
                           const struct kv_cache *kv, struct err *err) {
    struct record *r = calloc(1, sizeof *r);
    if (!r) {
        err_set(err, STATUS_NOMEM, "out of memory");
        return NULL;
    }
    // Prompts and the cache's key are in it: only the owner may read it.
    if (append_log_open(&r->log, "record", path, err) != STATUS_OK) {
        free(r);
        return NULL;
    }
    const struct kv_config *k = &kv->config;
    fprintf(r->log.file, "quire-record 1\nconfig %d %d %d %d %d %d %d %d %" PRIu64 " %" PRIu64 " %d %d",
            (int)c->policy, c->max_running, c->max_step_tokens, max_chunk, c->max_model_len, k->num_blocks,
            k->block_size, k->share, k->key[0], k->key[1], c->depth, c->async);
    if (k->num_groups > 1 || k->groups[0].kind != KV_FULL) {
        fprintf(r->log.file, " %d %d %d", k->max_ahead, k->snapshot_tokens, k->num_groups);
        for (int g = 0; g < k->num_groups; g++)
            fprintf(r->log.file, " %d %d", (int)k->groups[g].kind,
                    k->groups[g].chunked ? -k->groups[g].window : k->groups[g].window);
    }
    fputc('\n', r->log.file);
    append_log_check(&r->log, true);
    r->max_chunk = max_chunk;
    return r;
}

void record_add(struct record *r, const struct request *q) {
    if (!r || append_log_ended(&r->log))
        return;
    fprintf(r->log.file, "add %" PRIu64 " %d %d %d %d %d", q->id, q->priority, q->max_tokens - q->num_prompt,
            q->min_tokens - q->num_prompt, q->sampling.prompt_logprobs, q->num_stop);
    for (int i = 0; i < q->num_stop; i++)
        fprintf(r->log.file, " %d", (int)q->stop[i]);
    fprintf(r->log.file, " %d ", q->num_salt);
    for (int i = 0; i < q->num_salt; i++)
        fprintf(r->log.file, "%02x", q->salt[i]);
    fprintf(r->log.file, "%s%d", q->num_salt > 0 ? " " : "", q->num_prompt);
    for (int i = 0; i < q->num_prompt; i++)
        fprintf(r->log.file, " %d", (int)q->tokens[i]);
    int spans = q->seq.num_spans;
    if (request_sees_tokens(q) || q->seq.retain || q->pooling != POOLING_NONE || spans > 0)
        fprintf(r->log.file, " %d", request_sees_tokens(q) + 2 * q->seq.retain);
    if (q->pooling != POOLING_NONE || spans > 0)
        fprintf(r->log.file, " %d", (int)q->pooling);
    if (spans > 0) // their contents decide nothing
        fprintf(r->log.file, " %d", spans);
    for (int i = 0; i < spans; i++) {
        const struct kv_span *s = &q->seq.spans[i];
        fprintf(r->log.file, " %d %d %d %" PRIu64 " %" PRIu64 " %d %d %d", s->first, s->len, s->whole,
                s->hash.lo, s->hash.hi, s->grid[0], s->grid[1], s->grid[2]);
    }
    fputc('\n', r->log.file);
    append_log_check(&r->log, false);
}

void record_remove(struct record *r, uint64_t id, enum finish_reason why) {
    if (!r || append_log_ended(&r->log))
        return;
    fprintf(r->log.file, "remove %" PRIu64 " %d\n", id, (int)why);
    append_log_check(&r->log, false);
}

void record_plan(struct record *r, const struct plan *plan, int max_chunk) {
    if (!r || append_log_ended(&r->log))
        return;
    if (max_chunk != r->max_chunk)
        fprintf(r->log.file, "chunk %d\n", max_chunk);
    r->max_chunk = max_chunk;
    fprintf(r->log.file, "plan %" PRIu64 " %d", plan ? plan->id : 0, plan ? plan->num_items : 0);
    for (int i = 0; plan && i < plan->num_items; i++) {
        const struct plan_item *p = &plan->items[i];
        fprintf(r->log.file, " %" PRIu64 " %d %d %d %d", p->req->id, p->first, p->num_new, p->first_logit,
                p->needs_token ? 1 + p->num_drafts : 0);
    }
    fputc('\n', r->log.file);
    append_log_check(&r->log, false);
}

void record_ready(struct record *r, uint64_t id) {
    if (!r || append_log_ended(&r->log))
        return;
    fprintf(r->log.file, "ready %" PRIu64 "\n", id);
    append_log_check(&r->log, false);
}

void record_hold(struct record *r, uint64_t id) {
    if (!r || append_log_ended(&r->log))
        return;
    fprintf(r->log.file, "hold %" PRIu64 "\n", id);
    append_log_check(&r->log, false);
}

void record_adopt(struct record *r, const struct kv_wanted *w, const token_id *names, int block_size) {
    if (!r || append_log_ended(&r->log))
        return;
    fprintf(r->log.file, "adopt %d %" PRIu64 " %" PRIu64 " %" PRIu64, w->group, w->hash.lo, w->hash.hi,
            w->parent);
    for (int i = 0; i < block_size; i++)
        fprintf(r->log.file, " %d", (int)names[i]);
    fputc('\n', r->log.file);
    append_log_check(&r->log, false);
}

void record_draft(struct record *r, const struct request *q) {
    if (!r || append_log_ended(&r->log))
        return;
    fprintf(r->log.file, "draft %" PRIu64 " %d", q->id, q->num_drafts);
    for (int i = 0; i < q->num_drafts; i++)
        fprintf(r->log.file, " %d", (int)q->tokens[q->num_tokens + i]);
    fputc('\n', r->log.file);
    append_log_check(&r->log, false);
}

void record_outcome(struct record *r, const struct plan *plan, const struct outcome *out) {
    if (!r || append_log_ended(&r->log))
        return;
    fprintf(r->log.file, "outcome %" PRIu64, plan->id);
    for (int i = 0; i < plan->num_items; i++) {
        fprintf(r->log.file, " %d", (int)(out->start[i + 1] - out->start[i]));
        for (int32_t j = out->start[i]; j < out->start[i + 1]; j++)
            fprintf(r->log.file, " %d", (int)out->tokens[j]);
        fprintf(r->log.file, " %d", out->failed[i]);
    }
    fputc('\n', r->log.file);
    append_log_check(&r->log, true); // so that a crash leaves every step that ended
}

void record_close(struct record *r) {
    if (!r)
        return;
    append_log_close(&r->log);
    free(r);
}

// ---- replay

// A line being read: numbers one after another. `bad` is set at the first thing that is not one in range.
struct record_cursor {
    char *at;
    bool bad;
};

static int64_t number(struct record_cursor *c, int64_t min, int64_t max) {
    char *end;
    long long v = strtoll(c->at, &end, 10);
    if (end == c->at || v < min || v > max)
        c->bad = true;
    c->at = end;
    return c->bad ? min : v;
}

static uint64_t number64(struct record_cursor *c) {
    char *end;
    unsigned long long v = strtoull(c->at, &end, 10);
    c->bad |= end == c->at;
    c->at = end;
    return v;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

struct replay {
    struct sched_config config;
    struct kv_cache kv;
    struct scheduler *sched;
    struct id_map requests; // of the scheduler
    bool have_kv;
    int max_chunk;
    const struct plan *plans[PLAN_MAX_DEPTH]; // unresolved: plan id modulo their number
    uint64_t oldest;                          // id of the oldest unresolved
    int num_unresolved;
    token_id *ids; // scratch for one line: no line has more numbers than characters
    int32_t *start;
    uint8_t *failed;
    struct token_event *events;
    uint64_t num_plans;
};

// Whether there is more on the line.
static bool more(struct record_cursor *c) {
    c->at += strspn(c->at, " ");
    return *c->at != 0;
}

static bool replay_config(struct replay *p, struct record_cursor *c) {
    p->config.policy = number(c, 0, SCHED_PRIORITY) ? SCHED_PRIORITY : SCHED_FCFS;
    p->config.max_running = (int)number(c, 1, 1 << 16);
    p->config.max_step_tokens = (int)number(c, 1, 1 << 24);
    p->max_chunk = (int)number(c, 1, INT32_MAX);
    p->config.max_model_len = (int)number(c, 1, INT32_MAX);
    p->config.has_axes = true;
    p->config.max_waiting = INT32_MAX;
    p->config.max_waiting_tokens = INT64_MAX;
    struct kv_config k = {.num_groups = 1};
    k.num_blocks = (int)number(c, 1, INT32_MAX / 4);
    k.block_size = (int)number(c, 1, 4096);
    k.share = number(c, 0, 1) != 0;
    k.key[0] = number64(c);
    k.key[1] = number64(c);
    if (!c->bad && more(c)) {
        p->config.depth = (int)number(c, 0, PLAN_MAX_DEPTH);
        p->config.async = number(c, 0, 1) != 0;
    }
    if (!c->bad && more(c)) {
        k.max_ahead = (int)number(c, 1, INT32_MAX);
        k.snapshot_tokens = (int)number(c, 0, INT32_MAX);
        k.num_groups = (int)number(c, 1, KV_MAX_GROUPS);
        for (int g = 0; g < k.num_groups; g++) {
            k.groups[g].kind = (enum kv_kind)number(c, KV_FULL, KV_STATE);
            int64_t window = number(c, -INT32_MAX, INT32_MAX);
            c->bad |= window == 0 && k.groups[g].kind == KV_WINDOW;
            k.groups[g].window = (int)(window < 0 ? -window : window);
            k.groups[g].chunked = window < 0;
        }
    }
    if (c->bad || p->have_kv || kv_init(&p->kv, &k) != STATUS_OK)
        return false;
    p->have_kv = true;
    if (!(p->sched = sched_open(&p->config, &p->kv, NULL)))
        return false;
    size_t n = (size_t)p->config.max_running;
    p->start = calloc(n + 1, sizeof *p->start);
    p->failed = calloc(n, 1);
    p->events = calloc((size_t)sched_max_events(p->config.max_running), sizeof *p->events);
    return p->start && p->failed && p->events && id_map_open(&p->requests, 0);
}

// The spans of a prompt of q->num_prompt tokens, which the caller frees; NULL: there are none, or the line is bad.
static struct kv_span *replay_spans(struct record_cursor *c, struct request_params *q) {
    if (c->bad || !more(c))
        return NULL;
    q->num_spans = (int)number(c, 1, q->num_prompt);
    struct kv_span *spans = c->bad ? NULL : calloc((size_t)q->num_spans, sizeof *spans);
    c->bad |= !spans;
    for (int i = 0, end = 0; i < q->num_spans && !c->bad; i++) {
        struct kv_span *s = &spans[i];
        s->first = (int)number(c, end, q->num_prompt - 1);
        s->len = (int)number(c, 1, q->num_prompt - s->first);
        s->whole = number(c, 0, 1) != 0;
        s->hash.lo = number64(c);
        s->hash.hi = number64(c);
        int64_t rows = 1;
        for (int a = 0; a < 3; a++)
            rows *= s->grid[a] = (int)number(c, 0, s->len);
        c->bad |= rows != (s->grid[0] ? s->len : 0) || (s->grid[0] == 0 && (s->grid[1] || s->grid[2]));
        end = s->first + s->len;
    }
    q->spans = spans;
    return spans;
}

static bool replay_add(struct replay *p, struct record_cursor *c) {
    token_id stop[MAX_STOP_TOKENS];
    unsigned char salt[1024];
    struct request_params q = {.stop = stop,
                               .sampling = {.repetition_penalty = 1, .top_p = 1, .logprobs = -1}};
    q.id = number64(c);
    q.priority = (int)number(c, INT32_MIN, INT32_MAX);
    q.max_output = (int)number(c, 0, INT32_MAX);
    q.min_output = (int)number(c, 0, INT32_MAX);
    q.sampling.prompt_logprobs = number(c, 0, 1) != 0;
    q.num_stop = (int)number(c, 0, MAX_STOP_TOKENS);
    for (int i = 0; i < q.num_stop; i++)
        stop[i] = (token_id)number(c, 0, INT32_MAX);
    q.num_salt = (int)number(c, 0, (int)sizeof salt);
    c->at += strspn(c->at, " ");
    for (int i = 0; i < q.num_salt && !c->bad; i++) {
        int high = hex_digit(c->at[0]), low = high < 0 ? -1 : hex_digit(c->at[1]);
        c->bad |= low < 0;
        salt[i] = (unsigned char)(high << 4 | low);
        c->at += c->bad ? 0 : 2;
    }
    q.salt = q.num_salt > 0 ? salt : NULL;
    q.num_prompt = (int)number(c, 1, (int64_t)strlen(c->at));
    for (int i = 0; i < q.num_prompt && !c->bad; i++)
        p->ids[i] = (token_id)number(c, 0, INT32_MAX);
    q.prompt = p->ids;
    int64_t kind = !c->bad && more(c) ? number(c, 0, 3) : 0;
    if (kind & 1) // any penalty will do
        q.sampling.repetition_penalty = 2;
    q.retain = kind & 2;
    if (!c->bad && more(c))
        q.pooling = (enum pooling)number(c, POOLING_NONE, POOLING_LAST);
    q.vector_size = 1;
    c->bad |= q.pooling != POOLING_NONE && q.max_output > 0;
    struct kv_span *spans = replay_spans(c, &q);
    struct request *r = NULL;
    if (!c->bad && sched_admissible(&p->config, &p->kv.config, q.num_prompt, q.max_output, NULL) == STATUS_OK)
        r = request_new(&q, p->kv.config.block_size);
    free(spans);
    // Ids are unique in a record.
    if (r && !id_map_get(&p->requests, r->id) && id_map_put(&p->requests, r->id, r)) {
        if (sched_add(p->sched, r) == STATUS_OK)
            return true;
        id_map_remove(&p->requests, r->id);
    }
    request_free(r);
    return false;
}

// A request that has left the scheduler.
static void replay_free(struct replay *p, struct request *r) {
    id_map_remove(&p->requests, r->id);
    request_free(r);
}

static bool replay_remove(struct replay *p, struct record_cursor *c) {
    struct request *r = id_map_get(&p->requests, number64(c));
    enum finish_reason why = (enum finish_reason)number(c, FINISH_STOP, FINISH_ERROR);
    if (c->bad || !r || r->state == REQUEST_FINISHED)
        return false;
    if (sched_remove(p->sched, r, why))
        replay_free(p, r);
    return true;
}

static bool replay_ready(struct replay *p, struct record_cursor *c) {
    struct request *r = id_map_get(&p->requests, number64(c));
    bool late = !c->bad && r && r->late;
    if (late)
        sched_ready(p->sched, r);
    return late;
}

static bool replay_hold(struct replay *p, struct record_cursor *c) {
    struct request *r = id_map_get(&p->requests, number64(c));
    bool can = !c->bad && r && r->state == REQUEST_WAITING && !r->late;
    if (can) {
        kv_touch(&p->kv, &r->seq, r->root, r->tokens, r->num_tokens - 1);
        sched_hold(p->sched, r);
    }
    return can;
}

static bool replay_adopt(struct replay *p, struct record_cursor *c) {
    struct kv_wanted w = {.group = (int)number(c, 0, p->kv.config.num_groups - 1)};
    w.hash.lo = number64(c);
    w.hash.hi = number64(c);
    w.parent = number64(c);
    for (int i = 0; i < p->kv.config.block_size && !c->bad; i++)
        p->ids[i] = (token_id)number(c, INT32_MIN, INT32_MAX);
    return !c->bad && kv_adopt(&p->kv, &w, p->ids) != KV_NONE;
}

static bool replay_draft(struct replay *p, struct record_cursor *c) {
    struct request *r = id_map_get(&p->requests, number64(c));
    token_id drafts[MAX_DRAFTS];
    int n = (int)number(c, 0, MAX_DRAFTS);
    for (int i = 0; i < n && !c->bad; i++)
        drafts[i] = (token_id)number(c, 0, INT32_MAX);
    return !c->bad && r && request_draft(r, drafts, n) == n;
}

static bool replay_chunk(struct replay *p, struct record_cursor *c) {
    int max_chunk = (int)number(c, 1, INT32_MAX);
    if (!c->bad)
        p->max_chunk = max_chunk;
    return !c->bad;
}

// STATUS_INVALID where the plan made now is not the plan that was recorded.
static enum status replay_plan(struct replay *p, struct record_cursor *c, struct err *err) {
    uint64_t id = number64(c);
    int n = (int)number(c, 0, p->config.max_running);
    if (c->bad || p->num_unresolved == (p->config.depth > 0 ? p->config.depth : 1))
        return STATUS_FORMAT;
    const struct plan *plan = sched_step(p->sched, p->max_chunk);
    if (plan) {
        p->num_plans++;
        p->plans[plan->id % PLAN_MAX_DEPTH] = plan;
        p->oldest = p->num_unresolved++ == 0 ? plan->id : p->oldest;
    }
    if ((plan ? plan->id : 0) != id || (plan ? plan->num_items : 0) != n)
        return err_set(err, STATUS_INVALID,
                       "plan %" PRIu64 " with %d requests was recorded; now it is %" PRIu64 " with %d", id, n,
                       plan ? plan->id : 0, plan ? plan->num_items : 0);
    for (int i = 0; i < n; i++) {
        const struct plan_item *item = &plan->items[i];
        uint64_t req = number64(c);
        int64_t v[4];
        for (int j = 0; j < 4; j++)
            v[j] = number(c, 0, INT32_MAX);
        if (c->bad)
            return STATUS_FORMAT;
        if (item->req->id != req || item->first != v[0] || item->num_new != v[1] ||
            item->first_logit != v[2] || (item->needs_token ? 1 + item->num_drafts : 0) != v[3])
            return err_set(err, STATUS_INVALID, "plan %" PRIu64 " differs from the record at its item %d", id,
                           i);
    }
    return STATUS_OK;
}

static bool replay_outcome(struct replay *p, struct record_cursor *c) {
    uint64_t id = number64(c);
    if (c->bad || p->num_unresolved == 0 || id != p->oldest)
        return false;
    const struct plan *plan = p->plans[id % PLAN_MAX_DEPTH];
    int32_t n = 0;
    for (int i = 0; i < plan->num_items; i++) {
        p->start[i] = n;
        int64_t samples = plan->items[i].needs_token ? 1 + plan->items[i].num_drafts : 0;
        int64_t count = number(c, samples > 0, samples); // as many as the engine gives
        for (int64_t j = 0; j < count && !c->bad; j++)
            p->ids[n++] = (token_id)number(c, 0, INT32_MAX);
        p->failed[i] = (uint8_t)number(c, ITEM_GOOD, ITEM_LATE);
        if (c->bad ||
            (p->failed[i] == ITEM_LATE && (samples == 0 || !request_sees_tokens(plan->items[i].req))))
            return false;
    }
    p->start[plan->num_items] = n;
    struct outcome out = {.start = p->start, .tokens = p->ids, .failed = p->failed};
    int num = sched_update(p->sched, id, &out, p->events);
    for (int i = 0; i < num; i++)
        if (p->events[i].finish != FINISH_NONE)
            replay_free(p, p->events[i].req);
    p->num_unresolved--;
    p->oldest++;
    return true;
}

static enum status replay_line(struct replay *p, char *line, struct err *err) {
    struct record_cursor c = {.at = line + strcspn(line, " ")};
    size_t word = (size_t)(c.at - line);
#define IS(s) (word == sizeof(s) - 1 && memcmp(line, s, word) == 0)
    if (!p->sched)
        return IS("config") && replay_config(p, &c) ? STATUS_OK : STATUS_FORMAT;
    if (IS("add"))
        return replay_add(p, &c) ? STATUS_OK : STATUS_FORMAT;
    if (IS("remove"))
        return replay_remove(p, &c) ? STATUS_OK : STATUS_FORMAT;
    if (IS("chunk"))
        return replay_chunk(p, &c) ? STATUS_OK : STATUS_FORMAT;
    if (IS("ready"))
        return replay_ready(p, &c) ? STATUS_OK : STATUS_FORMAT;
    if (IS("hold"))
        return replay_hold(p, &c) ? STATUS_OK : STATUS_FORMAT;
    if (IS("adopt"))
        return replay_adopt(p, &c) ? STATUS_OK : STATUS_FORMAT;
    if (IS("draft"))
        return replay_draft(p, &c) ? STATUS_OK : STATUS_FORMAT;
    if (IS("plan"))
        return replay_plan(p, &c, err);
    if (IS("outcome"))
        return replay_outcome(p, &c) ? STATUS_OK : STATUS_FORMAT;
#undef IS
    return STATUS_FORMAT;
}

static void free_request(void *arg, struct request *r) {
    (void)arg;
    request_free(r);
}

enum status service_replay(const char *path, uint64_t *num_plans, struct err *err) {
    struct replay p = {0};
    char *line = NULL;
    size_t cap = 0, ids_cap = 0;
    int number_of_line = 0;
    enum status status = STATUS_OK;
    FILE *f = fopen(path, "re");
    if (!f)
        return err_set(err, STATUS_IO, "cannot read the record file '%s'", path);
    for (ssize_t len; status == STATUS_OK && (len = getline(&line, &cap, f)) > 0;) {
        number_of_line++;
        if (line[len - 1] != '\n')
            break; // the last line of a process that was killed
        line[len - 1] = 0;
        if (cap > ids_cap) { // one id is at least two characters
            free(p.ids);
            p.ids = malloc(cap * sizeof *p.ids);
            ids_cap = p.ids ? cap : 0;
            if (!p.ids) {
                status = err_set(err, STATUS_NOMEM, "out of memory");
                break;
            }
        }
        if (number_of_line == 1 && strcmp(line, "quire-record 1") != 0)
            status = STATUS_FORMAT;
        else if (number_of_line > 1)
            status = replay_line(&p, line, err);
    }
    if (status == STATUS_OK && number_of_line == 0)
        status = STATUS_FORMAT;
    if (status == STATUS_FORMAT)
        err_set(err, STATUS_FORMAT, "'%s' line %d is not a line of a record", path, number_of_line);
    *num_plans = p.num_plans;
    if (p.sched)
        sched_abandon(p.sched, free_request, NULL);
    sched_close(p.sched);
    if (p.have_kv)
        kv_destroy(&p.kv);
    free(p.ids);
    id_map_close(&p.requests);
    free(p.start);
    free(p.failed);
    free(p.events);
    free(line);
    fclose(f);
    return status;
}
