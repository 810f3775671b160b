// Every field name that clients of OpenAI's API and of other servers are known to send, and what becomes of it. An API
// with names of its own has the table in its own file. Pure; any thread.
#pragma once

#include "fields.h"

enum { MAX_IGNORED_NAME = 80 };

enum field_fate {
    FIELD_READ,     // a table of struct field or a function reads it
    FIELD_ALIAS,    // another server's name for a field that is read
    FIELD_REFUSED,  // without it the response would be wrong: 400, unless its value asks for nothing
    FIELD_HARMLESS, // the response is right without it
    FIELD_TEMPLATE, // the chat template gets it if it names it; else refused, or told where values is NULL
};

struct field_rule {
    const char *name; // NULL: the table ends here
    unsigned where;   // bits of the table's own: bodies, and objects within them
    enum field_fate fate;
    const char *word;   // ALIAS: the field that is read; HARMLESS: why
    const char *values; // JSON values, comma between them. REFUSED: they ask for nothing. ALIAS: no limit
};

// The names of one kind of body.
struct field_names {
    const struct field_rule *rules;
    unsigned where; // those of the body itself
    // Adds the names without an effect in objects within the body to the list; NULL: it has no such objects.
    void (*inside)(char *list, const struct served_model *m, const json_t *root);
};

// Where a name stands in the table of OpenAI's APIs and the tokenizer (field_table.c).
enum {
    OPENAI_COMPLETIONS = 1,
    OPENAI_CHAT = 2,
    OPENAI_STREAM_OPTIONS = 4,
    OPENAI_MESSAGE = 8, // of messages[]
    OPENAI_PART = 16,   // of messages[].content[]
    TOKENIZE_BODY = 32,
    DETOKENIZE_BODY = 64,
    TEMPLATE_BODY = 128, // a chat completion's, of which the prompt alone is wanted
    OPENAI_RESPONSES = 256,
};
extern const struct field_rule field_rules[];

// NULL: nobody knows it.
const struct field_rule *field_rule_find(const struct field_rule *rules, const char *name, unsigned where);
// Whether v, not null, is one of the rule's values; numbers are compared as numbers.
bool field_rule_has(const struct field_rule *rule, const json_t *v);

// Refuses the first name of a body that is refused.
bool fields_refuse(const json_t *root, const struct field_names *names, struct api_error *e);
// Sets the list, of IGNORED_SIZE, to the names of a body, NULL too, that have no effect. Returns ok, or false where
// there is one and the server is strict.
bool fields_tell_ignored(char *list, const struct served_model *m, const json_t *root,
                         const struct field_names *names, bool ok, struct api_error *e);

// Adds `tools` where the model gets none of them, since its template knows none. False: the list is full.
bool fields_add_tools(char *list, const struct served_model *m, const json_t *root);
// For inside(). Adds the names of an object that have no effect, each behind `in`. False: the list is full.
bool fields_add_ignored(char *list, const struct served_model *m, const json_t *object,
                        const struct field_rule *rules, unsigned where, const char *in);
// For inside(). Adds the name of an effort of reasoning that the template has no variable for. False: as above.
bool fields_add_effort(char *list, const struct served_model *m, const json_t *effort, const char *name);
// inside() of OpenAI's: of stream_options, of messages, of both.
void fields_inside_options(char *list, const struct served_model *m, const json_t *root);
void fields_inside_messages(char *list, const struct served_model *m, const json_t *root);
void fields_inside_chat(char *list, const struct served_model *m, const json_t *root);

// Adds a name to a list `a, b` of IGNORED_SIZE unless it is there: `in` (may be ""), then the name, in printable
// letters and cut to MAX_IGNORED_NAME. False: the list is full, and ends in `...`.
bool ignored_add(char *list, const char *in, const char *name);
void ignored_merge(char *list, const char *other); // adds the names of another list
