// Text to token ids and back.
//
// A tokenizer is immutable once made: any number of threads may use it at once. A detok belongs to one
// stream.
#pragma once

#include "kv_cache.h" // token_id
#include "status.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tokenizer;

enum {
    TOKENIZE_ADD_SPECIAL = 1,
    TOKENIZE_PARSE_SPECIAL = 2
}; // add BOS/EOS as the model asks; read <s> as a token

// Growing array of ids; start it zeroed, end it with token_buf_free().
struct token_buf {
    token_id *ids;
    size_t len, cap;
};
void token_buf_free(struct token_buf *b);

// Reads the tokenizer of a .gguf file, which need not have any tensors. NULL with err: STATUS_IO,
// STATUS_FORMAT (what the file lacks or has wrong, or the kind of tokenizer that is not supported, by name).
struct tokenizer *tokenizer_open(const char *path, struct err *err);
void tokenizer_free(struct tokenizer *t); // NULL is allowed

// Appends the ids of text (any bytes, len of them, NULs included). Linear in len up to a logarithm.
// STATUS_NOMEM only.
enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, unsigned flags,
                             struct token_buf *out);

int tokenizer_vocab(const struct tokenizer *t);
token_id tokenizer_bos(const struct tokenizer *t); // -1: none
token_id tokenizer_eos(const struct tokenizer *t); // -1: none
bool tokenizer_adds_bos(const struct tokenizer *t);
bool tokenizer_is_end(const struct tokenizer *t, token_id id); // end of text, of turn, …: stops generation
bool tokenizer_is_special(const struct tokenizer *t, token_id id); // control tokens; they give no text
// Lists the tokens for which tokenizer_is_end() holds; returns how many, at most max.
int tokenizer_ends(const struct tokenizer *t, token_id *ids, int max);
// The name of a token as the vocabulary spells it. Owned by the tokenizer, not NUL-terminated.
const char *tokenizer_name(const struct tokenizer *t, token_id id, size_t *len);
// The raw bytes that a token adds to a text (a byte token: one byte; `▁`: a space; a control token: none, or
// its name where special is true). Owned by the tokenizer. id out of range: empty.
const char *tokenizer_bytes(const struct tokenizer *t, token_id id, bool special, size_t *len);
const char *tokenizer_chat_template(const struct tokenizer *t, size_t *len); // NULL: the model has none

// ---- incremental text
// -------------------------------------------------------------------------------------------

enum { DETOK_MAX_STOPS = 32, DETOK_MAX_STOP_LEN = 1024 };

// One stream's decoder. Feed tokens; take text out. The text is valid UTF-8 at every call: an unfinished
// sequence of up to three bytes is held back, an invalid one becomes U+FFFD. Text that might be the beginning
// of a stop string is held back until it is decided; a stop string and what follows it never come out. Any
// split of the same tokens into calls gives the same text.
struct detok;

struct detok_params {
    const struct tokenizer *tokenizer; // outlives the detok
    bool skip_special;                 // control tokens give no text (the default of APIs)
    bool strip_space; // the text begins a sequence (the prompt was nothing but BOS): drop SentencePiece's
                      // dummy space
    const char *const *stops; // (num_stops) byte strings, copied
    const size_t *stop_lens;
    int num_stops; // <= DETOK_MAX_STOPS
};

struct detok *detok_new(const struct detok_params *p); // NULL: out of memory
void detok_free(struct detok *d);
// Whether the next byte is dropped if it is a space: asked for, the tokenizer adds one, and nothing came yet.
bool detok_strips_space(const struct detok *d);

// Adds one token. *text and *len: the text that is now certain, valid until the next call on d; may be empty.
// Returns true when a stop string has been completed: the text before it has come out, and nothing more will.
bool detok_push(struct detok *d, token_id id, const char **text, size_t *len);
// Ends the stream: gives what was held back (an unfinished sequence as U+FFFD).
void detok_finish(struct detok *d, const char **text, size_t *len);
// Which stop string was completed, -1: none.
int detok_stop_index(const struct detok *d);

#ifdef __cplusplus
}
#endif
