// Defaults of architectures.c's rows for files without the key: kinds of routers, scales of one size of a family,
// windows, temperatures. The random models of test_json_arch are small, and their files have the keys.
#include "../tools/gguf_write.h"
#include "harness.h"
#include "models/gguf.h"
#include "models/model_config.h"

#include <math.h>

struct number {
    const char *suffix;
    double value; // not whole: a float; -infinity: an array with it for each layer
};

static void put_number(struct gguf_writer *w, const char *arch, int layers, const struct number *n) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", arch, n->suffix);
    if (n->value == -INFINITY) {
        float values[MODEL_MAX_LAYERS];
        for (int i = 0; i < layers; i++)
            values[i] = -INFINITY;
        gw_array(w, key, 6, (uint64_t)layers, values, (size_t)layers * sizeof *values);
    } else if (n->value == floor(n->value))
        gw_u32(w, key, (uint32_t)n->value);
    else
        gw_f32(w, key, (float)n->value);
}

// Heads of 8, of which 4 are query heads, in a model of 48.
static void read_keys(const char *arch, int layers, const struct number *more, struct model_config *c) {
    const struct number keys[] = {{"block_count", layers},
                                  {"context_length", 128},
                                  {"embedding_length", 48},
                                  {"feed_forward_length", 32},
                                  {"attention.head_count", 4},
                                  {"attention.head_count_kv", 2},
                                  {"attention.key_length", 8},
                                  {"attention.value_length", 8},
                                  {"attention.layer_norm_rms_epsilon", 1e-5}};
    struct gguf_writer w = {0};
    struct err err = {0};
    size_t size;
    gw_str(&w, "general.architecture", arch);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        bool again = false;
        for (const struct number *m = more; m->suffix; m++)
            again |= strcmp(m->suffix, keys[i].suffix) == 0;
        if (!again)
            put_number(&w, arch, layers, &keys[i]);
    }
    for (; more->suffix; more++)
        put_number(&w, arch, layers, more);
    gw_str(&w, "tokenizer.ggml.model", "llama");
    gw_strings(&w, "tokenizer.ggml.tokens", 3, (const char *const[]){"<unk>", "<s>", "</s>"});
    gw_tensor(&w, "token_embd.weight", 0, 2, (uint64_t[]){48, 3}, NULL, 4 * 48 * 3);
    unsigned char *file = gw_finish(&w, &size);
    struct model_file *g = gguf_parse(file, size, "test.gguf", &err);
    if (!g || model_config_read(g, c, &err) != STATUS_OK)
        fail_msg("%s: %s", arch, err.msg);
    model_file_close(g);
    free(file);
}

