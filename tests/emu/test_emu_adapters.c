// Adapters in whole models through the engine on the emulated module: among other requests, on ranks and stages, and loaded by
// another thread while requests run.
#include "driver.h"
#include "random_adapter.h"

#include <pthread.h>

enum { PROMPT = 20, OUTPUT = 5, ADAPTERS = 2, NUM = ADAPTERS + 1, FFN = 256 };

static token_id prompt[PROMPT];
static char model_path[64], adapter_path[ADAPTERS + 1][64]; // the last is loaded beside requests
static struct adapter *loaded[ADAPTERS];

static void open_driver(struct driver *d, struct driver_config c) {
    c.path = model_path;
    c.max_loras = ADAPTERS + 1;
    c.max_model_len = 64;
    c.max_running = 4;
    c.max_step_tokens = 64;
    c.no_cache = true;
    driver_open(d, &c);
    struct err err = {0};
    for (int i = 0; i < ADAPTERS; i++)
        if (!(loaded[i] = engine_adapter_open(d->engine, adapter_path[i], &err)))
            fail_msg("%s", err.msg);
}

static void close_driver(struct driver *d) {
    for (int i = 0; i < ADAPTERS; i++)
        adapter_release(loaded[i]);
    driver_close(d);
}

static void add(struct driver *d, int i) {
    driver_submit(d, (struct request_params){.prompt = prompt,
                                             .num_prompt = PROMPT,
                                             .max_output = OUTPUT,
                                             .adapter = i < ADAPTERS ? loaded[i] : NULL});
}

// A request with each adapter and one without: one after the other, or together.
static void run(struct got got[NUM], struct driver_config c, bool together) {
    struct driver d;
    open_driver(&d, c);
    memset(got, 0, NUM * sizeof *got);
    for (int i = 0; i < NUM; i++) {
        add(&d, i);
        if (!together)
            driver_run(&d, got);
    }
    driver_run(&d, got);
    close_driver(&d);
}

static void check_same(const struct got *a, const struct got *b, const char *what) {
    for (int i = 0; i < NUM; i++)
        assert_same(&a[i], &b[i], what);
}

// Up to where two tokens were as good.
static void check_near(const struct got *a, const struct got *b, double bound, const char *what) {
    for (int i = 0; i < NUM; i++)
        for (int t = 0; t < OUTPUT; t++) {
            double far = fabs((double)(a[i].logprob[t] - b[i].logprob[t]));
            if (a[i].tokens[t] != b[i].tokens[t] && (double)(a[i].top[t][0] - a[i].top[t][1]) < bound)
                break;
            if (a[i].tokens[t] != b[i].tokens[t] || !(far < bound))
                fail_msg("%s: token %d of request %d is %g apart", what, t, i, far);
        }
}

static void write_files(const char *arch, enum dtype weights) {
    static const struct adapter_shape shapes[] = {{DTYPE_BF16, DTYPE_BF16, 8, 16, "qkvogud"},
                                                  {DTYPE_F32, DTYPE_F16, 5, 10, "qvod"},
                                                  {DTYPE_F16, DTYPE_F32, 20, 30, "ud"}};
    strcpy(model_path, "/tmp/quire-model-XXXXXX");
    random_shape.arch = arch, random_shape.window = arch ? 24 : 0, random_shape.hidden = 128;
    random_model_write_sized(&(struct random_model){"", {weights}, 1, false}, 8, 2, FFN, model_path);
    random_shape.arch = NULL;
    for (int i = 0; i < ADAPTERS + 1; i++)
        write_adapter(&shapes[i], arch ? arch : "llama", FFN, adapter_path[i]);
}

static void remove_files(void) {
    unlink(model_path);
    for (int i = 0; i < ADAPTERS + 1; i++)
        unlink(adapter_path[i]);
}

// Beside others, and in graphs, which a request alone has not at once, the bits that it has alone; on two stages, too. Two ranks
// and the CPU are near. With norms behind sublayers what adapters give passes through memory of its own.
TEST(test_requests) {
    static const struct {
        const char *arch;
        enum dtype weights;
    } cases[] = {{NULL, DTYPE_BF16}, {"gemma2", DTYPE_Q8_0}};
    struct got *alone = must_calloc(NUM, sizeof *alone), *got = must_calloc(NUM, sizeof *got);
    for (int i = 0; i < 2; i++) {
        const struct driver_config cuda = {.device = "cuda"}, cpu = {.device = "cpu"},
                                   ranks = {.device = "cuda", .ranks = 2},
                                   stages = {.device = "cuda", .stages = 2},
                                   exact = {.device = "cuda", .ranks = 2, .exact = true};
        write_files(cases[i].arch, cases[i].weights);
        run(alone, cuda, false);
        for (int a = 0; a < NUM; a++)
            for (int b = 0; b < a; b++)
                assert_true(memcmp(alone[a].top, alone[b].top, sizeof alone[a].top) != 0);
        run(got, cuda, true);
        check_same(alone, got, "together");
        run(got, cpu, true);
        check_near(alone, got, 6e-2, "the CPU");
        run(got, ranks, true);
        check_near(alone, got, 1e-2, "2 ranks");
        run(got, i ? stages : exact, true);
        if (i)
            check_same(alone, got, "2 stages");
        else
            check_near(alone, got, 1e-2, "2 ranks, exact");
        remove_files();
    }
    free(alone), free(got);
}

static void *load_and_free(void *arg) {
    for (int i = 0; i < 20; i++) {
        struct adapter *a = engine_adapter_open(arg, adapter_path[ADAPTERS], NULL);
        if (!a)
            return arg;
        adapter_release(a);
    }
    return NULL;
}

TEST(test_loading) {
    struct got *alone = must_calloc(NUM, sizeof *alone), *got = must_calloc(NUM, sizeof *got);
    struct driver d;
    pthread_t thread;
    void *failed;
    write_files(NULL, DTYPE_BF16);
    run(alone, (struct driver_config){.device = "cuda"}, true);
    open_driver(&d, (struct driver_config){.device = "cuda"});
    for (int i = 0; i < NUM; i++)
        add(&d, i);
    assert_int_equal(pthread_create(&thread, NULL, load_and_free, d.engine), 0);
    driver_run(&d, got);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    check_same(alone, got, "while another is loaded");
    close_driver(&d);
    remove_files();
    free(alone), free(got);
}

int main(void) {
    setenv("QUIRE_CUDA_MODULE", QUIRE_EMULATED, 1);
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = 3 + (i * 37 + i * i) % (RANDOM_VOCAB - 3);
    return run_all_tests(NULL, NULL);
}
