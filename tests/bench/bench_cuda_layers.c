// The kernels of layers that few models have, as bench_cuda_kernels.c has those of others: gates of attention, norms over all
// heads, latent attention, recurrent states, several streams. Sequences decode, a row each.
#include "bench_cuda.h"
#include "fixture.h"

static void gate_once(void *arg, int i) { cuda_gate(rt, &((struct cuda_gate *)arg)[i]); }
static void qkv_once(void *arg, int i) { cuda_qkv(rt, &((struct cuda_qkv *)arg)[i]); }
static void latent_once(void *arg, int i) { cuda_latent(rt, &((struct cuda_latent *)arg)[i]); }
static void attend_once(void *arg, int i) { cuda_attend_latent(rt, &((struct cuda_attend_latent *)arg)[i]); }
static void attend_fast_once(void *arg, int i) {
    cuda_attend_latent_fast(rt, &((struct cuda_attend_latent *)arg)[i]);
}
static void conv_once(void *arg, int i) { cuda_mix_conv(rt, &((struct cuda_mix_conv *)arg)[i]); }
static void prepare_once(void *arg, int i) { cuda_mix_prepare(rt, &((struct cuda_mix_prepare *)arg)[i]); }
static void recur_once(void *arg, int i) { cuda_mix_recur(rt, &((struct cuda_mix_recur *)arg)[i]); }
static void finish_once(void *arg, int i) { cuda_mix_finish(rt, &((struct cuda_mix_finish *)arg)[i]); }

static void embed_once(void *arg, int i) { cuda_streams_embed(rt, &((struct cuda_streams *)arg)[i]); }
static void predict_once(void *arg, int i) { cuda_streams_predict(rt, &((struct cuda_streams *)arg)[i]); }
static void correct_once(void *arg, int i) { cuda_streams_correct(rt, &((struct cuda_streams *)arg)[i]); }
static void merge_once(void *arg, int i) { cuda_streams_merge(rt, &((struct cuda_streams *)arg)[i]); }
static void laurel_once(void *arg, int i) { cuda_laurel(rt, &((struct cuda_laurel *)arg)[i]); }
static void cut_once(void *arg, int i) { cuda_cut(rt, &((struct cuda_cut *)arg)[i]); }
static void own_once(void *arg, int i) { cuda_embed_layers(rt, &((struct cuda_embed_layers *)arg)[i]); }

static const float *floats(size_t n) { return filled(n * sizeof(float), STREAM_F32); }

// begin, begin + step, …
static int32_t *counted(int n, int begin, int step) {
    int32_t *host = must_calloc((size_t)n, sizeof *host);
    for (int i = 0; i < n; i++)
        host[i] = begin + i * step;
    int32_t *all = upload(host, (size_t)n * sizeof *host);
    free(host);
    return all;
}

static void bench_gate(int rows, int n) {
    double bytes = 12.0 * rows * n;
    char shape[64];
    set_copies(bytes);
    struct cuda_gate *a = must_calloc((size_t)num_copies, sizeof *a);
    for (int i = 0; i < num_copies; i++)
        a[i] = (struct cuda_gate){.x = filled((size_t)(rows * n) * 4, STREAM_F32),
                                  .gate = floats((size_t)(rows * n)),
                                  .rows = rows,
                                  .n = n,
                                  .ldx = n};
    snprintf(shape, sizeof shape, "%d x %d", rows, n);
    row("gate of attention", shape, time_kernel(gate_once, a), bytes, bandwidth, "GB/s");
    release();
    free(a);
}

// Pages of 16 tokens: one behind the other, `context` tokens a sequence.
static struct cuda_kv make_cache(enum dtype dtype, int kv_heads, int d, int seqs, int context) {
    size_t tokens = (size_t)seqs * (size_t)((context + 15) / 16 * 16),
           bytes = tokens * (size_t)kv_heads * dtype_row_bytes(dtype, d);
    enum stream_kind kind = dtype == DTYPE_F32 ? STREAM_F32 : STREAM_BF16;
    return (struct cuda_kv){filled(bytes, kind), filled(bytes, kind), dtype, 16, kv_heads, d, NULL, NULL};
}

