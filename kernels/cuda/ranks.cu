// What ranks do together on devices that read each other's memory (NVLink, PCIe): the sum of a row-parallel
// product, added to the residual stream, and bringing head rows together. In one shot: each rank reads what
// all have. For messages of a few rows, where latency is all; long ones go through NCCL (group.c).
//
// The handshake, block by block: a block tells its twin on every rank, by a flag in that rank's memory, that
// what its rank has made is there, and waits for theirs; then it reads; then the same again, so that nobody
// writes what another still reads. Flags only count up, from what the block keeps in `turns`: a recorded
// launch needs no new arguments, and nobody resets anything. All blocks of a launch fit on a device at once.
#include "common.cuh"

enum { MEET_THREADS = 512 };

// Whether the twins of this block have come to the turn, on all ranks. came: shared.
KD_FN bool meet(const struct cuda_group &g, uint32_t turn, int *came) {
    __syncthreads(); // what this block has read comes before its flag
    if (kd_warp() == 0) {
        int lane = kd_lane();
        size_t row = (size_t)blockIdx.x * COMM_MAX_SUM;
        if (lane < g.world)
            kd_flag_set(g.flags[lane] + row + (size_t)g.rank, turn);
        __syncwarp(); // all are told before any is waited for
        bool here = lane >= g.world || kd_flag_wait(g.flags[g.rank] + row + (size_t)lane, turn, g.stop);
        unsigned all = __ballot_sync(ALL_LANES, here);
        if (lane == 0)
            *came = all == ALL_LANES;
    }
    __syncthreads();
    return *came != 0;
}

