// The same bits from 1, 2, 4 and 8 ranks: tokens, log-probabilities and logits, by memcmp, for models of
// every weight type and architecture, however the work is cut. And what ranks refuse, hold and do when one
// fails. Over 600 lines: every cut is compared with the same run of one rank.
#include "driver.h"
#include "inspect.h"
#include "models/shard.h"
#include "random_model.h"
#include "ranks/comm_threads.h"

#include <pthread.h>

#ifndef QUIRE_GOLDEN_MODELS
#define QUIRE_GOLDEN_MODELS "" // no Python when the build was configured
#endif

enum { PROMPT = 40, OUTPUT = 12, MATES = 5, MAX_VOCAB = 65536 };

// Results of one rank: the requests of run(), those of run_sampled(), and the logits of one row.
enum { NUM_RUN = 3 + MATES, NUM_SAMPLED = 14 };
struct results {
    struct got run[NUM_RUN], sampled[NUM_SAMPLED];
    float logits[MAX_VOCAB];
    struct expert_counts experts; // of the same step
};

static struct results *one, *many;
static const char *path, *name;
static token_id prompt[PROMPT];
static int stages = 1; // of every engine opened
static int num_groups; // of the model's pages

static const struct sampling_params sampled = {
    .temperature = 0.9f, .top_k = 40, .top_p = 0.95f, .seed = 7, .repetition_penalty = 1.1f};

static void open_driver(struct driver *d, struct driver_config c) {
    c.path = path;
    c.stages = stages;
    driver_open(d, &c);
}

// Request 1 is greedy, 2 sampled, 3 asks for the log-probabilities of its prompt; then neighbours.
static void run(struct got *got, struct driver_config c, struct driver *keep) {
    struct driver d;
    open_driver(&d, c);
    memset(got, 0, sizeof(struct got) * NUM_RUN);
    driver_add(&d, prompt, PROMPT, OUTPUT, (struct sampling_params){0});
    driver_add(&d, prompt, PROMPT, OUTPUT, sampled);
    driver_add(&d, prompt, PROMPT, 2, (struct sampling_params){.prompt_logprobs = true});
    for (int m = 0; m < MATES; m++) {
        driver_add(&d, prompt + m, 5 + 6 * m, 4 + m, m % 2 ? sampled : (struct sampling_params){0});
        if (m % 2 == 0)
            driver_step(&d, got);
    }
    driver_run(&d, got);
    if (keep)
        *keep = d;
    else
        driver_close(&d);
}

// Without log-probabilities, where ranks exchange a few candidates in place of logits, or may not.
static void run_sampled(struct got *got, struct driver_config c) {
    static const struct sampling_params params[NUM_SAMPLED] = {
        {.seed = 0},
        {.repetition_penalty = 1.3f, .presence_penalty = 0.5f},
        {.temperature = 1, .top_k = 1, .seed = 1},
        {.temperature = 1.5f, .top_k = 5, .seed = 2},
        {.temperature = 1.5f, .top_k = 40, .top_p = 0.8f, .seed = 3},
        {.temperature = 2, .top_k = 64, .min_p = 0.02f, .seed = 4},
        {.temperature = 2, .top_k = 65, .seed = 5},
        {.temperature = 1.2f, .seed = 6},
        {.temperature = 1.2f, .top_p = 0.7f, .seed = 7},
        {.temperature = 1.2f, .min_p = 0.1f, .seed = 8},
        {.temperature = 1, .top_k = 100000, .seed = 9},
        {.temperature = 1.8f, .top_k = 20, .frequency_penalty = 0.7f, .repetition_penalty = 1.2f, .seed = 10},
        {.seed = 0},
        {.temperature = 1.8f,
         .top_k = 10,
         .seed = 11,
         .top_n_sigma = 0.8f,
         .typical_p = 0.8f,
         .xtc_probability = 0.5f,
         .xtc_threshold = 0.1f,
         .mirostat_tau = 3,
         .mirostat_eta = 0.2f,
         .dynatemp_range = 0.5f,
         .dynatemp_exponent = 1},
    };
    struct logit_bias bias[] = {{5, 20}, {300, 20}, {301, 20.0f}, {6, -INFINITY}, {511, 19.5f}};
    struct driver d;
    open_driver(&d, c);
    d.no_logprobs = true;
    for (int i = 0; i < 5; i++)
        bias[i].token %= engine_info(d.engine)->model.vocab;
    memset(got, 0, sizeof(struct got) * NUM_SAMPLED);
    for (int i = 0; i < NUM_SAMPLED; i++)
        driver_submit(&d, (struct request_params){.prompt = prompt + i % 3,
                                                  .num_prompt = 20,
                                                  .max_output = OUTPUT,
                                                  .sampling = params[i],
                                                  .bias = bias,
                                                  .num_bias = i % 4 == 3 ? 5 : 0,
                                                  .filter = i >= 12 ? driver_filter() : NULL});
    driver_run(&d, got);
    driver_close(&d);
}

