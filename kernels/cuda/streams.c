// Streams beside the residual one (kernels/README.md, rule 23). dev->resid is the first, on which layers work.
// dev->altup.rows has what a layer has predicted of it, which its correction needs, and the others.
#include "device.h"

enum { N = ALTUP_STREAMS };

const char *cuda_altup_problem(const struct model_config *m) {
    bool fits = m->altup_streams == N && m->layer_embed > 0 && m->post_norms && m->laurel_rank > 0 &&
                !m->layer_scale && m->norm == NORM_RMS && !block_is_parallel(m->block);
    return m->altup_streams == 0 || fits ? NULL : "AltUp streams do not fit what layers have";
}

void cuda_altup_alloc(struct device *dev, struct cuda_arena *a) {
    struct cuda_altup *s = &dev->altup;
    size_t D = (size_t)dev->model.hidden, T = (size_t)dev->max_tokens, R = (size_t)dev->head_rows;
    if (dev->model.altup_streams == 0)
        return;
    s->rows = arena_alloc(a, N * T * D, sizeof(float));
    s->laurel = arena_alloc(a, T * D, sizeof(float));
    s->made = arena_alloc(a, (N - 1) * R * D, sizeof(float));
    s->merged = arena_alloc(a, R * D, sizeof(float));
    cuda_activation_alloc(a, &s->low, dev->max_tokens, dev->model.laurel_rank,
                          dev->act_dtypes[9] | 1u << ACT_DTYPE_F32);
}

static float *stream_at(const struct device *dev, int stream) {
    return dev->altup.rows + (size_t)stream * (size_t)dev->max_tokens * (size_t)dev->model.hidden;
}

static struct cuda_streams streams_of(const struct device *dev, const struct layer *layer,
                                      const struct weight *coefs) {
    return (struct cuda_streams){.resid = dev->resid,
                                 .streams = dev->altup.rows,
                                 .stride = (size_t)dev->max_tokens * (size_t)dev->model.hidden,
                                 .norm = layer ? layer->stream_norm->table : NULL,
                                 .router = layer ? layer->stream_router->table : NULL,
                                 .coefs = coefs ? coefs->table : NULL,
                                 .eps = dev->model.norm_eps,
                                 .rows = dev->work.num_tokens,
                                 .n = dev->model.hidden};
}

void cuda_altup_in(struct device *dev, const struct model *model) {
    struct cuda_streams a = streams_of(dev, NULL, NULL);
    for (int k = 1; k < N; k++) {
        const struct weight *w = model->stream_in[k - 1];
        cuda_normalise(dev, &dev->hidden, dev->resid, NULL, a.rows, NULL, cuda_dtypes_of(w));
        cuda_multiply(dev, w, &dev->hidden, a.rows, stream_at(dev, k), a.n);
    }
    cuda_altup_embed(dev->rt, &a);
}

void cuda_phase_layer_in(struct device *dev, const struct layer *layer, const struct step *step) {
    (void)step;
    struct activation *low = &dev->altup.low;
    struct cuda_streams a = streams_of(dev, layer, layer->stream_predict);
    cuda_altup_predict(dev->rt, &a);
    cuda_normalise(dev, &dev->hidden, dev->resid, layer->attn_norm, a.rows, NULL,
                   cuda_dtypes_of(layer->laurel_left));
    cuda_multiply(dev, layer->laurel_left, &dev->hidden, a.rows, low->data[ACT_DTYPE_F32], low->ld);
    cuda_convert(dev, low, a.rows);
    cuda_multiply(dev, layer->laurel_right, low, a.rows, dev->altup.laurel, a.n);
}

void cuda_altup_attended(struct device *dev, const struct layer *layer) {
    cuda_laurel(dev->rt, &(struct cuda_laurel){.resid = dev->resid,
                                               .predicted = stream_at(dev, 0),
                                               .laurel = dev->altup.laurel,
                                               .in_norm = layer->attn_norm->table,
                                               .norm = layer->laurel_norm->table,
                                               .eps = dev->model.norm_eps,
                                               .rows = dev->work.num_tokens,
                                               .n = dev->model.hidden});
}

void cuda_altup_out(struct device *dev, const struct layer *layer) {
    struct cuda_streams a = streams_of(dev, layer, layer->stream_correct);
    a.scale = layer->stream_scale->table;
    a.out = dev->added;
    cuda_altup_correct(dev->rt, &a);
}

void cuda_altup_add(struct device *dev, const struct layer *layer) {
    struct cuda_streams a = streams_of(dev, layer, NULL);
    cuda_add(dev->rt, &(struct cuda_add){.x = dev->added,
                                         .norm = layer->embed_norm->table,
                                         .norm_bias = layer->embed_norm->bias,
                                         .resid = stream_at(dev, 1),
                                         .factor = 1,
                                         .eps = a.eps,
                                         .rows = a.rows,
                                         .n = a.n,
                                         .copies = N - 1,
                                         .stride = a.stride});
}

// The GEMM is ours for all rows: those that decode are not the first of them.
const float *cuda_altup_head(struct device *dev, const struct model *model, const struct logits_row *rows,
                             int n) {
    struct cuda_altup *s = &dev->altup;
    struct cuda_streams a = streams_of(dev, NULL, NULL);
    for (int k = 1; k < N; k++) {
        const struct weight *w = model->stream_out[k - 1];
        cuda_normalise(dev, &dev->last, stream_at(dev, k), NULL, n, rows, cuda_dtypes_of(w));
        cuda_multiply_last(dev, w, n,
                           (struct cuda_gemm){.epilogue = EPILOGUE_STORE,
                                              .y = s->made + (size_t)((k - 1) * dev->head_rows) * (size_t)a.n,
                                              .ldy = a.n,
                                              .n = a.n});
    }
    a.streams = s->made;
    a.stride = (size_t)dev->head_rows * (size_t)a.n;
    a.of = &rows->row;
    a.of_stride = sizeof *rows / sizeof(int32_t);
    a.out = s->merged;
    a.rows = n;
    cuda_altup_merge(dev->rt, &a);
    return s->merged;
}
