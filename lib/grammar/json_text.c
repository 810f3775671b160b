// Expressions for the syntax of JSON: blanks, strings, numbers, arrays, objects.
#include "expr.h"

#include <stdlib.h>
#include <string.h>

void gb_json_style(struct grammar_builder *b, const struct json_style *style) { b->style = *style; }

void gb_json_literals(struct grammar_builder *b, const struct grammar_literals *l) {
    if (b->literals != l)
        b->chars = b->one_char = b->any = EXPR_NONE;
    b->literals = l;
}

expr gb_json_word(struct grammar_builder *b, enum literal_word word) {
    static const char *const words[] = {"true", "false", "null"};
    const char *text = b->literals ? b->literals->words[word] : words[word];
    return gb_bytes(b, text, strlen(text));
}

expr gb_json_blanks(struct grammar_builder *b) {
    if (b->blanks >= 0)
        return b->blanks;
    int n = b->style.max_blanks + 1; // a state for each number of them
    struct dfa *d = calloc(1, sizeof *d);
    int32_t *next = calloc((size_t)n * 2, sizeof *next), *label = calloc((size_t)n, sizeof *label);
    if (!d || !next || !label) {
        free(d);
        free(next);
        free(label);
        return gb_fail(b, STATUS_NOMEM, "out of memory");
    }
    *d = (struct dfa){.num_states = n, .num_classes = 2, .next = next, .label = label};
    for (const char *p = " \t\n\r"; *p; p++)
        d->class_of[(unsigned char)*p] = 1;
    for (int i = 0; i < n; i++) {
        next[2 * i] = DFA_DEAD;
        next[2 * i + 1] = i + 1 < n ? i + 1 : DFA_DEAD;
    }
    b->blanks = gb_dfa(b, d);
    return b->blanks;
}

// ---- strings

static expr one_of(struct grammar_builder *b, const char *bytes) {
    bool set[256] = {0};
    for (const char *p = bytes; *p; p++)
        set[(unsigned char)*p] = true;
    return gb_byte(b, set);
}

#define HEX "[0-9a-fA-F]"
#define NO_SURROGATE "[0-9abce-fABCE-F]" HEX "{3}|[dD][0-7]" HEX "{2}"
#define PAIR "[dD][89abAB]" HEX "{2}\\\\u[dD][c-fC-F]" HEX "{2}"
#define JSON_CHAR "[^\\x00-\\x1f\"\\\\]|\\\\(?:[\"\\\\/bfnrt]|u(?:" NO_SURROGATE "|" PAIR "))"
#define PYTHON_CHAR "[^\\x00-\\x1f\"\\\\]|\\\\(?:[\"\\\\bfnrt]|u(?:" NO_SURROGATE "))" // neither \/ nor pairs

// One code point of a string: itself, or escaped; a pair of surrogates is one, a lone surrogate none. Or any number.
static expr string_chars(struct grammar_builder *b, bool any_number) {
    expr *made = any_number ? &b->chars : &b->one_char;
    const char *pattern = b->literals  ? any_number ? "(?:" PYTHON_CHAR ")*" : PYTHON_CHAR
                          : any_number ? "(?:" JSON_CHAR ")*"
                                       : JSON_CHAR;
    struct err err = {0};
    if (*made < 0) {
        struct dfa *d = dfa_regex(pattern, strlen(pattern), true, &err);
        *made = d ? gb_dfa(b, d) : gb_fail(b, err.code, err.msg);
    }
    return *made;
}

// ---- strings that hold anything but their quote

enum { MAX_LENGTHS = 256 }; // that an automaton tells apart

static expr quote_mark(struct grammar_builder *b) {
    const struct grammar_literals *l = b->literals;
    return l->quote_token >= 0 ? gb_token(b, l->quote_token) : gb_bytes(b, l->quote, strlen(l->quote));
}

// The text of d, or any; it takes d over, which may be NULL where b failed.
static expr quoted(struct grammar_builder *b, struct dfa *d, bool any) {
    const struct grammar_literals *l = b->literals;
    struct err err = {0};
    struct dfa *free_of = gb_dfa_without(b, l->quote, strlen(l->quote)), *both = NULL;
    if (any) {
        both = free_of;
    } else if (d && free_of) {
        if (!(both = dfa_intersect(d, free_of, &err)))
            gb_fail(b, err.code, err.msg);
        dfa_free(free_of);
        dfa_free(d);
    } else {
        dfa_free(free_of);
        dfa_free(d);
    }
    if (!both)
        return EXPR_NONE;
    expr quote = quote_mark(b);
    if (dfa_is_empty(both)) {
        dfa_free(both);
        return gb_never(b);
    }
    return gb_seq_of(b, quote, gb_dfa(b, both), quote);
}

