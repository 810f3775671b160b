// Sampling without sorting: kernels/README.md, rules 12 to 16, bit for bit what kernels/cpu/sampler.c samples
// from equal logits. Unnormalised probabilities are integers, so sums in any order agree; a radix search over
// the bits of the logits finds the element at a running sum, in three passes that skip every group of 16
// whose maximum cannot matter.
//
// One block adjusts a slice of a row by entries and mask; eight blocks a row count what needs every logit, or find the best
// tokens of their slices; then one block samples the row. Over 600 lines: every part goes over the same view of a row.
#include "common.cuh"
#include "philox.h"
#include "sampling.h"

enum {
    ADJUST_THREADS = 256,
    SAMPLE_THREADS = 512,
    SAMPLE_WARPS = SAMPLE_THREADS / 32,
    BINS = CUDA_SAMPLE_BINS,
    BEST_GROUPS = 64 // that are listed for the best tokens of a row: more are there only with ties
};

typedef unsigned long long mass_t; // a type of atomicAdd()

// ---- the order of logits as integers; -0 and +0 are equal

KD_FN uint32_t order_key(float logit) {
    uint32_t u = kd_float_bits(logit);
    if (u == 0x80000000u)
        u = 0;
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}
KD_FN float key_logit(uint32_t key) { return kd_bits_float(key & 0x80000000u ? key & 0x7fffffffu : ~key); }

// ---- one row, and what of it counts

struct view {
    const float *logits, *max; // max NULL: groups are not skipped
    int n, groups;
    float best, temperature; // of the unnormalised probabilities
    float lowest;            // groups below are skipped
    uint32_t last_key;       // kept: greater keys, and equal ones up to last_id
    int last_id;
    bool by_mass;          // an element counts its unnormalised probability, else 1
    const uint64_t *parts; // count_rows' counts of the row, by slice; NULL: none
};

// Groups of a slice of a row.
KD_FN void slice_groups(int groups, int slices, int slice, int *begin, int *end) {
    int per = (groups + slices - 1) / slices;
    *begin = slice * per < groups ? slice * per : groups;
    *end = *begin + per < groups ? *begin + per : groups;
}
// The mass of a slice.
KD_FN mass_t mass_of_slice(const view &v, int slice) {
    return v.parts[slice * CUDA_SAMPLE_PART + CUDA_SAMPLE_BINS];
}

KD_FN mass_t mass_of(const view &v, float logit) {
    return (mass_t)(uint32_t)kd_mul(exp_exact(kd_div(kd_add(logit, -v.best), v.temperature)), 1073741824.0f);
}
KD_FN bool kept(const view &v, uint32_t key, int id) {
    return key > v.last_key || (key == v.last_key && id <= v.last_id);
}
KD_FN mass_t count_of(const view &v, float logit) { return v.by_mass ? mass_of(v, logit) : 1; }
KD_FN bool skips(const view &v, int g) {
    return v.max && (v.max[g] < v.lowest || (v.by_mass && mass_of(v, v.max[g]) == 0));
}

struct sample_shared {
    mass_t bins[BINS];
    mass_t totals[SAMPLE_WARPS], found, before;
    float floats[32];
    int index, listed[BEST_GROUPS];
    uint32_t digit;
};

// The sum of what earlier threads have; *all: of every thread.
KD_FN mass_t scan_block(mass_t v, mass_t *all, struct sample_shared *s) {
    mass_t sum = v;
    for (unsigned by = 1; by < 32; by *= 2) {
        mass_t left = __shfl_up_sync(ALL_LANES, sum, by);
        if (kd_lane() >= (int)by)
            sum += left;
    }
    if (kd_lane() == 31)
        s->totals[kd_warp()] = sum;
    __syncthreads();
    mass_t before = 0, total = 0;
    for (int w = 0; w < SAMPLE_WARPS; w++) {
        if (w == kd_warp())
            before = total;
        total += s->totals[w];
    }
    __syncthreads();
    if (all)
        *all = total;
    return before + sum - v;
}

