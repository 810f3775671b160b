// Byte-level byte-pair encoding (Sennrich, Haddow and Birch, "Neural Machine Translation of Rare Words with
// Subword Units", 2016; over bytes as in GPT-2): a text is cut into words (tokenizer_pre.c), a word into
// bytes, and of all neighbours the pair of the lowest rank in the list of merges is merged, the left-most of
// equals, until none is left.
//
// A vocabulary spells bytes as characters: printable Latin-1 as itself, the other 68 bytes in order as U+0100
// and on. Inside there are only bytes.
#include "tokenizer_internal.h"

#include "hash.h"
#include "tokenizer_pre.h"
#include "utf8.h"

#include <stdlib.h>

enum {
    SMALL_WORD = 32, // symbols; up to here scanning for the best pair beats a heap
    MAX_MERGES = 1 << 23,
};

// ---- merging

static uint32_t merge_hash(const struct tokenizer *t, token_id left, token_id right) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    return (uint32_t)hash_mix(key ^ t->seed, 0x9e3779b97f4a7c15u ^ (t->seed >> 7)) & t->merge_mask;
}

// What two neighbours become, or NULL.
static const struct merge_slot *find_merge(const struct tokenizer *t, token_id left, token_id right) {
    for (uint32_t s = merge_hash(t, left, right); t->merges[s].id >= 0; s = (s + 1) & t->merge_mask)
        if (t->merges[s].left == left && t->merges[s].right == right)
            return &t->merges[s];
    return NULL;
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

struct symbol {
    token_id id; // -1: merged into the one before
    int32_t prev, next;
};
struct pair { // of a heap; out of date once one of the two has another id
    int32_t rank, left;
    token_id left_id, right_id, id;
};
struct merger {
    const struct tokenizer *t;
    struct symbol *symbols;
    struct pair *heap;
    size_t num_pairs;
};

static bool pair_before(struct pair a, struct pair b) {
    return a.rank < b.rank || (a.rank == b.rank && a.left < b.left);
}

// At most one pair per symbol and two per merge are ever pushed; the heap is allocated for symbols * 3.
static void pair_push(struct merger *m, int32_t left) {
    int32_t right = left < 0 ? -1 : m->symbols[left].next;
    if (right < 0)
        return;
    const struct merge_slot *s = find_merge(m->t, m->symbols[left].id, m->symbols[right].id);
    if (!s)
        return;
    struct pair pair = {s->rank, left, s->left, s->right, s->id};
    size_t i = m->num_pairs++;
    for (; i > 0 && pair_before(pair, m->heap[(i - 1) / 2]); i = (i - 1) / 2)
        m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = pair;
}

static struct pair pair_pop(struct merger *m) {
    struct pair top = m->heap[0], last = m->heap[--m->num_pairs];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < m->num_pairs; i = child) {
        if (child + 1 < m->num_pairs && pair_before(m->heap[child + 1], m->heap[child]))
            child++;
        if (!pair_before(m->heap[child], last))
            break;
        m->heap[i] = m->heap[child];
    }
    m->heap[i] = last;
    return top;
}

