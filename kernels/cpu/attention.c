// Attention of the CPU backend: which queries meet which tiles of the cache on which thread. The arithmetic
// is body_attention.h's. Over 600 lines: decode and prefill share out the same tiles.
#include "half.h"
#include "kv.h"
#include "log.h"
#include "minmax.h"

#include <math.h>
#include <stdatomic.h>

// Rows times heads of a group that one work item holds: so often are keys and values used once they are in
// the L2 cache. RUN_CHUNKS: decode over more chunks is split into work items of at least so many (split-KV).
enum { MAX_ITEM_QUERIES = 128, ITEMS_PER_THREAD = 4, RUN_CHUNKS = 4 };

// decode: up to 8 query heads of one KV head per unit, MAX_UNITS units per work item. NEIGHBOUR_BYTES: keys, or values,
// of one KV tile that lie side by side in memory and are read together.
enum { MAX_UNITS = MAX_ITEM_QUERIES / ATTN_QUERIES, NEIGHBOUR_BYTES = 32 << 10 };

// Pages that a window gives back (kv_first_kept) hold no tile of the tokens that it keeps.
_Static_assert(KV_TILE % ATTN_TILE == 0, "tiles of 16 tokens do not cross the bound of what a window keeps");

// Type and bytes of an element of tiles as the kernels read them
static enum dtype tile_dtype(const struct device *dev) {
    return dev->kv_dtype == DTYPE_I8 ? DTYPE_BF16 : dev->kv_dtype;
}
static size_t tile_elem(const struct device *dev) { return dtype_row_bytes(tile_dtype(dev), 1); }

static const float LOG2_E = 1.44269504088896341f;

static size_t align64(size_t n) { return (n + 63) / 64 * 64; }

static int padded(int v) { return (v + LANES - 1) / LANES * LANES; }

// Whether keys are values, too, and lie in the cache as keys
static bool shares_values(const struct device *dev) { return kv_vectors(dev) == 1; }

size_t cpu_attn_scratch(struct device *dev, struct attn_scratch *s, char *memory) {
    int group = dev->max_group, d = dev->max_head_dim;
    size_t queries = (size_t)(group > MAX_ITEM_QUERIES ? group : MAX_ITEM_QUERIES);
    bool widens = dev->kv_dtype == DTYPE_I8;
    size_t tiles = align64((size_t)ATTN_CHUNK * (size_t)d * tile_elem(dev));
    size_t bytes[7] = {align64(queries * (size_t)d * 4),
                       align64(queries * 4),
                       align64(queries * 4),
                       align64((queries + ATTN_QUERIES) * (size_t)padded(d) * 4),
                       widens ? tiles : 0,
                       widens || shares_values(dev) ? tiles : 0,
                       align64((queries + ATTN_QUERIES) * (size_t)d * 4)};
    char *at[7];
    size_t total = 0;
    for (int i = 0; i < 7; i++) {
        at[i] = memory ? memory + total : NULL;
        total += bytes[i];
    }
    if (memory)
        *s = (struct attn_scratch){(void *)at[0], (void *)at[1], (void *)at[2], (void *)at[3],
                                   at[4],         at[5],         (void *)at[6]};
    return total;
}

// Floats of decode's partial for one chunk of one kv head: max and sum (group), out (group, d rounded up to 16).
static size_t partial_floats(int group, int d) { return (size_t)group * (size_t)(padded(d) + 2); }

// Enough for one sequence of the greatest length; 1 / 256 of the group's size of what that takes in the
// cache.
size_t cpu_attn_partials(const struct device *dev) {
    return ((size_t)dev->limits.max_context / ATTN_CHUNK + 1) * (size_t)dev->max_kv_heads;
}
size_t cpu_attn_partial_bytes(const struct device *dev) {
    return partial_floats(dev->max_group, dev->max_head_dim) * sizeof(float);
}

struct attend {
    struct device *dev;
    const struct layer *layer;
    const struct attn_spec *attn;
    int group, heads;   // query heads of a kv head; kv heads
    int d, v;           // elements of a key, and of what a head gets
    const float *sinks; // (H) or NULL
    const struct step *step;
    const struct step_group *pages;
    int seq0, seq1;
    int rows_per_item;
    bool decode; // sequences have one row each
    bool split;  // decode: long sequences are cut into runs, whose chunks go to slots and are merged later
    int heads_per_item; // of decode, kv heads; 0: a head at a time by attend_item()
    _Atomic int next;   // item not yet taken
};

