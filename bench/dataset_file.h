#pragma once

#include "dataset_items.h"

// Reads d->text. False: `message` says why.
bool dataset_read_prompts(struct dataset *d, char *message, size_t size);
