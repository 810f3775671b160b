// See config_reader.h: the feed-forward part of layers with experts.
#include "config_reader.h"

#include <math.h>

static bool may_have_experts(const struct config_reader *r, int layer) {
    int step = r->h.expert_step;
    if (!config_has_ffn(r, layer))
        return false;
    return r->lists_experts ? r->expert_layer[layer]
                            : layer >= r->h.dense_layers && !(step > 1 && (layer + 1) % step != 0);
}

// The first layer with experts; the number of layers where there is none.
static int first_expert_layer(const struct config_reader *r) {
    const struct hparams *h = &r->h;
    int i = 0;
    while (i < h->layers && !may_have_experts(r, i))
        i++;
    return h->expert.experts > 0 ? i : h->layers;
}

bool config_has_ffn(const struct config_reader *r, int layer) {
    return !r->arch->mix_alone &&
           (r->arch->traits & TRAIT_ONE_PART ? r->ffn_alone[layer] : !r->no_ffn[layer]);
}

// The size of a feed-forward; of layers that are one alone, or have none, that of each layer or 0.
static bool read_ffn(struct config_reader *r) {
    const char *key = config_key(r, H_FFN);
    struct meta_array a;
    if (r->arch->mix_alone)
        return true;
    if (!(r->arch->traits & TRAIT_ONE_PART))
        return config_read_some(r, H_FFN, r->ffn, r->no_ffn);
    if (!config_layers(r, key, &a))
        return false;
    for (int i = 0; i < r->h.layers; i++) {
        int64_t v = meta_array_int(&a, (uint64_t)i);
        if (v < 0 || v > 1 << 24 || (v > 0 && r->h.ffn.hidden > 0 && v != r->h.ffn.hidden)) {
            model_file_bad(
                r->f, r->err,
                "key %s is %lld for layer %d: expected 0, or 1 to %d, the same for every layer with one", key,
                (long long)v, i, 1 << 24);
            return false;
        }
        r->ffn_alone[i] = v > 0;
        r->h.ffn.hidden = v > 0 ? (int)v : r->h.ffn.hidden;
    }
    return true;
}

bool config_has_experts(const struct config_reader *r, int layer) {
    return r->h.expert.experts > 0 && may_have_experts(r, layer);
}

// Whether the sizes of the experts suit each other, and those of a row fit into what a layer may be at most.
static bool check_experts(struct config_reader *r) {
    const struct ffn_spec *e = &r->h.expert;
    int widest = e->hidden > r->h.hidden ? e->hidden : r->h.hidden;
    if ((int64_t)e->top_k * e->hidden + e->shared_hidden > 1 << 24 ||
        (int64_t)e->experts * widest > 1 << 27) {
        model_file_bad(r->f, r->err, "%d of %d experts of %d are too large (key %s)", e->top_k, e->experts,
                       e->hidden, config_key(r, H_EXPERTS));
        return false;
    }
    if (e->gating == GATING_IN_TURN && e->top_k != 2) {
        model_file_bad(r->f, r->err, "key %s is %d, expected 2 for architecture %s", config_key(r, H_TOP_K),
                       e->top_k, r->arch->name);
        return false;
    }
    if (e->groups > 1 && (e->experts % e->groups != 0 || e->experts / e->groups < 2 || e->top_groups < 1 ||
                          e->top_k > e->experts / e->groups * e->top_groups)) {
        model_file_bad(r->f, r->err,
                       "%d experts in %d groups of which %d are used have no %d for a row (key %s)",
                       e->experts, e->groups, e->top_groups, e->top_k, config_key(r, H_EXPERT_TOP_GROUPS));
        return false;
    }
    if (first_expert_layer(r) < r->h.layers - r->h.nextn)
        return true;
    model_file_bad(r->f, r->err, "no layer has experts (key %s)", config_key(r, H_DENSE_LAYERS));
    return false;
}

// The size of layers without experts. Files of models that have none of them may lack it.
static bool check_dense(struct config_reader *r) {
    bool needed = r->h.expert.experts > 0 && (r->h.expert.hidden == 0 || r->h.expert.own_norms);
    for (int i = 0; i < r->h.layers - r->h.nextn; i++)
        needed |= config_has_ffn(r, i) && !config_has_experts(r, i);
    if (needed && r->h.ffn.hidden == 0)
        model_file_bad(r->f, r->err, "key %s is missing", config_key(r, H_FFN));
    return !needed || r->h.ffn.hidden > 0;
}

