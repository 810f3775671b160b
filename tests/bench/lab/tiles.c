// How many of AMX's tiles a loop should have in use. A core has few more than have names, and shares them with the other
// thread that it runs: where all eight are in use a load waits until the tile that it replaces has been read.
//
// Each loop makes products of bf16 tiles, all from the L1 cache, with as many tiles in use as it says. "alone" is the
// shortest time of many, "mean" the one that counts where the core's other thread is busy; run something on every other
// processor meanwhile.
//
//   gcc -O2 -D_GNU_SOURCE -I kernels/cpu -I include -I base tests/bench/lab/tiles.c -o /tmp/tiles && /tmp/tiles
#include "amx_tiles.h"

#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 1000, PRODUCTS = 4 };
static _Alignas(64) char x[4][1024], w[4][1024];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void eight(void) {
    TILE_LOAD(4, x[0], 64);
    TILE_LOAD(6, w[0], 64);
    TILE_DOT_BF16(0, 4, 6);
    TILE_LOAD(7, w[1], 64);
    TILE_DOT_BF16(1, 4, 7);
    TILE_LOAD(5, x[1], 64);
    TILE_DOT_BF16(2, 5, 6);
    TILE_DOT_BF16(3, 5, 7);
}

// One for what is multiplied on either side, which takes one load more.
static void six(void) {
    TILE_LOAD(4, x[0], 64);
    TILE_LOAD(5, w[0], 64);
    TILE_DOT_BF16(0, 4, 5);
    TILE_LOAD(5, w[1], 64);
    TILE_DOT_BF16(1, 4, 5);
    TILE_LOAD(4, x[1], 64);
    TILE_DOT_BF16(3, 4, 5);
    TILE_LOAD(5, w[0], 64);
    TILE_DOT_BF16(2, 4, 5);
}

static void four(void) {
    for (int i = 0; i < 2; i++) {
        TILE_LOAD(4, x[i], 64);
        TILE_LOAD(5, w[2 * i], 64);
        TILE_DOT_BF16(0, 4, 5);
        TILE_LOAD(5, w[2 * i + 1], 64);
        TILE_DOT_BF16(1, 4, 5);
    }
}

int main(void) {
    static const struct tile_config config = {
        1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
    static const struct {
        const char *name;
        void (*run)(void);
    } loops[] = {{"eight tiles", eight}, {"six", six}, {"four", four}};
    double best[3] = {1, 1, 1}, sum[3] = {0};
    if (syscall(SYS_arch_prctl, 0x1023, 18) != 0) { // leave to use tiles
        fprintf(stderr, "no AMX\n");
        return 1;
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < 3; i++) {
            TILE_CONFIGURE(&config); // all tiles become zero, and none counts as in use
            double t = now();
            for (int n = 0; n < 300; n++)
                loops[i].run();
            t = (now() - t) / 300 / PRODUCTS;
            best[i] = t < best[i] ? t : best[i];
            sum[i] += t / ROUNDS;
        }
    for (int i = 0; i < 3; i++)
        printf("%-12s alone %4.1f, mean %4.1f ns a product\n", loops[i].name, best[i] * 1e9, sum[i] * 1e9);
    return 0;
}
