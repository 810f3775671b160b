// Tiles of matrix products (rules 1 to 4), the part of body.h (which includes this file) for packed weights.
//
// A vector is ROWS rows. A tile keeps one or two of them times n tokens in registers: a number of a token,
// once broadcast, is used for both, and there are enough independent sums to hide the latency of an
// instruction. With 16 rows to a vector (AVX-512) two row groups go together; with 8 (AVX2) the halves of
// one, or each half by itself where the registers do not suffice for both. How many tokens a tile takes is
// chosen by measurement (tile_tokens); no sum depends on it.

enum { MAX_VECTORS = 2 };

// What a tile works on.
struct span {
    const char *w[MAX_VECTORS]; // the strip in which a vector lies
    int row[MAX_VECTORS];       // and its first row there
    float *y[MAX_VECTORS];      // its sums of token 0; the next token's are LANES further
    const char *x;              // activations of token 0
    size_t ldx;
    int b0, b1;
    struct ahead ahead;
};

// Weights come from memory faster if they are asked for early and evenly (kernels.h says which by whom): from
// 4 tokens on a tile works long enough on a line that the processor's own prefetch, which stops at the end of
// a page, leaves it waiting. Part `part` of `parts` of block b asks for its share; n: tokens of the tile.
INLINE void prefetch(const struct span *a, int b, int part, const int parts, const int n) {
    size_t step = a->ahead.step / (size_t)parts;
    const char *at = a->ahead.at + (size_t)b * a->ahead.step + (size_t)part * step;
    for (size_t i = 0; i < step; i += 64) {
        __builtin_prefetch(at + i);
        if (n <= FEW_TOKENS)
            __builtin_prefetch(at + a->ahead.gap + i);
    }
}

// nv vectors times n tokens; both are constants where it is inlined.
typedef void tile_fn(const struct span *a, const int nv, const int n);

// All rows of the groups.
INLINE void whole_tile(tile_fn *tile, const void *const *w, const void *x, size_t ldx, int b0, int b1,
                       float *y, const int n, struct ahead ahead) {
    const int nv = TILE_VECTORS(n);
    struct span a = {.x = x, .ldx = ldx, .b0 = b0, .b1 = b1, .ahead = ahead};
    for (int row = 0; row < TILE_GROUPS * LANES; row += nv * ROWS) {
        UNROLL for (int v = 0; v < nv; v++) {
            int at = row + v * ROWS;
            a.w[v] = w[at / LANES];
            a.row[v] = at % LANES;
            a.y[v] = y + at / LANES * n * LANES + at % LANES;
        }
        tile(&a, nv, n);
        a.ahead.step = 0; // once is enough
    }
}

INLINE void any_tile(tile_fn *tile, const void *const *w, const void *x, size_t ldx, int b0, int b1, float *y,
                     int n, struct ahead ahead) {
    switch (n) {
    case 1: whole_tile(tile, w, x, ldx, b0, b1, y, 1, ahead); break;
    case 2: whole_tile(tile, w, x, ldx, b0, b1, y, 2, ahead); break;
    case 3: whole_tile(tile, w, x, ldx, b0, b1, y, 3, ahead); break;
    case 4: whole_tile(tile, w, x, ldx, b0, b1, y, 4, ahead); break;
    case 5: whole_tile(tile, w, x, ldx, b0, b1, y, 5, ahead); break;
    case 6: whole_tile(tile, w, x, ldx, b0, b1, y, 6, ahead); break;
    case 7: whole_tile(tile, w, x, ldx, b0, b1, y, 7, ahead); break;
    default: whole_tile(tile, w, x, ldx, b0, b1, y, 8, ahead); break;
    }
}

INLINE const void *token(const struct span *a, int t) { return a->x + (size_t)t * a->ldx; }

// The sums of a tile.
struct sums {
    struct rows acc[MAX_VECTORS][MAX_TILE_TOKENS];
};

INLINE void sums_start(struct sums *s, const int nv, const int n) {
    UNROLL for (int v = 0; v < nv; v++) UNROLL for (int t = 0; t < n; t++) s->acc[v][t] = rows_zero();
}

INLINE void sums_store(const struct sums *s, const struct span *a, const int nv, const int n) {
    UNROLL for (int v = 0; v < nv; v++) UNROLL for (int t = 0; t < n; t++)
        rows_store(a->y[v] + t * LANES, s->acc[v][t]);
}

