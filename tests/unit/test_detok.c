// Detokenizer: Unicode's own examples, stop strings, and random streams against a plain one-pass reference.
#include "harness.h"

#include "../tools/gguf_tokenizer.h"
#include "utf8.h"

#include <time.h>

// Ids: 0 <unk>, 1 <s>, 2 </s>, 3 + b byte b, then these pieces.
static const char *const pieces[] = {
    "a",        "b",        "aa",   "ab",   "ba", "▁",   "▁a", "▁▁",   "é",   "日",   "🙂", "\xe2\x96",
    "\xf0\x9f", "\x99\x82", "\xc3", "\xa9", "ST", "STO", "OP", "STOP", "aab", "abab", "\xe2", "</tool>"};
enum {
    BYTE = 3,
    PIECE = BYTE + 256,
    NUM_PIECES = sizeof pieces / sizeof pieces[0],
    VOCAB = PIECE + NUM_PIECES
};

static struct tokenizer *make(void) {
    struct gguf_writer w = {0};
    struct err err = {0};
    const char *names[VOCAB] = {"<unk>", "<s>", "</s>"};
    static char bytes[256][7];
    float scores[VOCAB] = {0};
    int32_t types[VOCAB] = {2, 3, 3};
    for (int i = 0; i < 256; i++) {
        snprintf(bytes[i], sizeof bytes[i], "<0x%02X>", (unsigned)i);
        names[BYTE + i] = bytes[i];
        types[BYTE + i] = 6;
    }
    for (int i = 0; i < NUM_PIECES; i++) {
        names[PIECE + i] = pieces[i];
        types[PIECE + i] = 1;
    }
    gw_str(&w, "tokenizer.ggml.model", "llama");
    gw_strings(&w, "tokenizer.ggml.tokens", VOCAB, names);
    gw_array(&w, "tokenizer.ggml.scores", 6, VOCAB, scores, sizeof scores);
    gw_array(&w, "tokenizer.ggml.token_type", 5, VOCAB, types, sizeof types);
    struct tokenizer *t = gw_tokenizer(&w, &err);
    if (!t)
        fail_msg("%s", err.msg);
    return t;
}

struct text {
    char p[1 << 16];
    size_t len;
    int stop;
};

static int valid_utf8(const char *p, size_t n) { return utf8_valid((const unsigned char *)p, n); }

static int min_tokens; // of the streams of run()
static bool keeps_stops;

// Feeds ids, then ends the stream.
static void run(const struct tokenizer *t, const token_id *ids, size_t n, const char *const *stops,
                const size_t *stop_lens, int num_stops, int strip, int skip_special, struct text *out) {
    struct detok_params p = {.tokenizer = t,
                             .skip_special = skip_special != 0,
                             .strip_space = strip != 0,
                             .stops = stops,
                             .stop_lens = stop_lens,
                             .num_stops = num_stops,
                             .min_tokens = min_tokens,
                             .keep_stop = keeps_stops};
    struct detok *d = detok_new(&p);
    const char *text;
    size_t len;
    out->len = 0;
    assert_non_null(d);
    for (size_t i = 0; i < n; i++) {
        int done = detok_stop_index(d) >= 0;
        bool stopped = detok_push(d, ids[i], &text, &len);
        assert_true(valid_utf8(text, len));
        assert_true(!done || (len == 0 && stopped)); // nothing comes out after a stop
        assert_int_equal(stopped, detok_stop_index(d) >= 0);
        assert_true(out->len + len <= sizeof out->p);
        memcpy(out->p + out->len, text, len);
        out->len += len;
    }
    detok_finish(d, &text, &len);
    assert_true(valid_utf8(text, len));
    memcpy(out->p + out->len, text, len);
    out->len += len;
    out->stop = detok_stop_index(d);
    detok_finish(d, &text, &len);
    assert_int_equal(len, 0);
    detok_free(d);
}

static void expect_bytes(const struct tokenizer *t, const char *bytes, size_t n, const char *stop,
                         const char *want, size_t want_len) {
    static struct text out;
    token_id ids[256];
    size_t stop_len = stop ? strlen(stop) : 0;
    for (size_t i = 0; i < n; i++)
        ids[i] = BYTE + (unsigned char)bytes[i];
    run(t, ids, n, &stop, &stop_len, stop != NULL, 0, 1, &out);
    if (out.len != want_len || memcmp(out.p, want, out.len) != 0)
        fail_msg("got '%.*s', want '%s'", (int)out.len, out.p, want);
}

