// The same request gives the same tokens and the same bits of log-probabilities whatever else runs and
// however it is cut: alone, batched, chunked, preempted, from the prefix cache, with any block size, threads
// and instruction set; weights of every type.
#include "driver.h"
#include "quantize.h"
#include "random_model.h"
#include "variants.h"

enum { PROMPT = 40, OUTPUT = 48, MATES = 16 };

static token_id prompt[PROMPT];
static struct got alone[2]; // greedy, sampled
static struct got *results; // (1 + MATES + 2)

static const struct sampling_params sampled = {
    .temperature = 0.9f, .top_k = 40, .top_p = 0.95f, .seed = 7, .repetition_penalty = 1.1f};

static const char *random_path; // of a random model instead of the trained one
static const char *kv_dtype;    // NULL: auto
static int num_output = OUTPUT;
static int num_blocks = 5; // that more than one request needs

static const char *model(void) {
    static char copy[4096];
    if (random_path)
        return random_path;
    const char *path = test_data("models/stories260K/stories260K.gguf");
    if (!path)
        skip();
    snprintf(copy, sizeof copy, "%s", path);
    return copy;
}

static token_id mate_token(int mate, int i) { return 3 + 256 + (mate * 31 + i * 7 + mate * i) % 250; }

// The subject is request 1 (greedy) and 2 (sampled); mates arrive before and after.
static void run(const struct driver_config *config, int mates, const char *what, struct driver *keep) {
    struct driver d;
    struct driver_config c = *config;
    c.path = model();
    c.kv_dtype = kv_dtype;
    driver_open(&d, &c);
    memset(results, 0, sizeof *results * (2 + MATES));
    driver_add(&d, prompt, PROMPT, num_output, (struct sampling_params){0});
    driver_add(&d, prompt, PROMPT, num_output, sampled);
    for (int m = 0; m < mates; m++) {
        token_id t[64];
        int n = 1 + (m * 13) % 60;
        for (int i = 0; i < n; i++)
            t[i] = mate_token(m, i);
        driver_add(&d, t, n, 5 + m * 3, m % 2 ? sampled : (struct sampling_params){0});
        if (m % 3 == 0)
            driver_step(&d, results);
    }
    driver_run(&d, results);
    if (alone[0].num > 0) {
        assert_same(&alone[0], &results[0], what);
        assert_same(&alone[1], &results[1], what);
    }
    if (keep)
        *keep = d;
    else
        driver_close(&d);
}

TEST(test_alone) {
    struct driver d;
    for (int i = 0; i < 2; i++) { // each in an engine of its own
        driver_open(&d, &(struct driver_config){.path = model(), .variant = "scalar"});
        driver_add(&d, prompt, PROMPT, OUTPUT, i ? sampled : (struct sampling_params){0});
        driver_run(&d, &alone[i]);
        assert_int_equal(alone[i].num, OUTPUT);
        assert_int_equal(alone[i].finish, FINISH_LENGTH);
        driver_close(&d);
    }
    assert_true(memcmp(alone[0].tokens, alone[1].tokens, sizeof alone[0].tokens) != 0);
}

TEST(test_batched) {
    static const int mates[] = {0, 1, 3, 16};
    for (int i = 0; i < 4; i++)
        run(&(struct driver_config){0}, mates[i], "batched", NULL);
}

TEST(test_chunked) {
    static const int chunks[] = {1, 3, 16, 37};
    for (int i = 0; i < 4; i++) {
        // one request at a time, so that the budget is the chunk; and many beside each other
        run(&(struct driver_config){.max_running = 1, .max_step_tokens = chunks[i]}, 0, "chunked", NULL);
        run(&(struct driver_config){.max_chunk = chunks[i], .max_step_tokens = 64}, MATES,
            "chunked beside others", NULL);
    }
}

TEST(test_preempted) {
    static const int blocks[] = {7, 9, 12};
    for (int cache = 0; cache < 2; cache++) {
        int preemptions = 0;
        for (int i = 0; i < 3; i++) {
            struct driver d;
            run(&(struct driver_config){.num_blocks = blocks[i], .max_model_len = 112, .no_cache = !cache}, 8,
                "preempted", &d);
            preemptions += results[0].num_preemptions + results[1].num_preemptions;
            assert_true(driver_stats(&d).preemptions > 0);
            driver_close(&d);
        }
        assert_true(preemptions > 0); // of the subject itself, not only of its mates
    }
}

