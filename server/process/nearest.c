#include "nearest.h"

#include <string.h>

enum { MAX_WORD = 64 };

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

// Optimal string alignment distance.
static size_t distance_of(const char *a, size_t na, const char *b, size_t nb) {
    size_t rows[3][MAX_WORD + 1];
    for (size_t j = 0; j <= nb; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *two_above = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            row[j] = least(above[j - 1] + (a[i - 1] != b[j - 1]), least(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], two_above[j - 2] + 1);
        }
    }
    return rows[na % 3][nb];
}

void nearest_try(struct nearest *n, const char *candidate) {
    size_t na = strlen(n->word), nb = strlen(candidate);
    if (na > MAX_WORD || nb > MAX_WORD)
        return;
    size_t d = distance_of(n->word, na, candidate, nb);
    if (d <= least(na / 3, 3) && (!n->best || d < n->distance)) {
        n->best = candidate;
        n->distance = d;
    }
}
