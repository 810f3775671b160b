// Grammars, the matcher that walks them, and the masks of tokens.
#include "harness.h"

#include "grammar/front.h"
#include "grammar/grammar_build.h"
#include "grammar/matcher.h"
#include "grammar/token_trie.h"
#include "tokenizer.h"
#include "utf8.h"

#include <dirent.h>

static uint32_t seed = 1;
static uint32_t draw(uint32_t n) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % n;
}

static struct grammar_builder *builder(enum json_order order) {
    struct grammar_builder *b = gb_new();
    assert_non_null(b);
    gb_json_style(b, &(struct json_style){.order = order, .max_blanks = 4});
    return b;
}

static struct grammar *made(struct grammar_builder *b, expr root) {
    struct err err = {0};
    struct grammar *g = grammar_finish(b, root, &err);
    if (!g)
        fail_msg("%s", err.msg);
    return g;
}

static void check(struct grammar *g, bool takes, const char *text) {
    if (grammar_takes(g, text, strlen(text)) != takes)
        fail_msg("'%s' is %s", text, takes ? "refused" : "taken");
}

// taken and refused: texts, each list ends with NULL
static void check_all(struct grammar *g, const char *const *taken, const char *const *refused) {
    for (; *taken; taken++)
        check(g, true, *taken);
    for (; *refused; refused++)
        check(g, false, *refused);
    grammar_free(g);
}
// Beginnings that nothing can complete.
static void check_dead(struct grammar *g, const char *const *beginnings) {
    struct matcher *m = matcher_new(g);
    for (; *beginnings; beginnings++)
        if (matcher_text(m, matcher_start(m), *beginnings, strlen(*beginnings)) != MATCHER_DEAD)
            fail_msg("'%s' leads nowhere", *beginnings);
    matcher_free(m);
}
#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})

TEST(test_expressions) {
    struct grammar_builder *b = builder(JSON_ORDER_SCHEMA);
    expr ab = gb_alt_of(b, gb_text(b, "a"), gb_text(b, "bc"));
    check_all(made(b, gb_seq_of(b, gb_text(b, "<"), gb_repeat(b, ab, 2, 3), gb_text(b, ">"))),
              TEXTS("<aa>", "<abc>", "<bcbcbc>", "<aaa>"),
              TEXTS("", "<a>", "<aaaa>", "<aa", "<ab>", "<aa>>"));
    b = builder(JSON_ORDER_SCHEMA);
    struct grammar *endless = made(b, gb_repeat(b, gb_text(b, "xy"), 3, -1));
    struct matcher *m = matcher_new(endless);
    int32_t at = matcher_start(m);
    for (int i = 0; i < 1000; i++)
        at = matcher_text(m, at, "xy", 2);
    assert_true(at >= 0 && matcher_bytes(m) < 4000); // a count that no longer matters is not kept
    matcher_free(m);
    check_all(endless, TEXTS("xyxyxy", "xyxyxyxyxy"), TEXTS("xyxy", "xyxyx", ""));
    b = builder(JSON_ORDER_SCHEMA);
    check_all(made(b, gb_repeat(b, gb_text(b, "a"), 2, 5)), TEXTS("aa", "aaaaa"), TEXTS("a", "aaaaaa"));
    b = builder(JSON_ORDER_SCHEMA);
    check_all(made(b, gb_repeat(b, gb_repeat(b, gb_text(b, "a"), 0, -1), 0, -1)), TEXTS("", "aaa"),
              TEXTS("b", "ab"));
    b = builder(JSON_ORDER_SCHEMA); // what may be empty, so many times
    check_all(made(b, gb_repeat(b, gb_repeat(b, gb_text(b, "ab"), 0, 2), 3, 4)),
              TEXTS("", "ab", "abababababababab"), TEXTS("a", "ababababababababab"));
    b = builder(JSON_ORDER_SCHEMA); // counts are kept, not unrolled
    struct grammar *g = made(b, gb_repeat(b, gb_alt_of(b, gb_text(b, "a"), gb_text(b, "bb")), 1000, 100000));
    assert_true(g->num_nfa < 20);
    char *many = malloc(100001);
    memset(many, 'a', 100001);
    assert_false(grammar_takes(g, many, 999));
    assert_true(grammar_takes(g, many, 1000));
    assert_true(grammar_takes(g, many, 100000));
    assert_false(grammar_takes(g, many, 100001));
    free(many);
    grammar_free(g);
}