// Two launches: what norms over all heads divide by, and all else.
static void bench_whole_norms(int rows, int heads, int d) {
    int all = 3 * heads * d;
    double bytes = (double)rows * heads * d * (3 * 4 + 2 * 4 + 3 * 2);
    int64_t *slots = must_calloc((size_t)rows, sizeof *slots);
    char shape[64];
    for (int i = 0; i < rows; i++)
        slots[i] = i;
    set_copies(bytes);
    struct cuda_qkv *a = must_calloc((size_t)num_copies, sizeof *a);
    for (int i = 0; i < num_copies; i++)
        a[i] = (struct cuda_qkv){.x = floats((size_t)(rows * all)),
                                 .ldx = all,
                                 .rows = rows,
                                 .num_heads = heads,
                                 .qk_norm = QK_NORM_WHOLE,
                                 .whole = device((size_t)rows * 4 * sizeof(float)),
                                 .q_norm = floats((size_t)(heads * d)),
                                 .k_norm = floats((size_t)(heads * d)),
                                 .rope_cos = floats((size_t)(rows * d / 2)),
                                 .rope_sin = floats((size_t)(rows * d / 2)),
                                 .rope_pairs = d / 2,
                                 .eps = 1e-6f,
                                 .positions = counted(rows, 0, 1),
                                 .slots = upload(slots, (size_t)rows * sizeof *slots),
                                 .q = device((size_t)(rows * heads * d) * 2),
                                 .kv = make_cache(DTYPE_BF16, heads, d, 1, rows)};
    snprintf(shape, sizeof shape, "K %d d %d, norm of all heads, %d rows", heads, d, rows);
    row("bias, RoPE, KV write", shape, time_kernel(qkv_once, a), bytes, bandwidth, "GB/s");
    release();
    free(slots), free(a);
}

// DeepSeek-V2's sizes: a latent of 512 and a key of 64.
enum { LATENT = 512, ROPE = 64, NOPE = 128, VECTOR = LATENT + ROPE };

static void bench_latent(int rows, int heads) {
    double bytes = (double)rows * (VECTOR * 6.0 + heads * (ROPE * 4.0 + LATENT * 4.0 + VECTOR * 2.0));
    int64_t *slots = must_calloc((size_t)rows, sizeof *slots);
    char shape[64];
    for (int i = 0; i < rows; i++)
        slots[i] = i;
    set_copies(bytes);
    struct cuda_latent *a = must_calloc((size_t)num_copies, sizeof *a);
    for (int i = 0; i < num_copies; i++)
        a[i] = (struct cuda_latent){.vector = floats((size_t)rows * VECTOR),
                                    .heads = floats((size_t)(rows * heads) * (NOPE + ROPE)),
                                    .absorbed = floats((size_t)(rows * heads) * LATENT),
                                    .norm = floats(LATENT),
                                    .rope_cos = floats((size_t)rows * ROPE / 2),
                                    .rope_sin = floats((size_t)rows * ROPE / 2),
                                    .eps = 1e-6f,
                                    .positions = counted(rows, 0, 1),
                                    .slots = upload(slots, (size_t)rows * sizeof *slots),
                                    .rows = rows,
                                    .num_heads = heads,
                                    .kv_lora = LATENT,
                                    .nope_dim = NOPE,
                                    .q = device((size_t)(rows * heads) * VECTOR * 2),
                                    .kv = make_cache(DTYPE_BF16, 1, VECTOR, 1, rows)};
    snprintf(shape, sizeof shape, "%d heads, %d rows", heads, rows);
    row("norm, RoPE, write of latents", shape, time_kernel(latent_once, a), bytes, bandwidth, "GB/s");
    release();
    free(slots), free(a);
}