TEST(test_prefix_hit) {
    struct driver d;
    run(&(struct driver_config){0}, 3, "first", &d);
    uint64_t id = d.next_id;
    struct got *again = calloc(id + 1, sizeof *again);
    driver_add(&d, prompt, PROMPT, OUTPUT, (struct sampling_params){0});
    driver_add(&d, prompt, PROMPT, OUTPUT, sampled);
    driver_run(&d, again);
    assert_int_equal(again[id - 1].num_cached, 32); // of 40 tokens the whole blocks, never the last token
    assert_int_equal(again[id].num_cached, 32);
    assert_same(&alone[0], &again[id - 1], "prefix hit");
    assert_same(&alone[1], &again[id], "prefix hit");
    free(again);
    driver_close(&d);
}

TEST(test_block_sizes) {
    static const int sizes[] = {16, 32, 48, 64, 4096};
    for (int i = 0; i < 5; i++)
        run(&(struct driver_config){.block_size = sizes[i]}, 3, "block size", NULL);
}

TEST(test_threads) {
    static const int threads[] = {1, 2, 8};
    for (int i = 0; i < 3; i++)
        run(&(struct driver_config){.threads = threads[i]}, 3, "threads", NULL);
}

// Whether this machine has the instruction set.
static bool here(const char *variant) {
    struct err err = {0};
    struct engine_config probe = {.path = model(),
                                  .device = "cpu",
                                  .variant = variant,
                                  .num_threads = 1,
                                  .block_size = 16,
                                  .num_kv_blocks = 8,
                                  .max_num_seqs = 1,
                                  .max_num_batched_tokens = 1};
    struct engine *e = engine_open(&probe, &err);
    engine_close(e);
    if (!e) {
        printf("  %s: %s\n", variant, err.msg);
        assert_int_equal(err.code, STATUS_DEVICE);
    }
    return e;
}

// The last is the second, but for one instruction.
enum { NUM_VARIANTS = sizeof variants / sizeof *variants - SLOW };

TEST(test_instruction_sets) {
    int ran = 0;
    for (int i = 0; i < NUM_VARIANTS; i++) {
        if (!here(variants[i]))
            continue;
        run(&(struct driver_config){.variant = variants[i], .threads = 2}, 3, variants[i], NULL);
        ran++;
    }
    assert_true(ran >= 1);
}

// The reference backend has another order of summation: the same top token wherever the margin is clear.
TEST(test_reference) {
    struct driver d;
    driver_open(&d, &(struct driver_config){.path = model(), .device = "ref"});
    memset(results, 0, sizeof *results);
    driver_add(&d, prompt, PROMPT, OUTPUT, (struct sampling_params){0});
    driver_run(&d, results);
    for (int i = 0; i < OUTPUT && results[0].tokens[i] == alone[0].tokens[i]; i++)
        for (int j = 0; j < DRIVER_TOP; j++)
            assert_true(fabsf(results[0].top[i][j] - alone[0].top[i][j]) < 1e-4f);
    assert_memory_equal(results[0].tokens, alone[0].tokens, OUTPUT * sizeof(token_id));
    driver_close(&d);
}

// Logits after the first 8 tokens of the prompt (V): the reference is slow.
static void first_logits(float *logits, const char *device, const char *variant) {
    struct driver d;
    driver_open(&d, &(struct driver_config){.path = model(),
                                            .device = device,
                                            .variant = variant,
                                            .kv_dtype = kv_dtype,
                                            .keep_logits = true});
    memset(results, 0, sizeof *results);
    driver_add(&d, prompt, 8, 1, (struct sampling_params){0});
    driver_run(&d, results);
    memcpy(logits, d.first_logits, RANDOM_VOCAB * sizeof(float));
    driver_close(&d);
}

// More requests than the cache holds; then the greedy one again, from the blocks that it left.
static void check_preempted_and_hit(const char *what) {
    struct driver d;
    run(&(struct driver_config){.num_blocks = num_blocks, .max_model_len = 80, .no_cache = true}, 3, what,
        &d);
    assert_true(driver_stats(&d).preemptions > 0);
    driver_close(&d);
    run(&(struct driver_config){0}, 0, what, &d);
    uint64_t id = d.next_id;
    static struct got again[3];
    memset(again, 0, sizeof again);
    driver_add(&d, prompt, PROMPT, num_output, (struct sampling_params){0});
    assert_true(id - 1 < 3);
    driver_run(&d, again);
    assert_int_equal(again[id - 1].num_cached, 32);
    assert_same(&alone[0], &again[id - 1], what);
    driver_close(&d);
}