// The mass of all tokens of a view.
KD_FN mass_t total_of(const view &v, double low, struct sample_shared *s) {
    mass_t sum = 0, all;
    for (int g = (int)threadIdx.x; g < v.groups; g += SAMPLE_THREADS) {
        if (skips(v, g) || (v.max && (double)kd_add(v.max[g], -v.best) < low))
            continue;
        for (int i = g * CUDA_GROUP; i < g * CUDA_GROUP + CUDA_GROUP && i < v.n; i++)
            if (kept(v, order_key(v.logits[i]), i) && (double)kd_add(v.logits[i], -v.best) >= low)
                sum += count_of(v, v.logits[i]);
    }
    scan_block(sum, &all, s);
    return all;
}

struct found {
    uint32_t key;
    mass_t rank;    // of the element among those with this key, by id
    mass_t through; // the running sum up to and including it
};

// The element, in the order (logit descending, id ascending), whose running sum exceeds target < total.
KD_FN found find_key(const view &v, mass_t target, struct sample_shared *s) {
    const int shift[] = {21, 10, 0}, width[] = {11, 11, 10};
    mass_t above = 0;
    uint32_t prefix = 0;
    for (int pass = 0; pass < 3; pass++) {
        uint32_t num = 1u << width[pass];
        bool counted = pass == 0 && v.parts;
        for (int i = (int)threadIdx.x; i < BINS; i += SAMPLE_THREADS) {
            s->bins[i] = 0;
            for (int k = 0; counted && k < CUDA_SAMPLE_SLICES; k++)
                s->bins[i] += v.parts[k * CUDA_SAMPLE_PART + i];
        }
        __syncthreads();
        for (int g = (int)threadIdx.x; g < v.groups && !counted; g += SAMPLE_THREADS) {
            if (skips(v, g) ||
                (pass > 0 && v.max && order_key(v.max[g]) >> (shift[pass] + width[pass]) < prefix))
                continue;
            for (int i = g * CUDA_GROUP; i < g * CUDA_GROUP + CUDA_GROUP && i < v.n; i++) {
                uint32_t key = order_key(v.logits[i]);
                if ((pass > 0 && key >> (shift[pass] + width[pass]) != prefix) || !kept(v, key, i))
                    continue;
                mass_t m = count_of(v, v.logits[i]);
                if (m > 0)
                    atomicAdd(&s->bins[key >> shift[pass] & (num - 1)], m);
            }
        }
        __syncthreads();
        // Bins from the top, a few to each thread; the one in which the running sum passes the target.
        int per = (int)num / SAMPLE_THREADS, top = (int)num - 1 - (int)threadIdx.x * per;
        mass_t mine = 0;
        for (int b = 0; b < per; b++)
            mine += s->bins[top - b];
        mass_t sum = above + scan_block(mine, NULL, s);
        if (sum <= target && sum + mine > target) {
            int b = 0;
            for (; sum + s->bins[top - b] <= target; b++)
                sum += s->bins[top - b];
            s->digit = (uint32_t)(top - b);
            s->before = sum;
        }
        __syncthreads();
        above = s->before;
        prefix = prefix << width[pass] | s->digit;
        __syncthreads();
    }
    found f;
    mass_t each = count_of(v, key_logit(prefix)); // equal keys have equal weights
    f.key = prefix;
    f.rank = (target - above) / each;
    f.through = above + (f.rank + 1) * each;
    return f;
}

// Groups of a thread where ids must ascend from thread to thread.
KD_FN void thread_groups(const view &v, int *begin, int *end) {
    int per = (v.groups + SAMPLE_THREADS - 1) / SAMPLE_THREADS;
    *begin = (int)threadIdx.x * per < v.groups ? (int)threadIdx.x * per : v.groups;
    *end = *begin + per < v.groups ? *begin + per : v.groups;
}

// The id of the element of that rank among those with its key.
KD_FN int find_id(const view &v, const found &f, struct sample_shared *s) {
    int begin, end;
    thread_groups(v, &begin, &end);
    mass_t mine = 0;
    for (int g = begin; g < end; g++) {
        if (v.max && order_key(v.max[g]) < f.key)
            continue;
        for (int i = g * CUDA_GROUP; i < g * CUDA_GROUP + CUDA_GROUP && i < v.n; i++)
            mine += order_key(v.logits[i]) == f.key;
    }
    mass_t before = scan_block(mine, NULL, s);
    if (before <= f.rank && before + mine > f.rank) {
        for (int i = begin * CUDA_GROUP; i < v.n; i++)
            if (order_key(v.logits[i]) == f.key && before++ == f.rank) {
                s->index = i;
                break;
            }
    }
    __syncthreads();
    int index = s->index;
    __syncthreads();
    return index;
}

