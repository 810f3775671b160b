// Keys and values of the CPU backend, and attention over them: which queries meet which tiles on which
// thread. The arithmetic is body_attention.h's.
//
// Layout, per layer and block, of tiles of 16 tokens where the block size is a multiple of 16: keys (K, B/16,
// d, 16), values (K, B, d); of BF16 and I8 keys (K, B/16, d/2, 16, 2), values (K, B/16, 8, d, 2), so that the
// two numbers that are multiplied at once lie beside each other. Other block sizes have (K, B, d) for both
// and are gathered into such tiles. The layers of a block lie beside each other (blocks, layers, 2, …):
// memory that is written for the first time is given in pages of 2 MB, and a block then touches one, not one
// for each layer. The scales of I8 (blocks, layers, 2, K, B) follow all numbers.
//
// Over 600 lines, because items of prefill and of decode share the finding of tiles and the merging of
// chunks.
#include "device.h"
#include "half.h"
#include "log.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

// Rows times heads of a group that one item holds: so often are keys and values used once they are in the L2
// cache. RUN_CHUNKS: decode over more of them is cut into items of at least so many.
enum { MAX_ITEM_QUERIES = 128, ITEMS_PER_THREAD = 4, RUN_CHUNKS = 4 };

// Of decode: groups of up to 8 queries of one kv head that one item has, and the bytes of keys, and of
// values, that they read together of one tile of tokens, beside each other in memory.
enum { MAX_UNITS = MAX_ITEM_QUERIES / ATTN_QUERIES, NEIGHBOUR_BYTES = 32 << 10 };

static bool paired(const struct device *dev) {
    return dev->kv_dtype == DTYPE_BF16 || dev->kv_dtype == DTYPE_I8;
}

static size_t kv_elem(const struct device *dev) { return dtype_row_bytes(dev->kv_dtype, 1); }

// Type and bytes of a number in tiles as the kernels read them
static enum dtype tile_dtype(const struct device *dev) {
    return dev->kv_dtype == DTYPE_I8 ? DTYPE_BF16 : dev->kv_dtype;
}
static size_t tile_elem(const struct device *dev) { return dtype_row_bytes(tile_dtype(dev), 1); }

// Bytes of the numbers of the keys of one layer of one block.
static size_t kv_half(const struct device *dev) {
    return (size_t)dev->block_size * (size_t)device_kv_size(dev) * kv_elem(dev);
}

size_t cpu_kv_bytes(const struct device *dev, int num_blocks) {
    return 2 * (size_t)dev->model.num_layers * (size_t)num_blocks * (size_t)dev->block_size *
           (size_t)dev->model.num_kv_heads * backend_kv_vector_bytes(dev->kv_dtype, dev->model.head_dim);
}

static size_t kv_index_half(const struct device *dev, int layer, int64_t block, int which) {
    return ((size_t)block * (size_t)dev->model.num_layers + (size_t)layer) * 2 + (size_t)which;
}

static char *kv_block(const struct device *dev, int layer, int64_t block, int which) {
    return (char *)dev->kv.data + kv_index_half(dev, layer, block, which) * kv_half(dev);
}

// Scales (K, B) of the keys or values of a block of I8.
static float *kv_scales(const struct device *dev, int layer, int64_t block, int which) {
    size_t numbers = 2 * (size_t)dev->model.num_layers * (size_t)dev->limits.num_blocks * kv_half(dev);
    float *scales = (float *)(void *)((char *)dev->kv.data + (numbers + 63) / 64 * 64);
    return scales +
           kv_index_half(dev, layer, block, which) * (size_t)(dev->model.num_kv_heads * dev->block_size);
}

size_t cpu_kv_region(const struct device *dev, int num_blocks) { return cpu_kv_bytes(dev, num_blocks) + 64; }

