// The tokens of a vocabulary as a trie of their bytes, and the mask of those that a matcher's state allows.
//
// Most tokens are plain text: characters that may stand in a JSON string as they are. Where any run of them is allowed
// (which is asked of the grammar, not assumed), they are allowed together, and only the others are walked. Immutable
// once made.
#pragma once

#include "filter.h"
#include "matcher.h"

// Control tokens stand for themselves (token_code()); those that end a text are allowed where it may end.
const struct vocabulary *token_trie_vocabulary(const struct token_trie *t);
int token_trie_vocab(const struct token_trie *t);
bool token_trie_is_end(const struct token_trie *t, token_id id);
// The bytes of a token as a matcher takes them; len 0: one that no grammar takes.
const char *token_trie_bytes(const struct token_trie *t, token_id id, size_t *len);

// The tokens that may come next at a state, found in parts. Its work (matcher.h) is bounded, and depends on the grammar and
// the vocabulary alone.
enum { TRIE_DEPTH = 1024, MASK_WORK = 1 << 22 };
struct token_walk {
    int32_t state;
    int level;  // of plain tokens that are allowed together
    size_t at;  // nodes of the trie that are done
    bool limit; // a text met MATCHER_LIMIT, and counts as not allowed
    int32_t path[TRIE_DEPTH + 1];
};
// mask: (ceil(vocab / 32)), overwritten. The matcher forgets nothing, and has no other walk, until it is done.
void token_walk_begin(struct token_walk *w, const struct token_trie *t, struct matcher *m, int32_t state,
                      uint32_t *mask);
// Goes on for about so much work, which it takes off: MASK_MORE where nothing is left of it. MASK_LIMIT: beyond MASK_WORK, or
// nothing is left because of MATCHER_LIMIT.
enum mask_result token_walk_run(struct token_walk *w, const struct token_trie *t, struct matcher *m,
                                int64_t *work, uint32_t *mask);
