// Kernels over rows: embedding, norms and change of activation dtype, activations. Bound by memory or by
// launching.
#include "blocks.h"
#include "common.cuh"

enum { ROW_THREADS = 128 };

// Element i of a row of n of a table as a file holds it.
KD_FN float table_element(const void *table, enum dtype dtype, int row, int n, int i) {
    if (dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16)
        return load_kv(table, (size_t)row * (size_t)n + (size_t)i, dtype);
    struct quant e =
        quant_element(dtype, (const uint8_t *)table + (size_t)row * quant_row_bytes(dtype, n), i);
    if (dtype == DTYPE_FP8) {
        uint8_t q = (uint8_t)e.q;
        float scale = kd_bits_float((uint32_t)e.scale);
        return kd_bf16_to_float(kd_float_to_bf16(kd_mul(load_kv(&q, 0, DTYPE_F8_E4M3), scale)));
    }
    if (dtype == DTYPE_IQ4_NL || dtype == DTYPE_IQ4_XS)
        e.q = quant_iq4(e.q);
    float v = dtype == DTYPE_MXFP4 ? kd_mul(kd_bits_float((uint32_t)e.scale << 23), (float)quant_e2m1(e.q))
                                   : kd_mul(kd_half_to_float(e.d), (float)(e.scale * e.q));
    return e.min ? kd_add(v, -kd_mul(kd_half_to_float(e.dmin), (float)e.min)) : v;
}

__global__ void __launch_bounds__(ROW_THREADS) embed_own_rows(struct cuda_embed_own a) {
    kd_grid_release();
    kd_grid_wait();
    int row = a.embed_rows[blockIdx.x], n = a.all.hidden;
    const float *from = a.embeds + (size_t)blockIdx.x * (size_t)n;
    float *y = a.all.resid + (size_t)row * (size_t)n;
    const float *type = a.all.type_table, *position = a.all.position_table;
    if (type && a.all.types)
        type += (size_t)a.all.types[row] * (size_t)n;
    if (position)
        position += (size_t)a.all.positions[row] * (size_t)n;
    for (int i = (int)threadIdx.x; i < n; i += ROW_THREADS) {
        float v = kd_mul(from[i], a.all.factor);
        if (type)
            v = kd_add(v, type[i]);
        if (position)
            v = kd_add(v, position[i]);
        y[i] = v;
    }
}

__global__ void __launch_bounds__(ROW_THREADS) embed_rows(struct cuda_embed a) {
    kd_grid_release();
    kd_grid_wait();
    int row = (int)blockIdx.x;
    int id = a.ids[row];
    if (id < 0)
        id = a.sampled[-1 - id];
    float *y = a.resid + (size_t)row * (size_t)a.hidden;
    if (id < 0 || id >= a.vocab) { // a damaged upload: the row fails in the open
        for (int i = (int)threadIdx.x; i < a.hidden; i += ROW_THREADS)
            y[i] = NAN;
        return;
    }
    size_t type = (size_t)(a.types ? a.types[row] : 0) * (size_t)a.hidden;
    size_t position = a.position_table ? (size_t)a.positions[row] * (size_t)a.hidden : 0;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < a.hidden; i += ROW_THREADS) {
        y[i] = kd_mul(table_element(a.table, a.dtype, id, a.hidden, i), a.factor);
        if (a.type_table)
            y[i] = kd_add(y[i], a.type_table[type + (size_t)i]);
        if (a.position_table)
            y[i] = kd_add(y[i], a.position_table[position + (size_t)i]);
    }
}

