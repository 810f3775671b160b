// The OpenAI dialect: JSON in (openai.c; fields.c) and out (openai_write.c). Pure: no sockets, no engine, any
// thread.
#pragma once

#include "buf.h"
#include "config.h"
#include "service.h"
#include "tokenizer.h"

struct chat_template;

enum {
    MAX_CHOICES = 128,
    MAX_JSON_DEPTH = 64,
    MAX_JSON_VALUES = 2000000,
    MAX_SALT = 1024,
    REQUEST_ID_SIZE = 132
};

// What a client is told when something is wrong. `type` and `code` are constants.
struct api_error {
    int status;              // HTTP; 0: no error
    const char *type, *code; // code NULL: null
    char param[160];         // dotted path; empty: null
    char message[400];
    int retry_after; // s; 0: none
};

// Fills e (the first error wins) and returns false.
#if defined(__GNUC__)
__attribute__((format(printf, 5, 6)))
#endif
bool api_fail(struct api_error *e, int status, const char *code, const char *param, const char *fmt, ...);

// What parsing needs to know of the model; lent, immutable.
struct openai_model {
    const struct tokenizer *tokenizer;
    const struct str_list *names; // the first one is the default
    int vocab, max_model_len;
    size_t max_token_bytes;     // of the longest token: bounds how many tokens a text can be
    struct chat_template *chat; // NULL: chat_problem says why
    char chat_problem[256];
    bool knows_developer; // the template speaks of that role
    token_id *controls;   // (num_controls) all control tokens
    int num_controls;
};

// A request of /v1/completions or /v1/chat/completions, checked.
struct completion {
    const char *model;         // one of openai_model.names
    struct token_buf *prompts; // (num_prompts)
    size_t num_prompts;
    int n, max_tokens, min_tokens;
    struct sampling_params sampling;
    int64_t seed;
    bool has_seed;
    char **stops; // (num_stops)
    size_t stop_lens[DETOK_MAX_STOPS];
    int num_stops;
    token_id stop_ids[MAX_STOP_TOKENS];
    int num_stop_ids; // the model's own ends are among them unless ignore_eos
    struct logit_bias *bias;
    int num_bias;
    bool ignore_eos, skip_special, add_special, echo, stream, include_usage, continuous_usage;
    int logprobs; // -1: none
    // chat
    bool chat, chat_logprobs, add_generation_prompt;
    int max_completion_tokens, top_logprobs; // -1: not given
    int priority;
    char *salt;
    size_t salt_len;
    char request_id[REQUEST_ID_SIZE]; // empty: none
    char unknown[64];                 // an unknown field that was ignored, in printable letters
};

// Parses, checks and tokenises. False: e says why, and c needs no freeing. May run in the thread pool.
bool completion_parse(struct completion *c, const struct openai_model *m, const char *body, size_t len,
                      struct api_error *e);
bool chat_parse(struct completion *c, const struct openai_model *m, const char *body, size_t len,
                struct api_error *e);
void completion_free(struct completion *c);

// A JSON text is at most `max` deep and has at most MAX_JSON_VALUES values (strings heeded; the text need not
// be valid). The parser recurses, and makes some 80 bytes of a value of two.
bool json_depth_ok(const char *text, size_t len, int max);

// The seed of choice j: the seed itself for 0, else splitmix64(seed + j).
uint64_t choice_seed(uint64_t seed, int j);
uint64_t splitmix64(uint64_t x);

// ---- out

struct usage {
    int64_t prompt, completion, cached;
};

// The legacy log-probabilities of a piece of an answer: four lists, as the inside of JSON arrays.
struct logprob_lists {
    struct buf tokens, values, tops, offsets;
    int count;
};
void logprobs_clear(struct logprob_lists *l);
void logprobs_free(struct logprob_lists *l);
// Adds one token; where the event has no log-probabilities (num_top -1) both are null; `offset` in characters
// of the returned text; k alternatives.
void logprobs_add(struct logprob_lists *l, const struct tokenizer *t, const struct service_event *ev, int k,
                  int64_t offset);

// The same in the form of chat: one list, in `tops`.
void logprobs_add_chat(struct logprob_lists *l, const struct tokenizer *t, const struct service_event *ev,
                       int k);
// One choice of chat: a whole message, or a piece of one. `role` announces the message in a stream.
void write_message(struct buf *b, int index, const char *text, size_t len, const struct logprob_lists *lists,
                   const char *finish);
void write_delta(struct buf *b, int index, bool role, const char *text, size_t len,
                 const struct logprob_lists *lists, const char *finish);
void write_error(struct buf *b, const struct api_error *e); // {"error":{...}}
void write_usage(struct buf *b, const struct usage *u);
// {"id":…,"object":"text_completion","created":…,"model":…,"system_fingerprint":…,"choices":[
void write_head(struct buf *b, const char *id, const char *object, int64_t created, const char *model,
                const char *fingerprint);
// One choice. lists NULL: logprobs null. finish NULL: null.
void write_choice(struct buf *b, int index, const char *text, size_t len, const struct logprob_lists *lists,
                  const char *finish);
void write_model(struct buf *b, const char *id, int64_t created, int max_model_len);
const char *finish_name(enum finish_reason why);
