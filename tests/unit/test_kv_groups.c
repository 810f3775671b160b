// Several groups in one cache: how many pages a sequence needs, hits that every group serves, reservations, states.
#include "kv_fixture.h"

// A page of 16 tokens, with one group of each of `kinds`; windows are of 64 tokens, a step is of at most 32.
static struct kv_cache make_groups(int num_blocks, int num_groups, const enum kv_kind *kinds) {
    struct kv_config config = config_of(num_blocks, 16, true);
    struct kv_cache kv;
    config.num_groups = num_groups;
    config.max_ahead = 32;
    for (int g = 0; g < num_groups; g++)
        config.groups[g] = (struct kv_group_spec){.kind = kinds[g], .window = 64};
    assert_int_equal(kv_init(&kv, &config), STATUS_OK);
    return kv;
}

// Computes tokens up to `to`, 16 at a time.
static void compute(struct kv_cache *kv, struct kv_seq *seq, int from, int to) {
    struct kv_hash root = kv_root(kv, NULL, 0);
    for (int p = from + 16; p <= to; p += 16) {
        assert_true(kv_grow(kv, seq, p));
        kv_publish(kv, seq, root, text, p);
        kv_trim(kv, seq, p);
        assert_int_equal(check2(kv, seq, NULL), 0);
    }
}

TEST(test_how_much) {
    static const enum kv_kind all[] = {KV_FULL, KV_WINDOW, KV_STATE};
    struct kv_cache kv = make_groups(40, 3, all);
    struct kv_config *c = &kv.config;
    assert_int_equal(kv_first_kept(63, 64, false), 0);
    assert_int_equal(kv_first_kept(126, 64, false),
                     0); // token 63 is the first that is seen, of the tile at 0
    assert_int_equal(kv_first_kept(127, 64, false), 64);
    assert_int_equal(kv_first_kept(1000, 0, false), 0);
    // A window needs (63 + 63 + 32) tokens in blocks of 16, wherever they begin; then a state and a snapshot.
    assert_int_equal(kv_pages(c, 16), 1 + 1 + 2);
    assert_int_equal(kv_pages(c, 176), 11 + 11 + 2);
    assert_int_equal(kv_pages(c, 1600), 100 + 11 + 2);
    assert_int_equal(kv_max_tokens(c, 1600), 27 * 16);
    assert_int_equal(kv_max_tokens(c, 300), 300);
    c->num_blocks = 3;
    assert_int_equal(kv_max_tokens(c, 300), 0);
    c->num_blocks = 40;
    struct table ta;
    struct kv_seq *a = table_init(&ta);
    assert_int_equal(kv_missing(&kv, a, 256), 16 + 11 + 1);
    assert_int_equal(kv_missing_after(&kv, 240, 256), 1 + 1 + 1);
    number_text();
    compute(&kv, a, 0, 192);
    assert_int_equal(a->tables[1].first, 8); // of 192 tokens it sees those from 129 on
    assert_int_equal(kv_missing(&kv, a, 256), 4 + 4);
    assert_int_equal(kv.num_free, 40 - 12 - 4 - 1);
    kv_release(&kv, a);
    kv_destroy(&kv);
}

// A window serves a hit by the blocks that the next token sees, a state by a snapshot of its end; the hit is one that all
// groups serve.
TEST(test_match_groups) {
    static const enum kv_kind kinds[] = {KV_WINDOW, KV_FULL};
    struct kv_cache kv = make_groups(40, 2, kinds);
    struct table ta, tb;
    struct kv_seq *a = table_init(&ta), *b = table_init(&tb);
    struct kv_hash root = kv_root(&kv, NULL, 0);
    block_id was[41], is[41];
    number_text();
    compute(&kv, a, 0, 240);
    kv_release(&kv, a);
    assert_true(kv_grow(&kv, b, 96)); // 12 pages, 10 of which were never used
    assert_int_equal(kv.num_evicted, 2);
    free_order(&kv, was);
    // The window's oldest blocks, 0 and 1, are gone: hits of fewer than 128 tokens need them.
    assert_int_equal(kv_match(&kv, a, root, text, 127), 0);
    kv_unmatch(&kv, a);
    assert_int_equal(kv_match(&kv, a, root, text, 250), 240);
    assert_int_equal(a->tables[0].first, 8);
    assert_int_equal(a->tables[1].first, 0);
    assert_int_equal(check2(&kv, a, b), 0);
    kv_unmatch(&kv, a);
    free_order(&kv, is);
    assert_memory_equal(was, is, sizeof(block_id) * (size_t)(kv.num_free + 1));
    kv_release(&kv, b);
    kv_destroy(&kv);
}

