// The formats that `format` asserts, as regular expressions.
#pragma once

struct string_format {
    const char *name;
    const char *parts[3]; // of the regular expression, one behind the other; none: known, but not supported
    int max;              // characters; 0: no end
};
extern const struct string_format string_formats[];
