// Sampling by a full sort: what kernels/cpu/sampler.c must give id for id. The definition, in words, is in
// kernels/README.md (rules 13 to 16).
#include "philox.h"
#include "ref_ops.h"

#include "log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct candidate {
    double logit, prob; // relative to the best: an integer from 0 to 2^30
    int32_t id;
    bool keep;
    double distance; // of typical sampling
};

static int by_logit(const void *a, const void *b) {
    const struct candidate *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

// Not a number a row may hold; minus infinity is a token that cannot be sampled.
static bool is_bad(double x) { return isnan(x) || x == INFINITY; }

static void apply_entries(struct candidate *c, int vocab, const struct logits_row *row,
                          const struct logit_entry *entries, const uint32_t *mask) {
    for (int i = row->entry_start; i < row->entry_end; i++) {
        const struct logit_entry *e = &entries[i];
        CHECK(e->token >= 0 && e->token < vocab);
        float l = (float)c[e->token].logit;
        c[e->token].logit = (double)((l > 0 ? l / e->div : l * e->div) + e->add);
    }
    for (int i = 0; mask && i < vocab; i++)
        if (!(mask[i / 32] >> (i % 32) & 1u))
            c[i].logit = -INFINITY;
}

static double total(const struct candidate *c, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += c[i].prob;
    return sum;
}

// Keeps the n candidates in the order of rule 15 for which `keep` holds.
static int keep_marked(struct candidate *c, int n) {
    int num = 0;
    for (int i = 0; i < n; i++)
        if (c[i].keep)
            c[num++] = c[i];
    return num;
}

// Marks the shortest prefix whose probabilities reach a share of the total.
static void mark_prefix(struct candidate *c, int n, double share) {
    double need = fmax(ceil(share * total(c, n)), 1), sum = 0;
    for (int i = 0; i < n; i++) {
        c[i].keep = sum < need;
        sum += c[i].prob;
    }
}

static double sigma_of(const struct candidate *c, int n, double max) {
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        double q = floor(fmin((max - c[i].logit) * 256, 0x1p20));
        sum += q;
        squares += q * q;
    }
    return sqrt(fmax(squares / n - sum / n * (sum / n), 0)) / 256;
}

static int by_distance(const void *a, const void *b) {
    const struct candidate *x = a, *y = b;
    if (x->distance != y->distance)
        return x->distance < y->distance ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

// How far tokens lie below the best, in 1024ths of a unit of logit / temperature; the mean of that. x is f32 (rule 15).
static double steps_below(const struct candidate *c, double max, float temperature) {
    return floor(-(double)(((float)c->logit - (float)max) / temperature) * 1024);
}
static double mean_steps(const struct candidate *c, int n, double max, float temperature) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += c[i].prob * steps_below(&c[i], max, temperature);
    return floor(sum / total(c, n));
}

static double dynamic_temperature(const struct candidate *c, int n, double max,
                                  const struct logits_row *row) {
    double sum = 0, all = total(c, n);
    for (int i = 0; i < n; i++)
        sum += c[i].prob * steps_below(&c[i], max, row->temperature);
    double entropy = n > 1 ? (log(all / 0x1p30) + sum / all / 1024) / log(n) : 0;
    double low = (double)row->dyn_low, high = (double)row->dyn_high;
    return (double)(float)(low + (high - low) * pow(fmin(fmax(entropy, 0), 1), (double)row->dyn_exponent));
}

// Reports the probabilities, after the samplers, of the sampled token and of the best ones.
static void report_left(struct ref_sample *out, struct candidate *c, int n, const struct logits_row *row,
                        int vocab) {
    double all = total(c, n);
    qsort(c, (size_t)n, sizeof *c, by_logit);
    out->num_top = row->num_logprobs < vocab ? row->num_logprobs : vocab;
    for (int i = 0; i < out->num_top; i++) {
        bool left = i < n && c[i].prob > 0;
        out->top_ids[i] = left ? c[i].id : -1;
        out->top_logprobs[i] = left ? (float)(c[i].prob / all) : 0;
    }
    for (int i = 0; i < n; i++)
        if (c[i].id == out->id)
            out->logprob = (float)(c[i].prob / all);
}

