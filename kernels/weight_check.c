#include "weight_check.h"

static bool outside_layers(enum weight_role role) {
    return role == WEIGHT_EMBED || role == WEIGHT_POSITIONS || role == WEIGHT_TYPES ||
           role == WEIGHT_EMBED_NORM || role == WEIGHT_HEAD || role == WEIGHT_LAYER_EMBED ||
           role == WEIGHT_LAYER_EMBED_IN || role == WEIGHT_STREAM_IN || role == WEIGHT_STREAM_OUT;
}
static bool of_experts(enum weight_role role) {
    return role == WEIGHT_EXPERT_GATE_UP || role == WEIGHT_EXPERT_DOWN;
}

// What the role asks of part i: rows and columns, of each expert where it is of experts, or 0 rows where the role has no
// such part. layer: of the model's
static void expected_shape(const struct model_config *m, enum weight_role role, int layer, int i, int *rows,
                           int *cols) {
    const struct attn_spec *a = model_attn(m, layer);
    const struct mix_spec *x = model_mix(m, layer);
    const struct ffn_spec *f = model_ffn(m, layer);
    int q = a ? a->heads * a->head_dim : 0, kv = a ? a->kv_heads * a->head_dim : 0;
    int F = f->experts > 0 ? f->shared_hidden : f->hidden, v = x ? mix_values(x) : 0,
        n = x ? x->groups * x->key_dim : 0;
    int P = m->layer_embed, N = m->altup_streams;
    bool conv = x && x->kind == MIX_CONV, ssm = x && x->kind == MIX_SSM;
    int queries = a ? a->heads * (a->nope_dim + a->rope_dim) : 0;
    const int num_parts[] = {
        [WEIGHT_EMBED] = 1,
        [WEIGHT_POSITIONS] = m->positions > 0,
        [WEIGHT_TYPES] = m->token_types > 0,
        [WEIGHT_EMBED_NORM] = m->embed_norm,
        [WEIGHT_NORM] = 1,
        [WEIGHT_QKV] = a && a->shares_kv ? 1 : 3,
        [WEIGHT_ATTN_OUT] = 1,
        [WEIGHT_GATE_UP] = 2,
        [WEIGHT_DOWN] = 1,
        [WEIGHT_HEAD] = 1,
        [WEIGHT_ATTN_GATE] = a && a->gate,
        [WEIGHT_SINKS] = a && a->sinks,
        [WEIGHT_LAYER_EMBED] = P > 0,
        [WEIGHT_LAYER_EMBED_IN] = P > 0,
        [WEIGHT_EMBED_GATE] = P > 0,
        [WEIGHT_EMBED_OUT] = P > 0,
        [WEIGHT_LAYER_SCALE] = m->layer_scale,
        [WEIGHT_STREAM_IN] = N > 0,
        [WEIGHT_STREAM_OUT] = N > 0,
        [WEIGHT_STREAM_ROUTER] = N > 0,
        [WEIGHT_STREAM_PREDICT] = N > 0,
        [WEIGHT_STREAM_CORRECT] = N > 0,
        [WEIGHT_LAUREL_LEFT] = m->laurel_rank > 0,
        [WEIGHT_LAUREL_RIGHT] = m->laurel_rank > 0,
        [WEIGHT_MIX_IN] = 3,
        [WEIGHT_MIX_GATE] = conv  ? 0
                            : ssm ? 2
                                  : 3,
        [WEIGHT_MIX_CONV] = conv ? 1 : 3,
        [WEIGHT_MIX_HEADS] = conv  ? 0
                             : ssm ? 3
                                   : 2,
        [WEIGHT_MIX_NORM] = conv ? 0 : 1,
        [WEIGHT_MIX_OUT] = 1,
        [WEIGHT_ROUTER] = 1,
        [WEIGHT_SELECT_BIAS] = 1,
        [WEIGHT_EXPERT_SCALE] = f->expert_scale,
        [WEIGHT_SHARED_GATE] = 1,
        [WEIGHT_EXPERT_GATE_UP] = 2,
        [WEIGHT_EXPERT_DOWN] = 1,
        [WEIGHT_LATENT] = 1,
        [WEIGHT_LATENT_QDOWN] = 1,
        [WEIGHT_LATENT_Q] = 1,
        [WEIGHT_LATENT_KEY] = 1,
        [WEIGHT_LATENT_VALUE] = 1,
    };
    *rows = *cols = 0;
    if ((role == WEIGHT_GATE_UP || role == WEIGHT_EXPERT_GATE_UP) && i == 1 && f->no_gate)
        return;
    if ((unsigned)role >= sizeof num_parts / sizeof *num_parts || i >= num_parts[role])
        return;
    switch (role) {
    case WEIGHT_EMBED:
    case WEIGHT_HEAD: *rows = m->vocab, *cols = m->hidden; break;
    case WEIGHT_POSITIONS: *rows = m->positions, *cols = m->hidden; break;
    case WEIGHT_TYPES: *rows = m->token_types, *cols = m->hidden; break;
    case WEIGHT_EMBED_NORM:
    case WEIGHT_NORM: *rows = 1, *cols = m->hidden; break;
    case WEIGHT_QKV: *rows = i == 0 ? q : kv, *cols = m->hidden; break;
    case WEIGHT_ATTN_OUT: *rows = m->hidden, *cols = attn_out_size(a); break;
    case WEIGHT_ATTN_GATE: *rows = q, *cols = m->hidden; break;
    case WEIGHT_SINKS: *rows = 1, *cols = a->heads; break;
    case WEIGHT_LAYER_EMBED: *rows = m->layer_vocab, *cols = m->num_layers * P; break;
    case WEIGHT_LAYER_EMBED_IN: *rows = m->num_layers * P, *cols = m->hidden; break;
    case WEIGHT_EMBED_GATE: *rows = P, *cols = m->hidden; break;
    case WEIGHT_EMBED_OUT: *rows = m->hidden, *cols = P; break;
    case WEIGHT_LAYER_SCALE: *rows = *cols = 1; break;
    case WEIGHT_STREAM_IN:
    case WEIGHT_STREAM_OUT: *rows = *cols = m->hidden; break;
    case WEIGHT_STREAM_ROUTER: *rows = N, *cols = m->hidden; break;
    case WEIGHT_STREAM_PREDICT: *rows = N * N, *cols = N; break;
    case WEIGHT_STREAM_CORRECT: *rows = *cols = N; break;
    case WEIGHT_LAUREL_LEFT: *rows = m->laurel_rank, *cols = m->hidden; break;
    case WEIGHT_LAUREL_RIGHT: *rows = m->hidden, *cols = m->laurel_rank; break;
    case WEIGHT_GATE_UP: *rows = F, *cols = m->hidden; break;
    case WEIGHT_DOWN: *rows = m->hidden, *cols = F; break;
    case WEIGHT_MIX_IN: *rows = conv || i == 2 ? v : n, *cols = m->hidden; break;
    case WEIGHT_MIX_GATE: *rows = i == 0 ? v : x ? x->heads : 0, *cols = m->hidden; break;
    case WEIGHT_MIX_CONV: *rows = conv || i == 2 ? v : n, *cols = x ? x->taps : 0; break;
    case WEIGHT_MIX_HEADS: *rows = x ? x->heads : 0, *cols = 1; break;
    case WEIGHT_MIX_NORM:
        *rows = ssm ? x->groups : 1, *cols = ssm ? v / x->groups : x ? x->head_dim : 0;
        break;
    case WEIGHT_MIX_OUT: *rows = m->hidden, *cols = v; break;
    case WEIGHT_ROUTER: *rows = f->experts, *cols = m->hidden; break;
    case WEIGHT_SELECT_BIAS:
    case WEIGHT_EXPERT_SCALE: *rows = 1, *cols = f->experts; break;
    case WEIGHT_SHARED_GATE: *rows = 1, *cols = m->hidden; break;
    case WEIGHT_EXPERT_GATE_UP: *rows = f->hidden, *cols = m->hidden; break;
    case WEIGHT_EXPERT_DOWN: *rows = m->hidden, *cols = f->hidden; break;
    case WEIGHT_LATENT: *rows = a->head_dim, *cols = m->hidden; break;
    case WEIGHT_LATENT_QDOWN: *rows = a->q_lora, *cols = m->hidden; break;
    case WEIGHT_LATENT_Q: *rows = queries, *cols = a->q_lora ? a->q_lora : m->hidden; break;
    case WEIGHT_LATENT_KEY: *rows = a->kv_lora, *cols = a->nope_dim; break;
    case WEIGHT_LATENT_VALUE: *rows = a->v_dim, *cols = a->kv_lora; break;
    }
}

