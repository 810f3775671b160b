// Shared by the GEMM kernels: weights of 16 rows and a k-step as a stage in shared memory, their MMAs with
// tokens, segments of K and the epilogues. An output element is the same sequence of operations in every
// kernel and for every m, so a token's bits do not depend on its batch.
//
// Weight rows are the mma's M, tokens its N ("swap AB"). A lane has 16 contiguous bytes of a weight row, which
// are fragments of two mma: both operands use the same permutation of k, which leaves the result as it is.
#pragma once

#include "common.cuh"

enum { SEGMENTS = 8 };

struct fragment { // of 16 rows and one k-step
    uint4 a, b;   // b: plain layouts only
};

template <enum weight_layout F> struct format_traits {
    static constexpr bool plain = F == LAYOUT_BF16 || F == LAYOUT_F16;
    static constexpr bool nibbles =
        F == LAYOUT_Q4_0 || F == LAYOUT_Q4_K || F == LAYOUT_MXFP4 || F == LAYOUT_Q2_K || F == LAYOUT_IQ4;
    static constexpr bool has_min = F == LAYOUT_Q4_K || F == LAYOUT_Q5_K || F == LAYOUT_Q2_K;
    static constexpr bool halves =
        F == LAYOUT_Q6_K || F == LAYOUT_Q2_K;      // scales of 16 columns, those of one mma
    static constexpr int step = nibbles ? 64 : 32; // columns
    static constexpr int groups = nibbles ? 2 : 1; // of 32 columns in a step
    // Bytes of a tile's k-step in shared memory: weights, a word per group and two rows (MXFP4: for both groups; Q2_K, IQ4: per
    // row; FP8: none), factors of K-quants and FP8.
    static constexpr int data = plain ? 1024 : 512;
    static constexpr int scales = plain || F == LAYOUT_FP8              ? 0
                                  : F == LAYOUT_MXFP4                   ? 32
                                  : F == LAYOUT_Q2_K || F == LAYOUT_IQ4 ? groups * 64
                                                                        : groups * 32;
    static constexpr int supers = has_min || F == LAYOUT_FP8 ? 64 : F == LAYOUT_Q6_K ? 32 : 0;
    static constexpr int stage = data + scales + supers;
};

// Which of w's factors are those of k-step s of a tile.
template <enum weight_layout F> KD_FN size_t factors_at(const struct cuda_matrix &w, int tile, int s) {
    int shared = format_traits<F>::step == 64 ? 2 : 3; // by so many k-steps, as a power of two
    if (F == LAYOUT_Q5_K && w.layout == LAYOUT_Q5_1)
        shared = 0;
    if (F == LAYOUT_FP8)
        shared = w.layout == LAYOUT_FP8 ? 2 : 0;
    return (size_t)tile * (size_t)(w.cols / format_traits<F>::step >> shared) + (size_t)(s >> shared);
}

// A warp copies k-step s of a tile to its stage, asynchronously; the caller commits.
template <enum weight_layout F>
KD_FN void copy_stage(unsigned char *stage, const struct cuda_matrix &w, int tile, int s, int lane) {
    typedef format_traits<F> traits;
    if (traits::plain) {
        const uint16_t *p = (const uint16_t *)w.data + (size_t)(tile * 16 + lane / 4) * (size_t)w.cols +
                            s * 32 + lane % 4 * 8;
        kd_copy16(stage + lane * 16, p, true);
        kd_copy16(stage + 512 + lane * 16, p + (size_t)8 * (size_t)w.cols, true);
        return;
    }
    enum { WORDS = traits::scales / 16, ALL = WORDS + traits::supers / 16 };
    size_t at = (size_t)tile * (size_t)(w.cols / traits::step) + (size_t)s;
    kd_copy16(stage + lane * 16, (const char *)w.data + at * 512 + lane * 16, true);
    const char *from = (const char *)w.scales + at * traits::scales + lane * 16;
    if (lane >= WORDS)
        from = (const char *)w.supers + factors_at<F>(w, tile, s) * traits::supers + (lane - WORDS) * 16;
    if (lane < ALL)
        kd_copy16(stage + traits::data + lane * 16, from, true);
}