// ---- float formats

// Weights (K, 16) f32 or f16, activations (K) f32; a block is one k.
INLINE void tile_float(const struct span *a, const int nv, const int n, const bool half) {
    struct sums s;
    size_t bytes = half ? 2 : 4;
    sums_start(&s, nv, n);
    for (int k = a->b0; k < a->b1; k++) {
        struct rows rows[MAX_VECTORS];
        prefetch(a, k, 0, 1, n);
        UNROLL for (int v = 0; v < nv; v++) {
            const char *at = a->w[v] + ((size_t)k * LANES + (size_t)a->row[v]) * bytes;
            rows[v] = half ? rows_load_f16((const uint16_t *)(const void *)at)
                           : rows_load((const float *)(const void *)at);
        }
        UNROLL for (int t = 0; t < n; t++) {
            float one = ((const float *)token(a, t))[k];
            UNROLL for (int v = 0; v < nv; v++) s.acc[v][t] = rows_fma1(s.acc[v][t], rows[v], one);
        }
    }
    sums_store(&s, a, nv, n);
}

INLINE void tile_f32(const struct span *a, const int nv, const int n) { tile_float(a, nv, n, false); }

INLINE void tile_f16(const struct span *a, const int nv, const int n) { tile_float(a, nv, n, true); }

// Weights (K/2, 16, 2) bf16, activations (K/2, 2) bf16; a block is a pair of k.
INLINE void tile_bf16(const struct span *a, const int nv, const int n) {
    struct sums s;
    sums_start(&s, nv, n);
    for (int b = a->b0; b < a->b1; b++) {
        struct quads pairs[MAX_VECTORS];
        prefetch(a, b, 0, 1, n);
        UNROLL for (int v = 0; v < nv; v++) {
            const char *at = a->w[v] + ((size_t)b * LANES + (size_t)a->row[v]) * 4;
            pairs[v] = quads_load(at);
        }
        UNROLL for (int t = 0; t < n; t++) {
            uint32_t one = ((const uint32_t *)token(a, t))[b];
            UNROLL for (int v = 0; v < nv; v++) s.acc[v][t] = rows_dot_bf16(s.acc[v][t], pairs[v], one);
        }
    }
    sums_store(&s, a, nv, n);
}

// ---- quantised formats
//
// A format says how numbers 4j .. 4j+3 of a block of 32 come out of its bits, and what they are multiplied
// by. Whole numbers are summed over 32 (Q6_K: 16) k, exactly; then one fma, or two where the format has a
// minimum.

// Bytes 4j..4j+3 of 32 k of ROWS rows. `at`: the 32 k in the packed block, already moved to the tile's first
// row; high: the plane of upper bits, where there is one.
typedef struct quads decode_fn(const uint8_t *at, const uint8_t *high, const int j);

INLINE struct quads decode_q8(const uint8_t *at, const uint8_t *high, const int j) {
    (void)high;
    return quads_load(at + 64 * j);
}
INLINE struct quads decode_q4(const uint8_t *at, const uint8_t *high, const int j) {
    (void)high;
    struct quads pair = quads_load(at + 64 * (j % 4));
    return j < 4 ? quads_low(pair) : quads_high(pair);
}
INLINE struct quads decode_q5(const uint8_t *at, const uint8_t *high, const int j) {
    return quads_insert(decode_q4(at, NULL, j), quads_load(high), 4 - j, 0x10);
}
INLINE struct quads decode_q6(const uint8_t *at, const uint8_t *high, const int j) {
    return quads_insert(decode_q4(at, NULL, j), quads_load(high + 64 * (j / 4)), 4 - 2 * (j % 4), 0x30);
}

INLINE const struct act_q8 *activation(const struct span *a, int t, int block) {
    return (const struct act_q8 *)token(a, t) + block;
}

struct block_dots {
    struct dots dot[MAX_VECTORS][MAX_TILE_TOKENS];
};

