// Byte-level vocabularies: llama.cpp's ids, a naive reference, damaged vocabularies, worst cases in time.
#include "vocabularies.h"

#ifdef QUIRE_HAVE_PCRE2

#include "../tools/gguf_tokenizer.h"
#include "text/tokenizer_internal.h"

#include <pthread.h>

TEST(test_ggml) {
    check_ggml(GGML "gpt-2.gguf", TOKENIZE_PARSE_SPECIAL, "gpt-2");
    check_ggml(GGML "deepseek-llm.gguf", TOKENIZE_PARSE_SPECIAL, "deepseek-llm");
    check_ggml(GGML "starcoder.gguf", TOKENIZE_PARSE_SPECIAL, "starcoder");
    check_ggml(GPT2, TOKENIZE_PARSE_SPECIAL, "gpt-2");
    check_ggml(LLAMA3, TOKENIZE_PARSE_SPECIAL, "llama-bpe");
    check_ggml(QWEN2, TOKENIZE_PARSE_SPECIAL, "qwen2");
}

// ---- facts of real vocabularies

static void expect_ids(const struct tokenizer *t, const char *text, unsigned flags, const token_id *want,
                       size_t n) {
    struct token_buf b = {0};
    assert_int_equal(tokenizer_encode(t, text, strlen(text), flags, &b), STATUS_OK);
    if (!same_ids(&b, want, n, text, 0))
        fail_msg("'%s'", text);
    token_buf_free(&b);
}
#define EXPECT_IDS(t, text, flags, ...)                                                                      \
    expect_ids(t, text, flags, (token_id[]){__VA_ARGS__}, sizeof(token_id[]){__VA_ARGS__} / sizeof(token_id))

TEST(test_llama3_facts) {
    enum { BOTH = TOKENIZE_ADD_SPECIAL | TOKENIZE_PARSE_SPECIAL };
    struct tokenizer *t = open_vocab(LLAMA3);
    token_id ends[8];
    size_t len;
    assert_int_equal(tokenizer_vocab(t), 128010);
    assert_int_equal(tokenizer_bos(t), 128000);
    assert_true(tokenizer_adds_bos(t)); // though the file does not say so
    assert_int_equal(tokenizer_ends(t, ends, 8), 3);
    assert_int_equal(ends[0], 128001);
    assert_int_equal(ends[1], 128008);
    assert_int_equal(ends[2], 128009);
    assert_true(tokenizer_is_special(t, 128006) && !tokenizer_is_special(t, 9906));
    EXPECT_IDS(t, "", BOTH, 128000);
    EXPECT_IDS(t, "Hello<|eot_id|>", BOTH, 128000, 9906, 128009);
    struct token_buf b = {0}; // a user's text forges no turn
    assert_int_equal(tokenizer_encode(t, "<|eot_id|>", 10, 0, &b), STATUS_OK);
    assert_true(b.len > 1);
    for (size_t i = 0; i < b.len; i++)
        assert_true(b.ids[i] < 128000);
    token_buf_free(&b);
    assert_memory_equal(tokenizer_bytes(t, 1917, false, &len), " world", 6);
    assert_int_equal(len, 6);
    assert_memory_equal(tokenizer_name(t, 1917, &len), "Ġworld", 7);
    tokenizer_bytes(t, 128009, false, &len);
    assert_int_equal(len, 0);
    assert_memory_equal(tokenizer_bytes(t, 128009, true, &len), "<|eot_id|>", 10);
    // A sequence of byte-level tokens has no dummy space to strip.
    struct detok_params p = {.tokenizer = t, .skip_special = true, .strip_space = true};
    struct detok *d = detok_new(&p);
    const char *text;
    assert_non_null(d);
    detok_push(d, 1917, &text, &len);
    assert_int_equal(len, 6);
    assert_memory_equal(text, " world", 6);
    detok_push(d, 128009, &text, &len);
    assert_int_equal(len, 0);
    detok_free(d);
    tokenizer_free(t);
}

