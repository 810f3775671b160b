// See vocab_reader.h: the normaliser and the pre-tokenizer of tokenizer.json, as words that engine/text reads.
#include "vocab_reader.h"

#define SPACE "\xe2\x96\x81" // U+2581, which stands for a space
#define PUNCTUATION "[\\p{P}!-/:-@\\[-`{-~]"

// \w of the pre-tokenizer Whitespace: letters, marks, digits, connectors, joiners, and other alphabetic characters.
#define WORD                                                                                                 \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200C}\\x{200D}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}"            \
    "\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}"

enum { MAX_WORDS = 128 };
struct words {
    struct text_view word[MAX_WORDS];
    int num;
    bool full;
};

static void add_word(struct words *w, struct text_view word) {
    if (w->num < MAX_WORDS)
        w->word[w->num++] = word;
    else
        w->full = true;
}

static void add_words(struct words *w, const char *a, const char *b, const char *c) {
    const char *const all[] = {a, b, c};
    for (int i = 0; i < 3 && all[i]; i++)
        add_word(w, view_of(all[i]));
}

static bool write_words(struct vocab_reader *r, const char *key, const struct words *w, const char *label) {
    struct strings s;
    uint64_t bytes = 0;
    for (int i = 0; i < w->num; i++)
        bytes += w->word[i].len;
    if (w->full)
        return hf_vocab_refuse(r, get_of(r, r->j->values, label), label, "fewer parts");
    if (!strings_room(&s, r->keys, (uint64_t)w->num, bytes))
        return false;
    for (int i = 0; i < w->num; i++)
        strings_add(&s, w->word[i], "", view_of(""));
    hf_array(r->keys, key, META_STRING, (uint64_t)w->num, s.data, label);
    return true;
}

// The regular expression that matches a text alone. data NULL: out of memory.
static struct text_view quoted(const struct vocab_reader *r, struct text_view text) {
    char *out = hf_alloc(r->keys, 2 * text.len + 1);
    size_t n = 0;
    for (size_t i = 0; out && i < text.len; i++) {
        if (strchr("\\^$.|?*+()[]{}-&#", text.data[i]) && text.data[i])
            out[n++] = '\\';
        out[n++] = text.data[i];
    }
    return (struct text_view){out, n};
}

// ---- normaliser

struct spaces { // of vocabularies with merges that spell a space as U+2581
    bool replaced;
    // texts that get a space before: never, always, unspaced (those that do not begin with one), first
    const char *prefix;
    bool cut; // words begin at each space, and no token reaches over one
};

struct steps {
    struct words normal, cuts;
    struct spaces *spaces; // NULL: all steps are words
    bool bytes;            // ByteLevel was there
};

static bool add_charsmap(const struct vocab_reader *r, const struct jdoc_value *v, struct words *w) {
    if (!v || v->type != JDOC_STRING)
        return hf_vocab_refuse(r, v, "precompiled_charsmap", "a string");
    struct text_view text = jdoc_text(r->j, v);
    unsigned char *out = hf_alloc(r->keys, text.len);
    size_t n = 0;
    if (out && !hf_base64(text, out, &n))
        return hf_vocab_refuse(r, v, "precompiled_charsmap", "Base64");
    hf_array(r->keys, "tokenizer.ggml.precompiled_charsmap", META_U8, n, out, "precompiled_charsmap");
    add_words(w, "CharsmapClusters", NULL, NULL);
    return out != NULL;
}

static bool take_replace(const struct vocab_reader *r, const struct jdoc_value *part, struct words *w) {
    const struct jdoc_value *pattern = get_of(r, part, "pattern"), *text = get_of(r, pattern, "String"),
                            *regex = get_of(r, pattern, "Regex"), *by = get_of(r, part, "content");
    const struct jdoc_value *what = text ? text : regex;
    if (!what || what->type != JDOC_STRING || !by || by->type != JDOC_STRING)
        return hf_vocab_refuse(r, part, "a Replace normalizer", "a pattern and its content");
    add_words(w, text ? "Replace" : "ReplaceRegex", NULL, NULL);
    add_word(w, jdoc_text(r->j, what));
    add_word(w, jdoc_text(r->j, by));
    return true;
}

