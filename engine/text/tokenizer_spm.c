// Vocabularies of characters with byte fallback, of two kinds: SentencePiece's, whose merging follows the scores of tokens
// (Kudo and Richardson, "SentencePiece: A simple and language independent subword tokenizer", 2018), and those of
// tokenizer.json, which list the merges.
//
// A space and its stand-in U+2581 are the same symbol. Inside, both are one space byte: a token's bytes are
// its name with U+2581 replaced, and that is also what it adds to a text.
#include "tokenizer_merges.h"
#include "tokenizer_prepare.h"

#include "merge_heap.h"
#include "utf8.h"

#include <stdlib.h>

#define SPACE "\xe2\x96\x81" // U+2581

enum {
    MAX_MERGE_BYTES = 512, // longer tokens are not merged to: it bounds the work per symbol
    SMALL_WORD = 24,       // symbols; up to here scanning for the best pair beats a heap
};

// Bytes of the symbol at p: a valid UTF-8 sequence, or else one byte, which ends as a byte token.
static size_t symbol_len(const char *p, size_t n) {
    if ((unsigned char)*p < 0x80)
        return 1;
    int len = utf8_len((const unsigned char *)p, n);
    return len ? (size_t)len : 1;
}

// A symbol that no merge made part of a token: its token, or one token per byte, or one unknown for a run of
// such symbols.
static enum status emit_symbol(const struct tokenizer *t, const char *p, size_t len, size_t first_id,
                               struct token_buf *out) {
    token_id id = find_piece(t, p, len);
    if (id >= 0)
        return token_push(out, id);
    if (len == 1 && *p == ' ') {
        p = SPACE;
        len = 3;
    }
    for (size_t i = 0; i < len; i++) {
        id = t->byte_ids[(unsigned char)p[i]];
        bool unknown = id < 0;
        if (unknown)
            id = t->unk;
        if (!(unknown && out->len > first_id && out->ids[out->len - 1] == id) && token_push(out, id))
            return STATUS_NOMEM;
    }
    return STATUS_OK;
}

// A short word: merge the best pair, the first of equals, until none is left.
static enum status merge_small(const struct tokenizer *t, const char *p, size_t len, size_t first_id,
                               struct token_buf *out) {
    uint32_t start[SMALL_WORD + 1]; // of each symbol, and the end
    token_id pair[SMALL_WORD];      // of symbol i and the next, or -1
    int n = 0;
    for (size_t i = 0; i < len; i += symbol_len(p + i, len - i))
        start[n++] = (uint32_t)i;
    start[n] = (uint32_t)len;
    for (int i = 0; i + 1 < n; i++)
        pair[i] = find_piece(t, p + start[i], start[i + 2] - start[i]);
    for (;;) {
        int best = -1;
        float score = 0;
        for (int i = 0; i + 1 < n; i++)
            if (pair[i] >= 0 && (best < 0 || t->tokens[pair[i]].score > score)) {
                best = i;
                score = t->tokens[pair[i]].score;
            }
        if (best < 0)
            break;
        memmove(start + best + 1, start + best + 2, (size_t)(n - best - 1) * sizeof *start);
        memmove(pair + best, pair + best + 1, (size_t)(n - best - 1) * sizeof *pair);
        n--;
        for (int i = best - 1; i <= best; i++)
            if (i >= 0 && i + 1 < n)
                pair[i] = find_piece(t, p + start[i], start[i + 2] - start[i]);
    }
    for (int i = 0; i < n; i++)
        if (emit_symbol(t, p + start[i], start[i + 1] - start[i], first_id, out))
            return STATUS_NOMEM;
    return STATUS_OK;
}

struct spm_symbol {
    uint32_t start, len; // len 0: merged into the one before
    int32_t prev, next;
};
struct spm_merger {
    const struct tokenizer *t;
    const char *p;
    struct spm_symbol *symbols;
    struct merge_heap heap;
};

static void pair_push(struct spm_merger *m, int32_t left) {
    int32_t right = left < 0 ? -1 : m->symbols[left].next;
    if (right < 0)
        return;
    uint32_t len = m->symbols[left].len + m->symbols[right].len;
    token_id id = find_piece(m->t, m->p + m->symbols[left].start, len);
    if (id >= 0)
        merge_heap_push(&m->heap, (struct merge_pair){m->t->tokens[id].score, left, len});
}

