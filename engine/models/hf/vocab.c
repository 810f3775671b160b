// See vocab.h. Formats are those of the tokenizers library, version 0.22.
#include "vocab.h"

#include <stdlib.h>

enum { VOCAB_MAX_TOKENS = 1 << 22 };

// As the key tokenizer.ggml.token_type numbers them.
enum hf_token_type { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER_DEFINED, TYPE_UNUSED, TYPE_BYTE };

struct vocab_reader {
    const struct hf_vocab_files *files;
    const struct jdoc *j; // tokenizer.json
    const struct jdoc_value *model;
    struct hf_keys *keys;
    struct err *err;
    int64_t num;
    struct text_view *names; // (num) data NULL: none
    int32_t *types;          // (num)
    unsigned char *strips;   // (num) bit 0: white space before the token goes, bit 1: after it
    bool byte_level, byte_fallback, any_strips;
};

static bool refuse_vocab(const struct vocab_reader *r, const struct jdoc_value *v, const char *what,
                         const char *expected) {
    bool shown = v && (v->type == JDOC_STRING || v->type == JDOC_NUMBER);
    jdoc_bad(r->j, r->err, "%s at byte %u is %s%.*s, expected %s", what, v ? v->at : 0,
             shown ? "" : jdoc_type_name(v), shown ? (int)(v->len < 160 ? v->len : 160) : 0,
             shown ? r->j->text + v->at : "", expected);
    return false;
}

static const struct jdoc_value *get_of(const struct vocab_reader *r, const struct jdoc_value *v,
                                       const char *key) {
    return jdoc_get(r->j, v, key);
}

static bool is_type(const struct vocab_reader *r, const struct jdoc_value *v, const char *type) {
    return jdoc_is(r->j, get_of(r, v, "type"), type);
}

static bool is_true(const struct jdoc_value *v) { return v && v->type == JDOC_TRUE; }

// Calls fn for the part, or for each of a sequence of parts, which may nest.
static bool each_part(const struct vocab_reader *r, const struct jdoc_value *v, const char *list,
                      bool (*fn)(const struct vocab_reader *r, const struct jdoc_value *part, void *arg),
                      void *arg) {
    if (!v || !is_type(r, v, "Sequence"))
        return !v || fn(r, v, arg);
    JDOC_EACH(r->j, e, get_of(r, v, list))
    if (!each_part(r, e, list, fn, arg))
        return false;
    return true;
}

// ---- tokens

static bool set_name(struct vocab_reader *r, const struct jdoc_value *key, const struct jdoc_value *id_value,
                     bool replaces, int64_t *id) {
    struct text_view name = jdoc_text(r->j, key);
    if (!jdoc_integer(r->j, id_value, id) || *id < 0 || *id >= r->num)
        return refuse_vocab(r, id_value, "a token's id", "an integer from 0 to 2^22");
    struct text_view *old = &r->names[*id];
    if (old->data && !(replaces && old->len == name.len && memcmp(old->data, name.data, name.len) == 0)) {
        jdoc_bad(r->j, r->err, "token %lld is '%.*s' and, at byte %u, '%.*s'", (long long)*id,
                 (int)(old->len < 64 ? old->len : 64), old->data, key->at,
                 (int)(name.len < 64 ? name.len : 64), name.data);
        return false;
    }
    *old = name;
    return true;
}

static bool is_byte_name(struct text_view s) {
    return s.len == 6 && memcmp(s.data, "<0x", 3) == 0 && s.data[5] == '>' &&
           strspn(s.data + 3, "0123456789ABCDEFabcdef") == 2;
}

static bool read_added(struct vocab_reader *r, const struct jdoc_value *e) {
    const struct jdoc_value *content = get_of(r, e, "content");
    int64_t id;
    if (!content || content->type != JDOC_STRING)
        return refuse_vocab(r, content ? content : e, "an added token's content", "a string");
    if (!set_name(r, content, get_of(r, e, "id"), true, &id))
        return false;
    if (is_true(get_of(r, e, "single_word")))
        return refuse_vocab(r, content, "an added token with single_word", "one without");
    r->types[id] = is_true(get_of(r, e, "special")) ? TYPE_CONTROL : TYPE_USER_DEFINED;
    r->strips[id] = (unsigned char)(is_true(get_of(r, e, "lstrip")) | is_true(get_of(r, e, "rstrip")) << 1);
    r->any_strips |= r->strips[id] != 0;
    return true;
}