// As many experts as the role's rank has of the layer's.
static bool fits_experts(const struct model_config *m, const struct weight_desc *desc, int layer,
                         const struct tensor *t) {
    int experts = model_ffn(m, layer)->experts;
    int64_t n = t->ndim == 3 ? t->shape[0] : 0;
    return n > 0 &&
           (desc->total == 0 ? n == experts
                             : desc->total == experts && desc->start >= 0 && desc->start + n <= experts);
}

// With ranks a part may be smaller than the most that a rank of this model can have.
static bool fits(const struct weight_desc *desc, int64_t have_rows, int64_t have_cols, int rows, int cols) {
    if (desc->total == 0)
        return have_rows == rows && have_cols == cols;
    bool by_rows = desc->role == WEIGHT_GATE_UP || desc->role == WEIGHT_HEAD;
    bool by_cols = desc->role == WEIGHT_DOWN;
    int64_t n =
        desc->role == WEIGHT_ATTN_OUT || desc->role == WEIGHT_MIX_OUT || by_cols ? have_cols : have_rows;
    return desc->start >= 0 && n > 0 && (desc->start + n <= desc->total || desc->role == WEIGHT_QKV) &&
           (by_rows ? have_rows <= rows : have_rows == rows) &&
           (by_cols ? have_cols <= cols : have_cols == cols);
}

