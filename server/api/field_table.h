// Every field name that clients of OpenAI's API and of other servers are known to send, and what becomes of
// it. Pure; any thread.
#pragma once

#include "fields.h"

enum { MAX_IGNORED_NAME = 80 };

// Where a name stands: bodies, and objects within them.
enum {
    OPENAI_COMPLETIONS = 1,
    OPENAI_CHAT = 2,
    OPENAI_STREAM_OPTIONS = 4,
    OPENAI_MESSAGE = 8, // of messages[]
    OPENAI_PART = 16,   // of messages[].content[]
    TOKENIZE_BODY = 32,
    DETOKENIZE_BODY = 64,
    TEMPLATE_BODY = 128, // a chat completion's, of which the prompt alone is wanted
    OPENAI_EMBEDDINGS = 256,
    OPENAI_RERANK = 512,
    OPENAI_SCORE = 1024,
    ANTHROPIC_BODY = 1 << 16,
    ANTHROPIC_MESSAGE = 1 << 17,
    ANTHROPIC_BLOCK = 1 << 18, // of messages[].content[] and system[]
    ANTHROPIC_TOOL = 1 << 19,
    OLLAMA_CHAT = 1 << 20,
    OLLAMA_GENERATE = 1 << 21,
    OLLAMA_EMBED = 1 << 22, // and /api/embeddings
    OLLAMA_OPTIONS = 1 << 23,
    OLLAMA_MESSAGE = 1 << 24,
    OPENAI_RESPONSES = 2048,
    RESPONSES_ITEM = 4096,    // of input[]
    RESPONSES_PART = 8192,    // of input[].content[] and input[].output[]
    RESPONSES_OPTION = 16384, // of reasoning and of text
};

enum field_fate {
    FIELD_READ,     // a table of struct field or a function reads it
    FIELD_ALIAS,    // another server's name for a field that is read
    FIELD_REFUSED,  // without it the response would be wrong: 400, unless its value asks for nothing
    FIELD_HARMLESS, // the response is right without it
    FIELD_TEMPLATE, // the chat template gets it if it names it; else refused, or told where values is NULL
};

struct field_rule {
    const char *name;
    unsigned where; // OPENAI_…, ANTHROPIC_…, OLLAMA_…
    enum field_fate fate;
    const char *word;   // ALIAS: the field that is read; HARMLESS: why
    const char *values; // JSON values, comma between them. REFUSED: they ask for nothing. ALIAS: no limit
};

extern const struct field_rule field_rules[];
extern const size_t num_field_rules;

const struct field_rule *field_rule_find(const char *name, unsigned where); // NULL: nobody knows it
// Whether v, not null, is one of the rule's values; numbers are compared as numbers.
bool field_rule_has(const struct field_rule *rule, const json_t *v);

// Whether a tool of that type, of /v1/responses and of /v1/messages, runs on OpenAI's or Anthropic's servers: here it is left
// out, and told.
bool tool_is_hosted(const char *type);
bool anthropic_tool_is_hosted(const char *type);
// Refuses the first name of a body that a rule of that place (one of the above) refuses.
bool fields_refuse(const json_t *root, unsigned where, struct api_error *e);
// Sets the list, of IGNORED_SIZE, to the names of a body, NULL too, that have no effect. Returns ok, or false where
// there is one and the server is strict.
bool fields_tell_ignored(char *list, const struct served_model *m, const json_t *root, unsigned where,
                         bool ok, struct api_error *e);

// Adds a name to a list `a, b` of IGNORED_SIZE unless it is there: `in` (may be ""), then the name, in printable
// letters and cut to MAX_IGNORED_NAME. False: the list is full, and ends in `...`.
bool ignored_add(char *list, const char *in, const char *name);
void ignored_merge(char *list, const char *other); // adds the names of another list
