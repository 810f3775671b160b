// The syntax is that of ECMA 262 with the flag u (section 22.2.1). It also takes forms that are errors there
// and that Python's re and PCRE2 read alike: punctuation that is escaped without need, { and } that begin no repeat,
// \A, \z, \x{...}, (?i).
#include "regex_tree.h"

#include "../front.h"
#include "../grow.h"
#include "code_set.h"
#include "utf8.h"

struct regex_parser {
    struct regex_tree *t;
    const char *at, *end;
    int count; // characters before `at`
    int flags;
    int *pending; // nodes that wait for their parent
    int num_pending, cap_pending;
    struct err *err;
};

// ---- errors, nodes

enum status regex_error(struct err *err, enum status code, int at, const char *what) {
    return err_set(err, code, "regular expression, character %d: %s", at, what);
}

static int refuse_at(struct regex_parser *p, int at, const char *what) {
    regex_error(p->err, STATUS_INVALID, at, what);
    return -1;
}

static int no_memory(struct regex_parser *p) {
    err_set(p->err, STATUS_NOMEM, "out of memory for a regular expression");
    return -1;
}

void regex_tree_free(struct regex_tree *t) {
    if (!t)
        return;
    free(t->nodes);
    free(t->children);
    int_sets_free(&t->sets);
    free(t);
}

static int add_node(struct regex_parser *p, struct regex_node node) {
    struct regex_tree *t = p->t;
    if (!grow_room(&t->nodes, sizeof *t->nodes, t->num_nodes, &t->cap_nodes))
        return no_memory(p);
    t->nodes[t->num_nodes] = node;
    return t->num_nodes++;
}

static bool push(struct regex_parser *p, int node) {
    if (node < 0)
        return false;
    if (!grow_room(&p->pending, sizeof *p->pending, p->num_pending, &p->cap_pending))
        return no_memory(p) == 0;
    p->pending[p->num_pending++] = node;
    return true;
}

// A node whose children are those pending from `base` on.
static int add_parent(struct regex_parser *p, struct regex_node node, int base) {
    struct regex_tree *t = p->t;
    node.first = t->num_children;
    node.num = p->num_pending - base;
    for (int i = base; i < p->num_pending; i++) {
        if (!grow_room(&t->children, sizeof *t->children, t->num_children, &t->cap_children))
            return no_memory(p);
        t->children[t->num_children++] = p->pending[i];
    }
    p->num_pending = base;
    return add_node(p, node);
}

static int add_chars(struct regex_parser *p, const struct code_range *ranges, int num, int at) {
    int set = int_sets_add(&p->t->sets, (const int32_t *)ranges, 2 * num);
    if (set == -2) {
        regex_error(p->err, STATUS_LIMIT, at, "its classes are too large");
        return -1;
    }
    return set < 0 ? no_memory(p)
                   : add_node(p, (struct regex_node){.kind = REGEX_CHARS, .set = set, .at = at});
}

// The node of a set of any order, which is freed.
static int add_set(struct regex_parser *p, struct code_set *s, bool negated, int at) {
    code_set_finish(s);
    if (p->flags & REGEX_IGNORE_CASE)
        code_set_add_cases(s);
    if (negated)
        code_set_negate(s);
    int node = s->failed ? no_memory(p) : add_chars(p, s->ranges, s->num, at);
    code_set_free(s);
    return node;
}

static int add_char(struct regex_parser *p, uint32_t c, int at) {
    struct code_set s = {0};
    if (!(p->flags & REGEX_IGNORE_CASE) && (c < 0xd800 || c > 0xdfff))
        return add_chars(p, &(struct code_range){c, c}, 1, at);
    code_set_add(&s, c, c);
    return add_set(p, &s, false, at);
}

// ---- characters

static bool next_is(const struct regex_parser *p, const char *text) {
    size_t n = strlen(text);
    return (size_t)(p->end - p->at) >= n && memcmp(p->at, text, n) == 0;
}

static bool skip(struct regex_parser *p, const char *text) {
    if (!next_is(p, text))
        return false;
    p->at += strlen(text);
    p->count += (int)strlen(text);
    return true;
}

