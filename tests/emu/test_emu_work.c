// The host's part of a step, read from the upload: work lists of attention by attn_spec, block
// tables by KV group.
#include "harness.h"

#include "fixture.h"
#include "work.h"

enum { MOST = 64, CONTEXT = 2048, SEQS = 4, VOCAB = 64, SPECS = 3, GROUPS = 2 };

struct filled {
    struct work_config c;
    struct cuda_inputs inputs;
    struct step_work work;
    struct batch *batch;
    const struct piece *pieces;
    int num_pieces;
    char *base;
    unsigned char *upload;
};

// A part of a filled upload, which goes to `to`.
static const void *part_of(const struct filled *f, const void *to) {
    const struct cuda_part *parts = (const struct cuda_part *)(const void *)f->upload;
    for (int i = 0; i < work_num_parts(&f->c); i++)
        if (parts[i].to == to)
            return f->upload + parts[i].from;
    fail_msg("no such part");
    return NULL;
}

static struct filled fill(const struct work_config *c, const struct piece *pieces, int n) {
    static struct instance in;
    struct filled f = {.c = *c, .pieces = pieces, .num_pieces = n};
    uint32_t seen[VOCAB] = {0}, stamp = 0;
    in.block_size = c->block_size;
    in.limits = c->limits;
    in.model.config.vocab = VOCAB;
    in.model.config.num_groups = c->num_groups;
    in.model.config.token_types = 3;
    f.batch = batch_make(&in, pieces, n);
    f.base = must_calloc(1, work_inputs(c, &f.inputs, NULL));
    work_inputs(c, &f.inputs, f.base);
    f.upload = aligned_alloc(16, (work_max_bytes(c) + 15) / 16 * 16);
    work_fill(&f.work, c, &f.inputs, f.upload, &f.batch->step, 0, seen, &stamp);
    assert_true(f.work.bytes <= work_max_bytes(c));
    return f;
}

// The first token that the one at a position sees.
static int first_of(const struct work_attn_config *a, int position) {
    if (a->chunked)
        return position - position % a->window;
    return a->window > 0 && position >= a->window ? position + 1 - a->window : 0;
}

// Every tile of every prompt (and decode, with `--exact`) is there once, with its own numbers, and none before
// one that reads more of the cache: counted here token by token.
static void check_tiles(const struct filled *f, int spec) {
    int group = f->c.attn[spec].group, rows = f->c.tile_rows;
    int first = f->c.exact ? 0 : f->batch->step.num_decode, want = 0, before = INT32_MAX;
    const struct cuda_tile *tiles = part_of(f, f->inputs.attn[spec].tiles);
    const int32_t *counts = part_of(f, f->inputs.attn[spec].counts);
    bool there[MOST][MOST] = {{false}};
    for (int s = first; s < f->num_pieces; s++)
        want += (f->pieces[s].count * group + rows - 1) / rows;
    assert_int_equal(f->work.attn[spec].num_tiles, want);
    assert_int_equal(counts[1], want);
    for (int i = 0; i < want; i++) {
        const struct cuda_tile *t = &tiles[i];
        assert_in_range(t->seq, first, f->num_pieces - 1);
        assert_int_equal(t->first % rows, 0);
        assert_in_range(t->first, 0, f->pieces[t->seq].count * group - 1);
        assert_false(there[t->seq][t->first / rows]);
        there[t->seq][t->first / rows] = true;
        assert_int_equal(t->row, f->batch->query_start[t->seq]);
        assert_int_equal(t->num_rows, f->pieces[t->seq].count * group);
        assert_int_equal(t->position, f->pieces[t->seq].start);
        int tokens = 0;
        for (int token = 0; token < CONTEXT; token++) {
            bool read = false;
            for (int r = t->first; r < t->first + rows && r < t->num_rows; r++) {
                int at = t->position + r / group;
                read |= token <= at && token >= first_of(&f->c.attn[spec], at);
            }
            tokens += read;
        }
        assert_true(tokens > 0);
        if (tokens > before)
            fail_msg("tile %d reads %d tokens, the one before it %d", i, tokens, before);
        before = tokens;
    }
}

