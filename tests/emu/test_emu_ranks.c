// Models on several devices that share their layers, through the engine and the emulated module, each rank a thread with a
// device of its own.
#include "harness.h"

#include "driver.h"
#include "models/gguf.h"
#include "models/model_config.h"
#include "random_model.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { PROMPT = 70, OUTPUT = 3, NUM = 12, VOCAB = RANDOM_VOCAB };

struct results {
    struct got got[NUM];
    float logits[VOCAB];
    struct expert_counts experts;
};

static token_id prompt[PROMPT];

// Requests whose rows are sampled in every way: with log-probabilities, from local top-k, from all logits.
static int stages = 1; // of run()

static void run(struct results *to, const char *path, int ranks, bool exact, int step_tokens,
                int num_prompt) {
    static const struct sampling_params params[NUM] = {
        {.seed = 0},
        {.temperature = 0.9f, .top_k = 40, .top_p = 0.95f, .seed = 7, .repetition_penalty = 1.1f},
        {.prompt_logprobs = true},
        {.seed = 0}, // no log-probabilities from here on
        {.temperature = 1.5f, .top_k = 5, .seed = 2},
        {.temperature = 1.5f, .top_k = 40, .top_p = 0.8f, .seed = 3},
        {.temperature = 2, .top_k = 64, .min_p = 0.02f, .seed = 4},
        {.temperature = 2, .top_k = 65, .seed = 5},
        {.temperature = 1.2f, .seed = 6},
        {.repetition_penalty = 1.3f, .presence_penalty = 0.5f},
        {.temperature = 1.8f,
         .top_k = 10,
         .seed = 11,
         .typical_p = 0.8f,
         .xtc_probability = 0.5f,
         .xtc_threshold = 0.1f,
         .mirostat_tau = 3,
         .mirostat_eta = 0.2f,
         .dynatemp_range = 0.5f,
         .dynatemp_exponent = 1},
        {.seed = 0},
    };
    const struct logit_bias bias[] = {{5, 20}, {300, 20}, {301, 20.0f}, {6, -INFINITY}, {511, 19.5f}};
    for (int keep = 0; keep < 2; keep++) { // kept logits are another way through the head
        struct driver d;
        struct got *got = keep ? calloc(NUM, sizeof *got) : to->got;
        driver_open(&d, &(struct driver_config){.path = path,
                                                .device = "cuda",
                                                .ranks = ranks,
                                                .stages = stages,
                                                .exact = exact,
                                                .keep_logits = keep,
                                                .max_model_len = 128,
                                                .max_step_tokens = step_tokens});
        memset(got, 0, NUM * sizeof *got);
        for (int i = 0; i < (keep ? 1 : NUM); i++) {
            d.no_logprobs = i >= 3;
            driver_submit(&d, (struct request_params){.prompt = prompt + i % 3,
                                                      .num_prompt = i == 0 ? (keep ? 20 : num_prompt) : 3 + i,
                                                      .max_output = keep ? 1 : OUTPUT,
                                                      .sampling = params[i],
                                                      .bias = bias,
                                                      .num_bias = i % 4 == 1 ? 5 : 0,
                                                      .filter = i >= 10 ? driver_filter() : NULL});
        }
        driver_run(&d, got);
        if (keep) {
            memcpy(to->logits, d.first_logits, sizeof to->logits);
            free(got);
        } else {
            to->experts = d.experts;
        }
        driver_close(&d);
    }
}

static double logits_distance(const struct results *a, const struct results *b) {
    return distance(a->logits, b->logits, VOCAB);
}

