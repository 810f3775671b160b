#include "plan.h"

#include "log.h"
#include "philox.h"

#include <math.h>
#include <string.h>

enum part {
    PART_IDS,
    PART_POSITIONS,
    PART_SEQ_OF,
    PART_SLOTS,
    PART_BLOCK_START,
    PART_BLOCK_IDS,
    PART_ITEMS,
    PART_FIRST_ITEM,
    PART_TILES,
    PART_COUNTS,
    PART_ROWS,
    PART_DRAWS,
    NUM_PARTS
};

static size_t max_chunks(const struct plan_config *c) {
    return (size_t)(c->limits.max_context + CUDA_CHUNK - 1) / CUDA_CHUNK;
}

// The most elements of each part, and their size.
static void part_room(const struct plan_config *c, size_t num[NUM_PARTS], size_t size[NUM_PARTS]) {
    size_t T = (size_t)c->limits.max_tokens, S = (size_t)c->limits.max_seqs, R = (size_t)c->limits.max_rows;
    size_t per_seq = (size_t)(c->limits.max_context + c->block_size - 1) / (size_t)c->block_size;
    // Padding rows come on top: a graph's rows may be more than the step has, never more than CUDA_TOKENS.
    T = T > CUDA_TOKENS ? T : CUDA_TOKENS;
    R = R > CUDA_TOKENS ? R : CUDA_TOKENS;
    const size_t rooms[NUM_PARTS][2] = {
        [PART_IDS] = {T, sizeof(int32_t)},
        [PART_POSITIONS] = {T, sizeof(int32_t)},
        [PART_SEQ_OF] = {T, sizeof(int32_t)},
        [PART_SLOTS] = {T, sizeof(int64_t)},
        [PART_BLOCK_START] = {S + 1, sizeof(int32_t)},
        [PART_BLOCK_IDS] = {S * per_seq, sizeof(int32_t)},
        [PART_ITEMS] = {c->items ? S * max_chunks(c) : 0, sizeof(struct cuda_item)},
        [PART_FIRST_ITEM] = {T + 1, sizeof(int32_t)},
        [PART_TILES] = {c->items ? S + T * (size_t)c->group / (size_t)c->tile_rows : 0,
                        sizeof(struct cuda_tile)},
        [PART_COUNTS] = {2, sizeof(int32_t)},
        [PART_ROWS] = {R, sizeof(struct head_row)},
        [PART_DRAWS] = {R, sizeof(struct cuda_draw)},
    };
    for (int i = 0; i < NUM_PARTS; i++) {
        num[i] = rooms[i][0];
        size[i] = rooms[i][1];
    }
}

static size_t align16(size_t n) { return (n + 15) & ~(size_t)15; }
static size_t align48(size_t n) { return (n + 47) / 48 * 48; } // whole logit_edits, and 16 bytes

size_t plan_inputs(const struct plan_config *c, struct cuda_inputs *in, void *base) {
    void **const fields[NUM_PARTS] = {
        [PART_IDS] = (void **)&in->ids,
        [PART_POSITIONS] = (void **)&in->positions,
        [PART_SEQ_OF] = (void **)&in->seq_of,
        [PART_SLOTS] = (void **)&in->slots,
        [PART_BLOCK_START] = (void **)&in->block_start,
        [PART_BLOCK_IDS] = (void **)&in->block_ids,
        [PART_ITEMS] = (void **)&in->items,
        [PART_FIRST_ITEM] = (void **)&in->first_item,
        [PART_TILES] = (void **)&in->tiles,
        [PART_COUNTS] = (void **)&in->counts,
        [PART_ROWS] = (void **)&in->rows,
        [PART_DRAWS] = (void **)&in->draws,
    };
    size_t num[NUM_PARTS], size[NUM_PARTS], at = 0;
    part_room(c, num, size);
    for (int i = 0; i < NUM_PARTS; i++) {
        *fields[i] = base ? (char *)base + at : NULL;
        at += align16(num[i] * size[i]);
    }
    return at;
}

