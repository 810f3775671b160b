// Kernels with a cross-GPU barrier, on devices that read each other's memory (NVLink, PCIe): the sum of a
// row-parallel GEMM or of experts, and the gathering of logits rows and of what a stage hands over. A short
// sum is made in one shot: each rank reads the parts of all. A longer one in two: each rank adds a slice of it
// and writes that over the slice in the parts of all, which no other rank reads; then each has the whole sum at
// home. Prompts' long sums go through NCCL (peers.c).
//
// The barrier, block by block: a block sets a flag in the memory of every rank, which tells its twin there
// that what its rank has made is there, and waits for theirs; then it reads; then the same again, so that
// no rank writes what another still reads, or reads a sum before it is there. Flags only count up, from the value
// that the block keeps in `epochs`: a CUDA graph needs no new arguments, and flags are never reset. A block that has
// failed a barrier keeps an odd number: from then on it signals no arrival, as its rank's values are wrong, and waits
// for no other. All blocks of a launch fit on a device at once.
#include "common.cuh"

enum { PEER_THREADS = 512 };

// Whether the twins of this block have come to the epoch, on all ranks. arrived: shared.
KD_FN bool peer_barrier(const struct cuda_peers &g, uint32_t epoch, int *arrived) {
    __syncthreads(); // this block's reads come before its flag
    if (kd_warp() == 0) {
        int lane = kd_lane();
        size_t row = (size_t)blockIdx.x * COMM_MAX_SUM;
        if (lane < g.world)
            kd_flag_set(g.flags[lane] + row + (size_t)g.rank, epoch);
        __syncwarp(); // signals all before it waits for any
        bool here = lane >= g.world || kd_flag_wait(g.flags[g.rank] + row + (size_t)lane, epoch, g.stop);
        unsigned all = __ballot_sync(ALL_LANES, here);
        if (lane == 0)
            *arrived = all == ALL_LANES;
    }
    __syncthreads();
    return *arrived != 0;
}

