// value is test
#pragma once

#include "builtin.h"

extern const struct builtin jinja_tests[];
