// Layers with experts (kernels/README.md, rule 20): routing of rows, slots by expert, and the weighted sum. The GEMMs
// are gemm.cu's and gemm_staged.cu's.
#include "gemm_common.cuh"

enum { GROUP_THREADS = 512, COMBINE_THREADS = 128 };

KD_FN float exp_of(float x) { return x != x ? x : exp_exact(x); }

// The sum over lanes up to this one.
KD_FN int warp_scan(int v, int lane) {
    for (int by = 1; by < 32; by *= 2) {
        int before = __shfl_up_sync(ALL_LANES, v, (unsigned)by);
        v += lane >= by ? before : 0;
    }
    return v;
}

// ---- routing, a warp a row

enum { FREE, OUT, CHOSEN }; // out: of a group that is not chosen

// The first of the largest keys that are free, in every lane. Where all are NaN it is one of them.
KD_FN int best_free(const float *key, const int *state, int n, int lane) {
    int best = -1;
    float top = 0;
    for (int i = lane; i < n; i += 32)
        if (state[i] == FREE && (best < 0 || key[i] > top))
            best = i, top = key[i];
    for (int bits = 16; bits > 0; bits /= 2) {
        int other = __shfl_xor_sync(ALL_LANES, best, bits);
        float value = __shfl_xor_sync(ALL_LANES, top, bits);
        if (other >= 0 && (best < 0 || value > top || (value == top && other < best)))
            best = other, top = value;
    }
    return __shfl_sync(ALL_LANES, best, 0);
}

// The n best become CHOSEN.
KD_FN void choose(const float *key, int *state, int num, int n, int lane) {
    for (int i = 0; i < n; i++) {
        int best = best_free(key, state, num, lane);
        __syncwarp(); // every lane has read
        if (lane == 0 && best >= 0)
            state[best] = CHOSEN;
        __syncwarp();
    }
}

// The weight of the largest free logit m: 1 / sum(exp(l - m)) over the free logits near it.
KD_FN float weight_in_turn(const struct cuda_route &a, const float *logit, const int *state, int best) {
    float sum = 0, m = logit[best];
    for (int e = 0; e < a.num_experts; e++)
        if (state[e] == FREE && !(kd_div(kd_add(m, -logit[e]), fmaxf(fabsf(logit[e]), m)) > a.near))
            sum = kd_add(sum, exp_of(kd_add(logit[e], -m)));
    return kd_div(1, sum);
}

// The same, one after the other: logits of those chosen become their weights.
KD_FN void choose_in_turn(const struct cuda_route &a, float *logit, const float *key, int *state, int lane) {
    for (int i = 0; i < a.top_k; i++) {
        int best = best_free(key, state, a.num_experts, lane);
        float weight = best < 0 ? 0 : weight_in_turn(a, logit, state, best);
        __syncwarp(); // every lane has read
        if (lane == 0 && best >= 0)
            state[best] = CHOSEN, logit[best] = weight;
        __syncwarp();
    }
}

// Experts of groups that are not among the best become OUT. sum, group: (num_groups) scratch
KD_FN void choose_groups(const struct cuda_route &a, const float *key, int *state, float *sum, int *group,
                         int lane) {
    int size = a.num_experts / a.num_groups;
    for (int g = lane; g < a.num_groups; g += 32) {
        float best = -INFINITY, second = -INFINITY;
        for (int e = g * size; e < (g + 1) * size; e++) {
            second = fmaxf(second, fminf(key[e], best));
            best = fmaxf(best, key[e]);
        }
        sum[g] = a.gating == GATING_SOFTMAX ? best : kd_add(best, second);
        group[g] = FREE;
    }
    __syncwarp();
    choose(sum, group, a.num_groups, a.top_groups, lane);
    for (int e = lane; e < a.num_experts; e += 32)
        state[e] = group[e / size] == CHOSEN ? FREE : OUT;
    __syncwarp();
}

KD_FN float ascending_sum(const float *x, int n) {
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum = kd_add(sum, x[i]);
    return sum;
}

KD_FN float largest_of(const float *x, int n, int lane) {
    float max = -INFINITY;
    for (int i = lane; i < n; i += 32)
        max = fmaxf(max, x[i]);
    return kd_warp_max(max);
}

// Logits, which score holds, become scores.
KD_FN void make_scores(const struct cuda_route &a, float *score, int lane) {
    int E = a.num_experts;
    if (a.gating == GATING_SIGMOID) {
        for (int e = lane; e < E; e += 32)
            score[e] = kd_div(1, kd_add(1, exp_of(-score[e])));
    } else if (a.gating == GATING_SOFTMAX) {
        float max = largest_of(score, E, lane);
        __syncwarp();
        for (int e = lane; e < E; e += 32)
            score[e] = exp_of(kd_add(score[e], -max));
        __syncwarp();
        float sum = ascending_sum(score, E);
        __syncwarp();
        for (int e = lane; e < E; e += 32)
            score[e] = kd_div(score[e], sum);
    }
    __syncwarp();
}

