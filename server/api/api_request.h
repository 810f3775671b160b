// Parsed bodies: what every request to the engine has, and a request for vectors. And what parsing knows of the model.
#pragma once

#include "buf.h"
#include "formats/output_format.h"
#include "http/auth.h"
#include "request.h"
#include "tokenizer.h"

struct chat_template;
struct constraint_cache;
struct lora;
struct loras;
struct response_store;

enum { MAX_SALT = 1024, REQUEST_ID_SIZE = 132, IGNORED_SIZE = 512 };

// Lent, immutable.
struct served_model {
    const struct tokenizer *tokenizer;
    char *const *names; // (num_names) the first one is the default
    size_t num_names;
    struct loras *loras;   // adapters, each a name besides; NULL: none
    const char *lora_root; // where those of requests lie; NULL: none are loaded
    int vocab, max_model_len;
    bool batch_dependent;         // as in struct engine_info
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
    char *template_source; // owned, until chat_close(); NULL without a template
    // The model's own template for conversations with tools, if it has one besides; owned, or NULL.
    struct chat_template *tool_chat;
    char *tool_source;
    const struct output_format *format; // of its output; NULL: it is text
    enum tools_fallback {
        TOOLS_REFUSED,
        TOOLS_IGNORED,
        TOOLS_GENERIC
    } tools_fallback;   // of a template without
    bool generic_tools; // described in words: the template knows none, or nobody knows how it has them called
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

struct api_request {
    const char *model;         // one of served_model.names, or lora's
    struct lora *lora;         // held; NULL: the model alone
    struct token_buf *prompts; // (num_prompts)
    size_t num_prompts;
    int priority;
    char *salt; // (salt_len)
    size_t salt_len;
    bool salted;                      // the client gave one
    bool retain;                      // its blocks stay longer in the prefix cache
    uint8_t tenant[SHA256_BYTES];     // the hash of its API key, set before parse()
    char request_id[REQUEST_ID_SIZE]; // empty: none
    char ignored[IGNORED_SIZE];       // names of fields without an effect, `a, b`; also where parsing fails
};

void api_request_free(struct api_request *r);

// For vectors, whatever the dialect: one of each input, an embedding; or of each pair of texts its score, one number.
struct vector_request {
    struct api_request base; // its prompts are the inputs
    bool add_special;
    int truncate;           // tokens of an input to keep; -1: what the model takes, INT_MAX: all
    int dimensions;         // of an embedding; 0: all
    bool base64, normalize; // how it is written
    int *second_text;       // (base.num_prompts) of a pair, as in struct request_params; NULL: 0
    bool use_activation;    // a score is a probability, not the logit
    int top_n;              // of a ranking; 0: all
    bool return_documents;
    struct buf documents; // as JSON, each with a NUL
    size_t *document_at;  // (base.num_prompts) where each begins; NULL: none is written
};

void vector_request_free(struct vector_request *r);
