// The paged cache's bookkeeping: hash vectors, the rules, eviction order, collisions, windows and states, and random
// traffic.
#include "kv_fixture.h"

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || __has_feature(address_sanitizer) ||     \
    __has_feature(thread_sanitizer)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

// The vectors published with SipHash's reference code for 128 bits of output: input 00 01 .. (n - 1).
TEST(test_siphash) {
    static const struct {
        int n;
        unsigned char out[17];
    } vectors[] = {
        {0, "\xa3\x81\x7f\x04\xba\x25\xa8\xe6\x6d\xf6\x72\x14\xc7\x55\x02\x93"},
        {1, "\xda\x87\xc1\xd8\x6b\x99\xaf\x44\x34\x76\x59\x11\x9b\x22\xfc\x45"},
        {2, "\x81\x77\x22\x8d\xa4\xa4\x5d\xc7\xfc\xa3\x8b\xde\xf6\x0a\xff\xe4"},
        {7, "\xa1\xf1\xeb\xbe\xd8\xdb\xc1\x53\xc0\xb8\x4a\xa6\x1f\xf0\x82\x39"},
        {8, "\x3b\x62\xa9\xba\x62\x58\xf5\x61\x0f\x83\xe2\x64\xf3\x14\x97\xb4"},
        {15, "\x54\x93\xe9\x99\x33\xb0\xa8\x11\x7e\x08\xec\x0f\x97\xcf\xc3\xd9"},
        {16, "\x6e\xe2\xa4\xca\x67\xb0\x54\xbb\xfd\x33\x15\xbf\x85\x23\x05\x77"},
        {63, "\x51\x50\xd1\x77\x2f\x50\x83\x4a\x50\x3e\x06\x9a\x97\x3f\xbd\x7c"},
    };
    struct kv_cache kv = make(1, 2, true);
    unsigned char in[64];
    for (int i = 0; i < 64; i++)
        in[i] = (unsigned char)i;
    for (size_t v = 0; v < sizeof vectors / sizeof *vectors; v++) {
        struct kv_hash h = kv_root(&kv, in, (size_t)vectors[v].n);
        for (int i = 0; i < 16; i++)
            assert_int_equal(((i < 8 ? h.lo : h.hi) >> (8 * (i & 7))) & 0xff, vectors[v].out[i]);
    }
    // A block's hash is that of its parent's 16 bytes and its tokens, under a key of its own.
    token_id tokens[2] = {0x03020100, 0x07060504};
    unsigned char bytes[24];
    struct kv_hash parent = kv_root(&kv, NULL, 0), h = kv_chain(&kv, parent, tokens);
    for (int i = 0; i < 16; i++)
        bytes[i] = (unsigned char)((i < 8 ? parent.lo : parent.hi) >> (8 * (i & 7)));
    for (int i = 0; i < 8; i++)
        bytes[16 + i] = (unsigned char)i;
    assert_true(kv_root(&kv, bytes, 24).lo != h.lo);
    kv.config.key[1] = ~kv.config.key[1];
    assert_true(kv_root(&kv, bytes, 24).lo == h.lo && kv_root(&kv, bytes, 24).hi == h.hi);
    kv_destroy(&kv);
    kv = make(1, 3, true); // an odd number of tokens: half a word remains
    token_id three[3] = {1, 2, 3}, other[3] = {1, 2, 4};
    assert_true(kv_chain(&kv, parent, three).lo != kv_chain(&kv, parent, other).lo);
    kv_destroy(&kv);
}

TEST(test_grow_and_release) {
    struct kv_cache kv = make(4, 4, true);
    struct table ta, tb;
    struct kv_seq *a = table_init(&ta), *b = table_init(&tb);
    assert_int_equal(kv_blocks_for(&kv, 0), 0);
    assert_int_equal(kv_blocks_for(&kv, 1), 1);
    assert_int_equal(kv_blocks_for(&kv, 4), 1);
    assert_int_equal(kv_blocks_for(&kv, 5), 2);
    assert_int_equal(kv_blocks_for(&kv, INT32_MAX), INT32_MAX / 4 + 1);
    assert_true(kv_grow(&kv, a, 9));
    assert_int_equal(a->len, 3);
    assert_true(kv_grow(&kv, a, 12)); // nothing to do
    assert_int_equal(a->len, 3);
    assert_false(kv_grow(&kv, b, 5)); // all or nothing
    assert_int_equal(b->len, 0);
    assert_int_equal(kv.num_free, 1);
    assert_int_equal(kv_slot(&kv, a, 0, 6), (int64_t)a->tables[0].ids[1] * 4 + 2);
    assert_int_equal(check2(&kv, a, b), 0);
    kv_release(&kv, a);
    kv_release(&kv, a); // an empty table: nothing
    assert_int_equal(kv.num_free, 4);
    assert_int_equal(check2(&kv, NULL, NULL), 0);
    kv_destroy(&kv);
}

