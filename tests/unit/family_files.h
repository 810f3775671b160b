// Small GGUF files of one architecture, and what differs from them, for tests of what is read and what is refused.
#pragma once

#include "../tools/gguf_write.h"
#include "harness.h"
#include "models/gguf.h"
#include "models/model_config.h"
#include "models/weights.h"

#include <math.h>

enum { L = 4, D = 16, H = 4, K = 2, HD = 4, F = 24, V = 7, MAX_KEYS = 20, MAX_TENSORS = 32 };
// Layers that attend, recurrent ones, all; those without and with experts; tensors with a matrix for each expert or head
enum { ATTN = 1, MIX = 2, ALL = 3, DENSE = 4, MOE = 8, STACK = 16, HEADED = 32, FFN = 64, E = 8 };

struct family {
    const char *arch, *out_norm;
    struct {
        const char *suffix;
        double value; // not whole: a float
    } keys[MAX_KEYS];
    int kv_heads[L]; // all 0: one number, K
    int dense;       // layers from this on have experts
    int alone[L];    // sizes of layers that have a feed-forward, tensors of FFN; all 0: one number, F
    struct {
        int of;
        const char *name;    // with its end
        uint64_t rows, cols; // rows 0: a vector
    } tensors[MAX_TENSORS];
};

// Rows of `keys` and `tensors` that families share.
#define FAMILY_ROUTER                                                                                        \
    {"expert_count", E}, {"expert_used_count", 2}, { "expert_feed_forward_length", 12 }
#define FAMILY_STATES                                                                                        \
    {"ssm.conv_kernel", 4}, {"ssm.inner_size", 32}, {"ssm.state_size", 8}, {"ssm.time_step_rank", 2}, {      \
        "ssm.group_count", 1                                                                                 \
    }
#define FAMILY_MAMBA2(of)                                                                                    \
    {of, "ssm_in.weight", 82, D}, {of, "ssm_conv1d.weight", 48, 4}, {of, "ssm_conv1d.bias", 0, 48},          \
        {of, "ssm_a", 2, 1}, {of, "ssm_dt.bias", 0, 2}, {of, "ssm_d", 2, 1}, {of, "ssm_norm.weight", 1, 32}, \
    {                                                                                                        \
        of, "ssm_out.weight", D, 32                                                                          \
    }
#define FAMILY_QKV(of)                                                                                       \
    {of, "attn_q.weight", H * HD, D}, {of, "attn_k.weight", K * HD, D}, { of, "attn_v.weight", K *HD, D }
#define FAMILY_QK_NORMS(of)                                                                                  \
    {of, "attn_q_norm.weight", 0, HD}, { of, "attn_k_norm.weight", 0, HD }
#define FAMILY_FFN(of)                                                                                       \
    {of, "ffn_gate.weight", F, D}, {of, "ffn_up.weight", F, D}, { of, "ffn_down.weight", D, F }
#define FAMILY_EXPERTS(of, hidden)                                                                           \
    {of | STACK, "ffn_gate_exps.weight", hidden, D}, {of | STACK, "ffn_up_exps.weight", hidden, D}, {        \
        of | STACK, "ffn_down_exps.weight", D, hidden                                                        \
    }

struct change {
    const char *key; // suffix: has this value instead, or is added
    double value;
    const char *no_key, *no_tensor;
    int kv_heads[L];    // all 0: the family's
    int num_layers;     // of the array of kv_heads; 0: L
    int alone[L];       // all 0: the family's
    int recurrent;      // layers are named: all but the first, 2: all
    const char *tensor; // has `rows` rows, or where 0 `type`
    uint64_t rows;
    uint32_t type;
    uint64_t stack;    // in place of the number of experts or heads
    const char *extra; // a tensor to add, of one F32 row
    int numbers;       // of xielu.alpha_n; 0: L
};

static inline void family_number(struct gguf_writer *w, const char *arch, const char *suffix, double value) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", arch, suffix);
    if (value == (double)(int64_t)value)
        gw_u32(w, key, (uint32_t)(int64_t)value);
    else
        gw_f32(w, key, (float)value);
}

static inline void family_tensor(struct gguf_writer *w, const struct change *c, const char *name,
                                 uint64_t rows, uint64_t cols, uint64_t stack) {
    uint32_t type = 0;
    if (c->no_tensor && !strcmp(name, c->no_tensor))
        return;
    if (c->tensor && !strcmp(name, c->tensor)) {
        rows = c->rows ? c->rows : rows;
        stack = c->stack ? c->stack : stack;
        type = c->type;
    }
    gw_tensor(w, name, type,
              stack && rows   ? 3
              : stack || rows ? 2
                              : 1,
              (uint64_t[]){cols, rows ? rows : stack, stack}, NULL,
              (size_t)((stack ? stack : 1) * (rows ? rows : 1) * cols * (type == 1 ? 2 : 4)));
}

