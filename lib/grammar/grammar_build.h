// How the front ends (schema, regex, grammar languages) say what text a grammar takes: a tree of expressions,
// which grammar_finish() turns into a network that a matcher walks byte by byte.
//
// A builder has one owner and one thread. Expressions live as long as it. An expression may stand in several
// places. A failed builder (out of memory, a budget) gives EXPR_NONE and stays failed: look at gb_failed() at the
// end. EXPR_NONE among the arguments gives EXPR_NONE.
#pragma once

#include "grammar.h"
#include "regex/dfa.h"

struct grammar;
struct grammar_builder;
typedef int32_t expr;
enum { EXPR_NONE = -1 };

struct grammar_builder *gb_new(void); // NULL: out of memory
void gb_free(struct grammar_builder *b);
// STATUS_NOMEM, STATUS_LIMIT with err, where it failed.
enum status gb_failed(const struct grammar_builder *b, struct err *err);

expr gb_never(struct grammar_builder *b); // no text at all
expr gb_empty(struct grammar_builder *b); // the empty text
expr gb_bytes(struct grammar_builder *b, const char *text, size_t len);
#define gb_text(b, text) gb_bytes((b), "" text, sizeof(text) - 1)
// One byte of a set.
expr gb_byte(struct grammar_builder *b, const bool set[256]);
// One code point, as UTF-8, of any of n ranges (or of none of them); surrogates are never taken.
struct code_range {
    uint32_t first, last;
};
expr gb_chars(struct grammar_builder *b, const struct code_range *ranges, int n, bool negated);
// Text that an automaton accepts. The builder takes d over.
expr gb_dfa(struct grammar_builder *b, struct dfa *d);
// A token that stands for itself and is no text: a control token of the vocabulary.
expr gb_token(struct grammar_builder *b, int32_t token);
enum { TOKEN_CODE_BYTES = 4 };
void token_code(int32_t token, char code[TOKEN_CODE_BYTES]); // how it looks to a matcher; no UTF-8 is like it
// Any text in which `stop` does not occur; len 0: any text. The caller owns it; NULL: b failed.
struct dfa *gb_dfa_without(struct grammar_builder *b, const char *stop, size_t len);
// The texts of e in which `stop` does not occur: not empty, the same wherever it stands, and borrowed until grammar_finish(). The
// matcher leaves out what has it in it. So a text that needs it to go on is a dead end.
expr gb_without(struct grammar_builder *b, expr e, const char *stop);
expr gb_seq(struct grammar_builder *b, const expr *parts, int n);
#define gb_seq_of(b, ...)                                                                                    \
    gb_seq((b), (const expr[]){__VA_ARGS__}, (int)(sizeof((const expr[]){__VA_ARGS__}) / sizeof(expr)))
expr gb_alt(struct grammar_builder *b, const expr *parts, int n); // any of them; n 0: never
#define gb_alt_of(b, ...)                                                                                    \
    gb_alt((b), (const expr[]){__VA_ARGS__}, (int)(sizeof((const expr[]){__VA_ARGS__}) / sizeof(expr)))
// min to max times; max -1: without end. Counts are kept, not unrolled: 1,000,000 costs what 2 does.
expr gb_repeat(struct grammar_builder *b, expr part, int min, int max);

// A rule, so that expressions may stand within themselves: defined once, later. One that is used and never
// defined fails the grammar.
expr gb_rule(struct grammar_builder *b, const char *name); // name: for messages, copied
void gb_define(struct grammar_builder *b, expr rule, expr body);

// ---- JSON

void gb_json_style(struct grammar_builder *b, const struct json_style *style); // before the first of these
// Sets how the next of these are written, until the next call; NULL: as JSON. Borrowed until then.
void gb_json_literals(struct grammar_builder *b, const struct grammar_literals *l);

expr gb_json_blanks(struct grammar_builder *b);
// A JSON string whose characters are min to max (-1: any number) code points, escapes of all kinds allowed.
expr gb_json_string(struct grammar_builder *b, int min, int max);
// A JSON string whose text, before it is escaped, d accepts (valid UTF-8). Only what has to be escaped is escaped.
// The builder takes d over.
expr gb_json_string_of(struct grammar_builder *b, struct dfa *d);
// The same of an expression, which has no objects of a schema in it, and no tokens.
expr gb_json_string_as(struct grammar_builder *b, expr text);
// Any number; any without fraction or exponent. Unless the style says as_written, of at most 16 digits before the point, 16
// behind it and 2 of an exponent.
expr gb_json_number(struct grammar_builder *b);
expr gb_json_integer(struct grammar_builder *b);
expr gb_json_any(struct grammar_builder *b); // any value
enum literal_word { LITERAL_TRUE, LITERAL_FALSE, LITERAL_NULL };
expr gb_json_word(struct grammar_builder *b, enum literal_word word);
// '[' items ']' with commas: the first num_first items one expression each, as many as there are; the others are `rest`
// (EXPR of gb_never(): none). min to max (-1) items in all.
expr gb_json_array(struct grammar_builder *b, const expr *first, int num_first, expr rest, int min, int max);

// A kind of members of an object. The automaton `keys` labels the text of a key (before escaping) with an index into
// `lists`; the list there names the kinds that the member may have (with several, any that fits). Keys that the
// automaton does not accept do not occur.
struct member_kind {
    expr value;
    bool required; // at least one member is of this kind
    bool once;     // at most one
};
struct json_object {
    struct dfa *keys; // the builder takes it over; NULL: no members
    // (num_kinds), at most 65,536; in JSON_ORDER_SCHEMA those `once` come in this order
    const struct member_kind *kinds;
    int num_kinds;
    const int32_t *lists;       // numbers of kinds, one list after the other
    const int32_t *list_starts; // (largest label + 2)
    int min, max;               // members; max -1: any number
    enum json_members {
        MEMBERS_JSON,
        MEMBERS_ARGUMENTS,
        MEMBERS_TAGS
    } written; // of literals: `arguments`, `tags`
};
expr gb_json_object(struct grammar_builder *b, const struct json_object *o);

// How the next outermost object is written, where it is MEMBERS_TAGS; the expressions of the tags' parts.
struct builder_tags {
    const struct grammar_tags *of; // borrowed until told anew; NULL: there are none
    expr open, of_text, of_value, close;
};
void gb_json_tags(struct grammar_builder *b, const struct builder_tags *tags);
const struct builder_tags *gb_tags(const struct grammar_builder *b);
// A string as it stands between tags, where a reader takes it for any of `types`: of min to max (-1) code points, or what d
// accepts (NULL: any of that length). The builder takes d over.
expr gb_tagged_text(struct grammar_builder *b, struct dfa *d, int min, int max, unsigned types);

// ---- the end

// Makes the grammar whose texts are those of root, and frees the builder in any case. NULL with err: STATUS_NOMEM;
// STATUS_LIMIT: a budget; STATUS_INVALID: no text at all is taken, a rule is not defined, left recursion that cannot be
// resolved (with the rules' names).
struct grammar *grammar_finish(struct grammar_builder *b, expr root, struct err *err);
