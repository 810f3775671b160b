// See shards.h.
#include "shards.h"

#include "keys.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_INDEX = 64 << 20, // bytes of model.safetensors.index.json
    MAX_TENSORS = 1 << 20,
};
#define NAME(s) (int)((s).len < 96 ? (s).len : 96), (s).data // for %.*s

bool hf_shards_add(struct hf_shards *s, struct hf_files *d, const char *name, struct err *err) {
    char full[JDOC_NAME_BYTES];
    uint64_t len = 0;
    const struct hf_file *f = hf_files_add(d, name, true, err);
    if (!f)
        return false;
    hf_files_name(d, name, full);
    char *text = f->size >= 8 ? hf_files_text(d, f, 0, 8, err) : NULL;
    if (f->size >= 8 && !text)
        return false;
    if (text)
        memcpy(&len, text, 8); // little-endian host
    free(text);
    if (f->size < 8 || len > ST_MAX_HEADER || len > f->size - 8)
        return err_set(err, STATUS_FORMAT,
                       "%s: no safetensors file: a header of %" PRIu64
                       " bytes at byte 0, expected at most %" PRIu64,
                       full, f->size < 8 ? 0 : len,
                       f->size < 8                   ? 0
                       : f->size - 8 < ST_MAX_HEADER ? f->size - 8
                                                     : (uint64_t)ST_MAX_HEADER),
               false;
    struct st_header *headers = realloc(s->headers, (size_t)(s->num_headers + 1) * sizeof *headers);
    if (!headers)
        return err_set(err, STATUS_NOMEM, "%s: out of memory", full), false;
    s->headers = headers;
    struct st_header *h = &headers[s->num_headers++];
    *h = (struct st_header){.num = 0};
    if (!(text = hf_files_text(d, f, 8, len, err)) || st_parse(h, full, text, (size_t)len, f->size, err))
        return false;
    posix_fadvise(f->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    struct hf_source *sources = realloc(s->sources, (s->num + h->num + 1) * sizeof *sources);
    if (!sources)
        return err_set(err, STATUS_NOMEM, "%s: out of memory", full), false;
    s->sources = sources;
    for (size_t i = 0; i < h->num; i++)
        sources[s->num++] = (struct hf_source){&h->tensors[i], f->start + h->tensors[i].at};
    if (s->num > MAX_TENSORS)
        return hf_files_bad(d, err, "more than %d tensors", MAX_TENSORS), false;
    return true;
}

// A shard's name may not lead out of the folder.
static bool is_plain_name(struct text_view t) {
    return t.len > 0 && t.len < 200 && t.data[0] != '.' && !memchr(t.data, '/', t.len) &&
           !memchr(t.data, 0, t.len);
}

// Which headers there are says the index; what lies in them, they say themselves. Every tensor of the index must be in
// the file that it names.
static bool read_index(struct hf_shards *s, struct hf_files *d, const struct jdoc *j, struct err *err) {
    const struct jdoc_value *map = jdoc_get(j, j->values, "weight_map");
    if (!map || map->type != JDOC_OBJECT || map->len == 0)
        return jdoc_bad(j, err, "weight_map is %s, expected an object with tensors", jdoc_type_name(map)),
               false;
    int first = d->num;
    JDOC_EACH_KEY(j, key, map) {
        const struct jdoc_value *file = key + 1;
        struct text_view name = jdoc_text(j, file);
        bool there = false;
        if (file->type != JDOC_STRING || !is_plain_name(name))
            return jdoc_bad(
                       j, err,
                       "tensor %.*s at byte %u lies in '%.*s', expected the name of a file in the folder",
                       NAME(jdoc_text(j, key)), key->at,
                       file->type == JDOC_STRING ? (int)(name.len < 96 ? name.len : 96) : 0, name.data),
                   false;
        for (int i = first; i < d->num && !there; i++)
            there =
                strlen(d->items[i].name) == name.len && memcmp(d->items[i].name, name.data, name.len) == 0;
        char copy[256];
        snprintf(copy, sizeof copy, "%.*s", (int)name.len, name.data);
        if (!there && !hf_shards_add(s, d, copy, err))
            return false;
    }
    return true;
}

static int compare_sources(const void *a, const void *b) {
    const struct hf_source *x = a, *y = b;
    struct text_view a_name = x->tensor->name, b_name = y->tensor->name;
    int c = memcmp(a_name.data, b_name.data, a_name.len < b_name.len ? a_name.len : b_name.len);
    return c ? c : (a_name.len > b_name.len) - (a_name.len < b_name.len);
}

const struct hf_source *hf_shards_find(const struct hf_shards *s, struct text_view name) {
    const struct st_tensor named = {.name = name};
    const struct hf_source want = {&named, 0};
    return s->num ? bsearch(&want, s->sources, s->num, sizeof want, compare_sources) : NULL;
}

// Every tensor that the index names is in a file. Sources are sorted by name.
static bool check_index(const struct hf_shards *s, const struct jdoc *j, struct err *err) {
    const struct jdoc_value *map = jdoc_get(j, j->values, "weight_map");
    JDOC_EACH_KEY(j, key, map) {
        struct text_view name = jdoc_text(j, key);
        if (!hf_shards_find(s, name))
            return jdoc_bad(j, err, "tensor %.*s at byte %u is not in %.*s", NAME(name), key->at,
                            (int)key[1].len, j->text + key[1].at),
                   false;
    }
    return true;
}

// Adds a file that holds one matrix, linear.weight, and perhaps its bias, and renames them: each such file has these
// names.
static bool read_dense(struct hf_shards *s, struct hf_files *d, int number, struct err *err) {
    static const char *const names[][2] = {{"dense_2.weight", "dense_2.bias"},
                                           {"dense_3.weight", "dense_3.bias"}};
    char file[40];
    snprintf(file, sizeof file, "%d_Dense/model.safetensors", number + 2);
    if (!hf_shards_add(s, d, file, err))
        return false;
    struct st_header *h = &s->headers[s->num_headers - 1];
    for (size_t i = 0; i < h->num; i++) {
        struct text_view *name = &h->tensors[i].name;
        bool bias = name->len == 11 && memcmp(name->data, "linear.bias", 11) == 0;
        if (!bias && !(name->len == 13 && memcmp(name->data, "linear.weight", 13) == 0))
            return hf_files_bad(d, err, "%s: tensor %.*s, expected linear.weight and linear.bias", file,
                                NAME(*name)) == STATUS_OK;
        *name = view_of(names[number][bias]);
    }
    return true;
}

bool hf_shards_read(struct hf_shards *s, struct hf_files *d, int dense, struct err *err) {
    static const char one[] = "model.safetensors", many[] = "model.safetensors.index.json";
    struct jdoc index = {.num = 0};
    bool single = faccessat(d->dir, one, F_OK, AT_SYMLINK_NOFOLLOW) == 0, ok;
    if (single) {
        ok = hf_shards_add(s, d, one, err);
    } else {
        struct err missing = {0};
        ok = hf_files_json(d, many, false, MAX_INDEX, &index, &missing);
        if (!ok)
            err_set(err, missing.code, "%s", missing.msg);
        else if (!index.num)
            ok = hf_files_bad(d, err, "neither %s nor %s is there; weights in other formats are not read",
                              one, many) == STATUS_OK;
        ok = ok && read_index(s, d, &index, err);
    }
    for (int i = 0; ok && i < dense; i++)
        ok = read_dense(s, d, i, err);
    if (ok && s->num)
        qsort(s->sources, s->num, sizeof *s->sources, compare_sources);
    for (size_t i = 1; ok && i < s->num; i++)
        if (compare_sources(&s->sources[i - 1], &s->sources[i]) == 0)
            ok = hf_files_bad(d, err, "tensor %.*s is in two files", NAME(s->sources[i].tensor->name)) ==
                 STATUS_OK;
    ok = ok && (!index.num || check_index(s, &index, err));
    jdoc_free(&index);
    return ok;
}

void hf_shards_free(struct hf_shards *s) {
    for (int i = 0; i < s->num_headers; i++)
        st_free(&s->headers[i]);
    free(s->headers);
    free(s->sources);
    *s = (struct hf_shards){.num = 0};
}