static void take_bert(const struct vocab_reader *r, const struct jdoc_value *part, struct words *w) {
    const struct jdoc_value *clean = get_of(r, part, "clean_text"),
                            *chinese = get_of(r, part, "handle_chinese_chars"),
                            *lower = get_of(r, part, "lowercase"),
                            *accents = get_of(r, part, "strip_accents");
    bool lowers = !lower || is_true(lower);
    if (!clean || is_true(clean))
        add_words(w, "CleanText", NULL, NULL);
    if (!chinese || is_true(chinese))
        add_words(w, "SpaceChinese", NULL, NULL);
    if (accents ? is_true(accents) : lowers)
        add_words(w, "NFD", "StripAccents", NULL);
    if (lowers)
        add_words(w, "Lowercase", NULL, NULL);
}

// The steps that make the space prefix and U+2581 of a vocabulary with merges, which its own algorithm does.
static bool take_space(const struct vocab_reader *r, const struct jdoc_value *part, struct spaces *s) {
    const struct jdoc_value *pattern = get_of(r, part, "pattern");
    if (is_type(r, part, "Prepend") && jdoc_is(r->j, get_of(r, part, "prepend"), SPACE)) {
        s->prefix = "always";
        return true;
    }
    bool replaces = is_type(r, part, "Replace") && jdoc_is(r->j, get_of(r, pattern, "String"), " ") &&
                    jdoc_is(r->j, get_of(r, part, "content"), SPACE);
    s->replaced |= replaces;
    return replaces;
}

static bool take_normal(const struct vocab_reader *r, const struct jdoc_value *part, void *arg) {
    static const char *const plain[] = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase"};
    struct steps *s = arg;
    struct words *w = &s->normal;
    const struct jdoc_value *type = get_of(r, part, "type"), *left = get_of(r, part, "strip_left"),
                            *right = get_of(r, part, "strip_right"), *prepend = get_of(r, part, "prepend");
    if (s->spaces && take_space(r, part, s->spaces))
        return true;
    if (s->spaces && (s->spaces->replaced || strcmp(s->spaces->prefix, "never") != 0))
        return hf_vocab_refuse(r, type ? type : part, "a normalizer behind that of spaces", "none");
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (is_type(r, part, plain[i])) {
            add_words(w, plain[i], NULL, NULL);
            return true;
        }
    if (is_type(r, part, "StripAccents")) {
        add_words(w, "StripMarks", NULL, NULL);
    } else if (is_type(r, part, "Strip")) {
        if (!left || is_true(left))
            add_words(w, "StripLeft", NULL, NULL);
        if (!right || is_true(right))
            add_words(w, "StripRight", NULL, NULL);
    } else if (is_type(r, part, "BertNormalizer")) {
        take_bert(r, part, w);
    } else if (is_type(r, part, "Prepend") && prepend && prepend->type == JDOC_STRING) {
        add_words(w, "Prepend", NULL, NULL);
        add_word(w, jdoc_text(r->j, prepend));
    } else if (is_type(r, part, "Replace")) {
        return take_replace(r, part, w);
    } else if (is_type(r, part, "Precompiled")) {
        return add_charsmap(r, get_of(r, part, "precompiled_charsmap"), w);
    } else {
        return hf_vocab_refuse(
            r, type ? type : part, "the normalizer",
            "NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, BertNormalizer, Prepend, Replace "
            "or Precompiled");
    }
    return true;
}

// ---- pre-tokenizer

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define APOSTROPHE "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACE_RUN "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CL100K(digits)                                                                                       \
    APOSTROPHE "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACE_RUN
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K(end, digits)                                                                                   \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" end "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" end       \
    "|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACE_RUN

