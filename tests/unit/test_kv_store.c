// The store of pages: the checksum, segments in files, what becomes of damage and of full disks, and its threads. Over 600 lines:
// files, damage and threads are one contract.
#include "harness.h"

#include "clock.h"
#include "crc32c.h"
#include "store/page_store.h"
#include "store/segments.h"

#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 16, PAGE = 1000 };

static char dir[64];
static token_id names[SIZE];
static unsigned char page[PAGE];

static void remove_tree(const char *path) {
    char command[256];
    snprintf(command, sizeof command, "rm -rf %s", path);
    assert_int_equal(system(command), 0);
}

// An empty directory of the test's own, in place of the last one's.
static void fresh(void) {
    if (dir[0])
        remove_tree(dir);
    snprintf(dir, sizeof dir, "/tmp/quire-store-XXXXXX");
    assert_non_null(mkdtemp(dir));
}

static int end(void **state) {
    (void)state;
    remove_tree(dir);
    return 0;
}

static struct kv_store_config config_of(int64_t max_bytes, const char *identity) {
    return (struct kv_store_config){
        .dir = dir, .max_bytes = max_bytes, .identity = identity, .block_size = SIZE, .page_bytes = PAGE};
}

static struct segment_store *open_store(int64_t max_bytes) {
    const struct kv_store_config c = config_of(max_bytes, "test");
    struct err err = {0};
    struct segment_store *s = segments_open(&c, &err);
    if (!s)
        fail_msg("%s", err.msg);
    return s;
}

static struct kv_hash hash_of(int i) {
    return (struct kv_hash){(uint64_t)i * 0x9e3779b97f4a7c15u, (uint64_t)i};
}

// Page i of the test: its tokens and bytes follow from i.
static struct kv_transfer transfer_of(int i) {
    for (int k = 0; k < SIZE; k++)
        names[k] = i * 100 + k;
    for (int k = 0; k < PAGE; k++)
        page[k] = (unsigned char)(i + k * 7);
    return (struct kv_transfer){
        .hash = hash_of(i), .parent = (uint64_t)i, .group = i % 2, .tokens = names, .page = page};
}

static enum status write_page(struct segment_store *s, int i) {
    struct err err = {0};
    const struct kv_transfer t = transfer_of(i);
    return segments_write(s, &t, &err);
}

// STATUS_OK only if the bytes are those that were written.
static enum status read_page(struct segment_store *s, int i) {
    struct kv_transfer t = transfer_of(i);
    unsigned char got[PAGE];
    t.page = got;
    memset(got, 0xee, sizeof got);
    enum status st = segments_read(s, &t, NULL);
    assert_true(st != STATUS_OK || memcmp(got, page, PAGE) == 0);
    return st;
}

static int64_t bytes_in(const char *path) {
    int64_t bytes = 0;
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        char name[512];
        struct stat st;
        snprintf(name, sizeof name, "%s/%.200s", path, e->d_name);
        if (e->d_name[0] == '.' || stat(name, &st) != 0)
            continue;
        bytes += S_ISDIR(st.st_mode) ? bytes_in(name) : strcmp(e->d_name, "identity") ? st.st_size : 0;
    }
    if (d)
        closedir(d);
    return bytes;
}

static void path_of(const char *file, char *path, size_t size) {
    const struct kv_cache naming = {.config = {.key = {0, 0}}};
    struct kv_hash h = kv_root(&naming, "test", 4);
    snprintf(path, size, "%s/%016" PRIx64 "%016" PRIx64 "/%s", dir, h.hi, h.lo, file);
}