// dot += numbers j0 <= j < j1 (times 4) of a block of 32. Where both halves are asked for, they go side by
// side: formats of nibbles have them in one byte.
INLINE void dots_add(struct block_dots *d, decode_fn *decode, const uint8_t *const *at,
                     const uint8_t *const *high, const struct span *a, int block, const int nv, const int n,
                     const int j0, const int j1, const bool s8) {
    UNROLL for (int i = 0; i < j1 - j0; i++) {
        const int j = j1 - j0 == 8 ? i / 2 + i % 2 * 4 : j0 + i;
        struct quads q[MAX_VECTORS];
        UNROLL for (int v = 0; v < nv; v++) q[v] = decode(at[v], high ? high[v] : NULL, j);
        UNROLL for (int t = 0; t < n; t++) {
            uint32_t one;
            memcpy(&one, activation(a, t, block)->q + 4 * j, 4);
            UNROLL for (int v = 0; v < nv; v++) d->dot[v][t] =
                s8 ? dots_add_s8(d->dot[v][t], q[v], one) : dots_add_u7(d->dot[v][t], q[v], one);
        }
    }
}

// acc += dot * (scale * d) for each token.
INLINE void sums_add(struct sums *s, const struct block_dots *d, const struct rows *scale,
                     const struct span *a, int block, const int nv, const int n) {
    UNROLL for (int t = 0; t < n; t++) {
        float one = activation(a, t, block)->d;
        UNROLL for (int v = 0; v < nv; v++) s->acc[v][t] =
            rows_fma(s->acc[v][t], rows_from_dots(d->dot[v][t]), rows_scale(scale[v], one));
    }
}

// Q8_0 and Q4_0: a scale per 32, numbers signed once the start is taken into account.
INLINE void tile_plain(const struct span *a, const int nv, const int n, const bool q8) {
    struct sums s;
    sums_start(&s, nv, n);
    for (int b = a->b0; b < a->b1; b++) {
        struct block_dots d;
        struct rows scale[MAX_VECTORS];
        const uint8_t *at[MAX_VECTORS];
        prefetch(a, b, 0, 1, n);
        UNROLL for (int v = 0; v < nv; v++) {
            const struct weight_q8 *block8 = (const struct weight_q8 *)(const void *)a->w[v] + b;
            const struct weight_q4 *block4 = (const struct weight_q4 *)(const void *)a->w[v] + b;
            at[v] = (q8 ? block8->q[0] : block4->q[0]) + 4 * a->row[v];
            scale[v] = rows_load_f16((q8 ? block8->d : block4->d) + a->row[v]);
        }
        UNROLL for (int t = 0; t < n; t++) {
            int minus8 = activation(a, t, b)->minus8;
            UNROLL for (int v = 0; v < nv; v++) d.dot[v][t] = q8 ? dots_start_s8(minus8) : dots_set1(minus8);
        }
        dots_add(&d, q8 ? decode_q8 : decode_q4, at, NULL, a, b, nv, n, 0, 8, q8);
        sums_add(&s, &d, scale, a, b, nv, n);
    }
    sums_store(&s, a, nv, n);
}

INLINE void tile_q8(const struct span *a, const int nv, const int n) { tile_plain(a, nv, n, true); }

INLINE void tile_q4(const struct span *a, const int nv, const int n) { tile_plain(a, nv, n, false); }

// Q4_K, and Q5_K with a plane of fifth bits: a scale and a minimum per 32.
INLINE void tile_minimum(const struct span *a, const int nv, const int n, const bool fifth) {
    struct sums s;
    size_t bytes = fifth ? sizeof(struct weight_q5k) : sizeof(struct weight_q4k);
    sums_start(&s, nv, n);
    for (int b = a->b0; b < a->b1; b++)
        for (int part = 0; part < 8; part++) {
            struct block_dots d;
            struct rows scale[MAX_VECTORS], offset[MAX_VECTORS];
            const uint8_t *at[MAX_VECTORS], *high[MAX_VECTORS];
            prefetch(a, b, part, 8, n);
            UNROLL for (int v = 0; v < nv; v++) {
                const void *whole = a->w[v] + (size_t)b * bytes;
                const struct weight_q4k *block = whole;
                at[v] = block->q[part][0] + 4 * a->row[v];
                high[v] = fifth ? ((const struct weight_q5k *)whole)->high[part] + 4 * a->row[v] : NULL;
                scale[v] = rows_mul(rows_load_f16(block->d + a->row[v]),
                                    rows_load_u8(block->scale[part] + a->row[v]));
                offset[v] = rows_mul(rows_load_f16(block->minus_min + a->row[v]),
                                     rows_load_u8(block->min[part] + a->row[v]));
            }
            UNROLL for (int t = 0; t < n; t++) UNROLL for (int v = 0; v < nv; v++) d.dot[v][t] = dots_set1(0);
            dots_add(&d, fifth ? decode_q5 : decode_q4, at, high, a, 8 * b + part, nv, n, 0, 8, false);
            sums_add(&s, &d, scale, a, 8 * b + part, nv, n);
            UNROLL for (int t = 0; t < n; t++) {
                float one = activation(a, t, 8 * b + part)->s;
                UNROLL for (int v = 0; v < nv; v++) s.acc[v][t] = rows_fma1(s.acc[v][t], offset[v], one);
            }
        }
    sums_store(&s, a, nv, n);
}

