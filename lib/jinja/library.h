// All that templates can call by name.
#pragma once

#include "builtin.h"

extern const struct library jinja_library;
