// The CUDA backend on the host: its lifecycle and its table. The same source is the module quire-cuda.so and,
// with the emulated runtime, a backend for tests. README.md has the words and rules.
#include "backend_cuda.h"

#include "device.h"
#include "log.h"
#include "minmax.h"

#include <stdlib.h>
#include <string.h>

// ---- lifecycle

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

static const char *latent_problem(const struct model_config *m, const struct attn_spec *a) {
    const struct attn_spec *first = &m->attn[0];
    if (a->kind != first->kind || a->heads != first->heads || a->kv_lora != first->kv_lora ||
        a->q_lora != first->q_lora || a->nope_dim != first->nope_dim || a->v_dim != first->v_dim)
        return "some layers have latent attention and some not, or of another size";
    if (a->kv_heads != 1 || a->kv_lora < 1 || a->q_lora < 0 || a->nope_dim < 1 || a->rope_dim < 0 ||
        a->v_dim < 1 || a->head_dim != a->kv_lora + a->rope_dim ||
        (a->rope >= 0 && a->rope < m->num_ropes && m->ropes[a->rope].dim != a->rope_dim))
        return "sizes of latent attention do not fit together";
    if (a->softcap > 0 || a->gate || a->bidirectional || a->chunked || a->sinks)
        return "latent attention has a soft cap, a gate, chunks or sinks, or is bidirectional";
    return NULL;
}

static const char *spec_problem(const struct model_config *m, const struct attn_spec *a) {
    const struct attn_spec *first = &m->attn[0];
    if (a->heads < 1 || a->head_dim < 1)
        return "a dimension of the model is not positive";
    if (a->kv_heads < 1 || a->heads % a->kv_heads != 0)
        return "the number of heads is no multiple of the number of kv heads";
    bool latent = a->kind == ATTN_LATENT || first->kind == ATTN_LATENT;
    const char *problem = latent ? latent_problem(m, a) : NULL;
    if (problem)
        return problem;
    if (a->head_dim > 1024)
        return "the head size is over 1024";
    if (attn_kv_size(a) != attn_kv_places(a) * model_kv_size(m))
        return "what layers keep of a token is no multiple of the least of them";
    if (a->rope >= m->num_ropes)
        return "a layer's rotation is not among those of the model";
    if (a->rope >= 0 &&
        (m->ropes[a->rope].dim < 0 || m->ropes[a->rope].dim > a->head_dim || m->ropes[a->rope].dim % 2 != 0))
        return "the rotated part of a head is odd or larger than it";
    return NULL;
}

// Feed-forwards that no kernel computes.
static const char *ffn_problem(const struct ffn_spec *f) {
    return f->act == ACT_XIELU ? "its activation is xIELU"
           : f->latent > 0     ? "its experts take latents"
           : f->early_router   ? "its router goes before attention"
           : f->experts > 0 && f->shared_scale > 0 && f->shared_scale != 1 ? "its shared expert has a factor"
                                                                           : NULL;
}

static const char *experts_problem(const struct model_config *m, const struct ffn_spec *f) {
    if (block_is_parallel(m->block))
        return "its experts stand beside attention";
    if (f->own_norms && (f->shared_gate || f->shared_hidden < 1))
        return "experts have norms of their own beside no shared expert or a gated one";
    if (f->sum_bias)
        return "the bias of what experts give together is not computed on GPUs yet";
    if (f->experts > CUDA_MAX_EXPERTS || f->top_k < 1 || f->top_k > f->experts)
        return "a layer has too many experts";
    return NULL;
}

