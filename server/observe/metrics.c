#include "metrics.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

// vLLM V1's buckets. The list of inter-token latencies is vLLM's older one of time_per_output_token_seconds,
// with finer steps at the low end, because a small model on a CPU takes under 10 ms.
static const double seconds_first[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                       1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
static const double seconds_token[] = {.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3,
                                       .4,   .5,    .75,  1,   2.5,  5,   7.5,  10, 20,  40, 80};
static const double seconds_request[] = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                         30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
static const double tokens[] = {1,    2,    5,    10,    20,    50,    100,    200,    500,
                                1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000};
static const double choices[] = {1, 2, 5, 10, 20};

#define N(a) (int)(sizeof(a) / sizeof((a)[0]))
static const struct {
    const char *name, *help;
    const double *edges;
    int num_edges;
} histograms[M_COUNT] = {
    [M_TTFT] = {"time_to_first_token_seconds", "Time from request to first token.", seconds_first,
                N(seconds_first)},
    [M_INTER_TOKEN] = {"inter_token_latency_seconds", "Time between two tokens.", seconds_token,
                       N(seconds_token)},
    [M_PER_TOKEN] = {"request_time_per_output_token_seconds",
                     "Mean time per token after the first, by request.", seconds_token, N(seconds_token)},
    [M_E2E] = {"e2e_request_latency_seconds", "Time from request to last token.", seconds_request,
               N(seconds_request)},
    [M_QUEUE] = {"request_queue_time_seconds", "Time in the queue.", seconds_request, N(seconds_request)},
    [M_INFERENCE] = {"request_inference_time_seconds", "Time from first step to last token.", seconds_request,
                     N(seconds_request)},
    [M_PREFILL] = {"request_prefill_time_seconds", "Time from first step to first token.", seconds_request,
                   N(seconds_request)},
    [M_DECODE] = {"request_decode_time_seconds", "Time from first to last token.", seconds_request,
                  N(seconds_request)},
    [M_PROMPT_TOKENS] = {"request_prompt_tokens", "Tokens of the prompt.", tokens, N(tokens)},
    [M_GENERATION_TOKENS] = {"request_generation_tokens", "Tokens generated.", tokens, N(tokens)},
    [M_PARAM_N] = {"request_params_n", "The parameter n.", choices, N(choices)},
    [M_PARAM_MAX_TOKENS] = {"request_params_max_tokens", "The parameter max_tokens.", tokens, N(tokens)},
    [M_MAX_GENERATION_TOKENS] = {"request_max_num_generation_tokens",
                                 "Tokens of the longest choice of a request.", tokens, N(tokens)},
    [M_PREFILL_TOKENS] = {"request_prefill_kv_computed_tokens", "Prompt tokens that were not cached.", tokens,
                          N(tokens)},
};
_Static_assert(N(seconds_first) < METRICS_MAX_BUCKETS && N(seconds_token) < METRICS_MAX_BUCKETS,
               "room for +Inf");

static const char *const part_names[STEP_PARTS] = {"plan", "execute", "apply", "draft"};

static const int statuses[] = {200, 204, 400, 401, 403, 404, 405, 413, 415,
                               417, 429, 499, 500, 501, 503, 504, 529, 0};

void metrics_observe(struct metrics *m, enum metrics_histogram which, double value) {
    struct histogram *h = &m->histograms[which];
    if (!isfinite(value) || value < 0)
        value = 0;
    int i = 0;
    while (i < histograms[which].num_edges && value > histograms[which].edges[i])
        i++;
    h->buckets[i]++;
    h->count++;
    h->sum += value;
}

static const char *const methods[METRICS_METHODS] = {"GET", "POST", "HEAD", "OPTIONS", "other"};
static const double durations[METRICS_DURATIONS - 1] = {.1, .5, 1};

void metrics_http(struct metrics *m, int route, const char *method, int status, double seconds) {
    int i = 0, k = 0, b = 0;
    while (i + 1 < N(statuses) && statuses[i] != status)
        i++;
    while (k + 1 < METRICS_METHODS && strcmp(methods[k], method) != 0)
        k++;
    while (b + 1 < METRICS_DURATIONS && seconds > durations[b])
        b++;
    struct http_times *t = &m->by_method[route][k];
    m->http[route][i]++;
    t->classes[status >= 100 && status < 600 ? status / 100 : 0]++;
    t->buckets[b]++;
    t->sum += seconds;
}

static void write_label(struct buf *out, const char *s) {
    for (; *s; s++) {
        if (*s == '\\' || *s == '"')
            buf_char(out, '\\');
        if (*s == '\n')
            buf_lit(out, "\\n");
        else
            buf_char(out, *s);
    }
}

struct writer {
    struct buf *out;
    const struct metrics_page *page;
    struct buf labels; // model_name="…",engine="0"
};

static void write_help(struct writer *w, const char *prefix, const char *name, const char *type,
                       const char *help) {
    buf_fmt(w->out, "# HELP %s:%s %s\n# TYPE %s:%s %s\n", prefix, name, help, prefix, name, type);
}

static void write_value(struct writer *w, const char *prefix, const char *name, const char *extra, double v) {
    buf_fmt(w->out, "%s:%s{", prefix, name);
    buf_add(w->out, w->labels.data, w->labels.len);
    buf_fmt(w->out, "%s} %.17g\n", extra, v);
}

static void write_single(struct writer *w, const char *prefix, const char *name, const char *type,
                         const char *help, double v) {
    write_help(w, prefix, name, type, help);
    write_value(w, prefix, name, "", v);
}

// label: ,name="value".
static void write_labelled(struct writer *w, const char *prefix, const char *name, const char *label,
                           const char *value, double v) {
    struct buf extra = {0};
    buf_fmt(&extra, ",%s=\"", label);
    write_label(&extra, value);
    buf_char(&extra, '"');
    const char *text = buf_cstr(&extra);
    write_value(w, prefix, name, text ? text : "", v);
    w->out->failed |= extra.failed;
    buf_free(&extra);
}

static void write_numbered(struct writer *w, const char *prefix, const char *name, const char *label, int i,
                           double v) {
    char text[16];
    snprintf(text, sizeof text, "%d", i);
    write_labelled(w, prefix, name, label, text, v);
}

// family: its name, or an older one.
static void write_histogram(struct writer *w, const struct metrics *m, int which, const char *family) {
    const struct histogram *h = &m->histograms[which];
    const char *ns = w->page->name_space;
    char name[96], extra[64];
    write_help(w, ns, family, "histogram", histograms[which].help);
    uint64_t sum = 0;
    snprintf(name, sizeof name, "%s_bucket", family);
    for (int i = 0; i <= histograms[which].num_edges; i++) {
        sum += h->buckets[i];
        if (i == histograms[which].num_edges)
            snprintf(extra, sizeof extra, ",le=\"+Inf\"");
        else
            snprintf(extra, sizeof extra, ",le=\"%.10g\"", histograms[which].edges[i]);
        write_value(w, ns, name, extra, (double)sum);
    }
    snprintf(name, sizeof name, "%s_sum", family);
    write_value(w, ns, name, "", h->sum);
    snprintf(name, sizeof name, "%s_count", family);
    write_value(w, ns, name, "", (double)h->count);
}

// As prometheus-fastapi-instrumentator names them, which vLLM uses: without a namespace, and with classes of
// statuses.
static void write_http(struct buf *out, const struct metrics *m, const struct metrics_page *page) {
    static const char help[] = "# HELP http_requests_total Responses.\n# TYPE http_requests_total counter\n";
    static const char name[] = "http_request_duration_seconds";
    buf_str(out, help);
    for (int r = 0; r < page->num_routes; r++)
        for (int k = 0; k < METRICS_METHODS; k++)
            for (int i = 0; i < 6; i++)
                if (m->by_method[r][k].classes[i])
                    buf_fmt(out, "http_requests_total{handler=\"%s\",method=\"%s\",status=\"%dxx\"} %llu\n",
                            page->route_name(r), methods[k], i,
                            (unsigned long long)m->by_method[r][k].classes[i]);
    buf_fmt(out, "# HELP %s Time from request line to the end of the response.\n# TYPE %s histogram\n", name,
            name);
    for (int r = 0; r < page->num_routes; r++)
        for (int k = 0; k < METRICS_METHODS; k++) {
            const struct http_times *t = &m->by_method[r][k];
            unsigned long long sum = 0;
            for (int b = 0; b < METRICS_DURATIONS; b++)
                sum += t->buckets[b];
            if (sum == 0)
                continue;
            char labels[96];
            snprintf(labels, sizeof labels, "handler=\"%s\",method=\"%s\"", page->route_name(r), methods[k]);
            buf_fmt(out, "%s_sum{%s} %.17g\n%s_count{%s} %llu\n", name, labels, t->sum, name, labels, sum);
            sum = 0;
            for (int b = 0; b < METRICS_DURATIONS - 1; b++)
                buf_fmt(out, "%s_bucket{%s,le=\"%g\"} %llu\n", name, labels, durations[b],
                        sum += (unsigned long long)t->buckets[b]);
            buf_fmt(out, "%s_bucket{%s,le=\"+Inf\"} %llu\n", name, labels,
                    sum + (unsigned long long)t->buckets[METRICS_DURATIONS - 1]);
        }
}

static void write_drafts(struct writer *w) {
    const struct service_stats *s = w->page->stats;
    const char *ns = w->page->name_space, *by_position = "spec_decode_num_accepted_tokens_per_pos_total";
    write_single(w, ns, "spec_decode_num_drafts_total", "counter", "Steps of a request that verified drafts.",
                 (double)s->drafts);
    write_single(w, ns, "spec_decode_num_draft_tokens_total", "counter", "Drafted tokens.",
                 (double)s->draft_tokens);
    write_single(w, ns, "spec_decode_num_accepted_tokens_total", "counter", "Drafted tokens that were right.",
                 (double)s->accepted);
    write_help(w, ns, by_position, "counter", "Those, by their position in the draft.");
    for (int i = 0; i < MAX_DRAFTS; i++)
        write_numbered(w, ns, by_position, "position", i, (double)s->accepted_at[i]);
}

// Adapters are named by who runs the server.
static void write_adapters(struct writer *w) {
    const struct metrics_page *page = w->page;
    const char *ns = page->name_space;
    struct buf extra = {0};
    buf_fmt(&extra, ",max_lora=\"%d\"", page->max_adapters);
    for (int running = 0; running < 2; running++) {
        bool more = false;
        buf_str(&extra, running ? ",running_lora_adapters=\"" : ",waiting_lora_adapters=\"");
        for (int i = 0; i < page->num_adapters; i++) {
            const struct metrics_adapter *a = &page->adapters[i];
            if (!(running ? a->running : a->waiting))
                continue;
            if (more)
                buf_char(&extra, ',');
            write_label(&extra, a->name);
            more = true;
        }
        buf_char(&extra, '"');
    }
    const char *text = buf_cstr(&extra);
    write_help(w, ns, "lora_requests_info", "gauge", "Adapters of the requests in progress; the time.");
    write_value(w, ns, "lora_requests_info", text ? text : "", (double)time(NULL));
    w->out->failed |= extra.failed;
    buf_free(&extra);
    write_help(w, "quire", "adapter_requests_total", "counter", "Requests by adapter.");
    for (int i = 0; i < page->num_adapters; i++)
        write_labelled(w, "quire", "adapter_requests_total", "adapter", page->adapters[i].name,
                       (double)page->adapters[i].requests);
}

static void write_pages(struct writer *w) {
    const struct metrics_page *page = w->page;
    const struct service_stats *s = page->stats;
    static const char *const kinds[] = {[KV_FULL] = "full", [KV_WINDOW] = "window", [KV_STATE] = "state"};
    int used = 0;
    write_help(w, "quire", "kv_pages", "gauge", "Pages of the cache by group of layers and state.");
    for (int g = 0; page->info && g < s->num_groups; g++) {
        const int counts[2] = {s->active_pages[g], s->cached_pages[g]};
        for (int i = 0; i < 2; i++) {
            char extra[80];
            snprintf(extra, sizeof extra, ",group=\"%d\",kind=\"%s\",state=\"%s\"", g,
                     kinds[page->info->model.groups[g].kind], i ? "cached" : "active");
            write_value(w, "quire", "kv_pages", extra, counts[i]);
            used += counts[i];
        }
    }
    write_value(w, "quire", "kv_pages", ",group=\"\",kind=\"\",state=\"free\"", s->num_blocks - used);
}

static void write_experts(struct writer *w) {
    const struct model_config *model = w->page->info ? &w->page->info->model : NULL;
    int all = 0, chosen = 0;
    for (int i = 0; model && i < model->num_ffn; i++)
        if (model->ffn[i].experts > all) {
            all = model->ffn[i].experts;
            chosen = model->ffn[i].top_k;
        }
    write_help(w, "quire", "experts", "gauge", "Experts of a layer, and how many a token takes.");
    write_labelled(w, "quire", "experts", "which", "all", all);
    write_labelled(w, "quire", "experts", "which", "chosen", chosen);
    const struct expert_counts *c = &w->page->stats->experts;
    write_single(w, "quire", "expert_rows_total", "counter",
                 "Rows that experts multiplied, all layers added up.", (double)c->rows);
    write_single(w, "quire", "expert_reads_total", "counter",
                 "Experts whose weights a step read for them, all layers added up.", (double)c->reads);
    write_single(w, "quire", "expert_busiest_rows_total", "counter",
                 "Rows of the expert of each layer and step that had the most.", (double)c->busiest);
}

// Keys by their place in the configuration: a key is no label.
static void write_census(struct writer *w) {
    static const char *const classes[METRICS_CLASSES] = {"urgent", "normal", "low"};
    const struct metrics_census *c = w->page->census;
    write_help(w, "quire", "requests", "gauge",
               "Requests in progress by class of priority, key, and whether output has begun.");
    for (int i = 0; i < METRICS_CLASSES; i++)
        for (int key = 0; key <= c->num_keys; key++)
            for (int k = 0; k < 2; k++) {
                char extra[80];
                snprintf(extra, sizeof extra, ",class=\"%s\",key=\"%d\",phase=\"%s\"", classes[i], key,
                         k ? "output" : "prompt");
                write_value(w, "quire", "requests", extra, c->open[i][key][k]);
            }
}

static void write_times(struct writer *w, const char *name, const char *help, const struct time_counts *c) {
    char full[64];
    double sum = 0;
    write_help(w, "quire", name, "histogram", help);
    for (int i = 0; i < TIME_BUCKETS; i++) {
        char le[32] = ",le=\"+Inf\"";
        if (i < TIME_BUCKETS - 1)
            snprintf(le, sizeof le, ",le=\"%g\"", time_bucket_bounds[i] / 1e6);
        sum += (double)c->buckets[i];
        snprintf(full, sizeof full, "%s_bucket", name);
        write_value(w, "quire", full, le, sum);
    }
    snprintf(full, sizeof full, "%s_sum", name);
    write_value(w, "quire", full, "", (double)c->ns / 1e9);
    snprintf(full, sizeof full, "%s_count", name);
    write_value(w, "quire", full, "", sum);
}

static void write_grammars(struct writer *w) {
    const struct constraint_counts *c = &w->page->grammars;
    write_help(w, "quire", "grammars_total", "counter",
               "Schemas and grammars that requests asked for: compiled, found compiled, refused.");
    write_labelled(w, "quire", "grammars_total", "result", "compiled", (double)c->compiled);
    write_labelled(w, "quire", "grammars_total", "result", "cached", (double)c->cached);
    write_labelled(w, "quire", "grammars_total", "result", "refused", (double)c->refused);
}

static void write_spans(struct writer *w) {
    const struct otlp_counts *c = &w->page->spans;
    write_help(w, "quire", "trace_spans_total", "counter",
               "Spans of requests: sent, refused by the collector, dropped because it did not keep up.");
    write_labelled(w, "quire", "trace_spans_total", "result", "sent", (double)c->sent);
    write_labelled(w, "quire", "trace_spans_total", "result", "refused", (double)c->refused);
    write_labelled(w, "quire", "trace_spans_total", "result", "dropped", (double)c->dropped);
}

static void write_stored(struct writer *w) {
    const struct metrics_stored *s = &w->page->stored;
    if (!s->on)
        return;
    write_single(w, "quire", "stored_responses", "gauge", "Responses that are kept.", (double)s->num);
    write_single(w, "quire", "stored_response_bytes", "gauge", "Their bytes, of those of --store.",
                 (double)s->bytes);
    if (!s->has_files)
        return;
    write_single(w, "quire", "unsaved_responses_total", "counter",
                 "Responses that could not be written to --store-dir.", (double)s->unsaved);
    write_single(w, "quire", "skipped_response_files", "gauge",
                 "Files of --store-dir that were damaged or others' at the start.", (double)s->skipped_files);
}

static void write_process_value(struct buf *out, const char *name, const char *type, const char *help,
                                double v) {
    buf_fmt(out, "# HELP process_%s %s\n# TYPE process_%s %s\nprocess_%s %.17g\n", name, help, name, type,
            name, v);
}

static int count_descriptors(void) {
    int n = -3; // ".", ".." and the one that reads
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n > 0 ? n : 0;
}

// As Prometheus' client libraries name them.
static void write_process(struct buf *out, const struct metrics_page *page) {
    struct timespec cpu;
    struct rlimit files = {0};
    long pages[2] = {0};
    double page_size = (double)sysconf(_SC_PAGESIZE);
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%ld %ld", &pages[0], &pages[1]) != 2)
        pages[0] = pages[1] = 0;
    if (f)
        fclose(f);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    getrlimit(RLIMIT_NOFILE, &files);
    write_process_value(out, "cpu_seconds_total", "counter", "CPU time.",
                        (double)cpu.tv_sec + (double)cpu.tv_nsec / 1e9);
    write_process_value(out, "resident_memory_bytes", "gauge", "Memory in use.",
                        (double)pages[1] * page_size);
    write_process_value(out, "virtual_memory_bytes", "gauge", "Address space.", (double)pages[0] * page_size);
    write_process_value(out, "start_time_seconds", "gauge", "When the server started, since 1970.",
                        page->start_time);
    write_process_value(out, "open_fds", "gauge", "Open file descriptors.", count_descriptors());
    write_process_value(out, "max_fds", "gauge", "File descriptors that it may have.",
                        (double)files.rlim_cur);
}

// Boards of vLLM ask for these, which never change here: no sleep mode, no cache of other servers or of images.
static void write_constants(struct writer *w) {
    static const char *const counters[] = {"external_prefix_cache_queries_total",
                                           "external_prefix_cache_hits_total", "mm_cache_queries_total",
                                           "mm_cache_hits_total"};
    const char *ns = w->page->name_space;
    write_help(w, ns, "engine_sleep_state", "gauge", "Always awake.");
    write_labelled(w, ns, "engine_sleep_state", "sleep_state", "awake", 1);
    write_labelled(w, ns, "engine_sleep_state", "sleep_state", "weights_offloaded", 0);
    write_labelled(w, ns, "engine_sleep_state", "sleep_state", "discard_all", 0);
    for (int i = 0; i < N(counters); i++)
        write_single(w, ns, counters[i], "counter", "There is no such cache.", 0);
}

static void write_queue(struct writer *w) {
    const struct service_stats *s = w->page->stats;
    const char *ns = w->page->name_space;
    write_single(w, ns, "num_requests_running", "gauge", "Requests in the running batch.", s->running);
    write_single(w, ns, "num_requests_waiting", "gauge", "Requests in the queue.", s->waiting);
    int deferred = s->waiting_deferred < s->waiting ? s->waiting_deferred : s->waiting;
    write_help(w, ns, "num_requests_waiting_by_reason", "gauge",
               "Requests in the queue: for room, or for a block that another computes.");
    write_value(w, ns, "num_requests_waiting_by_reason", ",reason=\"capacity\"", s->waiting - deferred);
    write_value(w, ns, "num_requests_waiting_by_reason", ",reason=\"deferred\"", deferred);
    write_single(w, ns, "kv_cache_usage_perc", "gauge", "Share of cache blocks in use; 1 is all.",
                 s->num_blocks ? (double)(s->num_blocks - s->free_blocks) / s->num_blocks : 0);
}

static void write_tokens(struct writer *w) {
    const struct service_stats *s = w->page->stats;
    const char *ns = w->page->name_space;
    write_single(w, ns, "num_preemptions_total", "counter", "Requests preempted.", (double)s->preemptions);
    write_single(w, ns, "prefix_cache_queries_total", "counter", "Tokens looked up in the prefix cache.",
                 (double)s->prefix_queries);
    write_single(w, ns, "prefix_cache_hits_total", "counter", "Tokens found there.", (double)s->prefix_hits);
    write_single(w, ns, "prompt_tokens_total", "counter",
                 "Prompt tokens of requests that began, cached ones included.", (double)s->prompt_tokens);
    uint64_t cached = s->prefix_hits < s->prompt_tokens ? s->prefix_hits : s->prompt_tokens;
    write_single(w, ns, "prompt_tokens_cached_total", "counter", "Those of them that were cached.",
                 (double)cached);
    write_help(w, ns, "prompt_tokens_by_source_total", "counter", "All of them, by where they came from.");
    write_value(w, ns, "prompt_tokens_by_source_total", ",source=\"local_compute\"",
                (double)(s->prompt_tokens - cached));
    uint64_t fetched = s->tiers.hit_tokens < cached ? s->tiers.hit_tokens : cached;
    write_value(w, ns, "prompt_tokens_by_source_total", ",source=\"local_cache_hit\"",
                (double)(cached - fetched));
    write_value(w, ns, "prompt_tokens_by_source_total", ",source=\"external_kv_transfer\"", (double)fetched);
    write_single(w, ns, "generation_tokens_total", "counter", "Tokens generated.",
                 (double)s->generation_tokens);
}

static void write_ends(struct writer *w, const struct metrics *m) {
    const struct service_stats *s = w->page->stats;
    const char *ns = w->page->name_space;
    write_help(w, ns, "request_success_total", "counter", "Requests ended, by reason.");
    for (int i = FINISH_STOP; i <= FINISH_ERROR; i++) {
        static const char *const names[] = {"", "stop", "length", "abort", "error"};
        char extra[48];
        snprintf(extra, sizeof extra, ",finished_reason=\"%s\"", names[i]);
        write_value(w, ns, "request_success_total", extra, (double)m->finished[i]);
    }
    for (int i = 0; i < M_COUNT; i++)
        write_histogram(w, m, i, histograms[i].name);
    write_histogram(w, m, M_INTER_TOKEN, "time_per_output_token_seconds"); // as boards for older versions ask
    write_single(w, ns, "corrupted_requests_total", "counter", "Requests whose logits were not finite.",
                 (double)s->corrupted);
    write_help(w, ns, "admission_rejections_total", "counter",
               "Requests refused because the queue was full.");
    write_labelled(w, ns, "admission_rejections_total", "reason", "max_num_queued_reqs",
                   (double)m->rejected[0]);
    write_labelled(w, ns, "admission_rejections_total", "reason", "max_num_queued_tokens",
                   (double)m->rejected[1]);
}

static void write_steps(struct writer *w) {
    const struct service_stats *s = w->page->stats;
    const char *ns = w->page->name_space;
    write_help(w, ns, "iteration_tokens_total", "histogram", "Tokens of a step.");
    double steps = 0;
    for (int i = 0; i < STEP_BUCKETS; i++) {
        char le[24] = ",le=\"+Inf\"";
        if (i < STEP_BUCKETS - 1)
            snprintf(le, sizeof le, ",le=\"%d.0\"", step_bucket_bounds[i]);
        steps += (double)s->step_buckets[i];
        write_value(w, ns, "iteration_tokens_total_bucket", le, steps);
    }
    write_value(w, ns, "iteration_tokens_total_sum", "", (double)s->step_tokens_sum);
    write_value(w, ns, "iteration_tokens_total_count", "", (double)s->steps);
}

static void write_cache_config(struct writer *w) {
    const struct metrics_page *page = w->page;
    const char *ns = w->page->name_space;
    if (!page->info)
        return;
    char extra[160];
    snprintf(extra, sizeof extra,
             ",block_size=\"%d\",num_gpu_blocks=\"%d\",cache_dtype=\"%s\",enable_prefix_caching=\"%s\"",
             page->info->block_size, page->info->num_blocks, page->info->kv_dtype,
             page->prefix_caching ? "True" : "False");
    write_help(w, ns, "cache_config_info", "gauge", "How the cache is configured.");
    write_value(w, ns, "cache_config_info", extra, 1);
}

static void write_engine(struct writer *w) {
    const struct service_stats *s = w->page->stats;
    const char *q = "quire";
    if (w->page->info) {
        write_help(w, q, "device_info", "gauge", "What computes.");
        write_labelled(w, q, "device_info", "device", w->page->info->device, 1);
    }
    write_help(w, q, "step_seconds_total", "counter", "Time of steps, by part.");
    for (int i = 0; i < STEP_PARTS; i++)
        write_labelled(w, q, "step_seconds_total", "part", part_names[i], (double)s->part_ns[i] / 1e9);
    write_single(w, q, "recomputed_tokens_total", "counter", "Tokens computed again after a preemption.",
                 (double)s->lost);
    write_experts(w);
    write_single(w, q, "steps_total", "counter", "Steps of the engine.", (double)s->steps);
    write_single(w, q, "evictions_total", "counter", "Cache entries lost to reuse.", (double)s->evictions);
    write_single(w, q, "held_total", "counter", "Times a request waited for a block that another computed.",
                 (double)s->deferred);
    write_single(w, q, "waiting_tokens", "gauge", "Prompt tokens in the queue.", (double)s->waiting_tokens);
}

// Pages of the prefix cache beyond memory. Without a store none of these is there.
static void write_store(struct writer *w) {
    const struct kv_store_stats *d = &w->page->stats->store;
    const struct tier_counts *t = &w->page->stats->tiers;
    const char *q = "quire";
    if (!d->where)
        return;
    if (d->max_bytes > 0) { // a server has metrics of its own
        write_single(w, q, "kv_store_bytes", "gauge", "Bytes of all pages in the store.", (double)d->bytes);
        write_single(w, q, "kv_store_max_bytes", "gauge", "Bytes that they may take.", (double)d->max_bytes);
        write_single(w, q, "kv_store_pages", "gauge", "Pages of this model in the store.", (double)d->pages);
    }
    write_single(w, q, "kv_store_hit_tokens_total", "counter", "Prompt tokens that came from the store.",
                 (double)t->hit_tokens);
    write_single(w, q, "kv_store_reads_total", "counter", "Pages read.", (double)d->reads);
    write_single(w, q, "kv_store_writes_total", "counter", "Pages written.", (double)d->writes);
    write_help(w, q, "kv_store_seconds_total", "counter", "Time of transfers, in threads of their own.");
    write_labelled(w, q, "kv_store_seconds_total", "way", "read", (double)d->read_ns / 1e9);
    write_labelled(w, q, "kv_store_seconds_total", "way", "write", (double)d->write_ns / 1e9);
    write_single(w, q, "kv_store_corrupt_total", "counter", "Pages whose checksum or tokens were wrong.",
                 (double)d->corrupt);
    write_single(w, q, "kv_store_failed_total", "counter", "Transfers that failed.", (double)d->failed);
    write_single(w, q, "kv_store_skipped_total", "counter", "Pages evicted before they were written.",
                 (double)t->skipped);
    write_single(w, q, "kv_store_fetches_total", "counter", "Requests that waited for pages.",
                 (double)t->fetches);
    write_single(w, q, "kv_store_late_fetches_total", "counter", "Those for which one took over two seconds.",
                 (double)t->late_fetches);
}

static void write_loop(struct writer *w, const struct metrics *m) {
    const struct metrics_page *page = w->page;
    const char *q = "quire";
    write_single(w, q, "loop_cpu_seconds_total", "counter", "CPU time of the loop thread.",
                 page->loop_cpu_seconds);
    write_single(w, q, "connections", "gauge", "Open connections.", page->connections);
    write_single(w, q, "streams", "gauge", "Completions in progress.", page->streams);
    write_single(w, q, "stalled_streams_total", "counter",
                 "Completions aborted because their reader stood still.", (double)m->stalled);
    write_single(w, q, "disconnects_total", "counter",
                 "Clients that left before their response was complete.", (double)m->disconnects);
    write_help(w, q, "http_requests_total", "counter", "HTTP responses by route and status.");
    for (int r = 0; r < page->num_routes; r++)
        for (int i = 0; i < N(statuses); i++)
            if (m->http[r][i]) {
                char extra[96];
                snprintf(extra, sizeof extra, ",route=\"%s\",status=\"%d\"", page->route_name(r),
                         statuses[i]);
                write_value(w, q, "http_requests_total", extra, (double)m->http[r][i]);
            }
}

void metrics_write(const struct metrics *m, const struct metrics_page *page, struct buf *out) {
    struct writer writer = {.out = out, .page = page}, *w = &writer;
    const struct service_stats *s = page->stats;
    buf_lit(&w->labels, "model_name=\"");
    write_label(&w->labels, page->model);
    buf_lit(&w->labels, "\",engine=\"0\"");

    write_queue(w);
    write_tokens(w);
    write_ends(w, m);
    write_drafts(w);
    write_adapters(w);
    write_steps(w);
    write_cache_config(w);
    write_constants(w);
    write_pages(w);
    write_census(w);
    write_times(w, "cancel_latency_seconds", "Time from a cancellation until the request's blocks are free.",
                &s->cancels);
    write_times(w, "mask_seconds", "Time that the masks of a step take, where outputs are constrained.",
                &s->masks);
    write_grammars(w);
    write_spans(w);
    write_stored(w);
    write_engine(w);
    write_store(w);
    write_loop(w, m);
    write_http(out, m, page);
    write_process(out, page);
    out->failed |= w->labels.failed;
    buf_free(&w->labels);
}
