// Pre-tokenizers: how a text is cut into words before byte-level merging, which never crosses a cut.
#pragma once

#include "models/model_file.h"

#include <stdbool.h>

// Immutable once made, like the tokenizer that owns it.
struct pretokenizer;

// The one that tokenizer.ggml.pre of g names. NULL with err: STATUS_FORMAT (one that is not supported, by
// name; a build without PCRE2), STATUS_NOMEM.
struct pretokenizer *pretokenizer_open(const struct model_file *f, struct err *err);
void pretokenizer_free(struct pretokenizer *p); // NULL is allowed

bool pretokenizer_adds_bos(const struct pretokenizer *p);       // where the file does not say
bool pretokenizer_ignores_merges(const struct pretokenizer *p); // a word that is a token is taken whole

// Called for each word in order. Words are never empty; together they are the text (normalised, where the
// model asks for it). A status other than STATUS_OK ends the cutting and is returned.
typedef enum status word_fn(void *arg, const char *word, size_t len);
enum status pretokenizer_cut(const struct pretokenizer *p, const char *text, size_t len, word_fn *fn,
                             void *arg);