bool config_experts(struct config_reader *r) {
    const struct arch_experts *a = r->arch->experts;
    struct ffn_spec *e = &r->h.expert;
    if (!read_ffn(r) || !config_read(r, H_EXPERTS) || !config_read(r, H_NEXTN))
        return false;
    if (r->h.nextn >= r->h.layers) {
        model_file_bad(r->f, r->err, "key %s is %d, expected less than %d layers", config_key(r, H_NEXTN),
                       r->h.nextn, r->h.layers);
        return false;
    }
    if (e->experts == 0)
        return check_dense(r);
    if (!a) {
        model_file_bad(r->f, r->err, "key %s is %d: experts are not supported yet in architecture %s",
                       config_key(r, H_EXPERTS), e->experts, r->arch->name);
        return false;
    }
    e->hidden = r->h.ffn.hidden;
    e->act = r->arch->act;
    e->no_gate = (r->arch->traits & TRAIT_NO_GATE) != 0;
    e->gating = a->gating;
    e->renormalise = a->renormalise;
    e->router_bias = e->expert_bias = a->biases;
    e->shared_gate = a->shared_gate;
    e->weigh_input = a->weigh_input;
    e->near = a->near;
    e->own_norms = e->expert_scale = a->own_norms;
    e->early_router = a->early_router;
    e->router_scale = a->own_norms ? 1 / sqrtf((float)r->h.hidden) : 1;
    r->h.shared_experts = a->shared;
    if (!config_read(r, H_TOP_K) || !config_read(r, H_EXPERT_FFN) || !config_read(r, H_SHARED_EXPERTS) ||
        !config_read(r, H_SHARED_FFN) ||
        (config_given(r, H_EXPERT_SCALE) && !config_read(r, H_EXPERT_SCALE)) ||
        !config_read(r, H_EXPERT_GATING) || !config_read(r, H_EXPERT_GROUPS) ||
        !config_read(r, H_EXPERT_TOP_GROUPS) || !config_read(r, H_DENSE_LAYERS) ||
        !config_read(r, H_EXPERT_STEP) || !config_read(r, H_EXPERT_EVERY) ||
        !config_read(r, H_EXPERT_LATENT) ||
        !config_flags(r, "quire.expert_layers", r->expert_layer, &r->lists_experts))
        return false;
    while (a->by_tensors && !config_find(r, H_DENSE_LAYERS) && r->h.dense_layers < r->h.layers &&
           !config_tensor(r, WEIGHT_ROUTER, 0, false, r->h.dense_layers))
        r->h.dense_layers++;
    if (arch_may_have(r->arch, H_EXPERT_NORM) &&
        meta_bool(r->f, config_key(r, H_EXPERT_NORM), &e->renormalise, r->err))
        return false;
    static const enum gating gatings[] = {GATING_SOFTMAX, GATING_SIGMOID, GATING_SOFTMAX_CHOSEN};
    if (r->h.gating > 0)
        e->gating = gatings[r->h.gating - 1];
    int64_t shared = (int64_t)r->h.shared_experts * e->hidden;
    if (a->own_norms)
        e->shared_hidden = r->h.ffn.hidden;
    else if (e->shared_hidden == 0)
        e->shared_hidden = shared < 1 << 24 ? (int)shared : (1 << 24) + 1;
    if (a->average && e->shared_hidden > 0) {
        e->shared_scale = 0.5f;
        e->scale = model_scale(e->scale) / 2;
    }
    if (!check_dense(r) || !check_experts(r))
        return false;
    e->select_bias = a->select_bias && config_tensor(r, WEIGHT_SELECT_BIAS, 0, true, first_expert_layer(r));
    e->sum_bias = a->sum_bias && config_tensor(r, WEIGHT_EXPERT_SUM_BIAS, 0, true, first_expert_layer(r));
    if (a->bias_is_sigmoid && e->select_bias && r->h.gating == 0)
        e->gating = GATING_SIGMOID;
    return true;
}
