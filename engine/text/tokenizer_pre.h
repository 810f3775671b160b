// Pre-tokenizers: how a text is cut into words, which merging never crosses.
#pragma once

#include "models/model_file.h"

#include <stdbool.h>

// Immutable once made, like the tokenizer that owns it.
struct pretokenizer;

enum { PRE_MAX_WORDS = 128 };

// The one that tokenizer.quire.cuts of f spells, or that tokenizer.ggml.pre names. NULL with err: STATUS_FORMAT (one that
// is not supported, by name; a build without PCRE2), STATUS_NOMEM.
struct pretokenizer *pretokenizer_open(const struct model_file *f, struct err *err);
// The one that words spell: steps one after the other, each cutting what the ones before it left.
//   Split BEHAVIOR EXPRESSION   as the tokenizers library has it; Kept is Removed, inverted
//   SpaceBefore                 a space before what does not begin with one
//   Metaspace PREFIX            spaces as U+2581; one before what does not begin with one: never, always, or first where
//                               nothing came before it
//   ByteDigits                  runs of numbers, and of others, among the characters that stand for bytes
//   ByteThrees                  three digits each, from the left
// Behind the last two there is nothing but these: they cut inside characters.
struct pretokenizer *pretokenizer_of(const struct model_file *f, const struct text_view *words, int num,
                                     struct err *err);
void pretokenizer_free(struct pretokenizer *p); // NULL is allowed

// The words of a key, at most PRE_MAX_WORDS of them; returns how many, 0: no such key, -1: err is set.
int pretokenizer_words(const struct model_file *f, const char *key, struct text_view *words, struct err *err);

bool pretokenizer_adds_bos(const struct pretokenizer *p);       // where the file does not say
bool pretokenizer_wants_nfc(const struct pretokenizer *p);      // likewise: normalisation form C
bool pretokenizer_ignores_merges(const struct pretokenizer *p); // a word that is a token is taken whole

// Called for each word in order; words are never empty. A status other than STATUS_OK ends the cutting and is returned.
typedef enum status word_fn(void *arg, const char *word, size_t len);
// first: nothing came before the text.
enum status pretokenizer_cut(const struct pretokenizer *p, const char *text, size_t len, bool first,
                             word_fn *fn, void *arg);