TEST(test_rules) {
    struct grammar_builder *b = builder(JSON_ORDER_SCHEMA);
    expr s = gb_rule(b, "s");
    gb_define(b, s, gb_alt_of(b, gb_empty(b), gb_seq_of(b, gb_text(b, "("), s, gb_text(b, ")"), s)));
    check_all(made(b, s), TEXTS("", "()", "(()())()"), TEXTS("(", ")", "())", "(()"));
    b = builder(JSON_ORDER_SCHEMA); // sums of products, by left recursion
    expr sum = gb_rule(b, "sum"), product = gb_rule(b, "product"), x = gb_text(b, "x");
    gb_define(b, sum, gb_alt_of(b, gb_seq_of(b, sum, gb_text(b, "+"), product), product));
    gb_define(b, product,
              gb_alt_of(b, gb_seq_of(b, product, gb_text(b, "*"), x), x,
                        gb_seq_of(b, gb_text(b, "("), sum, gb_text(b, ")"))));
    check_all(made(b, sum), TEXTS("x", "x+x*x", "(x+x)*x+x"), TEXTS("", "x+", "x(x)", "*x", "(x"));
}

// Thousands of texts among alternatives are one automaton, so that they are not that many ways to begin a text.
TEST(test_many_texts) {
    enum { NUM = 6000 };
    struct grammar_builder *b = builder(JSON_ORDER_SCHEMA);
    expr parts[NUM];
    char text[32];
    for (int i = 0; i < NUM; i++) {
        int len = snprintf(text, sizeof text, "word %d", 7 * i);
        parts[i] = i == 5 ? gb_empty(b) : i == 6 ? gb_json_integer(b) : gb_bytes(b, text, (size_t)len);
    }
    struct grammar *g = made(b, gb_seq_of(b, gb_text(b, "<"), gb_alt(b, parts, NUM), gb_text(b, ">")));
    assert_true(g->num_nfa < 40);
    for (int i = 0; i < 7 * NUM; i++) {
        snprintf(text, sizeof text, "<word %d>", i);
        check(g, i % 7 == 0 && i != 35 && i != 42, text);
    }
    check_all(g, TEXTS("<>", "<-17>"), TEXTS("", "<word>", "<word 7", "<word 7 >", "<word 07>"));
    b = builder(JSON_ORDER_SCHEMA);
    char *regex = malloc(16 * NUM), *p = regex;
    assert_non_null(regex);
    for (int i = 0; i < NUM; i++)
        p += snprintf(p, 16, "%sx%dy", i ? "|" : "", i);
    struct err err = {0};
    expr e = regex_to_expr(b, regex, (size_t)(p - regex), &err);
    check_all(made(b, gb_repeat(b, e, 2, 2)), TEXTS("x0yx5999y", "x17yx17y"),
              TEXTS("x0y", "x0yx6000y", "x01yx2y", "x0yx1yx2y"));
    free(regex);
}

static void check_fails(struct grammar_builder *b, expr root, enum status code, const char *what) {
    struct err err = {0};
    assert_null(grammar_finish(b, root, &err));
    assert_int_equal(err.code, code);
    if (!strstr(err.msg, what))
        fail_msg("'%s' says nothing of '%s'", err.msg, what);
}

