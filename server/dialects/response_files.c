#include "response_files.h"

#include "buf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "QRESP 1\n"
#define END ".response"
#define NEW_END ".new"
enum { DIGITS = 2 * SHA256_BYTES, NAME = DIGITS + 16 };

// A file begins with it; numbers have the byte order of the machine.
struct file_head {
    char magic[8];
    struct response_file about;
    uint8_t sum[SHA256_BYTES]; // SHA-256 of the file with zeros here
};
_Static_assert(sizeof(struct file_head) == 8 + SHA256_BYTES + 5 * 8 + SHA256_BYTES, "no padding");

struct response_files {
    int folder, lock;
};

struct response_files *response_files_open(const char *folder, struct err *err) {
    struct response_files *f = calloc(1, sizeof *f);
    if (!f) {
        err_set(err, STATUS_NOMEM, "out of memory for --store-dir");
        return NULL;
    }
    f->folder = f->lock = -1;
    if ((mkdir(folder, 0700) != 0 && errno != EEXIST) ||
        (f->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 ||
        (f->lock = openat(f->folder, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) < 0)
        err_set(err, STATUS_IO, "--store-dir %s: %s", folder, strerror(errno));
    else if (flock(f->lock, LOCK_EX | LOCK_NB) == 0)
        return f;
    else if (errno == EWOULDBLOCK)
        err_set(err, STATUS_IO, "--store-dir %s: another server has it", folder);
    else
        err_set(err, STATUS_IO, "--store-dir %s: %s", folder, strerror(errno));
    response_files_close(f);
    return NULL;
}

void response_files_close(struct response_files *f) {
    if (!f)
        return;
    if (f->folder >= 0)
        close(f->folder);
    if (f->lock >= 0)
        close(f->lock);
    free(f);
}

static void name_of(char name[NAME], const uint8_t key[SHA256_BYTES], const char *end) {
    for (size_t i = 0; i < SHA256_BYTES; i++)
        snprintf(name + 2 * i, 3, "%02x", key[i]);
    snprintf(name + DIGITS, NAME - DIGITS, "%s", end);
}

static bool has_form(const char *name, const char *end) {
    return strspn(name, "0123456789abcdef") == DIGITS && strcmp(name + DIGITS, end) == 0;
}

static bool read_all(int fd, void *data, size_t len) {
    char *at = data;
    while (len > 0) {
        ssize_t n = read(fd, at, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        len -= (size_t)n;
    }
    return true;
}

static int write_all(int fd, const void *data, size_t len) {
    const char *at = data;
    while (len > 0) {
        ssize_t n = write(fd, at, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        at += n;
        len -= (size_t)n;
    }
    return 0;
}

// Opens a file whose head fits its name and its size. -1: it does not.
static int open_file(struct response_files *f, const char *name, struct file_head *head) {
    char own[NAME];
    struct stat st;
    int fd = openat(f->folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return -1;
    bool ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && read_all(fd, head, sizeof *head) &&
              memcmp(head->magic, MAGIC, sizeof head->magic) == 0;
    uint64_t left = ok ? (uint64_t)st.st_size - sizeof *head : 0;
    for (int i = 0; ok && i < STORED_TEXTS; i++) {
        ok = head->about.lens[i] <= left;
        left -= ok ? head->about.lens[i] : 0;
    }
    if (ok)
        name_of(own, head->about.key, END);
    if (ok && left == 0 && strcmp(own, name) == 0)
        return fd;
    close(fd);
    return -1;
}

static int by_number(const void *a, const void *b) {
    const struct response_file *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

struct response_file *response_files_list(struct response_files *f, size_t *num, size_t *foreign) {
    struct response_file *list = NULL;
    size_t cap = 0;
    *num = *foreign = 0;
    int fd = openat(f->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); // closedir() closes it
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir && fd >= 0)
        close(fd);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        const char *name = e->d_name;
        struct file_head head;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, "lock") == 0)
            continue;
        if (has_form(name, NEW_END)) {
            unlinkat(f->folder, name, 0);
            continue;
        }
        int file = has_form(name, END) ? open_file(f, name, &head) : -1;
        if (file < 0) {
            ++*foreign;
            continue;
        }
        close(file);
        if (*num == cap) {
            struct response_file *grown = realloc(list, (cap ? 2 * cap : 64) * sizeof *list);
            if (!grown)
                break;
            list = grown;
            cap = cap ? 2 * cap : 64;
        }
        list[(*num)++] = head.about;
    }
    if (dir)
        closedir(dir);
    if (*num)
        qsort(list, *num, sizeof *list, by_number);
    return list;
}

char *response_files_read(struct response_files *f, const struct response_file *r) {
    char name[NAME];
    struct file_head head;
    uint8_t sum[SHA256_BYTES], found[SHA256_BYTES];
    size_t len = r->lens[STORED_BODY] + r->lens[STORED_ITEMS] + r->lens[STORED_EVENTS];
    name_of(name, r->key, END);
    int fd = open_file(f, name, &head);
    if (fd < 0)
        return NULL;
    char *whole = memcmp(&head.about, r, sizeof *r) == 0 ? malloc(sizeof head + len) : NULL;
    bool ok = whole && read_all(fd, whole + sizeof head, len);
    close(fd);
    if (ok) {
        memcpy(sum, head.sum, sizeof sum);
        memset(head.sum, 0, sizeof head.sum);
        memcpy(whole, &head, sizeof head);
        sha256(whole, sizeof head + len, found);
        ok = memcmp(sum, found, sizeof sum) == 0;
        memmove(whole, whole + sizeof head, len);
    }
    if (ok)
        return whole;
    free(whole);
    return NULL;
}

int response_files_write(struct response_files *f, const struct response_file *r, const char *texts) {
    char name[NAME], fresh[NAME];
    struct buf b = {0};
    struct file_head head = {.about = *r};
    size_t len = r->lens[STORED_BODY] + r->lens[STORED_ITEMS] + r->lens[STORED_EVENTS];
    memcpy(head.magic, MAGIC, sizeof head.magic);
    buf_add(&b, &head, sizeof head);
    buf_add(&b, texts, len);
    if (b.failed) {
        buf_free(&b);
        return ENOMEM;
    }
    sha256(b.data, b.len, head.sum);
    memcpy(b.data, &head, sizeof head);
    name_of(name, r->key, END);
    name_of(fresh, r->key, NEW_END);
    int fd = openat(f->folder, fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    int why = fd < 0 ? errno : write_all(fd, b.data, b.len);
    if (!why && fsync(fd) != 0)
        why = errno;
    if (fd >= 0 && close(fd) != 0 && !why)
        why = errno;
    if (!why && renameat(f->folder, fresh, f->folder, name) != 0)
        why = errno;
    if (why && fd >= 0)
        unlinkat(f->folder, fresh, 0);
    buf_free(&b);
    return why;
}

void response_files_remove(struct response_files *f, const uint8_t key[SHA256_BYTES]) {
    char name[NAME];
    name_of(name, key, END);
    unlinkat(f->folder, name, 0);
}

int response_files_sync(struct response_files *f) { return fsync(f->folder) == 0 ? 0 : errno; }