// No filter: the place of the sample in the order of ids.
KD_FN int sample_plain(const view &v, uint64_t bits, struct sample_shared *s) {
    int first = 0, last = v.groups, slice = 0;
    mass_t total = 0, point = 0, before = 0, mine = 0;
    if (v.parts) { // then it is in one slice
        for (int k = 0; k < CUDA_SAMPLE_SLICES; k++)
            total += mass_of_slice(v, k);
        point = philox_below(bits, total);
        for (; before + mass_of_slice(v, slice) <= point; slice++)
            before += mass_of_slice(v, slice);
        slice_groups(v.groups, CUDA_SAMPLE_SLICES, slice, &first, &last);
    }
    int per = (last - first + SAMPLE_THREADS - 1) / SAMPLE_THREADS, begin = first + (int)threadIdx.x * per;
    for (int g = begin; g < begin + per && g < last; g++)
        for (int i = g * CUDA_GROUP; !skips(v, g) && i < g * CUDA_GROUP + CUDA_GROUP && i < v.n; i++)
            mine += mass_of(v, v.logits[i]);
    before += scan_block(mine, &total, s);
    if (!v.parts)
        point = philox_below(bits, total);
    if (before <= point && before + mine > point)
        for (int i = begin * CUDA_GROUP; i < v.n; i++) {
            before += mass_of(v, v.logits[i]);
            if (before > point) {
                s->index = i;
                break;
            }
        }
    __syncthreads();
    int index = s->index;
    __syncthreads();
    return index;
}

// The largest group maximum; false: the row holds NaN or +infinity, or nothing that can be sampled.
KD_FN bool row_max(const float *max, int groups, float *best, struct sample_shared *s) {
    float largest = -INFINITY;
    for (int g = (int)threadIdx.x; g < groups; g += SAMPLE_THREADS)
        largest = max[g] < INFINITY ? fmaxf(largest, max[g]) : INFINITY; // NaN and infinity both stick
    *best = block_max(largest, s->floats);
    return *best<INFINITY && * best> - INFINITY;
}

// The lowest id among the largest.
KD_FN int argmax(const view &v, struct sample_shared *s) {
    found f;
    f.key = order_key(v.best);
    f.rank = 0;
    f.through = 1;
    return find_id(v, f, s);
}

// The n-th largest (from 0) of the group maxima: nothing below it is among the best n + 1.
KD_FN float nth_group(const view &v, int n, struct sample_shared *s) {
    if (n >= v.groups)
        return -INFINITY;
    view m = v;
    m.logits = v.max;
    m.max = NULL;
    m.n = v.groups;
    m.groups = (v.groups + CUDA_GROUP - 1) / CUDA_GROUP;
    m.last_key = 0;
    m.last_id = m.n;
    m.by_mass = false;
    m.parts = NULL;
    return key_logit(find_key(m, (mass_t)n, s).key);
}

KD_FN int sample(view v, const struct logits_row &row, const struct cuda_row_prep &d,
                 struct sample_shared *s) {
    bool top_k = row.top_k > 0 && row.top_k < v.n, top_p = row.top_p<1, min_p = row.min_p> 0;
    v.by_mass = true;
    if (!top_k && !top_p && !min_p)
        return sample_plain(v, d.bits, s);
    if (top_k) {
        v.lowest = nth_group(v, row.top_k - 1, s);
        v.by_mass = false;
        found last = find_key(v, (mass_t)(row.top_k - 1), s);
        v.last_id = find_id(v, last, s);
        v.last_key = last.key;
        v.by_mass = true;
    }
    mass_t total = 0;
    for (int k = 0; v.parts && k < CUDA_SAMPLE_SLICES; k++)
        total += mass_of_slice(v, k);
    if (!v.parts)
        total = total_of(v, -INFINITY, s);
    double share = ceil(kd_mul_double((double)row.top_p, (double)total));
    mass_t need = share < 1 ? 1 : share < (double)total ? (mass_t)share : total;
    mass_t limit = min_p ? total_of(v, d.low, s) : total;
    if (need < total) {
        mass_t through = find_key(v, need - 1, s).through;
        limit = through < limit ? through : limit;
    }
    return find_id(v, find_key(v, philox_below(d.bits, limit), s), s);
}

