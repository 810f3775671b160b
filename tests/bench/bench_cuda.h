// Shared by bench_cuda's files: the device, the limits measured first, the report. bench_cuda.c has them.
#pragma once

#include "ops.h"
#include "stream.h"

#include <stdio.h>

extern struct rt *rt;
extern bool tiny;                     // sizes for the emulator
extern double bandwidth, matrix_rate; // bytes/s, flop/s: what the device can
extern FILE *json, *md;
extern const char *separator; // between objects of a JSON list
extern int num_copies;        // of what the kernel at hand works on

// Waits for all that was queued; ends the program with what failed.
void must_wait(void);
// Zeroed device memory, until the next release(); there is enough, or the program ends.
void *device(size_t bytes);
void *filled(size_t bytes, enum stream_kind kind); // random
void *upload(const void *host, size_t bytes);      // a copy
void release(void);                                // frees all three

// Sets num_copies for a kernel that moves `bytes`: all copies are four times the device's cache.
void set_copies(double bytes);
double median(double *x, int n); // which it sorts
// Seconds of one launch: the median of replays of a graph in which each copy is launched, and 16 at least.
// fn launches over copy i.
double time_kernel(void (*fn)(void *arg, int i), void *arg);
// The same of one of num_copies GEMMs of cuBLASLt, which are in no graph: as the backend uses it. Infinity: it has
// none.
double time_library(const struct rt_gemm *g);

void section(const char *name, const char *columns); // five of them
// One row of a table, and one object of "kernels": amount per second as a share of limit, in "GB/s" or
// "TFLOP/s".
void row(const char *kernel, const char *shape, double seconds, double amount, double limit,
         const char *unit);

void row_done(void); // after a row of any table

void bench_gemms(void); // bench_cuda_kernels.c
void bench_attention(void);
void bench_sampling(void);
void bench_profile(void);
void bench_steps(void); // bench_cuda_steps.c
void bench_brief(void); // few of them, of 8B, in a minute