// Tokens of a sequence that some of its rows attend to: [begin, *end)
static int attended(const struct attend *job, int seq, int row0, int row1, int *end) {
    const int32_t *positions = job->step->positions;
    int begin, context = job->step->context_len[seq], ignored;
    attn_seen(job->attn, positions[row0], context, &begin, &ignored);
    attn_seen(job->attn, positions[row1 - 1], context, &ignored, end);
    return begin;
}

static const char *kv_tile(const struct attend *job, const int32_t *blocks, int which, int head, int token) {
    const struct device *dev = job->dev;
    int B = dev->block_size;
    return kv_half(dev, job->layer, blocks[token / B], which) +
           kv_offset(dev, job->d, head, token % B) * kv_elem_bytes(dev);
}

// The tile of [tile0, tile1) that is next to tile i
static int clamp_tile(int i, int tile0, int tile1) { return min_int(max_int(i, tile0), tile1 - 1); }

// Where the chunk says what to prefetch with the keys (0) or values (1) of tile i
static const void **prefetch_slot(struct attn_chunk *c, int which, int i) {
    return &c->prefetch[i / STEP_TILES][which * STEP_TILES + i % STEP_TILES];
}

// The values of a tile of keys, whose first dimensions they are: tokens side by side become dimensions side by side.
static void transpose_tile(const struct device *dev, size_t d, void *values, const void *keys) {
    if (tile_dtype(dev) == DTYPE_F32) {
        for (size_t i = 0; i < d; i++)
            for (size_t o = 0; o < ATTN_TILE; o++)
                ((float *)values)[o * d + i] = ((const float *)keys)[i * ATTN_TILE + o];
    } else if (tile_dtype(dev) == DTYPE_F16) {
        for (size_t i = 0; i < d; i++)
            for (size_t o = 0; o < ATTN_TILE; o++)
                ((uint16_t *)values)[o * d + i] = ((const uint16_t *)keys)[i * ATTN_TILE + o];
    } else { // pairs of dimensions become pairs of tokens
        for (size_t i = 0; i < d; i++)
            for (size_t o = 0; o < ATTN_TILE; o++)
                ((uint16_t *)values)[o / 2 * 2 * d + 2 * i + o % 2] =
                    ((const uint16_t *)keys)[(i / 2 * ATTN_TILE + o) * 2 + i % 2];
    }
}

static void find_values(const struct attend *job, struct attn_chunk *c, char *scratch, int tile0, int tile1) {
    size_t bytes = (size_t)(ATTN_TILE * job->v) * tile_elem(job->dev);
    for (int i = tile0; i < tile1; i++) {
        c->values[i] = scratch + (size_t)i * bytes;
        c->value_scale[i] = c->key_scale[i];
        transpose_tile(job->dev, (size_t)job->v, scratch + (size_t)i * bytes, c->keys[i]);
    }
    for (int i = tile0 / STEP_TILES * STEP_TILES; i < tile1 || i % STEP_TILES; i++)
        *prefetch_slot(c, 1, i) = c->values[clamp_tile(i, tile0, tile1)];
}

