#include "memory.h"

#include "cgroup.h"

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
    // The remainder after whole huge pages lies on small ones: a huge page for it would be mostly empty, once
    // for each matrix of each layer.
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

void *arena_take(struct cpu_arena *a, size_t n, size_t size) {
    void *p = a->base ? a->base + a->used : NULL;
    a->used += (n * size + 63) / 64 * 64;
    return p;
}

// The number that a file holds; SIZE_MAX where it holds none (also "max").
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
    char line[720], kind[16];
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

// Lowers *least to what a control group has left.
static void group_left(void *least, const char *folder) {
    static const char *const names[][2] = {{"memory.max", "memory.current"},
                                           {"memory.limit_in_bytes", "memory.usage_in_bytes"}};
    for (int i = 0; i < 2; i++) {
        size_t n[2];
        for (int k = 0; k < 2; k++) {
            char name[720];
            snprintf(name, sizeof name, "%s/%s", folder, names[i][k]);
            n[k] = read_number(name);
        }
        if (n[0] == SIZE_MAX || n[1] == SIZE_MAX)
            continue;
        size_t cache = file_cache(folder), used = n[1] > cache ? n[1] - cache : 0;
        *(size_t *)least = min_size(*(size_t *)least, n[0] > used ? n[0] - used : 0);
    }
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
    size_t least = (size_t)kib * 1024;
    cgroup_each("", "memory", group_left, &least);
    return least;
}
