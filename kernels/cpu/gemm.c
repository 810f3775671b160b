// GEMM over panels of packed weights: divides it among threads, in order, into tiles (two panels times some tokens),
// and finishes their sums. The arithmetic is body_gemm.h's.
#include "device.h"
#include "log.h"

#include <math.h>
#include <string.h>

enum {
    CACHED_ACTIVATIONS = 1 << 18, // bytes of activations, and
    CACHED_WEIGHTS = 3 << 17,     // of weights, that stay in the L2 cache together
    CACHED_PAIRS = 1 << 20,       // of activations that tiles of many tokens take
    CACHED_PIECE = 5 << 18,       // of those of a piece of K
    MANY_ROWS = 64,
    SMALL = 1 << 16, // multiply-adds that are done sooner than another thread wakes
    TILE = TILE_PANELS * MANY_TOKENS * LANES,
};

// ---- activations

struct prepare {
    struct device *dev;
    const float *x;
    size_t ldx; // floats from row to row
    int cols;
    const int32_t *rows; // row i is row rows[i * step] of x; NULL: row i
    size_t step;
    const float *scales;       // of rows, or NULL
    const struct weight *norm; // or NULL
    unsigned dtypes;
    struct gemm_input *out;
};

static void *row_of(const struct prepare *job, enum dtype dtype, int t) {
    return (char *)(uintptr_t)job->out->data[dtype] + (size_t)t * job->out->stride[dtype];
}

static void prepare_row(const struct prepare *job, int t) {
    const struct cpu_kernels *k = job->dev->kernels;
    int n = job->cols;
    const float *x = job->x + (size_t)(job->rows ? job->rows[(size_t)t * job->step] : t) * job->ldx;
    float *floats = row_of(job, DTYPE_F32, t);
    if (job->norm) {
        device_norm(job->dev, floats, x, job->norm, 0, n);
        x = floats;
    } else if (job->scales) {
        for (int i = 0; i < n; i++)
            floats[i] = x[i] * job->scales[t];
        x = floats;
    } else if (job->dtypes & (1u << DTYPE_F32 | 1u << DTYPE_F16)) {
        memcpy(floats, x, (size_t)n * sizeof *x);
    }
    if (job->dtypes & 1u << DTYPE_BF16) {
        uint16_t *y = row_of(job, DTYPE_BF16, t);
        k->to_bf16(y, x, n);
        if (n % 2)
            y[n] = 0;
    }
    if (job->dtypes & DTYPES_QUANTISED)
        k->to_q8(row_of(job, DTYPE_Q8_0, t), x, n);
    if (job->out->pairs)
        k->to_pairs((uint16_t *)(uintptr_t)(job->out->pairs + (size_t)t * job->out->pairs_stride),
                    row_of(job, DTYPE_Q8_0, t), n);
}

static void prepare_worker(void *ctx, int thread, int num_threads) {
    const struct prepare *job = ctx;
    (void)num_threads;
    for (int begin, end; pool_take(job->dev->pool, thread, 1, &begin, &end);)
        for (int t = begin; t < end; t++)
            prepare_row(job, t);
}

static struct gemm_input prepare(struct prepare *job, const struct act_rows *rows, int num_rows,
                                 const struct weight *w) {
    struct gemm_input a = {.num_rows = num_rows};
    int cols = job->cols;
    job->out = &a;
    for (int i = 0; i < w->num_parts; i++)
        job->dtypes |= 1u << w->part[i].dtype;
    for (int i = 0; i < DTYPE_COUNT; i++) {
        bool q8 = DTYPES_QUANTISED & 1u << i, bf16 = i == DTYPE_BF16;
        a.data[i] = q8 ? rows->q8 : bf16 ? rows->bf16 : rows->floats;
        a.stride[i] = activation_stride(q8     ? (size_t)(cols / 32) * sizeof(struct act_q8)
                                        : bf16 ? (size_t)(cols + 1) / 2 * 2 * sizeof(uint16_t)
                                               : (size_t)cols * sizeof(float));
    }
    if (rows->pairs && job->dtypes & DTYPES_QUANTISED && num_rows >= LEAST_TOKENS) {
        a.pairs = rows->pairs;
        a.pairs_stride = activation_stride((size_t)cols * sizeof(uint16_t));
    }
    pool_run_items(job->dev->pool, prepare_worker, job, num_rows, (long long)num_rows * cols > SMALL / 8);
    return a;
}

