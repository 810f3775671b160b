// Finds the table of a backend by name; the CUDA backend comes as a module, loaded at run time.
#pragma once

#include "backend.h"

// "cpu", "ref", "cuda". STATUS_INVALID: no such name. STATUS_DEVICE: the module is missing, does not load, or
// speaks another version of the seam; err is one line that says which. A module is never unloaded.
enum status backend_find(const char *name, const struct backend_ops **ops, struct err *err);

// Whether `auto` should try CUDA: a module is there, and a driver (or QUIRE_CUDA_MODULE names the module).
bool backend_cuda_at_hand(void);
