// A line of the log as a JSON object.
#pragma once

#include <stddef.h>

struct buf;

// Appends {"time":…,"level":…,"msg":…, and the keys of text}, at most `room` bytes: keys that find none are left out. A
// word `key=value` or `key="value with blanks"` is a key, its value a number where it is one of at most 15 characters;
// other words are the msg, of which 600 bytes count.
void log_json(struct buf *b, size_t room, const char *time, const char *level, const char *text);