struct gemm_input cpu_gemm_input(struct device *dev, const float *x, int num_rows,
                                 const struct logits_row *rows, const struct weight *w,
                                 const struct weight *norm) {
    struct prepare job = {.dev = dev, .x = x, .ldx = (size_t)w->part[0].cols, .cols = w->part[0].cols};
    job.norm = norm;
    job.rows = rows ? &rows->row : NULL;
    job.step = sizeof *rows / sizeof(int32_t);
    return prepare(&job, &dev->rows, num_rows, w);
}

struct gemm_input cpu_gemm_slots(struct device *dev, const float *x, size_t ldx, int num_slots,
                                 const int32_t *rows, const float *scales, const struct weight *w) {
    struct prepare job = {
        .dev = dev, .x = x, .ldx = ldx, .cols = w->part[0].cols, .rows = rows, .step = 1, .scales = scales};
    return prepare(&job, &dev->slots, num_slots, w);
}

// ---- GEMM

enum gemm_finish { FINISH_COPY, FINISH_ADD, FINISH_PART, FINISH_ACT, FINISH_GATED };

struct matmul {
    const struct cpu_kernels *kernels;
    struct pool *pool;
    struct gemm_input x;
    const struct weight *w;
    struct weight_part part[3]; // of it, or of one of its experts
    const float *bias[2];       // of gate and up, or NULL
    enum gemm_finish finish;
    float *y[3];
    int ldy[3];
    act_fn *act; // with FINISH_ACT and FINISH_GATED
    float *sums; // (threads, PIECE_SUMS)
};

// A pair of panels of one part against tokens [t, t + n). The second may be missing: it is then the first
// again, and what comes out of it is dropped.
struct tile_place {
    int part, panel, num_panels; // 1 or 2
    int t, n;                    // n <= most_tokens()
    int tile, num_tiles;         // which of those that follow each other on these groups
    int piece, num_pieces;       // of K
    int t0, pair;                // with pieces: the first of tokens that go together, and which of the pairs
    float *sums;                 // with pieces: (levels, pairs, tokens, 2 * LANES), of one thread
    struct prefetch_plan prefetch[2]; // of the part, and of up
};

// Whether tiles unpack the weights of a part, which pays from some tokens on.
static bool unpacks(const struct matmul *job, const struct weight_part *p) {
    return job->x.pairs && DTYPES_QUANTISED & 1u << p->dtype && job->x.num_rows >= LEAST_TOKENS;
}

// The most tokens of a tile of the part; FINISH_GATED: that both gate and up can take.
static int most_tokens(const struct matmul *job, const struct weight_part *p) {
    int most = unpacks(job, p) ? MANY_TOKENS : job->kernels->tile_tokens[p->dtype];
    const struct weight_part *up = &job->part[1];
    if (job->finish == FINISH_GATED && p != up) {
        int other = most_tokens(job, up);
        most = other < most ? other : most;
    }
    return most;
}

// Whether sums are those of segments.
static bool in_segments(const struct matmul *job) {
    return (job->finish == FINISH_ADD || job->finish == FINISH_PART) && job->w->num_segments > 1;
}

// Where piece i of n begins, in blocks of K: at a multiple of PIECE_UNIT k.
static int piece_begin(const struct weight_part *p, int i, int n) {
    return i == n ? p->num_blocks : p->cols / PIECE_UNIT * i / n * (PIECE_UNIT / p->block);
}

