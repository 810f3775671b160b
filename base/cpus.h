// How many CPUs this process may use.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

// CPUs that the calling thread may run on, but no more than its control groups give whole time for; at least 1. The
// quota is read once. Any thread.
int cpus_here(void);

// Whole CPUs of the control groups' quota (docker --cpus, Kubernetes limits), rounded down but at least 1; INT_MAX
// without one. A group that has used up its time stands still, with all of its threads, for the rest of each period.
// root: as of cgroup_each(). Any thread.
int cpus_quota(const char *root);

#ifdef __cplusplus
}
#endif