#include "sample_chain.cuh"

// The sums of exp(logit - best) of groups [begin, end).
KD_FN void sum_groups(const view &v, float *sums, int begin, int end) {
    for (int g = begin + (int)threadIdx.x; g < end; g += SAMPLE_THREADS) {
        float e[CUDA_GROUP];
        for (int i = 0; i < CUDA_GROUP; i++) {
            int id = g * CUDA_GROUP + i;
            e[i] = id < v.n ? exp_exact(kd_add(v.logits[id], -v.best)) : 0;
        }
        for (int n = CUDA_GROUP / 2; n > 0; n /= 2)
            for (int i = 0; i < n; i++)
                e[i] = kd_add(e[i], e[i + n]);
        sums[g] = e[0];
    }
}

// ln of the sum of those of all groups, by a binary tree of neighbours (rule 12). sums: (2 * groups).
KD_FN float log_total(const view &v, float *sums, int room, struct sample_shared *s) {
    float *from = sums, *to = sums + room;
    for (int n = v.groups; n > 1; n = (n + 1) / 2) {
        for (int i = (int)threadIdx.x; i < (n + 1) / 2; i += SAMPLE_THREADS)
            to[i] = 2 * i + 1 < n ? kd_add(from[2 * i], from[2 * i + 1]) : from[2 * i];
        __syncthreads();
        float *swap = from;
        from = to;
        to = swap;
    }
    if (threadIdx.x == 0)
        s->floats[0] = (float)log((double)from[0]);
    __syncthreads();
    float total = s->floats[0];
    __syncthreads();
    return total;
}

// The best n of a row, best first: each time the best after the one before.
KD_FN void best_of(view v, float total, int n, int32_t *ids, float *logprobs, struct sample_shared *s) {
    n = n < v.n ? n : v.n;
    v.lowest = nth_group(v, n - 1, s);
    s->found = 0;
    __syncthreads();
    for (int g = (int)threadIdx.x; g < v.groups; g += SAMPLE_THREADS)
        if (!(v.max[g] < v.lowest)) {
            mass_t at = atomicAdd(&s->found, (mass_t)1);
            if (at < BEST_GROUPS)
                s->listed[at] = g;
        }
    __syncthreads();
    bool all = s->found > BEST_GROUPS; // then every group is looked at
    int num = (all ? v.groups : (int)s->found) * CUDA_GROUP;
    mass_t bound = ~(mass_t)0; // key and ~id of the one before
    for (int k = 0; k < n; k++) {
        mass_t best = 0;
        for (int e = (int)threadIdx.x; e < num; e += SAMPLE_THREADS) {
            int i = all ? e : s->listed[e / CUDA_GROUP] * CUDA_GROUP + e % CUDA_GROUP;
            mass_t at = i < v.n ? (mass_t)order_key(v.logits[i]) << 32 | (uint32_t) ~(uint32_t)i : 0;
            best = at < bound && at > best ? at : best;
        }
        for (int bits = 16; bits > 0; bits >>= 1) {
            mass_t other = __shfl_xor_sync(ALL_LANES, best, bits);
            best = other > best ? other : best;
        }
        if (kd_lane() == 0)
            s->totals[kd_warp()] = best;
        __syncthreads();
        for (int w = 0; w < SAMPLE_WARPS; w++)
            best = s->totals[w] > best ? s->totals[w] : best;
        __syncthreads();
        bound = best;
        if (threadIdx.x == 0) {
            int id = (int)~(uint32_t)best;
            ids[k] = id;
            logprobs[k] = kd_add(kd_add(v.logits[id], -v.best), -total);
        }
    }
}

