// A step as bytes for the worker processes: the used parts of its arrays, and no pointers. Both ends are the
// same build of Quire (processes_join() compares versions).
#pragma once

#include "backend.h"

// Bytes of the largest step within the limits. max_entries: of all its rows.
size_t step_wire_max_bytes(const struct step_limits *limits, const struct model_config *model, int block_size,
                           size_t max_entries);
// Writes a step to dst, 64-byte aligned, with room for step_wire_max_bytes(), when its masks are computed.
// Returns its bytes.
size_t step_wire_write(void *dst, const struct step *step, const struct model_config *model);
// Makes a step whose pointers point into src, which is changed (masks become pointers) and lives as long as
// the step. STATUS_DEVICE with err: the bytes are no step within the limits, or an index is out of range.
enum status step_wire_read(void *src, size_t bytes, const struct step_limits *limits,
                           const struct model_config *model, int block_size, struct step *step,
                           struct err *err);
