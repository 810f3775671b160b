// Reads values of results and makes the rows of a comparison, for the table (compare.c) and the page (html.c). One
// thread.
#pragma once

#include "buf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum { MAX_RUNS = 8 };

// A run is the object that report_json() or `vllm bench serve` writes.
double run_number(const json_t *run, const char *key);    // NAN: it has no such number
const char *run_text(const json_t *run, const char *key); // "": it has no such text; owned by run
// The label of runs[i], or else its model, numbered where there are several.
void run_name(char *out, size_t size, const json_t *const *runs, size_t n, size_t i);
// Three significant digits and never an exponent; "–" where v is not finite.
void run_figure(struct buf *b, double v);

struct run_latency {
    const char *metric, *name; // keys are POINT_METRIC_ms
};
enum { NUM_LATENCIES = 8, NUM_POINTS = 6 };
extern const struct run_latency run_latencies[NUM_LATENCIES];
extern const char *const run_points[NUM_POINTS]; // mean, median, …, max
double run_point(const json_t *run, const char *metric, const char *which);

typedef void compare_group_fn(void *to, const char *name);
typedef void compare_row_fn(void *to, const char *name, const char *key, double scale);
// Calls group() and row() for what at least one of the runs has, in order. Values are to be multiplied by scale.
void compare_rows(const json_t *const *runs, size_t n, compare_group_fn *group, compare_row_fn *row,
                  void *to);