static void get_logits(struct results *to, struct driver_config c) {
    struct driver d;
    struct got *got = calloc(1, sizeof *got);
    c.keep_logits = true;
    open_driver(&d, c);
    int vocab = engine_info(d.engine)->model.vocab;
    assert_true(vocab <= MAX_VOCAB);
    driver_add(&d, prompt, 17, 1, (struct sampling_params){0});
    driver_run(&d, got);
    memcpy(to->logits, d.first_logits, (size_t)vocab * sizeof *to->logits);
    to->experts = d.experts;
    driver_close(&d);
    free(got);
}

static void check_run(const struct got *got, int ranks, const char *how) {
    char what[200];
    for (int i = 0; i < NUM_RUN; i++) {
        snprintf(what, sizeof what, "%s, %d stages of %d ranks, %s, request %d", name, stages, ranks, how,
                 i + 1);
        assert_same(&one->run[i], &got[i], what);
        if (one->run[i].num_scores != got[i].num_scores ||
            memcmp(one->run[i].scores, got[i].scores, (size_t)got[i].num_scores * sizeof(float)) != 0)
            fail_msg("%s: other log-probabilities of the prompt", what);
    }
}

static void check_preempted_and_hit(int ranks) {
    struct driver d;
    run(many->run,
        (struct driver_config){.ranks = ranks,
                               .num_blocks = num_groups > 1 ? 5 * num_groups : 9,
                               .max_model_len = 80,
                               .no_cache = true},
        &d);
    assert_true(num_groups > 1 || driver_stats(&d).preemptions > 0);
    driver_close(&d);
    check_run(many->run, ranks, "preempted");
    run(many->run, (struct driver_config){.ranks = ranks}, &d);
    check_run(many->run, ranks, "first");
    uint64_t id = d.next_id;
    struct got *again = calloc(id + 1, sizeof *again);
    driver_add(&d, prompt, PROMPT, OUTPUT, sampled);
    driver_run(&d, again);
    assert_int_equal(again[id - 1].num_cached, 32);
    assert_same(&one->run[1], &again[id - 1], "prefix hit");
    free(again);
    driver_close(&d);
}

static void baseline(const char *file, const char *what) {
    struct driver d;
    path = file;
    name = what;
    open_driver(&d, (struct driver_config){0});
    int vocab = engine_info(d.engine)->model.vocab;
    num_groups = engine_info(d.engine)->model.num_groups;
    driver_close(&d);
    prompt[0] = 1;
    for (int i = 1; i < PROMPT; i++)
        prompt[i] = vocab > 512 ? 259 + (i * 37) % 250 : 3 + (i * 37) % (vocab - 3);
    run(one->run, (struct driver_config){0}, NULL);
    run_sampled(one->sampled, (struct driver_config){0});
    get_logits(one, (struct driver_config){0});
    assert_int_equal(one->run[0].num, OUTPUT);
    assert_int_equal(one->run[2].num_scores, PROMPT - 1);
    int differ = 0; // the outputs are not all the same
    for (int i = 1; i < NUM_SAMPLED; i++)
        differ += memcmp(one->sampled[0].tokens, one->sampled[i].tokens, sizeof(token_id) * OUTPUT) != 0;
    assert_true(differ > NUM_SAMPLED / 2);
}

