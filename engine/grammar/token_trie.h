// The tokens of a vocabulary as a trie of their bytes, and the mask of those that a matcher's state allows.
//
// Most tokens are plain text: characters that may stand in a JSON string as they are. Where any run of them is allowed
// (which is asked of the grammar, not assumed), they are allowed together, and only the others are walked. Immutable
// once made.
#pragma once

#include "matcher.h"

// Control tokens stand for themselves (token_code()); those that end a text are allowed where it may end.
const struct tokenizer *token_trie_tokenizer(const struct token_trie *t);
int token_trie_vocab(const struct token_trie *t);
bool token_trie_is_end(const struct token_trie *t, token_id id);
// The bytes of a token as a matcher takes them; len 0: one that no grammar takes.
const char *token_trie_bytes(const struct token_trie *t, token_id id, size_t *len);

// Sets the bits of the tokens that may come next; mask: (ceil(vocab / 32)), overwritten. level: the state's note, 0 at
// first, kept by the caller: which plain tokens are known to be allowed together.
void token_trie_mask(const struct token_trie *t, struct matcher *m, int32_t state, int32_t *level,
                     uint32_t *mask);
