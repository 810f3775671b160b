#include "step_wire.h"

#include "request.h"

#include <string.h>

struct wire {
    int32_t num_tokens, num_seqs, num_decode, num_rows, max_query_len, max_context_len, num_edits, num_masks;
    int32_t num_blocks; // entries of block_ids
    int32_t has_masks, has_adapter, zero;
    uint64_t seq;
    uint64_t bytes; // of all
};

struct parts {
    int32_t *ids, *positions;
    int64_t *slots;
    int32_t *query_start, *context_len, *block_start, *block_ids;
    struct head_row *rows;
    struct logit_edit *edits;
    const uint32_t **masks; // on the way: 1 + number of the mask, or 0
    uint32_t *mask_bits;    // (num_masks, words)
    int32_t *adapter;
};

static size_t words(int vocab) { return ((size_t)vocab + 31) / 32; }

// Every part begins at a multiple of 64. base NULL: only measures. Returns the bytes.
static size_t lay_out(const struct wire *w, int vocab, unsigned char *base, struct parts *p) {
    size_t T = (size_t)w->num_tokens, S = (size_t)w->num_seqs, R = (size_t)w->num_rows, at = 0;
    at = (sizeof *w + 63) & ~(size_t)63;
#define PART(field, count)                                                                                   \
    p->field = base ? (void *)(base + at) : NULL;                                                            \
    at = (at + (count) * sizeof *p->field + 63) & ~(size_t)63
    PART(ids, T);
    PART(positions, T);
    PART(slots, T);
    PART(query_start, S + 1);
    PART(context_len, S);
    PART(block_start, S + 1);
    PART(block_ids, (size_t)w->num_blocks);
    PART(rows, R);
    PART(edits, (size_t)w->num_edits);
    PART(masks, w->has_masks ? R : 0);
    PART(mask_bits, (size_t)w->num_masks * words(vocab));
    PART(adapter, w->has_adapter ? T : 0);
#undef PART
    return at;
}

size_t step_wire_most(const struct step_limits *l, int vocab, int block_size, size_t max_edits) {
    struct parts p;
    struct wire w = {.num_tokens = l->max_tokens,
                     .num_seqs = l->max_seqs,
                     .num_rows = l->max_rows,
                     .num_edits = (int32_t)max_edits,
                     .num_masks = l->max_seqs,
                     .num_blocks = l->max_seqs * ((l->max_context + block_size - 1) / block_size),
                     .has_masks = 1,
                     .has_adapter = 1};
    return lay_out(&w, vocab, NULL, &p);
}

size_t step_wire_write(void *dst, const struct step *s, int vocab) {
    struct wire w = {.num_tokens = s->num_tokens,
                     .num_seqs = s->num_seqs,
                     .num_decode = s->num_decode,
                     .num_rows = s->num_rows,
                     .max_query_len = s->max_query_len,
                     .max_context_len = s->max_context_len,
                     .num_edits = s->num_edits,
                     .num_blocks = s->block_start[s->num_seqs],
                     .has_masks = s->masks != NULL,
                     .has_adapter = s->adapter != NULL,
                     .seq = s->seq};
    struct parts p;
    for (int i = 0; s->masks && i < s->num_rows; i++)
        w.num_masks += s->masks[i] != NULL;
    w.bytes = lay_out(&w, vocab, dst, &p);
    memcpy(dst, &w, sizeof w);
#define COPY(to, from, count)                                                                                \
    if ((count) > 0)                                                                                         \
    memcpy((void *)(to), (from), (size_t)(count) * sizeof *(to))
    COPY(p.ids, s->ids, s->num_tokens);
    COPY(p.positions, s->positions, s->num_tokens);
    COPY(p.slots, s->slots, s->num_tokens);
    COPY(p.query_start, s->query_start, s->num_seqs + 1);
    COPY(p.context_len, s->context_len, s->num_seqs);
    COPY(p.block_start, s->block_start, s->num_seqs + 1);
    COPY(p.block_ids, s->block_ids, w.num_blocks);
    COPY(p.rows, s->rows, s->num_rows);
    COPY(p.edits, s->edits, s->num_edits);
    COPY(p.adapter, s->adapter, s->adapter ? s->num_tokens : 0);
    for (int i = 0, n = 0; s->masks && i < s->num_rows; i++) {
        uintptr_t number = 0;
        if (s->masks[i]) {
            COPY(p.mask_bits + (size_t)n * words(vocab), s->masks[i], words(vocab));
            number = (uintptr_t)++n;
        }
        memcpy((void *)&p.masks[i], &number, sizeof number);
    }
#undef COPY
    return (size_t)w.bytes;
}

static bool is_within(int32_t n, int32_t max) { return n >= 0 && n <= max; }