// Prefetches of a tile on a piece of K: all tiles together prefetch that piece of the next pair of panels, the first
// tiles that of the first panel, the rest that of the second
static struct prefetch prefetch_of_piece(const struct weight_part *p, const char *w, const int *bounds,
                                         int tile, int num_tiles) {
    const int shares = num_tiles < MAX_SHARES ? (num_tiles + 1) / 2 : MAX_SHARES / 2, panel = tile / shares;
    const size_t block = p->panel_bytes / (size_t)p->num_blocks, step = block / (size_t)shares + 1;
    const size_t first = (size_t)bounds[0], blocks = (size_t)bounds[1] - first;
    if (panel >= TILE_PANELS)
        return (struct prefetch){.at = (uintptr_t)w};
    uintptr_t at = (uintptr_t)w + (TILE_PANELS + (size_t)panel) * p->panel_bytes + first * block;
    return (struct prefetch){
        .at = at + blocks * step * (size_t)(tile % shares) - first * step, .step = step, .far = true};
}

// Runs the kernel on a tile, in the part itself or (second) in up. y: where the sums of the first row and token go
static void run_tile(const struct matmul *job, const struct tile_place *at, bool second, float *y, size_t ldy,
                     size_t next_panel, bool add) {
    const struct weight_part *p = &job->part[second ? 1 : at->part];
    const char *first = p->data + (size_t)at->panel * p->panel_bytes;
    const size_t ldx = job->x.stride[p->dtype];
    const bool pieces = at->num_pieces > 1;
    // A rank that has 4, 2 or 1 of the 8 segments has a whole part of the tree of their sums, and so has a piece.
    const int num_segments = in_segments(job) ? job->w->num_segments / at->num_pieces : 1;
    const int all[] = {piece_begin(p, at->piece, at->num_pieces),
                       piece_begin(p, at->piece + 1, at->num_pieces)};
    const int *bounds = in_segments(job) ? job->w->segments + at->piece * num_segments : all;
    job->kernels->gemm[p->dtype](&(struct gemm_tile){
        .w = {first, at->num_panels == 2 ? first + p->panel_bytes : first},
        .x = (const char *)job->x.data[p->dtype] + (size_t)at->t * ldx,
        .ldx = ldx,
        .pairs = unpacks(job, p) ? job->x.pairs + (size_t)at->t * job->x.pairs_stride : NULL,
        .ld_pairs = job->x.pairs_stride,
        .num_tokens = at->n,
        .bounds = bounds,
        .num_segments = num_segments,
        .y = y,
        .ldy = ldy,
        .next_panel = next_panel,
        .add = add,
        .resume = at->piece > 0 && !in_segments(job),
        .prefetch = pieces ? prefetch_of_piece(p, first, bounds, at->tile, at->num_tiles)
                           : prefetch_of_tile(&at->prefetch[second], first, at->n, at->tile)});
}

// Rows of gate (0) or up (1) from a panel on, before they are multiplied.
static void add_bias(const struct matmul *job, int part, float *x, size_t ldx, int panel, int rows, int n) {
    const float *bias = job->bias[part];
    for (int t = 0; bias && t < rows; t++)
        for (int i = 0; i < n; i++)
            x[(size_t)t * ldx + (size_t)i] += bias[panel * LANES + i];
}

static float *tile_y(const struct matmul *job, const struct tile_place *at) {
    return job->y[at->part] + (size_t)at->t * (size_t)job->ldy[at->part] + at->panel * LANES;
}

// Finishes a tile's sums, (2, n, 16), with FINISH_GATED together with up's, and writes them to y
static void finish_tile(const struct matmul *job, const struct tile_place *at, float *tile, float *up) {
    size_t ldy = (size_t)job->ldy[at->part];
    float *y = tile_y(job, at);
    int rows_left = job->part[at->part].rows - at->panel * LANES;
    for (int g = 0; g < at->num_panels; g++, y += LANES, rows_left -= LANES) {
        int width = rows_left < LANES ? rows_left : LANES;
        float *from = tile + g * at->n * LANES;
        if (job->act) {
            bool gated = job->finish == FINISH_GATED;
            add_bias(job, 0, from, LANES, at->panel + g, at->n, width);
            if (gated)
                add_bias(job, 1, up + g * at->n * LANES, LANES, at->panel + g, at->n, width);
            job->act(y, ldy, from, gated ? up + g * at->n * LANES : NULL, LANES, at->n, width);
            continue;
        }
        for (int t = 0; t < at->n; t++) {
            float *to = y + (size_t)t * ldy;
            const float *row = from + t * LANES;
            if (job->finish != FINISH_ADD)
                memcpy(to, row, (size_t)width * sizeof *to);
            else
                for (int c = 0; c < width; c++)
                    to[c] += row[c];
        }
    }
}