// A long word: the same merges in the same order, from a heap; n log n for n symbols.
static enum status merge_large(const struct tokenizer *t, const char *p, size_t len, size_t num_symbols,
                               size_t first_id, struct token_buf *out) {
    struct spm_merger m = {.t = t, .p = p};
    enum status st = STATUS_NOMEM;
    if (len > INT32_MAX)
        return STATUS_NOMEM;
    m.symbols = malloc(num_symbols * sizeof *m.symbols);
    m.heap.pairs = malloc(3 * num_symbols * sizeof *m.heap.pairs);
    if (!m.symbols || !m.heap.pairs)
        goto fail;
    int32_t n = 0;
    for (size_t i = 0; i < len; i += m.symbols[n].len, n++)
        m.symbols[n] = (struct spm_symbol){(uint32_t)i, (uint32_t)symbol_len(p + i, len - i), n - 1, n + 1};
    m.symbols[n - 1].next = -1;
    for (int32_t i = 0; i < n; i++)
        pair_push(&m, i);
    while (m.heap.num > 0) {
        struct merge_pair pair = merge_heap_pop(&m.heap);
        struct spm_symbol *left = &m.symbols[pair.left];
        if (left->len == 0 || left->next < 0 || left->len + m.symbols[left->next].len != pair.what)
            continue; // one of them has been merged with another
        struct spm_symbol *right = &m.symbols[left->next];
        left->len += right->len;
        right->len = 0;
        left->next = right->next;
        if (left->next >= 0)
            m.symbols[left->next].prev = pair.left;
        pair_push(&m, left->prev);
        pair_push(&m, pair.left);
    }
    for (int32_t i = 0; i >= 0; i = m.symbols[i].next)
        if (emit_symbol(t, p + m.symbols[i].start, m.symbols[i].len, first_id, out))
            goto fail;
    st = STATUS_OK;
fail:
    free(m.symbols);
    free(m.heap.pairs);
    return st;
}

// A word whose merges are listed.
static enum status merge_listed(const struct tokenizer *t, const char *p, size_t len, size_t first_id,
                                struct token_buf *out) {
    size_t begin = out->len;
    for (size_t i = 0, n; i < len; i += n) {
        n = symbol_len(p + i, len - i);
        if (emit_symbol(t, p + i, n, first_id, out))
            return STATUS_NOMEM;
    }
    size_t n = out->len - begin;
    enum status st = merge_symbols(t, out->ids + begin, &n);
    out->len = begin + n;
    return st;
}

static enum status merge_word(const struct tokenizer *t, const char *p, size_t len, size_t first_id,
                              struct token_buf *out) {
    size_t n = 0;
    if (t->merges)
        return merge_listed(t, p, len, first_id, out);
    for (size_t i = 0; i < len; n++)
        i += symbol_len(p + i, len - i);
    return n <= SMALL_WORD ? merge_small(t, p, len, first_id, out) : merge_large(t, p, len, n, first_id, out);
}

// Whether a text, with what came before it, gets a space in front.
static bool has_prefix(const struct tokenizer *t, const char *text, size_t len, bool first) {
    bool spaced = len > 0 && (*text == ' ' || (len >= 3 && memcmp(text, SPACE, 3) == 0));
    switch (t->space_prefix) {
    case PREFIX_NEVER: return false;
    case PREFIX_ALWAYS: return true;
    case PREFIX_UNSPACED: return !spaced;
    case PREFIX_FIRST: return first && !spaced;
    }
    return false;
}

static enum status spm_encode(const struct tokenizer *t, const char *text, size_t len, bool first,
                              struct token_buf *out) {
    size_t n = 0, first_id = out->len;
    enum status st = STATUS_OK;
    char *p = len < SIZE_MAX ? malloc(len + 1) : NULL;
    if (!p || token_reserve(out, len / 4))
        goto nomem;
    if (has_prefix(t, text, len, first))
        p[n++] = ' ';
    for (size_t i = 0; i < len;) {
        if (text[i] == SPACE[0] && len - i >= 3 && memcmp(text + i, SPACE, 3) == 0) {
            p[n++] = ' ';
            i += 3;
        } else {
            p[n++] = text[i++];
        }
    }
    // Where no token reaches across the space that begins a word, words are merged one by one.
    for (size_t start = 0, end; start < n && st == STATUS_OK; start = end) {
        end = t->splits_at_space ? start + 1 : n;
        while (end < n && !(p[end] == ' ' && (t->space_cuts || p[end - 1] != ' ')))
            end++;
        st = merge_word(t, p + start, end - start, first_id, out);
    }
    free(p);
    return st;
nomem:
    free(p);
    return STATUS_NOMEM;
}