// One file with every instruction set under other threads, block sizes, chunks and neighbours; i: which of
// them go together. distance: to the reference's logits, root mean square by their own.
static void check_file(const char *path, const char *name, double distance, int i) {
    static const int threads[] = {1, 2, 3, 8}, blocks[] = {64, 32, 16, 48}, chunks[] = {1, 3, 16, 0};
    static const int mates[] = {0, 3, 0, 5, 0, 1};
    static float logits[2][RANDOM_VOCAB];
    char what[128];
    random_path = path;
    num_output = 6;
    alone[0].num = 0; // nothing to compare with
    run(&(struct driver_config){.max_running = 1}, 0, "", NULL);
    memcpy(alone, results, sizeof alone);
    assert_int_equal(alone[0].num, num_output);
    first_logits(logits[0], "cpu", NULL);
    first_logits(logits[1], "ref", NULL);
    double difference = 0, size = 0;
    for (int v = 0; v < RANDOM_VOCAB; v++) {
        difference += pow((double)logits[0][v] - (double)logits[1][v], 2);
        size += pow((double)logits[1][v], 2);
    }
    if (!(sqrt(difference / size) < distance))
        fail_msg("%s: %g from the reference", name, sqrt(difference / size));
    for (int v = 0; v < NUM_VARIANTS; v++)
        for (int c = 0; c < (v == 0 ? 2 : 6) && (c > 0 || here(variants[v])); c++) {
            if ((c + v + i) % (SLOW              ? 16
                               : harness_whole() ? 2
                                                 : 3)) // a part of them for each file, the next for the next
                continue;
            if (v == 0 && i % 3) // plain C takes a third of the time, and ops/ compares it for every type
                continue;
            struct driver_config config = {.variant = variants[v],
                                           .threads = threads[(c + i + v) % 4],
                                           .block_size = blocks[(c + i / 2 + 2 * v) % 4],
                                           .max_chunk = chunks[(c + i / 4 + v) % 4]};
            config.max_step_tokens = mates[c] ? 0 : config.max_chunk;
            config.max_running = mates[c] ? 0 : 1;
            snprintf(what, sizeof what, "%s, %s, %d threads, blocks of %d, chunks of %d, %d mates", name,
                     variants[v], config.threads, config.block_size, config.max_chunk, mates[c]);
            run(&config, mates[c], what, NULL);
        }
    if (harness_whole() || i % (SLOW ? 6 : 2) == 0)
        check_preempted_and_hit(name);
    random_path = NULL;
}

// Models of each weight type, and mixtures, of a size at which every matrix is split between threads.
TEST(test_weight_types) {
    static const struct {
        struct random_model m;
        double distance; // to the reference: activations are rounded to 8 bits, to bf16 or not
    } models[] = {
        {{"F32", {DTYPE_F32}, 1, true}, 1e-5},
        {{"F16", {DTYPE_F16}, 1, false}, 1e-3},
        {{"BF16", {DTYPE_BF16}, 1, true}, 2e-2},
        {{"Q8_0", {DTYPE_Q8_0}, 1, false}, 3e-2},
        {{"Q4_0", {DTYPE_Q4_0}, 1, true}, 3e-2},
        {{"Q4_K", {DTYPE_Q4_K}, 1, false}, 3e-2},
        {{"Q5_K", {DTYPE_Q5_K}, 1, true}, 3e-2},
        {{"Q6_K", {DTYPE_Q6_K}, 1, false}, 3e-2},
        {{"Q5_0", {DTYPE_Q5_0}, 1, true}, 3e-2},
        {{"Q4_1", {DTYPE_Q4_1}, 1, false}, 3e-2},
        {{"Q5_1", {DTYPE_Q5_1}, 1, true}, 3e-2},
        {{"IQ4_NL", {DTYPE_IQ4_NL}, 1, false}, 3e-2},
        {{"MXFP4", {DTYPE_MXFP4}, 1, true}, 3e-2},
        {{"Q3_K", {DTYPE_Q3_K}, 1, false}, 3e-2},
        {{"Q2_K", {DTYPE_Q2_K}, 1, true}, 3e-2},
        {{"IQ4_XS", {DTYPE_IQ4_XS}, 1, false}, 3e-2},
        {{"Q5_0 with Q8_0, Q4_K and Q6_K", {DTYPE_Q5_0, DTYPE_Q8_0, DTYPE_Q4_K, DTYPE_Q6_K}, 4, true}, 3e-2},
        {{"Q4_K and Q6_K", {DTYPE_Q4_K, DTYPE_Q6_K}, 2, false}, 3e-2},
        {{"all",
          {DTYPE_Q6_K, DTYPE_Q4_0, DTYPE_F16, DTYPE_Q5_K, DTYPE_Q8_0, DTYPE_BF16, DTYPE_F32, DTYPE_Q4_K,
           DTYPE_MXFP4, DTYPE_Q2_K, DTYPE_IQ4_NL, DTYPE_Q5_1, DTYPE_Q3_K, DTYPE_Q4_1, DTYPE_IQ4_XS,
           DTYPE_Q5_0},
          16,
          true},
         3e-2},
    };
    for (int i = 0; i < (int)(sizeof models / sizeof models[0]); i += 1 + SLOW) { // the last has all types
        char path[] = "/tmp/quire-model-XXXXXX";
        random_model_write(&models[i].m, path);
        check_file(path, models[i].m.name, models[i].distance, i);
        unlink(path);
    }
}

