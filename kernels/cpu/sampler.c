// Exact sampling without sorting the vocabulary.
//
// The order is "logit descending, id ascending". Every filter keeps a prefix of it, so a filter is where the
// prefix ends, and a sample is a place in it. Probabilities are unnormalised integers (rule 14), so sums do
// not depend on the order of adding, and the element at a given running sum is found by a radix search over
// the bits of the logit: three passes, no sort. First the maxima of groups of 16 narrow the candidates.
#include "sampler.h"

#include "half.h"
#include "log.h"
#include "philox.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Groups looked at first where top-p or min-p comes without top-k.
enum { FIRST_CANDIDATES = 256 };

// Below this sampling is greedy (rule 13): what counts as zero while kernels run must count so everywhere.
#define MIN_TEMPERATURE 0x1p-64f

struct sampler {
    int vocab, num_groups;
    float *adjusted;     // (num_groups * 16)
    uint32_t *prob;      // (num_groups * 16) of the adjusted row
    float *max, *sum;    // (num_groups)
    uint64_t *mass;      // (num_groups) sums of prob
    uint32_t *group_key; // (num_groups)
    // Candidates, ids ascending:
    int num;
    uint32_t *key, *cand_prob; // (num_groups * 16)
    int32_t *id;               // (num_groups * 16)
    uint32_t *distance;        // (num_groups * 16) of typical sampling
};

struct sampler *sampler_open(int vocab) {
    struct sampler *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->vocab = vocab;
    s->num_groups = (vocab + LANES - 1) / LANES;
    size_t groups = (size_t)s->num_groups, all = groups * LANES;
    s->adjusted = malloc(all * sizeof *s->adjusted);
    s->prob = calloc(all, sizeof *s->prob); // gather() may copy them unused
    s->max = malloc(groups * sizeof *s->max);
    s->sum = malloc(groups * sizeof *s->sum);
    s->mass = malloc(groups * sizeof *s->mass);
    s->group_key = malloc(groups * sizeof *s->group_key);
    s->key = malloc(all * sizeof *s->key);
    s->cand_prob = malloc(all * sizeof *s->cand_prob);
    s->id = malloc(all * sizeof *s->id);
    s->distance = malloc(all * sizeof *s->distance);
    if (!s->adjusted || !s->prob || !s->max || !s->sum || !s->mass || !s->group_key || !s->key ||
        !s->cand_prob || !s->id || !s->distance) {
        sampler_close(s);
        return NULL;
    }
    return s;
}

void sampler_close(struct sampler *s) {
    if (!s)
        return;
    free(s->adjusted), free(s->prob), free(s->max), free(s->sum), free(s->mass), free(s->group_key);
    free(s->key), free(s->cand_prob), free(s->id), free(s->distance);
    free(s);
}

