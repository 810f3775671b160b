// Attention of the CPU backend prefetches (attention.c) only memory that it reads, and in decode all of it before it
// is read. And nothing is read, or prefetched, of pages that a window has given back.
#include "harness.h"

#include "device.h"
#include "fixture.h"
#include "log.h"

enum { MAX_TILES = 4096 };

struct tiles {
    const void *at[MAX_TILES];
    int num;
};

static struct {
    const struct cpu_kernels *kernels; // the real ones
    struct tiles asked, read;
    int num_unasked; // reads of what was not asked for before
    // Keys and values of the page that tables name for given-back ones.
    const char *given_back, *past_given_back;
    int num_given_back; // reads and prefetches there
} watch;

static bool has(const struct tiles *t, const void *tile) {
    for (int i = 0; i < t->num; i++)
        if (t->at[i] == tile)
            return true;
    return false;
}

static void add(struct tiles *t, const void *tile) {
    watch.num_given_back +=
        (const char *)tile >= watch.given_back && (const char *)tile < watch.past_given_back;
    if (has(t, tile))
        return;
    CHECK(t->num < MAX_TILES);
    t->at[t->num++] = tile;
}

static void read_tile(const void *tile) {
    watch.num_unasked += !has(&watch.asked, tile) && !has(&watch.read, tile);
    add(&watch.read, tile);
}

static void attend(struct attn_chunk *c) {
    for (int step = c->step0; step < c->step1; step++) {
        bool works = false;
        for (int i = 0; i < STEP_TILES; i++) {
            bool any = false;
            for (int t = 0; t < c->num_queries; t++) {
                int first = step * ATTN_STEP + i * ATTN_TILE, begin = c->begin[t], end = c->end[t];
                any |= begin < end && begin < first + ATTN_TILE && end > first;
            }
            if (any) {
                read_tile(c->keys[step * STEP_TILES + i]);
                read_tile(c->values[step * STEP_TILES + i]);
            }
            works |= any;
        }
        for (int i = 0; i < 2 * STEP_TILES && works; i++)
            add(&watch.asked, c->prefetch[step][i]);
    }
    watch.kernels->attend(c);
}

static void widen_i8(uint16_t *y, const int8_t *x, int n, const char *prefetch) {
    struct tiles both = {{0}, 0};
    add(&both, x);
    add(&both, prefetch);
    watch.kernels->widen_i8(y, x, n, prefetch);
}

// One step of one piece, whose table names page 0 for what the window has given back.
static void run_piece(struct instance *in, const struct piece *piece) {
    struct batch *b = batch_make(in, piece, 1);
    struct step_out out;
    int kept =
        kv_first_kept(piece->start, in->model.config.attn[0].window, in->model.config.attn[0].chunked) /
        in->block_size;
    memset(b->groups[0].block_ids, 0, (size_t)kept * sizeof b->groups[0].block_ids[0]);
    forward(in, &b->step);
    assert_int_equal(in->ops->sync(in->dev, &out, NULL), STATUS_OK);
    free(b);
}

TEST(test_prefetch) {
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_I8};
    static const int starts[] = {0, 5, 63, 64, 100, 255, 256, 300, 511, 512, 530}, blocks[] = {16, 32, 48};
    static const int windows[] = {0, 37, 130}, heads[][2] = {{4, 4}, {8, 2}, {24, 2}};
    int cases = 0;
    for (int k = 0; k < 4 * 3 * 3 * 3; k++) {
        enum dtype kv = types[k % 4];
        struct shape s = {.layers = 1, .hidden = 64, .head_dim = 32, .ffn = 64, .vocab = 96};
        s.window = windows[k / 4 % 3], s.heads = heads[k / 12 % 3][0], s.kv_heads = heads[k / 12 % 3][1];
        struct fixture *f = fixture_make(&s, DTYPE_F32);
        struct setup setup = {&backend_cpu, NULL, 1, blocks[k / 36], kv};
        struct instance *in = instance_open_as(f, setup, INSTANCE_SPARE_BLOCK, 64, 640, 1);
        watch.given_back = in->dev->kv.data; // page 0, nobody's; I8's scales lie elsewhere
        watch.past_given_back =
            watch.given_back + 2 * dtype_row_bytes(kv, blocks[k / 36] * s.kv_heads * s.head_dim);
        watch.num_given_back = 0;
        struct cpu_kernels watched = *in->dev->kernels;
        watch.kernels = in->dev->kernels;
        watched.attend = attend;
        watched.widen_i8 = widen_i8;
        in->dev->kernels = &watched;
        for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
            for (int count = 1; count < 40; count += 38) { // decode, prefill
                watch.asked.num = watch.read.num = watch.num_unasked = 0;
                run_piece(in, &(struct piece){0, starts[i], count, false});
                for (int j = 0; j < watch.asked.num; j++)
                    assert_true(has(&watch.read, watch.asked.at[j]));
                // Only the first step of each head has nobody to ask before it.
                if (count == 1 && s.heads < 24) {
                    assert_true(watch.read.num >= 2 * s.kv_heads);
                    assert_true(watch.num_unasked <= 2 * STEP_TILES * s.kv_heads);
                    cases += watch.read.num > watch.num_unasked;
                }
            }
        assert_int_equal(watch.num_given_back, 0);
        in->dev->kernels = watch.kernels;
        instance_close(in);
        fixture_free(f);
    }
    assert_true(cases > 100);
}

int main(void) { return run_all_tests(NULL, NULL); }