TEST(test_qwen2_facts) {
    struct tokenizer *t = open_vocab(QWEN2);
    size_t len;
    assert_int_equal(tokenizer_bos(t), -1);
    assert_false(tokenizer_adds_bos(t));
    assert_int_equal(tokenizer_eos(t), 151645);
    assert_true(tokenizer_is_end(t, 151643) && tokenizer_is_end(t, 151645) && !tokenizer_is_end(t, 151644));
    assert_non_null(tokenizer_chat_template(t, &len));
    tokenizer_free(t);
}

TEST(test_other_facts) {
    struct tokenizer *t = open_vocab(GGML "deepseek-llm.gguf");
    size_t len;
    assert_true(tokenizer_adds_bos(t) && tokenizer_is_end(t, 100001));
    EXPECT_IDS(t, "<｜end▁of▁sentence｜>", TOKENIZE_PARSE_SPECIAL, 100001);
    EXPECT_IDS(t, "a [PAD100015]", 0, 64, 207, 100015); // an added token is a word of the text
    assert_memory_equal(tokenizer_bytes(t, 100002, false, &len), "ø", 2); // and spelled as it is
    assert_int_equal(len, 2);
    // White space at the end is one word, and searching for it among white space elsewhere is linear.
    EXPECT_IDS(t, "a  ", 0, 64, 243);
    tokenizer_free(t);
    t = open_vocab(GGML "starcoder.gguf");
    assert_true(tokenizer_is_end(t, 0) && tokenizer_is_special(t, 37));
    struct token_buf b = {0}, c = {0}; // the vocabulary has no token for 0xF1
    assert_int_equal(tokenizer_encode(t, "a\xf1!", 3, 0, &b), STATUS_OK);
    assert_int_equal(tokenizer_encode(t, "a\xef\xbf\xbd!", 5, 0, &c), STATUS_OK);
    assert_int_equal(b.len, c.len);
    assert_memory_equal(b.ids, c.ids, b.len * sizeof *b.ids);
    token_buf_free(&b);
    token_buf_free(&c);
    tokenizer_free(t);
}

// ---- a small vocabulary

enum { MAX_EXTRA = 32 };
static const char *byte_name(int b) {
    static char names[256][3];
    int next = 0x100;
    for (int i = 0; i < 256; i++) {
        bool printable = (i >= 0x21 && i <= 0x7e) || (i >= 0xa1 && i <= 0xac) || i >= 0xae;
        int cp = printable ? i : next++;
        if (cp < 0x80)
            memcpy(names[i], (char[]){(char)cp, 0}, 2);
        else
            memcpy(names[i], (char[]){(char)(0xc0 | cp >> 6), (char)(0x80 | (cp & 63)), 0}, 3);
    }
    return names[b];
}

// All bytes but one (without: -1 for none), then extra tokens of their types; merges; a pre-tokenizer or
// NULL.
static struct tokenizer *small_vocab(const char *pre, int without, const char *const *extra,
                                     const int32_t *types, int num_extra, const char *const *merges,
                                     int num_merges, struct err *err) {
    const char *names[256 + MAX_EXTRA];
    int32_t kinds[256 + MAX_EXTRA];
    for (int i = 0; i < 256 + num_extra; i++) {
        names[i] = i < 256 ? byte_name(i == without ? 'x' : i) : extra[i - 256];
        kinds[i] = i < 256 ? (i == without ? TOKEN_UNUSED : TOKEN_NORMAL)
                   : types ? types[i - 256]
                           : TOKEN_NORMAL;
    }
    struct gguf_writer w = {0};
    gw_str(&w, "tokenizer.ggml.model", "gpt2");
    if (pre)
        gw_str(&w, "tokenizer.ggml.pre", pre);
    gw_strings(&w, "tokenizer.ggml.tokens", (uint64_t)(256 + num_extra), names);
    gw_array(&w, "tokenizer.ggml.token_type", 5, (uint64_t)(256 + num_extra), kinds,
             (size_t)(256 + num_extra) * sizeof *kinds);
    if (merges)
        gw_strings(&w, "tokenizer.ggml.merges", (uint64_t)num_merges, merges);
    return gw_tokenizer(&w, err);
}