// RFC 3720, B.4, and Intel's instruction against the tables.
TEST(test_crc32c) {
    unsigned char bytes[300];
    memset(bytes, 0, 32);
    assert_int_equal(crc32c(0, bytes, 32), 0x8a9136aau);
    memset(bytes, 0xff, 32);
    assert_int_equal(crc32c(0, bytes, 32), 0x62a8ab43u);
    for (int i = 0; i < 300; i++)
        bytes[i] = (unsigned char)(i < 32 ? i : i * i);
    assert_int_equal(crc32c(0, bytes, 32), 0x46dd794eu);
    for (size_t n = 0; n <= 300; n++) {
        assert_int_equal(crc32c(0, bytes, n), crc32c_tables(0, bytes, n));
        assert_int_equal(crc32c(crc32c(0, bytes, n / 3), bytes + n / 3, n - n / 3), crc32c(0, bytes, n));
    }
}

TEST(test_pages_outlive_the_process) {
    fresh();
    struct segment_store *s = open_store(1 << 20);
    uint64_t key[2], again[2];
    segments_key(s, key);
    for (int i = 1; i <= 50; i++)
        assert_int_equal(write_page(s, i), STATUS_OK);
    assert_int_equal(write_page(s, 7), STATUS_OK); // is there already
    struct kv_store_stats stats = {0};
    segments_stats(s, &stats);
    assert_int_equal(stats.pages, 50);
    assert_true(stats.writer && stats.bytes == bytes_in(dir) - 16);
    assert_int_equal(stats.bytes, 24 + 50 * (PAGE + 40 + 4 * SIZE)); // none was written twice
    segments_close(s);
    s = open_store(1 << 20);
    segments_key(s, again);
    assert_memory_equal(key, again, sizeof key);
    for (int i = 1; i <= 50; i++) {
        assert_true(segments_has(s, hash_of(i), i % 2));
        assert_false(segments_has(s, hash_of(i), 1 - i % 2)); // another group's
        assert_int_equal(read_page(s, i), STATUS_OK);
        assert_in_range(segments_age(s, hash_of(i), i % 2), 0, 60);
    }
    assert_int_equal(read_page(s, 51), STATUS_INVALID);
    assert_int_equal(segments_age(s, hash_of(51), 1), -1);
    // The same hash with other tokens is no hit, and forgotten.
    struct kv_transfer other = transfer_of(9);
    names[3]++;
    assert_int_equal(segments_read(s, &other, NULL), STATUS_FORMAT);
    assert_false(segments_has(s, hash_of(9), 1));
    assert_int_equal(write_page(s, 9), STATUS_OK);
    assert_int_equal(read_page(s, 9), STATUS_OK);
    segments_close(s);
    struct stat st;
    char path[256];
    snprintf(path, sizeof path, "%s/secret", dir);
    assert_true(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600 && st.st_size == 16);
}

TEST(test_identities_lie_apart) {
    fresh();
    struct segment_store *s = open_store(1 << 20);
    const struct kv_store_config c = config_of(1 << 20, "another model");
    assert_int_equal(write_page(s, 1), STATUS_OK);
    segments_close(s);
    struct segment_store *other = segments_open(&c, NULL);
    assert_non_null(other);
    assert_false(segments_has(other, hash_of(1), 1));
    assert_int_equal(write_page(other, 1), STATUS_OK);
    segments_close(other);
    s = open_store(1 << 20);
    assert_int_equal(read_page(s, 1), STATUS_OK);
    segments_close(s);
}

