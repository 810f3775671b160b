// The map of ids against an array, with ids that share their places in it.
#include "harness.h"

#include "id_map.h"

enum { NUM_IDS = 600, NUM_TURNS = 200000 };

static uint64_t id_of(int i) { return (uint64_t)i << (i % 3 ? 0 : 33); }

TEST(test_random) {
    static const size_t rooms[] = {0, NUM_IDS}; // grows, and never grows
    for (size_t k = 0; k < 2; k++) {
        struct id_map map;
        char values[NUM_IDS], *want[NUM_IDS] = {NULL};
        uint32_t seed = 7;
        size_t num = 0;
        assert_true(id_map_open(&map, rooms[k]));
        size_t mask = map.mask;
        for (int turn = 0; turn < NUM_TURNS; turn++) {
            seed = seed * 1664525 + 1013904223;
            int i = (int)(seed >> 8) % NUM_IDS;
            bool add = (seed >> 4 & 7) < (turn / (NUM_TURNS / 8) % 2 ? 3u : 6u); // fills up, and empties
            assert_ptr_equal(id_map_get(&map, id_of(i)), want[i]);
            num += add && !want[i];
            num -= !add && want[i];
            if (add)
                // Keeps the first.
                assert_true(id_map_put(&map, id_of(i), want[i] ? (void *)&seed : (void *)&values[i]));
            else
                id_map_remove(&map, id_of(i));
            want[i] = add ? &values[i] : NULL;
            assert_int_equal(map.num, num);
        }
        for (int i = 0; i < NUM_IDS; i++)
            assert_ptr_equal(id_map_get(&map, id_of(i)), want[i]);
        assert_true(k == 0 ? map.mask > mask : map.mask == mask);
        id_map_close(&map);
    }
}

int main(void) { return run_all_tests(NULL, NULL); }
