#include "step_wire.h"

#include "step_layout.h"

#include <string.h>

// The message: this header, then the arrays as step_layout() places them.
struct wire {
    struct step_counts counts;
    int32_t num_decode, max_query_len, max_context_len, zero;
    uint64_t seq;
    uint64_t bytes; // of all
};

size_t step_wire_max_bytes(const struct step_limits *l, const struct model_config *model, int block_size,
                           size_t max_entries) {
    struct step_arrays arrays;
    struct step_counts c = {.tokens = l->max_tokens,
                            .seqs = l->max_seqs,
                            .rows = l->max_rows,
                            .entries = (int)max_entries,
                            .moves = l->num_blocks + l->num_host_pages, // a page is the target of one move
                            .masks = l->max_rows,
                            .has_masks = true,
                            .has_types = l->has_types,
                            .has_axes = l->has_axes,
                            .embeds = l->embed_size > 0 ? l->max_tokens : 0,
                            .embed_size = l->embed_size,
                            .groups = model->num_groups};
    for (int g = 0; g < c.groups; g++)
        c.blocks[g] = l->max_seqs * ((l->max_context + block_size - 1) / block_size);
    return step_layout(&c, model->vocab, sizeof(struct wire), NULL, &arrays);
}

size_t step_wire_write(void *dst, const struct step *s, const struct model_config *model) {
    struct wire w = {.counts = {.tokens = s->num_tokens,
                                .seqs = s->num_seqs,
                                .rows = s->num_rows,
                                .entries = s->num_entries,
                                .moves = s->num_moves,
                                .has_masks = s->masks != NULL,
                                .has_types = s->types != NULL,
                                .has_axes = s->rope_positions != NULL,
                                .embeds = s->num_embeds,
                                .embed_size = s->num_embeds > 0 ? model->hidden : 0,
                                .groups = s->num_groups},
                     .num_decode = s->num_decode,
                     .max_query_len = s->max_query_len,
                     .max_context_len = s->max_context_len,
                     .seq = s->seq};
    struct step_arrays a;
    size_t words = step_mask_words(model->vocab);
    for (int g = 0; g < s->num_groups; g++)
        w.counts.blocks[g] = s->groups[g].block_start[s->num_seqs];
    if (s->masks_wait)
        s->masks_wait(s->masks_arg);
    for (int i = 0; s->masks && i < s->num_rows; i++)
        w.counts.masks += s->masks[i] != NULL;
    w.bytes = step_layout(&w.counts, model->vocab, sizeof w, dst, &a);
    memcpy(dst, &w, sizeof w);
#define COPY(to, from, count)                                                                                \
    if ((count) > 0)                                                                                         \
    memcpy((void *)(to), (from), (size_t)(count) * sizeof *(to))
    COPY(a.ids, s->ids, s->num_tokens);
    COPY(a.positions, s->positions, s->num_tokens);
    COPY(a.rope_positions, s->rope_positions, s->rope_positions ? ROPE_AXES * s->num_tokens : 0);
    COPY(a.types, s->types, s->types ? s->num_tokens : 0);
    COPY(a.query_start, s->query_start, s->num_seqs + 1);
    COPY(a.context_len, s->context_len, s->num_seqs);
    for (int g = 0; g < s->num_groups; g++) {
        COPY(a.groups[g].slots, s->groups[g].slots, s->num_tokens);
        COPY(a.groups[g].block_start, s->groups[g].block_start, s->num_seqs + 1);
        COPY(a.groups[g].block_ids, s->groups[g].block_ids, w.counts.blocks[g]);
    }
    COPY(a.moves, s->moves, s->num_moves);
    COPY(a.rows, s->rows, s->num_rows);
    COPY(a.entries, s->entries, s->num_entries);
    COPY(a.embed_rows, s->embed_rows, s->num_embeds);
    COPY(a.embeds, s->embeds, (size_t)s->num_embeds * (size_t)model->hidden);
    for (int i = 0, n = 0; s->masks && i < s->num_rows; i++) { // in place of a pointer 1 + its number, or 0
        uintptr_t number = 0;
        if (s->masks[i]) {
            COPY(a.mask_bits + (size_t)n * words, s->masks[i], words);
            number = (uintptr_t)++n;
        }
        memcpy((void *)&a.masks[i], &number, sizeof number);
    }
#undef COPY
    return (size_t)w.bytes;
}

static bool are_counts(const int32_t *n, int count) {
    bool ok = true;
    for (int i = 0; i < count; i++)
        ok &= n[i] >= 0;
    return ok;
}

static bool is_within(int32_t n, int32_t max) { return n >= 0 && n <= max; }

// Starts of S parts of n entries: they begin at 0, do not run backwards and end at n.
static bool are_starts(const int32_t *starts, int S, int32_t n) {
    bool ok = starts[0] == 0 && starts[S] == n;
    for (int s = 0; s < S; s++)
        ok &= starts[s] <= starts[s + 1];
    return ok;
}