// Measures a cache type that the tensor-core kernel takes, or f32; without splits.
static void bench_latent_attention(bool fast, int seqs, int context, int heads) {
    enum dtype dtype = fast ? DTYPE_BF16 : DTYPE_F32;
    int pages = (context + 15) / 16;
    double bytes = (double)seqs * context * (double)dtype_row_bytes(dtype, VECTOR);
    char shape[64];
    set_copies(bytes);
    struct cuda_attend_latent *a = must_calloc((size_t)num_copies, sizeof *a);
    for (int i = 0; i < num_copies; i++)
        a[i] =
            (struct cuda_attend_latent){.q = filled((size_t)(seqs * heads) * dtype_row_bytes(dtype, VECTOR),
                                                    fast ? STREAM_BF16 : STREAM_F32),
                                        .kv = make_cache(dtype, 1, VECTOR, seqs, pages * 16),
                                        .blocks = {counted(seqs + 1, 0, pages), counted(seqs * pages, 0, 1)},
                                        .seq_of = counted(seqs, 0, 1),
                                        .positions = counted(seqs, context - 1, 0),
                                        .rows = seqs,
                                        .num_heads = heads,
                                        .kv_lora = LATENT,
                                        .scale = 0.1f,
                                        .out = device((size_t)(seqs * heads) * LATENT * 4),
                                        .act_dtype = ACT_DTYPE_F32,
                                        .ldout = LATENT};
    snprintf(shape, sizeof shape, "%s, %d heads, %d x %d tokens", dtype_name(dtype), heads, seqs, context);
    row(fast ? "latent attention" : "general latent attention", shape,
        time_kernel(fast ? attend_fast_once : attend_once, a), bytes, bandwidth, "GB/s");
    release();
    free(a);
}

struct sizes {
    int heads, groups, key_dim, head_dim, taps;
};

// States of sequences of a token each, or of one of many tokens.
static struct cuda_states make_states(int seqs, int tokens, size_t elements) {
    return (struct cuda_states){.first = filled((size_t)seqs * elements * sizeof(float), STREAM_F32),
                                .page_bytes = elements * sizeof(float),
                                .blocks = {counted(seqs + 1, 0, 1), counted(seqs, 0, 1)},
                                .seq_of = counted(seqs * tokens, 0, seqs > 1),
                                .positions = counted(seqs * tokens, 100, tokens > 1),
                                .context_len = counted(seqs, 100 + tokens, 0)};
}

// The gated delta rule: reads and writes the states of all sequences; of a long one arithmetic counts.
static void bench_recurrence(const struct sizes *s, int seqs, int tokens, const char *shape) {
    int values = s->heads * s->head_dim, channels = 2 * s->groups * s->key_dim + values;
    size_t n = (size_t)(seqs * tokens), state = (size_t)values * (size_t)s->key_dim;
    double bytes = 4.0 * (2.0 * (double)state * seqs + (double)n * (channels + values));
    set_copies(bytes);
    struct cuda_mix_recur *a = must_calloc((size_t)num_copies, sizeof *a);
    for (int i = 0; i < num_copies; i++)
        a[i] = (struct cuda_mix_recur){.states = make_states(seqs, tokens, state),
                                       .x = floats(n * (size_t)channels),
                                       .dt = floats(n * (size_t)(2 * s->heads)),
                                       .y = device(n * (size_t)values * 4),
                                       .rows = seqs * tokens,
                                       .heads = s->heads,
                                       .groups = s->groups,
                                       .key_dim = s->key_dim,
                                       .head_dim = s->head_dim,
                                       .ldx = channels,
                                       .ld_gate = 2 * s->heads,
                                       .delta = true};
    double seconds = time_kernel(recur_once, a);
    if (tokens > 1)
        row("recurrence of a prompt", shape, seconds, 7.0 * (double)state * tokens, matrix_rate, "TFLOP/s");
    else
        row("recurrence", shape, seconds, bytes, bandwidth, "GB/s");
    release();
    free(a);
}

