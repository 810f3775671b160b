// The CUDA backend on the host: its life, memory, and each phase as a few launches. The same source is the
// module quire-cuda.so and, with the emulated runtime, a backend for tests. README.md has words and rules.
#include "backend_cuda.h"

#include "device.h"
#include "log.h"
#include "request.h"

#include <stdlib.h>
#include <string.h>

static int max_int(int a, int b) { return a > b ? a : b; }
static int min_int(int a, int b) { return a < b ? a : b; }

// ---- life

static const char *config_problem(const struct device_config *c) {
    if (c->world > 1 && (COMM_MAX_SUM % c->world != 0 || c->rank < 0 || c->rank >= c->world || !c->comm))
        return "ranks are 1, 2, 4 or 8, and each has a comm";
    if (c->kv_dtype != DTYPE_F32 && c->kv_dtype != DTYPE_F16 && c->kv_dtype != DTYPE_BF16 &&
        c->kv_dtype != DTYPE_I8 && c->kv_dtype != DTYPE_F8_E4M3)
        return "the kv cache can be F32, F16, BF16, I8 or F8_E4M3";
    if (c->block_size < 1 || c->block_size > 1 << 16)
        return "the block size must be from 1 to 65536 tokens";
    return NULL;
}

static const char *model_problem(const struct model_config *m) {
    if (m->num_layers < 1 || m->hidden < 1 || m->num_heads < 1 || m->head_dim < 1 || m->ffn < 1 ||
        m->vocab < 1)
        return "a dimension of the model is not positive";
    if (m->num_kv_heads < 1 || m->num_heads % m->num_kv_heads != 0)
        return "the number of heads is no multiple of the number of kv heads";
    if (m->head_dim > 1024 || m->rope.dim > m->head_dim || m->rope.dim < 0 || m->rope.dim % 2 != 0)
        return "the head size is over 1024, or the rotated part of a head is odd or larger than it";
    if (m->vocab > 65535 * CUDA_GROUP)
        return "the vocabulary is too large for a launch";
    return NULL;
}

static void cuda_close(struct device *dev) {
    if (!dev)
        return;
    for (int i = 0; i < dev->num_graphs; i++)
        if (dev->graphs[i].graph)
            rt_graph_free(dev->rt, dev->graphs[i].graph);
    while (dev->weights) {
        struct weight *next = dev->weights->next;
        cuda_weight_free(dev, dev->weights);
        dev->weights = next;
    }
    rt_free(dev->rt, dev->arena);
    rt_free(dev->rt, dev->keys);
    for (int i = 0; i < 2; i++) {
        struct result *r = &dev->result[i];
        rt_free_host(dev->rt, dev->upload[i]);
        rt_free_host(dev->rt, r->ids);
        rt_free_host(dev->rt, r->top_ids);
        rt_free_host(dev->rt, r->top_logprobs);
        rt_free_host(dev->rt, r->logits);
    }
    cuda_group_close(dev);
    free(dev->seen);
    rt_close(dev->rt);
    free(dev);
}

static struct device *cuda_open(const struct backend_host *host, const struct device_config *config,
                                struct err *err) {
    const char *problem = config_problem(config), *misfit = model_problem(config->model);
    if (problem) {
        err_set(err, STATUS_INVALID, "%s", problem);
        return NULL;
    }
    if (misfit) {
        err_set(err, STATUS_FORMAT, "the cuda backend cannot run this model: %s", misfit);
        return NULL;
    }
    struct device *dev = calloc(1, sizeof *dev);
    if (!dev) {
        err_set(err, STATUS_NOMEM, "out of memory");
        return NULL;
    }
    if (!(dev->rt = rt_open(config->ordinal, err))) {
        free(dev);
        return NULL;
    }
    rt_describe(dev->rt, &dev->info);
    dev->host = host;
    dev->model = *config->model;
    dev->kv_dtype = config->kv_dtype;
    dev->block_size = config->block_size;
    dev->exact = config->exact;
    const char *graphs = getenv("QUIRE_CUDA_GRAPHS"); // 0: every step launches its kernels one by one
    dev->max_graphs = graphs ? max_int(min_int(atoi(graphs), CUDA_MAX_GRAPHS), 0) : CUDA_MAX_GRAPHS;
    if (config->num_stages > 1)
        dev->max_graphs = 0; // nothing recorded can copy what stages hand over: it changes from step to step
    if (cuda_group_open(dev, config, err) != STATUS_OK) {
        cuda_close(dev);
        return NULL;
    }
    return dev;
}

