// All memory of the CUDA backend but weights: one arena on the device, the cache, buffers on the host; made
// once.
#include "device.h"

#include "log.h"
#include "request.h"
#include "rope.h"

#include <math.h>
#include <stdlib.h>

static int max_int(int a, int b) { return a > b ? a : b; }

void *cuda_carve(struct carver *c, size_t n, size_t size) {
    void *p = c->base ? c->base + c->used : NULL;
    c->used += (n * size + 255) / 256 * 256;
    return p;
}

static void carve_activation(struct carver *c, struct activation *x, int rows, int n, unsigned forms) {
    x->n = n;
    x->ld = round_up(n, 256); // whole steps of every format
    size_t all = (size_t)rows * (size_t)x->ld;
    bool f16 = forms & 1u << FORM_F16;
    x->data[FORM_F32] = f16 || forms & 1u << FORM_F32 ? cuda_carve(c, all, 4) : NULL;
    x->data[FORM_BF16] = forms & 1u << FORM_BF16 ? cuda_carve(c, all, 2) : NULL;
    x->data[FORM_F16] = f16 ? cuda_carve(c, all, 2) : NULL;
    x->scale = f16 ? cuda_carve(c, (size_t)rows, 4) : NULL;
}

static bool any_split_gate_up(const struct device *dev) {
    for (const struct weight *w = dev->weights; w; w = w->next)
        if (w->role == WEIGHT_GATE_UP && !w->interleaved)
            return true;
    return false;
}

// Elements of `wide`: results of the library that need finishing, and gate and up where no kernel fuses them.
static size_t wide_elements(const struct device *dev) {
    size_t T = (size_t)dev->max_tokens, up = 2 * (size_t)round_up(dev->model.ffn, 8);
    bool library = dev->limits.max_tokens > CUDA_TOKENS && !dev->exact;
    size_t all = library || any_split_gate_up(dev) ? cuda_both_offset(dev) + T * up : 0;
    size_t row = (size_t)max_int(dev->model.hidden, device_q_size(dev) + 2 * device_kv_size(dev));
    return library && all < T * row ? T * row : all;
}

static void carve_workspace(struct device *dev, struct carver *c) {
    const struct model_config *m = &dev->model;
    int T = dev->max_tokens, R = dev->max_rows;
    int q = device_q_size(dev), kv = device_kv_size(dev);
    size_t rows = (size_t)T, pairs = (size_t)m->rope.dim / 2, context = (size_t)dev->limits.max_context;
    dev->resid = cuda_carve(c, rows * (size_t)m->hidden, sizeof(float));
    dev->qkv = cuda_carve(c, rows * (size_t)(q + 2 * kv), sizeof(float));
    dev->q = cuda_carve(c, rows * (size_t)q, dtype_row_bytes(cuda_query_dtype(dev->kv_dtype), 1));
    carve_activation(c, &dev->hidden, T, m->hidden, dev->forms[0]);
    carve_activation(c, &dev->attn, T, q, dev->forms[1]);
    carve_activation(c, &dev->ffn, T, m->ffn, dev->forms[2]);
    carve_activation(c, &dev->last, CUDA_HEAD_ROWS, m->hidden, dev->forms[0]);
    dev->wide = cuda_carve(c, wide_elements(dev), sizeof(float));
    if (dev->limits.max_tokens > CUDA_TOKENS && !dev->exact)
        dev->dequantised = cuda_carve(c, dev->largest_quantised, sizeof(uint16_t));
    dev->rope_cos = cuda_carve(c, context * pairs, sizeof(float));
    dev->rope_sin = cuda_carve(c, context * pairs, sizeof(float));
    if (dev->fast)
        dev->partial =
            cuda_carve(c, (size_t)dev->max_items * (size_t)m->num_heads * (size_t)(m->head_dim + 2), 4);
    size_t head = CUDA_HEAD_ROWS * (size_t)dev->logits_ld, groups = CUDA_HEAD_ROWS * (size_t)dev->num_groups;
    dev->logits = cuda_carve(c, head, sizeof(float));
    dev->edited = cuda_carve(c, head, sizeof(float));
    dev->max = cuda_carve(c, groups, sizeof(float));
    dev->edited_max = cuda_carve(c, groups, sizeof(float));
    dev->sums = cuda_carve(c, 2 * groups, sizeof(float));
    if (dev->group.world > 1)
        cuda_group_carve(dev, c);
    void *inputs = cuda_carve(c, plan_inputs(&dev->plan_config, &dev->inputs, NULL), 1);
    plan_inputs(&dev->plan_config, &dev->inputs, inputs);
    dev->staging = cuda_carve(c, dev->upload_bytes, 1);
    dev->inputs.upload = dev->staging;
    // In one piece, so that the first three come back in one copy.
    dev->ids = cuda_carve(c, (size_t)R * 3, sizeof(int32_t));
    dev->logprob = dev->ids ? (float *)(void *)(dev->ids + R) : NULL;
    dev->failed = dev->ids ? (uint8_t *)(dev->ids + 2 * R) : NULL;
    dev->top_ids = cuda_carve(c, (size_t)R * MAX_TOP_LOGPROBS, sizeof(int32_t));
    dev->top_logprobs = cuda_carve(c, (size_t)R * MAX_TOP_LOGPROBS, sizeof(float));
}