// The same of files that quantize_file() made: values such as a model has, where random_model_write() makes
// random blocks.
TEST(test_quantized_files) {
    static const struct {
        const char *type, *arch;
    } cases[] = {{"q4_k_m", NULL}, {"q8_0", "gpt-oss"}, {"q5_k_m", NULL}, {"q4_0", NULL},
                 {"q8_0", NULL},   {"q5_0", NULL},      {"q5_1", NULL}};
    for (int i = 0; i < (SLOW ? 2 : 7); i++) {
        char path[] = "/tmp/quire-model-XXXXXX", quantized[64];
        const char *type = cases[i].type;
        random_shape.arch = cases[i].arch;
        random_shape.window = cases[i].arch ? 24 : 0;
        num_blocks = cases[i].arch ? 10 : 5;
        random_model_write(&(struct random_model){"F32", {DTYPE_F32}, 1, !cases[i].arch}, path);
        snprintf(quantized, sizeof quantized, "%s.gguf", path);
        struct err err = {0};
        struct quantize_result result;
        if (quantize_file(&(struct quantize_config){.in = path, .out = quantized, .type = type}, &result,
                          &err) != STATUS_OK)
            fail_msg("%s: %s", type, err.msg);
        check_file(quantized, type, 3e-2, i);
        unlink(quantized);
        unlink(path);
    }
    random_shape.arch = NULL, random_shape.window = 0;
    num_blocks = 5;
}

// Caches of each type, under weights of F32: what differs is theirs.
TEST(test_cache_types) {
    static const struct {
        const char *name;
        double distance; // queries and weights of the softmax are rounded to bf16 or not
    } types[] = {{"f32", 1e-5}, {"f16", 1e-3}, {"bf16", 2e-2}, {"int8", 3e-2}};
    char path[] = "/tmp/quire-model-XXXXXX";
    random_model_write(&(struct random_model){"F32", {DTYPE_F32}, 1, true}, path);
    for (int i = 0; i < 4; i++) {
        kv_dtype = types[i].name;
        check_file(path, types[i].name, types[i].distance, 3 * i);
    }
    kv_dtype = NULL;
    unlink(path);
}

