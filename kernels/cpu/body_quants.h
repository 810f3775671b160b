// GEMM tiles of the quantised formats: the part of body.h (which includes this file) that decodes blocks. A
// block becomes 8 raw64 of unsigned numbers, 4 k of 16 rows each; the sums are then the same for all (rule
// 4).

// acc[t] += 32 k of token t: two fma. q: decoded weights of at most 7 bits; a: 32-blocks of activations.
INLINE void add_block(struct v16 *acc, const struct raw64 *q, struct v16 scale, struct v16 offset,
                      const void *x, size_t ldx, int at, const int n) {
    UNROLL for (int t = 0; t < n; t++) {
        const struct act_q8 *a = (const struct act_q8 *)token(x, ldx, t) + at;
        struct i16 dot0 = i16_zero(), dot1 = i16_zero();
        UNROLL for (int j = 0; j < 4; j++) {
            uint32_t x0, x1;
            memcpy(&x0, a->q + 4 * j, 4);
            memcpy(&x1, a->q + 4 * j + 16, 4);
            dot0 = i16_dot_u7(dot0, q[j], x0);
            dot1 = i16_dot_u7(dot1, q[j + 4], x1);
        }
        struct v16 dot = v16_from_i16(i16_add(dot0, dot1));
        acc[t] = v16_fma(dot, v16_mul(scale, v16_set1(a->d)), acc[t]);
        acc[t] = v16_fma(offset, v16_set1(a->s), acc[t]);
    }
}

// The same with a scale for each half of the 32 k, and weights that are 32 too large: one fma for each half.
INLINE void add_halves(struct v16 *acc, const struct raw64 *q, struct v16 scale0, struct v16 scale1,
                       const void *x, size_t ldx, int at, const int n) {
    UNROLL for (int t = 0; t < n; t++) {
        const struct act_q8 *a = (const struct act_q8 *)token(x, ldx, t) + at;
        struct i16 dot0 = i16_set1(-32 * a->sum[0]), dot1 = i16_set1(-32 * a->sum[1]);
        UNROLL for (int j = 0; j < 4; j++) {
            uint32_t x0, x1;
            memcpy(&x0, a->q + 4 * j, 4);
            memcpy(&x1, a->q + 4 * j + 16, 4);
            dot0 = i16_dot_u7(dot0, q[j], x0);
            dot1 = i16_dot_u7(dot1, q[j + 4], x1);
        }
        struct v16 d = v16_set1(a->d);
        acc[t] = v16_fma(v16_from_i16(dot0), v16_mul(scale0, d), acc[t]);
        acc[t] = v16_fma(v16_from_i16(dot1), v16_mul(scale1, d), acc[t]);
    }
}

INLINE void load_nibbles(struct raw64 *q, const uint8_t (*w)[64]) {
    UNROLL for (int j = 0; j < 4; j++) {
        struct raw64 pair = raw64_load(w[j]);
        q[j] = raw64_low(pair);
        q[j + 4] = raw64_high(pair);
    }
}

// Weights (K/32) weight_q4, activations (K/32) act_q8; a block is 32 k.
INLINE void tile_q4(const void *w, const void *x, size_t ldx, int b0, int b1, float *y, const int n) {
    struct v16 acc[GEMM_TOKENS];
    UNROLL for (int t = 0; t < n; t++) acc[t] = v16_set1(0);
    for (int b = b0; b < b1; b++) {
        const struct weight_q4 *block = (const struct weight_q4 *)w + b;
        struct raw64 q[8];
        load_nibbles(q, block->q);
        struct v16 scale = v16_load_f16(block->d);
        add_block(acc, q, scale, v16_mul(scale, v16_set1(-8)), x, ldx, b, n);
    }
    UNROLL for (int t = 0; t < n; t++) v16_store(y + t * LANES, acc[t]);
}

