// How a text is cut into words.
#include "tokenizer_pre.h"

#include "log.h"
#include "regex.h"
#include "tokenizer_patterns.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>

#define SPACE "\xe2\x96\x81" // U+2581

enum { MAX_CUTS = 16 };

// Which of the matches and the stretches between them become words, as the tokenizers library names it.
enum behavior { ISOLATED, KEPT, REMOVED, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT, CONTIGUOUS };
static const char *const behaviors[] = {"Isolated",           "Kept",           "Removed",
                                        "MergedWithPrevious", "MergedWithNext", "Contiguous"};

struct cut {
    enum { SPLIT, SPACE_BEFORE, METASPACE, THREES, BYTE_DIGITS, BYTE_THREES } kind;
    enum behavior behavior;                 // of SPLIT
    enum { NEVER, ALWAYS, FIRST } prefixes; // of METASPACE
    bool joined;                            // of THREES
    struct regex *regex;
};

struct pretokenizer {
    bool ignores_merges, adds_bos, nfc;
    int num;
    struct cut cuts[MAX_CUTS]; // each cuts what the ones before it left
};

static bool same(struct text_view s, const char *text) {
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

// ---- loading

static const struct pre_kind *find_kind(struct text_view name) {
    for (int i = 0; i < num_pre_kinds; i++)
        for (const char *p = pre_kinds[i].names; *p;) {
            size_t n = strcspn(p, " ");
            if (n == name.len && memcmp(p, name.data, n) == 0)
                return &pre_kinds[i];
            p += n + (p[n] == ' ');
        }
    return NULL;
}

static struct pretokenizer *open_named(const struct model_file *f, struct err *err) {
    struct text_view name = {"default", 7};
    if (meta_str(f, "tokenizer.ggml.pre", false, 64, &name, err) || !regex_available(f, err))
        return NULL;
    if (!meta_find(f, "tokenizer.ggml.pre"))
        log_msg(LOG_WARN, "msg=\"no key tokenizer.ggml.pre: words are cut as by 'default'\" file=\"%s\"",
                f->name);
    const struct pre_kind *kind = find_kind(name);
    if (!kind) {
        char known[640] = "";
        for (int i = 0; i < num_pre_kinds; i++)
            snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? " " : "",
                     pre_kinds[i].names);
        model_file_bad(f, err,
                       "pre-tokenizer '%.*s' (key tokenizer.ggml.pre) is not supported yet; supported: %s",
                       (int)name.len, name.data, known);
        return NULL;
    }
    struct pretokenizer *p = calloc(1, sizeof *p);
    bool ok = p != NULL;
    if (ok) {
        p->nfc = kind->nfc;
        p->ignores_merges = kind->ignore_merges;
        p->adds_bos = kind->add_bos;
    }
    if (ok && kind->digits) {
        p->cuts[0] = (struct cut){.kind = THREES, .joined = kind->joined, .regex = regex_new(kind->digits)};
        ok = p->cuts[p->num++].regex != NULL;
    }
    for (int i = 0; ok && i < PRE_MAX_PATTERNS && kind->patterns[i]; i++)
        ok = (p->cuts[p->num++].regex = regex_new(kind->patterns[i])) != NULL;
    if (ok)
        return p;
    err_set(err, STATUS_NOMEM, "%s: out of memory for the pre-tokenizer", f->name);
    pretokenizer_free(p);
    return NULL;
}

