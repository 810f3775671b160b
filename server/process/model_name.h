// A MODEL that is no path but a name: looked up in what Hugging Face's tools and Ollama keep on this machine.
#pragma once

#include "status.h"

#include <stdbool.h>
#include <stddef.h>

// Whether `model`, which is no file or folder, reads like a name: ORG/NAME[:PART], hf.co/ORG/NAME[:PART], a URL, or Ollama's
// NAME[:TAG]. PART is a part of the name of one file of several, such as Q4_K_M. No I/O; any thread.
bool model_name_is(const char *model);

// Writes the file or folder that has this name into path, up to size bytes with the NUL. Reads HF_HUB_CACHE, HF_HOME,
// XDG_CACHE_HOME, OLLAMA_MODELS and HOME; downloads nothing. STATUS_IO: it is not there, and err says how to fetch it, or
// which of several files it may be. STATUS_NOMEM. Any thread while the environment stands still.
// Layouts: huggingface_hub's "Understand caching"; Ollama's server/manifest.go.
enum status model_name_find(const char *model, char *path, size_t size, struct err *err);
