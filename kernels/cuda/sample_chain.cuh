// The stages of rule 15 that few requests ask for: typical, top-n-sigma, XTC, Mirostat's, dynamic temperature. Bit for
// bit what sample_chain() of kernels/cpu/sampler.c gives. Each stage narrows what `in_chain` keeps, and no row is
// copied: a pass goes over the groups that have a token of any probability. Part of sample.cu.
#pragma once

struct chain {
    view v;     // the row, by mass, with all tokens kept
    double gap; // top-n-sigma: a token lies at most so far below the best
    bool typical;
    uint32_t mean, far; // typical: steps below the best; how far from it the last one kept is
    int far_id;         // of those as far
    // In the order: tokens behind `first`, up to `last`.
    uint32_t first_key, last_key;
    int first_id, last_id;
    float best; // min-p: at most -low below this one
    double low;
    mass_t least; // counts at least this
    bool heated;  // the temperature is hot, the best hot_best
    float hot, hot_best;
};

KD_FN uint32_t steps_below(const chain &c, float logit) {
    return (uint32_t)kd_mul(-kd_div(kd_add(logit, -c.v.best), c.v.temperature), 1024.0f);
}
KD_FN uint32_t distance_of(const chain &c, float logit) {
    uint32_t steps = steps_below(c, logit);
    return steps < c.mean ? c.mean - steps : steps - c.mean;
}

// The mass of a token; 0: it is not in the chain, or has no probability.
KD_FN mass_t mass_in(const chain &c, int id) {
    float l = c.v.logits[id];
    uint32_t key = order_key(l);
    if (key < c.last_key || (key == c.last_key && id > c.last_id) || key > c.first_key ||
        (key == c.first_key && id < c.first_id))
        return 0;
    mass_t mass = mass_of(c.v, l);
    if (mass == 0 || mass < c.least || (double)kd_add(c.v.best, -l) > c.gap ||
        (double)kd_add(l, -c.best) < c.low)
        return 0;
    if (c.typical) {
        uint32_t far = distance_of(c, l);
        if (far > c.far || (far == c.far && id > c.far_id))
            return 0;
    }
    if (!c.heated)
        return mass;
    view v = c.v;
    v.best = c.hot_best;
    v.temperature = c.hot;
    return mass_of(v, l);
}

enum chain_sum { CHAIN_COUNT, CHAIN_MASS, CHAIN_STEPS };

KD_FN mass_t chain_sum(const chain &c, enum chain_sum of, struct sample_shared *s) {
    mass_t sum = 0, all;
    for (int g = (int)threadIdx.x; g < c.v.groups; g += SAMPLE_THREADS)
        for (int i = g * CUDA_GROUP; !skips(c.v, g) && i < g * CUDA_GROUP + CUDA_GROUP && i < c.v.n; i++) {
            mass_t m = mass_in(c, i);
            if (m > 0)
                sum += of == CHAIN_COUNT ? 1 : of == CHAIN_MASS ? m : m * steps_below(c, c.v.logits[i]);
        }
    scan_block(sum, &all, s);
    return all;
}

struct chain_place {
    uint32_t key; // of the order, or ~distance
    int id;
};