// The largest id, plus 1; 0: an id is none.
static int64_t count_ids(const struct vocab_reader *r, const struct jdoc_value *vocab,
                         const struct jdoc_value *added) {
    int64_t num = 0, id;
    JDOC_EACH_KEY(r->j, key, vocab) {
        if (!jdoc_integer(r->j, key + 1, &id) || id < 0 || id >= VOCAB_MAX_TOKENS)
            return 0;
        num = id >= num ? id + 1 : num;
    }
    JDOC_EACH(r->j, e, added) {
        if (!jdoc_integer(r->j, get_of(r, e, "id"), &id) || id < 0 || id >= VOCAB_MAX_TOKENS)
            return 0;
        num = id >= num ? id + 1 : num;
    }
    return num;
}

static bool read_tokens(struct vocab_reader *r, int64_t rows) {
    const struct jdoc_value *vocab = get_of(r, r->model, "vocab"),
                            *added = get_of(r, r->j->values, "added_tokens"),
                            *unk = get_of(r, r->model, "unk_token");
    if (!vocab || vocab->type != JDOC_OBJECT)
        return refuse_vocab(r, vocab, "model.vocab", "an object");
    r->num = count_ids(r, vocab, added);
    if (r->num == 0)
        return refuse_vocab(r, vocab, "model.vocab or an id in it", "ids from 0 to 2^22");
    if (rows > 0 && rows < VOCAB_MAX_TOKENS && r->num > rows) {
        jdoc_bad(r->j, r->err, "there is a token %lld, and config.json has vocab_size %lld",
                 (long long)r->num - 1, (long long)rows);
        return false;
    }
    r->num = rows > r->num && rows <= VOCAB_MAX_TOKENS ? rows : r->num;
    r->names = hf_alloc(r->keys, (size_t)r->num * sizeof *r->names);
    r->types = hf_alloc(r->keys, (size_t)r->num * sizeof *r->types);
    r->strips = hf_alloc(r->keys, (size_t)r->num);
    if (!r->names || !r->types || !r->strips)
        return false;
    memset(r->names, 0, (size_t)r->num * sizeof *r->names);
    memset(r->strips, 0, (size_t)r->num);
    for (int64_t i = 0; i < r->num; i++)
        r->types[i] = TYPE_UNUSED;
    JDOC_EACH_KEY(r->j, key, vocab) {
        int64_t id;
        if (!set_name(r, key, key + 1, false, &id))
            return false;
        r->types[id] = r->byte_fallback && is_byte_name(r->names[id]) ? TYPE_BYTE : TYPE_NORMAL;
    }
    JDOC_EACH(r->j, e, added)
    if (!read_added(r, e))
        return false;
    for (int64_t i = 0; unk && i < r->num; i++)
        if (r->names[i].len == unk->len && r->names[i].data &&
            memcmp(r->names[i].data, r->j->text + unk->at, unk->len) == 0) {
            r->types[i] = TYPE_UNKNOWN;
            hf_int(r->keys, "tokenizer.ggml.unknown_token_id", i, "unk_token");
            break; // a second one is refused with all other tokens that are there twice
        }
    return true;
}

// Strings one after the other, each with its length before it.
struct strings {
    struct hf_keys *keys;
    unsigned char *data, *at;
};

static bool strings_room(struct strings *s, struct hf_keys *keys, uint64_t count, uint64_t bytes) {
    *s = (struct strings){.keys = keys, .data = hf_alloc(keys, (size_t)(8 * count + bytes))};
    s->at = s->data;
    return s->data != NULL;
}

static void strings_add(struct strings *s, struct text_view a, const char *between, struct text_view b) {
    size_t middle = strlen(between);
    memcpy(s->at, &(uint64_t){a.len + middle + b.len}, 8);
    memcpy(s->at + 8, a.data, a.len);
    memcpy(s->at + 8 + a.len, between, middle);
    memcpy(s->at + 8 + a.len + middle, b.data, b.len);
    s->at += 8 + a.len + middle + b.len;
}

