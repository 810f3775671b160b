// Random traffic through the scheduler and the KV cache, with a fake device instead of a model.
//
// The fake cache holds one integer per slot: a hash of every token up to that position. The fake model finds
// the cell of the position before through the block table, and draws the next token from the hash it finds
// there; and before that it reads every cell of the context and compares it with what a run alone would have
// written. So a stale, shared, misplaced or early reused block shows at once, and what a request gets is
// compared token by token with the sequence computed from its prompt alone.
//
// QUIRE_SIM_REQUESTS: how many requests in all. QUIRE_SIM_SEED: only the scenario of this seed, as printed by
// a failure.
//
// Over 600 lines, because traffic, device and checks look at one another's state throughout.
#include "harness.h"

#include "scheduler.h"

#include <inttypes.h>
#include <signal.h>
#include <unistd.h>

enum { MAX_LIVE = 160, MAX_RUNNING = 12, MAX_LEN = 160, MAX_BLOCKS = 160, NUM_FAMILIES = 3, VOCAB = 61 };

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || __has_feature(address_sanitizer) ||     \
    __has_feature(thread_sanitizer)
enum { DEFAULT_REQUESTS = 100000 };
#else
enum { DEFAULT_REQUESTS = 1000000 };
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

static uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t z = (a ^ b * 0x9e3779b97f4a7c15u) + 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint64_t rng_state;
static unsigned rnd(unsigned n) { return (unsigned)((mix(rng_state++, 77) >> 32) * n >> 32); } // [0, n)
static int between(int lo, int hi) { return lo + (int)rnd((unsigned)(hi - lo + 1)); }
static bool one_in(unsigned n) { return rnd(n) == 0; }

// What the simulator knows of a request. The request's id is the index of its client.
struct client {
    struct request *r;
    token_id expect[MAX_LEN]; // what a run alone gives: prompt, then output
    uint64_t cells[MAX_LEN];  // and writes
    int num_expect;
    enum finish_reason expect_finish;
    uint64_t salt;
    token_id drawn; // the device's last draw
    int num_got, num_scored;
    int num_preemptions;
    int num_passed; // plans since it could decode and did not
    bool started, cancelled, failed;
    int updates_left; // a cancelled request is gone within so many updates
};

// A plan as the device got it: tables and tokens as they were then.
struct job {
    const struct plan *plan;
    block_id blocks[MAX_RUNNING][MAX_LEN];
    token_id tokens[MAX_RUNNING][MAX_LEN];
    int num_blocks[MAX_RUNNING];
    token_id drawn[MAX_RUNNING];
    bool executed;
};

struct sim {
    struct kv_cache kv;
    struct scheduler s;
    struct sched_config config;
    int depth, max_prompt, max_output;
    bool late; // the device runs a plan when it is waited for
    bool odd;  // items give 0, 2 or 3 tokens now and then
    bool
        tired; // requests arrive with preemptions on their account, or the last few would hardly ever be seen
    unsigned fail_every; // items, 0: never
    struct client *clients[MAX_LIVE];
    int free_ids[MAX_LIVE], num_free_ids;
    int live[MAX_LIVE], live_at[MAX_LIVE], num_live;
    uint64_t cells[MAX_BLOCKS * 16];
    struct job jobs[SCHED_MAX_DEPTH];
    int first_job, num_jobs; // unresolved plans; job_at(m, 0) is the oldest
    uint64_t family_seed;
    int64_t max_steps, num_steps;
};

static struct {
    uint64_t requests, refused, steps, preemptions, secured, hits, held, evicted, out_of_order, stopped_ahead;
    uint64_t cancel_new, cancel_preempted, cancel_running, cancel_in_flight, cancel_again, failed, scored,
        kept_out;
    uint64_t dealt, shared, full; // S13; steps with as many plans in flight as may be, over two
    uint64_t rejected, several, empty, finish_stop, finish_length;
} seen;

static struct sim sim; // large; one at a time

// ---- requests
// ------------------------------------------------------------------------------------------------------

