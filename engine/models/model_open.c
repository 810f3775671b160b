// Which format a path holds: a file is GGUF, perhaps the first of several; a folder is Hugging Face's, or holds one GGUF
// model and no config.json.
#include "gguf.h"
#include "gguf_split.h"
#include "hf/folder.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

// A model's file, of several the first. Towers of images lie beside it (llama.cpp's mmproj).
static bool is_model(const char *name) {
    const char *of = strstr(name, "-of-");
    bool later = of && of - name >= 5 && strncmp(of - 5, "00001", 5) != 0;
    return ends_with(name, ".gguf") && strncmp(name, "mmproj", 6) != 0 && !later;
}

// How many GGUF models a folder without config.json holds. file: the path of the first.
static int find_gguf(const char *path, char file[PATH_MAX]) {
    DIR *d = opendir(path);
    int num = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        if (strcmp(e->d_name, "config.json") == 0) {
            num = 0;
            break;
        }
        if (!is_model(e->d_name))
            continue;
        if (num++ == 0 && snprintf(file, PATH_MAX, "%s/%s", path, e->d_name) >= PATH_MAX)
            num = 0;
    }
    if (d)
        closedir(d);
    return num;
}

struct model_file *model_file_open(const char *path, struct err *err) {
    struct stat st;
    char file[PATH_MAX];
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        int num = find_gguf(path, file);
        if (num > 1)
            err_set(err, STATUS_FORMAT, "%s holds %d GGUF files and no config.json; name one, as %s", path,
                    num, file);
        if (num > 1)
            return NULL;
        if (num == 0)
            return folder_open(path, err);
        path = file;
    }
    struct model_file *f = gguf_open(path, err);
    return f && gguf_is_split(f) ? gguf_split_open(path, f, err) : f;
}