static void cuda_info(struct device *dev, struct device_info *info) {
    struct rt_info now;
    rt_describe(dev->rt, &now);
    memset(info, 0, sizeof *info);
    snprintf(info->name, sizeof info->name, "cuda %s%s", now.name, dev->exact ? ", exact" : "");
    info->memory_free = now.free;
    info->memory_total = now.total;
    info->weight_bytes = dev->weight_bytes;
    info->run_ahead = true;
}

size_t cuda_kv_layer_bytes(const struct device *dev) { // keys or values of one layer
    return (size_t)dev->limits.num_blocks * (size_t)dev->block_size *
           dtype_row_bytes(dev->kv_dtype, device_kv_size(dev));
}

size_t cuda_kv_layer_vectors(const struct device *dev) { // keys or values of one layer
    return (size_t)dev->limits.num_blocks * (size_t)(dev->block_size * dev->model.num_kv_heads);
}

size_t cuda_kv_block_bytes(struct device *dev) {
    return 2u * (size_t)dev->model.num_layers * (size_t)(dev->block_size * dev->model.num_kv_heads) *
           backend_kv_vector_bytes(dev->kv_dtype, dev->model.head_dim);
}

// Keys and values of one layer.
struct cuda_kv cuda_layer_kv(const struct device *dev, int layer) {
    size_t bytes = cuda_kv_layer_bytes(dev), at = (size_t)layer * bytes,
           scales = (size_t)layer * cuda_kv_layer_vectors(dev);
    return (struct cuda_kv){
        .keys = dev->keys + at,
        .values = dev->values + at,
        .dtype = dev->kv_dtype,
        .block_size = dev->block_size,
        .num_heads = dev->model.num_kv_heads,
        .head_dim = dev->model.head_dim,
        .key_scales = dev->key_scales ? dev->key_scales + scales : NULL,
        .value_scales = dev->value_scales ? dev->value_scales + scales : NULL,
    };
}

// ---- one step

