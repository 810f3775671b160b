// Segments and their table; segments.h has the files. Over 600 lines: writing, dropping and reading share one set of rules.
#include "segments.h"

#include "crc32c.h"
#include "log.h"
#include "page_store.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian, and so is what we run on");

// The smallest store; segments are this part of it.
enum { MIN_PAGES = 4, SEGMENTS = 16, NAME = 64 };
enum { RETAINED = 1 << 8 }; // in the group of a record: the page counts as asked for once
// Of a segment, and the last one's number: what others made beyond is none of ours.
enum { MAX_PAGES = 1 << 24 };
static const uint64_t MAX_NUMBER = 1ull << 62;

static const char magic[8] = "QUIREKV1";

struct index_head {
    char magic[8];
    uint32_t check, block_size; // check: of what follows
    uint64_t page_bytes;
};

// Its tokens follow.
struct index_record {
    uint32_t check, page_check; // of what follows, tokens included; of the page
    uint64_t lo, hi, parent;
    uint32_t group, when; // with RETAINED; seconds since 1970
};

struct page_segment {
    uint64_t number;
    int pages, index; // files
    int count;        // pages whose records are whole
    int readers;
    bool gone; // dropped: the last reader closes it
    struct page_segment *next;
};

struct stored_page {
    struct kv_hash hash;
    struct page_segment *segment; // NULL: a free place
    uint32_t slot, when;
    uint8_t group;
    bool used; // asked for since it was written
    bool dead; // damaged
};

struct segment_store {
    char *dir, *place; // DIR; DIR/IDENTITY
    uint64_t key[2];
    int block_size;
    size_t page_bytes, record_bytes;
    int64_t max_bytes, segment_bytes;
    int capacity; // pages of a segment
    int lock_file;
    unsigned char *record; // (record_bytes) of the thread that writes

    pthread_mutex_t lock; // all below
    struct page_segment *first, *last;
    struct stored_page *table; // (mask + 1) open addressing by hash
    size_t mask, num;          // places, of which so many are taken
    int64_t bytes;             // of all files in DIR
    bool writer;
};

// ---- the table

static size_t home_of(const struct segment_store *s, struct kv_hash h, int group) {
    return (size_t)(h.lo + (uint64_t)group * 0x9e3779b97f4a7c15u) & s->mask;
}

// The page's place, or the free one where it belongs.
static struct stored_page *place_of(const struct segment_store *s, struct kv_hash h, int group) {
    size_t i = home_of(s, h, group);
    for (; s->table[i].segment; i = (i + 1) & s->mask)
        if (s->table[i].hash.lo == h.lo && s->table[i].hash.hi == h.hi && s->table[i].group == group)
            break;
    return &s->table[i];
}

// A table of 2^n places without the pages of `dropped`. False: out of memory, and nothing changes.
static bool rebuild(struct segment_store *s, size_t size, const struct page_segment *dropped) {
    struct stored_page *old = s->table;
    size_t old_size = old ? s->mask + 1 : 0;
    struct stored_page *table = calloc(size, sizeof *table);
    if (!table)
        return false;
    s->table = table;
    s->mask = size - 1;
    s->num = 0;
    for (size_t i = 0; i < old_size; i++)
        if (old[i].segment && old[i].segment != dropped) {
            *place_of(s, old[i].hash, old[i].group) = old[i];
            s->num++;
        }
    free(old);
    return true;
}

// The newer of two equal pages stays.
static bool insert_page(struct segment_store *s, const struct stored_page *page) {
    if (2 * s->num > s->mask && !rebuild(s, 2 * (s->mask + 1), NULL))
        return false;
    struct stored_page *at = place_of(s, page->hash, page->group);
    s->num += !at->segment;
    *at = *page;
    return true;
}

// ---- segments

static off_t record_at(const struct segment_store *s, int slot) {
    return (off_t)sizeof(struct index_head) + (off_t)slot * (off_t)s->record_bytes;
}

