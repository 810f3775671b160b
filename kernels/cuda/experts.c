// Layers with experts (kernels/README.md, rule 20): routing on the device, the experts' GEMMs over the slots that it finds,
// and the weighted sum. Every size that a launch needs is the most that there can be, so that a CUDA graph may hold it:
// blocks without a group of slots end at once. The GEMMs are ours, whatever the step's size.
#include "device.h"

#include "minmax.h"

void cuda_experts_open(struct device *dev) {
    struct experts *e = &dev->experts;
    for (int i = 0; i < dev->model.num_ffn; i++) {
        const struct ffn_spec *f = &dev->model.ffn[i];
        if (f->experts == 0)
            continue;
        e->max_experts = max_int(e->max_experts, f->experts);
        e->max_top_k = max_int(e->max_top_k, f->top_k);
        e->max_hidden = max_int(e->max_hidden, f->hidden);
        e->max_shared = max_int(e->max_shared, f->shared_hidden);
    }
    dev->max_ffn = max_int(dev->max_ffn, e->max_shared);
}

void cuda_experts_alloc(struct device *dev, struct cuda_arena *a) {
    struct experts *e = &dev->experts;
    size_t T = (size_t)dev->max_tokens, slots = T * (size_t)e->max_top_k, D = (size_t)dev->model.hidden;
    if (e->max_experts == 0)
        return;
    e->logits = arena_alloc(a, T * (size_t)e->max_experts, sizeof *e->logits);
    e->ids = arena_alloc(a, slots, sizeof *e->ids);
    e->weights = arena_alloc(a, slots, sizeof *e->weights);
    e->slots = arena_alloc(a, slots, sizeof *e->slots);
    e->groups = arena_alloc(a, slots, sizeof *e->groups);
    e->num_groups = arena_alloc(a, 1, sizeof *e->num_groups);
    e->out = arena_alloc(a, slots * D, sizeof *e->out);
    cuda_activation_alloc(a, &e->h, (int)slots, e->max_hidden, dev->act_dtypes[3]);
    if (e->max_shared > 0) {
        e->gates = arena_alloc(a, T, sizeof *e->gates);
        e->shared = arena_alloc(a, T * D, sizeof *e->shared);
    }
}

static int group_rows(const struct device *dev, const struct ffn_spec *f) {
    return cuda_group_rows(dev->work.num_tokens, f->top_k, f->experts);
}

// How many of the 8 segments of experts a rank has, and its first.
static int num_segments(const struct device *dev) { return COMM_MAX_SUM / dev->peers.world; }
static int first_segment(const struct device *dev) { return num_segments(dev) * dev->peers.rank; }

void cuda_experts_route(struct device *dev, const struct layer *layer) {
    const struct ffn_spec *f = &layer->ffn;
    struct experts *e = &dev->experts;
    int rows = dev->work.num_tokens;
    cuda_multiply(dev, layer->router, &dev->hidden, rows, e->logits, f->experts);
    struct cuda_route a = {.logits = e->logits,
                           .bias = layer->router->bias,
                           .select_bias = layer->select_bias ? layer->select_bias->table : NULL,
                           .factors = layer->expert_scale ? layer->expert_scale->table : NULL,
                           .seq_of = dev->inputs.seq_of,
                           .experts = e->ids,
                           .weights = e->weights,
                           .rows = rows,
                           .num_experts = f->experts,
                           .top_k = f->top_k,
                           .num_groups = f->groups,
                           .top_groups = f->top_groups,
                           .gating = f->gating,
                           .renormalise = f->renormalise,
                           .scale = model_scale(f->scale),
                           .logit_scale = model_scale(f->router_scale),
                           .near = f->near};
    cuda_route(dev->rt, &a);
    struct cuda_group_slots g = {.experts = e->ids,
                                 .num = rows * f->top_k,
                                 .num_experts = f->experts,
                                 .group_rows = group_rows(dev, f),
                                 .first_own = backend_expert_bound(f->experts, first_segment(dev)),
                                 .num_own = layer->expert_down->num_experts,
                                 .slots = e->slots,
                                 .groups = e->groups,
                                 .num_groups = e->num_groups,
                                 .counts = dev->counts,
                                 .begins = !e->counted};
    cuda_group_slots(dev->rt, &g);
    e->counted = true;
}