TEST(test_refused) {
    struct grammar_builder *b = builder(JSON_ORDER_SCHEMA);
    expr a = gb_rule(b, "first"), c = gb_rule(b, "other");
    gb_define(b, a, gb_alt_of(b, gb_seq_of(b, c, gb_text(b, "x")), gb_text(b, "y")));
    gb_define(b, c, gb_alt_of(b, gb_seq_of(b, a, gb_text(b, "z")), gb_text(b, "y")));
    check_fails(b, a, STATUS_INVALID, "left recursion");
    b = builder(JSON_ORDER_SCHEMA);
    check_fails(b, gb_rule(b, "lost"), STATUS_INVALID, "'lost'");
    b = builder(JSON_ORDER_SCHEMA); // itself, behind what may be empty
    a = gb_rule(b, "hidden");
    gb_define(
        b, a,
        gb_alt_of(b, gb_seq_of(b, gb_repeat(b, gb_text(b, "x"), 0, 1), a, gb_text(b, "y")), gb_text(b, "z")));
    check_fails(b, a, STATUS_INVALID, "'hidden'");
    b = builder(JSON_ORDER_SCHEMA); // a rule without an end
    a = gb_rule(b, "endless");
    gb_define(b, a, gb_seq_of(b, gb_text(b, "x"), a));
    check_fails(b, a, STATUS_INVALID, "no text");
    b = builder(JSON_ORDER_SCHEMA);
    check_fails(b, gb_never(b), STATUS_INVALID, "no text");
    b = builder(JSON_ORDER_SCHEMA);
    a = gb_seq_of(b, gb_repeat(b, gb_text(b, "a"), 0, 1), gb_repeat(b, gb_text(b, "b"), 0, 1));
    check_fails(b, gb_repeat(b, a, 0, 100000), STATUS_LIMIT, "too often");
    b = builder(JSON_ORDER_SCHEMA);
    a = gb_text(b, "a");
    for (int i = 0; i < 30; i++) // twice itself, thirty times
        a = gb_alt_of(b, gb_seq_of(b, gb_text(b, "x"), a, gb_text(b, "y")),
                      gb_seq_of(b, gb_text(b, "z"), a, gb_text(b, "w")));
    check_fails(b, a, STATUS_LIMIT, "too large");
}

// Every code point, and what is none, against the ranges.
TEST(test_chars) {
    for (int round = 0; round < 12; round++) {
        struct code_range ranges[6];
        int n = (int)draw(6);
        for (int i = 0; i < n; i++) {
            uint32_t top = draw(2) ? 0x110000 : draw(2) ? 0x3000 : 0x200;
            ranges[i].first = draw(top);
            ranges[i].last = ranges[i].first + draw(draw(2) ? 5 : top - ranges[i].first);
        }
        bool negated = round % 2;
        struct grammar_builder *b = builder(JSON_ORDER_SCHEMA);
        expr any =
            gb_seq_of(b, gb_text(b, "-"), gb_alt_of(b, gb_text(b, "!!"), gb_chars(b, ranges, n, negated)));
        struct grammar *g = made(b, any);
        struct matcher *m = matcher_new(g);
        int32_t start = matcher_step(m, matcher_start(m), '-');
        for (uint32_t c = 0; c < 0x110000; c += c < 0x900 ? 1 : 1 + draw(40)) {
            bool in = false;
            for (int i = 0; i < n; i++)
                in |= c >= ranges[i].first && c <= ranges[i].last;
            unsigned char text[4];
            int len = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
            for (int i = len - 1, rest = (int)c; i >= 0; i--, rest >>= 6)
                text[i] = (unsigned char)(i          ? 0x80 | (rest & 63)
                                          : len == 1 ? rest
                                                     : (0xf00 >> len & 0xff) | rest);
            int32_t after = matcher_text(m, start, (char *)text, (size_t)len);
            bool taken = after >= 0 && matcher_may_end(m, after), real = c < 0xd800 || c > 0xdfff;
            if (taken != ((in != negated) && real))
                fail_msg("U+%04X, round %d", c, round);
        }
        matcher_free(m);
        grammar_free(g);
    }
}

