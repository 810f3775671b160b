// Methods of strings, lists, dicts, loops and cyclers.
#pragma once

#include "builtin.h"

extern const struct builtin str_methods[], list_methods[], tuple_methods[], dict_methods[], loop_methods[],
    cycler_methods[];
