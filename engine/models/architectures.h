// The architectures as data: the keys of a file for each hyperparameter, the traits, the tensors and their shapes. An
// architecture of known mathematics is a row here.
#pragma once

#include "backend.h"

enum hparam { // the values of a configuration
    H_EXPERTS,
    H_LAYERS,
    H_CONTEXT,
    H_HIDDEN,
    H_FFN,
    H_HEADS,
    H_KV_HEADS,
    H_KEY_DIM,
    H_VALUE_DIM,
    H_NORM_EPS,
    H_LAYER_NORM_EPS,
    H_ATTN_SCALE,
    H_EMBED_SCALE,
    H_RESIDUAL_SCALE,
    H_LOGIT_SCALE,
    H_ATTN_CLIP,
    H_ATTN_SOFTCAP,
    H_ATTN_TEMP,
    H_ATTN_TEMP_STEP,
    H_LOGIT_SOFTCAP,
    H_WINDOW,
    H_WINDOW_PATTERN,
    H_PARALLEL,
    H_VOCAB,
    H_POOLING,
    H_ROPE_BASE,
    H_ROPE_WINDOW_BASE,
    H_ROPE_DIM,
    H_ROPE_ATTN_FACTOR,
    H_ROPE_TYPE,
    H_ROPE_FACTOR,
    H_ROPE_OLD_FACTOR,
    H_ROPE_CONTEXT,
    H_ROPE_LOW_FREQ,
    H_ROPE_HIGH_FREQ,
    H_ROPE_BETA_FAST,
    H_ROPE_BETA_SLOW,
    H_ROPE_FINETUNED,
    H_SHORT_CONV,
    H_SSM_CONV,
    H_SSM_INNER,
    H_SSM_STATE,
    H_SSM_HEADS,
    H_SSM_GROUPS,
    H_TOP_K,
    H_EXPERT_FFN,
    H_SHARED_EXPERTS,
    H_SHARED_FFN,
    H_EXPERT_SCALE,
    H_EXPERT_NORM,
    H_EXPERT_GATING,
    H_EXPERT_GROUPS,
    H_EXPERT_TOP_GROUPS,
    H_DENSE_LAYERS,
    H_EXPERT_STEP,
    H_EXPERT_EVERY,
    H_NEXTN,
    H_ATTN_INTERVAL,
    H_RECURRENT_LAYERS,
    H_ROPE_SECTIONS,
    H_ROPE_YARN_LOG,
    H_LATENT_KEY_DIM,
    H_LATENT_VALUE_DIM,
    H_KV_LORA,
    H_Q_LORA,
    H_CAUSAL,
    H_LABELS,
    H_DEEPSTACK,
    H_ACT,
    H_WINDOW_KEY_DIM,
    H_WINDOW_VALUE_DIM,
    H_WINDOW_ROPE_DIM,
    H_SHARED_KV,
    H_LAYER_EMBED,
    H_ALTUP_STREAMS,
    H_ALTUP_STREAM,
    H_SPARSITY,
    H_EXPERT_LATENT,
    NUM_HPARAMS,
};

// Hyperparameters as read, before layers get specs.
struct hparams {
    int vocab, layers, context, hidden, value_dim, latent_key_dim, latent_value_dim;
    int shared_experts, dense_layers, expert_step, nextn, gating;
    float norm_eps, embed_scale, residual_scale, logit_scale, logit_softcap, window_theta, yarn_log;
    int mix_inner, attn_interval, pooling, layer_embed, altup_streams, altup_stream;
    int shared_kv;                                         // so many last layers share keys and values
    int window_key_dim, window_value_dim, window_rope_dim; // of layers with a window; 0: as the others
    struct attn_spec attn;
    struct ffn_spec ffn, expert; // of layers without experts, of those with
    struct mix_spec mix;
    struct rope_config rope;
};

