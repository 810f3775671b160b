// The load client's numbers: percentiles, metrics of records, arrivals, the search for a rate.
#include "arrival.h"
#include "harness.h"
#include "log.h"
#include "result.h"
#include "search.h"
#include "stats.h"
#include "svg.h"

#include <math.h>

static bool is_close(double a, double b) { return fabs(a - b) <= 1e-9 * (1 + fabs(b)); }
#define assert_close(a, b) assert_true(is_close(a, b))

// The values are numpy's: np.percentile([…], p), default method.
TEST(percentiles_are_exact) {
    double one[] = {5};
    assert_close(stats_percentile(one, 1, 99.9), 5);
    double four[] = {1, 2, 4, 8};
    assert_close(stats_percentile(four, 4, 0), 1);
    assert_close(stats_percentile(four, 4, 50), 3);
    assert_close(stats_percentile(four, 4, 90), 6.8);
    assert_close(stats_percentile(four, 4, 99), 7.88);
    assert_close(stats_percentile(four, 4, 100), 8);
    double v[1001];
    for (int i = 0; i <= 1000; i++)
        v[i] = (double)((i * 7919) % 1001); // 0…1000 in disorder: 7919 and 1001 share no factor
    struct summary s = stats_summary(v, 1001);
    assert_int_equal(s.n, 1001);
    assert_close(s.mean, 500);
    assert_close(s.p50, 500);
    assert_close(s.p90, 900);
    assert_close(s.p95, 950);
    assert_close(s.p99, 990);
    assert_close(s.p999, 999);
    assert_close(s.min, 0);
    assert_close(s.max, 1000);
    assert_close(s.std, sqrt((1001.0 * 1001.0 - 1) / 12)); // of a discrete uniform distribution
    s = stats_summary(NULL, 0);
    assert_int_equal(s.n, 0);
}

enum { MS = 1000000 };

static struct request_record *record(struct run *run, int64_t intended, int64_t ready, int64_t sent,
                                     const int64_t *at, uint32_t n) {
    struct request_record *r = calloc(1, sizeof *r);
    CHECK(r);
    run->records[run->num++] = r;
    r->intended = intended * MS;
    r->ready = ready * MS;
    r->sent = sent * MS;
    r->at = calloc(n + 1, sizeof *r->at);
    CHECK(r->at);
    for (uint32_t i = 0; i < n; i++)
        r->at[i] = at[i] * MS;
    r->num_chunks = r->output = n;
    r->first = n ? r->at[0] : 0;
    r->last = r->end = n ? r->at[n - 1] : r->sent;
    r->input = r->want_input = 10;
    r->has_usage = true;
    return r;
}

static struct run *run_of(size_t cap) {
    struct run *run = calloc(1, sizeof *run);
    CHECK(run);
    run->records = calloc(cap, sizeof *run->records);
    CHECK(run->records);
    return run;
}

TEST(metrics_of_records) {
    struct run *run = run_of(4);
    const int64_t a[] = {110, 120, 150}, b[] = {400, 500};
    record(run, 100, 100, 101, a, 3); // TTFT 10 / 9, ITL 10 30, TPOT 20, E2EL 50 / 49
    // Waited 100, late 10: TTFT 200 / 90, ITL 100, TPOT 100, E2EL 300.
    record(run, 200, 300, 310, b, 2)->cached = 6;
    run->records[1]->has_cached = true;
    record(run, 600, 600, 600, NULL, 0)->error = ERROR_CLOSED;
    record(run, 700, 700, 700, NULL, 0)->error = ERROR_INTERRUPTED; // counts nowhere
    run->duration = (int64_t)2000 * MS;
    struct options o = {.has_goals = true, .goal_ttft = 50, .goal_tpot = -1, .goal_itl = -1, .goal_e2el = -1};
    struct result *x = calloc(1, sizeof *x);
    CHECK(x);
    result_compute(x, run, &o);
    assert_int_equal(x->completed, 2);
    assert_int_equal(x->failed, 1);
    assert_int_equal(x->interrupted, 1);
    assert_int_equal(x->num_errors, 1);
    assert_int_equal(x->errors[0].kind, ERROR_CLOSED);
    assert_close(x->ttft.mean, 105);
    assert_close(x->ttft_sent.mean, 49.5);
    assert_close(x->ttft.max, 200);
    assert_close(x->itl.mean, 140.0 / 3);
    assert_close(x->itl.p50, 30);
    assert_close(x->tpot.mean, 60);
    assert_close(x->e2el.max, 300);
    assert_close(x->e2el_sent.max, 190);
    assert_close(x->queued.max, 100);
    assert_close(x->lag.max, 10);
    assert_close(x->request_throughput, 1);
    assert_close(x->output_throughput, 2.5);
    assert_close(x->total_token_throughput, 12.5);
    assert_int_equal(x->cached_tokens, 6);
    assert_int_equal(x->good, 1); // the wait for a slot counts against the goal
    assert_close(x->goodput, 0.5);
    double tokens = 0, requests = 0, on_wire = 0;
    for (size_t w = 0; w < x->num_windows; w++) {
        tokens += x->windows[w].tokens;
        requests += x->windows[w].requests;
        on_wire += x->windows[w].running * x->window_s;
    }
    assert_close(on_wire, 0.049 + 0.190); // s: each from its sending to its end
    assert_close(tokens, 5);
    assert_close(requests, 2);
    o.goal_ttft = 300;
    o.goal_itl = 50; // each gap counts, not their mean
    result_compute(x, run, &o);
    assert_int_equal(x->good, 1);
    assert_true(result_good(run->records[0], &o));
    free(x);
    run_free(run);
}