// Points c at the tiles of one kv head that hold tokens [begin, end) of one chunk; and its prefetches at what
// follows up to `last`, or where nothing does, at a tile itself. Elements of I8 become BF16 in s.
static void find_tiles(const struct attend *job, struct attn_chunk *c, struct attn_scratch *s, int seq,
                       int head, int chunk, int begin, int last) {
    const struct device *dev = job->dev;
    const int32_t *blocks = job->pages->block_ids + job->pages->block_start[seq];
    int B = dev->block_size, d = job->d, first = chunk * ATTN_CHUNK;
    size_t tile = (size_t)ATTN_TILE * (size_t)d;
    bool int8 = dev->kv_dtype == DTYPE_I8;
    int end = last < first + ATTN_CHUNK ? last : first + ATTN_CHUNK;
    begin = begin > first ? begin : first;
    CHECK((last - 1) / B < job->pages->block_start[seq + 1] - job->pages->block_start[seq]);
    int tile0 = (begin - first) / ATTN_TILE, tile1 = (end - first + ATTN_TILE - 1) / ATTN_TILE;
    for (int which = 0; which < (int)kv_vectors(dev); which++) {
        const void **tiles = which ? c->values : c->keys;
        const float **scales = which ? c->value_scale : c->key_scale;
        char *scratch = which ? s->values : s->keys;
        for (int i = tile0; i < tile1; i++) {
            int t = first + i * ATTN_TILE;
            tiles[i] = kv_tile(job, blocks, which, head, t);
            if (int8)
                scales[i] = kv_scales(dev, job->layer, blocks[t / B], which) + head * B + t % B;
        }
        for (int i = tile0; int8 && i < tile1; i++) {
            uint16_t *wide = (uint16_t *)(void *)scratch + (size_t)i * tile;
            int t = first + (i + 1) * ATTN_TILE;
            dev->kernels->widen_i8(wide, tiles[i], ATTN_TILE * d,
                                   t < last ? kv_tile(job, blocks, which, head, t) : tiles[i]);
            tiles[i] = wide;
        }
        // The widened tiles have been read: prefetches their successors there.
        for (int i = tile0 / STEP_TILES * STEP_TILES; i < tile1 || i % STEP_TILES; i++) {
            int own = clamp_tile(i, tile0, tile1), later = first + i * ATTN_TILE + ATTN_STEP;
            *prefetch_slot(c, which, i) =
                !int8 && own == i && later < last ? kv_tile(job, blocks, which, head, later) : tiles[own];
        }
    }
    if (shares_values(dev))
        find_values(job, c, s->values, tile0, tile1);
}

// Where the chunks of a split sequence are kept
static float *partial_at(const struct attend *job, int first_partial, int num_chunks, int head, int chunk) {
    return job->dev->attn_partials +
           (size_t)(first_partial + head * num_chunks + chunk) * partial_floats(job->group, job->v);
}

// (T, H, d): of latent attention, whose values are still to be made of it, in place of the queries, which have been read.
static float *results(const struct device *dev) { return shares_values(dev) ? dev->q : dev->h; }

// y (d) of what the chunks of a query of head h have come to. A sink is one more chunk, the last.
static void finish_query(const struct attend *job, int h, float *y, float *out, float max, float sum, int d) {
    static const float no_values[MAX_HEAD_DIM];
    if (job->sinks)
        job->dev->kernels->attend_combine(&max, &sum, out, job->sinks[h] * LOG2_E, 1, no_values, d);
    for (int j = 0; j < d; j++)
        y[j] = out[j] / sum;
}

// The fields that all chunks of a dtype have in common
static struct attn_chunk new_chunk(const struct attend *job, enum dtype dtype) {
    const struct device *dev = job->dev;
    float cap = job->attn->softcap, scale = job->attn->scale;
    return (struct attn_chunk){.kv_dtype = dtype,
                               .head_dim = job->d,
                               .value_dim = job->v,
                               .scale = (cap > 0 ? cap : scale) * LOG2_E,
                               .inner = cap > 0 ? scale / cap : 0,
                               .scaled = dev->kv_dtype == DTYPE_I8,
                               .step1 = ATTN_CHUNK / ATTN_STEP};
}

// Lines that lie side by side for 8 queries
static int query_lines(const struct attend *job) { return kv_paired(job->dev) ? job->d / 2 : job->d; }

// q (d) becomes query i % 8 of the 8 at `to`. temporary (d)
static void put_query(const struct attend *job, float *to, int i, const float *q, float *temporary) {
    if (kv_paired(job->dev)) {
        job->dev->kernels->to_bf16((uint16_t *)(void *)temporary, q, job->d);
        q = temporary;
    }
    for (int j = 0; j < query_lines(job); j++)
        memcpy(to + j * ATTN_QUERIES + i % ATTN_QUERIES, q + j, sizeof *q);
}

