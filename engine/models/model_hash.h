// A hash of a model file's bytes, in 32 characters: processes compare it to know that they have loaded the same.
#pragma once

#include "model_file.h"

enum { MODEL_HASH_BYTES = 33 }; // with the NUL

// Reads the whole file. A change within any eight bytes always gives another hash, any other change does but for one
// in 2^64; it does not protect against files made for it. STATUS_IO, STATUS_NOMEM.
enum status model_hash_file(const struct model_file *f, char text[MODEL_HASH_BYTES], struct err *err);
// A hash of what the system says of its files: device, number, size and times. As long as it is the same so is the file's hash: the time
// of a change cannot be set. False: it lies in no file, or one was changed within the last seconds.
bool model_hash_stamp(const struct model_file *f, char text[MODEL_HASH_BYTES]);
// The same of bytes in memory, for tests: n is a multiple of 64 but for the last call.
struct model_hash {
    uint64_t lane[8], bytes;
};
void model_hash_begin(struct model_hash *h);
void model_hash_add(struct model_hash *h, const void *data, size_t n);
void model_hash_end(const struct model_hash *h, char text[MODEL_HASH_BYTES]);