static inline unsigned char *write_file(const struct family *f, const struct change *c, size_t *size) {
    static const char *const tokens[V] = {"<unk>", "<s>", "</s>", "a", "b", "c", "d"};
    static const struct {
        const char *suffix;
        double value;
    } base[] = {{"block_count", L},          {"context_length", 128},
                {"embedding_length", D},     {"feed_forward_length", F},
                {"attention.head_count", H}, {"attention.layer_norm_rms_epsilon", 1e-5}};
    struct gguf_writer w = {0};
    char name[128];
    const int *kv = f->kv_heads, *alone = f->alone;
    bool one_part = false, listed = !strcmp(f->arch, "deci"); // heads are a list: 0 where kv_heads is
    for (int i = 0; i < L; i++) {
        kv = c->kv_heads[i] ? c->kv_heads : kv;
        alone = c->alone[i] ? c->alone : alone;
        one_part |= f->alone[i] != 0;
    }
    gw_str(&w, "general.architecture", f->arch);
    for (size_t i = 0; i < sizeof base / sizeof *base; i++)
        if ((!c->key || strcmp(c->key, base[i].suffix) != 0) &&
            (!c->no_key || strcmp(c->no_key, base[i].suffix) != 0) &&
            (!listed || strcmp(base[i].suffix, "attention.head_count") != 0) &&
            (!one_part || strcmp(base[i].suffix, "feed_forward_length") != 0))
            family_number(&w, f->arch, base[i].suffix, base[i].value);
    for (int i = 0; i < MAX_KEYS && f->keys[i].suffix; i++)
        if ((!c->key || strcmp(c->key, f->keys[i].suffix) != 0) &&
            (!c->no_key || strcmp(c->no_key, f->keys[i].suffix) != 0))
            family_number(&w, f->arch, f->keys[i].suffix, f->keys[i].value);
    if (c->key)
        family_number(&w, f->arch, c->key, c->value);
    snprintf(name, sizeof name, "%s.attention.head_count_kv", f->arch);
    uint64_t n = (uint64_t)(c->num_layers ? c->num_layers : L);
    bool pattern = !strcmp(f->arch, "qwen35"); // which layers attend is no matter of their heads
    static const int odd[L] = {0, K, 0, K};
    if (pattern)
        gw_u32(&w, name, K);
    else
        gw_array(&w, name, 5, n, kv, (size_t)n * sizeof *kv);
    int heads[L];
    for (int i = 0; i < L; i++)
        heads[i] = f->kv_heads[i] ? H : 0;
    snprintf(name, sizeof name, "%s.attention.head_count", f->arch);
    if (listed)
        gw_array(&w, name, 5, L, heads, sizeof heads);
    static const char *const xielu[] = {"xielu.alpha_n", "xielu.alpha_p", "xielu.beta", "xielu.eps"};
    for (int i = 0; i < 4 && !strcmp(f->arch, "apertus"); i++) {
        uint64_t count = (uint64_t)(i == 0 && c->numbers ? c->numbers : L);
        gw_array(&w, xielu[i], 6, count, (float[L + 1]){1, 40, -2, 0.5f, 0}, (size_t)count * sizeof(float));
    }
    if (c->recurrent > 0)
        gw_array(&w, "qwen35.attention.recurrent_layers", 7, n, (unsigned char[L]){c->recurrent > 1, 1, 1, 1},
                 (size_t)n);
    kv = pattern ? odd : kv;
    snprintf(name, sizeof name, "%s.feed_forward_length", f->arch);
    if (one_part)
        gw_array(&w, name, 5, L, alone, L * sizeof *alone);
    gw_str(&w, "tokenizer.ggml.model", "llama");
    gw_strings(&w, "tokenizer.ggml.tokens", V, tokens);
    family_tensor(&w, c, "token_embd.weight", V, D, 0);
    family_tensor(&w, c, f->out_norm, 0, D, 0);
    for (int l = 0; l < L; l++)
        for (int i = 0; i < MAX_TENSORS && f->tensors[i].name; i++) {
            snprintf(name, sizeof name, "blk.%d.%s", l, f->tensors[i].name);
            int of = f->tensors[i].of;
            int layer = (f->alone[l] ? FFN : 0) | (kv[l] ? ATTN : f->alone[l] ? 0 : MIX);
            if (of & (layer | (l < f->dense ? DENSE : MOE)))
                family_tensor(&w, c, name, f->tensors[i].rows, f->tensors[i].cols,
                              of & STACK    ? E
                              : of & HEADED ? H
                                            : 0);
        }
    if (c->extra)
        family_tensor(&w, c, c->extra, 0, D, 0);
    return gw_finish(&w, size);
}

static inline enum status read_file(const struct family *f, const struct change *c,
                                    struct model_config *config, struct err *err) {
    size_t size;
    unsigned char *file = write_file(f, c, &size);
    struct model_file *g = gguf_parse(file, size, "test.gguf", err);
    if (!g)
        fail_msg("%s", err->msg);
    enum status st = model_config_read(g, config, err);
    st = st == STATUS_OK ? weights_check(config, g, err) : st;
    model_file_close(g);
    free(file);
    return st;
}

static inline void read_ok(const struct family *f, const struct change *change, struct model_config *c) {
    struct err err = {0};
    if (read_file(f, change, c, &err) != STATUS_OK)
        fail_msg("%s: %s", f->arch, err.msg);
}

// A file that differs so, and words of the sentence that refuses it.
struct refusal {
    struct change change;
    const char *words;
};

static inline void expect_refused(const struct family *f, const struct refusal *cases, int n) {
    for (int i = 0; i < n; i++) {
        struct model_config config;
        struct err err = {0};
        if (read_file(f, &cases[i].change, &config, &err) != STATUS_FORMAT ||
            !strstr(err.msg, cases[i].words))
            fail_msg("%s, case %d: expected '%s', got '%s'", f->arch, i, cases[i].words, err.msg);
    }
}
