// Byte-level byte-pair encoding, as in GPT-2: a text is cut into words (tokenizer_pre.c), a word into bytes, which
// merge (tokenizer_merges.c).
//
// A vocabulary spells bytes as characters: printable Latin-1 as itself, the other 68 bytes in order as U+0100
// and on. Inside there are only bytes.
#include "tokenizer_merges.h"

#include "tokenizer_prepare.h"
#include "utf8.h"

#include <stdlib.h>

// CLIP's vocabularies have other tokens for the end of a word, spelled with </w> behind; inside it is a space, which no word
// has.
#define WORD_END "</w>"

// The tokens of the bytes of a word. Vocabularies lack tokens for bytes that UTF-8 never or hardly uses
// (StarCoder's for 0xF1); such a byte becomes U+FFFD, whose bytes have theirs (load_bytes() checks). ids has
// room for 3 * len. Returns how many.
static size_t byte_tokens(const struct tokenizer *t, const char *word, size_t len, token_id *ids) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        token_id id = t->byte_ids[(unsigned char)word[i]];
        if (id >= 0) {
            ids[n++] = id;
            continue;
        }
        ids[n++] = t->byte_ids[0xef];
        ids[n++] = t->byte_ids[0xbf];
        ids[n++] = t->byte_ids[0xbd];
    }
    if (t->kind == &tokenizer_clip && len > 0)
        ids[n - 1] = find_piece(t, (char[]){word[len - 1], ' '}, 2);
    return n;
}

static enum status merge_word(const struct tokenizer *t, const char *word, size_t len,
                              struct token_buf *out) {
    if (len > SIZE_MAX / 3 || token_reserve(out, 3 * len))
        return STATUS_NOMEM;
    token_id *ids = out->ids + out->len;
    size_t n = byte_tokens(t, word, len, ids);
    if (merge_symbols(t, ids, &n))
        return STATUS_NOMEM;
    out->len += n;
    return STATUS_OK;
}

// ---- text

struct bpe_encoder {
    const struct tokenizer *t;
    struct token_buf *out;
};

static enum status encode_word(void *arg, const char *word, size_t len) {
    const struct bpe_encoder *e = arg;
    const struct tokenizer *t = e->t;
    token_id id = find_piece(t, word, len);
    bool remembers = id >= 0 && t->whole;
    if (id >= 0 &&
        (t->pieces_are_whole || (remembers && atomic_load_explicit(&t->whole[id], memory_order_relaxed))))
        return token_push(e->out, id);
    size_t first = e->out->len;
    if (merge_word(t, word, len, e->out))
        return STATUS_NOMEM;
    if (remembers && e->out->len == first + 1 && e->out->ids[first] == id)
        atomic_store_explicit(&t->whole[id], true, memory_order_relaxed);
    return STATUS_OK;
}

static enum status bpe_encode(const struct tokenizer *t, const char *text, size_t len, bool first,
                              struct token_buf *out) {
    struct bpe_encoder e = {t, out};
    return pretokenizer_cut(t->pre, text, len, first, encode_word, &e);
}

// ---- loading

// The byte that a character of a name stands for, -1: none. n: bytes of the character.
static int byte_of_char(const char *name, size_t n) {
    int cp = n <= 2 ? (int)utf8_decode(name, &n) : 0;
    if ((cp >= 0x21 && cp <= 0x7e) || (cp >= 0xa1 && cp <= 0xff && cp != 0xad))
        return cp;
    int i = cp - 0x100; // 0x00–0x20, 0x7f–0xa0, 0xad
    return i < 0 || i > 67 ? -1 : i < 33 ? i : i < 67 ? i - 33 + 0x7f : 0xad;
}

// A character that stands for no byte stands for itself.
static size_t decode_name(struct text_view name, char *dst, bool *sound) {
    size_t n = 0;
    *sound = name.len > 0;
    for (size_t i = 0, len; i < name.len; i += len) {
        int valid = utf8_len((const unsigned char *)name.data + i, name.len - i);
        len = valid > 0 ? (size_t)valid : 1;
        int byte = valid > 0 ? byte_of_char(name.data + i, len) : -1;
        if (byte >= 0) {
            dst[n++] = (char)byte;
            continue;
        }
        *sound = false;
        memcpy(dst + n, name.data + i, len);
        n += len;
    }
    return n;
}

