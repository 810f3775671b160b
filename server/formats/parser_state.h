// The inside of an output_parser; formats/ only.
#pragma once

#include "output_format.h"

#include <string.h>

// Where a value of JSON ends.
struct json_scan {
    int depth;
    bool string, escaped, begun;
};

enum { MAX_NAME = 256 }; // bytes of a tool's name or a key

enum call_step {
    STEP_BEGIN,
    STEP_KEY,
    STEP_COLON,
    STEP_VALUE,
    STEP_IN_VALUE,
    STEP_NEXT,
    STEP_NAME,
    STEP_TAIL,
    STEP_NONE, // it is no call of the format
};

// A call that is being read. Positions are of output_parser.in.
struct parsed_call {
    const struct output_format
        *format;         // its syntax is read: the parser's format, or another one between its marks
    const char *opening; // the mark before it; NULL: none
    size_t origin;       // behind that: the text goes on here, if it is no call
    int tried;           // other formats
    enum call_step step;
    enum { VALUE_OTHER, VALUE_NAME, VALUE_ID, VALUE_ARGUMENTS, VALUE_FUNCTION } value;
    size_t begin, pos, mark;
    struct json_scan scan;
    bool json;                 // NAMED: a call like those of JSON
    bool list, nested, object; // JSON: in a list; in "function": {…}; the arguments are an object
    unsigned types;            // TAGGED: of the value (argument_types.h)
    bool string;               // TAGGED: the value is a string, which comes as it is written
    bool first;                // TAGGED: nothing of the value is read yet
    bool plain;                // TAGGED: the value is no object or list of JSON, within which a tag is text
    char quote;                // PYTHON, BRACES: of the string that pos is in, '<' of the mark; 0: none
    bool triple;               // PYTHON: three of them
    bool body;                 // harmony: there are arguments
    bool begun, has_arguments; // it is among the parts
    struct buf name, id;
    size_t arguments, arguments_end; // JSON: that came before the name
    const json_t *parameters;        // the tool's schema
    int num_arguments;
};

struct output_parser {
    const struct output_format *format;
    const json_t *tools;
    bool reasoning, ended, failed;
    enum output_state { OUT_LEAD, OUT_THINK, OUT_TEXT, OUT_SECTION, OUT_CALL, OUT_HEADER, OUT_BODY } state;
    enum part_kind body; // harmony: what the message is
    bool lead_dropped;   // blanks before the next content say nothing
    bool after_call;     // so does what ends calls, a second time; else what ends reasoning
    bool said;           // there was content, or a call
    bool thought;        // there was reasoning
    struct buf in;       // text that is not decided yet, from `at`
    size_t at, scan;     // of text: before scan no mark begins
    size_t solid;        // behind the last byte before scan that is no blank
    size_t section;      // where the next call may begin
    // In reasoning that is not closed: reads from `scan` on as if it were, to tell whether that is a call. NULL: none.
    struct output_parser *probe;
    size_t seek; // behind what the probe has read
    int num_probes;
    struct parsed_call call;
    struct buf ids; // of calls, each with a NUL behind it
    int num_calls, num_ended;
    struct buf text;
    struct output_part *parts;
    size_t num_parts, cap_parts;
};

enum match { MATCH_NO, MATCH_YES, MATCH_OPEN }; // OPEN: what comes will tell

static inline enum match output_match(const struct output_parser *p, size_t pos, const char *literal) {
    size_t len = literal ? strlen(literal) : 0, have = p->in.len - pos;
    if (!len)
        return MATCH_NO;
    if (have && memcmp(p->in.data + pos, literal, have < len ? have : len) != 0)
        return MATCH_NO;
    return have >= len ? MATCH_YES : p->ended ? MATCH_NO : MATCH_OPEN;
}

static inline bool output_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// Adds to the last part where that is of the same kind.
void output_add(struct output_parser *p, enum part_kind kind, const char *text, size_t len);
// A call is known by name.
void output_begin_call(struct output_parser *p);
void output_end_call(struct output_parser *p);

// After a step: more can be done at once; the rest of the input is needed; the call is over, at call.pos; it is no call.
enum parse_step { STEP_MORE, STEP_WAIT, STEP_DONE, STEP_FAILED };
enum parse_step call_json_step(struct output_parser *p);
enum parse_step call_named_step(struct output_parser *p);
enum parse_step call_tagged_step(struct output_parser *p);
enum parse_step call_literal_step(struct output_parser *p); // PYTHON, BRACES

// Advances *pos within a value of JSON; true: it ends there. A scalar ends before what follows it.
bool json_scan_value(const struct output_parser *p, struct json_scan *s, size_t *pos);
// The name of the call, and its id where the format has one there, from a part of the input; false: it is no name.
bool output_read_name(struct output_parser *p, size_t begin, size_t end);
// From call.begin up to `end`, which is skipped, or `other`, which is not. MORE: it is found.
enum parse_step output_find_name(struct output_parser *p, const char *end, const char *other);
// Whether tools, where they are known, have one of that name.
bool output_has_tool(const struct output_parser *p, const char *name, size_t len);
// The schema of a tool's arguments; NULL: unknown.
const json_t *output_tool_parameters(const struct output_parser *p, const char *name, size_t len);
// A whole value as Python writes it, or JSON, to JSON; false: it is none.
bool literal_to_json(const char *text, size_t len, struct buf *out);

bool harmony_step(struct output_parser *p); // false: the rest of the input is needed