// Edits of one drawing row are every distinct token of the context, every bias, every stop token (batch.c).
static size_t max_edits(const struct plan_config *c) {
    size_t distinct = (size_t)(c->limits.max_context < c->vocab ? c->limits.max_context : c->vocab);
    return (size_t)c->limits.max_seqs * (distinct + 2048);
}

size_t plan_max_bytes(const struct plan_config *c) {
    size_t num[NUM_PARTS], size[NUM_PARTS], at = NUM_PARTS * sizeof(struct cuda_part);
    part_room(c, num, size);
    for (int i = 0; i < NUM_PARTS; i++)
        at += align16(num[i] * size[i]);
    at += 48 + max_edits(c) * (sizeof(struct logit_edit) + sizeof(int32_t)); // rounds: one an edit at worst
    at += (size_t)c->limits.max_seqs * (((size_t)c->vocab + 31) / 32) * sizeof(uint32_t);
    return align16(at) + 64;
}

int plan_num_parts(void) { return NUM_PARTS; }

const int32_t *plan_first_item(const unsigned char *upload) {
    const struct cuda_part *parts = (const struct cuda_part *)(const void *)upload;
    return (const int32_t *)(const void *)(upload + parts[PART_FIRST_ITEM].from);
}

struct cuda_draw plan_draw(const struct head_row *row) {
    struct cuda_draw d = {.mask = -1, .edited = -1, .low = -INFINITY};
    d.bits = philox_draw(row->seed, row->index);
    if (row->min_p > 0) { // as kernels/cpu/sampler.c, by the same libm
        d.low = fmin((double)row->temperature * log((double)row->min_p), 0);
    }
    return d;
}

int plan_rounds(int32_t *rounds, const struct logit_edit *edits, int start, int end, int offset,
                uint32_t *seen, uint32_t *stamp) {
    int n = 0;
    for (int i = start; i < end; i++) {
        if (n == 0 || seen[edits[i].token] == *stamp) { // this token again: a new round
            rounds[n++] = i + offset;
            if (++*stamp ==
                0) // wrapped around: old stamps would look new. Once in 2^32 rounds; a row's order may suffer
                *stamp = 1;
        }
        seen[edits[i].token] = *stamp;
    }
    return n;
}

void plan_round(const int32_t *first_item, int rows, int max_items, int row, int *end_row) {
    int end = row + 1; // one row always fits: max_items is at least its chunks
    while (end < rows && first_item[end + 1] - first_item[row] <= max_items)
        end++;
    *end_row = end;
}

// Takes pieces of an upload one after another.
struct cursor {
    unsigned char *base;
    size_t at;
    struct cuda_part *parts;
};

static void *take(struct cursor *c, enum part part, void *to, size_t bytes) {
    c->parts[part] = (struct cuda_part){to, (uint32_t)c->at, (uint32_t)(align16(bytes) / 16)};
    void *p = c->base + c->at;
    c->at += align16(bytes);
    return p;
}

static void fill_items(struct plan *p, const struct plan_config *c, const struct cuda_inputs *in,
                       struct cursor *to, const struct step *step, int num_decode) {
    // Written where they will lie; the part is taken once their number is known.
    struct cuda_item *items = take(to, PART_ITEMS, in->items, 0);
    int n = 0;
    int32_t first = 0;
    for (int s = 0; c->items && !c->exact && s < step->num_decode; s++) {
        int end = step->context_len[s], begin = c->window > 0 && end > c->window ? end - c->window : 0;
        for (int chunk = begin / CUDA_CHUNK * CUDA_CHUNK; chunk < end; chunk += CUDA_CHUNK)
            items[n++] = (struct cuda_item){.row = step->query_start[s],
                                            .seq = s,
                                            .begin = chunk > begin ? chunk : begin,
                                            .end = chunk + CUDA_CHUNK < end ? chunk + CUDA_CHUNK : end};
    }
    take(to, PART_ITEMS, in->items, (size_t)n * sizeof *items);
    int32_t *first_item =
        take(to, PART_FIRST_ITEM, in->first_item, (size_t)(num_decode + 1) * sizeof *first_item);
    for (int s = 0, i = 0; s <= num_decode; s++) {
        while (i < n && items[i].seq < s)
            i++;
        first = s > step->num_decode ? n : i;
        first_item[s] = first;
    }
    p->num_items = n;
    p->one_round = n <= c->max_items;
}

