// The embedded model: the file that the commands take when no MODEL is named.
#pragma once

#include "status.h"

#include <stddef.h>

// Finds quire-tiny.gguf from the place of the running binary: ../share/quire/ beside an installed one,
// models/ of the source tree for one in build/PRESET. path gets at most size bytes. STATUS_IO: it is nowhere;
// err says in one sentence where it was looked for.
enum status default_model(char *path, size_t size, struct err *err);
// The same for a binary in the folder dir, which tests name themselves.
enum status default_model_near(const char *dir, char *path, size_t size, struct err *err);
