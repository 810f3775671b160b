// The sampler: against the full sort of kernels/ref id for id, against the distributions it claims, and every
// variant against every other bit for bit.
#include "harness.h"

#include "fixture.h"
#include "float_env.h"
#include "philox.h"
#include "random_rows.h"
#include "sampler.h"
#include "variants.h"

enum { NUM_VARIANTS = sizeof variants / sizeof *variants };

TEST(test_philox) {
    // The known answers that the authors publish with Random123 (kat_vectors).
    static const uint32_t known[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb,
         0x5001e420, 0x24126ea1},
    };
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        philox4x32(known[i], known[i] + 4, out);
        assert_memory_equal(out, known[i] + 6, sizeof out);
    }
    assert_true(philox_bits(0, 0) == 0x6627e8d5e169c58dull);
    assert_true(philox_bits(0x299f31d0a4093822ull, 5) != philox_bits(0xa4093822299f31d0ull, 5));
    assert_true(philox_bits(1, 0) != philox_bits(1, 1));
    __extension__ typedef unsigned __int128 wide;
    for (int i = 0; i < 100000; i++) {
        uint64_t a = (uint64_t)random_u32() << 32 | random_u32();
        uint64_t b = ((uint64_t)random_u32() << 32 | random_u32()) >> (random_u32() % 64);
        assert_true(philox_below(a, b) == (uint64_t)((wide)a * b >> 64));
    }
}

struct full_sample {
    struct sample s;
    int32_t top_ids[TOP];
    float top_logprobs[TOP];
};

static void sample(struct full_sample *out, const struct row *r, const struct cpu_kernels *k) {
    struct sampler *s = sampler_open(r->vocab);
    memset(out, 0, sizeof *out);
    out->s.top_ids = out->top_ids;
    out->s.top_logprobs = out->top_logprobs;
    uint64_t env = float_env_enter();
    sampler_row(s, k, r->logits, &r->head, r->entries, r->mask, &out->s);
    float_env_leave(env);
    out->s.top_ids = NULL;
    out->s.top_logprobs = NULL;
    sampler_close(s);
}

TEST(test_same_as_sort) {
    int sampled = 0, failed = 0;
    for (int i = 0; i < 6000; i++) {
        struct row r;
        row_random(&r);
        struct ref_sample ref;
        struct full_sample first, other;
        assert_true(ref_sample(&ref, r.logits, r.vocab, &r.head, r.entries, r.mask));
        sample(&first, &r, cpu_kernels_find("scalar"));
        assert_int_equal(first.s.failed, ref.failed);
        if (first.s.id != ref.id)
            printf("  row %d: V %d T %g k %d p %g min %g typical %g sigma %g xtc %g %g share %g dyn %g %g "
                   "%g: %d, sorted %d\n",
                   i, r.vocab, (double)r.head.temperature, r.head.top_k, (double)r.head.top_p,
                   (double)r.head.min_p, (double)r.head.typical_p, (double)r.head.top_n_sigma,
                   (double)r.head.xtc_probability, (double)r.head.xtc_threshold, (double)r.head.least_share,
                   (double)r.head.dyn_low, (double)r.head.dyn_high, (double)r.head.dyn_exponent, first.s.id,
                   ref.id);
        assert_int_equal(first.s.id, ref.id);
        assert_true(fabsf(first.s.share - ref.share) <= 1e-5f * ref.share);
        failed += ref.failed;
        sampled += !ref.failed && r.head.target < 0 && r.head.temperature > 0;
        if (!ref.failed && r.head.num_logprobs >= 0) {
            assert_int_equal(first.s.rank, ref.rank);
            assert_true(first.s.logprob == ref.logprob ||
                        fabsf(first.s.logprob - ref.logprob) <= 2e-6f * (1 + fabsf(ref.logprob)));
            for (int j = 0; j < ref.num_top; j++) {
                assert_int_equal(first.top_ids[j], ref.top_ids[j]);
                assert_true(first.top_logprobs[j] == ref.top_logprobs[j] ||
                            fabsf(first.top_logprobs[j] - ref.top_logprobs[j]) <=
                                2e-6f * (1 + fabsf(ref.top_logprobs[j])));
            }
        }
        for (int v = 1; v < NUM_VARIANTS; v++) {
            const struct cpu_kernels *k = cpu_kernels_find(variants[v]);
            if (!k)
                continue;
            sample(&other, &r, k);
            assert_memory_equal(&first, &other, sizeof first);
        }
        row_close(&r);
    }
    printf("  %d sampled, %d failed rows\n", sampled, failed);
    assert_true(sampled > 3000 && failed > 100);
}

