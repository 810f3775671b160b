// Latent attention: rule 21 of kernels/README.md written a second time, operation by operation; the CPU backend against the
// reference; the same bits however tokens are cut, with any threads, instructions and pages.
#include "harness.h"

#include "plain.h"
#include "variants.h"

enum {
    NUM_VARIANTS = sizeof variants / sizeof *variants,
    D = 64,
    TOKENS = 270,
    LONG = 1100,
    MAX_VECTOR = 160,
    MAX_OUT = 432
};

static const struct {
    struct attn_spec spec;
    enum dtype dtype, kv;
    bool interleaved;
} cases[] = {
    {{.heads = 4, .kv_lora = 64, .nope_dim = 16, .rope_dim = 8, .v_dim = 24, .rope = 0},
     DTYPE_F32,
     DTYPE_F32,
     true},
    {{.heads = 3, .kv_lora = 96, .q_lora = 32, .nope_dim = 32, .rope_dim = 32, .v_dim = 32, .rope = 0},
     DTYPE_Q8_0,
     DTYPE_F16,
     false},
    {{.heads = 16, .kv_lora = 128, .q_lora = 48, .nope_dim = 17, .rope_dim = 10, .v_dim = 16, .rope = 0},
     DTYPE_BF16,
     DTYPE_BF16,
     true},
    {{.heads = 2, .kv_lora = 64, .q_lora = 64, .nope_dim = 32, .rope_dim = 16, .v_dim = 64, .rope = -1},
     DTYPE_F16,
     DTYPE_I8,
     true},
};
enum { NUM_CASES = sizeof cases / sizeof *cases };

enum { NORM, LATENT, LATENT_NORM, QDOWN, QNORM, Q, KEY, VALUE, OUT, NUM_WEIGHTS };

struct case_of {
    struct model_config config;
    struct weight_desc weights[NUM_WEIGHTS]; // part[0].data NULL: none
    float input[LONG * D];
};

// heads: of one matrix each; 0: one for all. rows 0: a vector, about 1
static void add(struct case_of *c, int which, enum weight_role role, enum dtype dtype, int heads, int rows,
                int cols) {
    struct weight_desc *w = &c->weights[which];
    int all = (heads ? heads : 1) * (rows ? rows : 1);
    w->role = role;
    w->part[0] = random_tensor(rows ? dtype : DTYPE_F32, all, cols, rows ? 1.7f / sqrtf((float)cols) : 0.3f);
    float *vector = (float *)(uintptr_t)w->part[0].data;
    for (int i = 0; i < cols && !rows; i++)
        vector[i] += 1;
    if (!rows)
        w->part[0].ndim = 1, w->part[0].shape[0] = cols;
    if (heads)
        w->part[0].ndim = 3, w->part[0].shape[0] = heads, w->part[0].shape[1] = rows,
        w->part[0].shape[2] = cols;
}

static struct case_of *make_case(int i) {
    struct case_of *c = must_calloc(1, sizeof *c);
    struct attn_spec a = cases[i].spec;
    enum dtype type = cases[i].dtype;
    a.kind = ATTN_LATENT;
    a.kv_heads = 1;
    a.head_dim = a.kv_lora + a.rope_dim;
    a.scale = 1 / sqrtf((float)(a.nope_dim + a.rope_dim));
    c->config = (struct model_config){.num_layers = 1,
                                      .hidden = D,
                                      .vocab = 64,
                                      .max_context = 4096,
                                      .norm_eps = 1e-5f,
                                      .num_attn = 1,
                                      .num_ffn = 1,
                                      .num_ropes = 1,
                                      .num_groups = 1,
                                      .kv_layers = 1,
                                      .attn = {a},
                                      .ffn = {{.hidden = 16}},
                                      .ropes = {{.theta = 10000,
                                                 .dim = a.rope_dim,
                                                 .interleaved = cases[i].interleaved,
                                                 .factor = 1,
                                                 .attn_factor = 1}},
                                      .groups = {{.kind = KV_FULL, .num_layers = 1}}};
    add(c, NORM, WEIGHT_ATTN_NORM, DTYPE_F32, 0, 0, D);
    add(c, LATENT, WEIGHT_LATENT, type, 0, a.head_dim, D);
    add(c, LATENT_NORM, WEIGHT_LATENT_NORM, DTYPE_F32, 0, 0, a.kv_lora);
    if (a.q_lora > 0) {
        add(c, QDOWN, WEIGHT_LATENT_QDOWN, type, 0, a.q_lora, D);
        add(c, QNORM, WEIGHT_LATENT_QNORM, DTYPE_F32, 0, 0, a.q_lora);
    }
    add(c, Q, WEIGHT_LATENT_Q, type, 0, a.heads * (a.nope_dim + a.rope_dim), a.q_lora > 0 ? a.q_lora : D);
    add(c, KEY, WEIGHT_LATENT_KEY, type, a.heads, a.kv_lora, a.nope_dim);
    add(c, VALUE, WEIGHT_LATENT_VALUE, type, a.heads, a.v_dim, a.kv_lora);
    add(c, OUT, WEIGHT_ATTN_OUT, type, 0, D, a.heads * a.v_dim);
    for (int k = 0; k < TOKENS * D; k++)
        c->input[k] = random_float();
    return c;
}

