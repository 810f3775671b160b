// What Hugging Face folders call things, family by family: the second column beside architectures.h, whose names are
// GGUF's. A family of known mathematics is a row here; what its config.json and tensors have beside the others' is in
// the tables that the row points to.
#pragma once

#include "models/model_file.h"

enum hf_rows { // how the rows of a tensor become those that GGUF has
    ROWS_SAME,
    ROWS_Q, // of heads whose halves rotate as pairs (i, i + d/2): with hf_family.adjacent rows become (2i, 2i + 1)
    ROWS_K,
    ROWS_GROUPED_Q, // groups of the query heads of one kv head, its key and its value: the queries of all groups
    ROWS_GROUPED_K, // the keys
    ROWS_GROUPED_V, // the values
    ROWS_EVEN,      // every second of a matrix, or of each of several: the first, third...
    ROWS_ODD,
};

struct hf_name { // a list ends with one without names
    const char
        *theirs; // in a layer: behind "model.layers.N."; a '#' stands for a number: ours are stacked by it
    const char *ours; // in a layer: behind "blk.N."; "": ignored
    enum hf_rows rows;
};

struct hf_key { // of config.json; a list ends with one without names
    const char *theirs;
    // Behind the architecture's name; NULL: known, and read elsewhere or of no account; with HF_ONLY the value that there
    // must be, as JSON writes it.
    const char *ours;
    enum { HF_INT, HF_FLOAT, HF_ONLY } type;
};

struct hf_family {
    const char *model_type; // of config.json
    const char *arch;       // of architectures.h
    bool adjacent;          // GGUF stores pairs of q and k adjacent, and the folder does not
    bool norms_less_one;    // norms are stored as w - 1
    const char *act;        // what hidden_act must say; NULL: "silu"
    const char
        *defaults; // JSON: values of keys that config.json may lack, as transformers has them; NULL: none
    const struct hf_name *names; // in a layer, looked at before those of all; NULL: none
    const struct hf_name *whole; // the same outside the layers
    const struct hf_key *keys;   // known to this family beside those of all; NULL: none
};

const struct hf_family *hf_family_find(struct text_view model_type); // NULL: unknown
const struct hf_family *hf_family_at(int i);                         // NULL behind the last

// The key of the list of all or of the family. NULL: neither has it.
const struct hf_key *hf_key_find(const struct hf_family *f, struct text_view key);
const struct hf_key *hf_key_at(const struct hf_family *f, int i); // of both lists; NULL behind the last
// Whether an unknown key sounds like mathematics.
bool hf_key_is_suspect(struct text_view key);

// Where a tensor goes.
struct hf_place {
    const struct hf_name *name;
    int layer;  // -1: outside the layers
    int number; // of '#', else 0
    bool bias;  // the name's end: .bias or _bias, not .weight
};
// Calls fn for each place of a tensor; false: none. A tensor that is ignored has a place with an empty `ours`.
bool hf_places(const struct hf_family *f, struct text_view tensor,
               void (*fn)(void *arg, const struct hf_place *place), void *arg);