static void check_same(const struct results *a, const struct results *b, const char *what) {
    if (memcmp(a->logits, b->logits, sizeof a->logits) != 0)
        fail_msg("%s: other bits of logits", what);
    for (int i = 0; i < NUM; i++) {
        const struct got *x = &a->got[i], *y = &b->got[i];
        bool same = x->num == y->num && x->finish == y->finish && x->num_scores == y->num_scores &&
                    memcmp(x->tokens, y->tokens, sizeof x->tokens[0] * (size_t)x->num) == 0 &&
                    memcmp(x->scores, y->scores, sizeof x->scores[0] * (size_t)x->num_scores) == 0;
        if (i < 3)
            same = same && memcmp(x->logprob, y->logprob, sizeof x->logprob[0] * (size_t)x->num) == 0 &&
                   memcmp(x->top, y->top, sizeof x->top[0] * (size_t)x->num) == 0 &&
                   memcmp(x->top_ids, y->top_ids, sizeof x->top_ids[0] * (size_t)x->num) == 0;
        if (!same)
            fail_msg("%s: request %d got something else", what, i);
        assert_int_equal(x->num, OUTPUT);
    }
}

static const struct {
    struct random_model m;
    int kv_heads, ffn, most; // ranks, with `--exact`
} models[] = {
    {{"F32", {DTYPE_F32}, 1, true}, 2, 1024, 4},
    {{"BF16", {DTYPE_BF16}, 1, true}, 2, 1024, 4},
    {{"Q8_0", {DTYPE_Q8_0}, 1, false}, 1, 768, 2},
    {{"Q4_K and Q6_K", {DTYPE_Q4_K, DTYPE_Q6_K}, 2, false}, 8, 1024, 2},
};

// With `--exact` the bits of one rank, from any number of them, in chunks and whole.
TEST(test_exact) {
    struct results *one = calloc(1, sizeof *one), *many = calloc(1, sizeof *many);
    for (size_t i = SLOW; i < sizeof models / sizeof models[0]; i += 1 + 2 * SLOW) {
        char file[] = "/tmp/quire-model-XXXXXX", what[100];
        random_model_write_sized(&models[i].m, 8, models[i].kv_heads, models[i].ffn, file);
        run(one, file, 1, true, 128, 30);
        for (int ranks = i == 0 ? 4 >> SLOW : 2; ranks <= models[i].most && ranks <= 4 >> SLOW; ranks *= 2) {
            snprintf(what, sizeof what, "%s, %d ranks", models[i].m.name, ranks);
            if (ranks == 4)
                setenv("QUIRE_CUDA_TWO_SHOTS", "0", 1);
            run(many, file, ranks, true, ranks == 2 ? 128 : 32, 30);
            unsetenv("QUIRE_CUDA_TWO_SHOTS");
            check_same(one, many, what);
        }
        if (i == 1) { // two stages of two ranks, each with a layer
            stages = 2;
            setenv("QUIRE_EMULATED_PINNED", "1", 1);
            run(many, file, 2, true, 128, 30);
            unsetenv("QUIRE_EMULATED_PINNED");
            stages = 1;
            check_same(one, many, "2 stages of 2 ranks");
            setenv("QUIRE_CUDA_WGMMA", "1", 1);
            run(one, file, 1, true, 128, 30);
            run(many, file, 2, true, 32, 30);
            unsetenv("QUIRE_CUDA_WGMMA");
            check_same(one, many, "wgmma, 2 ranks");
        }
        unlink(file);
    }
    free(one), free(many);
}

// Two groups of pages, of which a window gives some back while a prompt is computed in chunks: the same bits
// from two ranks, from two stages, of which each has one of the groups alone, and in one chunk.
TEST(test_groups) {
    char file[] = "/tmp/quire-model-XXXXXX";
    struct results *one = calloc(1, sizeof *one), *many = calloc(1, sizeof *many);
    struct model_config config;
    struct err err = {0};
    random_shape.window = 5;
    random_shape.full_every = 2;
    random_model_write_sized(&models[1].m, 4, 2, 256, file);
    random_shape.window = random_shape.full_every = 0;
    struct model_file *gguf = gguf_open(file, &err);
    assert_int_equal(model_config_read(gguf, &config, &err), STATUS_OK);
    assert_int_equal(config.num_groups, 2);
    model_file_close(gguf);
    run(one, file, 1, true, 128, PROMPT);
    run(many, file, 2, true, 32, PROMPT);
    check_same(one, many, "windows, 2 ranks");
    stages = 2;
    run(many, file, 1, true, 32, PROMPT);
    stages = 1;
    check_same(one, many, "windows, 2 stages");
    unlink(file);
    free(one), free(many);
}