expr gb_json_string(struct grammar_builder *b, int min, int max) {
    if (b->literals && b->literals->quote) {
        struct err err = {0};
        bool any = min <= 0 && max < 0;
        if (min > MAX_LENGTHS || max > MAX_LENGTHS) { // counted, without one of the quote's characters
            const uint32_t left_out = (unsigned char)b->literals->quote[1];
            expr quote = quote_mark(b),
                 not_it = gb_chars(b, &(struct code_range){left_out, left_out}, 1, true);
            return gb_seq_of(b, quote, gb_repeat(b, not_it, min, max), quote);
        }
        struct dfa *length = any ? NULL : dfa_length(min, max, &err);
        if (!any && !length)
            return gb_fail(b, err.code, err.msg);
        return quoted(b, length, any);
    }
    expr quote = gb_text(b, "\"");
    bool any = min <= 0 && max < 0;
    return gb_seq_of(b, quote, any ? string_chars(b, true) : gb_repeat(b, string_chars(b, false), min, max),
                     quote);
}

enum key_byte { KEY_NEVER, KEY_WORD, KEY_BLANK };

static enum key_byte key_byte(int c, bool tagged) {
    if (tagged)
        return c == ' ' ? KEY_BLANK : c > ' ' && c != 0x7f && !strchr("<>\"", c) ? KEY_WORD : KEY_NEVER;
    bool word = c >= 0x80 || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                (c && strchr("_-.$", c));
    return word ? KEY_WORD : KEY_NEVER;
}

// The automaton of those of the texts that are words, or that tags may stand around, with their labels. NULL: out of
// memory.
static struct dfa *words_of(const struct dfa *d, bool tagged) {
    struct dfa *e = calloc(1, sizeof *e);
    int32_t seen[3][256];
    unsigned char samples[256];
    size_t rows = (size_t)d->num_states + 1; // a word is not empty: it begins in a state to which none leads
    if (!e)
        return NULL;
    memset(seen, -1, sizeof seen);
    for (int c = 0; c < 256; c++) {
        int32_t *class = &seen[key_byte(c, tagged)][d->class_of[c]];
        if (*class < 0) {
            samples[e->num_classes] = (unsigned char)c;
            *class = e->num_classes++;
        }
        e->class_of[c] = (uint8_t) * class;
    }
    e->num_states = d->num_states ? d->num_states + 1 : 0;
    e->next = malloc(rows * (size_t)e->num_classes * sizeof *e->next);
    e->label = malloc(rows * sizeof *e->label);
    if (!e->next || !e->label) {
        dfa_free(e);
        return NULL;
    }
    for (int q = 0; q < e->num_states; q++) {
        e->label[q] = q ? d->label[q - 1] : -1;
        for (int k = 0; k < e->num_classes; k++) {
            enum key_byte kind = key_byte(samples[k], tagged);
            int32_t next = kind != KEY_NEVER ? dfa_step(d, q ? q - 1 : 0, samples[k]) : DFA_DEAD;
            if (kind == KEY_BLANK && next != DFA_DEAD && (q == 0 || d->label[next] >= 0))
                next = DFA_DEAD; // a blank at an end
            e->next[(size_t)q * (size_t)e->num_classes + (size_t)k] = next == DFA_DEAD ? DFA_DEAD : next + 1;
        }
    }
    return e;
}

expr gb_json_string_of(struct grammar_builder *b, struct dfa *d) {
    if (b->literals && b->literals->quote)
        return d ? quoted(b, d, false) : EXPR_NONE;
    expr quote = gb_text(b, "\"");
    return gb_seq_of(b, quote, gb_dfa(b, gb_dfa_escaped(b, d)), quote);
}

expr gb_json_string_as(struct grammar_builder *b, expr text) {
    if (b->literals && b->literals->quote) {
        expr mark = quote_mark(b);
        return gb_seq_of(b, mark, gb_without(b, text, b->literals->quote), mark);
    }
    expr quote = gb_text(b, "\"");
    return gb_seq_of(b, quote, gb_escaped(b, text), quote);
}

// ---- numbers

// Digits before a point, behind it, and of an exponent: a model that never ends a number never ends its object.
#define SHORT_INTEGER "-?(?:0|[1-9][0-9]{0,15})"
#define SHORT_NUMBER SHORT_INTEGER "(?:\\.[0-9]{1,16})?(?:[eE][+-]?[0-9]{1,2})?"

