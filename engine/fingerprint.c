// Eight lanes take eight bytes each in turn: h = rotate((h ^ word) * odd). Every step is a bijection of h for
// a given word and of the word for a given h, so that two files which differ in one word end in two states.
// The lanes are joined by the same step, twice with other constants.
#include "fingerprint.h"

#include "log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 1 << 20 };

static inline uint64_t mix(uint64_t h, uint64_t word, uint64_t odd) {
    h = (h ^ word) * odd;
    return h << 29 | h >> 35;
}

#define ODD 0x9e3779b97f4a7c15u
#define OTHER_ODD 0xd1b54a32d192ed03u

void fingerprint_begin(struct fingerprint *f) {
    *f = (struct fingerprint){.bytes = 0};
    for (uint64_t i = 0; i < 8; i++)
        f->lane[i] = (i + 1) * OTHER_ODD;
}

void fingerprint_add(struct fingerprint *f, const void *data, size_t n) {
    const unsigned char *p = data;
    uint64_t lane[8], w[8];
    CHECK(data || n == 0);
    memcpy(lane, f->lane, sizeof lane);
    f->bytes += n;
    for (; n > 0; p += 64, n -= n < 64 ? n : 64) {
        if (n < 64)
            memset(w, 0, sizeof w);
        memcpy(w, p, n < 64 ? n : 64);
        for (int i = 0; i < 8; i++)
            lane[i] = mix(lane[i], w[i], ODD);
    }
    memcpy(f->lane, lane, sizeof lane);
}

void fingerprint_end(const struct fingerprint *f, char text[FINGERPRINT_BYTES]) {
    uint64_t a = f->bytes, b = ~f->bytes;
    for (int i = 0; i < 8; i++) {
        a = mix(a, f->lane[i], ODD);
        b = mix(b, f->lane[i], OTHER_ODD);
    }
    snprintf(text, FINGERPRINT_BYTES, "%016llx%016llx", (unsigned long long)a, (unsigned long long)b);
}

enum status fingerprint_file(const struct gguf *g, char text[FINGERPRINT_BYTES], struct err *err) {
    struct fingerprint f;
    unsigned char *block = malloc(BLOCK);
    enum status st = block ? STATUS_OK : err_set(err, STATUS_NOMEM, "out of memory");
    fingerprint_begin(&f);
    for (size_t at = 0, size = gguf_size(g); st == STATUS_OK && at < size;) {
        size_t want = size - at < BLOCK ? size - at : BLOCK, have = 0;
        while (have < want) {
            ssize_t n = pread(gguf_fd(g), block + have, want - have, (off_t)(at + have));
            if (n < 0 && errno == EINTR)
                continue;
            if (n <= 0) {
                st = err_set(err, STATUS_IO, "%s: cannot read byte %zu: %s", gguf_name(g), at + have,
                             n < 0 ? strerror(errno) : "the file was cut");
                break;
            }
            have += (size_t)n;
        }
        fingerprint_add(&f, block, have);
        at += want;
    }
    free(block);
    fingerprint_end(&f, text);
    return st;
}
