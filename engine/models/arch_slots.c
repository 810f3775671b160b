// See architectures.h: the tensors of a file.
#include "architectures.h"

#include <stdio.h>
#include <string.h>

#define IN_MODEL(member) offsetof(struct model, member)
#define IN_LAYER(member) offsetof(struct layer, member)
#define STREAM_SLOT(role, field, name, i)                                                                    \
    {                                                                                                        \
        role, SLOT_MODEL, IN_MODEL(field[i]), .part = {{name, "DD", .stacked = true, .at = i}},              \
                                              .when = TRAIT_STREAMS                                          \
    }
const struct weight_slot arch_slots[] = {
    // in the order in which they are loaded: the model's own first
    {WEIGHT_EMBED, SLOT_MODEL, IN_MODEL(embed), .part = {{"token_embd", "VD"}}},
    {WEIGHT_POSITIONS, SLOT_MODEL, IN_MODEL(positions), .part = {{"position_embd", "XD"}},
     .when = TRAIT_POSITIONS},
    {WEIGHT_TYPES, SLOT_MODEL, IN_MODEL(types), .part = {{"token_types", "yD"}}, .of = OF_TYPES},
    {WEIGHT_EMBED_NORM, SLOT_MODEL, IN_MODEL(embed_norm), .part = {{"token_embd_norm", "D"}},
     .when = TRAIT_EMBED_NORM},
    {WEIGHT_HEAD, SLOT_MODEL, IN_MODEL(head), .part = {{"output", "VD"}}},
    {WEIGHT_NORM, SLOT_MODEL, IN_MODEL(out_norm), .part = {{"output_norm", "D"}},
     .unless = TRAIT_SHORT_CONV | TRAIT_SUM_NORMS},
    {WEIGHT_NORM, SLOT_MODEL, IN_MODEL(out_norm), .part = {{"token_embd_norm", "D"}},
     .when = TRAIT_SHORT_CONV},
    {WEIGHT_LAYER_EMBED, SLOT_MODEL, IN_MODEL(layer_embed), .part = {{"per_layer_token_embd", "eL"}},
     .when = TRAIT_LAYER_EMBED, .of = OF_LAYER_EMBED},
    {WEIGHT_LAYER_EMBED_IN, SLOT_MODEL, IN_MODEL(layer_embed_in), .part = {{"per_layer_model_proj", "LD"}},
     .when = TRAIT_LAYER_EMBED, .of = OF_LAYER_EMBED},
    {WEIGHT_NORM, SLOT_MODEL, IN_MODEL(layer_embed_norm), .part = {{"per_layer_proj_norm", "l"}},
     .when = TRAIT_LAYER_EMBED, .of = OF_LAYER_EMBED},
    STREAM_SLOT(WEIGHT_STREAM_IN, stream_in, "altup_proj", 0),
    STREAM_SLOT(WEIGHT_STREAM_IN, stream_in, "altup_proj", 1),
    STREAM_SLOT(WEIGHT_STREAM_IN, stream_in, "altup_proj", 2),
    STREAM_SLOT(WEIGHT_STREAM_OUT, stream_out, "altup_unembd_proj", 0),
    STREAM_SLOT(WEIGHT_STREAM_OUT, stream_out, "altup_unembd_proj", 1),
    STREAM_SLOT(WEIGHT_STREAM_OUT, stream_out, "altup_unembd_proj", 2),
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(stream_norm), .part = {{"altup_router_norm", "D"}},
     .when = TRAIT_STREAMS},
    {WEIGHT_STREAM_ROUTER, SLOT_LAYER, IN_LAYER(stream_router), .part = {{"altup_router", "sD"}},
     .when = TRAIT_STREAMS},
    {WEIGHT_STREAM_PREDICT, SLOT_LAYER, IN_LAYER(stream_predict), .part = {{"altup_predict_coef", "qs"}},
     .when = TRAIT_STREAMS},
    {WEIGHT_STREAM_CORRECT, SLOT_LAYER, IN_LAYER(stream_correct), .part = {{"altup_correct_coef", "ss"}},
     .when = TRAIT_STREAMS},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(stream_scale), .part = {{"altup_correct_scale", "D"}},
     .when = TRAIT_STREAMS},
    {WEIGHT_LAUREL_LEFT, SLOT_LAYER, IN_LAYER(laurel_left), .part = {{"laurel_l", "RD"}},
     .when = TRAIT_STREAMS},
    {WEIGHT_LAUREL_RIGHT, SLOT_LAYER, IN_LAYER(laurel_right), .part = {{"laurel_r", "DR"}},
     .when = TRAIT_STREAMS},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(laurel_norm), .part = {{"laurel_post_norm", "D"}},
     .when = TRAIT_STREAMS},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(attn_norm), .part = {{"attn_norm", "D"}},
     .unless = TRAIT_NO_PRE_NORMS | TRAIT_BARE_FIRST},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(attn_norm), .part = {{"attn_norm", "D"}}, .when = TRAIT_BARE_FIRST,
     .of = OF_LATER},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(attn_post_norm), .part = {{"post_attention_norm", "D"}},
     .when = TRAIT_POST_NORMS},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(ffn_post_norm), .part = {{"post_ffw_norm", "D"}},
     .when = TRAIT_POST_NORMS},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(attn_post_norm), .part = {{"attn_output_norm", "D"}},
     .when = TRAIT_SUM_NORMS},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(ffn_post_norm), .part = {{"layer_output_norm", "D"}},
     .when = TRAIT_SUM_NORMS},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(q_norm), .part = {{"attn_q_norm", "Q"}}, .when = TRAIT_WHOLE_QK_NORM,
     .of = OF_ATTN},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(k_norm), .part = {{"attn_k_norm", "K"}}, .when = TRAIT_WHOLE_QK_NORM,
     .of = OF_ATTN},
    {WEIGHT_QKV, SLOT_LAYER, IN_LAYER(qkv), .part = {{"attn_q", "QD"}, {"attn_k", "KD"}, {"attn_v", "KD"}},
     .fused = "attn_qkv", .unless = TRAIT_ATTN_GATE | TRAIT_LATENT, .of = OF_ATTN},
    {WEIGHT_QKV, SLOT_LAYER, IN_LAYER(qkv),
     .part = {{"attn_q", "QD", .rows = "QQ", .each = 'd'}, {"attn_k", "KD"}, {"attn_v", "KD"}},
     .when = TRAIT_ATTN_GATE, .of = OF_ATTN},
    {WEIGHT_ATTN_GATE, SLOT_LAYER, IN_LAYER(attn_gate),
     .part = {{"attn_q", "QD", .rows = "QQ", .at = 1, .each = 'd'}}, .when = TRAIT_ATTN_GATE, .of = OF_ATTN},
    {WEIGHT_LATENT, SLOT_LAYER, IN_LAYER(latent), .part = {{"attn_kv_a_mqa", "AD"}}, .when = TRAIT_LATENT},
    {WEIGHT_LATENT_QDOWN, SLOT_LAYER, IN_LAYER(latent_qdown), .part = {{"attn_q_a", "UD"}},
     .when = TRAIT_LATENT, .of = OF_Q_LATENT},
    {WEIGHT_LATENT_Q, SLOT_LAYER, IN_LAYER(latent_q), .part = {{"attn_q", "PD"}}, .when = TRAIT_LATENT,
     .of = OF_NO_Q_LATENT},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(latent_norm), .part = {{"attn_kv_a_norm", "C"}}, .when = TRAIT_LATENT},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(latent_qnorm), .part = {{"attn_q_a_norm", "U"}}, .when = TRAIT_LATENT,
     .of = OF_Q_LATENT},
    {WEIGHT_LATENT_Q, SLOT_LAYER, IN_LAYER(latent_q), .part = {{"attn_q_b", "PU"}}, .when = TRAIT_LATENT,
     .of = OF_Q_LATENT},
    {WEIGHT_LATENT_KEY, SLOT_LAYER, IN_LAYER(latent_key), .part = {{"attn_k_b", "HCN"}}, .fused = "attn_kv_b",
     .fused_shape = "BC", .when = TRAIT_LATENT},
    {WEIGHT_LATENT_VALUE, SLOT_LAYER, IN_LAYER(latent_value), .part = {{"attn_v_b", "HWC"}},
     .fused = "attn_kv_b", .fused_shape = "BC", .when = TRAIT_LATENT},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(q_norm), .part = {{"attn_q_norm", "d"}}, .when = TRAIT_QK_NORM,
     .of = OF_QK_NORM},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(k_norm), .part = {{"attn_k_norm", "d"}}, .when = TRAIT_QK_NORM,
     .of = OF_K_NORM},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(q_norm), .part = {{"attn_q_norm", "Hd"}}, .when = TRAIT_EACH_QK_NORM,
     .of = OF_ATTN},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(k_norm), .part = {{"attn_k_norm", "kd"}}, .when = TRAIT_EACH_QK_NORM,
     .of = OF_ATTN},
    {WEIGHT_SINKS, SLOT_LAYER, IN_LAYER(sinks), .part = {{"attn_sinks", "H"}}, .when = TRAIT_SINKS,
     .of = OF_ATTN},
    {WEIGHT_ATTN_OUT, SLOT_LAYER, IN_LAYER(attn_out), .part = {{"attn_output", "DO"}}, .of = OF_ATTN},
    {WEIGHT_MIX_IN, SLOT_LAYER, IN_LAYER(mix_in),
     .part = {{"shortconv.in_proj", "vD", .rows = "vvv"},
              {"shortconv.in_proj", "vD", .rows = "vvv", .at = 1},
              {"shortconv.in_proj", "vD", .rows = "vvv", .at = 2}},
     .when = TRAIT_SHORT_CONV, .of = OF_MIX},
    {WEIGHT_MIX_IN, SLOT_LAYER, IN_LAYER(mix_in),
     .part = {{"attn_qkv", "nD", .rows = "nnv"},
              {"attn_qkv", "nD", .rows = "nnv", .at = 1},
              {"attn_qkv", "vD", .rows = "nnv", .at = 2}},
     .when = TRAIT_DELTA, .of = OF_MIX},
    {WEIGHT_MIX_GATE, SLOT_LAYER, IN_LAYER(mix_gate),
     .part = {{"attn_gate", "vD"}, {"ssm_beta", "hD"}, {"ssm_alpha", "hD"}}, .when = TRAIT_DELTA,
     .unless = TRAIT_BETA_ALPHA, .of = OF_MIX},
    {WEIGHT_MIX_GATE, SLOT_LAYER, IN_LAYER(mix_gate),
     .part = {{"attn_gate", "vD"},
              {"ssm_ba", "hD", .rows = "hh", .each = 'r'},
              {"ssm_ba", "hD", .rows = "hh", .at = 1, .each = 'r'}},
     .when = TRAIT_BETA_ALPHA, .of = OF_MIX},
    {WEIGHT_MIX_CONV, SLOT_LAYER, IN_LAYER(mix_conv),
     .part = {{"ssm_conv1d", "nt", .rows = "nnv"},
              {"ssm_conv1d", "nt", .rows = "nnv", .at = 1},
              {"ssm_conv1d", "vt", .rows = "nnv", .at = 2}},
     .when = TRAIT_DELTA, .of = OF_MIX},
    {WEIGHT_MIX_HEADS, SLOT_LAYER, IN_LAYER(mix_heads),
     .part = {{"ssm_a", "h", .end = ""}, {"ssm_dt", "h", .end = ".bias"}}, .when = TRAIT_DELTA, .of = OF_MIX},
    {WEIGHT_MIX_NORM, SLOT_LAYER, IN_LAYER(mix_norm), .part = {{"ssm_norm", "p"}}, .when = TRAIT_DELTA,
     .of = OF_MIX},
    {WEIGHT_MIX_OUT, SLOT_LAYER, IN_LAYER(mix_out), .part = {{"ssm_out", "Dv"}}, .when = TRAIT_DELTA,
     .of = OF_MIX},
    // z, x, B, C, dt
    {WEIGHT_MIX_IN, SLOT_LAYER, IN_LAYER(mix_in),
     .part = {{"ssm_in", "nD", .rows = "vvnnh", .at = 3},
              {"ssm_in", "nD", .rows = "vvnnh", .at = 2},
              {"ssm_in", "vD", .rows = "vvnnh", .at = 1}},
     .when = TRAIT_SSM, .of = OF_MIX},
    {WEIGHT_MIX_GATE, SLOT_LAYER, IN_LAYER(mix_gate),
     .part = {{"ssm_in", "vD", .rows = "vvnnh"}, {"ssm_in", "hD", .rows = "vvnnh", .at = 4}},
     .when = TRAIT_SSM, .of = OF_MIX},
    {WEIGHT_MIX_CONV, SLOT_LAYER, IN_LAYER(mix_conv),
     .part = {{"ssm_conv1d", "nt", .rows = "vnn", .at = 2},
              {"ssm_conv1d", "nt", .rows = "vnn", .at = 1},
              {"ssm_conv1d", "vt", .rows = "vnn"}},
     .when = TRAIT_SSM, .of = OF_MIX},
    {WEIGHT_MIX_HEADS, SLOT_LAYER, IN_LAYER(mix_heads),
     .part = {{"ssm_a", "h1", .end = ""}, {"ssm_dt", "h", .end = ".bias"}, {"ssm_d", "h1", .end = ""}},
     .when = TRAIT_SSM, .of = OF_MIX},
    {WEIGHT_MIX_NORM, SLOT_LAYER, IN_LAYER(mix_norm), .part = {{"ssm_norm", "gm"}}, .when = TRAIT_SSM,
     .of = OF_MIX},
    {WEIGHT_MIX_OUT, SLOT_LAYER, IN_LAYER(mix_out), .part = {{"ssm_out", "Dv"}}, .when = TRAIT_SSM,
     .of = OF_MIX},
    {WEIGHT_MIX_CONV, SLOT_LAYER, IN_LAYER(mix_conv), .part = {{"shortconv.conv", "vt"}},
     .when = TRAIT_SHORT_CONV, .of = OF_MIX},
    {WEIGHT_MIX_OUT, SLOT_LAYER, IN_LAYER(mix_out), .part = {{"shortconv.out_proj", "Dv"}},
     .when = TRAIT_SHORT_CONV, .of = OF_MIX},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(ffn_norm), .part = {{"ffn_norm", "D"}},
     .unless = TRAIT_FFN_NORM_NAME | TRAIT_NO_PRE_NORMS | TRAIT_BARE_FFN_NORM | TRAIT_ONE_PART},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(ffn_norm), .part = {{"attn_norm", "D"}}, .when = TRAIT_ONE_PART,
     .of = OF_FFN},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(ffn_norm), .part = {{"ffn_norm", "D", .end = ""}},
     .when = TRAIT_BARE_FFN_NORM},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(ffn_norm), .part = {{"post_attention_norm", "D"}},
     .when = TRAIT_FFN_NORM_NAME},
    {WEIGHT_GATE_UP, SLOT_LAYER, IN_LAYER(gate_up), .part = {{"ffn_gate", "FD"}, {"ffn_up", "FD"}},
     .unless = TRAIT_FUSED_FFN | TRAIT_NO_GATE | TRAIT_OWN_NORMS, .of = OF_DENSE},
    {WEIGHT_GATE_UP, SLOT_LAYER, IN_LAYER(gate_up), .part = {{"ffn_gate", "GD"}, {"ffn_up", "GD"}},
     .when = TRAIT_OWN_NORMS},
    {WEIGHT_GATE_UP, SLOT_LAYER, IN_LAYER(gate_up), .part = {{"ffn_up", "FD"}}, .when = TRAIT_NO_GATE,
     .of = OF_DENSE},
    {WEIGHT_GATE_UP, SLOT_LAYER, IN_LAYER(gate_up), .part = {{"ffn_gate", "FD"}, {"ffn_up", "FD"}},
     .fused = "ffn_up", .when = TRAIT_FUSED_FFN, .of = OF_DENSE},
    {WEIGHT_DOWN, SLOT_LAYER, IN_LAYER(down), .part = {{"ffn_down", "DF"}}, .unless = TRAIT_OWN_NORMS,
     .of = OF_DENSE},
    {WEIGHT_DOWN, SLOT_LAYER, IN_LAYER(down), .part = {{"ffn_down", "DG"}}, .when = TRAIT_OWN_NORMS},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(router_norm), .part = {{"ffn_gate_inp", "D", ".scale"}},
     .when = TRAIT_OWN_NORMS, .of = OF_EXPERTS},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(expert_norm), .part = {{"pre_ffw_norm_2", "D"}},
     .when = TRAIT_OWN_NORMS, .of = OF_EXPERTS},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(shared_post_norm), .part = {{"post_ffw_norm_1", "D"}},
     .when = TRAIT_OWN_NORMS, .of = OF_EXPERTS},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(expert_post_norm), .part = {{"post_ffw_norm_2", "D"}},
     .when = TRAIT_OWN_NORMS, .of = OF_EXPERTS},
    {WEIGHT_EXPERT_SCALE, SLOT_LAYER, IN_LAYER(expert_scale), .part = {{"ffn_down_exps", "E", ".scale"}},
     .when = TRAIT_OWN_NORMS, .of = OF_EXPERTS},
    {WEIGHT_EMBED_GATE, SLOT_LAYER, IN_LAYER(embed_gate), .part = {{"inp_gate", "lD"}},
     .when = TRAIT_LAYER_EMBED, .of = OF_LAYER_EMBED},
    {WEIGHT_EMBED_OUT, SLOT_LAYER, IN_LAYER(embed_out), .part = {{"proj", "Dl"}}, .when = TRAIT_LAYER_EMBED,
     .of = OF_LAYER_EMBED},
    {WEIGHT_NORM, SLOT_LAYER, IN_LAYER(embed_norm), .part = {{"post_norm", "D"}}, .when = TRAIT_LAYER_EMBED,
     .of = OF_LAYER_EMBED},
    {WEIGHT_LAYER_SCALE, SLOT_LAYER, IN_LAYER(layer_scale), .part = {{"layer_output_scale", "1"}},
     .when = TRAIT_LAYER_EMBED, .unless = TRAIT_STREAMS, .of = OF_LAYER_SCALE},
    {WEIGHT_ROUTER, SLOT_LAYER, IN_LAYER(router), .part = {{"ffn_gate_inp", "ED"}}, .of = OF_EXPERTS},
    {WEIGHT_SELECT_BIAS, SLOT_LAYER, IN_LAYER(select_bias), .part = {{"exp_probs_b", "E", ".bias"}},
     .of = OF_SELECT_BIAS},
    {WEIGHT_SHARED_GATE, SLOT_LAYER, IN_LAYER(shared_gate), .part = {{"ffn_gate_inp_shexp", "D"}},
     .of = OF_SHARED_GATE},
    {WEIGHT_GATE_UP, SLOT_LAYER, IN_LAYER(gate_up),
     .part = {{"ffn_gate_shexp", "SD"}, {"ffn_up_shexp", "SD"}}, .unless = TRAIT_NO_GATE | TRAIT_OWN_NORMS,
     .of = OF_SHARED},
    {WEIGHT_GATE_UP, SLOT_LAYER, IN_LAYER(gate_up), .part = {{"ffn_up_shexp", "SD"}}, .when = TRAIT_NO_GATE,
     .of = OF_SHARED},
    {WEIGHT_DOWN, SLOT_LAYER, IN_LAYER(down), .part = {{"ffn_down_shexp", "DS"}}, .unless = TRAIT_OWN_NORMS,
     .of = OF_SHARED},
    {WEIGHT_EXPERT_GATE_UP, SLOT_LAYER, IN_LAYER(expert_gate_up),
     .part = {{"ffn_gate_exps", "EFD"}, {"ffn_up_exps", "EFD"}}, .fused = "ffn_gate_up_exps",
     .unless = TRAIT_NO_GATE, .of = OF_EXPERTS},
    {WEIGHT_EXPERT_GATE_UP, SLOT_LAYER, IN_LAYER(expert_gate_up), .part = {{"ffn_up_exps", "EFD"}},
     .when = TRAIT_NO_GATE, .of = OF_EXPERTS},
    {WEIGHT_EXPERT_DOWN, SLOT_LAYER, IN_LAYER(expert_down), .part = {{"ffn_down_exps", "EDF"}},
     .of = OF_EXPERTS},
};

