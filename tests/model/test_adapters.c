// Adapters: a request with one gives the same tokens and bits alone and beside others, however the work is cut, and on
// every instruction set; the prefix cache keeps them apart; the reference agrees; and what they cost is bounded.
#include "driver.h"
#include "random_adapter.h"
#include "variants.h"

enum { PROMPT = 40, OUTPUT = 10, ADAPTERS = 4, SUBJECTS = ADAPTERS + 1, MATES = 6 };

static token_id prompt[PROMPT];
static struct got alone[SUBJECTS]; // by adapter, the last without
static struct got results[SUBJECTS + MATES + SUBJECTS];
static char model_path[64], adapter_path[ADAPTERS][64];
static const char *kv_dtype;

// ---- runs

// The adapters [first, first + num) are loaded in this order.
static struct adapter *loaded[ADAPTERS];

static void open_driver(struct driver *d, struct driver_config c, int first, int num) {
    struct err err = {0};
    c.path = model_path;
    c.kv_dtype = kv_dtype;
    c.max_loras = ADAPTERS;
    driver_open(d, &c);
    memset(loaded, 0, sizeof loaded);
    for (int i = first; i < first + num; i++)
        if (!(loaded[i] = engine_adapter_open(d->engine, adapter_path[i], &err)))
            fail_msg("%s", err.msg);
}

static void close_driver(struct driver *d) {
    for (int i = 0; i < ADAPTERS; i++)
        adapter_release(loaded[i]);
    driver_close(d);
}

static void add(struct driver *d, const token_id *tokens, int n, int output, int adapter) {
    driver_submit(d, (struct request_params){.prompt = tokens,
                                             .num_prompt = n,
                                             .max_output = output,
                                             .adapter = adapter < ADAPTERS ? loaded[adapter] : NULL});
}

static void run_alone(void) {
    struct driver d;
    for (int a = 0; a < SUBJECTS; a++) { // each in an engine of its own, the adapter in its first slot
        open_driver(&d, (struct driver_config){.max_running = 1}, a, a < ADAPTERS);
        memset(results, 0, sizeof results);
        add(&d, prompt, PROMPT, OUTPUT, a);
        driver_run(&d, results);
        alone[a] = results[0];
        assert_int_equal(alone[a].num, OUTPUT);
        close_driver(&d);
        for (int b = 0; b < a; b++) // each changes something
            assert_true(memcmp(alone[a].top, alone[b].top, sizeof alone[a].top) != 0);
    }
}

// All subjects, and mates of other lengths with one adapter or another.
static void run(struct driver_config c, int mates, const char *what, struct driver *keep) {
    struct driver d;
    open_driver(&d, c, 0, ADAPTERS);
    memset(results, 0, sizeof results);
    for (int a = 0; a < SUBJECTS; a++)
        add(&d, prompt, PROMPT, OUTPUT, a);
    for (int m = 0; m < mates; m++) {
        token_id t[64];
        int n = 1 + (m * 13) % 60;
        for (int i = 0; i < n; i++)
            t[i] = 3 + 256 + (m * 31 + i * 7) % 250;
        add(&d, t, n, 2 + m, (m * 3) % SUBJECTS);
        if (m % 2 == 0)
            driver_step(&d, results);
    }
    driver_run(&d, results);
    for (int a = 0; a < SUBJECTS; a++)
        assert_same(&alone[a], &results[a], what);
    if (keep)
        *keep = d;
    else
        close_driver(&d);
}

static bool have(int i, const char *variant) {
    static signed char known[4]; // 1: it has, -1: it has not
    struct err err = {0};
    if (known[i])
        return known[i] > 0;
    struct engine_config probe = {.path = model_path,
                                  .device = "cpu",
                                  .variant = variant,
                                  .num_threads = 1,
                                  .block_size = 16,
                                  .num_kv_blocks = 8,
                                  .max_num_seqs = 1,
                                  .max_num_batched_tokens = 1};
    struct engine *e = engine_open(&probe, &err);
    engine_close(e);
    known[i] = e ? 1 : -1;
    return e;
}

// Logits after the first tokens of the prompt (V).
static void first_logits(float *logits, const char *device, int ranks, int adapter) {
    struct driver d;
    open_driver(&d, (struct driver_config){.device = device, .ranks = ranks, .keep_logits = true}, 0,
                ADAPTERS);
    memset(results, 0, sizeof results);
    add(&d, prompt, 8, 1, adapter);
    driver_run(&d, results);
    memcpy(logits, d.first_logits, RANDOM_VOCAB * sizeof(float));
    close_driver(&d);
}

