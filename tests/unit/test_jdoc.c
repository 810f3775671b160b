// JSON texts: what is sound, what is refused and where, values.
#include "harness.h"

#include "json/jdoc.h"

static enum status parse(struct jdoc *j, const char *text, size_t len, struct err *err) {
    char *copy = malloc(len + 1);
    assert_non_null(copy);
    memcpy(copy, text, len);
    return jdoc_parse(j, "x.json", copy, len, err);
}

TEST(test_json) {
    static const struct {
        const char *text, *word; // NULL: sound
    } cases[] = {
        {"{\"a\": [1, -2.5e3, true, false, null, \"x\"], \"b\": {}}", NULL},
        {" [] ", NULL},
        {"[NaN, -Infinity, 1e5]", NULL},
        {"\"\\u00e9\\ud83d\\ude42\\n\\/\"", NULL},
        {"", "ends at byte 0"},
        {"{", "expected a key"},
        {"{\"a\" 1}", "a colon"},
        {"{\"a\": 1,}", "byte 8 is 0x7d, expected a key"},
        {"[1 2]", "byte 3 is 0x32, expected a comma"},
        {"[01]", "a comma"},
        {"[1.]", "a digit"},
        {"[1e]", "a digit"},
        {"[+1]", "a value"},
        {"nul", "a value"},
        {"1 1", "nothing behind"},
        {"\"a", "the end of a string"},
        {"\"\\x\"", "an escape"},
        {"\"\\ud800\"", "an escape"},
        {"\"\\ud800\\u0041\"", "an escape"},
        {"\"\\u12\"", "an escape"},
        {"\"\n\"", "control characters"},
        {"\"\xff\"", "byte 1 is 0xff, expected UTF-8"},
        {"{\"a\": 1, \"b\": 2, \"a\": 3}", "key a at byte 18 is there twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct jdoc j;
        struct err err = {0};
        enum status st = parse(&j, cases[i].text, strlen(cases[i].text), &err);
        if (cases[i].word ? st != STATUS_FORMAT || !strstr(err.msg, cases[i].word) : st != STATUS_OK)
            fail_msg("%s: expected '%s', got '%s'", cases[i].text, cases[i].word ? cases[i].word : "ok",
                     err.msg);
        jdoc_free(&j);
    }
    struct jdoc j;
    struct err err = {0};
    static const char text[] =
        "{\"s\": \"\\u00e9\\u0000z\", \"n\": [1, 2.5, 1e400], \"o\": {\"k\": null, \"t\": true}}";
    int64_t n = 0;
    assert_int_equal(parse(&j, text, strlen(text), &err), STATUS_OK);
    const struct jdoc_value *s = jdoc_get(&j, j.values, "s"), *list = jdoc_get(&j, j.values, "n"),
                            *o = jdoc_get(&j, j.values, "o"), *e = jdoc_first(&j, list);
    assert_int_equal(s->len, 4);
    assert_memory_equal(jdoc_text(&j, s).data, "\xc3\xa9\0z", 4);
    assert_true(jdoc_integer(&j, e, &n) && n == 1);
    e = jdoc_after(&j, list, e, false);
    assert_false(jdoc_integer(&j, e, &n));
    assert_true(jdoc_number(&j, e) == 2.5);
    e = jdoc_after(&j, list, e, false);
    assert_false(jdoc_integer(&j, e, &n));
    assert_null(jdoc_after(&j, list, e, false));
    assert_null(jdoc_get(&j, o, "k"));
    assert_int_equal(jdoc_get(&j, o, "t")->type, JDOC_TRUE);
    assert_null(jdoc_get(&j, s, "t"));
    jdoc_free(&j);
    char deep[3 * JDOC_MAX_DEPTH];
    for (int depth = JDOC_MAX_DEPTH - 1; depth < JDOC_MAX_DEPTH + 2; depth++) {
        memset(deep, '[', (size_t)depth);
        memset(deep + depth, ']', (size_t)depth);
        err = (struct err){0};
        bool sound = parse(&j, deep, 2 * (size_t)depth, &err) == STATUS_OK;
        assert_true(sound == (depth <= JDOC_MAX_DEPTH));
        jdoc_free(&j);
    }
}

int main(void) { return run_all_tests(NULL, NULL); }
