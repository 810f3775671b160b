// Recurrent layers that ranks share, in whole models through the engine on the emulated module: the delta rule, state
// spaces with a norm of groups and without, short convolutions.
#include "driver.h"
#include "random_model.h"

enum { PROMPT = 24, OUTPUT = 4, NUM = 3, VOCAB = RANDOM_VOCAB };

static token_id prompt[PROMPT];
static int stages = 1; // of run()

struct results {
    struct got got[NUM];
    float logits[VOCAB]; // with `exact`
};

// A prompt in chunks beside one that soon decodes, and one whose first states come from the cache.
static void run(struct results *to, const char *path, int ranks, bool exact) {
    static const struct { int first, num; } requests[NUM] = {{0, PROMPT}, {3, 7}, {0, PROMPT - 1}};
    struct driver d;
    driver_open(&d, &(struct driver_config){.path = path,
                                            .device = "cuda",
                                            .ranks = ranks,
                                            .stages = stages,
                                            .exact = exact,
                                            .keep_logits = exact,
                                            .max_running = 4,
                                            .max_model_len = 64,
                                            .max_step_tokens = 8 * ranks});
    memset(to, 0, sizeof *to);
    for (int i = 0; i < NUM; i++) {
        if (i == 2)
            driver_run(&d, to->got);
        driver_submit(&d, (struct request_params){.prompt = prompt + requests[i].first,
                                                  .num_prompt = requests[i].num,
                                                  .max_output = OUTPUT});
    }
    driver_run(&d, to->got);
    memcpy(to->logits, d.first_logits, sizeof to->logits);
    driver_close(&d);
    assert_true(to->got[2].num_cached > 0);
}

static void check_near(const struct results *a, const struct results *b, const char *what) {
    for (int i = 0; i < NUM; i++)
        for (int t = 0; t < OUTPUT; t++) {
            double far = fabs((double)(a->got[i].logprob[t] - b->got[i].logprob[t]));
            if (a->got[i].tokens[t] != b->got[i].tokens[t] || !(far < 3e-2))
                fail_msg("%s: token %d of request %d is %g apart", what, t, i, far);
        }
}

// With --exact the bits of one rank; without it, where steps are graphs, its tokens.
TEST(test_shared) {
    static const struct {
        struct random_model m; // by the name of its family
        int stages;            // in which two ranks run, too
        bool experts;          // beside a shared one, and what is added has a factor
    } cases[] = {
        {{"qwen35moe", {DTYPE_BF16}, 1, true}, 1, false},   {{"qwen3next", {DTYPE_F32}, 1, false}, 2, false},
        {{"granitehybrid", {DTYPE_F32}, 1, true}, 1, true}, {{"falcon-h1", {DTYPE_Q8_0}, 1, false}, 1, false},
        {{"lfm2", {DTYPE_F32}, 1, true}, 1, false},
    };
    struct results *one = must_calloc(1, sizeof *one), *many = must_calloc(1, sizeof *many);
    const struct random_shape before = random_shape;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i += 1 + SLOW) {
        char file[] = "/tmp/quire-model-XXXXXX", what[64];
        random_shape.arch = cases[i].m.name, random_shape.hidden = 256;
        random_shape.dense = !cases[i].experts;
        random_model_write_sized(&cases[i].m, 4, 2, 256, file);
        random_shape = before;
        for (int exact = 0; exact < 2; exact++) {
            run(one, file, 1, exact);
            for (int ranks = exact ? 2 : 4 >> SLOW; ranks <= 4 >> SLOW; ranks *= 2) {
                snprintf(what, sizeof what, "%s, %d ranks", cases[i].m.name, ranks);
                stages = exact && ranks == 2 ? cases[i].stages : 1;
                run(many, file, ranks, exact);
                stages = 1;
                for (int r = 0; r < NUM && exact; r++)
                    assert_same(&one->got[r], &many->got[r], what);
                if (exact && memcmp(one->logits, many->logits, sizeof one->logits) != 0)
                    fail_msg("%s: other bits of logits", what);
                check_near(one, many, what);
            }
        }
        unlink(file);
    }
    free(one), free(many);
}

int main(void) {
    setenv("QUIRE_CUDA_MODULE", QUIRE_EMULATED, 1);
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = 3 + (i * 37 + i * i) % (VOCAB - 3);
    return run_all_tests(NULL, NULL);
}
