// An experiment, not built with the rest: how fast threads read 128 MB in scattered fragments, by the size of
// a fragment and how far ahead prefetches run, into the first or second level (T0, T1). Median and best of 10
// rounds in turns. Why decode reads the heads of a block together: docs/performance.md. x86 with AVX-512.
//
//   gcc -O3 -march=native -pthread tests/bench/lab/fragments.c -o fragments && ./fragments [threads]
#include <stdint.h>
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
enum { MB = 1 << 20 };
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}
static char *pool;
static size_t bytes = 128 * MB;
static int T = 2;
static uint32_t *order;
static size_t frag;
static int dist, hint;
static pthread_barrier_t bar;
static volatile int sink;
static void *work(void *x) {
    size_t me = (size_t)x;
    __m512i a = _mm512_setzero_si512();
    for (;;) {
        pthread_barrier_wait(&bar);
        size_t n = bytes / frag / T, lines = frag / 64, total = n * lines, d = dist / 64;
        const uint32_t *o = order + me * n;
        size_t pi = d / lines, pl = d % lines;
        for (size_t i = 0; i < n; i++) {
            const char *p = pool + (size_t)o[i] * frag;
            for (size_t l = 0; l < lines; l++) {
                if (d) {
                    const char *q = pool + (size_t)o[pi < n ? pi : n - 1] * frag + pl * 64;
                    if (hint)
                        _mm_prefetch(q, _MM_HINT_T1);
                    else
                        _mm_prefetch(q, _MM_HINT_T0);
                    if (++pl == lines)
                        pl = 0, pi++;
                }
                a = _mm512_add_epi32(a, _mm512_loadu_si512(p + l * 64));
            }
        }
        (void)total;
        sink = _mm512_reduce_add_epi32(a);
        pthread_barrier_wait(&bar);
    }
}
int main(int argc, char **argv) {
    if (argc > 1)
        T = atoi(argv[1]);
    pool = aligned_alloc(2 * MB, bytes);
    madvise(pool, bytes, MADV_HUGEPAGE);
    memset(pool, 1, bytes);
    order = malloc(bytes / 1024 * 4);
    pthread_barrier_init(&bar, 0, T + 1);
    pthread_t t;
    for (size_t i = 0; i < (size_t)T; i++)
        pthread_create(&t, 0, work, (void *)i);
    int fs[] = {2, 4, 8, 16, 32, 64, 2048}, ds[] = {0, 2, 4, 8, 16, 32, 64, 128};
    static double all[7][8][2][16];
    int R = 10;
    for (int r = 0; r < R; r++)
        for (int f = 0; f < 7; f++) {
            frag = (size_t)fs[f] * 1024;
            size_t n = bytes / frag;
            for (size_t i = 0; i < n; i++)
                order[i] = i;
            for (size_t i = n - 1; i > 0; i--) {
                size_t j = rand() % (i + 1);
                uint32_t t = order[i];
                order[i] = order[j];
                order[j] = t;
            }
            for (int d = 0; d < 8; d++)
                for (int h = 0; h < 2; h++) {
                    if (!d && h)
                        continue;
                    dist = ds[d] * 1024;
                    hint = h;
                    double s = now();
                    pthread_barrier_wait(&bar);
                    pthread_barrier_wait(&bar);
                    all[f][d][h][r] = bytes / (now() - s) * 1e-9;
                }
        }
    printf("%d threads\nfrag KB: ahead KB: T0 T1 median (best)\n", T);
    for (int f = 0; f < 7; f++) {
        printf("%4d", fs[f]);
        for (int d = 0; d < 8; d++) {
            printf(" | %d:", ds[d]);
            for (int h = 0; h < 2; h++) {
                if (!d && h)
                    continue;
                double *v = all[f][d][h];
                for (int x = 0; x < R; x++)
                    for (int y = x + 1; y < R; y++)
                        if (v[y] > v[x]) {
                            double q = v[x];
                            v[x] = v[y];
                            v[y] = q;
                        }
                printf(" %4.1f(%4.1f)", v[R / 2], v[0]);
            }
        }
        printf("\n");
    }
    fflush(stdout);
    _exit(0);
}