// A row's part of one layer.
__global__ void __launch_bounds__(ROW_THREADS) embed_layers(struct cuda_embed_layers a) {
    KD_SHARED(float, scratch); // (32)
    kd_grid_release();
    kd_grid_wait();
    int row = (int)blockIdx.x, first = (int)blockIdx.y * a.n, all = a.layers * a.n, id = a.ids[row];
    if (id < 0)
        id = a.sampled[-1 - id];
    id = id < a.vocab ? id : 0;
    float *x = a.x + (size_t)row * (size_t)all + first, sum = 0, mean = 0;
    for (int i = (int)threadIdx.x; i < a.n; i += ROW_THREADS) {
        x[i] = id < 0 ? NAN : kd_mul(x[i], a.factor);
        sum = a.kind == NORM_LAYER ? kd_add(sum, x[i]) : kd_fma(x[i], x[i], sum);
    }
    if (a.kind == NORM_LAYER) {
        mean = kd_div(block_sum(sum, scratch), (float)a.n);
        sum = 0;
        for (int i = (int)threadIdx.x; i < a.n; i += ROW_THREADS)
            sum = kd_fma(kd_add(x[i], -mean), kd_add(x[i], -mean), sum);
    }
    float rms = kd_rsqrt(kd_add(kd_div(block_sum(sum, scratch), (float)a.n), a.eps));
    for (int i = (int)threadIdx.x; i < a.n; i += ROW_THREADS) {
        float v = kd_mul(kd_mul(kd_add(x[i], -mean), rms), a.norm[i]);
        if (a.norm_bias)
            v = kd_add(v, a.norm_bias[i]);
        float own = id < 0 ? 0 : table_element(a.table, a.dtype, id, all, first + i);
        x[i] = kd_mul(kd_add(v, kd_mul(own, a.own_factor)), 0.70710678f);
    }
}

__global__ void __launch_bounds__(ROW_THREADS) add_rows(struct cuda_add a) {
    KD_SHARED(float, scratch); // (32)
    kd_grid_release();
    kd_grid_wait();
    size_t first = (size_t)blockIdx.x * (size_t)a.n;
    float *x = a.x + first, *y = a.resid + first, sum = 0, mean = 0, rms = 1;
    float scale = a.scale ? a.scale[0] : 1;
    for (int i = (int)threadIdx.x; i < a.n; i += ROW_THREADS) {
        x[i] = a.bias ? kd_add(x[i], a.bias[i]) : x[i];
        if (a.of_sum)
            x[i] = kd_add(y[i], kd_mul(a.factor, x[i]));
        sum = a.kind == NORM_LAYER ? kd_add(sum, x[i]) : kd_fma(x[i], x[i], sum);
    }
    if (a.norm && a.kind == NORM_LAYER) {
        mean = kd_div(block_sum(sum, scratch), (float)a.n);
        sum = 0;
        for (int i = (int)threadIdx.x; i < a.n; i += ROW_THREADS)
            sum = kd_fma(kd_add(x[i], -mean), kd_add(x[i], -mean), sum);
    }
    if (a.norm)
        rms = kd_rsqrt(kd_add(kd_div(block_sum(sum, scratch), (float)a.n), a.eps));
    for (int i = (int)threadIdx.x; i < a.n; i += ROW_THREADS) {
        float v = a.norm ? kd_mul(kd_mul(kd_add(x[i], -mean), rms), a.norm[i]) : x[i];
        if (a.norm_bias)
            v = kd_add(v, a.norm_bias[i]);
        v = a.of_sum ? v : kd_mul(a.factor, v);
        y[i] = a.of_sum ? v : kd_mul(kd_add(y[i], v), scale);
        for (int k = 1; k < a.copies; k++)
            y[(size_t)k * a.stride + (size_t)i] = kd_add(y[(size_t)k * a.stride + (size_t)i], v);
    }
}

enum { NORM_THREADS = 1024, KEPT = 2 }; // at most; times 4 elements that a thread keeps in registers

// Elements [i, i + 4) of a row, those that are there, normalised.
KD_FN float4 norm4(const struct cuda_norm &a, float4 v, int i, float mean, float rms, float4 weight,
                   bool whole) {
    float4 y = scale4(centre4(v, mean, i, a.n), rms, weight);
    if (!a.bias || i >= a.n)
        return y;
    return add4(y, read4(a.bias, i, a.n, whole));
}
KD_FN float largest4(float largest, float4 v) {
    return fmaxf(fmaxf(largest, fmaxf(fabsf(v.x), fabsf(v.y))), fmaxf(fabsf(v.z), fabsf(v.w)));
}