// x holds rows for per_row slots each. g has the epilogue and its output.
static void multiply(struct device *dev, const struct layer *layer, const struct weight *w,
                     const struct activation *x, int per_row, struct cuda_gemm g) {
    const struct ffn_spec *f = &layer->ffn;
    enum act_dtype act_dtype = cuda_act_dtype_of(w->matrix[0].layout);
    int rows = group_rows(dev, f);
    g.w = w->matrix[0];
    g.n = w->rows[0];
    g.bias = w->bias;
    g.x = x->data[act_dtype];
    g.ldx = x->ld;
    g.scale = act_dtype == ACT_DTYPE_F16 ? x->scale : NULL;
    struct cuda_expert_gemm a = {
        .gemm = g,
        .slots = dev->experts.slots,
        .groups = dev->experts.groups,
        .num_groups = dev->experts.num_groups,
        .max_groups =
            cuda_max_groups(dev->work.num_tokens * min_int(f->top_k, w->num_experts), w->num_experts, rows),
        .group_rows = rows,
        .num_experts = w->num_experts,
        .per_row = per_row,
        .input_weights = f->weigh_input && w == layer->expert_gate_up ? dev->experts.weights : NULL};
    cuda_expert_gemm(dev->rt, &a);
}

void cuda_experts_in(struct device *dev, const struct layer *layer) {
    struct activation *h = &dev->experts.h;
    enum act_dtype written = cuda_written_dtype(h);
    int slots = dev->work.num_tokens * layer->ffn.top_k;
    if (layer->shared_gate)
        cuda_multiply(dev, layer->shared_gate, &dev->hidden, dev->work.num_tokens, dev->experts.gates, 1);
    multiply(dev, layer, layer->expert_gate_up, &dev->hidden, layer->ffn.top_k,
             (struct cuda_gemm){.epilogue = layer->ffn.no_gate ? EPILOGUE_ACT : EPILOGUE_GATED,
                                .h = h->data[written],
                                .ldy = h->ld,
                                .act = layer->ffn.act,
                                .act_dtype = written});
    // As behind the columns of a dense layer.
    cuda_clear(dev->rt,
               &(struct cuda_clear){h->data[written], written, slots, layer->ffn.hidden, h->n, h->ld});
    cuda_convert(dev, h, slots);
}

// The same of all ranks' experts. The shared one's part is one of the same sum, or `apart` a sum of its own, which is there.
static void combine_ranks(struct device *dev, const struct weight *w, struct cuda_combine a, bool apart) {
    struct cuda_combine own = a;
    own.shared = apart ? NULL : a.shared;
    own.bias = NULL; // which counts once
    own.y = dev->peers.part;
    own.add = false;
    cuda_combine(dev->rt, &own);
    if (!apart || !a.shared) {
        cuda_peers_sum(dev, w, a.y, a.add, a.bias, a.rows);
        return;
    }
    cuda_peers_sum(dev, w, dev->experts.out, false, NULL, a.rows); // its slots have been read
    a.experts = NULL;
    cuda_combine(dev->rt, &a);
}

void cuda_experts_out(struct device *dev, const struct layer *layer) {
    struct experts *e = &dev->experts;
    int rows = dev->work.num_tokens, D = dev->model.hidden;
    bool many = dev->peers.world > 1, own_norms = layer->ffn.own_norms;
    bool apart = many && (dev->exact || own_norms); // the order of one rank, or a norm of each sum
    multiply(dev, layer, layer->expert_down, &e->h, 1,
             (struct cuda_gemm){.epilogue = EPILOGUE_STORE, .y = e->out, .ldy = D});
    if (layer->down)
        cuda_multiply(dev, layer->down, &dev->ffn, rows, apart ? dev->peers.part : e->shared, D);
    if (layer->down && apart)
        cuda_peers_sum(dev, layer->down, e->shared, false, NULL, rows);
    bool shared = layer->down && !own_norms;
    struct cuda_combine a = {.x = e->out,
                             .experts = e->ids,
                             .weights = layer->ffn.weigh_input ? NULL : e->weights,
                             .shared = shared ? e->shared : NULL,
                             .gate = layer->shared_gate ? e->gates : NULL,
                             .bias = shared ? layer->down->bias : NULL,
                             .y = dev->added ? dev->added : dev->resid,
                             .add = !dev->added,
                             .rows = rows,
                             .n = D,
                             .top_k = layer->ffn.top_k,
                             .num_experts = layer->ffn.experts,
                             .first_segment = first_segment(dev),
                             .num_segments = num_segments(dev)};
    if (many)
        combine_ranks(dev, layer->expert_down, a, apart);
    else
        cuda_combine(dev->rt, &a);
}
