// Keys and values of the CPU backend, and attention over them: which queries meet which tiles on which
// thread. The arithmetic is body.h's.
//
// Layout, per layer and block: keys (K, B/16, d, 16) where B is a multiple of 16, else (K, B, d); values
// (K, B, d), whose 16 rows from a multiple of 16 are a tile, too.
#include "device.h"
#include "half.h"
#include "log.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { PREFILL_QUERIES = 32 }; // rows times heads of a group that one item holds

static size_t kv_elem(const struct device *dev) { return dtype_row_bytes(dev->kv_dtype, 1); }

// Bytes of the keys of one layer of one block.
static size_t kv_half(const struct device *dev) {
    return (size_t)dev->block_size * (size_t)device_kv_size(dev) * kv_elem(dev);
}

size_t cpu_kv_bytes(const struct device *dev, int num_blocks) {
    return 2 * (size_t)dev->model.num_layers * (size_t)num_blocks * kv_half(dev);
}

static char *kv_block(const struct device *dev, int layer, int64_t block, int which) {
    size_t index = (size_t)layer * (size_t)dev->limits.num_blocks + (size_t)block;
    return (char *)dev->kv.data + (index * 2 + (size_t)which) * kv_half(dev);
}

// Element i of the key of a token, relative to its block; values are where keys of untiled blocks are.
static size_t kv_index(const struct device *dev, bool tiled, int head, int offset, int i) {
    size_t d = (size_t)dev->model.head_dim, B = (size_t)dev->block_size, o = (size_t)offset;
    if (!tiled)
        return ((size_t)head * B + o) * d + (size_t)i;
    return (((size_t)head * (B / ATTN_TILE) + o / ATTN_TILE) * d + (size_t)i) * ATTN_TILE + o % ATTN_TILE;
}

static void convert(const struct device *dev, void *dst, const float *src, int n) {
    if (dev->kv_dtype == DTYPE_F32)
        memcpy(dst, src, (size_t)n * sizeof(float));
    else if (dev->kv_dtype == DTYPE_F16)
        dev->kernels->to_f16(dst, src, n);
    else
        dev->kernels->to_bf16(dst, src, n);
}

// dst[i * 16] = src[i]: one token into its lane of a tile
static void scatter(char *dst, const char *src, int n, size_t size) {
    if (size == 2)
        for (int i = 0; i < n; i++)
            memcpy(dst + (size_t)i * ATTN_TILE * 2, src + (size_t)i * 2, 2);
    else
        for (int i = 0; i < n; i++)
            memcpy(dst + (size_t)i * ATTN_TILE * 4, src + (size_t)i * 4, 4);
}

void cpu_kv_write(struct device *dev, int layer, int64_t slot, const float *key, const float *value) {
    int64_t block = slot / dev->block_size;
    int offset = (int)(slot % dev->block_size), d = dev->model.head_dim;
    size_t size = kv_elem(dev);
    float row[1024]; // d in kv_dtype
    CHECK(block < dev->limits.num_blocks && d <= 1024);
    char *keys = kv_block(dev, layer, block, 0), *values = kv_block(dev, layer, block, 1);
    for (int h = 0; h < dev->model.num_kv_heads; h++) {
        convert(dev, values + kv_index(dev, false, h, offset, 0) * size, value + h * d, d);
        char *dst = keys + kv_index(dev, dev->tiled, h, offset, 0) * size;
        if (!dev->tiled) {
            convert(dev, dst, key + h * d, d);
            continue;
        }
        convert(dev, row, key + h * d, d);
        scatter(dst, (const char *)row, d, size);
    }
}

