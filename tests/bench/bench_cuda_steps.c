// Whole steps of random weights over a random cache, what CUDA graphs and overlapping kernels gain, and what
// `--exact` costs. See bench_cuda.c.
#include "backend_cuda.h"
#include "bench_cuda.h"
#include "clock.h"
#include "device.h"
#define FIXTURE_INSPECT &inspect_cuda
#include "fixture.h"

// ---- whole steps

struct model_shape {
    const char *name;
    int layers, hidden, heads, kv_heads, d, ffn, vocab;
};

// Loads a weight whose parts are all the beginning of `pattern`, rows of some random numbers that repeat.
static const struct weight *load(struct device *dev, enum weight_role role, int layer, enum dtype type, int n,
                                 const int *rows, int cols, const char *pattern) {
    struct weight_desc w = {.role = role, .layer = layer};
    struct err err = {0};
    for (int i = 0; i < n; i++) // a single row is a norm, a vector
        w.part[i] = rows[i] == 1 ? (struct tensor){pattern, type, 1, {cols}}
                                 : (struct tensor){pattern, type, 2, {rows[i], cols}};
    const struct weight *loaded = backend_cuda.weight_load(dev, &w, &err);
    if (!loaded)
        fprintf(stderr, "%s\n", err.msg);
    return loaded;
}

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

// Fills the cache with random numbers, on the device: zeros would flatter attention. (A cache of 8 bits would
// need scales, too; here it is bf16.)
static void fill_cache(struct instance *in) {
    struct device *dev = in->dev;
    struct err err = {0};
    size_t bytes = (size_t)dev->limits.num_blocks * in->ops->kv_block_bytes(dev);
    stream_fill_random(dev->rt, dev->keys, bytes / 16 * 16, STREAM_BF16, 1);
    rt_mark(dev->rt, 0);
    if (rt_wait(dev->rt, 0, &err) != STATUS_OK)
        fail(err.msg);
}

// Ends the program where a block of the cache has an element that is zero (of random ones, none is) or not
// finite.
static void check_cache(struct instance *in) {
    size_t n = in->ops->kv_block_bytes(in->dev) / sizeof(uint16_t);
    uint16_t *block = must_calloc(n, sizeof *block);
    int last = in->limits.num_blocks - 1;
    for (int i = 0; i < 3; i++) {
        in->inspect->kv_export(in->dev, i * last / 2, block);
        for (size_t k = 0; k < n; k++)
            if ((block[k] & 0x7fff) == 0 || (block[k] & 0x7f80) == 0x7f80)
                fail("the cache that attention is measured on holds zeros, or what is no number");
    }
    free(block);
}

// The most tokens of a step, sequences of a step and tokens of a context that an instance takes. Blocks: as many as
// its memory holds beside, at most those of a step of 256 sequences of 4,096 tokens.
struct most {
    int tokens, seqs, context;
};

