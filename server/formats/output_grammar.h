// The format of a model as parts of a grammar: its reasoning first, then text that is constrained, or calls.
#pragma once

#include "output_format.h"
#include "part_arena.h"

// The constraint on the output.
struct output_rule {
    const struct output_format *format; // NULL: text
    const struct tokenizer *tokenizer;
    const token_id *tokens; // (num_tokens) the format's control tokens
    int num_tokens;
    bool reads_reasoning;    // of a format that has it: may be written first
    bool thinking;           // the prompt has begun the reasoning
    const output_text *body; // of what is no call; NULL: any text
    const json_t *tools;     // those that may be called; NULL: no calls
    const json_t *foreign;   // grammars of custom tools, as completion_request.h has them; NULL: none
    bool calls;              // there has to be a call
    bool one_call;           // and at most one
};

bool output_any_strict(const json_t *tools);

// The end of a sentence about the part that cannot be constrained for this format, as in "needs …". NULL: all can.
const char *output_rule_problem(const struct output_rule *r);
output_text output_rule_part(struct part_arena *a, const struct output_rule *r);