// Of all that alloc_host() and fill_rope() take.
static size_t host_bytes(const struct device *dev) {
    size_t R = (size_t)dev->max_rows, V = (size_t)dev->model.vocab;
    size_t row =
        (3 + 2 * MAX_TOP_LOGPROBS) * sizeof(int32_t) + (dev->limits.keep_logits ? V * sizeof(float) : 0);
    size_t rope = (size_t)dev->limits.max_context * (size_t)dev->model.rope.dim * sizeof(float);
    return 2 * (dev->upload_bytes + R * row) + rope + V * sizeof *dev->seen;
}

static bool alloc_host(struct device *dev) {
    size_t R = (size_t)dev->max_rows;
    bool ok = (dev->seen = calloc((size_t)dev->model.vocab, sizeof *dev->seen)) != NULL;
    for (int i = 0; i < 2; i++) {
        struct result *r = &dev->result[i];
        ok &= (dev->upload[i] = rt_alloc_host(dev->rt, dev->upload_bytes)) != NULL;
        ok &= (r->ids = rt_alloc_host(dev->rt, R * 3 * sizeof *r->ids)) != NULL;
        ok &= (r->top_ids = rt_alloc_host(dev->rt, R * MAX_TOP_LOGPROBS * sizeof *r->top_ids)) != NULL;
        ok &= (r->top_logprobs = rt_alloc_host(dev->rt, R * MAX_TOP_LOGPROBS * sizeof *r->top_logprobs)) !=
              NULL;
        if (dev->limits.keep_logits)
            ok &= (r->logits = rt_alloc_host(dev->rt, R * (size_t)dev->model.vocab * sizeof(float))) != NULL;
        if (!ok)
            return false;
        r->logprob = (float *)(void *)(r->ids + R);
        r->failed = (uint8_t *)(r->ids + 2 * R);
    }
    return true;
}

static bool fill_rope(struct device *dev) {
    const struct rope_config *r = &dev->model.rope;
    size_t pairs = (size_t)r->dim / 2, n = (size_t)dev->limits.max_context * pairs;
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
    rt_upload_now(dev->rt, dev->rope_cos, table, n * sizeof *table);
    rt_upload_now(dev->rt, dev->rope_sin, table + n, n * sizeof *table);
    free(table);
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

// The most items of decode attention in one launch: all sequences at full length, but no more than 4,096
// unless one sequence needs them.
static int find_max_items(const struct device *dev) {
    int chunks = (dev->limits.max_context + CUDA_CHUNK - 1) / CUDA_CHUNK;
    long long all = (long long)dev->limits.max_seqs * chunks;
    return max_int(chunks, (int)(all < 4096 ? all : 4096));
}

enum status cuda_reserve(struct device *dev, const struct step_limits *limits, struct workspace *ws,
                         struct err *err) {
    CHECK(!dev->arena);
    CHECK(limits->max_tokens > 0 && limits->max_rows > 0 && limits->max_context > 0 &&
          limits->num_blocks > 0);
    if (limits->max_tokens > 65535)
        return err_set(err, STATUS_INVALID, "--max-num-batched-tokens may be at most 65535 on cuda");
    int group = dev->model.num_heads / dev->model.num_kv_heads;
    dev->limits = *limits;
    dev->max_tokens = max_int(limits->max_tokens, CUDA_TOKENS);
    dev->max_rows = max_int(limits->max_rows, CUDA_TOKENS);
    dev->logits_ld = round_up(dev->model.vocab, CUDA_GROUP);
    dev->num_groups = dev->logits_ld / CUDA_GROUP;
    struct cuda_kv kv = cuda_layer_kv(dev, 0);
    dev->fast = cuda_attention_fast(&kv, group);
    dev->max_items = find_max_items(dev);
    dev->plan_config = (struct plan_config){.block_size = dev->block_size,
                                            .group = group,
                                            .window = dev->model.window,
                                            .vocab = dev->model.vocab,
                                            .items = dev->fast,
                                            .exact = dev->exact,
                                            .max_items = dev->max_items,
                                            .tile_rows = cuda_prefill_rows(dev->rt, &kv),
                                            .limits = *limits};
    dev->upload_bytes = plan_max_bytes(&dev->plan_config);
    struct carver carver = {NULL, 0};
    carve_workspace(dev, &carver);
    size_t workspace = carver.used, cache = (size_t)limits->num_blocks * cuda_kv_block_bytes(dev);
    dev->arena = rt_alloc(dev->rt, workspace);
    dev->keys = rt_alloc(dev->rt, cache + 256); // scales begin at a multiple of 256
    if (!dev->arena || !dev->keys)
        return no_memory(dev, workspace, cache, err);
    size_t numbers = (size_t)dev->model.num_layers * cuda_kv_layer_bytes(dev);
    dev->values = dev->keys + numbers;
    if (dev->kv_dtype == DTYPE_I8) {
        dev->key_scales = (float *)(void *)(dev->keys + (2 * numbers + 255) / 256 * 256);
        dev->value_scales = dev->key_scales + (size_t)dev->model.num_layers * cuda_kv_layer_vectors(dev);
    }
    carver = (struct carver){dev->arena, 0};
    carve_workspace(dev, &carver);
    bool filled = alloc_host(dev) && fill_rope(dev);
    if (rt_failed(dev->rt))
        return rt_wait(dev->rt, 0, err);
    if (!filled)
        return err_set(err, STATUS_NOMEM,
                       "no host memory that the device can copy from for a workspace of %zu MiB; lower "
                       "--max-num-batched-tokens, --max-num-seqs or --max-model-len",
                       (host_bytes(dev) + (1 << 20) - 1) >> 20);
    dev->ws = (struct workspace){dev->resid, dev->q, dev};
    *ws = dev->ws;
    return STATUS_OK;
}