// A tile of which not all goes to y as it comes.
static void do_buffered_tile(const struct matmul *job, const struct tile_place *at) {
    float tile[TILE], up[TILE];
    size_t next_panel = (size_t)at->n * LANES, ldy = (size_t)job->ldy[at->part];
    float *y = tile_y(job, at);
    for (int t = 0; t < at->n; t++) // as tiles that go to y do by themselves
        for (int g = 0; g < at->num_panels; g++)
            __builtin_prefetch(y + (size_t)t * ldy + g * LANES, 1);
    run_tile(job, at, false, tile, LANES, next_panel, false);
    if (job->finish == FINISH_GATED)
        run_tile(job, at, true, up, LANES, next_panel, false);
    finish_tile(job, at, tile, up);
}

static void do_tile(const struct matmul *job, const struct tile_place *at) {
    int rows_left = job->part[at->part].rows - at->panel * LANES;
    if (job->act || at->num_panels < TILE_PANELS || rows_left < TILE_PANELS * LANES)
        do_buffered_tile(job, at);
    else
        run_tile(job, at, false, tile_y(job, at), (size_t)job->ldy[at->part], LANES,
                 job->finish == FINISH_ADD);
}

typedef void tile_do(const struct matmul *job, const struct tile_place *at);

// Tokens [t0, t1) of a pair of panels, in the fewest tiles of the size that the kernels like, all of much
// the same size.
static void do_tokens(const struct matmul *job, struct tile_place *at, int t0, int t1, tile_do *do_one) {
    const struct weight_part *part = &job->part[at->part];
    unsigned most = (unsigned)most_tokens(job, part), n = (unsigned)(t1 - t0);
    unsigned tiles = (n + most - 1) / most, small = n / tiles, larger = n % tiles; // as many have one more
    at->prefetch[0] = prefetch_plan(part->panel_bytes, part->num_blocks, (int)tiles);
    if (job->finish == FINISH_GATED)
        at->prefetch[1] = prefetch_plan(part[1].panel_bytes, part[1].num_blocks, (int)tiles);
    at->t = t0;
    at->num_tiles = (int)tiles;
    for (unsigned i = 0; i < tiles; i++, at->t += at->n) {
        at->n = (int)(small + (i < larger));
        at->tile = (int)i;
        do_one(job, at);
    }
}

// ---- K in pieces
// Tiles of AMX read the activations of all their tokens for each pair of panels. Where those do not stay in the L2
// cache, K is cut into pieces of which they do, and sums wait in memory for the next piece. With segments a piece is a
// part of the tree of rule 3: its sums are stored on even pieces and added to on odd ones, at the level of the tree.

static bool tiles_of_amx(const struct matmul *job, const struct weight_part *p) {
    return most_tokens(job, p) > REGISTER_TOKENS && job->x.num_rows > MAX_TILE_TOKENS;
}

static int num_pieces(const struct matmul *job, const struct weight_part *p, int tokens) {
    size_t bytes = (size_t)tokens * (size_t)p->cols * sizeof(uint16_t);
    int n = (int)((bytes + CACHED_PIECE - 1) / CACHED_PIECE), num_segments = job->w->num_segments;
    if (!tiles_of_amx(job, p))
        return 1;
    if (!in_segments(job))
        return n <= p->cols / PIECE_UNIT ? n : 1;
    for (int pieces = 1;; pieces *= 2)
        if (pieces >= n || pieces == num_segments)
            return pieces;
}

// The tile's sums among those of the pair on a level
static float *waiting(const struct tile_place *at, int level) {
    return at->sums +
           (((size_t)level * PIECE_PAIRS + (size_t)at->pair) * PIECE_TOKENS + (size_t)(at->t - at->t0)) * 2 *
               LANES;
}

