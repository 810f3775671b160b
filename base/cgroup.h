// The control groups that this process is in (cgroups(7)): what its machine or container allows it.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

// folder: one that exists or not, with the files of a group in it
typedef void cgroup_fn(void *ctx, const char *folder);

// Calls fn with the folder of each group that this process is in and of each group around it, of version 2
// and of `controller` ("cpu", "memory") of version 1. A container may see its own group as the outermost, so
// those come first. root: "", or for tests a folder that stands for "/", of at most 100 bytes. Any thread.
void cgroup_each(const char *root, const char *controller, cgroup_fn *fn, void *ctx);

#ifdef __cplusplus
}
#endif
