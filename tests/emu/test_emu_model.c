// A trained model through the emulated CUDA backend, teacher-forced: at every position the top token is that
// of kernels/ref wherever ref's is clear (a margin over 0.1), in chunks and token by token. And small files
// as the tools make them, of other architectures and mixtures of types.
#include "harness.h"

#include "backend_cuda.h"
#define FIXTURE_INSPECT &inspect_cuda
#include "fixture.h"
#include "forward.h"
#include "models/gguf.h"
#include "models/model_config.h"
#include "models/weights.h"
#include "text/tokenizer_load.h"

enum { MAX_TOKENS = 96 };

struct loaded {
    struct instance in;
    struct model_file *gguf;
};

static void load(struct loaded *l, const char *path, const struct backend_ops *ops, enum dtype kv) {
    struct err err = {0};
    memset(l, 0, sizeof *l);
    if (!(l->gguf = gguf_open(path, &err)) ||
        model_config_read(l->gguf, &l->in.model.config, &err) != STATUS_OK)
        fail_msg("%s", err.msg);
    struct device_config config = {
        .model = &l->in.model.config, .num_threads = 1, .kv_dtype = kv, .block_size = 16, .world = 1};
    l->in.ops = ops;
    l->in.block_size = 16;
    l->in.dev = ops->open(NULL, &config, &err);
    struct weights_target one = {{.whole = &l->in.model.config, .world = 1}, &l->in.model, l->in.dev, NULL};
    if (!l->in.dev || weights_load(&one, 1, l->gguf, DTYPE_COUNT, ops, NULL, NULL, &err) != STATUS_OK)
        fail_msg("%s", err.msg);
    l->in.limits = (struct step_limits){.max_tokens = MAX_TOKENS,
                                        .max_seqs = 1,
                                        .max_rows = MAX_TOKENS,
                                        .max_context = 128,
                                        .num_blocks = 8,
                                        .keep_logits = true};
    if (ops->reserve(l->in.dev, &l->in.limits, &err) != STATUS_OK)
        fail_msg("%s", err.msg);
}

static void unload(struct loaded *l) {
    weights_free(&l->in.model);
    l->in.ops->close(l->in.dev);
    model_file_close(l->gguf);
}

// Tokens [start, start + count) as one step; logits of every row.
static void step(struct loaded *l, const int32_t *tokens, int start, int count, float *logits) {
    int V = l->in.model.config.vocab;
    struct piece p = {0, start, count, true};
    struct batch *b = batch_make(&l->in, &p, 1);
    struct step_out out;
    struct err err = {0};
    memcpy(b->ids, tokens + start, sizeof *tokens * (size_t)count);
    model_forward(l->in.ops, l->in.dev, &l->in.model, &b->step, NULL, NULL);
    if (l->in.ops->sync(l->in.dev, &out, &err) != STATUS_OK)
        fail_msg("%s", err.msg);
    memcpy(logits + (size_t)start * (size_t)V, out.logits, (size_t)count * (size_t)V * sizeof *logits);
    free(b);
}

static void check(const char *path, enum dtype kv, const int32_t *tokens, int n, int chunk, int least,
                  double bound) {
    struct loaded ref, cuda;
    load(&ref, path, &backend_ref, kv);
    load(&cuda, path, &backend_cuda, kv);
    int V = ref.in.model.config.vocab, clear = 0;
    double most = 0;
    float *want = must_calloc((size_t)(n * V), sizeof *want),
          *got = must_calloc((size_t)(n * V), sizeof *got);
    step(&ref, tokens, 0, n, want);
    for (int at = 0; at < n; at += chunk)
        step(&cuda, tokens, at, n - at < chunk ? n - at : chunk, got);
    for (int r = 0; r < n; r++) {
        const float *a = want + r * V, *b = got + r * V;
        int best = 0, mine = 0;
        float second = -INFINITY;
        for (int v = 1; v < V; v++) {
            best = a[v] > a[best] ? v : best;
            mine = b[v] > b[mine] ? v : mine;
        }
        for (int v = 0; v < V; v++)
            second = v != best && a[v] > second ? a[v] : second;
        double far = distance(b, a, (size_t)V);
        most = fmax(most, far);
        if (!(far < bound))
            fail_msg("%s: position %d is %g apart", path, r, far);
        if (a[best] - second <= 0.1f)
            continue;
        clear++;
        if (mine != best)
            fail_msg("%s: position %d: token %d, not %d (margin %g)", path, r, mine, best,
                     (double)(a[best] - second));
    }
    printf("  %d of %d positions were clear, at most %g apart\n", clear, n, most);
    assert_true(clear >= least);
    free(want), free(got);
    unload(&ref);
    unload(&cuda);
}

