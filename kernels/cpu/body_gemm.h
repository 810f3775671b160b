// Tiles of GEMM (rules 1 to 4), the part of body.h (which includes this file) for packed weights.
//
// A vector is ROWS rows. A tile keeps some of them (TILE_VECTORS) times n tokens in registers: an activation
// of a token, once broadcast, is used for all, and there are enough independent sums to hide the latency of
// an instruction. With 16 rows to a vector (AVX-512) two panels go together, with 8 (AVX2) the halves of one,
// and one half by itself where the registers do not suffice for more. Of few tokens two panels go together if
// the sums of one would wait for each other (F32 and F16), else one after the other (TILE_VECTORS_FEW),
// because memory is read faster in order. How many tokens a tile takes is chosen by measurement
// (tile_tokens); no sum depends on it.

enum { MAX_VECTORS = TILE_VECTORS(1) };
// How often a tile goes over k, each time for nv other vectors
#define TILE_PASSES(nv) (TILE_PANELS * LANES / ((nv)*ROWS))

// The operands of a tile.
struct tile_args {
    const char *w[MAX_VECTORS]; // the panel in which a vector lies
    int row[MAX_VECTORS];       // and its first row there
    const char *x;              // activations of token 0
    size_t ldx;
    int b0, b1;
    struct prefetch prefetch;
    int pass; // of TILE_PASSES
};

INLINE void prefetch_line(uintptr_t at, const bool l2) {
    if (l2)
        __builtin_prefetch((const void *)at, 0, 2);
    else
        __builtin_prefetch((const void *)at);
}

// Weights come from memory faster if a tile prefetches them early and evenly (kernels.h says which tile
// prefetches what): from 4 tokens on a tile works so long on a line that the CPU's own prefetcher, which
// stops at the end of a page, leaves it waiting. Part `part` of `parts` of block b prefetches its share, each
// pass another piece of it; n: tokens of the tile. With few tokens a pass prefetches what follows in its
// panel, or in both; near: no further than SOON, into L1. far: with more tokens, into the L2 cache only.
INLINE void prefetch_weights(const struct tile_args *a, int b, int part, int parts, const int nv, const int n,
                             const bool near, const bool far) {
    const bool few = n <= FEW_TOKENS, both = few && TILE_PASSES(nv) == 1;
    if (!few) {
        part = part * TILE_PASSES(nv) + a->pass;
        parts *= TILE_PASSES(nv);
    }
    size_t step = a->prefetch.step / (size_t)parts;
    uintptr_t at = a->prefetch.at + (size_t)b * a->prefetch.step + (size_t)part * step;
    if (both ? b >= a->prefetch.turn : few && a->pass)
        at += a->prefetch.gap;
    if (few && !near)
        at += SOON_MORE;
    const bool l2 = few ? !near && n > 1 : far;
    for (size_t i = 0; i < step; i += 64) {
        prefetch_line(at + i, l2);
        if (both)
            prefetch_line(at + a->prefetch.gap + i, l2);
    }
}

INLINE const void *token(const struct tile_args *a, int t) { return a->x + (size_t)t * a->ldx; }

// The sums of nv vectors times n tokens; both are constants wherever these functions are inlined.
struct sums {
    struct rows acc[MAX_VECTORS][REGISTER_TOKENS];
};

INLINE void sums_start(struct sums *s, const int nv, const int n) {
    UNROLL for (int v = 0; v < nv; v++) UNROLL for (int t = 0; t < n; t++) s->acc[v][t] = rows_zero();
}

// y: of token 0, for each vector
INLINE void sums_store(const struct sums *s, float *const *y, size_t ldy, const int nv, const int n) {
    UNROLL for (int v = 0; v < nv; v++) UNROLL for (int t = 0; t < n; t++)
        rows_store(y[v] + (size_t)t * ldy, s->acc[v][t]);
}

// The segments of rule 3 on their way to one sum.
struct segments {
    float sum[NUM_SEGMENTS][MAX_VECTORS][REGISTER_TOKENS][ROWS];
};

enum { SEGMENT_FLOATS = MAX_VECTORS * REGISTER_TOKENS * ROWS };

INLINE struct rows two_segments(const float *sum, int i) {
    return rows_add(rows_load(sum + i * SEGMENT_FLOATS), rows_load(sum + (i + 1) * SEGMENT_FLOATS));
}

