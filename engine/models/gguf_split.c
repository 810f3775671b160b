// See gguf_split.h. Addresses: the files lie one after the other.
#include "gguf_split.h"

#include "gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PARTS = 1024, MAX_PATH_BYTES = 4096 };

struct split {
    struct model_file file; // first: they are one object
    struct model_file *parts[MAX_PARTS];
    uint64_t starts[MAX_PARTS]; // addresses of their first bytes
    int num;
};

bool gguf_is_split(const struct model_file *f) {
    int64_t count = 0;
    struct err ignored = {0};
    return meta_int(f, "split.count", false, INT64_MIN, INT64_MAX, &count, &ignored) == STATUS_OK &&
           count > 1;
}

static int part_at(const struct split *s, uint64_t address) {
    int i = 0;
    while (i + 1 < s->num && address >= s->starts[i + 1])
        i++;
    return i;
}

static const char *read_split(const struct model_file *f, uint64_t at, uint64_t bytes, void *dst,
                              uint64_t *stopped) {
    const struct split *s = (const struct split *)f;
    const char *why = NULL;
    for (uint64_t done = 0, n; done < bytes && !why; done += n) {
        int i = part_at(s, at + done);
        uint64_t first = at + done - s->starts[i], left = s->parts[i]->size - first;
        n = bytes - done < left ? bytes - done : left;
        why = s->parts[i]->ops->read(s->parts[i], first, n, (char *)dst + done, stopped);
        *stopped += why ? s->starts[i] : 0;
    }
    return why;
}

static const char *place_in_split(const struct model_file *f, uint64_t *at) {
    const struct split *s = (const struct split *)f;
    int i = part_at(s, *at);
    *at -= s->starts[i];
    return s->parts[i]->name;
}

static int descriptor_in_split(const struct model_file *f, int i) {
    const struct split *s = (const struct split *)f;
    return i < s->num ? s->parts[i]->ops->descriptor(s->parts[i], 0) : -1;
}

static void close_split(struct model_file *f) {
    struct split *s = (struct split *)f;
    for (int i = 0; i < s->num; i++)
        model_file_close(s->parts[i]);
    free(s);
}

// Adds the part that has been opened to those of s, if it is the next one.
static bool add_part(struct split *s, struct model_file *part, int64_t count, struct err *err) {
    int64_t no = 0, of = 0;
    bool ok = meta_int(part, "split.no", true, 0, MAX_PARTS - 1, &no, err) == STATUS_OK &&
              meta_int(part, "split.count", true, 2, MAX_PARTS, &of, err) == STATUS_OK;
    if (ok && (no != s->num || of != count))
        ok = model_file_bad(part, err,
                            "this is part %" PRId64 " of %" PRId64 ", expected part %d of %" PRId64 "%s", no,
                            of, s->num, count, s->num ? "" : ": open the first") == STATUS_OK;
    if (!ok) {
        model_file_close(part);
        return false;
    }
    s->starts[s->num] = s->file.size;
    s->parts[s->num++] = part;
    s->file.size += part->size; // sizes of files that exist: no overflow
    s->file.trailing += part->trailing;
    return true;
}

// The others have the first one's name but for its number.
static bool open_parts(struct split *s, const char *path, int64_t count, struct err *err) {
    char end[64], name[MAX_PATH_BYTES];
    snprintf(end, sizeof end, "-00001-of-%05" PRId64 ".gguf", count);
    size_t len = strlen(path), tail = strlen(end);
    if (len < tail || strcmp(path + len - tail, end) != 0 || len >= sizeof name - 32)
        return model_file_bad(s->parts[0], err,
                              "the first of %" PRId64 " files, expected a name that ends with %s", count,
                              end),
               false;
    for (int i = 1; i < count; i++) {
        snprintf(name, sizeof name, "%.*s-%05d-of-%05" PRId64 ".gguf", (int)(len - tail), path, i + 1, count);
        struct model_file *part = gguf_open(name, err);
        if (!part || !add_part(s, part, count, err))
            return false;
    }
    return true;
}

static bool is_split_key(const struct meta *m) {
    return m->key.len > 6 && memcmp(m->key.data, "split.", 6) == 0;
}

// The keys of the first but for those about the split, and all tensors, at their addresses.
static bool join_parts(struct split *s, struct err *err) {
    const struct model_file *first = s->parts[0];
    uint64_t num_meta = 0, num_tensors = 0, m = 0, t = 0;
    int64_t expected = -1;
    for (uint64_t i = 0; i < first->num_meta; i++)
        num_meta += !is_split_key(&first->meta[i]);
    for (int i = 0; i < s->num; i++)
        num_tensors += s->parts[i]->num_tensors;
    if (meta_int(first, "split.tensors.count", false, 0, INT32_MAX, &expected, err))
        return false;
    if (num_tensors > GGUF_MAX_TENSORS || (expected >= 0 && (uint64_t)expected != num_tensors))
        return model_file_bad(&s->file, err, "%d files have %" PRIu64 " tensors, expected %" PRId64, s->num,
                              num_tensors, expected >= 0 ? expected : (int64_t)GGUF_MAX_TENSORS),
               false;
    if (model_file_room(&s->file, num_meta, num_tensors, err))
        return false;
    for (uint64_t i = 0; i < first->num_meta; i++)
        if (!is_split_key(&first->meta[i])) {
            s->file.meta[m] = first->meta[i];
            model_file_add_meta(&s->file, m++); // they differ: the first file has been checked
        }
    for (int i = 0; i < s->num; i++)
        for (uint64_t k = 0; k < s->parts[i]->num_tensors; k++, t++) {
            struct model_tensor *tensor = &s->file.tensors[t];
            *tensor = s->parts[i]->tensors[k];
            tensor->offset += s->starts[i];
            if (!model_file_add_tensor(&s->file, t))
                return model_file_bad(s->parts[i], err, "tensor %.*s is in an earlier file, too",
                                      (int)tensor->name.len, tensor->name.data),
                       false;
        }
    return true;
}

struct model_file *gguf_split_open(const char *path, struct model_file *first, struct err *err) {
    static const struct model_file_ops ops = {
        .read = read_split, .place = place_in_split, .close = close_split, .descriptor = descriptor_in_split};
    struct err local = {0};
    struct split *s = calloc(1, sizeof *s);
    int64_t count = 0;
    err = err ? err : &local;
    if (!s) {
        model_file_close(first);
        err_set(err, STATUS_NOMEM, "out of memory for a file's header");
        return NULL;
    }
    enum status st = model_file_init(&s->file, path, err);
    s->file.ops = &ops;
    if (!st)
        st = meta_int(first, "split.count", true, 2, MAX_PARTS, &count, err);
    if (st)
        model_file_close(first);
    else if (add_part(s, first, count, err) && open_parts(s, path, count, err) && join_parts(s, err)) {
        snprintf(s->file.format, sizeof s->file.format, "GGUF, %d files", s->num);
        return &s->file;
    }
    model_file_close(&s->file);
    return NULL;
}
