// The module: how it is found and refused, and the engine on a device that is not the CPU (the emulated
// module, so the whole way through dlopen): scheduler, batches, prefix cache, asynchronous scheduling.
#include "driver.h"

#include "random_model.h"

#include <stdlib.h>
#include <unistd.h>

static const char *stories(void) {
    static char path[4096];
    const char *found = test_data("models/stories260K/stories260K.gguf");
    if (found)
        snprintf(path, sizeof path, "%s", found);
    return found ? path : NULL;
}

static struct engine *try_open(const char *device, const char *module, double utilization, struct err *err) {
    const char *path = stories();
    struct engine_config config = {.path = path,
                                   .device = device,
                                   .num_threads = 1,
                                   .block_size = 16,
                                   .max_num_seqs = 4,
                                   .max_num_batched_tokens = 32,
                                   .gpu_memory_utilization = utilization};
    memset(err, 0, sizeof *err);
    if (module)
        setenv("QUIRE_CUDA_MODULE", module, 1);
    else
        unsetenv("QUIRE_CUDA_MODULE");
    struct engine *e = engine_open(&config, err);
    unsetenv("QUIRE_CUDA_MODULE");
    return e;
}

static void refused(const char *module, const char *words) {
    struct err err;
    assert_null(try_open("cuda", module, 0, &err));
    if (err.code != STATUS_DEVICE || !strstr(err.msg, words) || strchr(err.msg, '\n'))
        fail_msg("%s: code %d: %s", module ? module : "no module", (int)err.code, err.msg);
}

TEST(test_refusals) {
    if (!stories()) {
        skip();
        return;
    }
    refused("/nonexistent/quire-cuda.so", "names no file");
    refused(QUIRE_SOURCE_DIR "/LICENSE", "does not load");
    refused(QUIRE_EMPTY, "no symbol quire_backend_v1");
    refused(QUIRE_OLD, "another version");
    refused(QUIRE_BROKEN, "the device is on fire");
    struct err err;
    assert_null(try_open("tpu", NULL, 0, &err));
    assert_int_equal(err.code, STATUS_INVALID);
#if QUIRE_HAS_MODULE
    if (access("/dev/nvidiactl", F_OK) != 0) // the real module, and no device: it says what is missing
        refused(NULL, "NVIDIA");
#else
    refused(NULL, "nvcc");
#endif
}

// Weights that the device does not take are refused at load, in one sentence, and `auto` takes the CPU.
TEST(test_weights) {
    char path[] = "/tmp/quire-model-XXXXXX";
    random_shape.arch = "deepseek2"; // with experts, whose gate and up are of unlike types here
    random_model_write(&(struct random_model){"", {DTYPE_Q8_0, DTYPE_BF16}, 2, false}, path);
    random_shape.arch = NULL;
    struct engine_config config = {.path = path,
                                   .device = "cuda",
                                   .num_threads = 1,
                                   .block_size = 16,
                                   .max_num_seqs = 1,
                                   .max_num_batched_tokens = 32};
    struct err err = {0}, none = {0};
    setenv("QUIRE_CUDA_MODULE", QUIRE_EMULATED, 1);
    assert_null(engine_open(&config, &err));
    if (err.code != STATUS_INVALID || !strstr(err.msg, "gate and up of experts") || strchr(err.msg, '\n'))
        fail_msg("code %d: %s", (int)err.code, err.msg);
    config.device = "auto"; // nobody asked for CUDA
    struct engine *e = engine_open(&config, &none);
    if (!e || strncmp(engine_info(e)->device, "cpu ", 4) != 0)
        fail_msg("%s", e ? engine_info(e)->device : none.msg);
    engine_close(e);
    unsetenv("QUIRE_CUDA_MODULE");
    unlink(path);
}

// Captures the log between two calls, as text.
static int old_stderr;
static FILE *captured;

static void capture_begin(void) {
    captured = tmpfile();
    old_stderr = dup(STDERR_FILENO);
    assert_true(captured && old_stderr >= 0 && dup2(fileno(captured), STDERR_FILENO) >= 0);
    log_set_level(LOG_INFO);
}

static const char *capture_end(void) {
    static char text[8192];
    dup2(old_stderr, STDERR_FILENO);
    close(old_stderr);
    log_set_level(LOG_ERROR);
    rewind(captured);
    text[fread(text, 1, sizeof text - 1, captured)] = 0;
    fclose(captured);
    return text;
}