// DIR never exceeds its bound; what was asked for outlives what was not; other identities give way, too.
TEST(test_bounded) {
    fresh();
    const int64_t most = 100 * (PAGE + 40 + 4 * SIZE);
    const struct kv_store_config c = config_of(most, "another model");
    struct segment_store *s = segments_open(&c, NULL);
    for (int i = 1; i <= 80; i++)
        assert_int_equal(write_page(s, i), STATUS_OK);
    segments_close(s);
    s = open_store(most);
    for (int i = 1; i <= 1000; i++) {
        assert_int_equal(write_page(s, i), STATUS_OK);
        assert_true(bytes_in(dir) - 16 <= most);
        segments_has(s, hash_of(3), 1); // in use all the time
    }
    int kept = 0;
    for (int i = 1; i <= 1000; i++)
        kept += read_page(s, i) == STATUS_OK;
    assert_int_equal(read_page(s, 3), STATUS_OK);
    assert_int_equal(read_page(s, 1000), STATUS_OK);
    assert_int_equal(read_page(s, 4), STATUS_INVALID);
    assert_in_range(kept, 60, 100);
    segments_close(s);
    assert_int_equal(bytes_in(dir) - 16 <= most, 1);
    // A page that is retained is moved once, also by the next process.
    fresh();
    s = open_store(most);
    struct err none = {0};
    struct kv_transfer kept_longer = transfer_of(5000);
    kept_longer.retained = true;
    assert_int_equal(segments_write(s, &kept_longer, &none), STATUS_OK);
    assert_int_equal(write_page(s, 5001), STATUS_OK);
    segments_close(s);
    s = open_store(most);
    int pages = 0;
    for (; pages < 1000 && read_page(s, 5001) == STATUS_OK; pages++) {
        segments_close(s); // what was read is in use, but by a process alone
        s = open_store(most);
        assert_int_equal(write_page(s, pages + 1), STATUS_OK);
    }
    assert_in_range(pages, 60, 110);
    assert_int_equal(read_page(s, 5000), STATUS_OK);
    for (int i = 1000; i < 1100; i++) {
        segments_close(s);
        s = open_store(most);
        assert_int_equal(write_page(s, i), STATUS_OK);
    }
    assert_int_equal(read_page(s, 5000), STATUS_INVALID);
    segments_close(s);
    const struct kv_store_config tiny = config_of(3 * PAGE, "test");
    struct err err = {0};
    assert_null(segments_open(&tiny, &err));
    assert_int_equal(err.code, STATUS_INVALID);
}

// Of a segment with three pages each byte is changed in turn: no wrong byte is ever read, and the other pages are.
TEST(test_damage) {
    fresh();
    static const char *const files[] = {"1.pages", "1.index"};
    struct segment_store *s = open_store(1 << 20);
    for (int i = 1; i <= 3; i++)
        assert_int_equal(write_page(s, i), STATUS_OK);
    segments_close(s);
    for (int f = 0; f < 2; f++) {
        char path[256];
        path_of(files[f], path, sizeof path);
        FILE *file = fopen(path, "r+b");
        assert_non_null(file);
        fseek(file, 0, SEEK_END);
        long size = ftell(file);
        assert_true(size > 3 * 100);
        for (long at = 0; at < size; at += SLOW ? 7 : 1) {
            fseek(file, at, SEEK_SET);
            int was = fgetc(file), good = 0, known = 0;
            fseek(file, at, SEEK_SET);
            fputc(was ^ (1 << at % 8), file);
            fflush(file);
            s = open_store(1 << 20);
            for (int i = 1; i <= 3; i++) {
                known += segments_has(s, hash_of(i), i % 2);
                good += read_page(s, i) == STATUS_OK;
            }
            assert_int_equal(known, f == 0 ? 3 : good);        // pages are looked at when they are read
            assert_int_equal(good, f == 1 && at < 24 ? 0 : 2); // the head: the segment is another format's
            segments_close(s);
            fseek(file, at, SEEK_SET);
            fputc(was, file);
            fflush(file);
        }
        fclose(file);
    }
    s = open_store(1 << 20);
    for (int i = 1; i <= 3; i++)
        assert_int_equal(read_page(s, i), STATUS_OK);
    segments_close(s);
}