// How a text is cut into words, as tokenizer.json says it, and what tokenizer.ggml.pre calls it (tokenizer_pre.c). A CR
// or LF that the text has by itself is written \r or \n here.
enum { MAX_CUTS = 8, MAX_CUT_BYTES = 1024 };
static const struct {
    const char *name;
    const char *cuts[MAX_CUTS]; // regular expressions, each cutting what the ones before it left
} known_cuts[] = {
    {"gpt-2", {GPT2}},
    {"llama-bpe", {CL100K("\\p{N}{1,3}")}},
    {"qwen2", {CL100K("\\p{N}")}},
    {"qwen35",
     {APOSTROPHE
      "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACE_RUN}},
    {"gpt-4o", {O200K(APOSTROPHE "?", "\\p{N}{1,3}")}},
    {"tekken", {O200K("", "\\p{N}")}},
    {"starcoder", {"\\p{N}", GPT2}},
    {"seed-coder",
     {APOSTROPHE "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACE_RUN}},
    {"deepseek-v3",
     {"\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
      "?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACE_RUN}},
};

// Whether a regular expression is this one.
static bool same_cut(struct text_view cut, const char *known) {
    char text[MAX_CUT_BYTES];
    size_t n = 0;
    if (cut.len >= sizeof text / 2)
        return false;
    for (size_t i = 0; i < cut.len; i++) {
        bool end = cut.data[i] == '\r' || cut.data[i] == '\n';
        if (end)
            text[n++] = '\\';
        text[n++] = !end ? cut.data[i] : cut.data[i] == '\r' ? 'r' : 'n';
    }
    return n == strlen(known) && memcmp(text, known, n) == 0;
}

static bool take_split(const struct vocab_reader *r, const struct jdoc_value *part, struct words *w) {
    const struct jdoc_value *pattern = get_of(r, part, "pattern"), *text = get_of(r, pattern, "String"),
                            *regex = get_of(r, pattern, "Regex"), *behavior = get_of(r, part, "behavior");
    const struct jdoc_value *what = text ? text : regex;
    static const char *const behaviors[] = {"Isolated", "Contiguous", "Removed", "MergedWithPrevious",
                                            "MergedWithNext"};
    bool inverts = is_true(get_of(r, part, "invert"));
    const char *name = NULL;
    for (int i = 0; i < (inverts ? 3 : 5); i++)
        if (jdoc_is(r->j, behavior, behaviors[i]))
            name = inverts && i == 2 ? "Kept" : behaviors[i];
    if (!what || what->type != JDOC_STRING || what->len == 0)
        return hf_vocab_refuse(r, part, "the pattern of a Split pre_tokenizer", "a Regex or a String");
    if (!name)
        return hf_vocab_refuse(r, behavior ? behavior : part, "the behavior of a Split pre_tokenizer",
                               inverts ? "Isolated, Contiguous or Removed, as it is inverted"
                                       : "Isolated, Contiguous, Removed or MergedWith");
    struct text_view expression = text ? quoted(r, jdoc_text(r->j, text)) : jdoc_text(r->j, regex);
    add_words(w, "Split", name, NULL);
    add_word(w, expression);
    return expression.data != NULL;
}

// Which texts get a U+2581 in front. NULL: err is set.
static const char *metaspace_prefix(const struct vocab_reader *r, const struct jdoc_value *part) {
    const struct jdoc_value *scheme = get_of(r, part, "prepend_scheme"),
                            *old = get_of(r, part, "add_prefix_space");
    if (!jdoc_is(r->j, get_of(r, part, "replacement"), SPACE)) {
        hf_vocab_refuse(r, get_of(r, part, "replacement"), "the replacement of Metaspace", "U+2581");
        return NULL;
    }
    if (jdoc_is(r->j, scheme, "first"))
        return "first";
    if (jdoc_is(r->j, scheme, "always") || (!scheme && (!old || is_true(old))))
        return "always";
    if (jdoc_is(r->j, scheme, "never") || !scheme)
        return "never";
    hf_vocab_refuse(r, scheme, "prepend_scheme", "first, always or never");
    return NULL;
}

static bool take_cut(const struct vocab_reader *r, const struct jdoc_value *part, void *arg) {
    struct steps *s = arg;
    struct words *w = &s->cuts;
    const struct jdoc_value *type = get_of(r, part, "type"), *behavior = get_of(r, part, "behavior"),
                            *delimiter = get_of(r, part, "delimiter");
    if (s->bytes) { // it sees the characters that stand for bytes; Falcon has two of these
        bool digits = is_type(r, part, "Digits") && !is_true(get_of(r, part, "individual_digits"));
        bool threes = is_type(r, part, "Split") && jdoc_is(r->j, behavior, "Isolated") &&
                      !is_true(get_of(r, part, "invert")) &&
                      jdoc_is(r->j, get_of(r, get_of(r, part, "pattern"), "Regex"), "[0-9][0-9][0-9]");
        if (!digits && !threes)
            return hf_vocab_refuse(r, type ? type : part, "a pre_tokenizer behind ByteLevel",
                                   "none, Digits in runs, or Split at [0-9][0-9][0-9]");
        add_words(w, digits ? "ByteDigits" : "ByteThrees", NULL, NULL);
        return true;
    }
    if (is_type(r, part, "Split"))
        return take_split(r, part, w);
    if (is_type(r, part, "ByteLevel")) {
        s->bytes = true;
        const struct jdoc_value *regex = get_of(r, part, "use_regex"),
                                *space = get_of(r, part, "add_prefix_space");
        if (is_true(space))
            add_words(w, "SpaceBefore", NULL, NULL);
        if (!regex || is_true(regex))
            add_words(w, "Split", "Isolated", GPT2);
    } else if (is_type(r, part, "Digits")) {
        add_words(w, "Split", "Isolated",
                  is_true(get_of(r, part, "individual_digits")) ? "\\p{N}" : "\\p{N}+");
    } else if (is_type(r, part, "Punctuation")) {
        add_words(w, "Split", NULL, NULL);
        add_word(w, behavior ? jdoc_text(r->j, behavior) : view_of("Isolated"));
        add_words(w, PUNCTUATION, NULL, NULL);
    } else if (is_type(r, part, "Whitespace")) {
        add_words(w, "Split", "Kept", "[" WORD "]+|[^" WORD "\\s]+");
    } else if (is_type(r, part, "WhitespaceSplit")) {
        add_words(w, "Split", "Removed", "\\s+");
    } else if (is_type(r, part, "BertPreTokenizer")) {
        add_words(w, "Split", "Removed", "\\s+");
        add_words(w, "Split", "Isolated", PUNCTUATION);
    } else if (is_type(r, part, "CharDelimiterSplit") && delimiter && delimiter->type == JDOC_STRING) {
        add_words(w, "Split", "Removed", NULL);
        add_word(w, quoted(r, jdoc_text(r->j, delimiter)));
    } else if (is_type(r, part, "Metaspace")) {
        const struct jdoc_value *split = get_of(r, part, "split");
        const char *prefix = metaspace_prefix(r, part);
        if (!prefix)
            return false;
        add_words(w, "Metaspace", prefix, NULL);
        if (!split || is_true(split))
            add_words(w, "Split", "MergedWithNext", SPACE);
    } else {
        return hf_vocab_refuse(
            r, type ? type : part, "the pre_tokenizer",
            "Split, ByteLevel, Digits, Punctuation, Whitespace, WhitespaceSplit, BertPreTokenizer, "
            "CharDelimiterSplit or Metaspace");
    }
    return true;
}

// The name that the words' cuts have in GGUF files, or NULL.
static const char *known_name(const struct words *w) {
    for (size_t k = 0; k < sizeof known_cuts / sizeof *known_cuts; k++) {
        bool is = w->num % 3 == 0;
        for (int i = 0; i < MAX_CUTS && is; i++) {
            const char *cut = known_cuts[k].cuts[i];
            const struct text_view *word = &w->word[3 * i];
            is = !cut == (3 * i >= w->num);
            // Matches leave nothing between them here, so that its removal is the same.
            if (is && cut)
                is = same_cut(word[0], "Split") &&
                     (same_cut(word[1], "Isolated") || same_cut(word[1], "Kept")) && same_cut(word[2], cut);
        }
        if (is)
            return known_cuts[k].name;
    }
    return NULL;
}

// ---- all

static bool take_space_cut(const struct vocab_reader *r, const struct jdoc_value *part, void *arg) {
    struct spaces *s = arg;
    const struct jdoc_value *type = get_of(r, part, "type"), *split = get_of(r, part, "split"),
                            *pattern = get_of(r, part, "pattern");
    // A split at spaces does nothing once they are replaced (Gemma).
    if (is_type(r, part, "Split") && s->replaced &&
        (jdoc_is(r->j, get_of(r, pattern, "String"), " ") || jdoc_is(r->j, get_of(r, pattern, "Regex"), " ")))
        return true;
    if (!is_type(r, part, "Metaspace"))
        return hf_vocab_refuse(r, type ? type : part, "the pre_tokenizer of a BPE that is not byte-level",
                               "Metaspace");
    const char *prefix = metaspace_prefix(r, part);
    if (!prefix)
        return false;
    s->replaced = true;
    s->cut = !split || is_true(split);
    if (strcmp(prefix, "never") != 0)
        s->prefix = strcmp(prefix, "always") == 0 ? "unspaced" : prefix;
    return true;
}

// Reads how spaces are marked for merges that are not byte-level: the algorithm marks them.
static bool read_spaces(struct vocab_reader *r, const struct jdoc_value *normalizer,
                        const struct jdoc_value *pre) {
    struct spaces spaces = {.prefix = "never"};
    struct steps s = {.spaces = &spaces};
    if (!hf_vocab_parts(r, normalizer, "normalizers", take_normal, &s) ||
        !hf_vocab_parts(r, pre, "pretokenizers", take_space_cut, &spaces))
        return false;
    if (!spaces.replaced)
        return hf_vocab_refuse(r, pre ? pre : r->model, "a BPE that is not byte-level", "spaces as U+2581");
    hf_str(r->keys, "tokenizer.quire.space_prefix", view_of(spaces.prefix), "normalizer");
    hf_bool(r->keys, "tokenizer.quire.space_cuts", spaces.cut, "pre_tokenizer");
    return write_words(r, "tokenizer.quire.normalizer", &s.normal, "normalizer");
}

bool hf_vocab_steps(struct vocab_reader *r) {
    const struct jdoc_value *root = r->j->values, *normalizer = get_of(r, root, "normalizer"),
                            *pre = get_of(r, root, "pre_tokenizer");
    struct steps s = {.spaces = NULL};
    if (r->kind == MODEL_BPE && !r->byte_level)
        return read_spaces(r, normalizer, pre);
    if (!hf_vocab_parts(r, normalizer, "normalizers", take_normal, &s) ||
        !hf_vocab_parts(r, pre, "pretokenizers", take_cut, &s) ||
        !write_words(r, "tokenizer.quire.normalizer", &s.normal, "normalizer"))
        return false;
    if (r->byte_level)
        hf_bool(r->keys, "tokenizer.quire.ignore_merges", is_true(get_of(r, r->model, "ignore_merges")),
                "ignore_merges");
    const char *name = r->byte_level && !s.cuts.full ? known_name(&s.cuts) : NULL;
    if (!name)
        return write_words(r, "tokenizer.quire.cuts", &s.cuts, "pre_tokenizer");
    hf_str(r->keys, "tokenizer.ggml.pre", view_of(name), "pre_tokenizer");
    return true;
}
