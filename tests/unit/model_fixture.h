// A small model file in memory, and what a test changes of it.
#pragma once

#include "../tools/gguf_write.h"
#include "engine.h"
#include "models/gguf.h"
#include "models/model_config.h"
#include "models/weights.h"

#include <math.h>

enum { L = 2, D = 64, H = 4, K = 2, HD = 16, F = 96, V = 5, KEY_LIMIT = 24 };

struct key { // of the model that write_model() makes; value by type
    const char *name;
    uint32_t type;
    double number;
    const char *text;
};

static const struct key base[] = {
    {"general.architecture", 8, 0, "llama"},       {"llama.block_count", 4, L, NULL},
    {"llama.context_length", 4, 128, NULL},        {"llama.embedding_length", 4, D, NULL},
    {"llama.feed_forward_length", 4, F, NULL},     {"llama.attention.head_count", 4, H, NULL},
    {"llama.attention.head_count_kv", 4, K, NULL}, {"llama.attention.layer_norm_rms_epsilon", 6, 1e-5, NULL},
};
enum { NUM_BASE = sizeof base / sizeof base[0] };

static inline void put_key(struct gguf_writer *w, const struct key *k, const char *arch) {
    char name[96];
    if (arch && strncmp(k->name, "llama.", 6) == 0)
        snprintf(name, sizeof name, "%s.%s", arch, k->name + 6);
    else
        snprintf(name, sizeof name, "%s", k->name);
    if (arch && strcmp(name, "general.architecture") == 0)
        gw_str(w, name, arch);
    else if (k->type == 8)
        gw_str(w, name, k->text);
    else if (k->type == 6)
        gw_f32(w, name, (float)k->number);
    else if (k->type == 7)
        gw_bool(w, name, k->number != 0);
    else if (k->type == 9)
        gw_array(w, name, 4, (uint64_t)k->number, (uint32_t[]){K, K, 1}, 4 * (size_t)k->number);
    else if (k->type == 97) // an array of bools
        gw_array(w, name, 7, (uint64_t)k->number, (unsigned char[]){1, 0, 1}, (size_t)k->number);
    else if (k->type == 98) // integers: -1, but for one number of the last layer
        gw_array(w, k->name, 5, L, (int32_t[]){-1, (int32_t)k->number}, sizeof(int32_t) * L);
    else if (k->type == 95) // arrays of floats: one that is too large; as Gemma 3n's
        gw_array(w, name, 6, (uint64_t)k->number, (float[]){1, 101, 1}, 4 * (size_t)k->number);
    else if (k->type == 96)
        gw_array(w, name, 6, (uint64_t)k->number, (float[]){1.5f, -INFINITY, 1}, 4 * (size_t)k->number);
    else if (k->type == 99) // an array whose elements differ
        gw_array(w, name, 4, L, (uint32_t[]){K, 1}, 8);
    else
        gw_u32(w, name, (uint32_t)k->number);
}

// Changes to the good model.
struct change {
    struct key keys[KEY_LIMIT]; // replace or add
    const char *drop;           // a key or tensor to leave out
    const char *tensor;         // to write with this type, shape or bad value instead
    uint32_t type, rows, cols;
    const char *extra; // a tensor to add, of one F32 row of `cols`
    int untied;
    uint32_t matrix_type; // of all matrices
    const char *poison;   // tensor in which element 7 is a NaN, or block 1 has an infinite scale
    unsigned poison_at;   // 0: there; else this byte of it
    int wide;             // D and F are 256, for types with blocks of so many
    float factor;         // of rope_freqs.weight: all elements
    int tokens;           // 0: V
    const char *arch;     // NULL: llama; else with the tensors that the architecture has beside llama's
    int biases, out_bias; // of q, k and v, and of the attention output
};

static inline size_t type_bytes(uint32_t type, uint64_t n) {
    switch (type) {
    case 2:
    case 20: return n / 32 * 18;
    case 3: return n / 32 * 20;
    case 6: return n / 32 * 22;
    case 7: return n / 32 * 24;
    case 8: return n / 32 * 34;
    case 39: return n / 32 * 17;
    case 10: return n / 256 * 84;
    case 11: return n / 256 * 110;
    case 23: return n / 256 * 136;
    case 21: return n / 256 * 110;
    case 12: return n / 256 * 144;
    case 13: return n / 256 * 176;
    case 14: return n / 256 * 210;
    default: return n * (type == 0 || type == 26 ? 4 : 2);
    }
}

static inline uint64_t wide_size(const struct change *c, uint64_t n) {
    return !c->wide || n == 0 || n == V ? n : n == K * HD ? 128 : 256;
}

