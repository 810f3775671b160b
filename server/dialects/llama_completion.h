// llama-server's own /completion: the fields of OpenAI's completions by either name, one prompt, one choice.
// Pure; any thread.
#pragma once

#include "dialect.h"

extern const struct dialect llama_completion;
