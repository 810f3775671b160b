// From flags to the configuration of the engine and the service.
#pragma once

#include "config.h"
#include "service.h"

// Strings are borrowed from c.
void setup_engine(const struct config *c, struct engine_config *out);
void setup_service(const struct config *c, const struct engine_info *info, struct service_config *out);
// Whether requests get an ngram_drafter() (drafter.h).
bool setup_drafts_ngrams(const struct config *c, const struct engine_info *info);
// The exit code for a status of engine_open() and its like.
int setup_engine_exit_code(enum status status);
// And of service_open(): a record or a trace that cannot be opened is a flag's fault.
int setup_service_exit_code(enum status status);
// Says why tokenizer_encode() gave this status; returns the exit code.
int setup_encode_failed(enum status status);
