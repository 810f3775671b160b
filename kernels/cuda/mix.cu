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

// The convolution's input `back` tokens before this row; `before` of the tokens before it are rows of the step.
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

// The window after the step. Each thread reads the values that move down before it overwrites them.
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

// A column of a head's state (N, P) is held by PARTS lanes, four elements in turn by each, at most K; a warp has 32 / PARTS
// neighbours. They stay in registers for all rows of a sequence, which follow each other, so what rows bring is copied to
// shared memory MIX_AHEAD rows ahead.
enum { MIX_AHEAD = 8 };

template <int PARTS, int K> struct mix_inputs {
    float q[PARTS * K], k[PARTS * K], v[MIX_THREADS / PARTS], dt[2], padding[2]; // dt, decay
};

// Begins to copy what at most MIX_AHEAD of n rows bring.
template <int PARTS, int K>
KD_FN void copy_rows(struct mix_inputs<PARTS, K> *to, const struct cuda_mix_recur &a, int row, int n, int h,
                     int column) {
    int N = a.key_dim, group = a.tiled ? h % a.groups : h / (a.heads / a.groups), lane = kd_lane();
    for (int r = kd_warp(); r < n && r < MIX_AHEAD; r += MIX_WARPS) {
        const float *x = a.x + (size_t)(row + r) * (size_t)a.ldx, *q = x + group * N, *k = q + a.groups * N,
                    *v = x + 2 * a.groups * N + h * a.head_dim + column,
                    *dt = a.dt + (size_t)(row + r) * (size_t)a.ld_gate + h;
#pragma unroll 1 // registers belong to the state
        for (int i = lane; i < PARTS * K; i += 32) {
            kd_copy4(&to[r].q[i], q + i, i < N);
            kd_copy4(&to[r].k[i], k + i, i < N);
        }
        if (lane < MIX_THREADS / PARTS)
            kd_copy4(&to[r].v[lane], v + lane, column + lane < a.head_dim);
        if (lane < 2)
            kd_copy4(&to[r].dt[lane], dt + lane * a.heads, true);
    }
    kd_copy_commit();
}

template <int PARTS> KD_FN int element(int part, int m) { return (part + m / 4 * PARTS) * 4 + m % 4; }

template <int PARTS, int K> KD_FN void load_part(float to[K], const float *from, int part) {
#pragma unroll
    for (int m = 0; m < K; m += 4) {
        float4 v = *(const float4 *)(const void *)(from + element<PARTS>(part, m));
        to[m] = v.x, to[m + 1] = v.y, to[m + 2] = v.z, to[m + 3] = v.w;
    }
}

// The sum over a column's elements of s * x, in the same order in whatever row.
template <int PARTS, int K> KD_FN float dot(const float s[K], const float x[K]) {
    float sum[4] = {};
#pragma unroll
    for (int m = 0; m < K; m++)
        sum[m % 4] = kd_fma(s[m], x[m], sum[m % 4]);
    float v = kd_add(kd_add(sum[0], sum[1]), kd_add(sum[2], sum[3]));
    for (int bits = 1; bits < PARTS; bits *= 2)
        v = kd_add(v, __shfl_xor_sync(ALL_LANES, v, bits));
    return v;
}

// The state after one more row, and what this gives.
template <int PARTS, int K>
KD_FN float advance(float s[K], const struct mix_inputs<PARTS, K> &x, int part, float v, bool delta) {
    float q[K], k[K], decay = x.dt[1];
    load_part<PARTS, K>(k, x.k, part);
    load_part<PARTS, K>(q, x.q, part);
    float change = kd_mul(delta ? kd_fma(-decay, dot<PARTS, K>(s, k), v) : v, x.dt[0]);
#pragma unroll
    for (int m = 0; m < K; m++)
        s[m] = kd_fma(k[m], change, kd_mul(s[m], decay));
    return dot<PARTS, K>(s, q);
}

template <int PARTS, int K>
__global__ void __launch_bounds__(MIX_THREADS) mix_recur(struct cuda_mix_recur a) {
    typedef struct mix_inputs<PARTS, K> inputs;
    KD_SHARED(inputs, rows); // (2, MIX_AHEAD)
    kd_grid_release();
    kd_grid_wait();
    enum { COLUMNS = MIX_THREADS / PARTS };
    int slices = (a.head_dim + COLUMNS - 1) / COLUMNS, h = (int)blockIdx.x / slices;
    int row = (int)blockIdx.y, seq = a.states.seq_of[row], N = a.key_dim;
    if (!begins_sequence(a.states, row, seq))
        return;
    int n = a.states.context_len[seq] - a.states.positions[row];
    int part = kd_lane() % PARTS, own = (int)threadIdx.x / PARTS,
        column0 = (int)blockIdx.x % slices * COLUMNS, column = column0 + own;
    copy_rows(rows, a, row, n, h, column0);
    bool there = column < a.head_dim;
    bool begins = a.states.positions[row] == 0;
    float *state = state_of(a.states, seq) + (size_t)h * (size_t)(N * a.head_dim) + column, s[K];
#pragma unroll
    for (int m = 0; m < K; m++) {
        int i = element<PARTS>(part, m);
        s[m] = there && !begins && i < N ? state[i * a.head_dim] : 0;
    }
    float d = a.d ? a.d[h] : 0,
          *y = a.y + (size_t)row * (size_t)(a.heads * a.head_dim) + h * a.head_dim + column;
    for (int first = 0; first < n; first += MIX_AHEAD) {
        int next = first + MIX_AHEAD;
        kd_copy_wait<0>();
        __syncthreads(); // others' copies have landed, and the rows before have been read
        copy_rows(rows + next % (2 * MIX_AHEAD), a, row + next, n - next, h, column0);
        const inputs *x = rows + first % (2 * MIX_AHEAD);
#pragma unroll 1
        for (int r = first; r < n && r < next; r++, x++, y += a.heads * a.head_dim) {
            float v = x->v[own], out = advance<PARTS, K>(s, *x, part, v, a.delta);
            if (there && part == 0)
                *y = a.d ? kd_fma(d, v, out) : out;
        }
    }
#pragma unroll
    for (int m = 0; m < K; m++) {
        int i = element<PARTS>(part, m);
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

template <int PARTS, int K> static void recur(struct rt *rt, const struct cuda_mix_recur *a) {
    int columns = MIX_THREADS / PARTS, slices = (a->head_dim + columns - 1) / columns;
    size_t shared = 2 * MIX_AHEAD * sizeof(struct mix_inputs<PARTS, K>);
    rt_launch(rt, mix_recur<PARTS, K>, rt_grid_of(a->heads * slices, a->rows, MIX_THREADS, shared), *a);
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
    if (a->key_dim <= 64)
        recur<4, 16>(rt, a);
    else if (a->key_dim <= 128)
        recur<4, 32>(rt, a);
    else
        recur<8, CUDA_MIX_KEY / 8>(rt, a);
}

void cuda_mix_finish(struct rt *rt, const struct cuda_mix_finish *a) {
    rt_launch(rt, mix_finish, rt_grid_of(a->values / a->n, a->rows, MIX_THREADS, 32 * sizeof(float)), *a);
}

} // extern "C"