// Samples N times and compares with probabilities p (vocab): Pearson's statistic within 5 deviations, and
// nothing of probability 0.
static void check_distribution(struct row *r, const double *p, const char *name) {
    enum { N = 40000 };
    int *count = must_calloc((size_t)r->vocab, sizeof *count), freedom = -1;
    double chi = 0;
    const struct cpu_kernels *k = cpu_kernels_find("auto");
    struct sampler *s = sampler_open(r->vocab);
    struct sample out = {0};
    uint64_t env = float_env_enter();
    for (int i = 0; i < N; i++) {
        r->head.seed = 1234567 + (uint64_t)(i % 200);
        r->head.index = i / 200;
        sampler_row(s, k, r->logits, &r->head, r->entries, r->mask, &out);
        count[out.id]++;
    }
    float_env_leave(env);
    sampler_close(s);
    for (int i = 0; i < r->vocab; i++) {
        if (p[i] == 0)
            assert_int_equal(count[i], 0);
        if (p[i] * N < 5)
            continue;
        chi += (count[i] - p[i] * N) * (count[i] - p[i] * N) / (p[i] * N);
        freedom++;
    }
    printf("  %-28s chi-square %.1f, %d degrees of freedom\n", name, chi, freedom);
    assert_true(fabs(chi - freedom) < 5 * sqrt(2.0 * freedom) + 1e-9);
    free(count);
}

// p = exp(l / T) over the tokens kept, normalised
static void normalise(double *p, const float *l, const bool *keep, int n, double temperature) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += p[i] = keep[i] ? exp((double)l[i] / temperature) : 0;
    for (int i = 0; i < n; i++)
        p[i] /= sum;
}

enum { FEW = 50 };

// Descending logits, so that the rank of a token is its id; ids are then permuted to hide it from the
// sampler.
static void few(struct row *r, float *sorted, int *id) {
    row_open(r, FEW);
    for (int i = 0; i < FEW; i++) {
        sorted[i] = 2.0f - 0.15f * (float)i;
        id[i] = i * 17 % FEW;
        r->logits[id[i]] = sorted[i];
    }
}

static void few_check(struct row *r, const float *sorted, const int *id, int keep_first, double temperature,
                      const char *name) {
    double p[FEW], by_id[FEW];
    bool keep[FEW];
    for (int i = 0; i < FEW; i++)
        keep[i] = i < keep_first;
    normalise(p, sorted, keep, FEW, temperature);
    for (int i = 0; i < FEW; i++)
        by_id[id[i]] = p[i];
    check_distribution(r, by_id, name);
    row_close(r);
}