// The model of baseline() on so many ranks. i: which threads, blocks and chunks go together.
static void check(int ranks, int i) {
    static const int threads[] = {1, 3, 8, 2}, blocks[] = {16, 32, 64, 48}, chunks[] = {3, 0, 16, 1};
    struct driver_config c = {.ranks = ranks,
                              .threads = threads[i % 4],
                              .block_size = blocks[i % 4],
                              .max_chunk = chunks[i % 4],
                              .max_running = i % 3 == 0 ? 2 : 0};
    run(many->run, c, NULL);
    check_run(many->run, ranks, "cut");
    const int num_sampled = SLOW && i % 3 ? 0 : NUM_SAMPLED;
    if (num_sampled > 0)
        run_sampled(many->sampled, (struct driver_config){.ranks = ranks, .threads = threads[(i + 1) % 4]});
    for (int r = 0; r < num_sampled; r++)
        if (many->sampled[r].num != OUTPUT || one->sampled[r].num != OUTPUT ||
            memcmp(one->sampled[r].tokens, many->sampled[r].tokens, sizeof(token_id) * OUTPUT) != 0)
            fail_msg("%s, %d stages of %d ranks: other tokens of sampled request %d", name, stages, ranks, r);
    get_logits(many, (struct driver_config){.ranks = ranks});
    if (memcmp(one->logits, many->logits, sizeof one->logits) != 0)
        fail_msg("%s, %d stages of %d ranks: other bits of logits", name, stages, ranks);
    if (stages == 1 && memcmp(&one->experts, &many->experts, sizeof one->experts) != 0)
        fail_msg("%s, %d ranks: other counts of experts", name, ranks);
    if (!SLOW || i % 3 == 0)
        check_preempted_and_hit(ranks);
}

// The same on a grid of so many stages.
static void check_stages(int num_stages, int ranks, int i) {
    stages = num_stages;
    check(ranks, i);
    stages = 1;
}

TEST(test_embedded) {
    baseline(QUIRE_SOURCE_DIR "/models/quire-tiny.gguf", "quire-tiny"); // 4 heads, 2 kv heads
    check(2, 0);
    check(4, 1); // each kv head on two ranks
    check_stages(2, 2, 2);
    check_stages(4, 1, 0);
    if (SLOW)
        return;
    check_stages(2, 1, 1);
    check_stages(2, 4, 3);
    check_stages(8, 1, 3); // a layer each
    check_stages(4, 4, 0);
}

TEST(test_stories) {
    const char *file = test_data("models/stories260K/stories260K.gguf");
    if (!file)
        skip();
    baseline(file, "stories260K"); // 8 heads, 4 kv heads, 172 feed-forward rows: unequal shards
    for (int ranks = 2, i = 0; ranks <= 8; ranks *= 2, i++)
        check(ranks, i + 1);
    check_stages(2, 1, 0); // five layers
    check_stages(5, 1, 1);
    check_stages(4, 2, 3);
    check_stages(2, 8, 2); // two machines of eight
}

// The reference, too, in stages: the same bits. Its sums over ranks are of floats, each a sum in double:
// near.
static void check_reference(const char *file, int first, int vocab, int max_ranks) {
    struct driver_config c = {.device = "ref", .max_step_tokens = 32, .max_model_len = 64};
    path = file;
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = first + (i * 37) % 250;
    memset(many->logits, 1, (size_t)vocab * sizeof(float));
    get_logits(one, c);
    stages = 2;
    get_logits(many, c);
    stages = 1;
    assert_memory_equal(one->logits, many->logits, (size_t)vocab * sizeof(float));
    assert_true(one->logits[0] != one->logits[1]);
    for (c.ranks = 2; c.ranks <= max_ranks; c.ranks *= 2) {
        memset(many->logits, 1, (size_t)vocab * sizeof(float));
        get_logits(many, c);
        for (int i = 0; i < vocab; i++)
            if (!(fabsf(one->logits[i] - many->logits[i]) <= 1e-3f * (1 + fabsf(one->logits[i]))))
                fail_msg("%s, %d ranks of the reference: logit %d is %g, with one %g", file, c.ranks, i,
                         (double)many->logits[i], (double)one->logits[i]);
    }
}

