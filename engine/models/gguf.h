// GGUF files (versions 2 and 3, little-endian) as model files.
//
// A file is hostile until proved otherwise: every count is bounded by the bytes that are left, every product
// and sum is checked, nothing recurses, nothing asserts. README.md lists the checks by number.
//
// gguf_open() reads with pread and maps nothing: a file that is cut while we load is an error, never a
// signal.
#pragma once

#include "model_file.h"

enum {
    GGUF_MAX_KV = 65536,
    GGUF_MAX_TENSORS = 65536,
    GGUF_MAX_KEY = 65535,        // bytes
    GGUF_MAX_STRING = 16 << 20,  // bytes
    GGUF_MAX_ARRAY = 1 << 28,    // elements
    GGUF_MAX_NAME = 63,          // bytes of a tensor's name
    GGUF_MAX_HEADER = 512 << 20, // bytes before the tensor data
};

// Parses size bytes that outlive the file and are not modified; name is for messages. gguf_open() opens a
// regular file. NULL with err: STATUS_FORMAT, STATUS_IO, STATUS_NOMEM. Closed by model_file_close().
struct model_file *gguf_parse(const void *data, size_t size, const char *name, struct err *err);
struct model_file *gguf_open(const char *path, struct err *err);

uint32_t gguf_type_number(enum dtype t); // a file's number of a tensor's type
