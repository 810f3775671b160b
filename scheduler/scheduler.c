// The scheduler: which tokens of which requests the next step computes. README.md has the policy as numbered
// rules (S1-S13, cited here) and the proof that what is admitted ends. Pure: it calls only the KV cache.
#include "scheduler.h"

#include "log.h"

#include <stdlib.h>
#include <string.h>

// Waiting requests that one step passes over because another computes their next block. A bound on the
// hashing that a step does for requests that it does not start.
enum { MAX_HELD = 32 };

// S13: the least that prompts get in a step, and into how many pieces for each plan in flight what there is
// of prompts is cut at least.
enum { MIN_SHARE = 64, SHARES = 4 };

static int min_int(int a, int b) { return a < b ? a : b; }
static int64_t min_int64(int64_t a, int64_t b) { return a < b ? a : b; }
static int max_int(int a, int b) { return a > b ? a : b; }

// ---- order and queues
// --------------------------------------------------------------------------------------

// S1: one total order for both queues.
static bool before(const struct scheduler *s, const struct request *a, const struct request *b) {
    if (s->config.policy == SCHED_PRIORITY && a->priority != b->priority)
        return a->priority < b->priority;
    return a->arrival < b->arrival;
}

static void list_insert(const struct scheduler *s, struct request_list *list, struct request *r) {
    struct request *prev = list->tail;
    while (prev && before(s, r, prev))
        prev = prev->prev;
    r->prev = prev;
    r->next = prev ? prev->next : list->head;
    *(r->prev ? &r->prev->next : &list->head) = r;
    *(r->next ? &r->next->prev : &list->tail) = r;
    list->len++;
}

static void list_remove(struct request_list *list, struct request *r) {
    *(r->prev ? &r->prev->next : &list->head) = r->next;
    *(r->next ? &r->next->prev : &list->tail) = r->prev;
    r->prev = r->next = NULL;
    list->len--;
}

static void enter_waiting(struct scheduler *s, struct request *r) {
    r->state = REQUEST_WAITING;
    s->waiting_tokens += r->num_tokens;
    list_insert(s, &s->waiting, r);
}

static void leave_waiting(struct scheduler *s, struct request *r) {
    s->waiting_tokens -= r->num_tokens;
    list_remove(&s->waiting, r);
}

// ---- what a request needs
// ----------------------------------------------------------------------------------

// Positions [0, this) are all that is ever computed: the last token is drawn, never fed back. A request that
// only scores its prompt needs no row after the one that scores the last prompt token.
static int compute_end(const struct request *r) {
    if (r->max_tokens > r->num_prompt)
        return r->max_tokens - 1;
    return r->sampling.prompt_logprobs ? max_int(r->num_prompt - 1, 1) : r->num_prompt;
}

// Known tokens that can be computed now. A filter or penalties must see a token before the next is drawn, so
// such a request is not run ahead.
static int num_todo(const struct scheduler *s, const struct request *r) {
    if (r->num_pending > 0 && (!s->config.run_ahead || r->filter || r->counts))
        return 0;
    return min_int(r->num_tokens, compute_end(r)) - r->num_computed;
}

// One known token left, after which another is drawn.
static bool is_decode(const struct scheduler *s, const struct request *r) {
    return num_todo(s, r) == 1 && r->num_tokens < r->max_tokens;
}

// Decodes, now or once what is in flight for it has come back.
static bool is_decoding(const struct scheduler *s, const struct request *r) {
    return r->num_pending > 0 || is_decode(s, r);
}

// S9: after its last preemption a request takes all blocks it will ever need at once, and keeps them.
static bool is_secured(const struct request *r) { return r->num_preemptions >= SCHED_MAX_PREEMPTIONS; }

// S8: the tokens for which there must be room when a request starts: the known ones, and an eighth of the
// rest for each time it was preempted.
static int start_need(const struct request *r) {
    int known = min_int(r->num_tokens, compute_end(r));
    int times = min_int(r->num_preemptions, SCHED_MAX_PREEMPTIONS);
    return known + (int)((int64_t)(compute_end(r) - known) * times / SCHED_MAX_PREEMPTIONS);
}

