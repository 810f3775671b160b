// Version and build id of this binary. base/build_id.cmake hashes the sources when they are compiled.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

extern const char build_version[]; // e.g. "0.1.0"

// Sixteen hexadecimal digits of a hash over all that decides results: the sources of all folders, and how
// they are built. The same wherever, whenever and with whatever compiler; another where any of them differs
// by a byte.
extern const char build_id[];

#ifdef __cplusplus
}
#endif
