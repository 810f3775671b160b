#include "settings.h"

#include "log.h"
#include "ranks/process_group.h"

#include <stdio.h>
#include <string.h>

enum status settings_kv_dtype(const char *name, enum dtype weights, enum dtype *dtype, bool *either,
                              struct err *err) {
    bool automatic = !name || strcmp(name, "auto") == 0;
    *either = automatic && (weights == DTYPE_BF16 || weights == DTYPE_FP8);
    if (automatic)
        *dtype = weights == DTYPE_F32 ? DTYPE_F32 : DTYPE_F16;
    else if (strcmp(name, "f32") == 0)
        *dtype = DTYPE_F32;
    else if (strcmp(name, "f16") == 0)
        *dtype = DTYPE_F16;
    else if (strcmp(name, "bf16") == 0)
        *dtype = DTYPE_BF16;
    else if (strcmp(name, "int8") == 0)
        *dtype = DTYPE_I8;
    else if (strcmp(name, "fp8") == 0 || strcmp(name, "fp8_e4m3") == 0)
        *dtype = DTYPE_F8_E4M3;
    else
        return err_set(err, STATUS_INVALID,
                       "unknown KV cache dtype '%s'; known: auto, f32, f16, bf16, int8, fp8", name);
    return STATUS_OK;
}

enum status settings_dtype(const char *name, enum dtype *dtype, struct err *err) {
    static const struct {
        const char *name;
        enum dtype dtype;
    } names[] = {{"auto", DTYPE_COUNT}, {"float32", DTYPE_F32},   {"float", DTYPE_F32},
                 {"f32", DTYPE_F32},    {"float16", DTYPE_F16},   {"half", DTYPE_F16},
                 {"f16", DTYPE_F16},    {"bfloat16", DTYPE_BF16}, {"bf16", DTYPE_BF16}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!name || strcmp(name, names[i].name) == 0) {
            *dtype = names[i].dtype;
            return STATUS_OK;
        }
    return err_set(err, STATUS_INVALID, "unknown dtype '%s'; known: auto, float32, float16, bfloat16", name);
}

enum status settings_pooling(const char *name, struct model_config *model, struct err *err) {
    if (!name || strcmp(name, "auto") == 0)
        return STATUS_OK;
    for (int i = 0; i < NUM_POOLINGS; i++)
        if (strcmp(name, pooling_name((enum pooling)i)) == 0) {
            model->is_reranker = i == POOLING_RANK;
            model->pooling = model->is_reranker ? model->rank_pooling : (enum pooling)i;
            return i > 0 || !model_is_bidirectional(model)
                       ? STATUS_OK
                       : err_set(err, STATUS_INVALID,
                                 "the model is an encoder: it gives embeddings and generates no text");
        }
    return err_set(err, STATUS_INVALID, "unknown pooling '%s'; known: auto, none, mean, cls, last, rank",
                   name);
}

enum status settings_embeds(bool wanted, const struct model_config *model, int *embed_size, struct err *err) {
    *embed_size = wanted ? model->hidden : 0;
    if (!wanted || model->layer_embed == 0)
        return STATUS_OK;
    return err_set(err, STATUS_INVALID,
                   "requests cannot bring embeddings: each layer of the model also takes an embedding by the "
                   "token's id");
}

void settings_batch(struct engine_config *c, bool gpu, bool encoder, int *max_model_len) {
    enum { MAX_TEXT = 8192 }; // of an encoder, if no length of texts is configured
    int seqs = gpu ? 256 : 64, tokens = gpu ? 2048 : 512;
    bool asked = c->max_num_batched_tokens > 0;
    if (!asked)
        c->max_num_batched_tokens = tokens > c->max_num_seqs ? tokens : c->max_num_seqs;
    if (c->max_num_seqs == 0)
        c->max_num_seqs = seqs < c->max_num_batched_tokens ? seqs : c->max_num_batched_tokens;
    if (!encoder)
        return;
    c->prefix_caching = false;
    int longest = c->max_model_len == 0 && *max_model_len > MAX_TEXT ? MAX_TEXT : *max_model_len;
    if (!asked && c->max_num_batched_tokens < longest)
        c->max_num_batched_tokens = longest;
    if (*max_model_len <= c->max_num_batched_tokens)
        return;
    *max_model_len = c->max_num_batched_tokens;
    log_msg(LOG_WARN, "max_model_len lowered to %d, the --max-num-batched-tokens of an encoder",
            *max_model_len);
}

// ---- several processes

static void set_int(struct setting *s, const char *name, int64_t value) {
    *s = (struct setting){.name = name};
    snprintf(s->value, sizeof s->value, "%lld", (long long)value);
}

static void set_text(struct setting *s, const char *name, const char *value) {
    *s = (struct setting){.name = name};
    snprintf(s->value, sizeof s->value, "%s", value);
}

enum status settings_compare_flags(struct processes *p, const struct engine_config *c, struct err *err) {
    struct setting s[MAX_SETTINGS];
    int n = 0;
    if (!p)
        return STATUS_OK;
    set_int(&s[n++], "--tensor-parallel-size", c->tensor_parallel_size);
    set_int(&s[n++], "--pipeline-parallel-size", c->pipeline_parallel_size);
    set_int(&s[n++], "--block-size", c->block_size);
    set_int(&s[n++], "--max-model-len", c->max_model_len);
    set_int(&s[n++], "--max-num-seqs", c->max_num_seqs);
    set_int(&s[n++], "--max-num-batched-tokens", c->max_num_batched_tokens);
    set_int(&s[n++], "--num-kv-blocks", c->num_kv_blocks);
    set_int(&s[n++], "--kv-cache-memory", c->kv_cache_bytes);
    set_int(&s[n++], "--exact", c->exact);
    set_int(&s[n++], "--no-batch-invariant", c->no_batch_invariant);
    set_int(&s[n++], "logits", c->keep_logits);
    set_int(&s[n++], "prompt embeddings", c->prompt_embeds);
    set_text(&s[n++], "--device", c->device ? c->device : "auto");
    set_text(&s[n++], "--dtype", c->dtype ? c->dtype : "auto");
    set_text(&s[n++], "--pooling", c->pooling ? c->pooling : "auto");
    set_text(&s[n++], "--kv-cache-dtype", c->kv_dtype ? c->kv_dtype : "auto");
    return processes_check_settings(p, s, n, err);
}

enum status settings_compare_model(struct processes *p, const struct model_settings *m, struct err *err) {
    struct setting s[4];
    if (!p)
        return STATUS_OK;
    set_text(&s[0], "the device", m->device);
    set_int(&s[1], "a model file of bytes", (int64_t)m->file_bytes);
    set_text(&s[2], "a model file with hash", m->hash);
    set_int(&s[3], "device numerics", (int64_t)m->numerics);
    return processes_check_settings(p, s, 4, err);
}

int settings_block_size(const struct model_config *m, enum dtype kv_dtype) {
    int64_t token = 2 * (int64_t)m->kv_layers * (int64_t)backend_kv_place_bytes(m, kv_dtype);
    int64_t states = m->state_layers * model_state_size(m) * (int64_t)sizeof(float);
    int64_t size = token > 0 ? (states / token + 15) / 16 * 16 : INT32_MAX; // 0: no layer attends
    return (int)(size < 16 ? 16 : size < 512 ? size : 512);
}
