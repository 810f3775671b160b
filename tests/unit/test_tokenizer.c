// Tokenizer: golden vectors of llama.cpp and others, a naive reference, damaged vocabularies, worst cases in
// time. Over 600 lines: both kinds of vocabulary are tested by the same vectors and damage.
#include "harness.h"

#include "../tools/gguf_write.h"
#include "models/gguf.h"
#include "text/tokenizer_internal.h"
#include "text/tokenizer_load.h"

#include <math.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static char *read_file(const char *path, size_t *len) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *len = (size_t)ftell(f);
    rewind(f);
    char *p = malloc(*len + 1);
    assert_non_null(p);
    assert_int_equal(fread(p, 1, *len, f), *len);
    p[*len] = 0;
    fclose(f);
    return p;
}

static struct tokenizer *open_data(const char *name) {
    struct err err = {0};
    const char *path = test_data(name);
    if (!path)
        skip();
    struct tokenizer *t = tokenizer_open(path, &err);
    if (!t)
        fail_msg("%s", err.msg);
    return t;
}

// ---- golden files

// Compares with ids written as text; says where they differ.
static int same_ids(const struct token_buf *b, const token_id *want, size_t n, const char *what,
                    size_t which) {
    if (b->len == n && (n == 0 || memcmp(b->ids, want, n * sizeof *want) == 0))
        return 1;
    printf("  %s case %zu:\n    got ", what, which);
    for (size_t i = 0; i < b->len && i < 40; i++)
        printf(" %d", b->ids[i]);
    printf("\n    want");
    for (size_t i = 0; i < n && i < 40; i++)
        printf(" %d", want[i]);
    printf("\n");
    return 0;
}

// llama.cpp's vectors: texts separated by a mark, one line of ids each.
static void check_ggml(const char *name, unsigned flags) {
    char path[256];
    size_t inp_len, out_len, cases = 0, bad = 0;
    struct tokenizer *t = open_data(name);
    snprintf(path, sizeof path, "%s.inp", name);
    char *inp = read_file(test_data(path), &inp_len);
    snprintf(path, sizeof path, "%s.out", name);
    char *out = read_file(test_data(path), &out_len);
    static const char mark[] = "\n__ggml_vocab_test__\n";
    const char *text = inp, *line = out;
    while (*line) {
        const char *end = memmem(text, inp_len - (size_t)(text - inp), mark, sizeof mark - 1);
        size_t len = end ? (size_t)(end - text) : inp_len - (size_t)(text - inp);
        token_id want[4096];
        size_t n = 0;
        while (*line && *line != '\n') {
            char *next;
            long v = strtol(line, &next, 10);
            if (next == line) {
                line++;
                continue;
            }
            want[n++] = (token_id)v;
            line = next;
        }
        line += *line == '\n';
        struct token_buf b = {0};
        assert_int_equal(tokenizer_encode(t, text, len, flags, &b), STATUS_OK);
        bad += !same_ids(&b, want, n, name, cases);
        token_buf_free(&b);
        cases++;
        if (!end)
            break;
        text = end + sizeof mark - 1;
    }
    printf("  %s: %zu cases\n", name, cases);
    assert_true(cases >= 46);
    assert_int_equal(bad, 0);
    free(inp);
    free(out);
    tokenizer_free(t);
}

static void test_ggml_llama(void **state) {
    (void)state;
    check_ggml("tokenizers/ggml-vocab/ggml-vocab-llama-spm.gguf", 0);
}

static void test_ggml_phi3(void **state) {
    (void)state;
    check_ggml("tokenizers/ggml-vocab/ggml-vocab-phi-3.gguf", 0);
}

// Reads a JSON string that begins at p (after the quote) into dst; returns the character after the closing
// quote.
static const char *json_string(const char *p, char *dst, size_t *len) {
    size_t n = 0;
    for (; *p != '"'; p++) {
        if (*p != '\\') {
            dst[n++] = *p;
            continue;
        }
        unsigned c;
        switch (*++p) {
        case 'n': dst[n++] = '\n'; break;
        case 't': dst[n++] = '\t'; break;
        case 'r': dst[n++] = '\r'; break;
        case 'b': dst[n++] = '\b'; break;
        case 'f': dst[n++] = '\f'; break;
        case 'u':
            c = (unsigned)strtoul((char[]){p[1], p[2], p[3], p[4], 0}, NULL, 16);
            p += 4;
            if (c >= 0xd800 && c < 0xdc00 && p[1] == '\\' && p[2] == 'u') {
                unsigned low = (unsigned)strtoul((char[]){p[3], p[4], p[5], p[6], 0}, NULL, 16);
                c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
                p += 6;
            }
            if (c < 0x80) {
                dst[n++] = (char)c;
            } else if (c < 0x800) {
                dst[n++] = (char)(0xc0 | c >> 6);
                dst[n++] = (char)(0x80 | (c & 63));
            } else if (c < 0x10000) {
                dst[n++] = (char)(0xe0 | c >> 12);
                dst[n++] = (char)(0x80 | (c >> 6 & 63));
                dst[n++] = (char)(0x80 | (c & 63));
            } else {
                dst[n++] = (char)(0xf0 | c >> 18);
                dst[n++] = (char)(0x80 | (c >> 12 & 63));
                dst[n++] = (char)(0x80 | (c >> 6 & 63));
                dst[n++] = (char)(0x80 | (c & 63));
            }
            break;
        default: dst[n++] = *p;
        }
    }
    *len = n;
    return p + 1;
}

