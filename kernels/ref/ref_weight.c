#include "ref_weight.h"

struct ref_latent ref_latent_weights(const struct layer *layer, float eps) {
    return (struct ref_latent){.in = layer->latent->part,
                               .q_down = layer->latent_qdown ? layer->latent_qdown->part : NULL,
                               .q = layer->latent_q->part,
                               .key = layer->latent_key->part,
                               .value = layer->latent_value->part,
                               .norm = layer->latent_norm->part[0].data,
                               .q_norm = layer->latent_qnorm ? layer->latent_qnorm->part[0].data : NULL,
                               .eps = eps};
}

struct ref_mix ref_mix_weights(const struct layer *layer, float eps) {
    struct ref_mix m = {.spec = &layer->mix, .eps = eps};
    for (int i = 0; i < layer->mix_conv->num_parts; i++) {
        m.conv[i] = layer->mix_conv->part[i].data;
        m.conv_bias[i] = layer->mix_conv->part[i].bias;
    }
    if (layer->mix_heads) {
        m.a = layer->mix_heads->part[0].data;
        m.bias = layer->mix_heads->part[1].data;
        m.d = layer->mix_heads->part[2].data;
    }
    m.norm = layer->mix_norm ? layer->mix_norm->part[0].data : NULL;
    return m;
}

void ref_project(float *y, const float *x, const struct weight *w) {
    for (int i = 0; w && i < w->num_parts; y += w->part[i++].rows)
        ref_matvec(y, x, &w->part[i]);
}