TEST(test_routers) {
    static const struct number experts[] = {{"expert_count", 8},
                                            {"expert_used_count", 2},
                                            {"expert_feed_forward_length", 16},
                                            {"expert_shared_feed_forward_length", 16},
                                            {NULL, 0}};
    static const struct number few[] = {
        {"expert_count", 8}, {"expert_used_count", 2}, {"expert_feed_forward_length", 16}, {NULL, 0}};
    static const struct number latent[] = {{"expert_count", 8},
                                           {"expert_used_count", 2},
                                           {"expert_feed_forward_length", 16},
                                           {"attention.kv_lora_rank", 12},
                                           {"attention.key_length", 18},
                                           {"attention.value_length", 12},
                                           {"attention.key_length_mla", 14},
                                           {"attention.value_length_mla", 5},
                                           {"rope.dimension_count", 6},
                                           {NULL, 0}};
    static const struct {
        const char *arch;
        const struct number *keys;
        enum gating gating;
        bool renormalise;
    } cases[] = {
        {"dots1", few, GATING_SIGMOID, false},        {"glm4moe", few, GATING_SIGMOID, false},
        {"deepseek2", latent, GATING_SOFTMAX, false}, {"qwen3moe", few, GATING_SOFTMAX, true},
        {"qwen2moe", experts, GATING_SOFTMAX, false}, {"ernie4_5-moe", few, GATING_SOFTMAX, true},
        {"hunyuan-moe", few, GATING_SOFTMAX, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_config c;
        read_keys(cases[i].arch, 2, cases[i].keys, &c);
        const struct ffn_spec *f = &c.ffn[c.layers[1].ffn];
        if (f->experts != 8 || f->gating != cases[i].gating || f->renormalise != cases[i].renormalise)
            fail_msg("%s: %d experts, gating %d, renormalised %d", cases[i].arch, f->experts, f->gating,
                     f->renormalise);
    }
}

// The largest of Gemma 2 and 3 scale scores by the width of the model, not of a head.
TEST(test_scales) {
    static const struct number gemma2[] = {{"attention.sliding_window", 16},
                                           {"attn_logit_softcapping", 50.5},
                                           {"final_logit_softcapping", 30.5},
                                           {NULL, 0}};
    static const struct number gemma3[] = {{"attention.sliding_window", 16}, {NULL, 0}};
    for (int layers = 44; layers <= 64; layers++) {
        struct model_config c;
        read_keys("gemma2", layers, gemma2, &c);
        if (c.attn[0].scale != 1 / sqrtf(layers == 46 ? 48.0f / 4 : 8))
            fail_msg("gemma2, %d layers: %g", layers, (double)c.attn[0].scale);
        read_keys("gemma3", layers, gemma3, &c);
        if (c.attn[0].scale != 1 / sqrtf(layers == 62 ? 48.0f / 4 : 8))
            fail_msg("gemma3, %d layers: %g", layers, (double)c.attn[0].scale);
    }
}

static const struct attn_spec *attn_at(const struct model_config *c, int layer) {
    return &c->attn[c->layers[layer].attn];
}

TEST(test_layers) {
    struct model_config c;
    static const struct number none[] = {{NULL, 0}}, window[] = {{"attention.sliding_window", 16}, {NULL, 0}};
    read_keys("llama4", 8, none, &c);
    for (int i = 0; i < 8; i++) { // each fourth without rotation or chunks has a temperature
        const struct attn_spec *a = attn_at(&c, i);
        bool still = i % 4 == 3;
        assert_true((a->rope < 0) == still && (a->window == 0) == still);
        assert_true(a->temp_scale == (still ? 0.1f : 0));
        assert_true(!still || (a->temp_step == 8192 && a->temp_offset == 1));
    }
    static const struct number softcaps[] = {{"attention.sliding_window", 16},
                                             {"attn_logit_softcapping", 50.5},
                                             {"final_logit_softcapping", 30.5},
                                             {NULL, 0}};
    static const struct number cohere2[] = {{"attention.sliding_window", 16},
                                            {"attention.layer_norm_epsilon", 1e-5},
                                            {"logit_scale", 0.25},
                                            {NULL, 0}};
    static const struct number gpt_oss[] = {{"attention.sliding_window", 16},
                                            {"expert_count", 8},
                                            {"expert_used_count", 2},
                                            {"expert_feed_forward_length", 16},
                                            {NULL, 0}};
    static const struct number gemma3n[] = {{"attention.sliding_window", 16},
                                            {"embedding_length_per_layer_input", 4},
                                            {"activation_sparsity_scale", -INFINITY},
                                            {NULL, 0}};
    static const struct number modern_bert[] = {
        {"attention.sliding_window", 16}, {"attention.layer_norm_epsilon", 1e-5}, {NULL, 0}};
    static const struct {
        const char *arch;
        const struct number *keys;
        int every, full; // so many layers have one without a window, this of them
    } cases[] = {
        {"gemma2", softcaps, 2, 1}, {"gemma3", window, 6, 5},           {"gemma3n", gemma3n, 5, 4},
        {"olmo2", window, 4, 3},    {"exaone4", window, 4, 3},          {"cohere2", cohere2, 4, 3},
        {"gpt-oss", gpt_oss, 2, 1}, {"modern-bert", modern_bert, 3, 0}, {"gemma-embedding", window, 6, 5}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        read_keys(cases[k].arch, 12, cases[k].keys, &c);
        for (int i = 0; i < 12; i++)
            if ((attn_at(&c, i)->window == 0) != (i % cases[k].every == cases[k].full))
                fail_msg("%s: layer %d has a window of %d", cases[k].arch, i, attn_at(&c, i)->window);
    }
}

int main(void) { return run_all_tests(NULL, NULL); }
