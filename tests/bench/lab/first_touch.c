// An experiment, not built with the rest: how long the first write into 2 MB of memory takes, and into one 2
// MB page of each of 16 layers, as a decode step does where layers lie apart. Why a block of the KV cache has
// its layers beside each other: kernels/README.md. Linux with transparent huge pages.
//
//   gcc -D_GNU_SOURCE -O2 -Wall -Wextra tests/bench/lab/first_touch.c -o first_touch && ./first_touch
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { PAGES = 1024, LAYERS = 16 };

static const size_t page = (size_t)2 << 20;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print(const char *what, double *ms, int n) {
    qsort(ms, (size_t)n, sizeof *ms, ascending);
    printf("%s: median %.2f ms, 99 of 100 within %.2f, longest %.2f\n", what, ms[n / 2], ms[n * 99 / 100],
           ms[n - 1]);
}

int main(void) {
    char *p = mmap(NULL, (PAGES + 1) * page, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    p += (page - (uintptr_t)p % page) % page;
    madvise(p, PAGES * page, MADV_HUGEPAGE);
    static double one[PAGES], step[PAGES / LAYERS];
    for (int i = 0; i < PAGES; i++) {
        double start = now();
        *(volatile char *)(p + (size_t)i * page) = 1;
        one[i] = now() - start;
        step[i / LAYERS] += one[i];
    }
    print("one page", one, PAGES);
    print("a page of each of 16 layers", step, PAGES / LAYERS);
}
