// Writes a model file with its matrices in another type: `quire quantize`.
#pragma once

#include "status.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct quantize_config {
    const char *in, *out; // GGUF files
    const char *type;     // see quantize_types(), in any case
    int num_threads;      // 0: the CPUs this process may use
    bool pure;            // every matrix in that type: no better one for the head, none mixed in
    // Called on the calling thread, a few times a second or more often, or NULL. false ends the work with
    // STATUS_CANCELLED.
    bool (*progress)(void *arg, double fraction);
    void *arg;
};

struct quantize_result {
    uint64_t bytes_in, bytes_out; // of the files
    uint64_t elements;            // of all tensors
    int num_other;                // matrices in another type because their rows do not fit the blocks
};

// The names of types, separated by ", ". A constant.
const char *quantize_types(void);

// Reads a model that engine_open() would take, writes `out`. The file appears when it is whole: until then a
// temporary one lies beside it, which is gone when this returns. The bytes depend on the input and the type
// alone. Memory: twice the largest tensor. Any thread, one call at a time per `out`.
// STATUS_INVALID: type, or both names are one file; STATUS_FORMAT, STATUS_IO: a file; STATUS_NOMEM.
enum status quantize_file(const struct quantize_config *config, struct quantize_result *result,
                          struct err *err);

#ifdef __cplusplus
}
#endif