static uint32_t take_char(struct regex_parser *p) {
    size_t n;
    uint32_t c = utf8_decode(p->at, &n);
    p->at += n;
    p->count++;
    return c;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

// num hexadecimal digits; -1: they are not there, and nothing is taken
static int32_t take_hex(struct regex_parser *p, int num) {
    int32_t value = 0;
    if (p->end - p->at < num)
        return -1;
    for (int i = 0; i < num; i++) {
        int digit = hex_digit(p->at[i]);
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    p->at += num;
    p->count += num;
    return value;
}

// The digits of \u{...} and \x{...}, of which { is taken.
static int32_t take_braces(struct regex_parser *p, int at) {
    int32_t value = 0, digits = 0;
    for (int digit; p->at < p->end && (digit = hex_digit(*p->at)) >= 0 && value <= CODE_MAX; digits++) {
        value = value * 16 + digit;
        take_char(p);
    }
    if (!skip(p, "}") || digits == 0 || value > CODE_MAX)
        return refuse_at(p, at, "\\u{...} is malformed");
    return value;
}

// The code point behind \u.
static int32_t take_unicode(struct regex_parser *p, int at) {
    if (skip(p, "{"))
        return take_braces(p, at);
    int32_t high = take_hex(p, 4);
    if (high < 0)
        return refuse_at(p, at, "\\u needs four hexadecimal digits, or {...}");
    if (high >= 0xd800 && high < 0xdc00 && next_is(p, "\\u")) { // half of a pair
        struct regex_parser before = *p;
        skip(p, "\\u");
        int32_t low = take_hex(p, 4);
        if (low >= 0xdc00 && low < 0xe000)
            return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
        p->at = before.at;
        p->count = before.count;
    }
    return high;
}

// The code point of an escape, of which \ and c are taken; -1 with err.
static int32_t take_escape(struct regex_parser *p, uint32_t c, int at) {
    static const char letters[] = "tnvfr", values[] = "\t\n\v\f\r";
    const char *letter = c > 0 && c < 128 ? strchr(letters, (int)c) : NULL;
    if (letter)
        return values[letter - letters];
    if (c == '0' && !(p->at < p->end && *p->at >= '0' && *p->at <= '9'))
        return 0;
    if ((c >= '0' && c <= '9') || c == 'k')
        return refuse_at(p, at, "back-references are not supported");
    if (c == 'x' && skip(p, "{"))
        return take_braces(p, at);
    if (c == 'x') {
        int32_t value = take_hex(p, 2);
        return value < 0 ? refuse_at(p, at, "\\x needs two hexadecimal digits") : value;
    }
    if (c == 'u')
        return take_unicode(p, at);
    if (c == 'c' && p->at < p->end && (*p->at | 32) >= 'a' && (*p->at | 32) <= 'z')
        return (int32_t)(take_char(p) & 31);
    if (c == 'b' || c == 'B')
        return refuse_at(p, at, "word boundaries (\\b, \\B) are not supported");
    bool alphanumeric = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
    if (c < ' ' || c >= 127 || alphanumeric)
        return refuse_at(p, at, "this escape is not supported");
    return (int32_t)c;
}

// Adds the set that \d, \p{...} and the like mean; 0: c begins no such escape; -1 with err.
static int take_set_escape(struct regex_parser *p, struct code_set *s, uint32_t c, int at) {
    if (c == 0 || c > 127 || !strchr("dDwWsSpP", (int)c))
        return 0;
    if ((c | 32) != 'p') {
        code_set_add_escape(s, (char)c);
        return 1;
    }
    const char *name = p->at, *end = name < p->end ? name + 1 : name;
    if (skip(p, "{")) {
        name++;
        while (p->at < p->end && *p->at != '}')
            take_char(p);
        end = p->at;
        if (!skip(p, "}"))
            return refuse_at(p, at, "\\p{ has no }");
    } else if (p->at < p->end) {
        take_char(p);
    }
    bool negated = c == 'P' || (end > name && *name == '^');
    name += end > name && *name == '^';
    if (!code_set_add_property(s, name, (size_t)(end - name), negated))
        return refuse_at(p, at,
                         "this property of characters is not supported; general categories are, such as "
                         "\\p{Lu}, and Any, ASCII, Assigned, White_Space");
    return 1;
}

// ---- classes

// One member of a class: 1: *c, 0: a set that is added, -1 with err.
static int take_member(struct regex_parser *p, struct code_set *s, int32_t *c) {
    int at = p->count + 1;
    if (next_is(p, "[:") || next_is(p, "[.") || next_is(p, "[="))
        return refuse_at(p, at, "classes of POSIX ([:...:]) are not supported");
    *c = (int32_t)take_char(p);
    if (*c != '\\')
        return 1;
    if (p->at == p->end)
        return refuse_at(p, at, "\\ is the last character");
    uint32_t kind = take_char(p);
    int set = take_set_escape(p, s, kind, at);
    if (set != 0)
        return set < 0 ? -1 : 0;
    *c = kind == 'b' ? '\b' : take_escape(p, kind, at);
    return *c < 0 ? -1 : 1;
}

// [ is taken.
static int parse_class(struct regex_parser *p, int at) {
    struct code_set s = {0};
    bool negated = skip(p, "^");
    int status = 0;
    while (status >= 0 && p->at < p->end && *p->at != ']') {
        int member_at = p->count + 1;
        int32_t first, last;
        if ((status = take_member(p, &s, &first)) < 0)
            break;
        bool range = status == 1 && next_is(p, "-") && p->end - p->at > 1 && p->at[1] != ']';
        if (!range) {
            if (status == 1)
                code_set_add(&s, (uint32_t)first, (uint32_t)first);
            continue;
        }
        skip(p, "-");
        status = take_member(p, &s, &last);
        if (status == 1 && last >= first)
            code_set_add(&s, (uint32_t)first, (uint32_t)last);
        else if (status >= 0)
            status = refuse_at(p, member_at, "this range of a class has no end, or one before its begin");
    }
    if (status >= 0 && !skip(p, "]"))
        status = refuse_at(p, at, "[ has no ]");
    if (status >= 0)
        return add_set(p, &s, negated, at);
    code_set_free(&s);
    return -1;
}

// ---- repeats

enum { NO_REPEAT, REPEAT, BAD_REPEAT };

// {m}, {m,} or {m,n}, of which nothing is taken where it is something else
static int take_counts(struct regex_parser *p, int *min, int *max) {
    int at = p->count + 1;
    const char *q = p->at + 1;
    int bounds[2] = {-1, -1};
    bool comma = false;
    for (; q < p->end && ((*q >= '0' && *q <= '9') || (*q == ',' && !comma)); q++) {
        if (*q == ',') {
            comma = true;
            continue;
        }
        int *bound = &bounds[comma];
        *bound = (*bound < 0 ? 0 : *bound) * 10 + (*q - '0');
        if (*bound > MAX_REPEAT)
            *bound = MAX_REPEAT + 1;
    }
    if (q == p->end || *q != '}' || (bounds[0] < 0 && bounds[1] < 0))
        return NO_REPEAT;
    if (bounds[0] < 0) {
        refuse_at(p, at, "{,n} has several meanings; write {0,n}");
        return BAD_REPEAT;
    }
    if (bounds[0] > MAX_REPEAT || bounds[1] > MAX_REPEAT) {
        regex_error(p->err, STATUS_LIMIT, at, "a repeat of more than 100000");
        return BAD_REPEAT;
    }
    p->count += (int)(q + 1 - p->at);
    p->at = q + 1;
    *min = bounds[0];
    *max = comma ? bounds[1] : bounds[0];
    if (*max < 0 || *min <= *max)
        return REPEAT;
    refuse_at(p, at, "a repeat whose end is before its begin");
    return BAD_REPEAT;
}

static int take_repeat(struct regex_parser *p, int *min, int *max) {
    *min = 0;
    *max = -1;
    if (skip(p, "*"))
        return REPEAT;
    if (skip(p, "+"))
        return *min = 1, REPEAT;
    if (skip(p, "?"))
        return *max = 1, REPEAT;
    return next_is(p, "{") ? take_counts(p, min, max) : NO_REPEAT;
}

// ---- the tree

static int parse_alt(struct regex_parser *p, int depth);

// Parses between (? and the body of a group; sets *look, *negated. 0: the group has a body, 1: it has flags alone, -1
// with err.
static int take_group_kind(struct regex_parser *p, bool *look, bool *negated, int at) {
    if (skip(p, ":"))
        return 0;
    if (next_is(p, "<=") || next_is(p, "<!"))
        return refuse_at(p, at, "look-behind is not supported");
    if (next_is(p, "P=") || next_is(p, "P>") || next_is(p, "R") || next_is(p, "&"))
        return refuse_at(p, at, "back-references are not supported");
    if (skip(p, "=") || (*negated = skip(p, "!")))
        return *look = true, 0;
    if (skip(p, "<") || skip(p, "P<")) {
        while (p->at < p->end && *p->at != '>')
            take_char(p);
        return skip(p, ">") ? 0 : refuse_at(p, at, "the name of a group has no >");
    }
    bool on = true;
    while (p->at < p->end && *p->at != ':' && *p->at != ')') {
        uint32_t c = take_char(p);
        int flag = c == 'i' ? REGEX_IGNORE_CASE : c == 's' ? REGEX_DOT_ALL : 0;
        if (!flag && c != '-' && c != 'u')
            return refuse_at(p, at, "this kind of group, or flag of one, is not supported");
        p->flags = on ? p->flags | flag : p->flags & ~flag;
        on &= c != '-';
    }
    return skip(p, ":") ? 0 : 1;
}

// ( is taken. Flags alone hold to the end of the group around them.
static int parse_group(struct regex_parser *p, int depth, int at) {
    int flags = p->flags, base = p->num_pending;
    bool look = false, negated = false;
    if (depth >= MAX_NESTING) {
        regex_error(p->err, STATUS_LIMIT, at, "groups are nested too deep");
        return -1;
    }
    int alone = skip(p, "?") ? take_group_kind(p, &look, &negated, at) : 0;
    int node = alone < 0 ? -1
               : alone   ? add_node(p, (struct regex_node){.kind = REGEX_SEQ})
                         : parse_alt(p, depth + 1);
    if (node >= 0 && !skip(p, ")"))
        return refuse_at(p, at, "( has no )");
    if (!alone)
        p->flags = flags;
    if (node >= 0 && look)
        node =
            push(p, node)
                ? add_parent(p, (struct regex_node){.kind = REGEX_LOOK, .negated = negated, .at = at}, base)
                : -1;
    return node;
}

static int parse_escape(struct regex_parser *p, int at) {
    struct code_set s = {0};
    if (p->at == p->end)
        return refuse_at(p, at, "\\ is the last character");
    uint32_t c = take_char(p);
    if (c == 'A' || c == 'z' || c == 'Z')
        return add_node(p, (struct regex_node){.kind = c == 'A' ? REGEX_BEGIN : REGEX_END, .at = at});
    int set = take_set_escape(p, &s, c, at);
    if (set > 0)
        return add_set(p, &s, false, at);
    code_set_free(&s);
    int32_t value = set < 0 ? -1 : take_escape(p, c, at);
    return value < 0 ? -1 : add_char(p, (uint32_t)value, at);
}

static int parse_atom(struct regex_parser *p, int depth) {
    int at = p->count + 1, min, max;
    switch (take_repeat(p, &min, &max)) {
    case REPEAT: return refuse_at(p, at, "there is nothing to repeat");
    case BAD_REPEAT: return -1;
    default: break;
    }
    uint32_t c = take_char(p);
    struct code_set s = {0};
    switch (c) {
    case '(': return parse_group(p, depth, at);
    case '[': return parse_class(p, at);
    case '\\': return parse_escape(p, at);
    case '^':
    case '$': return add_node(p, (struct regex_node){.kind = c == '^' ? REGEX_BEGIN : REGEX_END, .at = at});
    case '.':
        if (!(p->flags & REGEX_DOT_ALL))
            code_set_add(&s, '\n', '\n');
        if (!(p->flags & (REGEX_DOT_ALL | REGEX_DOT_LINE))) {
            code_set_add(&s, '\r', '\r');
            code_set_add(&s, 0x2028, 0x2029);
        }
        return add_set(p, &s, true, at);
    default: return add_char(p, c, at);
    }
}

static int parse_term(struct regex_parser *p, int depth) {
    bool bare = *p->at != '(' || next_is(p, "(?=") || next_is(p, "(?!"); // not in a group
    int at = p->count + 1, base = p->num_pending, min, max, atom = parse_atom(p, depth);
    int repeat = atom < 0 ? BAD_REPEAT : take_repeat(p, &min, &max);
    if (repeat != REPEAT)
        return repeat == BAD_REPEAT ? -1 : atom;
    enum regex_kind kind = p->t->nodes[atom].kind;
    if (bare && (kind == REGEX_BEGIN || kind == REGEX_END || kind == REGEX_LOOK))
        return refuse_at(p, at, "what takes no text cannot be repeated");
    if (next_is(p, "+"))
        return refuse_at(p, at, "possessive repeats are not supported");
    skip(p, "?"); // lazy: the same text
    int again = p->count + 1, min2, max2, more = take_repeat(p, &min2, &max2);
    if (more != NO_REPEAT)
        return more == BAD_REPEAT ? -1 : refuse_at(p, again, "there is nothing to repeat");
    if (!push(p, atom))
        return -1;
    return add_parent(p, (struct regex_node){.kind = REGEX_REPEAT, .min = min, .max = max, .at = at}, base);
}

static int parse_seq(struct regex_parser *p, int depth) {
    int at = p->count + 1, base = p->num_pending;
    while (p->at < p->end && *p->at != '|' && *p->at != ')') {
        int term = parse_term(p, depth);
        if (term < 0)
            return -1;
        // A sequence that needs no group is inlined, so that anchors and looks are found at its begin.
        const struct regex_node node = p->t->nodes[term];
        bool ok = node.kind == REGEX_SEQ || push(p, term);
        for (int i = 0; ok && node.kind == REGEX_SEQ && i < node.num; i++)
            ok = push(p, p->t->children[node.first + i]);
        if (!ok)
            return -1;
    }
    if (p->num_pending == base + 1)
        return p->pending[--p->num_pending];
    return add_parent(p, (struct regex_node){.kind = REGEX_SEQ, .at = at}, base);
}

static int parse_alt(struct regex_parser *p, int depth) {
    int at = p->count + 1, base = p->num_pending;
    do {
        if (!push(p, parse_seq(p, depth)))
            return -1;
    } while (skip(p, "|"));
    if (p->num_pending == base + 1)
        return p->pending[--p->num_pending];
    return add_parent(p, (struct regex_node){.kind = REGEX_ALT, .at = at}, base);
}

struct regex_tree *regex_parse(const char *pattern, size_t len, int flags, struct err *err) {
    if (len > SOURCE_BYTES || !utf8_valid((const unsigned char *)pattern, len)) {
        bool large = len > SOURCE_BYTES;
        err_set(err, large ? STATUS_LIMIT : STATUS_INVALID, "a regular expression %s",
                large ? "is too long" : "is not valid UTF-8");
        return NULL;
    }
    struct regex_tree *t = calloc(1, sizeof *t);
    struct regex_parser p = {.t = t, .at = pattern, .end = pattern + len, .flags = flags, .err = err};
    if (!t) {
        no_memory(&p);
        return NULL;
    }
    t->root = parse_alt(&p, 0);
    if (t->root >= 0 && p.at < p.end)
        t->root = refuse_at(&p, p.count + 1, "this ) closes nothing");
    free(p.pending);
    if (t->root >= 0)
        return t;
    regex_tree_free(t);
    return NULL;
}