static struct instance *open_model(const struct model_shape *s, enum dtype type, struct fixture *f,
                                   struct most most, bool exact) {
    struct instance *in = must_calloc(1, sizeof *in);
    struct err err = {0};
    int q = s->heads * s->d, kv = s->kv_heads * s->d, one = 1;
    f->config = fixture_config(&(struct shape){.layers = s->layers,
                                               .hidden = s->hidden,
                                               .heads = s->heads,
                                               .kv_heads = s->kv_heads,
                                               .head_dim = s->d,
                                               .ffn = s->ffn,
                                               .vocab = s->vocab});
    f->config.max_context = most.context;
    f->config.ropes[0].theta = 500000;
    struct device_config config = {
        .model = &f->config, .kv_dtype = DTYPE_BF16, .block_size = 16, .world = 1, .exact = exact};
    in->ops = &backend_cuda;
    in->inspect = &inspect_cuda;
    in->block_size = 16;
    in->dev = backend_cuda.open(NULL, &config, &err);
    struct layer *layers = must_calloc((size_t)s->layers, sizeof *layers);
    // The largest matrix of the type, of bf16 for the embedding, of f32 for norms.
    int rows = s->vocab > s->ffn ? s->vocab : s->ffn;
    int cols = s->hidden;
    if ((double)s->hidden * s->ffn > (double)rows * cols)
        rows = s->hidden, cols = s->ffn;
    struct tensor pattern = random_tensor(type, rows, cols, 0.02f),
                  embed = random_tensor(DTYPE_BF16, s->vocab, s->hidden, 0.02f),
                  norm = random_tensor(DTYPE_F32, 1, s->hidden, 0.02f);
    if (!in->dev)
        fail(err.msg);
    bool ok =
        (in->model.embed = load(in->dev, WEIGHT_EMBED, -1, DTYPE_BF16, 1, &s->vocab, s->hidden, embed.data));
    for (int l = 0; ok && l < s->layers; l++) {
        const char *w = pattern.data;
        layers[l] = (struct layer){.index = l,
                                   .attn = *model_attn(&f->config, l),
                                   .ffn = *model_ffn(&f->config, l),
                                   .kv_layer = f->config.layers[l].kv_layer};
        struct layer *to = &layers[l];
        ok = (to->attn_norm = load(in->dev, WEIGHT_ATTN_NORM, l, DTYPE_F32, 1, &one, s->hidden, norm.data)) &&
             (to->qkv = load(in->dev, WEIGHT_QKV, l, type, 3, (int[]){q, kv, kv}, s->hidden, w)) &&
             (to->attn_out = load(in->dev, WEIGHT_ATTN_OUT, l, type, 1, &s->hidden, q, w)) &&
             (to->ffn_norm = load(in->dev, WEIGHT_FFN_NORM, l, DTYPE_F32, 1, &one, s->hidden, norm.data)) &&
             (to->gate_up =
                  load(in->dev, WEIGHT_GATE_UP, l, type, 2, (int[]){s->ffn, s->ffn}, s->hidden, w)) &&
             (to->down = load(in->dev, WEIGHT_DOWN, l, type, 1, &s->hidden, s->ffn, w));
    }
    ok =
        ok &&
        (in->model.out_norm = load(in->dev, WEIGHT_OUT_NORM, -1, DTYPE_F32, 1, &one, s->hidden, norm.data)) &&
        (in->model.head = load(in->dev, WEIGHT_HEAD, -1, type, 1, &s->vocab, s->hidden, pattern.data));
    free((void *)(uintptr_t)pattern.data);
    free((void *)(uintptr_t)embed.data);
    free((void *)(uintptr_t)norm.data);
    in->model.config = f->config;
    in->model.layers = layers;
    if (ok) { // activations of a step take the rest
        struct rt_info info;
        rt_describe(in->dev->rt, &info);
        double room = 0.9 * (double)info.free - (double)most.tokens * 4 * (s->hidden + 4.0 * s->ffn) -
                      (double)most.seqs * s->vocab * 8;
        double blocks = fmin(room / (double)in->ops->kv_block_bytes(in->dev), 65536);
        int whole = (most.context + 15) / 16;
        if (most.seqs == 1 || blocks < whole || tiny)
            blocks = (double)whole * (tiny ? most.seqs : 1);
        in->limits = (struct step_limits){.max_tokens = most.tokens,
                                          .max_seqs = most.seqs,
                                          .max_rows = most.seqs,
                                          .max_context = most.context,
                                          .num_blocks = (int)blocks};
    }
    if (!ok || in->ops->reserve(in->dev, &in->limits, &err) != STATUS_OK) {
        fprintf(stderr, "%s\n", err.msg);
        in->ops->close(in->dev);
        free(in), free(layers);
        return NULL;
    }
    fill_cache(in);
    return in;
}

static void close_model(struct instance *in) {
    check_cache(in); // after all steps: what they have written are numbers, too
    in->ops->close(in->dev);
    free(in->model.layers);
    free(in);
}

static void run_step(struct instance *in, const struct step *step) {
    const struct backend_ops *ops = in->ops;
    if (ops->step_begin(in->dev, step))
        return;
    ops->embed(in->dev, &in->model, step);
    for (int i = 0; i < in->model.config.num_layers; i++) {
        const struct layer *layer = &in->model.layers[i];
        ops->qkv(in->dev, layer, step);
        if (step->num_decode > 0)
            ops->attn_decode(in->dev, layer, step);
        if (step->num_decode < step->num_seqs)
            ops->attn_prefill(in->dev, layer, step);
        ops->attn_out(in->dev, layer, step);
        ops->ffn_in(in->dev, layer, step);
        ops->ffn_out(in->dev, layer, step);
    }
    ops->head(in->dev, &in->model, step);
    ops->step_end(in->dev);
}

