// Automata against what they mean, on random texts.
#include "harness.h"

#include "grammar/regex/dfa.h"
#include "grammar/work_time.h"
#include "utf8.h"

#include <time.h>

static uint32_t seed;
static uint32_t draw(uint32_t n) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % n;
}

// Every state is of use: reached, and with a way to an end; no two are the same, nor two classes.
static void check_smallest(const struct dfa *d) {
    int n = d->num_states, k = d->num_classes;
    bool *met = calloc((size_t)n + 1, sizeof *met), *ends = calloc((size_t)n + 1, sizeof *ends);
    int *set = calloc((size_t)n + 1, sizeof *set),
        *row = malloc(((size_t)n * ((size_t)k + 1) + 1) * sizeof *row);
    assert_true(met && ends && set && row);
    met[0] = true;
    for (int turn = 0; turn < n; turn++)
        for (int s = 0; s < n; s++)
            for (int c = 0; c < k; c++) {
                int32_t to = d->next[s * k + c];
                assert_in_range(to + 1, 0, n);
                ends[s] |= d->label[s] >= 0 || (to >= 0 && ends[to]);
                if (to >= 0)
                    met[to] |= met[s];
            }
    for (int s = 0; s < n; s++)
        assert_true(met[s] && ends[s]);
    // Moore's: sets of states by label, then by where each class leads, until no set is split any more.
    for (int s = 0; s < n; s++)
        set[s] = d->label[s];
    for (int before = -1, num = 0; num != before;) {
        before = num;
        for (int s = 0; s < n; s++) {
            row[s * (k + 1)] = set[s];
            for (int c = 0; c < k; c++)
                row[s * (k + 1) + 1 + c] = d->next[s * k + c] < 0 ? -9 : set[d->next[s * k + c]];
        }
        num = 0;
        for (int s = 0; s < n; s++) {
            int other = 0;
            while (memcmp(row + other * (k + 1), row + s * (k + 1), ((size_t)k + 1) * sizeof *row))
                other++;
            set[s] = other == s ? num++ : set[other];
        }
        if (num == before)
            assert_int_equal(num, n);
    }
    for (int a = 0; a < k; a++)
        for (int b = 0; b < a && n > 0; b++) {
            int s = 0;
            while (s < n && d->next[s * k + a] == d->next[s * k + b])
                s++;
            assert_true(s < n);
        }
    bool used[256] = {false};
    for (int b = 0; b < 256; b++)
        used[d->class_of[b]] = true;
    for (int c = 0; c < k; c++)
        assert_true(used[c]);
    free(met);
    free(ends);
    free(set);
    free(row);
}

// A random text of characters that the tests' words have, sometimes of any bytes.
static size_t random_text(char *text, size_t max) {
    static const char *const parts[] = {"a", "b", "c", "ab", "é", "日", "😀", "\n", "\""};
    size_t len = 0, num = draw(8);
    for (size_t i = 0; i < num; i++) {
        const char *part = parts[draw(sizeof parts / sizeof *parts)];
        if (len + strlen(part) + 1 > max)
            break;
        memcpy(text + len, part, strlen(part));
        len += strlen(part);
        if (draw(12) == 0)
            text[len++] = (char)draw(256);
    }
    return len;
}

enum { MAX_WORDS = 20, WORD = 24 };
struct words {
    char text[MAX_WORDS][WORD];
    const char *texts[MAX_WORDS];
    size_t lens[MAX_WORDS];
    int n;
};

static struct dfa *random_words(struct words *w) {
    w->n = (int)draw(MAX_WORDS + 1);
    for (int i = 0; i < w->n; i++) {
        w->texts[i] = w->text[i];
        w->lens[i] = random_text(w->text[i], WORD);
    }
    struct err err = {0};
    struct dfa *d = dfa_literals(w->texts, w->lens, w->n, &err);
    assert_non_null(d);
    check_smallest(d);
    return d;
}

static bool has_word(const struct words *w, const char *text, size_t len) {
    for (int i = 0; i < w->n; i++)
        if (w->lens[i] == len && memcmp(w->text[i], text, len) == 0)
            return true;
    return false;
}

static int code_points(const char *text, size_t len) {
    int n = 0;
    for (size_t i = 0; i < len; i++)
        n += !utf8_continues(text[i]);
    return n;
}

static bool keep_small(void *arg, uint64_t set) {
    (void)arg;
    return set != 5;
}

