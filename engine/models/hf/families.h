// What Hugging Face folders call things, family by family: the second column beside architectures.h, whose names are
// GGUF's. A family of known mathematics is a row here; what its config.json and tensors have beside the others' is in
// the tables that the row points to.
#pragma once

#include "names.h"

struct hf_key { // of config.json; a list ends with one without names
    const char *theirs;
    // Behind the architecture's name; NULL: known, and read elsewhere or of no account; with HF_ONLY the value that there
    // must be, as JSON writes it.
    const char *ours;
    // HF_INT also takes an array of equal integers: one for each layer.
    enum { HF_INT, HF_FLOAT, HF_BOOL, HF_ONLY } type;
};

struct hf_family {
    const char *model_type; // of config.json
    const char *arch;       // of architectures.h
    bool adjacent;          // GGUF stores pairs of q and k adjacent, and the folder does not
    bool norms_less_one;    // norms are stored as w - 1
    const char *act;        // what hidden_act must say; NULL: "silu"
    const char
        *defaults; // JSON: values of keys that config.json may lack, as transformers has them; NULL: none
    const char *prefix;          // of names, in place of "model."; NULL: that
    const struct hf_name *names; // in a layer, looked at before those of all; NULL: none
    const struct hf_name *whole; // the same outside the layers
    const struct hf_key *keys;   // known to this family beside those of all; NULL: none
};

const struct hf_family *hf_family_find(struct text_view model_type); // NULL: unknown
const struct hf_family *hf_family_at(int i);                         // NULL behind the last

// The key of the list of all or of the family, which goes first. NULL: neither has it.
const struct hf_key *hf_key_find(const struct hf_family *f, struct text_view key);
const struct hf_key *hf_key_at(const struct hf_family *f, int i); // of both lists; NULL behind the last
// Whether an unknown key sounds like mathematics.
bool hf_key_is_suspect(struct text_view key);