TEST(test_match) {
    struct kv_cache kv = make(8, 4, true);
    struct table ta, tb, tc;
    struct kv_seq *a = table_init(&ta), *b = table_init(&tb), *c = table_init(&tc);
    token_id tokens[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    struct kv_hash root = kv_root(&kv, NULL, 0), salted = kv_root(&kv, "s", 1);
    assert_int_equal(kv_match(&kv, a, root, tokens, 12), 0);
    assert_true(kv_grow(&kv, a, 11));
    kv_publish(&kv, a, root, tokens, 11);
    kv_publish(&kv, a, root, tokens, 11); // idempotent
    assert_int_equal(a->num_hashed, 2);   // rule 2: the third block is not full
    assert_int_equal(check2(&kv, a, b), 0);
    assert_int_equal(kv_match(&kv, b, root, tokens, 7), 4); // whole blocks within n only
    assert_int_equal(kv.blocks[a->tables[0].ids[0]].ref, 2);
    assert_int_equal(b->tables[0].ids[0], a->tables[0].ids[0]);
    assert_int_equal(check2(&kv, a, b), 0);
    kv_release(&kv, b);
    assert_int_equal(kv_match(&kv, b, root, tokens, 12), 8);
    assert_int_equal(kv_match(&kv, c, salted, tokens, 12), 0); // another root, another cache
    assert_true(kv_grow(&kv, b, 12));
    assert_true(b->tables[0].ids[2] != a->tables[0].ids[2]);
    kv_publish(&kv, b, root, tokens, 12);
    kv_publish(&kv, a, root, tokens, 12); // b was first: a's block stays private
    assert_true(kv.blocks[b->tables[0].ids[2]].published && !kv.blocks[a->tables[0].ids[2]].published);
    assert_int_equal(a->num_hashed, 3);
    assert_int_equal(check2(&kv, a, b), 0);
    kv_release(&kv, a);
    kv_release(&kv, b);
    assert_int_equal(kv.num_free, 8);
    assert_int_equal(kv_match(&kv, c, root, tokens, 12), 12); // rule 3: free, and still an entry
    assert_int_equal(kv.num_free, 5);
    assert_int_equal(check2(&kv, c, NULL), 0);
    kv_release(&kv, c);
    tokens[5] = 99;
    assert_int_equal(kv_match(&kv, c, root, tokens, 12), 4); // the chain breaks where the tokens differ
    kv_release(&kv, c);
    kv_destroy(&kv);

    kv = make(4, 4, false); // sharing off
    assert_int_equal(kv_match(&kv, a, root, tokens, 12), 0);
    assert_true(kv_grow(&kv, a, 12));
    kv_publish(&kv, a, root, tokens, 12);
    assert_int_equal(kv_match(&kv, b, root, tokens, 12), 0);
    kv_release(&kv, a);
    kv_destroy(&kv);
}

// Kept hashes are those of kv_chain(), under whatever root, and a parent that is not the sequence's gets none of them.
TEST(test_kept_hashes) {
    struct kv_cache kv = make(8, 4, true);
    struct table ta, tb;
    struct kv_hash kept[CAP + 1];
    struct kv_seq *a = table_init(&ta), *b = table_init(&tb);
    token_id tokens[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const struct kv_hash roots[] = {kv_root(&kv, NULL, 0), kv_root(&kv, "s", 1)};
    a->hashes = kept;
    for (int times = 0; times < 4; times++) {
        struct kv_hash want = roots[times % 2], got = want;
        for (int i = 0; i < 3; i++) {
            want = kv_chain(&kv, want, tokens + (ptrdiff_t)4 * i);
            got = kv_seq_chain(&kv, a, i, got, tokens);
            assert_memory_equal(&got, &want, sizeof want);
        }
        assert_int_equal(a->num_hashes, 4);
        assert_memory_equal(kept, &roots[times % 2], sizeof *roots); // another root begins anew
    }
    struct kv_hash want = kv_chain(&kv, roots[0], tokens + 4),
                   got = kv_seq_chain(&kv, a, 1, roots[0], tokens);
    assert_memory_equal(&got, &want, sizeof want); // not behind roots[1] and the first block
    assert_true(kv_grow(&kv, b, 12));
    kv_publish(&kv, b, roots[0], tokens, 12);
    assert_int_equal(kv_match(&kv, a, roots[1], tokens, 12), 0);
    assert_int_equal(kv_match(&kv, a, roots[0], tokens, 12), 12);
    kv_unmatch(&kv, a);
    assert_int_equal(a->num_hashes, 4);
    want = kept[1];
    tokens[0] = 99; // no token of a hashed block changes; so a hash that stays was not computed again
    got = kv_seq_chain(&kv, a, 0, roots[0], tokens);
    assert_memory_equal(&got, &want, sizeof want);
    kv_release(&kv, b);
    kv_destroy(&kv);
}

// A broken hash must not serve another's keys: the tokens are compared too.
TEST(test_collision) {
    struct kv_cache kv = make(4, 2, true);
    struct table ta, tb;
    struct kv_seq *a = table_init(&ta), *b = table_init(&tb);
    token_id tokens[2] = {1, 2};
    struct kv_hash root = kv_root(&kv, NULL, 0);
    assert_true(kv_grow(&kv, a, 2));
    kv_publish(&kv, a, root, tokens, 2);
    kv.tokens[a->tables[0].ids[0] * 2 + 1] = 3; // as if (1, 3) had the same hash
    assert_int_equal(kv_match(&kv, b, root, tokens, 2), 0);
    assert_true(kv_grow(&kv, b, 2));
    kv_publish(&kv, b, root, tokens, 2); // both stand in one bucket
    assert_true(kv.blocks[b->tables[0].ids[0]].published);
    assert_int_equal(check2(&kv, a, b), 0);
    block_id mine = b->tables[0].ids[0];
    kv_release(&kv, b);
    assert_int_equal(kv_match(&kv, b, root, tokens, 2), 2);
    assert_int_equal(b->tables[0].ids[0], mine);
    kv.blocks[mine].hash.hi ^= 1; // tokens alone are not enough either
    kv_release(&kv, b);
    assert_int_equal(kv_match(&kv, b, root, tokens, 2), 0);
    kv_destroy(&kv);
}

TEST(test_eviction_order) {
    struct kv_cache kv = make(6, 1, true);
    struct table ta, tb, tc;
    struct kv_seq *a = table_init(&ta), *b = table_init(&tb), *c = table_init(&tc);
    token_id old[3] = {1, 2, 3}, young[2] = {7, 8};
    struct kv_hash root = kv_root(&kv, NULL, 0);
    assert_true(kv_grow(&kv, a, 3) && kv_grow(&kv, b, 3));
    kv_publish(&kv, a, root, old, 3);
    kv_publish(&kv, b, root, young, 2); // its third block is never published
    block_id private = b->tables[0].ids[2];
    kv_release(&kv, a);
    kv_release(&kv, b);
    // Rule 4: what is no entry first, then entries by age, tail before head: old 3, 2, 1, young 8, 7.
    assert_true(kv_grow(&kv, c, 1));
    assert_int_equal(c->tables[0].ids[0], private);
    assert_int_equal(kv.num_evicted, 0);
    assert_true(kv_grow(&kv, c, 2));
    assert_int_equal(kv.num_evicted, 1);
    assert_int_equal(kv_match(&kv, a, root, old, 3), 2);
    assert_int_equal(check2(&kv, a, c), 0);
    kv_release(&kv, a); // used again: old 2, 1 are now younger than young 8, 7
    assert_true(kv_grow(&kv, c, 4));
    assert_int_equal(kv_match(&kv, b, root, young, 2), 0);
    assert_int_equal(kv_match(&kv, a, root, old, 3), 2);
    assert_int_equal(kv.num_evicted, 3);
    assert_int_equal(check2(&kv, a, c), 0);
    kv_destroy(&kv);
}

TEST(test_unmatch) {
    struct kv_cache kv = make(8, 1, true);
    struct table ta, tb;
    struct kv_seq *a = table_init(&ta), *b = table_init(&tb);
    token_id tokens[4] = {1, 2, 3, 4}, other[2] = {8, 9};
    block_id was[9], is[9];
    struct kv_hash root = kv_root(&kv, NULL, 0);
    assert_true(kv_grow(&kv, a, 4) && kv_grow(&kv, b, 2));
    kv_publish(&kv, a, root, tokens, 4);
    kv_publish(&kv, b, root, other, 2);
    kv_release(&kv, a);
    kv_release(&kv, b);
    for (int n = 0; n <= 4; n++) { // also with the list's ends among the matched
        free_order(&kv, was);
        assert_int_equal(kv_match(&kv, a, root, n < 4 ? tokens : other, n < 4 ? n + 1 : 2),
                         n < 4 ? n + 1 : 2);
        kv_unmatch(&kv, a);
        free_order(&kv, is);
        assert_memory_equal(was, is, sizeof was);
        assert_int_equal(check2(&kv, a, b), 0);
    }
    assert_true(kv_match(&kv, b, root, tokens, 2) == 2 && kv_match(&kv, a, root, tokens, 4) == 4);
    kv_unmatch(&kv, a); // blocks that another holds stay with it
    assert_int_equal(kv.blocks[b->tables[0].ids[0]].ref, 1);
    assert_int_equal(check2(&kv, a, b), 0);
    kv_destroy(&kv);
}

// ahead: the tokens of the steps in flight. Snapshots of a state are 8 tokens apart.
static struct kv_cache make_groups(int num_blocks, int block_size, int ahead, int num_groups,
                                   const struct kv_group_spec *groups) {
    struct kv_config config = config_of(num_blocks, block_size, true);
    struct kv_cache kv;
    config.num_groups = num_groups;
    config.max_ahead = ahead;
    config.snapshot_tokens = 8;
    memcpy(config.groups, groups, (size_t)num_groups * sizeof *groups);
    assert_int_equal(kv_init(&kv, &config), STATUS_OK);
    number_text();
    return kv;
}

TEST(test_first_kept) {
    assert_int_equal(kv_first_kept(1000, 0, false), 0); // no window
    assert_int_equal(kv_first_kept(63, 1, false), 0);
    assert_int_equal(kv_first_kept(64, 1, false), 64);
    assert_int_equal(kv_first_kept(64, 2, false), 0);
    assert_int_equal(kv_first_kept(146, 20, false), 64); // sees 127-146
    assert_int_equal(kv_first_kept(147, 20, false), 128);
    assert_int_equal(kv_first_seen(99, 20, true), 80); // its chunk is 80-99
    assert_int_equal(kv_first_seen(100, 20, true), 100);
    assert_int_equal(kv_first_kept(127, 64, true), 64);
    assert_int_equal(kv_first_kept(100, 0, true), 0);
}

// Two groups: a window of 20 tokens, and all. A hit is the longest that both serve; of the window it needs what the next
// token sees, and the rest of that tile.
TEST(test_window) {
    const struct kv_group_spec groups[] = {{.kind = KV_WINDOW, .window = 20}, {.kind = KV_FULL}};
    struct kv_cache kv = make_groups(40, 16, 160, 2, groups);
    struct table ta, tb, tc;
    struct kv_seq *a = table_init(&ta), *b = table_init(&tb), *c = table_init(&tc);
    const struct kv_seq *all[] = {a, b, c};
    struct kv_hash root = kv_root(&kv, NULL, 0);
    assert_true(kv_grow(&kv, a, 160));
    kv_publish(&kv, a, root, text, 160);
    kv_trim(&kv, a, 160); // which sees 141-160: token 128 begins the tile
    assert_int_equal(kv.num_free, 40 - 20 + 8);
    assert_true(a->tables[0].first == 8 && a->tables[0].ids[7] == KV_NONE && a->tables[1].first == 0);
    assert_int_equal(kv_match(&kv, b, root, text, 160), 160);
    assert_true(b->tables[0].first == 8 && b->tables[0].ids[8] == a->tables[0].ids[8]);
    assert_true(b->tables[1].first == 0 && b->tables[1].ids[8] == a->tables[1].ids[8]);
    assert_int_equal(check2(&kv, a, b), 0);
    kv_release(&kv, b);

    assert_true(kv_grow(&kv, a, 256));
    kv_publish(&kv, a, root, text, 256);
    kv_trim(&kv, a, 256);
    assert_int_equal(kv_match(&kv, b, root, text, 128), 128); // blocks 4-7 become the youngest
    assert_int_equal(b->tables[0].first, 4);
    kv_release(&kv, b);
    assert_true(kv_grow(&kv, c, 7 * 16)); // blocks 0-3, 8 and 9 of the window are lost
    assert_int_equal(kv.num_evicted, 6);
    assert_int_equal(kv_match(&kv, b, root, text, 160), 128);
    assert_int_equal(kv_check(&kv, all, 3), 0);
    kv_release(&kv, b);
    assert_int_equal(kv_match(&kv, b, root, text, 256), 256);
    assert_int_equal(b->tables[0].first, 12);
    assert_int_equal(kv_check(&kv, all, 3), 0);
    kv_destroy(&kv);
}

// Blocks that do not divide a tile: what kv_pages() says is what a sequence comes to.
TEST(test_window_pages) {
    const struct kv_group_spec window = {.kind = KV_WINDOW, .window = 2};
    struct kv_cache kv = make_groups(3, 48, 16, 1, &window);
    struct table ta;
    struct kv_seq *a = table_init(&ta);
    int most = 0;
    assert_int_equal(kv_pages(&kv.config, CAP * 48), 3);
    for (int n = 0; n < CAP * 48; n += 16) {
        kv_trim(&kv, a, n);
        assert_true(kv_grow(&kv, a, n + 16));
        int held = a->len - a->tables[0].first;
        most = held > most ? held : most;
        assert_int_equal(check2(&kv, a, NULL), 0);
    }
    assert_int_equal(most, 3);
    kv_destroy(&kv);
}

// A reservation counts on no block that another has, too; and what it does count on nobody may share.
TEST(test_reserve) {
    const struct kv_group_spec window = {.kind = KV_WINDOW, .window = 20};
    struct kv_cache kv = make_groups(30, 16, 16, 1, &window);
    struct table ta, tb, tc;
    struct kv_seq *a = table_init(&ta), *b = table_init(&tb), *c = table_init(&tc);
    const struct kv_seq *all[] = {a, b, c};
    struct kv_hash root = kv_root(&kv, NULL, 0);
    assert_int_equal(kv_pages(&kv.config, 256), 8);
    assert_true(kv_grow(&kv, a, 128));
    kv_publish(&kv, a, root, text, 128);
    kv_trim(&kv, a, 128);
    assert_int_equal(kv_match(&kv, b, root, text, 128), 128); // four blocks, which a has, too
    assert_true(kv_reserve(&kv, b, 256));
    assert_int_equal(b->reserved, 8);
    assert_int_equal(kv_check(&kv, all, 3), 0);
    kv_release(&kv, a);
    for (int n = 144; n <= 256; n += 16) {
        assert_true(kv_grow(&kv, b, n));
        kv_publish(&kv, b, root, text, n);
        assert_int_equal(kv_match(&kv, c, root, text, n), n <= 224 ? 128 : 192); // 8-11 were given back
        assert_int_equal(kv_check(&kv, all, 3), 0);
        kv_release(&kv, c);
        kv_trim(&kv, b, n);
    }
    assert_int_equal(b->reserved, 4); // of eight, four are in the table
    assert_int_equal(kv_check(&kv, all, 3), 0);
    kv_destroy(&kv);
}

// One copy of pages, or none.
static void assert_move(struct kv_cache *kv, struct kv_seq *seq, int first, int last, int spare,
                        block_id from, block_id to) {
    struct kv_move moves[KV_SEQ_MOVES];
    assert_int_equal(kv_moves(kv, seq, first, last, spare, moves), from != KV_NONE);
    if (from == KV_NONE)
        return;
    assert_int_equal(moves[0].from, from);
    assert_int_equal(moves[0].to, to != KV_NONE ? to : seq->tables[1].ids[first / kv->config.block_size - 1]);
}

TEST(test_state) {
    const struct kv_group_spec groups[] = {{.kind = KV_FULL}, {.kind = KV_STATE}};
    struct kv_cache kv = make_groups(20, 4, 0, 2, groups);
    struct table ta, tb;
    struct kv_seq *a = table_init(&ta), *b = table_init(&tb);
    assert_int_equal(kv_pages(&kv.config, 100), 25 + 2); // a hit has its snapshot and a page to copy it to
    struct kv_hash root = kv_root(&kv, NULL, 0);
    assert_true(kv_grow(&kv, a, 4));
    block_id live = a->tables[1].live;
    assert_move(&kv, a, 0, 16, 0, KV_NONE, KV_NONE);
    kv_publish(&kv, a, root, text, 4);
    assert_true(kv_grow(&kv, a, 8));
    assert_move(&kv, a, 4, 16, 0, KV_NONE, KV_NONE); // too soon for a snapshot
    kv_publish(&kv, a, root, text, 8);
    assert_true(kv_grow(&kv, a, 12));
    assert_move(&kv, a, 8, 16, kv_available(&kv), KV_NONE, KV_NONE); // no page to spare
    assert_move(&kv, a, 8, 16, kv_available(&kv) - 1, live, KV_NONE);
    block_id snapshot = a->tables[1].ids[1];
    kv_publish(&kv, a, root, text, 8);
    assert_false(kv.blocks[snapshot].published); // its step has not ended
    kv_publish(&kv, a, root, text, 9);
    assert_true(kv.blocks[snapshot].published);
    assert_int_equal(kv_match(&kv, b, root, text, 20), 8);
    assert_true(kv_grow(&kv, b, 12));
    assert_int_equal(check2(&kv, a, b), 0);
    assert_true(b->tables[1].live != live);
    assert_move(&kv, b, 8, 16, 0, snapshot, b->tables[1].live);
    kv_release(&kv, b);

    kv_publish(&kv, a, root, text, 12);
    assert_true(kv_grow(&kv, a, 13));
    assert_move(&kv, a, 12, 12, 0, live, KV_NONE); // where a prompt may end
    kv_publish(&kv, a, root, text, 13);
    assert_true(kv_checkpoint(&kv, a, 13));
    block_id saved = a->tables[1].saved;
    assert_true(kv_grow(&kv, a, 17));
    assert_move(&kv, a, 13, 12, 0, live, saved);
    assert_int_equal(kv_rollback(&kv, a), 13);
    int num_free = kv.num_free;
    kv_trim(&kv, a, 13);
    assert_int_equal(kv.num_free, num_free + 2); // the snapshots
    assert_true(kv_checkpoint(&kv, a, 13));      // it is saved already
    assert_int_equal(a->tables[1].saved, saved);
    assert_move(&kv, a, 13, 12, 0, saved, live);
    assert_int_equal(check2(&kv, a, NULL), 0);
    kv_trim(&kv, a, 14);
    assert_int_equal(a->tables[1].saved, KV_NONE);
    assert_int_equal(kv.num_free, num_free + 3);

    // A snapshot where a step is rolled back to is one of what was saved, not of what drafts left behind.
    struct kv_move moves[KV_SEQ_MOVES];
    assert_true(kv_checkpoint(&kv, a, 16));
    saved = a->tables[1].saved;
    assert_move(&kv, a, 16, 16, kv_available(&kv), live, saved);
    assert_int_equal(kv_rollback(&kv, a), 16);
    assert_int_equal(kv_moves(&kv, a, 16, 16, 0, moves), 2);
    assert_true(moves[0].from == saved && moves[0].to == live);
    assert_true(moves[1].from == saved && moves[1].to == a->tables[1].ids[3]);
    kv_trim(&kv, a, 17);
    assert_true(kv_reserve(&kv, b, 16));
    assert_true(kv_grow(&kv, a, (17 / 4 + 1 + kv_available(&kv)) * 4));
    assert_int_equal(kv.num_free, 5);
    assert_false(kv_checkpoint(&kv, a, 17)); // what is free is promised
    assert_int_equal(check2(&kv, a, b), 0);
    kv_destroy(&kv);
}

// kv_check() names the rule that is broken.
TEST(test_check) {
    struct kv_cache kv = make(6, 2, true);
    struct table ta;
    struct kv_seq *a = table_init(&ta);
    token_id tokens[6] = {1, 2, 3, 4, 5, 6};
    struct kv_hash root = kv_root(&kv, NULL, 0);
    assert_true(kv_grow(&kv, a, 6));
    kv_publish(&kv, a, root, tokens, 4);
    block_id first = a->tables[0].ids[0], last = a->tables[0].ids[2], free_one = kv.free_head;
    assert_int_equal(check2(&kv, a, NULL), 0);
    assert_int_equal(check2(&kv, NULL, NULL), 1); // a reference without a table
    kv.blocks[first].ref++;
    assert_int_equal(check2(&kv, a, NULL), 1);
    kv.blocks[first].ref--;
    a->tables[0].ids[2] = kv.free_head; // a free block in a table
    assert_int_equal(check2(&kv, a, NULL), 1);
    a->tables[0].ids[2] = last;
    a->num_hashed = 1; // the second block is published, and would be written again
    assert_int_equal(check2(&kv, a, NULL), 2);
    a->num_hashed = 2;
    kv.blocks[first].published = false; // in the index all the same
    assert_int_equal(check2(&kv, a, NULL), 3);
    kv.blocks[first].published = true;
    kv.blocks[first].hash.lo ^= 1; // in the wrong bucket
    assert_int_equal(check2(&kv, a, NULL), 3);
    kv.blocks[first].hash.lo ^= 1;
    kv.num_free--;
    assert_int_equal(check2(&kv, a, NULL), 4);
    kv.num_free++;
    block_id next = kv.blocks[free_one].next;
    kv.blocks[next].prev = KV_NONE; // linked one way only
    assert_int_equal(check2(&kv, a, NULL), 4);
    kv.blocks[next].prev = free_one;
    kv.free_head = next; // a block that nobody can reach
    kv.blocks[next].prev = KV_NONE;
    assert_int_equal(check2(&kv, a, NULL), 1);
    kv.free_head = free_one;
    kv.blocks[next].prev = free_one;
    assert_int_equal(check2(&kv, a, NULL), 0);
    kv_destroy(&kv);
}

TEST(test_no_memory) {
    if (SANITIZED)
        skip(); // its allocator ends the process instead
    struct kv_cache kv;
    struct kv_config config = config_of(INT32_MAX, INT32_MAX, true);
    assert_int_equal(kv_init(&kv, &config), STATUS_NOMEM);
    assert_null(kv.blocks);
    assert_null(kv.index);
}

// Many sequences over few distinct tokens, grown, published, dropped at random; the rules hold after each
// call.
TEST(test_random) {
    static const int sizes[] = {1, 4, 16};
    uint64_t x = 1;
    for (int round = 0; round < 30; round++) {
        int bs = sizes[round % 3], hits = 0;
        struct kv_cache kv = make(12, bs, true);
        struct table tables[4];
        const struct kv_seq *all[4];
        token_id tokens[4][CAP * 16];
        int len[4] = {0}, computed[4] = {0};
        struct kv_hash root = kv_root(&kv, NULL, 0);
        for (int i = 0; i < 4; i++)
            all[i] = table_init(&tables[i]);
        for (int step = 0; step < 2000; step++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            int i = (int)(x >> 33) % 4, r = (int)(x >> 40) % 1000;
            struct kv_seq *t = &tables[i].t;
            if (len[i] == 0) {
                len[i] = 1 + r % (6 * bs);
                for (int j = 0; j < len[i]; j++)
                    tokens[i][j] = (j / bs * 7 + r % 2) % 5; // two families
                computed[i] = kv_match(&kv, t, root, tokens[i], len[i] - 1);
                hits += computed[i] > 0;
            } else if (r % 4 == 0 || computed[i] == len[i]) {
                kv_release(&kv, t);
                len[i] = 0;
            } else {
                int to = computed[i] + 1 + r % (len[i] - computed[i]);
                if (kv_grow(&kv, t, to)) {
                    computed[i] = to;
                    kv_publish(&kv, t, root, tokens[i], to);
                    assert_int_equal(t->num_hashed, to / bs);
                }
            }
            assert_int_equal(kv_check(&kv, all, 4), 0);
        }
        assert_true(hits > 0);
        kv_destroy(&kv);
    }
}

int main(void) { return run_all_tests(NULL, NULL); }
