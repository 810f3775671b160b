// Recurrent layers between their input and output matrices (kernels/README.md, rule 19). The convolution, and what rows
// need before and after the recurrence, take all rows at once; the recurrence takes a sequence's one after the other. A
// sequence is found by its first or last row, so that nothing but the upload says where it lies.
#include "common.cuh"

enum { MIX_THREADS = 128, MIX_WARPS = MIX_THREADS / 32 };

KD_FN float *state_of(const struct cuda_states &s, int seq) {
    return (float *)(void *)(s.first + (size_t)s.blocks.ids[s.blocks.start[seq]] * s.page_bytes);
}
KD_FN bool begins_sequence(const struct cuda_states &s, int row, int seq) {
    return seq >= 0 && (row == 0 || s.seq_of[row - 1] != seq);
}
KD_FN bool ends_sequence(const struct cuda_states &s, int row, int rows, int seq) {
    return seq >= 0 && (row + 1 == rows || s.seq_of[row + 1] != seq);
}

// ---- the convolution

// Rows of the sequence right before this one, as many as its window may reach.
KD_FN int rows_before(const struct cuda_mix_conv &a, int row, int seq) {
    int n = 0;
    while (n < a.taps - 1 && n < row && a.states.seq_of[row - n - 1] == seq)
        n++;
    return n;
}

// What goes into the convolution `back` tokens before this row, of which `before` are rows of the step.
KD_FN float conv_input(const struct cuda_mix_conv &a, const float *window, int row, int c, int before,
                       int back) {
    if (a.states.positions[row] < back)
        return 0;
    if (back > before)
        return window[(a.taps - 1 + before - back) * a.channels + c];
    const float *x = a.x + (size_t)(row - back) * (size_t)a.ldx + c;
    return a.gated ? kd_mul(x[0], x[2 * a.channels]) : x[0];
}

__global__ void __launch_bounds__(MIX_THREADS) mix_conv(struct cuda_mix_conv a) {
    kd_grid_release();
    kd_grid_wait();
    int c = (int)(blockIdx.x * MIX_THREADS + threadIdx.x), row = (int)blockIdx.y, seq = a.states.seq_of[row];
    if (c >= a.channels || seq < 0)
        return;
    const float *window = state_of(a.states, seq), *w = a.w + c * a.taps + a.taps - 1;
    int before = rows_before(a, row, seq);
    float sum = a.bias ? a.bias[c] : 0;
    for (int back = a.taps - 1; back >= 0; back--)
        sum = kd_fma(w[-back], conv_input(a, window, row, c, before, back), sum);
    sum = a.gated ? kd_mul(a.x[(size_t)row * (size_t)a.ldx + a.channels + c], sum) : activate(ACT_SILU, sum);
    store_act(act_row(a.y, (size_t)row, a.ldy, a.act_dtype), c, sum, a.act_dtype);
}

// The window after the step. What moves down was read by the same thread before it is written over.
__global__ void __launch_bounds__(MIX_THREADS) mix_window(struct cuda_mix_conv a) {
    kd_grid_release();
    kd_grid_wait();
    int c = (int)(blockIdx.x * MIX_THREADS + threadIdx.x), row = (int)blockIdx.y, seq = a.states.seq_of[row];
    if (c >= a.channels || !ends_sequence(a.states, row, a.rows, seq))
        return;
    float *window = state_of(a.states, seq);
    int before = rows_before(a, row, seq);
    for (int back = a.taps - 2; back >= 0; back--)
        window[(a.taps - 2 - back) * a.channels + c] = conv_input(a, window, row, c, before, back);
}

// ---- the recurrence

__global__ void __launch_bounds__(MIX_THREADS) mix_prepare(struct cuda_mix_prepare a) {
    kd_grid_release();
    kd_grid_wait();
    size_t row = blockIdx.x;
    float *q = a.qk + row * (size_t)a.ldx, *dt = a.gate + row * (size_t)a.ld_gate;
    for (int g = kd_warp(); g < 2 * a.groups && a.delta; g += MIX_WARPS) {
        float *x = q + g * a.key_dim, sum = 0;
        for (int i = kd_lane(); i < a.key_dim; i += 32)
            sum = kd_fma(x[i], x[i], sum);
        float scale = kd_rsqrt(kd_add(kd_warp_sum(sum), 1e-6f));
        if (g < a.groups)
            scale = kd_mul(scale, kd_rsqrt((float)a.key_dim));
        for (int i = kd_lane(); i < a.key_dim; i += 32)
            x[i] = kd_mul(x[i], scale);
    }
    for (int h = (int)threadIdx.x; h < a.heads; h += MIX_THREADS) {
        double x = (double)kd_add(dt[(a.delta ? a.heads : 0) + h], a.bias[h]);
        float step = (float)(x > 20 ? x : log1p(exp(x)));
        dt[a.heads + h] = (float)exp((double)step * (double)a.a[h]);
        dt[h] = a.delta ? (float)(1 / (1 + exp(-(double)dt[h]))) : step;
    }
}

// A column of a head's state (N, P) is held by PARTS lanes, elements i of the same i % PARTS in each, at most K; a warp
// has 32 / PARTS neighbours.
template <int PARTS> KD_FN float sum_parts(float v) {
    for (int bits = 1; bits < PARTS; bits *= 2)
        v += __shfl_xor_sync(ALL_LANES, v, bits);
    return v;
}