static void check_reference(double most, bool ranks) {
    static float logits[3][RANDOM_VOCAB], none[RANDOM_VOCAB];
    first_logits(none, "cpu", 1, ADAPTERS);
    for (int a = 0; a < ADAPTERS; a++) {
        first_logits(logits[0], "cpu", 1, a);
        first_logits(logits[1], "ref", 1, a);
        if (!(distance(logits[0], logits[1], RANDOM_VOCAB) < most))
            fail_msg("adapter %d: %g from the reference", a, distance(logits[0], logits[1], RANDOM_VOCAB));
        assert_true(distance(none, logits[0], RANDOM_VOCAB) > 0.01);
        if (!ranks)
            continue;
        first_logits(logits[2], "ref", 2, a);
        assert_true(distance(logits[2], logits[1], RANDOM_VOCAB) < 1e-5);
    }
}

static void check_model(const char *what, bool plain, bool ranks, bool stages) {
    static const int chunks[] = {1, 7, 16, 0};
    run_alone();
    for (int i = plain ? 0 : 1; i < 4;
         i++) { // the first is plain C, which takes as long as the others together
        if (!have(i, variants[i]))
            continue;
        run((struct driver_config){.variant = variants[i],
                                   .threads = 1 + i,
                                   .max_chunk = chunks[i],
                                   .block_size = i % 2 ? 32 : 16},
            i % 2 ? MATES : 2, what, NULL);
    }
    if (ranks)
        run((struct driver_config){.ranks = 2, .threads = 2}, MATES, "2 ranks", NULL);
    if (ranks && stages)
        run((struct driver_config){.ranks = 2, .stages = 2, .threads = 4}, 2, "2 stages of 2 ranks", NULL);
}

// ---- tests

static const struct adapter_shape shapes[ADAPTERS] = {{DTYPE_F32, DTYPE_F32, 16, 4, "qkvogud"},
                                                      {DTYPE_BF16, DTYPE_BF16, 8, 5, "qv"},
                                                      {DTYPE_F16, DTYPE_F16, 40, 13, "qkvogud"},
                                                      {DTYPE_BF16, DTYPE_F32, 5, 2, "ogd"}};

static void write_files(const char *arch, enum dtype weights, int F, const char *ffn) {
    strcpy(model_path, "/tmp/quire-model-XXXXXX");
    random_shape.arch = arch;
    random_shape.window = arch && strcmp(arch, "phi2") && strcmp(arch, "granite") ? 24 : 0;
    random_model_write_sized(&(struct random_model){"", {weights}, 1, false}, 8, 2, F, model_path);
    random_shape.arch = NULL, random_shape.window = 0;
    for (int i = 0; i < ADAPTERS; i++) {
        char targets[8] = "";
        for (const char *t = shapes[i].targets; *t; t++)
            if (!strchr("gud", *t) || strchr(ffn, *t))
                strncat(targets, t, 1);
        struct adapter_shape s = shapes[i];
        s.targets = targets;
        write_adapter(&s, arch ? arch : "llama", F, adapter_path[i]);
    }
}

static void remove_files(void) {
    unlink(model_path);
    for (int i = 0; i < ADAPTERS; i++)
        unlink(adapter_path[i]);
}

// Gate and up together; up alone, parallel blocks and biases; norms behind sublayers; a scale of what is added; attention
// beside experts; sparse gates.
TEST(test_models) {
    static const struct {
        const char *arch, *kv_dtype, *ffn;
        enum dtype weights;
        int F;
        bool ranks;
        double distance; // of BF16's rounding of inputs, and of weights'
    } cases[] = {{NULL, NULL, "gud", DTYPE_F32, 1024, true, 6e-3},
                 {NULL, NULL, "gud", DTYPE_F32, 1000, true, 6e-3},
                 {NULL, "bf16", "gud", DTYPE_Q4_K, 768, true, 6e-2},
                 {"phi2", NULL, "ud", DTYPE_BF16, 512, true, 3e-2},
                 {"gemma2", NULL, "gud", DTYPE_Q8_0, 512, true, 6e-2},
                 {"granite", NULL, "gud", DTYPE_F16, 512, false, 6e-3},
                 {"gpt-oss", NULL, "", DTYPE_F32, 512, false, 6e-3},
                 {"gemma4", NULL, "", DTYPE_F32, 512, true, 6e-3},
                 {"gemma3n", NULL, "gud", DTYPE_F32, 512, true, 6e-3}};
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        if (SLOW && i % 5)
            continue;
        write_files(cases[i].arch, cases[i].weights, cases[i].F, cases[i].ffn);
        kv_dtype = cases[i].kv_dtype;
        char what[64];
        snprintf(what, sizeof what, "%s of %s", cases[i].arch ? cases[i].arch : "llama",
                 dtype_name(cases[i].weights));
        bool own = cases[i].arch && strcmp(cases[i].arch, "gemma3n") == 0; // embeddings of layers: no stages
        check_model(what, i % 2 == 0, cases[i].ranks, !own);
        check_reference(cases[i].distance, cases[i].ranks);
        kv_dtype = NULL;
        remove_files();
    }
}