// Weights (K/256) weight_q4k, or weight_q5k with a plane of fifth bits; a block is 256 k.
INLINE void tile_q45k(const void *w, const void *x, size_t ldx, int b0, int b1, float *y, const int n,
                      const bool fifth) {
    size_t bytes = fifth ? sizeof(struct weight_q5k) : sizeof(struct weight_q4k);
    struct v16 acc[GEMM_TOKENS];
    UNROLL for (int t = 0; t < n; t++) acc[t] = v16_set1(0);
    for (int b = b0; b < b1; b++) {
        const void *at = (const char *)w + (size_t)b * bytes;
        const struct weight_q4k *block = at;
        struct v16 d = v16_load_f16(block->d), minus_min = v16_load_f16(block->minus_min);
        for (int s = 0; s < 8; s++) {
            struct raw64 q[8];
            load_nibbles(q, block->q[s]);
            if (fifth) {
                struct raw64 high = raw64_load(((const struct weight_q5k *)at)->high[s]);
                UNROLL for (int j = 0; j < 8; j++) q[j] = raw64_insert(q[j], high, 4 - j, 0x10);
            }
            add_block(acc, q, v16_mul(d, v16_load_u8(block->scale[s])),
                      v16_mul(minus_min, v16_load_u8(block->min[s])), x, ldx, 8 * b + s, n);
        }
    }
    UNROLL for (int t = 0; t < n; t++) v16_store(y + t * LANES, acc[t]);
}

INLINE void tile_q4k(const void *w, const void *x, size_t ldx, int b0, int b1, float *y, const int n) {
    tile_q45k(w, x, ldx, b0, b1, y, n, false);
}

INLINE void tile_q5k(const void *w, const void *x, size_t ldx, int b0, int b1, float *y, const int n) {
    tile_q45k(w, x, ldx, b0, b1, y, n, true);
}

// Weights (K/256) weight_q6k, activations (K/32) act_q8; a block is 256 k.
INLINE void tile_q6k(const void *w, const void *x, size_t ldx, int b0, int b1, float *y, const int n) {
    struct v16 acc[GEMM_TOKENS];
    UNROLL for (int t = 0; t < n; t++) acc[t] = v16_set1(0);
    for (int b = b0; b < b1; b++) {
        const struct weight_q6k *block = (const struct weight_q6k *)w + b;
        struct v16 d = v16_load_f16(block->d);
        for (int s = 0; s < 8; s++) {
            struct raw64 q[8], high0 = raw64_load(block->high[s][0]), high1 = raw64_load(block->high[s][1]);
            load_nibbles(q, block->q[s]);
            UNROLL for (int j = 0; j < 4; j++) {
                q[j] = raw64_insert(q[j], high0, 4 - 2 * j, 0x30);
                q[j + 4] = raw64_insert(q[j + 4], high1, 4 - 2 * j, 0x30);
            }
            add_halves(acc, q, v16_mul(d, v16_load_i8(block->scale[2 * s])),
                       v16_mul(d, v16_load_i8(block->scale[2 * s + 1])), x, ldx, 8 * b + s, n);
        }
    }
    UNROLL for (int t = 0; t < n; t++) v16_store(y + t * LANES, acc[t]);
}

static void gemm_q4(const void *w, const void *x, size_t ldx, int b0, int b1, float *y, int n) {
    tiles(tile_q4, w, x, ldx, b0, b1, y, n);
}
static void gemm_q4k(const void *w, const void *x, size_t ldx, int b0, int b1, float *y, int n) {
    tiles(tile_q4k, w, x, ldx, b0, b1, y, n);
}
static void gemm_q5k(const void *w, const void *x, size_t ldx, int b0, int b1, float *y, int n) {
    tiles(tile_q5k, w, x, ldx, b0, b1, y, n);
}
static void gemm_q6k(const void *w, const void *x, size_t ldx, int b0, int b1, float *y, int n) {
    tiles(tile_q6k, w, x, ldx, b0, b1, y, n);
}
