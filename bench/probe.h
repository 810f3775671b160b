// Asks the server, before the run, for its model and for how to write prompts of a given length.
#pragma once

#include "client.h"
#include "options.h"
#include "prompt.h"

#include <uv.h>

// The model that is asked, into `m`: --model, else the first that /v1/models lists, with what it says of the
// tokens that prompt and output may have (0: nothing). False: `message` says what the server answered.
bool probe_model(uv_loop_t *loop, struct client *client, const struct options *o, const volatile bool *stop,
                 struct prompt_maker *m, int64_t *max_model_len, char *message, size_t size);

// Fills the rest of `m`. False: `message` says what the server answered, or that `*stop` became true. A line
// on how prompts are written goes to `note`.
bool probe_server(uv_loop_t *loop, struct client *client, const struct options *o, const volatile bool *stop,
                  bool made_up, struct prompt_maker *m, char *note, size_t note_size, char *message,
                  size_t size);
