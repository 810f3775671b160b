// Which format a path holds: a folder is Hugging Face's, a file GGUF.
#include "gguf.h"
#include "hf/folder.h"

#include <sys/stat.h>

struct model_file *model_file_open(const char *path, struct err *err) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? folder_open(path, err) : gguf_open(path, err);
}
