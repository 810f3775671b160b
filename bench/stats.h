// Exact statistics of recorded values. Pure.
#pragma once

#include <stddef.h>

struct summary {
    size_t n;
    double mean, std, min, max;
    double p50, p90, p95, p99, p999;
};

// The values, in any order; sorts them in place. n == 0: all zero.
struct summary stats_summary(double *values, size_t n);
// The p-th percentile (0..100) of sorted values: linear between the closest ranks, as numpy's default and
// thus vLLM's. n > 0.
double stats_percentile(const double *sorted, size_t n, double p);

// A growing array of doubles.
struct series {
    double *v;
    size_t n, cap;
};
void series_add(struct series *s, double v); // ends the program where there is no memory
void series_free(struct series *s);
