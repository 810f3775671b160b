#include "step_layout.h"

size_t step_layout(const struct step_counts *c, int vocab, size_t head, unsigned char *base,
                   struct step_arrays *a) {
    size_t T = (size_t)c->tokens, S = (size_t)c->seqs, R = (size_t)c->rows;
    size_t at = (head + 63) & ~(size_t)63;
#define ARRAY(field, count)                                                                                  \
    a->field = base ? (void *)(base + at) : NULL;                                                            \
    at = (at + (count) * sizeof *a->field + 63) & ~(size_t)63
    ARRAY(ids, T);
    ARRAY(positions, T);
    ARRAY(rope_positions, c->has_axes ? ROPE_AXES * T : 0);
    ARRAY(types, c->has_types ? T : 0);
    ARRAY(query_start, S + 1);
    ARRAY(context_len, S);
    ARRAY(adapters, c->has_adapters ? S : 0);
    for (int g = 0; g < c->groups; g++) {
        ARRAY(groups[g].slots, T);
        ARRAY(groups[g].block_start, S + 1);
        ARRAY(groups[g].block_ids, (size_t)c->blocks[g]);
    }
    ARRAY(moves, (size_t)c->moves);
    ARRAY(rows, R);
    ARRAY(entries, (size_t)c->entries);
    ARRAY(masks, c->has_masks ? R : 0);
    ARRAY(mask_bits, (size_t)c->masks * step_mask_words(vocab));
    ARRAY(embed_rows, (size_t)c->embeds);
    ARRAY(embeds, (size_t)c->embeds * (size_t)c->embed_size);
#undef ARRAY
    return at;
}

void step_set_arrays(struct step *step, const struct step_counts *c, const struct step_arrays *a) {
    step->ids = a->ids;
    step->positions = a->positions;
    step->rope_positions = c->has_axes ? a->rope_positions : NULL;
    step->types = c->has_types ? a->types : NULL;
    step->query_start = a->query_start;
    step->context_len = a->context_len;
    step->adapters = c->has_adapters ? a->adapters : NULL;
    for (int g = 0; g < c->groups; g++)
        step->groups[g] =
            (struct step_group){a->groups[g].slots, a->groups[g].block_start, a->groups[g].block_ids};
    step->moves = a->moves;
    step->rows = a->rows;
    step->entries = a->entries;
    step->masks = c->has_masks ? a->masks : NULL;
    step->num_embeds = c->embeds;
    step->embed_rows = c->embeds > 0 ? a->embed_rows : NULL;
    step->embeds = c->embeds > 0 ? a->embeds : NULL;
}