// A request without an adapter has the bits of an engine that has none.
TEST(test_none) {
    struct driver d;
    write_files(NULL, DTYPE_BF16, 512, "gud"); // for the tests from here on
    run_alone();
    driver_open(&d, &(struct driver_config){.path = model_path});
    memset(results, 0, sizeof results);
    add(&d, prompt, PROMPT, OUTPUT, ADAPTERS);
    driver_run(&d, results);
    assert_same(&alone[ADAPTERS], &results[0], "without adapters");
    driver_close(&d);
}

TEST(test_preempted) {
    struct driver d;
    run((struct driver_config){.num_blocks = 9, .max_model_len = 80, .no_cache = true}, 3, "preempted", &d);
    assert_true(driver_stats(&d).preemptions > 0);
    close_driver(&d);
}

// The same prompt under another adapter is another prefix; under the same one, a hit; also where an equal one
// is loaded in another's slot.
TEST(test_prefixes) {
    struct driver d;
    struct err err = {0};
    run((struct driver_config){.max_running = 1}, 0, "one after another", &d);
    for (int a = 0; a < SUBJECTS; a++)
        assert_int_equal(results[a].num_cached, 0);
    for (int a = 0; a < SUBJECTS; a++)
        add(&d, prompt, PROMPT, OUTPUT, a);
    driver_run(&d, results);
    for (int a = 0; a < SUBJECTS; a++) {
        assert_int_equal(results[SUBJECTS + a].num_cached, 32);
        assert_same(&alone[a], &results[SUBJECTS + a], "prefix hit");
    }
    adapter_release(loaded[0]);
    loaded[0] = engine_adapter_open(d.engine, adapter_path[1], &err);
    assert_non_null(loaded[0]);
    assert_int_equal(loaded[0]->slot, 0);
    memset(results, 0, sizeof results);
    d.next_id = 1;
    add(&d, prompt, PROMPT, OUTPUT, 0);
    driver_run(&d, results);
    assert_int_equal(results[0].num_cached, 32);
    assert_same(&alone[1], &results[0], "loaded again");
    close_driver(&d);
}

// An adapter stays while a request has it, and its slot with it.
TEST(test_references) {
    struct driver d;
    struct err err = {0};
    open_driver(&d, (struct driver_config){0}, 0, ADAPTERS);
    memset(results, 0, sizeof results);
    add(&d, prompt, PROMPT, OUTPUT, 2);
    driver_step(&d, results);
    adapter_release(loaded[2]);
    loaded[2] = NULL;
    assert_null(engine_adapter_open(d.engine, adapter_path[1], &err));
    assert_int_equal(err.code, STATUS_LIMIT);
    assert_non_null(strstr(err.msg, "--max-loras"));
    driver_run(&d, results);
    assert_same(&alone[2], &results[0], "released amid");
    err = (struct err){0};
    loaded[2] = engine_adapter_open(d.engine, adapter_path[1], &err);
    assert_non_null(loaded[2]);
    assert_int_equal(loaded[2]->slot, 2);
    err = (struct err){0};
    adapter_release(loaded[3]); // a file that is refused takes no slot
    loaded[3] = NULL;
    assert_null(engine_adapter_open(d.engine, model_path, &err));
    assert_int_equal(err.code, STATUS_FORMAT);
    loaded[3] = engine_adapter_open(d.engine, adapter_path[3], NULL);
    assert_non_null(loaded[3]);
    close_driver(&d);
    remove_files();
}

int main(void) {
    prompt[0] = 1;
    for (int i = 1; i < PROMPT; i++)
        prompt[i] = 3 + 256 + (i * 37) % 250;
    return run_all_tests(NULL, NULL);
}
