// See files.h.
#include "files.h"

#include "models/model_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum status hf_files_bad(const struct hf_files *d, struct err *err, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    enum status status = err_set_named(err, STATUS_FORMAT, d->label, fmt, ap);
    va_end(ap);
    return status;
}

enum status hf_files_open(struct hf_files *d, const char *path, const char *label, struct err *err) {
    *d = (struct hf_files){.path = strdup(path), .label = label, .dir = -1};
    d->items = calloc(HF_MAX_FILES, sizeof *d->items);
    if (!d->path || !d->items)
        return err_set(err, STATUS_NOMEM, "%s: out of memory for a folder", label);
    d->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return d->dir < 0 ? err_set(err, STATUS_IO, "cannot open %s: %s", label, strerror(errno)) : STATUS_OK;
}

void hf_files_close(struct hf_files *d) {
    for (int i = 0; i < d->num; i++)
        close(d->items[i].fd);
    if (d->path && d->dir >= 0)
        close(d->dir);
    free(d->items);
    free(d->path);
    *d = (struct hf_files){.dir = -1};
}

// Whether what a symbolic link leads to may be read: it lies in the folder, or in the blobs of a Hugging Face cache,
// with snapshots as folders of links to ../../blobs. A folder from elsewhere must not show us other files.
static bool link_is_allowed(const struct hf_files *d, const char *target) {
    static const char *const places[] = {".", "../../blobs"};
    char place[PATH_MAX], real[PATH_MAX];
    for (int i = 0; i < 2; i++) {
        int n = snprintf(place, sizeof place, "%s/%s", d->path, places[i]);
        if (n < 0 || (size_t)n >= sizeof place || !realpath(place, real))
            continue;
        size_t len = strlen(real);
        if (strncmp(target, real, len) == 0 && target[len] == '/')
            return true;
    }
    return false;
}

