// Which tensor of a folder becomes which of ours, and how.
#pragma once

#include "recipe.h"

struct hf_layout { // start it zeroed
    // (num) owned, by address: recipes of the tensors that the files do not have as they are wanted
    struct hf_recipe *recipes;
    size_t num;
};

// Fills the tensors of f, which has room for as many keys as `keys`. false: err.
bool hf_layout_make(struct hf_layout *l, struct model_file *f, const struct hf_shards *shards,
                    const struct hf_config *config, struct hf_keys *keys, struct err *err);
// The recipe of an address behind those of the files. There is one.
const struct hf_recipe *hf_layout_find(const struct hf_layout *l, uint64_t address);