// Element i of the key (which 0) or value (1) of token o of a tile.
static size_t tile_index(const struct device *dev, int which, size_t o, size_t i) {
    size_t d = (size_t)dev->model.head_dim;
    if (paired(dev))
        return which ? o / 2 * 2 * d + 2 * i + o % 2 : (i / 2 * ATTN_TILE + o) * 2 + i % 2;
    return which ? o * d + i : i * ATTN_TILE + o;
}

// The first element of a tile, relative to its block; of a token, where blocks are not tiled.
static size_t kv_index(const struct device *dev, int head, int offset) {
    size_t at = (size_t)head * (size_t)dev->block_size + (size_t)offset;
    return (dev->tiled ? at / ATTN_TILE * ATTN_TILE : at) * (size_t)dev->model.head_dim;
}

// One token into its place in a tile of numbers of `size` bytes. src (d)
static void scatter(const struct device *dev, char *tile, int which, int token, const char *src,
                    size_t size) {
    size_t d = (size_t)dev->model.head_dim, o = (size_t)token;
    if (which && !paired(dev)) {
        memcpy(tile + o * d * size, src, d * size);
        return;
    }
    size_t at = tile_index(dev, which, o, 0), step = tile_index(dev, which, o, 2) - at,
           odd = tile_index(dev, which, o, 1) - at;
    for (size_t i = 0; i < d; i++) {
        char *dst = tile + (at + i / 2 * step + i % 2 * odd) * size;
        if (size == 1)
            *dst = src[i];
        else if (size == 2)
            memcpy(dst, src + i * 2, 2);
        else
            memcpy(dst, src + i * 4, 4);
    }
}

static void convert(const struct device *dev, void *dst, float *scale, const float *src, int n) {
    switch (dev->kv_dtype) {
    case DTYPE_F32: memcpy(dst, src, (size_t)n * sizeof(float)); break;
    case DTYPE_F16: dev->kernels->to_f16(dst, src, n); break;
    case DTYPE_BF16: dev->kernels->to_bf16(dst, src, n); break;
    default: dev->kernels->to_i8(dst, scale, src, n); break;
    }
}

void cpu_kv_write(struct device *dev, int layer, int64_t slot, const float *key, const float *value) {
    int64_t block = slot / dev->block_size;
    int offset = (int)(slot % dev->block_size), d = dev->model.head_dim;
    size_t size = kv_elem(dev);
    float row[1024], scale = 0; // d in kv_dtype
    CHECK(block < dev->limits.num_blocks && d <= 1024);
    for (int which = 0; which < 2; which++)
        for (int h = 0; h < dev->model.num_kv_heads; h++) {
            const float *src = (which ? value : key) + h * d;
            char *dst = kv_block(dev, layer, block, which) + kv_index(dev, h, offset) * size;
            convert(dev, dev->tiled ? (void *)row : dst, &scale, src, d);
            if (dev->tiled)
                scatter(dev, dst, which, offset % ATTN_TILE, (const char *)row, size);
            if (dev->kv_dtype == DTYPE_I8)
                kv_scales(dev, layer, block, which)[h * dev->block_size + offset] = scale;
        }
}

void cpu_kv_copy(struct device *dev, int32_t block, void *canonical, bool export) {
    const struct model_config *m = &dev->model;
    size_t size = kv_elem(dev), d = (size_t)m->head_dim;
    char *p = canonical; // (L, 2, B, K, d), with I8 (B, K) scales after each (B, K, d)
    CHECK(block >= 0 && block < dev->limits.num_blocks);
    for (int layer = 0; layer < m->num_layers; layer++)
        for (int which = 0; which < 2; which++) {
            char *base = kv_block(dev, layer, block, which);
            for (int o = 0; o < dev->block_size; o++)
                for (int h = 0; h < m->num_kv_heads; h++)
                    for (size_t i = 0; i < d; i++, p += size) {
                        size_t in = dev->tiled ? tile_index(dev, which, (size_t)o % ATTN_TILE, i) : i;
                        char *at = base + (kv_index(dev, h, o) + in) * size;
                        memcpy(export ? p : at, export ? at : p, size);
                    }
            float *scales = dev->kv_dtype == DTYPE_I8 ? kv_scales(dev, layer, block, which) : NULL;
            for (int o = 0; scales && o < dev->block_size; o++)
                for (int h = 0; h < m->num_kv_heads; h++, p += sizeof(float)) {
                    void *at = &scales[h * dev->block_size + o];
                    memcpy(export ? (void *)p : at, export ? at : (void *)p, sizeof(float));
                }
        }
}

