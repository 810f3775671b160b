// A Hugging Face folder of a small llama, as tests break it.
#pragma once

#include "harness.h"

#include "models/model_config.h"
#include "models/model_file.h"
#include "models/weights.h"
#include "text/tokenizer_load.h"

#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/quire-folder-XXXXXX", folder[64];

static inline void write_file(const char *name, const void *data, size_t len) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static inline void write_text(const char *name, const char *text) { write_file(name, text, strlen(text)); }

static inline void remove_file(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

#define SIZES                                                                                                \
    "\"num_hidden_layers\": 1, \"hidden_size\": 8, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, " \
    "\"intermediate_size\": 8, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"vocab_size\": 6"
#define CONFIG(more) "{\"model_type\": \"llama\", " SIZES more "}"
#define VOCAB                                                                                                \
    "\"vocab\": {\"<unk>\": 0, \"<s>\": 1, \"\xe2\x96\x81\": 2, \"a\": 3, \"\xe2\x96\x81"                    \
    "a\": 4}"
#define MODEL                                                                                                \
    "\"model\": {\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"fuse_unk\": true, " VOCAB                    \
    ", \"merges\": [[\"\xe2\x96\x81\", \"a\"]]}"
#define REPLACE                                                                                              \
    "\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": "                \
    "\"\xe2\x96\x81\"}"
#define ADDED                                                                                                \
    "\"added_tokens\": [{\"id\": 1, \"content\": \"<s>\", \"special\": true, \"lstrip\": false, "            \
    "\"rstrip\": true}]"

// The tensors of the llama of CONFIG: BF16, or norms and all in F32.
static const struct {
    const char *name;
    int rows, cols;
} shapes[] = {
    {"model.embed_tokens", 6, 8},
    {"model.norm", 8, 0},
    {"lm_head", 6, 8},
    {"model.layers.0.input_layernorm", 8, 0},
    {"model.layers.0.self_attn.q_proj", 8, 8},
    {"model.layers.0.self_attn.k_proj", 4, 8},
    {"model.layers.0.self_attn.v_proj", 4, 8},
    {"model.layers.0.self_attn.o_proj", 8, 8},
    {"model.layers.0.post_attention_layernorm", 8, 0},
    {"model.layers.0.mlp.gate_proj", 8, 8},
    {"model.layers.0.mlp.up_proj", 8, 8},
    {"model.layers.0.mlp.down_proj", 8, 8},
};
enum { NUM_SHAPES = sizeof shapes / sizeof *shapes };

// Tensors [first, end) as BF16: element i of tensor t is i + 100 t, as far as BF16 holds that.
static inline void write_shard(const char *file, int first, int end) {
    static char text[8192];
    static uint16_t data[4096];
    size_t n = 0, at = 0;
    n += (size_t)snprintf(text + 8, sizeof text - 8, "{");
    for (int t = first; t < end; t++) {
        int cols = shapes[t].cols ? shapes[t].cols : 1;
        char shape[32];
        snprintf(shape, sizeof shape, shapes[t].cols ? "%d, %d" : "%d", shapes[t].rows, shapes[t].cols);
        n += (size_t)snprintf(
            text + 8 + n, sizeof text - 8 - n,
            "%s\"%s.weight\": {\"dtype\": \"BF16\", \"shape\": [%s], \"data_offsets\": [%zu, %zu]}",
            t > first ? ", " : "", shapes[t].name, shape, 2 * at, 2 * (at + (size_t)(shapes[t].rows * cols)));
        for (int i = 0; i < shapes[t].rows * cols; i++) {
            float f = (float)(i + 100 * t);
            uint32_t u;
            memcpy(&u, &f, 4);
            data[at++] = (uint16_t)(u >> 16);
        }
    }
    n += (size_t)snprintf(text + 8 + n, sizeof text - 8 - n, "}");
    memcpy(text, &(uint64_t){n}, 8);
    memcpy(text + 8 + n, data, 2 * at);
    write_file(file, text, 8 + n + 2 * at);
}

static inline void write_sound(void) {
    static const char *const others[] = {"generation_config.json", "tokenizer_config.json",
                                         "chat_template.jinja", "special_tokens_map.json",
                                         "model.safetensors.index.json"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        remove_file(others[i]);
    write_text("config.json", CONFIG(""));
    write_text("tokenizer.json", "{" REPLACE ", " ADDED ", " MODEL "}");
    write_shard("model.safetensors", 0, NUM_SHAPES);
}

// Opens the folder; with all its checks. word NULL: must be right.
static inline void expect(const char *what, const char *word) {
    struct err err = {0};
    struct model_config config;
    struct model_file *f = model_file_open(folder, &err);
    struct tokenizer *t = NULL;
    bool ok = f && model_config_read(f, &config, &err) == STATUS_OK &&
              weights_check(&config, f, &err) == STATUS_OK && (t = tokenizer_load(f, &err));
    tokenizer_free(t);
    model_file_close(f);
    if (word ? ok || !strstr(err.msg, word) || !err.code : !ok)
        fail_msg("%s: expected '%s', got '%s'", what, word ? word : "ok", err.msg);
}

static inline int make_folder(void **state) {
    (void)state;
    char blobs[64];
    if (!mkdtemp(root))
        return 1;
    // as a cache has it: snapshots/x beside blobs
    snprintf(blobs, sizeof blobs, "%s/snapshots", root);
    snprintf(folder, sizeof folder, "%s/snapshots/x", root);
    if (mkdir(blobs, 0700) || mkdir(folder, 0700))
        return 1;
    snprintf(blobs, sizeof blobs, "%s/blobs", root);
    return mkdir(blobs, 0700);
}

static inline int remove_folder(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

struct change { // of one file
    const char *file, *text, *word;
};

static inline void expect_all(const struct change *changes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        write_sound();
        if (changes[i].text)
            write_text(changes[i].file, changes[i].text);
        else
            remove_file(changes[i].file);
        expect(changes[i].text ? changes[i].text : changes[i].file, changes[i].word);
    }
}
#define EXPECT_ALL(changes) expect_all(changes, sizeof(changes) / sizeof *(changes))

static inline float value_at(const struct model_file *f, const char *name, uint64_t i) {
    const struct model_tensor *t = model_file_find(f, name);
    struct err err = {0};
    uint32_t u = 0;
    float v;
    assert_non_null(t);
    uint64_t size = t->view.dtype == DTYPE_F32 ? 4 : 2;
    if (model_file_read(f, t, i * size, size, (char *)&u + (4 - size), &err))
        fail_msg("%s", err.msg);
    memcpy(&v, &u, 4);
    return v;
}

// A tensor's bytes are the same however they are read.
static inline void check_pieces(const struct model_file *f, const struct model_tensor *t) {
    struct err err = {0};
    unsigned char *whole = malloc(t->bytes), *part = malloc(t->bytes);
    assert_true(whole && part);
    assert_int_equal(model_file_read(f, t, 0, t->bytes, whole, &err), STATUS_OK);
    for (uint64_t n = 1; n < t->bytes; n += 1 + t->bytes / 16)
        for (uint64_t at = 0; at + n <= t->bytes; at += n) {
            assert_int_equal(model_file_read(f, t, at, n, part, &err), STATUS_OK);
            assert_memory_equal(part, whole + at, n);
        }
    free(whole);
    free(part);
}

struct raw_tensor {
    const char *name, *type, *shape;
    const void *data;
    size_t bytes;
};

static inline void write_raw(const struct raw_tensor *t, int num) {
    static char text[8192];
    size_t n = 1, at = 0, data = 0;
    text[8] = '{';
    for (int i = 0; i < num; i++) {
        n += (size_t)snprintf(text + 8 + n, 2048 - n,
                              "%s\"%s\": {\"dtype\": \"%s\", \"shape\": [%s], \"data_offsets\": [%zu, %zu]}",
                              i ? ", " : "", t[i].name, t[i].type, t[i].shape, at, at + t[i].bytes);
        at += t[i].bytes;
    }
    text[8 + n++] = '}';
    memcpy(text, &(uint64_t){n}, 8);
    for (int i = 0; i < num; i++) {
        memcpy(text + 8 + n + data, t[i].data, t[i].bytes);
        data += t[i].bytes;
    }
    write_file("model.safetensors", text, 8 + n + data);
}

#define DOWN "model.layers.0.mlp.down_proj.weight"
#define Q_PROJ "model.layers.0.self_attn.q_proj.weight"
