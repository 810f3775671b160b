// A model whose ranks are processes gives the logits, tokens and log-probabilities of one rank, by memcmp,
// under mpirun. usage: test_model MODEL TENSOR_PARALLEL_SIZE PIPELINE_PARALLEL_SIZE [candidates]
//
// Process 0 runs the requests on all processes, then alone, and compares. MODEL "stories260K" is found by
// QUIRE_TEST_DATA. "candidates": without logits and log-probabilities, for which ranks exchange whole rows of
// logits: where few tokens decide they now send these alone, and the tokens must be the same.
#include "../model/driver.h"
#include "ranks/process_group.h"

#include <unistd.h>

enum { PROMPT = 40, OUTPUT = 24, REQUESTS = 4 };

static const struct sampling_params params[REQUESTS] = {
    {0},
    {.temperature = 0.9f, .top_k = 40, .top_p = 0.95f, .seed = 7, .repetition_penalty = 1.1f},
    {.prompt_logprobs = true},
    {.temperature = 1.5f, .top_k = 5, .seed = 2},
};

static void run(struct driver *d, struct got *got) {
    token_id prompt[PROMPT];
    int vocab = engine_info(d->engine)->model.vocab;
    const struct logit_bias bias[] = {{5, 20}, {300, -INFINITY}};
    prompt[0] = 1;
    for (int i = 1; i < PROMPT; i++)
        prompt[i] = 3 + (i * 37) % (vocab - 3);
    driver_add(d, prompt, 17, 1, (struct sampling_params){0}); // whose logits are kept
    driver_run(d, got);
    for (int i = 0; i < REQUESTS; i++) {
        driver_submit(d, (struct request_params){.prompt = prompt,
                                                 .num_prompt = PROMPT - i,
                                                 .max_output = OUTPUT,
                                                 .sampling = params[i],
                                                 .bias = bias,
                                                 .num_bias = i == 3 ? 2 : 0,
                                                 .filter = i == 3 ? driver_filter() : NULL});
        driver_step(d, got);
    }
    driver_run(d, got);
}

static bool is_same(const struct got *a, const struct got *b, bool tokens_alone) {
    if (!tokens_alone)
        return memcmp(a, b, sizeof *a) == 0;
    return a->num == b->num && memcmp(a->tokens, b->tokens, (size_t)a->num * sizeof *a->tokens) == 0 &&
           a->finish == b->finish && a->num_scores == b->num_scores &&
           memcmp(a->scores, b->scores, (size_t)a->num_scores * sizeof *a->scores) == 0;
}

int main(int argc, char **argv) {
    struct launch launch;
    struct err err = {0};
    bool candidates = argc == 5 && strcmp(argv[4], "candidates") == 0;
    if (argc != 4 + candidates || !processes_launched(&launch))
        return 2;
    const char *path = argv[1];
    if (strcmp(path, "stories260K") == 0) {
        static char file[4096];
        const char *root = getenv("QUIRE_TEST_DATA");
        snprintf(file, sizeof file, "%s/models/stories260K/stories260K.gguf", root ? root : "../shared/data");
        path = file;
        if (access(path, R_OK) != 0) {
            printf("skipped: no %s\n", path);
            return getenv("QUIRE_REQUIRE_DATA") ? 1 : 77;
        }
    }
    struct processes *group;
    if (processes_join(&launch, &group, &err) != STATUS_OK) {
        printf("%s\n", err.msg);
        return 1;
    }
    struct driver_config config = {.path = path,
                                   .ranks = atoi(argv[2]),
                                   .stages = atoi(argv[3]),
                                   .max_running = 8,
                                   .max_step_tokens = 64,
                                   .max_chunk = 16,
                                   .keep_logits = !candidates,
                                   .processes = group};
    static struct driver d, alone;
    static struct got many[REQUESTS + 1], one[REQUESTS + 1];
    int wrong = 0;
    driver_open(&d, &config);
    if (processes_index(group) > 0) {
        wrong = engine_follow(d.engine, &err) != STATUS_OK;
        driver_close(&d);
    } else {
        d.no_logprobs = candidates;
        run(&d, many);
        config.ranks = config.stages = 0;
        config.processes = NULL;
        driver_open(&alone, &config);
        alone.no_logprobs = candidates;
        run(&alone, one);
        size_t vocab = (size_t)engine_info(alone.engine)->model.vocab;
        if (!candidates)
            wrong += memcmp(d.first_logits, alone.first_logits, vocab * sizeof(float)) != 0;
        for (int i = 0; i <= REQUESTS; i++)
            wrong += !is_same(&one[i], &many[i], candidates) || one[i].num != (i ? OUTPUT : 1);
        wrong += memcmp(one[1].tokens, one[2].tokens, sizeof one[1].tokens) == 0; // they are not all the same
        driver_close(&alone);
        driver_close(&d);
    }
    int process = processes_index(group);
    wrong += !processes_leave(group);
    printf("process %d: tp %s, pp %s, %d failures\n", process, argv[2], argv[3], wrong);
    return wrong ? 1 : 0;
}