template <enum weight_layout F> KD_FN fragment read_stage(const unsigned char *stage, int lane) {
    fragment f;
    f.a = *(const uint4 *)(const void *)(stage + lane * 16);
    f.b = format_traits<F>::plain ? *(const uint4 *)(const void *)(stage + 512 + lane * 16) : f.a;
    return f;
}

// Two unsigned bytes, `offset` less, as bf16 pairs.
KD_FN uint32_t bytes_to_bf16(uint32_t word, int low, float offset) {
    float a = kd_bits_float(0x4b000000u | (word >> (8 * low) & 255u)) - (8388608.0f + offset); // 2^23 + byte
    float b = kd_bits_float(0x4b000000u | (word >> (8 * low + 8) & 255u)) - (8388608.0f + offset);
    return kd_pack_bf16(a, b);
}

// Nibbles i and i + 4 of a word, `offset` less, as bf16 pairs. 0x4300 is 128; 128 + n is exact.
KD_FN uint32_t nibbles_to_bf16(uint32_t word, int i, uint32_t minus_128_offset) {
    return kd_fma_bf16x2((word >> (4 * i) & 0x000f000fu) | 0x43004300u, 0x3f803f80u, minus_128_offset);
}

// The same of 4-bit floats, twice their value: sign, exponent and mantissa move to their places in a bf16, which is then
// 2^-127 of it. Subnormal ones are subnormal there.
KD_FN uint32_t floats_to_bf16(uint32_t word, int i) {
    uint32_t size = i < 2 ? word << (6 - 4 * i) : word >> (4 * i - 6);
    return kd_fma_bf16x2((word << (12 - 4 * i) & 0x80008000u) | (size & 0x01c001c0u), 0x7f007f00u, 0);
}

// The same of nibbles 2 i and 2 i + 1, indices into IQ4's table: its bf16 as lower and as upper bytes, of which a lookup takes
// four, by the lower three bits of each index and then by the fourth.
KD_FN uint32_t table_to_bf16(uint32_t word, int i) {
    uint32_t four = word >> (i / 2 * 16), half = 0x3210u | (four >> 1 & 0x4444u);
    uint32_t low = kd_pick_bytes(kd_pick_bytes(0x82a6d0feu, 0x20b00c44u, four),
                                 kd_pick_bytes(0x18c85080u, 0xe2b28a54u, four), half);
    uint32_t high = kd_pick_bytes(kd_pick_bytes(0xc2c2c2c2u, 0xc1c1c2c2u, four),
                                  kd_pick_bytes(0x4241413fu, 0x42424242u, four), half);
    return kd_pick_bytes(low, high, i % 2 ? 0x7362u : 0x5140u);
}

// E4M3 in the upper (i even) or lower bytes of a word's halves as bf16 pairs, likewise from 2^-120 of it.
KD_FN uint32_t e4m3_to_bf16(uint32_t word, int i) {
    uint32_t size = i % 2 ? word << 4 : word >> 4;
    return kd_fma_bf16x2(((i % 2 ? word << 8 : word) & 0x80008000u) | (size & 0x07f007f0u), 0x7b807b80u, 0);
}

template <enum weight_layout F> KD_FN uint32_t decode_nibbles(uint32_t word, int i) {
    if (F == LAYOUT_MXFP4)
        return floats_to_bf16(word, i);
    if (F == LAYOUT_IQ4)
        return table_to_bf16(word, i);
    return nibbles_to_bf16(word, i,
                           F == LAYOUT_Q4_0 || F == LAYOUT_Q2_K ? 0xc308c308u : 0xc300c300u); // -136, -128
}

