// The code that loads NCCL and speaks to it (rt_nccl.cu), compiled by the host's compiler, with a stand-in
// for the library that LD_LIBRARY_PATH names: what it is given, and what comes of its mistakes. usage:
// nccl_loading whole | other | missing       which stand-in that is
#undef QUIRE_HAVE_CMOCKA
#include "harness.h"

#include "rt_stream.h"
#include "stand_in_nccl.h"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

struct rt {
    bool failed;
    char why[200];
};
static char stream;

struct CUstream_st *rt_stream(struct rt *rt) {
    return rt->failed ? nullptr : (struct CUstream_st *)&stream;
}
extern "C" void rt_fail(struct rt *rt, const char *what) {
    if (!rt->failed)
        snprintf(rt->why, sizeof rt->why, "%s", what);
    rt->failed = true;
}
extern "C" bool rt_failed(const struct rt *rt) { return rt->failed; }

static int patience = -1; // how often a rank goes on waiting; -1: always
static bool go_on(void *) { return patience < 0 || patience-- > 0; }

static struct stand_in *library() {
    void *handle = dlopen("libnccl.so.2", RTLD_NOW);
    struct stand_in *s = handle ? (struct stand_in *)dlsym(handle, "stand_in") : nullptr;
    assert_non_null(s); // else it is NCCL itself
    return s;
}

static void test_whole(void **) {
    struct stand_in *s = library();
    struct rt rt = {};
    struct err err = {};
    unsigned char id[RT_NCCL_ID];
    float x[5];
    assert_true(rt_nccl_id(&rt, id, &err));
    for (int i = 0; i < RT_NCCL_ID; i++)
        assert_int_equal(id[i], i + 1);
    struct rt_nccl *n = rt_nccl_open(&rt, id, 2, 3, go_on, nullptr, &err);
    assert_non_null(n);
    assert_int_equal(s->rank, 2);
    assert_int_equal(s->world, 3);
    assert_memory_equal(s->id.bytes, id, sizeof id);
    rt_nccl_sum(n, x, 5, false);
    assert_true(s->sums == 1 && s->in == x && s->out == x && s->count == 5);
    assert_true(s->type == 7 && s->op == 0); // float32, sum
    assert_true(s->stream == &stream && s->comm == s && !rt.failed);
    rt_nccl_sum(n, x, 7, true);
    assert_true(s->sums == 2 && s->count == 7 && s->type == 9 && s->op == 0); // bfloat16
    rt_nccl_close(n);
    assert_true(s->destroyed == 1 && s->aborted == 0);
    rt_nccl_close(nullptr);

    // A mistake of another rank: nothing more is summed, the rt has failed, and closing waits for nobody.
    n = rt_nccl_open(&rt, id, 0, 3, go_on, nullptr, &err);
    s->async = 6;
    rt_nccl_sum(n, x, 5, false);
    assert_int_equal(s->sums, 2);
    assert_true(rt.failed && strcmp(rt.why, "NCCL: a mistake elsewhere") == 0);
    rt_nccl_sum(n, x, 5, false);
    rt_nccl_close(n);
    assert_true(s->sums == 2 && s->destroyed == 1 && s->aborted == 1);
    assert_false(rt_nccl_id(&rt, id, &err));
    assert_true(strcmp(err.msg, "the GPU has failed") == 0);
    s->async = 0;

    // Aborted once, by whoever notices; then it is neither used nor ended again.
    struct rt fresh = {};
    n = rt_nccl_open(&fresh, id, 0, 3, go_on, nullptr, &err);
    rt_nccl_abort(n);
    rt_nccl_abort(n);
    rt_nccl_sum(n, x, 5, false);
    rt_nccl_close(n);
    assert_true(s->aborted == 2 && s->destroyed == 1 && s->sums == 2 && !fresh.failed);

    // Mistakes of its own.
    n = rt_nccl_open(&fresh, id, 0, 3, go_on, nullptr, &err);
    s->answer = 3;
    rt_nccl_sum(n, x, 5, false);
    assert_true(fresh.failed && strcmp(fresh.why, "NCCL: a mistake here") == 0);
    rt_nccl_close(n);
    struct rt last = {};
    err = {};
    assert_null(rt_nccl_open(&last, id, 0, 3, go_on, nullptr, &err));
    assert_true(err.code == STATUS_DEVICE && strcmp(err.msg, "NCCL: a mistake here") == 0);
    assert_false(rt_nccl_id(&last, id, &err));
}

// A rank that another does not join gives up when it is told to. The thread that NCCL keeps ends when that lets it go.
static void test_alone(void **) {
    struct stand_in *s = library();
    struct rt rt = {};
    struct err err = {};
    unsigned char id[RT_NCCL_ID] = {};
    int aborted = s->aborted;
    s->answer = 0;
    patience = 3;
    __atomic_store_n(&s->hangs, 1, __ATOMIC_RELEASE);
    assert_null(rt_nccl_open(&rt, id, 0, 2, go_on, nullptr, &err));
    assert_true(err.code == STATUS_DEVICE && !rt.failed);
    assert_string_equal(err.msg, "NCCL: another rank did not come");
    __atomic_store_n(&s->hangs, 0, __ATOMIC_RELEASE);
    while (__atomic_load_n(&s->aborted, __ATOMIC_ACQUIRE) == aborted)
        usleep(1000);
    patience = -1;
    rt_nccl_close(rt_nccl_open(&rt, id, 0, 2, go_on, nullptr, &err));
    assert_int_equal(s->aborted, aborted + 1);
}

static void refused(const char *why) {
    struct rt rt = {};
    struct err err = {};
    unsigned char id[RT_NCCL_ID] = {};
    assert_false(rt_nccl_id(&rt, id, &err));
    if (strcmp(err.msg, why) != 0)
        fail_msg("%s", err.msg);
    err = {};
    assert_null(rt_nccl_open(&rt, id, 0, 1, go_on, nullptr, &err));
    assert_true(err.code == STATUS_DEVICE && strcmp(err.msg, why) == 0);
    assert_true(library()->opened == 0);
}

static void test_other(void **) { refused("libnccl.so.2 is version 30100, not 2.10 or later"); }
static void test_missing(void **) { refused("libnccl.so.2 has no ncclCommAbort"); }

int main(int argc, char **argv) {
    const char *which = argc > 1 ? argv[1] : "";
    const struct CMUnitTest whole[] = {cmocka_unit_test(test_whole), cmocka_unit_test(test_alone)},
                            other[] = {cmocka_unit_test(test_other)},
                            missing[] = {cmocka_unit_test(test_missing)};
    if (strcmp(which, "other") == 0)
        return cmocka_run_group_tests(other, NULL, NULL);
    if (strcmp(which, "missing") == 0)
        return cmocka_run_group_tests(missing, NULL, NULL);
    return cmocka_run_group_tests(whole, NULL, NULL);
}
