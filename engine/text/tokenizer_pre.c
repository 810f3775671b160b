// Pre-tokenizers by name, as patterns for PCRE2. The names are llama.cpp's (tokenizer.ggml.pre), the patterns
// those of the models' own tokenizer.json files, written so that no text makes a match slow: what cannot
// match otherwise is possessive, and a search for white space at the end starts only where white space does.
#include "tokenizer_pre.h"

#ifdef QUIRE_HAVE_PCRE2

#include "log.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>

enum { MAX_PATTERNS = 6, MAX_MARKS = 256 };

// White space as Unicode has it, to stand inside a class. PCRE2's own \s would add U+180E.
#define SPACES "\\p{Z}\\t-\\r\\x{85}"
#define BLANKS "\\p{Z}\\t\\x{B}\\x{C}\\x{85}" // without the ends of lines

// A run of white space leaves its last one to the word that follows.
#define SPACE_RUN "[" SPACES "]+(?![^" SPACES "])|[" SPACES "]+"
#define GPT2 "'(?:[stmd]|re|ve|ll)| ?\\p{L}++| ?\\p{N}++| ?[^" SPACES "\\p{L}\\p{N}]++|" SPACE_RUN
// Llama 3 and Qwen 2 differ in how many digits make a word. `(blanks newlines)+` is \s*[\r\n]+ without
// backtracking.
#define LLAMA3(digits)                                                                                       \
    "(?i:'(?:[stmd]|re|ve|ll))|[^\\r\\n\\p{L}\\p{N}]?\\p{L}++|" digits "| ?[^" SPACES                        \
    "\\p{L}\\p{N}]++[\\r\\n]*+|(?:[" BLANKS "]*+[\\r\\n]++)++|" SPACE_RUN

// Words of GPT-4o and after: capitals first, or none; `end` follows letters.
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define GPT4O(end, digits)                                                                                   \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" end "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" end       \
    "|" digits "| ?[^" SPACES "\\p{L}\\p{N}]++[\\r\\n/]*+|(?:[" BLANKS "]*+[\\r\\n]++)++|" SPACE_RUN
#define DEEPSEEK3                                                                                            \
    "[!-/:-@\\[-`{-~][A-Za-z]++|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]++| "                              \
    "?[\\p{P}\\p{S}]++[\\r\\n]*+|(?:[" BLANKS "]*+[\\r\\n]++)++|" SPACE_RUN

// Letters that have case, as DeepSeek's tokenizer.json lists them.
static const char deepseek_letters[] =
    "[" SPACES "]?["
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}"
    "\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}"
    "\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}"
    "\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}"
    "\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}"
    "\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}"
    "\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}"
    "\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}"
    "\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}"
    "\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}"
    "\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}"
    "\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}"
    "\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}"
    "\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}"
    "\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}"
    "\\x{1E900}-\\x{1E943}"
    "]++";