static bool write_tokens(struct vocab_reader *r) {
    struct strings s;
    uint64_t bytes = 0;
    for (int64_t i = 0; i < r->num; i++)
        bytes += r->names[i].data ? r->names[i].len : 24;
    if (!strings_room(&s, r->keys, (uint64_t)r->num, bytes))
        return false;
    for (int64_t i = 0; i < r->num; i++) {
        char none[32];
        snprintf(none, sizeof none, "[PAD%lld]",
                 (long long)i); // as llama.cpp's converter names rows without a token
        strings_add(&s, r->names[i].data ? r->names[i] : view_of(none), "", view_of(""));
    }
    hf_array(r->keys, "tokenizer.ggml.tokens", META_STRING, (uint64_t)r->num, s.data, "vocab");
    hf_array(r->keys, "tokenizer.ggml.token_type", META_I32, (uint64_t)r->num, r->types, NULL);
    if (r->any_strips)
        hf_array(r->keys, "tokenizer.quire.strips", META_U8, (uint64_t)r->num, r->strips, "lstrip, rstrip");
    return true;
}

// Merges are "left right" or ["left", "right"].
static bool read_merges(struct vocab_reader *r) {
    const struct jdoc_value *merges = get_of(r, r->model, "merges");
    struct strings s;
    if (!merges || merges->type != JDOC_ARRAY)
        return refuse_vocab(r, merges, "model.merges", "an array");
    if (!strings_room(&s, r->keys, merges->len, merges->next > 0 ? r->j->len - merges->at : 0))
        return false;
    JDOC_EACH(r->j, e, merges) {
        if (e->type == JDOC_STRING) {
            strings_add(&s, jdoc_text(r->j, e), "", view_of(""));
            continue;
        }
        bool pair =
            e->type == JDOC_ARRAY && e->len == 2 && e[1].type == JDOC_STRING && e[2].type == JDOC_STRING;
        if (!pair || memchr(r->j->text + e[1].at, ' ', e[1].len) ||
            memchr(r->j->text + e[2].at, ' ', e[2].len))
            return refuse_vocab(r, e, "a merge", "two tokens without a space");
        strings_add(&s, jdoc_text(r->j, e + 1), " ", jdoc_text(r->j, e + 2));
    }
    hf_array(r->keys, "tokenizer.ggml.merges", META_STRING, merges->len, s.data, "merges");
    return true;
}

// ---- normalizer and pre-tokenizer

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

struct cuts {
    struct text_view cut[MAX_CUTS];
    int num;
    bool bytes; // ByteLevel was there
};

static bool add_cut(const struct vocab_reader *r, const struct jdoc_value *part, struct cuts *c,
                    struct text_view cut) {
    if (c->num == MAX_CUTS)
        return refuse_vocab(r, part, "the pre_tokenizer", "fewer parts");
    c->cut[c->num++] = cut;
    return true;
}

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

static bool take_byte_level_cut(const struct vocab_reader *r, const struct jdoc_value *part, void *arg) {
    struct cuts *c = arg;
    const struct jdoc_value *type = get_of(r, part, "type");
    if (is_type(r, part, "ByteLevel")) {
        const struct jdoc_value *regex = get_of(r, part, "use_regex");
        c->bytes = true;
        if (is_true(get_of(r, part, "add_prefix_space")))
            return refuse_vocab(r, get_of(r, part, "add_prefix_space"), "add_prefix_space", "false");
        return regex && regex->type == JDOC_FALSE ? true : add_cut(r, part, c, view_of(GPT2));
    }
    if (is_type(r, part, "Digits")) {
        if (!is_true(get_of(r, part, "individual_digits")))
            return refuse_vocab(r, part, "a Digits pre_tokenizer", "individual_digits");
        return add_cut(r, part, c, view_of("\\p{N}"));
    }
    if (!is_type(r, part, "Split"))
        return refuse_vocab(r, type ? type : part, "the pre_tokenizer", "Split, Digits or ByteLevel");
    // Matches are words, and so is what lies between them: those that we know leave nothing between, so that its
    // removal is the same.
    const struct jdoc_value *regex = get_of(r, get_of(r, part, "pattern"), "Regex"),
                            *behavior = get_of(r, part, "behavior");
    bool invert = is_true(get_of(r, part, "invert"));
    if (!regex || regex->type != JDOC_STRING)
        return refuse_vocab(r, part, "the pattern of a Split pre_tokenizer", "a Regex");
    if (!(jdoc_is(r->j, behavior, "Isolated") && !invert) && !(jdoc_is(r->j, behavior, "Removed") && invert))
        return refuse_vocab(r, behavior ? behavior : part, "the behavior of a Split pre_tokenizer",
                            "Isolated, or Removed inverted");
    return add_cut(r, part, c, jdoc_text(r->j, regex));
}

