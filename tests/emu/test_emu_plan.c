// What the host works out for a step, read from the upload: tiles of prefill attention.
#include "harness.h"

#include "fixture.h"
#include "plan.h"

enum { MOST = 64, CONTEXT = 2048, SEQS = 4, VOCAB = 64 };

// A part of a filled upload, which goes to `to`.
static const void *part_of(const unsigned char *upload, const void *to) {
    const struct cuda_part *parts = (const struct cuda_part *)(const void *)upload;
    for (int i = 0; i < plan_num_parts(); i++)
        if (parts[i].to == to)
            return upload + parts[i].from;
    fail_msg("no such part");
    return NULL;
}

// Every tile of every prompt (and decode, in exact mode) is there once, with its own numbers, and none before
// one that reads more of the cache: counted here token by token.
static void check_tiles(struct plan_config c, const struct piece *pieces, int n) {
    static struct instance in;
    struct cuda_inputs inputs;
    struct plan plan;
    uint32_t seen[VOCAB] = {0}, stamp = 0;
    in.block_size = c.block_size;
    in.limits = c.limits;
    in.model.config.vocab = VOCAB;
    struct batch *b = batch_make(&in, pieces, n);
    char *base = must_calloc(1, plan_inputs(&c, &inputs, NULL));
    plan_inputs(&c, &inputs, base);
    unsigned char *upload = aligned_alloc(16, (plan_max_bytes(&c) + 15) / 16 * 16);
    plan_fill(&plan, &c, &inputs, upload, &b->step, 0, seen, &stamp);
    assert_true(plan.bytes <= plan_max_bytes(&c));
    const struct cuda_tile *tiles = part_of(upload, inputs.tiles);
    const int32_t *counts = part_of(upload, inputs.counts);
    assert_int_equal(counts[1], plan.num_tiles);
    int want = 0, before = INT32_MAX;
    bool there[MOST][MOST] = {{false}};
    for (int s = c.exact ? 0 : b->step.num_decode; s < n; s++)
        want += (pieces[s].count * c.group + c.tile_rows - 1) / c.tile_rows;
    assert_int_equal(plan.num_tiles, want);
    for (int i = 0; i < want; i++) {
        const struct cuda_tile *t = &tiles[i];
        assert_in_range(t->seq, c.exact ? 0 : b->step.num_decode, n - 1);
        assert_int_equal(t->first % c.tile_rows, 0);
        assert_in_range(t->first, 0, pieces[t->seq].count * c.group - 1);
        assert_false(there[t->seq][t->first / c.tile_rows]);
        there[t->seq][t->first / c.tile_rows] = true;
        assert_int_equal(t->row, b->query_start[t->seq]);
        assert_int_equal(t->num_rows, pieces[t->seq].count * c.group);
        assert_int_equal(t->position, pieces[t->seq].start);
        int weight = 0;
        for (int token = 0; token < CONTEXT; token++) {
            bool read = false;
            for (int r = t->first; r < t->first + c.tile_rows && r < t->num_rows; r++) {
                int at = t->position + r / c.group;
                read |= token <= at && (c.window == 0 || token > at - c.window);
            }
            weight += read;
        }
        assert_true(weight > 0);
        if (weight > before)
            fail_msg("tile %d reads %d tokens, the one before it %d", i, weight, before);
        before = weight;
    }
    free(upload), free(base), free(b);
}

static void test_tiles(void **state) {
    (void)state;
    static const struct piece pieces[SEQS] = {
        {0, 900, 1, false}, {1, 0, 300, false}, {2, 1000, 70, false}, {3, 64, 129, false}};
    static const int groups[] = {1, 3, 4}, windows[] = {0, 100, 1500};
    for (int i = 0; i < 36; i++) {
        struct plan_config c = {.block_size = 16,
                                .group = groups[i % 3],
                                .window = windows[i / 3 % 3],
                                .vocab = VOCAB,
                                .items = true,
                                .exact = i / 9 % 2,
                                .max_items = 100,
                                .tile_rows = i / 18 ? CUDA_WIDE_TILE : CUDA_TILE,
                                .limits = {.max_tokens = 512,
                                           .max_seqs = SEQS,
                                           .max_rows = 512,
                                           .max_context = CONTEXT,
                                           .num_blocks = SEQS * CONTEXT / 16}};
        check_tiles(c, pieces, SEQS);
        check_tiles(c, pieces + 1, 1);
        check_tiles(c, pieces, 1); // nothing but a decode
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