static size_t align64(size_t n) { return (n + 63) / 64 * 64; }

static int group_size(const struct device *dev) { return dev->model.num_heads / dev->model.num_kv_heads; }

static int padded_head(const struct device *dev) { return (dev->model.head_dim + LANES - 1) / LANES * LANES; }

size_t cpu_attn_scratch(struct device *dev, struct attn_scratch *s, char *memory) {
    int group = group_size(dev), d = dev->model.head_dim;
    size_t queries = (size_t)(group > MAX_ITEM_QUERIES ? group : MAX_ITEM_QUERIES);
    bool gathers = !dev->tiled || dev->kv_dtype == DTYPE_I8;
    size_t tiles = gathers ? align64((size_t)ATTN_CHUNK * (size_t)d * tile_elem(dev)) : 0;
    size_t scales = !dev->tiled && dev->kv_dtype == DTYPE_I8 ? 2 * ATTN_CHUNK * sizeof(float) : 0;
    size_t bytes[8] = {align64(queries * (size_t)d * 4),
                       align64(queries * 4),
                       align64(queries * 4),
                       align64((queries + ATTN_QUERIES) * (size_t)padded_head(dev) * 4),
                       tiles,
                       tiles,
                       scales,
                       align64((queries + ATTN_QUERIES) * (size_t)d * 4)};
    char *at[8];
    size_t total = 0;
    for (int i = 0; i < 8; i++) {
        at[i] = memory ? memory + total : NULL;
        total += bytes[i];
    }
    if (memory)
        *s = (struct attn_scratch){(void *)at[0], (void *)at[1], (void *)at[2], (void *)at[3],
                                   at[4],         at[5],         (void *)at[6], (void *)at[7]};
    return total;
}

// What decode keeps of one chunk of one kv head: max and sum (group), out (group, d rounded up to 16).
static size_t slot_floats(const struct device *dev) {
    return (size_t)group_size(dev) * (size_t)(padded_head(dev) + 2);
}

// Enough for one sequence of the greatest length; 1 / 256 of the group's size of what that takes in the
// cache.
size_t cpu_attn_slots(const struct device *dev) {
    return ((size_t)dev->limits.max_context / ATTN_CHUNK + 1) * (size_t)dev->model.num_kv_heads;
}
size_t cpu_attn_slot_bytes(const struct device *dev) { return slot_floats(dev) * sizeof(float); }

struct attend {
    struct device *dev;
    float *h;       // (T, H*d)
    const float *q; // (T, H*d)
    int layer;
    const struct step *step;
    int seq0, seq1;
    int rows_per_item;
    bool decode; // sequences have one row each
    bool split;  // decode: long sequences are cut into runs, whose chunks go to slots and are merged later
    int heads_per_item; // of decode, kv heads; 0: a head at a time by attend_item()
    _Atomic int next;   // item not yet taken
};

// Tokens of a sequence that some of its rows attend to: [begin, *end)
static int attended(const struct attend *job, int row0, int row1, int *end) {
    const int32_t *positions = job->step->positions;
    int window = job->dev->model.window;
    *end = positions[row1 - 1] + 1;
    return window > 0 && positions[row0] + 1 > window ? positions[row0] + 1 - window : 0;
}

static const char *kv_tile(const struct attend *job, const int32_t *blocks, int which, int head, int token) {
    const struct device *dev = job->dev;
    int B = dev->block_size;
    return kv_block(dev, job->layer, blocks[token / B], which) +
           kv_index(dev, head, token % B) * kv_elem(dev);
}

