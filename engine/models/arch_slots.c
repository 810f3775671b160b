// See architectures.h: the tensors of a file.
#include "architectures.h"

#include <stdio.h>
#include <string.h>

static const struct tensor_rows
    query_gate = {{{WEIGHT_QKV, 0}, {WEIGHT_ATTN_GATE, 0}}, 2, TURNS_OF_HEADS},
    beta_alpha = {{{WEIGHT_MIX_GATE, 1}, {WEIGHT_MIX_GATE, 2}}, 2, TURNS_OF_GROUPS},
    mix_in = {{{WEIGHT_MIX_IN, 0}, {WEIGHT_MIX_IN, 1}, {WEIGHT_MIX_IN, 2}}, 3, TURNS_NONE},
    mix_conv = {{{WEIGHT_MIX_CONV, 0}, {WEIGHT_MIX_CONV, 1}, {WEIGHT_MIX_CONV, 2}}, 3, TURNS_NONE},
    ssm_conv = {{{WEIGHT_MIX_CONV, 2}, {WEIGHT_MIX_CONV, 1}, {WEIGHT_MIX_CONV, 0}}, 3, TURNS_NONE},
    // z, x, B, C, dt
    ssm_in = {{{WEIGHT_MIX_GATE, 0},
               {WEIGHT_MIX_IN, 2},
               {WEIGHT_MIX_IN, 1},
               {WEIGHT_MIX_IN, 0},
               {WEIGHT_MIX_GATE, 1}},
              5,
              TURNS_NONE};