TEST(test_distributions) {
    struct row r;
    float l[FEW];
    int id[FEW];
    few(&r, l, id);
    few_check(&r, l, id, FEW, 1, "temperature 1");
    few(&r, l, id);
    r.head.temperature = 0.6f;
    few_check(&r, l, id, FEW, 0.6, "temperature 0.6");
    few(&r, l, id);
    r.head.temperature = 3;
    few_check(&r, l, id, FEW, 3, "temperature 3");
    few(&r, l, id);
    r.head.top_k = 7;
    few_check(&r, l, id, 7, 1, "top-k 7");

    // top-p: the smallest prefix that reaches 0.8, at temperature 2
    few(&r, l, id);
    r.head.top_p = 0.8f;
    r.head.temperature = 2;
    double p[FEW], sum = 0;
    bool all[FEW];
    memset(all, 1, sizeof all);
    normalise(p, l, all, FEW, 2);
    int n = 0;
    while (sum < (double)r.head.top_p)
        sum += p[n++];
    few_check(&r, l, id, n, 2, "top-p 0.8, temperature 2");

    few(&r, l, id);
    r.head.min_p = 0.2f; // exp(-0.15 i) >= 0.2: i <= 10
    few_check(&r, l, id, 11, 1, "min-p 0.2");

    // top-p counts within the best k only
    few(&r, l, id);
    r.head.top_k = 10;
    r.head.top_p = 0.5f;
    for (int i = 0; i < FEW; i++)
        all[i] = i < 10;
    normalise(p, l, all, FEW, 1);
    for (n = 0, sum = 0; sum < 0.5;)
        sum += p[n++];
    few_check(&r, l, id, n, 1, "top-k 10, top-p 0.5");
}

// The ranks whose -ln p is nearest to the entropy, until they have a share p of the probability.
static void typical(const double *p, double share, bool *keep) {
    double entropy = 0, sum = 0;
    for (int i = 0; i < FEW; i++)
        entropy -= p[i] * log(p[i]);
    memset(keep, 0, FEW * sizeof *keep);
    while (sum < share) {
        int next = -1;
        for (int i = 0; i < FEW; i++)
            if (!keep[i] && (next < 0 || fabs(-log(p[i]) - entropy) < fabs(-log(p[next]) - entropy)))
                next = i;
        keep[next] = true;
        sum += p[next];
    }
}

static void chain_check(struct row *r, const float *sorted, const int *id, const bool *keep,
                        double temperature, const char *name) {
    double p[FEW], by_id[FEW];
    normalise(p, sorted, keep, FEW, temperature);
    for (int i = 0; i < FEW; i++)
        by_id[id[i]] = p[i];
    check_distribution(r, by_id, name);
    row_close(r);
}

// Each stage of the chain against its definition in probabilities.
TEST(test_chain) {
    struct row r;
    float l[FEW];
    int id[FEW];
    bool keep[FEW];
    double p[FEW], mean = 0, squares = 0, entropy = 0;
    few(&r, l, id);
    row_close(&r);
    for (int i = 0; i < FEW; i++)
        keep[i] = true;
    normalise(p, l, keep, FEW, 1);

    few(&r, l, id);
    r.head.xtc_probability = 1;
    r.head.xtc_threshold = 0.05f;
    for (int i = 0; i < FEW; i++)
        keep[i] = i + 1 >= FEW || p[i + 1] < 0.05;
    assert_true(!keep[0] && !keep[1]);
    chain_check(&r, l, id, keep, 1, "XTC 0.05");

    few(&r, l, id);
    r.head.typical_p = 0.6f;
    typical(p, 0.6, keep);
    assert_true(!keep[0] && !keep[FEW - 1]);
    chain_check(&r, l, id, keep, 1, "typical 0.6");

    few(&r, l, id);
    r.head.top_n_sigma = 0.7f;
    for (int i = 0; i < FEW; i++) {
        mean += (double)l[i] / FEW;
        squares += (double)l[i] * (double)l[i] / FEW;
    }
    for (int i = 0; i < FEW; i++)
        keep[i] = (double)l[i] >= (double)l[0] - 0.7 * sqrt(squares - mean * mean);
    chain_check(&r, l, id, keep, 1, "top-n-sigma 0.7");

    few(&r, l, id);
    r.head.least_share = 0.03f; // 5.06 bits of surprise
    for (int i = 0; i < FEW; i++)
        keep[i] = p[i] >= 0.03;
    chain_check(&r, l, id, keep, 1, "Mirostat 5.06 bits");

    few(&r, l, id); // of the best ten
    r.head.top_k = 10;
    r.head.dyn_low = 0.2f;
    r.head.dyn_high = 1.8f;
    r.head.dyn_exponent = 2;
    for (int i = 0; i < FEW; i++)
        keep[i] = i < 10;
    normalise(p, l, keep, FEW, 1);
    for (int i = 0; i < 10; i++)
        entropy -= p[i] * log(p[i]);
    chain_check(&r, l, id, keep, 0.2 + 1.6 * pow(entropy / log(10), 2), "dynamic temperature");
}