// A row is read once, but for what of a wide one does not fit into registers. Thread t has elements
// [4 t, 4 t + 4) of every 4 blockDim.x, which the row's length fixes.
__global__ void __launch_bounds__(NORM_THREADS) norm_rows(struct cuda_norm a) {
    KD_SHARED(float, scratch); // (32)
    kd_grid_release();
    int first = 4 * (int)threadIdx.x, step = 4 * (int)blockDim.x, rest = first + KEPT * step;
    bool whole = a.n % 4 == 0 && a.ldx % 4 == 0;
    const float4 one = {1, 1, 1, 1};
    float4 kept[KEPT], weight[KEPT];
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        weight[k] = a.weight && first + k * step < a.n ? read4(a.weight, first + k * step, a.n, whole) : one;
    kd_grid_wait(); // weights do not depend on the kernel before
    int row = (int)blockIdx.x, from = a.of ? a.of[(size_t)row * (size_t)a.of_stride] : row;
    char *out = act_row(a.out, (size_t)row, a.ldout, a.act_dtype);
    if (from < 0) {
        for (int i = (int)threadIdx.x; i < a.n; i += (int)blockDim.x)
            // 0 is 0 in both 16-bit dtypes.
            store_act(out, i, 0, a.act_dtype == ACT_DTYPE_F32 ? ACT_DTYPE_F32 : ACT_DTYPE_BF16);
        if (a.act_dtype == ACT_DTYPE_F16 && threadIdx.x == 0)
            a.scale[row] = 1;
        return;
    }
    const float *x = a.x + (size_t)from * (size_t)a.ldx;
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        kept[k] = first + k * step < a.n ? read4(x, first + k * step, a.n, whole) : float4{0, 0, 0, 0};
    float rms = 1, mean = 0;
    if (a.weight && a.kind == NORM_LAYER) {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < KEPT; k++)
            sum += (kept[k].x + kept[k].y) + (kept[k].z + kept[k].w);
        for (int i = rest; i < a.n; i += step) {
            float4 v = read4(x, i, a.n, whole);
            sum += (v.x + v.y) + (v.z + v.w);
        }
        mean = kd_div(block_sum(sum, scratch), (float)a.n);
    }
    if (a.weight) {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < KEPT; k++)
            sum = add_squares(sum, centre4(kept[k], mean, first + k * step, a.n));
        for (int i = rest; i < a.n; i += step)
            sum = add_squares(sum, centre4(read4(x, i, a.n, whole), mean, i, a.n));
        rms = kd_rsqrt(kd_add(kd_div(block_sum(sum, scratch), (float)a.n), a.eps));
    }
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        kept[k] = norm4(a, kept[k], first + k * step, mean, rms, weight[k], whole);
    float factor = 1;
    if (a.act_dtype == ACT_DTYPE_F16) {
        float largest = 0;
#pragma unroll
        for (int k = 0; k < KEPT; k++)
            largest = largest4(largest, kept[k]);
        for (int i = rest; i < a.n; i += step)
            largest = largest4(largest, norm4(a, read4(x, i, a.n, whole), i, mean, rms,
                                              a.weight ? read4(a.weight, i, a.n, whole) : one, whole));
        largest = block_max(largest, scratch); // a NaN stays one under any factor
        // 2^e with largest * 2^e in [2^14, 2^15); rows of zeros, of subnormals and of infinities keep 1
        int e = (int)(kd_float_bits(largest) >> 23) - 127;
        if (e > -110 && e < 128)
            factor = kd_bits_float((uint32_t)(14 - e + 127) << 23);
        if (threadIdx.x == 0)
            a.scale[row] = kd_div(1, factor);
    }
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        if (first + k * step < a.n)
            write4(out, first + k * step, a.n, scale4(kept[k], factor, one), a.act_dtype, whole);
    for (int i = rest; i < a.n; i += step) {
        float4 v = norm4(a, read4(x, i, a.n, whole), i, mean, rms,
                         a.weight ? read4(a.weight, i, a.n, whole) : one, whole);
        write4(out, i, a.n, scale4(v, factor, one), a.act_dtype, whole);
    }
}

