// Copies of the engine thread's state for those who look at it. engine_view.h says how much.
#include "inside.h"
#include "scheduler_state.h"

#include <string.h>

static int num_pages_of(const struct kv_cache *kv, const struct kv_seq *seq) {
    int pages = 0;
    for (int g = 0; g < kv->config.num_groups; g++) {
        const struct block_table *t = &seq->tables[g];
        if (kv->config.groups[g].kind == KV_STATE)
            pages += (t->live != KV_NONE) + (t->saved != KV_NONE);
        else
            pages += seq->len - t->first;
    }
    return pages;
}

static void add_request(struct engine_view *v, const struct kv_cache *kv, const struct request *r,
                        bool running) {
    v->requests[v->num_requests++] =
        (struct view_request){.id = r->id,
                              .running = running,
                              .priority = r->priority,
                              .num_prompt = r->num_prompt,
                              .num_computed = r->num_computed,
                              .num_output = r->num_tokens - r->num_pending - r->num_prompt,
                              .num_cached = r->num_cached,
                              .num_pages = num_pages_of(kv, &r->seq),
                              .num_preemptions = r->num_preemptions,
                              .submitted = r->time_submitted,
                              .scheduled = r->time_scheduled,
                              .first_token = r->time_first_token};
}

static void copy_pages(struct engine_view *v, const struct kv_cache *kv) {
    for (int i = 0; i < v->num_pages; i++) {
        const struct kv_block *b = &kv->blocks[i];
        uint8_t state = b->ref > 0 ? VIEW_ACTIVE : b->published ? VIEW_CACHED : VIEW_FREE;
        v->pages[i] = (struct view_page){.hash = b->published ? b->hash.lo : 0,
                                         .parent = b->published ? b->parent : 0,
                                         .refs = b->ref,
                                         .touched = b->touched,
                                         .group = b->group,
                                         .state = state};
    }
}

// A page of the table of request `index`.
static void own_page(struct engine_view *v, block_id id, int index, uint64_t request) {
    if (id == KV_NONE)
        return;
    if (v->pages && id < v->num_pages && index < VIEW_REQUESTS && !v->pages[id].owner)
        v->pages[id].owner = (uint16_t)(index + 1);
    if (id == v->page && v->num_owners < VIEW_OWNERS &&
        (v->num_owners == 0 || v->owners[v->num_owners - 1] != request))
        v->owners[v->num_owners++] = request;
}

static void own_pages(struct engine_view *v, const struct scheduler *s) {
    const struct kv_cache *kv = s->kv;
    int index = 0, left = VIEW_OWNED;
    for (const struct request *r = s->running.head; r && left > 0; r = r->next, index++)
        for (int g = 0; g < kv->config.num_groups; g++) {
            const struct block_table *t = &r->seq.tables[g];
            for (int i = t->first; i < r->seq.len && left > 0; i++, left--)
                own_page(v, t->ids[i], index, r->id);
            own_page(v, t->live, index, r->id);
            own_page(v, t->saved, index, r->id);
        }
}

void engine_view_run(struct service_query *query, const struct service_inside *in) {
    struct engine_view *v = (struct engine_view *)query;
    const struct scheduler *s = in->sched;
    v->now = in->now;
    v->clock = in->kv->clock;
    v->stats = *in->stats;
    memcpy(v->groups, in->kv->config.groups, sizeof v->groups);
    v->num_running = s->running.len;
    v->num_waiting = s->waiting.len;
    for (const struct request *r = s->running.head; r && v->num_requests < VIEW_REQUESTS; r = r->next)
        add_request(v, s->kv, r, true);
    for (const struct request *r = s->waiting.head; r && v->num_requests < VIEW_REQUESTS; r = r->next)
        add_request(v, s->kv, r, false);
    uint64_t n = in->num_steps < VIEW_STEPS ? in->num_steps : VIEW_STEPS;
    for (uint64_t i = 0; i < n; i++)
        v->steps[v->num_steps++] = in->steps[(in->num_steps - n + i) % VIEW_STEPS];
    if (v->pages)
        copy_pages(v, in->kv);
    if (v->pages || v->page >= 0)
        own_pages(v, s);
    if (v->page >= 0 && in->kv->blocks[v->page].published) {
        size_t size = (size_t)in->kv->config.block_size;
        memcpy(v->tokens, in->kv->tokens + (size_t)v->page * size, size * sizeof *v->tokens);
        for (size_t i = 0; i < size; i++)
            v->tokens[i] = v->tokens[i] < 0 ? -1 : v->tokens[i];
        v->has_tokens = true;
    }
}
