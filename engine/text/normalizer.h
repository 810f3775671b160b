// Normalisers: what is done to a text before it is cut into words.
#pragma once

#include "buf.h"
#include "models/model_file.h"

struct normalizer; // immutable once made

// Makes one of words: steps one after the other, each a name and its arguments, as tokenizer.quire.normalizer has them:
//   NFC, NFD, NFKC, NFKD          normalisation forms of Unicode
//   Lowercase                     character by character
//   StripAccents, StripMarks      without the nonspacing marks, without all marks
//   CleanText                     without control characters, white space as spaces
//   SpaceChinese                  spaces around Chinese characters
//   StripLeft, StripRight         without the white space at an end
//   Prepend TEXT                  before a text that is not empty
//   Replace TEXT BY               each occurrence
//   ReplaceRegex EXPRESSION BY    each match
//   Charsmap                      tokenizer.ggml.precompiled_charsmap, the longest match at each place
//   CharsmapClusters              the same as the tokenizers library has it: a grapheme cluster of less than 6 bytes becomes
//                                 what its shortest match becomes, others character by character
// NULL with err: STATUS_FORMAT, STATUS_NOMEM.
struct normalizer *normalizer_open(const struct model_file *f, const struct text_view *words, int num,
                                   struct err *err);
void normalizer_free(struct normalizer *n); // NULL is allowed

// Writes the normalised text to out, which is zeroed and becomes the caller's. Bytes that are no UTF-8 stay. Linear.
// STATUS_NOMEM; STATUS_LIMIT: it grows beyond measure.
enum status normalizer_apply(const struct normalizer *n, struct text_view text, struct buf *out);
