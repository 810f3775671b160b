// Layers with latent attention (kernels/README.md, rule 21). Each head's own matrix multiplies its queries before attention and
// what comes of attention: GEMMs as those of experts, whose groups of slots follow from the number of rows alone. So their
// lists are made once. A group may reach past the last row: its results there are not used.
#include "device.h"

#include "log.h"
#include "minmax.h"

#include <stdlib.h>

static int rows_at_once(const struct device *dev) {
    return min_int(round_up(dev->max_tokens, 32), CUDA_LATENT_ROWS);
}

// Rows in groups of list i, and how many rows it is for.
static int list_group(int i) { return 8 << i; }
static int list_rows(const struct device *dev, int i) { return i == 2 ? rows_at_once(dev) : list_group(i); }

void cuda_latent_alloc(struct device *dev, struct cuda_arena *a) {
    const struct attn_spec *s = &dev->model.attn[0];
    struct latent *l = &dev->latent;
    size_t T = (size_t)dev->max_tokens, H = (size_t)s->heads;
    int rows = rows_at_once(dev), C = s->kv_lora, n = s->nope_dim, U = s->q_lora;
    l->vector = arena_alloc(a, T * (size_t)s->head_dim, sizeof *l->vector);
    l->heads = arena_alloc(a, T * H * (size_t)(n + s->rope_dim), sizeof *l->heads);
    l->made = arena_alloc(a, (size_t)rows * H * (size_t)(C > s->v_dim ? C : s->v_dim), sizeof *l->made);
    if (U > 0) {
        l->down = arena_alloc(a, T * (size_t)U, sizeof *l->down);
        cuda_activation_alloc(a, &l->q, (int)T, U, dev->act_dtypes[5]);
    }
    cuda_activation_alloc(a, &l->key, rows * s->heads, n, dev->act_dtypes[6]);
    cuda_activation_alloc(a, &l->out, round_up((int)T, 32) * s->heads, C, dev->act_dtypes[7]);
    for (int i = 0; i < CUDA_LATENT_LISTS; i++) {
        size_t slots = (size_t)list_rows(dev, i) * H, per_head = (size_t)(list_rows(dev, i) / list_group(i));
        l->lists[i].slots = arena_alloc(a, slots, sizeof *l->lists[i].slots);
        l->lists[i].groups = arena_alloc(a, per_head * H, sizeof *l->lists[i].groups);
        l->lists[i].num_groups = arena_alloc(a, per_head, sizeof *l->lists[i].num_groups);
    }
}

static bool fill_list(struct device *dev, int i) {
    int H = dev->model.attn[0].heads, size = list_group(i), per_head = list_rows(dev, i) / size,
        num = per_head * H;
    int32_t *slots = malloc((size_t)(num * size) * sizeof *slots),
            *counts = malloc((size_t)per_head * sizeof *counts);
    struct cuda_expert_group *groups = malloc((size_t)num * sizeof *groups);
    for (int g = 0; g < num && slots && counts && groups; g++) {
        groups[g] = (struct cuda_expert_group){g % H, g * size, size};
        counts[g / H] = (g / H + 1) * H;
        for (int r = 0; r < size; r++)
            slots[g * size + r] = (g / H * size + r) * H + g % H;
    }
    bool ok = slots && counts && groups;
    if (ok) {
        rt_upload_now(dev->rt, dev->latent.lists[i].slots, slots, (size_t)(num * size) * sizeof *slots);
        rt_upload_now(dev->rt, dev->latent.lists[i].groups, groups, (size_t)num * sizeof *groups);
        rt_upload_now(dev->rt, dev->latent.lists[i].num_groups, counts, (size_t)per_head * sizeof *counts);
    }
    free(slots), free(counts), free(groups);
    return ok;
}

bool cuda_latent_fill(struct device *dev) {
    for (int i = 0; i < CUDA_LATENT_LISTS; i++)
        if (!fill_list(dev, i))
            return false;
    return true;
}

static size_t place(const struct activation *x, int dtype, size_t row) {
    return row * (size_t)x->ld * (dtype == ACT_DTYPE_F32 ? 4 : 2);
}

// Rows of x from row0 on in all its dtypes, of what a says.
static void convert(struct device *dev, struct activation *x, size_t row0, struct cuda_norm a) {
    a.ldout = x->ld;
    a.scale = x->scale ? x->scale + row0 : NULL;
    for (int dtype = 0; dtype < 3; dtype++) {
        a.out = (char *)x->data[dtype] + place(x, dtype, row0);
        a.act_dtype = (enum act_dtype)dtype;
        if (x->data[dtype])
            cuda_norm(dev->rt, &a);
    }
}

// y (rows, H, n) = of each head its queries, or attention, in x from slot0 on, by its matrix (n, ...)
static void multiply_heads(struct device *dev, const struct weight *w, const struct activation *x,
                           size_t slot0, int rows, float *y) {
    enum act_dtype dtype = cuda_act_dtype_of(w->matrix[0].layout);
    int H = w->num_experts, size = cuda_group_rows(rows, H, H),
        i = size == 8    ? 0
            : size == 16 ? 1
                         : 2,
        per_head = (rows + size - 1) / size;
    CHECK(x->data[dtype] && x->ld >= w->matrix[0].cols);
    struct cuda_expert_gemm a = {.gemm = {.w = w->matrix[0],
                                          .x = (char *)x->data[dtype] + place(x, dtype, slot0),
                                          .scale = dtype == ACT_DTYPE_F16 ? x->scale + slot0 : NULL,
                                          .ldx = x->ld,
                                          .epilogue = EPILOGUE_STORE,
                                          .y = y,
                                          .ldy = w->rows[0],
                                          .n = w->rows[0]},
                                 .slots = dev->latent.lists[i].slots,
                                 .groups = dev->latent.lists[i].groups,
                                 .num_groups = dev->latent.lists[i].num_groups + per_head - 1,
                                 .max_groups = per_head * H,
                                 .group_rows = size,
                                 .num_experts = H,
                                 .per_row = 1};
    cuda_expert_gemm(dev->rt, &a);
}

