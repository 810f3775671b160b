// The model that is linked into the binary, so that one copied file can serve.
#pragma once

#include "status.h"

#include <stddef.h>

// Makes it a file in memory, which lives as long as the process, and gives its path. STATUS_IO, STATUS_NOMEM.
enum status embedded_model_path(char *path, size_t size, struct err *err);
