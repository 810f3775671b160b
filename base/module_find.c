#include "module_find.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool module_find(const char *file, const char *variable, const char *built, char *path, size_t size,
                 char *dir, size_t dir_size) {
    const char *named = getenv(variable);
    dir[0] = 0;
    if (named) {
        snprintf(path, size, "%s", named);
        return access(path, R_OK) == 0;
    }
    ssize_t n = readlink("/proc/self/exe", dir, dir_size - 1);
    if (n <= 0)
        return false;
    dir[n] = 0;
    char *slash = strrchr(dir, '/');
    if (!slash)
        return false;
    *slash = 0;
    const char *const places[][2] = {{"", ""}, {built, "/"}, {"../", built}, {"../lib/quire/", ""}};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(path, size, "%s/%s%s/%s", dir, places[i][0], places[i][1], file);
        if (access(path, R_OK) == 0)
            return true;
    }
    return false;
}
