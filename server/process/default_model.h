// The model that the commands take when no MODEL is named.
#pragma once

#include "status.h"

#include <stdbool.h>
#include <stddef.h>

// quire-tiny.gguf beside the running binary, if it is there (default_model_near()), else the embedded model.
// path gets at most size bytes. STATUS_IO, STATUS_NOMEM: there is no place for the embedded one.
enum status default_model(char *path, size_t size, bool *embedded, struct err *err);
// Finds quire-tiny.gguf from the folder of a binary: ../share/quire/ of an installation, models/ of the
// source tree for build/PRESET. False: it is in neither place.
bool default_model_near(const char *dir, char *path, size_t size);