static bool read_byte_level_cuts(struct vocab_reader *r, const struct jdoc_value *pre) {
    struct cuts c = {.num = 0};
    if (!each_part(r, pre, "pretokenizers", take_byte_level_cut, &c))
        return false;
    for (size_t k = 0; k < sizeof known_cuts / sizeof *known_cuts; k++) {
        bool same = true;
        for (int i = 0; i < MAX_CUTS && same; i++) {
            const char *cut = known_cuts[k].cuts[i];
            same = cut ? i < c.num && same_cut(c.cut[i], cut) : i >= c.num;
        }
        if (same) {
            hf_str(r->keys, "tokenizer.ggml.pre", view_of(known_cuts[k].name), "pre_tokenizer");
            return true;
        }
    }
    jdoc_bad(r->j, r->err,
             "the pre_tokenizer at byte %u, %d expressions, is not supported yet: the first is '%.*s'",
             pre->at, c.num,
             c.num && c.cut[0].len < 240 ? (int)c.cut[0].len
             : c.num                     ? 240
                                         : 0,
             c.num ? c.cut[0].data : "");
    return false;
}

static bool take_byte_level_normal(const struct vocab_reader *r, const struct jdoc_value *part, void *arg) {
    const struct jdoc_value *type = get_of(r, part, "type");
    if (!is_type(r, part, "NFC"))
        return refuse_vocab(r, type ? type : part, "the normalizer", "NFC");
    *(bool *)arg = true;
    return true;
}

#define SPACE "\xe2\x96\x81" // U+2581, which stands for a space

struct spaces { // of vocabularies that spell a space as U+2581
    bool replaced;
    const char
        *prefix; // which texts get one before: never, always, unspaced (that do not begin with one), first
    bool cut;    // words begin at each space, and no token reaches over one
};

static bool take_space_normal(const struct vocab_reader *r, const struct jdoc_value *part, void *arg) {
    struct spaces *s = arg;
    const struct jdoc_value *type = get_of(r, part, "type");
    if (is_type(r, part, "Prepend") && jdoc_is(r->j, get_of(r, part, "prepend"), SPACE)) {
        s->prefix = "always";
        return true;
    }
    if (is_type(r, part, "Replace") && jdoc_is(r->j, get_of(r, get_of(r, part, "pattern"), "String"), " ") &&
        jdoc_is(r->j, get_of(r, part, "content"), SPACE)) {
        s->replaced = true;
        return true;
    }
    return refuse_vocab(r, type ? type : part, "the normalizer", "Prepend or Replace of a space by U+2581");
}

static bool take_space_cut(const struct vocab_reader *r, const struct jdoc_value *part, void *arg) {
    struct spaces *s = arg;
    const struct jdoc_value *type = get_of(r, part, "type"), *scheme = get_of(r, part, "prepend_scheme"),
                            *split = get_of(r, part, "split"), *old = get_of(r, part, "add_prefix_space");
    // A split at spaces does nothing once they are replaced (Gemma).
    const struct jdoc_value *pattern = get_of(r, part, "pattern");
    if (is_type(r, part, "Split") && s->replaced &&
        (jdoc_is(r->j, get_of(r, pattern, "String"), " ") || jdoc_is(r->j, get_of(r, pattern, "Regex"), " ")))
        return true;
    if (!is_type(r, part, "Metaspace") || !jdoc_is(r->j, get_of(r, part, "replacement"), SPACE))
        return refuse_vocab(r, type ? type : part, "the pre_tokenizer", "Metaspace with U+2581");
    s->replaced = true;
    s->cut = !split || is_true(split);
    if (jdoc_is(r->j, scheme, "first"))
        s->prefix = "first";
    else if (jdoc_is(r->j, scheme, "always") || (!scheme && (!old || is_true(old))))
        s->prefix = "unspaced";
    else if (!jdoc_is(r->j, scheme, "never") && scheme)
        return refuse_vocab(r, scheme, "prepend_scheme", "first, always or never");
    return true;
}

