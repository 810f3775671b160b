// SentencePiece's precompiled character map: a trie of byte strings, each with what stands in its place. The map comes
// from a model's file and is hostile until proved otherwise.
#pragma once

#include "models/model_file.h"

struct charsmap;

// bytes: the length of the trie in four bytes, the trie (a double array of 32-bit units), texts that end with NUL. All
// little-endian. Copied. NULL with err: STATUS_FORMAT, STATUS_NOMEM.
struct charsmap *charsmap_open(struct text_view bytes, const struct model_file *f, struct err *err);
void charsmap_free(struct charsmap *m); // NULL is allowed

// Finds the longest string that text begins with, or else the shortest; returns its bytes, 0: none. *to: what stands in
// its place, owned by the map.
size_t charsmap_find(const struct charsmap *m, struct text_view text, bool longest, struct text_view *to);