// Which tokens of a chunk the query at `position` attends to
static void set_range(struct attn_chunk *c, int j, int position, int context, const struct attn_spec *a,
                      int chunk) {
    attn_seen(a, position, context, &c->begin[j], &c->end[j]);
    c->begin[j] -= chunk * ATTN_CHUNK;
    c->end[j] -= chunk * ATTN_CHUNK;
    c->begin[j] = c->begin[j] < 0 ? 0 : c->begin[j];
    c->end[j] = c->end[j] > ATTN_CHUNK ? ATTN_CHUNK : c->end[j];
}

// Rows [row0, row1) of one sequence, the heads of one group, over those of chunks [chunk0, chunk1) that they
// attend to. Positions of rows ascend. slots NULL: that is all chunks, and the rows of h come of it; else
// each chunk goes to its slot, chunk0's being at slots.
static void attend_item(const struct attend *job, struct attn_scratch *s, int seq, int head, int row0,
                        int row1, int chunk0, int chunk1, float *partials) {
    struct device *dev = job->dev;
    int d = job->d, v = job->v, group = job->group, pad = padded(v);
    int n = (row1 - row0) * group, width = attn_q_size(job->attn), end;
    const int32_t *positions = job->step->positions;
    int begin = attended(job, seq, row0, row1, &end);
    CHECK(begin >= 0 && end > begin && end <= dev->limits.max_context);
    for (int i = 0; i < n; i++) {
        const float *q = dev->q + (size_t)(row0 + i / group) * (size_t)width + (head * group + i % group) * d;
        put_query(job, s->q + i / ATTN_QUERIES * ATTN_QUERIES * query_lines(job), i, q, s->chunk_out);
        s->max[i] = -INFINITY, s->sum[i] = 0;
    }
    memset(s->out, 0, (size_t)(n * v) * sizeof(float));

    struct attn_chunk two[2] = {new_chunk(job, tile_dtype(dev))};
    const bool pairs = dev->kernels->attend_two && kv_paired(dev);
    end = end < chunk1 * ATTN_CHUNK ? end : chunk1 * ATTN_CHUNK;
    for (int chunk = chunk0; chunk < chunk1; chunk++) {
        float *partial =
            partials ? partials + (size_t)(chunk - chunk0) * partial_floats(job->group, job->v) : NULL;
        find_tiles(job, &two[0], s, seq, head, chunk, begin, end);
        if (pairs)
            two[1] = two[0];
        for (int i = 0, num; i < n; i += num * ATTN_QUERIES) {
            num = pairs && n - i > ATTN_QUERIES ? 2 : 1;
            for (int u = 0, from = i; u < num; u++, from += ATTN_QUERIES) {
                struct attn_chunk *c = &two[u];
                c->num_queries = n - from < ATTN_QUERIES ? n - from : ATTN_QUERIES;
                c->out = (partial ? partial + 2 * group + i * pad : s->chunk_out) + u * ATTN_QUERIES * pad;
                c->q = s->q + from * query_lines(job);
                for (int j = 0; j < c->num_queries; j++)
                    set_range(c, j, positions[row0 + (from + j) / group], job->step->context_len[seq],
                              job->attn, chunk);
            }
            if (num == 2)
                dev->kernels->attend_two(&two[0], &two[1]);
            else
                dev->kernels->attend(&two[0]);
            for (int from = i; from < n && from < i + num * ATTN_QUERIES; from++) {
                const struct attn_chunk *c = &two[(from - i) / ATTN_QUERIES];
                int j = (from - i) % ATTN_QUERIES;
                if (partial)
                    partial[from] = c->max[j], partial[group + from] = c->sum[j];
                else if (c->begin[j] < c->end[j])
                    dev->kernels->attend_combine(&s->max[from], &s->sum[from], s->out + from * v, c->max[j],
                                                 c->sum[j], c->out + j * pad, v);
            }
        }
    }
    for (int i = 0; !partials && i < n; i++)
        finish_query(job, head * group + i % group,
                     results(dev) + (size_t)(row0 + i / group) * (size_t)width +
                         (head * group + i % group) * d,
                     s->out + i * v, s->max[i], s->sum[i], v);
}

