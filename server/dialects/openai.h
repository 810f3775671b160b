// OpenAI's APIs: /v1/completions (openai_completions.c), /v1/chat/completions (openai_chat.c) and /v1/embeddings
// (openai_embeddings.c), with the fields and the JSON that they share (openai_parse.c, openai_write.c).
#pragma once

#include "api/dialect.h"
#include "api/field_table.h"

extern const struct api_form openai_form;
extern const struct dialect openai_completions, openai_chat;
extern const struct vector_dialect openai_embeddings;
extern const struct vector_dialect cohere_rerank, vllm_score;  // rerank.c
extern const struct decision_dialect systemone, vllm_classify; // systemone.c

// ---- in

// The names and fields that one of the APIs has besides the shared ones.
struct openai_api {
    struct field_names names;
    const struct field *fields; // into struct completion_request
    int num_fields;
    const struct field *own_fields; // into the API's own struct
    int num_own_fields;
};

struct completion_request openai_defaults(const struct served_model *m);
// Reads the model's name and the fields of the tables, and refuses what is not supported. Other names of fields
// get their own in root.
bool openai_read_fields(struct completion_request *r, const struct served_model *m, json_t *root,
                        const struct openai_api *api, void *own, struct api_error *e);
bool openai_check_priority(const struct api_request *r, const struct served_model *m, struct api_error *e);
// Reads cache_salt, request_id and user.
bool openai_read_labels(struct api_request *r, const json_t *root, struct api_error *e);
// Reads one or at most `most` prompts, texts or lists of ids, from the field `name`; with a suffix, a string, those of
// what stands between the texts and it.
bool openai_read_prompts(struct completion_request *r, const struct served_model *m, const json_t *root,
                         const char *name, size_t most, const json_t *suffix, struct api_error *e);
// Reads the other shared fields: stops, bias, stream_options and the like.
bool openai_read_options(struct completion_request *r, const struct served_model *m, json_t *root,
                         struct api_error *e);
// Whether a prompt of len tokens leaves room for a completion, where max_tokens are wanted at all.
bool openai_check_room(const struct served_model *m, int max_tokens, size_t len, const char *param,
                       struct api_error *e);
// Completes r where ok, frees it otherwise; either way r->base.ignored is set. Frees root. Returns ok, or false where
// fields would be ignored and the server is strict.
bool openai_parse_end(struct completion_request *r, const struct served_model *m, json_t *root,
                      const struct openai_api *api, bool ok, struct api_error *e);

// Reads a chat from an object with the fields of /v1/chat/completions: what parse() of other APIs does once they are in
// its words. *r needs freeing, also on failure. Leaves root, which may change, to the caller. foreign: r->foreign_tools.
bool openai_chat_read(struct completion_request *r, const struct served_model *m, json_t *root,
                      json_t *foreign, struct api_error *e);
// Checks a function that may be called: its name, parameters and strict.
bool chat_check_function(const json_t *function, const char *param, struct api_error *e);
// Puts `functions` and `function_call`, and the messages beside them, into the words of tools; whether there are *any
// (openai_functions.c).
bool chat_read_functions(json_t *root, bool *any, struct api_error *e);
void chat_name_functions(struct api_error *e); // an error of such tools speaks of functions
// Reads tools and tool_choice of a chat (openai_tools.c).
bool chat_read_tools(struct completion_request *r, const struct served_model *m, const json_t *root,
                     struct api_error *e);

// How many tokens the prompt of a chat completion with this body has (llama-server's count), and that prompt as text
// (its /apply-template). Both as job_fn says (job.h), and refuse what the completion would, but for a prompt that does
// not fit.
bool openai_count_response(const struct served_model *m, const char *body, size_t len, struct buf *out,
                           char *ignored, struct api_error *e);
bool openai_template_response(const struct served_model *m, const char *body, size_t len, struct buf *out,
                              char *ignored, struct api_error *e);

// Reads the prompts of a body's object into r.
typedef bool read_prompts_fn(struct completion_request *r, const struct served_model *m, const json_t *root,
                             struct api_error *e);
// parse() of /v1/completions from a body's object, which it frees; NULL: e says why there is none. A request
// that does not say how many tokens it wants gets at most max_tokens.
bool openai_completions_read(struct completion_request *r, const struct served_model *m, json_t *root,
                             read_prompts_fn *prompts, int max_tokens, struct api_error *e);

