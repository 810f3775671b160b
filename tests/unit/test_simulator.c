// Random traffic through the scheduler and the KV cache, with a fake device instead of a model.
//
// The fake cache holds one integer per slot and group: a hash of every token up to that position, marked with the group.
// Before the fake model writes the next ones it reads, through the block table of each group, every cell that attention
// of that kind would read, and compares it with what a run alone would have written: all of the context in a full group;
// in a window group what the window shows, and nothing before; in a state group the live page, which must be the state
// after exactly the tokens before the step. Copies of pages copy cells. So a stale, shared, misplaced, missing or early
// reused block shows at once, and what a request gets is compared token by token with the sequence computed from its
// prompt alone. Scenarios have one to three groups.
//
// Some requests have drafts, right and wrong ones, that steps verify: the fake device writes cells for wrong tokens, too,
// and samples behind them, which must leave no trace.
//
// The device is sometimes late with the mask of a request that sees its tokens: then the row gives no token, and is
// computed again when the mask is there. Waiting requests fetch pages from a store, all, some or none of which come.
//
// QUIRE_SIM_REQUESTS: how many requests in all. QUIRE_SIM_SEED: only the scenario of this seed, as printed by
// a failure.
//
// Over 600 lines, because traffic, device and checks look at one another's state throughout.
#include "harness.h"

#include "scheduler_state.h"
#include "simulated_store.h"
#include "simulator_seen.h"

#include <inttypes.h>
#include <signal.h>
#include <unistd.h>

enum { MAX_LIVE = 160, MAX_RUNNING = 12, MAX_LEN = 400, MAX_BLOCKS = 320 };
enum { MAX_SIM_GROUPS = 3 };

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || __has_feature(address_sanitizer) ||     \
    __has_feature(thread_sanitizer)
enum { DEFAULT_REQUESTS = 100000 };
#else
enum { DEFAULT_REQUESTS = 500000 };
#endif

static uint64_t scenario_seed; // of the scenario that runs, for the message of a failure