INLINE void tile_q4k(const struct span *a, const int nv, const int n) { tile_minimum(a, nv, n, false); }

INLINE void tile_q5k(const struct span *a, const int nv, const int n) { tile_minimum(a, nv, n, true); }

// Q6_K: a scale per 16.
INLINE void tile_q6k(const struct span *a, const int nv, const int n) {
    struct sums s;
    sums_start(&s, nv, n);
    for (int b = a->b0; b < a->b1; b++)
        for (int part = 0; part < 8; part++)
            UNROLL for (int half = 0; half < 2; half++) {
                struct block_dots d;
                struct rows scale[MAX_VECTORS];
                const uint8_t *at[MAX_VECTORS], *high[MAX_VECTORS];
                prefetch(a, b, 2 * part + half, 16, n);
                UNROLL for (int v = 0; v < nv; v++) {
                    const struct weight_q6k *block = (const struct weight_q6k *)(const void *)a->w[v] + b;
                    at[v] = block->q[part][0] + 4 * a->row[v];
                    high[v] = block->high[part][0] + 4 * a->row[v];
                    scale[v] = rows_mul(rows_load_f16(block->d + a->row[v]),
                                        rows_load_i8(block->scale[2 * part + half] + a->row[v]));
                }
                UNROLL for (int t = 0; t < n; t++) {
                    int minus32 = activation(a, t, 8 * b + part)->minus32[half];
                    UNROLL for (int v = 0; v < nv; v++) d.dot[v][t] = dots_set1(minus32);
                }
                dots_add(&d, decode_q6, at, high, a, 8 * b + part, nv, n, 4 * half, 4 * half + 4, false);
                sums_add(&s, &d, scale, a, 8 * b + part, nv, n);
            }
    sums_store(&s, a, nv, n);
}

// ---- the table's entries

#define GEMM(type)                                                                                           \
    static void gemm_##type(const void *const *w, const void *x, size_t ldx, int b0, int b1, float *y,       \
                            int n, struct ahead ahead) {                                                     \
        any_tile(tile_##type, w, x, ldx, b0, b1, y, n, ahead);                                               \
    }
GEMM(f32)
GEMM(f16)
GEMM(bf16)
GEMM(q8)
GEMM(q4)
GEMM(q4k)
GEMM(q5k)
GEMM(q6k)
#undef GEMM

#define GEMM_TABLE                                                                                           \
    .gemm = {[DTYPE_F32] = gemm_f32,  [DTYPE_F16] = gemm_f16, [DTYPE_BF16] = gemm_bf16,                      \
             [DTYPE_Q8_0] = gemm_q8,  [DTYPE_Q4_0] = gemm_q4, [DTYPE_Q4_K] = gemm_q4k,                       \
             [DTYPE_Q5_K] = gemm_q5k, [DTYPE_Q6_K] = gemm_q6k},                                              \
    .tile_tokens = {                                                                                         \
        [DTYPE_F32] = TILE_FLOAT,      [DTYPE_F16] = TILE_FLOAT,      [DTYPE_BF16] = TILE_FLOAT,             \
        [DTYPE_Q8_0] = TILE_QUANTISED, [DTYPE_Q4_0] = TILE_QUANTISED, [DTYPE_Q4_K] = TILE_QUANTISED,         \
        [DTYPE_Q5_K] = TILE_QUANTISED, [DTYPE_Q6_K] = TILE_QUANTISED}