// Blocks that the known tokens of a running request will still take.
static int owed_blocks(const struct scheduler *s, const struct request *r) {
    return max_int(kv_blocks_for(s->kv, min_int(r->num_tokens, compute_end(r))) - r->blocks.len, 0);
}

// ---- start and end
// -----------------------------------------------------------------------------------------

enum status sched_init(struct scheduler *s, const struct sched_config *config, struct kv_cache *kv) {
    *s = (struct scheduler){.config = *config, .kv = kv, .next_plan = 1, .next_resolve = 1};
    s->config.depth = config->depth > 0 ? config->depth : 1;
    if (config->max_running < 1 || config->max_step_tokens < config->max_running || config->max_chunk < 1 ||
        config->max_waiting < 1 || config->max_waiting_tokens < 1 || config->max_model_len < 1 ||
        s->config.depth > SCHED_MAX_DEPTH)
        return STATUS_INVALID;
    for (int i = 0; i < SCHED_MAX_DEPTH; i++) {
        s->plans[i].items = calloc((size_t)config->max_running, sizeof *s->plans[i].items);
        if (!s->plans[i].items) {
            sched_destroy(s);
            return STATUS_NOMEM;
        }
    }
    return STATUS_OK;
}

void sched_destroy(struct scheduler *s) {
    for (int i = 0; i < SCHED_MAX_DEPTH; i++)
        free(s->plans[i].items);
    *s = (struct scheduler){0};
}

void sched_set_chunk(struct scheduler *s, int max_chunk) {
    CHECK(max_chunk >= 1);
    s->config.max_chunk = max_chunk;
}

enum status sched_admissible(const struct sched_config *config, int num_blocks, int block_size,
                             int num_prompt, int max_output, struct err *err) {
    if (num_prompt < 1 || max_output < 0)
        return err_set(err, STATUS_INVALID, "a request needs at least one prompt token");
    int64_t total = (int64_t)num_prompt + max_output;
    if (total > config->max_model_len)
        return err_set(err, STATUS_INVALID,
                       "%d prompt tokens and %d output tokens exceed the context length of %d", num_prompt,
                       max_output, config->max_model_len);
    int64_t blocks = ((max_output > 0 ? total - 1 : total) + block_size - 1) / block_size;
    if (blocks > num_blocks)
        return err_set(
            err, STATUS_INVALID,
            "%d prompt tokens and %d output tokens need %lld cache blocks of %d tokens; there are %d",
            num_prompt, max_output, (long long)blocks, block_size, num_blocks);
    return STATUS_OK;
}

enum status sched_add(struct scheduler *s, struct request *r) {
    const struct sched_config *c = &s->config;
    CHECK(r->state == REQUEST_NEW);
    enum status status = sched_admissible(c, s->kv->num_blocks, s->kv->block_size, r->num_prompt,
                                          r->max_tokens - r->num_prompt, NULL);
    if (status != STATUS_OK)
        return status;
    if (s->waiting.len >= c->max_waiting ||
        (s->waiting.len > 0 && s->waiting_tokens + r->num_tokens > c->max_waiting_tokens))
        return STATUS_LIMIT;
    r->arrival = s->next_arrival++;
    r->root = kv_root(s->kv, r->salt, (size_t)r->num_salt);
    enter_waiting(s, r);
    return STATUS_OK;
}

bool sched_idle(const struct scheduler *s) {
    return s->waiting.len == 0 && s->running.len == 0 && s->next_plan == s->next_resolve;
}

// ---- prefix sharing
// ----------------------------------------------------------------------------------------

// Sets next_hash, the hash of the block after the last published one, where all its tokens are known.
static void update_next_hash(const struct scheduler *s, struct request *r) {
    int start = r->blocks.num_hashed * s->kv->block_size;
    r->has_next_hash = s->kv->share && r->num_tokens - r->num_pending - start >= s->kv->block_size;
    if (r->has_next_hash)
        r->next_hash =
            kv_chain(s->kv, r->blocks.num_hashed > 0 ? r->blocks.hash : r->root, r->tokens + start);
}

