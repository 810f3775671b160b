#include "cgroup.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

// The group `path`, which is cut, and those around it, below `mount`.
static void each_around(const char *root, const char *mount, char *path, cgroup_fn *fn, void *ctx) {
    for (;;) {
        char folder[680];
        snprintf(folder, sizeof folder, "%.100s%.40s%.500s", root, mount, path);
        fn(ctx, folder);
        char *last = strrchr(path, '/');
        if (!*path || !last)
            return;
        *last = 0;
    }
}

// Whether `name` is one of the words in `list`, which commas part.
static bool has_word(const char *list, const char *name) {
    size_t n = strlen(name);
    for (; list; list = strchr(list, ',')) {
        list += *list == ',';
        if (strncmp(list, name, n) == 0 && (list[n] == ',' || list[n] == 0))
            return true;
    }
    return false;
}

void cgroup_each(const char *root, const char *controller, cgroup_fn *fn, void *ctx) {
    char line[512], none[1] = "", old[40];
    snprintf(old, sizeof old, "/sys/fs/cgroup/%.20s", controller);
    // Where a container sees its own group as the root; /proc names it as the host does, or as "/".
    each_around(root, "/sys/fs/cgroup", none, fn, ctx);
    each_around(root, old, none, fn, ctx);
    snprintf(line, sizeof line, "%.100s/proc/self/cgroup", root);
    FILE *f = fopen(line, "r");
    while (f && fgets(line, sizeof line, f)) { // number:controllers:path
        line[strcspn(line, "\n")] = 0;
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (!path)
            continue;
        *names++ = *path++ = 0;
        if (strcmp(line, "0") == 0 && !*names)
            each_around(root, "/sys/fs/cgroup", path, fn, ctx);
        else if (has_word(names, controller))
            each_around(root, old, path, fn, ctx);
    }
    if (f)
        fclose(f);
}