static int min_int(int a, int b) { return a < b ? a : b; }
static int max_int(int a, int b) { return a > b ? a : b; }

// The tile of [tile0, tile1) that is next to tile i
static int clamp_tile(int i, int tile0, int tile1) { return min_int(max_int(i, tile0), tile1 - 1); }

// Where it says what is asked for with the keys (0) or values (1) of tile i
static const void **ahead_of(struct attn_chunk *c, int which, int i) {
    return &c->ahead[i / STEP_TILES][which * STEP_TILES + i % STEP_TILES];
}

// Points c at the tiles of one kv head that hold tokens [begin, end) of one chunk; and ahead of them at what
// follows up to `last`, or where nothing does, at a tile itself. Numbers of I8 become BF16 in s.
static void find_tiles(const struct attend *job, struct attn_chunk *c, struct attn_scratch *s, int seq,
                       int head, int chunk, int begin, int last) {
    const struct device *dev = job->dev;
    const int32_t *blocks = job->step->block_ids + job->step->block_start[seq];
    int B = dev->block_size, d = dev->model.head_dim, first = chunk * ATTN_CHUNK;
    size_t size = kv_elem(dev), tile = (size_t)ATTN_TILE * (size_t)d;
    bool int8 = dev->kv_dtype == DTYPE_I8;
    int end = last < first + ATTN_CHUNK ? last : first + ATTN_CHUNK;
    begin = begin > first ? begin : first;
    CHECK((last - 1) / B < job->step->block_start[seq + 1] - job->step->block_start[seq]);
    int tile0 = (begin - first) / ATTN_TILE, tile1 = (end - first + ATTN_TILE - 1) / ATTN_TILE;
    for (int which = 0; which < 2; which++) {
        const void **tiles = which ? c->values : c->keys;
        const float **scales = which ? c->value_scale : c->key_scale;
        char *scratch = which ? s->values : s->keys;
        for (int i = tile0; dev->tiled && i < tile1; i++) {
            int t = first + i * ATTN_TILE;
            tiles[i] = kv_tile(job, blocks, which, head, t);
            if (int8)
                scales[i] = kv_scales(dev, job->layer, blocks[t / B], which) + head * B + t % B;
        }
        for (int i = tile0; dev->tiled && int8 && i < tile1; i++) {
            uint16_t *wide = (uint16_t *)(void *)scratch + (size_t)i * tile;
            int t = first + (i + 1) * ATTN_TILE;
            dev->kernels->widen_i8(wide, tiles[i], ATTN_TILE * d,
                                   t < last ? kv_tile(job, blocks, which, head, t) : tiles[i]);
            tiles[i] = wide;
        }
        for (int t = begin; !dev->tiled && t < end; t++) {
            int i = (t - first) / ATTN_TILE, o = (t - first) % ATTN_TILE;
            const char *src =
                kv_block(dev, job->layer, blocks[t / B], which) + kv_index(dev, head, t % B) * size;
            uint16_t row[1024];
            char *dst = scratch + (size_t)i * tile * tile_elem(dev);
            for (int j = 0; int8 && j < d; j++)
                row[j] = float_to_bf16((float)((const int8_t *)src)[j]);
            scatter(dev, dst, which, o, int8 ? (const char *)row : src, tile_elem(dev));
            tiles[i] = dst;
            if (int8) {
                float *scale = s->scales + which * ATTN_CHUNK + (t - first) / ATTN_TILE * ATTN_TILE;
                scale[o] = kv_scales(dev, job->layer, blocks[t / B], which)[head * B + t % B];
                scales[i] = scale;
            }
        }
        // What was gathered or widened has been read: the next chunk's is asked for there.
        bool direct = dev->tiled && !int8;
        for (int i = tile0 / STEP_TILES * STEP_TILES; i < tile1 || i % STEP_TILES; i++) {
            int own = clamp_tile(i, tile0, tile1), later = first + i * ATTN_TILE + ATTN_STEP;
            *ahead_of(c, which, i) =
                direct && own == i && later < last ? kv_tile(job, blocks, which, head, later) : tiles[own];
        }
    }
}