// S10: whether a running request that comes before r computes the block that r would have to compute next.
static bool computed_by_another(const struct scheduler *s, const struct request *r) {
    if (!r->has_next_hash)
        return false;
    for (const struct request *c = s->running.head; c && before(s, c, r); c = c->next)
        if (c->has_next_hash && c->next_hash.lo == r->next_hash.lo && c->next_hash.hi == r->next_hash.hi)
            return true;
    return false;
}

// Fills the table of a waiting request from the prefix cache. False: it is held, and its table is empty. The
// last known token is never taken from the cache, because its row draws (S7).
static bool match_prefix(struct scheduler *s, struct request *r) {
    int limit = r->num_tokens - 1;
    if (computed_by_another(s, r)) // as in the step before: no need to hash the prompt again
        return false;
    r->num_computed =
        kv_match(s->kv, &r->blocks, r->root, r->tokens, r->sampling.prompt_logprobs ? 0 : limit);
    update_next_hash(s, r);
    bool usable = !r->sampling.prompt_logprobs && limit - r->num_computed >= s->kv->block_size;
    if (usable && computed_by_another(s, r)) {
        kv_unmatch(s->kv, &r->blocks);
        r->num_computed = 0;
        return false;
    }
    if (!usable)
        r->has_next_hash = false; // while it waits; start_request() sets it again
    return true;
}

// ---- preemption
// --------------------------------------------------------------------------------------------

// S5: gives up the victim's blocks. Its full blocks stay in the cache until they are reused, its tokens stay
// known.
static void preempt(struct scheduler *s, struct request *v) {
    CHECK(v->num_in_flight == 0 && v->num_pending == 0);
    list_remove(&s->running, v);
    kv_release(s->kv, &v->blocks);
    v->num_computed = v->num_resolved = 0;
    v->has_next_hash = false;
    v->num_preemptions++;
    s->stats.preemptions++;
    enter_waiting(s, v);
}

// S4: the last in order from r on that may be preempted; never the first of all. NULL: none.
static struct request *find_victim(const struct scheduler *s, const struct request *r) {
    for (struct request *v = s->running.tail; v != s->running.head; v = v->prev) {
        if (!is_secured(v))
            return v;
        if (v == r)
            break;
    }
    return NULL;
}

// Finds blocks for r's next n tokens, preempting others after it. False: r is not in this step, because
// blocks are on their way back, or because it is itself the victim, or because the victim is in a plan not
// yet resolved; then *kept_out names the victim, so that the next step finds it free (S6).
static bool make_room(struct scheduler *s, struct request *r, int n, struct request **kept_out) {
    while (!kv_grow(s->kv, &r->blocks, r->num_computed + n)) {
        if (s->num_leaving > 0 || *kept_out)
            return false;
        struct request *v = find_victim(s, r);
        if (!v)
            return false;
        if (v->num_in_flight > 0) {
            *kept_out = v;
            return false;
        }
        preempt(s, v);
        if (v == r)
            return false;
    }
    return true;
}

// ---- the next step
// -----------------------------------------------------------------------------------------

// S2, S7: one request's share. Decodes stand before prefills.
static void plan_add(struct plan *p, struct request *r, int n) {
    struct plan_item it = {.req = r, .first = r->num_computed, .num_new = n, .first_logit = n};
    int end = it.first + n, unscored = max_int(it.first, r->num_scored);
    it.needs_token = end == r->num_tokens && r->num_tokens < r->max_tokens;
    if (it.needs_token)
        it.first_logit = n - 1;
    if (r->sampling.prompt_logprobs && unscored < min_int(end, r->num_prompt - 1)) {
        it.first_logit = unscored - it.first;
        it.wants_score = true;
    }
    int at = p->num_items++;
    if (n == 1 && it.needs_token) {
        at = p->num_decode++;
        memmove(&p->items[at + 1], &p->items[at], (size_t)(p->num_items - 1 - at) * sizeof *p->items);
    }
    p->items[at] = it;
    p->num_tokens += n;
    p->num_rows += n - it.first_logit;
    r->num_in_flight++;
    r->last_plan = p->id;
    r->num_computed = end;
    if (it.needs_token) {
        r->tokens[r->num_tokens++] = -1;
        r->num_pending++;
    }
}