// A work item of decode: one row's query heads of kv heads [head0, head1)
struct decode {
    int seq, head0, head1;
    int per_head, num_units; // units of up to 8 queries; of one kv head, of all
    struct attn_chunk units[MAX_UNITS];
    // Keys (0) and values (1) of head0 in each attended tile of a chunk and of the step after it
    const char *tiles[CHUNK_TILES + STEP_TILES][2];
};

// Points all units at their tiles of tokens from `begin` to `last`. While step after step of a chunk goes
// through all heads, it prefetches the next step in the order of memory: fragments of one head alone come at
// two thirds of the speed.
static void decode_tiles(const struct attend *job, struct decode *m, int chunk, int begin, int last) {
    const struct device *dev = job->dev;
    const int32_t *blocks = job->pages->block_ids + job->pages->block_start[m->seq];
    int B = dev->block_size, heads = m->head1 - m->head0, first = chunk * ATTN_CHUNK;
    size_t next_head = (size_t)B * (size_t)job->d * kv_elem_bytes(dev); // bytes
    CHECK((last - 1) / B < job->pages->block_start[m->seq + 1] - job->pages->block_start[m->seq]);
    // Tiles [tile0, tile1) of the chunk and those of the step after it up to `past` are attended
    int tile0 = begin > first ? (begin - first) / ATTN_TILE : 0;
    int past = min_int((last - first + ATTN_TILE - 1) / ATTN_TILE, CHUNK_TILES + STEP_TILES);
    int tile1 = min_int(past, CHUNK_TILES);
    for (int i = tile0; i < past; i++)
        for (int which = 0; which < 2; which++)
            m->tiles[i][which] = kv_tile(job, blocks, which, m->head0, first + i * ATTN_TILE);
    for (int i = tile0; i < tile1; i++) {
        int t = first + i * ATTN_TILE;
        for (int which = 0; which < 2; which++) {
            const float *scale = dev->kv_dtype == DTYPE_I8
                                     ? kv_scales(dev, job->layer, blocks[t / B], which) + m->head0 * B + t % B
                                     : NULL;
            for (int u = 0; u < m->num_units; u++) {
                struct attn_chunk *c = &m->units[u];
                int head = u / m->per_head;
                *(which ? &c->values[i] : &c->keys[i]) = m->tiles[i][which] + (size_t)head * next_head;
                if (scale)
                    *(which ? &c->value_scale[i] : &c->key_scale[i]) = scale + head * B;
            }
        }
    }
    for (int step = tile0 / STEP_TILES; step * STEP_TILES < tile1; step++) {
        // The next step's tiles, divided among the first units of all heads; a unit without one of them
        // prefetches what it works on.
        int tile = max_int((step + 1) * STEP_TILES, tile0), which = 0, head = 0;
        int end = min_int((step + 2) * STEP_TILES, past);
        for (int u = 0; u < m->num_units; u++)
            for (int j = 0; j < 2 * STEP_TILES; j++) {
                const void **piece = &m->units[u].prefetch[step][j];
                if (u % m->per_head == 0 && tile < end) {
                    *piece = m->tiles[tile][which] + (size_t)head * next_head;
                    if (++head == heads) {
                        head = 0;
                        tile += which;
                        which = !which;
                    }
                } else {
                    int own = clamp_tile(step * STEP_TILES + j % STEP_TILES, tile0, tile1);
                    *piece = m->tiles[own][j / STEP_TILES] + (size_t)(u / m->per_head) * next_head;
                }
            }
    }
}

// The scales of a chunk of I8, which lie elsewhere
static void fetch_scales(const struct attend *job, const struct decode *m, int chunk, int begin, int last) {
    const struct device *dev = job->dev;
    const int32_t *blocks = job->pages->block_ids + job->pages->block_start[m->seq];
    int B = dev->block_size, first = chunk * ATTN_CHUNK, past = first + ATTN_CHUNK;
    if (dev->kv_dtype != DTYPE_I8)
        return;
    for (int t = first > begin ? first : begin / ATTN_TILE * ATTN_TILE; t < past && t < last; t += ATTN_TILE)
        for (int i = 0; i < 2 * (m->head1 - m->head0); i++)
            __builtin_prefetch(kv_scales(dev, job->layer, blocks[t / B], i % 2) + (m->head0 + i / 2) * B +
                               t % B);
}

