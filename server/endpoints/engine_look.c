#include "engine_look.h"

#include "engine_view.h"
#include "tokenizer.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAGES_PATH "/engine/pages/"

// Values of ?pages=; 1 is all of them.
enum {
    SHOW_STATE = 1,
    SHOW_GROUP = 2,
    SHOW_REFS = 4,
    SHOW_OWNER = 8,
    SHOW_PARENT = 16,
    SHOW_AGE = 32,
    SHOW_ALL = 63
};
static const char *const show_names[] = {"state", "group", "refs", "owner", "parent", "age"};

enum { LABEL = 132, MAX_CHILDREN = 64, RATE_SECONDS = 10 };

struct look {
    struct exchange exchange; // first
    struct engine_view view;
    const struct engine_info *info;
    const struct tokenizer *tokenizer;
    const char *model;
    int64_t uptime; // s
    int show;
    bool one, admin; // one page; its text may be seen
    uint8_t tenant[SHA256_BYTES];
    char (*labels)[2][LABEL]; // (view.num_requests) the client's id and the adapter
};

static double seconds(int64_t ns) { return ns > 0 ? (double)ns / 1e9 : 0; }

static bool begin_look(struct exchange *x, struct api_error *e) {
    struct look *l = (struct look *)x;
    struct app *app = x->app;
    const struct http_request *request = x->http;
    l->info = engine_info(app->engine);
    l->tokenizer = app->model.tokenizer;
    l->model = app->names.items[0];
    l->uptime = (int64_t)time(NULL) - app->created;
    l->admin = app_is_admin(app, &request->head);
    app_tenant(app, &request->head, l->tenant);
    l->view.page = -1;
    l->view.num_pages = l->info->num_blocks;
    const char *at = strstr(request->path, PAGES_PATH), *show = http_query(request, "pages");
    if (at) {
        char *end;
        long page = strtol(at + strlen(PAGES_PATH), &end, 10);
        if (end == at + strlen(PAGES_PATH) || *end || page < 0 || page >= l->view.num_pages)
            return api_fail(e, 404, "page_not_found", NULL, "The pool has the pages 0 to %d.",
                            l->view.num_pages - 1);
        l->one = true;
        l->view.page = (int)page;
        l->show = SHOW_PARENT;
        if (!(l->view.tokens = calloc((size_t)l->info->block_size, sizeof *l->view.tokens)))
            return api_fail_memory(e);
    } else if (show && strcmp(show, "1") == 0) {
        l->show = SHOW_ALL;
    } else if (show && *show && strcmp(show, "0") != 0) {
        while (*show) {
            size_t n = strcspn(show, ","), i = 0;
            while (i < sizeof show_names / sizeof *show_names &&
                   !(strlen(show_names[i]) == n && memcmp(show, show_names[i], n) == 0))
                i++;
            if (i == sizeof show_names / sizeof *show_names)
                return api_fail(e, 400, NULL, "pages",
                                "'pages' is 0, 1 or a list of state, group, refs, owner, parent, age.");
            l->show |= 1 << i;
            show += n + (show[n] == ',');
        }
    }
    if (l->show && !(l->view.pages = calloc((size_t)l->view.num_pages, sizeof *l->view.pages)))
        return api_fail_memory(e);
    x->large = l->show != 0;
    l->view.query.run = engine_view_run;
    x->query = &l->view.query;
    return true;
}

// Ids of clients are told to themselves and to admins.
static void label_requests(struct exchange *x, struct engine_request *r, struct service_event *ev) {
    (void)r, (void)ev;
    struct look *l = (struct look *)x;
    l->labels = calloc((size_t)l->view.num_requests + 1, sizeof *l->labels);
    for (int i = 0; l->labels && i < l->view.num_requests; i++) {
        struct exchange_label label;
        if (!exchange_label(x->app, l->view.requests[i].id, &label))
            continue;
        if (l->admin || memcmp(label.tenant, l->tenant, SHA256_BYTES) == 0)
            snprintf(l->labels[i][0], LABEL, "%s", label.request_id);
        snprintf(l->labels[i][1], LABEL, "%s", label.adapter);
    }
}

static void write_string(struct buf *b, const char *s) { json_quote(b, s, strlen(s)); }

static const char *kind_name(enum kv_kind kind) {
    return kind == KV_FULL ? "full" : kind == KV_WINDOW ? "window" : "state";
}

// ---- the prefix tree

struct page_index { // published pages by hash and group: open addressing
    int32_t *slots; // -1: free
    size_t mask;
};

