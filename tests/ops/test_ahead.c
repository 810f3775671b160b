// What attention of the CPU backend asks memory for while it works (attention.c): always something that is
// there, and in decode every tile before it is read.
#include "harness.h"

#include "device.h"
#include "fixture.h"
#include "log.h"

enum { MAX_TILES = 4096 };

static struct {
    const struct cpu_kernels *kernels; // the real ones
    const char *kv;
    size_t kv_bytes, tile_bytes;
    const void *asked[MAX_TILES];
    int num_asked, num_unasked, num_reads;
    bool decode;
} watch;

static bool was_asked(const void *tile) {
    for (int i = 0; i < watch.num_asked; i++)
        if (watch.asked[i] == tile)
            return true;
    return false;
}

static void note(const void *tile) {
    if (was_asked(tile))
        return;
    CHECK(watch.num_asked < MAX_TILES);
    watch.asked[watch.num_asked++] = tile;
}

// Whether a piece is a tile of the cache, or one that the step works on (which may be a copy)
static bool is_there(const struct attn_chunk *c, int step, const char *piece) {
    for (int i = step * STEP_TILES; i < (step + 1) * STEP_TILES; i++)
        if (piece && (piece == c->keys[i] || piece == c->values[i]))
            return true;
    return piece >= watch.kv && piece + watch.tile_bytes <= watch.kv + watch.kv_bytes;
}

static void attend(struct attn_chunk *c) {
    for (int step = c->step0; step < c->step1; step++) {
        bool any[STEP_TILES] = {0}, works = false;
        for (int i = 0; i < STEP_TILES; i++)
            for (int t = 0; t < c->num_queries; t++) {
                int first = step * ATTN_STEP + i * ATTN_TILE, begin = c->begin[t], end = c->end[t];
                any[i] |= begin < end && begin < first + ATTN_TILE && end > first;
                works |= any[i];
            }
        for (int i = 0; i < STEP_TILES && watch.decode; i++)
            if (any[i]) {
                int tile = step * STEP_TILES + i;
                watch.num_reads += 2;
                watch.num_unasked += !was_asked(c->keys[tile]) + !was_asked(c->values[tile]);
            }
        for (int i = 0; i < 2 * STEP_TILES && works; i++) {
            assert_true(is_there(c, step, c->ahead[step][i]));
            if (watch.decode)
                note(c->ahead[step][i]);
        }
    }
    watch.kernels->attend(c);
}

static void test_ahead(void **state) {
    (void)state;
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_I8};
    static const int starts[] = {0, 5, 63, 64, 100, 255, 256, 300, 511, 512, 530}, blocks[] = {16, 32, 24};
    static const int windows[] = {0, 37, 130}, heads[][2] = {{4, 4}, {8, 2}, {24, 2}};
    int cases = 0;
    for (int k = 0; k < 4 * 3 * 3 * 3; k++) {
        enum dtype kv = types[k % 4];
        struct shape s = {.layers = 1, .hidden = 64, .head_dim = 32, .ffn = 64, .vocab = 96};
        s.window = windows[k / 4 % 3], s.heads = heads[k / 12 % 3][0], s.kv_heads = heads[k / 12 % 3][1];
        struct fixture *f = fixture_make(&s, DTYPE_F32);
        struct setup setup = {&backend_cpu, NULL, 1, blocks[k / 36], kv};
        struct instance *in = instance_open(f, setup, 64, 640, 1);
        struct cpu_kernels watched = *in->dev->kernels;
        watch.kernels = in->dev->kernels;
        watch.kv = in->dev->kv.data;
        watch.kv_bytes =
            in->dev->kv.bytes ? in->dev->kv.bytes : cpu_kv_region(in->dev, in->limits.num_blocks);
        watch.tile_bytes = (size_t)ATTN_TILE * 32 * (size_t)dtype_row_bytes(kv, 1);
        watched.attend = attend;
        in->dev->kernels = &watched;
        for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
            for (int count = 1; count < 40; count += 38) { // decode, prefill
                watch.num_asked = watch.num_reads = watch.num_unasked = 0;
                watch.decode = count == 1 && blocks[k / 36] % ATTN_TILE == 0 && s.heads < 24;
                run_pieces(in, &(struct piece){0, starts[i], count, false}, 1);
                // Only the first step of each head has nobody to ask before it; and where heads have several
                // units, all of them read it.
                int units = (s.heads / s.kv_heads + ATTN_QUERIES - 1) / ATTN_QUERIES;
                if (watch.decode) {
                    assert_true(watch.num_reads >= 2 * s.kv_heads);
                    assert_true(watch.num_unasked <= 2 * STEP_TILES * s.kv_heads * units);
                    cases += watch.num_reads > watch.num_unasked;
                }
            }
        in->dev->kernels = watch.kernels;
        instance_close(in);
        fixture_free(f);
    }
    assert_true(cases > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ahead)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
