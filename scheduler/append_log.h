// A file that a running service appends to: a record, a trace. Writing it must never stop serving: when a
// write fails, as on a full disk, the log ends there with one warning.
//
// Engine thread only, after append_log_open().
#pragma once

#include "status.h"

#include <stdbool.h>
#include <stdio.h>

struct append_log {
    FILE *file;       // buffered; write with fprintf, then append_log_check()
    const char *what; // for messages: "record"
    bool failed;
};

// Makes or empties the file, for its owner's eyes only (0600). STATUS_IO with the path in err.
enum status append_log_open(struct append_log *l, const char *what, const char *path, struct err *err);
bool append_log_ended(const struct append_log *l); // nothing more will be written
void append_log_check(struct append_log *l, bool flush);
void append_log_close(struct append_log *l); // a log that was never opened is allowed
