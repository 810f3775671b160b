// See normalizer.h. Characters' properties are utf8proc's, of Unicode 13; the tokenizers library has some of Unicode 8, which
// differ for characters that came later.
#include "normalizer.h"

#include "charsmap.h"
#include "regex.h"
#include "utf8.h"

#ifdef QUIRE_HAVE_PCRE2

#include "log.h"

#include <stdlib.h>
#include <utf8proc.h>

enum {
    MAX_STEPS = 32,
    MAX_ARGUMENT = 16 << 10,
    MAX_MARKS = 256,
    MAX_GROWTH = 64,   // bytes of output for one of the text, beside 64 KiB
    SHORT_CLUSTER = 6, // bytes; longer grapheme clusters are mapped character by character
};

struct norm_step {
    const struct step_kind *kind;
    const char *args[2]; // owned
    size_t lens[2];
    struct regex *regex;
};

struct norm_work { // of one call
    const struct normalizer *n;
    const struct norm_step *step;
    struct text_view in;
    struct buf *out;
    size_t limit; // bytes of out
};

struct step_kind {
    const char *name;
    int num_args;
    enum status (*apply)(const struct norm_work *w);
    int option;
};

struct normalizer {
    struct charsmap *map;
    int num;
    struct norm_step steps[MAX_STEPS];
};

// Bytes of the character at i, and what it is; of a byte that is no UTF-8 1 and -1.
static size_t character_at(struct text_view text, size_t i, int32_t *cp) {
    int n = utf8_len((const unsigned char *)text.data + i, text.len - i);
    size_t len = 1;
    *cp = n > 0 ? (int32_t)utf8_decode(text.data + i, &len) : -1;
    return len;
}

// ---- normalisation forms

enum { COMPOSED = 1, COMPATIBLE = 2 };

// Characters of large blocks that are in the form already, next to anything but a mark: a short cut.
static bool is_plain(uint32_t cp, int form) {
    if (cp < 0x80 || (cp >= 0x4e00 && cp <= 0x9fff))
        return true;
    return form == COMPOSED && (cp < 0x300 || (cp >= 0x400 && cp <= 0x482) ||
                                (cp >= 0x2010 && cp <= 0x2027) || (cp >= 0x3041 && cp <= 0x3096) ||
                                (cp >= 0x30a1 && cp <= 0x30fa) || (cp >= 0xac00 && cp <= 0xd7a3) ||
                                (cp >= 0xff01 && cp <= 0xff5e) || (cp >= 0x1f300 && cp <= 0x1faff));
}

// A starter that normalisation leaves whole, so that marks after it are sorted apart from those before it.
static bool ends_marks(uint32_t cp, int form) {
    const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)cp);
    return is_plain(cp, form) || (p->combining_class == 0 && p->decomp_seqindex == UINT16_MAX);
}

// The end of a stretch that is normalised apart from what follows, which is an ASCII character or no UTF-8: that never
// joins what stands before it. Sorting the marks of a character is quadratic in their number, so more than MAX_MARKS in
// a row (no language has them) are sorted in groups.
static size_t stretch_end(struct text_view text, size_t start, int form, bool *plain) {
    size_t i = start, marks = 0;
    *plain = true;
    while (i < text.len && (*plain || (unsigned char)text.data[i] >= 0x80)) {
        int32_t cp;
        size_t n = character_at(text, i, &cp);
        if (cp < 0)
            break;
        marks = ends_marks((uint32_t)cp, form) ? 0 : marks + 1;
        if (marks > MAX_MARKS)
            break;
        *plain = *plain && is_plain((uint32_t)cp, form);
        i += n;
    }
    return i;
}

static enum status apply_form(const struct norm_work *w) {
    int form = w->step->kind->option;
    int flags = (form & COMPOSED ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                (form & COMPATIBLE ? UTF8PROC_COMPAT : 0) | UTF8PROC_STABLE;
    for (size_t i = 0, end; i < w->in.len; i = end) {
        bool plain;
        end = stretch_end(w->in, i, form, &plain);
        if (end == i) // no UTF-8
            end++;
        if (plain) {
            buf_add(w->out, w->in.data + i, end - i);
            continue;
        }
        utf8proc_uint8_t *normal;
        utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)w->in.data + i,
                                          (utf8proc_ssize_t)(end - i), &normal, (utf8proc_option_t)flags);
        if (n < 0) // the stretch is valid, so it is memory
            return STATUS_NOMEM;
        buf_add(w->out, normal, (size_t)n);
        free(normal);
    }
    return STATUS_OK;
}