__global__ void __launch_bounds__(ROW_THREADS) activate_rows(struct cuda_act a) {
    kd_grid_release();
    kd_grid_wait();
    int i = 4 * (int)(blockIdx.x * ROW_THREADS + threadIdx.x), row = (int)blockIdx.y;
    if (i >= a.n)
        return;
    // The numbers of gates and of ups are multiples of 8.
    const char *x = (const char *)a.x + (size_t)row * (size_t)a.ldx * (a.bf16 ? 2 : 4);
    int first = a.interleaved ? i / 8 * 16 + i % 8 : i, second = a.interleaved ? first + 8 : a.up + i;
    float4 g = scale_sums(a.scales, read_sums(x, first, a.ldx, a.bf16, true), row, first, a.ldx, true), h;
    if (a.bias)
        g = add4(g, read4(a.bias, i, a.n, false));
    if (a.gated) {
        bool whole = a.n % 4 == 0 && a.ld_ups % 4 == 0;
        float4 u =
            a.ups ? read4(a.ups + (size_t)row * (size_t)a.ld_ups, i, a.n, whole)
                  : scale_sums(a.scales, read_sums(x, second, a.ldx, a.bf16, true), row, second, a.ldx, true);
        if (a.bias)
            u = add4(u, read4(a.bias + a.n, i, a.n, false));
        h = {activate_gated(a.act, g.x, u.x), activate_gated(a.act, g.y, u.y),
             activate_gated(a.act, g.z, u.z), activate_gated(a.act, g.w, u.w)};
    } else {
        h = {activate(a.act, g.x), activate(a.act, g.y), activate(a.act, g.z), activate(a.act, g.w)};
    }
    write4(act_row(a.out, (size_t)row, a.ldout, a.act_dtype), i, a.n, h, a.act_dtype, i + 4 <= a.n);
}

__global__ void __launch_bounds__(ROW_THREADS) gate_rows(struct cuda_gate a) {
    kd_grid_release();
    kd_grid_wait();
    int i = 4 * (int)(blockIdx.x * ROW_THREADS + threadIdx.x);
    size_t row = blockIdx.y;
    if (i >= a.n)
        return;
    float *x = a.x + row * (size_t)a.ldx;
    bool whole = a.n % 4 == 0 && a.ldx % 4 == 0;
    float4 v = read4(x, i, a.n, whole), g = read4(a.gate + row * (size_t)a.n, i, a.n, whole);
    v = {times_sigmoid(v.x, g.x), times_sigmoid(v.y, g.y), times_sigmoid(v.z, g.z), times_sigmoid(v.w, g.w)};
    write4(x, i, a.n, v, ACT_DTYPE_F32, whole);
}

__global__ void __launch_bounds__(ROW_THREADS) finish_rows(struct cuda_finish a) {
    kd_grid_release();
    kd_grid_wait();
    int i = 4 * (int)(blockIdx.x * ROW_THREADS + threadIdx.x);
    size_t row = blockIdx.y;
    if (i >= a.n)
        return;
    float *y = a.y + row * (size_t)a.ldy;
    bool whole = i + 4 <= a.n && a.ldx % 4 == 0 && a.ldy % 4 == 0 && (uintptr_t)a.y % 16 == 0;
    const char *x = (const char *)a.x + row * (size_t)a.ldx * (a.bf16 ? 2 : 4);
    float4 v = read_sums(x, i, a.n, a.bf16, whole), b = {0, 0, 0, 0}, to = {0, 0, 0, 0};
    if (a.bias)
        b = read4(a.bias, i, a.n, whole);
    if (a.add)
        to = read4(y, i, a.n, whole);
    v = add4(scale_sums(a.scales, v, (int)row, i, a.n, whole), b);
    if (a.add)
        v = add4(to, v);
    write4(y, i, a.n, v, ACT_DTYPE_F32, whole);
}

