#include "mtp.h"

#include "architectures.h"
#include "kv_layers.h"

#include <string.h>

static const struct model_tensor *find(const struct model_file *f, int layer, const char *name) {
    char full[TENSOR_NAME_BYTES];
    snprintf(full, sizeof full, "blk.%d.%s.weight", layer, name);
    return model_file_find(f, full);
}

// It attends as the last layer that does.
static const struct attn_spec *find_attn(const struct model_config *of) {
    for (int i = of->num_layers; i-- > 0;)
        if (model_attn(of, i))
            return model_attn(of, i);
    return NULL;
}

// Its feed-forward has experts where its tensors do, as the layers that have some; else it is as wide as they say.
static bool find_ffn(const struct model_file *f, const struct model_config *of, struct ffn_spec *ffn) {
    const struct model_tensor *up = find(f, of->num_layers, "ffn_up");
    bool experts = find(f, of->num_layers, "ffn_gate_inp") != NULL;
    for (int i = of->num_layers; i-- > 0;) {
        *ffn = *model_ffn(of, i);
        if (ffn->hidden > 0 && (ffn->experts > 0) == experts)
            return true;
    }
    if (experts || !up || up->view.ndim != 2)
        return false;
    *ffn = (struct ffn_spec){.hidden = (int)up->view.shape[0], .act = ffn->act, .no_gate = ffn->no_gate};
    return true;
}

static const char *problem(const struct model_file *f, const struct model_config *of) {
    const struct arch *arch = arch_find(of->arch, strlen(of->arch));
    int layer = of->num_layers;
    if (of->num_nextn == 0 || !(find(f, layer, MTP_PROJ) || find(f, layer, MTP_HIDDEN_PROJ)))
        return "the file has no MTP layer";
    if (!find(f, layer, "nextn.enorm") || !find(f, layer, "nextn.hnorm"))
        return "the file lacks parts of its MTP layer";
    if (arch->traits & TRAIT_ONE_PART &&
        !(find(f, layer, "attn_q") && find(f, layer, "ffn_norm") && find(f, layer, MTP_NORM)))
        return "an MTP layer that is not attention, then a feed-forward is not supported yet";
    if (of->layer_embed > 0 || of->layer_scale || of->positions > 0 || of->token_types > 0 ||
        of->embed_norm || of->norm_bias || of->head_bias || of->pooling != POOLING_NONE ||
        model_is_bidirectional(of))
        return "an MTP layer of such a model is not supported yet";
    return NULL;
}

enum status mtp_config(const struct model_file *f, const struct model_config *of, struct model_config *c,
                       struct err *err) {
    const char *why = problem(f, of);
    const struct attn_spec *attn = why ? NULL : find_attn(of);
    struct ffn_spec ffn;
    if (why || !attn || attn->shares_kv || !find_ffn(f, of, &ffn))
        return err_set(err, STATUS_INVALID, "%s: %s", f->name,
                       why ? why : "its MTP layer is unlike the model's layers, which is not supported yet");
    int layer = of->num_layers;
    *c = *of;
    c->num_layers = c->num_attn = c->num_ffn = 1;
    c->num_nextn = c->num_mix = 0;
    c->mtp_layer = layer;
    c->mtp_head = find(f, layer, MTP_HEAD) != NULL;
    c->tied = of->tied && !c->mtp_head;
    c->mtp_embed = !c->tied && find(f, layer, MTP_EMBED) != NULL;
    c->mtp_hidden_first = find(f, layer, MTP_HIDDEN_PROJ) != NULL;
    c->mtp_norm = find(f, layer, MTP_NORM) != NULL;
    c->attn[0] = *attn;
    c->ffn[0] = ffn;
    c->attn[0].index = c->ffn[0].index = 0;
    c->layers[0] = (struct layer_spec){.mix = MODEL_NO_SPEC};
    kv_layers_group(c);
    return STATUS_OK;
}