static void do_piece(const struct matmul *job, const struct tile_place *at) {
    const bool tree = in_segments(job), second = at->piece % 2 > 0;
    const size_t next_panel = (size_t)at->n * LANES;
    // Level l waits while the pieces after it that its sums are added to are worked on: one for each bit.
    int level = tree ? __builtin_popcount((unsigned)at->piece / 2) : 0;
    run_tile(job, at, false, waiting(at, level), LANES, next_panel, tree && second);
    if (job->finish == FINISH_GATED)
        run_tile(job, at, true, waiting(at, 1), LANES, next_panel, false);
    for (int i = at->piece / 2; tree && second && i % 2 > 0; i /= 2, level--) {
        float *sums = waiting(at, level - 1);
        const float *more = waiting(at, level);
        for (size_t j = 0; j < TILE_PANELS * next_panel; j++)
            sums[j] += more[j];
    }
}

static void do_last_piece(const struct matmul *job, const struct tile_place *at) {
    do_piece(job, at);
    finish_tile(job, at, waiting(at, 0), waiting(at, 1));
}

// Panels [begin, end) of a part, tokens [at->t0, t1)
static void do_pieces(const struct matmul *job, struct tile_place *at, int begin, int end, int t1) {
    enum { PANELS = TILE_PANELS * PIECE_PAIRS };
    for (int g0 = begin; g0 < end; g0 += PANELS)
        for (at->piece = 0; at->piece < at->num_pieces; at->piece++) {
            tile_do *do_one = at->piece == at->num_pieces - 1 ? do_last_piece : do_piece;
            for (at->panel = g0; at->panel < g0 + PANELS && at->panel < end; at->panel += TILE_PANELS) {
                at->pair = (at->panel - g0) / TILE_PANELS;
                at->num_panels = end - at->panel < TILE_PANELS ? 1 : TILE_PANELS;
                do_tokens(job, at, at->t0, t1, do_one);
            }
        }
}

// Gate and up of few tokens, which memory bounds: weights come faster in long pieces, so it is the first factor of
// several pairs of groups, then the second.
static void do_gated_run(const struct matmul *job, int begin, int end) {
    enum { RUN = 16, LD = RUN * LANES };
    _Alignas(64) float sums[2][REGISTER_TOKENS * LD];
    for (int g0 = begin; g0 < end; g0 += RUN) {
        int panels = end - g0 < RUN ? end - g0 : RUN, column = g0 * LANES;
        int rows_left = job->part[0].rows - column, width = panels * LANES;
        width = rows_left < width ? rows_left : width;
        for (int i = 0; i < 2; i++) {
            const struct weight_part *part = &job->part[i];
            struct tile_place at = {.n = job->x.num_rows, .num_pieces = 1};
            at.prefetch[i] = prefetch_plan(part->panel_bytes, part->num_blocks, 1);
            for (int g = 0; g < panels; g += TILE_PANELS) {
                at.panel = g0 + g;
                at.num_panels = panels - g < TILE_PANELS ? 1 : TILE_PANELS;
                run_tile(job, &at, i == 1, sums[i] + g * LANES, LD, LANES, false);
            }
            add_bias(job, i, sums[i], LD, g0, job->x.num_rows, width);
        }
        job->act(job->y[0] + column, (size_t)job->ldy[0], sums[0], sums[1], LD, job->x.num_rows, width);
    }
}

// How many tokens pass some panels, so that activations stay in the cache, too.
static int tokens_at_once(const struct matmul *job, const struct weight_part *p) {
    enum { FEWEST = 64, WHOLE = 16 }; // tokens that pay for unpacking, and of a tile
    int rows = job->x.num_rows, most = most_tokens(job, p);
    if (unpacks(job, p)) {
        int n = (int)(CACHED_PAIRS / job->x.pairs_stride);
        int pieces = n < FEWEST ? (rows + FEWEST - 1) / FEWEST : (rows + n - 1) / n;
        return ((rows + pieces - 1) / pieces + WHOLE - 1) / WHOLE * WHOLE;
    }
    int n = (int)(CACHED_ACTIVATIONS / job->x.stride[p->dtype]);
    n = n < 3 * REGISTER_TOKENS ? 3 * REGISTER_TOKENS : n;
    return n < most ? most : n;
}

