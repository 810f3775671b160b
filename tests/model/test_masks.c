// Masks are computed while the forward pass of their step runs: a filter that waits for the pass to get
// through the first layer would wait for ever if it were asked before the launch.
#include "backend_load.h"
#include "driver.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int passed; // steps whose first layer is done
    int asked;  // for masks
    bool late;  // a mask was asked for, and nothing ran beside it
} latch = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

// ---- the CPU backend, which says when it is through the first layer (linked with --wrap=backend_find)

static const struct backend_ops *real;

static void latched_ffn_out(struct device *dev, const struct layer *layer, const struct step *step) {
    real->ffn_out(dev, layer, step);
    if (layer->index > 0)
        return;
    pthread_mutex_lock(&latch.lock);
    latch.passed++;
    pthread_cond_broadcast(&latch.changed);
    pthread_mutex_unlock(&latch.lock);
}

enum status __real_backend_find(const char *name, const struct backend_ops **ops, struct err *err);
enum status __wrap_backend_find(const char *name, const struct backend_ops **ops, struct err *err);
enum status __wrap_backend_find(const char *name, const struct backend_ops **ops, struct err *err) {
    static struct backend_ops latched;
    enum status st = __real_backend_find(name, &real, err);
    latched = *real;
    latched.ffn_out = latched_ffn_out;
    *ops = &latched;
    return st;
}

// ---- a filter whose masks take until then and a while: each allows another quarter of the tokens

static bool latched_accept(void *state, token_id token) {
    (void)state;
    return token % 4 == latch.asked % 4;
}

static void latched_mask(void *state, uint32_t *bits, int vocab) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20; // so that a failure is one
    pthread_mutex_lock(&latch.lock);
    latch.asked++;
    while (latch.passed < latch.asked && !latch.late)
        latch.late = pthread_cond_timedwait(&latch.changed, &latch.lock, &until) == ETIMEDOUT;
    int quarter = latch.asked % 4;
    pthread_mutex_unlock(&latch.lock);
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    memset(bits, 0x11 << quarter, ((size_t)vocab + 31) / 32 * sizeof *bits);
    (void)state;
}

static void run_filtered(struct driver_config config) {
    static const token_id prompt[] = {1, 403, 407};
    static struct got got[1];
    struct driver d;
    struct token_filter *filter = calloc(1, sizeof *filter);
    *filter = (struct token_filter){.accept = latched_accept, .mask = latched_mask};
    latch.passed = latch.asked = 0;
    memset(got, 0, sizeof got);
    const char *path = test_data("models/stories260K/stories260K.gguf");
    if (!path)
        skip();
    config.path = path;
    driver_open(&d, &config);
    driver_submit(
        &d, (struct request_params){.prompt = prompt, .num_prompt = 3, .max_output = 12, .filter = filter});
    driver_run(&d, got);
    driver_close(&d);
    assert_false(latch.late);
    assert_int_equal(latch.asked, 12);
    assert_int_equal(got[0].num, 12);
    for (int i = 0; i < got[0].num; i++)
        assert_int_equal(got[0].tokens[i] % 4, (i + 1) % 4); // and the head waited for them
}

static void test_masks_beside_the_step(void **state) {
    (void)state;
    run_filtered((struct driver_config){0});
    run_filtered((struct driver_config){.depth = 2});
    run_filtered((struct driver_config){.stages = 2, .threads = 2});
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_masks_beside_the_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
