// Regular expressions: our own, for PCRE2, and those of tokenizer.json, which are Oniguruma's and are translated.
#pragma once

#include "models/model_file.h"

struct regex; // immutable once made

// White space as Unicode has it, to stand inside a class. PCRE2's own \s would add U+180E.
#define REGEX_SPACES "\\p{Z}\\t-\\r\\x{85}"

// Characters of a word, likewise: letters, marks, numbers but for No, connecting punctuation, and others that Unicode calls
// alphabetic or digits.
#define REGEX_WORD                                                                                           \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}\\x{24B6}-\\x{24E9}"               \
    "\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}"

// Whether this build has PCRE2 and utf8proc; false: err is set.
bool regex_available(const struct model_file *f, struct err *err);
// pattern: ours and sound. NULL: out of memory.
struct regex *regex_new(const char *pattern);
// An expression of a file, in Oniguruma's (Ruby's) syntax. NULL with err: STATUS_FORMAT (one that is malformed or not
// supported, with the reason), STATUS_NOMEM.
struct regex *regex_translate(struct text_view expression, const struct model_file *f, struct err *err);
void regex_free(struct regex *r); // NULL is allowed

struct regex_scratch *regex_scratch_new(void); // of one call; NULL: out of memory
void regex_scratch_free(struct regex_scratch *s);

// Finds the next match in valid UTF-8, at byte `from` or later; it may be empty. false: none, or a limit of PCRE2 was
// reached.
bool regex_find(const struct regex *r, struct regex_scratch *s, struct text_view text, size_t from,
                size_t *start, size_t *end);