static void close_segment(struct page_segment *seg) {
    if (seg->pages >= 0)
        close(seg->pages);
    if (seg->index >= 0)
        close(seg->index);
    free(seg);
}

// Under lock: forgets a segment and its pages.
static void forget_segment(struct segment_store *s, struct page_segment *seg) {
    struct page_segment **at = &s->first, *prev = NULL;
    for (; *at != seg; at = &(*at)->next)
        prev = *at;
    *at = seg->next;
    if (s->last == seg)
        s->last = prev;
    if (!rebuild(s, s->mask + 1, seg)) // without memory its pages are dead instead
        for (size_t i = 0; i <= s->mask; i++)
            s->table[i].dead |= s->table[i].segment == seg;
    seg->gone = true;
    if (seg->readers == 0)
        close_segment(seg);
}

// False with errno 0: the file ends before.
static bool read_all(int fd, void *data, size_t n, off_t at) {
    for (ssize_t got; n > 0; n -= (size_t)got, at += got, data = (char *)data + got)
        if ((got = pread(fd, data, n, at)) <= 0) {
            if (got == 0)
                errno = 0;
            if (got == 0 || errno != EINTR)
                return false;
            got = 0;
        }
    return true;
}

static bool write_all(int fd, const void *data, size_t n, off_t at) {
    for (ssize_t put; n > 0; n -= (size_t)put, at += put, data = (const char *)data + put)
        if ((put = pwrite(fd, data, n, at)) < 0) {
            if (errno != EINTR)
                return false;
            put = 0;
        }
    return true;
}

static uint32_t record_check(const struct segment_store *s, const void *record) {
    const size_t behind = sizeof(uint32_t);
    return crc32c(0, (const char *)record + behind, s->record_bytes - behind);
}

// Takes what the index of a segment has behind the pages that are known. Torn or damaged records leave a page unknown; the
// last one may be on its way still.
static void read_index(struct segment_store *s, struct page_segment *seg) {
    enum { AT_ONCE = 1024 };
    struct stat pages, index;
    unsigned char *block = malloc((size_t)AT_ONCE * s->record_bytes);
    if (!block || fstat(seg->pages, &pages) != 0 || fstat(seg->index, &index) != 0) {
        free(block);
        return;
    }
    int64_t whole = (index.st_size - (off_t)sizeof(struct index_head)) / (off_t)s->record_bytes;
    int64_t have = pages.st_size / (off_t)s->page_bytes;
    int64_t both = whole < have ? whole : have;
    int end = both < MAX_PAGES ? (int)both : MAX_PAGES, known;
    while ((known = seg->count) < end) {
        int n = end - known < AT_ONCE ? end - known : AT_ONCE;
        if (!read_all(seg->index, block, (size_t)n * s->record_bytes, record_at(s, known)))
            break;
        pthread_mutex_lock(&s->lock);
        for (int i = 0; i < n; i++) {
            struct index_record r;
            const unsigned char *at = block + (size_t)i * s->record_bytes;
            memcpy(&r, at, sizeof r);
            if (r.check == record_check(s, at) && (r.group & ~(uint32_t)RETAINED) < KV_MAX_GROUPS)
                insert_page(s, &(struct stored_page){.hash = {r.lo, r.hi},
                                                     .segment = seg,
                                                     .slot = (uint32_t)(known + i),
                                                     .when = r.when,
                                                     .group = (uint8_t)r.group,
                                                     .used = r.group & RETAINED});
        }
        seg->count += n;
        pthread_mutex_unlock(&s->lock);
    }
    free(block);
}

static void segment_path(const struct segment_store *s, char *path, size_t size, uint64_t number,
                         const char *kind) {
    snprintf(path, size, "%s/%" PRIu64 ".%s", s->place, number, kind);
}