// All texts that JSONTestSuite says must be taken or refused; those of which it leaves it open are left out.
TEST(test_json) {
    struct grammar_builder *b = builder(JSON_ORDER_SCHEMA);
    expr blanks = gb_json_blanks(b);
    struct grammar *g = made(b, gb_seq_of(b, blanks, gb_json_any(b), blanks));
    const char *folder = test_data("structured/JSONTestSuite/test_parsing");
    DIR *dir = folder ? opendir(folder) : NULL;
    int num = 0;
    if (!dir) {
        grammar_free(g);
        skip();
    }
    for (struct dirent *e; (e = readdir(dir));) {
        static char path[5000], text[300000];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        FILE *f = e->d_name[1] == '_' && e->d_name[0] != 'i' ? fopen(path, "rb") : NULL;
        if (!f)
            continue;
        size_t len = fread(text, 1, sizeof text, f);
        fclose(f);
        bool must = e->d_name[0] == 'y';
        if (strstr(e->d_name, "lonely") || strstr(e->d_name, "surrogate_U")) // half a character: refused here
            continue;
        if (grammar_takes(g, text, len) != must)
            fail_msg("%s is %s", e->d_name, must ? "refused" : "taken");
        num++;
    }
    closedir(dir);
    assert_in_range(num, 180, 1000);
    grammar_free(g);
}

// Escapes are those that are needed, in either direction.
TEST(test_strings) {
    static const char *const texts[] = {"a\"b", "tab\there", "\x01\x1f", "\xc3\xa9", "a/b\\"};
    size_t lens[5];
    for (int i = 0; i < 5; i++)
        lens[i] = strlen(texts[i]);
    struct err err = {0};
    struct grammar_builder *b = builder(JSON_ORDER_SCHEMA);
    check_all(made(b, gb_json_string_of(b, dfa_literals(texts, lens, 5, &err))),
              TEXTS("\"a\\\"b\"", "\"tab\\there\"", "\"\\u0001\\u001f\"", "\"\xc3\xa9\"", "\"a/b\\\\\""),
              TEXTS("\"a\"b\"", "\"tab\there\"", "\"\\u00e9\"", "\"a\\/b\\\\\"", "\"\"", "\"tab\\"));
    b = builder(JSON_ORDER_SCHEMA);
    check_all(made(b, gb_json_string(b, 2, 3)),
              TEXTS("\"ab\"", "\"\\u00e9\xc3\xa9\"", "\"\\ud83d\\ude00xx\""),
              TEXTS("\"a\"", "\"abcd\"", "\"\\ud83dab\"", "\"a\nb\"", "\"\\xab\""));
}

// {"a": 1, "b"?: 2, additional x...: 3}
static expr object(struct grammar_builder *b, int min, int max, bool others) {
    static const char *const names[] = {"a", "b", "long", "c"};
    static const size_t lens[] = {1, 1, 4, 1};
    struct dfa *list[4];
    struct err err = {0};
    for (int i = 0; i < 4; i++)
        list[i] = dfa_literals(&names[i], &lens[i], 1, &err);
    uint64_t *sets;
    struct dfa *keys = dfa_classify((const struct dfa *const *)list, 4, NULL, NULL, &sets, &err);
    assert_non_null(keys);
    struct member_kind kinds[] = {{gb_text(b, "1"), true, true},
                                  {gb_text(b, "2"), false, true},
                                  {gb_text(b, "3"), true, true},
                                  {gb_never(b), false, true},
                                  {gb_text(b, "4"), false, false}};
    int32_t lists[64], starts[64] = {0}, num = 0, labels = 0;
    for (int q = 0; q < keys->num_states; q++)
        labels = keys->label[q] >= labels ? keys->label[q] + 1 : labels;
    for (int l = 0; l < labels; l++) {
        for (int i = 0; i < 4; i++)
            if (sets[l] >> i & 1)
                lists[num++] = i;
        if (!sets[l] && others)
            lists[num++] = 4;
        starts[l + 1] = num;
    }
    for (int i = 0; i < 4; i++)
        dfa_free(list[i]);
    free(sets);
    struct json_object o = {keys, kinds, 5, lists, starts, min, max, false};
    return gb_json_object(b, &o);
}

