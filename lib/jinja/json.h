// Values as JSON.
#pragma once

#include "builtin.h"

struct value filter_tojson(struct jinja *j, struct call *c);