// Scales of every kind; norms behind sublayers, soft caps, GeGLU, a window in every second layer; parallel blocks of
// LayerNorm, biases everywhere; recurrent layers of each kind; sinks, and experts with biases; chunks, and experts of
// weighted rows; latent attention, and experts in groups; experts beside a dense feed-forward; streams, and sparse gates.
TEST(test_families) {
    static const struct {
        const char *arch, *kv_dtype;
        enum dtype weights;
        int window, blocks; // that more than one request needs, of all groups of layers
        double distance;
    } cases[] = {
        {"granite", NULL, DTYPE_F32, 0, 5, 1e-5},        {"gemma2", NULL, DTYPE_F32, 24, 10, 1e-5},
        {"gemma2", "int8", DTYPE_Q8_0, 24, 10, 5e-2},    {"phi2", NULL, DTYPE_F32, 0, 5, 1e-5},
        {"phi2", "bf16", DTYPE_Q4_K, 0, 5, 5e-2},        {"lfm2", NULL, DTYPE_F32, 0, 6, 1e-5},
        {"lfm2", "bf16", DTYPE_Q4_K, 0, 6, 5e-2},        {"gpt-oss", NULL, DTYPE_F32, 24, 10, 1e-5},
        {"gpt-oss", "int8", DTYPE_MXFP4, 24, 10, 5e-2},  {"llama4", NULL, DTYPE_F32, 24, 10, 1e-5},
        {"llama4", "bf16", DTYPE_Q8_0, 24, 10, 5e-2},    {"deepseek2", NULL, DTYPE_F32, 0, 5, 1e-5},
        {"deepseek2", "int8", DTYPE_Q8_0, 0, 5, 5e-2},   {"qwen35moe", NULL, DTYPE_F32, 0, 6, 1e-5},
        {"qwen3next", "bf16", DTYPE_Q4_K, 0, 6, 5e-2},   {"falcon-h1", NULL, DTYPE_F32, 0, 6, 1e-5},
        {"granitehybrid", NULL, DTYPE_Q8_0, 0, 6, 5e-2}, {"gemma4", NULL, DTYPE_F32, 24, 10, 1e-5},
        {"gemma3n", NULL, DTYPE_F32, 24, 10, 1e-5},      {"gemma3n", "bf16", DTYPE_Q8_0, 24, 10, 5e-2}};
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases);
         i += harness_whole() || (i > 11 && !SLOW) ? 1 : 2) {
        char path[] = "/tmp/quire-model-XXXXXX";
        random_shape.arch = cases[i].arch;
        random_shape.window = cases[i].window;
        random_state =
            3; // a file in which no router chooses between near equals, whatever was written before
        random_model_write_sized(&(struct random_model){cases[i].arch, {cases[i].weights}, 1, false}, 8, 2,
                                 512, path);
        random_shape.arch = NULL, random_shape.window = 0;
        kv_dtype = cases[i].kv_dtype;
        num_blocks = cases[i].blocks;
        check_file(path, cases[i].arch, cases[i].distance, 3 * i);
        unlink(path);
    }
    kv_dtype = NULL;
    num_blocks = 5;
}

// Steps of so many rows that AMX, where it is, unpacks quantised weights for its tiles. With a cache that it takes in an
// order of its own, or weights, one request alone on AMX is what all are compared with.
TEST(test_many_rows) {
    if (!here("amx"))
        skip();
    static const struct {
        const char *arch, *kv_dtype;
        int window;
        struct random_model m;
    } cases[] = {{NULL, NULL, 0, {"Q8_0", {DTYPE_Q8_0}, 1, false}},
                 {NULL, NULL, 0, {"Q4_K and Q6_K", {DTYPE_Q4_K, DTYPE_Q6_K}, 2, false}},
                 {NULL, "bf16", 24, {"BF16", {DTYPE_BF16}, 1, false}},
                 {"gpt-oss", NULL, 24, {"MXFP4", {DTYPE_MXFP4}, 1, false}},
                 {"gpt-oss", "int8", 24, {"MXFP4, int8", {DTYPE_MXFP4}, 1, false}},
                 {"deepseek2", NULL, 0, {"Q8_0", {DTYPE_Q8_0}, 1, false}},
                 {"deepseek2", "bf16", 0, {"Q8_0, bf16", {DTYPE_Q8_0}, 1, false}}};
    num_output = 6;
    num_blocks = 10;
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        char path[] = "/tmp/quire-model-XXXXXX";
        random_shape.arch = cases[i].arch;
        random_shape.window = cases[i].window;
        random_model_write_sized(&cases[i].m, 8, 2, 512, path);
        random_shape.arch = NULL, random_shape.window = 0;
        random_path = path;
        alone[0].num = 0;
        kv_dtype = cases[i].kv_dtype;
        run(&(struct driver_config){.variant = kv_dtype ? "amx" : "scalar"}, 0, "", NULL);
        memcpy(alone, results, sizeof alone);
        for (int threads = 1; threads < 3; threads++)
            run(&(struct driver_config){.variant = "amx", .threads = threads}, MATES, cases[i].m.name, NULL);
        random_path = NULL;
        unlink(path);
    }
    kv_dtype = NULL;
    num_blocks = 5;
}

int main(void) {
    results = calloc(2 + MATES, sizeof *results);
    prompt[0] = 1;
    for (int i = 1; i < PROMPT; i++)
        prompt[i] = 3 + 256 + (i * 37) % 250;
    return run_all_tests(NULL, NULL);
}