TEST(test_objects) {
    struct grammar_builder *b = builder(JSON_ORDER_SCHEMA);
    check_all(made(b, object(b, 0, -1, true)),
              TEXTS("{\"a\":1,\"long\":3}", "{ \"a\" : 1 , \"b\" : 2 , \"long\" : 3 }",
                    "{\"x\":4,\"a\":1,\"y\":4,\"long\":3,\"lon\":4}"),
              TEXTS("{}", "{\"a\":1}", "{\"long\":3,\"a\":1}", "{\"a\":1,\"long\":3,\"b\":2}",
                    "{\"a\":1,\"a\":1,\"long\":3}", "{\"a\":1,\"long\":3,}", "{\"a\":1,\"c\":1,\"long\":3}",
                    "{\"a\":1,\"long\":3,\"x\":1}", "{\"a\":1 \"long\":3}"));
    b = builder(JSON_ORDER_ANY);
    check_all(
        made(b, object(b, 0, 3, true)),
        TEXTS("{\"long\":3,\"a\":1}", "{\"b\":2,\"long\":3,\"a\":1}", "{\"z\":4,\"long\":3,\"a\":1}"),
        TEXTS("{\"long\":3,\"long\":3,\"a\":1}", "{\"long\":3,\"a\":1,\"x\":4,\"y\":4}", "{\"x\":4,\"y\":4"));
    b = builder(JSON_ORDER_SCHEMA);
    struct grammar *g = made(b, object(b, 0, -1, false));
    check_dead(g, TEXTS("{\"b", "{\"x", "{\"a\":1,\"long\":3,"));
    check_all(g, TEXTS("{\"a\":1,\"b\":2,\"long\":3}"), TEXTS("{\"a\":1,\"x\":4,\"long\":3}"));
    b = builder(JSON_ORDER_ANY);
    check_all(made(b, object(b, 4, -1, true)), TEXTS("{\"x\":4,\"long\":3,\"a\":1,\"y\":4}"),
              TEXTS("{\"long\":3,\"a\":1,\"b\":2}"));
    b = builder(JSON_ORDER_SCHEMA); // three are needed and there are three: none may be left out
    g = made(b, object(b, 3, -1, false));
    check_dead(g, TEXTS("{\"a\":1,\"l"));
    grammar_free(g);
    b = builder(JSON_ORDER_SCHEMA);
    check_all(made(b, object(b, 3, -1, false)), TEXTS("{\"a\":1,\"b\":2,\"long\":3}"),
              TEXTS("{\"a\":1,\"long\":3}", "{\"a\":1,\"l", "{\"b", "{\"x"));
    b = builder(JSON_ORDER_SCHEMA);
    check_fails(b, object(b, 0, 1, true), STATUS_INVALID, "no text");
    b = builder(JSON_ORDER_SCHEMA);
    struct member_kind never = {gb_never(b), true, true};
    struct err err = {0};
    struct json_object o = {dfa_any(&err),           &never, 1,  (const int32_t[]){0},
                            (const int32_t[]){0, 1}, 0,      -1, false};
    check_fails(b, gb_json_object(b, &o), STATUS_INVALID, "no text");
}

