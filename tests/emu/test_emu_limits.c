// Steps of models at their real sizes, on a device of 132 SMs and as much memory as an H100 or two: every launch of
// them is one that a device takes. The device is dry (rt_test_dry()): no kernel runs and no memory is touched, so that seconds
// are enough. A model has two of its layers; the pages of a layer are as many as with all of them.
#include "harness.h"

#include "backend_cuda.h"
#define FIXTURE_INSPECT &inspect_cuda
#include "fixture.h"
#include "rt.h"

enum { BLOCK = 16, SMS = 132, MAX_TOKENS = 8192, MAX_SEQS = 256, MAX_CONTEXT = 32768 };

struct whole {
    const char *name;
    struct shape shape; // of two layers
    int layers;         // of the model
    int experts, top_k;
    bool gpt_oss; // every other layer has a window, all have sinks and biases
    enum dtype types[5];
    int num_types;
};

static const struct whole models[] = {
    {.name = "Llama-3.1-8B",
     .shape = {.layers = 2,
               .hidden = 4096,
               .heads = 32,
               .kv_heads = 8,
               .head_dim = 128,
               .ffn = 14336,
               .vocab = 128256},
     .layers = 32,
     .types = {DTYPE_BF16, DTYPE_F16, DTYPE_Q8_0, DTYPE_Q4_K, DTYPE_FP8},
     .num_types = 5},
    {.name = "Llama-3.1-70B",
     .shape = {.layers = 2,
               .hidden = 8192,
               .heads = 64,
               .kv_heads = 8,
               .head_dim = 128,
               .ffn = 28672,
               .vocab = 128256},
     .layers = 80,
     .types = {DTYPE_BF16, DTYPE_Q4_K, DTYPE_Q6_K, DTYPE_FP8},
     .num_types = 4},
    {.name = "Qwen3-30B-A3B",
     .shape = {.layers = 2,
               .hidden = 2048,
               .heads = 32,
               .kv_heads = 4,
               .head_dim = 128,
               .ffn = 768,
               .vocab = 151936,
               .qk_norm = true},
     .layers = 48,
     .experts = 128,
     .top_k = 8,
     .types = {DTYPE_BF16, DTYPE_Q4_K, DTYPE_FP8},
     .num_types = 3},
    {.name = "gpt-oss-20b",
     .shape = {.layers = 2,
               .hidden = 2880,
               .heads = 64,
               .kv_heads = 8,
               .head_dim = 64,
               .ffn = 2880,
               .vocab = 201088,
               .bias = true},
     .layers = 24,
     .experts = 32,
     .top_k = 4,
     .gpt_oss = true,
     .types = {DTYPE_MXFP4},
     .num_types = 1},
};

static struct model_config config_of(const struct whole *w) {
    struct model_config m = fixture_config(&w->shape);
    m.max_context = MAX_CONTEXT;
    m.ropes[0].theta = 500000;
    if (w->experts > 0)
        m.ffn[0] = (struct ffn_spec){.hidden = w->shape.ffn,
                                     .experts = w->experts,
                                     .top_k = w->top_k,
                                     .gating = w->gpt_oss ? GATING_SOFTMAX_CHOSEN : GATING_SOFTMAX,
                                     .renormalise = !w->gpt_oss,
                                     .router_bias = w->gpt_oss,
                                     .expert_bias = w->gpt_oss};
    if (!w->gpt_oss)
        return m;
    m.attn[0].sinks = true;
    m.attn[1] = m.attn[0];
    m.attn[1].index = 1, m.attn[1].window = 128;
    m.num_attn = 2;
    m.layers[1].attn = 1;
    return m;
}

// A step, twice or more where it may become a graph.
static void run(struct instance *in, const struct piece *pieces, int n, const char *what) {
    struct batch *b = batch_make(in, pieces, n);
    struct step_out out;
    struct err err = {0};
    int times = b->step.num_decode == n ? 3 : 1;
    for (int i = 0; i < times; i++) {
        forward(in, &b->step);
        if (in->ops->sync(in->dev, &out, &err) != STATUS_OK)
            fail_msg("%s: %d sequences, %d tokens, context %d: %s", what, n, b->step.num_tokens,
                     b->step.max_context_len, err.msg);
    }
    free(b);
}

