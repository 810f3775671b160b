// An experiment, not built with the rest: how fast threads read 128 MB in scattered fragments, by the size of
// a fragment and by how far ahead they are asked for. Medians of 10 rounds in turns, GB/s of all threads
// together. Why decode reads the heads of a block together: kernels/README.md. x86 with AVX-512.
//
//   gcc -D_GNU_SOURCE -O3 -march=native -pthread -Wall -Wextra tests/bench/lab/fragments.c -o fragments &&
//   ./fragments [threads]
#include <immintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { MB = 1 << 20, LINE = 64, ROUNDS = 10, MAX_THREADS = 64 };

static const size_t pool_bytes = 128 * (size_t)MB;
static const int fragment_kb[] = {2, 4, 8, 16, 32, 64, 2048}, ahead_kb[] = {0, 2, 4, 8, 16, 32};
enum {
    NUM_FRAGMENTS = sizeof fragment_kb / sizeof *fragment_kb,
    NUM_AHEAD = sizeof ahead_kb / sizeof *ahead_kb
};

struct job {
    const char *pool;
    const uint32_t *order; // of this thread's fragments
    size_t num, lines;     // fragments; lines of one
    size_t ahead;          // lines
    int sum;               // so that nothing is left out
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *read_all(void *ctx) {
    struct job *j = ctx;
    __m512i sum = _mm512_setzero_si512();
    size_t next = j->ahead / j->lines, next_line = j->ahead % j->lines;
    for (size_t i = 0; i < j->num; i++) {
        const char *at = j->pool + j->order[i] * j->lines * LINE;
        for (size_t l = 0; l < j->lines; l++) {
            if (j->ahead > 0 && next < j->num) {
                __builtin_prefetch(j->pool + (j->order[next] * j->lines + next_line) * LINE);
                if (++next_line == j->lines)
                    next_line = 0, next++;
            }
            sum = _mm512_add_epi32(sum, _mm512_loadu_si512(at + l * LINE));
        }
    }
    j->sum = _mm512_reduce_add_epi32(sum);
    return NULL;
}

// GB/s of one pass of all threads
static double pass(const char *pool, const uint32_t *order, size_t fragment, size_t ahead, int threads) {
    pthread_t thread[MAX_THREADS];
    struct job job[MAX_THREADS];
    size_t each = pool_bytes / fragment / (size_t)threads;
    double start = now();
    for (int i = 0; i < threads; i++) {
        job[i] = (struct job){pool, order + (size_t)i * each, each, fragment / LINE, ahead / LINE, 0};
        pthread_create(&thread[i], NULL, read_all, &job[i]);
    }
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    return (double)(each * (size_t)threads * fragment) / (now() - start) * 1e-9;
}

static void shuffle(uint32_t *order, size_t n) {
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    for (size_t i = n - 1; i > 0; i--) {
        size_t j = (size_t)rand() % (i + 1);
        uint32_t other = order[i];
        order[i] = order[j];
        order[j] = other;
    }
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    static double rate[NUM_FRAGMENTS][NUM_AHEAD][ROUNDS];
    char *pool = aligned_alloc(2 * MB, pool_bytes);
    uint32_t *order = malloc(pool_bytes / 1024 * sizeof *order);
    if (!pool || !order || threads < 1 || threads > MAX_THREADS)
        return 2;
    madvise(pool, pool_bytes, MADV_HUGEPAGE);
    memset(pool, 1, pool_bytes);
    for (int r = 0; r < ROUNDS; r++)
        for (int f = 0; f < NUM_FRAGMENTS; f++) {
            size_t fragment = (size_t)fragment_kb[f] * 1024;
            shuffle(order, pool_bytes / fragment);
            for (int a = 0; a < NUM_AHEAD; a++)
                rate[f][a][r] = pass(pool, order, fragment, (size_t)ahead_kb[a] * 1024, threads);
        }
    printf("%d threads, GB/s\nfragment, KB | ahead, KB:", threads);
    for (int a = 0; a < NUM_AHEAD; a++)
        printf(" %5d", ahead_kb[a]);
    for (int f = 0; f < NUM_FRAGMENTS; f++) {
        printf("\n%12d |          ", fragment_kb[f]);
        for (int a = 0; a < NUM_AHEAD; a++) {
            qsort(rate[f][a], ROUNDS, sizeof(double), compare);
            printf(" %5.1f", rate[f][a][ROUNDS / 2]);
        }
    }
    putchar('\n');
    free(pool);
    free(order);
    return 0;
}
