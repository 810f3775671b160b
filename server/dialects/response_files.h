// The files of kept responses (--store-dir): one each, written under another name, synced, renamed. A folder belongs to one
// server at a time, which locks it. Every function waits for the disk; one thread at a time.
//
// A response is written once, read once at the start, and never searched by anything but its name: a database would add a
// library, a journal and its recovery to what rename(2) already does at once.
#pragma once

#include "http/auth.h"
#include "status.h"

#include <stddef.h>

enum { STORED_BODY, STORED_ITEMS, STORED_EVENTS, STORED_TEXTS };

struct response_file {
    uint8_t key[SHA256_BYTES]; // of owner and id: neither is in the file besides
    uint64_t number;           // the later, the larger
    uint64_t unfinished;       // 1: of a response that was being made
    uint64_t lens[STORED_TEXTS];
};

struct response_files;

// Makes the folder, with mode 0700, where it is not, and locks it. NULL: err says why not.
struct response_files *response_files_open(const char *folder, struct err *err);
void response_files_close(struct response_files *f); // NULL is allowed
// The heads of its files, the oldest first; (*num), for free(). Removes what a server that was killed had not
// renamed; counts files of others, and ones too short, in *foreign. NULL: there are none, or out of memory.
struct response_file *response_files_list(struct response_files *f, size_t *num, size_t *foreign);
// The texts of a file, one behind the other, for free(). NULL: it is damaged, or out of memory.
char *response_files_read(struct response_files *f, const struct response_file *r);
// Writes a file in place of what has its key. Returns 0 or an errno. It survives a failure of power after
// response_files_sync().
int response_files_write(struct response_files *f, const struct response_file *r, const char *texts);
void response_files_remove(struct response_files *f, const uint8_t key[SHA256_BYTES]);
int response_files_sync(struct response_files *f); // 0 or an errno
