// Prompts as the cache sees them, for those who ask. prompt_view.h says what.
#include "inside.h"
#include "prompt_view.h"
#include "scheduler_state.h"
#include "tiers.h"

#include <string.h>

struct past_prompt *inside_past(const struct service_inside *in, uint64_t id) {
    uint64_t n = in->num_past < PROMPT_PAST ? in->num_past : PROMPT_PAST;
    for (uint64_t i = 0; i < n; i++)
        if (in->past[i].id == id)
            return &in->past[i];
    return NULL;
}

void inside_remember(struct service_inside *in, struct request *r) {
    const struct kv_cache *kv = in->kv;
    size_t size = (size_t)kv->config.block_size, at = in->num_past++ % PROMPT_PAST;
    struct past_prompt *p = &in->past[at];
    int cached = r->num_cached > 0 ? r->num_cached : 0, left = r->num_prompt - 1 - cached;
    *p = (struct past_prompt){
        .id = r->id,
        .num_prompt = r->num_prompt,
        .num_cached = cached,
        .all_rows = request_needs_all_rows(r),
        .num_fetched = r->fetch_ns > 0 && cached > r->expect_cached ? cached - r->expect_cached : 0,
        .fetch_ns = r->fetch_ns,
        .parent = cached > 0 ? r->seq.hash : r->root,
        .num_next = left < (int)size ? left : (int)size};
    kv_seq_names(&r->seq, r->tokens, cached, p->num_next, in->past_tokens + at * size);
    p->ending = kv_explain(kv, &r->seq, p->parent, r->tokens, cached, r->num_prompt - 1);
}

static void look_back(struct prompt_view *v, const struct service_inside *in) {
    const struct past_prompt *p = inside_past(in, v->id);
    if (!p)
        return;
    const token_id *tokens = in->past_tokens + (size_t)(p - in->past) * (size_t)in->kv->config.block_size;
    v->found = true;
    v->num_prompt = p->num_prompt;
    v->cached[0] = p->num_cached;
    v->all_rows = p->all_rows;
    v->num_fetched = p->num_fetched;
    v->fetch_ns = p->fetch_ns;
    v->ending = p->ending;
    kv_compare(in->kv, p->parent, tokens, &v->ending); // the block that differed is still there, or not
    if (v->ending.why == KV_END_DIFFERS && tokens[v->ending.same] >= 0)
        v->token = tokens[v->ending.same];
}

static void look_at_store(struct prompt_view *v, const struct service_inside *in) {
    struct kv_seq seq;
    kv_seq_init(&seq, v->ids, v->cap);
    tiers_look(in->tiers, &seq, kv_root(in->kv, v->salts[0], (size_t)v->num_salts[0]), v->tokens,
               v->num_tokens - 1, &v->store);
}

static int match(const struct prompt_view *v, struct kv_cache *kv, int i, struct kv_hash *end) {
    struct kv_seq seq;
    struct kv_hash root = kv_root(kv, v->salts[i], (size_t)v->num_salts[i]);
    kv_seq_init(&seq, v->ids, v->cap);
    int cached = kv_match(kv, &seq, root, v->tokens, v->num_tokens - 1);
    if (end)
        *end = cached > 0 ? seq.hash : root;
    kv_unmatch(kv, &seq);
    return cached;
}

void prompt_view_run(struct service_query *query, const struct service_inside *in) {
    struct prompt_view *v = (struct prompt_view *)query;
    struct kv_cache *kv = in->kv;
    struct kv_hash end = {0};
    v->clock = kv->clock;
    v->share = kv->config.share;
    v->store_at = in->stats->store.where;
    v->token = -1;
    v->predicted_ns = v->queue_ns = -1;
    if (v->num_tokens == 0) {
        look_back(v, in);
    } else {
        for (int i = 0; i < PROMPT_ROOTS; i++)
            v->cached[i] = v->num_salts[i] >= 0 ? match(v, kv, i, i ? NULL : &end) : 0;
        look_at_store(v, in);
        const token_id *next = v->tokens + v->cached[0];
        v->num_prompt = v->num_tokens;
        v->ending = kv_explain(kv, NULL, end, v->tokens, v->cached[0], v->num_tokens - 1);
        kv_compare(kv, end, next, &v->ending);
        if (v->ending.why == KV_END_DIFFERS)
            v->token = next[v->ending.same];
        if (v->all_rows)
            v->cached[0] = 0;
        v->predicted_ns = predict_first_token(in->predictor, in->pace, in->sched, v->num_tokens, v->cached[0],
                                              v->priority, &v->queue_ns);
    }
    v->group = kv->config.groups[v->ending.group];
}
