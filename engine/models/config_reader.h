// Shared by the parts of model_config.c: a configuration while it is read. Functions that return false have set
// r->err.
#pragma once

#include "architectures.h"
#include "model_file.h"

struct config_reader {
    const struct model_file *f;
    const struct arch *arch;
    struct hparams h;
    bool no_rope; // of all layers
    // Which have experts, and which rotate, where the file lists them
    bool lists_experts, lists_ropes, expert_layer[MODEL_MAX_LAYERS], rope_layer[MODEL_MAX_LAYERS];
    int kv_heads[MODEL_MAX_LAYERS],
        ffn[MODEL_MAX_LAYERS];        // of TRAIT_LAYERS_DIFFER, where the file has lists; or 0
    bool ffn_alone[MODEL_MAX_LAYERS]; // with TRAIT_ONE_PART: the layer is a feed-forward
    bool no_attn[MODEL_MAX_LAYERS], no_ffn[MODEL_MAX_LAYERS]; // with TRAIT_PARTS_MISSING
    bool rms_norm;                                            // where the architecture's own is LayerNorm
    bool recurrent[MODEL_MAX_LAYERS]; // the layer has a state in place of keys and values
    bool sparse[MODEL_MAX_LAYERS];    // ffn_spec.sparse, .deviations
    float deviations[MODEL_MAX_LAYERS];
    struct err *err;
    char key[160];
};

// ---- keys

// The whole name of a key, in r->key; and what the file has there, NULL: nothing.
const char *config_key(struct config_reader *r, enum hparam id);
const struct meta *config_find(struct config_reader *r, enum hparam id);
// Whether a key is there and holds another number than 0, which stands for the default.
bool config_given(struct config_reader *r, enum hparam id);
// Into its field, which keeps what it holds where the key is absent and not required, or not for this architecture.
bool config_read(struct config_reader *r, enum hparam id);
// An array of one integer for each layer.
bool config_layers(struct config_reader *r, const char *key, struct meta_array *a);
// The same of an architecture whose layers may lack the part: they have 0, and `lack` it.
bool config_read_some(struct config_reader *r, enum hparam id, int *each, bool *lack);
// A bool for each layer, into each (L), where the key is there.
bool config_flags(struct config_reader *r, const char *key, bool *each, bool *found);
// config_read(), but where the architecture's layers differ and the key has a list, that goes to `each` (L), and the
// largest of it to the field.
bool config_read_each(struct config_reader *r, enum hparam id, int *each);
// Refuses keys that would change the mathematics in a way we do not know.
bool config_check_keys(struct config_reader *r);
// Whether a text that may lack its end is `name`.
bool config_is(const char *name, const char *text, size_t len);

// ---- tensors

// The file's tensor of a part of a weight, or of its bias; part as for arch_tensor_name(). NULL: it has none.
const struct model_tensor *config_tensor(const struct config_reader *r, enum weight_role role, int part,
                                         bool bias, int layer);
// Rows of a matrix of the first layer or of none, whose number no key says; 0: it is no matrix of 1 to `most` rows.
int config_rows(const struct config_reader *r, enum weight_role role, int64_t most);
// Whether a weight has biases. Any of them asks for all: weights_check() names one that is missing.
bool config_has_biases(const struct config_reader *r, enum presence presence, enum weight_role role);

// ---- parts, in the order in which they are read

// The feed-forward part of layers with experts, and the number of layers behind the model. 0 stands for the architecture's
// own scale and gating.
bool config_experts(struct config_reader *r);
bool config_has_ffn(const struct config_reader *r, int layer);
bool config_has_experts(const struct config_reader *r, int layer);
// Sizes of heads, and which layers have none. Without a key_length the hidden size is divided among them.
bool config_heads(struct config_reader *r);
// 0 stands for the usual one, as in llama.cpp.
bool config_attn_scale(struct config_reader *r);
// The sizes and kind of recurrent layers.
bool config_mix(struct config_reader *r);
// W, and which layers have it: windowed (L). Qwen's own configurations name them; in a file that is the pattern.
bool config_window(struct config_reader *r, bool *windowed);
bool config_rope(struct config_reader *r);
// Whether attention is bidirectional: before the window, which then has another meaning.
bool config_causal(struct config_reader *r);
// The activation of the feed-forward: the architecture's, or what the file says.
bool config_act(struct config_reader *r);
// The parameters of ACT_XIELU, of each layer.
bool config_xielu(struct config_reader *r, struct model_config *c);
// How hidden states become one vector, and what is added to embeddings.
bool config_pooling(struct config_reader *r, struct model_config *c);
// Streams, and the tables whose sizes no key says: rows of per-layer embeddings, the rank of LAuReL.
bool config_streams(struct config_reader *r, struct model_config *c);
// Which layers share keys and values, and the sizes of those with a window.
bool config_shared_kv(struct config_reader *r, const bool *windowed);
