// Pages in files: the store on a disk, without threads of its own.
//
// DIR/secret                 16 random bytes, mode 0600
// DIR/lock                   locked by the process that writes
// DIR/IDENTITY/identity      the text that IDENTITY, 32 hexadecimal digits, is the hash of
// DIR/IDENTITY/N.pages       a segment: pages one behind the other
// DIR/IDENTITY/N.index       its header, and a record for each page: group, hash, parent, checksums, tokens
//
// Both files of a segment only grow, pages first, so a process that is killed leaves at most a page without its record, or
// half a record, which the next one overwrites. Checksums are CRC-32C.
//
// Room: a segment is a sixteenth of max_bytes at most. Before one begins, the oldest of all identities go until two
// more fit; of those of this identity, pages that were asked for since they were written move to the new segment, at most
// half of it. So DIR never exceeds max_bytes.
//
// Threads: one writes, drops and refreshes; any others ask and read meanwhile.
#pragma once

#include "kv_store.h"

struct segment_store;

// As kv_store_open().
struct segment_store *segments_open(const struct kv_store_config *config, struct err *err);
void segments_close(struct segment_store *s); // NULL is allowed

void segments_key(const struct segment_store *s, uint64_t key[2]);
bool segments_has(struct segment_store *s, struct kv_hash hash, int group);
int64_t segments_age(struct segment_store *s, struct kv_hash hash, int group);

// STATUS_OK: it is there, now or already. STATUS_STOPPING: another process writes. STATUS_IO: err says why.
enum status segments_write(struct segment_store *s, const struct kv_transfer *t, struct err *err);
// STATUS_INVALID: it is not there. STATUS_FORMAT: it is damaged, or another's tokens, and forgotten. STATUS_IO.
enum status segments_read(struct segment_store *s, const struct kv_transfer *t, struct err *err);
// Finds what another process has written and dropped, and becomes the one that writes if none does.
void segments_refresh(struct segment_store *s);

// Sets bytes, max_bytes, pages and writer.
void segments_stats(struct segment_store *s, struct kv_store_stats *out);
