// Measures the gain of drafts: the same requests with and without them, in turns, one by one and all at once. Prints
// a line of JSON for each; drafts.py makes the requests, and tables of the lines.
//
//   bench_drafts MODEL WORK [--draft MODEL | --mtp] [--threads N] [--rounds 2] [--together] [--temperature 0] [--all]
//                [--context 4096]
//
// WORK has a request on each line: NAME, the number of prompt tokens, these, the number of output tokens, these. The output
// is forced by a mask, so that a model of random weights writes what a real one would: a step computes, samples and
// verifies as ever, and drafts that differ are wrong. With --draft that model drafts, with --mtp the MTP layer, and the output is not forced: only its
// length counts. Prompts are in the prefix cache, and the service has
// seen such work once, so that it knows what its steps cost. Decode alone is timed: from the first token to the last one. --all: every draft, whether it pays or
// not: how often a model agrees.
#include "drafter.h"
#include "log.h"
#include "service.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WORK = 64, MAX_EVENTS = 64 };

struct work {
    char name[32];
    int num_prompt, num_output;
    token_id *prompt, *output;
};

static void die(const char *what, const char *why) {
    fprintf(stderr, "bench_drafts: %s: %s\n", what, why);
    exit(1);
}

// ---- an output that is known

struct forced {
    const struct work *work;
    int position;
};

static bool forced_accept(void *state, token_id token) {
    (void)token; // drafts may be wrong: the mask says what comes
    ((struct forced *)state)->position++;
    return true;
}

static enum mask_result forced_mask(void *state, uint32_t *bits, int vocab, int64_t *work) {
    (void)work;
    const struct forced *f = state;
    int at = f->position < f->work->num_output ? f->position : f->work->num_output - 1;
    memset(bits, 0, ((size_t)vocab + 31) / 32 * sizeof *bits);
    bits[f->work->output[at] / 32] |= 1u << f->work->output[at] % 32;
    return MASK_DONE;
}

static void forced_rollback(void *state, int n) { ((struct forced *)state)->position -= n; }

static struct token_filter *forced_new(const struct work *w) {
    struct token_filter *f = malloc(sizeof *f);
    struct forced *state = malloc(sizeof *state);
    if (!f || !state)
        die("forced_new", "out of memory");
    *state = (struct forced){w, 0};
    *f = (struct token_filter){state, forced_accept, forced_mask, forced_rollback, free, NULL};
    return f;
}

// ---- the work

static token_id *read_ids(FILE *file, int *num) {
    if (fscanf(file, "%d", num) != 1 || *num < 1 || *num > 1 << 20)
        die("work", "expected a number of tokens");
    token_id *ids = calloc((size_t)*num, sizeof *ids);
    for (int i = 0; i < *num; i++)
        if (!ids || fscanf(file, "%d", &ids[i]) != 1)
            die("work", "expected a token");
    return ids;
}

static int read_work(const char *path, struct work *work) {
    FILE *file = fopen(path, "r");
    int n = 0;
    if (!file)
        die(path, "cannot be opened");
    while (n < MAX_WORK && fscanf(file, "%31s", work[n].name) == 1) {
        work[n].prompt = read_ids(file, &work[n].num_prompt);
        work[n].output = read_ids(file, &work[n].num_output);
        n++;
    }
    fclose(file);
    return n;
}

struct bench {
    struct engine *engine;
    struct service *service;
    float temperature;
    bool model; // drafts
    uint64_t next_id;
};

static void submit(struct bench *b, const struct work *w, bool drafts, int num_output) {
    struct err err = {0};
    struct request_params p = {
        .id = b->next_id++,
        .prompt = w->prompt,
        .num_prompt = w->num_prompt,
        .max_output = num_output,
        .filter = b->model ? NULL : forced_new(w),
        .drafter = drafts && !b->model ? ngram_drafter(3) : NULL,
        .draft = drafts && b->model,
        .mtp_size = b->model ? engine_info(engine_draft(b->engine))->mtp_size : 0,
        .sampling = {
            .temperature = b->temperature, .top_p = 1, .seed = 7, .repetition_penalty = 1, .logprobs = -1}};
    struct request *r = request_new(&p, engine_info(b->engine)->block_size);
    if (!r || service_submit(b->service, r, &err) != STATUS_OK)
        die(w->name, err.msg);
}

