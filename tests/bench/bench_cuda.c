// Measures the CUDA backend against the limits of the device it runs on, and writes one report: OUT.json and
// OUT.md.
//
//   bench_cuda OUT [--tiny] [--only kernels|steps]
//
// Limits first, in the same run: read bandwidth (stream.cu) and the rate of a large bf16 GEMM (cuBLASLt).
// Then every kernel of a step (bench_cuda_kernels.c): replayed from a graph of several launches, over so many
// copies of all that it reads and writes that they are four times the cache of the device, so that neither
// launching nor the cache flatters it. Then whole steps (bench_cuda_steps.c). All values are random, weights
// and cache too: zeros would flatter arithmetic. --tiny: sizes for the emulator, to see that it runs; its
// results mean nothing.
#include "bench_cuda.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct rt *rt;
bool tiny;
double bandwidth, matrix_rate;
FILE *json, *md;
const char *separator = "";

double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void must_wait(void) {
    struct err err = {0};
    rt_mark(rt, 0);
    if (rt_wait(rt, 0, &err) != STATUS_OK) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
}

// What device() gave since the last release().
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
    num_copies = tiny ? 2 : n > MAX_COPIES ? MAX_COPIES : (int)n;
}

double time_kernel(void (*fn)(void *arg, int i), void *arg) {
    int launches = tiny ? 2 : num_copies > LAUNCHES ? num_copies : LAUNCHES, rounds = tiny ? 1 : 20;
    fn(arg, 0); // asks for shared memory, which a capture cannot
    must_wait();
    rt_capture_begin(rt);
    for (int i = 0; i < launches; i++)
        fn(arg, i % num_copies);
    struct rt_graph *g = rt_capture_end(rt);
    double best = INFINITY;
    for (int r = 0; g && r < rounds + 2; r++) { // two to warm up
        double start = now();
        rt_graph_launch(rt, g);
        must_wait();
        if (r >= 2 || tiny)
            best = fmin(best, now() - start);
    }
    rt_graph_free(rt, g);
    return best / launches;
}

void section(const char *name, const char *columns, const char *rule) {
    fprintf(md, "\n## %s\n\n%s\n%s\n", name, columns, rule);
}

void row(const char *kernel, const char *shape, double seconds, double amount, double limit,
         const char *unit) {
    double rate = amount / seconds;
    fprintf(md, "| %s | %s | %.1f | %.1f %s | %.0f %% |\n", kernel, shape, seconds * 1e6,
            rate / (unit[0] == 'T' ? 1e12 : 1e9), unit, 100 * rate / limit);
    fprintf(json,
            "%s\n    {\"kernel\": \"%s\", \"shape\": \"%s\", \"us\": %.3f, \"rate\": %.6g, \"share\": %.4g}",
            separator, kernel, shape, seconds * 1e6, rate, rate / limit);
    separator = ",";
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
    double best = INFINITY;
    if (!rt_matmul(rt, g))
        return best;
    must_wait();
    for (int i = 0; i < 5; i++) {
        double start = now();
        for (int k = 0; k < 4; k++)
            rt_matmul(rt, g);
        must_wait();
        best = fmin(best, (now() - start) / 4);
    }
    return best;
}

static void measure_limits(void) {
    struct stream s = {.bytes = tiny ? 1 << 16 : (size_t)4 << 30};
    num_copies = 1;
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

int main(int argc, char **argv) {
    struct err err = {0};
    struct rt_info info;
    char path[4096], day[32];
    const char *only = "";
    if (argc < 2 || !(rt = rt_open(0, &err))) {
        fprintf(stderr, "%s\n", argc < 2 ? "usage: bench_cuda OUT [--tiny] [--only kernels|steps]" : err.msg);
        return 2;
    }
    for (int i = 2; i < argc; i++) {
        tiny |= strcmp(argv[i], "--tiny") == 0;
        if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
            only = argv[++i];
    }
    snprintf(path, sizeof path, "%s.json", argv[1]);
    json = fopen(path, "w");
    snprintf(path, sizeof path, "%s.md", argv[1]);
    md = fopen(path, "w");
    if (!json || !md) {
        fprintf(stderr, "cannot write %s\n", path);
        return 1;
    }
    time_t t = time(NULL);
    strftime(day, sizeof day, "%Y-%m-%d", gmtime(&t));
    rt_describe(rt, &info);
    cache = info.cache;
    fprintf(md, "## Limits%s%s\n\n", only[0] ? ", measured with the " : "", only);
    fprintf(md, "%s, compute capability %d.%d, %d processors, %zu MiB of memory, %s.\n", info.name,
            info.major, info.minor, info.num_sms, info.total >> 20, day);
    fprintf(json,
            "{\n  \"device\": \"%s\",\n  \"date\": \"%s\",\n  \"emulated\": %s,\n  \"capability\": "
            "\"%d.%d\",\n",
            info.name, day, info.emulated ? "true" : "false", info.major, info.minor);
    measure_limits();
    fprintf(json, "  \"kernels\": [");
    if (strcmp(only, "steps") != 0)
        bench_kernels();
    fprintf(json, "\n  ],\n  \"steps\": [");
    separator = "";
    if (strcmp(only, "kernels") != 0)
        bench_steps();
    fprintf(json, "\n  ]\n}\n");
    must_wait();
    rt_close(rt);
    return fclose(json) != 0 || fclose(md) != 0;
}