// The A operands of the two mma of 32 columns (group g of the step), without scales for quantised layouts.
template <enum weight_layout F> KD_FN void decode(const fragment &f, int g, uint32_t a0[4], uint32_t a1[4]) {
    if (format_traits<F>::plain) {
        a0[0] = f.a.x, a0[1] = f.b.x, a0[2] = f.a.y, a0[3] = f.b.y;
        a1[0] = f.a.z, a1[1] = f.b.z, a1[2] = f.a.w, a1[3] = f.b.w;
    } else if (format_traits<F>::nibbles) {
        uint32_t top = g == 0 ? f.a.x : f.a.z, bottom = g == 0 ? f.a.y : f.a.w; // rows r and r + 8
        a0[0] = decode_nibbles<F>(top, 0), a0[1] = decode_nibbles<F>(bottom, 0);
        a0[2] = decode_nibbles<F>(top, 1), a0[3] = decode_nibbles<F>(bottom, 1);
        a1[0] = decode_nibbles<F>(top, 2), a1[1] = decode_nibbles<F>(bottom, 2);
        a1[2] = decode_nibbles<F>(top, 3), a1[3] = decode_nibbles<F>(bottom, 3);
    } else if (F == LAYOUT_FP8) {
        a0[0] = e4m3_to_bf16(f.a.x, 0), a0[1] = e4m3_to_bf16(f.a.z, 0);
        a0[2] = e4m3_to_bf16(f.a.x, 1), a0[3] = e4m3_to_bf16(f.a.z, 1);
        a1[0] = e4m3_to_bf16(f.a.y, 0), a1[1] = e4m3_to_bf16(f.a.w, 0);
        a1[2] = e4m3_to_bf16(f.a.y, 1), a1[3] = e4m3_to_bf16(f.a.w, 1);
    } else {
        float offset = F == LAYOUT_Q5_K ? 0.0f : 128.0f;
        a0[0] = bytes_to_bf16(f.a.x, 0, offset), a0[1] = bytes_to_bf16(f.a.z, 0, offset);
        a0[2] = bytes_to_bf16(f.a.x, 2, offset), a0[3] = bytes_to_bf16(f.a.z, 2, offset);
        a1[0] = bytes_to_bf16(f.a.y, 0, offset), a1[1] = bytes_to_bf16(f.a.w, 0, offset);
        a1[2] = bytes_to_bf16(f.a.y, 2, offset), a1[3] = bytes_to_bf16(f.a.w, 2, offset);
    }
}

struct group_scale {               // of rows r (0) and r + 8 (1)
    float d[2], second[2], min[2]; // second: columns 16..32, where they have a scale of their own
    float second_min[2];
};

// The word of rows r and r + 8 of group g, of the scales of a tile's k-step. Q2_K, IQ4: a word of each.
template <enum weight_layout F> KD_FN uint2 scale_words(const void *scales, int g, int lane) {
    const uint32_t *words = (const uint32_t *)scales;
    if (F == LAYOUT_FP8)
        return {0, 0};
    if (F == LAYOUT_Q2_K || F == LAYOUT_IQ4)
        return *(const uint2 *)(words + (g * 8 + lane / 4) * 2);
    return {F == LAYOUT_MXFP4 ? words[lane / 4] >> (16 * g) : words[g * 8 + lane / 4], 0};
}