// Once for all types and sizes: inlined it is most of the code, and no faster. Of n rows of a vector that lie beside
// each other, sum: of segment 0.
NOINLINE static void segments_finish(const float *sum, int num_segments, bool add, float *y, size_t ldy,
                                     int n) {
    for (int t = 0; t < n; t++, sum += ROWS, y += ldy) {
        struct rows all;
        switch (num_segments) {
        case 1: all = rows_load(sum); break;
        case 2: all = two_segments(sum, 0); break;
        case 4: all = rows_add(two_segments(sum, 0), two_segments(sum, 2)); break;
        default:
            all = rows_add(rows_add(two_segments(sum, 0), two_segments(sum, 2)),
                           rows_add(two_segments(sum, 4), two_segments(sum, 6)));
            break;
        }
        rows_store(y, add ? rows_add(rows_load(y), all) : all);
    }
}

// The sums over k blocks [b0, b1).
typedef void tile_fn(struct sums *s, const struct tile_args *a, const int nv, const int n);

// All rows of the groups, nv vectors at a time.
INLINE void whole_tile(tile_fn *tile, const struct gemm_tile *job, const int nv, const int n) {
    struct tile_args a = {.x = job->x, .ldx = job->ldx, .prefetch = job->prefetch};
    const bool at_once = job->num_segments == 1 && !job->add;
    struct segments segments;
    for (int row = 0; row < TILE_PANELS * LANES; row += nv * ROWS) {
        float *y[MAX_VECTORS];
        UNROLL for (int v = 0; v < nv; v++) {
            int at = row + v * ROWS;
            a.w[v] = job->w[at / LANES];
            a.row[v] = at % LANES;
            y[v] = job->y + (size_t)(at / LANES) * job->next_panel + at % LANES;
        }
        // Rows of y are far from each other, and stores that wait for memory hold up all after them.
        UNROLL for (int v = 0; v < nv; v++) UNROLL for (int t = 0; t < n; t++)
            __builtin_prefetch(y[v] + (size_t)t * job->ldy, 1);
        for (int i = 0; i < job->num_segments; i++) {
            float *to[MAX_VECTORS];
            struct sums s;
            UNROLL for (int v = 0; v < nv; v++) to[v] = at_once ? y[v] : segments.sum[i][v][0];
            a.b0 = job->bounds[i];
            a.b1 = job->bounds[i + 1];
            tile(&s, &a, nv, n);
            sums_store(&s, to, at_once ? job->ldy : ROWS, nv, n);
        }
        if (!at_once)
            for (int v = 0; v < nv; v++)
                segments_finish(segments.sum[0][v][0], job->num_segments, job->add, y[v], job->ldy, n);
        a.pass++;
    }
}

// few: the vectors of a tile of few tokens
INLINE void any_tile(tile_fn *tile, const struct gemm_tile *job, const int few) {
    _Static_assert(FEW_TOKENS == 2 && TILE_PASSES(TILE_VECTORS_FEW) <= TILE_PANELS, "whole panels in a pass");
    switch (job->num_tokens) {
    case 1: whole_tile(tile, job, few, 1); break;
    case 2: whole_tile(tile, job, few, 2); break;
    case 3: whole_tile(tile, job, TILE_VECTORS(3), 3); break;
    case 4: whole_tile(tile, job, TILE_VECTORS(4), 4); break;
    case 5: whole_tile(tile, job, TILE_VECTORS(5), 5); break;
    case 6: whole_tile(tile, job, TILE_VECTORS(6), 6); break;
    case 7: whole_tile(tile, job, TILE_VECTORS(7), 7); break;
    default: whole_tile(tile, job, TILE_VECTORS(8), 8); break;
    }
}

// ---- float formats