static inline void put_tensor(struct gguf_writer *w, const struct change *c, const char *name, uint64_t rows,
                              uint64_t cols) {
    uint64_t ne[2] = {wide_size(c, cols), wide_size(c, rows)};
    uint32_t type = rows ? c->matrix_type : 0, ndim = rows ? 2 : 1;
    if (c->drop && !strcmp(c->drop, name))
        return;
    if (c->tensor && !strcmp(c->tensor, name)) {
        type = c->type;
        ne[0] = c->cols ? c->cols : ne[0];
        ne[1] = c->rows ? c->rows : ne[1];
    }
    uint64_t n = ne[0] * (ndim == 2 ? ne[1] : 1);
    size_t bytes = type_bytes(type, n);
    unsigned char *p = calloc(1, bytes + 64);
    if (!p)
        abort();
    if (type == 0)
        for (uint64_t i = 0; i < n; i++)
            memcpy(p + 4 * i, &(float){(float)i}, 4);
    if (!strcmp(name, "rope_freqs.weight"))
        for (uint64_t i = 0; i < n; i++)
            memcpy(p + 4 * i, &c->factor, 4);
    if (c->poison && !strcmp(c->poison, name)) {
        static const unsigned char nans[3][4] = {{0, 0, 0xc0, 0x7f}, {0, 0xfe, 0, 0}, {0xc0, 0x7f, 0, 0}};
        if (type == 39) // MXFP4: the scale is an exponent
            p[c->poison_at] = 253;
        else if (c->poison_at)
            memcpy(p + c->poison_at, "\x00\x7c", 2);
        else if (type == 0)
            memcpy(p + 28, nans[0], 4);
        else
            memcpy(p + 14, nans[type == 1 ? 1 : 2], 2);
    }
    gw_tensor(w, name, type, ndim, ne, p, bytes);
    free(p);
}

static inline unsigned char *write_model(const struct change *c, size_t *size) {
    struct gguf_writer w = {0};
    char name[64];
    for (int i = 0; i < NUM_BASE; i++) {
        int replaced = c->drop && !strcmp(c->drop, base[i].name);
        for (int k = 0; k < KEY_LIMIT && c->keys[k].name; k++)
            replaced |= !strcmp(c->keys[k].name, base[i].name);
        if (!replaced)
            put_key(&w, &base[i], c->arch);
    }
    for (int k = 0; k < KEY_LIMIT && c->keys[k].name; k++)
        put_key(&w, &c->keys[k], NULL);
    static const char *const tokens[] = {"<unk>", "<s>", "</s>", "a", "b", "c", "d"};
    if (!c->drop || strcmp(c->drop, "tokenizer.ggml.tokens") != 0)
        gw_strings(&w, "tokenizer.ggml.tokens", (uint64_t)(c->tokens ? c->tokens : V), tokens);
    put_tensor(&w, c, "token_embd.weight", V, D);
    put_tensor(&w, c, "output_norm.weight", 0, D);
    if (c->untied)
        put_tensor(&w, c, "output.weight", V, D);
    static const struct {
        const char *name;
        uint64_t rows, cols;
    } parts[] = {
        {"attn_norm", 0, D},   {"attn_q", H * HD, D},      {"attn_k", K * HD, D},
        {"attn_v", K * HD, D}, {"attn_output", D, H * HD}, {"ffn_norm", 0, D},
        {"ffn_gate", F, D},    {"ffn_up", F, D},           {"ffn_down", D, F},
    };
    bool qwen2 = c->arch && !strcmp(c->arch, "qwen2"), qwen3 = c->arch && !strcmp(c->arch, "qwen3");
    const struct {
        bool there;
        const char *name;
        uint64_t n;
    } vectors[] = {{c->biases || qwen2, "attn_q.bias", H * HD}, {c->biases || qwen2, "attn_k.bias", K * HD},
                   {c->biases || qwen2, "attn_v.bias", K * HD}, {c->out_bias, "attn_output.bias", D},
                   {qwen3, "attn_q_norm.weight", HD},           {qwen3, "attn_k_norm.weight", HD}};
    for (int layer = 0; layer < L; layer++) {
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", layer, parts[i].name);
            put_tensor(&w, c, name, parts[i].rows, parts[i].cols);
        }
        for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
            snprintf(name, sizeof name, "blk.%d.%s", layer, vectors[i].name);
            if (vectors[i].there)
                put_tensor(&w, c, name, 0, vectors[i].n);
        }
    }
    if (c->extra)
        put_tensor(&w, c, c->extra, 0, c->cols);
    return gw_finish(&w, size);
}

static inline struct model_file *parse(const struct change *c, unsigned char **file) {
    struct err err = {0};
    size_t size;
    *file = write_model(c, &size);
    struct model_file *g = gguf_parse(*file, size, "test.gguf", &err);
    if (!g)
        fail_msg("%s", err.msg);
    return g;
}
