// See tensor_read.h.
#include "tensor_read.h"

#include "cpus.h"
#include "log.h"
#include "quants.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

// Bytes that a thread takes at a time. Of so many threads memory has no more to give.
enum { PIECE = 1 << 20, MAX_THREADS = 16 };

// Index of the first 16- or 32-bit word whose exponent is all ones, or n. Chunks, so that the inner loop
// vectorises.
static uint64_t find_bad32(const uint32_t *p, uint64_t n) {
    for (uint64_t i = 0; i < n; i += 4096) {
        uint64_t m = n - i < 4096 ? n - i : 4096;
        uint32_t bad = 0;
        for (uint64_t k = 0; k < m; k++)
            bad |= (p[i + k] & 0x7f800000u) == 0x7f800000u;
        for (uint64_t k = 0; bad && k < m; k++)
            if ((p[i + k] & 0x7f800000u) == 0x7f800000u)
                return i + k;
    }
    return n;
}

static uint64_t find_bad16(const uint16_t *p, uint64_t n, uint16_t exponent) {
    for (uint64_t i = 0; i < n; i += 4096) {
        uint64_t m = n - i < 4096 ? n - i : 4096;
        uint16_t bad = 0;
        for (uint64_t k = 0; k < m; k++)
            bad = (uint16_t)(bad | ((p[i + k] & exponent) == exponent));
        for (uint64_t k = 0; bad && k < m; k++)
            if ((p[i + k] & exponent) == exponent)
                return i + k;
    }
    return n;
}

// The byte of the first f16 scale that is not finite: at `first` in each block, and the one after it where
// there are two. The values beside them are integers and cannot be bad.
static uint64_t find_bad_scale(const unsigned char *p, uint64_t bytes, uint64_t block, uint64_t first,
                               int num) {
    for (uint64_t i = first; i < bytes; i += block)
        for (uint64_t k = i; k < i + 2 * (uint64_t)num; k += 2)
            if ((p[k + 1] & 0x7c) == 0x7c)
                return k;
    return bytes;
}

// The same of MXFP4, whose scale is one byte, the exponent of 2^(e - 128): 255 is its NaN, and from 253 on
// its largest number, 12, is more than f32 holds.
static uint64_t find_bad_exponent(const unsigned char *p, uint64_t bytes, uint64_t block) {
    for (uint64_t i = 0; i < bytes; i += block)
        if (p[i] > 252)
            return i;
    return bytes;
}

// The same of FP8, or the byte of a NaN. A scale from 2^118 on makes of its largest number more than BF16 holds.
static uint64_t find_bad_fp8(const unsigned char *p, uint64_t bytes, uint64_t block) {
    for (uint64_t i = 0; i < bytes; i += block) {
        float scale;
        memcpy(&scale, p + i, sizeof scale);
        if (!(scale < 0x1p118f && scale > -0x1p118f))
            return i;
        for (uint64_t k = i + sizeof scale; k < i + block; k++)
            if ((p[k] & 0x7f) == 0x7f)
                return k;
    }
    return bytes;
}

// Bytes [start, start + bytes) of the tensor, which begin with a block.
static enum status scan(const struct model_file *f, const struct model_tensor *t, uint64_t start,
                        uint64_t bytes, const void *data, struct err *err) {
    enum dtype type = t->view.dtype;
    uint64_t at = bytes;
    if (type < DTYPE_COUNT && dtype_block(type) > 1) {
        uint64_t block = dtype_row_bytes(type, dtype_block(type)),
                 first = (uint64_t)quants_scale_offset(type);
        at = type == DTYPE_MXFP4 ? find_bad_exponent(data, bytes, block)
             : type == DTYPE_FP8
                 ? find_bad_fp8(data, bytes, block)
                 : find_bad_scale(data, bytes, block, first, quants_has_minimum(type) ? 2 : 1);
    } else if (type == DTYPE_F32) {
        at = find_bad32(data, bytes / 4) * 4;
    } else if (type == DTYPE_F16 || type == DTYPE_BF16) {
        at = find_bad16(data, bytes / 2, type == DTYPE_F16 ? 0x7c00 : 0x7f80) * 2;
    }
    if (at >= bytes)
        return STATUS_OK;
    char place[MODEL_PLACE_BYTES];
    struct text_view name = model_tensor_label(t);
    return model_file_bad(f, err, "tensor %.*s holds a NaN or an infinity at %s: the file is damaged",
                          (int)name.len, name.data, model_file_place(f, t->offset + start + at, place));
}

struct reading {
    const struct model_file *f;
    const struct model_tensor *t;
    unsigned char *dst;
    uint64_t piece; // bytes, of whole blocks
    _Atomic uint64_t next;
    _Atomic uint64_t bad; // the first piece in which something is wrong
    pthread_mutex_t mutex;
    struct err err; // and what
};

static void *read_pieces(void *arg) {
    struct reading *r = arg;
    for (;;) {
        uint64_t i = atomic_fetch_add(&r->next, 1), at = i * r->piece;
        if (at >= r->t->bytes || i > atomic_load(&r->bad))
            return NULL;
        uint64_t bytes = r->t->bytes - at < r->piece ? r->t->bytes - at : r->piece;
        struct err err = {0};
        if (model_file_read(r->f, r->t, at, bytes, r->dst + at, &err) == STATUS_OK &&
            scan(r->f, r->t, at, bytes, r->dst + at, &err) == STATUS_OK)
            continue;
        pthread_mutex_lock(&r->mutex);
        if (i < atomic_load(&r->bad)) {
            atomic_store(&r->bad, i);
            r->err = err;
        }
        pthread_mutex_unlock(&r->mutex);
    }
}

enum status tensor_read(const struct model_file *f, const struct model_tensor *t, void *dst,
                        struct err *err) {
    enum dtype type = t->view.dtype;
    uint64_t block = type < DTYPE_COUNT ? dtype_row_bytes(type, dtype_block(type)) : 1;
    struct reading r = {
        .f = f, .t = t, .dst = dst, .piece = (PIECE + block - 1) / block * block, .bad = UINT64_MAX};
    uint64_t pieces = (t->bytes + r.piece - 1) / r.piece;
    pthread_t threads[MAX_THREADS];
    int wanted = cpus_here() < MAX_THREADS ? cpus_here() : MAX_THREADS, num = 0;
    if (pieces < (uint64_t)wanted)
        wanted = (int)pieces;
    pthread_mutex_init(&r.mutex, NULL);
    while (num < wanted - 1 && pthread_create(&threads[num], NULL, read_pieces, &r) == 0)
        num++;
    read_pieces(&r); // also where no thread could be made
    while (num > 0)
        pthread_join(threads[--num], NULL);
    pthread_mutex_destroy(&r.mutex);
    return r.err.code ? err_set(err, r.err.code, "%s", r.err.msg) : STATUS_OK;
}
