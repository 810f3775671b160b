// Byte-level byte-pair encoding (Sennrich, Haddow and Birch, "Neural Machine Translation of Rare Words with
// Subword Units", 2016; over bytes as in GPT-2): a text is cut into words (tokenizer_pre.c), a word into
// bytes, and of all neighbours the pair of the lowest rank in the list of merges is merged, the left-most of
// equals, until none is left.
//
// A vocabulary spells bytes as characters: printable Latin-1 as itself, the other 68 bytes in order as U+0100
// and on. Inside there are only bytes.
#include "tokenizer_pieces.h"

#include "hash.h"
#include "merge_heap.h"
#include "tokenizer_pre.h"
#include "utf8.h"

#include <stdlib.h>

enum {
    SMALL_WORD = 32,      // symbols; up to here scanning for the best pair beats a heap
    MAX_MERGES = 1 << 23, // ranks are exact as floats
};

// ---- merging

static uint32_t merge_hash(const struct tokenizer *t, token_id left, token_id right) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    return (uint32_t)hash_mix(key ^ t->seed, 0x9e3779b97f4a7c15u ^ (t->seed >> 7)) & t->merge_mask;
}

// The slot of what two neighbours become, or the free one where it would be.
static struct merge_slot *merge_slot(const struct tokenizer *t, token_id left, token_id right) {
    uint32_t s = merge_hash(t, left, right);
    while (t->merges[s].id >= 0 && !(t->merges[s].left == left && t->merges[s].right == right))
        s = (s + 1) & t->merge_mask;
    return &t->merges[s];
}

// What two neighbours become, or NULL.
static const struct merge_slot *find_merge(const struct tokenizer *t, token_id left, token_id right) {
    const struct merge_slot *s = merge_slot(t, left, right);
    return s->id >= 0 ? s : NULL;
}

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
    return n;
}

// Merges n symbols in place, scanning for the best pair; returns how many are left.
static size_t merge_small(const struct tokenizer *t, token_id *ids, size_t n) {
    const struct merge_slot *pair[SMALL_WORD]; // of symbol i and the next, or NULL
    for (size_t i = 0; i + 1 < n; i++)
        pair[i] = find_merge(t, ids[i], ids[i + 1]);
    for (;;) {
        size_t best = n;
        int32_t rank = INT32_MAX;
        for (size_t i = 0; i + 1 < n; i++)
            if (pair[i] && pair[i]->rank < rank) {
                best = i;
                rank = pair[i]->rank;
            }
        if (best == n)
            return n;
        ids[best] = pair[best]->id;
        memmove(ids + best + 1, ids + best + 2, (n - best - 2) * sizeof *ids);
        if (best + 2 < n)
            memmove(pair + best, pair + best + 1, (n - best - 2) * sizeof *pair);
        n--;
        if (best > 0)
            pair[best - 1] = find_merge(t, ids[best - 1], ids[best]);
        if (best + 1 < n)
            pair[best] = find_merge(t, ids[best], ids[best + 1]);
    }
}

struct bpe_symbol {
    token_id id; // -1: merged into the one before
    int32_t prev, next;
};
struct bpe_merger {
    const struct tokenizer *t;
    struct bpe_symbol *symbols;
    struct merge_heap heap;
};

static void pair_push(struct bpe_merger *m, int32_t left) {
    int32_t right = left < 0 ? -1 : m->symbols[left].next;
    if (right < 0)
        return;
    const struct merge_slot *s = find_merge(m->t, m->symbols[left].id, m->symbols[right].id);
    if (!s)
        return;
    merge_heap_push(&m->heap, (struct merge_pair){-(float)s->rank, left, (uint32_t)(s - m->t->merges)});
}

// The same merges in the same order, from a heap; n log n for n symbols. Merges ids in place; *n: how many.
static enum status merge_large(const struct tokenizer *t, token_id *ids, size_t *n) {
    struct bpe_merger m = {.t = t};
    enum status st = STATUS_NOMEM;
    if (*n > INT32_MAX)
        return STATUS_NOMEM;
    m.symbols = malloc(*n * sizeof *m.symbols);
    m.heap.pairs = malloc(3 * *n * sizeof *m.heap.pairs);
    if (!m.symbols || !m.heap.pairs)
        goto fail;
    int32_t count = (int32_t)*n;
    for (int32_t i = 0; i < count; i++)
        m.symbols[i] = (struct bpe_symbol){ids[i], i - 1, i + 1 < count ? i + 1 : -1};
    for (int32_t i = 0; i < count; i++)
        pair_push(&m, i);
    while (m.heap.num > 0) {
        struct merge_pair pair = merge_heap_pop(&m.heap);
        const struct merge_slot *merge = &t->merges[pair.what];
        struct bpe_symbol *left = &m.symbols[pair.left];
        if (left->id != merge->left || left->next < 0 || m.symbols[left->next].id != merge->right)
            continue; // one of them has been merged with another
        struct bpe_symbol *right = &m.symbols[left->next];
        left->id = merge->id;
        left->next = right->next;
        right->id = -1;
        if (left->next >= 0)
            m.symbols[left->next].prev = pair.left;
        pair_push(&m, left->prev);
        pair_push(&m, pair.left);
    }
    *n = 0;
    for (int32_t i = 0; i >= 0; i = m.symbols[i].next)
        ids[(*n)++] = m.symbols[i].id;
    st = STATUS_OK;
fail:
    free(m.symbols);
    free(m.heap.pairs);
    return st;
}