TEST(test_reference) {
    check_reference(QUIRE_SOURCE_DIR "/models/quire-tiny.gguf", 259, 3072, 4);
    const char *file = test_data("models/stories260K/stories260K.gguf"); // unequal shares of its feed-forward
    if (file)
        check_reference(file, 3, 512, 8);
    if (access(QUIRE_GOLDEN_MODELS "/llama-bias.gguf", R_OK) == 0) // a bias of what ranks add
        check_reference(QUIRE_GOLDEN_MODELS "/llama-bias.gguf", 3, 300, 2);
    memcpy(many->logits, one->logits, sizeof one->logits); // what is compared whole later begins equal
}

// Every type of weights, and mixtures. Sixteen heads, so that blocks of 256 divide among four ranks; odd
// sizes.
TEST(test_weight_types) {
    static const struct {
        struct random_model m;
        int kv_heads, ffn;
    } models[] = {
        {{"F32", {DTYPE_F32}, 1, true}, 2, 999},
        {{"F16", {DTYPE_F16}, 1, false}, 4, 1001},
        {{"BF16", {DTYPE_BF16}, 1, true}, 2, 1002},
        {{"Q8_0", {DTYPE_Q8_0}, 1, false}, 1, 992},
        {{"Q4_0", {DTYPE_Q4_0}, 1, true}, 8, 1056},
        {{"Q4_K", {DTYPE_Q4_K}, 1, false}, 2, 1280},
        {{"Q5_K", {DTYPE_Q5_K}, 1, true}, 16, 1024},
        {{"Q6_K", {DTYPE_Q6_K}, 1, false}, 2, 1792},
        {{"Q5_0", {DTYPE_Q5_0}, 1, true}, 2, 992},
        {{"Q4_1", {DTYPE_Q4_1}, 1, false}, 4, 1056},
        {{"Q5_1", {DTYPE_Q5_1}, 1, true}, 8, 1024},
        {{"IQ4_NL", {DTYPE_IQ4_NL}, 1, false}, 2, 1120},
        {{"MXFP4", {DTYPE_MXFP4}, 1, true}, 4, 992},
        {{"Q3_K", {DTYPE_Q3_K}, 1, false}, 2, 1280},
        {{"Q2_K", {DTYPE_Q2_K}, 1, true}, 8, 1792},
        {{"IQ4_XS", {DTYPE_IQ4_XS}, 1, false}, 2, 1280},
        {{"Q4_K and Q6_K", {DTYPE_Q4_K, DTYPE_Q6_K}, 2, false}, 2, 1280},
        {{"all",
          {DTYPE_Q6_K, DTYPE_Q4_0, DTYPE_F16, DTYPE_Q5_K, DTYPE_Q8_0, DTYPE_BF16, DTYPE_F32, DTYPE_Q4_K,
           DTYPE_MXFP4, DTYPE_Q2_K, DTYPE_IQ4_NL, DTYPE_Q5_1, DTYPE_Q3_K, DTYPE_Q4_1, DTYPE_IQ4_XS,
           DTYPE_Q5_0},
          16,
          true},
         4,
         1280},
    };
    for (int i = 0; i < (int)(sizeof models / sizeof models[0]); i++) {
        char file[] = "/tmp/quire-model-XXXXXX";
        random_model_write_sized(&models[i].m, 16, models[i].kv_heads, models[i].ffn, file);
        baseline(file, models[i].m.name);
        check(2, i);
        if (harness_whole() || i % 3 == 1)
            check(4, i + 1);
        if (harness_whole() || i == 7) // they add nothing that depends on the type
            check_stages(2, 1 + i % 2, i + 2);
        unlink(file);
    }
}

