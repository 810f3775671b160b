// The pieces of a vocabulary: the tokens that merging may make, in a hash table from their bytes to their
// ids.
#pragma once

#include "tokenizer_kind.h"

// Indexes the tokens marked TOKEN_PIECE. false with l->err: out of memory, or two have the same bytes.
bool load_pieces(struct vocab_loader *l);
token_id find_piece(const struct tokenizer *t, const char *bytes, size_t len); // -1: none
// Lists in t->names the tokens that a search by name may find: not special ones (a user's text must not forge them).
// false with l->err: out of memory.
bool load_names(struct vocab_loader *l);
// Writes a name with its U+2581 as spaces to dst, which has room for the name; returns how many bytes.
size_t spaced_bytes(struct text_view name, char *dst);