__global__ void __launch_bounds__(32) route_rows(struct cuda_route a) {
    KD_SHARED(float, score); // (E), then as many keys, states, sums of groups, states of groups
    kd_grid_release();
    kd_grid_wait();
    int E = a.num_experts, K = a.top_k, lane = kd_lane(), row = (int)blockIdx.x;
    int32_t *experts = a.experts + (size_t)row * (size_t)K;
    float *weights = a.weights + (size_t)row * (size_t)K, *key = score + E, *sum = score + 3 * E;
    int *state = (int *)(void *)(score + 2 * E), *group = (int *)(void *)(score + 4 * E);
    if (a.seq_of && a.seq_of[row] < 0) {
        for (int k = lane; k < K; k += 32)
            experts[k] = -1, weights[k] = 0;
        return;
    }
    for (int e = lane; e < E; e += 32) {
        float l = kd_mul(a.logits[(size_t)row * (size_t)E + (size_t)e], a.logit_scale);
        score[e] = a.bias ? kd_add(l, a.bias[e]) : l;
    }
    __syncwarp();
    make_scores(a, score, lane);
    for (int e = lane; e < E; e += 32) {
        key[e] = a.select_bias ? kd_add(score[e], a.select_bias[e]) : score[e];
        state[e] = FREE;
    }
    __syncwarp();
    if (a.num_groups > 1)
        choose_groups(a, key, state, sum, group, lane);
    if (a.gating == GATING_IN_TURN)
        choose_in_turn(a, score, key, state, lane);
    else
        choose(key, state, E, K, lane);
    float *w = key; // (K) of those chosen
    for (int first = 0, n = 0; first < E; first += 32) {
        bool chosen = first + lane < E && state[first + lane] == CHOSEN;
        int at = n + warp_scan(chosen, lane);
        if (chosen) {
            experts[at - 1] = first + lane;
            w[at - 1] = score[first + lane];
        }
        n = __shfl_sync(ALL_LANES, at, 31);
    }
    __syncwarp();
    if (a.gating == GATING_SOFTMAX_CHOSEN) {
        float max = largest_of(w, K, lane);
        __syncwarp();
        for (int k = lane; k < K; k += 32)
            w[k] = exp_of(kd_add(w[k], -max));
        __syncwarp();
    }
    bool divide = a.renormalise || a.gating == GATING_SOFTMAX_CHOSEN;
    float all = divide ? kd_add(ascending_sum(w, K), 1e-20f) : 1;
    for (int k = lane; k < K; k += 32)
        weights[k] =
            kd_mul(kd_mul(divide ? kd_div(w[k], all) : w[k], a.scale), a.factors ? a.factors[experts[k]] : 1);
}

// ---- slots by expert, in one block

// The sum and the largest of lanes' values, in every lane.
KD_FN int warp_total(int v) {
    for (int bits = 16; bits > 0; bits /= 2)
        v += __shfl_xor_sync(ALL_LANES, v, bits);
    return v;
}
KD_FN int warp_largest(int v) {
    for (int bits = 16; bits > 0; bits /= 2) {
        int other = __shfl_xor_sync(ALL_LANES, v, bits);
        v = other > v ? other : v;
    }
    return v;
}

// A layer's, by one thread: launches of a step come one after the other.
KD_FN void add_counts(const struct cuda_group_slots &a, int rows, int reads, int busiest) {
    struct expert_counts c = {};
    if (!a.begins)
        c = *a.counts;
    *a.counts = {c.rows + (uint64_t)rows, c.reads + (uint64_t)reads, c.busiest + (uint64_t)busiest};
}

KD_FN bool is_own(const struct cuda_group_slots &a, int expert) {
    return expert >= a.first_own && expert < a.first_own + a.num_own;
}