// Biases of q, k, v and the output; norms of q and k; windows; tied heads.
TEST(test_architectures) {
    static const char *const files[] = {"llama-bias",  "qwen2-tied",     "qwen2-q8_0",
                                        "qwen3",       "qwen3-bf16",     "mistral-window",
                                        "llama-scale", "llama3-factors", "llama-gqa-tied",
                                        "granite",     "smollm3",        "phi3-long",
                                        "glm4",        "exaone4-window", "gemma2",
                                        "cohere2",     "command-r-plus", "gptneox-parallel",
                                        "nemotron",    "phi2",           "stablelm-parallel",
                                        "lfm2",        "qwen35",         "falcon-h1",
                                        "qwen2moe",    "glm4moe",        "granitemoe-shared",
                                        "nemotron_h",  "nemotron_h_moe", "minicpm3",
                                        "gpt-oss",     "gpt-oss-mxfp4",  "llama4-chunk",
                                        "gemma4-moe"};
    static char file[4096];
    int checked = 0;
    for (int i = 0; i < (int)(sizeof files / sizeof files[0]); i += 1 + SLOW) {
        snprintf(file, sizeof file, "%s/%s.gguf", QUIRE_GOLDEN_MODELS, files[i]);
        if (access(file, R_OK) != 0)
            skip(); // they need Python to be made
        baseline(file, files[i]);
        check(2, i);
        if (harness_whole() || i % 4 == 0)
            check_stages(2, 1 + i % 2, i + 1);
        checked++;
    }
    assert_true(checked > 0);
}

// Experts, latents and states on 2, 4 and 8 ranks: eight heads of each kind, twelve experts, which eight ranks share
// unequally; and in stages.
TEST(test_families) {
    static const struct {
        const char *arch;
        enum dtype weights;
    } cases[] = {{"deepseek2", DTYPE_F32},     {"qwen35moe", DTYPE_Q8_0}, {"qwen3next", DTYPE_F32},
                 {"granitehybrid", DTYPE_F32}, {"falcon-h1", DTYPE_BF16}, {"gpt-oss", DTYPE_MXFP4},
                 {"gemma3n", DTYPE_F32},       {"gemma3n", DTYPE_Q8_0}};
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        char file[] = "/tmp/quire-model-XXXXXX";
        random_shape.arch = cases[i].arch;
        const bool streams = strcmp(cases[i].arch, "gemma3n") == 0; // and embeddings of layers: in no stages
        random_shape.window = streams || strcmp(cases[i].arch, "gpt-oss") == 0 ? 24 : 0;
        random_model_write_sized(&(struct random_model){cases[i].arch, {cases[i].weights}, 1, false}, 8, 2,
                                 256, file);
        random_shape.arch = NULL, random_shape.window = 0;
        baseline(file, cases[i].arch);
        for (int ranks = 2, k = i; ranks <= 8; ranks *= 2, k++)
            if (!SLOW || k % 3 == 2)
                check(ranks, k);
        if (!streams && (!SLOW || i % 3 == 0))
            check_stages(2, 1 + i % 2, i);
        unlink(file);
    }
}

// More stages than steps can be under way.
TEST(test_many_stages) {
    char file[] = "/tmp/quire-model-XXXXXX";
    random_layers = COMM_MAX_WORLD;
    random_model_write_sized(&(struct random_model){"Q8_0", {DTYPE_Q8_0}, 1, true}, 2, 1, 128, file);
    random_layers = RANDOM_LAYERS;
    baseline(file, "16 layers");
    check_stages(COMM_MAX_WORLD, 1, 1);
    unlink(file);
}

static void free_left(void *arg, struct request *r) {
    (void)arg;
    request_free(r);
}

