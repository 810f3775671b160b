// Text to ids: the vocabulary of a .gguf file, and SentencePiece's byte-pair merging with byte fallback (Kudo
// and Richardson, "SentencePiece: A simple and language independent subword tokenizer", 2018).
//
// A space and its stand-in U+2581 are the same symbol. Inside, both are one space byte: a token's bytes are
// its name with U+2581 replaced, and that is also what it adds to a text.
#include "tokenizer_internal.h"

#include "gguf.h"
#include "hash.h"
#include "log.h"
#include "tokenizer_gguf.h"
#include "utf8.h"

#include <math.h>
#include <stdlib.h>

enum {
    MAX_TOKENS = 1 << 22,
    MAX_TOKEN_BYTES = 64 << 10,
    MAX_MERGE_BYTES = 512, // longer tokens are not merged to: it bounds the work per symbol
    MAX_TEMPLATE = 1 << 20,
    SMALL_WORD = 24, // symbols; up to here scanning for the best pair beats a heap
};

#define SPACE "\xe2\x96\x81" // U+2581

// ---- ids

void token_buf_free(struct token_buf *b) {
    free(b->ids);
    *b = (struct token_buf){0};
}

static enum status token_reserve(struct token_buf *b, size_t more) {
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

static enum status token_push(struct token_buf *b, token_id id) {
    if (token_reserve(b, 1))
        return STATUS_NOMEM;
    b->ids[b->len++] = id;
    return STATUS_OK;
}

// ---- SentencePiece

// The mergeable token of exactly these bytes, or -1.
static token_id find_piece(const struct tokenizer *t, const char *bytes, size_t len) {
    if (len > t->max_merge_len)
        return -1;
    uint64_t hash = hash_bytes(t->seed, bytes, len);
    uint32_t tag = (uint32_t)(hash >> 32);
    for (uint32_t s = (uint32_t)hash & t->slot_mask; t->slots[s].id >= 0; s = (s + 1) & t->slot_mask) {
        const struct token_entry *e = &t->tokens[t->slots[s].id];
        if (t->slots[s].tag == tag && e->bytes_len == len && memcmp(t->text + e->bytes, bytes, len) == 0)
            return t->slots[s].id;
    }
    return -1;
}

// Bytes of the symbol at p: a valid UTF-8 sequence, or else one byte, which ends as a byte token.
static size_t symbol_len(const char *p, size_t n) {
    if ((unsigned char)*p < 0x80)
        return 1;
    int len = utf8_len((const unsigned char *)p, n);
    return len ? (size_t)len : 1;
}

// A symbol that no merge made part of a token: its token, or one token per byte, or one unknown for a run of
// such symbols.
static enum status emit(const struct tokenizer *t, const char *p, size_t len, size_t first_id,
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
        if (emit(t, p + start[i], start[i + 1] - start[i], first_id, out))
            return STATUS_NOMEM;
    return STATUS_OK;
}

struct symbol {
    uint32_t start, len; // len 0: merged into the one before
    int32_t prev, next;
};
struct pair { // of a heap
    float score;
    int32_t left;
    uint32_t len; // of both symbols: differs once one of them has changed
};
struct merger {
    const struct tokenizer *t;
    const char *p;
    struct symbol *symbols;
    struct pair *heap;
    size_t num_pairs;
};

static bool pair_before(struct pair a, struct pair b) {
    return a.score > b.score || (a.score == b.score && a.left < b.left);
}

// At most one pair per symbol and two per merge are ever pushed; the heap is allocated for symbols * 3.
static void pair_push(struct merger *m, int32_t left) {
    int32_t right = left < 0 ? -1 : m->symbols[left].next;
    if (right < 0)
        return;
    uint32_t len = m->symbols[left].len + m->symbols[right].len;
    token_id id = find_piece(m->t, m->p + m->symbols[left].start, len);
    if (id < 0)
        return;
    struct pair pair = {m->t->tokens[id].score, left, len};
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

// A long word: the same merges in the same order, from a heap; n log n for n symbols.
static enum status merge_large(const struct tokenizer *t, const char *p, size_t len, size_t num_symbols,
                               size_t first_id, struct token_buf *out) {
    struct merger m = {.t = t, .p = p};
    enum status st = STATUS_NOMEM;
    if (len > INT32_MAX)
        return STATUS_NOMEM;
    m.symbols = malloc(num_symbols * sizeof *m.symbols);
    m.heap = malloc(3 * num_symbols * sizeof *m.heap);
    if (!m.symbols || !m.heap)
        goto fail;
    int32_t n = 0;
    for (size_t i = 0; i < len; i += m.symbols[n].len, n++)
        m.symbols[n] = (struct symbol){(uint32_t)i, (uint32_t)symbol_len(p + i, len - i), n - 1, n + 1};
    m.symbols[n - 1].next = -1;
    for (int32_t i = 0; i < n; i++)
        pair_push(&m, i);
    while (m.num_pairs > 0) {
        struct pair pair = pair_pop(&m);
        struct symbol *left = &m.symbols[pair.left];
        if (left->len == 0 || left->next < 0 || left->len + m.symbols[left->next].len != pair.len)
            continue; // one of them has been merged with another
        struct symbol *right = &m.symbols[left->next];
        left->len += right->len;
        right->len = 0;
        left->next = right->next;
        if (left->next >= 0)
            m.symbols[left->next].prev = pair.left;
        pair_push(&m, left->prev);
        pair_push(&m, pair.left);
    }
    for (int32_t i = 0; i >= 0; i = m.symbols[i].next)
        if (emit(t, p + m.symbols[i].start, m.symbols[i].len, first_id, out))
            goto fail;
    st = STATUS_OK;
fail:
    free(m.symbols);
    free(m.heap);
    return st;
}

static enum status merge_word(const struct tokenizer *t, const char *p, size_t len, size_t first_id,
                              struct token_buf *out) {
    size_t n = 0;
    for (size_t i = 0; i < len; n++)
        i += symbol_len(p + i, len - i);
    return n <= SMALL_WORD ? merge_small(t, p, len, first_id, out) : merge_large(t, p, len, n, first_id, out);
}

static enum status tokenize_spm(const struct tokenizer *t, const char *text, size_t len, bool first,
                                struct token_buf *out) {
    size_t n = 0, first_id = out->len;
    enum status st = STATUS_OK;
    char *p = len < SIZE_MAX ? malloc(len + 1) : NULL;
    if (!p || token_reserve(out, len / 4))
        goto nomem;
    if (first && t->add_space_prefix)
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
        while (end < n && !(p[end] == ' ' && p[end - 1] != ' '))
            end++;
        st = merge_word(t, p + start, end - start, first_id, out);
    }
    free(p);
    return st;
nomem:
    free(p);
    return STATUS_NOMEM;
}

// ---- special tokens in text

// The longest token among t->found that text begins with, or -1. Narrows a sorted list byte by byte.
static token_id find_special(const struct tokenizer *t, const char *text, size_t len, bool parse_special,
                             size_t *match_len) {
    int lo = t->found_start[(unsigned char)text[0]], hi = t->found_start[(unsigned char)text[0] + 1];
    token_id match = -1;
    for (size_t depth = 1; lo < hi; depth++) {
        const struct token_entry *e = &t->tokens[t->found[lo]];
        if (e->name_len == depth) { // the shortest of equal beginnings sorts first
            if (parse_special || !(e->flags & TOKEN_GUARDED)) {
                match = t->found[lo];
                *match_len = depth;
            }
            lo++;
        }
        if (depth >= len)
            break;
        unsigned char c = (unsigned char)text[depth];
        for (int end = hi; lo < end;) { // the first with byte >= c at depth
            int mid = lo + (end - lo) / 2;
            if ((unsigned char)t->text[t->tokens[t->found[mid]].name + depth] < c)
                lo = mid + 1;
            else
                end = mid;
        }
        for (int begin = lo; begin < hi;) { // the first with byte > c
            int mid = begin + (hi - begin) / 2;
            if ((unsigned char)t->text[t->tokens[t->found[mid]].name + depth] <= c)
                begin = mid + 1;
            else
                hi = mid;
        }
    }
    return match;
}

enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, unsigned flags,
                             struct token_buf *out) {
    bool parse_special = (flags & TOKENIZE_PARSE_SPECIAL) != 0, first = true;
    size_t start = 0;
    if ((flags & TOKENIZE_ADD_SPECIAL) && t->add_bos && t->bos >= 0 && token_push(out, t->bos))
        return STATUS_NOMEM;
    for (size_t i = 0; i <= len;) {
        size_t match_len = 0;
        token_id id = -1;
        if (i < len) {
            int c = (unsigned char)text[i];
            if (t->found_start[c] < t->found_start[c + 1])
                id = find_special(t, text + i, len - i, parse_special, &match_len);
            if (id < 0) {
                i++;
                continue;
            }
        }
        if (i > start) {
            if (t->tokenize(t, text + start, i - start, first, out))
                return STATUS_NOMEM;
        }
        if (id < 0)
            break;
        if (token_push(out, id))
            return STATUS_NOMEM;
        first = true;
        start = i += match_len;
    }
    if ((flags & TOKENIZE_ADD_SPECIAL) && t->add_eos && t->eos >= 0)
        return token_push(out, t->eos);
    return STATUS_OK;
}

