// value|filter
#pragma once

#include "builtin.h"

extern const struct builtin jinja_filters[];
