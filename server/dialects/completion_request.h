// A request for a completion, parsed and checked, whatever the dialect; and what parsing knows of the model.
#pragma once

#include "buf.h"
#include "request.h"
#include "tokenizer.h"

struct chat_template;

enum { MAX_CHOICES = 128, MAX_SALT = 1024, REQUEST_ID_SIZE = 132, IGNORED_SIZE = 512 };

// Lent, immutable.
struct served_model {
    const struct tokenizer *tokenizer;
    char *const *names; // (num_names) the first one is the default
    size_t num_names;
    int vocab, max_model_len;
    enum pooling pooling; // other than NONE: it gives vectors
    int vector_size;
    const struct sampling_params *sampling; // of requests that say nothing; NULL: plain
    size_t max_token_bytes;                 // of the longest token: bounds how many tokens a text can be
    struct chat_template *chat;             // NULL: chat_problem says why
    char chat_problem[256];
    char *template_source; // owned, until chat_close(); NULL without a template
    bool has_priorities;   // --scheduling-policy priority
    bool strict_fields;    // names that would be ignored are refused
};

// Whether a text is refused without tokenising it: no token is longer than max_token_bytes, so it cannot fit, and it
// is so long that counting its tokens for the refusal would take long.
static inline bool text_is_hopeless(const struct served_model *m, size_t bytes) {
    return bytes > 1 << 20 && bytes / m->max_token_bytes > (size_t)m->max_model_len;
}

struct completion_request {
    const char *model;         // one of served_model.names
    struct token_buf *prompts; // (num_prompts)
    size_t num_prompts;
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
    int dimensions;              // of an embedding; 0: all
    bool base64, normalize;      // how it is written
    int priority;
    char *salt; // (salt_len)
    size_t salt_len;
    struct buf response_fields; // of /completion: names of the members that are wanted, each with its NUL
    char request_id[REQUEST_ID_SIZE]; // empty: none
    char ignored[IGNORED_SIZE];       // names of fields without an effect, `a, b`; also where parsing fails
};

void completion_request_free(struct completion_request *r);
