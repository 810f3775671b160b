// Text to ids: special tokens are found first, what lies between them goes to the algorithm of the vocabulary
// (tokenizer_spm.c, tokenizer_bpe.c). Loading is in tokenizer_load.c.
#include "tokenizer_internal.h"

#include "name_list.h"
#include "normalizer.h"
#include "tokenizer_kind.h"
#include "tokenizer_pre.h"
#include "utf8.h"

#include <ctype.h>
#include <stdlib.h>

// ---- ids

void token_buf_free(struct token_buf *b) {
    free(b->ids);
    *b = (struct token_buf){0};
}

enum status token_reserve(struct token_buf *b, size_t more) {
    if (more <= b->cap - b->len)
        return STATUS_OK;
    size_t cap = b->cap + b->cap / 2 + 64;
    cap = cap < b->len + more ? b->len + more : cap;
    token_id *ids = cap <= SIZE_MAX / sizeof *ids ? realloc(b->ids, cap * sizeof *ids) : NULL;
    if (!ids)
        return STATUS_NOMEM;
    b->ids = ids;
    b->cap = cap;
    return STATUS_OK;
}

enum status token_push(struct token_buf *b, token_id id) {
    if (token_reserve(b, 1))
        return STATUS_NOMEM;
    b->ids[b->len++] = id;
    return STATUS_OK;
}

// ---- special tokens in text

token_id find_special(const struct tokenizer *t, const char *text, size_t len, unsigned with,
                      unsigned without, size_t *match_len) {
    struct name_range r = name_list_all(&t->found);
    token_id match = -1;
    for (size_t i = 0; i < len && r.lo < r.hi; i++) {
        token_id id = name_list_step(&t->found, t, &r, (unsigned char)text[i]);
        if (id >= 0 && (t->tokens[id].flags & with) == with && !(t->tokens[id].flags & without)) {
            match = id;
            *match_len = i + 1;
        }
    }
    return match;
}

// As Unicode has it.
static bool is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
           c == 0x3000;
}

size_t space_at_start(const char *text, size_t len) {
    size_t i = 0, n;
    while (i < len && utf8_len((const unsigned char *)text + i, len - i) > 0 &&
           is_space(utf8_decode(text + i, &n)))
        i += n;
    return i;
}

size_t space_at_end(const char *text, size_t len) {
    size_t end = len, n = 0;
    for (size_t i = len; i > 0;) {
        i--;
        if (utf8_continues(text[i]) && end - i < 4)
            continue;
        if (utf8_len((const unsigned char *)text + i, end - i) != (int)(end - i) ||
            !is_space(utf8_decode(text + i, &n)))
            break;
        end = i;
    }
    return len - end;
}

// Whether a letter or digit stands next to text[begin, end). Characters beyond ASCII count as letters, unless they are white
// space.
static bool is_part_of_word(const char *text, size_t len, size_t begin, size_t end) {
    const unsigned char before = begin ? (unsigned char)text[begin - 1] : ' ',
                        after = end < len ? (unsigned char)text[end] : ' ';
    return (before >= 0x80 ? space_at_end(text, begin) == 0 : isalnum(before) || before == '_') ||
           (after >= 0x80 ? space_at_start(text + end, len - end) == 0 : isalnum(after) || after == '_');
}

// A stretch without special tokens.
static enum status encode_stretch(const struct tokenizer *t, struct text_view text, bool first,
                                  struct token_buf *out) {
    struct buf normal = {0};
    if (text.len == 0)
        return STATUS_OK;
    if (!t->normalizer)
        return t->kind->encode(t, text.data, text.len, first, out);
    enum status st = normalizer_apply(t->normalizer, text, &normal);
    if (st == STATUS_OK && normal.len)
        st = t->kind->encode(t, normal.data, normal.len, first, out);
    buf_free(&normal);
    return st;
}

static enum status encode_text(const struct tokenizer *t, const char *text, size_t len, unsigned flags,
                               struct token_buf *out) {
    unsigned without = (flags & TOKENIZE_PARSE_SPECIAL) ? 0 : TOKEN_GUARDED;
    size_t start = 0;
    for (size_t i = 0; i <= len;) {
        size_t match_len = 0;
        token_id id = -1;
        if (i < len) {
            id = find_special(t, text + i, len - i, 0, without, &match_len);
            if (id < 0 ||
                ((t->tokens[id].flags & TOKEN_WORD) && is_part_of_word(text, len, i, i + match_len))) {
                i += id < 0 ? 1 : match_len;
                continue;
            }
        }
        size_t end = i;
        if (id >= 0 && (t->tokens[id].flags & TOKEN_LSTRIP))
            end -= space_at_end(text + start, i - start);
        bool first = start == 0 && !(flags & TOKENIZE_CONTINUES);
        enum status status = encode_stretch(t, (struct text_view){text + start, end - start}, first, out);
        if (status != STATUS_OK)
            return status;
        if (id < 0)
            break;
        if (token_push(out, id))
            return STATUS_NOMEM;
        start = i += match_len;
        if (t->tokens[id].flags & TOKEN_RSTRIP)
            start = i += space_at_start(text + i, len - i);
    }
    return STATUS_OK;
}