// Weights (K, 16) f32 or f16, activations (K) f32; a block is one k.
INLINE void tile_float(struct sums *s, const struct tile_args *a, const int nv, const int n,
                       const bool half) {
    size_t bytes = half ? 2 : 4;
    sums_start(s, nv, n);
    for (int k = a->b0; k < a->b1; k++) {
        struct rows rows[MAX_VECTORS];
        prefetch_weights(a, k, 0, 1, nv, n, true, true);
        UNROLL for (int v = 0; v < nv; v++) {
            const char *at = a->w[v] + ((size_t)k * LANES + (size_t)a->row[v]) * bytes;
            rows[v] = half ? rows_load_f16((const uint16_t *)(const void *)at)
                           : rows_load((const float *)(const void *)at);
        }
        UNROLL for (int t = 0; t < n; t++) {
            float one = ((const float *)token(a, t))[k];
            UNROLL for (int v = 0; v < nv; v++) s->acc[v][t] = rows_fma1(s->acc[v][t], rows[v], one);
        }
    }
}

INLINE void tile_f32(struct sums *s, const struct tile_args *a, const int nv, const int n) {
    tile_float(s, a, nv, n, false);
}

INLINE void tile_f16(struct sums *s, const struct tile_args *a, const int nv, const int n) {
    tile_float(s, a, nv, n, true);
}

// Weights (K/2, 16, 2) bf16, activations (K/2, 2) bf16; a block is a pair of k.
INLINE void tile_bf16(struct sums *s, const struct tile_args *a, const int nv, const int n) {
    sums_start(s, nv, n);
    for (int b = a->b0; b < a->b1; b++) {
        struct quads pairs[MAX_VECTORS];
        prefetch_weights(a, b, 0, 1, nv, n, false, true);
        UNROLL for (int v = 0; v < nv; v++) {
            const char *at = a->w[v] + ((size_t)b * LANES + (size_t)a->row[v]) * 4;
            pairs[v] = quads_load(at);
        }
        UNROLL for (int t = 0; t < n; t++) {
            uint32_t one = pair_at((const char *)token(a, t) + 4 * (size_t)b);
            UNROLL for (int v = 0; v < nv; v++) s->acc[v][t] = rows_dot_bf16(s->acc[v][t], pairs[v], one);
        }
    }
}

// ---- quantised formats
//
// A format says how weights 4j .. 4j+3 of a block of 32 come out of its bits, and what they are multiplied
// by. Integers are summed over 32 (or 16) k, exactly; then one fma, or two where the format has a
// minimum. The type is a constant wherever these functions are inlined.

// A scale per 16.
INLINE bool has_halves(const enum dtype t) { return t == DTYPE_Q6_K || t == DTYPE_Q3_K || t == DTYPE_Q2_K; }
// Weights of eight bits, stored plus 128.
INLINE bool is_s8(const enum dtype t) { return t == DTYPE_Q8_0 || t == DTYPE_IQ4_NL || t == DTYPE_IQ4_XS; }

INLINE size_t block_bytes(const enum dtype t) {
    switch (t) {
#define X(type, packed)                                                                                      \
    case DTYPE_##type: return sizeof(packed);
        QUANTISED_MAP(X)
#undef X
    default: return 0;
    }
}

// The tables of IQ4_NL and IQ4_XS, plus 128, and of MXFP4, plus 16 (quants.h has the values).
static const uint8_t iq4_bytes[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                      129, 141, 153, 166, 181, 197, 217, 241};
static const uint8_t mxfp4_bytes[16] = {16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4};

// 32 k of ROWS rows of each vector, or the half of them that has a scale of its own.
struct tile_weights {
    const uint8_t *at[MAX_VECTORS], *high[MAX_VECTORS]; // weights of the first row; bit planes that are apart
    struct rows scale[MAX_VECTORS], offset[MAX_VECTORS];
};

