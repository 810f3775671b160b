// The policy: which tokens of which requests the next step computes, rules S1-S10 and S13-S17 of README.md. Pure:
// it calls only the KV cache.
#include "scheduler_state.h"

#include "log.h"
#include "minmax.h"

#include <string.h>

// Waiting requests that one step passes over because another computes their next block. A bound on the
// hashing that a step does for requests that it does not start.
enum { MAX_DEFERRED = 32 };

// S13: prompts get at least MIN_PART tokens of a step; their backlog is cut into at least PARTS micro-batches for
// each plan in flight.
enum { MIN_PART = 64, PARTS = 4 };

static int64_t min_int64(int64_t a, int64_t b) { return a < b ? a : b; }

// ---- what a request needs

// The last token is sampled, never fed back. A request that only wants the log-probabilities of its prompt
// needs no row after the one of the last prompt token's.
int sched_compute_end(const struct request *r) {
    if (r->max_tokens > r->num_prompt)
        return r->max_tokens - 1;
    return r->sampling.prompt_logprobs ? max_int(r->num_prompt - 1, 1) : r->num_prompt;
}

// Known tokens that can be computed now. A request that looks at its tokens must see one before the next is sampled,
// so it is not planned again before. One whose mask is late has none (S16).
static int num_todo(const struct scheduler *s, const struct request *r) {
    if (r->num_pending > 0 && (!s->config.async || request_sees_tokens(r)))
        return 0;
    if (r->late)
        return 0;
    return min_int(r->num_tokens, sched_compute_end(r)) - r->num_computed;
}

// One known token left, after which another is sampled.
static bool is_decode(const struct scheduler *s, const struct request *r) {
    return num_todo(s, r) == 1 && r->num_tokens < r->max_tokens;
}

// Its drafts were wrong, and states hold no more than their last token: it computes the good ones again, and decodes (S15).
static bool is_again(const struct request *r) { return r->seq.rolls_back && !r->late; }

// Decodes, now or when its steps in flight have ended.
static bool is_decoding(const struct scheduler *s, const struct request *r) {
    return r->num_pending > 0 || is_decode(s, r);
}

// S9: after its last preemption a request takes all blocks it will ever need at once, and keeps them.
static bool is_fully_reserved(const struct request *r) { return r->num_preemptions >= SCHED_MAX_PREEMPTIONS; }

// S8: the tokens for which there must be room when a request starts: the known ones, and an eighth of the
// rest for each time it was preempted.
static int start_need(const struct request *r) {
    int known = min_int(r->num_tokens, sched_compute_end(r));
    int times = min_int(r->num_preemptions, SCHED_MAX_PREEMPTIONS);
    return known + (int)((int64_t)(sched_compute_end(r) - known) * times / SCHED_MAX_PREEMPTIONS);
}

// Pages that the known tokens of a running request will still take.
static int outstanding_blocks(const struct scheduler *s, const struct request *r) {
    return kv_missing(s->kv, &r->seq, min_int(r->num_tokens, sched_compute_end(r)));
}

// The last block boundary before the prompt's last token: the longest hit that this prompt can give.
static int last_boundary(const struct scheduler *s, const struct request *r) {
    return (r->num_prompt - 1) / s->kv->config.block_size * s->kv->config.block_size;
}

// S14: with recurrent state a chunk of n tokens ends where a snapshot of it is of use.
static int align_chunk(const struct scheduler *s, const struct request *r, int n) {
    int size = s->kv->config.block_size, first = r->num_computed, end = first + n, last = last_boundary(s, r);
    if (!s->kv->has_state || !s->kv->config.share)
        return n;
    if (first < last && last < end)
        end = last;
    else if (end < min_int(r->num_tokens, sched_compute_end(r)) && end / size * size > first)
        end = end / size * size;
    return end - first;
}

// S17: the first n known tokens to be computed, cut where no whole span is; a span that they reach into may be longer than
// the prompts' part of the step, but not than `room`. 0: there is no room for it.
static int keep_spans(const struct request *r, int n, int room) {
    int first = r->num_computed, last = first + n - 1;
    int s = r->seq.num_spans > 0 && n > 0 ? kv_find_span(r->seq.spans, r->seq.num_spans, last) : 0;
    const struct kv_span *span = s < r->seq.num_spans && n > 0 ? &r->seq.spans[s] : NULL;
    if (!span || !span->whole || span->first > last)
        return n;
    if (span->first > first && span->first + span->len > last + 1)
        return span->first - first;
    n = span->first + span->len - first;
    return n <= room ? n : 0;
}