// The scales that those words and, of K-quants and FP8, factors stand for.
template <enum weight_layout F> KD_FN group_scale make_scale(uint2 words, const void *supers) {
    group_scale r = {};
    uint32_t s = words.x;
    if (F == LAYOUT_Q8_0 || F == LAYOUT_Q4_0) {
        r.d[0] = kd_half_to_float((uint16_t)s);
        r.d[1] = kd_half_to_float((uint16_t)(s >> 16));
    } else if (F == LAYOUT_FP8) {
        uint2 d = *(const uint2 *)supers;
        r.d[0] = kd_bits_float(d.x);
        r.d[1] = kd_bits_float(d.y);
    } else if (F == LAYOUT_IQ4) {
        r.d[0] = kd_bits_float(words.x);
        r.d[1] = kd_bits_float(words.y);
    } else if (F == LAYOUT_MXFP4) {
        r.d[0] = kd_bits_float((s & 255u) << 23);
        r.d[1] = kd_bits_float((s >> 8 & 255u) << 23);
    } else if (F == LAYOUT_Q6_K) {
        uint32_t d = *(const uint32_t *)supers;
        for (int i = 0; i < 2; i++) {
            float both = kd_half_to_float((uint16_t)(d >> (16 * i)));
            r.d[i] = both * (float)(int8_t)(s >> (8 * i));
            r.second[i] = both * (float)(int8_t)(s >> (16 + 8 * i));
        }
    } else if (F == LAYOUT_Q2_K) {
        uint2 d = *(const uint2 *)supers;
        for (int i = 0; i < 2; i++) {
            uint32_t own = i ? words.y : words.x;
            float scale = kd_half_to_float((uint16_t)(d.x >> (16 * i))),
                  min = kd_half_to_float((uint16_t)(d.y >> (16 * i)));
            r.d[i] = scale * (float)(int8_t)own;
            r.second[i] = scale * (float)(int8_t)(own >> 8);
            r.min[i] = min * (float)(own >> 16 & 255u);
            r.second_min[i] = min * (float)(own >> 24);
        }
    } else if (format_traits<F>::has_min) {
        uint2 d = *(const uint2 *)supers;
        for (int i = 0; i < 2; i++) {
            r.d[i] = kd_half_to_float((uint16_t)(d.x >> (16 * i))) * (float)(s >> (8 * i) & 255u);
            r.min[i] = kd_half_to_float((uint16_t)(d.y >> (16 * i))) * (float)(s >> (16 + 8 * i) & 255u);
        }
    }
    return r;
}

// Scales of group g of a stage.
template <enum weight_layout F> KD_FN group_scale read_scale(const unsigned char *stage, int g, int lane) {
    typedef format_traits<F> traits;
    if (traits::plain)
        return {};
    const unsigned char *words = stage + traits::data;
    return make_scale<F>(scale_words<F>(words, g, lane),
                         words + traits::scales + lane / 4 * (traits::supers / 8));
}

// A token's 32 columns as the B operands of two mma.
struct tokens {
    uint32_t first[2], second[2];
};
template <enum weight_layout F> KD_FN tokens read_tokens(const uint16_t *x, int lane) {
    if (format_traits<F>::halves) {
        uint2 v = *(const uint2 *)(x + lane % 4 * 4), w = *(const uint2 *)(x + 16 + lane % 4 * 4);
        return {{v.x, v.y}, {w.x, w.y}};
    }
    uint4 v = *(const uint4 *)(x + lane % 4 * 8);
    return {{v.x, v.y}, {v.z, v.w}};
}

// c += W x over 32 columns: 16 rows by 8 tokens.
template <enum weight_layout F>
KD_FN void multiply_group(float c[4], const uint32_t a0[4], const uint32_t a1[4], const group_scale &scale,
                          const tokens &x) {
    typedef format_traits<F> traits;
    if (F == LAYOUT_F16) {
        kd_mma_half(c, a0, x.first);
        kd_mma_half(c, a1, x.second);
        return;
    }
    if (traits::plain) {
        kd_mma_bf16(c, a0, x.first);
        kd_mma_bf16(c, a1, x.second);
        return;
    }
    float whole[4] = {0, 0, 0, 0}, second[4] = {0, 0, 0, 0}, sum[4] = {0, 0, 0, 0},
          second_sum[4] = {0, 0, 0, 0};
    kd_mma_bf16(whole, a0, x.first);
    kd_mma_bf16(traits::halves ? second : whole, a1, x.second);
    if (traits::has_min) { // the sum of x by a matrix of ones: no second pass over x
        const uint32_t ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
        kd_mma_bf16(sum, ones, x.first);
        kd_mma_bf16(traits::halves ? second_sum : sum, ones, x.second);
    }
#pragma unroll
    for (int e = 0; e < 4; e++) {
        c[e] = kd_fma(whole[e], scale.d[e / 2], c[e]);
        if (traits::halves)
            c[e] = kd_fma(second[e], scale.second[e / 2], c[e]);
        if (traits::has_min)
            c[e] = kd_fma(sum[e], -scale.min[e / 2], c[e]);
        if (traits::halves && traits::has_min)
            c[e] = kd_fma(second_sum[e], -scale.second_min[e / 2], c[e]);
    }
}

