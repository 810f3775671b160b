// A Hugging Face folder as a model file: config.json, tokenizer.json, model.safetensors or its index, and what they need.
// README.md, "Loading a folder", has the rules.
#pragma once

#include "models/model_file.h"

// NULL with err: STATUS_FORMAT, STATUS_IO, STATUS_NOMEM. Closed by model_file_close().
struct model_file *folder_open(const char *path, struct err *err);
