// A request for a completion, parsed and checked, whatever the dialect; and what parsing knows of the model.
#pragma once

#include "buf.h"
#include "formats/output_format.h"
#include "formats/part_arena.h"
#include "http/auth.h"
#include "request.h"
#include "tokenizer.h"

struct chat_template;
struct constraint;
struct constraint_cache;
struct lora;
struct loras;
struct response_store;

enum { MAX_CHOICES = 128, MAX_SALT = 1024, REQUEST_ID_SIZE = 132, IGNORED_SIZE = 512 };

// Lent, immutable.
struct served_model {
    const struct tokenizer *tokenizer;
    char *const *names; // (num_names) the first one is the default
    size_t num_names;
    struct loras *loras;   // adapters, each a name besides; NULL: none
    const char *lora_root; // where those of requests lie; NULL: none are loaded
    int vocab, max_model_len;
    enum pooling pooling;         // other than NONE: it gives vectors
    bool ranks;                   // of one number each, the score of a pair
    bool pairs;                   // it reads pairs of texts as such
    bool types;                   // and tells the two apart by the types of tokens
    bool raw_vectors;             // its vectors are not normalised where the request does not say
    int vector_size, vector_room; // as in struct engine_info, as the next
    const char *rank_template;
    size_t rank_template_len;
    const struct sampling_params *sampling; // of requests that say nothing; NULL: plain
    size_t max_token_bytes;                 // of the longest token: bounds how many tokens a text can be
    struct chat_template *chat;             // NULL: chat_problem says why
    char chat_problem[256];
    char *template_source;              // owned, until chat_close(); NULL without a template
    const struct output_format *format; // of its output; NULL: it is text
    token_id format_tokens[MAX_FORMAT_TOKENS];
    int num_format_tokens;
    struct constraint_cache *constraints; // of outputs; thread-safe
    int reasoning_budget;                 // of requests that say nothing
    int max_blanks;                       // in a row in JSON that is constrained
    bool has_priorities;                  // --scheduling-policy priority
    bool strict_fields;                   // names that would be ignored are refused
    struct response_store *store;         // owned by serve.c; NULL: no response is kept
};

// Whether a text is refused without tokenising it: no token is longer than max_token_bytes, so it cannot fit, and it
// is so long that counting its tokens for the refusal would take long.
static inline bool text_is_hopeless(const struct served_model *m, size_t bytes) {
    return bytes > 1 << 20 && bytes / m->max_token_bytes > (size_t)m->max_model_len;
}

// What an output has to be (structured.h).
struct structured {
    struct part_arena arena;
    output_text body, root; // as the request says; with reasoning and calls around it
    bool has_body;
    size_t longest; // bytes of the longest body, where choices are listed; else SIZE_MAX
    struct json_style style;
    char param[64]; // that asked for it
};

struct completion_request {
    const char *model;         // one of served_model.names, or lora's
    struct lora *lora;         // held; NULL: the model alone
    struct token_buf *prompts; // (num_prompts)
    size_t num_prompts;
    struct token_buf prediction; // what the output may be, in which drafts are looked up; empty: none
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
    int top_n;                   // of a ranking; 0: all
    bool return_documents, use_activation;
    struct buf documents;               // as JSON, each with a NUL
    size_t *document_at;                // (num_prompts) where each begins; NULL: none is written
    int *second_text;                   // (num_prompts) as in struct request_params; NULL: 0
    const struct output_format *format; // how the output is read; NULL: as text
    json_t *tools;                      // owned: those that the model sees; NULL: none
    json_t *callable;                   // owned: those of them that alone may be called; NULL: all
    bool reads_reasoning, hides_reasoning;
    bool thinking;                 // the prompt has begun the reasoning
    int reasoning_budget;          // tokens; -1: no bound
    bool one_call;                 // the output ends with its first call
    bool functions;                // calls are of functions, as they were before tools
    bool must_call;                // the output is calls alone
    bool any_order, no_blanks;     // of constrained JSON: its properties; no blanks between
    struct structured *structured; // owned: what the output has to be; NULL: anything
    struct constraint *constraint; // a reference to the same, compiled; NULL: not yet, or anything
    int priority;
    char *salt; // (salt_len)
    size_t salt_len;
    bool salted;                  // the client gave one
    uint8_t tenant[SHA256_BYTES]; // whose request it is, set before parse(): of its API key
    struct buf
        items; // of /v1/responses: all that led to the response, a JSON list, where it is kept; else empty
    json_t *foreign_tools;      // owned, of /v1/responses: as responses_read_tools() says; NULL: none
    struct buf repeated;        // of /v1/responses: members of the response, each behind a comma
    struct buf response_fields; // of /completion: names of the members that are wanted, each with its NUL
    char request_id[REQUEST_ID_SIZE]; // empty: none
    char ignored[IGNORED_SIZE];       // names of fields without an effect, `a, b`; also where parsing fails
};

void completion_request_free(struct completion_request *r);