// The token whose running sum, of masses or (count) of tokens, exceeds target: in the order of the logits, or of the
// distances (near: the nearest first), ties to the lower id.
KD_FN chain_place find_in_chain(const chain &c, bool near, bool count, mass_t target,
                                struct sample_shared *s) {
    const int shift[] = {21, 10, 0}, width[] = {11, 11, 10};
    mass_t above = 0;
    uint32_t prefix = 0;
    for (int pass = 0; pass < 3; pass++) {
        uint32_t num = 1u << width[pass];
        for (int i = (int)threadIdx.x; i < BINS; i += SAMPLE_THREADS)
            s->bins[i] = 0;
        __syncthreads();
        for (int g = (int)threadIdx.x; g < c.v.groups; g += SAMPLE_THREADS)
            for (int i = g * CUDA_GROUP; !skips(c.v, g) && i < g * CUDA_GROUP + CUDA_GROUP && i < c.v.n;
                 i++) {
                mass_t m = mass_in(c, i);
                uint32_t key = m == 0 ? 0 : near ? ~distance_of(c, c.v.logits[i]) : order_key(c.v.logits[i]);
                if (m > 0 && (pass == 0 || key >> (shift[pass] + width[pass]) == prefix))
                    atomicAdd(&s->bins[key >> shift[pass] & (num - 1)], count ? 1 : m);
            }
        __syncthreads();
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
    int begin, end;
    thread_groups(c.v, &begin, &end);
    mass_t mine = 0;
    for (int g = begin; g < end; g++)
        for (int i = g * CUDA_GROUP; !skips(c.v, g) && i < g * CUDA_GROUP + CUDA_GROUP && i < c.v.n; i++) {
            mass_t m = mass_in(c, i);
            if (m > 0 && (near ? ~distance_of(c, c.v.logits[i]) : order_key(c.v.logits[i])) == prefix)
                mine += count ? 1 : m;
        }
    mass_t before = above + scan_block(mine, NULL, s);
    if (before <= target && before + mine > target)
        for (int i = begin * CUDA_GROUP; i < c.v.n; i++) {
            mass_t m = mass_in(c, i);
            if (m == 0 || (near ? ~distance_of(c, c.v.logits[i]) : order_key(c.v.logits[i])) != prefix)
                continue;
            before += count ? 1 : m;
            if (before > target) {
                s->index = i;
                break;
            }
        }
    __syncthreads();
    chain_place p = {prefix, s->index};
    __syncthreads();
    return p;
}

// At least this part of the total, at least 1.
KD_FN mass_t share_of(float share, mass_t total) {
    double part = ceil(kd_mul_double((double)share, (double)total));
    return part < 1 ? 1 : part < 9223372036854775808.0 ? (mass_t)part : ~(mass_t)0;
}

// n_sigma standard deviations of the logits that can be sampled.
KD_FN double sigma_gap(const view &v, float n_sigma, struct sample_shared *s) {
    mass_t n = 0, sum = 0, squares = 0, all_n, all_sum, all_squares;
    for (int i = (int)threadIdx.x; i < v.n; i += SAMPLE_THREADS) {
        if (!(v.logits[i] > -INFINITY))
            continue;
        mass_t q = (mass_t)fminf(kd_mul(kd_add(v.best, -v.logits[i]), 256.0f), 1048576.0f);
        n++;
        sum += q;
        squares += q * q;
    }
    scan_block(n, &all_n, s);
    scan_block(sum, &all_sum, s);
    scan_block(squares, &all_squares, s);
    double mean = (double)all_sum / (double)all_n;
    double variance = (double)all_squares / (double)all_n - kd_mul_double(mean, mean);
    return kd_mul_double((double)n_sigma, sqrt(fmax(variance, 0.0)) / 256);
}

// Rule 15's dynamic temperature of what is kept.
KD_FN float dynamic_temperature(const chain &c, const struct logits_row &row, struct sample_shared *s) {
    mass_t n = chain_sum(c, CHAIN_COUNT, s), total = chain_sum(c, CHAIN_MASS, s),
           steps = chain_sum(c, CHAIN_STEPS, s);
    double entropy = 0, low = (double)row.dyn_low, high = (double)row.dyn_high;
    if (n > 1)
        entropy = (log((double)total / 1073741824.0) + (double)steps / (double)total / 1024) / log((double)n);
    entropy = fmin(fmax(entropy, 0.0), 1.0);
    return (float)(low + kd_mul_double(high - low, pow(entropy, (double)row.dyn_exponent)));
}

// Where the probabilities of what is left go: (num_logprobs) and the sampled token's.
struct left_probs {
    int *ids;
    float *probs, *own;
};

// As report_left() of kernels/cpu/sampler.c.
KD_FN void report_left(const chain &c, mass_t total, int id, int num, const left_probs &to,
                       struct sample_shared *s) {
    mass_t n = chain_sum(c, CHAIN_COUNT, s);
    for (int i = 0; i < num; i++) {
        bool left = (mass_t)i < n;
        int at = left ? find_in_chain(c, false, true, (mass_t)i, s).id : -1;
        if (threadIdx.x == 0) {
            to.ids[i] = at;
            to.probs[i] = left ? (float)((double)mass_in(c, at) / (double)total) : 0;
        }
    }
    if (threadIdx.x == 0)
        *to.own = (float)((double)mass_in(c, id) / (double)total);
}

KD_FN void report_only(int id, int num, const left_probs &to) {
    for (int i = (int)threadIdx.x; i < num; i += SAMPLE_THREADS) {
        to.ids[i] = i == 0 ? id : -1;
        to.probs[i] = i == 0 ? 1 : 0;
    }
    if (threadIdx.x == 0)
        *to.own = 1;
}

// Samples by the whole chain; *share: the token's probability among those that were left.
KD_FN int sample_chain(const view &v, const struct logits_row &row, const struct cuda_row_prep &d,
                       float *share, const left_probs &left, struct sample_shared *s) {
    chain c = {};
    c.v = v;
    c.v.by_mass = true;
    c.v.last_key = 0;
    c.gap = row.top_n_sigma > 0 ? sigma_gap(v, row.top_n_sigma, s) : INFINITY;
    c.first_key = ~0u;
    c.last_id = v.n;
    c.best = v.best;
    c.low = -INFINITY;
    c.least = 1;
    if (row.top_k > 0 && (mass_t)row.top_k < chain_sum(c, CHAIN_COUNT, s)) {
        chain_place last = find_in_chain(c, false, true, (mass_t)row.top_k - 1, s);
        c.last_key = last.key;
        c.last_id = last.id;
    }
    if (row.typical_p > 0) {
        mass_t total = chain_sum(c, CHAIN_MASS, s);
        c.mean = (uint32_t)(chain_sum(c, CHAIN_STEPS, s) / total);
        chain_place last = find_in_chain(c, true, false, share_of(row.typical_p, total) - 1, s);
        c.typical = true;
        c.far = ~last.key;
        c.far_id = last.id;
    }
    float best = v.logits[find_in_chain(c, false, true, 0, s).id];
    if (row.top_p < 1) {
        chain_place last =
            find_in_chain(c, false, false, share_of(row.top_p, chain_sum(c, CHAIN_MASS, s)) - 1, s);
        c.last_key = last.key;
        c.last_id = last.id;
    }
    if (row.min_p > 0) {
        c.best = best;
        c.low = d.low;
    }
    if (d.xtc) { // of the tokens of at least this share only the last in the order stays
        chain likely = c;
        likely.least = share_of(row.xtc_threshold, chain_sum(c, CHAIN_MASS, s));
        mass_t n = chain_sum(likely, CHAIN_COUNT, s);
        if (n > 0) {
            chain_place first = find_in_chain(likely, false, true, n - 1, s);
            c.first_key = first.key;
            c.first_id = first.id;
        }
    }
    if (row.least_share > 0) {
        mass_t least = share_of(row.least_share, chain_sum(c, CHAIN_MASS, s));
        chain_place first = find_in_chain(c, false, true, 0, s);
        if (least > mass_in(c, first.id)) { // none is likely enough: the best one
            c.last_key = first.key;
            c.last_id = first.id;
        } else {
            c.least = least;
        }
    }
    if (row.dyn_high > 0) {
        float temperature = dynamic_temperature(c, row, s);
        chain_place first = find_in_chain(c, false, true, 0, s);
        if (!(temperature >= 5.42101086242752217e-20f)) { // 2^-64
            *share = row.least_share > 0 ? 1 : 0;
            if (row.post_sampling)
                report_only(first.id, row.num_logprobs, left);
            return first.id;
        }
        c.heated = true;
        c.hot = temperature;
        c.hot_best = v.logits[first.id];
    }
    mass_t total = chain_sum(c, CHAIN_MASS, s);
    bool filtered =
        (row.top_k > 0 && row.top_k < v.n) || row.top_p < 1 || row.min_p > 0 || cuda_row_has_chain(&row);
    int id =
        filtered ? find_in_chain(c, false, false, philox_below(d.bits, total), s).id : sample(v, row, d, s);
    *share = row.least_share > 0 ? (float)((double)mass_in(c, id) / (double)total) : 0;
    if (row.post_sampling)
        report_left(c, total, id, row.num_logprobs, left, s);
    return id;
}