// Tokens of the cache that a tile reads.
static int tile_weight(const struct plan_config *c, const struct cuda_tile *t) {
    int end = t->first + c->tile_rows < t->num_rows ? t->first + c->tile_rows : t->num_rows;
    int last = t->position + (end - 1) / c->group,
        begin = c->window > 0 ? t->position + t->first / c->group - c->window + 1 : 0;
    return last + 1 - (begin > 0 ? begin : 0);
}

// Before the other one: heavier, or as heavy and earlier in the step.
static bool tile_before(const struct plan_config *c, const struct cuda_tile *a, const struct cuda_tile *b) {
    int x = tile_weight(c, a), y = tile_weight(c, b);
    return x != y ? x > y : a->seq != b->seq ? a->seq < b->seq : a->first > b->first;
}

// By Shell's method, which takes no memory: prompts come sorted, one behind the other.
static void sort_tiles(const struct plan_config *c, struct cuda_tile *tiles, int n) {
    for (int gap = n / 2; gap > 0; gap /= 2)
        for (int i = gap; i < n; i++) {
            struct cuda_tile t = tiles[i];
            int at = i;
            for (; at >= gap && tile_before(c, &t, &tiles[at - gap]); at -= gap)
                tiles[at] = tiles[at - gap];
            tiles[at] = t;
        }
}

// The heaviest first, over all prompts of the step: the last to begin are the shortest. What a tile computes
// depends on no other.
static void fill_tiles(struct plan *p, const struct plan_config *c, const struct cuda_inputs *in,
                       struct cursor *to, const struct step *step) {
    struct cuda_tile *tiles = take(to, PART_TILES, in->tiles, 0);
    int n = 0;
    for (int s = c->exact ? 0 : step->num_decode; c->items && s < step->num_seqs; s++) {
        int rows = step->query_start[s + 1] - step->query_start[s], num = rows * c->group;
        for (int r = (num + c->tile_rows - 1) / c->tile_rows * c->tile_rows; (r -= c->tile_rows) >= 0;)
            tiles[n++] = (struct cuda_tile){.seq = s,
                                            .row = step->query_start[s],
                                            .first = r,
                                            .num_rows = num,
                                            .position = step->context_len[s] - rows};
    }
    sort_tiles(c, tiles, n);
    take(to, PART_TILES, in->tiles, (size_t)n * sizeof *tiles);
    p->num_tiles = n;
}

static void fill_edits(struct plan *p, const struct plan_config *c, struct cursor *to,
                       const struct step *step, struct cuda_draw *draws, uint32_t *seen, uint32_t *stamp) {
    size_t words = ((size_t)c->vocab + 31) / 32;
    to->at = align48(to->at);
    int edit0 = (int)(to->at / sizeof(struct logit_edit));
    if (step->num_edits > 0)
        memcpy(to->base + to->at, step->edits, (size_t)step->num_edits * sizeof *step->edits);
    to->at = align16(to->at + (size_t)step->num_edits * sizeof *step->edits);
    int32_t *rounds = (int32_t *)(void *)to->base; // counted from the beginning, as the kernel does
    int at = (int)(to->at / sizeof *rounds), edited = 0;
    for (int r = 0; r < step->num_rows; r++) {
        const struct head_row *row = &step->rows[r];
        if (r % CUDA_HEAD_ROWS == 0)
            edited = 0;
        bool masked = step->masks && step->masks[r];
        if (row->target >= 0 || (!masked && row->edit_end <= row->edit_start))
            continue;
        draws[r].edited = edited++;
        p->num_edited = edited > p->num_edited ? edited : p->num_edited;
        draws[r].round_start = draws[r].round_end = at;
        if (row->edit_end > row->edit_start) {
            int n = plan_rounds(rounds + at, step->edits, row->edit_start, row->edit_end, edit0, seen, stamp);
            draws[r].round_end = at + n;
            at += n;
            rounds[at++] = row->edit_end + edit0;
        }
    }
    to->at = align16((size_t)at * sizeof *rounds);
    for (int r = 0; step->masks && r < step->num_rows; r++)
        if (step->masks[r] && draws[r].edited >= 0) {
            draws[r].mask = (int32_t)(to->at / sizeof(uint32_t));
            memcpy(to->base + to->at, step->masks[r], words * sizeof(uint32_t));
            to->at += words * sizeof(uint32_t);
        }
    to->at = align16(to->at);
}