// Panels [begin, end) of a part: some of them stay in the cache while all tokens pass, some tokens at a time.
static void do_panels(const struct matmul *job, int part, int begin, int end, int thread) {
    const struct weight_part *p = &job->part[part];
    int most = most_tokens(job, p), num_rows = job->x.num_rows;
    if (job->finish == FINISH_GATED && num_rows <= most && num_rows <= REGISTER_TOKENS) {
        do_gated_run(job, begin, end);
        return;
    }
    int tokens = num_rows < PIECE_TOKENS ? num_rows : PIECE_TOKENS, pieces = num_pieces(job, p, tokens);
    struct tile_place at = {.part = part, .num_pieces = pieces};
    if (pieces > 1) {
        at.sums = job->sums + (size_t)thread * PIECE_SUMS;
        for (at.t0 = 0; at.t0 < num_rows; at.t0 += tokens)
            do_pieces(job, &at, begin, end, at.t0 + tokens < num_rows ? at.t0 + tokens : num_rows);
        return;
    }
    size_t panel_pair = p->panel_bytes + (job->finish == FINISH_GATED ? job->part[1].panel_bytes : 0);
    int panels = (int)(CACHED_WEIGHTS / panel_pair) / TILE_PANELS * TILE_PANELS;
    tokens = tokens_at_once(job, p);
    panels = panels < TILE_PANELS ? TILE_PANELS : panels;
    for (int g0 = begin; g0 < end; g0 += panels)
        for (int t0 = 0; t0 < num_rows; t0 += tokens)
            for (int g = g0; g < g0 + panels && g < end; g += TILE_PANELS) {
                at.panel = g;
                at.num_panels = end - g < TILE_PANELS ? 1 : TILE_PANELS;
                do_tokens(job, &at, t0, t0 + tokens < num_rows ? t0 + tokens : num_rows, do_tile);
            }
}

static void matmul_worker(void *ctx, int thread, int num_threads) {
    (void)num_threads;
    const struct matmul *job = ctx;
    int num_parts = job->finish == FINISH_GATED ? 1 : job->w->num_parts;
    int least = job->x.num_rows > MANY_ROWS ? 4 : 1; // pairs: activations are read again for each piece
    for (int begin, end; pool_take(job->pool, thread, least, &begin, &end);) {
        begin *= TILE_PANELS;
        end *= TILE_PANELS;
        for (int i = 0, first = 0; i < num_parts; i++) {
            int n = job->part[i].num_panels;
            int from = begin > first ? begin - first : 0, to = end - first < n ? end - first : n;
            if (from < to)
                do_panels(job, i, from, to, thread);
            first += n;
        }
    }
}

static struct matmul make_job(const struct device *dev, const struct gemm_input *x, const struct weight *w,
                              enum gemm_finish finish, float *y, int ldy) {
    struct matmul job = {.kernels = dev->kernels,
                         .pool = dev->pool,
                         .x = *x,
                         .w = w,
                         .finish = finish,
                         .sums = dev->piece_sums,
                         .y = {y},
                         .ldy = {ldy}};
    memcpy(job.part, w->part, sizeof job.part);
    memcpy(job.bias, w->bias, sizeof job.bias);
    return job;
}

static void matmul_run(struct device *dev, struct matmul *job) {
    long long work = (long long)job->w->num_panels * LANES * job->part[0].cols * job->x.num_rows;
    int num_panels = job->finish == FINISH_GATED ? job->part[0].num_panels : job->w->num_panels;
    pool_run_items(dev->pool, matmul_worker, job, (num_panels + TILE_PANELS - 1) / TILE_PANELS, work > SMALL);
}

void cpu_matmul(struct device *dev, float *const y[3], const int ldy[3], const struct gemm_input *x,
                const struct weight *w) {
    struct matmul job = make_job(dev, x, w, FINISH_COPY, y[0], ldy[0]);
    memcpy(job.y, y, sizeof job.y);
    memcpy(job.ldy, ldy, sizeof job.ldy);
    matmul_run(dev, &job);
}