// A regular file, or -1: never waits for the other end of a pipe, nor leaves DIR by a link.
static int open_regular(const char *path, int flags) {
    struct stat st;
    int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd >= 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))) {
        close(fd);
        errno = EINVAL;
        return -1;
    }
    return fd;
}

// Opens the files of a segment; where `make`, new ones. NULL: they are not there, or another format.
static struct page_segment *open_segment(struct segment_store *s, uint64_t number, bool make) {
    char path[4096];
    struct page_segment *seg = calloc(1, sizeof *seg);
    struct index_head head = {.block_size = (uint32_t)s->block_size, .page_bytes = s->page_bytes}, found;
    const int flags = (s->writer ? O_RDWR : O_RDONLY) | (make ? O_CREAT | O_EXCL : 0);
    if (!seg)
        return NULL;
    memcpy(head.magic, magic, sizeof magic);
    head.check = crc32c(0, &head.block_size, sizeof head - offsetof(struct index_head, block_size));
    seg->number = number;
    segment_path(s, path, sizeof path, number, "pages");
    seg->pages = open_regular(path, flags);
    segment_path(s, path, sizeof path, number, "index");
    seg->index = seg->pages < 0 ? -1 : open_regular(path, flags);
    bool good = seg->index >= 0;
    if (good && make)
        good = write_all(seg->index, &head, sizeof head, 0);
    else if (good)
        good = read_all(seg->index, &found, sizeof found, 0) && memcmp(&head, &found, sizeof head) == 0;
    if (good)
        return seg;
    int error = errno;
    if (make && seg->index >= 0)
        unlink(path);
    segment_path(s, path, sizeof path, number, "pages");
    if (make && seg->pages >= 0)
        unlink(path);
    close_segment(seg);
    errno = error;
    return NULL;
}

static void add_segment(struct segment_store *s, struct page_segment *seg) {
    struct page_segment **at = &s->first;
    while (*at && (*at)->number < seg->number)
        at = &(*at)->next;
    seg->next = *at;
    *at = seg;
    if (!seg->next)
        s->last = seg;
}

static struct page_segment *find_segment(const struct segment_store *s, uint64_t number) {
    struct page_segment *seg = s->first;
    while (seg && seg->number != number)
        seg = seg->next;
    return seg;
}

// ---- the directory

// N of a file N.kind; false: it has another name.
static bool file_number(const char *name, const char *kind, uint64_t *number) {
    char *end, want[NAME];
    errno = 0;
    *number = strtoull(name, &end, 10);
    if (errno != 0 || end == name || *name == '0' || *end != '.' || strcmp(end + 1, kind) != 0 ||
        *number > MAX_NUMBER)
        return false;
    snprintf(want, sizeof want, "%" PRIu64 ".%s", *number, kind);
    return strcmp(want, name) == 0;
}

static bool is_identity(const char *name) {
    return strlen(name) == 32 && strspn(name, "0123456789abcdef") == 32;
}

// The oldest segment of any identity, but for `keep`.
struct oldest {
    char place[4096];
    uint64_t number;
    struct timespec when;
    bool found;
};

