// Compiles grammars, JSON schemas and regular expressions to token filters, which restrict the text that a model
// generates.
//
// A constraint is made once, on any thread, and shared by the requests that ask for the same; each has a filter of its
// own.
#pragma once

#include "filter.h"
#include "status.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum grammar_language {
    GRAMMAR_JSON_SCHEMA, // drafts 4 to 2020-12
    GRAMMAR_JSON_OBJECT, // any object; no text
    GRAMMAR_REGEX,       // the whole text
    GRAMMAR_GBNF,        // from `root`
    GRAMMAR_LARK,        // from `start`
};

enum json_order { JSON_ORDER_SCHEMA, JSON_ORDER_ANY }; // of the properties of objects that a schema names
struct json_style {
    enum json_order order;
    int max_blanks;  // in a row where JSON allows blanks (space, tab, LF, CR), 0..1024
    bool as_written; // every instance of a schema is taken as it may be written: an integer as 1.0, too
};

// How the values of a schema are written where not as JSON, by models that call functions in a language of their own.
// Keys are words (letters, digits, '_', '-', '.', '$', all beyond ASCII) where they stand without quotes: no others occur.
struct grammar_literals {
    const char *words[3]; // of true, false and null
    const char *quote; // around strings that hold all else as it is, 2 bytes or more; NULL: Python's strings
    token_id quote_token;            // the control token that quote is; -1: text
    bool bare_keys;                  // keys have no quotes
    bool arguments;                  // the outermost value, always an object, is written (key=value, …)
    const struct grammar_tags *tags; // it is written between tags, and the rest as JSON; NULL: it is not
};

// Types of JSON values, as a set.
enum {
    GRAMMAR_NULL = 1 << 0,
    GRAMMAR_BOOLEAN = 1 << 1,
    GRAMMAR_NUMBER = 1 << 2,
    GRAMMAR_STRING = 1 << 3,
    GRAMMAR_ARRAY = 1 << 4,
    GRAMMAR_OBJECT = 1 << 5,
};

// The members of an object as models write arguments between tags, with blanks between them:
//     open KEY mid of_text TEXT close       a string, as it is, without the text `stop`
//     open KEY mid of_value VALUE close     any other value, as JSON
// Keys hold no control characters, quotes, '<' or '>', and no blanks at their ends: no others occur.
struct grammar_tags {
    const struct grammar_part *open, *mid, *of_text, *of_value, *close; // mid: of TEXT, TOKEN and SEQ alone
    const char *stop;                                                   // not empty
    bool
        told; // of_text and of_value say which it is; else no string looks like another value that may stand there
    // The types that a reader takes a member of this name for (NULL: of one that no schema names), as the source that is
    // written says, and nothing else. Called while it is compiled.
    unsigned (*types)(const void *of, const char *key, size_t len);
    const void *of;
};

// A text in parts. All pointers are borrowed for the call.
struct grammar_part {
    enum grammar_part_kind {
        GRAMMAR_TEXT,    // text, as it is
        GRAMMAR_TOKEN,   // one control token, which is no text
        GRAMMAR_WITHOUT, // any text in which none of the texts of (num) parts occurs
        GRAMMAR_SOURCE,  // the texts that `text`, in a language, allows
        GRAMMAR_QUOTED, // a string whose text parts[0] allows; of `literals` with tags what stands between these
        GRAMMAR_BLANKS, // as JSON allows them
        GRAMMAR_SEQ,    // (num) parts one after another
        GRAMMAR_ANY_OF, // one of (num) parts
        GRAMMAR_REPEAT, // parts[0], min to max times; max -1: without end
    } kind;
    enum grammar_language language;
    const struct grammar_literals *literals; // SOURCE of a schema or an object, QUOTED; NULL: JSON
    const char *text;                        // (len)
    size_t len;
    token_id token;
    const struct grammar_part *parts;
    int num, min, max;
};

// A vocabulary's tokens by their bytes. Immutable: any number of threads may use it. The vocabulary's state outlives it.
struct token_trie;
struct token_trie *token_trie_new(struct vocabulary v); // NULL: out of memory
void token_trie_free(struct token_trie *t);             // NULL is allowed

struct constraint;

// Compiles: up to a second of work. The trie outlives it. NULL with err: STATUS_INVALID, what is malformed or not
// supported and where; STATUS_LIMIT, a budget; STATUS_NOMEM. The caller owns one reference.
struct constraint *constraint_new(const struct grammar_part *root, const struct json_style *style,
                                  const struct token_trie *trie, struct err *err);
// Any thread.
void constraint_retain(struct constraint *c);
void constraint_release(struct constraint *c); // NULL is allowed
size_t constraint_bytes(struct constraint *c); // memory, as far as it is now

// A filter for one request, at the beginning of the text; it keeps a reference. NULL: out of memory.
struct token_filter *constraint_filter(struct constraint *c);

// Drafts what a filter of constraint_filter() leaves no choice about: text that has one continuation, as the vocabulary
// writes it. For the same request, which owns both. NULL: out of memory.
struct drafter *constraint_drafter(const struct token_filter *f);

// A filter that lets a model reason in so many tokens, and then allows nothing but the text that ends it.
struct budget_params {
    struct vocabulary vocabulary; // its state outlives the filter
    const char *open, *close;     // marks around reasoning; close of at most 63 bytes
    const char *closing;        // text written when the tokens are spent: ends with close, or its substitute
    bool inside;                // the prompt has begun it
    int max_tokens;             // >= 0
    struct token_filter *inner; // a further filter that must hold, taken over; it rolls back. NULL: none
};
// NULL: out of memory, or closing has no tokens; inner is the caller's still.
struct token_filter *budget_filter(const struct budget_params *p);

// Constraints by what they were made of, those used last, within a number of bytes; why others were refused; and the trie
// that they share, made when the first is asked for. Any thread.
struct constraint_cache;
struct constraint_cache *constraint_cache_new(struct vocabulary v, size_t max_bytes); // NULL: out of memory
void constraint_cache_free(struct constraint_cache *c);                               // NULL is allowed
struct constraint_counts {                                                            // of requests
    uint64_t compiled, cached, refused;
};
struct constraint_counts constraint_cache_counts(struct constraint_cache *c); // NULL: zeros
// constraint_new(), or the one made earlier of the same, or the error that it gave; waits where another thread makes it.
// The caller owns a reference. Also STATUS_CANCELLED: the cache was stopped.
struct constraint *constraint_cache_get(struct constraint_cache *c, const struct grammar_part *root,
                                        const struct json_style *style, struct err *err);

// From now on nothing is compiled, and what is being compiled ends soon. NULL is allowed.
void constraint_cache_stop(struct constraint_cache *c);

#ifdef __cplusplus
}
#endif
