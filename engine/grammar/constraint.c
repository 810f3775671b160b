#include "expr.h"
#include "front.h"
#include "token_trie.h"
#include "work_time.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 4 * SOURCE_BYTES };        // of what a constraint is made of
enum { NUM_MASKS = 256 };                     // kept of one constraint
static const size_t max_states = 8 << 20;     // bytes of a matcher's states; beyond it forgets them
static const size_t max_mask_bytes = 4 << 20; // of the masks kept

struct constraint {
    atomic_int references;
    struct grammar *grammar;
    const struct token_trie *trie;
    pthread_mutex_t lock; // of all below
    struct matcher *matcher;
    uint64_t epoch;            // how often the states were forgotten
    uint32_t *masks;           // (num_masks, words) of the states in owners
    int32_t owners[NUM_MASKS]; // -1: free
    int num_masks, next_mask;
    size_t words;
};

// ---- parts

static expr part_expr(struct grammar_builder *b, const struct grammar_part *p, int depth, struct err *err);

static expr parts_expr(struct grammar_builder *b, const struct grammar_part *p, int depth, struct err *err) {
    expr *list = malloc(((size_t)p->num + 1) * sizeof *list), e = EXPR_NONE;
    int done = 0;
    while (list && done < p->num && (list[done] = part_expr(b, &p->parts[done], depth + 1, err)) != EXPR_NONE)
        done++;
    if (list && done == p->num)
        e = p->kind == GRAMMAR_SEQ ? gb_seq(b, list, done) : gb_alt(b, list, done);
    if (!list)
        err_set(err, STATUS_NOMEM, "out of memory");
    free(list);
    return e;
}

static expr without_expr(struct grammar_builder *b, const struct grammar_part *p) {
    struct dfa *all = gb_dfa_without(b, "", 0);
    for (int i = 0; i < p->num && all; i++) {
        struct err err = {0};
        struct dfa *one = gb_dfa_without(b, p->parts[i].text, p->parts[i].len), *both = NULL;
        if (one && !(both = dfa_intersect(all, one, &err)))
            gb_fail(b, err.code, err.msg);
        dfa_free(one);
        dfa_free(all);
        all = both;
    }
    return all ? gb_dfa(b, all) : EXPR_NONE;
}

static expr source_expr(struct grammar_builder *b, const struct grammar_part *p, struct err *err) {
    gb_json_literals(b, p->literals);
    switch (p->language) {
    case GRAMMAR_JSON_SCHEMA: return schema_to_expr(b, p->text, p->len, err);
    case GRAMMAR_JSON_OBJECT: return schema_to_expr(b, "{\"type\":\"object\"}", 17, err);
    case GRAMMAR_REGEX: return regex_to_expr(b, p->text, p->len, err);
    case GRAMMAR_GBNF: return gbnf_to_expr(b, p->text, p->len, err);
    case GRAMMAR_LARK: return lark_to_expr(b, p->text, p->len, err);
    }
    return EXPR_NONE;
}

static expr part_expr(struct grammar_builder *b, const struct grammar_part *p, int depth, struct err *err) {
    if (depth > MAX_NESTING) {
        err_set(err, STATUS_LIMIT, "the parts of the text are nested too deep");
        return EXPR_NONE;
    }
    switch (p->kind) {
    case GRAMMAR_TEXT: return gb_bytes(b, p->text, p->len);
    case GRAMMAR_TOKEN: return gb_token(b, p->token);
    case GRAMMAR_WITHOUT: return without_expr(b, p);
    case GRAMMAR_SOURCE: return source_expr(b, p, err);
    case GRAMMAR_BLANKS: return gb_json_blanks(b);
    case GRAMMAR_SEQ:
    case GRAMMAR_ANY_OF: return parts_expr(b, p, depth, err);
    case GRAMMAR_REPEAT: return gb_repeat(b, part_expr(b, p->parts, depth + 1, err), p->min, p->max);
    }
    return EXPR_NONE;
}

// Adds the bytes of all texts and sources. false: they are too many, before anything is made of them.
static bool count_bytes(const struct grammar_part *p, size_t *bytes, struct err *err) {
    if (p->kind == GRAMMAR_SOURCE && p->len > SOURCE_BYTES)
        return err_set(err, STATUS_LIMIT, "the grammar has more than %d bytes", SOURCE_BYTES) == STATUS_OK;
    *bytes += p->len;
    if (*bytes > MAX_BYTES)
        return err_set(err, STATUS_LIMIT, "all schemas, grammars and texts have more than %d bytes",
                       MAX_BYTES) == STATUS_OK;
    for (int i = 0; i < p->num; i++)
        if (!count_bytes(&p->parts[i], bytes, err))
            return false;
    return true;
}