// Log-probabilities of given tokens, in their order.
KD_FN void wanted_of(const view &v, float total, const struct logit_entry *of, int n, int32_t *ids,
                     float *logprobs) {
    for (int i = (int)threadIdx.x; i < n; i += SAMPLE_THREADS) {
        ids[i] = of[i].token;
        logprobs[i] = kd_add(kd_add(v.logits[of[i].token], -v.best), -total);
    }
}

// How many tokens come before one in the order, and 1.
KD_FN int rank_of(const view &v, int id, struct sample_shared *s) {
    mass_t mine = 0, all;
    float l = v.logits[id];
    for (int g = (int)threadIdx.x; g < v.groups; g += SAMPLE_THREADS)
        for (int i = g * CUDA_GROUP; !(v.max[g] < l) && i < g * CUDA_GROUP + CUDA_GROUP && i < v.n; i++)
            mine += v.logits[i] > l || (v.logits[i] == l && i < id);
    scan_block(mine, &all, s);
    return 1 + (int)all;
}

// ---- local top-k

// Whether ranks share the rows.
KD_FN bool by_ranks(const struct cuda_sample &a) { return a.num_slices < CUDA_SAMPLE_SLICES; }

// The best tokens of a slice of this rank's, which begin at a multiple of 32.
KD_FN void local_topk(const struct cuda_sample &a, int r, int slice, struct sample_shared *s) {
    const struct cuda_row_prep d = a.prep[r];
    struct cuda_topk *topk = a.topk + r;
    int k = cuda_topk_of_row(&a.rows[r], a.max_topk), to = (a.first_slice + slice) * CUDA_TOPK;
    int begin, end, first, lane = (int)threadIdx.x;
    slice_groups((a.end - a.begin + CUDA_GROUP - 1) / CUDA_GROUP, a.num_slices, slice, &begin, &end);
    first = a.begin + begin * CUDA_GROUP;
    size_t row = (size_t)r * (size_t)a.ld, row_max_at = (size_t)r * (size_t)a.ldmax;
    view v = {};
    v.logits = a.logits + row + first;
    v.max = a.max + row_max_at + first / CUDA_GROUP;
    v.groups = end - begin;
    v.n = a.begin + end * CUDA_GROUP < a.end ? v.groups * CUDA_GROUP : a.end - first;
    v.lowest = -INFINITY;
    v.last_id = v.n;
    row_max(v.max, v.groups, &v.best, s);
    bool finite = v.best < INFINITY; // -infinity: none of these can be sampled, which is no failure
    if (finite && d.adjusted >= 0) {
        v.logits = a.adjusted + (size_t)d.adjusted * (size_t)a.ld + first;
        v.max = a.adjusted_max + (size_t)d.adjusted * (size_t)a.ldmax + first / CUDA_GROUP;
        row_max(v.max, v.groups, &v.best, s);
        finite = v.best < INFINITY;
    }
    if (finite && k < v.n) {
        found last = {order_key(v.best), 0, 1}; // greedy: the lowest id among the largest
        v.lowest = k > 1 ? nth_group(v, k - 1, s) : v.best;
        if (k > 1)
            last = find_key(v, (mass_t)(k - 1), s);
        v.last_id = find_id(v, last, s);
        v.last_key = last.key;
    }
    thread_groups(v, &begin, &end);
    mass_t mine = 0, all;
    for (int g = begin; finite && g < end; g++)
        for (int i = g * CUDA_GROUP; !skips(v, g) && i < g * CUDA_GROUP + CUDA_GROUP && i < v.n; i++)
            mine += v.logits[i] > -INFINITY && kept(v, order_key(v.logits[i]), i);
    int at = to + (int)scan_block(mine, &all, s);
    for (int g = begin; mine > 0 && g < end; g++)
        for (int i = g * CUDA_GROUP; !skips(v, g) && i < g * CUDA_GROUP + CUDA_GROUP && i < v.n; i++)
            if (v.logits[i] > -INFINITY && kept(v, order_key(v.logits[i]), i)) {
                topk->ids[at] = first + i;
                topk->logits[at++] = v.logits[i];
            }
    if (lane >= (int)all && lane < CUDA_TOPK) {
        topk->ids[to + lane] = 0;
        topk->logits[to + lane] = -INFINITY;
    }
    __syncthreads();
    if (lane < CUDA_TOPK / CUDA_GROUP) {
        float max = finite ? -INFINITY : NAN;
        for (int i = 0; finite && i < CUDA_GROUP; i++)
            max = fmaxf(max, topk->logits[to + lane * CUDA_GROUP + i]);
        topk->max[to / CUDA_GROUP + lane] = max;
    }
}

