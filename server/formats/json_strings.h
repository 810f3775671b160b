// Strings of JSON, which may hold NULs, and those of C, which end at one.
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <string.h>

// The text of a string that stands for something: a name, a path, a word. NULL: it is no string, or holds a NUL, behind
// which nobody would look. Text for the model is read with its length.
static inline const char *json_name(const json_t *v) {
    const char *s = json_string_value(v);
    return s && strlen(s) == json_string_length(v) ? s : NULL;
}

// A string of UTF-8, which may be empty and then at NULL. NULL: out of memory.
static inline json_t *json_text(const char *text, size_t len) { return json_stringn(len ? text : "", len); }
