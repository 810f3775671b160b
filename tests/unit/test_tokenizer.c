// SentencePiece's vocabularies: llama.cpp's ids, a naive reference, damaged vocabularies, worst cases in time.
#include "vocabularies.h"

#include "../tools/gguf_tokenizer.h"
#include "text/tokenizer_internal.h"

#include <math.h>

TEST(test_ggml) {
    check_ggml(LLAMA_SPM, 0, "llama-spm");
    check_ggml(GGML "phi-3.gguf", 0, "phi-3");
}

// ---- facts of a real file

TEST(test_stories) {
    struct tokenizer *t = open_vocab("models/stories260K/stories260K.gguf");
    token_id ends[4];
    size_t len;
    assert_int_equal(tokenizer_vocab(t), 512);
    assert_int_equal(tokenizer_bos(t), 1);
    assert_int_equal(tokenizer_eos(t), 2);
    assert_true(tokenizer_adds_bos(t));
    assert_int_equal(tokenizer_ends(t, ends, 4), 1);
    assert_int_equal(ends[0], 2);
    assert_true(tokenizer_is_special(t, 0) && tokenizer_is_special(t, 1) && !tokenizer_is_special(t, 3));
    assert_memory_equal(tokenizer_name(t, 1, &len), "<s>", 3);
    assert_memory_equal(tokenizer_bytes(t, 13, false, &len), "\n", 1);
    assert_int_equal(len, 1);
    tokenizer_bytes(t, 1, false, &len);
    assert_int_equal(len, 0);
    tokenizer_bytes(t, 1, true, &len);
    assert_int_equal(len, 3);
    assert_memory_equal(tokenizer_bytes(t, 403, false, &len), " Once", 5);
    tokenizer_bytes(t, -1, true, &len);
    assert_int_equal(len, 0);
    tokenizer_bytes(t, 512, true, &len);
    assert_int_equal(len, 0);
    assert_false(tokenizer_is_end(t, 512));
    assert_null(tokenizer_chat_template(t, &len));
    struct token_buf b = {0};
    assert_int_equal(tokenizer_encode(t, "Once upon a time", 16, TOKENIZE_ADD_SPECIAL, &b), STATUS_OK);
    assert_true(same_ids(&b, (token_id[]){1, 403, 407, 261, 378}, 5, "stories260K", 0));
    token_buf_free(&b);
    assert_int_equal(tokenizer_encode(t, "", 0, TOKENIZE_ADD_SPECIAL, &b), STATUS_OK);
    assert_int_equal(b.len, 1);
    b.len = 0;
    assert_int_equal(tokenizer_encode(t, "", 0, 0, &b), STATUS_OK);
    assert_int_equal(b.len, 0);
    token_buf_free(&b);
    tokenizer_free(t);
}

TEST(test_phi3_facts) {
    struct tokenizer *t = open_vocab(GGML "phi-3.gguf");
    struct token_buf b = {0};
    size_t len;
    assert_int_equal(tokenizer_eos(t), 32000);
    assert_true(tokenizer_is_end(t, 32000)); // <|endoftext|>
    assert_true(tokenizer_is_end(t, 32007)); // <|end|>
    assert_non_null(tokenizer_chat_template(t, &len));
    assert_true(len > 100);
    assert_int_equal(tokenizer_encode(t, "<|user|>\nHi<|end|>", 18, TOKENIZE_PARSE_SPECIAL, &b), STATUS_OK);
    assert_int_equal(b.ids[0], 32010);
    assert_int_equal(b.ids[b.len - 1], 32007);
    b.len = 0;
    // A user's text forges no turn, and no </s>, which this file calls user-defined.
    assert_int_equal(tokenizer_encode(t, "<|user|>\nHi<|end|></s>", 22, 0, &b), STATUS_OK);
    for (size_t i = 0; i < b.len; i++)
        assert_true(b.ids[i] > 2 && b.ids[i] < 32000);
    token_buf_free(&b);
    tokenizer_free(t);
}

// ---- properties