TEST(test_operations) {
    seed = 1;
    for (int turn = 0; turn < (SLOW ? 60 : 600); turn++) {
        struct words wa, wb;
        struct err err = {0};
        int min = (int)draw(4), max = draw(3) ? min + (int)draw(3) : -1;
        struct dfa *a = random_words(&wa), *b = random_words(&wb), *len = dfa_length(min, max, &err);
        struct dfa *both = dfa_intersect(a, b, &err), *either = dfa_union(a, b, &err);
        struct dfa *not = dfa_complement(a, &err), *not_long = dfa_intersect(not, len, &err);
        const struct dfa *list[] = {a, b, len};
        uint64_t *sets;
        struct dfa *sides = dfa_classify(list, 3, turn % 2 ? keep_small : NULL, NULL, &sets, &err);
        struct dfa *made[] = {len, both, either, not, not_long, sides};
        for (int i = 0; i < 6; i++) {
            assert_non_null(made[i]);
            check_smallest(made[i]);
        }
        for (int i = 0; i < 200; i++) {
            char text[WORD];
            size_t n = random_text(text, sizeof text);
            const struct words *w = i % 2 ? &wa : &wb; // else texts of the lists are seldom met
            if (draw(2) && w->n > 0) {
                int word = (int)draw((uint32_t)w->n);
                memcpy(text, w->text[word], n = w->lens[word]);
            }
            bool in_a = has_word(&wa, text, n), in_b = has_word(&wb, text, n);
            bool valid = utf8_valid((unsigned char *)text, n);
            int num = code_points(text, n);
            bool fits = valid && num >= min && (max < 0 || num <= max);
            assert_int_equal(dfa_match(a, text, n), in_a - 1);
            assert_int_equal(dfa_match(both, text, n), (in_a && in_b) - 1);
            assert_int_equal(dfa_match(either, text, n), (in_a || in_b) - 1);
            assert_int_equal(dfa_match(not, text, n), (valid && !in_a) - 1);
            assert_int_equal(dfa_match(len, text, n), fits - 1);
            assert_int_equal(dfa_match(not_long, text, n), (fits && !in_a) - 1);
            uint64_t set = (uint64_t)in_a | (uint64_t)in_b << 1 | (uint64_t)fits << 2;
            int32_t label = dfa_match(sides, text, n);
            if (!valid || (turn % 2 && set == 5))
                assert_int_equal(label, -1);
            else
                assert_true(label >= 0 && sets[label] == set);
        }
        for (int i = 0; i < 6; i++)
            dfa_free(made[i]);
        dfa_free(a);
        dfa_free(b);
        free(sets);
    }
}

TEST(test_count) {
    struct err err = {0};
    static const char *const texts[] = {"red", "green", "blue", "red", "reed"};
    static const size_t lens[] = {3, 5, 4, 3, 4};
    struct dfa *d = dfa_literals(texts, lens, 5, &err), *none = dfa_literals(NULL, NULL, 0, &err);
    struct dfa *any = dfa_any(&err), *two = dfa_length(0, 2, &err), *not = dfa_complement(any, &err);
    assert_int_equal(dfa_count(d, 100), 4);
    assert_int_equal(dfa_count(d, 3), 3);
    assert_int_equal(dfa_count(none, 100), 0);
    assert_true(dfa_is_empty(none) && dfa_is_empty(not ) && !dfa_is_empty(d));
    assert_int_equal(dfa_count(any, INT64_MAX), INT64_MAX);
    int64_t chars = 0x110000 - 0x800;
    assert_int_equal(dfa_count(two, INT64_MAX), 1 + chars + chars * chars);
    dfa_free(d);
    dfa_free(none);
    dfa_free(any);
    dfa_free(two);
    dfa_free(not );
}

// All 256 bytes and fewer, long texts, and texts that need too many states.
TEST(test_bounds) {
    struct err err = {0};
    const size_t most = (1 << DFA_STATE_BITS) - 1; // bytes: the state behind them is one more
    char bytes[256], *many = malloc(most + 1);
    const char *texts[256];
    size_t lens[256];
    assert_non_null(many);
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        texts[i] = bytes + i;
        lens[i] = 1;
    }
    for (int n = 254; n <= 256; n++) {
        struct dfa *d = dfa_literals(texts, lens, n, &err);
        assert_int_equal(dfa_count(d, 1000), n);
        for (int i = 0; i < 256; i++)
            assert_int_equal(dfa_match(d, bytes + i, 1), (i < n) - 1);
        dfa_free(d);
    }
    memset(many, 'x', most + 1);
    const char *one = many;
    struct dfa *d = dfa_literals(&one, &most, 1, &err);
    assert_int_equal(d->num_states, most + 1);
    assert_int_equal(dfa_match(d, many, most), 0);
    dfa_free(d);
    assert_null(dfa_literals(&one, &(size_t){most + 1}, 1, &err));
    assert_int_equal(err.code, STATUS_LIMIT);
    err = (struct err){0};
    for (size_t i = 0; i < most; i++)
        many[i] = (char)i;
    assert_null(dfa_literals(&one, &(size_t){1 << 17}, 1, &err)); // each state has all bytes
    assert_true(err.code == STATUS_LIMIT && strstr(err.msg, "64 MiB"));
    err = (struct err){0};
    assert_null(dfa_length(0, 100000, &err));
    assert_int_equal(err.code, STATUS_LIMIT);
    err = (struct err){0};
    d = dfa_length(3, 2, &err);
    assert_true(d && dfa_is_empty(d));
    dfa_free(d);
    free(many);
}