// How a hyperparameter is written. model_config.c reads it, and refuses a value of another type or outside the range.
struct hparam_key {
    const char *suffix; // of the key, after "<architecture>."
    enum { HPARAM_INT, HPARAM_FLOAT, HPARAM_OTHER } type;
    bool required;
    bool per_layer;  // may be an array of one value for every layer, all equal
    size_t field;    // of struct hparams: an int or a float
    double min, max; // of a float: above min
    bool off;        // a float that may also be 0, for what it is about is then left out
    size_t bound;    // not 0: at most the int at this place of struct hparams, in place of max
    bool of_some; // known to architectures that name it (arch.may or arch.must); else as if it were not here
};

// A key that changes the mathematics, with the values for which it does not.
struct fixed_key {
    const char *suffix;
    enum key_values {
        VALUE_ZERO,
        VALUE_ONE,
        VALUE_TRUE,
        VALUE_ANY,
        VALUE_NONE
    } values; // NONE: -1, for every layer
};

// Keys whose suffix has this part are about the mathematics: refused where no hparam_key and no fixed_key is theirs.
struct arch_suspect {
    bool anywhere; // else only at the beginning
    const char *part;
};

// The parts whose rows a tensor has. They follow each other, or take turns: some of each for every head, or every group of
// a recurrent layer.
struct tensor_rows {
    struct row_part {
        enum weight_role role;
        int part;
    } of[5];
    int num;
    enum row_turns { TURNS_NONE, TURNS_OF_HEADS, TURNS_OF_GROUPS } turns;
};

// The tensors of one weight, as files call them; weights.def says their shapes and which layers have it.
struct weight_slot {
    enum weight_role role;
    struct slot_part {
        const char *name;
        const char *end; // of the name; NULL: ".weight", and ".bias" of a bias
        bool column;     // a vector that is (n, 1) in the file
    } part[3];
    const struct tensor_rows *rows; // parts that it lists are rows of their tensor; NULL: none is
    // The one tensor that has the rows of all parts, of three dimensions those of each matrix, in a layer without the first
    // part; or NULL
    const char *fused;
    bool split;   // the fused tensor is what latent.h splits, not simply all rows
    bool stacked; // the part is matrix `at` of a tensor of ALTUP_STREAMS - 1
    int at;       // which of MODEL_WEIGHTS
    // Traits (enum trait) of which an architecture has one, and none; when 0: any. They choose among names: an architecture
    // whose layers lack a weight by its shape needs none.
    unsigned when, unless;
    // The layers, of those that have the weight; LATER: all but the first
    enum slot_layers {
        LAYERS_ALL,
        LAYERS_LATER,
        LAYERS_QDOWN,
        LAYERS_NO_QDOWN,
        LAYERS_EXPERTS,
        LAYERS_DENSE,
    } in;
};

// How an architecture's experts are weighted where its file does not say, and which tensors they have.
struct arch_experts {
    enum gating gating;
    bool renormalise;
    bool shared_gate;
    int shared; // experts for all rows, where the file does not say how many
    bool weigh_input;
    bool select_bias;     // if the file has it
    bool bias_is_sigmoid; // which then means GATING_SIGMOID
    bool biases;          // of the router and the experts
    bool sum_bias;        // ffn_spec.sum_bias, if the file has it
    // ffn_spec.own_norms and expert_scale: a dense feed-forward is the shared expert, router logits are divided by sqrt(D)
    bool own_norms;
    float near; // ffn_spec.near
    bool early_router;
    bool average;    // of the experts' sum and the shared one
    bool by_tensors; // layers before the first with a router are dense, where the file does not say how many
};