#define sim_check(c)                                                                                         \
    do {                                                                                                     \
        if (!(c)) {                                                                                          \
            printf("QUIRE_SIM_SEED=%" PRIu64 ": not true: %s\n", scenario_seed, #c);                         \
            fflush(stdout);                                                                                  \
            fail_msg("%s (QUIRE_SIM_SEED=%" PRIu64 ")", #c, scenario_seed);                                  \
        }                                                                                                    \
    } while (0)

// A failed CHECK aborts: still say where.
static void on_abort(int signal_number) {
    char line[64];
    int n = snprintf(line, sizeof line, "QUIRE_SIM_SEED=%" PRIu64 "\n", scenario_seed);
    if (write(2, line, (size_t)n) == n)
        signal(signal_number, SIG_DFL);
}

// The simulator's state of a request. The request's id is the index of its client.
struct client {
    struct request *r;
    token_id expect[MAX_LEN]; // what a run alone gives: prompt, then output
    uint64_t cells[MAX_LEN];  // and writes
    int num_expect;
    enum finish_reason expect_finish;
    uint64_t salt;
    token_id sampled; // by the device, last
    int num_got, num_prompt_logprobs;
    int num_preemptions;
    int num_passed; // plans since it could decode and did not
    bool started, cancelled, failed;
    bool has_mask; // of its next token: it was late
    struct simulated_fetch fetch;
    int updates_left; // a cancelled request is gone within so many updates
};

// A plan as the device got it: tables and tokens as they were then.
struct job {
    const struct plan *plan;
    block_id blocks[MAX_RUNNING][MAX_SIM_GROUPS][MAX_LEN];
    block_id live[MAX_RUNNING][MAX_SIM_GROUPS];
    struct kv_move moves[MAX_RUNNING * MAX_SIM_GROUPS * KV_SEQ_MOVES];
    token_id tokens[MAX_RUNNING][MAX_LEN];
    int num_blocks[MAX_RUNNING];
    token_id sampled[MAX_RUNNING][1 + MAX_DRAFTS];
    bool executed;
};

struct sim {
    struct kv_cache kv;
    struct scheduler *s;
    struct sched_config config;
    int depth, max_chunk, max_prompt, max_output, max_span;
    unsigned spans_every; // prompts; 0: none has spans
    bool late;            // the device runs a plan when it is waited for
    // Requests arrive with preemptions on their account, or the last few would hardly ever be seen.
    bool tired;
    unsigned fail_every;              // items, 0: never
    bool stores;                      // pages outlive their places in the cache
    unsigned late_every, ready_every; // items whose masks are late, 0: none; iterations until one is there
    struct client *clients[MAX_LIVE];
    int free_ids[MAX_LIVE], num_free_ids;
    int live[MAX_LIVE], live_at[MAX_LIVE], num_live;
    uint64_t cells[MAX_BLOCKS * 16];
    struct job jobs[PLAN_MAX_DEPTH];
    int first_job, num_jobs; // unresolved plans; job_at(m, 0) is the oldest
    uint64_t family_seed;
    int64_t max_steps, num_steps;
};

static struct sim sim; // large; one at a time
static struct simulated_store store;

// ---- requests

// The longest hit that the prompt of a request can give, in tokens.
static int last_boundary(const struct sim *m, const struct request *r) {
    return (r->num_prompt - 1) / m->kv.config.block_size * m->kv.config.block_size;
}

static struct job *job_at(struct sim *m, int i) { return &m->jobs[(m->first_job + i) % PLAN_MAX_DEPTH]; }

static struct client *client_of(struct sim *m, const struct request *r) { return m->clients[r->id]; }

// The sequence of a run alone, and what would come after its stop token: that far asynchronous steps and drafts may get.
static void run_alone(struct client *c) {
    const struct request *r = c->r;
    uint64_t cell = cell_root(c->salt);
    c->num_expect = r->num_prompt;
    memcpy(c->expect, r->tokens, (size_t)r->num_prompt * sizeof *r->tokens);
    for (int p = 0; p < r->num_prompt; p++)
        c->cells[p] = cell = cell_next(cell, content(r, p, c->expect[p]));
    c->expect_finish = FINISH_LENGTH;
    for (int p = r->num_prompt; p < r->max_tokens; p++) {
        token_id t = sample(cell, r->sampling.seed);
        c->expect[p] = t;
        c->cells[p] = cell = cell_next(cell, (uint64_t)t);
        c->num_expect += c->expect_finish == FINISH_LENGTH;
        if (p >= r->min_tokens && request_is_stop(r, t))
            c->expect_finish = FINISH_STOP;
    }
}

static void add_request(struct sim *m, const struct prompt_shape *shape) {
    token_id prompt[MAX_LEN];
    token_id stop[2] = {(token_id)rnd(VOCAB), (token_id)rnd(VOCAB)};
    unsigned char salt = (unsigned char)shape->salt;
    int n = shape->shared + shape->tail;
    if (m->num_free_ids == 0)
        return;
    fill_prompt(shape, m->family_seed, prompt);
    int id = m->free_ids[m->num_free_ids - 1], longest = 0;
    struct kv_span spans[MAX_LEN];
    int num_spans = shape->spans
                        ? make_spans(m->family_seed + (uint64_t)shape->family, n, m->max_span, prompt, spans)
                        : 0;
    for (int i = 0; i < num_spans; i++)
        longest = spans[i].whole && spans[i].len > longest ? spans[i].len : longest;
    seen.spans += (uint64_t)num_spans;
    seen.whole += longest > 0;
    struct request_params p = {
        .spans = spans,
        .num_spans = num_spans,
        .id = (uint64_t)id,
        .prompt = prompt,
        .num_prompt = n,
        .max_output = one_in(12) ? 0 : between(1, m->max_output),
        .min_output = one_in(4) ? between(0, 8) : 0,
        .sampling = {.seed = rnd(4),
                     .repetition_penalty = one_in(10) ? 1.5f : 1,
                     .prompt_logprobs = one_in(10)},
        .stop = stop,
        .num_stop = one_in(3) ? 2 : 0,
        .priority = between(0, 2),
        .salt = &salt,
        .num_salt = shape->salt != 0,
        .retain = one_in(5),
    };
    struct client *c = m->clients[id];
    if (one_in(3)) // nobody calls it: propose() below speaks for it
        sim_check((p.drafter = calloc(1, sizeof *p.drafter)) != NULL);
    struct request *r = request_new(&p, m->kv.config.block_size);
    sim_check(r);
    r->num_preemptions = m->tired ? between(4, SCHED_MAX_PREEMPTIONS) : 0;
    bool fits = sched_admissible(&m->config, &m->kv.config, n, p.max_output, NULL) == STATUS_OK;
    bool cut = num_spans > 0 && spans[num_spans - 1].whole && sched_compute_end(r) < n &&
               spans[num_spans - 1].first + spans[num_spans - 1].len == n;
    if (cut || longest > m->config.max_step_tokens - m->config.max_running + 1) {
        seen.whole_refused += fits;
        fits = false;
    }
    int64_t queued = m->s->waiting_tokens;
    int len = m->s->waiting.len;
    enum status status = sched_add(m->s, r);
    bool full = len >= m->config.max_waiting || (len > 0 && queued + n > m->config.max_waiting_tokens);
    sim_check(status == (!fits ? STATUS_INVALID : full ? STATUS_LIMIT : STATUS_OK));
    if (status != STATUS_OK) {
        seen.refused++;
        request_free(r);
        return;
    }
    m->num_free_ids--;
    *c = (struct client){.r = r, .salt = (uint64_t)shape->salt, .num_preemptions = r->num_preemptions};
    run_alone(c);
    m->live_at[id] = m->num_live;
    m->live[m->num_live++] = id;
    m->max_steps += 40 + 20 * (int64_t)r->max_tokens;
    seen.requests++;
    seen.empty += p.max_output == 0;
    seen.longer_than_pool += r->max_tokens > m->kv.config.num_blocks * m->kv.config.block_size;
}

// The request has left the scheduler, for `why`.
static void end_client(struct sim *m, struct client *c, enum finish_reason why) {
    struct request *r = c->r;
    int id = (int)r->id;
    sim_check(r->state == REQUEST_FINISHED && r->finish == why && r->num_in_flight == 0 && r->seq.len == 0 &&
              r->seq.reserved == 0);
    sim_check(c->num_got == r->num_tokens - r->num_pending - r->num_prompt);
    sim_check(r->num_preemptions <= SCHED_MAX_PREEMPTIONS);
    if (why == FINISH_STOP || why == FINISH_LENGTH) {
        sim_check(why == c->expect_finish && c->num_got == c->num_expect - r->num_prompt);
        sim_check(r->num_cached >= 0 && r->num_cached < r->num_prompt);
        sim_check(!r->sampling.prompt_logprobs ||
                  (c->num_prompt_logprobs == r->num_prompt - 1 && r->num_cached == 0));
    }
    sim_check(why != FINISH_CANCELLED || c->cancelled);
    sim_check(why != FINISH_ERROR || c->failed);
    seen.finish_stop += why == FINISH_STOP;
    seen.finish_length += why == FINISH_LENGTH;
    request_free(r);
    c->r = NULL;
    int at = m->live_at[id], last = m->live[--m->num_live];
    m->live[at] = last;
    m->live_at[last] = at;
    m->free_ids[m->num_free_ids++] = id;
}

static void cancel_one(struct sim *m) {
    struct client *c = m->clients[m->live[rnd((unsigned)m->num_live)]];
    struct request *r = c->r;
    bool was_finished = r->state == REQUEST_FINISHED;
    int in_flight = r->num_in_flight;
    seen.cancel_new += r->state == REQUEST_WAITING && r->num_preemptions == 0;
    seen.cancel_preempted += r->state == REQUEST_WAITING && r->num_preemptions > 0;
    seen.cancel_running += r->state == REQUEST_RUNNING && in_flight == 0;
    seen.cancel_in_flight += r->state == REQUEST_RUNNING && in_flight > 0;
    seen.cancel_again += was_finished;
    if (!was_finished) {
        c->cancelled = true;
        c->updates_left = in_flight > 0 ? m->num_jobs : 0;
    }
    bool left = sched_remove(m->s, r, FINISH_CANCELLED);
    sim_check(left == (in_flight == 0));
    if (left)
        end_client(m, c, FINISH_CANCELLED);
}

// ---- what must always hold

static bool comes_before(const struct sim *m, const struct request *a, const struct request *b) {
    if (m->config.policy == SCHED_PRIORITY && a->priority != b->priority)
        return a->priority < b->priority;
    return a->arrival < b->arrival;
}

// The first position whose cell a step from `first` on reads of the group; of a state group none.
static int first_read(const struct sim *m, int g, int first) {
    const struct kv_group_spec *spec = &m->kv.config.groups[g];
    return spec->kind == KV_FULL    ? 0
           : spec->kind == KV_STATE ? INT32_MAX / 2
                                    : kv_first_kept(first, spec->window, spec->chunked);
}

// Checks the pages of a running request: no more than it needs, in each group, and all of it where it is fully
// reserved.
static void check_pages(struct sim *m, const struct request *r) {
    const struct kv_config *k = &m->kv.config;
    sim_check(r->num_preemptions < SCHED_MAX_PREEMPTIONS ||
              kv_missing(&m->kv, &r->seq, sched_compute_end(r)) == 0);
    sim_check(r->seq.num_hashed == (k->share ? r->num_resolved / k->block_size : 0));
    sim_check(kv_blocks_for(&m->kv, r->num_computed) <= r->seq.len);
    for (int g = 0; g < k->num_groups; g++) {
        const struct block_table *t = &r->seq.tables[g];
        int num_pages = 0, copied = 0;
        for (int i = 0; i < r->seq.len; i++)
            num_pages += t->ids[i] != KV_NONE;
        switch (k->groups[g].kind) {
        case KV_FULL: sim_check(num_pages == r->seq.len); break;
        case KV_WINDOW: {
            int from =
                kv_first_kept(r->num_resolved, k->groups[g].window, k->groups[g].chunked) / k->block_size;
            sim_check(t->first == from && num_pages == r->seq.len - from);
            sim_check((num_pages - 2) * k->block_size < k->groups[g].window + KV_TILE + k->max_ahead);
            seen.given_back += from > 0;
            break;
        }
        case KV_STATE: // snapshots only while they are copied, or behind a rollback until a step has ended there
            sim_check(t->live != KV_NONE);
            for (int j = 0; j < m->num_jobs; j++)
                copied += job_at(m, j)->plan->num_moves;
            sim_check(num_pages <= copied + (t->saved != KV_NONE));
            seen.rolled_back += r->seq.rolls_back;
            break;
        }
    }
}

static void check_state(struct sim *m) {
    const struct kv_seq *seqs[MAX_LIVE];
    int num_seqs = 0, num_running = 0, num_late = 0;
    int64_t waiting_tokens = 0;
    for (int i = 0; i < m->num_live; i++) {
        const struct request *r = m->clients[m->live[i]]->r;
        num_late += r->late;
        if (r->state == REQUEST_WAITING) {
            sim_check(r->seq.len == 0 && r->seq.reserved == 0 && r->num_in_flight == 0 &&
                      r->num_pending == 0 && r->num_computed == 0);
            waiting_tokens += r->num_tokens;
            continue;
        }
        seqs[num_seqs++] = &r->seq;
        if (r->state != REQUEST_RUNNING)
            continue;
        num_running++;
        sim_check(r->num_resolved <= r->num_computed && r->num_computed <= r->num_tokens);
        sim_check(r->num_in_flight > 0 || (r->num_pending == 0 && r->num_resolved == r->num_computed));
        check_pages(m, r);
    }
    sim_check(waiting_tokens == m->s->waiting_tokens && num_late == sched_num_late(m->s));
    sim_check(num_running == m->s->running.len && num_running <= m->config.max_running);
    int broken_rule = kv_check(&m->kv, seqs, num_seqs);
    sim_check(broken_rule == 0);
    // Tokens and tables that the device reads stay where they were.
    for (int j = 0; j < m->num_jobs; j++) {
        const struct job *job = job_at(m, j);
        for (int i = 0; i < job->plan->num_items; i++) {
            const struct plan_item *it = &job->plan->items[i];
            const struct kv_seq *seq = &it->req->seq;
            sim_check(seq->len >= job->num_blocks[i]);
            for (int g = 0; g < m->kv.config.num_groups; g++) {
                const struct block_table *t = &seq->tables[g];
                int from = first_read(m, g, it->first) / m->kv.config.block_size;
                sim_check(t->live == job->live[i][g]);
                sim_check(from >= job->num_blocks[i] ||
                          memcmp(t->ids + from, job->blocks[i][g] + from,
                                 (size_t)(job->num_blocks[i] - from) * sizeof *t->ids) == 0);
            }
        }
    }
}

// Whether x may be passed over: a running request before it is to publish the block that x needs next, which
// is block `next` of x where that is known, -1 where it is not.
static bool may_be_deferred(const struct sim *m, const struct request *x, int next) {
    int bs = m->kv.config.block_size;
    if (!m->kv.config.share || x->sampling.prompt_logprobs)
        return false;
    for (const struct request *c = m->s->running.head; c; c = c->next) {
        int end = (c->seq.num_hashed + 1) * bs;
        if (c->late) // nobody waits for those
            continue;
        if (m->kv.has_state) { // of states only the last of the prompt is sure to come
            end = last_boundary(m, c);
            if (c->num_resolved > end || end == 0 || end != last_boundary(m, x) || next * bs >= end)
                continue;
        }
        bool same_salt = c->num_salt == x->num_salt &&
                         (c->num_salt == 0 || memcmp(c->salt, x->salt, (size_t)c->num_salt) == 0);
        if ((next < 0 || m->kv.has_state || c->seq.num_hashed == next) && comes_before(m, c, x) &&
            same_salt && end < x->num_tokens - x->num_pending && end <= c->num_tokens - c->num_pending &&
            same_prefix(c, x, end))
            return true;
    }
    return false;
}

struct before_step {
    struct request *running[MAX_RUNNING];
    int in_flight[MAX_RUNNING], drafts[MAX_RUNNING];
    bool decodes[MAX_RUNNING], again[MAX_RUNNING];
    int len, num_decodes; // that can decode now
    int decoding;         // and those that will when their steps have ended
    int quota;            // S13: how many of them a plan takes at most
    int64_t backlog;      // prompt tokens that are still to be computed
    bool roomy;           // there are blocks for all that is known
    bool whole_ahead;     // a running request is still to compute a whole span
    uint64_t preemptions;
};

static void note_before(const struct sim *m, struct before_step *b) {
    int need = 0;
    int decoding = 0;
    b->len = b->num_decodes = 0;
    b->whole_ahead = false;
    b->backlog = m->s->waiting_tokens;
    b->preemptions = m->s->stats.preemptions;
    for (struct request *r = m->s->running.head; r; r = r->next) {
        int i = b->len++;
        int known = r->num_tokens < r->max_tokens ? r->num_tokens : r->max_tokens;
        b->running[i] = r;
        b->in_flight[i] = r->num_in_flight;
        for (int s = 0; s < r->seq.num_spans; s++)
            b->whole_ahead |=
                r->seq.spans[s].whole && r->seq.spans[s].first + r->seq.spans[s].len > r->num_computed;
        b->drafts[i] = r->num_drafts;
        b->again[i] = r->seq.rolls_back;
        b->decodes[i] = !r->late && r->num_tokens - r->num_computed == 1 && r->num_tokens < r->max_tokens &&
                        !((r->counts.list || r->drafter || !m->config.async) && r->num_pending);
        b->num_decodes += b->decodes[i];
        decoding += b->decodes[i] || r->num_pending > 0;
        int end = sched_compute_end(r) < r->num_tokens ? sched_compute_end(r) : r->num_tokens;
        b->backlog += b->decodes[i] || r->num_pending > 0 || r->late ? 0 : end - r->num_computed;
        int blocks = kv_blocks_for(&m->kv, known) - r->seq.len, pages = -r->seq.reserved;
        for (int g = 0; g < m->kv.config.num_groups; g++)
            pages += m->kv.config.groups[g].kind != KV_STATE && blocks > 0 ? blocks : 0;
        need += pages > 0 ? pages : 0;
    }
    b->decoding = decoding;
    b->roomy = need <= kv_available(&m->kv);
    b->quota = m->config.async ? decoding : (decoding + m->depth - 1) / m->depth;
}

// S15: drafts take nothing that prompts may have.
static void check_drafts(const struct sim *m, const struct before_step *b, int num_decodes, int drafts,
                         int samples) {
    int64_t prompts = m->config.max_step_tokens - num_decodes;
    if (b->decoding > 0 && prompts > m->max_chunk)
        prompts = m->max_chunk;
    if (m->depth > 1 && !m->config.async) {
        int64_t share = (b->backlog + 4 * m->depth - 1) / (4 * m->depth);
        share = share > 64 ? share : 64;
        prompts = prompts < share ? prompts : share;
    }
    prompts = prompts < b->backlog ? prompts : b->backlog;
    sim_check(!b->roomy || drafts == 0 || drafts <= m->config.max_step_tokens - num_decodes - prompts);
    sim_check(samples <= plan_max_samples(m->config.max_running));
}

static void check_plan(struct sim *m, const struct plan *p, const struct before_step *b) {
    bool whole_ahead = b->whole_ahead, whole_drafts = false;
    int tokens = 0, rows = 0, prefill = 0, num_old_decodes = 0, drafts = 0, samples = 0;
    bool old_decode = false, preempted = m->s->stats.preemptions != b->preemptions;
    bool in_plan[MAX_LIVE] = {false};
    sim_check(p->num_items >= 1 && p->num_items <= m->config.max_running && p->num_decode <= p->num_items);
    for (int i = 0; i < p->num_items; i++) {
        const struct plan_item *it = &p->items[i];
        struct request *r = it->req;
        struct client *c = client_of(m, r);
        bool old = false;
        int end = it->first + it->num_new, known = it->num_new - it->num_drafts;
        sim_check(r->state == REQUEST_RUNNING && !in_plan[r->id] && !r->late);
        in_plan[r->id] = true;
        sim_check(it->num_new >= 1 && it->first_logit >= 0 && it->first_logit <= it->num_new);
        sim_check(end == r->num_computed && end <= r->num_tokens - it->needs_token);
        sim_check(it->needs_token ? r->tokens[end] == -1 && it->first_logit < it->num_new : true);
        sim_check((i < p->num_decode) == (it->num_new == 1 && it->needs_token));
        sim_check(!(r->counts.list || r->drafter || !m->config.async) || r->tokens[it->first] >= 0);
        sim_check(it->num_drafts == 0 ||
                  (it->needs_token && r->num_in_flight == 1 && r->num_pending == 1 + it->num_drafts &&
                   end < r->max_tokens && it->num_drafts <= MAX_DRAFTS));
        drafts += it->num_drafts;
        samples += it->needs_token ? 1 + it->num_drafts : 0;
        if (!it->wants_prompt_logprobs)
            sim_check(it->first_logit == it->num_new - (it->needs_token ? 1 + it->num_drafts : 0));
        else
            sim_check(r->sampling.prompt_logprobs && end - it->needs_token < r->num_prompt);
        for (int j = 0; j < b->len; j++)
            if (b->running[j] == r) {
                old = true;
                old_decode |= b->decodes[j];
                num_old_decodes += b->decodes[j];
                sim_check(it->num_drafts <= b->drafts[j]);
                sim_check(it->num_drafts == 0 || known == 1 || b->again[j]);
                seen.again += it->num_drafts > 0 && known > 1;
                seen.trimmed += b->decodes[j] && it->num_drafts < b->drafts[j];
            }
        sim_check(old || !preempted); // nothing starts in a step that preempts
        if (!old) {
            for (const struct request *x = m->s->waiting.head; x; x = x->next)
                if (comes_before(m, x, r)) {
                    sim_check(x->late || may_be_deferred(m, x, -1));
                    seen.out_of_order += !x->late;
                    seen.overtook_late += x->late;
                }
            // It would compute what is on its way.
            sim_check(!may_be_deferred(m, r, it->first / m->kv.config.block_size));
            if (r->num_preemptions == SCHED_MAX_PREEMPTIONS) {
                sim_check(kv_missing(&m->kv, &r->seq, sched_compute_end(r)) == 0);
                seen.reserved++;
            }
            c->started = true;
            for (int s = 0; s < r->seq.num_spans; s++) {
                const struct kv_span *span = &r->seq.spans[s];
                seen.span_hits += span->first < it->first;
                seen.grid_hits += span->first < it->first && span->grid[0] > 0;
                seen.inside_whole +=
                    span->whole && span->first < it->first && span->first + span->len > it->first;
            }
            for (int g = 0; g < m->kv.config.num_groups; g++)
                seen.window_hits += m->kv.config.groups[g].kind == KV_WINDOW && r->seq.tables[g].first > 0;
        }
        int beyond = 0;
        for (int k = 0; k < r->seq.num_spans; k++) { // S17
            sim_check(!cuts_whole_span(it, &r->seq.spans[k]));
            beyond += set_by_whole_span(it, &r->seq.spans[k]);
        }
        seen.beyond_budget += beyond > 0 && it->num_new > m->max_chunk;
        if (m->kv.has_state && m->kv.config.share && beyond == 0) { // S14
            sim_check(it->first >= last_boundary(m, r) || end <= last_boundary(m, r));
            sim_check(end % m->kv.config.block_size == 0 || end == r->num_tokens - it->needs_token ||
                      end / m->kv.config.block_size == it->first / m->kv.config.block_size);
        }
        tokens += it->num_new;
        rows += it->num_new - it->first_logit;
        prefill += (known == 1 && it->needs_token) || beyond > 0 ? 0 : known;
        whole_drafts |= it->num_drafts > 0 && whole_ahead;
    }
    sim_check(!whole_drafts);
    sim_check(tokens == p->num_tokens && rows == p->num_rows && tokens <= m->config.max_step_tokens);
    sim_check(!old_decode || prefill <= m->max_chunk);
    check_drafts(m, b, num_old_decodes, drafts, samples);
    // Decodes get their token, in this plan or in turn: as many as the plan takes, and each before long.
    int taken = b->num_decodes < b->quota ? b->num_decodes : b->quota;
    sim_check(!b->roomy || num_old_decodes == taken);
    sim_check(num_old_decodes <= taken || (!b->roomy && m->num_jobs == 0));
    bool micro_batches = m->depth > 1 && !m->config.async;
    for (int j = 0; j < b->len; j++) {
        struct client *c = client_of(m, b->running[j]);
        c->num_passed = b->decodes[j] && b->roomy && !in_plan[b->running[j]->id] ? c->num_passed + 1 : 0;
        sim_check(c->num_passed <= (micro_batches ? m->config.max_running : 0));
        seen.passed_over += c->num_passed > 0;
        // S9: it has all the pages that it will ever take, so it is in every plan.
        sim_check(in_plan[b->running[j]->id] || !b->decodes[j] || micro_batches ||
                  b->running[j]->state == REQUEST_WAITING ||
                  b->running[j]->num_preemptions < SCHED_MAX_PREEMPTIONS);
    }
    if (micro_batches && !preempted && b->roomy) {
        int64_t share = (b->backlog + 4 * m->depth - 1) / (4 * m->depth);
        sim_check(prefill <= (share > 64 ? share : 64));
        seen.shared += prefill > 64;
    }
}

static void check_preempted(struct sim *m, const struct before_step *b) {
    if (b->len > 0)
        sim_check(b->running[0]->state == REQUEST_RUNNING); // never the oldest
    if (m->s->stats.preemptions == b->preemptions)
        return;
    sim_check(!b->roomy);
    for (int j = 0; j < b->len; j++) {
        struct request *r = b->running[j];
        struct client *c = client_of(m, r);
        sim_check(r->num_preemptions <= SCHED_MAX_PREEMPTIONS);
        if (r->num_preemptions == c->num_preemptions)
            continue;
        sim_check(r->num_preemptions == c->num_preemptions + 1 && r->state == REQUEST_WAITING &&
                  b->in_flight[j] == 0);
        c->num_preemptions++;
        for (int k = j + 1; k < b->len; k++) // the last in order goes first
            sim_check(b->running[k]->state == REQUEST_WAITING ||
                      b->running[k]->num_preemptions == SCHED_MAX_PREEMPTIONS);
        if (m->config.policy == SCHED_FCFS) // and waits in front of all that never ran, but those it overtook
            for (const struct request *x = r->prev; x; x = x->prev)
                sim_check(comes_before(m, x, r));
    }
}

// ---- the fake device

static void submit(struct sim *m, const struct plan *plan) {
    struct job *job = job_at(m, m->num_jobs++);
    job->plan = plan;
    job->executed = false;
    if (plan->num_moves > 0)
        memcpy(job->moves, plan->moves, (size_t)plan->num_moves * sizeof *plan->moves);
    for (int i = 0; i < plan->num_items; i++) {
        const struct plan_item *it = &plan->items[i];
        job->num_blocks[i] = kv_blocks_for(&m->kv, it->first + it->num_new);
        sim_check(job->num_blocks[i] <= it->req->seq.len);
        for (int g = 0; g < m->kv.config.num_groups; g++) {
            const struct block_table *t = &it->req->seq.tables[g];
            memcpy(job->blocks[i][g], t->ids, (size_t)job->num_blocks[i] * sizeof(block_id));
            job->live[i][g] = t->live;
        }
        memcpy(job->tokens[i], it->req->tokens + it->first, (size_t)it->num_new * sizeof(token_id));
    }
}

static uint64_t *cell_at(struct sim *m, const block_id *blocks, int pos) {
    int bs = m->kv.config.block_size;
    sim_check(blocks[pos / bs] >= 0 && blocks[pos / bs] < m->kv.config.num_blocks);
    return &m->cells[blocks[pos / bs] * bs + pos % bs];
}

static uint64_t mark(uint64_t cell, int g) { return cell ^ (uint64_t)g * 0x9e3779b97f4a7c15u; }

// In any order: here forwards and backwards.
static void move_pages(struct sim *m, const struct job *job) {
    size_t bs = (size_t)m->kv.config.block_size;
    for (int i = 0; i < job->plan->num_moves; i++) {
        const struct kv_move *v = &job->moves[job->plan->id % 2 ? i : job->plan->num_moves - 1 - i];
        sim_check(v->from >= 0 && v->to >= 0 && v->from != v->to && !m->kv.blocks[v->to].published);
        memcpy(m->cells + (size_t)v->to * bs, m->cells + (size_t)v->from * bs, bs * sizeof *m->cells);
        seen.snapshots += !m->kv.blocks[v->from].published;
        seen.restored += m->kv.blocks[v->from].published;
    }
}

// Checks that the step reads, of the item's cache, the values that a run alone would have written.
static void check_cells(struct sim *m, const struct job *job, int i, const struct client *c) {
    int first = job->plan->items[i].first;
    for (int g = 0; first > 0 && g < m->kv.config.num_groups; g++) {
        if (m->kv.config.groups[g].kind == KV_STATE)
            sim_check(*cell_at(m, &job->live[i][g], 0) == mark(c->cells[first - 1], g));
        for (int p = first_read(m, g, first); p < first; p++)
            sim_check(*cell_at(m, job->blocks[i][g], p) == mark(c->cells[p], g));
    }
}

static void write_cell(struct sim *m, const struct job *job, int i, int p, uint64_t cell) {
    for (int g = 0; g < m->kv.config.num_groups; g++) {
        bool state = m->kv.config.groups[g].kind == KV_STATE;
        const block_id *blocks = state ? &job->live[i][g] : job->blocks[i][g];
        int at = state ? 0 : p;
        *cell_at(m, blocks, at) = mark(cell, g);
        sim_check(!m->kv.blocks[blocks[at / m->kv.config.block_size]].published); // rule 2
    }
}

static void execute(struct sim *m, struct job *job) {
    move_pages(m, job);
    for (int i = 0; i < job->plan->num_items; i++) {
        const struct plan_item *it = &job->plan->items[i];
        struct client *c = client_of(m, it->req);
        check_cells(m, job, i, c);
        uint64_t cell = it->first > 0 ? c->cells[it->first - 1] : cell_root(c->salt);
        for (int j = 0; j < it->num_new; j++) {
            int p = it->first + j;
            token_id t = job->tokens[i][j] >= 0 ? job->tokens[i][j] : c->sampled;
            // So many drafts up to this row; < 0: it does not sample.
            int draft = j - (it->num_new - 1 - it->num_drafts);
            sim_check(draft > 0 || t == c->expect[p]);
            write_cell(m, job, i, p, cell = cell_next(cell, content(it->req, p, t)));
            if (it->needs_token && draft >= 0)
                job->sampled[i][draft] = c->sampled = sample(cell, it->req->sampling.seed);
        }
        for (int j = it->first_logit; it->wants_prompt_logprobs && j < it->num_new - it->needs_token; j++) {
            sim_check(it->first + j == c->num_prompt_logprobs); // each row once, in order
            c->num_prompt_logprobs++;
            seen.prompt_logprobs++;
        }
    }
    job->executed = true;
}

static void on_event(struct sim *m, const struct token_event *e, const struct plan *plan) {
    struct client *c = client_of(m, e->req);
    sim_check(e->item >= -1 && e->item < plan->num_items &&
              (e->item < 0 || plan->items[e->item].req == e->req));
    sim_check(e->token >= 0 || e->finish != FINISH_NONE);
    if (e->token >= 0) {
        sim_check(e->item >= 0 && !c->cancelled);
        sim_check(e->req->num_prompt + c->num_got < c->num_expect);
        sim_check(e->token == c->expect[e->req->num_prompt + c->num_got]);
        c->num_got++;
        seen.stopped_ahead += e->finish == FINISH_NONE && e->req->finish == FINISH_STOP;
        seen.stopped_inside += e->finish == FINISH_STOP && e->index < plan->items[e->item].num_drafts;
    }
    if (e->finish != FINISH_NONE)
        end_client(m, c, e->finish);
}

static void resolve(struct sim *m) {
    struct job *job = job_at(m, 0);
    const struct plan *plan = job->plan;
    int32_t start[MAX_RUNNING + 1] = {0};
    token_id tokens[MAX_RUNNING + 1 + MAX_DRAFTS];
    uint8_t failed[MAX_RUNNING] = {0};
    struct token_event events[2 * MAX_RUNNING + 1 + MAX_DRAFTS];
    int n = 0;
    if (!job->executed)
        execute(m, job);
    for (int i = 0; i < plan->num_items; i++) {
        const struct plan_item *it = &plan->items[i];
        struct client *c = client_of(m, it->req);
        bool heard = it->req->state == REQUEST_RUNNING;
        start[i] = n;
        if (m->fail_every > 0 && one_in(m->fail_every)) {
            failed[i] = 1;
            c->failed |= heard;
            seen.failed++;
        }
        if (!it->needs_token)
            continue;
        if (!failed[i] && m->late_every > 0 && !c->has_mask && request_sees_tokens(it->req) &&
            one_in(m->late_every)) {
            failed[i] = ITEM_LATE;
            tokens[n++] = (token_id)rnd(VOCAB); // whatever was sampled without a mask
            seen.late += heard;
            seen.late_drafts += heard && it->num_drafts > 0;
            seen.late_prompts += heard && it->num_new > 1 + it->num_drafts;
            seen.started_over += heard && m->kv.has_state && it->num_drafts == 0;
            continue;
        }
        c->has_mask = false;
        int num = 1, known = it->num_new - it->num_drafts;
        while (num <= it->num_drafts && job->sampled[i][num - 1] == job->tokens[i][known + num - 1])
            num++;
        memcpy(tokens + n, job->sampled[i], (size_t)num * sizeof *tokens);
        n += num;
        if (it->num_drafts == 0)
            continue;
        seen.drafts += (uint64_t)it->num_drafts;
        seen.accepted += (uint64_t)(num - 1);
        seen.none_right += num == 1;
        seen.all_right += num == 1 + it->num_drafts;
    }
    start[plan->num_items] = n;
    struct outcome out = {.start = start, .tokens = tokens, .failed = failed};
    int num_events = sched_update(m->s, plan->id, &out, events);
    sim_check(num_events <= n + plan->num_items && num_events <= sched_max_events(m->config.max_running));
    for (int i = 0; i < num_events; i++)
        on_event(m, &events[i], plan);
    m->first_job = (m->first_job + 1) % PLAN_MAX_DEPTH;
    m->num_jobs--;
    for (int i = 0; i < m->num_live; i++) {
        struct client *c = m->clients[m->live[i]];
        sim_check(!c->cancelled || --c->updates_left > 0); // blocks come back in time
    }
}

// Drafts for those that may have some: right up to a random place.
static void propose(struct sim *m) {
    for (int i = 0; i < m->num_live; i++) {
        struct client *c = m->clients[m->live[i]];
        struct request *r = c->r;
        token_id drafts[MAX_DRAFTS];
        int num = between(0, MAX_DRAFTS), right = between(0, MAX_DRAFTS);
        if (!r->drafter || !one_in(2))
            continue;
        for (int j = 0; j < num; j++) {
            int p = r->num_tokens + j;
            drafts[j] = p < r->max_tokens ? c->expect[p] : 0;
            drafts[j] = j < right ? drafts[j] : (drafts[j] + 1 + (int)rnd(VOCAB - 1)) % VOCAB;
        }
        int taken = request_draft(r, drafts, num), room = r->max_tokens - r->num_tokens - 1;
        bool may = r->state == REQUEST_RUNNING && r->num_in_flight == 0 && room > 0;
        sim_check(taken == (!may ? 0 : num < room ? num : room) && taken == r->num_drafts);
    }
}

// Waiting requests ask the store. Of those that fetch some get pages; some give up, as one does at least where `one`.
static bool fetch(struct sim *m, bool one) {
    for (struct request *r; m->stores && (r = sched_to_fetch(m->s));) {
        struct simulated_fetch *f = &client_of(m, r)->fetch;
        f->next = 0;
        f->num = kv_want(&m->kv, &r->seq, r->root, r->tokens, r->num_tokens - 1, simulated_has, &store,
                         f->wanted, between(1, STORE_WANTED), NULL);
        if (f->num > 0) {
            kv_touch(&m->kv, &r->seq, r->root, r->tokens, r->num_tokens - 1);
            sched_hold(m->s, r);
        }
        seen.fetches += f->num > 0;
    }
    for (int i = 0; m->stores && i < m->num_live; i++) {
        struct client *c = m->clients[m->live[i]];
        struct simulated_fetch *f = &c->fetch;
        if (f->num == 0 || !c->r->late || c->r->state != REQUEST_WAITING)
            continue;
        for (int k = between(0, 8); k > 0 && f->next < f->num; k--)
            seen.adopted += simulated_come(&store, f, c->r);
        bool gives_up = one || one_in(30);
        seen.given_up += gives_up && f->next < f->num;
        if (f->next < f->num && !gives_up)
            continue;
        sched_ready(m->s, c->r);
        f->num = 0;
        one = false;
    }
    return one;
}

// Some of the late masks, or one at least, are there.
static void make_ready(struct sim *m, bool one) {
    for (int i = 0; i < m->num_live; i++) {
        struct request *r = m->clients[m->live[i]]->r;
        if (r->late && client_of(m, r)->fetch.num == 0 && (one || one_in(m->ready_every))) {
            sched_ready(m->s, r);
            client_of(m, r)->has_mask = true;
            one = false;
        }
    }
}

// ---- a scenario

static void arrive(struct sim *m) {
    struct prompt_shape shape = random_shape(m->max_prompt);
    shape.spans = m->spans_every > 0 && one_in(m->spans_every);
    int copies = one_in(4) ? between(2, 6) : 1;
    for (int i = 0; i < copies; i++)
        add_request(m, &shape);
}

static void scenario_init(struct sim *m) {
    static const int sizes[] = {1, 4, 16};
    static const struct {
        int num_groups;
        enum kv_kind kinds[MAX_SIM_GROUPS];
    } shapes[] = {{1, {KV_FULL}},
                  {1, {KV_FULL}},
                  {1, {KV_WINDOW}},
                  {1, {KV_STATE}},
                  {2, {KV_FULL, KV_WINDOW}},
                  {2, {KV_STATE, KV_FULL}},
                  {2, {KV_WINDOW, KV_WINDOW}},
                  {3, {KV_FULL, KV_WINDOW, KV_STATE}}};
    int bs = sizes[rnd(3)], shape = (int)rnd(sizeof shapes / sizeof *shapes);
    struct kv_config k = {.block_size = bs,
                          .num_groups = shapes[shape].num_groups,
                          .snapshot_tokens = one_in(2) ? 0 : between(1, 40),
                          .key = {rnd(1u << 30), rnd(1u << 30)},
                          .share = !one_in(8)};
    int each = bs == 16 ? between(2, 20) : bs == 4 ? between(3, 40) : between(8, 100); // blocks of a group
    int pool = each * bs < 120 ? each * bs : 120;
    bool bounded = true; // no group keeps all tokens
    for (int g = 0; g < k.num_groups; g++) {
        k.groups[g] = (struct kv_group_spec){
            .kind = shapes[shape].kinds[g], .window = between(1, one_in(2) ? 20 : 70), .chunked = one_in(3)};
        bounded &= k.groups[g].kind != KV_FULL;
    }
    bool lengthy = bounded && one_in(2); // requests that are longer than the pool
    struct client **clients = malloc(sizeof m->clients);
    memcpy(clients, m->clients, sizeof m->clients);
    memset(m, 0, offsetof(struct sim, cells));
    memcpy(m->clients, clients, sizeof m->clients);
    free(clients);
    m->first_job = m->num_jobs = 0;
    m->max_steps = 100;
    m->num_steps = 0;
    m->family_seed = mix(scenario_seed, 4);
    m->max_prompt = between(1, one_in(3) ? pool : (pool + 1) / 2);
    m->max_output = between(1, one_in(3) ? pool : (pool + 2) / 3);
    bool squeeze = one_in(3); // short prompts, long outputs: everything starts, nothing fits
    if (squeeze) {
        m->max_prompt = between(1, 4);
        m->max_output = pool;
    }
    if (lengthy) {
        m->max_prompt = between(1, MAX_LEN - 110);
        m->max_output = between(1, 100);
    }
    bool crowded = !lengthy && one_in(4); // so much is waiting that steps grow (S13)
    static const int depths[] = {1, 2, 2, 4, 4, 8};
    m->depth = lengthy ? between(1, 2) : depths[rnd(6)];
    m->late = one_in(2);
    m->tired = one_in(lengthy ? 2 : 4);
    m->fail_every = one_in(3) ? 300 : 0;
    m->late_every = one_in(2) ? (unsigned)between(1, 12) : 0;
    m->ready_every = (unsigned)between(1, 20);
    m->spans_every = one_in(2) ? (unsigned)between(1, 3) : 0;
    m->max_span = between(1, one_in(2) ? 6 : 40);
    m->config = (struct sched_config){
        .policy = one_in(2) ? SCHED_FCFS : SCHED_PRIORITY,
        .max_running = lengthy   ? between(1, 4)
                       : squeeze ? MAX_RUNNING
                                 : between(1, MAX_RUNNING),
        .max_waiting = between(1, crowded ? 140 : 40),
        .max_waiting_tokens = between(20, crowded ? 10000 : 2000),
        .max_model_len = lengthy ? MAX_LEN - 8 : between(pool - pool / 4, pool + 8),
        .depth = m->depth,
        .async = one_in(2),
        .has_axes = true,
    };
    m->max_chunk = between(1, crowded ? 300 : 30);
    m->config.max_step_tokens = m->config.max_running + between(0, crowded ? 300 : lengthy ? 16 : 60);
    k.max_ahead = m->depth * m->config.max_step_tokens;
    k.num_blocks = each * k.num_groups;
    if (lengthy)
        k.num_blocks = (int)kv_pages(&k, MAX_LEN) * between(10, one_in(2) ? 10 : 25) / 10;
    if (k.num_blocks > MAX_BLOCKS)
        k.num_blocks = MAX_BLOCKS;
    sim_check(kv_init(&m->kv, &k) == STATUS_OK);
    sim_check((m->s = sched_open(&m->config, &m->kv, NULL)) != NULL);
    m->stores = k.share && one_in(2);
    memset(&store, 0, sizeof store);
    store.kv = &m->kv;
    store.cells = m->cells;
    m->kv.watch = m->stores ? simulated_watch : NULL;
    m->kv.watch_arg = &store;
    for (int i = 0; i < MAX_LIVE; i++)
        m->free_ids[m->num_free_ids++] = MAX_LIVE - 1 - i;
}

static void run_scenario(uint64_t seed, int num_bursts) {
    struct sim *m = &sim;
    scenario_seed = seed;
    rng_state = mix(seed, 1);
    scenario_init(m);
    bool paced = one_in(3);
    int top_chunk = 2 * m->max_chunk;
    unsigned pause = (unsigned)between(1, 12), cancel_every = one_in(3) ? 0 : (unsigned)between(5, 60);
    while (num_bursts > 0 || m->num_live > 0) {
        // Poisson-like arrivals with bursts: virtual time is the number of steps.
        if (num_bursts > 0 && (m->num_live == 0 || one_in(pause)))
            for (int i = one_in(6) ? between(2, 8) : 1; i > 0 && num_bursts > 0; i--, num_bursts--)
                arrive(m);
        if (cancel_every > 0 && m->num_live > 0 && one_in(cancel_every))
            cancel_one(m);
        if (paced && one_in(20))
            m->max_chunk = between(1, top_chunk);
        if (one_in(2))
            propose(m);
        make_ready(m, false);
        fetch(m, false);
        struct before_step b;
        note_before(m, &b);
        const struct plan *plan = sched_step(m->s, m->max_chunk);
        seen.steps++;
        check_preempted(m, &b);
        if (plan) {
            check_plan(m, plan, &b);
            submit(m, plan);
            if (!m->late)
                execute(m, job_at(m, m->num_jobs - 1));
            sim_check(++m->num_steps < m->max_steps);
            seen.full += m->num_jobs == m->depth && m->depth > 2;
        } else {
            seen.deferred_victims += m->s->running.len > 0 && m->num_jobs > 0;
            sim_check(m->num_jobs > 0 || sched_idle(m->s) || sched_num_late(m->s) > 0); // no deadlock
            seen.all_late += m->num_jobs == 0 && !sched_idle(m->s);
            make_ready(m, fetch(m, m->num_jobs == 0));
        }
        check_state(m);
        if (cancel_every > 0 && m->num_live > 0 && one_in(cancel_every))
            cancel_one(m);
        if (m->num_jobs == m->depth || (m->num_jobs > 0 && (!plan || one_in(10)))) {
            resolve(m);
            check_state(m);
        }
        if (!plan || one_in(20))
            while (m->num_jobs > 0)
                resolve(m);
    }
    while (m->num_jobs > 0) // plans of nothing but cancelled requests cannot be left over
        resolve(m);
    sim_check(sched_idle(m->s) && m->s->waiting_tokens == 0 && m->s->draining.len == 0);
    sim_check(m->kv.num_free == m->kv.config.num_blocks && kv_check(&m->kv, NULL, 0) == 0);
    seen.preemptions += m->s->stats.preemptions;
    seen.hits += m->s->stats.prefix_hits;
    seen.deferred += m->s->stats.deferred;
    seen.evicted += m->kv.num_evicted;
    sim_check(m->s->stats.prefix_hits <= m->s->stats.prefix_queries);
    sched_close(m->s);
    kv_destroy(&m->kv);
}

TEST(test_traffic) {
    const char *seed = getenv("QUIRE_SIM_SEED"), *requests = getenv("QUIRE_SIM_REQUESTS");
    uint64_t want = requests ? strtoull(requests, NULL, 10) : DEFAULT_REQUESTS;
    signal(SIGABRT, on_abort);
    for (int i = 0; i < MAX_LIVE; i++)
        assert_non_null(sim.clients[i] = calloc(1, sizeof *sim.clients[i]));
    if (seed) {
        run_scenario(strtoull(seed, NULL, 10), 150);
    } else {
        for (uint64_t i = 1; seen.requests < want; i++)
            run_scenario(i, 150);
    }
    for (int i = 0; i < MAX_LIVE; i++)
        free(sim.clients[i]);
    print_seen();
    if (!seed && want >= 10000) // enough to have met everything
        check_seen(want);
}

int main(void) { return run_all_tests(NULL, NULL); }