// One row of one sequence, KV heads [head0, head1), over chunks [chunk0, chunk1). num_partials 0: these are all its
// chunks, and the result goes to h. Else each chunk writes a partial: those of a head are num_partials in a row from
// first_partial on, beginning with chunk `base`.
static void decode_item(const struct attend *job, struct attn_scratch *s, int seq, int head0, int head1,
                        int chunk0, int chunk1, int first_partial, int num_partials, int base) {
    struct device *dev = job->dev;
    int d = job->d, group = job->group, pad = padded(d), lines = query_lines(job);
    int row = job->step->query_start[seq], position = job->step->positions[row], end;
    int begin = attended(job, seq, row, row + 1, &end);
    size_t at_row = (size_t)row * (size_t)attn_q_size(job->attn);
    struct decode m = {
        .seq = seq, .head0 = head0, .head1 = head1, .per_head = (group + ATTN_QUERIES - 1) / ATTN_QUERIES};
    m.num_units = (head1 - head0) * m.per_head;
    CHECK(begin >= 0 && end > begin && end <= dev->limits.max_context && m.num_units <= MAX_UNITS);
    for (int u = 0; u < m.num_units; u++) {
        struct attn_chunk *c = &m.units[u];
        int head = head0 + u / m.per_head, from = u % m.per_head * ATTN_QUERIES;
        float *q = s->q + u * ATTN_QUERIES * lines;
        *c = new_chunk(job, dev->kv_dtype);
        c->q = q;
        c->num_queries = group - from < ATTN_QUERIES ? group - from : ATTN_QUERIES;
        for (int j = 0; j < c->num_queries; j++)
            put_query(job, q, j, dev->q + at_row + (size_t)((head * group + from + j) * d), s->chunk_out);
    }
    int queries = (head1 - head0) * group, last = end < chunk1 * ATTN_CHUNK ? end : chunk1 * ATTN_CHUNK;
    for (int i = 0; i < queries; i++)
        s->max[i] = -INFINITY, s->sum[i] = 0;
    memset(s->out, 0, (size_t)(queries * d) * sizeof(float));

    fetch_scales(job, &m, chunk0, begin, last);
    for (int chunk = chunk0; chunk < chunk1; chunk++) {
        fetch_scales(job, &m, chunk + 1, begin, last);
        decode_tiles(job, &m, chunk, begin, last);
        for (int u = 0; u < m.num_units; u++) {
            struct attn_chunk *c = &m.units[u];
            int head = head0 + u / m.per_head, from = u % m.per_head * ATTN_QUERIES;
            c->out = num_partials ? partial_at(job, first_partial, num_partials, head, chunk - base) +
                                        2 * group + from * pad
                                  : s->chunk_out + u * ATTN_QUERIES * pad;
            for (int j = 0; j < c->num_queries; j++)
                set_range(c, j, position, job->step->context_len[seq], job->attn, chunk);
        }
        for (int step = 0; step * ATTN_STEP + chunk * ATTN_CHUNK < last && step < ATTN_CHUNK / ATTN_STEP;
             step++)
            for (int u = 0; u < m.num_units; u++) {
                struct attn_chunk *c = &m.units[u];
                c->step0 = step, c->step1 = step + 1;
                dev->kernels->attend(c);
            }
        for (int u = 0; u < m.num_units; u++) {
            struct attn_chunk *c = &m.units[u];
            int head = head0 + u / m.per_head, from = u % m.per_head * ATTN_QUERIES;
            float *partial =
                num_partials ? partial_at(job, first_partial, num_partials, head, chunk - base) + from : NULL;
            for (int j = 0; j < c->num_queries; j++) {
                int i = (head - head0) * group + from + j;
                if (partial)
                    partial[j] = c->max[j], partial[group + j] = c->sum[j];
                else if (c->begin[j] < c->end[j])
                    dev->kernels->attend_combine(&s->max[i], &s->sum[i], s->out + i * d, c->max[j], c->sum[j],
                                                 c->out + j * pad, d);
            }
        }
    }
    for (int i = 0; !num_partials && i < queries; i++)
        finish_query(job, head0 * group + i, dev->h + at_row + (size_t)((head0 * group + i) * d),
                     s->out + i * d, s->max[i], s->sum[i], d);
}

