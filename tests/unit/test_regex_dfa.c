// Regular expressions, as automata and as grammars: against PCRE2 on random expressions and texts, and cases by hand.
#include "grammar_texts.h"

#include "text/regex.h"

static uint32_t seed;
static uint32_t draw(uint32_t n) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % n;
}

// ---- random expressions, in ECMA's spelling and in PCRE2's

struct spelling {
    char ours[512], theirs[512];
};

static void add(struct spelling *s, const char *ours, const char *theirs) {
    assert_true(strlen(s->ours) + strlen(ours) < sizeof s->ours);
    strcat(s->ours, ours);
    strcat(s->theirs, theirs ? theirs : ours);
}

static void random_expression(struct spelling *s, int depth, bool at_begin) {
    static const char *const atoms[] = {"a",     "b",   "ab",  "é",     "日",      ".",      "[ab]", "[^a]",
                                        "[b-é]", "\\d", "\\w", "[^é😀]", "\\u0061", "[\\d-]", "\\.",  "\\W"};
    static const char *const theirs[] = {[12] = "\\x{61}", [15] = NULL};
    static const char *const repeats[] = {"*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?", "+?"};
    uint32_t num = 1 + draw(2), parts;
    for (uint32_t i = 0; i < num; i++) {
        if (i > 0)
            add(s, "|", NULL);
        if (at_begin && draw(3) == 0)
            add(s, "^", "\\A");
        parts = draw(4);
        for (uint32_t j = 0; j < parts; j++) {
            if (depth > 0 && draw(3) == 0) {
                add(s, draw(2) ? "(?:" : "(", "(?:");
                random_expression(s, depth - 1, j == 0 && draw(4) == 0);
                add(s, ")", NULL);
            } else {
                uint32_t atom = draw(sizeof atoms / sizeof *atoms);
                add(s, atoms[atom], atom < sizeof theirs / sizeof *theirs ? theirs[atom] : NULL);
            }
            if (draw(3) == 0)
                add(s, repeats[draw(sizeof repeats / sizeof *repeats)], NULL);
        }
        if (draw(6) == 0)
            add(s, "$", "\\z");
    }
}

static size_t random_text(char *text) {
    static const char *const parts[] = {"a", "b", "c", "ab", "1", "é", "日", "😀", ".", "-", "z"};
    uint32_t num = draw(9);
    *text = 0;
    for (uint32_t i = 0; i < num; i++)
        strcat(text, parts[draw(sizeof parts / sizeof *parts)]);
    return strlen(text);
}

TEST(test_random) {
    if (!regex_available(&(struct model_file){.name = ""}, NULL))
        skip();
    struct regex_scratch *scratch = regex_scratch_new();
    int64_t matches = 0;
    seed = 3;
    for (int turn = 0; turn < (SLOW ? 300 : 3000); turn++) {
        struct spelling s = {"", ""};
        struct err err = {0};
        bool anchored = draw(2), look = draw(8) == 0, negated = draw(2);
        if (look) {
            add(&s, negated ? "^(?!" : "^(?=", negated ? "\\A(?!" : "\\A(?=");
            random_expression(&s, 1, false);
            add(&s, ")(?:", NULL);
            random_expression(&s, 2, false);
            add(&s, ")", NULL);
        } else {
            random_expression(&s, 3, true);
        }
        char theirs[600];
        snprintf(theirs, sizeof theirs, anchored ? "\\A(?:%s)\\z" : "%s", s.theirs);
        struct dfa *d = dfa_regex(s.ours, strlen(s.ours), anchored, &err);
        struct regex *r = regex_new(theirs);
        if (!d || !r)
            fail_msg("%s: %s", s.ours, err.msg);
        struct grammar *g = NULL; // of what matches whole texts
        if (anchored && !dfa_is_empty(d) && !(g = read_grammar(regex_to_expr, s.ours, strlen(s.ours), &err)))
            fail_msg("%s: %s", s.ours, err.msg);
        for (int i = 0; i < 60; i++) {
            char text[64];
            size_t len = random_text(text), start, end;
            bool want = regex_find(r, scratch, (struct text_view){text, len}, 0, &start, &end);
            if ((dfa_match(d, text, len) >= 0) != want)
                fail_msg("%s %s '%s': expected %d", s.ours, anchored ? "is" : "in", text, want);
            if (g)
                check_text(g, s.ours, text, len, want);
            matches += want;
        }
        grammar_free(g);
        dfa_free(d);
        regex_free(r);
    }
    regex_scratch_free(scratch);
    assert_true(matches > 1000);
}

// ---- by hand