// Two stages on two devices, the residual stream carried between them, give the bits of one device.
static void check_stages(const char *path, const int32_t *tokens, int n) {
    struct loaded one, half[2];
    struct err err = {0};
    load(&one, path, &backend_cuda, DTYPE_F16);
    const struct model_config *whole = &one.in.model.config;
    struct weights_target targets[2];
    memset(half, 0, sizeof half);
    for (int i = 0; i < 2; i++) {
        struct shard s = {.whole = whole, .blocks = {1, 1}, .world = 1, .stage = i, .num_stages = 2};
        struct instance *in = &half[i].in;
        shard_config(&s, &in->model.config);
        struct device_config config = {.model = &in->model.config,
                                       .kv_dtype = DTYPE_F16,
                                       .block_size = 16,
                                       .world = 1,
                                       .stage = i,
                                       .num_stages = 2};
        in->ops = &backend_cuda;
        in->block_size = 16;
        in->limits = one.in.limits;
        if (!(in->dev = in->ops->open(NULL, &config, &err)))
            fail_msg("%s", err.msg);
        targets[i] = (struct weights_target){s, &in->model, in->dev, NULL};
    }
    if (weights_load(targets, 2, one.gguf, DTYPE_COUNT, &backend_cuda, NULL, NULL, &err) != STATUS_OK)
        fail_msg("%s", err.msg);
    size_t V = (size_t)whole->vocab, D = (size_t)whole->hidden;
    float *want = must_calloc((size_t)n * V, sizeof *want), *got = must_calloc((size_t)n * V, sizeof *got);
    float *resid = must_calloc((size_t)n * D, sizeof *resid);
    for (int i = 0; i < 2; i++) {
        struct instance *in = &half[i].in;
        if (in->ops->reserve(in->dev, &in->limits, &err) != STATUS_OK)
            fail_msg("%s", err.msg);
    }
    for (int at = 0; at < n; at += 7) { // chunks, so that each stage's cache is read, too
        int count = n - at < 7 ? n - at : 7;
        struct piece p = {0, at, count, true};
        for (int i = 0; i < 2; i++) {
            struct instance *in = &half[i].in;
            struct batch *b = batch_make(in, &p, 1);
            struct step_out out;
            memcpy(b->ids, tokens + at, sizeof *tokens * (size_t)count);
            model_forward(in->ops, in->dev, &in->model, &b->step, i ? resid : NULL, i ? NULL : resid);
            if (in->ops->sync(in->dev, &out, &err) != STATUS_OK)
                fail_msg("%s", err.msg);
            if (i == 1)
                memcpy(got + (size_t)at * V, out.logits, (size_t)count * V * sizeof *got);
            free(b);
        }
    }
    step(&one, tokens, 0, n < 7 ? n : 7, want); // the same chunks
    for (int at = 7; at < n; at += 7)
        step(&one, tokens, at, n - at < 7 ? n - at : 7, want);
    assert_memory_equal(want, got, (size_t)n * V * sizeof *got);
    free(want), free(got), free(resid);
    for (int i = 0; i < 2; i++) {
        weights_free(&half[i].in.model);
        half[i].in.ops->close(half[i].in.dev);
    }
    unload(&one);
}

// Tokens of a text by a file's tokenizer, MAX_TOKENS at most.
static int encode(const char *path, const char *text, int32_t tokens[MAX_TOKENS]) {
    struct err err = {0};
    struct model_file *g = gguf_open(path, &err);
    if (!g)
        fail_msg("%s", err.msg);
    struct tokenizer *t = tokenizer_load(g, &err);
    assert_non_null(t);
    struct token_buf ids = {0};
    assert_int_equal(tokenizer_encode(t, text, strlen(text), TOKENIZE_ADD_SPECIAL, &ids), STATUS_OK);
    int n = ids.len < MAX_TOKENS ? (int)ids.len : MAX_TOKENS;
    memcpy(tokens, ids.ids, sizeof *tokens * (size_t)n);
    token_buf_free(&ids);
    tokenizer_free(t);
    model_file_close(g);
    return n;
}

TEST(test_stories) {
    const char *path = test_data("models/stories260K/stories260K.gguf");
    if (!path) {
        skip();
        return;
    }
    char name[4096];
    snprintf(name, sizeof name, "%s", path);
    int32_t tokens[MAX_TOKENS];
    int n = encode(name,
                   "Once upon a time, there was a little girl named Lily. She loved to play outside in the "
                   "park. One day, she saw a big, red ball.",
                   tokens);
    assert_true(n > 40);
    check(name, DTYPE_F32, tokens, n, n, n / 2, 1e-4);
    check(name, DTYPE_F32, tokens, 24, 1, 10, 1e-4);
    check(name, DTYPE_F16, tokens, n, 16, n / 2, 1e-2);
    check_stages(name, tokens, 20);
}