// Chunks of a decoding sequence: [*chunk0, *chunk1)
static void decode_chunks(const struct attend *job, int seq, int *chunk0, int *chunk1) {
    int row = job->step->query_start[seq], end, begin = attended(job, seq, row, row + 1, &end);
    *chunk0 = begin / ATTN_CHUNK;
    *chunk1 = (end + ATTN_CHUNK - 1) / ATTN_CHUNK;
}

static bool is_split(const struct attend *job, int chunk0, int chunk1) {
    return job->split && chunk1 - chunk0 > RUN_CHUNKS;
}

// Threads take work items as they become free: which thread computes one changes no bit of it.
static void attend_worker(void *ctx, int thread, int num_threads) {
    (void)num_threads;
    struct attend *job = ctx;
    struct device *dev = job->dev;
    int mine = atomic_fetch_add(&job->next, 1), item = 0, first_partial = 0, heads = job->heads;
    for (int seq = job->seq0; seq < job->seq1; seq++) {
        int row0 = job->step->query_start[seq], row1 = job->step->query_start[seq + 1];
        int chunk0 = 0, chunk1 = 0;
        if (job->decode)
            decode_chunks(job, seq, &chunk0, &chunk1);
        bool split = is_split(job, chunk0, chunk1);
        if (split || job->heads_per_item) {
            int n = chunk1 - chunk0, run = split ? RUN_CHUNKS : n, each = job->heads_per_item;
            for (int c = chunk0; c < chunk1; c += run)
                for (int head = 0; head < heads; head += each ? each : 1, item++) {
                    int past = c + run < chunk1 ? c + run : chunk1;
                    if (item != mine)
                        continue;
                    if (each)
                        decode_item(job, &dev->attn[thread], seq, head,
                                    head + each < heads ? head + each : heads, c, past, first_partial,
                                    split ? n : 0, chunk0);
                    else
                        attend_item(job, &dev->attn[thread], seq, head, row0, row1, c, past,
                                    partial_at(job, first_partial, n, head, c - chunk0));
                    mine = atomic_fetch_add(&job->next, 1);
                }
            first_partial += split ? heads * n : 0;
            continue;
        }
        for (int row = row0; row < row1; row += job->rows_per_item)
            for (int head = 0; head < heads; head++, item++) {
                if (item != mine)
                    continue;
                int last = row + job->rows_per_item < row1 ? row + job->rows_per_item : row1, end;
                int begin = attended(job, seq, row, last, &end);
                attend_item(job, &dev->attn[thread], seq, head, row, last, begin / ATTN_CHUNK,
                            (end + ATTN_CHUNK - 1) / ATTN_CHUNK, NULL);
                mine = atomic_fetch_add(&job->next, 1);
            }
    }
}

// Combines the split-KV partials of sequences, chunks ascending. A work item: one query head of a sequence.
static void combine_worker(void *ctx, int thread, int num_threads) {
    struct attend *job = ctx;
    struct device *dev = job->dev;
    int group = job->group, d = job->d, v = job->v, pad = padded(v);
    int item = 0, first_partial = 0;
    float *out = dev->attn[thread].out;
    for (int seq = job->seq0; seq < job->seq1; seq++) {
        int chunk0, chunk1, row = job->step->query_start[seq];
        decode_chunks(job, seq, &chunk0, &chunk1);
        if (!is_split(job, chunk0, chunk1))
            continue;
        for (int head = 0; head < job->attn->heads; head++, item++) {
            if (item % num_threads != thread)
                continue;
            float max = -INFINITY, sum = 0;
            memset(out, 0, (size_t)v * sizeof(float));
            for (int c = 0; c < chunk1 - chunk0; c++) {
                const float *partial = partial_at(job, first_partial, chunk1 - chunk0, head / group, c);
                int g = head % group;
                dev->kernels->attend_combine(&max, &sum, out, partial[g], partial[group + g],
                                             partial + 2 * group + g * pad, v);
            }
            finish_query(job, head, results(dev) + (size_t)row * (size_t)attn_q_size(job->attn) + head * d,
                         out, max, sum, v);
        }
        first_partial += job->heads * (chunk1 - chunk0);
    }
}

