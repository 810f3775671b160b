#include "expr.h"
#include "front.h"
#include "log.h"
#include "token_trie.h"
#include "work_time.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 4 * SOURCE_BYTES }; // of a constraint's sources
enum { NUM_MASKS = 256 }; // kept of one constraint: a state's note is the slot of its mask, and 1
enum { NOTE_LIMIT = -1 }; // or that there is none, MASK_LIMIT
// Bytes of a matcher's states; beyond it forgets those without users.
static const size_t max_states = 8 << 20;
static const size_t max_mask_bytes = 4 << 20; // of the masks kept

struct constraint {
    atomic_int references;
    struct grammar *grammar;
    const struct token_trie *trie;
    pthread_mutex_t lock; // guards users and served
    pthread_cond_t turn;
    // User number `served` may use the fields below: in order of arrival, so that none waits for two masks.
    uint64_t users, served;
    struct matcher *matcher;
    struct filter *filters;    // all that live
    uint32_t *masks;           // (num_masks, words) of the states in owners
    int32_t owners[NUM_MASKS]; // -1: free
    int num_masks, next_mask;
    size_t words, kept_bytes; // of the states that the last forgetting left
    struct token_walk walk;   // for the mask in slot next_mask
    struct filter *walker;    // its owner; NULL: none
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

static bool begin_tags(struct grammar_builder *b, const struct grammar_tags *t, int depth, struct err *err) {
    struct builder_tags tags = {.of = t};
    const struct {
        const struct grammar_part *part;
        expr *to;
    } parts[] = {{t ? t->open : NULL, &tags.open},
                 {t ? t->of_text : NULL, &tags.of_text},
                 {t ? t->of_value : NULL, &tags.of_value},
                 {t ? t->close : NULL, &tags.close}};
    for (int i = 0; t && i < 4; i++)
        if ((*parts[i].to = part_expr(b, parts[i].part, depth + 1, err)) == EXPR_NONE)
            return false;
    gb_json_tags(b, &tags);
    return true;
}

static expr source_expr(struct grammar_builder *b, const struct grammar_part *p, int depth, struct err *err) {
    const struct grammar_tags *tags = p->literals ? p->literals->tags : NULL;
    gb_json_literals(b, tags ? NULL : p->literals);
    if (!begin_tags(b, tags, depth, err))
        return EXPR_NONE;
    switch (p->language) {
    case GRAMMAR_JSON_SCHEMA: return schema_to_expr(b, p->text, p->len, err);
    case GRAMMAR_JSON_OBJECT: return schema_to_expr(b, "{\"type\":\"object\"}", 17, err);
    case GRAMMAR_REGEX: return regex_to_expr(b, p->text, p->len, err);
    case GRAMMAR_GBNF: return gbnf_to_expr(b, p->text, p->len, err);
    case GRAMMAR_LARK: return lark_to_expr(b, p->text, p->len, err);
    }
    return EXPR_NONE;
}

static expr quoted_expr(struct grammar_builder *b, const struct grammar_part *p, int depth, struct err *err) {
    const struct grammar_tags *tags = p->literals ? p->literals->tags : NULL;
    expr text = part_expr(b, p->parts, depth + 1, err);
    gb_json_literals(b, tags ? NULL : p->literals);
    return text == EXPR_NONE ? EXPR_NONE
           : tags            ? gb_without(b, text, tags->stop)
                             : gb_json_string_as(b, text);
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
    case GRAMMAR_SOURCE: return source_expr(b, p, depth, err);
    case GRAMMAR_QUOTED: return quoted_expr(b, p, depth, err);
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
    int32_t start = m ? matcher_start(m) : MATCHER_FAILED;
    if (start == MATCHER_FAILED || start == MATCHER_LIMIT) {
        if (start == MATCHER_LIMIT)
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
    pthread_cond_init(&c->turn, NULL);
    return c;
}

void constraint_retain(struct constraint *c) { atomic_fetch_add(&c->references, 1); }

void constraint_release(struct constraint *c) {
    if (!c || atomic_fetch_sub(&c->references, 1) > 1)
        return;
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->turn);
    matcher_free(c->matcher);
    grammar_free(c->grammar);
    free(c->masks);
    free(c);
}

static void enter(struct constraint *c) {
    pthread_mutex_lock(&c->lock);
    uint64_t turn = c->users++;
    while (c->served != turn)
        pthread_cond_wait(&c->turn, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

static void leave(struct constraint *c) {
    pthread_mutex_lock(&c->lock);
    c->served++;
    pthread_cond_broadcast(&c->turn);
    pthread_mutex_unlock(&c->lock);
}

size_t constraint_bytes(struct constraint *c) {
    enter(c);
    size_t bytes = sizeof *c + grammar_bytes(c->grammar) + matcher_bytes(c->matcher);
    bytes += c->masks ? (size_t)c->num_masks * c->words * sizeof *c->masks : 0;
    leave(c);
    return bytes;
}

// ---- filters

struct filter {
    struct constraint *c;
    struct filter *prev, *next; // of the constraint
    int32_t state;              // behind all tokens; MATCHER_UNKNOWN: before the first one, not looked up yet
    int32_t states[MAX_DRAFTS]; // before the last tokens: of token i at i modulo their number
    size_t num, num_states;     // tokens accepted; of those, the last ones that can be taken back
    bool ended;                 // by a token that ends the text
};

static int32_t state_behind(const struct filter *f, int32_t state, token_id token) {
    size_t len;
    const char *bytes = token_trie_bytes(f->c->trie, token, &len);
    return len ? matcher_text(f->c->matcher, state, bytes, len) : MATCHER_DEAD;
}

static void enter_filter(struct filter *f) {
    enter(f->c);
    if (f->state == MATCHER_UNKNOWN)
        f->state = matcher_start(f->c->matcher);
}

// The states that a filter may still ask for.
static size_t list_states(struct filter *f, int32_t **places) {
    size_t n = 0;
    if (f->state >= 0)
        places[n++] = &f->state;
    for (size_t i = f->num - f->num_states; i < f->num; i++)
        places[n++] = &f->states[i % MAX_DRAFTS];
    return n;
}

// Forgets the states that no filter needs, where they have become many.
static void forget_states(struct constraint *c) {
    if (matcher_bytes(c->matcher) <= max_states + 2 * c->kept_bytes)
        return;
    size_t num = 0, n = 0;
    for (struct filter *f = c->filters; f; f = f->next)
        num += 1 + MAX_DRAFTS;
    int32_t **places = malloc((num + 1) * sizeof *places), *states = malloc((num + 1) * sizeof *states);
    for (struct filter *f = c->filters; places && states && f; f = f->next)
        n += list_states(f, places + n);
    for (size_t i = 0; places && states && i < n; i++)
        states[i] = *places[i];
    if (places && states && matcher_keep(c->matcher, states, n)) {
        memset(c->owners, -1, sizeof c->owners);
        for (size_t i = 0; i < n; i++) {
            *places[i] = states[i];
            int32_t kept = *matcher_note(c->matcher, states[i]);
            if (kept > 0)
                c->owners[kept - 1] = states[i];
        }
        c->kept_bytes = matcher_bytes(c->matcher);
    }
    free(places);
    free(states);
}

static bool filter_accept(void *state, token_id token) {
    struct filter *f = state;
    enter_filter(f);
    int32_t next = MATCHER_DEAD;
    bool end = token_trie_is_end(f->c->trie, token);
    if (!f->ended && f->state >= 0)
        next = !end                                       ? state_behind(f, f->state, token)
               : matcher_may_end(f->c->matcher, f->state) ? f->state
                                                          : MATCHER_DEAD;
    if (next >= 0) {
        f->states[f->num++ % MAX_DRAFTS] = f->state;
        f->num_states += f->num_states < MAX_DRAFTS;
        f->state = next;
        f->ended = end;
    }
    leave(f->c);
    return next >= 0;
}

// The next part of the walk that goes on, else of one for f. Its mask is kept where it is done.
static void walk_on(struct filter *f, int64_t *work) {
    struct constraint *c = f->c;
    uint32_t *mask = c->masks + (size_t)c->next_mask * c->words;
    if (!c->walker) {
        forget_states(c);
        if (c->owners[c->next_mask] >= 0)
            *matcher_note(c->matcher, c->owners[c->next_mask]) = 0;
        c->owners[c->next_mask] = -1;
        c->walker = f;
        uint64_t begin = matcher_work(c->matcher);
        token_walk_begin(&c->walk, c->trie, c->matcher, f->state, mask);
        *work -= (int64_t)(matcher_work(c->matcher) - begin);
    }
    enum mask_result result = token_walk_run(&c->walk, c->trie, c->matcher, work, mask);
    if (result == MASK_DONE) {
        c->owners[c->next_mask] = c->walk.state;
        *matcher_note(c->matcher, c->walk.state) = c->next_mask + 1;
        c->next_mask = (c->next_mask + 1) % c->num_masks;
    } else if (result == MASK_LIMIT) {
        *matcher_note(c->matcher, c->walk.state) = NOTE_LIMIT;
    }
    if (result != MASK_MORE)
        c->walker = NULL;
}

// The mask of f's state is kept, or why not. A walk of another filter has to end first.
static enum mask_result find_mask(struct filter *f, int64_t *work) {
    struct constraint *c = f->c;
    if (c->walker == f && c->walk.state != f->state) // of drafts that were taken back
        c->walker = NULL;
    while (!*matcher_note(c->matcher, f->state)) {
        if (*work <= 0)
            return MASK_MORE;
        walk_on(f, work);
    }
    return *matcher_note(c->matcher, f->state) == NOTE_LIMIT ? MASK_LIMIT : MASK_DONE;
}

static enum mask_result filter_mask(void *state, uint32_t *bits, int vocab, int64_t *work) {
    struct filter *f = state;
    struct constraint *c = f->c;
    enum mask_result result = MASK_DONE;
    size_t words = ((size_t)vocab + 31) / 32;
    memset(bits, 0, words * sizeof *bits);
    enter_filter(f);
    if (!c->masks)
        c->masks = malloc((size_t)c->num_masks * c->words * sizeof *c->masks);
    if (c->masks && f->state >= 0 && !f->ended && (result = find_mask(f, work)) == MASK_DONE) {
        int32_t kept = *matcher_note(c->matcher, f->state);
        memcpy(bits, c->masks + (size_t)(kept - 1) * c->words,
               (words < c->words ? words : c->words) * sizeof *bits);
    }
    if (vocab % 32)
        bits[words - 1] &= (1u << (vocab % 32)) - 1;
    leave(c);
    return result;
}

static bool filter_done(void *state) {
    struct filter *f = state;
    enter_filter(f);
    bool done = f->ended || (f->state >= 0 && !matcher_may_go_on(f->c->matcher, f->state));
    leave(f->c);
    return done;
}

static void filter_rollback(void *state, int n) {
    struct filter *f = state;
    if (n <= 0)
        return;
    CHECK((size_t)n <= f->num_states);
    enter(f->c); // forgetting states writes to these
    f->num -= (size_t)n;
    f->num_states -= (size_t)n;
    f->state = f->states[f->num % MAX_DRAFTS];
    f->ended = false;
    leave(f->c);
}

static void filter_free(void *state) {
    struct filter *f = state;
    enter(f->c);
    *(f->prev ? &f->prev->next : &f->c->filters) = f->next;
    if (f->next)
        f->next->prev = f->prev;
    if (f->c->walker == f)
        f->c->walker = NULL;
    leave(f->c);
    constraint_release(f->c);
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
    *f = (struct filter){.c = c, .state = MATCHER_UNKNOWN};
    enter(c);
    if ((f->next = c->filters))
        f->next->prev = f;
    c->filters = f;
    leave(c);
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
    char text[MAX_TEXT];
    token_id ids[MAX_TEXT];
    size_t len = 0;
    enter_filter(f);
    for (int32_t at = f->ended ? MATCHER_DEAD : f->state; at >= 0 && len < MAX_TEXT;) {
        int byte = only_byte(f->c->matcher, at);
        if (byte < 0 || (unsigned char)byte == 0xff)
            break;
        text[len++] = (char)byte;
        at = matcher_step(f->c->matcher, at, (unsigned char)byte);
    }
    leave(f->c);
    const struct vocabulary *v = token_trie_vocabulary(f->c->trie);
    int num = 0, num_ids = len > 1 && v->encode ? v->encode(v->state, text, len, false, ids, MAX_TEXT) : 0;
    for (; num < max && num < MAX_TEXT && num + 1 < num_ids; num++)
        drafts[num] = ids[num];
    return num;
}

struct drafter *constraint_drafter(const struct token_filter *f) {
    struct drafter *d = calloc(1, sizeof *d);
    if (d)
        *d = (struct drafter){f->state, propose_forced, NULL};
    return d;
}
