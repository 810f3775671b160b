// Keys and tensors of a folder as the rest of the engine names them: in GGUF's words, which architectures.h and the
// tokenizers read. A folder's own words are translated here and nowhere else.
#pragma once

#include "models/model_file.h"

#include <string.h>

struct hf_block; // of memory

struct hf_keys { // start it zeroed
    struct meta *items;
    size_t num, cap;
    struct hf_block *blocks;
    bool failed; // out of memory: once, for all
};

// Memory until hf_keys_free(), 16-byte aligned. NULL and keys->failed: out of memory.
void *hf_alloc(struct hf_keys *keys, size_t bytes);
char *hf_text(struct hf_keys *keys, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Append a key. name: from hf_text() or static, as is label: what the folder calls it, for messages, or NULL.
void hf_int(struct hf_keys *keys, const char *name, int64_t v, const char *label);
void hf_float(struct hf_keys *keys, const char *name, double v, const char *label);
void hf_bool(struct hf_keys *keys, const char *name, bool v, const char *label);
void hf_str(struct hf_keys *keys, const char *name, struct text_view v, const char *label);
// Elements of a type of fixed size, or strings each with its length before it, in 8 bytes. data: from hf_alloc().
void hf_array(struct hf_keys *keys, const char *name, enum meta_type elem, uint64_t count, const void *data,
              const char *label);
void hf_keys_free(struct hf_keys *keys);

static inline struct text_view view_of(const char *text) { return (struct text_view){text, strlen(text)}; }