// The splits of a sequence that decodes follow on from each other, within CUDA_SPLIT positions each, from the
// first token that it sees to its last. With `--exact` there are none.
static void check_splits(const struct filled *f, int spec) {
    const struct cuda_split *splits = part_of(f, f->inputs.attn[spec].splits);
    const int32_t *first = part_of(f, f->inputs.attn[spec].first_split),
                  *counts = part_of(f, f->inputs.attn[spec].counts);
    int decodes = f->batch->step.num_decode;
    assert_true(f->work.attn[spec].first_split == first);
    assert_int_equal(counts[0], f->work.attn[spec].num_splits);
    assert_int_equal(first[decodes], counts[0]);
    for (int s = 0; s < decodes && !f->c.exact; s++) {
        int end = f->pieces[s].start + 1, at = first_of(&f->c.attn[spec], end - 1);
        for (int i = first[s]; i < first[s + 1]; i++) {
            assert_int_equal(splits[i].seq, s);
            assert_int_equal(splits[i].row, f->batch->query_start[s]);
            assert_int_equal(splits[i].begin, at);
            assert_int_equal(splits[i].begin / CUDA_SPLIT, (splits[i].end - 1) / CUDA_SPLIT);
            at = splits[i].end;
        }
        assert_int_equal(at, end);
    }
}

static void check_group(const struct filled *f, int group) {
    const struct step_group *want = &f->batch->step.groups[group];
    int n = f->num_pieces, T = f->batch->step.num_tokens;
    assert_memory_equal(part_of(f, f->inputs.groups[group].slots), want->slots, sizeof(int64_t) * (size_t)T);
    assert_memory_equal(part_of(f, f->inputs.groups[group].block_start), want->block_start,
                        sizeof(int32_t) * (size_t)(n + 1));
    assert_memory_equal(part_of(f, f->inputs.groups[group].block_ids), want->block_ids,
                        sizeof(int32_t) * (size_t)want->block_start[n]);
}

static void check_upload(const struct work_config *c, const struct piece *pieces, int n) {
    struct filled f = fill(c, pieces, n);
    if (c->limits.has_types)
        assert_memory_equal(part_of(&f, f.inputs.types), f.batch->types,
                            sizeof(int32_t) * (size_t)f.batch->step.num_tokens);
    for (int a = 0; a < c->num_attn; a++) {
        check_tiles(&f, a);
        check_splits(&f, a);
    }
    for (int g = 0; g < c->num_groups; g++)
        check_group(&f, g);
    free(f.upload), free(f.base), free(f.batch);
}

TEST(test_upload) {
    static const struct piece pieces[SEQS] = {
        {0, 900, 1, false}, {1, 0, 300, false}, {2, 1000, 70, false}, {3, 64, 129, false}};
    static const int groups[] = {1, 3, 4}, windows[] = {0, 100, 1500};
    for (int i = 0; i < 36; i++) {
        struct work_config c = {.page_scale = {1, 1},
                                .block_size = 16,
                                .vocab = VOCAB,
                                .num_groups = 1 + i % GROUPS,
                                .num_attn = 1 + i % SPECS,
                                .exact = i / 9 % 2,
                                .max_splits = 100,
                                .tile_rows = i / 18 ? CUDA_WIDE_TILE : CUDA_TILE,
                                .limits = {.max_tokens = 512,
                                           .max_seqs = SEQS,
                                           .max_rows = 512,
                                           .max_context = CONTEXT,
                                           .num_blocks = GROUPS * SEQS * CONTEXT / 16,
                                           .has_types = i % 4 == 1}};
        for (int a = 0; a < c.num_attn; a++) // each spec has lists of its own
            c.attn[a] = (struct work_attn_config){groups[(i + a) % 3], windows[(i / 3 + a) % 3],
                                                  (i / 3 + a) % 3 == 1 && i % 2, true};
        check_upload(&c, pieces, SEQS);
        check_upload(&c, pieces + 1, 1);
        check_upload(&c, pieces, 1); // nothing but a decode
    }
}

// Many sequences of a long context: pinned twice, so its size is bounded by what steps have, not by what they could.
TEST(test_size) {
    struct work_config c = {.page_scale = {1, 1},
                            .block_size = 16,
                            .vocab = 151936,
                            .num_groups = 1,
                            .num_attn = 1,
                            .tile_rows = CUDA_TILE};
    c.attn[0].group = 4;
    c.attn[0].lists = true;
    c.limits =
        (struct step_limits){.max_tokens = 2048, .max_seqs = 256, .max_rows = 2048, .max_context = 131072};
    assert_in_range(work_max_bytes(&c), 16 << 20, 40 << 20);
    c.limits.max_seqs = 1; // all entries that one row can have
    assert_in_range(work_max_bytes(&c), (131072 + 4096) * 16, 4 << 20);
}

int main(void) { return run_all_tests(NULL, NULL); }