// Seconds of one step, the next queued before this one is read: the median of the times between results. All blocks are
// those of the n sequences of this step.
static double time_steps(struct instance *in, const struct piece *pieces, int n, int steps) {
    double samples[64], last = 0;
    int max_seqs = in->limits.max_seqs, warm = tiny || steps > 8 ? 4 : 2,
        num = 0; // the second of a bucket is captured
    in->limits.max_seqs = n;
    struct batch *a = batch_make(in, pieces, n), *b = batch_make(in, pieces, n);
    in->limits.max_seqs = max_seqs;
    struct step_out out;
    struct err err = {0};
    for (int i = 0; i < n; i++)
        a->rows[i].num_logprobs = b->rows[i].num_logprobs = -1;
    for (int i = 0; i <= steps + warm + 1; i++) {
        if (i <= steps + warm)
            run_step(in, i % 2 ? &b->step : &a->step);
        if (i == 0)
            continue;
        if (in->ops->sync(in->dev, &out, &err) != STATUS_OK)
            fail(err.msg);
        if (i > warm && i <= steps + warm)
            samples[num++] = clock_now_s() - last;
        last = clock_now_s();
    }
    for (int i = 0; i < n; i++)
        if (out.failed[i])
            fail("a step of random weights gave logits that are no numbers");
    free(a), free(b);
    return median(samples, num);
}

static void step_row(const char *kind, const char *shape, double tokens, double seconds, double limit) {
    fprintf(md, "| %s | %s | %.3f | %.0f | %.0f %% |\n", kind, shape, seconds * 1e3, tokens / seconds,
            100 * limit / seconds);
    fprintf(json,
            "%s\n    {\"step\": \"%s\", \"shape\": \"%s\", \"ms\": %.4f, \"tokens_per_s\": %.1f, \"share\": "
            "%.4f}",
            separator, kind, shape, seconds * 1e3, tokens / seconds, limit / seconds);
    row_done();
}

// Weights of all layers but embedding and head.
static double layer_weights(const struct model_shape *s) {
    return (double)s->layers *
           ((double)s->hidden * (2.0 * s->heads + 2.0 * s->kv_heads) * s->d + 3.0 * s->hidden * s->ffn);
}

// A prompt in chunks, each a step.
static void bench_prompt(const char *kind, struct instance *in, const struct model_shape *s, enum dtype type,
                         int n, int chunk) {
    double seconds = 0, attention = 2.0 * n * n * s->heads * s->d * s->layers;
    char shape[96];
    if (n > in->limits.num_blocks * 16)
        return;
    for (int at = 0; at < n; at += chunk) {
        struct piece p = {0, at, n - at < chunk ? n - at : chunk, false};
        seconds += time_steps(in, &p, 1, tiny ? 1 : n / chunk > 8 ? 2 : 5);
    }
    snprintf(shape, sizeof shape, "%s %s, %d tokens in chunks of %d", s->name, dtype_name(type), n, chunk);
    step_row(kind, shape, n, seconds, (2 * layer_weights(s) * n + attention) / matrix_rate);
}

static void bench_prompts(const char *kind, struct instance *in, const struct model_shape *s,
                          enum dtype type) {
    static const int prompts[][2] = {{512, 512},   {2048, 512},  {2048, 2048},  {8192, 512},
                                     {8192, 2048}, {8192, 8192}, {32768, 2048}, {32768, 8192}},
                     small[][2] = {{8, 8}, {32, 16}};
    int most = in->limits.max_tokens;
    for (int i = 0; i < (tiny ? 2 : 8); i++) {
        const int *p = tiny ? small[i] : prompts[i];
        if (p[1] <= most && p[0] <= in->limits.max_context)
            bench_prompt(kind, in, s, type, p[0], p[1]);
    }
}