// As a pattern of a schema: it matches some part of the text.
TEST(test_cases) {
    static const struct {
        const char *pattern, *text;
        bool matches;
    } cases[] = {
        {"", "", true},
        {"", "anything", true},
        {"$^", "", true},
        {"$^", "a", false},
        {"a^b", "ab", false},
        {"a$b", "ab", false},
        {"(a|^)b", "xb", false},
        {"(a|^)b", "b", true},
        {"(a|^)b", "xab", true},
        {"a($|b)", "xa", true},
        {"a($|b)", "ac", false},
        {"(^a|b$)", "ab", true},
        {"(^a|b$)", "ba", false},
        {"a*^b", "b", true},
        {"a*^b", "ab", false},
        {"^$", "", true},
        {"^$", "\n", false},
        {"^.$", "\n", false},
        {"^.$", "\r", false},
        {"^.$", "\u2028", false},
        {"^.$", "\xc2\x85", true},
        {"^(?s).$", "\n", true},
        {"^(?s:.).$", "\n\n", false},
        {"^[^]$", "\n", true},
        {"a|[]", "b", false},
        {"^\\s+$", " \t\n\v\f\r\u00a0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000\ufeff", true},
        {"^\\s$", "\u180e", false},
        {"^\\S$", "\xc2\x85", true},
        {"^\\d$", "\u0663", false},
        {"^\\w$", "é", false},
        {"^\\W$", "é", true},
        {"^\\D$", "x", true},
        {"^\\cJ\\t\\n\\v\\f\\r\\0$", "\n\t\n\v\f\r", false},
        {"^\\cJ\\t\\x41\\u{1F600}\\uD83D\\uDE00$", "\n\tA😀😀", true},
        {"^[\\uD83D\\uDE00-\\u{1f602}]$", "😁", true},
        {"^[\\uD800-\\uDFFF]$", "?", false},
        {"^[\\b]$", "\b", true},
        {"^[a\\-z]+$", "a-z", true},
        {"^[a\\-z]+$", "b", false},
        {"^[\\w-.]+$", "a-b.c", true},
        {"^[-a]+[a-]+$", "-a-", true},
        {"^[^-a]$", "-", false},
        {"^{a}{2}$", "{a}}", true},
        {"^x{a,2}$", "x{a,2}", true},
        {"^a{2,3}$", "aaaa", false},
        {"^a{2,}b{0}$", "aaaa", true},
        {"^(?:a{2}){2}$", "aaaa", true},
        {"^(?<year>\\d{4})-(?P<m>\\d\\d)$", "2024-12", true},
        {"(?i)straße", "STRAßE", true},
        {"^(?i:a)b$", "Ab", true},
        {"^(?i:a)b$", "AB", false},
        {"^(?i)[^k]$", "K", false},
        {"^(?i)[а-я]+$", "ПРИВЕТ", true},
        {"^\\-\\_\\@\\ \\/\\\"$", "-_@ /\"", true},
        {"\\Aab\\z", "ab", true},
        {"\\Aab\\Z", "xab", false},
        {"^(?!admin$)[a-z]+$", "admin", false},
        {"^(?!admin$)[a-z]+$", "admins", true},
        {"^(?!.*--)[a-z-]+$", "a--b", false},
        {"^(?=.*[A-Z])(?=.*\\d).{4,}$", "abC1", true},
        {"^(?=.*[A-Z])(?=.*\\d).{4,}$", "abc1", false},
        {"^((?!no).*)$", "none", false},
        {"^(?!a)b|^c(?:d)|x", "cd", true},
        {"^(?!a)|^ab", "ab", true},
        {"^(?!a)|^ab", "ac", false},
        {"^\\p{Lu}\\p{Ll}+$", "Émile", true},
        {"^\\p{Lu}\\p{Ll}+$", "éMILE", false},
        {"^\\p{Letter}\\P{L}\\pN$", "é-٣", true},
        {"^\\p{gc=Nd}\\p{General_Category=Decimal_Number}[\\P{L}]$", "٣1!", true},
        {"^[^\\p{L}\\d]+$", "-.", true},
        {"^[^\\p{L}\\d]+$", "-a", false},
        {"^\\p{^L}\\p{Any}\\p{ASCII}$", "1éa", true},
        {"^\\p{Co}+$", "\U0010fffd\ue000", true},
        {"^\\p{Cn}$", "\U0010ffff", true},
        {"^\\p{Cn}$", "\U00050000", true},
        {"^\\p{Cn}$", "a", false},
        {"^.{3}$", "日é😀", true},
        {"^.{3}$", "日é", false},
        {"^(a|aa){500}$", "a", false},
        {"(((((((((((((((((((((x)))))))))))))))))))))+", "x", true},
    };
    bool unicode = regex_available(&(struct model_file){.name = ""}, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        if (!unicode && (strstr(cases[i].pattern, "\\p") || strstr(cases[i].pattern, "(?i)[")))
            continue;
        struct dfa *d = dfa_regex(cases[i].pattern, strlen(cases[i].pattern), false, &err);
        if (!d)
            fail_msg("%s: %s", cases[i].pattern, err.msg);
        if ((dfa_match(d, cases[i].text, strlen(cases[i].text)) >= 0) != cases[i].matches)
            fail_msg("%s in '%s': expected %d", cases[i].pattern, cases[i].text, cases[i].matches);
        dfa_free(d);
    }
}

