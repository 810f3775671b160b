// Any bytes as the index, or as the pages, of a segment of the store, whole or in a sound one: an answer, and no page is read whose
// checksum does not hold. Then the store writes on. The first byte says which file, and whether it ends behind the bytes, and the
// checksums of an index are made right; the next two say where the bytes lie.
#include "store/segments.h"

#include "crc32c.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INDEX, PAGES, NUM_FILES };
enum { SIZE = 4, PAGE = 32, NUM = 3, HEAD = 24, RECORD = 40 + 4 * SIZE };

static char folder[] = "/dev/shm/quire-fuzz-XXXXXX", place[80], paths[NUM_FILES][96];
static const struct kv_store_config config = {
    .dir = folder, .max_bytes = 1 << 16, .identity = "fuzz", .block_size = SIZE, .page_bytes = PAGE};
static unsigned char sound[NUM_FILES][HEAD + NUM * RECORD + NUM * PAGE];
static size_t sizes[NUM_FILES];

static void write_file(int which, const void *data, size_t size) {
    FILE *f = fopen(paths[which], "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0)
        abort();
}

static struct kv_transfer transfer_of(int i, token_id *names, unsigned char *page) {
    for (int k = 0; k < SIZE; k++)
        names[k] = 10 * i + k;
    memset(page, 'a' + i, PAGE);
    return (struct kv_transfer){
        .hash = {(uint64_t)i, 7}, .parent = 1, .group = i % 2, .tokens = names, .page = page};
}

static void remove_all(void) {
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command) != 0)
        abort();
}

// The sound files are those of a store that wrote NUM pages.
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    static const char *const names[NUM_FILES] = {"1.index", "1.pages"};
    const struct kv_cache naming = {.config = {.key = {0, 0}}};
    const struct kv_hash name = kv_root(&naming, config.identity, strlen(config.identity));
    token_id ids[SIZE];
    unsigned char page[PAGE];
    (void)argc;
    (void)argv;
    if (!mkdtemp(folder))
        abort();
    atexit(remove_all);
    struct segment_store *s = segments_open(&config, NULL);
    for (int i = 0; s && i < NUM; i++) {
        const struct kv_transfer t = transfer_of(i, ids, page);
        if (segments_write(s, &t, NULL) != STATUS_OK)
            abort();
    }
    segments_close(s);
    snprintf(place, sizeof place, "%s/%016" PRIx64 "%016" PRIx64, folder, name.hi, name.lo);
    for (int i = 0; i < NUM_FILES; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%s", place, names[i]);
        FILE *f = fopen(paths[i], "rb");
        if (!f || (sizes[i] = fread(sound[i], 1, sizeof sound[i], f)) == 0 || fclose(f) != 0)
            abort();
    }
    return 0;
}

// A record that is made right may give a page another's hash and tokens.
static bool is_page(const unsigned char *got) {
    for (int k = 1; k < PAGE; k++)
        if (got[k] != got[0])
            return false;
    return got[0] >= 'a' && got[0] <= 'a' + NUM;
}

// Reads pages 0 to NUM: those that are there, or all.
static void read_all_pages(struct segment_store *s, bool all) {
    for (int i = 0; i <= NUM; i++) {
        token_id ids[SIZE];
        unsigned char want[PAGE], got[PAGE];
        struct kv_transfer t = transfer_of(i, ids, want);
        t.page = got;
        enum status st = segments_read(s, &t, NULL);
        if (st == STATUS_OK ? !is_page(got) : segments_has(s, t.hash, t.group) || all)
            abort();
    }
}

static void set_check(unsigned char *at, size_t size) {
    const uint32_t check = crc32c(0, at + sizeof check, size - sizeof check);
    memcpy(at, &check, sizeof check);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static unsigned char bytes[1 << 17];
    char path[128];
    if (size < 3 || size > sizeof bytes / 4)
        return 0;
    const int which = data[0] % NUM_FILES;
    const size_t at = (data[1] + 256u * data[2]) % (sizes[which] + 1), end = at + size - 3;
    const size_t length = data[0] & 2 || end > sizes[which] ? end : sizes[which];
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, sound[which], sizes[which]);
    memcpy(bytes + at, data + 3, size - 3);
    if (data[0] & 4 && which == INDEX) {
        set_check(bytes + 8, HEAD - 8);
        for (size_t i = HEAD; i < length; i += RECORD)
            set_check(bytes + i, RECORD);
    }
    write_file(which, bytes, length);
    write_file(1 - which, sound[1 - which], sizes[1 - which]);
    struct segment_store *s = segments_open(&config, NULL);
    if (!s)
        abort();
    read_all_pages(s, false);
    for (int i = 0; i <= NUM; i++) {
        token_id ids[SIZE];
        unsigned char page[PAGE];
        const struct kv_transfer t = transfer_of(i, ids, page);
        if (segments_write(s, &t, NULL) != STATUS_OK)
            abort();
    }
    read_all_pages(s, true);
    struct kv_store_stats stats = {0};
    segments_stats(s, &stats);
    segments_close(s);
    if (stats.pages < NUM + 1 || stats.bytes > config.max_bytes)
        abort();
    for (int n = 1; n < 4; n++)
        for (int k = 0; k < 2; k++) {
            snprintf(path, sizeof path, "%s/%d.%s", place, n, k ? "index" : "pages");
            unlink(path);
        }
    return 0;
}
