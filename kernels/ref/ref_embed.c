// See ref_embed.h.
#include "ref_embed.h"

#include "ref_rows.h"

#include "log.h"

#include <math.h>
#include <string.h>

static int32_t token_of(const struct device *dev, const struct weight *table, const struct step *step,
                        int t) {
    const struct ref_result *before = &dev->result[(dev->num_begun - 1) & 1];
    int32_t id = step->ids[t];
    if (id < 0) {
        CHECK(-1 - id < before->num_rows);
        id = before->ids[-1 - id];
    }
    CHECK(id < table->part[0].rows);
    return id;
}

// Makes each layer's own embedding of each token.
static void embed_layers(struct device *dev, const struct model *model, const struct step *step) {
    int D = dev->model.hidden, L = dev->model.num_layers, P = dev->model.layer_embed;
    for (int t = 0; t < step->num_tokens; t++) {
        float *to = dev->layer_embed + (size_t)t * (size_t)(L * P);
        int32_t id = token_of(dev, model->embed, step, t);
        id = id < dev->model.layer_vocab ? id : 0;
        ref_matvec(dev->layer_row, dev->resid + (size_t)t * (size_t)D, &model->layer_embed_in->part[0]);
        for (int i = 0; i < L * P; i++)
            dev->layer_row[i] = (float)((double)dev->layer_row[i] / sqrt(D));
        for (int l = 0; l < L; l++)
            ref_norm_row(dev, to + l * P, dev->layer_row + l * P, model->layer_embed_norm, 0, P);
        for (int i = 0; i < L * P; i++) {
            double own = (double)ref_element(&model->layer_embed->part[0], id, i) * sqrt(P);
            to[i] = (float)(((double)to[i] + own) / sqrt(2));
        }
    }
}

struct ref_altup ref_streams_of(const struct device *dev, const struct layer *layer,
                                const struct weight *coefs, const struct weight *const *matrices) {
    struct ref_altup s = {dev->model.altup_streams, dev->model.hidden, .eps = dev->model.norm_eps};
    s.scratch = dev->stream;
    for (int n = 0; n < s.num - 1 && matrices; n++)
        s.matrices[n] = matrices[n]->part;
    if (coefs)
        s.norm = layer->stream_norm->part[0].data, s.router = layer->stream_router->part,
        s.coefs = coefs->part;
    return s;
}

float *ref_streams_at(const struct device *dev, int t) {
    return dev->altup + (size_t)(t * dev->model.altup_streams) * (size_t)dev->model.hidden;
}

void ref_layer_in(struct device *dev, const struct layer *layer, const struct step *step) {
    int D = dev->model.hidden;
    const struct ref_altup s = ref_streams_of(dev, layer, layer->stream_predict, NULL);
    for (int t = 0; t < step->num_tokens; t++) {
        float *x = dev->resid + (size_t)t * (size_t)D, *laurel = dev->laurel + (size_t)t * (size_t)D;
        ref_altup_predict(ref_streams_at(dev, t), x, &s);
        ref_norm_row(dev, dev->norm, x, layer->attn_norm, 0, D);
        ref_matvec(dev->low, dev->norm, &layer->laurel_left->part[0]);
        ref_matvec(laurel, dev->low, &layer->laurel_right->part[0]);
        ref_norm_row(dev, laurel, laurel, layer->laurel_norm, 0, D);
        for (int i = 0; i < D; i++)
            laurel[i] += dev->norm[i];
    }
}

// The residual stream of an MTP layer.
static void embed_mtp(struct device *dev, const struct model *model, const struct step *step) {
    int D = dev->model.hidden, hidden_at = dev->model.mtp_hidden_first ? 0 : D;
    float *embed = dev->wide + (D - hidden_at);
    CHECK(step->num_embeds == step->num_tokens);
    for (int t = 0; t < step->num_tokens; t++) {
        for (int i = 0, id = token_of(dev, model->embed, step, t); i < D; i++)
            embed[i] = ref_element(&model->embed->part[0], id, i) * model_scale(dev->model.embed_scale);
        ref_norm_row(dev, embed, embed, model->mtp_embed_norm, 0, D);
        ref_norm_row(dev, dev->wide + hidden_at, step->embeds + (size_t)t * (size_t)D, model->mtp_hidden_norm,
                     0, D);
        ref_matvec(dev->resid + (size_t)t * (size_t)D, dev->wide, &model->mtp_proj->part[0]);
    }
}

void ref_embed(struct device *dev, const struct model *model, const struct step *step) {
    const struct weight *table = model->embed;
    int D = dev->model.hidden;
    if (model->mtp_proj) {
        embed_mtp(dev, model, step);
        return;
    }
    for (int t = 0, e = 0; t < step->num_tokens; t++) {
        const float *own = NULL;
        if (e < step->num_embeds && step->embed_rows[e] == t)
            own = step->embeds + (size_t)e++ * (size_t)D;
        int32_t id = own ? 0 : token_of(dev, table, step, t);
        float *row = dev->resid + (size_t)t * (size_t)D;
        for (int i = 0; i < D; i++) {
            row[i] =
                (own ? own[i] : ref_element(&table->part[0], id, i)) * model_scale(dev->model.embed_scale);
            if (model->types)
                row[i] += ref_element(&model->types->part[0], step->types ? step->types[t] : 0, i);
            if (model->positions)
                row[i] += ref_element(&model->positions->part[0], step->positions[t], i);
        }
        if (model->embed_norm)
            ref_norm_row(dev, row, row, model->embed_norm, 0, D);
    }
    if (dev->model.layer_embed > 0)
        embed_layers(dev, model, step);
    const struct ref_altup s = ref_streams_of(dev, NULL, NULL, model->stream_in);
    for (int t = 0; t < step->num_tokens && s.num > 0; t++)
        ref_altup_embed(ref_streams_at(dev, t), dev->resid + (size_t)t * (size_t)D, &s);
}

void ref_layer_out(struct device *dev, const struct layer *layer, const struct step *step) {
    int D = dev->model.hidden, L = dev->model.num_layers, P = dev->model.layer_embed;
    float scale = layer->layer_scale ? ((const float *)layer->layer_scale->part[0].data)[0] : 1;
    int N = dev->model.altup_streams;
    for (int t = 0; t < step->num_tokens; t++) {
        float *x = dev->resid + (size_t)t * (size_t)D, *streams = ref_streams_at(dev, t);
        if (N > 0) {
            const struct ref_altup s = ref_streams_of(dev, layer, layer->stream_correct, NULL);
            ref_altup_correct(streams, x, &s);
        }
        if (P > 0) {
            const float *own = dev->layer_embed + ((size_t)t * (size_t)L + (size_t)layer->index) * (size_t)P;
            memcpy(dev->norm, x, (size_t)D * sizeof *x);
            for (int i = 0; layer->stream_scale && i < D; i++)
                dev->norm[i] *= ((const float *)layer->stream_scale->part[0].data)[i];
            ref_gate_and_up(dev, dev->h, dev->norm, &layer->embed_gate->part[0], NULL, layer->ffn.act);
            for (int i = 0; i < P; i++)
                dev->h[i] *= own[i];
            ref_matvec(dev->wide, dev->h, &layer->embed_out->part[0]);
            ref_norm_row(dev, dev->norm, dev->wide, layer->embed_norm, 0, D);
            for (int i = 0; i < D && N == 0; i++)
                x[i] += dev->norm[i];
            for (int i = D; i < N * D; i++) // of all but the first
                streams[i] += dev->norm[i % D];
        }
        for (int i = 0; i < D; i++)
            x[i] *= scale;
    }
}