static const char *model_problem(const struct model_config *m, int world) {
    const char *problem = NULL;
    if (m->num_layers < 1 || m->hidden < 1 || m->vocab < 1 || m->num_attn < 1 || m->num_ffn < 1 ||
        m->kv_layers + m->state_layers < 1)
        return "a dimension of the model is not positive";
    if (m->kv_layers < 1 &&
        m->attn[0].head_dim == MODEL_NO_HEAD_DIM) // else it is a stage of one that attends
        return "models without attention do not run on GPUs yet";
    for (int i = 0; i < m->num_attn && !problem; i++)
        problem = spec_problem(m, &m->attn[i]);
    for (int i = 0; i < m->num_mix && !problem; i++)
        problem = cuda_mix_problem(&m->mix[i]);
    for (int i = 0; i < m->num_ffn && !problem; i++)
        problem = ffn_problem(&m->ffn[i]);
    for (int i = 0; i < m->num_ffn && !problem; i++)
        problem = m->ffn[i].sparse && world > 1 ? "ranks would share sparse gates"
                  : m->ffn[i].sparse && (m->ffn[i].no_gate || m->ffn[i].experts > 0 || m->ffn[i].in_bias)
                      ? "sparse gates of experts, or with biases, or none are gates"
                  : m->layer_scale && m->ffn[i].hidden == 0 ? "a layer without a feed-forward has a factor"
                  : m->ffn[i].experts > 0                   ? experts_problem(m, &m->ffn[i])
                                                            : NULL;
    if (!problem && m->block == BLOCK_SUM_NORM && (m->layer_scale || m->layer_embed > 0))
        problem = "layers have embeddings or scales of their own, and norms of sums";
    if (!problem)
        problem = m->mtp_layer > 0 ? "it predicts further tokens of another model" : cuda_altup_problem(m);
    if (!problem && m->vocab > 65535 * CUDA_GROUP)
        problem = "the vocabulary is too large for a launch";
    return problem;
}

static void cuda_close(struct device *dev) {
    if (!dev)
        return;
    cuda_peers_leave(dev);
    for (int i = 0; i < dev->num_graphs; i++)
        if (dev->graphs[i].graph)
            rt_graph_free(dev->rt, dev->graphs[i].graph);
    while (dev->weights) {
        struct weight *next = dev->weights->next;
        cuda_weight_free(dev, dev->weights);
        dev->weights = next;
    }
    cuda_loading_free(dev);
    cuda_lora_close(dev);
    rt_free(dev->rt, dev->arena);
    rt_free(dev->rt, dev->keys);
    rt_free_host(dev->rt, dev->host_pages);
    for (int i = 0; i < 2; i++) {
        struct cuda_result *r = &dev->result[i];
        rt_free_host(dev->rt, dev->upload[i]);
        rt_free_host(dev->rt, dev->own_embeds.host[i]);
        rt_free_host(dev->rt, r->ids);
        rt_free_host(dev->rt, r->top_ids);
        rt_free_host(dev->rt, r->top_logprobs);
        rt_free_host(dev->rt, r->logits);
        rt_free_host(dev->rt, r->hidden);
    }
    cuda_peers_close(dev);
    free(dev->seen);
    rt_close(dev->rt);
    free(dev);
}

static struct device *cuda_open(const struct backend_host *host, const struct device_config *config,
                                struct err *err) {
    const char *problem = config_problem(config), *misfit = model_problem(config->model, config->world);
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
    int num = cuda_shares_device(config) ? rt_num_devices() : 0;
    if (!(dev->rt = rt_open(num > 0 ? config->ordinal % num : config->ordinal, err))) {
        free(dev);
        return NULL;
    }
    rt_describe(dev->rt, &dev->info);
    dev->host = host;
    dev->loading.target = (size_t)16 << 20;
    dev->model = *config->model;
    for (int i = 0; i < dev->model.num_attn; i++)
        dev->max_q = max_int(dev->max_q, spec_q_size(&dev->model.attn[i]));
    for (int i = 0; i < dev->model.num_ffn; i++)
        if (dev->model.ffn[i].experts == 0)
            dev->max_ffn = max_int(dev->max_ffn, dev->model.ffn[i].hidden);
    cuda_experts_open(dev);
    dev->kv_dtype = config->kv_dtype;
    dev->block_size = config->block_size;
    dev->exact = config->exact;
    dev->batch_dependent = config->no_batch_invariant && !dev->info.no_matmul[0];
    const char *w8a8 = getenv("QUIRE_CUDA_W8A8"); // 0: FP8 is dequantised for cuBLASLt
    dev->w8a8 = !w8a8 || strcmp(w8a8, "0") != 0;
    const char *graphs = getenv("QUIRE_CUDA_GRAPHS"); // 0: every step launches its kernels one by one
    dev->max_graphs = graphs ? max_int(min_int(atoi(graphs), CUDA_MAX_GRAPHS), 0) : CUDA_MAX_GRAPHS;
    if (config->num_stages > 1)
        dev->max_graphs = 0; // no graph can copy what stages hand over: its place changes from step to step
    if (cuda_peers_open(dev, config, err) != STATUS_OK) {
        cuda_close(dev);
        return NULL;
    }
    return dev;
}

