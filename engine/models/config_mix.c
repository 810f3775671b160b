// See config_reader.h: recurrent layers.
#include "config_reader.h"

// Which layers are recurrent, where their number of heads for keys and values does not say it: a bool for each layer, or
// all but each n-th.
static bool read_recurrent(struct config_reader *r) {
    bool listed = false;
    if (!config_flags(r, config_key(r, H_RECURRENT_LAYERS), r->recurrent, &listed) || listed)
        return listed;
    r->h.attn_interval = 4;
    if (!config_read(r, H_ATTN_INTERVAL))
        return false;
    for (int i = 0; i < r->h.layers; i++)
        r->recurrent[i] = i % r->h.attn_interval != r->h.attn_interval - 1;
    return true;
}

// Sizes of the states of heads: H_SSM_INNER values of all heads.
static bool read_states(struct config_reader *r) {
    struct mix_spec *m = &r->h.mix;
    if (!config_read(r, H_SSM_CONV) || !config_read(r, H_SSM_INNER) || !config_read(r, H_SSM_STATE) ||
        !config_read(r, H_SSM_HEADS) || !config_read(r, H_SSM_GROUPS))
        return false;
    if (r->h.mix_inner % m->heads || m->heads % m->groups || (int64_t)m->groups * m->key_dim > 1 << 22) {
        model_file_bad(r->f, r->err,
                       "key %s is %d, expected a multiple of %d heads, which are a multiple of %d groups, of "
                       "at most %d elements together",
                       config_key(r, H_SSM_INNER), r->h.mix_inner, m->heads, m->groups, 1 << 22);
        return false;
    }
    m->head_dim = r->h.mix_inner / m->heads;
    return true;
}

// The tensor of a part of the first recurrent layer, or NULL.
static const struct model_tensor *mix_tensor(const struct config_reader *r, enum weight_role role,
                                             bool bias) {
    int layer = 0;
    while (layer + 1 < r->h.layers && !r->recurrent[layer] && !r->arch->mix_beside)
        layer++;
    return config_tensor(r, role, 0, bias, layer);
}

bool config_mix(struct config_reader *r) {
    struct mix_spec *m = &r->h.mix;
    bool attends = false;
    m->kind = r->arch->mix;
    m->tiled = r->arch->mix_tiled;
    if (m->kind == MIX_NONE)
        return true;
    if (m->kind == MIX_CONV) {
        m->heads = r->h.hidden;
        m->head_dim = 1;
        return config_read(r, H_SHORT_CONV);
    }
    if (!read_states(r) || (m->kind == MIX_DELTA && !read_recurrent(r)))
        return false;
    if (m->kind == MIX_SSM) {
        m->conv_bias = mix_tensor(r, WEIGHT_MIX_CONV, true) != NULL;
        m->norm = mix_tensor(r, WEIGHT_MIX_NORM, false) != NULL;
    }
    attends = r->arch->mix_alone;
    for (int i = 0; i < r->h.layers; i++)
        attends |= !r->recurrent[i];
    if (!attends)
        model_file_bad(r->f, r->err, "all %d layers are recurrent (key %s): expected one with attention",
                       r->h.layers, config_key(r, H_ATTN_INTERVAL));
    return attends;
}