// Where the chunks of a split sequence are kept
static float *slot_at(const struct device *dev, int first_slot, int num_chunks, int head, int chunk) {
    return dev->attn_slots + (size_t)(first_slot + head * num_chunks + chunk) * slot_floats(dev);
}

// out / sum of query i of the item
static void finish_query(float *y, const float *out, float sum, int d) {
    for (int j = 0; j < d; j++)
        y[j] = out[j] / sum;
}

// What chunks of a dtype have in common
static struct attn_chunk new_chunk(const struct device *dev, enum dtype dtype) {
    return (struct attn_chunk){.kv_dtype = dtype,
                               .head_dim = dev->model.head_dim,
                               .scale = dev->model.attn_scale * 1.44269504088896341f,
                               .scaled = dev->kv_dtype == DTYPE_I8,
                               .step1 = ATTN_CHUNK / ATTN_STEP};
}

// Lines that lie side by side for 8 queries
static int query_lines(const struct device *dev) {
    return paired(dev) ? dev->model.head_dim / 2 : dev->model.head_dim;
}

// q (d) becomes query i % 8 of the 8 at `to`. temporary (d)
static void put_query(const struct device *dev, float *to, int i, const float *q, float *temporary) {
    if (paired(dev)) {
        dev->kernels->to_bf16((uint16_t *)(void *)temporary, q, dev->model.head_dim);
        q = temporary;
    }
    for (int j = 0; j < query_lines(dev); j++)
        memcpy(to + j * ATTN_QUERIES + i % ATTN_QUERIES, q + j, sizeof *q);
}

// Which tokens of a chunk the query at `position` attends to
static void set_range(struct attn_chunk *c, int j, int position, int window, int chunk) {
    int past = position + 1;
    c->begin[j] = (window > 0 && past > window ? past - window : 0) - chunk * ATTN_CHUNK;
    c->end[j] = past - chunk * ATTN_CHUNK;
    c->begin[j] = c->begin[j] < 0 ? 0 : c->begin[j];
    c->end[j] = c->end[j] > ATTN_CHUNK ? ATTN_CHUNK : c->end[j];
}

// Rows [row0, row1) of one sequence, the heads of one group, over those of chunks [chunk0, chunk1) that they
// attend to. Positions of rows ascend. slots NULL: that is all chunks, and the rows of h come of it; else
// each chunk goes to its slot, chunk0's being at slots.
static void attend_item(const struct attend *job, struct attn_scratch *s, int seq, int head, int row0,
                        int row1, int chunk0, int chunk1, float *slots) {
    struct device *dev = job->dev;
    int d = dev->model.head_dim, group = group_size(dev), window = dev->model.window, pad = padded_head(dev);
    int n = (row1 - row0) * group, width = device_q_size(dev), end;
    const int32_t *positions = job->step->positions;
    int begin = attended(job, row0, row1, &end);
    CHECK(begin >= 0 && end > begin && end <= dev->limits.max_context);
    for (int i = 0; i < n; i++) {
        const float *q = job->q + (size_t)(row0 + i / group) * (size_t)width + (head * group + i % group) * d;
        put_query(dev, s->q + i / ATTN_QUERIES * ATTN_QUERIES * query_lines(dev), i, q, s->partial);
        s->max[i] = -INFINITY, s->sum[i] = 0;
    }
    memset(s->out, 0, (size_t)(n * d) * sizeof(float));

    struct attn_chunk c = new_chunk(dev, tile_dtype(dev));
    end = end < chunk1 * ATTN_CHUNK ? end : chunk1 * ATTN_CHUNK;
    for (int chunk = chunk0; chunk < chunk1; chunk++) {
        find_tiles(job, &c, s, seq, head, chunk, begin, end);
        for (int i = 0; i < n; i += ATTN_QUERIES) {
            c.num_queries = n - i < ATTN_QUERIES ? n - i : ATTN_QUERIES;
            float *slot = slots ? slots + (size_t)(chunk - chunk0) * slot_floats(dev) : NULL;
            c.out = slot ? slot + 2 * group + i * pad : s->partial;
            for (int j = 0; j < c.num_queries; j++)
                set_range(&c, j, positions[row0 + (i + j) / group], window, chunk);
            c.q = s->q + i * query_lines(dev);
            dev->kernels->attend(&c);
            for (int j = 0; j < c.num_queries; j++) {
                if (slot)
                    slot[i + j] = c.max[j], slot[group + i + j] = c.sum[j];
                else if (c.begin[j] < c.end[j])
                    dev->kernels->attend_merge(&s->max[i + j], &s->sum[i + j], s->out + (i + j) * d, c.max[j],
                                               c.sum[j], c.out + j * pad, d);
            }
        }
    }
    for (int i = 0; !slots && i < n; i++)
        finish_query(job->h + (size_t)(row0 + i / group) * (size_t)width + (head * group + i % group) * d,
                     s->out + i * d, s->sum[i], d);
}