// Rows that a recorded step is padded to: 1, 2, 4, 8, 16, 24, 32, 48, 64.
static int graph_tokens(int n) {
    static const int sizes[] = {1, 2, 4, 8, 16, 24, 32, 48, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (n <= sizes[i])
            return sizes[i];
    return 0;
}

// Only steps in which every sequence decodes and draws are recorded: they come by the thousand, and their
// kernels are bound by launching.
static int padded_tokens(const struct device *dev, const struct step *step) {
    bool plain = dev->max_graphs > 0 && !dev->limits.keep_logits && step->num_decode == step->num_seqs &&
                 step->num_rows == step->num_tokens && step->num_tokens == step->num_seqs && !dev->exact;
    return plain ? max_int(graph_tokens(step->num_tokens), step->num_tokens) : step->num_tokens;
}

static int power_of_two(int n) {
    int p = 64;
    while (p < n)
        p *= 2;
    return p;
}

// The graph of this step's key; a free place where there is none; NULL where none is free or the step is not
// for one.
static struct graph *find_graph(struct device *dev, const struct step *step, int tokens) {
    if (dev->max_graphs == 0 || dev->limits.keep_logits || dev->exact ||
        graph_tokens(step->num_tokens) != tokens || step->num_decode != step->num_seqs ||
        step->num_rows != step->num_tokens || step->num_tokens != step->num_seqs || !dev->plan.one_round)
        return NULL;
    int items = dev->fast ? min_int(power_of_two(dev->plan.num_items), dev->max_items) : 0;
    bool edits = dev->plan.num_edited > 0;
    for (int i = 0; i < dev->num_graphs; i++) {
        struct graph *g = &dev->graphs[i];
        if (g->num_tokens == tokens && g->max_items == items && g->edits == edits)
            return g;
    }
    if (dev->num_graphs == dev->max_graphs)
        return NULL;
    struct graph *g = &dev->graphs[dev->num_graphs++];
    *g = (struct graph){.num_tokens = tokens, .max_items = items, .edits = edits};
    return g;
}

// Copies back what rows gave, and marks the end of the step.
static void finish_step(struct device *dev, const struct step *step) {
    int slot = (int)(dev->num_begun & 1);
    struct result *r = &dev->result[slot];
    size_t R = (size_t)dev->max_rows, n = (size_t)step->num_rows;
    bool tops = false;
    for (int i = 0; i < step->num_rows; i++)
        tops |= step->rows[i].num_logprobs > 0;
    rt_download(dev->rt, r->ids, dev->ids, 2 * R * sizeof(int32_t) + n);
    if (tops) {
        rt_download(dev->rt, r->top_ids, dev->top_ids, n * MAX_TOP_LOGPROBS * sizeof(int32_t));
        rt_download(dev->rt, r->top_logprobs, dev->top_logprobs, n * MAX_TOP_LOGPROBS * sizeof(float));
    }
    r->num_rows = step->num_rows;
    rt_mark(dev->rt, slot);
}

static void check_step(const struct device *dev, const struct step *step) {
    const struct step_limits *l = &dev->limits;
    CHECK(step->num_tokens <= l->max_tokens && step->num_seqs <= l->max_seqs &&
          step->num_rows <= l->max_rows);
    CHECK(step->num_decode >= 0 && step->num_decode <= step->num_seqs &&
          step->max_context_len <= l->max_context);
    CHECK(dev->num_begun - dev->num_synced < 2); // results of two steps are kept
    for (int t = 0; t < step->num_tokens; t++) {
        CHECK(step->ids[t] < dev->model.vocab &&
              (step->ids[t] >= 0 || -1 - step->ids[t] < dev->result[dev->num_begun & 1].num_rows));
        CHECK(step->positions[t] >= 0 && step->positions[t] < l->max_context);
    }
    for (int r = 0; r < step->num_rows; r++) {
        const struct head_row *row = &step->rows[r];
        CHECK(row->row >= 0 && row->row < step->num_tokens && row->target < dev->model.vocab);
        CHECK(row->num_logprobs <= MAX_TOP_LOGPROBS && row->edit_end <= step->num_edits);
        for (int e = row->edit_start; e < row->edit_end; e++)
            CHECK(step->edits[e].token >= 0 && step->edits[e].token < dev->model.vocab);
    }
}

static bool cuda_step_begin(struct device *dev, const struct step *step) {
    check_step(dev, step);
    cuda_group_join(dev);
    dev->num_begun++;
    int slot = (int)(dev->num_begun & 1), tokens = padded_tokens(dev, step);
    plan_fill(&dev->plan, &dev->plan_config, &dev->inputs, dev->upload[slot], step, tokens, dev->seen,
              &dev->stamp);
    CHECK(dev->plan.bytes <= dev->upload_bytes);
    rt_upload(dev->rt, dev->staging, dev->upload[slot], dev->plan.bytes);
    dev->step = step; // until step_end()
    dev->recording = NULL;
    dev->graph_items = 0;
    struct graph *g = find_graph(dev, step, tokens);
    if (g && g->graph) {
        rt_graph_launch(dev->rt, g->graph);
        finish_step(dev, step);
        return true;
    }
    if (g && ++g->num_seen > 1) { // once may be chance
        dev->recording = g;
        dev->graph_items = g->max_items;
        rt_capture_begin(dev->rt);
    }
    cuda_scatter(dev->rt, &(struct cuda_scatter){dev->staging, plan_num_parts()});
    return false;
}

static void cuda_step_end(struct device *dev) {
    if (dev->recording) {
        dev->recording->graph = rt_capture_end(dev->rt);
        if (dev->recording->graph)
            rt_graph_launch(dev->rt, dev->recording->graph);
        else
            rt_fail(dev->rt, "a step could not be recorded");
    }
    finish_step(dev, dev->step);
    cuda_group_check(dev);
}

// ---- phases

static void embed(struct device *dev, void *resid, const struct weight *table, const struct step *step) {
    (void)step;
    struct cuda_embed a = {.ids = dev->inputs.ids,
                           .drawn = dev->ids,
                           .table = table->table,
                           .dtype = table->dtype,
                           .resid = resid,
                           .rows = dev->plan.num_tokens,
                           .hidden = dev->model.hidden,
                           .vocab = dev->model.vocab};
    cuda_embed(dev->rt, &a);
}

// Normalised rows in every form that weights of this input need. of: which rows, or NULL.
static void normalise(struct device *dev, struct activation *x, const float *resid, const struct weight *norm,
                      int rows, const struct head_row *of) {
    for (int form = 0; form < 3; form++) {
        if (!x->data[form])
            continue;
        struct cuda_norm a = {.x = resid,
                              .of = of ? &of->row : NULL,
                              .of_stride = sizeof *of / sizeof(int32_t),
                              .weight = norm->table,
                              .out = x->data[form],
                              .scale = x->scale,
                              .form = (enum cuda_form)form,
                              .rows = rows,
                              .n = dev->model.hidden,
                              .ldx = dev->model.hidden,
                              .ldout = x->ld,
                              .eps = dev->model.norm_eps};
        cuda_norm(dev->rt, &a);
    }
}

static void qkv(struct device *dev, void *q, const void *resid, const struct layer *layer,
                const struct step *step) {
    (void)step;
    const struct model_config *m = &dev->model;
    int ld = device_q_size(dev) + 2 * device_kv_size(dev), T = dev->plan.num_tokens;
    normalise(dev, &dev->hidden, resid, layer->attn_norm, T, NULL);
    cuda_multiply(dev, layer->qkv, &dev->hidden, T, dev->qkv, ld);
    struct cuda_qkv a = {.x = dev->qkv,
                         .ldx = ld,
                         .rows = T,
                         .num_heads = m->num_heads,
                         .bias = layer->qkv->bias,
                         .q_norm = layer->q_norm ? layer->q_norm->table : NULL,
                         .k_norm = layer->k_norm ? layer->k_norm->table : NULL,
                         .rope_cos = dev->rope_cos,
                         .rope_sin = dev->rope_sin,
                         .rope_pairs = m->rope.dim / 2,
                         .rope_interleaved = m->rope.interleaved,
                         .eps = m->norm_eps,
                         .positions = dev->inputs.positions,
                         .slots = dev->inputs.slots,
                         .q = q,
                         .kv = cuda_layer_kv(dev, layer->index)};
    cuda_qkv(dev->rt, &a);
}

static struct cuda_blocks step_blocks(const struct device *dev) {
    return (struct cuda_blocks){dev->inputs.block_start, dev->inputs.block_ids};
}

static void attend_rows(struct device *dev, const void *q, int layer, int row0, int rows) {
    struct cuda_attend a = {.q = q,
                            .kv = cuda_layer_kv(dev, layer),
                            .blocks = step_blocks(dev),
                            .seq_of = dev->inputs.seq_of,
                            .positions = dev->inputs.positions,
                            .row0 = row0,
                            .rows = rows,
                            .group = dev->plan_config.group,
                            .window = dev->model.window,
                            .scale = dev->model.attn_scale,
                            .out = dev->attn.data[cuda_written_form(&dev->attn)],
                            .form = cuda_written_form(&dev->attn),
                            .ldout = dev->attn.ld};
    cuda_attend(dev->rt, &a);
}

static void attend_tiles(struct device *dev, const void *q, int layer) {
    struct cuda_prefill a = {.q = q,
                             .kv = cuda_layer_kv(dev, layer),
                             .blocks = step_blocks(dev),
                             .tiles = dev->inputs.tiles,
                             .num_tiles = dev->inputs.counts + 1,
                             .max_tiles = dev->plan.num_tiles,
                             .tile_rows = dev->plan_config.tile_rows,
                             .group = dev->plan_config.group,
                             .window = dev->model.window,
                             .scale = dev->model.attn_scale,
                             .out = dev->attn.data[cuda_written_form(&dev->attn)],
                             .form = cuda_written_form(&dev->attn),
                             .ldout = dev->attn.ld};
    cuda_prefill(dev->rt, &a);
}

static void attn_decode(struct device *dev, void *h, const void *q, const struct layer *layer,
                        const struct step *step) {
    (void)h;
    if (!dev->fast) {
        attend_rows(dev, q, layer->index, 0, dev->plan.num_decode);
        return;
    }
    if (dev->exact) { // the same kernel for every row; with others than decodes, attn_prefill() runs it
        if (step->num_decode == step->num_seqs)
            attend_tiles(dev, q, layer->index);
        return;
    }
    const int32_t *first = plan_first_item(dev->upload[dev->num_begun & 1]);
    for (int row = 0, end; row < dev->plan.num_decode; row = end) {
        int rows = dev->plan.num_decode, items = dev->plan.num_items;
        end = rows;
        if (!dev->plan.one_round) {
            plan_round(first, rows, dev->max_items, row, &end);
            items = first[end] - first[row];
        }
        struct cuda_decode a = {.q = q,
                                .kv = cuda_layer_kv(dev, layer->index),
                                .blocks = step_blocks(dev),
                                .items = dev->inputs.items,
                                .num_items = dev->inputs.counts,
                                .first_item = dev->inputs.first_item,
                                .item0 = dev->plan.one_round ? 0 : first[row],
                                .max_items = dev->graph_items ? dev->graph_items : items,
                                .row0 = row,
                                .rows = end - row,
                                .group = dev->plan_config.group,
                                .scale = dev->model.attn_scale,
                                .partial = dev->partial,
                                .out = dev->attn.data[cuda_written_form(&dev->attn)],
                                .form = cuda_written_form(&dev->attn),
                                .ldout = dev->attn.ld};
        cuda_decode(dev->rt, &a);
    }
}

static void attn_prefill(struct device *dev, void *h, const void *q, const struct layer *layer,
                         const struct step *step) {
    (void)h;
    int row = step->query_start[step->num_decode];
    if (dev->fast)
        attend_tiles(dev, q, layer->index);
    else
        attend_rows(dev, q, layer->index, row, step->num_tokens - row);
}

static void proj_add(struct device *dev, void *resid, const void *h, const struct weight *w,
                     const struct step *step) {
    (void)h, (void)step;
    struct activation *x = w->role == WEIGHT_DOWN ? &dev->ffn : &dev->attn;
    if (w->role == WEIGHT_ATTN_OUT) {
        cuda_make_f16(dev, x, dev->plan.num_tokens);
        cuda_make_bf16(dev, x, dev->plan.num_tokens);
    }
    if (dev->group.world == 1) {
        cuda_multiply_add(dev, w, x, dev->plan.num_tokens, resid);
        return;
    }
    cuda_multiply(dev, w, x, dev->plan.num_tokens, dev->group.part, dev->model.hidden);
    cuda_group_add(dev, resid, w->bias, dev->plan.num_tokens);
}

static void mlp_in(struct device *dev, void *h, const void *resid, const struct layer *layer,
                   const struct step *step) {
    (void)h, (void)step;
    normalise(dev, &dev->hidden, resid, layer->ffn_norm, dev->plan.num_tokens, NULL);
    cuda_multiply_swiglu(dev, layer->gate_up, &dev->hidden, dev->plan.num_tokens, &dev->ffn);
}

static void download_logits(struct device *dev, int first, int n) {
    float *to = dev->result[dev->num_begun & 1].logits;
    size_t V = (size_t)dev->model.vocab;
    for (int r = 0; to && r < n; r++)
        rt_download(dev->rt, to + (size_t)(first + r) * V, dev->logits + (size_t)r * (size_t)dev->logits_ld,
                    V * sizeof(float));
}

static void head(struct device *dev, const void *resid, const struct model *model, const struct step *step) {
    (void)step;
    const struct weight *w = model->head;
    const struct head_row *rows = dev->inputs.rows;
    float factor = dev->model.logit_scale == 0 ? 1 : dev->model.logit_scale;
    int begin = dev->group.begin[dev->group.rank]; // of the tokens that this rank has
    for (int r = 0; r < dev->plan.num_rows; r += CUDA_HEAD_ROWS) {
        int n = min_int(dev->plan.num_rows - r, CUDA_HEAD_ROWS);
        enum cuda_form form = cuda_form_of(w->matrix[0].format);
        normalise(dev, &dev->last, resid, model->out_norm, n, rows + r);
        struct cuda_gemm g = {.w = w->matrix[0],
                              .x = dev->last.data[form],
                              .scale = form == FORM_F16 ? dev->last.scale : NULL,
                              .m = n,
                              .ldx = dev->last.ld,
                              .epilogue = EPILOGUE_LOGITS,
                              .y = dev->logits + begin,
                              .ldy = dev->logits_ld,
                              .n = w->rows[0],
                              .max = dev->max + begin / CUDA_GROUP,
                              .ldmax = dev->num_groups,
                              .factor = factor};
        cuda_gemm(dev->rt, &g);
        struct cuda_sample s = {.rows = rows + r,
                                .draws = dev->inputs.draws + r,
                                .edits = dev->staging,
                                .rounds = dev->staging,
                                .mask_bits = dev->staging,
                                .logits = dev->logits,
                                .max = dev->max,
                                .edited = dev->edited,
                                .edited_max = dev->edited_max,
                                .sums = dev->sums,
                                .num_rows = n,
                                .num_edited = dev->plan.num_edited,
                                .vocab = dev->model.vocab,
                                .ld = dev->logits_ld,
                                .ldmax = dev->num_groups,
                                .first = r,
                                .ids = dev->ids,
                                .top_ids = dev->top_ids,
                                .logprob = dev->logprob,
                                .top_logprobs = dev->top_logprobs,
                                .failed = dev->failed};
        if (dev->group.world > 1)
            cuda_group_gather(dev, &s, n);
        cuda_sample(dev->rt, &s);
        download_logits(dev, r, n);
    }
}

static size_t resid_bytes(const struct device *dev, const struct step *step) {
    return (size_t)step->num_tokens * (size_t)dev->model.hidden * sizeof(float);
}

static void resid_export(struct device *dev, float *dst, const void *resid, const struct step *step) {
    rt_download(dev->rt, dst, resid, resid_bytes(dev, step));
}

static void resid_import(struct device *dev, void *resid, const float *src, const struct step *step) {
    rt_upload(dev->rt, resid, src, resid_bytes(dev, step));
}

static enum status cuda_sync(struct device *dev, struct step_out *out, struct err *err) {
    CHECK(dev->num_synced < dev->num_begun);
    int slot = (int)(++dev->num_synced & 1);
    const struct result *r = &dev->result[slot];
    *out = (struct step_out){r->ids,    r->logprob, r->top_ids,      r->top_logprobs,
                             r->failed, r->logits,  MAX_TOP_LOGPROBS};
    return dev->group.world > 1 ? cuda_group_wait(dev, slot, err) : rt_wait(dev->rt, slot, err);
}

// ---- blocks in the canonical order: per layer K, V, each (B, K, d); here (K, B, d). Scales likewise, with d
// 1

// One block's vectors of `row` bytes on the device, through host. Returns the bytes.
static size_t copy_part(struct device *dev, void *at, char *host, char *canonical, size_t row, bool export) {
    int B = dev->block_size, K = dev->model.num_kv_heads;
    size_t bytes = (size_t)(B * K) * row;
    if (export)
        rt_download_now(dev->rt, host, at, bytes);
    for (int h = 0; h < K; h++)
        for (int b = 0; b < B; b++) {
            char *ours = host + (size_t)(h * B + b) * row, *theirs = canonical + (size_t)(b * K + h) * row;
            memcpy(export ? theirs : ours, export ? ours : theirs, row);
        }
    if (!export)
        rt_upload_now(dev->rt, at, host, bytes);
    return bytes;
}

static void copy_block(struct device *dev, int32_t block, char *canonical, bool export) {
    int B = dev->block_size, K = dev->model.num_kv_heads;
    size_t row = dtype_row_bytes(dev->kv_dtype, dev->model.head_dim), bytes = (size_t)(B * K) * row;
    char *host = malloc((size_t)(B * K) * (row > sizeof(float) ? row : sizeof(float)));
    if (!host) {
        rt_fail(dev->rt, "out of host memory for a block");
        return;
    }
    for (int layer = 0; layer < dev->model.num_layers; layer++)
        for (int which = 0; which < 2; which++) {
            struct cuda_kv kv = cuda_layer_kv(dev, layer);
            canonical += copy_part(dev, (char *)(which ? kv.values : kv.keys) + (size_t)block * bytes, host,
                                   canonical, row, export);
            if (dev->kv_dtype == DTYPE_I8)
                canonical += copy_part(
                    dev, (which ? kv.value_scales : kv.key_scales) + (size_t)block * (size_t)(B * K), host,
                    canonical, sizeof(float), export);
        }
    free(host);
}

static void kv_export(struct device *dev, int32_t block, void *dst) { copy_block(dev, block, dst, true); }

static void kv_import(struct device *dev, int32_t block, const void *src) {
    copy_block(dev, block, (void *)(uintptr_t)src, false);
}

const struct backend_ops backend_cuda = {
    .abi = BACKEND_ABI,
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .info = cuda_info,
    .weight_load = cuda_weight_load,
    .kv_block_bytes = cuda_kv_block_bytes,
    .reserve = cuda_reserve,
    .step_begin = cuda_step_begin,
    .embed = embed,
    .qkv = qkv,
    .attn_prefill = attn_prefill,
    .attn_decode = attn_decode,
    .proj_add = proj_add,
    .mlp_in = mlp_in,
    .head = head,
    .resid_export = resid_export,
    .resid_import = resid_import,
    .step_end = cuda_step_end,
    .sync = cuda_sync,
    .kv_export = kv_export,
    .kv_import = kv_import,
};