// ---- loading

struct loader {
    const struct gguf *g;
    struct tokenizer *t;
    struct err *err;
    struct gguf_array names, scores, types;
};

static bool same(struct gguf_str s, const char *text) {
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// The byte of "<0xHH>", or -1.
static int byte_of(struct gguf_str s) {
    if (s.len != 6 || memcmp(s.data, "<0x", 3) != 0 || s.data[5] != '>' || hex_digit(s.data[3]) < 0 ||
        hex_digit(s.data[4]) < 0)
        return -1;
    return hex_digit(s.data[3]) * 16 + hex_digit(s.data[4]);
}

// Models end a turn with tokens that their files do not name as the end; their spelling tells.
static bool named_end(struct gguf_str s, int type) {
    static const char *const ends[] = {
        "<|eot_id|>", "<|im_end|>",    "<|end|>",         "<|endoftext|>",       "<|end_of_text|>",
        "<|eom_id|>", "<end_of_turn>", "<|end_of_turn|>", "<|end▁of▁sentence|>", "<｜end▁of▁sentence｜>"};
    if (type != TOKEN_CONTROL && type != TOKEN_USER_DEFINED)
        return false;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (same(s, ends[i]))
            return true;
    return type == TOKEN_CONTROL && same(s, "</s>");
}

// User-defined tokens are words of the text, except where they look like the marks of a dialogue: those a
// user's text must not forge, whatever type the file gives them.
static bool looks_like_mark(struct gguf_str s) {
    static const char *const marks[] = {"<s>",           "</s>",   "<bos>",  "<eos>", "<start_of_turn>",
                                        "<end_of_turn>", "[INST]", "[/INST]"};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        if (same(s, marks[i]))
            return true;
    return s.len > 4 &&
           ((memcmp(s.data, "<|", 2) == 0 && memcmp(s.data + s.len - 2, "|>", 2) == 0) ||
            (s.len > 8 && memcmp(s.data, "<｜", 4) == 0 && memcmp(s.data + s.len - 4, "｜>", 4) == 0));
}

static bool load_arrays(struct loader *l) {
    const struct gguf *g = l->g;
    if (gguf_get_array(g, "tokenizer.ggml.tokens", true, GGUF_STRING, &l->names, l->err) ||
        gguf_get_array(g, "tokenizer.ggml.scores", true, GGUF_F32, &l->scores, l->err) ||
        gguf_get_array(g, "tokenizer.ggml.token_type", false, GGUF_I32, &l->types, l->err))
        return false;
    uint64_t n = l->names.count;
    if (n < 1 || n > MAX_TOKENS) {
        gguf_bad(g, l->err, "key tokenizer.ggml.tokens has %llu tokens, expected 1 to %d",
                 (unsigned long long)n, MAX_TOKENS);
        return false;
    }
    if (l->scores.count != n || (l->types.count != n && l->types.count != 0)) {
        bool scores = l->scores.count != n;
        gguf_bad(g, l->err, "key tokenizer.ggml.%s has %llu elements, expected %llu, one for each token",
                 scores ? "scores" : "token_type",
                 (unsigned long long)(scores ? l->scores.count : l->types.count), (unsigned long long)n);
        return false;
    }
    return true;
}

// Names, bytes, types and scores of all tokens into one block of text.
static bool load_tokens(struct loader *l) {
    struct tokenizer *t = l->t;
    struct gguf_array names = l->names;
    uint64_t size = 0, used = 0;
    for (uint64_t i = 0; i < l->names.count; i++)
        size += 2 * gguf_next_string(&names).len + 1; // strings lie in the file: no overflow
    t->num_tokens = (int)l->names.count;
    t->tokens = calloc((size_t)t->num_tokens, sizeof *t->tokens);
    t->text = size < UINT32_MAX ? malloc(size) : NULL;
    if (!t->tokens || !t->text) {
        err_set(l->err, STATUS_NOMEM, "%s: out of memory for %d tokens", gguf_name(l->g), t->num_tokens);
        return false;
    }
    names = l->names;
    for (int i = 0; i < t->num_tokens; i++) {
        struct token_entry *e = &t->tokens[i];
        struct gguf_str s = gguf_next_string(&names);
        int64_t type = l->types.count ? gguf_array_int(&l->types, (uint64_t)i)
                                      : (byte_of(s) >= 0 ? TOKEN_BYTE : TOKEN_NORMAL);
        int byte = byte_of(s);
        e->score = gguf_array_float(&l->scores, (uint64_t)i);
        const char *problem = s.len > MAX_TOKEN_BYTES                    ? "is longer than 64 KiB"
                              : !isfinite(e->score)                      ? "has a score that is not finite"
                              : type < TOKEN_NORMAL || type > TOKEN_BYTE ? "has a type outside 1 to 6"
                              : type == TOKEN_BYTE && byte < 0 ? "is of type byte, but not written <0xHH>"
                                                               : NULL;
        if (problem) {
            gguf_bad(l->g, l->err, "token %d ('%.*s') of tokenizer.ggml.tokens %s", i,
                     (int)(s.len < 64 ? s.len : 64), s.data, problem);
            return false;
        }
        e->type = (uint8_t)type;
        e->name = (uint32_t)used;
        e->name_len = (uint32_t)s.len;
        memcpy(t->text + used, s.data, s.len);
        used += s.len;
        e->bytes = (uint32_t)used;
        if (type == TOKEN_BYTE) {
            t->text[used++] = (char)byte;
            t->byte_ids[byte] = i;
        } else if (type != TOKEN_UNUSED) {
            for (size_t k = 0; k < s.len;) {
                bool space = s.len - k >= 3 && memcmp(s.data + k, SPACE, 3) == 0;
                t->text[used++] = space ? ' ' : s.data[k];
                k += space ? 3 : 1;
            }
        }
        e->bytes_len = (uint32_t)used - e->bytes;
        if (s.len > t->max_token_len)
            t->max_token_len = s.len;
        if (type == TOKEN_CONTROL || type == TOKEN_UNKNOWN)
            e->flags = TOKEN_SPECIAL | TOKEN_GUARDED;
        else if (type == TOKEN_USER_DEFINED && looks_like_mark(s))
            e->flags = TOKEN_GUARDED;
        if (named_end(s, (int)type))
            e->flags = TOKEN_SPECIAL | TOKEN_GUARDED | TOKEN_END;
    }
    return true;
}

// An id from its key: preset where the key is absent, -1 where the file says that there is none.
static bool load_id(struct loader *l, const char *key, bool strict, token_id *id) {
    int64_t v = *id;
    const struct gguf_kv *kv = gguf_find(l->g, key);
    if (gguf_get_int(l->g, key, false, INT64_MIN, INT64_MAX, &v, l->err))
        return false;
    if (!kv) { // a default only counts where it looks right
        if (v >= l->t->num_tokens || (v >= 0 && l->types.count && !(l->t->tokens[v].flags & TOKEN_SPECIAL)))
            *id = -1;
        return true;
    }
    bool none = v == -1 || v == UINT32_MAX;
    if (!none && (v < 0 || v >= l->t->num_tokens)) {
        if (strict) {
            gguf_bad(l->g, l->err, "key %s is %lld, expected 0 to %d", key, (long long)v,
                     l->t->num_tokens - 1);
            return false;
        }
        log_msg(LOG_WARN, "msg=\"token id out of range, ignored\" file=\"%s\" key=%s id=%lld",
                gguf_name(l->g), key, (long long)v);
        none = true;
    }
    *id = none ? -1 : (token_id)v;
    return true;
}

static bool load_settings(struct loader *l) {
    static const char *const more_ends[] = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
    struct tokenizer *t = l->t;
    struct gguf_str template = {NULL, 0};
    t->bos = 1; // SentencePiece's defaults
    t->eos = 2;
    t->unk = 0;
    t->add_bos = t->add_space_prefix = true;
    if (!load_id(l, "tokenizer.ggml.bos_token_id", true, &t->bos) ||
        !load_id(l, "tokenizer.ggml.eos_token_id", true, &t->eos) ||
        !load_id(l, "tokenizer.ggml.unknown_token_id", true, &t->unk))
        return false;
    if (t->eos >= 0)
        t->tokens[t->eos].flags |= TOKEN_END;
    for (size_t i = 0; i < sizeof more_ends / sizeof more_ends[0]; i++) {
        token_id id = -1;
        if (!load_id(l, more_ends[i], false, &id))
            return false;
        if (id >= 0)
            t->tokens[id].flags |= TOKEN_END;
    }
    if (gguf_get_bool(l->g, "tokenizer.ggml.add_bos_token", &t->add_bos, l->err) ||
        gguf_get_bool(l->g, "tokenizer.ggml.add_eos_token", &t->add_eos, l->err) ||
        gguf_get_bool(l->g, "tokenizer.ggml.add_space_prefix", &t->add_space_prefix, l->err) ||
        gguf_get_str(l->g, "tokenizer.chat_template", false, MAX_TEMPLATE, &template, l->err))
        return false;
    if (template.data) {
        t->chat_template = malloc(template.len + 1);
        if (!t->chat_template) {
            err_set(l->err, STATUS_NOMEM, "%s: out of memory for the chat template", gguf_name(l->g));
            return false;
        }
        memcpy(t->chat_template, template.data, template.len);
        t->chat_template[template.len] = 0;
        t->chat_template_len = template.len;
    }
    for (int b = 0; b < 256; b++)
        if (t->byte_ids[b] < 0 && t->unk < 0) {
            gguf_bad(l->g, l->err, "tokenizer.ggml.tokens lacks <0x%02X>, and there is no unknown token", b);
            return false;
        }
    return true;
}

// Tokens that merging may produce: neither bytes nor special ones (a user's text must not forge them), and
// none with a plain space in its name, since a text has only U+2581.
static bool mergeable(const struct tokenizer *t, const struct token_entry *e) {
    return e->type != TOKEN_BYTE && !(e->flags & (TOKEN_SPECIAL | TOKEN_GUARDED)) && e->bytes_len > 0 &&
           e->bytes_len <= MAX_MERGE_BYTES && !memchr(t->text + e->name, ' ', e->name_len);
}

static bool load_pieces(struct loader *l) {
    struct tokenizer *t = l->t;
    uint32_t size = 4;
    while (size < 2 * (uint32_t)t->num_tokens)
        size *= 2;
    t->slot_mask = size - 1;
    t->seed = hash_seed();
    t->slots = malloc(size * sizeof *t->slots);
    if (!t->slots) {
        err_set(l->err, STATUS_NOMEM, "%s: out of memory for %d tokens", gguf_name(l->g), t->num_tokens);
        return false;
    }
    memset(t->slots, 0xff, size * sizeof *t->slots);
    t->splits_at_space = true;
    t->max_merge_len = MAX_MERGE_BYTES; // while we look for duplicates
    size_t longest = 0;
    for (int i = 0; i < t->num_tokens; i++) {
        const struct token_entry *e = &t->tokens[i];
        const char *bytes = t->text + e->bytes;
        if (!mergeable(t, e))
            continue;
        if (find_piece(t, bytes, e->bytes_len) >= 0) {
            gguf_bad(l->g, l->err, "token %d ('%.*s') of tokenizer.ggml.tokens is there twice", i,
                     (int)(e->name_len < 64 ? e->name_len : 64), t->text + e->name);
            return false;
        }
        uint64_t hash = hash_bytes(t->seed, bytes, e->bytes_len);
        uint32_t s = (uint32_t)hash & t->slot_mask;
        while (t->slots[s].id >= 0)
            s = (s + 1) & t->slot_mask;
        t->slots[s] = (struct token_slot){(uint32_t)(hash >> 32), i};
        for (uint32_t k = 1; k < e->bytes_len; k++)
            if (bytes[k] == ' ' && bytes[k - 1] != ' ')
                t->splits_at_space = false;
        if (e->bytes_len > longest)
            longest = e->bytes_len;
    }
    t->max_merge_len = longest;
    return true;
}

static int compare_names(const void *a, const void *b, void *arg) {
    const struct tokenizer *t = arg;
    const struct token_entry *x = &t->tokens[*(const token_id *)a], *y = &t->tokens[*(const token_id *)b];
    uint32_t n = x->name_len < y->name_len ? x->name_len : y->name_len;
    int c = memcmp(t->text + x->name, t->text + y->name, n);
    return c ? c : (x->name_len > y->name_len) - (x->name_len < y->name_len);
}

static bool load_found(struct loader *l) {
    struct tokenizer *t = l->t;
    int n = 0;
    t->found = malloc((size_t)t->num_tokens * sizeof *t->found);
    if (!t->found) {
        err_set(l->err, STATUS_NOMEM, "%s: out of memory for %d tokens", gguf_name(l->g), t->num_tokens);
        return false;
    }
    for (int i = 0; i < t->num_tokens; i++)
        if (t->tokens[i].name_len > 0 &&
            ((t->tokens[i].flags & TOKEN_SPECIAL) || t->tokens[i].type == TOKEN_USER_DEFINED))
            t->found[n++] = i;
    qsort_r(t->found, (size_t)n, sizeof *t->found, compare_names, t);
    for (int i = 1; i < n; i++)
        if (compare_names(&t->found[i - 1], &t->found[i], t) == 0) {
            const struct token_entry *e = &t->tokens[t->found[i]];
            gguf_bad(l->g, l->err, "special token '%.*s' of tokenizer.ggml.tokens is there twice",
                     (int)(e->name_len < 64 ? e->name_len : 64), t->text + e->name);
            return false;
        }
    t->num_found = n;
    for (int c = 0, i = 0; c <= 256; c++) {
        while (i < n && (unsigned char)t->text[t->tokens[t->found[i]].name] < c)
            i++;
        t->found_start[c] = i;
    }
    return true;
}

struct tokenizer *tokenizer_from_gguf(const struct gguf *g, struct err *err) {
    struct err local = {0};
    struct gguf_str model = {"", 0};
    struct loader l = {.g = g, .err = err ? err : &local, .t = calloc(1, sizeof(struct tokenizer))};
    if (!l.t) {
        err_set(err, STATUS_NOMEM, "%s: out of memory for the tokenizer", gguf_name(g));
        return NULL;
    }
    memset(l.t->byte_ids, 0xff, sizeof l.t->byte_ids);
    if (gguf_get_str(g, "tokenizer.ggml.model", true, 64, &model, l.err))
        goto fail;
    if (!same(model, "llama")) {
        gguf_bad(g, l.err,
                 "tokenizer '%.*s' (key tokenizer.ggml.model) is not supported yet; supported: llama",
                 (int)model.len, model.data);
        goto fail;
    }
    l.t->tokenize = tokenize_spm;
    if (!load_arrays(&l) || !load_tokens(&l) || !load_settings(&l) || !load_pieces(&l) || !load_found(&l))
        goto fail;
    return l.t;
fail:
    tokenizer_free(l.t);
    return NULL;
}

struct tokenizer *tokenizer_open(const char *path, struct err *err) {
    struct gguf *g = gguf_open(path, err);
    struct tokenizer *t = g ? tokenizer_from_gguf(g, err) : NULL;
    gguf_close(g);
    return t;
}

void tokenizer_free(struct tokenizer *t) {
    if (!t)
        return;
    free(t->tokens);
    free(t->text);
    free(t->chat_template);
    free(t->found);
    free(t->slots);
    free(t);
}

// ---- facts

static const struct token_entry *entry(const struct tokenizer *t, token_id id) {
    return id >= 0 && id < t->num_tokens ? &t->tokens[id] : NULL;
}

int tokenizer_vocab(const struct tokenizer *t) { return t->num_tokens; }
token_id tokenizer_bos(const struct tokenizer *t) { return t->bos; }
token_id tokenizer_eos(const struct tokenizer *t) { return t->eos; }
bool tokenizer_adds_bos(const struct tokenizer *t) { return t->add_bos && t->bos >= 0; }

bool tokenizer_is_end(const struct tokenizer *t, token_id id) {
    const struct token_entry *e = entry(t, id);
    return e && (e->flags & TOKEN_END);
}

bool tokenizer_is_special(const struct tokenizer *t, token_id id) {
    const struct token_entry *e = entry(t, id);
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
    const struct token_entry *e = entry(t, id);
    *len = e ? e->name_len : 0;
    return e ? t->text + e->name : "";
}

const char *tokenizer_bytes(const struct tokenizer *t, token_id id, bool special, size_t *len) {
    const struct token_entry *e = entry(t, id);
    bool hidden = !e || (!special && (e->flags & TOKEN_SPECIAL));
    *len = hidden ? 0 : e->bytes_len;
    return hidden ? "" : t->text + e->bytes;
}

const char *tokenizer_chat_template(const struct tokenizer *t, size_t *len) {
    *len = t->chat_template_len;
    return t->chat_template;
}