#define FFFD "\xef\xbf\xbd"

// The Unicode Standard 15, tables 3-8 to 3-11, and the edges of each range.
TEST(test_utf8) {
    struct tokenizer *t = make();
    static const struct {
        const char *bytes, *want;
    } cases[] = {
        {"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A"},
        {"\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41", FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A"},
        {"\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", FFFD FFFD FFFD FFFD FFFD "A" FFFD FFFD "B"},
        {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", FFFD FFFD FFFD FFFD "A"},
        {"\xf0\x9f\x99\x82", "🙂"},
        {"\xf0\x9f\x99", FFFD},
        {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
        {"\xf0\x8f\xbf\xbf", FFFD FFFD FFFD FFFD},
        {"\xe0\xa0\x80\xe0\x9f\xbf", "\xe0\xa0\x80" FFFD FFFD FFFD},
        {"\xed\x9f\xbf\xee\x80\x80", "\xed\x9f\xbf\xee\x80\x80"},
        {"\xc2\x80\xc1\xbf\xdf\xbf", "\xc2\x80" FFFD FFFD "\xdf\xbf"},
        {"\xf5\x80", FFFD FFFD},
        {"a\xc3", "a" FFFD},
        {"\xe2\x96\xe2\x96\x81", FFFD "\xe2\x96\x81"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_bytes(t, cases[i].bytes, strlen(cases[i].bytes), NULL, cases[i].want, strlen(cases[i].want));
    expect_bytes(t, "a\0b", 3, "\x01", "a\0b", 3);
    tokenizer_free(t);
}

static token_id piece(const char *s) {
    for (int i = 0; i < NUM_PIECES; i++)
        if (!strcmp(pieces[i], s))
            return PIECE + i;
    fail_msg("no piece %s", s);
    return -1;
}

static void expect_push(struct detok *d, token_id id, const char *want, bool stopped) {
    const char *text;
    size_t len;
    assert_int_equal(detok_push(d, id, &text, &len), stopped);
    if (len != strlen(want) || memcmp(text, want, len) != 0)
        fail_msg("got '%.*s', want '%s'", (int)len, text, want);
}

static struct detok *start(const struct tokenizer *t, int n, const char *const *stops, size_t *lens) {
    for (int i = 0; i < n; i++)
        lens[i] = strlen(stops[i]);
    struct detok *d = detok_new(&(struct detok_params){
        .tokenizer = t, .skip_special = true, .stops = stops, .stop_lens = lens, .num_stops = n});
    assert_non_null(d);
    return d;
}

// Text comes out as soon as it is certain, and no earlier.
TEST(test_held_back) {
    struct tokenizer *t = make();
    size_t lens[4];
    struct detok *d = start(t, 1, (const char *const[]){"STOP"}, lens);
    expect_push(d, piece("a"), "a", false);
    expect_push(d, piece("ST"), "", false);
    expect_push(d, piece("a"), "STa", false);
    expect_push(d, piece("STO"), "", false);
    expect_push(d, piece("STO"), "STO", false);
    expect_push(d, 1, "", false); // a control token gives nothing and decides nothing
    expect_push(d, BYTE + 'P', "", true);
    expect_push(d, piece("a"), "", true);
    assert_int_equal(detok_stop_index(d), 0);
    detok_free(d);

    // One inside the other: the first to end wins.
    d = start(t, 2, (const char *const[]){"aab", "aaab"}, lens);
    expect_push(d, piece("aa"), "", false);
    expect_push(d, piece("a"), "", false);
    expect_push(d, piece("a"), "a", false);
    expect_push(d, piece("b"), "a", true);
    assert_int_equal(detok_stop_index(d), 0);
    detok_free(d);

    d = start(t, 2, (const char *const[]){"aaab", "b"}, lens); // both end at once: the lower index
    expect_push(d, piece("aa"), "", false);
    expect_push(d, piece("ab"), "", true);
    assert_int_equal(detok_stop_index(d), 0);
    detok_free(d);
    d = start(t, 2, (const char *const[]){"b", "aaab"}, lens);
    expect_push(d, piece("aa"), "", false);
    expect_push(d, piece("ab"), "aaa", true);
    assert_int_equal(detok_stop_index(d), 0);
    detok_free(d);

    d = start(t, 2, (const char *const[]){"STOPa", "STO"}, lens); // a stop that is the beginning of another
    expect_push(d, piece("STOP"), "", true);
    assert_int_equal(detok_stop_index(d), 1);
    detok_free(d);

    d = start(t, 2, (const char *const[]){"abab", "bb"}, lens); // falls back from one to the other
    expect_push(d, piece("ab"), "", false);
    expect_push(d, piece("a"), "", false);
    expect_push(d, piece("a"), "aba", false);
    expect_push(d, piece("b"), "", false);
    expect_push(d, piece("b"), "a", true);
    detok_free(d);

    d = start(t, 1, (const char *const[]){"aabaaac"}, lens); // a border of a border
    const char *letters = "aabaaabaaac";
    for (int i = 0; i < 11; i++)
        expect_push(d, BYTE + letters[i], i == 6 ? "aaba" : "", i == 10);
    detok_free(d);

    // Bytes, not characters: the cut sequence is replaced.
    d = start(t, 1, (const char *const[]){"\x99"}, lens);
    expect_push(d, piece("\xf0\x9f"), "", false);
    expect_push(d, piece("\x99\x82"), FFFD, true);
    detok_free(d);

    d = start(t, 1, (const char *const[]){FFFD}, lens); // before replacement: an invalid byte is no U+FFFD
    expect_push(d, BYTE + 0xff, FFFD, false);
    detok_free(d);

    d = start(t, 1, (const char *const[]){""}, lens); // never completed
    expect_push(d, piece("a"), "a", false);
    detok_free(d);

    d = start(t, 1, (const char *const[]){"</tool>x"}, lens); // what was held back comes at the end
    const char *text;
    size_t len;
    expect_push(d, piece("</tool>"), "", false);
    detok_finish(d, &text, &len);
    assert_int_equal(len, 7);
    assert_memory_equal(text, "</tool>", 7);
    detok_free(d);
    tokenizer_free(t);
}

TEST(test_space_and_special) {
    static struct text out;
    struct tokenizer *t = make();
    const token_id ids[] = {1, piece("▁a"), piece("▁a"), 2, 9999, -1};
    run(t, ids, 6, NULL, NULL, 0, 1, 1, &out);
    assert_int_equal(out.len, 3);
    assert_memory_equal(out.p, "a a", 3);
    run(t, ids, 6, NULL, NULL, 0, 0, 1, &out);
    assert_int_equal(out.len, 4);
    run(t, ids, 6, NULL, NULL, 0, 0, 0, &out);
    assert_int_equal(out.len, 11);
    assert_memory_equal(out.p, "<s> a a</s>", 11);
    const token_id spaces[] = {piece("▁▁"), piece("a"), piece("▁a")}; // only the first byte
    run(t, spaces, 3, NULL, NULL, 0, 1, 1, &out);
    assert_int_equal(out.len, 4);
    assert_memory_equal(out.p, " a a", 4);
    const token_id none[] = {piece("a"), piece("▁a")};
    run(t, none, 2, NULL, NULL, 0, 1, 1, &out);
    assert_memory_equal(out.p, "a a", 3);
    tokenizer_free(t);
}

// ---- random streams

static uint64_t rng = 88172645463325252u;
static uint32_t rnd(uint32_t n) {
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (uint32_t)(rng >> 32) % n;
}

// The same in one pass over all bytes: find the stop that ends behind the first `from`, cut, replace.
static void reference(const char *bytes, size_t n, size_t from, const char *const *stops, const size_t *lens,
                      int num_stops, struct text *out) {
    size_t keep = n;
    out->stop = -1;
    for (size_t end = from + 1; end <= n && out->stop < 0; end++)
        for (int s = 0; s < num_stops && out->stop < 0; s++)
            if (lens[s] > 0 && lens[s] <= end && memcmp(bytes + end - lens[s], stops[s], lens[s]) == 0) {
                out->stop = s;
                keep = keeps_stops ? end : end - lens[s];
            }
    out->len = 0;
    for (size_t i = 0; i < keep;) {
        int whole = utf8_len((const unsigned char *)bytes + i, keep - i);
        size_t take = whole ? (size_t)whole : 1;
        if (!whole) { // the longest beginning of a valid sequence, or one byte
            for (size_t k = 2; k <= 3 && i + k <= keep; k++) {
                int begins = 0;
                for (unsigned a = 0x80; a < 0xc0 && !begins; a++)
                    for (unsigned b = 0x80; b < 0xc0 && !begins; b += 0x3f) {
                        unsigned char whole_seq[4];
                        memcpy(whole_seq, bytes + i, k);
                        whole_seq[k] = (unsigned char)a;
                        if (k < 3)
                            whole_seq[k + 1] = (unsigned char)b;
                        int l = utf8_len(whole_seq, k < 3 ? 4 : k + 1);
                        begins = l > (int)k;
                    }
                if (begins)
                    take = k;
            }
        }
        memcpy(out->p + out->len, whole ? bytes + i : FFFD, whole ? take : 3);
        out->len += whole ? take : 3;
        i += take;
    }
}

// Random tokens; the same bytes as single byte tokens; and the reference: all give the same text and stop.
TEST(test_any_split) {
    static struct text want, got;
    struct tokenizer *t = make();
    int stopped = 0;
    for (int round = 0; round < 20000; round++) {
        token_id ids[64], singles[1024];
        char bytes[1024], stop_bytes[4][16];
        const char *stops[4];
        size_t lens[4], n = rnd(40), len = 0, from = 0, min = rnd(2) ? rnd(20) : 0;
        uint32_t mode = rnd(3); // few letters make many stops; bytes of UTF-8 make many broken sequences
        for (size_t i = 0; i < n; i++) {
            ids[i] = mode == 0   ? PIECE + (token_id)rnd(5)
                     : mode == 1 ? PIECE + (token_id)rnd(NUM_PIECES)
                                 : BYTE + (token_id)(rnd(2) ? 0x80 + rnd(128)
                                                            : "\xc3\xe2\xf0\xed\xe0\xf4"[rnd(6)] & 255);
            size_t l;
            const char *p = tokenizer_bytes(t, ids[i], false, &l);
            memcpy(bytes + len, p, l);
            len += l;
            from = i < min ? len : from;
        }
        keeps_stops = rnd(3) == 0;
        for (size_t i = 0; i < len; i++)
            singles[i] = BYTE + (unsigned char)bytes[i];
        int num_stops = (int)rnd(5);
        for (int s = 0; s < num_stops; s++) {
            stops[s] = stop_bytes[s];
            lens[s] = 1 + rnd(6);
            size_t at = len > lens[s] ? rnd((uint32_t)(len - lens[s])) : 0;
            for (size_t k = 0; k < lens[s]; k++)
                stop_bytes[s][k] = rnd(3) && at + k < len ? bytes[at + k] : (char)("ab"[rnd(2)]);
        }
        reference(bytes, len, from, stops, lens, num_stops, &want);
        for (int k = 0; k < 2; k++) {
            min_tokens = (int)(k ? from : min);
            run(t, k ? singles : ids, k ? len : n, stops, lens, num_stops, 0, 1, &got);
            if (got.stop != want.stop || got.len != want.len || memcmp(got.p, want.p, got.len) != 0)
                fail_msg("round %d, %s: stop %d, want %d; got '%.*s', want '%.*s'", round,
                         k ? "bytes" : "tokens", got.stop, want.stop, (int)got.len, got.p, (int)want.len,
                         want.p);
        }
        stopped += want.stop >= 0;
    }
    min_tokens = 0;
    keeps_stops = false;
    printf("  20000 streams, %d stopped\n", stopped);
    assert_in_range(stopped, 4000, 16000);
    tokenizer_free(t);
}

// 32 stops of 1,024 bytes that nearly match all the time: still linear.
TEST(test_worst_case) {
    struct tokenizer *t = make();
    static char bytes[DETOK_MAX_STOPS][DETOK_MAX_STOP_LEN];
    const char *stops[DETOK_MAX_STOPS], *text;
    size_t lens[DETOK_MAX_STOPS], len, total = 0;
    for (int i = 0; i < DETOK_MAX_STOPS; i++) {
        memset(bytes[i], 'a', sizeof bytes[i]);
        bytes[i][sizeof bytes[i] - 1 - (size_t)i] = 'b';
        stops[i] = bytes[i];
        lens[i] = sizeof bytes[i];
    }
    clock_t begin = clock();
    struct detok *d = detok_new(&(struct detok_params){
        .tokenizer = t, .stops = stops, .stop_lens = lens, .num_stops = DETOK_MAX_STOPS});
    assert_non_null(d);
    for (int i = 0; i < 100000; i++) {
        assert_false(detok_push(d, piece("aa"), &text, &len));
        total += len;
    }
    detok_finish(d, &text, &len);
    assert_int_equal(total + len, 200000);
    detok_free(d);
    double s = (double)(clock() - begin) / CLOCKS_PER_SEC;
    printf("  200000 bytes against 32 stops: %.3f s\n", s);
    assert_true(s < 10);
    tokenizer_free(t);
}

int main(void) { return run_all_tests(NULL, NULL); }
