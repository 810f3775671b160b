// A LoRA adapter as it lies in files: a PEFT folder, or GGUF. README.md, "Adapters", says what is taken.
#pragma once

#include "backend.h"

struct adapter_file {                // start it zeroed
    struct adapter_matrix *matrices; // (L, ADAPTER_TARGETS) of the whole model
    int rank;                        // the most of any matrix
    size_t bytes;                    // of all elements
    void *memory;                    // which they lie in
};

// Reads and checks an adapter for a model: names, shapes, types, finite values, ranks up to max_rank, so that its
// size is bounded by the model's. STATUS_FORMAT, STATUS_IO, STATUS_NOMEM; adapter_file_free() is right in any case.
// Any thread.
enum status adapter_file_read(struct adapter_file *a, const char *path, const struct model_config *model,
                              int max_rank, struct err *err);
void adapter_file_free(struct adapter_file *a);
