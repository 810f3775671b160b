// Recurrent layers (kernels/README.md, rule 19): which of their shapes there are kernels for, their buffers, and what lies
// between the norm and the output matrix.
#include "device.h"

#include "minmax.h"

// Floats of a row of the outputs of the input and the gate matrices: whole float4.
static int in_size(const struct mix_spec *m) {
    return round_up(m->kind == MIX_CONV ? 3 * m->heads : mix_channels(m), 4);
}
static int gate_size(const struct mix_spec *m) {
    return m->kind == MIX_CONV ? 0 : round_up(mix_values(m) + 2 * m->heads, 4);
}

const char *cuda_mix_problem(const struct mix_spec *m) {
    if (m->heads < 1 || m->head_dim < 1 || m->taps < 2 || m->taps > MIX_MAX_TAPS)
        return "a dimension of a recurrent layer is not positive, or its convolution is too long";
    if (m->kind == MIX_CONV)
        return NULL;
    if (m->groups < 1 || m->heads % m->groups != 0 || m->key_dim < 1)
        return "the heads of a recurrent layer are no multiple of its groups";
    return m->key_dim > CUDA_MIX_KEY ? "the state of a recurrent layer has more than 256 rows" : NULL;
}

int cuda_mix_widest(const struct device *dev) {
    int widest = 0;
    for (int i = 0; i < dev->model.num_mix; i++)
        widest = max_int(widest, max_int(in_size(&dev->model.mix[i]), gate_size(&dev->model.mix[i])));
    return widest;
}

void cuda_mix_alloc(struct device *dev, struct cuda_arena *a) {
    struct mix *x = &dev->mix;
    size_t T = (size_t)dev->max_tokens;
    int in = 0, gate = 0, values = 0;
    for (int i = 0; i < dev->model.num_mix; i++) {
        const struct mix_spec *m = &dev->model.mix[i];
        in = max_int(in, in_size(m));
        gate = max_int(gate, gate_size(m));
        values = max_int(values, mix_values(m));
    }
    if (dev->model.num_mix == 0)
        return;
    x->in = arena_alloc(a, T * (size_t)in, sizeof(float));
    if (gate > 0) { // not only short convolutions
        x->convolved = arena_alloc(a, T * (size_t)in, sizeof(float));
        x->gate = arena_alloc(a, T * (size_t)gate, sizeof(float));
        x->y = arena_alloc(a, T * (size_t)values, sizeof(float));
    }
    cuda_activation_alloc(a, &x->out, dev->max_tokens, values, dev->act_dtypes[4]);
}

// The windows come first in a layer's state.
static struct cuda_states states_of(const struct device *dev, const struct layer *layer, size_t before) {
    size_t layers = (size_t)layer->state_layer * (size_t)model_state_size(&dev->model);
    return (struct cuda_states){.first = dev->keys + (layers + before) * sizeof(float),
                                .page_bytes = cuda_kv_array_bytes(dev),
                                .blocks = {dev->inputs.groups[layer->state_group].block_start,
                                           dev->inputs.groups[layer->state_group].block_ids},
                                .seq_of = dev->inputs.seq_of,
                                .positions = dev->inputs.positions,
                                .context_len = dev->inputs.context_len};
}

static void convolve(struct device *dev, const struct layer *layer) {
    const struct mix_spec *m = &layer->mix;
    struct mix *x = &dev->mix;
    enum act_dtype written = cuda_written_dtype(&x->out);
    bool gated = m->kind == MIX_CONV;
    struct cuda_mix_conv a = {.states = states_of(dev, layer, 0),
                              .x = x->in,
                              .w = layer->mix_conv->table,
                              .bias = layer->mix_conv->bias,
                              .y = gated ? x->out.data[written] : x->convolved,
                              .act_dtype = gated ? written : ACT_DTYPE_F32,
                              .rows = dev->work.num_tokens,
                              .channels = mix_channels(m),
                              .taps = m->taps,
                              .ldx = in_size(m),
                              .ldy = gated ? x->out.ld : in_size(m),
                              .gated = gated};
    cuda_mix_conv(dev->rt, &a);
}

static void recur(struct device *dev, const struct layer *layer) {
    const struct mix_spec *m = &layer->mix;
    struct mix *x = &dev->mix;
    const float *heads = layer->mix_heads->table;
    bool delta = m->kind == MIX_DELTA;
    struct cuda_mix_prepare prepare = {.qk = x->convolved,
                                       .gate = x->gate + mix_values(m),
                                       .a = heads,
                                       .bias = heads + m->heads,
                                       .rows = dev->work.num_tokens,
                                       .heads = m->heads,
                                       .groups = m->groups,
                                       .key_dim = m->key_dim,
                                       .ldx = in_size(m),
                                       .ld_gate = gate_size(m),
                                       .delta = delta};
    cuda_mix_prepare(dev->rt, &prepare);
    struct cuda_mix_recur a = {.states = states_of(dev, layer, (size_t)((m->taps - 1) * mix_channels(m))),
                               .x = x->convolved,
                               .dt = prepare.gate,
                               .d = delta ? NULL : heads + 2 * m->heads,
                               .y = x->y,
                               .rows = prepare.rows,
                               .heads = m->heads,
                               .groups = m->groups,
                               .key_dim = m->key_dim,
                               .head_dim = m->head_dim,
                               .ldx = prepare.ldx,
                               .ld_gate = prepare.ld_gate,
                               .delta = delta,
                               .tiled = m->tiled};
    cuda_mix_recur(dev->rt, &a);
}

static void finish(struct device *dev, const struct layer *layer) {
    const struct mix_spec *m = &layer->mix;
    struct mix *x = &dev->mix;
    bool delta = m->kind == MIX_DELTA, norm = delta || m->norm;
    struct cuda_mix_finish a = {.y = x->y,
                                .gate = x->gate,
                                .norm = norm ? layer->mix_norm->table : NULL,
                                .out = x->out.data[cuda_written_dtype(&x->out)],
                                .act_dtype = cuda_written_dtype(&x->out),
                                .rows = dev->work.num_tokens,
                                .n = m->norm && !delta ? mix_values(m) / m->groups : m->head_dim,
                                .values = mix_values(m),
                                .ld_gate = gate_size(m),
                                .ldout = x->out.ld,
                                .eps = dev->model.norm_eps,
                                .gate_first = !delta};
    cuda_mix_finish(dev->rt, &a);
}

void cuda_mix_rows(struct device *dev, const struct layer *layer) {
    const struct mix_spec *m = &layer->mix;
    struct activation *out = &dev->mix.out;
    enum act_dtype written = cuda_written_dtype(out);
    int rows = dev->work.num_tokens;
    cuda_multiply(dev, layer->mix_in, &dev->hidden, rows, dev->mix.in, in_size(m));
    convolve(dev, layer);
    if (m->kind != MIX_CONV) {
        cuda_multiply(dev, layer->mix_gate, &dev->hidden, rows, dev->mix.gate, gate_size(m));
        recur(dev, layer);
        finish(dev, layer);
    }
    cuda_clear(dev->rt,
               &(struct cuda_clear){out->data[written], written, rows, mix_values(m), out->n, out->ld});
    cuda_convert(dev, out, rows);
}
