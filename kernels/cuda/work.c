#include "work.h"

#include "log.h"
#include "philox.h"

#include <math.h>
#include <string.h>

// A fixed array of the upload, at most.
struct upload_part {
    void **field; // of cuda_inputs
    size_t num, size;
};
enum { PARTS_OF_STEP = 9, PARTS_OF_GROUP = 3, PARTS_OF_ATTN = 4 };
enum { MAX_PARTS = PARTS_OF_STEP + PARTS_OF_GROUP * KV_MAX_GROUPS + PARTS_OF_ATTN * MODEL_MAX_SPECS };

int work_graph_rows(int n) {
    static const int sizes[] = {1, 2, 4, 8, 16, 24, 32, 48, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (n <= sizes[i])
            return sizes[i];
    return n <= CUDA_GRAPH_ROWS ? (n + 31) / 32 * 32 : 0;
}

int work_head_rows(const struct step_limits *limits) {
    int rows = limits->max_seqs < CUDA_GRAPH_ROWS ? work_graph_rows(limits->max_seqs) : CUDA_GRAPH_ROWS;
    return rows > CUDA_TOKENS ? rows : CUDA_TOKENS;
}

// Each adapter has one group that is not full, at most.
int work_lora_groups(const struct work_config *c, int rows) {
    int all = rows / CUDA_LORA_ROWS + c->limits.max_adapters;
    return c->limits.max_adapters == 0 ? 0 : all < rows ? all : rows;
}

int work_num_parts(const struct work_config *c) {
    return PARTS_OF_STEP + PARTS_OF_GROUP * c->num_groups + PARTS_OF_ATTN * c->num_attn;
}

// The parts in the order in which work_fill() takes them.
static int list_parts(const struct work_config *c, struct cuda_inputs *in,
                      struct upload_part parts[MAX_PARTS]) {
    size_t T = (size_t)c->limits.max_tokens, S = (size_t)c->limits.max_seqs, R = (size_t)c->limits.max_rows;
    size_t context = (size_t)c->limits.max_context, block = (size_t)c->block_size;
    size_t blocks = S * ((context + block - 1) / block),
           splits = S * ((context + CUDA_SPLIT - 1) / CUDA_SPLIT);
    int n = 0;
    size_t padded = (size_t)work_head_rows(&c->limits); // a graph's rows may be more than the step has
    T = T > padded ? T : padded;
    R = R > padded ? R : padded;
    parts[n++] = (struct upload_part){(void **)&in->ids, T, sizeof *in->ids};
    parts[n++] = (struct upload_part){(void **)&in->positions, T, sizeof *in->positions};
    parts[n++] = (struct upload_part){(void **)&in->seq_of, T, sizeof *in->seq_of};
    parts[n++] = (struct upload_part){(void **)&in->types, c->limits.has_types ? T : 0, sizeof *in->types};
    parts[n++] = (struct upload_part){(void **)&in->rope_positions, c->limits.has_axes ? ROPE_AXES * T : 0,
                                      sizeof *in->rope_positions};
    parts[n++] = (struct upload_part){(void **)&in->context_len, S, sizeof *in->context_len};
    parts[n++] =
        (struct upload_part){(void **)&in->lora, (size_t)work_lora_groups(c, (int)T), sizeof *in->lora};
    for (int g = 0; g < c->num_groups; g++) {
        parts[n++] = (struct upload_part){(void **)&in->groups[g].slots, T, sizeof(int64_t)};
        parts[n++] = (struct upload_part){(void **)&in->groups[g].block_start, S + 1, sizeof(int32_t)};
        parts[n++] = (struct upload_part){(void **)&in->groups[g].block_ids, blocks, sizeof(int32_t)};
    }
    for (int a = 0; a < c->num_attn; a++) {
        size_t tiles = S + T * (size_t)c->attn[a].group / (size_t)c->tile_rows;
        parts[n++] = (struct upload_part){(void **)&in->attn[a].splits, c->attn[a].lists ? splits : 0,
                                          sizeof(struct cuda_split)};
        parts[n++] = (struct upload_part){(void **)&in->attn[a].first_split, T + 1, sizeof(int32_t)};
        parts[n++] = (struct upload_part){(void **)&in->attn[a].tiles, c->attn[a].lists ? tiles : 0,
                                          sizeof(struct cuda_tile)};
        parts[n++] = (struct upload_part){(void **)&in->attn[a].counts, 2, sizeof(int32_t)};
    }
    parts[n++] = (struct upload_part){(void **)&in->rows, R, sizeof *in->rows};
    parts[n++] = (struct upload_part){(void **)&in->prep, R, sizeof *in->prep};
    CHECK(n == work_num_parts(c));
    return n;
}

static size_t align16(size_t n) { return (n + 15) & ~(size_t)15; }
static size_t align48(size_t n) { return (n + 47) / 48 * 48; } // whole logit_entries, and 16 bytes

size_t work_inputs(const struct work_config *c, struct cuda_inputs *in, void *base) {
    struct upload_part parts[MAX_PARTS];
    size_t at = 0;
    int n = list_parts(c, in, parts);
    for (int i = 0; i < n; i++) {
        *parts[i].field = base ? (char *)base + at : NULL;
        at += align16(parts[i].num * parts[i].size);
    }
    return at;
}

// Entries that an upload has room for, for each sequence that samples. Biases, bad words and stop tokens of a row are
// fewer; penalties of a long context may be more.
enum { ROW_ENTRIES = 4096 };

static size_t entry_bytes(const struct work_config *c, size_t entries, size_t passes, size_t masks) {
    return entries * sizeof(struct logit_entry) + passes * sizeof(int32_t) +
           masks * (((size_t)c->vocab + 31) / 32) * sizeof(uint32_t) + 64; // for alignment
}

// ROW_ENTRIES a sequence, but not less than one row can have: every distinct token of the context, and as many. At worst
// there is a pass for each entry, and one that ends those of a row.
static size_t max_entry_bytes(const struct work_config *c) {
    size_t distinct = (size_t)(c->limits.max_context < c->vocab ? c->limits.max_context : c->vocab);
    size_t S = (size_t)c->limits.max_seqs, one = distinct + ROW_ENTRIES;
    size_t all = entry_bytes(c, S * ROW_ENTRIES, S * (ROW_ENTRIES + 1), S);
    one = entry_bytes(c, one, one + 1, 1);
    return all > one ? all : one;
}

size_t work_max_bytes(const struct work_config *c) {
    struct cuda_inputs in;
    struct upload_part parts[MAX_PARTS];
    int n = list_parts(c, &in, parts);
    size_t at = (size_t)n * sizeof(struct cuda_part);
    for (int i = 0; i < n; i++)
        at += align16(parts[i].num * parts[i].size);
    return align16(align48(at) + max_entry_bytes(c));
}

struct cuda_row_prep work_row_prep(const struct logits_row *row) {
    struct cuda_row_prep p = {.mask = -1, .adjusted = -1, .low = -INFINITY};
    p.bits = philox_bits(row->seed, row->index);
    p.xtc = philox_chance(row->seed, row->index, row->xtc_probability);
    if (row->min_p > 0) // as kernels/cpu/sampler.c, by the same libm
        p.low = fmin((double)row->temperature * log((double)row->min_p), 0);
    return p;
}

int work_passes(int32_t *passes, const struct logit_entry *entries, int start, int end, int offset,
                uint32_t *seen, uint32_t *stamp) {
    int n = 0;
    for (int i = start; i < end; i++) {
        if (n == 0 || seen[entries[i].token] == *stamp) { // this token again: a new pass
            passes[n++] = i + offset;
            // When it wraps around, old stamps look new: once in 2^32 passes a row's order may suffer.
            if (++*stamp == 0)
                *stamp = 1;
        }
        seen[entries[i].token] = *stamp;
    }
    return n;
}

void work_launch(const int32_t *first_split, int rows, int max_splits, int row, int *end_row) {
    int end = row + 1; // one row always fits: max_splits is at least its own
    while (end < rows && first_split[end + 1] - first_split[row] <= max_splits)
        end++;
    *end_row = end;
}

// Takes the parts of an upload one after another.
struct part_cursor {
    unsigned char *base;
    size_t at;
    struct cuda_part *parts;
    int num_parts;
};

// The next part, in its place; `to`: where on the device it goes.
static void *take_part(struct part_cursor *c, void *to, size_t bytes) {
    c->parts[c->num_parts++] = (struct cuda_part){to, (uint32_t)c->at, (uint32_t)(align16(bytes) / 16)};
    void *p = c->base + c->at;
    c->at += align16(bytes);
    return p;
}

static void copy_part(struct part_cursor *c, void *to, const void *from, size_t bytes) {
    void *p = take_part(c, to, bytes);
    if (bytes > 0)
        memcpy(p, from, bytes);
}

static void fill_rows(const struct step_work *p, const struct work_config *c, const struct cuda_inputs *in,
                      struct part_cursor *to, const struct step *step) {
    int T = step->num_tokens, all = p->num_tokens;
    int32_t *ids = take_part(to, in->ids, (size_t)all * sizeof *ids);
    int32_t *positions = take_part(to, in->positions, (size_t)all * sizeof *positions);
    int32_t *seq_of = take_part(to, in->seq_of, (size_t)all * sizeof *seq_of);
    memcpy(ids, step->ids, (size_t)T * sizeof *ids);
    memcpy(positions, step->positions, (size_t)T * sizeof *positions);
    for (int s = 0; s < step->num_seqs; s++)
        for (int t = step->query_start[s]; t < step->query_start[s + 1]; t++)
            seq_of[t] = s;
    for (int t = T; t < all; t++) {
        ids[t] = positions[t] = 0;
        seq_of[t] = -1;
    }
    size_t num_types = c->limits.has_types ? (size_t)all : 0;
    int32_t *types = take_part(to, in->types, num_types * sizeof *types);
    for (size_t t = 0; t < num_types; t++)
        types[t] = step->types && t < (size_t)T ? step->types[t] : 0;
    size_t num_turns = step->rope_positions ? (size_t)(ROPE_AXES * all) : 0;
    int32_t *turns = take_part(to, in->rope_positions, num_turns * sizeof *turns);
    for (size_t i = 0; i < num_turns; i++) {
        size_t axis = i / (size_t)all, t = i % (size_t)all;
        turns[i] = t < (size_t)T ? step->rope_positions[axis * (size_t)T + t] : 0;
    }
    copy_part(to, in->context_len, step->context_len, (size_t)step->num_seqs * sizeof *step->context_len);
}

// Each adapter's rows in groups; behind them, for a graph, groups without.
static void fill_lora(struct step_work *p, const struct work_config *c, const struct cuda_inputs *in,
                      struct part_cursor *to, const struct step *step) {
    int all = step->adapters ? work_lora_groups(c, p->num_tokens) : 0, n = 0;
    struct cuda_lora_group *groups = take_part(to, in->lora, (size_t)all * sizeof *groups);
    memset(groups, 0xff, (size_t)all * sizeof *groups);
    for (int a = 0; step->adapters && a < c->limits.max_adapters; a++) {
        int num = 0;
        for (int s = 0; s < step->num_seqs; s++)
            for (int t = step->query_start[s]; step->adapters[s] == a && t < step->query_start[s + 1]; t++) {
                groups[n + num / CUDA_LORA_ROWS].adapter = c->adapters[a];
                groups[n + num / CUDA_LORA_ROWS].rows[num % CUDA_LORA_ROWS] = t;
                num++;
            }
        n += (num + CUDA_LORA_ROWS - 1) / CUDA_LORA_ROWS;
    }
    for (int g = n; g < all; g++)
        groups[g].adapter = NULL;
    p->num_lora = n;
}

static void fill_group(const struct step_work *p, const struct work_config *c, const struct cuda_inputs *in,
                       struct part_cursor *to, const struct step *step, int group) {
    const struct step_group *g = &step->groups[group];
    int64_t *slots = take_part(to, in->groups[group].slots, (size_t)p->num_tokens * sizeof *slots);
    int64_t B = c->block_size;
    for (int t = 0; t < step->num_tokens; t++)
        slots[t] = g->slots[t] < 0 ? -1 : g->slots[t] + g->slots[t] / B * B * (c->page_scale[group] - 1);
    for (int t = step->num_tokens; t < p->num_tokens; t++)
        slots[t] = -1;
    copy_part(to, in->groups[group].block_start, g->block_start,
              (size_t)(step->num_seqs + 1) * sizeof *g->block_start);
    int n = g->block_start[step->num_seqs];
    int32_t *ids = take_part(to, in->groups[group].block_ids, (size_t)n * sizeof *ids);
    for (int i = 0; i < n; i++)
        ids[i] = g->block_ids[i] * c->page_scale[group];
}

static void fill_splits(struct step_work *p, const struct work_config *c, const struct cuda_inputs *in,
                        struct part_cursor *to, const struct step *step, int spec) {
    // Written where the part will lie, which is taken when their number is known.
    struct cuda_split *splits = (struct cuda_split *)(void *)(to->base + to->at);
    struct work_attn *list = &p->attn[spec];
    const struct work_attn_config *a = &c->attn[spec];
    int n = 0;
    for (int s = 0; a->lists && !c->exact && s < step->num_decode; s++) {
        int end = step->context_len[s], begin = kv_first_seen(end - 1, a->window, a->chunked);
        for (int at = begin / CUDA_SPLIT * CUDA_SPLIT; at < end; at += CUDA_SPLIT)
            splits[n++] = (struct cuda_split){.row = step->query_start[s],
                                              .seq = s,
                                              .begin = at > begin ? at : begin,
                                              .end = at + CUDA_SPLIT < end ? at + CUDA_SPLIT : end};
    }
    take_part(to, in->attn[spec].splits, (size_t)n * sizeof *splits);
    int32_t *first_split =
        take_part(to, in->attn[spec].first_split, (size_t)(p->num_decode + 1) * sizeof *first_split);
    for (int s = 0, i = 0; s <= p->num_decode; s++) {
        while (i < n && splits[i].seq < s)
            i++;
        first_split[s] = s > step->num_decode ? n : i;
    }
    list->num_splits = n;
    list->one_launch = n <= c->max_splits;
    list->first_split = first_split;
    p->one_launch &= list->one_launch;
}

// Tokens of the cache that a tile reads.
static int tile_tokens(const struct work_attn_config *a, int tile_rows, const struct cuda_tile *t) {
    int end = t->first + tile_rows < t->num_rows ? t->first + tile_rows : t->num_rows;
    int last = t->position + (end - 1) / a->group;
    return last + 1 - kv_first_seen(t->position + t->first / a->group, a->window, a->chunked);
}

// Before the other one: reads more, or as much and earlier in the step.
static bool tile_before(const struct work_attn_config *a, int tile_rows, const struct cuda_tile *one,
                        const struct cuda_tile *other) {
    int x = tile_tokens(a, tile_rows, one), y = tile_tokens(a, tile_rows, other);
    return x != y ? x > y : one->seq != other->seq ? one->seq < other->seq : one->first > other->first;
}

// By Shell's method, which takes no memory: prompts come sorted, one behind the other.
static void sort_tiles(const struct work_attn_config *a, int tile_rows, struct cuda_tile *tiles, int n) {
    for (int gap = n / 2; gap > 0; gap /= 2)
        for (int i = gap; i < n; i++) {
            struct cuda_tile t = tiles[i];
            int at = i;
            for (; at >= gap && tile_before(a, tile_rows, &t, &tiles[at - gap]); at -= gap)
                tiles[at] = tiles[at - gap];
            tiles[at] = t;
        }
}

// Those that read most first, over all prompts of the step: the last to begin are the shortest. A tile's
// results depend on no other.
static void fill_tiles(struct step_work *p, const struct work_config *c, const struct cuda_inputs *in,
                       struct part_cursor *to, const struct step *step, int spec) {
    const struct work_attn_config *a = &c->attn[spec];
    struct cuda_tile *tiles = (struct cuda_tile *)(void *)(to->base + to->at);
    int n = 0;
    for (int s = c->exact ? 0 : step->num_decode; a->lists && s < step->num_seqs; s++) {
        int rows = step->query_start[s + 1] - step->query_start[s], num = rows * a->group;
        for (int r = (num + c->tile_rows - 1) / c->tile_rows * c->tile_rows; (r -= c->tile_rows) >= 0;)
            tiles[n++] = (struct cuda_tile){.seq = s,
                                            .row = step->query_start[s],
                                            .first = r,
                                            .num_rows = num,
                                            .position = step->context_len[s] - rows};
    }
    sort_tiles(a, c->tile_rows, tiles, n);
    take_part(to, in->attn[spec].tiles, (size_t)n * sizeof *tiles);
    p->attn[spec].num_tiles = n;
}

// The number of leading rows of the step's [first, first + num) whose entries, passes and masks fit, and their
// entries [*begin, *end).
static int rows_that_fit(const struct work_config *c, const struct step *step, int first, int num, int *begin,
                         int *end) {
    size_t passes = 0, masks = 0, max = max_entry_bytes(c);
    *begin = *end = 0;
    for (int n = 0; n < num; n++) {
        const struct logits_row *row = &step->rows[first + n];
        int from = row->entry_start, to = row->entry_end + row->num_wanted;
        bool some = from < to, before = *begin < *end;
        from = before && (!some || *begin < from) ? *begin : from;
        to = before && (!some || *end > to) ? *end : to;
        passes += (size_t)(row->entry_end - row->entry_start + 1);
        masks += step->masks && step->masks[first + n];
        if (entry_bytes(c, (size_t)(to - from), passes, masks) > max)
            return n;
        *begin = from;
        *end = to;
    }
    return num;
}

int work_entries(struct step_work *p, const struct work_config *c, unsigned char *upload,
                 const struct step *step, int first, int num, uint32_t *seen, uint32_t *stamp) {
    size_t words = ((size_t)c->vocab + 31) / 32, at = p->entries;
    int begin, end, n = rows_that_fit(c, step, first, num, &begin, &end), adjusted = 0;
    int together = work_head_rows(&c->limits);
    int entry0 = (int)(at / sizeof(struct logit_entry)) - begin;
    size_t bytes = (size_t)(end - begin) * sizeof *step->entries;
    if (bytes > 0)
        memcpy(upload + at, step->entries + begin, bytes);
    int32_t *passes = (int32_t *)(void *)upload; // counted from the beginning, as the kernel does
    int pass = (int)(align16(at + bytes) / sizeof *passes);
    p->num_adjusted = 0;
    for (int r = first; r < first + n; r++) {
        const struct logits_row *row = &step->rows[r];
        struct cuda_row_prep *prep = &p->prep[r];
        if ((r - first) % together == 0)
            adjusted = 0;
        bool masked = step->masks && step->masks[r];
        prep->wanted = row->entry_end + entry0;
        if (row->target >= 0 || (!masked && row->entry_end <= row->entry_start))
            continue;
        prep->adjusted = adjusted++;
        p->num_adjusted = adjusted > p->num_adjusted ? adjusted : p->num_adjusted;
        prep->pass_start = prep->pass_end = pass;
        if (row->entry_end > row->entry_start) {
            pass += work_passes(passes + pass, step->entries, row->entry_start, row->entry_end, entry0, seen,
                                stamp);
            prep->pass_end = pass;
            passes[pass++] = row->entry_end + entry0;
        }
    }
    at = align16((size_t)pass * sizeof *passes);
    for (int r = first; step->masks && r < first + n; r++)
        if (step->masks[r] && p->prep[r].adjusted >= 0) {
            p->prep[r].mask = (int32_t)(at / sizeof(uint32_t));
            memcpy(upload + at, step->masks[r], words * sizeof(uint32_t));
            at += words * sizeof(uint32_t);
        }
    p->bytes = align16(at);
    return n;
}

void work_fill(struct step_work *p, const struct work_config *c, const struct cuda_inputs *in,
               unsigned char *upload, const struct step *step, int num_tokens, uint32_t *seen,
               uint32_t *stamp) {
    struct part_cursor to = {upload, (size_t)work_num_parts(c) * sizeof(struct cuda_part),
                             (struct cuda_part *)(void *)upload, 0};
    int T = step->num_tokens, R = step->num_rows, padding = num_tokens > T ? num_tokens - T : 0;
    int rows = R + padding;
    *p = (struct step_work){.num_tokens = T + padding,
                            .num_decode = step->num_decode + padding,
                            .num_rows = rows,
                            .one_launch = true};
    fill_rows(p, c, in, &to, step);
    fill_lora(p, c, in, &to, step);
    for (int g = 0; g < c->num_groups; g++)
        fill_group(p, c, in, &to, step, g);
    for (int a = 0; a < c->num_attn; a++) {
        fill_splits(p, c, in, &to, step, a);
        fill_tiles(p, c, in, &to, step, a);
        copy_part(&to, in->attn[a].counts, (int32_t[]){p->attn[a].num_splits, p->attn[a].num_tiles},
                  2 * sizeof(int32_t));
    }
    struct logits_row *out_rows = take_part(&to, in->rows, (size_t)rows * sizeof *out_rows);
    p->prep = take_part(&to, in->prep, (size_t)rows * sizeof *p->prep);
    if (R > 0)
        memcpy(out_rows, step->rows, (size_t)R * sizeof *out_rows);
    for (int r = 0; r < rows; r++) {
        if (r >= R)
            out_rows[r] = (struct logits_row){.row = -1, .target = -1, .num_logprobs = -1};
        p->prep[r] = work_row_prep(&out_rows[r]);
    }
    CHECK(to.num_parts == work_num_parts(c));
    p->entries = align48(to.at);
    p->entries_apart = work_entries(p, c, upload, step, 0, R, seen, stamp) < R;
    if (p->entries_apart)
        p->bytes = to.at;
}