static void free_case(struct case_of *c) {
    for (int i = 0; i < NUM_WEIGHTS; i++)
        free((void *)(uintptr_t)c->weights[i].part[0].data);
    free(c);
}

// ---- the rule

// y (rows) = rows [first, first + rows) of a matrix, or of the matrices of all heads, times x
static void plain_matvec(float *y, const struct weight_desc *w, int first, int rows, const float *x) {
    struct tensor flat = w->part[0];
    flat.shape[0] = first + rows, flat.shape[1] = w->part[0].shape[w->part[0].ndim - 1];
    for (int i = 0; i < rows; i++)
        y[i] = plain_dot(&flat, first + i, x, 0, (int)flat.shape[1]);
}

// As the cache of a type gives a vector of n back; *scale: of int8.
static void plain_cached(float *x, int n, enum dtype kv, float *scale) {
    float max = 0;
    *scale = 1;
    for (int i = 0; i < n; i++)
        max = fmaxf(max, fabsf(x[i]));
    for (int i = 0; i < n && kv == DTYPE_I8; i++)
        x[i] = nearbyintf(x[i] * (127 / max));
    for (int i = 0; i < n && kv != DTYPE_I8; i++) {
        char stored[4];
        ref_store(stored, kv, x[i]);
        x[i] = ref_fetch(stored, kv);
    }
    if (kv == DTYPE_I8)
        *scale = max / 127;
}

static void plain_latent(const struct case_of *c, enum dtype kv, float *resid) {
    static float keys[TOKENS * MAX_VECTOR], scales[TOKENS];
    const struct attn_spec *a = &c->config.attn[0];
    const struct rope_config *rope = a->rope < 0 ? NULL : &c->config.ropes[0];
    const struct weight_desc *w = c->weights;
    int C = a->kv_lora, n = a->nope_dim, r = a->rope_dim, d = a->head_dim, U = a->q_lora;
    for (int t = 0; t < TOKENS; t++, resid += D) {
        float x[D], down[D], heads[MAX_OUT], y[MAX_OUT], *key = keys + t * d;
        plain_rmsnorm(x, resid, w[NORM].part[0].data, D, c->config.norm_eps);
        plain_matvec(key, &w[LATENT], 0, d, x);
        plain_rmsnorm(key, key, w[LATENT_NORM].part[0].data, C, c->config.norm_eps);
        if (rope)
            plain_rope(key + C, rope, t);
        plain_cached(key, d, kv, &scales[t]);
        if (U > 0) {
            plain_matvec(down, &w[QDOWN], 0, U, x);
            plain_rmsnorm(down, down, w[QNORM].part[0].data, U, c->config.norm_eps);
        }
        plain_matvec(heads, &w[Q], 0, a->heads * (n + r), U > 0 ? down : x);
        for (int h = 0; h < a->heads; h++) {
            float q[MAX_VECTOR], out[256], *head = heads + h * (n + r);
            plain_matvec(q, &w[KEY], h * C, C, head);
            memcpy(q + C, head + n, (size_t)r * sizeof *q);
            if (rope)
                plain_rope(q + C, rope, t);
            plain_attention(out, q, keys, keys, scales, scales, kv == DTYPE_BF16 || kv == DTYPE_I8, 0, t + 1,
                            d, a->scale, 0, NULL);
            plain_matvec(y + h * a->v_dim, &w[VALUE], h * a->v_dim, a->v_dim, out);
        }
        for (int i = 0; i < D; i++)
            resid[i] += plain_segments(&w[OUT].part[0], i, y);
    }
}

// ---- the backends

