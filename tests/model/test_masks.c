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
    int given;  // and there
    bool late;  // a mask was asked for, and nothing ran beside it
    bool fails; // the device does, without a look at masks
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

static void latched_head(struct device *dev, const struct model *model, const struct step *step) {
    if (!latch.fails)
        real->head(dev, model, step);
}

static enum status latched_sync(struct device *dev, struct step_out *out, struct err *err) {
    enum status st = real->sync(dev, out, err);
    return latch.fails ? err_set(err, STATUS_DEVICE, "as asked") : st;
}

enum status __real_backend_find(const char *name, const struct backend_ops **ops, struct err *err);
enum status __wrap_backend_find(const char *name, const struct backend_ops **ops, struct err *err);
enum status __wrap_backend_find(const char *name, const struct backend_ops **ops, struct err *err) {
    static struct backend_ops latched;
    enum status st = __real_backend_find(name, &real, err);
    latched = *real;
    latched.ffn_out = latched_ffn_out;
    latched.head = latched_head;
    latched.sync = latched_sync;
    *ops = &latched;
    return st;
}

// ---- a filter whose masks take until then and a while: each allows another quarter of the tokens

static bool latched_accept(void *state, token_id token) {
    (void)state;
    return token % 4 == latch.asked % 4;
}

static enum mask_result latched_mask(void *state, uint32_t *bits, int vocab, int64_t *work) {
    (void)work;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20; // so that a failure is one
    pthread_mutex_lock(&latch.lock);
    latch.asked++;
    while (latch.passed < latch.asked && !latch.late)
        latch.late = pthread_cond_timedwait(&latch.changed, &latch.lock, &until) == ETIMEDOUT;
    int quarter = latch.asked % 4;
    pthread_mutex_unlock(&latch.lock);
    nanosleep(&(struct timespec){.tv_nsec = latch.fails ? 50000000 : 2000000}, NULL);
    memset(bits, 0x11 << quarter, ((size_t)vocab + 31) / 32 * sizeof *bits);
    pthread_mutex_lock(&latch.lock);
    latch.given++;
    pthread_mutex_unlock(&latch.lock);
    (void)state;
    return MASK_DONE;
}

static const token_id prompt[] = {1, 403, 407};

// A driver of the config with one request.
static struct request *open_filtered(struct driver *d, struct driver_config config) {
    struct token_filter *filter = calloc(1, sizeof *filter);
    *filter = (struct token_filter){.accept = latched_accept, .mask = latched_mask};
    latch.passed = latch.asked = latch.given = 0;
    const char *path = test_data("models/stories260K/stories260K.gguf");
    if (!path)
        skip();
    config.path = path;
    driver_open(d, &config);
    return driver_submit(
        d, (struct request_params){.prompt = prompt, .num_prompt = 3, .max_output = 12, .filter = filter});
}

static void run_filtered(struct driver_config config) {
    static struct got got[1];
    struct driver d;
    memset(got, 0, sizeof got);
    open_filtered(&d, config);
    driver_run(&d, got);
    driver_close(&d);
    assert_false(latch.late);
    assert_int_equal(latch.asked, 12);
    assert_int_equal(got[0].num, 12);
    for (int i = 0; i < got[0].num; i++)
        assert_int_equal(got[0].tokens[i] % 4, (i + 1) % 4); // and the head waited for them
}

TEST(test_masks_beside_the_step) {
    run_filtered((struct driver_config){0});
    run_filtered((struct driver_config){.depth = 2});
    run_filtered((struct driver_config){.stages = 2, .threads = 2});
}

// When a step comes back from a device that failed, nobody asks filters any more: their requests may be freed.
TEST(test_failing_device) {
    struct driver d;
    struct step_result result;
    struct err err = {0};
    latch.fails = true;
    struct request *r = open_filtered(&d, (struct driver_config){0});
    engine_launch(d.engine, sched_step(d.sched, d.max_chunk), NULL);
    assert_int_equal(engine_collect(d.engine, &result, &err), STATUS_DEVICE);
    pthread_mutex_lock(&latch.lock);
    assert_true(latch.asked == 1 && latch.given == 1);
    pthread_mutex_unlock(&latch.lock);
    driver_close(&d);
    request_free(r);
}

int main(void) { return run_all_tests(NULL, NULL); }