// Whether a group's pages and slots are those of the cache, and each sequence has pages for all its tokens,
// or the one page of its state.
static bool is_sound_group(const struct step_counts *c, const struct step_arrays *a, int g, enum kv_kind kind,
                           const struct step_limits *l, int block_size) {
    const int32_t *start = a->groups[g].block_start;
    bool ok = are_starts(start, c->seqs, c->blocks[g]);
    for (int s = 0; ok && s < c->seqs; s++) {
        int pages = start[s + 1] - start[s];
        ok &= kind == KV_STATE ? pages == 1 : a->context_len[s] <= (int64_t)pages * block_size;
    }
    int64_t slots = kind == KV_STATE ? 0 : (int64_t)l->num_blocks * block_size;
    for (int t = 0; t < c->tokens; t++)
        ok &= a->groups[g].slots[t] >= -1 && a->groups[g].slots[t] < slots;
    for (int b = 0; ok && b < c->blocks[g]; b++)
        ok &= is_within(a->groups[g].block_ids[b], l->num_blocks - 1);
    return ok;
}

// Whether what kernels take as indices lies within what they index; kernels do not look.
static bool is_sound(const struct wire *w, const struct step_arrays *p, const struct step_limits *l,
                     const struct model_config *model, int block_size) {
    const struct step_counts *c = &w->counts;
    int S = c->seqs, T = c->tokens, vocab = model->vocab;
    if (!is_within(p->query_start[S], T) || !are_starts(p->query_start, S, p->query_start[S]) ||
        !is_within(w->max_query_len, T) || !is_within(w->max_context_len, l->max_context))
        return false;
    bool ok = true;
    for (int s = 0; s < S; s++) {
        int rows = p->query_start[s + 1] - p->query_start[s];
        ok &= rows <= w->max_query_len && (s >= w->num_decode || rows == 1);
        int first = p->context_len[s] - rows; // a sequence computes its last rows
        ok &= first >= 0 && p->context_len[s] <= w->max_context_len;
        for (int i = 0; i < rows; i++)
            ok &= p->positions[p->query_start[s] + i] == first + i;
    }
    for (int t = 0; t < T; t++) {
        ok &=
            p->ids[t] < vocab && p->ids[t] >= -l->max_rows && is_within(p->positions[t], l->max_context - 1);
        ok &= !c->has_types || is_within(p->types[t], model->token_types - 1);
        for (int a = 0; c->has_axes && a < ROPE_AXES; a++)
            ok &= is_within(p->rope_positions[a * T + t], p->positions[t]);
    }
    for (int g = 0; g < c->groups; g++)
        ok &= is_sound_group(c, p, g, model->groups[g].kind, l, block_size);
    for (int m = 0; m < c->moves; m++)
        ok &= backend_can_move(l, &p->moves[m]);
    for (int r = 0; r < c->rows; r++) {
        const struct logits_row *row = &p->rows[r];
        ok &= is_within(row->row, T - 1) && row->target < vocab && row->num_logprobs <= MAX_TOP_LOGPROBS &&
              is_within(row->entry_end, c->entries) && is_within(row->entry_start, row->entry_end);
    }
    for (int e = 0; e < c->embeds; e++)
        ok &= is_within(p->embed_rows[e], T - 1) && (e == 0 || p->embed_rows[e] > p->embed_rows[e - 1]);
    for (int e = 0; e < c->entries; e++)
        ok &= is_within(p->entries[e].token, vocab - 1);
    return ok;
}

enum status step_wire_read(void *src, size_t bytes, const struct step_limits *l,
                           const struct model_config *model, int block_size, struct step *step,
                           struct err *err) {
    struct wire w;
    struct step_arrays a;
    const struct step_counts *c = &w.counts;
    if (bytes < sizeof w)
        return err_set(err, STATUS_DEVICE, "a step of %zu bytes", bytes);
    memcpy(&w, src, sizeof w);
    if (!is_within(c->tokens, l->max_tokens) || !is_within(c->seqs, l->max_seqs) ||
        !is_within(w.num_decode, c->seqs) || !is_within(c->rows, l->max_rows) || c->entries < 0 ||
        !is_within(c->masks, c->rows) || !is_within(c->embeds, c->tokens) || (c->has_axes && !l->has_axes) ||
        c->embed_size != (c->embeds > 0 ? l->embed_size : 0) || (c->embeds > 0 && c->embed_size == 0) ||
        c->groups != model->num_groups || !is_within(c->moves, l->num_blocks + l->num_host_pages) ||
        !are_counts(c->blocks, c->groups) || w.bytes != bytes ||
        step_layout(c, model->vocab, sizeof w, src, &a) != bytes)
        return err_set(err, STATUS_DEVICE, "a step of %d tokens in %zu bytes is not within the limits",
                       c->tokens, bytes);
    if (!is_sound(&w, &a, l, model, block_size))
        return err_set(err, STATUS_DEVICE, "a step of %d tokens points outside of itself or the cache",
                       c->tokens);
    for (int i = 0; c->has_masks && i < c->rows; i++) {
        uintptr_t number;
        memcpy(&number, (const void *)&a.masks[i], sizeof number);
        if (number > (uintptr_t)c->masks)
            return err_set(err, STATUS_DEVICE, "a step names mask %zu of %d", (size_t)number, c->masks);
        a.masks[i] = number ? a.mask_bits + (number - 1) * step_mask_words(model->vocab) : NULL;
    }
    *step = (struct step){.packed = src,
                          .packed_bytes = bytes,
                          .num_tokens = c->tokens,
                          .num_seqs = c->seqs,
                          .num_decode = w.num_decode,
                          .num_rows = c->rows,
                          .max_query_len = w.max_query_len,
                          .max_context_len = w.max_context_len,
                          .num_entries = c->entries,
                          .num_groups = c->groups,
                          .num_moves = c->moves,
                          .seq = w.seq};
    step_set_arrays(step, c, &a);
    return STATUS_OK;
}
