#include "token_trie.h"

#include "utf8.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

// Plain tokens of at most so many characters go together; level 0: none do. So many nodes are looked at in the time of one
// unit of a matcher's work.
enum { LEVELS = 4, NODES_OF_WORK = 16 };
static const int level_chars[LEVELS] = {0, 4, 12, 40};

struct trie_node {
    uint8_t byte;
    uint16_t depth;
    int32_t token; // that ends here, -1: none; others with the same bytes by `same`
    int32_t end;   // the number of the node behind all below this one
};

struct trie {
    struct trie_node *nodes; // depth first, by bytes
    size_t num;
};

struct token_trie {
    struct vocabulary vocabulary;
    int vocab;
    char *bytes;
    uint32_t *starts; // (vocab + 1)
    int32_t *same;    // (vocab) the next token with the same bytes, -1: none
    uint8_t *ends;    // (vocab) ends a text
    uint8_t *plain;   // (vocab) the lowest level that has it, 0: none
    struct trie tries[LEVELS];
    uint32_t *masks[LEVELS]; // of the plain tokens of a level
    token_id *end_list;
    int num_ends;
};

const struct vocabulary *token_trie_vocabulary(const struct token_trie *t) { return &t->vocabulary; }
int token_trie_vocab(const struct token_trie *t) { return t->vocab; }
bool token_trie_is_end(const struct token_trie *t, token_id id) {
    return id >= 0 && id < t->vocab && t->ends[id];
}

const char *token_trie_bytes(const struct token_trie *t, token_id id, size_t *len) {
    *len = id >= 0 && id < t->vocab ? t->starts[id + 1] - t->starts[id] : 0;
    return *len ? t->bytes + t->starts[id] : "";
}

// ---- making it

static int plain_level(const char *p, size_t n) {
    int chars = 0;
    for (size_t i = 0; i < n; chars++) {
        unsigned char c = (unsigned char)p[i];
        int len = utf8_len((const unsigned char *)p + i, n - i);
        if (len == 0 || c < 0x20 || c == '"' || c == '\\')
            return 0;
        i += (size_t)len;
    }
    for (int level = 1; level < LEVELS; level++)
        if (n && chars <= level_chars[level])
            return level;
    return 0;
}

struct word {
    const char *text;
    uint32_t len;
    int32_t token;
};

static int by_text(const void *x, const void *y) {
    const struct word *a = x, *b = y;
    int c = memcmp(a->text, b->text, a->len < b->len ? a->len : b->len);
    if (c == 0)
        c = a->len < b->len ? -1 : a->len > b->len;
    return c ? c : a->token < b->token ? -1 : a->token > b->token;
}

// words: in order, no two alike. false: out of memory.
static bool make_trie(struct trie *trie, const struct word *words, int num) {
    size_t cap = 0;
    for (int i = 0; i < num; i++) {
        uint32_t same = 0;
        while (i && same < words[i].len && same < words[i - 1].len &&
               words[i].text[same] == words[i - 1].text[same])
            same++;
        cap += words[i].len - same;
    }
    trie->nodes = malloc((cap + 1) * sizeof *trie->nodes);
    if (!trie->nodes)
        return false;
    int32_t path[TRIE_DEPTH];
    uint32_t depth = 0;
    for (int i = 0; i < num; i++) {
        uint32_t same = 0;
        while (same < depth && same < words[i].len &&
               trie->nodes[path[same]].byte == (uint8_t)words[i].text[same])
            same++;
        while (depth > same)
            trie->nodes[path[--depth]].end = (int32_t)trie->num;
        for (; depth < words[i].len; depth++) {
            path[depth] = (int32_t)trie->num;
            trie->nodes[trie->num++] =
                (struct trie_node){(uint8_t)words[i].text[depth], (uint16_t)depth, -1, 0};
        }
        trie->nodes[path[depth - 1]].token = words[i].token;
    }
    while (depth > 0)
        trie->nodes[path[--depth]].end = (int32_t)trie->num;
    return true;
}

static bool read_tokens(struct token_trie *t, const struct vocabulary *v) {
    size_t total = 0;
    for (int pass = 0; pass < 2; pass++) {
        size_t at = 0;
        for (token_id id = 0; id < t->vocab; id++) {
            size_t len;
            const char *p = v->bytes(v->state, id, false, &len);
            char code[TOKEN_CODE_BYTES];
            bool end = v->is_end(v->state, id), control = v->is_control(v->state, id);
            if (control) {
                token_code(id, code);
                p = code;
                len = sizeof code;
            }
            // A byte token of 0xFF would begin the code of a control token.
            if (end || len > TRIE_DEPTH || (!control && memchr(p, 0xff, len)))
                len = 0;
            if (pass) {
                t->starts[id] = (uint32_t)at;
                t->ends[id] = end;
                memcpy(t->bytes + at, p, len);
                t->plain[id] = (uint8_t)(control ? 0 : plain_level(p, len));
            }
            at += len;
        }
        total = at;
        if (pass == 0 && !(t->bytes = malloc(total + 1)))
            return false;
    }
    t->starts[t->vocab] = (uint32_t)total;
    return true;
}

