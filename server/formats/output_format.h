// Models write reasoning and calls of tools besides plain text, each family in a format of its own. A format is a
// row of output_formats.c, chosen by the chat template. A parser reads one choice's text as it comes.
//
// The result does not depend on how the text is cut into pushes. A parser belongs to one thread; formats are immutable.
#pragma once

#include "buf.h"
#include "tokenizer.h"

#include <jansson.h>

enum call_syntax {
    CALLS_NONE,
    CALLS_JSON,   // {"name": N, "arguments": {…}}, or a list of such
    CALLS_NAMED,  // N mid {…}, the arguments as JSON; or as CALLS_JSON
    CALLS_TAGGED, // N, then each argument between tags
    CALLS_PYTHON, // N(key=value, …), or a list of such
    CALLS_BRACES, // N{key:value,…}
};

#define OUTPUT_QUOTE "<|\"|>" // BRACES: a string's mark that no string holds

// All texts are literal; NULL: the format has none.
struct output_format {
    const char *name;     // of --tool-call-parser
    const char *hints[3]; // its chat templates have all of them
    const char *think_open, *think_close;
    bool harmony; // gpt-oss: messages with headers; of what follows nothing applies
    enum call_syntax syntax;
    bool list;                                // JSON: calls are written as a list
    const char *name_key, *arguments_key;     // JSON: NULL: "name", "arguments"
    bool bare;                                // the whole output may be a call without anything around it
    bool think_inside;                        // reasoning may follow text or calls, too
    bool short_ids;                           // an id is 9 letters and digits
    bool kimi_ids;                            // N is written functions.N:0, which is the id, too
    const char *section_open, *section_close; // around all calls; a model may leave them out
    const char *call_open, *call_close;       // around each call
    const char *mid;                          // behind N (NAMED, TAGGED)
    const char *id_mid;                       // and then an id (NAMED), where it is there
    struct {
        const char *open, *mid, *value, *close; // open key mid [attributes] value VALUE close
        bool trim;                              // of VALUE a newline on either side
    } argument;                                 // TAGGED
    const char *drop[2];                        // texts that say nothing
};

// The format of a name; of a template's source (NULL: none). NULL: there is none.
const struct output_format *output_format_named(const char *name);
const struct output_format *output_format_of(const char *chat_template);
const char *output_format_names(void); // "a, b, c"
// The i-th format, from 0; NULL: there are no more.
const struct output_format *output_format_at(int i);

// How reasoning begins and ends, and what ends it so that the answer (calls: or a call) comes. false: there is none.
bool output_format_reasoning(const struct output_format *f, bool calls, const char **open, const char **close,
                             const char **closing);

enum { MAX_FORMAT_TOKENS = 24 };
// The control tokens whose names the format reads; their names must be in the text. Returns how many.
int output_format_tokens(const struct output_format *f, const struct tokenizer *t,
                         token_id ids[MAX_FORMAT_TOKENS]);

enum part_kind { PART_CONTENT, PART_REASONING, PART_CALL, PART_ARGUMENTS };

// Some output. The arguments of a call are JSON in parts that follow each other.
struct output_part {
    enum part_kind kind;
    int call;          // CALL, ARGUMENTS: which, from 0
    size_t begin, len; // of the parser's text; of a call its name
    size_t id, id_len; // CALL: the model's own id; len 0: none
};

struct output_parser;

// tools: the request's, borrowed, for the types of arguments; NULL: calls are text like any other. reasoning false: so is
// what stands between the marks of reasoning. thinking: the prompt has opened it. NULL: out of memory.
struct output_parser *output_parser_new(const struct output_format *f, const json_t *tools, bool reasoning,
                                        bool thinking);
void output_parser_free(struct output_parser *p); // NULL is allowed
// Adds text, UTF-8.
void output_push(struct output_parser *p, const char *text, size_t len);
// No more text comes: what was held back is decided.
void output_end(struct output_parser *p);
// The (*num) parts decided since the last output_clear(), and the text that they point into. Valid until the next push.
const struct output_part *output_parts(const struct output_parser *p, size_t *num, const char **text);
void output_clear(struct output_parser *p);
int output_num_calls(const struct output_parser *p);    // begun
int output_calls_ended(const struct output_parser *p);  // whole
bool output_is_thinking(const struct output_parser *p); // the text pushed last is reasoning
bool output_failed(const struct output_parser *p);      // out of memory