static bool read_cuts(struct vocab_reader *r) {
    const struct jdoc_value *root = r->j->values, *normalizer = get_of(r, root, "normalizer"),
                            *pre = get_of(r, root, "pre_tokenizer");
    struct spaces s = {.prefix = "never"};
    bool nfc = false;
    if (r->byte_level) {
        if (!each_part(r, normalizer, "normalizers", take_byte_level_normal, &nfc) ||
            !read_byte_level_cuts(r, pre))
            return false;
        hf_bool(r->keys, "tokenizer.quire.nfc", nfc, "normalizer");
        hf_bool(r->keys, "tokenizer.quire.ignore_merges", is_true(get_of(r, r->model, "ignore_merges")),
                "ignore_merges");
        return true;
    }
    if (!each_part(r, normalizer, "normalizers", take_space_normal, &s) ||
        !each_part(r, pre, "pretokenizers", take_space_cut, &s))
        return false;
    if (!s.replaced)
        return refuse_vocab(r, pre ? pre : r->model, "a vocabulary that is not byte-level",
                            "spaces as U+2581");
    hf_str(r->keys, "tokenizer.quire.space_prefix", view_of(s.prefix), "normalizer");
    hf_bool(r->keys, "tokenizer.quire.space_cuts", s.cut, "pre_tokenizer");
    return true;
}

static bool find_byte_level(const struct vocab_reader *r, const struct jdoc_value *part, void *arg) {
    *(bool *)arg |= is_type(r, part, "ByteLevel");
    return true;
}

static bool read_model(struct vocab_reader *r) {
    static const char *const none[] = {"continuing_subword_prefix", "end_of_word_suffix", "dropout"};
    const struct jdoc_value *root = r->j->values, *type = NULL;
    r->model = get_of(r, root, "model");
    type = get_of(r, r->model, "type");
    // Old files have no type.
    if (!r->model || (type ? !jdoc_is(r->j, type, "BPE") : !get_of(r, r->model, "merges")))
        return refuse_vocab(r, type ? type : root, "the model of the tokenizer", "BPE");
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        const struct jdoc_value *v = get_of(r, r->model, none[i]);
        if (v && !(v->type == JDOC_STRING && v->len == 0) && jdoc_number(r->j, v) != 0)
            return refuse_vocab(r, v, none[i], "null");
    }
    each_part(r, get_of(r, root, "pre_tokenizer"), "pretokenizers", find_byte_level, &r->byte_level);
    r->byte_fallback = is_true(get_of(r, r->model, "byte_fallback"));
    if (!r->byte_level && !r->byte_fallback && !is_true(get_of(r, r->model, "fuse_unk")))
        return refuse_vocab(r, r->model, "a model without ByteLevel", "byte_fallback or fuse_unk");
    hf_str(r->keys, "tokenizer.ggml.model", view_of(r->byte_level ? "gpt2" : "bpe"), "model.type");
    return true;
}

// ---- special tokens

static int64_t find_token(const struct vocab_reader *r, struct text_view name) {
    for (int64_t i = 0; i < r->num; i++)
        if (r->names[i].data && r->names[i].len == name.len &&
            memcmp(r->names[i].data, name.data, name.len) == 0)
            return i;
    return -1;
}

// The id of the token that a key of tokenizer_config.json or special_tokens_map.json names: a string, or an object with
// its content. -1: none.
static int64_t named_token(const struct vocab_reader *r, const char *key) {
    const struct jdoc *const docs[] = {r->files->config, r->files->special_map};
    for (int i = 0; i < 2; i++) {
        const struct jdoc_value *v = docs[i] ? jdoc_get(docs[i], docs[i]->values, key) : NULL;
        if (v && v->type == JDOC_OBJECT)
            v = jdoc_get(docs[i], v, "content");
        if (v && v->type == JDOC_STRING)
            return find_token(r, jdoc_text(docs[i], v));
    }
    return -1;
}

struct frame {             // what stands before and after a text
    int64_t before, after; // ids, -1: nothing
};

static bool take_processor(const struct vocab_reader *r, const struct jdoc_value *part, void *arg) {
    struct frame *frame = arg;
    const struct jdoc_value *type = get_of(r, part, "type");
    bool text = false;
    if (is_type(r, part, "ByteLevel"))
        return true;
    if (!is_type(r, part, "TemplateProcessing"))
        return refuse_vocab(r, type ? type : part, "the post_processor", "TemplateProcessing or ByteLevel");
    JDOC_EACH(r->j, e, get_of(r, part, "single")) {
        const struct jdoc_value *special = get_of(r, get_of(r, e, "SpecialToken"), "id");
        int64_t *place = text ? &frame->after : &frame->before;
        text |= !special;
        if (!special)
            continue;
        if (special->type != JDOC_STRING || *place >= 0)
            return refuse_vocab(r, special, "a second token beside the text", "one at most");
        if ((*place = find_token(r, jdoc_text(r->j, special))) < 0)
            return refuse_vocab(r, special, "a token of the post_processor", "one of the vocabulary");
    }
    return true;
}

