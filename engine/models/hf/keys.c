// See keys.h.
#include "keys.h"

#include <stdalign.h>
#include <stdlib.h>

struct hf_block {
    struct hf_block *next;
    alignas(16) unsigned char data[];
};

void *hf_alloc(struct hf_keys *keys, size_t bytes) {
    struct hf_block *b = bytes < SIZE_MAX / 2 ? malloc(sizeof *b + bytes) : NULL;
    if (!b) {
        keys->failed = true;
        return NULL;
    }
    b->next = keys->blocks;
    keys->blocks = b;
    return b->data;
}

char *hf_text(struct hf_keys *keys, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    char *copy = hf_alloc(keys, strlen(text) + 1);
    return copy ? strcpy(copy, text) : NULL;
}

// The value, of so many bytes, is copied.
static void add_key(struct hf_keys *keys, const char *name, const char *label, struct meta m,
                    const void *value, size_t bytes) {
    if (keys->num == keys->cap) {
        size_t cap = keys->cap + keys->cap / 2 + 64;
        struct meta *items = realloc(keys->items, cap * sizeof *items);
        keys->failed |= !items;
        keys->items = items ? items : keys->items;
        keys->cap = items ? cap : keys->cap;
    }
    unsigned char *copy = hf_alloc(keys, bytes);
    if (keys->failed || !name)
        return;
    if (bytes)
        memcpy(copy, value, bytes);
    m.key = view_of(name);
    m.label = label;
    m.value = copy;
    keys->items[keys->num++] = m;
}

void hf_int(struct hf_keys *keys, const char *name, int64_t v, const char *label) {
    bool small = v >= 0 && v <= UINT32_MAX; // as llama.cpp reads sizes, if the keys go to a GGUF file
    add_key(keys, name, label, (struct meta){.type = small ? META_U32 : META_I64, .count = 1}, &v,
            small ? 4 : 8);
}

void hf_float(struct hf_keys *keys, const char *name, double v, const char *label) {
    float f = (float)v;
    add_key(keys, name, label, (struct meta){.type = META_F32, .count = 1}, &f, sizeof f);
}

void hf_bool(struct hf_keys *keys, const char *name, bool v, const char *label) {
    add_key(keys, name, label, (struct meta){.type = META_BOOL, .count = 1}, &(unsigned char){v}, 1);
}

void hf_str(struct hf_keys *keys, const char *name, struct text_view v, const char *label) {
    unsigned char *text = hf_alloc(keys, 8 + v.len);
    if (!text)
        return;
    memcpy(text, &(uint64_t){v.len}, 8);
    memcpy(text + 8, v.data, v.len);
    add_key(keys, name, label, (struct meta){.type = META_STRING, .count = 1}, text, 8 + v.len);
}

void hf_array(struct hf_keys *keys, const char *name, enum meta_type elem, uint64_t count, const void *data,
              const char *label) {
    add_key(keys, name, label, (struct meta){.type = META_ARRAY, .elem = elem, .count = count}, NULL, 0);
    if (!keys->failed)
        keys->items[keys->num - 1].value = data;
}

void hf_keys_free(struct hf_keys *keys) {
    for (struct hf_block *b = keys->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(keys->items);
    *keys = (struct hf_keys){0};
}