// auto: CUDA where it works, the CPU where it does not, with a warning that says why. Who names nothing and
// has neither module nor driver hears nothing.
TEST(test_auto) {
    if (!stories()) {
        skip();
        return;
    }
    static const struct {
        const char *name, *module, *device, *warning;
    } cases[] = {{"auto", QUIRE_EMULATED, "cuda emulated", NULL},
                 {"auto", QUIRE_BROKEN, "cpu ", "the device is on fire"},
                 {"auto", QUIRE_OLD, "cpu ", "another version"},
                 {"auto", QUIRE_EMPTY, "cpu ", "no symbol"},
                 {NULL, QUIRE_EMPTY, "cpu ", "no symbol"},
                 {"auto", "/nonexistent/quire-cuda.so", "cpu ", "names no file"},
                 {"auto", NULL, "cpu ", "device 'cuda': no module"}, // or no driver, where there is a module
                 {NULL, NULL, "cpu ", NULL}};
    bool device = access("/dev/nvidiactl", F_OK) == 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0] && !(device && !cases[i].module); i++) {
        struct err err;
        const char *warning = cases[i].warning;
        if (QUIRE_HAS_MODULE && !cases[i].module && warning)
            warning = "NVIDIA";
        capture_begin();
        struct engine *e = try_open(cases[i].name, cases[i].module, 0, &err);
        const char *log = capture_end(), *found = strstr(log, "level=warn the model runs on the CPU");
        if (!e)
            fail_msg("case %d: %s", (int)i, err.msg);
        if (strncmp(engine_info(e)->device, cases[i].device, strlen(cases[i].device)) != 0)
            fail_msg("case %d: device %s", (int)i, engine_info(e)->device);
        if (warning ? !found || !strstr(found, warning) : found != NULL)
            fail_msg("case %d: expected '%s' in\n%s", (int)i, warning ? warning : "nothing", log);
        engine_close(e);
    }
}

// The cache is what the share of the device's memory leaves beside weights and workspace.
TEST(test_utilization) {
    if (!stories()) {
        skip();
        return;
    }
    struct err err;
    setenv("QUIRE_EMULATED_MEMORY", "16000000", 1);
    capture_begin();
    struct engine *e = try_open("cuda", QUIRE_EMULATED, 0.25, &err);
    const char *log = capture_end();
    if (!e)
        fail_msg("%s", err.msg);
    // and the numbers are printed: 16,000,000 bytes are 15.3 MiB, a quarter of it 3.8
    unsigned long long total, in_use, weights, workspace, left;
    double share;
    const char *line = strstr(log, "device memory: ");
    if (!line || sscanf(line,
                        "device memory: %llu MiB, %llu in use, weights %llu, workspace of a step %llu; "
                        "--gpu-memory-utilization %lf leaves %llu for the KV cache",
                        &total, &in_use, &weights, &workspace, &share, &left) != 6)
        fail_msg("no numbers in\n%s", log);
    assert_true(total == 15 && share == 0.25 && workspace > 0);
    assert_int_equal(weights, engine_info(e)->weight_bytes >> 20);
    assert_in_range(in_use + workspace + left, 1, 3);
    assert_in_range(left, engine_info(e)->kv_bytes >> 20, 3 - weights);
    engine_close(e);
    assert_null(try_open("cuda", QUIRE_EMULATED, 0.01, &err)); // less than the weights
    assert_non_null(strstr(err.msg, "--gpu-memory-utilization"));
    setenv("QUIRE_EMULATED_MEMORY", "500000", 1);
    assert_null(try_open("cuda", QUIRE_EMULATED, 0, &err)); // less than the weights, in all
    assert_non_null(strstr(err.msg, "no device memory for a weight"));
    unsetenv("QUIRE_EMULATED_MEMORY");
}

