// /v1/responses, OpenAI's Responses API: responses_parse.c its bodies, responses_input.c items to messages of a chat,
// responses_tools.c tools to functions, responses_write.c events and bodies. Pure; any thread.
#pragma once

#include "openai.h"

#define RESPONSES_PREFIX "resp_" // of ids

extern const struct dialect openai_responses, openai_compaction;

// How many tokens the prompt of a body has; as job_fn says (job.h).
bool responses_count(const struct served_model *m, const char *body, size_t len, struct buf *out,
                     char *ignored, struct api_error *e);

// ---- in

// Adds the messages of a chat that the items are to `messages`. What a model did in one turn (reasoning, text, calls)
// becomes one message. first: where the body's own items begin in the list; errors count from there.
bool responses_read_items(json_t *messages, const json_t *items, size_t first, struct api_error *e);
// Writes members of the response that repeat the request, each with a comma before it. root: the body.
void responses_repeat(struct buf *b, const struct completion_request *r, const json_t *root);

void responses_write_usage(struct buf *b, const struct usage *usage); // ,"usage":{…}
// A page of the items that led to the response `id`, of which `items` is a JSON list (responses_list.c). after: the id of
// an item; NULL: from the first, which is the last one where `newest_first`.
void responses_write_items(struct buf *b, const char *id, const struct buf *items, size_t limit,
                           bool newest_first, const char *after);

// ---- compaction (responses_compact.c): /v1/responses/compact has the model summarise a conversation. It gives back what the
// user said, and an item with the summary, which is no more encrypted than that: a later request has it in place of the rest.

// The messages of the user among items, a new list. NULL: no memory.
json_t *responses_users(const json_t *items);
// Asks for a summary behind the items, and leaves out of the body what does not concern it.
bool responses_ask_summary(json_t *root, json_t *items, struct api_error *e);
// The text of an item's summary, a new reference. NULL: another server's.
json_t *responses_summary(const json_t *item);
void responses_compaction_begin(struct response *r);
void responses_compaction(struct buf *b, const struct response *r, const struct piece *pieces,
                          const struct usage *usage);

// ---- tools (responses_tools.c)

// Whether a tool of that type runs on OpenAI's servers: here it is left out, and told.
bool responses_tool_is_hosted(const char *type);
// The tools of a chat (a new list), of those of a body, which may be NULL. NULL: e says why not. *foreign: in any case an
// object {NAME: {"name", "namespace"?, "item"?, "syntax"?, "definition"?}} of those that the client knows otherwise than as
// functions of that name, which the caller frees. item: the type of their calls' items.
json_t *responses_read_tools(const json_t *tools, const struct served_model *m, json_t **foreign,
                             struct api_error *e);
// Whether the texts of custom tools are not held to their grammars: the model may call, and does not mark its calls.
bool responses_grammar_is_loose(const struct served_model *m, const json_t *root);
// Puts `tool_choice` of chat, as a body has it, into the words of a chat.
bool responses_read_choice(json_t *chat, struct api_error *e);
// The member of an item of that type that says with what a tool is called: a string, of typed tools an object. NULL: it is
// no call.
const char *responses_call_member(const char *type);
// The call of a chat that such an item is, whose members are checked. NULL: no memory.
json_t *responses_call(const json_t *item, struct api_error *e);
// Writes that member of a typed tool's item, behind a comma; one that was cut says nothing.
void responses_write_typed(struct buf *b, const char *item, const struct buf *arguments);
// Turns the arguments of a custom tool's function into its input, which may be cut.
void responses_custom_input(struct buf *arguments);

// ---- out (responses_write.c)

void responses_begin(struct response *r);
void responses_end(struct response *r);
size_t responses_state_bytes(const struct response *r);
void responses_created(struct sse_queue *out, const struct response *r, const struct usage *usage);
void responses_piece(struct sse_queue *out, const struct response *r, const struct piece *p,
                     const struct usage *usage);
void responses_done(struct sse_queue *out, const struct response *r, const struct usage *usage);
void responses_fail(struct sse_queue *out, const struct response *r, const struct api_error *e);
void responses_whole(struct buf *b, const struct response *r, const struct piece *pieces,
                     const struct usage *usage);
void responses_snapshot(struct buf *b, const struct response *r, enum response_stage stage,
                        const struct usage *usage, const struct api_error *e);
// Makes the body of a response that was being made when the server ended that of one that has failed, and adds the event
// of that to those of its stream, where there are any.
void responses_ended(struct buf *body, struct buf *events);
