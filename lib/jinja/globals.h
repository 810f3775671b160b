// Functions that every template may call.
#pragma once

#include "builtin.h"

extern const struct builtin jinja_globals[];
