#include "stats.h"

#include "log.h"

#include <math.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double stats_percentile(const double *sorted, size_t n, double p) {
    double rank = p / 100.0 * (double)(n - 1);
    size_t below = (size_t)rank;
    if (below + 1 >= n)
        return sorted[n - 1];
    double part = rank - (double)below;
    return sorted[below] + part * (sorted[below + 1] - sorted[below]);
}

struct summary stats_summary(double *values, size_t n) {
    struct summary s = {.n = n};
    if (n == 0)
        return s;
    qsort(values, n, sizeof *values, by_value);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++)
        sum += values[i];
    s.mean = sum / (double)n;
    for (size_t i = 0; i < n; i++)
        squares += (values[i] - s.mean) * (values[i] - s.mean);
    s.std = sqrt(squares / (double)n);
    s.min = values[0];
    s.max = values[n - 1];
    s.p50 = stats_percentile(values, n, 50);
    s.p90 = stats_percentile(values, n, 90);
    s.p95 = stats_percentile(values, n, 95);
    s.p99 = stats_percentile(values, n, 99);
    s.p999 = stats_percentile(values, n, 99.9);
    return s;
}

void series_add(struct series *s, double v) {
    if (s->n == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 256;
        s->v = realloc(s->v, s->cap * sizeof *s->v);
        CHECK(s->v);
    }
    s->v[s->n++] = v;
}

void series_free(struct series *s) {
    free(s->v);
    *s = (struct series){0};
}