__global__ void __launch_bounds__(SAMPLE_THREADS, 1) topk_rows(struct cuda_sample a) {
    KD_SHARED(struct sample_shared, s);
    kd_grid_release();
    kd_grid_wait();
    if (cuda_topk_of_row(&a.rows[blockIdx.y], a.max_topk) > 0)
        local_topk(a, (int)blockIdx.y, (int)blockIdx.x, s);
}

// Samples a row from the local top-k of all slices, which lie by ascending id.
KD_FN void sample_topk(const struct cuda_sample &a, const struct logits_row &row,
                       const struct cuda_row_prep &d, int r, struct sample_shared *s) {
    const struct cuda_topk *topk = a.topk + r;
    view v = {};
    v.logits = topk->logits;
    v.max = topk->max;
    v.n = CUDA_TOPK_ROW;
    v.groups = v.n / CUDA_GROUP;
    v.temperature = row.temperature;
    v.lowest = -INFINITY;
    v.last_id = v.n;
    bool finite = row_max(v.max, v.groups, &v.best, s);
    int i = 0;
    if (finite)
        i = row.temperature >= 5.42101086242752217e-20f ? sample(v, row, d, s) : argmax(v, s); // 2^-64
    if (threadIdx.x == 0) {
        a.ids[a.first + r] = finite ? topk->ids[i] : 0;
        a.failed[a.first + r] = !finite;
        a.logprob[a.first + r] = 0;
        a.rank[a.first + r] = 0;
        a.share[a.first + r] = 0;
    }
}

// Whether all tokens' masses decide which is sampled, and several blocks count them.
KD_FN bool counts_row(const struct cuda_sample &a, const struct logits_row &row) {
    return a.parts && row.target < 0 && row.temperature >= 5.42101086242752217e-20f && // 2^-64
           (row.top_k <= 0 || row.top_k >= a.vocab) && !row.post_sampling && !cuda_row_has_chain(&row);
}

KD_FN view whole_row(const struct cuda_sample &a, const struct logits_row &row, int r) {
    view v = {};
    v.logits = a.logits + (size_t)r * (size_t)a.ld;
    v.max = a.max + (size_t)r * (size_t)a.ldmax;
    v.n = a.vocab;
    v.groups = (a.vocab + CUDA_GROUP - 1) / CUDA_GROUP;
    v.temperature = row.temperature;
    v.lowest = -INFINITY;
    v.last_id = a.vocab;
    return v;
}
// The same row with its entries and mask.
KD_FN view adjusted_row(const struct cuda_sample &a, const struct cuda_row_prep &d, view v) {
    if (d.adjusted >= 0) {
        v.logits = a.adjusted + (size_t)d.adjusted * (size_t)a.ld;
        v.max = a.adjusted_max + (size_t)d.adjusted * (size_t)a.ldmax;
    }
    return v;
}

