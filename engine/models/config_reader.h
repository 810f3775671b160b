// What the parts of model_config.c share: a configuration as it is being read. Functions that give a bool have set
// r->err where it is false.
#pragma once

#include "architectures.h"
#include "model_file.h"

struct config_reader {
    const struct model_file *f;
    const struct arch *arch;
    struct hparams h;
    bool no_rope;                     // of all layers
    bool recurrent[MODEL_MAX_LAYERS]; // the layer has a state in place of keys and values
    struct err *err;
    char key[160];
};

// ---- keys

bool config_has_bit(uint64_t set, enum hparam id);
// The whole name of a key, in r->key; and what the file has there, NULL: nothing.
const char *config_key(struct config_reader *r, enum hparam id);
const struct meta *config_find(struct config_reader *r, enum hparam id);
// Whether a key is there and holds another number than 0, which stands for the default.
bool config_given(struct config_reader *r, enum hparam id);
// Into its field, which keeps what it holds where the key is absent and not required, or not for this architecture.
bool config_read(struct config_reader *r, enum hparam id);
// An array of one integer for each layer.
bool config_layers(struct config_reader *r, const char *key, struct meta_array *a);
// Refuses keys that would change the mathematics in a way we do not know.
bool config_check_keys(struct config_reader *r);
// Whether a text that may lack its end is `name`.
bool config_is(const char *name, const char *text, size_t len);

// ---- tensors

// Whether the file has the tensor of a weight's first part in layer 0.
bool config_has_tensor(const struct config_reader *r, const struct weight_slot *s);
// Whether a weight has biases. Any of them asks for all: weights_check() names one that is missing.
bool config_has_biases(const struct config_reader *r, enum presence presence, enum weight_role role);

// ---- parts, in the order in which they are read

// The feed-forward part of layers with experts, and the number of layers behind the model. 0 stands for the architecture's
// own scale and gating.
bool config_experts(struct config_reader *r);
bool config_has_experts(const struct config_reader *r, int layer);
// Sizes of heads, and which layers have none. Without a key_length the hidden size is divided among them.
bool config_heads(struct config_reader *r);
// 0 stands for the usual one, as in llama.cpp.
bool config_attn_scale(struct config_reader *r);
// What recurrent layers keep and how.
bool config_mix(struct config_reader *r);
// W, and which layers have it: windowed (L). Qwen's own configurations name them; in a file that is the pattern.
bool config_window(struct config_reader *r, bool *windowed);
bool config_rope(struct config_reader *r);
