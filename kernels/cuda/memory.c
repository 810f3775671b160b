// All memory of the CUDA backend but weights: one arena on the device, the cache, buffers on the host, all
// allocated once.
#include "device.h"

#include "log.h"
#include "minmax.h"
#include "rope.h"

#include <math.h>
#include <stdlib.h>

enum {
    CACHE_ALIGN = 256,
    CACHE_SLACK = 2 * CACHE_ALIGN
}; // of the cache's scales, and of those of each head size

static bool any_split_gate_up(const struct device *dev) {
    for (const struct weight *w = dev->weights; w; w = w->next)
        if (w->role == WEIGHT_GATE_UP && !w->interleaved)
            return true;
    return false;
}

// The features that at least one layer has.
struct any_layer {
    bool gate, whole_norm, sparse, own_norms;
};
static struct any_layer any_layer_of(const struct model_config *m) {
    struct any_layer any = {0};
    for (int i = 0; i < m->num_attn; i++) {
        any.gate |= m->attn[i].gate;
        any.whole_norm |= m->attn[i].qk_norm == QK_NORM_WHOLE;
    }
    for (int i = 0; i < m->num_ffn; i++) {
        any.sparse |= m->ffn[i].sparse;
        any.own_norms |= m->ffn[i].own_norms;
    }
    return any;
}

// The widest of what comes of the residual stream for attention.
static int widest_projection(const struct device *dev) {
    const struct attn_spec *a = &dev->model.attn[0];
    int widest = 0;
    if (device_is_latent(dev))
        return max_int(a->heads * (a->nope_dim + a->rope_dim), max_int(a->head_dim, a->q_lora));
    for (int i = 0; i < dev->model.num_attn; i++)
        widest = max_int(widest, spec_qkv_size(&a[i]));
    return widest;
}

// Elements of `wide`: results of cuBLASLt that need finishing, and gate and up where no kernel fuses them.
static size_t wide_elements(const struct device *dev) {
    size_t T = (size_t)(dev->max_tokens + CUBLAS_ROWS), up = 2 * (size_t)round_up(dev->max_ffn, 8);
    bool bf16 = dev->act_dtypes[2] == 1u << ACT_DTYPE_BF16 && !(dev->layouts & 1u << LAYOUT_F16);
    bool apart = any_split_gate_up(dev) || any_layer_of(&dev->model).sparse || dev->limits.max_adapters > 0;
    size_t all = apart ? cuda_both_offset(dev) + T * up : dev->cublas ? T * up / (bf16 ? 2 : 1) : 0;
    int stream = max_int(dev->model.hidden, dev->model.laurel_rank);
    size_t row = (size_t)max_int(stream, max_int(widest_projection(dev), cuda_mix_widest(dev))),
           own = (size_t)dev->model.num_layers * (size_t)dev->model.layer_embed;
    row = row > own ? row : own;
    return dev->cublas && all < T * row ? T * row : all;
}

// Elements of the cosines, or sines, of a rotation.
static size_t rope_elements(const struct device *dev, int rope) {
    return (size_t)dev->limits.max_context * (size_t)(dev->model.ropes[rope].dim / 2);
}

