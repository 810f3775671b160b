// Segments to ids: control tokens come from the template's words only, BOS comes once, and text goes on across
// segments.
#include "harness.h"

#include "jinja/chat.h"
#include "text.h"
#include "vocabularies.h"

static struct tokenizer *tokenizer;

static int open_tokenizer(void **state) {
    (void)state;
    struct err err = {0};
    tokenizer = tokenizer_open(QUIRE_SOURCE_DIR "/models/quire-tiny.gguf", &err);
    return tokenizer ? 0 : -1;
}

static int close_tokenizer(void **state) {
    (void)state;
    tokenizer_free(tokenizer);
    return 0;
}

static struct chat_segment segment(const char *text, size_t len, bool content) {
    return (struct chat_segment){.text = text, .len = len, .content = content};
}

static struct token_buf encoded(const struct chat_segment *segments, size_t n) {
    struct token_buf out = {0};
    assert_int_equal(text_encode(tokenizer, segments, n, &out), STATUS_OK);
    return out;
}

static int count_special(const struct token_buf *b) {
    int n = 0;
    for (size_t i = 0; i < b->len; i++)
        n += tokenizer_is_special(tokenizer, b->ids[i]);
    return n;
}

// Every control token's name, as the template's words and as a client's.
TEST(test_controls) {
    int controls = 0, adds = tokenizer_adds_bos(tokenizer);
    for (token_id id = 0; id < tokenizer_vocab(tokenizer); id++) {
        size_t len;
        const char *name = tokenizer_name(tokenizer, id, &len);
        if (!tokenizer_is_special(tokenizer, id) || len == 0)
            continue;
        const struct chat_segment own[] = {segment("a", 1, true), segment(name, len, false),
                                           segment("b", 1, true)};
        const struct chat_segment client[] = {segment("a", 1, false), segment(name, len, true)};
        const struct chat_segment cut[] = {segment(name, len - 1, false), segment(name + len - 1, 1, true)};
        struct token_buf b = encoded(own, 3);
        assert_int_equal(count_special(&b), 1 + adds);
        bool found = false;
        for (size_t i = 0; i < b.len; i++)
            found |= b.ids[i] == id;
        assert_true(found);
        token_buf_free(&b);
        b = encoded(client, 2);
        assert_int_equal(count_special(&b), adds);
        token_buf_free(&b);
        b = encoded(cut, 2); // a name that a client completes
        assert_int_equal(count_special(&b), adds);
        token_buf_free(&b);
        controls++;
    }
    assert_true(controls >= 2);
}

// The ids of a text do not depend on its division into parts.
TEST(test_joined) {
    static const char text[] = "Once upon a time there was a little girl";
    size_t len = strlen(text);
    struct token_buf want = {0};
    assert_int_equal(tokenizer_encode(tokenizer, text, len, TOKENIZE_ADD_SPECIAL, &want), STATUS_OK);
    for (size_t at = 1; at < len; at++) {
        const struct chat_segment parts[] = {segment(text, at, at % 2),
                                             segment(text + at, len - at, at % 3 == 0)};
        struct token_buf got = encoded(parts, 2);
        assert_int_equal(got.len, want.len);
        assert_memory_equal(got.ids, want.ids, want.len * sizeof *want.ids);
        token_buf_free(&got);
    }
    token_buf_free(&want);
}

TEST(test_bos_once) {
    struct tokenizer *t = open_vocab(GGML "llama-spm.gguf"); // adds one
    size_t len;
    token_id bos = tokenizer_bos(t);
    const char *name = tokenizer_name(t, bos, &len);
    assert_true(tokenizer_adds_bos(t) && len > 0);
    for (int written = 0; written < 2; written++) {
        const struct chat_segment parts[] = {segment(name, written ? len : 0, false), segment("x", 1, true)};
        struct token_buf b = {0};
        assert_int_equal(text_encode(t, parts, 2, &b), STATUS_OK);
        assert_true(b.len > 1 && b.ids[0] == bos && b.ids[1] != bos);
        token_buf_free(&b);
    }
    const struct chat_segment client = segment(name, len, true); // a client's is letters
    struct token_buf b = {0};
    assert_int_equal(text_encode(t, &client, 1, &b), STATUS_OK);
    assert_true(b.len > 2 && b.ids[0] == bos && b.ids[1] != bos);
    token_buf_free(&b);
    assert_int_equal(text_encode(t, NULL, 0, &b), STATUS_OK);
    assert_int_equal(b.len, 1);
    token_buf_free(&b);
    tokenizer_free(t);
}

int main(void) { return run_all_tests(open_tokenizer, close_tokenizer); }