static void sample_token(struct ref_sample *out, struct candidate *c, int vocab,
                         const struct logits_row *row) {
    double temperature = (double)row->temperature, max = -INFINITY;
    int n = vocab;
    for (int i = 0; i < vocab; i++)
        max = fmax(max, c[i].logit);
    for (int i = 0; i < vocab; i++)
        c[i].prob = floor(exp((c[i].logit - max) / temperature) * 0x1p30);

    bool top_k = row->top_k > 0 && row->top_k < vocab, chain = logits_row_has_chain(row);
    if (top_k || row->top_p < 1 || row->min_p > 0 ||
        chain) // else sampling goes through the vocabulary in the order of ids
        qsort(c, (size_t)vocab, sizeof *c, by_logit);
    while (chain && !(c[n - 1].logit > -INFINITY))
        n--;
    double gap = row->top_n_sigma > 0 ? (double)row->top_n_sigma * sigma_of(c, n, max) : INFINITY;
    for (int i = 0; i < n; i++)
        c[i].keep = max - c[i].logit <= gap && (!chain || c[i].prob >= 1);
    n = keep_marked(c, n);
    if (top_k && row->top_k < n)
        n = row->top_k;
    if (row->typical_p > 0) {
        double mean = mean_steps(c, n, max, row->temperature);
        for (int i = 0; i < n; i++)
            c[i].distance = fabs(steps_below(&c[i], max, row->temperature) - mean);
        qsort(c, (size_t)n, sizeof *c, by_distance);
        mark_prefix(c, n, (double)row->typical_p);
        n = keep_marked(c, n);
        qsort(c, (size_t)n, sizeof *c, by_logit);
    }
    mark_prefix(c, n, (double)row->top_p);
    double best = c[0].logit;
    for (int i = 1; i < n; i++)
        c[i].keep = c[i].keep && exp((c[i].logit - best) / temperature) >= (double)row->min_p;
    n = keep_marked(c, n);
    if (philox_chance(row->seed, row->index, row->xtc_probability)) {
        double least = ceil((double)row->xtc_threshold * total(c, n));
        for (int i = 0; i < n; i++) // the next one is above the threshold, too
            c[i].keep = !(i + 1 < n && c[i + 1].prob >= least);
        n = keep_marked(c, n);
    }
    if (row->least_share > 0) {
        double least = ceil((double)row->least_share * total(c, n));
        for (int i = 1; i < n; i++)
            c[i].keep = c[i].prob >= least;
        c[0].keep = true;
        n = keep_marked(c, n);
    }
    if (row->dyn_high > 0) {
        temperature = dynamic_temperature(c, n, max, row);
        if (temperature < 0x1p-64)
            n = 1;
        best = c[0].logit;
        for (int i = 0; i < n; i++)
            c[i].prob = i == 0 ? 0x1p30 : floor(exp((c[i].logit - best) / temperature) * 0x1p30);
    }
    double point = (double)philox_below(philox_bits(row->seed, row->index), (uint64_t)total(c, n)), sum = 0;
    for (int i = 0; i < n; i++) {
        sum += c[i].prob;
        if (sum > point) {
            out->share = row->least_share > 0 ? (float)(c[i].prob / total(c, n)) : 0;
            out->id = c[i].id;
            if (row->post_sampling)
                report_left(out, c, n, row, vocab);
            return;
        }
    }
    check_failed("the sample_token lies inside the total", __FILE__, __LINE__);
}

bool ref_sample(struct ref_sample *out, const float *logits, int vocab, const struct logits_row *row,
                const struct logit_entry *entries, const uint32_t *mask) {
    memset(out, 0, sizeof *out);
    struct candidate *c = malloc((size_t)vocab * sizeof *c);
    if (!c)
        return false;
    bool bad = false, allowed = false;
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < vocab; i++) {
        c[i] = (struct candidate){.logit = (double)logits[i], .id = i};
        bad |= is_bad(c[i].logit);
        max = fmax(max, c[i].logit);
    }
    for (int i = 0; i < vocab; i++)
        sum += exp(c[i].logit - max);
    if (bad || max == -INFINITY) {
        out->failed = true;
        free(c);
        return true;
    }
    if (row->num_logprobs > 0 && !row->post_sampling) {
        qsort(c, (size_t)vocab, sizeof *c, by_logit);
        out->num_top = row->num_logprobs < vocab ? row->num_logprobs : vocab;
        for (int i = 0; i < out->num_top; i++) {
            out->top_ids[i] = row->num_wanted > 0 ? entries[row->entry_end + i].token : c[i].id;
            out->top_logprobs[i] = (float)((double)logits[out->top_ids[i]] - max - log(sum));
        }
        for (int i = 0; i < vocab; i++)
            c[i] = (struct candidate){.logit = (double)logits[i], .id = i};
    }

    out->id = row->target;
    if (row->target < 0) {
        apply_entries(c, vocab, row, entries, mask);
        for (int i = 0; i < vocab; i++) {
            bad |= is_bad(c[i].logit);
            allowed |= c[i].logit > -INFINITY;
        }
        out->failed = bad || !allowed;
        if (out->failed) {
            out->id = 0;
        } else if (row->temperature >= 0x1p-64f) {
            sample_token(out, c, vocab, row);
        } else {
            int best = 0;
            for (int i = 1; i < vocab; i++)
                if (c[i].logit > c[best].logit)
                    best = i;
            out->id = best;
            c[best].prob = 1;
            if (row->post_sampling)
                report_left(out, &c[best], 1, row, vocab);
        }
    }
    if (!row->post_sampling)
        out->logprob = (float)((double)logits[out->id] - max - log(sum));
    out->rank = 1;
    for (int i = 0; i < vocab; i++)
        out->rank += logits[i] > logits[out->id] || (logits[i] == logits[out->id] && i < out->id);
    free(c);
    return true;
}
