// The commands; each returns an exit code.
#pragma once

#include "process/config.h"

int cmd_chat(const struct config *c);
int cmd_top(const struct config *c);
int cmd_generate(const struct config *c);
int cmd_inspect(const struct config *c);
int cmd_replay(const struct config *c);
int cmd_health(const struct config *c);
int cmd_launch(const struct config *c);
int cmd_perplexity(const struct config *c);
int cmd_quantize(const struct config *c);
int cmd_tokenize(const struct config *c);
