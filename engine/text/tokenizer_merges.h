// Merging by a list of merges (Sennrich, Haddow and Birch, "Neural Machine Translation of Rare Words with Subword
// Units", 2016): of all neighbours the pair of the lowest rank in the list is merged, the left-most of equals, until none
// is left.
#pragma once

#include "tokenizer_pieces.h"

// Writes the bytes of a token of this name to dst, which has room for the name, and returns how many; *sound: whether
// merging may make such a token.
typedef size_t merge_decode_fn(struct text_view name, char *dst, bool *sound);

// Reads tokenizer.ggml.merges into t->merges, once the pieces are there. false: l->err is set.
bool load_merges(struct vocab_loader *l, merge_decode_fn *decode);
// Merges *n symbols in place; *n: how many are left. n log n. STATUS_NOMEM only.
enum status merge_symbols(const struct tokenizer *t, token_id *ids, size_t *n);