static struct grammar *compile(const struct grammar_part *root, const struct json_style *style,
                               struct err *err) {
    size_t bytes = 0;
    if (!count_bytes(root, &bytes, err))
        return NULL;
    struct grammar_builder *b = gb_new();
    if (!b) {
        err_set(err, STATUS_NOMEM, "out of memory");
        return NULL;
    }
    gb_json_style(b, style);
    expr e = part_expr(b, root, 0, err);
    if (err->code == STATUS_OK && e != EXPR_NONE)
        return grammar_finish(b, e, err);
    gb_failed(b, err);
    err_set(err, STATUS_INVALID, "the grammar could not be read");
    gb_free(b);
    return NULL;
}

struct constraint *constraint_new(const struct grammar_part *root, const struct json_style *style,
                                  const struct token_trie *trie, struct err *err) {
    work_time_begin();
    struct grammar *g = compile(root, style, err);
    work_time_end();
    struct constraint *c = g ? calloc(1, sizeof *c) : NULL;
    struct matcher *m = c ? matcher_new(g) : NULL;
    if (!m || matcher_start(m) == MATCHER_FAILED) {
        if (m && matcher_at_limit(m))
            err_set(err, STATUS_LIMIT, "a text may begin in more than %d ways", MAX_THREADS);
        else if (g)
            err_set(err, STATUS_NOMEM, "out of memory");
        matcher_free(m);
        grammar_free(g);
        free(c);
        return NULL;
    }
    *c = (struct constraint){.references = 1,
                             .grammar = g,
                             .trie = trie,
                             .matcher = m,
                             .words = ((size_t)token_trie_vocab(trie) + 31) / 32};
    c->num_masks = (int)(max_mask_bytes / (c->words * sizeof *c->masks + 1));
    c->num_masks = c->num_masks > NUM_MASKS ? NUM_MASKS : c->num_masks < 1 ? 1 : c->num_masks;
    memset(c->owners, -1, sizeof c->owners);
    pthread_mutex_init(&c->lock, NULL); // cannot fail on Linux: no attributes
    return c;
}

void constraint_retain(struct constraint *c) { atomic_fetch_add(&c->references, 1); }

void constraint_release(struct constraint *c) {
    if (!c || atomic_fetch_sub(&c->references, 1) > 1)
        return;
    pthread_mutex_destroy(&c->lock);
    matcher_free(c->matcher);
    grammar_free(c->grammar);
    free(c->masks);
    free(c);
}

size_t constraint_bytes(struct constraint *c) {
    pthread_mutex_lock(&c->lock);
    size_t bytes = sizeof *c + grammar_bytes(c->grammar) + matcher_bytes(c->matcher);
    bytes += c->masks ? (size_t)c->num_masks * c->words * sizeof *c->masks : 0;
    pthread_mutex_unlock(&c->lock);
    return bytes;
}

// The mask of a state, from those kept or computed; valid while the lock is held. NULL: out of memory.
static const uint32_t *mask_of(struct constraint *c, int32_t state) {
    if (!c->masks && !(c->masks = malloc((size_t)c->num_masks * c->words * sizeof *c->masks)))
        return NULL;
    int32_t kept = matcher_notes(c->matcher, state)[0];
    if (kept)
        return c->masks + (size_t)(kept - 1) * c->words;
    int slot = c->next_mask;
    c->next_mask = (slot + 1) % c->num_masks;
    if (c->owners[slot] >= 0)
        matcher_notes(c->matcher, c->owners[slot])[0] = 0;
    uint32_t *mask = c->masks + (size_t)slot * c->words;
    int32_t level = matcher_notes(c->matcher, state)[1];
    token_trie_mask(c->trie, c->matcher, state, &level, mask);
    c->owners[slot] = state;
    matcher_notes(c->matcher, state)[0] = slot + 1; // the walk may have moved the notes
    matcher_notes(c->matcher, state)[1] = level;
    return mask;
}

// ---- filters

struct filter {
    struct constraint *c;
    uint64_t epoch;   // of state and states
    int32_t state;    // behind all tokens
    int32_t *states;  // (num) before each token
    token_id *tokens; // (num) accepted
    size_t num, cap;
    bool ended; // by a token that ends the text
};

static int32_t state_behind(const struct filter *f, int32_t state, token_id token) {
    size_t len;
    const char *bytes = token_trie_bytes(f->c->trie, token, &len);
    return len ? matcher_text(f->c->matcher, state, bytes, len) : MATCHER_DEAD;
}

// With the lock: the states of f's tokens are those of the matcher as it is now.
static void catch_up(struct filter *f) {
    struct constraint *c = f->c;
    if (matcher_trim(c->matcher, max_states)) {
        memset(c->owners, -1, sizeof c->owners);
        c->epoch++;
    }
    if (f->epoch == c->epoch)
        return;
    f->epoch = c->epoch;
    f->state = matcher_start(c->matcher);
    for (size_t i = 0; i < f->num; i++) {
        f->states[i] = f->state;
        f->state = f->state < 0 || (f->ended && i + 1 == f->num) ? f->state
                                                                 : state_behind(f, f->state, f->tokens[i]);
    }
}