// The kernels before and after the recurrence.
static void bench_around_recurrence(const struct sizes *s, int seqs, const char *shape) {
    int keys = s->groups * s->key_dim, values = s->heads * s->head_dim, channels = 2 * keys + values;
    size_t n = (size_t)seqs, window = (size_t)(s->taps - 1) * (size_t)channels;
    double conv = 4.0 * (double)n * (2.0 * (double)window + 3.0 * channels), finish = 10.0 * seqs * values,
           prepare = 4.0 * seqs * (4.0 * keys + 4.0 * s->heads);
    set_copies(fmin(conv, fmin(finish, prepare)));
    struct cuda_mix_conv *c = must_calloc((size_t)num_copies, sizeof *c);
    struct cuda_mix_prepare *p = must_calloc((size_t)num_copies, sizeof *p);
    struct cuda_mix_finish *f = must_calloc((size_t)num_copies, sizeof *f);
    for (int i = 0; i < num_copies; i++) {
        c[i] = (struct cuda_mix_conv){.states = make_states(seqs, 1, window),
                                      .x = floats(n * (size_t)channels),
                                      .w = floats((size_t)(channels * s->taps)),
                                      .y = device(n * (size_t)channels * 4),
                                      .act_dtype = ACT_DTYPE_F32,
                                      .rows = seqs,
                                      .channels = channels,
                                      .taps = s->taps,
                                      .ldx = channels,
                                      .ldy = channels};
        p[i] = (struct cuda_mix_prepare){.qk = filled(n * (size_t)channels * 4, STREAM_F32),
                                         .gate = filled(n * (size_t)(2 * s->heads) * 4, STREAM_F32),
                                         .a = floats((size_t)s->heads),
                                         .bias = floats((size_t)s->heads),
                                         .rows = seqs,
                                         .heads = s->heads,
                                         .groups = s->groups,
                                         .key_dim = s->key_dim,
                                         .ldx = channels,
                                         .ld_gate = 2 * s->heads,
                                         .delta = true};
        f[i] = (struct cuda_mix_finish){.y = floats(n * (size_t)values),
                                        .gate = floats(n * (size_t)values),
                                        .norm = floats((size_t)s->head_dim),
                                        .out = device(n * (size_t)values * 2),
                                        .act_dtype = ACT_DTYPE_BF16,
                                        .rows = seqs,
                                        .n = s->head_dim,
                                        .values = values,
                                        .ld_gate = values,
                                        .ldout = values,
                                        .eps = 1e-6f};
    }
    row("convolution", shape, time_kernel(conv_once, c), conv, bandwidth, "GB/s");
    row("norms of recurrence", shape, time_kernel(prepare_once, p), prepare, bandwidth, "GB/s");
    row("gated norm", shape, time_kernel(finish_once, f), finish, bandwidth, "GB/s");
    release();
    free(c), free(p), free(f);
}

// Measures Gemma 3n's AltUp: n values a row.
static void bench_streams(int rows, int n) {
    enum { N = MODEL_STREAMS };
    size_t all = (size_t)rows * (size_t)n;
    double bytes = 8.0 * N * (double)all, laurel = 16.0 * (double)all;
    char shape[64];
    set_copies(laurel);
    struct cuda_streams *a = must_calloc((size_t)num_copies, sizeof *a);
    struct cuda_laurel *l = must_calloc((size_t)num_copies, sizeof *l);
    for (int i = 0; i < num_copies; i++) {
        a[i] = (struct cuda_streams){.resid = filled(all * 4, STREAM_F32),
                                     .streams = filled(N * all * 4, STREAM_F32),
                                     .stride = all,
                                     .norm = floats((size_t)n),
                                     .router = floats((size_t)(N * n)),
                                     .coefs = floats(N * N * N),
                                     .scale = floats((size_t)n),
                                     .out = device(all * 4),
                                     .of = counted(rows, 0, 1),
                                     .of_stride = 1,
                                     .eps = 1e-6f,
                                     .rows = rows,
                                     .n = n};
        l[i] =
            (struct cuda_laurel){a[i].resid, floats(all), floats(all), a[i].norm, a[i].norm, 1e-6f, rows, n};
    }
    snprintf(shape, sizeof shape, "%d x %d of %d", rows, n, N);
    row("streams of embeddings", shape, time_kernel(embed_once, a), bytes, bandwidth, "GB/s");
    row("prediction of streams", shape, time_kernel(predict_once, a), bytes, bandwidth, "GB/s");
    row("correction of streams", shape, time_kernel(correct_once, a), bytes, bandwidth, "GB/s");
    row("mean of streams", shape, time_kernel(merge_once, a), bytes / 2, bandwidth, "GB/s");
    row("LAuReL", shape, time_kernel(laurel_once, l), laurel, bandwidth, "GB/s");
    release();
    free(a), free(l);
}