void cpu_matmul_add(struct device *dev, float *y, int ldy, const struct gemm_input *x,
                    const struct weight *w) {
    struct matmul job = make_job(dev, x, w, FINISH_ADD, y, ldy);
    matmul_run(dev, &job);
}

void cpu_matmul_part(struct device *dev, float *y, int ldy, const struct gemm_input *x,
                     const struct weight *w) {
    struct matmul job = make_job(dev, x, w, FINISH_PART, y, ldy);
    matmul_run(dev, &job);
}

void cpu_matmul_act(struct device *dev, float *y, int ldy, const struct gemm_input *x, const struct weight *w,
                    enum act act) {
    bool gated = w->num_parts == 2;
    struct matmul job = make_job(dev, x, w, gated ? FINISH_GATED : FINISH_ACT, y, ldy);
    CHECK(!gated || job.part[0].rows == job.part[1].rows);
    job.act = dev->kernels->act[act];
    matmul_run(dev, &job);
}

// ---- experts

struct grouped {
    struct matmul all;
    const struct expert_rows *groups;
    int pairs; // of panels of an expert
};

// The GEMM of one group.
static struct matmul group_job(const struct grouped *job, int group) {
    const struct expert_rows *g = &job->groups[group];
    struct matmul one = job->all;
    one.x.num_rows = g->end - g->begin;
    for (int i = 0; i < DTYPE_COUNT; i++)
        one.x.data[i] = (const char *)one.x.data[i] + (size_t)g->begin * one.x.stride[i];
    if (one.x.pairs)
        one.x.pairs += (size_t)g->begin * one.x.pairs_stride;
    one.y[0] += (size_t)g->begin * (size_t)one.ldy[0];
    for (int i = 0; i < one.w->num_parts; i++) {
        struct weight_part *p = &one.part[i];
        p->data += (size_t)g->expert * (size_t)p->num_panels * p->panel_bytes;
        one.bias[i] = one.w->bias[i] ? one.w->bias[i] + (size_t)g->expert * (size_t)p->rows : NULL;
    }
    return one;
}

static void grouped_worker(void *ctx, int thread, int num_threads) {
    (void)num_threads;
    const struct grouped *job = ctx;
    int num_panels = job->all.part[0].num_panels, least = job->all.x.num_rows > MANY_ROWS ? 4 : 1;
    for (int begin, end; pool_take(job->all.pool, thread, least, &begin, &end);)
        while (begin < end) {
            int from = begin % job->pairs,
                n = job->pairs - from < end - begin ? job->pairs - from : end - begin;
            int to = (from + n) * TILE_PANELS;
            struct matmul one = group_job(job, begin / job->pairs);
            do_panels(&one, 0, from * TILE_PANELS, to < num_panels ? to : num_panels, thread);
            begin += n;
        }
}

static void grouped_run(struct device *dev, struct grouped *job, int num_groups) {
    const struct weight_part *p = &job->all.part[0];
    long long work = (long long)p->rows * p->cols * job->all.x.num_rows;
    job->pairs = (p->num_panels + TILE_PANELS - 1) / TILE_PANELS;
    pool_run_items(dev->pool, grouped_worker, job, num_groups * job->pairs, work > SMALL);
}

void cpu_matmul_experts(struct device *dev, float *y, int ldy, const struct gemm_input *x,
                        const struct weight *w, const struct expert_rows *groups, int num_groups) {
    struct grouped job = {.all = make_job(dev, x, w, FINISH_COPY, y, ldy), .groups = groups};
    grouped_run(dev, &job, num_groups);
}

void cpu_matmul_experts_gated(struct device *dev, float *y, int ldy, const struct gemm_input *x,
                              const struct weight *w, enum act act, const struct expert_rows *groups,
                              int num_groups) {
    bool gated = w->num_parts == 2;
    struct grouped job = {.all = make_job(dev, x, w, gated ? FINISH_GATED : FINISH_ACT, y, ldy),
                          .groups = groups};
    CHECK(!gated || w->part[0].rows == w->part[1].rows);
    job.all.act = dev->kernels->act[act];
    grouped_run(dev, &job, num_groups);
}
