// Which format a path holds: a folder is Hugging Face's, a file GGUF, perhaps the first of several.
#include "gguf.h"
#include "gguf_split.h"
#include "hf/folder.h"

#include <sys/stat.h>

struct model_file *model_file_open(const char *path, struct err *err) {
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return folder_open(path, err);
    struct model_file *f = gguf_open(path, err);
    return f && gguf_is_split(f) ? gguf_split_open(path, f, err) : f;
}