// S13: whose turn it is to decode: those that waited for more than `waited` plans, and the first `rest` of
// those that waited so long.
enum { MAX_WAITED = 2 * SCHED_MAX_DEPTH };
struct turn {
    int waited, rest;
    int num; // of both together
};

static int waited(const struct plan *p, const struct request *r) {
    return p->id - r->last_plan < MAX_WAITED ? (int)(p->id - r->last_plan) : MAX_WAITED;
}

static struct turn find_turn(const struct scheduler *s, const struct plan *p, int quota) {
    int count[MAX_WAITED + 1] = {0};
    struct turn t = {.waited = MAX_WAITED};
    for (const struct request *r = s->running.head; r; r = r->next)
        if (is_decode(s, r))
            count[waited(p, r)]++;
    for (;; t.waited--) {
        t.rest = min_int(count[t.waited], quota - t.num);
        t.num += t.rest;
        if (t.num == quota || t.waited == 0)
            return t;
    }
}

static bool has_turn(struct turn *t, const struct plan *p, const struct request *r) {
    int n = waited(p, r);
    return n > t->waited || (n == t->waited && t->rest-- > 0);
}

// S2, S3, S13: gives the running requests their share, in order. all: each that can decode does. Returns the
// prefill budget that is left, -1 when blocks were short: then nothing new starts (S8).
static int plan_running(struct scheduler *s, struct plan *p, bool all) {
    int decoding = 0, depth = s->config.depth;
    int64_t backlog = s->waiting_tokens;
    for (const struct request *r = s->running.head; r; r = r->next) {
        bool decodes = is_decoding(s, r);
        decoding += decodes;
        backlog += decodes ? 0 : num_todo(s, r);
    }
    p->num_decoding = decoding;
    if (s->config.pace && !all) // once for a plan
        sched_set_chunk(s, s->config.pace(s->config.pace_arg, decoding));
    bool deals = depth > 1 && !s->config.run_ahead;
    struct turn turn = find_turn(s, p, deals && !all ? (decoding + depth - 1) / depth : decoding);
    int budget = s->config.max_step_tokens - turn.num;
    if (decoding > 0)
        budget = min_int(budget, s->config.max_chunk);
    if (deals) {
        int64_t share = (backlog + SHARES * depth - 1) / (SHARES * depth);
        budget = min_int(budget, share < MIN_SHARE ? MIN_SHARE : (int)min_int64(share, INT32_MAX));
    }

    uint64_t preemptions = s->stats.preemptions;
    struct request *kept_out = NULL;
    bool after = false, is_short = false;
    for (struct request *r = s->running.head, *prev = NULL; r; r = prev ? prev->next : s->running.head) {
        bool decode = is_decode(s, r);
        int n = decode ? has_turn(&turn, p, r) : min_int(num_todo(s, r), budget);
        after |= r == kept_out;
        if (n == 0 || (after && !is_secured(r))) {
            prev = r;
            continue;
        }
        if (make_room(s, r, n, &kept_out)) {
            budget -= decode ? 0 : n;
            plan_add(p, r, n);
        } else {
            is_short = true;
        }
        if (r->state == REQUEST_RUNNING) // else it was preempted, as were those after it
            prev = r;
    }
    return is_short || s->stats.preemptions != preemptions ? -1 : budget;
}