// Layers with experts, of which ranks have unlike numbers; beside them a shared one, with a gate or not, norms of both
// sums, biases. Attention has sinks, a gate, latents. With `--exact` the bits of one rank, else near them; and its counts.
TEST(test_experts) {
    static const struct {
        const char *arch;
        int experts, ranks, layers;
        bool exact;
    } cases[] = {{"gpt-oss", 6, 4, 1, true},
                 {"qwen35moe", 11, 2, 1, true},
                 {"qwen35moe", 6, 4, 1, false},
                 {"deepseek2", 12, 2, 2, true},
                 {"gemma4", 5, 4, 1, false}};
    struct results *one = calloc(1, sizeof *one), *many = calloc(1, sizeof *many);
    const struct random_shape before = random_shape;
    const int experts = random_experts;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char file[] = "/tmp/quire-model-XXXXXX";
        bool exact = cases[i].exact;
        random_shape.arch = cases[i].arch, random_shape.hidden = 128;
        random_shape.window = random_shape.context; // some must have one
        random_layers = cases[i].layers, random_plain = true, random_experts = cases[i].experts;
        random_model_write_sized(&models[0].m, 4, 2, 256, file); // F32: no rounding hides a difference
        random_shape = before, random_layers = RANDOM_LAYERS, random_plain = false, random_experts = experts;
        run(one, file, 1, exact, 128, exact ? 30 : PROMPT);
        setenv("QUIRE_EMULATED_NCCL", "1", 1); // --exact never takes it
        run(many, file, cases[i].ranks, exact, 128, exact ? 30 : PROMPT);
        unsetenv("QUIRE_EMULATED_NCCL");
        if (exact)
            check_same(one, many, cases[i].arch);
        else if (!(logits_distance(one, many) < 1e-4))
            fail_msg("%s: logits are %g apart", cases[i].arch, logits_distance(one, many));
        const struct got *x = &one->got[2], *y = &many->got[2]; // in one step with a prompt for NCCL
        if (!(x->num_scores > 0 && distance(y->scores, x->scores, (size_t)x->num_scores) < 1e-4))
            fail_msg("%s: other log-probabilities of a prompt", cases[i].arch);
        assert_true(one->experts.rows > 0);
        if (exact)
            assert_memory_equal(&one->experts, &many->experts, sizeof one->experts);
        unlink(file);
    }
    free(one), free(many);
}

