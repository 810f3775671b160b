// The names that a family of models uses in its folders: keys, tensors, values.
#pragma once

#include "names.h"

struct hf_key { // of config.json; a list ends with one without names
    const char *theirs;
    // Behind the architecture's name; NULL: known, and read elsewhere or without effect; with HF_ONLY the only value
    // that the key may have, as JSON writes it.
    const char *ours;
    // HF_INT also takes an array of equal integers: one for each layer.
    enum { HF_INT, HF_FLOAT, HF_BOOL, HF_ONLY } type;
};

// Another name of a key. A list ends with one without names; of several the first that is there counts.
struct hf_alias {
    const char *key, *theirs;
};

struct hf_family {
    const char *model_type; // of config.json
    const char *arch;       // of architectures.h
    bool adjacent;          // GGUF stores pairs of q and k adjacent, and the folder does not
    bool norms_less_one;    // norms are stored as w - 1
    const char *act;        // required value of hidden_act; NULL: "silu"
    // JSON: values of keys that config.json may lack, as transformers has them; NULL: none
    const char *defaults;
    const char *prefix;                 // of names, in place of "model."; NULL: that
    const char *layers;                 // of those in layers, behind that, in place of "layers."; NULL: that
    bool four_times;                    // intermediate_size is 4 * hidden_size where it is absent or null
    bool positions_behind_pad;          // positions, and rows of their table, count from behind pad_token_id
    const struct hf_name *names;        // in a layer, looked at before those of all; NULL: none
    const struct hf_name *whole;        // the same outside the layers
    const struct hf_key *keys;          // known to this family beside those of all; NULL: none
    const struct hf_alias *aliases;     // NULL: none
    const struct hf_family *of_experts; // taken in its place where there are experts; NULL: itself
    const char *code;                   // of `architectures`, for which
    const struct hf_family *of_code;    // this is taken; NULL: there is none
    const struct hf_family *of_both;    // taken where use_bidirectional_attention is true; NULL: itself
};