static void alloc_activations(struct device *dev, struct cuda_arena *a) {
    int T = dev->max_tokens, D = dev->model.hidden;
    struct any_layer any = any_layer_of(&dev->model);
    size_t rows = (size_t)T;
    dev->resid = arena_alloc(a, rows * (size_t)D, sizeof(float));
    if (model_scale(dev->model.residual_scale) != 1 || dev->model.post_norms || dev->model.layer_embed > 0 ||
        dev->model.layer_scale || dev->model.block == BLOCK_SUM_NORM || any.own_norms)
        dev->added = arena_alloc(a, rows * (size_t)D, sizeof(float));
    if (device_is_latent(dev))
        cuda_latent_alloc(dev, a);
    else
        dev->qkv = arena_alloc(a, (rows + CUBLAS_ROWS) * (size_t)widest_projection(dev), sizeof(float));
    dev->q = arena_alloc(a, rows * (size_t)dev->max_q, dtype_row_bytes(cuda_query_dtype(dev->kv_dtype), 1));
    if (any.whole_norm)
        dev->whole_norms = arena_alloc(a, rows * 4, sizeof(float));
    cuda_activation_alloc(a, &dev->hidden, T, D, dev->act_dtypes[0]);
    unsigned attn_dtypes = dev->act_dtypes[1];
    if (any.gate) {
        dev->gate = arena_alloc(a, rows * (size_t)dev->max_q, sizeof(float));
        attn_dtypes |= 1u << ACT_DTYPE_F32; // rounded once, behind the gate
    }
    cuda_activation_alloc(a, &dev->attn, T,
                          device_is_latent(dev) ? attn_out_size(&dev->model.attn[0]) : dev->max_q,
                          attn_dtypes);
    cuda_activation_alloc(a, &dev->ffn, T, dev->max_ffn, dev->act_dtypes[2]);
    cuda_activation_alloc(a, &dev->last, dev->head_rows, D, dev->act_dtypes[0]);
    if (dev->limits.keep_hidden)
        dev->last_hidden = arena_alloc(a, (size_t)dev->head_rows * (size_t)D, sizeof(float));
    dev->wide = arena_alloc(a, wide_elements(dev), sizeof(float));
    cuda_experts_alloc(dev, a);
    cuda_mix_alloc(dev, a);
    cuda_altup_alloc(dev, a);
    cuda_lora_alloc(dev, a);
    int P = dev->model.layer_embed;
    if (P > 0) {
        dev->own.embed = arena_alloc(a, rows * (size_t)(dev->model.num_layers * P), sizeof(float));
        dev->own.gate = arena_alloc(a, rows * (size_t)round_up(P, 8), sizeof(float));
        cuda_activation_alloc(a, &dev->own.h, T, P, dev->act_dtypes[8]);
    }
    int blocks = 2 * dev->info.num_sms; // so that every SM has one or two
    dev->parts = (struct cuda_parts){.sums = arena_alloc(a, (size_t)blocks * CUDA_PART, sizeof(float)),
                                     .arrived = arena_alloc(a, (size_t)blocks, sizeof(uint32_t)),
                                     .max_blocks = blocks,
                                     .shared_max = dev->info.shared_max,
                                     .wgmma = cuda_takes_wgmma(dev->rt)};
    if (dev->cublas)
        dev->dequantised = arena_alloc(a, dev->largest_quantised, sizeof(uint16_t));
    if (dev->cublas && dev->widest_e4m3 > 0) {
        size_t most = (size_t)round_up(T, CUBLAS_ROWS);
        dev->quantised = arena_alloc(a, most * (size_t)dev->widest_e4m3, 1);
        dev->quantised_scale = arena_alloc(a, most * (size_t)((dev->widest_e4m3 + 127) / 128), sizeof(float));
    }
    size_t heads = 0, queries = 0; // the most of a spec with splits
    for (int i = 0; i < dev->model.num_attn; i++)
        if (dev->fast[i]) {
            const struct attn_spec *s = &dev->model.attn[i];
            heads = (size_t)max_int((int)heads, s->heads);
            queries = (size_t)max_int((int)queries, spec_q_size(s));
        }
    if (heads > 0) {
        dev->partial = arena_alloc(a, (size_t)dev->max_splits * queries, sizeof(float));
        dev->stats = arena_alloc(a, (size_t)dev->max_splits * 2 * heads, sizeof(float));
        dev->arrived = arena_alloc(a, (size_t)dev->max_splits * heads, sizeof(uint32_t));
    }
}

// Bytes of struct cuda_result's first arrays, in one piece.
static size_t results_bytes(const struct device *dev) {
    size_t row = 4 * sizeof(int32_t) + sizeof(uint8_t);
    return (size_t)dev->max_rows * row + sizeof(struct expert_counts);
}

// Elements of the embeddings that rows bring, each with the number of its row.
static size_t own_embed_elements(const struct device *dev) {
    size_t size = (size_t)dev->limits.embed_size;
    return size > 0 ? (size_t)dev->limits.max_tokens * (size + 1) : 0;
}