// Otherwise sums of ranks are near those of one. With NCCL long prompts take another way.
TEST(test_near) {
    struct results *one = calloc(1, sizeof *one), *many = calloc(1, sizeof *many);
    static const struct {
        struct random_model m;
        int ffn, ranks;
        bool nccl;
    } cases[] = {
        {{"F16", {DTYPE_F16}, 1, false}, 1000, 2, true}, // unequal parts of a step
        {{"F16", {DTYPE_F16}, 1, false}, 1000, 4, false},
        {{"mixed", {DTYPE_Q8_0, DTYPE_F16, DTYPE_BF16, DTYPE_Q4_0, DTYPE_F32, DTYPE_Q5_1}, 6, true},
         992,
         2,
         true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i += 1 + 3 * SLOW) {
        char file[] = "/tmp/quire-model-XXXXXX";
        random_model_write_sized(&cases[i].m, 8, 2, cases[i].ffn, file);
        run(one, file, 1, false, 128, PROMPT);
        if (cases[i].nccl)
            setenv("QUIRE_EMULATED_NCCL", "1", 1);
        for (int apart = 0; apart <= (i == 0);
             apart++) { // then NCCL brings parts together in the second of two stages
            if (apart)
                setenv("QUIRE_EMULATED_ALONE", "3", 1);
            stages = 1 + apart;
            run(many, file, cases[i].ranks, false, 128, PROMPT);
            stages = 1;
            unsetenv("QUIRE_EMULATED_ALONE");
            double far = logits_distance(one, many);
            if (!(far < 2e-2))
                fail_msg("%s, %d ranks: logits are %g apart", cases[i].m.name, cases[i].ranks, far);
            const struct got *x = &one->got[2], *y = &many->got[2]; // in one step with a prompt for NCCL
            far = distance(y->scores, x->scores, (size_t)x->num_scores);
            if (!(x->num_scores > 0 && far < 2e-2))
                fail_msg("%s, %d ranks: log-probabilities are %g apart", cases[i].m.name, cases[i].ranks,
                         far);
            for (int r = 0; r < NUM; r++) { // every row was sampled, from finite logits
                assert_int_equal(many->got[r].num, OUTPUT);
                assert_int_equal(many->got[r].finish, FINISH_LENGTH);
            }
        }
        if (cases[i].ranks == 4) { // also of graphs
            setenv("QUIRE_CUDA_TWO_SHOTS", "0", 1);
            run(one, file, 4, false, 128, PROMPT);
            unsetenv("QUIRE_CUDA_TWO_SHOTS");
            check_same(one, many, "two shots");
        }
        unsetenv("QUIRE_EMULATED_NCCL");
        unlink(file);
    }
    free(one), free(many);
}

// A row that decodes beside a prompt whose sums go through NCCL, which adds in another order, keeps the bits
// that it has alone.
TEST(test_company) {
    char file[] = "/tmp/quire-model-XXXXXX";
    enum { STEPS = 6 };
    struct got *got[2];
    random_model_write_sized(&(struct random_model){"Q8_0", {DTYPE_Q8_0}, 1, true}, 8, 2, 256, file);
    setenv("QUIRE_EMULATED_NCCL", "1", 1);
    for (int beside = 0; beside < 2; beside++) {
        struct driver d;
        got[beside] = calloc(2, sizeof *got[beside]);
        driver_open(
            &d,
            &(struct driver_config){
                .path = file, .device = "cuda", .ranks = 4, .max_model_len = 128, .max_step_tokens = 128});
        driver_add(&d, prompt, 5, STEPS, (struct sampling_params){0});
        while (got[beside][0].num == 0)
            driver_step(&d, got[beside]);
        if (beside)
            driver_add(&d, prompt + 1, PROMPT - 1, 1, (struct sampling_params){0});
        while (beside && got[beside][1].num == 0)
            driver_step(&d, got[beside]);
        assert_true(got[beside][0].num < STEPS); // so it was decoding beside the prompt
        driver_run(&d, got[beside]);
        driver_close(&d);
    }
    unsetenv("QUIRE_EMULATED_NCCL");
    assert_int_equal(got[0]->num, STEPS);
    assert_same(&got[1][0], &got[0][0], "beside a prompt of 69 tokens");
    free(got[0]), free(got[1]);
    unlink(file);
}

// A bias of +infinity on a token of the last rank: the row fails on every rank, where it is sampled from
// local top-k and where it is not, and its neighbour does not.
TEST(test_failed_rows) {
    const struct logit_bias bias = {.token = 500, .add = INFINITY};
    char file[] = "/tmp/quire-model-XXXXXX";
    random_model_write_sized(&models[1].m, 8, 2, 256, file);
    for (int i = 0; i < 2; i++) {
        struct driver d;
        struct got *got = calloc(2, sizeof *got);
        driver_open(&d, &(struct driver_config){.path = file, .device = "cuda", .ranks = 2, .num_blocks = 8});
        d.no_logprobs = true;
        driver_submit(&d, (struct request_params){.prompt = prompt,
                                                  .num_prompt = 5,
                                                  .max_output = 2,
                                                  .sampling = {.temperature = (float)i},
                                                  .bias = &bias,
                                                  .num_bias = 1});
        driver_add(&d, prompt, 5, 2, (struct sampling_params){0});
        driver_run(&d, got);
        assert_int_equal(got[0].finish, FINISH_ERROR);
        assert_int_equal(got[1].finish, FINISH_LENGTH);
        driver_close(&d);
        free(got);
    }
    unlink(file);
}

static void refused(const char *path, int ranks, bool exact, const char *words) {
    struct err err = {0};
    struct engine_config c = {.path = path,
                              .device = "cuda",
                              .num_threads = 1,
                              .tensor_parallel_size = ranks,
                              .exact = exact,
                              .block_size = 16,
                              .max_num_seqs = 1,
                              .max_num_batched_tokens = 32};
    struct engine *e = engine_open(&c, &err);
    if (e || !strstr(err.msg, words) || strchr(err.msg, '\n'))
        fail_msg("expected '%s', got code %d: %s", words, (int)err.code, err.msg);
}

TEST(test_refused) {
    char file[] = "/tmp/quire-model-XXXXXX";
    random_model_write_sized(&(struct random_model){"BF16", {DTYPE_BF16}, 1, true}, 8, 2, 1000, file);
    refused(
        file, 2, true,
        "--exact with --tensor-parallel-size 2 does not suit this model: 1000 columns of BF16 would be cut "
        "elsewhere than one device adds them; possible: 1");
    setenv("QUIRE_EMULATED_DEVICES", "2", 1);
    refused(file, 4, false, "there is no emulated device 2, only 2 of them");
    unsetenv("QUIRE_EMULATED_DEVICES");
    setenv("QUIRE_EMULATED_ALONE", "1", 1);
    refused(file, 2, false, "device 1 is out of reach");
    unsetenv("QUIRE_EMULATED_ALONE");
    unlink(file);
    // Half of 34 steps of 32 columns is a border of both, a quarter is not.
    char other[] = "/tmp/quire-model-XXXXXX";
    random_model_write_sized(&(struct random_model){"BF16", {DTYPE_BF16}, 1, true}, 8, 2, 1088, other);
    refused(other, 4, true,
            "1088 columns of BF16 would be cut elsewhere than one device adds them; possible: 1, 2");
    struct driver d;
    driver_open(&d, &(struct driver_config){
                        .path = other, .device = "cuda", .ranks = 2, .exact = true, .num_blocks = 8});
    driver_close(&d);
    unlink(other);
}

// Opens a model on ranks behind tests/tools/fault_backend.c.
static void open_behind(struct driver *d, const char *file, int ranks, int max_running) {
    setenv("QUIRE_CUDA_MODULE", FAULT_BACKEND, 1);
    setenv("FAULT_MODULE", QUIRE_EMULATED, 1);
    driver_open(d, &(struct driver_config){.path = file,
                                           .device = "cuda",
                                           .ranks = ranks,
                                           .num_blocks = 8,
                                           .max_running = max_running,
                                           .max_step_tokens = 64});
    setenv("QUIRE_CUDA_MODULE", QUIRE_EMULATED, 1);
    unsetenv("FAULT_MODULE");
}

static void open_faulty(struct driver *d, const char *file) { open_behind(d, file, 2, 32); }

static void launch(struct driver *d) {
    const struct plan *plan = sched_step(d->sched, d->max_chunk);
    assert_non_null(plan);
    engine_launch(d->engine, plan, NULL);
}

static enum status collect(struct driver *d, struct err *err) {
    struct step_result result;
    enum status st = engine_collect(d->engine, &result, err);
    if (st == STATUS_OK)
        sched_update(d->sched, result.plan->id, &result.outcome, d->events);
    return st;
}

// A rank that fails in the middle of a step: the other, which waits for it within a kernel, returns, and the
// engine says which and why; so does the next step where ranks have run ahead to it, and closing waits for nobody.
TEST(test_failed_rank) {
    char file[] = "/tmp/quire-model-XXXXXX";
    random_model_write_sized(&(struct random_model){"BF16", {DTYPE_BF16}, 1, true}, 8, 2, 1024, file);
    for (int i = 0; i < 6; i++) {
        int rank = i % 2, depth = i < 2 ? 1 : 2;
        bool closes = i >= 4; // with a step in flight
        struct driver d;
        struct err err = {0};
        setenv("FAULT_RANK", rank ? "1" : "0", 1);
        setenv("FAULT_STEP", "3", 1);
        open_faulty(&d, file);
        unsetenv("FAULT_RANK");
        unsetenv("FAULT_STEP");
        struct request *r = driver_add(&d, prompt, 20, 8, (struct sampling_params){0});
        int launched = 0, collected = 0;
        enum status st = STATUS_OK;
        while (st == STATUS_OK) {
            while (launched < collected + depth)
                launch(&d), launched++;
            st = collect(&d, &err);
            collected++;
        }
        // A rank that has run ahead may learn of it in the step before.
        if (st != STATUS_DEVICE || collected > 3 || collected < 4 - depth ||
            !strstr(err.msg, rank ? "the device of rank 1 fails" : "the device of rank 0 fails"))
            fail_msg("depth %d, step %d, code %d: %s", depth, collected, (int)st, err.msg);
        for (; !closes && collected < launched; collected++)
            assert_int_equal(collect(&d, &err), STATUS_DEVICE);
        driver_close(&d);
        request_free(r);
    }
    unlink(file);
}

// A rank that fails where NCCL is opened, for which the other waits there. Kernels of GPUs that share layers are loaded early,
// whoever opens the engine.
TEST(test_failed_opening) {
    char file[] = "/tmp/quire-model-XXXXXX";
    random_model_write_sized(&(struct random_model){"BF16", {DTYPE_BF16}, 1, true}, 8, 2, 1024, file);
    setenv("QUIRE_EMULATED_NCCL", "1", 1);
    for (int rank = 0; rank < 2; rank++) {
        struct driver d;
        struct err err = {0};
        setenv("QUIRE_EMULATED_NCCL_FAILS", rank ? "1" : "0", 1);
        rank ? setenv("CUDA_MODULE_LOADING", "LAZY", 1) : unsetenv("CUDA_MODULE_LOADING");
        driver_open(&d,
                    &(struct driver_config){
                        .path = file, .device = "cuda", .ranks = 2, .num_blocks = 8, .max_step_tokens = 128});
        assert_non_null(getenv("CUDA_MODULE_LOADING"));
        assert_string_equal(getenv("CUDA_MODULE_LOADING"), rank ? "LAZY" : "EAGER");
        struct request *r = driver_add(&d, prompt, 20, 8, (struct sampling_params){0});
        launch(&d);
        assert_int_equal(collect(&d, &err), STATUS_DEVICE);
        if (!strstr(err.msg, "NCCL: it was asked to fail"))
            fail_msg("%s", err.msg);
        driver_close(&d);
        request_free(r);
    }
    unsetenv("QUIRE_EMULATED_NCCL"), unsetenv("QUIRE_EMULATED_NCCL_FAILS");
    unlink(file);
}

// Every rank launches the next step before it waits for the end of the one before.
TEST(test_runs_ahead) {
    enum { STEPS = 4 };
    char file[] = "/tmp/quire-model-XXXXXX", trace[] = "/tmp/quire-trace-XXXXXX", line[64];
    int fd = mkstemp(trace), begun[2] = {0}, ended[2] = {0};
    struct driver d;
    struct err err = {0};
    assert_true(fd >= 0);
    random_model_write_sized(&(struct random_model){"BF16", {DTYPE_BF16}, 1, true}, 8, 2, 1024, file);
    setenv("FAULT_TRACE", trace, 1);
    open_faulty(&d, file);
    unsetenv("FAULT_TRACE");
    struct request *r = driver_add(&d, prompt, 20, 2 * STEPS, (struct sampling_params){0});
    launch(&d);
    for (int step = 2; step <= STEPS; step++) {
        launch(&d);
        assert_int_equal(collect(&d, &err), STATUS_OK);
    }
    driver_close(&d); // ends the last one
    request_free(r);
    FILE *f = fdopen(fd, "r");
    while (fgets(line, sizeof line, f)) {
        int rank, step;
        char verb[16];
        if (strstr(line, " loads ")) // how kernels are loaded
            continue;
        assert_int_equal(sscanf(line, "%d %15s %d", &rank, verb, &step), 3);
        assert_in_range(rank, 0, 1);
        if (verb[0] == 'r') // a graph
            continue;
        int *count = verb[0] == 'b' ? begun : ended;
        assert_int_equal(step, ++count[rank]);
        if (count == ended && begun[rank] < step + 1 && step < STEPS)
            fail_msg("rank %d waits for step %d and has not begun the next one", rank, step);
    }
    fclose(f);
    assert_true(begun[0] == STEPS && begun[1] == STEPS && ended[0] == STEPS - 1 && ended[1] == STEPS);
    unlink(file), unlink(trace);
}

// Reads a trace: the number of steps that have begun on rank 0, and which of them were graphs.
static int read_trace(const char *path, bool replayed[64]) {
    FILE *f = fopen(path, "r");
    int rank, step, begun = 0;
    char verb[16], line[64];
    memset(replayed, 0, 64 * sizeof *replayed);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%d %15s %d", &rank, verb, &step) != 3) // how kernels are loaded
            continue;
        assert_in_range(step, 1, 63);
        if (rank == 0 && verb[0] == 'b')
            begun = step;
        if (rank == 0 && verb[0] == 'r')
            replayed[step] = true;
    }
    fclose(f);
    return begun;
}