// Traits of an architecture's files: the tensors they have, or the names they use. They choose its slots.
enum trait {
    TRAIT_FFN_NORM_NAME = 2,   // the norm before the feed-forward is `post_attention_norm`
    TRAIT_FUSED_FFN = 4,       // gate and up may be one tensor
    TRAIT_POST_NORMS = 8,      // norms of what attention and feed-forward give
    TRAIT_NO_PRE_NORMS = 16,   // and none of what goes in
    TRAIT_SHORT_CONV = 64,     // layers of MIX_CONV
    TRAIT_DELTA = 128,         // of MIX_DELTA
    TRAIT_SSM = 256,           // of MIX_SSM
    TRAIT_BARE_FFN_NORM = 512, // `ffn_norm` is the tensor's whole name
    TRAIT_ATTN_GATE = 1024,    // attn_q has rows of q and of the gate of the attention output, head by head
    TRAIT_NO_GATE = 4096,      // the feed-forward has no gate
    TRAIT_LATENT = 8192,       // latent attention
    TRAIT_SINKS = 16384,
    TRAIT_BETA_ALPHA = 32768, // of MIX_DELTA: `ssm_ba` has rows of beta and alpha, group by group
    TRAIT_SUM_NORMS = 65536,  // BLOCK_SUM_NORM; no norm behind the layers
    TRAIT_EMBED_NORM = 1 << 17,
    TRAIT_POSITIONS = 1 << 18,     // a table of them
    TRAIT_BARE_FIRST = 1 << 19,    // the first layer has no norm of what goes into attention
    TRAIT_LAYER_EMBED = 1 << 20,   // layers may have embeddings, and a scale, of their own
    TRAIT_V_NORM = 1 << 21,        // attn_spec.v_norm, and tied_values in layers without attn_v
    TRAIT_LAYERS_DIFFER = 1 << 22, // in the number of kv heads and the size of the feed-forward
    TRAIT_ONE_PART = 1 << 23,  // a layer attends, or is recurrent, or a feed-forward; `attn_norm` is its norm
    TRAIT_OWN_NORMS = 1 << 24, // arch_experts.own_norms: the shared expert is called as a dense feed-forward
    TRAIT_STREAMS = 1 << 25,   // model_config.altup_streams, and sparse gates
    TRAIT_GATE_APART = 1 << 26, // the gate of the attention output is a tensor of its own
    // blocks are parallel: `attn_norm` is the norm of the feed-forward, and of attention without an `attn_norm_2`
    TRAIT_TWO_ATTN_NORMS = 1 << 27,
    TRAIT_BARE_NORMS = 1 << 28,       // norms have no weights: 1 is taken for each
    TRAIT_PARTS_MISSING = 1 << 29,    // layers of 0 heads do not attend, those of size 0 have no feed-forward
    TRAIT_BARE_SELECT_BIAS = 1 << 30, // `exp_probs_b` is the tensor's whole name
};

// A tensor that a file may have beside those of slots: tables of RoPE, what old converters left behind.
struct extra_tensor {
    bool per_layer;
    const char *name;
};

enum presence { NEVER, OPTIONAL, ALWAYS };

struct arch {
    const char *name;       // as the file has it, and the prefix of its keys
    bool rope_interleaved;  // pairs are (2i, 2i+1) in q and k as stored
    enum presence qkv_bias; // of q, k and v
    enum presence out_bias; // of the attention output
    enum presence ffn_bias; // of the feed-forward: gate and up; and of down
    enum presence head_bias;
    enum norm_kind norm;
    enum presence norm_bias;
    enum presence one_norm; // of parallel blocks: OPTIONAL where the file lacks that of the feed-forward
    unsigned traits;
    enum mix_kind mix;       // of its recurrent layers
    bool mix_tiled;          // mix_spec.tiled
    bool mix_beside;         // all layers are recurrent and attend besides
    bool mix_alone;          // all layers are recurrent, and nothing else
    enum qk_norm qk_norm;    // QK_NORM_EACH: where the file has it
    bool qk_norm_optional;   // so are the others
    int no_norm_experts;     // models of so many experts have no norms of queries and keys
    bool window_every_layer; // a window without a pattern holds for all layers; else nothing says for which
    int chunk; // the layers with a window keep to chunks, of so many tokens where the file does not say
    int window_pattern; // of so many layers the last has no window, where the file does not say; 0: it must
    bool full_first;    // the first of them has none
    bool window_rope;   // layers with a window have a RoPE of their own, unscaled: rope.freq_base_swa,
    float window_theta; // else this, else that of the others
    bool fine_ramp;     // rope_config.fine_ramp
    bool axes_in_turns; // rope_sections.in_turns
    bool full_no_rope;  // of a model with windows, layers without do not rotate,
    bool dense_rope;    // but for those without experts
    enum act act;
    bool encoder;          // attention is bidirectional
    bool ranks_mean;       // a classifier gets the mean of hidden states, else that of the first token
    bool embed_sqrt;       // the embedding is multiplied by sqrt(D)
    float attn_scale;      // of scores, where the file does not say; 0: 1 / sqrt(d)
    int wide_scale_layers; // models of so many layers scale scores by 1 / sqrt(D / H), whatever d is
    int no_rope_every;     // of so many layers the last does not rotate; 0: all do
    float still_temp;      // temp_scale of those, where the file does not say, and temp_step
    int still_step;
    float embed_scale;                  // where the file does not say it; 0: 1
    float depth_scale;                  // the residual scale is this by sqrt(L)
    float logit_base;                   // logits are multiplied by this, and divided by D
    bool logits_divided;                // by the file's logit_scale
    float logit_softcap;                // where the file does not say
    const struct arch_experts *experts; // NULL: none
    // Hyperparameters with `of_some` that a file may have, or must: enum hparam, ended by NUM_HPARAMS; NULL: none.
    const unsigned char *may, *must;
};