static expr short_number(struct grammar_builder *b, const char *pattern, expr *made) {
    struct err err = {0};
    if (*made < 0) {
        struct dfa *d = dfa_regex(pattern, strlen(pattern), true, &err);
        *made = d ? gb_dfa(b, d) : gb_fail(b, err.code, err.msg);
    }
    return *made;
}

static expr digits(struct grammar_builder *b, int min) {
    return gb_repeat(b, one_of(b, "0123456789"), min, -1);
}

expr gb_json_integer(struct grammar_builder *b) {
    if (!b->style.as_written)
        return short_number(b, SHORT_INTEGER, &b->integer);
    expr whole = gb_alt_of(b, gb_text(b, "0"), gb_seq_of(b, one_of(b, "123456789"), digits(b, 0)));
    return gb_seq_of(b, gb_repeat(b, gb_text(b, "-"), 0, 1), whole);
}

expr gb_json_number(struct grammar_builder *b) {
    if (!b->style.as_written)
        return short_number(b, SHORT_NUMBER, &b->number);
    expr fraction = gb_seq_of(b, gb_text(b, "."), digits(b, 1));
    expr exponent = gb_seq_of(b, one_of(b, "eE"), gb_repeat(b, one_of(b, "+-"), 0, 1), digits(b, 1));
    return gb_seq_of(b, gb_json_integer(b), gb_repeat(b, fraction, 0, 1), gb_repeat(b, exponent, 0, 1));
}

// ---- arrays and objects

expr gb_json_array(struct grammar_builder *b, const expr *first, int num_first, expr rest, int min, int max) {
    expr blanks = gb_json_blanks(b), comma = gb_seq_of(b, gb_text(b, ","), blanks);
    if (max >= 0 && num_first > max)
        num_first = max;
    int left = max < 0 ? -1 : max - num_first, need = min > num_first ? min - num_first : 0;
    expr none = gb_empty(b), items; // those behind the ones with a place of their own
    if (num_first) {
        items = gb_repeat(b, gb_seq_of(b, comma, rest, blanks), need, left);
    } else if (left == 0) {
        items = min > 0 ? gb_never(b) : none;
    } else {
        expr more = gb_repeat(b, gb_seq_of(b, comma, rest, blanks), need > 0 ? need - 1 : 0,
                              left < 0 ? -1 : left - 1);
        items = gb_seq_of(b, rest, blanks, more);
        if (min <= 0)
            items = gb_alt_of(b, none, items);
    }
    for (int i = num_first - 1; i >= 0; i--) {
        items = gb_seq_of(b, i ? comma : none, first[i], blanks, items);
        if (min <= i)
            items = gb_alt_of(b, none, items);
    }
    return gb_seq_of(b, gb_text(b, "["), blanks, items, gb_text(b, "]"));
}

// Kinds whose keys are no words get no value: no such member occurs.
static void leave_out_unwritable(struct grammar_builder *b, struct object *o) {
    const struct dfa *d = o->keys;
    int num = d ? d->num_states : 0, depth = 0;
    bool *been = calloc((size_t)num + 1, sizeof *been),
         *writable = calloc((size_t)o->num_kinds + 1, sizeof *writable);
    int32_t *path = malloc(((size_t)num + 1) * sizeof *path);
    if (!been || !writable || !path)
        gb_fail(b, STATUS_NOMEM, "out of memory");
    else if (num)
        been[path[depth++] = 0] = true;
    while (depth) {
        int32_t q = path[--depth];
        for (int i = d->label[q] < 0 ? 0 : o->list_starts[d->label[q]];
             d->label[q] >= 0 && i < o->list_starts[d->label[q] + 1]; i++)
            writable[o->lists[i]] = true;
        for (int k = 0; k < d->num_classes; k++) {
            int32_t next = d->next[(size_t)q * (size_t)d->num_classes + (size_t)k];
            if (next >= 0 && !been[next])
                been[path[depth++] = next] = true;
        }
    }
    int most = 0; // members; -1: any number
    for (int i = 0; writable && i < o->num_kinds; i++)
        if (!writable[i])
            o->kinds[i].value = gb_never(b);
        else
            most = most < 0 || !o->kinds[i].once ? -1 : most + 1;
    if (most >= 0 && (o->max < 0 || o->max > most))
        o->max = most;
    free(been);
    free(writable);
    free(path);
}

