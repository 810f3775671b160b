// A bound of the tokens in which a model reasons: then the text that ends its reasoning is written for it.
#include "grammar.h"

#include <stdlib.h>
#include <string.h>

enum phase { BEFORE, INSIDE, CLOSING, AFTER };

// As it is behind a token.
struct budget_place {
    enum phase phase;
    int32_t matched; // bytes of the mark that is looked for
    int32_t count;   // tokens of reasoning; in CLOSING of the text that ends it
};

struct budget {
    struct vocabulary vocabulary;
    struct token_filter *inner; // owned; NULL: anything may come
    int max_tokens;
    char *open, *close;
    token_id *closing; // (num_closing) what is written
    int num_closing;
    struct budget_place now, *places; // (num) before each token
    size_t num, cap;
};

// The state of a search for mark behind one byte more (naive: marks do not overlap with themselves but in one byte).
static int32_t search(const char *mark, int32_t matched, char byte) {
    size_t len = strlen(mark);
    char tail[72];
    size_t n = (size_t)matched;
    memcpy(tail, mark, n);
    tail[n++] = byte;
    for (size_t from = 0; from < n; from++) // the longest end of what came that the mark begins with
        if (n - from <= len && memcmp(tail + from, mark, n - from) == 0)
            return (int32_t)(n - from);
    return 0;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static void see_byte(const struct budget *b, struct budget_place *p, char byte) {
    if (p->phase == BEFORE) {
        if (p->matched == 0 && is_blank(byte))
            return;
        if (b->open[p->matched] != byte) {
            p->phase = AFTER; // no reasoning comes first
        } else if (!b->open[++p->matched]) {
            *p = (struct budget_place){.phase = INSIDE};
        }
    } else if (p->phase != AFTER) {
        p->matched = search(b->close, p->matched, byte);
        if (!b->close[p->matched])
            *p = (struct budget_place){.phase = AFTER};
    }
}

static bool must_close(const struct budget *b) {
    return b->now.phase == CLOSING || (b->now.phase == INSIDE && b->now.count >= b->max_tokens);
}

static token_id closing_token(const struct budget *b) {
    return b->closing[b->now.phase == CLOSING ? b->now.count : 0];
}

static bool budget_accept(void *state, token_id token) {
    struct budget *b = state;
    if (must_close(b) && token != closing_token(b))
        return false;
    if (b->num == b->cap) {
        size_t cap = b->cap ? 2 * b->cap : 64;
        struct budget_place *places = realloc(b->places, cap * sizeof *places);
        if (!places)
            return false;
        b->places = places;
        b->cap = cap;
    }
    if (b->inner && !b->inner->accept(b->inner->state, token))
        return false;
    b->places[b->num++] = b->now;
    if (must_close(b)) {
        int32_t at = b->now.phase == CLOSING ? b->now.count : 0;
        bool last = at + 1 == b->num_closing;
        b->now = (struct budget_place){.phase = last ? AFTER : CLOSING, .count = at + 1};
        return true;
    }
    size_t len;
    const char *bytes = b->vocabulary.bytes(b->vocabulary.state, token, true, &len);
    bool inside = b->now.phase == INSIDE;
    for (size_t i = 0; i < len; i++)
        see_byte(b, &b->now, bytes[i]);
    b->now.count += inside && b->now.phase == INSIDE;
    return true;
}

static enum mask_result budget_mask(void *state, uint32_t *bits, int vocab, int64_t *work) {
    struct budget *b = state;
    size_t words = ((size_t)vocab + 31) / 32;
    if (must_close(b)) {
        memset(bits, 0, words * sizeof *bits);
        bits[closing_token(b) / 32] |= 1u << (closing_token(b) % 32);
    } else if (b->inner) {
        return b->inner->mask(b->inner->state, bits, vocab, work);
    } else {
        memset(bits, 0xff, words * sizeof *bits);
    }
    return MASK_DONE;
}

static void budget_rollback(void *state, int n) {
    struct budget *b = state;
    if (n <= 0)
        return;
    b->num -= (size_t)n;
    b->now = b->places[b->num];
    if (b->inner)
        b->inner->rollback(b->inner->state, n);
}

static bool budget_done(void *state) {
    struct budget *b = state;
    return b->inner && b->inner->done(b->inner->state);
}

static void budget_free(void *state) {
    struct budget *b = state;
    if (b->inner) {
        b->inner->free(b->inner->state);
        free(b->inner);
    }
    free(b->closing);
    free(b->open);
    free(b->close);
    free(b->places);
    free(b);
}

static bool encode_closing(struct budget *b, const char *text) {
    const struct vocabulary *v = &b->vocabulary;
    int n = v->encode ? v->encode(v->state, text, strlen(text), true, NULL, 0) : 0;
    if (n <= 0 || !(b->closing = malloc((size_t)n * sizeof *b->closing)))
        return false;
    b->num_closing = n;
    return v->encode(v->state, text, strlen(text), true, b->closing, n) == n;
}

struct token_filter *budget_filter(const struct budget_params *p) {
    struct budget *b = calloc(1, sizeof *b);
    struct token_filter *f = calloc(1, sizeof *f);
    bool ok = b && f && strlen(p->close) < 64;
    if (ok) {
        *b = (struct budget){.vocabulary = p->vocabulary,
                             .max_tokens = p->max_tokens,
                             .open = strdup(p->open),
                             .close = strdup(p->close),
                             .now = {.phase = p->inside ? INSIDE : BEFORE}};
        ok = b->open && b->close && encode_closing(b, p->closing);
    }
    if (!ok) {
        if (b)
            budget_free(b);
        free(f);
        return NULL;
    }
    b->inner = p->inner;
    *f = (struct token_filter){b, budget_accept, budget_mask, budget_rollback, budget_free, budget_done};
    return f;
}
