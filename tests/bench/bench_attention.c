// Speed of attention over long contexts on the CPU: prefill as operations a second and as a share of the
// bf16 rate, decode as bytes of the cache a second and as a share of read bandwidth, both measured in the
// same run with the same threads (limits.h).
//
// As in a step, the layers take turns: all of LAYERS are attended to, one after another, so that nothing of a
// layer's cache is left in the CPU's when its turn comes again; the numbers are of one layer, the best
// of 20 decodes and of 2 prompts. Their keys and values lie as in the server, those of one block beside each
// other, and the sequence has its blocks in random order. 32,768 tokens of the largest shape in F32 take 4.3
// GB; where that is more than half of the memory there is, there are fewer layers, which is said.
//
//   bench_attention [threads [variant [context [type [phase]]]]]   threads 0: all CPUs; context 32768;
//   type of the cache as F16, or all; phase prefill or decode: both
#include "backend.h"
#include "inspect.h"

#include "clock.h"
#include "limits.h"
#include "memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 256, BLOCK = 16, LAYERS = 16 };

static const struct {
    const char *name;
    int heads, kv_heads, head_dim;
} shapes[] = {{"Qwen2.5-0.5B", 14, 2, 64}, {"Llama-3.2-1B", 32, 8, 64}, {"Llama-3.1-8B", 32, 8, 128}};

// Random blocks whose numbers are below 1 whatever the type; with I8 the scales are made so.
static void fill(struct device *dev, enum dtype kv, const struct model_config *m, int num_blocks) {
    size_t halves = 2 * (size_t)m->kv_layers, bytes = backend_cpu.kv_block_bytes(dev), half = bytes / halves;
    size_t vectors = (size_t)(BLOCK * m->attn[0].kv_heads), numbers = vectors * (size_t)m->attn[0].head_dim;
    unsigned char *block = malloc(bytes);
    if (!block)
        exit(1);
    for (int b = 0; b < num_blocks; b++) {
        for (size_t i = 0; i + 4 <= bytes; i += 4) {
            uint32_t u = bench_random() & 0x80ff80ffu;
            u |= kv == DTYPE_F16 ? 0x30003000u : kv == DTYPE_I8 ? bench_random() : 0x3e003e00u;
            memcpy(block + i, &u, 4);
        }
        for (size_t i = 0; kv == DTYPE_I8 && i < halves * vectors; i++)
            memcpy(block + i / vectors * half + numbers + i % vectors * 4, &(float){0.002f}, 4);
        inspect_cpu.kv_import(dev, b, block);
    }
    free(block);
}

// The most layers, up to LAYERS, whose cache takes at most half of the memory there is; at least one.
static int layers_that_fit(const struct model_config *m, enum dtype kv, int blocks) {
    const struct attn_spec *a = &m->attn[0];
    double layer = 2.0 * blocks * BLOCK * a->kv_heads * (double)backend_kv_vector_bytes(kv, a->head_dim);
    double fit = (double)memory_available() / 2 / layer;
    return fit < 1 ? 1 : fit < LAYERS ? (int)fit : LAYERS;
}