// Orders as the logits do, as integers; -0 and +0 are equal.
static uint32_t order_key(float logit) {
    uint32_t u = float_bits(logit);
    if (u == 0x80000000u)
        u = 0;
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

struct value_place {
    int index;        // of the element
    uint64_t through; // sum of mass up to and including it
};

// The first element, in the order, whose running sum of mass exceeds target; mass NULL: 1 each. The sum of
// all mass exceeds target; ids ascend with the index. Inlined: one copy for all callers asks for mass at each element.
static inline __attribute__((always_inline)) struct value_place
find_place(const uint32_t *key, const uint32_t *mass, int n, uint64_t target) {
    static const int shift[] = {21, 10, 0}, width[] = {11, 11, 10};
    uint64_t above = 0, bins[2048];
    uint32_t prefix = 0;
    for (int pass = 0; pass < 3; pass++) {
        uint32_t digits = (1u << width[pass]) - 1, digit = digits;
        memset(bins, 0, sizeof bins);
        for (int i = 0; i < n; i++)
            if (pass == 0 || key[i] >> (shift[pass] + width[pass]) == prefix)
                bins[key[i] >> shift[pass] & digits] += mass ? mass[i] : 1;
        while (above + bins[digit] <= target) {
            above += bins[digit];
            CHECK(digit > 0);
            digit--;
        }
        prefix = prefix << width[pass] | digit;
    }
    for (int i = 0; i < n; i++) {
        if (key[i] != prefix)
            continue;
        above += mass ? mass[i] : 1;
        if (above > target)
            return (struct value_place){i, above};
    }
    check_failed("the target lies inside the total", __FILE__, __LINE__);
}

// Candidates: every token not below the n-th largest of the group maxima, so at least the best n, ties
// included; all tokens where n is the number of groups or more. Returns the lowest logit that must be in.
static float gather(struct sampler *s, const float *logits, const float *max, int n) {
    float lowest = -INFINITY;
    if (n < s->num_groups) {
        for (int g = 0; g < s->num_groups; g++)
            s->group_key[g] = order_key(max[g]);
        lowest = max[find_place(s->group_key, NULL, s->num_groups, (uint64_t)n - 1).index];
    }
    s->num = 0;
    for (int g = 0; g < s->num_groups; g++) {
        if (max[g] < lowest)
            continue;
        for (int i = g * LANES; i < g * LANES + LANES && i < s->vocab; i++)
            if (logits[i] >= lowest) {
                s->key[s->num] = order_key(logits[i]);
                s->cand_prob[s->num] = s->prob[i];
                s->id[s->num++] = i;
            }
    }
    return lowest;
}

// Keeps the candidates i for which a condition holds.
#define KEEP(condition)                                                                                      \
    do {                                                                                                     \
        int kept = 0;                                                                                        \
        for (int i = 0; i < s->num; i++)                                                                     \
            if (condition) {                                                                                 \
                s->key[kept] = s->key[i];                                                                    \
                s->cand_prob[kept] = s->cand_prob[i];                                                        \
                s->id[kept++] = s->id[i];                                                                    \
            }                                                                                                \
        s->num = kept;                                                                                       \
    } while (0)

// Keeps the candidates up to a place in the order.
static void keep_prefix(struct sampler *s, struct value_place last) {
    uint32_t key = s->key[last.index];
    KEEP(s->key[i] > key || (s->key[i] == key && i <= last.index));
}

// Keeps the best k candidates.
static void keep_best(struct sampler *s, int k) {
    if (s->num > k)
        keep_prefix(s, find_place(s->key, NULL, s->num, (uint64_t)k - 1));
}

static uint64_t candidate_mass(const struct sampler *s) {
    uint64_t sum = 0;
    for (int i = 0; i < s->num; i++)
        sum += s->cand_prob[i];
    return sum;
}

// Sum of the probabilities of candidates whose logit is at least max + low.
static uint64_t mass_within(const struct sampler *s, const float *logits, float max, double low) {
    uint64_t sum = 0;
    for (int i = 0; i < s->num; i++)
        if ((double)(logits[s->id[i]] - max) >= low)
            sum += s->cand_prob[i];
    return sum;
}

// ---- the stages that few requests ask for: all candidates, one stage after the other

// Standard deviation of the logits that can be sampled, from integers of 1/256.
static double sigma_of(const struct sampler *s, const float *logits, float max) {
    uint64_t sum = 0, squares = 0, n = 0;
    for (int i = 0; i < s->vocab; i++) {
        if (!(logits[i] > -INFINITY))
            continue;
        float gap = (max - logits[i]) * 256;
        uint64_t q = (uint64_t)(gap < 0x1p20f ? gap : 0x1p20f);
        n++;
        sum += q;
        squares += q * q;
    }
    double mean = (double)sum / (double)n;
    return sqrt(fmax((double)squares / (double)n - mean * mean, 0)) / 256;
}

// How far a candidate lies below the best, in 1024ths of logit / temperature; by probability, the sum of that.
static uint32_t steps_below(float logit, float max, float temperature) {
    return (uint32_t)(-((logit - max) / temperature) * 1024);
}
static uint64_t sum_of_steps(const struct sampler *s, const float *logits, float max, float temperature) {
    uint64_t sum = 0;
    for (int i = 0; i < s->num; i++)
        sum += (uint64_t)s->cand_prob[i] * steps_below(logits[s->id[i]], max, temperature);
    return sum;
}

// At least this part of the total, at least 1.
static uint64_t share_of(float share, uint64_t total) {
    double part = ceil((double)share * (double)total);
    return part < 1 ? 1 : part < 0x1p63 ? (uint64_t)part : UINT64_MAX;
}

static void keep_typical(struct sampler *s, const float *logits, float max, const struct logits_row *row) {
    uint64_t total = candidate_mass(s), need = share_of(row->typical_p, total);
    uint32_t mean = (uint32_t)(sum_of_steps(s, logits, max, row->temperature) / total);
    for (int i = 0; i < s->num; i++) {
        uint32_t steps = steps_below(logits[s->id[i]], max, row->temperature);
        s->distance[i] = ~(steps < mean ? mean - steps : steps - mean); // the nearest first
    }
    struct value_place last = find_place(s->distance, s->cand_prob, s->num, need - 1);
    uint32_t far = s->distance[last.index];
    KEEP(s->distance[i] > far || (s->distance[i] == far && i <= last.index));
}

// XTC: excludes all tokens with at least the threshold's probability except the last of them in the order.
static void exclude_top(struct sampler *s, float threshold) {
    uint64_t least = share_of(threshold, candidate_mass(s)), above = 0;
    for (int i = 0; i < s->num; i++)
        above += s->cand_prob[i] >= least ? s->cand_prob[i] : 0;
    if (above == 0)
        return;
    struct value_place last = find_place(s->key, s->cand_prob, s->num, above - 1);
    uint32_t key = s->key[last.index];
    KEEP(s->key[i] < key || (s->key[i] == key && i >= last.index));
}

// The place of the best candidate.
static int best_place(const struct sampler *s) { return find_place(s->key, NULL, s->num, 0).index; }

// Gives the candidates the probabilities of the temperature that follows from their entropy.
static void heat(struct sampler *s, const struct cpu_kernels *k, const float *logits, float max,
                 const struct logits_row *row) {
    uint64_t total = candidate_mass(s);
    int best = best_place(s);
    double steps = (double)sum_of_steps(s, logits, max, row->temperature) / (double)total / 1024;
    double entropy = s->num > 1 ? (log((double)total / 0x1p30) + steps) / log((double)s->num) : 0;
    double low = (double)row->dyn_low, high = (double)row->dyn_high;
    entropy = fmin(fmax(entropy, 0), 1);
    float temperature = (float)(low + (high - low) * pow(entropy, (double)row->dyn_exponent));
    float top = logits[s->id[best]], *l = (float *)(void *)s->distance; // which is done with
    if (!(temperature >= MIN_TEMPERATURE)) {
        KEEP(i == best);
        return;
    }
    int num_groups = (s->num + LANES - 1) / LANES;
    for (int i = 0; i < num_groups * LANES; i++)
        l[i] = i < s->num ? logits[s->id[i]] : -INFINITY;
    k->group_prob(s->cand_prob, s->mass, l, NULL, num_groups, top, temperature);
}

// No filter: the inverse of the distribution function in the order of ids.
static int32_t sample_unfiltered(const struct sampler *s, uint64_t point) {
    uint64_t sum = 0;
    for (int g = 0; g < s->num_groups; g++) {
        if (sum + s->mass[g] <= point) {
            sum += s->mass[g];
            continue;
        }
        for (int i = g * LANES; i < g * LANES + LANES; i++) {
            sum += s->prob[i];
            if (sum > point)
                return i;
        }
    }
    check_failed("the point lies inside the total", __FILE__, __LINE__);
}

static bool has_filter(const struct sampler *s, const struct logits_row *row) {
    return (row->top_k > 0 && row->top_k < s->vocab) || row->top_p < 1 || row->min_p > 0 ||
           logits_row_has_chain(row);
}

// The probabilities of the sampled token and of the best ones among the candidates, whose sum is total.
static void report_left(const struct sampler *s, uint64_t total, const struct logits_row *row,
                        struct sample *out) {
    for (int i = 0; i < s->num; i++)
        if (s->id[i] == out->id)
            out->logprob = (float)((double)s->cand_prob[i] / (double)total);
    for (int i = 0; i < row->num_logprobs; i++) {
        int at = i < s->num ? find_place(s->key, NULL, s->num, (uint64_t)i).index : -1;
        bool left = at >= 0 && s->cand_prob[at] > 0;
        out->top_ids[i] = left ? s->id[at] : -1;
        out->top_logprobs[i] = left ? (float)((double)s->cand_prob[at] / (double)total) : 0;
    }
}

// Apart, so that the usual way is compiled as if it were alone.
__attribute__((noinline, cold)) static void sample_chain(struct sampler *s, const struct cpu_kernels *k,
                                                         const float *logits, float max,
                                                         const struct logits_row *row, struct sample *out) {
    double gap = row->top_n_sigma > 0 ? (double)row->top_n_sigma * sigma_of(s, logits, max) : INFINITY;
    gather(s, logits, s->max, s->num_groups);
    KEEP(s->cand_prob[i] > 0 && (double)(max - logits[s->id[i]]) <= gap);
    if (row->top_k > 0)
        keep_best(s, row->top_k);
    if (row->typical_p > 0)
        keep_typical(s, logits, max, row);
    float best = logits[s->id[best_place(s)]];
    if (row->top_p < 1)
        keep_prefix(s, find_place(s->key, s->cand_prob, s->num, share_of(row->top_p, candidate_mass(s)) - 1));
    if (row->min_p > 0) {
        double low = fmin((double)row->temperature * log((double)row->min_p), 0);
        KEEP((double)(logits[s->id[i]] - best) >= low);
    }
    if (philox_chance(row->seed, row->index, row->xtc_probability))
        exclude_top(s, row->xtc_threshold);
    if (row->least_share > 0) {
        uint64_t least = share_of(row->least_share, candidate_mass(s));
        int first = best_place(s);
        KEEP(s->cand_prob[i] >= least || i == first);
    }
    if (row->dyn_high > 0)
        heat(s, k, logits, max, row);
    uint64_t total = candidate_mass(s), point = philox_below(philox_bits(row->seed, row->index), total);
    int at = find_place(s->key, s->cand_prob, s->num, point).index;
    out->share = row->least_share > 0 ? (float)((double)s->cand_prob[at] / (double)total) : 0;
    out->id = has_filter(s, row) ? s->id[at] : sample_unfiltered(s, point);
    if (row->post_sampling)
        report_left(s, total, row, out);
}

// ---- the others

static void sample_token(struct sampler *s, const struct cpu_kernels *k, const float *logits, float max,
                         const struct logits_row *row, struct sample *out) {
    float temperature = row->temperature;
    uint64_t bits = philox_bits(row->seed, row->index);
    uint64_t total = k->group_prob(s->prob, s->mass, logits, s->max, s->num_groups, max, temperature);
    if (logits_row_has_chain(row) || row->post_sampling) {
        sample_chain(s, k, logits, max, row, out);
        return;
    }
    if (!has_filter(s, row)) {
        out->id = sample_unfiltered(s, philox_below(bits, total));
        return;
    }
    bool top_k = row->top_k > 0 && row->top_k<s->vocab, min_p = row->min_p> 0;

    float lowest = gather(s, logits, s->max, top_k ? row->top_k : FIRST_CANDIDATES);
    if (top_k) {
        keep_best(s, row->top_k);
        total = candidate_mass(s);
    }
    double low = min_p ? fmin((double)temperature * log((double)row->min_p), 0) : -INFINITY;
    double part = ceil((double)row->top_p * (double)total);
    uint64_t need = part < 1 ? 1 : part < (double)total ? (uint64_t)part : total;
    // Do the candidates hold the end of the prefix that top-p or min-p keeps?
    if (!top_k && candidate_mass(s) < need && !((double)(lowest - max) < low))
        gather(s, logits, s->max, s->num_groups);
    uint64_t limit = min_p ? mass_within(s, logits, max, low) : total;
    if (candidate_mass(s) >= need) {
        uint64_t through = find_place(s->key, s->cand_prob, s->num, need - 1).through;
        limit = through < limit ? through : limit;
    }
    out->id = s->id[find_place(s->key, s->cand_prob, s->num, philox_below(bits, limit)).index];
}

// Greedy: nothing else is left.
static void report_only(const struct logits_row *row, struct sample *out) {
    out->logprob = 1;
    for (int i = 0; i < row->num_logprobs; i++) {
        out->top_ids[i] = i == 0 ? out->id : -1;
        out->top_logprobs[i] = i == 0;
    }
}

// Lowest id among the largest.
static int32_t argmax(const struct sampler *s, const float *logits, float max) {
    for (int g = 0; g < s->num_groups; g++)
        for (int i = g * LANES; s->max[g] == max && i < g * LANES + LANES; i++)
            if (logits[i] == max)
                return i;
    check_failed("the largest logit is in the row", __FILE__, __LINE__);
}

// The largest of the group maxima.
static float largest(const struct sampler *s) {
    float max = -INFINITY;
    for (int g = 0; g < s->num_groups; g++)
        max = s->max[g] > max ? s->max[g] : max;
    return max;
}

// ln of the sum of exp(logit - max): group sums as a binary tree of neighbours (rule 12).
static float log_total(struct sampler *s, const struct cpu_kernels *k, const float *logits, float max) {
    k->group_exp(s->sum, logits, s->num_groups, max);
    for (int n = s->num_groups; n > 1; n = (n + 1) / 2) {
        for (int i = 0; i < n / 2; i++)
            s->sum[i] = s->sum[2 * i] + s->sum[2 * i + 1];
        if (n % 2)
            s->sum[n / 2] = s->sum[n - 1];
    }
    return (float)log((double)s->sum[0]);
}

// The best n of the unadjusted row, best first. n is small.
static void best(struct sampler *s, const float *logits, float max, float total, int n, struct sample *out) {
    n = n < s->vocab ? n : s->vocab;
    gather(s, logits, s->max, n);
    keep_best(s, n);
    for (int i = 0; i < n; i++) { // candidates come by ascending id: insert after those that are not worse
        int at = i;
        for (; at > 0 && logits[s->id[i]] > logits[out->top_ids[at - 1]]; at--)
            out->top_ids[at] = out->top_ids[at - 1];
        out->top_ids[at] = s->id[i];
    }
    for (int i = 0; i < n; i++)
        out->top_logprobs[i] = logits[out->top_ids[i]] - max - total;
}

// Log-probabilities of given tokens, in their order.
static void wanted(const float *logits, float max, float total, const struct logit_entry *of, int n,
                   struct sample *out) {
    for (int i = 0; i < n; i++) {
        out->top_ids[i] = of[i].token;
        out->top_logprobs[i] = logits[of[i].token] - max - total;
    }
}

// How many tokens come before one in the order, and 1.
static int32_t rank_of(const float *logits, int vocab, int32_t id) {
    int32_t n = 1;
    for (int i = 0; i < vocab; i++)
        n += logits[i] > logits[id] || (logits[i] == logits[id] && i < id);
    return n;
}

static bool has_entries(const struct logits_row *row) { return row->entry_end > row->entry_start; }

// s->adjusted = the row after entries and mask, one of which there is; and its group maxima. The sampler owns ids
// [begin, begin + vocab); entries outside belong to other ranks and are skipped. false: the row is not finite, before
// it or after it.
static bool adjust(struct sampler *s, const struct cpu_kernels *k, const float *logits, int begin,
                   const struct logits_row *row, const struct logit_entry *entries, const uint32_t *mask) {
    mask = mask ? mask + begin / 32 : NULL;
    if (!has_entries(row))
        return k->group_mask(s->max, s->adjusted, logits, mask, s->num_groups);
    if (!k->group_max(s->max, logits, s->num_groups))
        return false;
    memcpy(s->adjusted, logits, (size_t)s->num_groups * LANES * sizeof *logits);
    for (int i = row->entry_start; i < row->entry_end; i++) {
        const struct logit_entry *e = &entries[i];
        int at = e->token - begin;
        if (at < 0 || at >= s->vocab)
            continue;
        float l = s->adjusted[at];
        s->adjusted[at] = (l > 0 ? l / e->div : l * e->div) + e->add;
    }
    if (mask)
        k->group_mask(s->max, s->adjusted, s->adjusted, mask, s->num_groups);
    return k->group_max(s->max, s->adjusted, s->num_groups);
}

void sampler_row(struct sampler *s, const struct cpu_kernels *kernels, const float *logits,
                 const struct logits_row *row, const struct logit_entry *entries, const uint32_t *mask,
                 struct sample *out) {
    bool adjusted = row->target < 0 && (mask || has_entries(row));
    float max = -INFINITY, total = 0;
    out->id = 0;
    out->logprob = 0;
    out->rank = 0;
    out->share = 0;
    out->failed = false;
    if (!adjusted || row->num_logprobs >= 0) {
        out->failed = !kernels->group_max(s->max, logits, s->num_groups) || !((max = largest(s)) > -INFINITY);
        if (out->failed)
            return;
    }
    if (row->num_logprobs >= 0)
        total = log_total(s, kernels, logits, max);
    if (row->num_wanted > 0)
        wanted(logits, max, total, entries + row->entry_end, row->num_wanted, out);
    else if (row->num_logprobs > 0 && !row->post_sampling)
        best(s, logits, max, total, row->num_logprobs, out);

    if (row->target >= 0) {
        CHECK(row->target < s->vocab);
        out->id = row->target;
    } else {
        const float *l = adjusted ? s->adjusted : logits;
        float top = max;
        for (int i = row->entry_start; i < row->entry_end; i++)
            CHECK(entries[i].token >= 0 && entries[i].token < s->vocab);
        if (adjusted)
            out->failed =
                !adjust(s, kernels, logits, 0, row, entries, mask) || !((top = largest(s)) > -INFINITY);
        if (!out->failed && row->temperature >= MIN_TEMPERATURE) {
            sample_token(s, kernels, l, top, row, out);
        } else if (!out->failed) {
            out->id = argmax(s, l, top);
            if (row->post_sampling)
                report_only(row, out);
        }
    }
    if (row->num_logprobs >= 0) {
        if (!row->post_sampling)
            out->logprob = logits[out->id] - max - total;
        out->rank = rank_of(logits, s->vocab, out->id);
    }
}

int sampler_local_k(const struct logits_row *row) {
    if (row->target >= 0 || row->num_logprobs >= 0 || logits_row_has_chain(row))
        return 0;
    if (!(row->temperature >= MIN_TEMPERATURE))
        return 1;
    return row->top_k > 0 && row->top_k <= SAMPLER_MAX_TOPK ? row->top_k : 0;
}

int sampler_local_topk(struct sampler *s, const struct cpu_kernels *kernels, const float *logits, int begin,
                       const struct logits_row *row, const struct logit_entry *entries, const uint32_t *mask,
                       int k, float *best, int32_t *ids) {
    int n = 0;
    bool adjusted = mask || has_entries(row);
    if (adjusted ? !adjust(s, kernels, logits, begin, row, entries, mask)
                 : !kernels->group_max(s->max, logits, s->num_groups))
        return -1;
    logits = adjusted ? s->adjusted : logits;
    gather(s, logits, s->max, k);
    keep_best(s, k);
    for (int i = 0; i < s->num; i++)
        if (logits[s->id[i]] > -INFINITY) {
            best[n] = logits[s->id[i]];
            ids[n++] = begin + s->id[i];
        }
    return n;
}