// A process was killed while it wrote: whatever the lengths of both files, whole pages are there, and writing goes on.
TEST(test_torn) {
    fresh();
    struct segment_store *s = open_store(1 << 20);
    char pages[256], index[256];
    struct stat a, b;
    for (int i = 1; i <= 3; i++)
        assert_int_equal(write_page(s, i), STATUS_OK);
    segments_close(s);
    path_of("1.pages", pages, sizeof pages);
    path_of("1.index", index, sizeof index);
    assert_true(stat(pages, &a) == 0 && stat(index, &b) == 0);
    for (off_t cut = 1; cut < 330; cut += 13) {
        int whole = 0, known = 0;
        assert_true(truncate(cut % 2 ? pages : index, (cut % 2 ? a.st_size : b.st_size) - cut) == 0);
        s = open_store(1 << 20);
        for (int i = 1; i <= 3; i++) {
            known += segments_has(s, hash_of(i), i % 2);
            whole += read_page(s, i) == STATUS_OK;
        }
        assert_int_equal(known, whole);
        assert_in_range(whole, 0, 2);
        for (int i = 1; i <= 5; i++)
            assert_int_equal(write_page(s, i), STATUS_OK);
        for (int i = 1; i <= 5; i++)
            assert_int_equal(read_page(s, i), STATUS_OK);
        segments_close(s);
        s = open_store(1 << 20);
        for (int i = 1; i <= 5; i++)
            assert_int_equal(read_page(s, i), STATUS_OK);
        segments_close(s);
        remove_tree(dir);
        s = open_store(1 << 20);
        for (int i = 1; i <= 3; i++)
            assert_int_equal(write_page(s, i), STATUS_OK);
        segments_close(s);
    }
}

// One process writes; another reads what it wrote, and writes when it is gone.
TEST(test_two_processes) {
    fresh();
    struct segment_store *first = open_store(1 << 20), *second = open_store(1 << 20);
    assert_int_equal(write_page(first, 1), STATUS_OK);
    assert_int_equal(write_page(second, 2), STATUS_STOPPING);
    assert_false(segments_has(second, hash_of(1), 1));
    segments_refresh(second);
    assert_int_equal(read_page(second, 1), STATUS_OK);
    assert_int_equal(write_page(first, 3), STATUS_OK);
    segments_refresh(second);
    assert_int_equal(read_page(second, 3), STATUS_OK);
    segments_close(first);
    segments_refresh(second);
    assert_int_equal(write_page(second, 2), STATUS_OK);
    for (int i = 1; i <= 3; i++)
        assert_int_equal(read_page(second, i), STATUS_OK);
    segments_close(second);
}

// Others left files in DIR: no wait, no harm outside of it, and writing goes on.
TEST(test_foreign_files) {
    static const char *const made[] = {
        "1.pages", "2.index", "9.pages", "0.index", "007.index", "x.pages", "18446744073709551615.index"};
    fresh();
    char path[256], outside[128];
    struct stat st;
    segments_close(open_store(1 << 20));
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) { // of which 9 was killed before it had an index
        path_of(made[i], path, sizeof path);
        FILE *file = fopen(path, "w");
        assert_true(file && fputs("which is no head of an index at all", file) >= 0 && fclose(file) == 0);
    }
    path_of("3.pages", path, sizeof path);
    assert_int_equal(mkdir(path, 0700), 0);
    path_of("3.index", path, sizeof path);
    assert_int_equal(mkdir(path, 0700), 0);
    path_of("4.pages", path, sizeof path);
    assert_int_equal(mkfifo(path, 0600), 0);
    path_of("4.index", path, sizeof path);
    assert_int_equal(mkfifo(path, 0600), 0);
    snprintf(outside, sizeof outside, "%s/outside", dir);
    assert_int_equal(mkdir(outside, 0700), 0);
    struct segment_store *s = open_store(1 << 20), *reader;
    for (int i = 1; i <= 3; i++)
        assert_int_equal(write_page(s, i), STATUS_OK);
    reader = open_store(1 << 20);
    for (int i = 1; i <= 3; i++)
        assert_int_equal(read_page(reader, i), STATUS_OK);
    path_of("10.pages", path, sizeof path);
    assert_int_equal(stat(path, &st), 0);
    segments_close(reader);
    segments_close(s);
    // Both files of the segment lie elsewhere.
    for (int k = 0; k < 2; k++) {
        char to[256];
        path_of(k ? "10.pages" : "10.index", path, sizeof path);
        snprintf(to, sizeof to, "%s/%d", outside, k);
        assert_true(rename(path, to) == 0 && symlink(to, path) == 0);
    }
    s = open_store(1 << 20);
    assert_int_equal(read_page(s, 1), STATUS_INVALID);
    for (int i = 1; i <= 3000; i++) // all that can be removed goes in time
        assert_int_equal(write_page(s, i), STATUS_OK);
    assert_true(bytes_in(outside) > 3 * PAGE);
    segments_close(s);
    snprintf(path, sizeof path, "%s/secret", dir);
    assert_true(unlink(path) == 0 && mkfifo(path, 0600) == 0);
    const struct kv_store_config c = config_of(1 << 20, "test");
    struct err err = {0};
    assert_null(segments_open(&c, &err));
    assert_int_equal(err.code, STATUS_IO);
}