TEST(test_reserve) {
    static const enum kv_kind window[] = {KV_WINDOW};
    struct kv_cache kv = make_groups(16, 1, window);
    struct table ta, tb;
    struct kv_seq *a = table_init(&ta), *b = table_init(&tb);
    number_text();
    compute(&kv, a, 0, 96);
    assert_true(kv_reserve(&kv, a, 256));
    assert_int_equal(a->reserved, 5); // 11 at any time, of which it has 6
    assert_int_equal(kv_available(&kv), 5);
    assert_false(kv_reserve(&kv, b, 96));
    assert_int_equal(kv_match(&kv, b, kv_root(&kv, NULL, 0), text, 96),
                     0); // it counts on its pages: nobody shares them
    kv_unmatch(&kv, b);
    assert_true(kv_grow(&kv, b, 80)); // all that is promised to nobody
    assert_false(kv_grow(&kv, b, 96));
    for (int p = 112; p <= 256; p += 16) { // and it gets to its end
        assert_true(kv_grow(&kv, a, p));
        kv_trim(&kv, a, p);
        assert_int_equal(check2(&kv, a, b), 0);
    }
    assert_int_equal(a->reserved + a->len - a->tables[0].first, 11);
    kv.num_reserved++;
    assert_int_equal(check2(&kv, a, b), 7); // more is reserved than its sequences have
    kv.num_reserved--;
    for (int i = -1; i <= 1; i += 2) {
        a->tables[0].first += i; // a block is missing, or one is there that was to be given back
        assert_int_equal(check2(&kv, a, b), 6);
        a->tables[0].first -= i;
    }
    block_id last = a->tables[0].ids[15];
    kv.blocks[last].group = 1; // taken for another group
    assert_int_equal(check2(&kv, a, b), 6);
    kv.blocks[last].group = 0;
    assert_int_equal(check2(&kv, a, b), 0);
    kv_release(&kv, a);
    kv_release(&kv, b);
    assert_int_equal(kv.num_reserved, 0);
    kv_destroy(&kv);
}

TEST(test_state_pages) {
    static const enum kv_kind kinds[] = {KV_STATE};
    struct kv_cache kv = make_groups(8, 1, kinds);
    struct table ta, tb;
    struct kv_seq *a = table_init(&ta), *b = table_init(&tb);
    const struct block_table *t = &a->tables[0];
    struct kv_hash root = kv_root(&kv, NULL, 0);
    struct kv_move moves[KV_SEQ_MOVES];
    number_text();
    assert_true(kv_grow(&kv, a, 32));
    assert_int_equal(kv_moves(&kv, a, 0, 32, 0, moves), 0);
    kv_publish(&kv, a, root, text, 32);
    kv_trim(&kv, a, 32);
    assert_true(kv_grow(&kv, a, 40)); // the next step begins at a boundary: it makes a snapshot
    assert_int_equal(kv_moves(&kv, a, 32, 32, 0, moves), 1);
    assert_true(moves[0].from == t->live && moves[0].to == t->ids[1]);
    assert_int_equal(check2(&kv, a, NULL), 0);
    kv_publish(&kv, a, root, text, 40);
    kv_trim(&kv, a, 40);
    assert_true(t->ids[1] == KV_NONE && kv.num_free == 7); // it is a cache entry now
    assert_int_equal(kv_match(&kv, b, root, text, 39), 32);
    assert_true(kv_grow(&kv, b, 39));
    assert_int_equal(kv_moves(&kv, b, 32, 32, 0, moves), 1);
    assert_true(moves[0].from == b->tables[0].ids[1] && moves[0].to == b->tables[0].live);
    assert_int_equal(check2(&kv, a, b), 0);

    assert_true(kv_checkpoint(&kv, a, 40)); // drafts: a copy to go back to
    assert_true(kv_grow(&kv, a, 44));
    assert_int_equal(kv_moves(&kv, a, 40, 32, 0, moves), 1);
    assert_true(moves[0].from == t->live && moves[0].to == t->saved);
    assert_int_equal(kv_rollback(&kv, a), 40);
    assert_int_equal(kv_moves(&kv, a, 40, 32, 0, moves), 1);
    assert_true(moves[0].from == t->saved && moves[0].to == t->live);
    kv_trim(&kv, a, 40);
    assert_true(t->saved != KV_NONE);
    kv.blocks[t->saved].published = true;
    assert_int_equal(check2(&kv, a, b), 8);
    kv.blocks[t->saved].published = false;
    kv_trim(&kv, a, 41);
    assert_true(t->saved == KV_NONE);
    assert_int_equal(check2(&kv, a, b), 0);
    kv_release(&kv, a);
    kv_release(&kv, b);
    assert_int_equal(kv.num_free, 8);
    kv_destroy(&kv);
}