TEST(test_arrays) {
    struct grammar_builder *b = builder(JSON_ORDER_SCHEMA);
    expr first[] = {gb_text(b, "1"), gb_text(b, "2")};
    check_all(made(b, gb_json_array(b, first, 2, gb_text(b, "x"), 1, 3)),
              TEXTS("[1]", "[ 1 , 2 ]", "[1,2,x]"), TEXTS("[]", "[1,]", "[1,x]", "[1,2,x,x]", "[2]", "1"));
    b = builder(JSON_ORDER_SCHEMA);
    check_all(made(b, gb_json_array(b, NULL, 0, gb_text(b, "x"), 0, 2)), TEXTS("[]", "[x]", "[x,x]"),
              TEXTS("[x,x,x]", "[x x]"));
    b = builder(JSON_ORDER_SCHEMA);
    expr none[] = {gb_text(b, "1"), gb_text(b, "2")};
    check_all(made(b, gb_json_array(b, none, 2, gb_text(b, "x"), 0, 1)), TEXTS("[]", "[1]"),
              TEXTS("[1,2]", "[1,x]"));
    b = builder(JSON_ORDER_SCHEMA);
    expr two[] = {gb_text(b, "1"), gb_never(b)};
    check_all(made(b, gb_json_array(b, two, 2, gb_text(b, "x"), 0, -1)), TEXTS("[]", "[1]"),
              TEXTS("[1,2]", "[x]", "[1,"));
}

TEST(test_without) {
    struct grammar_builder *b = builder(JSON_ORDER_SCHEMA);
    check_all(made(b, gb_seq_of(b, gb_dfa(b, gb_dfa_without(b, "aab", 3)), gb_text(b, "aab!"))),
              TEXTS("aab!", "aaab!",
                    "aaxab\xc3\xa9"
                    "aab!"),
              TEXTS("aabaab!", "aaabaab!", "xaab", "aab!!",
                    "\xff"
                    "aab!"));
}

// ---- masks

// Each bit of the mask of a state against the token's bytes, along random texts of a grammar.
static void check_masks(struct grammar *g, const struct token_trie *trie, int steps) {
    struct matcher *m = matcher_new(g);
    int vocab = token_trie_vocab(trie);
    uint32_t *mask = malloc(((size_t)vocab + 31) / 32 * sizeof *mask);
    struct token_walk w;
    int32_t state = matcher_start(m);
    for (int step = 0; step < steps; step++) {
        token_id choice = -1;
        uint32_t num = 0;
        token_walk_begin(&w, trie, m, state, mask);
        int64_t work = 10;
        while (token_walk_run(&w, trie, m, &work, mask) == MASK_MORE)
            work = 1 + draw(1000);
        for (token_id id = 0; id < vocab; id++) {
            size_t len;
            const char *bytes = token_trie_bytes(trie, id, &len);
            bool ok = len && matcher_text(m, state, bytes, len) >= 0;
            if (token_trie_is_end(trie, id))
                ok = matcher_may_end(m, state);
            if (ok != (mask[id / 32] >> (id % 32) & 1))
                fail_msg("token %d '%.*s' at step %d: %d by its bytes (level %d)", id, (int)len, bytes, step,
                         ok, w.level);
            if (ok && len && draw(++num) == 0)
                choice = id;
        }
        if (choice < 0) { // only the end is left
            assert_true(matcher_may_end(m, state) || w.limit);
            state = matcher_start(m);
            continue;
        }
        size_t len;
        const char *bytes = token_trie_bytes(trie, choice, &len);
        state = matcher_text(m, state, bytes, len);
        if (step % 50 == 49) {
            assert_true(matcher_keep(m, &state, 1));
            assert_int_equal(state, 0);
        }
    }
    free(mask);
    matcher_free(m);
    grammar_free(g);
}