// Sets the marks around members and their keys.
static void set_marks(struct grammar_builder *b, struct object *o, enum json_members written) {
    expr blanks = gb_json_blanks(b);
    bool arguments = written == MEMBERS_ARGUMENTS;
    o->bare = written != MEMBERS_JSON || (b->literals && b->literals->bare_keys);
    if (written == MEMBERS_TAGS) {
        char mid[MAX_MID];
        size_t len = gb_flat_part(b->tags.of->mid, mid);
        if (!len) {
            gb_fail(b, STATUS_INVALID, "what is between the tags of a key and a value is empty or too long");
            return;
        }
        o->open = blanks;
        o->close = o->comma = gb_empty(b);
        o->key = b->tags.open;
        o->key_end = (unsigned char)*mid;
        o->colon = gb_bytes(b, mid + 1, len - 1);
        o->end = gb_seq_of(b, b->tags.close, blanks);
        return;
    }
    o->open = gb_seq_of(b, gb_bytes(b, arguments ? "(" : "{", 1), blanks);
    o->close = gb_bytes(b, arguments ? ")" : "}", 1);
    o->comma = gb_seq_of(b, gb_text(b, ","), blanks);
    o->key = o->bare ? gb_empty(b) : gb_text(b, "\"");
    o->key_end = arguments ? '=' : o->bare ? ':' : '"';
    o->colon = o->bare ? blanks : gb_seq_of(b, blanks, gb_text(b, ":"), blanks);
    o->end = blanks;
}

expr gb_json_object(struct grammar_builder *b, const struct json_object *o) {
    struct object copy = {.num_kinds = o->num_kinds,
                          .min = o->min,
                          .max = o->max,
                          .ordered = b->style.order == JSON_ORDER_SCHEMA};
    set_marks(b, &copy, o->written);
    gb_bytes(b, (const char *)&copy.key_end, 1); // its class of bytes is its own
    int labels = 0;
    for (int q = 0; o->keys && q < o->keys->num_states; q++)
        if (o->keys->label[q] >= labels)
            labels = o->keys->label[q] + 1;
    int total = labels ? o->list_starts[labels] : 0;
    copy.keys = !o->keys    ? NULL
                : copy.bare ? words_of(o->keys, o->written == MEMBERS_TAGS)
                            : gb_dfa_escaped(b, o->keys);
    if (copy.bare)
        dfa_free(o->keys);
    copy.kinds = malloc((size_t)(o->num_kinds + 1) * sizeof *copy.kinds);
    copy.lists = malloc((size_t)(total + 1) * sizeof *copy.lists);
    copy.list_starts = calloc((size_t)labels + 1, sizeof *copy.list_starts);
    if ((o->keys && !copy.keys) || !copy.kinds || !copy.lists || !copy.list_starts)
        gb_fail(b, STATUS_NOMEM, "out of memory");
    for (int i = 0; i < o->num_kinds; i++)
        if (o->kinds[i].value < 0)
            gb_fail(b, STATUS_LIMIT, "the grammar is too large"); // the first failure stays
    if (b->err.code == STATUS_OK) {
        if (o->num_kinds)
            memcpy(copy.kinds, o->kinds, (size_t)o->num_kinds * sizeof *copy.kinds);
        if (total)
            memcpy(copy.lists, o->lists, (size_t)total * sizeof *copy.lists);
        if (labels)
            memcpy(copy.list_starts, o->list_starts, ((size_t)labels + 1) * sizeof *copy.list_starts);
        if (copy.bare)
            leave_out_unwritable(b, &copy);
    }
    return gb_object_node(b, &copy); // frees it where b failed
}

expr gb_json_any(struct grammar_builder *b) {
    if (b->any >= 0)
        return b->any;
    expr any = gb_rule(b, "value");
    b->any = any; // stands within itself
    int32_t lists[] = {0}, starts[] = {0, 1};
    struct member_kind kind = {.value = any};
    struct err err = {0};
    struct dfa *keys = dfa_any(&err);
    if (!keys)
        return gb_fail(b, err.code, err.msg);
    struct json_object o = {.keys = keys,
                            .kinds = &kind,
                            .num_kinds = 1,
                            .lists = lists,
                            .list_starts = starts,
                            .min = 0,
                            .max = -1};
    gb_define(b, any,
              gb_alt_of(b, gb_json_object(b, &o), gb_json_array(b, NULL, 0, any, 0, -1),
                        gb_json_string(b, 0, -1), gb_json_number(b), gb_json_word(b, LITERAL_TRUE),
                        gb_json_word(b, LITERAL_FALSE), gb_json_word(b, LITERAL_NULL)));
    return any;
}
