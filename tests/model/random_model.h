// Writes a GGUF model of random weights in given types, large enough that every matrix is shared out among
// threads.
#pragma once

#include "../ops/fixture.h"
#include "../tools/gguf_write.h"

#include <unistd.h>

enum { RANDOM_VOCAB = 512, RANDOM_LAYERS = 2 };

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

// stack: so many matrices; 0: one that is no stack. rows 0: a vector, about 1; falling: below 0
static inline void random_model_stack(struct gguf_writer *w, const char *name, enum dtype t, int stack,
                                      int rows, int cols, bool falling) {
    int all = (stack ? stack : 1) * (rows ? rows : 1);
    struct tensor x = random_tensor(t, all, cols, rows ? 1.7f / sqrtf((float)cols) : 0.3f);
    float *norm = (float *)(uintptr_t)x.data;
    for (int i = 0; i < cols && !rows; i++)
        norm[i] += 1;
    for (int i = 0; i < all * cols && falling; i++)
        norm[i] = -fabsf(norm[i]) - 0.01f;
    uint32_t dims = rows && stack ? 3 : rows || stack ? 2 : 1;
    gw_tensor(w, name, ggml_type(t), dims,
              (uint64_t[]){(uint64_t)cols, (uint64_t)(rows ? rows : stack), (uint64_t)stack}, x.data,
              (size_t)all * dtype_row_bytes(t, cols));
    free((void *)(uintptr_t)x.data);
}

static inline void random_model_tensor(struct gguf_writer *w, const char *name, enum dtype t, int rows,
                                       int cols) {
    random_model_stack(w, name, t, 0, rows, cols, false);
}

// Properties of models that are written from here on
static int random_layers = RANDOM_LAYERS;
static bool random_plain; // of every family: all layers attend
static int random_experts = 12;
static struct random_shape {
    int hidden, head_dim, context;
    int window, full_every; // 0: none; layers i with i % full_every == full_every - 1 have no window
    const char *arch;       // one of random_families; NULL: llama
    bool dense;             // no experts
} random_shape = {.hidden = 512, .head_dim = 64, .context = 512};

enum random_family {
    LLAMA = 1,
    GRANITE = 2,
    GEMMA2 = 4,
    PHI2 = 8,
    GPT_OSS = 16,
    LLAMA4 = 32,
    DEEPSEEK2 = 64,      // its first layer has no experts
    LFM2 = 128,          // recurrent layers are those before one that attends,
    GRANITEHYBRID = 256, // as in these
    QWEN35MOE = 512,
    QWEN3NEXT = 1024,
    FALCON_H1 = 2048, // recurrent layers attend, too
    GEMMA4 = 4096,    // experts beside a dense feed-forward
    GEMMA3N = 8192,   // gates of every second layer are sparse
    QWEN2 = 16384,
    AXES = QWEN2 | QWEN35MOE, // rotates by three axes
    EXPERTS = GPT_OSS | LLAMA4 | DEEPSEEK2 | GRANITEHYBRID | QWEN35MOE | QWEN3NEXT | GEMMA4,
    DELTA = QWEN35MOE | QWEN3NEXT,
    SSM = GRANITEHYBRID | FALCON_H1,
    MIXED = LFM2 | SSM | DELTA,
};
static const char *const random_families[] = {
    "llama",         "granite",   "gemma2",    "phi2",      "gpt-oss", "llama4",  "deepseek2", "lfm2",
    "granitehybrid", "qwen35moe", "qwen3next", "falcon-h1", "gemma4",  "gemma3n", "qwen2"};

