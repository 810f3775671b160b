// cmocka, or where it is not installed (a bare GPU machine) the small part of it that tests of kernels and
// engine use.
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(QUIRE_UNDER_QEMU)
enum { SLOW = 1 }; // less of what the other builds do whole: these take twenty times as long
#else
enum { SLOW = 0 };
#endif

// Whether combinations of what has nothing to do with each other run whole, as in ./dev slow, or a part of them.
static inline int harness_whole(void) { return !SLOW && getenv("QUIRE_SLOW") != NULL; }

#ifdef QUIRE_HAVE_CMOCKA
#include <cmocka.h>
#else
struct CMUnitTest {
    const char *name;
    void (*test)(void **state);
};
static jmp_buf harness_env;
enum { HARNESS_FAIL = 1, HARNESS_SKIP = 2 };
#define cmocka_unit_test(f)                                                                                  \
    { #f, f }
#define fail_msg(...)                                                                                        \
    (printf("  "), printf(__VA_ARGS__), printf(" at %s:%d\n", __FILE__, __LINE__),                           \
     longjmp(harness_env, HARNESS_FAIL))
#define skip() longjmp(harness_env, HARNESS_SKIP)
#define assert_true(c)                                                                                       \
    do {                                                                                                     \
        if (!(c))                                                                                            \
            fail_msg("not true: %s", #c);                                                                    \
    } while (0)
#define assert_false(c) assert_true(!(c))
#define assert_non_null(p) assert_true((p) != NULL)
#define assert_null(p) assert_true((p) == NULL)
#define assert_int_equal(a, b)                                                                               \
    do {                                                                                                     \
        long long a_ = (long long)(a), b_ = (long long)(b);                                                  \
        if (a_ != b_)                                                                                        \
            fail_msg("%s: %lld != %lld", #a, a_, b_);                                                        \
    } while (0)
#define assert_int_not_equal(a, b) assert_true((long long)(a) != (long long)(b))
#define assert_string_equal(a, b)                                                                            \
    do {                                                                                                     \
        if (strcmp(a, b) != 0)                                                                               \
            fail_msg("\"%s\" != \"%s\"", a, b);                                                              \
    } while (0)
#define assert_memory_equal(a, b, n)                                                                         \
    do {                                                                                                     \
        if (memcmp(a, b, n) != 0)                                                                            \
            fail_msg("%s differs from %s", #a, #b);                                                          \
    } while (0)
#define assert_in_range(v, lo, hi) assert_true((v) >= (lo) && (v) <= (hi))
// Whether names, of tests with commas between, has this one. NULL: it has none.
static inline int harness_names(const char *names, const char *name) {
    size_t n = strlen(name);
    for (const char *p = names ? strstr(names, name) : NULL; p; p = strstr(p + n, name))
        if ((p == names || p[-1] == ',') && (p[n] == 0 || p[n] == ','))
            return 1;
    return 0;
}
// QUIRE_LEAVE_OUT names tests that do not run, QUIRE_RUN the only ones that do.
static inline int harness_leaves_out(const char *name) {
    const char *only = getenv("QUIRE_RUN");
    return harness_names(getenv("QUIRE_LEAVE_OUT"), name) || (only && !harness_names(only, name));
}
// The exit code: 77, where everything was skipped, is ctest's SKIP_RETURN_CODE and gpu_slot.sh's; where data
// are required, and where all was left out, that is a failure.
static inline int harness_run(const struct CMUnitTest *tests, size_t n) {
    volatile int passed = 0, failed = 0, skipped = 0, left_out = 0;
    setvbuf(stdout, NULL, _IOLBF, 0); // a program that is killed leaves what it had
    for (volatile size_t i = 0; i < n; i++) {
        if (harness_leaves_out(tests[i].name)) {
            printf("[ LEFT OUT ] %s\n", tests[i].name);
            left_out++;
            continue;
        }
        int rc = setjmp(harness_env);
        if (rc == 0) {
            tests[i].test(NULL);
            passed++;
        } else if (rc == HARNESS_SKIP) {
            skipped++;
        } else {
            failed++;
        }
        printf("[ %s ] %s\n", rc == 0 ? "OK" : rc == HARNESS_SKIP ? "SKIPPED" : "FAILED", tests[i].name);
    }
    printf("%d passed, %d failed, %d skipped", passed, failed, skipped);
    if (left_out > 0)
        printf(", %d left out", left_out);
    printf("\n");
    if (failed == 0 && passed == 0 && skipped > 0 && !getenv("QUIRE_REQUIRE_DATA"))
        return 77;
    return failed > 0 || passed == 0; // nothing that ran shows nothing
}
#define cmocka_run_group_tests(tests, setup, teardown) harness_run(tests, sizeof(tests) / sizeof((tests)[0]))
typedef int (*CMFixtureFunction)(void **state);
#endif

// TEST(name) { … } is one test of a program, whose main() runs all of them in the order of the file: run_all_tests(), with
// functions that come before the first and after the last, or NULL. In a test, `state` is what the former left there.
static struct CMUnitTest harness_tests[64];
static int harness_num_tests;

#define TEST(name)                                                                                           \
    static void name(void **state);                                                                          \
    __attribute__((constructor)) static void list_##name(void) {                                             \
        static const struct CMUnitTest test = cmocka_unit_test(name);                                        \
        if (harness_num_tests == sizeof harness_tests / sizeof *harness_tests)                               \
            abort();                                                                                         \
        harness_tests[harness_num_tests++] = test;                                                           \
    }                                                                                                        \
    static void name(void **state __attribute__((unused)))

static inline int run_all_tests(CMFixtureFunction setup, CMFixtureFunction teardown) {
#ifdef QUIRE_HAVE_CMOCKA
    if (harness_num_tests == 0) // which cmocka takes for success
        return 1;
    return _cmocka_run_group_tests("tests", harness_tests, (size_t)harness_num_tests, setup, teardown);
#else
    if (setup && setup(NULL) != 0)
        return 1;
    int rc = harness_run(harness_tests, (size_t)harness_num_tests);
    return teardown && teardown(NULL) != 0 ? 1 : rc;
#endif
}

// Path of a file of the test data (QUIRE_TEST_DATA), or NULL where it is not at hand: then skip() with a
// reason. With QUIRE_REQUIRE_DATA set, as in CI, a missing file fails instead.
static inline const char *test_data(const char *name) {
    static char path[4096];
    const char *root = getenv("QUIRE_TEST_DATA");
    snprintf(path, sizeof path, "%s/%s", root ? root : "../shared/data", name);
    FILE *f = fopen(path, "rb");
    if (f) {
        fclose(f);
        return path;
    }
    if (getenv("QUIRE_REQUIRE_DATA"))
        fail_msg("no test data: %s", path);
    printf("  skipped: no %s (set QUIRE_TEST_DATA)\n", path);
    return NULL;
}
