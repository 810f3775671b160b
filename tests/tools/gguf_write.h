// Writes GGUF files into memory, for tests: right ones, and wrong ones on purpose. Header only; aborts when
// out of memory.
//
//   struct gguf_writer w = {0};
//   gw_str(&w, "general.architecture", "llama");
//   gw_u32(&w, "llama.block_count", 1);
//   gw_tensor(&w, "token_embd.weight", 0, 2, (uint64_t[]){64, 8}, data, bytes);   // ne: innermost first
//   unsigned char *file = gw_finish(&w, &size);                                    // free() it; w is empty
//   again
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gw_bytes {
    unsigned char *p;
    size_t len, cap;
};

struct gguf_writer {
    struct gw_bytes kv, info, data;
    uint64_t num_kv, num_tensors;
    size_t alignment; // 0: 32
    // For wrong files: what the header says instead, where set.
    const char *magic;
    uint32_t version; // 0: 3
    uint64_t say_num_kv, say_num_tensors;
    uint64_t next_offset_add; // added to the offset of the next tensor
};

static inline void gw_raw(struct gw_bytes *b, const void *p, size_t n) {
    if (b->len + n > b->cap) {
        b->cap = 2 * b->cap + n + 64;
        b->p = (unsigned char *)realloc(b->p, b->cap);
        if (!b->p)
            abort();
    }
    if (n > 0 && p)
        memcpy(b->p + b->len, p, n);
    else if (n > 0)
        memset(b->p + b->len, 0, n);
    b->len += n;
}

static inline void gw_raw32(struct gw_bytes *b, uint32_t v) { gw_raw(b, &v, 4); }
static inline void gw_raw64(struct gw_bytes *b, uint64_t v) { gw_raw(b, &v, 8); }
static inline void gw_rawstr(struct gw_bytes *b, const char *s, size_t n) {
    gw_raw64(b, n);
    gw_raw(b, s, n);
}

// A key and its type; the value follows with gw_raw*(&w->kv, ...).
static inline void gw_key(struct gguf_writer *w, const char *key, uint32_t type) {
    gw_rawstr(&w->kv, key, strlen(key));
    gw_raw32(&w->kv, type);
    w->num_kv++;
}

static inline void gw_u32(struct gguf_writer *w, const char *key, uint32_t v) {
    gw_key(w, key, 4);
    gw_raw32(&w->kv, v);
}
static inline void gw_f32(struct gguf_writer *w, const char *key, float v) {
    gw_key(w, key, 6);
    gw_raw(&w->kv, &v, 4);
}
static inline void gw_bool(struct gguf_writer *w, const char *key, int v) {
    gw_key(w, key, 7);
    gw_raw(&w->kv, &(unsigned char){(unsigned char)v}, 1);
}
static inline void gw_str(struct gguf_writer *w, const char *key, const char *v) {
    gw_key(w, key, 8);
    gw_rawstr(&w->kv, v, strlen(v));
}
static inline void gw_array(struct gguf_writer *w, const char *key, uint32_t elem, uint64_t n, const void *p,
                            size_t bytes) { // not of strings
    gw_key(w, key, 9);
    gw_raw32(&w->kv, elem);
    gw_raw64(&w->kv, n);
    gw_raw(&w->kv, p, bytes);
}
static inline void gw_strings(struct gguf_writer *w, const char *key, uint64_t n, const char *const *s) {
    gw_key(w, key, 9);
    gw_raw32(&w->kv, 8);
    gw_raw64(&w->kv, n);
    for (uint64_t i = 0; i < n; i++)
        gw_rawstr(&w->kv, s[i], strlen(s[i]));
}

static inline size_t gw_align(const struct gguf_writer *w) { return w->alignment ? w->alignment : 32; }

// data NULL: zeros.
static inline void gw_tensor(struct gguf_writer *w, const char *name, uint32_t type, uint32_t ndim,
                             const uint64_t *ne, const void *data, size_t bytes) {
    gw_rawstr(&w->info, name, strlen(name));
    gw_raw32(&w->info, ndim);
    for (uint32_t i = 0; i < ndim; i++)
        gw_raw64(&w->info, ne[i]);
    gw_raw32(&w->info, type);
    gw_raw64(&w->info, w->data.len + w->next_offset_add);
    w->next_offset_add = 0;
    w->num_tensors++;
    gw_raw(&w->data, data, bytes);
    gw_raw(&w->data, NULL, (gw_align(w) - w->data.len % gw_align(w)) % gw_align(w));
}

static inline unsigned char *gw_finish(struct gguf_writer *w, size_t *size) {
    struct gw_bytes f = {0};
    gw_raw(&f, w->magic ? w->magic : "GGUF", 4);
    gw_raw32(&f, w->version ? w->version : 3);
    gw_raw64(&f, w->say_num_tensors ? w->say_num_tensors : w->num_tensors);
    gw_raw64(&f, w->say_num_kv ? w->say_num_kv : w->num_kv);
    gw_raw(&f, w->kv.p, w->kv.len);
    gw_raw(&f, w->info.p, w->info.len);
    if (w->num_tensors)
        gw_raw(&f, NULL, (gw_align(w) - f.len % gw_align(w)) % gw_align(w));
    gw_raw(&f, w->data.p, w->data.len);
    free(w->kv.p);
    free(w->info.p);
    free(w->data.p);
    *w = (struct gguf_writer){0};
    *size = f.len;
    return f.p;
}