// How many tokens of its prompt a request computes in a step that has `budget` for prompts, and `room` at all.
static int find_chunk(const struct scheduler *s, const struct request *r, int budget, int room) {
    return keep_spans(r, align_chunk(s, r, min_int(num_todo(s, r), budget)), room);
}

// Whether a whole span is still to be computed.
static bool has_whole_ahead(const struct request *r) {
    for (int i = r->seq.num_spans; i-- > 0;)
        if (r->seq.spans[i].whole)
            return r->seq.spans[i].first + r->seq.spans[i].len > r->num_computed;
    return false;
}

// ---- prefix sharing

// The block after the last published one. With recurrent state, of which there are few snapshots, the one that ends at
// the last boundary of the prompt, until its snapshot is published.
void sched_update_next_hash(const struct scheduler *s, struct request *r) {
    int size = s->kv->config.block_size, hashed = r->seq.num_hashed, target = hashed + 1;
    bool ahead = true;
    if (s->kv->has_state) {
        target = last_boundary(s, r) / size;
        ahead = target >= 1 && hashed <= target && r->num_resolved <= target * size;
        if (ahead && r->has_next_hash)
            return;
    }
    r->has_next_hash = s->kv->config.share && ahead && r->num_tokens - r->num_pending >= target * size;
    if (!r->has_next_hash)
        return;
    r->next_hash = hashed > 0 ? r->seq.hash : r->root;
    for (int i = hashed; i < target; i++)
        r->next_hash = kv_seq_chain(s->kv, &r->seq, i, r->next_hash, r->tokens);
}

// S10: whether a running request that comes before r computes the block that r would compute next.
static bool computed_by_another(const struct scheduler *s, const struct request *r) {
    if (!r->has_next_hash)
        return false;
    for (const struct request *c = s->running.head; c && sched_before(s, c, r); c = c->next)
        if (c->has_next_hash && !c->late && c->next_hash.lo == r->next_hash.lo &&
            c->next_hash.hi == r->next_hash.hi)
            return true;
    return false;
}

// Fills the table of a waiting request from the prefix cache. False: it is deferred, and its table is empty.
// The last known token is never taken from the cache, because its row is sampled from (S7).
static bool match_prefix(struct scheduler *s, struct request *r) {
    int limit = r->num_tokens - 1;
    if (computed_by_another(s, r)) // as in the step before: no need to hash the prompt again
        return false;
    r->num_computed = kv_match(s->kv, &r->seq, r->root, r->tokens, request_needs_all_rows(r) ? 0 : limit);
    sched_update_next_hash(s, r);
    bool usable = !request_needs_all_rows(r) && limit - r->num_computed >= s->kv->config.block_size &&
                  (!s->kv->has_state || r->num_computed < last_boundary(s, r));
    if (usable && computed_by_another(s, r)) {
        kv_unmatch(s->kv, &r->seq);
        r->num_computed = 0;
        return false;
    }
    if (!usable)
        r->has_next_hash = false; // while it waits; start_request() sets it again
    return true;
}

// ---- preemption

// Gives up the blocks of a running request. Its full blocks stay in the cache until reused, its tokens stay known.
void sched_start_over(struct scheduler *s, struct request *r) {
    CHECK(r->num_in_flight == 0 && r->num_pending == 0);
    sched_list_remove(&s->running, r);
    kv_release(s->kv, &r->seq);
    r->num_lost = r->num_resolved;
    r->num_computed = r->num_resolved = r->num_drafts = 0;
    r->has_next_hash = false;
    sched_enter_waiting(s, r);
}

// S5
static void preempt_request(struct scheduler *s, struct request *v) {
    sched_start_over(s, v);
    v->num_preemptions++;
    s->stats.preemptions++;
}

// S4: the last in order from r on that may be preempted; never the first of all. NULL: none.
static struct request *find_victim(const struct scheduler *s, const struct request *r) {
    for (struct request *v = s->running.tail; v != s->running.head; v = v->prev) {
        if (!is_fully_reserved(v))
            return v;
        if (v == r)
            break;
    }
    return NULL;
}