// Part `part` of a packed block, from row `row` on, as vector v.
INLINE void read_weights(struct tile_weights *p, const int v, const void *block, const int row,
                         const enum dtype t, const int part, const int half) {
#define FIELDS(packed) const packed *w = block
    switch (t) {
    case DTYPE_Q8_0: {
        FIELDS(struct weight_q8);
        p->at[v] = w->q[0] + 4 * row;
        p->scale[v] = rows_load_f16(w->d + row);
        break;
    }
    case DTYPE_Q5_0: {
        FIELDS(struct weight_q5);
        p->at[v] = w->low.q[0] + 4 * row;
        p->high[v] = w->high + 4 * row;
        p->scale[v] = rows_load_f16(w->low.d + row);
        break;
    }
    case DTYPE_Q4_1:
    case DTYPE_Q5_1: {
        FIELDS(struct weight_q51);
        p->at[v] = w->low.q[0] + 4 * row;
        p->high[v] = w->high + 4 * row;
        p->scale[v] = rows_load_f16(w->low.d + row);
        p->offset[v] = rows_load_f16(w->low.min + row);
        break;
    }
    case DTYPE_MXFP4: {
        FIELDS(struct weight_mxfp4);
        p->at[v] = w->q[0] + 4 * row;
        p->scale[v] = rows_load_e8m0(w->e + row);
        break;
    }
    case DTYPE_Q4_K:
    case DTYPE_Q5_K: {
        FIELDS(struct weight_q5k);
        p->at[v] = w->low.q[part][0] + 4 * row;
        p->high[v] = w->high[part] + 4 * row;
        p->scale[v] = rows_mul(rows_load_f16(w->low.d + row), rows_load_u8(w->low.scale[part] + row));
        p->offset[v] = rows_mul(rows_load_f16(w->low.minus_min + row), rows_load_u8(w->low.min[part] + row));
        break;
    }
    case DTYPE_Q6_K: {
        FIELDS(struct weight_q6k);
        p->at[v] = w->q[part][0] + 4 * row;
        p->high[v] = w->high[part][0] + 4 * row;
        p->scale[v] = rows_mul(rows_load_f16(w->d + row), rows_load_i8(w->scale[2 * part + half] + row));
        break;
    }
    case DTYPE_Q3_K: {
        FIELDS(struct weight_q3k);
        p->at[v] = w->q[part][0] + 4 * row;
        p->high[v] = w->high[part] + 4 * row;
        p->scale[v] = rows_mul(rows_load_f16(w->d + row), rows_load_i8(w->scale[2 * part + half] + row));
        break;
    }
    case DTYPE_Q2_K: {
        FIELDS(struct weight_q2k);
        const uint8_t *both = w->scale[2 * part + half] + row;
        p->at[v] = w->q[part][0] + 4 * row;
        p->scale[v] = rows_mul(rows_load_f16(w->d + row), rows_load_low4(both));
        p->offset[v] = rows_mul(rows_load_f16(w->minus_min + row), rows_load_high4(both));
        break;
    }
    case DTYPE_IQ4_XS: {
        FIELDS(struct weight_iq4xs);
        p->at[v] = w->q[part][0] + 4 * row;
        p->scale[v] = rows_mul(rows_load_f16(w->d + row), rows_load_i8(w->scale[part] + row));
        break;
    }
    default: { // Q4_0, IQ4_NL
        FIELDS(struct weight_q4);
        p->at[v] = w->q[0] + 4 * row;
        p->scale[v] = rows_load_f16(w->d + row);
        break;
    }
    }
#undef FIELDS
}

INLINE struct quads read_nibbles(const uint8_t *at, const int j) {
    struct quads pair = quads_load(at + 64 * (j % 4));
    return j < 4 ? quads_low(pair) : quads_high(pair);
}

// An int8 quad of each row: weights 4j..4j+3 as unsigned bytes, plus what dots_start() takes off.
INLINE struct quads read_quads(const struct tile_weights *p, const int v, const enum dtype t, const int j) {
    switch (t) {
    case DTYPE_Q8_0: return quads_load(p->at[v] + 64 * j);
    case DTYPE_Q5_0:
    case DTYPE_Q5_1:
    case DTYPE_Q5_K: return quads_insert(read_nibbles(p->at[v], j), quads_load(p->high[v]), 4 - j, 0x10);
    case DTYPE_Q6_K:
        return quads_insert(read_nibbles(p->at[v], j), quads_load(p->high[v] + 64 * (j / 4)), 4 - 2 * (j % 4),
                            0x30);
    case DTYPE_Q2_K: return quads_two(quads_load(p->at[v] + 64 * (j / 4)), 2 * (j % 4));
    case DTYPE_Q3_K:
        return quads_insert(quads_two(quads_load(p->at[v] + 64 * (j / 4)), 2 * (j % 4)),
                            quads_load(p->high[v]), 2 - j, 4);
    case DTYPE_IQ4_NL:
    case DTYPE_IQ4_XS: return quads_lookup(read_nibbles(p->at[v], j), iq4_bytes);
    case DTYPE_MXFP4: return quads_lookup(read_nibbles(p->at[v], j), mxfp4_bytes);
    default: return read_nibbles(p->at[v], j);
    }
}