// The gaps of arrivals: mean 1/rate, and the coefficient of variation of their law: 1, 1/sqrt(shape), 0.
static void gaps(enum arrival_kind kind, double burstiness, double variation) {
    struct arrival a = {kind, 50, burstiness, rng_seed(1, 1), 0};
    enum { N = 200000 };
    double sum = 0, squares = 0;
    int64_t before = arrival_next(&a);
    assert_int_equal(before, 0);
    for (int i = 0; i < N; i++) {
        int64_t at = arrival_next(&a);
        assert_true(at >= before);
        double gap = (double)(at - before) / 1e9;
        sum += gap;
        squares += gap * gap;
        before = at;
    }
    double mean = sum / N, std = sqrt(fmax(0, squares / N - mean * mean));
    assert_true(fabs(mean * 50 - 1) < 0.02);
    assert_true(fabs(std / mean - variation) < 0.03);
}

TEST(arrivals_follow_their_law) {
    gaps(ARRIVAL_POISSON, 1, 1);
    gaps(ARRIVAL_GAMMA, 1, 1);
    gaps(ARRIVAL_GAMMA, 0.25, 2);
    gaps(ARRIVAL_GAMMA, 4, 0.5);
    gaps(ARRIVAL_CONSTANT, 1, 0);
    // The same seed gives the same arrivals, another seed others.
    struct arrival a = {ARRIVAL_POISSON, 5, 1, rng_seed(3, 1), 0}, b = a,
                   c = {ARRIVAL_POISSON, 5, 1, rng_seed(4, 1), 0};
    arrival_next(&a), arrival_next(&b), arrival_next(&c);
    int64_t second = arrival_next(&a);
    assert_true(second == arrival_next(&b));
    assert_true(second != arrival_next(&c));
}

static double search_for(double capacity, double min, double max, double tolerance, int *runs) {
    struct search s;
    search_begin(&s, min, max, tolerance);
    *runs = 0;
    for (double rate; (rate = search_next(&s)) > 0; (*runs)++) {
        assert_true(rate >= min && rate <= max && *runs < 64);
        search_tell(&s, rate <= capacity);
    }
    return s.low;
}

TEST(the_search_brackets_the_capacity) {
    int runs;
    for (double capacity = 1; capacity < 900; capacity *= 1.37) {
        double found = search_for(capacity, 1, 1024, 0.05, &runs);
        assert_true(found <= capacity && found * 1.05 >= capacity - 1e-9);
        assert_true(runs <= 18);
    }
    assert_close(search_for(0.5, 1, 1024, 0.05, &runs), 0); // even the least is too much
    assert_int_equal(runs, 1);
    assert_close(search_for(1e9, 1, 100, 0.05, &runs), 100); // the bound itself is tried
}

TEST(lag_buckets) {
    struct client_lag l = {0};
    assert_close(client_lag_percentile(&l, 50), 0);
    for (int i = 1; i <= 1000; i++)
        client_lag_add(&l, (int64_t)i * 1000);
    l.reads = 1000;
    assert_true(fabs(client_lag_percentile(&l, 50) / 0.5 - 1) < 0.07); // a bucket is 1/16 octave
    assert_true(fabs(client_lag_percentile(&l, 99) / 0.99 - 1) < 0.07);
    assert_close(client_lag_percentile(&l, 100), 1);
    client_lag_add(&l, -5); // clocks that disagree
    client_lag_add(&l, INT64_MAX);
    assert_int_equal(l.stamped, 1002);
}

TEST(ticks_and_text) {
    assert_close(svg_tick_step(0, 100, 5), 20);
    assert_close(svg_tick_step(0, 1.2, 5), 0.2);
    assert_close(svg_tick_step(0, 7000, 5), 1000);
    struct buf b = {0};
    html_text(&b, "<script>\"a\" & b\n");
    assert_string_equal(buf_cstr(&b), "&lt;script&gt;&quot;a&quot; &amp; b ");
    buf_clear(&b);
    const double x[] = {1, 2, NAN, 4}, y[] = {5, 6, 7, NAN};
    struct plot p = {.title = "t", .x_label = "x", .y_label = "y", .num = 1};
    p.series[0] = (struct plot_series){.line = true, .dots = true, .n = 4, .x = x, .y = y};
    svg_plot(&b, &p);
    assert_null(strstr(buf_cstr(&b), "nan"));
    p.num = 0;
    buf_clear(&b);
    svg_plot(&b, &p);
    assert_non_null(strstr(buf_cstr(&b), "nothing was measured"));
    buf_free(&b);
}

int main(void) { return run_all_tests(NULL, NULL); }