static uint64_t cell_root(uint64_t salt) { return mix(salt, 0x5eed); }
static uint64_t cell_next(uint64_t cell, token_id token) { return mix(cell, (uint64_t)token + 1); }
static token_id draw(uint64_t cell, uint64_t seed) { return (token_id)(mix(cell, seed) % VOCAB); }

static struct job *job_at(struct sim *m, int i) { return &m->jobs[(m->first_job + i) % SCHED_MAX_DEPTH]; }

static struct client *client_of(struct sim *m, const struct request *r) { return m->clients[r->id]; }

// The sequence of a run alone, and what would come after its stop token: that far run-ahead may get.
static void run_alone(struct client *c) {
    const struct request *r = c->r;
    uint64_t cell = cell_root(c->salt);
    c->num_expect = r->num_prompt;
    memcpy(c->expect, r->tokens, (size_t)r->num_prompt * sizeof *r->tokens);
    for (int p = 0; p < r->num_prompt; p++)
        c->cells[p] = cell = cell_next(cell, c->expect[p]);
    c->expect_finish = FINISH_LENGTH;
    for (int p = r->num_prompt; p < r->max_tokens; p++) {
        token_id t = draw(cell, r->sampling.seed);
        c->expect[p] = t;
        c->cells[p] = cell = cell_next(cell, t);
        c->num_expect += c->expect_finish == FINISH_LENGTH;
        if (p >= r->min_tokens && request_is_stop(r, t))
            c->expect_finish = FINISH_STOP;
    }
}

struct prompt_shape {
    int family, shared, tail, salt;
    uint64_t tail_seed;
};

static void add_request(struct sim *m, const struct prompt_shape *shape) {
    token_id prompt[MAX_LEN];
    token_id stop[2] = {(token_id)rnd(VOCAB), (token_id)rnd(VOCAB)};
    unsigned char salt = (unsigned char)shape->salt;
    int n = shape->shared + shape->tail;
    if (m->num_free_ids == 0)
        return;
    for (int i = 0; i < shape->shared; i++)
        prompt[i] = (token_id)(mix(m->family_seed + (uint64_t)shape->family, (uint64_t)i) % VOCAB);
    for (int i = shape->shared; i < n; i++)
        prompt[i] = (token_id)(mix(shape->tail_seed, (uint64_t)i) % VOCAB);
    int id = m->free_ids[m->num_free_ids - 1];
    struct request_params p = {
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
    };
    struct client *c = m->clients[id];
    struct request *r = request_new(&p, m->kv.block_size);
    sim_check(r);
    r->num_preemptions = m->tired ? between(4, SCHED_MAX_PREEMPTIONS) : 0;
    bool fits =
        sched_admissible(&m->config, m->kv.num_blocks, m->kv.block_size, n, p.max_output, NULL) == STATUS_OK;
    int64_t queued = m->s.waiting_tokens;
    int len = m->s.waiting.len;
    enum status status = sched_add(&m->s, r);
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
}

