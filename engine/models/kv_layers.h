// Which layers keep their keys and values in which group of pages.
#pragma once

#include "model.h"

// Groups the layers of a model, from the window of each (0: none), what it keeps of a token and its recurrent state:
// fills c->groups, num_groups, kv_layers, state_layers, kv_places of c->attn, and kv_group, kv_layer, state_group and
// state_layer of each layer. Reads c->layers, c->attn and c->mix.
//
// Pages of all groups are equal, so a page has the same number of places, kv_layers, in every group. A place is as large
// as the least that a layer keeps of a block; a layer that keeps more takes several. Layers of one kind, window and
// places, fill groups in their order; the last group of a kind may have fewer. kv_layers is chosen so that pages of
// full attention, which grow with the context, have as little unused room as at most KV_MAX_GROUPS groups allow, then
// those of windows, and then so that there are few groups: of 24 layers with a window and 6 without, 4 groups and 1, of
// 6 layers each. A model of one kind has one group.
//
// A layer that shares has the place of the layer whose keys and values it takes.
//
// Groups of states come last. A page of theirs is one sequence's, so there are as few as make it no larger than a page of
// KV_LAYERS_BLOCK tokens of 16 bits.
enum { KV_LAYERS_BLOCK = 256 };
void kv_layers_group(struct model_config *c);
