// Where the tensors of a folder go.
#pragma once

#include "families.h"

enum { HF_MTP_LAYER = -2 };

// Where a tensor goes.
struct hf_place {
    const struct hf_name *name;
    int layer;  // -1: outside the layers; HF_MTP_LAYER: behind them
    int number; // of '#', else 0
    bool bias;  // the name's end: .bias or _bias, not .weight
};
enum hf_part { HF_UNKNOWN, HF_TEXT, HF_OTHER }; // HF_OTHER: of vision, audio or speculation; skipped
// Calls fn for each place of a tensor of the language model. A tensor that is ignored has a place with an empty `ours`.
enum hf_part hf_places(const struct hf_family *f, struct text_view tensor,
                       void (*fn)(void *arg, const struct hf_place *place), void *arg);
// The folder's name of our tensor `ours`, the first of several. false: the folder has none.
bool hf_place_label(const struct hf_family *f, const char *ours, char *buf, size_t size);
// The layer of a tensor; -1: none.
int hf_name_layer(const struct hf_family *f, struct text_view tensor);