template <int PARTS, int K>
__global__ void __launch_bounds__(MIX_THREADS) mix_recur(struct cuda_mix_recur a) {
    kd_grid_release();
    kd_grid_wait();
    int slices = (a.head_dim + MIX_THREADS / PARTS - 1) / (MIX_THREADS / PARTS), h = (int)blockIdx.x / slices;
    int row = (int)blockIdx.y, seq = a.states.seq_of[row], N = a.key_dim;
    if (!begins_sequence(a.states, row, seq))
        return;
    int part = kd_lane() % PARTS,
        column = ((int)blockIdx.x % slices * MIX_THREADS + (int)threadIdx.x) / PARTS;
    bool there = column < a.head_dim;
    int group = a.tiled ? h % a.groups : h / (a.heads / a.groups);
    float *state = state_of(a.states, seq) + (size_t)h * (size_t)(N * a.head_dim) + column, s[K];
    bool begins = a.states.positions[row] == 0;
#pragma unroll
    for (int m = 0; m < K; m++) {
        int i = part + PARTS * m;
        s[m] = there && !begins && i < N ? state[i * a.head_dim] : 0;
    }
    for (; row < a.rows && a.states.seq_of[row] == seq; row++) {
        const float *q = a.x + (size_t)row * (size_t)a.ldx + group * N + part, *k = q + a.groups * N;
        const float *dt = a.dt + (size_t)row * (size_t)a.ld_gate + h;
        float v = there ? a.x[(size_t)row * (size_t)a.ldx + 2 * a.groups * N + h * a.head_dim + column] : 0;
        float decay = dt[a.heads], change = v, out = 0, key[K];
#pragma unroll
        for (int m = 0; m < K; m++)
            key[m] = part + PARTS * m < N ? k[PARTS * m] : 0;
        if (a.delta) {
            float seen = 0;
#pragma unroll
            for (int m = 0; m < K; m++)
                seen = kd_fma(s[m], key[m], seen);
            change = kd_fma(-decay, sum_parts<PARTS>(seen), v);
        }
        change = kd_mul(change, dt[0]);
#pragma unroll
        for (int m = 0; m < K; m++) {
            s[m] = kd_fma(key[m], change, kd_mul(s[m], decay));
            out = kd_fma(s[m], part + PARTS * m < N ? q[PARTS * m] : 0, out);
        }
        out = sum_parts<PARTS>(out);
        if (there && part == 0)
            a.y[(size_t)row * (size_t)(a.heads * a.head_dim) + h * a.head_dim + column] =
                a.d ? kd_fma(a.d[h], v, out) : out;
    }
#pragma unroll
    for (int m = 0; m < K; m++) {
        int i = part + PARTS * m;
        if (there && i < N)
            state[i * a.head_dim] = s[m];
    }
}

// A block has the values of one norm of a row: of a head, or a group of heads.
__global__ void __launch_bounds__(MIX_THREADS) mix_finish(struct cuda_mix_finish a) {
    KD_SHARED(float, scratch); // (32)
    kd_grid_release();
    kd_grid_wait();
    size_t row = blockIdx.y;
    int first = (int)blockIdx.x * a.n;
    const float *y = a.y + row * (size_t)a.values + first, *z = a.gate + row * (size_t)a.ld_gate + first;
    const float *norm = a.norm && a.gate_first ? a.norm + first : a.norm;
    float sum = 0, rms = 1;
    for (int i = (int)threadIdx.x; i < a.n && norm; i += MIX_THREADS) {
        float v = a.gate_first ? kd_mul(y[i], activate(ACT_SILU, z[i])) : y[i];
        sum = kd_fma(v, v, sum);
    }
    if (norm)
        rms = kd_rsqrt(kd_add(kd_div(block_sum(sum, scratch), (float)a.n), a.eps));
    for (int i = (int)threadIdx.x; i < a.n; i += MIX_THREADS) {
        float v = kd_mul(y[i], activate(ACT_SILU, z[i]));
        store_act(act_row(a.out, row, a.ldout, a.act_dtype), first + i,
                  norm ? kd_mul(kd_mul(v, rms), norm[i]) : v, a.act_dtype);
    }
}

extern "C" {

void cuda_mix_conv(struct rt *rt, const struct cuda_mix_conv *a) {
    struct rt_grid grid = rt_grid_of((a->channels + MIX_THREADS - 1) / MIX_THREADS, a->rows, MIX_THREADS, 0);
    rt_launch(rt, mix_conv, grid, *a);
    rt_launch(rt, mix_window, grid, *a);
}

void cuda_mix_prepare(struct rt *rt, const struct cuda_mix_prepare *a) {
    rt_launch(rt, mix_prepare, rt_grid_of(a->rows, 1, MIX_THREADS, 0), *a);
}

void cuda_mix_recur(struct rt *rt, const struct cuda_mix_recur *a) {
    int columns = MIX_THREADS / (a->key_dim <= 128 ? 4 : 8), slices = (a->head_dim + columns - 1) / columns;
    struct rt_grid grid = rt_grid_of(a->heads * slices, a->rows, MIX_THREADS, 0);
    if (a->key_dim <= 64)
        rt_launch(rt, mix_recur<4, 16>, grid, *a);
    else if (a->key_dim <= 128)
        rt_launch(rt, mix_recur<4, 32>, grid, *a);
    else
        rt_launch(rt, mix_recur<8, CUDA_MIX_KEY / 8>, grid, *a);
}

void cuda_mix_finish(struct rt *rt, const struct cuda_mix_finish *a) {
    rt_launch(rt, mix_finish, rt_grid_of(a->values / a->n, a->rows, MIX_THREADS, 32 * sizeof(float)), *a);
}

} // extern "C"
