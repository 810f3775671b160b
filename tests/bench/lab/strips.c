// An experiment, not built with the rest: how fast threads read memory in order, and how fast two strips side
// by side, a piece of one, then a piece of the other, by the length of a strip. Medians of 10 rounds in
// turns, GB/s of all threads together. Why tiles of few tokens take one strip after the other:
// kernels/README.md. x86 with AVX-512.
//
//   gcc -D_GNU_SOURCE -O3 -march=native -pthread -Wall -Wextra tests/bench/lab/strips.c -o strips &&
//   ./strips [threads]
#include <immintrin.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { KB = 1024, MB = 1024 * KB, LINE = 64, PIECE = 256, AHEAD = 4 * KB, ROUNDS = 10, MAX_THREADS = 64 };

static const size_t pool_bytes = 512 * (size_t)MB;
static const int strip_kb[] = {0, 8, 16, 32, 64, 128}; // 0: in order
enum { NUM_STRIPS = sizeof strip_kb / sizeof *strip_kb };

struct job {
    const char *data;
    size_t bytes, strip;
    int sum; // so that nothing is left out
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// Prefetches AHEAD in a strip, and past its end in the same strip of the next pair
static __m512i read_piece(const char *at, size_t left, size_t strip, __m512i sum) {
    const char *ahead = at + AHEAD + (left <= AHEAD ? strip : 0);
    for (int i = 0; i < PIECE; i += LINE) {
        __builtin_prefetch(ahead + i);
        sum = _mm512_add_epi32(sum, _mm512_load_si512(at + i));
    }
    return sum;
}

static void *read_all(void *ctx) {
    struct job *j = ctx;
    __m512i sum = _mm512_setzero_si512();
    if (j->strip == 0)
        for (size_t i = 0; i < j->bytes; i += PIECE)
            sum = read_piece(j->data + i, j->bytes, 0, sum);
    else
        for (size_t pair = 0; pair < j->bytes; pair += 2 * j->strip)
            for (size_t i = 0; i < j->strip; i += PIECE)
                for (size_t second = 0; second < 2; second++)
                    sum = read_piece(j->data + pair + second * j->strip + i, j->strip - i, j->strip, sum);
    j->sum = _mm512_reduce_add_epi32(sum);
    return NULL;
}

// GB/s of one pass of all threads
static double pass(const char *pool, size_t strip, int threads) {
    pthread_t thread[MAX_THREADS];
    struct job job[MAX_THREADS];
    size_t each = pool_bytes / (size_t)threads / MB * MB;
    double start = now();
    for (int i = 0; i < threads; i++) {
        job[i] = (struct job){pool + (size_t)i * each, each, strip, 0};
        pthread_create(&thread[i], NULL, read_all, &job[i]);
    }
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    return (double)(each * (size_t)threads) / (now() - start) * 1e-9;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    static double rate[NUM_STRIPS][ROUNDS];
    char *pool = aligned_alloc(2 * MB, pool_bytes + 2 * MB);
    if (!pool || threads < 1 || threads > MAX_THREADS)
        return 2;
    madvise(pool, pool_bytes, MADV_HUGEPAGE);
    memset(pool, 1, pool_bytes);
    for (int r = 0; r < ROUNDS; r++)
        for (int s = 0; s < NUM_STRIPS; s++)
            rate[s][r] = pass(pool, (size_t)strip_kb[s] * KB, threads);
    printf("%d threads, GB/s\n", threads);
    for (int s = 0; s < NUM_STRIPS; s++) {
        qsort(rate[s], ROUNDS, sizeof(double), compare);
        if (strip_kb[s])
            printf("  two strips of %3d KB  %5.1f\n", strip_kb[s], rate[s][ROUNDS / 2]);
        else
            printf("  in order              %5.1f\n", rate[s][ROUNDS / 2]);
    }
    free(pool);
    return 0;
}