// ---- loading

// Tokens that merging may produce: neither bytes nor special ones (a user's text must not forge them), and
// none with a plain space in its name, since a text has only U+2581.
static bool is_mergeable(const struct tokenizer *t, const struct token_entry *e) {
    return e->type != TOKEN_BYTE && !(e->flags & (TOKEN_SPECIAL | TOKEN_GUARDED)) && e->bytes_len > 0 &&
           (!t->kind->scored || e->bytes_len <= MAX_MERGE_BYTES) &&
           !memchr(t->text + e->name, ' ', e->name_len);
}

static bool load_spaced(struct vocab_loader *l) {
    struct tokenizer *t = l->t;
    for (int b = 0; b < 256; b++)
        if (t->byte_ids[b] < 0 && t->unk < 0) {
            model_file_bad(l->f, l->err,
                           "tokenizer.ggml.tokens lacks <0x%02X>, and there is no unknown token", b);
            return false;
        }
    t->splits_at_space = true;
    for (int i = 0; i < t->num_tokens; i++) {
        struct token_entry *e = &t->tokens[i];
        const char *bytes = t->text + e->bytes;
        if (!is_mergeable(t, e))
            continue;
        e->flags |= TOKEN_PIECE;
        for (uint32_t k = 1; k < e->bytes_len; k++)
            if (bytes[k] == ' ' && bytes[k - 1] != ' ')
                t->splits_at_space = false;
    }
    return load_pieces(l);
}

// Which texts get a space in front, where the file says it in a word of ours.
static bool load_space_prefix(struct vocab_loader *l) {
    static const char *const names[] = {"never", "always", "unspaced", "first"}; // enum space_prefix
    struct text_view prefix = {NULL, 0};
    if (meta_str(l->f, "tokenizer.quire.space_prefix", false, 16, &prefix, l->err))
        return false;
    for (int i = 0; prefix.data && i < 4; i++)
        if (same(prefix, names[i]))
            l->t->space_prefix = (enum space_prefix)i;
    return true;
}

static bool load_spm(struct vocab_loader *l) {
    l->t->space_prefix = l->t->add_space_prefix ? PREFIX_ALWAYS : PREFIX_NEVER;
    return load_space_prefix(l) && load_spaced(l) && load_normalizer(l);
}

static size_t merge_bytes(struct text_view name, char *dst, bool *sound) {
    *sound = name.len > 0 && !memchr(name.data, ' ', name.len);
    return spaced_bytes(name, dst);
}

static bool load_listed(struct vocab_loader *l) {
    struct tokenizer *t = l->t;
    if (!load_space_prefix(l) || meta_bool(l->f, "tokenizer.quire.space_cuts", &t->space_cuts, l->err))
        return false;
    t->add_space_prefix = t->space_prefix != PREFIX_NEVER;
    if (!load_spaced(l) || !load_normalizer(l) || !load_merges(l, merge_bytes))
        return false;
    t->splits_at_space |= t->space_cuts;
    return true;
}

const struct tokenizer_kind tokenizer_spm = {.name = "llama",
                                             .scored = true,
                                             .bos = 1,
                                             .eos = 2,
                                             .unk = 0,
                                             .add_bos = true,
                                             .token_bytes = spaced_bytes,
                                             .load = load_spm,
                                             .encode = spm_encode};
const struct tokenizer_kind tokenizer_listed = {.name = "bpe",
                                                .bos = -1,
                                                .eos = -1,
                                                .unk = -1,
                                                .token_bytes = spaced_bytes,
                                                .load = load_listed,
                                                .encode = spm_encode};
const struct tokenizer_kind tokenizer_gemma4 = {.name = "gemma4",
                                                .bos = -1,
                                                .eos = -1,
                                                .unk = -1,
                                                .token_bytes = spaced_bytes,
                                                .load = load_listed,
                                                .encode = spm_encode};