// Measures a step of n sequences that decode, and `prompt` tokens of one more.
static void bench_decodes(const char *kind, struct instance *in, const struct model_shape *s, enum dtype type,
                          int n, int context, int prompt) {
    static struct piece pieces[256];
    char shape[96];
    double head = (double)s->vocab * s->hidden, each = (double)dtype_row_bytes(type, 256) / 256,
           matrix = layer_weights(s),
           bytes = (matrix + head) * each + 4.0 * s->layers * s->kv_heads * s->d * (double)n * context;
    int seqs = n + (prompt > 0);
    snprintf(shape, sizeof shape, "%s %s, batch %d, context %d", s->name, dtype_name(type), n, context);
    if (prompt > 0)
        snprintf(shape, sizeof shape, "%s %s, batch %d, context %d, %d of a prompt", s->name,
                 dtype_name(type), n, context, prompt);
    if ((double)seqs * ((context + 15) / 16) > in->limits.num_blocks || seqs > in->limits.max_seqs ||
        n + prompt > in->limits.max_tokens) {
        fprintf(md, "| %s | %s | does not fit | | |\n", kind, shape);
        return;
    }
    for (int i = 0; i < n; i++)
        pieces[i] = (struct piece){i, context - 1, 1, false};
    pieces[n < 256 ? n : 0] = n < 256 ? (struct piece){n, 0, prompt, false} : pieces[0];
    double seconds = time_steps(in, pieces, seqs,
                                tiny     ? 2
                                : n > 64 ? 20
                                         : 50),
           work = prompt > 0 ? 2 * matrix * (n + prompt) / matrix_rate : 0;
    step_row(kind, shape, n + prompt, seconds, fmax(bytes / bandwidth, work));
}

static void bench_model(const struct model_shape *s, enum dtype type) {
    static const int batches[] = {1, 16, 64, 128, 256}, contexts[] = {512, 4096, 32768};
    struct fixture f = {0};
    struct cuda_kv kv = {.dtype = DTYPE_BF16, .block_size = 16, .head_dim = s->d};
    struct most most = tiny ? (struct most){64, 5, 64} : (struct most){8192, 256, 32768}, one = most;
    struct instance *in = open_model(s, type, &f, most, false);
    if (!in) {
        fprintf(md, "| decode | %s %s | does not fit | | |\n", s->name, dtype_name(type));
        return;
    }
    for (int c = 0; c < (tiny ? 2 : 3); c++)
        for (int b = 0; b < (tiny ? 3 : 5); b++)
            bench_decodes("decode", in, s, type, tiny ? 1 << b : batches[b], tiny ? 32 << c : contexts[c], 0);
    bench_decodes("mixed", in, s, type, tiny ? 2 : 64, tiny ? 32 : 512, tiny ? 20 : 448);
    bench_prompts("prefill", in, s, type);
    close_model(in);
    if (cuda_has_wide_prefill(rt, &kv)) {
        setenv("QUIRE_CUDA_WGMMA", "1", 1); // read when memory is reserved
        if ((in = open_model(s, type, &f, most, false))) {
            bench_prompts("prefill, wgmma", in, s, type);
            for (int b = 0; type == DTYPE_BF16 && b < (tiny ? 1 : 5); b++) // other weights keep their GEMM
                bench_decodes("decode, wgmma", in, s, type, tiny ? 2 : batches[b], tiny ? 32 : 512, 0);
            close_model(in);
        }
        unsetenv("QUIRE_CUDA_WGMMA");
    }
    one.seqs = 1;
    one.tokens = one.context = tiny ? 32 : 2048;
    if ((in = open_model(s, type, &f, one, true))) {
        bench_prompt("prefill, exact", in, s, type, one.tokens, one.tokens);
        close_model(in);
    }
}

// Measures the gain of CUDA graphs and overlapping kernels where launches weigh most, one sequence; and the cost of
// the exact mode there, which has neither split attention nor graphs.
static void bench_gains(const struct model_shape *s, enum dtype type) {
    static const struct {
        const char *name, *overlap, *graphs;
        bool exact;
    } ways[] = {{"as served", "1", "1", false},
                {"no overlap", "0", "1", false},
                {"no graphs", "1", "0", false},
                {"neither", "0", "0", false},
                {"exact", "1", "1", true}};
    int context = tiny ? 32 : 512;
    double each = (double)dtype_row_bytes(type, 256) / 256,
           bytes = (layer_weights(s) + (double)s->vocab * s->hidden) * each +
                   4.0 * s->layers * s->kv_heads * s->d * context;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct fixture f = {0};
        struct piece p = {0, context - 1, 1, false};
        char shape[96];
        setenv("QUIRE_CUDA_OVERLAP", ways[i].overlap, 1); // read when a device is opened
        setenv("QUIRE_CUDA_GRAPHS", ways[i].graphs, 1);
        struct instance *in = open_model(s, type, &f, (struct most){64, 1, context}, ways[i].exact);
        snprintf(shape, sizeof shape, "%s %s, batch 1, context %d: %s", s->name, dtype_name(type), context,
                 ways[i].name);
        if (in) {
            step_row("decode", shape, 1, time_steps(in, &p, 1, tiny ? 2 : 50), bytes / bandwidth);
            close_model(in);
        } else {
            fprintf(md, "| decode | %s | does not fit | | |\n", shape);
        }
    }
    unsetenv("QUIRE_CUDA_OVERLAP");
    unsetenv("QUIRE_CUDA_GRAPHS");
}

