// Text to token ids and back.
//
// A tokenizer is immutable once made: any number of threads may use it at once. A detok belongs to one
// completion and one thread at a time.
#pragma once

#include "filter.h"
#include "status.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tokenizer;

enum {
    TOKENIZE_ADD_SPECIAL = 1,   // add BOS and EOS, CLS and SEP, as the model asks
    TOKENIZE_PARSE_SPECIAL = 2, // read the name of a control token, such as <s>, as that token
    TOKENIZE_CONTINUES = 4,     // other text came before
};

// Growing array of ids; start it zeroed, end it with token_buf_free().
struct token_buf {
    token_id *ids;
    size_t len, cap;
};
void token_buf_free(struct token_buf *b);

// Reads the tokenizer of a model file, which need not have tensors. NULL with err: STATUS_IO, STATUS_FORMAT
// (the message names the key that is missing or wrong, or the kind of tokenizer that is not supported).
struct tokenizer *tokenizer_open(const char *path, struct err *err);
void tokenizer_free(struct tokenizer *t); // NULL is allowed

// Appends the ids of text (any bytes, len of them, NULs included). Linear in len up to a logarithm.
// STATUS_NOMEM; STATUS_INVALID: the model has no vocabulary (and the text is not empty); STATUS_LIMIT: the vocabulary's
// normaliser makes the text too long.
enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, unsigned flags,
                             struct token_buf *out);

// Appends the ids of a pair of texts, with TOKENIZE_ADD_SPECIAL between and around them what the model was trained on
// ([CLS] a [SEP] b [SEP]). *second: out->len where the second text begins, for models that tell the two apart.
// STATUS_INVALID, too: the model's tokenizer.json says nothing of pairs that this interface can give.
enum status tokenizer_encode_pair(const struct tokenizer *t, const char *a, size_t a_len, const char *b,
                                  size_t b_len, unsigned flags, struct token_buf *out, size_t *second);

// The tokens that mark what stands before and behind a text that is to be filled in; -1: none. The order is prefix,
// suffix, middle, or suffix, prefix.
struct fim_tokens {
    token_id prefix, suffix, middle; // middle: -1 if and only if suffix_first
    token_id repo, file;             // before the names of a repository and of a file
    bool suffix_first;
};
// NULL: the model does not fill in the middle. Owned by the tokenizer.
const struct fim_tokens *tokenizer_fim(const struct tokenizer *t);

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
// Bytes of the longest name or text of a token, at least 1: bounds how few tokens a text can be.
size_t tokenizer_max_bytes(const struct tokenizer *t);
struct vocabulary tokenizer_vocabulary(const struct tokenizer *t); // for filters; the tokenizer outlives it
const char *tokenizer_chat_template(const struct tokenizer *t, size_t *len); // NULL: the model has none
// The one named tool_use, for conversations with tools; NULL: the model has none.
const char *tokenizer_tool_template(const struct tokenizer *t, size_t *len);

// ---- incremental text

enum { DETOK_MAX_STOPS = 32, DETOK_MAX_STOP_LEN = 1024 };

// The decoder of one completion: push tokens, take text. The text is valid UTF-8 at every call: the decoder
// holds back an unfinished sequence of up to three bytes, and replaces an invalid one by U+FFFD. It holds back
// text that may begin a stop string until that is decided; a stop string and all after it never come out. The
// text does not depend on how the tokens are split into calls.
struct detok;

struct detok_params {
    const struct tokenizer *tokenizer; // outlives the detok
    bool skip_special;                 // control tokens give no text (the default of APIs)
    const token_id *shown;             // (num_shown) but these give their names; outlives the detok
    int num_shown;
    // The text begins a sequence (the prompt is BOS alone): drop SentencePiece's dummy space.
    bool strip_space;
    const char *const *stops; // (num_stops) byte strings, copied
    const size_t *stop_lens;
    int num_stops;  // <= DETOK_MAX_STOPS
    int min_tokens; // a stop string that one of the first min_tokens completes is text like any other
    bool keep_stop; // the stop string that ends the text is part of it
};

struct detok *detok_new(const struct detok_params *p); // NULL: out of memory
void detok_free(struct detok *d);
// Whether the next byte is dropped if it is a space: asked for, the tokenizer adds one, and nothing came yet.
bool detok_strips_space(const struct detok *d);

// Adds one token. *text and *len: the text that is now certain, valid until the next call on d; may be empty.
// Returns true when a stop string has been completed: the text before it, or through it with keep_stop, has come
// out, and nothing more will.
bool detok_push(struct detok *d, token_id id, const char **text, size_t *len);
// Ends the completion: gives the text held back (an unfinished sequence as U+FFFD).
void detok_finish(struct detok *d, const char **text, size_t *len);
// Which stop string was completed, -1: none.
int detok_stop_index(const struct detok *d);

#ifdef __cplusplus
}
#endif