TEST(test_masks) {
    static const char *const files[] = {"models/stories260K/stories260K.gguf"};
    struct err err = {0};
    const char *path = test_data(files[0]);
    if (!path)
        skip();
    struct tokenizer *t = tokenizer_open(path, &err);
    struct token_trie *trie = t ? token_trie_new(tokenizer_vocabulary(t)) : NULL;
    assert_non_null(trie);
    struct grammar_builder *b = builder(JSON_ORDER_SCHEMA);
    check_masks(made(b, gb_json_any(b)), trie, 600);
    b = builder(JSON_ORDER_SCHEMA);
    check_masks(made(b, gb_json_string(b, 3, 30)), trie, 300);
    b = builder(JSON_ORDER_ANY);
    check_masks(made(b, object(b, 0, -1, true)), trie, 300);
    b = builder(JSON_ORDER_ANY); // the third member has to be one of two
    check_masks(made(b, object(b, 0, 3, true)), trie, 300);
    b = builder(JSON_ORDER_SCHEMA);
    check_masks(made(b, gb_seq_of(b, gb_json_string(b, 0, 5), gb_json_string(b, 13, -1))), trie, 300);
    b = builder(JSON_ORDER_SCHEMA); // all but one character, and two at most of those with two bytes
    check_masks(
        made(b, gb_alt_of(b, gb_dfa(b, dfa_regex("[^e]*", 5, true, &err)),
                          gb_dfa(b, dfa_regex("([ -~]|[\\u00a0-\\u00ff][ -~]*[^ -~]?)*", 37, true, &err)))),
        trie, 300);
    for (int most = 1; most < 6; most++) { // fewer characters than a level of tokens has, and some more
        char regex[] = "[^\n]{0,5}";
        regex[7] = (char)('0' + most);
        b = builder(JSON_ORDER_SCHEMA);
        check_masks(made(b, gb_seq_of(b, gb_dfa(b, dfa_regex(regex, 9, true, &err)), gb_text(b, "\n"))), trie,
                    30);
    }
    b = builder(JSON_ORDER_SCHEMA);
    check_masks(made(b, gb_seq_of(b, gb_dfa(b, gb_dfa_without(b, "end", 3)), gb_text(b, "end"),
                                  gb_repeat(b, gb_token(b, 1), 0, 1))),
                trie, 300);
    b = builder(JSON_ORDER_SCHEMA); // texts of one automaton, with what begins like them
    expr words[40];
    for (int i = 0; i < 40; i++) {
        char text[32];
        int len =
            snprintf(text, sizeof text, "%s%s%d", i % 3 ? "the " : "th", i % 2 ? "\xc3\xa9" : "e", i / 3);
        words[i] = gb_bytes(b, text, (size_t)len);
    }
    check_masks(made(b, gb_repeat(b, gb_alt_of(b, gb_alt(b, words, 40), gb_json_string(b, 0, 5)), 1, -1)),
                trie, 300);
    // Plain text that can be read in ever more ways, up to the bound: what the mask has is taken.
    for (int i = 0; i < 2; i++) {
        b = builder(JSON_ORDER_SCHEMA);
        struct code_range quote[] = {{'"', '"'}};
        expr many = i ? gb_dfa(b, dfa_regex("[^\"]+", 5, true, &err))
                      : gb_repeat(b, gb_chars(b, quote, 1, true), 1, 60);
        for (int depth = 0; depth < 3; depth++)
            many = gb_repeat(b, gb_seq_of(b, many, gb_repeat(b, gb_text(b, "\n"), 0, 1)), 1, 60);
        check_masks(made(b, many), trie, 100);
    }
    token_trie_free(trie);
    tokenizer_free(t);
}

// ---- bounds

// X{a,b}{c,d} has one count where no number between is left out; what it takes is the same.
TEST(test_nested_counts) {
    for (int shape = 0; shape < 5 * 5 * 5 * 5; shape++) {
        int a = shape % 5, b = shape / 5 % 5, c = shape / 25 % 5, d = shape / 125;
        bool takes[40] = {false};
        int max = b == 4 ? -1 : b, times = d == 4 ? -1 : d; // 4: without end
        for (int k = c; k <= (times < 0 ? 40 : times); k++)
            for (int n = k * a; n < 40 && (n <= k * b || (max < 0 && k > 0)); n++)
                takes[n] = true;
        if (a > b || c > d)
            continue;
        for (int named = 0; named < 2; named++) {
            struct grammar_builder *builder_ = builder(JSON_ORDER_SCHEMA);
            expr part = gb_repeat(builder_, gb_text(builder_, "x"), a, max);
            if (named) {
                expr rule = gb_rule(builder_, "part");
                gb_define(builder_, rule, part);
                part = rule;
            }
            struct grammar *g = made(
                builder_, gb_seq_of(builder_, gb_repeat(builder_, part, c, times), gb_text(builder_, ".")));
            for (int n = 0; n < 40; n++) {
                char text[48];
                memset(text, 'x', sizeof text);
                text[n] = '.';
                if (grammar_takes(g, text, (size_t)n + 1) != takes[n])
                    fail_msg("x{%d,%d}{%d,%d}, %d times", a, max, c, times, n);
            }
            grammar_free(g);
        }
    }
    struct grammar_builder *b = builder(JSON_ORDER_SCHEMA);
    expr part = gb_text(b, "x");
    for (int i = 0; i < 3; i++)
        part = gb_repeat(b, part, 1, 60);
    struct grammar *g = made(b, part);
    struct matcher *m = matcher_new(g);
    int32_t at = matcher_start(m);
    for (int i = 0; i < 1000; i++)
        at = matcher_step(m, at, 'x');
    assert_true(at >= 0 && matcher_work(m) < 10000);
    matcher_free(m);
    grammar_free(g);
}

