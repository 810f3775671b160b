// Where the modules lie that are loaded at run time.
#pragma once

#include <stdbool.h>
#include <stddef.h>

// Finds a module: what the environment variable names; else beside the binary, where the build leaves it
// (`built`, a folder such as "kernels/cuda"), where an installation has it. dir: the folder of the binary, ""
// where a variable names the module. False: there is none.
bool module_find(const char *file, const char *variable, const char *built, char *path, size_t size,
                 char *dir, size_t dir_size);