// An engine that is closed with steps in flight: no stage waits for results that nobody will collect.
TEST(test_closed_in_flight) {
    char file[] = "/tmp/quire-model-XXXXXX";
    random_layers = 4;
    random_model_write(&(struct random_model){"F32", {DTYPE_F32}, 1, true}, file);
    random_layers = RANDOM_LAYERS;
    path = file;
    for (stages = 2; stages <= 4; stages++) {
        struct driver d;
        const struct plan *plan;
        open_driver(&d, (struct driver_config){.no_cache = true});
        for (int i = 0; i < 2 * stages; i++)
            driver_add(&d, prompt, PROMPT, 8, (struct sampling_params){0});
        while (engine_in_flight(d.engine) < d.depth && (plan = sched_step(d.sched, 16)))
            engine_launch(d.engine, plan, NULL);
        assert_true(engine_in_flight(d.engine) > 1);
        sched_abandon(d.sched, free_left, NULL);
        driver_close(&d);
    }
    stages = 1;
    unlink(file);
}

// A bias of +infinity on a token of the last rank: the row fails on every rank, where it is sampled from the
// ranks' local top-k and where it is not.
TEST(test_failed_rows) {
    const struct logit_bias bias = {.token = 500, .add = INFINITY};
    char file[] = "/tmp/quire-model-XXXXXX";
    random_model_write(&(struct random_model){"F32", {DTYPE_F32}, 1, true}, file);
    path = file;
    for (int ranks = 1; ranks <= 4; ranks *= 2)
        for (int i = 0; i < 4; i++) {
            struct driver d;
            struct got *got = calloc(2, sizeof *got);
            open_driver(&d, (struct driver_config){.ranks = ranks});
            d.no_logprobs = i % 2 == 0;
            driver_submit(&d, (struct request_params){.prompt = prompt,
                                                      .num_prompt = 7,
                                                      .max_output = OUTPUT,
                                                      .sampling = {.temperature = (float)(i / 2)},
                                                      .bias = &bias,
                                                      .num_bias = 1});
            driver_add(&d, prompt, 7, OUTPUT, (struct sampling_params){0});
            driver_run(&d, got);
            assert_int_equal(got[0].finish, FINISH_ERROR);
            assert_int_equal(got[1].finish, FINISH_LENGTH);
            driver_close(&d);
            free(got);
        }
    unlink(file);
}

// One rank of `down` alone: 8 columns, which are the 8 segments, times ones, added to a residual stream of
// zeros.
struct down {
    struct comm *comm; // NULL: one rank
    int rank, world;
    float sum; // of row 0
};

static void *run_down(void *arg) {
    static const float row[8] = {1.5e-38f, 0, -1.4e-38f, 0, 2e-38f, 0, 0, 0};
    struct down *job = arg;
    const struct model_config whole = {.num_layers = 1,
                                       .hidden = 16,
                                       .vocab = 256,
                                       .num_attn = 1,
                                       .attn = {{.heads = 8, .kv_heads = 8, .head_dim = 8, .rope = -1}},
                                       .num_ffn = 1,
                                       .ffn = {{.hidden = 8}},
                                       .num_groups = 1,
                                       .kv_layers = 1};
    float w[16 * 8] = {0}, scratch[16 * 8];
    memcpy(w, row, sizeof row);
    struct shard s = {.whole = &whole, .blocks = {1, 1}, .rank = job->rank, .world = job->world};
    struct model_config own;
    struct weight_desc part,
        all = {.role = WEIGHT_DOWN, .part[0] = {.data = w, .dtype = DTYPE_F32, .ndim = 2, .shape = {16, 8}}};
    shard_config(&s, &own);
    shard_cut(&s, &all, DTYPE_F32, scratch, &part);
    struct device_config config = {.model = &own,
                                   .num_threads = 1,
                                   .block_size = 16,
                                   .rank = job->rank,
                                   .world = job->world,
                                   .comm = job->comm};
    struct step_limits limits = {
        .max_tokens = 1, .max_seqs = 1, .max_rows = 1, .max_context = 1, .num_blocks = 1};
    struct step step = {.num_tokens = 1, .num_seqs = 1, .max_context_len = 1};
    struct step_out out;
    struct activations memory;
    struct device *dev = backend_cpu.open(NULL, &config, NULL);
    if (!dev)
        return NULL; // sum stays NaN
    struct layer layer = {.ffn = own.ffn[0], .down = backend_cpu.weight_load(dev, &part, NULL)};
    if (backend_cpu.reserve(dev, &limits, NULL) == STATUS_OK) {
        inspect_cpu.view(dev, &memory);
        float *resid = memory.resid, *h = memory.h;
        for (int i = 0; i < own.ffn[0].hidden; i++)
            h[i] = 1;
        memset(resid, 0, (size_t)own.hidden * sizeof *resid);
        backend_cpu.step_begin(dev, &step);
        backend_cpu.ffn_out(dev, &layer, &step);
        backend_cpu.step_end(dev);
        job->sum = backend_cpu.sync(dev, &out, NULL) == STATUS_OK ? *resid : NAN;
    }
    backend_cpu.close(dev);
    return NULL;
}