// ---- pages that come from elsewhere

// Pages that can be had: bit i of a group's is block i. And the changes that the cache told of.
static unsigned can_be_had[KV_MAX_GROUPS];
static struct kv_hash chain[CAP + 1];
static int num_asked, changes[3];

static bool has_page(void *arg, struct kv_hash hash, int group) {
    assert_ptr_equal(arg, chain);
    num_asked++;
    for (int i = 0; i < CAP; i++)
        if (chain[i + 1].lo == hash.lo && chain[i + 1].hi == hash.hi)
            return can_be_had[group] >> i & 1;
    return false;
}

static void count_change(void *arg, enum kv_change change, block_id id) {
    const struct kv_cache *kv = arg;
    assert_true(id >= 0 && id < kv->config.num_blocks && kv->blocks[id].published);
    changes[change]++;
}

static void find_chain(const struct kv_cache *kv) {
    chain[0] = kv_root(kv, NULL, 0);
    for (int i = 0; i < CAP; i++)
        chain[i + 1] = kv_chain(kv, chain[i], text + i * kv->config.block_size);
}

static void want(struct kv_cache *kv, struct kv_seq *seq, int n, int max, const char *expected) {
    struct kv_wanted wanted[64];
    int hit = -1;
    char got[256] = "";
    int num = kv_want(kv, seq, chain[0], text, n, has_page, chain, wanted, max, &hit);
    for (int i = 0; i < num; i++) {
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%d.%d", i ? " " : "", wanted[i].group,
                 wanted[i].block);
        assert_true(wanted[i].hash.lo == chain[wanted[i].block + 1].lo &&
                    wanted[i].parent == chain[wanted[i].block].lo);
    }
    assert_string_equal(got, expected);
    assert_int_equal(seq->len, 0);
    assert_true(hit % 16 == 0 && hit <= n &&
                (num == 0 || num == max || hit == 16 * (wanted[num - 1].block + 1)));
}

// A page comes, as kv_want() asked for it.
static block_id adopt(struct kv_cache *kv, int group, int block) {
    const struct kv_wanted w = {
        .hash = chain[block + 1], .parent = chain[block].lo, .block = block, .group = group};
    return kv_adopt(kv, &w, text + block * kv->config.block_size);
}

// A prompt of 16 blocks was let go from its end on, as others needed room: what comes back does not evict what is left of it.
TEST(test_touched_pages_stay) {
    static const enum kv_kind full[] = {KV_FULL};
    struct kv_cache kv = make_groups(20, 1, full);
    struct table ta, tb;
    struct kv_seq *a = table_init(&ta), *b = table_init(&tb);
    number_text();
    find_chain(&kv);
    assert_true(kv_grow(&kv, a, 256));
    kv_publish(&kv, a, chain[0], text, 256);
    kv_release(&kv, a);
    assert_true(kv_grow(&kv, b, 12 * 16));
    kv_publish(&kv, b, kv_root(&kv, "another", 7), text, 12 * 16);
    assert_int_equal(kv_touch(&kv, a, chain[0], text, 255), 8);
    assert_int_equal(kv_touch(&kv, a, chain[0], text, 40), 2); // whole blocks
    assert_int_equal(check2(&kv, b, NULL), 0);
    assert_int_equal(kv_touch(&kv, a, kv_root(&kv, "another", 7), text, 255), 0); // in use
    kv_release(&kv, b);
    assert_int_equal(kv_touch(&kv, a, chain[0], text, 255), 8);
    assert_int_equal(check2(&kv, NULL, NULL), 0);
    for (int i = 8; i < 16; i++)
        assert_true(adopt(&kv, 0, i) != KV_NONE);
    assert_int_equal(kv_match(&kv, a, chain[0], text, 256), 256);
    kv_release(&kv, a);
    // Where all must go, the first blocks go last.
    assert_true(kv_grow(&kv, b, 4 * 16));
    kv_release(&kv, b);
    assert_int_equal(kv_touch(&kv, a, chain[0], text, 256), 16);
    assert_true(kv_grow(&kv, b, 16 * 16));
    assert_int_equal(kv_match(&kv, a, chain[0], text, 256), 64);
    kv_release(&kv, a);
    kv_release(&kv, b);
    kv_destroy(&kv);
}

