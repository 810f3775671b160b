// A borrowed text.
#pragma once

#include <stddef.h>

struct text_view { // borrowed bytes, not NUL-terminated, any content
    const char *data;
    size_t len;
};
