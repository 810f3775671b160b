// The memory of parsed JSON, all of it together: a value of two bytes takes some eighty.
#pragma once

#include <stddef.h>

// From here on JSON that would take more than max bytes in all is "out of memory" to jansson. Before there are threads.
void json_memory_limit(size_t max);