// Where segment i of 8 begins, in steps.
KD_FN int segment_begin(int steps, int i) { return (int)((long long)steps * i / SEGMENTS); }

// Steps [*begin, *end) of segment i. step: columns of one.
KD_FN void find_segment(const struct cuda_gemm &a, int step, int i, int *begin, int *end) {
    struct cuda_segments s = a.segments;
    if (s.num == 0) {
        *begin = segment_begin(a.w.cols / step, i);
        *end = segment_begin(a.w.cols / step, i + 1);
        return;
    }
    int here = segment_begin(s.cols / step, s.first); // where this rank's part of the whole matrix begins
    *begin = segment_begin(s.cols / step, s.first + i) - here;
    *end = i < s.num ? segment_begin(s.cols / step, s.first + i + 1) - here : *begin;
}

// num: of the segments that there are, as struct cuda_segments says.
KD_FN float add_segments(const float *red, int stride, int num) {
    if (num == 1)
        return red[0];
    if (num == 2)
        return kd_add(red[0], red[stride]);
    if (num == 4)
        return kd_add(kd_add(red[0], red[stride]), kd_add(red[2 * stride], red[3 * stride]));
    float s0 = kd_add(red[0], red[stride]), s1 = kd_add(red[2 * stride], red[3 * stride]);
    float s2 = kd_add(red[4 * stride], red[5 * stride]), s3 = kd_add(red[6 * stride], red[7 * stride]);
    return kd_add(kd_add(s0, s1), kd_add(s2, s3));
}

// Which rows of x tokens [0, num) are, and which of the result. Of all: each its own.
struct all_rows {
    int num;
};
KD_FN int row_in(const all_rows &, int m) { return m; }
KD_FN int row_out(const all_rows &, int m) { return m; }
KD_FN const float *bias_of(const all_rows &, const struct cuda_gemm &a) { return a.bias; }
// The factor of token m's dots.
KD_FN float factor_of(const all_rows &, const struct cuda_gemm &a, int m) { return a.scale ? a.scale[m] : 1; }

// Rows of the block's group of slots: a slot for each expert of a row.
struct slot_rows {
    const struct cuda_expert_gemm &a;
    const int32_t *slots;
    int num;
};
KD_FN int row_in(const slot_rows &r, int m) { return r.slots[m] / r.a.per_row; }
KD_FN int row_out(const slot_rows &r, int m) { return r.slots[m]; }
// The bias of the expert, whose number is read again here: a register through the whole loop would be too many.
KD_FN const float *bias_of(const slot_rows &r, const struct cuda_gemm &a) {
    int values = a.n * (a.epilogue == EPILOGUE_GATED ? 2 : 1);
    return a.bias ? a.bias + (size_t)r.a.groups[blockIdx.x].expert * (size_t)values : NULL;
}
KD_FN float factor_of(const slot_rows &r, const struct cuda_gemm &a, int m) {
    float scale = a.scale ? a.scale[row_in(r, m)] : 1;
    return r.a.input_weights ? kd_mul(scale, r.a.input_weights[row_out(r, m)]) : scale;
}

