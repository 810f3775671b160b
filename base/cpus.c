#include "cpus.h"

#include "cgroup.h"
#include "minmax.h"

#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

// Up to two numbers of a file; those that it does not have ("max" is none) stay as they are.
static void read_numbers(const char *folder, const char *name, long long *first, long long *second) {
    char path[720];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    if (!f)
        return;
    const int ignored = fscanf(f, "%lld %lld", first, second);
    (void)ignored;
    fclose(f);
}

// Lowers *least to the CPUs whose time a control group may take.
static void group_quota(void *least, const char *folder) {
    long long time = 0, period = 0, none; // microseconds of time in each period
    read_numbers(folder, "cpu.max", &time, &period);
    read_numbers(folder, "cpu.cfs_quota_us", &time, &none);
    read_numbers(folder, "cpu.cfs_period_us", &period, &none);
    if (time > 0 && period > 0 && time / period < INT_MAX)
        *(int *)least = min_int(*(int *)least, time < period ? 1 : (int)(time / period));
}

int cpus_quota(const char *root) {
    int least = INT_MAX;
    cgroup_each(root, "cpu", group_quota, &least);
    return least;
}

int cpus_here(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    int count = n > 0 && n < INT_MAX ? (int)n : 1;
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        count = CPU_COUNT(&set);
#endif
    // Asked for each tensor that is read, and some ten files to look at.
    static _Atomic int quota; // 0: not looked at yet
    if (quota == 0)
        quota = cpus_quota("");
    return min_int(count, quota);
}