// The first barrier of a launch, and the second, behind which there may be work to do. A launch keeps its epoch at its end.
KD_FN bool peer_arrive(const struct cuda_peers &g, uint32_t epoch, int *arrived) {
    return epoch % 2 == 0 && peer_barrier(g, epoch + 1, arrived);
}
KD_FN bool peer_part(const struct cuda_peers &g, uint32_t epoch, bool go, int *arrived) {
    return go && peer_barrier(g, epoch + 2, arrived);
}
KD_FN void keep_epoch(const struct cuda_peers &g, uint32_t epoch, bool go) {
    if (threadIdx.x == 0)
        g.epochs[blockIdx.x] = go ? epoch + 2 : epoch | 1;
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

// A message's elements by thread: first, first + stride, ... Twins have the same ones, also of each slice. A
// warp's are neighbours, the next warp is another block's, so that few keep all blocks busy.
KD_FN size_t first_element() {
    return (size_t)(kd_warp() * (int)gridDim.x + (int)blockIdx.x) * 32 + (size_t)kd_lane();
}
KD_FN size_t element_stride() { return (size_t)gridDim.x * PEER_THREADS; }

// Elements of T in a row, and in the message.
template <class T> KD_FN size_t row_size(const struct cuda_sum &a) {
    return (size_t)a.n * sizeof(float) / sizeof(T);
}
template <class T> KD_FN size_t sum_size(const struct cuda_sum &a) { return (size_t)a.rows * row_size<T>(a); }
// Elements of each rank's slice, whole warps; the last slices may have fewer.
template <int WORLD, class T> KD_FN size_t slice_size(const struct cuda_sum &a) {
    return (sum_size<T>(a) + 32 * WORLD - 1) / (32 * WORLD) * 32;
}

// Elements i, i + step, ... of y, from their sums: all is read before anything is written. Their numbers have 32 bits.
template <int N, class T> KD_FN void keep_sums(const struct cuda_sum &a, T (&v)[N], size_t i, size_t step) {
    T *y = (T *)(void *)a.y + i;
    size_t most = sum_size<T>(a) - i;
#pragma unroll
    for (int k = 0; k < N; k++)
        if (a.bias)
            v[k] = add4(
                v[k], ((const T *)(const void *)a.bias)[(uint32_t)(i + k * step) % (uint32_t)row_size<T>(a)]);
#pragma unroll
    for (int k = 0; k < N; k++)
        if (a.add && k * step < most)
            v[k] = add4(y[k * step], v[k]);
#pragma unroll
    for (int k = 0; k < N; k++)
        if (k * step < most)
            y[k * step] = v[k];
}

template <int WORLD, class T> KD_FN void sum_at_once(const struct cuda_sum &a) {
    for (size_t i = first_element(); i < sum_size<T>(a); i += element_stride()) {
        T v[1] = {add_ranks<WORLD, T>(a, i)};
        keep_sums(a, v, i, 0);
    }
}

template <int WORLD> __global__ void __launch_bounds__(PEER_THREADS, 1) sum_ranks(struct cuda_sum a) {
    KD_SHARED(int, arrived);
    kd_grid_release();
    kd_grid_wait();
    uint32_t epoch = a.peers.epochs[blockIdx.x];
    bool go = peer_arrive(a.peers, epoch, arrived);
    if (go && a.n % 4 == 0)
        sum_at_once<WORLD, float4>(a);
    else if (go)
        sum_at_once<WORLD, float>(a);
    keep_epoch(a.peers, epoch, peer_part(a.peers, epoch, go, arrived));
}

// The first shot: this rank's slice, to all.
template <int WORLD, class T> KD_FN void sum_slice(const struct cuda_sum &a) {
    size_t size = slice_size<WORLD, T>(a), begin = size * (size_t)a.peers.rank;
    for (size_t i = first_element(); i < size && begin + i < sum_size<T>(a); i += element_stride()) {
        T v = add_ranks<WORLD, T>(a, begin + i);
#pragma unroll
        for (int r = 0; r < WORLD; r++)
            ((T *)(void *)a.part[r])[begin + i] = v;
    }
}

// The second: the same elements of all slices, which twins have sent. Of four at a time, for want of registers.
template <int WORLD, class T> KD_FN void keep_slices(const struct cuda_sum &a) {
    size_t size = slice_size<WORLD, T>(a), all = sum_size<T>(a);
    const T *sum = (const T *)(const void *)a.part[a.peers.rank];
    for (size_t first = first_element(); first < size; first += element_stride())
        for (size_t i = first; i < all; i += 4 * size) {
            T v[4];
#pragma unroll
            for (int k = 0; k < 4; k++)
                v[k] = i + k * size < all ? sum[i + k * size] : T();
            keep_sums(a, v, i, size);
        }
}

template <int WORLD> __global__ void __launch_bounds__(PEER_THREADS, 1) sum_slices(struct cuda_sum a) {
    KD_SHARED(int, arrived);
    kd_grid_release();
    kd_grid_wait();
    uint32_t epoch = a.peers.epochs[blockIdx.x];
    bool go = peer_arrive(a.peers, epoch, arrived), whole = a.n % 4 == 0;
    if (go && whole)
        sum_slice<WORLD, float4>(a);
    else if (go)
        sum_slice<WORLD, float>(a);
    go = peer_part(a.peers, epoch, go, arrived);
    if (go && whole)
        keep_slices<WORLD, float4>(a);
    else if (go)
        keep_slices<WORLD, float>(a);
    keep_epoch(a.peers, epoch, go);
}

// Copies each rank's part of a stage's input to all ranks.
__global__ void __launch_bounds__(PEER_THREADS, 1) share_parts(struct cuda_share a) {
    KD_SHARED(int, arrived);
    kd_grid_release();
    kd_grid_wait();
    uint32_t epoch = a.peers.epochs[blockIdx.x];
    bool go = peer_arrive(a.peers, epoch, arrived);
    if (go) {
        for (size_t i = first_element(); i < a.n / 4; i += element_stride())
            ((float4 *)(void *)a.y)[i] = ((const float4 *)(const void *)a.part[i / (a.each / 4)])[i];
        for (size_t i = a.n / 4 * 4 + first_element(); i < a.n; i += element_stride())
            a.y[i] = a.part[i / a.each][i];
    }
    keep_epoch(a.peers, epoch, peer_part(a.peers, epoch, go, arrived));
}

// Rank `from`'s logits of a row, and their group maxima, to the same place in ours.
KD_FN void take_logits(const struct cuda_gather &a, int row, int from) {
    size_t begin = (size_t)a.begin[from], n = (size_t)a.begin[from + 1] - begin; // begin % 32 is 0
    size_t at = (size_t)row * (size_t)a.ld + begin;
    const float *x = a.logits[from] + at;
    float *y = a.logits[a.peers.rank] + at;
    for (size_t i = threadIdx.x; i < n / 4; i += PEER_THREADS)
        ((float4 *)(void *)y)[i] = ((const float4 *)(const void *)x)[i];
    for (size_t i = n / 4 * 4 + threadIdx.x; i < n; i += PEER_THREADS)
        y[i] = x[i];
    at = (size_t)row * (size_t)a.ldmax + begin / CUDA_GROUP;
    for (size_t i = threadIdx.x; i < (n + CUDA_GROUP - 1) / CUDA_GROUP; i += PEER_THREADS)
        a.max[a.peers.rank][at + i] = a.max[from][at + i];
}

// Rank `from`'s slices of a row's local top-k.
KD_FN void take_topk(const struct cuda_gather &a, int row, int from) {
    const struct cuda_topk *x = a.topk[from] + row;
    struct cuda_topk *y = a.topk[a.peers.rank] + row;
    int n = CUDA_TOPK_ROW / a.peers.world, i = (int)threadIdx.x, at = from * n + i;
    if (i < n) {
        y->ids[at] = x->ids[at];
        y->logits[at] = x->logits[at];
    }
    if (i < n / CUDA_GROUP)
        y->max[from * n / CUDA_GROUP + i] = x->max[from * n / CUDA_GROUP + i];
}

__global__ void __launch_bounds__(PEER_THREADS, 1) gather_rows(struct cuda_gather a) {
    KD_SHARED(int, arrived);
    kd_grid_release();
    kd_grid_wait();
    uint32_t epoch = a.peers.epochs[blockIdx.x];
    bool go = peer_arrive(a.peers, epoch, arrived);
    if (go)
        for (int i = (int)blockIdx.x; i < a.num_rows * a.peers.world; i += (int)gridDim.x) {
            int row = i / a.peers.world, from = i % a.peers.world;
            if (a.rows[row].row < 0 || from == a.peers.rank)
                continue;
            if (cuda_topk_of_row(&a.rows[row], a.max_topk) > 0)
                take_topk(a, row, from);
            else
                take_logits(a, row, from);
        }
    keep_epoch(a.peers, epoch, peer_part(a.peers, epoch, go, arrived));
}

__global__ void __launch_bounds__(128) clear_columns(struct cuda_clear a) {
    kd_grid_release();
    kd_grid_wait();
    char *row = act_row(a.x, blockIdx.x, a.ld, a.act_dtype);
    for (int i = a.begin + (int)(blockIdx.y * 128 + threadIdx.x); i < a.end; i += 128 * (int)gridDim.y)
        store_act(row, i, 0, a.act_dtype);
}

extern "C" {

static int barrier_blocks(size_t n) {
    size_t work = (n + 4 * PEER_THREADS - 1) / (4 * PEER_THREADS);
    return work < CUDA_BARRIER_BLOCKS ? (int)work : CUDA_BARRIER_BLOCKS;
}

void cuda_share(struct rt *rt, const struct cuda_share *a) {
    if (a->n > 0)
        rt_launch(rt, share_parts, rt_grid_of(barrier_blocks(a->n), 1, PEER_THREADS, 16), *a);
}

void cuda_sum(struct rt *rt, const struct cuda_sum *a) {
    int blocks = barrier_blocks((size_t)a->rows * (size_t)a->n);
    struct rt_grid g = rt_grid_of(blocks, 1, PEER_THREADS, 16);
    if (blocks == 0)
        return;
    switch (a->peers.world) {
    case 1: rt_launch(rt, sum_ranks<1>, g, *a); break;
    case 2: rt_launch(rt, sum_ranks<2>, g, *a); break;
    case 4: rt_launch(rt, a->two_shots ? sum_slices<4> : sum_ranks<4>, g, *a); break;
    case 8: rt_launch(rt, a->two_shots ? sum_slices<8> : sum_ranks<8>, g, *a); break;
    default: rt_fail(rt, "ranks are 1, 2, 4 or 8"); break;
    }
}

void cuda_gather(struct rt *rt, const struct cuda_gather *a) {
    int work = a->num_rows * a->peers.world;
    if (work > 0)
        rt_launch(rt, gather_rows,
                  rt_grid_of(work < CUDA_BARRIER_BLOCKS ? work : CUDA_BARRIER_BLOCKS, 1, PEER_THREADS, 16),
                  *a);
}

void cuda_clear(struct rt *rt, const struct cuda_clear *a) {
    int n = a->end - a->begin, blocks = n > 0 ? (n - 1) / 4096 + 1 : 0;
    if (a->rows > 0 && blocks > 0) // no more than a grid may have of y
        rt_launch(rt, clear_columns, rt_grid_of(a->rows, blocks < 65535 ? blocks : 65535, 128, 0), *a);
}

} // extern "C"