// As many words as the largest lists have: each is taken, and nothing that differs in a letter.
TEST(test_many_words) {
    enum { NUM = 20000, LEN = 12 };
    char(*words)[LEN + 1] = malloc(NUM * sizeof *words), text[LEN + 1];
    const char **texts = malloc(NUM * sizeof *texts);
    size_t *lens = malloc(NUM * sizeof *lens);
    struct err err = {0};
    assert_true(words && texts && lens);
    seed = 3;
    for (int i = 0; i < NUM; i++) {
        lens[i] = LEN - draw(4);
        for (size_t k = 0; k < lens[i]; k++)
            words[i][k] = (char)('a' + draw(25));
        texts[i] = words[i];
    }
    struct dfa *d = dfa_literals(texts, lens, NUM, &err);
    assert_non_null(d);
    assert_true(d->num_states > DFA_MAX_STATES && d->num_classes == 26);
    assert_in_range(dfa_count(d, 2 * NUM), NUM - 10, NUM); // a word may have come twice
    for (int i = 0; i < NUM; i++) {
        size_t n = lens[i];
        assert_int_equal(dfa_match(d, texts[i], n), 0);
        memcpy(text, texts[i], n);
        text[draw((uint32_t)n)] = 'z';
        assert_int_equal(dfa_match(d, text, n), -1);
        assert_int_equal(dfa_match(d, texts[i], n - 4), -1); // shorter than any
    }
    dfa_free(d);
    free(words);
    free(texts);
    free(lens);
}

// 64 automata at once, each with one key of its own.
TEST(test_many_sides) {
    struct err err = {0};
    struct dfa *list[64];
    char name[32];
    for (int i = 0; i < 64; i++) {
        snprintf(name, sizeof name, "property_%d_name", i);
        list[i] = dfa_literals(&(const char *){name}, &(size_t){strlen(name)}, 1, &err);
    }
    uint64_t *sets;
    struct dfa *d = dfa_classify((const struct dfa *const *)list, 64, NULL, NULL, &sets, &err);
    assert_non_null(d);
    check_smallest(d);
    for (int i = 0; i < 64; i++) {
        snprintf(name, sizeof name, "property_%d_name", i);
        assert_true(sets[dfa_match(d, name, strlen(name))] == (uint64_t)1 << i);
        assert_true(sets[dfa_match(d, name, strlen(name) - 1)] == 0);
        dfa_free(list[i]);
    }
    dfa_free(d);
    free(sets);
}

// From where any plain text goes on, and which take each plain character alone.
TEST(test_plain) {
    static const struct {
        const char *pattern;
        bool any, one;
    } cases[] = {
        {"[^]*", true, true},
        {"[^\"\\\\\\x00-\\x1f]*", true, true},
        {"(?:[^\"\\\\]|\\\\[nrt])*", true, true},
        {"[^x]*", false, false},
        {"[^\\u00e9]*", false, false},
        {"[^\\u{10ffff}]", false, false},
        {"[^\"\\\\]", false, true},
        {"[^]{2}", false, false},
        {"[^]{3,}", true, false},
        {"x[^]*|[^x][^]?[^]*", true, true},
        {"[ -~]*", false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        struct dfa *d = dfa_regex(cases[i].pattern, strlen(cases[i].pattern), true, &err);
        assert_non_null(d);
        uint8_t *marks = malloc((size_t)d->num_states), *none = calloc((size_t)d->num_states, 1);
        assert_true(marks && none && dfa_mark_plain(d, NULL, marks));
        if (marks[0] != cases[i].any || dfa_takes_plain_char(d) != cases[i].one)
            fail_msg("%s: %d, %d", cases[i].pattern, marks[0], dfa_takes_plain_char(d));
        assert_true(dfa_mark_plain(d, none, marks) && !marks[0]);
        dfa_free(d);
        free(marks);
        free(none);
    }
}

// Behind the time that compiling may take no automaton is made; the next compilation has its own.
TEST(test_work_time) {
    struct err err = {0};
    work_time_begin();
    while (work_time_left(&err))
        ;
    assert_int_equal(err.code, STATUS_LIMIT);
    err = (struct err){0};
    assert_null(dfa_regex("a", 1, true, &err));
    assert_int_equal(err.code, STATUS_LIMIT);
    err = (struct err){0};
    assert_null(dfa_length(0, 3, &err));
    assert_int_equal(err.code, STATUS_LIMIT);
    work_time_end();
    dfa_free(dfa_regex("a", 1, true, &err));
    err = (struct err){0};
    work_time_begin();
    struct dfa *d = dfa_regex("a", 1, true, &err);
    assert_non_null(d);
    dfa_free(d);
    work_time_end();
}

int main(void) { return run_all_tests(NULL, NULL); }