const int num_arch_slots = (int)(sizeof arch_slots / sizeof *arch_slots);

const struct extra_tensor arch_extras[] = {
    {false, ROPE_FACTORS}, // read by config_rope.c
    {false, ROPE_SHORT_FACTORS},  {false, ROPE_LONG_FACTORS},
    {false, "rope.freqs"},        {false, "cls.weight"}, // these by pool_head.c
    {false, "cls.bias"},          {false, "cls.norm.weight"},
    {false, "cls.output.weight"}, {false, "cls.output.bias"},
    {false, "dense_2.weight"},    {false, "dense_3.weight"},
    {true, "attn_rot_embd"},      {false, NULL},
};

bool arch_has_slot(const struct arch *a, const struct weight_slot *s) {
    return (s->when == 0 || (a->traits & s->when)) && !(a->traits & s->unless);
}

const struct weight_slot *arch_slot_at(const struct arch *a, size_t field) {
    for (int i = 0; i < num_arch_slots; i++)
        if (arch_slots[i].kind == SLOT_LAYER && arch_slots[i].field == field &&
            arch_has_slot(a, &arch_slots[i]))
            return &arch_slots[i];
    return NULL;
}

const struct weight_slot *arch_slot(const struct arch *a, enum weight_role role) {
    for (int i = 0; i < num_arch_slots; i++)
        if (arch_slots[i].role == role && arch_has_slot(a, &arch_slots[i]))
            return &arch_slots[i];
    return NULL;
}