static enum status push_frame(const struct token_frame *frame, unsigned flags, struct token_buf *out) {
    enum status st = STATUS_OK;
    for (int i = 0; !st && i < frame->num && (flags & TOKENIZE_ADD_SPECIAL); i++)
        st = token_push(out, frame->ids[i]);
    return st;
}

enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, unsigned flags,
                             struct token_buf *out) {
    enum status st = push_frame(&t->before, flags, out);
    st = st ? st : encode_text(t, text, len, flags, out);
    return st ? st : push_frame(&t->after, flags, out);
}

enum status tokenizer_encode_pair(const struct tokenizer *t, const char *a, size_t a_len, const char *b,
                                  size_t b_len, unsigned flags, struct token_buf *out, size_t *second) {
    enum status st =
        t->no_pairs && (flags & TOKENIZE_ADD_SPECIAL) ? STATUS_INVALID : push_frame(&t->before, flags, out);
    st = st ? st : encode_text(t, a, a_len, flags, out);
    st = st ? st : push_frame(&t->between, flags, out);
    *second = out->len;
    st = st ? st : encode_text(t, b, b_len, flags, out);
    return st ? st : push_frame(&t->after, flags, out);
}

void tokenizer_free(struct tokenizer *t) {
    if (!t)
        return;
    free(t->tokens);
    free(t->text);
    free(t->chat_template);
    free(t->tool_template);
    name_list_free(&t->found);
    name_list_free(&t->names);
    free(t->scores);
    normalizer_free(t->normalizer);
    free(t->slots);
    free(t->merges);
    free(t->whole);
    pretokenizer_free(t->pre);
    free(t);
}

// ---- facts

static const struct token_entry *entry_of(const struct tokenizer *t, token_id id) {
    return id >= 0 && id < t->num_tokens ? &t->tokens[id] : NULL;
}

size_t tokenizer_max_bytes(const struct tokenizer *t) { return t->max_token_len > 1 ? t->max_token_len : 1; }

int tokenizer_vocab(const struct tokenizer *t) { return t->num_tokens; }
const struct fim_tokens *tokenizer_fim(const struct tokenizer *t) { return t->fills_in ? &t->fim : NULL; }
token_id tokenizer_bos(const struct tokenizer *t) { return t->bos; }
token_id tokenizer_eos(const struct tokenizer *t) { return t->eos; }
bool tokenizer_adds_bos(const struct tokenizer *t) { return t->add_bos && t->bos >= 0; }

bool tokenizer_is_end(const struct tokenizer *t, token_id id) {
    const struct token_entry *e = entry_of(t, id);
    return e && (e->flags & TOKEN_END);
}

bool tokenizer_is_special(const struct tokenizer *t, token_id id) {
    const struct token_entry *e = entry_of(t, id);
    return e && (e->flags & TOKEN_SPECIAL);
}

int tokenizer_ends(const struct tokenizer *t, token_id *ids, int max) {
    int n = 0;
    for (int i = 0; i < t->num_tokens && n < max; i++)
        if (t->tokens[i].flags & TOKEN_END)
            ids[n++] = i;
    return n;
}

const char *tokenizer_name(const struct tokenizer *t, token_id id, size_t *len) {
    const struct token_entry *e = entry_of(t, id);
    *len = e ? e->name_len : 0;
    return e ? t->text + e->name : "";
}

const char *tokenizer_bytes(const struct tokenizer *t, token_id id, bool special, size_t *len) {
    const struct token_entry *e = entry_of(t, id);
    bool hidden = !e || (!special && (e->flags & TOKEN_SPECIAL));
    *len = hidden ? 0 : e->bytes_len;
    return hidden ? "" : t->text + e->bytes;
}

const char *tokenizer_chat_template(const struct tokenizer *t, size_t *len) {
    *len = t->chat_template_len;
    return t->chat_template;
}

const char *tokenizer_tool_template(const struct tokenizer *t, size_t *len) {
    *len = t->tool_template_len;
    return t->tool_template;
}
