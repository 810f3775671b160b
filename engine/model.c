#include "forward.h"

void model_forward(const struct backend_ops *ops, struct device *dev, const struct model *model,
                   const struct workspace *ws, const struct step *step, const float *in, float *out) {
    void *resid = ws->resid; // (T, D)
    void *q = ws->q;         // (T, H, d)
    void *h = ws->h;         // (T, H*d), then (T, F)

    if (ops->step_begin(dev, step))
        return; // a recorded graph has run the same phases

    if (in)
        ops->resid_import(dev, resid, in, step);
    else
        ops->embed(dev, resid, model->embed, step);
    for (int i = 0; i < model->config.num_layers; i++) {
        const struct layer *layer = &model->layers[i];
        ops->qkv(dev, q, resid, layer, step);
        if (step->num_decode > 0)
            ops->attn_decode(dev, h, q, layer, step);
        if (step->num_decode < step->num_seqs)
            ops->attn_prefill(dev, h, q, layer, step);
        ops->proj_add(dev, resid, h, layer->attn_out, step);
        ops->mlp_in(dev, h, resid, layer, step);
        ops->proj_add(dev, resid, h, layer->down, step);
    }
    if (out)
        ops->resid_export(dev, out, resid, step);
    else
        ops->head(dev, resid, model, step);
    ops->step_end(dev);
}