const char *arch_tensor_name(const struct weight_slot *s, int part, bool bias, int layer,
                             char buf[TENSOR_NAME_BYTES]) {
    const char *name = part == FUSED_PART ? s->fused : s->part[part].name;
    const char *own = part == FUSED_PART ? NULL : s->part[part].end, *end = own    ? own
                                                                            : bias ? ".bias"
                                                                                   : ".weight";
    if (s->kind == SLOT_MODEL)
        snprintf(buf, TENSOR_NAME_BYTES, "%s%s", name, end);
    else
        snprintf(buf, TENSOR_NAME_BYTES, "blk.%d.%s%s", layer, name, end);
    return buf;
}

static bool is_name(const char *p, size_t len, const char *name, const char *end) {
    size_t n = strlen(name);
    return n + strlen(end) == len && memcmp(p, name, n) == 0 && memcmp(p + n, end, len - n) == 0;
}

// The N of "blk.N.", and what follows it. false: it does not begin so, or N has leading zeros or is no layer of any
// model.
static bool take_layer(const char **name, size_t *len, int *layer) {
    char want[32];
    size_t n = 4;
    int number = 0;
    if (*len <= n || memcmp(*name, "blk.", n) != 0)
        return false;
    while (n < *len && (*name)[n] >= '0' && (*name)[n] <= '9' && number < MODEL_MAX_LAYERS)
        number = number * 10 + ((*name)[n++] - '0');
    n = (size_t)snprintf(want, sizeof want, "blk.%d.", number);
    if (number >= MODEL_MAX_LAYERS || n >= *len || memcmp(want, *name, n) != 0)
        return false;
    *layer = number;
    *name += n;
    *len -= n;
    return true;
}

bool arch_find_tensor(const struct arch *a, const char *name, size_t len, struct tensor_place *place) {
    *place = (struct tensor_place){.layer = -1};
    bool per_layer = take_layer(&name, &len, &place->layer);
    for (int i = 0; i < num_arch_slots; i++) {
        const struct weight_slot *s = &arch_slots[i];
        if (!arch_has_slot(a, s))
            continue;
        place->part = FUSED_PART;
        for (int p = FUSED_PART; p < 3 && (s->kind != SLOT_MODEL) == per_layer; p++) {
            const char *part = p == FUSED_PART ? s->fused : s->part[p].name;
            const char *end = p == FUSED_PART ? NULL : s->part[p].end;
            bool bias = part && !end && is_name(name, len, part, ".bias");
            if (!bias && !(part && is_name(name, len, part, end ? end : ".weight")))
                continue;
            place->slot = s;
            place->bias = bias;
            place->fused |= p == FUSED_PART;
            place->part = p;
        }
        if (place->slot)
            return true;
    }
    for (const struct extra_tensor *e = arch_extras; e->name; e++)
        if (e->per_layer == per_layer && is_name(name, len, e->name, ""))
            return true;
    return false;
}