// Reads a cut and its arguments, which begin at words[0]; returns how many words that were, 0: err is set.
static int add_cut(struct pretokenizer *p, const struct text_view *words, int num, const struct model_file *f,
                   struct err *err) {
    struct cut *c = &p->cuts[p->num];
    bool known = p->num < MAX_CUTS;
    if (known && same(words[0], "SpaceBefore")) {
        c->kind = SPACE_BEFORE;
        p->num++;
        return 1;
    }
    if (known && (same(words[0], "ByteDigits") || same(words[0], "ByteThrees"))) {
        c->kind = same(words[0], "ByteDigits") ? BYTE_DIGITS : BYTE_THREES;
        p->num++;
        return 1;
    }
    if (known && num > 1 && same(words[0], "Metaspace")) {
        c->kind = METASPACE;
        c->prefixes = same(words[1], "always") ? ALWAYS : same(words[1], "first") ? FIRST : NEVER;
        p->num++;
        return 2;
    }
    known = known && num > 2 && same(words[0], "Split");
    for (int b = 0; known && b < (int)(sizeof behaviors / sizeof behaviors[0]); b++)
        if (same(words[1], behaviors[b])) {
            c->behavior = (enum behavior)b;
            p->num++;
            c->regex = regex_translate(words[2], f, err);
            return c->regex ? 3 : 0;
        }
    model_file_bad(f, err, "step %d of the pre-tokenizer, '%.*s', is unknown, or one of too many", p->num,
                   (int)(words[0].len < 64 ? words[0].len : 64), words[0].data);
    return 0;
}

struct pretokenizer *pretokenizer_of(const struct model_file *f, const struct text_view *words, int num,
                                     struct err *err) {
    struct pretokenizer *p = calloc(1, sizeof *p);
    if (!p)
        err_set(err, STATUS_NOMEM, "%s: out of memory for the pre-tokenizer", f->name);
    for (int at = 0, used; p && at < num; at += used)
        if (!(used = add_cut(p, words + at, num - at, f, err))) {
            pretokenizer_free(p);
            return NULL;
        }
    return p;
}

struct pretokenizer *pretokenizer_open(const struct model_file *f, struct err *err) {
    struct text_view words[PRE_MAX_WORDS];
    int num = pretokenizer_words(f, "tokenizer.quire.cuts", words, err);
    struct pretokenizer *p = num > 0    ? pretokenizer_of(f, words, num, err)
                             : num == 0 ? open_named(f, err)
                                        : NULL;
    if (p && meta_bool(f, "tokenizer.quire.ignore_merges", &p->ignores_merges, err)) {
        pretokenizer_free(p);
        return NULL;
    }
    return p;
}

int pretokenizer_words(const struct model_file *f, const char *key, struct text_view *words,
                       struct err *err) {
    struct meta_array a;
    if (meta_array(f, key, false, META_STRING, &a, err))
        return -1;
    if (a.count > PRE_MAX_WORDS) {
        model_file_bad(f, err, "key %s has %llu words, expected %d at most", key, (unsigned long long)a.count,
                       PRE_MAX_WORDS);
        return -1;
    }
    for (uint64_t i = 0; i < a.count; i++)
        words[i] = meta_next_str(&a);
    return (int)a.count;
}

void pretokenizer_free(struct pretokenizer *p) {
    if (!p)
        return;
    for (int i = 0; i < p->num; i++)
        regex_free(p->cuts[i].regex);
    free(p);
}

bool pretokenizer_adds_bos(const struct pretokenizer *p) { return p->adds_bos; }
bool pretokenizer_ignores_merges(const struct pretokenizer *p) { return p->ignores_merges; }
bool pretokenizer_wants_nfc(const struct pretokenizer *p) { return p->nfc; }

// ---- a text

struct cutter { // of one call
    const struct pretokenizer *p;
    struct regex_scratch *scratch;
    const char *first; // where the text begins, if nothing came before it
    word_fn *fn;
    void *arg;
};

static enum status cut_words(const struct cutter *c, int cut, struct text_view text);

// A match, or what lies between two, and the ones that wait for what comes after them.
struct stretch {
    size_t start, end;
    bool match;
};
struct splitter {
    const struct cutter *c;
    int cut;
    const char *text;
    struct stretch held; // empty: none
};

static enum status give_word(const struct splitter *s, size_t start, size_t end) {
    if (start == end)
        return STATUS_OK;
    return cut_words(s->c, s->cut + 1, (struct text_view){s->text + start, end - start});
}