// Finds blocks for r's next n tokens, preempting others after it. False: r is not in this step, because
// blocks of draining requests are on their way back, or because it is itself the victim, or because the
// victim is in an unresolved plan; then *deferred_victim names the victim, so that the next step finds it
// free (S6).
static bool make_room(struct scheduler *s, struct request *r, int n, struct request **deferred_victim) {
    while (!kv_grow(s->kv, &r->seq, r->num_computed + n)) {
        if (s->draining.len > 0 || *deferred_victim)
            return false;
        struct request *v = find_victim(s, r);
        if (!v)
            return false;
        if (v->num_in_flight > 0) {
            *deferred_victim = v;
            return false;
        }
        preempt_request(s, v);
        if (v == r)
            return false;
    }
    return true;
}

// ---- the next step

// Pooling: the first row of the chunk whose hidden state is wanted; num_new: none is.
static int first_pooled_row(const struct request *r, const struct plan_item *it) {
    bool first = it->first == 0, last = it->first + it->num_new == r->num_prompt;
    switch (r->pooling) {
    case POOLING_LAST: return last ? it->num_new - 1 : it->num_new;
    case POOLING_CLS: return first ? 0 : it->num_new;
    default: return 0;
    }
}

// S2, S7: one request's share: n known tokens and its first num_drafts drafts. Decodes stand before prefills.
static void plan_add(struct plan *p, struct request *r, int n, int num_drafts) {
    struct plan_item it = {
        .req = r, .first = r->num_computed, .num_new = n + num_drafts, .num_drafts = num_drafts};
    it.first_logit = it.num_new;
    int end = it.first + n, from = max_int(it.first, r->num_prompt_logprobs);
    it.needs_token = end == r->num_tokens && r->num_tokens < r->max_tokens;
    if (it.needs_token)
        it.first_logit = n - 1;
    if (r->sampling.prompt_logprobs && from < min_int(end, r->num_prompt - 1)) {
        it.first_logit = from - it.first;
        it.wants_prompt_logprobs = true;
    }
    if (r->pooling != POOLING_NONE)
        it.first_logit = first_pooled_row(r, &it);
    int at = p->num_items++;
    if (it.num_new == 1 && it.needs_token) {
        at = p->num_decode++;
        memmove(&p->items[at + 1], &p->items[at], (size_t)(p->num_items - 1 - at) * sizeof *p->items);
    }
    p->items[at] = it;
    p->num_tokens += it.num_new;
    p->num_rows += r->pooling == POOLING_CLS ? it.first_logit < it.num_new : it.num_new - it.first_logit;
    r->num_in_flight++;
    r->last_plan = p->id;
    r->num_computed = end + num_drafts;
    r->num_drafts = 0;
    if (it.needs_token) {
        r->num_tokens += 1 + num_drafts;
        r->num_pending += 1 + num_drafts;
        r->tokens[r->num_tokens - 1] = -1;
    }
}

// S13, round robin: a micro-batch decodes those that waited for more than `waited` plans, and the first
// `rest` of those that waited so long.
enum { MAX_WAITED = 2 * PLAN_MAX_DEPTH };
struct round {
    int waited, rest;
    int num; // of both together
};

static int plans_waited(const struct plan *p, const struct request *r) {
    return p->id - r->last_plan < MAX_WAITED ? (int)(p->id - r->last_plan) : MAX_WAITED;
}

static struct round find_round(const struct scheduler *s, const struct plan *p, int quota) {
    int count[MAX_WAITED + 1] = {0};
    struct round t = {.waited = MAX_WAITED};
    for (const struct request *r = s->running.head; r; r = r->next)
        if (is_decode(s, r))
            count[plans_waited(p, r)]++;
    for (;; t.waited--) {
        t.rest = min_int(count[t.waited], quota - t.num);
        t.num += t.rest;
        if (t.num == quota || t.waited == 0)
            return t;
    }
}

static bool in_round(struct round *t, const struct plan *p, const struct request *r) {
    int n = plans_waited(p, r);
    return n > t->waited || (n == t->waited && t->rest-- > 0);
}

// S15: the room that a step has for drafts: only what no other request could use.
struct draft_room {
    int tokens; // that neither decodes nor prompts take
    int pages;  // that no known token of a running request needs
};

