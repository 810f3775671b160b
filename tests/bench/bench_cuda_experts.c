// The kernels of layers with experts, as bench_cuda_kernels.c has those of others: rows that fall evenly on the experts.
#include "bench_cuda.h"
#include "fixture.h"

static void route_once(void *arg, int i) {
    (void)i;
    cuda_route(rt, arg);
}
static void group_once(void *arg, int i) {
    (void)i;
    cuda_group_slots(rt, arg);
}
static void gemm_once(void *arg, int i) { cuda_expert_gemm(rt, &((struct cuda_expert_gemm *)arg)[i]); }
static void combine_once(void *arg, int i) {
    (void)i;
    cuda_combine(rt, arg);
}

struct sizes {
    int num_experts, top_k, hidden, ffn; // of one expert
};

static void bench_route(const struct sizes *s, int rows) {
    int E = s->num_experts, slots = rows * s->top_k;
    char shape[64];
    num_copies = 1;
    struct cuda_route a = {.logits = filled((size_t)(rows * E) * 4, STREAM_F32),
                           .experts = device((size_t)slots * 4),
                           .weights = device((size_t)slots * 4),
                           .rows = rows,
                           .num_experts = E,
                           .top_k = s->top_k,
                           .gating = GATING_SOFTMAX,
                           .renormalise = true,
                           .scale = 1,
                           .logit_scale = 1};
    struct cuda_combine c = {.x = filled((size_t)slots * (size_t)s->hidden * 4, STREAM_F32),
                             .experts = a.experts,
                             .weights = a.weights,
                             .y = device((size_t)rows * (size_t)s->hidden * 4),
                             .rows = rows,
                             .n = s->hidden,
                             .top_k = s->top_k,
                             .num_experts = E,
                             .num_segments = COMM_MAX_SUM};
    snprintf(shape, sizeof shape, "%d of %d experts x %d", s->top_k, E, rows);
    row("route", shape, time_kernel(route_once, &a), (double)rows * E * 4 + slots * 8.0, bandwidth, "GB/s");
    row("sum of experts", shape, time_kernel(combine_once, &c), 4.0 * (slots + rows) * s->hidden, bandwidth,
        "GB/s");
    release();
}

// Gate and up with SwiGLU: reads the weights of every expert that some row has.
static void bench_expert_gemm(enum weight_layout f, const char *name, const struct sizes *s, int rows) {
    int E = s->num_experts, n = 2 * s->ffn, slots = rows * s->top_k, used = slots < E ? slots : E;
    int group_rows = cuda_group_rows(rows, s->top_k, E);
    size_t bytes[3];
    char shape[96];
    cuda_matrix_bytes(f, E * n, s->hidden, bytes);
    double all = (double)(bytes[0] + bytes[1] + bytes[2]) * used / E;
    int32_t *ids = must_calloc((size_t)slots, sizeof *ids);
    for (int i = 0; i < slots; i++)
        ids[i] = i % E;
    struct cuda_group_slots g = {.experts = upload(ids, (size_t)slots * sizeof *ids),
                                 .num = slots,
                                 .num_experts = E,
                                 .num_own = E,
                                 .group_rows = group_rows,
                                 .slots = device((size_t)slots * sizeof *g.slots),
                                 .groups = device((size_t)slots * sizeof *g.groups),
                                 .num_groups = device(sizeof *g.num_groups)};
    snprintf(shape, sizeof shape, "%d of %d experts x %d", s->top_k, E, rows);
    num_copies = 1;
    row("group of slots", shape, time_kernel(group_once, &g), slots * 12.0, bandwidth, "GB/s");
    set_copies(all);
    struct cuda_expert_gemm *a = must_calloc((size_t)num_copies, sizeof *a);
    const void *x = filled((size_t)rows * (size_t)s->hidden * 4, f == LAYOUT_F32 ? STREAM_F32 : STREAM_BF16);
    void *h = device((size_t)slots * (size_t)s->ffn * 2);
    for (int i = 0; i < num_copies; i++)
        a[i] = (struct cuda_expert_gemm){
            .gemm = {.w = {f, E * n, s->hidden, filled(bytes[0], STREAM_BF16),
                           filled(bytes[1] + 16, STREAM_F16), filled(bytes[2] + 16, STREAM_F16)},
                     .x = x,
                     .ldx = s->hidden,
                     .epilogue = EPILOGUE_GATED,
                     .h = h,
                     .act_dtype = ACT_DTYPE_BF16,
                     .ldy = s->ffn,
                     .n = s->ffn},
            .slots = g.slots,
            .groups = g.groups,
            .num_groups = g.num_groups,
            .max_groups = cuda_max_groups(slots, E, group_rows),
            .group_rows = group_rows,
            .num_experts = E,
            .per_row = s->top_k};
    snprintf(shape, sizeof shape, "%s (%d, %d), %d of %d experts x %d", name, n, s->hidden, s->top_k, E,
             rows);
    row("gemm, experts", shape, time_kernel(gemm_once, a), all, bandwidth, "GB/s");
    release();
    free(ids), free(a);
}

void bench_experts(void) {
    static const struct sizes qwen3 = {128, 8, 2048, 768}, small = {4, 2, 256, 16};
    static const int all_rows[] = {1, 16, 64, 256, 2048}, tiny_rows[] = {1, 9, 40, 70};
    const struct sizes *s = tiny ? &small : &qwen3;
    for (int i = 0; i < (tiny ? 4 : 5); i++) {
        int rows = tiny ? tiny_rows[i] : all_rows[i];
        bench_route(s, rows);
        bench_expert_gemm(LAYOUT_BF16, "BF16", s, rows);
        bench_expert_gemm(LAYOUT_Q4_K, "Q4_K", s, rows);
    }
}