// With H heads, K kv heads and F rows of gate. The file's path in `path` (of mkstemp's form), for the caller
// to unlink.
static inline void random_model_write_sized(const struct random_model *m, int H, int K, int F, char *path) {
    const struct random_shape *shape = &random_shape;
    int D = shape->hidden, HD = shape->head_dim;
    const char *arch = shape->arch ? shape->arch : "llama";
    int family = 1;
    for (int i = 0; strcmp(random_families[i], arch) != 0; i++)
        family <<= 1;
    int experts = shape->dense ? 0 : family & EXPERTS, mixed = random_plain ? 0 : family & MIXED;
    enum { C = 128, R = 32, U = 96, N = 32, V = 64 }; // of latents
    enum { HEADS = 8, STATE = 32, P = 64, TAPS = 4 }; // of recurrent layers: values of a head, taps
    int G = family & GRANITEHYBRID ? 8 : 2, n = G * STATE, v = HEADS * P; // groups
    enum { OWN = 32, LAUREL = 64 }; // of gemma3n: embedding of a layer, rank of LAuReL
    enum { ATTN = 1, MIX = 2, DENSE = 4, MOE = 8, ALL = 15 };
    const int any = -1, of_dense = family & GEMMA4 ? ALL : DENSE;
    const struct {
        int in, of; // families, layers
        const char *name;
        int rows, cols; // rows 0: a vector
        // PLAIN: F32 whatever matrices are, FALLING: and below 0; STACK: one for each expert, HEADED: each head
        enum { MATRIX, PLAIN, FALLING, STACK, HEADED } kind;
    } parts[] = {
        {any, ALL, "attn_norm.weight", 0, D, MATRIX},
        {~(DEEPSEEK2 | DELTA), ATTN, "attn_q.weight", H * HD, D, MATRIX},
        {DELTA, ATTN, "attn_q.weight", 2 * H * HD, D, MATRIX},
        {~DEEPSEEK2, ATTN, "attn_k.weight", K * HD, D, MATRIX},
        {~DEEPSEEK2, ATTN, "attn_v.weight", K * HD, D, MATRIX},
        {QWEN2, ATTN, "attn_q.bias", 0, H * HD, MATRIX},
        {QWEN2, ATTN, "attn_k.bias", 0, K * HD, MATRIX},
        {QWEN2, ATTN, "attn_v.bias", 0, K * HD, MATRIX},
        {DEEPSEEK2, ATTN, "attn_kv_a_mqa.weight", C + R, D, MATRIX},
        {DEEPSEEK2, ATTN, "attn_kv_a_norm.weight", 0, C, MATRIX},
        {DEEPSEEK2, ATTN, "attn_q_a.weight", U, D, MATRIX},
        {DEEPSEEK2, ATTN, "attn_q_a_norm.weight", 0, U, MATRIX},
        {DEEPSEEK2, ATTN, "attn_q_b.weight", H * (N + R), U, MATRIX},
        {DEEPSEEK2, ATTN, "attn_k_b.weight", C, N, HEADED},
        {DEEPSEEK2, ATTN, "attn_v_b.weight", V, C, HEADED},
        {LFM2 | DELTA | GEMMA4 | GEMMA3N, ATTN, "attn_q_norm.weight", 0, HD, MATRIX},
        {LFM2 | DELTA | GEMMA4 | GEMMA3N, ATTN, "attn_k_norm.weight", 0, HD, MATRIX},
        {any, ATTN, "attn_output.weight", D, family & DEEPSEEK2 ? H * V : H * HD, MATRIX},
        {LFM2, MIX, "shortconv.in_proj.weight", 3 * D, D, MATRIX},
        {LFM2, MIX, "shortconv.conv.weight", D, 3, PLAIN},
        {LFM2, MIX, "shortconv.out_proj.weight", D, D, MATRIX},
        {DELTA, MIX, "attn_qkv.weight", 2 * n + v, D, MATRIX},
        {DELTA, MIX, "attn_gate.weight", v, D, MATRIX},
        {QWEN35MOE, MIX, "ssm_beta.weight", HEADS, D, MATRIX},
        {QWEN35MOE, MIX, "ssm_alpha.weight", HEADS, D, MATRIX},
        {QWEN3NEXT, MIX, "ssm_ba.weight", 2 * HEADS, D, MATRIX},
        {SSM, MIX, "ssm_in.weight", 2 * v + 2 * n + HEADS, D, MATRIX},
        {SSM | DELTA, MIX, "ssm_conv1d.weight", 2 * n + v, TAPS, PLAIN},
        {SSM, MIX, "ssm_conv1d.bias", 0, 2 * n + v, PLAIN},
        {DELTA, MIX, "ssm_a", 0, HEADS, FALLING},
        {SSM, MIX, "ssm_a", HEADS, 1, FALLING},
        {SSM | DELTA, MIX, "ssm_dt.bias", 0, HEADS, PLAIN},
        {SSM, MIX, "ssm_d", HEADS, 1, PLAIN},
        {DELTA, MIX, "ssm_norm.weight", 0, P, MATRIX},
        {GRANITEHYBRID, MIX, "ssm_norm.weight", G, v / G, PLAIN},
        {SSM | DELTA, MIX, "ssm_out.weight", D, v, MATRIX},
        {GPT_OSS, ALL, "attn_sinks.weight", 0, H, PLAIN},
        {~(PHI2 | GPT_OSS | DELTA | FALCON_H1), ALL, "ffn_norm.weight", 0, D, MATRIX},
        {FALCON_H1, ALL, "ffn_norm", 0, D, PLAIN},
        {~PHI2, of_dense, "ffn_gate.weight", F, D, MATRIX},
        {any, of_dense, "ffn_up.weight", F, D, MATRIX},
        {any, of_dense, "ffn_down.weight", D, F, MATRIX},
        {any, MOE, "ffn_gate_inp.weight", random_experts, D, PLAIN},
        {GEMMA4, MOE, "ffn_gate_inp.scale", 0, D, PLAIN},
        {GEMMA4, MOE, "ffn_down_exps.scale", 0, random_experts, PLAIN},
        {GEMMA4, MOE, "pre_ffw_norm_2.weight", 0, D, MATRIX},
        {GEMMA4, MOE, "post_ffw_norm_1.weight", 0, D, MATRIX},
        {GEMMA4, MOE, "post_ffw_norm_2.weight", 0, D, MATRIX},
        {DEEPSEEK2, MOE, "exp_probs_b.bias", 0, random_experts, PLAIN},
        {any, MOE, "ffn_gate_exps.weight", F, D, STACK},
        {any, MOE, "ffn_up_exps.weight", F, D, STACK},
        {any, MOE, "ffn_down_exps.weight", D, F, STACK},
        {DELTA, MOE, "ffn_gate_inp_shexp.weight", 0, D, PLAIN},
        {~(GPT_OSS | GEMMA4), MOE, "ffn_gate_shexp.weight", F, D, MATRIX},
        {~(GPT_OSS | GEMMA4), MOE, "ffn_up_shexp.weight", F, D, MATRIX},
        {~(GPT_OSS | GEMMA4), MOE, "ffn_down_shexp.weight", D, F, MATRIX},
        {GEMMA2 | GEMMA4 | GEMMA3N | GPT_OSS | DELTA, ALL, "post_attention_norm.weight", 0, D, MATRIX},
        {GEMMA2 | GEMMA4 | GEMMA3N, ALL, "post_ffw_norm.weight", 0, D, MATRIX},
        {GEMMA3N, ALL, "inp_gate.weight", OWN, D, MATRIX},
        {GEMMA3N, ALL, "proj.weight", D, OWN, MATRIX},
        {GEMMA3N, ALL, "post_norm.weight", 0, D, MATRIX},
        {GEMMA3N, ALL, "altup_router.weight", 4, D, PLAIN},
        {GEMMA3N, ALL, "altup_router_norm.weight", 0, D, MATRIX},
        {GEMMA3N, ALL, "altup_predict_coef.weight", 16, 4, PLAIN},
        {GEMMA3N, ALL, "altup_correct_coef.weight", 4, 4, PLAIN},
        {GEMMA3N, ALL, "altup_correct_scale.weight", 0, D, MATRIX},
        {GEMMA3N, ALL, "laurel_l.weight", LAUREL, D, MATRIX},
        {GEMMA3N, ALL, "laurel_r.weight", D, LAUREL, PLAIN},
        {GEMMA3N, ALL, "laurel_post_norm.weight", 0, D, MATRIX},
    };
    size_t num_parts = sizeof parts / sizeof parts[0];
    const struct {
        int in;
        const char *name;
        float value;
    } floats[] = {{~PHI2, "attention.layer_norm_rms_epsilon", 1e-5f},
                  {PHI2, "attention.layer_norm_epsilon", 1e-5f},
                  {GRANITE | GRANITEHYBRID, "embedding_scale", 3},
                  {GRANITE | GRANITEHYBRID, "residual_scale", 0.4f},
                  {GRANITE | GRANITEHYBRID, "logit_scale", 2},
                  {LLAMA4, "attention.temperature_scale", 0.5f},
                  {DEEPSEEK2, "expert_weights_scale", 1.5f},
                  {GEMMA2, "attn_logit_softcapping", 3},
                  {GEMMA2, "final_logit_softcapping", 20}};
    const struct {
        int in;
        const char *name;
        int value;
    } ints[] = {{any, "block_count", random_layers},
                {any, "context_length", shape->context},
                {shape->window > 0 ? any : 0, "attention.sliding_window", shape->window},
                {shape->full_every > 0 ? any : 0, "attention.sliding_window_pattern", shape->full_every},
                {GEMMA4 | GEMMA3N, "attention.sliding_window_pattern", 2},
                {GEMMA3N, "embedding_length_per_layer_input", OWN},
                {any, "embedding_length", D},
                {any, "feed_forward_length", F},
                {EXPERTS & ~GRANITEHYBRID, "expert_feed_forward_length", F},
                {experts, "expert_count", random_experts},
                {experts, "expert_used_count", 3},
                {DELTA | GRANITEHYBRID, "expert_shared_feed_forward_length", F},
                {DEEPSEEK2, "expert_shared_count", 1},
                {DEEPSEEK2, "expert_group_count", 4},
                {DEEPSEEK2, "expert_group_used_count", 2},
                {DEEPSEEK2, "leading_dense_block_count", 1},
                {LLAMA4, "attention.temperature_length", 16},
                {any, "attention.head_count", H},
                {~(LFM2 | GRANITEHYBRID), "attention.head_count_kv", family & DEEPSEEK2 ? 1 : K},
                {LFM2, "shortconv.l_cache", 3},
                {DELTA, "full_attention_interval", random_plain ? 1 : 2},
                {SSM | DELTA, "ssm.conv_kernel", TAPS},
                {SSM | DELTA, "ssm.inner_size", v},
                {SSM | DELTA, "ssm.state_size", STATE},
                {SSM | DELTA, "ssm.time_step_rank", HEADS},
                {SSM | DELTA, "ssm.group_count", G},
                {~DEEPSEEK2, "attention.key_length", HD},
                {~DEEPSEEK2, "attention.value_length", HD},
                {DEEPSEEK2, "attention.key_length", C + R},
                {DEEPSEEK2, "attention.value_length", C},
                {DEEPSEEK2, "attention.key_length_mla", N + R},
                {DEEPSEEK2, "attention.value_length_mla", V},
                {DEEPSEEK2, "attention.kv_lora_rank", C},
                {DEEPSEEK2, "attention.q_lora_rank", U},
                {any, "rope.dimension_count", family & DEEPSEEK2 ? R : HD}};
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
        if (ints[i].in & family)
            gw_u32(&w, name, (uint32_t)ints[i].value);
    }
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++) {
        snprintf(name, sizeof name, "%s.%s", arch, floats[i].name);
        if (floats[i].in & family)
            gw_f32(&w, name, floats[i].value);
    }
    int32_t kv_heads[64];
    for (int i = 0; i < random_layers && i < 64; i++)
        kv_heads[i] = i % 2 ? K : 0;
    snprintf(name, sizeof name, "%s.attention.head_count_kv", arch);
    if (family & (LFM2 | GRANITEHYBRID))
        gw_array(&w, name, 5, (uint64_t)random_layers, kv_heads, (size_t)random_layers * sizeof *kv_heads);
    const int32_t sections[] = {HD / 8, HD / 8, HD / 2 - 2 * (HD / 8), 0};
    snprintf(name, sizeof name, "%s.rope.dimension_sections", arch);
    if (family & AXES)
        gw_array(&w, name, 5, 4, sections, sizeof sections);
    float cuts[64];
    for (int i = 0; i < random_layers && i < 64; i++)
        cuts[i] = i % 2 ? -INFINITY : 0.6745f;
    if (family & GEMMA3N)
        gw_array(&w, "gemma3n.activation_sparsity_scale", 6, (uint64_t)random_layers, cuts,
                 (size_t)random_layers * sizeof *cuts);
    gw_str(&w, "tokenizer.ggml.model", "llama");
    gw_strings(&w, "tokenizer.ggml.tokens", RANDOM_VOCAB, tokens);
    gw_array(&w, "tokenizer.ggml.scores", 6, RANDOM_VOCAB, scores, sizeof scores);
    gw_array(&w, "tokenizer.ggml.token_type", 5, RANDOM_VOCAB, kinds, sizeof kinds);
    gw_u32(&w, "tokenizer.ggml.bos_token_id", 1);
    gw_u32(&w, "tokenizer.ggml.eos_token_id", 2);
    gw_u32(&w, "tokenizer.ggml.unknown_token_id", 0);
    int turn = 0;
    random_model_tensor(&w, "token_embd.weight", m->matrices[turn++ % m->num_types], RANDOM_VOCAB, D);
    random_model_tensor(&w, family & LFM2 ? "token_embd_norm.weight" : "output_norm.weight", DTYPE_F32, 0, D);
    if (family & PHI2)
        random_model_tensor(&w, "output_norm.bias", DTYPE_F32, 0, D);
    if (!m->tied)
        random_model_tensor(&w, "output.weight", m->matrices[turn++ % m->num_types], RANDOM_VOCAB, D);
    if (family & PHI2)
        random_model_tensor(&w, "output.bias", DTYPE_F32, 0, RANDOM_VOCAB);
    if (family & GEMMA3N) {
        enum dtype t = m->matrices[turn++ % m->num_types];
        random_model_tensor(&w, "per_layer_token_embd.weight", t, RANDOM_VOCAB, random_layers * OWN);
        random_model_tensor(&w, "per_layer_model_proj.weight", t, random_layers * OWN, D);
        random_model_tensor(&w, "per_layer_proj_norm.weight", DTYPE_F32, 0, OWN);
        random_model_stack(&w, "altup_proj.weight", t, 3, D, D, false);
        random_model_stack(&w, "altup_unembd_proj.weight", t, 3, D, D, false);
    }
    for (int layer = 0; layer < random_layers; layer++) {
        int of = experts && !(family & DEEPSEEK2 && layer == 0) ? MOE : DENSE;
        of |= mixed && (layer % 2 == 0 || family & FALCON_H1) ? MIX : 0;
        of |= of & MIX && !(family & FALCON_H1) ? 0 : ATTN;
        for (size_t i = 0; i < num_parts; i++) {
            if (!(parts[i].of & of) || !(parts[i].in & family))
                continue;
            snprintf(name, sizeof name, "blk.%d.%s", layer, parts[i].name);
            bool matrix = parts[i].rows && (parts[i].kind == MATRIX || parts[i].kind > FALLING);
            int stack = parts[i].kind == STACK ? random_experts : parts[i].kind == HEADED ? H : 0;
            random_model_stack(&w, name, matrix ? m->matrices[turn++ % m->num_types] : DTYPE_F32, stack,
                               parts[i].rows, parts[i].cols, parts[i].kind == FALLING);
            int stem = (int)(strlen(parts[i].name) - strlen(".weight"));
            snprintf(name, sizeof name, "blk.%d.%.*s.bias", layer, stem, parts[i].name);
            bool biased = family & GPT_OSS && parts[i].rows && parts[i].of != DENSE;
            if (family & PHI2 || biased)
                random_model_tensor(&w, name, DTYPE_F32, stack,
                                    parts[i].rows ? parts[i].rows : parts[i].cols);
        }
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