// Reads every logit of a row, by several blocks a row: local top-k, or groups' sums for log-probabilities and masses.
__global__ void __launch_bounds__(SAMPLE_THREADS, 1) count_rows(struct cuda_sample a) {
    KD_SHARED(struct sample_shared, s);
    kd_grid_release();
    kd_grid_wait();
    int r = (int)blockIdx.y, begin, end;
    const struct logits_row row = a.rows[r];
    if (row.row < 0)
        return;
    if (cuda_topk_of_row(&row, a.max_topk) > 0) {
        if (!by_ranks(a))
            local_topk(a, r, (int)blockIdx.x, s);
        return;
    }
    view v = whole_row(a, row, r);
    slice_groups(v.groups, CUDA_SAMPLE_SLICES, (int)blockIdx.x, &begin, &end);
    if (row.num_logprobs >= 0 && row_max(v.max, v.groups, &v.best, s))
        sum_groups(v, a.sums + (size_t)r * 2 * (size_t)a.ldmax, begin, end);
    v = adjusted_row(a, a.prep[r], v);
    if (!counts_row(a, row) || !row_max(v.max, v.groups, &v.best, s))
        return;
    uint64_t *part = a.parts + ((size_t)r * CUDA_SAMPLE_SLICES + blockIdx.x) * CUDA_SAMPLE_PART;
    mass_t mine = 0, all;
    for (int i = (int)threadIdx.x; i < BINS; i += SAMPLE_THREADS)
        s->bins[i] = 0;
    __syncthreads();
    v.by_mass = true;
    for (int g = begin + (int)threadIdx.x; g < end; g += SAMPLE_THREADS)
        for (int i = g * CUDA_GROUP; !skips(v, g) && i < g * CUDA_GROUP + CUDA_GROUP && i < v.n; i++) {
            mass_t m = mass_of(v, v.logits[i]);
            mine += m;
            if (m > 0)
                atomicAdd(&s->bins[order_key(v.logits[i]) >> 21], m);
        }
    scan_block(mine, &all, s); // every thread has counted
    for (int i = (int)threadIdx.x; i < BINS; i += SAMPLE_THREADS)
        part[i] = s->bins[i];
    if (threadIdx.x == 0)
        part[BINS] = all;
}

__global__ void __launch_bounds__(SAMPLE_THREADS, 1) sample_rows(struct cuda_sample a) {
    KD_SHARED(struct sample_shared, s);
    kd_grid_release();
    kd_grid_wait();
    int r = (int)blockIdx.x, out = a.first + r;
    const struct logits_row row = a.rows[r];
    const struct cuda_row_prep d = a.prep[r];
    if (row.row < 0)
        return;
    if (cuda_topk_of_row(&row, a.max_topk) > 0) {
        sample_topk(a, row, d, r, s);
        return;
    }
    view v = whole_row(a, row, r);
    bool finite = row_max(v.max, v.groups, &v.best, s), failed = !finite;
    float total = 0, share = 0;
    int id = 0;
    if (finite && row.num_logprobs >= 0)
        total = log_total(v, a.sums + (size_t)r * 2 * (size_t)a.ldmax, a.ldmax, s);
    if (finite && row.num_wanted > 0)
        wanted_of(v, total, a.entries + d.wanted, row.num_wanted, a.top_ids + (size_t)out * MAX_TOP_LOGPROBS,
                  a.top_logprobs + (size_t)out * MAX_TOP_LOGPROBS);
    else if (finite && row.num_logprobs > 0 && !row.post_sampling)
        best_of(v, total, row.num_logprobs, a.top_ids + (size_t)out * MAX_TOP_LOGPROBS,
                a.top_logprobs + (size_t)out * MAX_TOP_LOGPROBS, s);
    if (finite && row.target >= 0) {
        id = row.target;
    } else if (finite) {
        view e = adjusted_row(a, d, v);
        if (d.adjusted >= 0)
            failed = !row_max(e.max, e.groups, &e.best, s);
        if (counts_row(a, row))
            e.parts = a.parts + (size_t)r * CUDA_SAMPLE_SLICES * CUDA_SAMPLE_PART;
        left_probs left = {a.top_ids + (size_t)out * MAX_TOP_LOGPROBS,
                           a.top_logprobs + (size_t)out * MAX_TOP_LOGPROBS, &a.logprob[out]};
        if (!failed && row.temperature < 5.42101086242752217e-20f) { // 2^-64
            id = argmax(e, s);
            if (row.post_sampling)
                report_only(id, row.num_logprobs, left);
        } else if (!failed) {
            bool chain = cuda_row_has_chain(&row) || row.post_sampling;
            id = chain ? sample_chain(e, row, d, &share, left, s) : sample(e, row, d, s);
        }
    }
    int rank = finite && row.num_logprobs >= 0 ? rank_of(v, id, s) : 0;
    if (threadIdx.x == 0) {
        a.ids[out] = id;
        a.rank[out] = rank;
        a.share[out] = share;
        a.failed[out] = failed;
        if (!row.post_sampling || failed)
            a.logprob[out] =
                finite && row.num_logprobs >= 0 ? kd_add(kd_add(v.logits[id], -v.best), -total) : 0;
    }
}

