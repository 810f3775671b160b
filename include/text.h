// Text assembly: what a chat template rendered to the ids that the model reads, and stop strings in what it writes.
#pragma once

#include "request.h"
#include "tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

struct chat_segment; // of lib/jinja

// Appends the ids of n segments, as one sequence with one BOS where the model asks for it. Names of control
// tokens become these tokens in the template's own segments only, never in a client's. The text between two
// of them is one text, of the template or of a client, so that a benign conversation gives the ids of its whole text read
// with special tokens on. STATUS_NOMEM, STATUS_INVALID as tokenizer_encode(); out then holds a part. Any thread.
enum status text_encode(const struct tokenizer *t, const struct chat_segment *segments, size_t n,
                        struct token_buf *out);

// Finds p's stop strings in the text of the tokens it is given, as a detok of p does. NULL: out of memory.
struct stop_matcher *stop_matcher_new(const struct detok_params *p);
void stop_matcher_free(struct stop_matcher *m); // one that no request took; NULL is allowed

#ifdef __cplusplus
}
#endif