// The request has left the scheduler, for `why`.
static void end_client(struct sim *m, struct client *c, enum finish_reason why) {
    struct request *r = c->r;
    int id = (int)r->id;
    sim_check(r->state == REQUEST_FINISHED && r->finish == why && r->num_in_flight == 0 &&
              r->blocks.len == 0);
    sim_check(c->num_got == r->num_tokens - r->num_pending - r->num_prompt);
    sim_check(r->num_preemptions <= SCHED_MAX_PREEMPTIONS);
    if (why == FINISH_STOP || why == FINISH_LENGTH) {
        sim_check(why == c->expect_finish && c->num_got == c->num_expect - r->num_prompt);
        sim_check(r->num_cached >= 0 && r->num_cached < r->num_prompt);
        sim_check(!r->sampling.prompt_logprobs || (c->num_scored == r->num_prompt - 1 && r->num_cached == 0));
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
    bool left = sched_remove(&m->s, r, FINISH_CANCELLED);
    sim_check(left == (in_flight == 0));
    if (left)
        end_client(m, c, FINISH_CANCELLED);
}

// ---- what must always hold
// -----------------------------------------------------------------------------------------

static bool comes_before(const struct sim *m, const struct request *a, const struct request *b) {
    if (m->config.policy == SCHED_PRIORITY && a->priority != b->priority)
        return a->priority < b->priority;
    return a->arrival < b->arrival;
}

static void check_state(struct sim *m) {
    const struct block_table *tables[MAX_LIVE];
    int num_tables = 0, num_running = 0;
    int64_t waiting_tokens = 0;
    for (int i = 0; i < m->num_live; i++) {
        const struct request *r = m->clients[m->live[i]]->r;
        if (r->state == REQUEST_WAITING) {
            sim_check(r->blocks.len == 0 && r->num_in_flight == 0 && r->num_pending == 0 &&
                      r->num_computed == 0);
            waiting_tokens += r->num_tokens;
            continue;
        }
        tables[num_tables++] = &r->blocks;
        if (r->state != REQUEST_RUNNING)
            continue;
        num_running++;
        sim_check(r->num_resolved <= r->num_computed && r->num_computed <= r->num_tokens);
        sim_check(r->num_in_flight > 0 || (r->num_pending == 0 && r->num_resolved == r->num_computed));
        sim_check(r->blocks.num_hashed == (m->kv.share ? r->num_resolved / m->kv.block_size : 0));
        sim_check(kv_blocks_for(&m->kv, r->num_computed) <= r->blocks.len);
    }
    sim_check(waiting_tokens == m->s.waiting_tokens);
    sim_check(num_running == m->s.running.len && num_running <= m->config.max_running);
    int broken_rule = kv_check(&m->kv, tables, num_tables);
    sim_check(broken_rule == 0);
    // What the device was given stays where it was.
    for (int j = 0; j < m->num_jobs; j++) {
        const struct job *job = job_at(m, j);
        for (int i = 0; i < job->plan->num_items; i++) {
            const struct block_table *t = &job->plan->items[i].req->blocks;
            size_t n = (size_t)job->num_blocks[i];
            sim_check(t->len >= (int)n && memcmp(t->ids, job->blocks[i], n * sizeof *t->ids) == 0);
        }
    }
}

// Whether x may be passed over: a running request before it is to publish the block that x needs next, which
// is block `next` of x where that is known, -1 where it is not.
static bool may_be_held(const struct sim *m, const struct request *x, int next) {
    int bs = m->kv.block_size;
    if (!m->kv.share || x->sampling.prompt_logprobs)
        return false;
    for (const struct request *c = m->s.running.head; c; c = c->next) {
        int end = (c->blocks.num_hashed + 1) * bs;
        bool same_salt = c->num_salt == x->num_salt && (c->num_salt == 0 || c->salt[0] == x->salt[0]);
        if ((next < 0 || c->blocks.num_hashed == next) && comes_before(m, c, x) && same_salt &&
            end < x->num_tokens - x->num_pending && end <= c->num_tokens - c->num_pending &&
            memcmp(c->tokens, x->tokens, (size_t)end * sizeof *c->tokens) == 0)
            return true;
    }
    return false;
}

struct before_step {
    struct request *running[MAX_RUNNING];
    int in_flight[MAX_RUNNING];
    bool decodes[MAX_RUNNING];
    int len, num_decodes; // that can decode now
    int quota;            // S13: how many of them a plan takes at most
    int64_t backlog;      // prompt tokens that are still to be computed
    bool roomy;           // there are blocks for all that is known
    uint64_t preemptions;
};

static void note_before(const struct sim *m, struct before_step *b) {
    int need = 0;
    int decoding = 0;
    b->len = b->num_decodes = 0;
    b->backlog = m->s.waiting_tokens;
    b->preemptions = m->s.stats.preemptions;
    for (struct request *r = m->s.running.head; r; r = r->next) {
        int i = b->len++;
        int known = r->num_tokens < r->max_tokens ? r->num_tokens : r->max_tokens;
        b->running[i] = r;
        b->in_flight[i] = r->num_in_flight;
        b->decodes[i] = r->num_tokens - r->num_computed == 1 && r->num_tokens < r->max_tokens &&
                        !((r->counts || !m->config.run_ahead) && r->num_pending);
        b->num_decodes += b->decodes[i];
        decoding += b->decodes[i] || r->num_pending > 0;
        b->backlog += b->decodes[i] || r->num_pending > 0 ? 0 : r->num_tokens - r->num_computed;
        if (kv_blocks_for(&m->kv, known) > r->blocks.len)
            need += kv_blocks_for(&m->kv, known) - r->blocks.len;
    }
    b->roomy = need <= m->kv.num_free;
    b->quota = m->config.run_ahead ? decoding : (decoding + m->depth - 1) / m->depth;
}

static void check_plan(struct sim *m, const struct plan *p, const struct before_step *b) {
    int tokens = 0, rows = 0, prefill = 0, num_old_decodes = 0;
    bool old_decode = false, preempted = m->s.stats.preemptions != b->preemptions;
    bool in_plan[MAX_LIVE] = {false};
    sim_check(p->num_items >= 1 && p->num_items <= m->config.max_running && p->num_decode <= p->num_items);
    for (int i = 0; i < p->num_items; i++) {
        const struct plan_item *it = &p->items[i];
        struct request *r = it->req;
        struct client *c = client_of(m, r);
        bool old = false;
        int end = it->first + it->num_new;
        sim_check(r->state == REQUEST_RUNNING && !in_plan[r->id]);
        in_plan[r->id] = true;
        sim_check(it->num_new >= 1 && it->first_logit >= 0 && it->first_logit <= it->num_new);
        sim_check(end == r->num_computed && end <= r->num_tokens - it->needs_token);
        sim_check(it->needs_token ? r->tokens[end] == -1 && it->first_logit < it->num_new : true);
        sim_check((i < p->num_decode) == (it->num_new == 1 && it->needs_token));
        sim_check(!(r->counts || !m->config.run_ahead) || r->tokens[it->first] >= 0);
        if (!it->wants_score)
            sim_check(it->first_logit == it->num_new - it->needs_token);
        else
            sim_check(r->sampling.prompt_logprobs && end - it->needs_token < r->num_prompt);
        for (int j = 0; j < b->len; j++)
            if (b->running[j] == r) {
                old = true;
                old_decode |= b->decodes[j];
                num_old_decodes += b->decodes[j];
            }
        sim_check(old || !preempted); // nothing starts in a step that preempts
        if (!old) {
            for (const struct request *x = m->s.waiting.head; x; x = x->next)
                if (comes_before(m, x, r)) {
                    sim_check(may_be_held(m, x, -1));
                    seen.out_of_order++;
                }
            sim_check(
                !may_be_held(m, r, it->first / m->kv.block_size)); // it would compute what is on its way
            if (r->num_preemptions == SCHED_MAX_PREEMPTIONS) {
                int last = r->max_tokens > r->num_prompt ? r->max_tokens - 1 : r->num_prompt - 1;
                sim_check(r->blocks.len >= kv_blocks_for(&m->kv, last));
                seen.secured++;
            }
            c->started = true;
        }
        tokens += it->num_new;
        rows += it->num_new - it->first_logit;
        prefill += i < p->num_decode ? 0 : it->num_new;
    }
    sim_check(tokens == p->num_tokens && rows == p->num_rows && tokens <= m->config.max_step_tokens);
    sim_check(!old_decode || prefill <= m->config.max_chunk);
    // Decodes get their token, in this plan or in turn: as many as the plan takes, and each before long.
    int taken = b->num_decodes < b->quota ? b->num_decodes : b->quota;
    sim_check(!b->roomy || num_old_decodes == taken);
    sim_check(num_old_decodes <= taken || (!b->roomy && m->num_jobs == 0));
    bool deals = m->depth > 1 && !m->config.run_ahead;
    for (int j = 0; j < b->len; j++) {
        struct client *c = client_of(m, b->running[j]);
        c->num_passed = b->decodes[j] && b->roomy && !in_plan[b->running[j]->id] ? c->num_passed + 1 : 0;
        sim_check(c->num_passed <= (deals ? m->config.max_running : 0));
        seen.dealt += c->num_passed > 0;
    }
    if (deals && !preempted && b->roomy) {
        int64_t share = (b->backlog + 4 * m->depth - 1) / (4 * m->depth);
        sim_check(prefill <= (share > 64 ? share : 64));
        seen.shared += prefill > 64;
    }
}

static void check_preempted(struct sim *m, const struct before_step *b) {
    if (b->len > 0)
        sim_check(b->running[0]->state == REQUEST_RUNNING); // never the oldest
    if (m->s.stats.preemptions == b->preemptions)
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
// -----------------------------------------------------------------------------------------------

static void submit(struct sim *m, const struct plan *plan) {
    struct job *job = job_at(m, m->num_jobs++);
    job->plan = plan;
    job->executed = false;
    for (int i = 0; i < plan->num_items; i++) {
        const struct plan_item *it = &plan->items[i];
        job->num_blocks[i] = kv_blocks_for(&m->kv, it->first + it->num_new);
        sim_check(job->num_blocks[i] <= it->req->blocks.len);
        memcpy(job->blocks[i], it->req->blocks.ids, (size_t)job->num_blocks[i] * sizeof(block_id));
        memcpy(job->tokens[i], it->req->tokens + it->first, (size_t)it->num_new * sizeof(token_id));
    }
}

static uint64_t *cell_at(struct sim *m, const block_id *blocks, int pos) {
    int bs = m->kv.block_size;
    return &m->cells[blocks[pos / bs] * bs + pos % bs];
}

static void execute(struct sim *m, struct job *job) {
    for (int i = 0; i < job->plan->num_items; i++) {
        const struct plan_item *it = &job->plan->items[i];
        struct client *c = client_of(m, it->req);
        const block_id *blocks = job->blocks[i];
        int bs = m->kv.block_size;
        for (int p = 0; p < it->first; p += bs) {
            int n = it->first - p < bs ? it->first - p : bs;
            sim_check(memcmp(cell_at(m, blocks, p), &c->cells[p], (size_t)n * sizeof *c->cells) == 0);
        }
        uint64_t cell = it->first > 0 ? *cell_at(m, blocks, it->first - 1) : cell_root(c->salt);
        for (int j = 0; j < it->num_new; j++) {
            int p = it->first + j;
            token_id t = job->tokens[i][j] >= 0 ? job->tokens[i][j] : c->drawn;
            sim_check(t == c->expect[p]);
            sim_check(!m->kv.blocks[blocks[p / bs]].published); // rule 2
            *cell_at(m, blocks, p) = cell = cell_next(cell, t);
        }
        for (int j = it->first_logit; it->wants_score && j < it->num_new - it->needs_token; j++) {
            sim_check(it->first + j == c->num_scored); // each row once, in order
            c->num_scored++;
            seen.scored++;
        }
        if (it->needs_token)
            job->drawn[i] = c->drawn = draw(cell, it->req->sampling.seed);
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
    }
    if (e->finish != FINISH_NONE)
        end_client(m, c, e->finish);
}

static void resolve(struct sim *m) {
    struct job *job = job_at(m, 0);
    const struct plan *plan = job->plan;
    int32_t start[MAX_RUNNING + 1] = {0};
    token_id tokens[3 * MAX_RUNNING];
    uint8_t failed[MAX_RUNNING] = {0};
    struct token_event events[4 * MAX_RUNNING];
    int n = 0;
    if (!job->executed)
        execute(m, job);
    for (int i = 0; i < plan->num_items; i++) {
        const struct plan_item *it = &plan->items[i];
        struct client *c = client_of(m, it->req);
        bool heard = it->req->state == REQUEST_RUNNING && it->req->num_stale == 0;
        start[i] = n;
        if (m->fail_every > 0 && one_in(m->fail_every)) {
            failed[i] = 1;
            c->failed |= heard;
            seen.failed++;
        }
        if (!it->needs_token)
            continue;
        int num = !m->odd ? 1 : one_in(25) ? 0 : one_in(8) ? between(2, 3) : 1;
        seen.rejected += num == 0;
        seen.several += num > 1;
        for (int j = 0; j < num; j++) {
            int p = it->first + it->num_new + j;
            tokens[n++] = j == 0 ? job->drawn[i] : p < c->num_expect ? c->expect[p] : 0;
        }
    }
    start[plan->num_items] = n;
    struct outcome out = {.start = start, .tokens = tokens, .failed = failed};
    int num_events = sched_update(&m->s, plan->id, &out, events);
    sim_check(num_events <= n + plan->num_items);
    for (int i = 0; i < num_events; i++)
        on_event(m, &events[i], plan);
    m->first_job = (m->first_job + 1) % SCHED_MAX_DEPTH;
    m->num_jobs--;
    for (int i = 0; i < m->num_live; i++) {
        struct client *c = m->clients[m->live[i]];
        sim_check(!c->cancelled || --c->updates_left > 0); // blocks come back in time
    }
}

// ---- a scenario
// ----------------------------------------------------------------------------------------------------

static void arrive(struct sim *m) {
    struct prompt_shape shape = {
        .family = between(0, NUM_FAMILIES - 1),
        .tail_seed = rnd(1u << 30),
        .salt = one_in(3) ? between(1, 2) : 0,
    };
    shape.shared = one_in(3) ? 0 : between(0, m->max_prompt - 1);
    shape.tail = between(shape.shared == 0, one_in(2) ? m->max_prompt - shape.shared : 2);
    if (shape.shared + shape.tail == 0)
        shape.tail = 1;
    if (shape.shared + shape.tail > m->max_prompt)
        shape.tail = m->max_prompt - shape.shared;
    int copies = one_in(4) ? between(2, 6) : 1;
    for (int i = 0; i < copies; i++)
        add_request(m, &shape);
}

static void scenario_init(struct sim *m) {
    static const int sizes[] = {1, 4, 16};
    int bs = sizes[rnd(3)];
    int num_blocks = bs == 16 ? between(2, 20) : bs == 4 ? between(3, 40) : between(8, 100);
    int pool = num_blocks * bs < 120 ? num_blocks * bs : 120;
    uint64_t key[2] = {rnd(1u << 30), rnd(1u << 30)};
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
    bool crowded = one_in(4); // so much is waiting that steps grow (S13)
    static const int depths[] = {1, 2, 2, 4, 4, 8};
    m->depth = depths[rnd(6)];
    m->late = one_in(2);
    m->odd = one_in(3);
    m->tired = one_in(4);
    m->fail_every = one_in(3) ? 300 : 0;
    m->config = (struct sched_config){
        .policy = one_in(2) ? SCHED_FCFS : SCHED_PRIORITY,
        .max_running = squeeze ? MAX_RUNNING : between(1, MAX_RUNNING),
        .max_chunk = between(1, crowded ? 300 : 30),
        .max_waiting = between(1, crowded ? 140 : 40),
        .max_waiting_tokens = between(20, crowded ? 10000 : 2000),
        .max_model_len = between(pool - pool / 4, pool + 8),
        .depth = m->depth,
        .run_ahead = one_in(2),
    };
    m->config.max_step_tokens = m->config.max_running + between(0, crowded ? 300 : 60);
    sim_check(kv_init(&m->kv, num_blocks, bs, key, !one_in(8)) == STATUS_OK);
    sim_check(sched_init(&m->s, &m->config, &m->kv) == STATUS_OK);
    for (int i = 0; i < MAX_LIVE; i++)
        m->free_ids[m->num_free_ids++] = MAX_LIVE - 1 - i;
}

static void run_scenario(uint64_t seed, int num_bursts) {
    struct sim *m = &sim;
    scenario_seed = seed;
    rng_state = mix(seed, 1);
    scenario_init(m);
    bool paced = one_in(3);
    int top_chunk = 2 * m->config.max_chunk;
    unsigned pause = (unsigned)between(1, 12), cancel_every = one_in(3) ? 0 : (unsigned)between(5, 60);
    while (num_bursts > 0 || m->num_live > 0) {
        // Poisson-like arrivals with bursts: virtual time is the number of steps.
        if (num_bursts > 0 && (m->num_live == 0 || one_in(pause)))
            for (int i = one_in(6) ? between(2, 8) : 1; i > 0 && num_bursts > 0; i--, num_bursts--)
                arrive(m);
        if (cancel_every > 0 && m->num_live > 0 && one_in(cancel_every))
            cancel_one(m);
        if (paced && one_in(20))
            sched_set_chunk(&m->s, m->config.max_chunk = between(1, top_chunk));
        struct before_step b;
        note_before(m, &b);
        const struct plan *plan = sched_step(&m->s);
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
            seen.kept_out += m->s.running.len > 0 && m->num_jobs > 0;
            sim_check(m->num_jobs > 0 || sched_idle(&m->s)); // no deadlock
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
    sim_check(sched_idle(&m->s) && m->s.waiting_tokens == 0 && m->s.num_leaving == 0);
    sim_check(m->kv.num_free == m->kv.num_blocks && kv_check(&m->kv, NULL, 0) == 0);
    seen.preemptions += m->s.stats.preemptions;
    seen.hits += m->s.stats.prefix_hits;
    seen.held += m->s.stats.held;
    seen.evicted += m->kv.num_evicted;
    sim_check(m->s.stats.prefix_hits <= m->s.stats.prefix_queries);
    sched_destroy(&m->s);
    kv_destroy(&m->kv);
}

static void test_traffic(void **state) {
    (void)state;
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
    printf("  requests %" PRIu64 ", refused %" PRIu64 ", steps %" PRIu64 ", preemptions %" PRIu64
           " (secured starts %" PRIu64 "), hits %" PRIu64 ", evicted %" PRIu64 ", held %" PRIu64
           " (overtaken %" PRIu64 ")\n",
           seen.requests, seen.refused, seen.steps, seen.preemptions, seen.secured, seen.hits, seen.evicted,
           seen.held, seen.out_of_order);
    printf("  cancels: new %" PRIu64 ", preempted %" PRIu64 ", running %" PRIu64 ", in flight %" PRIu64
           ", again %" PRIu64 "; failed %" PRIu64 ", scored rows %" PRIu64 ", stopped ahead %" PRIu64
           ", waited %" PRIu64 "\n",
           seen.cancel_new, seen.cancel_preempted, seen.cancel_running, seen.cancel_in_flight,
           seen.cancel_again, seen.failed, seen.scored, seen.stopped_ahead, seen.kept_out);
    printf("  passed over %" PRIu64 ", prompts shared out %" PRIu64 ", more than two plans in flight %" PRIu64
           "\n",
           seen.dealt, seen.shared, seen.full);
    printf("  rejected %" PRIu64 ", several %" PRIu64 ", empty outputs %" PRIu64 ", stop %" PRIu64
           ", length %" PRIu64 "\n",
           seen.rejected, seen.several, seen.empty, seen.finish_stop, seen.finish_length);
    if (seed || want < 10000)
        return; // too little to have met everything
    assert_true(seen.preemptions > 0 && seen.secured > 0 && seen.hits > 0 && seen.held > 0 &&
                seen.evicted > 0);
    assert_true(seen.out_of_order > 0 && seen.refused > 0 && seen.kept_out > 0 && seen.stopped_ahead > 0);
    assert_true(seen.cancel_new > 0 && seen.cancel_preempted > 0 && seen.cancel_running > 0);
    assert_true(seen.cancel_in_flight > 0 && seen.cancel_again > 0 && seen.failed > 0 && seen.scored > 0);
    assert_true(seen.dealt > 0 && seen.full > 0 && (seen.shared > 0 || want < 100000));
    assert_true(seen.rejected > 0 && seen.several > 0 && seen.empty > 0);
    assert_true(seen.finish_stop > 0 && seen.finish_length > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_traffic)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