// Parts whose sum is subnormal on the way up the tree: it is zero between ranks as within one (rule 5).
TEST(test_subnormal_sums) {
    struct err err = {0};
    for (int world = 1; world <= 8; world *= 2) {
        struct comm_threads *g = comm_threads_open(world, 60000, &err);
        struct down jobs[8];
        pthread_t threads[8];
        for (int r = 0; r < world; r++) {
            jobs[r] = (struct down){world > 1 ? comm_threads_rank(g, r) : NULL, r, world, NAN};
            assert_int_equal(pthread_create(&threads[r], NULL, run_down, &jobs[r]), 0);
        }
        for (int r = 0; r < world; r++)
            pthread_join(threads[r], NULL);
        for (int r = 0; r < world; r++)
            if (jobs[r].sum != 2e-38f)
                fail_msg("rank %d of %d: %g", r, world, (double)jobs[r].sum);
        comm_threads_close(g);
    }
}

static struct engine_config config_of(const char *file, int ranks) {
    return (struct engine_config){.path = file,
                                  .device = "cpu",
                                  .tensor_parallel_size = ranks,
                                  .num_threads = 1,
                                  .block_size = 16,
                                  .num_kv_blocks = 8,
                                  .max_num_seqs = 2,
                                  .max_num_batched_tokens = 16};
}

static void expect_refused(struct engine_config c, const char *words) {
    struct err err = {0};
    struct engine *e = engine_open(&c, &err);
    assert_null(e);
    assert_int_equal(err.code, STATUS_INVALID);
    if (!strstr(err.msg, words))
        fail_msg("'%s' lacks '%s'", err.msg, words);
}

TEST(test_refused) {
    const char *tiny = QUIRE_SOURCE_DIR "/models/quire-tiny.gguf";
    char file[] = "/tmp/quire-model-XXXXXX";
    expect_refused(config_of(tiny, 3), "the ranks must divide; possible: 1, 2, 4");
    expect_refused(config_of(tiny, 8), "(4 heads, 2 kv heads): its attention heads do not divide among them; "
                                       "possible: 1, 2, 4");
    expect_refused(config_of(tiny, 16), "the ranks must divide");
    struct engine_config many_stages = config_of(tiny, 1);
    many_stages.pipeline_parallel_size = 9;
    expect_refused(many_stages,
                   "--pipeline-parallel-size 9 does not suit this model: a stage has at least one of its "
                   "8 layers");
    many_stages = config_of(tiny, 4);
    many_stages.pipeline_parallel_size = 5;
    expect_refused(many_stages, "makes 20 ranks; at most 16 work together");
    random_model_write(&(struct random_model){"Q4_K", {DTYPE_Q4_K}, 1, true}, file);
    expect_refused(config_of(file, 4), "cut inside a block of its weights; possible: 1, 2");
    struct engine_config c = config_of(file, 4);
    c.dtype = "float32"; // quantised matrices are left alone
    expect_refused(c, "possible: 1, 2");
    unlink(file);
    snprintf(file, sizeof file, "/tmp/quire-model-XXXXXX");
    random_model_write_sized(&(struct random_model){"F32", {DTYPE_F32}, 1, true}, 24, 3, 512, file);
    expect_refused(config_of(file, 2),
                   "kv heads neither divide among them nor can be copied evenly; possible: 1");
    unlink(file);
    snprintf(file, sizeof file, "/tmp/quire-model-XXXXXX");
    random_model_write_sized(&(struct random_model){"Q6_K", {DTYPE_Q6_K}, 1, true}, 16, 4, 512, file);
    expect_refused(config_of(file, 4), "fewer blocks than there would be ranks; possible: 1, 2");
    unlink(file);
}

