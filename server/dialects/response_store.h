// Responses that are kept (--store): by owner and id, as many bytes as allowed, the oldest go first. They are in memory;
// with a folder they are in its files, too, and so there again after a restart. Any thread.
#pragma once

#include "buf.h"
#include "http/auth.h"
#include "status.h"

#include <stdbool.h>

struct response_store;

struct response_store *response_store_new(size_t max_bytes); // NULL: out of memory
void response_store_free(struct response_store *s);          // NULL is allowed
enum stored_as {
    STORED_WHOLE,
    STORED_UNFINISHED, // it is still being made
    STORED_UNSAVED,    // in memory alone: its file could not be written
};
// Keeps copies of a body, of the JSON list of the items that led to it and of the events of its stream (NULL: none), in
// place of what has this id. One that does not fit is not kept, or without its events.
void response_store_put(struct response_store *s, const uint8_t owner[SHA256_BYTES], const char *id,
                        const struct buf *body, const struct buf *items, const struct buf *events,
                        enum stored_as as);
// Appends copies; each may be NULL. False: there is none of that owner and id, or a buffer has failed.
bool response_store_get(struct response_store *s, const uint8_t owner[SHA256_BYTES], const char *id,
                        struct buf *body, struct buf *items, struct buf *events);
// False: there is none of that owner and id.
bool response_store_delete(struct response_store *s, const uint8_t owner[SHA256_BYTES], const char *id);

// ---- its files

// Has them in a folder, before anything is kept. Errors: as response_files_open().
enum status response_store_open(struct response_store *s, const char *folder, struct err *err);
// Takes what its files have; waits for the disk. ended: says of a body, and of the events (none: there were none), that the
// response will not be made any more.
void response_store_load(struct response_store *s, void (*ended)(struct buf *body, struct buf *events));
bool response_store_waits(const struct response_store *s); // response_store_save() does, for the disk
// Brings the files to what is kept. True: the response of that owner and id is in its file, or there are no files.
bool response_store_save(struct response_store *s, const uint8_t owner[SHA256_BYTES], const char *id);

struct response_counts {
    size_t num, bytes; // kept
    size_t skipped;    // files that were none of ours, or damaged
    size_t unsaved;    // ever, that could not be written
    bool has_files;
};
struct response_counts response_store_counts(struct response_store *s);