// The descriptor, -1: errno, or err where the file is there and must not be read.
static int open_inside(const struct hf_files *d, const char *name, struct err *err) {
    const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW; // NONBLOCK: a FIFO must not hang us
    char link[PATH_MAX], target[PATH_MAX];
    const char *slash = strchr(name, '/');
    struct stat st;
    snprintf(link, sizeof link, "%.*s", slash ? (int)(slash - name) : 0, name);
    if (slash && (fstatat(d->dir, link, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(st.st_mode))) {
        errno = ENOENT; // a link would lead anywhere
        return -1;
    }
    int fd = openat(d->dir, name, flags);
    if (fd >= 0 || errno != ELOOP)
        return fd;
    int n = snprintf(link, sizeof link, "%s/%s", d->path, name);
    if (n < 0 || (size_t)n >= sizeof link || !realpath(link, target))
        return -1;
    if (!link_is_allowed(d, target)) {
        err_set(err, STATUS_FORMAT,
                "%s: %s is a link to %.160s, outside the folder; expected a file or a link to ../../blobs",
                d->label, name, target);
        return -1;
    }
    return open(target, flags);
}

// Weights that nothing here reads, which people take for those that they need. NULL: none.
static const char *other_weights(const struct hf_files *d) {
    static const char *const names[] = {
        "pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth", "model.onnx", "onnx",
        "tf_model.h5"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (faccessat(d->dir, names[i], F_OK, 0) == 0)
            return names[i];
    return NULL;
}

const struct hf_file *hf_files_add(struct hf_files *d, const char *name, bool required, struct err *err) {
    struct stat st;
    struct err refused = {0};
    struct hf_file *f = &d->items[d->num];
    if (d->num == HF_MAX_FILES) {
        hf_files_bad(d, err, "more than %d files", HF_MAX_FILES);
        return NULL;
    }
    if (strlen(name) >= sizeof f->name) {
        hf_files_bad(d, err, "the file name %.64s... is longer than %zu", name, sizeof f->name - 1);
        return NULL;
    }
    *f = (struct hf_file){.fd = open_inside(d, name, &refused), .start = d->size};
    if (f->fd < 0 && !refused.code && errno == ENOENT && !required)
        return NULL;
    if (f->fd < 0 || fstat(f->fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        const char *why = f->fd >= 0 && !S_ISREG(st.st_mode) ? "not a regular file" : strerror(errno);
        const char *other = f->fd < 0 && errno == ENOENT ? other_weights(d) : NULL;
        if (refused.code)
            err_set(err, refused.code, "%s", refused.msg);
        else if (other)
            err_set(
                err, STATUS_IO,
                "%s: cannot open %s; the folder has %s, which Quire does not read: take safetensors or GGUF",
                d->label, name, other);
        else
            err_set(err, STATUS_IO, "%s: cannot open %s: %s", d->label, name, why);
        if (f->fd >= 0)
            close(f->fd);
        return NULL;
    }
    snprintf(f->name, sizeof f->name, "%s", name);
    f->size = (uint64_t)st.st_size;
    d->size += f->size; // sizes of files that exist: no overflow
    d->num++;
    return f;
}

char *hf_files_text(const struct hf_files *d, const struct hf_file *f, uint64_t at, uint64_t bytes,
                    struct err *err) {
    uint64_t stopped;
    char *text = malloc((size_t)bytes + 1);
    const char *why = text ? model_file_pread(f->fd, at, bytes, text, &stopped) : NULL;
    if (text && !why)
        return text;
    if (!text)
        err_set(err, STATUS_NOMEM, "%s: out of memory for %s", d->label, f->name);
    else
        err_set(err, STATUS_IO, "%s: cannot read %s at byte %" PRIu64 ": %s", d->label, f->name, stopped,
                why);
    free(text);
    return NULL;
}

void hf_files_name(const struct hf_files *d, const char *file, char name[JDOC_NAME_BYTES]) {
    snprintf(name, JDOC_NAME_BYTES, "%s/%s", d->label, file);
}

bool hf_files_json(struct hf_files *d, const char *name, bool required, uint64_t max, struct jdoc *j,
                   struct err *err) {
    char full[JDOC_NAME_BYTES];
    struct err local = {0};
    const struct hf_file *f = hf_files_add(d, name, required, &local);
    *j = (struct jdoc){.num = 0};
    if (!f)
        return !local.code || err_set(err, local.code, "%s", local.msg) == STATUS_OK;
    hf_files_name(d, name, full);
    if (f->size > max) {
        hf_files_bad(d, err, "%s has %" PRIu64 " bytes, expected at most %" PRIu64, name, f->size, max);
        return false;
    }
    char *text = hf_files_text(d, f, 0, f->size, err);
    return text && jdoc_parse(j, full, text, (size_t)f->size, err) == STATUS_OK;
}

const struct hf_file *hf_files_at(const struct hf_files *d, uint64_t address) {
    int i = 0;
    while (i + 1 < d->num && address >= d->items[i + 1].start)
        i++;
    return &d->items[i];
}

const char *hf_files_read(const struct hf_files *d, uint64_t at, uint64_t bytes, void *dst,
                          uint64_t *stopped) {
    for (uint64_t done = 0; done < bytes;) {
        const struct hf_file *f = hf_files_at(d, at + done);
        uint64_t first = at + done - f->start, left = f->size - first,
                 n = bytes - done < left ? bytes - done : left;
        const char *why = model_file_pread(f->fd, first, n, (char *)dst + done, stopped);
        if (why) {
            *stopped += f->start;
            return why;
        }
        done += n;
    }
    return NULL;
}

const char *hf_files_read_lines(const struct hf_files *d, uint64_t at, uint64_t stride, uint64_t lines,
                                uint64_t bytes, void *dst, uint64_t *stopped) {
    const char *why = NULL;
    if (bytes == stride)
        return hf_files_read(d, at, lines * bytes, dst, stopped);
    for (uint64_t i = 0; i < lines && !why; i++)
        why = hf_files_read(d, at + i * stride, bytes, (char *)dst + i * bytes, stopped);
    return why;
}