static void bench_layer_embeddings(int rows, int layers, int n, int ffn) {
    enum { VOCAB = 128 };
    size_t all = (size_t)rows * (size_t)layers * (size_t)n;
    double bytes = 10.0 * (double)all, cut = 8.0 * rows * ffn;
    char shape[64];
    set_copies(fmin(bytes, cut));
    struct cuda_embed_layers *a = must_calloc((size_t)num_copies, sizeof *a);
    struct cuda_cut *c = must_calloc((size_t)num_copies, sizeof *c);
    for (int i = 0; i < num_copies; i++) {
        a[i] = (struct cuda_embed_layers){.ids = counted(rows, 0, 1),
                                          .table = filled((size_t)(VOCAB * layers * n) * 2, STREAM_BF16),
                                          .dtype = DTYPE_BF16,
                                          .norm = floats((size_t)n),
                                          .kind = NORM_RMS,
                                          .x = filled(all * 4, STREAM_F32),
                                          .factor = 1,
                                          .own_factor = 1,
                                          .eps = 1e-6f,
                                          .rows = rows,
                                          .layers = layers,
                                          .n = n,
                                          .vocab = VOCAB};
        c[i] = (struct cuda_cut){.x = filled((size_t)(rows * ffn) * 4, STREAM_F32),
                                 .deviations = 1.6f,
                                 .rows = rows,
                                 .n = ffn,
                                 .ldx = ffn};
    }
    snprintf(shape, sizeof shape, "%d x %d layers of %d", rows, layers, n);
    row("embeddings of layers", shape, time_kernel(own_once, a), bytes, bandwidth, "GB/s");
    snprintf(shape, sizeof shape, "%d x %d", rows, ffn);
    row("sparse gates", shape, time_kernel(cut_once, c), cut, bandwidth, "GB/s");
    release();
    free(a), free(c);
}

void bench_layers(void) {
    static const struct sizes qwen35 = {32, 16, 128, 128, 4}, small = {2, 1, 16, 8, 3};
    const struct sizes *s = tiny ? &small : &qwen35;
    char shape[64];
    for (int i = 0; i < 2; i++) {
        int rows = tiny ? 1 + i : i ? 64 : 1, context = tiny ? 20 : 4096, heads = tiny ? 2 : 16;
        bench_gate(rows, tiny ? 64 : 4096);
        bench_whole_norms(rows, tiny ? 2 : 32, tiny ? 16 : 128);
        bench_latent(rows, heads);
        bench_latent_attention(true, rows, context, heads);
        bench_latent_attention(false, rows, tiny ? 20 : 512, heads);
        snprintf(shape, sizeof shape, "%d heads of (%d, %d) x %d", s->heads, s->key_dim, s->head_dim, rows);
        bench_around_recurrence(s, rows, shape);
        bench_recurrence(s, rows, 1, shape);
        if (i == 0) {
            int tokens = tiny ? 20 : 2048;
            snprintf(shape, sizeof shape, "%d heads of (%d, %d), %d tokens", s->heads, s->key_dim,
                     s->head_dim, tokens);
            bench_recurrence(s, 1, tokens, shape);
        }
        bench_streams(rows, tiny ? 64 : 2048);
        bench_layer_embeddings(rows, tiny ? 2 : 35, tiny ? 16 : 256, tiny ? 64 : 16384);
    }
}