// The next process has less room.
TEST(test_smaller) {
    for (int much = 20; much <= 340; much += 40) {
        fresh();
        const int64_t each = PAGE + 40 + 4 * SIZE, most = 40 * each;
        struct segment_store *s = open_store(1600 * each);
        for (int i = 1; i <= much; i++)
            assert_int_equal(write_page(s, i), STATUS_OK);
        segments_close(s);
        s = open_store(most);
        assert_true(bytes_in(dir) - 16 <= most);
        for (int i = 1000; i <= 1200; i++) {
            assert_int_equal(write_page(s, i), STATUS_OK);
            assert_true(bytes_in(dir) - 16 <= most);
        }
        assert_int_equal(read_page(s, 1200), STATUS_OK);
        segments_close(s);
    }
}

// Files are cut off while they are open: pages that are lost are asked for once.
TEST(test_cut_off) {
    fresh();
    struct segment_store *s = open_store(1 << 20);
    char path[256];
    for (int i = 1; i <= 6; i++)
        assert_int_equal(write_page(s, i), STATUS_OK);
    path_of("1.pages", path, sizeof path);
    assert_int_equal(truncate(path, 4 * PAGE + 1), 0);
    path_of("1.index", path, sizeof path);
    assert_int_equal(truncate(path, 24 + 2 * (40 + 4 * SIZE) + 5), 0);
    for (int i = 1; i <= 6; i++) {
        assert_int_equal(read_page(s, i), i <= 2 ? STATUS_OK : STATUS_FORMAT);
        assert_true(segments_has(s, hash_of(i), i % 2) == (i <= 2));
    }
    for (int i = 1; i <= 6; i++)
        assert_int_equal(write_page(s, i), STATUS_OK);
    for (int i = 1; i <= 6; i++)
        assert_int_equal(read_page(s, i), STATUS_OK);
    segments_close(s);
}

// How long a store of 100,000 pages takes to open; the pages are a hole.
TEST(test_many_pages) {
    enum { N = 100000 };
    fresh();
    struct segment_store *s = open_store(1ll << 40);
    assert_int_equal(write_page(s, 0), STATUS_OK);
    segments_close(s);
    char path[256];
    path_of("1.pages", path, sizeof path);
    assert_int_equal(truncate(path, (off_t)N * PAGE), 0);
    path_of("1.index", path, sizeof path);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    unsigned char record[40 + 4 * SIZE];
    fseek(file, 24, SEEK_SET);
    assert_int_equal(fread(record, sizeof record, 1, file), 1);
    fseek(file, 0, SEEK_END);
    for (int i = 1; i < N; i++) {
        const struct kv_hash h = hash_of(i);
        uint32_t check;
        memcpy(record + 8, &h, sizeof h);
        check = crc32c(0, record + 4, sizeof record - 4);
        memcpy(record, &check, sizeof check);
        assert_int_equal(fwrite(record, sizeof record, 1, file), 1);
    }
    assert_int_equal(fclose(file), 0);
    int64_t began = clock_now_ns();
    s = open_store(1ll << 40);
    print_message("%d pages of an index are read in %.0f ms\n", N, (double)(clock_now_ns() - began) / 1e6);
    struct kv_store_stats stats = {0};
    segments_stats(s, &stats);
    assert_int_equal(stats.pages, N);
    for (int i = 1; i < N; i++)
        assert_true(segments_has(s, hash_of(i), 0));
    assert_int_equal(read_page(s, N - 2), STATUS_FORMAT);
    assert_int_equal(read_page(s, 0), STATUS_OK);
    segments_close(s);
}