static bool make_tries(struct token_trie *t) {
    struct word *words = malloc(((size_t)t->vocab + 1) * sizeof *words),
                *some = malloc(((size_t)t->vocab + 1) * sizeof *some);
    bool ok = words && some;
    int num = 0, unique = 0;
    for (token_id id = 0; ok && id < t->vocab; id++) {
        uint32_t len = t->starts[id + 1] - t->starts[id];
        t->same[id] = -1;
        if (len)
            words[num++] = (struct word){t->bytes + t->starts[id], len, id};
    }
    if (ok)
        qsort(words, (size_t)num, sizeof *words, by_text);
    for (int i = 0; i < num && ok; i++) { // of those alike the last one leads to the ones before it
        if (unique && words[unique - 1].len == words[i].len &&
            !memcmp(words[unique - 1].text, words[i].text, words[i].len)) {
            t->same[words[i].token] = words[unique - 1].token;
            words[unique - 1].token = words[i].token;
        } else {
            words[unique++] = words[i];
        }
    }
    for (int level = 0; level < LEVELS && ok; level++) {
        int n = 0;
        for (int i = 0; i < unique; i++) {
            int of = t->plain[words[i].token];
            if (!of || of > level)
                some[n++] = words[i];
        }
        ok = make_trie(&t->tries[level], some, n);
    }
    free(words);
    free(some);
    return ok;
}

struct token_trie *token_trie_new(struct vocabulary v) {
    struct token_trie *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->vocabulary = v;
    t->vocab = v.size;
    size_t n = (size_t)t->vocab + 1, words = (n + 31) / 32;
    t->starts = calloc(n, sizeof *t->starts);
    t->same = malloc(n * sizeof *t->same);
    t->ends = calloc(n, 1);
    t->plain = calloc(n, 1);
    t->end_list = malloc(n * sizeof *t->end_list);
    bool ok = t->starts && t->same && t->ends && t->plain && t->end_list;
    for (int level = 0; level < LEVELS; level++)
        ok = (t->masks[level] = calloc(words, sizeof *t->masks[level])) && ok;
    if (!ok || !read_tokens(t, &v) || !make_tries(t)) {
        token_trie_free(t);
        return NULL;
    }
    for (token_id id = 0; id < t->vocab; id++) {
        if (t->ends[id])
            t->end_list[t->num_ends++] = id;
        for (int level = t->plain[id]; level && level < LEVELS; level++)
            t->masks[level][id / 32] |= 1u << (id % 32);
    }
    return t;
}

void token_trie_free(struct token_trie *t) {
    if (!t)
        return;
    for (int level = 0; level < LEVELS; level++) {
        free(t->tries[level].nodes);
        free(t->masks[level]);
    }
    free(t->bytes);
    free(t->starts);
    free(t->same);
    free(t->ends);
    free(t->plain);
    free(t->end_list);
    free(t);
}

// ---- which plain tokens are allowed together

// The classes of bytes that text_class() of network.c keeps apart, as ranges of first bytes and what follows them.
static const struct {
    unsigned char first, last, low, high; // first bytes; the second byte
    int more;                             // bytes behind the first
} sequences[] = {{0x20, 0x7f, 0, 0, 0},       {0xc2, 0xdf, 0x80, 0xbf, 1}, {0xe0, 0xe0, 0xa0, 0xbf, 2},
                 {0xe1, 0xec, 0x80, 0xbf, 2}, {0xed, 0xed, 0x80, 0x9f, 2}, {0xee, 0xef, 0x80, 0xbf, 2},
                 {0xf0, 0xf0, 0x90, 0xbf, 3}, {0xf1, 0xf3, 0x80, 0xbf, 3}, {0xf4, 0xf4, 0x80, 0x8f, 3}};

enum { MAX_MET = 64, LEVEL_WORK = 1 << 14 }; // it pays only where it is easy to see
struct met {
    int32_t states[MAX_MET];
    int num;
};

static bool met_add(struct met *s, int32_t state) {
    for (int i = 0; i < s->num; i++)
        if (s->states[i] == state)
            return true;
    if (s->num == MAX_MET)
        return false;
    s->states[s->num++] = state;
    return true;
}

