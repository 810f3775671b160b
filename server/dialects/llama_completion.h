// llama-server's own API of completions: /completion. Pure; any thread.
#pragma once

#include "dialect.h"

extern const struct dialect llama_completion;