TEST(test_refusals) {
    static const struct {
        const char *pattern;
        enum status code;
        const char *says;
    } cases[] = {
        {"é(", STATUS_INVALID, "character 2: ( has no )"},
        {"a)b", STATUS_INVALID, "character 2: this ) closes nothing"},
        {"[.*", STATUS_INVALID, "character 1: [ has no ]"},
        {"[b-a]", STATUS_INVALID, "character 2: this range"},
        {"[a-\\d]", STATUS_INVALID, "character 2: this range"},
        {"[[:alpha:]]", STATUS_INVALID, "character 2: classes of POSIX"},
        {"*", STATUS_INVALID, "character 1: there is nothing to repeat"},
        {"a**", STATUS_INVALID, "character 3: there is nothing to repeat"},
        {"a{2}{3}", STATUS_INVALID, "character 5: there is nothing to repeat"},
        {"{2}x", STATUS_INVALID, "character 1: there is nothing to repeat"},
        {"^+a", STATUS_INVALID, "character 1: what takes no text"},
        {"(?<=x)*", STATUS_INVALID, "character 1: look-behind"},
        {"a(?<!x)", STATUS_INVALID, "character 2: look-behind"},
        {"a(?!x)", STATUS_INVALID, "character 2: a look ahead"},
        {"(?!x)", STATUS_INVALID, "character 1: a look ahead"},
        {"^(?:(?!x).)*$", STATUS_INVALID, "character 5: a look ahead"},
        {"(a)\\1", STATUS_INVALID, "character 4: back-references"},
        {"(?<n>a)\\k<n>", STATUS_INVALID, "character 8: back-references"},
        {"(?P=n)", STATUS_INVALID, "character 1: back-references"},
        {"a\\b", STATUS_INVALID, "character 2: word boundaries"},
        {"[\\B]", STATUS_INVALID, "character 2: word boundaries"},
        {"\\07", STATUS_INVALID, "character 1: back-references"},
        {"(?>a)", STATUS_INVALID, "character 1: this kind of group"},
        {"(?m)^a", STATUS_INVALID, "character 1: this kind of group"},
        {"a++", STATUS_INVALID, "character 1: possessive"},
        {"a{,2}", STATUS_INVALID, "character 2: {,n}"},
        {"a{3,2}", STATUS_INVALID, "character 2: a repeat whose end"},
        {"\\h", STATUS_INVALID, "character 1: this escape"},
        {"\\", STATUS_INVALID, "character 1: \\ is the last"},
        {"\\x4", STATUS_INVALID, "character 1: \\x needs"},
        {"\\u12", STATUS_INVALID, "character 1: \\u needs"},
        {"\\u{110000}", STATUS_INVALID, "character 1: \\u{...}"},
        {"\\p{Script=Greek}", STATUS_INVALID, "character 1: this property"},
        {"\\p{L", STATUS_INVALID, "character 1: \\p{ has no }"},
        {"\xff", STATUS_INVALID, "not valid UTF-8"},
        {"a{100001}", STATUS_LIMIT, "character 2: a repeat of more than"},
        {"(a|b)*a(a|b){20}", STATUS_LIMIT, "too large"},
        {"((a{1000}){1000}){1000}", STATUS_LIMIT, "too large"},
        {"^.{0,60000}$", STATUS_LIMIT, "too large"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        struct dfa *d = dfa_regex(cases[i].pattern, strlen(cases[i].pattern), false, &err);
        if (d || err.code != cases[i].code || !strstr(err.msg, cases[i].says))
            fail_msg("%s: expected \"%s\", not \"%s\"", cases[i].pattern, cases[i].says, d ? "" : err.msg);
    }
    char deep[256] = "";
    for (int i = 0; i < 65; i++)
        strcat(deep, "(");
    strcat(deep, "a");
    for (int i = 0; i < 65; i++)
        strcat(deep, ")");
    struct err err = {0};
    assert_null(dfa_regex(deep, strlen(deep), true, &err));
    assert_int_equal(err.code, STATUS_LIMIT);
    err = (struct err){0};
    struct dfa *d = dfa_regex(deep + 1, strlen(deep) - 2, true, &err);
    assert_int_equal(dfa_match(d, "a", 1), 0);
    dfa_free(d);
}

// Whole texts; counts are kept.
TEST(test_expressions) {
    static const struct grammar_case cases[] = {
        {"abc", {"abc"}, {"xabc", "abcx", ""}},
        {"^(a|^b$|c$)$", {"a", "b", "c"}, {"ab", ""}},
        {"(a|b^)c|d$e|f", {"ac", "f"}, {"bc", "de", "d"}},
        {"^(?!no)[a-z]+$", {"yes", "n"}, {"no", "nope"}},
        {"(?:x{1,90000}){2}é?[^a]", {"xxy", "xxxé日"}, {"xa", "xxa"}},
        {".{0,60000}", {"", "日本"}, {"\n"}},
        {"(?i)k[b-d]", {"KB", "kd"}, {"ke"}},
        {"", {""}, {"a"}},
    };
    check_cases(regex_to_expr, cases, sizeof cases / sizeof *cases);
    struct err err = {0};
    assert_null(read_grammar(regex_to_expr, "a(", 2, &err));
    assert_non_null(strstr(err.msg, "character 2"));
}

int main(void) { return run_all_tests(NULL, NULL); }