static void run_all(struct instance *in, const char *what) {
    // As a server warms up, and then serves.
    static const int prompts[] = {8, 16, 17, 32, 33, 64, 65, 128, 512, 2048, 8192},
                     batches[] = {1, 2, 4, 8, 15, 16, 17, 24, 32, 33, 48, 64, 65, 96, 128, 192, 256};
    static struct piece pieces[MAX_SEQS + 1];
    for (size_t i = 0; i < sizeof prompts / sizeof prompts[0]; i++)
        run(in, &(struct piece){0, 0, prompts[i], false}, 1, what);
    for (size_t i = 0; i < sizeof batches / sizeof batches[0]; i++)
        for (int context = 512; context <= 4096; context *= 8) {
            for (int s = 0; s < batches[i]; s++)
                pieces[s] = (struct piece){s, context - 1, 1, false};
            run(in, pieces, batches[i], what);
        }
    for (int s = 0; s < 64; s++)
        pieces[s] = (struct piece){s, 511, 1, false};
    pieces[64] = (struct piece){64, 0, 448, false};
    run(in, pieces, 65, what);
    pieces[64] = (struct piece){64, 0, 4096, false};
    run(in, pieces, 65, what);
    in->limits.max_seqs = 4; // which share all pages
    run(in, &(struct piece){0, MAX_CONTEXT - 1, 1, false}, 1, what);
    run(in, &(struct piece){1, MAX_CONTEXT - 2048, 2048, false}, 1, what);
    in->limits.max_seqs = MAX_SEQS;
}

static void check(const struct whole *w, enum dtype type, enum dtype kv, size_t pool, int flags) {
    struct model_config m = config_of(w);
    struct fixture *f = fixture_of(&m, type);
    setenv("QUIRE_EMULATED_HOST_MEMORY", "0",
           1); // without pinned buffers nobody reads the weights, which are blank
    struct instance *in =
        instance_load(f, (struct setup){&backend_cuda, NULL, 1, BLOCK, kv}, flags | INSTANCE_NO_LOGITS);
    unsetenv("QUIRE_EMULATED_HOST_MEMORY");
    char what[128];
    fixture_free(f);
    assert_non_null(in);
    snprintf(what, sizeof what, "%s %s, cache of %zu GB in %s%s", w->name, dtype_name(type),
             pool / 1000000000, dtype_name(kv), flags & INSTANCE_EXACT ? ", exact" : "");
    size_t block = in->ops->kv_block_bytes(in->dev) * (size_t)w->layers / (size_t)m.num_layers;
    size_t vectors = pool / block * BLOCK * (size_t)w->shape.kv_heads;
    assert_true(vectors < (size_t)1 << 31); // of a layer: attention numbers them in 32 bits
    instance_reserve(in, (struct step_limits){.max_tokens = MAX_TOKENS,
                                              .max_seqs = MAX_SEQS,
                                              .max_rows = MAX_SEQS,
                                              .max_context = MAX_CONTEXT,
                                              .num_blocks = (int)(pool / block)});
    run_all(in, what);
    instance_close(in);
}

static void check_models(size_t pool) {
    fixture_blank = true;
    rt_test_dry(SMS, (size_t)200000000000);
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        for (int t = 0; t < models[i].num_types; t++) {
            check(&models[i], models[i].types[t], DTYPE_BF16, pool, 0);
            if (t > 0 && pool > (size_t)100000000000)
                continue; // the rest does not depend on both
            check(&models[i], models[i].types[t], DTYPE_I8, pool, 0);
            check(&models[i], models[i].types[t], DTYPE_BF16, pool, INSTANCE_EXACT);
            setenv("QUIRE_CUDA_WGMMA", "1", 1);
            check(&models[i], models[i].types[t], DTYPE_BF16, pool, 0);
            unsetenv("QUIRE_CUDA_WGMMA");
        }
    rt_test_dry(4, 0);
}

TEST(test_60_gb) { check_models((size_t)60000000000); }

TEST(test_120_gb) { check_models((size_t)120000000000); }

int main(void) { return run_all_tests(NULL, NULL); }
