// Measures the CUDA backend against the limits of the device it runs on, and writes one report: OUT.json and
// OUT.md.
//
//   bench_cuda OUT [--tiny] [--only gemm,attention,sampling|kernels,steps,brief,profile]
//
// Limits first, in the same run: read bandwidth (stream.cu) and the rate of a large bf16 GEMM (cuBLASLt).
// Then the kernels that take most of a step (bench_cuda_kernels.c): replayed from a graph of several launches, over so many
// copies of all that it reads and writes that they are four times the cache of the device, so that neither
// launching nor the cache flatters it. Then whole steps (bench_cuda_steps.c). All values are random, weights
// and cache too: zeros would flatter arithmetic. Times are medians. --tiny: sizes for the emulator, to see that
// it runs; its results mean nothing. Without --only it is all but brief, a short form of steps, and profile, which
// launches some kernels once, for ncu.
//
// Both files are whole after every row, so that a run that is stopped keeps what it had.
#include "bench_cuda.h"
#include "clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct rt *rt;
bool tiny;
static bool once; // launches are for a profiler
double bandwidth, matrix_rate;
FILE *json, *md;
const char *separator = "";

void must_wait(void) {
    struct err err = {0};
    rt_mark(rt, 0);
    if (rt_wait(rt, 0, &err) != STATUS_OK) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
}

// Memory that device() has given since the last release().
static void *kept[65536];
static int num_kept;

void *device(size_t bytes) {
    void *p = num_kept < 65536 ? rt_alloc(rt, bytes) : NULL;
    if (!p) {
        fprintf(stderr, "no device memory for %zu MiB\n", bytes >> 20);
        exit(1);
    }
    return kept[num_kept++] = p;
}

void *filled(size_t bytes, enum stream_kind kind) {
    static uint32_t seed;
    void *p = device((bytes + 15) / 16 * 16);
    stream_fill_random(rt, p, (bytes + 15) / 16 * 16, kind, ++seed);
    return p;
}

void *upload(const void *host, size_t bytes) {
    void *p = device(bytes);
    rt_upload_now(rt, p, host, bytes);
    return p;
}

void release(void) {
    must_wait();
    while (num_kept > 0)
        rt_free(rt, kept[--num_kept]);
}

enum { LAUNCHES = 16, MAX_COPIES = 512 };
static size_t cache; // bytes
int num_copies;

void set_copies(double bytes) {
    double n = 4.0 * (double)cache / bytes + 1;
    num_copies = once ? 1 : tiny ? 2 : n > MAX_COPIES ? MAX_COPIES : (int)n;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, ascending);
    return n > 0 ? (x[(n - 1) / 2] + x[n / 2]) / 2 : INFINITY;
}

enum { ROUNDS = 50, WARM = 3 };

double time_kernel(void (*fn)(void *arg, int i), void *arg) {
    int launches = tiny ? 2 : num_copies > LAUNCHES ? num_copies : LAUNCHES;
    double samples[ROUNDS], spent = 0;
    int n = 0, warm = tiny ? 0 : WARM, most = tiny ? 1 : ROUNDS;
    double begin = clock_now_s();
    fn(arg, 0); // asks for shared memory, which a capture cannot
    must_wait();
    if (once)
        return clock_now_s() - begin;
    rt_capture_begin(rt);
    for (int i = 0; i < launches; i++)
        fn(arg, i % num_copies);
    struct rt_graph *g = rt_capture_end(rt);
    for (int r = 0; g && n < most && (spent < 0.25 || n < 5); r++) { // what takes long repeats less
        double start = clock_now_s();
        rt_graph_launch(rt, g);
        must_wait();
        if (r >= warm)
            samples[n++] = clock_now_s() - start, spent += samples[n - 1];
    }
    rt_graph_free(rt, g);
    return median(samples, n) / launches;
}

void section(const char *name, const char *columns) {
    fprintf(md, "\n## %s\n\n%s\n|---|---|---|---|---|\n", name, columns);
}

void row(const char *kernel, const char *shape, double seconds, double amount, double limit,
         const char *unit) {
    double rate = amount / seconds;
    fprintf(md, "| %s | %s | %.1f | %.1f %s | %.0f %% |\n", kernel, shape, seconds * 1e6,
            rate / (unit[0] == 'T' ? 1e12 : 1e9), unit, 100 * rate / limit);
    fprintf(json,
            "%s\n    {\"kernel\": \"%s\", \"shape\": \"%s\", \"us\": %.3f, \"rate\": %.6g, \"share\": %.4g}",
            separator, kernel, shape, seconds * 1e6, rate, rate / limit);
    row_done();
}

static const char *closing; // what makes the JSON whole after a row

void row_done(void) {
    long at = ftell(json);
    separator = ",";
    fputs(closing, json); // the next row is longer
    fflush(json);
    fseek(json, at, SEEK_SET);
    fflush(md);
}

// ---- limits

struct stream {
    char *p, *out;
    size_t bytes;
};