static enum status take_stretch(struct splitter *s, struct stretch x) {
    struct stretch held = s->held;
    bool holds = held.end > held.start;
    if (x.start == x.end)
        return STATUS_OK;
    switch (s->c->p->cuts[s->cut].behavior) {
    case ISOLATED: return give_word(s, x.start, x.end);
    case KEPT: return x.match ? give_word(s, x.start, x.end) : STATUS_OK;
    case REMOVED: return x.match ? STATUS_OK : give_word(s, x.start, x.end);
    case MERGED_WITH_PREVIOUS: // a match joins the stretch before it
    case MERGED_WITH_NEXT: {   // a match joins the stretch behind it
        bool waits = x.match == (s->c->p->cuts[s->cut].behavior == MERGED_WITH_NEXT);
        if (holds && held.match != x.match) {
            s->held.end = s->held.start;
            return give_word(s, held.start, x.end);
        }
        enum status st = holds ? give_word(s, held.start, held.end) : STATUS_OK;
        s->held = waits ? x : (struct stretch){0};
        return st || waits ? st : give_word(s, x.start, x.end);
    }
    case CONTIGUOUS:
        if (holds && held.match == x.match) {
            s->held.end = x.end;
            return STATUS_OK;
        }
        s->held = x;
        return give_word(s, held.start, held.end);
    }
    return STATUS_OK;
}

static enum status split(const struct cutter *c, int cut, struct text_view text) {
    struct splitter s = {.c = c, .cut = cut, .text = text.data};
    enum status st = STATUS_OK;
    for (size_t at = 0, from = 0, start, end; at < text.len && !st;) {
        if (!regex_find(c->p->cuts[cut].regex, c->scratch, text, from, &start, &end))
            start = end = text.len;
        if (start == end && start == from && from < text.len) { // an empty match cuts, and takes nothing
            from += (size_t)utf8_len((const unsigned char *)text.data + from, text.len - from);
            if (start == at)
                continue;
        }
        from = end > from ? end : from;
        st = take_stretch(&s, (struct stretch){at, start, false});
        if (!st)
            st = take_stretch(&s, (struct stretch){start, end, true});
        at = end;
    }
    return st ? st : give_word(&s, s.held.start, s.held.end);
}

// Runs of digits, in threes counted from their ends.
static enum status cut_threes(const struct cutter *c, int cut, struct text_view text) {
    const struct cut *k = &c->p->cuts[cut];
    const struct splitter s = {.c = c, .cut = cut, .text = text.data};
    const unsigned char *bytes = (const unsigned char *)text.data;
    enum status st = STATUS_OK;
    size_t at = 0, start, end; // words before `at` have been given
    for (size_t from = 0; !st && regex_find(k->regex, c->scratch, text, from, &start, &end); from = end) {
        size_t left = 0; // digits from i on
        for (size_t i = start; i < end; i++)
            left += !utf8_continues(text.data[i]);
        for (size_t i = start; i < end && !st; i += (size_t)utf8_len(bytes + i, end - i), left--)
            if (left % 3 == 0 || (i == start && !k->joined)) {
                st = give_word(&s, at, i);
                at = i;
            }
        if (!st && !k->joined) {
            st = give_word(&s, at, end);
            at = end;
        }
    }
    return st ? st : give_word(&s, at, text.len);
}

// Whether the character that a vocabulary spells the byte as is a number: ², ³, ¹, ¼, ½ and ¾ beside the digits.
static bool is_byte_number(char byte) {
    return (byte >= '0' && byte <= '9') || (byte && strchr("\xb2\xb3\xb9\xbc\xbd\xbe", byte));
}