// The epilogue of a tile by `threads` threads, of which this is `thread`: whole warps. red: (num segments,
// NT * 8, 16). Nothing is contracted: an element's bits must not depend on what the compiler makes of NT.
template <int NT, class Rows>
KD_FN void finish(const struct cuda_gemm &a, const Rows &rows, const float *red, int num, int tile, int m0,
                  int thread, int threads) {
    enum { ALL = NT * 8 * 16 };
    const float *bias = bias_of(rows, a);
    if (a.epilogue == EPILOGUE_GATED) {
        for (int i = thread; i < ALL / 2; i += threads) {
            int m = m0 + i / 8, n = tile * 8 + i % 8, at = i / 8 * 16 + i % 8;
            if (m >= rows.num || n >= a.n)
                continue;
            float scale = factor_of(rows, a, m);
            float gate = kd_mul(add_segments(red + at, ALL, num), scale),
                  up = kd_mul(add_segments(red + at + 8, ALL, num), scale);
            if (bias)
                gate = kd_add(gate, bias[n]), up = kd_add(up, bias[a.n + n]);
            store_act(act_row(a.h, (size_t)row_out(rows, m), a.ldy, a.act_dtype), n,
                      activate_gated(a.act, gate, up), a.act_dtype);
        }
        return;
    }
    for (int i = thread; i < ALL; i += threads) { // whole warps: ALL is a multiple of 128
        int m = m0 + i / 16, n = tile * 16 + i % 16;
        bool exists = m < rows.num && n < a.n;
        float v = kd_mul(add_segments(red + i, ALL, num), m < rows.num ? factor_of(rows, a, m) : 1);
        if (bias && exists)
            v = kd_add(v, bias[n]);
        if (a.epilogue == EPILOGUE_LOGITS) {
            v = kd_mul(v, a.factor);
            if (a.softcap > 0)
                v = kd_mul(a.softcap, kd_tanh(kd_div(v, a.softcap)));
            float largest = exists ? v : -INFINITY;
            unsigned nan = __ballot_sync(ALL_LANES, largest != largest);
            for (int bits = 8; bits > 0; bits >>= 1)
                largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, bits));
            if (nan >> (kd_lane() & 16) & 0xffffu)
                largest = NAN;
            if (i % 16 == 0 && m < rows.num)
                a.max[(size_t)m * (size_t)a.ldmax + (size_t)tile] = largest;
        }
        if (!exists)
            continue;
        if (a.epilogue == EPILOGUE_ACT) {
            store_act(act_row(a.h, (size_t)row_out(rows, m), a.ldy, a.act_dtype), n, activate(a.act, v),
                      a.act_dtype);
            continue;
        }
        float *y = a.y + (size_t)row_out(rows, m) * (size_t)a.ldy + (size_t)n;
        *y = a.epilogue == EPILOGUE_ADD ? kd_add(*y, v) : v;
    }
}

// ---- blocks of 8 warps, each with tiles of its own, that go through all of K or share it

enum { ROW_TILES = 8, STAGED_THREADS = ROW_TILES * 32, MOST_LEVELS = 2 };

// Leaf n of num, from 1, of a binary tree of sums comes in c: complete left subtrees wait for the right ones,
// leaves in `lowest`, others in `levels`: (NT, STAGED_THREADS) each, of which a thread sees its own elements
// only. The last leaf makes c the sum of all.
template <int NT> KD_FN void add_leaf(float c[NT][4], float lowest[NT][4], float4 *levels, int n, int num) {
    if (n % 2 == 1) {
        if (n < num)
#pragma unroll
            for (int j = 0; j < NT; j++)
                for (int e = 0; e < 4; e++)
                    lowest[j][e] = c[j][e];
        return;
    }
#pragma unroll
    for (int j = 0; j < NT; j++)
        for (int e = 0; e < 4; e++)
            c[j][e] = kd_add(lowest[j][e], c[j][e]);
    float4 *at = levels + threadIdx.x;
    for (n /= 2, num /= 2; n % 2 == 0; n /= 2, num /= 2, at += NT * STAGED_THREADS)
#pragma unroll
        for (int j = 0; j < NT; j++) {
            float4 left = at[j * STAGED_THREADS];
            c[j][0] = kd_add(left.x, c[j][0]), c[j][1] = kd_add(left.y, c[j][1]);
            c[j][2] = kd_add(left.z, c[j][2]), c[j][3] = kd_add(left.w, c[j][3]);
        }
    if (n < num)
#pragma unroll
        for (int j = 0; j < NT; j++)
            at[j * STAGED_THREADS] = {c[j][0], c[j][1], c[j][2], c[j][3]};
}

