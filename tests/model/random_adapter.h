// Random adapters of random models, as GGUF files.
#pragma once

#include "random_model.h"

struct adapter_shape { // of a random adapter
    enum dtype a, b;
    int rank;
    float alpha;
    const char *targets; // of "qkvogud"
};

// Writes one for the random model of 8 heads, 2 kv heads and F; path becomes its name.
static inline void write_adapter(const struct adapter_shape *s, const char *arch, int F, char *path) {
    static const char letters[] = "qkvogud";
    static const char *const names[] = {"attn_q",   "attn_k", "attn_v",  "attn_output",
                                        "ffn_gate", "ffn_up", "ffn_down"};
    const int D = random_shape.hidden, Q = 8 * random_shape.head_dim, K = 2 * random_shape.head_dim;
    const int out[] = {Q, K, K, D, F, F, D}, in[] = {D, D, D, Q, D, D, F};
    struct gguf_writer w = {0};
    char name[64];
    gw_str(&w, "general.type", "adapter");
    gw_str(&w, "general.architecture", arch);
    gw_str(&w, "adapter.type", "lora");
    gw_f32(&w, "adapter.lora.alpha", s->alpha);
    for (int layer = 0; layer < random_layers; layer++)
        for (const char *t = s->targets; *t; t++) {
            int i = (int)(strchr(letters, *t) - letters);
            snprintf(name, sizeof name, "blk.%d.%s.weight.lora_a", layer, names[i]);
            random_model_tensor(&w, name, s->a, s->rank, in[i]);
            snprintf(name, sizeof name, "blk.%d.%s.weight.lora_b", layer, names[i]);
            random_model_tensor(&w, name, s->b, out[i], s->rank);
        }
    size_t size;
    unsigned char *file = gw_finish(&w, &size);
    strcpy(path, "/tmp/quire-adapter-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, file, size) == (ssize_t)size && close(fd) == 0);
    free(file);
}
