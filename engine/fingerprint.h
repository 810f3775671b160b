// What a model file's bytes are, in 32 characters: so that processes know that they have loaded the same.
#pragma once

#include "gguf.h"

enum { FINGERPRINT_BYTES = 33 }; // with the NUL

// Reads the whole file, as gguf_open() has it. A change within any eight bytes always gives another
// fingerprint, any other change does but for one in 2^64; it is no protection against somebody who makes
// files for it. STATUS_IO, STATUS_NOMEM.
enum status fingerprint_file(const struct gguf *g, char text[FINGERPRINT_BYTES], struct err *err);
// The same of bytes in memory, for tests: n is a multiple of 64 but for the last call.
struct fingerprint {
    uint64_t lane[8], bytes;
};
void fingerprint_begin(struct fingerprint *f);
void fingerprint_add(struct fingerprint *f, const void *data, size_t n);
void fingerprint_end(const struct fingerprint *f, char text[FINGERPRINT_BYTES]);