static bool filter_accept(void *state, token_id token) {
    struct filter *f = state;
    if (f->num == f->cap) {
        size_t cap = f->cap ? 2 * f->cap : 64;
        int32_t *states = realloc(f->states, cap * sizeof *states);
        f->states = states ? states : f->states;
        token_id *tokens = states ? realloc(f->tokens, cap * sizeof *tokens) : NULL;
        f->tokens = tokens ? tokens : f->tokens;
        if (!tokens)
            return false;
        f->cap = cap;
    }
    pthread_mutex_lock(&f->c->lock);
    catch_up(f);
    int32_t next = MATCHER_DEAD;
    bool end = token_trie_is_end(f->c->trie, token);
    if (!f->ended && f->state >= 0)
        next = !end                                       ? state_behind(f, f->state, token)
               : matcher_may_end(f->c->matcher, f->state) ? f->state
                                                          : MATCHER_DEAD;
    if (next >= 0) {
        f->states[f->num] = f->state;
        f->tokens[f->num++] = token;
        f->state = next;
        f->ended = end;
    }
    pthread_mutex_unlock(&f->c->lock);
    return next >= 0;
}

static void filter_mask(void *state, uint32_t *bits, int vocab) {
    struct filter *f = state;
    size_t words = ((size_t)vocab + 31) / 32;
    memset(bits, 0, words * sizeof *bits);
    pthread_mutex_lock(&f->c->lock);
    catch_up(f);
    const uint32_t *mask = f->state >= 0 && !f->ended ? mask_of(f->c, f->state) : NULL;
    if (mask)
        memcpy(bits, mask, (words < f->c->words ? words : f->c->words) * sizeof *bits);
    if (vocab % 32)
        bits[words - 1] &= (1u << (vocab % 32)) - 1;
    pthread_mutex_unlock(&f->c->lock);
}

static bool filter_done(void *state) {
    struct filter *f = state;
    pthread_mutex_lock(&f->c->lock);
    catch_up(f);
    bool done = f->ended || (f->state >= 0 && !matcher_may_go_on(f->c->matcher, f->state));
    pthread_mutex_unlock(&f->c->lock);
    return done;
}

static void filter_rollback(void *state, int n) {
    struct filter *f = state;
    if (n <= 0)
        return;
    f->num -= (size_t)n;
    f->state = f->states[f->num]; // of the epoch in which it was noted, as f says
    f->ended = false;
}

static void filter_free(void *state) {
    struct filter *f = state;
    constraint_release(f->c);
    free(f->states);
    free(f->tokens);
    free(f);
}

struct token_filter *constraint_filter(struct constraint *c) {
    struct filter *f = calloc(1, sizeof *f);
    struct token_filter *t = calloc(1, sizeof *t);
    if (!f || !t) {
        free(f);
        free(t);
        return NULL;
    }
    constraint_retain(c);
    f->c = c;
    f->epoch = UINT64_MAX; // nothing is known yet
    *t = (struct token_filter){f, filter_accept, filter_mask, filter_rollback, filter_free, filter_done};
    return t;
}

// ---- drafts

// The only byte that may come behind a state; -1: several, or none, or the end. One byte of each class is asked.
static int only_byte(struct matcher *m, int32_t state) {
    const uint8_t *class_of = matcher_grammar(m)->class_of;
    bool asked[256] = {0}, may[256];
    int found = -1, num = 0;
    for (int byte = 0; byte < 256 && num < 2 && !matcher_may_end(m, state); byte++) {
        int class = class_of[byte];
        if (!asked[class])
            may[class] = matcher_step(m, state, (unsigned char)byte) >= 0;
        asked[class] = true;
        if (may[class]) {
            found = byte;
            num++;
        }
    }
    return num == 1 ? found : -1;
}

// The last token of a text may be the beginning of a longer one, so it is left to the model.
static int propose_forced(void *state, const token_id *tokens, int n, token_id *drafts, int max) {
    enum { MAX_TEXT = 64 };
    (void)tokens;
    (void)n;
    struct filter *f = state;
    struct token_buf ids = {0};
    char text[MAX_TEXT];
    size_t len = 0;
    pthread_mutex_lock(&f->c->lock);
    catch_up(f);
    for (int32_t at = f->ended ? MATCHER_DEAD : f->state; at >= 0 && len < MAX_TEXT;) {
        int byte = only_byte(f->c->matcher, at);
        if (byte < 0 || (unsigned char)byte == 0xff)
            break;
        text[len++] = (char)byte;
        at = matcher_step(f->c->matcher, at, (unsigned char)byte);
    }
    pthread_mutex_unlock(&f->c->lock);
    int num = 0;
    if (len > 1 &&
        tokenizer_encode(token_trie_tokenizer(f->c->trie), text, len, TOKENIZE_CONTINUES, &ids) == STATUS_OK)
        for (; num < max && (size_t)num + 1 < ids.len; num++)
            drafts[num] = ids.ids[num];
    token_buf_free(&ids);
    return num;
}

struct drafter *constraint_drafter(const struct token_filter *f) {
    struct drafter *d = calloc(1, sizeof *d);
    if (d)
        *d = (struct drafter){f->state, propose_forced, NULL};
    return d;
}
