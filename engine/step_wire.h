// A step as bytes for the other processes: only what is used of it, and no pointers. The same build of Quire
// is at both ends (processes.h compares versions).
#pragma once

#include "backend.h"

// The most bytes that a step within the limits takes. max_edits, max_blocks: of all its rows and sequences.
size_t step_wire_most(const struct step_limits *limits, int vocab, int block_size, size_t max_edits);
// Writes a step to dst, 64-byte aligned, with room for step_wire_most(). Returns its bytes.
size_t step_wire_write(void *dst, const struct step *step, int vocab);
// Makes a step whose pointers point into src, which is changed (masks become pointers) and lives as long as
// the step. STATUS_DEVICE with err: the bytes are no step within the limits, or one of
// its numbers points outside of what it indexes.
enum status step_wire_read(void *src, size_t bytes, const struct step_limits *limits, int vocab,
                           int block_size, struct step *step, struct err *err);