static void alloc_arena(struct device *dev, struct cuda_arena *a) {
    int R = dev->max_rows;
    alloc_activations(dev, a);
    for (int i = 0; i < dev->model.num_ropes; i++) {
        dev->ropes[i].cos = arena_alloc(a, rope_elements(dev, i), sizeof(float));
        dev->ropes[i].sin = arena_alloc(a, rope_elements(dev, i), sizeof(float));
    }
    for (int i = 0; i < dev->model.num_attn; i++)
        if (dev->model.attn[i].temp_scale > 0)
            dev->temperatures[i] = arena_alloc(a, (size_t)dev->limits.max_context, sizeof(float));
    size_t rows = (size_t)dev->head_rows, head = rows * (size_t)dev->logits_ld,
           groups = rows * (size_t)dev->num_maxima;
    dev->logits = arena_alloc(a, head, sizeof(float));
    dev->adjusted = arena_alloc(a, head, sizeof(float));
    dev->max = arena_alloc(a, groups, sizeof(float));
    dev->adjusted_max = arena_alloc(a, groups, sizeof(float));
    dev->sums = arena_alloc(a, 2 * groups, sizeof(float));
    if (dev->model.vocab >= CUDA_SAMPLE_VOCAB)
        dev->sample_parts =
            arena_alloc(a, rows * CUDA_SAMPLE_SLICES * CUDA_SAMPLE_PART, sizeof *dev->sample_parts);
    dev->topk = arena_alloc(a, rows, sizeof *dev->topk);
    if (dev->peers.world > 1)
        cuda_peers_alloc(dev, a);
    void *inputs = arena_alloc(a, work_inputs(&dev->work_config, &dev->inputs, NULL), 1);
    work_inputs(&dev->work_config, &dev->inputs, inputs);
    dev->staging = arena_alloc(a, dev->upload_bytes, 1);
    dev->inputs.upload = dev->staging;
    if (own_embed_elements(dev) > 0)
        dev->own_embeds.device = arena_alloc(a, own_embed_elements(dev), sizeof(float));
    // In one piece, so that the first six come back in one copy.
    dev->ids = arena_alloc(a, results_bytes(dev), 1);
    dev->logprob = dev->ids ? (float *)(void *)(dev->ids + R) : NULL;
    dev->rank = dev->ids ? dev->ids + 2 * R : NULL;
    dev->share = dev->ids ? (float *)(void *)(dev->ids + 3 * R) : NULL;
    dev->counts = dev->ids ? (struct expert_counts *)(void *)(dev->ids + 4 * R) : NULL;
    dev->failed = dev->ids ? (uint8_t *)(dev->counts + 1) : NULL;
    dev->top_ids = arena_alloc(a, (size_t)R * MAX_TOP_LOGPROBS, sizeof(int32_t));
    dev->top_logprobs = arena_alloc(a, (size_t)R * MAX_TOP_LOGPROBS, sizeof(float));
}

// Bytes of all that alloc_host() and fill_rope() take.
static size_t host_bytes(struct device *dev) {
    size_t R = (size_t)dev->max_rows, V = (size_t)dev->model.vocab, D = (size_t)dev->model.hidden, rope = 0;
    size_t row = 2 * MAX_TOP_LOGPROBS * sizeof(int32_t) + (dev->limits.keep_logits ? V * sizeof(float) : 0) +
                 (dev->limits.keep_hidden ? D * sizeof(float) : 0);
    for (int i = 0; i < dev->model.num_ropes; i++)
        rope = rope_elements(dev, i) > rope ? rope_elements(dev, i) : rope;
    return (size_t)dev->limits.num_host_pages * cuda_kv_block_bytes(dev) +
           2 * (dev->upload_bytes + results_bytes(dev) + R * row + own_embed_elements(dev) * sizeof(float)) +
           2 * rope * sizeof(float) + V * sizeof *dev->seen;
}

static bool alloc_host(struct device *dev) {
    size_t R = (size_t)dev->max_rows, V = (size_t)dev->model.vocab, D = (size_t)dev->model.hidden;
    bool ok = (dev->seen = calloc(V, sizeof *dev->seen)) != NULL;
    for (int i = 0; i < 2; i++) {
        struct cuda_result *r = &dev->result[i];
        ok &= (dev->upload[i] = rt_alloc_host(dev->rt, dev->upload_bytes)) != NULL;
        if (own_embed_elements(dev) > 0)
            ok &= (dev->own_embeds.host[i] =
                       rt_alloc_host(dev->rt, own_embed_elements(dev) * sizeof(float))) != NULL;
        ok &= (r->ids = rt_alloc_host(dev->rt, results_bytes(dev))) != NULL;
        ok &= (r->top_ids = rt_alloc_host(dev->rt, R * MAX_TOP_LOGPROBS * sizeof *r->top_ids)) != NULL;
        ok &= (r->top_logprobs = rt_alloc_host(dev->rt, R * MAX_TOP_LOGPROBS * sizeof *r->top_logprobs)) !=
              NULL;
        if (dev->limits.keep_logits)
            ok &= (r->logits = rt_alloc_host(dev->rt, R * V * sizeof(float))) != NULL;
        if (dev->limits.keep_hidden)
            ok &= (r->hidden = rt_alloc_host(dev->rt, R * D * sizeof(float))) != NULL;
        if (!ok)
            return false;
        r->logprob = (float *)(void *)(r->ids + R);
        r->rank = r->ids + 2 * R;
        r->share = (float *)(void *)(r->ids + 3 * R);
        r->counts = (struct expert_counts *)(void *)(r->ids + 4 * R);
        r->failed = (uint8_t *)(r->counts + 1);
    }
    return true;
}