// Whatever the size of a device, nearly all of which is given: the load ends early, for want of a single block, or the
// cache takes what there is. It never fails late, when the cache has left no room for the workspace.
TEST(test_small_devices) {
    if (!stories()) {
        skip();
        return;
    }
    struct err err;
    int least = 0, most = 0, early = 0;
    for (int bytes = 2000000; bytes <= 8000000; bytes += 250000) {
        char memory[16];
        snprintf(memory, sizeof memory, "%d", bytes);
        setenv("QUIRE_EMULATED_MEMORY", memory, 1);
        struct engine *e = try_open("cuda", QUIRE_EMULATED, bytes % 500000 ? 1 : 0.95, &err);
        int blocks = e ? engine_info(e)->num_blocks : 0;
        if (!e && (least > 0 || !strstr(err.msg, "raise --gpu-memory-utilization or lower")))
            fail_msg("%d bytes: %s", bytes, err.msg);
        early += !e;
        least = least == 0 ? blocks : least;
        most = blocks > most ? blocks : most;
        engine_close(e);
    }
    unsetenv("QUIRE_EMULATED_MEMORY");
    assert_true(early > 0 && least > 0 &&
                most > 2 * least); // a block of one sequence at least, up to all that is wanted
}

// The size of a step is the device's where nobody names it: of the device that takes the model, not of the one tried
// first. What is named stays, and the other size goes with it.
TEST(test_batch) {
    char path[] = "/tmp/quire-model-XXXXXX", other[] = "/tmp/quire-model-XXXXXX";
    random_model_write(&(struct random_model){"", {DTYPE_Q8_0}, 1, false}, path);
    random_shape.arch = "deepseek2"; // of whose experts CUDA takes no gate and up of unlike types
    random_model_write(&(struct random_model){"", {DTYPE_Q8_0, DTYPE_BF16}, 2, false}, other);
    random_shape.arch = NULL;
    const struct {
        const char *path, *device;
        int seqs, tokens, want_seqs, want_tokens;
    } cases[] = {{path, "cpu", 0, 0, 64, 512},     {path, "cuda", 0, 0, 256, 2048},
                 {path, "auto", 0, 0, 256, 2048},  {other, "auto", 0, 0, 64, 512},
                 {path, "cuda", 3, 0, 3, 2048},    {path, "cuda", 0, 96, 96, 96},
                 {path, "cuda", 0, 300, 256, 300}, {path, "cuda", 2100, 0, 2100, 2100},
                 {path, "cuda", 64, 512, 64, 512}, {path, "cpu", 600, 0, 600, 600},
                 {path, "cpu", 0, 7, 7, 7}};
    setenv("QUIRE_CUDA_MODULE", QUIRE_EMULATED, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct engine_config config = {.path = cases[i].path,
                                       .device = cases[i].device,
                                       .num_threads = 1,
                                       .max_model_len = 64,
                                       .num_kv_blocks = 8,
                                       .max_num_seqs = cases[i].seqs,
                                       .max_num_batched_tokens = cases[i].tokens};
        struct err err = {0};
        struct engine *e = engine_open(&config, &err);
        if (!e)
            fail_msg("case %d: %s", (int)i, err.msg);
        const struct engine_info *info = engine_info(e);
        if (info->max_num_seqs != cases[i].want_seqs || info->max_num_batched_tokens != cases[i].want_tokens)
            fail_msg("case %d: %d sequences, %d tokens", (int)i, info->max_num_seqs,
                     info->max_num_batched_tokens);
        engine_close(e);
    }
    unsetenv("QUIRE_CUDA_MODULE");
    unlink(path), unlink(other);
}

// Requests alone and together, chunked, and with a prefix found again, on the emulated device: the tokens of
// the CPU.
TEST(test_requests) {
    const char *path = stories();
    if (!path) {
        skip();
        return;
    }
    enum { N = 5, OUTPUT = 12 };
    static const token_id prompt[] = {1,   403, 407, 261, 378, 432, 383, 285, 290,
                                      410, 269, 347, 293, 271, 344, 409, 261};
    struct got *want = calloc(N, sizeof *want), *got = calloc(N, sizeof *got);
    struct driver d;
    setenv("QUIRE_CUDA_MODULE", QUIRE_EMULATED, 1);
    // The CPU; the device, scheduled asynchronously; the device in chunks of 5; one plan at a time; two
    // stages, two devices
    for (int run = 0; run < 5; run++) {
        struct driver_config c = {.path = path,
                                  .device = run == 0 ? "cpu" : "cuda",
                                  .num_blocks = 64,
                                  .max_running = 4,
                                  .depth = run == 3,
                                  .stages = run == 4 ? 2 : 1,
                                  .max_step_tokens = run == 2 ? 8 : 64,
                                  .max_chunk = run == 2 ? 5 : 0};
        struct got *to = run == 0 ? want : got;
        memset(to, 0, N * sizeof *to);
        driver_open(&d, &c);
        const struct engine_info *info = engine_info(d.engine);
        assert_int_equal(info->depth, run == 0 || run == 3 ? 1 : 2);
        assert_int_equal(info->async, run == 1 || run == 2);
        for (int i = 0; i < N; i++)
            driver_add(&d, prompt, i == 3 ? 17 : 3 + 3 * i, OUTPUT, (struct sampling_params){0});
        driver_run(&d, to);
        driver_close(&d);
        for (int i = 0; run > 0 && i < N; i++) {
            assert_int_equal(to[i].num, want[i].num);
            assert_memory_equal(to[i].tokens, want[i].tokens, sizeof want[i].tokens[0] * (size_t)want[i].num);
            for (int t = 0; t < to[i].num; t++)
                assert_true(fabsf(to[i].logprob[t] - want[i].logprob[t]) < 1e-3f);
        }
    }
    unsetenv("QUIRE_CUDA_MODULE");
    free(want), free(got);
}

