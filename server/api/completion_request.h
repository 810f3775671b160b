// A request for a completion, parsed and checked, whatever the dialect.
#pragma once

#include "api_request.h"
#include "formats/part_arena.h"

struct constraint;

enum { MAX_CHOICES = 128 };

// The constraint on an output (structured.h).
struct structured {
    struct part_arena arena;
    output_text body, root; // as the request says; with reasoning and calls around it
    bool has_body;
    size_t longest; // bytes of the longest body, where choices are listed; else SIZE_MAX
    struct json_style style;
    char param[64]; // that asked for it
};

struct completion_request {
    struct api_request base;
    struct token_buf prediction; // a text like the output, in which drafts are looked up; empty: none
    int n, max_tokens, min_tokens, mirostat;
    struct sampling_params sampling;
    int64_t seed;
    bool has_seed;
    char **stops; // (num_stops)
    size_t stop_lens[DETOK_MAX_STOPS];
    int num_stops;
    token_id stop_ids[MAX_STOP_TOKENS];
    int num_stop_ids; // the model's own ends come first unless ignore_eos
    int num_own_ends;
    struct token_history_params history; // its arrays are owned; NULL: as in struct request_params
    uint32_t *allowed;
    token_id *bad_words;
    struct logit_bias *bias;
    int num_bias;
    bool ignore_eos, skip_special, add_special, echo, stream, include_usage, continuous_usage, timings;
    bool include_stop;           // the stop that ends the output is part of its text
    bool return_ids, names_ids;  // ids beside the text; log-probabilities by token_id:N
    bool spaces_between_special; // no effect: text never has a space that no token has
    int truncate;                // prompt tokens to keep; -1: what leaves room for the output, INT_MAX: all
    bool truncate_end;           // the first of them, not the last
    int prompt_logprobs;         // beside the text, not in it as with echo; -1: none
    int logprobs;                // -1: none
    token_id *logprob_ids;       // (logprobs) the alternatives to report; NULL: the best
    const struct output_format *format; // how the output is read; NULL: as text
    json_t *tools;                      // owned: those that the model sees; NULL: none
    json_t *callable;                   // owned: those of them that alone may be called; NULL: all
    bool reads_reasoning, hides_reasoning;
    bool thinking;                 // the prompt has begun the reasoning
    bool no_thinking;              // neither the template nor the request has the model reason
    int reasoning_budget;          // tokens; -1: no bound
    bool one_call;                 // the output ends with its first call
    bool background;               // it goes on without its client
    bool functions;                // calls are of functions, as they were before tools
    bool must_call;                // the output is calls alone
    bool any_order, no_blanks;     // of constrained JSON: its properties; no blanks between
    struct structured *structured; // owned: what the output has to be; NULL: anything
    struct constraint *constraint; // a reference to the same, compiled; NULL: not yet, or anything
    // of /v1/responses: all that led to the response, a JSON list, where it is kept; of a compaction the user's messages; else
    // empty
    struct buf items;
    json_t *foreign_tools; // owned, of /v1/responses: as responses_read_tools() says; NULL: none
    struct buf repeated;   // of /v1/responses: members of the response, each behind a comma
    int n_indent,
        max_predict_ms; // of completions: lines less indented, and more time behind a line, end it; 0: off
    struct buf response_fields; // of /completion: names of the members that are wanted, each with its NUL
};

void completion_request_free(struct completion_request *r);
