// The kernels of ranks: what they and their two barriers cost beside the bytes that they move. Other ranks lie in the same
// memory and have passed every barrier already, so that links between devices and waiting are not in it.
#include "bench_cuda.h"
#include "fixture.h"

static void sum_once(void *arg, int i) { cuda_sum(rt, &((struct cuda_sum *)arg)[i]); }

static void passed_flags(uint32_t flags[CUDA_BARRIER_BLOCKS * COMM_MAX_SUM]) {
    for (int i = 0; i < CUDA_BARRIER_BLOCKS * COMM_MAX_SUM; i++)
        flags[i] = 0x3fffffff; // an epoch far ahead
}

static void bench_sum(int world, bool two_shots, int rows, int n) {
    size_t bytes = (size_t)rows * (size_t)n * sizeof(float);
    // All parts, and y twice; in two shots a slice of each, read and written, then what is now the sum.
    double moved = (double)bytes * (two_shots ? 5 : world + 2);
    uint32_t arrived[CUDA_BARRIER_BLOCKS * COMM_MAX_SUM];
    passed_flags(arrived);
    set_copies(moved);
    struct cuda_sum *a = must_calloc((size_t)num_copies, sizeof *a);
    uint32_t *stop = rt_alloc_host(rt, sizeof *stop);
    for (int i = 0; i < num_copies; i++) {
        a[i] = (struct cuda_sum){
            .peers = {.world = world, .epochs = device(sizeof(uint32_t) * CUDA_BARRIER_BLOCKS), .stop = stop},
            .y = filled(bytes, STREAM_F32),
            .add = true,
            .two_shots = two_shots,
            .rows = rows,
            .n = n};
        for (int r = 0; r < world; r++) {
            a[i].peers.flags[r] = upload(arrived, sizeof arrived);
            a[i].part[r] = filled(bytes, STREAM_F32);
        }
    }
    char shape[64];
    snprintf(shape, sizeof shape, "%d ranks%s, %d x %d", world, two_shots ? ", two shots" : "", rows, n);
    row("sum of ranks", shape, time_kernel(sum_once, a), moved, bandwidth, "GB/s");
    release();
    rt_free_host(rt, stop);
    free(a);
}

static void gather_once(void *arg, int i) { cuda_gather(rt, &((struct cuda_gather *)arg)[i]); }

// The first of two ranks fetches the other's local top-k, or half of the logits of each row and their
// maxima.
static void bench_gather(int rows, bool topk) {
    int V = tiny ? 512 : 151936, ld = (V + 15) / 16 * 16, groups = ld / CUDA_GROUP;
    struct logits_row *heads = must_calloc((size_t)rows, sizeof *heads);
    struct cuda_topk *best = must_calloc((size_t)rows, sizeof *best);
    uint32_t arrived[CUDA_BARRIER_BLOCKS * COMM_MAX_SUM];
    for (int r = 0; r < rows; r++) {
        heads[r] = (struct logits_row){
            .row = r, .target = -1, .temperature = 1, .top_k = topk ? CUDA_TOPK : 0, .num_logprobs = -1};
    }
    passed_flags(arrived);
    size_t all = (size_t)rows * (size_t)ld * 4, maxima = (size_t)rows * (size_t)groups * 4;
    // The other's half, read and written.
    double bytes = topk ? (double)rows * sizeof *best : (double)rows * (ld / 2 + groups / 2) * 4 * 2;
    set_copies(bytes);
    struct cuda_gather *a = must_calloc((size_t)num_copies, sizeof *a);
    uint32_t *stop = rt_alloc_host(rt, sizeof *stop);
    for (int i = 0; i < num_copies; i++)
        a[i] = (struct cuda_gather){
            .peers = {.world = 2,
                      .flags = {upload(arrived, sizeof arrived), device(sizeof arrived)},
                      .epochs = device(sizeof(uint32_t) * CUDA_BARRIER_BLOCKS),
                      .stop = stop},
            .rows = upload(heads, (size_t)rows * sizeof *heads),
            .num_rows = rows,
            .max_topk = topk ? CUDA_TOPK : 0,
            .begin = {0, ld / 32 * 16, V},
            .logits = {topk ? NULL : device(all), topk ? NULL : filled(all, STREAM_F32)},
            .max = {topk ? NULL : device(maxima), topk ? NULL : filled(maxima, STREAM_F32)},
            .topk = {upload(best, (size_t)rows * sizeof *best), upload(best, (size_t)rows * sizeof *best)},
            .ld = ld,
            .ldmax = groups};
    char shape[64];
    snprintf(shape, sizeof shape, "%s, 2 ranks, %d x %d", topk ? "local top-k" : "logits", rows, V);
    row("gather of ranks", shape, time_kernel(gather_once, a), bytes, bandwidth, "GB/s");
    release();
    rt_free_host(rt, stop);
    free(heads), free(best), free(a);
}