static size_t decode_clip(struct text_view name, char *dst, bool *sound) {
    size_t end = strlen(WORD_END);
    bool ends = name.len > end && memcmp(name.data + name.len - end, WORD_END, end) == 0;
    size_t n = decode_name((struct text_view){name.data, name.len - (ends ? end : 0)}, dst, sound);
    if (ends)
        dst[n++] = ' ';
    return n;
}

static size_t clip_bytes(struct text_view name, char *dst) {
    bool sound;
    return decode_clip(name, dst, &sound);
}

static merge_decode_fn *decoder_of(const struct tokenizer *t) {
    return t->kind == &tokenizer_clip ? decode_clip : decode_name;
}

static size_t bpe_bytes(struct text_view name, char *dst) {
    bool sound;
    return decode_name(name, dst, &sound);
}

// Tokens that merging may make: not special ones (a user's text must not forge them), and only those spelled
// in the alphabet of bytes. An added token is spelled as it is, so it must mean the same both ways.
static bool is_mergeable(const struct tokenizer *t, const struct token_entry *e, char *scratch) {
    bool sound;
    if ((e->type != TOKEN_NORMAL && e->type != TOKEN_USER_DEFINED) ||
        (e->flags & (TOKEN_SPECIAL | TOKEN_GUARDED)))
        return false;
    size_t n = decoder_of(t)((struct text_view){t->text + e->name, e->name_len}, scratch, &sound);
    return sound && n == e->bytes_len && memcmp(scratch, t->text + e->bytes, n) == 0;
}

static bool load_bytes(struct vocab_loader *l) {
    struct tokenizer *t = l->t;
    for (int b = 0; b < 256; b++) {
        char c = (char)b;
        t->byte_ids[b] = find_piece(t, &c, 1);
    }
    for (const char *c = "\xef\xbf\xbd"; *c; c++)
        if (t->byte_ids[(unsigned char)*c] < 0) {
            model_file_bad(l->f, l->err, "tokenizer.ggml.tokens lacks a token for the byte 0x%02X of U+FFFD",
                           (unsigned char)*c);
            return false;
        }
    for (int b = 0; b < 256 && t->kind == &tokenizer_clip; b++)
        if (t->byte_ids[b] < 0 || find_piece(t, (char[]){(char)b, ' '}, 2) < 0) {
            model_file_bad(l->f, l->err,
                           "the vocabulary lacks a token for the byte 0x%02X, in a word or at its end", b);
            return false;
        }
    return true;
}

static bool load_bpe(struct vocab_loader *l) {
    struct tokenizer *t = l->t;
    t->add_space_prefix = false; // SentencePiece's, whatever the file says
    char *scratch = malloc(t->max_token_len + 1);
    if (!scratch) {
        err_set(l->err, STATUS_NOMEM, "%s: out of memory for the merges", l->f->name);
        return false;
    }
    for (int i = 0; i < t->num_tokens; i++)
        if (is_mergeable(t, &t->tokens[i], scratch))
            t->tokens[i].flags |= TOKEN_PIECE;
    free(scratch);
    bool ok = load_preparation(l) && load_pieces(l) && load_bytes(l) && load_merges(l, decoder_of(t));
    t->pieces_are_whole = pretokenizer_ignores_merges(t->pre);
    if (ok && !t->pieces_are_whole && !(t->whole = calloc((size_t)t->num_tokens, sizeof *t->whole))) {
        err_set(l->err, STATUS_NOMEM, "%s: out of memory for the merges", l->f->name);
        return false;
    }
    return ok;
}

const struct tokenizer_kind tokenizer_bpe = {.name = "gpt2",
                                             .byte_level = true,
                                             .bos = -1,
                                             .eos = -1,
                                             .unk = -1,
                                             .token_bytes = bpe_bytes,
                                             .load = load_bpe,
                                             .encode = bpe_encode};
const struct tokenizer_kind tokenizer_clip = {.name = "clip",
                                              .byte_level = true,
                                              .bos = -1,
                                              .eos = -1,
                                              .unk = -1,
                                              .token_bytes = clip_bytes,
                                              .load = load_bpe,
                                              .encode = bpe_encode};