static enum status merge_word(const struct tokenizer *t, const char *word, size_t len,
                              struct token_buf *out) {
    if (len > SIZE_MAX / 3 || token_reserve(out, 3 * len))
        return STATUS_NOMEM;
    token_id *ids = out->ids + out->len;
    size_t n = byte_tokens(t, word, len, ids);
    if (n <= SMALL_WORD)
        n = merge_small(t, ids, n);
    else if (merge_large(t, ids, &n))
        return STATUS_NOMEM;
    out->len += n;
    return STATUS_OK;
}

// ---- text

struct encoder {
    const struct tokenizer *t;
    struct token_buf *out;
};

static enum status encode_word(void *arg, const char *word, size_t len) {
    const struct encoder *e = arg;
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
    struct encoder e = {t, out};
    (void)first;
    return pretokenizer_cut(t->pre, text, len, encode_word, &e);
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
    size_t n = decode_name((struct text_view){t->text + e->name, e->name_len}, scratch, &sound);
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
    return true;
}

static bool load_merge(struct vocab_loader *l, struct text_view s, int32_t rank, char *scratch) {
    struct tokenizer *t = l->t;
    const char *space = s.len > 2 ? memchr(s.data + 1, ' ', s.len - 2) : NULL;
    bool sound_left = false, sound_right = false;
    size_t left_len = 0, len = 0;
    token_id left = -1, right = -1, id = -1;
    if (space) {
        size_t n = (size_t)(space - s.data);
        left_len = decode_name((struct text_view){s.data, n}, scratch, &sound_left);
        len = left_len +
              decode_name((struct text_view){space + 1, s.len - n - 1}, scratch + left_len, &sound_right);
    }
    if (sound_left && sound_right) {
        left = find_piece(t, scratch, left_len);
        right = find_piece(t, scratch + left_len, len - left_len);
        id = find_piece(t, scratch, len);
    }
    if (left < 0 || right < 0 || id < 0) {
        model_file_bad(l->f, l->err, "merge %d ('%.*s') of tokenizer.ggml.merges %s", rank,
                       (int)(s.len < 64 ? s.len : 64), s.data,
                       space ? "names or makes a token that is not in the vocabulary"
                             : "is not two tokens with a space between");
        return false;
    }
    struct merge_slot *slot = merge_slot(t, left, right);
    if (slot->id < 0) // the first counts
        *slot = (struct merge_slot){left, right, id, rank};
    return true;
}

static bool load_merges(struct vocab_loader *l, char *scratch) {
    struct tokenizer *t = l->t;
    struct meta_array merges;
    if (meta_array(l->f, "tokenizer.ggml.merges", true, META_STRING, &merges, l->err))
        return false;
    if (merges.count > MAX_MERGES) {
        model_file_bad(l->f, l->err, "key tokenizer.ggml.merges has %llu merges, expected at most %d",
                       (unsigned long long)merges.count, MAX_MERGES);
        return false;
    }
    uint32_t size = 4;
    while (size < merges.count + merges.count / 2)
        size *= 2;
    t->merge_mask = size - 1;
    t->merges = malloc(size * sizeof *t->merges);
    if (!t->merges) {
        err_set(l->err, STATUS_NOMEM, "%s: out of memory for %llu merges", l->f->name,
                (unsigned long long)merges.count);
        return false;
    }
    memset(t->merges, 0xff, size * sizeof *t->merges);
    for (uint64_t i = 0; i < merges.count; i++) {
        struct text_view s = meta_next_str(&merges);
        if (s.len > 2 * t->max_token_len + 1) // also keeps it inside scratch
            s.len = 0;
        if (!load_merge(l, s, (int32_t)i, scratch))
            return false;
    }
    return true;
}

static bool load_bpe(struct vocab_loader *l) {
    struct tokenizer *t = l->t;
    t->add_space_prefix = false; // SentencePiece's, whatever the file says
    char *scratch = malloc(2 * t->max_token_len + 2);
    if (!scratch) {
        err_set(l->err, STATUS_NOMEM, "%s: out of memory for the merges", l->f->name);
        return false;
    }
    for (int i = 0; i < t->num_tokens; i++)
        if (is_mergeable(t, &t->tokens[i], scratch))
            t->tokens[i].flags |= TOKEN_PIECE;
    bool ok = load_pieces(l) && load_bytes(l) && load_merges(l, scratch);
    free(scratch);
    t->pieces_are_whole = pretokenizer_ignores_merges(t->pre);
    if (ok && !t->pieces_are_whole && !(t->whole = calloc((size_t)t->num_tokens, sizeof *t->whole))) {
        err_set(l->err, STATUS_NOMEM, "%s: out of memory for the merges", l->f->name);
        return false;
    }
    return ok;
}

const struct tokenizer_kind tokenizer_bpe = {
    .name = "gpt2", .byte_level = true, .token_bytes = bpe_bytes, .load = load_bpe, .encode = bpe_encode};