// What an item of decode works on: one row's query heads of kv heads [head0, head1)
struct decode {
    int seq, head0, head1;
    int per_head, num_units; // units of up to 8 queries; of one kv head, of all
    struct attn_chunk units[MAX_UNITS];
    // Keys (0) and values (1) of head0 in each attended tile of a chunk and of the step after it
    const char *tiles[CHUNK_TILES + STEP_TILES][2];
};

// Points all units at their tiles of tokens from `begin` to `last`. While step after step of a chunk goes
// through all heads, memory is asked for the next step in the order in which it lies there: fragments of one
// head alone come at two thirds of the speed (docs/performance.md).
static void decode_tiles(const struct attend *job, struct decode *m, int chunk, int begin, int last) {
    const struct device *dev = job->dev;
    const int32_t *blocks = job->step->block_ids + job->step->block_start[m->seq];
    int B = dev->block_size, heads = m->head1 - m->head0, first = chunk * ATTN_CHUNK;
    size_t next_head = (size_t)B * (size_t)dev->model.head_dim * kv_elem(dev); // bytes
    CHECK((last - 1) / B < job->step->block_start[m->seq + 1] - job->step->block_start[m->seq]);
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
        // What the step asks for, shared out among the first units of all heads; who has nothing to ask for
        // asks for what it works on.
        int tile = max_int((step + 1) * STEP_TILES, tile0), which = 0, head = 0;
        int end = min_int((step + 2) * STEP_TILES, past);
        for (int u = 0; u < m->num_units; u++)
            for (int j = 0; j < 2 * STEP_TILES; j++) {
                const void **piece = &m->units[u].ahead[step][j];
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
    const int32_t *blocks = job->step->block_ids + job->step->block_start[m->seq];
    int B = dev->block_size, first = chunk * ATTN_CHUNK, past = first + ATTN_CHUNK;
    if (dev->kv_dtype != DTYPE_I8)
        return;
    for (int t = first > begin ? first : begin / ATTN_TILE * ATTN_TILE; t < past && t < last; t += ATTN_TILE)
        for (int i = 0; i < 2 * (m->head1 - m->head0); i++)
            __builtin_prefetch(kv_scales(dev, job->layer, blocks[t / B], i % 2) + (m->head0 + i / 2) * B +
                               t % B);
}

// One row of one sequence, kv heads [head0, head1), over chunks [chunk0, chunk1). num_slots 0: that is all it
// attends to, and its part of h comes of it; else each chunk goes to its slot, those of a head being
// num_slots from first_slot on, that of chunk `base` the first. Where blocks are tiled.
static void decode_item(const struct attend *job, struct attn_scratch *s, int seq, int head0, int head1,
                        int chunk0, int chunk1, int first_slot, int num_slots, int base) {
    struct device *dev = job->dev;
    int d = dev->model.head_dim, group = group_size(dev), pad = padded_head(dev), lines = query_lines(dev);
    int row = job->step->query_start[seq], position = job->step->positions[row], end;
    int begin = attended(job, row, row + 1, &end);
    size_t at_row = (size_t)row * (size_t)device_q_size(dev);
    struct decode m = {
        .seq = seq, .head0 = head0, .head1 = head1, .per_head = (group + ATTN_QUERIES - 1) / ATTN_QUERIES};
    m.num_units = (head1 - head0) * m.per_head;
    CHECK(begin >= 0 && end > begin && end <= dev->limits.max_context && m.num_units <= MAX_UNITS);
    for (int u = 0; u < m.num_units; u++) {
        struct attn_chunk *c = &m.units[u];
        int head = head0 + u / m.per_head, from = u % m.per_head * ATTN_QUERIES;
        float *q = s->q + u * ATTN_QUERIES * lines;
        *c = new_chunk(dev, dev->kv_dtype);
        c->q = q;
        c->num_queries = group - from < ATTN_QUERIES ? group - from : ATTN_QUERIES;
        for (int j = 0; j < c->num_queries; j++)
            put_query(dev, q, j, job->q + at_row + (size_t)((head * group + from + j) * d), s->partial);
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
            c->out = num_slots
                         ? slot_at(dev, first_slot, num_slots, head, chunk - base) + 2 * group + from * pad
                         : s->partial + u * ATTN_QUERIES * pad;
            for (int j = 0; j < c->num_queries; j++)
                set_range(c, j, position, dev->model.window, chunk);
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
            float *slot = num_slots ? slot_at(dev, first_slot, num_slots, head, chunk - base) + from : NULL;
            for (int j = 0; j < c->num_queries; j++) {
                int i = (head - head0) * group + from + j;
                if (slot)
                    slot[j] = c->max[j], slot[group + j] = c->sum[j];
                else if (c->begin[j] < c->end[j])
                    dev->kernels->attend_merge(&s->max[i], &s->sum[i], s->out + i * d, c->max[j], c->sum[j],
                                               c->out + j * pad, d);
            }
        }
    }
    for (int i = 0; !num_slots && i < queries; i++)
        finish_query(job->h + at_row + (size_t)((head0 * group + i) * d), s->out + i * d, s->sum[i], d);
}