static bool alloc_host_pages(struct device *dev) {
    size_t n = (size_t)dev->limits.num_host_pages;
    return n == 0 || (dev->host_pages = rt_alloc_host(dev->rt, n * cuda_kv_block_bytes(dev))) != NULL;
}

// A rotation's table, for all positions that are served, at once: graphs hold its place, and a step waits for
// no upload.
static bool fill_rope(struct device *dev, int rope) {
    const struct rope_config *r = &dev->model.ropes[rope];
    size_t pairs = (size_t)r->dim / 2, n = rope_elements(dev, rope);
    float *table = malloc((2 * n + 1) * sizeof *table);
    if (!table)
        return false;
    double magnitude = rope_magnitude(r);
    for (size_t i = 0; i < pairs; i++) {
        double frequency = rope_frequency(r, (int)i);
        for (int p = 0; p < dev->limits.max_context; p++) {
            table[(size_t)p * pairs + i] = (float)(cos(p * frequency) * magnitude);
            table[n + (size_t)p * pairs + i] = (float)(sin(p * frequency) * magnitude);
        }
    }
    rt_upload_now(dev->rt, dev->ropes[rope].cos, table, n * sizeof *table);
    rt_upload_now(dev->rt, dev->ropes[rope].sin, table + n, n * sizeof *table);
    free(table);
    return true;
}

static bool fill_temperatures(struct device *dev, int spec) {
    size_t n = (size_t)dev->limits.max_context;
    float *table = malloc(n * sizeof *table);
    for (size_t p = 0; table && p < n; p++)
        table[p] = attn_temperature(&dev->model.attn[spec], (int)p);
    if (table)
        rt_upload_now(dev->rt, dev->temperatures[spec], table, n * sizeof *table);
    free(table);
    return table != NULL;
}

static bool fill_tables(struct device *dev) {
    for (int i = 0; i < dev->model.num_ropes; i++)
        if (!fill_rope(dev, i))
            return false;
    for (int i = 0; i < dev->model.num_attn; i++)
        if (dev->temperatures[i] && !fill_temperatures(dev, i))
            return false;
    return true;
}

static enum status no_memory(struct device *dev, size_t workspace, size_t cache, struct err *err) {
    struct rt_info now;
    rt_describe(dev->rt, &now);
    if (rt_failed(dev->rt)) // it gives no memory either
        return rt_wait(dev->rt, 0, err);
    return err_set(
        err, STATUS_NOMEM,
        "no device memory for a workspace of %zu MiB and a KV cache of %zu MiB: %zu of %zu MiB are free; "
        "lower --gpu-memory-utilization, --num-kv-blocks or --max-num-batched-tokens",
        workspace >> 20, cache >> 20, now.free >> 20, now.total >> 20);
}

// The most splits of decode attention in one launch: all sequences at full length, but no more than 4,096, or 1,024 of latent
// attention with its larger partials, unless one sequence needs them.
static int find_max_splits(const struct device *dev) {
    int splits = (dev->limits.max_context + CUDA_SPLIT - 1) / CUDA_SPLIT;
    long long all = (long long)dev->limits.max_seqs * splits;
    int most = device_is_latent(dev) ? 1024 : 4096;
    return max_int(splits, (int)(all < most ? all : most));
}

int cuda_tile_rows(const struct device *dev) {
    int least = CUDA_WIDE_TILE;
    for (int i = 0; i < dev->model.num_attn; i++) {
        struct cuda_kv kv = cuda_kv_of(dev, &dev->model.attn[i], 0);
        int rows = cuda_prefill_rows(dev->rt, &kv);
        least = rows < least ? rows : least;
    }
    return least;
}

static struct work_config make_work_config(const struct device *dev) {
    const struct model_config *m = &dev->model;
    struct work_config c = {.block_size = dev->block_size,
                            .vocab = m->vocab,
                            .num_groups = m->num_groups,
                            .num_attn = m->num_attn,
                            .exact = dev->exact,
                            .max_splits = dev->max_splits,
                            .tile_rows = cuda_tile_rows(dev),
                            .limits = dev->limits,
                            .adapters = dev->adapters};
    for (int i = 0; i < m->num_attn; i++) {
        const struct attn_spec *attn = &m->attn[i];
        int window = attn->bidirectional && attn->window > 0 ? attn->window / 2 + 1 : attn->window;
        c.attn[i] =
            (struct work_attn_config){attn->heads / attn->kv_heads, window, attn->chunked, dev->fast[i]};
    }
    for (int g = 0; g < m->num_groups; g++)
        c.page_scale[g] = cuda_kv_page_scale(dev, g);
    return c;
}