static void run(int shape, enum dtype kv, int threads, const char *variant, int context, const char *phase,
                const struct limits *limit) {
    struct model_config m = {.hidden = 64,
                             .vocab = 64,
                             .norm_eps = 1e-5f,
                             .logit_scale = 1,
                             .num_attn = 1,
                             .num_ffn = 1,
                             .num_groups = 1};
    m.attn[0] = (struct attn_spec){.heads = shapes[shape].heads,
                                   .kv_heads = shapes[shape].kv_heads,
                                   .head_dim = shapes[shape].head_dim,
                                   .scale = 1 / sqrtf((float)shapes[shape].head_dim),
                                   .rope = -1};
    m.ffn[0].hidden = 64;
    struct device_config config = {.model = &m,
                                   .num_threads = threads,
                                   .variant = variant,
                                   .kv_dtype = kv,
                                   .block_size = BLOCK,
                                   .world = 1};
    struct err err = {0};
    struct activations act;
    int blocks = (context + BLOCK - 1) / BLOCK;
    m.num_layers = m.kv_layers = layers_that_fit(&m, kv, blocks);
    for (int i = 0; i < m.num_layers; i++)
        m.layers[i].kv_layer = (uint16_t)i;
    struct step_limits limits = {
        .max_tokens = ROWS, .max_seqs = 4, .max_rows = ROWS, .max_context = context, .num_blocks = blocks};
    struct device *dev = backend_cpu.open(NULL, &config, &err);
    if (!dev || backend_cpu.reserve(dev, &limits, &err) != STATUS_OK) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
    fill(dev, kv, &m, blocks);
    int width = m.attn[0].heads * m.attn[0].head_dim;
    inspect_cpu.view(dev, &act);
    for (int i = 0; i < ROWS * width; i++)
        ((float *)act.q)[i] = (float)(bench_random() & 0xffffu) / 32768.0f - 1;
    int32_t positions[ROWS], start[2] = {0, 0}, block_start[2] = {0, blocks};
    int32_t *ids = malloc((size_t)blocks * sizeof *ids);
    if (!ids)
        exit(1);
    for (int i = 0; i < blocks; i++) { // a random order
        int j = (int)(bench_random() % (uint32_t)(i + 1));
        ids[i] = ids[j];
        ids[j] = i;
    }
    for (int decode = 0; decode < 2; decode++) {
        int rows = decode ? 1 : ROWS;
        if (phase && strcmp(phase, decode ? "decode" : "prefill") != 0)
            continue;
        for (int i = 0; i < rows; i++)
            positions[i] = context - rows + i;
        start[1] = rows;
        struct step step = {.num_tokens = rows,
                            .num_seqs = 1,
                            .num_decode = decode,
                            .max_query_len = rows,
                            .max_context_len = context,
                            .positions = positions,
                            .query_start = start,
                            .context_len = &context,
                            .groups[0].block_start = block_start,
                            .groups[0].block_ids = ids};
        double best = INFINITY;
        for (int round = 0; round < (decode ? 20 : 2); round++) {
            double t = clock_now_s();
            for (int i = 0; i < m.num_layers; i++) {
                struct layer layer = {.index = i, .attn = m.attn[0], .kv_layer = i};
                if (decode)
                    backend_cpu.attn_decode(dev, &layer, &step);
                else
                    backend_cpu.attn_prefill(dev, &layer, &step);
            }
            best = fmin(best, (clock_now_s() - t) / m.num_layers);
        }
        double ops = 4.0 * width * rows * (context - rows / 2.0);
        double bytes = (double)backend_cpu.kv_block_bytes(dev) * blocks / m.num_layers;
        printf("  %-12s kv %-4s %-7s %8.2f ms  %6.1f GOP/s = %3.0f %% of bf16", shapes[shape].name,
               dtype_name(kv), decode ? "decode" : "prefill", best * 1e3, ops / best * 1e-9,
               limit->bf16 > 0 ? 100 * ops / best / limit->bf16 : 0.0);
        if (decode)
            printf("  %6.1f GB/s = %3.0f %% of read", bytes / best * 1e-9, 100 * bytes / best / limit->read);
        if (m.num_layers < LAYERS)
            printf("  (%d layers)", m.num_layers);
        printf("\n");
    }
    free(ids);
    backend_cpu.close(dev);
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 0, context = argc > 3 ? atoi(argv[3]) : 32768;
    const char *variant = argc > 2 ? argv[2] : "auto";
    static const enum dtype kv[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_I8};
    if (context < ROWS) {
        fprintf(stderr, "the context must be at least %d\n", ROWS);
        return 2;
    }
    struct limits limit;
    limits_measure(threads, LIMITS_PASSES, &limit);
    printf("context %d, %d threads; read %.1f GB/s, bf16 %.0f GOP/s, f32 %.0f GOP/s\n", context,
           limit.threads, limit.read * 1e-9, limit.bf16 * 1e-9, limit.f32 * 1e-9);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t i = 0; i < sizeof kv / sizeof *kv; i++)
            if (argc < 5 || strcmp(argv[4], "all") == 0 || strcmp(argv[4], dtype_name(kv[i])) == 0)
                run((int)s, kv[i], threads, variant, context, argc < 6 ? NULL : argv[5], &limit);
    return 0;
}