// parse() of /v1/embeddings from a body's object, which it frees; NULL: e says why there is none.
bool openai_embeddings_read(struct vector_request *r, const struct served_model *m, json_t *root,
                            struct api_error *e);
// Reads what all requests for vectors have: the model, labels, and the fields of a table into r; refuses names. And
// openai_parse_end() for them.
bool vectors_read_shared(struct vector_request *r, const struct served_model *m, const json_t *root,
                         const struct field *fields, int num_fields, const struct field_names *names,
                         struct api_error *e);
bool vectors_parse_end(struct vector_request *r, const struct served_model *m, json_t *root,
                       const struct field_names *names, bool ok, struct api_error *e);

// ---- out

// The text of a token; a control token's name.
const char *openai_token_text(const struct tokenizer *t, token_id id, size_t *len);
// The name of a token in log-probabilities: its text, or token_id:N where the request asks for that.
struct token_label {
    const char *text; // (len) the tokenizer's, or id
    size_t len;
    char id[24];
};
void openai_label(struct token_label *l, const struct response *r, token_id id);
void openai_write_error(struct buf *b, const struct api_error *e); // {"error":{...}}
void openai_write_timings(struct buf *b, const struct timings *t); // ,"timings":{…}
void openai_write_count(struct buf *b, size_t tokens);             // of a prompt
void openai_write_usage(struct buf *b, const struct usage *u);
// {"id":"ID","object":"OBJECT","created":…,"model":…,"system_fingerprint":…,"choices":[
void openai_write_head(struct response *r, const char *object);
// ,"finish_reason":…,"stop_reason":…
void openai_write_finish(struct buf *b, const struct response *r, const struct piece *p);
// ,"prompt_logprobs":[…]; NULL: nothing
void openai_write_prompt_logprobs(struct buf *b, const struct buf *list);
// parent: what the adapter `id` is for; NULL: it is a model.
void openai_write_model(struct buf *b, const char *id, const char *parent, int64_t created,
                        const struct served_model *m);
// ,"pooling":…, of a model that gives vectors or scores
void openai_write_pooling(struct buf *b, const struct served_model *m);

// A chunk of a stream: begin, the choice, end, which writes the ids of `prompt` where it is not NULL. Before the first
// token the timings say nothing: they are not `timed`.
struct buf *openai_chunk_begin(struct sse_queue *out, const struct response *r);
void openai_chunk_end(struct sse_queue *out, const struct response *r, const struct token_buf *prompt,
                      const struct usage *usage, bool timed);
// ,"prompt_token_ids":[…] and ,"token_ids":[…]; NULL: nothing
void openai_write_prompt_ids(struct buf *b, const struct token_buf *prompt);
void openai_write_ids(struct buf *b, const struct buf *ids);
// ,"usage":{…}}
void openai_body_end(struct buf *b, const struct response *r, const struct usage *usage);
// The id of a call, quoted: the model's, else one that no other call has.
void chat_write_call_id(struct buf *b, const struct response *r, int index, const struct output_part *part,
                        const char *text);
// The same with another beginning than `call_`, of at most 7 bytes.
void chat_write_call_id_as(struct buf *b, const struct response *r, int index, const struct output_part *part,
                           const char *text, const char *prefix);
// The members of a delta for a part of the output, of choice `index`; and from the value of "content" on those of a whole
// message.
void chat_write_part(struct buf *b, const struct response *r, int index, const struct output_part *part,
                     const char *text);
void chat_write_output(struct buf *b, const struct response *r, const struct piece *p);
// Arguments as an object, {} where the output ended within them.
void chat_write_arguments(struct buf *b, const char *text, size_t len);
// Writes the first `dimensions` elements of an input's vector, of length 1 where the request says so; one of zeros
// stays so.
void openai_write_vector(struct buf *b, const struct vector_response *r, size_t input);
// Adds a token to `tops`, as an object of a list.
void openai_chat_logprob(struct logprob_lists *l, const struct response *r, const struct service_event *ev,
                         int64_t offset);
// These serve both dialects.
void openai_done(struct sse_queue *out, const struct response *r, const struct usage *usage);
void openai_fail(struct sse_queue *out, const struct response *r, const struct api_error *e);
void openai_prompt_logprob(struct buf *b, const struct response *r, const struct service_event *ev);
