// Settings of an engine: dtypes by name, and whether all processes have the same.
#pragma once

#include "engine.h"
#include "tensor.h"

// The names of --kv-cache-dtype; NULL is auto: F32 with F32 weights, so that nothing is rounded, else F16, which
// halves the bytes and keeps 11 bits; with BF16 weights, or FP8, *either: the device may take BF16. STATUS_INVALID: no such name.
enum status settings_kv_dtype(const char *name, enum dtype weights, enum dtype *dtype, bool *either,
                              struct err *err);
// The names of --dtype, which are vLLM's and those of --kv-cache-dtype; auto and NULL give DTYPE_COUNT: as in the
// file. STATUS_INVALID: no such name.
enum status settings_dtype(const char *name, enum dtype *dtype, struct err *err);

// The names of --pooling; auto and NULL leave what the model's file says. STATUS_INVALID: no such name, or the model is an
// encoder, which generates nothing.
enum status settings_pooling(const char *name, struct model_config *model, struct err *err);

// Floats of an embedding that requests may bring, where that is wanted; else 0. STATUS_INVALID: the model cannot take them.
enum status settings_embeds(bool wanted, const struct model_config *model, int *embed_size, struct err *err);

// Tokens of a block without a wish of the user: 16, or as many more, up to 512, as make a page of keys and values as large
// as one of states.
int settings_block_size(const struct model_config *model, enum dtype kv_dtype);

// Settles how many sequences and tokens a step has where c says 0: as many as the device suits, within what c says of the
// other. gpu: the device has memory of its own. An encoder takes each input whole: no prefix is shared, and none is longer
// than a step.
void settings_batch(struct engine_config *c, bool gpu, bool encoder, int *max_model_len);

// Compares the settings that must be equal in all processes: those on which bits and shapes depend. Threads, the
// instruction set and the file's path may differ. All processes call both functions in the same order, and get the
// same status. Without processes (p NULL) it is STATUS_OK. STATUS_INVALID: the message names process, setting and
// both values.
enum status settings_compare_flags(struct processes *p, const struct engine_config *c, struct err *err);

struct model_settings {
    const char *device;  // the backend's name
    uint64_t numerics;   // device_info's
    uint64_t file_bytes; // of the model file
    const char *hash;    // of its content
};
enum status settings_compare_model(struct processes *p, const struct model_settings *m, struct err *err);