static void start_request(struct scheduler *s, struct request *r) {
    leave_waiting(s, r);
    r->state = REQUEST_RUNNING;
    r->num_resolved = r->num_computed;
    if (r->num_cached < 0) {
        r->num_cached = r->num_computed;
        if (s->kv->share && !r->sampling.prompt_logprobs) {
            s->stats.prefix_queries += (uint64_t)r->num_prompt;
            s->stats.prefix_hits += (uint64_t)r->num_cached;
        }
    }
    if (!r->has_next_hash)
        update_next_hash(s, r);
    list_insert(s, &s->running, r);
}

// S8: starts waiting requests in order, until one does not fit.
static void plan_waiting(struct scheduler *s, struct plan *p, int budget) {
    int held = 0, owed = 0;
    for (const struct request *r = s->running.head; r; r = r->next)
        owed += owed_blocks(s, r);
    for (struct request *r = s->waiting.head, *next; r; r = next) {
        next = r->next;
        if (s->running.len == s->config.max_running || budget <= 0 || held == MAX_HELD)
            break;
        // No match can spare it the block of its last token: ask before the prompt is hashed.
        int need = kv_blocks_for(s->kv, start_need(r));
        if (owed + need - (r->num_tokens - 1) / s->kv->block_size > s->kv->num_free)
            break;
        if (!match_prefix(s, r)) {
            s->stats.held++;
            held++;
            continue;
        }
        if (owed + need - r->blocks.len > s->kv->num_free) {
            kv_unmatch(s->kv, &r->blocks);
            r->num_computed = 0;
            break;
        }
        int n = min_int(num_todo(s, r), budget);
        CHECK(kv_grow(s->kv, &r->blocks, is_secured(r) ? compute_end(r) : r->num_computed + n));
        start_request(s, r);
        owed += owed_blocks(s, r);
        budget -= n;
        plan_add(p, r, n);
    }
}

const struct plan *sched_step(struct scheduler *s) {
    CHECK(s->next_plan - s->next_resolve < (uint64_t)s->config.depth);
    struct plan *p = &s->plans[s->next_plan % SCHED_MAX_DEPTH];
    *p = (struct plan){.id = s->next_plan, .items = p->items};
    int budget = plan_running(s, p, false);
    // Those whose turn it was lack blocks, and nothing in flight will bring any: the others go on.
    if (budget < 0 && p->num_items == 0 && s->next_plan == s->next_resolve)
        plan_running(s, p, true);
    if (budget >= 0)
        plan_waiting(s, p, budget);
    if (p->num_items == 0)
        return NULL;
    s->next_plan++;
    return p;
}

// ---- what a step gave
// --------------------------------------------------------------------------------------

// Takes a request out of the queues for good. True: no plan names it, its blocks are back (S11).
static bool leave(struct scheduler *s, struct request *r, enum finish_reason why) {
    if (r->state == REQUEST_RUNNING)
        list_remove(&s->running, r);
    if (r->state == REQUEST_WAITING)
        leave_waiting(s, r);
    r->state = REQUEST_FINISHED;
    r->finish = why;
    r->has_next_hash = false;
    if (r->num_in_flight > 0) {
        s->num_leaving++;
        return false;
    }
    kv_release(s->kv, &r->blocks);
    return true;
}

// Ends a request by what its item gave; `token` is -1 where there is none. Without a token to report, and
// with later plans that name it, there is no event yet.
static int end_request(struct scheduler *s, struct request *r, int item, token_id token,
                       enum finish_reason why, struct token_event *event) {
    r->num_tokens -= r->num_pending;
    r->num_pending = 0;
    bool left = leave(s, r, why);
    *event = (struct token_event){.req = r, .item = item, .token = token, .finish = left ? why : FINISH_NONE};
    return left || token >= 0;
}

// Publishes what is both computed and known (rule 2 of the cache, S6).
static void publish(struct scheduler *s, struct request *r) {
    int hashed = r->blocks.num_hashed;
    kv_publish(s->kv, &r->blocks, r->root, r->tokens, r->num_resolved);
    if (!r->has_next_hash || r->blocks.num_hashed != hashed)
        update_next_hash(s, r);
}

