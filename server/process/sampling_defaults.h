// Sampling parameters of requests that give none.
#pragma once

#include "config.h"
#include "engine.h"
#include "sampling.h"

// Starts with the values of an API without advice, then takes the model's (--generation-config), then the operator's
// (--override-generation-config), and logs which are not the first. chat: the same for a person's chats, which begin with
// sampling_chat where the model gives no advice. STATUS_INVALID: one of the two flags. Any thread.
enum status sampling_defaults(struct sampling_params *out, struct sampling_params *chat,
                              const struct config *c, const struct engine_info *info, struct err *err);
