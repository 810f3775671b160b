// The tokenizer of a GGUF file in memory.
#pragma once

#include "gguf_write.h"
#include "models/gguf.h"
#include "text/tokenizer_load.h"

// NULL: err says why. The writer is empty then.
static inline struct tokenizer *gw_tokenizer(struct gguf_writer *w, struct err *err) {
    size_t size;
    unsigned char *file = gw_finish(w, &size);
    struct model_file *f = gguf_parse(file, size, "test.gguf", err);
    struct tokenizer *t = f ? tokenizer_load(f, err) : NULL;
    model_file_close(f);
    free(file);
    return t;
}