// All bytes of a range from all of `from`; false: one of them is not taken, or too many states to look at.
static bool step_all(struct matcher *m, const struct met *from, int first, int last, struct met *to) {
    const struct grammar *g = matcher_grammar(m);
    for (int i = 0; i < from->num; i++) {
        bool done[256] = {0};
        for (int c = first; c <= last; c++) {
            if (done[g->class_of[c]] || c == '"' || c == '\\')
                continue;
            done[g->class_of[c]] = true;
            int32_t next = matcher_walk_step(m, from->states[i], (unsigned char)c);
            if (next < 0 || matcher_walk_work(m) > LEVEL_WORK ||
                (matcher_takes_plain(m, next) < INT_MAX && !met_add(to, next)))
                return false;
        }
    }
    return true;
}

// The states behind any character from any of `from`.
static bool char_all(struct matcher *m, const struct met *from, struct met *to) {
    for (size_t s = 0; s < sizeof sequences / sizeof *sequences; s++) {
        struct met at[4] = {{.num = 0}};
        int more = sequences[s].more;
        if (!step_all(m, from, sequences[s].first, sequences[s].last, more ? &at[0] : to))
            return false;
        for (int i = 0; i < more; i++)
            if (!step_all(m, &at[i], i ? 0x80 : sequences[s].low, i ? 0xbf : sequences[s].high,
                          i + 1 < more ? &at[i + 1] : to))
                return false;
    }
    return true;
}

// The highest level whose tokens are all allowed: any run of so many plain characters is. A state is looked at where it is
// first reached: most characters are left there.
static int find_level(struct matcher *m, int32_t state) {
    struct met all = {{state}, 1}, last = all;
    int level = 0, shown = matcher_takes_plain(m, state);
    while (level + 1 < LEVELS && level_chars[level + 1] <= shown)
        level++;
    if (shown)
        return level;
    for (int chars = 0; level + 1 < LEVELS;) {
        struct met next = {.num = 0};
        if (!char_all(m, &last, &next))
            return level;
        last.num = 0;
        for (int i = 0, before = all.num; i < next.num; i++, before = all.num) {
            if (!met_add(&all, next.states[i]))
                return level;
            if (all.num > before)
                last.states[last.num++] = next.states[i];
        }
        if (last.num == 0) // no new states: any number of characters
            return LEVELS - 1;
        if (++chars == level_chars[level + 1])
            level++;
    }
    return level;
}

// ---- masks

void token_walk_begin(struct token_walk *w, const struct token_trie *t, struct matcher *m, int32_t state,
                      uint32_t *mask) {
    matcher_walk_begin(m);
    w->state = w->path[0] = state;
    w->level = find_level(m, state);
    w->at = 0;
    w->limit = false;
    memcpy(mask, t->masks[w->level], ((size_t)t->vocab + 31) / 32 * sizeof *mask);
    for (int i = 0; i < t->num_ends && matcher_may_end(m, state); i++)
        mask[t->end_list[i] / 32] |= 1u << (t->end_list[i] % 32);
}

static bool is_empty(const uint32_t *mask, int vocab) {
    uint32_t any = 0;
    for (int i = 0; i < (vocab + 31) / 32; i++)
        any |= mask[i];
    return !any;
}

enum mask_result token_walk_run(struct token_walk *w, const struct token_trie *t, struct matcher *m,
                                int64_t *work, uint32_t *mask) {
    const uint8_t *class_of = matcher_grammar(m)->class_of;
    const struct trie *trie = &t->tries[w->level];
    const uint16_t walk = matcher_walk(m);
    const uint64_t begin = matcher_work(m);
    const size_t first = w->at;
    size_t i = first;
    bool over = false;
    while (i < trie->num && (int64_t)((i - first) / NODES_OF_WORK) < *work) {
        const struct trie_node *n = &trie->nodes[i];
        int32_t from = w->path[n->depth];
        const struct edge *edge = &matcher_row(m, from)[class_of[n->byte]];
        int32_t to = edge->to;
        if (edge->walk != walk) {
            over = matcher_walk_work(m) > MASK_WORK;
            if (over || matcher_work(m) - begin > (uint64_t)*work)
                break;
            to = matcher_walk_step(m, from, n->byte);
        }
        if (to < 0) {
            w->limit |= to == MATCHER_LIMIT;
            i = (size_t)n->end;
            continue;
        }
        w->path[n->depth + 1] = to;
        for (int32_t id = n->token; id >= 0; id = t->same[id])
            mask[id / 32] |= 1u << (id % 32);
        i++;
    }
    w->at = i;
    *work -= (int64_t)((i - first) / NODES_OF_WORK + (matcher_work(m) - begin) + 1);
    if (i < trie->num && !over) {
        *work = *work < 0 ? *work : 0;
        return MASK_MORE;
    }
    return over || (w->limit && is_empty(mask, t->vocab)) ? MASK_LIMIT : MASK_DONE;
}
