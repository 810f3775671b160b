// Hidden states of chunks become one vector, whatever the chunks are.
#include "pooler.h"

#include "harness.h"

#include <math.h>

enum { D = 2, N = 5 };
static const struct pool_head plain = {.size = D};
static const float rows[N * D] = {1, -1, 2, 4, 8, 0.5f, 3, 3, 7, -9};

// The vector of a request whose prompt is computed in chunks of so many tokens, beside one that pools nothing.
static enum item_failure pool(enum pooling kind, int chunk, const float *hidden, float *out) {
    struct request other = {.num_prompt = 1}, r = {.num_prompt = N, .pooling = kind, .vector = out};
    uint8_t failed[2] = {ITEM_GOOD, ITEM_GOOD};
    for (int first = 0; first < N; first += chunk) {
        int n = N - first < chunk ? N - first : chunk;
        struct plan_item items[] = {{.req = &other, .num_new = 1}, {.req = &r, .first = first, .num_new = n}};
        struct plan plan = {.items = items, .num_items = 2};
        const struct step_out step = {.hidden = hidden + (size_t)first * D};
        failed[0] = 77;
        pooling_collect(&plan, (int32_t[]){0, 0, n}, &step, D, &plain, failed);
        assert_int_equal(failed[0], 77);
    }
    return (enum item_failure)failed[1];
}

TEST(test_chunks) {
    static const float wanted[][D] = {
        [POOLING_MEAN] = {21.0f / 5, -2.5f / 5}, [POOLING_CLS] = {1, -1}, [POOLING_LAST] = {7, -9}};
    for (int kind = POOLING_MEAN; kind <= POOLING_LAST; kind++)
        for (int chunk = 1; chunk <= N; chunk++) {
            float v[D] = {99, 99}; // of a run before a preemption
            assert_int_equal(pool((enum pooling)kind, chunk, rows, v), ITEM_GOOD);
            assert_memory_equal(v, wanted[kind], sizeof v);
        }
}

TEST(test_not_finite) {
    float bad[N * D] = {0}, v[D];
    bad[3 * D + 1] = INFINITY;
    assert_int_equal(pool(POOLING_MEAN, 2, bad, v), ITEM_NOT_FINITE);
    assert_int_equal(pool(POOLING_LAST, 2, bad, v), ITEM_GOOD);
}

// Two matrices, the first with tanh, bias and norm, and the margin of two scores; by hand.
TEST(test_head) {
    float first[] = {1, 0, -0.5f, 0.25f}, bias[] = {0.1f, 0.2f}, norm[] = {2, 1}, second[] = {3, 1, 1, -2},
          scratch[D];
    struct pool_head head = {
        .stages = {{D, D, first, bias, norm, POOL_TANH}, {D, D, second, NULL, NULL, POOL_PLAIN}},
        .num_stages = 2,
        .margin = true,
        .eps = 1e-5f,
        .scratch = scratch,
        .size = 1,
        .room = D};
    float v[] = {0.5f, -2};
    double a = tanh(0.1 + 0.5 + 1), b = tanh(0.2 - 0.5), mean = (a + b) / 2;
    double scale = 1 / sqrt(((a - mean) * (a - mean) + (b - mean) * (b - mean)) / 2 + 1e-5);
    double x = (a - mean) * scale * 2, y = (b - mean) * scale;
    pool_head_run(&head, v);
    assert_true(fabs((double)v[0] - ((3 * x + y) - (x - 2 * y))) < 1e-5);
    head.stages[0].norm = NULL; // of two values it leaves no more than which is larger
    v[0] = 0.5f;
    v[1] = -2;
    pool_head_run(&head, v);
    assert_true(fabs((double)v[0] - ((3 * a + b) - (a - 2 * b))) < 1e-5);
}

int main(void) { return run_all_tests(NULL, NULL); }
