// A model in several GGUF files, NAME-00001-of-0000N.gguf, as one model file: the keys of the first, the tensors of all.
#pragma once

#include "model_file.h"

// Whether a file is one of several.
bool gguf_is_split(const struct model_file *f);
// Opens the others beside the first, which was opened from path and is owned from now on, also on failure. NULL with err:
// STATUS_FORMAT, STATUS_IO, STATUS_NOMEM. Closed by model_file_close().
struct model_file *gguf_split_open(const char *path, struct model_file *first, struct err *err);