// A composed character and its parts give the same ids if the model's own tokenizer normalises.
TEST(test_normalisation) {
    static const char *const pairs[][2] = {
        {"e\xcc\x81t\xc3\xa9 cafe\xcc\x81", "\xc3\xa9t\xc3\xa9 caf\xc3\xa9"},
        {"\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", "\xed\x95\x9c"}, // Hangul from its parts
        {"a\xcc\x81\xcc\xa3", "\xe1\xba\xa1\xcc\x81"},            // marks are sorted
        {"\xe2\x84\xab \xe2\x84\xa6", "\xc3\x85 \xce\xa9"},       // singletons
        {"\xff"
         "e\xcc\x81\xff",
         "\xff\xc3\xa9\xff"},                             // beside what is not UTF-8
        {"\xe3\x81\x8b\xe3\x82\x99 x", "\xe3\x81\x8c x"}, // Kana with a voiced mark
    };
    struct err err = {0};
    struct tokenizer *qwen = small_vocab("qwen2", -1, NULL, NULL, 0, (const char *const[]){""}, 0, &err);
    struct tokenizer *gpt = small_vocab("gpt-2", -1, NULL, NULL, 0, (const char *const[]){""}, 0, &err);
    if (!qwen || !gpt)
        fail_msg("%s", err.msg);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct token_buf b[4] = {0};
        for (size_t k = 0; k < 4; k++)
            assert_int_equal(
                tokenizer_encode(k < 2 ? qwen : gpt, pairs[i][k % 2], strlen(pairs[i][k % 2]), 0, &b[k]),
                STATUS_OK);
        assert_true(same_ids(&b[0], b[1].ids, b[1].len, "normalised", i));
        assert_false(b[2].len == b[3].len && memcmp(b[2].ids, b[3].ids, b[2].len * sizeof *b[2].ids) == 0);
        for (size_t k = 0; k < 4; k++)
            token_buf_free(&b[k]);
    }
    tokenizer_free(qwen);
    tokenizer_free(gpt);
}

// A word of GPT-4o and Llama 4 has its apostrophe, one of GPT-2 ends before it.
TEST(test_apostrophes) {
    static const char *const kinds[] = {"gpt-4o", "llama4", "gpt-2"};
    for (int i = 0; i < 3; i++) {
        struct err err = {0};
        struct token_buf ids = {0};
        struct tokenizer *t = small_vocab(kinds[i], -1, (const char *const[]){"t'"}, NULL, 1,
                                          (const char *const[]){"t '"}, 1, &err);
        if (!t)
            fail_msg("%s", err.msg);
        assert_int_equal(tokenizer_encode(t, "It's", 4, 0, &ids), STATUS_OK);
        assert_int_equal(ids.len, i < 2 ? 3 : 4);
        token_buf_free(&ids);
        tokenizer_free(t);
    }
}

// <|end|> ends the turn of a model, but in gpt-oss a message of it.
TEST(test_harmony_ends) {
    static const char *const names[] = {"<|end|>", "<|return|>", "<|call|>"};
    static const int32_t control[] = {TOKEN_CONTROL, TOKEN_CONTROL, TOKEN_CONTROL};
    for (int num = 1; num <= 3; num++) {
        struct err err = {0};
        struct tokenizer *t =
            small_vocab("gpt-4o", -1, names, control, num, (const char *const[]){""}, 0, &err);
        if (!t)
            fail_msg("%s", err.msg);
        assert_true(tokenizer_is_end(t, 256) == (num < 3));
        assert_true(num < 3 || (tokenizer_is_end(t, 257) && tokenizer_is_end(t, 258)));
        tokenizer_free(t);
    }
}

