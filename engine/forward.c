#include "forward.h"

void model_forward(const struct backend_ops *ops, struct device *dev, const struct model *model,
                   const struct step *step, const float *in, float *out) {
    if (step->num_moves > 0)
        ops->kv_copy(dev, step->moves, step->num_moves);
    if (ops->step_begin(dev, step))
        return; // a CUDA graph has run the same phases

    if (in)
        ops->resid_import(dev, in, step);
    else
        ops->embed(dev, model, step);
    for (int i = 0; i < model->config.num_layers; i++) {
        const struct layer *layer = &model->layers[i];
        if (model->config.altup_streams > 0)
            ops->layer_in(dev, layer, step);
        if (layer->mix.kind != MIX_NONE)
            ops->mix(dev, layer, step);
        if (layer->attn.heads > 0) {
            ops->qkv(dev, layer, step);
            if (step->num_decode > 0)
                ops->attn_decode(dev, layer, step);
            if (step->num_decode < step->num_seqs)
                ops->attn_prefill(dev, layer, step);
            ops->attn_out(dev, layer, step);
        }
        if (layer->mix.kind != MIX_NONE)
            ops->mix_out(dev, layer, step);
        if (layer->ffn.hidden > 0) {
            ops->ffn_in(dev, layer, step);
            ops->ffn_out(dev, layer, step);
        }
        if (model->config.layer_embed > 0 || model->config.layer_scale)
            ops->layer_out(dev, layer, step);
    }
    if (out)
        ops->resid_export(dev, out, step);
    else
        ops->head(dev, model, step);
    ops->step_end(dev);
}