// Until n requests have ended. Adds the tokens behind the first of each; from the first one's to the last one's time.
static double wait_for(struct bench *b, int n, int *tokens) {
    static struct service_event events[MAX_EVENTS];
    int64_t first = INT64_MAX, last = 0;
    while (n > 0) {
        service_wait(b->service, 1000000000);
        for (int num; (num = service_take(b->service, events, MAX_EVENTS)) > 0;)
            for (int i = 0; i < num; i++) {
                const struct service_event *e = &events[i];
                if (e->kind != EVENT_FINISH)
                    continue;
                if (e->finish != FINISH_LENGTH)
                    die("a request", "did not end by its length");
                first = e->time_first_token < first ? e->time_first_token : first;
                last = e->time_finished > last ? e->time_finished : last;
                *tokens += e->num_output - 1;
                n--;
            }
    }
    return (double)(last - first) * 1e-9;
}

static struct service_stats stats_of(struct bench *b) {
    struct service_stats stats;
    do
        service_stats(b->service, &stats);
    while (stats.busy);
    return stats;
}

static void measure(struct bench *b, const struct work *work, int n, bool drafts) {
    struct service_stats before = stats_of(b);
    int tokens = 0;
    for (int i = 0; i < n; i++)
        submit(b, &work[i], drafts, work[i].num_output);
    double seconds = wait_for(b, n, &tokens);
    struct service_stats after = stats_of(b);
    printf("{\"work\": \"%s\", \"requests\": %d, \"drafts\": %s, \"tokens\": %d, \"seconds\": %.6f, "
           "\"steps\": %llu, "
           "\"drafted\": %llu, \"right\": %llu, \"draft_seconds\": %.6f}\n",
           work->name, n, drafts ? "true" : "false", tokens, seconds,
           (unsigned long long)(after.steps - before.steps),
           (unsigned long long)(after.draft_tokens - before.draft_tokens),
           (unsigned long long)(after.accepted - before.accepted),
           (double)(after.part_ns[3] - before.part_ns[3]) * 1e-9);
    fflush(stdout);
}

int main(int argc, char **argv) {
    static const struct option names[] = {
        {"draft", 1, 0, 'd'},       {"threads", 1, 0, 't'},  {"rounds", 1, 0, 'r'},
        {"temperature", 1, 0, 'e'}, {"together", 0, 0, 'g'}, {"all", 0, 0, 'a'},
        {"mtp", 0, 0, 'm'},         {"context", 1, 0, 'c'},  {0, 0, 0, 0}};
    static struct work work[MAX_WORK];
    const char *draft = NULL;
    int threads = 0, rounds = 2, context = 4096, num;
    bool together = false, all = false, mtp = false;
    struct bench b = {.next_id = 1};
    struct err err = {0};
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;)
        switch (c) {
        case 'd': draft = optarg; break;
        case 't': threads = atoi(optarg); break;
        case 'r': rounds = atoi(optarg); break;
        case 'e': b.temperature = (float)atof(optarg); break;
        case 'g': together = true; break;
        case 'a': all = true; break;
        case 'm': mtp = true; break;
        case 'c': context = atoi(optarg); break;
        default: return 2;
        }
    if (argc - optind != 2)
        die("usage", "bench_drafts MODEL WORK [FLAGS]");
    log_set_level(LOG_ERROR);
    if ((num = read_work(argv[optind + 1], work)) == 0)
        die(argv[optind + 1], "no request");
    b.model = draft || mtp;
    b.engine = engine_open(&(struct engine_config){.path = argv[optind],
                                                   .device = "cpu",
                                                   .num_threads = threads,
                                                   .max_model_len = context,
                                                   .max_num_seqs = MAX_WORK,
                                                   .prefix_caching = true,
                                                   .draft_path = draft,
                                                   .mtp = mtp ? MTP_ALWAYS : MTP_NEVER},
                           &err);
    if (!b.engine)
        die("engine", err.msg);
    const struct engine_info *info = engine_info(b.engine);
    b.service =
        service_open(b.engine,
                     &(struct service_config){.all_drafts = all,
                                              .sched = {.max_running = MAX_WORK,
                                                        .max_step_tokens = info->max_num_batched_tokens,
                                                        .max_waiting = MAX_WORK,
                                                        .max_waiting_tokens = INT64_MAX,
                                                        .max_model_len = info->max_model_len,
                                                        .depth = info->depth,
                                                        .async = info->async},
                                              .max_chunk = info->max_num_batched_tokens},
                     &err);
    if (!b.service)
        die("service", err.msg);
    int tokens = 0, warm = together ? num : 1;
    for (int i = 0; i < num; i++)
        submit(&b, &work[i], false, 2);
    wait_for(&b, num, &tokens);
    for (int i = 0; i < warm; i++)
        submit(&b, &work[i], true, work[i].num_output);
    wait_for(&b, warm, &tokens);
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < (together ? 1 : num); i++)
            for (int drafts = 0; drafts <= 1; drafts++)
                measure(&b, &work[i], together ? num : 1, drafts);
    service_close(b.service);
    engine_close(b.engine);
    return 0;
}
