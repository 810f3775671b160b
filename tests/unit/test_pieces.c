// WordPiece and Unigram: pairs, text from ids, texts that forge nothing, hostile maps of characters, worst cases in time.
#include "harness.h"

#ifdef QUIRE_HAVE_PCRE2

#include "../tools/gguf_tokenizer.h"
#include "clock.h"
#include "models/gguf.h"
#include "text/charsmap.h"
#include "text/normalizer.h"
#include "text/tokenizer_pre.h"

#include <math.h>

// Ids as text, space between.
static void expect(const struct token_buf *b, const char *ids, const char *what) {
    char got[512] = "";
    for (size_t i = 0; i < b->len; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%d", i ? " " : "", b->ids[i]);
    if (strcmp(got, ids) != 0)
        fail_msg("'%s' is %s, expected %s", what, got, ids);
}

static void expect_ids(const struct tokenizer *t, const char *text, unsigned flags, const char *ids) {
    struct token_buf b = {0};
    assert_int_equal(tokenizer_encode(t, text, strlen(text), flags, &b), STATUS_OK);
    expect(&b, ids, text);
    token_buf_free(&b);
}

static void expect_text(const struct tokenizer *t, const token_id *ids, int n, const char *want) {
    struct detok_params p = {.tokenizer = t, .skip_special = true, .strip_space = true};
    struct detok *d = detok_new(&p);
    char got[256];
    size_t len = 0, l;
    const char *text;
    for (int i = 0; i < n; i++) {
        detok_push(d, ids[i], &text, &l);
        memcpy(got + len, text, l);
        len += l;
    }
    got[len] = 0;
    assert_string_equal(got, want);
    detok_free(d);
}

// ---- WordPiece

static struct tokenizer *bert(bool lowers) {
    static const char *const names[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁cat", "s",
                                        "▁the",  "▁.",    "▁c",    "▁日",   "▁é"};
    static const int32_t types[] = {3, 2, 3, 3, 1, 1, 1, 1, 1, 1, 1};
    struct gguf_writer w = {0};
    struct err err = {0};
    gw_str(&w, "tokenizer.ggml.model", "bert");
    gw_strings(&w, "tokenizer.ggml.tokens", 11, names);
    gw_array(&w, "tokenizer.ggml.token_type", 5, 11, types, sizeof types);
    gw_u32(&w, "tokenizer.ggml.cls_token_id", 2);
    gw_u32(&w, "tokenizer.ggml.seperator_token_id", 3);
    gw_u32(&w, "tokenizer.ggml.unknown_token_id", 1);
    gw_bool(&w, "tokenizer.ggml.add_eos_token", 0); // BERT's texts end with [SEP] whatever the file says
    if (!lowers) {
        gw_bool(&w, "tokenizer.ggml.normalizer.lowercase", 0);
        gw_bool(&w, "tokenizer.ggml.normalizer.strip_accents", 0);
    }
    struct tokenizer *t = gw_tokenizer(&w, &err);
    if (!t)
        fail_msg("%s", err.msg);
    return t;
}

TEST(test_wordpiece) {
    struct tokenizer *t = bert(true);
    char word[128];
    expect_ids(t, "The CATS.", TOKENIZE_ADD_SPECIAL, "2 6 4 5 7 3");
    expect_ids(t, "", TOKENIZE_ADD_SPECIAL, "2 3");
    expect_ids(t, "cat\ts  the\xff s日\xc3\xa9", 0, "4 1 6 1 9 1"); // what goes on with a word begins none
    expect_ids(t, "catx cats\xc3\xa9", 0, "1 1");
    expect_ids(t, "[SEP]", TOKENIZE_PARSE_SPECIAL, "3");
    expect_ids(t, "[SEP]", 0, "1 1 1");
    snprintf(word, sizeof word, "c%099d", 0); // 100 characters, and 101: c and s
    for (int i = 1; i < 100; i++)
        word[i] = 's';
    struct token_buf b = {0};
    assert_int_equal(tokenizer_encode(t, word, 100, 0, &b), STATUS_OK);
    assert_int_equal(b.len, 100);
    b.len = 0;
    word[100] = 's';
    assert_int_equal(tokenizer_encode(t, word, 101, 0, &b), STATUS_OK);
    expect(&b, "1", "a long word");
    token_buf_free(&b);
    expect_text(t, (token_id[]){2, 6, 4, 5, 7, 4, 3}, 7, "the cats. cat");
    tokenizer_free(t);
    t = bert(false);
    expect_ids(t, "cats Cat \xc3\xa9 e\xcc\x81", 0, "4 5 1 10 1");
    tokenizer_free(t);
}

// ---- Unigram

enum { U = 12 };
static const char *const unigram_names[U] = {"<s>", "</s>", "<unk>", "▁",   "a",        "b",
                                             "ab",  "▁a",   "▁ab",   "aba", "\xc3\xa9", "<x>"};
static const float unigram_scores[U] = {0, 0, 0, -2, -1.5f, -1.5f, -2.5f, -2.75f, -4, -5, -3, -9};
static const int32_t unigram_types[U] = {3, 3, 2, 1, 1, 1, 1, 1, 1, 1, 1, 4};

// map: bytes of a map of characters, or NULL
static struct tokenizer *unigram(const void *map, size_t len, const char *key, struct err *err) {
    struct gguf_writer w = {0};
    gw_str(&w, "tokenizer.ggml.model", "t5");
    gw_strings(&w, "tokenizer.ggml.tokens", U, unigram_names);
    gw_array(&w, "tokenizer.ggml.scores", 6, U, unigram_scores, sizeof unigram_scores);
    gw_array(&w, "tokenizer.ggml.token_type", 5, U, unigram_types, sizeof unigram_types);
    gw_array(&w, "tokenizer.quire.strips", 0, U, (unsigned char[U]){[11] = 4 | 16},
             U); // <x> is no part of a word
    gw_u32(&w, "tokenizer.ggml.bos_token_id", 0);
    gw_bool(&w, "tokenizer.ggml.add_bos_token", 1);
    gw_bool(&w, "tokenizer.ggml.add_space_prefix", 1);
    gw_bool(&w, "tokenizer.ggml.remove_extra_whitespaces", 1);
    if (map)
        gw_array(&w, "tokenizer.ggml.precompiled_charsmap", 0, len, map, len);
    if (key)
        gw_u32(&w, key, 7);
    return gw_tokenizer(&w, err);
}

TEST(test_unigram) {
    struct err err = {0};
    struct tokenizer *t = unigram(NULL, 0, NULL, &err);
    if (!t)
        fail_msg("%s", err.msg);
    expect_ids(t, "ab", TOKENIZE_ADD_SPECIAL, "0 8 1");
    expect_ids(t, "aba", 0, "8 4");         // -5.5; merging the best pairs first would give other pieces
    expect_ids(t, "  ab   b ", 0, "8 3 5"); // runs of spaces count as one, those at the ends not at all
    expect_ids(t, "axyzb", 0, "7 2 5");     // one unknown for a run
    expect_ids(t, "a\xffz", 0, "7 2 2");    // what is not UTF-8 is a word of its own
    expect_ids(t, "   ", 0, "");
    expect_ids(t, "</s>", 0, "3 2"); // a user's text forges nothing
    expect_ids(t, "</s>", TOKENIZE_PARSE_SPECIAL, "1");
    expect_ids(t, "a <x>b<x> <x>", 0, "7 3 2 5 2 11"); // stands alone, or is text
    expect_text(t, (token_id[]){0, 8, 7, 4, 1}, 5, "ab aa");
    tokenizer_free(t);
}

TEST(test_pairs) {
    struct err err = {0};
    struct token_buf b = {0};
    size_t second;
    struct tokenizer *t = bert(true);
    assert_int_equal(tokenizer_encode_pair(t, "cat", 3, "the", 3, TOKENIZE_ADD_SPECIAL, &b, &second),
                     STATUS_OK);
    expect(&b, "2 4 3 6 3", "a pair");
    assert_int_equal(second, 3);
    tokenizer_free(t);
    t = unigram(NULL, 0, "tokenizer.ggml.seperator_token_id", &err);
    b.len = 0;
    assert_int_equal(tokenizer_encode_pair(t, "a", 1, "b", 1, TOKENIZE_ADD_SPECIAL, &b, &second), STATUS_OK);
    expect(&b, "0 7 1 3 5 1", "a pair");
    b.len = 0;
    assert_int_equal(tokenizer_encode_pair(t, "a", 1, "b", 1, 0, &b, &second), STATUS_OK);
    expect(&b, "7 3 5", "a bare pair");
    tokenizer_free(t);
    token_buf_free(&b);
}

// ---- maps of characters

// A double array that maps 'x' to text 0 and "xy" to text 2: unit 0 is the root, children lie at 1024 ^ byte.
static void make_map(uint32_t *map) {
    enum { ROOT = 1024, X = 1536 };
    memset(map, 0, 4 * 2049);
    map[0] = 4 * 2048;
    uint32_t *unit = map + 1;
    unit[0] = ROOT << 10;
    unit[ROOT ^ 'x'] = 'x' | 1 << 8 | (uint32_t)(ROOT ^ 'x' ^ X) << 10;
    unit[X] = 1u << 31 | 0;
    unit[X ^ 'y'] = 'y' | 1 << 8 | (uint32_t)(X ^ 'y' ^ (X + 256)) << 10;
    unit[X + 256] = 1u << 31 | 2;
}

TEST(test_charsmap) {
    enum { WORDS = 2049, TEXTS = 4, SIZE = 4 * WORDS + TEXTS };
    static uint32_t map[WORDS + 1];
    struct err err = {0};
    make_map(map);
    memcpy(map + WORDS, "a\0b", TEXTS);
    struct tokenizer *t = unigram(map, SIZE, NULL, &err);
    if (!t)
        fail_msg("%s", err.msg);
    expect_ids(t, "x xy", 0, "7 3 5"); // the longest match
    tokenizer_free(t);
    struct model_file f = {.name = "test"};
    struct charsmap *m = charsmap_open((struct text_view){(char *)map, SIZE - 2}, &f, &err);
    struct text_view to;
    assert_non_null(m);
    assert_int_equal(charsmap_find(m, (struct text_view){"xyz", 3}, true, &to), 2); // its text is cut off
    assert_int_equal(to.len, 0);
    assert_int_equal(charsmap_find(m, (struct text_view){"xyz", 3}, false, &to), 1); // the shortest
    assert_memory_equal(to.data, "a", 2);
    assert_int_equal(charsmap_find(m, (struct text_view){"yx", 2}, true, &to), 0);
    assert_int_equal(charsmap_find(m, (struct text_view){"", 0}, true, &to), 0);
    charsmap_free(m);
    static const struct {
        uint32_t trie;
        size_t size;
    } bad[] = {{4 * 2048, 4 * WORDS - 1}, {0, SIZE},     {2, SIZE},    {6, SIZE},
               {UINT32_MAX, SIZE},        {4 * 2048, 3}, {4 * 2048, 0}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        map[0] = bad[i].trie;
        err = (struct err){0};
        assert_null(unigram(map, bad[i].size, NULL, &err));
        assert_true(err.code == STATUS_FORMAT && strstr(err.msg, "charsmap"));
    }
    // Whatever the units say, nothing outside is read (under sanitizers), and every text has ids.
    uint64_t seed = 1;
    for (int i = 0; i < 300; i++) {
        unsigned char text[64];
        for (int k = 1; k <= WORDS; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            map[k] = (uint32_t)(seed >> 32) & (i % 2 ? ~0u : 0x801fffffu);
        }
        map[0] = 4 * (1 + (uint32_t)i * 6);
        for (int k = 0; k < 64; k++)
            text[k] = (unsigned char)(map[1 + k] >> 5);
        t = unigram(map, SIZE, NULL, &err);
        struct token_buf b = {0};
        assert_non_null(t);
        enum status st = tokenizer_encode(t, (char *)text, 64, 0, &b);
        assert_true(st == STATUS_OK || st == STATUS_LIMIT);
        token_buf_free(&b);
        tokenizer_free(t);
    }
}

TEST(test_damaged) {
    static const char *const steps[][4] = {
        {"NFX"}, {"Replace", "a"}, {"Replace", "", "b"}, {"ReplaceRegex", "(", ""}, {"CharsmapClusters"}};
    static const char *const words[] = {"unknown", "without its arguments", "empty text",
                                        "regular expression", "precompiled_charsmap"};
    static const char *const cuts[][4] = {
        {"Split", "Isolated"}, {"Split", "Somehow", "a"}, {"Metaspace"}, {"Split", "Kept", "a**["}};
    for (int i = 0; i < 9; i++) {
        const char *const *list = i < 5 ? steps[i] : cuts[i - 5];
        struct gguf_writer w = {0};
        struct err err = {0};
        uint64_t n = 0;
        while (n < 4 && list[n])
            n++;
        gw_str(&w, "tokenizer.ggml.model", "unigram");
        gw_strings(&w, "tokenizer.ggml.tokens", U, unigram_names);
        gw_array(&w, "tokenizer.ggml.scores", 6, U, unigram_scores, sizeof unigram_scores);
        gw_strings(&w, i < 5 ? "tokenizer.quire.normalizer" : "tokenizer.quire.cuts", n, list);
        assert_null(gw_tokenizer(&w, &err));
        const char *word = i < 5 ? words[i] : i < 8 ? "of the pre-tokenizer" : "regular expression";
        if (err.code != STATUS_FORMAT || !strstr(err.msg, word))
            fail_msg("expected '%s', got '%s'", word, err.msg);
    }
    struct gguf_writer w = {0};
    struct err err = {0};
    gw_str(&w, "tokenizer.ggml.model", "t5");
    gw_strings(&w, "tokenizer.ggml.tokens", U, unigram_names);
    assert_null(gw_tokenizer(&w, &err));
    assert_non_null(strstr(err.msg, "score"));
}

// A normaliser that makes texts too long says so; one may leave nothing.
TEST(test_growth) {
    enum { BY = 16 << 10 };
    static char by[BY + 1];
    const char *const steps[] = {"StripMarks", "StripRight", "Replace", "a", by, "Replace", "b", by};
    struct gguf_writer w = {0};
    struct err err = {0};
    struct token_buf b = {0};
    memset(by, 'b', BY);
    gw_str(&w, "tokenizer.ggml.model", "unigram");
    gw_strings(&w, "tokenizer.ggml.tokens", U, unigram_names);
    gw_array(&w, "tokenizer.ggml.scores", 6, U, unigram_scores, sizeof unigram_scores);
    gw_strings(&w, "tokenizer.quire.normalizer", 8, steps);
    struct tokenizer *t = gw_tokenizer(&w, &err);
    if (!t)
        fail_msg("%s", err.msg);
    assert_int_equal(tokenizer_encode(t, "aaaaaaaa", 8, 0, &b), STATUS_LIMIT);
    assert_int_equal(tokenizer_encode(t, "\xcc\x81", 2, 0, &b), STATUS_OK); // nothing is left of it
    assert_int_equal(b.len, 0);
    assert_int_equal(tokenizer_encode(t, "ccc", 3, 0, &b), STATUS_OK);
    token_buf_free(&b);
    tokenizer_free(t);
}

// ---- words and normalisation, as the tokenizers library has them

static enum status join_word(void *arg, const char *word, size_t len) {
    char *to = arg;
    snprintf(to + strlen(to), 64, "%s%.*s", *to ? "|" : "", (int)len, word);
    return STATUS_OK;
}

TEST(test_words) {
    static const struct {
        const char *steps[3], *text, *words;
    } cases[] = {
        {{"Split", "Isolated", "\\d"}, "a12b", "a|1|2|b"},
        {{"Split", "Removed", "\\d"}, "a12b", "a|b"},
        {{"Split", "Kept", "\\d"}, "a12b", "1|2"},
        {{"Split", "MergedWithPrevious", "\\d"}, "a12b3", "a1|2|b3"},
        {{"Split", "MergedWithNext", "\\d"}, "a12b3", "a|1|2b|3"},
        {{"Split", "Contiguous", "\\d"}, "a12b", "a|12|b"},
        {{"Split", "Isolated", "(?=(\\d{3})+(?!\\d))"}, "1234567", "1|234|567"},
        {{"Split", "Isolated", "\\s*$"}, "a \nb ", "a| |\nb| "},
        {{"Split", "Isolated", "x*"}, "abxxc", "a|b|xx|c"},
        {{"Split", "Isolated", "\\w+"}, "a_é-²Ⓐ!", "a_é|-|²Ⓐ|!"},
        {{"Split", "Isolated", "[a-z&&[^b]]+"}, "abc", "a|b|c"},
        {{"Split", "Isolated", "[a[bc]]+"}, "abcd", "abc|d"},
        {{"Split", "Isolated", "\\h+"}, "xffy", "x|ff|y"},
        {{"Split", "Isolated", "(?i:'S)"}, "a's'ſ", "a|'s|'ſ"},
        {{"Split", "Isolated", "\\bb"}, "ab b", "ab |b"},
        {{"Split", "Isolated", "\\u0061"}, "bab", "b|a|b"},
        {{"Metaspace", "always"}, "a b", "▁a▁b"},
        {{"Metaspace", "first"}, " a", "▁a"},
        {{"Metaspace", "never"}, "a\xff", "a|\xff"},
        {{"SpaceBefore"}, "a", " a"},
    };
    struct model_file f = {.name = "test"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct text_view words[3];
        struct err err = {0};
        char got[256] = "";
        int n = 0;
        for (; n < 3 && cases[i].steps[n]; n++)
            words[n] = (struct text_view){cases[i].steps[n], strlen(cases[i].steps[n])};
        struct pretokenizer *p = pretokenizer_of(&f, words, n, &err);
        if (!p)
            fail_msg("%s", err.msg);
        assert_int_equal(pretokenizer_cut(p, cases[i].text, strlen(cases[i].text), true, join_word, got),
                         STATUS_OK);
        assert_string_equal(got, cases[i].words);
        pretokenizer_free(p);
    }
}

TEST(test_normalizers) {
    static const struct {
        const char *step, *text, *want;
    } cases[] = {
        {"NFC", "e\xcc\x81\xff", "\xc3\xa9\xff"},
        {"NFD", "\xc3\xa9", "e\xcc\x81"},
        {"NFKC", "\xef\xac\x81 \xef\xbc\xa1", "fi A"},
        {"NFKD", "\xef\xac\x81\xc3\xa9", "fie\xcc\x81"},
        {"Lowercase", "\xc3\x89\xc4\xb0X\xff", "\xc3\xa9i\xcc\x87x\xff"},
        {"StripAccents", "e\xcc\x81\xe0\xa4\xbe", "e\xe0\xa4\xbe"}, // a vowel sign takes room
        {"StripMarks", "e\xcc\x81\xe0\xa4\xbe", "e"},
        {"CleanText",
         "a\x01\tb\xe2\x80\x8b\xef\xbf\xbd\xc2\xa0"
         "c\xff",
         "a b c"},
        {"SpaceChinese", "a\xe6\x97\xa5\xe3\x81\x82", "a \xe6\x97\xa5 \xe3\x81\x82"},
        {"StripLeft", " \t\xe3\x80\x80 a ", "a "},
        {"StripRight", " a\xff \xe3\x80\x80\n", " a\xff"},
        {"StripRight", "\xe3\x80\x80", ""},
    };
    struct model_file f = {.name = "test"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct text_view step = {cases[i].step, strlen(cases[i].step)};
        struct err err = {0};
        struct buf out = {0};
        struct normalizer *n = normalizer_open(&f, &step, 1, &err);
        assert_non_null(n);
        assert_int_equal(normalizer_apply(n, (struct text_view){cases[i].text, strlen(cases[i].text)}, &out),
                         STATUS_OK);
        if (out.len != strlen(cases[i].want) || (out.len && memcmp(out.data, cases[i].want, out.len) != 0))
            fail_msg("%s of '%s' is '%.*s'", cases[i].step, cases[i].text, (int)out.len,
                     out.data ? out.data : "");
        buf_free(&out);
        normalizer_free(n);
    }
}

// Graphemes of less than six bytes become what their shortest match becomes.
TEST(test_clusters) {
    static uint32_t map[2050];
    struct gguf_writer w = {0};
    struct err err = {0};
    make_map(map);
    memcpy(map + 2049, "a\0b", 4);
    gw_str(&w, "tokenizer.ggml.model", "unigram");
    gw_strings(&w, "tokenizer.ggml.tokens", U, unigram_names);
    gw_array(&w, "tokenizer.ggml.scores", 6, U, unigram_scores, sizeof unigram_scores);
    gw_array(&w, "tokenizer.ggml.token_type", 5, U, unigram_types, sizeof unigram_types);
    gw_u32(&w, "tokenizer.ggml.unknown_token_id", 2);
    gw_strings(&w, "tokenizer.quire.normalizer", 1, (const char *const[]){"CharsmapClusters"});
    gw_array(&w, "tokenizer.ggml.precompiled_charsmap", 0, 4 * 2049 + 4, map, 4 * 2049 + 4);
    struct tokenizer *t = gw_tokenizer(&w, &err);
    if (!t)
        fail_msg("%s", err.msg);
    expect_ids(t, "x\xcc\x81", 0, "4");                   // the mark is lost
    expect_ids(t, "x\xcc\x81\xcc\x81\xcc\x81", 0, "4 2"); // seven bytes: one by one
    expect_ids(t, "xy", 0, "4 2");
    tokenizer_free(t);
}

// ---- time

TEST(test_worst_cases) {
    static const char *const units[] = {"a",
                                        " ",
                                        "ab",
                                        "ab ",
                                        "\n",
                                        "!",
                                        "\xff",
                                        "\xcc\x81",
                                        "\xcc\x81\xcc\xa3",
                                        "\xe6\x97\xa5",
                                        "x",
                                        "xy",
                                        "\xf0\x9f\x99\x82",
                                        "\xe1\x84\x92\xe1\x85\xa1",
                                        "s",
                                        "c",
                                        "\xe2\x80\x8d"};
    static uint32_t map[2050];
    struct err err = {0};
    double worst = 0;
    make_map(map);
    memcpy(map + 2049, "a\0b", 4);
    for (int kind = 0; kind < 2; kind++) {
        struct tokenizer *t = kind ? unigram(map, 4 * 2049 + 4, NULL, &err) : bert(true);
        for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
            size_t l = strlen(units[i]), len = 1000000 / l * l;
            char *p = malloc(len);
            struct token_buf b = {0};
            for (size_t k = 0; k < len; k++)
                p[k] = units[i][k % l];
            double begin = clock_now_s();
            assert_int_equal(tokenizer_encode(t, p, len, 0, &b), STATUS_OK);
            worst = fmax(worst, clock_now_s() - begin);
            token_buf_free(&b);
            free(p);
        }
        tokenizer_free(t);
    }
    printf("  at most %.3f s for 1 MB of the same\n", worst);
}

int main(void) { return run_all_tests(NULL, NULL); }

#else
int main(void) {
    printf("  skipped: this build has no PCRE2\n");
    return 0;
}
#endif