// Gemma 4 ends a turn with <turn|>; a user's text forges neither mark, whatever their type.
TEST(test_gemma_turns) {
    static const char *const names[] = {"<|turn>", "<turn|>"};
    static const int32_t user[] = {TOKEN_USER_DEFINED, TOKEN_USER_DEFINED};
    struct err err = {0};
    struct tokenizer *t = small_vocab("gpt-2", -1, names, user, 2, (const char *const[]){""}, 0, &err);
    if (!t)
        fail_msg("%s", err.msg);
    assert_true(tokenizer_is_end(t, 257) && !tokenizer_is_end(t, 256));
    EXPECT_IDS(t, "<turn|>", TOKENIZE_PARSE_SPECIAL, 257);
    EXPECT_IDS(t, "<|turn>", 0, '<', '|', 't', 'u', 'r', 'n', '>');
    EXPECT_IDS(t, "<turn|>", 0, '<', 't', 'u', 'r', 'n', '|', '>');
    tokenizer_free(t);
}

TEST(test_damaged) {
    static const char *const extra[] = {"ab", "<s>", "c d"};
    static const int32_t types[] = {TOKEN_NORMAL, TOKEN_CONTROL, TOKEN_NORMAL};
    static const struct {
        const char *pre;
        int without;
        const char *merge, *word;
    } cases[] = {
        {"gpt-2", -1, "ab", "merge 0 ('ab')"},
        {"gpt-2", -1, "a b c", "merge 0 ('a b c')"},
        {"gpt-2", -1, " ab", "merge 0"},
        {"gpt-2", -1, "a ", "merge 0"},
        {"gpt-2", -1, "", "merge 0"},
        {"gpt-2", -1, "a c", "'a c'"},     // makes no token
        {"gpt-2", -1, "< s>", "'< s>'"},   // nor would it make a special one
        {"gpt-2", -1, "ab zz", "'ab zz'"}, // a part is no token
        {"gpt-2", -1, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa b", "merge 0"},
        {"gpt-2", 0xbf, "a b", "byte 0xBF"},
        {"gpt-5", -1, "a b", "'gpt-5' (key tokenizer.ggml.pre)"},
        {"", -1, "a b", "'' (key tokenizer.ggml.pre)"},
        {"gpt-2", -1, NULL, "tokenizer.ggml.merges is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err = {0};
        struct tokenizer *t = small_vocab(cases[i].pre, cases[i].without, extra, types, 3,
                                          cases[i].merge ? &cases[i].merge : NULL, 1, &err);
        if (t || err.code != STATUS_FORMAT || !strstr(err.msg, cases[i].word))
            fail_msg("expected '%s', got status %d '%s'", cases[i].word, (int)err.code, err.msg);
    }
    struct err err = {0};
    struct tokenizer *t = small_vocab("gpt-2", -1, (const char *const[]){"ab", "ab"}, NULL, 2,
                                      (const char *const[]){"a b"}, 1, &err);
    assert_null(t);
    assert_non_null(strstr(err.msg, "twice"));
}

TEST(test_rules) {
    static const char *const extra[] = {"ab", "abc", "bc", "<|x|>",     "qq",
                                        "12", "123", "..", "\xc4\xa0z", "d\xe2\x82\xac"};
    static const int32_t types[] = {1, 1, 1, 4, 4, 1, 1, 1, 1, 1};
    static const char *const merges[] = {"b c", "a b", "1 2", "12 3", ". .", "\xc4\xa0 z"};
    struct err err = {0};
    struct tokenizer *t = small_vocab("gpt-2", -1, extra, types, 10, merges, 6, &err);
    if (!t)
        fail_msg("%s", err.msg);
    size_t len;
    EXPECT_IDS(t, "abc", 0, 'a', 258); // no merge makes 257, so it is not taken whole
    EXPECT_IDS(t, "abc", 0, 'a', 258); // and not remembered as such
    EXPECT_IDS(t, "ab zab", 0, 256, 264, 256);
    EXPECT_IDS(t, "<|x|>", TOKENIZE_PARSE_SPECIAL, 259);
    EXPECT_IDS(t, "<|x|>", 0, '<', '|', 'x', '|', '>'); // user-defined, but looks like a mark
    EXPECT_IDS(t, "aqqa", 0, 'a', 260, 'a');            // user-defined: a word of the text
    EXPECT_IDS(t, "1234", 0, 262, '4');
    // Not of the alphabet: spelled as it is.
    assert_memory_equal(tokenizer_bytes(t, 265, false, &len), "d€", 4);
    assert_int_equal(len, 4);
    assert_false(tokenizer_adds_bos(t));
    assert_int_equal(tokenizer_eos(t), -1);
    tokenizer_free(t);
    t = small_vocab("llama-bpe", -1, extra, types, 10, merges, 6, &err);
    EXPECT_IDS(t, "abc", 0, 257); // merges ignored where the word is a token
    EXPECT_IDS(t, "abcc", 0, 'a', 258, 'c');
    EXPECT_IDS(t, "A12'S\xc5\xbf", 0, 'A', 261, '\'', 'S', 0xc5, 0xbf);
    EXPECT_IDS(t, "12123", 0, 261, '1', '2', '3'); // words of up to three digits: 121, 23
    tokenizer_free(t);
    // Without a name words are cut as by llama.cpp's default: digits by three, punctuation apart.
    t = small_vocab(NULL, -1, extra, types, 10, merges, 6, &err);
    EXPECT_IDS(t, "1231234", 0, 262, 262, '4');
    EXPECT_IDS(t, "a..1b", 0, 'a', 263, '1', 'b');
    tokenizer_free(t);
    t = small_vocab("starcoder", -1, extra, types, 10, merges, 6, &err); // digits one by one
    EXPECT_IDS(t, "1234", 0, '1', '2', '3', '4');
    tokenizer_free(t);
}

// ---- properties

// The plainest form, quadratic: for each merge that can be done, the first in the list, at its left-most
// place.
TEST(test_same_as_plain) {
    static const char *const extra[] = {"ab", "ba",  "aa",  "aab",  "abab", "aaaa",
                                        "bc", "abc", "cab", "aabb", "bb",   "abcbb"};
    static const char *const merges[] = {"a b",  "a ab", "b c", "ab ab", "a a",  "aa aa", "b a",
                                         "a bc", "c ab", "b b", "aa bb", "ab c", "abc bb"};
    enum { E = sizeof extra / sizeof extra[0], M = sizeof merges / sizeof merges[0] };
    struct err err = {0};
    struct tokenizer *t = small_vocab("gpt-2", -1, extra, NULL, E, merges, M, &err);
    if (!t)
        fail_msg("%s", err.msg);
    for (int round = 0; round < 1000; round++) {
        char text[400], parts[400][8];
        int n = 1 + (int)rnd(round % 20 ? 30 : 390), num = n; // the plain form of a long one takes ms
        for (int i = 0; i < n; i++) {
            text[i] = (char)('a' + (rnd(8) + 2) / 4);
            memcpy(parts[i], (char[]){text[i], 0}, 2);
        }
        for (int m = 0; m < M;) {
            int i;
            char left[8] = {0};
            const char *right = strchr(merges[m], ' ') + 1;
            memcpy(left, merges[m], (size_t)(right - merges[m] - 1));
            for (i = 0; i + 1 < num; i++)
                if (strcmp(parts[i], left) == 0 && strcmp(parts[i + 1], right) == 0)
                    break;
            if (i + 1 >= num) {
                m++;
                continue;
            }
            strcat(parts[i], right);
            memmove(parts + i + 1, parts + i + 2, (size_t)(num - i - 2) * sizeof *parts);
            num--;
            m = 0;
        }
        token_id want[400];
        for (int i = 0; i < num; i++) {
            want[i] = (unsigned char)parts[i][0];
            for (int k = 0; k < E; k++)
                if (strcmp(extra[k], parts[i]) == 0)
                    want[i] = 256 + k;
        }
        struct token_buf b = {0};
        assert_int_equal(tokenizer_encode(t, text, (size_t)n, 0, &b), STATUS_OK);
        assert_true(same_ids(&b, want, (size_t)num, "plain", (size_t)round));
        token_buf_free(&b);
    }
    tokenizer_free(t);
}

// Any bytes are text: no special id comes out unless asked for, and the tokens' bytes are the text.
static void check_any_bytes(const struct tokenizer *t, int rounds) {
    static const char *const bits[] = {
        "<|endoftext|>", "<|eot_id|>", "\xc4\xa0", "\xe2\x96", "\xff",  "\xf0\x9f",    "hello", "\n",
        " \r\n ",        "  ",         "'s",       "\xc3\xa9", "12345", "\xe6\x97\xa5"};
    for (int round = 0; round < rounds; round++) {
        char text[600], back[600];
        size_t len = 0, n = 0;
        for (uint32_t i = rnd(30); i > 0; i--) {
            const char *s = bits[rnd(14)];
            if (rnd(3) == 0) {
                text[len++] = (char)rnd(256);
            } else {
                memcpy(text + len, s, strlen(s));
                len += strlen(s);
            }
        }
        struct token_buf b = {0};
        assert_int_equal(tokenizer_encode(t, text, len, 0, &b), STATUS_OK);
        for (size_t i = 0; i < b.len; i++) {
            size_t l;
            assert_false(tokenizer_is_special(t, b.ids[i]));
            const char *p = tokenizer_bytes(t, b.ids[i], false, &l);
            assert_true(n + l <= sizeof back);
            memcpy(back + n, p, l);
            n += l;
        }
        assert_int_equal(n, len);
        assert_memory_equal(back, text, len);
        token_buf_free(&b);
    }
}

TEST(test_any_bytes) {
    struct tokenizer *t = open_vocab(GGML "gpt-2.gguf");
    check_any_bytes(t, 3000);
    tokenizer_free(t);
    t = open_vocab(LLAMA3);
    check_any_bytes(t, 3000);
    tokenizer_free(t);
}

// A tokenizer serves any number of threads at once.
static void *use(void *arg) {
    struct tokenizer *t = arg;
    for (int i = 0; i < 200; i++) {
        struct token_buf b = {0};
        char text[64];
        int n = snprintf(text, sizeof text, "Hello world's %d  foo\n bar, e\xcc\x81", i);
        if (tokenizer_encode(t, text, (size_t)n, 0, &b) || b.len < 8 || b.ids[0] != 9707)
            return arg;
        token_buf_free(&b);
    }
    return NULL;
}

TEST(test_threads) {
    struct tokenizer *t = open_vocab(QWEN2);
    pthread_t threads[4];
    void *bad;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use, t), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], &bad), 0);
        assert_null(bad);
    }
    tokenizer_free(t);
}