KD_FN float4 add4(float4 a, float4 b) {
    float4 c = {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
    return c;
}
KD_FN float add4(float a, float b) { return a + b; }

// Element i of all ranks, added as the tree of neighbours.
template <int WORLD, class T> KD_FN T add_ranks(const struct cuda_sum &a, size_t i) {
    T v[WORLD];
#pragma unroll
    for (int r = 0; r < WORLD; r++)
        v[r] = ((const T *)(const void *)a.part[r])[i];
#pragma unroll
    for (int n = WORLD; n > 1; n /= 2)
        for (int r = 0; r < n / 2; r++)
            v[r] = add4(v[2 * r], v[2 * r + 1]);
    return v[0];
}

template <int WORLD> __global__ void __launch_bounds__(MEET_THREADS, 1) sum_ranks(struct cuda_sum a) {
    KD_SHARED(int, came);
    kd_grid_release();
    kd_grid_wait();
    uint32_t turn = a.group.turns[blockIdx.x];
    size_t first = (size_t)blockIdx.x * MEET_THREADS + threadIdx.x, stride = (size_t)gridDim.x * MEET_THREADS;
    size_t all = (size_t)a.rows * (size_t)a.n;
    bool go = meet(a.group, turn + 1, came);
    if (go && a.n % 4 == 0) {
        for (size_t i = first; i < all / 4; i += stride) {
            float4 v = add_ranks<WORLD, float4>(a, i), *resid = (float4 *)(void *)a.resid + i;
            if (a.bias)
                v = add4(v, ((const float4 *)(const void *)a.bias)[i % (size_t)(a.n / 4)]);
            *resid = add4(*resid, v);
        }
    } else if (go) {
        for (size_t i = first; i < all; i += stride) {
            float v = add_ranks<WORLD, float>(a, i);
            if (a.bias)
                v += a.bias[i % (size_t)a.n];
            a.resid[i] += v;
        }
    }
    meet(a.group, turn + 2, came);
    if (threadIdx.x == 0)
        a.group.turns[blockIdx.x] = turn + 2;
}

// Rank `from`'s logits of a row, and their group maxima, to the same place in ours.
KD_FN void take_logits(const struct cuda_gather &a, int row, int from) {
    size_t begin = (size_t)a.begin[from], n = (size_t)a.begin[from + 1] - begin; // begin % 32 is 0
    size_t at = (size_t)row * (size_t)a.ld + begin;
    const float *x = a.logits[from] + at;
    float *y = a.logits[a.group.rank] + at;
    for (size_t i = threadIdx.x; i < n / 4; i += MEET_THREADS)
        ((float4 *)(void *)y)[i] = ((const float4 *)(const void *)x)[i];
    for (size_t i = n / 4 * 4 + threadIdx.x; i < n; i += MEET_THREADS)
        y[i] = x[i];
    at = (size_t)row * (size_t)a.ldmax + begin / CUDA_GROUP;
    for (size_t i = threadIdx.x; i < (n + CUDA_GROUP - 1) / CUDA_GROUP; i += MEET_THREADS)
        a.max[a.group.rank][at + i] = a.max[from][at + i];
}

// Rank `from`'s candidates of a row, to their place in the small row. Not finite: maxima are NaN.
KD_FN void take_few(const struct cuda_gather &a, int row, int from) {
    const struct cuda_few *few = a.few[from] + row;
    size_t at = ((size_t)row * (size_t)a.group.world + (size_t)from) * CUDA_FEW;
    int i = (int)threadIdx.x, num = few->num;
    if (i < CUDA_FEW) {
        a.few_logits[at + (size_t)i] = i < num ? few->logits[i] : -INFINITY;
        a.few_ids[at + (size_t)i] = i < num ? few->ids[i] : 0;
    }
    if (i < CUDA_FEW / CUDA_GROUP) {
        float max = num < 0 ? NAN : -INFINITY;
        for (int k = i * CUDA_GROUP; k < (i + 1) * CUDA_GROUP && k < num; k++)
            max = fmaxf(max, few->logits[k]);
        a.few_max[at / CUDA_GROUP + (size_t)i] = max;
    }
}

__global__ void __launch_bounds__(MEET_THREADS, 1) gather_rows(struct cuda_gather a) {
    KD_SHARED(int, came);
    kd_grid_release();
    kd_grid_wait();
    uint32_t turn = a.group.turns[blockIdx.x];
    if (meet(a.group, turn + 1, came))
        for (int i = (int)blockIdx.x; i < a.num_rows * a.group.world; i += (int)gridDim.x) {
            int row = i / a.group.world, from = i % a.group.world;
            if (a.rows[row].row < 0)
                continue;
            if (cuda_few_of_row(&a.rows[row], a.most) > 0)
                take_few(a, row, from);
            else if (from != a.group.rank)
                take_logits(a, row, from);
        }
    meet(a.group, turn + 2, came);
    if (threadIdx.x == 0)
        a.group.turns[blockIdx.x] = turn + 2;
}

__global__ void __launch_bounds__(128) clear_columns(struct cuda_clear a) {
    kd_grid_release();
    kd_grid_wait();
    char *row = form_row(a.x, blockIdx.x, a.ld, a.form);
    for (int i = a.begin + (int)threadIdx.x; i < a.end; i += 128)
        store_form(row, i, 0, a.form);
}

extern "C" {

void cuda_sum(struct rt *rt, const struct cuda_sum *a) {
    size_t work = ((size_t)a->rows * (size_t)a->n + 4 * MEET_THREADS - 1) / (4 * MEET_THREADS);
    int blocks = work < CUDA_MEET_BLOCKS ? (int)work : CUDA_MEET_BLOCKS;
    struct rt_grid g = rt_grid_of(blocks, 1, MEET_THREADS, 16);
    if (blocks == 0)
        return;
    switch (a->group.world) {
    case 1: rt_launch(rt, sum_ranks<1>, g, *a); break;
    case 2: rt_launch(rt, sum_ranks<2>, g, *a); break;
    case 4: rt_launch(rt, sum_ranks<4>, g, *a); break;
    case 8: rt_launch(rt, sum_ranks<8>, g, *a); break;
    default: rt_fail(rt, "ranks are 1, 2, 4 or 8"); break;
    }
}

void cuda_gather(struct rt *rt, const struct cuda_gather *a) {
    int work = a->num_rows * a->group.world;
    if (work > 0)
        rt_launch(rt, gather_rows,
                  rt_grid_of(work < CUDA_MEET_BLOCKS ? work : CUDA_MEET_BLOCKS, 1, MEET_THREADS, 16), *a);
}

void cuda_clear(struct rt *rt, const struct cuda_clear *a) {
    if (a->rows > 0 && a->begin < a->end)
        rt_launch(rt, clear_columns, rt_grid_of(a->rows, 1, 128, 0), *a);
}

} // extern "C"