// Runs of bytes that are numbers, and of those that are not: these may begin and end inside a character.
static enum status cut_byte_digits(const struct cutter *c, int cut, struct text_view text) {
    enum status st = STATUS_OK;
    for (size_t i = 0, n; i < text.len && !st; i += n) {
        bool number = is_byte_number(text.data[i]);
        for (n = 1; i + n < text.len && is_byte_number(text.data[i + n]) == number;)
            n++;
        st = cut_words(c, cut + 1, (struct text_view){text.data + i, n});
    }
    return st;
}

// Three digits each, from the first on.
static enum status cut_byte_threes(const struct cutter *c, int cut, struct text_view text) {
    const struct splitter s = {.c = c, .cut = cut, .text = text.data};
    enum status st = STATUS_OK;
    size_t at = 0, digits = 0; // words before `at` have been given; digits before i
    for (size_t i = 0; i < text.len && !st; i++) {
        digits = text.data[i] >= '0' && text.data[i] <= '9' ? digits + 1 : 0;
        if (digits < 3)
            continue;
        st = give_word(&s, at, i - 2);
        at = i + 1;
        digits = 0;
        st = st ? st : give_word(&s, i - 2, at);
    }
    return st ? st : give_word(&s, at, text.len);
}

// Spaces become U+2581, or one stands before the text.
static enum status change_spaces(const struct cutter *c, int cut, struct text_view text) {
    const struct cut *k = &c->p->cuts[cut];
    bool meta = k->kind == METASPACE;
    char *p = text.len < SIZE_MAX / 3 - 3 ? malloc(3 * text.len + 3) : NULL;
    size_t n = 0;
    if (!p)
        return STATUS_NOMEM;
    bool spaced =
        text.len && (text.data[0] == ' ' || (meta && text.len >= 3 && memcmp(text.data, SPACE, 3) == 0));
    bool wanted = !meta || k->prefixes == ALWAYS || (k->prefixes == FIRST && text.data == c->first);
    if (!spaced && wanted) {
        memcpy(p, meta ? SPACE : " ", meta ? 3 : 1);
        n = meta ? 3 : 1;
    }
    for (size_t i = 0; i < text.len; i++) {
        if (meta && text.data[i] == ' ') {
            memcpy(p + n, SPACE, 3);
            n += 3;
        } else {
            p[n++] = text.data[i];
        }
    }
    enum status st = cut_words(c, cut + 1, (struct text_view){p, n});
    free(p);
    return st;
}

static enum status cut_words(const struct cutter *c, int cut, struct text_view text) {
    if (cut == c->p->num)
        return c->fn(c->arg, text.data, text.len);
    switch (c->p->cuts[cut].kind) {
    case SPLIT: return split(c, cut, text);
    case THREES: return cut_threes(c, cut, text);
    case BYTE_DIGITS: return cut_byte_digits(c, cut, text);
    case BYTE_THREES: return cut_byte_threes(c, cut, text);
    default: return change_spaces(c, cut, text);
    }
}

enum status pretokenizer_cut(const struct pretokenizer *p, const char *text, size_t len, bool first,
                             word_fn *fn, void *arg) {
    struct cutter c = {
        .p = p, .fn = fn, .arg = arg, .first = first ? text : NULL, .scratch = regex_scratch_new()};
    enum status st = c.scratch ? STATUS_OK : STATUS_NOMEM;
    const unsigned char *bytes = (const unsigned char *)text;
    // Bytes that are not UTF-8 are a word of their own; PCRE2 never sees them.
    for (size_t i = 0, end; i < len && st == STATUS_OK; i = end) {
        int n;
        for (end = i; (n = utf8_len(bytes + end, len - end)) > 0;)
            end += (size_t)n;
        if (end > i)
            st = cut_words(&c, 0, (struct text_view){text + i, end - i});
        size_t invalid = end;
        while (end < len && utf8_len(bytes + end, len - end) == 0)
            end++;
        if (st == STATUS_OK && end > invalid)
            st = fn(arg, text + invalid, end - invalid);
    }
    regex_scratch_free(c.scratch);
    return st;
}
