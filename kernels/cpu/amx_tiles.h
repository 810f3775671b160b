// The eight tile registers of AMX and what it does with them: as instructions or, with AMX_EMULATED, in plain C, for
// tests on CPUs without. Tiles are named by number, which is a part of the instruction.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NUM_TILES = 8, TILE_ROWS = 16, TILE_BYTES = 64 }; // bytes: of a row

// The operand of ldtilecfg.
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct tile_config) == 64, "as the CPU has it");

#ifndef AMX_EMULATED

// The operand is all of the 64 bytes: gcc 12's _tile_loadconfig() names eight, and gcc drops stores to the others.
// Likewise its _tile_loadd() does not say that it reads memory, hence no intrinsics here.
#define TILE_CONFIGURE(config) __asm__ volatile("ldtilecfg %0" : : "m"(*(config)) : "memory")
#define TILE_CONFIGURED(config) __asm__ volatile("sttilecfg %0" : "=m"(*(config)))
#define TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #t : :)
#define TILE_LOAD(t, from, stride)                                                                           \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"(from), "r"((size_t)(stride)) : "memory")
#define TILE_STORE(t, to, stride)                                                                            \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"(to), "r"((size_t)(stride)) : "memory")
// c += a * b, pairs of bf16
#define TILE_DOT_BF16(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)

#else

// Each instruction as in the Intel 64 and IA-32 Software Developer's Manual, volume 2; where the CPU would raise an
// exception this stops.
#include "half.h"
#include "log.h"

#include <math.h>
#include <string.h>

static _Thread_local struct {
    struct tile_config config;
    uint8_t row[NUM_TILES][TILE_ROWS][TILE_BYTES];
} emulated;

static inline int tile_rows(int t) { return emulated.config.rows[t]; }
static inline int tile_row_bytes(int t) { return emulated.config.row_bytes[t]; }

static inline void tile_configure(const struct tile_config *c) {
    CHECK(c->palette == 1 && c->start_row == 0);
    for (int i = 0; i < 16; i++) {
        CHECK(i >= 14 || c->reserved[i] == 0);
        CHECK(c->rows[i] <= (i < NUM_TILES ? TILE_ROWS : 0) && c->row_bytes[i] <= TILE_BYTES);
        CHECK((c->rows[i] == 0) == (c->row_bytes[i] == 0));
    }
    memset(&emulated, 0, sizeof emulated);
    emulated.config = *c;
}

static inline void tile_zero(int t) {
    CHECK(tile_rows(t) > 0);
    memset(emulated.row[t], 0, sizeof emulated.row[t]);
}

static inline void tile_load(int t, const void *from, size_t stride) {
    tile_zero(t);
    for (int i = 0; i < tile_rows(t); i++)
        memcpy(emulated.row[t][i], (const char *)from + (size_t)i * stride, (size_t)tile_row_bytes(t));
}

static inline void tile_store(int t, void *to, size_t stride) {
    CHECK(tile_rows(t) > 0);
    for (int i = 0; i < tile_rows(t); i++)
        memcpy((char *)to + (size_t)i * stride, emulated.row[t][i], (size_t)tile_row_bytes(t));
}

static inline void tile_check_dot(int c, int a, int b) {
    CHECK(tile_rows(c) == tile_rows(a) && tile_row_bytes(c) == tile_row_bytes(b) && tile_rows(c) > 0);
    CHECK(tile_row_bytes(a) == 4 * tile_rows(b) && c != a && c != b && a != b);
}

static inline float half_of_pair(const uint8_t *p, int i) {
    uint16_t h;
    memcpy(&h, p + 2 * i, sizeof h);
    return bf16_to_float(h);
}

// Subnormals count as zero while kernels run (README rule 5), as they do for the instruction.
static inline void tile_dot_bf16(int c, int a, int b) {
    tile_check_dot(c, a, b);
    for (int m = 0; m < tile_rows(c); m++)
        for (int n = 0; n < tile_row_bytes(c) / 4; n++) {
            float even = 0, odd = 0, old;
            for (int k = 0; k < tile_rows(b); k++) {
                const uint8_t *x = emulated.row[a][m] + 4 * k, *w = emulated.row[b][k] + 4 * n;
                even = fmaf(half_of_pair(x, 0), half_of_pair(w, 0), even);
                odd = fmaf(half_of_pair(x, 1), half_of_pair(w, 1), odd);
            }
            memcpy(&old, emulated.row[c][m] + 4 * n, sizeof old);
            old += even + odd;
            memcpy(emulated.row[c][m] + 4 * n, &old, sizeof old);
        }
}

#define TILE_CONFIGURE(config) tile_configure(config)
#define TILE_ZERO(t) tile_zero(t)
#define TILE_LOAD(t, from, stride) tile_load(t, from, stride)
#define TILE_STORE(t, to, stride) tile_store(t, to, stride)
#define TILE_DOT_BF16(c, a, b) tile_dot_bf16(c, a, b)

#endif
