// Opens the store of pages for an engine: names all that decides what their bits are.
#pragma once

#include "backend.h"
#include "engine.h"
#include "kv_store.h"
#include "models/model_file.h"

struct store_of {
    const struct engine_config *config;
    const struct backend_ops *ops;
    const struct device_info *device;
    const struct model_file *file;
    const struct model_config *model; // ropes as they are used
    int ranks;
    const char *dtype; // of the weights
    size_t page_bytes;
};

// Reads the whole file for its hash, unless DIR has that of the same file. STATUS_INVALID: this device, or several ranks, keep no store.
enum status store_open(const struct store_of *of, struct kv_store **store, struct err *err);

// Pages of host memory that pages of this many bytes pass through.
int store_host_pages(uint64_t page_bytes);
