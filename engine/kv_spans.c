// The spans of a sequence: where they are, what the paged cache calls their rows, and what rows rotate by. Pure.
#include "kv_cache.h"

int kv_find_span(const struct kv_span *spans, int n, int position) {
    int low = 0, high = n;
    while (low < high) {
        int at = low + (high - low) / 2;
        if (spans[at].first + spans[at].len > position)
            high = at;
        else
            low = at + 1;
    }
    return low;
}

// Row r of a span is called by part r % 4 of the hash.
static token_id name_of(const struct kv_span *span, int row) {
    uint64_t half = row & 2 ? span->hash.hi : span->hash.lo;
    return (token_id)(0x80000000u | (uint32_t)(row & 1 ? half >> 32 : half));
}

void kv_seq_names(const struct kv_seq *seq, const token_id *tokens, int first, int n, token_id *names) {
    int s = kv_find_span(seq->spans, seq->num_spans, first);
    for (int i = 0; i < n; i++) {
        const struct kv_span *span = s < seq->num_spans ? &seq->spans[s] : NULL;
        int row = span ? first + i - span->first : -1;
        names[i] = row >= 0 ? name_of(span, row) : tokens[first + i];
        s += span && row + 1 == span->len;
    }
}

// How much further text behind a span is than text before it: the largest position in it, and one.
static int extent_of(const struct kv_span *span) {
    int most = span->grid[0] > 0 ? 0 : span->len;
    for (int a = 0; a < 3; a++)
        most = span->grid[a] > most ? span->grid[a] : most;
    return most;
}

bool kv_seq_rope_positions(const struct kv_seq *seq, int first, int n, int32_t *positions, size_t stride) {
    int s = kv_find_span(seq->spans, seq->num_spans, first);
    int back = 0; // by how much text lies before its position
    bool differ = false;
    for (int i = 0; i < s; i++)
        back += seq->spans[i].len - extent_of(&seq->spans[i]);
    for (int i = 0; i < n; i++) {
        const struct kv_span *span = s < seq->num_spans ? &seq->spans[s] : NULL;
        int at = first + i, row = span ? at - span->first : -1, cell[3] = {0};
        if (row >= 0 && span->grid[0] > 0) {
            int columns = span->grid[2], plane = span->grid[1] * columns;
            at = span->first;
            cell[0] = row / plane, cell[1] = row % plane / columns, cell[2] = row % columns;
        }
        for (size_t a = 0; a < 3; a++) {
            positions[a * stride + (size_t)i] = at - back + cell[a];
            differ |= at - back + cell[a] != first + i;
        }
        if (span && row + 1 == span->len) {
            back += span->len - extent_of(span);
            s++;
        }
    }
    return differ;
}
