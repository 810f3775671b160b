// The flag or path that someone may have meant who wrote one that there is not.
#pragma once

#include <stddef.h>

// The word that is nearer so far; start with {.word = what was written}.
struct nearest {
    const char *word, *best; // best: NULL where none is near
    size_t distance;         // of best
};

// Takes a candidate where it is nearer than the others and near enough: a third of the word may be wrong, at
// most three letters. Letters inserted, left out, replaced, and neighbours swapped count one each. Borrows
// both.
void nearest_try(struct nearest *n, const char *candidate);