// Keys, values, and scales behind them.
static bool alloc_cache(struct device *dev, size_t bytes) {
    if (!(dev->keys = rt_alloc(dev->rt, bytes + CACHE_SLACK)))
        return false;
    if (dev->kv_dtype == DTYPE_I8) {
        size_t all = (size_t)dev->limits.num_blocks * (size_t)cuda_kv_page_arrays(dev) *
                     (size_t)(dev->block_size * model_kv_size(&dev->model));
        dev->scales = (float *)(void *)(dev->keys + (all + CACHE_ALIGN - 1) / CACHE_ALIGN * CACHE_ALIGN);
    }
    return true;
}

// Whether prompts would go through cuBLASLt, if it is there.
static bool wants_cublas(const struct device *dev) {
    return dev->limits.max_tokens > CUDA_TOKENS && !dev->exact;
}

// Settles all sizes that follow from the limits. Returns the bytes of the arena.
static size_t set_limits(struct device *dev, const struct step_limits *limits) {
    const struct attn_spec *attn = dev->model.attn;
    dev->limits = *limits;
    dev->cublas = wants_cublas(dev) && !dev->info.no_matmul[0];
    dev->head_rows = work_head_rows(limits);
    dev->max_tokens = max_int(limits->max_tokens, dev->head_rows);
    dev->max_rows = max_int(limits->max_rows, dev->head_rows);
    dev->logits_ld = round_up(dev->model.vocab, CUDA_GROUP);
    dev->num_maxima = dev->logits_ld / CUDA_GROUP;
    for (int i = 0; i < dev->model.num_attn; i++) {
        struct cuda_kv kv = cuda_kv_of(dev, &attn[i], 0);
        dev->fast[i] =
            device_is_latent(dev) ? cuda_latent_fast(&kv, attn[i].kv_lora) : cuda_attention_fast(&kv);
    }
    dev->max_splits = find_max_splits(dev);
    dev->work_config = make_work_config(dev);
    dev->upload_bytes = work_max_bytes(&dev->work_config);
    struct cuda_arena arena = {NULL, 0};
    alloc_arena(dev, &arena);
    return arena.used;
}

size_t cuda_workspace_bytes(struct device *dev, const struct step_limits *limits) {
    CHECK(!dev->arena);
    return set_limits(dev, limits) + CACHE_SLACK;
}

static void warn_no_cublas(const struct device *dev) {
    char text[sizeof dev->info.no_matmul + 64];
    if (!wants_cublas(dev) || dev->cublas || dev->peers.rank > 0 || !dev->host)
        return;
    snprintf(text, sizeof text, "long prompts go without cuBLASLt, slower: %s", dev->info.no_matmul);
    dev->host->log(LOG_WARN, text);
}

enum status cuda_reserve(struct device *dev, const struct step_limits *limits, struct err *err) {
    CHECK(!dev->arena);
    CHECK(limits->max_tokens > 0 && limits->max_rows > 0 && limits->max_context > 0 &&
          limits->num_blocks > 0);
    if (limits->max_tokens > 65535)
        return err_set(err, STATUS_INVALID, "--max-num-batched-tokens may be at most 65535 on cuda");
    if (limits->max_adapters > 0 &&
        !(dev->adapters = calloc((size_t)limits->max_adapters, sizeof *dev->adapters)))
        return err_set(err, STATUS_NOMEM, "out of memory");
    cuda_loading_free(dev);
    size_t workspace = set_limits(dev, limits);
    warn_no_cublas(dev);
    size_t cache = (size_t)limits->num_blocks * cuda_kv_block_bytes(dev);
    dev->arena = dev->peers.processes ? rt_alloc_shared(dev->rt, workspace) : rt_alloc(dev->rt, workspace);
    if (!alloc_cache(dev, cache) || !dev->arena)
        return no_memory(dev, workspace, cache, err);
    struct cuda_arena arena = {dev->arena, 0};
    alloc_arena(dev, &arena);
    bool filled = alloc_host(dev) && alloc_host_pages(dev) && fill_tables(dev) &&
                  (!device_is_latent(dev) || cuda_latent_fill(dev));
    if (rt_failed(dev->rt))
        return rt_wait(dev->rt, 0, err);
    if (!filled)
        return err_set(err, STATUS_NOMEM,
                       "no host memory that the device can copy from for a workspace of %zu MiB; lower "
                       "--max-num-batched-tokens, --max-num-seqs or --max-model-len",
                       (host_bytes(dev) + (1 << 20) - 1) >> 20);
    return STATUS_OK;
}