// The sum of a half
INLINE int act_sum(const struct act_q8 *x, const int half) { return x->minus32[half] / -32; }

// The start of a token's dots: a term that makes unsigned weights count with their sign.
INLINE struct dots dots_start(const struct act_q8 *x, const enum dtype t, const int half) {
    switch (t) {
    case DTYPE_Q8_0:
    case DTYPE_IQ4_NL:
    case DTYPE_IQ4_XS: return dots_set1(S8_PLUS_128 ? x->minus128 : 0);
    case DTYPE_Q4_0: return dots_set1(x->minus8);
    case DTYPE_Q5_0:
    case DTYPE_MXFP4: return dots_set1(2 * x->minus8); // -16 times
    case DTYPE_Q6_K: return dots_set1(x->minus32[half]);
    case DTYPE_Q3_K: return dots_set1(x->minus32[half] / 8); // -4 times
    default: return dots_set1(0);
    }
}

INLINE const struct act_q8 *activation(const struct tile_args *a, int t, int block) {
    return (const struct act_q8 *)token(a, t) + block;
}

struct block_dots {
    struct dots dot[MAX_VECTORS][REGISTER_TOKENS];
};

// Which quad of a block of 32 comes i-th. Where all of them are wanted, both halves go side by
// side: formats of nibbles have them in one byte.
INLINE int step_number(const int i, const int half, const int count) {
    return count == 8 ? i / 2 + i % 2 * 4 : half * count + i;
}

#if LANE_DOTS
// Dots of a block of 32, or of a half of it, if an instruction takes any quad of a register: two steps share one load
// of a token's activations.
INLINE void dots_wide(struct block_dots *d, const struct tile_weights *p, const struct tile_args *a,
                      int block, const int nv, const int n, const int half, const int count,
                      const enum dtype type) {
    UNROLL for (int t = 0; t < n; t++) {
        struct dots start = dots_start(activation(a, t, block), type, half);
        UNROLL for (int v = 0; v < nv; v++) d->dot[v][t] = start;
    }
    UNROLL for (int i = 0; i < count; i += 2) {
        const int j = half * count + i;
        struct quads q[2][MAX_VECTORS];
        UNROLL for (int s = 0; s < 2; s++) UNROLL for (int v = 0; v < nv; v++) q[s][v] =
            read_quads(p, v, type, j + s);
        UNROLL for (int t = 0; t < n; t++) {
            struct lanes x = lanes_load(activation(a, t, block)->q + 4 * j);
            UNROLL for (int s = 0; s < 2; s++) UNROLL for (int v = 0; v < nv; v++) d->dot[v][t] =
                is_s8(type) ? dots_lane_s8(d->dot[v][t], q[s][v], x, s)
                            : dots_lane_u7(d->dot[v][t], q[s][v], x, s);
        }
        FORGET(); // nibbles are read again: registers are few
    }
}
#else
// Dots of a block of 32, or of a half of it.
INLINE void dots_wide(struct block_dots *d, const struct tile_weights *p, const struct tile_args *a,
                      int block, const int nv, const int n, const int half, const int count,
                      const enum dtype type) {
    UNROLL for (int t = 0; t < n; t++) {
        struct dots start = dots_start(activation(a, t, block), type, half);
        UNROLL for (int v = 0; v < nv; v++) d->dot[v][t] = start;
    }
    UNROLL for (int i = 0; i < count; i++) {
        const int j = step_number(i, half, count);
        struct quads q[MAX_VECTORS];
        UNROLL for (int v = 0; v < nv; v++) q[v] = read_quads(p, v, type, j);
        UNROLL for (int t = 0; t < n; t++) {
            uint32_t one;
            memcpy(&one, activation(a, t, block)->q + 4 * j, 4);
            UNROLL for (int v = 0; v < nv; v++) d->dot[v][t] =
                is_s8(type) ? dots_add_s8(d->dot[v][t], q[v], one) : dots_add_u7(d->dot[v][t], q[v], one);
        }
    }
}
#endif

#if NARROW_SUMS
// How many steps 16 bits hold: each adds two products of a weight and an activation up to 127.
INLINE int narrow_steps(const enum dtype t) {
    switch (t) {
    case DTYPE_Q6_K: return 2; // weights up to 63
    case DTYPE_Q5_0:
    case DTYPE_Q5_1:
    case DTYPE_Q5_K:
    case DTYPE_MXFP4: return 4; // 31
    default: return 8;          // 15
    }
}