// ---- character by character

static bool is_white(int32_t cp) {
    utf8proc_category_t c = utf8proc_category(cp);
    return (cp >= 9 && cp <= 13) || cp == 0x85 || (c >= UTF8PROC_CATEGORY_ZS && c <= UTF8PROC_CATEGORY_ZP);
}

static bool is_chinese(int32_t cp) { // as BERT has it; 0x2b920 is the tokenizers library's
    return (cp >= 0x4e00 && cp <= 0x9fff) || (cp >= 0x3400 && cp <= 0x4dbf) ||
           (cp >= 0x20000 && cp <= 0x2a6df) || (cp >= 0x2a700 && cp <= 0x2b73f) ||
           (cp >= 0x2b740 && cp <= 0x2b81f) || (cp >= 0x2b920 && cp <= 0x2ceaf) ||
           (cp >= 0xf900 && cp <= 0xfaff) || (cp >= 0x2f800 && cp <= 0x2fa1f);
}

enum { LOWER, NO_ACCENTS, NO_MARKS, CLEAN, CHINESE };

static enum status apply_characters(const struct norm_work *w) {
    int option = w->step->kind->option;
    for (size_t i = 0, n; i < w->in.len; i += n) {
        int32_t cp;
        char lower[4];
        n = character_at(w->in, i, &cp);
        const char *to = w->in.data + i;
        size_t len = n;
        utf8proc_category_t c = cp < 0 ? UTF8PROC_CATEGORY_CN : utf8proc_category(cp);
        if (option == LOWER && cp == 0x130) { // the one that becomes two
            to = "i\xcc\x87";
            len = 3;
        } else if (option == LOWER && cp >= 0) {
            to = lower;
            len = utf8_encode(lower, (uint32_t)utf8proc_tolower(cp));
        } else if (option == NO_ACCENTS || option == NO_MARKS) {
            bool mark = c == UTF8PROC_CATEGORY_MN ||
                        (option == NO_MARKS && (c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ME));
            len = mark ? 0 : n;
        } else if (option == CLEAN) {
            bool kept = cp == '\t' || cp == '\n' || cp == '\r';
            bool control =
                c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF || c == UTF8PROC_CATEGORY_CO;
            len = (control && !kept) || cp == 0xfffd || cp < 0 ? 0 : n;
            if (len && is_white(cp)) {
                to = " ";
                len = 1;
            }
        } else if (option == CHINESE && is_chinese(cp)) {
            buf_char(w->out, ' ');
            buf_add(w->out, to, len);
            to = " ";
            len = 1;
        }
        buf_add(w->out, to, len);
    }
    return STATUS_OK;
}

// ---- ends, replacements

static enum status apply_strip(const struct norm_work *w) {
    size_t begin = 0, end = w->in.len, n;
    int32_t cp;
    if (w->step->kind->option == 0)
        while (begin < end && (n = character_at(w->in, begin, &cp)) && is_white(cp))
            begin += n;
    while (w->step->kind->option == 1 && end > 0) {
        size_t at = end - 1;
        while (at > 0 && utf8_continues(w->in.data[at]) && end - at < 4)
            at--;
        n = character_at((struct text_view){w->in.data, end}, at, &cp);
        if (n != end - at || !is_white(cp))
            break;
        end = at;
    }
    buf_add(w->out, w->in.data + begin, end - begin);
    return STATUS_OK;
}

static enum status apply_prepend(const struct norm_work *w) {
    if (w->in.len)
        buf_add(w->out, w->step->args[0], w->step->lens[0]);
    buf_add(w->out, w->in.data, w->in.len);
    return STATUS_OK;
}

static bool too_long(const struct norm_work *w) { return w->out->len > w->limit; }

static enum status apply_replace(const struct norm_work *w) {
    const struct norm_step *s = w->step;
    size_t at = 0;
    while (at < w->in.len && !too_long(w)) {
        const char *hit = memmem(w->in.data + at, w->in.len - at, s->args[0], s->lens[0]);
        size_t end = hit ? (size_t)(hit - w->in.data) : w->in.len;
        buf_add(w->out, w->in.data + at, end - at);
        if (hit)
            buf_add(w->out, s->args[1], s->lens[1]);
        at = end + (hit ? s->lens[0] : 0);
    }
    return STATUS_OK;
}

