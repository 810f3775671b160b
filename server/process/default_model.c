#include "default_model.h"

#include "embedded_model.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME "quire-tiny.gguf"

// Joins and asks for the file; "a/../b" is resolved, so that messages and logs show a plain path.
static bool is_there(const char *dir, const char *rest, char *path, size_t size) {
    char joined[PATH_MAX], real[PATH_MAX];
    int n = snprintf(joined, sizeof joined, "%s/%s", dir, rest);
    if (n < 0 || n >= (int)sizeof joined || access(joined, R_OK) != 0 || !realpath(joined, real) ||
        strlen(real) >= size)
        return false;
    memcpy(path, real, strlen(real) + 1);
    return true;
}

bool default_model_near(const char *dir, char *path, size_t size) {
    if (is_there(dir, "../share/quire/" FILE_NAME, path, size))
        return true;
    // A build tree is known by its cache, so that an installed binary never looks two folders up.
    char cache[PATH_MAX];
    return is_there(dir, "CMakeCache.txt", cache, sizeof cache) &&
           is_there(dir, "../../models/" FILE_NAME, path, size);
}

enum status default_model(char *path, size_t size, bool *embedded, struct err *err) {
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    *embedded = false;
    if (n > 0) {
        self[n] = 0;
        char *slash = strrchr(self, '/');
        if (slash)
            *slash = 0;
        if (slash && default_model_near(self, path, size))
            return STATUS_OK;
    }
    *embedded = true;
    return embedded_model_path(path, size, err);
}