TEST(test_full_disk) {
    fresh();
    struct rlimit was, small = {.rlim_cur = 20 * PAGE, .rlim_max = RLIM_INFINITY};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small.rlim_max = was.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    struct segment_store *s = open_store(1 << 20);
    int written = 0;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (int i = 1; i <= 30; i++)
        written += write_page(s, i) == STATUS_OK;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(written, 20);
    for (int i = 1; i <= 30; i++)
        assert_int_equal(read_page(s, i), i <= 20 ? STATUS_OK : STATUS_INVALID);
    for (int i = 21; i <= 30; i++)
        assert_int_equal(write_page(s, i), STATUS_OK);
    for (int i = 1; i <= 30; i++)
        assert_int_equal(read_page(s, i), STATUS_OK);
    remove_tree(dir); // what is open goes on
    assert_int_equal(read_page(s, 1), STATUS_OK);
    segments_close(s);
    const struct kv_store_config nowhere = {.dir = "/proc/nowhere",
                                            .max_bytes = 1 << 20,
                                            .identity = "test",
                                            .block_size = SIZE,
                                            .page_bytes = PAGE};
    struct err err = {0};
    assert_null(segments_open(&nowhere, &err));
    assert_int_equal(err.code, STATUS_IO);
}

// Pages in memory: as many as there is room for, those in use the longest; the same hash with other tokens is no hit.
TEST(test_memory) {
    const struct page_store_ops *m = &page_store_memory;
    struct kv_store_config c = config_of(10 * (PAGE + 4 * SIZE) + 5, "test");
    struct kv_store_stats stats = {0};
    enum status st;
    c.dir = "memory";
    void *s = m->open(&c, NULL);
    assert_non_null(s);
    for (int i = 1; i <= 200; i++) {
        struct kv_transfer t = transfer_of(i), *one = &t;
        m->write(s, &one, 1, &st, NULL);
        assert_int_equal(st, STATUS_OK);
        m->has(s, hash_of(3), 1); // in use all the time
    }
    int kept = 0;
    for (int i = 1; i <= 200; i++) {
        unsigned char got[PAGE];
        struct kv_transfer t = transfer_of(i), *one = &t;
        t.page = got;
        m->read(s, &one, 1, &st, NULL);
        assert_int_equal(st == STATUS_OK, m->has(s, t.hash, t.group));
        assert_true(st != STATUS_OK || memcmp(got, page, PAGE) == 0);
        kept += st == STATUS_OK;
    }
    assert_int_equal(kept, 10);
    assert_true(m->has(s, hash_of(3), 1) && m->has(s, hash_of(200), 0) && !m->has(s, hash_of(4), 0));
    assert_in_range(m->age(s, hash_of(200), 0), 0, 60);
    m->stats(s, &stats);
    assert_true(stats.pages == 10 && stats.bytes == 10 * (PAGE + 4 * SIZE) && stats.bytes <= stats.max_bytes);
    struct kv_transfer other = transfer_of(200), *one = &other;
    names[0]++;
    m->read(s, &one, 1, &st, NULL);
    assert_int_equal(st, STATUS_FORMAT);
    assert_false(m->has(s, hash_of(200), 0));
    m->close(s);
    c.max_bytes = PAGE;
    struct err err = {0};
    assert_null(m->open(&c, &err));
    assert_int_equal(err.code, STATUS_INVALID);
}