// The end of the valid UTF-8 that begins at i.
static size_t valid_end(struct text_view text, size_t i) {
    for (int n; (n = utf8_len((const unsigned char *)text.data + i, text.len - i)) > 0;)
        i += (size_t)n;
    return i;
}

static enum status apply_regex(const struct norm_work *w) {
    const struct norm_step *s = w->step;
    struct regex_scratch *scratch = regex_scratch_new();
    if (!scratch)
        return STATUS_NOMEM;
    for (size_t i = 0, end; i < w->in.len; i = end + 1) {
        end = valid_end(w->in, i);
        struct text_view text = {w->in.data + i, end - i};
        size_t at = 0, start, stop;
        while (at < text.len && !too_long(w) && regex_find(s->regex, scratch, text, at, &start, &stop) &&
               stop > start) {
            buf_add(w->out, text.data + at, start - at);
            buf_add(w->out, s->args[1], s->lens[1]);
            at = stop;
        }
        buf_add(w->out, text.data + at, text.len - at);
        if (end < w->in.len)
            buf_char(w->out, w->in.data[end]);
    }
    regex_scratch_free(scratch);
    return STATUS_OK;
}

// ---- SentencePiece's map

static enum status apply_charsmap(const struct norm_work *w) {
    for (size_t i = 0, n; i < w->in.len && !too_long(w); i += n) {
        struct text_view to;
        int32_t cp;
        n = charsmap_find(w->n->map, (struct text_view){w->in.data + i, w->in.len - i}, true, &to);
        if (n == 0) {
            n = character_at(w->in, i, &cp);
            to = (struct text_view){w->in.data + i, n};
        }
        buf_add(w->out, to.data, to.len);
    }
    return STATUS_OK;
}

// The end of the grapheme cluster that begins at i.
static size_t cluster_end(struct text_view text, size_t i) {
    int32_t before, cp;
    utf8proc_int32_t state = 0;
    i += character_at(text, i, &before);
    while (i < text.len && before >= 0) {
        size_t n = character_at(text, i, &cp);
        if (cp < 0 || utf8proc_grapheme_break_stateful(before, cp, &state))
            break;
        before = cp;
        i += n;
    }
    return i;
}

static enum status apply_clusters(const struct norm_work *w) {
    const struct charsmap *map = w->n->map;
    for (size_t i = 0, end; i < w->in.len && !too_long(w); i = end) {
        struct text_view to;
        end = cluster_end(w->in, i);
        if (end - i < SHORT_CLUSTER &&
            charsmap_find(map, (struct text_view){w->in.data + i, end - i}, false, &to)) {
            buf_add(w->out, to.data, to.len);
            continue;
        }
        for (size_t n; i < end; i += n) {
            int32_t cp;
            n = character_at(w->in, i, &cp);
            struct text_view one = {w->in.data + i, n};
            if (!charsmap_find(map, one, false, &to))
                to = one;
            buf_add(w->out, to.data, to.len);
        }
    }
    return STATUS_OK;
}

static const struct step_kind kinds[] = {
    {"NFC", 0, apply_form, COMPOSED},
    {"NFD", 0, apply_form, 0},
    {"NFKC", 0, apply_form, COMPOSED | COMPATIBLE},
    {"NFKD", 0, apply_form, COMPATIBLE},
    {"Lowercase", 0, apply_characters, LOWER},
    {"StripAccents", 0, apply_characters, NO_ACCENTS},
    {"StripMarks", 0, apply_characters, NO_MARKS},
    {"CleanText", 0, apply_characters, CLEAN},
    {"SpaceChinese", 0, apply_characters, CHINESE},
    {"StripLeft", 0, apply_strip, 0},
    {"StripRight", 0, apply_strip, 1},
    {"Prepend", 1, apply_prepend, 0},
    {"Replace", 2, apply_replace, 0},
    {"ReplaceRegex", 2, apply_regex, 0},
    {"Charsmap", 0, apply_charsmap, 0},
    {"CharsmapClusters", 0, apply_clusters, 0},
};