void cpu_kv_copy(struct device *dev, int32_t block, void *canonical, bool export) {
    const struct model_config *m = &dev->model;
    size_t size = kv_elem(dev);
    char *p = canonical; // (L, 2, B, K, d)
    CHECK(block >= 0 && block < dev->limits.num_blocks);
    for (int layer = 0; layer < m->num_layers; layer++)
        for (int which = 0; which < 2; which++) {
            char *base = kv_block(dev, layer, block, which);
            for (int o = 0; o < dev->block_size; o++)
                for (int h = 0; h < m->num_kv_heads; h++)
                    for (int i = 0; i < m->head_dim; i++, p += size) {
                        char *at = base + kv_index(dev, dev->tiled && which == 0, h, o, i) * size;
                        memcpy(export ? p : at, export ? at : p, size);
                    }
        }
}

static size_t align64(size_t n) { return (n + 63) / 64 * 64; }

size_t cpu_attn_scratch(struct device *dev, struct attn_scratch *s, char *memory) {
    int group = dev->model.num_heads / dev->model.num_kv_heads, d = dev->model.head_dim;
    size_t queries = (size_t)(group > PREFILL_QUERIES ? group : PREFILL_QUERIES);
    size_t tiles = dev->tiled ? 0 : align64((size_t)ATTN_CHUNK * (size_t)d * kv_elem(dev));
    size_t bytes[6] = {align64(queries * (size_t)d * 4),
                       align64(queries * 4),
                       align64(queries * 4),
                       align64((size_t)ATTN_QUERIES * (size_t)(d + LANES) * 4),
                       tiles,
                       tiles};
    char *at[6];
    size_t total = 0;
    for (int i = 0; i < 6; i++) {
        at[i] = memory ? memory + total : NULL;
        total += bytes[i];
    }
    if (memory)
        *s = (struct attn_scratch){(void *)at[0], (void *)at[1], (void *)at[2], (void *)at[3], at[4], at[5]};
    return total;
}

struct attend {
    struct device *dev;
    float *h;       // (T, H*d)
    const float *q; // (T, H*d)
    int layer;
    const struct step *step;
    int seq0, seq1;
    int rows_per_item;
    _Atomic int next; // item not yet taken
};

// Points c at the tiles of one kv head that hold tokens [begin, end) of one chunk.
static void find_tiles(const struct attend *job, struct attn_chunk *c, struct attn_scratch *s, int seq,
                       int head, int chunk, int begin, int end) {
    const struct device *dev = job->dev;
    const int32_t *blocks = job->step->block_ids + job->step->block_start[seq];
    int B = dev->block_size, d = dev->model.head_dim;
    size_t size = kv_elem(dev), tile_bytes = (size_t)ATTN_TILE * (size_t)d * size;
    int first = chunk * ATTN_CHUNK;
    begin = begin > first ? begin : first;
    end = end < first + ATTN_CHUNK ? end : first + ATTN_CHUNK;
    CHECK((end - 1) / B < job->step->block_start[seq + 1] - job->step->block_start[seq]);
    for (int t = begin / ATTN_TILE * ATTN_TILE; t < end; t += ATTN_TILE) {
        int i = (t - first) / ATTN_TILE;
        if (dev->tiled) {
            c->keys[i] =
                kv_block(dev, job->layer, blocks[t / B], 0) + kv_index(dev, true, head, t % B, 0) * size;
            c->values[i] =
                kv_block(dev, job->layer, blocks[t / B], 1) + kv_index(dev, false, head, t % B, 0) * size;
            continue;
        }
        char *keys = s->keys + (size_t)i * tile_bytes, *values = s->values + (size_t)i * tile_bytes;
        c->keys[i] = keys;
        c->values[i] = values;
        for (int j = t > begin ? t : begin; j < t + ATTN_TILE && j < end; j++) {
            size_t at = kv_index(dev, false, head, j % B, 0) * size;
            scatter(keys + (size_t)(j - t) * size, kv_block(dev, job->layer, blocks[j / B], 0) + at, d, size);
            memcpy(values + (size_t)((j - t) * d) * size, kv_block(dev, job->layer, blocks[j / B], 1) + at,
                   (size_t)d * size);
        }
    }
}