// prompts: tokens that prompts may take.
static struct draft_room find_draft_room(const struct scheduler *s, int num_decodes, int64_t prompts) {
    int samples = min_int(s->running.len + s->waiting.len, s->config.max_running);
    int64_t tokens = s->config.max_step_tokens - num_decodes - prompts;
    struct draft_room room = {.pages = kv_available(s->kv)};
    room.tokens = (int)min_int64(tokens, plan_max_samples(s->config.max_running) - samples);
    for (const struct request *r = s->running.head; r; r = r->next)
        room.pages -= outstanding_blocks(s, r);
    return room;
}

// S14: how many drafts may follow when so many tokens are computed, so that the step ends where a snapshot is due.
static int count_to_snapshot(const struct scheduler *s, const struct request *r, int computed) {
    int size = s->kv->config.block_size, boundary = (computed + size - 1) / size * size;
    bool due = kv_snapshot_due(s->kv, &r->seq, boundary, last_boundary(s, r));
    return due ? boundary - computed : MAX_DRAFTS;
}

// How many of its drafts a request takes along behind its last n known tokens. A checkpoint precedes them, as they may be
// wrong.
static int take_drafts(const struct scheduler *s, struct request *r, int n, struct draft_room *room) {
    int num = min_int(r->num_drafts, room->tokens), before = kv_available(s->kv), pages = 0;
    num = min_int(num, count_to_snapshot(s, r, r->num_computed + n));
    if (num <= 0 || (s->kv->has_state && room->pages < s->kv->config.num_groups) ||
        !kv_checkpoint(s->kv, &r->seq, r->num_computed))
        return 0;
    room->pages -= before - kv_available(s->kv);
    for (; num > 0; num--) {
        pages = kv_missing(s->kv, &r->seq, r->num_computed + n + num) - outstanding_blocks(s, r);
        if (pages <= 0 || pages <= room->pages)
            break;
    }
    room->tokens -= num;
    room->pages -= num > 0 ? max_int(pages, 0) : 0;
    return num;
}

// S2, S3, S13, S15: gives the running requests their share, in order. all: each that can decode does. Returns
// the prefill budget that is left, -1 when blocks were short: then nothing new starts (S8).
static int plan_running(struct scheduler *s, struct plan *p, int max_chunk, bool all) {
    int decoding = 0, drafts = 0, depth = s->config.depth;
    bool whole = false;
    int64_t backlog = s->waiting_tokens;
    for (const struct request *r = s->running.head; r; r = r->next) {
        bool decodes = is_decoding(s, r);
        decoding += decodes;
        drafts += r->num_drafts;
        whole |= r->seq.num_spans > 0 && has_whole_ahead(r);
        backlog += decodes ? 0 : num_todo(s, r);
    }
    p->num_decoding = decoding;
    bool micro_batches = depth > 1 && !s->config.async;
    struct round round = find_round(s, p, micro_batches && !all ? (decoding + depth - 1) / depth : decoding);
    int budget = s->config.max_step_tokens - round.num;
    if (decoding > 0)
        budget = min_int(budget, max_chunk);
    if (micro_batches && !s->config.whole) {
        int64_t part = (backlog + PARTS * depth - 1) / (PARTS * depth);
        budget = min_int(budget, part < MIN_PART ? MIN_PART : (int)min_int64(part, INT32_MAX));
    }

    int left = s->config.max_step_tokens - round.num; // for prompts at most
    struct draft_room room = {0};
    if (drafts > 0 && !whole)
        room = find_draft_room(s, round.num, min_int64(budget, backlog));
    uint64_t preemptions = s->stats.preemptions;
    struct request *deferred_victim = NULL;
    bool after = false, is_short = false;
    for (struct request *r = s->running.head, *prev = NULL; r; r = prev ? prev->next : s->running.head) {
        bool decode = is_decode(s, r);
        int n = decode ? in_round(&round, p, r) : find_chunk(s, r, budget, left);
        after |= r == deferred_victim;
        if (n == 0 || (after && !is_fully_reserved(r))) {
            prev = r;
            continue;
        }
        bool last = decode || (is_again(r) && n == num_todo(s, r));
        int num_drafts = last ? take_drafts(s, r, n, &room) : 0;
        if (make_room(s, r, n + num_drafts, &deferred_victim)) {
            budget = decode ? budget : max_int(budget - n, 0);
            left -= decode ? 0 : n;
            plan_add(p, r, n, num_drafts);
        } else {
            is_short = true;
        }
        if (r->state == REQUEST_RUNNING) // else it was preempted, as were those after it
            prev = r;
    }
    return is_short || s->stats.preemptions != preemptions ? -1 : budget;
}

