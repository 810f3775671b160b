// Eight lanes take eight bytes each in turn: h = rotate((h ^ word) * odd). Every step is a bijection of h for
// a given word and of the word for a given h, so that two files which differ in one word end in two states.
// The lanes are joined by the same step, twice with other constants.
#include "model_hash.h"

#include "log.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { BLOCK = 1 << 20 };

static inline uint64_t mix(uint64_t h, uint64_t word, uint64_t odd) {
    h = (h ^ word) * odd;
    return h << 29 | h >> 35;
}

#define ODD 0x9e3779b97f4a7c15u
#define OTHER_ODD 0xd1b54a32d192ed03u

void model_hash_begin(struct model_hash *h) {
    *h = (struct model_hash){.bytes = 0};
    for (uint64_t i = 0; i < 8; i++)
        h->lane[i] = (i + 1) * OTHER_ODD;
}

void model_hash_add(struct model_hash *h, const void *data, size_t n) {
    const unsigned char *p = data;
    uint64_t lane[8], w[8];
    CHECK(data || n == 0);
    memcpy(lane, h->lane, sizeof lane);
    h->bytes += n;
    for (; n > 0; p += 64, n -= n < 64 ? n : 64) {
        if (n < 64)
            memset(w, 0, sizeof w);
        memcpy(w, p, n < 64 ? n : 64);
        for (int i = 0; i < 8; i++)
            lane[i] = mix(lane[i], w[i], ODD);
    }
    memcpy(h->lane, lane, sizeof lane);
}

void model_hash_end(const struct model_hash *h, char text[MODEL_HASH_BYTES]) {
    uint64_t a = h->bytes, b = ~h->bytes;
    for (int i = 0; i < 8; i++) {
        a = mix(a, h->lane[i], ODD);
        b = mix(b, h->lane[i], OTHER_ODD);
    }
    snprintf(text, MODEL_HASH_BYTES, "%016llx%016llx", (unsigned long long)a, (unsigned long long)b);
}

enum status model_hash_file(const struct model_file *f, char text[MODEL_HASH_BYTES], struct err *err) {
    struct model_hash hash;
    unsigned char *block = malloc(BLOCK);
    enum status st = block ? STATUS_OK : err_set(err, STATUS_NOMEM, "out of memory");
    model_hash_begin(&hash);
    for (uint64_t at = 0, stopped; st == STATUS_OK && at < f->size; at += BLOCK) {
        uint64_t bytes = f->size - at < BLOCK ? f->size - at : BLOCK;
        const char *why = f->ops->read(f, at, bytes, block, &stopped);
        if (why)
            st = err_set(err, STATUS_IO, "%s: cannot read byte %llu: %s", f->name,
                         (unsigned long long)stopped, why);
        else
            model_hash_add(&hash, block, bytes);
    }
    free(block);
    model_hash_end(&hash, text);
    return st;
}

bool model_hash_stamp(const struct model_file *f, char text[MODEL_HASH_BYTES]) {
    enum { SETTLED = 3 }; // s: two changes within one tick of the file system's clock have one time
    struct model_hash hash;
    const time_t now = time(NULL);
    int fd, num = 0;
    model_hash_begin(&hash);
    for (; f->ops->descriptor && (fd = f->ops->descriptor(f, num)) >= 0; num++) {
        struct stat st;
        if (fstat(fd, &st) != 0 || now - st.st_ctim.tv_sec < SETTLED)
            return false;
        const uint64_t about[8] = {(uint64_t)st.st_dev,          (uint64_t)st.st_ino,
                                   (uint64_t)st.st_size,         (uint64_t)st.st_mtim.tv_sec,
                                   (uint64_t)st.st_mtim.tv_nsec, (uint64_t)st.st_ctim.tv_sec,
                                   (uint64_t)st.st_ctim.tv_nsec, 0};
        model_hash_add(&hash, about, sizeof about);
    }
    model_hash_end(&hash, text);
    return num > 0;
}