static void stream_once(void *arg, int i) {
    struct stream *s = arg;
    (void)i;
    stream_read_all(rt, s->p, s->bytes, s->out);
}

double time_library(const struct rt_gemm *g) {
    double samples[ROUNDS];
    int n = 0, launches = tiny ? 2 : num_copies > LAUNCHES ? num_copies : LAUNCHES, most = tiny ? 1 : 20;
    if (!rt_matmul(rt, &g[0]))
        return INFINITY;
    must_wait();
    for (double spent = 0; n < most && (spent < 0.25 || n < 5); n++) {
        double start = clock_now_s();
        for (int k = 0; k < launches; k++)
            rt_matmul(rt, &g[k % num_copies]);
        must_wait();
        samples[n] = (clock_now_s() - start) / launches;
        spent += samples[n] * launches;
    }
    return median(samples, n);
}

static void measure_limits(void) {
    struct stream s = {.bytes = tiny ? 1 << 16 : (size_t)4 << 30};
    num_copies = 1; // of what is larger than any cache
    s.p = filled(s.bytes, STREAM_BITS);
    s.out = device(stream_out_bytes());
    bandwidth = (double)s.bytes / time_kernel(stream_once, &s);
    release();
    int n = tiny ? 16 : 8192;
    struct rt_gemm g = {.m = n, .n = n, .k = n, .ldx = n, .ldw = n, .ldy = n};
    size_t all = (size_t)n * (size_t)n;
    g.x = filled(all * 2, STREAM_BF16);
    g.w = filled(all * 2, STREAM_BF16);
    g.y = device(all * 4);
    matrix_rate = 2.0 * n * n * n / time_library(&g);
    release();
    fprintf(md,
            "\nRead bandwidth: %.0f GB/s (%zu MiB). bf16 products of cuBLASLt (%d cubed, random numbers): "
            "%.1f TFLOP/s.\n",
            bandwidth / 1e9, s.bytes >> 20, n, matrix_rate / 1e12);
    fprintf(json, "  \"bandwidth\": %.6g,\n  \"matrix_rate\": %.6g,\n", bandwidth, matrix_rate);
}

static bool wanted(const char *only, const char *part) {
    size_t n = strlen(part);
    for (const char *p = only; (p = strstr(p, part)); p += n)
        if ((p == only || p[-1] == ',') && (p[n] == 0 || p[n] == ','))
            return true;
    return false;
}

int main(int argc, char **argv) {
    struct err err = {0};
    struct rt_info info;
    char path[4096], day[32];
    const char *only = "gemm,attention,sampling,steps";
    const char *out = NULL;
    bool understood = true;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--tiny") == 0)
            tiny = true;
        else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
            only = argv[++i];
        else if (argv[i][0] != '-' && !out)
            out = argv[i];
        else
            understood = false;
    }
    if (!out || !understood || !(rt = rt_open(0, &err))) {
        fprintf(stderr, "%s\n", err.code ? err.msg : "usage: bench_cuda OUT [--tiny] [--only PARTS]");
        return 2;
    }
    once = wanted(only, "profile");
    bool kernels = wanted(only, "kernels"); // the first three
    snprintf(path, sizeof path, "%s.json", out);
    json = fopen(path, "w");
    snprintf(path, sizeof path, "%s.md", out);
    md = fopen(path, "w");
    if (!json || !md) {
        fprintf(stderr, "cannot write %s\n", path);
        return 1;
    }
    time_t t = time(NULL);
    strftime(day, sizeof day, "%Y-%m-%d", gmtime(&t));
    rt_describe(rt, &info);
    cache = info.cache;
    fprintf(md, "## Limits, measured with: %s\n\n", only);
    fprintf(md, "%s, compute capability %d.%d, %d SMs, %zu MiB of memory, %s.\n", info.name, info.major,
            info.minor, info.num_sms, info.total >> 20, day);
    fprintf(json,
            "{\n  \"device\": \"%s\",\n  \"date\": \"%s\",\n  \"emulated\": %s,\n  \"capability\": "
            "\"%d.%d\",\n",
            info.name, day, info.emulated ? "true" : "false", info.major, info.minor);
    bandwidth = matrix_rate = 1;
    if (!once)
        measure_limits();
    closing = "\n  ],\n  \"steps\": []\n}\n";
    fprintf(json, "  \"kernels\": [");
    if (kernels || wanted(only, "gemm"))
        bench_gemms();
    if (kernels || wanted(only, "attention"))
        bench_attention();
    if (kernels || wanted(only, "sampling"))
        bench_sampling();
    if (once)
        bench_profile();
    closing = "\n  ]\n}\n";
    fprintf(json, "\n  ],\n  \"steps\": [");
    separator = "";
    if (wanted(only, "steps"))
        bench_steps();
    if (wanted(only, "brief"))
        bench_brief();
    fprintf(json, "%s", closing);
    must_wait();
    rt_close(rt);
    printf("done: %s\n", only);
    return fclose(json) != 0 || fclose(md) != 0;
}