// S12: one drawn token; why the request ends with it, or FINISH_NONE.
static enum finish_reason resolve_token(struct request *r, int pos, token_id token) {
    r->tokens[pos] = token;
    request_count_token(r, token);
    if (pos >= r->min_tokens && request_is_stop(r, token))
        return FINISH_STOP;
    return pos + 1 == r->max_tokens ? FINISH_LENGTH : FINISH_NONE;
}

// What item i of a plan gave to a request that still runs. Returns the number of events.
static int resolve_item(struct scheduler *s, const struct plan_item *it, int i, const struct outcome *out,
                        struct token_event *events) {
    struct request *r = it->req;
    const token_id *tokens = out->tokens + out->start[i];
    int n = out->start[i + 1] - out->start[i], end = it->first + it->num_new, num_events = 0;
    CHECK(n == 0 || (n > 0 && it->needs_token));
    r->num_resolved = end;
    if (it->wants_score)
        r->num_scored = min_int(end, r->num_prompt - 1);
    if (!it->needs_token) {
        publish(s, r);
        return end == compute_end(r) ? end_request(s, r, i, -1, FINISH_LENGTH, events) : 0;
    }
    if (n == 1) {
        r->num_pending--;
    } else { // the pending token is not what came: later plans ran on nothing, and all they did is void
        r->num_stale = r->num_in_flight;
        r->num_tokens = end + n;
        r->num_pending = 0;
        r->num_computed = r->num_resolved = n == 0 ? end - 1 : end;
        r->has_next_hash = false;
    }
    for (int j = 0; j < n; j++) {
        enum finish_reason why = resolve_token(r, end + j, tokens[j]);
        if (why != FINISH_NONE) {
            r->num_tokens = end + j + 1 + r->num_pending;
            publish(s, r);
            return num_events + end_request(s, r, i, tokens[j], why, &events[num_events]);
        }
        events[num_events++] = (struct token_event){.req = r, .item = i, .token = tokens[j]};
    }
    publish(s, r);
    return num_events;
}

int sched_update(struct scheduler *s, uint64_t plan_id, const struct outcome *out,
                 struct token_event *events) {
    CHECK(plan_id == s->next_resolve && plan_id < s->next_plan);
    const struct plan *p = &s->plans[plan_id % SCHED_MAX_DEPTH];
    int n = 0;
    for (int i = 0; i < p->num_items; i++) {
        struct request *r = p->items[i].req;
        r->num_in_flight--;
        if (r->state == REQUEST_FINISHED) {
            if (r->num_in_flight == 0) {
                s->num_leaving--;
                kv_release(s->kv, &r->blocks);
                events[n++] = (struct token_event){.req = r, .item = -1, .token = -1, .finish = r->finish};
            }
        } else if (r->num_stale > 0) {
            r->num_stale--;
        } else if (out->failed[i]) {
            n += end_request(s, r, i, -1, FINISH_ERROR, &events[n]);
        } else {
            n += resolve_item(s, &p->items[i], i, out, &events[n]);
        }
    }
    s->next_resolve++;
    return n;
}

bool sched_remove(struct scheduler *s, struct request *r, enum finish_reason why) {
    CHECK(why != FINISH_NONE);
    if (r->state == REQUEST_FINISHED)
        return r->num_in_flight == 0;
    return leave(s, r, why);
}

void sched_drop_flying(struct scheduler *s, void (*left)(void *arg, struct request *r), void *arg) {
    for (; s->next_resolve < s->next_plan; s->next_resolve++) {
        const struct plan *p = &s->plans[s->next_resolve % SCHED_MAX_DEPTH];
        for (int i = 0; i < p->num_items; i++) {
            struct request *r = p->items[i].req;
            if (--r->num_in_flight == 0 && r->state == REQUEST_FINISHED)
                left(arg, r);
        }
    }
}

struct request *sched_find(const struct scheduler *s, uint64_t id) {
    for (struct request *r = s->running.head; r; r = r->next)
        if (r->id == id)
            return r;
    for (struct request *r = s->waiting.head; r; r = r->next)
        if (r->id == id)
            return r;
    return NULL;
}
