// The file of --config: a key and its value a line, `key: value` or `key = value`, a subset of YAML.
//
// A list is `[a, b]`, or a line `- a` for each value below its key. Quotes around a value are taken off, and nothing is escaped
// within them; # behind a blank begins a comment.
#pragma once

#include "status.h"

struct file_value {
    const char *key;   // as written
    const char *value; // "": there is none
    const char *wrong; // a sentence on the line, which is not understood; key and value are NULL. NULL: it is
    int line, index;   // index: of a list, from 1; 0: the value stands alone
};

// Gives the values to take() in their order, one by one, and the lines that are not understood; ends at the first status of take()
// that is not STATUS_OK, and returns it. Strings are take()'s until it returns; they are overwritten before they are freed, as
// keys may be among them. STATUS_INVALID with err: the file cannot be read.
enum status config_file_read(const char *path, enum status (*take)(void *arg, const struct file_value *v),
                             void *arg, struct err *err);