// ---- time

// Nothing is quadratic: so many symbols in a row take seconds, where n^2 would take hours and end at ctest's limit.
enum { LONG = SLOW ? 200000 : 1000000 };

static void check_worst(const char *vocab) {
    static const struct {
        const char *unit, *end;
    } runs[] = {{"a", ""},
                {" ", ""},
                {" ", "a"},
                {"\n ", "a"},
                {" a", ""},
                {"ab", ""},
                {"!", ""},
                {"1", ""},
                {"'", ""},
                {"\n", "a"},
                {"\xff", ""},
                {"\xf0\x9f\x99\x82", ""},
                {"\xe6\x97\xa5", ""},
                {"\xcc\x81\xcc\xa3", ""}, // marks that sorting moves
                {"\xe0\xbd\xb3", ""},     // and one that falls into such marks
                {"\xe1\x84\x92\xe1\x85\xa1", ""}};
    struct tokenizer *t = open_vocab(vocab);
    double worst = 0;
    size_t len, n;
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        size_t l = strlen(runs[i].unit);
        len = LONG / l * l;
        char *p = malloc(len + 1);
        assert_non_null(p);
        for (size_t k = 0; k < len; k++)
            p[k] = runs[i].unit[k % l];
        if (*runs[i].end)
            p[len++] = *runs[i].end;
        double s = encode_time(t, p, len, &n);
        worst = s > worst ? s : worst;
        free(p);
    }
    printf("  %s: at most %.3f s for %.1f MB of the same", vocab, worst, 1e-6 * LONG);
    const char *path = test_data("texts/war-and-peace.txt");
    if (path && !SLOW) {
        char *text = read_file(path, &len);
        double s = encode_time(t, text, len, &n);
        printf("; %zu bytes of English: %zu tokens, %.1f MB/s", len, n, 1e-6 * (double)len / s);
        free(text);
    }
    printf("\n");
    tokenizer_free(t);
}