// Leaves c for the block that adds the parts of this tile; true: this block is the one, and c is their sum.
template <int NT>
KD_FN bool add_parts(float c[NT][4], float lowest[NT][4], float4 *levels, int *is_last,
                     const struct cuda_gemm &a) {
    int num = (int)gridDim.z, tile = (int)(blockIdx.y * gridDim.x + blockIdx.x);
    float4 *parts = (float4 *)(void *)a.parts.sums + (size_t)tile * (size_t)num * NT * STAGED_THREADS;
    float4 *mine = parts + blockIdx.z * NT * STAGED_THREADS + threadIdx.x;
#pragma unroll
    for (int j = 0; j < NT; j++)
        mine[j * STAGED_THREADS] = {c[j][0], c[j][1], c[j][2], c[j][3]};
    __syncthreads(); // all have left theirs, and the ring is free
    if (threadIdx.x == 0)
        *is_last = kd_count(&a.parts.arrived[tile], (uint32_t)num - 1) == (uint32_t)num - 1;
    __syncthreads();
    if (!*is_last)
        return false;
    for (int n = 1; n <= num; n++) {
        const float4 *part = parts + (n - 1) * NT * STAGED_THREADS + threadIdx.x;
#pragma unroll
        for (int j = 0; j < NT; j++) {
            float4 v = part[j * STAGED_THREADS];
            c[j][0] = v.x, c[j][1] = v.y, c[j][2] = v.z, c[j][3] = v.w;
        }
        add_leaf<NT>(c, lowest, levels, n, num);
    }
    return true;
}

// The epilogue of a warp's tile; -1: it has none. red: where the ring was
template <int NT, class Rows>
KD_FN void finish_tile(float c[NT][4], float *red, const struct cuda_gemm &a, const Rows &rows, int tile,
                       int m0) {
    int lane = kd_lane();
    __syncthreads(); // the ring is free
    red += kd_warp() * NT * 8 * 16;
#pragma unroll
    for (int j = 0; j < NT; j++)
        for (int e = 0; e < 4; e++)
            red[(j * 8 + lane % 4 * 2 + (e & 1)) * 16 + lane / 4 + 8 * (e >> 1)] = c[j][e];
    __syncwarp();
    if (tile >= 0)
        finish<NT>(a, rows, red, 1, tile, m0, lane, 32);
}

// Blocks that share a tile: as many as give every SM one, and find a place for what they leave.
static inline int num_parts(const struct cuda_gemm *a, int tiles, int max_blocks) {
    int most = a->segments.num ? a->segments.num : SEGMENTS, parts = 1;
    while (parts < most && tiles * parts * 2 <= max_blocks)
        parts *= 2;
    return parts;
}

// Levels of add_leaf() in shared memory, of a block's own segments and then of the parts.
static inline int num_levels(const struct cuda_gemm *a, int parts) {
    int own = (a->segments.num ? a->segments.num : SEGMENTS) / parts, most = own > parts ? own : parts;
    return most > 4 ? 2 : most > 2;
}

// ---- the other kernels

// gemm_staged.cu: the kernel for more rows than gemm.cu takes; no F32.
void gemm_launch_staged(struct rt *rt, const struct cuda_gemm *a);
void gemm_launch_staged_experts(struct rt *rt, const struct cuda_expert_gemm *a); // groups of 32
// gemm_wgmma.cu: the kernel for any number of rows of the matrices that it takes.
bool gemm_takes_wgmma(const struct cuda_gemm *a);
void gemm_launch_wgmma(struct rt *rt, const struct cuda_gemm *a);
