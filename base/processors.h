// How many processors this process may use.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

// At least 1: those that the system lets the calling thread run on, and no more than its control groups give
// it time for, which is looked at once. Any thread.
int processors_here(void);

// Processors whose whole time the control groups give (docker --cpus, Kubernetes limits), INT_MAX where they
// do not say. Parts count as none, above 1: a group that has used up its time stands still, all of its
// threads, for the rest of each period. root: as of cgroup_each. Any thread.
int processors_quota(const char *root);

#ifdef __cplusplus
}
#endif