TEST(test_edits) {
    struct row r;
    row_open(&r, FEW);
    double p[FEW];
    float l[FEW];
    bool keep[FEW];
    for (int i = 0; i < FEW; i++) {
        l[i] = r.logits[i] = sinf((float)i) * 2;
        keep[i] = i % 3 != 0;
    }
    // In order: a penalty, then a bias, on the same token; another is forbidden; a positive and a negative
    // one.
    static const struct logit_entry entries[] = {
        {1, 1.5f, 0.0f}, {1, 1.0f, 0.75f}, {4, 1.5f, 0.0f}, {5, 1.0f, -INFINITY}, {7, 2.0f, -0.5f}};
    memcpy(r.entries, entries, sizeof entries);
    r.head.entry_end = 5;
    l[1] = l[1] / 1.5f + 0.75f; // sin 1 > 0
    l[4] = l[4] * 1.5f;         // sin 4 < 0
    keep[5] = false;
    l[7] = l[7] / 2 - 0.5f;
    r.mask = must_calloc(2, 4);
    for (int i = 0; i < FEW; i++)
        if (i % 3 != 0)
            r.mask[i / 32] |= 1u << (i % 32);
    normalise(p, l, keep, FEW, 1);
    check_distribution(&r, p, "penalties, bias and mask");

    // Greedy sees them, too; log-probabilities are those of the row without them.
    struct full_sample s;
    r.head.temperature = 0;
    r.head.num_logprobs = 3;
    sample(&s, &r, cpu_kernels_find("auto"));
    int best = 1;
    for (int i = 0; i < FEW; i++)
        if (keep[i] && l[i] > l[best])
            best = i;
    assert_int_equal(s.s.id, best);
    double total = 0;
    for (int i = 0; i < FEW; i++)
        total += exp((double)r.logits[i]);
    assert_true(fabs((double)s.s.logprob - ((double)r.logits[best] - log(total))) < 1e-5);
    assert_int_equal(s.top_ids[0], 33); // sin 33 is the largest of 0..49, masked or not

    r.head.entry_end = 0; // a row of which nothing is allowed fails; a finite one with -infinities does not
    memset(r.mask, 0, 8);
    sample(&s, &r, cpu_kernels_find("auto"));
    assert_int_equal(s.s.failed, 1);
    assert_int_equal(s.s.id, 0);
    row_close(&r);
}

TEST(test_ties) {
    struct row r;
    struct full_sample s;
    row_open(&r, 9000);
    for (int i = 0; i < 9000; i++)
        r.logits[i] = i >= 4321 ? 1.0f : -1.0f; // thousands of tokens share the first place
    r.head.temperature = 0;
    r.head.num_logprobs = 5;
    sample(&s, &r, cpu_kernels_find("auto"));
    assert_int_equal(s.s.id, 4321);
    for (int i = 0; i < 5; i++)
        assert_int_equal(s.top_ids[i], 4321 + i);
    r.head.temperature = 1;
    r.head.top_k = 3; // ties at the end of the prefix go to the lower ids
    for (int i = 0; i < 50; i++) {
        r.head.index = i;
        sample(&s, &r, cpu_kernels_find("auto"));
        assert_in_range(s.s.id, 4321, 4323);
    }
    row_close(&r);
}

int main(void) { return run_all_tests(NULL, NULL); }