// Sequences that have one row each, some of them long: as many at a time as there are slots for.
static void attend_split(struct attend *job, int seq0, int seq1) {
    int heads = job->heads;
    for (job->seq0 = seq0; job->seq0 < seq1; job->seq0 = job->seq1) {
        size_t partials = 0;
        for (job->seq1 = job->seq0; job->seq1 < seq1; job->seq1++) {
            int chunk0, chunk1;
            decode_chunks(job, job->seq1, &chunk0, &chunk1);
            size_t more = is_split(job, chunk0, chunk1) ? (size_t)((chunk1 - chunk0) * heads) : 0;
            CHECK(more <= cpu_attn_partials(job->dev));
            if (partials + more > cpu_attn_partials(job->dev))
                break;
            partials += more;
        }
        atomic_init(&job->next, 0);
        pool_run(job->dev->pool, attend_worker, job, true);
        if (partials > 0)
            pool_run(job->dev->pool, combine_worker, job, true);
    }
}

// KV heads per work item of decode: as many as lie together and pay, but enough items for all threads.
static int heads_per_item(const struct attend *job, int threads) {
    const struct device *dev = job->dev;
    int heads = job->heads, per_head = (job->group + ATTN_QUERIES - 1) / ATTN_QUERIES;
    int lie = (int)(NEIGHBOUR_BYTES / ((size_t)(ATTN_TILE * job->d) * kv_elem_bytes(dev)));
    int n = MAX_UNITS / per_head, chunk0, chunk1, runs = 0;
    if (!job->decode || n == 0 || shares_values(dev)) // attend_item() transposes values
        return 0;
    n = n < heads ? n : heads;
    n = lie == 0 ? 1 : n < lie ? n : lie;
    for (int seq = job->seq0; seq < job->seq1; seq++) {
        decode_chunks(job, seq, &chunk0, &chunk1);
        runs += is_split(job, chunk0, chunk1) ? (chunk1 - chunk0 + RUN_CHUNKS - 1) / RUN_CHUNKS : 1;
    }
    while (threads > 1 && n > 1 && runs * ((heads + n - 1) / n) < ITEMS_PER_THREAD * threads)
        n = (n + 1) / 2;
    return n > 1 || job->split ? n : 0; // one head at a time gains nothing by it
}

void cpu_attend(struct device *dev, const struct layer *layer, const struct step *step, int seq0, int seq1) {
    const struct attn_spec *a = &layer->attn;
    int group = a->heads / a->kv_heads, threads = pool_size(dev->pool), heads = a->kv_heads;
    struct attend job = {.dev = dev,
                         .layer = layer,
                         .attn = a,
                         .group = group,
                         .heads = heads,
                         .d = a->head_dim,
                         .v = attn_value_dim(a),
                         .sinks = layer->sinks ? layer->sinks->vector : NULL,
                         .step = step,
                         .pages = &step->groups[layer->kv_group],
                         .seq0 = seq0,
                         .seq1 = seq1};
    int rows = step->query_start[seq1] - step->query_start[seq0];
    // Large items use a tile of the cache often, many items keep all threads busy to the end.
    int items = rows * heads / (ITEMS_PER_THREAD * threads),
        least = group < ATTN_QUERIES ? ATTN_QUERIES / group : 1;
    job.rows_per_item = group < MAX_ITEM_QUERIES ? MAX_ITEM_QUERIES / group : 1;
    job.rows_per_item = items < job.rows_per_item ? items : job.rows_per_item;
    job.rows_per_item = job.rows_per_item < least ? least : job.rows_per_item;
    job.decode = seq0 == 0 && seq1 == step->num_decode;
    job.split = job.decode && threads > 1 && step->max_context_len > RUN_CHUNKS * ATTN_CHUNK;
    job.heads_per_item = heads_per_item(&job, threads);
    if (job.split) {
        attend_split(&job, seq0, seq1);
        return;
    }
    atomic_init(&job.next, 0);
    bool parallel = (long long)rows * attn_q_size(a) * step->max_context_len > 1 << 16;
    pool_run(dev->pool, attend_worker, &job, parallel);
}