// Rows [row0, row1) of one sequence, the heads of one group. Positions of rows ascend.
static void attend_item(const struct attend *job, struct attn_scratch *s, int seq, int head, int row0,
                        int row1) {
    struct device *dev = job->dev;
    int d = dev->model.head_dim, group = dev->model.num_heads / dev->model.num_kv_heads,
        window = dev->model.window;
    int n = (row1 - row0) * group, width = device_q_size(dev);
    const int32_t *positions = job->step->positions;
    int begin = window > 0 && positions[row0] + 1 > window ? positions[row0] + 1 - window : 0;
    int end = positions[row1 - 1] + 1;
    CHECK(begin >= 0 && end > begin && end <= dev->limits.max_context);
    for (int i = 0; i < n; i++)
        s->max[i] = -INFINITY, s->sum[i] = 0;
    memset(s->out, 0, (size_t)(n * d) * sizeof(float));

    struct attn_chunk c = {
        .kv_dtype = dev->kv_dtype, .head_dim = d, .scale = dev->model.attn_scale, .partial = s->partial};
    for (int chunk = begin / ATTN_CHUNK; chunk * ATTN_CHUNK < end; chunk++) {
        find_tiles(job, &c, s, seq, head, chunk, begin, end);
        for (int i = 0; i < n; i += ATTN_QUERIES) {
            c.num_queries = n - i < ATTN_QUERIES ? n - i : ATTN_QUERIES;
            for (int j = 0; j < c.num_queries; j++) {
                int row = row0 + (i + j) / group, last = positions[row] + 1;
                c.q[j] = job->q + (size_t)row * (size_t)width + (head * group + (i + j) % group) * d;
                c.begin[j] = (window > 0 && last > window ? last - window : 0) - chunk * ATTN_CHUNK;
                c.end[j] = last - chunk * ATTN_CHUNK;
                c.begin[j] = c.begin[j] < 0 ? 0 : c.begin[j];
                c.end[j] = c.end[j] > ATTN_CHUNK ? ATTN_CHUNK : c.end[j];
                c.max[j] = s->max + i + j;
                c.sum[j] = s->sum + i + j;
                c.out[j] = s->out + (i + j) * d;
            }
            dev->kernels->attend(&c);
        }
    }
    for (int i = 0; i < n; i++) {
        float *y = job->h + (size_t)(row0 + i / group) * (size_t)width + (head * group + i % group) * d;
        for (int j = 0; j < d; j++)
            y[j] = s->out[i * d + j] / s->sum[i];
    }
}

// Items are taken as threads become free: who does one changes no bit of it.
static void attend_share(void *ctx, int thread, int num_threads) {
    (void)num_threads;
    struct attend *job = ctx;
    int mine = atomic_fetch_add(&job->next, 1), item = 0;
    for (int seq = job->seq0; seq < job->seq1; seq++) {
        int end = job->step->query_start[seq + 1];
        for (int row = job->step->query_start[seq]; row < end; row += job->rows_per_item)
            for (int head = 0; head < job->dev->model.num_kv_heads; head++, item++) {
                if (item != mine)
                    continue;
                int last = row + job->rows_per_item < end ? row + job->rows_per_item : end;
                attend_item(job, &job->dev->attn[thread], seq, head, row, last);
                mine = atomic_fetch_add(&job->next, 1);
            }
    }
}

void cpu_attend(struct device *dev, float *h, const float *q, int layer, const struct step *step, int seq0,
                int seq1) {
    int group = dev->model.num_heads / dev->model.num_kv_heads;
    struct attend job = {
        .dev = dev, .h = h, .q = q, .layer = layer, .step = step, .seq0 = seq0, .seq1 = seq1};
    job.rows_per_item = group < PREFILL_QUERIES ? PREFILL_QUERIES / group : 1;
    atomic_init(&job.next, 0);
    int rows = step->query_start[seq1] - step->query_start[seq0];
    bool parallel = (long long)rows * device_q_size(dev) * step->max_context_len > 1 << 16;
    pool_run(dev->pool, attend_share, &job, parallel);
}
