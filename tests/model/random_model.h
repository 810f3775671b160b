// Writes a GGUF model of random weights in given types, large enough that every matrix is shared out among
// threads.
#pragma once

#include "../ops/fixture.h"
#include "../tools/gguf_write.h"

#include <unistd.h>

enum { RANDOM_VOCAB = 512, RANDOM_LAYERS = 2, RANDOM_EXPERTS = 8 };

struct random_model {
    const char *name;
    enum dtype matrices[DTYPE_COUNT]; // taken in turn by the matrices of the file
    int num_types;
    bool tied;
};

static inline uint32_t ggml_type(enum dtype t) {
    static const uint32_t numbers[] = {
        [DTYPE_F32] = 0,   [DTYPE_F16] = 1,     [DTYPE_BF16] = 30,   [DTYPE_Q8_0] = 8,
        [DTYPE_Q4_0] = 2,  [DTYPE_Q4_K] = 12,   [DTYPE_Q5_K] = 13,   [DTYPE_Q6_K] = 14,
        [DTYPE_Q4_1] = 3,  [DTYPE_Q5_0] = 6,    [DTYPE_Q5_1] = 7,    [DTYPE_Q2_K] = 10,
        [DTYPE_Q3_K] = 11, [DTYPE_IQ4_NL] = 20, [DTYPE_IQ4_XS] = 23, [DTYPE_MXFP4] = 39,
    };
    return numbers[t];
}

// stack: so many matrices; 0: one that is no stack. rows 0: a norm
static inline void random_model_stack(struct gguf_writer *w, const char *name, enum dtype t, int stack,
                                      int rows, int cols) {
    int all = (stack ? stack : 1) * (rows ? rows : 1);
    struct tensor x = random_tensor(t, all, cols, rows ? 1.7f / sqrtf((float)cols) : 0.3f);
    float *norm = (float *)(uintptr_t)x.data;
    for (int i = 0; i < cols && !rows; i++)
        norm[i] += 1;
    uint32_t dims = rows && stack ? 3 : rows || stack ? 2 : 1;
    gw_tensor(w, name, ggml_type(t), dims,
              (uint64_t[]){(uint64_t)cols, (uint64_t)(rows ? rows : stack), (uint64_t)stack}, x.data,
              (size_t)all * dtype_row_bytes(t, cols));
    free((void *)(uintptr_t)x.data);
}

static inline void random_model_tensor(struct gguf_writer *w, const char *name, enum dtype t, int rows,
                                       int cols) {
    random_model_stack(w, name, t, 0, rows, cols);
}

// Of models that are written from here on
static int random_layers = RANDOM_LAYERS;
static struct random_shape {
    int hidden, head_dim, context;
    int window, full_every; // 0: none; layers i with i % full_every == full_every - 1 have no window
    const char *arch; // of those below, lfm2 with a recurrent layer before each that attends; NULL: llama
} random_shape = {.hidden = 512, .head_dim = 64, .context = 512};