enum status normalizer_apply(const struct normalizer *n, struct text_view text, struct buf *out) {
    struct buf last = {0};
    struct norm_work w = {.n = n, .in = text, .out = out, .limit = MAX_GROWTH * text.len + (64 << 10)};
    if (text.len > SIZE_MAX / (2 * MAX_GROWTH))
        return STATUS_LIMIT;
    for (int i = 0; i < n->num; i++) {
        buf_clear(out);
        w.step = &n->steps[i];
        enum status st = w.step->kind->apply(&w);
        if (st == STATUS_OK && out->failed)
            st = STATUS_NOMEM;
        if (st == STATUS_OK && too_long(&w))
            st = STATUS_LIMIT;
        if (st != STATUS_OK) {
            buf_free(&last);
            buf_free(out);
            return st;
        }
        struct buf next = last;
        last = *out;
        *out = next;
        w.in = (struct text_view){last.data ? last.data : "", last.len};
    }
    buf_free(out);
    *out = last;
    return STATUS_OK;
}

// ---- loading

static bool same(struct text_view s, const char *text) {
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

static bool add_charsmap(struct normalizer *n, const struct model_file *f, struct err *err) {
    struct meta_array bytes;
    if (n->map)
        return true;
    if (meta_array(f, "tokenizer.ggml.precompiled_charsmap", true, META_I32, &bytes, err))
        return false;
    if (meta_type_bytes(bytes.elem) != 1) {
        model_file_bad(f, err, "key tokenizer.ggml.precompiled_charsmap is of %s, expected bytes",
                       meta_type_name(bytes.elem));
        return false;
    }
    n->map = charsmap_open((struct text_view){(const char *)bytes.next, (size_t)bytes.count}, f, err);
    return n->map != NULL;
}

// Reads a step and its arguments, which begin at words[0]; returns how many words that were, 0: err is set.
static int add_step(struct normalizer *n, const struct text_view *words, int num, const struct model_file *f,
                    struct err *err) {
    struct norm_step *s = &n->steps[n->num];
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (same(words[0], kinds[i].name))
            s->kind = &kinds[i];
    if (!s->kind || s->kind->num_args >= num || n->num + 1 >= MAX_STEPS) {
        model_file_bad(f, err, "step %d of the tokenizer's normalizer, '%.*s', is %s", n->num,
                       (int)(words[0].len < 64 ? words[0].len : 64), words[0].data,
                       s->kind ? "without its arguments, or one of too many" : "unknown");
        return 0;
    }
    n->num++;
    for (int i = 0; i < s->kind->num_args; i++) {
        struct text_view arg = words[1 + i];
        char *copy = arg.len <= MAX_ARGUMENT ? malloc(arg.len + 1) : NULL;
        if (!copy) {
            err_set(err, STATUS_NOMEM, "%s: out of memory for the normalizer", f->name);
            return 0;
        }
        memcpy(copy, arg.data, arg.len);
        copy[arg.len] = 0;
        s->args[i] = copy;
        s->lens[i] = arg.len;
    }
    struct text_view first = {s->args[0], s->lens[0]};
    if (s->kind->apply == apply_replace && first.len == 0) {
        model_file_bad(f, err, "the normalizer replaces the empty text");
        return 0;
    }
    if (s->kind->apply == apply_regex && !(s->regex = regex_translate(first, f, err)))
        return 0;
    bool maps = s->kind->apply == apply_charsmap || s->kind->apply == apply_clusters;
    return maps && !add_charsmap(n, f, err) ? 0 : 1 + s->kind->num_args;
}

struct normalizer *normalizer_open(const struct model_file *f, const struct text_view *words, int num,
                                   struct err *err) {
    struct normalizer *n = calloc(1, sizeof *n);
    if (!n)
        err_set(err, STATUS_NOMEM, "%s: out of memory for the normalizer", f->name);
    for (int at = 0, used; n && at < num; at += used)
        if (!(used = add_step(n, words + at, num - at, f, err))) {
            normalizer_free(n);
            return NULL;
        }
    return n;
}

void normalizer_free(struct normalizer *n) {
    if (!n)
        return;
    for (int i = 0; i < n->num; i++) {
        free((char *)(uintptr_t)n->steps[i].args[0]);
        free((char *)(uintptr_t)n->steps[i].args[1]);
        regex_free(n->steps[i].regex);
    }
    charsmap_free(n->map);
    free(n);
}

#else // without utf8proc

struct normalizer *normalizer_open(const struct model_file *f, const struct text_view *words, int num,
                                   struct err *err) {
    (void)words, (void)num;
    regex_available(f, err);
    return NULL;
}
void normalizer_free(struct normalizer *n) { (void)n; }
enum status normalizer_apply(const struct normalizer *n, struct text_view text, struct buf *out) {
    (void)n;
    return buf_add(out, text.data, text.len), STATUS_OK;
}

#endif