const struct weight_slot arch_slots[] = {
    // in the order in which they are loaded: the model's own first
    {WEIGHT_EMBED, .part = {{"token_embd"}}},
    {WEIGHT_POSITIONS, .part = {{"position_embd"}}},
    {WEIGHT_TYPES, .part = {{"token_types"}}},
    {WEIGHT_EMBED_NORM, .part = {{"token_embd_norm"}}, .when = TRAIT_EMBED_NORM},
    {WEIGHT_HEAD, .part = {{"output"}}},
    {WEIGHT_OUT_NORM, .part = {{"output_norm"}}, .unless = TRAIT_SHORT_CONV | TRAIT_SUM_NORMS},
    {WEIGHT_OUT_NORM, .part = {{"token_embd_norm"}}, .when = TRAIT_SHORT_CONV},
    {WEIGHT_MTP_PROJ, .part = {{MTP_PROJ}}},
    {WEIGHT_MTP_EMBED_NORM, .part = {{"nextn.enorm"}}},
    {WEIGHT_MTP_HIDDEN_NORM, .part = {{"nextn.hnorm"}}},
    {WEIGHT_LAYER_EMBED, .part = {{"per_layer_token_embd"}}},
    {WEIGHT_LAYER_EMBED_IN, .part = {{"per_layer_model_proj"}}},
    {WEIGHT_LAYER_EMBED_NORM, .part = {{"per_layer_proj_norm"}}},
    {WEIGHT_STREAM_IN, .part = {{"altup_proj"}}, .stacked = true, .at = 0},
    {WEIGHT_STREAM_IN, .part = {{"altup_proj"}}, .stacked = true, .at = 1},
    {WEIGHT_STREAM_IN, .part = {{"altup_proj"}}, .stacked = true, .at = 2},
    {WEIGHT_STREAM_OUT, .part = {{"altup_unembd_proj"}}, .stacked = true, .at = 0},
    {WEIGHT_STREAM_OUT, .part = {{"altup_unembd_proj"}}, .stacked = true, .at = 1},
    {WEIGHT_STREAM_OUT, .part = {{"altup_unembd_proj"}}, .stacked = true, .at = 2},
    {WEIGHT_STREAM_NORM, .part = {{"altup_router_norm"}}},
    {WEIGHT_STREAM_ROUTER, .part = {{"altup_router"}}},
    {WEIGHT_STREAM_PREDICT, .part = {{"altup_predict_coef"}}},
    {WEIGHT_STREAM_CORRECT, .part = {{"altup_correct_coef"}}},
    {WEIGHT_STREAM_SCALE, .part = {{"altup_correct_scale"}}},
    {WEIGHT_LAUREL_LEFT, .part = {{"laurel_l"}}},
    {WEIGHT_LAUREL_RIGHT, .part = {{"laurel_r"}}},
    {WEIGHT_LAUREL_NORM, .part = {{"laurel_post_norm"}}},
    {WEIGHT_ATTN_NORM, .part = {{"attn_norm"}},
     .unless = TRAIT_NO_PRE_NORMS | TRAIT_BARE_FIRST | TRAIT_TWO_ATTN_NORMS},
    {WEIGHT_ATTN_NORM, .part = {{"attn_norm_2"}}, .when = TRAIT_TWO_ATTN_NORMS},
    {WEIGHT_ATTN_NORM, .part = {{"attn_norm"}}, .when = TRAIT_BARE_FIRST, .in = LAYERS_LATER},
    {WEIGHT_ATTN_POST_NORM, .part = {{"post_attention_norm"}}, .when = TRAIT_POST_NORMS},
    {WEIGHT_FFN_POST_NORM, .part = {{"post_ffw_norm"}}, .when = TRAIT_POST_NORMS},
    {WEIGHT_ATTN_POST_NORM, .part = {{"attn_output_norm"}}, .when = TRAIT_SUM_NORMS},
    {WEIGHT_FFN_POST_NORM, .part = {{"layer_output_norm"}}, .when = TRAIT_SUM_NORMS},
    {WEIGHT_QKV, .part = {{"attn_q"}, {"attn_k"}, {"attn_v"}}, .fused = "attn_qkv",
     .unless = TRAIT_ATTN_GATE | TRAIT_LATENT},
    {WEIGHT_QKV, .part = {{"attn_q"}, {"attn_k"}, {"attn_v"}}, .rows = &query_gate, .when = TRAIT_ATTN_GATE},
    {WEIGHT_ATTN_GATE, .part = {{"attn_q"}}, .rows = &query_gate, .when = TRAIT_ATTN_GATE},
    {WEIGHT_ATTN_GATE, .part = {{"attn_gate"}}, .when = TRAIT_GATE_APART},
    {WEIGHT_LATENT, .part = {{"attn_kv_a_mqa"}}},
    {WEIGHT_LATENT_QDOWN, .part = {{"attn_q_a"}}},
    {WEIGHT_LATENT_Q, .part = {{"attn_q"}}, .when = TRAIT_LATENT, .in = LAYERS_NO_QDOWN},
    {WEIGHT_LATENT_NORM, .part = {{"attn_kv_a_norm"}}},
    {WEIGHT_LATENT_QNORM, .part = {{"attn_q_a_norm"}}},
    {WEIGHT_LATENT_Q, .part = {{"attn_q_b"}}, .when = TRAIT_LATENT, .in = LAYERS_QDOWN},
    {WEIGHT_LATENT_KEY, .part = {{"attn_k_b"}}, .fused = "attn_kv_b", .split = true},
    {WEIGHT_LATENT_VALUE, .part = {{"attn_v_b"}}, .fused = "attn_kv_b", .split = true},
    {WEIGHT_Q_NORM, .part = {{"attn_q_norm"}}},
    {WEIGHT_K_NORM, .part = {{"attn_k_norm"}}},
    {WEIGHT_SINKS, .part = {{"attn_sinks"}}},
    {WEIGHT_ATTN_OUT, .part = {{"attn_output"}}},
    {WEIGHT_MIX_IN, .part = {{"shortconv.in_proj"}, {"shortconv.in_proj"}, {"shortconv.in_proj"}},
     .rows = &mix_in, .when = TRAIT_SHORT_CONV},
    {WEIGHT_MIX_IN, .part = {{"attn_qkv"}, {"attn_qkv"}, {"attn_qkv"}}, .rows = &mix_in, .when = TRAIT_DELTA},
    {WEIGHT_MIX_GATE, .part = {{"attn_gate"}, {"ssm_beta"}, {"ssm_alpha"}}, .when = TRAIT_DELTA,
     .unless = TRAIT_BETA_ALPHA},
    {WEIGHT_MIX_GATE, .part = {{"attn_gate"}, {"ssm_ba"}, {"ssm_ba"}}, .rows = &beta_alpha,
     .when = TRAIT_BETA_ALPHA},
    {WEIGHT_MIX_CONV, .part = {{"ssm_conv1d"}, {"ssm_conv1d"}, {"ssm_conv1d"}}, .rows = &mix_conv,
     .when = TRAIT_DELTA},
    {WEIGHT_MIX_HEADS, .part = {{"ssm_a", .end = ""}, {"ssm_dt", .end = ".bias"}}, .when = TRAIT_DELTA},
    {WEIGHT_MIX_IN, .part = {{"ssm_in"}, {"ssm_in"}, {"ssm_in"}}, .rows = &ssm_in, .when = TRAIT_SSM},
    {WEIGHT_MIX_GATE, .part = {{"ssm_in"}, {"ssm_in"}}, .rows = &ssm_in, .when = TRAIT_SSM},
    {WEIGHT_MIX_CONV, .part = {{"ssm_conv1d"}, {"ssm_conv1d"}, {"ssm_conv1d"}}, .rows = &ssm_conv,
     .when = TRAIT_SSM},
    {WEIGHT_MIX_HEADS,
     .part = {{"ssm_a", .end = "", .column = true},
              {"ssm_dt", .end = ".bias"},
              {"ssm_d", .end = "", .column = true}},
     .when = TRAIT_SSM},
    {WEIGHT_MIX_NORM, .part = {{"ssm_norm"}}, .when = TRAIT_DELTA | TRAIT_SSM},
    {WEIGHT_MIX_OUT, .part = {{"ssm_out"}}, .when = TRAIT_DELTA | TRAIT_SSM},
    {WEIGHT_MIX_CONV, .part = {{"shortconv.conv"}}, .when = TRAIT_SHORT_CONV},
    {WEIGHT_MIX_OUT, .part = {{"shortconv.out_proj"}}, .when = TRAIT_SHORT_CONV},
    {WEIGHT_FFN_NORM, .part = {{"ffn_norm"}},
     .unless = TRAIT_FFN_NORM_NAME | TRAIT_NO_PRE_NORMS | TRAIT_BARE_FFN_NORM | TRAIT_ONE_PART |
               TRAIT_TWO_ATTN_NORMS},
    {WEIGHT_FFN_NORM, .part = {{"attn_norm"}}, .when = TRAIT_ONE_PART | TRAIT_TWO_ATTN_NORMS},
    {WEIGHT_FFN_NORM, .part = {{"ffn_norm", .end = ""}}, .when = TRAIT_BARE_FFN_NORM},
    {WEIGHT_FFN_NORM, .part = {{"post_attention_norm"}}, .when = TRAIT_FFN_NORM_NAME},
    {WEIGHT_GATE_UP, .part = {{"ffn_gate"}, {"ffn_up"}},
     .unless = TRAIT_FUSED_FFN | TRAIT_NO_GATE | TRAIT_OWN_NORMS, .in = LAYERS_DENSE},
    {WEIGHT_GATE_UP, .part = {{"ffn_gate"}, {"ffn_up"}}, .when = TRAIT_OWN_NORMS},
    {WEIGHT_GATE_UP, .part = {{"ffn_up"}}, .when = TRAIT_NO_GATE, .in = LAYERS_DENSE},
    {WEIGHT_GATE_UP, .part = {{"ffn_gate"}, {"ffn_up"}}, .fused = "ffn_up", .when = TRAIT_FUSED_FFN,
     .in = LAYERS_DENSE},
    {WEIGHT_DOWN, .part = {{"ffn_down"}}, .unless = TRAIT_OWN_NORMS, .in = LAYERS_DENSE},
    {WEIGHT_DOWN, .part = {{"ffn_down"}}, .when = TRAIT_OWN_NORMS},
    {WEIGHT_ROUTER_NORM, .part = {{"ffn_gate_inp", .end = ".scale"}}},
    {WEIGHT_EXPERT_NORM, .part = {{"pre_ffw_norm_2"}}},
    {WEIGHT_SHARED_POST_NORM, .part = {{"post_ffw_norm_1"}}},
    {WEIGHT_EXPERT_POST_NORM, .part = {{"post_ffw_norm_2"}}},
    {WEIGHT_EXPERT_SCALE, .part = {{"ffn_down_exps", .end = ".scale"}}},
    {WEIGHT_EMBED_GATE, .part = {{"inp_gate"}}},
    {WEIGHT_EMBED_OUT, .part = {{"proj"}}},
    {WEIGHT_EMBED_OUT_NORM, .part = {{"post_norm"}}},
    {WEIGHT_LAYER_SCALE, .part = {{"layer_output_scale"}}, .when = TRAIT_LAYER_EMBED,
     .unless = TRAIT_STREAMS},
    {WEIGHT_ROUTER, .part = {{"ffn_gate_inp"}}},
    {WEIGHT_EXPERT_SUM_BIAS, .part = {{"ffn_exps_sum", .end = ".bias"}}},
    {WEIGHT_SELECT_BIAS, .part = {{"exp_probs_b", .end = ".bias"}}, .unless = TRAIT_BARE_SELECT_BIAS},
    {WEIGHT_SELECT_BIAS, .part = {{"exp_probs_b", .end = ""}}, .when = TRAIT_BARE_SELECT_BIAS},
    {WEIGHT_SHARED_GATE, .part = {{"ffn_gate_inp_shexp"}}},
    {WEIGHT_GATE_UP, .part = {{"ffn_gate_shexp"}, {"ffn_up_shexp"}},
     .unless = TRAIT_NO_GATE | TRAIT_OWN_NORMS, .in = LAYERS_EXPERTS},
    {WEIGHT_GATE_UP, .part = {{"ffn_up_shexp"}}, .when = TRAIT_NO_GATE, .in = LAYERS_EXPERTS},
    {WEIGHT_DOWN, .part = {{"ffn_down_shexp"}}, .unless = TRAIT_OWN_NORMS, .in = LAYERS_EXPERTS},
    {WEIGHT_EXPERT_GATE_UP, .part = {{"ffn_gate_exps"}, {"ffn_up_exps"}}, .fused = "ffn_gate_up_exps",
     .unless = TRAIT_NO_GATE},
    {WEIGHT_EXPERT_GATE_UP, .part = {{"ffn_up_exps"}}, .when = TRAIT_NO_GATE},
    {WEIGHT_EXPERT_DOWN, .part = {{"ffn_down_exps"}}},
    {WEIGHT_EXPERT_IN, .part = {{"ffn_latent_down"}}},
    {WEIGHT_EXPERT_OUT, .part = {{"ffn_latent_up"}}},
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
    if (!weight_in_layers(s->role))
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
        for (int p = FUSED_PART; p < 3 && weight_in_layers(s->role) == per_layer; p++) {
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
