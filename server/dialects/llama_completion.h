// llama-server's own API of completions: /completion, and /infill between two texts. Pure; any thread.
#pragma once

#include "api/dialect.h"

extern const struct dialect llama_completion, llama_infill;
