// Which format a path holds. Today: GGUF.
#include "gguf.h"

struct model_file *model_file_open(const char *path, struct err *err) {
    return gguf_open(path, err);
}