// `--exact`, through scheduler and cache: a request has the bits that it has alone when its prompt's first
// blocks come from the cache, and when it is preempted and computes its prompt and its own tokens again, as
// one prompt. All of that takes cuBLASLt and another kernel of attention otherwise.
TEST(test_exact) {
    enum { PROMPT = 76, OUTPUT = 7, BLOCKS = 10, NUM = 3 }; // each wants 6 blocks in the end
    static const struct random_model models[] = {{"Q8_0", {DTYPE_Q8_0}, 1, true},
                                                 {"Q4_K", {DTYPE_Q4_K}, 1, true}};
    token_id prompt[PROMPT + NUM];
    for (int i = 0; i < PROMPT + NUM; i++)
        prompt[i] = 3 + (i * 37 + i * i) % (RANDOM_VOCAB - 3);
    struct got *alone = calloc(NUM, sizeof *alone), *got = calloc(2, sizeof *got);
    setenv("QUIRE_CUDA_MODULE", QUIRE_EMULATED, 1);
    random_layers = 1;
    for (int m = 0; m < 2 - SLOW; m++) {
        char file[] = "/tmp/quire-model-XXXXXX";
        bool k = models[m].matrices[0] == DTYPE_Q4_K; // rows of 256 weights
        random_model_write_sized(&models[m], k ? 4 : 2, 1, k ? 256 : 64, file);
        struct driver_config c = {.path = file,
                                  .device = "cuda",
                                  .exact = true,
                                  .max_model_len = PROMPT + OUTPUT,
                                  .max_step_tokens = 96};
        struct driver d;
        driver_open(&d, &c);
        memset(alone, 0, NUM * sizeof *alone);
        driver_add(&d, prompt, PROMPT, OUTPUT, (struct sampling_params){0});
        driver_run(&d, alone);
        driver_add(&d, prompt, PROMPT, OUTPUT, (struct sampling_params){0});
        driver_run(&d, alone);
        assert_int_equal(alone[1].num_cached, 64);
        assert_same(&alone[0], &alone[1], "a prefix from the cache");
        driver_add(&d, prompt + 1, PROMPT, OUTPUT, (struct sampling_params){.temperature = 1, .seed = 5});
        driver_run(&d, alone);
        assert_int_equal(alone[2].num_cached, 0);
        driver_close(&d);
        // two whose blocks do not last, with and without what the cache still holds of the one that yields
        for (int cache = SLOW; cache < 2; cache++) {
            memset(got, 0, 2 * sizeof *got);
            c.num_blocks = BLOCKS + cache;
            c.no_cache = !cache;
            driver_open(&d, &c);
            driver_add(&d, prompt, PROMPT, OUTPUT, (struct sampling_params){0});
            driver_add(&d, prompt + 1, PROMPT, OUTPUT, (struct sampling_params){.temperature = 1, .seed = 5});
            driver_run(&d, got);
            driver_close(&d);
            assert_int_equal(got[0].num_preemptions, 0);
            assert_true(got[1].num_preemptions > 0);
            assert_same(&alone[0], &got[0], "beside one that is preempted");
            assert_same(&alone[2], &got[1], "preempted");
        }
        unlink(file);
    }
    random_layers = RANDOM_LAYERS;
    unsetenv("QUIRE_CUDA_MODULE");
    free(alone), free(got);
}

int main(void) {
    log_set_level(LOG_ERROR);
    return run_all_tests(NULL, NULL);
}
