#include "memory.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const size_t huge = (size_t)2 << 20;

struct region region_alloc(size_t bytes) {
    struct region r = {NULL, 0};
    if (bytes > SIZE_MAX / 2)
        return r;
    if (bytes < huge) {
        bytes = (bytes + 64) / 64 * 64;
        if ((r.data = aligned_alloc(64, bytes)))
            memset(r.data, 0, bytes);
        return r;
    }
    // What is left over a whole number of huge pages lies on small ones: a huge page for it would be mostly
    // empty, once for each matrix of each layer.
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    bytes = (bytes + page - 1) / page * page;
    char *p =
        mmap(NULL, bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return r;
    size_t skip = (huge - (uintptr_t)p % huge) % huge; // give back what lies outside the aligned part
    if (skip)
        munmap(p, skip);
    if (huge - skip)
        munmap(p + skip + bytes, huge - skip);
#ifdef MADV_HUGEPAGE
    madvise(p + skip, bytes, MADV_HUGEPAGE);
#endif
    return (struct region){p + skip, bytes};
}

void region_free(struct region *r) {
    if (r->bytes)
        munmap(r->data, r->bytes);
    else
        free(r->data);
    *r = (struct region){NULL, 0};
}

// The number in a file of one number; SIZE_MAX where there is none (also "max").
static size_t read_number(const char *path) {
    unsigned long long n = SIZE_MAX;
    FILE *f = fopen(path, "r");
    if (!f)
        return SIZE_MAX;
    if (fscanf(f, "%llu", &n) != 1)
        n = SIZE_MAX;
    fclose(f);
    return (size_t)n;
}

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

// Bytes of files that a control group's memory holds and that are given up when it is short, those of groups
// below it included (cgroups(7); version 1 has their sums under total_, and comes last).
static size_t file_cache(const char *dir) {
    char line[256], kind[16];
    size_t own = 0, total = 0;
    unsigned long long n;
    snprintf(line, sizeof line, "%s/memory.stat", dir);
    FILE *f = fopen(line, "r");
    while (f && fgets(line, sizeof line, f)) {
        bool is_total = strncmp(line, "total_", 6) == 0;
        if (sscanf(line + (is_total ? 6 : 0), "%9[a-z]_file %llu", kind, &n) == 2 &&
            (strcmp(kind, "active") == 0 || strcmp(kind, "inactive") == 0))
            *(is_total ? &total : &own) += (size_t)n;
    }
    if (f)
        fclose(f);
    return total ? total : own;
}

// What is left in a control group and in those that it is in: below `mount`, at `path`, which is cut.
static size_t group_left(const char *mount, char *path, const char *limit_name, const char *used_name) {
    size_t least = SIZE_MAX;
    for (;;) {
        char dir[200], name[240];
        snprintf(dir, sizeof dir, "%.40s%.150s", mount, path);
        snprintf(name, sizeof name, "%s/%s", dir, limit_name);
        size_t limit = read_number(name), cache = file_cache(dir);
        snprintf(name, sizeof name, "%s/%s", dir, used_name);
        size_t used = read_number(name);
        if (limit != SIZE_MAX && used != SIZE_MAX) {
            used = used > cache ? used - cache : 0;
            least = min_size(least, limit > used ? limit - used : 0);
        }
        char *last = strrchr(path, '/');
        if (!*path || !last)
            return least;
        *last = 0;
    }
}

static size_t cgroup_left(void) {
    char line[512], none[1] = "";
    // Where a container sees its own group as the root; /proc names it as the host does, or as "/".
    size_t n = group_left("/sys/fs/cgroup", none, "memory.max", "memory.current");
    n = min_size(n,
                 group_left("/sys/fs/cgroup/memory", none, "memory.limit_in_bytes", "memory.usage_in_bytes"));
    FILE *f = fopen("/proc/self/cgroup", "r");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *path = strstr(line, ":memory:");
        if (strncmp(line, "0::", 3) == 0)
            n = min_size(n, group_left("/sys/fs/cgroup", line + 3, "memory.max", "memory.current"));
        else if (path)
            n = min_size(n, group_left("/sys/fs/cgroup/memory", path + 8, "memory.limit_in_bytes",
                                       "memory.usage_in_bytes"));
    }
    if (f)
        fclose(f);
    return n;
}

size_t memory_available(void) {
    char line[256];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return min_size((size_t)kib * 1024, cgroup_left());
}
