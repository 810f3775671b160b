// The harness that stands in for cmocka: what the exit code of a program says of tests that pass, fail, are
// skipped or left out.
#undef QUIRE_HAVE_CMOCKA
#include "harness.h"

static void passes(void **state) { (void)state; }
static void fails(void **state) {
    (void)state;
    assert_int_equal(1, 2);
}
static void skips(void **state) {
    (void)state;
    skip();
}

static int bad;
static void expect(int want, const struct CMUnitTest *tests, size_t n, const char *what) {
    int found = harness_run(tests, n);
    if (found != want)
        bad++, printf("%s: %d, not %d\n", what, found, want);
}

int main(void) {
    const struct CMUnitTest pass = cmocka_unit_test(passes), fail = cmocka_unit_test(fails),
                            skipped = cmocka_unit_test(skips);
    const struct CMUnitTest some[] = {pass, skipped}, failing[] = {skipped, fail, pass},
                            nothing[] = {skipped, skipped}, without[] = {skipped, fail};
    unsetenv("QUIRE_RUN");
    unsetenv("QUIRE_LEAVE_OUT");
    for (int required = 0; required < 2; required++) {
        if (required)
            setenv("QUIRE_REQUIRE_DATA", "1", 1);
        else
            unsetenv("QUIRE_REQUIRE_DATA");
        expect(0, some, 2, "one passes");
        expect(1, failing, 3, "one fails");
        expect(1, without, 2, "one fails, the rest is skipped");
        expect(required ? 1 : 77, nothing, 2, "all are skipped");
        setenv("QUIRE_RUN", "misspelt", 1);
        expect(1, some, 2, "all are left out");
        unsetenv("QUIRE_RUN");
    }
    printf("%s\n", bad ? "wrong" : "as it should be");
    return bad > 0;
}