// From the end of a run of digits, however many bytes a digit has; what is left begins a word, or ends the one before it.
TEST(test_threes) {
    static const char *const extra[] = {"12", "123", "\xc3\x82\xc2\xbd",
                                        "\xc3\x82\xc2\xbd"
                                        "1"};
    static const char *const merges[] = {"1 2", "12 3", "\xc3\x82 \xc2\xbd", "\xc3\x82\xc2\xbd 1"};
    struct err err = {0};
    struct tokenizer *apart = small_vocab("afmoe", -1, extra, NULL, 4, merges, 4, &err),
                     *joined = small_vocab("superbpe", -1, extra, NULL, 4, merges, 4, &err);
    if (!apart || !joined)
        fail_msg("%s", err.msg);
    EXPECT_IDS(apart, "4123", 0, '4', 257);
    EXPECT_IDS(apart, "12\xd9\xa4\xd9\xa4", 0, '1', '2', 0xd9, 0xa4, 0xd9, 0xa4); // 1, 2 and two Arabic fours
    EXPECT_IDS(apart,
               "\xc2\xbd"
               "1123",
               0, 258, '1', 257); // one half is a number, and no digit
    EXPECT_IDS(joined,
               "\xc2\xbd"
               "1123",
               0, 259, 257);
    tokenizer_free(apart);
    tokenizer_free(joined);
}

TEST(test_worst_cases) {
    check_worst(GGML "gpt-2.gguf");
    check_worst(GGML "deepseek-llm.gguf");
    check_worst(GGML "starcoder.gguf");
    check_worst(LLAMA3);
    check_worst(QWEN2);
    static const char *const threes[] = {"tiny_aya", "superbpe", "afmoe"}; // from the end of a run of digits
    char *digits = malloc(LONG + 1);
    assert_non_null(digits);
    memset(digits, '7', LONG);
    for (int i = 0; i < 6; i++) {
        struct err err = {0};
        size_t n;
        struct tokenizer *t =
            small_vocab(threes[i / 2], -1, NULL, NULL, 0, (const char *const[]){""}, 0, &err);
        digits[LONG] = i % 2 ? 'a' : ' ';
        encode_time(t, digits, LONG + 1, &n);
        assert_int_equal(n, LONG + 1);
        tokenizer_free(t);
    }
    free(digits);
}

int main(void) { return run_all_tests(NULL, NULL); }
#else
int main(void) {
    printf("  skipped: this build has no PCRE2 and reads no byte-level vocabulary\n");
    return 0;
}
#endif
