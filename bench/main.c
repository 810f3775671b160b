#include "compare.h"
#include "html.h"
#include "probe.h"
#include "report.h"
#include "search.h"
#include "show.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static volatile bool stopped;

static void on_signal(int number) {
    (void)number;
    if (stopped) // twice: now
        _Exit(130);
    stopped = true;
}

static void watch_signals(void) {
    struct sigaction a = {.sa_handler = on_signal};
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    signal(SIGPIPE, SIG_IGN);
}

// A connection each: as many descriptors as the system allows.
static void raise_files(void) {
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) == 0) {
        l.rlim_cur = l.rlim_max;
        setrlimit(RLIMIT_NOFILE, &l);
    }
}

// Bad paths are found before the run, not after it.
static void check_outputs(const struct options *o) {
    const char *paths[] = {o->json, o->csv, o->html};
    for (int i = 0; i < 3; i++) {
        FILE *f = paths[i] ? fopen(paths[i], "a") : NULL;
        if (paths[i] && !f)
            options_die("%s: %s", paths[i], strerror(errno));
        if (f)
            fclose(f);
    }
    json_error_t error;
    json_t *extra = o->extra_body ? json_loads(o->extra_body, 0, &error) : NULL;
    if (o->extra_body && !json_is_object(extra)) {
        json_decref(extra);
        options_die("--extra-body is no JSON object");
    }
    json_decref(extra);
}

static int fail(const char *message) {
    fprintf(stderr, "quire-bench: %s\n", message);
    return 1;
}

static bool write_all(const struct options *o, const json_t *root) {
    bool good = true;
    if (o->json && !report_write_json(root, o->json)) {
        fprintf(stderr, "quire-bench: %s: %s\n", o->json, strerror(errno));
        good = false;
    }
    const json_t *one[] = {root};
    if (o->html && !html_write(one, 1, o->html)) {
        fprintf(stderr, "quire-bench: %s: %s\n", o->html, strerror(errno));
        good = false;
    }
    return good;
}

struct bench {
    struct options *o;
    uv_loop_t loop;
    struct client *client;
    struct dataset *data;
    struct prompt_maker maker;
    char form[200];
    bool completed;  // any request, of any run
    bool csv_failed; // a table of requests could not be written
};

static struct load_plan plan_of(const struct options *o, const struct dataset *d) {
    struct load_plan p = {.arrival = o->arrival,
                          .rate = o->request_rate,
                          .burstiness = o->burstiness,
                          .max_concurrency = o->max_concurrency,
                          .duration = o->duration,
                          .seed = (uint64_t)o->seed};
    bool all = !o->num_prompts_given && (o->duration > 0 || dataset_size(d) != SIZE_MAX);
    p.num = all ? SIZE_MAX : (size_t)o->num_prompts;
    return p;
}

static void warm_up(struct bench *b) {
    if (!b->o->num_warmups)
        return;
    struct load_plan p = {
        .arrival = ARRIVAL_CLOSED, .burstiness = 1, .num = (size_t)b->o->num_warmups, .warm = true};
    p.max_concurrency = b->o->max_concurrency && b->o->max_concurrency < 8 ? b->o->max_concurrency : 8;
    run_free(load_run(&b->loop, b->client, b->o, &b->maker, b->data, p, &stopped, NULL, NULL));
}

// Whether enough requests meet the goals; their share.
static bool enough(const struct options *o, const struct result *res, double *share) {
    size_t all = res->completed + res->failed;
    *share = all ? (double)res->good / (double)all : 0;
    return *share >= o->attainment && !stopped;
}

// `csv`: whether the table of requests is to be written even where the goals are missed.
static json_t *run_one(struct bench *b, struct load_plan plan, struct result *res, bool csv) {
    struct show show;
    show_begin(&show, b->o->quiet);
    struct run *run =
        load_run(&b->loop, b->client, b->o, &b->maker, b->data, plan, &stopped, show_progress, &show);
    show_end(&show);
    result_compute(res, run, b->o);
    struct report report = {b->o, run, res, b->maker.model, b->form};
    report_text(&report, stdout);
    b->completed = b->completed || res->completed;
    double share;
    if (b->o->csv && (csv || enough(b->o, res, &share)) && !report_csv(&report, b->o->csv)) {
        fprintf(stderr, "quire-bench: %s: %s\n", b->o->csv, strerror(errno));
        b->csv_failed = true;
    }
    json_t *root = report_json(&report);
    run_free(run);
    return root;
}