static void share_once(void *arg, int i) { cuda_share(rt, &((struct cuda_share *)arg)[i]); }

// A stage's input, of which each rank has its part.
static void bench_share(int world, int rows, int n) {
    size_t all = (size_t)rows * (size_t)n, bytes = all * sizeof(float);
    uint32_t arrived[CUDA_BARRIER_BLOCKS * COMM_MAX_SUM];
    passed_flags(arrived);
    set_copies(2.0 * (double)bytes);
    struct cuda_share *a = must_calloc((size_t)num_copies, sizeof *a);
    uint32_t *stop = rt_alloc_host(rt, sizeof *stop);
    for (int i = 0; i < num_copies; i++) {
        a[i] = (struct cuda_share){
            .peers = {.world = world, .epochs = device(sizeof(uint32_t) * CUDA_BARRIER_BLOCKS), .stop = stop},
            .y = device(bytes),
            .n = all,
            .each = backend_resid_part(all, world)};
        for (int r = 0; r < world; r++) {
            a[i].peers.flags[r] = upload(arrived, sizeof arrived);
            a[i].part[r] = filled(bytes, STREAM_F32);
        }
    }
    char shape[64];
    snprintf(shape, sizeof shape, "%d ranks, %d x %d", world, rows, n);
    row("parts of a stage's input", shape, time_kernel(share_once, a), 2.0 * (double)bytes, bandwidth,
        "GB/s");
    release();
    rt_free_host(rt, stop);
    free(a);
}

static void bench_nccl(int rows, int n, bool bf16) {
    struct err err = {0};
    unsigned char id[RT_NCCL_ID];
    size_t all = (size_t)rows * (size_t)n, bytes = all * (bf16 ? 2 : 4);
    struct rt_nccl *nccl = rt_nccl_id(rt, id, &err) ? rt_nccl_open(rt, id, 0, 1, &err) : NULL;
    if (!nccl) {
        fprintf(md, "\nNo sums by NCCL: %s\n", err.msg);
        return;
    }
    void *x = filled(bytes, bf16 ? STREAM_BF16 : STREAM_F32);
    double samples[10];
    for (int i = 0; i < 10; i++) { // outside of a graph, as it is used
        must_wait();
        double start = now();
        rt_nccl_sum(nccl, x, all, bf16);
        must_wait();
        samples[i] = now() - start;
    }
    char shape[64];
    snprintf(shape, sizeof shape, "1 rank, %s, %d x %d", bf16 ? "bf16" : "f32", rows, n);
    row("sum by NCCL", shape, median(samples, 10), (double)bytes, bandwidth, "GB/s");
    rt_nccl_close(nccl);
    release();
}

void bench_ranks(void) {
    bench_sum(1, false, tiny ? 2 : 1, tiny ? 64 : 4096);
    for (int world = 4; world <= 8; world *= 2)
        for (int two_shots = 0; two_shots < 2; two_shots++)
            bench_sum(world, two_shots, tiny ? 3 : 64, tiny ? 64 : 4096);
    for (int i = 0; i < 2; i++) {
        int rows = tiny ? 1 + i : i ? 64 : 1;
        bench_gather(rows, true);
        bench_gather(rows, false);
        bench_share(2, tiny ? 3 : i ? 2048 : 16, tiny ? 65 : 4096);
    }
    for (int bf16 = 0; bf16 < 2; bf16++)
        bench_nccl(tiny ? 2 : 512, tiny ? 64 : 4096, bf16);
}
