// Cases that every comm must pass, by any transport: functions that each rank runs, on a thread or in a
// process.
#pragma once

#include "comm.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { NUM = 1003, ROUNDS = 50 };

// Numbers whose sum depends on the order of adding.
static inline float number(int rank, int i, int round) {
    uint32_t x = ((uint32_t)rank * 7919u + (uint32_t)i * 104729u + (uint32_t)round * 31u) * 2654435761u;
    return (float)(int32_t)x * (i % 3 ? 1e-9f : 1e-2f);
}

static inline float tree(int begin, int end, int i, int round) {
    int middle = (begin + end) / 2;
    return end - begin == 1 ? number(begin, i, round)
                            : tree(begin, middle, i, round) + tree(middle, end, i, round);
}

static _Atomic int failures; // asserts of cmocka work on one thread only

static inline void expect(bool ok) {
    if (!ok)
        atomic_fetch_add(&failures, 1);
}

static inline void reduce(struct comm *c, void *arg) {
    (void)arg;
    static _Thread_local float x[NUM];
    for (int round = 0; round < ROUNDS; round++) {
        int n = round % 5 == 4 ? round % 7 : NUM; // fewer elements than ranks, too
        for (int i = 0; i < n; i++)
            x[i] = number(c->rank, i, round);
        expect(c->ops->all_reduce(c, x, (size_t)n) == STATUS_OK);
        for (int i = 0; i < n; i++) {
            float want = tree(0, c->world, i, round);
            expect(memcmp(&want, &x[i], sizeof want) == 0);
        }
    }
}

static inline void collect(struct comm *c, void *arg) {
    (void)arg;
    for (int round = 0; round < ROUNDS; round++) {
        int mine[3] = {c->rank, round, c->rank * round}, all[COMM_MAX_WORLD * 3],
            word = c->rank + 100 * round;
        int root = round % c->world;
        expect(c->ops->all_gather(c, all, mine, sizeof mine) == STATUS_OK);
        for (int r = 0; r < c->world; r++)
            expect(all[3 * r] == r && all[3 * r + 1] == round && all[3 * r + 2] == r * round);
        expect(c->ops->broadcast(c, &word, sizeof word, root) == STATUS_OK);
        expect(word == root + 100 * round);
    }
}

// Every pair exchanges, the lower rank first; sizes differ from pair to pair.
static inline void exchange(struct comm *c, void *arg) {
    (void)arg;
    for (int round = 0; round < ROUNDS; round++)
        for (int s = 1; s < c->world; s++) {
            int other = c->rank ^ s;
            char out[64], in[64];
            size_t bytes = (size_t)(1 + c->rank + other);
            memset(out, 'a' + c->rank + round % 10, sizeof out);
            memset(in, 0, sizeof in);
            if (c->rank < other)
                expect(c->ops->send(c, out, bytes, other) == STATUS_OK);
            expect(c->ops->recv(c, in, bytes, other) == STATUS_OK);
            if (c->rank > other)
                expect(c->ops->send(c, out, bytes, other) == STATUS_OK);
            for (size_t i = 0; i < sizeof in; i++)
                expect(in[i] == (i < bytes ? 'a' + other + round % 10 : 0));
        }
}