static void cuda_info(struct device *dev, struct device_info *info) {
    struct rt_info now;
    rt_describe(dev->rt, &now);
    memset(info, 0, sizeof *info);
    snprintf(info->name, sizeof info->name, "cuda %.68s%s", now.name,
             dev->exact             ? ", exact"
             : dev->batch_dependent ? ", not batch-invariant"
                                    : "");
    info->memory_free = now.free + 2 * dev->loading.size; // cuda_reserve() gives it back first
    info->memory_total = now.total;
    info->weight_bytes = dev->weight_bytes;
    info->kv_dtype = dev->kv_dtype;
    // Which kernels of prefill, and of large steps: they differ in bits.
    info->numerics = (uint64_t)cuda_tile_rows(dev) + (cuda_takes_w8a8(dev) ? 1 + dev->info.group_scales : 0) +
                     (dev->batch_dependent ? 4 : 0);
    info->batch_dependent = dev->batch_dependent;
    info->async = true;
}

// ---- phases, each a range of a profiler

#define RANGED(phase, name, of)                                                                              \
    static void ranged_##phase(struct device *dev, const struct of *model_or_layer,                          \
                               const struct step *step) {                                                    \
        rt_range_begin(dev->rt, name);                                                                       \
        cuda_phase_##phase(dev, model_or_layer, step);                                                       \
        rt_range_end(dev->rt);                                                                               \
    }
RANGED(embed, "embed", model)
RANGED(layer_in, "layer_in", layer)
RANGED(qkv, "qkv", layer)
RANGED(attn_prefill, "attn_prefill", layer)
RANGED(attn_decode, "attn_decode", layer)
RANGED(attn_out, "attn_out", layer)
RANGED(mix, "mix", layer)
RANGED(mix_out, "mix_out", layer)
RANGED(ffn_in, model_or_layer->ffn.experts > 0 ? "experts_in" : "ffn_in", layer)
RANGED(ffn_out, model_or_layer->ffn.experts > 0 ? "experts_out" : "ffn_out", layer)
RANGED(layer_out, "layer_out", layer)
RANGED(head, "head", model)

const struct backend_ops backend_cuda = {
    .abi = BACKEND_ABI,
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .info = cuda_info,
    .weight_load = cuda_weight_load,
    .kv_block_bytes = cuda_kv_block_bytes,
    .workspace_bytes = cuda_workspace_bytes,
    .reserve = cuda_reserve,
    .adapter_load = cuda_adapter_load,
    .adapter_free = cuda_adapter_free,
    .step_begin = cuda_step_begin,
    .embed = ranged_embed,
    .layer_in = ranged_layer_in,
    .qkv = ranged_qkv,
    .attn_prefill = ranged_attn_prefill,
    .attn_decode = ranged_attn_decode,
    .attn_out = ranged_attn_out,
    .mix = ranged_mix,
    .mix_out = ranged_mix_out,
    .ffn_in = ranged_ffn_in,
    .ffn_out = ranged_ffn_out,
    .layer_out = ranged_layer_out,
    .head = ranged_head,
    .resid_export = cuda_phase_resid_export,
    .resid_import = cuda_phase_resid_import,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .step_end = cuda_step_end,
    .sync = cuda_sync,
    .kv_copy = cuda_kv_copy,
    .kv_host_page = cuda_kv_host_page,
    .kv_copied = cuda_kv_copied,
};