static const struct model_shape shapes[] = {{"Llama-3-8B", 32, 4096, 32, 8, 128, 14336, 128256},
                                            {"Qwen2.5-0.5B", 24, 896, 14, 2, 64, 4864, 151936}},
                                small = {"tiny", 1, 256, 4, 2, 64, 256, 500};
static const enum dtype types[] = {DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_K};
static const char *columns = "| step | shape | ms | tokens/s | of roofline |";

void bench_brief(void) {
    static const int batches[] = {1, 16, 64, 128, 256}, prompts[] = {2048, 8192};
    const struct model_shape *s = tiny ? &small : &shapes[0];
    section("Steps of random weights", columns);
    for (int i = 0; i < 3; i++) {
        struct fixture f = {0};
        struct instance *in = open_model(
            s, types[i], &f, tiny ? (struct most){64, 5, 64} : (struct most){2048, 256, 8192}, false);
        if (!in) {
            fprintf(md, "| decode | %s %s | does not fit | | |\n", s->name, dtype_name(types[i]));
            continue;
        }
        for (int b = 0; b < (tiny ? 2 : 5); b++)
            bench_decodes("decode", in, s, types[i], tiny ? 1 << b : batches[b], tiny ? 32 : 512, 0);
        for (int p = 0; p < (tiny ? 1 : 2); p++)
            bench_prompt("prefill", in, s, types[i], tiny ? 32 : prompts[p], tiny ? 16 : 2048);
        close_model(in);
    }
}

void bench_steps(void) {
    section("Steps of random weights", columns);
    for (int s = 0; s < (tiny ? 1 : 2); s++)
        for (int i = 0; i < 3; i++) {
            const struct model_shape *m = tiny ? &small : &shapes[s];
            bool whole = m->hidden % 256 == 0 && m->ffn % 256 == 0;
            // Q4_K wants rows of whole blocks.
            bench_model(m, types[i] == DTYPE_Q4_K && !whole ? DTYPE_Q4_0 : types[i]);
        }
    for (int m = 0; m < (tiny ? 1 : 2); m++) {
        bench_gains(tiny ? &small : &shapes[m], DTYPE_BF16);
        bench_gains(tiny ? &small : &shapes[m], DTYPE_Q4_0);
    }
    fprintf(
        md,
        "\n`no overlap`: no kernel begins before the one before it has ended (QUIRE_CUDA_OVERLAP=0), so that "
        "what a GEMM prefetches ahead of its input gains nothing either; `no graphs`: every kernel is "
        "launched "
        "by itself (QUIRE_CUDA_GRAPHS=0); `exact`: `--exact`, which has no CUDA graphs, no split KV and, in "
        "prefill, no GEMM of cuBLASLt. What GEMMs prefetch cannot be left out by itself: it is the order "
        "of their instructions, and only overlap lets it begin early.\n"
        "\nQwen2.5-0.5B stands in Q4_0, not in Q4_K: a row of Q4_K is whole blocks of 256 weights, and its "
        "rows of 896 "
        "are none, so no file has it so (files called Q4_K_M fall back to Q5_0 there, which this backend "
        "refuses). "
        "Its biases are left out, and the head is a matrix of its own, where its files use the embedding's.\n"
        "\nGoals, of the limit: decode of 8B in bf16 and Q8_0 85, 80, 75 %% at batch 1, 16, 64, in 4 bits "
        "80, 77, 70 "
        "%%; of 0.5B 55 %% at batch 1; prefill 60 %%, with wgmma 75 %%.\n");
    fprintf(
        md,
        "\nThe limit of a decode step is reading its weights and its cache at the bandwidth above, that of "
        "a prompt its arithmetic at the rate above.\n");
}