// Each rank holds its part: together little more than one rank holds alone, but for the table of embeddings.
TEST(test_memory) {
    char file[] = "/tmp/quire-model-XXXXXX";
    struct err err = {0};
    uint64_t bytes[3];
    random_model_write_sized(&(struct random_model){"Q8_0", {DTYPE_Q8_0}, 1, false}, 16, 4, 2048, file);
    for (int i = 0; i < 3; i++) {
        struct engine_config c = config_of(file, 1 << i);
        struct engine *e = engine_open(&c, &err);
        if (!e)
            fail_msg("%s", err.msg);
        bytes[i] = engine_info(e)->weight_bytes;
        engine_close(e);
    }
    uint64_t table = RANDOM_VOCAB * 512 / 32 * 34;
    for (int i = 1; i < 3; i++) {
        uint64_t copies = ((1u << i) - 1) * table;
        assert_true(bytes[i] >= bytes[0] + copies && bytes[i] < bytes[0] + copies + bytes[0] / 50);
    }
    // Stages hold nothing twice but a tied table, which is the head of the last; the cache is shared out,
    // too.
    struct engine_config c = config_of(file, 1);
    c.pipeline_parallel_size = 2;
    struct engine *e = engine_open(&c, &err);
    assert_non_null(e);
    assert_int_equal(engine_info(e)->weight_bytes, bytes[0]);
    assert_int_equal(engine_info(e)->num_blocks, 8);
    assert_int_equal(engine_info(e)->kv_bytes, 8 * 2 * RANDOM_LAYERS * 16 * 4 * 64 * 2);
    assert_non_null(strstr(engine_info(e)->device, "2 stages of cpu"));
    engine_close(e);
    unlink(file);
}

// A rank that fails in the middle: the others return at once, the engine says which and why, and stays dead.
TEST(test_failed_rank) {
    for (int i = 0; i < 6; i++) { // four ranks of one stage, stages of two, and four stages
        int rank = i % 2 * 3;
        char text[16], why[64];
        struct driver d;
        struct err err = {0};
        snprintf(text, sizeof text, "%d", rank);
        snprintf(why, sizeof why, "the device of rank %d fails", rank);
        setenv("QUIRE_CUDA_MODULE", FAULT_BACKEND, 1);
        setenv("FAULT_RANK", text, 1);
        setenv("FAULT_STEP", "3", 1);
        path = QUIRE_SOURCE_DIR "/models/quire-tiny.gguf";
        stages = i / 2 == 0 ? 1 : i / 2 * 2;
        open_driver(&d, (struct driver_config){.device = "cuda", .ranks = 4 / stages});
        stages = 1;
        unsetenv("QUIRE_CUDA_MODULE");
        unsetenv("FAULT_RANK");
        unsetenv("FAULT_STEP");
        struct request *r = driver_add(&d, prompt, PROMPT, OUTPUT, (struct sampling_params){0});
        for (int step = 1; step <= 3; step++) {
            struct step_result result;
            const struct plan *plan = sched_step(d.sched, d.max_chunk);
            assert_non_null(plan);
            engine_launch(d.engine, plan, NULL);
            enum status st = engine_collect(d.engine, &result, &err);
            if (step < 3) {
                assert_int_equal(st, STATUS_OK);
                sched_update(d.sched, plan->id, &result.outcome, d.events);
            } else {
                assert_int_equal(st, STATUS_DEVICE);
                assert_non_null(strstr(err.msg, why));
            }
        }
        driver_close(&d);
        request_free(r);
    }
}

int main(void) {
    one = calloc(1, sizeof *one);
    many = calloc(1, sizeof *many);
    return run_all_tests(NULL, NULL);
}