// The same if the dot of two quads is two sums of two, of 16 bits: several are added before they are widened. The
// start of a token's dots is read at the end, when registers are free.
INLINE void dots_narrow(struct block_dots *d, const struct tile_weights *p, const struct tile_args *a,
                        int block, const int nv, const int n, const int half, const int count,
                        const enum dtype type) {
    const int steps = narrow_steps(type) < count ? narrow_steps(type) : count;
    struct narrow sum[MAX_VECTORS][REGISTER_TOKENS];
    UNROLL for (int i = 0; i < count; i++) {
        const int j = step_number(i, half, count);
        struct quads q[MAX_VECTORS];
        UNROLL for (int v = 0; v < nv; v++) q[v] = read_quads(p, v, type, j);
        UNROLL for (int t = 0; t < n; t++) {
            uint32_t one;
            memcpy(&one, activation(a, t, block)->q + 4 * j, 4);
            UNROLL for (int v = 0; v < nv; v++) sum[v][t] =
                i % steps ? narrow_add(sum[v][t], q[v], one) : narrow_start(q[v], one);
        }
        if ((i + 1) % steps)
            continue;
        UNROLL for (int t = 0; t < n; t++) {
            struct dots start = dots_start(activation(a, t, block), type, half);
            UNROLL for (int v = 0; v < nv; v++) d->dot[v][t] =
                dots_add_narrow(i < steps ? start : d->dot[v][t], sum[v][t]);
        }
    }
}
#endif

INLINE void dots_sum(struct block_dots *d, const struct tile_weights *p, const struct tile_args *a, int block,
                     const int nv, const int n, const int half, const int count, const enum dtype type) {
#if NARROW_SUMS
    if (!is_s8(type)) {
        dots_narrow(d, p, a, block, nv, n, half, count, type);
        return;
    }
#endif
    dots_wide(d, p, a, block, nv, n, half, count, type);
}

// acc += dot * (d * scale) for each token, then offset * s where there is a minimum.
INLINE void sums_add(struct sums *s, const struct block_dots *d, const struct tile_weights *p,
                     const struct tile_args *a, int block, const int half, const int nv, const int n,
                     const enum dtype type) {
    UNROLL for (int t = 0; t < n; t++) {
        float one = activation(a, t, block)->d;
        UNROLL for (int v = 0; v < nv; v++) s->acc[v][t] =
            rows_fma(s->acc[v][t], rows_from_dots(d->dot[v][t]), rows_mul1(p->scale[v], one));
    }
    if (!quants_has_minimum(type))
        return;
    UNROLL for (int t = 0; t < n; t++) {
        const struct act_q8 *x = activation(a, t, block);
        float one = has_halves(type) ? x->d * (float)act_sum(x, half) : x->s;
        UNROLL for (int v = 0; v < nv; v++) s->acc[v][t] = rows_fma1(s->acc[v][t], p->offset[v], one);
    }
}

INLINE void tile_quantised(struct sums *s, const struct tile_args *a, const int nv, const int n,
                           const enum dtype type) {
    const int parts = dtype_block(type) / 32, halves = has_halves(type) ? 2 : 1;
    const size_t bytes = block_bytes(type);
    sums_start(s, nv, n);
    for (int b = a->b0; b < a->b1; b++)
        for (int part = 0; part < parts; part++)
            UNROLL for (int half = 0; half < halves; half++) {
                struct tile_weights p;
                struct block_dots d;
                const int block = parts * b + part;
                prefetch_weights(a, b, halves * part + half, halves * parts, nv, n, type == DTYPE_Q8_0,
                                 a->prefetch.far);
                UNROLL for (int v = 0; v < nv; v++)
                    read_weights(&p, v, a->w[v] + (size_t)b * bytes, a->row[v], type, part, half);
                dots_sum(&d, &p, a, block, nv, n, half, 8 / halves, type);
                // each takes its bits of the same bytes, and registers are few
                if (halves > 1 && (n > 4 || VECTOR_REGISTERS < 32))
                    FORGET();
                sums_add(s, &d, &p, a, block, half, nv, n, type);
            }
}
