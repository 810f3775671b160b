// Where the modules lie that are loaded at run time.
#pragma once

#include <stdbool.h>
#include <stddef.h>

// Finds a module: the file that the environment variable names; else beside the binary, in `built` (a folder such as
// "kernels/cuda") of a build, or in ../lib/quire of an installation. Writes path (size bytes) and dir (dir_size bytes):
// the folder of the binary, "" where the variable is set. False: no such file is readable. Any thread.
bool module_find(const char *file, const char *variable, const char *built, char *path, size_t size,
                 char *dir, size_t dir_size);
