#include "memory.h"

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
    bytes = (bytes + huge - 1) / huge * huge;
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

static size_t left(size_t limit, size_t used) {
    return limit == SIZE_MAX || used == SIZE_MAX ? SIZE_MAX : limit > used ? limit - used : 0;
}

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

static size_t cgroup_left(void) {
    char line[512], limit[600], used[600];
    size_t n = left(read_number("/sys/fs/cgroup/memory.max"), read_number("/sys/fs/cgroup/memory.current"));
    n = min_size(n, left(read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
                         read_number("/sys/fs/cgroup/memory/memory.usage_in_bytes")));
    FILE *f = fopen("/proc/self/cgroup", "r");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "0::", 3) != 0)
            continue;
        snprintf(limit, sizeof limit, "/sys/fs/cgroup%s/memory.max", line + 3);
        snprintf(used, sizeof used, "/sys/fs/cgroup%s/memory.current", line + 3);
        n = min_size(n, left(read_number(limit), read_number(used)));
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