// The threads: what is posted ends, with its bytes, and closing writes what was posted.
TEST(test_threads) {
    fresh();
    const struct kv_store_config c = config_of(1 << 20, "test");
    struct kv_store *s = kv_store_open(&c, NULL);
    enum { N = 40 };
    static struct kv_transfer transfers[N];
    static token_id tokens[N][SIZE];
    static unsigned char pages[N][PAGE];
    assert_non_null(s);
    for (int i = 0; i < N; i++) {
        transfers[i] = transfer_of(i);
        memcpy(tokens[i], names, sizeof names);
        memcpy(pages[i], page, sizeof page);
        transfers[i].tokens = tokens[i];
        transfers[i].page = pages[i];
        transfers[i].kind = KV_WRITE;
        kv_store_post(s, &transfers[i]);
    }
    kv_store_close(s);
    s = kv_store_open(&c, NULL);
    for (int i = 0; i < N; i++) {
        assert_true(transfers[i].good);
        memset(pages[i], 0, sizeof pages[i]);
        transfers[i].kind = KV_READ;
        transfers[i].good = false;
        assert_true(kv_store_has(s, transfers[i].hash, transfers[i].group));
        kv_store_post(s, &transfers[i]);
    }
    for (int i = 0; i < N; i++) {
        struct kv_transfer *t = kv_store_wait(s);
        int at = (int)(t - transfers);
        transfer_of(at);
        assert_true(t->good && memcmp(t->page, page, PAGE) == 0);
    }
    assert_null(kv_store_take(s));
    struct kv_store_stats stats;
    kv_store_stats(s, &stats);
    assert_true(stats.reads == N && stats.writes == 0 && stats.corrupt == 0);
    kv_store_close(s);
}

// A process that reads finds new pages within a second, however much is asked of it, and becomes the one that writes.
TEST(test_busy_reader) {
    fresh();
    const struct kv_store_config c = config_of(1 << 20, "test");
    struct segment_store *writer = open_store(1 << 20);
    struct kv_store *s = kv_store_open(&c, NULL);
    struct kv_store_stats stats;
    assert_non_null(s);
    assert_int_equal(write_page(writer, 1), STATUS_OK);
    for (int64_t end = clock_now_ns() + 60000000000; writer;) {
        struct kv_transfer t = transfer_of(2);
        t.kind = KV_WRITE;
        kv_store_post(s, &t);
        assert_ptr_equal(kv_store_wait(s), &t);
        if (kv_store_has(s, hash_of(1), 1)) {
            assert_false(t.good);
            segments_close(writer);
            writer = NULL;
        }
        assert_true(clock_now_ns() < end);
    }
    for (int64_t end = clock_now_ns() + 60000000000;;) {
        struct kv_transfer t = transfer_of(2);
        t.kind = KV_WRITE;
        kv_store_post(s, &t);
        assert_ptr_equal(kv_store_wait(s), &t);
        assert_true(clock_now_ns() < end);
        if (t.good)
            break;
    }
    kv_store_stats(s, &stats);
    assert_true(stats.writer && stats.writes == 1 && stats.failed == 0);
    kv_store_close(s);
}

static atomic_bool gone, told_late;
static atomic_int num_told;

static void tell(void *arg) {
    const struct timespec moment = {.tv_nsec = 20000000};
    num_told += arg == &gone;
    nanosleep(&moment, NULL); // in which its owner may go
    told_late = told_late || gone;
}

// The one that is told of transfers may go while the store stays.
TEST(test_notify_ends) {
    fresh();
    const struct kv_store_config c = config_of(1 << 20, "test");
    struct kv_store *s = kv_store_open(&c, NULL);
    assert_non_null(s);
    gone = false;
    kv_store_notify(s, tell, &gone);
    for (int i = 1; i <= 3; i++) {
        struct kv_transfer t = transfer_of(i);
        t.kind = KV_WRITE;
        kv_store_post(s, &t);
        assert_ptr_equal(kv_store_wait(s), &t);
    }
    kv_store_notify(s, NULL, NULL);
    gone = true;
    struct kv_transfer t = transfer_of(4);
    t.kind = KV_WRITE;
    kv_store_post(s, &t);
    assert_ptr_equal(kv_store_wait(s), &t);
    kv_store_close(s);
    assert_true(num_told == 3 && !told_late);
}

int main(void) { return run_all_tests(NULL, end); }