// Chunks of a decoding sequence: [*chunk0, *chunk1)
static void decode_chunks(const struct attend *job, int seq, int *chunk0, int *chunk1) {
    int row = job->step->query_start[seq], end, begin = attended(job, row, row + 1, &end);
    *chunk0 = begin / ATTN_CHUNK;
    *chunk1 = (end + ATTN_CHUNK - 1) / ATTN_CHUNK;
}

static bool is_split(const struct attend *job, int chunk0, int chunk1) {
    return job->split && chunk1 - chunk0 > RUN_CHUNKS;
}

// Items are taken as threads become free: who does one changes no bit of it.
static void attend_share(void *ctx, int thread, int num_threads) {
    (void)num_threads;
    struct attend *job = ctx;
    struct device *dev = job->dev;
    int mine = atomic_fetch_add(&job->next, 1), item = 0, first_slot = 0, heads = dev->model.num_kv_heads;
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
                                    head + each < heads ? head + each : heads, c, past, first_slot,
                                    split ? n : 0, chunk0);
                    else
                        attend_item(job, &dev->attn[thread], seq, head, row0, row1, c, past,
                                    slot_at(dev, first_slot, n, head, c - chunk0));
                    mine = atomic_fetch_add(&job->next, 1);
                }
            first_slot += split ? heads * n : 0;
            continue;
        }
        for (int row = row0; row < row1; row += job->rows_per_item)
            for (int head = 0; head < heads; head++, item++) {
                if (item != mine)
                    continue;
                int last = row + job->rows_per_item < row1 ? row + job->rows_per_item : row1, end;
                int begin = attended(job, row, last, &end);
                attend_item(job, &dev->attn[thread], seq, head, row, last, begin / ATTN_CHUNK,
                            (end + ATTN_CHUNK - 1) / ATTN_CHUNK, NULL);
                mine = atomic_fetch_add(&job->next, 1);
            }
    }
}

