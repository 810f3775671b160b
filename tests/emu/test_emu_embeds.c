// Embeddings that requests bring, through the engine and the emulated module: one device, ranks and stages.
#include "brought_embeds.h"

#include <stdlib.h>
#include <unistd.h>

static char path[] = "/tmp/quire-embeds-XXXXXX";

TEST(test_engine) {
    struct driver_config c = {.path = path, .device = "cuda", .max_step_tokens = 256};
    brought_check(c, "one device");
    brought_check_last(c);
    c.exact = true, c.max_step_tokens = 64, c.max_chunk = 3, c.num_blocks = 10, c.max_model_len = 112;
    assert_true(brought_check(c, "exact, in chunks, preempted") > 0);
}

TEST(test_ranks_and_stages) {
    brought_check((struct driver_config){.path = path, .device = "cuda", .max_step_tokens = 256, .ranks = 2},
                  "ranks");
    brought_check(
        (struct driver_config){
            .path = path, .device = "cuda", .max_step_tokens = 256, .stages = 2, .exact = true},
        "stages");
}

// With grids: steps that decode behind them are graphs of their own.
TEST(test_grids) {
    char grids[] = "/tmp/quire-embeds-XXXXXX";
    random_shape.arch = "qwen2";
    random_model_write_sized(&(struct random_model){.matrices = {DTYPE_BF16}, .num_types = 1}, 8, 2, 256,
                             grids);
    struct driver_config c = {.path = grids, .device = "cuda", .max_step_tokens = 256};
    brought_check_grids(c, "one device");
    c.exact = true, c.max_step_tokens = 64, c.max_chunk = 3;
    brought_check_grids(c, "exact, in chunks");
    brought_check_grids(
        (struct driver_config){.path = grids, .device = "cuda", .max_step_tokens = 256, .ranks = 2}, "ranks");
    unlink(grids);
}

int main(void) {
    setenv("QUIRE_CUDA_MODULE", QUIRE_EMULATED, 1);
    random_shape.hidden = 128, random_shape.head_dim = 16;
    random_model_write_sized(&(struct random_model){.matrices = {DTYPE_BF16}, .num_types = 1}, 8, 2, 256,
                             path);
    int failed = run_all_tests(NULL, NULL);
    unlink(path);
    return failed;
}