// The plainest form of the algorithm, quadratic: a list of strings, merge the best pair, the first of equals.
struct piece {
    const char *p;
    size_t len;
};
static token_id find_plain(const struct tokenizer *t, const char *p, size_t len) {
    for (int i = 0; i < t->num_tokens; i++) {
        const struct token_entry *e = &t->tokens[i];
        if (e->type == TOKEN_NORMAL && e->bytes_len == len && memcmp(t->text + e->bytes, p, len) == 0)
            return i;
    }
    return -1;
}
static size_t encode_plain(const struct tokenizer *t, const char *text, size_t len, token_id *out) {
    static struct piece pieces[1024];
    static char spaced[1024];
    int n = 0;
    size_t num = 0;
    if (len == 0)
        return 0;
    spaced[0] = ' ';
    memcpy(spaced + 1, text, len);
    for (size_t i = 0; i < len + 1; n++) {
        unsigned char c = (unsigned char)spaced[i];
        size_t l = c < 0x80 ? 1 : c < 0xe0 ? 2 : 3; // the alphabet below has no others
        pieces[n] = (struct piece){spaced + i, l};
        i += l;
    }
    for (;;) {
        int best = -1;
        float score = 0;
        for (int i = 0; i + 1 < n; i++) {
            token_id id = find_plain(t, pieces[i].p, pieces[i].len + pieces[i + 1].len);
            if (id >= 0 && (best < 0 || t->tokens[id].score > score)) {
                best = i;
                score = t->tokens[id].score;
            }
        }
        if (best < 0)
            break;
        pieces[best].len += pieces[best + 1].len;
        memmove(pieces + best + 1, pieces + best + 2, (size_t)(n - best - 2) * sizeof *pieces);
        n--;
    }
    for (int i = 0; i < n; i++) {
        token_id id = find_plain(t, pieces[i].p, pieces[i].len);
        if (id >= 0) {
            out[num++] = id;
            continue;
        }
        for (size_t k = 0; k < pieces[i].len; k++)
            out[num++] = t->byte_ids[(unsigned char)pieces[i].p[k]];
    }
    return num;
}

TEST(test_same_as_plain) {
    static const char *const alphabet[] = {"a", "e", "t", "h", "n", "d", " ", " ",
                                           "o", "s", "r", "l", ".", "é", "ü", "日"};
    struct tokenizer *t = open_vocab("models/stories260K/stories260K.gguf");
    assert_true(t->splits_at_space);
    for (int round = 0; round < 300; round++) {
        char text[512];
        token_id want[1024];
        size_t len = 0;
        uint32_t letters = round % 2 ? 16 : 8, symbols = rnd(round % 3 ? 30 : 150);
        for (uint32_t i = 0; i < symbols; i++) {
            const char *s = alphabet[rnd(letters)];
            memcpy(text + len, s, strlen(s));
            len += strlen(s);
        }
        size_t n = encode_plain(t, text, len, want);
        for (int whole = 0; whole < 2; whole++) { // word by word, and all at once through the heap
            struct token_buf b = {0};
            t->splits_at_space = !whole;
            assert_int_equal(tokenizer_encode(t, text, len, 0, &b), STATUS_OK);
            assert_true(same_ids(&b, want, n, "plain", (size_t)round));
            token_buf_free(&b);
        }
        t->splits_at_space = true;
    }
    tokenizer_free(t);
}