// Classes of transformers that set BOS and EOS by tokenizer_config.json, whatever tokenizer.json says.
static bool class_adds(const struct vocab_reader *r, const char *key, bool otherwise) {
    static const char *const classes[] = {"LlamaTokenizer",     "LlamaTokenizerFast",
                                          "CodeLlamaTokenizer", "CodeLlamaTokenizerFast",
                                          "GemmaTokenizer",     "GemmaTokenizerFast"};
    const struct jdoc *c = r->files->config;
    const struct jdoc_value *name = c ? jdoc_get(c, c->values, "tokenizer_class") : NULL,
                            *adds = c ? jdoc_get(c, c->values, key) : NULL;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (c && jdoc_is(c, name, classes[i]) && adds)
            return is_true(adds);
    return otherwise;
}

static bool read_special(struct vocab_reader *r, const int64_t *eos, int num_eos) {
    struct frame frame = {-1, -1};
    int64_t bos = named_token(r, "bos_token"), end = named_token(r, "eos_token");
    if (!each_part(r, get_of(r, r->j->values, "post_processor"), "processors", take_processor, &frame))
        return false;
    bool add_bos = class_adds(r, "add_bos_token", frame.before >= 0) && (frame.before >= 0 || bos >= 0);
    bool add_eos = class_adds(r, "add_eos_token", frame.after >= 0) && (frame.after >= 0 || end >= 0);
    bos = frame.before >= 0 ? frame.before : bos;
    end = frame.after >= 0 ? frame.after : end >= 0 ? end : num_eos ? eos[0] : -1;
    int32_t *ends = hf_alloc(r->keys, (size_t)(num_eos + 1) * sizeof *ends);
    int num = 0;
    for (int i = 0; ends && i < num_eos; i++)
        if (eos[i] < r->num)
            ends[num++] = (int32_t)eos[i];
    hf_int(r->keys, "tokenizer.ggml.bos_token_id", bos, "bos_token");
    hf_int(r->keys, "tokenizer.ggml.eos_token_id", end < r->num ? end : -1, "eos_token");
    hf_bool(r->keys, "tokenizer.ggml.add_bos_token", add_bos, "post_processor");
    hf_bool(r->keys, "tokenizer.ggml.add_eos_token", add_eos, "post_processor");
    hf_array(r->keys, "tokenizer.quire.end_token_ids", META_I32, (uint64_t)num, ends, "eos_token_id");
    return true;
}

// chat_template.jinja, or that of tokenizer_config.json: a string, or a list of {name, template}.
static void read_template(struct vocab_reader *r) {
    const struct jdoc *c = r->files->config;
    const struct jdoc_value *v = c ? jdoc_get(c, c->values, "chat_template") : NULL;
    struct text_view text = r->files->chat_template;
    if (!text.data && v && v->type == JDOC_STRING)
        text = jdoc_text(c, v);
    if (!text.data && v && v->type == JDOC_ARRAY)
        JDOC_EACH(c, e, v) {
            const struct jdoc_value *one = jdoc_get(c, e, "template");
            if (one && one->type == JDOC_STRING && jdoc_is(c, jdoc_get(c, e, "name"), "default"))
                text = jdoc_text(c, one);
        }
    if (text.data)
        hf_str(r->keys, "tokenizer.chat_template", text, "chat_template");
}

enum status hf_vocab_read(const struct hf_vocab_files *files, const int64_t *eos, int num_eos, int64_t rows,
                          struct hf_keys *keys, struct err *err) {
    struct err local = {0};
    struct vocab_reader r = {.files = files, .j = files->tokenizer, .keys = keys, .err = err ? err : &local};
    bool ok = read_model(&r) && read_tokens(&r, rows) && write_tokens(&r) && read_merges(&r) &&
              read_cuts(&r) && read_special(&r, eos, num_eos);
    if (ok)
        read_template(&r);
    if (keys->failed)
        return err_set(r.err, STATUS_NOMEM, "%s: out of memory for the vocabulary", r.j->name);
    return ok ? STATUS_OK : r.err->code;
}