static void start_request(struct scheduler *s, struct request *r) {
    sched_leave_waiting(s, r);
    r->state = REQUEST_RUNNING;
    r->num_resolved = r->num_computed;
    if (r->num_lost > r->num_computed)
        s->stats.lost += (uint64_t)(r->num_lost - r->num_computed);
    r->num_lost = 0;
    if (r->num_cached < 0) {
        r->num_cached = r->num_computed;
        if (s->kv->config.share && !request_needs_all_rows(r)) {
            s->stats.prefix_queries += (uint64_t)r->num_prompt;
            s->stats.prefix_hits += (uint64_t)r->num_cached;
        }
    }
    if (!r->has_next_hash)
        sched_update_next_hash(s, r);
    sched_list_insert(s, &s->running, r);
}

// S8: starts waiting requests in order, until one does not fit.
static void plan_waiting(struct scheduler *s, struct plan *p, int budget) {
    int deferred = 0, outstanding = 0;
    for (const struct request *r = s->waiting.len > 0 ? s->running.head : NULL; r; r = r->next)
        outstanding += outstanding_blocks(s, r);
    for (struct request *r = s->waiting.head, *next; r; r = next) {
        next = r->next;
        if (s->running.len == s->config.max_running || budget <= 0 || deferred == MAX_DEFERRED ||
            (s->config.whole && r->num_tokens > budget))
            break;
        if (r->late) // S16
            continue;
        // No match can spare it the block of its last token: ask before the prompt is hashed.
        if (outstanding + kv_missing_after(s->kv, r->num_tokens - 1, start_need(r)) > kv_available(s->kv))
            break;
        if (!match_prefix(s, r)) {
            s->stats.deferred++;
            s->stats.waiting_deferred = ++deferred;
            continue;
        }
        int n = find_chunk(s, r, budget, s->config.max_step_tokens - p->num_tokens);
        if (n == 0 || outstanding + kv_missing(s->kv, &r->seq, start_need(r)) > kv_available(s->kv) ||
            (is_fully_reserved(r) && !kv_reserve(s->kv, &r->seq, sched_compute_end(r)))) {
            kv_unmatch(s->kv, &r->seq);
            r->num_computed = 0;
            break;
        }
        CHECK(kv_grow(s->kv, &r->seq, r->num_computed + n));
        start_request(s, r);
        outstanding += outstanding_blocks(s, r);
        budget = max_int(budget - n, 0);
        plan_add(p, r, n, 0);
    }
}

// S14: the copies of recurrent state that the step needs, and snapshots in pages that nobody has taken. Each running
// request is left one page to grow by, so that a snapshot hardly ever preempts a request.
static void plan_moves(struct scheduler *s, struct plan *p) {
    for (int i = 0; s->kv->has_state && i < p->num_items; i++) {
        struct request *r = p->items[i].req;
        p->num_moves += kv_moves(s->kv, &r->seq, p->items[i].first, last_boundary(s, r), s->running.len,
                                 p->moves + p->num_moves);
    }
}

const struct plan *sched_step(struct scheduler *s, int max_chunk) {
    CHECK(max_chunk >= 1);
    CHECK(s->next_plan - s->next_resolve < (uint64_t)s->config.depth);
    struct plan *p = &s->plans[s->next_plan % PLAN_MAX_DEPTH];
    *p = (struct plan){.id = s->next_plan, .items = p->items, .moves = p->moves};
    s->stats.waiting_deferred = 0;
    int budget = plan_running(s, p, max_chunk, false);
    // Those of this round lack blocks, and no step in flight will bring any: the others go on.
    if (budget < 0 && p->num_items == 0 && s->next_plan == s->next_resolve)
        plan_running(s, p, max_chunk, true);
    if (budget >= 0)
        plan_waiting(s, p, budget);
    if (p->num_items == 0)
        return NULL;
    plan_moves(s, p);
    s->next_plan++;
    return p;
}

int sched_num_decoding(const struct scheduler *s) {
    int n = 0;
    for (const struct request *r = s->running.head; r; r = r->next)
        n += is_decoding(s, r) || is_again(r);
    return n;
}
