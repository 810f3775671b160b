// The tensors of model.safetensors, or of the shards that model.safetensors.index.json names.
#pragma once

#include "files.h"
#include "safetensors.h"

struct hf_source { // a tensor of a file
    const struct st_tensor *tensor;
    uint64_t address; // of hf_files
};

struct hf_shards { // start it zeroed
    struct st_header *headers;
    int num_headers;
    struct hf_source *sources; // (num) by name
    size_t num;
};

// And of the matrices behind the pooling, of which there are 0 to 2 (hf_config.dense). false: err. hf_shards_free() is right
// in any case.
bool hf_shards_read(struct hf_shards *s, struct hf_files *d, int dense, struct err *err);
// Appends the tensors of one file, which are then not by name. false: err.
bool hf_shards_add(struct hf_shards *s, struct hf_files *d, const char *name, struct err *err);
const struct hf_source *hf_shards_find(const struct hf_shards *s, struct text_view name); // NULL: absent
void hf_shards_free(struct hf_shards *s);