__global__ void __launch_bounds__(GROUP_THREADS) group_slots(struct cuda_group_slots a) {
    KD_SHARED(int, count); // (E) slots of each expert, then where its slots and its groups begin
    kd_grid_release();
    kd_grid_wait();
    int E = a.num_experts, M = a.group_rows, thread = (int)threadIdx.x, *begin = count + E,
        *group = count + 2 * E;
    for (int e = thread; e < E; e += GROUP_THREADS)
        count[e] = 0;
    __syncthreads();
    for (int i = thread; i < a.num; i += GROUP_THREADS)
        if (a.experts[i] >= 0)
            atomicAdd(&count[a.experts[i]], 1);
    __syncthreads();
    if (kd_warp() == 0) {
        int lane = kd_lane(), slots = 0, groups = 0, rows = 0, reads = 0, busiest = 0;
        for (int first = 0; first < E; first += 32) {
            int e = first + lane, n = e < E ? count[e] : 0, own = is_own(a, e) ? n : 0, m = (own + M - 1) / M;
            int slots_here = slots + warp_scan(own, lane), groups_here = groups + warp_scan(m, lane);
            if (e < E)
                begin[e] = slots_here - own, group[e] = groups_here - m;
            rows += n;
            reads += n > 0;
            busiest = n > busiest ? n : busiest;
            slots = __shfl_sync(ALL_LANES, slots_here, 31);
            groups = __shfl_sync(ALL_LANES, groups_here, 31);
        }
        rows = warp_total(rows);
        reads = warp_total(reads);
        busiest = warp_largest(busiest);
        if (lane == 0) {
            *a.num_groups = groups;
            if (a.counts)
                add_counts(a, rows, reads, busiest);
        }
    }
    __syncthreads();
    for (int e = a.first_own + thread; e < a.first_own + a.num_own; e += GROUP_THREADS)
        for (int i = 0; i < count[e]; i += M)
            a.groups[group[e] + i / M] = {e - a.first_own, begin[e] + i, count[e] - i < M ? count[e] - i : M};
    __syncthreads(); // begin is to be counted up
    for (int i = thread; i < a.num; i += GROUP_THREADS)
        if (is_own(a, a.experts[i]))
            a.slots[atomicAdd(&begin[a.experts[i]], 1)] = i;
}

// ---- the sum

// Element i of what this rank's experts give a row.
KD_FN float sum_experts(const struct cuda_combine &a, int row, int i) {
    size_t slot = (size_t)row * (size_t)a.top_k;
    float part[SEGMENTS];
    int k = 0, begin = segment_begin(a.num_experts, a.first_segment), end;
#pragma unroll
    for (int s = 0; s < SEGMENTS; s++) { // experts of a row ascend
        float sum = 0;
        end = segment_begin(a.num_experts, a.first_segment + s + 1);
        for (; s < a.num_segments && k < a.top_k && a.experts[slot + (size_t)k] < end; k++)
            if (a.experts[slot + (size_t)k] >= begin)
                sum = kd_add(sum, kd_mul(a.weights ? a.weights[slot + (size_t)k] : 1,
                                         a.x[(slot + (size_t)k) * (size_t)a.n + (size_t)i]));
        part[s] = sum;
    }
    return add_segments(part, 1, a.num_segments);
}

__global__ void __launch_bounds__(COMBINE_THREADS) combine_rows(struct cuda_combine a) {
    kd_grid_release();
    kd_grid_wait();
    int i = (int)(blockIdx.x * COMBINE_THREADS + threadIdx.x), row = (int)blockIdx.y;
    if (i >= a.n)
        return;
    size_t at = (size_t)row * (size_t)a.n + (size_t)i;
    float v = a.experts ? sum_experts(a, row, i) : a.x[at];
    if (a.shared) {
        float shared = a.shared[at];
        if (a.gate)
            shared = kd_mul(shared, kd_div(1, kd_add(1, exp_of(-a.gate[row]))));
        v = kd_add(v, a.bias ? kd_add(shared, a.bias[i]) : shared);
    }
    a.y[at] = a.add ? kd_add(a.y[at], v) : v;
}

extern "C" {

void cuda_route(struct rt *rt, const struct cuda_route *a) {
    if (a->rows > 0)
        rt_launch(rt, route_rows, rt_grid_of(a->rows, 1, 32, 5 * sizeof(float) * (size_t)a->num_experts), *a);
}

int cuda_group_rows(int rows, int top_k, int num_experts) {
    if (rows <= 8) // of which an expert has each at most once
        return 8;
    return rows * top_k <= 16 * num_experts ? 16 : 32;
}

int cuda_max_groups(int num_slots, int num_experts, int group_rows) {
    int full = num_slots / group_rows, experts = num_slots < num_experts ? num_slots : num_experts;
    return full + experts < num_slots ? full + experts : num_slots;
}

void cuda_group_slots(struct rt *rt, const struct cuda_group_slots *a) {
    rt_launch(rt, group_slots, rt_grid_of(1, 1, GROUP_THREADS, 3 * sizeof(int) * (size_t)a->num_experts), *a);
}

void cuda_combine(struct rt *rt, const struct cuda_combine *a) {
    if (a->rows > 0)
        rt_launch(rt, combine_rows,
                  rt_grid_of((a->n + COMBINE_THREADS - 1) / COMBINE_THREADS, a->rows, COMBINE_THREADS, 0),
                  *a);
}

} // extern "C"