// The embedded model: trained, quantised, heads of 64, so that the kernels are those that serve real models.
TEST(test_embedded) {
    static const char path[] = QUIRE_SOURCE_DIR "/models/quire-tiny.gguf";
    // "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day,
    // she saw a big, red ball. It was on the other side of the old stone wall." As ids (`quire tokenize
    // --ids`), since a bare GPU machine has no PCRE2 for its vocabulary.
    static const int32_t tokens[] = {789, 761,  267,  576, 14,   561,  342,  267,  719,  822, 466, 1017,
                                     16,  571,  1072, 331, 1074, 1730, 358,  281,  1270, 16,  567, 388,
                                     14,  419,  820,  267, 788,  14,   1077, 1092, 16,   574, 342, 417,
                                     281, 1076, 1328, 328, 281,  582,  2047, 1788, 16};
    const int n = sizeof tokens / sizeof tokens[0];
    check(path, DTYPE_F16, tokens, n, 13, n / 2, 2e-2);
    check(path, DTYPE_BF16, tokens, 12, 1, 6, 2e-2);
    check(path, DTYPE_I8, tokens, 24, 12, 12, 3e-2);
}

TEST(test_made_files) {
    if (system("python3 -c '' 2>/dev/null") != 0) { // a bare GPU machine
        skip();
        return;
    }
    static const struct {
        const char *arguments;
        double bound;
    } files[] = {
        {"--type bf16 --layers 2 --hidden 128 --heads 2 --kv-heads 1 --ffn 96 --vocab 512", 2e-2},
        {"--type q4_k_m --layers 2 --hidden 256 --heads 4 --kv-heads 2 --ffn 256 --vocab 512", 2e-2},
        {"--arch qwen2 --type q8_0 --layers 2 --hidden 128 --heads 2 --kv-heads 1 --ffn 96 --vocab 512",
         2e-2},
        {"--arch qwen3 --type f16 --layers 2 --hidden 128 --heads 2 --kv-heads 1 --ffn 96 --vocab 512", 2e-2},
        {"--arch granite --layers 3 --hidden 128 --heads 2 --kv-heads 1 --ffn 96 --vocab 512 --no-tied --f32 "
         "logit_scale=2 "
         "--f32 embedding_scale=2 --f32 residual_scale=0.4",
         2e-2},
        {"--arch glm4 --layers 2 --hidden 128 --heads 2 --kv-heads 1 --ffn 96 --vocab 512 --rope-dim 32 "
         "--bias",
         2e-2},
        {"--arch exaone4 --layers 2 --hidden 128 --heads 2 --kv-heads 1 --ffn 96 --vocab 512", 2e-2},
        {"--arch smollm3 --layers 5 --hidden 128 --heads 2 --kv-heads 1 --ffn 96 --vocab 512", 2e-2},
        // Experts: F32, so that roundings choose no other one.
        {"--arch qwen3moe --type f32 --layers 2 --hidden 128 --heads 2 --kv-heads 1 --ffn 96 --vocab 512 "
         "--experts 8 --top-k 3 --expert-ffn 64",
         1e-2},
        {"--type f32 --layers 2 --hidden 128 --heads 2 --kv-heads 1 --ffn 96 --vocab 512 --experts 4", 1e-2},
        {"--arch glm4moe --type f32 --layers 2 --hidden 128 --heads 2 --kv-heads 1 --ffn 96 --vocab 512 "
         "--experts 8 --top-k 2 --expert-ffn 64 --shared-ffn 64",
         1e-2},
        {"--arch qwen2moe --type f32 --layers 2 --hidden 128 --heads 2 --kv-heads 1 --ffn 96 --vocab 512 "
         "--experts 8 --top-k 2 --expert-ffn 64 --shared-ffn 96",
         1e-2},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[512], command[1200];
        snprintf(path, sizeof path, "%s/emu_%zu.gguf", QUIRE_BINARY_DIR, i);
        snprintf(command, sizeof command, "python3 %s/tests/tools/make_gguf.py %s %s", QUIRE_SOURCE_DIR, path,
                 files[i].arguments);
        if (system(command) != 0)
            fail_msg("%s", command);
        int32_t tokens[40];
        for (int t = 0; t < 40; t++)
            tokens[t] = (t * 53 + 7) % 512;
        check(path, DTYPE_F16, tokens, 40, 19, 5, files[i].bound);
        remove(path);
    }
}

int main(void) { return run_all_tests(NULL, NULL); }