// Any bytes: no special id comes out unless asked for, and the tokens' bytes are the text after the dummy
// space.
TEST(test_any_bytes) {
    struct tokenizer *t = open_vocab(LLAMA_SPM);
    static const char *const bits[] = {"<s>",  "</s>",     "<unk>", "<0x41>", "\xe2\x96",
                                       "\xff", "\xf0\x9f", "hello", "\n"};
    for (int round = 0; round < 3000; round++) {
        char text[300], back[400];
        size_t len = 0, n = 0;
        for (uint32_t i = rnd(20); i > 0; i--) {
            const char *s = bits[rnd(9)];
            if (rnd(2)) {
                text[len++] = (char)rnd(256);
            } else {
                memcpy(text + len, s, strlen(s));
                len += strlen(s);
            }
        }
        if (memmem(text, len, "\xe2\x96\x81", 3))
            continue; // stands for a space, by definition
        struct token_buf b = {0};
        assert_int_equal(tokenizer_encode(t, text, len, 0, &b), STATUS_OK);
        for (size_t i = 0; i < b.len; i++) {
            size_t l;
            assert_false(tokenizer_is_special(t, b.ids[i]));
            const char *p = tokenizer_bytes(t, b.ids[i], false, &l);
            assert_true(n + l < sizeof back);
            memcpy(back + n, p, l);
            n += l;
        }
        assert_int_equal(n, len ? len + 1 : 0);
        assert_true(len == 0 || (back[0] == ' ' && memcmp(back + 1, text, len) == 0));
        token_buf_free(&b);
    }
    struct token_buf b = {0};
    assert_int_equal(tokenizer_encode(t, "a<s></s>b", 9, TOKENIZE_PARSE_SPECIAL, &b), STATUS_OK);
    assert_true(same_ids(&b, (token_id[]){263, 1, 2, 289}, 4, "parse special", 0));
    token_buf_free(&b);
    tokenizer_free(t);
}

// ---- damaged vocabularies

enum { V = 6 };
static const char *const names[V] = {"<unk>", "<s>", "</s>", "a", "b", "ab"};
static const float scores[V] = {0, 0, 0, -1, -2, -3};
static const int32_t types[V] = {2, 3, 3, 1, 1, 1};

static void start(struct gguf_writer *w, const char *model, const char *const *tokens, uint64_t n) {
    gw_str(w, "tokenizer.ggml.model", model);
    gw_strings(w, "tokenizer.ggml.tokens", n, tokens);
}

static void expect(struct gguf_writer *w, const char *word) {
    struct err err = {0};
    struct tokenizer *t = gw_tokenizer(w, &err);
    if (t || err.code != STATUS_FORMAT || !strstr(err.msg, word))
        fail_msg("expected '%s', got status %d '%s'", word, (int)err.code, err.msg);
}

