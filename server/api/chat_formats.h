// Chat templates of our own writing for models whose file has none: the formats that `--chat-template` takes
// by name. Pure; any thread.
#pragma once

#include <stddef.h>

// The template of a format, not NUL-terminated; NULL: there is no such name.
const char *chat_format(const char *name, size_t *len);
const char *chat_format_names(void); // "chatml, …"
