// The store of responses with a folder: opened again and again, against a list of what must be there; and every byte of a
// file damaged.
#include "dialects/response_files.h"
#include "dialects/response_store.h"
#include "harness.h"
#include "log.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/quire-responses-XXXXXX";

static void ended(struct buf *body, struct buf *events) {
    buf_lit(body, " ended");
    buf_lit(events, "!");
}

static struct response_store *open_store(size_t max) {
    struct err err = {0};
    struct response_store *s = response_store_new(max);
    assert_non_null(s);
    assert_int_equal(response_store_open(s, folder, &err), STATUS_OK);
    response_store_load(s, ended);
    return s;
}

static int count_files(void) {
    int n = -3; // ".", ".." and the lock
    DIR *d = opendir(folder);
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static struct buf text_of(const char *s) {
    return (struct buf){.data = (char *)(uintptr_t)s, .len = strlen(s)};
}

static void put(struct response_store *s, const uint8_t *owner, const char *id, const char *body,
                const char *items, const char *events, enum stored_as as) {
    struct buf b = text_of(body), i = text_of(items), e = text_of(events);
    response_store_put(s, owner, id, &b, &i, &e, as);
}

static bool has(struct response_store *s, const uint8_t *owner, const char *id, const char *body,
                const char *items, const char *events) {
    struct buf got[3] = {{0}};
    const char *want[] = {body, items, events};
    bool same = response_store_get(s, owner, id, &got[0], &got[1], &got[2]);
    for (int i = 0; i < 3; i++) {
        same = same && got[i].len == strlen(want[i]) &&
               memcmp(got[i].data ? got[i].data : "", want[i], got[i].len) == 0;
        buf_free(&got[i]);
    }
    return same;
}

// Random puts, deletes and restarts; some changes are not saved before the next are made, and one save is for all.
TEST(a_restart_changes_nothing) {
    enum { IDS = 12, OWNERS = 2, STEPS = 600, SIZE = 48, MAX = IDS * OWNERS * (3 * SIZE + 256) };
    uint8_t owners[OWNERS][SHA256_BYTES] = {{1}, {2}};
    char bodies[OWNERS][IDS][SIZE] = {{{0}}}; // "": none
    struct response_store *s = open_store(MAX);
    srand(5);
    for (int step = 0; step < STEPS; step++) {
        int o = rand() % OWNERS, k = rand() % IDS, what = rand() % 10;
        char id[16];
        snprintf(id, sizeof id, "resp_%d", k);
        if (what < 6) {
            snprintf(bodies[o][k], SIZE, "%d.%d", step, rand());
            put(s, owners[o], id, bodies[o][k], id, step % 3 ? bodies[o][k] : "", STORED_WHOLE);
            bodies[o][k][SIZE - 1] = step % 3 == 0; // without events
        } else if (what < 8) {
            assert_int_equal(response_store_delete(s, owners[o], id), bodies[o][k][0] != 0);
            memset(bodies[o][k], 0, SIZE);
        }
        if (what % 2)
            assert_int_equal(response_store_save(s, owners[o], id), bodies[o][k][0] != 0);
        if (what == 9) {
            response_store_save(s, owners[o], id);
            response_store_free(s);
            s = open_store(MAX);
        }
        int num = 0;
        for (int a = 0; a < OWNERS; a++)
            for (int b = 0; b < IDS; b++) {
                snprintf(id, sizeof id, "resp_%d", b);
                const char *body = bodies[a][b];
                bool there = *body, bare = body[SIZE - 1];
                num += there;
                assert_int_equal(has(s, owners[a], id, body, id, bare ? "" : body), there);
            }
        if (what == 9)
            assert_int_equal(count_files(), num);
    }
    response_store_free(s);
    s = open_store(3 * 400); // less room than before: the newest
    struct response_counts c = response_store_counts(s);
    assert_true(c.num >= 3 && c.bytes <= 3 * 400 && c.has_files && c.skipped == 0);
    assert_int_equal(count_files(), c.num);
    response_store_free(s);
}

TEST(the_newest_of_a_restart_stay) {
    uint8_t owner[SHA256_BYTES] = {9};
    struct response_store *s = open_store(1 << 20);
    char id[16];
    for (int i = 0; i < 20; i++) {
        snprintf(id, sizeof id, "resp_n%d", i);
        put(s, owner, id, "body", "items", "", STORED_WHOLE);
        assert_true(response_store_save(s, owner, id));
    }
    response_store_free(s);
    s = open_store(5 * (4 + 5 + 256));
    put(s, owner, "resp_n20", "body", "items", "", STORED_WHOLE); // the sixth: it is newer than what was read
    assert_true(response_store_save(s, owner, "resp_n20"));
    for (int i = 0; i < 21; i++) {
        snprintf(id, sizeof id, "resp_n%d", i);
        assert_int_equal(has(s, owner, id, "body", "items", ""), i > 15);
    }
    assert_int_equal(count_files(), 5);
    response_store_free(s);
    s = open_store(2 * (4 + 5 + 256));
    assert_true(has(s, owner, "resp_n19", "body", "items", "") &&
                has(s, owner, "resp_n20", "body", "items", ""));
    response_store_free(s);
    s = open_store(1 << 20);
    for (int i = 19; i < 21; i++) {
        snprintf(id, sizeof id, "resp_n%d", i);
        assert_true(response_store_delete(s, owner, id));
    }
    response_store_save(s, owner, "");
    assert_int_equal(count_files(), 0);
    response_store_free(s);
}

TEST(an_unfinished_one_has_ended) {
    uint8_t owner[SHA256_BYTES] = {3};
    for (int again = 0; again < 3; again++) {
        struct response_store *s = open_store(1 << 16);
        if (again == 0) {
            put(s, owner, "resp_a", "body", "items", "events", STORED_UNFINISHED);
            assert_true(response_store_save(s, owner, "resp_a"));
            assert_true(has(s, owner, "resp_a", "body", "items", "events"));
        } else {
            assert_true(has(s, owner, "resp_a", "body ended", "items", "events!"));
        }
        response_store_free(s);
    }
}

TEST(without_events_where_they_do_not_fit) {
    uint8_t owner[SHA256_BYTES] = {4};
    struct response_store *s = response_store_new(300);
    char large[200];
    memset(large, 'x', sizeof large - 1);
    large[sizeof large - 1] = 0;
    put(s, owner, "resp_a", "body", "items", large, STORED_WHOLE);
    assert_true(has(s, owner, "resp_a", "body", "items", ""));
    put(s, owner, "resp_a", large, "items", "", STORED_WHOLE);
    assert_false(response_store_get(s, owner, "resp_a", NULL, NULL, NULL));
    response_store_free(s);
}

TEST(every_byte_counts) {
    uint8_t owner[SHA256_BYTES] = {5};
    struct response_store *s = open_store(1 << 16);
    response_store_delete(s, owner, "resp_a");
    put(s, owner, "resp_b", "the body", "items", "e", STORED_WHOLE);
    assert_true(response_store_save(s, owner, "resp_b"));
    response_store_free(s);
    char path[400] = "";
    DIR *d = opendir(folder);
    for (struct dirent *e; (e = readdir(d));)
        if (strlen(e->d_name) == 2 * SHA256_BYTES + strlen(".response")) {
            struct stat st;
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
            assert_int_equal(stat(path, &st), 0);
            if (st.st_size == 8 + 72 + 32 + 14)
                break;
        }
    closedir(d);
    char whole[8 + 72 + 32 + 14];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(whole, 1, sizeof whole, f), sizeof whole);
    fclose(f);
    for (size_t i = 0; i <= 2 * sizeof whole; i++) { // a byte changed; the end cut off; as it was
        bool cut = i >= sizeof whole && i < 2 * sizeof whole;
        f = fopen(path, "wb");
        char bad[sizeof whole];
        memcpy(bad, whole, sizeof whole);
        if (i < sizeof whole)
            bad[i] = (char)(bad[i] ^ 1 << i % 8);
        fwrite(bad, 1, cut ? i - sizeof whole : sizeof whole, f);
        fclose(f);
        s = open_store(1 << 16);
        assert_int_equal(has(s, owner, "resp_b", "the body", "items", "e"), i == 2 * sizeof whole);
        assert_int_equal(response_store_counts(s).skipped, i != 2 * sizeof whole);
        response_store_free(s);
    }
}

TEST(one_at_a_time) {
    struct err err = {0};
    struct response_store *first = open_store(1000), *second = response_store_new(1000);
    assert_int_equal(response_store_open(second, folder, &err), STATUS_IO);
    assert_non_null(strstr(err.msg, "another server has it"));
    assert_false(response_store_waits(second));
    response_store_free(second);
    response_store_free(first);
    response_store_free(open_store(1000));
}

static int make(void **state) {
    (void)state;
    log_set_level(LOG_ERROR);
    return mkdtemp(folder) ? 0 : 1;
}

static int clean(void **state) {
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

int main(void) { return run_all_tests(make, clean); }