// The chunks of split sequences, in ascending order. An item is one query head of one sequence.
static void merge_share(void *ctx, int thread, int num_threads) {
    struct attend *job = ctx;
    struct device *dev = job->dev;
    int group = group_size(dev), d = dev->model.head_dim, pad = padded_head(dev);
    int item = 0, first_slot = 0;
    float *out = dev->attn[thread].out;
    for (int seq = job->seq0; seq < job->seq1; seq++) {
        int chunk0, chunk1, row = job->step->query_start[seq];
        decode_chunks(job, seq, &chunk0, &chunk1);
        if (!is_split(job, chunk0, chunk1))
            continue;
        for (int head = 0; head < dev->model.num_heads; head++, item++) {
            if (item % num_threads != thread)
                continue;
            float max = -INFINITY, sum = 0;
            memset(out, 0, (size_t)d * sizeof(float));
            for (int c = 0; c < chunk1 - chunk0; c++) {
                const float *slot = slot_at(dev, first_slot, chunk1 - chunk0, head / group, c);
                int g = head % group;
                dev->kernels->attend_merge(&max, &sum, out, slot[g], slot[group + g],
                                           slot + 2 * group + g * pad, d);
            }
            finish_query(job->h + (size_t)row * (size_t)device_q_size(dev) + head * d, out, sum, d);
        }
        first_slot += dev->model.num_kv_heads * (chunk1 - chunk0);
    }
}

// Sequences that have one row each, some of them long: as many at a time as there are slots for.
static void attend_split(struct attend *job, int seq0, int seq1) {
    int heads = job->dev->model.num_kv_heads;
    for (job->seq0 = seq0; job->seq0 < seq1; job->seq0 = job->seq1) {
        size_t slots = 0;
        for (job->seq1 = job->seq0; job->seq1 < seq1; job->seq1++) {
            int chunk0, chunk1;
            decode_chunks(job, job->seq1, &chunk0, &chunk1);
            size_t more = is_split(job, chunk0, chunk1) ? (size_t)((chunk1 - chunk0) * heads) : 0;
            CHECK(more <= cpu_attn_slots(job->dev));
            if (slots + more > cpu_attn_slots(job->dev))
                break;
            slots += more;
        }
        atomic_init(&job->next, 0);
        pool_run(job->dev->pool, attend_share, job, true);
        if (slots > 0)
            pool_run(job->dev->pool, merge_share, job, true);
    }
}

// Of decode: as many heads as lie together and are worth it, but items for all threads.
static int heads_per_item(const struct attend *job, int threads) {
    const struct device *dev = job->dev;
    int heads = dev->model.num_kv_heads, per_head = (group_size(dev) + ATTN_QUERIES - 1) / ATTN_QUERIES;
    int lie = (int)(NEIGHBOUR_BYTES / ((size_t)(ATTN_TILE * dev->model.head_dim) * kv_elem(dev)));
    int n = MAX_UNITS / per_head, chunk0, chunk1, runs = 0;
    if (!job->decode || !dev->tiled || n == 0)
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

void cpu_attend(struct device *dev, float *h, const float *q, int layer, const struct step *step, int seq0,
                int seq1) {
    int group = group_size(dev), threads = pool_size(dev->pool), heads = dev->model.num_kv_heads;
    struct attend job = {
        .dev = dev, .h = h, .q = q, .layer = layer, .step = step, .seq0 = seq0, .seq1 = seq1};
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
    bool parallel = (long long)rows * device_q_size(dev) * step->max_context_len > 1 << 16;
    pool_run(dev->pool, attend_share, &job, parallel);
}