// Queries of rows [row, row + rows), absorbed and rotated, and what the cache keeps of the rows.
static void finish(struct device *dev, const struct layer *layer, int row, int rows) {
    const struct attn_spec *s = &layer->attn;
    struct latent *l = &dev->latent;
    int head = s->nope_dim + s->rope_dim;
    size_t first = (size_t)row, query = first * (size_t)s->heads,
           size = dtype_row_bytes(cuda_query_dtype(dev->kv_dtype), s->head_dim);
    const float *heads = l->heads + query * (size_t)head;
    convert(dev, &l->key, 0,
            (struct cuda_norm){.x = heads, .rows = rows * s->heads, .n = s->nope_dim, .ldx = head});
    multiply_heads(dev, layer->latent_key, &l->key, 0, rows, l->made);
    struct cuda_latent a = {.vector = l->vector + first * (size_t)s->head_dim,
                            .heads = heads,
                            .absorbed = l->made,
                            .norm = layer->latent_norm->table,
                            .rope_cos = s->rope >= 0 ? dev->ropes[s->rope].cos : NULL,
                            .rope_sin = s->rope >= 0 ? dev->ropes[s->rope].sin : NULL,
                            .rope_interleaved = s->rope >= 0 && dev->model.ropes[s->rope].interleaved,
                            .eps = dev->model.norm_eps,
                            .temperatures = dev->temperatures[s->index],
                            .positions = dev->inputs.positions + row,
                            .slots = dev->inputs.groups[layer->kv_group].slots + row,
                            .rows = rows,
                            .num_heads = s->heads,
                            .kv_lora = s->kv_lora,
                            .nope_dim = s->nope_dim,
                            .q = (char *)dev->q + query * size,
                            .kv = cuda_kv_of(dev, s, layer->kv_layer)};
    cuda_latent(dev->rt, &a);
}

void cuda_latent_in(struct device *dev, const struct layer *layer) {
    const struct attn_spec *s = &layer->attn;
    struct latent *l = &dev->latent;
    int T = dev->work.num_tokens, U = s->q_lora;
    cuda_multiply(dev, layer->latent, &dev->hidden, T, l->vector, s->head_dim);
    if (U > 0) {
        cuda_multiply(dev, layer->latent_qdown, &dev->hidden, T, l->down, U);
        convert(dev, &l->q, 0,
                (struct cuda_norm){.x = l->down,
                                   .weight = layer->latent_qnorm->table,
                                   .rows = T,
                                   .n = U,
                                   .ldx = U,
                                   .eps = dev->model.norm_eps});
    }
    cuda_multiply(dev, layer->latent_q, U > 0 ? &l->q : &dev->hidden, T, l->heads,
                  s->heads * (s->nope_dim + s->rope_dim));
    for (int row = 0; row < T; row += CUDA_LATENT_ROWS)
        finish(dev, layer, row, min_int(T - row, CUDA_LATENT_ROWS));
}

static struct cuda_attend_latent attention_args(const struct device *dev, const struct layer *layer) {
    const struct attn_spec *s = &layer->attn;
    const struct activation *out = &dev->latent.out;
    return (struct cuda_attend_latent){.q = dev->q,
                                       .kv = cuda_kv_of(dev, s, layer->kv_layer),
                                       .blocks = {dev->inputs.groups[layer->kv_group].block_start,
                                                  dev->inputs.groups[layer->kv_group].block_ids},
                                       .seq_of = dev->inputs.seq_of,
                                       .positions = dev->inputs.positions,
                                       .num_heads = s->heads,
                                       .kv_lora = s->kv_lora,
                                       .window = s->window,
                                       .scale = s->scale,
                                       .out = out->data[cuda_written_dtype(out)],
                                       .act_dtype = cuda_written_dtype(out),
                                       .ldout = out->ld};
}

void cuda_latent_attend(struct device *dev, const struct layer *layer, int row0, int rows) {
    struct cuda_attend_latent a = attention_args(dev, layer);
    a.row0 = row0;
    a.rows = rows;
    if (dev->fast[layer->attn.index])
        cuda_attend_latent_fast(dev->rt, &a);
    else
        cuda_attend_latent(dev->rt, &a);
}

void cuda_latent_decode(struct device *dev, const struct layer *layer, const struct cuda_decode *of) {
    struct cuda_attend_latent a = attention_args(dev, layer);
    a.splits = of->splits, a.num_splits = of->num_splits, a.first_split = of->first_split;
    a.split0 = of->split0, a.max_splits = of->max_splits;
    a.partial = of->partial, a.stats = of->stats, a.arrived = of->arrived;
    cuda_attend_latent_fast(dev->rt, &a);
}

void cuda_latent_out(struct device *dev, const struct layer *layer) {
    int T = dev->work.num_tokens, H = layer->attn.heads, n = attn_out_size(&layer->attn);
    struct latent *l = &dev->latent;
    cuda_convert(dev, &l->out, T * H);
    for (int row = 0; row < T; row += CUDA_LATENT_ROWS) {
        int rows = min_int(T - row, CUDA_LATENT_ROWS);
        multiply_heads(dev, layer->latent_value, &l->out, (size_t)row * (size_t)H, rows, l->made);
        convert(dev, &dev->attn, (size_t)row,
                (struct cuda_norm){.x = l->made, .rows = rows, .n = n, .ldx = n});
    }
}