enum { QUANTISE_THREADS = 256 };

// The larger one of `largest` and two bf16.
KD_FN float larger2(float largest, uint32_t two) {
    return fmaxf(largest, fmaxf(kd_bits_float(two << 16 & 0x7fff0000u), kd_bits_float(two & 0x7fff0000u)));
}
KD_FN uint32_t quantise4(uint32_t low, uint32_t high, float factor) {
    return kd_pack_e4m3(kd_mul(kd_bits_float(low << 16), factor),
                        kd_mul(kd_bits_float(low & 0xffff0000u), factor)) |
           kd_pack_e4m3(kd_mul(kd_bits_float(high << 16), factor),
                        kd_mul(kd_bits_float(high & 0xffff0000u), factor))
               << 16;
}

// By what values are multiplied before they become E4M3. Of almost 0 (2^-100) it is 0, of infinity, too: NaN comes out.
KD_FN float e4m3_factor(float largest) { return largest < 7.88860905e-31f ? 0 : kd_div(448, largest); }

__global__ void __launch_bounds__(QUANTISE_THREADS) quantise_rows(struct cuda_quantise a) {
    KD_SHARED(float, scratch); // (32)
    kd_grid_release();
    kd_grid_wait();
    size_t row = blockIdx.x;
    const uint4 *x = (const uint4 *)(const void *)(a.x + row * (size_t)a.ldx);
    uint2 *out = (uint2 *)(void *)(a.out + row * (size_t)a.n);
    float largest = 0; // but NaN, which stays one under any factor
    for (int i = (int)threadIdx.x; i < a.n / 8; i += QUANTISE_THREADS) {
        uint4 v = x[i];
        largest = larger2(larger2(larger2(larger2(largest, v.x), v.y), v.z), v.w);
    }
    largest = block_max(largest, scratch);
    float factor = e4m3_factor(largest);
    if (threadIdx.x == 0)
        a.scale[row] = kd_div(largest, 448);
    for (int i = (int)threadIdx.x; i < a.n / 8; i += QUANTISE_THREADS) {
        uint4 v = x[i];
        out[i] = {quantise4(v.x, v.y, factor), quantise4(v.z, v.w, factor)};
    }
}

// 16 threads have 128 columns of a row.
__global__ void __launch_bounds__(QUANTISE_THREADS) quantise_groups(struct cuda_quantise a) {
    kd_grid_release();
    kd_grid_wait();
    int row = (int)(blockIdx.x * QUANTISE_THREADS + threadIdx.x) / 16, thread = (int)threadIdx.x % 16;
    size_t column = (size_t)blockIdx.y * 128 + (size_t)thread * 8;
    uint4 v = {0, 0, 0, 0};
    if (row < a.rows)
        v = *(const uint4 *)(const void *)(a.x + (size_t)row * (size_t)a.ldx + column);
    float largest = larger2(larger2(larger2(larger2(0, v.x), v.y), v.z), v.w);
    for (int bits = 8; bits > 0; bits >>= 1)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, bits));
    if (row >= a.rows)
        return;
    float factor = e4m3_factor(largest);
    if (thread == 0)
        a.scale[(size_t)blockIdx.y * (size_t)a.ld_scale + (size_t)row] = kd_div(largest, 448);
    *(uint2 *)(void *)(a.out + (size_t)row * (size_t)a.n + column) = {quantise4(v.x, v.y, factor),
                                                                      quantise4(v.z, v.w, factor)};
}

// Column of gate i.
KD_FN int gate_column(const struct cuda_cut &a, int i) { return a.interleaved ? i / 8 * 16 + i % 8 : i; }

