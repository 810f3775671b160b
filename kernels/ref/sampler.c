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

static int32_t sample_token(struct candidate *c, int vocab, const struct logits_row *row) {
    double temperature = (double)row->temperature, max = -INFINITY;
    for (int i = 0; i < vocab; i++)
        max = fmax(max, c[i].logit);
    for (int i = 0; i < vocab; i++)
        c[i].prob = floor(exp((c[i].logit - max) / temperature) * 0x1p30);

    int n = vocab;
    bool filtered = (row->top_k > 0 && row->top_k < vocab) || row->top_p < 1 || row->min_p > 0;
    if (filtered) { // else sampling goes through the vocabulary in the order of ids
        qsort(c, (size_t)vocab, sizeof *c, by_logit);
        if (row->top_k > 0 && row->top_k < vocab)
            n = row->top_k;
        double need = fmax(ceil((double)row->top_p * total(c, n)), 1), sum = 0;
        int num_p = 0;
        while (num_p < n && sum < need)
            sum += c[num_p++].prob;
        int num_min = 0;
        while (num_min < n && exp((c[num_min].logit - max) / temperature) >= (double)row->min_p)
            num_min++;
        n = num_p < num_min ? num_p : num_min;
        n = n < 1 ? 1 : n;
    }
    double point = (double)philox_below(philox_bits(row->seed, row->index), (uint64_t)total(c, n)), sum = 0;
    for (int i = 0; i < n; i++) {
        sum += c[i].prob;
        if (sum > point)
            return c[i].id;
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
    if (row->num_logprobs > 0) {
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
            out->id = sample_token(c, vocab, row);
        } else {
            int best = 0;
            for (int i = 1; i < vocab; i++)
                if (c[i].logit > c[best].logit)
                    best = i;
            out->id = best;
        }
    }
    out->logprob = (float)((double)logits[out->id] - max - log(sum));
    out->rank = 1;
    for (int i = 0; i < vocab; i++)
        out->rank += logits[i] > logits[out->id] || (logits[i] == logits[out->id] && i < out->id);
    free(c);
    return true;
}