// Rates by search.h, one run each; the result is that of the best rate, with all of them beside it.
static json_t *run_search(struct bench *b, struct result *res) {
    const struct options *o = b->o;
    struct search s;
    search_begin(&s, o->search_min, o->search_max, o->search_tolerance);
    json_t *best = NULL, *last = NULL, *steps = json_array();
    struct load_plan plan = plan_of(o, b->data);
    for (double rate; !stopped && (rate = search_next(&s)) > 0;) {
        plan.rate = rate;
        plan.seed++; // other arrivals and, below, other prompts: nothing is cached from the step before
        b->maker.seed++;
        json_t *root = run_one(b, plan, res, !best); // the CSV, too, is that of the best rate
        double share;
        bool good = enough(o, res, &share);
        search_tell(&s, good);
        printf("  search: at %g/s %.2f %% of requests meet the goals: %s\n", rate, 100 * share,
               good ? "enough" : "too few");
        json_t *step = json_object();
        static const char *const keys[] = {
            "request_rate",   "request_throughput", "output_throughput", "request_goodput", "median_ttft_ms",
            "p99_ttft_ms",    "median_tpot_ms",     "p99_tpot_ms",       "median_itl_ms",   "p99_itl_ms",
            "median_e2el_ms", "p99_e2el_ms",        "client_saturated",  "failed"};
        for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
            json_object_set(step, keys[i], json_object_get(root, keys[i]));
        json_object_set_new(step, "attainment", json_real(share));
        json_object_set_new(step, "meets", json_boolean(good));
        json_array_append_new(steps, step);
        json_t **keep = good ? &best : &last;
        json_decref(*keep);
        *keep = root;
    }
    printf("\n  highest rate that meets the goals for %g %% of requests: ", 100 * o->attainment);
    if (best)
        printf("%g/s%s\n", s.low, s.bounded ? "" : " (the bound of the search: --search-max)");
    else
        printf("none; %g/s, the lowest, misses them\n", o->search_min);
    json_t *root = best ? best : last;
    if (!root)
        root = json_object();
    json_object_set_new(root, "search", steps);
    json_object_set_new(root, "max_rate_under_slo", best ? json_real(s.low) : json_null());
    if (best)
        json_decref(last);
    return root;
}

static void close_all(struct bench *b) {
    if (b->client)
        client_close(b->client);
    uv_run(&b->loop, UV_RUN_DEFAULT);
    uv_loop_close(&b->loop);
    dataset_free(b->data);
}

static int bench_run(struct bench *b) {
    struct options *o = b->o;
    char message[400] = "";
    int64_t max_model_len;
    if (o->dataset != DATASET_RANDOM && !(b->data = dataset_open(o, message, sizeof message)))
        options_die("%s", message);
    struct client_limits limits = {o->timeout, o->connect_timeout};
    b->client = client_open(&b->loop, o->url_host, o->url_port, limits, message, sizeof message);
    if (!b->client)
        return fail(message);
    if (!probe_model(&b->loop, b->client, o, &stopped, &b->maker, &max_model_len, message, sizeof message)) {
        fail(message);
        return stopped ? 130 : 1;
    }
    bool fitted = options_fit(o, max_model_len);
    if (!b->data && !(b->data = dataset_open(o, message, sizeof message)))
        options_die("%s", message);
    bool made_up = o->dataset < DATASET_SHAREGPT || b->data->kind == DATASET_AZURE ||
                   b->data->kind == DATASET_MOONCAKE || b->data->kind == DATASET_VIDUR || o->num_warmups > 0;
    if (!probe_server(&b->loop, b->client, o, &stopped, made_up, &b->maker, b->form, sizeof b->form, message,
                      sizeof message)) {
        fail(message);
        return stopped ? 130 : 1;
    }
    size_t n = strlen(b->form);
    if (fitted)
        snprintf(b->form + n, sizeof b->form - n,
                 "; %lld tokens, so that they fit the server's context of %lld", (long long)o->input_len,
                 (long long)max_model_len);
    warm_up(b);
    struct result *res = calloc(1, sizeof *res);
    if (!res)
        return fail("no memory");
    json_t *root = o->search ? run_search(b, res) : run_one(b, plan_of(o, b->data), res, true);
    bool written = write_all(o, root);
    json_decref(root);
    free(res);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "quire-bench: standard output: %s\n", strerror(errno));
        written = false;
    }
    return stopped ? 130 : b->completed && written && !b->csv_failed ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "compare") == 0)
        return compare_main(argc - 2, argv + 2);
    struct options o;
    options_read(&o, argc, argv);
    check_outputs(&o);
    raise_files();
    watch_signals();
    struct bench b = {.o = &o};
    uv_loop_init(&b.loop);
    int rc = bench_run(&b);
    close_all(&b);
    return rc;
}