__global__ void __launch_bounds__(ROW_THREADS) cut_gates(struct cuda_cut a) {
    KD_SHARED(float, scratch); // (32)
    kd_grid_release();
    kd_grid_wait();
    float *x = a.x + (size_t)blockIdx.x * (size_t)a.ldx, sum = 0;
    for (int i = (int)threadIdx.x; i < a.n; i += ROW_THREADS)
        sum = kd_add(sum, x[gate_column(a, i)]);
    float mean = kd_div(block_sum(sum, scratch), (float)a.n);
    sum = 0;
    for (int i = (int)threadIdx.x; i < a.n; i += ROW_THREADS) {
        float v = kd_add(x[gate_column(a, i)], -mean);
        sum = kd_fma(v, v, sum);
    }
    float variance = kd_div(block_sum(sum, scratch), (float)a.n);
    float deviation = variance > 0 ? kd_div(1, kd_rsqrt(variance)) : variance;
    float least = kd_fma(deviation, a.deviations, mean);
    for (int i = (int)threadIdx.x; i < a.n; i += ROW_THREADS) {
        float more = kd_add(x[gate_column(a, i)], -least);
        x[gate_column(a, i)] = more < 0 ? 0 : more; // a NaN stays one
    }
}

extern "C" {

void cuda_finish(struct rt *rt, const struct cuda_finish *a) {
    if (a->rows > 0)
        rt_launch(rt, finish_rows,
                  rt_grid_of((a->n + 4 * ROW_THREADS - 1) / (4 * ROW_THREADS), a->rows, ROW_THREADS, 0), *a);
}

void cuda_quantise(struct rt *rt, const struct cuda_quantise *a) {
    int rows = QUANTISE_THREADS / 16; // of a block of quantise_groups()
    if (a->rows > 0 && a->ld_scale > 0)
        rt_launch(rt, quantise_groups,
                  rt_grid_of((a->rows + rows - 1) / rows, a->n / 128, QUANTISE_THREADS, 0), *a);
    else if (a->rows > 0)
        rt_launch(rt, quantise_rows, rt_grid_of(a->rows, 1, QUANTISE_THREADS, 32 * sizeof(float)), *a);
}

void cuda_add(struct rt *rt, const struct cuda_add *a) {
    if (a->rows > 0)
        rt_launch(rt, add_rows, rt_grid_of(a->rows, 1, ROW_THREADS, 32 * sizeof(float)), *a);
}

void cuda_embed(struct rt *rt, const struct cuda_embed *a) {
    if (a->rows > 0)
        rt_launch(rt, embed_rows, rt_grid_of(a->rows, 1, ROW_THREADS, 0), *a);
}

void cuda_embed_own(struct rt *rt, const struct cuda_embed_own *a) {
    if (a->num > 0)
        rt_launch(rt, embed_own_rows, rt_grid_of(a->num, 1, ROW_THREADS, 0), *a);
}

void cuda_embed_layers(struct rt *rt, const struct cuda_embed_layers *a) {
    if (a->rows > 0)
        rt_launch(rt, embed_layers, rt_grid_of(a->rows, a->layers, ROW_THREADS, 32 * sizeof(float)), *a);
}

void cuda_norm(struct rt *rt, const struct cuda_norm *a) {
    int threads = (a->n + 127) / 128 * 32;
    if (a->rows > 0)
        rt_launch(rt, norm_rows,
                  rt_grid_of(a->rows, 1, threads < NORM_THREADS ? threads : NORM_THREADS, 32 * sizeof(float)),
                  *a);
}

void cuda_act(struct rt *rt, const struct cuda_act *a) {
    if (a->rows > 0)
        rt_launch(rt, activate_rows,
                  rt_grid_of((a->n + 4 * ROW_THREADS - 1) / (4 * ROW_THREADS), a->rows, ROW_THREADS, 0), *a);
}

void cuda_gate(struct rt *rt, const struct cuda_gate *a) {
    if (a->rows > 0)
        rt_launch(rt, gate_rows,
                  rt_grid_of((a->n + 4 * ROW_THREADS - 1) / (4 * ROW_THREADS), a->rows, ROW_THREADS, 0), *a);
}

void cuda_cut(struct rt *rt, const struct cuda_cut *a) {
    if (a->rows > 0)
        rt_launch(rt, cut_gates, rt_grid_of(a->rows, 1, ROW_THREADS, 32 * sizeof(float)), *a);
}

} // extern "C"