// Goes through `"text": "...", ... "ids": [...]` pairs, wherever they are. first: skip ids before this index.
static void check_json(const char *file, const char *vocab, const char *from, const char *to, unsigned flags,
                       size_t least) {
    size_t len, cases = 0, bad = 0;
    struct tokenizer *t = open_data(vocab);
    char *json = read_file(test_data(file), &len);
    char *text = malloc(len + 1);
    token_id *want = malloc(len * sizeof *want);
    assert_true(text && want);
    const char *p = from ? strstr(json, from) : json;
    assert_non_null(p);
    const char *stop = to ? strstr(p + 1, to) : NULL;
    while ((p = strstr(p, "\"text\":")) && (!stop || p < stop)) {
        size_t text_len, n = 0;
        p = json_string(strchr(p + 7, '"') + 1, text, &text_len);
        p = strchr(strstr(p, "\"ids\":"), '[') + 1;
        while (*p != ']') {
            char *next;
            long v = strtol(p, &next, 10);
            if (next != p)
                want[n++] = (token_id)v;
            p = next == p ? p + 1 : next;
        }
        struct token_buf b = {0};
        assert_int_equal(tokenizer_encode(t, text, text_len, flags, &b), STATUS_OK);
        bad += !same_ids(&b, want, n, file, cases);
        token_buf_free(&b);
        cases++;
    }
    printf("  %s: %zu cases\n", file, cases);
    assert_true(cases >= least);
    assert_int_equal(bad, 0);
    free(json);
    free(text);
    free(want);
    tokenizer_free(t);
}

static void test_golden_large(void **state) {
    (void)state;
    check_json("tokenizers/golden-large/large-llama2-spm.jsonl",
               "tokenizers/ggml-vocab/ggml-vocab-llama-spm.gguf", NULL, NULL, 0, 700);
}

static void test_tjs(void **state) {
    (void)state;
    check_json("tokenizers/tjs-vectors/tjs-llama.json", "tokenizers/ggml-vocab/ggml-vocab-llama-spm.gguf",
               "\"Xenova/llama-tokenizer\"", "\n }", TOKENIZE_ADD_SPECIAL | TOKENIZE_PARSE_SPECIAL, 30);
}

// ---- facts of a real file

static void test_stories(void **state) {
    (void)state;
    struct tokenizer *t = open_data("models/stories260K/stories260K.gguf");
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

static void test_phi3_facts(void **state) {
    (void)state;
    struct tokenizer *t = open_data("tokenizers/ggml-vocab/ggml-vocab-phi-3.gguf");
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

static uint64_t rng = 88172645463325252u;
static uint32_t rnd(uint32_t n) {
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (uint32_t)(rng >> 32) % n;
}

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

static void test_same_as_plain(void **state) {
    (void)state;
    static const char *const alphabet[] = {"a", "e", "t", "h", "n", "d", " ", " ",
                                           "o", "s", "r", "l", ".", "é", "ü", "日"};
    struct tokenizer *t = open_data("models/stories260K/stories260K.gguf");
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
static void test_any_bytes(void **state) {
    (void)state;
    struct tokenizer *t = open_data("tokenizers/ggml-vocab/ggml-vocab-llama-spm.gguf");
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

static struct tokenizer *from_writer(struct gguf_writer *w, struct err *err) {
    size_t size;
    unsigned char *file = gw_finish(w, &size);
    struct model_file *g = gguf_parse(file, size, "test.gguf", err);
    struct tokenizer *t = g ? tokenizer_load(g, err) : NULL;
    model_file_close(g);
    free(file);
    return t;
}

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
    struct tokenizer *t = from_writer(w, &err);
    if (t || err.code != STATUS_FORMAT || !strstr(err.msg, word))
        fail_msg("expected '%s', got status %d '%s'", word, (int)err.code, err.msg);
}

static void test_damaged(void **state) {
    (void)state;
    struct gguf_writer w = {0};
    struct err err = {0};
    start(&w, "llama", names, V);
    gw_array(&w, "tokenizer.ggml.scores", 6, V, scores, sizeof scores);
    gw_array(&w, "tokenizer.ggml.token_type", 5, V, types, sizeof types);
    gw_u32(&w, "tokenizer.ggml.eot_token_id", 99); // out of range: dropped
    struct tokenizer *t = from_writer(&w, &err);
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
static void test_spaced(void **state) {
    (void)state;
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
        struct tokenizer *t = from_writer(&w, &err);
        if (!t)
            fail_msg("%s", err.msg);
        assert_int_equal(tokenizer_encode(t, "ab ab b", 7, 0, &b), STATUS_OK);
        assert_true(same_ids(&b, (token_id[]){5, 7, 6, 4}, 4, pres[i], 0));
        token_buf_free(&b);
        tokenizer_free(t);
    }
}

static void test_merging_rules(void **state) {
    (void)state;
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
    struct tokenizer *t = from_writer(&w, &err);
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

static double encode_time(const struct tokenizer *t, const char *text, size_t len, size_t *num) {
    struct token_buf b = {0};
    double start_time = now();
    assert_int_equal(tokenizer_encode(t, text, len, 0, &b), STATUS_OK);
    double seconds = now() - start_time;
    *num = b.len;
    token_buf_free(&b);
    return seconds;
}

// Nothing is quadratic: a million symbols in a row take seconds even under sanitizers, where n^2 would take
// hours and end at ctest's limit.
static void test_worst_cases(void **state) {
    (void)state;
    struct tokenizer *t = open_data("tokenizers/ggml-vocab/ggml-vocab-llama-spm.gguf");
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ggml_llama),    cmocka_unit_test(test_ggml_phi3),
        cmocka_unit_test(test_golden_large),  cmocka_unit_test(test_tjs),
        cmocka_unit_test(test_stories),       cmocka_unit_test(test_phi3_facts),
        cmocka_unit_test(test_same_as_plain), cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_damaged),       cmocka_unit_test(test_spaced),
        cmocka_unit_test(test_merging_rules), cmocka_unit_test(test_worst_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