static bool index_pages(struct page_index *x, const struct engine_view *v) {
    size_t size = 16;
    while (size < 2 * (size_t)v->num_pages)
        size *= 2;
    x->mask = size - 1;
    if (!(x->slots = malloc(size * sizeof *x->slots)))
        return false;
    memset(x->slots, 0xff, size * sizeof *x->slots);
    for (int32_t i = 0; i < v->num_pages; i++) {
        size_t at = v->pages[i].hash & x->mask;
        if (!v->pages[i].hash)
            continue;
        while (x->slots[at] >= 0)
            at = (at + 1) & x->mask;
        x->slots[at] = i;
    }
    return true;
}

// The page before page i in the prefix tree of its group; -1: it is a root, or that page is gone.
static int32_t parent_of(const struct page_index *x, const struct engine_view *v, int i) {
    const struct view_page *p = &v->pages[i];
    for (size_t at = p->parent & x->mask; p->parent && x->slots[at] >= 0; at = (at + 1) & x->mask) {
        const struct view_page *q = &v->pages[x->slots[at]];
        if (q->hash == p->parent && q->group == p->group)
            return x->slots[at];
    }
    return -1;
}

// ---- pages

static void put_bytes(unsigned char *at, uint32_t value, int bytes) {
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

static uint32_t page_value(const struct look *l, const struct page_index *x, int i, int show) {
    const struct view_page *p = &l->view.pages[i];
    switch (show) {
    case SHOW_STATE: return p->state;
    case SHOW_GROUP: return p->group;
    case SHOW_REFS: return p->refs < 255 ? (uint32_t)p->refs : 255;
    case SHOW_OWNER: return p->owner;
    case SHOW_PARENT: return (uint32_t)parent_of(x, &l->view, i);
    default: return l->view.clock - p->touched; // SHOW_AGE
    }
}

static bool write_pages(const struct look *l, struct buf *b) {
    static const int sizes[] = {1, 1, 1, 2, 4, 4};
    const struct engine_view *v = &l->view;
    struct page_index x = {0};
    unsigned char *bytes = malloc((size_t)v->num_pages * 4);
    bool ok = bytes && (!(l->show & SHOW_PARENT) || index_pages(&x, v));
    buf_fmt(b, ",\"pages\":{\"count\":%d", v->num_pages);
    for (int k = 0; ok && 1 << k <= SHOW_ALL; k++) {
        if (!(l->show & 1 << k))
            continue;
        for (int i = 0; i < v->num_pages; i++)
            put_bytes(bytes + (size_t)i * (size_t)sizes[k], page_value(l, &x, i, 1 << k), sizes[k]);
        buf_fmt(b, ",\"%s\":\"", show_names[k]);
        buf_base64(b, bytes, (size_t)v->num_pages * (size_t)sizes[k]);
        buf_char(b, '"');
    }
    buf_char(b, '}');
    free(bytes);
    free(x.slots);
    return ok;
}

static bool write_page(const struct look *l, struct buf *b) {
    static const char *const states[] = {"free", "cached", "active"};
    const struct engine_view *v = &l->view;
    const struct view_page *p = &v->pages[v->page];
    struct page_index x = {0};
    int depth = 0;
    if (!index_pages(&x, v))
        return false;
    int32_t parent = parent_of(&x, v, v->page);
    for (int32_t i = parent; i >= 0 && depth < v->num_pages; i = parent_of(&x, v, i))
        depth++;
    buf_fmt(
        b,
        "{\"object\":\"engine.page\",\"page\":%d,\"state\":\"%s\",\"group\":%d,\"kind\":\"%s\",\"refs\":%d,",
        v->page, states[p->state], p->group, kind_name(v->groups[p->group].kind), (int)p->refs);
    buf_fmt(b, "\"age_s\":%.1f,\"hash\":", (double)(v->clock - p->touched) * VIEW_CLOCK_NS / 1e9);
    if (p->hash)
        buf_fmt(b, "\"%016llx\"", (unsigned long long)p->hash);
    else
        buf_lit(b, "null");
    buf_lit(b, ",\"parent\":");
    if (parent >= 0)
        buf_int(b, parent);
    else
        buf_lit(b, "null");
    buf_fmt(b, ",\"depth\":%d,\"owners\":[", depth);
    for (int i = 0; i < v->num_owners; i++)
        buf_fmt(b, "%s%llu", i ? "," : "", (unsigned long long)v->owners[i]);
    buf_lit(b, "],\"children\":[");
    for (int i = 0, n = 0; p->hash && i < v->num_pages && n < MAX_CHILDREN; i++)
        if (v->pages[i].parent == p->hash && v->pages[i].group == p->group)
            buf_fmt(b, "%s%d", n++ ? "," : "", i);
    buf_fmt(b, "],\"tokens\":%d,\"text\":", v->has_tokens ? l->info->block_size : 0);
    struct buf text = {0};
    if (l->admin && v->has_tokens) {
        for (int i = 0; i < l->info->block_size; i++) {
            size_t n;
            const char *bytes = tokenizer_bytes(l->tokenizer, v->tokens[i], true, &n);
            buf_add(&text, bytes, n);
        }
        json_quote(b, text.data ? text.data : "", text.len);
    } else {
        buf_lit(b, "null");
    }
    b->failed |= text.failed;
    buf_free(&text);
    buf_char(b, '}');
    free(x.slots);
    return true;
}

// ---- requests and steps

static void write_requests(const struct look *l, struct buf *b) {
    const struct engine_view *v = &l->view;
    buf_lit(b, ",\"requests\":[");
    for (int i = 0; i < v->num_requests; i++) {
        const struct view_request *r = &v->requests[i];
        double decode = r->first_token ? seconds(v->now - r->first_token) : 0;
        const char *state = !r->running         ? r->num_preemptions ? "preempted" : "waiting"
                            : r->num_output > 0 ? "decode"
                                                : "prefill";
        buf_fmt(b, "%s{\"id\":%llu,\"request_id\":", i ? "," : "", (unsigned long long)r->id);
        write_string(b, l->labels ? l->labels[i][0] : "");
        buf_fmt(
            b,
            ",\"state\":\"%s\",\"priority\":%d,\"prompt_tokens\":%d,\"computed_tokens\":%d,"
            "\"generated_tokens\":%d,\"cached_tokens\":%d,\"tokens_per_s\":%.2f,\"age_s\":%.3f,"
            "\"queued_s\":%.3f,\"first_token_s\":%.3f,\"pages\":%d,\"preemptions\":%d,\"adapter\":",
            state, r->priority, r->num_prompt, r->num_computed, r->num_output,
            r->num_cached > 0 ? r->num_cached : 0, decode > 0 ? r->num_output / decode : 0,
            seconds(v->now - r->submitted), seconds((r->scheduled ? r->scheduled : v->now) - r->submitted),
            r->first_token ? seconds(r->first_token - r->submitted) : 0, r->num_pages, r->num_preemptions);
        if (l->labels && *l->labels[i][1])
            write_string(b, l->labels[i][1]);
        else
            buf_lit(b, "null");
        buf_char(b, '}');
    }
    buf_char(b, ']');
}

static void write_steps(const struct engine_view *v, struct buf *b) {
    int64_t since = v->now, prompt = 0, generated = 0;
    int steps = 0;
    for (int i = v->num_steps; i-- > 0 && v->now - v->steps[i].began <= RATE_SECONDS * 1000000000LL;) {
        since = v->steps[i].began;
        prompt += v->steps[i].num_tokens - v->steps[i].num_decode;
        generated += v->steps[i].num_generated;
        steps++;
    }
    double span = seconds(v->now - since);
    buf_fmt(b,
            ",\"throughput\":{\"seconds\":%.3f,\"prompt_tokens_per_s\":%.2f,\"generated_tokens_per_s\":%.2f,"
            "\"steps_per_s\":%.2f}",
            span, span > 0 ? (double)prompt / span : 0, span > 0 ? (double)generated / span : 0,
            span > 0 ? steps / span : 0);
    buf_lit(
        b,
        ",\"steps\":{\"fields\":[\"id\",\"age_ms\",\"schedule_us\",\"execute_us\",\"update_us\",\"requests\","
        "\"decode_tokens\",\"prefill_tokens\",\"generated_tokens\"],\"rows\":[");
    for (int i = 0; i < v->num_steps; i++) {
        const struct view_step *s = &v->steps[i];
        buf_fmt(b, "%s[%llu,%.1f,%.0f,%.0f,%.0f,%d,%d,%d,%d]", i ? "," : "", (unsigned long long)s->id,
                seconds(v->now - s->applied) * 1e3, seconds(s->launched - s->began) * 1e6,
                seconds(s->computed - s->launched) * 1e6, seconds(s->applied - s->computed) * 1e6,
                s->num_requests, s->num_decode, s->num_tokens - s->num_decode, s->num_generated);
    }
    buf_lit(b, "]}");
}

// The served model, and the bytes that it holds as long as it is.
static void write_model(const struct engine_info *info, struct buf *b) {
    buf_lit(b, ",\"facts\":{\"architecture\":");
    write_string(b, info->model.arch);
    buf_fmt(b, ",\"parameters\":%llu,\"layers\":%d,\"vocabulary\":%d,\"weights\":",
            (unsigned long long)info->num_params, info->model.num_layers, info->model.vocab);
    write_string(b, info->weights_dtype);
    buf_lit(b, ",\"cache\":");
    write_string(b, info->kv_dtype);
    buf_lit(b, ",\"device\":");
    write_string(b, info->device);
    buf_fmt(b, "},\"memory\":{\"weight_bytes\":%llu,\"cache_bytes\":%llu}",
            (unsigned long long)info->weight_bytes, (unsigned long long)info->kv_bytes);
}

static void write_head(const struct look *l, struct buf *b) {
    const struct engine_view *v = &l->view;
    const struct service_stats *s = &v->stats;
    const struct engine_info *info = l->info;
    buf_lit(b, "{\"object\":\"engine\",\"model\":");
    write_string(b, l->model);
    buf_fmt(b,
            ",\"uptime_s\":%lld,\"limits\":{\"max_num_seqs\":%d,\"max_num_batched_tokens\":%d,"
            "\"max_model_len\":%d,\"pages\":%d,\"page_tokens\":%d}",
            (long long)l->uptime, info->max_num_seqs, info->max_num_batched_tokens, info->max_model_len,
            info->num_blocks, info->block_size);
    write_model(info, b);
    buf_lit(b, ",\"groups\":[");
    int used = 0;
    for (int g = 0; g < s->num_groups; g++) {
        const struct kv_group_spec *spec = &v->groups[g];
        buf_fmt(b, "%s{\"kind\":\"%s\",\"window\":%d,\"layers\":%d,\"active\":%d,\"cached\":%d}",
                g ? "," : "", kind_name(spec->kind), spec->kind == KV_WINDOW ? spec->window : 0,
                spec->num_layers, s->active_pages[g], s->cached_pages[g]);
        used += s->active_pages[g] + s->cached_pages[g];
    }
    buf_fmt(b,
            "],\"free_pages\":%d,\"queue\":{\"running\":%d,\"waiting\":%d,\"deferred\":%d,\"waiting_tokens\":"
            "%lld}",
            info->num_blocks - used, v->num_running, v->num_waiting, s->waiting_deferred,
            (long long)s->waiting_tokens);
    buf_fmt(b,
            ",\"totals\":{\"steps\":%llu,\"prompt_tokens\":%llu,\"generated_tokens\":%llu,\"prefix_queries\":"
            "%llu,"
            "\"prefix_hits\":%llu,\"preemptions\":%llu,\"evictions\":%llu}",
            (unsigned long long)s->steps, (unsigned long long)s->prompt_tokens,
            (unsigned long long)s->generation_tokens, (unsigned long long)s->prefix_queries,
            (unsigned long long)s->prefix_hits, (unsigned long long)s->preemptions,
            (unsigned long long)s->evictions);
}

// The store behind the cache.
static void write_store(const struct service_stats *s, struct buf *b) {
    const struct kv_store_stats *d = &s->store;
    if (!d->where) {
        buf_lit(b, ",\"store\":null");
        return;
    }
    buf_fmt(
        b,
        ",\"store\":{\"where\":\"%s\",\"pages\":%lld,\"bytes\":%lld,\"max_bytes\":%lld,\"hit_tokens\":%llu,"
        "\"reads\":%llu,\"writes\":%llu,\"corrupt\":%llu,\"failed\":%llu}",
        d->where, (long long)d->pages, (long long)d->bytes, (long long)d->max_bytes,
        (unsigned long long)s->tiers.hit_tokens, (unsigned long long)d->reads, (unsigned long long)d->writes,
        (unsigned long long)d->corrupt, (unsigned long long)d->failed);
}

static bool write_look(struct exchange *x, struct buf *b, struct api_error *e) {
    const struct look *l = (struct look *)x;
    bool ok = true;
    if (l->one) {
        ok = write_page(l, b);
    } else {
        write_head(l, b);
        write_store(&l->view.stats, b);
        write_requests(l, b);
        write_steps(&l->view, b);
        if (l->show)
            ok = write_pages(l, b);
        buf_char(b, '}');
    }
    return ok ? true : api_fail_memory(e);
}

static void free_look(struct exchange *x) {
    struct look *l = (struct look *)x;
    free(l->view.pages);
    free(l->view.tokens);
    free(l->labels);
}

const struct exchange_kind engine_look = {.size = sizeof(struct look),
                                          .begin = begin_look,
                                          .answered = label_requests,
                                          .finish = write_look,
                                          .done = free_look};