bool weight_check(const struct model_config *m, const struct weight_desc *desc, struct err *err) {
    int layer =
        outside_layers(desc->role) || (desc->role == WEIGHT_NORM && desc->layer < 0) ? 0 : desc->layer;
    if (layer < 0 || layer >= m->num_layers) {
        err_set(err, STATUS_INVALID, "weight role %d: there is no layer %d, the model has %d",
                (int)desc->role, desc->layer, m->num_layers);
        return false;
    }
    for (int i = 0; i < 3; i++) {
        const struct tensor *t = &desc->part[i];
        int rows, cols;
        expected_shape(m, desc->role, layer, i, &rows, &cols);
        const struct tensor *bias = &desc->bias[i];
        if (!t->data && rows == 0 && !bias->data)
            continue;
        int64_t have_rows = t->data && t->ndim >= 2 ? t->shape[t->ndim - 2] : 1;
        int64_t have_cols = t->data && t->ndim > 0 ? t->shape[t->ndim - 1] : 0;
        bool heads = desc->role == WEIGHT_LATENT_KEY || desc->role == WEIGHT_LATENT_VALUE;
        bool norm = weight_is_plain(desc->role);
        bool f32 = norm || desc->role == WEIGHT_ROUTER || desc->role == WEIGHT_SHARED_GATE ||
                   desc->role == WEIGHT_STREAM_ROUTER;
        if (desc->role == WEIGHT_MIX_HEADS && t->data && t->ndim == 1)
            have_rows = t->shape[0], have_cols = 1;
        bool experts = of_experts(desc->role),
             vector = desc->role == WEIGHT_NORM || desc->role == WEIGHT_EMBED_NORM;
        bool may = experts || vector || desc->role == WEIGHT_QKV || desc->role == WEIGHT_ATTN_OUT ||
                   desc->role == WEIGHT_GATE_UP || desc->role == WEIGHT_DOWN || desc->role == WEIGHT_HEAD ||
                   desc->role == WEIGHT_MIX_CONV || desc->role == WEIGHT_ROUTER;
        int64_t values = vector ? have_cols : have_rows;
        if (bias->data && (!may || bias->ndim != 1 + experts || bias->shape[experts] != values ||
                           (experts && bias->shape[0] != t->shape[0]) || bias->dtype != DTYPE_F32)) {
            err_set(err, STATUS_INVALID,
                    "weight role %d of layer %d, part %d: expected no bias, or one of F32 with %lld values",
                    (int)desc->role, desc->layer, i, (long long)values);
            return false;
        }
        const struct attn_spec *a = model_attn(m, layer);
        bool stack = experts ? fits_experts(m, desc, layer, t) : t->ndim == 3 && a && t->shape[0] == a->heads;
        bool shape = experts || heads ? t->data && stack && have_rows == rows && have_cols == cols
                                      : fits(desc, have_rows, have_cols, rows, cols);
        bool whole = a && a->qk_norm == QK_NORM_WHOLE, each = a && a->qk_norm == QK_NORM_EACH;
        bool all = a && (have_rows * have_cols == (int64_t)a->heads * a->head_dim ||
                         have_rows * have_cols == (int64_t)a->kv_heads * a->head_dim);
        bool head_norm =
            a && desc->role == WEIGHT_NORM &&
            (a->kind == ATTN_LATENT ? have_rows == 1 && (have_cols == a->kv_lora || have_cols == a->q_lora)
             : whole                ? have_rows == 1 && all
                                    : have_cols == a->head_dim && (each ? all : have_rows == 1));
        bool embed_norm = desc->role == WEIGHT_NORM && desc->layer < 0 && m->layer_embed > 0 &&
                          have_rows == 1 && have_cols == m->layer_embed;
        unsigned types = 1u << DTYPE_F32;
        if (!f32)
            types |= ~(1u << DTYPE_I32 | 1u << DTYPE_I8 | 1u << DTYPE_F8_E4M3);
        bool type = types & 1u << t->dtype && have_cols % dtype_block(t->dtype) == 0;
        if ((!shape && !head_norm && !embed_norm) || !type || t->ndim > 2 + (experts || heads)) {
            err_set(err, STATUS_INVALID,
                    "weight role %d of layer %d, part %d: expected %d x %d, found %lld x %lld %s",
                    (int)desc->role, desc->layer, i, rows, cols, (long long)have_rows, (long long)have_cols,
                    dtype_name(t->dtype));
            return false;
        }
    }
    return true;
}