static enum mask_result walk_whole(const struct token_trie *trie, struct matcher *m, int32_t state,
                                   uint32_t *mask, int64_t slice) {
    struct token_walk w;
    enum mask_result result;
    token_walk_begin(&w, trie, m, state, mask);
    do {
        int64_t work = slice;
        result = token_walk_run(&w, trie, m, &work, mask);
        assert_true(result != MASK_MORE || work <= 0);
    } while (result == MASK_MORE);
    return result;
}

// A mask's work has a bound, and what comes of it depends neither on what the matcher knew before nor on the slices.
TEST(test_mask_work) {
    struct err err = {0};
    const char *path = test_data("tokenizers/ggml-vocab/ggml-vocab-gpt-2.gguf");
    if (!path)
        skip();
    struct tokenizer *t = tokenizer_open(path, &err);
    struct token_trie *trie = token_trie_new(tokenizer_vocabulary(t));
    struct grammar_builder *b = builder(JSON_ORDER_SCHEMA);
    expr any = gb_chars(b, NULL, 0, true);
    // An 'a', and so many characters behind it: the places of all that came are told apart.
    struct grammar *g =
        made(b, gb_seq_of(b, gb_repeat(b, any, 0, -1), gb_text(b, "a"), gb_repeat(b, any, 3000, 3000)));
    size_t bytes = ((size_t)token_trie_vocab(trie) + 31) / 32 * sizeof(uint32_t);
    uint32_t *cold = malloc(bytes), *warm = malloc(bytes);
    int limits = 0;
    struct matcher *knows = matcher_new(g);
    int32_t known = matcher_start(knows);
    for (int num = 0; num < 1200; num += 200) {
        struct matcher *fresh = matcher_new(g);
        int32_t at = matcher_start(fresh);
        for (int i = 0; i < num; i++)
            at = matcher_step(fresh, at, 'a');
        enum mask_result result = walk_whole(trie, fresh, at, cold, INT64_MAX);
        uint64_t work = matcher_walk_work(fresh);
        for (int again = 0; again < 2; again++) {
            assert_int_equal(walk_whole(trie, knows, known, warm, again ? 100 : 50000), result);
            assert_int_equal(matcher_walk_work(knows), work);
            assert_memory_equal(cold, warm, bytes);
        }
        assert_true(result == MASK_DONE || work > MASK_WORK);
        assert_true(matcher_work(fresh) < 2 * MASK_WORK); // and so much it did
        limits += result == MASK_LIMIT;
        for (int i = 0; i < 200; i++)
            known = matcher_step(knows, known, 'a');
        assert_true(matcher_keep(knows, &known, 1));
        matcher_free(fresh);
    }
    assert_true(limits > 0 && limits < 6);
    matcher_free(knows);
    free(cold);
    free(warm);
    grammar_free(g);
    token_trie_free(trie);
    tokenizer_free(t);
}

int main(void) { return run_all_tests(NULL, NULL); }
