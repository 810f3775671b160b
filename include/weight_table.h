// The rows of weights.def as roles and functions: the weights that a model has, their shapes, and how ranks share them.
#pragma once

#include "model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum weight_role {
#define MODEL_WEIGHT(role, ...) WEIGHT_##role,
#define LAYER_WEIGHT(role, ...) WEIGHT_##role,
#include "weights.def"
    NUM_WEIGHT_ROLES
};

enum weight_stage { STAGE_FIRST, STAGE_LAST, STAGE_OF_LAYER };
enum weight_kept { KEPT_MATRIX, KEPT_PLAIN };
enum weight_types { TYPES_ANY, TYPES_FLOATS, TYPES_F32 };

struct weight_info {
    const char *name; // of its field
    size_t field;     // where its pointer is in struct layer, or in struct model
    enum weight_stage stage;
    enum weight_kept kept;
    enum weight_types types;
};

static inline const struct weight_info *weight_info(enum weight_role role) {
    static const struct weight_info infos[NUM_WEIGHT_ROLES] = {
#define MODEL_WEIGHT(role, field, stage, kept, types, ...)                                                   \
    {#field, offsetof(struct model, field), STAGE_##stage, KEPT_##kept, TYPES_##types},
#define LAYER_WEIGHT(role, field, kept, types, ...)                                                          \
    {#field, offsetof(struct layer, field), STAGE_OF_LAYER, KEPT_##kept, TYPES_##types},
#include "weights.def"
    };
    return &infos[role];
}
static inline bool weight_in_layers(enum weight_role role) {
    return weight_info(role)->stage == STAGE_OF_LAYER;
}
static inline bool weight_is_plain(enum weight_role role) { return weight_info(role)->kept == KEPT_PLAIN; }

// Where the pointer to weight `index` of a role is; index: 0, or of MODEL_WEIGHTS. layer: unused outside the layers.
static inline const struct weight **weight_at(struct model *m, enum weight_role role, int layer, int index) {
    char *owner = weight_in_layers(role) ? (char *)&m->layers[layer] : (char *)m;
    return (const struct weight **)(void *)(owner + weight_info(role)->field) + index;
}

// The rank's part of a weight, as shard_cut() makes it.
enum weight_cut {
    CUT_WHOLE,      // all of it
    CUT_HEADS,      // as many heads as others
    CUT_KV_HEADS,   // those that its heads use
    CUT_MIX_HEADS,  // of recurrent layers, as many as others
    CUT_MIX_GROUPS, // those that its heads use; MIX_CONV: its heads
    CUT_FFN,        // of the feed-forward, 8 / world segments of the down matrix
    CUT_EXPERTS,    // 8 / world segments of them
    CUT_VOCAB,      // backend_vocab_rows()
};

struct weight_shape {
    int ndim; // 0: there is no such part
    int64_t size[3];
    enum weight_cut cut;
    int axis; // the size that ranks share: 0, or 1 of row-parallel matrices, whose columns they share
    bool bias;
};

static inline struct weight_shape weight_make_shape(enum weight_cut cut, int axis, int ndim, int64_t n0,
                                                    int64_t n1, int64_t n2) {
    struct weight_shape s = {ndim, {n0, n1, n2}, cut, axis, false};
    if (n0 <= 0 || (ndim > 1 && n1 <= 0) || (ndim > 2 && n2 <= 0))
        s.ndim = 0;
    return s;
}

// The norm of queries or of keys.
static inline struct weight_shape weight_head_norm(const struct attn_spec *a, enum weight_cut cut,
                                                   int64_t heads) {
    bool each = a->qk_norm == QK_NORM_EACH, whole = a->qk_norm == QK_NORM_WHOLE;
    bool none = a->qk_norm == QK_NORM_NONE || a->qk_norm == QK_NORM_UNIT || heads == 0;
    return each ? weight_make_shape(cut, 0, 2, heads, a->head_dim, 0)
                : weight_make_shape(CUT_WHOLE, 0, 1, none ? 0 : (whole ? heads : 1) * a->head_dim, 0, 0);
}

// The shape of a part of the weight in this model, which may be a rank's own; layer: unused outside the layers.
static inline struct weight_shape weight_shape_of(const struct model_config *model, enum weight_role role,
                                                  int layer, int part) {
    static struct attn_spec no_attn; // all 0
    static struct mix_spec no_mix;
    int l = weight_in_layers(role) ? layer : 0;
    const struct ffn_spec *ffn = model_ffn(model, l);
    const struct attn_spec *attn = model_attn(model, l) ? model_attn(model, l) : &no_attn;
    const struct mix_spec *mix = model_mix(model, l) ? model_mix(model, l) : &no_mix;
    int64_t hidden = model->hidden, layer_embed = model->layer_embed, altup_streams = model->altup_streams;
    int64_t heads = attn->heads, kv_heads = attn->shares_kv ? 0 : attn->kv_heads, head_dim = attn->head_dim;
    int64_t dense = ffn->experts > 0 ? ffn->shared_hidden : ffn->hidden;
    int64_t expert_dim = ffn_expert_dim(ffn, model->hidden);
    bool conv = mix->kind == MIX_CONV, ssm = mix->kind == MIX_SSM;
    int64_t mix_keys = conv ? mix_values(mix) : (int64_t)mix->groups * mix->key_dim;
    switch (role) {
#define VECTOR(cut, n) weight_make_shape(CUT_##cut, 0, 1, n, 0, 0)
#define ROWS(cut, rows, columns) weight_make_shape(CUT_##cut, 0, 2, rows, columns, 0)
#define COLUMNS(cut, rows, columns) weight_make_shape(CUT_##cut, 1, 2, rows, columns, 0)
#define STACK(cut, n, rows, columns) weight_make_shape(CUT_##cut, 0, 3, n, rows, columns)
#define HEAD_NORM(cut, n) weight_head_norm(attn, CUT_##cut, n)
#define MODEL_WEIGHT(role, field, stage, ...) LAYER_WEIGHT(role, field, __VA_ARGS__)
#define LAYER_WEIGHT(role, field, kept, types, has_bias, ...)                                                \
    case WEIGHT_##role: {                                                                                    \
        struct weight_shape parts[3] = {__VA_ARGS__};                                                        \
        parts[part].bias = has_bias;                                                                         \
        return parts[part];                                                                                  \
    }
#include "weights.def"
#undef VECTOR
#undef ROWS
#undef COLUMNS
#undef STACK
#undef HEAD_NORM
    case NUM_WEIGHT_ROLES: break;
    }
    return weight_make_shape(CUT_WHOLE, 0, 0, 0, 0, 0);
}

#ifdef __cplusplus
}
#endif