TEST(test_damaged) {
    struct gguf_writer w = {0};
    struct err err = {0};
    start(&w, "llama", names, V);
    gw_array(&w, "tokenizer.ggml.scores", 6, V, scores, sizeof scores);
    gw_array(&w, "tokenizer.ggml.token_type", 5, V, types, sizeof types);
    gw_u32(&w, "tokenizer.ggml.eot_token_id", 99); // out of range: dropped
    struct tokenizer *t = gw_tokenizer(&w, &err);
    if (!t)
        fail_msg("%s", err.msg);
    struct token_buf b = {0}; // no byte tokens: one unknown for a run of unknown symbols
    assert_int_equal(tokenizer_encode(t, "abzzéb", 7, TOKENIZE_ADD_SPECIAL, &b), STATUS_OK);
    assert_true(same_ids(&b, (token_id[]){1, 0, 5, 0, 4}, 5, "unknown", 0));
    token_buf_free(&b);
    tokenizer_free(t);

    start(&w, "rwkv", names, V);
    expect(&w, "tokenizer 'rwkv'");
#ifndef QUIRE_HAVE_PCRE2
    start(&w, "gpt2", names, V);
    expect(&w, "PCRE2");
#endif
    gw_u32(&w, "tokenizer.ggml.model", 1);
    expect(&w, "tokenizer.ggml.model");
    gw_str(&w, "tokenizer.ggml.model", "llama");
    expect(&w, "tokenizer.ggml.tokens");
    start(&w, "llama", names, V);
    expect(&w, "tokenizer.ggml.scores is missing");
    start(&w, "llama", names, V);
    gw_array(&w, "tokenizer.ggml.scores", 6, V - 1, scores, sizeof scores - 4);
    expect(&w, "tokenizer.ggml.scores has 5");
    start(&w, "llama", names, V);
    gw_array(&w, "tokenizer.ggml.scores", 6, V, scores, sizeof scores);
    gw_array(&w, "tokenizer.ggml.token_type", 5, V - 2, types, sizeof types - 8);
    expect(&w, "tokenizer.ggml.token_type has 4");
    start(&w, "llama", names, 0);
    gw_array(&w, "tokenizer.ggml.scores", 6, 0, NULL, 0);
    expect(&w, "tokenizer.ggml.tokens has 0");

    static const struct {
        const char *token;
        int32_t type;
        float score;
        const char *word;
    } cases[] = {
        {"<0x-1>", 6, 0, "'<0x-1>'"}, {"<0x1G>", 6, 0, "'<0x1G>'"}, {"<0x011>", 6, 0, "'<0x011>'"},
        {"a", 1, 0, "'a'"},           {"</s>", 3, 0, "'</s>'"},     {"q", 9, 0, "'q'"},
        {"q", 0, 0, "'q'"},           {"q", 1, HUGE_VALF, "'q'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *n[V];
        float s[V];
        int32_t ty[V];
        memcpy(n, names, sizeof n);
        memcpy(s, scores, sizeof s);
        memcpy(ty, types, sizeof ty);
        n[5] = cases[i].token;
        ty[5] = cases[i].type;
        s[5] = cases[i].score;
        start(&w, "llama", n, V);
        gw_array(&w, "tokenizer.ggml.scores", 6, V, s, sizeof s);
        gw_array(&w, "tokenizer.ggml.token_type", 5, V, ty, sizeof ty);
        expect(&w, cases[i].word);
    }
    static const char *const ids[] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                                      "tokenizer.ggml.unknown_token_id"};
    for (size_t i = 0; i < 3; i++) {
        start(&w, "llama", names, V);
        gw_array(&w, "tokenizer.ggml.scores", 6, V, scores, sizeof scores);
        gw_u32(&w, ids[i], V);
        expect(&w, ids[i]);
    }
    start(&w, "llama", names, V); // neither byte tokens nor unknown: there would be texts without tokens
    gw_array(&w, "tokenizer.ggml.scores", 6, V, scores, sizeof scores);
    gw_u32(&w, "tokenizer.ggml.unknown_token_id", UINT32_MAX);
    expect(&w, "<0x00>");
    char *huge = calloc(1, (64 << 10) + 2);
    assert_non_null(huge);
    memset(huge, 'x', (64 << 10) + 1);
    start(&w, "llama", (const char *const[]){huge}, 1);
    gw_array(&w, "tokenizer.ggml.scores", 6, 1, scores, 4);
    expect(&w, "longer than 64 KiB");
    free(huge);
    huge = calloc(1, (1 << 20) + 2);
    assert_non_null(huge);
    memset(huge, 'x', (1 << 20) + 1);
    start(&w, "llama", names, V);
    gw_array(&w, "tokenizer.ggml.scores", 6, V, scores, sizeof scores);
    gw_str(&w, "tokenizer.chat_template", huge);
    expect(&w, "tokenizer.chat_template");
    free(huge);
}

// Merging never makes a control token, nor a guarded one; and a token across a space is found.
// GGUF files of vocabularies with U+2581 for spaces that call themselves gpt2.
TEST(test_spaced) {
    static const char *const tokens[] = {"<unk>",
                                         "<s>",
                                         "</s>",
                                         "a",
                                         "b",
                                         "ab",
                                         "\xe2\x96\x81",
                                         ("\xe2\x96\x81"
                                          "ab")};
    static const char *const merges[] = {"a b", "\xe2\x96\x81 ab"};
    static const char *const pres[] = {"sarvam-moe", "granite-embed-multi-311m", "gemma4"};
    for (int i = 0; i < 3; i++) {
        struct gguf_writer w = {0};
        struct err err = {0};
        struct token_buf b = {0};
        start(&w, "gpt2", tokens, 8);
        gw_str(&w, "tokenizer.ggml.pre", pres[i]);
        gw_strings(&w, "tokenizer.ggml.merges", 2, merges);
        gw_u32(&w, "tokenizer.ggml.unknown_token_id", 0);
        struct tokenizer *t = gw_tokenizer(&w, &err);
        if (!t)
            fail_msg("%s", err.msg);
        assert_int_equal(tokenizer_encode(t, "ab ab b", 7, 0, &b), STATUS_OK);
        assert_true(same_ids(&b, (token_id[]){5, 7, 6, 4}, 4, pres[i], 0));
        token_buf_free(&b);
        tokenizer_free(t);
    }
}