// `chunk` tokens a step. out: (num_tokens, D). false: the machine lacks the variant.
static bool run(const struct case_of *c, struct setup s, int num_tokens, int chunk, float *out) {
    enum { MAX_BLOCKS = (LONG + 15) / 16 };
    struct device_config config = {.model = &c->config,
                                   .num_threads = s.threads,
                                   .variant = s.variant,
                                   .kv_dtype = s.kv_dtype,
                                   .block_size = s.block_size,
                                   .world = 1};
    struct step_limits limits = {.max_tokens = chunk,
                                 .max_seqs = 1,
                                 .max_rows = 1,
                                 .max_context = num_tokens,
                                 .num_blocks = MAX_BLOCKS + 1};
    struct layer layer = {.attn = c->config.attn[0]};
    struct model model = {.layers = &layer};
    int32_t ids[MAX_BLOCKS], positions[LONG];
    int64_t slots[LONG];
    struct err err = {0};
    struct device *dev = s.ops->open(NULL, &config, &err);
    if (!dev) {
        assert_int_equal(err.code, STATUS_DEVICE);
        return false;
    }
    for (int i = 0; i < NUM_WEIGHTS; i++)
        if (c->weights[i].part[0].data &&
            !(*weight_at(&model, c->weights[i].role, 0, 0) = s.ops->weight_load(dev, &c->weights[i], &err)))
            fail_msg("%s", err.msg);
    assert_int_equal(s.ops->reserve(dev, &limits, &err), STATUS_OK);
    for (int i = 0; i < MAX_BLOCKS; i++)
        ids[i] = MAX_BLOCKS - i;
    for (int t = 0; t < num_tokens; t++) {
        positions[t] = t;
        slots[t] = (int64_t)ids[t / s.block_size] * s.block_size + t % s.block_size;
    }
    for (int t = 0; t < num_tokens; t += chunk) {
        int n = t + chunk < num_tokens ? chunk : num_tokens - t;
        struct step step = {
            .num_tokens = n,
            .num_seqs = 1,
            .num_decode = n == 1,
            .max_query_len = n,
            .max_context_len = t + n,
            .num_groups = 1,
            .positions = positions + t,
            .query_start = (int32_t[]){0, n},
            .context_len = (int32_t[]){t + n},
            .groups = {{slots + t, (int32_t[]){0, (t + n + s.block_size - 1) / s.block_size}, ids}}};
        struct step_out ignored;
        s.ops->step_begin(dev, &step);
        s.ops->resid_import(dev, c->input + t * D, &step);
        s.ops->qkv(dev, &layer, &step);
        if (n == 1)
            s.ops->attn_decode(dev, &layer, &step);
        else
            s.ops->attn_prefill(dev, &layer, &step);
        s.ops->attn_out(dev, &layer, &step);
        s.ops->resid_export(dev, out + t * D, &step);
        s.ops->step_end(dev);
        assert_int_equal(s.ops->sync(dev, &ignored, &err), STATUS_OK);
    }
    s.ops->close(dev);
    return true;
}

TEST(test_layers) {
    static const int chunks[] = {TOKENS, 1, 37, 16}, blocks[] = {16, 64, 32};
    static float want[TOKENS * D], got[TOKENS * D];
    for (int i = 0; i < NUM_CASES; i++) {
        struct case_of *c = make_case(i);
        memcpy(want, c->input, sizeof want);
        uint64_t env = float_env_enter();
        plain_latent(c, cases[i].kv, want);
        float_env_leave(env);
        for (int v = 0; v < NUM_VARIANTS; v++) {
            const char *name = variants[v];
            for (int k = 0; k < 4; k++) {
                struct setup s = {&backend_cpu, name, 1 + (k + v) % 3, blocks[(k + v) % 3], cases[i].kv};
                if ((!SLOW || (k + v) % 2) && run(c, s, TOKENS, chunks[k], got) &&
                    memcmp(want, got, sizeof want) != 0)
                    fail_msg("latents %d, %s, chunks of %d: other bits", i, name, chunks[k]);
            }
        }
        assert_true(run(c, (struct setup){&backend_ref, NULL, 1, 16, cases[i].kv}, TOKENS, 100, got));
        double difference = 0, size = 0; // of what the layer adds
        for (int k = 0; k < TOKENS * D; k++) {
            difference += pow((double)(want[k] - got[k]), 2);
            size += pow((double)(got[k] - c->input[k]), 2);
        }
        if (!(size > 1 && sqrt(difference / size) < (cases[i].kv == DTYPE_F32 ? 1e-5 : 4e-2)))
            fail_msg("latents %d: %g from the reference", i, sqrt(difference / size));
        free_case(c);
    }
}

// Decode over more chunks than one work item takes, of heads that threads divide.
TEST(test_long_decode) {
    static float want[LONG * D], got[LONG * D];
    for (int i = 0; i < NUM_CASES; i++) {
        struct case_of *c = make_case(i);
        for (int threads = 1; threads <= 3; threads++)
            assert_true(run(c, (struct setup){&backend_cpu, NULL, threads, 16, cases[i].kv}, LONG, LONG - 1,
                            threads == 1 ? want : got) &&
                        (threads == 1 || memcmp(want, got, sizeof want) == 0));
        free_case(c);
    }
}

int main(void) { return run_all_tests(NULL, NULL); }