// ---- entries and masks

// Maxima of the groups of logits [begin, end) of a row.
KD_FN void slice_max(const float *logits, float *max, int begin, int end) {
    for (int g = begin / CUDA_GROUP + (int)threadIdx.x; g * CUDA_GROUP < end; g += (int)blockDim.x) {
        float m = -INFINITY;
        for (int i = g * CUDA_GROUP; i < g * CUDA_GROUP + CUDA_GROUP && i < end; i++)
            m = m != m || logits[i] != logits[i] ? NAN : fmaxf(m, logits[i]);
        max[g] = m;
    }
}

// TOPK: this rank's tokens of rows that a local top-k of ranks samples; else all tokens of the others.
template <bool TOPK> __global__ void __launch_bounds__(ADJUST_THREADS) adjust_rows(struct cuda_sample a) {
    kd_grid_release();
    kd_grid_wait();
    const struct cuda_row_prep d = a.prep[blockIdx.y];
    const struct logits_row row = a.rows[blockIdx.y];
    bool topk = by_ranks(a) && cuda_topk_of_row(&row, a.max_topk) > 0;
    if (d.adjusted < 0 || row.row < 0 || topk != TOPK)
        return;
    int begin = (TOPK ? a.begin : 0) + (int)blockIdx.x * CUDA_SLICE, last = TOPK ? a.end : a.vocab,
        end = begin + CUDA_SLICE < last ? begin + CUDA_SLICE : last;
    const float *from = a.logits + (size_t)blockIdx.y * (size_t)a.ld;
    float *to = a.adjusted + (size_t)d.adjusted * (size_t)a.ld;
    for (int i = begin + (int)threadIdx.x; i < end; i += ADJUST_THREADS)
        to[i] = from[i];
    for (int pass = d.pass_start; pass < d.pass_end; pass++) {
        __syncthreads(); // entries of one token come in order: one a pass
        for (int i = a.passes[pass] + (int)threadIdx.x; i < a.passes[pass + 1]; i += ADJUST_THREADS) {
            const struct logit_entry e = a.entries[i];
            if (e.token < begin || e.token >= end)
                continue;
            float l = to[e.token];
            to[e.token] = kd_add(l > 0 ? kd_div(l, e.div) : kd_mul(l, e.div), e.add);
        }
    }
    __syncthreads();
    if (d.mask >= 0) {
        const uint32_t *mask = a.mask_bits + d.mask;
        for (int i = begin + (int)threadIdx.x; i < end; i += ADJUST_THREADS)
            if (!(mask[i / 32] >> (i % 32) & 1u))
                to[i] = -INFINITY;
        __syncthreads();
    }
    slice_max(to, a.adjusted_max + (size_t)d.adjusted * (size_t)a.ldmax, begin, end);
}

extern "C" {

void cuda_local_topk(struct rt *rt, const struct cuda_sample *a) {
    int n = a->end - a->begin;
    if (a->num_rows == 0)
        return;
    if (a->num_adjusted > 0)
        rt_launch(rt, adjust_rows<true>,
                  rt_grid_of((n + CUDA_SLICE - 1) / CUDA_SLICE, a->num_rows, ADJUST_THREADS, 0), *a);
    rt_launch(rt, topk_rows,
              rt_grid_of(a->num_slices, a->num_rows, SAMPLE_THREADS, sizeof(struct sample_shared)), *a);
}

void cuda_sample(struct rt *rt, const struct cuda_sample *a) {
    if (a->num_rows == 0)
        return;
    if (a->num_adjusted > 0)
        rt_launch(rt, adjust_rows<false>,
                  rt_grid_of((a->vocab + CUDA_SLICE - 1) / CUDA_SLICE, a->num_rows, ADJUST_THREADS, 0), *a);
    rt_launch(rt, count_rows,
              rt_grid_of(CUDA_SAMPLE_SLICES, a->num_rows, SAMPLE_THREADS, sizeof(struct sample_shared)), *a);
    rt_launch(rt, sample_rows, rt_grid_of(a->num_rows, 1, SAMPLE_THREADS, sizeof(struct sample_shared)), *a);
}

} // extern "C"
