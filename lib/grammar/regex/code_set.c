#include "code_set.h"

#include "../grow.h"

#ifdef QUIRE_HAVE_PCRE2
#include <utf8proc.h>
#endif

void code_set_free(struct code_set *s) {
    free(s->ranges);
    *s = (struct code_set){0};
}

void code_set_add(struct code_set *s, uint32_t first, uint32_t last) {
    if (s->failed || first > last)
        return;
    if (s->num > 0 && s->ranges[s->num - 1].last + 1 == first) { // ranges often come in order
        s->ranges[s->num - 1].last = last;
        return;
    }
    if (grow_room(&s->ranges, sizeof *s->ranges, s->num, &s->cap))
        s->ranges[s->num++] = (struct code_range){first, last};
    else
        s->failed = true;
}

static int compare_ranges(const void *a, const void *b) {
    const struct code_range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

void code_set_finish(struct code_set *s) {
    struct code_set out = {.failed = s->failed};
    if (s->num > 1)
        qsort(s->ranges, (size_t)s->num, sizeof *s->ranges, compare_ranges);
    uint32_t begin = 0; // of the code points that no range holds yet
    for (int i = 0; i < s->num; i++) {
        uint32_t first = s->ranges[i].first, last = s->ranges[i].last;
        first = first < begin ? begin : first;
        last = last > CODE_MAX ? CODE_MAX : last;
        if (first > last)
            continue;
        begin = last + 1;
        code_set_add(&out, first, last < 0xd7ff ? last : 0xd7ff);
        code_set_add(&out, first > 0xe000 ? first : 0xe000, last);
    }
    code_set_free(s);
    *s = out;
}

// Adds all but what is in a finished set.
static void add_others(struct code_set *s, const struct code_set *of) {
    uint32_t begin = 0;
    for (int i = 0; i < of->num; i++) {
        if (of->ranges[i].first > begin)
            code_set_add(s, begin, of->ranges[i].first - 1);
        begin = of->ranges[i].last + 1;
    }
    code_set_add(s, begin, CODE_MAX);
    s->failed |= of->failed;
}

void code_set_negate(struct code_set *s) {
    struct code_set out = {0};
    add_others(&out, s);
    code_set_free(s);
    *s = out;
    code_set_finish(s);
}

static const struct code_range digits[] = {{'0', '9'}},
                               words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                               blanks[] = {{'\t', '\r'},     {' ', ' '},       {0xa0, 0xa0},
                                           {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029},
                                           {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000},
                                           {0xfeff, 0xfeff}},
                               white[] = {{'\t', '\r'},     {' ', ' '},       {0x85, 0x85},
                                          {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
                                          {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                                          {0x3000, 0x3000}},
                               ascii[] = {{0, 0x7f}}, any[] = {{0, CODE_MAX}};

static void add_ranges(struct code_set *s, const struct code_range *ranges, size_t bytes, bool negated) {
    struct code_set of = {(struct code_range *)(uintptr_t)ranges, (int)(bytes / sizeof *ranges), 0, false};
    for (int i = 0; i < of.num && !negated; i++)
        code_set_add(s, ranges[i].first, ranges[i].last);
    if (negated)
        add_others(s, &of);
}

void code_set_add_escape(struct code_set *s, char kind) {
    bool negated = kind < 'a';
    switch (kind | 32) {
    case 'd': add_ranges(s, digits, sizeof digits, negated); break;
    case 'w': add_ranges(s, words, sizeof words, negated); break;
    default: add_ranges(s, blanks, sizeof blanks, negated);
    }
}

#ifdef QUIRE_HAVE_PCRE2
// Unicode 15.1, PropertyValueAliases.txt, gc
static const struct {
    const char *name, *long_name;
    uint32_t categories; // bits of utf8proc_category_t
} properties[] = {
#define ONE(c) (1u << UTF8PROC_CATEGORY_##c)
#define LETTERS (ONE(LU) | ONE(LL) | ONE(LT))
#define PUNCTUATION (ONE(PC) | ONE(PD) | ONE(PS) | ONE(PE) | ONE(PI) | ONE(PF) | ONE(PO))
    {"Cc", "Control", ONE(CC)},
    {"Cf", "Format", ONE(CF)},
    {"Cn", "Unassigned", ONE(CN)},
    {"Co", "Private_Use", ONE(CO)},
    {"Cs", "Surrogate", ONE(CS)},
    {"C", "Other", ONE(CC) | ONE(CF) | ONE(CN) | ONE(CO) | ONE(CS)},
    {"LC", "Cased_Letter", LETTERS},
    {"Ll", "Lowercase_Letter", ONE(LL)},
    {"Lm", "Modifier_Letter", ONE(LM)},
    {"Lo", "Other_Letter", ONE(LO)},
    {"Lt", "Titlecase_Letter", ONE(LT)},
    {"Lu", "Uppercase_Letter", ONE(LU)},
    {"L", "Letter", LETTERS | ONE(LM) | ONE(LO)},
    {"Mc", "Spacing_Mark", ONE(MC)},
    {"Me", "Enclosing_Mark", ONE(ME)},
    {"Mn", "Nonspacing_Mark", ONE(MN)},
    {"M", "Mark", ONE(MC) | ONE(ME) | ONE(MN)},
    {"M", "Combining_Mark", ONE(MC) | ONE(ME) | ONE(MN)},
    {"Nd", "Decimal_Number", ONE(ND)},
    {"Nd", "digit", ONE(ND)},
    {"Nl", "Letter_Number", ONE(NL)},
    {"No", "Other_Number", ONE(NO)},
    {"N", "Number", ONE(ND) | ONE(NL) | ONE(NO)},
    {"Pc", "Connector_Punctuation", ONE(PC)},
    {"Pd", "Dash_Punctuation", ONE(PD)},
    {"Pe", "Close_Punctuation", ONE(PE)},
    {"Pf", "Final_Punctuation", ONE(PF)},
    {"Pi", "Initial_Punctuation", ONE(PI)},
    {"Po", "Other_Punctuation", ONE(PO)},
    {"Ps", "Open_Punctuation", ONE(PS)},
    {"P", "Punctuation", PUNCTUATION},
    {"P", "punct", PUNCTUATION},
    {"Sc", "Currency_Symbol", ONE(SC)},
    {"Sk", "Modifier_Symbol", ONE(SK)},
    {"Sm", "Math_Symbol", ONE(SM)},
    {"So", "Other_Symbol", ONE(SO)},
    {"S", "Symbol", ONE(SC) | ONE(SK) | ONE(SM) | ONE(SO)},
    {"Zl", "Line_Separator", ONE(ZL)},
    {"Zp", "Paragraph_Separator", ONE(ZP)},
    {"Zs", "Space_Separator", ONE(ZS)},
    {"Z", "Separator", ONE(ZL) | ONE(ZP) | ONE(ZS)},
    {"Assigned", "Assigned", ~ONE(CN)},
};

static bool same(const char *name, size_t len, const char *text) {
    return strlen(text) == len && memcmp(name, text, len) == 0;
}

static bool add_category(struct code_set *s, const char *name, size_t len, bool negated) {
    size_t p = 0, num = sizeof properties / sizeof *properties;
    while (p < num && !same(name, len, properties[p].name) && !same(name, len, properties[p].long_name))
        p++;
    if (p == num)
        return false;
    // Planes 4 to 13 have nothing assigned, 15 and 16 are of one kind but for their last two code points.
    for (uint32_t c = 0, last; c <= CODE_MAX && !s->failed; c = last + 1) {
        last = c >= 0x40000 && c < 0xe0000 ? 0xdffff : c;
        if (c >= 0xf0000)
            last = (c & 0xffff) < 0xfffe ? (c | 0xffff) - 2 : c;
        if (((properties[p].categories >> utf8proc_category((utf8proc_int32_t)c) & 1) != 0) != negated)
            code_set_add(s, c, last);
    }
    return true;
}
#else
static bool add_category(struct code_set *s, const char *name, size_t len, bool negated) {
    (void)s, (void)name, (void)len, (void)negated;
    return false;
}
#endif

bool code_set_add_property(struct code_set *s, const char *name, size_t len, bool negated) {
    static const struct {
        const char *name;
        const struct code_range *ranges;
        size_t bytes;
    } plain[] = {
        {"Any", any, sizeof any}, {"ASCII", ascii, sizeof ascii}, {"White_Space", white, sizeof white}};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (strlen(plain[i].name) == len && memcmp(name, plain[i].name, len) == 0) {
            add_ranges(s, plain[i].ranges, plain[i].bytes, negated);
            return true;
        }
    static const char *const prefixes[] = {"gc=", "General_Category="};
    for (size_t i = 0; i < 2; i++) {
        size_t n = strlen(prefixes[i]);
        if (len > n && memcmp(name, prefixes[i], n) == 0)
            return add_category(s, name + n, len - n, negated);
    }
    return add_category(s, name, len, negated);
}

void code_set_add_cases(struct code_set *s) {
    enum { LAST_CASED = 0x1e943 }; // Unicode 15.1, CaseFolding.txt
    int num = s->num;
    for (int i = 0; i < num; i++)
        for (uint32_t c = s->ranges[i].first; c <= s->ranges[i].last && c <= LAST_CASED; c++) {
            uint32_t lower = c >= 'A' && c <= 'Z' ? c | 32 : c, upper = c >= 'a' && c <= 'z' ? c & ~32u : c;
#ifdef QUIRE_HAVE_PCRE2
            lower = (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
            upper = (uint32_t)utf8proc_toupper((utf8proc_int32_t)c);
#endif
            if (lower != c)
                code_set_add(s, lower, lower);
            if (upper != c)
                code_set_add(s, upper, upper);
        }
    code_set_finish(s);
}
