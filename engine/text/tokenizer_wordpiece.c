// WordPiece, as in BERT: from its start on, a word is cut into the longest pieces there are; a word that has none is
// unknown. Files mark what continues a word ("##s", tokenizer.json) or what begins one ("▁the", GGUF).
#include "name_list.h"
#include "tokenizer_pieces.h"
#include "tokenizer_pre.h"
#include "tokenizer_prepare.h"
#include "utf8.h"

#include <stdlib.h>

#define SPACE "\xe2\x96\x81" // U+2581
#define PUNCTUATION "[\\p{P}!-/:-@\\[-`{-~]"

enum { MAX_WORD_CHARS = 100 };

static bool begins_with(struct text_view s, const char *prefix) {
    size_t n = strlen(prefix);
    return s.len >= n && memcmp(s.data, prefix, n) == 0;
}

// ---- text

struct wordpiece_encoder {
    const struct tokenizer *t;
    struct token_buf *out;
};

// The longest piece that the word goes on with; 0: none.
static size_t longest_piece(const struct tokenizer *t, const char *mark, const char *word, size_t len,
                            token_id *id) {
    struct name_range r = name_list_all(&t->names);
    size_t found = 0;
    for (; *mark; mark++)
        name_list_step(&t->names, t, &r, (unsigned char)*mark);
    for (size_t i = 0; i < len && r.lo < r.hi; i++) {
        token_id next = name_list_step(&t->names, t, &r, (unsigned char)word[i]);
        if (next >= 0 && !(i + 1 < len && utf8_continues(word[i + 1]))) {
            *id = next;
            found = i + 1;
        }
    }
    return found;
}

static enum status encode_word(void *arg, const char *word, size_t len) {
    const struct wordpiece_encoder *e = arg;
    const struct tokenizer *t = e->t;
    size_t begin = e->out->len, chars = 0;
    bool known = true;
    for (size_t i = 0; i < len; i++)
        chars += !utf8_continues(word[i]);
    known = chars <= t->max_word_chars;
    for (size_t at = 0, n; known && at < len; at += n) {
        token_id id;
        n = longest_piece(t, t->marks[at > 0], word + at, len - at, &id);
        known = n > 0;
        if (known && token_push(e->out, id))
            return STATUS_NOMEM;
    }
    if (known)
        return STATUS_OK;
    e->out->len = begin;
    return t->unk >= 0 ? token_push(e->out, t->unk) : STATUS_OK;
}

static enum status wordpiece_encode(const struct tokenizer *t, const char *text, size_t len, bool first,
                                    struct token_buf *out) {
    struct wordpiece_encoder e = {t, out};
    return pretokenizer_cut(t->pre, text, len, first, encode_word, &e);
}

// ---- loading

// A token that begins a word adds a space before it, except the signs that the tokenizers library writes without one.
static size_t begin_word(struct text_view name, char *dst) {
    static const char *const close[] = {".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"};
    bool spaced = true;
    for (size_t i = 0; i < sizeof close / sizeof close[0]; i++)
        spaced = spaced && !begins_with(name, close[i]);
    if (spaced)
        *dst++ = ' ';
    memcpy(dst, name.data, name.len);
    return spaced + name.len;
}

static size_t continue_word(struct text_view name, char *dst) {
    memcpy(dst, name.data, name.len);
    return name.len;
}

static size_t gguf_bytes(struct text_view name, char *dst) {
    if (!begins_with(name, SPACE))
        return continue_word(name, dst);
    return begin_word((struct text_view){name.data + 3, name.len - 3}, dst);
}

static size_t json_bytes(struct text_view name, char *dst) {
    if (!begins_with(name, "##"))
        return begin_word(name, dst);
    return continue_word((struct text_view){name.data + 2, name.len - 2}, dst);
}

static bool load_wordpiece(struct vocab_loader *l) {
    struct tokenizer *t = l->t;
    int64_t chars = MAX_WORD_CHARS;
    t->add_space_prefix = true; // the first word of a text has a space that is not the text's
    if (meta_int(l->f, "tokenizer.quire.max_word_chars", false, 1, 1 << 20, &chars, l->err))
        return false;
    t->max_word_chars = (size_t)chars;
    if (t->max_token_len < 4 * t->max_word_chars) // a whole word may be one token, the unknown one
        t->max_token_len = 4 * t->max_word_chars;
    return load_names(l);
}

// BERT's own preparation of texts.
static bool load_gguf(struct vocab_loader *l) {
    struct text_view words[8] = {view("CleanText"), view("SpaceChinese")};
    static const char *const keys[] = {"tokenizer.ggml.normalizer.strip_accents",
                                       "tokenizer.ggml.normalizer.lowercase"};
    bool wanted[] = {true, true};
    int n = 2;
    for (int i = 0; i < 2; i++)
        if (meta_bool(l->f, keys[i], &wanted[i], l->err))
            return false;
    if (wanted[0]) {
        words[n++] = view("NFD");
        words[n++] = view("StripAccents");
    }
    if (wanted[1])
        words[n++] = view("Lowercase");
    struct text_view cuts[] = {view("Split"), view("Removed"),  view("\\s+"),
                               view("Split"), view("Isolated"), view(PUNCTUATION)};
    l->t->marks[0] = SPACE;
    l->t->marks[1] = "";
    l->t->normalizer = normalizer_open(l->f, words, n, l->err);
    l->t->pre = l->t->normalizer ? pretokenizer_of(l->f, cuts, 6, l->err) : NULL;
    return l->t->pre && load_wordpiece(l);
}

static bool load_json(struct vocab_loader *l) {
    l->t->marks[0] = "";
    l->t->marks[1] = "##";
    return load_preparation(l) && load_wordpiece(l);
}

const struct tokenizer_kind tokenizer_wordpiece = {.name = "bert",
                                                   .bos = 101,
                                                   .eos = 102,
                                                   .unk = 100,
                                                   .begins = "tokenizer.ggml.cls_token_id",
                                                   .ends = "tokenizer.ggml.seperator_token_id",
                                                   .add_bos = true,
                                                   .add_eos = true,
                                                   .token_bytes = gguf_bytes,
                                                   .load = load_gguf,
                                                   .encode = wordpiece_encode};
const struct tokenizer_kind tokenizer_wordpiece_json = {.name = "wordpiece",
                                                        .bos = -1,
                                                        .eos = -1,
                                                        .unk = -1,
                                                        .token_bytes = json_bytes,
                                                        .load = load_json,
                                                        .encode = wordpiece_encode};