TEST(test_pages_from_elsewhere) {
    static const enum kv_kind all[] = {KV_FULL, KV_WINDOW, KV_STATE};
    struct kv_cache kv = make_groups(24, 3, all);
    struct table ta;
    struct kv_seq *a = table_init(&ta);
    number_text();
    find_chain(&kv);
    kv.watch = count_change;
    kv.watch_arg = &kv;
    memset(can_be_had, 0, sizeof can_be_had);
    want(&kv, a, 255, 64, "");
    assert_int_equal(num_asked, 3); // no full block, no hit
    // Full blocks to 12, window blocks from 4 on, states of 5 and 12: a hit of 12 needs window blocks 8 to 11.
    can_be_had[0] = (1u << 12) - 1;
    can_be_had[1] = 0xfff0;
    can_be_had[2] = 1u << 4 | 1u << 11;
    want(&kv, a, 255, 64, "0.0 0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 1.8 0.9 1.9 0.10 1.10 0.11 1.11 2.11");
    want(&kv, a, 191, 3, ""); // a window before 5 is not there, nor 12 within 191 tokens
    can_be_had[1] = 0xffff;
    want(&kv, a, 191, 3, "0.0 1.0 0.1"); // of a hit of 5; no more than there is room for
    want(&kv, a, 255, 64, "0.0 0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 1.8 0.9 1.9 0.10 1.10 0.11 1.11 2.11");
    for (int i = 0; i < 12; i++) {
        assert_true(adopt(&kv, 0, i) != KV_NONE);
        assert_int_equal(adopt(&kv, 0, i), KV_NONE); // it is there
        assert_true(i < 8 || adopt(&kv, 1, i) != KV_NONE);
        assert_int_equal(check2(&kv, NULL, NULL), 0);
    }
    assert_int_equal(kv_match(&kv, a, chain[0], text, 255), 0); // without a state no hit
    want(&kv, a, 255, 64, "2.11");
    assert_true(adopt(&kv, 2, 11) != KV_NONE);
    want(&kv, a, 255, 64, ""); // all that can be had is here
    assert_int_equal(kv_match(&kv, a, chain[0], text, 255), 192);
    assert_int_equal(check2(&kv, a, NULL), 0);
    assert_true(changes[KV_ADOPTED] == 17 && changes[KV_PUBLISHED] == 0 && changes[KV_EVICTED] == 0);
    assert_int_equal(kv_available(&kv), 24 - 17);
    assert_true(kv_grow(&kv, a, 192 + 48)); // takes all but one that is free, and lets nothing in use go
    assert_int_equal(kv_available(&kv), 0);
    assert_int_equal(adopt(&kv, 0, 13), KV_NONE);
    kv_publish(&kv, a, chain[0], text, 208);
    assert_int_equal(changes[KV_PUBLISHED], 2);
    assert_true(kv.blocks[a->tables[0].ids[12]].common && !kv.blocks[a->tables[0].ids[11]].common);
    kv_release(&kv, a);
    // An adopted page is the last to be evicted.
    block_id last = adopt(&kv, 0, 13);
    assert_int_equal(kv.free_tail, last);
    assert_true(kv_grow(&kv, a, 16 * 11)); // all pages but one
    assert_true(kv.blocks[last].published && kv_available(&kv) == 1);
    assert_int_equal(changes[KV_EVICTED], 19); // the published ones, too
    assert_int_equal(check2(&kv, a, NULL), 0);
    kv_release(&kv, a);
    kv_destroy(&kv);
}

// Pages that a sequence with `retain` gave back are evicted after others that came later, but before those that come then.
TEST(test_retained) {
    static const enum kv_kind kinds[] = {KV_FULL};
    struct kv_cache kv = make_groups(8, 1, kinds);
    struct table ta, tb;
    struct kv_seq *a = table_init(&ta), *b = table_init(&tb);
    struct kv_hash root = kv_root(&kv, NULL, 0), other = kv_root(&kv, "b", 1);
    number_text();
    a->retain = true;
    compute(&kv, a, 0, 64);
    kv_release(&kv, a);
    assert_true(a->retain);
    a->retain = false;
    assert_true(kv_grow(&kv, b, 64)); // the four that never held anything
    kv_publish(&kv, b, other, text, 64);
    kv_release(&kv, b);
    assert_true(kv_grow(&kv, b, 64)); // a's turn comes: b's go in their place
    assert_int_equal(check2(&kv, b, NULL), 0);
    assert_int_equal(kv_match(&kv, a, root, text, 63), 48);
    assert_int_equal(check2(&kv, a, b), 0);
    kv_release(&kv, a);
    kv_release(&kv, b); // four that are no entries
    assert_true(kv_grow(&kv, b, 96));
    assert_int_equal(kv_match(&kv, a, root, text, 63), 32); // once only: the tail went
    kv_release(&kv, a);
    kv_release(&kv, b);
    kv_destroy(&kv);
}

int main(void) { return run_all_tests(NULL, NULL); }