static const struct pre_kind {
    const char *name;
    bool ignore_merges, add_bos, nfc;
    const char *patterns[MAX_PATTERNS]; // each cuts what the ones before it left
} kinds[] = {
    {.name = "gpt-2", .patterns = {GPT2}},
    {.name = "llama-bpe", .ignore_merges = true, .add_bos = true, .patterns = {LLAMA3("\\p{N}{1,3}+")}},
    {.name = "llama3", .ignore_merges = true, .add_bos = true, .patterns = {LLAMA3("\\p{N}{1,3}+")}},
    {.name = "llama-v3", .ignore_merges = true, .add_bos = true, .patterns = {LLAMA3("\\p{N}{1,3}+")}},
    {.name = "qwen2", .nfc = true, .patterns = {LLAMA3("\\p{N}")}},
    {.name = "stablelm2", .patterns = {LLAMA3("\\p{N}")}},
    {.name = "hunyuan", .patterns = {LLAMA3("\\p{N}")}},
    {.name = "qwen35",
     .nfc = true,
     .patterns = {"(?i:'(?:[stmd]|re|ve|ll))|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]++|\\p{N}| ?[^" SPACES
                  "\\p{L}\\p{M}\\p{N}]++[\\r\\n]*+|(?:[" BLANKS "]*+[\\r\\n]++)++|" SPACE_RUN}},
    {.name = "dbrx", .patterns = {LLAMA3("\\p{N}{1,3}+")}},
    {.name = "smaug-bpe", .patterns = {LLAMA3("\\p{N}{1,3}+")}},
    {.name = "glm4", .patterns = {LLAMA3("\\p{N}{1,3}+")}},
    {.name = "chatglm-bpe", .patterns = {LLAMA3("\\p{N}{1,3}+")}},
    {.name = "gpt-4o", .patterns = {GPT4O("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "\\p{N}{1,3}+")}},
    {.name = "llama4", .patterns = {GPT4O("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "\\p{N}{1,3}+")}},
    {.name = "tekken", .ignore_merges = true, .add_bos = true, .patterns = {GPT4O("", "\\p{N}")}},
    {.name = "deepseek-v3",
     .patterns = {"\\p{N}{1,3}+", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]++",
                  DEEPSEEK3}},
    {.name = "hunyuan-dense",
     .patterns = {"\\p{N}{1,3}+", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]++",
                  DEEPSEEK3}},
    {.name = "seed-coder",
     .patterns = {"(?i:'(?:[stmd]|re|ve|ll))|[^\\r\\n\\p{L}\\p{N}]?\\p{L}++|\\p{N}| ?[^" SPACES
                  "\\p{L}\\p{N}\\r\\n]++|(?:[" BLANKS "]*+[\\r\\n]++)++|" SPACE_RUN}},
    {.name = "deepseek-llm",
     .patterns = {"[\\r\\n]", deepseek_letters,
                  "[" SPACES
                  "]?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]++",
                  "(?<![" SPACES "])[" SPACES "]++\\z",
                  "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]++", "\\p{N}++"}},
    {.name = "starcoder", .patterns = {"\\p{N}", GPT2}},
    {.name = "refact", .patterns = {"\\p{N}", GPT2}},
    {.name = "command-r", .patterns = {"\\p{N}", GPT2}},
    {.name = "smollm", .patterns = {"\\p{N}", GPT2}},
    {.name = "exaone", .patterns = {"\\p{N}", GPT2}},
    {.name = "default", .patterns = {"[\\p{P}$+<=>^~|]++", GPT2, "\\p{N}++", "[0-9][0-9][0-9]"}},
};
enum { NUM_KINDS = sizeof kinds / sizeof kinds[0] };

struct pretokenizer {
    const struct pre_kind *kind;
    bool nfc, ignore_merges; // of its kind, if the file does not say
    int num_patterns;
    pcre2_code *codes[MAX_PATTERNS];
};

struct pretokenizer *pretokenizer_open(const struct model_file *f, struct err *err) {
    struct text_view name = {"default", 7};
    if (meta_str(f, "tokenizer.ggml.pre", false, 64, &name, err))
        return NULL;
    if (!meta_find(f, "tokenizer.ggml.pre"))
        log_msg(LOG_WARN, "msg=\"no key tokenizer.ggml.pre: words are cut as by 'default'\" file=\"%s\"",
                f->name);
    const struct pre_kind *kind = NULL;
    for (size_t i = 0; i < NUM_KINDS && !kind; i++)
        if (name.len == strlen(kinds[i].name) && memcmp(name.data, kinds[i].name, name.len) == 0)
            kind = &kinds[i];
    if (!kind) {
        char known[320] = "";
        for (size_t i = 0; i < NUM_KINDS; i++)
            snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
                     kinds[i].name);
        model_file_bad(f, err,
                       "pre-tokenizer '%.*s' (key tokenizer.ggml.pre) is not supported yet; supported: %s",
                       (int)name.len, name.data, known);
        return NULL;
    }
    struct pretokenizer *p = calloc(1, sizeof *p);
    if (!p)
        goto nomem;
    p->kind = kind;
    p->nfc = kind->nfc;
    p->ignore_merges = kind->ignore_merges;
    if (meta_bool(f, "tokenizer.quire.nfc", &p->nfc, err) ||
        meta_bool(f, "tokenizer.quire.ignore_merges", &p->ignore_merges, err)) {
        pretokenizer_free(p);
        return NULL;
    }
    for (; p->num_patterns < MAX_PATTERNS && kind->patterns[p->num_patterns]; p->num_patterns++) {
        int code;
        size_t at;
        pcre2_code *c = pcre2_compile((PCRE2_SPTR)kind->patterns[p->num_patterns], PCRE2_ZERO_TERMINATED,
                                      PCRE2_UTF, &code, &at, NULL);
        if (!c)
            goto nomem; // the patterns are ours and sound
        p->codes[p->num_patterns] = c;
        pcre2_jit_compile(c, PCRE2_JIT_COMPLETE); // where it fails, the interpreter gives the same, slower
    }
    return p;
nomem:
    err_set(err, STATUS_NOMEM, "%s: out of memory for the pre-tokenizer", f->name);
    pretokenizer_free(p);
    return NULL;
}

void pretokenizer_free(struct pretokenizer *p) {
    if (!p)
        return;
    for (int i = 0; i < p->num_patterns; i++)
        pcre2_code_free(p->codes[i]);
    free(p);
}

bool pretokenizer_adds_bos(const struct pretokenizer *p) { return p->kind->add_bos; }
bool pretokenizer_ignores_merges(const struct pretokenizer *p) { return p->ignore_merges; }

struct cutter { // of one call
    const struct pretokenizer *p;
    pcre2_match_data *match;
    word_fn *fn;
    void *arg;
};

// Finds the next match of a pattern in valid UTF-8. false: none. A limit of PCRE2, which these patterns do
// not reach, counts as none: the rest is one word.
static bool find_match(const struct cutter *c, const pcre2_code *code, const char *text, size_t len,
                       size_t from, size_t *start, size_t *end) {
    int rc = pcre2_match(code, (PCRE2_SPTR)text, len, from, PCRE2_NO_UTF_CHECK, c->match, NULL);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc =
            pcre2_match(code, (PCRE2_SPTR)text, len, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, c->match, NULL);
    if (rc < 0)
        return false;
    const size_t *at = pcre2_get_ovector_pointer(c->match);
    *start = at[0];
    *end = at[1];
    return at[1] > at[0];
}

// Matches and what lies between them are words of this pattern; the next one cuts each of them further.
static enum status cut_words(const struct cutter *c, int pattern, const char *text, size_t len) {
    if (pattern == c->p->num_patterns)
        return c->fn(c->arg, text, len);
    for (size_t at = 0, start, end; at < len; at = end) {
        if (!find_match(c, c->p->codes[pattern], text, len, at, &start, &end))
            start = end = len;
        enum status st = start > at ? cut_words(c, pattern + 1, text + at, start - at) : STATUS_OK;
        if (!st && end > start)
            st = cut_words(c, pattern + 1, text + start, end - start);
        if (st)
            return st;
    }
    return STATUS_OK;
}

// ---- normalisation form C

// Characters of large blocks that are normalised already, next to anything but a mark: a short cut.
static bool is_plain(uint32_t cp) {
    return cp < 0x300 || (cp >= 0x400 && cp <= 0x482) || (cp >= 0x2010 && cp <= 0x2027) ||
           (cp >= 0x3041 && cp <= 0x3096) || (cp >= 0x30a1 && cp <= 0x30fa) ||
           (cp >= 0x4e00 && cp <= 0x9fff) || (cp >= 0xac00 && cp <= 0xd7a3) ||
           (cp >= 0xff01 && cp <= 0xff5e) || (cp >= 0x1f300 && cp <= 0x1faff);
}

// A starter that normalisation leaves whole, so that marks after it are sorted apart from those before it.
static bool ends_marks(uint32_t cp) {
    const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)cp);
    return is_plain(cp) || (p->combining_class == 0 && p->decomp_seqindex == UINT16_MAX);
}

// The end of a stretch that is normalised apart from what follows, which is an ASCII character: that never
// joins what stands before it. Sorting the marks of a character is quadratic in their number, so more than
// MAX_MARKS in a row (no language has them) are sorted in groups.
static size_t stretch_end(const unsigned char *p, size_t start, size_t len, bool *plain) {
    size_t i = start, marks = 0;
    *plain = true;
    while (i < len && (*plain || p[i] >= 0x80)) {
        size_t n;
        uint32_t cp = utf8_decode((const char *)p + i, &n);
        marks = ends_marks(cp) ? 0 : marks + 1;
        if (marks > MAX_MARKS)
            break;
        *plain = *plain && is_plain(cp);
        i += n;
    }
    return i;
}

// Cuts valid UTF-8 in its normalisation form C.
static enum status cut_nfc(const struct cutter *c, const char *text, size_t len) {
    const unsigned char *p = (const unsigned char *)text;
    bool plain;
    if (stretch_end(p, 0, len, &plain) == len && plain)
        return cut_words(c, 0, text, len);
    // Three times the bytes is the most that this form can take (Unicode Standard Annex 15).
    char *out = len < SIZE_MAX / 3 ? malloc(3 * len) : NULL;
    enum status st = out ? STATUS_OK : STATUS_NOMEM;
    size_t used = 0;
    for (size_t start = 0, end; start < len && !st; start = end) {
        end = stretch_end(p, start, len, &plain);
        if (plain) {
            memcpy(out + used, p + start, end - start);
            used += end - start;
            continue;
        }
        utf8proc_uint8_t *normal;
        utf8proc_ssize_t n = utf8proc_map(p + start, (utf8proc_ssize_t)(end - start), &normal,
                                          UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        if (n < 0) { // the text is valid, so it is memory
            st = STATUS_NOMEM;
            continue;
        }
        CHECK(used + (size_t)n <= 3 * len);
        memcpy(out + used, normal, (size_t)n);
        used += (size_t)n;
        free(normal);
    }
    if (!st)
        st = cut_words(c, 0, out, used);
    free(out);
    return st;
}

// ---- a text

enum status pretokenizer_cut(const struct pretokenizer *p, const char *text, size_t len, word_fn *fn,
                             void *arg) {
    struct cutter c = {.p = p, .fn = fn, .arg = arg, .match = pcre2_match_data_create(1, NULL)};
    enum status st = c.match ? STATUS_OK : STATUS_NOMEM;
    const unsigned char *bytes = (const unsigned char *)text;
    // What is not UTF-8 is a word of its own, and PCRE2 and utf8proc never see it.
    for (size_t i = 0, end; i < len && st == STATUS_OK; i = end) {
        int n;
        for (end = i; (n = utf8_len(bytes + end, len - end)) > 0;)
            end += (size_t)n;
        if (end > i)
            st = p->nfc ? cut_nfc(&c, text + i, end - i) : cut_words(&c, 0, text + i, end - i);
        size_t invalid = end;
        while (end < len && utf8_len(bytes + end, len - end) == 0)
            end++;
        if (st == STATUS_OK && end > invalid)
            st = fn(arg, text + invalid, end - invalid);
    }
    pcre2_match_data_free(c.match);
    return st;
}

#else // without PCRE2 and utf8proc: so that the engine builds with nothing but a C compiler

struct pretokenizer *pretokenizer_open(const struct model_file *f, struct err *err) {
    model_file_bad(
        f, err,
        "tokenizer 'gpt2' (key tokenizer.ggml.model) needs PCRE2 and utf8proc, and this build lacks them");
    return NULL;
}
void pretokenizer_free(struct pretokenizer *p) { (void)p; }
bool pretokenizer_adds_bos(const struct pretokenizer *p) { return p != NULL; }
bool pretokenizer_ignores_merges(const struct pretokenizer *p) { return p != NULL; }
enum status pretokenizer_cut(const struct pretokenizer *p, const char *text, size_t len, word_fn *fn,
                             void *arg) {
    (void)p;
    return fn(arg, text, len);
}

#endif