TEST(test_merging_rules) {
    static const char *const tokens[] = {"<unk>", "<s>", "</s>", "<",     "s",    ">",  "<s",
                                         "x▁",    "x",   "▁",    "y",     "x▁y",  "<|", "|",
                                         "e",     "|>",  "<|e",  "<|e|>", "\n\n", "\n"};
    static const int32_t kinds[] = {2, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4, 4, 1};
    enum { N = sizeof tokens / sizeof tokens[0] };
    float zeros[N] = {0};
    struct gguf_writer w = {0};
    struct err err = {0};
    struct token_buf b = {0};
    start(&w, "llama", tokens, N);
    gw_array(&w, "tokenizer.ggml.scores", 6, N, zeros, sizeof zeros);
    gw_array(&w, "tokenizer.ggml.token_type", 5, N, kinds, sizeof kinds);
    gw_bool(&w, "tokenizer.ggml.add_space_prefix", 0);
    gw_bool(&w, "tokenizer.ggml.add_bos_token", 0);
    gw_bool(&w, "tokenizer.ggml.add_eos_token", 1);
    struct tokenizer *t = gw_tokenizer(&w, &err);
    if (!t)
        fail_msg("%s", err.msg);
    assert_false(tokenizer_adds_bos(t));
    assert_false(t->splits_at_space);
    static const struct {
        const char *text;
        unsigned flags;
        token_id want[4];
        size_t n;
    } cases[] = {
        {"<s>", 0, {6, 5}, 2},
        {"<s>", TOKENIZE_PARSE_SPECIAL, {1}, 1},
        {"x y", 0, {11}, 1},
        {"x y", TOKENIZE_ADD_SPECIAL, {11, 2}, 2},
        {"<|e|>", 0, {16, 15}, 2}, // user-defined, but looks like a mark
        {"<|e|>", TOKENIZE_PARSE_SPECIAL, {17}, 1},
        {"\n\n\n", 0, {18, 19}, 2}, // user-defined: a word of the text
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        b.len = 0;
        assert_int_equal(tokenizer_encode(t, cases[i].text, strlen(cases[i].text), cases[i].flags, &b),
                         STATUS_OK);
        assert_true(same_ids(&b, cases[i].want, cases[i].n, "merging rules", i));
    }
    token_buf_free(&b);
    tokenizer_free(t);
}

// ---- time

// Nothing is quadratic: a million symbols in a row take seconds even under sanitizers, where n^2 would take
// hours and end at ctest's limit.
TEST(test_worst_cases) {
    struct tokenizer *t = open_vocab(LLAMA_SPM);
    static const char *const runs[] = {"a", " ", "<", "\xf0\x9f\x99\x82", "ab", "\n", "\xff", "日"};
    size_t len, n;
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        size_t l = strlen(runs[i]);
        char *p = malloc(1000000 * l);
        assert_non_null(p);
        for (size_t k = 0; k < 1000000 * l; k++)
            p[k] = runs[i][k % l];
        double s = encode_time(t, p, 1000000 * l, &n);
        printf("  '%s' x 1e6: %zu tokens, %.3f s\n", i == 5 || i == 6 ? "?" : runs[i], n, s);
        free(p);
    }
    const char *path = test_data("texts/war-and-peace.txt");
    if (path) {
        char *text = read_file(path, &len);
        double s = encode_time(t, text, len, &n);
        printf("  %zu bytes: %zu tokens, %.1f MB/s\n", len, n, 1e-6 * (double)len / s);
        t->splits_at_space = false;
        size_t n2;
        s = encode_time(t, text, len, &n2);
        printf("  the same as one word: %.1f MB/s\n", 1e-6 * (double)len / s);
        assert_int_equal(n, n2);
        t->splits_at_space = true;
        free(text);
    }
    tokenizer_free(t);
}

int main(void) { return run_all_tests(NULL, NULL); }