// The keys and tensors of all architectures, arch_keys.c and arch_slots.c; lists without a number end with a NULL.
extern const struct hparam_key arch_keys[NUM_HPARAMS];
extern const struct fixed_key arch_fixed[];
extern const struct arch_suspect arch_suspects[];
extern const struct weight_slot arch_slots[];
extern const int num_arch_slots;
extern const struct extra_tensor arch_extras[];
#define ROPE_FACTORS "rope_freqs.weight"               // the tensor of rope_config.freq_factors
#define ROPE_SHORT_FACTORS "rope_factors_short.weight" // with LongRoPE, both or neither
#define ROPE_LONG_FACTORS "rope_factors_long.weight"

// NULL: unknown. len: of the name.
const struct arch *arch_find(const char *name, size_t len);
const struct arch *arch_at(int i); // NULL behind the last
// ": ..." with what Quire lacks for a well-known architecture, or model_type of folders, that it does not know; else
// "".
const char *arch_lacks(const char *name, size_t len);

// Whether its files may have a hyperparameter with `of_some`, or must.
bool arch_may_have(const struct arch *a, enum hparam id);
bool arch_must_have(const struct arch *a, enum hparam id);
// Whether it knows the key at all.
bool arch_knows_key(const struct arch *a, enum hparam id);

// Whether the architecture has this slot.
bool arch_has_slot(const struct arch *a, const struct weight_slot *s);
// The slot of a role, the first one; NULL: it has none.
const struct weight_slot *arch_slot(const struct arch *a, enum weight_role role);
// An MTP layer's projection, or one whose columns are in the other order; and what it may have of its own
#define MTP_PROJ "nextn.eh_proj"
#define MTP_HIDDEN_PROJ "nextn.he_proj"
#define MTP_EMBED "nextn.embed_tokens"
#define MTP_HEAD "nextn.shared_head_head"
#define MTP_NORM "nextn.shared_head_norm"

enum { TENSOR_NAME_BYTES = 64, FUSED_PART = -1 };
// The file's name of a part of a slot, or of its bias; part FUSED_PART: the tensor of all parts. layer: ignored
// outside the layers. Returns buf.
const char *arch_tensor_name(const struct weight_slot *s, int part, bool bias, int layer,
                             char buf[TENSOR_NAME_BYTES]);

// Where a tensor belongs.
struct tensor_place {
    const struct weight_slot *slot; // NULL: an extra
    int part, layer;                // part FUSED_PART: no part by itself; layer -1: outside the layers
    bool fused;                     // it may have the rows of all parts
    bool bias;
};
// false: the architecture has no such tensor, whatever the configuration.
bool arch_find_tensor(const struct arch *a, const char *name, size_t len, struct tensor_place *place);