// After a warm-up the first step that decodes is a graph, and so are all others; bits are those without one, with experts
// and a row that is nobody's, too.
TEST(test_warm_up) {
    enum { TOKENS = 5 };
    char file[] = "/tmp/quire-model-XXXXXX", trace[] = "/tmp/quire-trace-XXXXXX";
    const struct random_shape before_it = random_shape;
    random_shape.arch = "gpt-oss", random_shape.window = random_shape.context, random_shape.hidden = 128;
    random_model_write_sized(&(struct random_model){"BF16", {DTYPE_BF16}, 1, true}, 8, 2, 128, file);
    random_shape = before_it;
    assert_int_equal(close(mkstemp(trace)), 0);
    setenv("QUIRE_CUDA_TWO_SHOTS", "0", 1); // in graphs, too
    for (int ranks = 1; ranks <= 4; ranks += 3) {
        struct got *got[3];
        for (int run = 0; run < 3; run++) { // without; with; with room for the graph of one row
            struct driver d;
            struct err err = {0};
            bool replayed[64];
            assert_int_equal(truncate(trace, 0), 0);
            setenv("FAULT_TRACE", trace, 1);
            if (run == 2)
                setenv("QUIRE_CUDA_GRAPHS", "1", 1);
            open_behind(&d, file, ranks, 3);
            unsetenv("FAULT_TRACE");
            if (run > 0)
                assert_int_equal(engine_warm_up(d.engine, &err), STATUS_OK);
            unsetenv("QUIRE_CUDA_GRAPHS");
            int before = read_trace(trace, replayed), begun;
            // Prompts of 8 to 64 tokens; 1, 2 and 3 rows twice
            assert_int_equal(before, run == 0 ? 0 : run == 1 ? 4 + 6 : 4 + 2);
            for (int s = 1; s <= before; s++) // they are captured, and nothing is launched twice
                assert_false(replayed[s]);
            got[run] = calloc(3, sizeof **got);
            driver_add(&d, prompt, 9, TOKENS, (struct sampling_params){0});
            for (int i = 1; i < 3 && run != 2; i++)
                driver_add(&d, prompt + 3 * i, 12, TOKENS,
                           (struct sampling_params){.temperature = 0.7f, .seed = 3});
            driver_run(&d, got[run]);
            begun = read_trace(trace, replayed);
            assert_true(begun >= before + TOKENS);
            for (int s = before + 1; s <= begun; s++)
                if (replayed[s] != (run > 0 ? s > before + 1 : s > before + 3))
                    fail_msg("%d ranks, run %d: step %d of %d, %d of warm-up", ranks, run, s, begun, before);
            assert_same(&got[run][0], &got[0][0], "after a warm-up");
            for (int i = 1; i < 3 && run == 1; i++)
                assert_same(&got[run][i], &got[0][i], "after a warm-up");
            driver_close(&d);
        }
        for (int run = 0; run < 3; run++)
            free(got[run]);
    }
    unsetenv("QUIRE_CUDA_TWO_SHOTS");
    unlink(file), unlink(trace);
}

int main(void) {
    setenv("QUIRE_CUDA_MODULE", QUIRE_EMULATED, 1);
    random_shape.hidden = 256;
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = 3 + (i * 37 + i * i) % (VOCAB - 3);
    return run_all_tests(NULL, NULL);
}