// With H heads, K kv heads and F rows of gate. The file's path in `path` (of mkstemp's form), for the caller
// to unlink.
static inline void random_model_write_sized(const struct random_model *m, int H, int K, int F, char *path) {
    const struct random_shape *shape = &random_shape;
    int D = shape->hidden, HD = shape->head_dim;
    const char *arch = shape->arch ? shape->arch : "llama";
    bool granite = strcmp(arch, "granite") == 0, gemma = strcmp(arch, "gemma2") == 0,
         lfm2 = strcmp(arch, "lfm2") == 0, phi = strcmp(arch, "phi2") == 0,
         gpt = strcmp(arch, "gpt-oss") == 0, llama4 = strcmp(arch, "llama4") == 0, experts = gpt || llama4;
    enum { ATTN = 1, MIX = 2, ALL = 3 };
    const struct {
        int of; // layers that attend, recurrent ones; 0: none
        const char *name;
        int rows, cols;                     // rows 0: a norm
        enum { MATRIX, PLAIN, STACK } kind; // PLAIN: F32 whatever matrices are; STACK: one for each expert
    } parts[] = {
        {ALL, "attn_norm", 0, D, MATRIX},
        {ATTN, "attn_q", H * HD, D, MATRIX},
        {ATTN, "attn_k", K * HD, D, MATRIX},
        {ATTN, "attn_v", K * HD, D, MATRIX},
        {lfm2 ? ATTN : 0, "attn_q_norm", 0, HD, MATRIX},
        {lfm2 ? ATTN : 0, "attn_k_norm", 0, HD, MATRIX},
        {ATTN, "attn_output", D, H * HD, MATRIX},
        {MIX, "shortconv.in_proj", 3 * D, D, MATRIX},
        {MIX, "shortconv.conv", D, 3, PLAIN},
        {MIX, "shortconv.out_proj", D, D, MATRIX},
        {gpt ? ALL : 0, "attn_sinks", 0, H, PLAIN},
        {phi || gpt ? 0 : ALL, "ffn_norm", 0, D, MATRIX},
        {phi || experts ? 0 : ALL, "ffn_gate", F, D, MATRIX},
        {experts ? 0 : ALL, "ffn_up", F, D, MATRIX},
        {experts ? 0 : ALL, "ffn_down", D, F, MATRIX},
        {experts ? ALL : 0, "ffn_gate_inp", RANDOM_EXPERTS, D, PLAIN},
        {experts ? ALL : 0, "ffn_gate_exps", F, D, STACK},
        {experts ? ALL : 0, "ffn_up_exps", F, D, STACK},
        {experts ? ALL : 0, "ffn_down_exps", D, F, STACK},
        {llama4 ? ALL : 0, "ffn_gate_shexp", F, D, MATRIX},
        {llama4 ? ALL : 0, "ffn_up_shexp", F, D, MATRIX},
        {llama4 ? ALL : 0, "ffn_down_shexp", D, F, MATRIX},
        {gemma || gpt ? ALL : 0, "post_attention_norm", 0, D, MATRIX},
        {gemma ? ALL : 0, "post_ffw_norm", 0, D, MATRIX},
    };
    size_t num_parts = sizeof parts / sizeof parts[0];
    const struct {
        bool there;
        const char *name;
        float value;
    } floats[] = {{!phi, "attention.layer_norm_rms_epsilon", 1e-5f},
                  {phi, "attention.layer_norm_epsilon", 1e-5f},
                  {granite, "embedding_scale", 3},
                  {granite, "residual_scale", 0.4f},
                  {granite, "logit_scale", 2},
                  {llama4, "attention.temperature_scale", 0.5f},
                  {gemma, "attn_logit_softcapping", 3},
                  {gemma, "final_logit_softcapping", 20}};
    const struct {
        bool there;
        const char *name;
        int value;
    } ints[] = {{true, "block_count", random_layers},
                {true, "context_length", shape->context},
                {shape->window > 0, "attention.sliding_window", shape->window},
                {shape->full_every > 0, "attention.sliding_window_pattern", shape->full_every},
                {true, "embedding_length", D},
                {true, "feed_forward_length", F},
                {experts, "expert_feed_forward_length", F},
                {experts, "expert_count", RANDOM_EXPERTS},
                {experts, "expert_used_count", 2},
                {llama4, "attention.temperature_length", 16},
                {true, "attention.head_count", H},
                {!lfm2, "attention.head_count_kv", K},
                {lfm2, "shortconv.l_cache", 3},
                {true, "attention.key_length", HD},
                {true, "attention.value_length", HD},
                {true, "rope.dimension_count", HD}};
    struct gguf_writer w = {0};
    static char text[RANDOM_VOCAB][16];
    const char *tokens[RANDOM_VOCAB] = {"<unk>", "<s>", "</s>"};
    float scores[RANDOM_VOCAB] = {0};
    int32_t kinds[RANDOM_VOCAB] = {2, 3, 3};
    char name[64];
    for (int i = 3; i < RANDOM_VOCAB; i++) {
        snprintf(text[i], sizeof text[i], "t%d", i);
        tokens[i] = text[i];
        kinds[i] = 1;
    }
    gw_str(&w, "general.architecture", arch);
    for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++) {
        snprintf(name, sizeof name, "%s.%s", arch, ints[i].name);
        if (ints[i].there)
            gw_u32(&w, name, (uint32_t)ints[i].value);
    }
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++) {
        snprintf(name, sizeof name, "%s.%s", arch, floats[i].name);
        if (floats[i].there)
            gw_f32(&w, name, floats[i].value);
    }
    int32_t kv_heads[64];
    for (int i = 0; i < random_layers && i < 64; i++)
        kv_heads[i] = i % 2 ? K : 0;
    if (lfm2)
        gw_array(&w, "lfm2.attention.head_count_kv", 5, (uint64_t)random_layers, kv_heads,
                 (size_t)random_layers * sizeof *kv_heads);
    gw_str(&w, "tokenizer.ggml.model", "llama");
    gw_strings(&w, "tokenizer.ggml.tokens", RANDOM_VOCAB, tokens);
    gw_array(&w, "tokenizer.ggml.scores", 6, RANDOM_VOCAB, scores, sizeof scores);
    gw_array(&w, "tokenizer.ggml.token_type", 5, RANDOM_VOCAB, kinds, sizeof kinds);
    gw_u32(&w, "tokenizer.ggml.bos_token_id", 1);
    gw_u32(&w, "tokenizer.ggml.eos_token_id", 2);
    gw_u32(&w, "tokenizer.ggml.unknown_token_id", 0);
    int n = 0;
    random_model_tensor(&w, "token_embd.weight", m->matrices[n++ % m->num_types], RANDOM_VOCAB, D);
    random_model_tensor(&w, lfm2 ? "token_embd_norm.weight" : "output_norm.weight", DTYPE_F32, 0, D);
    if (phi)
        random_model_tensor(&w, "output_norm.bias", DTYPE_F32, 0, D);
    if (!m->tied)
        random_model_tensor(&w, "output.weight", m->matrices[n++ % m->num_types], RANDOM_VOCAB, D);
    if (phi)
        random_model_tensor(&w, "output.bias", DTYPE_F32, 0, RANDOM_VOCAB);
    for (int layer = 0; layer < random_layers; layer++)
        for (size_t i = 0; i < num_parts; i++) {
            if (!(parts[i].of & (lfm2 && layer % 2 == 0 ? MIX : ATTN)))
                continue;
            snprintf(name, sizeof name, "blk.%d.%s.weight", layer, parts[i].name);
            bool matrix = parts[i].rows && parts[i].kind != PLAIN;
            int stack = parts[i].kind == STACK ? RANDOM_EXPERTS : 0;
            random_model_stack(&w, name, matrix ? m->matrices[n++ % m->num_types] : DTYPE_F32, stack,
                               parts[i].rows, parts[i].cols);
            snprintf(name, sizeof name, "blk.%d.%s.bias", layer, parts[i].name);
            if (phi || (gpt && parts[i].rows))
                random_model_tensor(&w, name, DTYPE_F32, stack,
                                    parts[i].rows ? parts[i].rows : parts[i].cols);
        }
    size_t size;
    unsigned char *file = gw_finish(&w, &size);
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, file, size) != (ssize_t)size || close(fd) != 0)
        fail_msg("%s cannot be written", path);
    free(file);
}

static inline void random_model_write(const struct random_model *m, char *path) {
    random_model_write_sized(m, 8, 2, 1024, path);
}