// The same merges in the same order, from a heap; n log n for n symbols. Merges ids in place; *n: how many.
static enum status merge_large(const struct tokenizer *t, token_id *ids, size_t *n) {
    struct merger m = {.t = t};
    enum status st = STATUS_NOMEM;
    if (*n > INT32_MAX)
        return STATUS_NOMEM;
    m.symbols = malloc(*n * sizeof *m.symbols);
    m.heap = malloc(3 * *n * sizeof *m.heap);
    if (!m.symbols || !m.heap)
        goto fail;
    int32_t count = (int32_t)*n;
    for (int32_t i = 0; i < count; i++)
        m.symbols[i] = (struct symbol){ids[i], i - 1, i + 1 < count ? i + 1 : -1};
    for (int32_t i = 0; i < count; i++)
        pair_push(&m, i);
    while (m.num_pairs > 0) {
        struct pair pair = pair_pop(&m);
        struct symbol *left = &m.symbols[pair.left];
        if (left->id != pair.left_id || left->next < 0 || m.symbols[left->next].id != pair.right_id)
            continue; // one of them has been merged with another
        struct symbol *right = &m.symbols[left->next];
        left->id = pair.id;
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
    free(m.heap);
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
    token_id id = find_piece(e->t, word, len);
    if (id >= 0 && (e->t->tokens[id].flags & TOKEN_WHOLE))
        return token_push(e->out, id);
    return merge_word(e->t, word, len, e->out);
}

enum status tokenize_bpe(const struct tokenizer *t, const char *text, size_t len, bool first,
                         struct token_buf *out) {
    struct encoder e = {t, out};
    (void)first;
    return pretokenizer_cut(t->pre, text, len, encode_word, &e);
}

// ---- loading

// The byte that a character of a name stands for, -1: none. n: bytes of the character.
static int byte_of_char(const char *name, size_t n) {
    const unsigned char *p = (const unsigned char *)name;
    int cp = n == 1 ? p[0] : n == 2 ? (p[0] & 0x1f) << 6 | (p[1] & 0x3f) : 0;
    if ((cp >= 0x21 && cp <= 0x7e) || (cp >= 0xa1 && cp <= 0xff && cp != 0xad))
        return cp;
    int i = cp - 0x100; // 0x00–0x20, 0x7f–0xa0, 0xad
    return i < 0 || i > 67 ? -1 : i < 33 ? i : i < 67 ? i - 33 + 0x7f : 0xad;
}

// A character that stands for no byte stands for itself.
static size_t decode(struct gguf_str name, char *dst, bool *sound) {
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

size_t bpe_bytes(struct gguf_str name, char *dst) {
    bool sound;
    return decode(name, dst, &sound);
}

// Tokens that merging may make: not special ones (a user's text must not forge them), and only those spelled
// in the alphabet of bytes. An added token is spelled as it is, so it must mean the same both ways.
static bool mergeable(const struct tokenizer *t, const struct token_entry *e, char *scratch) {
    bool sound;
    if ((e->type != TOKEN_NORMAL && e->type != TOKEN_USER_DEFINED) ||
        (e->flags & (TOKEN_SPECIAL | TOKEN_GUARDED)))
        return false;
    size_t n = decode((struct gguf_str){t->text + e->name, e->name_len}, scratch, &sound);
    return sound && n == e->bytes_len && memcmp(scratch, t->text + e->bytes, n) == 0;
}

static bool load_bytes(struct loader *l) {
    struct tokenizer *t = l->t;
    for (int b = 0; b < 256; b++) {
        char c = (char)b;
        t->byte_ids[b] = find_piece(t, &c, 1);
    }
    for (const char *c = "\xef\xbf\xbd"; *c; c++)
        if (t->byte_ids[(unsigned char)*c] < 0) {
            gguf_bad(l->g, l->err, "tokenizer.ggml.tokens lacks a token for the byte 0x%02X of U+FFFD",
                     (unsigned char)*c);
            return false;
        }
    return true;
}

static bool load_merge(struct loader *l, struct gguf_str s, int32_t rank, char *scratch) {
    struct tokenizer *t = l->t;
    const char *space = s.len > 2 ? memchr(s.data + 1, ' ', s.len - 2) : NULL;
    bool sound_left = false, sound_right = false;
    size_t left_len = 0, len = 0;
    token_id left = -1, right = -1, id = -1;
    if (space) {
        size_t n = (size_t)(space - s.data);
        left_len = decode((struct gguf_str){s.data, n}, scratch, &sound_left);
        len =
            left_len + decode((struct gguf_str){space + 1, s.len - n - 1}, scratch + left_len, &sound_right);
    }
    if (sound_left && sound_right) {
        left = find_piece(t, scratch, left_len);
        right = find_piece(t, scratch + left_len, len - left_len);
        id = find_piece(t, scratch, len);
    }
    if (left < 0 || right < 0 || id < 0) {
        gguf_bad(l->g, l->err, "merge %d ('%.*s') of tokenizer.ggml.merges %s", rank,
                 (int)(s.len < 64 ? s.len : 64), s.data,
                 space ? "names or makes a token that is not in the vocabulary"
                       : "is not two tokens with a space between");
        return false;
    }
    if (find_merge(t, left, right))
        return true; // the first counts
    uint32_t slot = merge_hash(t, left, right);
    while (t->merges[slot].id >= 0)
        slot = (slot + 1) & t->merge_mask;
    t->merges[slot] = (struct merge_slot){left, right, id, rank};
    return true;
}

static bool load_merges(struct loader *l, char *scratch) {
    struct tokenizer *t = l->t;
    struct gguf_array merges;
    if (gguf_get_array(l->g, "tokenizer.ggml.merges", true, GGUF_STRING, &merges, l->err))
        return false;
    if (merges.count > MAX_MERGES) {
        gguf_bad(l->g, l->err, "key tokenizer.ggml.merges has %llu merges, expected at most %d",
                 (unsigned long long)merges.count, MAX_MERGES);
        return false;
    }
    uint32_t size = 4;
    while (size < merges.count + merges.count / 2)
        size *= 2;
    t->merge_mask = size - 1;
    t->merges = malloc(size * sizeof *t->merges);
    if (!t->merges) {
        err_set(l->err, STATUS_NOMEM, "%s: out of memory for %llu merges", gguf_name(l->g),
                (unsigned long long)merges.count);
        return false;
    }
    memset(t->merges, 0xff, size * sizeof *t->merges);
    for (uint64_t i = 0; i < merges.count; i++) {
        struct gguf_str s = gguf_next_string(&merges);
        if (s.len > 2 * t->max_token_len + 1) // also keeps it inside scratch
            s.len = 0;
        if (!load_merge(l, s, (int32_t)i, scratch))
            return false;
    }
    return true;
}

// Most words of a text are tokens that merging would make of their bytes. Which tokens those are is found out
// here, once, so that no cache is needed later.
static bool load_whole(struct loader *l) {
    struct tokenizer *t = l->t;
    struct token_buf b = {0};
    bool ok = true, all = pretokenizer_ignores_merges(t->pre);
    for (int i = 0; i < t->num_tokens && ok; i++) {
        struct token_entry *e = &t->tokens[i];
        if (!(e->flags & TOKEN_PIECE))
            continue;
        b.len = 0;
        ok = all || merge_word(t, t->text + e->bytes, e->bytes_len, &b) == STATUS_OK;
        if (ok && (all || (b.len == 1 && b.ids[0] == i)))
            e->flags |= TOKEN_WHOLE;
    }
    if (!ok)
        err_set(l->err, STATUS_NOMEM, "%s: out of memory for the merges", gguf_name(l->g));
    token_buf_free(&b);
    return ok;
}

bool load_bpe(struct loader *l) {
    struct tokenizer *t = l->t;
    t->tokenize = tokenize_bpe;
    t->add_space_prefix = false; // SentencePiece's, whatever the file says
    char *scratch = malloc(2 * t->max_token_len + 2);
    if (!scratch) {
        err_set(l->err, STATUS_NOMEM, "%s: out of memory for the merges", gguf_name(l->g));
        return false;
    }
    for (int i = 0; i < t->num_tokens; i++)
        if (mergeable(t, &t->tokens[i], scratch))
            t->tokens[i].flags |= TOKEN_PIECE;
    bool ok = load_pieces(l) && load_bytes(l) && load_merges(l, scratch) && load_whole(l);
    free(scratch);
    return ok;
}
