#include "default_model.h"

#include <limits.h>
#include <stdbool.h>
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

enum status default_model_near(const char *dir, char *path, size_t size, struct err *err) {
    if (is_there(dir, "../share/quire/" FILE_NAME, path, size))
        return STATUS_OK;
    // A build tree is known by its cache, so that an installed binary never looks two folders up.
    char cache[PATH_MAX];
    if (is_there(dir, "CMakeCache.txt", cache, sizeof cache) &&
        is_there(dir, "../../models/" FILE_NAME, path, size))
        return STATUS_OK;
    return err_set(err, STATUS_IO,
                   "no MODEL is named, and the embedded model is missing: no " FILE_NAME
                   " in %s/../share/quire; name a .gguf file",
                   dir);
}

enum status default_model(char *path, size_t size, struct err *err) {
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash = NULL;
    if (n > 0) {
        self[n] = 0;
        slash = strrchr(self, '/');
    }
    if (!slash)
        return err_set(
            err, STATUS_IO,
            "no MODEL is named, and /proc/self/exe does not tell where the embedded model is; name a "
            ".gguf file");
    *slash = 0;
    return default_model_near(self, path, size, err);
}
