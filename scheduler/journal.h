// A file that a running service appends to: a record, a trace. Writing it must never stop serving: when a
// write fails, as on a full disk, the journal ends there with one warning.
//
// Engine thread only, after journal_open().
#pragma once

#include "status.h"

#include <stdbool.h>
#include <stdio.h>

struct journal {
    FILE *file;       // buffered; write with fprintf, then journal_check()
    const char *what; // for messages: "record"
    bool failed;
};

// Makes or empties the file, for its owner's eyes only (0600). STATUS_IO with the path in err.
enum status journal_open(struct journal *j, const char *what, const char *path, struct err *err);
bool journal_ends(const struct journal *j); // nothing more will be written
void journal_check(struct journal *j, bool flush);
void journal_close(struct journal *j); // a journal that was never opened is allowed