static bool earlier(const struct timespec *a, const struct timespec *b) {
    return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

// Adds up the segments of one identity.
static int64_t walk_place(const struct segment_store *s, const char *place, const struct page_segment *keep,
                          struct oldest *oldest) {
    int64_t bytes = 0;
    DIR *d = opendir(place);
    bool own = strcmp(place, s->place) == 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        uint64_t number;
        if ((!file_number(e->d_name, "pages", &number) && !file_number(e->d_name, "index", &number)) ||
            fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
            continue;
        bytes += st.st_size;
        if (!oldest || (own && keep && keep->number == number))
            continue;
        bool first = !oldest->found || earlier(&st.st_mtim, &oldest->when) ||
                     (!earlier(&oldest->when, &st.st_mtim) && number < oldest->number);
        if (first) {
            *oldest = (struct oldest){.number = number, .when = st.st_mtim, .found = true};
            snprintf(oldest->place, sizeof oldest->place, "%s", place);
        }
    }
    if (d)
        closedir(d);
    return bytes;
}

// Bytes of all segments in DIR.
static int64_t walk_dir(const struct segment_store *s, const struct page_segment *keep,
                        struct oldest *oldest) {
    int64_t bytes = 0;
    DIR *d = opendir(s->dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        char place[4096];
        if (!is_identity(e->d_name))
            continue;
        snprintf(place, sizeof place, "%.3900s/%.32s", s->dir, e->d_name);
        bytes += walk_place(s, place, keep, oldest);
    }
    if (d)
        closedir(d);
    return bytes;
}

// Behind all segments of this identity, and what is left of any.
static uint64_t next_number(const struct segment_store *s) {
    uint64_t last = s->last ? s->last->number : 0, number;
    DIR *d = opendir(s->place);
    for (struct dirent *e; d && (e = readdir(d));)
        if ((file_number(e->d_name, "pages", &number) || file_number(e->d_name, "index", &number)) &&
            number > last)
            last = number;
    if (d)
        closedir(d);
    return last + 1;
}

static void set_bytes(struct segment_store *s, int64_t bytes) {
    pthread_mutex_lock(&s->lock);
    s->bytes = bytes;
    pthread_mutex_unlock(&s->lock);
}

static bool remove_files(const char *place, uint64_t number) {
    char path[4200];
    snprintf(path, sizeof path, "%s/%" PRIu64 ".index", place, number);
    bool ok = unlink(path) == 0 || errno == ENOENT; // first: pages without an index are nobody's
    snprintf(path, sizeof path, "%s/%" PRIu64 ".pages", place, number);
    return (unlink(path) == 0 || errno == ENOENT) && ok;
}

// ---- writing

// Writes a record's head, checksum included, into s->record, where its tokens are.
static void seal_record(struct segment_store *s, struct index_record *r) {
    memcpy(s->record, r, sizeof *r);
    r->check = record_check(s, s->record);
    memcpy(s->record, r, sizeof *r);
}

// Appends a page whose record is in s->record.
static bool append_page(struct segment_store *s, struct page_segment *seg, const void *page) {
    struct index_record r;
    int slot = seg->count;
    memcpy(&r, s->record, sizeof r);
    if (!write_all(seg->pages, page, s->page_bytes, (off_t)slot * (off_t)s->page_bytes) ||
        !write_all(seg->index, s->record, s->record_bytes, record_at(s, slot)))
        return false;
    pthread_mutex_lock(&s->lock);
    seg->count++;
    s->bytes += (int64_t)(s->page_bytes + s->record_bytes);
    bool ok = insert_page(s, &(struct stored_page){.hash = {r.lo, r.hi},
                                                   .segment = seg,
                                                   .slot = (uint32_t)slot,
                                                   .when = r.when,
                                                   .group = (uint8_t)r.group,
                                                   .used = r.group & RETAINED});
    pthread_mutex_unlock(&s->lock);
    return ok;
}

// The record of a page that is in a segment, into s->record. False: it is damaged.
static bool load_record(struct segment_store *s, const struct page_segment *seg, int slot) {
    struct index_record r;
    if (!read_all(seg->index, s->record, s->record_bytes, record_at(s, slot)))
        return false;
    memcpy(&r, s->record, sizeof r);
    return r.check == record_check(s, s->record);
}

static int slot_order(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

// Moves the pages of `old` that were asked for to the segment that is written, in their order, as many as half of it takes.
static void move_used(struct segment_store *s, const struct page_segment *old) {
    int room = s->capacity / 2 - s->last->count, n = 0;
    uint32_t *slots = room > 0 ? malloc((size_t)old->count * sizeof *slots + 1) : NULL;
    void *page = slots ? malloc(s->page_bytes) : NULL;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; page && i <= s->mask; i++)
        if (s->table[i].segment == old && s->table[i].used && !s->table[i].dead)
            slots[n++] = s->table[i].slot;
    pthread_mutex_unlock(&s->lock);
    if (n > 0)
        qsort(slots, (size_t)n, sizeof *slots, slot_order);
    for (int i = 0; i < n && i < room; i++) {
        struct index_record r;
        if (!load_record(s, old, (int)slots[i]) ||
            !read_all(old->pages, page, s->page_bytes, (off_t)slots[i] * (off_t)s->page_bytes))
            continue;
        memcpy(&r, s->record, sizeof r);
        r.group &= ~(uint32_t)RETAINED; // once
        seal_record(s, &r);
        if (crc32c(0, page, s->page_bytes) == r.page_check && !append_page(s, s->last, page))
            break;
    }
    free(page);
    free(slots);
}

static bool drop_segment(struct segment_store *s, struct page_segment *seg) {
    if (!remove_files(s->place, seg->number))
        return false;
    pthread_mutex_lock(&s->lock);
    forget_segment(s, seg);
    pthread_mutex_unlock(&s->lock);
    return true;
}

// Drops the oldest segment but the one that is written. False: there is none, or it stays.
static bool drop_oldest(struct segment_store *s) {
    struct oldest oldest = {.found = false};
    walk_dir(s, s->last, &oldest);
    if (!oldest.found)
        return false;
    struct page_segment *own = strcmp(oldest.place, s->place) == 0 ? find_segment(s, oldest.number) : NULL;
    if (own && s->last)
        move_used(s, own);
    return own ? drop_segment(s, own) : remove_files(oldest.place, oldest.number);
}

// Makes room for what the last segment has yet to take, and for one more.
static bool make_room(struct segment_store *s) {
    for (;;) {
        const int64_t last = s->last ? s->last->count * (int64_t)(s->page_bytes + s->record_bytes) : 0;
        const int64_t others = walk_dir(s, NULL, NULL) - (last < s->segment_bytes ? last : s->segment_bytes);
        if (others + 2 * s->segment_bytes <= s->max_bytes)
            return true;
        if (!drop_oldest(s))
            return false;
    }
}

void segments_refresh(struct segment_store *s) {
    DIR *d = opendir(s->place);
    const bool begins = !s->writer && flock(s->lock_file, LOCK_EX | LOCK_NB) == 0;
    if (begins) {
        pthread_mutex_lock(&s->lock);
        s->writer = true;
        // Those that are known are open for reading alone.
        while (s->first)
            forget_segment(s, s->first);
        pthread_mutex_unlock(&s->lock);
    }
    for (struct dirent *e; d && (e = readdir(d));) {
        uint64_t number;
        if (!file_number(e->d_name, "index", &number) || find_segment(s, number))
            continue;
        struct page_segment *seg =
            open_segment(s, number, false); // NULL: a process was killed before its head was there
        if (seg) {
            pthread_mutex_lock(&s->lock);
            add_segment(s, seg);
            pthread_mutex_unlock(&s->lock);
        }
    }
    for (struct page_segment *seg = s->first, *next; seg; seg = next) {
        char path[4200];
        struct stat st;
        next = seg->next;
        read_index(s, seg);
        segment_path(s, path, sizeof path, seg->number, "index");
        if (d && stat(path, &st) != 0 && errno == ENOENT) {
            pthread_mutex_lock(&s->lock);
            forget_segment(s, seg);
            pthread_mutex_unlock(&s->lock);
        }
    }
    if (d)
        closedir(d);
    if (begins && !make_room(s) && s->last) // the last process had more room
        drop_segment(s, s->last);
    set_bytes(s, walk_dir(s, NULL, NULL));
}

static enum status io_failed(const struct segment_store *s, struct err *err, const char *doing) {
    return err_set(err, STATUS_IO, "%s: cannot %s: %s", s->place, doing, strerror(errno));
}

static enum status begin_segment(struct segment_store *s, struct err *err) {
    const uint64_t number = next_number(s);
    struct page_segment *seg = open_segment(s, number, true);
    if (!seg)
        return io_failed(s, err, "begin a segment");
    pthread_mutex_lock(&s->lock);
    add_segment(s, seg);
    pthread_mutex_unlock(&s->lock);
    if (!make_room(s)) {
        drop_segment(s, seg);
        return err_set(err, STATUS_IO, "%s: what is there cannot be removed to make room", s->dir);
    }
    set_bytes(s, walk_dir(s, NULL, NULL));
    return STATUS_OK;
}

enum status segments_write(struct segment_store *s, const struct kv_transfer *t, struct err *err) {
    struct index_record r = {.page_check = crc32c(0, t->page, s->page_bytes),
                             .lo = t->hash.lo,
                             .hi = t->hash.hi,
                             .parent = t->parent,
                             .group = (uint32_t)t->group | (t->retained ? RETAINED : 0),
                             .when = (uint32_t)time(NULL)};
    if (!s->writer)
        return STATUS_STOPPING;
    if (segments_has(s, t->hash, t->group))
        return STATUS_OK;
    if ((!s->last || s->last->count >= s->capacity) && begin_segment(s, err) != STATUS_OK)
        return STATUS_IO;
    memcpy(s->record + sizeof r, t->tokens, (size_t)s->block_size * sizeof *t->tokens);
    seal_record(s, &r);
    return append_page(s, s->last, t->page) ? STATUS_OK : io_failed(s, err, "write");
}

// ---- asking and reading

bool segments_has(struct segment_store *s, struct kv_hash hash, int group) {
    pthread_mutex_lock(&s->lock);
    struct stored_page *at = place_of(s, hash, group);
    bool has = at->segment && !at->dead;
    at->used |= has;
    pthread_mutex_unlock(&s->lock);
    return has;
}

int64_t segments_age(struct segment_store *s, struct kv_hash hash, int group) {
    pthread_mutex_lock(&s->lock);
    const struct stored_page *at = place_of(s, hash, group);
    const int64_t age = (int64_t)time(NULL) - at->when; // the clock may have been set back
    const bool has = at->segment && !at->dead;
    pthread_mutex_unlock(&s->lock);
    return !has ? -1 : age > 0 ? age : 0;
}

// Whether the record and the page are whole, and of these tokens.
static enum status read_page(const struct segment_store *s, const struct page_segment *seg, int slot,
                             const struct kv_transfer *t, unsigned char *record) {
    struct index_record r;
    if (!read_all(seg->index, record, s->record_bytes, record_at(s, slot)) ||
        !read_all(seg->pages, t->page, s->page_bytes, (off_t)slot * (off_t)s->page_bytes))
        return errno ? STATUS_IO : STATUS_FORMAT; // cut off by others
    memcpy(&r, record, sizeof r);
    bool same = r.check == record_check(s, record) && r.lo == t->hash.lo && r.hi == t->hash.hi &&
                memcmp(record + sizeof r, t->tokens, (size_t)s->block_size * sizeof *t->tokens) == 0;
    return same && crc32c(0, t->page, s->page_bytes) == r.page_check ? STATUS_OK : STATUS_FORMAT;
}

enum status segments_read(struct segment_store *s, const struct kv_transfer *t, struct err *err) {
    pthread_mutex_lock(&s->lock);
    struct stored_page *at = place_of(s, t->hash, t->group);
    struct page_segment *seg = at->segment && !at->dead ? at->segment : NULL;
    int slot = (int)at->slot;
    if (seg)
        seg->readers++;
    pthread_mutex_unlock(&s->lock);
    if (!seg)
        return STATUS_INVALID;
    unsigned char *record = malloc(s->record_bytes);
    enum status st = record ? read_page(s, seg, slot, t, record) : STATUS_NOMEM;
    if (st == STATUS_IO)
        io_failed(s, err, "read");
    free(record);
    pthread_mutex_lock(&s->lock);
    if (st != STATUS_NOMEM) {
        at = place_of(s, t->hash, t->group);
        bool same = at->segment == seg && at->slot == (uint32_t)slot;
        at->used |= same && st == STATUS_OK;
        at->dead |= same && st != STATUS_OK;
    }
    if (--seg->readers == 0 && seg->gone)
        close_segment(seg);
    pthread_mutex_unlock(&s->lock);
    return st;
}

// ---- start and end

// Sixteen bytes that nobody else reads, made by whoever comes first.
static enum status read_secret(struct segment_store *s, struct err *err) {
    char path[4200], fresh[4200];
    snprintf(path, sizeof path, "%.4000s/secret", s->dir);
    for (int i = 0; i < 2; i++) {
        uint64_t name; // process ids are no names: two containers may have the same
        int fd = open_regular(path, O_RDONLY);
        if (fd >= 0) {
            bool ok = read_all(fd, s->key, sizeof s->key, 0);
            close(fd);
            return ok ? STATUS_OK : err_set(err, STATUS_IO, "%s is no secret of 16 bytes", path);
        }
        if (errno != ENOENT || getrandom(s->key, sizeof s->key, 0) != (ssize_t)sizeof s->key ||
            getrandom(&name, sizeof name, 0) != (ssize_t)sizeof name)
            break;
        snprintf(fresh, sizeof fresh, "%.4000s/secret.%016" PRIx64, s->dir, name);
        if ((fd = open_regular(fresh, O_WRONLY | O_CREAT | O_EXCL)) < 0)
            break;
        bool ok = write_all(fd, s->key, sizeof s->key, 0) && fsync(fd) == 0;
        close(fd);
        if (ok && link(fresh, path) != 0 && errno != EEXIST)
            ok = false;
        unlink(fresh);
        if (!ok)
            break;
    }
    return err_set(err, STATUS_IO, "%s: %s", path, strerror(errno));
}

static bool make_dir(const char *path) { return mkdir(path, 0700) == 0 || errno == EEXIST; }

// For people: which model the pages are of.
static void write_identity(const struct segment_store *s, const char *identity) {
    char path[4200];
    snprintf(path, sizeof path, "%s/identity", s->place);
    int fd = open_regular(path, O_WRONLY | O_CREAT | O_EXCL);
    if (fd >= 0) {
        write_all(fd, identity, strlen(identity), 0);
        close(fd);
    }
}

static enum status prepare(struct segment_store *s, const struct kv_store_config *c, struct err *err) {
    char name[PAGE_STORE_NAME];
    size_t length = strlen(c->dir);
    char path[4200];
    if (length > 3900 || !(s->dir = strdup(c->dir)) || !(s->place = malloc(length + NAME)) ||
        !(s->record = malloc(s->record_bytes)) || !rebuild(s, 1024, NULL))
        return err_set(err, STATUS_NOMEM, "out of memory for the KV store");
    page_store_name(c->identity, name);
    snprintf(s->place, length + NAME, "%s/%s", c->dir, name);
    if (!make_dir(s->dir))
        return err_set(err, STATUS_IO, "%s: %s", s->dir, strerror(errno));
    if (read_secret(s, err) != STATUS_OK)
        return err->code;
    snprintf(path, sizeof path, "%.4000s/lock", s->dir);
    if ((s->lock_file = open_regular(path, O_RDWR | O_CREAT)) < 0 || !make_dir(s->place))
        return err_set(err, STATUS_IO, "%s: %s", s->lock_file < 0 ? path : s->place, strerror(errno));
    write_identity(s, c->identity);
    return STATUS_OK;
}

struct segment_store *segments_open(const struct kv_store_config *c, struct err *err) {
    struct segment_store *s = calloc(1, sizeof *s);
    struct err local = {0};
    err = err ? err : &local;
    if (!s) {
        err_set(err, STATUS_NOMEM, "out of memory for the KV store");
        return NULL;
    }
    *s = (struct segment_store){.block_size = c->block_size,
                                .page_bytes = c->page_bytes,
                                .record_bytes =
                                    sizeof(struct index_record) + (size_t)c->block_size * sizeof(token_id),
                                .max_bytes = c->max_bytes,
                                .lock_file = -1};
    int64_t each = (int64_t)(s->page_bytes + s->record_bytes), head = (int64_t)sizeof(struct index_head);
    int64_t capacity = (c->max_bytes / SEGMENTS - head) / each;
    s->capacity = capacity < 1 ? 1 : capacity > MAX_PAGES ? MAX_PAGES : (int)capacity;
    s->segment_bytes = s->capacity * each + head;
    pthread_mutex_init(&s->lock, NULL); // cannot fail on Linux: no attributes
    if (c->max_bytes < MIN_PAGES * (each + head))
        err_set(err, STATUS_INVALID, "a KV store of %lld bytes has no room for %d pages of %lld",
                (long long)c->max_bytes, MIN_PAGES, (long long)each);
    else if (prepare(s, c, err) == STATUS_OK) {
        segments_refresh(s);
        return s;
    }
    segments_close(s);
    return NULL;
}

void segments_close(struct segment_store *s) {
    if (!s)
        return;
    for (struct page_segment *seg = s->first, *next; seg; seg = next) {
        next = seg->next;
        close_segment(seg);
    }
    if (s->lock_file >= 0)
        close(s->lock_file);
    pthread_mutex_destroy(&s->lock);
    free(s->table);
    free(s->record);
    free(s->dir);
    free(s->place);
    free(s);
}

void segments_key(const struct segment_store *s, uint64_t key[2]) { memcpy(key, s->key, sizeof s->key); }

void segments_stats(struct segment_store *s, struct kv_store_stats *out) {
    pthread_mutex_lock(&s->lock);
    out->bytes = s->bytes;
    out->max_bytes = s->max_bytes;
    out->pages = (int64_t)s->num;
    out->writer = s->writer;
    pthread_mutex_unlock(&s->lock);
}

// ---- for kv_store.c

static void *disk_open(const struct kv_store_config *config, struct err *err) {
    return segments_open(config, err);
}
static void disk_close(void *s) { segments_close(s); }
static void disk_key(void *s, uint64_t key[2]) { segments_key(s, key); }
static bool disk_has(void *s, struct kv_hash hash, int group) { return segments_has(s, hash, group); }
static int64_t disk_age(void *s, struct kv_hash hash, int group) { return segments_age(s, hash, group); }
static void disk_stats(void *s, struct kv_store_stats *out) { segments_stats(s, out); }

// The process that writes knows all: nobody else changes anything.
static void disk_refresh(void *store) {
    struct segment_store *s = store;
    if (!s->writer)
        segments_refresh(s);
}

// After one that failed none is tried.
static void disk_write(void *s, struct kv_transfer *const *t, int n, enum status *st, struct err *err) {
    for (int i = 0; i < n; i++)
        st[i] = i > 0 && st[i - 1] != STATUS_OK ? STATUS_STOPPING : segments_write(s, t[i], err);
}

static void disk_read(void *s, struct kv_transfer *const *t, int n, enum status *st, struct err *err) {
    for (int i = 0; i < n; i++)
        st[i] = segments_read(s, t[i], err);
}

const struct page_store_ops page_store_disk = {.where = "disk",
                                               .open = disk_open,
                                               .close = disk_close,
                                               .key = disk_key,
                                               .has = disk_has,
                                               .age = disk_age,
                                               .stats = disk_stats,
                                               .write = disk_write,
                                               .read = disk_read,
                                               .refresh = disk_refresh};