// Starts of S parts of n entries: they begin at 0, do not run backwards and end at n.
static bool are_starts(const int32_t *starts, int S, int32_t n) {
    bool ok = starts[0] == 0 && starts[S] == n;
    for (int s = 0; s < S; s++)
        ok &= starts[s] <= starts[s + 1];
    return ok;
}

// Whether what kernels take as indices lies within what they index; kernels do not look.
static bool is_sound(const struct wire *w, const struct parts *p, const struct step_limits *l, int vocab,
                     int block_size) {
    int S = w->num_seqs, T = w->num_tokens;
    if (!is_within(p->query_start[S], T) || !are_starts(p->query_start, S, p->query_start[S]) ||
        !are_starts(p->block_start, S, w->num_blocks) || !is_within(w->max_query_len, T) ||
        !is_within(w->max_context_len, l->max_context))
        return false;
    bool ok = true;
    for (int s = 0; s < S; s++) {
        int rows = p->query_start[s + 1] - p->query_start[s];
        ok &= rows <= w->max_query_len && (s >= w->num_decode || rows == 1);
        int64_t room = (int64_t)(p->block_start[s + 1] - p->block_start[s]) * block_size;
        int first = p->context_len[s] - rows; // what a sequence computes is the end of what it then has
        ok &= first >= 0 && p->context_len[s] <= w->max_context_len && p->context_len[s] <= room;
        for (int i = 0; i < rows; i++)
            ok &= p->positions[p->query_start[s] + i] == first + i;
    }
    for (int t = 0; t < T; t++) {
        ok &= p->slots[t] >= -1 && p->slots[t] < (int64_t)l->num_blocks * block_size;
        ok &=
            p->ids[t] < vocab && p->ids[t] >= -l->max_rows && is_within(p->positions[t], l->max_context - 1);
    }
    for (int b = 0; b < w->num_blocks; b++)
        ok &= is_within(p->block_ids[b], l->num_blocks - 1);
    for (int r = 0; r < w->num_rows; r++) {
        const struct head_row *row = &p->rows[r];
        ok &= is_within(row->row, T - 1) && row->target < vocab && row->num_logprobs <= MAX_TOP_LOGPROBS &&
              is_within(row->edit_end, w->num_edits) && is_within(row->edit_start, row->edit_end);
    }
    for (int e = 0; e < w->num_edits; e++)
        ok &= is_within(p->edits[e].token, vocab - 1);
    return ok;
}

enum status step_wire_read(void *src, size_t bytes, const struct step_limits *l, int vocab, int block_size,
                           struct step *step, struct err *err) {
    struct wire w;
    struct parts p;
    if (bytes < sizeof w)
        return err_set(err, STATUS_DEVICE, "a step of %zu bytes", bytes);
    memcpy(&w, src, sizeof w);
    if (!is_within(w.num_tokens, l->max_tokens) || !is_within(w.num_seqs, l->max_seqs) ||
        !is_within(w.num_decode, w.num_seqs) || !is_within(w.num_rows, l->max_rows) || w.num_edits < 0 ||
        !is_within(w.num_masks, w.num_rows) || w.num_blocks < 0 || w.bytes != bytes ||
        lay_out(&w, vocab, src, &p) != bytes)
        return err_set(err, STATUS_DEVICE, "a step of %d tokens in %zu bytes is not within the limits",
                       w.num_tokens, bytes);
    if (!is_sound(&w, &p, l, vocab, block_size))
        return err_set(err, STATUS_DEVICE, "a step of %d tokens points outside of itself or the cache",
                       w.num_tokens);
    for (int i = 0; w.has_masks && i < w.num_rows; i++) {
        uintptr_t number;
        memcpy(&number, (const void *)&p.masks[i], sizeof number);
        if (number > (uintptr_t)w.num_masks)
            return err_set(err, STATUS_DEVICE, "a step names mask %zu of %d", (size_t)number, w.num_masks);
        p.masks[i] = number ? p.mask_bits + (number - 1) * words(vocab) : NULL;
    }
    *step = (struct step){
        .packed = src,
        .packed_bytes = bytes,
        .num_tokens = w.num_tokens,
        .num_seqs = w.num_seqs,
        .num_decode = w.num_decode,
        .num_rows = w.num_rows,
        .max_query_len = w.max_query_len,
        .max_context_len = w.max_context_len,
        .num_edits = w.num_edits,
        .seq = w.seq,
        .ids = p.ids,
        .positions = p.positions,
        .slots = p.slots,
        .query_start = p.query_start,
        .context_len = p.context_len,
        .block_start = p.block_start,
        .block_ids = p.block_ids,
        .rows = p.rows,
        .edits = p.edits,
        .masks = w.has_masks ? p.masks : NULL,
        .adapter = w.has_adapter ? p.adapter : NULL,
    };
    return STATUS_OK;
}