void plan_fill(struct plan *p, const struct plan_config *c, const struct cuda_inputs *in,
               unsigned char *upload, const struct step *step, int num_tokens, uint32_t *seen,
               uint32_t *stamp) {
    struct cursor to = {upload, NUM_PARTS * sizeof(struct cuda_part), (struct cuda_part *)(void *)upload};
    int T = step->num_tokens, R = step->num_rows, padding = num_tokens > T ? num_tokens - T : 0;
    int all = T + padding, rows = R + padding;
    *p = (struct plan){.num_tokens = all, .num_decode = step->num_decode + padding, .num_rows = rows};
    int32_t *ids = take(&to, PART_IDS, in->ids, (size_t)all * sizeof *ids);
    int32_t *positions = take(&to, PART_POSITIONS, in->positions, (size_t)all * sizeof *positions);
    int32_t *seq_of = take(&to, PART_SEQ_OF, in->seq_of, (size_t)all * sizeof *seq_of);
    int64_t *slots = take(&to, PART_SLOTS, in->slots, (size_t)all * sizeof *slots);
    memcpy(ids, step->ids, (size_t)T * sizeof *ids);
    memcpy(positions, step->positions, (size_t)T * sizeof *positions);
    memcpy(slots, step->slots, (size_t)T * sizeof *slots);
    for (int s = 0; s < step->num_seqs; s++)
        for (int t = step->query_start[s]; t < step->query_start[s + 1]; t++)
            seq_of[t] = s;
    for (int t = T; t < all; t++) {
        ids[t] = positions[t] = 0;
        seq_of[t] = -1;
        slots[t] = -1;
    }
    int num_blocks = step->block_start[step->num_seqs];
    memcpy(take(&to, PART_BLOCK_START, in->block_start, (size_t)(step->num_seqs + 1) * sizeof(int32_t)),
           step->block_start, (size_t)(step->num_seqs + 1) * sizeof(int32_t));
    memcpy(take(&to, PART_BLOCK_IDS, in->block_ids, (size_t)num_blocks * sizeof(int32_t)), step->block_ids,
           (size_t)num_blocks * sizeof(int32_t));
    fill_items(p, c, in, &to, step, p->num_decode);
    fill_tiles(p, c, in, &to, step);
    int32_t *counts = take(&to, PART_COUNTS, in->counts, 2 * sizeof *counts);
    counts[0] = p->num_items;
    counts[1] = p->num_tiles;
    struct head_row *out_rows = take(&to, PART_ROWS, in->rows, (size_t)rows * sizeof *out_rows);
    struct cuda_draw *draws = take(&to, PART_DRAWS, in->draws, (size_t)rows * sizeof *draws);
    memcpy(out_rows, step->rows, (size_t)R * sizeof *out_rows);
    for (int r = 0; r < rows; r++) {
        if (r >= R)
            out_rows[r] = (struct head_row){.row = -1, .target = -1, .num_logprobs = -1};
        draws[r] = plan_draw(&out_rows[r]);
    }
    fill_edits(p, c, &to, step, draws, seen, stamp);
    p->bytes = to.at;
}
