#include "library.h"

#include "filters.h"
#include "globals.h"
#include "methods.h"
#include "tests.h"

const struct library jinja_library = {
    .filters = jinja_filters,
    .tests = jinja_tests,
    .globals = jinja_globals,
    .methods = {[V_STRING] = str_methods,
                [V_LIST] = list_methods,
                [V_TUPLE] = tuple_methods,
                [V_DICT] = dict_methods,
                [V_LOOP] = loop_methods,
                [V_CYCLER] = cycler_methods},
};
